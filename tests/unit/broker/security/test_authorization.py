"""The table of the rights that requests need. It contains every request, and each of them can be
refused. Other tests send requests that are only partly allowed. The expected codes are those of
Apache Kafka 3.9.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.api_rows import RULES
from helpers.core_host import CoreHost

from barnabas.broker.admission import guards, streams_guards
from barnabas.broker.admission.rights import GROUP, TOPIC, TRANSACTIONAL_ID
from barnabas.broker.security import authorizer as authorizer_module
from barnabas.broker.security.acls import (
    CLUSTER_NAME,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from barnabas.broker.security.stored import Acl
from barnabas.protocol.api import Api
from barnabas.protocol.api_table import APIS
from barnabas.protocol.errors import Code
from barnabas.protocol.messages import (
    consumer_group_describe,
    share_group_describe,
    streams_group_describe,
)
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from barnabas.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from barnabas.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from barnabas.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from barnabas.protocol.messages.share_fetch import ShareFetchRequest
from barnabas.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.storage.log.log import Log

FOR_EVERYBODY = {
    "ApiVersions", "SaslHandshake", "SaslAuthenticate", "GetTelemetrySubscriptions",
    "PushTelemetry", "RenewDelegationToken", "ExpireDelegationToken",
    "DescribeDelegationToken",
}  # fmt: skip


def test_each_request_has_a_row_and_no_row_is_of_nothing() -> None:
    assert sorted(RULES) == sorted(api.name for api in APIS)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_each_request_checks_a_right_or_is_open_to_all(api: Api) -> None:
    rule = RULES[api.name]
    assert (not rule.asks) == (api.name in FOR_EVERYBODY), (
        "give the row a right, or add the request to FOR_EVERYBODY"
    )


# The rights that each request may need, from "Operations and resources on protocols" in Apache
# Kafka's documentation, and from KafkaApis and ControllerApis.
OF_KAFKA = (
    ("WRITE TOPIC; WRITE TRANSACTIONAL_ID", "Produce"),
    ("READ TOPIC; CLUSTER_ACTION CLUSTER", "Fetch"),
    ("CREATE_TOKENS USER", "CreateDelegationToken"),
    ("DESCRIBE TOPIC", "ListOffsets DescribeTopicPartitions"),
    ("DESCRIBE TOPIC; CREATE CLUSTER; CREATE TOPIC; DESCRIBE CLUSTER", "Metadata"),
    ("READ GROUP; READ TOPIC", "OffsetCommit"),
    ("DESCRIBE GROUP; DESCRIBE TOPIC", "OffsetFetch ConsumerGroupDescribe StreamsGroupDescribe"),
    ("READ GROUP; DESCRIBE TOPIC; CREATE CLUSTER; CREATE TOPIC", "StreamsGroupHeartbeat"),
    ("DESCRIBE GROUP; DESCRIBE TRANSACTIONAL_ID; CLUSTER_ACTION CLUSTER", "FindCoordinator"),
    ("READ GROUP; READ TOPIC", "ShareFetch ShareAcknowledge AlterShareGroupOffsets"),
    ("DELETE GROUP; READ TOPIC", "DeleteShareGroupOffsets"),
    ("DESCRIBE GROUP; DESCRIBE TOPIC", "ShareGroupDescribe DescribeShareGroupOffsets"),
    ("READ GROUP; DESCRIBE TOPIC", "ShareGroupHeartbeat"),
    ("CLUSTER_ACTION CLUSTER", "InitializeShareGroupState ReadShareGroupState"),
    ("CLUSTER_ACTION CLUSTER", "WriteShareGroupState DeleteShareGroupState"),
    ("CLUSTER_ACTION CLUSTER", "ReadShareGroupStateSummary"),
    ("READ GROUP", "JoinGroup Heartbeat LeaveGroup SyncGroup"),
    ("DESCRIBE GROUP", "DescribeGroups"),
    ("DESCRIBE CLUSTER; DESCRIBE GROUP", "ListGroups"),
    ("CREATE CLUSTER; CREATE TOPIC; DESCRIBE_CONFIGS TOPIC", "CreateTopics"),
    ("DELETE CLUSTER; DELETE TOPIC; DESCRIBE TOPIC", "DeleteTopics"),
    ("DELETE TOPIC", "DeleteRecords"),
    ("WRITE TRANSACTIONAL_ID; TWO_PHASE_COMMIT TRANSACTIONAL_ID; IDEMPOTENT_WRITE CLUSTER; "
     "WRITE TOPIC", "InitProducerId"),
    ("CLUSTER_ACTION CLUSTER; DESCRIBE TOPIC", "OffsetForLeaderEpoch"),
    ("WRITE TRANSACTIONAL_ID; WRITE TOPIC; CLUSTER_ACTION CLUSTER", "AddPartitionsToTxn"),
    ("WRITE TRANSACTIONAL_ID; READ GROUP", "AddOffsetsToTxn"),
    ("WRITE TRANSACTIONAL_ID", "EndTxn"),
    ("ALTER CLUSTER; CLUSTER_ACTION CLUSTER", "WriteTxnMarkers"),
    ("WRITE TRANSACTIONAL_ID; READ GROUP; READ TOPIC", "TxnOffsetCommit"),
    ("DESCRIBE CLUSTER",
     "DescribeAcls DescribeLogDirs ListPartitionReassignments "
     "DescribeUserScramCredentials DescribeQuorum DescribeCluster"),
    ("ALTER CLUSTER",
     "CreateAcls DeleteAcls AlterReplicaLogDirs ElectLeaders "
     "AlterPartitionReassignments AlterUserScramCredentials UpdateFeatures "
     "UnregisterBroker AddRaftVoter RemoveRaftVoter"),
    ("DESCRIBE_CONFIGS TOPIC; DESCRIBE_CONFIGS GROUP; DESCRIBE_CONFIGS CLUSTER",
     "DescribeConfigs"),
    ("ALTER_CONFIGS TOPIC; ALTER_CONFIGS GROUP; ALTER_CONFIGS CLUSTER",
     "AlterConfigs IncrementalAlterConfigs"),
    ("ALTER TOPIC", "CreatePartitions"),
    ("DELETE GROUP", "DeleteGroups"),
    ("DELETE GROUP; READ TOPIC", "OffsetDelete"),
    ("DESCRIBE_CONFIGS CLUSTER", "DescribeClientQuotas ListConfigResources"),
    ("ALTER_CONFIGS CLUSTER", "AlterClientQuotas"),
    ("READ TOPIC", "DescribeProducers"),
    ("DESCRIBE TRANSACTIONAL_ID; DESCRIBE TOPIC", "DescribeTransactions"),
    ("DESCRIBE TRANSACTIONAL_ID", "ListTransactions"),
    ("READ GROUP; DESCRIBE TOPIC", "ConsumerGroupHeartbeat"),
)  # fmt: skip


def test_each_request_checks_the_rights_that_apache_kafka_checks() -> None:
    expected = {name: set(asks.split("; ")) for asks, names in OF_KAFKA for name in names.split()}
    assert {
        name: {f"{ask.operation.name} {ask.resource_type.name}" for ask in rule.asks}
        for name, rule in RULES.items()
        if rule.asks
    } == expected, "write down in OF_KAFKA what Apache Kafka requires of a new request"


# --- requests allowed in part -------------------------------------------------------------------

ANN, ADMIN = 1, 2
SUPER = {"authorizer_class_name": "StandardAuthorizer", "super_users": "User:admin"}
UUID_7 = uuid.UUID(int=7)
DENIED_TOPIC, DENIED_GROUP = Code.TOPIC_AUTHORIZATION_FAILED, Code.GROUP_AUTHORIZATION_FAILED
DENIED_CLUSTER = Code.CLUSTER_AUTHORIZATION_FAILED
DENIED_ID = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class Guarded(CoreHost):
    """A broker with the topics t and u. The user of the connection ANN is User:ann, who has the
    rights that a test grants.
    """

    def __init__(self, directory: Path) -> None:
        """Start a broker with ACLs, the topics t and u, and two connected users: ann, who has no
        rights at first, and admin, who is a super user.
        """
        super().__init__(directory, **SUPER)
        for connection, user in ((ANN, "User:ann"), (ADMIN, "User:admin")):
            self.connect(connection)
            self.broker.connections[connection].principal = user
        for name in ("t", "u"):
            self.broker.topics.create_topic(name, 1, {}, now_ms=self.now_ms)

    def allow(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> None:
        self._add(operation, kind, name, Permission.ALLOW)

    def deny(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> None:
        self._add(operation, kind, name, Permission.DENY)

    def _add(
        self, operation: Operation, kind: ResourceType, name: str, permission: Permission
    ) -> None:
        one = Acl(kind, name, PatternType.LITERAL, "User:ann", "*", operation, permission)
        assert self.parts.access.authorizer is not None
        self.parts.access.authorizer.add({uuid.uuid4(): one})

    def log(self, name: str) -> Log:
        log = self.broker.topics.partition(name, 0)
        assert log is not None
        return log

    def id_of(self, name: str) -> uuid.UUID:
        topic = self.broker.metadata.topic(name)
        assert topic is not None
        return topic.topic_id


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Guarded]:
    host = Guarded(tmp_path)
    # the files of new logs are created immediately
    host.parts.files_ahead.most_by_request = 2
    yield host
    host.broker.close_logs(host.now_ms)


def produce_request(acks: int = -1, *, transactional_id: str | None = None) -> ProduceRequest:
    batch = encode_batch(
        [NewRecord(None, b"x", 0)], transactional=transactional_id is not None, producer_id=7,
        producer_epoch=0, base_sequence=0,
    )  # fmt: skip
    topics = [TopicProduceData(n, partition_data=[PartitionProduceData(0, batch)]) for n in "tu"]
    return ProduceRequest(transactional_id, acks=acks, timeout_ms=1000, topic_data=topics)


def produced(host: Guarded, request: ProduceRequest) -> dict[str, int]:
    """Send a Produce request as ann. Gives: the error code of each topic."""
    host.ask(ANN, request, 9)
    while host.work:  # creates the files of new partitions
        host.finish_work()
    answer = host.answers[ANN][-1]
    return {row.name: row.partition_responses[0].error_code for row in answer.responses}


def test_allowed_partitions_are_written_and_others_refused(host: Guarded) -> None:
    assert produced(host, produce_request()) == {"t": DENIED_TOPIC, "u": DENIED_TOPIC}
    host.allow(Operation.WRITE, TOPIC, "u")
    assert produced(host, produce_request()) == {"t": DENIED_TOPIC, "u": 0}
    ends = [log.log_end_offset for log in (host.log("t"), host.log("u"))]
    assert ends == [0, 1]


def _all_codes(host: Guarded) -> set[int]:
    read = fetched(host, (0, -1), "t", "u")
    codes = {row.partitions[0].error_code for row in read.responses}
    return codes | set(produced(host, produce_request()).values())


@pytest.mark.parametrize("most_remembered", [200_000, 3])
def test_a_removed_right_is_refused_from_the_next_request_on(
    host: Guarded, monkeypatch: pytest.MonkeyPatch, most_remembered: int
) -> None:
    """In the second case, requests of another user are sent in between. They fill the cache of
    decisions, which is then cleared.
    """
    monkeypatch.setattr(authorizer_module, "MOST_REMEMBERED", most_remembered)
    authorizer = host.parts.access.authorizer
    assert authorizer is not None
    for _ in range(3):
        for name in ("t", "u"):
            host.allow(Operation.WRITE, TOPIC, name)
            host.allow(Operation.READ, TOPIC, name)
        assert _all_codes(host) == {0}
        assert host.call(ADMIN, produce_request(), 9).responses
        assert _all_codes(host) == {0}
        authorizer.remove(list(host.broker.metadata.acls))
        assert _all_codes(host) == {DENIED_TOPIC}


def test_a_line_names_the_request_that_was_refused_and_its_time(
    host: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    """At most one line is logged per client and minute, whatever the client sent before."""
    for _ in range(2):
        for ask in (
            lambda: produced(host, produce_request()),
            lambda: fetched(host, (0, -1), "t", "u"),
            lambda: host.call(ANN, FindCoordinatorRequest(key="g", key_type=0), 3),
        ):
            ask()
            ask()
            host.now_ms += 60_000
    named = [line.partition(" (")[2].partition(")")[0] for line in caplog.messages]
    assert named == ["Produce", "Fetch", "FindCoordinator"] * 2


def test_a_reauthenticated_connection_has_only_the_new_users_rights(host: Guarded) -> None:
    host.allow(Operation.WRITE, TOPIC, "t")
    assert produced(host, produce_request()) == {"t": 0, "u": DENIED_TOPIC}
    host.broker.on_identified(ANN, "User:bob")
    assert produced(host, produce_request()) == {"t": DENIED_TOPIC, "u": DENIED_TOPIC}
    host.broker.on_identified(ANN, "User:admin")
    assert produced(host, produce_request()) == {"t": 0, "u": 0}


def test_a_refused_produce_with_acks_0_closes_the_connection(host: Guarded) -> None:
    host.allow(Operation.WRITE, TOPIC, "u")
    host.ask(ANN, produce_request(acks=0), 9)
    assert "may not write to t" in host.closed[ANN]
    assert host.log("u").log_end_offset == 1, "what may be written is"


def test_batches_of_a_transaction_need_its_id(host: Guarded) -> None:
    host.allow(Operation.WRITE, TOPIC, "t")
    refused = produced(host, produce_request(transactional_id="x"))
    assert refused == {"t": DENIED_ID, "u": DENIED_ID}


def fetched(host: Guarded, session: tuple[int, int] = (0, 0), *names: str) -> Any:
    wanted = [FetchPartition(0, partition_max_bytes=1000)]
    request = FetchRequest(
        topics=[FetchTopic(name, partitions=wanted) for name in names],
        session_id=session[0], session_epoch=session[1], max_bytes=10_000, min_bytes=0,
    )  # fmt: skip
    return host.call(ANN, request, 11)


@pytest.mark.parametrize("version", [11, 14, 15])
@pytest.mark.parametrize("replica_id", [-1, 0, 5])
def test_a_fetch_of_a_replica_needs_another_right_than_a_consumers(
    host: Guarded, version: int, replica_id: int
) -> None:
    """As in Apache Kafka, a replica needs CLUSTER_ACTION. For a partition that may not be read, the
    response lists no aborted transactions.
    """
    wanted = [FetchPartition(0, partition_max_bytes=1000)]
    topic = FetchTopic(
        topic="t", topic_id=host.id_of("t") if version >= 13 else None, partitions=wanted
    )
    request = FetchRequest(topics=[topic], session_id=0, session_epoch=-1, max_bytes=10_000)
    if version >= 15:
        request.replica_state = ReplicaState(replica_id=replica_id, replica_epoch=-1)
    else:
        request.replica_id = replica_id

    def code() -> int:
        (row,) = host.call(ANN, request, version).responses[0].partitions
        assert row.error_code == 0 or row.aborted_transactions == []
        return int(row.error_code)

    authorizer = host.parts.access.authorizer
    assert authorizer is not None
    assert code() == DENIED_TOPIC
    host.allow(Operation.READ, TOPIC, "t")
    assert code() == (0 if replica_id < 0 else DENIED_TOPIC)
    authorizer.remove(list(host.broker.metadata.acls))
    host.allow(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    assert code() == (DENIED_TOPIC if replica_id < 0 else 0)


def test_an_unknown_topic_id_is_reported_without_any_right(host: Guarded) -> None:
    """ACLs are looked up by a topic's name, which an unknown id does not have."""
    wanted = [FetchPartition(0, partition_max_bytes=1000)]
    topics = [FetchTopic(topic_id=each, partitions=wanted) for each in (UUID_7, host.id_of("t"))]
    answer = host.call(
        ANN, FetchRequest(topics=topics, session_id=0, session_epoch=-1, max_bytes=10_000), 13
    )
    codes = [row.partitions[0].error_code for row in answer.responses]
    assert codes == [Code.UNKNOWN_TOPIC_ID, DENIED_TOPIC]


