"""Producers as a partition knows them: what is remembered of an epoch ends with it.

Source: KIP-98 (a new epoch begins with sequence 0), KIP-360, Apache Kafka's ProducerStateManager: a
repeated batch is one of the last five of the same epoch.
"""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import Code, KafkaError
from barnabas.storage.producer_state import ProducerStateManager

NOW_MS = 1_760_000_000_000
PID = 7


def wrote(state: ProducerStateManager, epoch: int, sequence: int) -> None:
    """One record."""
    offset = state.end_offset
    state.on_batch(PID, epoch, sequence, sequence, offset, offset, NOW_MS, True, NOW_MS)


def is_repeated(state: ProducerStateManager, epoch: int, sequence: int) -> bool:
    """Whether a batch of one record passes for one that is there already. Raises KafkaError."""
    return state.check_batch(PID, epoch, sequence, sequence, True, lambda _: None) is not None


def marked(
    state: ProducerStateManager, epoch: int, *, commit: bool = False, coordinator_epoch: int = 0
) -> None:
    state.on_marker(PID, epoch, coordinator_epoch, commit, state.end_offset, NOW_MS, NOW_MS)


def is_out_of_order(state: ProducerStateManager, epoch: int, sequence: int) -> bool:
    with pytest.raises(KafkaError) as refused:
        is_repeated(state, epoch, sequence)
    return refused.value.code is Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_does_not_take_its_batches_for_those_of_the_former() -> None:
    """Batch 3 that comes without 1 and 2 is out of order. If it passed for batch 3 of the former
    epoch, it would be acknowledged and lost.
    """
    state = ProducerStateManager()
    for sequence in range(4):
        wrote(state, 0, sequence)
    assert is_repeated(state, 0, 2)
    wrote(state, 1, 0)
    assert is_repeated(state, 1, 0)
    for sequence in (2, 3):
        assert is_out_of_order(state, 1, sequence)
    for sequence in (1, 2, 3):
        assert not is_repeated(state, 1, sequence)
        wrote(state, 1, sequence)


def test_a_marker_with_a_new_epoch_ends_what_is_remembered() -> None:
    """The coordinator fences with a marker of the next epoch, which may be the first that a log
    hears of it.
    """
    state = ProducerStateManager()
    for sequence in range(3):
        wrote(state, 0, sequence)
    marked(state, 1)
    assert is_out_of_order(state, 1, 2)
    for sequence in range(3):
        assert not is_repeated(state, 1, sequence)
        wrote(state, 1, sequence)


def test_a_marker_of_the_same_epoch_leaves_what_is_remembered() -> None:
    """The answer to the last batch may have been lost although its transaction has ended."""
    state = ProducerStateManager()
    wrote(state, 0, 0)
    marked(state, 0, commit=True)
    assert is_repeated(state, 0, 0)
    assert not is_repeated(state, 0, 1)


def test_the_last_five_batches_are_remembered_and_no_more() -> None:
    state = ProducerStateManager()
    for sequence in range(7):
        wrote(state, 0, sequence)
    for sequence in range(2, 7):
        assert is_repeated(state, 0, sequence)
    assert is_out_of_order(state, 0, 1)
