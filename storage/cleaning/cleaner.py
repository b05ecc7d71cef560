"""Compaction: writes the latest committed value of each key into new segments (KIP-98, KIP-534).

`clean` is a function over files. It reads the segments of a `CleanJob`, which no longer change, and
writes one new segment for each group of segments, in files that end in `.cleaned`. It uses neither
a log object nor a clock, so it may run in another process. `clean_plan` makes the job, and
`segment_swap` replaces the old segments by the result.

What happens to each kind of batch below the job's end:

    data of an aborted transaction      removed, by the entries of the aborted index
    a record without a key, or with a   removed; the later record counts if it is committed and
      later record of the same key      was read in this round (the dirty part of the log, up to
                                        the capacity of the map of keys)
    a tombstone, the latest of its key  kept; its batch gets a delete horizon (attribute bit 6,
                                        base timestamp), after which the tombstone is removed
    a marker of a transaction of which  kept whole
      a batch was read in this round
    a marker of a transaction whose     gets a delete horizon, after which it is removed. Its key
      batches were removed in an        is never compared
      earlier round
    a batch without remaining records   removed, unless it is the last of a known producer, or of
                                        the cleaned part (which a reader's position has to pass):
                                        then its header is kept, without records

Offsets, sequences, epochs and the batch's codec do not change. A marker is kept whole or not at
all, since an emptied marker would no longer contain the epoch that it fenced. An entry of the
aborted index is kept as long as its marker.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

from barnabas.protocol.compression import compress, decompress
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records import (
    CODEC_MASK,
    DELETE_HORIZON,
    HEADER_SIZE,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    assemble_batch,
    decode_marker,
    decode_varint,
    encode_varint,
    has_right_crc,
    read_header,
)
from barnabas.storage.cleaning.clean_job import (
    CleanedSegment,
    CleanJob,
    CleanResult,
    cleaned_path,
    discard,
)
from barnabas.storage.disk import Disk, File
from barnabas.storage.files.offset_index import OffsetIndex
from barnabas.storage.files.segment_files import (
    HIGHEST_RELATIVE_OFFSET,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_SUFFIX,
    TXN_SUFFIX,
    CorruptLog,
    offset_name,
)
from barnabas.storage.files.time_index import TimeIndex
from barnabas.storage.files.txn_index import AbortedEntry, TxnIndex

KEY_BYTES = (
    # The memory that a key needs in the map in addition to its bytes or hash: its offset and its
    # share of the hash table.
    200
)
# A hash is longer than any key that is stored unhashed, so the two are never confused.
_LONGEST_KEY, _HASH_SIZE = (32, 33)
_READ_BYTES = 1 << 20
_WRITE_BYTES = 1 << 20

Data = bytes | bytearray | memoryview


def clean(disk: Disk, job: CleanJob) -> CleanResult:
    """Do the job. After: the new segments are durable, under names that no reader uses.

    Raises: CorruptLog if a batch is damaged, or contradicts the aborted index; OSError. In these
            cases no files are left behind.
    """
    cleaner = _Cleaner(disk, job)
    try:
        return cleaner.run()
    except BaseException:
        cleaner.give_up()
        raise


# --- the records of a batch ---------------------------------------------------------------------


# A record: its start, the start of its offset delta, its end, its offset delta, its key, and
# whether its value is null. It is a plain tuple, since there are millions of records.
_Place = tuple[int, int, int, int, bytes | None, bool]


def _places(body: bytes, count: int) -> list[_Place]:
    """The place and key of each record. Timestamps, values and headers are not read.

    Nearly all numbers have one or two bytes. They are read in place, since a call for each would
    double the time of a cleaning.

    Raises: IndexError if there are fewer than `count` records.
    """
    places: list[_Place] = []
    position = 0
    for _ in range(count):
        start = position
        byte, second = body[position], body[position + 1]
        if byte < 0x80:
            position += 1
            end = position + (byte >> 1)
        elif second < 0x80:
            position += 2
            end = position + ((byte & 0x7F | second << 7) >> 1)
        else:
            size, position = decode_varint(body, position)
            end = position + size
        position += 1
        while body[position] >= 0x80:
            position += 1
        rest = position = position + 1
        byte, second = body[position], body[position + 1]
        if byte < 0x80:
            delta, position = byte >> 1, position + 1
        elif second < 0x80:
            delta, position = (byte & 0x7F | second << 7) >> 1, position + 2
        else:
            delta, position = decode_varint(body, position)
        byte = body[position]
        if byte < 0x80:
            width, position = (byte >> 1) ^ -(byte & 1), position + 1
        else:
            width, position = decode_varint(body, position)
        if width < 0:
            # 1 is the varint of -1, which means null.
            places.append((start, rest, end, delta, None, body[position] == 1))
        else:
            key = body[position : position + width]
            places.append((start, rest, end, delta, key, body[position + width] == 1))
        position = end
    if position != len(body):
        raise IndexError("bytes are left over after the last record")
    return places


def _time_delta(body: bytes, place: _Place) -> int:
    _, after_size = decode_varint(body, place[0])
    return decode_varint(body, after_size + 1)[0]


def _map_key(key: bytes) -> bytes:
    """The hash that the map contains in place of a key longer than `_LONGEST_KEY`."""
    return blake2b(key, digest_size=_HASH_SIZE).digest()


def _with_times_from(body: bytes, kept: list[_Place], shift: int) -> bytes:
    """Add `shift` to the timestamp deltas of the records, as another base timestamp requires."""
    out = bytearray()
    for place in kept:
        inner = bytearray(b"\0")  # attributes, unused
        encode_varint(_time_delta(body, place) + shift, inner)
        inner += body[place[1] : place[2]]
        encode_varint(len(inner), out)
        out += inner
    return bytes(out)


def _emptied(header: BatchHeader) -> bytes:
    """The header of a batch whose records are all removed. It keeps offsets, sequence and epoch."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    return _assembled(header, b"", attributes, NO_TIMESTAMP, header.max_timestamp, 0)