def test_rights_are_checked_again_for_each_fetch_of_a_session(host: Guarded) -> None:
    host.allow(Operation.READ, TOPIC, "t")
    first = fetched(host, (0, 0), "t", "u")
    codes = {row.topic: row.partitions[0].error_code for row in first.responses}
    assert codes == {"t": 0, "u": DENIED_TOPIC}
    assert host.parts.access.authorizer is not None
    host.parts.access.authorizer.remove(list(host.broker.metadata.acls))
    second = fetched(host, (first.session_id, 1))
    codes = {row.topic: row.partitions[0].error_code for row in second.responses}
    assert codes == {"t": DENIED_TOPIC, "u": DENIED_TOPIC}


def test_a_user_cannot_use_or_end_another_users_fetch_session(host: Guarded) -> None:
    host.allow(Operation.READ, TOPIC, "t")
    session = fetched(host, (0, 0), "t").session_id
    for epoch in (1, -1, 0):
        request = FetchRequest(session_id=session, session_epoch=epoch, max_bytes=1000)
        answer = host.call(ADMIN, request, 11)
        assert not answer.responses
        assert answer.error_code == (Code.FETCH_SESSION_ID_NOT_FOUND if epoch == 1 else 0)
    assert fetched(host, (session, 1)).error_code == 0, "it is still there"


