"""The thread that flushes files to the disk, so that the event loop never waits for an fsync."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from barnabas.broker.outbox import FlushJob
from barnabas.broker.seams.observer import Sync
from barnabas.storage.disk import FailedFsync, is_out_of_descriptors

PARALLEL_FILES = 8
# While files are flushed in less time than this, threads would cost more than they save: in memory,
# or if the system has written the pages already.
QUICK_S = 0.001
DESCRIPTOR_TRIES, DESCRIPTOR_PAUSE_S = 200, 0.05


def _sync_all(files: list[Any]) -> None:
    for file in files:
        _sync(file)


def _sync_quickly(files: list[Any]) -> list[Any]:
    """Fsync one file after the other until QUICK_S have passed. Gives: the rest."""
    until = time.monotonic() + QUICK_S
    for at, file in enumerate(files, 1):
        _sync(file)
        if time.monotonic() > until:
            return files[at:]
    return []


def _sync(file: Any) -> None:
    """Fsync one file. If the file is closed, wait until a descriptor is free to open it."""
    for _ in range(DESCRIPTOR_TRIES):
        try:
            file.fsync()
            return
        except OSError as error:
            if isinstance(error, FailedFsync) or not is_out_of_descriptors(error):
                raise
            time.sleep(DESCRIPTOR_PAUSE_S)
    file.fsync()


def _shares(files: list[Any]) -> Iterator[list[Any]]:
    """Split the files into one list for each thread. Passing each file to a thread by itself would
    cost more than its flush.
    """
    return (files[first::PARALLEL_FILES] for first in range(min(PARALLEL_FILES, len(files))))


def sync_together(files: list[Any]) -> None:
    """Flush the files to the disk, in several threads if there are many. This is for use before a
    Flusher exists. Raises: OSError.
    """
    if len(files) <= 2:
        _sync_all(files)
        return
    with ThreadPoolExecutor(PARALLEL_FILES, thread_name_prefix="fsync") as pool:
        list(pool.map(_sync_all, _shares(files)))


class Flusher:
    """Runs flush jobs in order, in a thread of its own, which calls `on_done(job, error)` after
    each.

    A job with many files is spread over a few threads, since the disk combines concurrent flushes.
    The threads are started when a flush takes longer than QUICK_S.

    Takes: around_sync, a function that replaces `sync` by one that calls it.
    """

    def __init__(
        self,
        on_done: Callable[[FlushJob, OSError | None], Any],
        around_sync: Callable[[Sync], Sync] | None = None,
    ) -> None:
        self._on_done = on_done
        self._around_sync = around_sync
        self._jobs: queue.SimpleQueue[FlushJob | None] = queue.SimpleQueue()
        self._pool: ThreadPoolExecutor | None = None
        self._thread = threading.Thread(target=self._run, name="flusher", daemon=True)
        self._thread.start()

    def submit(self, job: FlushJob) -> None:
        self._jobs.put(job)

    def stop(self) -> None:
        """Finish the submitted jobs, then end the thread. `sync` may still be called, until
        `close`.
        """
        self._jobs.put(None)
        self._thread.join()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def sync(self, files: list[Any]) -> None:
        """Flush the files to the disk, in several threads if there are many. Only one call may run
        at a time. Raises: OSError.
        """
        # A wrapped method that is kept here would refer to this object in a circle.
        sync = self._sync if self._around_sync is None else self._around_sync(self._sync)
        sync(files)

    def _sync(self, files: list[Any]) -> None:
        if len(files) <= 2:
            _sync_all(files)
            return
        if self._pool is None:
            files = _sync_quickly(files)
            if not files:
                return
            self._pool = ThreadPoolExecutor(PARALLEL_FILES, thread_name_prefix="fsync")
        list(self._pool.map(_sync_all, _shares(files)))

    def _run(self) -> None:
        """The thread: flush the files of each job, and report its end or its error."""
        while (job := self._jobs.get()) is not None:
            try:
                self.sync(list(job.files))
            except OSError as error:
                self._on_done(job, error)
            else:
                self._on_done(job, None)
            del job  # its logs must not wait for the next job
