"""A daemon with more segments and partitions than file descriptors. Clients do not notice the
limit.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from helpers.e2e_clients import (
    PATIENCE_S,
    admin,
    create_named_topic,
    producer,
    send_all,
    transact,
    values_of,
    wait_until_ready,
)
from helpers.e2e_wire import Wire
from helpers.ports import free_port
from sim import wire

from barnabas import LocalBroker
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.records import NewRecord, encode_batch

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

LIMIT = 100
SEGMENTS, SEGMENT_BYTES = 300, 1000
PARTITIONS = 400
LIMITED = """
import os, resource, sys
limit = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
os.execv(sys.argv[2], sys.argv[2:])
"""


class LimitedBroker(LocalBroker):
    """A broker whose process may open only `limit` file descriptors."""

    limit = LIMIT
    daemon = ("-c", LIMITED, str(LIMIT), sys.executable, *LocalBroker.daemon)

    def descriptors(self) -> int:
        """The number of open descriptors of the broker's process."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[LimitedBroker]:
    """A broker that may open few file descriptors. At the end, its output must contain no
    traceback, no critical message, and no "Too many open files".
    """
    settings = {"offsets.topic.num.partitions": "8", "transaction.state.log.num.partitions": "8"}
    with LimitedBroker(tmp_path / "data", settings=settings) as broker:
        yield broker
        assert not [
            line
            for line in broker.output
            if "Traceback" in line or " CRITICAL " in line or "Too many open files" in line
        ], "".join(broker.output[-60:])


def test_logs_with_more_segments_than_descriptors_are_written_read_and_loaded(
    limited: LimitedBroker,
) -> None:
    servers = limited.bootstrap_servers
    create_named_topic(servers, "t", 2, segment_bytes=str(SEGMENT_BYTES))
    values = [b"%06d" % number + b"x" * (SEGMENT_BYTES - 200) for number in range(SEGMENTS)]
    for partition in range(2):
        send_all(servers, "t", values, partition=partition, batch_num_messages=1)
    assert len(list(Path(limited.data_dir).glob("t-*/*.log"))) >= 2 * SEGMENTS - 2 > LIMIT
    for end_broker in (None, limited.kill, limited.stop):
        if end_broker is not None:
            end_broker()
            limited.restart()
            wait_until_ready(servers)
        assert values_of(servers, "t") == values * 2
        with ExitStack() as clients:
            for _ in range(20):
                client = clients.enter_context(Wire(limited.port))
                client.call(wire.request(MetadataRequest(topics=None), 9))
        transact_once(servers)
        assert limited.descriptors() < LIMIT


def transact_once(servers: str) -> None:
    """Write a record in a transaction that is aborted, so that readers see nothing of it."""
    client = producer(servers, transactional_id="p")
    client.init_transactions(PATIENCE_S)
    transact(client, "t", [b"x"], partition=1, commit=False)


def test_more_partitions_than_descriptors_are_created_written_and_loaded(
    limited: LimitedBroker,
) -> None:
    servers = limited.bootstrap_servers
    create_named_topic(servers, "t", PARTITIONS)
    written: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    for end_broker in (None, limited.kill, limited.stop):
        if end_broker is not None:
            end_broker()
            limited.restart()
            wait_until_ready(servers)
        client = producer(servers, linger_ms=5)
        for partition in range(PARTITIONS):
            value = b"%d %d" % (partition, len(written[partition]))
            client.produce("t", value, partition=partition)
            written[partition].append(value)
        assert client.flush(PATIENCE_S) == 0
        assert sorted(filter(None, values_of(servers, "t"))) == sorted(
            value for values in written.values() for value in values
        )
        assert limited.descriptors() < LIMIT
    assert len(admin(servers).list_topics("t", timeout=PATIENCE_S).topics["t"].partitions) == (
        PARTITIONS
    )


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until the condition is true; fail after PATIENCE_S."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it did not come to hold in time"
        time.sleep(0.02)


class CrowdedBroker(LimitedBroker):
    """A broker with a metrics and a console port, and with so few descriptors that the connections
    to all its ports may need more.
    """

    limit = 256
    daemon = ("-c", LIMITED, str(limit), sys.executable, *LocalBroker.daemon)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.ports_beside = [free_port(), free_port()]

    def _arguments(self) -> list[str]:
        metrics, console = (str(port) for port in self.ports_beside)
        return [*super()._arguments(), "--metrics-port", metrics, "--console-port", console]


def test_connections_that_use_up_the_descriptors_do_not_end_an_existing_client(
    tmp_path: Path,
) -> None:
    """When a handler gets its first request, it imports modules, for which the process needs
    descriptors.
    """
    with CrowdedBroker(tmp_path / "data", topics=["t"]) as broker, ExitStack() as clients:
        client = clients.enter_context(Wire(broker.port))
        for port in (*broker.ports_beside * 70, *[broker.port] * broker.limit):
            clients.enter_context(socket.create_connection(("127.0.0.1", port), 10))
        wait_until(lambda: any("no connections are accepted" in line for line in broker.output))
        batch = encode_batch([NewRecord(None, b"v")])
        assert client.call(wire.produce(None, "t", 0, batch)).error_code == Code.NONE
        assert broker.descriptors() < broker.limit
