"""One connection to a broker: TLS, login, versions, and requests with their responses.

Source: KIP-35, KIP-511 (ApiVersions), KIP-43, KIP-152 (SASL), KIP-368 (lifetime of a session).
"""

from __future__ import annotations

import math
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

from barnabas.cli.errors import CommandError, RefusedError
from barnabas.client.frames import MOST_BYTES, FrameSocket, WrongFrameError
from barnabas.client.request_kind import Request, RequestKind, Response
from barnabas.protocol.errors import Code
from barnabas.protocol.framing import decode_response
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import MalformedMessageError, UnwritableMessageError
from barnabas.version import __version__

if TYPE_CHECKING:
    from barnabas.cli.client.logins import Login

CLIENT_ID = "barnabas-cli"
# The maximum size of a response to ApiVersions. A larger size shows that the port speaks another
# protocol.
MOST_FIRST_BYTES = 1 << 20
# The fraction of a session's lifetime after which a new connection replaces the old one.
SESSION_USED = 0.85
_CODE = struct.Struct(">h")


API_VERSIONS = RequestKind(ApiVersionsRequest, ApiVersionsResponse, 0, 3)


class ConnectionLostError(Exception):
    """The broker closed the connection, or the connection failed."""


class RefusedLoginError(Exception):
    """The broker refuses the login; the text is the broker's reason."""


class BrokerConnection:
    """A connection to one broker. Requests are answered in order, one at a time.

    versions: the lowest and the highest version of each request that the broker speaks, by API key.

    Takes:  sock, a connected socket; login, None if the client uses neither TLS nor SASL.
    Raises: ConnectionLostError; RefusedLoginError; CommandError if a setting is wrong.
    """

    def __init__(
        self, sock: socket.socket, host: str, port: int, login: Login | None, client_id: str
    ) -> None:
        self.address = f"{host}:{port}"
        self.versions: dict[int, tuple[int, int]] = {}
        self._session_end_s = math.inf
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        try:
            if login is not None:
                self._socket = login.wrap(sock, host)
            self._frames = FrameSocket(self._socket, client_id, MOST_FIRST_BYTES)
            self._negotiate()
            self._frames.most_bytes = MOST_BYTES
            if login is not None and login.uses_sasl:
                lifetime_ms = login.log_in(self)
                if lifetime_ms > 0:
                    self._session_end_s = time.monotonic() + SESSION_USED * lifetime_ms / 1000
        except OSError as error:
            sock.close()
            raise self._lost(error) from error
        except BaseException:
            sock.close()
            raise

    @property
    def is_expired(self) -> bool:
        """Whether the login is about to expire, after which the broker closes the connection."""
        return time.monotonic() >= self._session_end_s

    def close(self) -> None:
        """Close the socket; a second call has no effect."""
        self._socket.close()

    def speaks(self, kind: RequestKind[Any, Any]) -> bool:
        """Whether the client and the broker have a version of this kind of request in common."""
        lowest, highest = self.versions.get(kind.request_class.API_KEY, (0, -1))
        return min(kind.last_version, highest) >= max(kind.first_version, lowest)

    def request(self, kind: RequestKind[Request, Response], request: Request) -> Response:
        """The response to a request.

        Raises: ConnectionLostError; RefusedError UNSUPPORTED_VERSION if the broker does not support
                the request, or a field of it.
        """
        version = self._version_of(kind)
        try:
            return self._decode(kind.response_class, self._answer(request, version), version)
        except UnwritableMessageError as error:
            name = kind.request_class.__name__.removesuffix("Request")
            raise RefusedError(Code.UNSUPPORTED_VERSION, f"{name}: {error}") from error

    def post(self, kind: RequestKind[Request, Any], request: Request) -> None:
        """Send a request that has no response, as Produce with acks=0.

        Raises: ConnectionLostError; RefusedError UNSUPPORTED_VERSION.
        """
        try:
            self._frames.send(request, self._version_of(kind))
        except OSError as error:
            raise self._lost(error) from error

    def _version_of(self, kind: RequestKind[Any, Any]) -> int:
        """The highest common version. Raises: RefusedError UNSUPPORTED_VERSION."""
        if not self.speaks(kind):
            name = kind.request_class.__name__.removesuffix("Request")
            raise RefusedError(Code.UNSUPPORTED_VERSION, name)
        return min(kind.last_version, self.versions[kind.request_class.API_KEY][1])

    def _decode(self, response_class: type[Response], frame: bytes, version: int) -> Response:
        """The response in a frame. Raises: CommandError if it cannot be read."""
        try:
            return decode_response(response_class, frame, version)[1]
        except (struct.error, IndexError, MalformedMessageError) as error:
            raise CommandError(
                f"{self.address} sent an answer that cannot be read ({error})"
            ) from error

    def _answer(self, request: Message, version: int) -> bytes:
        """The frame of the response to a request. Raises: ConnectionLostError, CommandError."""
        try:
            return self._frames.answer(request, version)
        except OSError as error:
            raise self._lost(error) from error
        except WrongFrameError as error:
            raise ConnectionLostError(
                f"{self.address} does not speak Kafka's protocol ({error})"
            ) from error

    def _lost(self, error: OSError) -> Exception:
        """The error to raise for a failure of the socket."""
        from barnabas.cli.client.logins import tls_reason

        if reason := tls_reason(error, self._socket):
            return CommandError(reason)
        if isinstance(error, TimeoutError):
            return ConnectionLostError(f"{self.address} does not answer")
        return ConnectionLostError(f"{self.address}: {error.strerror or error}")

    def _negotiate(self) -> None:
        """Request the versions that the broker supports.

        A broker that does not know this version of ApiVersions responds in version 0 (KIP-511).
        """
        version = API_VERSIONS.last_version
        request = ApiVersionsRequest(CLIENT_ID, __version__)
        frame = self._answer(request, version)
        if len(frame) >= 6 and _CODE.unpack_from(frame, 4)[0] == Code.UNSUPPORTED_VERSION:
            version = 0
            frame = self._answer(ApiVersionsRequest(), version)
        answer = self._decode(ApiVersionsResponse, frame, version)
        if answer.error_code:
            raise RefusedError(answer.error_code, "ApiVersions")
        self.versions = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
