"""Cuts in the past: the last stable offsets of the topics with whole transactions, recorded once in
each interval in which a transaction was committed there, or became readable.

A client asks for them with ListOffsets (`protocol/cut_times.py`). `cut_history.py` has the state
and the bytes of the file `barnabas-cuts` in the data directory. The file is never the only copy of
anything: without it, or a part of it, the past cuts are unknown, and nothing else.

| event | what is done |
|---|---|
| a commit, or readable by another reason | the next cut is due after the interval |
| due | the offsets that differ from those of the last cut are appended to the file, then kept |
| many cuts, or too many bytes | older ones are thinned out, and those without records dropped |
| the file is twice as large as needed | it is replaced, in steps (`Syncs`) |
| the first question or the first cut of a run | the file is read |

All of this is done in slices, one in a tick, so that no call takes longer the more cuts there are;
MOST_CUTS bounds what is done for all cuts at once. A question waits until the file is read. A cut
has the offsets of one moment, and can be found after its last slice.

A start reads nothing. A power loss may take the cuts of the last SYNC_MS. It may also take records
below the offsets of a cut: such a cut is dropped when the file is read, and the leader epochs of
the logs show it, whatever has been written since.

A cut is not recorded without disk space; the next attempt follows after the interval.
"""

from __future__ import annotations

import logging
from array import array
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import cast
from uuid import UUID

from barnabas.broker.logs.syncs import NO_JOB_ID, Syncs
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.logs.unwritten_work import UnwrittenWork
from barnabas.broker.observation.counters import Counters
from barnabas.broker.outbox import FlushJob, Outbox
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.transactions.cut_history import (
    NOT_IN_CUT,
    Cut,
    CutHistory,
    DamagedHistory,
    HistoryReader,
    Track,
    encode_cut,
    encode_part,
)
from barnabas.protocol.cut_times import AT_OR_AFTER, AT_OR_BEFORE
from barnabas.protocol.errors import detached
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.disk import (
    DirectorySync,
    File,
    FileSync,
    NotWrittenError,
    SyncSteps,
    append_whole,
    not_written,
)
from barnabas.storage.exception_guard import contain
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.log.log import Log

logger = logging.getLogger("barnabas.transactions")

CUTS_NAME = "barnabas-cuts"
# of the file that is being written in its place; a standby gets its bytes as they are written
NEXT_SUFFIX = ".next"
SYNC_MS = 60_000
# Cuts are thinned out after so many new ones, or an eighth of all of them.
FEWEST_BETWEEN, SHARE_BETWEEN = 64, 8
# The work of one slice: rows that are thinned out or examined, about 10 ms; partitions whose
# offsets are recorded, about 5 ms; bytes of the new file, 1 to 10 ms; requests that have waited
# until the file is read.
ROWS_AT_ONCE, PARTITIONS_AT_ONCE, BYTES_AT_ONCE, QUESTIONS_AT_ONCE = 20_000, 4096, 256 << 10, 8
# More cuts are thinned out, whatever their size.
MOST_CUTS = 20_000
_EMPTY = b"".join(CutHistory().frames())
# the size of a file that is not worth replacing
SMALL_BYTES = 64 << 10
# Above the limit, as many cuts are dropped as fill a quarter of it; far below it, cuts are thinned
# out less again.
SHARE_AFTER, LEVELS_AT_ONCE, SHARE_OF_ROOM = 75, 4, 4

Part = tuple[dict[Log, Track], list[tuple[Track, int]]]
"""A part of a cut: the partitions that are new in the history, and the offsets that have changed.
"""


