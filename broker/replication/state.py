"""The progress of a leader's standby, for metrics and the console."""

from __future__ import annotations

from typing import NamedTuple


class ReplicationState(NamedTuple):
    """The progress of a leader's standby.

    lag_bytes: not sent yet; lag_operations: not applied yet. lag_ms: since the standby last had
    everything; None: never. leader_epoch: of the lease; None: there is none.
    """

    mode: str
    follows: bool
    is_in_sync: bool
    lag_bytes: int
    lag_operations: int
    lag_ms: int | None
    waiting_answers: int
    leader_epoch: int | None
