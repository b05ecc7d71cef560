"""Bytes from a connection -> whole frames; request headers and response headers.

A frame is an int32 size and so many bytes. A request header, of which v0 has the first two fields only (ControlledShutdown, not spoken here):

    v1   int16 api_key, int16 api_version, int32 correlation_id, nullable string client_id
    v2   the same (client_id still with an int16 length), then tagged fields

A response header is v0: int32 correlation_id; v1: the same and tagged fields. ApiVersions is always answered with v0, so that any client can
read it (KIP-511). Source: the protocol guide; KIP-482 (flexible versions).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from protocol.api_table import API_VERSIONS, BY_KEY, Api
from protocol.errors import ProtocolViolation

SIZE = struct.Struct(">i")
HEADER = struct.Struct(">hhi")
CLIENT_ID_SIZE = struct.Struct(">h")
INITIAL_BYTES = 64 * 1024
KEPT_BYTES = 4 * 1024 * 1024


class RequestHeader(NamedTuple):
    """What stands before a request's body, and where the body begins. `api` is None when the request is not spoken in that version."""

    api: Api | None
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    body_start: int


class FrameBuffer:
    """Collects received bytes in one reused buffer and gives out whole frames as views into it.

    Order of use: `writable()` -> receive into it -> `received(n)` -> `next_frame()` until None. A frame is valid until the next
    `writable()`. The buffer grows as bytes come in, never on the word of a size alone, and goes back to its first size after large frames.
    """

    __slots__ = ("_buffer", "_end", "_max_frame_bytes", "_start", "_view")

    def __init__(self, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray(INITIAL_BYTES)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0

    def writable(self) -> memoryview:
        """Where to receive to; never empty."""
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._buffer) > KEPT_BYTES:
                self._resize(INITIAL_BYTES)
        if self._end == len(self._buffer):
            if 2 * (self._end - self._start) <= len(self._buffer):
                self._move_to_front()
            else:
                self._resize(len(self._buffer) * 2)
        return self._view[self._end :]

    def received(self, count: int) -> None:
        """So many bytes were put at the start of what `writable()` gave."""
        self._end += count

    @property
    def held_bytes(self) -> int:
        """How much was received and not yet given out."""
        return self._end - self._start

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size, or None.

        Raises: ProtocolViolation on a size below 0 or above the limit.
        """
        start = self._start + 4
        if self._end < start:
            return None
        (size,) = SIZE.unpack_from(self._buffer, self._start)
        if not 0 < size <= self._max_frame_bytes:
            raise ProtocolViolation(
                f"a request of {size} bytes: it must be between 1 and {self._max_frame_bytes} (socket.request.max.bytes)"
                + hint_of_other_protocol(bytes(self._view[self._start : start]))
            )
        if self._end < start + size:
            return None
        self._start = start + size
        return self._view[start : start + size]

    def _move_to_front(self) -> None:
        held = self._end - self._start
        self._buffer[:held] = self._buffer[self._start : self._end]
        self._start, self._end = 0, held

    def _resize(self, size: int) -> None:
        held = self._end - self._start
        buffer = bytearray(size)
        buffer[:held] = self._view[self._start : self._end]
        self._buffer, self._view = buffer, memoryview(buffer)  # a new object: views of the old one may still be held
        self._start, self._end = 0, held


def hint_of_other_protocol(first_bytes: bytes) -> str:
    """A word on what the peer seems to speak instead."""
    if first_bytes[:2] == b"\x16\x03":
        return "; it looks like TLS, and this listener is PLAINTEXT: set security.protocol=PLAINTEXT in the client"
    if first_bytes in (b"GET ", b"POST", b"HEAD", b"PUT "):
        return "; it looks like HTTP: this port speaks Kafka's protocol"
    return ""


def read_request_header(frame: memoryview) -> RequestHeader:
    """Parse a request's header.

    Raises: ProtocolViolation where the header is cut off or its tagged fields are.
    """
    try:
        api_key, api_version, correlation_id = HEADER.unpack_from(frame)
        api = BY_KEY.get(api_key)
        (size,) = CLIENT_ID_SIZE.unpack_from(frame, 8)
        position = 10
        client_id = ""
        if size > 0:
            position += size
            if position > len(frame):
                raise ProtocolViolation("a client id is longer than its request")
            client_id = str(frame[10:position], "utf-8", "replace")
        if api is None:
            return RequestHeader(None, api_key, api_version, correlation_id, client_id, position)
        if api_version >= api.flexible_from:
            if frame[position]:
                position = skip_tagged_fields(frame, position)
            else:
                position += 1
        spoken = api.min_version <= api_version <= api.max_version
        return RequestHeader(api if spoken else None, api_key, api_version, correlation_id, client_id, position)
    except (struct.error, IndexError) as error:
        raise ProtocolViolation("a request's header is cut off") from error


def skip_tagged_fields(frame: memoryview, position: int) -> int:
    """Where the body begins behind a header's tagged fields. uvarint count | [ uvarint tag, uvarint size, bytes ]. Raises ProtocolViolation."""
    count, position = _uvarint(frame, position)
    for _ in range(count):
        _, position = _uvarint(frame, position)
        size, position = _uvarint(frame, position)
        position += size
        if position > len(frame):
            raise ProtocolViolation("a tagged field is longer than its request")
    return position


def _uvarint(frame: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            raise ProtocolViolation("a varint is longer than five bytes")


def response_has_tagged_header(api: Api, api_version: int) -> bool:
    """Whether a response's header is v1."""
    return api_version >= api.flexible_from and api.key != API_VERSIONS
