"""The list of tasks' transactions in a note, the states that count as aborted, and the time limit
of a batch. tests/property/test_spark_lineage.py tests how drivers use these.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.errors import ClientError
from barnabas.spark_connector.write.produce_request import Producer
from barnabas.spark_connector.write.task_transactions import (
    NOTE_BYTES,
    TASKS_IN_A_NOTE,
    Described,
    LostPartError,
    TaskTransaction,
    check_time,
    first_of,
    fits_into_notes,
    is_aborted,
    of_note,
    to_note,
)

DRIVER, RUN = "prefix-query", "1a2b3c4d"
WRITER = Producer(42, 7)


def transaction(name: str, producer_id: int, epoch: int) -> TaskTransaction:
    return TaskTransaction(first_of(DRIVER, RUN) + name, Producer(producer_id, epoch))


def test_the_list_is_as_documented() -> None:
    texts = to_note([transaction("bbb", 45, 0), transaction("a-_", 42, 7)], RUN)
    assert texts == ["1,1a2b3c4d a-_:42:7 bbb:3:0"]
    assert of_note(DRIVER, texts).transactions[0].transactional_id == "prefix-query/1a2b3c4d.a-_"


@given(
    st.lists(
        st.tuples(
            st.text("abcXYZ019-_", min_size=8, max_size=8),
            st.integers(0, 2**63 - 1),
            st.integers(0, 32767),
        ),
        max_size=900,
    ),
    st.lists(st.text(), max_size=2),
)
def test_what_is_noted_is_read_again(rows: list[tuple[str, int, int]], stale: list[str]) -> None:
    """Partitions beyond the end of the list may still have texts of an earlier list."""
    transactions = sorted((transaction(*row) for row in rows), key=lambda each: each.producer)
    texts = to_note(transactions, RUN)
    assert all(len(text) <= NOTE_BYTES + 5 for text in texts)
    noted = of_note(DRIVER, (*texts, *stale) if texts else ())
    assert list(noted.transactions) == transactions
    assert noted.run == (RUN if transactions else "")


@pytest.mark.parametrize(
    "texts", [["2,run a:1:1"], ["1,run a:1"], ["1,run a:b:1"], ["run a:1:1"], ["1,run a:1:1:1"]]
)
def test_a_list_that_is_not_whole_is_an_error(texts: list[str]) -> None:
    with pytest.raises(ClientError, match=r"damaged, or of a later release"):
        of_note(DRIVER, texts)


def test_tasks_up_to_the_limit_fit_into_the_notes_whatever_their_producer_ids_are() -> None:
    """The longest entry has a producer id of 19 digits more than the one before, and an epoch of
    5.
    """
    longest = [transaction("abcdefgh", (number + 1) * 10**18, 32767) for number in range(9)]
    (text,) = to_note(longest, RUN)
    entry = max(map(len, text.split(" ")[1:])) + 1
    assert entry == 35 and NOTE_BYTES - len(RUN) >= TASKS_IN_A_NOTE * entry
    for partitions in (1, 2, 3):
        most = TASKS_IN_A_NOTE * partitions
        fitting = [number for number in range(9999) if fits_into_notes(number, partitions)]
        assert fitting == list(range(most))
        rows = [transaction("abcdefgh", 10**18 + number, 32767) for number in range(most)]
        assert len(to_note(rows, RUN)) <= partitions


def test_no_note_lists_nothing() -> None:
    assert to_note([], RUN) == []
    assert of_note(DRIVER, []).transactions == of_note(DRIVER, [""]).transactions == ()


def test_ids_of_one_driver_are_no_prefix_of_anothers() -> None:
    """An id such as `query-t` may consist of a writeId and a topic, or only of a writeId."""
    assert not first_of("prefix-query-t", RUN).startswith(first_of("prefix-query"))
    assert first_of(DRIVER, RUN).startswith(first_of(DRIVER))


@pytest.mark.parametrize(
    ("state", "producer", "aborted"),
    [
        # version 1 aborts with the transaction's own epoch
        ("CompleteAbort", Producer(42, 7), True),
        ("CompleteAbort", Producer(42, 8), True),  # aborted by a timeout, or in version 2
        ("PrepareAbort", Producer(42, 8), True),
        ("CompleteAbort", Producer(42, 9), False),  # aborted by a later session
        ("CompleteAbort", Producer(43, 7), False),
        ("CompleteCommit", Producer(42, 8), False),
        ("Empty", Producer(42, 8), False),
        ("Ongoing", Producer(42, 7), False),
    ],
)
def test_which_states_say_that_it_was_aborted(
    state: str, producer: Producer, aborted: bool
) -> None:
    assert is_aborted(Described(state, producer), WRITER) is aborted


def test_a_quarter_of_the_timeout_is_left_when_a_batch_is_decided_on() -> None:
    """The time starts with the first task. Messages of an older release do not contain its start
    time.
    """
    early, late = transaction("a", 1, 1)._replace(began_ms=1_000), transaction("b", 2, 1)
    check_time([early, late], 46_000, 60_000)
    with pytest.raises(LostPartError, match=r"46 s ago.*after 60 s.*transaction\.timeout\.ms"):
        check_time([late, early], 46_001 + 500, 60_000)
    check_time([late], 10**12, 60_000)
