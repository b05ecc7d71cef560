"""Requests and responses of one connection as bytes. There is no socket here: the code that has one
sends what `encode` gives, receives as many bytes as `size_of` says, and gives them to `decode`.
"""

from __future__ import annotations

import itertools
import struct
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeVar

from barnabas.client.errors import RefusedError, UnsupportedRequestError, WrongPeerError, code_name
from barnabas.client.request_kind import Request, RequestKind, Response
from barnabas.protocol.errors import Code
from barnabas.protocol.framing import SIZE, decode_response, encode_request
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import Buffer, MalformedMessageError, UnwritableMessageError
from barnabas.version import __version__

T = TypeVar("T")

MAX_RESPONSE_BYTES = (1 << 31) - 1
# The maximum size of a response to ApiVersions. A larger response shows that the peer uses another
# protocol.
MAX_FIRST_RESPONSE_BYTES = 1 << 20
HTTP = int.from_bytes(b"HTTP")  # the size of a response, if its first bytes are those of HTTP's
# Since version 3 the request names the client's software, and the response has the finalised
# features. Brokers before 2.4 do not have it, and answer in version 0 (KIP-511).
API_VERSIONS = RequestKind(ApiVersionsRequest, ApiVersionsResponse, 3, 3)
OLD_API_VERSIONS = RequestKind(ApiVersionsRequest, ApiVersionsResponse, 0, 0)
_ERROR_CODE = struct.Struct(">h")
_NO_APIS = bytes(4)  # an empty array of version 0
_REQUEST_HEADER = struct.Struct(">hhih")

# The steps of a conversation: a generator yields each request, gets its response, and in the end
# returns a value. `run` makes them on a connection that blocks; a loop of asyncio does the same
# with an await.
Steps = Generator[tuple[RequestKind[Any, Any], Message], Any, T]


def run(steps: Steps[T], request: Callable[[RequestKind[Any, Any], Any], Any]) -> T:
    """Make the steps of a conversation. Gives: its result. Takes: request, which sends a request
    and waits for its response.
    """
    try:
        step = next(steps)
        while True:
            step = steps.send(request(*step))
    except StopIteration as end:
        result: T = end.value
        return result


class _Sent(NamedTuple):
    """A request whose response has not been received yet."""

    kind: RequestKind[Any, Any]
    version: int
    correlation_id: int


