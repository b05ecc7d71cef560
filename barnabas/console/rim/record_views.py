"""The views of records: of one partition from an offset on, and of a whole topic by a search.

A search runs in the connection's thread, a part at a time (`search`). Only the positions of batches
are looked up in the loop's thread, one partition in each slice. A download is a search that
continues until it reaches a limit. Its lines are sent while the search runs, one line of JSON for
each record, in the form of `barnabas consume --json`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from barnabas.broker.observe import Look
from barnabas.broker.security.acls import Operation, ResourceType
from barnabas.console.decoding import Decode
from barnabas.console.filters import Condition, FilterError, contains_text, parse_filter
from barnabas.console.records import (
    MOST_RECORDS,
    json_line_value,
    read_records,
    take_records,
)
from barnabas.console.rim.source import BadRequest, Query, Source, Viewer, number
from barnabas.console.search import (
    MOST_PARTITIONS,
    Bounds,
    Found,
    Result,
    Search,
    found_value,
    parse_places,
    places_text,
)
from barnabas.console.spans import Window
from barnabas.json_text import json_line
from barnabas.protocol.errors import KafkaError
from barnabas.storage.log.log import Log
from barnabas.storage.log.time_lookup import offset_for_timestamp
from barnabas.storage.segments.time_search import Searched, SearchTakesLong

if TYPE_CHECKING:
    from barnabas.console.rim.decoder import Decoder, RequestDecoding

SEARCH_S = 0.4
"""The maximum time of one request's part of a search; its last batch may exceed it."""
WORK_S, LONGEST_PAUSE_S = 0.004, 0.05
FOUND_AT_ONCE = 50
MOST_DOWNLOADED = 100_000
DOWNLOADS_AT_ONCE = 2
LONGEST_TEXT = 1000
_LONGEST_DOWNLOAD_S = 600.0
REPLAY_S = 20.0


class Pace:
    """Limits the time of a part of a search (SEARCH_S), and pauses it.

    The search and the broker's loop share the interpreter. The pauses are as long as the work
    between them, so the search has the interpreter at most half of the time.
    """

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._until_s = self._began_s + SEARCH_S

    def __call__(self) -> bool:
        """Whether the time of the search is over. After each WORK_S of work, it sleeps first, so
        that the loop's thread gets the interpreter.
        """
        now_s = time.monotonic()
        if now_s - self._began_s >= WORK_S:
            time.sleep(min(now_s - self._began_s, LONGEST_PAUSE_S))
            self._began_s = now_s = time.monotonic()
        return now_s >= self._until_s


