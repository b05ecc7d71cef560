"""The survey of a stopped broker's directory: what it contains, and the states from which Apache
Kafka could not start.
"""

from __future__ import annotations

import uuid

import pytest
from helpers.admin_host import NOW_MS, CountedIds
from helpers.graduation import (
    DATA,
    NODE_ID,
    PRODUCER_ID,
    begin_transaction,
    config_of,
    fill,
    graduate,
    new_disk,
    opened,
)
from sim.disk import SimDisk

from barnabas.coordinator.result import CoordinatorRecord
from barnabas.coordinator.transactions.transaction_state import NO_TIMEOUT_MS
from barnabas.daemon.preparation import start_and_stop
from barnabas.graduation.survey import (
    GraduationError,
    UncleanError,
    check_decided,
    take_survey,
)
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.replication.following import StandbyNote
from barnabas.replication.wire import AnswersWait
from barnabas.storage.files.checkpoints import PARTITION_METADATA_NAME
from barnabas.storage.log.broker_appends import append_records
from barnabas.storage.log.log_directory import LogDirectoryError
from barnabas.storage.opening.last_run import RunNote


@pytest.fixture
def disk() -> SimDisk:
    disk = new_disk()
    fill(disk)
    return disk


def test_a_survey_has_topics_epochs_producer_ids_and_open_transactions(disk: SimDisk) -> None:
    for _ in range(3):
        opened(disk).close_logs(NOW_MS)  # each start raises the leader epoch, without writing
    survey = take_survey(disk, DATA)
    assert survey.node_id == NODE_ID
    assert [topic.name for topic in survey.topics] == ["__transaction_state", "events", "orders"]
    assert survey.partition_count == 5
    assert survey.leader_epochs["orders"] == (3, 3)  # the epochs that clients know
    assert survey.next_producer_id > PRODUCER_ID
    (transaction,) = survey.open_transactions
    assert transaction[:4] == ("open-one", PRODUCER_ID, 5, "Ongoing")
    assert transaction.partitions == (TopicPartition("orders", 0),)


def test_a_directory_is_refused_after_a_kill_until_a_start_and_clean_stop(disk: SimDisk) -> None:
    opened(disk)
    disk.kill()
    with pytest.raises(UncleanError, match="not stopped cleanly"):
        take_survey(disk, DATA)
    assert prepare(disk, aborts=False) == 0
    assert len(take_survey(disk, DATA).open_transactions) == 1


def test_prepare_aborts_open_transactions_on_request(disk: SimDisk) -> None:
    broker = opened(disk)
    begin_transaction(broker, "another")
    broker.close_logs(NOW_MS)
    assert prepare(disk, aborts=True) == 2
    assert take_survey(disk, DATA).open_transactions == []


@pytest.mark.parametrize("is_kept", [False, True])
def test_transactions_in_a_two_phase_commit_prevent_the_graduation(
    disk: SimDisk, is_kept: bool
) -> None:
    """Another system decides on such a transaction. It is recognised by the identity that the
    producer kept when it was prepared, or by the missing timeout.
    """
    check_decided(take_survey(disk, DATA))  # passes: the open transaction has a timeout
    broker = opened(disk)
    if is_kept:
        begin_transaction(broker, "prepared", next_producer_id=PRODUCER_ID, next_producer_epoch=6)
    else:
        begin_transaction(broker, "prepared", timeout_ms=NO_TIMEOUT_MS)
    broker.close_logs(NOW_MS)
    with pytest.raises(GraduationError, match=r"two-phase commit: prepared\."):
        check_decided(take_survey(disk, DATA))
    assert prepare(disk, aborts=True) == 2
    check_decided(take_survey(disk, DATA))


def prepare(disk: SimDisk, *, aborts: bool) -> int:
    """Start and stop a broker on the directory. Gives: the number of transactions that the broker
    aborted.
    """
    return start_and_stop(
        disk, config_of(), CountedIds(), now_ms=NOW_MS, wall_ms=NOW_MS, aborts_transactions=aborts
    )


def test_a_directory_without_our_metadata_is_refused(disk: SimDisk) -> None:
    disk.unlink(f"{DATA}/barnabas-metadata.journal")
    with pytest.raises(GraduationError, match="has no barnabas-metadata"):
        take_survey(disk, DATA)


def test_a_directory_that_was_handed_over_is_refused(disk: SimDisk) -> None:
    graduate(disk)
    with pytest.raises(GraduationError, match="handed over already"):
        take_survey(disk, DATA)


def test_a_standby_that_has_not_caught_up_is_refused(disk: SimDisk) -> None:
    disk.write_atomic(f"{DATA}/barnabas-standby", b"catching up\n")
    with pytest.raises(LogDirectoryError, match="has not caught up"):
        take_survey(disk, DATA)


def test_a_partition_without_files_gets_its_directory_at_the_graduation(
    disk: SimDisk,
) -> None:
    broker = opened(disk)
    broker.topics.create_topic("unused", 2, {}, topic_id=uuid.UUID(int=99), now_ms=NOW_MS)
    log = broker.topics.partition("unused", 1)
    assert log is not None
    append_records(log, [CoordinatorRecord(b"k", b"v")], NOW_MS)
    broker.close_logs(NOW_MS)
    survey = take_survey(disk, DATA)
    assert survey.without_files == {"unused-0": log.topic_id}
    assert not disk.exists(f"{DATA}/unused-0")
    graduate(disk)
    assert disk.read(f"{DATA}/unused-0/{PARTITION_METADATA_NAME}") == disk.read(
        f"{DATA}/unused-1/{PARTITION_METADATA_NAME}"
    )
    disk.lose_power()
    assert disk.list(f"{DATA}/unused-0") == [f"{0:020}.log", PARTITION_METADATA_NAME]


def test_the_refusal_names_missing_directories_and_those_of_others(disk: SimDisk) -> None:
    """A missing directory, one with another topic's id and one that is no partition's are each
    named. A stray directory is no obstacle.
    """
    disk.rename(f"{DATA}/orders-1", f"{DATA}/lost+found")
    disk.write_atomic(
        f"{DATA}/events-0/{PARTITION_METADATA_NAME}", b"version: 0\ntopic_id: " + b"A" * 21 + b"Q"
    )
    disk.mkdir(f"{DATA}/old-0.{'1' * 32}-stray")
    with pytest.raises(GraduationError) as refused:
        take_survey(disk, DATA)
    text = str(refused.value)
    assert "orders-1 is missing" in text
    assert "events-0 is the directory of another topic" in text
    assert "lost+found is not a partition's directory" in text
    assert "stray" not in text


def test_a_standbys_copy_is_refused_until_a_broker_has_started_on_it(disk: SimDisk) -> None:
    """The leader may have acknowledged more than the copy contains. Only a broker that starts on
    the copy fences producers and aborts open transactions.
    """
    RunNote(disk, DATA).write()
    StandbyNote(disk, DATA).write_following(AnswersWait.NEVER)
    with pytest.raises(UncleanError, match="was a standby's"):
        take_survey(disk, DATA)
