"""Recorded cuts: no call of the broker does more work the more cuts, rows or partitions there are.

The work of a call is counted: frames that are read, rows that are thinned out, partitions whose
offsets are recorded, bytes that are written.
"""

from __future__ import annotations

import errno
import logging
from array import array
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from helpers.disk_broker import DiskBroker, Producer
from helpers.raised_faults import contained_faults
from helpers.standby_pair import LeaderBroker, Pair
from sim.disk import Refusal

from barnabas.broker.core import Broker
from barnabas.broker.transactions import cut_history
from barnabas.broker.transactions import cuts as cuts_module
from barnabas.broker.transactions.cut_history import (
    READ_BYTES,
    Cut,
    CutHistory,
    HistoryReader,
    Track,
    encode_cut,
)
from barnabas.broker.transactions.cuts import Cuts
from barnabas.protocol.cut_times import AT_OR_BEFORE
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.storage.files.checkpoints import NO_TOPIC_ID

WHOLE = "barnabas.transactions.whole"
FILE = "/data/barnabas-cuts"
SECOND = 1000
START_MS = 1_600_000_000_000
SMALLEST_FRAME = 49  # of a cut with one row
EVENTS = ("on_tick", "on_frame", "on_flushed", "on_sent")


class Meter:
    """Counts the work of each call of the broker. most: the largest counts of one call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most: Counter[str] = Counter()
        self.total: Counter[str] = Counter()
        self._now: Counter[str] = Counter()
        for name in EVENTS:
            monkeypatch.setattr(Broker, name, self._event(getattr(Broker, name)))
        for owner, name, what, size in (
            (HistoryReader, "_take", "frames", lambda *_: 1),
            (Track, "keep", "rows", lambda track, *_: len(track.numbers)),
            (Track, "first_above", "rows", lambda track, *_: len(track.numbers)),
            (Cuts, "_changes", "partitions", lambda _, logs, *__: len(logs)),
            (cuts_module, "append_whole", "bytes", lambda _, data: len(data)),
        ):
            monkeypatch.setattr(owner, name, self._counted(getattr(owner, name), what, size))

    def _event(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def event(*arguments: Any) -> Any:
            self._now.clear()
            try:
                return call(*arguments)
            finally:
                self.most |= self._now

        return event

    def _counted(
        self, call: Callable[..., Any], what: str, size: Callable[..., int]
    ) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            self._now[what] += size(*arguments)
            self.total[what] += size(*arguments)
            return call(*arguments)

        return counted


def broker(*topics: str, partitions: int = 1, **settings: str) -> DiskBroker:
    """A broker with topics that have the setting, and `plain` without it."""
    b = DiskBroker(**settings)
    for name in topics or ("a", "b"):
        b.topic(name, partitions, **{WHOLE: "true"})
    b.topic("plain")
    return b


def question(timestamp: int, *topics: str, partitions: int = 1) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=index, current_leader_epoch=-1, timestamp=timestamp
                    )
                    for index in range(partitions)
                ],
            )
            for topic in topics
        ],
    )


def rows_of(answer: Any) -> list[tuple[int, int, int]]:
    """The error code, the time and the offset of each partition."""
    return [
        (row.error_code, row.timestamp, row.offset)
        for topic in answer.topics
        for row in topic.partitions
    ]


def before(
    b: DiskBroker, time_ms: int, *topics: str, partitions: int = 1
) -> list[tuple[int, int, int]]:
    """The answer for a time, which may take some ticks."""
    asker = b.connect()
    b.send(asker, question(AT_OR_BEFORE + time_ms, *topics, partitions=partitions), 6)
    while b.answer(asker) is None:
        assert b.broker.next_deadline_ms() <= b.now_ms, "nothing is to be done, and no answer"
        b.tick()
    return rows_of(b.answer(asker))


def transact(p: Producer, *topics: str, partitions: int = 1) -> None:
    for topic in topics:
        for index in range(partitions):
            p.send(topic, index, b"x")
    assert p.end(True) == 0


def work_off(b: DiskBroker) -> None:
    """Let the broker do everything that is to be done on recorded cuts."""
    while b.parts.coordinators.get().cuts.due_ms is not None:
        b.tick()


def with_old_cuts(b: DiskBroker, count: int) -> None:
    """Start the broker with a file that has so many cuts, one in each second, of the topics a and b
    with a committed transaction each. The offset of a is 0 at every other cut.
    """
    tracks = [
        Track(number, (log.topic_id.bytes, 0), 0)
        for number, log in enumerate(b.broker.topics.partition(topic, 0) for topic in "ab")
        if log is not None
    ]
    data = [b"".join(CutHistory().frames())]
    for number in range(count):
        rows = [(tracks[0], number % 2 * 2)]
        new = () if number else tracks
        data.append(encode_cut(Cut(number, START_MS + number * SECOND, 0), new, rows))
    b.load(b.saved() | {FILE: b"".join(data)})
    b.open()


def delete(b: DiskBroker, topic: str) -> None:
    answer = b.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), 5)
    assert answer.responses[0].error_code == Code.NONE


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """One partition, row, frame or request in each slice."""
    for module, name, limit in (
        (cuts_module, "PARTITIONS_AT_ONCE", 1),
        (cuts_module, "ROWS_AT_ONCE", 1),
        (cuts_module, "BYTES_AT_ONCE", 1),
        (cuts_module, "QUESTIONS_AT_ONCE", 1),
        (cut_history, "READ_BYTES", 9),
        (cut_history, "ROWS_IN_FRAME", 2),
    ):
        monkeypatch.setattr(module, name, limit)


# --- the file is read -----------------------------------------------------------------------------


def test_a_large_file_is_read_in_slices_while_other_requests_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = broker()
    transact(Producer(b, "p"), "a", "b")
    count = 4 * READ_BYTES // SMALLEST_FRAME
    with_old_cuts(b, count)
    meter = Meter(monkeypatch)
    asker, other = b.connect(), b.connect()
    b.send(asker, question(AT_OR_BEFORE + START_MS + 9 * SECOND, "a", "b"), 6)
    ticks = 0
    while b.answer(asker) is None:
        assert b.broker.next_deadline_ms() <= b.now_ms
        b.send(other, question(-1, "a"), 6)
        assert rows_of(b.answer(other)) == [(0, -1, 2)], "it does not wait"
        b.tick()
        ticks += 1
    assert rows_of(b.answer(asker)) == [
        (0, START_MS + 9 * SECOND, 2),
        (0, START_MS + 9 * SECOND, 0),
    ]
    assert ticks >= 4
    assert meter.total["frames"] >= count
    assert meter.most["frames"] <= READ_BYTES // SMALLEST_FRAME + 1


def test_a_cut_that_is_due_is_recorded_when_the_file_is_read(small_slices: None) -> None:
    b = broker()
    p = Producer(b, "p")
    transact(p, "a", "b")
    with_old_cuts(b, 8)
    p.reconnect()
    transact(p, "a")
    b.tick(SECOND)
    assert not b.broker.counters.of("barnabas_cuts_recorded_total")
    work_off(b)
    assert b.broker.counters.of("barnabas_cuts_recorded_total") == 1
    at = b.now_ms
    for _ in range(2):
        assert before(b, at, "a", "b") == [(0, at, 4), (0, at, 2)]
        assert before(b, START_MS + 4 * SECOND, "a") == [(0, START_MS + 4 * SECOND, 0)]
        b.kill()


def test_a_clean_stop_reads_the_rest_of_the_file_and_records_the_last_cut(
    small_slices: None,
) -> None:
    b = broker()
    p = Producer(b, "p")
    transact(p, "a", "b")
    with_old_cuts(b, 8)
    b.tick(SECOND)
    b.stop()
    assert [row[2] for row in before(b, b.now_ms, "a", "b")] == [2, 2]
    assert before(b, START_MS + 4 * SECOND, "a") == [(0, START_MS + 4 * SECOND, 0)]


def test_a_clean_stop_does_not_wait_for_a_file_that_only_a_question_needs(
    small_slices: None,
) -> None:
    b = broker()
    transact(Producer(b, "p"), "a", "b")
    with_old_cuts(b, 8)
    b.tick(SECOND)
    work_off(b)
    b.stop()  # so that the next start has no cut to record
    b.parts.coordinators.get().cuts.record_ms = None
    b.send(b.connect(), question(AT_OR_BEFORE + START_MS, "a"), 6)
    b.stop()
    assert before(b, START_MS + 4 * SECOND, "a") == [(0, START_MS + 4 * SECOND, 0)]


def test_requests_that_have_waited_for_the_file_are_answered_some_in_a_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuts_module, "QUESTIONS_AT_ONCE", 2)
    monkeypatch.setattr(cut_history, "READ_BYTES", 60)
    b = broker()
    transact(Producer(b, "p"), "a", "b")
    with_old_cuts(b, 4)
    askers = [b.connect() for _ in range(5)]
    for asker in askers:
        b.send(asker, question(AT_OR_BEFORE + START_MS, "a"), 6)
    gone = askers.pop(1)
    b.broker.on_closed(gone)
    answered = [0]
    while answered[-1] < len(askers):
        assert b.broker.next_deadline_ms() <= b.now_ms
        b.tick()
        answered.append(sum(b.answer(asker) is not None for asker in askers))
        assert answered[-1] - answered[-2] <= 2
    assert b.answer(gone) is None
    assert all(rows_of(b.answer(asker)) == [(0, START_MS, 0)] for asker in askers)


def test_a_topic_that_is_deleted_while_the_file_is_read_is_in_no_cut(small_slices: None) -> None:
    b = broker()
    transact(Producer(b, "p"), "a", "b")
    for ticks in range(3, 16, 4):
        with_old_cuts(b, 8)
        b.tick(SECOND)
        for _ in range(ticks):
            b.tick()
        delete(b, "a")
        b.topic("a", **{WHOLE: "true"})
        assert before(b, START_MS + SECOND, "a") == [(0, START_MS + SECOND, 0)]
        work_off(b)
        transact(Producer(b, "q"), "a")
        b.tick(SECOND)
        work_off(b)
        assert before(b, b.now_ms, "a") == [(0, b.now_ms, 2)]


def test_an_error_of_the_broker_ends_the_reading_and_not_the_requests(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, small_slices: None
) -> None:
    b = broker()
    p = Producer(b, "p")
    transact(p, "a", "b")
    with_old_cuts(b, 8)
    with monkeypatch.context() as patch, contained_faults():
        patch.setattr(HistoryReader, "_take_part", lambda *_: 1 / 0)
        assert before(b, START_MS, "a") == [(Code.CORRUPT_MESSAGE, -1, -1)]
        assert before(b, START_MS, "a") == [(Code.CORRUPT_MESSAGE, -1, -1)]
    assert "an error in the broker; please report it" in caplog.text
    assert rows_of(b.call(question(-1, "a"), 6)) == [(0, -1, 2)]
    p.reconnect()
    transact(p, "a")
    b.tick(SECOND)
    assert before(b, START_MS + SECOND, "a") == [(0, START_MS + SECOND, 2)]


def test_frames_that_make_no_sense_end_the_file(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Their checksum is right; the cuts before them are known."""
    b = broker()
    transact(Producer(b, "p"), "a", "b")
    with_old_cuts(b, 2)
    saved = b.saved()
    unknown = Track(77, (bytes(16), 0), 0)
    for body in (
        cut_history.frame(b"\x09"),
        cut_history.frame(b"\x02\x00"),
        encode_cut(Cut(2, START_MS + 2 * SECOND, 0), (), [(unknown, 5)]),
        cut_history.frame(b"\x04" + bytes(29)),
        next(CutHistory().frames()),
    ):
        b.load(saved | {FILE: saved[FILE] + body})
        b.open()
        caplog.clear()
        with caplog.at_level(logging.WARNING, "barnabas.transactions"):
            assert before(b, START_MS + 9 * SECOND, "a") == [(0, START_MS + SECOND, 2)]
        assert "the 2 past cuts before are known" in caplog.text


