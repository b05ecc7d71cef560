"""Settings of groups (KIP-848), by what Apache Kafka 4.3 answered (`groups_have_settings`), and the
topics that consumer groups see.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from helpers.admin_host import NOW_MS, AdminHost

from barnabas.broker.group_topics import GroupTopics, short_text
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.group_configs import check_group_configs, group_overrides
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

GROUP = 32
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


@pytest.fixture
def host(tmp_path: Path) -> AdminHost:
    return AdminHost(tmp_path)


def alter(host: AdminHost, *changes: tuple[str, int, str | None], name: str = "g") -> int:
    configs = [AlterableConfig(*change) for change in changes]
    resource = AlterConfigsResource(GROUP, name, configs)
    answer = host.call(IncrementalAlterConfigsRequest([resource]), 1)
    return int(answer.responses[0].error_code)


def reported(host: AdminHost, name: str = "g") -> dict[str, tuple[str, int]]:
    resource = DescribeConfigsResource(GROUP, name, [SESSION, HEARTBEAT])
    result = host.call(DescribeConfigsRequest([resource], True), 4).results[0]
    assert result.error_code == 0
    return {row.name: (row.value, row.config_source) for row in result.configs}


def test_settings_of_a_group_are_set_told_of_kept_and_removed(host: AdminHost) -> None:
    defaults = {SESSION: ("45000", 5), HEARTBEAT: ("5000", 5)}
    assert reported(host) == defaults
    assert alter(host, (HEARTBEAT, 0, "6000"), (SESSION, 0, "50000")) == Code.NONE
    changed = {SESSION: ("50000", 8), HEARTBEAT: ("6000", 8)}
    assert reported(host) == changed
    host.restart()
    assert reported(host) == changed
    assert reported(host, "other") == defaults
    assert alter(host, (HEARTBEAT, 1, None), (SESSION, 1, None)) == Code.NONE
    assert reported(host) == defaults
    host.restart()
    assert host.broker.metadata.group_configs == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (SESSION, "44999"),
        (SESSION, "60001"),
        (HEARTBEAT, "4999"),
        (HEARTBEAT, "15001"),
        (SESSION, "x"),
        ("no.such.key", "1"),
        ("consumer.assignment.interval.ms", "15001"),
    ],
)
def test_settings_that_may_not_be(host: AdminHost, name: str, value: str) -> None:
    assert alter(host, (name, 0, value)) == Code.INVALID_CONFIG


def test_a_group_has_a_name(host: AdminHost) -> None:
    assert alter(host, (SESSION, 0, "50000"), name="") == Code.INVALID_REQUEST


def test_a_heartbeat_is_shorter_than_a_session() -> None:
    config = BrokerConfig.from_properties({"group.consumer.min.session.timeout.ms": "5000"})
    with pytest.raises(KafkaError, match="not below") as raised:
        check_group_configs(config, {SESSION: "6000", HEARTBEAT: "6000"})
    assert raised.value.code is Code.INVALID_CONFIG
    check_group_configs(config, {SESSION: "6001", HEARTBEAT: "6000"})


def test_what_is_set_holds_as_numbers() -> None:
    assert group_overrides({SESSION: "50000", "later.setting": "1"}) == {SESSION: 50_000}


def test_consumer_groups_see_topics_and_hear_when_they_change(host: AdminHost) -> None:
    topics = GroupTopics(host.broker.topics, host.parts.access.of)
    version = topics.version
    topic = host.broker.topics.create_topic("t", 2, {}, now_ms=NOW_MS)
    assert topics.version > version
    assert topics.topic("t") == (topic.topic_id, 2)
    assert topics.name(topic.topic_id) == "t"
    version = topics.version
    for _ in host.broker.topics.add_partitions({"t": 3}, NOW_MS):
        pass
    assert (topics.version > version, topics.topic("t")) == (True, (topic.topic_id, 3))
    host.broker.topics.ensure_internal_topic(OFFSETS_TOPIC, NOW_MS)
    assert list(topics.names()) == ["t"]
    assert topics.topic("missing") is None and topics.name(uuid.UUID(int=9)) is None


def test_ids_are_written_in_22_letters_as_apache_kafka_does() -> None:
    """Uuid.toString: base64 of the URL alphabet, without padding."""
    assert short_text(uuid.UUID(int=0)) == "A" * 22
    assert short_text(uuid.UUID(int=(1 << 128) - 1)) == "_" * 21 + "w"
