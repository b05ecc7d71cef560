"""TransactionMetadata: the times that distinguish transactions and decisions, and the former
producers.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.coordinator.transactions.transaction_records import decode_value, encode_value
from barnabas.coordinator.transactions.transaction_state import (
    NO_PRODUCER,
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
    """Start times differ even if the clock stops or is set back."""
    ended = begun(100).prepared(True, 100).completed(100)
    assert ended.start_ms == 100
    again = ended.with_partitions([PAIR], wall_ms)
    assert again.start_ms == 101
    assert again.with_partitions([TopicPartition("t", 1)], 500).start_ms == 101
    assert ended.with_partitions([PAIR], 500).start_ms == 500


DECISIONS: list[Callable[[TransactionMetadata, int], TransactionMetadata]] = [
    lambda transaction, wall_ms: transaction.prepared(True, wall_ms),
    lambda transaction, wall_ms: transaction.prepared(False, wall_ms),
    lambda transaction, wall_ms: transaction.prepared_with_next_epoch(True, wall_ms, no_id),
    lambda transaction, wall_ms: transaction.fenced(NO_PRODUCER, wall_ms),
]
YEAR_MS = 365 * 24 * 3_600_000


@pytest.mark.parametrize("decide", DECISIONS)
@pytest.mark.parametrize(
    ("wall_ms", "order_ms"), [(0, 101), (99, 101), (100, 101), (101, 101), (500, 500)]
)
def test_a_decision_is_later_than_all_before_it(
    decide: Callable[[TransactionMetadata, int], TransactionMetadata], wall_ms: int, order_ms: int
) -> None:
    """The time of a decision distinguishes it, in the journal, from earlier decisions for the same
    id.
    """
    decision = decide(begun(100), wall_ms)
    assert (decision.last_update_ms, decision.order_ms) == (order_ms, order_ms)


@pytest.mark.parametrize("decide", DECISIONS)
def test_a_clock_that_was_ahead_does_not_leave_its_time_in_later_records(
    decide: Callable[[TransactionMetadata, int], TransactionMetadata],
) -> None:
    """A decision was made while the wall clock was a year ahead. After the clock is corrected,
    records have the right time again, and `order_ms` still rises with each decision.
    """
    ahead = decide(begun(100 + YEAR_MS), 100 + YEAR_MS).completed(100 + YEAR_MS)
    again = ahead.with_partitions([PAIR], 200)
    assert (again.start_ms, again.last_update_ms) == (200, 200)
    decision = decide(again, 300)
    assert decision.last_update_ms == 300
    assert decision.order_ms == ahead.order_ms + 1, "decisions keep their order"
    session = decision.completed(300).in_new_session(
        ProducerIdAndEpoch(9, 0), NO_PRODUCER, 60_000, 400
    )
    assert (session.last_update_ms, session.order_ms) == (400, decision.order_ms)
    assert decode_value("id", encode_value(session)) == session
    caught_up = session.with_partitions([PAIR], 200 + YEAR_MS)
    assert (caught_up.latest_ms, caught_up.order_ms) == (-1, 200 + YEAR_MS)


def test_the_last_producer_is_known_only_with_its_epoch() -> None:
    """Kafka's records may contain a previous producer id without its epoch."""
    metadata = TransactionMetadata("id", 5, 3, 60_000, previous_producer_id=4)
    assert metadata.last_producer == NO_PRODUCER
    assert metadata._replace(last_producer_epoch=0).last_producer == ProducerIdAndEpoch(4, 0)


def test_a_fence_raises_the_epoch_up_to_the_highest() -> None:
    fenced = begun(100).fenced(NO_PRODUCER, 200)
    assert (fenced.producer_epoch, fenced.state) == (4, TransactionState.PREPARE_ABORT)
    assert not fenced.is_epoch_given_out
    highest = begun(100)._replace(producer_epoch=32767)
    assert highest.fenced(NO_PRODUCER, 200).producer_epoch == 32767


def test_a_first_session_has_no_last_producer() -> None:
    metadata = TransactionMetadata("txn", 7, 0, 60_000)
    assert metadata.last_producer == NO_PRODUCER
    after = metadata._replace(previous_producer_id=5)
    assert after.last_producer == (5, 32766), "the last epoch that a producer may have"
    assert after._replace(producer_epoch=1).last_producer == NO_PRODUCER


def test_an_epoch_that_only_fences_or_is_the_last_belongs_to_no_producer() -> None:
    metadata = TransactionMetadata("txn", 7, 3, 60_000)
    assert metadata.current_producer == (7, 3) and metadata.is_epoch_given_out
    assert not metadata._replace(epoch_is_a_fence=True).is_epoch_given_out
    assert not metadata._replace(producer_epoch=32767).is_epoch_given_out


