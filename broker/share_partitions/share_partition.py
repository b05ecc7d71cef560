"""A share partition as a value: the state of each record of a partition for one share group.

Each record from the start offset on is in one state at a time:

| state | meaning | next |
|---|---|---|
| available | it may be acquired; so is every record that is not in flight | acquired |
| acquired | one member holds it until its lock ends | any other |
| acknowledged | it was accepted | |
| archived | it was rejected, given up, or is no record for the group | |

Records before the start offset are acknowledged or archived, and not stored. An event (a request of
a member, an expired lock, a closed session) is decided first: the method `on_…` returns a
`Transition` and changes no state. The caller stores the state batches of the transition, and then
calls `apply`, which never refuses. Acquisitions are not stored: after a start the records are
available again.

Sources: KIP-932; Apache Kafka 4.3.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from barnabas.broker.share_partitions.in_flight import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    NEVER,
    NO_MEMBER,
    InFlightBatch,
    Run,
    replaced,
)
from barnabas.coordinator.share_states.state_batches import StateBatch
from barnabas.protocol.errors import Code, KafkaError

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
_FEWEST_LOCKS = 64  # while the list of locks is shorter than this, obsolete entries are not removed
_STATES = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, RELEASE: AVAILABLE, REJECT: ARCHIVED}


class GroupLimits(NamedTuple):
    """The settings of a group that limit its use of records."""

    delivery_count: int = 5
    record_locks: int = 2000
    lock_duration_ms: int = 30_000
    may_renew: bool = True


class Acknowledgement(NamedTuple):
    """An acknowledgement of records by a member. types: one type for all records, or a type for
    each record.
    """

    first_offset: int
    last_offset: int
    types: Sequence[int]


class Transition(NamedTuple):
    """The changes that an event causes.

    before, runs: the old and the new runs of each changed batch, by the batch's first offset.
    stored: the state batches to be stored. renewed: runs whose locks were extended. completed: the
    number of records that will not be delivered again. given_up: the number of these that reached
    the group's delivery limit.
    """

    before: dict[int, list[Run]]
    runs: dict[int, list[Run]]
    stored: list[StateBatch]
    renewed: list[Run]
    completed: int
    given_up: int = 0

    @property
    def is_empty(self) -> bool:
        return not self.runs


class SharePartition:
    """The records of a partition that are in flight for a share group.

    start_offset: all records before it are complete. end_offset: the last acquired offset; the
    start offset if no record is in flight. complete_count: how many of the records in flight are
    complete, which means acknowledged or archived.
    """

    __slots__ = (
        "_available", "_batches", "_firsts", "_locks", "_most_locks", "complete_count",
        "end_offset", "start_offset", "state_epoch",
    )  # fmt: skip

    def __init__(
        self, start_offset: int, batches: Iterable[StateBatch] = (), state_epoch: int = 0
    ) -> None:
        """Takes: batches, the stored state of the records from the start offset on."""
        self.start_offset = self.end_offset = start_offset
        self.state_epoch = state_epoch
        self.complete_count = 0
        self._batches: dict[int, InFlightBatch] = {}
        self._firsts: list[int] = []  # first offsets of the batches, in order
        # first offsets of the batches that may have an available record
        self._available: list[int] = []
        self._locks: list[tuple[int, int, int]] = []  # (deadline, first offset, last offset)
        self._most_locks = _FEWEST_LOCKS
        next_offset = start_offset
        for one in batches:
            if one.first_offset > next_offset:
                gap = Run(next_offset, one.first_offset - 1, AVAILABLE, 0)
                self._add(InFlightBatch([gap], is_gap=True))
            run = Run(*one)
            self._add(InFlightBatch([run]))
            if run.is_complete:
                self.complete_count += count_of(run)
            next_offset = one.last_offset + 1
            self.end_offset = one.last_offset
        self.move_start()

    # --- reading ---------------------------------------------------------------------------------

    @property
    def in_flight_count(self) -> int:
        """The number of records in flight, from the start offset to the end offset."""
        return self.end_offset - self.start_offset + 1 if self._firsts else 0

    def __len__(self) -> int:
        """The number of batches in flight."""
        return len(self._firsts)

    @property
    def next_offset(self) -> int:
        """The offset at which the next acquisition begins: the offset of the first available
        record, or else the offset at which new records begin.
        """
        while self._available:
            run = self._batches[self._available[0]].first_available()
            if run is not None:
                return run.first_offset
            del self._available[0]
        return self.end_offset + 1 if self._firsts else self.end_offset

    def may_acquire(self, record_locks: int) -> bool:
        """Whether one more record may be locked."""
        return self.next_offset != self.end_offset + 1 or self.in_flight_count < record_locks

    def batches(self) -> Iterator[InFlightBatch]:
        """The batches in flight, in order."""
        return (self._batches[first] for first in self._firsts)

    @property
    def next_deadline_ms(self) -> int | None:
        """A time before which no lock expires; None if no record is locked."""
        return self._locks[0][0] if self._locks else None

    # --- events: decided here, changed by `apply` ------------------------------------------------

    def on_acknowledged(
        self,
        member_id: str,
        acknowledgements: Iterable[Acknowledgement],
        limits: GroupLimits,
        now_ms: int,
    ) -> Transition:
        """Decide about a member's acknowledgements of records that it holds.

        Raises: KafkaError INVALID_RECORD_STATE for records that the member does not hold;
                INVALID_REQUEST for records that were not acquired.
        """
        staged = _Staged(self, limits, now_ms)
        for one in acknowledgements:
            if one.last_offset < self.start_offset:
                continue  # the records were completed meanwhile
            for batch in self._acknowledged_batches(one):
                staged.acknowledge(batch, one, member_id)
        return staged.transition()

    def _acknowledged_batches(self, one: Acknowledgement) -> list[InFlightBatch]:
        """The batches in flight with the acknowledged records. Raises: KafkaError as
        `on_acknowledged`.
        """
        first_offset = max(one.first_offset, self.start_offset)
        begin = bisect_right(self._firsts, first_offset) - 1
        if begin < 0:
            raise KafkaError(Code.INVALID_RECORD_STATE, "the records are not in flight")
        end = bisect_right(self._firsts, one.last_offset)
        last = self._batches[self._firsts[end - 1]]
        if one.last_offset > last.last_offset:
            raise KafkaError(Code.INVALID_REQUEST, "the records were not acquired")
        found = [self._batches[first] for first in self._firsts[begin:end]]
        return [batch for batch in found if batch.last_offset >= first_offset]

    def on_released(self, member_id: str, limits: GroupLimits) -> Transition:
        """Make the records of a member available again, since its session is closed."""
        staged = _Staged(self, limits, 0)
        for batch in self.batches():
            for run in batch.runs:
                if run.state == ACQUIRED and run.member_id == member_id:
                    staged.release(batch, run)
        return staged.transition()

    def on_locks_ended(self, limits: GroupLimits, now_ms: int, *, one_by_one: bool) -> Transition:
        """Make the records whose locks have expired available again.

        Takes: one_by_one, whether only the first record of a tracked batch is released. Then each
               waiting member gets one record, as in Apache Kafka, where every record of such a
               batch has its own lock.
        """
        staged = _Staged(self, limits, now_ms)
        while self._locks and self._locks[0][0] <= now_ms:
            _, first_offset, last_offset = self._locks[0]
            for batch in self._overlapping(first_offset, last_offset):
                for run in staged.current(batch).between(first_offset, last_offset):
                    if run.state != ACQUIRED or run.deadline_ms > now_ms:
                        continue
                    if one_by_one and batch.is_tracked:
                        staged.release(batch, run.part(run.first_offset, run.first_offset))
                        return staged.transition()
                    staged.release(batch, run)
            heapq.heappop(self._locks)
            if one_by_one and not staged.is_empty:
                break
        return staged.transition()

    def apply(self, transition: Transition) -> bool:
        """Apply a transition. Gives: whether records are available now, or may become available
        since the start offset has moved.
        """
        has_available = False
        for first_offset, runs in transition.runs.items():
            batch = self._batches[first_offset]
            assert batch.runs is transition.before[first_offset], "it has changed since"
            batch.runs = runs
            if len(runs) > 1:
                batch.is_tracked = True
            batch.available_from = runs[0].first_offset
            if batch.first_available() is not None:
                self._note_available(first_offset)
                has_available = True
        for run in transition.renewed:
            self.note_lock(run)
        self.complete_count += transition.completed
        return self.move_start() or has_available

    # --- events that are not stored --------------------------------------------------------------

    def on_log_start(self, offset: int) -> bool:
        """Drop the records before the new start of the log, even if members hold them.

        Gives: whether the start offset has moved.
        """
        if offset <= self.start_offset:
            return False
        self._drop_before(offset)
        self.start_offset = offset
        self.end_offset = max(self.end_offset, offset)
        self.move_start()
        return True

    def archive(self, first_offset: int, last_offset: int, state: int) -> None:
        """Archive the records between two offsets that are in the given state. These are not
        records for the group, since their transaction was aborted or the log was compacted.
        """
        for batch in self._overlapping(first_offset, last_offset):
            made = [
                run._replace(state=ARCHIVED, member_id=NO_MEMBER, deadline_ms=NEVER)
                if run.state == state
                else run
                for run in batch.between(first_offset, last_offset)
            ]
            self.complete_count += sum(count_of(run) for run in made if run.is_complete) - sum(
                count_of(run) for run in batch.between(first_offset, last_offset) if run.is_complete
            )
            batch.runs = replaced(batch.runs, made)
            batch.is_tracked = batch.is_tracked or len(batch.runs) > 1

    # --- the batches -----------------------------------------------------------------------------

    def _overlapping(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        """The batches in flight that have a record in the range of offsets."""
        begin = max(bisect_right(self._firsts, first_offset) - 1, 0)
        end = bisect_right(self._firsts, last_offset)
        found = [self._batches[first] for first in self._firsts[begin:end]]
        return [batch for batch in found if batch.last_offset >= first_offset]

    def add_acquired(self, batch: InFlightBatch) -> None:
        """Add a new batch in flight, and record its locks."""
        self._add(batch)
        for run in batch.runs:
            if run.state == ACQUIRED:
                self.note_lock(run)

    def note_lock(self, run: Run) -> None:
        """Record the time at which the lock of acquired records ends."""
        heapq.heappush(self._locks, (run.deadline_ms, run.first_offset, run.last_offset))
        if len(self._locks) > self._most_locks:
            self._rebuild_locks()

    def _rebuild_locks(self) -> None:
        """Remove the entries of locks that were renewed, or whose records are no longer held."""
        self._locks = [
            (run.deadline_ms, run.first_offset, run.last_offset)
            for batch in self.batches()
            for run in batch.runs
            if run.state == ACQUIRED
        ]
        heapq.heapify(self._locks)
        self._most_locks = max(_FEWEST_LOCKS, 2 * len(self._locks))

    def remove(self, batch: InFlightBatch) -> None:
        """Remove a batch."""
        first_offset = batch.first_offset
        del self._batches[first_offset]
        del self._firsts[bisect_left(self._firsts, first_offset)]
        self.forget_available(first_offset)

    def _add(self, batch: InFlightBatch) -> None:
        """Add a batch in flight, in the order of offsets."""
        first_offset = batch.first_offset
        self._batches[first_offset] = batch
        insort(self._firsts, first_offset)
        if batch.first_available() is not None:
            self._note_available(first_offset)

    def floor(self, offset: int) -> InFlightBatch | None:
        """The last batch that begins at or before the offset; None if there is no such batch."""
        index = bisect_right(self._firsts, offset) - 1
        return None if index < 0 else self._batches[self._firsts[index]]

    def available_between(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        """The batches that begin between these offsets, and that may have available records."""
        begin = bisect_left(self._available, first_offset)
        end = bisect_right(self._available, last_offset)
        return [self._batches[first] for first in self._available[begin:end]]

    def has_batch_between(self, first_offset: int, last_offset: int) -> bool:
        """Whether a batch begins between these offsets."""
        index = bisect_left(self._firsts, first_offset)
        return index < len(self._firsts) and self._firsts[index] <= last_offset

    def is_first(self, offset: int) -> bool:
        """Whether the first batch in flight begins at the offset."""
        return bool(self._firsts) and self._firsts[0] == offset

    def _note_available(self, first_offset: int) -> None:
        """Note that the batch that begins there has an available record."""
        index = bisect_left(self._available, first_offset)
        if index == len(self._available) or self._available[index] != first_offset:
            self._available.insert(index, first_offset)

    def forget_available(self, first_offset: int) -> None:
        """Record that the batch that begins at this offset has no available record."""
        index = bisect_left(self._available, first_offset)
        if index < len(self._available) and self._available[index] == first_offset:
            del self._available[index]

    # --- the start offset ------------------------------------------------------------------------

    def move_start(self) -> bool:
        """Move the start offset to the first record that is not complete. Gives: whether the start
        offset has moved.
        """
        start_offset, done = self.start_offset, 0
        for first in self._firsts:
            batch = self._batches[first]
            begin = next((run for run in batch.runs if not run.is_complete), None)
            if begin is not None:
                return self._forget(max(begin.first_offset, start_offset))
            done += 1
        if not done:
            return False
        self.start_offset = self.end_offset = self._batches[self._firsts[-1]].last_offset + 1
        self._clear()
        return True

    def _forget(self, start_offset: int) -> bool:
        """Move the start offset, and drop the records before it. Gives: whether it has moved."""
        if start_offset == self.start_offset:
            return False
        self._drop_before(start_offset)
        self.start_offset = start_offset
        return True

    def _drop_before(self, offset: int) -> None:
        """Drop the records before the offset."""
        count = 0
        for first in self._firsts:
            batch = self._batches[first]
            if batch.first_offset >= offset:
                break
            dropped = batch.between(batch.first_offset, offset - 1)
            self.complete_count -= sum(count_of(run) for run in dropped if run.is_complete)
            count += 1
            if batch.last_offset >= offset:
                self._cut(count, batch, offset)
                return
            del self._batches[first]
            self.forget_available(first)
        del self._firsts[:count]
        if not self._firsts:
            self._clear()

    def _cut(self, count: int, batch: InFlightBatch, offset: int) -> None:
        """Drop the batches before the given batch, and the given batch's records before
        the offset.
        """
        first = batch.first_offset
        del self._batches[first]
        self.forget_available(first)
        batch.runs = list(batch.between(offset, batch.last_offset))
        batch.available_from = max(batch.available_from, offset)
        self._firsts[:count] = [offset]
        self._batches[offset] = batch
        if batch.first_available() is not None:
            self._note_available(offset)

    def _clear(self) -> None:
        """Drop all batches in flight."""
        self.complete_count = 0
        self._batches.clear()
        self._firsts.clear()
        self._available.clear()
        self._locks.clear()


class _Staged:
    """A transition while it is being built."""

    def __init__(self, partition: SharePartition, limits: GroupLimits, now_ms: int) -> None:
        self._partition, self._limits, self._now_ms = partition, limits, now_ms
        self._before: dict[int, list[Run]] = {}
        self._runs: dict[int, list[Run]] = {}
        self._stored: list[StateBatch] = []
        self._renewed: list[Run] = []
        self._completed = self._given_up = 0

    @property
    def is_empty(self) -> bool:
        return not self._runs

    def transition(self) -> Transition:
        """The complete transition."""
        return Transition(
            self._before, self._runs, self._stored, self._renewed, self._completed, self._given_up
        )

    def current(self, batch: InFlightBatch) -> InFlightBatch:
        """The batch as it is after the changes that the transition contains so far."""
        runs = self._runs.get(batch.first_offset)
        return batch if runs is None else InFlightBatch(runs)

    def release(self, batch: InFlightBatch, run: Run) -> None:
        """Make acquired records available. If they were delivered too often, archive them."""
        self._change(batch, self._released(run))

    def acknowledge(self, batch: InFlightBatch, one: Acknowledgement, member_id: str) -> None:
        """Decide about the acknowledged records of one batch. Raises: KafkaError
        INVALID_RECORD_STATE.
        """
        begin = max(one.first_offset, self._partition.start_offset)
        for run in self.current(batch).between(begin, one.last_offset):
            if run.state != ACQUIRED or run.member_id != member_id:
                raise KafkaError(
                    Code.INVALID_RECORD_STATE,
                    f"the member does not hold the records {run.first_offset} to {run.last_offset}",
                )
            for part, kind in _by_type(run, one):
                self._acknowledge(batch, part, kind)

    def _acknowledge(self, batch: InFlightBatch, run: Run, kind: int) -> None:
        """Decide about adjacent records with the same type of acknowledgement. Raises:
        KafkaError.
        """
        if kind == RENEW:
            if not self._limits.may_renew:
                raise KafkaError(
                    Code.INVALID_RECORD_STATE,
                    "share.renew.acknowledge.enable of the group is false: locks are not renewed",
                )
            renewed = run._replace(deadline_ms=self._now_ms + self._limits.lock_duration_ms)
            self._put(batch, renewed)
            self._renewed.append(renewed)
        elif kind == RELEASE:
            self.release(batch, run)
        else:
            made = Run(run.first_offset, run.last_offset, _STATES[kind], run.delivery_count)
            self._change(batch, made)

    def _released(self, run: Run) -> Run:
        """The records after their release: available again, or archived after their last permitted
        delivery.
        """
        is_last = run.delivery_count >= self._limits.delivery_count
        if is_last:
            self._given_up += count_of(run)
        state = ARCHIVED if is_last else AVAILABLE
        return Run(run.first_offset, run.last_offset, state, run.delivery_count)

    def _change(self, batch: InFlightBatch, run: Run) -> None:
        """Change the state of records, and add the new state to the state batches that are to be
        stored.
        """
        self._put(batch, run)
        self._stored.append(
            StateBatch(run.first_offset, run.last_offset, run.state, run.delivery_count)
        )
        if run.is_complete:
            self._completed += count_of(run)

    def _put(self, batch: InFlightBatch, run: Run) -> None:
        """Replace a part of a batch in the transition; the batch itself stays until `apply`."""
        first = batch.first_offset
        self._before.setdefault(first, batch.runs)
        self._runs[first] = replaced(self._runs.get(first, batch.runs), [run])


def _by_type(run: Run, one: Acknowledgement) -> Iterator[tuple[Run, int]]:
    """Split a run into parts whose records have the same type of acknowledgement."""
    if len(one.types) == 1:
        yield run, one.types[0]
        return
    first_offset = run.first_offset
    kind = one.types[first_offset - one.first_offset]
    for offset in range(first_offset + 1, run.last_offset + 1):
        next_kind = one.types[offset - one.first_offset]
        if next_kind != kind:
            yield run.part(first_offset, offset - 1), kind
            first_offset, kind = offset, next_kind
    yield run.part(first_offset, run.last_offset), kind


def count_of(run: Run | StateBatch) -> int:
    """The number of records in a run."""
    return run.last_offset - run.first_offset + 1
