"""The loop whose selector calls the callbacks of clients' sockets directly."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
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

        def counted(timeout: float) -> Any:
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
        polled.poller.call_soon(lambda: dict[str, int]()["missing"])
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


def test_a_cancellation_in_a_callback_does_not_end_the_loop(polled: Polled) -> None:
    """As in a callback of asyncio: only exceptions that end the process leave it."""
    faults: list[Any] = []

    def cancelled() -> None:
        raise asyncio.CancelledError

    def fails() -> None:
        polled.ours.recv(1)
        cancelled()

    async def steps() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        polled.poller.call_soon(cancelled)
        polled.poller.add_reader(polled.ours.fileno(), fails)
        polled.peer.send(b"x")
        await asyncio.sleep(0.01)

    polled.run(steps)
    assert [type(fault["exception"]) for fault in faults] == [asyncio.CancelledError] * 2


def test_a_call_that_ends_the_process_leaves_the_other_calls(polled: Polled) -> None:
    """The loop runs once more, to stop cleanly."""
    called: list[str] = []

    def ends() -> None:
        raise KeyboardInterrupt

    async def steps() -> None:
        await asyncio.sleep(0.001)

    polled.poller.call_soon(ends)
    polled.poller.call_soon(lambda: called.append("call"))
    with pytest.raises(KeyboardInterrupt):
        polled.loop.run_forever()
    polled.loop.run_until_complete(steps())
    assert called == ["call"]


def test_every_socket_that_is_ready_is_called_in_one_round(
    polled: Polled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late tick waits some rounds, so that requests which are received already come before the
    timeouts that they prevent. There may be more of them than a wait has room for.
    """
    monkeypatch.setattr(poller, "MOST_EVENTS", 2)
    pairs = [socket.socketpair() for _ in range(7)]
    called: list[int] = []
    for number, (ours, peer) in enumerate(pairs):
        polled.poller.add_reader(ours.fileno(), partial(called.append, number))
        peer.send(b"x")
    polled.poller.select(0)
    assert sorted(called) == list(range(7))
    for ours, peer in pairs:
        polled.poller.remove_reader(ours.fileno())
        ours.close()
        peer.close()


def test_a_reader_of_the_loop_that_a_callback_replaces_is_kept(polled: Polled) -> None:
    """The callback comes while the loop's own socket is reported as ready: that report is for the
    former reader, and must not end the new one.
    """
    pairs = [socket.socketpair() for _ in range(2)]
    received: list[bytes] = []

    async def steps() -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def receive(ours: socket.socket) -> None:
            received.append(ours.recv(1))
            if len(received) == 2:
                ended.set()

        for ours, _ in pairs:
            ours.setblocking(False)
            loop.add_reader(ours, lambda: received.append(b"the former reader"))

        def on_readable() -> None:
            polled.ours.recv(1)
            for ours, _ in pairs:
                loop.remove_reader(ours)
                loop.add_reader(ours, receive, ours)

        polled.poller.add_reader(polled.ours.fileno(), on_readable)
        for peer in (pairs[0][1], polled.peer, pairs[1][1]):  # it is between them
            peer.send(b"x")
        await ended.wait()
        for ours, _ in pairs:
            loop.remove_reader(ours)

    polled.run(steps)
    assert received == [b"x"] * 2
    for pair in pairs:
        for sock in pair:
            sock.close()


def test_a_number_of_a_socket_that_is_used_again_is_watched_by_its_new_owner(
    polled: Polled,
) -> None:
    """A callback closes a socket of the loop that is reported as ready, and the poller gets another
    one with the same number.
    """
    (of_loop, of_loop_peer), (new, new_peer) = socket.socketpair(), socket.socketpair()
    new.setblocking(False)
    received: list[bytes] = []
    number = of_loop.fileno()

    async def steps() -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(number, lambda: received.append(b"the former reader"))

        def receive() -> None:
            received.append(os.read(number, 1))
            ended.set()

        def on_readable() -> None:
            polled.ours.recv(1)
            loop.remove_reader(number)
            os.dup2(new.fileno(), number)
            polled.poller.add_reader(number, receive)

        polled.poller.add_reader(polled.ours.fileno(), on_readable)
        of_loop_peer.send(b"x")
        polled.peer.send(b"x")
        await asyncio.sleep(0.01)
        assert received == []
        new_peer.send(b"y")
        await ended.wait()
        polled.poller.remove_reader(number)

    polled.run(steps)
    assert received == [b"y"]
    for sock in (of_loop, of_loop_peer, new, new_peer):
        sock.close()


