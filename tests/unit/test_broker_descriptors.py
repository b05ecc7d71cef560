"""Partitions for which there are no descriptors are refused before one of them is made."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from helpers.core_host import CoreHost
from helpers.storage_logs import NOW_MS, TOPIC_ID, batch, open_manager

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.storage.disk import File, OsDisk
from barnabas.storage.log_config import LogConfig

INTERNAL = 2  # partitions of the internal topics, which are not there yet
USED, MOST = 700, 1000
LEFT = MOST - MOST // 4 - INTERNAL - USED


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CoreHost:
    monkeypatch.setattr(OsDisk, "open_files", lambda self: (USED, MOST))
    return CoreHost(tmp_path)


def creation(**counts: int) -> Any:
    topics = [
        CreatableTopic(
            name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[]
        )
        for name, count in counts.items()
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=60_000, validate_only=False)


def growth(name: str, count: int) -> Any:
    topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=60_000, validate_only=False)


def answer(host: CoreHost, request: Any, version: int) -> Any:
    host.ask(1, request, version)
    while not host.answers[1]:
        host.tick(0)
    return host.answers[1].pop()


def test_topics_with_more_partitions_than_there_are_descriptors_are_refused_and_leave_nothing(
    host: CoreHost,
) -> None:
    host.connect(1)
    rows = answer(host, creation(a=LEFT, b=1), 7).topics
    assert [row.error_code for row in rows] == [Code.POLICY_VIOLATION] * 2
    assert f"for {LEFT} partitions more, and {LEFT + 1} are asked for" in rows[0].error_message
    assert "ulimit -n" in rows[0].error_message
    assert not host.broker.metadata.topics
    assert not host.broker.metadata.coming
    assert not host.broker.logs.logs
    assert [row.error_code for row in answer(host, creation(a=LEFT - 1, b=1), 7).topics] == [0, 0]


def test_a_topic_does_not_grow_beyond_the_descriptors(host: CoreHost) -> None:
    host.connect(1)
    host.create("t", 1)  # without files: it is counted as a descriptor that it will have
    assert answer(host, growth("t", LEFT + 1), 1).results[0].error_code == Code.POLICY_VIOLATION
    assert host.broker.metadata.topics["t"].partition_count == 1
    assert answer(host, growth("t", LEFT), 1).results[0].error_code == Code.NONE


def test_a_query_makes_no_topics_beyond_the_descriptors(
    host: CoreHost, caplog: pytest.LogCaptureFixture
) -> None:
    host.connect(1)
    names = [MetadataRequestTopic(name=f"t{number}") for number in range(LEFT + 1)]
    rows = answer(host, MetadataRequest(topics=names, allow_auto_topic_creation=True), 4).topics
    assert {row.error_code for row in rows} == {Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert not host.broker.metadata.topics
    assert "ulimit -n" in caplog.text


def test_the_machine_tells_how_many_descriptors_are_open() -> None:
    before, most = OsDisk().open_files()
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
    try:
        assert OsDisk().open_files() == (before + 3, most)
    finally:
        for file in files:
            os.close(file)


@pytest.mark.parametrize("name", [".log", ".index", ".timeindex"])
def test_a_log_of_which_a_file_cannot_be_opened_leaves_nothing(tmp_path: Path, name: str) -> None:
    class Refusing(OsDisk):
        def open(self, path: str, *, create: bool = False) -> File:
            if path.endswith(name):
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
            return super().open(path, create=create)

    manager = open_manager(tmp_path, LogConfig(), disk=Refusing())
    before = sorted(os.listdir(manager.data_dir))
    log = manager.create("t", 0, TOPIC_ID, LogConfig(), NOW_MS)
    for _ in range(2):
        with pytest.raises(OSError, match="Too many open files"):
            log.append(batch(), now_ms=NOW_MS)
        assert sorted(os.listdir(manager.data_dir)) == before
        assert log.log_end_offset == 0 and not log.has_files
