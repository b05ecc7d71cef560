"""Writes records for the page if `barnabas.console.writes` is on: one record, or a replay.

An inner client sends them, with the permissions of the page's user. Each write in a transaction has
its own transactional id, so that it fences no other producer. The transaction is committed when all
records are acknowledged, and aborted otherwise. A replay copies the records that a search finds,
the oldest first, at most MOST_REPLAYED.
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from barnabas.broker.observe import Look
from barnabas.broker.seams.nodes import NO_LEADER
from barnabas.broker.security.acls import Operation, ResourceType
from barnabas.client.murmur2 import partition_of
from barnabas.console.rim.inner_client import InnerClient, InnerClientError, connected
from barnabas.console.rim.record_views import RecordViews
from barnabas.console.rim.source import BadRequest, Source, Viewer
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.protocol.records import NewRecord, encode_batch

MOST_REPLAYED = 1000
MOST_HEADERS = 100
TIMEOUT_MS = 30_000
TRANSACTION_TIMEOUT_MS = 60_000
TRANSACTIONAL_ID = "barnabas-console"
OF_TRANSACTIONS = 1  # the key type of FindCoordinator for a transactional id
AGAIN_AFTER_S, MOST_TRIES = 0.05, 100


class Producer(NamedTuple):
    """The producer of one transaction. Without a transactional id, its records are not in a
    transaction.
    """

    transactional_id: str | None = None
    producer_id: int = -1
    producer_epoch: int = -1


class Writes:
    """Produces and replays records."""

    def __init__(self, source: Source, records: RecordViews) -> None:
        self._source, self._records = source, records

    def produce(self, viewer: Viewer, body: Mapping[str, Any]) -> Any:
        """Write one record. Gives: its partition and offset."""
        topic = _text(body, "topic")
        record = NewRecord(
            _bytes(body, "key"),
            _bytes(body, "value"),
            time.time_ns() // 1_000_000,
            _headers(body.get("headers")),
        )
        count = self._partition_count(viewer, topic)
        partition = body.get("partition")
        if partition is None:
            partition = _choice(record, count)
        if not isinstance(partition, int) or not 0 <= partition < count:
            raise BadRequest(f"Topic {topic!r} has the partitions 0 to {count - 1}.")
        batches = {partition: [record]}
        offsets = self._write(viewer, topic, batches, is_transaction=bool(body.get("transaction")))
        return {"topic": topic, "partition": partition, "offset": offsets[partition]}

    def replay(self, viewer: Viewer, body: Mapping[str, Any]) -> Any:
        """Copy the records that a search finds to a topic. Gives: the number of copied records."""
        topic, to = _text(body, "topic"), _text(body, "to")
        query = {
            name: str(value)
            for name, value in body.items()
            if name in ("topic", "text", "filter", "from", "to_ms", "partitions") and value
        }
        # in the body, `to` is the target topic; in the query of a search, `to` is a time
        if "to_ms" in query:
            query["to"] = query.pop("to_ms")
        self._source.require(viewer, Operation.READ, ResourceType.TOPIC, topic)
        found, is_all = self._records.all_found(viewer, query, MOST_REPLAYED)
        if not is_all:
            raise BadRequest(
                f"The search finds more than {MOST_REPLAYED:,} records, or takes too long: narrow "
                "it down. Nothing was written."
            )
        if not found:
            raise BadRequest("The search finds no record: nothing was written.")
        count = self._partition_count(viewer, to)
        batches: dict[int, list[NewRecord]] = {}
        for row in reversed(found):
            record = NewRecord(
                row.record.key, row.record.value, row.record.timestamp, row.record.headers
            )
            batches.setdefault(_choice(record, count), []).append(record)
        self._write(viewer, to, batches, is_transaction=bool(body.get("transaction")))
        return {"topic": to, "count": len(found)}

    def _partition_count(self, viewer: Viewer, topic: str) -> int:
        """The number of partitions of a topic, if the user may write to it. Raises: BadRequest."""
        self._source.require(viewer, Operation.WRITE, ResourceType.TOPIC, topic)

        def look() -> Look[int]:
            yield
            return self._source.state.partition_count(topic)

        count = self._source.run(look())
        if not count:
            raise BadRequest(f"There is no topic {topic!r}.", 404)
        return count

    def _write(
        self,
        viewer: Viewer,
        topic: str,
        batches: Mapping[int, Sequence[NewRecord]],
        *,
        is_transaction: bool,
    ) -> dict[int, int]:
        """Write records to their partitions.

        Gives:  the first offset in each partition.
        Raises: BadRequest.
        """
        try:
            with Clients(self._source, viewer) as clients:
                if not is_transaction:
                    return _send(clients, topic, batches, Producer())
                producer, coordinator = _begin(clients, topic, sorted(batches))
                try:
                    offsets = _send(clients, topic, batches, producer)
                except (BadRequest, InnerClientError):
                    _end(coordinator, producer, committed=False)
                    raise
                _end(coordinator, producer, committed=True)
                return offsets
        except InnerClientError as error:
            raise BadRequest(
                f"Whether it was written is unknown: {error}. Look at the topic."
            ) from error


class Clients(ExitStack):
    """The connections of one user to the brokers of the process. Each is opened at its first
    use.
    """

    def __init__(self, source: Source, viewer: Viewer) -> None:
        super().__init__()
        self._source, self._viewer = source, viewer
        self._by_node: dict[int | None, InnerClient] = {}

    def of_node(self, node_id: int | None = None) -> InnerClient:
        """The connection to a broker; None means the first broker."""
        if node_id not in self._by_node:
            server, (principal, host) = self._source.server, self._viewer
            client = self.enter_context(connected(server, principal, host, node_id=node_id))
            self._by_node[node_id] = client
        return self._by_node[node_id]

    def leaders(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The broker that leads each partition. Raises: BadRequest."""

        def look() -> Look[dict[int, int]]:
            yield
            rows = self._source.server.nodes.leaders(topic)
            return {index: rows[index] for index in partitions if index < len(rows)}

        leaders = self._source.run(look())
        for index in partitions:
            if leaders.get(index, NO_LEADER) == NO_LEADER:
                raise BadRequest(f"{topic}-{index} has no leader now: try again.")
        return leaders


