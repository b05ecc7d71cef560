"""The end of a transaction, while which the pipeline reads ahead: its calls are made in a thread.

    offsets      the offsets are added to the transaction, with the group's membership
    decision     the client's queue is emptied, then the transaction is committed

The pipeline's thread starts each call, learns its result, and calls the hooks in between. It begins
no transaction, produces nothing and handles no record before the end.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from enum import Enum

from barnabas.exactly_once.errors import StuckError


class Phase(Enum):
    """What the thread does."""

    OFFSETS = "offsets"
    DECISION = "decision"


class Ending:
    """A transaction that is being committed.

    Takes:  began, the time at which this began. returns_within_s, after which a call hangs: it
            returns much earlier, also where the broker does not answer.

    phase: what the thread does, or has done.
    """

    def __init__(self, began: float, returns_within_s: float) -> None:
        self.began, self._returns_within_s = began, returns_within_s
        self._returns_until = math.inf
        self.phase = Phase.OFFSETS
        self._done = threading.Event()
        self._error: BaseException | None = None

    def start(self, phase: Phase, call: Callable[[], None]) -> None:
        """Begin a phase. The thread is a daemon: a call that hangs does not keep the process."""
        self.phase = phase
        self._done = threading.Event()
        self._returns_until = time.monotonic() + self._returns_within_s
        threading.Thread(target=self._run, args=(call,), name=phase.value, daemon=True).start()

    def _run(self, call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:
            self._error = error
        self._done.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the phase's end, or for so long.

        Gives:  whether it has ended.
        Raises: StuckError if the client's call hangs. In librdkafka 2.16 that of the offsets can,
                if a broker is killed meanwhile.
        """
        left = max(0.0, self._returns_until - time.monotonic())
        if self._done.wait(left if timeout_s is None else min(timeout_s, left)):
            return True
        if time.monotonic() < self._returns_until:
            return False
        raise StuckError(
            f"the client's call for the {self.phase.value} of a transaction has not returned "
            f"within {self._returns_within_s:.0f} s. Restart the process: it continues after the "
            "last commit"
        )

    def check(self) -> None:
        """Raise what the phase has raised."""
        error, self._error = self._error, None
        if error is not None:
            raise error
