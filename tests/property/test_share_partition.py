"""Compares the share partition with a model that stores the state of every record.

At any moment, each record from the start offset on is available, acquired by one member until a
deadline, acknowledged, or archived. Its delivery count is the number of times it was acquired. The
stored state restores the same share partition, except that acquired records are available again.
"""

from __future__ import annotations

import itertools
from typing import Any

from helpers.examples import drawn
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.broker.share_partitions.acquisition import (
    LEAST_LIMIT,
    Acquired,
    LogBatch,
    Taker,
    acquire,
    without,
)
from barnabas.broker.share_partitions.in_flight import ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE
from barnabas.broker.share_partitions.share_partition import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledgement,
    GroupLimits,
    SharePartition,
    Transition,
)
from barnabas.coordinator.share_states.state_batches import StateBatch, combine
from barnabas.protocol.errors import Code, KafkaError

MEMBERS = ("one", "two", "three")
MOST_BATCHES, LONGEST_BATCH = 12, 6
members = st.sampled_from(MEMBERS)
sizes = st.integers(1, 12)
batch_sizes = st.integers(-1, 12)  # also -1, since a request may contain any number


class Record:
    """One record of the model. `stored` is its (delivery count, state) after a restart."""

    def __init__(self) -> None:
        self.state, self.count = AVAILABLE, 0
        self.holder, self.deadline_ms = "", 0
        self.stored = (0, AVAILABLE)

    def leave(self, state: int) -> None:
        self.state, self.holder = state, ""


