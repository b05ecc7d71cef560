"""The event loop of a broker: its selector calls the connections of clients directly.

For each socket that is ready asyncio makes an entry of a list and a handle, which it calls in a
context in the same round of the loop; then it computes when the next round has to end. That takes
14,000 instructions, as much as half of the core's work for a small request. A socket that is added
to the `Poller` instead has its callback called within `select`, and the wait continues there as
long as the loop has nothing else to do. Timers, threads, signals and all other sockets stay with
asyncio. Only documented functions are used: a loop takes a selector, and calls its `select` once in
each round.
"""

from __future__ import annotations

import asyncio
import os
import select
import selectors
from collections import deque
from collections.abc import Callable
from contextvars import Context
from math import inf
from time import monotonic
from typing import Protocol, TypeVarTuple, Unpack

_Ts = TypeVarTuple("_Ts")
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
# not if the system has epoll and refuses it, as some sandboxes do
HAS_EPOLL = getattr(selectors, "EpollSelector", None) is selectors.DefaultSelector
_IN, _OUT = (select.EPOLLIN, select.EPOLLOUT) if HAS_EPOLL else (1, 4)
LONGEST_WAIT_S = 24 * 3600.0  # the system accepts at most 24 days
MOST_EVENTS = 1024  # the room for the events of a wait; more is made if there are as many


class Sockets(Protocol):
    """What reports that sockets are ready: an event loop, or a `Poller`."""

    def add_reader(self, fd: int, callback: Callable[[], object]) -> object:
        """Call the function whenever bytes were received, or the peer has closed."""

    def remove_reader(self, fd: int) -> object:
        """Call it no longer."""

    def add_writer(self, fd: int, callback: Callable[[], object]) -> object:
        """Call the function whenever the socket accepts bytes."""

    def remove_writer(self, fd: int) -> object:
        """Call it no longer."""

    def call_soon(self, callback: Callable[[], object]) -> object:
        """Call the function once, after all sockets that are ready now have had their turn."""

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        """Call the function once, after a time in seconds."""


class Timer(Protocol):
    """A call that will be made."""

    def cancel(self) -> object:
        """Do not make it."""


class _Watch:
    """The callbacks of one socket of the poller; None for what is not watched."""

    __slots__ = ("reader", "writer")

    def __init__(self) -> None:
        self.reader: Callable[[], object] | None = None
        self.writer: Callable[[], object] | None = None


class _Timer:
    """A call at a time of the poller's clock, until it is cancelled."""

    __slots__ = ("_poller", "at_s", "callback")

    def __init__(self, poller: Poller, at_s: float, callback: Callable[[], object]) -> None:
        self._poller, self.at_s, self.callback = poller, at_s, callback

    def cancel(self) -> None:
        """Do not make the call."""
        self._poller.drop_timer(self)


