"""Real clients whose position is beyond the end of the log after a power loss. They must get the
records that are acknowledged in place of the lost ones.

A reader with assigned partitions goes back to the offset at which the log was truncated (KIP-320).
A group continues there because the broker resets its committed offset. librdkafka and kafka-python
do not validate committed offsets, and aiokafka does not support leader epochs.

The power loss is simulated: the daemon is killed, the log's file is truncated to its flushed part,
and the machine gets another boot id.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from helpers.e2e_clients import (
    KAFKA_PYTHON_POLL_MS,
    PATIENCE_S,
    consumer,
    create_topic,
    eventually,
    send_all,
    wait_until_ready,
)

from barnabas import LocalBroker
from barnabas.storage.opening.last_run import BOOT_ID_NAME

pytestmark = pytest.mark.e2e

KEPT, READ, NEWER = 10, 15, 15


@pytest.fixture
def own(tmp_path: Path) -> Iterator[LocalBroker]:
    """A broker for one test. At the end, its output must contain no traceback and no critical
    message.
    """
    with LocalBroker(tmp_path / "data") as broker:
        yield broker
        assert not [
            line for line in broker.output if "Traceback" in line or " CRITICAL " in line
        ], "".join(broker.output[-60:])


class Cut:
    """A topic with READ records, of which KEPT survive a power loss."""

    def __init__(self, broker: LocalBroker) -> None:
        """Write READ records; the first KEPT of them will survive the power loss."""
        self.broker, self.servers = broker, broker.bootstrap_servers
        self.topic = create_topic(self.servers, "cut")
        self.is_lost = False
        self._log = Path(broker.data_dir, f"{self.topic}-0", "00000000000000000000.log")
        send_all(self.servers, self.topic, [b"old %d" % number for number in range(KEPT)])
        self._kept_bytes = self._log.stat().st_size
        send_all(self.servers, self.topic, [b"old %d" % number for number in range(KEPT, READ)])

    def lose_power(self) -> list[bytes]:
        """Simulate a power loss. Gives: the records that are acknowledged after it. They are more
        than the lost ones.
        """
        self.broker.kill()
        with self._log.open("r+b") as file:
            file.truncate(self._kept_bytes)
        # Another boot id means that the machine has restarted since.
        Path(self.broker.data_dir, BOOT_ID_NAME).write_text("another run of the machine")
        self.is_lost = True
        self.broker.restart()
        wait_until_ready(self.servers)
        values = [b"new %d" % number for number in range(NEWER)]
        assert send_all(self.servers, self.topic, values) == list(range(KEPT, KEPT + NEWER))
        return values


def values_by_confluent(reader: confluent_kafka.Consumer, count: int) -> list[bytes | None]:
    """The values of the next `count` records."""
    found: list[bytes | None] = []

    def is_there() -> bool:
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value())
        return len(found) >= count

    eventually(is_there, what=f"{count} records", pause_s=0.0)
    return found


def test_a_reader_that_runs_during_a_power_loss_goes_back_to_the_end_of_the_log(
    own: LocalBroker,
) -> None:
    cut = Cut(own)
    reader = consumer(cut.servers, auto_offset_reset="latest", reconnect_backoff_max_ms=200)
    reader.assign([confluent_kafka.TopicPartition(cut.topic, 0, 0)])
    try:
        assert len(values_by_confluent(reader, READ)) == READ
        newer = cut.lose_power()
        assert values_by_confluent(reader, NEWER) == newer
    finally:
        reader.close()


class Member:
    """A member of a group with one of the client libraries. If it is created before the power loss,
    it begins at the start of the log; if it is created afterwards, it begins at the group's
    committed offset.
    """

    def __init__(self, cut: Cut) -> None:
        self.cut, self.reset = cut, "latest" if cut.is_lost else "earliest"
        self.found: list[bytes | None] = []

    def poll(self) -> None:
        raise NotImplementedError

    def commit(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def read(self, count: int) -> list[bytes | None]:
        """Wait until there are `count` records. Gives: the values of all records so far."""

        def is_there() -> bool:
            self.poll()
            return len(self.found) >= count

        eventually(is_there, what=f"{count} records", pause_s=0.0)
        return self.found


class Confluent(Member):
    def __init__(self, cut: Cut) -> None:
        super().__init__(cut)
        self._client = consumer(
            cut.servers, "group", auto_offset_reset=self.reset, reconnect_backoff_max_ms=200
        )
        self._client.subscribe([cut.topic])

    def poll(self) -> None:
        message = self._client.poll(0.2)
        if message is not None and message.error() is None:
            self.found.append(message.value())

    def commit(self) -> None:
        self._client.commit(asynchronous=False)

    def close(self) -> None:
        self._client.close()


class KafkaPython(Member):
    def __init__(self, cut: Cut) -> None:
        super().__init__(cut)
        self._client = kafka.KafkaConsumer(
            cut.topic,
            bootstrap_servers=cut.servers,
            group_id="group",
            auto_offset_reset=self.reset,
            enable_auto_commit=False,
        )

    def poll(self) -> None:
        for messages in self._client.poll(KAFKA_PYTHON_POLL_MS).values():
            self.found += [message.value for message in messages]

    def commit(self) -> None:
        self._client.commit()

    def close(self) -> None:
        self._client.close()


class AioKafka(Member):
    """A member with aiokafka. Its loop runs in a thread, so that heartbeats continue while the test
    waits.
    """

    def __init__(self, cut: Cut) -> None:
        super().__init__(cut)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._client = self._run(self._started())

    async def _started(self) -> Any:
        client = aiokafka.AIOKafkaConsumer(
            self.cut.topic,
            bootstrap_servers=self.cut.servers,
            group_id="group",
            auto_offset_reset=self.reset,
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
        )
        await client.start()
        return client

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)

    def poll(self) -> None:
        for messages in self._run(self._client.getmany(timeout_ms=200)).values():
            self.found += [message.value for message in messages]

    def commit(self) -> None:
        self._run(self._client.commit())

    def close(self) -> None:
        self._run(self._client.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()


@pytest.mark.parametrize("member_of", [Confluent, KafkaPython, AioKafka])
def test_a_group_that_returns_after_a_power_loss_gets_all_records_acknowledged_since(
    own: LocalBroker, member_of: type[Member]
) -> None:
    cut = Cut(own)
    before = member_of(cut)
    try:
        assert len(before.read(READ)) == READ
        before.commit()
    finally:
        before.close()
    newer = cut.lose_power()
    after = member_of(cut)
    try:
        assert after.read(NEWER) == newer
    finally:
        after.close()
    says = f"group group continues at offset {KEPT} of {cut.topic}-0, not at its committed {READ}"
    assert says in "".join(own.output)


@pytest.mark.parametrize(
    "member_of", [Confluent, AioKafka]
)  # not kafka-python, which leaves sockets open whose connection was refused
def test_a_member_that_runs_during_a_power_loss_rejoins_and_gets_all_records_since(
    own: LocalBroker, member_of: type[Member]
) -> None:
    """The member may get some records twice. Until it learns that it was removed from the group, it
    continues to read from its own position.
    """
    cut = Cut(own)
    member = member_of(cut)
    try:
        assert len(member.read(READ)) == READ
        member.commit()
        newer = cut.lose_power()

        def has_all() -> bool:
            member.poll()
            return set(newer) <= set(member.found)

        eventually(has_all, what="all that was acknowledged since", pause_s=0.0)
    finally:
        member.close()
