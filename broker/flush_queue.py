"""Group commit: who waits for which logs to be on the disk, and which flush serves them.

At most one flush is under way. All who come while it runs are served together by the next one, so that a hundred transactions that end at
the same time cost the disk no more than one. Order of effects: logs are asked for what is not durable only when a flush begins.

Where several logs have only a little that is not durable, a flush writes it to the flush journal and brings that one file to the disk. A full
or old journal is followed by the next, and its logs are then settled: their own files are flushed, a few with each flush that others wait
for, more when nobody waits; then the journal is deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from broker.outbox import FlushJob, Outbox

if TYPE_CHECKING:
    from storage.flush_journal import FlushJournal
    from storage.log import FlushToken, Log

Continuation = Callable[[int], None]

MOST_BYTES_OF_A_LOG = 32 << 10  # more is as quickly brought to the disk in its own file as written twice
FULL_JOURNAL_BYTES = 64 << 20
SETTLED_BESIDE, SETTLED_ALONE = 8, 64  # logs at a time


class FlushQueue:
    """Waiters by what they wait for; `then(now_ms)` runs once, when all of it is on the disk.

    Takes:  journal, None: there is none. fewest_logs: from so many on the journal is used; 0: never. turn_over_ms: how old one may become.
            to_settle: the logs of which an earlier run left journals. keep_found: whether these journals have to stay. has_room: whether the
            disk has room for journals; without it they go.
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
    ) -> None:
        self._outbox = outbox
        self._journal = journal
        self._fewest_logs = fewest_logs
        self._turn_over_ms = turn_over_ms
        self._keep_found = keep_found
        self._has_room = has_room
        self._waiting: list[tuple[list[tuple[Log, int]], bool, Continuation]] = []
        self._wanted: dict[Log, bool] = {}
        self._under_way: FlushJob | None = None
        self._next_job_id = 1
        self._journaled: dict[Log, None] = {}
        self._journal_began_ms = 0
        self._to_settle: dict[Log, None] = dict.fromkeys(to_settle)

    @property
    def is_idle(self) -> bool:
        return self._under_way is None and not self._waiting

    def wait(self, logs: Iterable[Log], then: Continuation, now_ms: int, *, in_place: bool = False) -> None:
        """Run `then` when everything appended so far to `logs` is on the disk (`in_place`: in the logs' own files): at once if it is."""
        needed = _what_is_missing([(log, log.log_end_offset) for log in logs], in_place)
        if not needed:
            then(now_ms)
            return
        for log, _ in needed:
            self._wanted[log] = in_place or self._wanted.get(log, False)
        self._waiting.append((needed, in_place, then))
        self._begin(now_ms)

    def forget(self, log: Log, now_ms: int) -> None:
        """The log is gone (its topic was deleted): nobody waits for it any more."""
        self._wanted.pop(log, None)
        self._journaled.pop(log, None)
        self._to_settle.pop(log, None)
        for needed, _, _ in self._waiting:
            needed[:] = [(other, offset) for other, offset in needed if other is not log]
        self._release(now_ms)

    def on_flushed(self, job: FlushJob, now_ms: int) -> None:
        """The rim brought the job's files to the disk."""
        assert self._under_way is job, "a flush ended that was not under way"
        for log, token in job.tokens:
            log.finish_flush(token)
        self._forget_journals()
        for needed, in_place, _ in self._waiting:
            needed[:] = _what_is_missing(needed, in_place)
        self._release(now_ms)  # what these wait for next is served by one flush
        self._under_way = None
        self._begin(now_ms)

    def _release(self, now_ms: int) -> None:
        ready = [then for needed, _, then in self._waiting if not needed]
        self._waiting = [entry for entry in self._waiting if entry[0]]
        for then in ready:
            then(now_ms)

    def _begin(self, now_ms: int) -> None:
        if self._under_way is not None:
            return
        tokens: list[tuple[Log, FlushToken]] = []
        files: list[Any] = []
        wanted, self._wanted = self._wanted, {}
        self._take_wanted(wanted, tokens, files, now_ms)
        self._take_to_settle(SETTLED_BESIDE if tokens else SETTLED_ALONE, tokens, files)
        if tokens:
            self._under_way = FlushJob(self._next_job_id, tuple(tokens), tuple(files))
            self._next_job_id += 1
            self._outbox.flushes.append(self._under_way)
        else:
            self._forget_journals()

    def _take_wanted(self, wanted: dict[Log, bool], tokens: list[tuple[Log, FlushToken]], files: list[Any], now_ms: int) -> None:
        has_room = self._has_room()
        if not has_room and self._journaled and not self._to_settle:
            self._turn_over()
        journal = self._journal if has_room and 0 < self._fewest_logs <= len(wanted) else None
        entries = []
        for log, in_place in wanted.items():
            if not in_place and log.is_flushed(log.log_end_offset):
                continue  # by the flush that was under way when it was asked for
            if journal is not None and not in_place:
                begun = log.try_begin_journal(MOST_BYTES_OF_A_LOG)
                if begun is not None:
                    entries.append(begun[0])
                    tokens.append((log, begun[1]))
                    self._journaled[log] = None
                    continue
            self._take_files(log, tokens, files)
        if journal is not None and entries:
            if not journal.size_bytes:
                self._journal_began_ms = now_ms
            files += journal.append(entries)
            if journal.size_bytes >= FULL_JOURNAL_BYTES and not self._to_settle:
                self._turn_over()

    def _take_files(self, log: Log, tokens: list[tuple[Log, FlushToken]], files: list[Any]) -> None:
        self._to_settle.pop(log, None)
        token = log.begin_flush()
        if token is not None:
            tokens.append((log, token))
            files += token.files

    # --- the journal's end -------------------------------------------------------------------------------------------------------

    def next_deadline_ms(self) -> int | None:
        """When `on_tick` has something to do; None: never."""
        if self._to_settle:
            return 0 if self._under_way is None else None
        return self._journal_began_ms + self._turn_over_ms if self._journaled else None

    def on_tick(self, now_ms: int) -> None:
        """Let a journal that is old come to its end."""
        deadline = self.next_deadline_ms()
        if deadline is not None and deadline <= now_ms:
            if not self._to_settle:
                self._turn_over()
            self._begin(now_ms)

    def _turn_over(self) -> None:
        assert self._journal is not None
        self._journal.begin_next()
        self._to_settle, self._journaled = self._journaled, {}

    def _take_to_settle(self, most: int, tokens: list[tuple[Log, FlushToken]], files: list[Any]) -> None:
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
        return [(log, offset) for log, offset in needed if not log.is_flushed_in_place(offset)]
    return [(log, offset) for log, offset in needed if not log.is_flushed(offset)]