def test_offsets_of_hidden_topics_are_left_out_or_refused(host: Guarded) -> None:
    partitions = [OffsetCommitRequestPartition(0, 5)]
    commit = OffsetCommitRequest(
        "g", topics=[OffsetCommitRequestTopic(name, partitions=partitions) for name in "tu"]
    )
    committed = host.call(ADMIN, commit, 8)
    assert [row.partitions[0].error_code for row in committed.topics] == [0, 0]
    host.allow(Operation.READ, GROUP, "g")
    host.allow(Operation.READ, TOPIC, "t")
    for version in (2, 7, 8, 9, 10):
        asked = OffsetFetchRequestGroup("g", topics=None)
        request = (
            OffsetFetchRequest("g", topics=None)
            if version < 8
            else OffsetFetchRequest(groups=[asked])
        )
        answer = host.call(ANN, request, version)
        rows = answer.topics if version < 8 else answer.groups[0].topics
        reported = [row.topic_id if version >= 10 else row.name for row in rows]
        assert reported == [host.id_of("t") if version >= 10 else "t"], version
    named = [OffsetFetchRequestTopics(name, partition_indexes=[0]) for name in "tu"]
    (group,) = host.call(
        ANN, OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=named)]), 8
    ).groups
    assert {row.name: row.partitions[0].error_code for row in group.topics} == {
        "t": 0,
        "u": DENIED_TOPIC,
    }
    answer = host.call(ANN, commit, 8)
    codes = {row.name: row.partitions[0].error_code for row in answer.topics}
    assert codes == {"t": 0, "u": DENIED_TOPIC}


