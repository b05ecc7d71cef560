"""Waiting fetches of many partitions: which events complete them, and how often they read. The
short cut for idle partitions has the same result as a read.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.core_host import CoreHost, delete_topic, fetch, produce
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.broker.handlers import fetch as fetching
from barnabas.broker.handlers.fetch import _divergence, _Fetch, _is_idle
from barnabas.broker.requests import older_fetch
from barnabas.broker.requests.fetch_sessions import FetchTarget
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.fetch import FetchPartition
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.protocol.topic_partition import TopicPartition

PARTITIONS = 20
COMMITTED = 1


@pytest.fixture
def host(tmp_path: Path) -> Iterator[CoreHost]:
    host = CoreHost(tmp_path)
    # the files of new logs are created immediately
    host.parts.files_ahead.fewest = PARTITIONS + 1
    for connection in (1, 2, 3):
        host.connect(connection)
    yield host
    while host.flushes:
        host.flush()
    host.close()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect the number of logs in the fetch each time that a whole fetch is read."""
    noted: list[int] = []
    read = _Fetch.read

    def counted(self: _Fetch) -> Any:
        noted.append(len(self.logs))
        return read(self)

    monkeypatch.setattr(_Fetch, "read", counted)
    return noted


def sizes(answer: Any) -> dict[int, int]:
    """The number of bytes of each partition's records."""
    return {
        partition.partition_index: len(partition.records or b"")
        for topic in answer.responses
        for partition in topic.partitions
    }


class Producer:
    """A transactional producer on connection 1."""

    def __init__(self, host: CoreHost, topic: str, partitions: range) -> None:
        """Begin a transaction on the partitions, and write a record to each."""
        self.host = host
        host.ask(
            1,
            InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000),
            1,
        )
        self.flush()
        answer = host.answers[1].pop()
        self.identity = (answer.producer_id, answer.producer_epoch)
        added = AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))
        names = {
            "v3_and_below_producer_id": self.identity[0],
            "v3_and_below_producer_epoch": self.identity[1],
        }
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="id", v3_and_below_topics=[added], **names
        )
        host.call(1, request, 3)
        for partition in partitions:
            host.call(
                1,
                produce(topic, partition=partition, transactional_id="id", identity=self.identity),
                9,
            )

    def flush(self) -> None:
        while self.host.flushes:
            self.host.flush()

    def commit(self) -> None:
        names = {
            "transactional_id": "id",
            "producer_id": self.identity[0],
            "producer_epoch": self.identity[1],
        }
        self.host.ask(1, EndTxnRequest(committed=True, **names), 3)
        self.flush()


def test_a_waiting_committed_fetch_is_not_read_again_for_batches_of_an_open_transaction(
    host: CoreHost, reads: list[int]
) -> None:
    host.create("t", PARTITIONS)
    host.ask(
        3,
        fetch({"t": dict.fromkeys(range(PARTITIONS), 0)}, max_wait_ms=1000, isolation=COMMITTED),
        12,
    )
    producer = Producer(host, "t", range(PARTITIONS))
    assert host.answers[3] == [] and len(reads) == 1, "no record is committed yet"
    producer.commit()
    (answer,) = host.answers[3]
    assert set(sizes(answer)) == set(range(PARTITIONS)) and all(
        size > 100 for size in sizes(answer).values()
    ), "one response has the records of all partitions"
    assert len(reads) == 2


def test_an_uncommitted_fetch_is_answered_by_the_first_batch(
    host: CoreHost, reads: list[int]
) -> None:
    host.create("t", PARTITIONS)
    host.ask(3, fetch({"t": dict.fromkeys(range(PARTITIONS), 0)}, max_wait_ms=1000), 12)
    Producer(host, "t", range(PARTITIONS))
    (answer,) = host.answers[3]
    assert [index for index, size in sizes(answer).items() if size] == [0] and len(reads) == 2


def test_min_bytes_count_over_all_partitions_of_a_fetch(host: CoreHost, reads: list[int]) -> None:
    host.create("t", 3)
    host.call(2, produce("t", partition=2), 9)  # 70 bytes
    host.ask(3, fetch({"t": dict.fromkeys(range(3), 0)}, min_bytes=200, max_wait_ms=1000), 12)
    host.call(2, produce("t", partition=0), 9)
    assert host.answers[3] == [] and len(reads) == 1, (
        "140 are not enough, which needs no reading of the others"
    )
    host.call(2, produce("t", partition=0), 9)
    (answer,) = host.answers[3]
    assert sizes(answer) == {0: 138, 1: 0, 2: 69}


