"""Group commit: who waits for which logs to be on the disk, and which flush serves them.

At most one flush is under way. All who come while it runs are served together by the next one, so
that a hundred transactions that end at the same time cost the disk no more than one. Order of
effects: logs are asked for what is not durable only when a flush begins.

Where several logs have only a little that is not durable, a flush writes it to the flush journal
and brings that one file to the disk. A full or old journal is followed by the next, and its logs
are then settled: their own files are flushed, a few with each flush that others wait for, more when
nobody waits; then the journal is deleted.

A commit is decided in the very flush that brings its last data to the disk: the decision goes into
the same frame of the journal. So a transaction waits for the disk once. What follows from the
decision (its record in the log, the markers) is told by the journal too, and waits for nothing: it
is owed, and goes with the next flush that anybody wants, or a little later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.outbox import FlushJob, Outbox
from barnabas.storage.flush_journal import JournalDecision

if TYPE_CHECKING:
    from barnabas.storage.durability import FlushToken
    from barnabas.storage.flush_journal import FlushJournal, JournalEntry
    from barnabas.storage.log import Log
    from barnabas.storage.segment_list import LogEnd

Continuation = Callable[[int], None]

MOST_BYTES_OF_A_LOG = 32 << 10  # more goes to the log's own file and is not written twice,
MOST_BYTES_OF_A_FLUSH = (
    1 << 20
)  # unless it is within the log's share of this: then a decision need not wait for a flush of its own
FULL_JOURNAL_BYTES = 64 << 20
SETTLED_BESIDE, SETTLED_ALONE = 8, 64  # logs at a time
LONGEST_OWED_MS = 100


class Decision(NamedTuple):
    """That a transaction is committed: a record for `log`, not appended yet.

    then(now_ms, is_durable): appends it. is_durable: the journal has it, and `FlushQueue.owe` is to
    be told of all that follows from it; else there is no journal, and each step has to wait for the
    disk.
    """

    log: Log
    record: JournalDecision
    then: Callable[[int, bool], None]


Decide = Callable[[int], Decision | None]


class FlushQueue:
    """Waiters by what they wait for; `then(now_ms)` runs once, when all of it is on the disk.

    Takes:  journal, None: there is none. fewest_logs: from so many on the journal is used; 0:
            never. turn_over_ms: how old one may become. to_settle: the logs of which an earlier run
            left journals. keep_found: whether these journals have to stay. has_room: whether the
            disk has room for journals; without it they go. on_advanced: told of each log whose high
            watermark a flush has moved, and the time.
    full_journal_bytes: at which size a journal is followed by the next.
    """

    def __init__(
        self,
        outbox: Outbox,
        journal: FlushJournal | None = None,
        *,
        fewest_logs: int = 2,
        turn_over_ms: int = 60_000,
        to_settle: Iterable[Log] = (),
        keep_found: Callable[[], bool] = lambda: False,
        has_room: Callable[[], bool] = lambda: True,
        on_advanced: Callable[[Log, int], None] = lambda _log, _now_ms: None,
    ) -> None:
        self._outbox = outbox
        self._journal = journal
        self._fewest_logs = fewest_logs
        self._turn_over_ms = turn_over_ms
        self._keep_found = keep_found
        self._has_room = has_room
        self.full_journal_bytes = FULL_JOURNAL_BYTES
        self._on_advanced = on_advanced
        self._waiting: list[tuple[list[tuple[Log, int]], bool, Continuation]] = []
        self._committing: list[tuple[list[tuple[Log, int]], Decide]] = []
        self._decided: list[Decision] = []
        self._owed: dict[Log, LogEnd] = {}
        self._owed_due_ms = 0
        self._wanted: dict[Log, bool] = {}
        self._under_way: FlushJob | None = None
        self._next_job_id = 1
        self._journaled: dict[Log, None] = {}
        self._journal_began_ms = 0
        self._to_settle: dict[Log, None] = dict.fromkeys(to_settle)

    @property
    def is_idle(self) -> bool:
        return self._under_way is None and not self._waiting and not self._committing

    def wait(
        self, logs: Iterable[Log], then: Continuation, now_ms: int, *, in_place: bool = False
    ) -> None:
        """Run `then` when everything appended so far to `logs` is on the disk (`in_place`: in the
        logs' own files): at once if it is.
        """
        needed = _what_is_missing([(log, log.log_end_offset) for log in logs], in_place)
        if not needed:
            then(now_ms)
            return
        for log, _ in needed:
            self._wanted[log] = in_place or self._wanted.get(log, False)
        self._waiting.append((needed, in_place, then))
        self._begin(now_ms)

    def commit(self, logs: Iterable[Log], decide: Decide, now_ms: int) -> None:
        """Decide when everything appended so far to `logs` is on the disk, or comes there together
        with the decision.

        Takes:  decide(now_ms), called once. It gives the decision, of which nothing is to be heard
                before its `then`; None: there is none.
        """
        needed = _what_is_missing([(log, log.log_end_offset) for log in logs], False)
        for log, _ in needed:
            self._wanted.setdefault(log, False)
        self._committing.append((needed, decide))
        self._begin(now_ms)

    def owe(self, logs: Iterable[Log], now_ms: int) -> None:
        """What was appended to `logs` follows from a decision that the journal has. Nobody waits
        for it, but it comes to the disk soon.

        It comes there before any decision that is made later, by somebody who may have seen it. And
        the journal stays until it is in the logs' own files.
        """
        assert self._journal is not None
        if not self._owed:
            self._owed_due_ms = now_ms + LONGEST_OWED_MS
        for log in logs:
            self._owed[log] = log.segments.end
            if self._journal.size_bytes:
                self._journaled[log] = None
            if self._journal.has_older:
                self._to_settle[log] = None

    def forget(self, log: Log, now_ms: int) -> None:
        """The log is gone (its topic was deleted): nobody waits for it any more."""
        self._wanted.pop(log, None)
        self._owed.pop(log, None)
        self._journaled.pop(log, None)
        self._to_settle.pop(log, None)
        for needed in [
            *(needed for needed, _, _ in self._waiting),
            *(needed for needed, _ in self._committing),
        ]:
            needed[:] = [(other, offset) for other, offset in needed if other is not log]
        self._release(now_ms)
        if self._committing:
            self._begin(now_ms)

    def on_flushed(self, job: FlushJob, now_ms: int) -> None:
        """The rim brought the job's files to the disk."""
        assert self._under_way is job, "a flush ended that was not under way"
        advanced = [log for log, token in job.tokens if log.finish_flush(token)]
        if self._journal is not None:
            self._journal.note_flushed()  # no frame is written while a flush is under way
        self._forget_journals()
        for needed, in_place, _ in self._waiting:
            needed[:] = _what_is_missing(needed, in_place)
        decided, self._decided = self._decided, []
        for decision in decided:
            decision.then(now_ms, True)
        self._release(now_ms)  # what these wait for next is served by one flush
        for log in advanced:
            self._on_advanced(log, now_ms)
        self._under_way = None
        self._begin(now_ms)

    def _release(self, now_ms: int) -> None:
        ready = [then for needed, _, then in self._waiting if not needed]
        self._waiting = [entry for entry in self._waiting if entry[0]]
        for then in ready:
            then(now_ms)

    def _begin(self, now_ms: int) -> None:
        if self._committing and not self._may_journal():
            self._decide_without_journal(now_ms)
        if self._under_way is not None:
            return
        tokens: list[tuple[Log, FlushToken]] = []
        files: list[Any] = []
        if self._wanted or self._committing or self._is_owed_due(now_ms):
            self._take_wanted(tokens, files, now_ms)
        self._take_to_settle(SETTLED_BESIDE if tokens or files else SETTLED_ALONE, tokens, files)
        if tokens or files:
            self._under_way = FlushJob(self._next_job_id, tuple(tokens), tuple(files))
            self._next_job_id += 1
            self._outbox.flushes.append(self._under_way)
        else:
            self._forget_journals()

    def _may_journal(self) -> bool:
        return self._journal is not None and self._fewest_logs > 0 and self._has_room()

    def _take_wanted(
        self, tokens: list[tuple[Log, FlushToken]], files: list[Any], now_ms: int
    ) -> None:
        may_journal = self._may_journal()
        if self._journaled and not self._to_settle and (not may_journal or self._is_journal_full()):
            self._turn_over()
        wanted, self._wanted = self._wanted, {}
        owed, self._owed = self._owed, {}
        journal = (
            self._journal
            if may_journal and (len(wanted) >= self._fewest_logs or self._committing or owed)
            else None
        )
        most_bytes = max(
            MOST_BYTES_OF_A_LOG, MOST_BYTES_OF_A_FLUSH // max(1, len(wanted.keys() | owed.keys()))
        )
        entries: list[JournalEntry] = []
        journaled: set[Log] = set()

        def take(log: Log, end: LogEnd | None) -> None:
            begun = None if journal is None else log.durability.try_begin_journal(most_bytes, end)
            if begun is None:
                self._take_files(log, tokens, files)
                return
            entries.append(begun[0])
            tokens.append((log, begun[1]))
            journaled.add(log)
            self._journaled[log] = None

        for log, in_place in wanted.items():
            if in_place:
                self._take_files(log, tokens, files)
            elif not log.durability.is_flushed(
                log.log_end_offset
            ):  # else by the flush that was under way when it was asked for
                take(log, None)
        for log, end in owed.items():
            if log not in wanted and not log.durability.is_flushed(end.offset):
                take(log, end)
        if journal is not None:
            if all(
                log in journaled or log.durability.is_flushed(end.offset)
                for log, end in owed.items()
            ):
                self._decide(
                    journaled, now_ms
                )  # else in the next frame: a power loss may keep this one, and not the files beside it
            self._write_frame(journal, entries, files, now_ms)

    def _decide(self, journaled: set[Log], now_ms: int) -> None:
        """Let those decide whose data are on the disk, or will be with the frame that has the ends
        of the logs `journaled`.
        """
        committing, self._committing = self._committing, []
        for needed, decide in committing:
            if all(log in journaled or log.durability.is_flushed(offset) for log, offset in needed):
                decision = decide(now_ms)
                if decision is not None:
                    self._decided.append(decision)
                    self._journaled[decision.log] = None
            else:
                self._committing.append((needed, decide))

    def _write_frame(
        self, journal: FlushJournal, entries: list[JournalEntry], files: list[Any], now_ms: int
    ) -> None:
        if entries or self._decided:
            if not journal.size_bytes:
                self._journal_began_ms = now_ms
            files += journal.append(entries, [decision.record for decision in self._decided])

    def _is_journal_full(self) -> bool:
        return self._journal is not None and self._journal.size_bytes >= self.full_journal_bytes

    def _decide_without_journal(self, now_ms: int) -> None:
        """There is no journal, or no room for it: the data first, in their own files, then the
        decision.
        """
        committing, self._committing = self._committing, []
        for needed, decide in committing:
            needed = _what_is_missing(needed, False)
            if needed:
                self._committing.append((needed, decide))
            elif (decision := decide(now_ms)) is not None:
                decision.then(now_ms, False)

    def _take_files(self, log: Log, tokens: list[tuple[Log, FlushToken]], files: list[Any]) -> None:
        self._to_settle.pop(log, None)
        token = log.durability.begin_flush()
        if token is not None:
            tokens.append((log, token))
            files += token.files

    def _is_owed_due(self, now_ms: int) -> bool:
        return bool(self._owed) and self._owed_due_ms <= now_ms

    # --- the journal's end -----------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """When `on_tick` has something to do; None: never."""
        if self._to_settle:
            return 0 if self._under_way is None else None
        turn_over_ms = self._journal_began_ms + self._turn_over_ms if self._journaled else None
        if (
            self._owed
            and self._under_way is None
            and (turn_over_ms is None or self._owed_due_ms < turn_over_ms)
        ):
            return self._owed_due_ms
        return turn_over_ms

    def on_tick(self, now_ms: int) -> None:
        """Bring what is owed to the disk; let a journal that is old come to its end."""
        deadline = self.next_deadline_ms()
        if deadline is not None and deadline <= now_ms:
            if (
                self._journaled
                and not self._to_settle
                and self._journal_began_ms + self._turn_over_ms <= now_ms
            ):
                self._turn_over()
            self._begin(now_ms)

    def _turn_over(self) -> None:
        assert self._journal is not None
        self._journal.begin_next()
        self._to_settle, self._journaled = self._journaled, {}

    def _take_to_settle(
        self, most: int, tokens: list[tuple[Log, FlushToken]], files: list[Any]
    ) -> None:
        """Add the files of a few logs that are to be settled."""
        before = len(tokens)
        while self._to_settle and len(tokens) - before < most:
            self._take_files(next(iter(self._to_settle)), tokens, files)

    def _forget_journals(self) -> None:
        """No flush is under way: where no log is left to settle, the journals that are over go."""
        if not self._to_settle and self._journal is not None and self._journal.has_older:
            self._journal.forget_older(keep_found=self._keep_found())


def _what_is_missing(needed: list[tuple[Log, int]], in_place: bool) -> list[tuple[Log, int]]:
    if in_place:
        return [
            (log, offset)
            for log, offset in needed
            if not log.durability.is_flushed_in_place(offset)
        ]
    return [(log, offset) for log, offset in needed if not log.durability.is_flushed(offset)]
