"""The fsync thread: it syncs each file of a job once, reports errors, and keeps the order of
jobs.
"""

from __future__ import annotations

import errno
import queue
import threading
import time
from collections.abc import Iterator

import pytest

from barnabas.broker.outbox import FlushJob
from barnabas.broker.rim.flusher import PARALLEL_FILES, QUICK_S, Flusher, sync_together
from barnabas.storage.disk import FailedFsync


class File:
    """A file that counts its fsyncs; each of them fails with `error` if that is set."""

    def __init__(self, error: OSError | None = None) -> None:
        self.error = error
        self.fsyncs: list[str] = []

    def fsync(self) -> None:
        self.fsyncs.append(threading.current_thread().name)
        if self.error is not None:
            raise self.error


PATIENCE_S = 120.0
Done = queue.SimpleQueue[tuple[FlushJob, OSError | None]]


@pytest.fixture
def done() -> Done:
    return queue.SimpleQueue()


@pytest.fixture
def flusher(done: Done) -> Iterator[Flusher]:
    flusher = Flusher(lambda job, error: done.put((job, error)))
    yield flusher
    flusher.stop()
    flusher.close()


def job(number: int, *logs: list[File]) -> FlushJob:
    return FlushJob(number, (), tuple(file for files in logs for file in files))


@pytest.mark.parametrize(
    "count", [0, 1, 2, 3, PARALLEL_FILES - 1, PARALLEL_FILES, PARALLEL_FILES + 1, 1000]
)
def test_each_file_is_synced_once(flusher: Flusher, done: Done, count: int) -> None:
    files = [File() for _ in range(count)]
    asked = job(1, files[: count // 3], files[count // 3 :])
    flusher.submit(asked)
    assert done.get(timeout=PATIENCE_S) == (asked, None)
    assert [len(file.fsyncs) for file in files] == [1] * count


class Closed(File):
    """A file that must be opened for an fsync. The first `times` fsyncs fail, since no file
    descriptor is free.
    """

    def __init__(self, error: OSError, times: int) -> None:
        super().__init__(error)
        self.times = times

    def fsync(self) -> None:
        """Fail in the first `times` calls, since no file descriptor is free; then succeed."""
        if len(self.fsyncs) == self.times:
            self.error = None
        super().fsync()


def test_a_file_that_cannot_be_opened_for_lack_of_descriptors_is_synced_later(
    flusher: Flusher, done: Done, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.broker.rim.flusher.DESCRIPTOR_PAUSE_S", 0)
    files = [Closed(OSError(errno.EMFILE, ""), 3), Closed(OSError(errno.ENFILE, ""), 1)]
    asked = job(1, files)  # type: ignore[arg-type]
    flusher.submit(asked)
    assert done.get(timeout=PATIENCE_S) == (asked, None)
    assert [len(file.fsyncs) for file in files] == [4, 2]


@pytest.mark.parametrize(
    "error", [FailedFsync(errno.EMFILE, ""), OSError(errno.EIO, ""), OSError(errno.ENOSPC, "")]
)
def test_an_fsync_that_failed_is_never_tried_again(
    flusher: Flusher, done: Done, error: OSError
) -> None:
    file = File(error)
    flusher.submit(job(1, [file]))
    assert done.get(timeout=PATIENCE_S)[1] is error and len(file.fsyncs) == 1


def test_a_lack_of_descriptors_that_lasts_is_reported_as_an_error(
    flusher: Flusher, done: Done, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.broker.rim.flusher.DESCRIPTOR_PAUSE_S", 0)
    file = File(OSError(errno.EMFILE, ""))
    flusher.submit(job(1, [file]))
    assert done.get(timeout=PATIENCE_S)[1] is file.error


@pytest.mark.parametrize("count", [0, 1, 3, PARALLEL_FILES + 1, 100])
def test_a_start_syncs_each_file_once_and_several_at_a_time(count: int) -> None:
    files = [File() for _ in range(count)]
    sync_together(files)
    assert [len(file.fsyncs) for file in files] == [1] * count
    assert len({name for file in files for name in file.fsyncs}) <= PARALLEL_FILES
    if count > 2:
        assert threading.current_thread().name not in files[0].fsyncs
        with pytest.raises(OSError, match="broken"):
            sync_together([*files, File(OSError("broken"))])


def test_many_files_are_synced_by_several_threads(flusher: Flusher) -> None:
    """The first fsync is slow. Each other one waits until others run at the same time: with a
    single thread the test would hang.
    """
    together = threading.Barrier(PARALLEL_FILES, timeout=PATIENCE_S)

    class Slow(File):
        def fsync(self) -> None:
            time.sleep(2 * QUICK_S)

    class Waiting(File):
        def fsync(self) -> None:
            together.wait()

    flusher.sync([Slow(), *(Waiting() for _ in range(2 * PARALLEL_FILES))])
    flusher.sync([Waiting() for _ in range(2 * PARALLEL_FILES)])


def test_files_that_are_synced_quickly_need_no_further_thread(
    flusher: Flusher, done: Done, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.broker.rim.flusher.QUICK_S", PATIENCE_S)
    files = [File() for _ in range(10)]
    flusher.submit(job(1, files))
    assert done.get(timeout=PATIENCE_S)[1] is None
    assert [file.fsyncs for file in files] == [["flusher"]] * 10


@pytest.mark.parametrize("at", [0, 7, 99])
def test_the_error_of_any_file_is_reported(flusher: Flusher, done: Done, at: int) -> None:
    files = [File() for _ in range(100)]
    files[at].error = OSError(5, "the disk is gone")
    flusher.submit(job(1, files))
    assert done.get(timeout=PATIENCE_S)[1] is files[at].error


def test_jobs_end_in_the_order_of_their_submission(flusher: Flusher, done: Done) -> None:
    jobs = [job(number, [File() for _ in range(number % 5)]) for number in range(20)]
    for asked in jobs:
        flusher.submit(asked)
    assert [done.get(timeout=PATIENCE_S)[0].job_id for _ in jobs] == list(range(20))
