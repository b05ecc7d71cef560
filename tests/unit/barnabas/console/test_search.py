"""The search in a topic's records: the order of matches, a request's limits, and the position from
which the next request continues.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from helpers.storage_logs import NOW_MS, SECOND_MS, append_unchecked, batch, broken, open_manager

from barnabas.console import search
from barnabas.console.filters import parse_filter
from barnabas.console.search import (
    Bounds,
    Result,
    Search,
    found_value,
    parse_places,
    places_text,
)
from barnabas.console.spans import Window, take_window
from barnabas.storage.log.broker_appends import append_marker
from barnabas.storage.log_config import LogConfig


class Topic:
    """A topic with three partitions. `windows` is the number of windows (parts of a log) that
    searches have requested.
    """

    def __init__(self, directory: Path) -> None:
        """Create a topic of three partitions with small segments and a dense index, so that few
        records fill several segments.
        """
        config = LogConfig(segment_bytes=3000, index_interval_bytes=200)
        self.manager = open_manager(directory, config)
        self.logs = [
            self.manager.create("t", index, uuid.uuid4(), config, NOW_MS) for index in range(3)
        ]
        for log in self.logs:
            log.files.make()
        self.windows = 0

    def append(self, index: int, *times: int, **of_batch: object) -> None:
        values = [b'{"at": %d}' % at for at in times]
        all_times = [SECOND_MS + at for at in times]
        self.logs[index].append(batch(values, times=all_times, **of_batch), now_ms=NOW_MS)  # type: ignore[arg-type]

    def take(self, places: Sequence[tuple[int, int, int]]) -> list[Window | None]:
        self.windows += len(places)
        return [take_window(self.logs[index], *place) for index, *place in places]

    def bounds(self) -> dict[int, Bounds]:
        return {
            log.partition: Bounds(log.log_start_offset, log.high_watermark) for log in self.logs
        }

    def search(self, text: str = "", cursor: str | None = None, from_ms: int = 0) -> Search:
        bounds = self.bounds()
        if cursor is not None:
            places = parse_places(cursor)
            bounds = {at: Bounds(bounds[at].from_offset, before) for at, before in places.items()}
        return Search(self.take, bounds, parse_filter(text) if text else None, from_ms)


@pytest.fixture
def topic(tmp_path: Path) -> Iterator[Topic]:
    topic = Topic(tmp_path)
    yield topic
    topic.manager.close(NOW_MS)


def never() -> bool:
    return False


def times(result: Result) -> list[int]:
    return [row.record.timestamp - SECOND_MS for row in result.found]


def all_of(topic: Topic, text: str, count: int, is_over: object = never) -> list[tuple[int, int]]:
    """Send as many requests as the search needs. Gives: the partition and offset of each match."""
    rows: list[tuple[int, int]] = []
    cursor: str | None = None
    for _ in range(10_000):
        result = topic.search(text, cursor).run(count, is_over)  # type: ignore[arg-type]
        assert len(result.found) <= count
        rows += [(row.partition, row.record.offset) for row in result.found]
        cursor = places_text(result.cursor)
        if not cursor:
            return rows
    raise AssertionError("the search does not end")


def test_cursors_are_formatted_and_parsed() -> None:
    assert places_text({2: 7, 0: 5}) == "0:5,2:7"
    assert parse_places("0:5,2:7") == {0: 5, 2: 7} and parse_places("") == {}
    for wrong in ("0", "0:", "a:1", "0:-1", "0:1,", f"0:{'9' * 20}"):
        with pytest.raises(ValueError, match="is not PARTITION:OFFSET"):
            parse_places(wrong)


def test_partitions_are_merged_the_newest_record_first(topic: Topic) -> None:
    topic.append(0, 1, 4, 7)
    topic.append(1, 2, 5)
    topic.append(1, 8)
    topic.append(2, 3, 6, 9)
    result = topic.search().run(100, never)
    assert times(result) == [9, 8, 7, 6, 5, 4, 3, 2, 1]
    assert (result.cursor, result.scanned, result.problems) == ({}, 9, [])
    first = topic.search().run(4, never)
    assert times(first) == [9, 8, 7, 6]
    assert first.cursor == {0: 2, 1: 2, 2: 1}
    rest = topic.search(cursor=places_text(first.cursor)).run(100, never)
    assert times(rest) == [5, 4, 3, 2, 1] and not rest.cursor


def test_an_empty_topic_is_searched_at_once(topic: Topic) -> None:
    assert topic.search().run(10, never) == Result([], {}, 0, [])
    assert topic.windows == 0


def test_a_filter_selects_records_and_the_scanned_count_includes_the_others(topic: Topic) -> None:
    topic.append(0, *range(0, 30, 3))
    topic.append(1, *range(1, 30, 3))
    result = topic.search("value.at >= 10 and value.at < 14 and partition = 1").run(100, never)
    assert times(result) == [13, 10] and result.scanned == 20


@pytest.mark.parametrize("seed", range(5))
def test_every_record_is_found_once_however_short_the_requests(topic: Topic, seed: int) -> None:
    """There are batches of all sizes in many segments, and each request ends after one step or
    after a few matches.
    """
    chance = random.Random(seed)
    expected = set()
    at = 0
    for _ in range(200):
        index, count = chance.randrange(3), chance.randrange(1, 6)
        first = topic.logs[index].log_end_offset
        topic.append(index, *range(at, at + count))
        expected |= {(index, first + number) for number in range(count)}
        at += count
    for log in topic.logs:
        log.delete_records_before(chance.randrange(30))
    expected = {
        (index, offset)
        for index, offset in expected
        if offset >= topic.logs[index].log_start_offset
    }
    assert len(topic.logs[0].segments) > 1
    for count, is_over in ((100, never), (1, never), (7, lambda: True)):
        rows = all_of(topic, "", count, is_over)
        assert len(rows) == len(set(rows)) and set(rows) == expected
        for index in range(3):
            offsets = [offset for partition, offset in rows if partition == index]
            assert offsets == sorted(offsets, reverse=True)


def test_a_request_scans_a_bounded_number_of_records_and_the_next_one_continues(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_SCANNED", 10)
    topic.append(0, *range(25))
    result = topic.search("value.at = 3").run(10, never)
    assert (times(result), result.scanned, result.cursor) == ([], 10, {0: 15})
    assert all_of(topic, "value.at = 3", 10) == [(0, 3)]


def test_batches_older_than_the_wanted_time_are_not_decoded(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(50):
        topic.append(0, at)
    opened: list[int] = []
    real = search._opened

    def counted(file: object, position: int, header: object) -> object:
        opened.append(position)
        return real(file, position, header)  # type: ignore[arg-type]

    monkeypatch.setattr(search, "_opened", counted)
    result = topic.search(from_ms=SECOND_MS + 45).run(100, never)
    assert times(result) == [49, 48, 47, 46, 45] and len(opened) == 5 and not result.cursor


def test_each_found_record_has_its_transaction_state(topic: Topic) -> None:
    log = topic.logs[0]
    topic.append(0, 1, pid=1, epoch=0, seq=0, transactional=True)
    topic.append(0, 2, pid=2, epoch=0, seq=0, transactional=True)
    topic.append(0, 3)
    for producer, commit in ((1, False), (2, True)):
        append_marker(
            log, producer_id=producer, producer_epoch=0, coordinator_epoch=0, commit=commit,
            now_ms=NOW_MS,
        )  # fmt: skip
    topic.append(0, 4, pid=1, epoch=0, seq=1, transactional=True)
    rows = {row.record.offset: row.state for row in topic.search().run(10, never).found}
    assert rows == {0: "aborted", 1: "committed", 2: "plain", 5: "open"}, "without the markers"
    (value,) = map(found_value, topic.search('state = "open"').run(10, never).found)
    assert (value["partition"], value["offset"], value["state"]) == (0, 5, "open")
    assert (value["transactional"], value["producer_id"]) == (True, 1)
    assert [row.state for row in topic.search(cursor="0:5").run(2, never).found] == [
        "plain",
        "committed",
    ], "the two newest records before offset 5"


def test_a_damaged_and_a_too_large_batch_are_reported_and_skipped(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.append(0, 1)
    append_unchecked(topic.logs[0], broken(crc_xor=1))
    topic.append(0, 2)
    topic.append(0, *range(3, 10))
    monkeypatch.setattr(search, "MOST_RECORDS_OF_BATCH", 6)
    result = topic.search().run(10, never)
    assert times(result) == [2, 1] and not result.cursor
    large, damaged = result.problems
    assert "the batch at offset 3 cannot be read" in large and "7 records" in large
    assert "the batch at offset 1" in damaged and "CRC" in damaged


def test_a_search_of_deleted_partitions_ends_without_results(topic: Topic) -> None:
    topic.append(0, 1)
    gone = Search(lambda places: [None for _ in places], topic.bounds())
    assert gone.run(10, never) == Result([], {}, 0, [])
