"""What all benchmarks use: clients that end with their benchmark, turns that fit into a time."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest
from helpers.processes import ROOT

from bench import common
from bench.common import turns_within

CLIENT = """
import time
from bench.common import end_with_parent
end_with_parent()
print("ready", flush=True)
time.sleep(600)
"""
BENCHMARK = f"""
import subprocess, sys
client = subprocess.Popen(
    [sys.executable, "-c", {CLIENT!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE
)
client.stdout.readline()
print(client.pid, flush=True)
client.wait()
"""


def has_ended(client: psutil.Process) -> bool:
    """Also if nobody waits for it."""
    try:
        return client.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_client_ends_when_its_benchmark_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BENCHMARK], stdout=subprocess.PIPE, cwd=ROOT, text=True
    ) as benchmark:
        assert benchmark.stdout is not None
        client = psutil.Process(int(benchmark.stdout.readline()))
        assert not has_ended(client)
        benchmark.kill()
    deadline = time.monotonic() + 60
    while not has_ended(client):
        assert time.monotonic() < deadline, "it runs on"
        time.sleep(0.01)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("turns", "durations", "count"),
    [
        (3, [10, 10, 10], 3),
        (9, [10] * 9, 6),  # the seventh would end after 60 s
        (9, [25, 10, 10, 10], 3),  # the longest one counts
        (2, [100, 1], 1),  # the first one is run in any case
        (0, [], 0),
    ],
)
def test_no_turn_begins_that_would_end_too_late(
    monkeypatch: pytest.MonkeyPatch, turns: int, durations: list[int], count: int
) -> None:
    clock = Clock()
    monkeypatch.setattr(common, "time", clock)
    numbers = []
    for number in turns_within(turns, 1.0):
        numbers.append(number)
        clock.now += durations[number]
    assert numbers == list(range(count))
