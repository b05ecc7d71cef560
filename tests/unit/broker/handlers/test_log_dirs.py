"""DescribeLogDirs and AlterReplicaLogDirs: the directory and size of each partition."""

from __future__ import annotations

from pathlib import Path

from helpers.core_host import CoreHost, produce

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)


def test_existing_partitions_are_described_with_their_sizes(tmp_path: Path) -> None:
    host = CoreHost(tmp_path)
    host.connect(1)
    logs = host.create("t", 2)
    host.create("u")
    host.call(1, produce("t"), 9)
    (directory,) = host.call(1, DescribeLogDirsRequest(topics=None), 4).results
    assert directory.log_dir == str(tmp_path / "data")
    sizes = {
        (topic.name, row.partition_index): row.partition_size
        for topic in directory.topics
        for row in topic.partitions
    }
    assert sizes == {("t", 0): logs[0].segments.size_bytes, ("t", 1): 0, ("u", 0): 0}
    assert 0 < directory.usable_bytes <= directory.total_bytes
    wanted = [DescribableLogDirTopic("t", [1, 1, 9]), DescribableLogDirTopic("none", [0])]
    (directory,) = host.call(1, DescribeLogDirsRequest(topics=wanted), 4).results
    assert [
        (topic.name, [row.partition_index for row in topic.partitions])
        for topic in directory.topics
    ] == [("t", [1])]
    host.close()


def test_a_topic_that_is_named_twice_is_described_once_with_the_partitions_of_both(
    tmp_path: Path,
) -> None:
    host = CoreHost(tmp_path)
    host.connect(1)
    host.create("t", 3)
    host.create("u")
    named = (("t", [2]), ("u", [0]), ("t", [0, 2]))
    wanted = [DescribableLogDirTopic(topic, indexes) for topic, indexes in named]
    (directory,) = host.call(1, DescribeLogDirsRequest(topics=wanted), 4).results
    assert [
        (topic.name, [row.partition_index for row in topic.partitions])
        for topic in directory.topics
    ] == [("t", [2, 0]), ("u", [0])]
    host.close()


def test_a_partition_can_be_moved_only_to_the_log_directory_that_it_is_in(tmp_path: Path) -> None:
    """A path that is not a log directory of the broker gets LOG_DIR_NOT_FOUND (KIP-113)."""
    host = CoreHost(tmp_path)
    host.connect(1)
    host.create("t", 2)
    own = AlterReplicaLogDir(
        str(tmp_path / "data"),
        [AlterReplicaLogDirTopic("t", [0, 1, 2]), AlterReplicaLogDirTopic("none", [0])],
    )
    other = AlterReplicaLogDir("/elsewhere", [AlterReplicaLogDirTopic("t", [1])])
    for version in (1, 2):
        answer = host.call(1, AlterReplicaLogDirsRequest([own, other]), version)
        assert [
            (topic.topic_name, [(row.partition_index, row.error_code) for row in topic.partitions])
            for topic in answer.results
        ] == [
            ("t", [(0, Code.NONE), (1, Code.NONE), (2, Code.UNKNOWN_TOPIC_OR_PARTITION),
                   (1, Code.LOG_DIR_NOT_FOUND)]),
            ("none", [(0, Code.UNKNOWN_TOPIC_OR_PARTITION)]),
        ]  # fmt: skip
    host.close()
