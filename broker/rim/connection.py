"""One client's socket, with the received bytes of incomplete requests and the unsent bytes.

The hot path is simple. Sockets are non-blocking, with add_reader and add_writer. All connections
share one receive buffer, and each connection with an incomplete request has another one. No task,
future or copy is made for a request. Records of fetches are sent with sendfile, except for small
slices. (A version on asyncio's transports took three to six times the CPU, because of its copies.)

A connection whose request is parked, or whose last response is not sent yet, reads no further
frame. A connection whose requests have taken a millisecond continues in the next round of the loop.
So connections with long requests take turns, and many small pipelined requests are served in a row.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import select
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.broker.outbox import CloseReason
from barnabas.broker.rim.clocks import NS_PER_MS
from barnabas.broker.rim.poller import Sockets
from barnabas.broker.rim.receive_turns import ReceiveTurns
from barnabas.broker.seams.host import HandleFrame
from barnabas.protocol.errors import ProtocolViolation
from barnabas.protocol.framing import FrameBuffer, ReceiveMemory
from barnabas.storage.disk import Slice

if TYPE_CHECKING:
    from barnabas.broker.rim.tls import TlsSocket

logger = logging.getLogger("barnabas.server")

READS_PER_EVENT = 8
TURN_NS = NS_PER_MS  # after this time a connection that has more frames waits for its next turn
SENDFILE_CHUNK_BYTES = 1 << 20
# The maximum bytes of slices that are read for a client that receives slowly. They are read again
# at each attempt to send.
TLS_SLOW_BYTES = 64 * 1024
GATHERED_BYTES = 64 * 1024
# The maximum bytes of small slices that are read at once for one response. Further slices are read
# when the client receives them.
MOST_READ_BYTES = 1 << 20
# smaller slices are read, since sendfile costs as much as a copy of about 8 KiB, and sends a
# separate packet
SMALL_SLICE_BYTES = 4096

# on systems without POLLRDHUP only a broken connection is noticed
_POLL_HUNG_UP = getattr(select, "POLLRDHUP", select.POLLHUP)


class TimedCore(Protocol):
    """The core. timer_is_set: whether the server's timer is early enough."""

    timer_is_set: bool


class ConnectionHost(Protocol):
    """The part of the server that a connection uses.

    sockets: what reports that a connection's socket is ready, the loop or its selector. turns,
    memory: for authenticated clients. greeting_turns, greeting_memory: for other clients.
    on_frame: `Broker.answer_frame`; or `Broker.on_frame`, with a gate and an observer around it, if
    the server has them.
    silence: a function that returns the reason why no data may be sent any more, or None if data
    may be sent. It is None instead of a function if data may always be sent.
    """

    loop: asyncio.AbstractEventLoop
    sockets: Sockets
    turns: ReceiveTurns
    memory: ReceiveMemory
    greeting_turns: ReceiveTurns
    greeting_memory: ReceiveMemory
    max_frame_bytes: int
    max_other_bytes: int
    event_ns: int
    on_frame: HandleFrame
    silence: Callable[[], str | None] | None

    @property
    def broker(self) -> TimedCore:
        """The core."""

    def now_ms(self) -> int:
        """The steady time in ms, for an event that is passed to the core now."""

    def is_past(self, at_ns: int) -> bool:
        """Whether the steady clock has reached a time."""

    def empty_outbox(self) -> None:
        """Carry out the core's outbox. The caller then calls `set_timer`."""

    def set_timer(self) -> None:
        """Set the timer to the core's next deadline."""

    def disconnect(
        self, connection: Connection, reason: CloseReason | None, level: int = logging.WARNING
    ) -> None:
        """End a connection. If there is a reason, it is written to the log."""

    def on_hung_up(self, connection: Connection) -> None:
        """The client of a request in flight will send nothing more."""

    def on_broken(self, connection: Connection, error: OSError) -> None:
        """Handle an error of the connection, or of its TLS handshake."""

    def on_request_failed(self, connection: Connection, error: Exception) -> None:
        """Handle an exception in a request, which ends the connection or the broker."""

    def owner_of(self, connection: Connection) -> str:
        """The principal of the client, or its address."""

    def tls_chunk(self) -> memoryview:
        """The buffer in which bytes for TLS are joined. Only one call may use it at a time."""

    def is_muted(self, connection_id: int) -> bool:
        """Whether nothing is read from the connection because its client is above a quota."""