class Poller(selectors.DefaultSelector):
    """The selector of a `PolledLoop`, with sockets of its own.

    The methods for sockets and calls are those of a loop. A socket must not be watched by both.
    clock: the steady time in seconds, by which timers are due. has_calls: whether the loop has got
    a call or a timer since `select` began, so that `select` has to return.
    """

    def __init__(self) -> None:
        super().__init__()
        # The selector of the system has the same one. Where there is no epoll, it waits itself.
        self._epoll = select.epoll.fromfd(os.dup(self.fileno())) if HAS_EPOLL else None
        self._watches: dict[int, _Watch] = {}
        self._soon: deque[Callable[[], object]] = deque()
        self._timers: list[_Timer] = []
        self._timer_s = inf  # when the first of them is due
        self.clock: Callable[[], float] = monotonic
        self.has_calls = False

    def close(self) -> None:
        """Close the selector, as every loop does at its end. Sockets may be removed after it."""
        self._watches.clear()
        self._soon.clear()
        self._timers.clear()
        if self._epoll is not None:
            self._epoll.close()
        super().close()

    # --- sockets ---------------------------------------------------------------------------------

    def add_reader(self, fd: int, callback: Callable[[], object]) -> None:
        """Call the function within `select` whenever bytes were received."""
        watch = self._watch(fd)
        watch.reader = callback
        self._set_events(fd, watch)

    def remove_reader(self, fd: int) -> None:
        """Call no function for received bytes any more."""
        watch = self._watches.get(fd)
        if watch is not None:
            watch.reader = None
            self._set_events(fd, watch)

    def add_writer(self, fd: int, callback: Callable[[], object]) -> None:
        """Call the function within `select` whenever the socket accepts bytes."""
        watch = self._watch(fd)
        watch.writer = callback
        self._set_events(fd, watch)

    def remove_writer(self, fd: int) -> None:
        """Call no function for accepted bytes any more."""
        watch = self._watches.get(fd)
        if watch is not None:
            watch.writer = None
            self._set_events(fd, watch)

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Call the function within `select`, after the callbacks of the sockets that are ready."""
        self._soon.append(callback)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> _Timer:
        """Call the function within `select` after a time. There are few such timers."""
        timer = _Timer(self, self.clock() + delay_s, callback)
        self._timers.append(timer)
        self._timer_s = min(self._timer_s, timer.at_s)
        return timer

    def drop_timer(self, timer: _Timer) -> None:
        """Do not make the call of a timer, if it is not made yet."""
        if timer in self._timers:
            self._timers.remove(timer)
            self._timer_s = min([timer.at_s for timer in self._timers], default=inf)

    def _watch(self, fd: int) -> _Watch:
        watch = self._watches.get(fd)
        if watch is None:
            watch = self._watches[fd] = _Watch()
        return watch

    def _set_events(self, fd: int, watch: _Watch) -> None:
        """Let the system report what has a callback."""
        events = (_READ if watch.reader else 0) | (_WRITE if watch.writer else 0)
        is_registered = fd in self.get_map()
        if not events:
            del self._watches[fd]
            if is_registered:
                self.unregister(fd)
        elif is_registered:
            self.modify(fd, events, watch)
        else:
            self.register(fd, events, watch)

    # --- the wait --------------------------------------------------------------------------------

    def wait(self, timeout: float) -> list[tuple[int, int]]:
        """Wait once. Gives: all ready sockets with their events, as epoll has them."""
        if self._epoll is None:
            rows = super().select(timeout)
            return [
                (key.fd, (_IN if events & _READ else 0) | (_OUT if events & _WRITE else 0))
                for key, events in rows
            ]
        try:
            ready = self._epoll.poll(timeout, MOST_EVENTS)
            if len(ready) == MOST_EVENTS:  # a late tick relies on it that all of them are read
                ready = self._epoll.poll(0, len(self.get_map()))
            return ready
        except InterruptedError:
            return []

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for what the loop has to do, and meanwhile call the callbacks of sockets.

        A callback that was removed by another one is not called. An exception of a callback is
        passed to the loop's exception handler, as asyncio does. Those that end the process are
        raised, and the calls after it wait for the next `select`.
        """
        self.has_calls = False
        now_s = self.clock()
        ends_s = now_s + (LONGEST_WAIT_S if timeout is None else timeout)
        watches, soon = self._watches, self._soon
        others: list[tuple[int, int]] = []
        while True:
            soon_count = len(soon)  # those that are added meanwhile come after the next wait
            until_s = ends_s if ends_s < self._timer_s else self._timer_s
            # a negative timeout would have no end
            timeout = 0 if soon_count or until_s <= now_s else until_s - now_s
            for fd, events in self.wait(timeout):
                watch = watches.get(fd)
                if watch is None:
                    others.append((fd, events))
                    continue
                try:
                    # an error or the end of a connection is reported to both
                    if events & ~_OUT and (reader := watch.reader) is not None:
                        reader()
                    if events & ~_IN and (writer := watch.writer) is not None:
                        writer()
                except BaseException as error:
                    _report(error)
            if soon_count:
                for _ in range(soon_count):
                    _call(soon.popleft())
            now_s = self.clock()
            if now_s >= self._timer_s:
                self._run_timers(now_s)
                now_s = self.clock()  # a timer that is set meanwhile may be due
            if others or self.has_calls or now_s >= ends_s:
                return self._rows(others) if others else []

    def _run_timers(self, now_s: float) -> None:
        """Call the functions of the timers that are due, unless one of them cancels another."""
        for timer in [timer for timer in self._timers if timer.at_s <= now_s]:
            if timer in self._timers:
                self.drop_timer(timer)
                _call(timer.callback)

    def _rows(self, others: list[tuple[int, int]]) -> list[tuple[selectors.SelectorKey, int]]:
        """The rows of sockets that the loop watches, as every selector returns them.

        They are looked up after the callbacks. If one of these has replaced a callback of the loop,
        an older row would let the loop remove the present one.
        """
        rows = []
        for fd, events in others:
            key = self.get_map().get(fd)
            if key is not None and fd not in self._watches:
                bits = (_READ if events & ~_OUT else 0) | (_WRITE if events & ~_IN else 0)
                rows.append((key, bits & key.events))
        return rows


def _call(callback: Callable[[], object]) -> None:
    """Call a function. An exception is passed to the loop's handler."""
    try:
        callback()
    except BaseException as error:
        _report(error)


def _report(error: BaseException) -> None:
    """Pass an exception of a callback to the running loop's handler. Raises: the exception, if it
    is to end the process.
    """
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        raise error
    context = {"message": "an exception in the callback of a socket", "exception": error}
    asyncio.get_running_loop().call_exception_handler(context)


class PolledLoop(asyncio.SelectorEventLoop):
    """An event loop whose `Poller` returns when one of its sockets' callbacks has given the loop
    something to do.
    """

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        super().__init__(poller)

    def call_soon(
        self,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Call a function in the next round, as every loop does."""
        self._poller.has_calls = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call a function at a time, as every loop does; `call_later` calls this method."""
        self._poller.has_calls = True
        return super().call_at(when, callback, *args, context=context)

    def stop(self) -> None:
        """Stop after this round, as every loop does."""
        self._poller.has_calls = True
        super().stop()
