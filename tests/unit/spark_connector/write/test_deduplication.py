"""The rules that decide whether a batch has already been written: every cell of the table, and the
texts of the errors.
"""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from barnabas.spark_connector.write.deduplication import (
    ANNOUNCED,
    COLUMN,
    PASS,
    SKIP,
    WRITE,
    CommitNote,
    CommittedBatch,
    Decision,
    GroupState,
    Lineage,
    PlannedBatch,
    Trail,
    UncertainBatchError,
    decide_batch_write,
    decide_by_number,
    decide_micro_batch,
    decide_write_of_micro_batch,
    parse_note,
)

# The checkpoint for the table below: batch 7 is the next to write, Spark keeps the plans of batches
# 3 to 7, and batches 5 and 2 were published from this checkpoint.
N = 7
PLANS = {number: f"own {number}" for number in range(3, N + 1)}
TRAIL = Trail("g", "run", PlannedBatch(5, "own 5"), PlannedBatch(2, "own 2"))
T = frozenset({"t"})
WRITTEN = Decision(True, True, T)
FIRST_ANNOUNCED = Decision(True, True, T, announces=True)
LEFT_OUT = Decision(False, True, T)


def note(number: int, plan: str, *, target: str = "t", state: str = "") -> CommittedBatch:
    """The group's committed offset, as a note about a batch that was committed or announced."""
    return CommittedBatch(
        number + (state != ANNOUNCED), CommitNote("earlier", target, plan, state=state)
    )


def decide(
    last: CommittedBatch | None,
    begun: CommittedBatch | None = None,
    trail: Trail = TRAIL,
    *,
    rows: bool = True,
    plan: str = "own 7",
    on_uncertain: str = "fail",
) -> Decision:
    state = GroupState({} if last is None else {"t": last}, {} if begun is None else {"t": begun})
    return decide_micro_batch(
        state,
        N,
        CommitNote("batch 7", "t", plan),
        ["t"] if rows else [],
        lineage=Lineage(trail, lambda number: PLANS.get(number, "")),
        on_uncertain=on_uncertain,
    )


