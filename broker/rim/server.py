"""The rim: sockets on asyncio's selector loop, feeding the broker and carrying out its outbox.

Order of effects in one event: bytes are received until the socket has no more, or the connection's
share of the loop is used up; each whole frame is passed to the broker; after each frame the outbox
is carried out. `connection.py` has the hot path, `acceptor.py` the listening sockets.

There is one Server class. It takes a Gate, which may hold back or change requests and answers (test
control, a standby, a lease), an Observer, which measures them, and a Clock.

Idle connections (`connections.max.idle.ms`): activity only sets a flag of its connection; a sweep
checks all flags from time to time. Idle time is counted in sweeps, so a connection is closed up to
a twentieth later than configured, and a process that was stopped for an hour does not close all
connections when it continues. A connection that waits for its answer is not idle. (In Apache Kafka
it is: a member whose JoinGroup waits too long for other members has to restart, and so do the
others.)
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import socket
from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from barnabas.broker.audit import ANONYMOUS
from barnabas.broker.connections.connection_state import ConnectionState
from barnabas.broker.core import Broker
from barnabas.broker.outbox import CloseReason, FlushJob, Work
from barnabas.broker.requests.pending_requests import failure
from barnabas.broker.rim.acceptor import Acceptor, host_of
from barnabas.broker.rim.cleaning import CleanerProcess
from barnabas.broker.rim.clocks import MACHINE_CLOCK, NS_PER_MS, busy_ns, steady_ns
from barnabas.broker.rim.closing_lines import ClosingLines
from barnabas.broker.rim.connection import Connection
from barnabas.broker.rim.flusher import Flusher
from barnabas.broker.rim.poller import Sockets, Timer
from barnabas.broker.rim.receive_turns import ReceiveTurns
from barnabas.broker.rim.thread_calls import ThreadCalls
from barnabas.broker.rim.worker import Worker
from barnabas.broker.seams.gate import Gate
from barnabas.broker.seams.host import ClientConnection, Clock, HandleFrame
from barnabas.broker.seams.nodes import Nodes
from barnabas.broker.seams.observer import Observer
from barnabas.broker.seams.state import BrokerState
from barnabas.protocol.framing import ReceiveMemory
from barnabas.storage.cleaning.clean_job import CleanJob, CleanResult
from barnabas.storage.disk import OsDisk, sync_file_system
from barnabas.storage.exception_guard import ends_process, report
from barnabas.storage.pooled_disk import disk_below

if TYPE_CHECKING:
    from barnabas.broker.rim.tls import TlsSocket
    from barnabas.broker.seams.snapshots import Snapshots

TLS_CHUNK_BYTES = 256 * 1024
GREETING_PART = 8  # unauthenticated clients get an eighth of queued.max.request.bytes, in addition
IDLE_SWEEPS = 20  # sweeps within the time that a connection may be idle
SHORTEST_SWEEP_S = 0.05
SYNCED_TOGETHER = 1000  # with more files than this, a stop syncs the whole file system in one call
# maximum connections closed in one round: thousands may become idle together, and closing all would
# delay requests
HANG_UPS_PER_EVENT = 100
# a timer that is this late shows that the process was stopped, or that the loop was blocked
LATE_MS = 100
# rounds of the loop before a late tick: for received bytes, for new connections, and for the bytes
# of new connections
CATCH_UP_ROUNDS = 4
IMPORT_LOOK_S = 0.005  # interval at which a late tick checks the end of imports for requests


def _greeting_memory(memory: ReceiveMemory) -> ReceiveMemory:
    """The memory for requests of unauthenticated clients. It is separate, so that their incomplete
    requests do not delay those of others.
    """
    most = memory.max_bytes
    return ReceiveMemory(most // GREETING_PART if most >= 0 else -1, memory.shared)


def _ignore_frame(connection_id: int, frame: memoryview, now_ms: int) -> None:
    """Handle a request after a failure: it gets no response."""


def _audit_log(path: str | None) -> Any:
    """The audit log at a path, or None; its module is imported only if there is a path."""
    if not path:
        return None
    from barnabas.broker.rim.audit_log import AuditLog

    return AuditLog(path)


class Server:
    """The connections, the timer and the threads around the core.

    on_frame: the function that connections call with each request. event_ns: the steady time of the
    core's latest event. is_closed: whether sending and writing have ended.

    Takes: sock, the socket of the only listener, or for each listener a socket for each broker;
           gate and observer, see these classes, each None if there is none. sockets, the selector
           of the loop, if it calls connections directly.
    """

    _tls_chunk: memoryview | None = None

    def __init__(
        self,
        broker: Broker,
        sock: socket.socket | Sequence[socket.socket],
        loop: asyncio.AbstractEventLoop,
        *,
        clock: Clock = MACHINE_CLOCK,
        gate: Gate | None = None,
        observer: Observer | None = None,
        sockets: Sockets | None = None,
    ) -> None:
        self.broker: Broker = broker
        self.loop = loop
        self.sockets: Sockets = loop if sockets is None else sockets
        self._steady_ns, self._wall_ns = clock
        broker.quotas.busy_ns = busy_ns
        self.max_frame_bytes = broker.config.socket_request_max_bytes
        self.max_other_bytes = broker.config.barnabas_request_max_bytes
        self.memory = ReceiveMemory(broker.config.queued_max_request_bytes)
        self._connections: dict[int, Connection] = {}
        self.turns = self._turns_of(self.memory)
        self.greeting_memory = _greeting_memory(self.memory)
        self.greeting_turns = self._turns_of(self.greeting_memory)
        socks = [sock] if isinstance(sock, socket.socket) else sock
        self.acceptor = Acceptor(self, broker, socks)
        self._muted: dict[int, asyncio.TimerHandle] = {}
        self._timer: Timer | None = None
        self._timer_at_ms = self.event_ns = self._catch_up_rounds = 0
        self._closing_lines = ClosingLines(loop)
        self._carrying_out = self._is_after_flush = self.is_closed = False
        self._idle_ms = broker.config.connections_max_idle_ms
        self._sweep_s = max(self._idle_ms / 1000 / IDLE_SWEEPS, SHORTEST_SWEEP_S)
        self._sweep_timer = (
            loop.call_later(self._sweep_s, self._sweep) if self._idle_ms >= 0 else None
        )
        self.failure: asyncio.Future[Exception] = loop.create_future()
        self._flush_error: OSError | None = None
        self._thread_calls = ThreadCalls(loop)
        self._attach(gate, observer)
        around_sync = None if observer is None else observer.around_sync
        self._flusher = Flusher(self._flushed_in_thread, around_sync)
        self._cleaner = CleanerProcess(self._cleaned_in_thread)
        self._worker = Worker(self._worked_in_thread)
        self._audit_log = _audit_log(broker.config.barnabas_audit_log)
        self.acceptor.start()
        self.carry_out()
        if gate is not None:
            gate.start()

    def _attach(self, gate: Gate | None, observer: Observer | None) -> None:
        """Put the gate and the observer, if any, around requests and answers."""
        self._gate, self._observer = gate, observer
        self.on_frame: HandleFrame = self.broker.answer_frame
        if gate is not None or observer is not None:
            self.on_frame = self.broker.on_frame  # they see the responses in the outbox
        self.silence = None if gate is None else gate.silence
        self._send: Callable[[Any, Any], None] = Connection.send
        if gate is not None:
            self.on_frame = gate.around(self, self.on_frame)
            self._send = gate.send
        if observer is not None:
            self.on_frame = observer.around(self, self.on_frame, lambda: self.broker.outbox.sends)

    @cached_property
    def nodes(self) -> Nodes:
        """The brokers of the process, for annexes."""
        return Nodes(self.broker.cluster, self.broker.failover, self.acceptor)

    @cached_property
    def state(self) -> BrokerState:
        """The broker's state, for annexes."""
        return BrokerState(self.broker)

    @cached_property
    def snapshots(self) -> Snapshots:
        """Snapshots of the state. The first annex that takes some loads the code for them."""
        from barnabas.broker.seams.snapshots import Snapshots

        return Snapshots(self.broker)

    def _turns_of(self, memory: ReceiveMemory) -> ReceiveTurns:
        """The turns of the connections that use a budget of memory for received requests."""
        turns: ReceiveTurns

        def receivers() -> list[Connection]:
            return [one for one in self._connections.values() if one.takes_turns_of(turns)]

        turns = ReceiveTurns(memory, self.loop, receivers)
        return turns

    def owner_of(self, connection: Connection) -> str:
        """The principal of a connection's client; its address if it is not authenticated."""
        state = self.broker.connections.get(connection.connection_id)
        if state is None or state.principal == ANONYMOUS:
            return host_of(connection)
        return state.principal

    def tls_chunk(self) -> memoryview:
        """The buffer in which bytes for TLS are joined, used by one call at a time."""
        if self._tls_chunk is None:
            self._tls_chunk = memoryview(bytearray(TLS_CHUNK_BYTES))
        return self._tls_chunk

    def connections(self) -> list[Connection]:
        """The open connections."""
        return list(self._connections.values())

    @property
    def request_memory_bytes(self) -> int:
        """The bytes of requests that are incomplete, or wait for the worker."""
        memory = self.memory
        return memory.held_bytes + memory.worked_bytes + self.greeting_memory.held_bytes

    @property
    def address(self) -> tuple[str, int]:
        """The first broker's address, even while its listener is closed."""
        return self.acceptor.listeners[0].address

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The address of each broker's first listener."""
        return [self.acceptor.listener_of(node_id).address for node_id in self.broker.cluster.nodes]

    @property
    def has_machine_clock(self) -> bool:
        """Whether the clock is the machine's own: a test has not replaced it."""
        return self._steady_ns is steady_ns

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    def connection(self, connection_id: int) -> Connection | None:
        """The open connection with an id; None if it has ended."""
        return self._connections.get(connection_id)

    # --- connections -----------------------------------------------------------------------------

    def add_connection(
        self,
        connection_id: int,
        transport: socket.socket | TlsSocket,
        peer: str,
        greeting_bytes: int,
    ) -> Connection:
        """Add the connection of a client; the core has already been notified."""
        connection = Connection(self, connection_id, transport, peer, greeting_bytes)
        self._connections[connection_id] = connection
        return connection

    def put_connection(self, connection: ClientConnection, sender: ConnectionState) -> None:
        """Put another object in the place of a connection that has ended, so that its request can
        be handled late.

        Takes: sender, the core's state of the ended connection: the core gets a new connection with
               the same number, principal and listener.
        """
        connection_id = connection.connection_id
        self.broker.on_connected(
            connection_id, sender.client_host.removeprefix("/"), sender.local_host,
            sender.local_port, sender.node_id, sender.listener,
        )  # fmt: skip
        state = self.broker.connections[connection_id]
        state.principal, state.authentication = sender.principal, sender.authentication
        self._connections[connection_id] = cast("Connection", connection)

    def disconnect(
        self, connection: ClientConnection, reason: CloseReason | None, level: int = logging.WARNING
    ) -> None:
        """End a connection; a reason is written to the log."""
        if connection.closed:
            return
        for party in (self._observer, self._gate):
            if party is not None:
                party.on_closing(connection)
        if reason is not None:
            self._closing_lines.write(connection.peer, reason, level)
        self._connections[connection.connection_id].close()
        del self._connections[connection.connection_id]
        # Another object replaced a connection that ended earlier, and that end was reported.
        if isinstance(connection, Connection):
            self.acceptor.on_closed(connection)
        muted = self._muted.pop(connection.connection_id, None)
        if muted is not None:
            muted.cancel()
        self.broker.on_closed(connection.connection_id)

    def on_broken(self, connection: Connection, error: OSError) -> None:
        """Handle an error of a connection or of its TLS handshake."""
        is_reset = error.errno == errno.ECONNRESET
        if connection.has_failed_certificate and not is_reset:
            self.broker.on_not_identified(connection.connection_id)
        self.disconnect(connection, None if is_reset else str(error))
        self.carry_out()

    def on_request_failed(self, connection: ClientConnection, error: Exception) -> None:
        """End a connection after an exception in its request, or the daemon."""
        if ends_process(error):
            self.fail(error)
        else:
            report(error, f"a request of {connection.peer}")
            self.disconnect(connection, failure(error))

    def on_hung_up(self, connection: Connection) -> None:
        """The client of a request in flight will send nothing more: it does not wait for data."""
        self.guarded(self.broker.on_hung_up, connection.connection_id, self.now_ms())

    def _sweep(self) -> None:
        """Close the connections that are idle, and look for clients that have hung up behind bytes
        that are not read yet.
        """
        for connection in [one for one in self._connections.values() if one.has_hung_up]:
            self.on_hung_up(connection)
        self._sweep_timer = self.loop.call_later(self._sweep_s, self._sweep)
        most = max(1, math.ceil(self._idle_ms / 1000 / self._sweep_s))
        self._hang_up(
            deque(
                [
                    connection
                    for connection in self._connections.values()
                    if connection.quiet_sweeps() >= most
                ]
            )
        )

    def _hang_up(self, idle: deque[Connection]) -> None:
        """Close idle connections, some in each round of the loop, if they were not used
        meanwhile.
        """
        for _ in range(min(len(idle), HANG_UPS_PER_EVENT)):
            connection = idle.popleft()
            if not connection.has_stirred:
                self.disconnect(
                    connection,
                    f"no data were received or sent for connections.max.idle.ms={self._idle_ms}",
                    logging.INFO,
                )
        if idle:
            self.loop.call_soon(self._hang_up, idle)

    # --- the outbox ------------------------------------------------------------------------------

    def carry_out(self) -> None:
        """Carry out the outbox until it is empty, and set the timer to the next deadline."""
        self.empty_outbox()
        self.set_timer()

    def empty_outbox(self) -> None:
        """Carry out the outbox until it is empty. The caller then calls `set_timer`."""
        outbox = self.broker.outbox
        # nearly always it is empty, since the core has returned the only answer
        if not (
            outbox.sends or outbox.flushes or outbox.deferred or outbox.closes or outbox.admitted
            or outbox.mutes or outbox.cleanings or outbox.work or outbox.held_bytes or outbox.audit
        ):  # fmt: skip
            return
        if self._carrying_out or self.is_closed or self.failure.done():
            # A send in the loop below made this call, or the broker has failed or is closed.
            return
        self._carrying_out = True
        try:
            self._send_answers()
            while self._carry_out_others():
                self._send_answers()
        finally:
            self._carrying_out = False

    def _send_answers(self) -> None:
        """Send the answers in the outbox; their connections may pass on their next requests."""
        outbox = self.broker.outbox
        sends, outbox.sends = outbox.sends, []
        if self._observer is not None and sends:
            self._observer.on_answers(sends, after_flush=self._is_after_flush)
        send, connections = self._send, self._connections
        for connection_id, pieces in sends:
            connection = connections.get(connection_id)
            if connection is not None:
                connection.in_flight = False
                if pieces:
                    send(connection, pieces)
                connection.wake()

    def _carry_out_others(self) -> bool:
        """Carry out what the outbox has besides answers, which are sent before their connections
        are closed. Gives: whether there may be more answers.
        """
        outbox = self.broker.outbox
        if outbox.admitted:
            self._admit()
        if outbox.mutes:
            self._mute()
        if outbox.closes:
            self._close()
        if outbox.flushes:
            self._submit_flushes()
        if outbox.deferred and not outbox.sends and not self._do_deferred():
            return False
        if outbox.sends or outbox.closes or outbox.flushes or outbox.deferred:
            return True
        if outbox.cleanings or outbox.work or outbox.held_bytes:
            self._submit_work()
        if outbox.audit:
            self._write_audit_log()
        return False

    def _admit(self) -> None:
        """Lift the smaller limit of requests for clients that are now authenticated."""
        admitted, self.broker.outbox.admitted = self.broker.outbox.admitted, []
        for connection_id in admitted:
            if connection_id in self._connections:
                self._connections[connection_id].admit()

    def _close(self) -> None:
        """Close the connections in the outbox."""
        closes, self.broker.outbox.closes = self.broker.outbox.closes, []
        for connection_id, reason in closes:
            connection = self._connections.get(connection_id)
            if connection is not None:
                self.disconnect(connection, reason)

    def _submit_flushes(self) -> None:
        jobs, self.broker.outbox.flushes = self.broker.outbox.flushes, []
        for job in jobs:
            self._flusher.submit(job)

    def _do_deferred(self) -> bool:
        """Let the broker run its deferred calls. Gives: False if one failed."""
        try:
            self.broker.on_sent(self.now_ms())
        except Exception as error:
            self.fail(error)
            return False
        return True

    def _mute(self) -> None:
        """Stop reading from clients above a quota, for their throttle times (KIP-219)."""
        mutes, self.broker.outbox.mutes = self.broker.outbox.mutes, []
        for connection_id, throttle_ms in mutes:
            connection = self._connections.get(connection_id)
            if connection is not None:
                self.broker.counters.add("barnabas_throttled_requests_total")
                connection.mute()
                if connection_id in self._muted:  # only if a test delivers a request twice
                    self._muted[connection_id].cancel()
                self._muted[connection_id] = self.loop.call_later(
                    throttle_ms / 1000, self._unmute, connection_id
                )

    def is_muted(self, connection_id: int) -> bool:
        """Whether the connection is not read from, since its client is above a quota."""
        return connection_id in self._muted

    def _unmute(self, connection_id: int) -> None:
        del self._muted[connection_id]
        self._connections[connection_id].unmute()

    def _submit_work(self) -> None:
        """Hand cleanings and long computations to their process and thread; count their bytes."""
        outbox = self.broker.outbox
        if outbox.held_bytes:
            is_less = outbox.held_bytes < 0
            self.memory.worked_bytes += outbox.held_bytes
            outbox.held_bytes = 0
            if is_less:
                self.loop.call_soon(self.turns.on_freed)
        for cleaning in outbox.cleanings:
            self._cleaner.submit(cleaning)
        outbox.cleanings.clear()
        for work in outbox.work:
            self.memory.worked_bytes += work.held_bytes
            self._worker.submit(work)
        outbox.work.clear()

    def _write_audit_log(self) -> None:
        self._audit_log.write(self.broker.outbox.audit, self._wall_ns() // NS_PER_MS)
        self.broker.outbox.audit.clear()

    def _flushed_in_thread(self, job: FlushJob, error: OSError | None) -> None:
        if error is not None:
            self._flush_error = error  # stored for `close`, which waits only for the thread
        self._thread_calls.call(self._on_flushed, job, error)

    def _on_flushed(self, job: FlushJob, error: OSError | None) -> None:
        """Answer the requests that waited for the flush. If it failed, end the daemon."""
        if error is not None:
            self.fail(error)
            return
        self._is_after_flush = True
        try:
            self.guarded(self.broker.on_flushed, job, self.now_ms())
        finally:
            self._is_after_flush = False

    def _worked_in_thread(self, work: Work, result: Any, error: Exception | None) -> None:
        self._thread_calls.call(self._on_worked, work, result, error)

    def _on_worked(self, work: Work, result: Any, error: Exception | None) -> None:
        self.memory.worked_bytes -= work.held_bytes
        if not self.failed:
            self.guarded(self.broker.on_worked, work, result, error, self.now_ms())
            self.turns.on_freed()

    def _cleaned_in_thread(self, job: CleanJob, result: CleanResult | None, error: str) -> None:
        self._thread_calls.call(self._on_cleaned, job, result, error)

    def _on_cleaned(self, job: CleanJob, result: CleanResult | None, error: str) -> None:
        if not self.failed:
            self.guarded(self.broker.on_cleaned, job, result, error, self.now_ms())

    # --- time ------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The steady time for an event of the core. After: the core's wall time is set as well."""
        now_ns = self.event_ns = self._steady_ns()
        now_ms = now_ns // NS_PER_MS
        wall = self.broker.wall
        wall.ahead_ms, wall.now_ms = (
            self._wall_ns() // NS_PER_MS - now_ms,
            now_ms,
        )  # `feed`, inlined
        return now_ms

    def steady_ms(self) -> int:
        """The time of the steady clock."""
        return self._steady_ns() // NS_PER_MS

    def is_past(self, at_ns: int) -> bool:
        """Whether the steady clock has reached a time."""
        return self._steady_ns() >= at_ns

    def set_timer(self) -> None:
        """Set the timer to the broker's next deadline, unless it fires early enough already."""
        if self._catch_up_rounds or self._carrying_out or self.failure.done() or self.is_closed:
            # The timer is set again when the late tick has run, or when the outbox is empty. A
            # broker that has failed or is closed needs none.
            return
        deadline = self.broker.next_deadline_ms()
        self.broker.on_timer_set()
        if self._timer is not None and self._timer_at_ms <= deadline:
            return  # the present timer is early enough, and is set again when it fires
        now_ms = self._steady_ns() // NS_PER_MS
        at_ms = max(deadline, now_ms)  # so that a deadline in the past does not count as late
        if self._timer is not None:
            if self._timer_at_ms <= at_ms:
                # the timer is due already: setting it again with each request would delay it
                return
            self._timer.cancel()
        self._timer_at_ms = at_ms
        self._timer = self.sockets.call_later((at_ms - now_ms) / 1000, self._on_timer)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is due, and no flush runs."""
        is_due = self.broker.next_deadline_ms() <= self.steady_ms()
        return not is_due and self.broker.flushes.is_idle

    def tick(self) -> None:
        """Let the core do what is due now."""
        self.guarded(self.broker.on_tick, self.now_ms())

    def reset_timer(self) -> None:
        """Set the timer again: a test has moved the clock."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.set_timer()

    def _on_timer(self) -> None:
        """Run the tick; if the timer is late, only after the sockets are read."""
        self._timer = None
        if self._steady_ns() // NS_PER_MS - self._timer_at_ms >= LATE_MS:
            self._catch_up_rounds = CATCH_UP_ROUNDS
            self.loop.call_soon(self._tick_after_reading)
        else:
            self.guarded(self.broker.on_tick, self.now_ms())

    def _tick_after_reading(self) -> None:
        """Run the late tick only after some rounds of the loop, in each of which every readable
        socket is read.

        A late timer means that the process was stopped (SIGSTOP, a debugger, a paused container).
        The sockets may contain heartbeats that were sent in time, and the EndTxn of a transaction
        whose timeout has passed meanwhile. These are processed before any session or transaction
        times out. The first request of a family also waits for the worker, which loads it.
        """
        if self._catch_up_rounds > 1:
            self._catch_up_rounds -= 1
            self.loop.call_soon(self._tick_after_reading)
            return
        if self.broker.families.waiting_count and not self.failed:
            self.loop.call_later(IMPORT_LOOK_S, self._tick_after_reading)
            return
        self._catch_up_rounds = 0
        if not self.failed:
            self.guarded(self.broker.on_tick, self.now_ms())

    def guarded(self, event: Any, *arguments: Any) -> None:
        """Call an event of the core, and carry out its outbox. An exception ends the daemon."""
        if self.is_closed:
            # A thread requested this call, and it runs in the last round of the loop. The logs may
            # already belong to another broker.
            return
        try:
            event(*arguments)
        except Exception as error:
            self.fail(error)
        self.carry_out()

    # --- end -------------------------------------------------------------------------------------

    def reload(self) -> None:
        """Read the certificates of the listeners, and open the audit log again."""
        for listener in self.broker.config.listeners:
            if listener.tls is not None:
                listener.tls.reload()
        if self._audit_log is not None:
            self._audit_log.reopen()

    @property
    def failed(self) -> bool:
        return self.failure.done()

    def fail(self, error: Exception) -> None:
        """The disk failed, or an invariant does not hold: send and write nothing more, and end."""
        if not self.failure.done():
            self.failure.set_result(error)
            self.on_frame = _ignore_frame

    def abandon(self) -> None:
        """Close all connections at once. The directory stays as after a kill."""
        self.is_closed = True
        for connection in self.connections():
            connection.close()
        self._cleaner.stop()

    def _sync_at_stop(self, files: list[Any]) -> None:
        """Flush the files of a stop to the disk. A very large number is flushed by one call for the
        file system, unless a standby or test control has to know each file. Raises: OSError.
        """
        is_plain = type(disk_below(self.broker.logs.disk)) is OsDisk
        if len(files) < SYNCED_TOGETHER or not is_plain:
            self._flusher.sync(files)
        else:
            sync_file_system(self.broker.config.data_dir)

    def close(self) -> None:
        """Stop listening, close all connections, finish running flushes, and close the logs
        cleanly, unless the disk fails (see `failure`).
        """
        self.is_closed = True
        self.acceptor.close()
        self.turns.close()
        self.greeting_turns.close()
        if self._observer is not None:
            self._observer.close()
        for timer in (self._timer, self._sweep_timer):
            if timer is not None:
                timer.cancel()
        for connection in list(self._connections.values()):
            self.disconnect(connection, None)
        self._cleaner.stop()
        self._worker.stop()
        self._flusher.stop()
        if self._audit_log is not None:
            self._audit_log.close()
        if self._flush_error is not None:
            self.fail(
                self._flush_error
            )  # another fsync of the file would succeed, although data were lost
        if not self.failure.done():
            try:
                self.broker.close_logs(self.now_ms(), self._sync_at_stop)
            except (OSError, AssertionError) as error:
                self.fail(error)
        self._flusher.close()
        self._thread_calls.close()
        if self._gate is not None:
            self._gate.close()
