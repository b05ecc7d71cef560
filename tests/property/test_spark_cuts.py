"""No batch of a stream or of a batch read with wholeTransactions divides a transaction, whatever
happens between two requests: commits, recorded cuts, partitions and topics that are added, and
restarts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping

import pytest

pytest.importorskip("pyarrow")

from helpers.examples import drawn
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.cluster_reader import ClusterReader, TimedOffset
from barnabas.client.options import ClientOptions
from barnabas.protocol.cut_times import AT_OR_AFTER, AT_OR_BEFORE
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark_connector.read.cuts import MOST_IN_ONE_ANSWER, Cut, between
from barnabas.spark_connector.read.offsets import EARLIEST, LATEST, Offsets
from barnabas.spark_connector.read.options import parse_source_options
from barnabas.spark_connector.read.planning import plan
from barnabas.spark_connector.read.whole_stream_planning import WholeStreamPlanner

Extents = dict[TopicPartition, tuple[int, int]]


class World(ClusterReader):
    """A broker whose last stable offsets are a cut at every moment, as the client sees it.

    `between_requests` is called before each answer. is_divided: whether the broker answers each
    partition at a moment of its own, as several brokers do.
    """

    def __init__(self, chance: random.Random) -> None:
        super().__init__(ClientOptions((("nowhere", 1),)))
        self.chance = chance
        self.ends: Offsets = {TopicPartition("t-0", 0): 0}
        self.transactions: list[Extents] = []
        self.cuts: dict[int, Offsets] = {}
        self.now_ms = 0
        self.between_requests: Callable[[], None] = lambda: None
        self.is_divided = False

    # --- what happens at the broker

    def commit(self) -> None:
        """A transaction in some partitions becomes readable."""
        count = self.chance.randint(1, min(4, len(self.ends)))
        extents: Extents = {}
        for name in self.chance.sample(sorted(self.ends), count):
            size = self.chance.randint(2, 9)  # with its marker
            extents[name] = self.ends[name], self.ends[name] + size
            self.ends[name] += size
        self.transactions.append(extents)

    def record(self) -> None:
        """Time passes, and the present cut is recorded."""
        self.now_ms += self.chance.choice([1, 7, 1000, 50_000])
        self.cuts[self.now_ms] = dict(self.ends)

    def thin_out(self) -> None:
        """Forget some of the recorded cuts."""
        for time_ms in [each for each in self.cuts if self.chance.random() < 0.5]:
            del self.cuts[time_ms]

    def add_partition(self) -> None:
        """Add a partition to a topic, or a topic; at once it gets a transaction with others."""
        topic = f"t-{self.chance.randint(0, 2)}"
        index = sum(name.topic == topic for name in self.ends)
        self.ends[TopicPartition(topic, index)] = 0
        self.commit()

    def step(self) -> None:
        """Let something happen."""
        steps = [self.commit, self.record, self.thin_out, self.add_partition]
        self.chance.choices(steps, [8, 4, 1, 1])[0]()

    def interrupt_with(self, *steps: Callable[[], None]) -> None:
        """Let one of the steps happen before some requests, up to 50 times."""
        left = 50

        def interrupt() -> None:
            nonlocal left
            if left and self.chance.random() < 0.2:
                left -= 1
                self.chance.choice(steps)()

        self.between_requests = interrupt

    # --- the client's methods

    def timed_offsets_at(
        self, timestamps: Mapping[TopicPartition, int], *, read_committed: bool
    ) -> dict[TopicPartition, TimedOffset]:
        self.between_requests()
        rows = {}
        for name, timestamp in timestamps.items():
            if self.is_divided:
                self.between_requests()
            rows[name] = self._row(name, timestamp)
        return rows

    def _row(self, name: TopicPartition, timestamp: int) -> TimedOffset:
        if timestamp == EARLIEST:
            return TimedOffset(0, -1)
        if timestamp == LATEST:
            return TimedOffset(self.ends[name], -1)
        cut = (
            at_or_after(self.cuts, timestamp - AT_OR_AFTER)
            if timestamp >= AT_OR_AFTER
            else at_or_before(self.cuts, timestamp - AT_OR_BEFORE)
        )
        return (
            TimedOffset(None, -1)
            if cut is None
            else TimedOffset(cut.offsets.get(name, 0), cut.time_ms)
        )

    def leader_count(self, names: Iterable[TopicPartition]) -> int:
        return 2 if self.is_divided else 1

    def topic_setting(self, topics: Iterable[str], setting: str) -> dict[str, str | None]:
        return dict.fromkeys(topics, "true")

    def topics_matching(self, pattern: str) -> list[str]:
        self.between_requests()
        return sorted({name.topic for name in self.ends})

    def partitions_of(
        self, topics: Iterable[str], *, missing_ok: bool = False, create: bool = False
    ) -> list[TopicPartition]:
        self.between_requests()
        wanted = set(topics)
        return sorted(name for name in self.ends if name.topic in wanted)

    def recreated_topics(self, topic_ids: Mapping[str, str]) -> list[str]:
        return []


def at_or_before(cuts: Mapping[int, Offsets], time_ms: int) -> Cut | None:
    found = max((each for each in cuts if each <= time_ms), default=None)
    return None if found is None else Cut(found, cuts[found])


def at_or_after(cuts: Mapping[int, Offsets], time_ms: int) -> Cut | None:
    found = min((each for each in cuts if each >= time_ms), default=None)
    return None if found is None else Cut(found, cuts[found])


def divided(transactions: Iterable[Extents], ends: Offsets) -> list[Extents]:
    """The transactions of which a part is below the ends, and a part is not."""
    return [
        extents
        for extents in transactions
        if len({end <= ends.get(name, 0) for name, (_, end) in extents.items()}) > 1
        or any(first < ends.get(name, 0) < end for name, (first, end) in extents.items())
    ]


OPTIONS = {
    "kafka.bootstrap.servers": "nowhere:1",
    "subscribePattern": ".*",
    "wholeTransactions": "true",
}
SEEDS = st.integers(0, 1 << 32)


def new_planner(
    world: World, monkeypatch: pytest.MonkeyPatch, **options: str
) -> WholeStreamPlanner:
    parsed = parse_source_options(OPTIONS | options, streaming=True)
    monkeypatch.setattr(
        "barnabas.spark_connector.read.stream_planning.ClusterReader", lambda _: world
    )
    return WholeStreamPlanner(parsed, clock=lambda: world.now_ms / 1000)


def is_within(world: World, start: Offsets, end: Offsets, limit: int, last: Offsets) -> bool:
    """Whether a batch is as large as it should be: within the limit, or up to the first recorded
    cut after its beginning, or up to the end of the run if none is recorded.
    """
    size = sum(offset - start.get(name, 0) for name, offset in end.items())
    inside = [
        cut
        for cut in world.cuts.values()
        if any(start.get(name, 0) < min(cut.get(name, 0), last[name]) for name in end)
        and any(max(cut.get(name, 0), start.get(name, 0)) < offset for name, offset in end.items())
    ]
    return size <= limit or not inside


@settings(max_examples=drawn(60))
@given(seed=SEEDS)
def test_no_micro_batch_divides_a_transaction(seed: int) -> None:
    chance = random.Random(seed)
    world = World(chance)
    world.is_divided = chance.random() < 0.3
    for _ in range(chance.randint(0, 40)):
        world.step()
    options = {"startingOffsets": chance.choice(["earliest", "latest"])}
    limit, least = chance.choice([None, 1, 20, 100]), chance.choice([None, 1, 30])
    with pytest.MonkeyPatch.context() as monkeypatch:
        planner = new_planner(world, monkeypatch, **options)
        is_finite = chance.random() < 0.4
        if is_finite:
            planner.freeze()
        world.interrupt_with(world.step)
        at = planner.initial()
        if options["startingOffsets"] == "latest":
            assert not divided(world.transactions, at)
        for _ in range(chance.randint(1, 12)):
            if chance.random() < 0.2 and at != planner.initial():
                planner = new_planner(world, monkeypatch, **options)
                if is_finite:
                    planner.freeze()
            before = at
            at = planner.latest(at, max_offsets=limit, min_offsets=least)
            assert not divided(world.transactions, at), (before, at)
            assert all(at[name] >= offset for name, offset in before.items())
            for _ in range(chance.randint(0, 3)):
                world.step()


@settings(max_examples=drawn(40))
@given(seed=SEEDS, limit=st.integers(1, 60))
def test_a_backlog_is_read_in_batches_of_recorded_cuts(seed: int, limit: int) -> None:
    chance = random.Random(seed)
    world = World(chance)
    for _ in range(chance.randint(1, 150)):
        world.step()
    with pytest.MonkeyPatch.context() as monkeypatch:
        planner = new_planner(world, monkeypatch, startingOffsets="earliest")
        planner.freeze()
        last, at = dict(world.ends), planner.initial()
        batches = 0
        while (end := planner.latest(at, max_offsets=limit)) != at:
            assert not divided(world.transactions, end)
            assert is_within(world, at, end, limit, last), (at, end)
            at, batches = end, batches + 1
            for _ in range(chance.randint(0, 2)):
                world.commit()
                world.record()
        assert at == last, "the run ends where the logs ended at its start"


@settings(max_examples=drawn(40))
@given(seed=SEEDS)
def test_no_batch_read_divides_a_transaction(seed: int) -> None:
    chance = random.Random(seed)
    world = World(chance)
    world.is_divided = chance.random() < 0.3
    for _ in range(chance.randint(1, 60)):
        world.step()
    world.record()
    time_ms = chance.randint(min(world.cuts), world.now_ms)
    of_time = at_or_before(world.cuts, time_ms)
    assert of_time is not None
    world.interrupt_with(world.commit, world.record, world.add_partition)
    for extra in ({}, {"asOf": str(time_ms)}, {"startingCut": str(time_ms)}):
        ranges = plan(world, parse_source_options(OPTIONS | extra))
        ends = {each.name: each.end_offset for each in ranges}
        if "asOf" in extra:
            assert ends == {name: end for name, end in of_time.offsets.items() if end}
        if "startingCut" in extra:
            ends = of_time.offsets | ends
            assert all(each.start_offset == of_time.offsets.get(each.name, 0) for each in ranges)
        assert not divided(world.transactions, ends)


@settings(max_examples=drawn(100))
@given(
    times=st.sets(st.integers(1, 10**9), max_size=30),
    boundary=st.integers(0, 10**9),
    step_ms=st.integers(1, 10**6),
    since=st.booleans(),
)
def test_neighbours_are_those_of_a_linear_scan(
    times: set[int], boundary: int, step_ms: int, since: bool
) -> None:
    """The search asks about as often as the number of cuts has binary digits."""
    cuts: dict[int, Offsets] = {each: {} for each in times}
    asked = 0

    def counted(find: Callable[[Mapping[int, Offsets], int], Cut | None], at: int) -> Cut | None:
        nonlocal asked
        asked += 1
        return find(cuts, at)

    low_times = [each for each in sorted(times) if each <= boundary]
    high_times = [each for each in sorted(times) if each > boundary]
    low, high = between(
        lambda at: counted(at_or_before, at),
        lambda at: counted(at_or_after, at),
        lambda cut: cut is None or cut.time_ms <= boundary,
        since_ms=low_times[0] if since and low_times else None,
        step_ms=step_ms,
    )
    assert (None if high is None else high.time_ms) == (high_times[0] if high_times else None)
    if low_times and not (since and low is None):
        assert low is not None and low.time_ms == low_times[-1]
    assert asked < 150


def test_a_single_answer_is_enough_up_to_the_limit_of_the_broker() -> None:
    from barnabas.broker.requests.wide_requests import AT_ONCE

    assert MOST_IN_ONE_ANSWER <= AT_ONCE
