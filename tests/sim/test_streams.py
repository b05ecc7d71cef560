"""Simulated schedules with members of a streams group: the checks report no fault of the broker,
and they report a deliberately planted one.
"""

from __future__ import annotations

import os

import pytest

from barnabas.coordinator.groups.streams.streams_group_change import StreamsGroupChange
from barnabas.coordinator.groups.streams.task_reconciliation import FreeTasks
from sim import share_defects
from sim.scenario import Scenario
from sim.world import Tweak, World, run_seed

SEEDS = int(os.environ.get("STREAMS_SEEDS", "4"))


def with_kills(scenario: Scenario) -> None:
    share_defects.with_kills(scenario)
    scenario.sharers = 0
    scenario.use_streamers(3)


def with_power(scenario: Scenario) -> None:
    share_defects.with_power(scenario)
    scenario.sharers = 0
    scenario.use_streamers(4)


@pytest.mark.parametrize("tweak", [with_kills, with_power])
def test_each_task_has_one_member(tweak: Tweak) -> None:
    engaged = 0
    for seed in range(SEEDS):
        world = World(seed, tweak=tweak)
        report = world.run()
        assert not report.findings, (seed, report.findings)
        assert all(group.members and group.tasks for group in world.streams_groups)
        engaged += bool(world.streams_groups)
    assert engaged >= SEEDS // 2, "in the others no topic lasts"


def test_a_task_that_two_members_get_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        StreamsGroupChange,
        "_free_tasks",
        lambda change, process_id: FreeTasks(lambda *_: True, lambda *_: True),
    )
    for seed in range(10):
        if any(one.kind == "owners" for one in run_seed(seed, tweak=with_kills).findings):
            return
    raise LookupError("nothing was found of it")
