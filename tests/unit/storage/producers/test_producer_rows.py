"""Snapshots of many producers. Unchanged rows stay packed, and the rows are the same as if all
producers were packed again. The expected rows are packed one by one, as for few producers.
"""

from __future__ import annotations

import random

import pytest

from barnabas.storage.producers import producer_rows, producer_state
from barnabas.storage.producers.producer_state import (
    COUNT,
    HEAD,
    PRODUCER,
    ProducerEntry,
    ProducerStateManager,
)

NOW_MS = 1_760_000_000_000


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "FEWEST_PRODUCERS", 3)
    monkeypatch.setattr(producer_rows, "MOST_CHANGED", 2)


def wrote(
    state: ProducerStateManager, producer_id: int, *, is_open: bool = False, now_ms: int = NOW_MS
) -> None:
    entry = state.producers.get(producer_id)
    sequence = 0 if entry is None else entry.last_sequence + 1
    offset = state.end_offset
    state.on_batch(producer_id, 0, sequence, sequence, offset, offset, offset, is_open, now_ms)


def ended(state: ProducerStateManager, producer_id: int) -> None:
    state.on_marker(producer_id, 0, 4, True, state.end_offset, 9, NOW_MS)


def rows(snapshot: bytes) -> dict[int, tuple[int, ...]]:
    """The rows by producer id. Checks that each producer has one row."""
    given = [*PRODUCER.iter_unpack(snapshot[HEAD.size + COUNT.size :])]
    assert COUNT.unpack_from(snapshot, HEAD.size) == (len(given),)
    assert len({row[0] for row in given}) == len(given)
    return {row[0]: row for row in given}


def check(state: ProducerStateManager) -> ProducerStateManager:
    """Check that the snapshot equals the current state. Gives the decoded snapshot."""
    snapshot = state.encode_snapshot()
    packed_again = {
        producer_id: PRODUCER.unpack(entry.packed())
        for producer_id, entry in state.producers.items()
    }
    assert rows(snapshot) == packed_again
    again = ProducerStateManager.decode_snapshot(snapshot, state.end_offset, NOW_MS)
    assert again.open_txns == state.open_txns
    assert again.encode_snapshot() == snapshot
    return again


def some(count: int) -> ProducerStateManager:
    state = ProducerStateManager()
    for producer_id in range(count):
        wrote(state, producer_id, is_open=producer_id == 1)
    return state


def test_a_snapshot_has_what_changed_since_the_last_one() -> None:
    state = some(5)
    assert rows(check(state).encode_snapshot())[2][2] == 0
    wrote(state, 2)
    assert rows(state.encode_snapshot())[2][2] == 1
    wrote(state, 2)
    wrote(state, 4)
    wrote(state, 9)
    check(state)


def test_a_marker_that_is_packed_at_once_has_ended_its_transaction() -> None:
    state = some(5)
    state.encode_snapshot()
    wrote(state, 0)
    ended(state, 1)  # the second change, at which both rows are packed
    assert rows(state.encode_snapshot())[1][-1] == -1
    assert not check(state).open_txns


def test_producers_that_expired_have_no_row_any_more() -> None:
    state = some(4)
    for producer_id in (7, 5, 0, 6):
        wrote(state, producer_id, now_ms=NOW_MS + 10)
    assert state.expire(NOW_MS + 10, 10) == 2, "one wrote again, one has a transaction open"
    assert sorted(rows(check(state).encode_snapshot())) == [0, 1, 5, 6, 7]
    wrote(state, 2)
    assert sorted(rows(check(state).encode_snapshot())) == [0, 1, 2, 5, 6, 7]


def test_rows_are_made_again_where_there_are_many_again() -> None:
    state = some(5)
    state.encode_snapshot()
    assert state.expire(NOW_MS + 10, 10) == 4
    check(state)
    for producer_id in (8, 3, 9):
        wrote(state, producer_id)
        check(state)


def test_what_was_read_goes_on_where_the_snapshot_ended() -> None:
    state = check(some(6))
    wrote(state, 3)
    wrote(state, 11)
    assert state.expire(NOW_MS + 10, 10, most=2) == 2
    check(state)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_comes_a_snapshot_says_what_all_rows_packed_again_say(seed: int) -> None:
    """Producers begin, write, end transactions and expire in random order. Some states have few
    producers, and some have many.
    """
    chance = random.Random(seed)
    state = ProducerStateManager()
    for step in range(60):
        now_ms = NOW_MS + step
        match chance.choice(("wrote", "wrote", "transaction", "expire", "snapshot")):
            case "wrote":
                wrote(state, chance.randrange(8), now_ms=now_ms)
            case "transaction":
                producer_id = chance.randrange(8)
                wrote(state, producer_id, is_open=True, now_ms=now_ms)
                ended(state, producer_id)
            case "expire":
                state.expire(now_ms, chance.randrange(1, 12), most=chance.randrange(1, 4))
            case "snapshot":
                check(state)
    check(state)


def test_so_many_as_take_a_millisecond_are_packed_at_once_and_each_change_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a result, the snapshot at a roll has fewer rows to pack."""
    monkeypatch.setattr(producer_rows, "MOST_CHANGED", 3)
    state = some(6)
    state.encode_snapshot()
    count = 0
    packed = ProducerEntry.packed

    def counted(entry: ProducerEntry) -> bytes:
        nonlocal count
        count += 1
        return packed(entry)

    monkeypatch.setattr(ProducerEntry, "packed", counted)
    counts = []
    for producer_id in (0, 2, 2, 3, 4):
        wrote(state, producer_id)
        counts.append(count)
    assert counts == [0, 0, 0, 3, 3]
    for _ in range(2):
        state.encode_snapshot()
        assert count == 4


def test_a_producer_that_goes_before_it_has_a_row_leaves_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producer_rows, "MOST_CHANGED", 100)
    state = some(5)
    before = rows(state.encode_snapshot())
    wrote(state, 9, now_ms=NOW_MS - 100)
    assert state.expire(NOW_MS, 50) == 1
    assert rows(check(state).encode_snapshot()) == before
