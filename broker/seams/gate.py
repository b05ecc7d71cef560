"""The seam between connections and the core, for test control and for a leader with a standby."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from barnabas.broker.connections.connection_state import ConnectionState
from barnabas.broker.seams.host import ClientConnection, HandleFrame, Host


class Gate(Protocol):
    """A layer between connections and the core: it may hold back or change requests and responses.

    silence: a function that returns why no data may be sent any more, or None if data may be sent;
    None instead of a function if data may always be sent.
    """

    silence: Callable[[], str | None] | None

    def around(self, server: GatedHost, handle: HandleFrame) -> HandleFrame:
        """A function that replaces `handle`, and calls it now or later."""

    def send(self, connection: ClientConnection, pieces: Any) -> None:
        """Send a response by `connection.send`, now or later, or not at all."""

    def start(self) -> None:
        """The server listens."""

    def on_closing(self, connection: ClientConnection) -> None:
        """Called before a connection is closed."""

    def close(self) -> None:
        """Called when the server has closed its connections and its logs."""


class GatedHost(Host, Protocol):
    """The server, with what only a gate does: it passes on requests later, and moves the clock."""

    def put_connection(self, connection: ClientConnection, sender: ConnectionState) -> None:
        """Put another object in the place of a connection that has ended, so that its request can
        be handled late. Takes: sender, the core's state of the ended connection.
        """

    def on_request_failed(self, connection: ClientConnection, error: Exception) -> None:
        """Handle an exception in a request, which ends the connection or the broker."""

    def tick(self) -> None:
        """Let the core do what is due now."""

    def reset_timer(self) -> None:
        """Set the timer again: the clock was moved."""

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is due, and no flush runs."""