# --- a cut is recorded ----------------------------------------------------------------------------


def test_a_cut_of_many_partitions_has_the_offsets_of_one_moment(
    monkeypatch: pytest.MonkeyPatch, small_slices: None
) -> None:
    b = broker(partitions=3)
    p = Producer(b, "p")
    transact(p, "a", "b", partitions=3)
    meter = Meter(monkeypatch)
    b.tick(SECOND)
    at = b.now_ms
    cuts = b.parts.coordinators.get().cuts
    seen = []
    while not b.broker.counters.of("barnabas_cuts_recorded_total"):
        assert cuts.newest() is None
        transact(p, "a", "b", partitions=3)
        b.tick()
        seen.append(cuts.newest())
    assert len(seen) > 6
    for _ in range(2):
        assert before(b, at, "a", "b", partitions=3) == [(0, at, 2)] * 6
        b.kill()
    assert meter.most["partitions"] == 1


@pytest.mark.parametrize("ticks", range(1, 14, 3))
def test_a_kill_leaves_a_whole_cut_or_none(ticks: int, small_slices: None) -> None:
    b = broker(partitions=3)
    p = Producer(b, "p")
    transact(p, "a", "b", partitions=3)
    b.tick(SECOND)
    for _ in range(ticks):
        b.tick()
    at = b.now_ms
    b.kill()
    assert before(b, at, "a", "b", partitions=3) in ([(0, -1, -1)] * 6, [(0, at, 2)] * 6)
    p.reconnect()
    p.begin_session()
    transact(p, "a", "b", partitions=3)
    b.tick(SECOND)
    work_off(b)
    newest = before(b, b.now_ms, "a", "b", partitions=3)
    assert newest == [(0, b.now_ms, newest[0][2])] * 6 and newest[0][2] >= 4
    b.kill()
    assert before(b, b.now_ms, "a", "b", partitions=3) == newest


