"""Requests on a connected socket, one at a time, each in a version that the caller chooses."""

from __future__ import annotations

import itertools
import socket
import struct
from typing import TypeVar

from barnabas.protocol.framing import decode_response, encode_request
from barnabas.protocol.messages.message import Message

Response = TypeVar("Response", bound=Message)

MOST_BYTES = (1 << 31) - 1
_SIZE = struct.Struct(">i")


class WrongFrameError(Exception):
    """What the peer sent is no response to the request; the connection cannot be used again."""


class FrameSocket:
    """A socket on which Kafka's frames are exchanged: a request, and then its response.

    most_bytes: the maximum size of a response.

    Takes:  sock, a connected socket, whose timeout is that of each of its calls.
    """

    def __init__(self, sock: socket.socket, client_id: str, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._socket, self._client_id = sock, client_id
        self._correlation_ids = itertools.count(1)

    def request(self, request: Message, version: int, response_class: type[Response]) -> Response:
        """The response to a request. Raises: OSError; WrongFrameError."""
        return decode_response(response_class, self.answer(request, version), version)[1]

    def answer(self, request: Message, version: int) -> bytes:
        """The frame of the response to a request. Raises: OSError; WrongFrameError."""
        correlation_id = self.send(request, version)
        (size,) = _SIZE.unpack(self._read(_SIZE.size))
        if not _SIZE.size <= size <= self.most_bytes:
            raise WrongFrameError(f"a response of {size:,} bytes")
        frame = self._read(size)
        if _SIZE.unpack_from(frame)[0] != correlation_id:
            raise WrongFrameError("the response to another request")
        return frame

    def send(self, request: Message, version: int) -> int:
        """Send a request. Gives: its correlation id. Raises: OSError."""
        correlation_id = next(self._correlation_ids)
        self._socket.sendall(encode_request(request, version, correlation_id, self._client_id))
        return correlation_id

    def _read(self, size: int) -> bytes:
        """Receive exactly that many bytes. Raises: OSError; ConnectionResetError if the peer closes
        the connection first.
        """
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(min(size - len(data), 1 << 20))
            if not part:
                raise ConnectionResetError("the broker closed the connection")
            data += part
        return bytes(data)
