"""Share groups and streams groups in a directory that is handed over to an older version of
Kafka.
"""

from __future__ import annotations

import pytest
from helpers.admin_host import NOW_MS, CountedIds
from helpers.graduation import DATA, config_of, fill, new_disk, planned
from sim.disk import SimDisk

from barnabas.coordinator.groups.group_records import group_tombstone
from barnabas.coordinator.groups.share import share_group_records as share
from barnabas.coordinator.groups.streams import streams_group_records as streams
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC
from barnabas.coordinator.result import CoordinatorRecord
from barnabas.daemon.opening import open_broker
from barnabas.graduation.survey import GraduationError, take_survey
from barnabas.storage.log.broker_appends import append_records

OLDER, NEWER = ("3.9", "4.0"), "4.3"
EPOCH = streams.GroupEpochValue(2, 7, 0, ())


@pytest.fixture
def disk() -> SimDisk:
    made = new_disk()
    fill(made)
    return made


def store(disk: SimDisk, *records: CoordinatorRecord, partition: int = 1) -> None:
    """Run a broker, write these records, and stop the broker cleanly."""
    ids = CountedIds()
    for _ in range(100):
        ids.uuid()  # skip the ids of the earlier run
    broker = open_broker(config_of(), ids, disk=disk, now_ms=NOW_MS)
    log = broker.topics.internal_log(OFFSETS_TOPIC, partition, NOW_MS)
    append_records(log, list(records), NOW_MS)
    broker.close_logs(NOW_MS)


def of_share(name: str) -> CoordinatorRecord:
    return share.epoch_record(name, 2, 7)


def of_streams(name: str) -> CoordinatorRecord:
    return streams.group_epoch_record(name, EPOCH)


def test_the_survey_finds_groups_that_were_not_deleted(disk: SimDisk) -> None:
    gone = [share.tombstone(share.GROUP_VERSION, "gone"), of_share("queue"), of_streams("app")]
    store(disk, of_share("gone"), *gone, group_tombstone("app"))
    store(disk, of_streams("other"), partition=0)
    # a tombstone of one kind deletes no group of the other kind
    store(disk, of_streams("kept"), share.tombstone(share.GROUP_VERSION, "kept"))
    assert take_survey(disk, DATA).typed_groups == {
        "queue": "share", "app": "streams", "other": "streams", "kept": "streams",
    }  # fmt: skip


@pytest.mark.parametrize("kafka", OLDER)
def test_share_groups_are_refused_for_kafka_versions_with_another_format(
    disk: SimDisk, kafka: str
) -> None:
    store(disk, *(of_share(f"queue{number}") for number in range(12)))
    with pytest.raises(GraduationError) as refused:
        planned(disk, kafka)
    text = str(refused.value)
    assert f"Kafka {kafka}" in text and "queue0, queue1, queue10" in text
    assert "and 2 more" in text and "barnabas groups delete" in text
    planned(disk, NEWER)


@pytest.mark.parametrize("kafka", OLDER)
def test_streams_groups_are_named_in_the_notes_for_versions_without_them(
    disk: SimDisk, kafka: str
) -> None:
    store(disk, of_streams("app"))
    (note,) = [note for note in planned(disk, kafka).notes if "streams" in note]
    assert f"Kafka {kafka} does not support the streams groups app" in note
    assert "group.protocol=classic" in note


def test_kafka_4_3_takes_both(disk: SimDisk) -> None:
    store(disk, of_share("queue"), of_streams("app"))
    assert not [note for note in planned(disk, NEWER).notes if "groups" in note]


@pytest.mark.parametrize("kafka", OLDER)
def test_without_such_groups_nothing_is_said(disk: SimDisk, kafka: str) -> None:
    assert not [note for note in planned(disk, kafka).notes if "groups" in note]