@pytest.mark.parametrize("watched", ["nothing", "the reader", "the writer"])
def test_a_connection_that_is_broken_keeps_the_loop_busy_only_if_it_is_watched(
    polled: Polled, watched: str
) -> None:
    """So no client can do so whose requests are not read for now."""
    fd, called = polled.ours.fileno(), list[str]()

    def end(name: str) -> None:
        called.append(name)
        polled.poller.remove_reader(fd)
        polled.poller.remove_writer(fd)

    async def steps() -> None:
        with contextlib.suppress(BlockingIOError):
            while polled.ours.send(bytes(65536)):
                pass  # until it accepts no more
        polled.poller.add_reader(fd, lambda: end("the reader"))
        polled.poller.add_writer(fd, lambda: end("the writer"))
        if watched != "the reader":
            polled.poller.remove_reader(fd)
        if watched != "the writer":
            polled.poller.remove_writer(fd)
        polled.peer.close()
        await asyncio.sleep(0.02)

    polled.run(steps)
    assert called == [] if watched == "nothing" else [watched]
    assert polled.waits < 20


def test_sockets_can_be_removed_after_the_end_of_the_loop(polled: Polled) -> None:
    """As from a loop of asyncio that is closed."""
    polled.poller.add_reader(polled.ours.fileno(), lambda: None)
    polled.poller.add_writer(polled.ours.fileno(), lambda: None)
    polled.loop.close()
    polled.poller.remove_reader(polled.ours.fileno())
    polled.poller.remove_writer(polled.ours.fileno())


