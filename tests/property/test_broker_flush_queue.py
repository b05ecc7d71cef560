"""The flush queue under any sequence of waits, flushes, full journals and a full disk.

A journal is deleted only when all its data are durable in the logs' own files. Otherwise a power
loss would lose data that were acknowledged as durable. Each waiting callback is called once, when
its data are durable, and a flush runs as long as a callback waits. Each record of a frame is
appended, or undone if there was no space for the frame.
"""

from __future__ import annotations

import errno
import os
import random
from typing import Any, NamedTuple, cast

import pytest
from helpers.examples import drawn
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.logs import flush_queue
from barnabas.broker.logs.flush_queue import FlushQueue, Frame
from barnabas.broker.outbox import Outbox
from barnabas.storage.disk import NotWrittenError
from barnabas.storage.log.durability import FlushToken, LogEnd


class Log:
    """A fake log with the methods that the queue calls. Its offsets are also its positions."""

    def __init__(self, name: str) -> None:
        self.name, self.durability = name, self
        self.log_end_offset = self.durable_offset = self.recovery_point = 0

    def __repr__(self) -> str:
        return self.name

    @property
    def end(self) -> LogEnd:
        return self.log_end_offset, 0, self.log_end_offset

    def begin_flush(self) -> FlushToken | None:
        """What a flush of this log has to make durable, or None if there is nothing to do."""
        if self.recovery_point == self.log_end_offset:
            return None
        return FlushToken(cast(Any, (self.name,)), (self.log_end_offset, 0, 0))

    def try_begin_journal(self, most_bytes: int, end: LogEnd | None) -> Any:
        offset = (end or self.end)[0]
        return Written(self, offset), (offset, 0, 0)

    def finish_flush(self, token: FlushToken | LogEnd) -> bool:
        """Record what a flush has made durable. The data are in the log's own files only if the
        flush was in place.
        """
        end = token.end if isinstance(token, FlushToken) else token
        self.durable_offset = max(self.durable_offset, end[0])
        if isinstance(token, FlushToken):
            self.recovery_point = max(self.recovery_point, end[0])
        return False


class Written(NamedTuple):
    """The data of a log in a journal, up to the offset `end`."""

    log: Log
    end: int
    data: bytes = b"data"


class Record(NamedTuple):
    """A record in a journal. `effects` has what was appended because of it, including the record
    itself. `left` has the logs to which its remaining effects will be appended.
    """

    effects: list[Written]
    left: list[Log]


class Journal:
    """A fake flush journal that remembers what its files contain."""

    def __init__(self) -> None:
        self.size_bytes, self.has_older, self.refuses = 0, False, False
        self.current: list[Written | Record] = []
        self.older: list[Written | Record] = []

    def append(self, entries: Any, records: Any) -> list[str]:
        if self.refuses:
            self.refuses = False
            raise NotWrittenError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.current += [*entries, *records]
        self.size_bytes += 1
        return ["journal"]

    def note_flushed(self) -> None:
        pass

    def begin_next(self) -> None:
        self.older, self.current = self.older + self.current, []
        self.size_bytes, self.has_older = 0, True

    def forget_older(self, *, keep_earlier: bool) -> None:
        """Delete the older part. All its content must be durable in the logs' own files."""
        for one in self.older:
            effects = [one] if isinstance(one, Written) else one.effects
            assert effects, "a record is not appended yet"
            assert isinstance(one, Written) or not one.left, "some of its effects are to come"
            for log, end, _ in effects:
                assert log.recovery_point >= end, f"{log} is durable in a deleted journal alone"
        self.older, self.has_older = [], False


