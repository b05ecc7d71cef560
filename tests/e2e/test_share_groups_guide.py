"""The examples of docs/SHARE_GROUPS.md: retries, and a dead-letter topic."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from helpers.cli_commands import CommandLine
from helpers.e2e_clients import (
    QUIET,
    create_named_topic,
    create_topic,
    eventually,
    send_all,
    unique,
    values_of,
)

pytestmark = pytest.mark.e2e
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "SHARE_GROUPS.md").read_text("utf-8")


def test_a_record_that_always_fails_goes_to_the_dead_letters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], servers: str
) -> None:
    """The guide's function `settle` releases a failed record until its delivery count reaches the
    limit, and then writes it to the dead-letter topic.
    """
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (example,) = (text for text in blocks if "def settle" in text)
    made: dict[str, Any] = {}
    exec(example, made)
    create_named_topic(servers, "deliveries.dead")
    topic, group = create_topic(servers, "deliveries"), unique("couriers")
    send_all(servers, topic, [b"good", b"bad", b"better"])
    barnabas = CommandLine(monkeypatch, capsys).use(servers)
    barnabas.ok("config", "set", "group", group, "share.auto.offset.reset=earliest")
    settings = {"bootstrap.servers": servers, **QUIET}
    letters = Producer(settings)
    worker = ShareConsumer(
        {**settings, "group.id": group, "share.acknowledgement.mode": "explicit"}
    )
    delivered: list[tuple[bytes | None, int | None]] = []

    def work() -> bool:
        for record in worker.poll(timeout=1.0):
            delivered.append((record.value(), record.delivery_count()))
            if record.value() == b"bad":
                made["settle"](worker, letters, record, ValueError("no such street"))
            else:
                worker.acknowledge(record, AcknowledgeType.ACCEPT)
        worker.commit_sync(30)
        return delivered[-1:] == [(b"bad", made["LIMIT"])]

    worker.subscribe([topic])
    try:
        eventually(work, what="the last delivery")
    finally:
        worker.close()
    counts = [count for value, count in delivered if value == b"bad"]
    assert counts == list(range(1, made["LIMIT"] + 1))
    assert [value for value, _ in delivered if value != b"bad"] == [b"good", b"better"]
    assert values_of(servers, "deliveries.dead") == [b"bad"]
