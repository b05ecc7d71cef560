"""A real client that has read further than the log after a power loss: it goes back to where that was cut (KIP-320).

The power loss is made: the daemon is killed, what it had not flushed is cut off the log's file, and the machine is another run of itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from helpers.e2e_clients import consumer, create_topic, eventually, send_all, wait_until_ready

from barnabas import BrokerProcess
from barnabas.storage.log_manager import BOOT_ID_NAME

pytestmark = pytest.mark.e2e

KEPT, READ, NEWER = 10, 15, 15


@pytest.fixture
def own(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as broker:
        yield broker
        assert not [line for line in broker.output if "Traceback" in line or " CRITICAL " in line], "".join(broker.output[-60:])


class Cut:
    """A topic with READ records, of which a power loss leaves KEPT."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker, self.servers = broker, broker.bootstrap_servers
        self.topic = create_topic(self.servers, "cut")
        self._log = Path(broker.data_dir, f"{self.topic}-0", "00000000000000000000.log")
        send_all(self.servers, self.topic, [b"old %d" % number for number in range(KEPT)])
        self._kept_bytes = self._log.stat().st_size
        send_all(self.servers, self.topic, [b"old %d" % number for number in range(KEPT, READ)])

    def lose_power(self) -> list[bytes]:
        """Gives what is acknowledged after it: more than was lost."""
        self.broker.kill()
        with self._log.open("r+b") as file:
            file.truncate(self._kept_bytes)
        Path(self.broker.data_dir, BOOT_ID_NAME).write_text("another run of the machine")
        self.broker.restart()
        wait_until_ready(self.servers)
        values = [b"new %d" % number for number in range(NEWER)]
        assert send_all(self.servers, self.topic, values) == list(range(KEPT, KEPT + NEWER))
        return values


def values_by_confluent(reader: confluent_kafka.Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []

    def is_there() -> bool:
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value())
        return len(found) >= count

    eventually(is_there, what=f"{count} records", pause_s=0.0)
    return found


def test_a_reader_that_lives_through_it_goes_back(own: BrokerProcess) -> None:
    cut = Cut(own)
    reader = consumer(cut.servers, auto_offset_reset="latest", reconnect_backoff_max_ms=200)
    reader.assign([confluent_kafka.TopicPartition(cut.topic, 0, 0)])
    try:
        assert len(values_by_confluent(reader, READ)) == READ
        newer = cut.lose_power()
        assert values_by_confluent(reader, NEWER) == newer
    finally:
        reader.close()
