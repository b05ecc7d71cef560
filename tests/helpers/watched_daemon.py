"""The daemon with a watch on its event loop: `python -P watched_daemon.py start …`.

It is the same program as `python -m barnabas`, but four functions of the standard library and
six of the broker are wrapped before it starts. From the end of the start to the beginning of the
stop, each of these events writes a fault, which is a text file in the directory FAULTS_DIRECTORY:

    a callback of the loop, or of its selector, uses more CPU time of its thread than BOUND_MS
    a garbage collection does so, in any thread (all other threads wait for it)
    the loop's thread calls fsync, fdatasync or sync
    the loop's thread imports a module, which the worker should do before the first request for it
    the core has work earlier than the server's timer, and believes that the timer is early enough

The bound is in CPU time of a desktop machine (see slowness.py); `loop_watchdog.py` doubles it on
CI. A second thread records the loop's stack when a callback has used half of the bound.

Of the tests' modules, this one imports only slowness.py, so that it runs wherever the daemon does.
"""

from __future__ import annotations

import gc
import importlib.util
import itertools
import os
import re
import sys
import threading
import time
import traceback
from asyncio import events
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

FAULTS_DIRECTORY = "BARNABAS_WATCHDOG_FAULTS"
BOUND_MS = "BARNABAS_WATCHDOG_BOUND_MS"
KNOWN_SYNCS = {
    # A change of topics or settings is one frame. It must be durable before it takes effect or
    # another request sees it.
    ("broker/logs/metadata.py", "_append"): "a change of topics or settings",
    # The coordinator forgets the transaction after the Complete record, which is appended next.
    (
        "broker/transactions/unwritten_markers.py",
        "_write",
    ): "a transaction ended, with a partition off line",
    # The raised start of a log must be durable before another request can see it.
    ("storage/directory/offset_checkpoints.py", "write"): "log starts, which DeleteRecords or "
    "retention raised",
    # The next steps rename the segments of the manifest, and delete the segments that they replace.
    ("storage/cleaning/segment_swap.py", "_manifest_after"): "a compacted segment takes its place",
    # No batch may have an epoch that a start after a power loss could assign again.
    (
        "storage/directory/log_manager.py",
        "begin_leader_epoch",
    ): "of several brokers another one leads",
}
"""The functions that wait for the disk on the loop's thread, by file and function, and when they
do: one or two flushes of a small file, independent of the broker's size, on which the next step of
the same call depends. Any other wait is a fault.
"""
SMALL_IMPORTS = ("encodings.",)  # small modules
OF_TEST_CONTROL = "/barnabas/test_control/"  # only daemons that tests start have the test control
LOOK_INTERVAL_S = 0.01
MOST_FAULTS = 50  # of one process
MOST_STACKS = 3  # of one callback
NS_PER_MS = 1_000_000


