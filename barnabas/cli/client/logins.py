"""TLS and SASL of a client, set up by `barnabas.client` from the settings of --client-config.

This module is imported only if a client's settings use TLS or SASL, or if a connection fails.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from barnabas.cli.errors import CommandError
from barnabas.protocol.errors import Code

if TYPE_CHECKING:
    import socket

    from barnabas.cli.client.connection import BrokerConnection
    from barnabas.client.security import SecurityOptions

CLIENT_CONFIG = "in the file of --client-config"


class Login:
    """The security of a client's connections: TLS and the SASL login.

    Takes:  settings, by the names of `barnabas.cli.cluster.client_settings`.
    Raises: CommandError if a certificate, a key or the mechanism cannot be used.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._options = _security(settings)
        self._context: ssl.SSLContext | None = None
        if self._options.uses_tls:
            from barnabas.client.security import SecurityError, ssl_context

            try:
                self._context = ssl_context(self._options)
            except SecurityError as error:
                raise CommandError(_of_client_config(error)) from error

    @property
    def uses_sasl(self) -> bool:
        """Whether the client logs in by SASL."""
        return self._options.uses_sasl

    def wrap(self, sock: socket.socket, host: str) -> socket.socket:
        """The socket, wrapped in TLS if the settings require it. Raises: OSError."""
        if self._context is None:
            return sock
        return self._context.wrap_socket(sock, server_hostname=host)

    def log_in(self, connection: BrokerConnection) -> int:
        """Log in by SaslHandshake and SaslAuthenticate.

        Gives:  the lifetime of the session in ms; 0 if it is unlimited.
        Raises: RefusedLoginError; ConnectionLostError if the broker does not support the mechanism,
                or no SASL at all; CommandError if there is no token.
        """
        from barnabas.cli.client.connection import ConnectionLostError, RefusedLoginError
        from barnabas.client.oauth import TokenError
        from barnabas.client.sasl import (
            AuthenticationError,
            HandshakeRefusedError,
            NoLoginError,
            log_in,
        )
        from barnabas.client.security import exchange

        mechanism = self._options.mechanism
        assert mechanism is not None
        try:
            return log_in(connection, mechanism, exchange(self._options))
        except NoLoginError as error:
            raise ConnectionLostError(f"{connection.address} takes no login") from error
        except HandshakeRefusedError as error:
            name = Code(error.code).name
            raise ConnectionLostError(
                f"{connection.address} refuses {mechanism}: {name}"
            ) from error
        except AuthenticationError as error:
            raise RefusedLoginError(str(error)) from error
        except TokenError as error:
            raise CommandError(_of_client_config(error)) from error


def _of_client_config(error: Exception) -> str:
    """The connector's error about an option, reworded to name the setting in the --client-config
    file.
    """
    text = str(error).replace("option kafka.", "").replace("options kafka.", "")
    return "--client-config: " + text.replace("kafka.", "")


def _security(settings: Mapping[str, Any]) -> SecurityOptions:
    from barnabas.client.oauth import TokenSource
    from barnabas.client.security import MECHANISMS, SecurityOptions

    protocol = str(settings.get("security_protocol", "PLAINTEXT"))
    mechanism = settings.get("sasl_mechanism")
    options = SecurityOptions(
        protocol,
        ca_file=settings.get("ssl_cafile"),
        certificate_file=settings.get("ssl_certfile"),
        key_file=settings.get("ssl_keyfile"),
        key_password=settings.get("ssl_password"),
        check_hostname=bool(settings.get("ssl_check_hostname", True)),
        mechanism=mechanism,
        username=str(settings.get("sasl_plain_username", "")),
        password=str(settings.get("sasl_plain_password", "")),
        tokens=TokenSource(endpoint_url=str(settings.get("sasl_oauth_token_url", ""))),
    )
    if options.uses_sasl and mechanism not in MECHANISMS:
        raise CommandError(
            f"--client-config: sasl.mechanism={mechanism} must be one of {', '.join(MECHANISMS)}"
        )
    return options


def tls_reason(error: OSError, sock: socket.socket) -> str:
    """The error in the client's settings that explains a TLS failure; empty for other failures."""
    if isinstance(error, ssl.SSLEOFError):  # a write failed, and the broker's alert is still unread
        with suppress(OSError):
            try:
                sock.recv(1)
            except ssl.SSLError as alert:
                error = alert
    if isinstance(error, ssl.SSLCertVerificationError):
        return certificate_reason(error.verify_message.rstrip("."))
    text = str(getattr(error, "reason", "") or "")
    if isinstance(error, ssl.SSLError) and "CERTIFICATE_REQUIRED" in text:
        return client_certificate_reason()
    return ""


def certificate_reason(why: str) -> str:
    """What to do if the client rejects the broker's certificate, depending on OpenSSL's reason."""
    if "mismatch" in why.lower() or "not valid for" in why.lower():
        return f"{why}: connect by a name of the certificate, with -b NAME:PORT"
    return (
        f"the broker's certificate is not trusted ({why.partition(': ')[2] or why}): set "
        f"ssl.truststore.location to a PEM file with its CA {CLIENT_CONFIG}"
    )


def client_certificate_reason() -> str:
    """What to do if the broker requires a client certificate."""
    return (
        "the broker requires a certificate of the client: set ssl.certificate.location, and "
        f"ssl.key.location if the key is in another file, {CLIENT_CONFIG}"
    )


def closed_reason(error: BaseException | None) -> str:
    """What to do if the broker closed the first TLS connection without an alert; empty for any
    other error.
    """
    if not isinstance(error, ssl.SSLEOFError):
        return ""
    return f"the broker closed the connection; perhaps {client_certificate_reason()}"


def login_reason(why: str) -> str:
    """What to do if the broker refuses the login."""
    return (
        f"the broker refuses the login: {why.rstrip('.')}; see sasl.username and sasl.password, or "
        f"sasl.jaas.config, {CLIENT_CONFIG}"
    )
