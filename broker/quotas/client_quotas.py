"""Quotas of clients at work: what is recorded of a request, and how long its client has to wait.

    of a request       is recorded                                  with
    Produce            the bytes of its frame, when it came         producer_byte_rate
    Fetch              the bytes of its answer                      consumer_byte_rate
    of topics          partitions made or deleted                   controller_mutation_rate
    any but EXEMPT     the time that the core worked on it          request_percentage

A request above a quota is done, and its answer tells the longest of the times to wait; for so long
the rim reads nothing from the connection after it (KIP-219). Two are not done: a Fetch is answered
without data, and what it would have been given is not counted; a change of topics in a version
since KIP-599 is refused with THROTTLING_QUOTA_EXCEEDED while an earlier one is not made up for.

Those whom no quota is for are not counted. Who share a quota is in `entities.py`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.outbox import NO_RESPONSE, Answer, ConnectionState, Encoded
from barnabas.broker.quotas.entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Limit,
    limit_of_client,
)
from barnabas.broker.quotas.rates import Rate, TokenBucket, Windows
from barnabas.protocol.api_table import BY_KEY, Api
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.framing import response_has_tagged_header

if TYPE_CHECKING:
    from barnabas.broker.core import Broker
    from barnabas.broker.dispatch import Route
    from barnabas.protocol.messages.message import Message
    from barnabas.protocol.primitives import Buffer
    from barnabas.protocol.request_context import RequestContext

PRODUCE, FETCH, WRITE_TXN_MARKERS = 0, 1, 27
EXEMPT = frozenset({WRITE_TXN_MARKERS})
REFUSED_SINCE = {19: 6, 20: 5, 37: 3}  # CreateTopics, DeleteTopics, CreatePartitions
PERCENT_PER_NS = 100 / 1e9
FEWEST_KEPT = 1000
_INT = struct.Struct(">i")
_FRAME_HEADER_BYTES = 8
Key = tuple[str, str, str]


class Mutations:
    """Changes of topics by one request: each is recorded, and refused while the quota is exceeded.

    throttle_ms: how long the client has to wait.
    """

    __slots__ = ("_bucket", "_is_strict", "_limit", "_now_ms", "throttle_ms")

    def __init__(self, bucket: TokenBucket, limit: float, now_ms: int, *, is_strict: bool) -> None:
        self._bucket, self._limit, self._now_ms = bucket, limit, now_ms
        self._is_strict = is_strict
        self.throttle_ms = 0

    def record(self, partition_count: int) -> None:
        """That many partitions are made or deleted.

        Raises: KafkaError THROTTLING_QUOTA_EXCEEDED; then they are not to be, and not recorded.
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


class _UnderWay(NamedTuple):
    """The request that the core works on."""

    ticket: int
    since_ns: int


