"""Carries out the decisions of share groups about the states of their partitions, in slices, since
a group may begin with ten thousand partitions.

A slice ends when its records are durable. If there is no disk space for them, it waits. Changes are
carried out one after the other, independently of the sliced work of requests.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator, Sequence
from functools import partial

from barnabas.broker.logs.unwritten_work import UnwrittenWork
from barnabas.broker.share_partitions.share_runtime import ShareRuntime
from barnabas.broker.slices import SlicedWork, Slices, Wait
from barnabas.coordinator.result import StateChange, StateRow
from barnabas.coordinator.share_states.share_coordinator import ShareCoordinator
from barnabas.coordinator.share_states.share_records import SharePartitionKey
from barnabas.coordinator.share_states.share_state import Change
from barnabas.protocol.errors import Code
from barnabas.storage.disk import NotWrittenError
from barnabas.storage.exception_guard import contain

STATES_AT_ONCE = 250  # number of rows in one slice, which takes 10 ms

Then = Callable[[Sequence[int], int], None]


class StateChanges:
    """The queue of changes. The first change in the queue is being carried out."""

    def __init__(
        self, coordinator: ShareCoordinator, runtime: ShareRuntime, unwritten: UnwrittenWork
    ) -> None:
        self._coordinator, self._runtime = coordinator, runtime
        self._unwritten = unwritten
        self._work = SlicedWork(self._on_done, self._on_failed)
        self._then: dict[int, tuple[Then, int]] = {}
        self._next_ticket = 1
        self._now_ms = 0

    @property
    def is_ready(self) -> bool:
        """Whether `on_tick` has something to do that does not wait for the disk."""
        return self._work.is_ready

    def begin(self, change: StateChange, then: Then, now_ms: int) -> None:
        """Carry out a change.

        Takes: then(codes, now_ms), a function that is called with a code for each row of the change
               once all rows are durable.
        """
        ticket, self._next_ticket = self._next_ticket, self._next_ticket + 1
        self._then[ticket] = then, len(change.rows)
        is_done, answer = self._work.begin(ticket, self._timed(change), now_ms)
        if is_done:
            self._on_done(ticket, answer)

    def on_tick(self, now_ms: int) -> None:
        """Do one slice of the first change in the queue."""
        self._now_ms = now_ms
        self._work.on_tick(now_ms)

    def _on_done(self, ticket: int, answer: tuple[Sequence[int], int]) -> None:
        then, _ = self._then.pop(ticket)
        then(*answer)

    def _on_failed(self, ticket: int, error: Exception) -> None:
        """A change has failed: its rows are answered with an error."""
        contain(error, "states of share partitions")
        then, row_count = self._then.pop(ticket, (None, 0))
        if then is not None:
            then([Code.UNKNOWN_SERVER_ERROR] * row_count, self._now_ms)

    def _timed(self, change: StateChange) -> Slices:
        """The work of a change, which returns the codes and the time at which it ends."""
        now_ms = yield
        work = self._until_written(change, now_ms)
        codes: list[int] = []
        try:
            wait = next(work)
            while True:
                now_ms = yield wait
                wait = work.send(now_ms)
        except StopIteration as end:
            codes = end.value
        return codes, now_ms

    def carry_out(self, change: StateChange, now_ms: int) -> Slices:
        """Carry out a change, with some rows in each slice. Gives: a code for each row.

        Raises: NotWrittenError, in a slice for which there is no disk space.
        """
        codes: list[int] = []
        for at in range(0, len(change.rows), STATES_AT_ONCE):
            now_ms = yield from self._one_slice(change, at, codes, now_ms)
        return codes

    def _until_written(self, change: StateChange, now_ms: int) -> Slices:
        """Carry out a change in slices. A slice for which there is no disk space is
        repeated later.
        """
        codes: list[int] = []
        for at in range(0, len(change.rows), STATES_AT_ONCE):
            while len(codes) == at:
                try:
                    now_ms = yield from self._one_slice(change, at, codes, now_ms)
                except NotWrittenError:
                    now_ms = yield Wait(partial(self._unwritten.later, now_ms=now_ms), _no_space)
        return codes

    def _one_slice(
        self, change: StateChange, at: int, codes: list[int], now_ms: int
    ) -> Generator[Wait, int, int]:
        """Decide and store the next rows; wait until they are durable. After: `codes` has the error
        code of each row. Gives: the time.
        """
        decided = [
            self._decide(change, row, now_ms) for row in change.rows[at : at + STATES_AT_ONCE]
        ]
        stored = _Stored()
        self._runtime.store(decided, stored.on_durable, now_ms)
        codes += [one.error_code for one in decided]
        return (yield Wait(stored.wait, stored.at_once))

    def _decide(self, change: StateChange, row: StateRow, now_ms: int) -> Change:
        """Delete or initialize the state of one share partition."""
        key = SharePartitionKey(change.group_id, row.topic_id.bytes, row.partition)
        if change.is_deletion:
            return self._coordinator.decide_delete(key)
        return self._coordinator.decide_initialize(
            key, change.state_epoch, row.start_offset, now_ms
        )


def _no_space() -> None:
    """Raise the error for a change that waits for disk space while the process ends. The next start
    repeats the change.
    """
    raise NotWrittenError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class _Stored:
    """The wait until the records of one slice are durable."""

    def __init__(self) -> None:
        self._durable_ms: int | None = None
        self._done: Callable[[int], None] | None = None

    def on_durable(self, now_ms: int) -> None:
        """The records are durable: continue the work that waits for that, if it waits already."""
        self._durable_ms = now_ms
        if self._done is not None:
            self._done(now_ms)

    def wait(self, done: Callable[[int], None]) -> None:
        """Call `done` once the records are durable, which may be now."""
        self._done = done
        if self._durable_ms is not None:
            done(self._durable_ms)

    def at_once(self) -> None:
        """End the wait at once, since the process is ending, which flushes all logs."""
