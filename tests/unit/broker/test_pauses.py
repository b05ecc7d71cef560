"""No call into the core uses more CPU time than the watchdog of the event loop allows
(helpers/loop_watchdog.py), even if the state is large. Other clients are served between any two
calls.
"""

from __future__ import annotations

import gc
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import loop_watchdog
from helpers.admin_host import NOW_MS
from helpers.core_host import CoreHost
from helpers.slowness import at_desk_s

from barnabas.broker.logs.metadata import Topic
from barnabas.coordinator.internal_topics import TRANSACTIONS_TOPIC
from barnabas.coordinator.transactions.transaction_state import (
    TransactionMetadata,
    TransactionState,
)
from barnabas.daemon.garbage import GC_THRESHOLDS
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.protocol.topic_partition import TopicPartition

READER, OTHER = 1, 2
IDS, OPEN, PRODUCERS, LOGS, OFFSETS = 20_000, 2_000, 60_000, 4_000, 10_000
MARKED, PRODUCED = 1_000, 250
DAY_MS = 86_400_000


class TimedHost(CoreHost):
    """A host that measures its calls. `longest_ms` is the CPU time of the longest call into the
    core since `longest_ms` was last set to 0.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, log_retention_ms="-1", log_cleaner_enable="false")
        self.longest_ms = 0.0
        for name in ("on_frame", "on_tick", "on_flushed", "on_worked", "on_sent"):
            setattr(self.broker, name, self._timed(getattr(self.broker, name)))

    def _timed(self, call: Callable[..., None]) -> Callable[..., None]:
        """Wrap the call. The wrapper sets `longest_ms` to the CPU time of the call if no earlier
        call was longer.
        """

        def timed(*arguments: Any) -> None:
            began_s = time.thread_time()
            call(*arguments)
            took_s = time.thread_time() - began_s
            if took_s * 1000 > self.longest_ms:
                self.longest_ms = max(self.longest_ms, at_desk_s(took_s) * 1000)

        return timed

    def work_off(self, is_done: Callable[[], bool]) -> None:
        """Tick and flush until `is_done`. After each step another client must get a response."""
        while not is_done():
            if self.flushes:
                self.flush()
            elif self.work:
                self.finish_work()
            else:
                self.tick(0)
            assert self.call(OTHER, ApiVersionsRequest(), 0).error_code == 0

    def read(self, request: Message, version: int) -> None:
        """Send the request and wait for the response."""
        self.ask(READER, request, version)
        self.work_off(lambda: len(self.answers[READER]) == 1)

    def call_when_flushed(self, request: Message, version: int) -> Any:
        """Send a request that may be parked. Gives: its response."""
        before = len(self.answers[READER])
        self.ask(READER, request, version)
        self.work_off(lambda: len(self.answers[READER]) > before)
        return self.answers[READER][-1]

    def add_ids(self, count: int, state: TransactionState) -> None:
        """Give the coordinator this many transactional ids in the given state."""
        self.broker.topics.ensure_internal_topic(TRANSACTIONS_TOPIC, self.now_ms)
        wall_ms = self.event_ms() + self.wall_ahead_ms
        partitions = {TopicPartition("t", 0): None} if state is TransactionState.ONGOING else {}
        for number in range(count):
            self.broker.transactions.apply(
                TransactionMetadata(
                    f"id-{number}", number, 0, 60_000, state, partitions, wall_ms, wall_ms
                )
            )


@pytest.fixture
def host(tmp_path: Path) -> Iterator[TimedHost]:
    host = TimedHost(tmp_path)
    host.connect(READER)
    host.connect(OTHER)
    host.create("t")
    host.call(OTHER, ApiVersionsRequest(), 0)  # loads the handler
    thresholds = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)  # as in the daemon
    yield host
    gc.set_threshold(*thresholds)


def expire(host: TimedHost) -> None:
    """Let all transactional ids expire."""
    host.add_ids(IDS, TransactionState.EMPTY)
    host.now_ms += 8 * DAY_MS
    host.work_off(lambda: not host.broker.transactions.snapshot())


def time_out(host: TimedHost) -> None:
    """Let all open transactions exceed their timeout."""
    host.add_ids(OPEN, TransactionState.ONGOING)
    host.now_ms += 60_000
    host.work_off(
        lambda: all(
            transaction.state is not TransactionState.ONGOING
            for transaction in host.broker.transactions.snapshot().values()
        )
    )


def list_transactions(host: TimedHost) -> None:
    host.add_ids(IDS, TransactionState.EMPTY)
    host.read(ListTransactionsRequest(), 0)
    assert len(host.answers[READER][0].transaction_states) == IDS


def describe_producers(host: TimedHost) -> None:
    (log,) = host.broker.topics.logs_of("t")
    for number in range(PRODUCERS):
        log.producer_state.on_batch(number, 0, 0, 0, number, number, 0, False, host.now_ms)
    host.read(DescribeProducersRequest([TopicRequest("t", [0])]), 0)
    assert len(host.answers[READER][0].topics[0].partitions[0].active_producers) == PRODUCERS


def set_for_all(host: TimedHost) -> None:
    """Change a broker setting that affects the configuration of all logs."""
    for number in range(LOGS // 2):
        host.create(f"t-{number}", 2)
    config = AlterableConfig("log.segment.bytes", 0, "5000000")
    host.read(IncrementalAlterConfigsRequest([AlterConfigsResource(4, "1", [config])], False), 1)
    host.work_off(lambda: host.broker.topics.configuring is None)
    assert {log.config.segment_bytes for log in host.broker.topics.logs_of("t-7")} == {5_000_000}


def commit_offsets(host: TimedHost) -> None:
    host.create("many", OFFSETS)
    rows = [OffsetCommitRequestPartition(number, 0) for number in range(OFFSETS)]
    topic = OffsetCommitRequestTopic("many", partitions=rows)
    host.read(OffsetCommitRequest("g", -1, "", topics=[topic]), 7)
    (answer,) = host.answers[READER]
    assert {row.error_code for row in answer.topics[0].partitions} == {Code.NONE}


def rewrite_metadata(host: TimedHost) -> None:
    """Cause a rewrite of the metadata journal, which has far more frames than topics."""
    metadata = host.broker.metadata
    topics = [Topic(f"t-{number}", uuid.UUID(int=number + 1), 1) for number in range(OFFSETS)]
    metadata.begin_topics(topics)
    for topic in topics:
        metadata.end_creation(topic)
    metadata._frames = 11 * OFFSETS  # as after this number of changes
    host.call(READER, InitProducerIdRequest(None, 60_000), 2)
    assert metadata.is_rewriting
    host.work_off(lambda: not metadata.is_rewriting)
    assert metadata._frames > OFFSETS


def abort_large(host: TimedHost) -> None:
    """Abort a transaction with so many partitions that each gets an index of aborted
    transactions.
    """
    host.create("many", MARKED)
    producer = host.call_when_flushed(InitProducerIdRequest("x", 60_000), 2)
    pid, epoch = producer.producer_id, producer.producer_epoch
    for first in range(0, MARKED, PRODUCED):
        indexes = list(range(first, first + PRODUCED))
        host.call_when_flushed(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="x",
                v3_and_below_producer_id=pid,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name="many", partitions=indexes)],
            ),
            3,
        )
        batch = encode_batch(
            [NewRecord(None, b"v", NOW_MS)],
            producer_id=pid,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        )
        rows = [PartitionProduceData(index=index, records=bytes(batch)) for index in indexes]
        data = [TopicProduceData(name="many", partition_data=rows)]
        request = ProduceRequest(transactional_id="x", acks=-1, timeout_ms=1000, topic_data=data)
        host.call_when_flushed(request, 9)
    host.longest_ms = 0
    assert host.call_when_flushed(EndTxnRequest("x", pid, epoch, False), 3).error_code == 0
    log = host.broker.topics.partition("many", MARKED - 1)
    assert log is not None and log.last_stable_offset == 2


@pytest.mark.parametrize(
    "work",
    [
        expire, time_out, list_transactions, describe_producers, set_for_all, commit_offsets,
        rewrite_metadata, abort_large,
    ],
)  # fmt: skip
def test_no_call_is_long_while_large_state_is_worked_on(
    host: TimedHost, work: Callable[[TimedHost], None]
) -> None:
    """Each kind of work is split into calls, and no call may exceed the bound."""
    work(host)
    assert 0 < host.longest_ms < loop_watchdog.bound_ms()