class Connection:
    """One client's socket.

    in_flight: whether its request has no response yet, or the next request is not allowed yet.
    is_held: whether the response is held back.
    """

    __slots__ = (
        "_buffer", "_gathered", "_gathered_bytes", "_is_active", "_loop", "_out", "_pumping",
        "_quiet_sweeps", "_reading", "_server",
        "_socket", "_sockets", "_turns", "_waits_for_turn", "_writing", "closed", "connection_id",
        "in_flight", "is_held", "peer",
    )  # fmt: skip

    def __init__(
        self,
        server: ConnectionHost,
        connection_id: int,
        sock: socket.socket | TlsSocket,
        peer: str,
        greeting_bytes: int = 0,
    ) -> None:
        """Takes: greeting_bytes, the largest request before the login; 0 if no login is needed."""
        self._server, self._socket, self._loop = server, sock, server.loop
        self._sockets = server.sockets
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
        self.in_flight = self.is_held = self.closed = False
        self._reading = self._writing = self._pumping = self._waits_for_turn = False
        self._is_active = True
        self._quiet_sweeps = 0
        self._resume_reading()

    def _resume_reading(self) -> None:
        """Let the loop report received bytes again."""
        if not self._reading and not self.closed:
            self._reading = True
            self._sockets.add_reader(self._socket.fileno(), self._on_readable)
            self._read_pending()

    def _read_pending(self) -> None:
        """Schedule a read of the bytes that the TLS layer has buffered, since the operating system
        does not report them.
        """
        sock = self._socket
        if not isinstance(sock, socket.socket) and sock.pending():
            self._sockets.call_soon(self._on_readable)

    def _pause_reading(self) -> None:
        """Leave further bytes in the kernel's buffer, which slows the client down."""
        if self._reading:
            self._reading = False
            self._sockets.remove_reader(self._socket.fileno())

    def _on_readable(self) -> None:
        """Receive bytes, and pass every whole frame to the core. Reading pauses only when received
        bytes cannot be passed on.
        """
        if self.closed or self._waits_for_turn:
            return  # the connection was closed after the read of TLS's pending bytes was scheduled
        buffer, server = self._buffer, self._server
        turn_ends_ns, reads_left = 0, READS_PER_EVENT
        while reads_left:
            reads_left -= 1
            if self.in_flight or self._out:
                # The client has sent more before it got its response, or has hung up. Leave these
                # bytes in the kernel's buffer.
                self._pause_reading()
                if self.has_hung_up:
                    server.on_hung_up(self)
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
            buffer.end += count  # `received`, inlined
            self.pump()
            if self.closed or self._waits_for_turn or count < len(view):
                return
            if not turn_ends_ns:
                turn_ends_ns = server.event_ns + TURN_NS
            elif server.is_past(turn_ends_ns):
                break
        self._read_pending()

    def pump(self) -> None:
        """Pass frames to the core as long as each is answered at once, until the turn ends.

        This is one long function, since every request passes it, and a further call would make each
        request slower.
        """
        if self._pumping:
            # A response within the loop below has called this method. The outer call continues the
            # loop.
            return
        self._pumping = True
        server, buffer = self._server, self._buffer
        turn_ends_ns = 0
        try:
            while not (self.in_flight or self._out or self.closed):
                frame = None
                if buffer.end > buffer.start:
                    now_ms = server.now_ms()
                    if not turn_ends_ns:
                        turn_ends_ns = server.event_ns + TURN_NS
                    elif server.event_ns >= turn_ends_ns:
                        self._wait_for_turn()
                        return
                    frame = buffer.next_frame()
                if frame is None:
                    if not self._reading:
                        self._resume_reading()
                    return
                self.in_flight = True
                answer = server.on_frame(self.connection_id, frame, now_ms)
                if answer is not None:
                    self.in_flight = False
                    self.send(answer)
                server.empty_outbox()
        except ProtocolViolation as error:
            server.disconnect(self, str(error))
        except Exception as error:
            server.on_request_failed(self, error)
        finally:
            self._pumping = False
            if turn_ends_ns and not server.broker.timer_is_set:
                server.set_timer()  # once for all requests of the turn
            if buffer.own is None and buffer.start == buffer.end:
                buffer.start = buffer.end = 0  # `keep_rest`, inlined
                is_released = False
            else:
                is_released = buffer.keep_rest()
            if is_released or (
                self._turns.holders and (self.in_flight or self._out) and self._turns.has_turn(self)
            ):
                self._turns.on_released(self)
            if self._gathered and not self.closed:
                self._write_bytes(self._take_gathered())

    def _wait_for_turn(self) -> None:
        """Continue once every other readable connection has had its turn."""
        if not self._waits_for_turn:
            self._waits_for_turn = True
            self._sockets.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._waits_for_turn = False
        self.pump()

    def _take_gathered(self) -> Any:
        """The gathered small answers, of which there is at least one, as one piece."""
        gathered = self._gathered
        piece = gathered[0] if len(gathered) == 1 else b"".join(gathered)
        gathered.clear()
        self._gathered_bytes = 0
        return piece

    @property
    def owner(self) -> str:
        """The principal or address to which the connection's bytes are charged in the memory for
        requests.
        """
        return self._server.owner_of(self)

    @property
    def held_bytes(self) -> int:
        """The number of received bytes that are not passed on yet."""
        return self._buffer.held_bytes

    @property
    def awaits_rest(self) -> bool:
        """Whether the connection has a part of a large request, and waits for the rest."""
        return self._reading and self._buffer.holds_much and not (self.in_flight or self._out)

    def resume_receiving(self) -> None:
        """Read again, since there is memory for more of a large request, or it is this connection's
        turn.
        """
        self._resume_reading()

    def takes_turns_of(self, turns: ReceiveTurns) -> bool:
        """Whether the bytes that the connection holds count towards the given turns."""
        return self._turns is turns

    @property
    def is_admitted(self) -> bool:
        """Whether the TLS handshake is done, and the client is authenticated if it has to be."""
        sock = self._socket
        return self._turns is self._server.turns and (
            isinstance(sock, socket.socket) or sock.is_set_up
        )

    @property
    def has_failed_certificate(self) -> bool:
        """Whether the client had to present a valid certificate and did not."""
        sock = self._socket
        return not isinstance(sock, socket.socket) and sock.is_to_identify

    def admit(self) -> None:
        """Lift the smaller limit of requests, since the client is authenticated."""
        server = self._server
        self._buffer.set_limit(server.max_frame_bytes)
        if self._turns is not server.turns:
            self._buffer.move_to(server.memory)
            self._turns.on_released(self)
            self._turns = server.turns

    def mute(self) -> None:
        """Pass no further request to the core until `unmute`."""
        self.in_flight = True

    def unmute(self) -> None:
        """Continue after the client's throttle time, unless the response is held back."""
        if not self.is_held:
            self.in_flight = False
            self.wake()

    def hold(self) -> None:
        """Record that the response is held back. The next request is passed on only after
        `release`.
        """
        self.in_flight = self.is_held = True

    def release(self) -> None:
        """Record that the response is no longer held back."""
        self.is_held = False
        self.in_flight = self._server.is_muted(self.connection_id)

    @property
    def has_hung_up(self) -> bool:
        """Whether the client of a request in flight will send nothing more, or has closed the
        connection. Unread bytes before the end do not matter.
        """
        if not self.in_flight or self._reading or self.closed:
            return False
        poll = select.poll()
        poll.register(self._socket.fileno(), _POLL_HUNG_UP)
        return bool(poll.poll(0))

    def hang_up(self, reason: str) -> None:
        self._server.disconnect(self, reason)

    def wake(self) -> None:
        """Continue with waiting frames, after a response was sent outside of this connection's own
        events.
        """
        if not self._pumping and (not self._reading or self._buffer.held_bytes):
            self._sockets.call_soon(self.pump)

    def send(self, pieces: Any) -> None:
        """Send as much of a response as the socket accepts, and the rest when the socket is
        writable.

        While this connection's own frames are processed, small responses are gathered and sent
        together, so that a client that pipelines its requests gets as few packets as it sent.
        """
        if len(pieces) > 1:
            try:
                pieces = _with_small_slices_read(pieces)
            except OSError as error:
                self._server.disconnect(self, str(error))
                return
        if self._pumping and len(pieces) == 1 and type(piece := pieces[0]) is not Slice:
            self._gathered.append(piece)
            self._gathered_bytes += len(piece)
            if self._gathered_bytes >= GATHERED_BYTES:
                self._write_bytes(self._take_gathered())
            return
        self._write((self._take_gathered(), *pieces) if self._gathered else pieces)

    def _is_silenced(self) -> bool:
        """Whether no data may be sent any more. If this is so, the connection is closed."""
        silence = self._server.silence
        why = None if silence is None else silence()
        if why is not None:
            self._server.disconnect(self, why)
        return why is not None

    def _write(self, pieces: Sequence[Any]) -> None:
        """Send pieces, after the pieces that are still unsent."""
        if len(pieces) == 1 and type(pieces[0]) is not Slice:
            self._write_bytes(pieces[0])
            return
        if self._server.silence is not None and self._is_silenced():
            return
        is_waiting = bool(self._out)
        self._out.extend(pieces)
        if not is_waiting:
            self._flush()

    def _write_bytes(self, data: Any) -> None:
        """Send one piece of bytes, the usual case: without the queue, unless there is one."""
        if self._server.silence is not None and self._is_silenced():
            return
        out = self._out
        if out:
            out.append(data)
            return
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

    def _on_writable(self) -> None:
        """Send more of the unsent bytes; after the last one continue with the client's next
        request.
        """
        self._is_active = True
        self._flush()
        if not self._out and not self.closed:
            self.pump()

    def _flush(self) -> None:
        """Send the queued pieces until the socket accepts no more; slices are sent from their files
        by sendfile.
        """
        if self._server.silence is not None and self._is_silenced():
            return
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
            self._sockets.remove_writer(sock.fileno())

    def _flush_through_tls(self, sock: TlsSocket) -> None:
        """Send the unsent bytes in pieces of equal size, since a call has a fixed cost, whatever
        the size. OpenSSL requires a refused piece to be sent again with the same bytes and length.
        """
        out, chunk = self._out, self._server.tls_chunk()
        while out:
            if type(out[0]) is Slice or len(out[0]) < len(chunk):
                most = sock.refused_bytes or (TLS_SLOW_BYTES if self._writing else len(chunk))
                self._drop_sent(sock.send(chunk[: _gathered_into(chunk[:most], out)]))
            else:
                self._drop_sent(sock.send(out[0]))

    def _drop_sent(self, size: int) -> None:
        """Remove bytes that have just been sent from the unsent bytes. Takes: size, the number of
        bytes that were sent.
        """
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
        """Let the loop report when the socket accepts more."""
        if not self._writing:
            self._writing = True
            self._sockets.add_writer(self._socket.fileno(), self._on_writable)

    @property
    def has_stirred(self) -> bool:
        """Whether bytes were received or sent since the last sweep, or a request is in flight."""
        return self._is_active or self.in_flight

    def quiet_sweeps(self) -> int:
        """The number of sweeps in a row without any activity. Called once in each sweep."""
        if self.has_stirred:
            self._is_active = (
                self.in_flight
            )  # the response to a request in flight counts as activity after this sweep
            self._quiet_sweeps = 0
        else:
            self._quiet_sweeps += 1
        return self._quiet_sweeps

    def socket_option(self, level: int, option: int, size: int) -> bytes:
        """The value of a socket option, as bytes. Raises: OSError."""
        return self._socket.getsockopt(level, option, size)

    def close(self) -> None:
        """Close the socket. Unsent bytes are lost."""
        if self.closed:
            return
        self.closed = True
        silence = self._server.silence
        if self._gathered and not self._out and (silence is None or silence() is None):
            # Send the gathered responses: their requests were answered before the reason for
            # closing occurred.
            with contextlib.suppress(OSError):
                self._socket.send(self._take_gathered())
        self._pause_reading()
        if self._writing:
            self._sockets.remove_writer(self._socket.fileno())
        self._out.clear()
        self._socket.close()
        self._buffer.drop()
        self._turns.on_released(self)


def _with_small_slices_read(pieces: Iterable[Any]) -> list[Any]:
    """The pieces of a response, with small slices read and joined to the bytes around them.

    So the response to a reader of a thousand partitions is one piece instead of two thousand.
    Slices beyond `MOST_READ_BYTES` are not read, since the client may never receive them.
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
    """Copy the first unsent bytes to `room`. Gives: how many bytes were copied."""
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
    return OSError(errno.EIO, f"{piece.file.path} is shorter than the answer to a fetch promised")
