"""The share partitions of this broker that members read. Each is loaded from its stored state when
a member first fetches from it, and dropped when no member of the group has a session any more.

Every change is stored before it is applied, and the response to its request waits until the change
is on the disk.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from barnabas.broker.logs.purgatory import Purgatory
from barnabas.broker.settings.group_configs import GroupConfigs
from barnabas.broker.share_partitions.first_offsets import FirstOffsets
from barnabas.broker.share_partitions.loaded_partition import LoadedPartition, Wakes
from barnabas.broker.share_partitions.share_counts import ShareCounts
from barnabas.broker.share_partitions.share_partition import (
    Acknowledgement,
    GroupLimits,
    SharePartition,
    Transition,
    count_of,
)
from barnabas.broker.share_partitions.share_runtime import ShareRuntime
from barnabas.coordinator.share_states.share_coordinator import ShareCoordinator
from barnabas.coordinator.share_states.share_records import SharePartitionKey
from barnabas.coordinator.share_states.share_state import UNINITIALIZED_OFFSET, Change, LeaderWrite
from barnabas.coordinator.share_states.state_batches import MOST_COUNTED, combine
from barnabas.coordinator.timers import Timers
from barnabas.protocol.errors import Code, KafkaError
from barnabas.storage.disk import NotWrittenError
from barnabas.storage.exception_guard import contain
from barnabas.storage.log.log import Log

logger = logging.getLogger("barnabas.groups")

ENDS_AT_ONCE = 100  # maximum number of transitions for expired locks in one tick
# The error codes that a member gets, as in Apache Kafka, if its change cannot be stored.
_REFUSALS = {
    Code.FENCED_LEADER_EPOCH: Code.NOT_LEADER_OR_FOLLOWER,
    Code.FENCED_STATE_EPOCH: Code.NOT_LEADER_OR_FOLLOWER,
    Code.UNKNOWN_TOPIC_OR_PARTITION: Code.UNKNOWN_TOPIC_OR_PARTITION,
}


class SharePartitionCache:
    """All loaded share partitions, and the deadlines of their locks. wakes: held while transitions
    are decided and applied, and while a fetch is tried.
    """

    def __init__(
        self,
        coordinator: ShareCoordinator,
        runtime: ShareRuntime,
        group_configs: GroupConfigs,
        purgatory: Purgatory,
        first_offsets: FirstOffsets,
    ) -> None:
        self._coordinator, self._runtime = coordinator, runtime
        self.first_offsets = first_offsets
        self._group_configs, self._purgatory = group_configs, purgatory
        self._loaded: dict[SharePartitionKey, LoadedPartition] = {}
        self._by_group: dict[str, dict[SharePartitionKey, None]] = {}
        self._timers: Timers[SharePartitionKey] = Timers()
        self._limits: dict[str, tuple[Any, GroupLimits]] = {}
        self.wakes = Wakes()
        self.counts = ShareCounts()
        self._woken_later: dict[LoadedPartition, None] = {}

    def __len__(self) -> int:
        return len(self._loaded)

    def __iter__(self) -> Iterator[LoadedPartition]:
        return iter(self._loaded.values())

    def of_group(self, group_id: str) -> list[LoadedPartition]:
        """The loaded share partitions of a group."""
        return [self._loaded[key] for key in self._by_group.get(group_id, ())]

    # --- loading ---------------------------------------------------------------------------------

    def get(self, key: SharePartitionKey) -> LoadedPartition | None:
        """The share partition with the key; None if it is not loaded."""
        return self._loaded.get(key)

    def load(self, key: SharePartitionKey, log: Log, now_ms: int) -> LoadedPartition:
        """The share partition with the key, which is loaded from its stored state if necessary.

        Raises: KafkaError UNKNOWN_SERVER_ERROR if it is not initialized, as in Apache Kafka
                (clients try again); OFFSET_NOT_AVAILABLE if the group begins at a time for which
                there is no record; NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION;
                COORDINATOR_NOT_AVAILABLE if there is no disk space for a record. SearchedLater if
                the first offset is not known yet.
        """
        loaded = self._loaded.get(key)
        if loaded is not None and loaded.is_of(log):
            return loaded
        # The notifications are made at the end of this block, so that waiting fetches find the new
        # partition.
        with self.wakes:
            self.drop(key, now_ms)
            return self._load(key, log, now_ms)

    def _load(self, key: SharePartitionKey, log: Log, now_ms: int) -> LoadedPartition:
        """Load a share partition: read its stored state, and determine its first offset if the
        group reads it for the first time. Raises: KafkaError, SearchedLater.
        """
        change = self._coordinator.decide_read(key, log.leader_epoch, now_ms)
        if change.error_code:
            raise _refusal(change)
        self._store_now([change], _ignore, now_ms)
        state = self._coordinator.state(key)
        assert state is not None, "it was read"
        start_offset = state.start_offset
        if start_offset == UNINITIALIZED_OFFSET:
            start_offset = self.first_offsets.of(key, log, now_ms)
        loaded = LoadedPartition(
            key,
            log,
            state,
            SharePartition(start_offset, state.batches, state.state_epoch),
            self.wakes,
        )
        if state.start_offset == UNINITIALIZED_OFFSET:
            self._store_first_offset(loaded, now_ms)
        self._loaded[key] = loaded
        self._by_group.setdefault(key.group_id, {})[key] = None
        self._purgatory.watch(log, loaded)
        return loaded

    def _store_first_offset(self, loaded: LoadedPartition, now_ms: int) -> None:
        """Store the first offset of a group. Otherwise a later start could find a different offset,
        and skip the records in between.
        """

        def done(now_ms: int) -> None:
            loaded.is_stored = True
            loaded.wake(now_ms)

        loaded.is_stored = False
        value = loaded.value
        first = LeaderWrite(value.state_epoch, loaded.leader_epoch, value.start_offset, 0, ())
        self._store_now([self._coordinator.decide_write(loaded.key, first, now_ms)], done, now_ms)

    def _store_now(
        self, changes: Sequence[Change], then: Callable[[int], None], now_ms: int
    ) -> None:
        """Store changes. Raises: KafkaError COORDINATOR_NOT_AVAILABLE without disk space."""
        try:
            self._runtime.store(changes, then, now_ms)
        except NotWrittenError as error:
            raise KafkaError(Code.COORDINATOR_NOT_AVAILABLE, "the disk is full") from error

    def drop(self, key: SharePartitionKey, now_ms: int) -> None:
        """Drop a share partition. The next fetch loads it again."""
        loaded = self._loaded.pop(key, None)
        if loaded is None:
            return
        loaded.is_dropped = True
        of_group = self._by_group[key.group_id]
        del of_group[key]
        if not of_group:
            del self._by_group[key.group_id]
            self._limits.pop(key.group_id, None)
        self._timers.cancel(key)
        self._purgatory.unwatch(loaded.log, loaded)
        loaded.wake(now_ms)

    def drop_some(self, group_id: str, most: int, now_ms: int) -> int:
        """Drop some share partitions of a group that has no sessions. Those with changes that are
        not stored are kept.

        Gives: the number of dropped partitions; less than `most` if no others can be dropped.
        """
        of_group = self._by_group.get(group_id, {})
        stored = (key for key in of_group if not self._loaded[key].unstored)
        some = list(islice(stored, most))
        for key in some:
            self.drop(key, now_ms)
        if len(some) < most:
            self.first_offsets.forget(group_id)
        return len(some)

    def drop_topics(self, topic_ids: set[uuid.UUID], now_ms: int) -> None:
        """Drop the share partitions of deleted topics."""
        deleted = {topic_id.bytes for topic_id in topic_ids}
        for key in [key for key in self._loaded if key.topic_id in deleted]:
            self.drop(key, now_ms)

    def limits(self, group_id: str) -> GroupLimits:
        """The limits from the settings of a group. They are read again after a change of the
        settings.
        """
        own = self._group_configs.own(group_id)
        known = self._limits.get(group_id)
        if known is not None and known[0] is own:
            return known[1]
        names = (
            "share.delivery.count.limit",
            "share.partition.max.record.locks",
            "share.record.lock.duration.ms",
            "share.renew.acknowledge.enable",
        )
        limits = GroupLimits(*(self._group_configs.value(group_id, name) for name in names))
        if group_id in self._by_group:
            self._limits[group_id] = (own, limits)
        return limits

    # --- events ----------------------------------------------------------------------------------

    def acknowledge(
        self,
        key: SharePartitionKey,
        member_id: str,
        acknowledgements: Sequence[Acknowledgement],
        now_ms: int,
    ) -> PendingTransition:
        """Decide about the acknowledgements of a member. The caller holds the wakes until it has
        called `store`.

        Raises: KafkaError of `SharePartition.on_acknowledged`; UNKNOWN_TOPIC_OR_PARTITION if the
                share partition is not loaded, so that the member holds no records of it.
        """
        loaded = self._loaded.get(key)
        if loaded is None:
            raise KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION)
        limits = self.limits(key.group_id)
        transition = loaded.value.on_acknowledged(member_id, acknowledgements, limits, now_ms)
        pending = self._with_change(loaded, transition, now_ms)
        self.counts.acknowledge(acknowledgements)
        return pending

    def release(self, keys: Iterable[SharePartitionKey], member_id: str, now_ms: int) -> None:
        """Release the records that a member holds, since its session is closed."""
        with self.wakes:
            self._release(keys, member_id, now_ms)

    def _release(self, keys: Iterable[SharePartitionKey], member_id: str, now_ms: int) -> None:
        """Release all records that the member holds in these share partitions."""
        pending = []
        for key in keys:
            loaded = self._loaded.get(key)
            if loaded is None:
                continue
            try:
                transition = loaded.value.on_released(member_id, self.limits(key.group_id))
                if not transition.is_empty:
                    pending.append(self._with_change(loaded, transition, now_ms))
            except KafkaError as error:
                logger.info("%s: the records of a member are not released: %s", key, error)
            except Exception as error:
                contain(error, f"the records of a member in {key}")
        self._store_or_not(pending, now_ms)

    def _with_change(
        self, loaded: LoadedPartition, transition: Transition, now_ms: int
    ) -> PendingTransition:
        """Combine a transition with the change of the stored state that it requires.

        Raises: KafkaError NOT_LEADER_OR_FOLLOWER if the state was initialized again meanwhile,
                UNKNOWN_SERVER_ERROR if it was deleted; in both cases the share partition is
                dropped.
        """
        value = loaded.value
        if not transition.stored:
            return PendingTransition(loaded, transition, None)
        written = LeaderWrite(
            value.state_epoch,
            loaded.leader_epoch,
            value.start_offset,
            min(value.complete_count + transition.completed, MOST_COUNTED),
            [*loaded.unstored, *transition.stored],
        )
        change = self._coordinator.decide_write(loaded.key, written, now_ms)
        if not change.error_code and not loaded.has_current_state:
            change = Change(error_code=Code.FENCED_STATE_EPOCH)
        if change.error_code:
            self.drop(loaded.key, now_ms)
            raise _refusal(change)
        return PendingTransition(loaded, transition, change)

    def store(
        self, pending: Sequence[PendingTransition], then: Callable[[int], None], now_ms: int
    ) -> None:
        """Store transitions and apply them. `then` is called once they are durable.

        Raises: NotWrittenError if there is no disk space; OSError. In both cases no transition is
                applied, even if some of the records are written, since a later change supersedes
                these records.
        """
        changes = [one.change for one in pending if one.change is not None]
        with self.wakes:
            self._runtime.store(changes, then, now_ms, is_acknowledgement=True)
            for one in pending:
                if one.change is not None:
                    one.loaded.unstored = []
                self.counts.given_up += one.transition.given_up
                if one.loaded.value.apply(one.transition):
                    one.loaded.wake(now_ms)
                if one.transition.renewed:
                    self.schedule(one.loaded)

    def _store_or_not(self, pending: Sequence[PendingTransition], now_ms: int) -> None:
        """Store and apply transitions that no member waits for. They are applied even if there is
        no disk space to store them, since after a start these records are available in any case.
        """
        try:
            self.store(pending, _ignore, now_ms)
        except NotWrittenError:
            unstored = [PendingTransition(one.loaded, one.transition, None) for one in pending]
            for one in unstored:
                loaded = one.loaded
                combine(loaded.unstored, one.transition.stored, loaded.value.start_offset)
            self.store(unstored, _ignore, now_ms)

    # --- locks -----------------------------------------------------------------------------------

    def schedule(self, loaded: LoadedPartition) -> None:
        """Set the timer to the time at which the next lock of a share partition ends."""
        deadline_ms = loaded.value.next_deadline_ms
        if deadline_ms is None:
            self._timers.cancel(loaded.key)
        elif self._timers.deadline_ms(loaded.key) != deadline_ms:
            self._timers.schedule(loaded.key, deadline_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        """The time at which the next lock may end; 0 if a notification or a look-up is
        already due.
        """
        if self._woken_later or self.first_offsets.is_ready:
            return 0
        return self._timers.earliest_ms

    def wake_later(self, loaded: LoadedPartition) -> None:
        """Try the fetches that wait for a share partition again at the next tick. A fetch that has
        reached the limit of one event continues this way.
        """
        self._woken_later[loaded] = None

    def on_tick(self, now_ms: int) -> None:
        """Release the records whose locks have expired, and continue fetches."""
        woken, self._woken_later = self._woken_later, {}
        for one in woken:
            one.wake(now_ms)
        self.first_offsets.on_tick(now_ms)
        earliest_ms = self._timers.earliest_ms
        if earliest_ms is None or earliest_ms > now_ms:
            return
        left = ENDS_AT_ONCE
        while left > 0 and (due := self._timers.pop_due(now_ms, 1)):
            loaded = self._loaded.get(due[0])
            if loaded is None:
                continue
            try:
                left = self._end_locks(loaded, left, now_ms)
                if not loaded.is_dropped:
                    self.schedule(loaded)
            except Exception as error:
                left -= 1
                contain(error, f"the locks of {loaded.key}")

    def _end_locks(self, loaded: LoadedPartition, left: int, now_ms: int) -> int:
        """Expire the locks of a share partition that have ended. If members wait for its records,
        one of them gets the records of the first lock before the next lock expires.

        Takes: left, the maximum number of transitions. Gives: how many transitions are left.
        """
        limits = self.limits(loaded.key.group_id)
        while True:
            deadline_ms = loaded.value.next_deadline_ms
            if left <= 0 or deadline_ms is None or deadline_ms > now_ms:
                return left - 1
            left -= 1
            is_waited_for = any(target.is_waited_for for target in loaded.idle)
            transition = loaded.value.on_locks_ended(limits, now_ms, one_by_one=is_waited_for)
            if transition.is_empty:
                continue
            self.counts.lock_timeouts += sum(map(count_of, transition.stored))
            try:
                self._store_or_not([self._with_change(loaded, transition, now_ms)], now_ms)
            except KafkaError as error:
                logger.info("%s: expired locks are not stored: %s", loaded.key, error)
                if self._loaded.get(loaded.key) is not loaded:
                    return left
                # apply the transition without its stored state: the locks have expired in any case
                self.store([PendingTransition(loaded, transition, None)], _ignore, now_ms)


class PendingTransition:
    """A transition of a share partition that is decided, but not stored and applied yet.

    change: the change of the stored state, if there is one.
    """

    __slots__ = ("change", "loaded", "transition")

    def __init__(
        self, loaded: LoadedPartition, transition: Transition, change: Change | None
    ) -> None:
        self.loaded, self.transition, self.change = loaded, transition, change


def _refusal(change: Change) -> KafkaError:
    code = _REFUSALS.get(Code(change.error_code), Code.UNKNOWN_SERVER_ERROR)
    return KafkaError(code, change.error_message or "")


def _ignore(_: int) -> None:
    return
