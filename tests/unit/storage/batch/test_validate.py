"""The responses to invalid batches. The error codes and log start offsets are those of Apache Kafka
3.9 in the oracle's scenario broken_batches and similar ones.
"""

from __future__ import annotations

import gzip
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import cramjam
import pytest
from helpers.storage_logs import NOW_MS, SECOND_MS, batch, broken, fetched, new_log, values_of

from barnabas.protocol.compression import MOST_PARTS_AT_ONCE, Levels, compress
from barnabas.protocol.errors import Code
from barnabas.protocol.records import (
    computed_crc,
    read_header,
    records_of,
    set_crc,
    set_size_and_attributes,
)
from barnabas.storage.batch import validate
from barnabas.storage.batch.validate import (
    CODECS,
    AppendRefused,
    CheckBudget,
    Rules,
    TakesLongError,
    check_client_batch,
)
from barnabas.storage.log.time_lookup import offset_for_timestamp, offset_of_max_timestamp
from barnabas.storage.log_config import LogConfig

GOOD = batch([b"a", b"b"])


@pytest.mark.parametrize(
    ("sent", "code", "knows_log_start"),
    [
        pytest.param(broken(crc_xor=1), Code.CORRUPT_MESSAGE, False, id="wrong crc"),
        pytest.param(GOOD[:-3], Code.INVALID_RECORD, False, id="truncated"),
        pytest.param(bytearray(), Code.INVALID_RECORD, False, id="empty"),
        pytest.param(GOOD[:10], Code.INVALID_RECORD, False, id="ten bytes"),
        pytest.param(GOOD + GOOD, Code.INVALID_RECORD, False, id="two batches in one"),
        pytest.param(
            broken([b"a"], count=5), Code.INVALID_RECORD, True, id="says 5 records, has 1"
        ),
        pytest.param(
            broken([b"a"] * 3, count=1), Code.INVALID_RECORD, True, id="says 1 record, has 3"
        ),
        pytest.param(broken([], count=0), Code.INVALID_RECORD, True, id="no records"),
        pytest.param(broken(magic=3), Code.CORRUPT_MESSAGE, False, id="magic 3"),
        pytest.param(broken(magic=1), Code.INVALID_RECORD, False, id="magic 1 header"),
        pytest.param(
            broken(attributes=0x20, pid=1, seq=0),
            Code.INVALID_RECORD,
            True,
            id="a control batch from a client",
        ),
        pytest.param(
            broken(attributes=7), Code.UNKNOWN_SERVER_ERROR, True, id="unknown compression codec 7"
        ),
        pytest.param(
            broken(base_offset=1234), Code.INVALID_RECORD, True, id="a base offset other than 0"
        ),
        pytest.param(
            broken(pid=1, seq=-1), Code.INVALID_RECORD, True, id="a producer id without a sequence"
        ),
        pytest.param(
            broken(codec=1, body=b"nonsense"),
            Code.UNKNOWN_SERVER_ERROR,
            True,
            id="gzip that is none",
        ),
        pytest.param(
            broken(codec=2, body=b"nonsense"),
            Code.UNKNOWN_SERVER_ERROR,
            True,
            id="snappy that is none",
        ),
        pytest.param(
            broken(codec=3, body=b"nonsense"),
            Code.UNKNOWN_SERVER_ERROR,
            True,
            id="lz4 that is none",
        ),
        pytest.param(
            broken(codec=4, body=b"nonsense"),
            Code.UNKNOWN_SERVER_ERROR,
            True,
            id="zstd that is none",
        ),
        pytest.param(
            broken(codec=3, body=bytes(cramjam.lz4.compress(b"x" * 50))),
            Code.UNKNOWN_SERVER_ERROR,
            True,
            id="lz4 of dependent blocks",
        ),
        pytest.param(
            broken(codec=1, body=gzip.compress(b"\x7f\x7f")),
            Code.INVALID_RECORD,
            True,
            id="gzip of nonsense",
        ),
        pytest.param(
            broken([b"one"], codec=1, count=5),
            Code.INVALID_RECORD,
            True,
            id="compressed, says 5 records, has 1",
        ),
        pytest.param(
            broken([b"one"] * 3, codec=1, count=1),
            Code.INVALID_RECORD,
            True,
            id="compressed, says 1, has 3",
        ),
        pytest.param(
            # One record with a header. The name of the header has the length -1.
            broken(count=1, body=bytes.fromhex("1400000001027602010231")),
            Code.INVALID_RECORD,
            True,
            id="a header without a name",
        ),
    ],
)
def test_broken_batches_get_kafkas_answer(
    tmp_path: Path, sent: bytearray, code: Code, knows_log_start: bool
) -> None:
    _, log = new_log(tmp_path)
    with pytest.raises(AppendRefused) as refused:
        log.append(bytearray(sent), now_ms=NOW_MS)
    assert (refused.value.code, refused.value.knows_log_start) == (code, knows_log_start)
    assert log.log_end_offset == 0


