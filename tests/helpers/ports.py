"""Ports of 127.0.0.1 that no other process takes between their choice and their use."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager

# The system assigns ports to outgoing connections and to listeners on port 0 from a higher range,
# so it does not take one of these ports between its choice and its use.
OWN_PORTS = range(15_000, 30_000)


def free_port() -> int:
    """A free port for a process that starts to listen later, or that closes the port for a time."""
    while True:
        port = random.SystemRandom().choice(OWN_PORTS)
        try:
            socket.create_server(("127.0.0.1", port)).close()
            return port
        except OSError:
            continue


@contextmanager
def refusing_port() -> Iterator[int]:
    """A port that refuses connections while the context lasts. It is bound, but does not listen."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield int(bound.getsockname()[1])