class Cuts:
    """Records cuts, and finds them by their times.

    record_ms: the time at which the next cut is recorded; None if nothing was committed since the
    last one. due_ms: the same, or earlier if work on the recorded cuts continues. _work: the
    reading of the file, or the recording of a cut; _thinning goes on between two of these.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicRegistry,
        syncs: Syncs,
        outbox: Outbox,
        unwritten: UnwrittenWork,
        counters: Counters,
    ) -> None:
        self._interval_ms = config.barnabas_transactions_whole_cut_interval_ms
        self._max_bytes = config.barnabas_transactions_whole_cut_max_bytes
        self._topics, self._logs = topics, topics.logs
        self._syncs, self._outbox, self._unwritten = syncs, outbox, unwritten
        self._counters = counters
        self._path = self._logs.log_dir.path(CUTS_NAME)
        self.due_ms: int | None = None
        self.record_ms: int | None = None
        self._history: CutHistory | None = None
        self._file: File | None = None
        self._tracks: dict[Log, Track] = {}
        # tracks of partitions that no log has any more: off line, or deleted
        self._left: dict[Track, None] = {}
        self._replacing: list[bytes] | None = None
        self._work: Generator[None, None, None] | None = None
        self._thinning: Iterator[None] | None = None
        self._questions: deque[Callable[[int], None]] = deque()
        self._error: Exception | None = None  # why the file could not be read
        self._level = self._since_thinned = 0
        self._synced_ms: int | None = None

    # --- recording -------------------------------------------------------------------------------

    def on_changed(self, now_ms: int) -> None:
        """A transaction was committed in a topic with the setting, or has become readable."""
        if self.record_ms is None and self._interval_ms:
            self.record_ms = now_ms + self._interval_ms
            if self.due_ms is None:
                self.due_ms = self.record_ms

    def on_deleted(self, log: Log) -> None:
        """A log was deleted. With the last one the cuts go, too."""
        history, track = self._history, self._tracks.pop(log, None)
        if track is None:
            return
        if history is None:  # the file is being read
            self._left[track] = None
            return
        history.drop_track(track)
        if not history.tracks and self._replacing is None and self._work is None:
            if self._file is not None:
                self._file.close()
                self._file = None
            self._logs.disk.unlink(self._path)
            self._history = self._thinning = None

    def on_tick(self, now_ms: int) -> None:
        """Record a cut if one is due, and continue the work on the recorded ones. An error in the
        broker ends this work, until the next commit.
        """
        try:
            self._do_slice(now_ms)
        except Exception as error:
            if self._history is None:
                self._error = detached(error)
            self._work = self._thinning = None
            if self.record_ms is not None and self.record_ms <= now_ms:
                self.record_ms = None  # otherwise each tick would fail again
            contain(error, "the recorded cuts of whole transactions")
        is_at_work = self._work is not None or self._thinning is not None or self._questions
        self.due_ms = now_ms if is_at_work else self.record_ms

    def _do_slice(self, now_ms: int) -> None:
        """Do one slice of the work; if that ends with it, answer questions, or thin out."""
        for _ in range(2):  # the file is read, then a cut is recorded
            if self._work is None and not self._begin(now_ms):
                break
            if next(cast(Iterator[None], self._work), True) is None:
                return
            self._work = None
        if self._questions and (self._history is not None or self._error is not None):
            for _ in range(min(QUESTIONS_AT_ONCE, len(self._questions))):
                self._questions.popleft()(now_ms)
        elif self._thinning is not None and next(self._thinning, True):
            self._thinning = None

    def _begin(self, now_ms: int) -> bool:
        """Begin the next work. Gives: whether there is any."""
        is_due = self.record_ms is not None and self.record_ms <= now_ms
        if self._history is None and (is_due or (self._questions and self._error is None)):
            self._error = None
            self._work = self._load()
        elif is_due:
            self.record_ms = None
            self._work = self._try_record(now_ms)
        return self._work is not None

    def _try_record(self, now_ms: int) -> Generator[None, None, None]:
        try:
            yield from self._record(now_ms)
        except NotWrittenError as error:
            self._unwritten.note("a cut of whole transactions", error, now_ms)
            self.on_changed(now_ms)

    def _record(self, now_ms: int) -> Iterator[None]:
        """Record a cut: take the offsets, append what has changed to the file, and keep it."""
        history = self._history
        assert history is not None
        cut = Cut(history.next_number, now_ms + self._logs.wall.ahead_ms, self._logs.leader_epoch)
        logs = [log for log in self._logs.logs.values() if log.is_whole]
        offsets = self._stable_offsets(logs)
        parts: list[Part] = []
        next_index = history.next_index
        for first in range(0, len(logs), PARTITIONS_AT_ONCE):
            if first:
                yield
            end = first + PARTITIONS_AT_ONCE
            parts.append(self._changes(logs[first:end], offsets[first:end], next_index))
            next_index += len(parts[-1][0])
        ended = self._ended_rows(logs)
        if parts and len(ended) <= PARTITIONS_AT_ONCE:
            parts[-1][1].extend(ended)
        else:
            for first in range(0, len(ended), PARTITIONS_AT_ONCE):
                parts.append(({}, ended[first : first + PARTITIONS_AT_ONCE]))
        if not any(rows for _, rows in parts):
            return
        data = []
        for new, rows in parts[:-1]:
            data.append(encode_part(list(new.values()), rows))
            yield
        data.append(encode_cut(cut, list(parts[-1][0].values()), parts[-1][1]))
        self._append(b"".join(data))
        for place, (new, rows) in enumerate(parts):
            if place:
                yield
            history.add_rows(cut.number, new.values(), rows)
            for log, track in new.items():
                if self._exists(log):
                    self._tracks[log] = track
                else:
                    self._left[track] = None
        history.add_cut(cut)
        self._counters.add("barnabas_cuts_recorded_total")
        self._since_thinned += 1
        self._sync(now_ms)
        is_large = history.size_bytes > self._max_bytes or len(history) > MOST_CUTS
        if self._thinning is None and (
            is_large or self._since_thinned >= max(FEWEST_BETWEEN, len(history) // SHARE_BETWEEN)
        ):
            self._thinning = self._thin(cut.time_ms)

    def _stable_offsets(self, logs: list[Log]) -> list[int]:
        return [log.last_stable_offset for log in logs]

    def _exists(self, log: Log) -> bool:
        return self._logs.logs.get(TopicPartition(log.topic, log.partition)) is log

    def _changes(self, logs: list[Log], offsets: list[int], next_index: int) -> Part:
        """Of some logs with the setting, those that are not in the history yet, and the offsets
        that have changed since the last cut.
        """
        history, tracks = self._history, self._tracks
        assert history is not None
        new: dict[Log, Track] = {}
        rows = []
        for log, offset in zip(logs, offsets, strict=True):
            track = tracks.get(log)
            if track is None:
                if not self._exists(log):
                    continue  # it was deleted since the last slice
                # not that of the log, which lacks it if a start found a full disk
                topic_id = self._topics.metadata.topics[log.topic].topic_id
                before = 0 if log.whole_from == 0 else NOT_IN_CUT
                track = new[log] = Track(
                    next_index + len(new), (topic_id.bytes, log.partition), before
                )
            if track.last != offset:
                rows.append((track, offset))
        return new, rows

    def _ended_rows(self, logs: list[Log]) -> list[tuple[Track, int]]:
        """The rows of partitions that are no longer in cuts. Takes: the logs with the setting."""
        tracks, rows = self._tracks, []
        if sum(map(tracks.__contains__, logs)) < len(tracks):
            for log in [log for log in tracks if not self._exists(log)]:
                self._left[tracks.pop(log)] = None
            whole = frozenset(logs)
            rows = [
                (track, NOT_IN_CUT)
                for log, track in tracks.items()
                if log not in whole and track.last != NOT_IN_CUT
            ]
        rows += [(track, NOT_IN_CUT) for track in self._left if track.last != NOT_IN_CUT]
        return rows

    # --- questions -------------------------------------------------------------------------------

    def try_read(self) -> bool:
        """Whether questions can be answered now. If the file is not read yet, this begins to read
        it: a small file is then read, and for a larger one the caller waits with `when_read`.

        Raises: CorruptLog if an error of the broker has prevented that; the next cut tries again.
        """
        if self._history is None:
            if self._error is not None:
                raise CorruptLog(self._path, 0, repr(self._error), "Please report it.")
            if self._work is None:
                self._work = self._load()
                if next(self._work, True):
                    self._work = None
                else:
                    self.due_ms = 0
        return self._history is not None

    def when_read(self, then: Callable[[int], None]) -> None:
        """Call a function with the time when the file is read, or cannot be read."""
        self._questions.append(then)
        self.due_ms = 0

    def find(self, timestamp: int) -> Cut | None:
        """The cut for a timestamp for which `asks_for_cut` is true; None if there is none. The file
        has to be read.
        """
        history = self._history
        assert history is not None
        if timestamp >= AT_OR_AFTER:
            return history.at_or_after(timestamp - AT_OR_AFTER)
        return history.at_or_before(timestamp - AT_OR_BEFORE)

    def offset_of(self, log: Log, cut: Cut) -> int:
        """The offset of a log at a cut; its start if that is above. NOT_IN_CUT if the cut does not
        include it, though it had records.
        """
        track = self._tracks.get(log)
        offset = (
            (0 if log.whole_from == 0 else NOT_IN_CUT) if track is None else track.at(cut.number)
        )
        return offset if offset == NOT_IN_CUT else max(offset, log.log_start_offset)

    def newest(self) -> Cut | None:
        """The newest recorded cut of this run."""
        return None if self._history is None else self._history.newest

    # --- old cuts --------------------------------------------------------------------------------

    def _thin(self, wall_ms: int) -> Iterator[None]:
        """Thin out the cuts with their age, and drop those below which no partition has records any
        more; then drop the rows that are not needed. New cuts may be recorded between two slices.
        """
        history = self._history
        assert history is not None
        self._since_thinned = 0
        up_to = history.next_number - 1
        kept = history.thinned(wall_ms, self._level)
        size, room = history.size_bytes, self._max_bytes * SHARE_AFTER // 100
        count, most = len(history), MOST_CUTS * SHARE_AFTER // 100
        if size > self._max_bytes or count > MOST_CUTS:
            for _ in range(LEVELS_AT_ONCE):
                if len(kept) * size <= count * room and len(kept) <= most:
                    break
                yield
                self._level += 1
                kept = history.thinned(wall_ms, self._level)
        elif size < room // SHARE_OF_ROOM and count < most // SHARE_OF_ROOM and self._level:
            self._level -= 1
        first = yield from self._first_with_records(history)
        numbers = array("q", [cut.number for cut in kept if first <= cut.number <= up_to])
        history.keep_cuts(numbers, up_to)
        done = 0
        for track in list(history.tracks.values()):
            done += len(track.numbers) + 1
            if track.key in history.tracks:  # it was not deleted meanwhile
                history.keep_rows(track, numbers, up_to)
            if done >= ROWS_AT_ONCE:
                done = 0
                yield
        self._forget_deleted(history)
        size = 0 if self._file is None else self._file.size
        if self._replacing is None and size > SMALL_BYTES + 2 * history.size_bytes:
            self._syncs.run(self._replace())

    def _first_with_records(self, history: CutHistory) -> Generator[None, None, int]:
        """The number of the first cut below which a partition still has records; that of the newest
        one if none has.
        """
        if self._logs.offline:  # whose records are not known
            return 0
        first, done = history.next_number - 1, 0
        for log, track in list(self._tracks.items()):
            done += len(track.numbers) + 1
            first = track.first_above(log.log_start_offset, first)
            if done >= ROWS_AT_ONCE:
                done = 0
                yield
        return first

    def _forget_deleted(self, history: CutHistory) -> None:
        """Drop the tracks of deleted topics."""
        living = {topic.topic_id.bytes for topic in self._topics.metadata.topics.values()}
        for track in [track for track in self._left if track.key[0] not in living]:
            del self._left[track]
            history.drop_track(track)

    # --- the file --------------------------------------------------------------------------------

    def loaded(self) -> CutHistory:
        """The history. The file is read to its end at once, for a clean stop."""
        if self._history is None:
            for _ in self._work or self._load():
                pass
            self._work = None
        assert self._history is not None
        return self._history

    def _load(self) -> Generator[None, None, None]:
        """Read the file, and find the logs of its partitions."""
        disk = self._logs.disk
        self._tracks, self._left = {}, {}
        disk.unlink(self._path + NEXT_SUFFIX)
        history = CutHistory()
        if disk.exists(self._path):
            history = yield from self._read()
        topics, logs = self._topics.metadata, self._logs.logs
        for number, (key, track) in enumerate(list(history.tracks.items()), 1):
            topic = topics.topic_by_id(UUID(bytes=key[0]))
            log = None if topic is None else logs.get(TopicPartition(topic.name, key[1]))
            if log is not None:
                self._tracks[log] = track
            elif topic is not None:
                self._left[track] = None
            else:
                history.drop_track(track)
            if number % PARTITIONS_AT_ONCE == 0:
                yield
        yield from self._drop_lost(history)
        self._history = history

    def _read(self) -> Generator[None, None, CutHistory]:
        """Read the file. One that cannot be read is removed: it is not the only copy of anything,
        so an error of it does not end the process.
        """
        file = None
        try:
            file = self._logs.disk.open(self._path)
            reader = HistoryReader(file.pread, file.size)
            while reader.read_some():
                yield
        except (DamagedHistory, OSError) as error:
            # not one that a kill has left unfinished
            if file is None or file.size > len(_EMPTY) or isinstance(error, OSError):
                logger.warning(
                    "%s is damaged: past cuts are no longer known, new ones are recorded; records "
                    "and transactions are not concerned (%s)", self._path, error,
                )  # fmt: skip
            if file is not None:
                file.close()
            self._logs.disk.unlink(self._path)
            return CutHistory()
        except GeneratorExit:  # the broker stops
            if file is not None:
                file.close()
            raise
        if reader.size_bytes < file.size:
            logger.warning(
                "%s cannot be read from byte %d on: the %d past cuts before are known; records and "
                "transactions are not concerned",
                self._path, reader.size_bytes, len(reader.history),
            )  # fmt: skip
            file.truncate(reader.size_bytes)
        self._file = file
        return reader.history

    def _drop_lost(self, history: CutHistory) -> Iterator[None]:
        """Drop the cuts that include records which a power loss has removed."""
        lost: set[int] = set()
        done = 0
        for log, track in list(self._tracks.items()):
            for first, end in history.lost_numbers(track, log.epochs.entries):
                lost.update(history.numbers_between(first, end))
                if end == history.next_number:
                    track.last = NOT_IN_CUT  # so that the next cut has a row for the partition
            done += len(log.epochs.entries) + len(track.numbers) + 1
            if done >= ROWS_AT_ONCE:
                done = 0
                yield
        if lost:
            before = len(history)
            kept = array("q", [number for number in history.numbers if number not in lost])
            history.keep_cuts(kept, history.next_number - 1)
            logger.warning(
                "%d past cuts are dropped: a power loss has removed records below them",
                before - len(history),
            )

    def _append(self, data: bytes) -> None:
        """Append a frame. Raises: NotWrittenError without space; OSError."""
        if self._file is None:
            self._create()
        assert self._file is not None
        append_whole(self._file, data)
        if self._replacing is not None:
            self._replacing.append(data)

    def _create(self) -> None:
        """Make the file, with what is known so far: nothing, unless its last one was damaged."""
        disk = self._logs.disk
        try:
            file = disk.open(self._path, create=True)
        except OSError as error:
            raise not_written(error) from error
        if not file.size:
            append_whole(file, _EMPTY)
        self._file = file

    def _sync(self, now_ms: int) -> None:
        """Let the flusher make the file durable, once in SYNC_MS."""
        if self._synced_ms is None or now_ms - self._synced_ms >= SYNC_MS:
            self._synced_ms = now_ms
            disk = self._logs.disk
            files = FileSync(disk, self._path), DirectorySync(disk, self._logs.data_dir)
            self._outbox.flushes.append(FlushJob(NO_JOB_ID, (), files, lambda _: None))

    def _replace(self) -> SyncSteps:
        """Replace the file by one without the rows that are no longer needed."""
        while self._work is not None:  # a cut whose rows are in the history in part
            yield []
        disk, path, history = self._logs.disk, self._path + NEXT_SUFFIX, self._history
        if history is None:
            return
        self._replacing = []
        file = None
        try:
            disk.unlink(path)
            file = disk.open(path, create=True)
            for data in _joined(history.frames()):
                append_whole(file, data)
                yield []
            yield [FileSync(disk, path)]
            for data in self._replacing:
                append_whole(file, data)
            file.close()
            disk.rename(path, self._path)
            if self._file is not None:
                self._file.close()
            self._file, file = disk.open(self._path), None  # under its new name, also for a standby
            yield [DirectorySync(disk, self._logs.data_dir)]
        except OSError as error:
            if not isinstance(not_written(error), NotWrittenError):
                raise
            logger.warning("%s is not replaced by a smaller one: %s", self._path, error)
            disk.unlink(path)
        finally:
            if file is not None:
                file.close()
            self._replacing = None

    def close(self, now_ms: int) -> None:
        """Record the last cut before a clean stop, and make the file durable."""
        if self._history is not None:
            for _ in self._work or ():
                pass
        if self.record_ms is not None:
            self.record_ms = None
            self.loaded()
            for _ in self._try_record(now_ms):
                pass
        elif self._work is not None:
            self._work.close()
        if self._file is not None:
            self._file.fsync()
            self._file.close()
            self._file = None
            self._logs.disk.fsync_dir(self._logs.data_dir)


def _joined(frames: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of about BYTES_AT_ONCE."""
    joined, size = [], 0
    for data in frames:
        joined.append(data)
        size += len(data)
        if size >= BYTES_AT_ONCE:
            yield b"".join(joined)
            joined, size = [], 0
    if joined:
        yield b"".join(joined)
