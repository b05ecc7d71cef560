"""Short schedules for whole transactions: `python -m sim --whole --seeds 10000`.

Each has many producers in transactions over several topics with `barnabas.transactions.whole`, and
few other clients. It costs a quarter of a whole schedule, so that many can be run for the rules
"half" and "cut" of checkers.py. Every sixteenth seed has two machines, and take-overs. `THINGS`
names what such schedules have to contain; the last lines of a run say how many had each.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

from checkers import Ending
from helpers.raised_faults import raised_faults

from barnabas.broker.transactions import cut_history, cuts, whole_transactions
from barnabas.broker.transactions.cuts import Cuts
from barnabas.broker.transactions.whole_transactions import WholeTransactions
from sim.network import Weather
from sim.pair_world import Pair, PairWorld
from sim.scenario import CUT_BYTES, CUT_INTERVAL, DURABILITY, THINNED_BYTES, WHOLE, Scenario
from sim.world import Report, World

if TYPE_CHECKING:
    from sim.world import Tweak

PAIR_EVERY, PAIR_AT = 16, 3
COMPARED_EVERY = 8
# lower limits, each in a part of the schedules: transactions join sooner; recorded cuts are thinned
# out after a few, and their file is replaced whenever it is larger than needed; all work on cuts is
# done in many slices, with other events in between
Limits = tuple[tuple[Any, str, Any], ...]
THINNING: Limits = (
    (cuts, "FEWEST_BETWEEN", 3),
    (cuts, "SMALL_BYTES", 0),
    (cut_history, "ALL_KEPT_MS", 300),
    (cut_history, "PERIODS", ((5000, 400),)),
)
LIMITS: tuple[tuple[float, Limits], ...] = (
    (0.2, ((whole_transactions, "MOST_EXTENTS", 6),)),
    (0.4, THINNING),
    (
        0.5,
        (
            (cuts, "PARTITIONS_AT_ONCE", 1),
            (cuts, "ROWS_AT_ONCE", 3),
            (cuts, "BYTES_AT_ONCE", 60),
            (cuts, "QUESTIONS_AT_ONCE", 1),
            (cut_history, "READ_BYTES", 60),
            (cut_history, "ROWS_IN_FRAME", 3),
        ),
    ),
)
# what the broker does, with the function that does it
WORKS: tuple[tuple[type, str, str], ...] = (
    (WholeTransactions, "_join", "transactions joined"),
    (WholeTransactions, "on_left", "a partition left"),
    (Cuts, "_drop_lost", "recorded cuts read"),
    (Cuts, "_thin", "recorded cuts thinned out"),
    (Cuts, "_replace", "the file of cuts replaced"),
)
THINGS = (
    "three producers committed in two topics", "version 1", "version 2", "two-phase commit",
    "kill", "stop", "power", "crash", "delete", "storm", "retention", "take-over",
    "a topic got the setting", "a topic lost the setting", "a topic was made again",
    "markers in parts", "held back", "held back at a start", "a cut was recorded",
    *(thing for _, _, thing in WORKS),
)  # fmt: skip


def scenario_of(rng: random.Random) -> Scenario:
    """The scenario of a short schedule."""
    topics = {"tx": rng.randint(1, 3), "pay": rng.randint(1, 2), "plain": 1}
    scenario = Scenario(topics=topics)
    if rng.random() < 0.3:
        topics["gone"], scenario.remade_topic, scenario.remakes = 1, "gone", rng.randint(1, 3)
    segment_bytes = rng.choice(("400", "1000", "1048576"))
    for topic in topics:
        scenario.topic_configs[topic] = {
            "segment.bytes": segment_bytes,
            "index.interval.bytes": rng.choice(("0", "4096")),
        }
    _draw_whole(scenario, rng)
    _draw_clients(scenario, rng)
    _draw_faults(scenario, rng)
    return scenario


def _draw_whole(scenario: Scenario, rng: random.Random) -> None:
    """Draw the topics with the setting, at least two, and how cuts are recorded."""
    scenario.properties[CUT_INTERVAL] = rng.choice(("10", "50", "300"))
    scenario.properties[CUT_BYTES] = rng.choice(("1024", "4096", "4194304"))
    if rng.random() < 0.5:
        scenario.properties[WHOLE] = "true"
    else:
        for topic in scenario.topics:
            if topic in ("tx", "pay") or rng.random() < 0.6:
                scenario.topic_configs[topic][WHOLE] = "true"
    if rng.random() < 0.25:
        scenario.toggled = tuple(topic for topic in ("tx", "pay", "plain") if rng.random() < 0.6)


def _draw_clients(scenario: Scenario, rng: random.Random) -> None:
    scenario.applications, scenario.rounds = rng.randint(3, 5), rng.randint(3, 5)
    scenario.idempotent_producers, scenario.pausing = rng.randint(0, 1), rng.choice((0.2, 0.5))
    scenario.transaction_timeout_ms = rng.choice((500, 1500, 3000))
    scenario.zombies, scenario.dying = rng.choice((0.0, 0.2)), rng.choice((0.02, 0.1))
    scenario.version_2, scenario.reuses_sequences = rng.choice((0.0, 0.5, 1.0)), rng.random() < 0.3
    if rng.random() < 0.25:
        scenario.use_two_phase(1)
    scenario.readers = [
        ([one for topic in scenario.topics for one in scenario.partitions_of(topic)], True)
    ]
    scenario.weather = Weather(
        delay_ms=rng.choice((1, 5, 20)), cut=rng.choice((0.0, 0.03)), stall=rng.choice((0.0, 0.02))
    )


def _draw_faults(scenario: Scenario, rng: random.Random) -> None:
    loses_power = rng.random() < 0.4
    scenario.fault_weights = (4, 3 if loses_power else 0, 2, 3, 1, 2)
    scenario.power_share = 0.5 if loses_power else 0.0
    scenario.sessions_end_with_power = rng.random() < 0.3
    scenario.fault_count, scenario.fault_gap_ms = rng.randint(1, 4), (50, 700)
    scenario.chaos_ms, scenario.fsync_ms = rng.randint(1000, 2500), rng.choice((0, 6, 60))
    scenario.aims_at_ends = rng.random() < 0.3
    scenario.last_restart = rng.choice(("stop", "kill", "power" if loses_power else "kill"))
    if loses_power and rng.random() < 0.25:
        scenario.properties[DURABILITY] = "os"
    for name, values in (
        ("transaction.state.log.segment.bytes", ("2000", "1000000")),
        ("barnabas.producer.snapshot.interval.ms", ("50", "30000")),
        ("log.flush.offset.checkpoint.interval.ms", ("150", "60000")),
    ):
        scenario.properties[name] = rng.choice(values)
    if rng.random() < 0.3:
        for topic in ("tx", "pay", "plain"):
            scenario.topic_configs[topic] |= {
                "segment.bytes": "400",
                "retention.ms": rng.choice(("600", "1500")),
                "file.delete.delay.ms": "0",
            }
        scenario.properties |= {
            "log.initial.task.delay.ms": "200",
            "log.retention.check.interval.ms": "200",
        }


def tweak_of(seed: int) -> Tweak:
    """A function that replaces a drawn scenario by the short one of a seed."""

    def replace(scenario: Scenario) -> None:
        vars(scenario).update(vars(scenario_of(random.Random(f"{seed} whole"))))

    return replace


def _fewer_faults(pair: Pair) -> None:
    """Short schedules of two machines, which reach a take-over."""
    pair.fault_count, pair.gap_ms = min(pair.fault_count, 3), (100, 900)
    pair.ttl_ms, pair.margin_ms, pair.rates = 400, 40, (1.0, 1.0)


class _Watcher(World):
    """A world that notes in `seen` which of THINGS happen."""

    _observed = -1

    def observe(self) -> None:
        """Note what is held back, besides the checks after each event."""
        before = dict(self._watermarks)
        super().observe()
        broker = self.node.broker
        if broker is None:
            return
        for (topic, index, _), (start, _, _) in self._watermarks.items():
            asked = self.history.deletions_asked.get((topic, index), 0)
            if start > asked and (topic, index) in {key[:2] for key in before}:
                self.seen.add("retention")
        made = broker.coordinators.made
        if made is not None:
            whole = made.markers.whole
            if whole.held_back:
                is_new = self._observed != self.node.generation
                self.seen.add("held back")
                if is_new and self.restarts:
                    self.seen.add("held back at a start")
            if whole.in_parts:
                self.seen.add("markers in parts")
            if self._recorded:
                self.seen.add("a cut was recorded")
        self._observed = self.node.generation


class _WholeWorld(_Watcher):
    is_to_be_emptied = False

    def _compare_with_a_start(self) -> None:
        """Do this in some schedules, since it takes a quarter of the time."""
        if self.seed % COMPARED_EVERY == 0:
            super()._compare_with_a_start()


class _WholePair(_Watcher, PairWorld):
    pass


def run_day(
    seed: int, *, tweak: Tweak | None = None, tracing: Callable[[str], None] | None = None
) -> Report:
    """Run the short schedule of a seed. `tweak` further changes its scenario."""

    def tweak_both(scenario: Scenario) -> None:
        tweak_of(seed)(scenario)
        if THINNING in _limits_of(seed):
            scenario.properties[CUT_BYTES] = str(THINNED_BYTES)
        if tweak is not None:
            tweak(scenario)

    world: World
    if seed % PAIR_EVERY == PAIR_AT:
        world = _WholePair(seed, tweak=tweak_both, pair_tweak=_fewer_faults, tracing=tracing)
    else:
        world = _WholeWorld(seed, tweak=tweak_both, tracing=tracing)
    with raised_faults(), _with_limits(seed), _watched(world.seen):
        report = world.run()
    if isinstance(world, PairWorld) and world.take_overs:
        world.seen.add("take-over")
    if len(_committers(world)) >= 3:
        world.seen.add("three producers committed in two topics")
    return report._replace(seen=frozenset(world.seen))


def _committers(world: World) -> set[str]:
    """The producers that have committed a transaction in two topics."""
    topics: dict[int, set[str]] = {}
    for write in world.history.writes:
        if write.transaction is not None and write.transaction.ending is Ending.COMMITTED:
            topics.setdefault(id(write.transaction), set()).add(write.partition[0])
    return {
        transaction.name.partition(".")[0]
        for transaction in world.history.transactions
        if len(topics.get(id(transaction), ())) >= 2
    }


@contextlib.contextmanager
def _with_limits(seed: int) -> Iterator[None]:
    """Lower some limits of the broker."""
    with contextlib.ExitStack() as stack:
        for limits in _limits_of(seed):
            for module, name, limit in limits:
                stack.enter_context(mock.patch.object(module, name, limit))
        yield


def _limits_of(seed: int) -> list[Limits]:
    rng = random.Random(f"{seed} limits")
    return [limits for share, limits in LIMITS if rng.random() < share]


@contextlib.contextmanager
def _watched(seen: set[str]) -> Iterator[None]:
    """Note the works of the broker in `seen`."""
    with contextlib.ExitStack() as stack:
        for owner, name, thing in WORKS:
            stack.enter_context(
                mock.patch.object(owner, name, _noting(getattr(owner, name), seen, thing))
            )
        yield


def _noting(call: Any, seen: set[str], thing: str) -> Any:
    def noting(*arguments: Any, **named: Any) -> Any:
        seen.add(thing)
        return call(*arguments, **named)

    return noting


def coverage(counts: Counter[str], schedules: int) -> str:
    """The lines that say how many schedules had each of THINGS."""
    return "\n".join(f"{counts[thing]:7d} of {schedules}  {thing}" for thing in THINGS)
