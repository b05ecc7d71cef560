"""Fetches and share fetches that wait for records are completed as soon as the records become
readable, whatever the cause: they need no further append, and do not wait for their deadline.

CAUSES has one entry for each cause. `helpers/waiting_readers.py` finds readers that wait although
they could be served; the simulator makes this check after each event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from helpers.disk_broker import DiskBroker, Producer
from helpers.share_member import SHARED, ShareMember, acquired, begin_group, configure
from helpers.waiting_readers import waiting_for_what_is_there

from barnabas.broker.handlers.configs import BROKER, EVERY_BROKER, TOPIC, Operation
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

WAIT_MS = 60_000
READER = 91


def change(b: DiskBroker, kind: int, name: str, setting: str, value: str | None) -> None:
    """Give a setting a value, or delete the setting."""
    operation = Operation.DELETE if value is None else Operation.SET
    resource = AlterConfigsResource(kind, name, [AlterableConfig(setting, operation, value)])
    answer = b.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0, answer.responses[0].error_message


class Cause(NamedTuple):
    """Something that makes records readable. `begin` runs before a reader waits; `happen` then
    makes a record of t-0 readable.
    """

    begin: Callable[[DiskBroker], Any]
    happen: Callable[[DiskBroker, Any], object]
    settings: dict[str, str] = {}  # noqa: RUF012
    of_topic: dict[str, str] = {}  # noqa: RUF012
    committed: bool = False


HIDDEN = {"flush_messages": "1"}
HIDES = {"log_flush_interval_messages": "1"}
NODE = "1"


def unflushed(b: DiskBroker) -> int:
    """Append a record that is hidden until it is flushed, and hold the flush back."""
    b.hold_flushes()
    connection = b.connect()
    b.send(connection, b.produce_request("t", (b"a",)), 9)
    return connection


def transaction(b: DiskBroker) -> Producer:
    producer = Producer(b, "x")
    producer.send("t", 0, b"a")
    return producer


CAUSES: dict[str, Cause] = {
    "an append": Cause(lambda b: None, lambda b, _: b.produce("t", (b"a",))),
    "a flush": Cause(unflushed, lambda b, _: b.release_flushes(), of_topic=HIDDEN),
    "a commit": Cause(transaction, lambda b, one: one.end(commit=True), committed=True),
    "an abort": Cause(
        lambda b: (transaction(b), b.produce("t", (b"b",)))[0],
        lambda b, one: one.end(commit=False),
        committed=True,
    ),
    "the timeout of a transaction": Cause(
        lambda b: (Producer(b, "x", timeout_ms=1000).send("t", 0, b"a"), b.produce("t", (b"b",))),
        lambda b, _: b.tick(1000),
        committed=True,
    ),
    "an operator's marker": Cause(
        transaction,
        lambda b, one: b.write_marker(one.pid, one.epoch, "t", commit=True),
        committed=True,
    ),
    "a setting of the topic": Cause(
        unflushed,
        lambda b, _: change(b, TOPIC, "t", "flush.messages", "100"),
        of_topic=HIDDEN,
    ),
    "the end of a setting of the topic": Cause(
        unflushed, lambda b, _: change(b, TOPIC, "t", "flush.messages", None), of_topic=HIDDEN
    ),
    "a setting of the broker": Cause(
        unflushed,
        lambda b, _: change(b, BROKER, NODE, "log.flush.interval.messages", "100"),
        settings=HIDES,
    ),
    "a setting of all brokers": Cause(
        unflushed,
        lambda b, _: change(b, BROKER, EVERY_BROKER, "log.flush.interval.messages", "100"),
        settings=HIDES,
    ),
}


def begun(cause: Cause) -> DiskBroker:
    """A broker with the settings that the cause needs, the topic t, and a share group that reads
    it.
    """
    b = DiskBroker(**SHARED, **cause.settings)
    b.topic("t", **cause.of_topic)
    b.make_files("t")
    begin_group(b, "g", "t")
    if cause.committed:
        configure(b, "g", share_isolation_level="read_committed")
    return b


@pytest.mark.parametrize("name", CAUSES)
def test_waiting_fetches_complete_when_a_record_becomes_readable(name: str) -> None:
    cause = CAUSES[name]
    b = begun(cause)
    member, reader = ShareMember(b, "g", "m"), b.connect()
    state = cause.begin(b)
    b.send_fetch(reader, "t", 0, committed=cause.committed, max_wait_ms=WAIT_MS)
    member.send_fetch(("t", 0), max_wait_ms=WAIT_MS)
    assert b.fetched(reader) is None and member.answer() is None, "there is nothing to read"
    assert waiting_for_what_is_there(b.broker) == []
    cause.happen(b, state)
    b.tick()
    assert waiting_for_what_is_there(b.broker) == []
    found = b.fetched(reader)
    assert found is not None and found.rows(), "the fetch still waits"
    assert acquired(member.answer()), "the share fetch still waits"


def test_the_check_finds_fetches_that_were_not_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the purgatory is not notified, the simulator's check reports the waiting fetches."""
    b = begun(CAUSES["an append"])
    member, reader = ShareMember(b, "g", "m"), b.connect()
    b.send_fetch(reader, "t", 0, max_wait_ms=WAIT_MS)
    member.send_fetch(("t", 0), max_wait_ms=WAIT_MS)
    with monkeypatch.context() as patch:
        patch.setattr(b.broker.purgatory, "on_progress", lambda *_: None)
        b.produce("t", (b"a",))
    assert [kind for kind, _ in waiting_for_what_is_there(b.broker)] == ["fetch", "share fetch"]
