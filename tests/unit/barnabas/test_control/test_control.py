"""The journal of requests of a broker under test control, and what the control endpoint returns."""

from __future__ import annotations

import asyncio
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.broker.seams.nodes import Nodes
from barnabas.protocol.framing import SIZE, encode_request
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.test_control.observed import observe
from barnabas.test_control.rim.clock import ControlledClock
from barnabas.test_control.rim.control import Control, Exchange, Journal
from barnabas.test_control.rim.endpoint import _route


def exchange(number: int) -> Exchange:
    """A ListTransactions request as the journal stores it."""
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


def test_large_responses_evict_earlier_requests_but_never_the_last() -> None:
    journal = Journal(most_bytes=1000)
    first, second = exchange(1), exchange(2)
    for each in (first, second):
        journal.add(each)
    journal.on_answer(second, 1000)
    assert numbers(journal) == [2]
    # this request is no longer in the journal, so its response is not counted
    journal.on_answer(first, 5000)
    journal.on_answer(second, 5000)
    assert numbers(journal) == [2]
    journal.add(exchange(3))
    assert numbers(journal) == [3]
    journal.add(exchange(4))
    assert numbers(journal) == [3, 4]


# --- what the endpoint shows --------------------------------------------------------------------


def shown(filters: dict[str, Any]) -> list[int]:
    """Return the numbers of those of four requests that GET /requests returns with these
    filters.
    """
    journal = Journal()
    for number in range(1, 5):
        journal.add(exchange(number))
    first, second, third, _ = journal
    first.request = first.request._replace(client_id="other", topics={"t": {0}, "u": set()})
    second.request = second.request._replace(groups={"g"}, transactional_ids={"x", "y"})
    third.request = third.request._replace(topics={"u": {1}}, groups={"h"})
    second.outcome = third.outcome = "answered"
    control = cast("Control", SimpleNamespace(journal=journal))
    call = _route(control, "GET", "/requests")
    assert call is not None

    async def called() -> Any:
        return await call(filters)

    return [row["number"] for row in asyncio.run(called())]


@pytest.mark.parametrize(
    ("filters", "numbers"),
    [
        ({}, [1, 2, 3, 4]),
        ({"after": 0}, [1, 2, 3, 4]),
        ({"after": 1}, [2, 3, 4]),
        ({"after": "3"}, [4]),
        ({"after": 4}, []),
        ({"api": "listtransactions"}, [1, 2, 3, 4]),
        ({"api": "Fetch"}, []),
        ({"client_id": "other"}, [1]),
        ({"client_id": ""}, []),
        ({"topic": "u"}, [1, 3]),
        ({"topic": "t"}, [1]),
        ({"group": "g"}, [2]),
        ({"group": "t"}, []),
        ({"transactional_id": "y"}, [2]),
        ({"outcome": "answered"}, [2, 3]),
        ({"outcome": "under way"}, [1, 4]),
        ({"outcome": "answered", "topic": "u"}, [3]),
        ({"outcome": "answered", "after": 2}, [3]),
    ],
)
def test_get_requests_returns_the_requests_that_match_all_filters(
    filters: dict[str, Any], numbers: list[int]
) -> None:
    assert shown(filters) == numbers


@pytest.mark.parametrize(
    ("filters", "says"),
    [
        ({"topics": "t"}, "unknown filter 'topics'"),
        ({"topic": 1}, "`topic` has to be a text"),
        ({"api": "Fetsch"}, "Fetsch"),
        ({"outcome": "lost"}, "`outcome` has to be one of"),
        ({"after": -1}, "`after` has to be the number"),
        ({"after": "yesterday"}, "`after` has to be the number"),
    ],
)
def test_filters_that_there_are_not_are_refused(filters: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        shown(filters)


# --- the ports of brokers ------------------------------------------------------------------------


class Ports:
    """The brokers 1 and 2, and which of their ports are open."""

    def __init__(self) -> None:
        self.nodes = {number: SimpleNamespace(node_id=number, is_there=True) for number in (1, 2)}
        self.open = {1, 2}
        self.open_listener, self.close_listener = self.open.add, self.open.discard

    def node(self, node_id: int) -> Any:
        return self.nodes[node_id]

    def nodes_there(self) -> list[Any]:
        return [node for node in self.nodes.values() if node.is_there]

    set_controller = move_leader = move_coordinator = None

    def take_away(self, node_id: int, now_ms: int) -> None:
        self.nodes[node_id].is_there = False

    def give_back(self, node_id: int, now_ms: int) -> None:
        self.nodes[node_id].is_there = True


CHANGES = (
    ("refuse_connections", True), ("refuse_connections", False), ("take_away", 1),
    ("give_back", 1), ("take_away", 2),
)  # fmt: skip


def test_a_port_is_open_while_its_broker_is_there_and_connections_are_not_refused() -> None:
    """After each sequence of four changes, each broker that was not taken away has an open port,
    unless the control refuses connections.
    """
    for changes in product(CHANGES, repeat=4):
        ports: Any = Ports()
        control = Control(ControlledClock())
        server: Any = SimpleNamespace(
            nodes=Nodes(ports, ports, ports),
            now_ms=lambda: 0,
            carry_out=lambda: None,
        )
        control.around(server, lambda *_: None)
        is_refused = False
        for name, value in changes:
            getattr(control, name)(value)
            is_refused = value is True if name == "refuse_connections" else is_refused
            there = {node.node_id for node in ports.nodes_there()}
            assert ports.open == (set() if is_refused else there), changes