# Each cell has the group's note, the begun note and the trail. The result, for a batch with rows,
# is a decision, or the text of the error if the state is uncertain.
NEW = Trail()
OF_EARLIER_RELEASE = Trail("g", begun=PlannedBatch(1, ""), is_complete=False)
AHEAD = Trail("g", "run", PlannedBatch(8, "own 8"))
BEGUN_THIS = Trail("g", "run", PlannedBatch(7, "own 7"), PlannedBatch(5, "own 5"))
OTHER_PLAN = "was planned with other offsets"
HIGHER = "Spark repeats only its last batch"
FOREIGN = "was planned differently from this checkpoint's"
FORGOTTEN = "an earlier attempt to publish this batch was interrupted"
GONE = "the brokers have no batch now"
IN_PART = "that batch 8 of this query was begun already"
CELLS = [
    # The group's note has the number of this batch.
    ("this, same plan", note(7, "own 7"), None, TRAIL, SKIP),
    ("this, same plan, begun", note(7, "own 7"), note(7, "own 7"), BEGUN_THIS, SKIP),
    ("this, other plan", note(7, "x"), None, TRAIL, OTHER_PLAN),
    ("this, no plan", note(7, ""), None, TRAIL, SKIP),
    ("this, same plan, for another topic", note(7, "own 7", target="u"), None, TRAIL, SKIP),
    (
        "this, no plan, for another topic",
        note(7, "", target="u"),
        None,
        TRAIL,
        "has another target",
    ),
    ("this, announced", note(7, "own 7", state=ANNOUNCED), None, TRAIL, WRITTEN),
    (
        "this, announced, begun",
        note(7, "own 7", state=ANNOUNCED),
        note(7, "own 7"),
        BEGUN_THIS,
        WRITTEN,
    ),
    ("this, announced by another", note(7, "x", state=ANNOUNCED), None, TRAIL, OTHER_PLAN),
    # a higher number
    ("higher", note(8, "own 8"), None, TRAIL, HIGHER),
    ("higher, announced", note(8, "own 8", state=ANNOUNCED), None, TRAIL, HIGHER),
    # a lower number
    ("lower, in the trail", note(5, "own 5"), None, TRAIL, WRITTEN),
    ("lower, before that", note(2, "own 2"), None, TRAIL, WRITTEN),
    ("lower, in the trail, another plan", note(2, "x"), None, TRAIL, FOREIGN),
    ("lower, its plan is kept", note(4, "own 4"), None, TRAIL, WRITTEN),
    ("lower, another plan is kept", note(4, "x"), None, TRAIL, FOREIGN),
    ("lower, Spark deleted its plan", note(1, "own 1"), None, TRAIL, FOREIGN),
    ("lower, of a new checkpoint", note(4, "x"), None, NEW, FOREIGN),
    ("lower, no plan", note(4, ""), None, TRAIL, WRITTEN),
    ("lower, announced", note(4, "own 4", state=ANNOUNCED), None, TRAIL, WRITTEN),
    ("lower, announced by another", note(4, "x", state=ANNOUNCED), None, TRAIL, FOREIGN),
    ("lower, begun since by another", note(5, "own 5"), note(6, "x"), TRAIL, WRITTEN),
    ("lower, begun since", note(5, "own 5"), note(7, "own 7"), BEGUN_THIS, WRITTEN),
    # The checkpoint was written by an earlier release.
    ("lower, deleted, no trail", note(2, "own 2"), None, OF_EARLIER_RELEASE, WRITTEN),
    ("lower, another, no trail", note(4, "x"), None, OF_EARLIER_RELEASE, FOREIGN),
    ("none, no trail", None, None, OF_EARLIER_RELEASE, GONE),
    # The group has no note.
    ("none", None, None, NEW, FIRST_ANNOUNCED),
    ("none, published before", None, None, TRAIL, GONE),
    ("none, begun lower", None, note(5, "own 5"), TRAIL, FIRST_ANNOUNCED),
    ("none, begun lower by another", None, note(5, "x"), TRAIL, FOREIGN),
    ("none, begun lower, trail says this", None, note(5, "own 5"), BEGUN_THIS, FORGOTTEN),
    ("none, begun lower, deleted", None, note(1, "own 1"), TRAIL, FOREIGN),
    ("none, begun this", None, note(7, "own 7"), BEGUN_THIS, FORGOTTEN),
    ("none, begun this by a copy", None, note(7, "own 7"), TRAIL, FORGOTTEN),
    ("none, begun this, another plan", None, note(7, "x"), TRAIL, "was begun already, and planned"),
    ("none, begun higher", None, note(8, "own 8"), TRAIL, "was begun already, and planned"),
    # The trail is ahead of the checkpoint.
    ("ahead", note(5, "own 5"), note(8, "own 8"), AHEAD, IN_PART),
    ("ahead, none", None, None, AHEAD, GONE),
    ("ahead, none, begun lower", None, note(5, "own 5"), AHEAD, FORGOTTEN),
    ("ahead, this", note(7, "own 7"), None, AHEAD, SKIP),
    ("ahead, this announced", note(7, "own 7", state=ANNOUNCED), None, AHEAD, IN_PART),
]


@pytest.mark.parametrize(
    ("last", "begun", "trail", "comes_to"),
    [cell[1:] for cell in CELLS],
    ids=[str(cell[0]) for cell in CELLS],
)
def test_every_cell_of_the_table(
    last: CommittedBatch | None,
    begun: CommittedBatch | None,
    trail: Trail,
    comes_to: Decision | str,
) -> None:
    """CELLS repeat the table in the documentation: the group's last committed batch, the begun
    batch, the checkpoint's trail, and the decision or the reason for the error.
    """
    if isinstance(comes_to, Decision):
        assert decide(last, begun, trail) == comes_to
        without_rows = SKIP if comes_to == SKIP else PASS
        assert decide(last, begun, trail, rows=False) == without_rows
        for word in ("write", "skip"):
            assert decide(last, begun, trail, on_uncertain=word) == comes_to, "it is in no doubt"
        return
    with pytest.raises(UncertainBatchError) as raised:
        decide(last, begun, trail)
    said = str(raised.value)
    assert "it is uncertain whether batch 7 was written before, so nothing is written" in said
    assert comes_to in said and "onUncertainBatch=write" in said and "=skip" in said
    if begun is None or begun.planned != (7, "own 7"):
        with pytest.raises(UncertainBatchError):
            decide(last, begun, trail, rows=False)
    else:
        assert decide(last, begun, trail, rows=False) == PASS, "what was committed of it is whole"