@pytest.mark.parametrize(
    ("max_bytes", "of_partition", "read"),
    [
        (1 << 20, 1 << 20, {0: 138, 1: 138, 2: 138}),
        (1, 1 << 20, {0: 69, 1: 0, 2: 0}),  # the first batch is always sent
        (1 << 20, 1, {0: 69, 1: 0, 2: 0}),
        (138, 1 << 20, {0: 138, 1: 0, 2: 0}),
        (276, 1 << 20, {0: 138, 1: 138, 2: 0}),
        (207, 1 << 20, {0: 138, 1: 69, 2: 0}),
        (206, 1 << 20, {0: 138, 1: 0, 2: 0}),
        (1 << 20, 137, dict.fromkeys(range(3), 137)),  # the second batch is truncated, as in Kafka
        (1 << 20, -1, None),
    ],
)
def test_an_answer_has_no_more_bytes_than_the_client_takes(
    host: CoreHost, max_bytes: int, of_partition: int, read: dict[int, int] | None
) -> None:
    """The limits apply to the whole response and to each partition, except that the first batch is
    always sent.
    """
    host.create("t", 3)
    for partition in (0, 0, 1, 1, 2, 2):
        host.call(2, produce("t", partition=partition), 9)
    request = fetch({"t": dict.fromkeys(range(3), 0)})
    request.max_bytes = max_bytes
    for row in request.topics[0].partitions:
        row.partition_max_bytes = of_partition
    answer = host.call(3, request, 12)
    if read is None:
        rows = answer.responses[0].partitions
        assert [row.error_code for row in rows] == [Code.UNKNOWN_SERVER_ERROR] * 3
    else:
        assert sizes(answer) == read


def test_a_fetch_of_nothing_is_answered_at_once(host: CoreHost) -> None:
    host.ask(3, fetch({}, max_wait_ms=1000), 12)
    (answer,) = host.answers[3]
    assert answer.responses == []


def test_unknown_partitions_are_answered_immediately_and_after_the_known_ones(
    host: CoreHost,
) -> None:
    host.create("t", 1)
    host.ask(3, fetch({"missing": {0: 0}, "t": {7: 0, -1: 0, 0: 0}}, max_wait_ms=1000), 12)
    (answer,) = host.answers[3]
    rows = [
        (topic.topic, row.partition_index, row.error_code, row.aborted_transactions)
        for topic in answer.responses
        for row in topic.partitions
    ]
    unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
    assert rows == [
        ("t", 0, Code.NONE, None),
        ("missing", 0, unknown, []),
        ("t", 7, unknown, []),
        ("t", -1, unknown, []),
    ]


@pytest.mark.parametrize("max_wait_ms", [0, 1000])
def test_an_unknown_topic_id_is_answered_immediately(host: CoreHost, max_wait_ms: int) -> None:
    host.create("t")
    request = fetch({"t": {0: 0}}, max_wait_ms=max_wait_ms)
    request.topics[0].topic_id = uuid.UUID(int=7)
    (topic,) = host.call(3, request, 13).responses
    assert topic.partitions[0].error_code == Code.UNKNOWN_TOPIC_ID
    known = host.broker.metadata.topic("t")
    assert known is not None
    request.topics[0].topic_id = known.topic_id
    request.max_wait_ms = 0
    (topic,) = host.call(3, request, 13).responses
    assert (topic.topic_id, topic.partitions[0].error_code) == (known.topic_id, Code.NONE)


def test_a_topic_that_is_named_twice_is_answered_once(host: CoreHost) -> None:
    host.create("twice", 3)
    host.create("once", 1)
    request = fetch({"twice": {0: 0}, "once": {0: 0}})
    request.topics[1:1] = fetch({"twice": {1: 0, 2: 0}}).topics
    answer = host.call(3, request, 12)
    assert [(topic.topic, len(topic.partitions)) for topic in answer.responses] == [
        ("twice", 3),
        ("once", 1),
    ]


def test_a_fetch_waits_for_max_wait_ms(host: CoreHost) -> None:
    host.create("t")
    host.ask(3, fetch({"t": {0: 0}}, max_wait_ms=1), 12)
    assert host.answers[3] == []
    host.tick(1)
    assert len(host.answers[3]) == 1


