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

A start reads nothing. A power loss may take the cuts of the last SYNC_MS. It may also take records
below the offsets of a cut: such a cut is dropped when the file is read, and the leader epochs of
the logs show it, whatever has been written since.

A cut is not recorded without disk space; the next attempt follows after the interval.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterator

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
    Track,
    encode_cut,
)
from barnabas.protocol.cut_times import AT_OR_AFTER, AT_OR_BEFORE
from barnabas.storage.disk import (
    REPLACING_SUFFIX,
    DirectorySync,
    File,
    FileSync,
    NotWrittenError,
    SyncSteps,
    append_whole,
    not_written,
)
from barnabas.storage.exception_guard import contain
from barnabas.storage.log.log import Log

logger = logging.getLogger("barnabas.transactions")

CUTS_NAME = "barnabas-cuts"
SYNC_MS = 60_000
# Cuts are thinned out after so many new ones, or an eighth of all of them. A slice of this work has
# so many rows, which takes about 10 ms.
FEWEST_BETWEEN, SHARE_BETWEEN, ROWS_AT_ONCE = 64, 8, 20_000
# the size of a file that is not worth replacing
SMALL_BYTES = 64 << 10
# Above the limit, as many cuts are dropped as fill a quarter of it; far below it, cuts are thinned
# out less again.
SHARE_AFTER, LEVELS_AT_ONCE, SHARE_OF_ROOM = 75, 4, 4


