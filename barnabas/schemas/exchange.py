"""The messages between the console and its decoding process, over a socket.

    settings   uint32 size, JSON: the fields of RegistrySettings; once, at the beginning
    request    uint32 size of what follows, then each key or value: uint32 size, bytes
    begun      for each of them, in order, one byte: its schema is there, or cannot be had. From now
               on the console waits for DECODING_S, and then ends the process
    answer     after it: uint8 whether it was decoded, uint32 schema id, uint8 size of the kind,
               uint32 size of the text; then the kind and the text: JSON, or an error

Numbers are big-endian, texts UTF-8.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence

MOST_PART_BYTES = 1 << 20
"""A longer key or value is not sent."""
MOST_TEXT_BYTES = 1 << 20
"""A longer JSON text is not sent back."""
REGISTRY_TIMEOUT_S = 3.0
SCHEMA_S = 8.0
"""The time limit for requesting and compiling one schema."""
PART_S = 1.0
"""The time limit for decoding one key or value, by an alarm, which code in C may not notice."""
DECODING_S = 2.0
"""The time after which the console ends a process that decodes one key or value."""
REQUEST_S = 2.0
"""The time limit for one request: the rest of it is answered with an error."""
BEGUN = b"\2"
NO_TIME = "it was not decoded, since others took the time: narrow the search, or open the record"
_SIZE = struct.Struct(">I")
_ANSWER = struct.Struct(">BIBI")
Receive = Callable[[int], bytes]
"""A function that receives exactly that many bytes. Raises: EOFError."""


def receiver(sock: socket.socket) -> Receive:
    """A function that receives exactly that many bytes from a socket. It raises EOFError at the
    end, and OSError.
    """
    buffer = bytearray()

    def receive(size: int) -> bytes:
        while len(buffer) < size:
            more = sock.recv(1 << 16)
            if not more:
                raise EOFError
            buffer.extend(more)
        data = bytes(buffer[:size])
        del buffer[:size]
        return data

    return receive


def pack(data: bytes) -> bytes:
    """The data, preceded by their size."""
    return _SIZE.pack(len(data)) + data


def pack_request(parts: Sequence[bytes]) -> bytes:
    """A request to decode keys and values."""
    return pack(b"".join(map(pack, parts)))


def read_sized(receive: Receive) -> bytes:
    """Receive data that are preceded by their size."""
    return receive(_SIZE.unpack(receive(_SIZE.size))[0])


def read_request(receive: Receive) -> list[bytes]:
    """The keys and values of a request."""
    data, at, parts = read_sized(receive), 0, []
    while at < len(data):
        start = at + _SIZE.size
        at = start + _SIZE.unpack_from(data, at)[0]
        parts.append(data[start:at])
    return parts


def pack_answer(is_decoded: bool, schema_id: int, kind: str, text: str) -> bytes:
    """The answer about one key or value."""
    encoded, kind_bytes = text.encode("utf-8", "replace"), kind.encode()[:255]
    head = _ANSWER.pack(is_decoded, schema_id, len(kind_bytes), len(encoded))
    return head + kind_bytes + encoded


def read_answer(receive: Receive) -> tuple[bool, int, str, str]:
    """Whether a key or value was decoded, its schema's id and kind, and JSON or an error."""
    is_decoded, schema_id, kind_size, text_size = _ANSWER.unpack(receive(_ANSWER.size))
    return bool(is_decoded), schema_id, receive(kind_size).decode(), receive(text_size).decode()
