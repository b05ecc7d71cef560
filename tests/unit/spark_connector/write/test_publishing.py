"""Publishing to a cluster of several nodes, which fail as each test requires: retries, final
errors, and aborts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from helpers.fake_broker import HANG_UP, KAFKA_2_5, KAFKA_4_0, FakeCluster

from barnabas.client.errors import ClientError
from barnabas.client.options import ClientOptions
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch
from barnabas.spark_connector.write.deduplication import (
    PASS,
    SKIP,
    WRITE,
    CommitNote,
    CommittedBatch,
    Decision,
    GroupState,
    UncertainBatchError,
)
from barnabas.spark_connector.write.publishing import (
    BegunNotes,
    Publication,
    Publisher,
    PublishError,
    PublishSettings,
)
from barnabas.spark_connector.write.spool import SpoolError

TOPIC, NAME = "t", "query"


def encoded(partition: int, *values: bytes, topic: str = TOPIC) -> EncodedRecordBatch:
    return EncodedRecordBatch(
        topic,
        partition,
        len(values),
        encode_batch([NewRecord(None, value, 1) for value in values], transactional=True),
    )


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster({TOPIC: 4}) as running:
        yield running


def publisher_for(cluster: FakeCluster, **settings: Any) -> Publisher:
    options = ClientOptions(
        (("127.0.0.1", cluster.port),), retry_backoff_ms=1, request_timeout_ms=600_000
    )
    return Publisher(options, PublishSettings(**{"delivery_timeout_ms": 600_000, **settings}))


def publish(
    cluster: FakeCluster, batch_id: int, *record_batches: EncodedRecordBatch, **settings: Any
) -> Publication:
    with publisher_for(cluster, **settings) as publisher:
        return publisher.commit_once(
            transactional_id=NAME,
            group_id=NAME,
            batch_id=batch_id,
            metadata="m",
            record_batches=lambda: record_batches,
        )


def once(kind: Any, code: int) -> Callable[[int, Any], int | None]:
    """Answer the first request of a kind with this error code."""
    left = [code]
    return lambda node, request: left.pop() if isinstance(request, kind) and left else None


def always(kind: Any, code: int) -> Callable[[int, Any], int | None]:
    return lambda node, request: code if isinstance(request, kind) else None


@pytest.mark.parametrize("speaks", [KAFKA_2_5, KAFKA_4_0], ids=["2.5", "4.0"])
def test_versions_of_old_and_new_brokers(speaks: dict[int, Any]) -> None:
    with FakeCluster({TOPIC: 4}, speaks=speaks) as cluster:
        assert (
            publish(cluster, 7, encoded(0, b"a"), encoded(1, b"b"), encoded(0, b"c")).attempts == 1
        )
        assert cluster.values(TOPIC, 0) == [b"a", b"c"] and cluster.values(TOPIC, 1) == [b"b"]
        assert cluster.offsets == {NAME: 8}
        assert publish(cluster, 7, encoded(0, b"a")).was_committed


def test_transaction_version_2_is_used_if_the_cluster_has_finalised_it() -> None:
    """Writes add their partitions to the transaction themselves. This saves two requests, and one
    more for each leader.
    """
    with FakeCluster({TOPIC: 4}, transaction_version=2) as cluster:
        done = publish(cluster, 7, encoded(0, b"a"), encoded(1, b"b"), encoded(0, b"c"))
        assert done.attempts == 1
        assert cluster.values(TOPIC, 0) == [b"a", b"c"] and cluster.values(TOPIC, 1) == [b"b"]
        assert cluster.offsets == {NAME: 8}
        assert publish(cluster, 8, encoded(0, b"d")).attempts == 1
        assert cluster.values(TOPIC, 0) == [b"a", b"c", b"d"]
        assert (
            cluster.asked(AddPartitionsToTxnRequest) == cluster.asked(AddOffsetsToTxnRequest) == 0
        )


@pytest.mark.parametrize("kind", [ProduceRequest, TxnOffsetCommitRequest, EndTxnRequest])
def test_records_are_published_once_if_a_version_2_response_is_lost(kind: Any) -> None:
    with FakeCluster({TOPIC: 4}, transaction_version=2) as cluster:
        cluster.disturb = once(kind, HANG_UP)
        publish(cluster, 7, encoded(0, b"a"), encoded(1, b"b"))
        assert cluster.values(TOPIC, 0) == [b"a"] and cluster.values(TOPIC, 1) == [b"b"]
        assert cluster.offsets == {NAME: 8}


def test_a_cluster_whose_transaction_version_was_lowered_gets_requests_of_version_1(
    cluster: FakeCluster,
) -> None:
    cluster.transaction_version = 2
    publish(cluster, 1, encoded(0, b"a"))
    cluster.transaction_version = 0
    publish(cluster, 2, encoded(0, b"b"))
    assert cluster.values(TOPIC, 0) == [b"a", b"b"]
    assert cluster.asked(AddPartitionsToTxnRequest) == 1


def test_a_broker_that_is_too_old_is_named() -> None:
    others = {key: value for key, value in KAFKA_2_5.items() if key != OffsetFetchRequest.API_KEY}
    old = others | {OffsetFetchRequest.API_KEY: (OffsetFetchRequest, 0, 6)}
    for speaks, says in (
        (old, r"has OffsetFetchRequest in versions 0 to 6; versions 7 to 7 are supported"),
        (others, r"does not have OffsetFetchRequest; versions 7 to 7 are supported"),
    ):
        with (
            FakeCluster({TOPIC: 1}, speaks=speaks) as cluster,
            pytest.raises(ClientError, match=says),
        ):
            publish(cluster, 0, encoded(0, b"a"))


def test_a_request_has_one_batch_of_a_partition_and_batches_are_sent_in_order(
    cluster: FakeCluster,
) -> None:
    record_batches = [encoded(index % 4, b"%d" % index, b"%d'" % index) for index in range(40)]
    done = publish(cluster, 0, *record_batches)
    assert done == Publication(False, 80, sum(len(batch.data) for batch in record_batches), 1)
    for partition in range(4):
        expected = [
            value for index in range(partition, 40, 4) for value in (b"%d" % index, b"%d'" % index)
        ]
        assert cluster.values(TOPIC, partition) == expected
    assert cluster.asked(ProduceRequest) == 20, "each request has batches of two partitions"
    assert cluster.asked(AddPartitionsToTxnRequest) == 2, "one for each leader's first request"


@pytest.mark.parametrize(("max_request_bytes", "requests"), [(1, 4), (250, 2), (1 << 20, 1)])
def test_requests_are_filled_up_to_their_maximum_size(
    max_request_bytes: int, requests: int
) -> None:
    with FakeCluster({TOPIC: 4}, nodes=1) as cluster:
        record_batches = [encoded(index, b"x" * 50) for index in range(4)]
        publish(cluster, 0, *record_batches, max_request_bytes=max_request_bytes)
        assert cluster.asked(ProduceRequest) == requests
        assert [len(cluster.values(TOPIC, index)) for index in range(4)] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (ApiVersionsRequest, HANG_UP),
        (FindCoordinatorRequest, Code.COORDINATOR_NOT_AVAILABLE),
        (InitProducerIdRequest, Code.CONCURRENT_TRANSACTIONS),
        (InitProducerIdRequest, Code.COORDINATOR_LOAD_IN_PROGRESS),
        (InitProducerIdRequest, Code.NOT_COORDINATOR),
        (InitProducerIdRequest, Code.PRODUCER_FENCED),
        (OffsetFetchRequest, Code.NOT_COORDINATOR),
        (AddPartitionsToTxnRequest, Code.CONCURRENT_TRANSACTIONS),
        (AddPartitionsToTxnRequest, HANG_UP),
        (ProduceRequest, Code.NOT_LEADER_OR_FOLLOWER),
        (ProduceRequest, Code.NOT_ENOUGH_REPLICAS),
        (ProduceRequest, Code.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (ProduceRequest, Code.TRANSACTION_ABORTABLE),
        (ProduceRequest, Code.INVALID_PRODUCER_EPOCH),
        (ProduceRequest, HANG_UP),
        (AddOffsetsToTxnRequest, Code.COORDINATOR_NOT_AVAILABLE),
        (TxnOffsetCommitRequest, Code.COORDINATOR_LOAD_IN_PROGRESS),
        (EndTxnRequest, Code.NOT_COORDINATOR),
        (EndTxnRequest, Code.PRODUCER_FENCED),
        (EndTxnRequest, Code.INVALID_TXN_STATE),
        (EndTxnRequest, HANG_UP),
    ],
)
def test_a_batch_is_published_again_after_a_temporary_error(
    cluster: FakeCluster, kind: Any, code: int
) -> None:
    cluster.disturb = once(kind, code)
    done = publish(cluster, 0, encoded(0, b"a"), encoded(1, b"b"), encoded(0, b"c"))
    assert (done.was_committed, done.record_count, done.attempts) == (False, 3, 2)
    assert (cluster.values(TOPIC, 0), cluster.values(TOPIC, 1)) == ([b"a", b"c"], [b"b"])


def test_an_unstable_offset_is_waited_for(cluster: FakeCluster) -> None:
    cluster.offsets[NAME] = 0
    cluster.disturb = once(OffsetFetchRequest, Code.UNSTABLE_OFFSET_COMMIT)
    assert publish(cluster, 0, encoded(0, b"a")).attempts == 2


def test_a_topic_that_gets_its_leader_late_is_waited_for_without_a_new_attempt(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "barnabas.spark_connector.write.transactional_producer.UNKNOWN_TOPIC_PATIENCE_MS", 600_000
    )
    left = [Code.LEADER_NOT_AVAILABLE, Code.UNKNOWN_TOPIC_OR_PARTITION, Code.LEADER_NOT_AVAILABLE]
    cluster.disturb = lambda node, request: (
        left.pop() if isinstance(request, MetadataRequest) and left else None
    )
    assert publish(cluster, 0, encoded(0, b"a", topic="new")).attempts == 1
    assert cluster.values("new") == [b"a"]


def test_the_errors_for_a_missing_topic_and_a_missing_partition(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "barnabas.spark_connector.write.transactional_producer.UNKNOWN_TOPIC_PATIENCE_MS", 20
    )
    cluster.creates = False
    with pytest.raises(
        PublishError, match="topic 'new' does not exist, and the broker does not create it"
    ):
        publish(cluster, 0, encoded(0, b"a"), encoded(0, b"a", topic="new"))
    with pytest.raises(
        PublishError, match="partition t-4 does not exist: topic 't' has 4 partitions"
    ):
        publish(cluster, 0, encoded(0, b"a"), encoded(0, b"b"), encoded(4, b"c"))
    assert cluster.aborted == 1 and not cluster.committed and not cluster.offsets


@pytest.mark.parametrize(
    ("kind", "code", "says"),
    [
        (
            ProduceRequest,
            Code.MESSAGE_TOO_LARGE,
            r"partition t-[01]: MESSAGE_TOO_LARGE \(as the test wants it\): raise "
            r"max.message.bytes",
        ),
        (
            ProduceRequest,
            Code.INVALID_RECORD,
            r"partition t-[01]: INVALID_RECORD .*a compacted topic needs a key",
        ),
        (
            AddPartitionsToTxnRequest,
            Code.TOPIC_AUTHORIZATION_FAILED,
            "partition t-0: TOPIC_AUTHORIZATION_FAILED: .*WRITE and to READ the topic",
        ),
        (MetadataRequest, Code.TOPIC_AUTHORIZATION_FAILED, "topic 't': TOPIC_AUTHORIZATION_FAILED"),
        (
            InitProducerIdRequest,
            Code.INVALID_TRANSACTION_TIMEOUT,
            "'query': INVALID_TRANSACTION_TIMEOUT: lower kafka.transaction.timeout.ms",
        ),
        (
            InitProducerIdRequest,
            Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "'query': .*WRITE and DESCRIBE the transactional id",
        ),
        (
            FindCoordinatorRequest,
            Code.GROUP_AUTHORIZATION_FAILED,
            "GROUP_AUTHORIZATION_FAILED: the user needs the right to READ the group",
        ),
        (
            OffsetFetchRequest,
            Code.GROUP_AUTHORIZATION_FAILED,
            "group 'query': GROUP_AUTHORIZATION_FAILED: the user needs the right to READ",
        ),
        (
            TxnOffsetCommitRequest,
            Code.OFFSET_METADATA_TOO_LARGE,
            "group 'query', topic 't': OFFSET_METADATA_TOO_LARGE",
        ),
        (EndTxnRequest, 777, "the end of a transaction of 'query': error code 777$"),
    ],
)
def test_a_final_error_aborts_the_transaction_and_is_raised(
    cluster: FakeCluster, kind: Any, code: int, says: str
) -> None:
    # If this is a Produce request, both leaders get one. On a busy machine, either of them may be
    # first, and get the error.
    cluster.disturb = once(kind, code)
    with pytest.raises(PublishError, match=says) as raised:
        publish(cluster, 0, encoded(0, b"a"), encoded(1, b"b"), encoded(0, b"c"))
    assert raised.value.code == code
    assert not cluster.committed and not cluster.offsets
    begun = kind in (ProduceRequest, TxnOffsetCommitRequest, EndTxnRequest)
    assert cluster.aborted == begun, "a transaction that has begun does not wait for its timeout"
    assert cluster.asked(InitProducerIdRequest) == (kind is not FindCoordinatorRequest)


def test_an_abort_whose_responses_are_lost_begins_a_new_epoch(cluster: FakeCluster) -> None:
    """Node 1 refuses a batch for good, and the connection to the other node ends, so that its batch
    may still arrive. The transaction is then aborted by a new session (InitProducerId), which
    fences that batch.
    """

    def disturb(node: int, request: Any) -> int | None:
        if isinstance(request, ProduceRequest):
            return Code.MESSAGE_TOO_LARGE if node == 1 else HANG_UP
        return None

    cluster.disturb = disturb
    with pytest.raises(PublishError, match="MESSAGE_TOO_LARGE"):
        publish(cluster, 0, encoded(0, b"a"), encoded(1, b"b"), max_request_bytes=1)
    assert (
        cluster.asked(EndTxnRequest),
        cluster.asked(InitProducerIdRequest),
        cluster.aborted,
    ) == (0, 2, 1)


def test_a_publisher_that_was_fenced_twice_gives_up(cluster: FakeCluster) -> None:
    cluster.disturb = always(EndTxnRequest, Code.PRODUCER_FENCED)
    with pytest.raises(
        PublishError,
        match=r"batch 3 as 'query' was ended by others twice.*PRODUCER_FENCED: another driver",
    ):
        publish(cluster, 3, encoded(0, b"a"))
    assert cluster.asked(InitProducerIdRequest) == 2 and not cluster.committed


def test_a_publisher_gives_up_after_the_delivery_timeout_and_aborts(cluster: FakeCluster) -> None:
    cluster.disturb = always(ProduceRequest, Code.NOT_ENOUGH_REPLICAS)
    with pytest.raises(
        PublishError,
        match=(
            r"publishing batch 3 as 'query' failed \d+ times.*NOT_ENOUGH_REPLICAS.*publishing "
            r"it again is safe"
        ),
    ):
        publish(cluster, 3, encoded(0, b"a"), delivery_timeout_ms=30)
    assert cluster.aborted == cluster.asked(ProduceRequest), "the last attempt's transaction, too"


def test_the_delivery_timeout_begins_with_the_first_failure(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first failure comes late, because of a large batch or because the driver was suspended.
    Nevertheless, the attempt must be repeated.
    """
    passed_s = 0.0
    monkeypatch.setattr(
        "barnabas.spark_connector.write.publishing.time",
        SimpleNamespace(monotonic=lambda: passed_s, sleep=lambda seconds: None),
    )

    def record_batches() -> Iterator[EncodedRecordBatch]:
        nonlocal passed_s
        yield encoded(0, b"a")
        passed_s += 1000

    cluster.disturb = once(ProduceRequest, Code.NOT_ENOUGH_REPLICAS)
    with publisher_for(cluster) as publisher:
        done = publisher.commit_once(
            transactional_id=NAME,
            group_id=NAME,
            batch_id=0,
            metadata="",
            record_batches=record_batches,
        )
    assert done.attempts == 2
    assert cluster.values(TOPIC) == [b"a"]