def test_a_group_that_is_refused_as_a_whole_has_no_rows_of_refused_topics(host: Guarded) -> None:
    """As in Apache Kafka, the response has only the error of the group, since rows with topics
    would count as offsets.
    """
    host.allow(Operation.READ, GROUP, "g")
    host.allow(Operation.READ, TOPIC, "t")
    joins = ConsumerGroupHeartbeatRequest(
        "g", "member", 0, rebalance_timeout_ms=1000, subscribed_topic_names=["t"],
        topic_partitions=[],
    )  # fmt: skip
    assert host.call(ADMIN, joins, 1).error_code == 0
    topics = [OffsetFetchRequestTopics(name, partition_indexes=[0]) for name in "tu"]
    offsets = OffsetFetchRequestGroup("g", "another", 1, topics)
    (group,) = host.call(ANN, OffsetFetchRequest(groups=[offsets]), 9).groups
    assert (group.error_code, group.topics) == (Code.UNKNOWN_MEMBER_ID, [])
    host.parts.features.update({"share.version": 0})
    starts = DescribeShareGroupOffsetsRequestGroup(
        "g", [DescribeShareGroupOffsetsRequestTopic(name, [0]) for name in "tu"]
    )
    (group,) = host.call(ANN, DescribeShareGroupOffsetsRequest([starts]), 0).groups
    assert (group.error_code, group.topics) == (Code.UNSUPPORTED_VERSION, [])


