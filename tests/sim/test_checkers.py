"""Each checker finds its kind of fault, and finds nothing in a correct history."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from checkers import (
    KINDS,
    Access,
    Commit,
    Deletion,
    Ending,
    FinalLog,
    History,
    Holding,
    Life,
    ReportedOffset,
    ReportedProducer,
    ReportedTransaction,
    Source,
    Span,
    TakenCommit,
    Watermarks,
    check,
    kinds_of,
)

LOG = ("t", 0)


def final(
    rows: list[tuple[int, bytes]], committed: list[tuple[int, bytes]] | None = None, start: int = 0
) -> FinalLog:
    """The log's contents at the end. Without `committed`, all rows are committed."""
    end = max((offset for offset, _ in rows), default=start - 1) + 1
    return FinalLog(start, end, end, rows if committed is None else committed, rows)


def plain(values: str = "abc") -> History:
    """A history of the records of one session, acknowledged at the offsets 0, 1, 2 … and the times
    10, 20, 30 …
    """
    history = History()
    for offset, letter in enumerate(values):
        history.write(letter.encode(), LOG, session="s").ok(offset, 10 * (offset + 1))
    history.final[LOG] = final([(offset, letter.encode()) for offset, letter in enumerate(values)])
    return history


def transactional(ending: Ending, visible: bytes) -> History:
    """A history of a transaction with the records a and b, of which read_committed readers get
    `visible` at the end.
    """
    history = History()
    transaction = history.begin("t1", session="s")
    for offset, letter in enumerate(b"ab"):
        history.write(bytes([letter]), LOG, session="s", transaction=transaction).ok(offset, 10)
    if ending is not Ending.ABORTED:
        transaction.commit_asked_ms = 20
    transaction.end(ending, 30)
    rows = [(0, b"a"), (1, b"b")]
    history.final[LOG] = final(
        rows, [row for row in rows if row[1] in [bytes([letter]) for letter in visible]]
    )
    return history


def found(history: History) -> list[str]:
    return kinds_of(check(history))


def test_each_kind_that_is_told_is_explained() -> None:
    """If a driver reported a finding of a kind without an explanation, its schedule would end with
    an error that hides the finding.
    """
    tests = Path(__file__).parents[1]
    reported = {
        call.args[0].value
        for path in [
            tests / "checkers.py",
            tests / "tools/torture/clients.py",
            *tests.glob("sim/*.py"),
        ]
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant)
        if ast.unparse(call.func).rpartition(".")[2] in ("Finding", "incident")
    }
    assert reported == set(KINDS)


def test_a_sound_history_gives_nothing() -> None:
    history = plain()
    for offset, letter in enumerate("abc"):
        history.read("r", LOG, offset, letter.encode(), committed_only=True, now_ms=50)
    history.spans.append(Span("r", LOG, True, 0, 3, 0))
    history.watermarks += [Watermarks("r", LOG, 2, 2, 0, 10), Watermarks("r", LOG, 3, 3, 0, 20)]
    assert found(history) == []
    assert found(transactional(Ending.COMMITTED, b"ab")) == []
    assert found(transactional(Ending.ABORTED, b"")) == []
    assert found(transactional(Ending.UNKNOWN, b"ab")) == []
    assert found(transactional(Ending.UNKNOWN, b"")) == []


def test_topics_with_whole_transactions_show_none_by_half() -> None:
    def seen(*cuts: tuple[int, int]) -> list[str]:
        history = transactional(Ending.COMMITTED, b"ab")
        history.cuts = [(40 + at, {LOG: cut}) for at, cut in enumerate(cuts)]
        return found(history)

    assert seen((0, 0), (0, 2)) == []
    assert seen((0, 0), (0, 1), (0, 2)) == ["half"]
    assert seen((1, 1), (1, 2)) == [], "of deleted records nothing is expected"


def test_lost_records() -> None:
    history = plain()
    history.final[LOG] = final([(0, b"a"), (1, b"b")])
    assert found(history) == ["lost"]


def test_retention_may_take_the_oldest() -> None:
    history = plain()
    history.final[LOG] = final([(2, b"c")], start=2)
    assert found(history) == []