def of_unknown_epoch(request: Any, partition: int) -> None:
    """Set a negative leader epoch for the partition. It counts as no epoch, but disables the short
    cut.
    """
    request.topics[0].partitions[partition].current_leader_epoch = -2


def test_any_negative_leader_epoch_means_no_epoch(host: CoreHost) -> None:
    """Apache Kafka's Fetch accepts such epochs as well. This fetch waits, and reads again when
    there are more records.
    """
    host.create("t", 2)
    host.call(1, produce("t"), 9)
    request = fetch({"t": {0: 1, 1: 0}}, isolation=COMMITTED, max_wait_ms=1000)
    of_unknown_epoch(request, 0)
    of_unknown_epoch(request, 1)
    host.ask(3, request, 12)
    assert host.answers[3] == []
    host.call(1, produce("t"), 9)
    (answer,) = host.answers[3]
    assert sizes(answer) == {0: 69, 1: 0}
    assert {row.error_code for row in answer.responses[0].partitions} == {Code.NONE}


def test_records_above_the_last_stable_offset_do_not_complete_a_waiting_fetch(
    host: CoreHost, reads: list[int]
) -> None:
    """The fetch is read_committed, and does not take the short cut for idle partitions."""
    host.create("t", 1)
    request = fetch({"t": {0: 0}}, isolation=COMMITTED, max_wait_ms=1000)
    of_unknown_epoch(request, 0)
    host.ask(3, request, 12)
    producer = Producer(host, "t", range(1))
    assert host.answers[3] == [] and len(reads) == 1
    producer.commit()
    assert len(host.answers[3]) == 1


def test_a_partition_with_max_bytes_0_does_not_count_for_min_bytes(
    host: CoreHost,
) -> None:
    """The client accepts 0 bytes of that partition."""
    host.create("t", 2)
    for partition in (0, 1):
        host.call(2, produce("t", partition=partition), 9)
    request = fetch({"t": {0: 0, 1: 0}}, min_bytes=100, max_wait_ms=1000)
    request.topics[0].partitions[1].partition_max_bytes = 0
    host.ask(3, request, 12)
    assert host.answers[3] == []
    host.call(2, produce("t"), 9)
    assert sizes(host.answers[3][0]) == {0: 138, 1: 0}


def test_further_records_of_a_counted_partition_do_not_read_the_fetch_again(
    host: CoreHost, reads: list[int]
) -> None:
    """With its first record, partition 0 counts for min_bytes. It does not count again before the
    next read of the fetch.
    """
    host.create("t", 2)
    host.ask(3, fetch({"t": {0: 0, 1: 0}}, min_bytes=300, max_wait_ms=1000), 12)
    for _ in range(4):
        host.call(2, produce("t"), 9)
    assert host.answers[3] == [] and len(reads) == 1
    host.call(2, produce("t", partition=1), 9)
    assert sizes(host.answers[3][0]) == {0: 276, 1: 69}


def test_a_waiting_fetch_gets_the_first_batch_even_if_it_exceeds_max_bytes(
    host: CoreHost,
) -> None:
    """The first batch is sent whole, as in a fetch that need not wait."""
    host.create("t")
    request = fetch({"t": {0: 0}}, max_wait_ms=1000)
    request.max_bytes = 10
    host.ask(3, request, 12)
    host.call(2, produce("t"), 9)
    assert sizes(host.answers[3][0]) == {0: 69}


def test_a_waiting_fetch_is_answered_when_its_response_has_min_bytes(host: CoreHost) -> None:
    """The partitions together may have more readable bytes than the response may contain."""
    host.create("t", 2)
    request = fetch({"t": {0: 0, 1: 0}}, min_bytes=100, max_wait_ms=1000)
    request.max_bytes = 100
    host.ask(3, request, 12)
    for partition in (0, 1):
        host.call(2, produce("t", partition=partition), 9)
    assert host.answers[3] == []
    host.call(2, produce("t"), 9)
    assert sizes(host.answers[3][0]) == {0: 100, 1: 0}


