"""The acquisition of records: chooses which of the records that were read from the log a member
gets.

A member gets whole batches, as they are in the log or were acquired before, even if these contain
more records than it requested, unless it requests a strict limit. Records that were delivered
several times are delivered in ever smaller parts of their batch, and finally one by one, since a
single record may be the reason why all of them were released.

No member gets an offset at which compaction has removed the whole batch: such offsets are archived.
(Apache Kafka archives those before the first batch that was read. It lets members acquire the
others, which their clients acknowledge as gaps.)

Sources: KIP-932, KIP-1206; Apache Kafka 4.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from barnabas.broker.share_partitions.in_flight import (
    ACQUIRED,
    AVAILABLE,
    InFlightBatch,
    Run,
    replaced,
)
from barnabas.broker.share_partitions.share_partition import GroupLimits, SharePartition

RECORD_LIMIT = 1  # the acquire mode in which the number of records is a strict limit
ACQUIRE_MODES = (0, RECORD_LIMIT)
FEWEST_THROTTLED = 2
LEAST_LIMIT = 2  # unless the limit of deliveries is higher, records are not delivered one by one


class LogBatch(NamedTuple):
    """A batch as it is in the log: its offsets, and its position in the bytes that were read."""

    first_offset: int
    last_offset: int
    position: int = 0
    size_bytes: int = 0


class Acquired(NamedTuple):
    """Records that a member has acquired, all with the same delivery count."""

    first_offset: int
    last_offset: int
    delivery_count: int


class Taker(NamedTuple):
    """The member that acquires records, and its limits. batch_size: the size of the acquired
    batches, if the log's batches allow it. is_limited: whether most_records is a strict limit.
    """

    member_id: str
    most_records: int
    batch_size: int
    is_limited: bool = False


class _Acquisition:
    """One acquisition in progress. acquired: the records that the member has received so far."""

    def __init__(
        self,
        partition: SharePartition,
        taker: Taker,
        fetched: Sequence[LogBatch],
        limits: GroupLimits,
        now_ms: int,
    ) -> None:
        self.partition, self.taker, self.fetched, self.limits = partition, taker, fetched, limits
        self.deadline_ms = now_ms + limits.lock_duration_ms
        self.acquired: list[Acquired] = []
        self.count = 0
        self.first_offset = fetched[0].first_offset
        self.last_offset = fetched[-1].last_offset
        self.left = taker.most_records

    # --- the whole acquisition -------------------------------------------------------------------

    def run(self, fetch_offset: int) -> None:
        """Acquire records in the order of their offsets until the member has enough: available
        records that are already in flight, and new records in gaps and after the last record in
        flight.
        """
        partition = self.partition
        self._bound(fetch_offset)
        if self.left <= 0:
            return
        begin = self.first_offset
        floor = partition.floor(begin)
        if floor is None:
            begin = max(begin, partition.start_offset)
        elif floor.last_offset >= begin:
            begin = floor.first_offset
        lowest = min(self.first_offset, begin)
        if not partition.has_batch_between(lowest, self.last_offset):
            self._acquire_new(begin, self.last_offset)
            return
        for batch in partition.available_between(lowest, self.last_offset):
            if self.left <= 0:
                break
            if batch.first_available() is None:
                partition.forget_available(batch.first_offset)
            elif batch.is_gap:
                self._acquire_gap(batch)
            elif not self._acquire_again(batch):
                self.left = 0
        last = partition.floor(self.last_offset)
        assert last is not None, "a batch begins there"
        if self.left > 0 and last.last_offset < self.last_offset:
            self._acquire_new(last.last_offset + 1, self.last_offset)

    def _bound(self, fetch_offset: int) -> None:
        """Limit the acquisition to the maximum number of records in flight. If this number is
        reached, only records in flight that are available can be acquired.
        """
        partition = self.partition
        free = self.limits.record_locks - partition.in_flight_count
        if min(self.left, free) > 0:
            self.left = min(self.left, free)
        elif fetch_offset <= partition.end_offset:
            self.left = min(self.left, partition.end_offset - fetch_offset + 1)
            self.last_offset = min(self.last_offset, partition.end_offset)
        else:
            self.left = 0

    def _add(self, acquired: Iterable[Acquired]) -> None:
        """Note acquired records, and count them."""
        for one in acquired:
            self.acquired.append(one)
            count = one.last_offset - one.first_offset + 1
            self.count += count
            self.left -= count

    # --- records that were not in flight ---------------------------------------------------------

    def _acquire_new(self, first_offset: int, last_offset: int) -> None:
        """Acquire records that are not in flight yet, with the bounds and the size of batches that
        the member wants.
        """
        partition = self.partition
        if not len(partition):
            first_offset = max(first_offset, partition.end_offset)
        if self.left < last_offset - first_offset + 1:
            last_offset = min(last_offset, self._end_of_batch(first_offset + self.left - 1))
        if last_offset < first_offset:
            return
        for begin, end in self._parts(first_offset, last_offset):
            self._put(begin, end)
        if partition.is_first(first_offset):
            partition.start_offset = first_offset
        partition.end_offset = max(partition.end_offset, last_offset)

    def _end_of_batch(self, offset: int) -> int:
        """The last offset of the batch in the log that contains the given offset."""
        for batch in self.fetched:
            if batch.first_offset > offset:
                break
            if offset <= batch.last_offset:
                return batch.last_offset
        return offset

    def _parts(self, first_offset: int, last_offset: int) -> list[tuple[int, int]]:
        """Divide a range of offsets into parts. Each part has at least the batch size, and ends
        where a batch of the log ends.
        """
        parts = []
        # at least 1, since a request may contain any batch size
        batch_size = max(self.taker.batch_size, 1)
        if not self.taker.is_limited and last_offset - first_offset + 1 > batch_size:
            for batch in self.fetched:
                begin = batch.first_offset
                if begin > last_offset:
                    break
                if begin - first_offset >= batch_size:
                    parts.append((first_offset, begin - 1))
                    first_offset = begin
        parts.append((first_offset, last_offset))
        return parts

    def _put(self, first_offset: int, last_offset: int) -> None:
        """Put records in flight as a batch of the member. With a strict limit, the records of the
        batch beyond the limit stay available.
        """
        end = last_offset
        if self.taker.is_limited:
            end = min(last_offset, first_offset + self.left - 1)
        runs = [self._run(first_offset, end, 1)]
        if end < last_offset:
            runs.append(Run(end + 1, last_offset, AVAILABLE, 0))
        self.partition.add_acquired(InFlightBatch(runs, is_tracked=len(runs) > 1))
        self._add([Acquired(first_offset, end, 1)])

    def _acquire_gap(self, gap: InFlightBatch) -> None:
        """Acquire records of a gap in the stored state as if they were new. The rest of the gap
        stays a gap.
        """
        partition = self.partition
        first_offset, last_offset = gap.first_offset, gap.last_offset
        parts = gap.between(max(first_offset, self.first_offset), self.last_offset)
        available = next((run for run in parts if run.state == AVAILABLE), None)
        if available is None:
            return
        begin, end = available.first_offset, available.last_offset
        before = list(gap.between(first_offset, begin - 1))
        runs = gap.runs
        partition.remove(gap)
        if before:
            partition.add_acquired(InFlightBatch(before, is_gap=True))
        count = self.count
        self._acquire_new(begin, end)
        begin = self.acquired[-1].last_offset + 1 if self.count > count else begin
        floor = partition.floor(begin)
        if floor is not None and floor.last_offset >= begin:
            begin = floor.last_offset + 1
        after = list(InFlightBatch(runs).between(begin, last_offset))
        if after:
            partition.add_acquired(InFlightBatch(after, is_gap=True))

    def _run(self, first_offset: int, last_offset: int, delivery_count: int) -> Run:
        """Records that the member holds until the end of their lock."""
        return Run(
            first_offset,
            last_offset,
            ACQUIRED,
            delivery_count,
            self.taker.member_id,
            self.deadline_ms,
        )

    # --- records that were in flight before ------------------------------------------------------

    def _acquire_again(self, batch: InFlightBatch) -> bool:
        """Acquire the available records of a batch. Gives: whether the acquisition may continue
        with other records.
        """
        is_throttled = self._is_throttled(batch)
        if is_throttled and self.count > 0:
            return False
        is_whole = batch.first_offset >= self.first_offset and batch.last_offset <= self.last_offset
        size = batch.last_offset - batch.first_offset + 1
        if batch.is_tracked or is_throttled or not is_whole:
            return self._acquire_part(batch) == 0 or not is_throttled
        if self.taker.is_limited and size > self.left:
            self._acquire_part(batch)
            return True
        made = self._run(batch.first_offset, batch.last_offset, batch.runs[0].delivery_count + 1)
        batch.runs = [made]
        self.partition.note_lock(made)
        self._add([Acquired(made.first_offset, made.last_offset, made.delivery_count)])
        return True

    def _is_throttled(self, batch: InFlightBatch) -> bool:
        """Whether the batch has available records that were already delivered half as often as the
        limit allows.
        """
        fewest = _throttled_from(self.limits.delivery_count)
        return any(
            run.state == AVAILABLE and run.delivery_count >= fewest
            for run in batch.between(self.first_offset, self.last_offset)
        )

    def _acquire_part(self, batch: InFlightBatch) -> int:
        """Acquire available records of a batch, run by run. Gives: the number of
        acquired records.
        """
        most_deliveries = self.limits.delivery_count
        fewest = _throttled_from(most_deliveries)
        made: list[Run] = []
        count, most = 0, math.inf
        for run in batch.between(self.first_offset, self.last_offset):
            if run.state != AVAILABLE:
                continue
            # The last delivery of a record contains only this record: if the record makes members
            # fail, no other record is affected.
            is_last = most_deliveries > LEAST_LIMIT and run.delivery_count >= most_deliveries - 1
            if is_last and count > 0:
                break
            if most == math.inf and run.delivery_count >= fewest:
                # records that were delivered often are delivered in smaller and smaller parts
                most = max(1, batch.size >> (run.delivery_count - fewest + 1))
            taken = 1 if is_last else run.last_offset - run.first_offset + 1
            if self.taker.is_limited:
                taken = min(taken, self.left - count)
            if count < most:
                taken = int(min(taken, most - count))
            last_offset = run.first_offset + taken - 1
            made.append(self._run(run.first_offset, last_offset, run.delivery_count + 1))
            count += taken
            if is_last or count == most or (self.taker.is_limited and count == self.left):
                break
        for run in made:
            batch.runs = replaced(batch.runs, [run])
            self.partition.note_lock(run)
        batch.is_tracked = True
        self._add(_joined(made))
        return count


def acquire(
    partition: SharePartition,
    taker: Taker,
    fetched: Sequence[LogBatch],
    fetch_offset: int,
    limits: GroupLimits,
    now_ms: int,
) -> list[Acquired]:
    """Acquire records that were read from the log.

    Takes: fetched, the batches that were read, from the batch that contains fetch_offset, or else
           the next one, to the record limit or the end of the read bytes.
    Gives: only records that are in these batches.
    """
    if not fetched or taker.most_records <= 0 or fetched[-1].last_offset < partition.start_offset:
        return []
    removed = list(_removed(fetched, fetch_offset))
    for gap in removed:
        partition.archive(gap.first_offset, gap.last_offset, AVAILABLE)
    made = _Acquisition(partition, taker, fetched, limits, now_ms)
    made.run(fetch_offset)
    return without(partition, made.acquired, removed) if removed else made.acquired


def _removed(fetched: Sequence[LogBatch], fetch_offset: int) -> Iterator[LogBatch]:
    """The ranges of offsets at which compaction has removed all batches: from the fetch offset to
    the first batch that was read, and between two of these batches.
    """
    next_offset = fetch_offset
    for batch in fetched:
        if batch.first_offset > next_offset:
            yield LogBatch(next_offset, batch.first_offset - 1)
        next_offset = batch.last_offset + 1


def without(
    partition: SharePartition, acquired: Sequence[Acquired], others: Sequence[LogBatch]
) -> list[Acquired]:
    """Archive the part of the acquired records that is no record for the group: batches of aborted
    transactions, and removed offsets. Gives: the rest.

    Takes: acquired, others, each in the order of the offsets.
    """
    kept: list[Acquired] = []
    at = 0
    for one in acquired:
        first_offset = one.first_offset
        while at < len(others) and others[at].last_offset < first_offset:
            at += 1
        for other in islice(others, at, None):
            if other.first_offset > one.last_offset:
                break
            begin = max(first_offset, other.first_offset)
            end = min(one.last_offset, other.last_offset)
            # only these offsets: another member may hold the rest of a removed range
            partition.archive(begin, end, ACQUIRED)
            if first_offset < begin:
                kept.append(one._replace(first_offset=first_offset, last_offset=begin - 1))
            first_offset = end + 1
        if first_offset <= one.last_offset:
            kept.append(one._replace(first_offset=first_offset))
    return kept


def _throttled_from(most_deliveries: int) -> int:
    """The lowest delivery count at which records are delivered in smaller parts."""
    return max(FEWEST_THROTTLED, math.ceil(most_deliveries / 2))


def _joined(runs: Sequence[Run]) -> list[Acquired]:
    """The acquired records. Adjacent records with the same delivery count are joined."""
    joined: list[Acquired] = []
    for run in runs:
        if (
            joined
            and joined[-1].last_offset + 1 == run.first_offset
            and joined[-1].delivery_count == run.delivery_count
        ):
            joined[-1] = joined[-1]._replace(last_offset=run.last_offset)
        else:
            joined.append(Acquired(run.first_offset, run.last_offset, run.delivery_count))
    return joined
