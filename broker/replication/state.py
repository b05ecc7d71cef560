"""How far a leader's standby is, as metrics and the console show it."""

from __future__ import annotations

from typing import NamedTuple


class ReplicationState(NamedTuple):
    """How far a leader's standby is.

    lag_bytes: what is not sent; lag_operations: what is not applied. lag_ms: since the standby last
    had all; None: it never had. leader_epoch: of the lease; None: there is none.
    """

    mode: str
    follows: bool
    is_in_sync: bool
    lag_bytes: int
    lag_operations: int
    lag_ms: int | None
    waiting_answers: int
    leader_epoch: int | None
