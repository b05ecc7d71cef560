"""The loop whose selector calls the callbacks of clients' sockets directly."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from barnabas.broker.rim import poller
from barnabas.broker.rim.poller import PolledLoop, Poller


class Polled:
    """A loop with its poller, and two connected sockets: `ours`, which is watched, and `peer`.

    waits: how often the selector has waited.
    """

    def __init__(self) -> None:
        self.poller = Poller()
        self.loop = PolledLoop(self.poller)
        self.ours, self.peer = socket.socketpair()
        self.ours.setblocking(False)
        self.waits = 0
        wait = self.poller.wait

        def counted(timeout: float | None) -> Any:
            self.waits += 1
            return wait(timeout)

        self.poller.wait = counted  # type: ignore[method-assign]

    def run(self, steps: Callable[[], Awaitable[Any]]) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(steps(), 30))

    def close(self) -> None:
        self.ours.close()
        self.peer.close()
        self.loop.close()


@pytest.fixture(params=["epoll", "another selector"])
def polled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Polled]:
    if request.param != "epoll":
        monkeypatch.setattr(poller, "HAS_EPOLL", False)
    one = Polled()
    yield one
    one.close()


def test_a_callback_is_called_while_the_loop_waits(polled: Polled) -> None:
    """The loop itself has no round for it: `select` does not return in between."""
    received: list[bytes] = []
    rounds = 0

    def select(timeout: float | None = None) -> Any:
        nonlocal rounds
        rounds += 1
        return Poller.select(polled.poller, timeout)

    polled.poller.select = select  # type: ignore[method-assign]
    polled.poller.add_reader(polled.ours.fileno(), lambda: received.append(polled.ours.recv(1)))

    async def steps() -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()

        def peer() -> None:
            for number in range(20):
                polled.peer.send(bytes((number,)))
                while len(received) <= number:
                    time.sleep(0.001)
            loop.call_soon_threadsafe(ended.set)

        await asyncio.sleep(0)
        nonlocal rounds
        rounds = 0
        threading.Thread(target=peer).start()
        await ended.wait()

    polled.run(steps)
    assert received == [bytes((number,)) for number in range(20)]
    assert rounds < 10
    assert polled.waits >= 20


def test_a_call_or_a_timer_of_a_callback_is_not_delayed(polled: Polled) -> None:
    """Nothing else happens, and no other timer is set: without a return the loop would sleep."""

    async def steps() -> list[str]:
        loop, seen, ended = asyncio.get_running_loop(), list[str](), asyncio.Event()

        def on_readable() -> None:
            if polled.ours.recv(1) == b"a":
                loop.call_soon(seen.append, "call")
                loop.call_later(0.01, polled.peer.send, b"b")
            else:
                ended.set()  # a future of the loop, whose callbacks are calls

        polled.poller.add_reader(polled.ours.fileno(), on_readable)
        polled.peer.send(b"a")
        await ended.wait()
        return seen

    assert polled.loop.run_until_complete(steps()) == ["call"]


def test_timers_fire_while_a_socket_is_always_ready(polled: Polled) -> None:
    async def steps() -> int:
        count = 0

        def on_writable() -> None:
            nonlocal count
            count += 1

        polled.poller.add_writer(polled.ours.fileno(), on_writable)
        await asyncio.sleep(0.02)
        polled.poller.remove_writer(polled.ours.fileno())
        return count

    assert polled.run(steps) >= 1


def test_calls_come_after_the_sockets_that_are_ready(polled: Polled) -> None:
    """So each connection has its turn. A call may make another one, which comes in the next round,
    and timers are not delayed by them.
    """
    seen: list[str] = []

    def again() -> None:
        seen.append("call")
        polled.poller.call_soon(again)

    def on_readable() -> None:
        seen.append(polled.ours.recv(1).decode())

    async def steps() -> None:
        polled.poller.add_reader(polled.ours.fileno(), on_readable)
        polled.peer.send(b"x")
        polled.poller.call_soon(again)
        await asyncio.sleep(0.01)

    polled.run(steps)
    assert seen[:2] == ["x", "call"]
    assert len(seen) > 3


def test_an_exception_of_a_call_does_not_end_the_others(polled: Polled) -> None:
    seen: list[str] = []

    async def steps() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: seen.append(str(context["exception"]))
        )
        polled.poller.call_soon(lambda: {}["missing"])
        polled.poller.call_soon(lambda: seen.append("called"))
        await asyncio.sleep(0.01)

    polled.run(steps)
    assert seen == ["'missing'", "called"]


def test_timers_of_the_poller_are_called_in_time_and_unless_cancelled(polled: Polled) -> None:
    """Also one that a callback sets while `select` waits for a later one, and after a fault. The
    time advances only while the selector waits.
    """
    poller, seen, now_s = polled.poller, list[tuple[str, float]](), 100.0
    wait = Poller.wait

    def virtual(timeout: float | None) -> Any:
        nonlocal now_s
        rows = wait(poller, 0)
        if not rows:
            assert timeout is not None and timeout >= 0
            now_s += timeout
        return rows

    def note(name: str) -> Callable[[], None]:
        return lambda: seen.append((name, round(now_s - 100, 3)))

    def fails() -> None:
        note("fails")()
        raise ValueError

    def on_readable() -> None:
        polled.ours.recv(1)
        poller.call_later(5, note("earlier"))

    async def steps() -> None:
        nonlocal now_s
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        poller.wait, poller.clock = virtual, lambda: now_s  # type: ignore[method-assign]
        poller.call_later(30, note("last"))
        poller.call_later(20, fails)
        poller.call_later(10, note("cancelled")).cancel()
        poller.call_later(60, note("later"))
        poller.add_reader(polled.ours.fileno(), on_readable)
        polled.peer.send(b"x")
        assert poller.select(50) == []
        now_s += 20  # the last timer is late before the next wait begins
        assert poller.select(1) == []
        poller.clock = time.monotonic

    polled.loop.run_until_complete(steps())
    assert seen == [("earlier", 5), ("fails", 20), ("last", 30), ("later", 70)]


def test_a_socket_that_a_callback_removes_is_not_called(polled: Polled) -> None:
    """Both sockets are ready in one wait, and whichever is called first removes the other."""
    other, other_peer = socket.socketpair()
    called: list[socket.socket] = []

    def callback(mine: socket.socket, its: socket.socket) -> Callable[[], None]:
        def on_readable() -> None:
            called.append(mine)
            mine.recv(1)
            polled.poller.remove_reader(its.fileno())
            its.close()

        return on_readable

    async def steps() -> None:
        for mine, its in ((polled.ours, other), (other, polled.ours)):
            polled.poller.add_reader(mine.fileno(), callback(mine, its))
        polled.peer.send(b"x")
        other_peer.send(b"x")
        await asyncio.sleep(0.01)

    polled.run(steps)
    assert len(called) == 1
    polled.poller.remove_reader(called[0].fileno())
    other.close()
    other_peer.close()


def test_reading_and_writing_are_watched_separately(polled: Polled) -> None:
    fd, seen, written = polled.ours.fileno(), list[str](), asyncio.Event()

    def on_writable() -> None:
        seen.append("write")
        polled.poller.remove_writer(fd)
        written.set()

    def on_readable() -> None:
        polled.ours.recv(1)
        seen.append("read")
        polled.poller.add_writer(fd, on_writable)

    async def steps() -> None:
        polled.poller.add_reader(fd, on_readable)
        for _ in range(2):
            written.clear()
            polled.peer.send(b"x")
            await written.wait()
        polled.poller.remove_reader(fd)
        polled.peer.send(b"x")
        await asyncio.sleep(0.01)

    polled.run(steps)
    assert seen == ["read", "write"] * 2
    assert fd not in polled.poller.get_map()


def test_an_exception_of_a_callback_goes_to_the_loops_handler(polled: Polled) -> None:
    faults: list[Any] = []

    def fails() -> None:
        polled.ours.recv(1)
        raise ValueError("a fault")

    async def steps() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        polled.poller.add_reader(polled.ours.fileno(), fails)
        polled.peer.send(b"x")
        await asyncio.sleep(0.01)
        polled.peer.send(b"x")
        await asyncio.sleep(0.01)

    polled.run(steps)
    assert [repr(fault["exception"]) for fault in faults] == ["ValueError('a fault')"] * 2