class ClientQuotas:
    """What clients have used, and whom it costs a wait.

    Takes: broker, whose metadata has the quotas, whose outbox gets the waits, and whose `busy_ns`
           tells the time that the core works.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        config = broker.config
        self._windows = Windows(config.quota_window_num, config.quota_window_size_seconds * 1000)
        self._mutation_windows = Windows(
            config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000
        )
        self._limits: dict[Key, Limit | None] = {}
        self._rates: dict[Key, Rate] = {}
        self._buckets: dict[Key, TokenBucket] = {}
        self._most_kept = FEWEST_KEPT
        self._under_way = _UnderWay(-1, 0)
        self._frame_bytes = 0
        self._mutations: dict[int, Mutations] = {}

    def on_changed(self) -> None:
        """Other quotas hold than before; what was used stays recorded."""
        self._limits.clear()

    # --- a request's way ---------------------------------------------------------------------

    def around(self, api: Api, row: Route) -> Route:
        """The row of an API with what is done before and after its handler."""

        def read(data: Buffer, at: int, version: int) -> tuple[Message, int]:
            self._frame_bytes = len(data)  # a Produce is handled at once
            return row.read(data, at, version)

        def handle(request: Message, context: RequestContext) -> Answer:
            self._under_way = _UnderWay(context.ticket, self._broker.busy_ns())
            if api.key == PRODUCE:
                self._record(PRODUCER_BYTE_RATE, context, self._frame_bytes)
            try:
                answer = row.handle(request, context)
                if answer is NO_RESPONSE:
                    self.on_produced(context)
                return self.on_encoded(context, answer) if isinstance(answer, Encoded) else answer
            finally:
                self._count_work(context)
                self._under_way = _UnderWay(-1, 0)

        return row._replace(read=read if api.key == PRODUCE else row.read, handle=handle)

    def on_produced(self, context: RequestContext) -> int:
        """A Produce is answered. Gives: how long its client has to wait, in ms."""
        return self._throttle(
            context, self._throttle_ms(PRODUCER_BYTE_RATE, context), self._work_ms(context)
        )

    def most_fetched_bytes(self, context: RequestContext) -> int | None:
        """What a Fetch may be given at most: what all windows but one give; None: any number."""
        limit = self._limit(CONSUMER_BYTE_RATE, context)
        if limit is None:
            return None
        windows = self._windows
        return min(2**31 - 1, int(limit.value * (windows.number - 1) * windows.size_ms / 1000))

    def on_fetched(self, context: RequestContext, response_bytes: int) -> int:
        """A Fetch could be answered with so many bytes.

        Gives: how long its client has to wait, in ms; then it gets nothing.
        """
        self._record(CONSUMER_BYTE_RATE, context, response_bytes)
        throttle_ms = self._throttle(
            context, self._throttle_ms(CONSUMER_BYTE_RATE, context), self._work_ms(context)
        )
        if throttle_ms:
            self._record(CONSUMER_BYTE_RATE, context, -response_bytes)
        return throttle_ms

    def on_answered(self, context: RequestContext) -> int:
        """Any other request is answered. Gives: how long its client has to wait, in ms."""
        mutations = self._mutations.pop(context.connection_id, None)
        return self._throttle(
            context, 0 if mutations is None else mutations.throttle_ms, self._work_ms(context)
        )

    def on_response(self, context: RequestContext, response: Message) -> None:
        """An answer that is yet to be encoded is told how long its client has to wait."""
        throttle_ms = self.on_answered(context)
        if throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms

    def on_encoded(self, context: RequestContext, answer: Encoded) -> Encoded:
        """The same of one that its handler has encoded. Produce and Fetch have asked already."""
        if context.api_key == PRODUCE and not answer.pieces:
            self.on_produced(context)
        if context.api_key in (PRODUCE, FETCH):
            return answer
        throttle_ms = self.on_answered(context)
        if not throttle_ms:
            return answer
        frame = bytearray(b"".join(bytes(piece) for piece in answer.pieces))  # type: ignore[arg-type]
        is_tagged = response_has_tagged_header(BY_KEY[context.api_key], context.api_version)
        _INT.pack_into(frame, _FRAME_HEADER_BYTES + is_tagged, throttle_ms)
        return Encoded((frame,))

    def mutations(self, context: RequestContext) -> Mutations | None:
        """Where the changes of topics that a request asks for are recorded; None: no quota is for
        its client.
        """
        limit = self._limit(CONTROLLER_MUTATION_RATE, context)
        if limit is None:
            return None
        key = (CONTROLLER_MUTATION_RATE, limit.user, limit.client_id)
        bucket = self._buckets.get(key)
        if bucket is None:
            self._make_room(context.now_ms)
            bucket = self._buckets[key] = TokenBucket(self._mutation_windows)
        is_strict = context.api_version >= REFUSED_SINCE.get(context.api_key, 2**15)
        mutations = Mutations(bucket, limit.value, self._now_ms(context), is_strict=is_strict)
        self._mutations[context.connection_id] = mutations
        return mutations

    def on_closed(self, connection_id: int) -> None:
        """The connection is gone."""
        self._mutations.pop(connection_id, None)

    # --- what was used -----------------------------------------------------------------------

    def _now_ms(self, context: RequestContext) -> int:
        """The time of this event, which may be a later one than that which brought the request."""
        return max(context.now_ms, self._broker.wall.now_ms or 0)

    def _limit(self, key: str, context: RequestContext) -> Limit | None:
        connection = self._broker.connections.get(context.connection_id)
        if connection is None:
            return None
        user, client_id = user_of(connection), context.client_id
        place = (key, user, client_id)
        try:
            return self._limits[place]
        except KeyError:
            if len(self._limits) >= self._most_kept:
                self._limits.clear()
            quotas = self._broker.metadata.client_quotas
            limit = self._limits[place] = limit_of_client(quotas, key, user, client_id)
            return limit

    def _record(self, key: str, context: RequestContext, amount: float) -> None:
        limit = self._limit(key, context)
        if limit is None:
            return
        now_ms = self._now_ms(context)
        place = (key, limit.user, limit.client_id)
        rate = self._rates.get(place)
        if rate is None:
            self._make_room(now_ms)
            rate = self._rates[place] = Rate(self._windows, now_ms)
        rate.record(amount, now_ms)

    def _throttle_ms(self, key: str, context: RequestContext) -> int:
        limit = self._limit(key, context)
        if limit is None:
            return 0
        rate = self._rates.get((key, limit.user, limit.client_id))
        return 0 if rate is None else rate.throttle_ms(limit.value, self._now_ms(context))

    def _count_work(self, context: RequestContext) -> None:
        """Record the time that the core has worked on the request since this was last done."""
        if context.ticket != self._under_way.ticket or context.api_key in EXEMPT:
            return
        now_ns = self._broker.busy_ns()
        percent = (now_ns - self._under_way.since_ns) * PERCENT_PER_NS
        self._under_way = _UnderWay(context.ticket, now_ns)
        self._record(REQUEST_PERCENTAGE, context, percent)

    def _work_ms(self, context: RequestContext) -> int:
        """How long the client has to wait since its requests take so much of the core's time."""
        if context.api_key in EXEMPT:
            return 0
        self._count_work(context)
        return min(self._throttle_ms(REQUEST_PERCENTAGE, context), self._windows.size_ms)

    def _throttle(self, context: RequestContext, *throttles_ms: int) -> int:
        """Have the rim read nothing from the connection for the longest of these times."""
        throttle_ms = max(throttles_ms)
        if throttle_ms:
            self._broker.outbox.mutes.append((context.connection_id, throttle_ms))
        return throttle_ms

    def _make_room(self, now_ms: int) -> None:
        """Forget those who have used nothing for long, each time when twice as many are kept."""
        if len(self._rates) + len(self._buckets) < self._most_kept:
            return
        for kept in (self._rates, self._buckets):
            for key in [key for key, used in kept.items() if used.is_obsolete(now_ms)]:
                del kept[key]
        self._most_kept = max(FEWEST_KEPT, 2 * (len(self._rates) + len(self._buckets)))


def user_of(connection: ConnectionState) -> str:
    """The name of the user that a connection's client has shown to be."""
    return connection.principal.removeprefix("User:")
