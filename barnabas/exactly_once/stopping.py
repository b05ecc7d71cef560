"""A request to stop: by a call from any thread, or by SIGTERM and SIGINT."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


class Stopping(threading.Event):
    """Set when the loop should end."""

    @contextlib.contextmanager
    def by_signals(self) -> Iterator[None]:
        """Be set by SIGTERM and SIGINT, if this is the main thread, and cleared at the end. A
        second signal has its usual effect.
        """
        if threading.current_thread() is not threading.main_thread():
            try:
                yield
            finally:
                self.clear()
            return
        numbers = (signal.SIGTERM, signal.SIGINT)
        former = {number: signal.getsignal(number) for number in numbers}

        def on_signal(number: int, frame: object) -> None:
            self.set()
            for each in numbers:
                signal.signal(each, former[each])

        for number in numbers:
            signal.signal(number, on_signal)
        try:
            yield
        finally:
            for number in numbers:
                signal.signal(number, former[number])
            self.clear()
