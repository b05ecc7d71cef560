"""The first request of an API to a daemon imports no module on the event loop, since the worker
imports it. The watchdog in each daemon of the tests reports an import on the loop as a fault.

The first request of one API may import modules that another API needs as well. The APIs are
therefore tried in several orders.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from random import Random

import pytest
from fuzz.making import BASE_TOPICS, Knowledge, Maker
from helpers import loop_watchdog

from barnabas import LocalBroker
from barnabas.protocol.api import Api
from barnabas.protocol.api_table import APIS, BY_KEY

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

REQUESTS_A_VERSION = 2
# In seconds. Some requests wait for other requests, and the test does not need their responses.
ANSWERED_WITHIN_S = 0.3
NOW_MS = 1_700_000_000_000
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
EMULATED = {**SETTINGS, "barnabas.emulate": "4.3"}
PRODUCE = 0
ORDERS = ("by key", "by key from the end", "by chance")


def in_order(order: str) -> list[Api]:
    """The APIs in an order: "by key", "by key from the end", or shuffled, with `order` as the seed
    of the shuffle.
    """
    if order.startswith("by key"):
        return list(APIS) if order == "by key" else list(reversed(APIS))
    return Random(order).sample(APIS, len(APIS))


def ask(port: int, frame: bytes) -> None:
    """Send a request, and wait for its response, for the end of the connection, or for the
    timeout.
    """
    with socket.create_connection(("127.0.0.1", port), ANSWERED_WITHIN_S) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        if int.from_bytes(frame[:2]) == PRODUCE:
            # The broker then closes the connection even if it sends no response.
            connection.shutdown(socket.SHUT_WR)
        with suppress(TimeoutError, ConnectionResetError):
            # Any response is sufficient, and so is the end of the connection.
            assert connection.recv(1) or True


def ask_each(broker: LocalBroker, apis: Sequence[Api]) -> None:
    """Send a request of each version of each API."""
    maker = Maker(Random(1), Knowledge(), NOW_MS)
    found: list[str] = []
    for api in apis:
        for version in range(api.max_version, api.min_version - 1, -1):
            for number in range(REQUESTS_A_VERSION):
                ask(broker.port, maker.request(api, version, number))
        found += [f"{api.name}: {fault}" for fault in loop_watchdog.take_faults()]
    assert found == [], "\n".join(found)


@pytest.fixture(params=[SETTINGS, EMULATED], ids=["", "4.3"])
def broker(request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    """A broker with topics that has handled no request since its start."""
    with LocalBroker(settings=request.param, topics=BASE_TOPICS) as broker:
        broker.topics = ()
        yield broker.restart()


@pytest.mark.parametrize("order", ORDERS)
def test_no_request_imports_on_the_loop(broker: LocalBroker, order: str) -> None:
    ask_each(broker, in_order(order))


def test_no_request_imports_a_module_on_the_loop_after_a_restart_with_data(
    broker: LocalBroker,
) -> None:
    """The second start loads the data that the first requests wrote. Then the APIs are used in the
    opposite order. `ask_each` fails if the watchdog reports an import.
    """
    ask_each(broker, in_order("by key"))
    broker.restart()
    ask_each(broker, in_order("by key from the end"))


def test_every_api_is_asked() -> None:
    assert {api.key for order in ORDERS for api in in_order(order)} == set(BY_KEY)
