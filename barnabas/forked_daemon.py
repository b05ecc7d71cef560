"""Daemons that are forked from a process which has imported all modules: the client's side.

    FORKING          the fork server of this process, if it has one
    ForkedProcess    a daemon, with the methods of subprocess.Popen that LocalBroker uses

The fork server is `barnabas/daemon/fork_server.py`. It is started when a process starts its second
broker, and serves as soon as it has imported all modules; until then brokers are started as by
the command. It ends with this process.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import math
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from shutil import rmtree
from typing import IO

from barnabas.daemon.arguments import parser
from barnabas.daemon.fork_server import READY, send
from barnabas.local_broker import temporary_directory

# An interpreter or its libraries read these only when a process starts.
_OF_THE_PROCESS = ("PYTHON", "LD_", "DYLD_", "MALLOC_", "GLIBC_", "OPENSSL_", "LANG", "LC_", "TZ")
_LIMITS = (
    resource.RLIMIT_NOFILE,
    resource.RLIMIT_FSIZE,
    resource.RLIMIT_AS,
    resource.RLIMIT_DATA,
    resource.RLIMIT_CORE,
)
_NOT_SENT = ("parser", "has_imported_all", "ends_at_input")
_ENDS_WITHIN_S = 10.0
_FORKS_WITHIN_S = 30.0
_LOOKS_EVERY_S = 1.0


class ForkServerError(RuntimeError):
    """The fork server has ended."""


class ForkedProcess:
    """A forked daemon, which is a child of the fork server.

    pid: its process id. stdin: the pipe to its standard input. stdout: its output. returncode: as
    in subprocess.Popen.
    """

    def __init__(self, pid: int, stdin: IO[str], stdout: IO[str], status: int) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None
        self._status = status
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while the daemon runs."""
        with self._lock:
            if self.returncode is None and _is_readable(self._status, 0):
                self._read_code()
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end. Gives: the exit code. Raises: subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                assert timeout is not None
                raise subprocess.TimeoutExpired("barnabas start", timeout)
            # not for ever: another thread may read the code and close the descriptor
            _is_readable(
                self._status, _LOOKS_EVERY_S if left is None else min(left, _LOOKS_EVERY_S)
            )
        return code

    def _read_code(self) -> None:
        """Read the exit code. If the fork server was killed, nobody waits for the daemon any more,
        and it is killed, too.
        """
        text = os.read(self._status, 100)
        if not text:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self.returncode = int(text) if text else -signal.SIGKILL
        os.close(self._status)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the daemon has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class ForkServerClient:
    """A fork server, and the connection to it.

    is_current(): whether a daemon that it forks is the same as one that is started now.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._pid = os.getpid()
        self._kind = _kind_of_process(environment)
        self._is_ready = False
        self._lock = threading.Lock()
        self._scratch = temporary_directory(in_memory=True)
        self._sock, its = socket.socketpair()
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "barnabas.daemon.fork_server", self._scratch],
                stdin=its.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # a fault of the source is shown by the usual start
                env=dict(environment),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    def is_current(self, environment: Mapping[str, str]) -> bool:
        """Whether the server belongs to this process, not to the one that forked it, and has the
        settings that an interpreter reads only at its start.
        """
        return self._pid == os.getpid() and self._kind == _kind_of_process(environment)

    def is_ready(self, timeout_s: float = 0.0) -> bool:
        """Whether the server has imported all modules. Raises: ForkServerError."""
        with self._lock:
            if not self._is_ready and _is_readable(self._sock.fileno(), timeout_s):
                if self._sock.recv(1) != READY:
                    raise ForkServerError("the fork server did not start")
                self._is_ready = True
            return self._is_ready

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], *, may_renew: bool
    ) -> ForkedProcess:
        """Start a daemon. Raises: ForkServerError."""
        options = vars(_parser().parse_args(arguments))
        request = {
            "options": {name: options[name] for name in options if name not in _NOT_SENT},
            "environment": dict(environment),
            "directory": os.getcwd(),
            "may_renew": may_renew,
        }
        (stdin, to_stdin), (output, to_output) = os.pipe(), os.pipe()
        status, to_status = os.pipe()
        its = [stdin, to_output, to_status]
        try:
            with self._lock:
                send(self._sock, json.dumps(request).encode(), its)
            while its:
                os.close(its.pop())
            pid = _read_pid(status)
        except (OSError, ForkServerError) as error:
            for descriptor in (to_stdin, output, status, *its):
                os.close(descriptor)
            raise ForkServerError("the fork server has ended") from error
        return ForkedProcess(
            pid, os.fdopen(to_stdin, "w"), os.fdopen(output, errors="replace"), status
        )

    def close(self) -> None:
        """End the server. Its daemons run on."""
        self._sock.close()  # the server ends at the end of its input
        if self._pid == os.getpid():
            try:
                self._process.wait(_ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            rmtree(self._scratch, ignore_errors=True)  # somebody may have killed the server
        self._process.returncode = 0  # otherwise a process that was forked would warn of it


class Forking:
    """The fork server of a process, and when there is one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: ForkServerClient | None = None
        self._starts = 0

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], *, may_renew: bool = False
    ) -> ForkedProcess | None:
        """Fork a daemon. Gives: None if there is no fork server that is ready.

        Takes: may_renew, whether its process may run another daemon when its input has ended. Then
               nobody may send it signals after that.
        After: from the second call of the process on, there is one. One that has ended, or that has
               another environment, is replaced.
        """
        try:
            server = self._ready_server(environment)
            if server is None:
                return None
            return server.start(arguments, environment, may_renew=may_renew)
        except (ForkServerError, OSError):
            self.end()
            return None

    def _ready_server(self, environment: Mapping[str, str]) -> ForkServerClient | None:
        with self._lock:
            self._starts += 1
            if self._server is not None and not self._server.is_current(environment):
                self._server.close()
                self._server = None
            if self._server is None:
                if self._starts > 1:
                    self._server = ForkServerClient(environment)
                return None
            return self._server if self._server.is_ready() else None

    def wait_until_ready(self, timeout_s: float = 60.0) -> bool:
        """Wait for the fork server, if there is one. Gives: whether the next daemon is forked."""
        with self._lock:
            return self._server is not None and self._server.is_ready(timeout_s)

    @property
    def pid(self) -> int | None:
        """The fork server's process id; None if there is none."""
        return None if self._server is None else self._server.pid

    def end(self) -> None:
        """End the fork server, if there is one. The next start begins another."""
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            server.close()


