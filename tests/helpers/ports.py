"""A port that nobody listens on, and nobody else can begin to listen on: one that was free a moment
ago may be another process's by now.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def refusing_port() -> Iterator[int]:
    """It refuses connections while the context lasts: it is bound, and not listened on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield int(bound.getsockname()[1])
