"""The cleaner process: its jobs, its unexpected death, and its end together with the broker."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.places import ROOT
from helpers.storage_cleaning import COMPACTED, job_of, put
from helpers.storage_logs import NOW_MS, TOPIC_ID, batch, open_manager

from barnabas.broker.rim.cleaning import (
    _BOOTSTRAP,
    CleanerProcess,
    _pack_job,
    _pack_result,
    _unpack_answer,
    _unpack_job,
    _write_frame,
)
from barnabas.protocol.compression import Levels
from barnabas.storage.cleaning.clean_job import CleanedSegment, CleanJob, CleanResult
from barnabas.storage.cleaning.cleaner import clean
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.disk import OsDisk
from barnabas.storage.files.txn_index import AbortedEntry
from barnabas.storage.log.broker_appends import append_marker

PATIENCE_S = 120.0
Done = tuple[CleanJob, CleanResult | None, str]


@pytest.fixture
def done() -> queue.SimpleQueue[Done]:
    return queue.SimpleQueue()


@pytest.fixture
def process(done: queue.SimpleQueue[Done]) -> Iterator[CleanerProcess]:
    process = CleanerProcess(lambda *ended: done.put(ended))
    yield process
    process.stop()
    assert process_id_of(process) is None


@pytest.fixture
def job(tmp_path: Path) -> CleanJob:
    """A job for a log with one aborted record and five values of the same key."""
    manager = open_manager(tmp_path, COMPACTED)
    log = manager.create("t", 0, TOPIC_ID, COMPACTED, NOW_MS)
    log.append(
        batch([b"aborted"], keys=[b"j"], pid=1, epoch=0, seq=0, transactional=True), now_ms=NOW_MS
    )
    append_marker(
        log, producer_id=1, producer_epoch=0, coordinator_epoch=0, commit=False, now_ms=NOW_MS
    )
    for number in range(5):
        put(log, b"k", b"%d" % number)
    log.flush()
    found = job_of(log)
    assert found is not None and found.aborted == (AbortedEntry(1, 0, 1, 2),)
    return found


def process_id_of(cleaning: Any) -> int | None:
    """The id of the cleaner process, or None while there is no process."""
    process = cleaning._process
    return None if process is None else process.pid


def is_running(process_id: int) -> bool:
    try:
        with open(f"/proc/{process_id}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition: Any) -> None:
    """Wait until the condition is true. Fails after PATIENCE_S."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)


def test_a_job_and_its_result_come_through_the_pipe_as_they_are(job: CleanJob) -> None:
    job = job._replace(levels=Levels(1, 2, 19))
    assert _unpack_job(_pack_job(job)) == job
    assert type(_unpack_job(_pack_job(job)).levels) is Levels
    result = CleanResult(
        (CleanedSegment(0, (0, 5), 100, -1, 0), CleanedSegment(7, (7,), 0, 9, 8)), 12, 1, 2
    )
    assert _unpack_answer(_pack_result(result)) == (result, "")


def test_jobs_are_done_in_a_process_of_low_priority(
    job: CleanJob, process: CleanerProcess, done: queue.SimpleQueue[Done], tmp_path: Path
) -> None:
    process.submit(job)
    ended, result, error = done.get(timeout=PATIENCE_S)
    assert (ended, error) == (job, "")
    made = {path.name: path.read_bytes() for path in tmp_path.glob("t-0/*.cleaned")}
    assert made
    process_id = process_id_of(process)
    assert process_id is not None and process_id != os.getpid()
    assert os.getpriority(os.PRIO_PROCESS, process_id) > os.getpriority(os.PRIO_PROCESS, 0)
    assert clean(OsDisk(), job) == result
    assert {path.name: path.read_bytes() for path in tmp_path.glob("t-0/*.cleaned")} == made
    process.submit(job._replace(directory=str(tmp_path / "is-not-there")))
    assert "No such file" in done.get(timeout=PATIENCE_S)[2]
    assert process_id_of(process) == process_id  # an error does not end the process