FORKING = Forking()
"""The fork server of this process."""
atexit.register(FORKING.end)


def _is_readable(descriptor: int, timeout_s: float | None) -> bool:
    """Whether a descriptor has data, or is at its end, within a time; None: wait for ever.

    Unlike `select.select`, `poll` takes descriptors above 1023, too.
    """
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if timeout_s is None else math.ceil(timeout_s * 1000)))


def _read_pid(status: int) -> int:
    """The process id of a daemon that is being forked. Raises: ForkServerError."""
    line = b""
    while not line.endswith(b"\n"):
        # byte by byte, since the exit code may follow
        part = os.read(status, 1) if _is_readable(status, _FORKS_WITHIN_S) else b""
        if not part:
            raise ForkServerError("the fork server has ended, or hangs")
        line += part
    return int(line)


@functools.cache
def _parser() -> ArgumentParser:
    """The parser of the command's arguments. They are parsed here, since each child of the fork
    server would write to memory that it shares.
    """
    return parser()


def _kind_of_process(environment: Mapping[str, str]) -> tuple[object, ...]:
    """What a process has from its start on: a server with another kind is of no use."""
    return (
        sys.executable,
        *sorted(item for item in environment.items() if item[0].startswith(_OF_THE_PROCESS)),
        *map(resource.getrlimit, _LIMITS),
    )