@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize(
    ("last", "begun"),
    [
        (note(7, "x"), None),
        (note(4, "x"), note(4, "x")),
        (None, note(5, "x")),
        (None, note(7, "x")),
        (note(7, "x", state=ANNOUNCED), None),
    ],
)
def test_on_uncertain_batch_continues_and_commits_the_batchs_number(
    last: CommittedBatch | None, begun: CommittedBatch | None, rows: bool
) -> None:
    """The batch's number is committed with the plan of this checkpoint, whether or not its rows are
    written.
    """
    assert decide(last, begun, on_uncertain="write", rows=rows) == Decision(rows, True, T)
    assert decide(last, begun, on_uncertain="skip", rows=rows) == LEFT_OUT


@pytest.mark.parametrize("batches", [(note(8, "x"), None), (None, note(8, "x"))])
def test_a_higher_number_is_set_back_by_a_batch_that_is_written(
    batches: tuple[CommittedBatch | None, CommittedBatch | None],
) -> None:
    assert decide(*batches, on_uncertain="write") == WRITTEN
    assert decide(*batches, on_uncertain="write", rows=False) == LEFT_OUT
    for rows in (True, False):
        assert decide(*batches, on_uncertain="skip", rows=rows) == SKIP


def test_topics_that_have_a_higher_number_are_set_back_too() -> None:
    """A batch is written in spite of doubts. Higher numbers that are noted for other topics must be
    set back as well, since they would let later batches appear as written.
    """
    state = GroupState({"t": note(5, "own 5"), "u": note(9, "x")}, {"v": note(8, "x")})
    lineage = Lineage(TRAIL, lambda number: PLANS.get(number, ""))
    decision = decide_micro_batch(
        state,
        N,
        CommitNote("b", "t", "own 7"),
        ["t"],
        lineage=lineage,
        on_uncertain="write",
    )
    assert decision == Decision(True, True, frozenset("tuv"))


def test_an_uncertain_batch_without_any_committed_offset() -> None:
    assert decide(None, on_uncertain="write") == FIRST_ANNOUNCED
    assert decide(None, on_uncertain="skip") == LEFT_OUT, "the number is known again"
    for word in ("write", "skip"):
        decision = decide(None, rows=False, on_uncertain=word)
        assert not decision.commits_number and not decision.sends_records, "there is no topic"


def test_the_last_of_several_topics_counts() -> None:
    announced = note(7, "own 7", state=ANNOUNCED)
    for batches, last in (
        ({"t": note(3, "a"), "u": note(5, "b")}, (5, "b")),
        ({"t": announced, "u": note(5, "b")}, (7, "own 7")),
        ({"t": announced, "u": note(7, "own 7")}, (7, "own 7")),
    ):
        found = GroupState(batches).last
        assert found is not None and found.planned == last
    assert found.is_committed, "a commit comes after its announcement"
    assert GroupState().last is None and GroupState().last_begun is None


def test_numbers_alone_without_a_checkpoint() -> None:
    """With compareCheckpoint=false, plans are unknown, so only the numbers decide."""
    lineage = Lineage(Trail(is_complete=False), lambda number: "")

    def by_number(last: CommittedBatch | None, begun: CommittedBatch | None = None) -> Decision:
        state = GroupState({"t": last} if last else {}, {"t": begun} if begun else {})
        return decide_micro_batch(state, N, CommitNote("b", "t"), ["t"], lineage=lineage)

    assert by_number(None) == by_number(None, note(5, "x")) == FIRST_ANNOUNCED
    assert by_number(note(7, "x")) == SKIP
    assert by_number(note(6, "x")) == WRITTEN
    for last, begun in ((note(8, "x"), None), (None, note(7, "")), (None, note(7, "x"))):
        with pytest.raises(UncertainBatchError):
            by_number(last, begun)


def write(
    committed: dict[str, CommittedBatch],
    batch_id: int,
    *topics: str,
    target: str = "",
    origin: str = "",
    on_uncertain: str = "fail",
) -> Decision:
    """The decision on a batch write with this number. The default target is the first topic."""
    note = CommitNote("write N", target or topics[0], origin=origin)
    return decide_batch_write(
        GroupState(committed), batch_id, note, topics, on_uncertain=on_uncertain
    )


