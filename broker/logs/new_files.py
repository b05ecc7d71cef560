"""The files of new partitions: a thread makes them before the first write.

A partition gets its directory and files with its first write, which takes the loop up to 2.3 ms
while a flush runs, and more if other programs use the disk. So for each request the loop makes only
the files of one partition, for its first batch. A thread makes the other files:

    when                                                files that the thread makes
    topics are created or grow by 9 to 1,000 partitions those of all new partitions, also in
                                                        internal topics
    a partition without files is written to             those of later partitions of its topic, up
                                                        to 1,000, if nine or more have none
    a Produce names several partitions without files    those of all but the first
    a transaction ends on partitions without files, or  those of all these partitions
    an operator writes markers to such partitions

The thread makes 16 at a time, and the log adopts them with one rename. A Produce to a log whose
files are being made is parked until the files exist, and so is a Produce with batches that take
long to check. The end of a transaction waits for its files before it is decided. If the thread
cannot make files, the loop tries again, and its error becomes the request's error. A coordinator's
write does not wait: its log adopts the files that are ready, or makes its own.

At a start the files of unused partitions cost as much time as others, so larger topics get none in
advance.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from barnabas.broker.outbox import NO_CONNECTION, Outbox, Work
from barnabas.storage.directory.log_manager import LogManager

if TYPE_CHECKING:  # a start in an empty directory has no logs, and does not load their code
    from barnabas.storage.log.log import Log
    from barnabas.storage.log.new_files import NewFiles

FEWEST_AHEAD, MOST_AHEAD = 9, 1000
MADE_AT_ONCE = 16
MADE_BY_A_REQUEST = 1


class FilesAhead:
    """The logs whose files will be made, and those whose files the thread is making.

    fewest: the number of logs below which the thread is not used. most_by_request: the maximum
    number of logs that make their own files for one Produce.
    """

    def __init__(self, outbox: Outbox, logs: LogManager) -> None:
        self._outbox, self._logs = outbox, logs
        self._waiting: deque[tuple[Log, NewFiles]] = deque()
        self._is_under_way = False
        self.fewest, self.most_by_request = FEWEST_AHEAD, MADE_BY_A_REQUEST

    def begin(self, logs: Sequence[Log]) -> None:
        """Let the thread make the missing files of these logs, if at least `fewest` and at most
        MOST_AHEAD logs have none.
        """
        without = [log for log in logs if not log.files.are_made and log.files.new_files is None]
        if self.fewest <= len(without) <= MOST_AHEAD:
            self._waiting += [(log, self._logs.begin_files(log)) for log in without]
            self._go_on()

    def _begin_after(self, log: Log, topic: Sequence[Log | None]) -> None:
        following = topic[log.partition + 1 : log.partition + 1 + MOST_AHEAD]
        self.begin([other for other in following if other is not None])

    def _go_on(self) -> None:
        """Let the thread make the next few files, unless it is still making others."""
        if self._is_under_way or not self._waiting:
            return
        self._is_under_way = True
        count = min(MADE_AT_ONCE, len(self._waiting))

        def on_made(_: int) -> None:
            self._is_under_way = False
            self._go_on()

        self._make([self._waiting.popleft() for _ in range(count)], on_made)

    def make(self, logs: Sequence[Log], then: Callable[[int], None]) -> None:
        """Let the thread make the missing files of these logs, then call `then(now_ms)`.

        If the files of a log could not be made, the log has none afterwards.
        """
        some = [log for log in logs[:MADE_AT_ONCE] if not log.files.are_made]
        rest = logs[MADE_AT_ONCE:]

        def go_on(now_ms: int) -> None:
            if rest:
                self.make(rest, then)
            else:
                then(now_ms)

        self._make(
            [(log, log.files.new_files or self._logs.begin_files(log)) for log in some], go_on
        )

    def _make(self, some: Sequence[tuple[Log, NewFiles]], then: Callable[[int], None]) -> None:
        """Let the thread make some files, then let the logs adopt them."""

        def run() -> None:
            for _, files in some:
                files.make()

        def done(_: None, now_ms: int) -> None:
            for log, files in some:
                self._logs.take_files(log, files, now_ms)
            then(now_ms)

        self._outbox.work.append(Work(NO_CONNECTION, run, done))

    def for_write(
        self, log: Log, topic: Sequence[Log | None], made: int, now_ms: int
    ) -> NewFiles | None:
        """The files for which a log's first batch has to wait; None if the log makes its own files.

        Takes: topic, the logs of the log's topic; made, the number of logs that have made their own
               files for this request so far.
        """
        files = log.files.new_files
        if files is None:
            # making a few files takes less time than waiting for the thread
            if made < self.most_by_request:
                self._begin_after(log, topic)
                return None
            return self._logs.begin_files(log)
        if files.is_made or files.error is not None:
            self._logs.take_files(log, files, now_ms)
            return None
        return files