@pytest.mark.parametrize("is_busy", [False, True])
def test_signals_threads_and_processes_are_not_delayed(polled: Polled, is_busy: bool) -> None:
    """Whether the loop sleeps without a timer, or a client's socket is always ready."""
    seen: list[str] = []

    async def steps() -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def on_signal() -> None:
            seen.append("signal")
            ended.set()

        loop.add_signal_handler(signal.SIGUSR1, on_signal)
        if is_busy:
            polled.poller.add_writer(polled.ours.fileno(), lambda: None)
        await asyncio.to_thread(seen.append, "thread")
        threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        await ended.wait()
        loop.remove_signal_handler(signal.SIGUSR1)
        process = await asyncio.create_subprocess_exec(
            "cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate(b"process")
        seen.append(output.decode())
        polled.poller.remove_writer(polled.ours.fileno())

    polled.loop.set_debug(True)
    polled.run(steps)
    assert seen == ["thread", "signal", "process"]


def test_a_task_that_is_cancelled_by_a_callback_ends_at_once(polled: Polled) -> None:
    async def steps() -> str:
        async def waits() -> str:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "cancelled"
            return "?"

        task = asyncio.ensure_future(waits())
        await asyncio.sleep(0)
        polled.poller.add_writer(polled.ours.fileno(), task.cancel)
        seen = await task
        polled.poller.remove_writer(polled.ours.fileno())
        return seen

    assert polled.loop.run_until_complete(steps()) == "cancelled"


@pytest.mark.parametrize("timeout", [0, 0.2, None])
def test_a_timer_that_is_overdue_is_called_at_once(polled: Polled, timeout: float | None) -> None:
    """The loop has called other functions for longer than the timer's time."""
    called: list[float] = []
    now_s = 100.0
    polled.poller.clock = lambda: now_s
    waits: list[float | None] = []
    wait = Poller.wait

    def waited(timeout: float | None) -> Any:
        waits.append(timeout)
        polled.poller.has_calls = True  # so that this `select` ends
        return wait(polled.poller, 0)

    polled.poller.wait = waited  # type: ignore[method-assign]
    polled.poller.call_later(0.001, lambda: called.append(now_s))
    now_s += 0.005
    assert polled.poller.select(timeout) == []
    assert waits == [0]
    assert called == [100.005]


def test_work_in_parts_is_not_interrupted_by_a_wait(polled: Polled) -> None:
    """Each part takes a while, and sets the timer for the next one to the present time."""
    now_s, parts, waits = 100.0, list[float](), list[float | None]()
    polled.poller.clock = lambda: now_s
    wait = Poller.wait

    def waited(timeout: float | None) -> Any:
        waits.append(timeout)
        return wait(polled.poller, 0)

    def part() -> None:
        nonlocal now_s
        now_s += 0.005
        parts.append(now_s)
        if len(parts) < 5:
            polled.poller.call_later(0, part)
        else:
            polled.poller.has_calls = True

    polled.poller.wait = waited  # type: ignore[method-assign]
    polled.poller.call_later(0, part)
    polled.poller.select(60)
    assert len(parts) == 5
    assert set(waits) == {0}


def test_a_timer_that_another_one_cancels_is_not_called(polled: Polled) -> None:
    """Both are due."""
    called: list[str] = []

    def first() -> None:
        called.append("first")
        second.cancel()

    polled.poller.call_later(0, first)
    second = polled.poller.call_later(0, lambda: called.append("second"))
    polled.poller.select(0)
    assert called == ["first"]


def test_a_timer_of_many_days_is_no_timeout_that_the_system_refuses(polled: Polled) -> None:
    polled.poller.call_later(60 * 24 * 3600, lambda: None)
    peer = threading.Timer(0.01, polled.peer.send, (b"x",))
    called: list[bytes] = []

    def on_readable() -> None:
        called.append(polled.ours.recv(1))
        polled.poller.has_calls = True

    polled.poller.add_reader(polled.ours.fileno(), on_readable)
    peer.start()
    polled.poller.select(None)
    assert called == [b"x"]
    peer.join()


class Course:
    """Pairs of sockets, each watched by the poller, by the loop, or by neither. Whatever is called
    receives, and does a few things at random: it sends, moves a socket, closes one and opens
    another one, or calls for more of this later.

    due: the bytes that were sent and not received, by socket. acts_left: the things still to do.
    """

    def __init__(self, polled: Polled, seed: int) -> None:
        self.rng, self.poller, self.loop = random.Random(seed), polled.poller, polled.loop
        self.pairs = [socket.socketpair() for _ in range(6)]
        self.watchers: dict[socket.socket, Any] = dict.fromkeys(ours for ours, _ in self.pairs)
        self.due = dict.fromkeys(self.watchers, 0)
        self.acts_left = 300
        self.is_over = asyncio.Event()

    def watch(self, ours: socket.socket, watcher: Any) -> None:
        """Let the watcher watch a socket instead of the present one."""
        present = self.watchers[ours]
        if present is not None:
            present.remove_reader(ours.fileno())
        self.watchers[ours] = watcher
        if watcher is not None:
            watcher.add_reader(ours.fileno(), partial(self.receive, ours))

    def receive(self, ours: socket.socket) -> None:
        """Receive, as the callback of a socket; then act."""
        with contextlib.suppress(BlockingIOError):  # it took over the number of another socket
            self.due[ours] -= len(ours.recv(2))
        self.act()

    def act(self) -> None:
        """Do up to three things, or see whether everything has been received."""
        if self.is_over.is_set():
            return
        for _ in range(min(self.rng.randrange(4), self.acts_left)):
            self.acts_left -= 1
            self.step()
        if self.acts_left <= 0:
            self.acts_left = 0
            for ours, watcher in self.watchers.items():
                if watcher is None:
                    self.watch(ours, self.poller)
            if not any(self.due.values()):
                self.is_over.set()
        elif not any(self.due[ours] for ours, watcher in self.watchers.items() if watcher):
            self.loop.call_soon(self.act)  # nothing else would call it

    def step(self) -> None:
        """Do one thing."""
        at = self.rng.randrange(len(self.pairs))
        ours, peer = self.pairs[at]
        either: Any = self.rng.choice([self.poller, self.loop])
        match self.rng.randrange(8):
            case 0 | 1 | 2:
                peer.send(b"x")
                self.due[ours] += 1
            case 3 | 4:
                self.watch(ours, self.rng.choice([either, None]))
            case 5:
                self.watch(ours, None)
                del self.watchers[ours], self.due[ours]
                ours.close()
                peer.close()
                self.pairs[at] = ours, peer = socket.socketpair()
                ours.setblocking(False)
                self.watchers[ours], self.due[ours] = None, 0
                self.watch(ours, either)
            case 6:
                either.call_soon(self.act)
            case _:
                either.call_later(0.0005, self.act)


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_whatever_callbacks_do(polled: Polled, seed: int) -> None:
    faults: list[Any] = []

    async def steps() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: faults.append(context))
        course = Course(polled, seed)
        for ours, _ in course.pairs:
            ours.setblocking(False)
        loop.call_soon(course.act)
        await course.is_over.wait()
        for pair in course.pairs:
            course.watch(pair[0], None)
            for sock in pair:
                sock.close()

    polled.run(steps)
    assert faults == []