def test_an_exception_of_the_record_batches_aborts_the_transaction(cluster: FakeCluster) -> None:
    def record_batches() -> Iterator[EncodedRecordBatch]:
        yield encoded(0, b"a")
        yield encoded(0, b"b")
        raise KeyboardInterrupt

    with publisher_for(cluster) as publisher:
        with pytest.raises(KeyboardInterrupt):
            publisher.commit_once(
                transactional_id=NAME,
                group_id=NAME,
                batch_id=0,
                metadata="",
                record_batches=record_batches,
            )
        assert cluster.aborted == 1 and not cluster.committed
        assert (
            publisher.commit_once(
                transactional_id=NAME,
                group_id=NAME,
                batch_id=0,
                metadata="",
                record_batches=lambda: [encoded(0, b"c")],
            ).attempts
            == 1
        )
    assert cluster.values(TOPIC) == [b"c"]


def test_missing_spool_files_are_no_error_if_another_driver_committed_the_batch(
    cluster: FakeCluster,
) -> None:
    """A driver that was presumed dead may commit the batch and delete its files, before or while
    this driver publishes the batch.
    """

    def gone() -> Iterator[EncodedRecordBatch]:
        raise SpoolError("The spool file is not there.")
        yield

    def half_gone() -> Iterator[EncodedRecordBatch]:
        nonlocal turns
        turns += 1
        yield encoded(0, b"half")
        if turns == 2:  # the first generator is only used to check whether there is data
            publish(cluster, 5, encoded(0, b"by the other"))
            raise SpoolError("The spool file is not there.")

    options = {"transactional_id": NAME, "group_id": NAME, "metadata": ""}
    turns = 0
    with publisher_for(cluster) as publisher:
        with pytest.raises(SpoolError):
            publisher.commit_once(batch_id=5, record_batches=gone, **options)
        assert publisher.commit_once(batch_id=5, record_batches=half_gone, **options).was_committed
        assert publisher.commit_once(batch_id=5, record_batches=gone, **options).was_committed
    assert cluster.values(TOPIC, 0) == [b"by the other"]


