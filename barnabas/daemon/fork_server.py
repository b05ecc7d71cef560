"""A process that has imported all modules of the broker, and forks a daemon for each request.

A start of `barnabas start` spends most of its time in imports. Here they are done once, so that a
test gets a new daemon within some milliseconds. `barnabas/forked_daemon.py` is the client's side.

The fork is safe since this process never has a second thread, an event loop, a log handler or a
listening socket: no lock can be held by a thread that the child does not have, and no system
library has been used that refuses to work after a fork (on macOS: those with threads of their own).
All of that is made by the child.

Most of what a fork costs is paid later: a child shares the memory of its parent, and each page is
copied at the first write to it, where reference counts and caches of the interpreter are writes,
too. So one child, the spare, is forked before it is needed (`_SPARE_AFTER_MS`), and opens an empty
directory for nothing (`rehearsal.py`): the pages are its own when the request comes.

A child is a spare again when the input of its daemon has ended, if the request allows it (the test
has touched nothing but the broker's port) and if the process is as it was before its first daemon
(`renewal.py`). That is the cheapest by far. In all other cases the next daemon has another process:
after a kill, a stop or a failure, with settings, faults or a clock, and after `_MOST_RENEWALS`.

    standard input    a stream socket. A request is 4 bytes with the length of the rest, which come
                      with three descriptors (the daemon's standard input, its output, its status),
                      and a JSON object {"options", "environment", "directory", "may_renew"}.
                      With may_renew the daemon ends at any input, since its end may not come: a
                      process that the test has forked has the pipe, too
    b"r"              sent once, when the first request can be served
    status            "PID\\n", later "EXIT CODE\\n", negative for a signal; then it is closed
    a child           has a stream socket to this process: it receives requests, without the status,
                      and sends b"r" when it has one, and when it is a spare again
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
from typing import Any, NamedTuple, NoReturn

from barnabas.daemon.announcing import has_cli
from barnabas.daemon.main import run_command
from barnabas.daemon.rehearsal import rehearse_start, rehearse_test
from barnabas.daemon.renewal import ProcessState

LENGTH = struct.Struct(">I")
READY = b"r"
# A spare is forked when no request has come for this time, so that it does not compete for the CPU
# with a broker that starts.
_SPARE_AFTER_MS = 10
_MOST_SPARES = 2
_MOST_RENEWALS = 200
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


class _Child(NamedTuple):
    """A child of the fork server, and the socket to it."""

    pid: int
    sock: socket.socket


class ForkServer:
    """Serves the requests that come from a socket.

    Takes: sock, the connection to the process that starts brokers; scratch, a directory for
           rehearsals, which is removed at the end.
    """

    def __init__(self, sock: socket.socket, scratch: str) -> None:
        self._sock = sock
        self._spares: list[_Child] = []  # the last one is used next
        # Children that may be spares again, by the descriptors of their sockets.
        self._running: dict[int, _Child] = {}
        # the descriptor for the exit code of each daemon
        self._statuses: dict[int, int] = {}
        self._scratch = scratch
        self._woken, self._wakes = os.pipe()
        for descriptor in (self._woken, self._wakes):
            os.set_blocking(descriptor, False)

    def run(self) -> None:
        """Serve until the other side closes the socket."""
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # not what the test's process has blocked
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        try:
            self._serve()
        finally:
            for spare in self._spares:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(spare.pid, signal.SIGKILL)
                    os.waitpid(spare.pid, 0)
            rmtree(self._scratch, ignore_errors=True)

    def _serve(self) -> None:
        for _ in range(_REHEARSALS):
            rehearse_test(f"{self._scratch}/server")
        # Frozen objects are not traversed by a collection of a child, whose pages stay shared.
        gc.collect()
        gc.freeze()
        self._sock.sendall(READY)
        while True:
            poll = select.poll()
            for descriptor in (self._sock.fileno(), self._woken, *self._running):
                poll.register(descriptor, select.POLLIN)
            readable = [at for at, _ in poll.poll(None if self._spares else _SPARE_AFTER_MS)]
            for descriptor in self._running.keys() & readable:
                self._on_renewed(descriptor)
            if self._woken in readable:
                self._reap()
            if self._sock.fileno() in readable:
                if not self._serve_one():
                    return
            elif not readable:
                self._spares.append(self._fork())

    def _serve_one(self) -> bool:
        """Hand a request to a spare. Gives: False at the end of the input."""
        message = _receive(self._sock)
        if message is None:
            return False
        body, (stdin, output, status) = message
        while True:
            child = self._spares.pop() if self._spares else self._fork(stdin, output, status)
            with contextlib.suppress(OSError):
                send(child.sock, body, [stdin, output])
                if child.sock.recv(len(READY)) == READY:
                    break
            child.sock.close()  # somebody has killed the spare: take another
        os.close(stdin)
        os.close(output)
        self._statuses[child.pid] = status
        self._running[child.sock.fileno()] = child
        _write(status, child.pid)
        return True

    def _on_renewed(self, descriptor: int) -> None:
        """A child has become a spare again, or ends; then `_reap` reports its exit code."""
        child = self._running.pop(descriptor)
        with contextlib.suppress(OSError):
            if child.sock.recv(len(READY)) == READY:
                self._report(child.pid, 0)
                self._spares.append(child)
                if len(self._spares) > _MOST_SPARES:
                    self._spares.pop(0).sock.close()  # it ends at the end of its input
                return
        child.sock.close()

    def _reap(self) -> None:
        """Report the exit codes of the daemons that have ended."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 4096)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, code = ended
                for spare in self._spares[:]:
                    if spare.pid == pid:
                        spare.sock.close()
                        self._spares.remove(spare)
                self._report(pid, os.waitstatus_to_exitcode(code))

    def _report(self, pid: int, code: int) -> None:
        """Report an exit code, if there is a daemon."""
        status = self._statuses.pop(pid, None)
        if status is not None:
            _write(status, code)
            os.close(status)

    def _fork(self, *of_request: int) -> _Child:
        """Fork a child that waits for requests.

        Takes: of_request, the descriptors of a request that is being served. A child that kept them
               would keep the pipes open after its daemon has ended.
        """
        ours, its = socket.socketpair()
        pid = os.fork()
        if pid:
            its.close()
            return _Child(pid, ours)
        try:
            ours.close()
            self._leave(of_request)
            rehearse_start(f"{self._scratch}/{os.getpid()}")
            code = _serve_as_daemons(its)
        except BaseException:
            traceback.print_exc()
            code = 1
        _exit(code)

    def _leave(self, of_request: tuple[int, ...]) -> None:
        """In the child: drop what belongs to the fork server."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in (self._woken, self._wakes, *self._statuses.values(), *of_request):
            os.close(descriptor)
        for child in (*self._spares, *self._running.values()):
            child.sock.close()
        self._sock.close()
        os.setsid()


def _serve_as_daemons(sock: socket.socket) -> int:
    """In the child: wait for a request and run the command, again for as long as the process may be
    used again. Gives: the last exit code.
    """
    before = ProcessState()
    for renewals_left in reversed(range(1 + _MOST_RENEWALS)):
        message = _receive(sock)
        if message is None:
            return 0
        sock.sendall(READY)
        body, (stdin, output) = message
        request = json.loads(body)
        for descriptor, number in ((stdin, 0), (output, 1), (output, 2)):
            os.dup2(descriptor, number)
        os.close(stdin)
        os.close(output)
        os.chdir(request["directory"])
        _set_environment(request["environment"])
        may_renew = request["may_renew"]
        own = {"has_imported_all": True, "ends_at_input": may_renew}
        code = run_command(Namespace(**request["options"], **own))
        if code or not (may_renew and renewals_left and _is_input_at_end()):
            return code
        if not before.restore():
            return 0
        sock.sendall(READY)
    raise AssertionError("the last daemon of a process ends it")


def _is_input_at_end() -> bool:
    """Whether the daemon has ended since nobody needs it any more: there is input, or its end."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    return bool(poll.poll(0))


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
