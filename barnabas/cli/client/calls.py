"""A client's calls as commands make them: in threads of `Waiting`, so that --timeout and Ctrl-C end
them, and with errors that name a command's settings.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from barnabas.cli.errors import CommandError, RefusedError
from barnabas.cli.waiting import Waiting
from barnabas.client.connection import Calls, Connection
from barnabas.client.errors import (
    ClientError,
    LoginError,
    LoginFault,
    UnreachableError,
    UnsupportedRequestError,
)
from barnabas.client.options import ClientOptions
from barnabas.client.request_kind import Request, RequestKind, Response
from barnabas.client.security_options import MECHANISMS, SecurityOptions, TokenSource

CLIENT_ID = "barnabas-cli"
CONNECT_TIMEOUT_S = 5.0
PROBE_AFTER_S = 1.0


class WaitingCalls(Calls):
    """Takes: mistake, a function that probes the port and describes the error in the security
    settings; empty if it finds none.
    """

    def __init__(self, waiting: Waiting, mistake: Callable[[], str]) -> None:
        self._waiting, self._mistake = waiting, mistake

    def open(self, connection: Connection) -> None:
        """Connect, and agree on TLS, versions and the login.

        Raises: UnreachableError if nothing listens; ConnectionLostError; CommandError if a setting
                is wrong; RefusedError.
        """
        self._waiting.call("a connection", connection.connect)
        waiting = Waiting(self._waiting.address, self._waiting.timeout_s, self._late_mistake())
        self._call(waiting, connection, "its answer to a new client", connection.negotiate)

    def _late_mistake(self) -> Callable[[], str]:
        """A function that describes the error in the security settings. The port is probed once,
        as soon as the connection takes longer than PROBE_AFTER_S; the text is empty at any other
        time.
        """
        probe_at = time.monotonic() + PROBE_AFTER_S

        def mistake() -> str:
            nonlocal probe_at
            if time.monotonic() < probe_at:
                return ""
            probe_at = time.monotonic() + self._waiting.timeout_s  # no second probe
            return self._mistake()

        return mistake

    def ask(
        self,
        connection: Connection,
        kind: RequestKind[Request, Response],
        request: Request,
        what: str = "",
    ) -> Response:
        """The response to a request. A connection that still expects a response is closed.

        Takes:  what, the name that errors use for the response.
        Raises: ConnectionLostError, CommandError, RefusedError UNSUPPORTED_VERSION.
        """
        RefusedError.last_request = kind.name
        what = what or f"its answer to {kind.name}"
        answer = self._call(self._waiting, connection, what, connection.request, kind, request)
        assert isinstance(answer, kind.response_class)
        return answer

    def ask_all(
        self,
        connection: Connection,
        kind: RequestKind[Request, Response],
        requests: Sequence[Request],
    ) -> list[Response]:
        """The responses to requests, one after the other."""
        return [self.ask(connection, kind, request) for request in requests]

    def post(
        self, connection: Connection, kind: RequestKind[Request, Any], request: Request
    ) -> None:
        """Send a request that has no response."""
        what = "room for more records"
        self._call(self._waiting, connection, what, connection.post, kind, request)

    def _call(
        self,
        waiting: Waiting,
        connection: Connection,
        what: str,
        function: Callable[..., Any],
        *args: Any,
    ) -> Any:
        """The result of a call on a connection, which is closed if the call fails."""
        try:
            return waiting.call(what, function, *args)
        except ClientError as error:
            if not isinstance(error, UnsupportedRequestError):  # nothing was sent
                connection.close()
            raise self._worded(error, connection.address) from error.__cause__
        except (KeyboardInterrupt, CommandError):
            connection.close()
            raise

    def _worded(self, error: ClientError, address: str) -> Exception:
        """The error to raise for a failure of a connection."""
        if isinstance(error, UnreachableError):
            return error
        from barnabas.cli.client.wording import login_text, worded

        if isinstance(error, LoginError) and error.fault == LoginFault.USER:
            return CommandError(self._mistake() or login_text(error))
        return worded(error, address)


def client_options(
    addresses: Sequence[tuple[str, int]], settings: Mapping[str, Any], timeout_s: float
) -> ClientOptions:
    """The options of a client's connections.

    Takes:  settings, by the names of `barnabas.cli.cluster.client_settings`.
    Raises: CommandError if there is no such mechanism.
    """
    return ClientOptions(
        tuple(addresses),
        client_id=str(settings.get("client_id", CLIENT_ID)),
        software_name=CLIENT_ID,
        connect_timeout_ms=round(min(CONNECT_TIMEOUT_S, timeout_s) * 1000),
        tls_timeout_ms=round(2000 * timeout_s),  # `Waiting` ends earlier
        request_timeout_ms=round(2000 * timeout_s),
        reuses_buffer=False,  # records of several responses are decoded later
        logs_silence=False,  # `Waiting` does
        security=_security(settings),
    )


def _security(settings: Mapping[str, Any]) -> SecurityOptions:
    mechanism = settings.get("sasl_mechanism")
    options = SecurityOptions(
        str(settings.get("security_protocol", "PLAINTEXT")),
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
