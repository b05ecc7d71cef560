"""Which batches are taken for written: the rules, their words, and the file in the checkpoint that
outlives a group.
"""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from barnabas.spark_connector.deduplication import (
    COLUMN,
    SKIP,
    WRITE,
    CommitNote,
    CommittedBatch,
    Decision,
    UncertainBatchError,
    decide_batch_write,
    decide_by_number,
    decide_micro_batch,
    parse_note,
)


def stream(
    committed: dict[str, CommittedBatch],
    batch_id: int,
    *,
    target: str = "t",
    plan: str = "p",
    told: str = "",
    on_uncertain: str = "fail",
) -> Decision:
    note = CommitNote("batch N", target, plan)
    return decide_micro_batch(
        committed, batch_id, note, ["t"], published_before=lambda: told, on_uncertain=on_uncertain
    )


def write(
    committed: dict[str, CommittedBatch],
    batch_id: int,
    *topics: str,
    target: str = "",
    origin: str = "",
    on_uncertain: str = "fail",
) -> Decision:
    note = CommitNote("write N", target or topics[0], origin=origin)
    return decide_batch_write(committed, batch_id, note, topics, on_uncertain=on_uncertain)


def has(next_batch_id: int, target: str = "t", plan: str = "p", origin: str = "") -> CommittedBatch:
    return CommittedBatch(next_batch_id, CommitNote("earlier", target, plan, origin))


def test_a_note_comes_back_from_its_text() -> None:
    note = CommitNote("batch 5 of query ä", COLUMN, "abc", "batch 1 of query q")
    assert parse_note(note.to_text()) == note
    assert parse_note(CommitNote("x").to_text()) == CommitNote("x")
    for text in ("batch 5 of query q", "[1]", "7", None):
        assert parse_note(text) == CommitNote(text or "")


def test_the_last_micro_batch_is_recognised_and_the_next_is_new() -> None:
    assert stream({}, 0) == WRITE
    assert stream({"t": has(5)}, 4) == SKIP
    assert stream({"t": has(5)}, 5) == stream({"t": has(5)}, 9) == WRITE
    assert stream({"t": has(3), "u": has(5)}, 4) == SKIP, (
        "the group's highest number counts, wherever it was written"
    )
    assert stream({"t": CommittedBatch(5, CommitNote("of an earlier release"))}, 4) == SKIP


def test_a_query_goes_on_under_another_topic() -> None:
    assert stream({"old": has(5, "old")}, 5) == WRITE
    assert stream({"old": has(5, "old")}, 4) == SKIP, (
        "the same plan: these rows are in the former topic"
    )
    assert stream({"old": has(5, "old"), "t": has(3)}, 5) == WRITE, "and back"


@pytest.mark.parametrize(
    ("committed", "batch_id", "plan", "says"),
    [
        (
            has(11),
            6,
            "p",
            "batch 10 of this query is committed already, and Spark repeats no batch but its last",
        ),
        (has(7), 6, "q", "committed already, to topic 't', and it was planned another time"),
        (has(7, "u"), 6, "q", "committed already, to topic 'u', and it was planned another time"),
        (
            has(7, "u", ""),
            6,
            "",
            "committed already, to topic 'u', and this one goes elsewhere, to topic 't'",
        ),
        (
            has(7, COLUMN, ""),
            6,
            "",
            "committed already, to the topics in its column, and this one goes elsewhere",
        ),
    ],
)
def test_an_older_or_a_copied_checkpoint_is_in_doubt(
    committed: CommittedBatch, batch_id: int, plan: str, says: str
) -> None:
    with pytest.raises(UncertainBatchError) as raised:
        stream({"t": committed}, batch_id, plan=plan)
    assert says in str(raised.value)
    assert "onUncertainBatch=write" in str(raised.value) and "onUncertainBatch=skip" in str(
        raised.value
    )
    lowered = frozenset({"t"}) if committed.next_batch_id > batch_id + 1 else frozenset()
    assert stream({"t": committed}, batch_id, plan=plan, on_uncertain="write") == Decision(
        True, True, lowered
    )
    assert stream({"t": committed}, batch_id, plan=plan, on_uncertain="skip") == SKIP


def test_a_group_that_forgot_is_in_doubt() -> None:
    with pytest.raises(
        UncertainBatchError,
        match=r"the checkpoint says that it did, .*offsets\.retention\.minutes.*onUncertainBatch",
    ):
        stream({}, 3, told="it did")
    assert stream({}, 3, told="it did", on_uncertain="write") == WRITE
    assert stream({}, 3, told="it did", on_uncertain="skip") == Decision(
        False, True, frozenset({"t"})
    ), "the number is known again"


def test_a_write_is_known_by_its_topic() -> None:
    assert write({}, 0, "t") == WRITE
    assert write({"t": has(1)}, 0, "t") == SKIP
    assert write({"t": has(1)}, 0, "u") == WRITE, "the second topic of a foreachBatch"
    assert write({"t": has(9), "u": has(3, "u")}, 3, "u") == WRITE
    assert write({"t": has(9)}, 3, "t") == SKIP


def test_writes_with_a_column_are_known_by_all_their_topics() -> None:
    both = {"t": has(1, COLUMN), "u": has(1, COLUMN)}
    assert write(both, 0, "t", "u", target=COLUMN) == write(both, 0, "u", target=COLUMN) == SKIP
    assert write(both, 1, "t", target=COLUMN) == WRITE
    assert write({"t": has(1)}, 0, "u", target=COLUMN) == WRITE, (
        "a write with the option topic is another one"
    )
    for topics in (("v",), ("t", "v")):
        with pytest.raises(
            UncertainBatchError,
            match="two writes whose rows have their topic in a column need a writeId each",
        ):
            write(both, 0, *topics, target=COLUMN)
    for committed, target in ((both, "t"), ({"t": has(1)}, COLUMN)):
        with pytest.raises(
            UncertainBatchError,
            match="by another write, of which one has the option topic and one the column",
        ):
            write(committed, 0, "t", target=target)
    assert write(both, 0, "v", target=COLUMN, on_uncertain="skip") == Decision(
        False, True, frozenset({"v"})
    )


def test_a_constant_name_in_a_query_is_told() -> None:
    """writeId without batchId: each batch has number 0."""
    first, second = "batch 0 of query q", "batch 1 of query q"
    assert write({"t": has(1, origin=first)}, 0, "t", origin=first) == SKIP
    assert write({"t": has(1, origin=first)}, 0, "t") == SKIP, (
        "outside of a query nothing tells writes apart but their name"
    )
    with pytest.raises(
        UncertainBatchError,
        match=(
            r"by batch 0 of query q, and this is batch 1 of query q\. .* give the batch's id "
            r"as batchId"
        ),
    ):
        write({"t": has(1, origin=first)}, 0, "t", origin=second)
    with pytest.raises(UncertainBatchError, match="number 8 of this writeId"):
        write({"t": has(9, origin="batch 8 of query q")}, 1, "t", origin=second)


def test_numbers_alone() -> None:
    assert decide_by_number(4)({"a": has(2), "b": has(5)}) == SKIP
    assert decide_by_number(5)({"a": has(2), "b": has(5)}) == decide_by_number(0)({}) == WRITE
