"""Ports of 127.0.0.1 that no other process takes between choice and use."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager

# Below the ports that the system gives to connecting sockets and to listeners on port 0, so that no
# connection takes a port between its choice and its use.
OWN_PORTS = range(15_000, 30_000)


def free_port() -> int:
    """A free port for a process that listens late, or closes the port for a while."""
    while True:
        port = random.SystemRandom().choice(OWN_PORTS)
        try:
            socket.create_server(("127.0.0.1", port)).close()
            return port
        except OSError:
            continue


@contextmanager
def refusing_port() -> Iterator[int]:
    """A port that refuses connections while the context lasts: bound, but not listening."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield int(bound.getsockname()[1])
