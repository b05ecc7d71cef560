"""Quotas of clients: records how much they use, and throttles clients above a quota.

    request            what is recorded                             key
    Produce            the bytes of its frame, on arrival           producer_byte_rate
    Fetch              the bytes of its response                    consumer_byte_rate
    changes of topics  partitions created or deleted                controller_mutation_rate
    any but EXEMPT     the time that the core worked on it          request_percentage

A request above a quota is handled, and its response contains the longest of the throttle times.
During that time the rim does not read from the connection (KIP-219). There are two exceptions. A
Fetch above the quota gets a response without data, which is not counted. A change of topics, in the
request versions since KIP-599, is refused with THROTTLING_QUOTA_EXCEEDED until the earlier changes
are within the quota.

Clients without a quota are not counted. `entities.py` decides which clients share a quota.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import NamedTuple

from barnabas.broker.connections.connection_state import ConnectionState
from barnabas.broker.logs.metadata import ClusterMetadata
from barnabas.broker.outbox import NO_RESPONSE, Answer, Encoded, Outbox
from barnabas.broker.quotas.entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Limit,
    limit_of_client,
)
from barnabas.broker.quotas.rates import Rate, TokenBucket, Windows
from barnabas.broker.routes import Route
from barnabas.broker.settings.config import BrokerConfig
from barnabas.protocol.api import Api
from barnabas.protocol.api_table import RESPONSE_TAGGED_FROM
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import Buffer
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.wall_clock import WallClock

PRODUCE, FETCH, WRITE_TXN_MARKERS, SHARE_FETCH = 0, 1, 27, 78
EXEMPT = frozenset({WRITE_TXN_MARKERS})
REFUSED_SINCE = {19: 6, 20: 5, 37: 3}  # CreateTopics, DeleteTopics, CreatePartitions
PERCENT_PER_NS = 100 / 1e9
FEWEST_KEPT = 1000
NOT_UNDER_WAY = -1
_INT = struct.Struct(">i")
_FRAME_HEADER_BYTES = 8
QuotaKey = tuple[str, str, str]
"""The key of a quota, and the user and client id of the clients that share it."""


class Mutations:
    """The changes of topics that one request makes. Each change is recorded, or refused while the
    quota is exceeded. throttle_ms: how long the client has to wait.
    """

    __slots__ = ("_bucket", "_is_strict", "_limit", "_now_ms", "throttle_ms")

    def __init__(self, bucket: TokenBucket, limit: float, now_ms: int, *, is_strict: bool) -> None:
        self._bucket, self._limit, self._now_ms = bucket, limit, now_ms
        self._is_strict = is_strict
        self.throttle_ms = 0

    def record(self, partition_count: int) -> None:
        """Record that a number of partitions will be created or deleted.

        Raises: KafkaError THROTTLING_QUOTA_EXCEEDED. Then nothing is recorded, and the change must
                not be made.
        """
        if self._is_strict:
            self.throttle_ms = self._bucket.throttle_ms(self._limit, self._now_ms)
            if self.throttle_ms:
                raise KafkaError(
                    Code.THROTTLING_QUOTA_EXCEEDED,
                    "The controller_mutation_rate is exceeded: try again in "
                    f"{self.throttle_ms} ms.",
                )
        self._bucket.record(partition_count, self._limit, self._now_ms)
        if not self._is_strict:
            self.throttle_ms = self._bucket.throttle_ms(self._limit, self._now_ms)


class _Usage:
    """The use of the clients that share a quota. rate: the measured rate; None before the first
    use.
    """

    __slots__ = ("limit", "rate", "windows")

    def __init__(self, limit: float, windows: Windows) -> None:
        self.limit, self.windows = limit, windows
        self.rate: Rate | None = None

    def record(self, amount: float, now_ms: int) -> None:
        """Record a use; the first one creates the Rate."""
        if self.rate is None:
            self.rate = Rate(self.windows, now_ms)
        self.rate.record(amount, now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        return 0 if self.rate is None else self.rate.throttle_ms(self.limit, now_ms)

    def is_obsolete(self, now_ms: int) -> bool:
        return self.rate is None or self.rate.is_obsolete(now_ms)


class _Client(NamedTuple):
    """The quotas of a client; each is None if the client has no quota of that kind."""

    produced: _Usage | None = None
    fetched: _Usage | None = None
    worked: _Usage | None = None
    mutated: Limit | None = None


_FREE = _Client()


class ClientQuotas:
    """Records the use of clients, and throttles those above a quota.

    Takes: metadata, which has the quotas; outbox, which gets the throttle times; busy_ns, the time
           that the core has worked.
    """

    def __init__(
        self,
        config: BrokerConfig,
        metadata: ClusterMetadata,
        connections: Mapping[int, ConnectionState],
        outbox: Outbox,
        wall: WallClock,
        busy_ns: Callable[[], int],
    ) -> None:
        self._metadata, self._connections, self._outbox = metadata, connections, outbox
        self._wall, self._busy_ns = wall, busy_ns
        self._windows = Windows(config.quota_window_num, config.quota_window_size_seconds * 1000)
        self._mutation_windows = Windows(
            config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000
        )
        self._clients: dict[tuple[str, str], _Client] = {}
        self._usages: dict[QuotaKey, _Usage] = {}
        self._buckets: dict[QuotaKey, TokenBucket] = {}
        self._most_kept = FEWEST_KEPT
        # the ticket of the request that the core is handling, and when its handling began
        self._ticket, self._since_ns = NOT_UNDER_WAY, 0
        self._frame_bytes = 0
        self._mutations: dict[int, Mutations] = {}

    def on_changed(self) -> None:
        """Apply changed quotas. The use that was recorded so far is kept."""
        self._clients.clear()

    # --- the path of a request ---------------------------------------------------------------

    def around(self, api: Api, row: Route) -> Route:
        """Wrap the route of an API, so that use is recorded before and after its handler."""

        def read(data: Buffer, at: int, version: int) -> tuple[Message, int]:
            # used if this is a Produce, which is handled right after this
            self._frame_bytes = len(data)
            return row.read(data, at, version)

        def handle(request: Message, context: RequestContext) -> Answer:
            client = self._client(context)
            if client is _FREE:
                return row.handle(request, context)
            if api.key == PRODUCE and client.produced is not None:
                client.produced.record(self._frame_bytes, context.now_ms)
            worked = None if api.key in EXEMPT else client.worked
            if worked is not None:
                self._ticket, self._since_ns = context.ticket, self._busy_ns()
            try:
                answer = row.handle(request, context)
                if answer is NO_RESPONSE:
                    self.on_produced(context)
                return self.on_encoded(context, answer) if isinstance(answer, Encoded) else answer
            finally:
                if worked is not None:
                    self._count_work(worked, context)
                    self._ticket = NOT_UNDER_WAY

        return row._replace(read=read if api.key == PRODUCE else row.read, handle=handle)

    def are_for(self, context: RequestContext) -> bool:
        """Whether the client of a request has a quota."""
        return self._client(context) is not _FREE

    def on_produced(self, context: RequestContext) -> int:
        """Record a Produce that has a response. Gives: how long its client has to wait, in ms."""
        client = self._client(context)
        if client is _FREE:
            return 0
        produced = client.produced
        throttle_ms = 0 if produced is None else produced.throttle_ms(self._now_ms(context))
        return self._throttle(context, throttle_ms, self._work_ms(client, context))

    def most_fetched_bytes(self, context: RequestContext) -> int | None:
        """The maximum number of bytes of a Fetch; None if there is no quota.

        It is the number of bytes that the quota allows in all windows but one.
        """
        fetched = self._client(context).fetched
        if fetched is None:
            return None
        windows = self._windows
        return min(2**31 - 1, int(fetched.limit * (windows.number - 1) * windows.size_ms / 1000))

    def on_fetched(self, context: RequestContext, response_bytes: int) -> tuple[int, bool]:
        """Record a Fetch whose response has the given number of bytes.

        Gives:  how long its client has to wait, in ms; and whether the response must have no data,
                since the data would exceed the byte quota. A client that exceeds only its quota of
                the broker's time gets the data: the time is already spent, and a repeated request
                would exceed the quota again.
        """
        client = self._client(context)
        if client is _FREE:
            return 0, False
        now_ms, fetched = self._now_ms(context), client.fetched
        bytes_ms = 0
        if fetched is not None:
            fetched.record(response_bytes, now_ms)
            bytes_ms = fetched.throttle_ms(now_ms)
        throttle_ms = self._throttle(context, bytes_ms, self._work_ms(client, context))
        if bytes_ms and fetched is not None:
            # The response will have no data, so the recorded bytes are subtracted again.
            fetched.record(-response_bytes, now_ms)
        return throttle_ms, bytes_ms > 0

    def on_shared(self, context: RequestContext, response_bytes: int) -> int:
        """Record a ShareFetch whose response has the given number of bytes. Gives: how long its
        client has to wait, in ms. The client gets the records in any case, since they are locked
        for it.
        """
        client = self._client(context)
        if client is _FREE:
            return 0
        now_ms, fetched = self._now_ms(context), client.fetched
        bytes_ms = 0
        if fetched is not None:
            fetched.record(response_bytes, now_ms)
            bytes_ms = fetched.throttle_ms(now_ms)
        return self._throttle(context, bytes_ms, self._work_ms(client, context))

    def on_answered(self, context: RequestContext) -> int:
        """Record any other request that has a response. Gives: how long its client has to wait, in
        ms.
        """
        client = self._client(context)
        if client is _FREE:
            return 0
        mutations = self._mutations.pop(context.connection_id, None)
        throttle_ms = 0 if mutations is None else mutations.throttle_ms
        return self._throttle(context, throttle_ms, self._work_ms(client, context))

    def on_response(self, context: RequestContext, response: Message) -> None:
        """Set the throttle time of a response that is not encoded yet."""
        throttle_ms = self.on_answered(context)
        if throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms

    def on_encoded(self, context: RequestContext, answer: Encoded) -> Encoded:
        """Throttle the client of a response that its handler has encoded. Responses with records
        are throttled already.
        """
        if context.api_key == PRODUCE and not answer:
            self.on_produced(context)
        if context.api_key in (PRODUCE, FETCH, SHARE_FETCH):
            return answer
        throttle_ms = self.on_answered(context)
        if not throttle_ms:
            return answer
        frame = bytearray(b"".join(bytes(piece) for piece in answer))  # type: ignore[arg-type]
        is_tagged = context.api_version >= RESPONSE_TAGGED_FROM[context.api_key]
        _INT.pack_into(frame, _FRAME_HEADER_BYTES + is_tagged, throttle_ms)
        return Encoded((frame,))

    def mutations(self, context: RequestContext) -> Mutations | None:
        """The object that records the changes of topics in a request; None if the client has no
        quota for such changes.
        """
        limit = self._client(context).mutated
        if limit is None:
            return None
        place = (CONTROLLER_MUTATION_RATE, limit.user, limit.client_id)
        bucket = self._buckets.get(place)
        if bucket is None:
            self._make_room(context.now_ms)
            bucket = self._buckets[place] = TokenBucket(self._mutation_windows)
        is_strict = context.api_version >= REFUSED_SINCE.get(context.api_key, 2**15)
        mutations = Mutations(bucket, limit.value, self._now_ms(context), is_strict=is_strict)
        self._mutations[context.connection_id] = mutations
        return mutations

    def on_closed(self, connection_id: int) -> None:
        """Drop the state of a closed connection."""
        self._mutations.pop(connection_id, None)

    # --- recorded use ------------------------------------------------------------------------

    def _now_ms(self, context: RequestContext) -> int:
        """The time of the current event, which may be later than that of the request."""
        return max(context.now_ms, self._wall.now_ms or 0)

    def _client(self, context: RequestContext) -> _Client:
        """The quotas of the client of a request."""
        connection = self._connections.get(context.connection_id)
        if connection is None:
            return _FREE
        client = self._clients.get((connection.principal, context.client_id))
        return self._resolved(connection, context) if client is None else client

    def _resolved(self, connection: ConnectionState, context: RequestContext) -> _Client:
        """Find the quotas of a client, and cache them; _FREE if it has none."""
        self._make_room(context.now_ms)
        user, client_id = connection.principal.removeprefix("User:"), context.client_id
        quotas = self._metadata.client_quotas
        client = _Client(
            self._usage_of(PRODUCER_BYTE_RATE, user, client_id),
            self._usage_of(CONSUMER_BYTE_RATE, user, client_id),
            self._usage_of(REQUEST_PERCENTAGE, user, client_id),
            limit_of_client(quotas, CONTROLLER_MUTATION_RATE, user, client_id),
        )
        if client == _FREE:
            client = _FREE
        self._clients[connection.principal, client_id] = client
        return client

    def _usage_of(self, key: str, user: str, client_id: str) -> _Usage | None:
        """The use under a quota that applies to a client, shared by all clients of that quota; None
        if none applies.
        """
        limit = limit_of_client(self._metadata.client_quotas, key, user, client_id)
        if limit is None:
            return None
        place = (key, limit.user, limit.client_id)
        used = self._usages.get(place)
        if used is None:
            used = self._usages[place] = _Usage(limit.value, self._windows)
        used.limit = limit.value
        return used

    def _count_work(self, worked: _Usage, context: RequestContext) -> None:
        """Record the time that the core has worked on the request since the last call."""
        if context.ticket == self._ticket:
            now_ns = self._busy_ns()
            worked.record((now_ns - self._since_ns) * PERCENT_PER_NS, self._now_ms(context))
            self._since_ns = now_ns

    def _work_ms(self, client: _Client, context: RequestContext) -> int:
        """How long the client has to wait because its requests used too much of the core's time, in
        ms.
        """
        worked = client.worked
        if worked is None or context.api_key in EXEMPT:
            return 0
        self._count_work(worked, context)
        return min(worked.throttle_ms(self._now_ms(context)), self._windows.size_ms)

    def _throttle(self, context: RequestContext, *throttles_ms: int) -> int:
        """Mute the connection for the longest of the given times. Gives: this time."""
        throttle_ms = max(throttles_ms)
        if throttle_ms:
            self._outbox.mutes.append((context.connection_id, throttle_ms))
        return throttle_ms

    def _make_room(self, now_ms: int) -> None:
        """Drop the entries without recent use, whenever the number of entries has doubled."""
        if len(self._clients) >= self._most_kept:
            self._clients.clear()
        if len(self._usages) + len(self._buckets) < self._most_kept:
            return
        self._clients.clear()  # the clients refer to entries that are dropped below
        for kept in (self._usages, self._buckets):
            for place in [place for place, used in kept.items() if used.is_obsolete(now_ms)]:
                del kept[place]
        self._most_kept = max(FEWEST_KEPT, 2 * (len(self._usages) + len(self._buckets)))