def test_partitions_are_looked_up_once_while_a_fetch_waits(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = []
    resolve = _Fetch._resolve

    def counted(self: _Fetch) -> None:
        noted.append(self)
        resolve(self)

    monkeypatch.setattr(_Fetch, "_resolve", counted)
    host.create("t")
    host.ask(3, fetch({"t": {0: 0}}, max_wait_ms=1000), 12)
    host.call(2, produce("t"), 9)
    assert len(host.answers[3]) == 1 and len(noted) == 1


def test_a_fetch_with_the_current_last_fetched_epoch_gets_records(host: CoreHost) -> None:
    (log,) = host.create("t")
    for _ in range(2):
        host.call(2, produce("t"), 9)
    request = fetch({"t": {0: 1}})
    request.topics[0].partitions[0].last_fetched_epoch = log.leader_epoch
    (row,) = host.call(3, request, 12).responses[0].partitions
    assert (row.error_code, row.diverging_epoch.epoch, len(row.records)) == (Code.NONE, -1, 69)


@pytest.mark.parametrize("has_changed", [False, True])
@pytest.mark.parametrize("has_records", [False, True])
def test_a_waiting_fetch_is_answered_when_its_topic_is_deleted(
    host: CoreHost, has_records: bool, has_changed: bool
) -> None:
    """The fetch does not read the deleted topic, even if the cluster's generation has changed."""
    for name in ("t", "u"):
        host.create(name)
        if has_records:
            host.call(2, produce(name), 9)
        host.ask(3, fetch({name: {0: 0}}, max_wait_ms=1000, min_bytes=1000), 12)
        if has_changed:
            host.broker.cluster.readable_version += 1
        delete_topic(host.parts.deletion, name, host.now_ms)
        host.carry_out()
        (row,) = host.answers[3].pop().responses[0].partitions
        assert row.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION and not row.records


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (12, 2)])
def test_each_version_of_fetch_gets_records_in_its_message_format(
    host: CoreHost, version: int, magic: int
) -> None:
    host.create("t")
    host.call(2, produce("t"), 9)
    (row,) = host.call(3, fetch({"t": {0: 0}}), version).responses[0].partitions
    assert (row.error_code, row.records[16]) == (Code.NONE, magic)


def test_without_a_quota_the_throttle_time_of_a_fetch_is_0(host: CoreHost) -> None:
    host.create("t")
    assert host.call(3, fetch({"t": {0: 0}}), 12).throttle_time_ms == 0
    refused = host.call(3, fetch({}, session=(7, 1)), 12)
    assert (refused.error_code, refused.throttle_time_ms) == (Code.FETCH_SESSION_ID_NOT_FOUND, 0)


class Log:
    """A fake log with the methods that `_divergence` calls. It knows one epoch and its end
    offset.
    """

    log_start_offset = 3

    def __init__(self, *epoch_and_end: int) -> None:
        self.epoch_and_end = epoch_and_end

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, ...]:
        return self.epoch_and_end


OUT_OF_RANGE = Code.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("known", "fetch_offset", "parts"),
    [
        ((5, 10), 10, None),
        ((5, 10), 3, None),
        ((5, 10), 11, (5, 10)),  # the reader's position is beyond the end of epoch 5
        ((4, 10), 10, (4, 10)),  # this log does not have epoch 5
        ((4, 0), 5, (4, 0)),
        ((0, 8), 5, (0, 8)),
        ((-1, -1), 5, OUT_OF_RANGE),
        ((-1, 10), 5, OUT_OF_RANGE),
        ((5, -1), 5, OUT_OF_RANGE),
        ((5, 10), 2, OUT_OF_RANGE),  # below the log start offset
        ((4, 10), 2, OUT_OF_RANGE),
    ],
)
def test_divergence_of_a_readers_log_by_last_fetched_epoch_and_offset(
    known: tuple[int, int], fetch_offset: int, parts: Any
) -> None:
    """The rules are those of KIP-595. The reader's last batch has epoch 5. `known` is the last
    epoch up to 5 that this log has, with its end offset; the log starts at offset 3.
    """
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=fetch_offset,
        last_fetched_epoch=5,
        log_start_offset=-1,
        partition_max_bytes=1,
    )
    target = FetchTarget("t", partition)
    if parts is OUT_OF_RANGE:
        with pytest.raises(KafkaError) as refused:
            _divergence(Log(*known), target)  # type: ignore[arg-type]
        assert refused.value.code == Code.OFFSET_OUT_OF_RANGE
    else:
        assert _divergence(Log(*known), target) == parts  # type: ignore[arg-type]


