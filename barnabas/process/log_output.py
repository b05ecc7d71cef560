"""Writes log lines in a thread, so that the event loop never waits for whatever reads them.

A pipe whose reader is stopped or hangs (a terminal with Ctrl-S, a stuck log collector) is full
after 64 KB, and further writes to it block. Then lines are queued, up to MOST_WAITING. Later lines
are dropped, and the number of dropped lines is logged when there is room again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading

from barnabas.process.log_file import LogFile

logger = logging.getLogger("barnabas.log")

MOST_WAITING = 10_000
_REOPEN = bytes(1)  # in place of a line: the file is opened again
PARTING_S = 1.0  # how long a process that ends waits for the remaining lines to be written


class LogOutput(logging.Handler):
    """Formats lines in the calling thread, and writes them in a separate thread. While this handler
    is in use, no other code may write to the descriptor.
    """

    def __init__(self, descriptor: int, *, most_waiting: int = MOST_WAITING) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._file = LogFile(descriptor)
        self._lines: queue.Queue[bytes | None] = queue.Queue(most_waiting)
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def createLock(self) -> None:
        """Create no lock: a queue needs none, and a held lock could block the end of the
        process.
        """
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        """Queue a line if no filter drops it. `Handler.handle` of Python 3.13 needs a lock."""
        kept = self.filter(record)
        if kept:
            self.emit(kept if isinstance(kept, logging.LogRecord) else record)
        return bool(kept)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line. If the queue is full, the line is dropped and counted, so that the caller
        never waits.
        """
        try:
            line = (self.format(record) + "\n").encode(errors="backslashreplace")
        except Exception:
            self.handleError(record)
            return
        try:
            if self._dropped:
                self._lines.put_nowait(self._lacking())
                self._dropped = 0
            self._lines.put_nowait(line)
        except queue.Full:
            self._dropped += 1

    def _lacking(self) -> bytes:
        """The line that says how many lines were dropped while the queue was full."""
        text = "%d lines of the log were dropped here, since standard error was not read"
        record = logging.LogRecord(
            "barnabas.log", logging.WARNING, "", 0, text, (self._dropped,), None
        )
        return (self.format(record) + "\n").encode()

    def reopen(self) -> None:
        """Let the thread open the file again, after the lines that were logged before, and before
        those that are logged later. Do nothing if the descriptor is no file.
        """
        if self._file.path:
            with contextlib.suppress(queue.Full):
                self._lines.put_nowait(_REOPEN)

    def finish(self, timeout_s: float = PARTING_S) -> bool:
        """Wait until all lines are written. No line may be logged afterwards. Gives: False if the
        reader did not take all lines in time.
        """
        try:
            self._lines.put(None, timeout=timeout_s)
        except queue.Full:
            return False
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        """The thread: write each line, until `finish`."""
        while (line := self._lines.get()) is not None:
            if line is _REOPEN:
                self._reopen()
                continue
            try:
                while line:
                    line = line[os.write(self._descriptor, line) :]
            except OSError:
                pass  # the reader has closed the pipe

    def _reopen(self) -> None:
        try:
            self._file.reopen()
        except OSError as error:
            logger.error("the log %s cannot be opened again: %s", self._file.path, error.strerror)