@pytest.mark.parametrize("ticks", range(0, 14, 3))
def test_a_topic_that_is_deleted_while_a_cut_is_recorded(ticks: int, small_slices: None) -> None:
    b = broker(partitions=3)
    p = Producer(b, "p")
    transact(p, "a", "b", partitions=3)
    b.tick(SECOND)
    at = b.now_ms
    for _ in range(ticks):
        b.tick()
    delete(b, "a")
    work_off(b)
    transact(Producer(b, "q"), "b", partitions=3)
    b.tick(SECOND)
    work_off(b)
    for _ in range(2):
        assert before(b, at, "b", partitions=3) == [(0, at, 2)] * 3
        assert before(b, b.now_ms, "b", partitions=3) == [(0, b.now_ms, 4)] * 3
        history = b.parts.coordinators.get().cuts.loaded()
        assert history.row_count == sum(len(track.numbers) for track in history.tracks.values())
        b.kill()


def test_without_space_a_cut_of_many_partitions_is_recorded_later(small_slices: None) -> None:
    b = broker(partitions=3)
    p = Producer(b, "p")
    transact(p, "a", "b", partitions=3)
    b.disk.refuse(Refusal(frozenset({"write", "inode"}), errno.ENOSPC))
    b.tick(SECOND)
    for _ in range(20):
        b.tick()
    assert before(b, b.now_ms, "a", partitions=3) == [(0, -1, -1)] * 3
    b.disk.refuse(None)
    b.tick(SECOND)
    work_off(b)
    for _ in range(2):
        assert before(b, b.now_ms, "a", "b", partitions=3) == [(0, b.now_ms, 2)] * 6
        b.kill()


