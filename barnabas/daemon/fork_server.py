"""A process that has imported all modules of the broker, and forks a daemon for each request.

A start of `barnabas start` spends most of its time in imports. Here they are done once, so that a
test gets a new daemon within some milliseconds. `barnabas/forked_daemon.py` is the client's side.

Each daemon is a process of its own, so that nothing of one broker is left for the next: no module
state, thread, timer, signal handler or descriptor. The fork is safe since this process never has a
second thread, an event loop, a log handler or a listening socket: no lock can be held by a thread
that the child does not have, and no system library has been used that refuses to work after a fork
(on macOS: those with threads of their own). All of that is made by the child.

Most of what a fork costs is paid later: a child shares the memory of its parent, and each page is
copied at the first write to it, where reference counts and caches of the interpreter are writes,
too. So one child, the spare, is forked before it is needed (`_SPARE_AFTER_S`), and opens an empty
directory for nothing (`rehearsal.py`): the pages are its own when the request comes.

    standard input    a stream socket. A request is 4 bytes with the length of the rest, which come
                      with three descriptors (the daemon's standard input, its output, its status),
                      and a JSON object {"options", "environment", "directory"}
    b"r"              sent once, when the first request can be served
    status            "PID\\n", later "EXIT CODE\\n", negative for a signal; then it is closed
    first argument    a directory for rehearsals; in memory they take half of the CPU time
    end of input      this process ends. Its daemons notice the end of their own standard inputs
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import struct
import sys
import traceback
from argparse import Namespace
from collections.abc import Mapping
from shutil import rmtree
from typing import Any, NoReturn

from barnabas.daemon.announcing import has_cli
from barnabas.daemon.rehearsal import rehearse_start, rehearse_test

LENGTH = struct.Struct(">I")
READY = b"r"
# A spare is forked when no request has come for this time, so that it does not compete for the CPU
# with a broker that starts.
_SPARE_AFTER_S = 0.01
_REHEARSALS = 8
_PACKAGES = ("broker", "coordinator", "protocol", "storage", "test_control", "process", "daemon")
# Modules of libraries that a start or a first request imports.
_LIBRARIES = ("asyncio", "encodings.idna", "ssl", "zlib")


def import_all() -> None:
    """Import every module that a broker may need, and note which libraries there are. A module
    whose library is not installed is left out, as in a daemon that never uses it.
    """
    for name in _LIBRARIES:
        importlib.import_module(name)
    for package in _PACKAGES:
        path = importlib.import_module(f"barnabas.{package}").__path__
        for module in pkgutil.walk_packages(path, f"barnabas.{package}."):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)
    has_cli()


class ForkServer:
    """Serves the requests that come from a socket.

    Takes: sock, the connection to the process that starts brokers; scratch, a directory for
           rehearsals, which is removed at the end.
    """

    def __init__(self, sock: socket.socket, scratch: str) -> None:
        self._sock = sock
        self._spare: tuple[int, socket.socket] | None = None
        # the descriptor for the exit code of each daemon
        self._statuses: dict[int, int] = {}
        self._scratch = scratch
        self._woken, self._wakes = os.pipe()
        for descriptor in (self._woken, self._wakes):
            os.set_blocking(descriptor, False)

    def run(self) -> None:
        """Serve until the other side closes the socket."""
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        try:
            self._serve()
        finally:
            if self._spare is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._spare[0], signal.SIGKILL)
                    os.waitpid(self._spare[0], 0)
            rmtree(self._scratch, ignore_errors=True)

    def _serve(self) -> None:
        for _ in range(_REHEARSALS):
            rehearse_test(f"{self._scratch}/server")
        # Frozen objects are not traversed by a collection of a child, whose pages stay shared.
        gc.collect()
        gc.freeze()
        self._sock.sendall(READY)
        while True:
            wait_s = _SPARE_AFTER_S if self._spare is None else None
            inputs = [self._sock.fileno(), self._woken]
            readable, _, _ = select.select(inputs, [], [], wait_s)
            if self._woken in readable:
                self._reap()
            if inputs[0] in readable:
                if not self._serve_one():
                    return
            elif not readable:
                self._fork_spare()

    def _serve_one(self) -> bool:
        """Hand a request to the spare. Gives: False at the end of the input."""
        message = _receive(self._sock)
        if message is None:
            return False
        body, (stdin, output, status) = message
        while True:
            if self._spare is None:
                self._fork_spare()
            assert self._spare is not None
            (pid, sock), self._spare = self._spare, None
            with sock, contextlib.suppress(OSError):
                send(sock, body, [stdin, output])
                if sock.recv(len(READY)) == READY:
                    break
            # somebody has killed the spare: take another
        os.close(stdin)
        os.close(output)
        self._statuses[pid] = status
        _write(status, pid)
        return True

    def _reap(self) -> None:
        """Report the exit codes of the daemons that have ended."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 4096)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, code = ended
                if self._spare is not None and self._spare[0] == pid:
                    self._spare[1].close()
                    self._spare = None
                status = self._statuses.pop(pid, None)
                if status is not None:
                    _write(status, os.waitstatus_to_exitcode(code))
                    os.close(status)

    def _fork_spare(self) -> None:
        ours, its = socket.socketpair()
        pid = os.fork()
        if pid:
            its.close()
            self._spare = (pid, ours)
            return
        try:
            ours.close()
            self._leave()
            rehearse_start(f"{self._scratch}/{os.getpid()}")
            code = _serve_as_daemon(its)
        except BaseException:
            traceback.print_exc()
            code = 1
        _exit(code)

    def _leave(self) -> None:
        """In the child: drop what belongs to the fork server."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in (self._woken, self._wakes, *self._statuses.values()):
            os.close(descriptor)
        self._sock.close()
        os.setsid()


def _serve_as_daemon(sock: socket.socket) -> int:
    """In the child: wait for the request, then run the command. Gives: its exit code."""
    from barnabas.daemon.main import run_command

    message = _receive(sock)
    if message is None:
        return 0
    sock.sendall(READY)
    sock.close()
    body, (stdin, output) = message
    request = json.loads(body)
    for descriptor, number in ((stdin, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, number)
    os.close(stdin)
    os.close(output)
    os.chdir(request["directory"])
    _set_environment(request["environment"])
    return run_command(Namespace(**request["options"], has_imported_all=True))


def _set_environment(environment: Mapping[str, str]) -> None:
    """Make the environment the one of the process that asked."""
    for name in [name for name in os.environ if name not in environment]:
        del os.environ[name]
    for name, text in environment.items():
        if os.environ.get(name) != text:
            os.environ[name] = text


def _exit(code: int) -> NoReturn:
    """End a child at once: the objects of the fork server are not its own to finalize."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def send(sock: socket.socket, body: bytes, descriptors: list[int]) -> None:
    """Send a message with descriptors."""
    socket.send_fds(sock, [LENGTH.pack(len(body))], descriptors)
    sock.sendall(body)


def _receive(sock: socket.socket) -> tuple[bytes, list[int]] | None:
    """Receive a message with its descriptors; None at the end of the stream."""
    head, descriptors, _, _ = socket.recv_fds(sock, LENGTH.size, 3)
    if not head:
        return None
    head += _receive_exactly(sock, LENGTH.size - len(head))
    return _receive_exactly(sock, LENGTH.unpack(head)[0]), descriptors


def _receive_exactly(sock: socket.socket, size: int) -> bytes:
    parts: list[Any] = []
    while size:
        part = sock.recv(size)
        if not part:
            raise EOFError("the stream ended within a message")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _write(status: int, number: int) -> None:
    """Write a line to a status, unless its reader has ended."""
    with contextlib.suppress(OSError):
        os.write(status, b"%d\n" % number)


def main() -> None:
    """Import all modules, then serve."""
    sock = socket.socket(fileno=os.dup(0))
    os.set_inheritable(sock.fileno(), False)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    import_all()
    ForkServer(sock, sys.argv[1]).run()


if __name__ == "__main__":
    main()
