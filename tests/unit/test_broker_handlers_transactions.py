"""TxnOffsetCommit: what is refused before the coordinators, by the codes of Apache Kafka 3.9"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.core_host import CoreHost
from helpers.disk_broker import DiskBroker, Producer

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)


def test_offsets_of_the_empty_group_are_refused_before_anything_else(tmp_path: Path) -> None:
    host = CoreHost(tmp_path)
    host.connect(1)
    host.create("t")

    def codes(group: str) -> list[int]:
        row = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        request = TxnOffsetCommitRequest(
            transactional_id="nobody",
            group_id=group,
            producer_id=4711,
            producer_epoch=0,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            topics=[
                TxnOffsetCommitRequestTopic(name=name, partitions=[row]) for name in ("t", "u")
            ],
        )
        answer = host.call(1, request, 3)
        return [partition.error_code for topic in answer.topics for partition in topic.partitions]

    assert codes("") == [Code.INVALID_GROUP_ID] * 2
    assert host.broker.metadata.topic("__consumer_offsets") is None, "nothing was made for it"
    assert codes("g") == [Code.INVALID_PRODUCER_ID_MAPPING] * 2
    host.close()


@pytest.mark.parametrize(("level", "code"), [(1, Code.NONE), (2, Code.INVALID_PRODUCER_EPOCH)])
def test_a_later_epoch_goes_on_with_offsets_below_level_2(level: int, code: int) -> None:
    """As recorded of Apache Kafka 3.9; 4.3 refuses it."""
    b = DiskBroker(barnabas_features=f"transaction.version={level}")
    b.topic("t")
    p = Producer(b, "txn")
    assert p.add_offsets("g") == Code.NONE and p.commit_offset("g", "t", 5) == Code.NONE
    p.epoch += 1
    assert p.commit_offset("g", "t", 6) == code
