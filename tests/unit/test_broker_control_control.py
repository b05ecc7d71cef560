"""The journal of a broker under test control."""

from __future__ import annotations

from barnabas.broker.control.observed import observe
from barnabas.broker.control.rim.control import Exchange, Journal
from barnabas.protocol.framing import SIZE, encode_request
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest


def exchange(number: int) -> Exchange:
    frame = encode_request(ListTransactionsRequest(), 0, number, "c")[SIZE.size :]
    request = observe(memoryview(frame))
    assert request is not None
    return Exchange(number, 0, 1, "127.0.0.1:1", request, frame, [])


def numbers(journal: Journal) -> list[int]:
    return [each.number for each in journal]


def test_the_last_requests_are_kept() -> None:
    journal = Journal(most=2)
    for number in range(4):
        journal.add(exchange(number))
    assert numbers(journal) == [2, 3]
    journal.clear()
    assert numbers(journal) == []


def test_large_answers_make_it_let_go_of_earlier_ones_and_never_of_the_last() -> None:
    journal = Journal(most_bytes=1000)
    first, second = exchange(1), exchange(2)
    for each in (first, second):
        journal.add(each)
    journal.on_answer(second, 1000)
    assert numbers(journal) == [2]
    journal.on_answer(first, 5000)  # it is not kept, so its answer counts no more
    journal.on_answer(second, 5000)
    assert numbers(journal) == [2]
    journal.add(exchange(3))
    assert numbers(journal) == [3]
    journal.add(exchange(4))
    assert numbers(journal) == [3, 4]