def test_a_power_loss_may_take_the_end_and_nothing_else() -> None:
    history = plain()
    history.power_losses.append(100)
    history.final[LOG] = final([(0, b"a")])
    assert found(history) == []
    history.final[LOG] = final([(0, b"a"), (2, b"c")])
    assert found(history) == ["lost"]


def test_a_power_loss_may_not_take_what_is_durable() -> None:
    history = plain()
    history.power_losses.append(100)
    history.final[LOG] = final([(0, b"a")])
    history.writes[2].durable = True
    assert found(history) == ["lost"]
    history = transactional(Ending.COMMITTED, b"")
    history.power_losses.append(100)
    assert found(history) == ["lost"]


@pytest.mark.parametrize("is_late", [False, True])
def test_an_answer_of_a_leader_that_was_replaced_is_of_the_time_before(*, is_late: bool) -> None:
    """A connection may deliver the response of the old leader after the take-over. So the response
    is not compared with the new leader's log, which may lack its records.
    """
    history = plain()
    history.power_losses.append(100)
    history.answers_cross_losses = True
    history.final[LOG] = final([(0, b"a"), (1, b"x"), (2, b"y")])
    history.write(b"x", LOG, session="s").ok(1, 120, sent_ms=110)
    history.write(b"y", LOG, session="s").ok(2, 120, sent_ms=110)
    asked_ms = 90 if is_late else 110
    history.read("r", LOG, 1, b"b", committed_only=True, now_ms=150, asked_ms=asked_ms)
    for end, at_ms in ((3, asked_ms), (2, 160)):
        history.watermarks.append(Watermarks("r", LOG, end, end, 0, 170, at_ms))
    kinds = [] if is_late else ["lost", "moved", "watermark"]
    assert sorted(set(found(history)) - {"contradicted"}) == kinds


def test_what_was_acknowledged_after_the_power_loss_counts() -> None:
    history = plain()
    history.power_losses.append(15)
    history.final[LOG] = final([(1, b"b"), (2, b"c")])
    assert found(history) == []
    history.final[LOG] = final([(1, b"b")])
    assert found(history) == ["lost"]


def test_duplicates() -> None:
    history = plain()
    history.final[LOG] = final([(0, b"a"), (1, b"b"), (2, b"c"), (3, b"c")])
    assert "duplicate" in found(history)


def test_records_that_nobody_wrote_or_that_were_refused() -> None:
    history = plain()
    history.final[LOG].everything.append((9, b"z"))
    assert found(history) == ["unwritten"]
    history = plain()
    history.writes[1].failed()
    assert found(history) == ["unwritten"]


def test_aborted_reads() -> None:
    history = transactional(Ending.ABORTED, b"")
    history.read("r", LOG, 0, b"a", committed_only=False, now_ms=25)
    assert found(history) == []
    history.read("r", LOG, 0, b"a", committed_only=True, now_ms=25)
    assert "aborted-read" in found(history)
    assert "aborted-read" in found(transactional(Ending.ABORTED, b"a"))


def test_precommitted_reads() -> None:
    history = transactional(Ending.COMMITTED, b"ab")
    history.read("r", LOG, 0, b"a", committed_only=True, now_ms=20)
    assert found(history) == []
    history.read("r", LOG, 0, b"a", committed_only=True, now_ms=19)
    assert found(history) == ["precommitted-read"]


def test_torn_transactions() -> None:
    assert found(transactional(Ending.UNKNOWN, b"a")) == ["torn"]


def test_order() -> None:
    history = plain()
    history.final[LOG] = final([(0, b"b"), (1, b"a"), (2, b"c")])
    for write in history.writes:
        write.offset = -1
    assert found(history) == ["order"]


def test_offsets_that_hold_something_else_later() -> None:
    history = plain()
    history.read("r1", LOG, 1, b"b", committed_only=False, now_ms=50)
    history.read("r2", LOG, 1, b"c", committed_only=False, now_ms=60)
    assert found(history) == ["moved"]
    history = plain()
    history.writes[0].offset = 2
    assert "moved" in found(history)