class Host:
    """A queue and its rim. `calls` counts how often each waiting callback was called, and
    `outcomes` how often each record was appended or undone. `in_parts` has the records with
    remaining effects, like those of a large transaction.
    """

    def __init__(self, log_count: int) -> None:
        self.outbox, self.journal, self.now_ms = Outbox(), Journal(), 1
        self.logs = [Log(f"log {number}") for number in range(log_count)]
        self.is_full, self.calls, self.outcomes = False, list[int](), list[int]()
        self.queue = FlushQueue(
            self.outbox, cast(Any, self.journal), disk_space=cast(Any, self), journal_roll_ms=10
        )
        self.in_parts: list[Record] = []
        self.queue.full_journal_bytes, self.queue.most_logs = 2, 3

    def new_call(self) -> int:
        self.calls.append(0)
        return len(self.calls) - 1

    def wait(self, logs: list[Log], *, in_place: bool) -> None:
        number, ends = self.new_call(), [log.log_end_offset for log in logs]

        def then(now_ms: int) -> None:
            self.calls[number] += 1
            for log, end in zip(logs, ends, strict=True):
                assert (log.recovery_point if in_place else log.durable_offset) >= end

        self.queue.wait(cast(Any, logs), then, self.now_ms, in_place=in_place)

    def wait_for_frame(self, logs: list[Log], *, in_parts: bool) -> None:
        """Let a record wait for a frame of the journal. If the frame gets on the disk, the record
        is appended to the first log, and its effects to the others, at once or in parts. If there
        is no space for the frame, the record waits for another one.
        """
        number, decisions = self.new_call(), self.logs[0]
        ends = [log.log_end_offset for log in logs]
        record = Record([], [])

        def append(now_ms: int) -> None:
            self.outcomes[outcome] += 1
            record.left.extend(log for log in logs if log is not decisions)
            if in_parts:
                self.queue.hold_journals()
                self.in_parts.append(record)
                self.cause(record, [decisions])
            else:
                self.cause(record, [decisions, *record.left])
                record.left.clear()

        def undo(now_ms: int) -> None:
            self.outcomes[outcome] += 1
            self.wait_for_frame(logs, in_parts=in_parts)

        outcome = -1

        def then(frame: Frame | None, now_ms: int) -> None:
            nonlocal outcome
            self.calls[number] += 1
            if frame is not None:
                outcome = len(self.outcomes)
                self.outcomes.append(0)
                frame.add(cast(Any, record), cast(Any, decisions), append, undo)
            else:
                for log, end in zip(logs, ends, strict=True):
                    assert log.durable_offset >= end

        self.queue.wait_for_frame(cast(Any, logs), then, self.now_ms)

    def cause(self, record: Record, logs: list[Log]) -> None:
        """Append effects of a record to these logs."""
        for log in logs:
            log.log_end_offset += 1
            record.effects.append(Written(log, log.log_end_offset))
        self.queue.flush_later(cast(Any, logs), self.now_ms)

    def cause_rest(self) -> None:
        """Append the remaining effects of the first record that has any."""
        if self.in_parts:
            record = self.in_parts.pop(0)
            self.cause(record, record.left)
            record.left.clear()
            self.queue.release_journals()

    def end_flush(self) -> None:
        if self.outbox.flushes:
            self.queue.on_flushed(self.outbox.flushes.pop(0), self.now_ms)

    def pass_time(self) -> None:
        self.now_ms += 7
        self.queue.on_tick(self.now_ms)


STEPS = (
    "wait",
    "wait",
    "frame",
    "in place",
    "flush",
    "flush",
    "flush",
    "rest",
    "time",
    "space",
    "refuse",
)


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=drawn(60))
def test_no_journal_is_deleted_before_its_content_is_durable_in_the_logs_own_files(
    seed: int,
) -> None:
    chance = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flush_queue, "CHECKPOINTED_BESIDE", 1)
        patch.setattr(flush_queue, "CHECKPOINTED_ALONE", 1)
        patch.setattr(flush_queue, "RETRY_MS", 5)
        host = Host(8)
        for _ in range(100):
            step = chance.choice(STEPS)
            logs = chance.sample(host.logs, chance.randint(1, 4))
            if step in ("wait", "frame", "in place"):
                for log in logs:
                    log.log_end_offset += 1
            if step == "frame":
                host.wait_for_frame(logs, in_parts=chance.random() < 0.3)
            elif step in ("wait", "in place"):
                host.wait(logs, in_place=step == "in place")
            elif step == "flush":
                host.end_flush()
            elif step == "time":
                host.pass_time()
            elif step == "rest":
                host.cause_rest()
            elif step == "refuse":
                host.journal.refuses = True
            else:
                host.is_full = not host.is_full and chance.random() < 0.3
            assert len(host.outbox.flushes) <= 1
            assert host.outbox.flushes or host.queue.is_idle, "a request waits, and no flush runs"
        host.is_full = False
        for _ in range(100):
            host.end_flush()
            host.pass_time()
            host.cause_rest()
        assert host.calls == [1] * len(host.calls)
        assert host.outcomes == [1] * len(host.outcomes)
        assert not host.journal.older and host.queue.is_idle
