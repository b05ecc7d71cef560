"""A server that measures how long requests queue, work and wait, flushes take, the loop stalls.

    phase   of a request                                     from             until
    queue   it has arrived, and others are handled first     the loop woke    its handling begins
    work    the core handles it                              it begins        it is handled
    wait    it is parked, for data, members, time, a thread  it was handled   it is answered
    disk    it is parked, and a flush released it            it was handled   it is answered

It is between the loop and the core, which does not know of it, and is loaded with --metrics-port
only.

Measuring a request costs a twentieth of the cheapest ones. So at most MEASURED requests of each API
are measured in half a second; the others are counted, with the times of the sample: below 100
requests a second each is measured, and above that the number is exact and the times are a sample's.
"""

from __future__ import annotations

import selectors
import socket
import struct
import sys
from collections.abc import Callable
from operator import sub
from time import monotonic_ns
from typing import Any, NamedTuple

from barnabas.broker.metrics.histogram import Histogram
from barnabas.broker.outbox import CloseReason, FlushJob
from barnabas.broker.rim.clocks import steady_ns
from barnabas.broker.rim.flusher import Flusher
from barnabas.broker.rim.server import Connection, Server
from barnabas.protocol.api_table import BY_KEY

NOTABLE_STALL_NS, STALL_WINDOW_NS = 5_000_000, 60_000_000_000
FOLD_INTERVAL_S, MEASURED = 0.5, 50
SHORT_FRAME = 255  # no API has this key: it is for frames without one
UNKNOWN_API = "unknown"
_TCP_INFO = getattr(socket, "TCP_INFO", None)  # Linux has it
# tcpi_bytes_received; tcpi_bytes_sent, tcpi_bytes_retrans (linux/tcp.h, since Linux 4.19)
_RECEIVED, _SENT, _TCP_INFO_BYTES = struct.Struct("=Q"), struct.Struct("=QQ"), 216
_RECEIVED_AT, _SENT_AT = 128, 200


class RequestTimes:
    """How long the requests of one API took, by phase. whole: from its arrival to its answer.

    `queue` and `work` are of all requests, `whole` of those that were answered; `wait` and `disk`
    of those that were parked. latest: (when the loop woke, when its handling began and ended) of
    each that was answered at once and is not in the histograms yet: an append is the cheapest way
    to record it. unmeasured: requests that were counted and are not in the histograms yet.
    """

    __slots__ = ("disk", "latest", "queue", "unmeasured", "wait", "whole", "work")

    def __init__(self) -> None:
        self.queue, self.work, self.wait = Histogram(), Histogram(), Histogram()
        self.disk, self.whole = Histogram(), Histogram()
        self.latest: list[tuple[int, int, int]] = []
        self.unmeasured = 0

    def fold(self) -> None:
        """Add the latest to the histograms, and the unmeasured ones with the same distribution."""
        if self.latest:
            woke, began, ended = zip(*self.latest, strict=True)
            self.latest.clear()
            self.queue.observe_all(list(map(sub, began, woke)))
            self.work.observe_all(list(map(sub, ended, began)))
            self.whole.observe_all(list(map(sub, ended, woke)))
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
    """What is measured: written in the loop's thread (flushes in the flusher's), read in any.

    requests: by API key. left: for each, how many more are measured before the next fold; below 0,
    how many were not measured. unknown: requests of unknown APIs. closed_traffic: of connections
    that are closed.
    """

    def __init__(self) -> None:
        self.unknown = RequestTimes()
        self.requests: list[RequestTimes] = [self.unknown] * 256
        for key in BY_KEY:
            self.requests[key] = RequestTimes()
        self.fsyncs, self.flushes, self.stalls = Histogram(), Histogram(), Histogram()
        self.left = [MEASURED] * len(self.requests)
        self.closed_traffic = Traffic(0, 0)

    def by_api(self) -> list[tuple[str, RequestTimes]]:
        """The times of each API, by its name."""
        rows = [(api.name, self.requests[key]) for key, api in sorted(BY_KEY.items())]
        return [*rows, (UNKNOWN_API, self.unknown)]

    def fold(self) -> None:
        """Add the latest requests to the histograms. In the loop's thread."""
        for key, left in enumerate(self.left):
            times = self.requests[key]
            if left < MEASURED or times.unmeasured:
                times.unmeasured += max(0, -left)
                times.fold()
                self.left[key] = MEASURED


