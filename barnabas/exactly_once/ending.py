"""The end of a transaction, while which the pipeline reads ahead: its calls are made in a thread.

    offsets      the offsets are added to the transaction, with the group's membership
    decision     the client's queue is emptied, then the transaction is committed

The pipeline's thread starts each call, learns its result, and calls the hooks in between. It begins
no transaction, produces nothing and handles no record before the end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum


class Phase(Enum):
    """What the thread does."""

    OFFSETS = "offsets"
    DECISION = "decision"


class Ending:
    """A transaction that is being committed.

    Takes:  began, the time at which this began.

    phase: what the thread does, or has done.
    """

    def __init__(self, began: float) -> None:
        self.began = began
        self.phase = Phase.OFFSETS
        self._done = threading.Event()
        self._error: BaseException | None = None

    def start(self, phase: Phase, call: Callable[[], None]) -> None:
        """Begin a phase. The thread is a daemon: a call that hangs does not keep the process."""
        self.phase = phase
        self._done = threading.Event()
        threading.Thread(target=self._run, args=(call,), name=phase.value, daemon=True).start()

    def _run(self, call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            self._error = error
        self._done.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the phase's end. Gives: whether it has ended."""
        return self._done.wait(timeout_s)

    def check(self) -> None:
        """Raise what the phase has raised."""
        error, self._error = self._error, None
        if error is not None:
            raise error