def test_a_waiting_fetch_is_answered_when_its_offset_is_deleted(host: CoreHost) -> None:
    (log,) = host.create("t")
    for _ in range(3):
        host.call(2, produce("t"), 9)
    host.ask(3, fetch({"t": {0: 0}}, min_bytes=1000, max_wait_ms=1000), 12)
    log.delete_records_before(2)
    host.broker.progress.on_appended([log], host.now_ms)
    host.carry_out()
    (answer,) = host.answers[3]
    assert answer.responses[0].partitions[0].error_code == Code.OFFSET_OUT_OF_RANGE, (
        "OFFSET_OUT_OF_RANGE"
    )


def test_a_session_response_has_an_idle_partition_only_after_a_change(host: CoreHost) -> None:
    host.create("t", 3)
    first = host.call(
        3, fetch({"t": dict.fromkeys(range(3), 0)}, session=(0, 0), isolation=COMMITTED), 12
    )
    assert set(sizes(first)) == {0, 1, 2}
    Producer(host, "t", range(1))
    second = host.call(3, fetch({}, session=(first.session_id, 1), isolation=COMMITTED), 12)
    assert sizes(second) == {0: 0}, "its high watermark moved"
    assert (
        host.call(3, fetch({}, session=(first.session_id, 2), isolation=COMMITTED), 12).responses
        == []
    )


def test_a_session_response_has_a_partition_whose_log_start_offset_rose(host: CoreHost) -> None:
    (log,) = host.create("t")
    for _ in range(3):
        host.call(2, produce("t"), 9)
    first = host.call(3, fetch({"t": {0: 3}}, session=(0, 0)), 12)
    log.delete_records_before(2)
    reported = host.call(3, fetch({}, session=(first.session_id, 1)), 12)
    (row,) = reported.responses[0].partitions
    assert (row.log_start_offset, row.high_watermark) == (2, 3)
    assert host.call(3, fetch({}, session=(first.session_id, 2)), 12).responses == []


def test_a_session_response_has_exactly_the_partitions_with_changes(host: CoreHost) -> None:
    """One of the three partitions takes the short cut for idle partitions."""
    host.create("t", 3)
    request = fetch({"t": dict.fromkeys(range(3), 0)}, session=(0, 0))
    of_unknown_epoch(request, 0)
    of_unknown_epoch(request, 2)
    first = host.call(3, request, 12)
    assert set(sizes(first)) == {0, 1, 2}
    host.call(2, produce("t", partition=1), 9)
    assert sizes(host.call(3, fetch({}, session=(first.session_id, 1)), 12)) == {1: 69}


def test_the_first_fetch_of_a_session_does_not_reorder_its_partitions(host: CoreHost) -> None:
    """In later fetches, partitions with records move to the end."""
    host.create("t", 2)
    host.call(2, produce("t"), 9)
    first = host.call(3, fetch({"t": {0: 0, 1: 0}}, session=(0, 0)), 12)
    for partition in (0, 1):
        host.call(2, produce("t", partition=partition), 9)
    following = [
        list(sizes(host.call(3, fetch({}, session=(first.session_id, epoch)), 12)))
        for epoch in (1, 2)
    ]
    assert following == [[0, 1], [0, 1]]


@pytest.fixture(scope="module")
def open_transaction(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CoreHost]:
    """A broker with two partitions. Partition 0 has the offsets 2 to 5, of which 4 and 5 are in an
    open transaction. Partition 1 is empty.
    """
    host = CoreHost(tmp_path_factory.mktemp("idle"))
    for connection in (1, 2, 3):
        host.connect(connection)
    (log, _) = host.create("t", 2)
    for _ in range(4):
        host.call(2, produce("t"), 9)
    log.delete_records_before(2)
    producer = Producer(host, "t", range(1))
    host.call(1, produce("t", transactional_id="id", identity=producer.identity, sequence=1), 9)
    assert (log.log_start_offset, log.last_stable_offset, log.log_end_offset) == (2, 4, 6)
    yield host
    host.close()


