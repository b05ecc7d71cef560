"""A share partition that is loaded: its value, its log, and the sessions that are notified when
records may be acquired. `Wakes` notifies them, for one share partition after the other.
"""

from __future__ import annotations

from typing import Protocol

from barnabas.broker.share_partitions.share_partition import SharePartition
from barnabas.coordinator.share_states.share_records import SharePartitionKey
from barnabas.coordinator.share_states.share_state import ShareState
from barnabas.coordinator.share_states.state_batches import StateBatch
from barnabas.storage.exception_guard import contain
from barnabas.storage.log.log import Log


class Idle(Protocol):
    """A partition in a session that has no records for the member at the moment."""

    @property
    def is_waited_for(self) -> bool:
        """Whether a fetch of the session is waiting."""
        ...

    def make_ready(self) -> None:
        """Let the next fetch visit the partition."""
        ...

    def try_fetches(self, now_ms: int) -> None:
        """Try again the fetches of the session that are waiting."""
        ...


class LoadedPartition:
    """A share partition and its log.

    idle: the partitions in sessions that become ready when records may be acquired. is_stored:
    whether the start offset is durable; before that, no record is acquired. is_dropped: whether
    this object must no longer be used. state: the stored state from which the share partition was
    loaded. unstored: changes that were not stored because there was no disk space; the next stored
    change includes them.
    """

    __slots__ = (
        "_incarnation",
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
        self.state, self._incarnation = state, state.incarnation
        self.idle: dict[Idle, None] = {}
        self.is_stored, self.is_dropped = True, False
        self.unstored: list[StateBatch] = []

    def is_of(self, log: Log) -> bool:
        """Whether this share partition was loaded for the given log, for its current leader epoch,
        and from the stored state as it is now.
        """
        return (
            not self.is_dropped
            and self.log is log
            and self.leader_epoch == log.leader_epoch
            and self.has_current_state
        )

    @property
    def has_current_state(self) -> bool:
        """Whether the stored state is still the one that was loaded: since then it was neither
        initialized again nor deleted.
        """
        return self.state.incarnation == self._incarnation

    def on_progress(self, log: Log, now_ms: int) -> None:
        """Called when the log has grown, or more of its records are visible."""
        self.wake(now_ms)

    def wake(self, now_ms: int) -> None:
        """Notify the idle sessions. They visit the partition again, since there may be records to
        acquire.
        """
        if self.idle:
            self.wakes.wake(self, now_ms)

    def wake_now(self, now_ms: int) -> None:
        """Notify the idle sessions now. `Wakes` calls this when it is no longer held."""
        idle, self.idle = self.idle, {}
        for target in idle:
            target.make_ready()
        for target in idle:
            target.try_fetches(now_ms)


class Wakes:
    """The deferred wakes. Used as a context manager, it defers all wakes to the end of the block.

    A fetch that is tried may acquire records, and may load or drop share partitions, so that other
    fetches have to be tried as well (a wake). Such a wake is deferred while the states of share
    partitions are in use: between the decision about a transition and its `apply`, and while a
    fetch is tried.
    """

    __slots__ = ("_depth", "_waiting")

    def __init__(self) -> None:
        self._depth = 0
        self._waiting: dict[LoadedPartition, int] = {}

    def wake(self, loaded: LoadedPartition, now_ms: int) -> None:
        """Try the fetches that wait for a share partition, now or at the end of the block."""
        with self:
            self._waiting[loaded] = now_ms

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        """At the end of the outermost block, notify the waiting fetches. This may cause further
        wakes, which are handled as well.
        """
        try:
            if self._depth == 1:
                waiting = self._waiting
                while waiting:
                    loaded = next(iter(waiting))
                    now_ms = waiting.pop(loaded)
                    try:
                        loaded.wake_now(now_ms)
                    except Exception as error:
                        contain(error, loaded.key)
        finally:
            self._depth -= 1
