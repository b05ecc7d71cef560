"""Splits the bytes of a connection into whole frames; reads and writes headers.

A frame is an int32 size, followed by that many bytes. A request header has one of two forms (a
third, v0, is used only by ControlledShutdown, which the broker does not support):

    v1   int16 api_key, int16 api_version, int32 correlation_id, nullable string client_id
    v2   the same (client_id still with an int16 length), then tagged fields

There are two response headers. v0 is an int32 correlation_id; v1 adds tagged fields. The response
to ApiVersions always has v0, which any client can read (KIP-511). Source: the protocol guide;
KIP-482 (flexible versions).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from barnabas.protocol.api import Api
from barnabas.protocol.api_table import API_VERSIONS, BY_KEY, RESPONSE_TAGGED_FROM
from barnabas.protocol.errors import ProtocolViolation
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import MOST_TAGGED_FIELDS, skip_tags

Response = TypeVar("Response", bound=Message)

SIZE = struct.Struct(">i")
API_KEY = struct.Struct(">h")
PRODUCE = 0
HEADER = struct.Struct(">hhi")
CLIENT_ID_SIZE = struct.Struct(">h")
_HEADER_START = struct.Struct(">hhih")  # the header, and the size of the client id
_WHOLE_START = struct.Struct(">iih")  # the same, with the key and the version as one number
# the size of a client id in a header that is remembered, and how many are
_LONGEST_CLIENT_ID, _MOST_HEADERS = 128, 1000
# by the size of a client id: this size, the id, and one byte more
_CLIENT_ID_FORMS = [struct.Struct(f"{size + 3}s") for size in range(_LONGEST_CLIENT_ID)]
KnownHeaders = dict  # what holds them; the simulator puts one that forgets in its place
SHARED_BYTES = 256 * 1024
# the maximum number of bytes to receive in one call while the limit of ReceiveMemory is reached
SCARCE_BYTES = 16 * 1024
SMALL_BYTES = 64 * 1024  # a connection that holds at most this many bytes never has to wait
FEWEST_BYTES, GROWTH = 1024, 4
KEPT_BYTES, KEPT_BUFFERS, KEPT_FACTOR = 4 * 1024 * 1024, 2, 8
# a larger frame keeps its buffer for itself, so that the buffer does not receive further bytes
GIVEN_AWAY_BYTES = 8 * 1024 * 1024
Buffer = bytearray | mmap.mmap


class RequestHeader(NamedTuple):
    """The fields before a request's body, and the position of the body.

    `api` is None if the broker does not support the request in that version.
    """

    api: Api | None
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    body_start: int


HeaderFields = tuple[Api | None, int, int, str, int]
"""The fields of a `RequestHeader` without the correlation id."""


class ReceiveMemory:
    """The receive buffers of the connections of one loop, and the limit of their total size.

    Bytes arrive in one shared buffer. A connection has a buffer of its own only while it holds a
    part of a request, or requests that wait for their turn. A few returned buffers are kept and
    used again.

    shared: a view of the shared buffer. held_bytes: the total size of the connections' own buffers.
    worked_bytes: the size of whole requests that a thread decodes or checks. max_bytes: the limit
    of the sum of both; no limit if negative.
    """

    __slots__ = ("_kept", "held_bytes", "max_bytes", "shared", "worked_bytes")

    def __init__(self, max_bytes: int = -1, shared: memoryview | None = None) -> None:
        """Make the memory of a loop.

        Takes:  max_bytes, the limit of its size; shared, the buffer of another ReceiveMemory of the
                loop; None makes a new one.
        """
        self.max_bytes = max_bytes
        self.shared = memoryview(bytearray(SHARED_BYTES)) if shared is None else shared
        self.held_bytes = self.worked_bytes = 0
        self._kept: list[bytearray] = []

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached. While it is, connections have to take turns."""
        return 0 <= self.max_bytes <= self.held_bytes + self.worked_bytes

    @property
    def is_full_of_work(self) -> bool:
        """Whether whole requests account for half of the limit.

        In that case no connection receives more bytes, since the worker will soon release memory.
        """
        return 0 <= self.max_bytes <= 2 * self.worked_bytes and self.worked_bytes > 0

    def take(self, size: int) -> Buffer:
        """Return a buffer of at least the given size."""
        # A kept buffer is used again if it is large enough, but not if it is many times too large.
        # Otherwise a small request would hold megabytes.
        buffer = next(
            (kept for kept in self._kept if size <= len(kept) <= KEPT_FACTOR * size), None
        )
        if buffer is not None:
            self._kept.remove(buffer)
            self.held_bytes += len(buffer)
            return buffer
        self.held_bytes += size
        if size <= KEPT_BYTES:
            return bytearray(size)
        # A bytearray of 100 MB is filled with zeros immediately, which takes 50 ms. The pages of a
        # mapping are only made when bytes are received into them.
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def give(self, buffer: Buffer) -> None:
        """Give a buffer back. A few buffers of medium size are kept for `take`."""
        self.held_bytes -= len(buffer)
        is_kept = SHARED_BYTES <= len(buffer) <= KEPT_BYTES and len(self._kept) < KEPT_BUFFERS
        if is_kept and isinstance(buffer, bytearray):
            self._kept.append(buffer)


