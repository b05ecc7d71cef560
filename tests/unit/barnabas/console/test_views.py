"""The page's content, computed from snapshots of the broker."""

from __future__ import annotations

import pytest

from barnabas.broker.observe import (
    CommittedOffsetState,
    GroupState,
    OpenTransaction,
    PartitionState,
    TransactionalIdState,
)
from barnabas.console import views
from barnabas.console.spans import Span, Strip, Window
from barnabas.group_lag import Situation
from barnabas.why_stuck import WaitingGroup, sentence

NOW_MS = 1_800_000_000_000


def partition(
    topic: str, index: int, stable: int = 10, high: int = 10, *open_ones: OpenTransaction
) -> PartitionState:
    return PartitionState(topic, index, 0, stable, high, high, 100, 1, 1, open_ones)


def transaction(producer_id: int, first: int, epoch: int = 0) -> OpenTransaction:
    return OpenTransaction(producer_id, epoch, first, NOW_MS - 20_000)


def identity(
    name: str,
    producer_id: int,
    state: str = "Ongoing",
    age_ms: int | None = 500,
    partitions: tuple[tuple[str, int], ...] = (),
) -> TransactionalIdState:
    return TransactionalIdState(name, producer_id, 0, state, age_ms, 60_000, partitions)


def group(name: str, *offsets: CommittedOffsetState) -> GroupState:
    return GroupState(name, "Stable", 1, offsets, 0)


def broker(
    partitions: tuple[PartitionState, ...],
    ids: tuple[TransactionalIdState, ...] = (),
    groups: tuple[GroupState, ...] = (),
) -> views.Broker:
    return views.Broker(views.Observed(partitions, ids, groups, {"pay": "10.0.0.9"}, NOW_MS))


HELD = partition("orders", 1, 40, 100, transaction(7, 40), transaction(8, 60))
ORDERS = (("orders", 1),)


def test_topics_with_held_partitions_come_first_and_internal_topics_last() -> None:
    shown = broker(
        (
            partition("a", 0),
            partition("b", 1),
            partition("b", 0),
            partition("young", 0, 5, 6, transaction(9, 5)),
            partition("__transaction_state", 0),
            HELD,
        ),
        (
            identity("pay", 7, age_ms=10_000, partitions=ORDERS),
            identity("young", 9, partitions=(("young", 0),)),
        ),
    )
    assert list(shown.topics) == ["orders", "young", "a", "b", "__transaction_state"]
    assert [row.partition for row in shown.topics["b"]] == [0, 1]
    assert views.topic_names(shown, "", internal=False) == ["orders", "young", "a", "b"]
    assert views.topic_names(shown, "ORD", internal=False) == ["orders"]
    assert "__transaction_state" in views.topic_names(shown, "", internal=True)


@pytest.mark.parametrize(
    ("page", "rows", "shown"), [(0, [0, 1], 0), (2, [4], 2), (9, [4], 2), (-1, [0, 1], 0)]
)
def test_pages(page: int, rows: list[int], shown: int) -> None:
    found = views.page_of(range(5), page, 2)
    assert (list(found.rows), found.total, found.page, found.pages) == (rows, 5, shown, 3)


def test_an_empty_list_has_one_page() -> None:
    assert views.page_of([], 3, 10) == views.Page([], 0, 0, 1)


def test_of_many_partitions_the_first_and_the_held_are_shown_in_order() -> None:
    rows = [partition("orders", index) for index in range(9)]
    rows[7] = partition("orders", 7, 5, 9, transaction(7, 5))
    shown = broker(tuple(rows), (identity("pay", 7, partitions=(("orders", 7),)),))
    assert [row.partition for row in views.shown_partitions(shown, "orders")] == [0, 1, 7]


@pytest.mark.parametrize(
    ("state", "is_stuck"),
    [
        (identity("pay", 7, age_ms=9_999, partitions=ORDERS), False),
        (identity("pay", 7, age_ms=10_000, partitions=ORDERS), True),
        (identity("pay", 7, "CompleteAbort", None), True),
        (identity("other", 6), True),
    ],
)
def test_a_partition_is_stuck_if_its_transaction_is_old_or_hangs(
    state: TransactionalIdState, is_stuck: bool
) -> None:
    """A partition counts as stuck when its transaction is 10 seconds old, or when no coordinator
    knows an open transaction of its producer (the last two cases).
    """
    shown = broker((HELD,), (state,))
    assert shown.is_stuck(HELD) is is_stuck
    assert views.totals(shown)["held_partitions"] == 1
    assert views.totals(shown)["stuck_partitions"] == is_stuck


