"""A share partition that is loaded: the value, its log, and who is notified of it."""

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
        """Try the fetches that wait."""
        ...


class LoadedPartition:
    """A share partition and its log. idle: partitions of sessions that become ready when records
    may be acquired. is_stored: its start offset is on the disk; before that no record is acquired.
    is_dropped: it must not be used any more. state: what it was loaded from. unstored: changes for
    which there was no space; the next change that is stored includes them.
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
        """Whether it is a share partition of that log, under its current leader, and of the state
        that is stored.
        """
        return (
            not self.is_dropped
            and self.log is log
            and self.leader_epoch == log.leader_epoch
            and self.is_of_state
        )

    @property
    def is_of_state(self) -> bool:
        """Whether the state was neither begun again nor deleted since."""
        return self.state.beginning == self._beginning

    def on_progress(self, log: Log, now_ms: int) -> None:
        """The log has grown, or more of it is visible."""
        self.wake(now_ms)

    def wake(self, now_ms: int) -> None:
        """Records may be acquired: the sessions that have none visit the partition again."""
        if self.idle:
            self.wakes.wake(self, now_ms)

    def wake_now(self, now_ms: int) -> None:
        """Carry out a wake, for `Wakes`."""
        idle, self.idle = self.idle, {}
        for target in idle:
            target.make_ready()
        for target in idle:
            target.try_fetches(now_ms)
