"""A partition's directory that has the id of another topic. It was restored from an earlier topic
of the same name, or copied from another topic. The broker does not serve it, and changes nothing in
it.
"""

from __future__ import annotations

import logging

import pytest
from helpers.disk_broker import DATA_DIR, DiskBroker

from barnabas.broker.logs.durable_size import SIZE_SUFFIX
from barnabas.broker.logs.metadata import changes_in
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.storage.files.checkpoints import (
    MANIFEST_NAME,
    METADATA_JOURNAL_NAME,
    PARTITION_METADATA_NAME,
    decode_partition_metadata,
)
from barnabas.storage.log.log_directory import LogDirectoryError


def two_topics() -> DiskBroker:
    """Topics t and u, which have different records in each of two partitions."""
    b = DiskBroker()
    b.topic("t", 2)
    b.topic("u", 2)
    b.produce("t", (b"t0",))
    b.produce("t", (b"t1",), partition=1)
    b.produce("u", (b"u0",))
    b.produce("u", (b"u1",), partition=1)
    return b


def put(b: DiskBroker, source: str, target: str) -> dict[str, bytes]:
    """Stop the broker, and replace one partition's directory by that of another. Gives: the files
    of the disk.
    """
    b.broker.close_logs(b.now_ms)
    b.disk.kill()
    files = b.saved()
    moved = {
        path.replace(f"/{source}/", f"/{target}/"): data
        for path, data in files.items()
        if f"/{source}/" in path
    }
    assert moved
    b.load({path: data for path, data in files.items() if f"/{target}/" not in path} | moved)
    return moved


def code_of_produce(b: DiskBroker, topic: str, partition: int) -> int:
    return b.produce(topic, (b"new",), partition=partition)[0]


def files_of(b: DiskBroker, directory: str) -> dict[str, bytes]:
    return {path: data for path, data in b.saved().items() if f"/{directory}/" in path}


def test_a_directory_of_another_topic_is_off_line_and_left_as_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    b = two_topics()
    copied = put(b, "u-1", "t-1")
    with caplog.at_level(logging.ERROR):
        b.open()
    assert "the log of t-1 is off line" in caplog.text
    assert "the directory belongs to the topic with the id" in caplog.text
    assert "Move the directory out" in caplog.text
    assert ("t", 1) in b.broker.logs.offline
    assert code_of_produce(b, "t", 1) == Code.KAFKA_STORAGE_ERROR
    assert b.read("t") == [b"t0"]
    assert b.read("u", partition=1) == [b"u1"]
    b.tick(3_600_000)
    b.stop()
    assert code_of_produce(b, "t", 1) == Code.KAFKA_STORAGE_ERROR
    assert {path: b.saved()[path] for path in copied if path.endswith(".log")} == {
        path: data for path, data in copied.items() if path.endswith(".log")
    }


def test_a_directory_of_a_deleted_topic_with_the_same_name_is_off_line() -> None:
    b = two_topics()
    b.stop()
    earlier = files_of(b, "t-0")
    delete(b, "t")
    b.topic("t", 2)
    b.produce("t", (b"later",))
    b.broker.close_logs(b.now_ms)
    b.disk.kill()
    now = {path: data for path, data in b.saved().items() if "/t-0/" not in path}
    b.load(now | earlier)
    b.open()
    assert ("t", 0) in b.broker.logs.offline
    assert code_of_produce(b, "t", 0) == Code.KAFKA_STORAGE_ERROR


def test_a_directory_without_a_topic_id_belongs_to_the_topic_of_its_name() -> None:
    """The error message describes this repair: to keep the directory's records, remove the two
    files with the topic id.
    """
    b = two_topics()
    put(b, "u-1", "t-1")
    for name in (PARTITION_METADATA_NAME, MANIFEST_NAME):
        b.disk.unlink(f"{DATA_DIR}/t-1/{name}")
    b.open()
    assert b.read("t", partition=1) == [b"u1"]
    found = decode_partition_metadata(b.disk.read(f"{DATA_DIR}/t-1/{PARTITION_METADATA_NAME}"))
    assert found == b.broker.metadata.topics["t"].topic_id