def test_an_incomplete_second_batch_is_ignored(tmp_path: Path) -> None:
    _, log = new_log(tmp_path)
    log.append(bytearray(GOOD + GOOD[:-1]), now_ms=NOW_MS)
    assert values_of(log) == {0: b"a", 1: b"b"}
    assert log.segments.size_bytes == len(GOOD)


def test_a_changed_max_message_bytes_applies_at_once(tmp_path: Path) -> None:
    _, log = new_log(tmp_path)
    big = batch([b"x" * 2000])
    log.append(bytearray(big), now_ms=NOW_MS)
    log.config = type(log.config)(max_message_bytes=1000)
    with pytest.raises(AppendRefused) as refused:
        log.append(bytearray(big), now_ms=NOW_MS)
    assert (refused.value.code, refused.value.knows_log_start) == (Code.MESSAGE_TOO_LARGE, False)
    log.append(batch([b"x" * 500]), now_ms=NOW_MS)


@pytest.mark.parametrize("policies", [{"compact"}, {"compact", "delete"}])
def test_a_compacted_topic_refuses_records_without_a_key_and_names_them(
    tmp_path: Path, policies: set[str]
) -> None:
    _, log = new_log(tmp_path, cleanup_policy=frozenset(policies))
    with pytest.raises(AppendRefused) as refused:
        log.append(batch([b"v", b"w"], keys=[b"k", None]), now_ms=NOW_MS)
    assert (refused.value.code, refused.value.record_errors) == (Code.INVALID_RECORD, (1,))
    log.append(batch([b"v"], keys=[b"k"]), now_ms=NOW_MS)


@pytest.mark.parametrize("codec", [0, 1])
def test_the_refusal_names_each_record_with_a_timestamp_out_of_bounds(
    tmp_path: Path, codec: int
) -> None:
    hour = 3_600_000
    _, log = new_log(tmp_path, timestamp_before_max_ms=hour, timestamp_after_max_ms=hour)
    log.append(batch([b"a"], timestamp=NOW_MS), now_ms=NOW_MS)
    log.append(batch([b"a"], timestamp=-1), now_ms=NOW_MS)
    times = [NOW_MS, NOW_MS - 2 * hour, NOW_MS + 2 * hour]
    with pytest.raises(AppendRefused) as refused:
        log.append(batch([b"a", b"b", b"c"], times=times, codec=codec), now_ms=NOW_MS)
    assert (refused.value.code, refused.value.record_errors) == (Code.INVALID_TIMESTAMP, (1, 2))
    assert refused.value.knows_log_start


