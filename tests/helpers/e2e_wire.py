"""A client that sends single requests over a plain socket, for cases that client libraries do not
allow, such as retries of old batches and corrupt bytes.
"""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any

from sim import wire

NAMES_CLOSED = (ConnectionError, EOFError)


class Wire:
    """One connection."""

    def __init__(self, port: int, *, timeout_s: float = 120.0) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._correlation_id = 0

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, call: wire.Call) -> None:
        """Send the request without waiting for its response."""
        self._correlation_id += 1
        frame = wire.frame(call, self._correlation_id)
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self, call: wire.Call) -> Any:
        """Wait for the response to the last request, and return it."""
        (size,) = struct.unpack(">i", self._exactly(4))
        data = self._exactly(size)
        assert struct.unpack_from(">i", data)[0] == self._correlation_id, (
            "the answer to another request came"
        )
        return call.decode(data[4:])

    def call(self, call: wire.Call) -> Any:
        """Send the request and wait for its response."""
        self.send(call)
        return self.receive(call)

    def _exactly(self, size: int) -> bytes:
        """Read the next `size` bytes from the connection."""
        parts = []
        while size:
            part = self.socket.recv(size)
            if not part:
                raise EOFError("the broker hung up")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def is_closed_by_broker(self) -> bool:
        """Whether the broker closes the connection within the socket's timeout."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True