class TimedSelector(selectors.DefaultSelector):
    """The loop's selector, which records when the loop woke, and rounds that took long.

    woke_ns: when the current round began.
    """

    def __init__(self, stalls: Histogram) -> None:
        super().__init__()
        self.woke_ns = sys.maxsize  # the time before the first round is no stall
        self._stalls = stalls
        self._window = 0
        self._longest_ns = self._longest_before_ns = 0
        self._notable_ns = 1  # a round at least so long is the longest so far, or a stall

    def select(
        self,
        timeout: float | None = None,
        _select: Callable[..., list[Any]] = selectors.DefaultSelector.select,
        _clock: Callable[[], int] = monotonic_ns,
    ) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait as the selector does. Defaults are bound once, which makes them fast to look up."""
        busy_ns = _clock() - self.woke_ns
        if busy_ns >= self._notable_ns:
            self._note(busy_ns)
        ready = _select(self, timeout)
        self.woke_ns = _clock()
        return ready

    def _note(self, busy_ns: int) -> None:
        self._turn_window()
        self._longest_ns = max(self._longest_ns, busy_ns)
        if busy_ns >= NOTABLE_STALL_NS:
            self._stalls.observe(busy_ns)
        self._notable_ns = min(self._longest_ns + 1, NOTABLE_STALL_NS)

    def longest_stall_ns(self) -> int:
        """The longest round of the minute, by the clock, and of the minute before it. In the loop's
        thread.
        """
        self._turn_window()
        return max(self._longest_ns, self._longest_before_ns)

    def _turn_window(self) -> None:
        window = monotonic_ns() // STALL_WINDOW_NS
        if window != self._window:
            self._longest_before_ns = self._longest_ns if window == self._window + 1 else 0
            self._window, self._longest_ns, self._notable_ns = window, 0, 1


class _TimedFile:
    """A file of a flush, whose fsync is timed."""

    __slots__ = ("_durations_ns", "_file")

    def __init__(self, file: Any, durations_ns: list[int]) -> None:
        self._file, self._durations_ns = file, durations_ns

    def fsync(self) -> None:
        began_ns = monotonic_ns()
        self._file.fsync()
        self._durations_ns.append(monotonic_ns() - began_ns)


class TimedFlusher(Flusher):
    """A flusher that measures its flushes, and the fsync of each file."""

    instruments: Instruments

    def sync(self, files: list[Any]) -> None:
        """Flush as Flusher does; one call at a time."""
        durations_ns: list[int] = []
        began_ns = monotonic_ns()
        super().sync([_TimedFile(file, durations_ns) for file in files])
        self.instruments.flushes.observe(monotonic_ns() - began_ns)
        self.instruments.fsyncs.observe_all(durations_ns)


class ReplicationState(NamedTuple):
    """How far behind a leader's standby is.

    lag_bytes: not sent yet; lag_operations: not applied yet. lag_ms: since the standby last had
    everything; None: it never had. leader_epoch: of the lease; None: there is no lease.
    """

    mode: str
    follows: bool
    is_in_sync: bool
    lag_bytes: int
    lag_operations: int
    lag_ms: int | None
    waiting_answers: int
    leader_epoch: int | None


class MeasuredServer(Server):
    """A server whose requests are measured.

    _parked: by connection, a request that is not answered yet: its row, how long it took so far,
    and since when it waits.
    """

    def __init__(
        self, instruments: Instruments, selector: TimedSelector, *arguments: Any, **options: Any
    ) -> None:
        self.instruments, self.selector = instruments, selector
        self._parked: dict[int, tuple[RequestTimes, int, int]] = {}
        self._is_flushed = False
        super().__init__(*arguments, **options)
        self.on_frame = self._measure(self.on_frame)
        self._fold_timer = self.loop.call_later(FOLD_INTERVAL_S, self._fold)

    def replication(self) -> ReplicationState | None:
        """How far behind the standby is; None where none can follow. In the loop's thread."""
        return None

    def _fold(self) -> None:
        self.instruments.fold()
        self._fold_timer = self.loop.call_later(FOLD_INTERVAL_S, self._fold)

    def close(self) -> None:
        """Close all as Server does."""
        self._fold_timer.cancel()
        super().close()

    def _flusher_of(self) -> Flusher:
        flusher = TimedFlusher(self._flushed_in_thread)
        flusher.instruments = self.instruments
        return flusher

    def _measure(
        self, handle: Callable[[int, memoryview, int], None]
    ) -> Callable[[int, memoryview, int], None]:
        """A function that calls `handle` for a request, and measures it.

        `pump` reads the clock right before: that is when the request began.
        """
        selector, outbox = self.selector, self.broker.outbox
        note = [times.latest.append for times in self.instruments.requests]
        left = self.instruments.left
        clock, is_controlled = monotonic_ns, self._steady_ns is not steady_ns

        def on_frame(connection_id: int, frame: memoryview, now_ms: int) -> None:
            try:
                key = frame[1]
            except IndexError:
                key = SHORT_FRAME
            left[key] = more = left[key] - 1
            if more < 0:
                handle(connection_id, frame, now_ms)
                return
            began = clock() if is_controlled else self.event_ns
            handle(connection_id, frame, now_ms)
            ended = clock()
            try:
                ((answered, _),) = outbox.sends
            except ValueError:  # no answer, or several
                answered = 0
            if answered == connection_id:
                note[key]((selector.woke_ns, began, ended))
            else:
                queue_ns = began - selector.woke_ns
                self._note_others(connection_id, frame, queue_ns, ended - began, ended)

        return on_frame

    def _note_others(
        self, connection_id: int, frame: memoryview, queue_ns: int, work_ns: int, now_ns: int
    ) -> None:
        """Record a request that was not answered at once, or with others."""
        is_known = len(frame) > 1 and not frame[0]
        times = self.instruments.requests[frame[1]] if is_known else self.instruments.unknown
        times.queue.observe(queue_ns)
        times.work.observe(work_ns)
        self._parked[connection_id] = (times, queue_ns + work_ns, now_ns)
        self._note_answers(now_ns, connection_id)

    def _note_answers(self, now_ns: int, answered_at_once: int = 0) -> None:
        """Record the answers that the core has put into its outbox."""
        for connection_id, _ in self.broker.outbox.sends:
            request = self._parked.pop(connection_id, None)
            if request is not None:
                times, took_ns, since_ns = request
                waited_ns = now_ns - since_ns
                if connection_id != answered_at_once:
                    (times.disk if self._is_flushed else times.wait).observe(waited_ns)
                times.whole.observe(took_ns + waited_ns)

    def _guarded(self, event: Any, *arguments: Any) -> None:
        super()._guarded(self._note_event, event, *arguments)

    def _note_event(self, event: Any, *arguments: Any) -> None:
        event(*arguments)
        self._note_answers(monotonic_ns())

    def _do_deferred(self) -> None:
        super()._do_deferred()
        self._note_answers(monotonic_ns())

    def _on_flushed(self, job: FlushJob, error: OSError | None) -> None:
        self._is_flushed = True
        try:
            super()._on_flushed(job, error)
        finally:
            self._is_flushed = False

    def disconnect(self, connection: Connection, reason: CloseReason | None, *level: int) -> None:
        """End a connection as Server does; its bytes stay in the totals."""
        if not connection.closed:
            self._parked.pop(connection.connection_id, None)
            received, sent = traffic_of(connection)
            before = self.instruments.closed_traffic
            self.instruments.closed_traffic = Traffic(
                before.received + received, before.sent + sent
            )
        super().disconnect(connection, reason, *level)


def traffic_of(connection: Connection) -> Traffic:
    """The bytes of a connection, as the system counts them; 0 where it does not."""
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
