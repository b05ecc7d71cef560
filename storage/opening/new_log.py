"""Makes a new, empty log in memory. Its files are made with its first batch."""

from __future__ import annotations

from barnabas.protocol.topic_partition import TopicIdPartition
from barnabas.storage.files.leader_epochs import LeaderEpochs
from barnabas.storage.log.log import Log, LogContents
from barnabas.storage.log.log_directory import LogDirectory
from barnabas.storage.log_config import LogConfig
from barnabas.storage.producers.producer_snapshots import ProducerSnapshots
from barnabas.storage.producers.producer_state import ProducerStateManager
from barnabas.storage.segments.segment import Segment
from barnabas.storage.segments.segment_list import SegmentList


def new_log(
    log_dir: LogDirectory,
    partition: TopicIdPartition,
    config: LogConfig,
    now_ms: int,
    leader_epoch: int,
) -> Log:
    """Make the empty log of a partition, whose first leader epoch is `leader_epoch`."""
    directory = log_dir.partition_path(partition.topic, partition.partition)
    segment = Segment.without_files(
        log_dir.disk,
        directory,
        0,
        now_ms=now_ms,
        cache=log_dir.cache,
        index_interval_bytes=config.index_interval_bytes,
    )
    contents = LogContents(
        segments=SegmentList([segment], 0),
        log_start_offset=0,
        recovery_point=0,
        producer_state=ProducerStateManager(),
        epochs=LeaderEpochs(log_dir.disk, directory, [(leader_epoch, 0)]),
        snapshots=ProducerSnapshots(log_dir.disk, directory, []),
        names_are_durable=True,
        has_files=False,
    )
    return Log(log_dir, partition, config, contents)
