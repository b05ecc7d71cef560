"""Short rounds of bench/eos.py (all of it: `make bench-eos`), services.py and stateful.py."""

from __future__ import annotations

import pytest

from bench import services, stateful
from bench.eos import AT_LEAST_ONCE, EXACTLY_ONCE, Effort, Point, measure

pytestmark = [pytest.mark.e2e, pytest.mark.long]

INTERVAL_MS = 200


def test_at_least_once_and_exactly_once_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "bench.eos.MOST_RECORDS_A_SECOND", 1_000_000
    )  # enough input for any machine
    effort = Effort(turns=1, seconds=0.3, rate=2000)
    least, once = measure(Point(3, INTERVAL_MS), effort, 1, {})
    assert (least.mode, once.mode) == (AT_LEAST_ONCE, EXACTLY_ONCE)
    for turn in (least, once):
        assert turn.throughput["records"] > 0 and turn.throughput["commits"] >= 1
        assert turn.broker_cpu_s_a_million >= 0, (
            "it is 0 if the turn took less than one tick of the CPU clock"
        )
        # 99% of the records are measured: 0.3 s at 2000 records a second are 600.
        assert turn.latency["count"] == 594, "every record that was fed is read once"
    assert once.latency["p99_ms"] > INTERVAL_MS / 2, (
        "the last records waited for most of the commit interval"
    )


def test_each_record_passes_three_services_once() -> None:
    # contract: paper/three-services
    found = services.measure(3, EXACTLY_ONCE, interval_ms=INTERVAL_MS, rate=500, seconds=0.6)
    assert found["count"] == 300
    assert found["max_ms"] > 3 * INTERVAL_MS / 2, "the last records waited for three commits"


def test_a_suppression_writes_fewer_results_which_contain_each_record_once() -> None:
    # contract: paper/suppressed-services
    found = services.measure(
        3, EXACTLY_ONCE, interval_ms=50, rate=500, seconds=1.0, suppress_ms=300
    )
    assert found["count"] == 500, "of each record a result says that it contains it"
    assert services.KEYS <= found["read"] < 500
    assert found["p50_ms"] > 300, "a result is as old as the oldest record that it contains"


def test_a_stateful_reduce_is_measured_in_both_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.stateful.WARM_UP_S", 0.1)
    monkeypatch.setattr("bench.stateful.RATE", 500)
    least, once = stateful.measure(2, 0.4, 1)
    assert (least.mode, once.mode) == (AT_LEAST_ONCE, EXACTLY_ONCE)
    for turn in (least, once):
        assert turn.throughput["records"] > 0 and turn.throughput["commits"] >= 1
        assert turn.latency["count"] == turn.latency["read"] == 200