def _begin(clients: Clients, topic: str, partitions: list[int]) -> tuple[Producer, InnerClient]:
    """Begin a transaction on partitions of a topic.

    Gives: the transaction's producer, and the connection to its coordinator.
    """
    name = f"{TRANSACTIONAL_ID}-{secrets.token_hex(8)}"
    client = _coordinator(clients, name)
    init = InitProducerIdRequest(name, TRANSACTION_TIMEOUT_MS)
    for _ in range(MOST_TRIES):
        made = client.ask(init, InitProducerIdResponse, 4)
        if made.error_code != Code.CONCURRENT_TRANSACTIONS:
            break
        time.sleep(AGAIN_AFTER_S)
    _check(made.error_code, f"begin a transaction of {name!r}")
    producer = Producer(name, made.producer_id, made.producer_epoch)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=made.producer_id,
        v3_and_below_producer_epoch=made.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(topic, partitions)],
    )
    added = client.ask(request, AddPartitionsToTxnResponse, 3)
    for one in added.results_by_topic_v3_and_below:
        for row in one.results_by_partition:
            _check(row.partition_error_code, f"write to {topic}-{row.partition_index}")
    return producer, client


def _coordinator(clients: Clients, name: str) -> InnerClient:
    """The connection to the coordinator of a transactional id."""
    request = FindCoordinatorRequest(key_type=OF_TRANSACTIONS, coordinator_keys=[name])
    for _ in range(MOST_TRIES):
        (found,) = clients.of_node().ask(request, FindCoordinatorResponse, 4).coordinators
        if found.error_code != Code.COORDINATOR_NOT_AVAILABLE:
            break
        time.sleep(AGAIN_AFTER_S)
    _check(found.error_code, f"begin a transaction of {name!r}")
    return clients.of_node(found.node_id)


