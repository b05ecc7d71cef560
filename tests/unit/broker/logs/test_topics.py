"""The registry of topics: partitions, leader epochs, and internal topics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.admin_host import NOW_MS, AdminHost

from barnabas.broker.logs import topics as topics_module
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.slices import run_through
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.topic_partition import TopicPartition


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[TopicRegistry]:
    host = AdminHost(tmp_path, offsets_topic_num_partitions="3")
    yield host.broker.topics
    host.close()


def test_partitions_that_do_not_exist_are_none(registry: TopicRegistry) -> None:
    registry.create_topic("t", 2, {}, now_ms=NOW_MS)
    log = registry.partition("t", 1)
    assert log is not None
    assert (log.topic, log.partition) == ("t", 1)
    assert [registry.partition("t", index) for index in (-1, 2)] == [None, None]
    assert registry.partition("u", 0) is None
    at = [("u", 0), ("t", 1), ("t", -1), ("t", 2), ("u", 1), ("t", 1)]
    assert registry.logs_at(at) == [None, log, None, None, None, log]
    assert registry.logs_of("t") == registry.partitions_of("t")
    assert [registry.partition_exists("t", index) for index in (0, 1, 2)] == [True, True, False]


def test_a_missing_and_an_offline_partition_have_different_error_codes(
    registry: TopicRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KafkaError) as refused:
        registry.require_partition("t", 0)
    assert refused.value.code is Code.UNKNOWN_TOPIC_OR_PARTITION
    monkeypatch.setitem(registry.logs.offline, ("t", 0), object())
    assert registry.missing_code("t", 0) is Code.KAFKA_STORAGE_ERROR
    assert registry.partition_exists("t", 0)


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-1, Code.NONE),
        (0, Code.NONE),
        (1, Code.UNKNOWN_LEADER_EPOCH),
        (-2, Code.FENCED_LEADER_EPOCH),
    ],
)
def test_leader_epochs_fence(registry: TopicRegistry, epoch: int, code: Code) -> None:
    """A request whose epoch is below the leader epoch gets FENCED_LEADER_EPOCH; one whose epoch is
    above it gets UNKNOWN_LEADER_EPOCH (KIP-320).
    """
    registry.create_topic("t", 1, {}, now_ms=NOW_MS)
    try:
        registry.fenced_partition("t", 0, epoch)
        seen = Code.NONE
    except KafkaError as error:
        seen = error.code
    assert seen is code


def test_internal_topics_are_created_when_they_are_first_used(registry: TopicRegistry) -> None:
    assert OFFSETS_TOPIC not in registry
    assert registry.internal_partition_count(OFFSETS_TOPIC) == 3
    assert 0 <= registry.group_partition("g") < 3
    log = registry.internal_log(OFFSETS_TOPIC, 2, NOW_MS)
    assert log.config.is_compacted
    assert len(registry.partitions_of(OFFSETS_TOPIC)) == 3
    assert TRANSACTIONS_TOPIC not in registry


def test_cached_leader_epochs_follow_changes_of_the_topic(
    registry: TopicRegistry,
) -> None:
    """The epochs are cached until the topic grows or its leaders change."""
    registry.create_topic("t", 2, {}, now_ms=NOW_MS)
    registry.create_topic("u", 1, {}, now_ms=NOW_MS)
    assert (registry.leader_epochs("t"), registry.leader_epochs("u")) == ((0, 0), (0,))
    run_through(registry.add_partitions({"t": 4}, NOW_MS), NOW_MS)
    assert registry.leader_epochs("t") == (0, 0, 0, 0)
    registry.begin_leader_epoch([TopicPartition("t", 1), TopicPartition("t", 3)])
    epoch = registry.logs.leader_epoch
    assert epoch > 0
    assert registry.leader_epochs("t") == (0, epoch, 0, epoch)
    assert registry.leader_epochs("u") == (0,)
    registry.forget(["t"])
    registry.create_topic("t2", 1, {}, now_ms=NOW_MS)
    assert (registry.leader_epochs("t"), registry.leader_epochs("t2")) == ((), (0,))


def test_the_version_rises_when_a_topic_is_created_grows_or_is_deleted(
    registry: TopicRegistry,
) -> None:
    """Consumer groups match their topic patterns again whenever the version changes."""
    versions = [registry.version]
    registry.create_topic("t", 1, {}, now_ms=NOW_MS)
    versions.append(registry.version)
    run_through(registry.add_partitions({"t": 2}, NOW_MS), NOW_MS)
    versions.append(registry.version)
    registry.forget(["t"])
    versions.append(registry.version)
    assert versions == sorted(set(versions))


def test_a_topic_forgotten_is_unknown_at_once(registry: TopicRegistry) -> None:
    registry.create_topic("t", 2, {}, now_ms=NOW_MS)
    assert registry.leader_epochs("t") == (0, 0)
    rows = registry.forget(["t"])
    assert [(name, index) for name, index, _ in rows] == [("t", 0), ("t", 1)]
    assert "t" not in registry
    assert registry.leader_epochs("t") == ()


def configured(registry: TopicRegistry, name: str) -> list[int]:
    return [log.config.segment_bytes for log in registry.logs_of(name)]


def test_broker_settings_are_applied_to_many_logs_in_parts(
    registry: TopicRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics_module, "LOGS_CONFIGURED_AT_ONCE", 10)
    for number in range(20):
        registry.create_topic(f"t{number}", 1, {}, now_ms=NOW_MS)
    registry.create_topic("wide", 25, {"segment.bytes": "5000"}, now_ms=NOW_MS)
    registry.create_topic("grows", 12, {}, now_ms=NOW_MS)
    registry.create_topic("goes", 30, {}, now_ms=NOW_MS)
    registry.set_broker_configs({"log.segment.bytes": "4000"})
    sizes = [sum(configured(registry, f"t{number}")) for number in range(20)]
    assert 1 <= sizes.count(4000) <= 3, "a part of them at once"
    registry.set_broker_configs({"log.segment.bytes": "3000"})
    ticks = 0
    while registry.configuring is not None:
        if ticks == 10:
            registry.metadata.grow_topics({"grows": 14})
            list(registry._make_logs([registry.metadata.topics["grows"]], NOW_MS))
            registry.set_topic_configs("wide", {"segment.bytes": "6000"})
            registry.forget(["goes"])
        registry.on_tick()
        ticks += 1
    assert ticks >= 12
    assert [configured(registry, f"t{number}") for number in range(20)] == [[3000]] * 20
    assert configured(registry, "wide") == [6000] * 25
    assert configured(registry, "grows") == [3000] * 14


def test_changed_settings_are_applied_to_the_logs(registry: TopicRegistry) -> None:
    registry.create_topic("t", 1, {}, now_ms=NOW_MS)
    (log,) = registry.logs_of("t")
    registry.set_broker_default_configs({"log.segment.bytes": "3000"})
    assert log.config.segment_bytes == 3000
    registry.set_broker_configs({"log.segment.bytes": "4000"})
    assert log.config.segment_bytes == 4000
    registry.set_topic_configs("t", {"segment.bytes": "5000"})
    assert log.config.segment_bytes == 5000
