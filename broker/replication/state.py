"""How far behind a leader's standby is, as metrics and the console show it."""

from __future__ import annotations

from typing import NamedTuple


class ReplicationState(NamedTuple):
    """How far behind a leader's standby is.

    lag_bytes: not sent yet; lag_operations: not applied yet. lag_ms: since the standby last had
    everything; None: it never had. leader_epoch: of the lease; None: there is no lease.
    """

    mode: str
    follows: bool
    is_in_sync: bool
    lag_bytes: int
    lag_operations: int
    lag_ms: int | None
    waiting_answers: int
    leader_epoch: int | None
