"""The calculations of bench/eos.py: medians and overheads, the table, the figures stored as JSON,
and percentiles.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.eos import (
    AT_LEAST_ONCE,
    BEGIN_TABLE,
    END_TABLE,
    EXACTLY_ONCE,
    KAFKA,
    MODES,
    Effort,
    Point,
    Turn,
    publish,
    read_json,
    summarised,
    table,
    with_table,
    write_json,
)
from bench.eos_clients import CREATED, RECORD_BYTES, percentile, record_created_at, transformed

AT_10 = Point(10, 100)


def turn(mode: str, records: int, *, point: Point = AT_10, p50: float = 8.0) -> Turn:
    """Return the result of a turn with the given number of records in 2 seconds. The other figures
    are fixed.
    """
    throughput = {
        "records": records,
        "seconds": 2.0,
        "broker_cpu_s": 0.5,
        "parts_ms": {"flush": 1.0, "offsets": 0.5},
        "records_a_batch": records / 1000,
    }
    return Turn(point, mode, throughput, {"p50_ms": p50, "p99_ms": 3 * p50})


def turns() -> list[Turn]:
    least = [turn(AT_LEAST_ONCE, records) for records in (200_000, 180_000, 400_000)]
    once = [turn(EXACTLY_ONCE, records, p50=75.0) for records in (190_000, 180_000, 100_000)]
    return [turn for pair in zip(least, once, strict=True) for turn in pair]


def test_the_overhead_is_the_median_of_the_turns() -> None:
    (summary,) = summarised(turns())
    assert summary.records_a_second == {AT_LEAST_ONCE: 100_000, EXACTLY_ONCE: 90_000}
    assert summary.overhead == pytest.approx(0.05), "both ways of a turn meet the same machine"
    assert summary.overheads_of_turns == pytest.approx([0.05, 0.0, 0.75])
    assert summary.broker_cpu_s_a_million == {
        AT_LEAST_ONCE: pytest.approx(2.5),
        EXACTLY_ONCE: pytest.approx(0.5 / 180_000 * 1e6),
    }
    assert summary.commit_ms == {AT_LEAST_ONCE: 1.5, EXACTLY_ONCE: 1.5}
    assert summary.records_a_batch == {AT_LEAST_ONCE: 200, EXACTLY_ONCE: 180}


def test_points_are_summarised_in_ascending_order() -> None:
    points = [Point(100, 100), Point(10, 1000), Point(10, 10)]
    assert [
        summary.point
        for summary in summarised(turn(mode, 10, point=point) for point in points for mode in MODES)
    ] == sorted(points)


def test_the_table_has_a_row_a_point_and_the_same_cells_in_each() -> None:
    rows = table(
        summarised([*turns(), *(turn(mode, 10, point=Point(10, 10_000)) for mode in MODES)]), KAFKA
    ).splitlines()
    assert len(rows) == 4 and len({row.count("|") for row in rows}) == 1
    assert "10, 100 ms | 100,000/s | 90,000/s | 5.0% (0.0% to 75.0%)" in rows[2]
    assert "8.0 / 24 | 75 / 225" in rows[2] and "119,000/s, 119,000/s: 0%" in rows[2]
    assert rows[3].startswith("| 10, 10 s |") and rows[3].endswith("| - |")


def test_figures_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_json(turns(), tmp_path / "figures.json")
    assert read_json(tmp_path / "figures.json") == turns()


def test_only_the_table_of_a_document_changes() -> None:
    text = f"before\n{BEGIN_TABLE}\nold\n{END_TABLE}\nafter\n"
    assert (
        with_table(text, "| new |") == f"before\n{BEGIN_TABLE}\n\n| new |\n\n{END_TABLE}\nafter\n"
    )
    assert with_table(with_table(text, "x"), "| new |") == with_table(text, "| new |")
    with pytest.raises(ValueError, match="put them where the table belongs"):
        with_table("no marks", "| new |")


def test_publish_writes_the_plots_the_table_and_the_json(tmp_path: Path) -> None:
    (tmp_path / "EXACTLY_ONCE_COST.md").write_text(f"{BEGIN_TABLE}{END_TABLE}")
    points = [Point(1, 100), Point(10, 100), Point(10, 1000)]
    publish([turn(mode, 100_000, point=point) for point in points for mode in MODES], tmp_path)
    plots = sorted(path.name for path in tmp_path.iterdir() if path.suffix in (".png", ".svg"))
    assert plots == [
        "eos_interval.png",
        "eos_interval.svg",
        "eos_partitions.png",
        "eos_partitions.svg",
    ]
    assert "| 10, 1 s |" in (tmp_path / "EXACTLY_ONCE_COST.md").read_text()
    assert len(read_json(tmp_path / "eos.json")) == 6


def test_a_turn_is_as_long_as_its_interval() -> None:
    assert Effort(seconds=4).seconds_of(Point(10, 100)) == 4
    assert Effort(seconds=4).seconds_of(Point(10, 10_000)) == 10


def test_percentiles_are_by_nearest_rank() -> None:
    ordered = [15.0, 20.0, 35.0, 40.0, 50.0]  # an example from Wikipedia's "Percentile"
    assert [percentile(ordered, part) for part in (0.05, 0.3, 0.4, 0.5, 1.0)] == [
        15,
        20,
        20,
        35,
        50,
    ]


def test_a_record_keeps_its_time_and_its_size() -> None:
    """The benchmark transforms each record. The result keeps the creation time, from which the
    latency is measured.
    """
    record = record_created_at(123_456_789)
    changed = transformed(record)
    assert len(record) == len(changed) == RECORD_BYTES and record != changed
    assert CREATED.unpack_from(changed) == (123_456_789,)
