"""Compaction of one log. The expected results are those of Apache Kafka 3.9's cleaner (the oracle's
retention family, KIP-98, KIP-534).
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.places import TESTS
from helpers.storage_cleaning import (
    COMPACTED,
    batches_of,
    compact,
    empty_batches,
    entries,
    job_of,
    markers,
    put,
    put_many,
)
from helpers.storage_logs import (
    NOW_MS,
    SECOND_MS,
    TOPIC_ID,
    batch,
    committed_values,
    kill,
    offsets_in,
    open_manager,
    reopened,
    values_of,
)

from barnabas.protocol.compression import Levels
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.records import (
    DELETE_HORIZON,
    HEADER_SIZE,
    NewRecord,
    Record,
    assemble_batch,
    encode_batch,
    records_of,
)
from barnabas.storage.cleaning.clean_plan import assess, is_due
from barnabas.storage.cleaning.cleaner import _places, clean
from barnabas.storage.cleaning.segment_swap import swap_in
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.disk import OsDisk
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.files.txn_index import AbortedEntry
from barnabas.storage.log.append_info import NewMarker
from barnabas.storage.log.broker_appends import append_marker, append_records, write_marker
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_reader import Isolation
from barnabas.storage.log.time_lookup import offset_for_timestamp, offset_of_max_timestamp
from barnabas.storage.log_config import LogConfig

DAY_MS = 86_400_000


def compacted_log(path: Path, **settings: Any) -> tuple[LogManager, Log]:
    config = replace(COMPACTED, **settings)
    manager = open_manager(path, config)
    return manager, manager.create("t", 0, TOPIC_ID, config, NOW_MS)


def fill(log: Log, now_ms: int = NOW_MS) -> int:
    """Append a record that gets its own segment, since the last segment is never cleaned."""
    return put(log, b"filler", b".", now_ms)


def data(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [entry for entry in entries(log) if entry[1] != b"filler"]


def offsets(log: Log) -> list[int]:
    return [entry[0] for entry in data(log)]


class Producer:
    def __init__(self, log: Log, pid: int, epoch: int = 0) -> None:
        self.log, self.pid, self.epoch, self.sequence = log, pid, epoch, 0

    def put(self, *, transactional: bool = True, **values: bytes | None) -> int:
        """Append a batch with these records. Gives its offset."""
        sent = {
            "pid": self.pid,
            "epoch": self.epoch,
            "seq": self.sequence,
            "transactional": transactional,
        }
        self.sequence += len(values)
        return put_many(self.log, sent=sent, **values)

    def end(self, commit: bool, now_ms: int = NOW_MS) -> int:
        return append_marker(
            self.log,
            producer_id=self.pid,
            producer_epoch=self.epoch,
            coordinator_epoch=0,
            commit=commit,
            now_ms=now_ms,
        )


# --- keys ---------------------------------------------------------------------------------------


def test_the_latest_record_of_each_key_is_kept_at_its_offset(tmp_path: Path) -> None:
    manager, log = compacted_log(tmp_path)
    for key, value in ((b"k1", b"a"), (b"k2", b"b"), (b"k1", b"c"), (b"k3", b"d"), (b"k2", b"e")):
        put(log, key, value)
    fill(log)
    cleaned_to = compact(manager, log)
    assert data(log) == [(2, b"k1", b"c"), (3, b"k3", b"d"), (4, b"k2", b"e")]
    assert (log.log_start_offset, cleaned_to) == (0, 5)
    assert offsets_in(log.read(0, max_bytes=1000, min_one_batch=True))[:1] == [
        2
    ]  # a read at a removed offset returns the next one
    put(log, b"k3", b"f")
    fill(log)
    compact(manager, log, cleaned_to)
    assert offsets(log) == [2, 4, 6]


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_a_rewritten_batch_keeps_its_codec_and_the_records_fields(
    tmp_path: Path, codec: int
) -> None:
    manager, log = compacted_log(tmp_path, segment_bytes=400)
    times = [SECOND_MS + 5, SECOND_MS, SECOND_MS + 9, SECOND_MS - 7]
    sent = batch(
        [b"1", b"2", b"3", b""],
        keys=[b"a", b"b", b"a", b"c"],
        times=times,
        codec=codec,
        headers=(("h", b"x" * 50), ("n", None)),
    )
    log.append(sent, now_ms=NOW_MS)
    log.append(batch([b"4" * 300], keys=[b"c"]), now_ms=NOW_MS)
    log.append(batch([b"." * 300], keys=[b"filler"]), now_ms=NOW_MS)
    compact(manager, log)
    header, kept = batches_of(log)[0]
    assert records_of(kept) == [
        Record(1, times[1], b"b", b"2", (("h", b"x" * 50), ("n", None))),
        Record(2, times[2], b"a", b"3", (("h", b"x" * 50), ("n", None))),
    ]
    assert (header.base_offset, header.last_offset, header.codec, header.max_timestamp) == (
        0,
        3,
        codec,
        times[2],
    )


@pytest.mark.parametrize(
    ("codec", "thorough"), [(1, Levels(gzip=9)), (3, Levels(lz4=12)), (4, Levels(zstd=19))]
)
def test_rewritten_batches_are_compressed_at_the_topics_level(
    tmp_path: Path, codec: int, thorough: Levels
) -> None:
    values = [
        b"%d of the same words in another order %d" % (number, number * 7919 % 500)
        for number in range(500)
    ]
    keys = [b"%d" % number for number in range(500)]
    quick = Levels(gzip=1, lz4=9, zstd=-7)
    sizes = []
    for levels in (quick, thorough):
        manager, log = compacted_log(
            tmp_path / str(len(sizes)), segment_bytes=20_000, compression_levels=levels
        )
        log.append(batch(values, keys=keys, codec=codec), now_ms=NOW_MS)
        put(log, b"7", b"later")
        put(log, b"filler", b"." * 19_000)
        compact(manager, log)
        header, kept = batches_of(log)[0]
        assert (
            header.codec == codec
            and [record.value for record in records_of(kept)] == values[:7] + values[8:]
        )
        sizes.append(len(kept))
    assert sizes[1] < sizes[0]


def test_a_cleaned_segment_without_aborted_transactions_has_no_index_of_them(
    tmp_path: Path,
) -> None:
    manager, log = compacted_log(tmp_path)
    for number in range(6):
        put(log, b"k%d" % (number % 2), b"v")
    fill(log)
    assert compact(manager, log)
    assert offsets(log) == [4, 5]
    assert not list((tmp_path / "t-0").glob("*.txnindex"))


def test_records_of_any_width_are_found_in_their_batch() -> None:
    """Lengths and offsets take one, two and three bytes. The result is compared with that of
    `records_of`.
    """
    widths = (0, 1, 20, 55, 63, 64, 65, 127, 128, 8180, 8191, 8192, 70_000)
    given = [
        NewRecord(b"k" * key, None if value == 1 else b"v" * value, NOW_MS + 97 * (key + value))
        for key in widths
        for value in widths
    ] + [NewRecord(None if number % 3 else b"%d" % number, b"", NOW_MS) for number in range(8200)]
    data = bytes(encode_batch(given))
    places = _places(data[HEADER_SIZE:], len(given))
    assert [(offset, key, is_null) for _, _, _, offset, key, is_null in places] == [
        (record.offset, record.key, record.value is None) for record in records_of(data)
    ]
    ends = [0, *(place[2] for place in places)]
    assert [place[0] for place in places] == ends[:-1] and ends[-1] == len(data) - HEADER_SIZE


def test_a_cleaning_leaves_no_file_open(tmp_path: Path) -> None:
    _, log = compacted_log(tmp_path)
    for number in range(6):
        put(log, b"k%d" % (number % 2), b"v")
    fill(log)
    opened: list[Any] = []

    class Counting(OsDisk):
        def open(self, path: str, *, create: bool = False) -> Any:
            file = super().open(path, create=create)
            opened.append(file)
            return file

    log.flush()
    job = job_of(log)
    assert job is not None
    clean(Counting(), job)
    assert len(opened) > 3
    for file in opened:
        with pytest.raises((OSError, ValueError)):
            file.pread(1, 0)


def test_keys_of_any_length_are_distinguished(tmp_path: Path) -> None:
    manager, log = compacted_log(tmp_path, segment_bytes=1000)
    keys = [b"", b"x" * 32, b"x" * 33, b"x" * 33 + b"y", b"x" * 300, b"x" * 299 + b"y"]
    for _ in range(2):
        for key in keys:
            put(log, key, b"v" * 400)
    put(log, b"filler", b"." * 900)
    compact(manager, log)
    assert [(offset, key) for offset, key, _ in data(log)] == list(enumerate(keys, len(keys)))


def test_records_without_a_key_are_removed(tmp_path: Path) -> None:
    manager, log = compacted_log(tmp_path, cleanup_policy=frozenset({"delete"}))
    log.append(batch([b"1", b"2"], keys=[None, b"k"]), now_ms=NOW_MS)
    log.config = replace(log.config, cleanup_policy=frozenset({"compact"}))
    fill(log)
    compact(manager, log)
    assert data(log) == [(1, b"k", b"2")]


def test_log_append_times_are_kept(tmp_path: Path) -> None:
    manager, log = compacted_log(tmp_path, segment_bytes=150, timestamp_type_log_append=True)
    put_many(log, NOW_MS, a=b"1", b=b"1")
    put_many(log, NOW_MS + 9, a=b"2", c=None)
    fill(log, NOW_MS + 10)
    fill(log, NOW_MS + 10)
    compact(manager, log)
    found = [
        (record.offset, record.timestamp)
        for _, kept in batches_of(log)
        for record in records_of(kept)
    ]
    assert found[:3] == [(1, NOW_MS), (2, NOW_MS + 9), (3, NOW_MS + 9)]


def test_small_segments_are_merged_and_unchanged_ones_are_not_rewritten(
    tmp_path: Path,
) -> None:
    manager, log = compacted_log(tmp_path, segment_bytes=300)
    for number in range(12):
        put(log, b"k", b"%0100d" % number)
    put(log, b"j", b"v" * 200)
    fill(log)
    cleaned_to = compact(manager, log)
    assert [segment.base_offset for segment in log.segments] == [
        *range(14)
    ]  # no two of these segments fit into one
    assert (cleaned_to, offsets(log)) == (13, [11, 12])
    fill(log)
    put(log, b"i", b"v" * 200)
    fill(log)
    kept = log.segments[12].batches.file
    cleaned_to = compact(manager, log, cleaned_to)
    assert [segment.base_offset for segment in log.segments] == [
        0,
        12,
        13,
        15,
        16,
    ]  # the emptied segments fit into one
    assert offsets(log) == [11, 12, 15]
    assert log.segments[1].batches.file is kept
    assert log.segments.size_bytes == sum(
        path.stat().st_size for path in tmp_path.glob("t-0/*.log")
    )


def test_a_log_whose_keys_exceed_the_map_is_cleaned_in_rounds(tmp_path: Path) -> None:
    manager, log = compacted_log(tmp_path)
    for number in range(40):
        put(log, b"%d" % (number % 10), b"%d" % number)
    fill(log)
    cleaned_to: int | None = None
    rounds = 0
    while cleaned_to != 40:
        before = cleaned_to
        cleaned_to = compact(manager, log, cleaned_to, map_bytes=200 * 4)
        assert cleaned_to is not None and cleaned_to > (before or 0)
        rounds += 1
    assert rounds == 10
    assert offsets(log) == list(range(30, 40))


# --- tombstones (F3) ----------------------------------------------------------------------------


def test_a_tombstone_gets_a_delete_horizon_and_is_removed_after_it(tmp_path: Path) -> None:
    manager, log = compacted_log(tmp_path, delete_retention_ms=1000)
    put(log, b"k", b"a")
    put(log, b"j", b"b")
    put(log, b"k", None)
    fill(log)
    assert [header.attributes & DELETE_HORIZON for header, _ in batches_of(log)] == [0, 0, 0, 0]
    cleaned_to = compact(manager, log, None, NOW_MS)
    assert data(log) == [(1, b"j", b"b"), (2, b"k", None)]
    header, kept = next(
        (header, kept) for header, kept in batches_of(log) if header.base_offset == 2
    )
    assert (header.attributes & DELETE_HORIZON, header.base_timestamp) == (
        DELETE_HORIZON,
        NOW_MS + 1000,
    )
    assert (records_of(kept)[0].timestamp, header.max_timestamp) == (SECOND_MS, SECOND_MS)
    fill(log)
    cleaned_to = compact(manager, log, cleaned_to, NOW_MS + 999)
    assert offsets(log) == [1, 2]
    assert (
        next(header for header, _ in batches_of(log) if header.base_offset == 2).base_timestamp
        == NOW_MS + 1000
    )  # the horizon is set only once
    fill(log)
    compact(manager, log, cleaned_to, NOW_MS + 1000)
    assert offsets(log) == [1]


def test_a_tombstone_is_kept_in_the_round_that_removes_the_earlier_value(
    tmp_path: Path,
) -> None:
    manager, log = compacted_log(tmp_path)
    put(log, b"k", b"a")
    put(log, b"k", None)
    fill(log)
    compact(manager, log, None, NOW_MS + DAY_MS)
    assert data(log) == [(1, b"k", None)]


# --- transactions -------------------------------------------------------------------------------


def test_an_aborted_value_does_not_replace_a_committed_one_and_is_removed(tmp_path: Path) -> None:
    manager, log = compacted_log(tmp_path)
    producer = Producer(log, 1)
    producer.put(k1=b"a")
    producer.end(True)
    producer.put(k1=b"b", k2=b"x")
    producer.end(False)
    producer.put(k2=b"c")
    producer.end(True)
    fill(log)
    compact(manager, log)
    assert data(log) == [(0, b"k1", b"a"), (5, b"k2", b"c")]
    assert {offset: value for offset, value in committed_values(log).items() if value != b"."} == {
        0: b"a",
        5: b"c",
    }


@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("rolls_before_marker", [0, 1, 2])
def test_the_outcome_of_a_transaction_counts_wherever_its_marker_is(
    tmp_path: Path, commit: bool, rolls_before_marker: int
) -> None:
    """The marker may even be in the active segment, which is not cleaned."""
    manager, log = compacted_log(tmp_path, segment_bytes=10_000)
    put(log, b"k", b"a")
    producer = Producer(log, 1)
    producer.put(k=b"b")
    for _ in range(rolls_before_marker):
        log._roll(NOW_MS)
        fill(log)
    producer.end(commit)
    if not rolls_before_marker:
        log._roll(NOW_MS)
    assert compact(manager, log) is not None
    assert data(log) == ([(1, b"k", b"b")] if commit else [(0, b"k", b"a")])


def test_markers_are_never_compared_by_key(tmp_path: Path) -> None:
    """Compaction does not compare markers by their keys, since there are only two different keys.

    Source: crabka#528.
    """
    manager, log = compacted_log(tmp_path, delete_retention_ms=DAY_MS)
    for pid in (1, 2, 3):
        producer = Producer(log, pid)
        producer.put(**{f"k{pid}": b"v"})
        producer.end(True)
        producer.put(**{f"k{pid}": b"w"})
        producer.end(False)
    fill(log)
    compact(manager, log)
    assert markers(log) == [1, 3, 5, 7, 9, 11]


def test_a_marker_is_kept_while_data_of_its_transaction_is_in_another_segment(
    tmp_path: Path,
) -> None:
    # contract: kip-98/compaction
    """A marker is kept while data of its transaction is in another segment.

    Source: KAFKA-5196, KAFKA-8351.
    """
    manager, log = compacted_log(tmp_path, delete_retention_ms=0)
    producer, other = Producer(log, 1), Producer(log, 2)
    producer.put(k=b"v")
    other.put(j=b"1")
    for number in range(5):
        put(log, b"x", b"%d" % number)
    commit = producer.end(True)
    abort = other.end(False)
    cleaned_to: int | None = None
    for turn in range(4):
        fill(log, NOW_MS + turn)
        cleaned_to = compact(manager, log, cleaned_to, NOW_MS + turn)
    assert commit in markers(log)
    assert 0 in offsets(log) and 1 not in offsets(log)
    assert abort in markers(log)  # the producer is known, so its empty batch is kept
    assert committed_values(log)[0] == b"v"


def test_a_marker_is_removed_after_its_data_and_its_delete_horizon(tmp_path: Path) -> None:
    # contract: kip-98/compaction
    """A marker is removed after its data, once its delete horizon has passed.

    Source: KIP-534, KAFKA-8522.
    """
    manager, log = compacted_log(tmp_path, delete_retention_ms=100)
    producer = Producer(log, 1)
    producer.put(k=b"a")
    producer.end(True)
    producer.put(k=b"b")
    producer.end(False)
    producer.put(k=b"c")
    producer.end(True)
    fill(log)
    cleaned_to = compact(manager, log, None, NOW_MS)
    assert (offsets(log), markers(log)) == ([4], [1, 3, 5])
    horizons = {header.base_offset: header.delete_horizon_ms for header, _ in batches_of(log)}
    # the data of these markers was removed only in this round
    assert (horizons[1], horizons[3]) == (None, None)
    fill(log)
    cleaned_to = compact(manager, log, cleaned_to, NOW_MS + 1)
    horizons = {header.base_offset: header.delete_horizon_ms for header, _ in batches_of(log)}
    assert (horizons[1], horizons[3], horizons[5]) == (NOW_MS + 101, NOW_MS + 101, None)
    assert log.reader.txn_index(next(s for s in log.segments if s.base_offset == 3)).entries == [
        AbortedEntry(1, 2, 3, 4)
    ]
    fill(log)
    cleaned_to = compact(manager, log, cleaned_to, NOW_MS + 100)
    assert markers(log) == [1, 3, 5]
    fill(log)
    compact(manager, log, cleaned_to, NOW_MS + 101)
    assert (offsets(log), markers(log)) == ([4], [5])
    assert [
        entry for segment in log.segments for entry in log.reader.txn_index(segment).entries
    ] == []
    assert log.last_stable_offset == log.log_end_offset


@pytest.mark.parametrize("decided_before_ms", [0, DAY_MS])
def test_the_time_of_a_decision_is_that_of_its_cleaned_marker_too(
    tmp_path: Path, decided_before_ms: int
) -> None:
    """A cleaning stores the delete horizon, which is later, in the field of the base timestamp."""
    manager, log = compacted_log(tmp_path, delete_retention_ms=DAY_MS)
    producer = Producer(log, 1)
    producer.put(k=b"a")
    decided_ms = NOW_MS - decided_before_ms
    marker = write_marker(log, NewMarker(1, 0, 0, True, True, decided_ms), NOW_MS)
    put(log, b"k", b"b")
    producer.put(k=b"c")
    compact(manager, log)
    compact(manager, log, 0)
    (cleaned,) = [header for header, _ in batches_of(log) if header.base_offset == marker]
    assert cleaned.delete_horizon_ms == NOW_MS + DAY_MS
    assert log.ended_before_open_transaction(1, decided_ms)
    assert not log.ended_before_open_transaction(1, NOW_MS + 1)


def test_nothing_beyond_the_last_stable_offset_is_cleaned(tmp_path: Path) -> None:
    """Nothing beyond the last stable offset is cleaned.

    Source: redpanda#19931, redpanda#24637.
    """
    manager, log = compacted_log(tmp_path)
    producer = Producer(log, 1)
    put(log, b"k", b"a")
    put(log, b"k", b"b")
    producer.put(j=b"1")
    put(log, b"k", b"c")
    put(log, b"k", b"d")
    fill(log)
    cleaned_to = compact(manager, log)
    assert (offsets(log), cleaned_to) == ([1, 2, 3, 4], 2)
    producer.end(True)
    fill(log)
    compact(manager, log, cleaned_to)
    assert offsets(log) == [2, 4]


def test_the_aborted_index_is_right_after_cleaning_for_every_fetch(tmp_path: Path) -> None:
    """After cleaning, every fetch gets the right list of aborted transactions.

    The marker is in a segment that is not cleaned. The transaction's data is partly in cleaned
    segments and partly in later ones.

    Source: brod#329.
    """
    manager, log = compacted_log(tmp_path, segment_bytes=200)
    producer, other = Producer(log, 1), Producer(log, 2)
    for turn in range(10):
        producer.put(**{f"a{turn}": b"aborted"})
        other.put(**{f"b{turn}": b"committed"})
        if turn in (2, 5):
            producer.end(False)
            other.end(True)
    other.end(True)
    producer.end(False)
    wanted = committed_values(log)
    fill(log)
    cleaned_to: int | None = None
    for turn in range(3):
        cleaned_to = compact(manager, log, cleaned_to, NOW_MS + turn)
        assert {
            offset: value for offset, value in committed_values(log).items() if value != b"."
        } == wanted
        fill(log)
    assert not any(value == b"aborted" for _, _, value in entries(log))


@pytest.mark.parametrize("clean_stop", [True, False])
def test_the_aborted_index_of_a_cleaned_log_is_rebuilt_where_it_is_lost(
    tmp_path: Path, clean_stop: bool
) -> None:
    """If the index of aborted transactions of a cleaned log is lost, it is rebuilt.

    Source: brod#329.
    """
    manager, log = compacted_log(tmp_path, segment_bytes=200, delete_retention_ms=DAY_MS)
    producer = Producer(log, 1)
    for turn in range(6):
        producer.put(a=b"%d" % turn)
        producer.end(turn % 2 == 0)
    fill(log)
    compact(manager, log)
    fill(log)
    wanted = committed_values(log)
    assert 8 in wanted
    (manager.close if clean_stop else lambda _: kill(manager))(NOW_MS)
    for path in tmp_path.glob("t-0/*.txnindex"):
        path.unlink()
    (tmp_path / "t-0/segments.manifest").unlink()
    again = open_manager(tmp_path, log.config)
    assert committed_values(again.logs["t", 0]) == wanted


# --- producers (B8) -----------------------------------------------------------------------------


@pytest.mark.parametrize("stop", ["none", "clean", "killed"])
def test_the_last_batch_of_a_producer_is_kept_without_records(tmp_path: Path, stop: str) -> None:
    """The last batch of a producer is kept without records.

    Source: KAFKA-5490.
    """
    manager, log = compacted_log(tmp_path)
    for sequence, value in enumerate((b"a", b"b")):
        put(log, b"k", value, pid=1, epoch=0, seq=sequence)
    put(log, b"k", b"c")
    fill(log)
    compact(manager, log)
    assert offsets(log) == [2]
    header, _ = batches_of(log)[0]
    assert (
        header.base_offset,
        header.last_offset,
        header.base_sequence,
        header.producer_id,
        header.record_count,
    ) == (1, 1, 1, 1, 0)
    if stop != "none":
        manager, log = reopened(manager, log.config, clean=stop == "clean")
    again = log.append(batch([b"b"], keys=[b"k"], pid=1, epoch=0, seq=1), now_ms=NOW_MS)
    assert (again.duplicate, again.first_offset) == (True, 1)
    with pytest.raises(KafkaError) as refused:
        put(log, b"k", b"x", pid=1, epoch=0, seq=3)
    assert refused.value.code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert put(log, b"k", b"d", pid=1, epoch=0, seq=2) == 4


def test_a_segment_of_nothing_but_an_empty_batch_has_no_time(tmp_path: Path) -> None:
    manager, log = compacted_log(tmp_path)
    put(log, b"k", b"a", pid=1, epoch=0, seq=0)
    put(log, b"k", b"b")
    fill(log)
    log.flush()
    job = job_of(log)
    assert job is not None
    emptied = clean(manager.disk, job).segments[0]
    assert (emptied.base_offset, emptied.replaces, emptied.size) == (0, (0,), 61)
    assert emptied.max_timestamp == -1


def test_an_empty_batch_is_removed_when_its_producer_expires(tmp_path: Path) -> None:
    """When its producer expires, an empty batch is removed.

    Source: KAFKA-5490.
    """
    manager, log = compacted_log(tmp_path, producer_id_expiration_ms=1000)
    put(log, b"k", b"a", pid=1, epoch=0, seq=0)
    put(log, b"k", b"b")
    fill(log)
    cleaned_to = compact(manager, log)
    assert empty_batches(log) == [0]
    log.expire_producers(NOW_MS + 1000)
    fill(log, NOW_MS + 1000)
    compact(manager, log, cleaned_to, NOW_MS + 1000)
    assert empty_batches(log) == []


def test_a_marker_that_is_the_only_trace_of_its_producer_is_kept(tmp_path: Path) -> None:
    """The marker is the only trace of its producer, and fences the epochs below its own."""
    manager, log = compacted_log(tmp_path)
    append_marker(
        log, producer_id=1, producer_epoch=7, coordinator_epoch=3, commit=False, now_ms=NOW_MS
    )
    cleaned_to: int | None = None
    for turn in range(4):
        fill(log)
        cleaned_to = compact(manager, log, cleaned_to, NOW_MS + turn)
    assert markers(log) == [0]
    kill(manager)
    for path in tmp_path.glob("t-0/*.snapshot"):
        path.unlink()
    (tmp_path / "t-0/segments.manifest").unlink()
    again = open_manager(tmp_path, log.config).logs["t", 0]
    assert (
        again.producer_state.producer_epoch_of(1),
        again.producer_state.coordinator_epoch_of(1),
    ) == (7, 3)


def test_a_snapshot_with_an_open_transaction_does_not_reopen_it_if_its_marker_was_removed(
    tmp_path: Path,
) -> None:
    """A kill lost the later snapshots. The start replays the log from a snapshot with an open
    transaction, whose marker was removed by compaction.
    """
    manager, log = compacted_log(tmp_path, segment_bytes=300)
    producer = Producer(log, 1)
    producer.put(k=b"a")
    put(log, b"stays", b"x" * 150)
    # starts a new segment, and writes a snapshot with the open transaction
    put(log, b"stays too", b"x" * 200)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    producer.end(False)
    producer.put(transactional=False, k=b"b")
    cleaned_to: int | None = None
    for turn in range(4):
        put(log, b"filler", b"." * 150)
        cleaned_to = compact(manager, log, cleaned_to, NOW_MS + turn)
    assert (markers(log), [segment.base_offset for segment in log.segments][:2]) == ([], [0, 2])
    kill(manager)
    for path in tmp_path.glob("t-0/*.snapshot"):
        if int(path.stem) > 2:
            path.unlink()
    (tmp_path / "t-0/segments.manifest").unlink()
    again = open_manager(tmp_path, log.config).logs["t", 0]
    assert again.producer_state.open_transactions() == []
    assert again.last_stable_offset == again.log_end_offset


# --- gaps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", ["the marker", "a tombstone", "a record without a key"])
def test_a_position_passes_the_gap_at_the_end_of_what_was_cleaned(
    tmp_path: Path, last: str
) -> None:
    """A position passes the gap at the end of the cleaned part.

    Only an empty segment follows. If the last batch were removed, a reader would wait at the gap
    forever.

    Source: redpanda#8698, SPARK-25005, quix-streams#1017, kafka-node#1336.
    """
    manager, log = compacted_log(tmp_path)
    producer = Producer(log, 1)
    put(log, b"k", b"a")
    producer.put(k=b"b")
    producer.end(False)
    if last == "a record without a key":
        log.config = replace(log.config, cleanup_policy=frozenset({"delete"}))
        log.append(batch([b"c"]), now_ms=NOW_MS)
        log.config = replace(log.config, cleanup_policy=frozenset({"compact"}))
    elif last == "a tombstone":
        put(log, b"k", None)
    end = log.log_end_offset
    log.expire_producers(NOW_MS + 2 * DAY_MS)
    log._roll(NOW_MS + DAY_MS)
    assert compact(manager, log) == end
    for days in (10, 20, 30):
        assert compact(manager, log, 0, NOW_MS + days * DAY_MS) == end
    assert (log.segments.active.batches.size, log.log_end_offset) == (0, end)
    assert len(batches_of(log)) <= 2, "the last one stays beside the latest of its key"
    for isolation in Isolation:
        at = 0
        while at < log.log_end_offset:
            found = log.read(at, max_bytes=1000, isolation=isolation, min_one_batch=True)
            assert found.slice is not None, f"stuck at {at}"
            at = max(header.next_offset for header, _ in log.read_batches(at))
        assert at == end


def test_offsets_by_time_pass_over_emptied_batches(tmp_path: Path) -> None:
    manager, log = compacted_log(tmp_path)
    put(log, b"k", b"a", pid=1, epoch=0, seq=0, timestamp=SECOND_MS + 500)
    put(log, b"k", b"b", timestamp=SECOND_MS + 100)
    put(log, b"j", b"c", timestamp=SECOND_MS + 300)
    fill(log)
    compact(manager, log)
    assert empty_batches(log) == [0]
    highest = offset_of_max_timestamp(log)
    assert highest is not None and (highest.timestamp, highest.offset) == (SECOND_MS + 300, 2)
    later = offset_for_timestamp(log, SECOND_MS + 200)
    assert later is not None and later.offset == 2
    assert offset_for_timestamp(log, SECOND_MS + 400) is None
    again = reopened(manager, log.config, clean=False)[1]
    assert offset_of_max_timestamp(again) == highest


def test_an_empty_control_batch_of_another_cleaner_is_no_marker(tmp_path: Path) -> None:
    manager, log = compacted_log(tmp_path)
    emptied = assemble_batch(
        b"", base_offset=0, leader_epoch=0, attributes=0x30, last_offset_delta=0,
        base_timestamp=-1, max_timestamp=SECOND_MS,
        producer_id=1, producer_epoch=0, base_sequence=-1, record_count=0,
    )  # fmt: skip
    fill(log)
    kill(manager)
    path = tmp_path / "t-0/00000000000000000000.log"
    path.write_bytes(bytes(emptied[:7]) + b"\x01" + bytes(emptied[8:]))
    for other in (*tmp_path.glob("t-0/*.snapshot"), tmp_path / "t-0/segments.manifest"):
        other.unlink(missing_ok=True)
    again = open_manager(tmp_path, log.config)
    log = again.logs["t", 0]
    assert log.log_end_offset == 2
    fill(log)
    fill(log)
    compact(again, log)
    assert empty_batches(log) == []


# --- the choice of a log ----------------------------------------------------------------------


def test_a_log_is_due_when_enough_of_it_is_dirty(tmp_path: Path) -> None:
    _, log = compacted_log(tmp_path, min_cleanable_dirty_ratio=0.5)
    for _ in range(5):
        put(log, b"k", b"v")
    dirt = assess(log, 2, NOW_MS)
    assert dirt is not None
    assert (dirt.first_dirty_offset, dirt.end_offset, dirt.clean_bytes, dirt.dirty_bytes) == (
        2,
        4,
        dirt.dirty_bytes,
        dirt.clean_bytes,
    )
    assert (dirt.ratio, is_due(log, dirt)) == (0.5, False)  # the ratio must exceed the setting
    put(log, b"k", b"v")
    dirt = assess(log, 2, NOW_MS)
    assert dirt is not None and is_due(log, dirt)
    assert assess(log, 5, NOW_MS) is None
    log.config = replace(log.config, cleanup_policy=frozenset({"delete"}))
    assert assess(log, 2, NOW_MS) is None


def test_a_cleaner_checkpoint_outside_the_log_is_ignored(tmp_path: Path) -> None:
    _, log = compacted_log(tmp_path)
    for _ in range(5):
        put(log, b"k", b"v")
    for cleaned_to in (None, 6, 10**9):
        dirt = assess(log, cleaned_to, NOW_MS)
        assert dirt is not None and dirt.first_dirty_offset == 0
    log.delete_records_before(3)
    dirt = assess(log, 1, NOW_MS)
    assert dirt is not None and dirt.first_dirty_offset == 3


def test_segments_are_cleaned_after_the_minimum_and_due_after_the_maximum_compaction_lag(
    tmp_path: Path,
) -> None:
    _, log = compacted_log(tmp_path, min_compaction_lag_ms=1000, min_cleanable_dirty_ratio=1.0)
    for time in (0, 10, 600, 20, 30):
        put(log, b"k", b"v", timestamp=SECOND_MS + time)
    assert assess(log, None, SECOND_MS + 999) is None
    dirt = assess(log, None, SECOND_MS + 1500)
    # The third segment is too young, so it and all later segments wait.
    assert dirt is not None and dirt.end_offset == 2
    assert not is_due(log, dirt)
    log.config = replace(log.config, min_compaction_lag_ms=0, max_compaction_lag_ms=2000)
    dirt = assess(log, None, SECOND_MS + 2000)
    assert dirt is not None and not is_due(log, dirt)
    dirt = assess(log, None, SECOND_MS + 2001)
    assert dirt is not None and is_due(log, dirt)


def test_the_active_segment_of_a_compacted_log_is_rolled_after_the_maximum_lag(
    tmp_path: Path,
) -> None:
    _, log = compacted_log(tmp_path, segment_bytes=10_000, max_compaction_lag_ms=1000)
    put(log, b"k", b"v")
    log.append(batch(keys=[b"k"], timestamp=SECOND_MS + 1000), now_ms=NOW_MS)
    assert len(log.segments) == 1
    log.append(batch(keys=[b"k"], timestamp=SECOND_MS + 1001), now_ms=NOW_MS)
    assert len(log.segments) == 2


def test_a_log_may_be_compacted_and_deleted(tmp_path: Path) -> None:
    manager, log = compacted_log(
        tmp_path, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=DAY_MS
    )
    put(log, b"old", b"a")
    for value in (b"b", b"c"):
        put(log, b"k", value, timestamp=NOW_MS)
    put(log, b"filler", b".", timestamp=NOW_MS)
    cleaned_to = compact(manager, log, None, NOW_MS)
    assert [segment.batches.size > 0 for segment in log.segments] == [True, False, True, True]
    log.config = replace(log.config, retention_ms=50_000)
    log.delete_old_segments(NOW_MS)
    assert (log.log_start_offset, offsets(log)) == (1, [2])
    log.delete_old_segments(NOW_MS + 50_001)
    assert (log.log_start_offset, cleaned_to) == (
        4,
        3,
    )  # the emptied segment does not block the deletion


# --- changes during a job, and failures ---------------------------------------------------------


def test_segments_may_be_rolled_while_others_are_cleaned(tmp_path: Path) -> None:
    manager, log = compacted_log(tmp_path)
    for _ in range(4):
        put(log, b"k", b"v")
    log.flush()
    job = job_of(log)
    assert job is not None
    result = clean(manager.disk, job)
    for _ in range(3):
        put(log, b"k", b"w")
    assert swap_in(log, result.segments, NOW_MS)
    assert offsets(log) == [2, 3, 4, 5, 6]


@pytest.mark.parametrize("start", [3, 4, 7])
def test_segments_deleted_during_a_cleaning_are_not_restored(tmp_path: Path, start: int) -> None:
    """Each group has three segments. A group whose segments were all deleted is skipped. A group
    that lost some segments during the job is not changed, and neither are the groups after it.
    """
    manager, log = compacted_log(tmp_path, segment_bytes=230)
    for number in range(30):
        put(log, b"%d" % (number % 3), b"v")
    log.flush()
    job = job_of(log)
    assert job is not None
    result = clean(manager.disk, job)
    log.delete_records_before(start)
    log.delete_old_segments(NOW_MS)
    before = values_of(log)
    complete = swap_in(log, result.segments, NOW_MS)
    left = values_of(log)
    assert left.items() <= before.items()
    assert log.log_start_offset == start
    assert not list(tmp_path.glob("t-0/*.cleaned")) + list(tmp_path.glob("t-0/*.swap"))
    if complete:
        assert sorted(offset for offset in left if offset < job.end_offset) == list(
            range(job.end_offset - 3, job.end_offset)
        )
    manager, again = reopened(manager, log.config, clean=False)
    assert values_of(again) == left


def test_a_slice_of_a_replaced_segment_is_still_readable(tmp_path: Path) -> None:
    manager, log = compacted_log(tmp_path, file_delete_delay_ms=0)
    for number in range(4):
        put(log, b"k", b"%d" % number)
    fill(log)
    held = log.read(0, max_bytes=1000, min_one_batch=True).slice
    assert held is not None
    compact(manager, log)
    manager.on_tick(NOW_MS + 60_000)
    assert records_of(held.file.pread(held.size, held.position))[0].value == b"0"


@pytest.mark.parametrize("at", [0, 8, 17, 30, 61, 65])
def test_a_damaged_batch_stops_the_cleaning_and_leaves_the_log_unchanged(
    tmp_path: Path, at: int
) -> None:
    manager, log = compacted_log(tmp_path, segment_bytes=500)
    for number in range(20):
        put(log, b"k%d" % number, b"v")
    log.flush()
    path = tmp_path / "t-0" / f"{log.segments[1].base_offset:020d}.log"
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0x55
    path.write_bytes(raw)
    job = job_of(log)
    assert job is not None
    with pytest.raises(CorruptLog, match="compacted"):
        clean(manager.disk, job)
    assert list(tmp_path.glob("t-0/*.cleaned")) == []
    assert path.read_bytes() == raw


@pytest.mark.parametrize(("at", "change"), [(16, 3), (8, 0x40), (8, 0x80)])
def test_the_error_for_bytes_that_are_no_batch(tmp_path: Path, at: int, change: int) -> None:
    """The magic byte or the length of a batch is wrong."""
    _, log = compacted_log(tmp_path, segment_bytes=500)
    for number in range(20):
        put(log, b"k%d" % number, b"v")
    log.flush()
    path = tmp_path / "t-0" / f"{log.segments[1].base_offset:020d}.log"
    raw = bytearray(path.read_bytes())
    raw[at] ^= change
    path.write_bytes(raw)
    job = job_of(log)
    assert job is not None
    with pytest.raises(CorruptLog, match="no batch begins there"):
        clean(OsDisk(), job)


@pytest.mark.parametrize(
    ("at", "wrong"),
    [
        # the offset of the previous batch; the checksum does not cover offsets
        (0, (1).to_bytes(8)),
        (8, (10).to_bytes(4)),  # a length that is shorter than a header
    ],
)
def test_a_batch_that_cannot_follow_stops_the_cleaning(
    tmp_path: Path, at: int, wrong: bytes
) -> None:
    manager, log = compacted_log(tmp_path, segment_bytes=500)
    starts = []
    for number in range(20):
        starts.append(log.segments.active.batches.size)
        put(log, b"k%d" % number, b"v")
    log.flush()
    path = tmp_path / "t-0" / f"{0:020d}.log"
    raw = bytearray(path.read_bytes())
    raw[starts[2] + at : starts[2] + at + len(wrong)] = wrong
    path.write_bytes(raw)
    job = job_of(log)
    assert job is not None
    with pytest.raises(CorruptLog, match="compacted"):
        clean(manager.disk, job)


def test_an_aborted_index_that_contradicts_a_marker_stops_the_cleaning(tmp_path: Path) -> None:
    """The index says that the transaction was aborted, but its marker is a commit."""
    manager, log = compacted_log(tmp_path)
    producer = Producer(log, 1)
    producer.put(k=b"a")
    producer.end(True)
    fill(log)
    log.flush()
    job = job_of(log)
    assert job is not None
    with pytest.raises(CorruptLog, match="another outcome"):
        clean(manager.disk, job._replace(aborted=(AbortedEntry(1, 0, 1, 2),)))
    assert list(tmp_path.glob("t-0/*.cleaned")) == []


def test_a_cleaning_that_finds_a_full_disk_leaves_no_files(tmp_path: Path) -> None:
    class FullDisk(OsDisk):
        def open(self, path: str, *, create: bool = False) -> Any:
            if create and path.endswith(".timeindex.cleaned"):
                raise OSError(28, "no space left", path)
            return super().open(path, create=create)

    manager, log = compacted_log(tmp_path)
    for _ in range(4):
        put(log, b"k", b"v")
    with pytest.raises(OSError, match="no space"):
        compact(manager, log, disk=FullDisk())
    assert list(tmp_path.glob("t-0/*.cleaned")) == []
    assert offsets(log) == [0, 1, 2, 3]
    compact(manager, log)
    assert offsets(log) == [2, 3]


def test_a_start_removes_the_files_of_an_interrupted_cleaning(tmp_path: Path) -> None:
    manager, log = compacted_log(tmp_path)
    for _ in range(4):
        put(log, b"k", b"v")
    log.flush()
    job = job_of(log)
    assert job is not None
    clean(manager.disk, job)
    assert list(tmp_path.glob("t-0/*.cleaned"))
    manager, log = reopened(manager, log.config, clean=False)
    assert list(tmp_path.glob("t-0/*.cleaned")) == []
    assert offsets(log) == [0, 1, 2, 3]


@pytest.mark.parametrize("clean_stop", [True, False])
def test_a_cleaned_log_opens_again_without_being_read_again(
    tmp_path: Path, clean_stop: bool, caplog: pytest.LogCaptureFixture
) -> None:
    manager, log = compacted_log(tmp_path, segment_bytes=300)
    producer = Producer(log, 1)
    for turn in range(20):
        producer.put(**{f"k{turn % 3}": b"%d" % turn})
        producer.end(turn % 4 > 0)
    fill(log)
    compact(manager, log)
    wanted, committed = values_of(log), committed_values(log)
    sizes = [
        (segment.base_offset, segment.batches.size, segment.indexes.max_timestamp)
        for segment in log.segments
    ]
    manager, log = reopened(manager, log.config, clean=clean_stop)
    assert (values_of(log), committed_values(log)) == (wanted, committed)
    for segment in log.segments:
        segment.indexes.load_times()
    assert [
        (segment.base_offset, segment.batches.size, segment.indexes.max_timestamp)
        for segment in log.segments
    ] == sizes
    assert [record.message for record in caplog.records if "again" in record.message] == []


def test_batches_of_the_offsets_topic_are_compacted(tmp_path: Path) -> None:
    """The log is like __consumer_offsets: it has offsets from transactions, and offsets from plain
    commits.
    """
    manager, log = compacted_log(tmp_path)
    for turn in range(3):
        append_records(log, [(b"group", b"%d" % turn)], NOW_MS, (5, 0))
        append_marker(
            log,
            producer_id=5,
            producer_epoch=0,
            coordinator_epoch=0,
            commit=turn != 1,
            now_ms=NOW_MS,
        )
    append_records(log, [(b"other", None)], NOW_MS)
    fill(log)
    compact(manager, log)
    assert data(log) == [(4, b"group", b"2"), (6, b"other", None)]


def test_merged_segments_are_bounded_by_the_index_size(tmp_path: Path) -> None:
    manager, log = compacted_log(
        tmp_path, segment_bytes=100, segment_index_bytes=60, index_interval_bytes=0
    )
    for number in range(20):
        put(log, b"%d" % number, b"v")
    log.config = replace(log.config, segment_bytes=100_000)
    compact(manager, log)
    assert all(len(segment.indexes.offset_index()) <= 60 // 8 for segment in log.segments)
    assert offsets(log) == list(range(20))
    assert LogConfig().roll_ms == LogConfig().segment_ms


def test_directories_that_kafka_wrote_are_compacted(tmp_path: Path) -> None:
    """The directory has Kafka's batches, markers, aborted indexes and snapshots. Compaction keeps
    the last committed value of each key, and open transactions stay open.
    """
    shutil.copytree(TESTS / "fixtures" / "kafka-logdir" / "logdir", tmp_path / "data")
    for path in (tmp_path / "data").rglob("*"):
        path.chmod(0o755)
    config = replace(COMPACTED, segment_bytes=1 << 20, delete_retention_ms=DAY_MS)
    manager = open_manager(tmp_path / "data", config)
    removed = 0
    for log in manager.logs.values():
        if log.segments.active.batches.size:
            log._roll(NOW_MS)
        log.append(batch(keys=[b"one more"]), now_ms=NOW_MS)
        before, latest, ends = (
            len(entries(log)),
            last_committed(log),
            (log.log_start_offset, log.last_stable_offset, log.log_end_offset),
        )
        compact(manager, log)
        assert last_committed(log) == latest, log
        assert (log.log_start_offset, log.last_stable_offset, log.log_end_offset) == ends
        removed += before - len(entries(log))
    assert removed > 100


def last_committed(log: Log) -> dict[bytes | None, tuple[int, bytes | None]]:
    """The last committed value of each key, with its offset. Keys whose last value is a tombstone
    are omitted.
    """
    committed = committed_values(log)
    found = {
        key: (offset, value)
        for offset, key, value in entries(log)
        if offset in committed and key is not None
    }
    return {key: held for key, held in found.items() if held[1] is not None}
