"""The seam for measurements, for metrics. The core has no code for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from barnabas.broker.seams.host import ClientConnection, HandleFrame, Host

Sends = Sequence[tuple[int, Any]]
"""Pairs of a connection's id and the pieces of a response."""

Sync = Callable[[list[Any]], None]
"""A function that fsyncs files. Raises: OSError."""


class Observer(Protocol):
    """Measures requests, responses, flushes and connections."""

    def around(self, server: Host, handle: HandleFrame, sends: Callable[[], Sends]) -> HandleFrame:
        """A function that replaces `handle`, and calls it. Takes: sends, a function that returns
        the responses that are not sent yet.
        """

    def around_sync(self, sync: Sync) -> Sync:
        """A function that replaces `sync`, and calls it. It runs in the flusher's thread."""

    def on_answers(self, sends: Sends, *, after_flush: bool) -> None:
        """Called before responses are sent. after_flush: whether a flush released them."""

    def on_closing(self, connection: ClientConnection) -> None:
        """Called before a connection is closed."""

    def close(self) -> None:
        """The server closes."""
