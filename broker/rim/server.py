"""The rim: sockets on asyncio's selector loop, feeding the broker and carrying out its outbox.

The hot path is plain: non-blocking sockets with add_reader/add_writer, one receive buffer for all
connections (and one of its own for who holds a part of a request), no task, future or copy for a
request; records of fetches go out with sendfile, all but small slices. (A version on asyncio's
transports cost three to six times the CPU, by its copies.)

Order of effects in one event: bytes are received until the socket has no more or a share is used
up; each whole frame is given to the broker; after each the outbox is carried out. A connection
whose request is parked, or whose last answer is not yet sent, reads no further frame. One whose
requests have taken a millisecond goes on in the next round of the loop: of requests that take long,
each connection has one served in turn, and many small ones of a pipeline are served in a row.

Idle connections (`connections.max.idle.ms`): what happens on a connection leaves a mark, and no
more; from time to time all marks are looked at. The time is that of the sweeps, so a connection
ends up to a twentieth later than asked for, and a process that was stopped for an hour does not
hang up on everybody when it goes on. A connection that waits for its answer is not idle. (In Apache
Kafka it is, and a member whose JoinGroup waits longer than that for the others has to begin anew,
and they with it.)
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import os
import resource
import socket
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from barnabas.broker.core import Broker
from barnabas.broker.observation.log_lines import BoundedLines
from barnabas.broker.outbox import CloseReason, FlushJob, Work
from barnabas.broker.rim.cleaning import CleanerProcess
from barnabas.broker.rim.clocks import NS_PER_MS, busy_ns, steady_ns, wall_ns
from barnabas.broker.rim.flusher import Flusher
from barnabas.broker.rim.receive_turns import ReceiveTurns
from barnabas.broker.rim.thread_calls import ThreadCalls
from barnabas.broker.rim.worker import Worker
from barnabas.broker.security.audit import ANONYMOUS
from barnabas.broker.settings.listeners import UNIX_SCHEME
from barnabas.protocol.errors import ProtocolViolation
from barnabas.protocol.framing import FrameBuffer, ReceiveMemory
from barnabas.storage.cleaning.cleaner import CleanJob, CleanResult
from barnabas.storage.disk import is_out_of_descriptors
from barnabas.storage.log.log_reader import Slice
from barnabas.storage.pooled_disk import kept_from_connections

if TYPE_CHECKING:
    import ssl

    from barnabas.broker.rim.connection_limits import ConnectionLimits, ListenerLimits
    from barnabas.broker.rim.tls import TlsSocket
    from barnabas.broker.settings.listeners import ListenerConfig

logger = logging.getLogger("barnabas.server")

READS_PER_EVENT = 8
TURN_NS = NS_PER_MS  # after which a connection that has sent more lets others have their turn
BACKLOG = 1024
SENDFILE_CHUNK_BYTES = 1 << 20
TLS_CHUNK_BYTES = 256 * 1024
TLS_SLOW_BYTES = 64 * 1024  # to who takes no more: it is read again each time that he takes some
GATHERED_BYTES = 64 * 1024
GREETING_PART = 8  # of queued.max.request.bytes, beside it
IDLE_SWEEPS = 20  # in the time that a connection may be idle
SHORTEST_SWEEP_S = 0.05
HANG_UPS_PER_EVENT = 100  # thousands may become idle together, and others have requests
# a timer that comes so late tells that the process was stopped, or that the loop was held up
LATE_MS = 100
HEARING_ROUNDS = (
    4  # of the loop: what was received, what waited to be accepted, and what these sent
)
ACCEPT_PAUSE_S, COMPLAINT_INTERVAL_S = 0.5, 60.0
MOST_LINES_OF_AN_ADDRESS = 20  # a minute, of connections that are closed
MOST_REFUSED = 1000  # connections that are held until they are closed
MOST_READ_BYTES = (
    1 << 20
)  # of small slices of one answer: the rest is read when the client takes it
SMALL_SLICE_BYTES = 4096  # sendfile costs as much as a copy of about 8 KiB, and a packet of its own


class Connection:
    """One client's socket: what came in and is not yet a request, what is to go out and is not yet
    sent.
    """

    __slots__ = (
        "_buffer", "_gathered", "_gathered_bytes", "_is_active", "_loop", "_out", "_pumping",
        "_quiet_sweeps", "_reading", "_server",
        "_socket", "_turns", "_waits_for_turn", "_writing", "closed", "connection_id", "in_flight",
        "peer",
    )  # fmt: skip

    def __init__(
        self,
        server: Server,
        connection_id: int,
        sock: socket.socket | TlsSocket,
        peer: str,
        greeting_bytes: int = 0,
    ) -> None:
        """Takes: greeting_bytes, the largest request until the client has shown who it is; 0: it
        need not.
        """
        self._server, self._socket, self._loop = server, sock, server.loop
        self.connection_id, self.peer = connection_id, peer
        self._turns, memory = server.turns, server.memory
        if greeting_bytes:
            self._turns, memory = server.greeting_turns, server.greeting_memory
        self._buffer = FrameBuffer(
            greeting_bytes or server.max_frame_bytes, memory, server.max_other_bytes
        )
        self._out: deque[Any] = deque()
        self._gathered: list[Any] = []
        self._gathered_bytes = 0
        self.in_flight = self.closed = False
        self._reading = self._writing = self._pumping = self._waits_for_turn = False
        self._is_active = True
        self._quiet_sweeps = 0
        self._resume_reading()

    def _resume_reading(self) -> None:
        if not self._reading and not self.closed:
            self._reading = True
            self._loop.add_reader(self._socket.fileno(), self._on_readable)
            self._read_pending()

    def _read_pending(self) -> None:
        """Have what TLS has received and not given out read, of which the system tells nobody."""
        sock = self._socket
        if not isinstance(sock, socket.socket) and sock.pending():
            self._loop.call_soon(self._on_readable)

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._socket.fileno())

    def _on_readable(self) -> None:
        """Receive, and hand on every whole frame. Reading stops only when bytes come that cannot be
        handed on.
        """
        if self.closed or self._waits_for_turn:
            return  # closed: between TLS's word that there is more and now
        buffer, server = self._buffer, self._server
        turn_ends_ns = 0
        for _ in range(READS_PER_EVENT):
            if self.in_flight or self._out:
                # the client sends more before it has its answer: it waits in the kernel's buffer
                self._pause_reading()
                return
            if buffer.own is not None and buffer.holds_much and not self._turns.may_receive(self):
                self._pause_reading()
                return
            view = buffer.writable()
            try:
                count = self._socket.recv_into(view)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._server.on_broken(self, error)
                return
            if count == 0:
                self._server.disconnect(self, None)
                return
            self._is_active = True
            buffer.received(count)
            self.pump()
            if self.closed or self._waits_for_turn or count < len(view):
                return
            if not turn_ends_ns:
                turn_ends_ns = server.event_ns + TURN_NS
            elif server.is_past(turn_ends_ns):
                break
        self._read_pending()

    def pump(self) -> None:
        """Hand on frames for as long as each is answered at once, and until the turn ends."""
        if self._pumping:
            return  # an answer below led back here; the loop there goes on
        self._pumping = True
        server = self._server
        turn_ends_ns = 0
        try:
            while not (self.in_flight or self._out or self.closed):
                if turn_ends_ns and self._buffer.held_bytes and server.is_past(turn_ends_ns):
                    self._wait_for_turn()
                    return
                frame = self._buffer.next_frame()
                if frame is None:
                    if not self._reading:
                        self._resume_reading()
                    return
                self.in_flight = True
                now_ms = server.now_ms()
                if not turn_ends_ns:
                    turn_ends_ns = server.event_ns + TURN_NS
                server.on_frame(self.connection_id, frame, now_ms)
                server.carry_out()
        except ProtocolViolation as error:
            server.disconnect(self, str(error))
        except (OSError, AssertionError) as error:
            server.fail(error)
        except Exception as error:
            logger.exception("a request of %s could not be handled", self.peer)
            server.disconnect(self, f"an error in the broker: {error!r}; please report it")
        finally:
            self._pumping = False
            if self._buffer.keep_rest() or (
                self._turns.holders and (self.in_flight or self._out) and self._turns.has_turn(self)
            ):
                self._turns.on_released(self)
            if self._gathered and not self.closed:
                self._write(self._take_gathered())

    def _wait_for_turn(self) -> None:
        """Go on when every other connection that can be read has had its turn."""
        if not self._waits_for_turn:
            self._waits_for_turn = True
            self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._waits_for_turn = False
        self.pump()

    def _take_gathered(self) -> tuple[Any, ...]:
        gathered = self._gathered
        if not gathered:
            return ()
        self._gathered, self._gathered_bytes = [], 0
        return (gathered[0] if len(gathered) == 1 else b"".join(gathered),)

    @property
    def owner(self) -> str:
        """Whose share of the memory for requests it takes."""
        return self._server.owner_of(self)

    @property
    def held_bytes(self) -> int:
        """What has come and is not handed on."""
        return self._buffer.held_bytes

    @property
    def awaits_rest(self) -> bool:
        """Whether it holds a part of a large request, and its client is to send the rest."""
        return self._reading and self._buffer.holds_much and not (self.in_flight or self._out)

    def resume_receiving(self) -> None:
        """There is room for more of a large request, or it is this connection's turn."""
        self._resume_reading()

    def takes_turns_of(self, turns: ReceiveTurns) -> bool:
        """Whether what it holds counts with those."""
        return self._turns is turns

    @property
    def is_admitted(self) -> bool:
        """Whether TLS is set up, and the client has shown who it is where it has to."""
        sock = self._socket
        return self._turns is self._server.turns and (
            isinstance(sock, socket.socket) or sock.is_set_up
        )

    @property
    def has_failed_certificate(self) -> bool:
        """Whether its client was to show a certificate, and did not show one that holds."""
        sock = self._socket
        return not isinstance(sock, socket.socket) and sock.is_to_identify

    def admit(self) -> None:
        """The client has shown who it is: its requests may be as large as any."""
        server = self._server
        self._buffer.max_frame_bytes = server.max_frame_bytes
        if self._turns is not server.turns:
            self._buffer.move_to(server.memory)
            self._turns.on_released(self)
            self._turns = server.turns

    def mute(self) -> None:
        """Hand nothing on until `unmute`."""
        self.in_flight = True

    def unmute(self) -> None:
        """Go on with what waits."""
        self.in_flight = False
        self.wake()

    def hang_up(self, reason: str) -> None:
        self._server.disconnect(self, reason)

    def wake(self) -> None:
        """An answer went out from somewhere else than this connection's own event: go on with what
        waits.
        """
        if not self._pumping and (not self._reading or self._buffer.held_bytes):
            self._loop.call_soon(self.pump)

    def send(self, pieces: Any) -> None:
        """Send an answer, as far as the socket takes it; the rest when it takes more.

        While this connection's own frames are handed on, small answers are gathered and go out
        together: a client that pipelines its requests gets as few packets as it sent.
        """
        if len(pieces) > 1:
            try:
                pieces = _with_small_slices_read(pieces)
            except OSError as error:
                self._server.disconnect(self, str(error))
                return
        if self._pumping and len(pieces) == 1 and type(pieces[0]) is not Slice:
            self._gathered.append(pieces[0])
            self._gathered_bytes += len(pieces[0])
            if self._gathered_bytes < GATHERED_BYTES:
                return
            pieces = ()
        self._write((*self._take_gathered(), *pieces))

    def _write(self, pieces: Sequence[Any]) -> None:
        out = self._out
        if out:
            out.extend(pieces)
            return
        if len(pieces) == 1 and type(pieces[0]) is not Slice:
            data = pieces[0]
            try:
                sent = self._socket.send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._server.disconnect(
                    self, None if error.errno in (errno.EPIPE, errno.ECONNRESET) else str(error)
                )
                return
            if sent < len(data):
                out.append(memoryview(data)[sent:])
                self._write_later()
            return
        out.extend(pieces)
        self._flush()

    def _on_writable(self) -> None:
        self._is_active = True
        self._flush()
        if not self._out and not self.closed:
            self.pump()

    def _flush(self) -> None:
        out, sock = self._out, self._socket
        try:
            if not isinstance(sock, socket.socket):
                self._flush_through_tls(sock)
            while out:
                piece = out[0]
                if type(piece) is Slice:
                    if piece.size <= SMALL_SLICE_BYTES and len(out) > 1:
                        self._out = out = deque(_with_small_slices_read(out))
                        continue
                    sent = piece.file.sendfile(
                        sock.fileno(), piece.position, min(piece.size, SENDFILE_CHUNK_BYTES)
                    )
                    if sent == 0:
                        raise _too_short(piece)
                    if sent < piece.size:
                        out[0] = piece._replace(
                            position=piece.position + sent, size=piece.size - sent
                        )
                    else:
                        out.popleft()
                else:
                    flags = socket.MSG_MORE if len(out) > 1 else 0
                    sent = sock.send(piece, flags)
                    if sent < len(piece):
                        out[0] = memoryview(piece)[sent:]
                    else:
                        out.popleft()
        except (BlockingIOError, InterruptedError):
            self._write_later()
            return
        except OSError as error:
            self._server.disconnect(
                self, None if error.errno in (errno.EPIPE, errno.ECONNRESET) else str(error)
            )
            return
        if self._writing:
            self._writing = False
            self._loop.remove_writer(sock.fileno())

    def _flush_through_tls(self, sock: TlsSocket) -> None:
        """Send what is to go out in pieces of one size, whatever it is made of: a call costs the
        same for 100 bytes. What TLS did not take it is given again, the same bytes and as many.
        """
        out, chunk = self._out, self._server.tls_chunk()
        while out:
            if type(out[0]) is Slice or len(out[0]) < len(chunk):
                most = sock.refused_bytes or (TLS_SLOW_BYTES if self._writing else len(chunk))
                self._drop_sent(sock.send(chunk[: _gathered_into(chunk[:most], out)]))
            else:
                self._drop_sent(sock.send(out[0]))

    def _drop_sent(self, size: int) -> None:
        """So many bytes of what is to go out are sent."""
        out = self._out
        while out:
            piece = out[0]
            length = piece.size if type(piece) is Slice else len(piece)
            if length > size:
                if type(piece) is Slice:
                    out[0] = Slice(piece.file, piece.position + size, length - size)
                else:
                    out[0] = memoryview(piece)[size:]
                return
            out.popleft()
            size -= length

    def _write_later(self) -> None:
        if not self._writing:
            self._writing = True
            self._loop.add_writer(self._socket.fileno(), self._on_writable)

    @property
    def has_stirred(self) -> bool:
        """Whether something came or was sent since the last sweep, or is being answered."""
        return self._is_active or self.in_flight

    def quiet_sweeps(self) -> int:
        """Asked once a sweep: how many in a row have found that nothing had stirred."""
        if self.has_stirred:
            self._is_active = (
                self.in_flight
            )  # its answer, once sent, is something that happened since this sweep
            self._quiet_sweeps = 0
        else:
            self._quiet_sweeps += 1
        return self._quiet_sweeps

    def socket_option(self, level: int, option: int, size: int) -> bytes:
        """What the system says of its socket. Raises: OSError."""
        return self._socket.getsockopt(level, option, size)

    def close(self) -> None:
        """Let go of the socket. What is not sent is lost."""
        if self.closed:
            return
        self.closed = True
        if self._gathered and not self._out:  # answers to what came before the reason for closing
            with contextlib.suppress(OSError):
                self._socket.send(self._take_gathered()[0])
        self._pause_reading()
        if self._writing:
            self._loop.remove_writer(self._socket.fileno())
        self._out.clear()
        self._socket.close()
        self._buffer.drop()
        self._turns.on_released(self)


