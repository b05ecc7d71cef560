"""When the garbage collector runs in the daemon."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator

import pytest
from helpers.processes import measured_in_new_process

from barnabas.daemon import garbage
from barnabas.daemon.garbage import (
    GC_THRESHOLDS,
    LEAST_GROWTH_BYTES,
    REPORTED_BYTES,
    FullCollections,
    collect_rarely,
    exclude_loaded,
    resident_bytes,
)

MB = 1 << 20
START = 40 * MB
FIRST = START + START // 2 + LEAST_GROWTH_BYTES


def test_a_full_collection_is_due_when_the_memory_has_grown_by_half_and_a_bit() -> None:
    full = FullCollections(START)
    assert not full.is_due(FIRST) and full.is_due(FIRST + 1)


def test_memory_that_is_in_use_makes_the_next_collection_rarer() -> None:
    """A collection that freed everything makes it no more frequent either."""
    full = FullCollections(START)
    full.on_collected(400 * MB)
    assert not full.is_due(600 * MB) and full.is_due(600 * MB + LEAST_GROWTH_BYTES + 1)
    full.on_collected(50 * MB)
    assert not full.is_due(600 * MB)


def resident_bytes_of_64_mb() -> int:
    """By how much the resident memory rises with 64 MB. A process that has freed as much before may
    take them from there.
    """
    before = resident_bytes()
    filled = bytearray(b"x") * (64 * MB)
    rise = resident_bytes() - before
    del filled
    return rise


def test_the_memory_of_this_process_is_known() -> None:
    assert 60 * MB < measured_in_new_process(resident_bytes_of_64_mb) < 200 * MB


@pytest.fixture
def collector() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("collector")
def test_a_large_cycle_is_freed_within_a_second_and_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Few objects that hold much memory do not reach the thresholds of Python's collector."""
    monkeypatch.setattr(garbage, "LOOK_S", 0.001)
    loop = asyncio.new_event_loop()
    cycle: list[object] = []
    cycle.append(cycle)
    sizes = iter((START, FIRST, FIRST + 1, FIRST - REPORTED_BYTES, START))

    def resident() -> int:
        size = next(sizes, START)
        if size == FIRST - REPORTED_BYTES:
            loop.call_later(0.01, loop.stop)
        return size

    exclude_loaded()
    assert gc.get_threshold() == GC_THRESHOLDS
    gc.unfreeze()  # so that the cycle, which is older, counts as new
    identity = id(cycle)
    assert any(id(one) == identity for one in gc.get_objects())
    del cycle
    gc.disable()
    try:
        collect_rarely(loop, resident)
        with caplog.at_level(logging.WARNING):
            loop.run_forever()
    finally:
        gc.enable()
        loop.close()
    assert not any(id(one) == identity and type(one) is list for one in gc.get_objects())
    assert "please report it" in caplog.text and "16 MiB" in caplog.text
