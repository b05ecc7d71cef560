"""The recent log of one partition as spans: committed, aborted and open data, and markers.

There are two steps. `take_window` runs in the loop's thread and reads no batch. It returns slices
of files, and the log's open and aborted transactions. `read_strip` reads the headers of batches
from those slices, in any thread. It classifies a batch as a read_committed consumer does (KIP-98,
"Fetch"), and also distinguishes batches of open transactions:

    batch                                        kind
    a control batch                              COMMIT_MARKER or ABORT_MARKER
    a batch without a transaction                PLAIN
    its producer has an open transaction that
      began at this offset or before             OPEN
    its producer has an aborted transaction that
      began at this offset or before, and whose
      abort marker comes after the batch         ABORTED
    any other batch of a transaction             COMMITTED

A span is a sequence of batches of one kind and one transaction. It never crosses the last stable
offset or the high watermark. A sequence without a transaction is divided at fixed offsets, so that
spans do not change while the log grows. Offsets that compaction has removed are also a span, of the
kind GAP.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records import (
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    BatchHeader,
    decode_marker,
    read_header,
)
from barnabas.storage.disk import Slice
from barnabas.storage.files.txn_index import AbortedTxn
from barnabas.storage.log.log import Log
from barnabas.storage.segments.segment import Segment

PLAIN, COMMITTED, ABORTED, OPEN = "plain", "committed", "aborted", "open"
COMMIT_MARKER, ABORT_MARKER, GAP = "commit", "abort", "gap"

# the number of index entries in a window; each covers one batch, or about 4 KiB of small batches
MOST_INDEX_ENTRIES = 48
PLAIN_DIVISIONS = 64
MOST_MARKER_BYTES = 4096
# the maximum number of aborted transactions taken from the index of one segment
MOST_ABORTED = 5000
_CHUNK_BYTES = 16 * 1024


class Window(NamedTuple):
    """The part of one partition that is to be read, as it was at one moment.

    end_offset: the exclusive end of the part. open_transactions: the producer id and first offset
    of each open transaction, in the order of the offsets. aborted: the aborted transactions that
    overlap the window.
    """

    topic: str
    partition: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int
    end_offset: int
    slices: tuple[Slice, ...]
    open_transactions: tuple[tuple[int, int], ...]
    aborted: tuple[AbortedTxn, ...]


class Transaction(NamedTuple):
    """A transaction, as a strip shows it.

    fate: COMMITTED, ABORTED or OPEN. first_offset: -1 if it began before the strip, at an
    unknown offset. marker_offset: -1 if its marker is not in the strip.
    """

    producer_id: int
    producer_epoch: int
    fate: str
    first_offset: int
    marker_offset: int


class Span(NamedTuple):
    """A sequence of batches. transaction: the index of its transaction in the strip's list, or
    -1.
    """

    kind: str
    first_offset: int
    end_offset: int
    batch_count: int
    record_count: int
    size_bytes: int
    transaction: int


class Strip(NamedTuple):
    """A window with its spans. If there is an `error`, the spans end before the unreadable part."""

    window: Window
    spans: tuple[Span, ...]
    transactions: tuple[Transaction, ...]
    error: str


# --- in the loop's thread -----------------------------------------------------------------------


def take_window(
    log: Log, before: int | None = None, index_entries: int = MOST_INDEX_ENTRIES
) -> Window:
    """The window of the log's last batches, or of the last batches that begin below `before`.

    Raises: CorruptLog.
    """
    end_offset = log.log_end_offset if before is None else min(before, log.log_end_offset)
    segments = log.segments
    slices: list[Slice] = []
    at = max(bisect_right(segments.base_offsets, end_offset - 1), 1)
    segment, first_offset, left = segments[at - 1], log.log_start_offset, index_entries
    for segment in reversed(segments[:at]):
        index = segment.indexes.offset_index()
        below = bisect_left(index.offsets, end_offset - segment.base_offset)
        # The entry at `below` is for the batch that contains the end. This batch is shown if it
        # begins below the end.
        stop = index.positions[below + 1] if below + 1 < len(index) else segment.batches.size
        first = max(below - left, 0)
        start = index.positions[first] if first else 0
        first_offset = segment.base_offset + (index.offsets[first - 1] + 1 if first else 0)
        first_offset = max(first_offset, log.log_start_offset)
        if stop > start:
            slices.append(Slice(segment.batches.file, start, stop - start))
        left -= below + 1
        if left <= 0 or first_offset <= log.log_start_offset:
            break
    return Window(
        log.topic,
        log.partition,
        log.log_start_offset,
        log.last_stable_offset,
        log.high_watermark,
        log.log_end_offset,
        end_offset,
        tuple(reversed(slices)),
        tuple(log.producer_state.open_txns.items()),
        tuple(_aborted_transactions(log, segment, first_offset, end_offset)),
    )


def _aborted_transactions(
    log: Log, segment: Segment, first_offset: int, end_offset: int
) -> list[AbortedTxn]:
    """The aborted transactions that end at or after an offset, ordered by their first offsets."""
    aborted: list[AbortedTxn] = []
    for later in log.segments.since(segment):
        entries = log.reader.txn_index(later).entries
        at = bisect_left(entries, first_offset, key=lambda entry: entry.last_offset)
        for entry in entries[at : at + MOST_ABORTED]:
            if entry.first_offset < end_offset:
                aborted.append(AbortedTxn(entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= end_offset:
                break
        else:
            continue
        break
    return sorted(aborted, key=lambda row: row.first_offset)


# --- in any thread ------------------------------------------------------------------------------


class UnreadableBatch(Exception):
    """A batch should begin at a position of a file, but there is none."""


def read_strip(window: Window, most_spans: int) -> Strip:
    """The last spans of a window. Raises: OSError."""
    walk = _Walk(window)
    error = ""
    try:
        for slice in window.slices:
            for header, marker in headers_in(slice):
                if header.base_offset >= window.end_offset:
                    break
                if header.last_offset >= window.log_start_offset:
                    walk.add(header, marker)
    except UnreadableBatch as unreadable:
        error = str(unreadable)
    return walk.strip(most_spans, error)


def headers_in(slice: Slice) -> Iterator[tuple[BatchHeader, bool | None]]:
    """The header of each batch that begins in a slice, and for a control batch, whether it commits.

    Raises: UnreadableBatch, OSError.
    """
    file, position, size = slice
    end = position + size
    chunk, chunk_at = b"", position
    while position + HEADER_SIZE <= end:
        at = position - chunk_at
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_at, at = (
                file.pread(min(_CHUNK_BYTES, end - position), position),
                position,
                0,
            )
            if len(chunk) < HEADER_SIZE:
                raise UnreadableBatch(f"{file.path}, byte {position}: a batch is cut off")
        header = read_header(chunk, at)
        if header.magic != MAGIC or header.batch_length < HEADER_SIZE - LENGTH_END:
            raise UnreadableBatch(f"{file.path}, byte {position}: no batch begins there")
        yield header, _is_commit(slice, position, header) if header.is_control else None
        position += header.size_bytes


def _is_commit(slice: Slice, position: int, header: BatchHeader) -> bool | None:
    """Whether the marker at a position commits; None if it cannot be read."""
    if header.size_bytes > MOST_MARKER_BYTES:
        return None
    try:
        return decode_marker(slice.file.pread(header.size_bytes, position)).commit
    except (KafkaError, IndexError):
        return None


class Kinds:
    """Classifies the batches of a window in the order of their offsets; see the table in the module
    docstring.

    open_from: the first offset of each open transaction, by producer id. aborting: the first offset
    of each aborted transaction that has begun and whose marker has not been added yet, by producer
    id.
    """

    def __init__(self, window: Window) -> None:
        self.open_from = dict(window.open_transactions)
        self.aborting: dict[int, int] = {}
        self._to_abort = deque(window.aborted)

    def of(self, header: BatchHeader, is_commit: bool | None) -> str:
        """The kind of the next batch. If the batch is a marker, the caller has to call `ended`
        afterwards.
        """
        while self._to_abort and self._to_abort[0].first_offset <= header.last_offset:
            begun = self._to_abort.popleft()
            self.aborting[begun.producer_id] = begun.first_offset
        if header.is_control:
            return COMMIT_MARKER if is_commit else ABORT_MARKER
        if not header.is_transactional:
            return PLAIN
        open_from = self.open_from.get(header.producer_id)
        if open_from is not None and header.base_offset >= open_from:
            return OPEN
        return ABORTED if header.producer_id in self.aborting else COMMITTED

    def ended(self, header: BatchHeader) -> int:
        """Process a marker. Gives: the first offset of the aborted transaction that the marker
        ends, or -1.
        """
        return self.aborting.pop(header.producer_id, -1)


class _Walk:
    """Makes the spans of a window from its batches, which are added in the order of their
    offsets.
    """

    def __init__(self, window: Window) -> None:
        self._window = window
        self._kinds = Kinds(window)
        self._spans: list[Span] = []
        self._transactions: list[Transaction] = []
        self._latest: dict[int, int] = {}
        self._next_offset = -1
        self._division = 1
        self._begin = 0

    def add(self, header: BatchHeader, is_commit: bool | None) -> None:
        """Add the next batch."""
        first = header.base_offset
        if self._next_offset not in (-1, first) and first > self._next_offset:
            self._append(Span(GAP, self._next_offset, first, 0, 0, 0, -1))
        if self._next_offset == -1:
            self._begin = first
            count = max(1, self._window.end_offset - first)
            # the length of the divisions of PLAIN spans: a power of two, from the number of offsets
            # in the strip
            self._division = 1 << (count // PLAIN_DIVISIONS).bit_length()
        self._next_offset = header.next_offset
        kind, transaction = self._kinds.of(header, is_commit), -1
        if header.is_control:
            transaction = self._end(header, is_commit is True)
        elif kind != PLAIN:
            transaction = self._begin_or_go_on(header, kind)
        self._append(
            Span(
                kind,
                first,
                header.next_offset,
                1,
                header.record_count,
                header.size_bytes,
                transaction,
            )
        )

    def _begin_or_go_on(self, header: BatchHeader, fate: str) -> int:
        """The number of the transaction to which a batch belongs: the producer's latest
        transaction, if that has no marker yet and the same `fate`; otherwise a new transaction.
        """
        latest = self._latest.get(header.producer_id)
        if latest is not None:
            transaction = self._transactions[latest]
            if transaction.marker_offset < 0 and transaction.fate == fate:
                return latest
        if fate == OPEN:
            first_offset = self._kinds.open_from[header.producer_id]
        elif fate == ABORTED:
            first_offset = self._kinds.aborting[header.producer_id]
        else:  # the transaction may have begun before the strip, at an unknown offset
            first_offset = (
                -1 if latest is None and self._may_have_begun_before() else header.base_offset
            )
        return self._note(
            Transaction(header.producer_id, header.producer_epoch, fate, first_offset, -1)
        )

    def _may_have_begun_before(self) -> bool:
        return self._begin > 0

    def _note(self, transaction: Transaction) -> int:
        """Add a transaction as its producer's latest one. Gives: its number."""
        self._transactions.append(transaction)
        self._latest[transaction.producer_id] = len(self._transactions) - 1
        return len(self._transactions) - 1

    def _end(self, header: BatchHeader, is_commit: bool) -> int:
        """Add a marker. If the strip shows a part of its producer's transaction, the marker ends
        that transaction. Gives: the index of the marker's transaction.
        """
        fate = COMMITTED if is_commit else ABORTED
        aborted_from = self._kinds.ended(header)
        # A commit marker cannot end an aborted transaction, whose abort marker must be before the
        # strip.
        first_offset = -1 if is_commit else aborted_from
        latest = self._latest.get(header.producer_id)
        if latest is not None and self._transactions[latest].marker_offset < 0:
            ended = self._transactions[latest]
            self._transactions[latest] = ended._replace(marker_offset=header.base_offset)
            return latest
        return self._note(
            Transaction(
                header.producer_id, header.producer_epoch, fate, first_offset, header.base_offset
            )
        )

    def _append(self, span: Span) -> None:
        """Join a span to the last one, or add it after the last one.

        Spans of markers are not joined, nor are spans of different kinds or of different
        transactions. The same holds for spans on both sides of the last stable offset, the high
        watermark, or a fixed division of PLAIN.
        """
        last = self._spans[-1] if self._spans else None
        bounds = (self._window.last_stable_offset, self._window.high_watermark)
        if (
            last is None
            or last.kind != span.kind
            or last.transaction != span.transaction
            or span.kind in (COMMIT_MARKER, ABORT_MARKER)
            or span.first_offset in bounds
            or (
                span.kind == PLAIN
                and span.first_offset // self._division != last.first_offset // self._division
            )
        ):
            self._spans.append(span)
            return
        self._spans[-1] = last._replace(
            end_offset=span.end_offset,
            batch_count=last.batch_count + span.batch_count,
            record_count=last.record_count + span.record_count,
            size_bytes=last.size_bytes + span.size_bytes,
        )

    def strip(self, most_spans: int, error: str) -> Strip:
        """The last spans, with the transactions that they belong to."""
        spans = self._spans[-most_spans:]
        places: dict[int, int] = {}
        for span in spans:
            if span.transaction >= 0:
                places.setdefault(span.transaction, len(places))
        shown = tuple(span._replace(transaction=places.get(span.transaction, -1)) for span in spans)
        transactions = tuple(self._transactions[place] for place in places)
        return Strip(self._window, shown, transactions, error)