EPOCHS = st.sampled_from([-2, -1, 0, 1])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 1),
    st.integers(-1, 7),
    EPOCHS,
    EPOCHS,
    st.sampled_from([-1, 0, 1 << 20]),
    st.booleans(),
)
def test_the_short_cut_is_taken_exactly_where_a_read_gives_nothing(
    open_transaction: CoreHost,
    index: int,
    offset: int,
    epoch: int,
    last_epoch: int,
    max_bytes: int,
    is_committed: bool,
) -> None:
    """The short cut skips the read of a partition that it considers idle. A read of each such
    partition must give neither records nor an error. The short cut must also find all partitions
    for which that is true.
    """
    broker = open_transaction.broker
    log = broker.topics.partition("t", index)
    assert log is not None
    asked = FetchPartition(
        partition=index,
        fetch_offset=offset,
        partition_max_bytes=max_bytes,
        current_leader_epoch=epoch,
        last_fetched_epoch=last_epoch,
        log_start_offset=-1,
    )
    request = fetch({}, isolation=int(is_committed))
    plan = type(
        "Plan",
        (),
        {
            "targets": [FetchTarget("t", asked)],
            "session": None,
            "incremental": False,
            "session_id": 0,
        },
    )()
    context = type("Asked", (), {"api_version": 12})()
    target = plan.targets[0]
    handler: Any = open_transaction.parts
    read = _Fetch(handler, request, context, plan)._read_one(target, log, 1 << 20, True)
    has_nothing = (
        read.error_code == Code.NONE and read.records is None and read.diverging_epoch is None
    )
    if _is_idle(target, log, is_committed):
        assert has_nothing
    if has_nothing and epoch >= -1 and last_epoch >= -1:
        assert _is_idle(target, log, is_committed), "the short cut is taken where it may be"


def test_a_fetch_is_answered_with_exactly_min_bytes(host: CoreHost) -> None:
    """The records may exist before the fetch, or arrive while it waits."""
    host.create("t")
    host.call(1, produce("t"), 9)
    (size,) = sizes(host.call(2, fetch({"t": {0: 0}}), 11)).values()
    assert len(host.answers[2]) == 1
    host.ask(2, fetch({"t": {0: 0}}, min_bytes=size, max_wait_ms=60_000), 11)
    assert len(host.answers[2]) == 2
    host.ask(2, fetch({"t": {0: 1}}, min_bytes=size, max_wait_ms=60_000), 11)
    host.ask(3, fetch({"t": {0: 1}}, min_bytes=size + 1, max_wait_ms=60_000), 11)
    host.call(1, produce("t"), 9)
    assert (len(host.answers[2]), len(host.answers[3])) == (3, 0)
    host.call(1, produce("t"), 9)
    assert len(host.answers[3]) == 1


@pytest.mark.parametrize("is_of_request", [True, False])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_fetch_waits_for_no_more_than_it_may_read(
    is_of_request: bool, is_there: bool, tmp_path: Path
) -> None:
    """The min_bytes of the fetch are above its max_bytes, or above the fetch.max.bytes of the
    broker.
    """
    settings = {} if is_of_request else {"fetch_max_bytes": "1024"}
    host = CoreHost(tmp_path, **settings)
    for connection in (1, 2):
        host.connect(connection)
    host.create("t")
    request = fetch({"t": {0: 0}}, min_bytes=5_000, max_wait_ms=60_000)
    if is_of_request:
        request.max_bytes = 1024
    if is_there:
        host.call(1, produce("t", b"x" * 2_000), 9)
        host.ask(2, request, 11)
    else:
        host.ask(2, request, 11)
        assert host.answers[2] == []
        host.call(1, produce("t", b"x" * 2_000), 9)
    assert len(host.answers[2]) == 1
    host.close()


