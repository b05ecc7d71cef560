"""The part of the rim that runs compaction outside of the event loop. Jobs are sent to a separate
process, one after the other.

The process runs this interpreter with -P, at low priority. It is started for the first job, and
stopped after a time without jobs. Jobs and results are frames (uint32 size, msgpack) over its
standard input and output. The process ends when its input ends, so it never outlives the broker,
however the broker ends. If it dies during a job, the job has failed, and the next job starts
another process.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO, Any

import msgpack

from barnabas.protocol.compression import Levels
from barnabas.storage.cleaning.clean_job import CleanedSegment, CleanJob, CleanResult
from barnabas.storage.disk import OsDisk
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.files.txn_index import TxnIndex

IDLE_S = 30.0
NICENESS = 10
_SIZE = struct.Struct(">I")
_BOOTSTRAP = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from barnabas.broker.rim.cleaning import serve; serve()"
)

Ended = Callable[[CleanJob, CleanResult | None, str], None]


class CleanerProcess:
    """Runs cleaning jobs. At the end of each job `on_done(job, result, error)` is called in a
    thread of this object. The result is None if the job failed.
    """

    def __init__(self, on_done: Ended, *, idle_s: float = IDLE_S) -> None:
        self._on_done = on_done
        self._idle_s = idle_s
        self._jobs: queue.SimpleQueue[CleanJob | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = False

    def submit(self, job: CleanJob) -> None:
        """Run a job after the earlier ones; `on_done` is called in the cleaner's thread at
        its end.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="cleaner", daemon=True)
            self._thread.start()
        self._jobs.put(job)

    def stop(self) -> None:
        """Kill the process, even during a job. The next start removes unfinished files."""
        with self._lock:
            self._stopping = True
            if self._process is not None:
                self._process.kill()
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        """The thread's function: send one job after the other to the process, and end the process
        when it is idle.
        """
        while True:
            try:
                job = self._jobs.get(timeout=self._idle_s if self._process is not None else None)
            except queue.Empty:
                self._end_process()
                continue
            if job is None or self._stopping:
                self._end_process()
                return
            result, error = self._clean(job)
            # Imported here because the loop's thread needs this module next, and must not wait for
            # an import.
            import barnabas.storage.cleaning.segment_swap  # noqa: F401

            if not self._stopping:
                self._on_done(job, result, error)

    def _clean(self, job: CleanJob) -> tuple[CleanResult | None, str]:
        """Let the process run a job. Gives: the result, or None and the error."""
        try:
            process = self._process or self._start_process()
            assert process.stdin is not None and process.stdout is not None
            _write_frame(process.stdin, _pack_job(job))
            answer = _read_frame(process.stdout)
        except OSError as error:
            self._end_process()
            return None, f"the cleaner's process: {error}"
        if answer is None:
            code = self._end_process()
            return None, f"the cleaner's process ended with {code}"
        return _unpack_answer(answer)

    def _start_process(self) -> subprocess.Popen[bytes]:
        """Start the process. Raises: OSError, also if the broker is stopping."""
        command = [sys.executable, "-P", "-c", _BOOTSTRAP, json.dumps(sys.path)]
        with self._lock:
            if self._stopping:
                raise OSError("the broker stops")
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            return self._process

    def _end_process(self) -> int | None:
        """End the process by closing its input. Gives: its exit code; None without a process."""
        with self._lock:
            process, self._process = self._process, None
        if process is None:
            return None
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.stdout.close()
        try:
            return process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


# --- the process --------------------------------------------------------------------------------


def serve() -> None:
    """The main function of the process. It runs one job after the other, until the input ends."""
    # imported here, since the broker does not need this module
    from barnabas.storage.cleaning.cleaner import clean

    # A terminal sends these to both processes, and so does a program that finds processes by their
    # name; the broker handles them, and ends this process.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(
        target=_receive, args=(sys.stdin.buffer, jobs), name="jobs", daemon=True
    ).start()
    disk = OsDisk()
    while True:
        job = _unpack_job(jobs.get())
        try:
            answer = _pack_result(clean(disk, job))
        except (CorruptLog, OSError) as error:
            answer = msgpack.packb({"error": str(error)})
        except Exception as error:
            answer = msgpack.packb(
                {"error": f"an error in the cleaner: {error!r}; please report it"}
            )
        try:
            _write_frame(sys.stdout.buffer, answer)
        except OSError:
            os._exit(0)  # the broker has ended, and `_receive` has not noticed it yet


def _receive(stream: IO[bytes], jobs: queue.SimpleQueue[bytes]) -> None:
    """The receiving thread of the process: queue the jobs until the input ends."""
    while (frame := _read_frame(stream)) is not None:
        jobs.put(frame)
    os._exit(0)  # the broker has ended or stops this process: end at once, even during a job


# --- frames -------------------------------------------------------------------------------------


def _write_frame(stream: IO[bytes], data: bytes) -> None:
    stream.write(_SIZE.pack(len(data)) + data)
    stream.flush()


def _read_frame(stream: IO[bytes]) -> bytes | None:
    """The body of the next frame; None at the end of the stream."""
    head = stream.read(_SIZE.size)
    if len(head) < _SIZE.size:
        return None
    (size,) = _SIZE.unpack(head)
    data = stream.read(size)
    return data if len(data) == size else None


def _pack_job(job: CleanJob) -> bytes:
    """A job as bytes for the process."""
    fields: dict[str, Any] = job._asdict()
    fields["aborted"] = TxnIndex(list(job.aborted)).encode()
    packed: bytes = msgpack.packb(fields)
    return packed


def _unpack_job(data: bytes) -> CleanJob:
    """The job from its bytes."""
    fields = msgpack.unpackb(data, strict_map_key=False, use_list=False)
    fields["aborted"] = tuple(TxnIndex.decode(fields["aborted"]).entries)
    fields["levels"] = Levels(*fields["levels"])
    return CleanJob(**fields)


def _pack_result(result: CleanResult) -> bytes:
    packed: bytes = msgpack.packb(result._asdict())
    return packed


def _unpack_answer(data: bytes) -> tuple[CleanResult | None, str]:
    """The result from the answer of the process, or None and the error."""
    fields = msgpack.unpackb(data, use_list=False)
    if "error" in fields:
        return None, fields["error"]
    fields["segments"] = tuple(CleanedSegment(*segment) for segment in fields["segments"])
    return CleanResult(**fields), ""