def test_one_publisher_for_several_names(cluster: FakeCluster) -> None:
    with publisher_for(cluster) as publisher:
        for name in ("one", "two", "one"):
            done = publisher.commit_once(
                transactional_id=name,
                group_id=name,
                batch_id=0,
                metadata="",
                record_batches=lambda: [encoded(0, b"a")],
            )
    assert done.was_committed and cluster.offsets == {"one": 1, "two": 1}


def test_a_number_is_committed_for_each_topic_with_its_note(cluster: FakeCluster) -> None:
    publish(cluster, 3, encoded(0, b"a"), encoded(0, b"b", topic="u"))
    assert cluster.notes == {NAME: {TOPIC: (4, "m"), "u": (4, "m")}}


def test_the_decision_function_gets_the_groups_state_and_its_decision_is_followed(
    cluster: FakeCluster,
) -> None:
    reported: list[dict[str, CommittedBatch]] = []

    def publish_as(batch_id: int, decision: Decision) -> Publication:
        def decide(state: GroupState) -> Decision:
            reported.append(dict(state.committed))
            return decision

        with publisher_for(cluster) as publisher:
            return publisher.commit_once(
                transactional_id=NAME,
                group_id=NAME,
                batch_id=batch_id,
                metadata="m",
                record_batches=lambda: [encoded(0, b"%d" % batch_id)],
                decide=decide,
            )

    assert not publish_as(6, WRITE).was_committed
    assert publish_as(7, Decision(False, True, frozenset({TOPIC}))).was_committed, (
        "only the batch number is committed, without records"
    )
    assert publish_as(3, SKIP).was_committed
    assert not publish_as(2, Decision(True, True, frozenset({"u"}))).was_committed, (
        "the numbers are set back to this batch"
    )
    assert reported == [{}] + [
        {TOPIC: CommittedBatch(number, CommitNote("m"))} for number in (7, 8, 8)
    ]
    assert cluster.notes[NAME] == {TOPIC: (3, "m"), "u": (3, "m")}
    assert cluster.values(TOPIC) == [b"6", b"2"]
    with pytest.raises(UncertainBatchError), publisher_for(cluster) as publisher:
        publisher.commit_once(
            transactional_id=NAME,
            group_id=NAME,
            batch_id=9,
            metadata="",
            record_batches=lambda: [encoded(0, b"x")],
            decide=_in_doubt,
        )
    assert cluster.values(TOPIC) == [b"6", b"2"] and not cluster.aborted