def test_an_open_transaction_with_what_it_holds() -> None:
    other = partition("payments", 0, 3, 5, transaction(7, 3))
    added = (*ORDERS, ("payments", 0), ("payments", 1))
    state = identity("pay", 7, age_ms=15_000, partitions=added)
    shown = broker((other, HELD), (state, identity("idle", 3, "Empty", None)))
    first, second = shown.open_transactions
    assert (second.producer_id, second.id_state) == (7, state), "the other one is older"
    row = views.transaction_value(second, shown)
    assert row["transactional_id"] == "pay" and row["client"] == "10.0.0.9"
    assert (row["age_ms"], row["ends_in_ms"], row["held"]) == (15_000, 45_000, 62)
    assert [(place["topic"], place["held"]) for place in row["places"]] == [
        ("orders", 60),
        ("payments", 2),
    ]
    assert row["with_no_data"] == [["payments", 1]] and row["partition_count"] == 3
    unknown = views.transaction_value(first, shown)
    assert (unknown["producer_id"], unknown["hanging"], unknown["held"]) == (8, True, 0)
    assert unknown["age_ms"] == 20_000, "only the time of its last batch is known"


def test_a_transaction_without_data_is_open_too() -> None:
    shown = broker((partition("orders", 1),), (identity("pay", 7, partitions=ORDERS),))
    (row,) = shown.open_transactions
    value = views.transaction_value(row, shown)
    assert (value["places"], value["with_no_data"], value["held"]) == ([], [["orders", 1]], 0)


def test_groups_that_wait_for_a_transaction_come_first_with_its_transactional_id() -> None:
    offset = CommittedOffsetState("orders", 1, 40, 60, situation=Situation.WAITS, held=60)
    waiting = group("kitchen", offset)
    behind = group("archive", CommittedOffsetState("b", 0, 1, 500))
    gone = group("gone", CommittedOffsetState("no-topic", 0, 1, None))
    shown = broker(
        (HELD, partition("b", 0)),
        (identity("pay", 7, age_ms=15_000, partitions=ORDERS),),
        (gone, behind, waiting),
    )
    assert [row.group_id for row in shown.groups_by_need] == ["kitchen", "archive", "gone"]
    (candidate,) = views.candidates(shown, shown.observed.groups)
    assert candidate[0] is waiting
    value = views.group_value(waiting, shown)
    (row,) = value["stuck"]
    assert (row["transactional_id"], row["holder_age_ms"], row["hanging"]) == ("pay", 15_000, False)
    assert value["status"] == (
        "60 behind, held back by an open transaction, and its members have no partitions"
    )
    assert views.group_value(behind, shown)["stuck"] == []


def test_a_group_beyond_the_last_stable_offset_does_not_wait_there() -> None:
    """Such a group evidently reads uncommitted records. `barnabas txn why-stuck` uses the same
    rule.
    """
    ahead = group("ahead", CommittedOffsetState("orders", 1, 41, 59))
    assert views.candidates(broker((HELD,), (), (ahead,)), (ahead,)) == []


def test_the_number_of_a_micro_batch_waits_for_nothing() -> None:
    sink = group("sink", CommittedOffsetState("orders", 1, 17, None, is_batch_number=True))
    assert views.candidates(broker((HELD,), (), (sink,)), (sink,)) == []


def strip(*spans: tuple[str, int, int]) -> Strip:
    window = Window("orders", 1, 0, 40, 100, 100, 40, (), (), ())
    rows = tuple(
        Span(kind, first, end, 1, 0 if kind == "gap" else end - first, 78, -1)
        for kind, first, end in spans
    )
    return Strip(window, rows, (), "")


def test_has_readable_tells_whether_committed_records_follow_an_offset() -> None:
    """A consumer that reads committed records finds nothing after offset 34: only a marker and
    aborted records follow.
    """
    shown = strip(("committed", 30, 34), ("commit", 34, 35), ("aborted", 35, 39), ("abort", 39, 40))
    assert views.has_readable(shown, 33)
    assert not views.has_readable(shown, 34), "a marker and aborted records are nothing"
    assert views.has_readable(shown, 29), "what is before the strip is not known"
    assert views.has_readable(strip(("plain", 38, 40)), 39)
    assert not views.has_readable(strip(), 0)


def test_the_sentence_names_transaction_client_and_groups() -> None:
    shown = broker((HELD,), (identity("pay", 7, age_ms=15_000, partitions=ORDERS),))
    waiting = [WaitingGroup("kitchen", "Stable", 40, True, ("cook at 10.0.0.5",))]
    words = sentence(views.answer_of(shown, HELD, waiting))
    assert "orders-1 is stuck at offset 40, 60 offsets before its end" in words
    assert "transactional id 'pay', producer 7 epoch 0 (at 10.0.0.9)" in words
    assert "Behind it 1 other transaction is open" in words
    assert "Group 'kitchen' (Stable with cook at 10.0.0.5) waits for it" in words


def test_the_sentence_of_one_that_hangs() -> None:
    words = sentence(views.answer_of(broker((HELD,)), HELD, []))
    assert "It hangs: no coordinator knows it" in words
    assert "txn abort orders-1 --start-offset 40" in words