class LoopWatch:
    """Watches the callbacks of a thread's event loop, and reports faults, if `is_on` is set.

    Takes: bound_ms, the limit of CPU time; report, a function that is called with the text of each
    fault.
    """

    def __init__(self, bound_ms: float, report: Callable[[str], object]) -> None:
        self._bound_ms, self._bound_ns = bound_ms, int(bound_ms * NS_PER_MS)
        self._report = report
        self._thread = threading.get_ident()
        self._names = itertools.count()
        self._deadline_ms = 0  # of the server's timer
        self._number = 0  # the number of the running callback, or 0 if none is running
        self._began_ns = 0
        self._requests: list[tuple[int, int, int, int]] = []
        self._collections: list[str] = []
        self._stacks: list[str] = []
        self._collection_began_ns: dict[int, int] = {}
        self._synced: set[str] = set()
        self._is_closed = False
        self.is_on = False

    # --- callbacks -------------------------------------------------------------------------------

    def run(self, handle: Any, run: Callable[[Any], object]) -> None:
        """Run one callback of the loop. `run` is the loop's own function that runs a handle."""
        if threading.get_ident() != self._thread or self._number:
            run(handle)
            return
        was_on = self.is_on
        self._requests.clear()
        self._collections.clear()
        self._stacks = []
        # read before the callback runs, since it may cancel its own handle
        callback = handle._callback
        self._began_ns = time.thread_time_ns()
        self._number = next(self._names) + 1
        try:
            run(handle)
        finally:
            took_ns = time.thread_time_ns() - self._began_ns
            self._number = 0
            if self._is_long(took_ns) and was_on and self.is_on:
                self._report(self._long_callback(repr(callback), took_ns))

    def _is_long(self, took_ns: int) -> bool:
        """Whether a duration, converted to a desktop machine (see slowness.py), exceeds the
        limit.
        """
        return took_ns > self._bound_ns and took_ns > self._bound_ns * _slowness()

    def _long_callback(self, callback: str, took_ns: int) -> str:
        """The text of a fault: callback, CPU time, requests, garbage collections and stacks."""
        lines = [
            f"one callback of the event loop used {_ms(took_ns)} of CPU time; the bound is "
            f"{self._bound_ms:g} ms",
            f"callback: {callback}",
        ]
        if self._requests:
            lines.append(f"requests: {_requests_text(self._requests)}")
        lines += self._collections
        lines += [f"stack:\n{stack}" for stack in self._stacks]
        return "\n".join(lines)

    def on_request(
        self,
        handle: Callable[[Any, int, Any, int], Any],
        broker: Any,
        connection_id: int,
        frame: Any,
        now_ms: int,
    ) -> Any:
        """Let the core handle a request, and record which request it was. Gives: the response, if
        the core returns it.
        """
        self._judge_timer(broker)
        key, version = int.from_bytes(frame[0:2]), int.from_bytes(frame[2:4])
        size = len(frame)
        began_ns = time.thread_time_ns()
        try:
            return handle(broker, connection_id, frame, now_ms)
        finally:
            self._requests.append((key, version, size, time.thread_time_ns() - began_ns))

    # --- the broker's timer ----------------------------------------------------------------------

    def on_timer_set(self, broker: Any) -> None:
        """Record the deadline to which the server has set its timer."""
        self._deadline_ms = broker.next_deadline_ms()

    def _judge_timer(self, broker: Any) -> None:
        """Report that the core believes that the timer is early enough, and it is not: something
        outside of its inputs has given it work, and has not carried out the outbox.
        """
        if self.is_on and broker.timer_is_set:
            deadline_ms = broker.next_deadline_ms()
            if deadline_ms < self._deadline_ms:
                self._report(
                    f"the timer is set to {self._deadline_ms}, and there is work at {deadline_ms}"
                )

    # --- garbage ---------------------------------------------------------------------------------

    def on_garbage(self, phase: str, info: dict[str, int]) -> None:
        """Handle the start or the end of a garbage collection, as a hook of `gc.callbacks`."""
        thread = threading.get_ident()
        if phase == "start":
            self._collection_began_ns[thread] = time.thread_time_ns()
            return
        began_ns = self._collection_began_ns.pop(thread, None)
        if began_ns is None:
            return
        took_ns = time.thread_time_ns() - began_ns
        text = (
            f"a collection of garbage of generation {info['generation']} used {_ms(took_ns)} of "
            f"CPU time in thread {threading.current_thread().name}"
        )
        if thread == self._thread and self._number:
            self._collections.append(text)  # its time counts as part of the callback's time
        elif self._is_long(took_ns) and self.is_on:
            self._report(f"{text}; the bound is {self._bound_ms:g} ms")

    # --- the disk --------------------------------------------------------------------------------

    def on_sync(self, name: str) -> None:
        """Report the call of a function of `os` that waits for the disk, if it is on the loop's
        thread.
        """
        if not (self.is_on and self._number) or threading.get_ident() != self._thread:
            return
        stack = _stack_text(sys._getframe(2))
        if _is_in(KNOWN_SYNCS, stack):
            return
        if stack not in self._synced:  # each stack is reported once
            self._synced.add(stack)
            self._report(f"the event loop's thread called os.{name}\nstack:\n{stack}")

    # --- modules ---------------------------------------------------------------------------------

    def on_import(self, name: str) -> None:
        """Report the import of a module that is not loaded yet, if it is on the loop's thread."""
        if not (self.is_on and self._number) or threading.get_ident() != self._thread:
            return
        if not name.startswith(SMALL_IMPORTS):
            stack = _stack_text(sys._getframe(2))
            if OF_TEST_CONTROL in stack:
                return
            self._report(f"the event loop's thread imported {name}\nstack:\n{stack}")

    # --- the thread that looks -------------------------------------------------------------------

    def look(self) -> None:
        """Until `close`, record the stack of the running callback as soon as it has used more than
        half of the limit.
        """
        clock = time.pthread_getcpuclockid(self._thread)
        while not self._is_closed:
            time.sleep(LOOK_INTERVAL_S)
            number, stacks = self._number, self._stacks
            if not number or not self.is_on or len(stacks) >= MOST_STACKS:
                continue
            used_ns = time.clock_gettime_ns(clock) - self._began_ns
            if used_ns < self._bound_ns // 2:
                continue
            frame = sys._current_frames().get(self._thread)
            if frame is not None and number == self._number:
                stacks.append(f"  (after {_ms(used_ns)})\n{_stack_text(frame)}")

    def close(self) -> None:
        """End the thread that records stacks."""
        self._is_closed = True


class _Callback:
    """A callback of a socket or timer that the loop's selector calls directly, without a handle."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback = callback

    def run(self) -> None:
        """Call it."""
        self._callback()


class ImportWatch:
    """The first import finder. It finds no module, but reports each name to the watch."""

    def __init__(self, watch: LoopWatch) -> None:
        self._watch = watch

    def find_spec(self, name: str, *_: Any) -> None:
        """Report a module's name to the watch."""
        self._watch.on_import(name)


