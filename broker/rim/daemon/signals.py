"""Signals that ask the process to end."""

from __future__ import annotations

import contextlib
import logging
import signal
from collections.abc import Callable

logger = logging.getLogger("barnabas")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """What asks the process to end, from before its ports are open to the end of the process.

    One that comes while the data directory is opened lets that go on, and the daemon ends as soon
    as it serves: so it ends cleanly. A second one then ends the process at once, as it is. One that
    comes while the logs are closed must not end that half way.
    """

    def __init__(self) -> None:
        self._do: Callable[[], object] | None = None
        self._has_come = False
        for number in SIGNALS:
            if (
                number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
            ):  # nohup: it stays when its terminal goes
                signal.signal(number, self._on_signal)

    def call(self, do: Callable[[], object]) -> None:
        """Have this done at each signal, and now if one has come."""
        self._do = do
        if self._has_come:
            logger.info("a signal has come while the broker started: it stops now")
            do()

    def _on_signal(self, number: int, frame: object) -> None:
        if self._do is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._do()
        elif self._has_come:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        else:
            self._has_come = True
