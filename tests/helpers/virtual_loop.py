"""An asyncio event loop whose clock advances only when no callback is ready. Minutes pass
immediately, and timers fire in the order of their times.

`leftovers` lists the timers, watched sockets and tasks that a test of the rim leaves behind.
"""

from __future__ import annotations

import asyncio
import errno
import selectors
import socket
from collections import deque
from typing import Any


class StuckError(Exception):
    """Nothing is ready and no timer is set, so the awaited event can never occur."""


class _Selector(selectors.SelectSelector):
    """A selector that advances `now_s` instead of waiting."""

    now_s = 1000.0

    def select(self, timeout: float | None = None) -> list[Any]:
        """Return the sockets that are ready. If there are none, advance the clock to the next
        timer.

        Raises: StuckError if there is no timer either.
        """
        ready = super().select(0)
        if not ready and timeout is None:
            raise StuckError
        if not ready and timeout is not None:
            self.now_s += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """now_ms: its clock."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)
        self._own = set(self._virtual.get_map())

    def time(self) -> float:
        return self._virtual.now_s

    @property
    def now_ms(self) -> int:
        return round(self._virtual.now_s * 1000)

    def run_for(self, seconds: float) -> None:
        """Advance the clock by this time, and run all callbacks that become due."""
        self.run_until_complete(asyncio.sleep(seconds))

    def settle(self) -> None:
        """Run all callbacks that are ready, and those that result from them, without advancing the
        clock.
        """

        async def rounds() -> None:
            for _ in range(30):
                await asyncio.sleep(0)

        self.run_until_complete(rounds())

    def leftovers(self) -> list[str]:
        """The timers that are set, sockets that are watched, and tasks that have not ended."""
        timers = [repr(timer) for timer in self._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        watched = [f"socket {fd}" for fd in set(self._virtual.get_map()) - self._own]
        tasks = [repr(task) for task in asyncio.all_tasks(self) if not task.done()]
        return timers + watched + tasks


class _Socket(socket.socket):
    """One end of a socket pair that behaves like TCP. `options` has the socket options that were
    set.
    """

    options: list[tuple[int, int]]

    def setsockopt(self, *arguments: Any) -> None:
        self.options = [*getattr(self, "options", []), arguments[:2]]

    def getpeername(self) -> Any:
        if self.fileno() < 0:
            raise OSError(errno.EBADF, "closed")
        return ("10.0.0.2", 5000)


def stream_pair(buffer_bytes: int = 0) -> tuple[_Socket, _Socket]:
    """Two connected non-blocking sockets.

    Takes: buffer_bytes, the buffer size of each socket, or 0 for the system's default.
    """
    ours, theirs = socket.socketpair()
    ends = _Socket(fileno=ours.detach()), _Socket(fileno=theirs.detach())
    for end in ends:
        end.setblocking(False)
        if buffer_bytes:
            socket.socket.setsockopt(end, socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
    return ends


class VirtualPort:
    """A listening socket whose connections are socket pairs.

    `refusals` has errors that `accept` raises before it accepts any client. `accepted` has the
    accepted sockets.
    """

    def __init__(self) -> None:
        self._signal, self._readable = socket.socketpair()
        self._readable.setblocking(False)
        self._waiting: deque[_Socket] = deque()
        self.refusals: list[OSError] = []
        self.accepted: list[_Socket] = []
        self._clients: list[_Socket] = []
        self.is_closed = False

    def connect(self, host: str = "10.0.0.2", buffer_bytes: int = 0) -> _Socket:
        """Open a connection, and return the client's end."""
        ours, theirs = stream_pair(buffer_bytes)
        ours.host = host  # type: ignore[attr-defined]
        ours.setblocking(True)  # blocking, like the sockets that `accept` returns
        self._waiting.append(ours)
        self._signal.send(b"x")
        self._clients.append(theirs)
        return theirs

    def hang_up_all(self) -> None:
        """Close the client's end of every connection."""
        for sock in self._clients:
            sock.close()

    def accept(self) -> tuple[_Socket, tuple[str, int]]:
        """Raise the next error of `refusals`, or accept the oldest waiting client if there is
        none.
        """
        if self.refusals:
            raise self.refusals.pop(0)
        self._readable.recv(1)
        sock = self._waiting.popleft()
        self.accepted.append(sock)
        return sock, (sock.host, 5000)  # type: ignore[attr-defined]

    def fileno(self) -> int:
        return self._readable.fileno()

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", 9093)

    def close(self) -> None:
        self.is_closed = True
        self._signal.close()
        self._readable.close()


def received(sock: socket.socket) -> bytes | None:
    """All bytes that the socket has received so far, or None if there are none and the stream has
    ended.
    """
    data = b""
    try:
        while part := sock.recv(1 << 20):
            data += part
    except BlockingIOError:
        return data
    except ConnectionError:
        pass
    return data or None