def _with_small_slices_read(pieces: Iterable[Any]) -> list[Any]:
    """Small slices as bytes, joined with what is around them: the answer to a reader of a thousand
    partitions is one piece, not two thousand. What is beyond `MOST_READ_BYTES` stays as it is: a
    client may take nothing of it.
    """
    joined: list[Any] = []
    run: list[Any] = []
    read_bytes = 0
    for piece in pieces:
        if type(piece) is not Slice:
            run.append(piece)
        elif piece.size <= SMALL_SLICE_BYTES and read_bytes < MOST_READ_BYTES:
            data = piece.file.pread(piece.size, piece.position)
            if len(data) < piece.size:
                raise _too_short(piece)
            read_bytes += piece.size
            run.append(data)
        else:
            if run:
                joined.append(b"".join(run))
                run = []
            joined.append(piece)
    if run:
        joined.append(b"".join(run))
    return joined


def _gathered_into(room: memoryview, pieces: Iterable[Any]) -> int:
    """Put the beginning of what is to go out into memory. Gives: how many bytes there are."""
    filled = 0
    for piece in pieces:
        rest = room[filled:]
        if not rest:
            break
        if type(piece) is Slice:
            size = min(piece.size, len(rest))
            if piece.file.readinto(rest[:size], piece.position) < size:
                raise _too_short(piece)
        else:
            size = min(len(piece), len(rest))
            rest[:size] = piece[:size]
        filled += size
    return filled


