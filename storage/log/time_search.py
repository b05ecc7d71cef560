"""The search for a time within one batch, which is done elsewhere where it takes long.

A look-up by time opens one batch, seldom several. Where that takes long, the look-up is given up
with `SearchTakesLong`; somebody runs the search where nobody waits, keeps what came of it in a
`Searched`, and the look-up is done anew with it. So the answer is of the log as it is then,
whatever has gone from it or come to it in the meantime: a batch is known again by its offset and
checksum, and what was looked for in it belongs to its name.
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
from barnabas.protocol.errors import KafkaError
from barnabas.storage.batch.record_walk import first_at_time

MOST_RECORDS_AT_ONCE = 10_000  # these take 3 ms
MOST_BYTES_AT_ONCE = 1 << 20  # decompressed

SearchName = tuple[
    int, int, int, int
]  # base offset, checksum, least timestamp delta, least offset delta
SearchResult = (
    tuple[int, int] | Exception | None
)  # timestamp delta and offset delta; why the batch could not be read; nothing found
Searched = dict[SearchName, SearchResult]


class BatchSearch(NamedTuple):
    """What is looked for in one batch: the first record whose deltas are not below these.

    read: its records' bytes as they are stored.
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
        """What comes of the search; `searched` tells it from then on.

        Raises: SearchTakesLong where `searched` is given, does not tell yet, and the search takes
                long.
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
        """Search. Takes: data, what `read` gave; most_bytes that may come of them; most_parts, see
        `decompress_to_memory`.
        """
        try:
            body = decompress_to_memory(self.codec, data, most_bytes, most_parts)
            return first_at_time(body, self.record_count, self.least_time, self.least_delta)
        except (KafkaError, IndexError) as error:
            return error


class SearchTakesLong(Exception):
    """A look-up needs a search that would hold up everybody else.

    `run` does it, and touches nothing but what is here.
    """

    def __init__(self, search: BatchSearch, data: bytes) -> None:
        super().__init__()
        self.name, self.data_bytes = search.name, len(data)
        self._search, self._data = search, data

    def run(self) -> SearchResult:
        return self._search.run(self._data, self._search.most_bytes)
