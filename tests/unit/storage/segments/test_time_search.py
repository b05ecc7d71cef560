"""The search for a time within one batch that Apache Kafka wrote, and how it is deferred."""

from __future__ import annotations

import gzip
from contextlib import nullcontext

import pytest
from helpers.storage_kafka_log import KAFKA
from helpers.storage_logs import batch

from barnabas.protocol.compression import MOST_PARTS_AT_ONCE, Codec, TooLargeError
from barnabas.protocol.records import HEADER_SIZE, NewRecord, encode_batch, read_header
from barnabas.storage.segments import time_search
from barnabas.storage.segments.time_search import BatchSearch, Searched, SearchTakesLong

BATCH = (KAFKA / "plain-0" / "00000000000000000000.log").read_bytes()[:812]
HEADER = read_header(BATCH)
STEP_MS = 26  # the time between two records, according to expected.json


def search(least_time: int, least_delta: int = 0, most_bytes: int = 1 << 20) -> BatchSearch:
    return BatchSearch(
        0, HEADER.crc, least_time, least_delta, HEADER.codec, 10, most_bytes,
        lambda: BATCH[HEADER_SIZE:],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("least_time", "least_delta", "found"),
    [(0, 0, (0, 0)), (1, 0, (26, 1)), (3 * STEP_MS, 0, (78, 3)), (0, 9, (234, 9)), (235, 0, None)],
)
def test_time_and_offset_of_the_first(
    least_time: int, least_delta: int, found: tuple[int, int] | None
) -> None:
    assert search(least_time, least_delta).result(None) == found


def test_a_result_is_kept_by_the_batch_and_what_was_looked_for() -> None:
    searched: Searched = {}
    assert search(1).result(searched) == (26, 1)
    searched[search(1).name] = (0, 0)
    assert search(1).result(searched) == (0, 0) and search(2).result(searched) == (26, 1)


def test_a_short_one_is_done_at_once_and_known_from_then_on() -> None:
    searched: Searched = {}
    assert search(1).result(searched) == (26, 1)

    def read_again() -> bytes:
        raise AssertionError("it is known")

    assert search(1)._replace(read=read_again).result(searched) == (26, 1)


def compressed(size: int, most_bytes: int) -> BatchSearch:
    """A search in a batch with one record that decompresses to about `size` bytes."""
    data = batch([bytes(size)], codec=1)
    header = read_header(data)
    return BatchSearch(
        0, header.crc, 0, 0, header.codec, 1, most_bytes, lambda: bytes(data[HEADER_SIZE:])
    )


@pytest.mark.parametrize("records", [9, 10, 11])
def test_more_records_than_are_searched_at_once_are_put_off(
    records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_search, "MOST_RECORDS_AT_ONCE", records)
    with pytest.raises(SearchTakesLong) if records < 10 else nullcontext():
        assert search(1).result({}) == (26, 1)


@pytest.mark.parametrize(
    ("size", "most_bytes", "outcome"),
    [
        (900, 5_000, "found"),
        (2_000, 5_000, "put off"),
        (6_000, 5_000, "put off"),  # only the deferred search finds that the batch is too large
        # the limit for a batch is not higher than the amount of work that is done at once
        (2_000, 1_000, "too large"),
        (900, 600, "too large"),
        (900, 1_000, "found"),
    ],
)
def test_more_bytes_than_are_opened_at_once_are_put_off(
    size: int, most_bytes: int, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_search, "MOST_BYTES_AT_ONCE", 1_000)
    searched: Searched = {}
    if outcome == "put off":
        with pytest.raises(SearchTakesLong) as long:
            compressed(size, most_bytes).result(searched)
        assert not searched
        result = long.value.run()
    else:
        result = compressed(size, most_bytes).result(searched)
    if size > most_bytes:
        assert isinstance(result, TooLargeError)
    else:
        assert result == (0, 0)


def test_a_long_one_is_put_off_and_run_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_search, "MOST_RECORDS_AT_ONCE", 9)
    with pytest.raises(SearchTakesLong) as long:
        search(1).result({})
    assert long.value.data_bytes == 812 - HEADER_SIZE and long.value.run() == (26, 1)
    assert search(1).result(None) == (26, 1), "it cannot be deferred"


def test_records_that_cannot_be_read_are_an_error_and_not_a_failure() -> None:
    broken = search(1)._replace(read=lambda: b"\xff")
    assert isinstance(broken.result(None), Exception)


def test_more_parts_than_are_opened_at_once_are_put_off() -> None:
    empty = gzip.compress(b"", mtime=0)
    body = bytes(encode_batch([NewRecord(None, b"a", 0)]))[HEADER_SIZE:]
    data = gzip.compress(body, mtime=0) + empty * MOST_PARTS_AT_ONCE
    one = BatchSearch(0, 1, 0, 0, Codec.GZIP, 1, 1000, lambda: data)
    with pytest.raises(SearchTakesLong) as long:
        one.result({})
    assert long.value.run() == one.result(None) == (0, 0)