OF_TRANSACTIONS = {
    "AddOffsetsToTxn": AddOffsetsToTxnRequest("x", 7, 0, "g"),
    "EndTxn": EndTxnRequest("x", 7, 0, True),
    "TxnOffsetCommit": TxnOffsetCommitRequest(
        "x", "g", 7, 0,
        topics=[TxnOffsetCommitRequestTopic("t", [TxnOffsetCommitRequestPartition(0, 5)])],
    ),
}  # fmt: skip
RIGHTS_OF_TRANSACTIONS = {
    DENIED_ID: (Operation.WRITE, TRANSACTIONAL_ID, "x"),
    DENIED_GROUP: (Operation.READ, GROUP, "g"),
    DENIED_TOPIC: (Operation.READ, TOPIC, "t"),
}


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("AddOffsetsToTxn", (DENIED_ID, DENIED_GROUP)),
        ("EndTxn", (DENIED_ID,)),
        ("TxnOffsetCommit", (DENIED_ID, DENIED_GROUP, DENIED_TOPIC)),
    ],
)
def test_each_right_that_a_transaction_request_needs_is_checked(
    host: Guarded, name: str, asked: tuple[Code, ...]
) -> None:
    # contract: kip-98/rights
    """A client that lacks one of the rights is refused with the code for this right."""

    def code() -> int:
        answer = host.call(ANN, OF_TRANSACTIONS[name], 3)
        if name == "TxnOffsetCommit":
            answer = answer.topics[0].partitions[0]
        error: int = answer.error_code
        return error

    authorizer = host.parts.access.authorizer
    assert authorizer is not None
    for missing in asked:
        authorizer.remove(list(host.broker.metadata.acls))
        for denied in asked:
            if denied is not missing:
                host.allow(*RIGHTS_OF_TRANSACTIONS[denied])
        assert code() == missing
    host.allow(*RIGHTS_OF_TRANSACTIONS[missing])
    assert code() == Code.INVALID_PRODUCER_ID_MAPPING, "there is no such transaction"


def test_one_refused_partition_refuses_all_in_add_partitions_to_txn(host: Guarded) -> None:
    topics = [AddPartitionsToTxnTopic(name, [0]) for name in "tu"]
    request = AddPartitionsToTxnRequest([], "x", 7, 0, topics)

    def codes() -> dict[str, int]:
        rows = host.call(ANN, request, 3).results_by_topic_v3_and_below
        return {row.name: row.results_by_partition[0].partition_error_code for row in rows}

    assert codes() == {"t": DENIED_ID, "u": DENIED_ID}
    host.allow(Operation.WRITE, TRANSACTIONAL_ID, "x")
    host.allow(Operation.WRITE, TOPIC, "t")
    assert codes() == {"t": Code.OPERATION_NOT_ATTEMPTED, "u": DENIED_TOPIC}


@pytest.mark.parametrize("version", range(4))
def test_internal_topics_cannot_be_added_to_a_transaction_with_any_rights(
    host: Guarded, version: int
) -> None:
    host.broker.topics.ensure_internal_topic("__consumer_offsets", host.now_ms)
    host.broker.topics.ensure_internal_topic("__transaction_state", host.now_ms)
    host.allow(Operation.WRITE, TRANSACTIONAL_ID, "x")
    for name in ("t", "v", "__consumer_offsets", "__transaction_state"):
        host.allow(Operation.WRITE, TOPIC, name)

    def codes(connection: int, *names: str) -> dict[str, int]:
        topics = [AddPartitionsToTxnTopic(name, [0]) for name in names]
        request = AddPartitionsToTxnRequest([], "x", 7, 0, topics)
        rows = host.call(connection, request, version).results_by_topic_v3_and_below
        return {row.name: row.results_by_partition[0].partition_error_code for row in rows}

    internal = {"__consumer_offsets": DENIED_TOPIC, "__transaction_state": DENIED_TOPIC}
    assert codes(ADMIN, *internal) == codes(ANN, *internal) == internal
    expected = {"t": Code.OPERATION_NOT_ATTEMPTED, "v": Code.UNKNOWN_TOPIC_OR_PARTITION}
    expected |= internal
    assert codes(ADMIN, *expected) == codes(ANN, *expected) == expected
    expected["u"] = DENIED_TOPIC
    assert codes(ANN, *expected) == expected


def test_describe_configs_checks_the_right_of_each_kind_of_resource(host: Guarded) -> None:
    host.allow(Operation.ALTER_CONFIGS, TOPIC, "t")
    resources = [
        DescribeConfigsResource(kind, name)
        for kind, name in ((2, "t"), (2, "u"), (4, "1"), (32, "g"))
    ]
    answer = host.call(ANN, DescribeConfigsRequest(resources), 4)
    assert {(row.resource_type, row.resource_name): row.error_code for row in answer.results} == {
        (2, "t"): 0, (2, "u"): DENIED_TOPIC, (4, "1"): DENIED_CLUSTER, (32, "g"): DENIED_GROUP,
    }  # fmt: skip


def test_a_kind_of_resource_without_settings_is_refused_whatever_a_client_may(
    host: Guarded,
) -> None:
    """Apache Kafka looks at the types of a DescribeConfigs before it authorizes the resources."""
    host.allow(Operation.DESCRIBE_CONFIGS, TOPIC, "t")
    resources = [DescribeConfigsResource(kind, name) for kind, name in ((2, "t"), (99, "t"))]
    answer = host.call(ANN, DescribeConfigsRequest(resources), 4)
    assert [row.error_code for row in answer.results] == [Code.INVALID_REQUEST] * 2
    alter = IncrementalAlterConfigsRequest([AlterConfigsResource(99, "t", [])])
    (row,) = host.call(ANN, alter, 1).responses
    assert row.error_code == Code.INVALID_REQUEST


@pytest.mark.parametrize("group", [None, "g"])
def test_a_share_request_without_a_group_is_refused_whatever_a_client_may(
    host: Guarded, group: str | None
) -> None:
    code = Code.INVALID_REQUEST if group is None else DENIED_GROUP
    for request in (ShareFetchRequest(group, "m"), ShareAcknowledgeRequest(group, "m")):
        assert host.call(ANN, request, 1).error_code == code


