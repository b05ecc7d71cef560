"""Measures how long requests queue, run and wait, how long flushes take, and how long the loop
stalls.

    phase   of a request                                     from             until
    queue   it has arrived, and waits behind other requests  the loop woke    its handling begins
    work    the core handles it                              it begins        it is handled
    wait    it is parked, for data, members, time, a thread  it was handled   it is answered
    disk    it is parked, and a flush released it            it was handled   it is answered

This module runs between the loop and the core, which has no code for it. It is loaded only with
--metrics-port.

Measuring a request costs a twentieth of the time of the cheapest requests. So at most MEASURED
requests of each API are measured in half a second; the others are counted with the times of the
measured ones. Below 100 requests a second every request is measured. Above this rate the counts are
exact, and the times are those of a sample.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import Callable
from operator import sub
from time import monotonic_ns
from typing import Any, NamedTuple

from barnabas.broker.rim.poller import Poller
from barnabas.broker.seams.host import ClientConnection, HandleFrame, Host
from barnabas.broker.seams.observer import Sends, Sync
from barnabas.metrics.histogram import Histogram
from barnabas.protocol.api_table import BY_KEY

NOTABLE_STALL_NS, STALL_WINDOW_NS = 5_000_000, 60_000_000_000
FOLD_INTERVAL_S, MEASURED = 0.5, 50
SHORT_FRAME = 255  # the key for frames that are too short for a key; no API has it
UNKNOWN_API = "unknown"
_TCP_INFO = getattr(socket, "TCP_INFO", None)  # exists only on Linux
# the struct fields tcpi_bytes_received; tcpi_bytes_sent and tcpi_bytes_retrans (linux/tcp.h, since
# Linux 4.19)
_RECEIVED, _SENT, _TCP_INFO_BYTES = struct.Struct("=Q"), struct.Struct("=QQ"), 216
_RECEIVED_AT, _SENT_AT = 128, 200


class RequestTimes:
    """The times of one API's requests, by phase. whole: the time from the arrival to the response.

    `queue` and `work` contain all requests, `whole` the answered ones, `wait` and `disk` the parked
    ones. latest: the requests that were answered at once and are not in the histograms yet. For
    each it has the times at which the loop woke, and at which its handling began and ended.
    Appending to a list is the cheapest way to record them. unmeasured: the number of requests that
    were counted and are not in the histograms yet.
    """

    __slots__ = ("disk", "latest", "queue", "unmeasured", "wait", "whole", "work")

    def __init__(self) -> None:
        self.queue, self.work, self.wait = Histogram(), Histogram(), Histogram()
        self.disk, self.whole = Histogram(), Histogram()
        self.latest: list[tuple[int, int, int]] = []
        self.unmeasured = 0

    def fold(self) -> None:
        """Add the latest requests to the histograms, and then the unmeasured requests with the same
        distribution.
        """
        if self.latest:
            woke, began, ended = zip(*self.latest, strict=True)
            self.latest.clear()
            self.queue.observe_all(list(map(sub, began, woke)))
            self.work.observe_all(list(map(sub, ended, began)))
            self.whole.observe_all(list(map(sub, ended, woke)))
        # only the first requests since the last fold are measured, to save time; the others are
        # assumed to be distributed like them
        answered = self.whole.latest
        if self.unmeasured and answered and self.queue.latest:
            for histogram in (self.queue, self.work, self.whole):
                histogram.repeat_latest(self.unmeasured)
            for histogram in (self.wait, self.disk):
                histogram.repeat_latest(self.unmeasured * histogram.latest // answered)
            self.unmeasured = 0
        if not self.unmeasured:
            for histogram in (self.queue, self.work, self.whole, self.wait, self.disk):
                histogram.mark()


class Traffic(NamedTuple):
    """Bytes that a socket received and sent."""

    received: int
    sent: int


class Instruments:
    """All measurements. They are written in the loop's thread (those of flushes in the flusher's
    thread), and may be read in any thread.

    requests: the times of requests, by API key. left: by API key, how many more requests are
    measured before the next fold; below 0, how many were not measured. unknown: the times of
    requests of unknown APIs. closed_traffic: the traffic of closed connections.
    """

    def __init__(self) -> None:
        self.unknown = RequestTimes()
        self.requests: list[RequestTimes] = [self.unknown] * 256
        for key in BY_KEY:
            self.requests[key] = RequestTimes()
        self.fsyncs: Histogram = Histogram()
        self.flushes: Histogram = Histogram()
        self.stalls: Histogram = Histogram()
        self.left = [MEASURED] * len(self.requests)
        self.closed_traffic = Traffic(0, 0)

    def by_api(self) -> list[tuple[str, RequestTimes]]:
        """The times of each API, by its name."""
        rows = [(api.name, self.requests[key]) for key, api in sorted(BY_KEY.items())]
        return [*rows, (UNKNOWN_API, self.unknown)]

    def fold(self) -> None:
        """Add the latest requests to the histograms. Called in the loop's thread."""
        for key, left in enumerate(self.left):
            times = self.requests[key]
            if left < MEASURED or times.unmeasured:
                times.unmeasured += max(0, -left)
                times.fold()
                self.left[key] = MEASURED