class FrameBuffer:
    """Returns whole frames as views into the received bytes, and keeps the bytes of partial frames.

    Order of use: `writable()` -> receive into it -> `received(n)` -> `next_frame()` until None, or
    until the caller wants no further frame -> `keep_rest()`. `keep_rest()` has to be called before
    another FrameBuffer of the same memory receives, since both use the shared buffer. A frame is
    valid until `keep_rest()`. A frame of more than `GIVEN_AWAY_BYTES` remains valid as long as it
    is referenced, since copying 100 MiB takes 50 ms. A buffer grows only as bytes are received. No
    memory is allocated just because a frame declares a large size.

    own: the connection's own buffer; None while it receives into the shared one. start, end: where
    the bytes that have not yet been returned in a frame begin and end.
    """

    __slots__ = (
        "_max_other_bytes",
        "_memory",
        "_usual_bytes",
        "_view",
        "end",
        "max_frame_bytes",
        "own",
        "start",
    )

    def __init__(
        self, max_frame_bytes: int, memory: ReceiveMemory, max_other_bytes: int | None = None
    ) -> None:
        """Takes:  max_other_bytes, the limit for requests other than Produce; None for
        max_frame_bytes.
        """
        self._max_other_bytes = max_frame_bytes if max_other_bytes is None else max_other_bytes
        self.set_limit(max_frame_bytes)
        self._memory = memory
        self.own: Buffer | None = None
        self._view = memory.shared
        self.start = self.end = 0

    def set_limit(self, max_frame_bytes: int) -> None:
        """Set the largest size of a frame."""
        self.max_frame_bytes = max_frame_bytes
        # no limit depends on what such a frame is
        self._usual_bytes = min(max_frame_bytes, self._max_other_bytes, GIVEN_AWAY_BYTES)

    def writable(self) -> memoryview:
        """Return the memory to receive into, which is never empty."""
        if self.own is None:
            # The first part of the test is false in the usual case, and saves the computation of
            # `is_full`.
            memory = self._memory
            if (memory.held_bytes or memory.worked_bytes) and memory.is_full:
                return self._view[:SCARCE_BYTES]
            return self._view
        if self.end == len(self.own):
            # If at most half of the buffer is unread, moving these bytes to the front is cheap.
            # Otherwise the buffer has to grow.
            if 2 * (self.end - self.start) <= len(self.own):
                self._move_to_front()
            else:
                self._move_to_own()
        return self._view[self.end :]

    def received(self, count: int) -> None:
        """Record that `count` bytes were received at the start of `writable()`."""
        self.end += count

    @property
    def held_bytes(self) -> int:
        """The number of received bytes that have not yet been returned in a frame."""
        return self.end - self.start

    @property
    def holds_much(self) -> bool:
        """Whether the connection's own buffer is large, or the frame whose start it contains."""
        return self.own is not None and (
            len(self.own) > SMALL_BYTES or self._wanted_bytes() > SMALL_BYTES
        )

    def next_frame(self) -> memoryview | None:
        """Return the next whole frame without its size field, or None if it is not complete.

        Raises: ProtocolViolation if the size is 0 or less, or above the limit. It is raised before
                the rest of the frame is received.
        """
        start = self.start + 4
        received_end = self.end
        if received_end < start:
            return None
        size = SIZE.unpack_from(self._view, self.start)[0]
        if not 0 < size <= self._usual_bytes:
            self._check_size(size, start)
        end = start + size
        if received_end < end:
            return None
        # `start` is moved before this call, since `_give_away` copies the bytes after `start`.
        self.start = end
        frame = self._view[start:end]
        if size > GIVEN_AWAY_BYTES:
            self._give_away()
        return frame

    def _check_size(self, size: int, start: int) -> None:
        """Reject a size that is above a limit, or not positive. Takes: start, the position of the
        frame, of which perhaps nothing is received yet.
        """
        if not 0 < size <= self.max_frame_bytes:
            raise ProtocolViolation(
                f"a request of {size} bytes: it must be between 1 and {self.max_frame_bytes} "
                "(socket.request.max.bytes; sasl.server.max.receive.size before authentication)"
                + hint_of_other_protocol(bytes(self._view[self.start : start]))
            )
        # The first two bytes of the frame contain the API key, so a request that is too large is
        # rejected before its body is received.
        if size > self._max_other_bytes and self.end >= start + API_KEY.size:
            self._check_other(start, size)

    def _check_other(self, start: int, size: int) -> None:
        """Reject a large request that is not a Produce. A megabyte of it could become 100,000
        objects.
        """
        (api_key,) = API_KEY.unpack_from(self._view, start)
        if api_key != PRODUCE:
            api = BY_KEY.get(api_key)
            raise ProtocolViolation(
                f"a {api.name if api else 'request with API key ' + str(api_key)} of {size} bytes: "
                "only Produce may have more "
                f"than {self._max_other_bytes} (barnabas.request.max.bytes)"
            )

    def keep_rest(self) -> bool:
        """Move unread bytes from the shared buffer to the connection's own buffer. If no bytes are
        unread, give the own buffer back.

        Gives:  whether a buffer was given back to the memory.
        """
        if self.start == self.end:
            self.start = self.end = 0
            return self.own is not None and self._give_back()
        if self.own is None:
            self._move_to_own()
        return False

    def move_to(self, memory: ReceiveMemory) -> None:
        """Count the connection's own buffer in another memory, which has the same shared buffer."""
        assert memory.shared is self._memory.shared
        if self.own is not None:
            self._memory.held_bytes -= len(self.own)
            memory.held_bytes += len(self.own)
        self._memory = memory

    def drop(self) -> None:
        """Discard all unread bytes."""
        self.start = self.end = 0
        if self.own is not None:
            self._give_back()

    def _give_back(self) -> bool:
        """Give the connection's own buffer back, and receive into the shared buffer again."""
        assert self.own is not None
        self._memory.give(self.own)
        self.own, self._view = None, self._memory.shared
        return True

    def _give_away(self) -> None:
        """Leave the buffer to the last frame that it contains, and move the unread bytes to a new
        buffer.
        """
        before = self.own
        assert before is not None, "a large frame is larger than the shared buffer"
        self._move_to_own()
        # `give` keeps only buffers of at most KEPT_BYTES, which is below GIVEN_AWAY_BYTES. No other
        # connection therefore gets the frame's buffer while the frame is in use.
        assert self.own is not before

    def _wanted_bytes(self) -> int:
        """Return the size of the partial frame, including its size field, or 0 if it is unknown."""
        if self.end - self.start < 4:
            return 0
        size: int = SIZE.unpack_from(self._view, self.start)[0]
        return 4 + size if 0 < size <= self.max_frame_bytes else 0

    def _move_to_front(self) -> None:
        """Move the unread bytes to the beginning of the own buffer, which frees the rest."""
        assert self.own is not None
        held = self.end - self.start
        self.own[:held] = self.own[self.start : self.end]
        self.start, self.end = 0, held

    def _move_to_own(self) -> None:
        """Move the unread bytes to a buffer of the connection's own. If much of the frame has
        arrived, the buffer is large enough for the rest.
        """
        held = self.end - self.start
        # The new size is never more than GROWTH times the received bytes, whatever size the frame
        # declares. It is more than the held bytes, as `writable()` must not be empty.
        size = max(FEWEST_BYTES, held + 1, min(self._wanted_bytes(), GROWTH * held))
        own, before = self._memory.take(size), self.own
        own[:held] = self._view[self.start : self.end]
        self.own, self._view = own, memoryview(own)
        self.start, self.end = 0, held
        if before is not None:
            self._memory.give(before)


