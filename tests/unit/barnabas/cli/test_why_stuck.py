"""`barnabas txn why-stuck`: which open transactions it reports as hanging."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cli.client.transactions import ActiveProducer, Transaction
from barnabas.cli.why_stuck import join
from barnabas.protocol.topic_partition import TopicPartition

PARTITION = TopicPartition("orders", 0)
PRODUCER = ActiveProducer(7, 2, 3, start_offset=100, last_timestamp_ms=5)
DESCRIBED = Transaction("pay", 1, "Ongoing", 7, 2, 1, 60_000, frozenset([PARTITION]))


@pytest.mark.parametrize(
    ("changes", "is_hanging"),
    [
        ({}, False),
        ({"state": "PrepareAbort", "producer_epoch": 3}, False),
        ({"state": "CompleteAbort"}, True),
        ({"partitions": frozenset([TopicPartition("orders", 1)])}, True),
        ({"producer_epoch": 1}, True),
    ],
)
def test_a_transaction_hangs_if_its_coordinator_will_not_end_it(
    changes: dict[str, Any], is_hanging: bool
) -> None:
    """Each case changes what the coordinator reports for the transactional id: its state, its
    partitions or its epoch. In PrepareAbort, the coordinator's epoch may already be higher than the
    producer's.
    """
    joined = join(PRODUCER, DESCRIBED._replace(**changes), PARTITION)
    assert (joined.start_offset, joined.coordinator_epoch) == (100, 3)
    assert joined.is_hanging is is_hanging


def test_transaction_hangs_where_no_coordinator_knows_it() -> None:
    joined = join(PRODUCER, None, PARTITION)
    assert (joined.is_hanging, joined.transactional_id) == (True, None)