def test_logs_that_have_no_topic_id_for_want_of_space_are_told_apart() -> None:
    b = broker()
    p = Producer(b, "p")
    transact(p, "a", "b")
    saved = {
        path: data
        for path, data in b.saved().items()
        if not path.endswith(("partition.metadata", "segments.manifest"))
    }
    b.load(saved)
    b.disk.refuse(Refusal(frozenset({"write", "inode", "rename"}), errno.ENOSPC))
    b.open()
    b.disk.refuse(None)
    log = b.broker.topics.partition("a", 0)
    assert log is not None and log.topic_id == NO_TOPIC_ID
    p.reconnect()
    for topic in "ab":
        transact(p, topic)
        b.tick(SECOND)
        work_off(b)
    for _ in range(2):
        assert before(b, b.now_ms, "a", "b") == [(0, b.now_ms, 4), (0, b.now_ms, 4)]
        b.kill()


# --- old cuts -------------------------------------------------------------------------------------


def test_cuts_are_thinned_out_and_the_file_is_replaced_in_slices(
    monkeypatch: pytest.MonkeyPatch, small_slices: None
) -> None:
    monkeypatch.setattr(cuts_module, "FEWEST_BETWEEN", 3)
    monkeypatch.setattr(cuts_module, "SMALL_BYTES", 0)
    monkeypatch.setattr(cut_history, "ALL_KEPT_MS", 5 * SECOND)
    monkeypatch.setattr(cut_history, "PERIODS", ((3_600_000, 10 * SECOND),))
    b = broker(partitions=2)
    p = Producer(b, "p")
    transact(p, "a", "b", partitions=2)
    meter = Meter(monkeypatch)
    expected = {}
    size = 0
    for number in range(60):
        transact(p, "a" if number % 3 else "b", partitions=2)
        b.tick(SECOND)
        for _ in range(number % 8):  # the thinning goes on while further cuts are recorded
            b.tick()
        while not b.broker.counters.of("barnabas_cuts_recorded_total") > number:
            b.tick()
        cut = b.parts.coordinators.get().cuts.newest()
        assert cut is not None
        expected[cut.time_ms] = before(b, cut.time_ms, "a", "b", partitions=2)
        size = max(size, len(b.saved()[FILE]))
    work_off(b)
    for _ in range(2):
        history = b.parts.coordinators.get().cuts.loaded()
        assert 10 < len(history) < 40
        for cut in history:
            assert before(b, cut.time_ms, "a", "b", partitions=2) == expected[cut.time_ms]
        b.kill()
    assert len(b.saved()[FILE]) < size
    assert meter.most["rows"] <= 2 * max(len(track.numbers) for track in history.tracks.values())


