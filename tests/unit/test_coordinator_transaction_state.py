"""TransactionMetadata: times that tell transactions and decisions apart, and who is remembered."""

from __future__ import annotations

import pytest

from barnabas.coordinator.transaction_state import (
    NOBODY,
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionState,
)
from barnabas.protocol.topic_partition import TopicPartition

PAIR = TopicPartition("t", 0)


def begun(wall_ms: int) -> TransactionMetadata:
    return TransactionMetadata("id", 5, 3, 60_000).with_partitions([PAIR], wall_ms)


@pytest.mark.parametrize("wall_ms", [100, 99, 0])
def test_no_two_transactions_of_a_session_begin_at_the_same_time(wall_ms: int) -> None:
    """Even where the clock stands or steps back."""
    ended = begun(100).prepared(True, 100).completed(100)
    assert ended.start_ms == 100
    again = ended.with_partitions([PAIR], wall_ms)
    assert again.start_ms == 101
    assert again.with_partitions([TopicPartition("t", 1)], 500).start_ms == 101
    assert ended.with_partitions([PAIR], 500).start_ms == 500


@pytest.mark.parametrize("wall_ms", [100, 99, 0])
def test_a_decision_is_later_than_all_before_it(wall_ms: int) -> None:
    """By its time a journaled decision is told from the transaction's former ones."""
    transaction = begun(100)
    for decision in (
        transaction.prepared(True, wall_ms),
        transaction.prepared(False, wall_ms),
        transaction.fenced(NOBODY, wall_ms),
    ):
        assert decision.last_update_ms == 101
    assert transaction.prepared(True, 500).last_update_ms == 500
    assert transaction.fenced(NOBODY, 500).last_update_ms == 500


def test_who_requested_an_epoch_is_known_by_its_own_epoch() -> None:
    """Kafka's records may have a previous producer id alone."""
    metadata = TransactionMetadata("id", 5, 3, 60_000, previous_producer_id=4)
    assert metadata.last_producer == NOBODY
    assert metadata._replace(last_producer_epoch=0).last_producer == ProducerIdAndEpoch(4, 0)


def test_a_fence_raises_the_epoch_up_to_the_highest() -> None:
    fenced = begun(100).fenced(NOBODY, 200)
    assert (fenced.producer_epoch, fenced.state) == (4, TransactionState.PREPARE_ABORT)
    assert not fenced.is_epoch_given_out
    highest = begun(100)._replace(producer_epoch=32767)
    assert highest.fenced(NOBODY, 200).producer_epoch == 32767


def test_a_first_session_remembers_nobody_before_it() -> None:
    metadata = TransactionMetadata("txn", 7, 0, 60_000)
    assert metadata.last_producer == NOBODY
    after = metadata._replace(previous_producer_id=5)
    assert after.last_producer == (5, 32766), "the last epoch that a producer may have"
    assert after._replace(producer_epoch=1).last_producer == NOBODY