def _assembled(
    header: BatchHeader,
    body: bytes,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
) -> bytes:
    """Assemble the batch with other records. Its offsets and its producer do not change."""
    return bytes(
        assemble_batch(
            body,
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            attributes=attributes,
            last_offset_delta=header.last_offset_delta,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            record_count=count,
        )
    )


# --- transactions -------------------------------------------------------------------------------


class _Transactions:
    """Tracks the outcomes of transactions, and which markers still have data, while the log is
    read.
    """

    __slots__ = ("_aborted", "_seen", "by_marker")

    def __init__(self, aborted: tuple[AbortedEntry, ...]) -> None:
        """Takes: aborted, the aborted transactions in the order of their ends."""
        self._aborted: dict[int, list[AbortedEntry]] = {}
        for entry in reversed(aborted):
            self._aborted.setdefault(entry.producer_id, []).append(entry)
        self.by_marker = {entry.last_offset: entry for entry in aborted}
        self._seen: dict[int, bool] = {}

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch of data belongs to an aborted transaction.

        Called once for each batch, in order.
        """
        if not header.is_transactional:
            return False
        producer_id = header.producer_id
        entries = self._aborted.get(producer_id)
        while entries and entries[-1].last_offset < header.base_offset:
            entries.pop()
        aborted = bool(entries) and entries[-1].first_offset <= header.base_offset  # type: ignore[index]
        self._seen[producer_id] = aborted
        return aborted

    def end(self, producer_id: int, commit: bool) -> bool:
        """Process a marker. Gives: whether a batch of the marker's transaction was read.

        Raises: ValueError if the aborted index contradicts the marker.
        """
        aborted = self._seen.pop(producer_id, None)
        if aborted is None:
            return False
        if aborted is commit:
            raise ValueError(
                f"a transaction of producer {producer_id} has another outcome than in the aborted "
                "index"
            )
        return True


# --- the new segment ----------------------------------------------------------------------------


class _Output:
    """The files of one new segment while they are written: `.log.cleaned` and its indexes.

    Each file exists even if it is empty.
    """

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, index_interval_bytes: int
    ) -> None:
        """Remove the files of an earlier attempt, and create the log file of the new segment."""
        self._disk, self._directory, self._base_offset = disk, directory, base_offset
        self._interval = index_interval_bytes
        discard(disk, directory, base_offset)
        self._file: File = disk.open(cleaned_path(directory, base_offset, LOG_SUFFIX), create=True)
        self._buffer = bytearray()
        self._offsets, self._times = OffsetIndex(), TimeIndex()
        self._bytes_since_entry = 0
        self.aborted: list[AbortedEntry] = []
        self.size = 0
        self.max_timestamp, self.max_timestamp_offset = -1, base_offset

    def add(self, data: Data, last_offset: int, max_timestamp: int) -> None:
        """Add one batch. Takes: max_timestamp, its highest timestamp, -1 if the batch has no
        records.
        """
        if max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = max_timestamp, last_offset
        if self._bytes_since_entry > self._interval:
            self._offsets.append(last_offset - self._base_offset, self.size)
            self._times.maybe_append(
                self.max_timestamp, self.max_timestamp_offset - self._base_offset
            )
            self._bytes_since_entry = 0
        self._bytes_since_entry += len(data)
        self.size += len(data)
        self._buffer += data
        if len(self._buffer) >= _WRITE_BYTES:
            self._file.append(self._buffer)
            self._buffer = bytearray()

    def finish(self) -> None:
        """Make the segment and its indexes durable."""
        self._file.append(self._buffer)
        self._file.fsync()
        self._file.close()
        self._times.maybe_append(self.max_timestamp, self.max_timestamp_offset - self._base_offset)
        self._write(INDEX_SUFFIX, self._offsets.encode())
        self._write(TIME_SUFFIX, self._times.encode())
        self._write(TXN_SUFFIX, TxnIndex(self.aborted).encode())

    def _write(self, suffix: str, data: bytes) -> None:
        """Write a file of the segment, and make it durable."""
        file = self._disk.open(
            cleaned_path(self._directory, self._base_offset, suffix), create=True
        )
        try:
            file.append(data)
            file.fsync()
        finally:
            file.close()


class _Cleaner:
    """One run of a job.

    The keys are read first, from the dirty part. Then every segment is read once, beginning at the
    log's start.
    """

    def __init__(self, disk: Disk, job: CleanJob) -> None:
        self.disk, self.job = disk, job
        self.transactions = _Transactions(job.aborted)
        self.latest: dict[bytes, int] = {}
        self.map_end = job.first_dirty_offset
        self.begun: list[int] = []
        self.read_bytes = self.written_bytes = 0
        self.unreadable: set[int] = set()

    def run(self) -> CleanResult:
        """Clean the log: first read the keys of the dirty part, then write the new segments. If the
        map of keys is full before the end, the rest remains dirty.
        """
        self._read_keys()
        self.transactions = _Transactions(self.job.aborted)
        segments = []
        for group in self.job.groups:
            if group[0][0] >= self.map_end:
                break
            cleaned = self._clean_group(group)
            if cleaned is not None:
                segments.append(cleaned)
        return CleanResult(
            tuple(segments),
            self.map_end,
            self.read_bytes,
            self.written_bytes,
            tuple(sorted(self.unreadable)),
        )

    def give_up(self) -> None:
        """Remove the files that were created."""
        for base_offset in self.begun:
            try:
                discard(self.disk, self.job.directory, base_offset)
            except OSError:
                # only the first error is reported; the next start of the broker removes the files
                # as well
                pass

    # --- keys ------------------------------------------------------------------------------------

    def _read_keys(self) -> None:
        """Fill the map with the keys of the dirty part, until its end or until the map is full."""
        job = self.job
        most_keys = max(job.map_bytes // KEY_BYTES, 1)
        sources = [source for group in job.groups for source in group]
        ends = [base_offset for base_offset, _ in sources[1:]] + [job.end_offset]
        for (base_offset, size), end_offset in zip(sources, ends, strict=True):
            if end_offset <= job.first_dirty_offset:
                continue
            with _Source(self.disk, job.directory, base_offset, size) as source:
                for _, header, batch in source.batches():
                    if header.next_offset <= job.first_dirty_offset:
                        continue
                    if not header.is_control and not self.transactions.is_aborted(header):
                        self._note_keys(header, batch)
                    self.map_end = header.next_offset
                    if len(self.latest) >= most_keys:
                        return
            self.map_end = end_offset

    def _note_keys(self, header: BatchHeader, batch: memoryview) -> None:
        """Store in the map, for each key, the offset of its last record so far."""
        latest, base_offset = self.latest, header.base_offset
        for _, _, _, delta, key, _ in self._places(header, batch)[1]:
            if key is not None:
                latest[key if len(key) <= _LONGEST_KEY else _map_key(key)] = base_offset + delta

    def _places(self, header: BatchHeader, batch: memoryview) -> tuple[bytes, list[_Place]]:
        """The decompressed records of a batch, and the place of each.

        There are no places if the records cannot be read, or have offsets outside the batch.
        """
        try:
            body = decompress(header.codec, batch[HEADER_SIZE:], self.job.max_decompressed_bytes)
            places = _places(body, header.record_count)
            if all(0 <= place[3] <= header.last_offset_delta for place in places):
                return body, places
        except (KafkaError, IndexError):
            pass
        self.unreadable.add(header.base_offset)
        return b"", []

    # --- segments --------------------------------------------------------------------------------

    def _clean_group(self, group: tuple[tuple[int, int], ...]) -> CleanedSegment | None:
        """Write the group's new segment. Gives: the segment, or None if the group is a single
        segment that does not change.
        """
        job = self.job
        base_offset = group[0][0]
        output = self._begin(base_offset) if len(group) > 1 else None
        aborted: list[AbortedEntry] = []
        for old_base_offset, size in group:
            self.read_bytes += size
            with _Source(self.disk, job.directory, old_base_offset, size) as source:
                for position, header, batch in source.batches():
                    kept = self._keep(source, position, header, batch)
                    if kept is not batch and output is None:
                        output = self._begin(base_offset)
                        for _, earlier, same in source.batches(position):
                            output.add(same, earlier.last_offset, _time_of(earlier))
                    if kept is None:
                        continue
                    if header.base_offset in self.transactions.by_marker:
                        aborted.append(self.transactions.by_marker[header.base_offset])
                    if output is not None:
                        output.add(
                            kept,
                            header.last_offset,
                            _time_of(header if kept is batch else read_header(kept)),
                        )
        if output is None:
            return None
        output.aborted = aborted
        output.finish()
        self.written_bytes += output.size
        return CleanedSegment(
            base_offset,
            tuple(base for base, _ in group),
            output.size,
            output.max_timestamp,
            output.max_timestamp_offset,
        )

    def _begin(self, base_offset: int) -> _Output:
        self.begun.append(base_offset)
        return _Output(self.disk, self.job.directory, base_offset, self.job.index_interval_bytes)

    def _keep(
        self, source: _Source, position: int, header: BatchHeader, batch: memoryview
    ) -> Data | None:
        """The part of a batch that is kept: the same object if the whole batch is kept, None if it
        is removed.
        """
        if header.is_control:
            return self._keep_marker(source, position, header, batch)
        if not self.transactions.is_aborted(header) and header.record_count:
            kept = self._keep_records(header, batch)
            if kept is not None:
                return kept
        if header.next_offset == self.job.end_offset or self._is_last_of_producer(header):
            return batch if header.record_count == 0 else _emptied(header)
        return None

    def _keep_records(self, header: BatchHeader, batch: memoryview) -> Data | None:
        """Remove superseded records and expired tombstones from the batch. If it then has its first
        tombstone, it gets a delete horizon (KIP-534).

        Gives: the new batch, the same object if all records are kept, None if none is kept.
        """
        body, places = self._places(header, batch)
        if not places:
            # the records are unreadable, so it is unknown whether any of them is superseded
            return batch
        latest, base_offset = self.latest.get, header.base_offset
        horizon = header.delete_horizon_ms
        tombstones_go = horizon is not None and horizon <= self.job.wall_ms
        to_check = self.map_end - base_offset
        kept = []
        tombstones = 0
        for place in places:
            delta = place[3]
            if delta < to_check:
                key = place[4]
                if key is None or base_offset + delta < latest(
                    key if len(key) <= _LONGEST_KEY else _map_key(key), -1
                ):
                    continue
                if place[5]:
                    if tombstones_go:
                        continue
                    tombstones += 1
            kept.append(place)
        if not kept:
            return None
        new_horizon = tombstones > 0 and horizon is None
        if len(kept) == len(places) and not new_horizon:
            return batch
        max_timestamp = header.max_timestamp
        if not header.is_log_append_time:
            max_timestamp = header.base_timestamp + max(_time_delta(body, place) for place in kept)
        if new_horizon:
            return self._with_horizon(header, body, kept, max_timestamp)
        rest = b"".join([body[place[0] : place[2]] for place in kept])
        packed = compress(header.codec, rest, self.job.levels)
        return _assembled(
            header, packed, header.attributes, header.base_timestamp, max_timestamp, len(kept)
        )

    def _with_horizon(
        self, header: BatchHeader, body: bytes, kept: list[_Place], max_timestamp: int
    ) -> bytes:
        """The batch with a delete horizon: the time from which its tombstones, or its marker, may
        be removed.
        """
        # With this attribute, the base timestamp of the batch is the time from which its tombstones
        # may be removed (KIP-534). The timestamp deltas of the records are shifted accordingly.
        horizon = self.job.wall_ms + self.job.delete_retention_ms
        rest = _with_times_from(body, kept, header.base_timestamp - horizon)
        attributes = header.attributes | DELETE_HORIZON
        packed = compress(header.codec, rest, self.job.levels)
        return _assembled(header, packed, attributes, horizon, max_timestamp, len(kept))

    def _keep_marker(
        self, source: _Source, position: int, header: BatchHeader, batch: memoryview
    ) -> Data | None:
        """The marker if it is kept, or None if it may be removed. It may be removed when its
        transaction has no more data and the delete horizon has passed, since every reader has then
        had time to see it.
        """
        if not header.record_count:  # another cleaner has emptied it
            return batch if header.next_offset == self.job.end_offset else None
        try:
            commit = decode_marker(batch).commit
        except KafkaError:
            return batch  # a control batch of an unknown type is kept
        try:
            if self.transactions.end(header.producer_id, commit):
                return batch
        except ValueError as error:
            raise source.corrupt(position, str(error)) from error
        horizon = header.delete_horizon_ms
        if horizon is None:
            body, places = self._places(header, batch)
            if not places:
                return batch
            return self._with_horizon(header, body, places, header.max_timestamp)
        is_needed = header.next_offset == self.job.end_offset or self._is_last_of_producer(header)
        return batch if horizon > self.job.wall_ms or is_needed else None

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether the state of a known producer is restored from this batch.

        The state is restored from the last batch of the producer's data or, if it has no data, from
        a marker of its epoch.
        """
        last = self.job.last_batches.get(header.producer_id)
        if last is None:
            return False
        offset, epoch = last
        if offset >= 0:
            return not header.is_control and header.last_offset == offset
        return header.is_control and header.producer_epoch == epoch


