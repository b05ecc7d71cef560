"""Kafka requests of the console to its own broker, as a client with the principal of a page's user.

The server accepts one end of a socket pair like any client's connection. So all rules for clients
apply: permissions, quotas, the audit log, transactions, limits. A connection gets its principal in
one of two ways:

    login       an exchange of SCRAM or PLAIN with a listener's authentication, by the password
    connected   a connection whose principal is set to a user that has logged in to the page

Both functions block, and are called in a connection's thread.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from barnabas.broker.audit import ANONYMOUS
from barnabas.broker.observe import Look
from barnabas.broker.seams.host import Host
from barnabas.broker.seams.nodes import Listener
from barnabas.client.connection import Connection
from barnabas.client.errors import ClientError, ConnectionLostError, LoginError
from barnabas.client.options import ClientOptions
from barnabas.client.request_kind import RequestKind
from barnabas.process.http_server import in_slices
from barnabas.protocol.api_table import APIS
from barnabas.protocol.messages.message import Message

CLIENT_ID = "barnabas-console"
ANSWER_WITHIN_S = 40.0
OPTIONS = ClientOptions((), client_id=CLIENT_ID, response_max_bytes=16 << 20, reuses_buffer=False)
# the broker is this process
VERSIONS = {api.key: (api.min_version, api.max_version) for api in APIS}

R = TypeVar("R", bound=Message)


class InnerClientError(Exception):
    """The broker closed the connection, or did not respond in time."""


class LoginRefused(Exception):
    """The user or the password is wrong."""


class InnerClient:
    """A connection to the broker, on which one request is sent at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self._connection = Connection.over(sock, "the broker", OPTIONS, VERSIONS)

    def ask(self, request: Message, response: type[R], version: int) -> R:
        """Send a request. Gives: the response. Raises: InnerClientError."""
        kind = RequestKind(type(request), response, version, version)
        try:
            return self._connection.request(kind, request)
        except ConnectionLostError as error:
            raise InnerClientError(f"{error.reason}; its log may say why") from error
        except ClientError as error:
            raise InnerClientError(f"the broker did not answer to {kind.name}: {error}") from error

    def log_in(self, mechanism: str, user: str, password: str) -> None:
        """Authenticate with a password. Raises: LoginRefused, InnerClientError."""
        from barnabas.client.sasl import exchange_of_password

        exchange = exchange_of_password(mechanism, user, password)
        try:
            self._connection.log_in(mechanism, exchange, f"user {user!r}")
        except LoginError as error:
            raise LoginRefused from error
        except ClientError as error:
            raise InnerClientError(str(error)) from error


@contextmanager
def connected(
    server: Host,
    principal: str,
    host: str,
    listener: Listener | None = None,
    node_id: int | None = None,
) -> Iterator[InnerClient]:
    """Open a connection with the given principal and client address.

    Takes: listener, the listener that accepts the connection, with its authentication if the
           principal is ANONYMOUS; None for the first listener, without authentication. node_id, the
           id of the broker, if the process runs several; None for the first broker.
    """
    ours, theirs = socket.socketpair()
    ours.settimeout(ANSWER_WITHIN_S)
    try:
        in_slices(server.loop, _take_up(server, theirs, principal, host, listener, node_id))
        yield InnerClient(ours)
    finally:
        ours.close()


def _take_up(
    server: Host,
    sock: socket.socket,
    principal: str,
    host: str,
    listener: Listener | None,
    node_id: int | None,
) -> Look[None]:
    """Let the acceptor accept one end of the socket pair as a client's connection. Runs in the
    loop's thread.
    """
    yield
    known = None if listener is not None else principal
    server.nodes.ports.connect_inside(sock, host, known, listener, node_id)


# --- login ----------------------------------------------------------------------------------------


def login(
    server: Host, listener: Listener, mechanism: str, user: str, password: str, host: str
) -> None:
    """Authenticate a user at a listener with a password. Raises: LoginRefused, InnerClientError."""
    with connected(server, ANONYMOUS, host, listener) as client:
        client.log_in(mechanism, user, password)
