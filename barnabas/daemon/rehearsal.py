"""What a fork server does for nothing before it forks: the steps of a start, and of a test's first
requests.

The interpreter specializes code that has run some times. Done before the first fork, this need not
be done in each child, where the first write to a page copies it. The broker is a value without a
thread, a socket or a timer, so nothing of the rehearsal remains but such traces.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable
from shutil import rmtree

from barnabas.broker.core import Broker
from barnabas.broker.rim.system_ids import SystemIds
from barnabas.broker.settings.config import BrokerConfig
from barnabas.daemon.opening import open_broker
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records import NewRecord, encode_batch

_CLIENT = 1
_TOPIC = "rehearsal"
_PROPERTIES = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


def rehearse_start(directory: str) -> None:
    """Open a broker in an empty directory, and close it."""
    _with_broker(directory, lambda broker: None)
    asyncio.SelectorEventLoop().close()


def rehearse_test(directory: str) -> None:
    """The same, with the requests of a test that reads what it has written in a transaction."""
    _with_broker(directory, _send_requests)


def _with_broker(directory: str, use: Callable[[Broker], None]) -> None:
    with contextlib.suppress(OSError):  # a full disk is a matter of the broker that needs it
        config = BrokerConfig.from_properties({**_PROPERTIES, "log.dirs": directory})
        broker = open_broker(config, SystemIds(), now_ms=0)
        use(broker)
        broker.close_logs(0, lambda files: None)
    rmtree(directory, ignore_errors=True)


def _send_requests(broker: Broker) -> None:
    """Send the requests of a client that knows no address yet but the broker's."""
    client = _Client(broker)
    topics = [CreatableTopic(name=_TOPIC, num_partitions=1, replication_factor=-1)]
    of_topic = [MetadataRequestTopic(name=_TOPIC)]
    client.ask(ApiVersionsRequest(client_software_name="rehearsal", client_software_version="1"), 3)
    client.ask(MetadataRequest(topics=[]), 12)
    client.ask(CreateTopicsRequest(topics=topics), 4)
    client.ask(MetadataRequest(topics=of_topic), 12)
    client.ask(FindCoordinatorRequest(key=_TOPIC, key_type=1), 2)
    answer = client.ask(InitProducerIdRequest(_TOPIC, transaction_timeout_ms=60_000), 4)
    producer, _ = InitProducerIdResponse.read(answer, 4 + 5, 4)
    identity = (producer.producer_id, producer.producer_epoch)
    partitions = [AddPartitionsToTxnTopic(name=_TOPIC, partitions=[0])]
    client.ask(AddPartitionsToTxnRequest(None, _TOPIC, *identity, partitions), 1)
    batch = encode_batch(
        [NewRecord(None, b"value", 0)], producer_id=identity[0], producer_epoch=identity[1],
        base_sequence=0, transactional=True,
    )  # fmt: skip
    data = [TopicProduceData(_TOPIC, None, [PartitionProduceData(0, bytes(batch))])]
    client.ask(ProduceRequest(_TOPIC, acks=-1, timeout_ms=1000, topic_data=data), 10)
    client.ask(EndTxnRequest(_TOPIC, *identity, committed=True), 1)
    client.ask(FindCoordinatorRequest(key=_TOPIC), 2)
    client.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(_TOPIC, topics=None)]), 8)
    rows = [FetchTopic(_TOPIC, None, [FetchPartition(partition_max_bytes=1 << 20)])]
    client.ask(FetchRequest(min_bytes=1, isolation_level=1, topics=rows), 11)
    broker.on_tick(1)


class _Client:
    """The only connection of a broker, and what the rim does with the broker's outbox."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._answer = b""
        broker.on_connected(_CLIENT, "127.0.0.1", "127.0.0.1", 9092, None)

    def ask(self, request: Message, version: int) -> bytes:
        """Send a request. Gives: the last answer, with its size."""
        frame = bytearray(struct.pack(">hhih", request.API_KEY, version, 0, -1))
        if version >= request.FLEXIBLE_FROM:
            frame.append(0)  # no tagged fields
        request.write(frame, version)
        self._broker.on_frame(_CLIENT, memoryview(frame), 0)
        self._carry_out()
        return self._answer

    def _carry_out(self) -> None:
        outbox = self._broker.outbox
        while outbox.sends or outbox.flushes or outbox.work or outbox.deferred:
            for _, pieces in outbox.sends:
                self._answer = b"".join(
                    piece for piece in pieces if isinstance(piece, bytes | bytearray | memoryview)
                )
            outbox.sends.clear()
            if outbox.deferred:
                self._broker.on_sent(0)
            flushes, outbox.flushes = outbox.flushes, []
            for job in flushes:
                self._broker.on_flushed(job, 0)
            work, outbox.work = outbox.work, []
            for one in work:
                self._broker.on_worked(one, one.run(), None, 0)
        outbox.closes.clear()
