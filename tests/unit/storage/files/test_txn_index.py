"""The index of aborted transactions: the entries that apply to a fetch, and invalid files."""

from __future__ import annotations

import struct

import pytest

from barnabas.storage.files.txn_index import AbortedEntry, AbortedTxn, TxnIndex, encode_entry

# Producer 1 writes offsets 0 to 9 and aborts at 10. Producer 2 begins at 5, and its transaction
# ends at 20.
FIRST = AbortedEntry(producer_id=1, first_offset=0, last_offset=10, last_stable_offset=5)
SECOND = AbortedEntry(producer_id=2, first_offset=5, last_offset=20, last_stable_offset=21)


def collected(fetch_offset: int, upper_bound_offset: int) -> tuple[list[AbortedTxn], bool]:
    """The aborted transactions for a fetch of these offsets, and whether the search needs no later
    segments.
    """
    into: list[AbortedTxn] = []
    is_complete = TxnIndex([FIRST, SECOND]).collect(fetch_offset, upper_bound_offset, into)
    return into, is_complete


@pytest.mark.parametrize(
    ("fetch_offset", "upper_bound_offset", "producers"),
    [
        (0, 1, [1]),
        (0, 5, [1]),
        (0, 6, [1, 2]),
        (10, 11, [1, 2]),
        (11, 12, [2]),
        (20, 21, [2]),
        (21, 30, []),
    ],
)
def test_a_fetch_gets_the_aborted_transactions_that_overlap_it(
    fetch_offset: int, upper_bound_offset: int, producers: list[int]
) -> None:
    # contract: kip-98/aborted-index
    into, _ = collected(fetch_offset, upper_bound_offset)
    assert [one.producer_id for one in into] == producers
    assert all(one.first_offset == {1: 0, 2: 5}[one.producer_id] for one in into)


def test_the_search_is_complete_if_all_later_transactions_begin_after_the_fetch() -> None:
    assert collected(0, 5) == ([AbortedTxn(1, 0)], True), "all below 5 was decided at 10"
    assert collected(0, 6)[1], "all below 21 was decided at 20"
    assert collected(0, 21)[1]
    assert not collected(0, 22)[1], "a later segment may end one that begins below"
    assert not TxnIndex().collect(0, 1, [])


def test_a_transaction_that_begins_after_the_fetch_is_not_listed() -> None:
    for upper_bound_offset, expected in ((5, []), (6, [AbortedTxn(2, 5)])):
        into: list[AbortedTxn] = []
        TxnIndex([SECOND]).collect(0, upper_bound_offset, into)
        assert into == expected


def test_entries_are_in_the_order_of_their_appends() -> None:
    index = TxnIndex()
    for number, entry in enumerate((FIRST, SECOND), 1):
        index.append(entry)
        assert len(index) == number
    assert index.entries == [FIRST, SECOND] == TxnIndex.decode(index.encode()).entries
    assert TxnIndex().entries == []


def test_an_entry_has_kafkas_format() -> None:
    entry = AbortedEntry(0x1122, 0x33, 0x44, 0x55)
    assert encode_entry(entry) == bytes.fromhex(
        "0000 0000000000001122 0000000000000033 0000000000000044 0000000000000055"
    )
    index = TxnIndex.decode(encode_entry(FIRST) + encode_entry(SECOND))
    assert index.entries == [FIRST, SECOND] and len(index) == 2
    assert index.encode() == encode_entry(FIRST) + encode_entry(SECOND)


def test_a_transaction_may_begin_at_the_first_offset_and_end_with_its_first_batch() -> None:
    least = AbortedEntry(producer_id=0, first_offset=0, last_offset=0, last_stable_offset=0)
    assert TxnIndex.decode(encode_entry(least)).entries == [least]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (encode_entry(FIRST)[:-1], "33 bytes are not a whole number of entries"),
        (b"\0\1" + encode_entry(FIRST)[2:], "entry 0 is none"),
        (encode_entry(FIRST._replace(producer_id=-1)), "entry 0 is none"),
        (encode_entry(FIRST._replace(first_offset=-1)), "entry 0 is none"),
        (encode_entry(FIRST._replace(first_offset=11)), "entry 0 is none"),
        (encode_entry(FIRST) + struct.pack(">hqqqq", 7, 2, 5, 20, 21), "entry 1 is none"),
        (encode_entry(SECOND) + encode_entry(FIRST), "entry 1 is out of order"),
        (encode_entry(FIRST) * 2, "entry 1 is out of order"),
    ],
)
def test_what_cannot_be_right_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        TxnIndex.decode(data)
