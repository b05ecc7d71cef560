"""The errors of `barnabas.client` for a user of the command line, who gives a client's settings in
the file of --client-config. This module is imported when a connection has failed.
"""

from __future__ import annotations

from barnabas.cli.errors import CommandError, RefusedError
from barnabas.client.errors import (
    ClientError,
    ConnectionLostError,
    LoginError,
    LoginFault,
    TlsError,
    TlsFault,
    UnsupportedRequestError,
    WrongPeerError,
    code_name,
)
from barnabas.client.errors import RefusedError as ClientRefusedError
from barnabas.client.oauth import TokenError
from barnabas.protocol.errors import Code

CLIENT_CONFIG = "in the file of --client-config"


def worded(error: ClientError, address: str) -> Exception:
    """The error to raise for a failure at an address: a CommandError that names the wrong setting;
    RefusedError; or ConnectionLostError, which a probe of the port may explain.
    """
    if isinstance(error.__cause__, TokenError):
        return CommandError(of_client_config(error.__cause__))
    if isinstance(error, TlsError) and (text := tls_text(error)):
        return CommandError(text)
    if isinstance(error, UnsupportedRequestError):
        return RefusedError(Code.UNSUPPORTED_VERSION, error.request)
    if isinstance(error, ClientRefusedError):
        return RefusedError(error.code, str(error))
    lost = ConnectionLostError(_lost_text(error, address))
    lost.__cause__ = error.__cause__
    return lost


def _lost_text(error: ClientError, address: str) -> str:
    """What has happened to a connection, without the names of settings."""
    if isinstance(error, ConnectionLostError):
        return error.reason
    if isinstance(error, WrongPeerError):
        return f"{address} does not speak Kafka's protocol ({error.reason})"
    if isinstance(error, TlsError):
        return f"{address}: {error.reason}"
    if isinstance(error, LoginError):
        refused = error.fault == LoginFault.MECHANISM
        return f"{address} " + (
            f"refuses the mechanism: {code_name(error.code)}" if refused else "takes no login"
        )
    return str(error)


def of_client_config(error: Exception) -> str:
    """The text of an error about an option of the connector, which names the setting of
    --client-config.
    """
    text = str(error).replace("option kafka.", "").replace("options kafka.", "")
    return "--client-config: " + text.replace("kafka.", "")


def tls_text(error: TlsError) -> str:
    """The setting of TLS that is wrong, and what to do; empty if a probe of the port can tell it
    better.
    """
    if error.fault == TlsFault.SETTINGS:
        return of_client_config(error)
    if error.fault == TlsFault.OTHER_HOST:
        return f"{error.reason}: connect by a name of the certificate, with -b NAME:PORT"
    if error.fault == TlsFault.UNTRUSTED:
        why = error.reason.partition(": ")[2] or error.reason
        return (
            f"the broker's certificate is not trusted ({why}): set ssl.truststore.location to a "
            f"PEM file with its CA {CLIENT_CONFIG}"
        )
    return client_certificate_text() if "CERTIFICATE_REQUIRED" in error.reason else ""


def client_certificate_text() -> str:
    """What to do if the broker requires a client certificate."""
    return (
        "the broker requires a certificate of the client: set ssl.certificate.location, and "
        f"ssl.key.location if the key is in another file, {CLIENT_CONFIG}"
    )


def closed_text(error: BaseException | None) -> str:
    """What to do if the broker closed the first TLS connection without an alert; empty for any
    other error.
    """
    import ssl

    if not isinstance(error, ssl.SSLEOFError):
        return ""
    return f"the broker closed the connection; perhaps {client_certificate_text()}"


def login_text(error: LoginError) -> str:
    """What to do if the broker refuses the login."""
    return (
        f"the broker refuses the login: {error.reason.rstrip('.')}; see sasl.username and "
        f"sasl.password, or sasl.jaas.config, {CLIENT_CONFIG}"
    )
