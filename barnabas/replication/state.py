"""The progress of a leader's standby, for metrics and the console."""

from __future__ import annotations

from typing import NamedTuple


class ReplicationState(NamedTuple):
    """The progress of a leader's standby.

    lag_bytes: the bytes that are not sent yet. lag_operations: the number of operations that are
    not applied yet. lag_ms: the time since the standby last had everything; None if it never had
    everything. leader_epoch: the leader epoch of the lease; None without a lease.
    """

    mode: str
    follows: bool
    is_in_sync: bool
    lag_bytes: int
    lag_operations: int
    lag_ms: int | None
    waiting_answers: int
    leader_epoch: int | None