class RecordViews:
    """Handles requests for records."""

    def __init__(self, source: Source, decoder: Decoder | None = None) -> None:
        self._source, self._decoder = source, decoder
        self._downloads = threading.Semaphore(DOWNLOADS_AT_ONCE)

    def records(self, viewer: Viewer, query: Query) -> Any:
        """The records of one partition from an offset on."""
        topic, index = query.get("topic", ""), number(query, "partition", 0)
        offset = number(query, "offset", 0)
        count = min(number(query, "count", 20), MOST_RECORDS)
        self._source.require(viewer, Operation.READ, ResourceType.TOPIC, topic)
        log = self._source.log(topic, index)

        def take() -> Look[Any]:
            yield
            return take_records(log, offset)

        return read_records(self._source.run(take()), count, self._decoding())

    def search(self, viewer: Viewer, query: Query) -> Any:
        """The next records of a topic that satisfy the query, the newest first.

        `cursor` continues where an earlier response ended. `after` has the `ends` of an earlier
        response, and requests the records that were appended since.
        """
        topic = query.get("topic", "")
        self._source.require(viewer, Operation.READ, ResourceType.TOPIC, topic)
        decode = self._decoding()
        search, ends = self._new_search(topic, query, decode)
        count = min(number(query, "count", FOUND_AT_ONCE), MOST_RECORDS)
        result = search.run(count, Pace())
        return {
            "topic": topic,
            "rows": _found_values(result.found, self._decoding()),
            "cursor": places_text(result.cursor) or None,
            "ends": places_text(ends),
            "scanned": result.scanned,
            "problems": list(result.problems),
        }

    def _decoding(self) -> RequestDecoding | None:
        """The decoding for one request; None if there is no schema registry."""
        return None if self._decoder is None else self._decoder.of_request()

    def _new_search(
        self, topic: str, query: Query, decode: RequestDecoding | None
    ) -> tuple[Search, dict[int, int]]:
        """The search that a query describes, and the end offset of each searched partition.
        `cursor` lowers the upper bounds and `after` raises the lower ones; see `search`.
        """
        condition = _condition(query)
        from_ms, to_ms = number(query, "from", -1), number(query, "to", -1)
        bounds = self._bounds(topic, from_ms, to_ms, _partitions(query))
        ends = {index: row.before for index, row in bounds.items()}
        cursor, after = _places(query, "cursor"), _places(query, "after")
        if cursor:
            bounds = {
                index: Bounds(row.from_offset, min(row.before, cursor[index]))
                for index, row in bounds.items()
                if index in cursor
            }
        if after:
            bounds = {
                index: Bounds(max(row.from_offset, after.get(index, 0)), row.before)
                for index, row in bounds.items()
            }
        is_spent = (lambda: False) if decode is None else (lambda: decode.is_over)
        take = self._take_of(topic)
        return Search(take, bounds, condition, max(from_ms, 0), decode, is_spent), ends

    def _take_of(
        self, topic: str
    ) -> Callable[[Sequence[tuple[int, int, int]]], Sequence[Window | None]]:
        """A function with which a search gets windows of the topic's logs. It is called in the
        connection's thread, and takes the windows in the loop's thread.
        """

        def take(places: Sequence[tuple[int, int, int]]) -> Look[list[Window | None]]:
            windows = []
            for index, before, entries in places:
                windows.append(self._source.window(topic, index, before, entries))
                yield
            return windows

        return lambda places: self._source.run(take(places))

    def _bounds(
        self, topic: str, from_ms: int, to_ms: int, wanted: frozenset[int]
    ) -> dict[int, Bounds]:
        """The offsets to be searched in each partition: those between two times, or all offsets."""
        state = self._source.state

        def take() -> Look[list[Log]]:
            yield
            return [log for log in state.logs_of(topic) if not wanted or log.partition in wanted]

        logs = self._source.run(take())
        if not logs:
            raise BadRequest(f"There is no topic {topic!r}, or no such partition of it.", 404)
        if len(logs) > MOST_PARTITIONS:
            raise BadRequest(
                f"Topic {topic!r} has {len(logs):,} partitions, and {MOST_PARTITIONS:,} are "
                "searched at most: name some, as `0,1,2`, in the field for partitions."
            )
        rows = {}
        for log in logs:
            end_offset = log.high_watermark
            first = log.log_start_offset if from_ms < 0 else self._at_time(log, from_ms)
            before = end_offset if to_ms < 0 else self._at_time(log, to_ms + 1)
            rows[log.partition] = Bounds(first, min(before, end_offset))
        return rows

    def _at_time(self, log: Log, timestamp: int) -> int:
        """The offset of the first record at or after a time, or the log's end.

        Called in the connection's thread, which also searches a batch if the search takes long, so
        that the loop's thread does not have to.
        """
        searched: Searched = {}

        def look_up() -> Look[int | SearchTakesLong]:
            yield
            try:
                found = offset_for_timestamp(log, timestamp, searched=searched)
            except SearchTakesLong as search:
                return search
            return log.high_watermark if found is None else found.offset

        while True:
            result = self._source.run(look_up())
            if isinstance(result, int):
                return result
            searched[result.name] = result.run()

    # --- download --------------------------------------------------------------------------------

    def download(self, viewer: Viewer, query: Query) -> Iterator[bytes]:
        """Lines of JSON for the records that a search finds, the newest first. Their number and the
        time are limited.

        With `decoded`, a key or value that a schema decodes is written as JSON; otherwise the lines
        have the bytes of the records.

        Raises: BadRequest, before the first line.
        """
        topic = query.get("topic", "")
        self._source.require(viewer, Operation.READ, ResourceType.TOPIC, topic)
        decode = self._decoding()
        search, _ = self._new_search(topic, query, decode)
        return self._lines(topic, search, dict(query), decode)

    def _lines(
        self, topic: str, search: Search, query: dict[str, str], decode: RequestDecoding | None
    ) -> Iterator[bytes]:
        """The lines of a download, in parts: after each part, a new search continues at the cursor
        of the previous one.
        """
        is_decoded = query.get("decoded") == "yes"
        left, end_s = MOST_DOWNLOADED, time.monotonic() + _LONGEST_DOWNLOAD_S
        while left > 0 and time.monotonic() < end_s:
            # Acquired for each part of the search and released in between, so that a slow client
            # does not delay others.
            with self._downloads:
                result = self._part(search, left)
            values = _line_values(topic, result.found, decode if is_decoded else None)
            lines = [json_line(value) for value in values]
            left -= len(lines)
            if lines:
                yield "\n".join(lines).encode() + b"\n"
            if not result.cursor:
                return
            query["cursor"] = places_text(result.cursor)
            decode = self._decoding()
            try:
                search, _ = self._new_search(topic, query, decode)
            except (BadRequest, KafkaError, OSError):  # the topic has been deleted since
                return

    def all_found(self, viewer: Viewer, query: Query, most: int) -> tuple[list[Found], bool]:
        """The records that a search finds, the newest first, and whether these are all.

        Some are missing if the search finds more than `most`, or takes longer than REPLAY_S.
        """
        topic, asked = query.get("topic", ""), dict(query)
        search, _ = self._new_search(topic, asked, self._decoding())
        found: list[Found] = []
        end_s = time.monotonic() + REPLAY_S
        while True:
            result = self._part(search, most + 1 - len(found))
            found += result.found
            if not result.cursor:
                return found[:most], len(found) <= most
            if len(found) > most or time.monotonic() >= end_s:
                return found[:most], False
            asked["cursor"] = places_text(result.cursor)
            search, _ = self._new_search(topic, asked, self._decoding())

    def _part(self, search: Search, left: int) -> Result:
        return search.run(min(left, 1000), Pace())


