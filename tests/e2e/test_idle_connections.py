"""`connections.max.idle.ms`: clients reconnect after an idle connection was closed. A connection
that waits for a response is not closed.
"""

from __future__ import annotations

from contextlib import ExitStack

import kafka
import psutil
import pytest
from helpers.e2e_clients import PATIENCE_S, create_topic, eventually, producer, values_of
from helpers.e2e_wire import Wire
from sim import wire

from barnabas import LocalBroker
from barnabas.protocol.errors import Code

pytestmark = pytest.mark.e2e

# librdkafka checks its queue once a second. With a lower limit, a new connection may be closed
# before its first use.
IDLE_MS = 1000


def ports_of_clients(broker: LocalBroker) -> set[int]:
    """The clients' ports of all open connections of the broker."""
    found = psutil.Process(broker.pid).net_connections("tcp")
    return {
        connection.raddr.port
        for connection in found
        if connection.status == psutil.CONN_ESTABLISHED
    }


def hung_up_on(broker: LocalBroker) -> set[int]:
    """The clients' ports of the connections that the broker has closed as idle, from its log."""
    said = "closing the connection of 127.0.0.1:"
    lines = [line for line in broker.output if f"connections.max.idle.ms={IDLE_MS}" in line]
    assert all(" INFO " in line for line in lines), lines
    return {int(line.partition(said)[2].partition(":")[0]) for line in lines}


def test_idle_clients_reconnect_and_a_connection_with_a_waiting_fetch_is_not_closed() -> None:
    with (
        LocalBroker(settings={"connections.max.idle.ms": str(IDLE_MS)}) as broker,
        ExitStack() as stack,
    ):
        servers = broker.bootstrap_servers
        topic, empty = create_topic(servers, "idle"), create_topic(servers, "empty")
        fetch = wire.fetch([(empty, 0, 0)], committed=False, max_wait_ms=IDLE_MS * 3 // 2)
        waiting = stack.enter_context(Wire(broker.port))
        # The fetch waits longer than the idle limit. It is sent before the other clients are made,
        # since the broker may close an unused connection.
        waiting.send(fetch)
        others = hung_up_on(broker) | {waiting.socket.getsockname()[1]}
        first = producer(servers)
        second = kafka.KafkaProducer(bootstrap_servers=servers, linger_ms=0)

        def send(turn: int) -> None:
            first.produce(topic, b"confluent %d" % turn)
            assert first.flush(PATIENCE_S) == 0
            second.send(topic, b"kafka-python %d" % turn).get(PATIENCE_S)

        try:
            send(0)
            idle = ports_of_clients(broker) - others
            eventually(
                lambda: not idle & ports_of_clients(broker), what="idle connections were closed"
            )
            eventually(
                lambda: len(hung_up_on(broker) - others) >= 2,
                what="the broker has closed a connection of each client",
            )
            send(1)
        finally:
            second.close()
        assert values_of(servers, topic) == [
            b"confluent 0",
            b"kafka-python 0",
            b"confluent 1",
            b"kafka-python 1",
        ]
        assert waiting.receive(fetch).error_code == Code.NONE
        assert waiting.is_closed_by_broker()
        assert not [line for line in broker.output if " WARNING " in line or " ERROR " in line]
