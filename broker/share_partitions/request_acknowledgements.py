"""The acknowledgements that one request of a share group's member contains."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from barnabas.broker.share_partitions.share_partition import RENEW, Acknowledgement
from barnabas.broker.share_partitions.share_partition_cache import PendingTransition
from barnabas.broker.share_partitions.share_parts import ReadableLogs, ShareParts
from barnabas.broker.share_partitions.share_sessions import NO_ID, PartitionKey
from barnabas.broker.slices import Slices
from barnabas.coordinator.share_states.share_records import SharePartitionKey
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from barnabas.protocol.messages.share_fetch import ShareFetchRequest
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.disk import NotWrittenError

RENEWALS_SINCE = 2
PARTITIONS_AT_ONCE = 200
ROWS_AT_ONCE = 5_000  # maximum number of rows of the request that are read in one slice

MemberRequest = ShareFetchRequest | ShareAcknowledgeRequest
Codes = dict["PartitionKey", tuple[int, str | None]]


class RequestAcknowledgements:
    """The acknowledgements in one request.

    count: the number of partitions that the request names, with repetitions. rows: these
    partitions, as far as `decide_and_store` has read them. codes: the error codes for the response,
    by partition.
    """

    def __init__(
        self,
        parts: ShareParts,
        request: MemberRequest,
        context: RequestContext,
        *,
        is_renewal: bool,
    ) -> None:
        """Takes: is_renewal, whether the request may renew locks (is_renew_ack of KIP-1222)."""
        self._shares = parts.shares.get()
        self._readable_logs = ReadableLogs(parts, context)
        self._group_id, self._member_id = request.group_id or "", request.member_id or ""
        self._highest_type = RENEW if context.api_version >= RENEWALS_SINCE else RENEW - 1
        self._is_renewal = is_renewal
        self._pending: list[PendingTransition] = []
        self.codes: Codes = {}
        self._request = request
        self.count = count_of(request)
        self.rows: dict[PartitionKey, tuple[uuid.UUID | None, Any]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether the request acknowledges nothing."""
        return not any(
            row.acknowledgement_batches
            for topic in self._request.topics
            for row in topic.partitions
        )

    @property
    def lock_duration_ms(self) -> int:
        """How long the group's members hold the records that they acquire."""
        return self._shares.partitions.limits(self._group_id).lock_duration_ms

    def decide_and_store(self, then: Callable[[int], None], now_ms: int) -> Slices:
        """Decide about the acknowledgements of all partitions, and make the changes. Each slice
        does this for some of the partitions.

        Takes: then, called once all changes are durable.
        """
        # the calls of `done` that are still expected: one for each slice, and one for the end of
        # this loop
        left = 1

        def done(at_ms: int) -> None:
            nonlocal left
            left -= 1
            if not left:
                then(at_ms)

        named = _rows_of(self._request)
        while some := list(islice(named, ROWS_AT_ONCE)):
            self.rows.update(some)
            if len(some) == ROWS_AT_ONCE:
                now_ms = yield
        places, partitions = list(self.rows), self._shares.partitions
        for first in range(0, len(places), PARTITIONS_AT_ONCE):
            if first:
                now_ms = yield
            # while the wakes are held, no records of these partitions are acquired
            with partitions.wakes:
                self._decide_each(places[first : first + PARTITIONS_AT_ONCE], now_ms)
                pending, self._pending = self._pending, []
                left += 1
                try:
                    partitions.store(pending, done, now_ms)
                except NotWrittenError:
                    self._refuse(pending)
                    done(now_ms)
        done(now_ms)

    def _refuse(self, pending: Sequence[PendingTransition]) -> None:
        """Refuse acknowledgements for which there is no disk space. The member may send
        them again.
        """
        for one in pending:
            place = (one.loaded.key.topic_id, one.loaded.key.partition)
            self.codes[place] = (Code.COORDINATOR_NOT_AVAILABLE, "the disk is full")

    def _decide_each(self, places: Iterable[PartitionKey], now_ms: int) -> None:
        """Decide about these partitions, and note the error code of each."""
        for place in places:
            try:
                self._decide(place, now_ms)
                self.codes[place] = (Code.NONE, None)
            except KafkaError as error:
                self.codes[place] = (error.code, error.message)

    def _decide(self, place: PartitionKey, now_ms: int) -> None:
        """Decide about the acknowledgements of one partition, for `decide_and_store`. Raises:
        KafkaError.
        """
        topic_id, row = self.rows[place]
        batches = row.acknowledgement_batches
        try:
            self._readable_logs.log(topic_id, row.partition_index)
        except KafkaError as error:
            if error.code != Code.UNKNOWN_TOPIC_ID:
                self._check(batches)
            raise
        self._check(batches)
        if batches:
            key = SharePartitionKey(self._group_id, *place)
            acknowledged = [
                Acknowledgement(one.first_offset, one.last_offset, one.acknowledge_types)
                for one in batches
            ]
            partitions = self._shares.partitions
            self._shares.session_ends.release_now(self._group_id, self._member_id, place, now_ms)
            self._pending.append(partitions.acknowledge(key, self._member_id, acknowledged, now_ms))

    def _check(self, batches: Sequence[Any]) -> None:
        """Check that the batches are consistent. Raises: KafkaError INVALID_REQUEST."""
        last_offset = -1
        for one in batches:
            types = one.acknowledge_types
            if one.first_offset > one.last_offset or one.first_offset < last_offset:
                raise KafkaError(Code.INVALID_REQUEST, "the batches are not in order")
            if not types or len(types) not in (1, one.last_offset - one.first_offset + 1):
                raise KafkaError(Code.INVALID_REQUEST, "a batch needs one type, or one for each")
            if min(types) < 0 or max(types) > self._highest_type:
                raise KafkaError(Code.INVALID_REQUEST, "the type of acknowledgement is unknown")
            if RENEW in types and not self._is_renewal:
                raise KafkaError(Code.INVALID_REQUEST, "is_renew_ack is needed for a renewal")
            last_offset = one.last_offset


def count_of(request: MemberRequest) -> int:
    """The number of partitions that a request names."""
    return sum(len(topic.partitions) for topic in request.topics)


def _rows_of(request: MemberRequest) -> Iterator[tuple[PartitionKey, tuple[uuid.UUID | None, Any]]]:
    """The rows of a request, with their partitions."""
    for topic in request.topics:
        id_bytes = (topic.topic_id or NO_ID).bytes
        for row in topic.partitions:
            yield (id_bytes, row.partition_index), (topic.topic_id, row)