def hint_of_other_protocol(first_bytes: bytes) -> str:
    """Return a hint for the error message if the peer seems to use another protocol; otherwise "".

    The hint names the security protocol to set, or says what the peer seems to be.
    """
    # a TLS handshake record begins with its type, 22, and version 3.x
    if first_bytes[:2] == b"\x16\x03":
        return (
            "; it looks like TLS, which this listener does not support: set "
            "security.protocol=PLAINTEXT (or SASL_PLAINTEXT) in the client"
        )
    if first_bytes in (b"GET ", b"POST", b"HEAD", b"PUT "):
        return "; it looks like HTTP: this port speaks Kafka's protocol"
    return ""


def read_request_header(frame: memoryview, apis: Mapping[int, Api] = BY_KEY) -> RequestHeader:
    """Parse a request's header. Takes, raises: as `header_fields`."""
    return RequestHeader(*header_fields(frame, apis))


def header_fields(
    frame: memoryview, apis: Mapping[int, Api]
) -> tuple[Api | None, int, int, int, str, int]:
    """Parse a request's header. Gives: the fields of a `RequestHeader`, as a plain tuple, since
    every request needs them.

    Takes:  apis, the supported APIs by key.
    Raises: ProtocolViolation if the header or its tagged fields are cut off.
    """
    try:
        api_key, api_version, correlation_id, size = _HEADER_START.unpack_from(frame)
        api = apis.get(api_key)
        position = 10
        client_id = ""
        if size > 0:
            position += size
            if position > len(frame):
                raise ProtocolViolation("a client id is longer than its request")
            client_id = str(frame[10:position], "utf-8", "replace")
        if api is None:
            # For an unknown API it is unknown whether tagged fields follow. The position is not
            # used then.
            return None, api_key, api_version, correlation_id, client_id, position
        if api_version >= api.flexible_from:
            # the count is nearly always 0, in which case the call is not needed
            if frame[position]:
                position = skip_tagged_fields(frame, position)
            else:
                position += 1
        if not api.min_version <= api_version <= api.max_version:
            api = None
        return api, api_key, api_version, correlation_id, client_id, position
    except (struct.error, IndexError) as error:
        raise ProtocolViolation("a request's header is cut off") from error