def test_a_foreign_directory_is_kept_as_stray_when_the_topic_is_deleted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    b = two_topics()
    copied = put(b, "u-1", "t-1")
    b.open()
    with caplog.at_level(logging.WARNING):
        delete(b, "t")
        b.tick(3_600_000)
    assert "t-1 is not used" in caplog.text
    (stray,) = [name for name in b.disk.list(DATA_DIR) if name.endswith("-stray")]
    for path, data in copied.items():
        if path.endswith(".log"):
            assert b.disk.read(path.replace("/t-1/", f"/{stray}/")) == data
    b.topic("t", 2)
    b.produce("t", (b"again",), partition=1)
    assert b.read("t", partition=1) == [b"again"]


def test_a_new_partition_does_not_take_over_a_foreign_directory() -> None:
    b = two_topics()
    put(b, "u-1", "t-2")
    b.open()
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)],
        timeout_ms=1000,
        validate_only=False,
    )
    assert b.call(request, 3).results[0].error_code == Code.NONE
    assert code_of_produce(b, "t", 2) == Code.KAFKA_STORAGE_ERROR


def test_without_the_metadata_journal_directories_with_the_other_id_are_offline() -> None:
    b = two_topics()
    put(b, "u-1", "t-1")
    b.disk.unlink(f"{DATA_DIR}/{METADATA_JOURNAL_NAME}")
    b.open()
    assert b.read("t") == [b"t0"]
    assert ("t", 1) in b.broker.logs.offline


def test_an_internal_topic_with_another_topics_directory_refuses_the_start() -> None:
    b = two_topics()
    b.broker.topics.ensure_internal_topic("__consumer_offsets", b.now_ms)
    put(b, "u-1", "__consumer_offsets-1")
    with pytest.raises(LogDirectoryError, match="belongs to the topic with the id"):
        b.open()


def test_a_recreated_topic_is_served_when_a_kill_left_its_old_directories() -> None:
    """The journal has the deletion of the earlier topic: the start deletes the old directories, and
    does not treat them as foreign.
    """
    b = two_topics()
    b.broker.metadata.delete_topics(["t"])
    b.kill()
    b.topic("t", 2)
    b.produce("t", (b"again",))
    assert b.read("t") == [b"again"]
    assert b.broker.logs.offline == {}


def delete(b: DiskBroker, name: str) -> None:
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=1000)
    assert b.call(request, 4).responses[0].error_code == Code.NONE


def test_a_torn_journal_sets_no_directory_aside_however_often_it_is_started() -> None:
    """The torn change stays in the journal until a start has found all directories."""
    b = DiskBroker()
    b.topic("u", 1)
    b.produce("u", (b"u0",))
    b.topic("t", 1)
    b.produce("t", (b"t15000",))
    b.broker.close_logs(b.now_ms)
    b.disk.kill()
    # Only the torn change could show whether the topic has a partition 15000.
    files = {path.replace("/t-0/", "/t-15000/"): data for path, data in b.saved().items()}
    journal = f"{DATA_DIR}/{METADATA_JOURNAL_NAME}"
    *_, (position, end, _) = (
        row for row in changes_in(files[journal]) if row[2].get("name") == "t"
    )
    torn = files[journal][: (position + end) // 2]
    b.load({**files, journal: torn})
    with pytest.raises(LogDirectoryError, match="bytes of whole changes, and had"):
        b.open()
    b.disk.kill()
    # as the error message advises, to start with the complete changes only
    del files[journal + SIZE_SUFFIX]
    b.load({**files, journal: torn})
    for _ in range(3):
        with pytest.raises(LogDirectoryError, match="t-15000 may be a partition, or a copy of one"):
            b.open()
        b.disk.kill()
        assert files_of(b, "t-15000") == {
            path: data for path, data in files.items() if "/t-15000/" in path
        }


@pytest.mark.parametrize("place", [0, 1])
def test_without_the_journal_a_foreign_directory_does_not_decide_the_topic_id(place: int) -> None:
    """A directory of u replaces a directory of t3. The start gives t3 the id that most of its
    directories have, and serves u as before.
    """
    b = two_topics()
    b.topic("t3", 3)
    for index in range(3):
        b.produce("t3", (b"%d" % index,), partition=index)
    put(b, "u-1", f"t3-{place}")
    b.disk.unlink(f"{DATA_DIR}/{METADATA_JOURNAL_NAME}")
    b.open()
    for topic, index, value in (("t", 0, b"t0"), ("u", 0, b"u0"), ("u", 1, b"u1")):
        assert b.read(topic, partition=index) == [value]
    for index in range(3):
        if index != place:
            assert b.read("t3", partition=index) == [b"%d" % index]
    assert list(b.broker.logs.offline) == [("t3", place)]