def _too_short(piece: Slice) -> OSError:
    return OSError(errno.EIO, f"{piece.file.path} is shorter than what was promised to a reader")


def _most_connections() -> int:
    """How many may be open at once: the rest of the descriptors is for files and all else."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return limit - kept_from_connections(limit)


def _advice_on_descriptors() -> str:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return f"RLIMIT_NOFILE is {limit}: raise it (ulimit -n), or have clients share connections"


class Listener:
    """A listening socket of one broker, which may be closed for a while.

    greeting_bytes: the largest request of a client that has not shown who it is; 0: it need not.
    limits: of its own; pause: until nobody is taken up because of them.
    """

    __slots__ = ("address", "config", "greeting_bytes", "limits", "node_id", "pause", "socket")

    def __init__(
        self, node_id: int, config: ListenerConfig, sock: socket.socket, greeting_bytes: int
    ) -> None:
        self.limits: ListenerLimits | None = None
        self.pause: asyncio.TimerHandle | None = None
        self.node_id, self.config = node_id, config
        self.greeting_bytes = greeting_bytes if config.has_sasl else 0
        self.socket: socket.socket | None = sock
        self.address = address_of(sock)


def _listeners(broker: Broker, socks: Sequence[socket.socket]) -> list[Listener]:
    """What each socket is for: listener by listener, and of each a socket for each broker."""
    config = broker.config
    places = product(config.listeners, broker.cluster.nodes)
    return [
        Listener(node_id, listener, sock, config.sasl_server_max_receive_size)
        for (listener, node_id), sock in zip(places, socks, strict=True)
    ]


def _greeting_memory(memory: ReceiveMemory) -> ReceiveMemory:
    """The part of clients that have not shown who they are: half requests of theirs keep nobody
    else's out.
    """
    most = memory.max_bytes
    return ReceiveMemory(most // GREETING_PART if most >= 0 else -1, memory.shared)


def _audit_log(path: str | None) -> Any:
    """An AuditLog, imported only where there is one."""
    if not path:
        return None
    from barnabas.broker.rim.audit_log import AuditLog

    return AuditLog(path)


class _ClosingLines:
    """The log's lines of connections that are closed.

    Of each address so many are written in a minute, the others are counted: who connects again and
    again fills no disk.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lines = BoundedLines(MOST_LINES_OF_AN_ADDRESS)
        self._timer: asyncio.TimerHandle | None = None

    def tell(self, peer: str, reason: CloseReason, level: int) -> None:
        """Log why a connection is closed, or count it."""
        kind, host = logging.getLevelName(level), peer.rpartition(":")[0]
        if self._lines.may_write(kind, host, int(self._loop.time() * 1000)):
            logger.log(
                level, "closing the connection of %s: %s", peer, reason, extra={"client": peer}
            )
        elif self._timer is None:
            self.tell_left_out()

    def tell_left_out(self) -> None:
        """Log what was counted in the minutes that have ended, and again when another ends."""
        now_ms = int(self._loop.time() * 1000)
        for row in self._lines.left_out(now_ms):
            logger.log(
                logging.getLevelNamesMapping()[row.kind],
                "%d more connections of %s were closed within a minute",
                row.line_count,
                row.peer,
            )
        deadline_ms, self._timer = self._lines.deadline_ms, None
        if deadline_ms is not None:
            delay_s = max(0, deadline_ms - now_ms) / 1000 + SHORTEST_SWEEP_S
            self._timer = self._loop.call_later(delay_s, self.tell_left_out)


