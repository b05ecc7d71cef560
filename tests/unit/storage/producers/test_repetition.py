"""Which batches count as retries: those with the same keys, values and headers, in any encoding and
with any times.
Source: KIP-98 (the response to a retried batch has its first offset). Only this broker requires
that a retry has the same content, since clients use sequences again for other records (see the
module).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.storage_cleaning import COMPACTED, compact, put
from helpers.storage_logs import NOW_MS, SECOND_MS, TOPIC_ID, batch, new_log, open_manager, reopened

from barnabas.protocol.errors import Code, KafkaError
from barnabas.storage.batch.validate import CheckBudget, TakesLongError, check_client_batch
from barnabas.storage.log.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.producers.repetition import (
    Comparison,
    ComparisonTakesLong,
    have_same_content,
    stored_batch,
)

NONE, GZIP, ZSTD = 0, 1, 4


def send(
    log: Log, *values: bytes, seq: int = 0, codec: int = NONE, timestamp: int = SECOND_MS
) -> str:
    """Send a batch. Gives "written", "repeated" or the name of the error code."""
    sent = batch(values, pid=1, epoch=0, seq=seq, codec=codec, timestamp=timestamp)
    try:
        info = log.append(sent, now_ms=NOW_MS)
    except KafkaError as error:
        return error.code.name
    return "repeated" if info.duplicate else "written"


OTHER = Code.UNKNOWN_PRODUCER_ID.name
TOPICS = {
    "as they come": {},
    "in a codec of the topic": {"compression_type": "zstd"},
    "with the clock of the broker": {"timestamp_type_log_append": True},
}


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("restarts", [False, True])
def test_the_same_records_are_a_repetition_and_others_are_not(
    tmp_path: Path, restarts: bool, topic: str
) -> None:
    """The settings of the topic may change the bytes of a batch. After a restart, the log is read
    to compare the records.
    """
    manager, log = new_log(tmp_path, **TOPICS[topic])
    for sequence in range(0, 10, 2):
        assert send(log, b"a%d" % sequence, b"b", seq=sequence) == "written"
    if restarts:
        _, log = reopened(manager, LogConfig(**TOPICS[topic]), clean=False)  # type: ignore[arg-type]
    for sequence in range(0, 10, 2):
        assert send(log, b"a%d" % sequence, b"b", seq=sequence) == "repeated"
        assert send(log, b"x", b"b", seq=sequence) == OTHER
    again = send(log, b"a8", b"b", seq=8, timestamp=SECOND_MS + 1)
    assert again == "repeated", "the client encoded it again, with the time of its second attempt"
    assert log.log_end_offset == 10
    assert send(log, b"next", seq=10) == "written"


@pytest.mark.parametrize(("first", "second"), [(NONE, ZSTD), (ZSTD, NONE), (GZIP, ZSTD)])
def test_the_same_records_in_another_codec_are_a_repetition(
    tmp_path: Path, first: int, second: int
) -> None:
    """A client may encode a batch again when it retries after a broken connection."""
    _, log = new_log(tmp_path)
    assert send(log, b"value" * 100, codec=first) == "written"
    assert send(log, b"value" * 100, codec=second) == "repeated"
    assert send(log, b"other" * 100, codec=second) == OTHER


KEYS, VALUES, TIMES = (b"k", None), (b"v", b""), (SECOND_MS, SECOND_MS + 7)
HEADERS: tuple[tuple[str, bytes | None], ...] = (("h", b"1"), ("i", None))
SAME: dict[str, dict[str, Any]] = {
    "the clock of the second attempt": {"times": (SECOND_MS + 90_000,) * 2},
    "another time of each record": {"times": (SECOND_MS + 90_000, SECOND_MS)},
    "deltas with other widths": {"times": (SECOND_MS, SECOND_MS + (1 << 40))},
}
DIFFERENT: dict[str, dict[str, Any]] = {
    "another value": {"values": (b"v", b"x")},
    "no value for an empty one": {"values": (b"v", None)},
    "another key": {"keys": (b"j", None)},
    "an empty key for none": {"keys": (b"k", b"")},
    "another order": {"keys": KEYS[::-1], "values": VALUES[::-1]},
    "a key that is part of the value": {"keys": (b"", None), "values": (b"kv", b"")},
    "no headers": {"headers": ()},
    "another value of a header": {"headers": (("h", b"2"), ("i", None))},
    "another last byte": {"headers": (("h", b"1"), ("i", b""))},
    "another order of headers": {"headers": HEADERS[::-1]},
}


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("changes", [*SAME, *DIFFERENT])
def test_a_repetition_has_what_the_application_wrote_whatever_its_times_and_codec_are(
    tmp_path: Path, changes: str, restarts: bool
) -> None:
    """kafkajs encodes a batch again at each attempt, and takes the clock for records without a
    time; so does sarama to 1.47.
    """
    manager, log = new_log(tmp_path)
    first = {"keys": KEYS, "values": VALUES, "times": TIMES, "headers": HEADERS}
    log.append(batch(**first, pid=1, epoch=0, seq=0), now_ms=NOW_MS)  # type: ignore[arg-type]
    if restarts:
        manager, log = reopened(manager, LogConfig(), clean=False)
    for codec in (NONE, GZIP, 2, 3, ZSTD):
        again = {**first, **SAME.get(changes, {}), **DIFFERENT.get(changes, {})}
        sent = batch(**again, pid=1, epoch=0, seq=0, codec=codec)  # type: ignore[arg-type]
        if changes in SAME:
            assert log.append(sent, now_ms=NOW_MS).duplicate
        else:
            with pytest.raises(KafkaError, match="for other records"):
                log.append(sent, now_ms=NOW_MS)
    assert log.log_end_offset == 2


LONG = {
    "many records": ([b"v"] * 9000, NONE, NONE),
    "many bytes": ([b"v" * (1 << 20)] * 2, NONE, NONE),
    "small before they are decompressed": ([b"v" * (1 << 20)] * 2, ZSTD, ZSTD),
    "only the written one is compressed": ([b"v" * (1 << 20)] * 2, ZSTD, NONE),
    "only the other one is compressed": ([b"v" * (1 << 20)] * 2, NONE, ZSTD),
}


@pytest.mark.parametrize("case", LONG)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_long_comparison_is_left_to_a_thread(tmp_path: Path, case: str, restarts: bool) -> None:
    values, codec, second = LONG[case]
    config = LogConfig(max_message_bytes=8 << 20)
    manager, log = new_log(tmp_path, max_message_bytes=8 << 20)
    assert send(log, *values, codec=codec) == "written"
    if restarts:
        manager, log = reopened(manager, config, clean=False)

    def again(sent: bytearray) -> bool:
        checked = check_client_batch(memoryview(sent), log.rules, NOW_MS)
        with pytest.raises(ComparisonTakesLong) as caught:
            log.append(sent, now_ms=NOW_MS, checked=checked, at_once=CheckBudget())
        written = caught.value.written
        stored = stored_batch(written, log.segments)
        assert stored is not None
        comparison = Comparison(written, have_same_content(stored, sent, 16 << 20))
        info = log.append(
            sent, now_ms=NOW_MS, checked=checked, at_once=CheckBudget(), comparison=comparison
        )
        return info.duplicate

    times = range(SECOND_MS + 1, SECOND_MS + 1 + len(values))
    assert again(batch(values, pid=1, epoch=0, seq=0, codec=second, times=times))
    with pytest.raises(KafkaError, match="for other records"):
        again(batch([b"w", *values[1:]], pid=1, epoch=0, seq=0, codec=second, times=times))


def test_a_comparison_of_another_batch_decides_nothing(tmp_path: Path) -> None:
    """The log may have changed while the thread compared."""
    _, log = new_log(tmp_path)
    for sequence in range(2):
        assert send(log, b"a%d" % sequence, seq=sequence) == "written"
    first, second = log.producer_state.producers[1].batches
    sent = batch([b"x"], pid=1, epoch=0, seq=1)
    with pytest.raises(KafkaError, match="for other records"):
        log.append(bytearray(sent), now_ms=NOW_MS, comparison=Comparison(first, True))
    assert log.append(sent, now_ms=NOW_MS, comparison=Comparison(second, True)).duplicate


def test_the_batches_of_a_request_share_the_limits_of_comparisons(tmp_path: Path) -> None:
    _, log = new_log(tmp_path)
    assert send(log, *[b"v"] * 400) == "written"
    budget = CheckBudget(2000)
    later = batch([b"v"] * 400, pid=1, epoch=0, seq=0, timestamp=SECOND_MS + 1)
    for _ in range(2):  # each time for the check, and for the comparison
        assert log.append(bytearray(later), now_ms=NOW_MS, at_once=budget).duplicate
    assert budget.records_left == 320
    with pytest.raises(TakesLongError):
        log.append(bytearray(later), now_ms=NOW_MS, at_once=budget)


def test_a_batch_that_cannot_be_opened_goes_by_its_checksum(tmp_path: Path) -> None:
    """The bound of decompressed records may have been lowered since the batch was written."""
    _, log = new_log(tmp_path)
    assert send(log, b"v" * 5000, codec=ZSTD) == "written"
    log.config = replace(log.config, max_decompressed_bytes=4096)
    stored = stored_batch(log.producer_state.producers[1].batches[0], log.segments)
    assert stored is not None
    other = batch([b"w" * 5000], pid=1, epoch=0, seq=0)
    assert have_same_content(stored, other, 4096) is None
    log.config = replace(log.config, max_message_bytes=10_000)
    assert send(log, b"v" * 5000, timestamp=SECOND_MS + 1) == OTHER


@pytest.mark.parametrize("restarts", [False, True])
def test_a_batch_that_is_gone_from_the_log_goes_by_its_checksum(
    tmp_path: Path, restarts: bool
) -> None:
    """After a restart, a retry cannot be distinguished from a different batch. Apache Kafka has the
    same limitation.
    """
    config = LogConfig(segment_bytes=300)
    manager, log = new_log(tmp_path, segment_bytes=300)
    assert send(log, b"gone") == "written"
    log.append(batch([b"v" * 150]), now_ms=NOW_MS)
    log.append(batch([b"v" * 150]), now_ms=NOW_MS)
    log.delete_records_before(2)
    assert log.delete_old_segments(NOW_MS) == 1
    if restarts:
        _, log = reopened(manager, config, clean=True)
    assert send(log, b"gone") == "repeated"
    assert send(log, b"other") == ("repeated" if restarts else OTHER)


def test_what_retention_has_taken_is_repeated_by_its_bytes_alone(tmp_path: Path) -> None:
    _, log = new_log(tmp_path)
    assert send(log, b"a") == "written"
    log._roll(NOW_MS)
    log.delete_records_before(1)
    assert log.delete_old_segments(NOW_MS) == 1
    assert send(log, b"a") == "repeated"
    assert send(log, b"b") == OTHER
    assert send(log, b"a", codec=GZIP) == OTHER, "they cannot be recognised as the same"


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("values", "later", "is_changed", "is_whole"),
    [
        ([b"a", b"b"], {}, False, True),
        ([b"a", b"b"], {b"k0": b"new"}, True, False),
        ([b"a", b"b"], {b"k0": b"new", b"k1": b"new"}, True, False),
        ([None, b"b"], {}, True, True),
        ([None, None], {}, True, True),
    ],
    ids=["kept whole", "one record gone", "emptied", "a delete horizon", "tombstones alone"],
)
def test_a_batch_that_compaction_took_records_from_goes_by_its_checksum(
    tmp_path: Path,
    values: list[bytes | None],
    later: dict[bytes, bytes],
    is_changed: bool,
    is_whole: bool,
    restarts: bool,
) -> None:
    """A batch with a delete horizon has another base timestamp, but its content is the same."""
    manager = open_manager(tmp_path, COMPACTED)
    log = manager.create("t", 0, TOPIC_ID, COMPACTED, NOW_MS)

    def send_keyed(values: list[bytes | None]) -> str:
        keys = [b"k%d" % number for number in range(len(values))]
        try:
            sent = batch(values, keys=keys, pid=1, epoch=0, seq=0)
            return "repeated" if log.append(sent, now_ms=NOW_MS).duplicate else "written"
        except KafkaError as error:
            return error.code.name

    assert send_keyed(values) == "written"
    for key, value in [*later.items(), (b"other", b"x"), (b"last", b"x")]:
        put(log, key, value)
        log._roll(NOW_MS)
    before = log.segments[0].batches.file.pread(1000, 0)
    assert compact(manager, log) is not None
    assert (log.segments[0].batches.file.pread(len(before), 0) != before) is is_changed
    if restarts:
        manager, log = reopened(manager, COMPACTED, clean=True)
    assert send_keyed(values) == "repeated"
    others: list[bytes | None] = [b"x", b"y"]
    assert send_keyed(others) == ("repeated" if restarts and not is_whole else OTHER)
