"""Finds out by trial which security protocol a port speaks, to explain why a client cannot connect.

A Kafka broker does not report which security protocol it expects, and only closes the
connection. The probe connects without the client's settings and sends two requests that need no
login.

    ApiVersions over TCP      a response: no TLS         no response: TLS is tried
    ApiVersions over TLS      a response: TLS            (no certificate is verified)
    SaslHandshake             UNSUPPORTED_SASL_MECHANISM, with the supported ones: SASL is needed
                              ILLEGAL_SASL_STATE: no login is expected

Source: KIP-43, KIP-152; Apache Kafka's SaslServerAuthenticator and KafkaApis.
"""

from __future__ import annotations

import socket
import ssl
import struct
from typing import NamedTuple

from barnabas.protocol.client_software import PROBE

STEP_S = 0.5
API_VERSIONS, SASL_HANDSHAKE = 18, 17
UNSUPPORTED_SASL_MECHANISM = 33
CORRELATION_ID = 1
MOST_BYTES = 1 << 20
CLIENT_CONFIG = "in the file of --client-config"


class Spoken(NamedTuple):
    """The protocol of a port. mechanisms: its SASL mechanisms; empty if no login is expected."""

    is_kafka: bool
    has_tls: bool = False
    mechanisms: tuple[str, ...] = ()

    @property
    def security_protocol(self) -> str:
        """The value of security.protocol that fits the port."""
        if self.mechanisms:
            return "SASL_SSL" if self.has_tls else "SASL_PLAINTEXT"
        return "SSL" if self.has_tls else "PLAINTEXT"


def probe(host: str, port: int) -> Spoken | None:
    """The protocol of the port; None if the port does not respond."""
    for has_tls in (False, True):
        try:
            with _connect(host, port, has_tls=has_tls) as sock:
                answer = _ask(sock, API_VERSIONS, 0, b"")
                if answer.startswith(b"HTTP"):
                    return Spoken(is_kafka=False, has_tls=has_tls)
                if answer:
                    return Spoken(True, has_tls, _mechanisms(sock))
        except OSError:
            continue
    return Spoken(is_kafka=False) if _speaks_http(host, port) else None


def _speaks_http(host: str, port: int) -> bool:
    """Whether an HTTP server listens on the port. It responds only after it has received a whole
    line.
    """
    try:
        with _connect(host, port, has_tls=False) as sock:
            sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return _read(sock, 4) == b"HTTP"
    except OSError:
        return False


def _connect(host: str, port: int, *, has_tls: bool) -> socket.socket:
    """Connect, with TLS if requested; the certificate is not checked, since no secret is sent."""
    sock = socket.create_connection((host, port), timeout=STEP_S)
    if not has_tls:
        return sock
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        return context.wrap_socket(sock, server_hostname=host)
    except OSError:
        sock.close()
        raise


def _ask(sock: socket.socket, api_key: int, version: int, body: bytes) -> bytes:
    """The response to a request, beginning with its correlation id; empty if the response is
    invalid.
    """
    client_id = PROBE.encode()
    header = struct.pack(">hhih", api_key, version, CORRELATION_ID, len(client_id)) + client_id
    sock.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
    head = _read(sock, 4)
    if head == b"HTTP":
        return head
    size = struct.unpack(">i", head)[0] if len(head) == 4 else 0
    if not 4 < size <= MOST_BYTES:
        return b""
    answer = _read(sock, size)
    is_whole = len(answer) == size and answer[:4] == struct.pack(">i", CORRELATION_ID)
    return answer if is_whole else b""


def _read(sock: socket.socket, count: int) -> bytes:
    """Receive up to that many bytes; fewer at the end of the stream."""
    data = b""
    while len(data) < count:
        part = sock.recv(count - len(data))
        if not part:
            break
        data += part
    return data


def _mechanisms(sock: socket.socket) -> tuple[str, ...]:
    """The SASL mechanisms of a port; empty if it expects no login."""
    name = b"?"
    answer = _ask(sock, SASL_HANDSHAKE, 1, struct.pack(">h", len(name)) + name)
    if len(answer) < 10 or struct.unpack_from(">h", answer, 4)[0] != UNSUPPORTED_SASL_MECHANISM:
        return ()
    names, position = [], 10
    for _ in range(struct.unpack_from(">i", answer, 6)[0]):
        (length,) = struct.unpack_from(">h", answer, position)
        names.append(answer[position + 2 : position + 2 + length].decode("ascii", "replace"))
        position += 2 + length
    return tuple(names)


def mistake(spoken: Spoken, address: str, protocol: str, mechanism: str | None) -> str:
    """The error in a client's settings for a port; empty if the settings are right.

    Takes: protocol, mechanism, the client's security.protocol and sasl.mechanism.
    """
    if not spoken.is_kafka:
        return (
            f"{address} speaks HTTP, not Kafka's protocol: it may be the port of the metrics or of "
            "the console; the broker's log and its first lines name the listeners"
        )
    wanted = spoken.security_protocol
    one_of = " or ".join(spoken.mechanisms)
    if wanted != protocol:
        login = f", sasl.mechanism={one_of} and a user" if spoken.mechanisms else ""
        return (
            f"{address} needs security.protocol={wanted}, and the client has {protocol}: set "
            f"security.protocol={wanted}{login} {CLIENT_CONFIG}"
        )
    if spoken.mechanisms and mechanism not in spoken.mechanisms:
        return (
            f"{address} does not support sasl.mechanism={mechanism}: set "
            f"sasl.mechanism={one_of} {CLIENT_CONFIG}"
        )
    return ""
