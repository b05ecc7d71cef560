"""Runs a few hundred schedules of the whole broker, and earlier findings as fixed seeds; checks
that a seed determines its schedule.
"""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from checkers import NEVER_MS, Life, Partition

from barnabas.broker.handlers import metadata, transactions
from barnabas.broker.logs import flush_queue, purgatory, topics
from barnabas.broker.logs.unwritten_work import UnwrittenWork
from barnabas.broker.topic_changes import topic_deletion
from barnabas.broker.transactions import transaction_end
from barnabas.coordinator.groups import group_administration, group_coordinator
from barnabas.coordinator.groups.consumer.group_conversion import GroupConversion
from barnabas.coordinator.transactions import transaction_coordinator, transaction_listing
from barnabas.storage.log.log_directory import LogDirectory
from barnabas.storage.segments import batch_file, segment, segment_indexes
from barnabas.storage.segments.index_cache import BuildDeferred
from sim import focuses, wire
from sim.caches import run_without_caches
from sim.disk import Refusal
from sim.focuses import drawn_focus
from sim.network import Weather
from sim.node import Node
from sim.readers import Reader
from sim.scenario import Scenario
from sim.world import Report, Tweak, World, run_seed

SEEDS_IN_ALL = 300
SEEDS_OF_EACH_RUN = 50  # `make test` runs this number of seeds, `make test-long` runs all
CHUNK = 10
# Settings that change an order of writes, each with the number of values from which it is drawn.
# README.md has the table.
SETTINGS_DRAWN = {
    "barnabas.producer.snapshot.interval.ms": 3,
    "log.flush.offset.checkpoint.interval.ms": 3,
    "log.flush.interval.messages": 2,
    "log.flush.interval.ms": 2,
    "flush.messages": 3,
    "flush.ms": 2,
    "segment.bytes": 4,
    "segment.ms": 3,
    "segment.jitter.ms": 2,
    "transaction.state.log.segment.bytes": 3,
    "offsets.topic.segment.bytes": 2,
    "barnabas.internal.topics.dirty.bytes": 3,
    "transaction.state.log.num.partitions": 3,
    "offsets.topic.num.partitions": 3,
    "log.index.size.max.bytes": 3,
    "index.interval.bytes": 3,
    "retention.ms": 3,
    "retention.bytes": 3,
    "log.retention.check.interval.ms": 3,
    "log.initial.task.delay.ms": 3,
    "file.delete.delay.ms": 3,
    "cleanup.policy": 2,
    "log.cleaner.enable": 2,
    "log.cleaner.backoff.ms": 2,
    "min.cleanable.dirty.ratio": 3,
    "min.compaction.lag.ms": 2,
    "max.compaction.lag.ms": 2,
    "delete.retention.ms": 3,
    "compression.type": 4,
    "offsets.retention.check.interval.ms": 2,
    "group.consumer.assignment.interval.ms": 3,
}
ROOT = Path(__file__).resolve().parents[2]