def test_what_a_reader_saw_is_kept() -> None:
    history = plain()
    history.writes[2].outcome = history.writes[2].outcome.UNKNOWN
    history.final[LOG] = final([(0, b"a"), (1, b"b")])
    assert found(history) == []
    history.read("r", LOG, 2, b"c", committed_only=True, now_ms=50)
    assert found(history) == ["lost"]


def test_skipped_records() -> None:
    history = plain()
    history.read("r", LOG, 0, b"a", committed_only=True, now_ms=50)
    history.read("r", LOG, 2, b"c", committed_only=True, now_ms=50)
    history.spans.append(Span("r", LOG, True, 0, 3, 0))
    assert found(history) == ["skipped"]


def test_watermarks() -> None:
    history = plain()
    history.watermarks += [Watermarks("r", LOG, 3, 2, 0, 10), Watermarks("r", LOG, 3, 1, 0, 20)]
    assert found(history) == ["watermark"]
    history = plain()
    history.watermarks += [Watermarks("r", LOG, 3, 2, 0, 10), Watermarks("r", LOG, 3, 1, 0, 20)]
    history.power_losses.append(15)
    assert found(history) == []
    history = plain()
    history.watermarks.append(Watermarks("r", LOG, 3, 4, 0, 10))
    assert found(history) == ["watermark"]


def offsets(committed_offset: int, sources: tuple[int, ...]) -> History:
    """A history with the input a, b, c at 0, 1, 2, and an output for each of `sources`."""
    history = plain()
    for number, source in enumerate(sources):
        history.write(b"o%d" % number, ("out", 0), session="w", source=Source("g", LOG, source)).ok(
            number, 10
        )
    history.final["out", 0] = final([(number, b"o%d" % number) for number in range(len(sources))])
    history.final_offsets["g", LOG] = committed_offset
    return history


def test_offsets_and_outputs() -> None:
    assert found(offsets(3, (0, 1, 2))) == []
    assert found(offsets(1, (0,))) == []
    assert found(offsets(2, (0,))) == ["offsets"], "an offset without its output"
    assert found(offsets(1, (0, 1))) == ["offsets"], "an output without its offset"
    assert found(offsets(1, (0, 0))) == ["offsets"], "an output twice"
    assert found(offsets(9, (0, 1, 2, 7))) == ["offsets"], "an output of nothing"


def test_compacted_topics_keep_each_key_s_last_record() -> None:
    history = History(compacted=frozenset({"t"}))
    for offset, value in enumerate((b"k-1", b"l-2", b"k-3")):
        history.write(value, LOG, session="s").ok(offset, 10)
    history.final[LOG] = final([(1, b"l-2"), (2, b"k-3")])
    assert found(history) == []
    history.final[LOG] = final([(0, b"k-1"), (1, b"l-2")])
    assert found(history) == ["lost"]


def remade(*, resent: bool = False) -> History:
    """A history of a topic that was deleted and created again. The first topic (10 to 50) has the
    record a, the second (from 100 on) has the record b, both acknowledged at offset 0.
    """
    history = History(lives={"t": [Life(0, asked_ms=50), Life(100)]})
    history.write(b"a", LOG, session="s").ok(0, 20, sent_ms=10, is_resent=resent)
    history.write(b"b", LOG, session="s").ok(0, 120, sent_ms=110)
    history.final[LOG] = final([(0, b"b")])
    return history


def test_a_topic_that_is_made_again_has_nothing_of_its_earlier_life() -> None:
    history = remade()
    history.read("r", LOG, 0, b"a", committed_only=True, now_ms=30)
    history.read("r", LOG, 0, b"b", committed_only=True, now_ms=130)
    history.watermarks += [Watermarks("r", LOG, 5, 5, 0, 30), Watermarks("r", LOG, 1, 1, 0, 130)]
    history.spans.append(Span("r", LOG, True, 0, 5, 5))
    assert found(history) == []
    history.read("r", LOG, 1, b"a", committed_only=True, now_ms=140)
    assert "deleted" in found(history)
    history = remade()
    history.final[LOG] = final([(0, b"b"), (1, b"a")])
    assert "deleted" in found(history)