def _found_values(found: Sequence[Found], decode: Decode | None) -> list[dict[str, Any]]:
    """The found records for JSON, with decoded keys and values if there is a schema registry."""
    if decode is None:
        return [found_value(row) for row in found]
    values = decode([row.record for row in found])
    return [found_value(row, one) for row, one in zip(found, values, strict=True)]


def _line_values(topic: str, found: Sequence[Found], decode: Decode | None) -> list[dict[str, Any]]:
    """Found records in the form of `barnabas consume --json`."""
    if decode is None:
        return [json_line_value(topic, row.partition, row.record) for row in found]
    values = decode([row.record for row in found])
    return [
        json_line_value(topic, row.partition, row.record, one)
        for row, one in zip(found, values, strict=True)
    ]


def _condition(query: Query) -> Condition | None:
    """The condition that the query's text and filter describe; None if it has neither. Raises:
    BadRequest.
    """
    text, filter_text = query.get("text", ""), query.get("filter", "").strip()
    conditions = []
    if text:
        conditions.append(contains_text(text[:LONGEST_TEXT]))
    if filter_text:
        try:
            conditions.append(parse_filter(filter_text))
        except FilterError as error:
            raise BadRequest(f"The filter is wrong: {error}.", at=error.at) from error
    if not conditions:
        return None
    return lambda facts: all(condition(facts) for condition in conditions)


def _partitions(query: Query) -> frozenset[int]:
    """The partitions that the query names in the form 0,1,2. If it names none, the result is empty,
    which means all partitions.

    Raises: BadRequest.
    """
    text = query.get("partitions", "").replace(" ", "")
    numbers = text.split(",") if text else []
    if any(not (one.isascii() and one.isdigit() and len(one) <= 10) for one in numbers):
        raise BadRequest(f"Partitions are written as 0,1,2, not {text[:40]!r}.")
    return frozenset(map(int, numbers))


def _places(query: Query, name: str) -> dict[int, int]:
    """The offsets by partition in a field of the query. Raises: BadRequest."""
    try:
        return parse_places(query.get(name, ""))
    except ValueError as error:
        raise BadRequest(f"`{name}`: {error}.") from error
