"""What a group waits for, how far it is behind, and why."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.group_lag import (
    AT_REST,
    Bounds,
    GroupPosition,
    PartitionLag,
    Situation,
    has_unread,
    partition_lag,
    share_lag,
    status,
    total_lag,
)
from barnabas.protocol.records import BASE_OFFSET, NewRecord, encode_batch, encode_marker

BEGIN, STABLE, END = 10, 40, 100
HELD = Bounds(BEGIN, STABLE, END)  # a transaction is open at 40
WHOLE = Bounds(BEGIN, END, END)


@pytest.mark.parametrize(
    ("place", "situation", "lag", "held"),
    [
        (GroupPosition(7, WHOLE, is_batch_number=True), Situation.BATCH_NUMBER, None, 0),
        (GroupPosition(7, None), Situation.UNKNOWN, None, 0),
        (GroupPosition(None, WHOLE), Situation.NEVER_COMMITTED, 90, 0),
        (GroupPosition(None, WHOLE, has_unread=False), Situation.NEVER_COMMITTED, 0, 0),
        (GroupPosition(None, HELD), Situation.NEVER_COMMITTED, 90, 60),
        (GroupPosition(None, HELD, has_unread=False), Situation.WAITS, 60, 60),
        (GroupPosition(None, Bounds(0, 0, 0)), Situation.NEVER_COMMITTED, 0, 0),
        (GroupPosition(3, WHOLE), Situation.BEFORE_START, 90, 0),
        (GroupPosition(3, Bounds(10, 10, 10)), Situation.BEFORE_START, 0, 0),
        (GroupPosition(101, WHOLE), Situation.BEYOND_END, 0, 0),
        (GroupPosition(101, HELD), Situation.BEYOND_END, 0, 0),
        (GroupPosition(100, WHOLE), Situation.UP_TO_DATE, 0, 0),
        (GroupPosition(99, WHOLE, has_unread=False), Situation.UP_TO_DATE, 0, 0),
        (GroupPosition(40, HELD), Situation.WAITS, 60, 60),
        (GroupPosition(38, HELD, has_unread=False), Situation.WAITS, 60, 60),
        (GroupPosition(38, HELD), Situation.BEHIND, 62, 60),
        (GroupPosition(41, HELD), Situation.BEHIND, 59, 0),
        (GroupPosition(100, HELD), Situation.UP_TO_DATE, 0, 0),
        (GroupPosition(10, WHOLE), Situation.BEHIND, 90, 0),
    ],
)
def test_the_situation_of_a_group_in_a_partition(
    place: GroupPosition, situation: Situation, lag: int | None, held: int
) -> None:
    found = partition_lag(place, is_assigned=True)
    assert found == PartitionLag(situation, lag, held, is_assigned=True)


def test_the_situation_of_a_share_group_in_a_partition() -> None:
    lags = [
        share_lag(*row, is_assigned=True)[:2] for row in ((None, None), (0, None), (0, 3), (3, 0))
    ]
    assert lags == [
        (Situation.NOT_STARTED, None),
        (Situation.UNKNOWN, None),
        (Situation.BEHIND, 3),
        (Situation.UP_TO_DATE, 0),
    ]


def row(situation: Situation, lag: int | None, held: int = 0, *, read: bool = True) -> PartitionLag:
    return PartitionLag(situation, lag, held, read)


NEVER, BEHIND, DONE = Situation.NEVER_COMMITTED, Situation.BEHIND, Situation.UP_TO_DATE


@pytest.mark.parametrize(
    ("rows", "members", "text"),
    [
        ([], 0, "no members, no committed offsets"),
        ([], 2, "no committed offsets yet, its members have no partitions"),
        ([row(Situation.BATCH_NUMBER, None)], 0, "batch numbers of a Spark sink: no lag"),
        ([row(Situation.BATCH_NUMBER, None), row(BEHIND, 3)], 1, "3 behind"),
        ([row(DONE, 0)], 1, "up to date"),
        ([row(DONE, 0, read=False)], 0, "up to date"),
        ([row(NEVER, 10_000)], 1, "nothing committed: up to 10,000 wait"),
        ([row(NEVER, 0)], 1, "nothing committed, none waits"),
        ([row(NEVER, 5), row(DONE, 0)], 1, "5 behind, nothing committed in 1 partition"),
        ([row(NEVER, 0), row(DONE, 0)], 1, "nothing committed in 1 partition"),
        ([row(NEVER, 9, 4)], 1,
         "nothing committed: up to 9 wait, 4 of them held back by an open transaction"),
        ([row(BEHIND, 6331, read=False)], 0, "6,331 behind, and no member continues"),
        ([row(Situation.WAITS, 5, 5)], 1, "5 behind, held back by an open transaction"),
        ([row(Situation.WAITS, 5, 5), row(BEHIND, 7)], 1,
         "12 behind, 5 of them held back by an open transaction"),
        ([row(BEHIND, 5, read=False)], 2, "5 behind, and its members have no partitions"),
        ([row(BEHIND, 5, read=False), row(BEHIND, 2)], 2,
         "7 behind, 5 of them in partitions that no member reads"),
        ([row(Situation.BEYOND_END, 0)], 1, "its offset is beyond the end of 1 partition"),
        ([row(Situation.BEFORE_START, 4)], 1,
         "4 behind, records that it had not read were deleted in 1 partition"),
        ([row(Situation.UNKNOWN, None)], 1, "no lag is known in 1 partition"),
        ([row(Situation.NOT_STARTED, None), row(Situation.NOT_STARTED, None)], 1,
         "no record of 2 partitions delivered yet"),
    ],
)  # fmt: skip
def test_what_is_said_of_a_group(rows: list[PartitionLag], members: int, text: str) -> None:
    assert status("Stable" if members else "Empty", members, False, rows) == text


def test_a_group_without_members_that_only_commits_may_have_readers() -> None:
    assert status("Empty", 0, True, [row(BEHIND, 5, read=False)]) == "5 behind"


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Reconciling"])
def test_members_without_partitions_may_be_rebalancing(state: str) -> None:
    text = status(state, 1, False, [row(BEHIND, 5, read=False)])
    assert text == "5 behind, and its members are rebalancing"


@given(
    st.lists(
        st.builds(
            PartitionLag,
            st.sampled_from(Situation),
            st.integers(1, 5),
            st.integers(0, 1),
            st.booleans(),
        ),
        min_size=1,
    ),
    st.integers(0, 2),
)
def test_a_group_that_something_waits_for_is_never_called_up_to_date(
    rows: list[PartitionLag], members: int
) -> None:
    rows = [one for one in rows if one.situation != Situation.BATCH_NUMBER]
    if total_lag(rows):
        assert status("Stable", members, False, rows) not in AT_REST


# --- markers and aborted records ------------------------------------------------------------------


def log_of(*entries: tuple[str, int]) -> tuple[bytes, list[tuple[int, int]], list[int]]:
    """A log of `record` (not transactional), `data`, `commit` and `abort` of producers. Gives: its
    bytes, its aborted transactions, and the offsets that readers of committed data get.
    """
    data = bytearray()
    aborted: list[tuple[int, int]] = []
    open_since: dict[int, list[int]] = {}
    readable: list[int] = []
    for offset, (kind, producer) in enumerate(entries):
        if kind in ("record", "data"):
            batch = encode_batch(
                [NewRecord(None, b"v", 1)],
                base_offset=offset,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=0,
                transactional=kind == "data",
            )
            if kind == "data":
                open_since.setdefault(producer, []).append(offset)
            else:
                readable.append(offset)
        else:
            batch = bytearray(
                encode_marker(
                    commit=kind == "commit",
                    producer_id=producer,
                    producer_epoch=0,
                    coordinator_epoch=0,
                    timestamp=1,
                )
            )
            BASE_OFFSET.pack_into(batch, 0, offset)
            offsets = open_since.pop(producer, [])
            if kind == "commit":
                readable += offsets
            elif offsets:
                aborted.append((producer, offsets[0]))
        data += batch
    return bytes(data), aborted, readable


@given(st.data())
def test_markers_and_aborted_records_are_nothing_to_read(draw: st.DataObject) -> None:
    """Compared with a model, for each offset from which a group may continue."""
    entries = draw.draw(
        st.lists(
            st.tuples(st.sampled_from(["record", "data", "commit", "abort"]), st.integers(1, 2)),
            min_size=1,
            max_size=12,
        )
    )
    # producers without an id write plain records; all transactions have ended
    entries = [(kind, -1 if kind == "record" else producer) for kind, producer in entries]
    entries += [("commit", 1), ("abort", 2)]
    data, aborted, readable = log_of(*entries)
    for start in range(len(entries) + 1):
        expected = any(offset >= start for offset in readable)
        assert has_unread(data, aborted, start, len(entries)) == expected, start


def test_a_part_that_is_not_read_may_have_records() -> None:
    data, aborted, _ = log_of(("data", 1), ("abort", 1), ("commit", 1))
    assert not has_unread(data, aborted, 0, 3)
    assert has_unread(data, aborted, 0, 4)
    assert has_unread(data[:-1], aborted, 0, 3)
    assert has_unread(b"", [], 0, 1)