def _in_doubt(state: GroupState) -> Decision:
    raise UncertainBatchError("in doubt")


class Stream:
    """A stream whose batches are published with begun notes. `steps` has the group's state at each
    decision, and the writes of the trail.
    """

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.steps: list[GroupState | str] = []

    def publish(self, batch_id: int, *decisions: Decision, records: int = 1) -> Publication:
        """Publish a micro-batch as the stream sink does. The decisions are returned one after the
        other, and `steps` records the state for which each decision was requested.
        """
        left = list(decisions)

        def decide(state: GroupState) -> Decision:
            self.steps.append(GroupState(dict(state.committed), dict(state.begun)))
            return left.pop(0) if len(left) > 1 else left[0]

        with publisher_for(self.cluster) as publisher:
            return publisher.commit_once(
                transactional_id=NAME,
                group_id=NAME,
                batch_id=batch_id,
                metadata="committed",
                record_batches=lambda: [encoded(0, b"%d" % batch_id)] * records,
                decide=decide,
                begun=BegunNotes("announced", lambda: self.steps.append("trail")),
            )

    def noted(self, number: int, text: str) -> dict[str, CommittedBatch]:
        return {TOPIC: CommittedBatch(number, CommitNote(text))}


WRITE_T = Decision(True, True, frozenset({TOPIC}))
ANNOUNCE_T = Decision(True, True, frozenset({TOPIC}), announces=True)