LESSONS = (
    (
        4,
        "with_small_segments_and_power",
        "a hole between two segments ends the log: a reader stood before it for ever",
    ),
    (
        18,
        "with_small_segments_and_power",
        "what is behind such a hole was not durable: records were missing from the middle",
    ),
    (
        28,
        "with_small_segments_and_power",
        "a segment that was rolled and never fsynced may be torn while the next one is whole",
    ),
    (
        0,
        "with_power",
        "a partition's files are durable once its directory and its name are: a committed "
        "transaction was gone",
    ),
    (
        16,
        "with_power_on_transactions",
        "a commit marker written again committed the transaction after the one that it was for",
    ),
    (
        2,
        "with_power_and_survivors",
        "a producer that outlives the broker's power loss must not go on: half a transaction was "
        "committed",
    ),
    (8, "with_power_and_survivors", "nor may its commit pass for a retry of the last one"),
    (1, "with_deletions", "deleted records came back with a kill"),
    (
        1,
        "with_a_disk_that_fails",
        "a disk whose fsync failed took no note of it either: the next start believed in pages "
        "that were gone, and a committed transaction lost records",
    ),
    (26, "with_a_disk_that_fails", "the same"),
)
DRAWN_LESSONS = (
    (
        434,
        "retention deletes by a wall clock that is set back later: how old a record was then is "
        "not known by the clock at the end",
    ),
    (
        12000407,
        "a member that has nothing to read and a session of 400 ms has to send heartbeats in time, "
        "else its group never comes to rest",
    ),
    (
        12000537,
        "a producer that was forgotten amid its epoch cannot go over to transactions of version 2 "
        "with a sequence above 0",
    ),
    (
        13000238,
        "classic members alone in a consumer group have no leader that notices a topic that grew",
    ),
    (
        13001134,
        "what a static member's former process has is shared out again from when the next one asks "
        "for its place, before that one has its answer",
    ),
    (
        13004217,
        "a fetch session is silent about an empty log: who has read nothing there need not hear of "
        "each leader",
    ),
    (
        41008354,
        "a batch that was sent to who leads no more was overtaken by the next one, and out of "
        "order for good",
    ),
    (
        42000422,
        "a batch that was written came once more over a connection that broke, to who leads no "
        "more, and held its producer's next ones up for good",
    ),
    (
        42004645,
        "the id of a topic whose log was off line was not durable after a clean stop: a power loss "
        "took it, the flush journal's end of the log was another's, and a transaction was lost",
    ),
    (
        43001456,
        "where all members of a consumer group speak the classic protocol, nobody got the "
        "partitions of one that had left",
    ),
    (
        29001155,
        "what a static member gets of its share may be on its way while another process of it "
        "takes its place",
    ),
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Suppress the broker's log lines about the traces of crashes, which are normal here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def reported(report: Report) -> str:
    return f"python -m sim --seed {report.seed} --trace: " + "; ".join(
        f"{kind}: {text}" for kind, text in report.findings[:3]
    )


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=pytest.mark.long if first >= SEEDS_OF_EACH_RUN else ())
        for first in range(0, SEEDS_IN_ALL, CHUNK)
    ],
)
def test_nothing_is_found_in_a_few_hundred_schedules(first: int) -> None:
    reports = [run_seed(seed) for seed in range(first, first + CHUNK)]
    assert [reported(report) for report in reports if report.findings] == []
    assert sum(report.restarts for report in reports) > CHUNK // 3, (
        "too little goes wrong for this to prove anything"
    )
    assert sum(len(report.history.reads) for report in reports) > 30 * CHUNK, (
        "too little is read for this to prove anything"
    )


@pytest.mark.parametrize(("seed", "tweak", "lesson"), LESSONS)
def test_what_was_learnt(seed: int, tweak: str, lesson: str) -> None:
    report = run_seed(seed, tweak=getattr(focuses, tweak), is_plain=True)
    assert report.findings == [], lesson


@pytest.mark.parametrize(("seed", "lesson"), DRAWN_LESSONS)
def test_what_was_learnt_of_whole_schedules(seed: int, lesson: str) -> None:
    assert run_seed(seed).findings == [], lesson


def test_the_same_seed_is_the_same_schedule() -> None:
    assert run_seed(11).digest == run_seed(11).digest
    assert run_seed(11).digest != run_seed(12).digest