@pytest.mark.parametrize(
    ("owner", "renewer", "may_create", "code"),
    [
        ("bob", "User", False, Code.DELEGATION_TOKEN_AUTHORIZATION_FAILED),
        ("bob", "User", True, Code.DELEGATION_TOKEN_AUTH_DISABLED),
        ("ann", "User", False, Code.DELEGATION_TOKEN_AUTH_DISABLED),
        ("ann", "Group", False, Code.INVALID_PRINCIPAL_TYPE),
        (None, "Group", False, Code.INVALID_PRINCIPAL_TYPE),
        ("bob", "Group", False, Code.DELEGATION_TOKEN_AUTHORIZATION_FAILED),
    ],
)
def test_a_token_of_another_user_needs_its_right_and_renewers_are_users(
    host: Guarded, owner: str | None, renewer: str, may_create: bool, code: Code
) -> None:
    if may_create:
        host.allow(Operation.CREATE_TOKENS, ResourceType.USER, "User:bob")
    request = CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else "User",
        owner_principal_name=owner,
        renewers=[CreatableRenewers(renewer, "carol")],
        max_lifetime_ms=-1,
    )
    assert host.call(ANN, request, 3).error_code == code


def test_a_deletion_by_id_does_not_reveal_hidden_names(host: Guarded) -> None:
    ids = {name: host.id_of(name) for name in "tu"}
    wanted = [DeleteTopicState(None, ids["t"]), DeleteTopicState("u"), DeleteTopicState("v")]
    host.allow(Operation.DESCRIBE, TOPIC, "t")
    rows = host.call(ANN, DeleteTopicsRequest(wanted), 6).responses
    assert [(row.name, row.error_code) for row in rows] == [
        ("t", DENIED_TOPIC), ("u", DENIED_TOPIC), ("v", DENIED_TOPIC),
    ]  # fmt: skip
    both = DeleteTopicsRequest([DeleteTopicState("v", ids["u"])])
    (row,) = host.call(ANN, both, 6).responses
    assert (row.name, row.error_code) == ("v", Code.INVALID_REQUEST)
    host.allow(Operation.DELETE, TOPIC, "u")
    rows = host.call(ANN, DeleteTopicsRequest(wanted), 6).responses
    assert {row.name: row.error_code for row in rows} == {
        "u": 0, "t": DENIED_TOPIC, "v": DENIED_TOPIC,
    }  # fmt: skip


DELETE, DESCRIBE, NEITHER = Operation.DELETE, Operation.DESCRIBE, Operation.READ
DELETIONS = {
    # For the rights (allowed, denied), the codes for a deletion by name, by id, and by an unknown
    # name.
    (DELETE, NEITHER): (Code.NONE, Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION),
    (DELETE, DESCRIBE): (DENIED_TOPIC, Code.NONE, DENIED_TOPIC),
    (DESCRIBE, NEITHER): (DENIED_TOPIC, DENIED_TOPIC, Code.UNKNOWN_TOPIC_OR_PARTITION),
    (DESCRIBE, DELETE): (DENIED_TOPIC, DENIED_TOPIC, Code.UNKNOWN_TOPIC_OR_PARTITION),
    (NEITHER, DELETE): (DENIED_TOPIC, DENIED_TOPIC, Code.UNKNOWN_TOPIC_OR_PARTITION),
    (NEITHER, DESCRIBE): (DENIED_TOPIC, DENIED_TOPIC, DENIED_TOPIC),
}


@pytest.mark.parametrize(("rights", "codes"), DELETIONS.items())
def test_rights_that_a_deletion_by_name_and_by_id_need(
    host: Guarded, rights: tuple[Operation, Operation], codes: tuple[Code, Code, Code]
) -> None:
    """DELETE and READ imply DESCRIBE, unless DESCRIBE is denied."""
    for name in ("t", "u", "nothere"):
        host.allow(rights[0], TOPIC, name)
        host.deny(rights[1], TOPIC, name)
    by_id = DeleteTopicState(None, host.id_of("u"))
    wanted = DeleteTopicsRequest([DeleteTopicState("t"), by_id, DeleteTopicState("nothere")])
    rows = {row.name or row.topic_id: row for row in host.call(ANN, wanted, 6).responses}
    by_name, of_id = rows["t"], rows.get("u") or rows[by_id.topic_id]
    assert (by_name.error_code, of_id.error_code, rows["nothere"].error_code) == codes


@pytest.mark.parametrize("version", range(1, 6))
def test_older_versions_of_a_deletion_check_the_same_rights(host: Guarded, version: int) -> None:
    host.allow(DELETE, TOPIC, "t")
    host.deny(DESCRIBE, TOPIC, "t")
    host.allow(DESCRIBE, TOPIC, "nothere")
    request = DeleteTopicsRequest(topic_names=["t", "nothere"])
    rows = host.call(ANN, request, version).responses
    assert {row.name: row.error_code for row in rows} == {
        "t": DENIED_TOPIC, "nothere": Code.UNKNOWN_TOPIC_OR_PARTITION,
    }  # fmt: skip


