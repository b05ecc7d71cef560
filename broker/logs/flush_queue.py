"""Group commit: the requests that wait until logs are durable, and the flushes that serve them.

At most one flush runs at a time. All requests that arrive while it runs are served together by the
next one, so a hundred transactions that end at the same time cost the disk as much as one. A flush
has at most a thousand logs, since the loop reads their bytes for the journal; further logs are in
the next flushes. The record of a transaction is added to the frame that contains the last of the
transaction's data. The part of a log that is not durable is computed when a flush begins, not
earlier.

If several logs have few bytes that are not durable, a flush writes these bytes to the flush journal
and flushes that one file. A full or old journal is rolled: the next journal is begun, and the logs
of the full one are checkpointed. This means that their own files are flushed, a few with each flush
that requests wait for, more when no request waits. Then the journal is deleted.

Requests that wait for a frame of the journal may add records to it (`wait_for_frame`). Such a
record becomes durable together with the last data that it describes, with one flush for both. The
effects of the record can be restored from the journal, so no request waits for them: they are
flushed with the next flush, or a little later (`flush_later`). The queue does not interpret files,
logs and records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

from barnabas.broker.logs.disk_space import DiskSpace
from barnabas.broker.logs.unwritten_work import RETRY_MS
from barnabas.broker.outbox import FlushJob, Outbox
from barnabas.storage.disk import NotWrittenError, Syncable
from barnabas.storage.exception_guard import contain
from barnabas.storage.files.flush_journal import FlushJournal, JournalRecord, JournalRow

if TYPE_CHECKING:
    from barnabas.storage.log.durability import FlushToken, LogEnd
    from barnabas.storage.log.log import Log

Continuation = Callable[[int], None]

logger = logging.getLogger("barnabas.broker")

# A log with more bytes than this is flushed in its own file, so that the bytes are not written
# twice. But if the bytes are within the log's share of a flush, they are written to the journal, so
# that no request that waits for the frame needs another flush.
MOST_BYTES_OF_A_LOG = 32 << 10
MOST_BYTES_OF_A_FLUSH = 1 << 20
LOGS_OF_A_FLUSH = 1024  # a log costs 5 us, or 20 us if its files were closed
BYTES_OF_A_FRAME = 4 << 20
FULL_JOURNAL_BYTES = 64 << 20
# the number of logs that are checkpointed in one flush, together with other logs or alone
CHECKPOINTED_BESIDE, CHECKPOINTED_ALONE = 8, 64
LONGEST_LATER_MS = 100
AFTER_A_FLUSH = "a step after a flush"  # in the log


class Frame:
    """A frame of the flush journal before it is written, with the records that are added to it."""

    __slots__ = ("followers", "logs", "records", "undoing")

    def __init__(self) -> None:
        self.records: list[JournalRecord] = []
        self.logs: list[Log] = []
        self.followers: list[Continuation] = []
        self.undoing: list[Continuation] = []

    def add(self, record: JournalRecord, log: Log, then: Continuation, undo: Continuation) -> None:
        """Add a record that is not appended to `log` yet.

        Takes:  then(now_ms), called when the frame is on the disk. It appends the record, and
                passes the logs of the record's effects to `FlushQueue.flush_later`. undo(now_ms),
                called instead if there is no space for the frame. It may wait for another frame.
        """
        self.records.append(record)
        self.logs.append(log)
        self.followers.append(then)
        self.undoing.append(undo)


FrameContinuation = Callable[[Frame | None, int], None]


class FlushQueue:
    """The callbacks that wait for logs; each runs once, when its logs are durable.

    full_journal_bytes: the size at which a journal is rolled. most_logs: the maximum number of logs
    in one flush.
    """

    def __init__(
        self,
        outbox: Outbox,
        journal: FlushJournal | None = None,
        *,
        fewest_logs: int = 2,
        journal_roll_ms: int = 60_000,
        logs_to_checkpoint: Iterable[Log] = (),
        keeps_earlier_journals: Callable[[], bool] = lambda: False,
        disk_space: DiskSpace | None = None,
        on_advanced: Callable[[Log, int], None] = lambda _log, _now_ms: None,
    ) -> None:
        """Create an empty queue.

        Takes: journal, None if there is no flush journal; fewest_logs, the number of logs in a
               flush from which on the journal is used, 0 for never; journal_roll_ms, the maximum
               age of a journal; logs_to_checkpoint, the logs of journals that an earlier run left;
               keeps_earlier_journals, whether the journals of an earlier run must not be deleted;
               disk_space, the space for journals, without which no journal is written; None if
               there is always space; on_advanced, called with each log whose high watermark a flush
               has moved, and the time.
        """
        self._outbox = outbox
        self._journal = journal
        self._fewest_logs = fewest_logs
        self._journal_roll_ms = journal_roll_ms
        self._keeps_earlier_journals = keeps_earlier_journals
        self._disk_space = disk_space
        self.full_journal_bytes, self.most_logs = FULL_JOURNAL_BYTES, LOGS_OF_A_FLUSH
        self._on_advanced = on_advanced
        self._waiting: list[tuple[list[tuple[Log, int]], bool, Continuation]] = []
        self._waiting_for_frame: list[tuple[list[tuple[Log, int]], FrameContinuation]] = []
        # the callbacks of the records in the current frame
        self._followers: list[Continuation] = []
        self._later: dict[Log, LogEnd] = {}
        self._later_due_ms = 0
        # logs of the next flush, and whether each is flushed in its own files
        self._next: dict[Log, bool] = {}
        self._under_way: FlushJob | None = None
        self._is_beginning = False
        self._next_job_id = 1
        self._in_journal: dict[Log, None] = {}
        self._journal_began_ms = 0
        self._to_checkpoint: dict[Log, None] = dict.fromkeys(logs_to_checkpoint)
        self._holder_count = 0
        self._no_journal_until_ms: int | None = None

    @property
    def is_idle(self) -> bool:
        return self._under_way is None and not self._waiting and not self._waiting_for_frame

    def wait(
        self, logs: Iterable[Log], then: Continuation, now_ms: int, *, in_place: bool = False
    ) -> None:
        """Call `then` once everything appended so far to `logs` is durable, or immediately if it
        is durable already.

        Takes:  in_place, whether it has to be durable in the logs' own files.
        """
        missing = _missing([(log, log.log_end_offset) for log in logs], in_place)
        if not missing:
            then(now_ms)
            return
        for log, _ in missing:
            self._next[log] = in_place or self._next.get(log, False)
        self._waiting.append((missing, in_place, then))
        self._begin(now_ms)

    def wait_for_frame(self, logs: Iterable[Log], then: FrameContinuation, now_ms: int) -> None:
        """Call `then` when the data of `logs` are durable, or will become durable with the next
        frame.

        Takes:  then(frame, now_ms), called once; it may add records to the frame. Without a journal
                the frame is None, and the data are durable.
        """
        missing = []
        for log in logs:
            if log.durability.durable_offset < log.log_end_offset:
                missing.append((log, log.log_end_offset))
                self._next.setdefault(log, False)
        self._waiting_for_frame.append((missing, then))
        self._begin(now_ms)

    def flush_later(self, logs: Iterable[Log], now_ms: int) -> None:
        """Flush the effects of a journaled record soon. The effects were appended to `logs`.

        No request waits for them. They become durable before any record of a later frame, since
        that record may depend on them. The journal is kept until the effects are in the logs' own
        files.
        """
        journal = self._journal
        assert journal is not None
        is_in_journal, is_in_older = bool(journal.size_bytes), journal.has_older
        if not self._later:
            self._later_due_ms = now_ms + LONGEST_LATER_MS
        for log in logs:
            self._later[log] = log.durability.end
            if is_in_journal:
                self._in_journal[log] = None
            if is_in_older:
                self._to_checkpoint[log] = None

    def hold_journals(self) -> None:
        """Keep all journals until `release_journals`, since effects of a record are not appended
        yet.
        """
        self._holder_count += 1

    def release_journals(self) -> None:
        """Undo one `hold_journals`: all effects of its record have been passed to `flush_later`."""
        self._holder_count -= 1

    def forget(self, log: Log, now_ms: int) -> None:
        """Stop waiting for a log whose topic was deleted."""
        self._next.pop(log, None)
        self._later.pop(log, None)
        self._in_journal.pop(log, None)
        self._to_checkpoint.pop(log, None)
        for missing in [
            *(missing for missing, _, _ in self._waiting),
            *(missing for missing, _ in self._waiting_for_frame),
        ]:
            missing[:] = [(other, offset) for other, offset in missing if other is not log]
        self._release(now_ms)
        if self._waiting_for_frame:
            self._begin(now_ms)

    def on_flushed(self, job: FlushJob, now_ms: int) -> None:
        """Handle the end of a flush: the flusher has flushed the job's files."""
        assert self._under_way is job, "a flush ended that was not under way"
        advanced: list[Log] = []
        for log, token in job.tokens:
            if log.finish_flush(token):
                advanced.append(log)
        journal = self._journal
        if journal is not None:
            journal.note_flushed()  # all of it, since no frame is written during a flush
            if journal.has_older:
                self._delete_journals()
        followers, self._followers = self._followers, []
        for then in followers:
            try:
                then(now_ms)
            except Exception as error:
                contain(error, AFTER_A_FLUSH)
        if self._waiting:
            self._release(now_ms)  # so that the next flush also serves what the callbacks wait for
        for log in advanced:
            try:
                self._on_advanced(log, now_ms)
            except Exception as error:
                contain(error, AFTER_A_FLUSH)
        self._under_way = None
        self._begin(now_ms)

    def _release(self, now_ms: int) -> bool:
        """Call the callbacks whose logs are durable. Gives: whether any was called."""
        ready, waiting = [], []
        for missing, in_place, then in self._waiting:
            missing[:] = _missing(missing, in_place)
            if missing:
                waiting.append((missing, in_place, then))
            else:
                ready.append(then)
        self._waiting = waiting
        for then in ready:
            try:
                then(now_ms)
            except Exception as error:
                contain(error, AFTER_A_FLUSH)
        return bool(ready)

    # --- a flush ---------------------------------------------------------------------------------

    def _begin(self, now_ms: int) -> None:
        """Begin a flush, unless one runs or is being begun.

        The latter is the case if a callback that was given a frame asks for another flush.
        """
        if self._is_beginning:
            return
        if not (self._next or self._waiting_for_frame or self._later or self._to_checkpoint):
            if self._under_way is None and self._journal is not None and self._journal.has_older:
                self._delete_journals()
            return
        self._is_beginning = True
        try:
            disk_space, until_ms = self._disk_space, self._no_journal_until_ms
            may_journal = (
                self._journal is not None
                and self._fewest_logs > 0
                and (disk_space is None or not disk_space.is_full)
                and (until_ms is None or until_ms <= now_ms)
            )
            if not may_journal:
                self._release_without_frame(now_ms)
            if self._under_way is None:
                self._begin_one(may_journal, now_ms)
        # an error that ends one request must not prevent flushes for other requests
        finally:
            self._is_beginning = False

    def _release_without_frame(self, now_ms: int) -> None:
        while self._waiting_for_frame and self._try_release_without_frame(now_ms):
            pass  # repeated, since a callback may wait again for data that are already durable

    def _begin_one(self, may_journal: bool, now_ms: int) -> None:
        """Put the next flush job into the outbox, if any log has to be flushed; otherwise delete
        old journals.
        """
        tokens: list[tuple[Log, FlushToken | LogEnd]] = []
        files: list[Syncable] = []
        while self._next or self._waiting_for_frame or self._is_later_due(now_ms):
            was_called = self._take_next(tokens, files, may_journal, now_ms)
            if may_journal and (self._no_journal_until_ms or now_ms) > now_ms:
                may_journal = False
                self._release_without_frame(now_ms)
            if tokens or files:
                break
            # a waiting log may have been flushed without the queue: call its callbacks
            is_released = self._release(now_ms)
            if not was_called and not is_released:
                break  # otherwise repeat: a callback may have asked for a flush, or may wait again
        if self._to_checkpoint:
            most = CHECKPOINTED_BESIDE if tokens or files else CHECKPOINTED_ALONE
            self._take_to_checkpoint(most, tokens, files)
        if tokens or files:
            # without duplicates, since new logs share the data directory, which is flushed, too
            each = tuple(dict.fromkeys(files) if len(files) > 1 else files)
            self._under_way = FlushJob(self._next_job_id, tuple(tokens), each)
            self._next_job_id += 1
            self._outbox.flushes.append(self._under_way)
        else:
            self._delete_journals()

    def _take_next(
        self,
        tokens: list[tuple[Log, FlushToken | LogEnd]],
        files: list[Syncable],
        may_journal: bool,
        now_ms: int,
    ) -> bool:
        """Choose the logs of the next flush, and whether each is flushed by the journal or in its
        own files.

        After:  logs for which one flush has no room are left for the next one.
        Gives:  whether a callback that waits for a frame was called.
        """
        journal = self._journal
        is_full = journal is not None and journal.size_bytes >= self.full_journal_bytes
        if self._in_journal and not self._to_checkpoint and (is_full or not may_journal):
            self._roll_journal()
        next_logs, self._next = self._next, {}
        later, self._later = self._later, {}
        uses_journal = may_journal and bool(
            len(next_logs) >= self._fewest_logs or self._waiting_for_frame or later
        )
        ends: dict[Log, LogEnd | None] = {**later, **dict.fromkeys(next_logs)}
        if len(ends) > self.most_logs:
            ends = self._in_turn(later, next_logs)
        most_bytes = max(MOST_BYTES_OF_A_LOG, MOST_BYTES_OF_A_FLUSH // max(1, len(ends)))
        entries: dict[Log, JournalRow] = {}
        are_in_journal = uses_journal and True not in next_logs.values()
        left, left_bytes = self.most_logs, BYTES_OF_A_FRAME
        for log, end in ends.items():
            if left <= 0 or left_bytes <= 0:
                if log in next_logs:
                    self._next[log] = next_logs[log]
                if log in later:
                    self._later[log] = later[log]
                continue
            begun, durability = None, log.durability
            if are_in_journal or not next_logs.get(log, False):  # not in place
                if durability.durable_offset >= (log.log_end_offset if end is None else end[0]):
                    continue  # the previous flush has made it durable
                if uses_journal:
                    begun = durability.try_begin_journal(most_bytes, end)
            left -= 1
            if begun is None:
                self._take_files(log, tokens, files)
            else:
                entries[log], end = begun
                left_bytes -= len(begun[0][-1])
                tokens.append((log, end))
        self._in_journal |= dict.fromkeys(entries)
        return uses_journal and self._make_frame(entries, later, tokens, files, now_ms)

    def _in_turn(
        self, later: dict[Log, LogEnd], next_logs: dict[Log, bool]
    ) -> dict[Log, LogEnd | None]:
        """The waiting logs, ordered so that the next flush has logs that requests wait for as well
        as logs from `flush_later`.
        """
        logs = [*islice(later, max(1, self.most_logs // 2)), *next_logs, *later]
        return {log: None if log in next_logs else later[log] for log in logs}

    def _make_frame(
        self,
        entries: dict[Log, JournalRow],
        later: dict[Log, LogEnd],
        tokens: list[tuple[Log, FlushToken | LogEnd]],
        files: list[Syncable],
        now_ms: int,
    ) -> bool:
        """Write a frame of the entries, and of the records that waiting callbacks add.

        While logs of `later` are flushed in their own files, no records are added to a frame: a
        power loss may keep the frame and lose the files.

        Gives:  whether a callback was called.
        """
        frame, takes_records = Frame(), True
        for log, end in later.items():
            if log not in entries and log.durability.durable_offset < end[0]:
                takes_records = False
        was_called = takes_records and self._offer(frame, entries, now_ms)
        try:
            self._write_frame(frame, entries, files, now_ms)
        except NotWrittenError as error:
            logger.warning("flushes use no journal, since the disk is full: %s", error)
            self._no_journal_until_ms = now_ms + RETRY_MS
            tokens[:] = [row for row in tokens if row[0] not in entries]
            for log in entries:
                self._take_files(log, tokens, files)
            for undo in frame.undoing:
                try:
                    undo(now_ms)
                except Exception as error:
                    contain(error, AFTER_A_FLUSH)
        return was_called

    def _offer(self, frame: Frame, entries: dict[Log, JournalRow], now_ms: int) -> bool:
        """Call the callbacks whose data are durable, or become durable with the frame. Gives:
        whether any was called.
        """
        waiting, self._waiting_for_frame = self._waiting_for_frame, []
        was_called = False
        for missing, then in waiting:
            for log, offset in missing:
                if log not in entries and log.durability.durable_offset < offset:
                    self._waiting_for_frame.append((missing, then))
                    break
            else:
                was_called = True
                try:
                    then(frame, now_ms)
                except Exception as error:
                    contain(error, AFTER_A_FLUSH)
        return was_called

    def _write_frame(
        self,
        frame: Frame,
        entries: dict[Log, JournalRow],
        files: list[Syncable],
        now_ms: int,
    ) -> None:
        """Append a frame to the journal, unless it is empty. After: `files` has the journal's file.
        Raises: NotWrittenError.
        """
        journal = self._journal
        assert journal is not None
        if entries or frame.records:
            if not journal.size_bytes:
                self._journal_began_ms = now_ms
            files += journal.append(entries.values(), frame.records)
            for log in frame.logs:
                self._in_journal[log] = None
            self._followers += frame.followers

    def _try_release_without_frame(self, now_ms: int) -> bool:
        """Call the callbacks whose data are durable in the logs' own files, because there is no
        journal, or no space for it.

        Gives: whether any was called.
        """
        waiting, self._waiting_for_frame = self._waiting_for_frame, []
        ready = []
        for missing, then in waiting:
            still_missing = _missing(missing, False)
            if still_missing:
                self._waiting_for_frame.append((still_missing, then))
            else:
                ready.append(then)
        for then in ready:
            try:
                then(None, now_ms)
            except Exception as error:
                contain(error, AFTER_A_FLUSH)
        return bool(ready)

    def _take_files(
        self, log: Log, tokens: list[tuple[Log, FlushToken | LogEnd]], files: list[Syncable]
    ) -> None:
        """Flush a log in its own files, and not by the journal."""
        self._to_checkpoint.pop(log, None)
        token = log.durability.begin_flush()
        if token is not None:
            tokens.append((log, token))
            files += token.files

    def _is_later_due(self, now_ms: int) -> bool:
        return bool(self._later) and self._later_due_ms <= now_ms

    # --- the journal's end -----------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """The time at which `on_tick` has work; None if it has none."""
        if self._to_checkpoint:
            return 0 if self._under_way is None else None
        roll_ms = self._journal_began_ms + self._journal_roll_ms if self._in_journal else None
        if (
            self._later
            and self._under_way is None
            and (roll_ms is None or self._later_due_ms < roll_ms)
        ):
            return self._later_due_ms
        return roll_ms

    def on_tick(self, now_ms: int) -> None:
        """Begin flushes that no request waits for, and roll an old journal."""
        deadline = self.next_deadline_ms()
        if deadline is not None and deadline <= now_ms:
            if (
                self._in_journal
                and not self._to_checkpoint
                and self._journal_began_ms + self._journal_roll_ms <= now_ms
            ):
                self._roll_journal()
            self._begin(now_ms)

    def _roll_journal(self) -> None:
        """Begin the next journal. The old one is deleted once its logs are flushed in their own
        files.
        """
        assert self._journal is not None
        self._journal.begin_next()
        self._to_checkpoint, self._in_journal = self._in_journal, {}

    def _take_to_checkpoint(
        self, most: int, tokens: list[tuple[Log, FlushToken | LogEnd]], files: list[Syncable]
    ) -> None:
        """Add the files of at most `most` logs that are to be checkpointed."""
        before = len(tokens)
        while self._to_checkpoint and len(tokens) - before < most:
            self._take_files(next(iter(self._to_checkpoint)), tokens, files)

    def _delete_journals(self) -> None:
        """Delete the older journals if no log is left to checkpoint. Called while no flush runs."""
        if self._to_checkpoint or self._holder_count:
            return
        if self._journal is not None and self._journal.has_older:
            self._journal.forget_older(keep_earlier=self._keeps_earlier_journals())


def _missing(ends: list[tuple[Log, int]], in_place: bool) -> list[tuple[Log, int]]:
    """The parts of the logs that are not durable yet."""
    if in_place:
        return [(log, offset) for log, offset in ends if log.durability.recovery_point < offset]
    return [(log, offset) for log, offset in ends if log.durability.durable_offset < offset]
