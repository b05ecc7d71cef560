"""One partition's log: its segments, its offsets, and what it knows of its producers.

An append checks a batch, gives it offsets, and writes the bytes as they were received; a read
answers with a slice of one segment's file. There is one replica, so the high watermark is the end
of the log; with flush.messages=1 it is what the disk has. After every change

    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset

The order within an append: check everything, write the batch, then take it into the indexes, the
producers' state and the offsets. A write that fails leaves no state behind and is fatal: the log
directory is taken off line and nothing is rolled back.
"""

from __future__ import annotations

import logging
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterator
from enum import Enum, IntEnum
from functools import partial
from heapq import heapify, heappop, heappush
from typing import NamedTuple
from zlib import crc32

from crc32c import crc32c

from barnabas.protocol.compression import TooLargeError
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.records import (
    CONTROL,
    HEADER_SIZE,
    LENGTH_END,
    MAX_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    batch_size_of,
    decode_marker,
    encode_marker,
    has_right_crc,
    read_header,
    set_offset_and_epoch,
)
from barnabas.protocol.wall_clock import WallClock
from barnabas.storage.checkpoints import (
    LEADER_EPOCH_NAME,
    MANIFEST_NAME,
    Manifest,
    SegmentNote,
    encode_epochs,
)
from barnabas.storage.disk import DirectorySync, Disk, File, Syncable, is_want_of_room
from barnabas.storage.flush_journal import JournalEntry
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.log_config import LogConfig
from barnabas.storage.producer_state import (
    REMEMBERED_BATCHES,
    BatchMeta,
    CompletedTxn,
    CorruptSnapshot,
    ProducerEntry,
    ProducerStateManager,
)
from barnabas.storage.segment import (
    DELETED_SUFFIX,
    HIGHEST_RELATIVE_OFFSET,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    CorruptLog,
    IndexCache,
    Segment,
    offset_name,
)
from barnabas.storage.time_search import BatchSearch, Searched
from barnabas.storage.txn_index import AbortedEntry, AbortedTxn, TxnIndex
from barnabas.storage.validate import (
    AppendRefused,
    Checked,
    Rules,
    check_client_batch,
    with_append_time,
)

KEPT_SNAPSHOTS = 2
NO_LEADER_EPOCH = -1
_RECENT_BATCHES = 128
UNREAD_BATCH_BYTES = 8192  # reading a batch again costs as much as so many bytes more
_MOST_HEADERS_REMEMBERED = (
    1 << 18
)  # how far back a producer's earlier batches are looked for: about half a second

logger = logging.getLogger(__name__)


class AppendOrigin(Enum):
    """Who made a batch: a client, whom nothing is believed, or our own coordinators."""

    CLIENT = 0
    COORDINATOR = 1


class Isolation(IntEnum):
    """As it stands in a Fetch request."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class AppendInfo(NamedTuple):
    """What became of a batch. last_offset is inclusive; log_append_time_ms is -1 where the records
    keep the producer's time.

    Of a duplicate: the offsets and the time of the batch that it repeats.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool


class Slice(NamedTuple):
    """Bytes of one segment's file, to be sent as they are."""

    file: File
    position: int
    size: int


class FetchData(NamedTuple):
    """What a fetch gets. `aborted` is None for readers that do not ask for it."""

    slice: Slice | None
    aborted: list[AbortedTxn] | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class FlushToken(NamedTuple):
    """Fsync each of the files, in any thread; then all below end_offset is durable.

    base_offset, end_position: the active segment, and its size when the flush began. in_place: the
    files are the log's own, not a journal.
    """

    files: tuple[Syncable, ...]
    end_offset: int
    base_offset: int
    end_position: int
    in_place: bool


class LogEnd(NamedTuple):
    """Where a log ended at some time: the offset, and the segment's base offset and the position in
    its file.
    """

    offset: int
    base_offset: int
    position: int


class TimestampOffset(NamedTuple):
    """A record found by its time."""

    timestamp: int
    offset: int
    leader_epoch: int


class ActiveProducer(NamedTuple):
    """A producer that a partition remembers. -1 stands for none: no batch yet, no marker yet, no
    open transaction.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


class Trash:
    """Paths that are out of use and go from the disk a while later, so that readers may finish.
    Shared by the logs of a directory.
    """

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, due_ms: int, path: str) -> None:
        heappush(self._heap, (due_ms, path))

    def next_due_ms(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int, most: int) -> list[str]:
        """At most so many of the paths whose time has come, the earliest first; they are no longer
        here then.
        """
        due: list[str] = []
        while self._heap and self._heap[0][0] <= now_ms and len(due) < most:
            due.append(heappop(self._heap)[1])
        return due

    def forget_in(self, directories: Container[str]) -> None:
        """What lies in these directories goes another way."""
        self._heap = [
            (due_ms, path)
            for due_ms, path in self._heap
            if path.rpartition("/")[0] not in directories
        ]
        heapify(self._heap)


class Log:
    """The log of one partition. Built by `LogManager.create` or by `recovery.load_log`.

    recovery_point: all below it is durable in its own files; all below durable_offset is there or
    in a flush journal. leader_epoch: given to every batch appended. unread_bytes: what a start
    after a kill would read, because it came since the last checkpoint; a batch counts as its size
    and UNREAD_BATCH_BYTES. wall: shared with the manager, too. Records are stamped and kept by it;
    all else runs on the steady `now_ms`. start_changed, trash, changed: shared with the manager,
    which writes the checkpoints and removes the files. `changed` has the logs that are not as their
    last checkpoint says, in the order in which they came to be so, with the time.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        topic: str,
        partition: int,
        topic_id: uuid.UUID,
        config: LogConfig,
        *,
        segments: list[Segment],
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        producer_state: ProducerStateManager,
        epochs: LeaderEpochs,
        snapshots: list[int],
        cache: IndexCache,
        trash: Trash | None = None,
        start_changed: set[tuple[str, int]] | None = None,
        changed: dict[Log, int] | None = None,
        directory_is_durable: bool = True,
    ) -> None:
        assert segments, "a log has at least one segment"
        self.disk = disk
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.segments = segments
        self.active = segments[-1]
        self._bases = [segment.base_offset for segment in segments]
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = self.last_stable_offset = max(log_start_offset, recovery_point)
        self.recovery_point = self.durable_offset = recovery_point
        self._durable_position = self.active.size if recovery_point == log_end_offset else -1
        self.producer_state = producer_state
        self.epochs = epochs
        self.leader_epoch = max(epochs.latest, 0)
        self._has_new_epoch = False
        self._unflushed_ends: list[tuple[int, int]] = []
        self.snapshots = snapshots
        self.cache = cache
        self.trash = trash if trash is not None else Trash()
        self.start_changed = start_changed if start_changed is not None else set()
        self.changed = changed if changed is not None else {}
        self.unread_bytes = 0
        self._producers_went = False
        self._closed_bytes = sum(segment.size for segment in segments[:-1])
        self._unflushed = [
            segment
            for segment in segments
            if segment is self.active or self._end_of(segment) > recovery_point
        ]
        self._directory_changed = not directory_is_durable
        self._new_paths: list[str] = []
        self._state_when_closed: tuple[int, int, int] | None = None
        self.wall = WallClock()
        self._recent: dict[int, int] = {}
        self._older: dict[int, int] = {}
        self._stable_end: tuple[int, Segment, int] = (-1, self.active, 0)
        self.config = config
        self._update_stable()

    # --- settings --------------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._rules = Rules.of(config)
        self._segment_bytes, self._roll_ms = config.segment_bytes, config.roll_ms
        self._waits_for_disk = config.flush_messages <= 1
        if not self._waits_for_disk:
            self.high_watermark = self.log_end_offset
            self._update_stable()
        self.active.index_interval_bytes = config.index_interval_bytes

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """A broker took the log up: what is appended from now on is of this epoch, which is above
        all before it (KIP-101).
        """
        self.epochs.begin(leader_epoch, self.log_end_offset)
        self.leader_epoch = leader_epoch
        self._has_new_epoch = True

    # --- appending -------------------------------------------------------------------------------

    def append(
        self,
        batch: memoryview | bytearray,
        *,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        at_once: bool = False,
        checked: Checked | None = None,
    ) -> AppendInfo:
        """Check one batch, give it offsets, write it to the active segment.

        Takes:  batch, writable: of a client the records field of one partition, of a coordinator
                one batch that we made. The base offset and the leader epoch are overwritten in
                place (and the clock or the codec where the topic says so). at_once: a client's
                batch that takes long to check is left as it is. checked: what `check_client_batch`
                made of it, by the rules that hold now. What depends on the log and its producers is
                looked at here: nothing comes in between.
        Gives:  first_offset, last_offset (inclusive), log_append_time_ms; those of the earlier
                batch where this one repeats it.
        Raises: AppendRefused, see validate; TakesLongError, only where at_once; KafkaError
                OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE,
                TRANSACTION_COORDINATOR_FENCED. OSError is fatal.
        After:  log_end_offset = last_offset + 1 unless it is a duplicate.
        Source: KIP-98 (idempotence).
        """
        view = batch if isinstance(batch, memoryview) else memoryview(batch)
        if origin is not AppendOrigin.CLIENT:
            return self._append_own(view, now_ms)
        rules = self._rules
        if checked is None:
            checked = check_client_batch(view, rules, self.wall.at(now_ms), at_once=at_once)
        elif rules.log_append_time:
            checked = with_append_time(checked, self.wall.at(now_ms))
        view, size, attributes, last_delta, max_timestamp, producer_id, epoch, sequence = checked  # type: ignore[assignment]
        if size > self._segment_bytes:
            raise AppendRefused(
                Code.RECORD_LIST_TOO_LARGE,
                f"{size} bytes do not fit a segment of {self._segment_bytes}",
                knows_log_start=False,
            )
        if producer_id >= 0:
            last_sequence = (sequence + last_delta) & MAX_SEQUENCE
            transactional = attributes & TRANSACTIONAL != 0
            duplicate = self.producer_state.check_batch(
                producer_id, epoch, sequence, last_sequence, transactional, self._remember
            )
            if duplicate is not None:
                return AppendInfo(
                    duplicate.first_offset, duplicate.last_offset, duplicate.timestamp, True
                )
            first_offset, last_offset = self._write(view, size, last_delta, max_timestamp, now_ms)
            self.producer_state.on_batch(
                producer_id,
                epoch,
                sequence,
                last_sequence,
                first_offset,
                last_offset,
                max_timestamp,
                transactional,
                now_ms,
            )
        else:
            first_offset, last_offset = self._write(view, size, last_delta, max_timestamp, now_ms)
        self._advance(last_offset + 1)
        return AppendInfo(
            first_offset, last_offset, max_timestamp if rules.log_append_time else -1, False
        )

    @property
    def rules(self) -> Rules:
        """What `check_client_batch` is to check by; equal ones are the same rules."""
        return self._rules

    def append_marker(
        self,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        now_ms: int,
        timestamp: int | None = None,
        is_decided: bool = True,
    ) -> AppendInfo:
        """End the producer's transaction on this partition. A marker is written even where none is
        open, as Apache Kafka does.

        Takes:  timestamp, the marker's; the wall clock's where it is not given. is_decided: a
                coordinator's decision brings the marker back where a power loss takes it. Else,
                with flush.messages=1, the transaction is not stable before the disk has the marker.
        Raises: KafkaError INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        After:  last_stable_offset is past the transaction unless an earlier one is open; an aborted
                one with data is in the index.
        Source: KIP-98, "Control messages".
        """
        self.producer_state.check_marker(producer_id, producer_epoch, coordinator_epoch)
        time_ms = self.wall.at(now_ms) if timestamp is None else timestamp
        batch = encode_marker(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=time_ms,
        )
        first_offset = self.producer_state.open_txns.get(producer_id)
        offset, _ = self._write(batch, len(batch), 0, time_ms, now_ms)
        if self._waits_for_disk and not is_decided and first_offset is not None:
            self._unflushed_ends.append((first_offset, offset))
        self._on_marker(
            producer_id, producer_epoch, coordinator_epoch, commit, offset, time_ms, now_ms
        )
        self._advance(offset + 1)
        return AppendInfo(offset, offset, -1, False)

    def _append_own(self, view: memoryview, now_ms: int) -> AppendInfo:
        """A batch of ours: believed, but for the epochs of markers."""
        header = read_header(view)
        assert header.size_bytes == len(view), "a coordinator appends one whole batch"
        if header.is_control:
            marker = decode_marker(view)
            self.producer_state.check_marker(
                header.producer_id, header.producer_epoch, marker.coordinator_epoch
            )
        first_offset, last_offset = self._write(
            view, len(view), header.last_offset_delta, header.max_timestamp, now_ms
        )
        if header.is_control:
            self._on_marker(
                header.producer_id,
                header.producer_epoch,
                marker.coordinator_epoch,
                marker.commit,
                first_offset,
                header.max_timestamp,
                now_ms,
            )
        elif header.producer_id >= 0:
            self.producer_state.on_batch(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.last_sequence,
                first_offset,
                last_offset,
                header.max_timestamp,
                header.is_transactional,
                now_ms,
            )
        self._advance(last_offset + 1)
        return AppendInfo(first_offset, last_offset, -1, False)

    def _write(
        self,
        view: memoryview | bytearray,
        size: int,
        last_delta: int,
        max_timestamp: int,
        now_ms: int,
    ) -> tuple[int, int]:
        """Give the batch its offsets and write it; gives the first and the last. The caller takes
        it into the state and advances.
        """
        if self._has_new_epoch:
            self._write_new_epoch()
        segment = self.active
        first_offset = self.log_end_offset
        last_offset = first_offset + last_delta
        if segment.size and (
            segment.size > self._segment_bytes - size
            or last_offset - segment.base_offset > HIGHEST_RELATIVE_OFFSET
            or self._is_time_to_roll(segment, max_timestamp, now_ms)
            or segment.is_full(self._config.segment_index_bytes)
        ):
            self._roll(now_ms)
            segment = self.active
        set_offset_and_epoch(view, first_offset, self.leader_epoch)
        position = segment.append(view, size, last_offset, max_timestamp)
        recent = self._recent
        recent[first_offset] = position
        if len(recent) >= _RECENT_BATCHES:
            self._older, self._recent = recent, {}
        if not self.unread_bytes:
            self.changed.setdefault(self, now_ms)
        self.unread_bytes += size + UNREAD_BATCH_BYTES
        return first_offset, last_offset

    def _write_new_epoch(self) -> None:
        epochs = self.epochs
        is_longer = epochs.entries[: len(epochs.written)] == epochs.written
        epochs.write()
        if not is_longer:  # else the next start would take the file for a damaged one
            self.checkpoint()
        self._has_new_epoch = False

    def _advance(self, end_offset: int) -> None:
        """The log ends there now, and all producers' state has been told."""
        self.log_end_offset = end_offset
        state = self.producer_state
        state.end_offset = end_offset
        if self._waits_for_disk:
            self._update_stable()
            return
        self.high_watermark = end_offset
        if state.open_txns:
            self._update_stable()
        else:
            self.last_stable_offset = end_offset

    def _update_stable(self) -> None:
        stable = self.high_watermark
        first_open = self.producer_state.first_open_offset()
        if first_open is not None and first_open < stable:
            stable = first_open
        if self._unflushed_ends:
            self._unflushed_ends = [
                end for end in self._unflushed_ends if end[1] >= self.high_watermark
            ]
            stable = min([stable, *(first for first, _ in self._unflushed_ends)])
        self.last_stable_offset = max(stable, self.log_start_offset)
        assert (
            self.log_start_offset
            <= self.last_stable_offset
            <= self.high_watermark
            <= self.log_end_offset
        ), (
            f"{self!r}: {self.log_start_offset} <= {self.last_stable_offset} <= "
            f"{self.high_watermark} <= {self.log_end_offset}"
        )

    def _on_marker(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        commit: bool,
        offset: int,
        timestamp: int,
        now_ms: int,
    ) -> None:
        completed = self.producer_state.on_marker(
            producer_id, epoch, coordinator_epoch, commit, offset, timestamp, now_ms
        )
        if completed is not None and completed.aborted:
            self.active.append_aborted(aborted_entry(completed))

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer has a transaction open here: what it writes now needs no
        verification.
        """
        return self.producer_state.has_ongoing_transaction(producer_id, producer_epoch)

    def has_ongoing_transaction_of(self, producer_id: int) -> bool:
        """The same whatever its epoch."""
        return producer_id in self.producer_state.open_txns

    def first_offset_of_transaction(self, producer_id: int) -> int | None:
        """Where the producer's open transaction begins here; None where none is open."""
        return self.producer_state.open_txns.get(producer_id)

    def open_transactions(self) -> list[int]:
        """The producers with a transaction open here, in the order of its beginning."""
        return list(self.producer_state.open_txns)

    def ended_before_open_transaction(self, producer_id: int, marker_timestamp: int) -> bool:
        """Whether the producer has a transaction open here that began after a marker of its own of
        that time or later.
        """
        first_offset = self.producer_state.open_txns.get(producer_id)
        if first_offset is None:
            return False
        for segment in reversed(self.segments):
            if segment.base_offset >= first_offset:
                continue
            last: BatchHeader | None = None
            for _, header in segment.headers():
                if header.base_offset >= first_offset:
                    break
                if header.producer_id == producer_id and header.is_control:
                    last = header
            if last is not None:
                return last.max_timestamp >= marker_timestamp
        return False

    def producer_epoch_of(self, producer_id: int) -> int:
        """The epoch that the producer wrote with last; -1 where it is not known."""
        entry = self.producer_state.producers.get(producer_id)
        return -1 if entry is None else entry.producer_epoch

    def coordinator_epoch_of(self, producer_id: int) -> int:
        """The epoch of the coordinator that last ended a transaction of the producer here; 0 where
        none did.
        """
        entry = self.producer_state.producers.get(producer_id)
        return 0 if entry is None else max(entry.coordinator_epoch, 0)

    def active_producers(self) -> list[ActiveProducer]:
        """The producers that are remembered, as KIP-664 shows them."""
        return [
            ActiveProducer(
                entry.producer_id,
                entry.producer_epoch,
                entry.last_sequence,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.txn_first_offset,
            )
            for entry in self.producer_state.producers.values()
        ]

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that were idle for producer.id.expiration.ms. Gives how many."""
        count = self.producer_state.expire(now_ms, self._config.producer_id_expiration_ms)
        if count:
            self._producers_went = True
            self.changed.setdefault(self, now_ms)
        return count

    def _remember(self, entry: ProducerEntry) -> None:
        """Find in the log the batches before those that a snapshot gave, so that a repeated one is
        recognised.
        """
        entry.window_known = True
        oldest = entry.batches[0].first_offset if entry.batches else self.log_end_offset
        found: list[BatchMeta] = []
        wanted = REMEMBERED_BATCHES - len(entry.batches)
        try:
            for header in self._batches_before(oldest):
                if header.producer_id != entry.producer_id or header.is_control:
                    continue
                if header.producer_epoch != entry.producer_epoch or len(found) == wanted:
                    break
                found.append(
                    BatchMeta(
                        header.base_sequence,
                        header.last_sequence,
                        header.base_offset,
                        header.last_offset,
                        header.max_timestamp,
                    )
                )
                if header.base_sequence == 0:
                    break
        except CorruptLog as error:
            logger.error(
                "%r: batches of producer %d cannot be looked for: %s",
                self,
                entry.producer_id,
                error,
            )
        entry.batches = [*reversed(found[:wanted]), *entry.batches]

    def _batches_before(self, offset: int) -> Iterator[BatchHeader]:
        """The headers of the batches below `offset`, latest first, as far back as is bearable."""
        left = _MOST_HEADERS_REMEMBERED
        for segment in reversed(self.segments[: bisect_right(self._bases, offset)]):
            index = segment.trusted_offset_index()
            below = bisect_left(
                index.offsets, offset - segment.base_offset
            )  # from that entry's batch on all is above
            stops = [
                0,
                *index.positions[:below],
                index.positions[below] if below < len(index) else segment.size,
            ]
            for start, end in zip(reversed(stops[:-1]), reversed(stops[1:]), strict=True):
                part = [
                    header
                    for _, header in segment.headers(start, end)
                    if header.last_offset < offset
                ]
                yield from reversed(part)
                left -= len(part)
                if left < 0:
                    return

    # --- rolling ---------------------------------------------------------------------------------

    def _is_time_to_roll(self, segment: Segment, newest_timestamp: int, now_ms: int) -> bool:
        """Segments roll by their batches' own times: the newest against that of the first; without
        times by the broker's clock.
        """
        first = segment.first_batch_timestamp()
        waited = newest_timestamp - first if first >= 0 else now_ms - segment.created_ms
        return waited > self._roll_ms - self._jitter_ms(segment)

    def _jitter_ms(self, segment: Segment) -> int:
        """Spreads the rolling of many partitions: a share of segment.jitter.ms that is always the
        same for one segment.
        """
        if not self._config.segment_jitter_ms:
            return 0
        jitter = min(self._config.segment_jitter_ms, self._roll_ms)
        return (
            crc32(f"{self.topic} {self.partition} {segment.base_offset}".encode()) % jitter
            if jitter > 0
            else 0
        )

    def _roll(self, now_ms: int) -> None:
        """Close the active segment and begin one at the end of the log, with a snapshot of the
        producers and a manifest as of there.

        Raises: OSError; the log is as it was then, and may be rolled another time.
        Order:  all files that can fail to be written, then the change of state; the manifest of
                before is right, too, and waits for room.
        """
        self.take_snapshot()
        self.active.complete_indexes()
        segment = Segment.create(
            self.disk,
            self.directory,
            self.log_end_offset,
            now_ms=now_ms,
            cache=self.cache,
            index_interval_bytes=self._config.index_interval_bytes,
        )
        closed = self.active
        closed.manifest = None  # it has grown since
        self._closed_bytes += closed.size
        self.segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment
        self._unflushed.append(segment)
        self._durable_position = 0
        self._directory_changed = True
        self._recent, self._older = {}, {}
        closed.seal()
        try:
            self.write_manifest()
        except OSError as error:
            if not is_want_of_room(error):
                raise
            logger.warning("%r: its checkpoint waits for room: %s", self, error)
        else:
            self._note_checkpoint()

    def _try_roll(self, now_ms: int) -> bool:
        """Roll; False where there is no room for a new segment."""
        try:
            self._roll(now_ms)
        except OSError as error:
            if not is_want_of_room(error):
                raise
            logger.warning("%r: there is no room for a new segment: %s", self, error)
            return False
        return True

    # --- producer snapshots ----------------------------------------------------------------------

    def take_snapshot(self) -> None:
        """Write the producers' state as of the end of the log. The two latest are kept, and those
        at the segments' beginnings.
        """
        offset = self.log_end_offset
        self.disk.write_atomic(
            self._snapshot_path(offset), self.producer_state.encode_snapshot(), sync=False
        )
        if not self.snapshots or self.snapshots[-1] != offset:
            self.snapshots.append(offset)
        self._producers_went = False
        needed = {*self._bases, *self.snapshots[-KEPT_SNAPSHOTS:]}
        for old in [old for old in self.snapshots if old not in needed]:
            self.disk.unlink(self._snapshot_path(old))
            self.snapshots.remove(old)

    def _bring_snapshot_up(self) -> None:
        if not self.snapshots or self.snapshots[-1] != self.log_end_offset or self._producers_went:
            self.take_snapshot()

    def _snapshot_path(self, offset: int) -> str:
        return f"{self.directory}/{offset_name(offset)}{SNAPSHOT_SUFFIX}"

    def state_at(self, offset: int, now_ms: int = 0) -> ProducerStateManager:
        """The producers' state before the batch at `offset`, from the latest good snapshot below
        and the batches after it.
        """
        for at in reversed(self.snapshots):
            if at <= offset:
                try:
                    state = ProducerStateManager.decode_snapshot(
                        self.disk.read(self._snapshot_path(at)), at, now_ms
                    )
                except (FileNotFoundError, CorruptSnapshot) as error:
                    logger.warning(
                        "%s cannot be used (%s): an older one is", self._snapshot_path(at), error
                    )
                else:
                    break
        else:
            state = ProducerStateManager(self.segments[0].base_offset)
        for segment in self.segments:
            following = self._end_of(segment)
            if following > state.end_offset and segment.base_offset < offset:
                replay_segment(state, segment, state.end_offset, offset, now_ms)
        return state

    def _end_of(self, segment: Segment) -> int:
        """The base offset of the segment after it, or the end of the log."""
        at = bisect_right(self._bases, segment.base_offset)
        return self._bases[at] if at < len(self._bases) else self.log_end_offset

    # --- reading ---------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        isolation: Isolation | int = Isolation.READ_UNCOMMITTED,
        min_one_batch: bool,
    ) -> FetchData:
        """Find the bytes from the batch of `offset` on.

        Takes:  min_one_batch: give the first batch whole even if it is longer than max_bytes; else
                nothing is given then.
        Gives:  a slice of one segment, up to max_bytes, which may end within a batch; for
                READ_COMMITTED it ends at the last stable offset, and comes with the aborted
                transactions that touch it.
        Raises: KafkaError OFFSET_OUT_OF_RANGE; UNKNOWN_SERVER_ERROR for a negative max_bytes, as
                Apache Kafka answers; KAFKA_STORAGE_ERROR where the log cannot be read there.
        Source: KIP-98, "Fetch" (aborted transactions); KIP-74 (limits).
        """
        if offset > self.log_end_offset or offset < self.log_start_offset:
            raise KafkaError(
                Code.OFFSET_OUT_OF_RANGE,
                f"{offset} is not in [{self.log_start_offset}, {self.log_end_offset}]",
            )
        if max_bytes < 0:
            raise KafkaError(Code.UNKNOWN_SERVER_ERROR, f"max_bytes is {max_bytes}")
        committed = isolation == 1
        limit = self.last_stable_offset if committed else self.high_watermark
        found: Slice | None = None
        aborted: list[AbortedTxn] | None = [] if committed else None
        if offset < limit:
            try:
                segment, found = self._slice(offset, limit, max_bytes, min_one_batch)
                if aborted is not None and found is not None:
                    self._collect_aborted(offset, segment, found, aborted)
            except CorruptLog as error:
                logger.error("%r cannot be read at offset %d: %s", self, offset, error)
                raise KafkaError(Code.KAFKA_STORAGE_ERROR, str(error)) from error
        return FetchData(
            found, aborted, self.high_watermark, self.last_stable_offset, self.log_start_offset
        )

    def _slice(
        self, offset: int, limit: int, max_bytes: int, min_one_batch: bool
    ) -> tuple[Segment, Slice | None]:
        """The bytes from the batch of `offset` on that may be read, and their segment."""
        position = self._recent.get(offset, -1)
        if position < 0:
            position = self._older.get(offset, -1)
        first_size = 0
        segment = self.active
        if position < 0:
            place = self._place(offset)
            if place is None:
                return segment, None
            segment, position, first_size = place
        if limit == self.log_end_offset:
            end = segment.size
        else:
            stable = self._stable_end
            if stable[0] != limit:
                stable = self._stable_end = self._find_end(limit)
            end = stable[2] if stable[1] is segment else segment.size
        size = end - position
        if size > max_bytes:
            if not first_size:
                first_size = batch_size_of(segment.file.pread(LENGTH_END, position))
            if first_size > max_bytes:
                return segment, Slice(segment.file, position, first_size) if min_one_batch else None
            size = max_bytes
        return segment, Slice(segment.file, position, size) if size > 0 else None

    def _place(self, offset: int) -> tuple[Segment, int, int] | None:
        """Segment, position and size of the first batch whose last offset is not below `offset`."""
        at = max(bisect_right(self._bases, offset) - 1, 0)
        for segment in self.segments[at:]:
            place = segment.find(offset)
            if place is not None:
                if place.last_offset >= self._end_of(segment):
                    raise segment.corrupt(
                        place.position,
                        f"a batch reaches to offset {place.last_offset}, beyond the segment's end",
                    )
                return segment, place.position, place.size
        return None

    def _find_end(self, limit: int) -> tuple[int, Segment, int]:
        """Where reading ends that may not go beyond `limit`."""
        place = self._place(limit)
        return (
            (limit, place[0], place[1])
            if place is not None
            else (limit, self.active, self.active.size)
        )

    def _collect_aborted(
        self, offset: int, segment: Segment, found: Slice, into: list[AbortedTxn]
    ) -> None:
        """The aborted transactions between `offset` and the end of the slice, the latter as far as
        the offset index tells.
        """
        if segment is self.active and not self.txn_index(segment):
            return
        at = bisect_right(self._bases, segment.base_offset) - 1
        upper = segment.upper_bound_offset(found.position + found.size)
        if upper is None:
            upper = self._end_of(segment)
        for later in self.segments[at:]:
            if self.txn_index(later).collect(offset, upper, into):
                return

    def txn_index(self, segment: Segment) -> TxnIndex:
        """The aborted index of a segment, built anew where the one on disk is not known to be
        right.
        """
        if not segment.has_txn_index() and not segment.try_load_txn_index():
            index = TxnIndex()
            state = self.state_at(segment.base_offset)
            for completed in replay_segment(
                state, segment, segment.base_offset, self.log_end_offset, 0
            ):
                if completed.aborted:
                    index.append(aborted_entry(completed))
            segment.set_txn_index(index)
        return segment.txn_index()

    def read_batches(self, from_offset: int | None = None) -> Iterator[tuple[BatchHeader, bytes]]:
        """Each whole batch in order, from the one that holds `from_offset` (the log's start) on;
        with a right checksum. Raises CorruptLog.
        """
        offset = self.log_start_offset if from_offset is None else from_offset
        place = self._place(offset) if offset < self.log_end_offset else None
        if place is None:
            return
        segment, position, _ = place
        for later in self.segments[self.segments.index(segment) :]:
            for at, header in later.headers(position if later is segment else 0):
                batch = later.file.pread(header.size_bytes, at)
                if not has_right_crc(batch, header):
                    raise later.corrupt(at, "the CRC of a batch is wrong")
                yield header, batch

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Tell a client that knows another leader epoch, so that it asks for metadata and compares
        logs. -1: it knows none.

        Raises: KafkaError FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
        Source: KIP-320.
        """
        if current_leader_epoch in (NO_LEADER_EPOCH, self.leader_epoch):
            return
        code = (
            Code.FENCED_LEADER_EPOCH
            if current_leader_epoch < self.leader_epoch
            else Code.UNKNOWN_LEADER_EPOCH
        )
        raise KafkaError(
            code, f"{self!r} is in leader epoch {self.leader_epoch}, not {current_leader_epoch}"
        )

    # --- offsets by time and by epoch ------------------------------------------------------------

    def offset_for_timestamp(
        self,
        timestamp: int,
        *,
        upper_bound_offset: int | None = None,
        searched: Searched | None = None,
    ) -> TimestampOffset | None:
        """The first record whose time is not before `timestamp`; None if that is not below the
        bound, or not there.

        Takes:  searched, what came of searches that took long: only then one is put off.
        Raises: SearchTakesLong, only where `searched` is given.
        """
        for segment in list(self.segments):
            segment.load_times()
            if segment.max_timestamp < timestamp or self._end_of(segment) <= self.log_start_offset:
                continue
            found = self._search_times(segment, timestamp, searched)
            if found is not None:
                return (
                    found
                    if upper_bound_offset is None or found.offset < upper_bound_offset
                    else None
                )
        return None

    def _search_times(
        self, segment: Segment, timestamp: int, searched: Searched | None
    ) -> TimestampOffset | None:
        entry = segment.time_index().lookup(
            timestamp - 1
        )  # all up to an entry are at most as young as it
        start = max(
            segment.base_offset + entry.relative_offset if entry else segment.base_offset,
            self.log_start_offset,
        )
        place = segment.find(start)
        if place is None:
            return None
        for position, header in segment.headers(place.position):
            if header.max_timestamp >= timestamp and header.record_count:
                found = self._first_at_time(segment, position, header, timestamp, searched)
                if found is not None:
                    return found
        return None

    def _first_at_time(
        self,
        segment: Segment,
        position: int,
        header: BatchHeader,
        timestamp: int,
        searched: Searched | None,
    ) -> TimestampOffset | None:
        """The first record of a batch whose time is not before `timestamp`. A batch whose records
        cannot be read has none.

        Of one that decompresses to more than a batch may, the first stands for it: what is read
        from there on is not too little.
        """
        base_time = 0 if header.is_log_append_time else header.base_timestamp
        least_time = -(1 << 63) if header.is_log_append_time else timestamp - base_time
        least_delta = max(self.log_start_offset - header.base_offset, 0)
        search = BatchSearch(
            header.base_offset,
            header.crc,
            least_time,
            least_delta,
            header.codec,
            header.record_count,
            self.config.max_decompressed_bytes,
            lambda: segment.file.pread(header.size_bytes - HEADER_SIZE, position + HEADER_SIZE),
        )
        found = search.result(searched)
        if isinstance(found, TooLargeError):
            logger.warning(
                "%r: the records at offset %d are looked for by time no further than to their "
                "batch: %s",
                self,
                header.base_offset,
                found,
            )
            time = (
                header.max_timestamp
                if header.base_timestamp < timestamp or header.is_log_append_time
                else header.base_timestamp
            )
            return TimestampOffset(time, header.base_offset + least_delta, header.leader_epoch)
        if isinstance(found, Exception):
            logger.warning(
                "%r: the records at offset %d cannot be read, and are left out by time: %s",
                self,
                header.base_offset,
                found,
            )
            return None
        if found is None or not 0 <= found[1] <= header.last_offset_delta:
            return None
        time = header.max_timestamp if header.is_log_append_time else base_time + found[0]
        return TimestampOffset(time, header.base_offset + found[1], header.leader_epoch)

    def offset_of_max_timestamp(
        self, *, upper_bound_offset: int | None = None, searched: Searched | None = None
    ) -> TimestampOffset | None:
        """The first record of the highest time in the log (KIP-734); None without times, or where
        it is not below the bound.

        Takes and raises what `offset_for_timestamp` does.
        """
        best: tuple[int, int, Segment] | None = None
        for segment in self.segments:
            if self._end_of(segment) <= self.log_start_offset:
                continue
            segment.load_times()
            highest, at = segment.max_timestamp, segment.max_timestamp_offset
            if at < self.log_start_offset:
                highest, at = self._highest_from_start(segment)
            if highest >= 0 and (best is None or highest > best[0]):
                best = highest, at, segment
        if best is None:
            return None
        highest, at, segment = best
        place = segment.find(at)
        if place is None:
            return None
        for position, header in segment.headers(place.position):
            if header.max_timestamp == highest and header.record_count:
                found = self._first_at_time(segment, position, header, highest, searched)
                if found is not None:
                    return (
                        found
                        if upper_bound_offset is None or found.offset < upper_bound_offset
                        else None
                    )
        return None

    def _highest_from_start(self, segment: Segment) -> tuple[int, int]:
        place = segment.find(self.log_start_offset)
        highest, at = -1, segment.base_offset
        if place is not None:
            for _, header in segment.headers(place.position):
                if header.max_timestamp > highest:
                    highest, at = header.max_timestamp, header.last_offset
        return highest, at

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch that is not above the one asked for; (-1, -1)
        where that is not known (KIP-320).
        """
        return self.epochs.end_offset_for(leader_epoch, self.log_end_offset)

    # --- what goes -------------------------------------------------------------------------------

    def delete_records_before(self, offset: int) -> int:
        """Records below `offset` (-1: all that there are) can no longer be read; gives the new
        log_start_offset.

        Raises: KafkaError OFFSET_OUT_OF_RANGE beyond the high watermark.
        After:  producers stay known and open transactions open; the last stable offset is not below
                the new start. The files go with the next `delete_old_segments`.
        """
        if offset == -1:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            raise KafkaError(
                Code.OFFSET_OUT_OF_RANGE,
                f"{offset} is beyond the high watermark {self.high_watermark}",
            )
        self._raise_log_start(offset)
        return self.log_start_offset

    def _raise_log_start(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.start_changed.add((self.topic, self.partition))
            self._update_stable()
            try:
                self.epochs.truncate_from_start(offset)
            except OSError as error:
                if not is_want_of_room(error):
                    raise
                logger.warning(
                    "%r: the file of its leader epochs waits for room: %s", self, error
                )  # what it has too many does no harm

    def delete_old_segments(self, now_ms: int) -> int:
        """Let go of the segments that retention no longer keeps; gives how many."""
        from barnabas.storage.retention import expired_segments

        expired = expired_segments(self, self.wall.at(now_ms))
        return self._delete_segments(expired, now_ms) if expired else 0

    def _delete_segments(self, count_from_start: list[Segment], now_ms: int) -> int:
        """Gives how many go: not the active one where there is no room for another in its place."""
        count = len(count_from_start)
        assert self.segments[:count] == count_from_start, "segments go from the oldest on"
        if count == len(self.segments) and not self._try_roll(now_ms):
            count -= 1
            count_from_start = count_from_start[:count]
        if not count:
            return 0
        del self.segments[:count]
        del self._bases[:count]
        self._closed_bytes -= sum(segment.size for segment in count_from_start)
        self._unflushed = [
            segment for segment in self._unflushed if segment not in count_from_start
        ]
        self._stable_end = (-1, self.active, 0)
        self._raise_log_start(self._bases[0])
        due_ms = now_ms + self._config.file_delete_delay_ms
        self.discard_files(count_from_start, now_ms)
        for segment in count_from_start:
            logger.info("%r: the segment at %d is let go", self, segment.base_offset)
        for offset in [
            offset for offset in self.snapshots[:-KEPT_SNAPSHOTS] if offset < self._bases[0]
        ]:
            self._discard(self._snapshot_path(offset), due_ms)
            self.snapshots.remove(offset)
        return count

    def replace_segments(self, old: list[Segment], new: Segment) -> None:
        """One cleaned segment stands for these neighbours; its files are in place, and theirs are
        not.
        """
        at = self.segments.index(old[0])
        end = at + len(old)
        assert self.segments[at:end] == old and self.active not in old, (
            "neighbours below the active segment are replaced"
        )
        self.segments[at:end] = [new]
        self._bases[at:end] = [new.base_offset]
        self._closed_bytes += new.size - sum(segment.size for segment in old)
        self._unflushed = [segment for segment in self._unflushed if segment not in old]
        self._stable_end = (-1, self.active, 0)

    def drop_snapshots_below(self, offset: int) -> None:
        """Snapshots within what is compacted go: a marker that they wait for may be there no more."""
        for below in [below for below in self.snapshots if below < offset]:
            self.disk.unlink(self._snapshot_path(below))
            self.snapshots.remove(below)

    def discard_files(self, segments: list[Segment], now_ms: int) -> None:
        """The files of segments that are out of use go a while later."""
        due_ms = now_ms + self._config.file_delete_delay_ms
        for segment in segments:
            self.cache.forget(segment)
            for suffix in SEGMENT_SUFFIXES:
                self._discard(segment.path(suffix), due_ms)

    def _discard(self, path: str, due_ms: int) -> None:
        try:
            self.disk.rename(path, path + DELETED_SUFFIX)
        except FileNotFoundError:
            return
        self.trash.add(due_ms, path + DELETED_SUFFIX)

    # --- flushing --------------------------------------------------------------------------------

    def begin_flush(self) -> FlushToken | None:
        """The files of the log that hold what is not durable in them yet; None where all is."""
        if self.recovery_point >= self.log_end_offset and not self._directory_changed:
            return None
        files: list[Syncable] = [segment.file for segment in self._unflushed]
        if self._directory_changed:
            files += [self.disk.open(path) for path in self._new_paths]
            self._new_paths = []
            files.append(DirectorySync(self.disk, self.directory))
            files.append(DirectorySync(self.disk, self.directory.rpartition("/")[0]))
            self._directory_changed = False
        return FlushToken(
            tuple(files), self.log_end_offset, self.active.base_offset, self.active.size, True
        )

    @property
    def end(self) -> LogEnd:
        """Where it ends now."""
        return LogEnd(self.log_end_offset, self.active.base_offset, self.active.size)

    def try_begin_journal(
        self, most_bytes: int, end: LogEnd | None = None
    ) -> tuple[JournalEntry, FlushToken] | None:
        """What is not durable yet, to be written to a flush journal; None where it has to be
        flushed in place.

        That is so where there are more than `most_bytes` of it, or a segment before the active one
        is not durable in its own file: so the journals never hold more than the end of one segment.

        Takes:  end, to write no more than what came before it; None: all.
        """
        segment, position = self.active, self._durable_position
        if end is None:
            end = self.end
        size = end.position - position
        if position < 0 or size > most_bytes or self._directory_changed or len(self._unflushed) > 1:
            return None
        assert end.base_offset == segment.base_offset, (
            f"{self!r} is not durable up to {end}, which is in an earlier segment"
        )
        data = segment.file.pread(size, position)
        assert len(data) == size, f"{segment.path(LOG_SUFFIX)} is shorter than {end.position} bytes"
        entry = JournalEntry(
            self.topic, self.partition, self.topic_id, segment.base_offset, position, data
        )
        return entry, FlushToken((), end.offset, end.base_offset, end.position, False)

    def finish_flush(self, token: FlushToken) -> bool:
        """All files of the token, or the journal that has its entry, were fsynced without an error.
        Gives whether readers may read more.
        """
        high_watermark = self.high_watermark
        if token.end_offset >= self.durable_offset:
            self.durable_offset = token.end_offset
            if token.base_offset == self.active.base_offset:
                self._durable_position = token.end_position
            if self._waits_for_disk and token.end_offset > self.high_watermark:
                self.high_watermark = token.end_offset
                self._update_stable()
        if token.in_place and token.end_offset > self.recovery_point:
            self.recovery_point = token.end_offset
            active = self.active
            if len(self._unflushed) > 1:
                self._unflushed = [
                    s for s in self._unflushed if s is active or self._end_of(s) > token.end_offset
                ]
        return self.high_watermark > high_watermark

    def is_flushed(self, end_offset: int) -> bool:
        return self.durable_offset >= end_offset

    def is_flushed_in_place(self, end_offset: int) -> bool:
        return self.recovery_point >= end_offset

    def flush(self) -> None:
        """Make all durable, here and now: at a stop."""
        token = self.begin_flush()
        if token is not None:
            for file in token.files:
                file.fsync()
            self.finish_flush(token)

    # --- the whole -------------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        return self._closed_bytes + self.active.size

    def check_sizes(self) -> None:
        """`size_bytes` is what the segments' files hold: nothing is to be deleted for a sum that is
        wrong. Raises CorruptLog.
        """
        held = 0
        for segment in self.segments:
            size, path = segment.size, segment.path(LOG_SUFFIX)
            found = self.disk.size(path) if self.disk.exists(path) else -1
            if found != size:
                raise CorruptLog(
                    path,
                    size,
                    f"the file has {found} bytes, not {size}",
                    "Nothing is deleted for the log's size meanwhile.",
                )
            held += size
        assert self.size_bytes == held, (
            f"{self!r}: its segments hold {held} bytes, not {self.size_bytes}"
        )

    def checkpoint(self) -> None:
        """Between times: bring index files, a snapshot and the manifest up to the log, so that
        little is scanned after a kill.

        Nothing is flushed: a kill leaves all of it, and after a power loss it is believed up to the
        recovery point, which is checked.
        """
        self.active.write_indexes()
        self._bring_snapshot_up()
        self.write_manifest()
        self._note_checkpoint()

    def _note_checkpoint(self) -> None:
        self.unread_bytes = 0
        self.changed.pop(self, None)

    def close(self, now_ms: int) -> None:
        """Leave the log so that it is opened again without reading it: durable, indexes and
        snapshot written, files closed.
        """
        for file in self.begin_close(now_ms):
            file.fsync()
        self.end_close()

    def begin_close(self, now_ms: int) -> list[Syncable]:
        """Write all that a clean stop leaves. Gives what is to be fsynced before `end_close`:
        nothing where nothing changed since the last.
        """
        if self._state_when_closed == self._closing_state() and not self._directory_changed:
            return []
        token = self.begin_flush()
        self.active.add_last_time()
        self.active.write_indexes()
        self._bring_snapshot_up()
        self.write_manifest()
        files = [] if token is None else list(token.files)
        if token is not None:
            self.finish_flush(token)
        return [
            *files,
            self.disk.open(f"{self.directory}/{MANIFEST_NAME}"),
            DirectorySync(self.disk, self.directory),
        ]

    def end_close(self) -> None:
        """All that `begin_close` gave is on the disk."""
        for segment in self.segments:
            segment.close()

    def note_as_closed(self) -> None:
        """The log was just opened, and everything is as a clean stop left it."""
        self._state_when_closed = self._closing_state()

    def _closing_state(self) -> tuple[int, int, int]:
        return self.log_start_offset, self.log_end_offset, len(self.segments)

    def note_unread(self, unread_bytes: int, now_ms: int) -> None:
        """The log was just opened, and so much of it was read because no checkpoint knew it."""
        self.unread_bytes = unread_bytes
        if unread_bytes:
            self.changed.setdefault(self, now_ms)

    def forget_indexes(self) -> None:
        """The log is deleted: what memory its indexes have is free, and no checkpoint is due.

        Files close when the last slice of them was sent.
        """
        for segment in self.segments:
            self.cache.forget(segment)
        self.changed.pop(self, None)
        self.changed = {}

    def directory_changed(self, *paths: str) -> None:
        """New names in the directory, and these new files, are made durable with the next flush."""
        self._directory_changed = True
        self._new_paths += paths

    def write_manifest(self) -> None:
        """Note what the files are; of the active segment, which goes on growing, what they are so
        far.
        """
        manifest = Manifest(self.topic_id, self.log_start_offset, self.log_end_offset)
        epochs = encode_epochs(self.epochs.written)  # its form has no checksum of its own
        manifest.files[LEADER_EPOCH_NAME] = (len(epochs), crc32c(epochs))
        parts = [
            part
            for segment in self.segments
            if (part := self._note_segment(segment, manifest)) is not None
        ]
        self.disk.write_atomic(
            f"{self.directory}/{MANIFEST_NAME}", manifest.encode(parts), sync=False
        )

    def _note_segment(self, segment: Segment, manifest: Manifest) -> Manifest | None:
        """What the manifest says of a segment: a part that is made once, of a closed one; else it
        is put into `manifest`.
        """
        base, known = segment.base_offset, segment.manifest
        is_active = segment is self.active
        if known is not None and not is_active and known.parted:
            return known
        names = [f"{offset_name(base)}{suffix}" for suffix in INDEX_SUFFIXES]
        if known is not None and not is_active and all(name in known.files for name in names):
            segment.manifest = known.part(base, names)
            return segment.manifest
        if not (segment.times_known and segment.txn_trusted):
            manifest.segments[base] = SegmentNote(
                base, segment.size, -1, base, self._end_of(segment)
            )
            return None
        highest, at = segment.max_timestamp, segment.max_timestamp_offset
        manifest.segments[base] = SegmentNote(
            base, segment.size, highest, at, self._end_of(segment)
        )
        manifest.files.update({name: (size, crc) for name, size, crc in segment.checksums()})
        if not is_active:
            segment.manifest = manifest.part(base, names)
        return None

    def __repr__(self) -> str:
        return f"{self.topic}-{self.partition}"


def aborted_entry(completed: CompletedTxn) -> AbortedEntry:
    return AbortedEntry(
        completed.producer_id,
        completed.first_offset,
        completed.last_offset,
        completed.last_stable_offset,
    )


def replay_segment(
    state: ProducerStateManager, segment: Segment, from_offset: int, to_offset: int, now_ms: int
) -> list[CompletedTxn]:
    """Take the batches of a segment from `from_offset` up to `to_offset` into the state; gives the
    transactions that ended there.
    """
    completed: list[CompletedTxn] = []
    place = segment.find(from_offset) if segment.size else None
    if place is None:
        return completed
    for position, header in segment.headers(place.position):
        if header.base_offset >= to_offset:
            break
        if header.producer_id >= 0:
            ended = replay_batch(
                state, header, partial(segment.file.pread, header.size_bytes, position), now_ms
            )
            if ended is not None:
                completed.append(ended)
        state.end_offset = header.next_offset
    return completed


def replay_batch(
    state: ProducerStateManager,
    header: BatchHeader,
    whole: Callable[[], bytes | memoryview],
    now_ms: int,
) -> CompletedTxn | None:
    """Take one batch of a producer into the state; `whole` gives its bytes, which only a marker
    needs.
    """
    if header.attributes & CONTROL:
        if not header.record_count:
            return None  # Apache Kafka's cleaner emptied it: it ended a transaction that is gone
        marker = decode_marker(whole())
        return state.on_marker(
            header.producer_id,
            header.producer_epoch,
            marker.coordinator_epoch,
            marker.commit,
            header.base_offset,
            header.max_timestamp,
            now_ms,
        )
    state.on_batch(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_sequence,
        header.base_offset,
        header.last_offset,
        header.max_timestamp,
        header.is_transactional,
        now_ms,
    )
    return None