class TimedSelector(Poller):
    """The loop's selector. It records when the loop woke, and which rounds took long.

    woke_ns: when the current round began.
    """

    def __init__(self, stalls: Histogram) -> None:
        super().__init__()
        # so that the time before the first round does not count as a stall
        self.woke_ns = sys.maxsize
        self._stalls = stalls
        self._window = 0
        self._longest_ns = self._longest_before_ns = 0
        # a round that takes at least this long is either the longest so far or a stall
        self._notable_ns = 1

    def wait(
        self,
        timeout: float,
        _wait: Callable[..., list[tuple[int, int]]] = Poller.wait,
        _clock: Callable[[], int] = monotonic_ns,
    ) -> list[tuple[int, int]]:
        """Wait as the selector does. The defaults are bound once, since local names are faster to
        look up.
        """
        busy_ns = _clock() - self.woke_ns
        if busy_ns >= self._notable_ns:
            self._note(busy_ns)
        ready = _wait(self, timeout)
        self.woke_ns = _clock()
        return ready

    def _note(self, busy_ns: int) -> None:
        """Record a round that is the longest so far, or a stall. `_notable_ns` then grows, so that
        most rounds need only one comparison.
        """
        self._turn_window()
        self._longest_ns = max(self._longest_ns, busy_ns)
        if busy_ns >= NOTABLE_STALL_NS:
            self._stalls.observe(busy_ns)
        self._notable_ns = min(self._longest_ns + 1, NOTABLE_STALL_NS)

    def longest_stall_ns(self) -> int:
        """The longest round of the clock's current and previous minute. Called in the loop's
        thread.
        """
        self._turn_window()
        return max(self._longest_ns, self._longest_before_ns)

    def _turn_window(self) -> None:
        """Begin the next minute, if it has come: the longest round of the last one is kept for
        another minute.
        """
        window = monotonic_ns() // STALL_WINDOW_NS
        if window != self._window:
            self._longest_before_ns = self._longest_ns if window == self._window + 1 else 0
            self._window, self._longest_ns, self._notable_ns = window, 0, 1


class _TimedFile:
    """A file of a flush. It measures the time of its fsync."""

    __slots__ = ("_durations_ns", "_file")

    def __init__(self, file: Any, durations_ns: list[int]) -> None:
        self._file, self._durations_ns = file, durations_ns

    def fsync(self) -> None:
        """Flush the file, and record how long that took."""
        began_ns = monotonic_ns()
        self._file.fsync()
        self._durations_ns.append(monotonic_ns() - began_ns)


