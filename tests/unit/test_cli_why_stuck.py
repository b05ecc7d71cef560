"""`barnabas txn why-stuck`: what the cluster tells, in words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.cli.output import time_text
from barnabas.cli.why_stuck import (
    Answer,
    OpenTransaction,
    WaitingGroup,
    as_data,
    find_open_transactions,
    sentence,
)
from barnabas.protocol.topic_partition import TopicPartition

NOW_MS = 1_800_000_000_000
PARTITION = TopicPartition("orders", 0)


def transaction(**changes: Any) -> OpenTransaction:
    """An open transaction of the transactional id `pay`, 10 s old, with a timeout of a minute."""
    return OpenTransaction(
        7, 2, 0, 100, NOW_MS - 9000, "pay", "Ongoing", 2, NOW_MS - 10_000, 60_000, False
    )._replace(**changes)


def answer(*transactions: OpenTransaction, groups: tuple[WaitingGroup, ...] = ()) -> Answer:
    """What is told of orders-0, whose last stable offset is 100 of 150."""
    return Answer(PARTITION, 100, 150, transactions, groups, NOW_MS)


def test_not_stuck() -> None:
    told = Answer(PARTITION, 150, 150, (), (), NOW_MS)
    assert not told.is_stuck
    assert sentence(told) == "orders-0 is not stuck: its last stable offset is its end, 150."


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


def test_data_for_programs() -> None:
    told = as_data(answer(transaction()))
    (row,) = told["transactions"]
    assert (told["stuck"], row["timeout_at_ms"], row["client_address"]) == (
        True,
        NOW_MS + 50_000,
        None,
    )


class FakeAdmin:
    """An admin client of a cluster with one producer on orders-0."""

    def __init__(self, listed: str | None, **told: Any) -> None:
        self.listed = listed
        self.told = told

    def describe_producers(self, partitions: list[Any]) -> dict[Any, Any]:
        producers = [
            SimpleNamespace(
                producer_id=7,
                producer_epoch=2,
                coordinator_epoch=3,
                last_timestamp=5,
                current_transaction_start_offset=start,
            )
            for start in (100, -1)
        ]
        return {partitions[0]: SimpleNamespace(active_producers=producers)}

    def list_transactions(self, producer_id_filters: list[int]) -> dict[int, list[Any]]:
        assert producer_id_filters == [7]
        row = SimpleNamespace(producer_id=7, transactional_id=self.listed)
        return {1: [row] if self.listed else []}

    def describe_transactions(self, names: list[str]) -> dict[str, Any]:
        told = {
            "state": "Ongoing",
            "producer_epoch": 2,
            "transaction_start_time_ms": 1,
            "transaction_timeout_ms": 60_000,
            "topic_partitions": {("orders", 0)},
            **self.told,
        }
        return {name: SimpleNamespace(**told) for name in names}


@pytest.mark.parametrize(
    ("admin", "is_hanging"),
    [
        (FakeAdmin("pay"), False),
        (FakeAdmin("pay", state="PrepareAbort", producer_epoch=3), False),
        (FakeAdmin("pay", state="CompleteAbort"), True),
        (FakeAdmin("pay", topic_partitions={("orders", 1)}), True),
        (FakeAdmin("pay", producer_epoch=1), True),
        (FakeAdmin(None), True),
    ],
)
def test_transaction_hangs_where_its_coordinator_will_not_end_it(
    admin: FakeAdmin, is_hanging: bool
) -> None:
    (found,) = find_open_transactions(admin, PARTITION)
    assert (found.start_offset, found.coordinator_epoch) == (100, 3)
    assert found.is_hanging is is_hanging
