"""Ports of 127.0.0.1 that no other process takes between the moment they are chosen and their
use."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager

# Below those that the system gives to sockets that connect, or listen on port 0: of two processes
# that choose by themselves, a third one's connection can have taken neither's.
OWN_PORTS = range(15_000, 30_000)


def free_port() -> int:
    """A port for a process that is slow to listen on it, or leaves it for a while."""
    while True:
        port = random.SystemRandom().choice(OWN_PORTS)
        try:
            socket.create_server(("127.0.0.1", port)).close()
            return port
        except OSError:
            continue


@contextmanager
def refusing_port() -> Iterator[int]:
    """It refuses connections while the context lasts: it is bound, and not listened on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield int(bound.getsockname()[1])