def test_only_visible_topics_and_allowed_operations_are_described(host: Guarded) -> None:
    host.allow(Operation.READ, TOPIC, "t")
    request = MetadataRequest(None, include_topic_authorized_operations=True)
    (topic,) = host.call(ANN, request, 9).topics
    bits = 1 << Operation.READ | 1 << Operation.DESCRIBE
    assert (topic.name, topic.topic_authorized_operations) == ("t", bits)
    for version in (0, 1):
        every = MetadataRequest([] if version == 0 else None)
        assert [row.name for row in host.call(ANN, every, version).topics] == ["t"]
    (row,) = host.call(ANN, DescribeTopicPartitionsRequest(response_partition_limit=9), 0).topics
    assert (row.name, row.topic_authorized_operations) == ("t", bits)
    asked = MetadataRequest([MetadataRequestTopic("new")], allow_auto_topic_creation=True)
    host.allow(Operation.DESCRIBE, TOPIC, "new")
    assert [row.error_code for row in host.call(ANN, asked, 9).topics] == [DENIED_TOPIC]
    assert host.broker.metadata.topic("new") is None


def test_a_page_continues_after_a_cursor_at_a_hidden_topic(
    host: Guarded,
) -> None:
    host.allow(Operation.DESCRIBE, TOPIC, "u")

    def reported(names: str, cursor: Cursor) -> list[tuple[str, int]]:
        topics = [TopicRequest(name) for name in names]
        answer = host.call(ANN, DescribeTopicPartitionsRequest(topics, 9, cursor), 0)
        return [(row.name, row.error_code) for row in answer.topics]

    assert reported("", Cursor("t", 0)) == [("u", 0)]
    assert reported("tu", Cursor("t", 0)) == [("u", 0), ("t", DENIED_TOPIC)]
    assert reported("tu", Cursor("u", 0)) == [("u", 0)], (
        "the topic before the cursor was in an earlier page"
    )
    assert reported("u", Cursor("t", 0)) == [("u", Code.INVALID_REQUEST)], (
        "the cursor's topic is not one of the requested topics"
    )
    assert reported("", Cursor("z", 0)) == []


def test_a_members_topic_pattern_matches_only_visible_topics(host: Guarded) -> None:
    host.allow(Operation.READ, GROUP, "g")
    host.allow(Operation.DESCRIBE, TOPIC, "t")
    request = ConsumerGroupHeartbeatRequest(
        "g", "member", 0, rebalance_timeout_ms=60_000, subscribed_topic_regex=".*",
        topic_partitions=[],
    )  # fmt: skip
    reported: set[uuid.UUID] = set()
    for _ in range(5):
        answer = host.call(ANN, request, 1)
        assert answer.error_code == 0
        if answer.assignment is not None:
            reported |= {row.topic_id for row in answer.assignment.topic_partitions}
        request = ConsumerGroupHeartbeatRequest("g", "member", answer.member_epoch)
        host.now_ms += 5000
        host.broker.on_tick(host.event_ms())
        host.carry_out()
    assert reported == {host.id_of("t")}
    assert {
        topic
        for member in host.broker.groups.group("g").modern.targets.values()  # type: ignore[union-attr]
        for topic in member
    } == reported, "the target assignment has no hidden topic either"


def flush_all(host: Guarded) -> None:
    """Carry out all flushes, and the work that they cause."""
    for _ in range(20):
        while host.flushes:
            host.flush()
        host.tick(0)


def test_share_group_requests_check_the_rights_on_each_topic(host: Guarded) -> None:
    """As in KafkaApis of Apache Kafka 4.3, setting and deleting offsets needs READ, and describing
    them needs DESCRIBE.
    """
    host.allow(Operation.READ, GROUP, "g")
    host.allow(Operation.DELETE, GROUP, "g")
    host.allow(Operation.READ, TOPIC, "t")  # which implies DESCRIBE

    def answer(request: Any, version: int) -> Any:
        host.ask(ANN, request, version)
        flush_all(host)
        return host.answers[ANN][-1]

    joins = ShareGroupHeartbeatRequest("g", "member", 0, None, ["t", "u"])
    assert answer(joins, 1).error_code == DENIED_TOPIC
    other = ShareGroupHeartbeatRequest("h", "member", 0, None, ["t"])
    assert answer(other, 1).error_code == DENIED_GROUP
    rows = [AlterShareGroupOffsetsRequestPartition(0, 1)]
    alters = AlterShareGroupOffsetsRequest(
        "g", [AlterShareGroupOffsetsRequestTopic(name, rows) for name in ("t", "u", "none")]
    )
    responses = answer(alters, 0).responses
    codes = {row.topic_name: row.partitions[0].error_code for row in responses}
    assert codes == {"t": 0, "u": DENIED_TOPIC, "none": DENIED_TOPIC}
    wanted = [DescribeShareGroupOffsetsRequestTopic(name, [0]) for name in ("t", "u")]
    for topics, expected in ((wanted, {"t": 0, "u": DENIED_TOPIC}), (None, {"t": 0})):
        group = DescribeShareGroupOffsetsRequestGroup("g", topics)
        (row,) = answer(DescribeShareGroupOffsetsRequest([group]), 1).groups
        codes = {topic.topic_name: topic.partitions[0].error_code for topic in row.topics}
        assert (row.error_code, codes) == (0, expected)
    unseen = DescribeShareGroupOffsetsRequestGroup("h", None)
    (row,) = answer(DescribeShareGroupOffsetsRequest([unseen]), 1).groups
    assert (row.group_id, row.error_code) == ("h", DENIED_GROUP)
    named = [DeleteShareGroupOffsetsRequestTopic(name) for name in ("t", "u")]
    responses = answer(DeleteShareGroupOffsetsRequest("g", named), 0).responses
    assert {row.topic_name: row.error_code for row in responses} == {"t": 0, "u": DENIED_TOPIC}


