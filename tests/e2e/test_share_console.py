"""Kafka's console share consumer (`kafka-console-share-consumer.sh` of 4.3) prints every record,
and acknowledges it according to the consumer's options, although the consumer and the broker are
killed.

Its jars are in `.clients/tools`, which `make clients` fills if it can.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.cli_commands import CommandLine
from helpers.e2e_clients import eventually, send_all

from barnabas import LocalBroker

pytestmark = pytest.mark.e2e

LIBRARIES = Path(__file__).resolve().parents[2] / ".clients" / "tools"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
GROUP, TOPIC, PARTITIONS = "couriers", "deliveries", 3
PATIENCE_S = 180
SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "1000",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.heartbeat.interval.ms": "1000",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.min.session.timeout.ms": "10000",
    "group.share.session.timeout.ms": "10000",
    "group.share.delivery.count.limit": "10",
}


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    """A broker with the topic, if Kafka's tools are on this machine."""
    if shutil.which("java") is None or not any(LIBRARIES.glob("kafka-tools-*.jar")):
        pytest.skip("Kafka's tools are not on this machine (`make clients` fetches what it can)")
    with LocalBroker(settings=SETTINGS, topics={TOPIC: PARTITIONS}) as broker:
        yield broker


@pytest.fixture
def barnabas(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broker: LocalBroker
) -> CommandLine:
    """The command line for this broker. Its share group is set to start at the first record."""
    command = CommandLine(monkeypatch, capsys).use(broker.bootstrap_servers)
    command.ok("config", "set", "group", GROUP, "share.auto.offset.reset=earliest")
    return command


class Console:
    """A console share consumer. lines: its output. errors: its standard error."""

    def __init__(self, broker: LocalBroker, *options: str) -> None:
        self.lines: list[str] = []
        self.errors = ""
        command = [
            "java", "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-cp", f"{LIBRARIES}/*", CONSOLE, "--bootstrap-server", broker.bootstrap_servers,
            "--topic", TOPIC, "--group", GROUP, *options,
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._readers = [threading.Thread(target=read) for read in (self._print, self._complain)]
        for reader in self._readers:
            reader.start()

    def _print(self) -> None:
        assert self._process.stdout is not None
        # An incomplete last line is left out, since a kill may truncate it.
        self.lines.extend(line[:-1] for line in self._process.stdout if line.endswith("\n"))

    def _complain(self) -> None:
        """Collect the standard error."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.errors += line

    def end(self) -> list[str]:
        """Wait until the consumer ends, and check that the total that it reports is the number of
        printed lines. Gives: these lines.
        """
        assert self._process.wait(PATIENCE_S) in (0, 143), self.errors
        self._join()
        assert f"Processed a total of {len(self.lines)} messages" in self.errors, self.errors
        return self.lines

    def stop(self) -> list[str]:
        """Stop the consumer cleanly, so that it leaves the group. Gives: the printed lines."""
        self._process.terminate()
        return self.end()

    def kill(self) -> list[str]:
        self._process.kill()
        self._process.wait()
        self._join()
        return self.lines

    def _join(self) -> None:
        for reader in self._readers:
            reader.join()


def write(broker: LocalBroker, first: int, count: int) -> None:
    """Write records to all partitions, each with a unique number."""
    for partition in range(PARTITIONS):
        numbers = range(first + partition, first + count, PARTITIONS)
        values = [f"record-{number:05}".encode() for number in numbers]
        send_all(broker.bootstrap_servers, TOPIC, values, partition=partition)


def unfinished(barnabas: CommandLine) -> int:
    """The number of records that the group has not finished."""
    (row,) = barnabas.ok("groups", "describe", GROUP, "--json").data
    lags = [partition["lag"] for partition in row["partitions"]]
    assert len(lags) == PARTITIONS
    return sum(lags)


def test_every_record_is_printed_and_acknowledged_though_consumers_and_broker_are_killed(
    broker: LocalBroker, barnabas: CommandLine
) -> None:
    written = 0

    def write_until_printed(*consoles: Console) -> None:
        """Write until each of the consoles has printed 50 more lines."""
        nonlocal written
        wanted = [(console, len(console.lines) + 50) for console in consoles]
        deadline_s = time.monotonic() + PATIENCE_S
        while not all(len(console.lines) >= count for console, count in wanted):
            assert time.monotonic() < deadline_s, [console.errors for console in consoles]
            write(broker, written, 60)
            written += 60

    first, second = Console(broker), Console(broker)
    running = [first, second]
    try:
        write_until_printed(first, second)
        broker.kill()
        broker.start()
        write_until_printed(first, second)
        printed = list(first.kill())
        write_until_printed(second)
        third = Console(broker)
        running.append(third)
        write_until_printed(second, third)
        broker.kill()
        broker.start()
        write_until_printed(second, third)
        wanted = {f"record-{number:05}" for number in range(written)}
        eventually(
            lambda: wanted <= {*printed, *second.lines, *third.lines},
            what="all records",
            timeout_s=PATIENCE_S,
        )
        printed += second.stop() + third.stop()
    finally:
        for console in running:
            console.kill()
    assert {*printed} == wanted
    assert len(printed) < 2 * len(wanted), "most acknowledgements hold"
    assert unfinished(barnabas) == 0
    assert Console(broker, "--timeout-ms", "3000").end() == []


def test_released_records_are_printed_again_and_rejected_ones_are_not(
    broker: LocalBroker, barnabas: CommandLine
) -> None:
    write(broker, 0, PARTITIONS)
    shown = ("--formatter-property", "print.delivery=true")
    (released,) = Console(broker, *shown, "--max-messages", "1", "--release").end()
    delivery, _, value = released.partition("\t")
    assert delivery == "Delivery:1"
    assert unfinished(barnabas) == PARTITIONS
    rejected = Console(broker, *shown, "--max-messages", str(PARTITIONS), "--reject").end()
    assert f"Delivery:2\t{value}" in rejected
    values = sorted(line.partition("\t")[2] for line in rejected)
    assert values == [f"record-{number:05}" for number in range(PARTITIONS)]
    assert unfinished(barnabas) == 0
    assert Console(broker, "--timeout-ms", "3000").end() == []