class Cuts:
    """Records cuts, and finds them by their times.

    record_ms: the time at which the next cut is recorded; None if nothing was committed since the
    last one. due_ms: the same, or earlier if work on the recorded cuts continues.
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
        self._thinning: Iterator[None] | None = None
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
        if history is None or track is None:
            return
        history.drop_track(track)
        if not history.tracks and self._replacing is None:
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
            if self.record_ms is not None and self.record_ms <= now_ms:
                self.record_ms = None
                self._try_record(now_ms)
            if self._thinning is not None and next(self._thinning, True):
                self._thinning = None
        except Exception as error:
            self._thinning = None
            contain(error, "the recorded cuts of whole transactions")
        self.due_ms = self.record_ms if self._thinning is None else now_ms

    def _try_record(self, now_ms: int) -> None:
        try:
            self._record(now_ms)
        except NotWrittenError as error:
            self._unwritten.note("a cut of whole transactions", error, now_ms)
            self.on_changed(now_ms)

    def _record(self, now_ms: int) -> None:
        history = self._loaded()
        cut = Cut(history.next_number, now_ms + self._logs.wall.ahead_ms, self._logs.leader_epoch)
        new, rows = self._changes(history)
        if not rows:
            return
        self._append(encode_cut(cut, list(new.values()), rows))
        history.add(cut, new.values(), rows)
        self._tracks.update(new)
        self._counters.add("barnabas_cuts_recorded_total")
        self._since_thinned += 1
        self._sync(now_ms)
        is_large = history.size_bytes > self._max_bytes
        if self._thinning is None and (
            is_large or self._since_thinned >= max(FEWEST_BETWEEN, len(history) // SHARE_BETWEEN)
        ):
            self._thinning = self._thin(cut.time_ms)

    def _changes(self, history: CutHistory) -> tuple[dict[Log, Track], list[tuple[Track, int]]]:
        """The partitions that are not in the history yet, and the offsets that have changed since
        the last cut.
        """
        tracks, new, rows, known = self._tracks, {}, [], 0
        for log in self._logs.logs.values():
            if not log.is_whole:
                continue
            track, offset = tracks.get(log), log.last_stable_offset
            if track is None:
                before = 0 if log.whole_from == 0 else NOT_IN_CUT
                track = new[log] = history.track((log.topic_id.bytes, log.partition), before)
                track.index += len(new) - 1
            else:
                known += 1
            if track.last != offset:
                rows.append((track, offset))
        if known < len(tracks):
            logs = self._logs.logs
            for log in [log for log in tracks if logs.get((log.topic, log.partition)) is not log]:
                self._left[tracks.pop(log)] = None
            rows += [
                (track, NOT_IN_CUT)
                for log, track in tracks.items()
                if not log.is_whole and track.last != NOT_IN_CUT
            ]
        rows += [(track, NOT_IN_CUT) for track in self._left if track.last != NOT_IN_CUT]
        return new, rows

    # --- questions -------------------------------------------------------------------------------

    def find(self, timestamp: int) -> Cut | None:
        """The cut for a timestamp for which `asks_for_cut` is true; None if there is none."""
        history = self._loaded()
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
        more; then drop the rows that are not needed, some in each slice.
        """
        history = self._loaded()
        self._since_thinned = 0
        up_to = history.next_number - 1
        kept = history.thinned(wall_ms, self._level)
        size, room = history.size_bytes, self._max_bytes * SHARE_AFTER // 100
        if size > self._max_bytes:
            for _ in range(LEVELS_AT_ONCE):
                if len(kept) * size <= len(history) * room:
                    break
                self._level += 1
                kept = history.thinned(wall_ms, self._level)
        elif size < room // SHARE_OF_ROOM and self._level:
            self._level -= 1
        first = self._first_with_records(history)
        kept = [cut for cut in kept if cut.number >= first]
        history.keep_cuts(kept)
        numbers = array("q", (cut.number for cut in kept))
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

    def _first_with_records(self, history: CutHistory) -> int:
        """The number of the first cut below which a partition still has records; that of the newest
        one if none has.
        """
        if self._logs.offline:  # whose records are not known
            return 0
        first = history.next_number - 1
        for log, track in self._tracks.items():
            number = track.first_above(log.log_start_offset)
            if number is not None and number < first:
                first = number
        return first

    def _forget_deleted(self, history: CutHistory) -> None:
        """Drop the tracks of deleted topics."""
        living = {topic.topic_id.bytes for topic in self._topics.metadata.topics.values()}
        for track in [track for track in self._left if track.key[0] not in living]:
            del self._left[track]
            history.drop_track(track)

    # --- the file --------------------------------------------------------------------------------

    def _loaded(self) -> CutHistory:
        """The history, which is read from the file at the first use."""
        history = self._history
        if history is None:
            history = self._history = self._load()
            logs = {(log.topic_id.bytes, log.partition): log for log in self._logs.logs.values()}
            for key, track in history.tracks.items():
                log = logs.get(key)
                if log is None:
                    self._left[track] = None
                else:
                    self._tracks[log] = track
            self._forget_deleted(history)
            self._drop_lost(history)
        return history

    def _load(self) -> CutHistory:
        disk = self._logs.disk
        disk.unlink(self._path + REPLACING_SUFFIX)
        if not disk.exists(self._path):
            return CutHistory()
        file = disk.open(self._path)
        data = file.pread(file.size, 0)
        try:
            history, size = CutHistory.decode(data)
        except DamagedHistory:
            file.close()
            if len(data) > len(CutHistory().encode()):  # not one that a kill has left unfinished
                logger.warning(
                    "%s is damaged: past cuts are no longer known, new ones are recorded; records "
                    "and transactions are not concerned", self._path,
                )  # fmt: skip
            disk.unlink(self._path)
            return CutHistory()
        if size < len(data):
            logger.warning(
                "%s cannot be read from byte %d on: the %d past cuts before are known; records and "
                "transactions are not concerned", self._path, size, len(history),
            )  # fmt: skip
            file.truncate(size)
        self._file = file
        return history

    def _drop_lost(self, history: CutHistory) -> None:
        """Drop the cuts that include records which a power loss has removed."""
        lost: set[int] = set()
        for log, track in self._tracks.items():
            for first, end in history.lost_numbers(track, log.epochs.entries):
                lost.update(history.numbers_between(first, end))
                if end == history.next_number:
                    track.last = NOT_IN_CUT  # so that the next cut has a row for the partition
        if lost:
            before = len(history)
            history.keep_cuts([cut for cut in history if cut.number not in lost])
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
            append_whole(file, CutHistory().encode())
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
        disk, path = self._logs.disk, self._path + REPLACING_SUFFIX
        self._replacing = []
        try:
            disk.write_atomic(path, self._loaded().encode(), sync=False)
            yield [FileSync(disk, path)]
            file = disk.open(path)
            for data in self._replacing:
                append_whole(file, data)
            disk.rename(path, self._path)
            if self._file is not None:
                self._file.close()
            self._file = file
            yield [DirectorySync(disk, self._logs.data_dir)]
        except OSError as error:
            if not isinstance(not_written(error), NotWrittenError):
                raise
            logger.warning("%s is not replaced by a smaller one: %s", self._path, error)
            disk.unlink(path)
        finally:
            self._replacing = None

    def close(self, now_ms: int) -> None:
        """Record the last cut before a clean stop, and make the file durable."""
        if self.record_ms is not None:
            self.record_ms = None
            self._try_record(now_ms)
        if self._file is not None:
            self._file.fsync()
            self._file.close()
            self._file = None
            self._logs.disk.fsync_dir(self._logs.data_dir)