class Machine(RuleBasedStateMachine):
    """Makes any allowed step of members, lock timeouts and the log, in any order."""

    @initialize(
        deliveries=st.integers(2, 6),
        locks=st.integers(5, 60),
        lengths=st.lists(st.integers(1, LONGEST_BATCH), min_size=1, max_size=MOST_BATCHES),
        skipped=st.sets(st.integers(0, MOST_BATCHES - 1), max_size=3),
        aborted=st.sets(st.integers(0, MOST_BATCHES - 1), max_size=3),
    )
    def begin(
        self, deliveries: int, locks: int, lengths: list[int], skipped: set[int], aborted: set[int]
    ) -> None:
        """Begin with a log of batches, some of which compaction has removed or a transaction has
        aborted.
        """
        self.limits = GroupLimits(deliveries, locks, lock_duration_ms=100)
        self.now_ms = 1000
        ends = list(itertools.accumulate(lengths))
        batches = [
            LogBatch(end - length, end - 1) for end, length in zip(ends, lengths, strict=True)
        ]
        self.log = [batch for index, batch in enumerate(batches) if index not in skipped]
        self.aborted = [batch for index, batch in enumerate(batches) if index in aborted]
        self.log_start = 0
        self.records = [Record() for _ in range(ends[-1])]
        self.partition = SharePartition(0)
        self.stored: list[StateBatch] = []
        self.stored_start = 0

    # --- what happens ----------------------------------------------------------------------------

    @rule(member=members, most=sizes, batch_size=batch_sizes, is_limited=st.booleans(), reach=sizes)
    def acquire(
        self, member: str, most: int, batch_size: int, is_limited: bool, reach: int
    ) -> None:
        """A member acquires records of a fetch. Records of aborted batches and removed offsets are
        archived.
        """
        at = self.partition.next_offset
        fetched = [batch for batch in self.log if batch.last_offset >= at][:reach]
        if not fetched or not self.partition.may_acquire(self.limits.record_locks):
            return
        there = {
            offset
            for batch in fetched
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }
        removed = set(range(at, fetched[-1].last_offset + 1)) - there
        for offset in removed:
            if self.is_known(offset) and self.records[offset].state == AVAILABLE:
                self.records[offset].leave(ARCHIVED)
        new = {offset for offset in removed if not self.is_known(offset)}
        taker = Taker(member, most, batch_size, is_limited)
        got = acquire(self.partition, taker, fetched, at, self.limits, self.now_ms)
        for offset in new:
            self.pass_over(offset)
        for one in got:
            assert there.issuperset(range(one.first_offset, one.last_offset + 1))
            self.deliver(one, member)
        count = sum(one.last_offset - one.first_offset + 1 for one in got)
        if is_limited:
            assert count <= most
        last_delivery = self.limits.delivery_count
        if last_delivery > LEAST_LIMIT and any(one.delivery_count == last_delivery for one in got):
            assert count == 1, "a record that may be the culprit comes alone"
        aborted = [batch for batch in self.aborted if batch in fetched]
        kept = without(self.partition, got, aborted)
        for batch in aborted:
            for record in self.records[batch.first_offset : batch.last_offset + 1]:
                if record.state == ACQUIRED:
                    record.leave(ARCHIVED)
        for one in kept:
            for offset in range(one.first_offset, one.last_offset + 1):
                assert not any(
                    batch.first_offset <= offset <= batch.last_offset for batch in aborted
                )
        self.partition.move_start()

    def pass_over(self, offset: int) -> None:
        """A removed offset lies among records that are new in flight. It is archived, unless the
        member's strict limit was reached before it.
        """
        for batch in self.partition.batches():
            for run in batch.between(offset, offset):
                assert (run.state, run.delivery_count) in ((ARCHIVED, 1), (AVAILABLE, 0))
                self.records[offset].state = run.state
                self.records[offset].count = run.delivery_count

    def deliver(self, one: Acquired, member: str) -> None:
        """Check that each acquired record was available, and increase its delivery count."""
        for offset in range(one.first_offset, one.last_offset + 1):
            record = self.records[offset]
            assert offset >= self.partition.start_offset
            assert record.state == AVAILABLE, f"{offset} has two holders"
            record.state, record.holder = ACQUIRED, member
            record.count += 1
            record.deadline_ms = self.now_ms + self.limits.lock_duration_ms
            assert record.count == one.delivery_count
            assert record.count <= self.limits.delivery_count

    @rule(
        member=members,
        first=st.integers(0, 70),
        length=sizes,
        types=st.lists(st.sampled_from([GAP, ACCEPT, RELEASE, REJECT, RENEW]), min_size=12),
        is_one=st.booleans(),
    )
    def acknowledge(
        self, member: str, first: int, length: int, types: list[int], is_one: bool
    ) -> None:
        """A member acknowledges a range, with one type for all records or a type for each. The
        acknowledgement is accepted if and only if the member holds all records of the range.
        """
        kinds = [types[0]] * length if is_one else types[:length]
        one = Acknowledgement(first, first + length - 1, types[:1] if is_one else kinds)
        offsets = range(max(first, self.partition.start_offset), first + length)
        holds = all(
            offset < len(self.records)
            and self.records[offset].state == ACQUIRED
            and self.records[offset].holder == member
            for offset in offsets
        )
        try:
            made = self.partition.on_acknowledged(member, [one], self.limits, self.now_ms)
        except KafkaError as error:
            assert error.code in (Code.INVALID_RECORD_STATE, Code.INVALID_REQUEST)
            assert not holds
            return
        for offset in offsets:
            if not self.is_known(offset):
                continue
            record = self.records[offset]
            assert record.state == ACQUIRED and record.holder == member
            self.answer(record, kinds[offset - first])
        self.take(made)

    def is_known(self, offset: int) -> bool:
        """Whether the offset is in flight. Offsets that compaction removed are not."""
        return any(
            batch.first_offset <= offset <= batch.last_offset for batch in self.partition.batches()
        )

    def answer(self, record: Record, kind: int) -> None:
        """Give the record the state that it has after an acknowledgement of this type."""
        if kind == RENEW:
            record.deadline_ms = self.now_ms + self.limits.lock_duration_ms
        elif kind == RELEASE:
            self.give_back(record)
        else:
            record.leave(ACKNOWLEDGED if kind == ACCEPT else ARCHIVED)
            record.stored = (record.count, record.state)

    def give_back(self, record: Record) -> None:
        """Make the record available again, or archive it if this was its last delivery."""
        given_up = record.count >= self.limits.delivery_count
        record.leave(ARCHIVED if given_up else AVAILABLE)
        record.stored = (record.count, record.state)

    @rule(member=members)
    def close_session(self, member: str) -> None:
        """End a member's session, which makes its records available again."""
        for record in self.records[self.partition.start_offset :]:
            if record.state == ACQUIRED and record.holder == member:
                self.give_back(record)
        self.take(self.partition.on_released(member, self.limits))

    @rule(elapsed_ms=st.sampled_from([1, 40, 100, 150]), one_by_one=st.booleans())
    def time_passes(self, elapsed_ms: int, one_by_one: bool) -> None:
        """Let time pass. Records whose locks have timed out are available again."""
        self.now_ms += elapsed_ms
        while True:
            made = self.partition.on_locks_ended(self.limits, self.now_ms, one_by_one=one_by_one)
            if made.is_empty:
                break
            self.take(made)
        for record in self.records[self.partition.start_offset :]:
            if record.state == ACQUIRED and record.deadline_ms <= self.now_ms:
                self.give_back(record)

    @rule(at=st.integers(0, MOST_BATCHES))
    def batch_is_compacted(self, at: int) -> None:
        """Compaction removes a batch, whether or not its records are in flight. It never removes
        the last batch of a log.
        """
        if at < len(self.log) - 1:
            del self.log[at]

    @rule(by=st.integers(1, 9))
    def records_are_deleted(self, by: int) -> None:
        """Advance the log start offset, as DeleteRecords does."""
        self.log_start = min(
            max(self.log_start, self.partition.start_offset) + by, len(self.records)
        )
        self.log = [batch for batch in self.log if batch.last_offset >= self.log_start]
        self.partition.on_log_start(self.log_start)

    @rule()
    def restart(self) -> None:
        """Restart the broker, which loads the stored state."""
        self.partition = SharePartition(self.stored_start, list(self.stored))
        for offset, record in enumerate(self.records):
            if offset >= self.stored_start:
                record.count, record.state = record.stored
                record.holder = ""
        self.partition.on_log_start(self.log_start)

    def take(self, made: Transition) -> None:
        """Store a transition as the share coordinator would, and apply it."""
        start_offset = self.partition.start_offset
        if made.stored:
            combine(self.stored, made.stored, start_offset)
            self.stored_start = start_offset
        self.partition.apply(made)

    # --- what holds ------------------------------------------------------------------------------

    @invariant()
    def every_record_is_in_the_state_of_the_model(self) -> None:
        if not hasattr(self, "partition"):
            return
        found: dict[int, Any] = {}
        for batch in self.partition.batches():
            assert batch.runs == sorted(batch.runs)
            for run in batch.runs:
                for offset in range(run.first_offset, run.last_offset + 1):
                    assert offset not in found, f"{offset} is in two batches"
                    found[offset] = run
        start_offset = self.partition.start_offset
        assert all(offset >= start_offset for offset in found)
        for offset, run in found.items():
            record = self.records[offset]
            assert (run.state, run.delivery_count) == (record.state, record.count), offset
            if run.state == ACQUIRED:
                assert (run.member_id, run.deadline_ms) == (record.holder, record.deadline_ms)
                assert record.deadline_ms >= (self.partition.next_deadline_ms or 0)
        for offset, record in enumerate(self.records):
            if record.state == ACQUIRED and offset >= start_offset:
                assert offset in found, f"the lock of {offset} is lost"

    @invariant()
    def counts_and_offsets_fit(self) -> None:
        if not hasattr(self, "partition"):
            return
        runs = [run for batch in self.partition.batches() for run in batch.runs]
        complete = [run for run in runs if run.is_complete]
        assert self.partition.complete_count == sum(
            run.last_offset - run.first_offset + 1 for run in complete
        )
        if runs:
            assert not runs[0].is_complete, "the start offset lags"
            assert self.partition.end_offset == runs[-1].last_offset
        available = [run.first_offset for run in runs if run.state == AVAILABLE]
        expected = min(available) if available else self.partition.end_offset + (1 if runs else 0)
        assert self.partition.next_offset == expected


TestSharePartition = Machine.TestCase
TestSharePartition.settings = settings(max_examples=drawn(150), stateful_step_count=40)