def test_an_older_fetch_has_a_bounded_number_of_converted_bytes(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit applies to all partitions together. Later fetches begin with other partitions."""
    monkeypatch.setattr(older_fetch, "MOST_BYTES", 100)
    host.create("t", 4)
    for partition in range(4):
        host.call(1, produce("t", b"x" * 80, partition=partition), 9)
    read = set()
    for _ in range(4):
        answer = host.call(2, fetch({"t": dict.fromkeys(range(4), 0)}), 3)
        (index,) = [index for index, size in sizes(answer).items() if size]
        read.add(index)
    assert read == {0, 1, 2, 3}


# --- of thousands of partitions -------------------------------------------------------------------


@pytest.fixture
def in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits, so that a fetch of a few partitions is read in slices."""
    monkeypatch.setattr(fetching, "TARGETS_AT_ONCE", 6)
    monkeypatch.setattr(fetching, "LOGS_READ_AT_ONCE", 4)


def answered(host: CoreHost, connection: int) -> Any:
    """Return the response to a fetch that is read in slices, one slice at each tick."""
    for _ in range(1000):
        if host.answers[connection]:
            return host.answers[connection].pop()
        host.tick(0)
    raise AssertionError("a fetch is read in slices for ever, or waits for what is there")


@pytest.mark.parametrize("isolation", [0, COMMITTED])
@pytest.mark.parametrize("session", [(0, -1), (0, 0)])
def test_a_fetch_in_slices_has_the_same_response_as_one_in_a_single_read(
    host: CoreHost,
    in_slices: None,
    monkeypatch: pytest.MonkeyPatch,
    isolation: int,
    session: tuple[int, int],
) -> None:
    host.create("t", PARTITIONS)
    for partition in (0, 3, 4, 11):
        for _ in range(3):
            host.call(1, produce("t", b"v" * 100, partition=partition), 9)
    wanted = {"t": dict.fromkeys(range(PARTITIONS + 2), 0), "missing": {0: 0}}
    request = fetch(wanted, session=session, isolation=isolation)
    request.max_bytes = 700
    host.ask(2, request, 11)
    assert not host.answers[2], "it was read at once"
    sliced = answered(host, 2)
    monkeypatch.setattr(fetching, "TARGETS_AT_ONCE", 1000)
    whole = host.call(3, request, 11)
    sliced.session_id = whole.session_id = 0
    assert sliced == whole and sum(sizes(whole).values()) > 0


@pytest.mark.parametrize("ticks", range(24))
def test_records_written_while_a_fetch_is_read_in_slices_complete_it(
    host: CoreHost, in_slices: None, ticks: int
) -> None:
    """Whether before, during or after the reading of the partition, or while the fetch waits."""
    host.create("t", PARTITIONS)
    host.ask(2, fetch({"t": dict.fromkeys(range(PARTITIONS), 0)}, max_wait_ms=1000), 11)
    for _ in range(ticks):
        host.tick(0)
    assert not host.answers[2]
    host.call(1, produce("t", partition=0), 9)
    assert sizes(answered(host, 2))[0] > 0


@pytest.mark.parametrize("ticks", range(8))
def test_a_leader_that_moves_while_a_fetch_is_read_in_slices_is_told_of(
    in_slices: None, ticks: int, tmp_path: Path
) -> None:
    """The response reports the new leader even if the partition was read before the move."""
    host = CoreHost(tmp_path, barnabas_brokers="2")
    logs = host.create("t", PARTITIONS)
    led = [
        index for index, one in enumerate(host.broker.cluster.leaderships("t")) if one.leader == 1
    ]
    for log in logs:
        log.append(encode_batch([NewRecord(None, b"v", host.now_ms)]), now_ms=host.now_ms)
    host.connect(1, 1)
    host.ask(1, fetch({"t": dict.fromkeys(led, 0)}, max_wait_ms=1000), 12)
    for _ in range(ticks):
        host.tick(0)
    assert not host.answers[1]
    host.broker.cluster.move(TopicPartition("t", led[0]), 2)
    rows = {row.partition_index: row for row in answered(host, 1).responses[0].partitions}
    assert rows[led[0]].error_code == Code.NOT_LEADER_OR_FOLLOWER and not rows[led[0]].records
    assert all(rows[index].records for index in led[1:])
    host.close()


def test_a_fetch_in_slices_waits_for_max_wait_ms(host: CoreHost, in_slices: None) -> None:
    host.create("t", PARTITIONS)
    host.ask(2, fetch({"t": dict.fromkeys(range(PARTITIONS), 0)}, max_wait_ms=1000), 11)
    for _ in range(20):
        host.tick(0)
    host.tick(999)
    assert not host.answers[2]
    host.tick(1)
    assert sizes(host.answers[2].pop()) == dict.fromkeys(range(PARTITIONS), 0)


def test_a_fetch_that_waits_below_a_start_that_retention_raises_is_answered(
    tmp_path: Path,
) -> None:
    """Nothing else may ever happen in the log, and its client may wait for hours."""
    host = CoreHost(tmp_path, log_initial_task_delay_ms="1000")
    host.create("t", 1)
    host.call(host.connect(1), produce("t"), 9)
    host.ask(host.connect(2), fetch({"t": {0: 0}}, min_bytes=1 << 20, max_wait_ms=10**9), 12)
    assert host.answers[2] == []
    log = host.broker.topics.partition("t", 0)
    assert log is not None
    log.try_roll(host.now_ms)
    log.config = replace(log.config, retention_bytes=0)
    host.tick(10_000)
    assert log.log_start_offset == 1
    (answer,) = host.answers[2]
    assert answer.responses[0].partitions[0].error_code == Code.OFFSET_OUT_OF_RANGE