@pytest.mark.parametrize("version", [0, 2])
def test_a_streams_batch_leaves_its_begun_note_before_its_transaction(version: int) -> None:
    """Before its transaction, a stream's batch commits a note that it has begun, and writes the
    trail. The first attempt fails at EndTxn, so both steps occur twice.
    """
    with FakeCluster({TOPIC: 4}, transaction_version=version) as cluster:
        stream = Stream(cluster)
        cluster.disturb = once(EndTxnRequest, HANG_UP)
        assert stream.publish(7, WRITE_T).attempts == 2
        nothing, begun = GroupState(), GroupState({}, stream.noted(8, "committed"))
        assert stream.steps == [nothing, "trail", begun, "trail"]
        assert cluster.notes == {
            NAME: {TOPIC: (8, "committed")},
            f"{NAME}-begun": {TOPIC: (8, "committed")},
        }
        assert cluster.values(TOPIC) == [b"7"]


@pytest.mark.parametrize("version", [0, 2])
def test_an_announcement_is_committed_before_the_batch_is_begun(version: int) -> None:
    with FakeCluster({TOPIC: 4}, transaction_version=version) as cluster:
        stream = Stream(cluster)
        stream.publish(7, ANNOUNCE_T, WRITE_T)
        announced = GroupState(stream.noted(7, "announced"))
        assert stream.steps == [GroupState(), announced, "trail"]
        assert cluster.notes[NAME] == {TOPIC: (8, "committed")}
        assert cluster.values(TOPIC) == [b"7"]


