"""Kafka requests of the console to its own broker, as a client with the principal of a page's user.

The server accepts one end of a socket pair like any client's connection. So all rules for clients
apply: permissions, quotas, the audit log, transactions, limits. A connection gets its principal in
one of two ways:

    login       an exchange of SCRAM or PLAIN with a listener's authentication, by the password
    connected   a connection whose principal is set to a user that has logged in to the page

Both functions block, and are called in a connection's thread.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from barnabas.broker.audit import ANONYMOUS
from barnabas.broker.observe import Look
from barnabas.broker.rim.http_server import in_slices
from barnabas.protocol.api_table import BY_KEY
from barnabas.protocol.errors import Code
from barnabas.protocol.framing import response_has_tagged_header
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from barnabas.broker.rim.acceptor import Listener
    from barnabas.broker.rim.server import Server

CLIENT_ID = "barnabas-console"
ANSWER_WITHIN_S = 40.0
MOST_ANSWER_BYTES = 16 << 20

R = TypeVar("R", bound=Message)


class InnerClientError(Exception):
    """The broker closed the connection, or did not respond in time."""


class LoginRefused(Exception):
    """The user or the password is wrong."""


class InnerClient:
    """A connection to the broker, on which one request is sent at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock, self._correlation_id = sock, 0

    def ask(self, request: Message, response: type[R], version: int) -> R:
        """Send a request. Gives: the response. Raises: InnerClientError."""
        self._correlation_id += 1
        api = BY_KEY[request.API_KEY]
        body = bytearray(struct.pack(">hhi", api.key, version, self._correlation_id))
        body += struct.pack(">h", len(CLIENT_ID)) + CLIENT_ID.encode()
        if version >= api.flexible_from:
            body.append(0)  # no tagged fields
        request.write(body, version)
        try:
            self._sock.sendall(struct.pack(">i", len(body)) + body)
            (size,) = struct.unpack(">i", self._receive(4))
            if not 4 <= size <= MOST_ANSWER_BYTES:
                raise InnerClientError(f"an answer of {size:,} bytes")
            answer = self._receive(size)
        except OSError as error:
            raise InnerClientError(f"the broker did not answer to {api.name}: {error}") from error
        start = 5 if response_has_tagged_header(api, version) else 4
        return response.read(answer, start, version)[0]

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._sock.recv(min(size - len(data), 1 << 16))
            if not piece:
                raise InnerClientError("the broker closed the connection; its log may say why")
            data += piece
        return bytes(data)


@contextmanager
def connected(
    server: Server,
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
    server: Server,
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
    first = next(iter(server.broker.cluster.nodes)) if node_id is None else node_id
    at = server.acceptor.listener_of(first) if listener is None else listener
    server.acceptor.take_up_inner(at, sock, host, None if listener is not None else principal)


# --- login ----------------------------------------------------------------------------------------


def login(
    server: Server, listener: Listener, mechanism: str, user: str, password: str, host: str
) -> None:
    """Authenticate a user at a listener with a password. Raises: LoginRefused, InnerClientError."""
    with connected(server, ANONYMOUS, host, listener) as client:
        handshake = client.ask(SaslHandshakeRequest(mechanism), SaslHandshakeResponse, 1)
        if handshake.error_code:
            raise LoginRefused
        if mechanism == "PLAIN":
            _token(client, f"\0{user}\0{password}".encode())
            return
        _scram(client, mechanism, user, password)


def _token(client: InnerClient, token: bytes) -> bytes:
    """Send a SASL token. Gives: the broker's token. Raises: LoginRefused."""
    answer = client.ask(SaslAuthenticateRequest(token), SaslAuthenticateResponse, 2)
    if answer.error_code != Code.NONE:
        raise LoginRefused
    return answer.auth_bytes


def _scram(client: InnerClient, mechanism: str, user: str, password: str) -> None:
    """Authenticate a user with SCRAM. This is the client's side of RFC 5802."""
    hash_name = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
    name = user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={secrets.token_hex(16)}"
    answer = _token(client, f"n,,{first}".encode()).decode()
    fields = dict(part.split("=", 1) for part in answer.split(","))
    salt, iterations = base64.b64decode(fields["s"]), int(fields["i"])
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    # biws is base64 of "n,,": no channel binding, as the first message said
    without_proof = f"c=biws,r={fields['r']}"
    messages = f"{first},{answer},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    signature = hmac.digest(hashlib.new(hash_name, client_key).digest(), messages, hash_name)
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    _token(client, f"{without_proof},p={base64.b64encode(proof).decode()}".encode())
