"""The sentence that explains why a partition is stuck, and the values in it."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.texts import time_text
from barnabas.why_stuck import Answer, OpenTransaction, WaitingGroup, as_data, sentence

NOW_MS = 1_800_000_000_000
PARTITION = TopicPartition("orders", 0)


def transaction(**changes: Any) -> OpenTransaction:
    """An open transaction of the transactional id `pay`. It is 10 s old, and its timeout is one
    minute.
    """
    return OpenTransaction(
        7, 2, 0, 100, NOW_MS - 9000, "pay", "Ongoing", 2, NOW_MS - 10_000, 60_000, False
    )._replace(**changes)


def answer(*transactions: OpenTransaction, groups: tuple[WaitingGroup, ...] = ()) -> Answer:
    """An answer about orders-0, with a last stable offset of 100 and an end offset of 150."""
    return Answer(PARTITION, 100, 150, transactions, groups, NOW_MS)


def test_not_stuck() -> None:
    not_stuck = Answer(PARTITION, 150, 150, (), (), NOW_MS)
    assert not not_stuck.is_stuck
    assert sentence(not_stuck) == "orders-0 is not stuck: its last stable offset is its end, 150."


def test_ongoing_transaction_ends_by_its_timeout() -> None:
    text = sentence(answer(transaction()))
    assert "stuck at offset 100, 50 offsets before its end" in text
    assert "transactional id 'pay', producer 7 epoch 2" in text
    assert f"since {time_text(NOW_MS - 10_000)} (10 s), in state Ongoing" in text
    assert (
        f"timeout of 1 min, when its coordinator aborts it, at {time_text(NOW_MS + 50_000)}" in text
    )
    assert "(in 50 s)" in text
    assert text.endswith("No group waits for it.")


def test_a_transaction_in_another_partition_holds_back_a_topic_with_whole_transactions() -> None:
    other = TopicPartition("payments", 3)
    younger = transaction(transactional_id="refund", start_offset=7)
    held = answer()._replace(elsewhere=((other, transaction(start_offset=3)), (other, younger)))
    text = sentence(held)
    assert text.startswith("orders-0 is stuck at offset 100, 50 offsets before its end")
    assert "barnabas.transactions.whole" in text
    assert "transactional id 'pay', producer 7 epoch 2" in text
    assert f"is open on payments-3 since {time_text(NOW_MS - 10_000)} (10 s)" in text
    assert "timeout of 1 min" in text and "Also open in such topics: refund on payments-3." in text
    (first, _) = as_data(held)["elsewhere"]
    assert (first["topic"], first["partition"], first["start_offset"]) == ("payments", 3, 3)
    hanging = held._replace(elsewhere=((other, transaction(start_offset=3, is_hanging=True)),))
    assert "`barnabas txn abort payments-3 --start-offset 3` does" in sentence(hanging)


def test_a_transaction_of_the_partition_itself_comes_first() -> None:
    other = (TopicPartition("payments", 3), transaction(transactional_id="other"))
    held = answer(transaction())._replace(elsewhere=(other,))
    assert not held.is_held_elsewhere and "other" not in sentence(held)
    assert as_data(held)["elsewhere"] == []


def test_timeout_that_is_over() -> None:
    text = sentence(answer(transaction(started_ms=NOW_MS - 90_000)))
    assert f"Its timeout of 1 min was over at {time_text(NOW_MS - 30_000)}" in text


@pytest.mark.parametrize(
    ("state", "text"),
    [("PrepareCommit", "Its commit is decided"), ("PrepareAbort", "Its abort is")],
)
def test_decided_transaction_waits_for_its_marker(state: str, text: str) -> None:
    assert text in sentence(answer(transaction(state=state)))
    assert transaction(state=state).ends_ms == -1


def test_hanging_transaction_has_a_command() -> None:
    text = sentence(answer(transaction(is_hanging=True, state="CompleteCommit")))
    assert "It hangs: its coordinator says CompleteCommit" in text
    assert "`barnabas txn abort orders-0 --start-offset 100`" in text
    unknown = transaction(transactional_id=None, state=None, is_hanging=True, started_ms=-1)
    text = sentence(answer(unknown))
    assert "no coordinator knows it" in text
    assert f"since {time_text(NOW_MS - 9000)}" in text, "its last record's time is all there is"


def test_groups_and_transactions_behind() -> None:
    groups = (
        WaitingGroup("kitchen", "Stable", 100, True, ("cook at 10.0.0.5",)),
        WaitingGroup("archive", "Empty", 40, False, ()),
    )
    text = sentence(answer(transaction(), transaction(start_offset=120), groups=groups))
    assert "Behind it 1 other transaction is open" in text
    assert "Group 'kitchen' (Stable with cook at 10.0.0.5) waits for it" in text
    assert "Not there yet, or without a committed offset: 'archive'" in text


def test_the_address_of_the_client_where_it_is_known() -> None:
    assert "producer 7 epoch 2 (its client's address is not known)" in sentence(
        answer(transaction())
    )
    text = sentence(answer(transaction(client_address="10.0.0.9")))
    assert "producer 7 epoch 2 (at 10.0.0.9), is open there" in text


def test_data_for_programs() -> None:
    not_stuck = as_data(answer(transaction()))
    (row,) = not_stuck["transactions"]
    assert (not_stuck["stuck"], row["timeout_at_ms"], row["client_address"]) == (
        True,
        NOW_MS + 50_000,
        None,
    )