def test_an_announcement_that_is_lost_is_made_again(cluster: FakeCluster) -> None:
    stream = Stream(cluster)
    stream.publish(7, ANNOUNCE_T, ANNOUNCE_T, ANNOUNCE_T, WRITE_T)
    assert stream.steps.count("trail") == 1 and cluster.values(TOPIC) == [b"7"]


def test_a_streams_batch_without_records_is_decided_on(cluster: FakeCluster) -> None:
    stream = Stream(cluster)
    assert not stream.publish(7, PASS, records=0).was_committed
    assert stream.publish(7, SKIP, records=0).was_committed
    assert stream.steps == [GroupState(), GroupState()] and cluster.notes == {}
    with pytest.raises(UncertainBatchError), publisher_for(cluster) as publisher:
        publisher.commit_once(
            transactional_id=NAME,
            group_id=NAME,
            batch_id=7,
            metadata="",
            record_batches=list,
            decide=_in_doubt,
            begun=BegunNotes("", lambda: None),
        )


def test_a_topic_is_created_before_a_number_is_committed_for_it(cluster: FakeCluster) -> None:
    """A broker does not commit an offset for a topic that does not exist."""
    decision = Decision(True, True, frozenset({TOPIC, "made"}))
    Stream(cluster).publish(7, decision._replace(announces=True), decision)
    assert cluster.partitions["made"] == 1
    assert set(cluster.notes[NAME]) == set(cluster.notes[f"{NAME}-begun"]) == {TOPIC, "made"}


def test_no_announcement_is_committed_to_a_broker_without_offset_commit() -> None:
    others = {key: value for key, value in KAFKA_4_0.items() if key != OffsetCommitRequest.API_KEY}
    with FakeCluster({TOPIC: 4}, speaks=others) as cluster:
        stream = Stream(cluster)
        stream.publish(7, ANNOUNCE_T, WRITE_T)
        assert cluster.notes == {NAME: {TOPIC: (8, "committed")}}
