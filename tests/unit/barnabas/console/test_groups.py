"""Groups as the page shows them: their progress as a word, and a share group's records in
flight.
"""

from __future__ import annotations

from typing import Any

import pytest
from helpers.disk_broker import DiskBroker
from helpers.share_member import ACCEPT, REJECT, RELEASE, SHARED, ShareMember, begin_group

from barnabas.broker import observe_groups
from barnabas.broker.observe import CommittedOffsetState, GroupState
from barnabas.console.groups import (
    partition_progress,
    progress_of,
)
from barnabas.console.history import NO_TREND

BEHIND = CommittedOffsetState("orders", 0, 4, 6)
AT_END = CommittedOffsetState("orders", 1, 4, 0)
BATCH = CommittedOffsetState("orders", 0, 17, None, is_batch_number=True)


@pytest.mark.parametrize(
    ("offsets", "members", "grows", "moves", "word"),
    [
        ((BATCH,), 0, False, None, "bookkeeping"),
        ((BATCH, BEHIND), 0, False, None, "no members"),
        ((AT_END,), 0, False, None, "up to date"),
        ((), 1, False, None, "up to date"),
        ((BEHIND,), 0, True, None, "grows"),
        ((BEHIND,), 1, True, True, "grows"),
        ((BEHIND,), 0, False, True, "no members"),
        ((BEHIND, AT_END), 1, False, None, "unknown"),
        ((BEHIND,), 1, False, True, "moves"),
        ((BEHIND,), 1, False, False, "rests"),
    ],
)
def test_progress_of_a_group(
    offsets: tuple[CommittedOffsetState, ...], members: int, grows: bool, moves: bool, word: str
) -> None:
    """`grows` and `moves` are trends of the group's lag and offsets; `moves` is None if there are
    too few samples. BATCH is the number of a Spark sink's micro-batch, not an offset in a
    partition.
    """
    group = GroupState("kitchen", "Stable", members, offsets, 0)
    assert progress_of(group, NO_TREND._replace(grows=grows, moves=moves)) == word


@pytest.mark.parametrize(
    ("row", "members", "has_moved", "word"),
    [
        (BATCH, 1, True, "bookkeeping"),
        (AT_END, 0, False, "up to date"),
        (BEHIND, 0, True, "no members"),
        (BEHIND, 1, True, "moves"),
        (BEHIND, 1, False, "rests"),
    ],
)
def test_progress_in_a_partition(
    row: CommittedOffsetState, members: int, has_moved: bool, word: str
) -> None:
    group = GroupState("kitchen", "Stable", members, (row,), 0)
    assert partition_progress(group, row, has_moved=has_moved) == word


def in_flight(b: DiskBroker, group: str) -> list[tuple[Any, ...]]:
    """The records in flight of a share group, as the page shows them. The description is a
    generator (it runs in steps); its return value has the rows.
    """
    look = observe_groups.describe_in_flight(
        b.broker.shares.get(), b.broker.topics, group, b.now_ms
    )
    while True:
        try:
            next(look)
        except StopIteration as end:
            rows: list[dict[str, Any]] = end.value
            break
    keys = ("topic", "first_offset", "last_offset", "state", "delivery_count", "member_id")
    return [tuple(row[key] for key in keys) for row in rows]


def test_what_members_of_a_share_group_hold() -> None:
    b = DiskBroker(**SHARED)
    b.topic("t")
    for number in range(6):
        b.produce("t", (b"%d" % number,))
    begin_group(b, "g", "t")
    assert in_flight(b, "g") == [] and in_flight(b, "none") == []
    one, two = ShareMember(b, "g", "one"), ShareMember(b, "g", "two")
    one.take("t", max_records=2, batch_size=2)
    two.take("t", max_records=3, batch_size=3)
    first = one.take("t", max_records=1, batch_size=1)
    assert one.acknowledge("t", (0, 0, RELEASE), (1, 1, REJECT)) == 0
    assert first == [(5, 5, 1)]
    assert in_flight(b, "g") == [
        ("t", 0, 0, "waiting", 1, None),
        ("t", 1, 1, "given up", 1, None),
        ("t", 2, 4, "held", 1, "two"),
        ("t", 5, 5, "held", 1, "one"),
    ]
    assert two.acknowledge("t", (3, 3, ACCEPT)) == 0
    assert two.take("t", max_records=1, batch_size=1) == [(0, 0, 2)]
    rows = in_flight(b, "g")
    assert rows[0] == ("t", 0, 0, "held", 2, "two") and rows[3] == ("t", 3, 3, "done", 1, None)


def test_the_rows_of_a_share_group_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe_groups, "MOST_RUNS", 3)
    b = DiskBroker(**SHARED)
    b.topic("t")
    for number in range(6):
        b.produce("t", (b"%d" % number,))
    begin_group(b, "g", "t")
    member = ShareMember(b, "g", "one")
    for _ in range(5):
        member.take("t", max_records=1, batch_size=1)
    assert len(in_flight(b, "g")) == 3
