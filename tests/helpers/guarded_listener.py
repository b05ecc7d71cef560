"""A port that requires TLS, a login, or both, and forwards requests to a broker that requires
neither.

    with GuardedListener(broker.port, tls=server_context("server.pem"),
    sasl=SaslServer("SCRAM-SHA-256", {"alice": "secret"})) as guarded:
        servers = f"localhost:{guarded.port}"

The broker has to advertise this port (`advertised.listeners`). The listener forwards the requests
of a connection one at a time.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from barnabas.protocol.errors import Code

TLS_FILES = Path(__file__).parent.parent / "fixtures" / "tls"
API_VERSIONS = 18
MAX_FRAME_BYTES = 100 << 20  # a broker's limit on the size of a request
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def server_context(name: str, *, ask_for_certificate: bool = False) -> ssl.SSLContext:
    """The TLS context of a server that has this certificate from `fixtures/tls`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS_FILES / name)
    if ask_for_certificate:
        context.load_verify_locations(TLS_FILES / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@dataclass
class SaslServer:
    """The server's side of logins, as in RFC 4616 and RFC 5802. If `knows_passwords` is false, the
    server is an impostor that accepts every login.
    """

    mechanism: str
    passwords: Mapping[str, str]
    session_lifetime_ms: int = 0
    iterations: int = 4096
    knows_passwords: bool = True
    logins: list[str] = field(default_factory=list)

    def login(self) -> Login:
        return Login(self)


class Login:
    """One login in progress. `answer` returns the response to a client's message, or raises
    ValueError to refuse it.
    """

    def __init__(self, server: SaslServer) -> None:
        self.server = server
        self.done = False
        self._user = self._said = ""
        self._salt = os.urandom(16)

    def answer(self, message: bytes) -> bytes:
        """Return the server's next message.

        Raises: ValueError if the login is refused.
        """
        if self.server.mechanism == "PLAIN":
            _, self._user, password = message.decode().split("\0")
            return self._let_in(self.server.passwords.get(self._user) == password, b"")
        return self._final(message.decode()) if self._said else self._challenge(message.decode())

    def _let_in(self, right: bool, answer: bytes) -> bytes:
        """Accept or refuse the login."""
        if not right:
            raise ValueError("Authentication failed: invalid credentials")
        self.done = True
        self.server.logins.append(self._user)
        return answer

    def _challenge(self, first: str) -> bytes:
        """The server's first message of SCRAM: nonce, salt and iterations."""
        assert first.startswith("n,,n="), first
        bare = first.removeprefix("n,,")
        name, nonce = bare.split(",")
        self._user = name[2:].replace("=2C", ",").replace("=3D", "=")
        salt = base64.b64encode(self._salt).decode()
        own = base64.b64encode(os.urandom(12)).decode()
        challenge = f"r={nonce[2:]}{own},s={salt},i={self.server.iterations}"
        self._said = f"{bare},{challenge}"
        return challenge.encode()

    def _final(self, final: str) -> bytes:
        """Check the client's proof, and return the server's own proof. A server that does not know
        passwords accepts any proof, and its own proof is wrong.
        """
        without_proof, proof = final.rsplit(",p=", 1)
        assert without_proof == "c=biws,r=" + self._said.split(",r=")[2].split(",")[0]
        kind = _HASHES[self.server.mechanism]
        password = (
            self.server.passwords.get(self._user, "") if self.server.knows_passwords else "guessed"
        )
        salted = hashlib.pbkdf2_hmac(kind, password.encode(), self._salt, self.server.iterations)
        message = f"{self._said},{without_proof}".encode()
        stored = hashlib.new(kind, hmac.digest(salted, b"Client Key", kind)).digest()
        client_key = bytes(
            a ^ b
            for a, b in zip(
                base64.b64decode(proof), hmac.digest(stored, message, kind), strict=True
            )
        )
        right = hashlib.new(kind, client_key).digest() == stored
        signature = hmac.digest(hmac.digest(salted, b"Server Key", kind), message, kind)
        return self._let_in(
            right or not self.server.knows_passwords, b"v=" + base64.b64encode(signature)
        )


class GuardedListener:
    """A listener on a free port of 127.0.0.1, used as a context manager. `broker_port` may be set
    later.
    """

    def __init__(
        self,
        broker_port: int = 0,
        *,
        tls: ssl.SSLContext | None = None,
        sasl: SaslServer | None = None,
    ) -> None:
        self.broker_port, self.tls, self.sasl = broker_port, tls, sasl
        # The clock by which logins expire.
        self.now_s: Callable[[], float] = time.monotonic
        self.expired = 0  # the number of connections closed because their login had expired
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> GuardedListener:
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        """Serve each connection in its own thread."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        """Serve one client, over TLS if required, with a separate connection to the broker."""
        try:
            client.settimeout(600)
            if self.tls is not None:
                client = self.tls.wrap_socket(client, server_side=True)
                self._sockets.append(client)
            with socket.create_connection(("127.0.0.1", self.broker_port), 60) as broker:
                broker.settimeout(600)
                self._hand_on(client, broker)
        except (OSError, EOFError):
            pass
        finally:
            client.close()

    def _hand_on(self, client: socket.socket, broker: socket.socket) -> None:
        """Answer login requests here, and forward all other requests to the broker."""
        login: Login | None = None
        ends = float("inf")
        while True:
            frame = _receive(client)
            api_key, version, correlation_id, client_id_size = struct.unpack_from(">hhih", frame)
            start = 10 + max(client_id_size, 0)
            if self.sasl is not None and api_key in (
                SaslHandshakeRequest.API_KEY,
                SaslAuthenticateRequest.API_KEY,
            ):
                if api_key == SaslHandshakeRequest.API_KEY:
                    right = (
                        SaslHandshakeRequest.decode(frame[start:], version=version).mechanism
                        == self.sasl.mechanism
                    )
                    login = self.sasl.login() if right else None
                    code = 0 if right else Code.UNSUPPORTED_SASL_MECHANISM
                    body = SaslHandshakeResponse(
                        error_code=code, mechanisms=[self.sasl.mechanism]
                    ).encode(version=version)
                else:
                    assert login is not None, "SaslAuthenticate before SaslHandshake"
                    body, refused = self._authenticate(
                        login, frame[start + (version >= 2) :], version
                    )
                    if login.done and self.sasl.session_lifetime_ms:
                        ends = self.now_s() + self.sasl.session_lifetime_ms / 1000
                    if refused:
                        _send(client, _header(correlation_id, version >= 2) + body)
                        return
                _send(
                    client,
                    _header(
                        correlation_id, api_key == SaslAuthenticateRequest.API_KEY and version >= 2
                    )
                    + body,
                )
                continue
            if self.sasl is not None and api_key != API_VERSIONS:
                if login is None or not login.done:
                    # close the connection without a response, as Apache Kafka does before a login
                    return
                if self.now_s() >= ends:
                    self.expired += 1
                    return
            _send(broker, frame)
            _send(client, _receive(broker))

    def _authenticate(self, login: Login, body: bytes, version: int) -> tuple[bytes, bool]:
        """The encoded response to a SaslAuthenticate request, and whether the login is refused."""
        assert self.sasl is not None
        said = bytes(SaslAuthenticateRequest.decode(body, version=version).auth_bytes)
        try:
            answer, code, message = login.answer(said), 0, None
        except ValueError as error:
            answer, code, message = b"", int(Code.SASL_AUTHENTICATION_FAILED), str(error)
        lifetime = self.sasl.session_lifetime_ms if login.done else 0
        response = SaslAuthenticateResponse(
            error_code=code, error_message=message, auth_bytes=answer, session_lifetime_ms=lifetime
        )
        return response.encode(version=version), bool(code)


def _header(correlation_id: int, tagged: bool) -> bytes:
    return struct.pack(">i", correlation_id) + b"\0" * tagged


def _send(target: socket.socket, frame: bytes) -> None:
    target.sendall(struct.pack(">i", len(frame)) + frame)


def _receive(source: socket.socket) -> bytes:
    """The next frame, without its size."""
    (size,) = struct.unpack(">i", _exactly(source, 4))
    if not 0 < size <= MAX_FRAME_BYTES:
        raise EOFError("another protocol")
    return _exactly(source, size)


def _exactly(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = source.recv(min(size - len(data), 1 << 20))
        if not part:
            raise EOFError
        data += part
    return bytes(data)
