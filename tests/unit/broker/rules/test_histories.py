"""The anomalies of Jepsen's Kafka tests, passed one by one to the checkers of this project.

| Jepsen's name | the finding of tests/checkers.py for it |
|---|---|
| G1a | aborted-read, or unwritten (a record that was refused) |
| lost-write | lost |
| unseen | lost: in the log, but not for readers of committed records; stuck readers: skipped |
| duplicate | duplicate |
| inconsistent-offsets | moved |
| poll-skip | skipped, also within a transaction (int-poll-skip) |
| nonmonotonic-poll | order for the last reader; moved for others, whose client drops lower ones |
| nonmonotonic-send | order, also within a transaction (int-nonmonotonic-send) |
| precommitted-read | precommitted-read |
| G1c | precommitted-read: of two transactions that read each other, one reads before the commit |
"""

from __future__ import annotations

import pytest
from checkers import Ending, FinalLog, History, Span, Transaction, check, kinds_of

X, Y = ("x", 0), ("y", 0)
Rows = list[tuple[int, bytes]]


def final(everything: Rows, committed: Rows | None = None) -> FinalLog:
    end = max((offset for offset, _ in everything), default=-1) + 1
    return FinalLog(0, end, end, everything if committed is None else committed, everything)


def found(history: History) -> list[str]:
    return kinds_of(check(history))


def acknowledged(*values: bytes) -> History:
    """A history of acknowledged records of one session on x, at offsets 0, 1, 2 and so on. None of
    them is lost.
    """
    history = History()
    for offset, value in enumerate(values):
        history.write(value, X, session="s").ok(offset, 10 + offset)
    history.final[X] = final(list(enumerate(values)))
    assert found(history) == []
    return history


def committed(history: History, name: str, asked_ms: int) -> Transaction:
    """A transaction whose commit was requested at the given time, and was complete 5 ms later."""
    transaction = history.begin(name, session=name)
    transaction.commit_asked_ms = asked_ms
    transaction.end(Ending.COMMITTED, asked_ms + 5)
    return transaction


def aborted(history: History) -> None:
    """Add an aborted transaction with one record, which only readers of uncommitted records may
    see.
    """
    transaction = history.begin("t1", session="s1")
    history.write(b"a", X, session="s1", transaction=transaction).ok(0, 10)
    transaction.end(Ending.ABORTED, 20)
    history.final[X] = final([(0, b"a")], [])


# --- anomalies ----------------------------------------------------------------------------------


def test_a_record_of_an_aborted_transaction_is_read() -> None:
    """A record of an aborted transaction is read, by a reader during the run and by the last one. A
    reader of uncommitted records may see it.

    Source: Jepsen: G1a.
    """
    history = History()
    aborted(history)
    history.read("r", X, 0, b"a", committed_only=False, now_ms=15)
    assert found(history) == []
    history.read("r", X, 0, b"a", committed_only=True, now_ms=15)
    assert "aborted-read" in found(history)
    history = History()
    aborted(history)
    history.final[X] = final([(0, b"a")])
    assert found(history) == ["aborted-read"]


def test_a_record_that_was_refused_is_read() -> None:
    """A refused record is read; it is not part of a transaction.

    Source: Jepsen: G1a.
    """
    history = acknowledged(b"a")
    history.writes[0].failed()
    assert found(history) == ["unwritten"]


@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_promised_record_is_lost(missing: int, in_transaction: bool) -> None:
    """An acknowledged record is lost, from the beginning, the middle or the end.

    Source: Jepsen: lost-write.
    """
    history = acknowledged(b"a", b"b", b"c")
    if in_transaction:
        transaction = committed(history, "t1", 5)
        for write in history.writes:
            write.transaction = transaction
    del history.final[X].everything[missing]
    assert found(history) == ["lost"]


def test_a_record_that_a_reader_of_committed_records_saw_is_lost() -> None:
    """A record that a reader of committed records has seen is lost, although the producer does not
    know the outcome of its write.

    Source: Jepsen: lost-write.
    """
    history = acknowledged(b"a", b"b")
    history.writes[1].outcome = history.writes[1].outcome.UNKNOWN
    del history.final[X].everything[1]
    assert found(history) == []
    history.read("r", X, 1, b"b", committed_only=True, now_ms=30)
    assert found(history) == ["lost"]


