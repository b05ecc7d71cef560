"""The search for a timestamp within one batch, which runs in a thread if it takes long.

A look-up by time opens one batch, rarely several. If that takes long, the look-up raises
`SearchTakesLong`. The caller runs the search in a thread, stores its result in a `Searched`, and
repeats the look-up with it. The response therefore describes the log at the time of the repeated
look-up, even if records were appended or deleted meanwhile. This is safe because a result is
identified by the batch's offset and checksum and by the searched values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from barnabas.protocol.compression import (
    MOST_PARTS_AT_ONCE,
    TooLargeError,
    TooManyPartsError,
    decompress_to_memory,
)
from barnabas.protocol.errors import KafkaError, detached
from barnabas.storage.batch.record_walk import first_at_time

MOST_RECORDS_AT_ONCE = 10_000  # searching this many records takes 3 ms
MOST_BYTES_AT_ONCE = 1 << 20  # decompressed bytes

# The base offset and checksum of the batch, the least timestamp delta and the least offset delta.
SearchName = tuple[int, int, int, int]
# The timestamp delta and offset delta of the record; the error if the batch could not be read; None
# if there is no such record.
SearchResult = tuple[int, int] | Exception | None
Searched = dict[SearchName, SearchResult]


class BatchSearch(NamedTuple):
    """A search in one batch, for the first record whose deltas are not below the given ones.

    read: a function that returns the stored bytes of the records.
    """

    base_offset: int
    crc: int
    least_time: int
    least_delta: int
    codec: int
    record_count: int
    most_bytes: int
    read: Callable[[], bytes]

    @property
    def name(self) -> SearchName:
        return self.base_offset, self.crc, self.least_time, self.least_delta

    def result(self, searched: Searched | None) -> SearchResult:
        """The result of the search, which may already be in `searched`.

        Raises: SearchTakesLong if `searched` is given and does not have the result yet, and the
                search takes long.
        """
        if searched is None:
            return self.run(self.read(), self.most_bytes)
        if self.name in searched:
            return searched[self.name]
        data = self.read()
        if self.record_count > MOST_RECORDS_AT_ONCE:
            raise SearchTakesLong(self, data)
        try:
            result = self.run(data, min(self.most_bytes, MOST_BYTES_AT_ONCE), MOST_PARTS_AT_ONCE)
        except TooManyPartsError as error:
            raise SearchTakesLong(self, data) from error
        if isinstance(result, TooLargeError) and self.most_bytes > MOST_BYTES_AT_ONCE:
            raise SearchTakesLong(self, data)
        searched[self.name] = result
        return result

    def run(self, data: bytes, most_bytes: int, most_parts: int | None = None) -> SearchResult:
        """Run the search.

        Takes: data, the result of `read`; most_bytes and most_parts, see `decompress_to_memory`.
        """
        try:
            body = decompress_to_memory(self.codec, data, most_bytes, most_parts)
            return first_at_time(body, self.record_count, self.least_time, self.least_delta)
        except (KafkaError, IndexError) as error:
            return detached(error)


class SearchTakesLong(Exception):
    """A look-up needs a search that would block other clients.

    `run` may be called in any thread, since it uses only the values of this object.
    """

    def __init__(self, search: BatchSearch, data: bytes) -> None:
        super().__init__()
        self.name, self.data_bytes = search.name, len(data)
        self._search, self._data = search, data

    def run(self) -> SearchResult:
        return self._search.run(self._data, self._search.most_bytes)