def _slowness_of_machine() -> Callable[[], float]:
    """`slowness` from slowness.py. It is loaded by its path, since a daemon cannot import it."""
    path = os.path.join(os.path.dirname(__file__), "slowness.py")
    spec = importlib.util.spec_from_file_location("slowness", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.slowness  # type: ignore[no-any-return]


_slowness = _slowness_of_machine()


def _is_in(known: Mapping[tuple[str, str], str], stack: str) -> bool:
    """Whether one of the known functions is in the stack."""
    return any(
        re.search(rf'{re.escape(path)}", line \d+, in {function}\n', stack)
        for path, function in known
    )


def _ms(ns: int) -> str:
    return f"{ns / NS_PER_MS:.1f} ms"


def _requests_text(requests: list[tuple[int, int, int, int]]) -> str:
    """The number of requests, and the five longest ones."""
    from barnabas.protocol.api_table import BY_KEY

    shown = sorted(requests, key=lambda one: -one[3])[:5]
    texts = [
        f"{BY_KEY[key].name if key in BY_KEY else key} {version} of {size} bytes ({_ms(took_ns)})"
        for key, version, size, took_ns in shown
    ]
    return f"{len(requests)}, the longest: {', '.join(texts)}"


def _stack_text(frame: FrameType) -> str:
    """The stack of a callback, the outermost frame first."""
    stack = traceback.extract_stack(frame)
    inner = [at for at, entry in enumerate(stack) if entry.filename == __file__]
    return "".join(traceback.format_list(stack[inner[-1] + 1 if inner else 0 :]))


def watch_thread(watch: LoopWatch) -> Callable[[], None]:
    """Make every loop, the core, the garbage collector and the disk report to the watch. Return a
    function that undoes this.
    """
    from barnabas.broker.core import Broker
    from barnabas.broker.rim.poller import Poller

    run, answer_frame, on_timer_set = events.Handle._run, Broker.answer_frame, Broker.on_timer_set
    names = ("add_reader", "add_writer", "call_soon", "call_later")
    adders = {name: getattr(Poller, name) for name in names}

    def watched_run(handle: Any) -> None:
        watch.run(handle, run)

    def watched_adder(add: Callable[..., Any]) -> Callable[..., Any]:
        def added(poller: Any, *arguments: Any) -> Any:
            *others, callback = arguments
            one = _Callback(callback)
            return add(poller, *others, lambda: watch.run(one, _Callback.run))

        return added

    def watched_frame(broker: Any, connection_id: int, frame: Any, now_ms: int) -> Any:
        return watch.on_request(answer_frame, broker, connection_id, frame, now_ms)

    def watched_on_timer_set(broker: Any) -> None:
        watch.on_timer_set(broker)
        on_timer_set(broker)

    syncs = {name: getattr(os, name) for name in ("fsync", "fdatasync", "sync")}

    def watched_sync(name: str, sync: Callable[..., None]) -> Callable[..., None]:
        def synced(*arguments: int) -> None:
            watch.on_sync(name)
            sync(*arguments)

        return synced

    imports: Any = ImportWatch(watch)

    def take_away() -> None:
        watch.close()
        sys.meta_path.remove(imports)
        gc.callbacks.remove(watch.on_garbage)
        setattr(events.Handle, "_run", run)  # noqa: B010
        setattr(Broker, "answer_frame", answer_frame)  # noqa: B010
        setattr(Broker, "on_timer_set", on_timer_set)  # noqa: B010
        for name, add in adders.items():
            setattr(Poller, name, add)
        for name, sync in syncs.items():
            setattr(os, name, sync)

    setattr(events.Handle, "_run", watched_run)  # noqa: B010
    setattr(Broker, "answer_frame", watched_frame)  # noqa: B010
    setattr(Broker, "on_timer_set", watched_on_timer_set)  # noqa: B010
    for name, add in adders.items():
        setattr(Poller, name, watched_adder(add))
    for name, sync in syncs.items():
        setattr(os, name, watched_sync(name, sync))
    sys.meta_path.insert(0, imports)
    gc.callbacks.append(watch.on_garbage)
    threading.Thread(target=watch.look, name="loop-watch", daemon=True).start()
    return take_away


def file_reporter(directory: str, process: str) -> Callable[[str], None]:
    """A function that writes each fault to a new file. The file gets its name when it is
    complete.
    """
    numbers = itertools.count()

    def report(text: str) -> None:
        number = next(numbers)
        if number < MOST_FAULTS:
            path = os.path.join(directory, f"{os.getpid()}-{number}")
            with open(f"{path}.part", "w", encoding="utf-8") as file:
                file.write(f"{text}\nprocess:  {process}\n")
            os.rename(f"{path}.part", f"{path}.fault")

    return report


def main() -> int:
    """Run the daemon with the watch configured by the environment."""
    from barnabas.daemon import main as daemon
    from barnabas.daemon import serving

    directory = os.environ.get(FAULTS_DIRECTORY)
    if directory:
        process = f"{os.getpid()}: {' '.join(sys.argv[1:])}"
        watch = LoopWatch(float(os.environ.get(BOUND_MS, "50")), file_reporter(directory, process))
        watch_thread(watch)
        serve = serving._until_either

        async def watched_serve(*arguments: Any) -> None:
            watch.is_on = True
            try:
                await serve(*arguments)
            finally:
                watch.is_on = False

        serving._until_either = watched_serve
    return daemon.main()


if __name__ == "__main__":
    sys.exit(main())
