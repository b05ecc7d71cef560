"""A hand-over and a way back that are killed, or lose power, at every step: the directory is either
ours, and starts as it was, or Kafka's, with all that it needs.
"""

from __future__ import annotations

import copy
import uuid

import pytest
from helpers.admin_host import NOW_MS, CountedIds
from helpers.graduation import (
    DATA,
    NODE_ID,
    config_of,
    fill,
    flush,
    graduate,
    new_disk,
    opened,
    planned,
    run_kafka,
)
from sim.disk import Crash, SimDisk

from barnabas.broker.graduation.bootstrap import read_bootstrap
from barnabas.broker.graduation.bring_back import BringBackReport, bring_back, merged
from barnabas.broker.graduation.survey import GraduationError
from barnabas.broker.kafka_records import (
    CONFIG,
    PARTITION,
    PARTITION_CHANGE,
    REMOVE_TOPIC,
    TOPIC,
    KafkaRecord,
)
from barnabas.broker.opening import open_broker
from barnabas.storage.checkpoints import (
    CLEAN_SHUTDOWN_NAME,
    PARTITION_METADATA_NAME,
    RECOVERY_POINT_NAME,
    REPLICATION_NAME,
    decode_epochs,
    decode_offsets,
    decode_partition_metadata,
    encode_partition_metadata,
)
from barnabas.storage.graduated import is_graduated
from barnabas.storage.log_directory import LogDirectoryError

NEW_ID = uuid.UUID(int=0xABC)
TOPICS = ["__transaction_state", "events", "orders"]


@pytest.fixture(scope="module")
def stopped() -> SimDisk:
    """A directory of ours, stopped; what Kafka left there when it ran before is in it."""
    disk = new_disk()
    fill(disk)
    disk.mkdir(f"{DATA}/__cluster_metadata-0")
    disk.write_atomic(f"{DATA}/bootstrap.checkpoint", b"of an earlier cluster")
    disk.fsync_dir(DATA)
    return disk


@pytest.fixture(scope="module")
def after_kafka(stopped: SimDisk) -> SimDisk:
    """The same, handed over, after Kafka made a topic, deleted one and changed a setting."""
    disk = copy.deepcopy(stopped)
    graduate(disk)
    orders = read_bootstrap(disk, f"{DATA}/bootstrap.checkpoint").topic_ids["orders"]
    run_kafka(
        disk,
        [
            KafkaRecord(REMOVE_TOPIC, {"topic_id": orders}),
            KafkaRecord(TOPIC, {"name": "new", "topic_id": NEW_ID}),
            partition(0, NEW_ID, leader_epoch=40),
            KafkaRecord(CONFIG, {"resource_type": 2, "resource_name": "new",
                                 "name": "retention.ms", "value": "1000"}),
        ],
    )  # fmt: skip
    for index in (0, 1):
        disk.rename(f"{DATA}/orders-{index}", f"{DATA}/orders-{index}.{'0' * 32}-delete")
    disk.mkdir(f"{DATA}/new-0")
    metadata = encode_partition_metadata(NEW_ID)
    disk.write_atomic(f"{DATA}/new-0/{PARTITION_METADATA_NAME}", metadata)
    disk.fsync_dir(DATA)
    return disk


def partition(index: int, topic_id: uuid.UUID, *, leader_epoch: int = 0) -> KafkaRecord:
    return KafkaRecord(
        PARTITION,
        {
            "partition_id": index, "topic_id": topic_id, "replicas": [NODE_ID], "isr": [NODE_ID],
            "removing_replicas": [], "adding_replicas": [], "leader": NODE_ID,
            "leader_epoch": leader_epoch, "partition_epoch": 0, "directories": [NEW_ID],
        },
    )  # fmt: skip


def crashes(disk: SimDisk, what: object, *, lose_power: bool) -> object:
    """The disk after each crash amid `what`, and whether it came; the last is after its end."""
    for steps in range(1000):
        copied = copy.deepcopy(disk)
        copied.losses = 0  # the machine's power, not a copy of the disk
        copied.crash_in(steps)
        try:
            what(copied)  # type: ignore[operator]
        except Crash:
            is_done = False
        else:
            is_done = True
        if lose_power:
            copied.lose_power()
        else:
            copied.kill()
        yield copied, is_done
        if is_done:
            return


def brought_back(disk: SimDisk) -> BringBackReport:
    return bring_back(disk, DATA, lambda path: flush(disk, path))


def topics_at_start(disk: SimDisk) -> list[str]:
    broker = opened(disk)
    assert broker.metadata.broker_default_configs == {"log.cleaner.backoff.ms": "1000"}
    names = sorted(broker.metadata.topics)
    assert broker.logs.offline == {}
    broker.close_logs(NOW_MS)
    return names


def check_files(disk: SimDisk) -> None:
    """Files that Kafka does not start without, or not with half of them."""
    for name in ("orders-0", "events-0", "__transaction_state-0"):
        if disk.exists(f"{DATA}/{name}/leader-epoch-checkpoint"):
            decode_epochs(disk.read(f"{DATA}/{name}/leader-epoch-checkpoint"))
        decode_partition_metadata(disk.read(f"{DATA}/{name}/{PARTITION_METADATA_NAME}"))
    for name in (RECOVERY_POINT_NAME, REPLICATION_NAME):
        decode_offsets(disk.read(f"{DATA}/{name}"))
    assert disk.exists(f"{DATA}/{CLEAN_SHUTDOWN_NAME}")


