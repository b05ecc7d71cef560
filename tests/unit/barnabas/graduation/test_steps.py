"""A hand-over and its reversal, with a kill or a power loss at every step: the directory is either
still a directory of Barnabas, which starts as before, or a directory of Kafka with everything that
Kafka needs.
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

from barnabas.daemon.opening import open_broker
from barnabas.graduation.bootstrap import encode_bootstrap, read_bootstrap
from barnabas.graduation.bring_back import BringBackReport, bring_back, merged
from barnabas.graduation.hand_over import HandOver
from barnabas.graduation.kafka_directory.kafka_metadata import OF_GROUP, values_of_checkpoint
from barnabas.graduation.kafka_directory.kafka_records import (
    ABORT,
    BEGIN,
    CONFIG,
    FEATURE_LEVEL,
    PARTITION,
    PARTITION_CHANGE,
    REMOVE_TOPIC,
    TOPIC,
    KafkaRecord,
    decode_record,
    encode_record,
)
from barnabas.graduation.survey import GraduationError
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.storage.directory.graduated import BOOTSTRAP_NAME, MARK_NAME, is_graduated
from barnabas.storage.files.checkpoints import (
    CLEAN_SHUTDOWN_NAME,
    MANIFEST_NAME,
    PARTITION_METADATA_NAME,
    RECOVERY_POINT_NAME,
    REPLICATION_NAME,
    decode_epochs,
    decode_offsets,
    decode_partition_metadata,
    encode_partition_metadata,
)
from barnabas.storage.log.log_directory import LogDirectoryError
from barnabas.storage.opening.last_run import LastRun, RunNote

NEW_ID = uuid.UUID(int=0xABC)
TOPICS = ["__transaction_state", "events", "orders"]


@pytest.fixture(scope="module")
def stopped() -> SimDisk:
    """A directory of Barnabas after a clean stop, which contains files from an earlier run of
    Kafka.
    """
    disk = new_disk()
    fill(disk)
    disk.mkdir(f"{DATA}/__cluster_metadata-0")
    disk.write_atomic(f"{DATA}/bootstrap.checkpoint", b"of an earlier cluster")
    disk.fsync_dir(DATA)
    return disk


@pytest.fixture(scope="module")
def after_kafka(stopped: SimDisk) -> SimDisk:
    """Return the directory after the hand-over. Apache Kafka has then created a topic, deleted
    another and changed a setting.
    """
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
            *(
                KafkaRecord(CONFIG, {"resource_type": OF_GROUP, "resource_name": "later",
                                     "name": name, "value": value})
                for name, value in (("share.auto.offset.reset", "earliest"),
                                    ("share.session.timeout.ms", "soon"))
            ),
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
    """Yield, for each step of `what`, the disk after a crash in this step, and False. At the end,
    yield the disk after the whole of `what`, and True.
    """
    for steps in range(1000):
        copied = copy.deepcopy(disk)
        copied.losses = 0  # treat the crash as a power loss, not as a copy of the disk
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
    return bring_back(disk, DATA, config_of(), lambda path: flush(disk, path))


def topics_at_start(disk: SimDisk) -> list[str]:
    """Start Barnabas on the directory, check its settings and logs, and stop it. Gives: its
    topics.
    """
    broker = opened(disk)
    assert broker.metadata.broker_default_configs == {"log.cleaner.backoff.ms": "1000"}
    names = sorted(broker.metadata.topics)
    assert broker.logs.offline == {}
    broker.close_logs(NOW_MS)
    return names


def check_files(disk: SimDisk) -> None:
    """Check the files that Apache Kafka needs when it starts."""
    for name in ("orders-0", "events-0", "__transaction_state-0"):
        if disk.exists(f"{DATA}/{name}/leader-epoch-checkpoint"):
            decode_epochs(disk.read(f"{DATA}/{name}/leader-epoch-checkpoint"))
        decode_partition_metadata(disk.read(f"{DATA}/{name}/{PARTITION_METADATA_NAME}"))
    for name in (RECOVERY_POINT_NAME, REPLICATION_NAME):
        decode_offsets(disk.read(f"{DATA}/{name}"))
    assert disk.exists(f"{DATA}/{CLEAN_SHUTDOWN_NAME}")


@pytest.mark.parametrize("lose_power", [False, True])
def test_a_crash_in_a_hand_over_leaves_a_whole_directory_of_barnabas_or_kafka(
    stopped: SimDisk, lose_power: bool
) -> None:
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
            planned(disk)  # a new hand-over is allowed
    assert states[0] is False and states[-1] is True
    assert len(states) > 8


@pytest.mark.parametrize("lose_power", [False, True])
def test_a_crash_in_a_take_over_leaves_a_whole_directory_of_barnabas_or_kafka(
    after_kafka: SimDisk, lose_power: bool
) -> None:
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


def test_changes_made_under_kafka_are_taken_over(after_kafka: SimDisk) -> None:
    disk = copy.deepcopy(after_kafka)
    report = brought_back(disk)
    assert (report.made, report.deleted, report.was_clean) == (["new"], ["orders"], True)
    assert (report.users, report.quotas, report.configured) == (0, 0, [])
    broker = opened(disk)
    assert broker.metadata.topics["new"].configs == {"retention.ms": "1000"}
    assert broker.metadata.topics["new"].topic_id == NEW_ID
    assert broker.metadata.topics["events"].configs == {
        "segment.bytes": "100000", "message.downconversion.enable": "false",  # the value before
    }  # fmt: skip
    assert broker.metadata.broker_default_configs == {"log.cleaner.backoff.ms": "1000"}
    assert broker.metadata.group_configs["later"] == {"share.auto.offset.reset": "earliest"}
    assert any("share.session.timeout.ms" in one for one in report.refused)
    assert broker.logs.leader_epoch == 41  # above all epochs that Kafka gave to clients
    broker.close_logs(NOW_MS)


@pytest.mark.parametrize("is_clean", [True, False])
def test_what_was_noted_about_logs_before_kafka_wrote_to_them_is_gone(
    after_kafka: SimDisk, is_clean: bool
) -> None:
    """The next start must not trust what was noted before the hand-over. After a kill of Apache
    Kafka, the gaps of its compaction would count as damage, and a flush journal would overwrite its
    records.
    """
    disk = copy.deepcopy(after_kafka)
    if not is_clean:
        disk.unlink(f"{DATA}/{CLEAN_SHUTDOWN_NAME}")
    RunNote(disk, DATA).write()
    ours = [
        f"barnabas-flush-{1:010}.journal",
        f"new-0/{MANIFEST_NAME}",
        f"events-0/{MANIFEST_NAME}",
    ]
    for name in ours:
        disk.write_atomic(f"{DATA}/{name}", b"before Kafka")
    assert brought_back(disk).was_clean is is_clean
    assert [name for name in ours if disk.exists(f"{DATA}/{name}")] == []
    assert RunNote(disk, DATA).last_run() is (LastRun.CLEAN if is_clean else LastRun.FOREIGN)


def test_a_take_over_before_kafkas_first_start_restores_the_metadata(stopped: SimDisk) -> None:
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
        ({"a": 1}, {"a": 1}, {"a": 2}, {"a": 2}),  # changed while Kafka ran
        ({"a": 1}, {"a": 9}, {"a": 9}, {"a": 1}),  # changed only for Kafka
        ({"a": 1}, {"a": 1}, {}, {}),  # removed while Kafka ran
        ({"a": 1}, {}, {}, {"a": 1}),  # unknown to Kafka
        ({}, {"a": 1}, {"a": 1}, {}),  # added only for Kafka
        ({}, {}, {"a": 1}, {"a": 1}),  # created while Kafka ran
        ({"a": 1}, None, {"b": 2}, {"b": 2}),  # the values given to Kafka are unknown
    ],
)
def test_a_take_over_merges_only_what_changed_under_kafka(
    ours: dict[str, int],
    given: dict[str, int] | None,
    now: dict[str, int],
    expected: dict[str, int],
) -> None:
    """`ours` is the value before the hand-over, `given` the value that Kafka got, `now` the value
    that Kafka has at the end.
    """
    assert merged(ours, given, now) == expected


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"isr": [9]}, r"events-0 is in sync on \(9,\), not on 3"),
        ({"isr": [9, NODE_ID], "leader": NODE_ID}, None),
    ],
)
def test_a_partition_that_is_not_in_sync_on_this_node_is_not_taken_over(
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
        assert broker.logs.leader_epoch == 2  # the partition's record begins leader epoch 1
        broker.close_logs(NOW_MS)
    else:
        with pytest.raises(GraduationError, match=why):
            brought_back(disk)
        assert is_graduated(disk, DATA)


def test_a_partition_without_its_directory_is_not_taken_over(after_kafka: SimDisk) -> None:
    disk = copy.deepcopy(after_kafka)
    disk.rmtree(f"{DATA}/new-0")
    with pytest.raises(GraduationError, match="new-0 has no directory"):
        brought_back(disk)


# --- Kafka's metadata log is not whole ----------------------------------------------------------


def test_a_take_over_from_kafka_killed_during_its_first_start_keeps_all_topics(
    stopped: SimDisk,
) -> None:
    """Apache Kafka 4.3 left such logs when its heap was too small, and when it was killed some
    seconds after its start. The first metadata log is empty, or has an unfinished or an aborted
    transaction.
    """
    disk = copy.deepcopy(stopped)
    graduate(disk)
    bootstrap = values_of_checkpoint(disk, f"{DATA}/bootstrap.checkpoint")
    begin = encode_record(KafkaRecord(BEGIN, {}))
    abort = encode_record(KafkaRecord(ABORT, {}))
    logs: list[bytes | None] = [None, b""]
    for values in (
        [begin],
        [begin, *bootstrap[:3]],
        [begin, *bootstrap],
        [begin, *bootstrap, abort],
    ):
        logs.append(bytes(encode_batch([NewRecord(None, value, NOW_MS) for value in values])))
    for log in logs:
        cut_short = copy.deepcopy(disk)
        cut_short.mkdir(f"{DATA}/__cluster_metadata-0")
        if log is not None:
            cut_short.write_atomic(f"{DATA}/__cluster_metadata-0/{0:020}.log", log)
        report = brought_back(cut_short)
        assert (report.deleted, report.made, report.has_started) == ([], [], False)
        assert not is_graduated(cut_short, DATA)
        assert topics_at_start(cut_short) == TOPICS
        assert cut_short.exists(f"{DATA}/orders-0/{0:020}.log")


def test_a_take_over_needs_a_complete_metadata_log_or_bootstrap(
    stopped: SimDisk,
) -> None:
    disk = copy.deepcopy(stopped)
    graduate(disk)
    disk.mkdir(f"{DATA}/__cluster_metadata-0")
    whole = disk.read(f"{DATA}/bootstrap.checkpoint")
    for bootstrap in (b"", whole[: len(whole) // 2], whole[:-1]):
        disk.write_atomic(f"{DATA}/bootstrap.checkpoint", bootstrap)
        with pytest.raises(GraduationError, match="restore one of the two from a copy"):
            brought_back(disk)
        assert is_graduated(disk, DATA)


def test_a_metadata_log_that_was_lost_after_kafka_ran_does_not_come_back(
    after_kafka: SimDisk,
) -> None:
    """Without the metadata log, the topics and settings would be those at the hand-over, so an
    older retention time would apply.
    """
    directory = f"{DATA}/__cluster_metadata-0"
    log = f"{directory}/{0:020}.log"
    whole = after_kafka.read(log)
    for damage in ("directory", "log", b"", whole[:-1]):
        for stop in ("clean", "killed"):
            disk = copy.deepcopy(after_kafka)
            if stop == "killed":
                disk.unlink(f"{DATA}/{CLEAN_SHUTDOWN_NAME}")
            if damage == "directory":
                disk.rmtree(directory)
            elif isinstance(damage, bytes):
                disk.write_atomic(log, damage)
            else:
                disk.unlink(log)
            why = "lacks what it wrote there: restore|offset 0 on is missing.*or restore"
            with pytest.raises(GraduationError, match=why):
                brought_back(disk)


def test_a_metadata_log_that_is_torn_after_a_clean_stop_does_not_come_back(
    after_kafka: SimDisk,
) -> None:
    """A kill may leave a torn batch at the end of the log, but a clean stop does not."""
    log = f"{DATA}/__cluster_metadata-0/{0:020}.log"
    torn = after_kafka.read(log) + b"\0\0\0\0"
    disk = copy.deepcopy(after_kafka)
    disk.write_atomic(log, torn)
    with pytest.raises(GraduationError, match="is cut off in the middle of a batch: restore it"):
        brought_back(disk)
    disk.unlink(f"{DATA}/{CLEAN_SHUTDOWN_NAME}")
    assert brought_back(disk).made == ["new"]


def test_a_take_over_is_refused_if_topics_are_missing_without_a_deletion_record(
    stopped: SimDisk,
) -> None:
    """Kafka's metadata log lacks all topics, and has no record of their deletion. So the log is
    incomplete, and a take-over would delete data.
    """
    disk = copy.deepcopy(stopped)
    graduate(disk)
    version = KafkaRecord(FEATURE_LEVEL, {"name": "metadata.version", "level": 30})
    directory = f"{DATA}/__cluster_metadata-0"
    disk.mkdir(directory)
    log = encode_batch([NewRecord(None, encode_record(version), NOW_MS)])
    disk.write_atomic(f"{directory}/{0:020}.log", log)
    before = disk.read(f"{DATA}/barnabas-metadata.journal")
    with pytest.raises(GraduationError, match="topics __transaction_state, events, orders, and no"):
        brought_back(disk)
    assert disk.read(f"{DATA}/barnabas-metadata.journal") == before
    assert not disk.exists(f"{DATA}/barnabas-metadata.journal.draft")


def test_a_whole_checkpoint_without_a_topic_says_that_it_was_deleted(stopped: SimDisk) -> None:
    disk = copy.deepcopy(stopped)
    graduate(disk)
    plan = planned_without(disk, "orders")
    directory = f"{DATA}/__cluster_metadata-0"
    disk.mkdir(directory)
    disk.write_atomic(f"{directory}/{500:020}.log", b"")
    path = f"{directory}/{500:020}-{1:010}.checkpoint"
    whole = encode_bootstrap(plan, NOW_MS)
    for checkpoint in (b"", whole[:100], whole[: -len(whole) // 3], whole[:-1]):
        disk.write_atomic(path, checkpoint)
        with pytest.raises(GraduationError, match="incomplete: it has no header, or no footer"):
            brought_back(disk)
    disk.write_atomic(path, whole)
    without_given = copy.deepcopy(disk)
    without_given.unlink(f"{DATA}/bootstrap.checkpoint")
    with pytest.raises(GraduationError, match="does not have the topics orders, and no record"):
        brought_back(without_given)
    assert brought_back(disk).deleted == ["orders"]
    assert topics_at_start(disk) == ["__transaction_state", "events"]


def planned_without(disk: SimDisk, name: str) -> HandOver:
    """Plan the hand-over of the directory without this topic. The result serves as a checkpoint of
    the metadata log in which Kafka has deleted the topic.
    """
    copied = copy.deepcopy(disk)
    for file in (MARK_NAME, BOOTSTRAP_NAME):
        copied.unlink(f"{DATA}/{file}")
    plan = planned(copied)
    plan.survey.metadata._drop(name)
    del plan.topic_configs[name]
    return plan


def test_a_kafka_directory_without_its_mark_is_still_recognized(after_kafka: SimDisk) -> None:
    """The journal lacks the changes that Apache Kafka made, so an older retention time would apply
    to its topics.
    """
    disk = copy.deepcopy(after_kafka)
    disk.unlink(f"{DATA}/{MARK_NAME}")
    with pytest.raises(LogDirectoryError, match="barnabas take-over /data"):
        opened(copy.deepcopy(disk))
    assert brought_back(disk).made == ["new"]
    assert topics_at_start(disk) == ["__transaction_state", "events", "new"]


@pytest.mark.parametrize("data", [None, b"", b"version: 0\n"])
def test_a_directory_without_its_topics_id_comes_back(
    after_kafka: SimDisk, data: bytes | None
) -> None:
    disk = copy.deepcopy(after_kafka)
    disk.unlink(f"{DATA}/new-0/{PARTITION_METADATA_NAME}")
    if data is not None:
        disk.write_atomic(f"{DATA}/new-0/{PARTITION_METADATA_NAME}", data)
    brought_back(disk)
    assert topics_at_start(disk) == ["__transaction_state", "events", "new"]
    path = f"{DATA}/new-0/{PARTITION_METADATA_NAME}"
    assert decode_partition_metadata(disk.read(path)) == NEW_ID


# --- which copy has all (KIP-966) ---------------------------------------------------------------


def test_the_record_of_a_clean_stop_is_read_as_kafka_wrote_it() -> None:
    """Apache Kafka 4.3 wrote this record when node 1, which had the only replica, was stopped."""
    value = bytes.fromhex(
        "010502000000270d6ad74e32bb40099519b299bc5ebba1"
        "040001010104ffffffff0605020000000107050200000001"
    )
    record = decode_record(value, {PARTITION_CHANGE})
    assert record is not None
    assert record.fields == {
        "partition_id": 39, "topic_id": uuid.UUID("0d6ad74e-32bb-4009-9519-b299bc5ebba1"),
        "isr": [], "leader": -1, "replicas": None, "eligible_leader_replicas": [1],
        "last_known_elr": [1],
    }  # fmt: skip
    assert encode_record(record) == value


@pytest.mark.parametrize(
    ("replicas", "eligible", "last_known", "why"),
    [
        ([NODE_ID], [NODE_ID], [NODE_ID], None),  # after a clean stop of the only replica
        ([NODE_ID], [], [], None),  # the only replica
        ([9, NODE_ID], [NODE_ID], [], None),
        ([9, NODE_ID], [9, NODE_ID], [9], None),
        ([9, NODE_ID], [], [NODE_ID], None),  # the last known leader
        ([9, NODE_ID], [9], [NODE_ID], r"in sync on no broker, and may be led by \(9,\), not by 3"),
        ([9, NODE_ID], [], [9], r"may be led by \(9,\), not by 3"),
        ([9, NODE_ID], [], [], "may be led by none, not by 3"),
    ],
)
def test_without_in_sync_replicas_an_eligible_or_the_last_known_leader_is_taken_over(
    stopped: SimDisk,
    replicas: list[int],
    eligible: list[int],
    last_known: list[int],
    why: str | None,
) -> None:
    """An eligible leader replica (KIP-966) or, if there is none, the last known leader has all
    committed records. In other cases another node may have more records than this one.
    """
    disk = copy.deepcopy(stopped)
    graduate(disk)
    events = read_bootstrap(disk, f"{DATA}/bootstrap.checkpoint").topic_ids["events"]
    fields = {
        "partition_id": 0, "topic_id": events, "isr": [], "replicas": replicas, "leader": -1,
        "eligible_leader_replicas": eligible, "last_known_elr": last_known,
    }  # fmt: skip
    run_kafka(disk, [KafkaRecord(PARTITION_CHANGE, fields)])
    if why is None:
        brought_back(disk)
        assert topics_at_start(disk) == TOPICS
    else:
        with pytest.raises(GraduationError, match=f"events-0 is .*{why}"):
            brought_back(disk)
        assert is_graduated(disk, DATA)