def test_what_was_sent_twice_may_come_to_the_next_topic() -> None:
    history = remade(resent=True)
    history.writes[0].partition = history.writes[1].partition
    history.final[LOG] = final([(0, b"b"), (1, b"a")])
    assert "deleted" not in found(history)


def test_records_of_the_present_life_are_not_lost() -> None:
    history = remade()
    history.final[LOG] = final([])
    assert found(history) == ["lost"]
    history.writes[1].sent_ms = 90
    assert found(history) == [], "it was under way while the topic was made"


def test_deleted_records_are_not_shown_again() -> None:
    history = plain()
    history.deletions.append(Deletion(LOG, 2, 50))
    history.final[LOG] = final([(2, b"c")], start=2)
    history.read("r", LOG, 0, b"a", committed_only=True, now_ms=60, asked_ms=45)
    assert found(history) == []
    history.read("r", LOG, 1, b"b", committed_only=True, now_ms=60, asked_ms=51)
    assert found(history) == ["deleted"]
    history = plain()
    history.deletions.append(Deletion(LOG, 2, 50))
    assert found(history) == ["deleted"]
    history.power_losses.append(100)
    assert found(history) == ["deleted"], "a power loss does not restore deleted records"


def test_offsets_below_a_deletion_may_be_given_out_again_after_a_power_loss() -> None:
    history = plain()
    history.deletions.append(Deletion(LOG, 3, 50))
    history.power_losses.append(100)
    history.write(b"d", LOG, session="s").ok(0, 120, sent_ms=110)
    history.final[LOG] = final([(0, b"d")])
    assert found(history) == []
    history.power_losses.clear()
    assert "deleted" in found(history)


def test_commits_that_are_not_durable() -> None:
    """If commits are not flushed, a power loss may remove a committed transaction that began before
    it. It may not show an aborted one, and a kill removes nothing.
    """

    def after_a_power_loss(ending: Ending, visible: bytes, *, began_ms: int = 0) -> list[str]:
        history = transactional(ending, visible)
        history.commits_are_durable = False
        history.power_losses.append(100)
        history.transactions[0].began_ms = began_ms
        return found(history)

    assert after_a_power_loss(Ending.COMMITTED, b"") == []
    assert after_a_power_loss(Ending.COMMITTED, b"a") == []
    assert after_a_power_loss(Ending.UNKNOWN, b"a") == []
    assert after_a_power_loss(Ending.ABORTED, b"a") == ["aborted-read"]
    assert after_a_power_loss(Ending.COMMITTED, b"", began_ms=101) == ["lost"]
    kept = transactional(Ending.COMMITTED, b"")
    kept.commits_are_durable = False
    assert found(kept) == ["lost"], "a kill removes no commit"


def members(*rows: tuple[str, str | None, int, int]) -> list[str]:
    """The findings for requests of group members that were accepted immediately, given as rows of
    (member id, instance, generation, time).
    """
    history = History()
    history.accesses += [
        Access("g", member, instance, generation, at, at + 1)
        for member, instance, generation, at in rows
    ]
    return found(history)


def test_members_of_former_generations() -> None:
    assert members(("a", None, 1, 10), ("b", None, 2, 20), ("a", None, 2, 30)) == []
    assert members(("a", None, 1, 10), ("b", None, 2, 20), ("a", None, 1, 21)) == [], (
        "both may have been under way"
    )
    assert members(("a", None, 1, 10), ("b", None, 2, 20), ("a", None, 1, 30)) == ["member"]


def test_static_members_have_one_self_at_a_time() -> None:
    assert members(("a", "i", 1, 10), ("b", "i", 1, 20), ("b", "i", 2, 30)) == []
    assert members(("a", "i", 1, 10), ("b", "j", 1, 20), ("a", "i", 1, 30)) == []
    assert members(("a", "i", 1, 10), ("b", "i", 1, 20), ("a", "i", 1, 30)) == ["member"]


def test_members_that_left() -> None:
    history = History()
    history.accesses += [
        Access("g", "a", None, 1, 10, 11, is_leave=True),
        Access("g", "a", None, 1, 11, 12),
    ]
    assert found(history) == []
    history.accesses.append(Access("g", "a", None, 1, 20, 21))
    assert found(history) == ["member"]


