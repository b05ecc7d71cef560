"""The messages between a leader and its standby. Each is a frame: its size as uint32, and a msgpack
list.

    standby -> leader                        leader -> standby
    ["hello", version, nonce]                ["challenge", nonce, proof of the standby's nonce]
    ["proof", of the leader's nonce,         ["welcome", cluster id]
     node id, its address, {listener: address}]
    ["have", [[path, size, [crc, ...]], …]]
    ["end"]                                  ["do", [[kind, path, position, data, new path], …]]
                                             ["caught up", position, which responses wait]
                                             ["do", [...], position]
    ["applied", position]                    ["ping"]
                                             ["refused", why]: instead of a welcome

A large file is listed in several rows, which have the same path and size and the next checksums. A
proof is the HMAC-SHA256 of `role + nonce` with the common secret as key. Each side proves that it
knows the secret before the other sends any byte of a record. A position counts the leader's
operations while a standby is connected. Source: none, since the protocol is Barnabas's own.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

import msgpack

from barnabas.replication.operations import Kind, Operation

VERSION = 3
# maximum size of a frame: that of the largest request that a broker accepts, plus its envelope
MOST_BYTES = 256 << 20
MOST_BEFORE_PROOF = 4096
NONCE_BYTES = 32
_SIZE = struct.Struct(">I")


class WireError(Exception):
    """The other side sent an invalid message, or does not know the secret."""


class AnswersWait(Enum):
    """Which responses to clients wait until the standby has everything that was done before them.

    WHILE_IN_SYNC: responses wait as long as the standby is in the lease's in-sync set. ALWAYS: all
    responses wait; a leader without a standby sends none.
    """

    NEVER = "never"
    WHILE_IN_SYNC = "while in sync"
    ALWAYS = "always"


def frame(message: Sequence[Any]) -> bytes:
    """Encode a message with its size before it."""
    body: bytes = msgpack.packb(message, use_bin_type=True)
    return _SIZE.pack(len(body)) + body


class Frames:
    """Splits received bytes into messages. most_bytes: the maximum size of a message."""

    def __init__(self, most_bytes: int = MOST_BEFORE_PROOF) -> None:
        self.most_bytes = most_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[list[Any]]:
        """Add bytes. Gives: the messages that are complete now. Raises: WireError."""
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= _SIZE.size:
                (size,) = _SIZE.unpack_from(buffer, start)
                if size > self.most_bytes:
                    raise WireError(f"a message of {size} bytes")
                end = start + _SIZE.size + size
                if len(buffer) < end:
                    break
                body = bytes(memoryview(buffer)[start + _SIZE.size : end])
                start = end
                yield _message(body)
        finally:
            del buffer[:start]


def _message(body: bytes) -> list[Any]:
    """Decode the body of a frame: a list that begins with the message's name. Raises: WireError."""
    try:
        message = msgpack.unpackb(body, use_list=True)
    except (ValueError, msgpack.UnpackException) as error:
        raise WireError(f"a message cannot be read: {error}") from error
    if not isinstance(message, list) or not message or not isinstance(message[0], str):
        raise WireError("a message is not a list that begins with its name")
    return message


def proof(secret: str, role: str, nonce: bytes) -> bytes:
    """The proof that a side knows the secret. role: "leader" or "standby"."""
    return hmac.digest(secret.encode(), role.encode() + nonce, "sha256")


def pack(operation: Operation) -> list[Any]:
    """The fields of an operation, as a message contains them."""
    kind, path, position, _, new_path = operation
    return [int(kind), path, position, operation.content, new_path]


def unpack(row: Any) -> Operation:
    """The operation that the fields in a message describe. Raises: WireError."""
    try:
        kind, path, position, data, new_path = row
        operation = Operation(Kind(kind), path, position, data, new_path)
    except (TypeError, ValueError) as error:
        raise WireError(f"an operation cannot be read: {error}") from error
    if not (
        isinstance(path, str)
        and isinstance(position, int)
        and isinstance(data, bytes)
        and isinstance(new_path, str)
        and position >= 0
    ):
        raise WireError("an operation has a field of another type")
    return operation