@pytest.mark.parametrize("ticks", [0, 5, 10, 12, 14])
def test_the_file_is_replaced_before_or_after_a_cut_is_recorded(
    ticks: int, small_slices: None
) -> None:
    b = broker(partitions=3)
    p = Producer(b, "p")
    transact(p, "a", "b", partitions=3)
    b.tick(SECOND)
    work_off(b)
    one = b.now_ms
    transact(p, "a", "b", partitions=3)
    b.tick(SECOND)
    two = b.now_ms
    for _ in range(ticks):
        b.tick()
    for files in b.parts.coordinators.get().cuts._replace():
        for file in files:
            file.fsync()
        b.tick()  # the cut goes on being recorded
    transact(p, "a", partitions=3)
    b.tick(SECOND)
    work_off(b)
    three = b.now_ms
    for _ in range(2):
        assert before(b, one, "a", "b", partitions=3) == [(0, one, 2)] * 6
        assert before(b, two, "a", "b", partitions=3) == [(0, two, 4)] * 6
        offsets = [row[2] for row in before(b, three, "a", "b", partitions=3)]
        assert offsets == [6, 6, 6, 4, 4, 4]
        b.kill()


def test_more_cuts_than_can_be_handled_in_one_call_are_thinned_out_whatever_their_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuts_module, "MOST_CUTS", 100)
    b = broker(barnabas_transactions_whole_cut_max_bytes=str(64 << 20))
    p = Producer(b, "p")
    for _ in range(150):
        transact(p, "a")
        b.tick(SECOND)
        work_off(b)
        assert len(b.parts.coordinators.get().cuts.loaded()) <= 104
    assert before(b, b.now_ms, "a") == [(0, b.now_ms, 300)]


def test_a_history_is_written_in_frames_of_few_rows_and_stays_what_it_was() -> None:
    history = CutHistory()
    tracks = [Track(number, (bytes([number]) * 16, number), 0) for number in range(3)]
    for number in range(3 * cut_history.ROWS_IN_FRAME):
        new = () if number else tracks
        history.add(Cut(number, number, 0), new, [(tracks[0], number + 1)])
    frames = history.frames()
    data = [next(frames)]
    history.add(Cut(history.next_number, 0, 0), (), [(tracks[1], 5)])
    history.drop_track(tracks[2])
    history.keep_cuts(array("q"), history.next_number - 2)
    data += frames
    assert max(map(len, data)) <= 20 * cut_history.ROWS_IN_FRAME + 100
    whole = b"".join(data)
    reader = HistoryReader(lambda size, at: whole[at : at + size], len(whole))
    while reader.read_some():
        pass
    assert len(reader.history) == 3 * cut_history.ROWS_IN_FRAME
    assert [track.last for track in reader.history.tracks.values()] == [len(reader.history), 0, 0]
    assert reader.size_bytes == len(whole)


def test_a_standby_gets_the_cuts_that_are_recorded_after_the_file_was_replaced() -> None:
    pair = Pair(LeaderBroker())
    b = pair.leader
    b.topic("a", **{WHOLE: "true"})
    pair.connect()
    pair.deliver_all()
    p = Producer(b, "p")
    for number in range(3):
        transact(p, "a")
        b.tick(SECOND)
        if number == 1:
            for files in b.parts.coordinators.get().cuts._replace():
                for file in files:
                    file.fsync()
    pair.deliver_all()
    successor = pair.take_over()
    assert before(successor, b.now_ms, "a") == [(0, b.now_ms, 6)]