@pytest.mark.long
def test_a_schedule_does_not_depend_on_the_hash_seed() -> None:
    outputs = []
    for hash_seed in ("1", "4242"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": f"{ROOT}/tests{os.pathsep}{ROOT}",
        }
        ran = subprocess.run(
            [sys.executable, "-m", "sim", "--seeds", "20", "--digests", "--quiet"],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        outputs.append(ran.stdout)
    assert outputs[0].count("\n") >= 20
    assert outputs[0] == outputs[1]


def test_schedules_are_of_many_kinds() -> None:
    """The drawn scenarios include every kind of client and every kind of fault."""
    import random

    drawn = [Scenario.drawn(random.Random(seed)) for seed in range(100)]
    assert {scenario.workers for scenario in drawn} == {0, 1, 2}
    assert {scenario.last_restart for scenario in drawn} == {"none", "stop", "kill", "power"}
    assert 20 < sum(1 for scenario in drawn if scenario.power_share) < 80
    assert any(committed for scenario in drawn for _, committed in scenario.readers)
    assert any(not committed for scenario in drawn for _, committed in scenario.readers)
    assert any(scenario.flushed_topics for scenario in drawn)
    assert 5 < sum(1 for scenario in drawn if scenario.remade_topic) < 40
    assert {scenario.consumers for scenario in drawn} == {0, 1, 2}
    assert {scenario.epoch_followers for scenario in drawn} == {0, 1, 2}
    assert {scenario.follows_by_fetch for scenario in drawn} == {False, True}
    assert 5 < sum(1 for scenario in drawn if scenario.aims_at_ends) < 30
    assert {scenario.aims_at_swaps for scenario in drawn} == {False, True}
    assert {scenario.damages_batches for scenario in drawn if scenario.outages} == {False, True}
    assert {topic for scenario in drawn for topic in scenario.growing} == {
        "plain",
        "tx",
        "in",
        "out",
        "kv",
    }
    assert 5 < sum(1 for scenario in drawn if not scenario.commits_are_durable) < 40
    assert any(scenario.is_static and scenario.twins for scenario in drawn)
    assert any(scenario.leaving for scenario in drawn)
    assert 10 < sum(1 for scenario in drawn if scenario.refusals) < 50
    assert {scenario.outages for scenario in drawn} == {0, 1, 2}
    assert len({scenario.full_journal_bytes for scenario in drawn}) == 3
    assert {scenario.meddlers for scenario in drawn} == {0, 1, 2}
    assert any(scenario.stops_ms for scenario in drawn)
    assert any(
        scenario.padding
        for scenario in (Scenario.drawn(random.Random(seed)) for seed in range(300))
    )
    assert {codec for scenario in drawn for codec in scenario.codecs} == {0, 1, 2, 3, 4}
    assert {scenario.most_in_flight for scenario in drawn} == {1, 2, 3, 4, 5}
    assert {acks for scenario in drawn for acks in scenario.plain_acks} == {-1, 0, 1}
    assert {scenario.session_timeout_ms for scenario in drawn} == {400, 900, 1500, 2500}
    assert any(scenario.is_audited for scenario in drawn)
    assert any(scenario.ids_expire for scenario in drawn)
    assert any(scenario.retention_ms for scenario in drawn)
    many = [Scenario.drawn(random.Random(seed)) for seed in range(600)]
    assert {len(scenario.groups) for scenario in many} == {0, 1, 2, 3}
    assert {scenario.kafka_epochs for scenario in many} == {0, 1, 3, 40}
    assert any(scenario.kafka_was_killed for scenario in many)
    assert {scenario.offsets_retention_ms for scenario in many} == {None, 600, 1500}
    assert {scenario.consumer_protocol for scenario in many} == {0.0, 0.3, 0.6, 1.0}
    assert {scenario.fsync_ms for scenario in many} == {0, 6, 60}
    for name, count in SETTINGS_DRAWN.items():
        values = {
            configs[name]
            for scenario in many
            for configs in (scenario.properties, *scenario.topic_configs.values())
            if name in configs
        }
        assert len(values) >= count, f"{name} is always one of {sorted(values)}"


def test_what_only_some_schedules_have_leaves_the_others_as_they_are() -> None:
    """These options have their own random generator: seeds that draw none of them have the same
    schedules as before the options existed.
    """
    import random

    def is_plain(seed: int) -> bool:
        drawn, plain = (
            Scenario.drawn(random.Random(seed)),
            Scenario.drawn(random.Random(seed), is_plain=True),
        )
        is_same = {**vars(drawn), "weather": vars(drawn.weather)} == {
            **vars(plain),
            "weather": vars(plain.weather),
        }
        return is_same and drawn_focus(seed) is None

    same = [seed for seed in range(600) if is_plain(seed)]
    assert 3 <= len(same) < 300
    for seed in same[:3]:
        assert run_seed(seed).digest == run_seed(seed, is_plain=True).digest


def test_groups_meet_their_former_selves() -> None:
    """Static members return while their previous processes are still running, and other members
    leave. The checkers receive the requests of both processes.
    """
    reported = [
        run_seed(seed, tweak=focuses.with_static_members).history.accesses for seed in range(14)
    ]
    ids = [
        {access.member_id for access in accesses if access.instance_id == "s0"}
        for accesses in reported
    ]
    assert sum(len(of_instance) for of_instance in ids) > 2 * len(ids), (
        "static members do not come back"
    )
    left = [run_seed(seed, tweak=focuses.with_departures).history.accesses for seed in range(6)]
    assert any(access.is_leave for accesses in left for access in accesses)


def test_members_speak_both_protocols_in_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions change owners, groups change their protocol both ways, and offsets are accepted,
    with and without transactions; no partition has two owners.
    """
    changes = Counter[str]()

    def counting(name: str) -> None:
        method = getattr(GroupConversion, name)

        def count(self: GroupConversion, *args: Any) -> Any:
            answer = method(self, *args)
            changes[name] += name == "downgrade" or bool(answer)
            return answer

        monkeypatch.setattr(GroupConversion, name, count)

    counting("upgraded")
    counting("downgrade")
    reports = [run_seed(seed, tweak=focuses.with_consumer_protocol) for seed in range(14, 30)]
    assert [reported(report) for report in reports if report.findings] == []
    assert changes["upgraded"] > 3
    assert changes["downgrade"] > 3
    owners: dict[tuple[int, str, Partition], set[str]] = {}
    for report in reports:
        for holding in report.history.holdings:
            key = report.seed, holding.group, holding.partition
            owners.setdefault(key, set()).add(holding.member)
    assert sum(len(names) for names in owners.values()) > 2 * len(owners)
    taken = Counter(commit.group for report in reports for commit in report.history.taken_commits)
    assert min(taken["group"], taken["group 0"]) > 30, taken


ONE_AT_A_TIME = (
    (purgatory, "DUE_AT_ONCE"),
    (group_coordinator, "DUE_AT_ONCE"),
    (group_administration, "ROWS_AT_ONCE"),
    (transaction_coordinator, "DUE_AT_ONCE"),
    (transaction_end, "MARKERS_AT_ONCE"),
    (transaction_listing, "ROWS_AT_ONCE"),
    (topics, "LOGS_MADE_AT_ONCE"),
    (flush_queue, "LOGS_OF_A_FLUSH"),
    (topics, "LOGS_CONFIGURED_AT_ONCE"),
    (topic_deletion, "LOGS_DELETED_AT_ONCE"),
    (metadata, "ROWS_READ_AT_ONCE"),
    (transactions, "ROWS_READ_AT_ONCE"),
    (segment_indexes, "BUILT_AT_ONCE_BYTES"),
    (batch_file, "SLICE_COST"),
)


def test_whatever_is_done_in_slices_may_be_done_in_the_smallest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All work that is normally done in slices is done one element at a time, with crashes in
    between. These schedules have too few topics and groups to fill slices of the normal size.
    """
    for module, name in ONE_AT_A_TIME:
        assert getattr(module, name) > 1
        monkeypatch.setattr(module, name, 1)
    builds = Counter[bool]()
    build_later = LogDirectory.build_later

    def counted(self: LogDirectory, deferred: BuildDeferred, then: Any) -> None:
        builds[deferred.is_for_aborted] += 1
        build_later(self, deferred, then)

    monkeypatch.setattr(LogDirectory, "build_later", counted)
    reports = [
        run_seed(seed, tweak=focus)
        for seed in range(3)
        for focus in (
            focuses.from_kafka,
            focuses.with_retention,
            focuses.with_remakes_and_power,
            focuses.with_expiry,
        )
    ]
    assert [reported(report) for report in reports if report.findings] == []
    assert builds[False] > 20


def test_a_reader_asks_again_for_what_it_left_out_when_a_deletion_does_not_come_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fetch session reports an empty log's state only once. The reader did not count that report,
    since the topic might have been created again in the meantime.
    """
    world, life = World(0), Life()
    world.history.lives["gone"] = [life]
    reader = Reader(world, "r", [("gone", 0)], committed_only=True, uses_session=True)

    def ask(call: wire.Call, timeout_ms: int) -> Iterator[Any]:
        rows = [wire.Fetched("gone", 0, 0, 0, 0, 0, [], b"")] if reader.session_epoch == 0 else []
        return wire.FetchAnswer(0, 7, rows)
        yield

    monkeypatch.setattr(reader, "ask", ask)
    monkeypatch.setattr(reader, "link", SimpleNamespace(is_open=True))
    reader.session_epoch = 0
    life.asked_ms = world.loop.now_ms
    for _ in range(2):
        assert list(reader.poll(0)) == []
        assert reader.stable == {}
    life.asked_ms = NEVER_MS
    assert list(reader.poll(0)) == []
    assert reader.stable == {("gone", 0): 0}
    assert list(reader.poll(0)) == []
    assert reader.session_epoch == 2, "the session goes on"


def test_topics_are_deleted_and_made_again_while_they_are_used() -> None:
    reports = [run_seed(seed, tweak=focuses.with_calm_remakes) for seed in range(6)]
    assert sum(len(report.history.lives["gone"]) for report in reports) > 2 * len(reports)
    assert sum(len(report.history.commits) for report in reports) > len(reports), (
        "no group reads the topic"
    )
    assert [reported(report) for report in reports if report.findings] == []


def test_a_deletion_that_is_cut_short_came_about_or_did_not() -> None:
    """Three faults were found in 5 of these 20 seeds: half a topic came back; offsets that groups
    had committed for it came back; and a flush in progress stopped the broker.
    """
    reports = [
        run_seed(seed, tweak=focuses.with_remakes_and_power, is_plain=True) for seed in range(20)
    ]
    assert [reported(report) for report in reports if report.findings] == []


def test_topics_grow_while_they_are_used() -> None:
    reports = [run_seed(seed, tweak=focuses.with_growth) for seed in range(6)]
    written = {
        write.partition
        for report in reports
        for write in report.history.writes
        if write.outcome.value == "ok"
    }
    assert ("plain", 1) in written, "no producer writes to what is new"
    assert [reported(report) for report in reports if report.findings] == []


def test_nonsense_is_sent_and_hurts_nobody() -> None:
    """Most invalid batches are refused, some are corrected; the worker checks batches that
    decompress to 1 MB.
    """
    worlds = [World(seed, tweak=focuses.with_meddlers) for seed in range(6)]
    reports = [world.run() for world in worlds]
    assert [reported(report) for report in reports if report.findings] == []
    lies = [
        write
        for report in reports
        for write in report.history.writes
        if write.session.startswith("m")
    ]
    assert sum(1 for write in lies if write.outcome.value == "failed") > 40
    assert sum(1 for write in lies if write.outcome.value == "ok") > 5
    assert sum(world.node.works for world in worlds) > 0


def test_a_process_that_stands_still_hears_first() -> None:
    worlds = [World(seed, tweak=focuses.with_stops) for seed in range(4)]
    reports = [world.run() for world in worlds]
    assert [reported(report) for report in reports if report.findings] == []
    assert all(world.node.stops for world in worlds)


def test_groups_over_one_topic_have_churn_of_their_own() -> None:
    reports = [run_seed(seed, tweak=focuses.with_groups) for seed in range(4)]
    assert [reported(report) for report in reports if report.findings] == []
    for report in reports:
        assert {commit.group for commit in report.history.commits} == {"group 0", "group 1"}
        assert (
            len(
                {
                    access.member_id
                    for access in report.history.accesses
                    if access.group == "group 1"
                }
            )
            > 2
        ), "no process dies"


def _with_deaths_at_last(scenario: Scenario) -> None:
    focuses.with_deaths(scenario)
    scenario.is_audited, scenario.last_restart, scenario.transaction_timeout_ms = True, "none", 3000


def _with_twins_that_leave(scenario: Scenario) -> None:
    focuses.with_static_members(scenario)
    scenario.leaving, scenario.twins = 0.6, 1.0


def _with_outages_amid_work(scenario: Scenario) -> None:
    scenario.outages, scenario.fault_count, scenario.fault_gap_ms, scenario.chaos_ms = (
        6,
        0,
        (50, 600),
        6000,
    )
    scenario.power_share, scenario.crash_at_start, scenario.rounds = 0.0, 0.0, 12
    scenario.properties["barnabas.flush.journal.logs"] = "1"


@pytest.mark.parametrize(
    ("seed", "tweak", "right"),
    [
        (
            6,
            _with_deaths_at_last,
            "a transaction may be open until its time is up, where its producer has died before it "
            "wrote",
        ),
        (10, _with_deaths_at_last, "the same"),
        (
            18,
            _with_twins_that_leave,
            "a static member is unknown once the one that replaced it has left",
        ),
        (21, _with_twins_that_leave, "the same, in a group that commits by OffsetCommit"),
    ],
)
def test_what_a_broker_may_do_is_no_finding(seed: int, tweak: Tweak, right: str) -> None:
    report = run_seed(seed, tweak=tweak)
    assert report.findings == [], right


def test_damage_may_be_taken_for_a_power_loss() -> None:
    """A start cannot distinguish a file that lacks durable data from a file of a copied disk. A
    kill without damage, however, is never mistaken for a power loss or a copy.
    """
    world = World(3332, tweak=_with_outages_amid_work, is_plain=True)
    assert world.run().findings == []
    assert world.fences > len(world.history.power_losses)


def _with_a_full_disk(scenario: Scenario) -> None:
    """Make the disk refuse renames, so that a file's new copy stays, and refuse new files later. A
    note can then be written only if such a copy exists.
    """
    focuses.with_group(scenario)
    scenario.rounds, scenario.chaos_ms, scenario.fault_count = 12, 6000, 0
    scenario.power_share, scenario.crash_at_start = 0.0, 0.0
    scenario.refusals = tuple(
        Refusal(frozenset({operation}), errno.ENOSPC, after)
        for operation, after in (("rename", 6), ("inode", 5), ("rename", 9), ("inode", 3))
    )


@pytest.mark.parametrize("seed", [2, 56])
def test_a_full_disk_is_not_taken_for_a_power_loss(seed: int) -> None:
    """No broker ends because of the lack of space, and no producer is fenced."""
    world = World(seed, tweak=_with_a_full_disk, is_plain=True)
    report = world.run()
    assert report.findings == []
    assert report.restarts == 0
    assert world.fences == 0 == len(world.history.power_losses)


def _with_a_full_disk_that_an_fsync_finds(scenario: Scenario) -> None:
    _with_a_full_disk(scenario)
    scenario.refusals = tuple(
        Refusal(frozenset({"fsync"}), errno.ENOSPC, after) for after in (6, 5, 9)
    )


@pytest.mark.parametrize("seed", [8, 15])
def test_a_failed_fsync_is_a_power_loss_whatever_the_error(seed: int) -> None:
    """A failed fsync may lose pages, so the next start fences producers and removes members."""
    world = World(seed, tweak=_with_a_full_disk_that_an_fsync_finds, is_plain=True)
    assert world.run().findings == []
    assert world.fences > 0


def _with_a_disk_that_is_full_amid_writes(scenario: Scenario) -> None:
    _with_a_full_disk(scenario)
    scenario.refusals = tuple(
        Refusal(frozenset({"write"}), errno.ENOSPC, after) for after in (40, 60, 25, 90)
    )


def test_offsets_that_find_no_space_are_neither_lost_nor_committed_unseen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = []
    note = UnwrittenWork.note

    def noted(unwritten: UnwrittenWork, *about: Any) -> None:
        refused.append(about)
        note(unwritten, *about)

    monkeypatch.setattr(UnwrittenWork, "note", noted)
    for seed in (53, 154, 162, 216, 238, 358):
        world = World(seed, tweak=_with_a_disk_that_is_full_amid_writes, is_plain=True)
        assert world.run().findings == [], seed
    assert refused


def test_starts_without_space_serve_or_say_what_they_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most starts serve clients. A broker that is restarted again and again while the same outage
    lasts is counted once. In seed 14 a member's removal waited for space while its heartbeats got
    responses, so it was removed during its next session.
    """
    outages: dict[bool, list[object]] = {True: [], False: []}
    start = Node.start

    def counted(node: Node) -> bool:
        is_up = start(node)
        seen = outages[is_up]
        if node.disk.refusal is not None and not any(one is node.disk.refusal for one in seen):
            seen.append(node.disk.refusal)
        return is_up

    monkeypatch.setattr(Node, "start", counted)
    for seed in (0, 3, 14, 21):
        assert run_seed(seed, tweak=focuses.with_starts_without_space).findings == [], seed
    assert len(outages[True]) > 5 > len(outages[False]), outages


def test_members_of_short_sessions_keep_them_without_space() -> None:
    """A member whose removal waits for space does not get the responses of a member that stays
    (seed 27).
    """
    assert run_seed(27, tweak=focuses.with_no_space_and_groups).findings == []


def _with_few_records_after_power_losses(scenario: Scenario) -> None:
    focuses.with_lost_tails(scenario)
    scenario.rounds, scenario.fault_count, scenario.chaos_ms = 4, 4, 3000
    scenario.fault_gap_ms, scenario.groups = (100, 1000), ()


@pytest.mark.parametrize("seed", [1, 18])
def test_a_reader_that_follows_epochs_has_read_all_in_the_last_of_them(seed: int) -> None:
    """The reader's position may happen to be the end of a rewritten log. The reader goes back when
    it learns the new epoch, and the schedule waits for that.
    """
    report = run_seed(seed, tweak=_with_few_records_after_power_losses, is_plain=True)
    assert report.findings == []
    assert report.history.power_losses


def _from_a_kafka_that_compacts(scenario: Scenario) -> None:
    focuses.with_compaction(scenario)
    scenario.kafka_epochs, scenario.kafka_was_killed = 3, False
    scenario.fault_count, scenario.rounds, scenario.idempotent_producers = 0, 8, 2
    scenario.weather = Weather(delay_ms=20, cut=0.08, stall=0.1)


@pytest.mark.parametrize("seed", [1, 14])
def test_what_was_compacted_away_before_kafka_stopped_is_not_recognised(seed: int) -> None:
    """Taking over a directory of Apache Kafka is a restart: a repeated batch is recognised by the
    log, which no longer contains this batch.
    """
    report = run_seed(seed, tweak=_from_a_kafka_that_compacts, is_plain=True)
    assert report.findings == []


def test_ids_expire_and_producers_come_back() -> None:
    """The expiration time is unchanged, unlike in the planted defect, so no request is repeated
    after its producer has expired.
    """
    reports = [run_seed(seed, tweak=Scenario._draw_expiry) for seed in range(4)]
    assert [reported(report) for report in reports if report.findings] == []
    assert all(report.virtual_ms > 9000 for report in reports)


def calm(scenario: Scenario) -> None:
    scenario.fault_count, scenario.pausing, scenario.zombies = 0, 0.0, 0.0
    scenario.weather = Weather(delay_ms=1)
    scenario.last_restart = "none"
    scenario.meddlers, scenario.plain_acks, scenario.refusals, scenario.outages = 0, (), (), 0


def test_without_faults_every_write_is_acknowledged() -> None:
    """The simulator itself refuses nothing, so all losses in other schedules are due to faults."""
    for seed in range(10):
        report = run_seed(seed, tweak=calm)
        assert report.findings == []
        writes = [write for write in report.history.writes if write.transaction is None]
        assert all(write.outcome.value == "ok" for write in writes)


@pytest.mark.parametrize("seed", [64])
def test_what_is_emptied_keeps_nothing(seed: int) -> None:
    """These schedules have two-phase transactions, whose ids expire."""
    scenario = World(seed).scenario
    assert scenario.last_restart == "none" and scenario.two_phase
    assert not run_seed(seed).findings


@pytest.mark.parametrize("seed", [5, 21, 37])
def test_caches_of_the_hot_path_make_no_difference(seed: int) -> None:
    assert not run_without_caches(seed).findings


def test_a_deadline_that_is_believed_to_be_the_same_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The logs do not say that an append has given their manager work."""
    never = property(lambda _: False, lambda *_: None)
    monkeypatch.setattr(LogDirectory, "has_new_work", never)
    findings = run_seed(13).findings
    assert any("the timer is set to" in finding.text for finding in findings)


def test_a_segment_that_is_believed_to_have_room_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    room = segment.Room
    monkeypatch.setattr(segment, "Room", lambda *kept: room(1 << 60, 1 << 60, 1 << 60, kept[3]))
    assert any(run_without_caches(seed).findings for seed in range(5, 60, 16))