class Frames:
    """The requests of one connection, and their responses in the same order.

    peer: the broker's address, for messages. versions: the lowest and the highest version of each
    request that the broker supports, by API key; empty before its response to ApiVersions.
    unanswered: the requests without a response.
    """

    def __init__(self, peer: str, client_id: str, most_bytes: int = MAX_RESPONSE_BYTES) -> None:
        """Takes: most_bytes, the maximum size of a response."""
        self.peer = peer
        self.versions: dict[int, tuple[int, int]] = {}
        self.unanswered: deque[_Sent] = deque()
        self._client_id, self._most_bytes = client_id, most_bytes
        self._correlation_ids = itertools.count(1)
        self._features: dict[str, int] = {}

    # --- versions

    def open(self, software: str) -> Steps[None]:
        """The first steps of a connection: request the versions that the broker supports.

        Takes:  software, the name of the client's software.
        Raises: RefusedError.
        """
        answer = yield API_VERSIONS, ApiVersionsRequest(software, __version__)
        if answer.error_code == Code.UNSUPPORTED_VERSION:
            answer = yield OLD_API_VERSIONS, ApiVersionsRequest()
        if answer.error_code:
            raise RefusedError(
                answer.error_code,
                f"{self.peer} refuses ApiVersions with {code_name(answer.error_code)}",
            )
        self.versions = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        if answer.finalized_features_epoch >= 0:
            self._features = {row.name: row.max_version_level for row in answer.finalized_features}

    def level_of(self, feature: str) -> int:
        """The finalised level of a feature in the cluster (KIP-584); 0 if it is not finalised."""
        return self._features.get(feature, 0)

    def speaks(self, kind: RequestKind[Any, Any]) -> bool:
        """Whether there is a version of a kind of request that both sides support."""
        lowest, highest = self.versions.get(kind.request_class.API_KEY, (0, -1))
        return min(kind.last_version, highest) >= max(kind.first_version, lowest)

    def version_of(self, kind: RequestKind[Any, Any]) -> int:
        """The highest version of a kind of request that both sides support.

        Raises: UnsupportedRequestError if there is none.
        """
        if not self.versions:  # the broker has not said which versions it has: ApiVersions
            return kind.last_version
        if not self.speaks(kind):
            name, (_, _, first, last) = kind.request_class.__name__, kind
            lowest, highest = self.versions.get(kind.request_class.API_KEY, (0, -1))
            has = (
                f"has {name} in versions {lowest} to {highest}"
                if highest >= 0
                else f"does not have {name}"
            )
            raise UnsupportedRequestError(
                kind.name, f"{self.peer} {has}; versions {first} to {last} are supported"
            )
        return min(kind.last_version, self.versions[kind.request_class.API_KEY][1])

    # --- requests

    def encode(self, kind: RequestKind[Request, Any], request: Request) -> bytearray:
        """The frame of a request, which is to be sent now.

        Raises: UnsupportedRequestError if the broker does not support it, or a field of it.
        """
        version, correlation_id = self.version_of(kind), next(self._correlation_ids)
        try:
            frame = encode_request(request, version, correlation_id, self._client_id)
        except UnwritableMessageError as error:
            text = f"{kind.name}: {error}"
            raise UnsupportedRequestError(text, f"{self.peer} does not support {text}") from error
        self.unanswered.append(_Sent(kind, version, correlation_id))
        return frame

    def encode_around(
        self, kind: RequestKind[Any, Any], version: int, body: Sequence[Buffer]
    ) -> list[Buffer]:
        """The frame of a request whose body the caller has encoded, as several buffers.

        The buffers of the body are not joined, which saves a copy of the records. The header has
        the format:

            int32 size, int16 api_key, int16 api_version, int32 correlation_id, nullable string
            client_id | flexible: no tagged fields
        """
        request_class, correlation_id = kind.request_class, next(self._correlation_ids)
        client_id = self._client_id.encode()
        header = _REQUEST_HEADER.pack(
            request_class.API_KEY, version, correlation_id, len(client_id)
        )
        header += client_id
        if version >= request_class.FLEXIBLE_FROM:
            header += b"\0"
        size = len(header) + sum(map(len, body))
        self.unanswered.append(_Sent(kind, version, correlation_id))
        return [SIZE.pack(size) + header, *body]

    def expect_no_response(self) -> None:
        """The last request has no response, as Produce with acks=0."""
        self.unanswered.pop()

    # --- responses

    def size_of(self, head: Buffer) -> int:
        """The size of a response, which follows its first four bytes.

        Raises: WrongPeerError if no broker sends such a response.
        """
        (size,) = SIZE.unpack(head)
        if size == HTTP and not self.versions:
            raise WrongPeerError(
                "HTTP",
                f"{self.peer} speaks HTTP, not Kafka's protocol: give the port of a listener "
                "in kafka.bootstrap.servers",
            )
        most_bytes = self._most_bytes if self.versions else MAX_FIRST_RESPONSE_BYTES
        if not SIZE.size <= size <= most_bytes:
            raise WrongPeerError(
                f"a response of {size:,} bytes",
                f"{self.peer} does not speak Kafka's protocol, or speaks it over TLS "
                f"(kafka.security.protocol): an answer of {size} bytes",
            )
        return int(size)

    def decode(self, kind: RequestKind[Any, Response], frame: memoryview | bytes) -> Response:
        """The response in a frame, to the oldest request without a response.

        Takes:  kind, that of this request; frame, without its size.
        Raises: WrongPeerError if it is the response to another request, or cannot be read.
        """
        sent = self.unanswered.popleft()
        assert sent.kind is kind, f"{sent.kind} was sent, and {kind} is to be received"
        (correlation_id,) = SIZE.unpack_from(frame)
        if correlation_id != sent.correlation_id:
            raise WrongPeerError(
                "the response to another request",
                f"{self.peer} answers request {correlation_id} instead of {sent.correlation_id}",
            )
        version = sent.version
        if sent.kind is API_VERSIONS and _is_unknown_version(frame):
            frame, version = bytes(frame[: SIZE.size + _ERROR_CODE.size]) + _NO_APIS, 0
        try:
            response: Response
            _, response = decode_response(kind.response_class, frame, version)
            return response
        except (struct.error, IndexError, MalformedMessageError) as error:
            raise WrongPeerError(
                f"an answer that cannot be read ({error})",
                f"{self.peer} sent an answer that cannot be decoded ({error})",
            ) from error


def _is_unknown_version(frame: memoryview | bytes) -> bool:
    """Whether the broker does not know the version of an ApiVersions request. It answers in
    version 0 (KIP-511), and librdkafka's mock broker in none: only the code is read.
    """
    if len(frame) < SIZE.size + _ERROR_CODE.size:
        return False
    (code,) = _ERROR_CODE.unpack_from(frame, SIZE.size)
    return bool(code == Code.UNSUPPORTED_VERSION)