def test_a_job_fails_when_the_process_has_died_and_the_next_job_gets_a_new_process(
    job: CleanJob, process: CleanerProcess, done: queue.SimpleQueue[Done]
) -> None:
    process.submit(job)
    assert done.get(timeout=PATIENCE_S)[1] is not None
    first = process_id_of(process)
    assert first is not None
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not is_running(first))
    process.submit(job)
    _, result, error = done.get(timeout=PATIENCE_S)
    assert result is None and "the cleaner's process" in error
    process.submit(job)
    assert done.get(timeout=PATIENCE_S)[1] is not None
    assert process_id_of(process) != first


def test_the_process_ends_when_idle_and_the_next_job_starts_another(
    job: CleanJob, done: queue.SimpleQueue[Done]
) -> None:
    process = CleanerProcess(lambda *ended: done.put(ended), idle_s=0.05)
    process.submit(job)
    assert done.get(timeout=PATIENCE_S)[1] is not None
    wait_until(lambda: process_id_of(process) is None)
    process.submit(job)
    assert done.get(timeout=PATIENCE_S)[1] is not None
    process.stop()


def test_a_stop_does_not_wait_for_the_job(job: CleanJob, done: queue.SimpleQueue[Done]) -> None:
    """The cleaner process is suspended, so the job cannot end by itself."""
    process = CleanerProcess(lambda *ended: done.put(ended))
    process.submit(job)
    assert done.get(timeout=PATIENCE_S)[1] is not None
    process_id = process_id_of(process)
    assert process_id is not None
    os.kill(process_id, signal.SIGSTOP)
    process.submit(job)
    wait_until(process._jobs.empty)  # the pipe to the process has the job, or is about to get it
    stopping = threading.Thread(target=process.stop, daemon=True)
    stopping.start()
    stopping.join(PATIENCE_S)
    is_stopped = not stopping.is_alive() and not is_running(process_id)
    if not is_stopped:
        os.kill(process_id, signal.SIGKILL)
    assert is_stopped
    assert done.empty()


def slow_job(path: Path) -> CleanJob:
    """A job with many small segments, which takes long because each needs its own fsyncs."""
    manager: LogManager = open_manager(path / "slow", COMPACTED)
    log = manager.create("t", 0, TOPIC_ID, COMPACTED, NOW_MS)
    for number in range(500):
        put(log, b"k", b"%d" % number)
    log.flush()
    job = job_of(log)
    assert job is not None
    log.close()
    return job


def test_the_cleaner_process_ends_when_the_broker_is_killed(tmp_path: Path) -> None:
    """A separate Python process acts as the broker. It is killed during a job, so it cannot
    stop its cleaner process.
    """
    job = slow_job(tmp_path)
    packed = tmp_path / "job"
    packed.write_bytes(_pack_job(job))
    script = (
        "import sys, time; from pathlib import Path\n"
        "from barnabas.broker.rim.cleaning import CleanerProcess, _unpack_job\n"
        "process = CleanerProcess(lambda *ended: None)\n"
        "process.submit(_unpack_job(Path(sys.argv[1]).read_bytes()))\n"
        "while process._process is None: time.sleep(0.01)\n"
        "print(process._process.pid, flush=True); time.sleep(60)"
    )
    root = str(ROOT)
    with subprocess.Popen(
        [sys.executable, "-c", script, str(packed)],
        cwd=root,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": root},
    ) as broker:
        assert broker.stdout is not None
        process_id = int(broker.stdout.readline())
        wait_until(lambda: list(Path(job.directory).glob("*.cleaned")))
        broker.kill()
    wait_until(lambda: not is_running(process_id))


def test_the_process_of_a_killed_broker_ends_without_a_word(job: CleanJob) -> None:
    """It may be about to send a result. Its input, which ends at the same time, may be noticed
    later: half a traceback was left in the log.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _BOOTSTRAP, json.dumps(sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    process.stdout.close()
    _write_frame(process.stdin, _pack_job(job))
    assert (process.wait(PATIENCE_S), process.stderr.read()) == (0, b"")
    process.stdin.close()
    process.stderr.close()
