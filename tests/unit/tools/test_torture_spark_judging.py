"""The checks of torture/spark_pipeline.py find each kind of fault that is planted in an otherwise
correct history.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from torture.spark_judging import (
    COPIED,
    COUNTED,
    DISTINCT,
    SCATTERED,
    Batch,
    Row,
    Story,
    judge,
    read_diaries,
    read_offset_log,
)

SOURCE, SINK = "in-a", "out-0"


def input_row(offset: int, partition: int = 0, name: str = "") -> Row:
    """An input row. Events are one second apart, and each id occurs twice."""
    name = name or f"s.{partition}.{offset}"
    return Row(
        SOURCE, partition, offset, f"{name}=id{partition}.{offset // 2}@{offset * 1000}", "k"
    )


def output_row(source: Row, offset: int, topic: str = SINK) -> Row:
    """The output row that Spark writes for an input row."""
    return Row(
        topic, 0, offset, f"{source.value}|{source.topic}|{source.partition}|{source.offset}|-", "k"
    )


def story(plan: str = COPIED) -> Story:
    """A history of two partitions with ten records each. Both batches have five records of each
    partition. One attempt at batch 1 was aborted.
    """
    rows = [input_row(offset, partition) for offset in range(10) for partition in range(2)]
    batches = {
        number: Batch({(SOURCE, 0): 5 * number + 5, (SOURCE, 1): 5 * number + 5})
        for number in range(2)
    }
    wanted = [row for row in rows if plan != DISTINCT or row.offset % 2 == 0]
    halves = [[row for row in wanted if row.offset < 5], [row for row in wanted if row.offset >= 5]]
    first = [output_row(row, offset) for offset, row in enumerate(halves[0])]
    aborted = [output_row(row, 100 + offset) for offset, row in enumerate(halves[1])]
    second = [output_row(row, 200 + offset) for offset, row in enumerate(halves[1])]
    committed = first + second
    return Story(
        plan,
        rows,
        batches,
        committed,
        committed + aborted,
        seen=list(committed),
        group_offset=2,
        promised={rows[0].value},
    )


def counted() -> Story:
    """A history with windows of two seconds in one partition. All windows except the last are below
    the watermark of the last batch.
    """
    rows = [input_row(offset) for offset in range(10)]
    batches = {
        0: Batch({(SOURCE, 0): 5}),
        1: Batch({(SOURCE, 0): 10}),
        2: Batch({(SOURCE, 0): 10}, watermark_ms=8000),
    }
    reported = [Row(SINK, 0, index, f"{index * 2000}|k|2", "k") for index in range(4)]
    return Story(COUNTED, rows, batches, reported, list(reported), seen=list(reported))


@pytest.mark.parametrize(
    "make", [story, lambda: story(SCATTERED), lambda: story(DISTINCT), counted]
)
def test_nothing_is_found_where_nothing_is_wrong(make: Callable[[], Story]) -> None:
    assert judge(make()) == []


def lose(of: Story) -> None:
    for rows in (of.committed, of.everything, of.seen):
        del rows[3]


def double(of: Story) -> None:
    for rows in (of.committed, of.everything, of.seen):
        rows.append(rows[3]._replace(offset=300))


def show_another_attempt(of: Story) -> None:
    """Let readers see the rows of the aborted attempt as well as those of the committed one."""
    of.committed = list(of.everything)
    of.seen = list(of.everything)


def make_of_aborted_input(of: Story) -> None:
    """Add an output row that was made from an aborted input row."""
    aborted = input_row(77, name="t.1")
    of.forbidden.add(aborted.value)
    of.everything.append(output_row(aborted, 400))


def make_of_nothing(of: Story) -> None:
    of.everything.append(Row(SINK, 0, 400, "what is this"))


def swap(of: Story) -> None:
    """Swap two rows of one input partition that are in the same batch."""
    rows = of.committed
    one, other = rows[0], rows[2]
    for of_reader in (of.committed, of.everything, of.seen):
        of_reader[0], of_reader[2] = (
            one._replace(value=other.value),
            other._replace(value=one.value),
        )


def mix_batches(of: Story) -> None:
    """Swap a row of the first batch with a row of the last batch."""
    rows = of.committed
    one, other = rows[0], rows[-1]
    for of_reader in (of.committed, of.everything, of.seen):
        at, end = of_reader.index(one), of_reader.index(other)
        of_reader[at], of_reader[end] = (
            one._replace(value=other.value),
            other._replace(value=one.value),
        )


def take_back(of: Story) -> None:
    of.seen.append(Row(SINK, 0, 500, "was there"))


def keep_from_reader(of: Story) -> None:
    of.seen.pop()


def forget_number(of: Story) -> None:
    of.group_offset = 1


def skip_a_batch(of: Story) -> None:
    del of.batches[0]


def go_back(of: Story) -> None:
    of.batches[1].ends[SOURCE, 0] = 4


def leave_input(of: Story) -> None:
    of.batches[1].ends[SOURCE, 0] = 9


def show_aborted_input(of: Story) -> None:
    of.forbidden.add(of.input[0].value)


def break_a_promise(of: Story) -> None:
    of.promised.add("gone=1@1")


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (lose, "lost"),
        (double, "doubled"),
        (show_another_attempt, "doubled"),
        (make_of_aborted_input, "aborted"),
        (make_of_nothing, "foreign"),
        (swap, "order"),
        (mix_batches, "order"),
        (take_back, "vanished"),
        (keep_from_reader, "skipped"),
        (forget_number, "group"),
        (skip_a_batch, "checkpoint"),
        (go_back, "checkpoint"),
        (leave_input, "checkpoint"),
        (show_aborted_input, "input"),
        (break_a_promise, "input"),
    ],
)
def test_a_planted_fault_is_found(plant: Callable[[Story], None], kind: str) -> None:
    planted = story()
    plant(planted)
    assert kind in {finding.kind for finding in judge(planted)}


@pytest.mark.parametrize(
    ("plant", "kind"), [(lose, "lost"), (double, "doubled"), (show_another_attempt, "doubled")]
)
def test_lost_and_doubled_rows_are_found_in_the_distinct_plan(
    plant: Callable[[Story], None], kind: str
) -> None:
    """In this plan, only the first of two input rows with the same id leads to an output row."""
    planted = story(DISTINCT)
    plant(planted)
    assert kind in {finding.kind for finding in judge(planted)}


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (lose, "lost"),
        (double, "doubled"),
        (lambda of: of.everything.append(Row(SINK, 0, 9, "0|k|1", "k")), "count"),
        (lambda of: of.everything.append(Row(SINK, 0, 9, "0|other|2", "other")), "foreign"),
    ],
)
def test_wrong_counts_are_found(plant: Callable[[Story], None], kind: str) -> None:
    planted = counted()
    plant(planted)
    assert [finding.kind for finding in judge(planted)] == [kind]


def test_a_window_with_a_late_record_is_not_judged() -> None:
    late = counted()
    late.input.append(Row(SOURCE, 0, 10, "late=1@1000", "k"))
    late.batches[3] = Batch({(SOURCE, 0): 11}, watermark_ms=8000)
    assert judge(late) == []
    assert late.notes["windows with late records"] == 1


def test_the_offset_log_is_read(tmp_path: Path) -> None:
    (tmp_path / "0").write_text(
        'v1\n{"batchWatermarkMs":7,"batchTimestampMs":1,"conf":{}}\n{"in-a": {"0": 3, "1": 4}}'
    )
    (tmp_path / ".0.crc").write_bytes(b"\0")
    assert read_offset_log(tmp_path) == {0: Batch({("in-a", 0): 3, ("in-a", 1): 4}, 7)}
    assert read_offset_log(tmp_path / "missing") == {}


def test_read_diaries_gives_aborted_and_promised_values(tmp_path: Path) -> None:
    lines = [
        {"is": "send", "value": "plain", "transaction": None},
        {"is": "send", "value": "unanswered", "transaction": None},
        {"is": "ok", "value": "plain"},
        {"is": "send", "value": "committed", "transaction": "1"},
        {"is": "commit?", "transaction": "1"},
        {"is": "committed", "transaction": "1"},
        {"is": "send", "value": "aborted", "transaction": "2"},
        {"is": "aborted", "transaction": "2"},
        {"is": "send", "value": "unsure", "transaction": "3"},
        {"is": "commit?", "transaction": "3"},
    ]
    path = tmp_path / "feeder"
    path.write_text("\n".join(map(json.dumps, lines)) + '\n{"is": "se')
    assert read_diaries([path]) == ({"aborted"}, {"plain", "committed"})
