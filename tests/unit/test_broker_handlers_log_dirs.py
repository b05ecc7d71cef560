"""DescribeLogDirs: how large the partitions are on the disk."""

from __future__ import annotations

from pathlib import Path

from helpers.core_host import CoreHost, produce

from barnabas.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)


def test_the_partitions_that_are_there_with_their_sizes(tmp_path: Path) -> None:
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