@pytest.mark.parametrize("lose_power", [False, True])
def test_a_hand_over_that_is_cut_short(stopped: SimDisk, lose_power: bool) -> None:
    states = []
    for disk, is_done in crashes(stopped, graduate, lose_power=lose_power):
        states.append(is_graduated(disk, DATA))
        if states[-1]:
            image = read_bootstrap(disk, f"{DATA}/bootstrap.checkpoint")
            assert sorted(image.topic_ids) == TOPICS
            assert (
                "process.roles=broker,controller" in disk.read(f"{DATA}/server.properties").decode()
            )
            assert not disk.exists(f"{DATA}/__cluster_metadata-0")
            check_files(disk)
            with pytest.raises(LogDirectoryError, match="barnabas take-over /data"):
                opened(disk)
        else:
            assert not is_done
            assert topics_at_start(disk) == TOPICS
            planned(disk)  # it may be handed over now
    assert states[0] is False and states[-1] is True
    assert len(states) > 8


@pytest.mark.parametrize("lose_power", [False, True])
def test_a_way_back_that_is_cut_short(after_kafka: SimDisk, lose_power: bool) -> None:
    states = []
    back = ["__transaction_state", "events", "new"]
    for disk, is_done in crashes(after_kafka, brought_back, lose_power=lose_power):
        states.append(is_graduated(disk, DATA))
        if states[-1]:
            assert not is_done
            assert disk.exists(f"{DATA}/__cluster_metadata-0/{0:020}.log")
            brought_back(disk)
        assert topics_at_start(disk) == back
    assert states[0] is True and states[-1] is False
    assert len(states) > 15


def test_what_was_done_under_kafka_is_there(after_kafka: SimDisk) -> None:
    disk = copy.deepcopy(after_kafka)
    report = brought_back(disk)
    assert (report.made, report.deleted, report.was_clean) == (["new"], ["orders"], True)
    assert (report.users, report.quotas, report.configured) == (0, 0, [])
    broker = opened(disk)
    assert broker.metadata.topics["new"].configs == {"retention.ms": "1000"}
    assert broker.metadata.topics["new"].topic_id == NEW_ID
    assert broker.metadata.topics["events"].configs == {
        "segment.bytes": "100000", "message.downconversion.enable": "false",  # as it was here
    }  # fmt: skip
    assert broker.metadata.broker_default_configs == {"log.cleaner.backoff.ms": "1000"}
    assert broker.logs.leader_epoch == 41  # above all that Kafka told its clients
    broker.close_logs(NOW_MS)


def test_kafka_that_never_started_leaves_all_as_it_was(stopped: SimDisk) -> None:
    disk = copy.deepcopy(stopped)
    before = opened(copy.deepcopy(disk)).metadata
    graduate(disk)
    brought_back(disk)
    after = open_broker(config_of(), CountedIds(), disk=disk, now_ms=NOW_MS).metadata
    assert after.topics.keys() == before.topics.keys()
    assert after.scram_credentials == before.scram_credentials
    assert after.acls == before.acls
    assert after.client_quotas == before.client_quotas


@pytest.mark.parametrize(
    ("ours", "given", "now", "expected"),
    [
        ({"a": 1}, {"a": 1}, {"a": 2}, {"a": 2}),  # changed under Kafka
        ({"a": 1}, {"a": 9}, {"a": 9}, {"a": 1}),  # changed for Kafka alone
        ({"a": 1}, {"a": 1}, {}, {}),  # removed under Kafka
        ({"a": 1}, {}, {}, {"a": 1}),  # unknown to Kafka
        ({}, {"a": 1}, {"a": 1}, {}),  # given to Kafka alone
        ({}, {}, {"a": 1}, {"a": 1}),  # made under Kafka
        ({"a": 1}, None, {"b": 2}, {"b": 2}),  # what was given is not known
    ],
)
def test_what_comes_back_is_what_was_changed(
    ours: dict[str, int],
    given: dict[str, int] | None,
    now: dict[str, int],
    expected: dict[str, int],
) -> None:
    assert merged(ours, given, now) == expected


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"isr": [9]}, r"events-0 is in sync on \(9,\), not on 3"),
        ({"isr": [9, NODE_ID], "leader": NODE_ID}, None),
    ],
)
def test_partitions_that_are_not_here_in_sync_do_not_come_back(
    stopped: SimDisk, change: dict[str, object], why: str | None
) -> None:
    disk = copy.deepcopy(stopped)
    graduate(disk)
    events = read_bootstrap(disk, f"{DATA}/bootstrap.checkpoint").topic_ids["events"]
    fields = {"partition_id": 0, "topic_id": events, "isr": None, "replicas": None, "leader": -2}
    run_kafka(disk, [KafkaRecord(PARTITION_CHANGE, {**fields, **change})])
    if why is None:
        brought_back(disk)
        broker = opened(disk)
        assert broker.logs.leader_epoch == 2  # a leader that is named begins an epoch: 1
        broker.close_logs(NOW_MS)
    else:
        with pytest.raises(GraduationError, match=why):
            brought_back(disk)
        assert is_graduated(disk, DATA)


def test_a_partition_without_its_directory_does_not_come_back(after_kafka: SimDisk) -> None:
    disk = copy.deepcopy(after_kafka)
    disk.rmtree(f"{DATA}/new-0")
    with pytest.raises(GraduationError, match="new-0 has no directory"):
        brought_back(disk)