def test_members_of_the_consumer_protocol_have_epochs_of_their_own() -> None:
    history = History()
    history.groups_of_consumer_protocol.add("g")
    history.accesses += [Access("g", "a", None, 7, 10, 11), Access("g", "b", None, 5, 20, 21)]
    assert found(history) == []
    history.accesses += [
        Access("g", "a", None, 7, 30, 31, is_leave=True),
        Access("g", "a", None, 7, 40, 41),
    ]
    assert found(history) == ["member"], "who left is not let on all the same"


def holdings(*rows: tuple[str, int, int, int]) -> History:
    """A history in which members own one partition in turn, given as rows of (member, from, until,
    earlier power losses).
    """
    history = History()
    history.holdings += [Holding("g", name, LOG, *times) for name, *times in rows]
    return history


def test_a_partition_is_one_members_own() -> None:
    assert found(holdings(("a", 10, 20, 0), ("b", 20, 30, 0), ("a", 30, 40, 0))) == []
    assert found(holdings(("a", 10, 40, 0), ("a", 20, 30, 0))) == [], "one that was answered again"
    assert found(holdings(("a", 10, 21, 0), ("b", 20, 30, 0))) == ["owners"]
    assert found(holdings(("b", 20, 30, 0), ("a", 10, 21, 0))) == ["owners"]
    assert found(holdings(("a", 10, 50, 0), ("a", 12, 15, 0), ("b", 40, 60, 0))) == ["owners"]
    assert found(holdings(("a", 10, 40, 0), ("b", 20, 30, 1))) == [], "members went with the power"
    assert found(holdings(("a", 10, 40, 0), ("b", 20, 19, 0))) == [], "over when it was answered"
    other = holdings(("a", 10, 40, 0))
    other.holdings.append(Holding("h", "b", LOG, 20, 30))
    assert found(other) == [], "another group's"


def test_offsets_are_taken_from_the_one_whose_partition_it_is() -> None:
    def taken(member: str, sent_ms: int, answered_ms: int, after: int = 0) -> list[str]:
        history = holdings(("a", 10, 20, 0), ("b", 20, 60, 0))
        history.taken_commits.append(TakenCommit("g", member, LOG, sent_ms, answered_ms, after))
        return found(history)

    assert taken("b", 30, 35) == []
    assert taken("a", 15, 35) == [], "it may have come before the other"
    assert taken("a", 30, 35) == ["owners"]
    assert taken("a", 30, 65) == [], "it may have the partition again"
    assert taken("a", 30, 35, after=1) == []


def test_groups_that_commit_what_they_were_given() -> None:
    """The group's last offset must not be below its last commit, unless a power loss removed the
    commit, nor beyond a record that the group has not consumed.
    """
    history = plain()
    history.consumed |= {("g", LOG, 0, b"a"), ("g", LOG, 0, b"b")}
    history.commits.append(Commit("g", LOG, 2, 0))
    history.commits_asked.add(("g", LOG, 0))
    history.final_positions["g", LOG] = 2
    assert found(history) == []
    history.final_positions["g", LOG] = 1
    assert found(history) == ["offsets"], "a commit is forgotten"
    history.final_positions["g", LOG] = 3
    assert found(history) == ["offsets"], "the group skipped a record"
    history.power_losses.append(100)
    assert found(history) == ["offsets"], "also if a power loss replaced a record by another one"
    history.consumed.add(("g", LOG, 0, b"c"))
    assert found(history) == []
    history.commits.append(Commit("g", LOG, 4, 0))
    assert found(history) == [], "a power loss may remove the last commit"
    history.commits_asked.clear()
    assert found(history) == ["offsets"], "the offset is of an earlier topic of this name"
    history.unsure_groups.add("g")
    assert found(history) == []


def test_what_was_told_holds_for_others() -> None:
    """What a response reports to one reader is also true for a reader that sends its request
    later.
    """
    history = plain()
    history.watermarks += [
        Watermarks("r", LOG, 3, 3, 0, 10, 5),
        Watermarks("s", LOG, 2, 2, 0, 20, 8),
    ]
    assert found(history) == [], "the second had asked before the first was answered"
    history.watermarks[1] = history.watermarks[1]._replace(asked_ms=11)
    assert found(history) == ["contradicted"]
    history.power_losses.append(10)
    assert found(history) == [], "a power loss came between"
    history.flushed = frozenset({"t"})
    assert found(history) == ["contradicted"], (
        "it spares what was shown of a topic that is flushed with each record"
    )


