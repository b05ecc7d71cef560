"""Streams groups on a whole broker: internal topics, names, rights, and the feature."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from helpers.core_host import CoreHost

from barnabas.broker.security.acls import Operation, PatternType, Permission, ResourceType
from barnabas.broker.security.stored import Acl
from barnabas.broker.slices import MOST_PARTITIONS_AT_ONCE
from barnabas.coordinator.groups.streams.topic_plan import Status
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from barnabas.protocol.messages.streams_group_heartbeat import (
    KeyValue,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TopicInfo,
    Topology,
)
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

AT_ONCE = {
    "group_streams_initial_rebalance_delay_ms": "0",
    "group_streams_assignment_interval_ms": "0",
}
SECURED = {"authorizer_class_name": "StandardAuthorizer", "super_users": "User:admin"}
CLUSTER, GROUP, TOPIC = ResourceType.CLUSTER, ResourceType.GROUP, ResourceType.TOPIC
HEARTBEAT_MS = 5_000


def counting(
    source: str = "lines", *, changelog: str = "log", repartition: int = 0, **configs: str
) -> Topology:
    """A topology with two subtopologies. The first reads `source` and writes the repartition topic
    "words". The second reads this topic, and has a changelog topic with the settings `configs`.
    """
    settings = [KeyValue(name.replace("_", "."), value) for name, value in configs.items()]
    return Topology(
        0,
        [
            Subtopology("0", [source], [], [], ["words"], [], []),
            Subtopology(
                "1", [], [], [TopicInfo(changelog, 0, 0, settings)], [],
                [TopicInfo("words", repartition, 0, [])], [],
            ),
        ],
    )  # fmt: skip


def heartbeat(
    epoch: int = 0, topology: Topology | None = None, member: str = "m"
) -> StreamsGroupHeartbeatRequest:
    if epoch != 0:
        return StreamsGroupHeartbeatRequest("g", member, epoch)
    return StreamsGroupHeartbeatRequest(
        "g", member, 0, rebalance_timeout_ms=10_000, topology=topology or counting(),
        process_id=member, active_tasks=[], standby_tasks=[], warmup_tasks=[],
    )  # fmt: skip


class Streams(CoreHost):
    """A broker with the topic "lines", which has three partitions, and a connected client."""

    def __init__(self, directory: Path, **settings: str) -> None:
        super().__init__(directory, **{**AT_ONCE, **settings})
        self.create("lines", 3)
        self.connect(1)

    def beat(self, *fields: Any, **more: Any) -> Any:
        """Send a heartbeat. Gives: the response. The first heartbeat makes the worker load the code
        of streams groups.
        """
        before = len(self.answers[1])
        self.ask(1, heartbeat(*fields, **more), 0)
        if len(self.answers[1]) == before:
            self.finish_work()
        return self.answers[1][-1]

    def partitions(self, *names: str) -> list[int]:
        return [len(self.broker.topics.partitions_of(name)) for name in names]

    def allow(self, operation: Operation, kind: ResourceType, name: str) -> None:
        authorizer = self.parts.access.authorizer
        assert authorizer is not None
        acl = Acl(
            kind, name, PatternType.LITERAL, "User:ANONYMOUS", "*", operation, Permission.ALLOW
        )
        authorizer.add({uuid.uuid4(): acl})


@pytest.fixture
def host(tmp_path: Path) -> Streams:
    return Streams(tmp_path)


def statuses(answer: Any) -> list[int]:
    return [status.status_code for status in answer.status]


def detail(answer: Any) -> str:
    (status,) = answer.status
    return str(status.status_detail)


def test_internal_topics_are_created_after_the_heartbeats_response(host: Streams) -> None:
    answer = host.beat(0, counting(cleanup_policy="compact", repartition=5))
    assert statuses(answer) == [Status.MISSING_INTERNAL_TOPICS]
    assert host.partitions("log", "words") == [5, 5]
    made = host.broker.metadata.topic("log")
    assert made is not None and made.configs == {"cleanup.policy": "compact"}
    assert not made.internal, "clients may delete the topics like any other"
    after = host.beat(2)
    assert (after.member_epoch, after.status) == (3, [])
    assert {row.subtopology_id: row.partitions for row in after.active_tasks} == {
        "0": [0, 1, 2], "1": [0, 1, 2, 3, 4],
    }  # fmt: skip


def test_a_failed_creation_of_a_topic_is_explained_and_repeated_later(host: Streams) -> None:
    first = host.beat(0, counting(cleanup_policy="burn"))
    assert "cleanup.policy" not in detail(first)
    assert host.partitions("log", "words") == [0, 3], "one error does not affect the others"
    explained = host.beat(2)
    assert statuses(explained) == [Status.MISSING_INTERNAL_TOPICS]
    assert "log: " in detail(explained) and "cleanup.policy" in detail(explained)
    host.tick(2 * HEARTBEAT_MS)
    assert "cleanup.policy" not in detail(host.beat(3)), "it was tried again after this answer"
    assert "cleanup.policy" in detail(host.beat(3))


def test_a_topic_whose_name_collides_in_metrics_is_not_created(host: Streams) -> None:
    """As in Apache Kafka, my.log and my_log would have the same name in metrics."""
    host.create("my_log", 1)
    host.beat(0, counting(changelog="my.log"))
    assert host.partitions("my.log", "words") == [0, 3]
    assert "my_log" in detail(host.beat(2))


def test_of_two_names_that_differ_by_a_dot_alone_one_is_made(host: Streams) -> None:
    logs = [TopicInfo(name, 0, 0, []) for name in ("my.log", "my_log")]
    host.beat(0, Topology(0, [Subtopology("0", ["lines"], [], logs, [], [], [])]))
    assert host.partitions("my.log", "my_log") == [3, 0]
    assert "my.log" in detail(host.beat(2))


def test_internal_topics_with_too_many_partitions_are_not_created(host: Streams) -> None:
    host.beat(0, counting(repartition=MOST_PARTITIONS_AT_ONCE + 1))
    assert host.partitions("log", "words") == [0, 0]
    assert "more than" in detail(host.beat(2))


def test_internal_topics_count_for_the_quota_of_their_client(host: Streams) -> None:
    """The topics are created even if the client exceeds the quota. The client's next change of
    topics is then refused (KIP-599).
    """
    host.broker.quotas.set({(("client-id", "tests"),): {"controller_mutation_rate": 2.0}})
    host.beat(0, counting(repartition=30))
    assert host.partitions("log", "words") == [30, 30]
    request = CreateTopicsRequest([CreatableTopic("more", 1, 1, [], [])], 1000, False)
    host.ask(1, request, 7)
    host.finish_work()
    assert host.answers[1][-1].topics[0].error_code == Code.THROTTLING_QUOTA_EXCEEDED


def test_a_full_disk_is_explained(host: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.parts.disk_space, "reserve", lambda count: False)
    host.beat()
    assert host.partitions("log", "words") == [0, 0]
    assert "disk is full" in detail(host.beat(2))


@pytest.mark.parametrize("name", ["__consumer_offsets", "a b", "..", "x" * 250])
def test_names_that_no_topic_may_have_are_refused(host: Streams, name: str) -> None:
    written = Topology(0, [Subtopology("0", ["lines"], [], [], [name], [], [])])
    read = Topology(0, [Subtopology("0", [], [], [], [], [TopicInfo(name, 1, 0, [])], [])])
    for topology in (counting(name), counting(changelog=name), written, read):
        answer = host.beat(0, topology)
        assert (answer.error_code, answer.status) == (Code.STREAMS_INVALID_TOPOLOGY, [])
    assert host.partitions("words") == [0]


def test_without_the_feature_there_are_no_streams_groups(host: Streams) -> None:
    off = UpdateFeaturesRequest(1000, [FeatureUpdateKey("streams.version", 0, False, 3)])
    host.call(1, off, 1)
    assert host.call(1, heartbeat(), 0).error_code == Code.UNSUPPORTED_VERSION
    described = host.call(1, StreamsGroupDescribeRequest(["g"]), 0)
    assert [row.error_code for row in described.groups] == [Code.UNSUPPORTED_VERSION]


def test_an_emulated_kafka_3_9_closes_the_connection_on_a_streams_heartbeat(tmp_path: Path) -> None:
    host = Streams(tmp_path, barnabas_emulate="3.9")
    host.ask(1, heartbeat(), 0)
    assert 1 in host.closed


def test_settings_of_a_group_hold_from_its_next_heartbeat(host: Streams) -> None:
    assert host.beat().heartbeat_interval_ms == HEARTBEAT_MS
    changed = [AlterableConfig("streams.heartbeat.interval.ms", 0, "7000")]
    for config in (
        AlterableConfig("streams.num.standby.replicas", 0, "3"),
        AlterableConfig("streams.session.timeout.ms", 0, "1000"),
        AlterableConfig("streams.initial.rebalance.delay.ms", 0, "-1"),
    ):
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(32, "g", [config])])
        assert host.call(1, request, 1).responses[0].error_code == Code.INVALID_CONFIG
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(32, "g", changed)])
    assert host.call(1, request, 1).responses[0].error_code == Code.NONE
    assert host.beat(2).heartbeat_interval_ms == 7_000


# --- rights -------------------------------------------------------------------------------------


def test_a_member_needs_rights_on_the_group_and_the_topologys_topics(tmp_path: Path) -> None:
    host = Streams(tmp_path, **SECURED)
    assert host.call(1, heartbeat(), 0).error_code == Code.GROUP_AUTHORIZATION_FAILED
    host.allow(Operation.READ, GROUP, "g")
    for name in ("lines", "words", "log"):
        refused = host.call(1, heartbeat(), 0)
        assert (refused.error_code, refused.status) == (Code.TOPIC_AUTHORIZATION_FAILED, [])
        host.allow(Operation.DESCRIBE, TOPIC, name)
    assert host.beat().error_code == Code.NONE
    invalid = host.beat(0, counting("a b"))
    assert invalid.error_code == Code.STREAMS_INVALID_TOPOLOGY


@pytest.mark.parametrize("whole", [True, False])
def test_internal_topics_that_the_client_may_not_create_are_not_created(
    tmp_path: Path, whole: bool
) -> None:
    host = Streams(tmp_path, **SECURED)
    host.allow(Operation.READ, GROUP, "g")
    for name in ("lines", "words", "log"):
        host.allow(Operation.DESCRIBE, TOPIC, name)
    host.allow(Operation.CREATE, TOPIC, "words")
    assert "may not create log" in detail(host.beat())
    assert host.partitions("log", "words") == [0, 0]
    host.allow(Operation.CREATE, CLUSTER if whole else TOPIC, "kafka-cluster" if whole else "log")
    assert "may not create" not in detail(host.beat(2))
    assert host.partitions("log", "words") == [3, 3]


def test_a_group_is_described_only_with_rights_on_it(tmp_path: Path) -> None:
    host = Streams(tmp_path, **SECURED)
    host.allow(Operation.READ, GROUP, "g")
    for name in ("lines", "words", "log"):
        host.allow(Operation.DESCRIBE, TOPIC, name)
    host.beat()
    (row,) = host.call(1, StreamsGroupDescribeRequest(["g"]), 0).groups
    assert (row.error_code, len(row.members)) == (Code.NONE, 1)
    hidden = Streams(tmp_path / "other", **SECURED)
    hidden.allow(Operation.DESCRIBE, GROUP, "h")
    refused = hidden.call(1, StreamsGroupDescribeRequest(["g", "h"]), 0).groups
    assert {row.group_id: row.error_code for row in refused} == {
        "g": Code.GROUP_AUTHORIZATION_FAILED, "h": Code.GROUP_ID_NOT_FOUND,
    }  # fmt: skip