def test_a_record_is_unseen() -> None:
    """Readers of committed records never see a record, since the last stable offset does not pass
    it.

    Source: Jepsen: unseen.
    """
    history = acknowledged(b"a", b"b", b"c")
    history.final[X] = final(history.final[X].everything, [(0, b"a")])
    assert found(history) == ["lost"]


@pytest.mark.parametrize("committed_only", [False, True])
def test_a_record_is_in_the_log_twice(committed_only: bool) -> None:
    """A record is in the log twice.

    Source: Jepsen: duplicate.
    """
    history = acknowledged(b"a", b"b")
    rows = [(0, b"a"), (1, b"b"), (2, b"b")]
    history.final[X] = final(rows, rows if committed_only else rows[:2])
    assert "duplicate" in found(history)


def test_an_offset_holds_two_records() -> None:
    """An offset has two records: two readers differ, a reader and the final log differ, or an
    acknowledgement and the final log differ.

    Source: Jepsen: inconsistent-offsets.
    """
    history = acknowledged(b"a", b"b")
    history.read("r1", X, 0, b"a", committed_only=False, now_ms=20)
    assert found(history) == []
    history.read("r2", X, 0, b"b", committed_only=False, now_ms=20)
    assert found(history) == ["moved"]
    history = acknowledged(b"a", b"b")
    history.read("r1", X, 1, b"a", committed_only=False, now_ms=20)
    assert "moved" in found(history)
    history = acknowledged(b"a", b"b")
    history.writes[1].offset = 7
    assert found(history) == ["moved"]


@pytest.mark.parametrize("missing", [0, 1, 2])
@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_reader_skips_a_record(missing: int, in_transaction: bool) -> None:
    """A reader skips a record.

    Source: Jepsen: poll-skip, int-poll-skip.
    """
    history = acknowledged(b"a", b"b", b"c")
    if in_transaction:
        transaction = committed(history, "t1", 5)
        for write in history.writes:
            write.transaction = transaction
    history.spans.append(Span("r", X, True, 0, 3, 0))
    for offset, value in history.final[X].committed:
        if offset != missing:
            history.read("r", X, offset, value, committed_only=True, now_ms=30)
    assert found(history) == ["skipped"]
    history.read("r", X, missing, history.writes[missing].value, committed_only=True, now_ms=30)
    assert found(history) == []


def test_a_reader_gets_decreasing_offsets() -> None:
    """A reader gets decreasing offsets.

    Source: Jepsen: nonmonotonic-poll.
    """
    history = acknowledged(b"a", b"b", b"c")
    history.final[X].everything[1:] = [(2, b"c"), (1, b"b")]
    assert "order" in found(history)


@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_producers_records_are_in_another_order_than_they_were_sent(
    in_transaction: bool,
) -> None:
    """A producer's records are in an order other than that in which they were sent.

    Source: Jepsen: nonmonotonic-send, int-nonmonotonic-send.
    """
    history = acknowledged(b"a", b"b", b"c")
    if in_transaction:
        transaction = committed(history, "t1", 5)
        for write in history.writes:
            write.transaction = transaction
    history.writes[1].offset, history.writes[2].offset = 2, 1
    history.final[X] = final([(0, b"a"), (1, b"c"), (2, b"b")])
    assert found(history) == ["order"]


def test_a_record_is_read_before_its_commit_was_requested() -> None:
    """A record is read before its commit was requested.

    This is a precommitted-read even if the reader is the transaction that wrote the record. That
    transaction, too, may read only committed records.

    Source: Jepsen: precommitted-read.
    """
    history = History()
    transaction = committed(history, "t1", 50)
    history.write(b"a", X, session="t1", transaction=transaction).ok(0, 10)
    history.final[X] = final([(0, b"a")])
    history.read("r", X, 0, b"a", committed_only=True, now_ms=50)
    history.read("other", X, 0, b"a", committed_only=False, now_ms=20)
    assert found(history) == []
    history.read("t1", X, 0, b"a", committed_only=True, now_ms=49)
    assert found(history) == ["precommitted-read"]