@pytest.mark.parametrize(
    ("bounds", "refused_ms", "taken_ms"),
    [
        ({"timestamp_before_max_ms": 1_000}, -1_001, (-1_000, 10**9)),
        ({"timestamp_after_max_ms": 1_000}, 1_001, (1_000, -(10**9))),
    ],
)
def test_each_timestamp_bound_applies_without_the_other(
    tmp_path: Path, bounds: dict[str, int], refused_ms: int, taken_ms: tuple[int, ...]
) -> None:
    _, log = new_log(tmp_path, **bounds)
    for since_now_ms in taken_ms:
        log.append(batch([b"a"], timestamp=NOW_MS + since_now_ms), now_ms=NOW_MS)
    with pytest.raises(AppendRefused, match="out of the topic's bounds") as refused:
        log.append(batch([b"a"], timestamp=NOW_MS + refused_ms), now_ms=NOW_MS)
    assert refused.value.code is Code.INVALID_TIMESTAMP


@pytest.mark.parametrize("bound", ["timestamp_before_max_ms", "timestamp_after_max_ms"])
def test_timestamp_bounds_do_not_apply_with_log_append_time(tmp_path: Path, bound: str) -> None:
    _, log = new_log(tmp_path, **{bound: 1}, timestamp_type_log_append=True)
    for since_now_ms in (-(10**9), 10**9):
        log.append(batch([b"x"], timestamp=NOW_MS + since_now_ms), now_ms=NOW_MS)
    _, log = new_log(tmp_path / "another", **{bound: 1}, timestamp_type_log_append=True)
    info = log.append(batch([b"a", b"b"]), now_ms=NOW_MS)
    assert info.log_append_time_ms == NOW_MS
    raw = fetched(log.read(0, max_bytes=1000, min_one_batch=True))
    assert [record.timestamp for record in records_of(raw)] == [NOW_MS, NOW_MS]
    assert read_header(raw).is_log_append_time
    assert offset_for_timestamp(log, NOW_MS) == (NOW_MS, 0, 0)


def test_a_clients_log_append_time_attribute_is_cleared(tmp_path: Path) -> None:
    _, log = new_log(tmp_path)
    info = log.append(broken([b"claims LogAppendTime"], attributes=8), now_ms=NOW_MS)
    raw = fetched(log.read(0, max_bytes=1000, min_one_batch=True))
    header = read_header(raw)
    assert info.log_append_time_ms == -1
    assert not header.is_log_append_time and header.max_timestamp == SECOND_MS
    assert computed_crc(raw) == header.crc


@pytest.mark.parametrize(
    ("name", "number"), [("uncompressed", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)]
)
def test_a_batch_is_stored_with_the_topics_codec(tmp_path: Path, name: str, number: int) -> None:
    _, log = new_log(tmp_path, compression_type=name)
    log.append(
        batch(
            [b"one", b"two"],
            keys=[b"k", None],
            times=[SECOND_MS, SECOND_MS + 5],
            pid=3,
            epoch=1,
            seq=0,
        ),
        now_ms=NOW_MS,
    )
    log.append(batch([b"one", b"two"], codec=1), now_ms=NOW_MS)
    for offset in (0, 2):
        raw = fetched(log.read(offset, max_bytes=1, min_one_batch=True))
        header = read_header(raw)
        assert header.codec == number
        assert [record.value for record in records_of(raw)] == [b"one", b"two"]
        assert computed_crc(raw) == header.crc
    first = records_of(fetched(log.read(0, max_bytes=1, min_one_batch=True)))
    assert [(record.key, record.timestamp) for record in first] == [
        (b"k", SECOND_MS),
        (None, SECOND_MS + 5),
    ]


