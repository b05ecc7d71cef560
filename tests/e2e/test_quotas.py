"""Quotas with Kafka clients and the command line. Waiting times are taken from the responses'
throttle times and from the broker's clock, so this machine's speed does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from helpers.cli_commands import CommandLine
from helpers.e2e_clients import unique

from barnabas.local_broker import LocalBroker

pytestmark = pytest.mark.e2e
BYTES_A_SECOND = 1_000_000
WINDOWS_S = 11


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as broker:
        yield broker


@pytest.fixture
def barnabas(
    broker: LocalBroker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    return CommandLine(monkeypatch, capsys).use(broker.bootstrap_servers)


def test_quotas_are_listed_set_and_removed(barnabas: CommandLine) -> None:
    assert "no quotas" in barnabas.ok("quota", "list").err
    both = ("--user", "alice", "--client-id", "app")
    set_run = barnabas.ok("quota", "set", *both, "producer_byte_rate=2048", "request_percentage=.5")
    assert "user alice, client-id app: producer_byte_rate set to 2048" in set_run.out
    barnabas.ok("quota", "set", "--ip-defaults", "connection_creation_rate=1000")
    dry = barnabas.ok("quota", "set", "--user", "alice", "consumer_byte_rate=9", "--dry-run")
    assert "would be set" in dry.out
    no_entity = {"user": None, "client_id": None, "ip": None}
    alice = {**no_entity, "user": "alice", "client_id": "app"}
    rows = [
        {**alice, "key": "producer_byte_rate", "value": 2048.0},
        {**alice, "key": "request_percentage", "value": 0.5},
    ]
    assert barnabas.ok("quota", "list", "--user", "alice", "--json").data == rows
    default = {**no_entity, "ip": "(default)", "key": "connection_creation_rate", "value": 1000.0}
    assert barnabas.ok("quota", "list", "--json").data == [*rows, default]
    assert "0.5" in barnabas.ok("quota", "list").out
    assert barnabas("quota", "remove", *both).code == 2, "it asks for --yes"
    barnabas.ok("quota", "remove", *both, "request_percentage", "--yes")
    barnabas.ok("quota", "remove", *both, "--yes")
    barnabas.ok("quota", "remove", "--ip-defaults", "--yes")
    assert barnabas.ok("quota", "list", "--json").data == []
    assert "no quotas to remove" in barnabas("quota", "remove", *both, "--yes").err
    refused = barnabas("quota", "set", "--user", "alice", "producer_byte_rate=-1")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    for wrong in (
        ("set", "producer_byte_rate=1"),
        ("set", "--user", "a", "producer_byte_rate=x"),
        ("list", "--user", "a", "--user-defaults"),
        ("list", "--user", "a", "--ip", "127.0.0.1"),
    ):
        assert barnabas("quota", *wrong).code == 2


def test_librdkafka_is_throttled_to_its_quota(broker: LocalBroker, barnabas: CommandLine) -> None:
    """librdkafka sends as fast as it can. Its throttle time corresponds to the bytes that it sent
    beyond what the quota allows in all windows together. Another client is not throttled.
    """
    barnabas.ok("quota", "set", "--client-id", "fast", f"producer_byte_rate={BYTES_A_SECOND}")
    topic = unique("slowed")
    waits_ms: dict[str, list[int]] = {}
    sent_bytes = 0
    for client_id in ("fast", "other"):
        waits = waits_ms[client_id] = []
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "client.id": client_id,
                "linger.ms": 0,
                "batch.size": 1_000_000,
                "throttle_cb": lambda event, waits=waits: waits.append(event.throttle_time),
            }
        )
        sent_bytes = 0
        for _ in range(14):
            producer.produce(topic, b"x" * 900_000)
            sent_bytes += 900_000
            producer.poll(0)
        assert producer.flush(60) == 0
        producer.poll(0)
    assert waits_ms["other"] == []
    # The bytes of the first windows are not throttled, since windows before the start count as
    # unused.
    beyond_ms = (sent_bytes - (WINDOWS_S - 1) * BYTES_A_SECOND) * 1000 / BYTES_A_SECOND
    assert waits_ms["fast"], "it was not throttled"
    assert max(waits_ms["fast"]) <= beyond_ms + 100