def has(next_batch_id: int, target: str = "t", plan: str = "p", origin: str = "") -> CommittedBatch:
    return CommittedBatch(next_batch_id, CommitNote("earlier", target, plan, origin))


def test_a_note_comes_back_from_its_text() -> None:
    note = CommitNote("batch 5 of query ä", COLUMN, "abc", "batch 1 of query q", ANNOUNCED)
    assert parse_note(note.to_text()) == note
    assert parse_note(CommitNote("x").to_text()) == CommitNote("x")
    for text in ("batch 5 of query q", "[1]", "7", None):
        assert parse_note(text) == CommitNote(text or "")


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
            match="by another write: one has the option topic, the other the column topic",
        ):
            write(committed, 0, "t", target=target)
    assert write(both, 0, "v", target=COLUMN, on_uncertain="skip") == Decision(
        False, True, frozenset({"v"})
    )


def test_a_constant_write_id_in_a_query_is_an_error() -> None:
    """A writeId without a batchId gives number 0 to every batch of a query, which is an error."""
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


def in_each(
    committed: dict[str, CommittedBatch], *topics: str, target: str = "t", trail: Trail = TRAIL
) -> Decision:
    """The decision on a write in foreachBatch, as a part of batch 7."""
    return decide_write_of_micro_batch(
        GroupState(committed),
        N,
        CommitNote("write 7", target, "own 7", "batch 7 of query q"),
        topics,
        lineage=Lineage(trail, lambda number: PLANS.get(number, "")),
    )


def test_a_write_in_for_each_batch_is_compared_with_the_notes_of_its_own_topic() -> None:
    same, other = note(7, "own 7", target="u"), note(7, "x", target="u")
    for of_other_topic in ({"u": same}, {"u": other}):
        assert in_each(of_other_topic, "t", trail=NEW) == FIRST_ANNOUNCED
        with pytest.raises(UncertainBatchError, match=GONE):
            in_each(of_other_topic, "t")
    assert in_each({"u": same}, "u", target="u") == SKIP
    assert in_each({"t": note(5, "own 5"), "u": other}, "t") == WRITTEN
    for committed, says in (
        ({"t": note(7, "x")}, OTHER_PLAN),
        ({"t": note(6, "x")}, FOREIGN),
        ({"t": note(9, "own 9")}, HIGHER),
    ):
        with pytest.raises(UncertainBatchError, match=says):
            in_each(committed, "t")
        with pytest.raises(UncertainBatchError, match=says):
            in_each(committed)  # without rows
    assert in_each({"t": note(5, "own 5")}) == PASS


def test_two_writes_of_one_batch_with_topics_in_a_column_are_two_writes() -> None:
    """They have one name, one number and one plan, and other topics."""
    first = {"t": note(7, "own 7", target=COLUMN)}
    assert in_each(first, "t", target=COLUMN) == SKIP
    with pytest.raises(UncertainBatchError, match="need a writeId each"):
        in_each(first, "u", target=COLUMN)
    with pytest.raises(UncertainBatchError, match="one has the option topic"):
        in_each(first, "t")


def test_a_query_that_has_written_without_its_checkpoint_goes_on_with_it() -> None:
    """Notes of an earlier release have the query and the number, and no plan."""
    earlier = CommittedBatch(8, CommitNote("earlier", "t", "", "batch 7 of query q"))
    assert in_each({"t": earlier}, "t") == SKIP
    assert in_each({"t": earlier._replace(next_batch_id=7)}, "t") == WRITTEN
    of_another = CommittedBatch(8, CommitNote("earlier", "t", "", "batch 7 of query r"))
    with pytest.raises(UncertainBatchError, match="by batch 7 of query r"):
        in_each({"t": of_another}, "t")


def test_numbers_alone() -> None:
    assert decide_by_number(4)(GroupState({"a": has(2), "b": has(5)})) == SKIP
    assert decide_by_number(5)(GroupState({"a": has(2), "b": has(5)})) == WRITE
    assert decide_by_number(0)(GroupState()) == WRITE
