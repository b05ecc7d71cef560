"""The cost of enabled metrics, and of scrapes of ten thousand partitions.

Brokers with and without metrics run at the same time and take turns, so that other load slows both.
"""

from __future__ import annotations

import re
import socket
import statistics
import struct
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from barnabas import LocalBroker
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from bench.common import Row, create_topic, metered
from bench.single_records import one_by_one

TURNS = 30
PARTITIONS = 10_000
SCRAPES = 5
ON = {"barnabas.metrics.port": 0}


def run(scale: float = 1.0) -> list[Row]:
    """Measure requests with one small record, for which metrics cost most, then scrapes."""
    return [_small_requests(int(30_000 * scale) // TURNS), _scrapes(int(PARTITIONS * scale))]


def _small_requests(count: int) -> Row:
    """Measure small Produce requests on two brokers in turns, with and without metrics."""
    with ExitStack() as stack:
        brokers = {
            name: stack.enter_context(LocalBroker(settings=settings))
            for name, settings in (("off", {}), ("on", ON))
        }
        for broker in brokers.values():
            create_topic(broker, "bench", 1)
            one_by_one(broker, "bench", count)
        spent: dict[str, list[float]] = {name: [] for name in brokers}
        for turn in range(TURNS):
            for name in sorted(brokers, reverse=bool(turn % 2)):
                before_us = _cpu_us(brokers[name].pid)
                one_by_one(brokers[name], "bench", count)
                spent[name].append((_cpu_us(brokers[name].pid) - before_us) / count)
    # Only the lower half of the turns is averaged, since other load can only add to a turn's cost.
    off, on = (statistics.mean(sorted(spent[name])[: TURNS // 2]) for name in ("off", "on"))
    return Row(
        "requests of one 100 B record, metrics on against off",
        f"{on:.1f} us against {off:.1f} us each ({(on / off - 1) * 100:+.1f} %)",
        "-",
        "-",
        "-",
    )


def _cpu_us(pid: int) -> float:
    """The CPU time of the process so far in us. It is more precise than the ticks of
    /proc/PID/stat.
    """
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1000


def _scrapes(partitions: int) -> Row:
    """Measure the longest wait of a client, with and without scrapes."""
    settings = ON | {"num.partitions": partitions}
    with LocalBroker(settings=settings, topics={"many": partitions}) as broker:
        url = _url_of(broker)
        quiet_ms = _longest_wait_ms(broker, lambda: time.sleep(1))
        sizes: list[int] = []
        took_s: list[float] = []

        def scrape() -> None:
            began_s = time.perf_counter()
            with urllib.request.urlopen(url) as answer:
                sizes.append(len(answer.read()))
            took_s.append(time.perf_counter() - began_s)

        scrape()
        with metered(broker) as meter:
            waits_ms = [_longest_wait_ms(broker, scrape) for _ in range(SCRAPES)]
    return Row(
        f"a scrape of {partitions:,} partitions, {sizes[-1] / 1e6:.1f} MB",
        f"{meter.cpu_s / SCRAPES * 1000:.0f} ms a scrape, with the pings",
        f"{statistics.median(took_s):.2f} s; a ping waits {statistics.median(waits_ms):.1f} ms at "
        f"most (without a scrape {quiet_ms:.1f} ms)",
        "-",
        "-",
    )


def _url_of(broker: LocalBroker) -> str:
    """The URL of the metrics, from the broker's output, in which its line may appear a moment later
    than the start.
    """
    while True:
        match = re.search(r"metrics on (http://\S+)", "".join(broker.output))
        if match:
            return match[1]
        time.sleep(0.01)


def _longest_wait_ms(broker: LocalBroker, work: Callable[[], object]) -> float:
    """The longest response time of ApiVersions, which is sent repeatedly while `work` runs."""
    frame = encode_request(ApiVersionsRequest(), 3, 1, "bench")
    thread = threading.Thread(target=work)
    longest_s = 0.0
    with socket.create_connection(("127.0.0.1", broker.port)) as sock:
        stream = sock.makefile("rb")
        thread.start()
        while thread.is_alive():
            began_s = time.perf_counter()
            sock.sendall(frame)
            (size,) = struct.unpack(">i", stream.read(4))
            stream.read(size)
            longest_s = max(longest_s, time.perf_counter() - began_s)
            time.sleep(0.001)
        stream.close()
    thread.join()
    return longest_s * 1000
