"""The settings, users and features that Apache Kafka gets in a hand-over, for each of its
versions.
"""

from __future__ import annotations

import uuid

import pytest
from helpers.admin_host import NOW_MS
from helpers.graduation import CREDENTIAL, fill, new_disk, opened, planned
from sim.disk import SimDisk

from barnabas.broker.settings.features import GROUP_VERSION, TRANSACTION_VERSION

HOUR_MS = 3_600_000
LONG_MAX = 2**63 - 1


@pytest.fixture(scope="module")
def disk() -> SimDisk:
    disk = new_disk()
    fill(disk)
    return disk


def test_settings_are_handed_over_unchanged(disk: SimDisk) -> None:
    plan = planned(disk, "3.9")
    assert plan.topic_configs["orders"] == {"retention.ms": "-1"}
    assert plan.topic_configs["events"] == {
        "segment.bytes": "100000", "message.downconversion.enable": "false",
    }  # fmt: skip
    assert plan.topic_configs["__transaction_state"]["cleanup.policy"] == "compact"
    assert plan.broker_configs == {"log.retention.ms": "864000000"}
    assert plan.broker_default_configs == {"log.cleaner.backoff.ms": "1000"}
    assert plan.scram_credentials == {("alice", 1): CREDENTIAL}
    assert plan.notes == []


def test_min_insync_replicas_above_one_is_named_in_the_notes(disk: SimDisk) -> None:
    (note,) = planned(disk, "3.9", {"min.insync.replicas": "2"}).notes
    assert note.startswith("min.insync.replicas of the topic events, the topic orders is above 1")
    (note,) = planned(disk, "3.9", min_insync_replicas="2").notes
    assert note.startswith("min.insync.replicas of all brokers is above 1")


@pytest.mark.parametrize("version", ["3.9", "4.0", "4.3"])
def test_settings_of_barnabas_are_left_out_with_a_note(disk: SimDisk, version: str) -> None:
    whole = "barnabas.transactions.whole"
    plan = planned(disk, version, {whole: "true"}, barnabas_transactions_whole="true")
    assert all(whole not in configs for configs in plan.topic_configs.values())
    assert whole not in plan.broker_default_configs
    notes = [note for note in plan.notes if note.startswith(whole)]
    assert any("of the topic orders is left out" in note for note in notes)
    assert any("of the broker's defaults is left out" in note for note in notes)


def test_an_extra_topic_setting_does_not_change_own_values_and_internal_topics(
    disk: SimDisk,
) -> None:
    configs = planned(disk, "3.9", {"retention.ms": "5"}).topic_configs
    assert configs["orders"]["retention.ms"] == "-1"
    assert configs["events"]["retention.ms"] == "5"
    assert "retention.ms" not in configs["__transaction_state"]


def test_defaults_that_differ_from_kafkas_become_cluster_wide_settings(disk: SimDisk) -> None:
    """The default of message.timestamp.after.max.ms is an hour in Apache Kafka since 4.0
    (KIP-1030), while this broker has no limit by default.
    """
    settings = {"log_retention_hours": "1", "log_segment_bytes": "1000"}
    of_3_9 = planned(disk, "3.9", **settings).broker_default_configs
    assert of_3_9["log.retention.ms"] == str(HOUR_MS)
    assert of_3_9["log.segment.bytes"] == "1000"
    assert "log.message.timestamp.after.max.ms" not in of_3_9
    plan = planned(disk, "4.3", **settings)
    assert plan.broker_default_configs["log.message.timestamp.after.max.ms"] == str(LONG_MAX)
    assert plan.broker_default_configs["log.segment.bytes"] == str(1 << 20)
    assert any("segment.bytes of the broker's defaults is 1048576" in text for text in plan.notes)


def test_settings_that_kafka_4_refuses_are_removed_or_changed_with_a_note(disk: SimDisk) -> None:
    plan = planned(disk, "4.3")
    assert plan.topic_configs["events"] == {"segment.bytes": str(1 << 20)}
    assert len(plan.notes) == 2
    assert any("message.downconversion.enable of the topic events" in text for text in plan.notes)
    assert any("segment.bytes of the topic events is 1048576" in text for text in plan.notes)


def test_the_deprecated_timestamp_bound_becomes_the_two_newer_ones() -> None:
    disk = new_disk()
    fill(disk)
    broker = opened(disk)
    broker.topics.create_topic(
        "timed",
        1,
        {"message.timestamp.difference.max.ms": "500", "message.timestamp.after.max.ms": "70"},
        topic_id=uuid.UUID(int=99),
        now_ms=NOW_MS,
    )
    broker.close_logs(NOW_MS)
    assert planned(disk, "4.3").topic_configs["timed"] == {
        "message.timestamp.before.max.ms": "500", "message.timestamp.after.max.ms": "70",
    }  # fmt: skip


def test_feature_levels_are_those_of_kafkas_version_and_at_most_the_brokers() -> None:
    disk = new_disk()
    fill(disk)
    assert planned(disk, "3.9").features == {"metadata.version": 21}
    of_4_3 = planned(disk, "4.3").features
    assert (of_4_3["metadata.version"], of_4_3[TRANSACTION_VERSION]) == (30, 2)
    opened(disk, barnabas_features="transaction.version=0,group.version=0").close_logs(NOW_MS)
    features = planned(disk, "4.3").features
    assert TRANSACTION_VERSION not in features and GROUP_VERSION not in features


def test_with_eligible_leader_replicas_min_insync_replicas_is_cluster_wide() -> None:
    """With KIP-966 brokers cannot override min.insync.replicas, and the cluster's value is always
    set.
    """
    disk = new_disk()
    fill(disk)
    assert "min.insync.replicas" not in planned(disk, "3.9").broker_default_configs
    assert planned(disk, "4.3").broker_default_configs["min.insync.replicas"] == "1"
    broker = opened(disk)
    broker.topics.set_broker_configs({"min.insync.replicas": "2"})
    broker.close_logs(NOW_MS)
    plan = planned(disk, "4.3")
    assert plan.broker_default_configs["min.insync.replicas"] == "2"
    assert plan.broker_configs == {}
    assert planned(disk, "4.0").broker_configs == {"min.insync.replicas": "2"}
