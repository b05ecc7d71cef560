"""Lets other threads call functions in the thread of the event loop.

asyncio's function (`call_soon_threadsafe`) is slow: it sends a byte through a pair of sockets,
makes a handle with its own context, and tries to receive a second time, which raises since there
are no more bytes. A commit waits for such a call. This module uses a counter in the kernel
(eventfd) instead, which is written and read once. On systems without eventfd, it uses asyncio's
function.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from typing import Any


class ThreadCalls:
    """Calls that other threads have requested; they are made in the loop's thread, in the order of
    arrival.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._event_fd = -1
        if hasattr(os, "eventfd"):
            self._event_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            loop.add_reader(self._event_fd, self._on_called)

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call the function soon in the loop's thread. May be called from any thread, until
        `close`.
        """
        if self._event_fd < 0:
            self._loop.call_soon_threadsafe(function, *arguments)
            return
        self._calls.append((function, arguments))
        os.eventfd_write(self._event_fd, 1)

    def _on_called(self) -> None:
        """Make the calls that threads have added."""
        os.eventfd_read(self._event_fd)  # reset before the calls: a later call signals again
        try:
            for _ in range(len(self._calls)):
                function, arguments = self._calls.popleft()
                function(*arguments)
        finally:
            # if a call has raised an error, the remaining calls are made in the next round
            if self._calls and self._event_fd >= 0:
                os.eventfd_write(self._event_fd, 1)

    def close(self) -> None:
        """Close the descriptor. Calls that still wait are never made, and no thread may request
        another.
        """
        if self._event_fd >= 0:
            self._loop.remove_reader(self._event_fd)
            os.close(self._event_fd)
            self._event_fd = -1