@pytest.mark.parametrize(
    ("name", "quick", "thorough"),
    [
        ("gzip", Levels(gzip=1), Levels(gzip=9)),
        ("lz4", Levels(lz4=9), Levels(lz4=12)),
        ("zstd", Levels(zstd=-7), Levels(zstd=19)),
    ],
)
def test_the_topics_compression_level_is_used_if_the_batch_has_another_codec(
    tmp_path: Path, name: str, quick: Levels, thorough: Levels
) -> None:
    _, log = new_log(tmp_path, compression_type=name, compression_levels=quick)
    values = [
        b"%d of the same words in another order %d" % (number, number * 7919 % 500)
        for number in range(500)
    ]
    sizes = []
    for levels in (quick, thorough):
        log.config = replace(log.config, compression_levels=levels)
        offset = log.append(batch(values), now_ms=NOW_MS).first_offset
        raw = fetched(log.read(offset, max_bytes=1, min_one_batch=True))
        assert [record.value for record in records_of(raw)] == values
        assert computed_crc(raw) == read_header(raw).crc
        sizes.append(len(raw))
    assert sizes[1] < 0.95 * sizes[0]
    sent = batch(values, codec=CODECS[name])
    offset = log.append(bytearray(sent), now_ms=NOW_MS).first_offset
    assert fetched(log.read(offset, max_bytes=1, min_one_batch=True))[16:] == sent[16:], (
        "a batch that already has the topic's codec is stored unchanged"
    )


def test_a_batch_is_written_as_received(tmp_path: Path) -> None:
    _, log = new_log(tmp_path)
    for codec in (0, 1, 2, 3, 4):
        sent = batch([b"one", b"two"], codec=codec, headers=(("h", b"1"), ("", None)))
        offset = log.append(bytearray(sent), now_ms=NOW_MS).first_offset
        raw = fetched(log.read(offset, max_bytes=1, min_one_batch=True))
        # all fields except the base offset and the leader epoch are unchanged
        assert raw[16:] == bytes(sent[16:])
        assert raw[8:12] == bytes(sent[8:12])


def test_a_transactional_batch_without_a_producer_is_refused(tmp_path: Path) -> None:
    _, log = new_log(tmp_path)
    with pytest.raises(AppendRefused, match="transactional batch without a producer id"):
        log.append(broken(attributes=0x10), now_ms=NOW_MS)


def test_producer_id_0_is_valid(tmp_path: Path) -> None:
    """0 is the first id that a broker assigns."""
    _, log = new_log(tmp_path)
    with pytest.raises(AppendRefused, match="a producer id with the sequence -1"):
        log.append(broken(pid=0, seq=-1), now_ms=NOW_MS)
    log.append(batch([b"a"], pid=0, epoch=0, seq=0, transactional=True), now_ms=NOW_MS)
    assert log.log_end_offset == 1