class HeaderReader:
    """Reads the headers of a broker's requests.

    A client sends the same bytes around the correlation id again and again. `_known` has what such
    bytes mean: for the API key and version, and the bytes from the client id on. It depends on
    nothing else but the supported APIs, so it never has to be forgotten, but for the space.
    """

    __slots__ = ("_apis", "_known")

    def __init__(self, apis: Mapping[int, Api]) -> None:
        """Takes: apis, the supported APIs by key."""
        self._apis = apis
        self._known: dict[tuple[int, bytes], HeaderFields] = KnownHeaders()

    def read(self, frame: memoryview) -> tuple[HeaderFields, int]:
        """Parse a request's header. Gives: its fields, and its correlation id.

        Raises: ProtocolViolation if the header or its tagged fields are cut off.
        """
        key = None
        try:
            key_and_version, correlation_id, size = _WHOLE_START.unpack_from(frame)
            if 0 <= size < _LONGEST_CLIENT_ID:
                # with one byte more, which is 0 if a flexible header has no tagged fields
                key = key_and_version, _CLIENT_ID_FORMS[size].unpack_from(frame, 8)[0]
                known = self._known.get(key)
                if known is not None:
                    return known, correlation_id
        except struct.error:
            pass  # it may be cut off; `header_fields` finds out
        api, api_key, version, correlation_id, client_id, body_start = header_fields(
            frame, self._apis
        )
        row = api, api_key, version, client_id, body_start
        if key is not None and api is not None and body_start <= _WHOLE_START.size + size + 1:
            if len(self._known) >= _MOST_HEADERS:
                self._known.clear()
            self._known[key] = row
        return row, correlation_id


def skip_tagged_fields(frame: memoryview, position: int) -> int:
    """Return the position after a header's tagged fields, at which the body begins.

    Format: uvarint count | [ uvarint tag, uvarint size, bytes ]. Raises: ProtocolViolation.
    """
    count, position = _uvarint(frame, position)
    if count > MOST_TAGGED_FIELDS:
        raise ProtocolViolation(
            f"a request's header has more than {MOST_TAGGED_FIELDS} tagged fields"
        )
    for _ in range(count):
        _, position = _uvarint(frame, position)
        size, position = _uvarint(frame, position)
        position += size
        if position > len(frame):
            raise ProtocolViolation("a tagged field is longer than its request")
    return position


def _uvarint(frame: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint, and the position after it. Raises: ProtocolViolation if it is too
    long.
    """
    value = shift = 0
    while True:
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 28:  # a sixth byte would exceed the 32 bits of a uvarint
            raise ProtocolViolation("a varint is longer than five bytes")


def response_has_tagged_header(api: Api, api_version: int) -> bool:
    """Whether the header of the response is v1, which has tagged fields."""
    return api_version >= RESPONSE_TAGGED_FROM[api.key]


# --- the client's side --------------------------------------------------------------------------


def encode_request(
    request: Message, version: int, correlation_id: int, client_id: str | None
) -> bytearray:
    """Encode the whole frame of a request, including its size."""
    name = b"" if client_id is None else client_id.encode()
    out = bytearray(SIZE.size)
    out += HEADER.pack(request.API_KEY, version, correlation_id)
    out += CLIENT_ID_SIZE.pack(-1 if client_id is None else len(name)) + name
    if version >= request.FLEXIBLE_FROM:
        out.append(0)  # no tagged fields
    request.write(out, version)
    SIZE.pack_into(out, 0, len(out) - SIZE.size)
    return out


def decode_response(
    response_class: type[Response], frame: memoryview | bytes, version: int
) -> tuple[int, Response]:
    """Decode a response from a frame without its size field. Gives: (correlation id, message).

    Raises: MalformedMessageError, IndexError or struct.error if the response cannot be read.
    """
    (correlation_id,) = SIZE.unpack_from(frame)
    at = SIZE.size
    if version >= response_class.FLEXIBLE_FROM and response_class.API_KEY != API_VERSIONS:
        at = skip_tags(frame, at)
    return correlation_id, response_class.read(frame, at, version)[0]