def no_id() -> int:
    raise AssertionError("an id is allocated")


@pytest.mark.parametrize("keeper", [ProducerIdAndEpoch(5, 4), ProducerIdAndEpoch(9, 0)])
def test_a_session_that_keeps_an_open_transaction_is_its_producer(
    keeper: ProducerIdAndEpoch,
) -> None:
    """A new session of the transactional id may keep the open transaction of the previous session
    (KIP-939). The producer of the new session is then the current one.
    """
    transaction = begun(100)
    assert not transaction.is_kept and transaction.kept_from is None
    assert transaction.current_producer == (5, 3)
    kept = transaction.kept(keeper, NO_PRODUCER, 60_000, 200)
    assert kept.is_kept and kept.current_producer == keeper
    assert kept.kept_from == (5, 3), "whose batches join it no more"
    ended = kept.prepared(True, 300)
    assert not ended.is_kept and ended.current_producer == (5, 3)
    assert ended.kept_from == (5, 3), "until all partitions have the markers"
    assert ended.completed(400).kept_from is None


@pytest.mark.parametrize("decide", DECISIONS)
@pytest.mark.parametrize("keeper", [ProducerIdAndEpoch(5, 4), ProducerIdAndEpoch(9, 0)])
def test_the_writer_of_a_kept_transaction_is_known_until_its_end_is_complete(
    decide: Callable[[TransactionMetadata, int], TransactionMetadata], keeper: ProducerIdAndEpoch
) -> None:
    kept = begun(100).kept(keeper, NO_PRODUCER, 60_000, 200)
    decided = decide(kept, 300)
    for one in (kept, decided, decode_value("id", encode_value(decided))):
        assert one.kept_from == (5, 3)
    assert decided.completed(400).kept_from is None


def test_a_fence_raises_the_epoch_of_the_session_that_kept_the_transaction() -> None:
    """If a session keeps the transaction, a fence raises the epoch of this session, at most to the
    highest epoch. Otherwise, it raises only the producer's own epoch.
    """
    kept = begun(100).kept(ProducerIdAndEpoch(5, 4), NO_PRODUCER, 60_000, 200)
    assert kept.fenced(NO_PRODUCER, 300).next_producer_epoch == 5
    highest = kept._replace(next_producer_epoch=32767)
    assert highest.fenced(NO_PRODUCER, 300).next_producer_epoch == 32767
    assert begun(100).fenced(NO_PRODUCER, 300).next_producer_epoch == -1


def test_a_retried_end_of_version_2_is_recognised_by_its_producer() -> None:
    """A retry is recognised if it comes from the producer that ended the transaction. A retry by
    another producer, or in version 1, is not recognised.
    """
    ended = begun(100).prepared_with_next_epoch(True, 200, no_id)
    for transaction in (ended, ended.completed(300)):
        assert transaction.producer_epoch == 4 and transaction.client_transaction_version == 2
        assert transaction.was_ended_by(ProducerIdAndEpoch(5, 3))
        assert not transaction.was_ended_by(ProducerIdAndEpoch(5, 4))
    of_kafka = ended._replace(previous_producer_id=-1, last_producer_epoch=-1)
    assert of_kafka.was_ended_by(ProducerIdAndEpoch(5, 3))
    assert not of_kafka.was_ended_by(ProducerIdAndEpoch(5, 2))
    of_version_1 = begun(100)._replace(client_transaction_version=2).prepared(True, 200)
    assert of_version_1.client_transaction_version == 0
    assert not of_version_1.was_ended_by(ProducerIdAndEpoch(5, 2))
    by_the_coordinator = begun(100)._replace(client_transaction_version=2).fenced(NO_PRODUCER, 200)
    assert not by_the_coordinator.was_ended_by(ProducerIdAndEpoch(5, 3))


def test_a_transaction_with_the_last_epoch_completes_with_a_new_producer_id() -> None:
    last = begun(100)._replace(producer_epoch=32766)
    ended = last.prepared_with_next_epoch(True, 200, lambda: 9)
    assert (ended.producer, ended.next_producer) == ((5, 32767), (9, 0))
    assert ended.partitions
    complete = ended.completed(300)
    assert (complete.producer, complete.next_producer_id) == ((9, 0), -1)
    assert not complete.partitions, "they are of the transaction that ended"
    assert begun(100).prepared(True, 200).completed(300).producer == (5, 3)


def test_a_new_session_has_no_transaction_version() -> None:
    ended = begun(100).prepared_with_next_epoch(True, 200, no_id).completed(300)
    session = ended.in_new_session(ProducerIdAndEpoch(5, 5), NO_PRODUCER, 60_000, 400)
    assert session.client_transaction_version == 0
    assert (session.state, session.start_ms) == (TransactionState.EMPTY, -1)
