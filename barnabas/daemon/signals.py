"""Signals that ask the process to end, or to open its files again.

SIGINT, SIGTERM    the broker stops cleanly
SIGHUP             with a terminal: the terminal was closed, and the broker stops cleanly;
                   without one, as under systemd or in a container: it reads its certificates
                   and opens its log files again (`Signals.call`)
SIGHUP, ignored    stays ignored (nohup): the process outlives its terminal
"""

from __future__ import annotations

import contextlib
import logging
import signal
from collections.abc import Callable

from barnabas.process.hangups import hangup_reloads

logger = logging.getLogger("barnabas")

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """The signal handlers, from before the ports are open to the end of the process.

    If a signal arrives while the data directory is being opened, the opening is completed, and the
    daemon stops cleanly as soon as it serves. A second signal ends the process at once. A signal
    that arrives while the logs are being closed is ignored, so that all logs are closed cleanly. A
    request for a reload during the start is ignored, since the start reads the files.
    """

    def __init__(self) -> None:
        self._do: Callable[[], object] | None = None
        self._reload: Callable[[], object] = lambda: None
        self._reloads_at_hangup = hangup_reloads()
        self._has_come = False
        for number in SIGNALS:
            if (
                number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
            ):  # an ignored SIGHUP stays ignored (nohup): the process outlives its terminal
                signal.signal(number, self._on_signal)
        # the process that starts a daemon may have blocked them, which is inherited
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def call(self, do: Callable[[], object], reload: Callable[[], object]) -> None:
        """Set the functions that are called at each signal to end, and for a reload. The first is
        called at once if such a signal has already arrived.
        """
        self._do, self._reload = do, reload
        if self._has_come:
            logger.info("a signal arrived while the broker started: it stops now")
            do()

    def _on_signal(self, number: int, frame: object) -> None:
        """Call the function, or note the signal for `call`. A second signal during the start ends
        the process at once.
        """
        if number == signal.SIGHUP and self._reloads_at_hangup:
            with contextlib.suppress(RuntimeError):  # the loop may be closed already
                self._reload()
        elif self._do is not None:
            with contextlib.suppress(RuntimeError):  # the loop may be closed already
                self._do()
        elif self._has_come:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        else:
            self._has_come = True
