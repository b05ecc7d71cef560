"""Finds committed offsets that are beyond the end of their logs, after logs have lost records. This
module does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.coordinator.groups.group import Group
from barnabas.coordinator.groups.group_offsets import OffsetReset
from barnabas.coordinator.result import FindEpochEnd, FindLogEnd
from barnabas.protocol.topic_partition import TopicPartition


def offsets_beyond_log_end(
    groups: Iterable[Group], log_end: FindLogEnd, epoch_end: FindEpochEnd, *, lost_power: bool
) -> list[OffsetReset]:
    """The committed offsets beyond the end of their logs, with the offsets that replace them.

    The group has read records that are now lost. It continues where the log was cut, since it has
    received every record below that offset, and none of the present records above it. It therefore
    reads no record twice, even if it commits offsets and outputs together, and skips no record that
    is written later.

    An offset without a leader epoch may be a number that the application has chosen (the number of
    a batch, for example), particularly if it has metadata. Without metadata, it is considered a
    position in the log if a power loss explains why the log is shorter.

    Takes:  groups, as they are before the first append of a client. After that, the offset of a
            lost record could not be distinguished from that of a new one.
    """
    resets = []
    ends: dict[TopicPartition, int | None] = {}
    for group in groups:
        for key, committed in group.offsets.committed.items():
            if key not in ends:
                ends[key] = log_end(*key)
            end_offset = ends[key]
            if end_offset is None or committed.offset <= end_offset:
                continue
            (topic, partition), leader_epoch = key, committed.leader_epoch
            if leader_epoch >= 0:
                leader_epoch, epoch_end_offset = epoch_end(topic, partition, leader_epoch)
                if epoch_end_offset >= 0:
                    end_offset = min(end_offset, epoch_end_offset)
            elif committed.metadata or not lost_power:
                continue
            resets.append(
                OffsetReset(group.group_id, topic, partition, committed, end_offset, leader_epoch)
            )
    return resets
