"""What a reader of requests gives for some bytes, to compare two of them.

outcome()   the request and its end, or None if the reader refused the bytes
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import Buffer, MalformedMessageError

Read = Callable[[Buffer, int, int], tuple[Message, int]]
_REFUSALS = (MalformedMessageError, IndexError, struct.error)


def outcome(read: Read, data: Buffer, at: int, version: int) -> tuple[Message, int] | None:
    """The request and its end, or None if the reader refused it."""
    try:
        return read(data, at, version)
    except _REFUSALS:
        return None