def test_what_was_told_holds_at_the_end() -> None:
    history = plain()
    history.watermarks.append(Watermarks("r", LOG, 4, 3, 0, 10, 5))
    assert found(history) == ["contradicted"]


def test_the_end_is_not_behind_what_was_told_after_it() -> None:
    """Retention continues, so a waiting fetch may report a higher log start offset than the last
    reader got.
    """
    history = plain()
    history.watermarks.append(Watermarks("r", LOG, 3, 3, 1, 20, 5))
    history.final[LOG].asked_ms = 15
    assert found(history) == []
    history.final[LOG].asked_ms = 21
    assert found(history) == ["contradicted"]


def test_producers_and_offsets_that_were_told_do_not_go_back() -> None:
    history = plain()
    history.reported_producers += [
        ReportedProducer(LOG, 7, 1, 5, -1, 0, 1),
        ReportedProducer(LOG, 7, 2, 0, -1, 2, 3),
    ]
    history.reported_transactions += [
        ReportedTransaction("t", "Ongoing", 7, 1, 0, 1),
        ReportedTransaction("t", "Empty", 7, 2, 2, 3),
    ]
    history.reported_offsets += [
        ReportedOffset("g", LOG, 1, True, 0, 1),
        ReportedOffset("g", LOG, 2, True, 2, 3),
    ]
    assert found(history) == []
    history.reported_producers.append(ReportedProducer(LOG, 7, 1, 6, -1, 4, 5))
    assert len(check(history)) == 1
    history.reported_transactions.append(ReportedTransaction("t", "Ongoing", 7, 1, 4, 5))
    assert len(check(history)) == 2
    history.reported_offsets.append(ReportedOffset("g", LOG, 1, True, 4, 5))
    assert len(check(history)) == 3
    assert found(history) == ["contradicted"]


def test_a_log_begins_where_it_may() -> None:
    """A log may begin after its first record if its topic has retention, or if a client asked for
    the deletion. If the retention time is known, the missing records must be older.
    """
    history = plain()
    history.final[LOG] = final([(2, b"c")], start=2)
    assert found(history) == []
    history.kept_topics = frozenset({"t"})
    assert found(history) == ["lost"]
    history.deletions_asked[LOG] = 2
    assert found(history) == []
    history.kept_topics, history.deletions_asked = frozenset(), {}
    history.retention_ms, history.end_ms = {"t": 100}, 150
    for write in history.writes:
        write.made_ms = 40
    assert found(history) == []
    history.writes[1].made_ms = 60
    assert found(history) == ["lost"]


def test_offsets_go_only_where_nobody_was_there_for_their_retention() -> None:
    """A group's offsets may disappear only if it had no member for the whole retention time."""
    history = plain()
    history.offsets_retention_ms = 1000
    history.accesses += [Access("g", "a", None, 1, at, at + 1) for at in (10, 500)]
    history.reported_offsets += [
        ReportedOffset("g", LOG, 2, False, 500, 501),
        ReportedOffset("g", LOG, -1, False, 1400, 1401),
    ]
    assert found(history) == ["contradicted"], "900 ms are less than its retention"
    history.reported_offsets[-1] = ReportedOffset("g", LOG, -1, False, 1600, 1601)
    assert found(history) == []
    history.accesses.append(Access("g", "a", None, 1, 1590, 1591))
    assert found(history) == ["contradicted"], (
        "the same member returned, so it counts as present all the time"
    )
    history.accesses[-1] = Access("g", "b", None, 1, 1590, 1591)
    assert found(history) == [], "another member joined after the offsets had expired"
    history.reported_offsets[-1] = ReportedOffset("g", LOG, -1, False, 550, 551)
    assert found(history) == ["contradicted"]
    history.groups_of_consumer_protocol.add("g")
    assert found(history) == [], "in the consumer protocol, the retention runs from the commit"
