"""Settings of groups (KIP-848), compared with Apache Kafka 4.3 (`groups_have_settings`), and the
topics that consumer groups see.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from helpers.admin_host import NOW_MS, AdminHost

from barnabas.broker.groups.group_topics import GroupTopics, short_text
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.group_configs import (
    GroupConfigs,
    check_group_configs,
    group_overrides,
)
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


def test_settings_of_a_group_are_set_described_kept_and_removed(host: AdminHost) -> None:
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
    config = BrokerConfig.from_properties({})
    assert group_overrides(config, {SESSION: "50000", "later.setting": "1"}) == {SESSION: 50_000}


def test_stored_settings_outside_the_brokers_present_bounds_are_limited_to_them() -> None:
    config = BrokerConfig.from_properties({})
    texts = {"share.record.lock.duration.ms": "999999", "share.delivery.count.limit": "2"}
    assert group_overrides(config, texts) == {
        "share.record.lock.duration.ms": 60_000,
        "share.delivery.count.limit": 2,
    }
    assert group_overrides(config, {"share.record.lock.duration.ms": "1000"}) == {
        "share.record.lock.duration.ms": 15_000
    }


SHARE_DEFAULTS = {
    "share.assignment.interval.ms": "1000",
    "share.auto.offset.reset": "latest",
    "share.delivery.count.limit": "5",
    "share.heartbeat.interval.ms": "5000",
    "share.isolation.level": "read_uncommitted",
    "share.partition.max.record.locks": "2000",
    "share.record.lock.duration.ms": "30000",
    "share.renew.acknowledge.enable": "true",
    "share.session.timeout.ms": "45000",
}


def share_settings(host: AdminHost) -> dict[str, tuple[str, int]]:
    resource = DescribeConfigsResource(GROUP, "g", list(SHARE_DEFAULTS))
    result = host.call(DescribeConfigsRequest([resource], True), 4).results[0]
    return {row.name: (row.value, row.config_source) for row in result.configs}


def test_settings_of_share_groups_are_checked_as_in_apache_kafka(tmp_path: Path) -> None:
    """The expected responses are those of Apache Kafka 4.3 (`settings_of_share_groups`)."""
    host = AdminHost(
        tmp_path,
        group_share_min_record_lock_duration_ms="1000",
        group_share_min_session_timeout_ms="1000",
        group_share_min_heartbeat_interval_ms="500",
        group_share_assignment_interval_ms="0",
    )
    expected = {name: (text, 5) for name, text in SHARE_DEFAULTS.items()}
    expected["share.assignment.interval.ms"] = ("0", 4)
    assert share_settings(host) == expected
    for name, text, code in (
        ("share.auto.offset.reset", "earliest", Code.NONE),
        ("share.auto.offset.reset", "none", Code.INVALID_CONFIG),
        ("share.auto.offset.reset", "by_duration:PT1H", Code.NONE),
        ("share.auto.offset.reset", "by_duration:x", Code.INVALID_CONFIG),
        ("share.isolation.level", "read_committed", Code.NONE),
        ("share.isolation.level", "other", Code.INVALID_CONFIG),
        ("share.record.lock.duration.ms", "1500", Code.NONE),
        ("share.record.lock.duration.ms", "999", Code.INVALID_CONFIG),
        ("share.record.lock.duration.ms", "3600001", Code.INVALID_CONFIG),
        ("share.delivery.count.limit", "1", Code.INVALID_CONFIG),
        ("share.delivery.count.limit", "10", Code.NONE),
        ("share.delivery.count.limit", "11", Code.INVALID_CONFIG),
        ("share.partition.max.record.locks", "99", Code.INVALID_CONFIG),
        ("share.partition.max.record.locks", "100", Code.NONE),
        ("share.renew.acknowledge.enable", "false", Code.NONE),
        ("share.heartbeat.interval.ms", "500", Code.NONE),
        ("share.session.timeout.ms", "600", Code.INVALID_CONFIG),
    ):
        assert alter(host, (name, 0, text)) == code, (name, text)
        if code is Code.NONE:
            expected[name] = (text, 8)
    assert share_settings(host) == expected


def test_the_value_of_a_setting_is_the_group_s_own_or_the_broker_s(tmp_path: Path) -> None:
    host = AdminHost(tmp_path, group_share_delivery_count_limit="3")
    configs = GroupConfigs(host.broker.config, host.broker.metadata)
    name = "share.delivery.count.limit"
    assert configs.value("g", name) == 3
    assert configs.value("g", "share.isolation.level") == "read_uncommitted"
    assert alter(host, (name, 0, "4")) == Code.NONE
    assert (configs.value("g", name), configs.value("other", name)) == (4, 3)
    assert configs.overrides("g") is configs.overrides("g")
    assert alter(host, (name, 0, "5")) == Code.NONE
    assert configs.overrides("g") == {name: 5}
    assert alter(host, (name, 1, None)) == Code.NONE
    assert (configs.value("g", name), configs.overrides("g")) == (3, {})


def test_the_interval_of_consumer_groups_changes_at_run_time_unless_a_group_has_its_own(
    tmp_path: Path,
) -> None:
    host = AdminHost(tmp_path, group_consumer_assignment_interval_ms="7")
    configs = GroupConfigs(host.broker.config, host.broker.metadata)
    name = "consumer.assignment.interval.ms"
    assert configs.overrides("g") == {}
    assert alter(host, (name, 0, "5")) == Code.NONE
    host.broker.topics.set_broker_default_configs({f"group.{name}": "9"})
    assert configs.overrides("other") == {name: 9}
    assert configs.overrides("g") == {name: 5}
    host.broker.topics.set_broker_default_configs({})
    assert configs.overrides("other") == {}
    host.close()


def test_consumer_groups_see_topics_and_a_version_that_rises_with_changes(host: AdminHost) -> None:
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
    """Java's Uuid.toString uses base64 with the URL alphabet and without padding."""
    assert short_text(uuid.UUID(int=0)) == "A" * 22
    assert short_text(uuid.UUID(int=(1 << 128) - 1)) == "_" * 21 + "w"


def test_the_refusal_of_a_value_names_the_brokers_bounds() -> None:
    config = BrokerConfig.from_properties({})
    refusals = {
        "streams.num.standby.replicas": ("9", "group.streams.max.standby.replicas=2"),
        SESSION: (
            "1",
            "group.consumer.min.session.timeout.ms=45000, "
            "group.consumer.max.session.timeout.ms=60000",
        ),
    }
    for name, (text, bounds) in refusals.items():
        with pytest.raises(KafkaError) as refused:
            check_group_configs(config, {name: text})
        assert str(refused.value).endswith(f"do not allow it: {bounds}")