class Server:
    """The listening sockets, their connections, the timer and the flusher around the core.

    Takes: sock, of the one broker with one listener; or one for each of several brokers, listener
           by listener. steady_ns, wall_ns: the clocks.
    on_frame: what takes the connections' requests. event_ns: the steady time of the core's latest
    event.
    """

    connection_class: type[Connection] = Connection
    _limits: ConnectionLimits | None = None  # where there are any
    _admission_timer: asyncio.TimerHandle | None = None
    _tls_chunk: memoryview | None = None

    def __init__(
        self,
        broker: Broker,
        sock: socket.socket | Sequence[socket.socket],
        loop: asyncio.AbstractEventLoop,
        *,
        steady_ns: Callable[[], int] = steady_ns,
        wall_ns: Callable[[], int] = wall_ns,
    ) -> None:
        self.broker, self.loop = broker, loop
        self.on_frame: Callable[[int, memoryview, int], None] = broker.on_frame
        self._steady_ns, self._wall_ns = steady_ns, wall_ns
        broker.quotas.busy_ns = busy_ns
        self.max_frame_bytes = broker.config.socket_request_max_bytes
        self.max_other_bytes = broker.config.barnabas_request_max_bytes
        self.memory = ReceiveMemory(broker.config.queued_max_request_bytes)
        self._connections: dict[int, Connection] = {}
        self.turns = self._turns_of(self.memory)
        self.greeting_memory = _greeting_memory(self.memory)
        self.greeting_turns = self._turns_of(self.greeting_memory)
        self._accepts = True
        self.listeners = _listeners(broker, [sock] if isinstance(sock, socket.socket) else sock)
        self._set_limits_of_listeners()
        self._limited: dict[int, ListenerLimits] = {}  # by connection
        self._muted: dict[int, asyncio.TimerHandle] = {}
        self.throttled_count = 0
        self._refused: dict[socket.socket, asyncio.TimerHandle] = {}
        self._admission_deadlines_s: dict[int, float] = {}  # by connection, in order
        self._next_connection_id = 1
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = self.event_ns = self._hearing_rounds = 0
        self._accept_timer: asyncio.TimerHandle | None = None
        self._closing_lines, self._complain_at_s = _ClosingLines(loop), loop.time()
        self._carrying_out = self._is_closed = False
        self._idle_ms = broker.config.connections_max_idle_ms
        self._sweep_s = max(self._idle_ms / 1000 / IDLE_SWEEPS, SHORTEST_SWEEP_S)
        self._sweep_timer = (
            loop.call_later(self._sweep_s, self._sweep) if self._idle_ms >= 0 else None
        )
        self.failure: asyncio.Future[Exception] = loop.create_future()
        self._flush_error: OSError | None = None
        self._thread_calls = ThreadCalls(loop)
        self._flusher = self._flusher_of()
        self._cleaner = CleanerProcess(self._cleaned_in_thread)
        self._worker = Worker(self._worked_in_thread)
        self._audit_log = _audit_log(broker.config.barnabas_audit_log)
        for listener in self.listeners:
            broker.on_listening(listener.node_id, listener.config, listener.address[1])
            self._listen_to(listener)
        self.carry_out()

    def _turns_of(self, memory: ReceiveMemory) -> ReceiveTurns:
        turns: ReceiveTurns

        def receivers() -> list[Connection]:
            return [one for one in self._connections.values() if one.takes_turns_of(turns)]

        turns = ReceiveTurns(memory, self.loop, receivers)
        return turns

    def owner_of(self, connection: Connection) -> str:
        """The principal of a connection's client; its address, where it has not shown who it is."""
        state = self.broker.connections.get(connection.connection_id)
        if state is None or state.principal == ANONYMOUS:
            return _host_of(connection)
        return state.principal

    def tls_chunk(self) -> memoryview:
        """Where what goes out through TLS is put together: for one call at a time."""
        if self._tls_chunk is None:
            self._tls_chunk = memoryview(bytearray(TLS_CHUNK_BYTES))
        return self._tls_chunk

    @property
    def connections_opened(self) -> int:
        """How many clients have connected since the start."""
        return self._next_connection_id - 1

    def connections(self) -> list[Connection]:
        """Those that are open now."""
        return list(self._connections.values())

    @property
    def request_memory_bytes(self) -> int:
        """What requests hold that have not come whole, or wait for a thread."""
        memory = self.memory
        return memory.held_bytes + memory.worked_bytes + self.greeting_memory.held_bytes

    def _flusher_of(self) -> Flusher:
        return Flusher(self._flushed_in_thread)

    @property
    def address(self) -> tuple[str, int]:
        """Where the first broker listens, or did and will."""
        return self.listeners[0].address

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where each broker listens, by the first listener."""
        return [self.listener_of(node_id).address for node_id in self.broker.cluster.nodes]

    def listener_of(self, node_id: int) -> Listener:
        """The first listener of a broker."""
        return next(listener for listener in self.listeners if listener.node_id == node_id)

    # --- connections -----------------------------------------------------------------------------

    def _listen_to(self, listener: Listener) -> None:
        if listener.socket is not None and self._accepts and listener.pause is None:
            self.loop.add_reader(listener.socket.fileno(), self._on_connect, listener)

    def close_listener(self, node_id: int) -> None:
        """Listen at a broker's ports no more; who connects is refused."""
        for listener in self.listeners:
            if listener.node_id == node_id and listener.socket is not None:
                self.loop.remove_reader(listener.socket.fileno())
                listener.socket.close()
                listener.socket = None
                path = listener.config.path
                if path is not None:
                    with contextlib.suppress(OSError):
                        os.unlink(path)

    def open_listener(self, node_id: int) -> None:
        """Listen at a broker's ports again. Raises: OSError where another has one by now."""
        for listener in self.listeners:
            if listener.node_id == node_id and listener.socket is None:
                path = listener.config.path
                listener.socket = (
                    listener_at(*listener.address) if path is None else unix_listener_at(path)
                )
                self._listen_to(listener)

    def _on_connect(self, listener: Listener) -> None:
        limits = self._connection_limits()
        for number in range(BACKLOG):
            if listener.socket is None or not self._accepts or listener.pause is not None:
                return
            if listener.limits is not None and listener.limits.is_full:
                self._pause_listener(listener, "it has as many as its max.connections")
                return
            if limits is not None and limits.is_full:
                if number == 0:  # else whoever waits is heard of again
                    self._pause_accepting("there are as many as max.connections")
                return
            try:
                sock, peer = listener.socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                if is_out_of_descriptors(error):  # files give way to what is no connection, too
                    self._reserve_descriptors(_most_connections())
                self._pause_accepting(f"{error}: {_advice_on_descriptors()}")
                return
            # a socket in the file system has an address at neither end
            client_host, client_port = peer[:2] if peer else (listener.address[0], 0)
            client_host = unmapped(client_host)
            if limits is not None and not self._has_room_for(sock, client_host, limits):
                continue
            self._take_up(listener, sock, client_host, client_port)

    def _take_up(
        self, listener: Listener, sock: socket.socket, client_host: str, client_port: int
    ) -> None:
        """A client has connected."""
        _set_options(sock)
        address = address_of(sock)
        connection_id = self._next_connection_id
        try:
            transport = self._transport(listener.config, sock, connection_id)
        except OSError:  # it has hung up already
            sock.close()
            if self._limits is not None:
                self._limits.on_closed(client_host)
            return
        self._next_connection_id += 1
        self.broker.on_connected(
            connection_id, client_host, *address, listener.node_id, listener.config
        )
        self._connections[connection_id] = self.connection_class(
            self,
            connection_id,
            transport,
            f"{client_host}:{client_port}",
            listener.greeting_bytes,
        )
        if listener.greeting_bytes or transport is not sock:
            self._await_admission(connection_id)
        if listener.limits is not None:
            self._limited[connection_id] = listener.limits
            pause_ms = listener.limits.on_connected(self._steady_ms())
            if pause_ms:
                why = "they come above its max.connection.creation.rate"
                self._pause_listener(listener, why, pause_ms)
        self._reserve_descriptors(self._held_by_clients)
        if not self._may_connect():
            self._pause_accepting(
                f"the rest of the descriptors is kept for logs: {_advice_on_descriptors()}"
            )
        elif self._limits is not None:
            pause_ms = self._limits.pause_ms(self._steady_ms())
            if pause_ms:
                self._pause_accepting("they come above max.connection.creation.rate", pause_ms)

    # --- limits of connections -------------------------------------------------------------------

    def _connection_limits(self) -> ConnectionLimits | None:
        """What bounds connections; made with the first bound."""
        broker = self.broker
        if self._limits is None and (
            broker.quotas.have_addresses or broker.config.limits_connections
        ):
            from barnabas.broker.rim.connection_limits import ConnectionLimits

            self._limits = ConnectionLimits(
                broker.config,
                broker.metadata.client_quotas,
                [_host_of(connection) for connection in self._connections.values()],
                self._steady_ms(),
            )
        return self._limits

    def _set_limits_of_listeners(self) -> None:
        for listener in self.listeners:
            if listener.config.limits_connections:
                from barnabas.broker.rim.connection_limits import limits_of_listener

                config, now_ms = self.broker.config, self._steady_ms()
                listener.limits = limits_of_listener(listener.config, config, now_ms)

    def _pause_listener(
        self, listener: Listener, why: str, pause_ms: float = ACCEPT_PAUSE_S * 1000
    ) -> None:
        """Let those who connect by that listener wait in its queue."""
        if listener.socket is not None:
            self.loop.remove_reader(listener.socket.fileno())
        listener.pause = self.loop.call_later(pause_ms / 1000, self._end_pause, listener)
        self._complain("listener %s takes no connections for now: %s", listener.config.name, why)

    def _end_pause(self, listener: Listener) -> None:
        if listener.limits is not None and listener.limits.is_full:
            listener.pause = self.loop.call_later(ACCEPT_PAUSE_S, self._end_pause, listener)
        else:
            listener.pause = None
            self._listen_to(listener)

    def _has_room_for(self, sock: socket.socket, address: str, limits: ConnectionLimits) -> bool:
        """Whether one more connection may come from there; else it is closed, now or later."""
        refusal = limits.on_connected(address, self._steady_ms())
        if refusal is None:
            return True
        self._complain("connections are closed: %s", refusal.why)
        if refusal.after_ms and len(self._refused) < MOST_REFUSED:
            self._refused[sock] = self.loop.call_later(
                refusal.after_ms / 1000, self._close_refused, sock
            )
        else:
            sock.close()
        return False

    def _steady_ms(self) -> int:
        return self._steady_ns() // NS_PER_MS

    def _close_refused(self, sock: socket.socket) -> None:
        del self._refused[sock]
        sock.close()

    def _await_admission(self, connection_id: int) -> None:
        """Close the connection unless it is admitted by the deadline."""
        timeout_ms = self.broker.config.barnabas_authentication_timeout_ms
        if timeout_ms < 0:
            return
        self._admission_deadlines_s[connection_id] = self.loop.time() + timeout_ms / 1000
        if self._admission_timer is None:
            self._admission_timer = self.loop.call_later(timeout_ms / 1000, self._check_admissions)

    def _check_admissions(self) -> None:
        self._admission_timer = None
        deadlines_s = self._admission_deadlines_s
        while deadlines_s:
            connection_id, deadline_s = next(iter(deadlines_s.items()))
            if deadline_s > self.loop.time():
                self._admission_timer = self.loop.call_at(deadline_s, self._check_admissions)
                return
            del deadlines_s[connection_id]
            connection = self._connections[connection_id]
            if not connection.is_admitted:
                self.disconnect(
                    connection,
                    "it has not set up TLS, or has not shown who it is, within "
                    "barnabas.authentication.timeout.ms",
                    logging.INFO,
                )

    def _transport(
        self, config: ListenerConfig, sock: socket.socket, connection_id: int
    ) -> socket.socket | TlsSocket:
        """The socket, under TLS where the listener speaks it. Raises: OSError."""
        if config.tls is None:
            return sock
        if config.has_sasl or not config.tls.asks_for_certificates:
            return config.tls.wrap(sock)

        def on_shaken(peer: ssl.SSLSocket) -> None:
            self.broker.on_identified(connection_id, config.tls_principal(peer.getpeercert()))

        return config.tls.wrap(sock, on_shaken)

    def _pause_accepting(self, why: str, pause_ms: float = ACCEPT_PAUSE_S * 1000) -> None:
        """Let those who connect wait in the listener's queue until there is room for them."""
        self._accepts = False
        for listener in self.listeners:
            if listener.socket is not None:
                self.loop.remove_reader(listener.socket.fileno())
        if self._accept_timer is None:
            self._accept_timer = self.loop.call_later(pause_ms / 1000, self._try_accepting)
        self._complain(
            "no connections are accepted for now: %s; %d connections are open",
            why,
            len(self._connections),
        )

    def _complain(self, text: str, *arguments: object) -> None:
        """Warn of connections that are kept out, once a minute at most."""
        if self.loop.time() >= self._complain_at_s:
            self._complain_at_s = self.loop.time() + COMPLAINT_INTERVAL_S
            logger.warning(text, *arguments)

    @property
    def _held_by_clients(self) -> int:
        """The descriptors of connections, and of those that are closed later."""
        return len(self._connections) + len(self._refused)

    def _may_connect(self) -> bool:
        return self._held_by_clients < _most_connections()

    def _reserve_descriptors(self, count: int) -> None:
        """Have files give way where connections take what they have."""
        self.broker.logs.disk.reserve_descriptors(count)

    def _try_accepting(self) -> None:
        is_full = self._limits is not None and self._limits.is_full
        if self._may_connect() and not is_full:
            self._accept_timer = None
            self._accepts = True
            for listener in self.listeners:
                self._listen_to(listener)
        else:
            self._accept_timer = self.loop.call_later(ACCEPT_PAUSE_S, self._try_accepting)

    def disconnect(
        self, connection: Connection, reason: CloseReason | None, level: int = logging.WARNING
    ) -> None:
        """End a connection; a reason is worth a line in the log."""
        if connection.closed:
            return
        if reason is not None:
            self._closing_lines.tell(connection.peer, reason, level)
        connection.close()
        del self._connections[connection.connection_id]
        self._reserve_descriptors(self._held_by_clients)
        self._admission_deadlines_s.pop(connection.connection_id, None)
        if self._limits is not None:
            self._limits.on_closed(_host_of(connection))
        limits_of_listener = self._limited.pop(connection.connection_id, None)
        if limits_of_listener is not None:
            limits_of_listener.on_closed()
        muted = self._muted.pop(connection.connection_id, None)
        if muted is not None:
            muted.cancel()
        self.broker.on_closed(connection.connection_id)

    def on_broken(self, connection: Connection, error: OSError) -> None:
        """Nothing can be received any more; or TLS, with its certificate, was not set up."""
        is_reset = error.errno == errno.ECONNRESET
        if connection.has_failed_certificate and not is_reset:
            self.broker.on_not_identified(connection.connection_id)
        self.disconnect(connection, None if is_reset else str(error))
        self.carry_out()

    def _sweep(self) -> None:
        """Find the connections that are idle."""
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
        for _ in range(min(len(idle), HANG_UPS_PER_EVENT)):
            connection = idle.popleft()
            if not connection.has_stirred:
                self.disconnect(
                    connection,
                    f"nothing came or was sent for connections.max.idle.ms={self._idle_ms}",
                    logging.INFO,
                )
        if idle:
            self.loop.call_soon(self._hang_up, idle)

    # --- the outbox ------------------------------------------------------------------------------

    def carry_out(self) -> None:
        """Do what the broker asks for, until it asks for nothing more."""
        if self._carrying_out or self.failure.done() or self._is_closed:
            # a send below led back here and the loop there goes on; or the disk failed, and nothing
            # is answered any more
            return
        self._carrying_out = True
        outbox, connections = self.broker.outbox, self._connections
        try:
            while outbox.sends or outbox.closes or outbox.flushes or outbox.deferred:
                if outbox.sends:
                    sends, outbox.sends = outbox.sends, []
                    for connection_id, pieces in sends:
                        connection = connections.get(connection_id)
                        if connection is not None:
                            connection.in_flight = False
                            if pieces:
                                connection.send(pieces)
                            connection.wake()
                if outbox.admitted:
                    admitted, outbox.admitted = outbox.admitted, []
                    for connection_id in admitted:
                        if connection_id in connections:
                            connections[connection_id].admit()
                if outbox.mutes:
                    self._mute()
                if outbox.closes:
                    closes, outbox.closes = outbox.closes, []
                    for connection_id, reason in closes:
                        connection = connections.get(connection_id)
                        if connection is not None:
                            self.disconnect(connection, reason)
                if outbox.flushes:
                    flushes, outbox.flushes = outbox.flushes, []
                    for job in flushes:
                        self._flusher.submit(job)
                if outbox.deferred and not outbox.sends:
                    try:
                        self._do_deferred()
                    except Exception as error:
                        self.fail(error)
                        return
            if outbox.cleanings or outbox.work or outbox.held_bytes:
                self._submit_work()
            if outbox.audit:
                self._write_audit_log()
        finally:
            self._carrying_out = False
        self._set_timer()

    def _mute(self) -> None:
        """Let clients above a quota wait (KIP-219)."""
        mutes, self.broker.outbox.mutes = self.broker.outbox.mutes, []
        for connection_id, throttle_ms in mutes:
            connection = self._connections.get(connection_id)
            if connection is not None:
                self.throttled_count += 1
                connection.mute()
                if connection_id in self._muted:  # a request that a test has come twice
                    self._muted[connection_id].cancel()
                self._muted[connection_id] = self.loop.call_later(
                    throttle_ms / 1000, self._unmute, connection_id
                )

    def is_muted(self, connection_id: int) -> bool:
        """Whether nothing is read from the connection, since its client is above a quota."""
        return connection_id in self._muted

    def _unmute(self, connection_id: int) -> None:
        del self._muted[connection_id]
        self._connections[connection_id].unmute()

    def _submit_work(self) -> None:
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

    def _do_deferred(self) -> None:
        self.broker.on_sent(self.now_ms())

    def _flushed_in_thread(self, job: FlushJob, error: OSError | None) -> None:
        if error is not None:
            self._flush_error = error  # `close` waits for the thread, and not for the loop
        self._thread_calls.call(self._on_flushed, job, error)

    def _on_flushed(self, job: FlushJob, error: OSError | None) -> None:
        if error is not None:
            self.fail(error)
            return
        self._guarded(self.broker.on_flushed, job, self.now_ms())

    def _worked_in_thread(self, work: Work, result: Any, error: Exception | None) -> None:
        self._thread_calls.call(self._on_worked, work, result, error)

    def _on_worked(self, work: Work, result: Any, error: Exception | None) -> None:
        self.memory.worked_bytes -= work.held_bytes
        if not self.failed:
            self._guarded(self.broker.on_worked, work, result, error, self.now_ms())
            self.turns.on_freed()

    def _cleaned_in_thread(self, job: CleanJob, result: CleanResult | None, error: str) -> None:
        self._thread_calls.call(self._on_cleaned, job, result, error)

    def _on_cleaned(self, job: CleanJob, result: CleanResult | None, error: str) -> None:
        if not self.failed:
            self._guarded(self.broker.on_cleaned, job, result, error, self.now_ms())

    # --- time ------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The steady time of an event of the core, which is fed what the wall clock shows beside
        it.
        """
        now_ns = self.event_ns = self._steady_ns()
        now_ms = now_ns // NS_PER_MS
        self.broker.wall.feed(now_ms, self._wall_ns() // NS_PER_MS)
        return now_ms

    def is_past(self, at_ns: int) -> bool:
        """Whether the steady clock shows that time, or a later one."""
        return self._steady_ns() >= at_ns

    def _set_timer(self) -> None:
        if self._hearing_rounds:
            return  # it is set when the time has come that is late
        deadline = self.broker.next_deadline_ms()
        if deadline is None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            return
        if self._timer is not None and self._timer_at_ms <= deadline:
            return  # it comes early enough, and sets itself anew
        now_ms = self._steady_ns() // NS_PER_MS
        at_ms = max(deadline, now_ms)  # what is to be done at once is not late
        if self._timer is not None:
            if self._timer_at_ms <= at_ms:
                return  # it is due: each request would put it off to a later round of the loop
            self._timer.cancel()
        self._timer_at_ms = at_ms
        self._timer = self.loop.call_later((at_ms - now_ms) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._steady_ns() // NS_PER_MS - self._timer_at_ms >= LATE_MS:
            self._hearing_rounds = HEARING_ROUNDS
            self.loop.call_soon(self._hear_first)
        else:
            self._guarded(self.broker.on_tick, self.now_ms())

    def _hear_first(self) -> None:
        """Let some rounds of the loop go by before deadlines are judged; in each every socket that
        can be read has its turn.

        The timer comes late: the process was stopped (SIGSTOP, a debugger, a paused container), and
        in the sockets lie the heartbeats that were sent in time, and the EndTxn of a transaction
        whose timeout has passed meanwhile. Nobody is judged for what the broker did not listen to.
        """
        self._hearing_rounds -= 1
        if self._hearing_rounds:
            self.loop.call_soon(self._hear_first)
        elif not self.failed:
            self._guarded(self.broker.on_tick, self.now_ms())

    def _guarded(self, event: Any, *arguments: Any) -> None:
        if self._is_closed:
            # the loop goes round once more, with what a thread has ended since: the logs are
            # another broker's by now
            return
        try:
            event(*arguments)
        except Exception as error:
            self.fail(error)
        self.carry_out()

    # --- end -------------------------------------------------------------------------------------

    @property
    def failed(self) -> bool:
        return self.failure.done()

    def fail(self, error: Exception) -> None:
        """The disk failed, or an invariant did: nothing more is answered, nothing more is written,
        and the daemon ends.
        """
        if not self.failure.done():
            self.failure.set_result(error)

    def close(self) -> None:
        """Stop listening, hang up, finish flushes under way, close the logs cleanly (unless the
        disk failed, also only now: see `failure`).
        """
        self._is_closed = True
        for node_id in self.broker.cluster.nodes:
            self.close_listener(node_id)
        self.turns.close()
        self.greeting_turns.close()
        for refused, closing in self._refused.items():
            closing.cancel()
            refused.close()
        self._refused.clear()
        for timer in (
            self._timer, self._sweep_timer, self._accept_timer, self._admission_timer,
            *(listener.pause for listener in self.listeners),
        ):  # fmt: skip
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
            )  # another fsync of the same file would succeed, and what it lost be taken for durable
        if not self.failure.done():
            try:
                self.broker.close_logs(self.now_ms(), self._flusher.sync)
            except (OSError, AssertionError) as error:
                self.fail(error)
        self._flusher.close()
        self._thread_calls.close()


def _host_of(connection: Connection) -> str:
    return connection.peer.rpartition(":")[0]


def address_of(sock: socket.socket) -> tuple[str, int]:
    """A socket's own end; of one in the file system `unix:///PATH` and 0."""
    if sock.family == socket.AF_UNIX:
        return f"{UNIX_SCHEME}{sock.getsockname()}", 0
    host, port = sock.getsockname()[:2]
    return unmapped(host), port


def unmapped(host: str) -> str:
    """An address; of IPv4, by itself, where it came to a socket of IPv6 (RFC 4291, 2.5.5.2): ACLs,
    quotas and limits are for the address that people know.
    """
    return host.removeprefix("::ffff:") if "." in host else host


def _set_options(sock: socket.socket) -> None:
    """What every connection has."""
    sock.setblocking(False)
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # of a machine that is gone a parked request would stay for ever
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def unix_listener_at(path: str) -> socket.socket:
    """A socket in the file system, of the owner alone; one that nobody listens at goes.

    Raises: OSError.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if stat.S_ISSOCK(_mode_of(path)) and sock.connect_ex(path) == errno.ECONNREFUSED:
            os.unlink(path)
        sock.close()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        former_mask = os.umask(0o177)
        try:
            sock.bind(path)
        finally:
            os.umask(former_mask)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def _mode_of(path: str) -> int:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return 0


def listener_at(host: str, port: int) -> socket.socket:
    """A socket that listens there, and takes connections without waiting. Raises: OSError."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock
