"""The log of one partition: appends and markers, the readable part, and deletion.

An append checks a batch, assigns offsets, and writes the bytes as received. There is one replica,
so the high watermark is the end of the log; with flush.messages=1 it is the end of the durable
part. After every change

    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset

The order within an append is: check everything, write the batch, then update the indexes, the
producers' state and the offsets. A failed write changes no state: if there is no disk space,
Produce returns an error for the batch; after any other error of the disk the broker stops.

A log consists of parts, each in a separate module:

    log_dir          LogDirectory          what all logs of the data directory share
    segments         SegmentList           its files, and the search for a batch
    producer_state   ProducerStateManager  epochs, sequences, open transactions
    snapshots        ProducerSnapshots     snapshot files of producers, and replay
    epochs           LeaderEpochs          where each leader epoch began
    durability       Durability            the durable part, and what has to be flushed
    reader           LogReader             slices of files for fetches, aborted transactions
    _checkpoint      LogCheckpoint         the files that a start reads instead of the log
    files            LogFiles              its directory and first files, if they exist
    turnover         SegmentTurnover       rolls, deletions and replacements of segments
"""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.records import (
    BATCH_START,
    LENGTH_END,
    MAX_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
)
from barnabas.protocol.topic_partition import TopicIdPartition
from barnabas.storage.batch.validate import (
    AppendRefused,
    CheckBudget,
    Checked,
    Rules,
    checked_fields,
    with_append_time,
)
from barnabas.storage.disk import Slice, Syncable, is_out_of_resources, not_written
from barnabas.storage.files.checkpoints import NO_TOPIC_ID
from barnabas.storage.files.leader_epochs import LeaderEpochs
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.files.txn_index import AbortedTxn
from barnabas.storage.log.append_info import AppendInfo, NewMarker
from barnabas.storage.log.durability import Durability, FlushToken, LogEnd
from barnabas.storage.log.log_checkpoint import LogCheckpoint
from barnabas.storage.log.log_directory import LogDirectory
from barnabas.storage.log.log_files import LogFiles
from barnabas.storage.log.log_reader import FetchData, Isolation, LogReader, unreadable
from barnabas.storage.log.retention import expired_count
from barnabas.storage.log.segment_turnover import SegmentTurnover
from barnabas.storage.log_config import NEVER_MS, LogConfig
from barnabas.storage.producers.producer_snapshots import ProducerSnapshots, aborted_entry
from barnabas.storage.producers.producer_state import (
    ProducerEntry,
    ProducerStateManager,
    used_again,
)
from barnabas.storage.producers.producer_window import restore_window
from barnabas.storage.producers.repetition import Comparison, is_repetition
from barnabas.storage.segments.segment_list import SegmentList

UNREAD_BATCH_BYTES = 8192  # at a start, reading one batch takes as long as reading this many bytes

BatchOf = tuple[int, int, int, int, bool, int]
"""A batch's producer id, producer epoch, first and last sequence, whether it is transactional, and
its checksum as the client sent it.
"""

_new = tuple.__new__  # makes a NamedTuple without its constructor, which is a function of Python

logger = logging.getLogger(__name__)


class LogContents(NamedTuple):
    """The content of a partition's directory, new or opened, from which a `Log` is made.

    names_are_durable: whether all names in the directory are durable. has_files: whether there is a
    directory.
    """

    segments: SegmentList
    log_start_offset: int
    recovery_point: int
    producer_state: ProducerStateManager
    epochs: LeaderEpochs
    snapshots: ProducerSnapshots
    names_are_durable: bool
    has_files: bool = True


class StableObserver(Protocol):
    """Keeps the last stable offsets of several logs together, and learns when one could rise."""

    def on_reached(self, log: Log) -> None:
        """The log's own stable offset has reached `awaited_offset`."""

    def on_left(self, log: Log) -> None:
        """The log was deleted, or is no longer to be kept together with others."""


class Log:
    """The log of one partition. `LogManager.create` or `recovery.load_log` makes it.

    leader_epoch: the epoch that is written into every batch. flush_messages, flush_ms: from the
    config; has_flush_limit: whether one of them is set. is_whole: whether the config has whole
    transactions. whole_from: the end of the log when that began in this run; 0 for a new log.
    observer: keeps the last stable offsets of several logs together, or None.
    held_from: the offset at which the observer keeps the last stable offset, or None.
    awaited_offset: the observer is called when `own_stable_offset` reaches it.
    unread_bytes: the amount written since the last checkpoint, which a start after a kill would
    have to read. A batch counts as its size plus UNREAD_BATCH_BYTES.
    """

    def __init__(
        self,
        log_dir: LogDirectory,
        partition: TopicIdPartition,
        config: LogConfig,
        contents: LogContents,
    ) -> None:
        self.log_dir = log_dir
        self.disk = log_dir.disk
        self.wall = log_dir.wall
        self.topic, self.partition, self.topic_id = partition
        self.directory = log_dir.partition_path(self.topic, self.partition)
        self.topic_id_partition = partition
        self.segments = segments = contents.segments
        self.log_start_offset = contents.log_start_offset
        self.log_end_offset = segments.end_offset
        self.producer_state = contents.producer_state
        self.epochs = contents.epochs
        self.leader_epoch = max(self.epochs.latest, 0)
        self.snapshots = contents.snapshots
        self.durability = Durability(
            self.disk,
            self.directory,
            partition,
            segments,
            contents.recovery_point,
            names_are_durable=contents.names_are_durable,
        )
        self.reader = LogReader(segments, self.snapshots)
        self._checkpoint = LogCheckpoint(
            self.disk,
            self.directory,
            partition,
            segments,
            self.producer_state,
            self.epochs,
            self.snapshots,
        )
        self._changed_logs, self.unread_bytes = log_dir.changed_logs, 0
        self.observer: StableObserver | None = None
        self.is_whole, self.whole_from = False, 0
        self.held_from: int | None = None
        self.awaited_offset: int | None = None
        self.high_watermark = max(self.log_start_offset, contents.recovery_point)
        self.files = LogFiles(
            self.disk, self.directory, partition, segments, self.epochs, self.durability,
            are_made=contents.has_files,
        )  # fmt: skip
        self.turnover = SegmentTurnover(
            log_dir, self.directory, partition, segments, self.durability, self.snapshots,
            self._checkpoint,
        )  # fmt: skip
        self.config = config
        self._update_stable()

    def __repr__(self) -> str:
        return str(self.topic_id_partition)

    # --- settings --------------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        """The topic's settings."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._rules = Rules(config)
        self._segment_bytes = config.segment_bytes
        self.flush_messages, self.flush_ms = config.flush_messages, config.flush_ms
        self.has_flush_limit = config.flush_messages < NEVER_MS or config.flush_ms < NEVER_MS
        self.turnover.set_config(config)
        self.durability.waits_for_disk = config.flush_messages <= 1
        self._is_bounded = self.durability.waits_for_disk or self.observer is not None
        if config.whole_transactions and not self.is_whole:
            self.whole_from = self.log_end_offset
        self.is_whole = config.whole_transactions
        if self.observer is not None and not self.is_whole:
            self.observer.on_left(self)
        if not self.durability.waits_for_disk:
            self.high_watermark = self.log_end_offset
            self._update_stable()
        self.segments.active.indexes.index_interval_bytes = config.index_interval_bytes

    @property
    def rules(self) -> Rules:
        """The rules for `check_client_batch`; they may be compared with `==`."""
        return self._rules

    # --- leader epochs ---------------------------------------------------------------------------

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """Begin a leader epoch above all earlier ones, for all further batches (KIP-101)."""
        self.epochs.begin(leader_epoch, self.log_end_offset)
        self.leader_epoch = leader_epoch
        self.files.lacks_epoch = True

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch that is not above `leader_epoch` (KIP-320).

        It is (-1, -1) if the end is unknown.
        """
        return self.epochs.end_offset_for(leader_epoch, self.log_end_offset)

    def _write_new_epoch(self) -> None:
        self.log_dir.store_epoch()
        if not self.files.are_made:
            self.files.make()
            return
        self.files.write_epochs()
        if self.files.lacks_checkpoint:
            self.checkpoint()
            self.files.lacks_checkpoint = False
        self.files.lacks_epoch = False

    def adopt_topic_id(self, topic_id: uuid.UUID) -> None:
        """Store the topic id durably, for a log whose directory has none.

        A kill during `LogFiles.make` loses the id, and Kafka before 2.8 wrote none. Entries of the
        flush journals are assigned to a log by the id, so all data of this log that they may have
        are flushed first.
        """
        assert self.topic_id == NO_TOPIC_ID, f"{self!r} is of topic {self.topic_id}"
        self.flush()
        partition = self.topic_id_partition._replace(topic_id=topic_id)
        self.files.adopt(partition)
        self.topic_id, self.topic_id_partition = topic_id, partition
        self.durability.partition = self._checkpoint.partition = partition

    # --- appending -------------------------------------------------------------------------------

    def append(
        self,
        batch: memoryview | bytearray,
        *,
        now_ms: int,
        at_once: CheckBudget | None = None,
        checked: Checked | None = None,
        comparison: Comparison | None = None,
    ) -> AppendInfo:
        """Append a batch as `append_fields` does, for a caller that keeps the result."""
        return AppendInfo(
            *self.append_fields(batch, now_ms, at_once, checked=checked, comparison=comparison)
        )

    def append_fields(
        self,
        batch: memoryview | bytearray,
        now_ms: int,
        at_once: CheckBudget | None = None,
        *,
        checked: Checked | None = None,
        comparison: Comparison | None = None,
    ) -> tuple[int, int, int, bool]:
        """Check one batch of a client, assign offsets, and write it to the active segment.

        Takes:  batch, writable: the records field of one partition. The base offset and the leader
                epoch are overwritten in place (and the timestamp or the codec, if the topic
                requires it). at_once: the limits of the check; a larger batch is not changed.
                checked: the result of an earlier `check_client_batch` by these rules. Checks
                against the log and its producers are made here, with no other event in between.
                comparison: the result of a comparison that an earlier call requested.
        Gives:  the fields of `AppendInfo` as a plain tuple: first_offset, last_offset (inclusive),
                log_append_time_ms, and whether it is a duplicate, which has those of the earlier
                batch.
        Raises: AppendRefused, see validate; TakesLongError and ComparisonTakesLong, only with
                at_once; KafkaError OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH,
                INVALID_TXN_STATE; UNKNOWN_PRODUCER_ID if its sequences were used for other records
                before (`repetition`). NotWrittenError if the disk has no space; OSError is fatal.
        After:  log_end_offset = last_offset + 1, unless the batch is a duplicate.
        Source: KIP-98 (idempotence).

        One long function, because a further call for each batch is measurable.
        """
        view = batch if type(batch) is memoryview else memoryview(batch)
        rules = self._rules
        if checked is None:
            wall_ms = now_ms + self.wall.ahead_ms if rules.needs_time else NO_TIMESTAMP
            fields = checked_fields(view, rules, wall_ms, at_once)
        elif rules.log_append_time:
            fields = with_append_time(checked, now_ms + self.wall.ahead_ms)
        else:
            fields = checked
        view, size, attributes, last_delta, max_timestamp, producer_id, epoch, sequence, crc = (
            fields  # type: ignore[assignment]
        )
        if size > self._segment_bytes:
            raise AppendRefused(
                Code.RECORD_LIST_TOO_LARGE,
                f"{size} bytes do not fit in a segment of {self._segment_bytes}",
                knows_log_start=False,
            )
        batch_of = None
        if producer_id >= 0:
            last_sequence = (sequence + last_delta) & MAX_SEQUENCE
            transactional = attributes & TRANSACTIONAL != 0
            duplicate = self.producer_state.check_batch(
                producer_id, epoch, sequence, last_sequence, transactional, self._restore_window,
                at_once,
            )  # fmt: skip
            if duplicate is not None:
                if not is_repetition(
                    duplicate,
                    view,
                    crc,
                    self.segments,
                    rules.max_decompressed_bytes,
                    at_once=at_once,
                    comparison=comparison,
                ):
                    raise used_again(producer_id, sequence)
                return duplicate.first_offset, duplicate.last_offset, duplicate.timestamp, True
            batch_of = (producer_id, epoch, sequence, last_sequence, transactional, crc)
        first_offset, last_offset = self.write(
            view, size, last_delta, max_timestamp, now_ms, batch_of
        )
        log_append_time_ms = max_timestamp if rules.log_append_time else -1
        return first_offset, last_offset, log_append_time_ms, False

    def write(
        self,
        view: memoryview | bytearray,
        size: int,
        last_delta: int,
        max_timestamp: int,
        now_ms: int,
        batch_of: BatchOf | None = None,
        marker: NewMarker | None = None,
    ) -> tuple[int, int]:
        """Write a checked batch at the end of the log, and move the end. All appends call this.

        Takes:  batch_of, the fields of the producer, if there is one; marker, if it is a marker.
        Gives:  its first and last offset; the first, and the leader epoch, are set in the batch.
        Raises: NotWrittenError without space, after which only a segment may be new; OSError.
        """
        first_offset = self.log_end_offset
        last_offset = first_offset + last_delta
        BATCH_START.pack_into(view, 0, first_offset, size - LENGTH_END, self.leader_epoch)
        segment = self.segments.active
        try:
            if self.files.lacks_epoch:
                self._write_new_epoch()
            limits = self.turnover.limits
            size_bytes, fitting_offset, fitting_timestamp, fitting_limits = segment.room
            if (
                segment.batches.size + size > size_bytes
                or max_timestamp > fitting_timestamp
                or last_offset > fitting_offset
                or limits is not fitting_limits
            ) and segment.should_roll(size, last_offset, max_timestamp, now_ms, limits):
                self._roll(now_ms)
                segment = self.segments.active
        except OSError as error:
            raise not_written(error) from error
        segment.append(view, size, first_offset, last_offset, max_timestamp)
        if not self.unread_bytes:
            self._changed_logs.setdefault(self, now_ms)
            self.log_dir.has_new_work = True
        self.unread_bytes += size + UNREAD_BATCH_BYTES
        state = self.producer_state
        if batch_of is not None:
            producer_id, epoch, sequence, last_sequence, transactional, crc = batch_of
            state.on_batch(
                producer_id, epoch, sequence, last_sequence, first_offset, last_offset,
                max_timestamp, transactional, now_ms, crc,
            )  # fmt: skip
        elif marker is not None:
            completed = state.on_marker(
                marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.commit,
                last_offset, max_timestamp, now_ms,
            )  # fmt: skip
            if completed is not None:
                if self.durability.waits_for_disk and not marker.is_decided:
                    self.durability.add_pending_marker(completed.first_offset, last_offset)
                if completed.aborted:
                    segment.indexes.append_aborted(aborted_entry(completed))
        # The end moves last, since the last stable offset is computed from the producers' state.
        end_offset = last_offset + 1
        self.log_end_offset = self.segments.end_offset = state.end_offset = end_offset
        if not self.durability.waits_for_disk:
            self.high_watermark = self.last_stable_offset = end_offset
        if state.open_txns or self._is_bounded:
            self._update_stable()
        return first_offset, last_offset

    def own_stable_offset(self) -> int:
        """The last stable offset as far as this log's own transactions and flushes determine it."""
        stable = self.high_watermark
        first_open = self.producer_state.first_open_offset()
        if first_open is not None and first_open < stable:
            stable = first_open
        if self.durability.pending_markers:
            stable = self.durability.stable_below(stable, self.high_watermark)
        return max(stable, self.log_start_offset)

    def observe(self, observer: StableObserver | None) -> None:
        """Set the observer; with None the last stable offset is the log's own again."""
        self.observer = observer
        self._is_bounded = self.durability.waits_for_disk or observer is not None
        if observer is None:
            self.held_from = self.awaited_offset = None
            self._update_stable()

    def hold_from(self, offset: int | None) -> bool:
        """Keep the last stable offset at or below an offset; with None it is the log's own again.
        The observer calls this. Gives: whether the last stable offset rose.
        """
        before = self.last_stable_offset
        self.held_from = offset
        self._update_stable()
        return self.last_stable_offset > before

    def _update_stable(self) -> None:
        stable = own = self.own_stable_offset()
        if self.held_from is not None and self.held_from < stable:
            stable = max(self.held_from, self.log_start_offset)
        self.last_stable_offset = stable
        assert (
            self.log_start_offset
            <= self.last_stable_offset
            <= self.high_watermark
            <= self.log_end_offset
        ), (
            f"{self!r}: {self.log_start_offset} <= {self.last_stable_offset} <= "
            f"{self.high_watermark} <= {self.log_end_offset}"
        )
        if self.awaited_offset is not None and own >= self.awaited_offset:
            self.awaited_offset = None
            assert self.observer is not None, "an awaited offset needs an observer"
            self.observer.on_reached(self)

    # --- producers -------------------------------------------------------------------------------

    def ended_before_open_transaction(self, producer_id: int, decided_ms: int) -> bool:
        """Whether a marker from `decided_ms` or later precedes the open transaction."""
        first_offset = self.producer_state.first_offset_of_transaction(producer_id)
        return first_offset is not None and self.reader.has_marker_before(
            first_offset, producer_id, decided_ms
        )

    def expire_producers(self, now_ms: int, most: int = sys.maxsize) -> int:
        """Remove producers that were idle for producer.id.expiration.ms. Gives: their number.

        Takes:  most, the maximum number in one call; if it is reached there may be more.
        """
        count = self.producer_state.expire(now_ms, self._config.producer_id_expiration_ms, most)
        if count:
            self._checkpoint.producers_expired = True
            self._changed_logs.setdefault(self, now_ms)
        return count

    def _restore_window(self, entry: ProducerEntry, at_once: CheckBudget | None = None) -> None:
        restore_window(entry, self.segments, at_once)

    # --- rolling ---------------------------------------------------------------------------------

    def _roll(self, now_ms: int) -> None:
        """Close the active segment and begin another at the end of the log, with a checkpoint.

        Raises: OSError, after which the log is unchanged, and may be rolled later.
        """
        if self.turnover.roll(self.log_start_offset, self.log_end_offset, now_ms):
            self._set_checkpointed()

    def try_roll(self, now_ms: int) -> bool:
        """Roll the active segment, even if it is not full. Gives: False if there is no space."""
        try:
            self._roll(now_ms)
        except OSError as error:
            if not is_out_of_resources(error):
                raise
            logger.warning("%r: there is no space for a new segment: %s", self, error)
            return False
        return True

    # --- reading ---------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        isolation: Isolation | int = Isolation.READ_UNCOMMITTED,
        min_one_batch: bool,
    ) -> FetchData:
        """Find the bytes from the batch with `offset` on.

        Takes:  min_one_batch, whether to return the whole first batch even if it is longer than
                max_bytes; without it the result is empty in that case.
        Gives:  a slice of one segment, up to max_bytes, which may end within a batch; for
                READ_COMMITTED it ends at the last stable offset, and has the aborted transactions
                that overlap it.
        Raises: KafkaError OFFSET_OUT_OF_RANGE; UNKNOWN_SERVER_ERROR for a negative max_bytes, as in
                Apache Kafka; KAFKA_STORAGE_ERROR if the log cannot be read there.
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
        data: Slice | None = None
        aborted: list[AbortedTxn] | None = [] if committed else None
        if offset < limit:
            try:
                segment, data = self.reader.slice(offset, limit, max_bytes, min_one_batch)
                if committed and data is not None:
                    aborted = self.reader.aborted(offset, segment, data)
            except CorruptLog as error:
                logger.error("%r cannot be read at offset %d: %s", self, offset, error)
                raise KafkaError(Code.KAFKA_STORAGE_ERROR, str(error)) from error
            except OSError as error:
                raise unreadable(self, error) from error
        return _new(
            FetchData,
            (data, aborted, self.high_watermark, self.last_stable_offset, self.log_start_offset),
        )

    def read_batches(self, from_offset: int | None = None) -> Iterator[tuple[BatchHeader, bytes]]:
        """Iterate over all whole batches in order, from the one with `from_offset` (default: the
        log's start).
        Raises: CorruptLog, also if a checksum is wrong.
        """
        return self.reader.batches(self.log_start_offset if from_offset is None else from_offset)

    # --- deletion --------------------------------------------------------------------------------

    def delete_records_before(self, offset: int) -> int:
        """Raise the log's start to `offset` (-1: the high watermark). Gives: the log's start.

        Raises: KafkaError OFFSET_OUT_OF_RANGE above the high watermark.
        After:  producers are still known and transactions still open; the last stable offset is not
                below the new start. The next `delete_old_segments` deletes the files.
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
            self.log_dir.changed_starts.add((self.topic, self.partition))
            self.log_dir.has_new_work = True
            self._update_stable()
            try:
                self.epochs.truncate_from_start(offset)
            except OSError as error:
                if not is_out_of_resources(error):
                    raise
                # It does no harm if the file has more epochs than there are in memory.
                logger.warning("%r: the file of its leader epochs waits for space: %s", self, error)

    def delete_old_segments(self, now_ms: int, most: int = sys.maxsize) -> int:
        """Delete the segments that retention does not keep. Gives: their number.

        Without disk space, the active segment, or every segment, is kept
        (`snapshot_producers_of_oldest`).

        Takes:  most, the approximate maximum in one call; if it is reached there may be more.
        """
        wall_ms = now_ms + self.wall.ahead_ms
        count = expired_count(
            self.segments, self._config, self.log_start_offset, self.high_watermark, wall_ms, most
        )
        if count == len(self.segments) and not self.try_roll(now_ms):
            count -= 1
        if not count or not self.turnover.snapshot_producers_of_oldest(count):
            return 0
        deleted = self.turnover.remove_oldest(count)
        self._raise_log_start(self.segments[0].base_offset)
        self.turnover.discard(deleted, now_ms)
        return count

    # --- flushing --------------------------------------------------------------------------------

    def finish_flush(self, token: FlushToken | LogEnd) -> bool:
        """Record that a flush of `durability` is complete, and all its files were fsynced.

        Gives:  whether readers may now read more.
        """
        self.durability.finish_flush(token)
        if self.durability.durable_offset <= self.high_watermark:
            return False  # this is always so if readers do not wait for the disk
        self.high_watermark = self.durability.durable_offset
        self._update_stable()
        return True

    def flush(self) -> None:
        """Make everything durable in this call, which is done at a start and at a stop."""
        token = self.durability.begin_flush()
        if token is not None:
            for file in token.files:
                file.fsync()
            self.finish_flush(token)

    # --- checkpoint and close --------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write the files that a start after a kill reads instead of the log."""
        self._checkpoint.write(self.log_start_offset)
        self._set_checkpointed()

    def _set_checkpointed(self) -> None:
        self.unread_bytes = 0
        self._changed_logs.pop(self, None)

    def set_opened(self, unread_bytes: int, now_ms: int, *, as_closed: bool) -> None:
        """Record the state in which the log was opened.

        Takes:  unread_bytes, the amount that was read because it was not in a checkpoint;
                as_closed, whether the files are in the state after a clean stop.
        """
        self.unread_bytes = unread_bytes
        if unread_bytes:
            self._changed_logs.setdefault(self, now_ms)
        if as_closed:
            self._checkpoint.set_as_closed(self.log_start_offset)

    def begin_close(self) -> list[Syncable]:
        """Write the files of a clean stop, after which the next start reads nothing of the log.

        Gives:  the files to fsync before `end_close`; none if nothing has changed since the last
                clean stop.
        """
        if not self.files.are_made:
            return []
        is_same = self._checkpoint.is_as_closed(self.log_start_offset)
        if is_same and not self.durability.names_changed:
            return []
        token = self.durability.begin_flush()
        files = self._checkpoint.write_closing(self.log_start_offset)
        if token is not None:
            self.finish_flush(token)
            files = [*token.files, *files]
        return files

    def end_close(self) -> None:
        """Close the files, after everything from `begin_close` was fsynced."""
        for segment in self.segments:
            segment.close()

    def close(self) -> None:
        """Close the log, after which the next start need not read it."""
        for file in self.begin_close():
            file.fsync()
        self.end_close()

    def forget(self) -> None:
        """Free the indexes of a deleted log, which also needs no further checkpoint.

        Its files are closed when their last slice was sent.
        """
        for segment in self.segments:
            self.log_dir.cache.forget(segment.indexes)
        self._changed_logs.pop(self, None)
        self._changed_logs = {}
        if self.observer is not None:
            self.observer.on_left(self)
