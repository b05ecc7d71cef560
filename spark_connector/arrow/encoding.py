"""The encoder: Arrow rows -> record batches by topic and partition, without a Python step per
record.

Rows are collected until there are enough of them to fill batches. Then all are encoded in one
round:

1. *Place.* Each row gets the number of its topic and partition; a stable sort by this number groups
   the rows of each partition, in their order. The ends of batches follow from the running sum of
   the records' sizes.
2. *Small parts.* Besides key, value and headers a record consists of varints. They are written for
   all records at once, one byte of one field at a time, into an array with a row of fixed width for
   each record.
3. *Gathering.* That array, the keys, the values and the headers are joined to one Arrow array of
   byte strings. One `take` with the indices (small part, key, small part, value, …) of all records
   sorts and joins them: the bytes of its result are the records.

The remaining steps are done for each batch: slice, compress, header, checksum.

    a record: varint length | int8 attributes 0 | varint timestamp_delta | varint offset_delta
              | varint key length, key | varint value length, value | varint header count
              | per header: varint length, key, varint length, value

Lengths are zigzag-encoded: twice the length, and 1 for null.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.protocol.compression import DEFAULT_LEVELS, Codec, Levels, compress
from barnabas.protocol.records import (
    HEADER_SIZE,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL,
    assemble_batch,
)
from barnabas.spark_connector.arrow.array_types import Flags, Ints, NDArray, Unsigned
from barnabas.spark_connector.arrow.byte_pieces import (
    Pool,
    narrow,
    pieces,
    varint_size,
    varint_sizes,
)
from barnabas.spark_connector.arrow.encoding_loops import MOST_BESIDES_CONTENT, NULL
from barnabas.spark_connector.arrow.numba_loops import EncodingLoops
from barnabas.spark_connector.arrow.partitioner import (
    NO_STRINGS,
    Strings,
    partitions_of,
    strings_of,
)
from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch

RECORD_BATCH_BYTES = 512 * 1024
# A round begins when the full record batches have at least this many bytes, which makes the fixed
# cost of a round negligible.
ROUND_BYTES = 4 << 20
LIMIT_BYTES = 64 << 20  # the maximum size of the held rows, without the rows that are being added
PART_BYTES = 4 << 20  # the number of bytes of records that are gathered together
# This is lower with loops, since they write into new memory. The allocator reuses memory for small
# sizes, but requests memory from the system each time for large sizes.
LOOPS_PART_BYTES = 1 << 20
# The number of bytes of added rows to process together. It is limited since Arrow's offsets have
# only 32 bits.
SLICE_BYTES = 16 << 20
LARGEST_ROW_BYTES = 1 << 30
ROW_COST = 64  # the bytes that a row needs in arrays, besides its content
SMALLEST_RECORD = 7

HEADERS_TYPE = "array<struct<key:string,value:binary>>"
ACCEPTED_TYPES = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (HEADERS_TYPE,),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
PER_MILLISECOND = {"ms": 1, "us": 1_000, "ns": 1_000_000}


class EncodingError(ValueError):
    """A row or column cannot become a record. The message names the row or column, and says what to
    do.
    """


def check_schema(fields: Sequence[tuple[str, str]], topic: str | None) -> None:
    """Check that rows with these columns can be written.

    Takes:  fields, the names and types of the columns (Spark's simpleString); topic, the option
            topic, which overrides the column of that name.
    Raises: EncodingError with the name of the column.
    """
    names = [name for name, _ in fields]
    for name, kind in fields:
        if name not in ACCEPTED_TYPES:
            raise EncodingError(_unknown_column(name))
        if names.count(name) > 1:
            raise EncodingError(
                f"Column '{name}' occurs {names.count(name)} times, and a record has one: "
                "rename or drop the others."
            )
        accepted = ACCEPTED_TYPES[name]
        if kind.partition(" collate ")[0] not in accepted:
            raise EncodingError(
                f"Column '{name}' has the type {kind}, but has to be {' or '.join(accepted)}: cast "
                "it."
            )
    if "value" not in names:
        raise EncodingError(
            "There is no column 'value' (string or binary), the record's value: rename a "
            "column, or create one with to_json."
        )
    if topic is None and "topic" not in names:
        raise EncodingError(
            "The topic is missing: set the option 'topic', or add a column 'topic' (string)."
        )


def _unknown_column(name: str) -> str:
    """The error text for a column that is no part of a record."""
    near = difflib.get_close_matches(name.lower(), ACCEPTED_TYPES, 1)
    hint = (
        f"did you mean '{near[0]}'?"
        if near
        else f"leave it out with drop('{name}'), or make it a part of 'value'."
    )
    return (
        f"Column '{name}' has no place in a record, which takes {', '.join(ACCEPTED_TYPES)}: {hint}"
    )


class _Topic(NamedTuple):
    """A topic of some rows. The numbers of its partitions begin at `first_place`."""

    name: str
    first_place: int
    partition_count: int


class _Rows(NamedTuple):
    """Rows collected from Arrow batches, ready to be encoded.

    Lengths are zigzag-encoded. headers: each row's headers in the encoding of a record; None if no
    row has headers. content_sizes: the size of each record without its length and its two deltas,
    which depend on the batch that the record gets into.
    """

    places: NDArray[np.int32]
    timestamps: Ints
    content_sizes: Ints
    key_lengths: Unsigned
    value_lengths: Unsigned
    key: list[pa.Array]
    value: list[pa.Array]
    headers: list[pa.Array] | None


class Compression(NamedTuple):
    """The codec of record batches, and the level for each codec."""

    codec: Codec = Codec.NONE
    levels: Levels = DEFAULT_LEVELS


class Encoder:
    """The encoder of one task, which makes record batches of the task's rows.

    It keeps the rows that are in no batch yet, and counts their bytes by partition. A round of
    encoding is done when the full batches have ROUND_BYTES, and more bytes than the batches that
    are not full, so that rows wait only briefly. A round is also done when LIMIT_BYTES are reached.
    Then the fullest partitions are encoded as well, until half of the bytes are left.
    """

    def __init__(
        self,
        *,
        topic: str | None,
        partition_counts: Callable[[str], int],
        compression: Compression,
        now_ms: Callable[[], int],
        record_batch_bytes: int = RECORD_BATCH_BYTES,
        task: int = 0,
        round_bytes: int = ROUND_BYTES,
        limit_bytes: int = LIMIT_BYTES,
        loops_for: Callable[[int], EncodingLoops | None] = lambda _rows: None,
    ) -> None:
        """Make an encoder without rows. Most parameters exist for tests.

        Takes:  topic, the topic of all rows, or None to use the column; partition_counts, which is
                called once for each topic, and returns 0 for an unknown one; record_batch_bytes,
                the size of a record batch before compression, which only a single record may
                exceed; task, the task's number, which determines the first partition of rows
                without key; loops_for, which returns the compiled loops for a number of further
                rows, or None. The loops affect only the speed.
        """
        self._topic = topic
        self._partition_counts = partition_counts
        self._codec, self._levels = compression
        self._now_ms = now_ms
        self._record_batch_bytes = record_batch_bytes
        self._turn = task
        self._round_bytes = round_bytes
        self._limit_bytes = limit_bytes
        self._loops_for = loops_for
        self._loops: EncodingLoops | None = None
        self._topics: dict[str, _Topic] = {}
        self._names_by_place: list[tuple[str, int]] = []
        self._rows: list[_Rows] = []
        self._bytes_by_place = np.zeros(0, np.int64)
        self._held_bytes = 0

    def add(self, rows: pa.RecordBatch) -> list[EncodedRecordBatch]:
        """Collect the rows of an Arrow batch. `check_schema` must have accepted its columns.

        Gives:  the record batches that are encoded now. Over all calls, those of one partition are
                in the order of their rows.
        Raises: EncodingError for a row without topic, with an unknown partition, or with a header
                without key.
        """
        record_batches: list[EncodedRecordBatch] = []
        now_ms = self._now_ms()
        for part in _slices(_columns(rows, with_topic=self._topic is None)):
            self._collect(part, now_ms)
            full = self._bytes_by_place // self._record_batch_bytes * self._record_batch_bytes
            full_bytes, all_bytes = int(full.sum()), int(self._bytes_by_place.sum())
            if self._held_bytes >= self._limit_bytes or full_bytes >= max(
                self._round_bytes, all_bytes - full_bytes
            ):
                record_batches += self._encode(keep_bytes=self._limit_bytes // 2)
        return record_batches

    def finish(self) -> list[EncodedRecordBatch]:
        """Encode all remaining rows."""
        return self._encode(keep_bytes=0) if self._rows else []

    # --- collecting

    def _collect(self, rows: dict[str, pa.Array], now_ms: int) -> None:
        """Keep the rows until their record batches are full, with what is needed to compute the
        sizes.
        """
        key, value = rows["key"], rows["value"]
        self._loops = self._loops_for(len(value))
        headers = _encoded_headers(rows["headers"]) if "headers" in rows else None
        key_lengths, value_lengths = _zigzag_lengths(key), _zigzag_lengths(value)
        collected = _Rows(
            self._places(rows),
            _timestamps(rows.get("timestamp"), len(value), now_ms),
            _content_sizes(key_lengths, value_lengths, headers),
            key_lengths,
            value_lengths,
            [key],
            [value],
            None if headers is None else [headers],
        )
        self._rows.append(collected)
        self._count(collected)

    def _count(self, rows: _Rows) -> None:
        """Add the sizes of the rows to those of their partitions."""
        sizes = rows.content_sizes
        if len(self._bytes_by_place) < len(self._names_by_place):
            self._bytes_by_place = np.append(
                self._bytes_by_place,
                np.zeros(len(self._names_by_place) - len(self._bytes_by_place), np.int64),
            )
        self._bytes_by_place += np.bincount(rows.places, sizes, len(self._bytes_by_place)).astype(
            np.int64
        )
        self._held_bytes += int(sizes.sum()) + ROW_COST * len(sizes)

    def _places(self, rows: dict[str, pa.Array]) -> NDArray[np.int32]:
        """Return the number of each row's topic and partition."""
        first_places: int | Ints
        counts: int | Ints
        if self._topic is not None:
            topic = self._topic_named(self._topic, "option 'topic'")
            topics, which = [topic], None
            first_places, counts = topic.first_place, topic.partition_count
        else:
            topics, which = self._topics_of(rows["topic"])
            first_places = np.array([topic.first_place for topic in topics])[which]
            counts = np.array([topic.partition_count for topic in topics])[which]
        partitions = self._partitions(rows, counts)
        outside = (partitions < 0) | (partitions >= counts)
        if outside.any():
            row = int(np.argmax(outside))
            topic = topics[0 if which is None else which[row]]
            raise EncodingError(
                f"Column 'partition' has {partitions[row]} in a row for topic '{topic.name}', "
                "whose partitions are 0 to "
                f"{topic.partition_count - 1}: correct it, or leave it null for the key to decide."
            )
        return (first_places + partitions).astype(np.int32)

    def _topics_of(self, column: pa.Array) -> tuple[list[_Topic], Ints]:
        """Return the topics of some rows, and for each row the index of its topic."""
        if column.null_count:
            raise EncodingError(
                "Column 'topic' is null in a row: fill it in, or set the option 'topic', which "
                "applies to all rows."
            )
        encoded = column.dictionary_encode()
        topics = [
            self._topic_named(name.decode(), "column 'topic'")
            for name in encoded.dictionary.to_pylist()
        ]
        return topics, encoded.indices.to_numpy().astype(np.int64)

    def _topic_named(self, name: str, origin: str) -> _Topic:
        """The topic with its number of partitions, which is looked up once. Raises: EncodingError
        for an unknown one. Takes: origin, where the name is from.
        """
        topic = self._topics.get(name)
        if topic is None:
            count = self._partition_counts(name)
            if count <= 0:
                raise EncodingError(
                    f"Topic '{name}', which the {origin} names, does not exist: create it, or "
                    "correct the name."
                )
            topic = self._topics[name] = _Topic(name, len(self._names_by_place), count)
            self._names_by_place += ((name, partition) for partition in range(count))
        return topic

    def _partitions(self, rows: dict[str, pa.Array], counts: int | Ints) -> Ints:
        """Choose a partition for each row.

        It is the partition that the row specifies, or else that of its key. A row with neither gets
        the next partition in round robin.
        """
        given_partition, key = rows.get("partition"), rows["key"]
        if given_partition is not None and not given_partition.null_count:
            return _int64s(given_partition)
        if key.null_count == len(key):
            partitions = np.empty(len(key), np.int64)
            partitions[:] = self._turn % counts
            self._turn += 1
        else:
            partitions = partitions_of(key, counts, self._loops)
            if key.null_count:
                np.copyto(partitions, self._turn % counts, where=_nulls(key))
                self._turn += 1
        if given_partition is not None:
            np.copyto(
                partitions, _int64s(given_partition.fill_null(0)), where=~_nulls(given_partition)
            )
        return partitions

    # --- encoding

    def _encode(self, keep_bytes: int) -> list[EncodedRecordBatch]:
        """Encode all full record batches. Then encode the largest of the others, until at most
        `keep_bytes` are left.
        """
        rows = _concatenate(self._rows)
        order = np.argsort(
            rows.places.astype(np.uint16) if len(self._names_by_place) <= 1 << 16 else rows.places,
            kind="stable",
        )
        places = rows.places[order]
        sizes = _largest_sizes(rows, self._record_batch_bytes)[order]
        ends, is_last = _split(places, sizes, self._record_batch_bytes - HEADER_SIZE)
        counts = np.diff(ends, prepend=0)
        chosen = ~is_last | _largest(
            np.add.reduceat(sizes, ends - counts) + ROW_COST * counts, is_last, keep_bytes
        )
        in_chosen = np.repeat(chosen, counts)
        encoded = list(
            self._record_batches(
                rows, order[in_chosen], places[(ends - counts)[chosen]], counts[chosen]
            )
        )
        self._rows, self._held_bytes = [], 0
        self._bytes_by_place[:] = 0
        if not chosen.all():
            left = _rows_at(rows, np.sort(order[~in_chosen]))
            self._rows.append(left)
            self._count(left)
        return encoded

    def _record_batches(
        self, rows: _Rows, order: Ints, places: NDArray[np.int32], counts: Ints
    ) -> Iterator[EncodedRecordBatch]:
        """Make record batches with the given numbers of rows, in that order."""
        starts = np.cumsum(counts) - counts
        timestamps = rows.timestamps[order]
        base_timestamps = timestamps[starts]
        max_timestamps = np.maximum.reduceat(timestamps, starts)
        bodies = _bodies(rows, order, timestamps, counts, self._loops)
        for place, count, base_timestamp, max_timestamp in zip(
            places.tolist(),
            counts.tolist(),
            base_timestamps.tolist(),
            max_timestamps.tolist(),
            strict=True,
        ):
            body = next(bodies)
            data = assemble_batch(
                body
                if self._codec == Codec.NONE
                else compress(self._codec, bytes(body), self._levels),
                base_offset=0,
                leader_epoch=NO_LEADER_EPOCH,
                attributes=TRANSACTIONAL | self._codec,
                last_offset_delta=count - 1,
                base_timestamp=base_timestamp,
                max_timestamp=max_timestamp,
                producer_id=NO_PRODUCER_ID,
                producer_epoch=NO_PRODUCER_EPOCH,
                base_sequence=NO_SEQUENCE,
                record_count=count,
            )
            topic, partition = self._names_by_place[place]
            yield EncodedRecordBatch(topic, partition, count, data)


# --- from Arrow's columns to plain ones


def _columns(rows: pa.RecordBatch, *, with_topic: bool) -> pa.RecordBatch:
    """Return the columns that become records, in types that can be sliced and measured."""
    columns = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if name in ACCEPTED_TYPES and (name != "topic" or with_topic):
            # The slices of an array of views share its buffers, so their sizes are unknown.
            columns[name] = (
                column.cast(pa.large_binary())
                if column.type in (pa.string_view(), pa.binary_view())
                else column
            )
    if "key" not in columns:
        columns["key"] = pa.nulls(rows.num_rows, pa.binary())
    return pa.RecordBatch.from_pydict(columns)


def _slices(rows: pa.RecordBatch) -> Iterator[dict[str, pa.Array]]:
    """Yield the rows in order, in slices whose bytes fit into arrays with 32-bit offsets."""
    if not rows.num_rows:
        return
    if rows.nbytes > SLICE_BYTES and rows.num_rows > 1:
        middle = rows.num_rows // 2
        yield from _slices(rows.slice(0, middle))
        yield from _slices(rows.slice(middle))
        return
    if rows.nbytes > LARGEST_ROW_BYTES:
        raise EncodingError(
            f"A row holds {rows.nbytes:,} bytes in 'key', 'value' and 'headers'; a record cannot "
            "have more than a gigabyte."
        )
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    yield {
        name: column.cast(pa.binary()) if name in ("key", "value", "topic") else column
        for name, column in columns.items()
    }


def _nulls(array: pa.Array) -> Flags:
    nulls: Flags = array.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _int64s(array: pa.Array) -> Ints:
    numbers: Ints = array.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers


def _timestamps(column: pa.Array | None, count: int, now_ms: int) -> Ints:
    """Convert the timestamps to ms since 1970, rounded down. A null becomes `now_ms`."""
    if column is None or column.null_count == count:
        return np.full(count, now_ms)
    if column.type.unit == "s":
        column = column.cast(pa.timestamp("ms", column.type.tz))
    milliseconds = (
        _int64s(column.cast(pa.int64()).fill_null(0)) // PER_MILLISECOND[column.type.unit]
    )
    if column.null_count:
        milliseconds[_nulls(column)] = now_ms
    return milliseconds


def _zigzag_lengths(array: pa.Array) -> Unsigned:
    """Return the length that precedes each byte string in a record, zigzag-encoded."""
    lengths = np.diff(strings_of(array).edges).astype(np.uint32)
    lengths <<= 1
    if array.null_count:
        lengths[_nulls(array)] = NULL
    return lengths


def _encoded_headers(column: pa.Array) -> pa.Array | None:
    """Encode each row's headers and their count as in a record.

    Gives:  None if no row has headers.
    """
    counts = _int64s(pc.list_value_length(column).fill_null(0))
    if not counts.any():
        return None
    key, value = (array.cast(pa.binary()) for array in pc.list_flatten(column).flatten())
    if key.null_count:
        raise EncodingError(
            "Column 'headers' has a header whose key is null; every header of a record has a "
            "key: set one, or remove the header."
        )
    lengths = pieces(len(key), [[_zigzag_lengths(key)], [_zigzag_lengths(value)]])
    pool = Pool([pieces(len(column), [[(counts * 2).astype(np.uint64)]]), lengths, key, value])
    # Each row consists of one string with the count of its headers, and four strings for each
    # header.
    first_header = np.cumsum(counts) - counts
    row_at = np.arange(len(column)) + 4 * first_header
    header = np.arange(len(key))
    header_at = 4 * header + np.repeat(np.arange(len(column)), counts) + 1
    indices = np.empty(len(column) + 4 * len(key), np.int32)
    indices[row_at] = pool.starts[0] + 2 * np.arange(len(column))
    for nth, piece in enumerate(
        (
            pool.starts[1] + 4 * header,
            pool.starts[2] + header,
            pool.starts[1] + 4 * header + 2,
            pool.starts[3] + header,
        )
    ):
        indices[header_at + nth] = piece
    edges, data = pool.gather(indices)
    return pa.Array.from_buffers(
        pa.binary(), len(column), [None, pa.py_buffer(np.append(edges[row_at], edges[-1])), data]
    )


# --- from collected rows to records


def _concatenate(parts: Sequence[_Rows]) -> _Rows:
    """Join all rows. Their strings are not copied."""
    headers = None
    if any(part.headers is not None for part in parts):
        headers = [
            array
            for part in parts
            for array in part.headers or [pa.repeat(b"\0", len(part.places))]
        ]
    return _Rows(
        np.concatenate([part.places for part in parts]),
        np.concatenate([part.timestamps for part in parts]),
        np.concatenate([part.content_sizes for part in parts]),
        np.concatenate([part.key_lengths for part in parts]),
        np.concatenate([part.value_lengths for part in parts]),
        [array for part in parts for array in part.key],
        [array for part in parts for array in part.value],
        headers,
    )


def _rows_at(rows: _Rows, which: Ints) -> _Rows:
    """Copy some rows, so that the memory of the other rows can be freed."""
    key, value, headers = (
        None if arrays is None else [pa.concat_arrays(arrays).take(pa.array(which))]
        for arrays in (rows.key, rows.value, rows.headers)
    )
    assert key is not None and value is not None
    return _Rows(
        rows.places[which],
        rows.timestamps[which],
        rows.content_sizes[which],
        rows.key_lengths[which],
        rows.value_lengths[which],
        key,
        value,
        headers,
    )


def _content_sizes(
    key_lengths: Unsigned, value_lengths: Unsigned, headers: pa.Array | None
) -> Ints:
    """The bytes of each record that do not depend on its place in a batch: attributes, key, value
    and headers.
    """
    sizes: Ints = (key_lengths >> 1).astype(np.int64) + (value_lengths >> 1) + 1
    sizes += varint_sizes(key_lengths)
    sizes += varint_sizes(value_lengths)
    sizes += 1 if headers is None else np.diff(strings_of(headers).edges)
    return sizes


def _largest_sizes(rows: _Rows, record_batch_bytes: int) -> Ints:
    """Return the maximum size that each record can have in any record batch, in bytes."""
    span = int(rows.timestamps.max()) - int(rows.timestamps.min())
    most_records = min(len(rows.places), record_batch_bytes // SMALLEST_RECORD + 1)
    sizes = rows.content_sizes + varint_size(2 * span) + varint_size(2 * most_records)
    sizes += varint_sizes((sizes << 1).astype(np.uint64))
    return sizes


def _split(places: NDArray[np.int32], sizes: Ints, capacity: int) -> tuple[Ints, Flags]:
    """Divide sorted rows into record batches.

    Gives:  the end of each batch, and whether the batch is the last of its partition and may get
            further rows.
    """
    filled = np.cumsum(sizes)
    ends, is_last = [], []
    start = 0
    for group_end in [*(np.flatnonzero(np.diff(places)) + 1).tolist(), len(places)]:
        while start < group_end:
            capacity_end = capacity + (int(filled[start - 1]) if start else 0)
            end = (
                group_end
                if filled[group_end - 1] <= capacity_end
                else max(start + 1, int(np.searchsorted(filled, capacity_end, "right")))
            )
            ends.append(end)
            is_last.append(end == group_end)
            start = end
    return np.array(ends), np.array(is_last)


def _largest(sizes: Ints, which: Flags, keep_bytes: int) -> Flags:
    """Choose the largest batches among `which`, so that at most `keep_bytes` are left."""
    candidates = np.flatnonzero(which)
    candidates = candidates[np.argsort(sizes[candidates], kind="stable")]
    goes = np.zeros(len(sizes), np.bool_)
    goes[candidates[np.cumsum(sizes[candidates]) > keep_bytes]] = True
    return goes


def _bodies(
    rows: _Rows, order: Ints, timestamps: Ints, counts: Ints, loops: EncodingLoops | None
) -> Iterator[memoryview]:
    """Yield the encoded records of each batch, one batch after the other.

    The result for a batch is valid until the next batch is requested.

    Takes:  order, the order of the rows; timestamps, in that order; counts, the number of rows in
            each batch.
    """
    if loops is None:
        yield from _bodies_by_arrays(rows, order, timestamps, counts)
        return
    sources, ends = _Sources.of(rows), np.cumsum(counts)
    content_bytes = np.add.reduceat(rows.content_sizes[order], ends - counts)
    for first, last in _parts(content_bytes, LOOPS_PART_BYTES):
        batches = slice(first, last + 1)
        part = slice(int(ends[first] - counts[first]), int(ends[last]))
        yield from sources.bodies(
            rows, order[part], counts[batches], int(content_bytes[batches].sum()), loops
        ) or _bodies_by_arrays(rows, order[part], timestamps[part], counts[batches])


class _Sources(NamedTuple):
    """The bytes of collected rows, in the form that the compiled loops need."""

    key: Strings
    value: Strings
    headers: Strings

    @classmethod
    def of(cls, rows: _Rows) -> _Sources:
        """Collect the bytes of some rows, each column in one array."""
        return cls(
            *(
                NO_STRINGS if arrays is None else strings_of(pa.concat_arrays(arrays))
                for arrays in (rows.key, rows.value, rows.headers)
            )
        )

    def bodies(
        self, rows: _Rows, order: Ints, counts: Ints, content_bytes: int, loops: EncodingLoops
    ) -> list[memoryview] | None:
        """Return the encoded records of some batches, or None if the loop rejects the rows."""
        out = np.empty(content_bytes + (len(order) + 1) * MOST_BESIDES_CONTENT, np.uint8)
        ends = np.empty(len(counts), np.int64)
        if not loops.write_records(
            order,
            np.cumsum(counts),
            rows.timestamps,
            rows.content_sizes,
            rows.key_lengths,
            self.key.edges,
            self.key.data,
            rows.value_lengths,
            self.value.edges,
            self.value.data,
            self.headers.edges,
            self.headers.data,
            out,
            ends,
        ):
            return None
        view = out.data
        starts = [0, *ends[:-1].tolist()]
        return [view[start:end] for start, end in zip(starts, ends.tolist(), strict=True)]


def _bodies_by_arrays(
    rows: _Rows, order: Ints, timestamps: Ints, counts: Ints
) -> Iterator[memoryview]:
    """Yield the encoded records of each batch. They are made by array arithmetic."""
    ends = np.cumsum(counts)
    starts = ends - counts
    timestamp_deltas = timestamps - np.repeat(timestamps[starts], counts)
    offset_deltas = np.arange(len(order)) - np.repeat(starts, counts)
    key_lengths, value_lengths = rows.key_lengths[order], rows.value_lengths[order]
    timestamp_zigzag = narrow(((timestamp_deltas << 1) ^ (timestamp_deltas >> 63)).view(np.uint64))
    offset_zigzag = narrow((offset_deltas << 1).view(np.uint64))
    sizes = rows.content_sizes[order]
    sizes += varint_sizes(timestamp_zigzag)
    sizes += varint_sizes(offset_zigzag)
    length_zigzag = narrow((sizes << 1).view(np.uint64))
    # A record without headers ends with a zero, the count of its headers. This zero is written as
    # the first byte of the next record's part, and every batch is cut one byte later. This saves
    # one string for each record.
    shift = 1 if rows.headers is None else 0
    small_parts = pieces(
        len(order),
        [
            [*[None] * shift, length_zigzag, None, timestamp_zigzag, offset_zigzag, key_lengths],
            [value_lengths],
        ],
    )
    pool = Pool([small_parts, rows.key, rows.value, rows.headers or [pa.array([b"\0"])]])
    row = np.arange(len(order), dtype=np.int32)
    origin = order.astype(np.int32)
    columns: list[NDArray[np.int32]] = [
        4 * row,
        origin + pool.starts[1],
        4 * row + 2,
        origin + pool.starts[2],
    ]
    if rows.headers is not None:
        columns.append(origin + pool.starts[3])
    indices = np.stack(columns, axis=1)
    tail = np.full(shift, pool.starts[3], np.int32)
    for first, last in _parts(np.add.reduceat(sizes, ends - counts), PART_BYTES):
        start, end = int(ends[first] - counts[first]), int(ends[last])
        edges, data = pool.gather(np.append(indices[start:end].reshape(-1), tail))
        view = memoryview(data)
        bounds = (
            edges[:: len(columns)][
                np.append(ends[first : last + 1] - counts[first : last + 1], end) - start
            ]
            + shift
        )
        for body_start, body_end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            yield view[body_start:body_end]


def _parts(sizes: Ints, part_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the first and last number of each group of batches that are gathered together."""
    first, total = 0, 0
    for index, size in enumerate(sizes.tolist()):
        total += size
        if total >= part_bytes or index == len(sizes) - 1:
            yield first, index
            first, total = index + 1, 0
