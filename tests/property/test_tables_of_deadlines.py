"""Compares the tables of deadlines with a plain list. Each table is a heap that drops removed rows
in sweeps. After any additions, removals and expiries, its next row must be the earliest one.
"""

from __future__ import annotations

import random
from typing import Any, Protocol, cast

import pytest
from helpers.examples import drawn
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.logs import purgatory
from barnabas.broker.logs.purgatory import Purgatory, WaitingFetch
from barnabas.coordinator import timers
from barnabas.coordinator.timers import Timers
from barnabas.storage.log.trash import Trash


class Table(Protocol):
    """A table of keys and their deadlines."""

    def add(self, key: int, deadline_ms: int) -> None: ...

    def remove(self, key: int) -> None: ...

    def take_due(self, now_ms: int) -> list[int]: ...

    def next_ms(self) -> int | None: ...


class OfPurgatory:
    def __init__(self) -> None:
        self.purgatory = Purgatory(1 << 40)
        self.fetches: dict[int, WaitingFetch] = {}
        self.answered: list[int] = []

    def add(self, key: int, deadline_ms: int) -> None:
        def try_complete(now_ms: int, out_of_time: bool) -> bool:
            self.answered.append(key)
            return True

        self.fetches[key] = WaitingFetch([cast(Any, object())], try_complete)
        self.purgatory.try_park(self.fetches[key], deadline_ms)

    def remove(self, key: int) -> None:
        self.purgatory.cancel(self.fetches[key])

    def take_due(self, now_ms: int) -> list[int]:
        self.purgatory.on_tick(now_ms)
        answered, self.answered = self.answered, []
        return answered

    def next_ms(self) -> int | None:
        return self.purgatory.next_deadline_ms()


class OfTimers:
    def __init__(self) -> None:
        self.timers: Timers[int] = Timers()
        self.add, self.take_due = self.timers.schedule, self.timers.pop_due
        self.next_ms = self.timers.next_deadline_ms

    def remove(self, key: int) -> None:
        self.timers.cancel(key)


class OfTrash:
    def __init__(self) -> None:
        self.trash = Trash()

    def add(self, key: int, deadline_ms: int) -> None:
        self.trash.add(deadline_ms, f"/{key:06d}/file")

    def remove(self, key: int) -> None:
        self.trash.remove_in({f"/{key:06d}"})

    def take_due(self, now_ms: int) -> list[int]:
        return [int(path[1:7]) for path in self.trash.take_due(now_ms, 1000)]

    def next_ms(self) -> int | None:
        return self.trash.next_due_ms


@pytest.fixture(autouse=True)
def small_heaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let heaps with few rows be swept as well."""
    monkeypatch.setattr(purgatory, "FEWEST_SWEPT", 2)
    monkeypatch.setattr(timers, "_SMALL", 2)


@pytest.mark.parametrize("kind", [OfPurgatory, OfTimers, OfTrash])
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=drawn(60))
def test_the_earliest_row_is_the_next_one(kind: type[Table], seed: int) -> None:
    """Several rows are added or removed in each step, since a heap is swept when most of its rows
    have been removed.
    """
    chance = random.Random(seed)
    table, now_ms, key = kind(), 0, 0
    rows: list[tuple[int, int]] = []  # (deadline, key), with increasing keys
    for _ in range(40):
        step = chance.choice(("add", "remove", "remove", "look", "wait"))
        if step == "add":
            for _ in range(chance.randint(1, 12)):
                key += 1
                rows.append((now_ms + chance.randint(1, 50), key))
                table.add(key, rows[-1][0])
        elif step == "remove":
            for _ in range(chance.randint(0, min(6, len(rows)))):
                table.remove(rows.pop(chance.randrange(len(rows)))[1])
        elif step == "look":
            assert table.next_ms() == min((deadline_ms for deadline_ms, _ in rows), default=None)
        else:
            now_ms += chance.randint(0, 12)
            due = sorted(row for row in rows if row[0] <= now_ms)
            assert table.take_due(now_ms) == [key for _, key in due]
            rows = [row for row in rows if row[0] > now_ms]


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=drawn(200))
def test_a_moved_deadline_is_due_at_its_last_time(seed: int) -> None:
    """Few keys, which are moved earlier and later, and cancelled, again and again."""
    chance = random.Random(seed)
    table: Timers[str] = Timers()
    rows: dict[str, tuple[int, int]] = {}  # the deadline, and the number of the step that set it
    now_ms = 0
    for step in range(120):
        key = chance.choice("abcd")
        kind = chance.choice(("schedule", "schedule", "schedule", "cancel", "look", "wait"))
        if kind == "schedule":
            rows[key] = now_ms + chance.randint(0, 9), step
            table.schedule(key, rows[key][0])
        elif kind == "cancel":
            assert table.cancel(key) is (rows.pop(key, None) is not None)
        elif kind == "look":
            assert table.next_deadline_ms() == min((row[0] for row in rows.values()), default=None)
        else:
            now_ms += chance.randint(0, 6)
            due = sorted((key for key in rows if rows[key][0] <= now_ms), key=rows.__getitem__)
            due = due[: chance.randint(1, 4)]
            assert table.pop_due(now_ms, len(due) or 4) == due
            for key in due:
                del rows[key]
        assert {key: table.deadline_ms(key) for key in "abcd"} == {
            key: rows.get(key, (None, 0))[0] for key in "abcd"
        }
        earliest_ms = min((row[0] for row in rows.values()), default=None)
        assert earliest_ms is None or (table.earliest_ms or 0) <= earliest_ms
