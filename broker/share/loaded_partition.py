"""A loaded share partition: the value, its log, and the sessions that are notified of its
progress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from barnabas.broker.share.share_partition import SharePartition
from barnabas.coordinator.share.share_records import SharePartitionKey

if TYPE_CHECKING:
    from barnabas.broker.share.wakes import Wakes
    from barnabas.coordinator.share.share_state import ShareState
    from barnabas.coordinator.share.state_batches import StateBatch
    from barnabas.storage.log.log import Log


class Idle(Protocol):
    """A partition of a session that has no records for the member."""

    @property
    def is_waited_for(self) -> bool:
        """Whether a fetch of the session waits."""
        ...

    def make_ready(self) -> None:
        """Let the next fetch visit the partition."""
        ...

    def try_fetches(self, now_ms: int) -> None:
        """Try the waiting fetches."""
        ...


class LoadedPartition:
    """A share partition and its log. idle: partitions of sessions that become ready when records
    may be acquired. is_stored: whether its start offset is durable; before that no record is
    acquired. is_dropped: whether it must no longer be used. state: the stored state from which it
    was loaded. unstored: changes that found no disk space; the next stored change includes them.
    """

    __slots__ = (
        "_beginning",
        "idle",
        "is_dropped",
        "is_stored",
        "key",
        "leader_epoch",
        "log",
        "state",
        "unstored",
        "value",
        "wakes",
    )

    def __init__(
        self,
        key: SharePartitionKey,
        log: Log,
        state: ShareState,
        value: SharePartition,
        wakes: Wakes,
    ) -> None:
        self.key, self.log, self.value, self.wakes = key, log, value, wakes
        self.leader_epoch = log.leader_epoch
        self.state, self._beginning = state, state.beginning
        self.idle: dict[Idle, None] = {}
        self.is_stored, self.is_dropped = True, False
        self.unstored: list[StateBatch] = []

    def is_of(self, log: Log) -> bool:
        """Whether the share partition belongs to that log, the log's current leader epoch, and the
        present stored state.
        """
        return (
            not self.is_dropped
            and self.log is log
            and self.leader_epoch == log.leader_epoch
            and self.is_of_state
        )

    @property
    def is_of_state(self) -> bool:
        """Whether the stored state was neither initialized again nor deleted since."""
        return self.state.beginning == self._beginning

    def on_progress(self, log: Log, now_ms: int) -> None:
        """Called when the log has grown, or more of its records are visible."""
        self.wake(now_ms)

    def wake(self, now_ms: int) -> None:
        """Notify the sessions without records: they visit the partition again, since records may be
        acquired.
        """
        if self.idle:
            self.wakes.wake(self, now_ms)

    def wake_now(self, now_ms: int) -> None:
        """Carry out a wake, for `Wakes`."""
        idle, self.idle = self.idle, {}
        for target in idle:
            target.make_ready()
        for target in idle:
            target.try_fetches(now_ms)
