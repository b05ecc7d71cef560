"""Transactional requests in versions that do not know PRODUCER_FENCED yet, and requests for unknown
partitions.
"""

from __future__ import annotations

import pytest
from helpers.disk_broker import DiskBroker, Producer

from barnabas.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest

(
    UNKNOWN_TOPIC_OR_PARTITION,
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    INVALID_PRODUCER_ID_MAPPING,
) = 3, 47, 48, 49


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_transaction_succeeds_in_each_older_version(version: int) -> None:
    b = DiskBroker()
    b.topic("t")
    p = Producer(b, "txn")
    assert p.add("t", 0, version=version) == 0
    assert p.add_offsets("group", version=version) == 0
    assert p.produce("t", 0, b"a") == 0
    assert p.end(True, version=version) == 0
    assert b.read("t", committed=True) == [b"a"]


@pytest.mark.parametrize("version", [0, 1])
def test_only_producer_fenced_has_another_code_in_older_versions(version: int) -> None:
    """KIP-588: a client that does not know PRODUCER_FENCED gets INVALID_PRODUCER_EPOCH instead.
    Other errors are the same in all versions.
    """
    b = DiskBroker()
    b.topic("t")
    p = Producer(b, "txn")
    assert p.end(True, version=version) == INVALID_TXN_STATE
    Producer(b, "txn")  # a later session
    assert p.end(True, version=version) == INVALID_PRODUCER_EPOCH
    p.pid += 1
    assert p.end(True, version=version) == INVALID_PRODUCER_ID_MAPPING
    assert p.add("t", 0, version=version) == INVALID_PRODUCER_ID_MAPPING
    assert p.add_offsets("group", version=version) == INVALID_PRODUCER_ID_MAPPING


def test_the_producers_of_an_unknown_partition_cannot_be_described() -> None:
    b = DiskBroker()
    b.topic("t")
    request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0, 1])])
    rows = b.call(request, 0).topics[0].partitions
    assert [(row.partition_index, row.error_code) for row in rows] == [
        (0, 0),
        (1, UNKNOWN_TOPIC_OR_PARTITION),
    ]
