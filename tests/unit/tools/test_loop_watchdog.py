"""The watchdog of the event loop (helpers/watched_daemon.py) reports the faults that it is meant to
find.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers import loop_watchdog, watched_daemon
from helpers.core_host import CoreHost
from helpers.our_messages import request_frame
from helpers.watched_daemon import LoopWatch

from barnabas.broker.rim.poller import PolledLoop, Poller
from barnabas.protocol.messages.api_versions import ApiVersionsRequest

BOUND_MS = 20.0


class Watched:
    """An event loop with a watchdog, in this thread. faults: the texts that the watchdog
    reported.
    """

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.watch = LoopWatch(BOUND_MS, self.faults.append)
        self.take_away = watched_daemon.watch_thread(self.watch)
        self.watch.is_on = True

    def run(self, *callbacks: Callable[[], object]) -> None:
        """Run the callbacks in the event loop, one after the other."""

        async def serve() -> None:
            for callback in callbacks:
                asyncio.get_running_loop().call_soon(callback)
                await asyncio.sleep(0)
            await asyncio.sleep(0)

        asyncio.run(serve())

    def hog(self) -> None:
        """Use CPU time until the second thread, which may have to wait for a core, has recorded
        this stack.
        """
        use_cpu(10 * BOUND_MS)
        deadline = time.monotonic() + 20
        while not self.watch._stacks and time.monotonic() < deadline:
            use_cpu(BOUND_MS)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """A watch that takes this machine for a desktop machine, however slow it is at the moment, and
    that no collection of the objects of earlier tests disturbs.
    """
    monkeypatch.setattr(watched_daemon, "_slowness", lambda: 1.0)
    gc.freeze()
    under_watch = Watched()
    yield under_watch
    under_watch.take_away()


def use_cpu(ms: float) -> None:
    """Use CPU time in this thread, for this number of milliseconds."""
    end_ns = time.thread_time_ns() + int(ms * 1e6)
    while time.thread_time_ns() < end_ns:
        pass


def hog() -> None:
    use_cpu(10 * BOUND_MS)


def test_a_callback_above_the_bound_is_a_fault_with_its_name_and_stack(watched: Watched) -> None:
    watched.run(lambda: use_cpu(BOUND_MS / 10), watched.hog, lambda: use_cpu(BOUND_MS / 10))
    [fault] = watched.faults
    assert "the bound is 20 ms" in fault
    assert "callback: <bound method Watched.hog of " in fault
    assert "in hog\n" in fault.partition("stack:")[2]
    assert "in use_cpu\n" in fault


@pytest.mark.parametrize("kind", ["socket", "call", "timer"])
def test_a_callback_of_the_selector_is_watched(watched: Watched, kind: str) -> None:
    """The daemon's selector calls clients' sockets and the broker's timer, without asyncio."""
    poller = Poller()
    loop = PolledLoop(poller)
    ours, peer = socket.socketpair()
    if kind == "call":
        poller.call_soon(watched.hog)
    elif kind == "timer":
        poller.call_later(0, watched.hog)
        poller.call_later(0, watched.hog).cancel()
    else:
        poller.add_reader(ours.fileno(), lambda: (watched.hog(), ours.recv(1)))
        peer.send(b"x")
    loop.run_until_complete(asyncio.sleep(0.001))
    loop.close()
    ours.close()
    peer.close()
    [fault] = watched.faults
    assert "in hog\n" in fault.partition("stack:")[2]


def test_a_callback_that_waits_uses_no_cpu(watched: Watched) -> None:
    watched.run(lambda: time.sleep(3 * BOUND_MS / 1000))
    assert watched.faults == []


def test_many_short_callbacks_are_no_fault(watched: Watched) -> None:
    watched.run(*[lambda: use_cpu(BOUND_MS / 10)] * 30)
    assert watched.faults == []


def test_a_fault_names_the_requests_of_its_callback(watched: Watched, tmp_path: Path) -> None:
    host = CoreHost(tmp_path)
    client = host.connect(1)

    def serve() -> None:
        host.call(client, ApiVersionsRequest(), 0)

    def serve_long() -> None:
        serve()
        hog()

    serve()  # loads the handler
    watched.run(serve, serve_long)
    [fault] = watched.faults
    assert "requests: 1, the longest: ApiVersions 0 of " in fault


