"""Which setting a failure of TLS points at. Imported once a connection that uses TLS has failed."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress

from barnabas.client.errors import TlsError, TlsFault

# OpenSSL's reasons for bytes that are not TLS.
_NO_TLS = frozenset(
    {
        "WRONG_VERSION_NUMBER",
        "HTTP_REQUEST",
        "UNKNOWN_PROTOCOL",
        "PACKET_LENGTH_TOO_LONG",
        "RECORD_LAYER_FAILURE",
    }
)


def tls_error(error: OSError, address: str, sock: socket.socket) -> TlsError | None:
    """The error about the setting that explains a failure of TLS; None for any other failure."""
    if isinstance(error, ssl.SSLEOFError):  # a write failed, and the broker's alert is still unread
        error = _alert(sock) or error
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message.rstrip(".")
        if "mismatch" in why.lower() or "not valid for" in why.lower():
            return TlsError(
                TlsFault.OTHER_HOST,
                why,
                f"{address}: the certificate is for another host ({error.verify_message}); use its "
                "name in kafka.bootstrap.servers and advertised.listeners, or set "
                "kafka.ssl.endpoint.identification.algorithm to an empty text",
            )
        return TlsError(
            TlsFault.UNTRUSTED,
            why,
            f"{address}: the broker's certificate is not trusted ({error.verify_message}); give "
            "the authority that signed it in kafka.ssl.truststore.location (PEM)",
        )
    why = str(getattr(error, "reason", None) or "") if isinstance(error, ssl.SSLError) else ""
    if why in _NO_TLS:
        return TlsError(
            TlsFault.NO_TLS,
            why,
            f"{address} does not speak TLS ({why}): check kafka.security.protocol for this port",
        )
    if "ALERT" in why:
        return TlsError(
            TlsFault.REFUSED,
            why,
            f"{address} refuses TLS ({why}): it may require the client's certificate: give one in "
            "kafka.ssl.keystore.location (PEM)",
        )
    return None


def has_ended(error: OSError) -> bool:
    """Whether the peer has closed the connection without an alert."""
    return isinstance(error, ssl.SSLEOFError)


def _alert(sock: socket.socket) -> ssl.SSLError | None:
    """The alert that the broker has sent before it closed the connection, if there is one."""
    with suppress(OSError):
        try:
            sock.recv(1)
        except ssl.SSLError as alert:
            return alert
    return None
