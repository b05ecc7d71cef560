"""Schedules of two machines that share a lease have no findings, and planted mistakes are found."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from checkers import kinds_of

from sim.defect_seeds import one_in_some
from sim.pair_defects import (
    PAIR_DEFECTS,
    PairDefect,
    with_absences,
    with_async,
    with_ends,
    with_etcd,
)
from sim.pair_world import Pair, PairWorld, run_pair
from sim.scenario import Scenario

SEEDS_IN_ALL, CHUNK = 24, 8
MOST_SEEDS = 40
# Faults of the broker that schedules of two machines have found, with their seeds. Since the
# simulator now includes the rims, these seeds give other schedules than they did then.
LESSONS = (
    (2, "a leader at position 0 took its standby's copy for whole while it caught up"),
    (10, "a first leader that died before its directory was one could never lead again"),
    (
        410,
        "a standby lost power between its claim and its start, and who had led before it had left "
        "the set: no node led again",
    ),
    (641, "a standby that had not heard of its leader's epoch led in the same one (async)"),
    (
        30008746,
        "a take-over went to leader epochs far above its claim (async), and the record did not "
        "tell of them: the next claim began one that had been",
    ),
    (137, "of two leaders that lost power one after the other none ever led again"),
    (
        72,
        "both lost power, and with it the leader a directory of which nothing was flushed: its "
        "standby stopped over its own copy",
    ),
    (
        529,
        "a power loss cut two indexes of a segment; once one was rebuilt the manifest had the "
        "checksum of the other as it was, and look-ups by time skipped records",
    ),
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=pytest.mark.long if first else ())
        for first in range(0, SEEDS_IN_ALL, CHUNK)
    ],
)
def test_nothing_is_found_in_schedules_of_two_machines(first: int) -> None:
    reports = [run_pair(seed) for seed in range(first, first + CHUNK)]
    failures = [(report.seed, report.findings[:3]) for report in reports if report.findings]
    assert failures == [], "python -m sim --pair --trace --seed ..."


@pytest.mark.parametrize(("seed", "lesson"), LESSONS)
def test_what_was_found_before(seed: int, lesson: str) -> None:
    assert run_pair(seed).findings == [], lesson


def make_async(pair: Pair) -> None:
    pair.is_sync = False


def test_an_answer_of_the_old_leader_that_comes_after_the_take_over_promises_nothing() -> None:
    """The response was sent before the lease ended. With `async` its record may then be lost."""
    assert run_pair(2271, pair_tweak=make_async).findings == []


@pytest.mark.parametrize("seed", [0, 2, 3, 4])
def test_nothing_is_found_when_leaders_that_wait_for_nobody_lose_power(seed: int) -> None:
    world = PairWorld(seed, pair_tweak=with_async)
    assert world.run().findings == []
    assert world.history.power_losses


@pytest.mark.parametrize("seed", range(0, 16, 4))
def test_nothing_is_lost_when_leaders_end_by_themselves(seed: int) -> None:
    """This also holds with async: acknowledged records are sent before the lease is released."""
    worlds = [PairWorld(each, pair_tweak=with_ends) for each in range(seed, seed + 4)]
    assert [world.run().findings for world in worlds] == [[]] * 4
    assert sum(world.clean_ends for world in worlds) >= 3


def with_ends_and_power(pair: Pair) -> None:
    with_ends(pair)
    pair.fault_count, pair.gap_ms, pair.faults = 8, (50, 400), ("end leader", "power leader")


def test_a_directory_that_was_left_whole_may_lose_what_its_machines_power_took() -> None:
    """After a clean end the standby has all data. The files of the old leader's machine may still
    be lost in a later power loss.
    """
    worlds = [PairWorld(seed, pair_tweak=with_ends_and_power) for seed in (0, 4, 17)]
    assert [world.run().findings for world in worlds] == [[]] * 3
    assert sum(world.clean_ends for world in worlds) >= 1


@pytest.mark.parametrize("seed", range(3))
def test_a_leader_goes_on_alone_while_its_standby_is_away(seed: int) -> None:
    assert run_pair(seed, pair_tweak=with_absences).findings == []


def test_nothing_is_found_while_etcd_is_slow_silent_apart_or_restarted() -> None:
    worlds = [PairWorld(seed, pair_tweak=with_etcd) for seed in range(4)]
    assert [world.run().findings for world in worlds] == [[]] * 4
    assert sum(world.take_overs for world in worlds) >= 2
    starts = [member.starts for world in worlds for member in world.engine.members]
    assert max(starts) > 1


def with_outages(pair: Pair) -> None:
    """Make standbys unavailable repeatedly while responses wait for them."""
    with_patience(pair)
    pair.fault_count, pair.gap_ms = 6, (50, 600)
    pair.faults = (
        "power standby",
        "kill standby",
        "isolate leader",
        "cut engine leader",
        "kill leader",
        "cut pair",
    )


def with_patience(pair: Pair) -> None:
    pair.is_sync, pair.may_be_alone = True, False


def test_what_is_sent_again_while_ids_expire_finds_its_producer_remembered() -> None:
    """If the broker had forgotten the producer, the records would be written twice. Apache Kafka
    has the same limit, so a pair does not promise more.
    """
    worlds = [
        PairWorld(seed, tweak=Scenario._draw_expiry, pair_tweak=with_outages)
        for seed in (10, 97, 101, 111, 115, 184)
    ]
    assert [world.run().findings for world in worlds] == [[]] * 6
    assert sum(world.take_overs for world in worlds) >= 4


def test_a_leader_that_crashes_while_it_ends_has_not_ended_cleanly() -> None:
    """The standby may lack what the leader wrote before the crash."""
    world = PairWorld(15, tweak=Scenario._draw_expiry, pair_tweak=with_patience)
    assert world.run().findings == []


def test_a_seed_is_a_schedule() -> None:
    assert run_pair(3).digest == run_pair(3).digest


def test_leaders_change_and_each_kind_of_holding_leads() -> None:
    """Without these events, the schedules would prove little."""

    def with_many_faults(pair: Pair) -> None:
        pair.fault_count, pair.gap_ms, pair.ttl_ms, pair.margin_ms = 6, (200, 2000), 400, 40

    worlds = [PairWorld(seed, pair_tweak=with_many_faults) for seed in range(4)]
    for world in worlds:
        assert world.run().findings == []
    assert sum(world.take_overs for world in worlds) >= 4
    assert len({record.leader for world in worlds for _, record in world.engine.records}) >= 2


def test_there_are_enough() -> None:
    assert len(PAIR_DEFECTS) >= 12
    assert len({defect.name for defect in PAIR_DEFECTS}) == len(PAIR_DEFECTS)


@pytest.mark.parametrize("defect", one_in_some(PAIR_DEFECTS))
def test_a_planted_defect_is_found(defect: PairDefect) -> None:
    for seed in range(defect.seed, defect.seed + MOST_SEEDS):
        with defect.plant():
            found = kinds_of(run_pair(seed, pair_tweak=defect.tweak).findings)
        if (
            defect.kinds.intersection(found)
            and not run_pair(seed, pair_tweak=defect.tweak).findings
        ):
            return
    pytest.fail(f"{defect.says}: not found in {MOST_SEEDS} seeds")