class Measuring:
    """Measures the requests of a server, as its Observer.

    _parked: for each connection, its request that has no response yet: the times of the request's
    API, the time spent on the request so far, and when its wait began.
    """

    def __init__(self, instruments: Instruments, selector: TimedSelector) -> None:
        self.instruments: Instruments = instruments
        self.selector: TimedSelector = selector
        self._parked: dict[int, tuple[RequestTimes, int, int]] = {}
        self._fold_timer: asyncio.TimerHandle | None = None

    def around(self, server: Host, handle: HandleFrame, sends: Callable[[], Sends]) -> HandleFrame:
        """A function that replaces `handle` and measures its time.

        `pump` reads the clock just before the call. That time counts as the beginning of the
        handling.
        """
        self._fold_later(server.loop)
        selector = self.selector
        note = [times.latest.append for times in self.instruments.requests]
        left = self.instruments.left
        clock, is_controlled = monotonic_ns, not server.has_machine_clock

        def on_frame(connection_id: int, frame: memoryview, now_ms: int) -> None:
            try:
                key = frame[1]
            except IndexError:
                key = SHORT_FRAME
            left[key] = more = left[key] - 1
            if more < 0:
                handle(connection_id, frame, now_ms)
                return
            began = clock() if is_controlled else server.event_ns
            handle(connection_id, frame, now_ms)
            ended = clock()
            answers = sends()
            try:
                ((answered, _),) = answers
            except ValueError:  # the call produced no response, or several
                answered = 0
            if answered == connection_id:
                note[key]((selector.woke_ns, began, ended))
            else:
                queue_ns = began - selector.woke_ns
                self._note_other(connection_id, frame, queue_ns, ended - began, ended)
                if answers:
                    self._note_answers(answers, ended, answered_at_once=connection_id)

        return on_frame

    def around_sync(self, sync: Sync) -> Sync:
        """A function that flushes as `sync` does, and measures the flush and the fsync of each
        file.
        """
        instruments = self.instruments

        def timed(files: list[Any]) -> None:
            durations_ns: list[int] = []
            began_ns = monotonic_ns()
            sync([_TimedFile(file, durations_ns) for file in files])
            instruments.flushes.observe(monotonic_ns() - began_ns)
            instruments.fsyncs.observe_all(durations_ns)

        return timed

    def on_answers(self, sends: Sends, *, after_flush: bool) -> None:
        """Record the responses that are about to be sent. Takes: after_flush, whether a flush
        released them.
        """
        if self._parked:
            self._note_answers(sends, monotonic_ns(), after_flush=after_flush)

    def on_closing(self, connection: ClientConnection) -> None:
        """Add the bytes of a connection that is about to end to the totals."""
        self._parked.pop(connection.connection_id, None)
        received, sent = traffic_of(connection)
        before = self.instruments.closed_traffic
        self.instruments.closed_traffic = Traffic(before.received + received, before.sent + sent)

    def close(self) -> None:
        """Stop measuring."""
        if self._fold_timer is not None:
            self._fold_timer.cancel()

    def _fold_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._fold_timer = loop.call_later(FOLD_INTERVAL_S, self._fold, loop)

    def _fold(self, loop: asyncio.AbstractEventLoop) -> None:
        self.instruments.fold()
        self._fold_later(loop)

    def _note_other(
        self, connection_id: int, frame: memoryview, queue_ns: int, work_ns: int, now_ns: int
    ) -> None:
        """Record a request that was not answered at once, or that was answered together with
        others.
        """
        is_known = len(frame) > 1 and not frame[0]
        times = self.instruments.requests[frame[1]] if is_known else self.instruments.unknown
        times.queue.observe(queue_ns)
        times.work.observe(work_ns)
        self._parked[connection_id] = (times, queue_ns + work_ns, now_ns)

    def _note_answers(
        self,
        sends: Sends,
        now_ns: int,
        *,
        answered_at_once: int = 0,
        after_flush: bool = False,
    ) -> None:
        """Record the waits of parked requests that are answered now. Takes: answered_at_once, the
        connection whose request was answered without a wait.
        """
        for connection_id, _ in sends:
            request = self._parked.pop(connection_id, None)
            if request is not None:
                times, took_ns, since_ns = request
                waited_ns = now_ns - since_ns
                if connection_id != answered_at_once:
                    (times.disk if after_flush else times.wait).observe(waited_ns)
                times.whole.observe(took_ns + waited_ns)


def traffic_of(connection: ClientConnection) -> Traffic:
    """The bytes that a connection has received and sent, as counted by the operating system; 0 if
    it does not count them.
    """
    if _TCP_INFO is None:
        return Traffic(0, 0)
    try:
        info = connection.socket_option(socket.IPPROTO_TCP, _TCP_INFO, _TCP_INFO_BYTES)
    except OSError:
        return Traffic(0, 0)
    if len(info) < _TCP_INFO_BYTES:
        return Traffic(0, 0)
    (received,) = _RECEIVED.unpack_from(info, _RECEIVED_AT)
    sent, repeated = _SENT.unpack_from(info, _SENT_AT)
    return Traffic(received, sent - repeated)