def test_a_share_group_with_a_hidden_topic_is_not_described(host: Guarded) -> None:
    host.allow(Operation.READ, GROUP, "g")
    host.ask(ADMIN, ShareGroupHeartbeatRequest("g", "member", 0, None, ["t"]), 1)
    for epoch in (2, 2):
        while host.work:  # creates the files of internal topics
            host.finish_work()
        flush_all(host)
        host.tick(1000)
        host.call(ADMIN, ShareGroupHeartbeatRequest("g", "member", epoch), 1)
    (row,) = host.call(ADMIN, ShareGroupDescribeRequest(["g"]), 1).groups
    assert row.members[0].assignment.topic_partitions
    (row,) = host.call(ANN, ShareGroupDescribeRequest(["g"]), 1).groups
    assert (row.error_code, row.members) == (DENIED_TOPIC, [])
    host.allow(DESCRIBE, TOPIC, "t")
    (row,) = host.call(ANN, ShareGroupDescribeRequest(["g"]), 1).groups
    assert (row.error_code, len(row.members)) == (0, 1)


HIDDEN = "hidden"


def consumers(where: str) -> Any:
    """A described consumer group with a hidden topic in the given field of a member."""
    made = consumer_group_describe
    hidden = made.Assignment([made.TopicPartitions(UUID_7, HIDDEN, [0])])
    member = made.Member(member_id="m", **{where: hidden})
    return made.DescribedGroup(group_id="g", members=[member])


def sharers() -> Any:
    made = share_group_describe
    hidden = made.Assignment([made.TopicPartitions(UUID_7, HIDDEN, [0])])
    return made.DescribedGroup(
        group_id="g", members=[made.Member(member_id="m", assignment=hidden)]
    )


def streamers(where: str, names: list[Any]) -> Any:
    """A described streams group with the hidden topic in the given field of its subtopology."""
    made = streams_group_describe
    subtopology = made.Subtopology("0", **{where: names})
    return made.DescribedGroup(group_id="g", topology=made.Topology(0, [subtopology]))


INFO = streams_group_describe.TopicInfo(HIDDEN)
# Each of these descriptions contains the hidden topic in one place only.
OF_A_HIDDEN_TOPIC: dict[str, tuple[Callable[[Any, Any], None], Any]] = {
    "a consumer has it": (guards.hide_groups_of_hidden_topics, consumers("assignment")),
    "a consumer is to get it": (
        guards.hide_groups_of_hidden_topics,
        consumers("target_assignment"),
    ),
    "a member of a share group has it": (guards.hide_groups_of_hidden_topics, sharers()),
    **{
        f"a topology has it in its {where}": (
            streams_guards.hide_groups_of_hidden_topics,
            streamers(where, names),
        )
        for where, names in (
            ("source_topics", [HIDDEN]),
            ("repartition_sink_topics", [HIDDEN]),
            ("repartition_source_topics", [INFO]),
            ("state_changelog_topics", [INFO]),
        )
    },
}


@pytest.mark.parametrize("place", OF_A_HIDDEN_TOPIC)
def test_a_group_with_a_hidden_topic_in_any_field_is_not_described(place: str) -> None:
    hide, group = OF_A_HIDDEN_TOPIC[place]

    def described(seen: bool) -> Any:
        access = SimpleNamespace(sees=lambda operation, kind, name: name != HIDDEN or seen)
        answer = SimpleNamespace(groups=[group])
        hide(SimpleNamespace(access=access), answer)
        return answer.groups[0]

    assert described(seen=True) is group
    hidden = described(seen=False)
    assert (hidden.group_id, hidden.error_code) == ("g", DENIED_TOPIC)
    assert HIDDEN not in repr(hidden)


def test_finding_a_share_partitions_coordinator_needs_cluster_action(host: Guarded) -> None:
    """Only brokers send FindCoordinator with key type 2 (KIP-932)."""
    keys = ["g:AAAAAAAAAAAAAAAAAAAAAQ:0"]
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=keys)
    (row,) = host.call(ANN, request, 6).coordinators
    assert row.error_code == DENIED_CLUSTER
    host.allow(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    (row,) = host.call(ANN, request, 6).coordinators
    assert row.error_code == 0


@pytest.mark.parametrize("allowed", [0, 1, 601])
def test_many_topics_of_which_few_may_be_described(host: Guarded, allowed: int) -> None:
    """The 600 topics are looked up in slices. When the response is created, the rows of refused
    topics have already been encoded.
    """
    names = ["t", *(f"hidden-{number:03}" for number in range(600))]
    for name in names[:allowed]:
        host.allow(DESCRIBE, TOPIC, name)
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name) for name in names])
    host.ask(ANN, request, 0)
    host.await_answer(ANN)
    rows = {row.name: row.error_code for row in host.answers[ANN][-1].topics}
    assert len(rows) == len(names)
    if allowed < len(names):
        denied = {name for name, code in rows.items() if code == DENIED_TOPIC}
        assert denied == set(names[allowed:])
    assert rows["t"] == (Code.NONE if allowed else DENIED_TOPIC)
