"""Which batches count as retries: those with the same records, in any encoding.
Source: KIP-98 (the response to a retried batch has its first offset). Only this broker requires
that a retry has the same records, since clients use sequences again for other records (see the
module).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.storage_cleaning import COMPACTED, compact, put
from helpers.storage_logs import NOW_MS, SECOND_MS, TOPIC_ID, batch, new_log, open_manager, reopened

from barnabas.protocol.errors import Code, KafkaError
from barnabas.storage.log.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.producers.repetition import MOST_COMPARED_BYTES

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
    assert send(log, b"a8", b"b", seq=8, timestamp=SECOND_MS + 1) == OTHER, "made a moment later"
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


def test_what_takes_long_to_open_goes_by_its_checksum(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path)
    large = b"v" * (MOST_COMPARED_BYTES + 1)
    assert send(log, large, codec=ZSTD) == "written"
    assert send(log, large, codec=ZSTD) == "repeated"
    assert send(log, b"w" + large[1:], codec=ZSTD) == OTHER
    _, log = reopened(manager, LogConfig(), clean=False)
    assert send(log, b"w" + large[1:], codec=ZSTD) == "repeated", "the checksum is not known"


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
    ("values", "later", "is_changed"),
    [
        ([b"a", b"b"], {}, False),
        ([b"a", b"b"], {b"k0": b"new"}, True),
        ([b"a", b"b"], {b"k0": b"new", b"k1": b"new"}, True),
        ([None, b"b"], {}, True),
        ([None, None], {}, True),
    ],
    ids=["kept whole", "one record gone", "emptied", "a delete horizon", "tombstones alone"],
)
def test_a_batch_that_compaction_changed_goes_by_its_checksum(
    tmp_path: Path,
    values: list[bytes | None],
    later: dict[bytes, bytes],
    is_changed: bool,
    restarts: bool,
) -> None:
    """After compaction, the log no longer has the records or the base timestamp that the client
    sent.
    """
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
    assert send_keyed(others) == ("repeated" if restarts and is_changed else OTHER)
