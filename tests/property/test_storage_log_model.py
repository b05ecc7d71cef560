"""A log against a naive model of one, over appends, transactions, deletions, rolls, clean stops,
kills and torn writes.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, field

import pytest
from helpers.examples import drawn
from helpers.storage_logs import (
    NOW_MS,
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
from barnabas.storage.log_config import LogConfig

PRODUCERS = (1, 2, 3)


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


class LogMachine(RuleBasedStateMachine):
    """A log and its model: a dict of offset -> value, the aborted transactions, and the producers.
    The log must agree with the model after every step.
    """

    def __init__(self) -> None:
        super().__init__()
        self.path = tempfile.mkdtemp()
        self.values: dict[int, bytes] = {}
        self.aborted: set[int] = set()
        self.end = self.start = 0
        self.turn = 0
        self.producers = {pid: Producer() for pid in PRODUCERS}

    @initialize(
        segment_bytes=st.sampled_from([200, 500, 3000]), interval=st.sampled_from([0, 100, 4096])
    )
    def begin(self, segment_bytes: int, interval: int) -> None:
        """A new log with any segment size and index interval."""
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            retention_ms=-1,
            file_delete_delay_ms=0,
        )
        self.manager, _ = new_log(
            self.path,
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            retention_ms=-1,
            file_delete_delay_ms=0,
        )
        self.log = self.manager.logs["t", 0]

    def teardown(self) -> None:
        shutil.rmtree(self.path)

    def _values(self, count: int) -> list[bytes]:
        self.turn += 1
        return [b"%d.%d" % (self.turn, at) for at in range(count)]

    def _wrote(self, values: list[bytes], first: int) -> None:
        """Note the records of an append, which must follow the last one."""
        assert first == self.end
        self.values.update({first + at: value for at, value in enumerate(values)})
        self.end += len(values)

    @rule(count=st.integers(1, 3))
    def plain(self, count: int) -> None:
        values = self._values(count)
        self._wrote(values, self.log.append(batch(values), now_ms=NOW_MS).first_offset)

    @rule(pid=st.sampled_from(PRODUCERS), count=st.integers(1, 3), transactional=st.booleans())
    def produce(self, pid: int, count: int, transactional: bool) -> None:
        """A producer appends its next batch; inside a transaction only a transactional one."""
        producer = self.producers[pid]
        values = self._values(count)
        data = batch(
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
        sent = (producer.next_sequence, values, info.first_offset, transactional)
        producer.batches = [*producer.batches, sent][-5:]
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
        """A batch that leaves out sequences is refused."""
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

    @rule(pid=st.sampled_from(PRODUCERS), commit=st.booleans(), bump=st.booleans())
    def end_txn(self, pid: int, commit: bool, bump: bool) -> None:
        """Append a marker, with a higher epoch if `bump`."""
        producer = self.producers[pid]
        producer.epoch += bump
        offset = append_marker(
            self.log,
            producer_id=pid,
            producer_epoch=producer.epoch,
            coordinator_epoch=0,
            commit=commit,
            now_ms=NOW_MS,
        )
        assert offset == self.end
        self.end += 1
        if bump:
            producer.next_sequence, producer.batches = 0, []
        if not commit:
            self.aborted.update(producer.pending)
        producer.open_from, producer.pending = None, []

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        """Move the log's start."""
        offset = self.start + int((self.end - self.start) * share)
        assert self.log.delete_records_before(offset) == offset
        self.start = offset

    @rule()
    def retention(self) -> None:
        self.log.delete_old_segments(NOW_MS)
        self.manager.on_tick(NOW_MS)

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule()
    def checkpoint(self) -> None:
        self.log.checkpoint()
        self.manager.write_checkpoints()

    @rule()
    def forget_indexes(self) -> None:
        for segment in self.log.segments:
            segment.indexes.drop()

    @rule()
    def stop_and_start(self) -> None:
        self.manager, self.log = reopened(self.manager, self.config, clean=True)

    @rule(garbage=st.sampled_from([b"", b"\0" * 70, b"\0\0\0\0\0\0\0\1\0\0\0\x50\0\0\0\0\2", b"x"]))
    def kill_and_start(self, garbage: bytes) -> None:
        """Kill the log, perhaps within a write, which leaves part of a batch or garbage at the
        end.
        """
        self.manager.on_tick(NOW_MS)  # writes the acknowledged log starts
        if self.log.durability.durable_offset >= self.log.log_end_offset:
            self.manager.write_checkpoints()
        path = self.log.segments.active.batches.path(".log")
        with open(path, "ab") as file:
            file.write(garbage)
        self.manager, self.log = reopened(self.manager, self.config, clean=False)

    @precondition(lambda self: self.end)
    @rule(share=st.floats(0, 1))
    def read_anywhere(self, share: float) -> None:
        """Read from any offset, at each isolation level."""
        offset = self.start + int((self.end - self.start) * share)
        if offset < self.end:
            data = self.log.read(offset, max_bytes=1, min_one_batch=True)
            assert data.slice is not None
            assert self.log.read(offset, max_bytes=1, min_one_batch=False).slice is None

    @invariant()
    def is_as_the_model(self) -> None:
        """Offsets, records for both isolation levels, and open transactions are those of the
        model.
        """
        if not hasattr(self, "log"):
            return
        log = self.log
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (
            self.start,
            self.end,
            self.end,
        )
        still_open = [
            producer.open_from
            for producer in self.producers.values()
            if producer.open_from is not None
        ]
        assert log.last_stable_offset == max(min(still_open, default=self.end), self.start)
        here = {offset: value for offset, value in self.values.items() if offset >= self.start}
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
