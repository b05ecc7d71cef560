"""Compares a log with a naive model, over appends, transactions, deletions, rolls, flushes, leader
epochs, look-ups by time, clean stops, kills and torn writes.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from helpers.examples import drawn
from helpers.storage_logs import (
    NOW_MS,
    SECOND_MS,
    batch,
    committed_values,
    new_log,
    open_manager,
    reopened,
    values_of,
)
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.protocol.errors import Code, KafkaError
from barnabas.storage.log.broker_appends import append_marker
from barnabas.storage.log.time_lookup import offset_for_timestamp, offset_of_max_timestamp
from barnabas.storage.log_config import LogConfig

PRODUCERS = (1, 2, 3)
AT_ONCE, NEVER = 1, 2**63 - 1  # values of flush.messages


def time_of(value: bytes) -> int:
    """The time of a record, which depends only on its value, so that a record that is sent again
    has the same time. Some times decrease, and some are equal.
    """
    turn, _, at = value.partition(b".")
    return SECOND_MS + (7 * int(turn) + 13 * int(at)) % 40


@dataclass
class Producer:
    """A producer's own state: its epoch, its next sequence, and its latest batches as (first
    sequence, values, offset, whether transactional).
    """

    epoch: int = 0
    next_sequence: int = 0
    batches: list[tuple[int, list[bytes], int, bool]] = field(default_factory=list)
    open_from: int | None = None
    pending: list[int] = field(default_factory=list)


def sent(values: list[bytes], **fields: Any) -> bytearray:
    return batch(values, times=[time_of(value) for value in values], **fields)


class LogMachine(RuleBasedStateMachine):
    """A log and its model, which must agree after every step.

    The model has the value, the time and the leader epoch of each offset, the aborted transactions,
    and the producers. With flush.messages=1, `high` is the high watermark. `stored` is the recovery
    point on the disk, at which a start after a kill begins. `undecided` has the first offset and
    the marker of each transaction whose marker no decision restores.
    """

    def __init__(self) -> None:
        super().__init__()
        self.path = tempfile.mkdtemp()
        self.values: dict[int, bytes] = {}
        self.times: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.aborted: set[int] = set()
        self.undecided: list[tuple[int, int]] = []
        self.end = self.start = self.high = self.flushed = self.stored = 0
        self.turn = 0
        self.producers = {pid: Producer() for pid in PRODUCERS}

    @initialize(
        segment_bytes=st.sampled_from([200, 500, 3000]),
        interval=st.sampled_from([0, 100, 4096]),
        flush_messages=st.sampled_from([AT_ONCE, NEVER]),
    )
    def begin(self, segment_bytes: int, interval: int, flush_messages: int) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            retention_ms=-1,
            file_delete_delay_ms=0,
            flush_messages=flush_messages,
        )
        self.manager, _ = new_log(
            self.path,
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            retention_ms=-1,
            file_delete_delay_ms=0,
            flush_messages=flush_messages,
        )
        self.log = self.manager.logs["t", 0]

    def teardown(self) -> None:
        shutil.rmtree(self.path)

    def _values(self, count: int) -> list[bytes]:
        self.turn += 1
        return [b"%d.%d" % (self.turn, at) for at in range(count)]

    def _wrote(self, values: list[bytes], first: int) -> None:
        """Record an append in the model. Its records must follow the last one."""
        assert first == self.end
        self.values.update({first + at: value for at, value in enumerate(values)})
        self._grew([time_of(value) for value in values])

    def _grew(self, times: list[int]) -> None:
        for time in times:
            self.times[self.end], self.epochs[self.end] = time, self.log.leader_epoch
            self.end += 1
        if self.config.flush_messages > 1:
            self.high = self.end

    def _was_flushed(self) -> None:
        self.high = self.flushed = self.end

    @rule(count=st.integers(1, 3))
    def plain(self, count: int) -> None:
        values = self._values(count)
        self._wrote(values, self.log.append(sent(values), now_ms=NOW_MS).first_offset)

    @rule(pid=st.sampled_from(PRODUCERS), count=st.integers(1, 3), transactional=st.booleans())
    def produce(self, pid: int, count: int, transactional: bool) -> None:
        """A producer appends its next batch. While it has an open transaction, the log refuses a
        batch that is not transactional.
        """
        producer = self.producers[pid]
        values = self._values(count)
        data = sent(
            values,
            pid=pid,
            epoch=producer.epoch,
            seq=producer.next_sequence,
            transactional=transactional,
        )
        if producer.open_from is not None and not transactional:
            with pytest.raises(KafkaError) as refused:
                self.log.append(data, now_ms=NOW_MS)
            assert refused.value.code == Code.INVALID_TXN_STATE
            return
        info = self.log.append(data, now_ms=NOW_MS)
        assert not info.duplicate
        self._wrote(values, info.first_offset)
        written = (producer.next_sequence, values, info.first_offset, transactional)
        producer.batches = [*producer.batches, written][-5:]
        producer.next_sequence += count
        if transactional:
            if producer.open_from is None:
                producer.open_from = info.first_offset
            producer.pending += range(info.first_offset, info.first_offset + count)

    @rule(pid=st.sampled_from(PRODUCERS), which=st.integers(0, 4), others=st.booleans())
    def again(self, pid: int, which: int, others: bool) -> None:
        """Send a batch again, or other records with the batch's sequences."""
        producer = self.producers[pid]
        if which >= len(producer.batches):
            return
        sequence, values, offset, transactional = producer.batches[which]
        if others and offset < self.log.log_start_offset:
            return  # a restarted log cannot distinguish these records from the original ones
        data = batch(
            [b"other"] * len(values) if others else values,
            times=[time_of(value) for value in values],
            pid=pid,
            epoch=producer.epoch,
            seq=sequence,
            transactional=transactional,
        )
        is_over = producer.open_from is None or offset < producer.open_from
        if others or (transactional and is_over):
            with pytest.raises(KafkaError) as refused:
                self.log.append(data, now_ms=NOW_MS)
            assert refused.value.code == Code.UNKNOWN_PRODUCER_ID
            return
        info = self.log.append(data, now_ms=NOW_MS)
        assert info.duplicate
        assert (info.first_offset, info.last_offset) == (offset, offset + len(values) - 1)

    @rule(pid=st.sampled_from(PRODUCERS), ahead=st.integers(1, 3))
    def gap(self, pid: int, ahead: int) -> None:
        """Check that a batch that skips sequence numbers is refused."""
        producer = self.producers[pid]
        if producer.batches:
            data = batch(
                pid=pid,
                epoch=producer.epoch,
                seq=producer.next_sequence + ahead,
                transactional=True,
            )
            with pytest.raises(KafkaError) as refused:
                self.log.append(data, now_ms=NOW_MS)
            assert refused.value.code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule(
        pid=st.sampled_from(PRODUCERS),
        commit=st.booleans(),
        bump=st.booleans(),
        is_decided=st.booleans(),
    )
    def end_txn(self, pid: int, commit: bool, bump: bool, is_decided: bool) -> None:
        producer = self.producers[pid]
        producer.epoch += bump
        offset = append_marker(
            self.log,
            producer_id=pid,
            producer_epoch=producer.epoch,
            coordinator_epoch=0,
            commit=commit,
            now_ms=NOW_MS,
            is_decided=is_decided,
        )
        assert offset == self.end
        self._grew([NOW_MS])
        if producer.open_from is not None and not is_decided:
            self.undecided.append((producer.open_from, offset))
        if bump:
            producer.next_sequence, producer.batches = 0, []
        if not commit:
            self.aborted.update(producer.pending)
        producer.open_from, producer.pending = None, []

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        """Raise the log start offset."""
        offset = self.start + int((self.end - self.start) * share)
        if offset > self.high:
            with pytest.raises(KafkaError) as refused:
                self.log.delete_records_before(offset)
            assert refused.value.code == Code.OFFSET_OUT_OF_RANGE
            return
        assert self.log.delete_records_before(offset) == offset
        self.start = offset

    @rule()
    def retention(self) -> None:
        self.log.delete_old_segments(NOW_MS)
        self.manager.on_tick(NOW_MS)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self._was_flushed()

    @rule(flush_messages=st.sampled_from([AT_ONCE, NEVER]))
    def configure(self, flush_messages: int) -> None:
        self.config = self.log.config = replace(self.config, flush_messages=flush_messages)
        if flush_messages > 1:
            self.high = self.end

    @rule()
    def begin_epoch(self) -> None:
        self.manager.begin_leader_epoch([self.log])

    @rule()
    def checkpoint(self) -> None:
        self.log.checkpoint()
        self._write_checkpoints()

    def _write_checkpoints(self) -> None:
        self.manager.write_checkpoints()
        self.stored = self.flushed

    @rule()
    def forget_indexes(self) -> None:
        for segment in self.log.segments:
            segment.indexes.drop()

    @rule()
    def stop_and_start(self) -> None:
        self.manager, self.log = reopened(self.manager, self.config, clean=True)
        self._was_flushed()
        self.stored, self.undecided = self.end, []

    @rule(garbage=st.sampled_from([b"", b"\0" * 70, b"\0\0\0\0\0\0\0\1\0\0\0\x50\0\0\0\0\2", b"x"]))
    def kill_and_start(self, garbage: bytes) -> None:
        """Kill the log, perhaps within a write, which leaves part of a batch or garbage at the
        end.
        """
        self.manager.on_tick(NOW_MS)  # writes the acknowledged log starts
        if self.log.durability.durable_offset >= self.log.log_end_offset:
            self._write_checkpoints()
        path = self.log.segments.active.batches.path(".log")
        with open(path, "ab") as file:
            file.write(garbage)
        self.manager, self.log = reopened(self.manager, self.config, clean=False)
        self.flushed, self.undecided = self.stored, []
        is_shown = self.config.flush_messages > 1
        self.high = self.end if is_shown else max(self.start, self.stored)

    @precondition(lambda self: self.end)
    @rule(share=st.floats(0, 1))
    def read_anywhere(self, share: float) -> None:
        """Read from any offset, at each isolation level."""
        offset = self.start + int((self.end - self.start) * share)
        if offset < self.high:
            data = self.log.read(offset, max_bytes=1, min_one_batch=True)
            assert data.slice is not None
            assert self.log.read(offset, max_bytes=1, min_one_batch=False).slice is None

    @rule(after_ms=st.integers(-1, 40))
    def look_up(self, after_ms: int) -> None:
        """Check that a look-up by time finds the same offset as a search through all records and
        markers.
        """
        timestamp = SECOND_MS + after_ms
        here = {offset: time for offset, time in self.times.items() if offset >= self.start}
        found = offset_for_timestamp(self.log, timestamp)
        assert (None if found is None else (found.offset, found.timestamp)) == next(
            ((offset, time) for offset, time in here.items() if time >= timestamp), None
        )
        highest = offset_of_max_timestamp(self.log)
        assert (None if highest is None else highest.offset) == (
            max(here, key=lambda offset: (here[offset], -offset)) if here else None
        )

    @rule()
    def compare_epochs(self) -> None:
        """Check each epoch's end, which is where the records of later epochs begin (KIP-320)."""
        here = {offset: epoch for offset, epoch in self.epochs.items() if offset >= self.start}
        latest = self.log.leader_epoch
        assert self.log.end_offset_for_epoch(latest) == (latest, self.end)
        for epoch in set(here.values()) - {latest}:
            later = [offset for offset, other in here.items() if other > epoch]
            assert self.log.end_offset_for_epoch(epoch) == (epoch, min(later, default=self.end))

    @invariant()
    def is_as_the_model(self) -> None:
        """Check that offsets, records for both isolation levels, and open transactions equal those
        of the model.
        """
        if not hasattr(self, "log"):
            return
        log = self.log
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (
            self.start,
            self.end,
            self.high,
        )
        still_open = [
            producer.open_from
            for producer in self.producers.values()
            if producer.open_from is not None
        ]
        if self.config.flush_messages == AT_ONCE:
            still_open += [first for first, marker in self.undecided if marker >= self.high]
        assert log.last_stable_offset == max(min([self.high, *still_open]), self.start)
        here = {o: value for o, value in self.values.items() if self.start <= o < self.high}
        assert values_of(log) == here
        stable = {
            o: v for o, v in here.items() if o < log.last_stable_offset and o not in self.aborted
        }
        assert committed_values(log) == stable
        for pid, producer in self.producers.items():
            assert log.producer_state.has_ongoing_transaction(pid, producer.epoch) == (
                producer.open_from is not None
            )


TestLog = LogMachine.TestCase
TestLog.settings = settings(
    max_examples=drawn(40),
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow],
)


def test_a_stopped_directory_opens_again(tmp_path: object) -> None:
    manager, log = new_log(str(tmp_path))
    log.append(batch([b"a"]), now_ms=NOW_MS)
    manager.close(NOW_MS)
    assert values_of(open_manager(str(tmp_path)).logs["t", 0]) == {0: b"a"}
