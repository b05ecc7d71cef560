"""Runs jobs in forked children, a few at a time. Each has a time limit and its own directory.

A child is a fork of a process that has loaded all code and collected all tests, so this work is not
repeated for each job. Children do not affect each other: a child's changes end with it, its memory
is limited, and its whole process group is killed at its end.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

MOST_MEMORY_BYTES = 6 << 30
WALL = 6  # the ratio of elapsed time to CPU time, which allows for waits and a busy machine
SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Job(NamedTuple):
    """A job for a child. `run` is called with the child's directory and returns the result.
    `limit_s` is the CPU time after which the child is killed.
    """

    name: Any
    run: Callable[[Path], Any]
    limit_s: float


class Outcome(NamedTuple):
    """The outcome of a job. `value` is the result of `run`. It is None if the child died (from a
    crash or the memory limit) or ran out of time.
    """

    name: Any
    value: Any
    is_out_of_time: bool
    took_s: float


class _Child(NamedTuple):
    job: Job
    pid: int
    directory: Path
    began_s: float
    received: bytearray


def run_all(jobs: Iterable[Job], processes: int) -> Iterator[Outcome]:
    """Run the jobs, and yield their outcomes in the order in which they end."""
    waiting, selector, running = iter(jobs), selectors.DefaultSelector(), 0
    try:
        while True:
            while running < processes and (job := next(waiting, None)) is not None:
                reading, child = _begin(job)
                selector.register(reading, selectors.EVENT_READ, child)
                running += 1
            if not running:
                return
            children = [key.data for key in selector.get_map().values()]
            soonest_s = (
                min(child.began_s + WALL * child.job.limit_s for child in children)
                - time.monotonic()
            )
            for key, _ in selector.select(max(0.0, soonest_s)):
                data = os.read(key.fd, 1 << 16)
                key.data.received.extend(data)
                if not data:
                    running -= 1
                    yield _end(selector, key, False)
            for key in list(selector.get_map().values()):
                if time.monotonic() - key.data.began_s > WALL * key.data.job.limit_s:
                    running -= 1
                    yield _end(selector, key, True)
    finally:
        for key in list(selector.get_map().values()):
            _end(selector, key, True)
        selector.close()


def _begin(job: Job) -> tuple[int, _Child]:
    """Start a child that runs the job and writes its pickled result into a pipe. Return the read
    end of the pipe, and the child.
    """
    reading, writing = os.pipe()
    directory = Path(tempfile.mkdtemp(prefix="barnabas-mutant-", dir=SCRATCH))
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reading)
            os.setpgid(0, 0)
            _isolate(directory, job.limit_s)
            value = pickle.dumps(job.run(directory))
            while value:
                value = value[os.write(writing, value) :]
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    # The child makes the same call. Whichever call comes later may fail.
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)
    return reading, _Child(job, pid, directory, time.monotonic(), bytearray())


def _isolate(directory: Path, limit_s: float) -> None:
    """Isolate a child: discard its output, limit its memory and CPU time, and give it its own
    directory for temporary files.
    """
    silence = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silence, descriptor)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit_s), math.ceil(limit_s) + 1))
    tempfile.tempdir = str(directory)
    for module in ("helpers.scratch", "helpers.damaged_directories"):
        if module in sys.modules:
            sys.modules[module].IN_MEMORY = str(directory)  # type: ignore[attr-defined]


def limit_next_step(limit_s: float) -> None:
    """Kill this process, a child, if its next step takes more CPU time than `limit_s`.

    A mutant that runs for ever is then detected after one step, not at the limit of the whole
    job.
    """
    _, hard_s = resource.getrlimit(resource.RLIMIT_CPU)
    soft_s = math.ceil(time.process_time() + limit_s)
    resource.setrlimit(resource.RLIMIT_CPU, (min(soft_s, hard_s), hard_s))


def _end(
    selector: selectors.BaseSelector, key: selectors.SelectorKey, is_out_of_time: bool
) -> Outcome:
    """Kill a child and its process group, and return its outcome."""
    child: _Child = key.data
    selector.unregister(key.fd)
    os.close(key.fd)  # type: ignore[arg-type]
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    status = os.waitpid(child.pid, 0)[1]
    shutil.rmtree(child.directory, ignore_errors=True)
    value = None
    is_out_of_time = is_out_of_time or (
        os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
    )
    if not is_out_of_time:
        with contextlib.suppress(EOFError, pickle.UnpicklingError):
            value = pickle.loads(bytes(child.received))
    return Outcome(child.job.name, value, is_out_of_time, time.monotonic() - child.began_s)