def _send(
    clients: Clients,
    topic: str,
    batches: Mapping[int, Sequence[NewRecord]],
    producer: Producer,
) -> dict[int, int]:
    """Send a batch to each partition.

    Gives:  the offset of the batch in each partition.
    Raises: BadRequest.
    """
    is_transaction = producer.transactional_id is not None
    by_leader: dict[int, list[PartitionProduceData]] = {}
    for index, leader in clients.leaders(topic, sorted(batches)).items():
        batch = encode_batch(
            batches[index],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0 if is_transaction else -1,
            transactional=is_transaction,
        )
        by_leader.setdefault(leader, []).append(PartitionProduceData(index, batch))
    offsets = {}
    for leader, rows in by_leader.items():
        request = ProduceRequest(
            producer.transactional_id, -1, TIMEOUT_MS, [TopicProduceData(topic, None, rows)]
        )
        answer = clients.of_node(leader).ask(request, ProduceResponse, 9)
        for one in answer.responses:
            for row in one.partition_responses:
                what = f"write to {topic}-{row.index}"
                _check(row.error_code, what, row.error_message or "")
                offsets[row.index] = row.base_offset
    return offsets


def _end(client: InnerClient, producer: Producer, *, committed: bool) -> None:
    """End the transaction. Only a failed commit is an error: a failed abort is left to the
    transaction's timeout.
    """
    request = EndTxnRequest(
        producer.transactional_id or "", producer.producer_id, producer.producer_epoch, committed
    )
    answer = client.ask(request, EndTxnResponse, 3)
    if committed:
        _check(answer.error_code, "commit the transaction")


def _check(code: int, what: str, why: str = "") -> None:
    """Raise BadRequest if a response has an error code."""
    if not code:
        return
    name = Code(code).name if code in Code._value2member_map_ else str(code)
    status = 403 if name.endswith("AUTHORIZATION_FAILED") else 400
    reason = f": {why}" if why else ""
    raise BadRequest(f"The broker refuses to {what} ({name}){reason}.", status)


def _choice(record: NewRecord, count: int) -> int:
    """The partition of a record, chosen as the default partitioner of clients does."""
    if record.key is None:
        return secrets.randbelow(count)
    return partition_of(record.key, count)


def _text(body: Mapping[str, Any], name: str) -> str:
    """A required text in a body. Raises: BadRequest."""
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise BadRequest(f"`{name}` is missing.")
    return value


def _bytes(body: Mapping[str, Any], name: str) -> bytes | None:
    """The bytes of a field, which is a text, {"base64": ...} or null. Raises: BadRequest."""
    return _as_bytes(body.get(name), name)


def _as_bytes(value: Any, name: str) -> bytes | None:
    """The bytes of a JSON value: a text as UTF-8, or an object with base64; None for null. Raises:
    BadRequest.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return _encoded(value, name)
    if isinstance(value, dict) and isinstance(value.get("base64"), str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error as error:
            raise BadRequest(f"`{name}` is not base64: {error}.") from error
    raise BadRequest(f"`{name}` has to be a text, null, or {json.dumps({'base64': '...'})}.")


def _encoded(text: str, name: str) -> bytes:
    """A text in UTF-8. Raises: BadRequest."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"`{name}` has half of a surrogate pair, which UTF-8 lacks.") from error


def _headers(value: Any) -> tuple[tuple[str, bytes | None], ...]:
    """The headers of a record as pairs of name and value. Raises: BadRequest."""
    rows = [] if value is None else value
    if not isinstance(rows, list) or len(rows) > MOST_HEADERS:
        raise BadRequest("`headers` has to be a list of at most 100 pairs: [[name, value], ...].")
    pairs = []
    for row in rows:
        if not isinstance(row, list) or len(row) != 2 or not isinstance(row[0], str):
            raise BadRequest("`headers` has to be a list of pairs: [[name, value], ...].")
        _encoded(row[0], "headers")
        pairs.append((row[0], _as_bytes(row[1], "headers")))
    return tuple(pairs)