def _time_of(header: BatchHeader) -> int:
    """The timestamp of the batch for the time index, -1 if the batch has no records."""
    return header.max_timestamp if header.record_count else -1


# --- reading ------------------------------------------------------------------------------------


class _Source:
    """One old segment, whose batches are read in order. Every batch is checked before it is
    used.
    """

    def __init__(self, disk: Disk, directory: str, base_offset: int, size: int) -> None:
        self._path = f"{directory}/{offset_name(base_offset)}{LOG_SUFFIX}"
        self._base_offset, self._size = base_offset, size
        self._file = disk.open(self._path)

    def __enter__(self) -> _Source:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def batches(self, end: int | None = None) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Iterate over the position, header and bytes of each batch up to `end`. Raises:
        CorruptLog.
        """
        file = self._file
        end = self._size if end is None else end
        position, least_offset = 0, self._base_offset
        most_offset = least_offset + HIGHEST_RELATIVE_OFFSET
        chunk, chunk_at = memoryview(b""), 0
        while position < end:
            at = position - chunk_at
            if at + HEADER_SIZE > len(chunk):
                chunk, chunk_at, at = (
                    memoryview(file.pread(min(_READ_BYTES, end - position), position)),
                    position,
                    0,
                )
                if len(chunk) < HEADER_SIZE:
                    raise self.corrupt(position, "a batch is cut off")
            header = read_header(chunk, at)
            size = header.size_bytes
            if header.magic != MAGIC or size < HEADER_SIZE or position + size > end:
                raise self.corrupt(position, "no batch begins there")
            if not least_offset <= header.base_offset <= header.last_offset <= most_offset:
                raise self.corrupt(
                    position, f"a batch of the offsets {header.base_offset} to {header.last_offset}"
                )
            if at + size > len(chunk):
                chunk, chunk_at, at = (
                    memoryview(file.pread(min(max(_READ_BYTES, size), end - position), position)),
                    position,
                    0,
                )
                if len(chunk) < size:
                    raise self.corrupt(position, "a batch is cut off")
            batch = chunk[at : at + size]
            if not has_right_crc(batch, header):
                raise self.corrupt(position, "the CRC of a batch is wrong")
            yield position, header, batch
            least_offset = header.last_offset + 1
            position += size

    def corrupt(self, position: int, why: str) -> CorruptLog:
        """The error for a damaged file."""
        return CorruptLog(
            self._path,
            position,
            why,
            "The log is not compacted until the file is repaired; restore it from a copy",
        )