@pytest.mark.parametrize(
    ("first_asked_ms", "second_asked_ms"), [(30, 40), (40, 30), (30, 30), (10, 50)]
)
def test_two_transactions_that_have_read_each_other(
    first_asked_ms: int, second_asked_ms: int
) -> None:
    """Two transactions have read each other's records.

    Each transaction reads before it requests its own commit. At least one of them therefore reads
    before the other's commit was requested.

    Source: Jepsen: G1c.
    """
    history = History()
    one, two = committed(history, "one", first_asked_ms), committed(history, "two", second_asked_ms)
    history.write(b"a", X, session="one", transaction=one).ok(0, 5)
    history.write(b"b", Y, session="two", transaction=two).ok(0, 5)
    history.final[X], history.final[Y] = final([(0, b"a")]), final([(0, b"b")])
    history.read("one", Y, 0, b"b", committed_only=True, now_ms=first_asked_ms - 1)
    history.read("two", X, 0, b"a", committed_only=True, now_ms=second_asked_ms - 1)
    assert found(history) == ["precommitted-read"]


# --- correct histories--------------------------------------------------------------------------


def test_transactions_that_write_between_each_others_records_are_no_error() -> None:
    """Transactions that write between each other's records are no error.

    Kafka isolates readers, not writers. In this history, the first transaction writes first on x,
    and the second one on y.

    Source: Jepsen: G0.
    """
    history = History()
    one, two = committed(history, "one", 30), committed(history, "two", 40)
    for offset, (value, transaction) in enumerate(
        ((b"x1", one), (b"x2", two), (b"x3", one), (b"x4", two))
    ):
        history.write(value, X, session=transaction.session, transaction=transaction).ok(offset, 10)
    for offset, (value, transaction) in enumerate(
        ((b"y2", two), (b"y1", one), (b"y4", two), (b"y3", one))
    ):
        history.write(value, Y, session=transaction.session, transaction=transaction).ok(offset, 20)
    history.final[X] = final([(0, b"x1"), (1, b"x2"), (2, b"x3"), (3, b"x4")])
    history.final[Y] = final([(0, b"y2"), (1, b"y1"), (2, b"y4"), (3, b"y3")])
    assert found(history) == []


def test_gaps_between_a_transactions_own_records_are_no_error() -> None:
    """Gaps between a transaction's own records are no error.

    The gaps contain plain records, markers and an aborted transaction's records.

    Source: Jepsen: int-send-skip.
    """
    history = History()
    one = committed(history, "one", 30)
    gone = history.begin("gone", session="gone")
    gone.end(Ending.ABORTED, 25)
    history.write(b"a", X, session="one", transaction=one).ok(0, 10)
    history.write(b"plain", X, session="s").ok(1, 11)
    history.write(b"x", X, session="gone", transaction=gone).ok(2, 12)
    history.write(b"b", X, session="one", transaction=one).ok(9, 13)
    rows = [(0, b"a"), (1, b"plain"), (2, b"x"), (9, b"b")]
    history.final[X] = final(rows, [row for row in rows if row[1] != b"x"])
    history.spans.append(Span("r", X, True, 0, 11, 0))
    for offset, value in history.final[X].committed:
        history.read("r", X, offset, value, committed_only=True, now_ms=40)
    assert found(history) == []


def test_a_consumer_that_goes_back_after_a_rebalance_is_no_error() -> None:
    """A consumer that goes back after a rebalance is no error.

    The consumer starts again at the group's offset. Another member has read the record that this
    consumer did not read.

    Source: Jepsen: poll-skip, nonmonotonic-poll.
    """
    history = acknowledged(b"a", b"b", b"c", b"d")
    for offset in (0, 1, 2, 1, 3):
        history.read(
            "member", X, offset, history.writes[offset].value, committed_only=True, now_ms=30
        )
    history.spans.append(Span("member", X, True, 0, 4, 0))
    history.read("other", X, 3, b"d", committed_only=True, now_ms=40)
    history.spans.append(Span("other", X, True, 3, 4, 0))
    assert found(history) == []