def records(*encoded: str) -> bytes:
    """Encode records from hexadecimal digits. The length of each record, which must be below 64, is
    added.
    """
    return b"".join(bytes((len(text) // 2 * 2,)) + bytes.fromhex(text) for text in encoded)


FIRST, SECOND = "00000001026100", "00000201026100"


@pytest.mark.parametrize(
    ("body", "why", "index"),
    [
        pytest.param(
            records(FIRST, "000080897a01026100"),
            "record 1 has the offset delta 1000000",
            (1,),
            id="a million is left out",
        ),
        pytest.param(
            records(SECOND, FIRST), "record 0 has the offset delta 1", (0,), id="not in order"
        ),
        pytest.param(
            records(FIRST, FIRST), "record 1 has the offset delta 0", (1,), id="the same twice"
        ),
        pytest.param(
            records("00000001006100", SECOND),
            "record 0 has -49 headers",
            (),
            id="a value that is too short",
        ),
        pytest.param(
            records("0000000102610000", SECOND),
            "record 0 is not as long",
            (),
            id="a byte more in a record",
        ),
        pytest.param(
            records("00000003026100", SECOND),
            "record 0 has a field of the size -2",
            (),
            id="a key of -2 bytes",
        ),
        pytest.param(
            records(FIRST, "0000020102610a"),
            "the batch does not hold",
            (),
            id="headers that are not there",
        ),
        pytest.param(
            records(FIRST, "000002017e6100"),
            "the batch does not hold",
            (),
            id="a value that goes on after the end",
        ),
        pytest.param(
            records("40" + FIRST[2:], SECOND),
            "record 0 has the unknown attributes 0x40",
            (),
            id="attributes",
        ),
        pytest.param(
            records(FIRST, SECOND) + b"\0", "bytes are left over", (), id="a byte too many"
        ),
        pytest.param(
            records("00ffffffffffffffffffff01000102610000", SECOND),
            "longer than ten bytes",
            (),
            id="a long varint",
        ),
    ],
)
@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_batches_with_malformed_records_are_refused(
    tmp_path: Path, body: bytes, why: str, index: tuple[int, ...], codec: int
) -> None:
    _, log = new_log(tmp_path)
    with pytest.raises(AppendRefused, match=why) as refused:
        log.append(broken([b"", b""], codec=codec, body=compress(codec, body)), now_ms=NOW_MS)
    assert (refused.value.code, refused.value.record_errors) == (Code.INVALID_RECORD, index)
    assert log.log_end_offset == 0


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("claimed", [0, -1, SECOND_MS - 1, SECOND_MS + 1, 2**63 - 1])
def test_max_timestamp_is_computed_from_the_records(
    tmp_path: Path, codec: int, claimed: int
) -> None:
    """Retention uses this time. If a client could claim the time 0, its records would be deleted
    right after their arrival.
    """
    _, log = new_log(tmp_path, retention_ms=1000)
    sent = batch([b"a", b"b"], times=[SECOND_MS, SECOND_MS - 5], codec=codec)
    sent[35:43] = claimed.to_bytes(8, "big", signed=True)
    sent[17:21] = computed_crc(sent).to_bytes(4, "big")
    log.append(sent, now_ms=SECOND_MS)
    raw = fetched(log.read(0, max_bytes=1000, min_one_batch=True))
    assert read_header(raw).max_timestamp == SECOND_MS
    assert computed_crc(raw) == read_header(raw).crc
    assert log.segments.active.indexes.max_timestamp == SECOND_MS
    assert offset_for_timestamp(log, SECOND_MS) == (SECOND_MS, 0, 0)
    assert offset_of_max_timestamp(log) == (SECOND_MS, 0, 0)
    assert log.delete_old_segments(SECOND_MS + 500) == 0


def test_max_timestamp_is_minus_1_if_no_record_has_a_time(tmp_path: Path) -> None:
    _, log = new_log(tmp_path)
    log.append(batch([b"a", b"b"], times=[-1, -7]), now_ms=NOW_MS)
    assert read_header(fetched(log.read(0, max_bytes=1000, min_one_batch=True))).max_timestamp == -1


def test_a_timestamp_over_64_bits_is_refused(tmp_path: Path) -> None:
    _, log = new_log(tmp_path)
    sent = batch([b"a", b"b"], times=[SECOND_MS, SECOND_MS + 10])
    sent[27:35] = (2**63 - 5).to_bytes(8, "big")
    sent[17:21] = computed_crc(sent).to_bytes(4, "big")
    with pytest.raises(AppendRefused, match="more than 64 bits"):
        log.append(sent, now_ms=NOW_MS)


@pytest.mark.parametrize("claimed", [0x40, 0x80, 0x4000, -0x8000])
def test_attributes_that_a_client_may_not_set_are_cleared(tmp_path: Path, claimed: int) -> None:
    """If the client could set a delete horizon, a tombstone would be removed at once."""
    _, log = new_log(tmp_path)
    log.append(broken([b"a"], attributes=claimed), now_ms=NOW_MS)
    raw = fetched(log.read(0, max_bytes=1000, min_one_batch=True))
    assert read_header(raw).attributes == 0
    assert computed_crc(raw) == read_header(raw).crc


LIMIT = 4 << 20
ZEROS = bytes(LIMIT)


def bomb(codec: int, size: int) -> bytearray:
    """A batch of one record, which consists of `size` zeros."""
    return batch([bytes(size)], codec=codec)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_batch_may_not_decompress_to_more_than_the_limit(tmp_path: Path, codec: int) -> None:
    _, log = new_log(tmp_path, max_decompressed_bytes=LIMIT)
    log.append(bomb(codec, LIMIT - 100), now_ms=NOW_MS)
    with pytest.raises(AppendRefused, match=f"more than {LIMIT} bytes") as refused:
        log.append(bomb(codec, LIMIT), now_ms=NOW_MS)
    assert (refused.value.code, refused.value.knows_log_start) == (Code.MESSAGE_TOO_LARGE, True)
    assert log.log_end_offset == 1


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_long_check_is_deferred_and_its_result_used_for_the_append(
    tmp_path: Path, codec: int
) -> None:
    """With `at_once`, the check of a long batch raises TakesLongError and leaves the batch
    unchanged. The batch is then checked in a thread, and appended with the result of this check.
    """
    _, log = new_log(tmp_path, timestamp_type_log_append=True)
    sent = bomb(codec, LIMIT)
    kept = bytearray(sent)
    with pytest.raises(TakesLongError):
        log.append(sent, now_ms=NOW_MS, at_once=CheckBudget())
    assert sent == kept and log.log_end_offset == 0
    checked = check_client_batch(memoryview(sent), log.rules, NOW_MS)
    info = log.append(sent, now_ms=NOW_MS + 700, checked=checked)
    assert (info.first_offset, info.log_append_time_ms) == (0, NOW_MS + 700)
    raw = fetched(log.read(0, max_bytes=1 << 20, min_one_batch=True))
    assert (read_header(raw).max_timestamp, computed_crc(raw)) == (
        NOW_MS + 700,
        read_header(raw).crc,
    )
    log.append(bomb(codec, 200_000), now_ms=NOW_MS, at_once=CheckBudget())


def is_deferred(sent: bytearray, **settings: Any) -> bool:
    """Whether the check exceeds the budget of the event loop and raises TakesLongError. Without a
    budget, the check must succeed.
    """
    rules = Rules(LogConfig(**settings))
    kept = bytes(sent)
    try:
        check_client_batch(memoryview(sent), rules, NOW_MS, at_once=CheckBudget())
    except TakesLongError:
        assert sent == kept, "nothing was changed"
        check_client_batch(memoryview(sent), rules, NOW_MS)
        return True
    check_client_batch(memoryview(bytearray(kept)), rules, NOW_MS)
    return False


@pytest.mark.parametrize("codec", [0, 1])
def test_the_check_of_many_records_is_deferred(codec: int) -> None:
    most = validate._MOST_RECORDS_AT_ONCE
    assert not is_deferred(batch([b""] * most, codec=codec))
    assert is_deferred(batch([b""] * (most + 1), codec=codec))


def test_the_check_of_many_compressed_parts_is_deferred() -> None:
    """Even empty parts count, since each gzip member and each snappy block takes some
    microseconds.
    """
    one = batch([b"a"], codec=1)
    member = gzip.compress(b"", mtime=0)

    def with_members(count: int) -> bytearray:
        changed = bytearray(one + member * count)
        set_size_and_attributes(changed, 1)
        set_crc(changed)
        return changed

    assert not is_deferred(with_members(MOST_PARTS_AT_ONCE - 1))
    assert is_deferred(with_members(MOST_PARTS_AT_ONCE))


@pytest.mark.parametrize("codec", [0, 1])
def test_the_records_of_all_batches_of_a_request_use_one_check_budget(codec: int) -> None:
    rules = Rules(LogConfig())
    budget = CheckBudget()
    for _ in range(2):
        many = batch([b""] * validate._MOST_RECORDS_AT_ONCE, codec=codec)
        check_client_batch(memoryview(many), rules, NOW_MS, at_once=budget)
    with pytest.raises(TakesLongError):
        check_client_batch(memoryview(batch([b"a"])), rules, NOW_MS, at_once=budget)


def test_the_decompressed_bytes_of_all_batches_of_a_request_use_one_check_budget() -> None:
    rules = Rules(LogConfig())
    budget = CheckBudget()
    sent = bomb(4, validate._MOST_BYTES_AT_ONCE - 100)
    for _ in range(8):
        check_client_batch(memoryview(bytearray(sent)), rules, NOW_MS, at_once=budget)
    with pytest.raises(TakesLongError):
        check_client_batch(memoryview(bytearray(sent)), rules, NOW_MS, at_once=budget)
    check_client_batch(memoryview(batch([b"a"])), rules, NOW_MS, at_once=budget)


@pytest.mark.parametrize(
    "settings", [{"cleanup_policy": frozenset({"compact"})}, {"timestamp_before_max_ms": 0}]
)
def test_a_refusal_names_at_most_a_thousand_records(settings: dict[str, Any]) -> None:
    rules = Rules(LogConfig(**settings))
    with pytest.raises(AppendRefused) as refused:
        check_client_batch(memoryview(batch([b""] * 1500, timestamp=NOW_MS - 10)), rules, NOW_MS)
    assert refused.value.record_errors == tuple(range(1000))


def test_the_check_is_deferred_if_much_has_to_be_compressed() -> None:
    most = validate._MOST_COMPRESSED_AT_ONCE
    overhead = len(batch([bytes(most)])) - most
    for codec in (0, 2):
        assert not is_deferred(
            batch([bytes(most - overhead)], codec=codec), compression_type="gzip"
        )
        assert is_deferred(batch([bytes(most + 1)], codec=codec), compression_type="gzip")
    assert not is_deferred(batch([bytes(most + 1)]), compression_type="producer")
    assert not is_deferred(batch([bytes(most + 1)], codec=1), compression_type="gzip")


@pytest.mark.parametrize(
    ("count", "last_delta"), [(0, -1), (-1, -2), (2, 2), (2, 0), (1, -1), (0, 0)]
)
def test_a_record_count_that_does_not_match_the_last_offset_is_refused(
    count: int, last_delta: int
) -> None:
    sent = broken([b"x", b"y"], count=count, last_offset_delta=last_delta)
    with pytest.raises(AppendRefused, match=f"{count} records, but .* {last_delta}$") as refused:
        check_client_batch(memoryview(sent), Rules(LogConfig()), NOW_MS)
    assert refused.value.code == Code.INVALID_RECORD


# --- bounds, to the last byte --------------------------------------------------------------------


def checked(sent: bytearray, **settings: Any) -> Any:
    """The result of the check with these settings of the topic."""
    return check_client_batch(memoryview(sent), Rules(LogConfig(**settings)), NOW_MS)


@pytest.mark.parametrize("magic", [0, 1])
def test_the_refusal_of_an_older_magic_names_the_magic(magic: int) -> None:
    with pytest.raises(AppendRefused, match=f"a batch of magic {magic}$") as refused:
        checked(broken(magic=magic))
    assert refused.value.code == Code.INVALID_RECORD


@pytest.mark.parametrize("said", [-1, 0, 13])
@pytest.mark.parametrize("size", [12, 16, 17, 60, 61, 100])
def test_a_batch_length_below_the_minimum_is_refused(said: int, size: int) -> None:
    sent = bytearray(8) + said.to_bytes(4, "big", signed=True) + bytes(size - 12)
    with pytest.raises(AppendRefused, match=f"a batch of {said} bytes") as refused:
        checked(sent)
    assert (refused.value.code, refused.value.knows_log_start) == (Code.CORRUPT_MESSAGE, False)


@pytest.mark.parametrize("size", [0, 11, 12, 16, 17, 25])
def test_data_shorter_than_their_batch_length_are_refused(size: int) -> None:
    sent = bytearray(8) + (14).to_bytes(4, "big") + b"\0\0\0\0\2" + bytes(20)
    with pytest.raises(AppendRefused, match="no whole batch") as refused:
        checked(sent[:size])
    assert refused.value.code == Code.INVALID_RECORD


@pytest.mark.parametrize("size", [26, 60])
def test_a_batch_shorter_than_its_header_is_refused(size: int) -> None:
    sent = bytearray(8) + (size - 12).to_bytes(4, "big") + b"\0\0\0\0\2" + bytes(size - 17)
    with pytest.raises(AppendRefused, match=f"a batch of {size} bytes") as refused:
        checked(sent)
    assert refused.value.code == Code.CORRUPT_MESSAGE


def test_a_batch_of_exactly_max_message_bytes_is_accepted() -> None:
    sent = batch([b"x" * 500])
    assert checked(bytearray(sent), max_message_bytes=len(sent)).size == len(sent)
    behind = bytearray(sent + b"\0" * 7)  # bytes that follow the batch are ignored
    assert checked(behind, max_message_bytes=len(sent)).size == len(sent)
    with pytest.raises(AppendRefused, match=f"{len(sent)} bytes, over {len(sent) - 1}"):
        checked(bytearray(sent), max_message_bytes=len(sent) - 1)


def test_max_message_bytes_applies_to_the_size_in_the_topics_codec() -> None:
    sent = batch([bytes(random.Random(3).randbytes(500))])
    size = checked(bytearray(sent), compression_type="gzip").size
    assert size > len(sent), "nothing is won with bytes that are like none"
    assert checked(bytearray(sent), compression_type="gzip", max_message_bytes=size).size == size
    with pytest.raises(AppendRefused, match="in the topic's codec") as refused:
        checked(bytearray(sent), compression_type="gzip", max_message_bytes=size - 1)
    assert (refused.value.code, refused.value.knows_log_start) == (Code.MESSAGE_TOO_LARGE, False)


@pytest.mark.parametrize("times", [[-2], [-(2**62)], [-5, -3]])
def test_a_time_before_none_counts_as_none(times: list[int]) -> None:
    sent = batch([b"v"] * len(times), times=times)
    assert checked(sent).max_timestamp == -1


def test_the_largest_64_bit_timestamp_is_accepted_and_a_larger_one_refused() -> None:
    sent = batch([b"v", b"w"], times=[2**63 - 2, 2**63 - 1])
    assert checked(bytearray(sent)).max_timestamp == 2**63 - 1
    sent[27:35] = (2**63 - 1).to_bytes(8, "big")  # the base timestamp
    set_crc(memoryview(sent))
    with pytest.raises(AppendRefused, match="more than 64 bits"):
        checked(sent)


@pytest.mark.parametrize("delta_ms", [-2000, 2000])
def test_timestamp_bounds_use_the_base_timestamp_plus_the_records_delta(delta_ms: int) -> None:
    sent = batch([b"v", b"w"], times=[NOW_MS, NOW_MS + delta_ms])
    bound = "timestamp_before_max_ms" if delta_ms < 0 else "timestamp_after_max_ms"
    other = "timestamp_after_max_ms" if delta_ms < 0 else "timestamp_before_max_ms"
    checked(bytearray(sent), **{other: 1000})
    with pytest.raises(AppendRefused) as refused:
        checked(sent, **{bound: 1000})
    assert refused.value.record_errors == (1,)


def test_an_empty_key_is_a_key() -> None:
    assert checked(batch([b"v"], keys=[b""]), cleanup_policy=frozenset({"compact"})).size


@pytest.mark.parametrize("most", [1000, 1 << 20])
def test_a_too_large_batch_is_refused_at_once_if_the_limit_is_low(most: int) -> None:
    """A low limit on decompressed bytes is reached within the work that is done at once. With a
    higher limit, the check is deferred.
    """
    rules = Rules(LogConfig(max_decompressed_bytes=most))
    with pytest.raises(AppendRefused, match=f"more than {most} bytes"):
        check_client_batch(memoryview(bomb(1, 2 * most)), rules, NOW_MS, at_once=CheckBudget())
    rules = Rules(LogConfig(max_decompressed_bytes=(1 << 20) + 1))
    with pytest.raises(TakesLongError):
        check_client_batch(memoryview(bomb(1, 2 << 20)), rules, NOW_MS, at_once=CheckBudget())
