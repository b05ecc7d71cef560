"""Waiting for a cluster, implemented once for all commands: `--timeout`, the line on standard error
that says what a command waits for, and Ctrl-C.

Some calls cannot be interrupted, such as the lookup of a host's name. So a call runs in a separate
thread, and the command's thread waits for its result. The command stops
waiting at the timeout, or at Ctrl-C. The other thread is a daemon thread, and ends with the
process.

    what happens                        what the command does
    ----------------------------------  -----------------------------------------------
    no response for NOTE_AFTER_S        writes a line that says what it waits for
    no response for --timeout           raises TimeoutOver: exit code 1
    a response has become impossible    raises CommandError with the reason at once
    Ctrl-C                              KeyboardInterrupt: exit code 130
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

from barnabas.cli.errors import CommandError
from barnabas.cli.output import note

NOTE_AFTER_S = 1.0
LOOK_EVERY_S = 0.05


class TimeoutOver(CommandError):
    """No response arrived within --timeout."""


class Silence:
    """Measures how long a wait has lasted. It prints the line about the wait, and raises
    TimeoutOver.
    """

    def __init__(self, address: str, timeout_s: float) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self._is_noted = False
        self._since = time.monotonic()

    def end(self) -> None:
        """End the wait, since a response has arrived. A later wait starts from zero."""
        self._since = time.monotonic()
        self._is_noted = False

    def look(self, what: str) -> None:
        """Write the line about the wait, or raise the error, if the wait has lasted long enough.

        Takes:  what, the awaited thing, as in "waiting for 127.0.0.1:9092: WHAT".
        Raises: TimeoutOver.
        """
        self._maybe_note(what)
        if time.monotonic() - self._since >= self.timeout_s:
            raise self.over(what)

    def _maybe_note(self, what: str) -> None:
        """Write once, after NOTE_AFTER_S, what the command waits for."""
        if not self._is_noted and time.monotonic() - self._since >= NOTE_AFTER_S:
            self._is_noted = True
            note(f"waiting for {self.address}: {what} (--timeout {self.timeout_s:g} s)")

    def over(self, what: str) -> TimeoutOver:
        """The error for a wait that took too long.

        The line about the wait is written first if it is still missing: on a busy machine, this
        thread may not have run between NOTE_AFTER_S and the timeout. So the output is always the
        same.
        """
        self._maybe_note(what)
        return TimeoutOver(
            f"{self.address} did not answer for {self.timeout_s:g} s (--timeout): {what}; "
            f"`barnabas check -b {self.address}` shows what works"
        )


class Waiting:
    """Makes calls that wait for the cluster.

    Takes: hopeless, a function that returns the reason why no response can arrive, or an empty
    text.
    """

    def __init__(
        self, address: str, timeout_s: float, hopeless: Callable[[], str] = lambda: ""
    ) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self._hopeless = hopeless

    def silence(self) -> Silence:
        """A measurement of a wait that begins now."""
        return Silence(self.address, self.timeout_s)

    def call(self, what: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The result of a call that may block.

        Raises: TimeoutOver; CommandError if no response can arrive; the errors of the call.
        """
        call = _Call(function, args, kwargs)
        silence = self.silence()
        while not call.done.wait(LOOK_EVERY_S):
            if reason := self._hopeless():
                raise CommandError(reason)
            silence.look(what)
        return call.result()


class _Call:
    """A call in a separate thread. done: an event that is set when the call has ended."""

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        self.done = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None
        self._function = functools.partial(function, *args, **kwargs)
        threading.Thread(target=self._run, name="waits-for-cluster", daemon=True).start()

    def _run(self) -> None:
        """The thread's function: make the call, and keep its result or its error."""
        try:
            self._value = self._function()
        except BaseException as error:
            self._error = error
        self.done.set()

    def result(self) -> Any:
        """The result of the finished call. Raises: the error of the call."""
        if self._error is not None:
            raise self._error
        return self._value