def test_work_that_the_servers_timer_is_too_late_for_is_a_fault(
    watched: Watched, tmp_path: Path
) -> None:
    """An annex has changed the core between two inputs, and has not set the timer."""
    host = CoreHost(tmp_path)
    client = host.connect(1)
    host.call(client, ApiVersionsRequest(), 0)

    def ask() -> None:
        frame = request_frame(ApiVersionsRequest(), 0, 1)
        host.broker.on_frame(client, memoryview(bytearray(frame)), host.event_ms())

    host.broker.on_timer_set()
    ask()
    assert watched.faults == []
    host.broker.on_timer_set()
    host.broker.logs.log_dir.changed_starts.add(("t", 0))
    ask()
    [fault] = watched.faults
    assert fault.endswith("and there is work at 0")


def collect_much() -> None:
    """Run a long garbage collection, over a million containers."""
    gc.disable()
    rows = [[number] for number in range(1_000_000)]
    gc.collect()
    gc.enable()
    del rows


def test_a_collection_of_garbage_counts_for_its_callback(watched: Watched) -> None:
    watched.run(collect_much)
    [fault] = watched.faults
    assert "a collection of garbage of generation 2 used " in fault


def test_a_long_collection_in_another_thread_is_a_fault(watched: Watched) -> None:
    thread = threading.Thread(target=collect_much, name="busy")
    thread.start()
    thread.join()
    [fault] = watched.faults
    assert "of CPU time in thread busy" in fault


@pytest.mark.parametrize("sync", [os.fsync, os.fdatasync])
def test_a_sync_on_the_loops_thread_is_a_fault(
    watched: Watched, tmp_path: Path, sync: Callable[[int], None]
) -> None:
    name = sync.__name__

    def flush() -> None:
        with open(tmp_path / "file", "wb") as file:
            getattr(os, name)(file.fileno())

    watched.run(flush, flush)
    [fault] = watched.faults  # a calling line is reported only once
    assert fault.startswith(f"the event loop's thread called os.{name}\n")
    assert "in flush\n" in fault


def test_another_thread_may_wait_for_the_disk(watched: Watched, tmp_path: Path) -> None:
    def flush() -> None:
        with open(tmp_path / "file", "wb") as file:
            os.fsync(file.fileno())

    thread = threading.Thread(target=flush)
    thread.start()
    thread.join()
    assert watched.faults == []


def imports(name: str) -> None:
    sys.modules.pop(name, None)
    importlib.import_module(name)


def test_a_module_that_the_loops_thread_imports_is_a_fault(watched: Watched) -> None:
    watched.run(lambda: imports("colorsys"), lambda: importlib.import_module("colorsys"))
    [fault] = watched.faults
    assert fault.startswith("the event loop's thread imported colorsys\n")
    assert "in imports\n" in fault


def test_another_thread_may_import(watched: Watched) -> None:
    thread = threading.Thread(target=imports, args=("colorsys",))
    watched.run(thread.start)
    thread.join()
    assert watched.faults == []


def test_nothing_is_a_fault_during_the_start_and_the_stop(watched: Watched, tmp_path: Path) -> None:
    def flush() -> None:
        with open(tmp_path / "file", "wb") as file:
            os.fsync(file.fileno())

    def end_start() -> None:
        hog()
        watched.watch.is_on = True

    def begin_stop() -> None:
        watched.watch.is_on = False
        hog()

    watched.watch.is_on = False
    watched.run(hog, flush, end_start, begin_stop)
    assert watched.faults == []


def test_take_faults_returns_each_fault_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(watched_daemon.FAULTS_DIRECTORY, str(tmp_path))
    report = watched_daemon.file_reporter(str(tmp_path), "1: start")
    report("one")
    report("two")
    assert loop_watchdog.take_faults() == [
        "one\nprocess:  1: start\n",
        "two\nprocess:  1: start\n",
    ]
    assert loop_watchdog.take_faults() == []
