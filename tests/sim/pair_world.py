"""A schedule of two machines: one leads, the other has a copy, and a lease in an external engine
decides which of them leads.

The clients, readers, auditors and checkers are those of every schedule. With `sync` a take-over
must look to them like a kill and a start of one broker: no effect is allowed. With `async` it may
lose the last acknowledged records, as a power loss does.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from helpers.raised_faults import raised_faults

from barnabas.replication.leadership import Holding
from barnabas.replication.operations import is_local, is_unfinished
from barnabas.replication.wire import NONCE_BYTES
from barnabas.storage.files.checkpoints import META_PROPERTIES_NAME
from sim.clients import Asking
from sim.etcd import Etcd, Member
from sim.focuses import drawn_focus
from sim.network import Link, Weather
from sim.node import DATA_DIR, Node
from sim.pair import REST_MS, PairNode
from sim.world import START_MS, Report, Tweak, World

if TYPE_CHECKING:
    from sim.scenario import Scenario

FIRST_LEADER_MS = 60_000  # ms, long enough for several starts that crash one after another
TAKE_OVERS_MS = 5000
CALM_STEP_MS = 50
LONGEST_BEFORE_EXPIRY_MS = 1000
# ms, until all requests in flight have responses, even if they were sent again
CALM_BEFORE_EXPIRY_MS = 2500
MOST_EVENTS = 150_000
FAULTS = (
    "kill leader",
    "kill standby",
    "power leader",
    "power standby",
    "power both",
    "stop leader",
    "end leader",
    "end leader",
    "end standby",
    "cut pair",
    "cut engine",
    "cut engine leader",
    "restart etcd",
    "silence etcd",
    "slow etcd",
    "part etcd",
    "cut clients",
    "isolate leader",
    "lose leader",
    "heal and lose leader",
    "crash leader",
    "crash standby",
    "storm",
)
SEED_OF_RESTORES = 5  # out of eight
RESTORES = "restore leader", "restore standby", "restore leader"


@dataclass
class Pair:
    """The configuration and the faults of the two machines. Probabilities are for each request to
    the engine.
    """

    is_sync: bool = True
    may_be_alone: bool = True
    ttl_ms: int = 600
    margin_ms: int = 60
    timeout_ms: int = 300
    delay_ms: int = 5
    engine_delay_ms: int = 8
    lost: float = 0.0
    late: float = 0.0
    rates: tuple[float, float] = (1.0, 1.0)
    faults: tuple[str, ...] = FAULTS
    fault_count: int = 4
    gap_ms: tuple[int, int] = (200, 2500)
    down_ms: tuple[int, int] = (5, 1200)
    etcd_members: int = 1
    etcd_has_users: bool = False
    catch_up_rate: int = 0

    @property
    def patience_ms(self) -> int:
        """How long the responses of a leader that does not need a standby may wait: until a current
        write to the engine has ended, and then another one.
        """
        return self.ttl_ms + 400

    @property
    def has_restores(self) -> bool:
        """Whether directories are restored to an earlier state."""
        return any(fault.startswith("restore") for fault in self.faults)

    @classmethod
    def drawn(cls, rng: random.Random) -> Pair:
        """A random configuration."""
        ttl_ms = rng.choice((400, 800, 1500))
        margin_ms = ttl_ms // 10
        # Each clock may drift; the two drifts together must not exceed what the margin allows.
        drift = margin_ms / ttl_ms / 2.2
        return cls(
            is_sync=rng.random() < 0.75,
            may_be_alone=rng.random() < 0.8,
            ttl_ms=ttl_ms,
            margin_ms=margin_ms,
            timeout_ms=rng.choice((150, 400)),
            delay_ms=rng.choice((1, 5, 40)),
            engine_delay_ms=rng.choice((1, 8, 40)),
            lost=rng.choice((0.0, 0.05, 0.2)),
            late=rng.choice((0.0, 0.03, 0.1)),
            rates=(1 + rng.uniform(-drift, drift), 1 + rng.uniform(-drift, drift)),
            fault_count=rng.randint(1, 6),
            gap_ms=rng.choice(((50, 600), (200, 2500))),
            etcd_members=rng.choice((1, 3)),
            etcd_has_users=rng.random() < 0.5,
            catch_up_rate=rng.choice((0, 0, 200_000)),
        )


class PairWorld(World):
    """A world with two machines. node: the current or last leader. clean_ends: how often a leader
    was requested to stop, and then a standby took over that had followed it to the end.
    """

    is_to_be_emptied = False  # since a leader ends if its standby is away for that long

    def __init__(
        self,
        seed: int,
        *,
        tweak: Tweak | None = None,
        pair_tweak: Callable[[Pair], None] | None = None,
        tracing: Callable[[str], None] | None = None,
    ) -> None:
        self.pair_rng = random.Random(f"{seed} pair")
        self.pair = Pair.drawn(self.pair_rng)
        if pair_tweak is not None:
            pair_tweak(self.pair)
        elif seed % 8 == SEED_OF_RESTORES:
            self.pair.faults += RESTORES
        self._generations = 0
        self.are_apart = self.is_at_peace = False
        self.disturbed_ms = 0  # when the connection between the machines was last cut or healed
        self.nodes: list[PairNode] = []
        self._cut_from_clients: set[int] = set()
        self._leader_epochs: dict[Any, int] = {}
        self.take_overs = self.clean_ends = 0
        self._last_leader = -1

        focus = drawn_focus(seed) if tweak is None else tweak

        def tweak_all(scenario: Scenario) -> None:
            if focus is not None:
                focus(scenario)
            if not scenario.topics.keys() - {"gone"}:
                self.pair.is_sync = True
            fit_for_two(scenario, loses=not self.pair.is_sync)

        super().__init__(seed, tweak=tweak_all, tracing=tracing)
        self.loop.most_events = MOST_EVENTS
        self.engine = Etcd(
            self.loop, self.pair_rng, self.pair.etcd_members, has_users=self.pair.etcd_has_users
        )
        self.engine.delay_ms = self.pair.engine_delay_ms
        self.engine.lost, self.engine.late = self.pair.lost, self.pair.late
        if not self.pair.is_sync:
            self.history.commits_are_durable = False
            # a take-over counts as a power loss, see `on_claim`
            self.history.answers_cross_losses = True

    def _made_node(self) -> Node:
        for node_id, rate in enumerate(self.pair.rates):
            node = PairNode(self, self.scenario.properties, node_id)
            node.rate = rate
            self.nodes.append(node)
        return self.nodes[0]

    def _set_apart(self, are_apart: bool) -> None:
        self.are_apart, self.disturbed_ms = are_apart, self.loop.now_ms

    def next_generation(self) -> int:
        """The next number for a process, unique across both machines."""
        self._generations += 1
        return self._generations

    def nonce(self) -> bytes:
        """A leader's random challenge for a connecting standby."""
        return self.pair_rng.randbytes(NONCE_BYTES)

    @property
    def cleanings(self) -> int:
        return sum(node.cleanings for node in self.nodes)

    # --- what the machines tell ------------------------------------------------------------------

    def on_claim(self, node: PairNode) -> None:
        """Note that a machine leads from now on, and opens its directory.

        If its process was stopped meanwhile, the claim is too late: the other machine has the lease
        by then, and no client reaches this one.
        """
        self.trace("leads", node.node_id, node.claimed_with.name, 0, b"")
        if self._comes_too_late(node):
            return
        self._look_at_what_was_left(node)
        is_other = self._last_leader not in (-1, node.node_id)
        self.take_overs += is_other
        self._last_leader = node.node_id
        self.restarts += 1
        if node.claimed_with is Holding.POWER_LOST or (is_other and not self.pair.is_sync):
            self.history.power_losses.append(self.loop.now_ms)
        # the former leader may have had more, of which no client was told
        self._watermarks, self._cut_offsets, self.may_lack_cuts = {}, {}, True
        self.node = node
        if not self.is_draining and self.rng.random() < self.scenario.crash_at_start:
            node.disk.crash_in(self.rng.randint(*self.scenario.start_steps))

    def _look_at_what_was_left(self, node: PairNode) -> None:
        """Check that the standby has all data of a leader that was requested to stop, if the
        standby followed it until the connection closed. This also holds with `async`.
        """
        other = node.other
        ended, other.ended_ms, node.ended_ms = other.ended_ms, None, None
        if ended is None:
            return
        ended_ms, process = ended
        now_ms = self.loop.now_ms
        is_disturbed = self.disturbed_ms > ended_ms or node.stood_still_ms(
            ended_ms, now_ms, arrived_ms=ended_ms
        )
        if process == node.process and not is_disturbed and now_ms - ended_ms < REST_MS:
            self.clean_ends += 1
            # meta.properties differs, since the standby has already put its own node.id into it.
            self._compare_directories("at a clean end", but=f"{DATA_DIR}/{META_PROPERTIES_NAME}")

    def _comes_too_late(self, node: PairNode) -> bool:
        record = self.engine.record
        return record is not None and record.leader != node.node_id

    def on_leader(self, node: PairNode) -> None:
        """A node runs its broker as leader. Check what it believes about its directory (whether the
        power was lost, whether acknowledged records may be missing), and that each partition has a
        higher leader epoch than before.
        """
        if self._comes_too_late(node):
            return
        node.disk.crash_in(-1)  # cancels a crash that was planned for the start
        broker = node.broker
        assert broker is not None
        has_lost_power = node.claimed_with is Holding.POWER_LOST
        may_lack = has_lost_power or (node.was_standby and not self.pair.is_sync)
        logs = broker.logs
        if (logs.lost_power, logs.may_lack_acknowledged) != (has_lost_power, may_lack):
            self.history.incident(
                "refused",
                f"the broker opened a {node.claimed_with.name} directory with "
                f"lost_power={logs.lost_power}, "
                f"may_lack_acknowledged={logs.may_lack_acknowledged}; "
                f"expected {has_lost_power}, {may_lack}",
            )
        for name, topic in broker.metadata.topics.items():
            for index, epoch in enumerate(broker.topics.leader_epochs(name)):
                key = (topic.topic_id, index)
                if epoch <= self._leader_epochs.get(key, -1):
                    self.history.incident(
                        "epoch", f"{name}-{index} has another leader in its leader epoch {epoch}"
                    )
                self._leader_epochs[key] = epoch
        self.observe()

    def on_answered_by(self, node: PairNode) -> None:
        """Check that a machine that responds to a client has the lease."""
        record = self.engine.record
        if record is None or record.leader != node.node_id:
            self.history.incident(
                "misled", f"node {node.node_id} answers, and the lease is another's by now"
            )

    def on_crash(self, node: Node) -> None:
        assert isinstance(node, PairNode)
        if self.rng.random() < self.scenario.power_share:
            self.trace("power", node.node_id, "in the midst", 0, b"")
            node.lose_power()
        else:
            self.trace("killed", node.node_id, "in the midst", 0, b"")
            node.kill()
        self.boot_later(node)

    def boot_later(self, node: PairNode) -> None:
        """Start the machine's daemon again, some time later."""
        self.loop.later(self.pair_rng.randint(*self.pair.down_ms), node.boot)

    def start_later(self) -> None:
        self.boot_later(cast(PairNode, self.node))

    def lose_power(self) -> None:
        self.trace("power", self.node.generation, "", 0, b"")
        self.node.lose_power()

    def observe(self) -> None:
        if self._logs_of[0] != self.node.generation:
            self._watermarks = {}
        super().observe()

    def try_connect(self) -> Link | None:
        nodes = [node for node in self.nodes if node.node_id not in self._cut_from_clients]
        self.pair_rng.shuffle(nodes)
        for node in nodes:
            if node.is_up:
                return self.connect_to(None, node)
        return None

    # --- faults ----------------------------------------------------------------------------------

    def befall(self) -> Asking:
        """Inflict the faults of the two machines, one after the other."""
        rng, pair = self.pair_rng, self.pair
        for _ in range(pair.fault_count):
            yield rng.randint(*pair.gap_ms)
            if self.scenario.ids_expire:
                yield from self._await_calm()
            if self.is_draining:
                return
            if pair.has_restores and rng.random() < 0.5:
                for node in self.nodes:
                    node.back_up()
            if self.scenario.aims_at_ends:
                yield from self._await_end()
                if self.is_draining:
                    return
            yield from self._fault(rng.choice(pair.faults))

    def _await_calm(self) -> Asking:
        """Wait until requests have been answered for some time. While the standby is away,
        responses may wait. If the waits of two faults added up, the broker might have forgotten the
        producer of a repeated request.
        """
        calm_ms = 0
        while calm_ms < CALM_BEFORE_EXPIRY_MS and not self.is_draining:
            yield CALM_STEP_MS
            calm_ms = calm_ms + CALM_STEP_MS if self._is_led_by_two() else 0

    def _is_led_by_two(self) -> bool:
        """Whether one machine leads, and the other follows and is in sync."""
        leader = cast(PairNode, self.node)
        return (
            leader.leading is not None
            and leader.leading.follows
            and leader.keeper is not None
            and leader.keeper.in_sync == {0, 1}
        )

    def _fault(self, fault: str) -> Asking:
        """Inflict one fault on the leader, the standby or what is between them."""
        rng, leader = self.pair_rng, cast(PairNode, self.node)
        standby = leader.other
        self.trace("fault", 0, fault, 0, b"")
        what, _, whom = fault.partition(" ")
        node = standby if whom == "standby" else leader
        for_ms = rng.randint(50, 3 * self.pair.ttl_ms)
        # a repeated request must find that the broker still remembers its producer
        if self.scenario.ids_expire:
            for_ms = min(for_ms, LONGEST_BEFORE_EXPIRY_MS)
        if what == "kill":
            self._down(node)
        elif what == "power":
            self._down(node, power=True)
            if whom == "both":
                yield rng.choice((0, 0, rng.randint(0, 300)))
                if not self.is_draining:
                    self._down(node.other, power=True)
        elif what == "stop":
            node.stand_still(for_ms)
            yield for_ms
        elif what == "end":
            node.terminate()
        elif whom == "etcd":
            yield from self._trouble_etcd(what, for_ms)
        elif what == "crash":
            node.disk.crash_in(rng.randint(0, 60))
        elif fault == "cut pair":
            self._set_apart(True)
            yield for_ms
            self._set_apart(False)
        elif fault.startswith("cut engine"):
            cut = {leader.node_id} if "leader" in fault else set(rng.choice(((0,), (1,), (0, 1))))
            self.engine.cut_off |= cut
            yield for_ms
            self.engine.cut_off -= cut
        elif fault == "cut clients":
            self._cut_clients(node)
            yield for_ms
            self._cut_from_clients.clear()
        # the leader is isolated from the standby and the engine, but not from its clients
        elif what == "isolate":
            self._set_apart(True)
            self.engine.cut_off.add(leader.node_id)
            yield for_ms
            self._set_apart(False)
            self.engine.cut_off.discard(leader.node_id)
        elif what in ("lose", "heal"):  # the pair is cut, and the leader ends before or after that
            self._set_apart(True)
            yield for_ms if what == "heal" else rng.randint(0, 3 * self.pair.timeout_ms // 2)
            self._set_apart(what == "lose")
            yield rng.randint(0, 10 * self.pair.delay_ms) if what == "heal" else 0
            if not self.is_draining:
                self._down(leader)
            self._set_apart(False)
        elif what == "restore":
            yield from self._restore_backup(node)
        elif what == "storm":
            calm = self.weather
            self.weather = Weather(delay_ms=40, cut=0.15, stall=0.1, linger_ms=calm.linger_ms)
            yield for_ms
            if not self.is_draining:
                self.weather = calm

    def _trouble_etcd(self, what: str, for_ms: int) -> Asking:
        """Let some etcd members be down, silent, slow, or partitioned from the others for a
        time.
        """
        rng, members = self.pair_rng, self.engine.members
        some: list[Member] = rng.sample(members, rng.randint(1, len(members)))
        for member in some:
            if what == "restart":
                member.is_down = True
            elif what == "silence":
                member.is_silent = True
            elif what == "part":
                member.is_apart = True
            else:
                member.slow_ms = rng.randint(1, self.pair.ttl_ms // 2)
        yield for_ms
        if not self.is_draining:
            for member in some:
                if member.is_down:
                    self.engine.restart(member)
                member.is_silent, member.is_apart, member.slow_ms = False, False, 0

    def _restore_backup(self, node: PairNode) -> Asking:
        """Lose a machine, and restore its directory from a backup of an earlier leader's time, with
        which its node must not lead. The other machine has all data, and must keep it.
        """
        record, epoch = self.engine.record, node.saved_epoch
        has_other_all = record is not None and record.in_sync == {0, 1} and node.other.is_running
        if record is None or not has_other_all:
            return
        if not 0 < epoch < record.held_epochs.get(node.node_id, 0):
            return
        self._down(node)
        if self.pair_rng.random() < 0.5:
            # the other machine also ends, and returns sooner or later than this one
            self._down(node.other)
        node.restore_backup(is_new_mount=self.pair_rng.random() < 0.5)
        end_ms = self.loop.now_ms + TAKE_OVERS_MS
        while not (self.is_draining or self._is_whole()) and self.loop.now_ms < end_ms:
            yield 40

    def _down(self, node: PairNode, *, power: bool = False) -> None:
        """End a machine's process or cut its power, and boot it later."""
        if power:
            node.lose_power()
        else:
            node.kill()
        self.boot_later(node)

    def _cut_clients(self, node: PairNode) -> None:
        """Cut all clients off from a machine."""
        self._cut_from_clients.add(node.node_id)
        for session in list(node._sessions.values()):
            if session.link is not None:
                late_ms = self.pair_rng.randint(0, 2000)
                if self.scenario.ids_expire:
                    late_ms = min(late_ms, LONGEST_BEFORE_EXPIRY_MS)
                session.link.lose(self.loop.now_ms + late_ms)

    # --- the course of things --------------------------------------------------------------------

    def _run(self) -> None:
        """Start both nodes, create the topics at the first leader, and wait until the standby has
        them. Then run the schedule with its faults.
        """
        for node in self.nodes:
            self.loop.later(self.pair_rng.randint(0, 300), node.boot)
        self.loop.run_until(START_MS + FIRST_LEADER_MS, lambda: self.node.is_up)
        broker = self.node.broker
        assert broker is not None, "no node leads"
        for name, count in self.scenario.topics.items():
            broker.topics.create_topic(
                name, count, self.scenario.topic_configs.get(name, {}), now_ms=self.node.now_ms()
            )
        self.topic_ids = {name: topic.topic_id for name, topic in broker.metadata.topics.items()}
        # Faults begin only when the set-up is replicated, whatever happens to the first leader.
        self.loop.run_until(self.loop.now_ms + FIRST_LEADER_MS, self._is_whole)
        if not self._is_whole():
            self.history.incident("stuck", "the standby does not catch up")
        self.scenario.chaos_ms += self.loop.now_ms - START_MS
        self._go_on()

    def _go_on(self) -> None:
        self._set_off_writers()
        self._set_off_others()
        self.loop.spawn(self.befall())
        if self.scenario.clock_steps_ms:
            self.loop.spawn(self.turn_the_clock())
        self._live_and_settle()

    def _is_whole(self) -> bool:
        """Whether one machine leads, and the other has all its data and is in sync."""
        leading = cast(PairNode, self.node).leading
        return (
            self._is_led_by_two()
            and leading is not None
            and leading.link is not None
            and leading.link.applied == leading.position
        )

    def _make_peace(self) -> None:
        super()._make_peace()
        self._set_apart(False)
        self._cut_from_clients.clear()
        self.engine.heal()
        for node in self.nodes:
            node.disk.crash_in(-1)
            if not node.is_running:
                self.boot_later(node)

    def is_settled(self) -> bool:
        return self._is_whole() and super().is_settled()

    def what_is_missing(self) -> str:
        if not self._is_whole():
            states = [
                (node.node_id, node.keeper and node.keeper.role.name, node.is_up)
                for node in self.nodes
            ]
            return f"the two are not whole: {states}, {self.engine.record}"
        return super().what_is_missing()

    def _restart_at_last(self) -> None:
        """Let the other machine take over; it must have all data."""
        self._compare_copies()
        before = cast(PairNode, self.node)
        before.is_off = True
        if self.scenario.last_restart == "kill":
            before.kill()
        else:
            before.lose_power()
        self.loop.run_until(self.loop.now_ms + TAKE_OVERS_MS, before.other.is_serving)
        if not before.other.is_serving():
            self.history.incident("stuck", "the standby does not take over")
        before.is_off = False
        before.boot()
        self.loop.run_until(self.loop.now_ms + TAKE_OVERS_MS, self._is_whole)
        if not self._is_whole():
            self.history.incident("stuck", "the old leader does not come back")
        self._compare_copies()

    def _compare_copies(self) -> None:
        """Report replicated files that differ between the machines, if the standby has all data."""
        if not self._is_whole():
            return
        self._compare_directories("in peace")

    def _compare_directories(self, when: str, but: str = "") -> None:
        mine, others = (replicated(node) for node in self.nodes)
        for path in sorted(mine.keys() | others.keys()):
            if path != but and mine.get(path) != others.get(path):
                self.history.incident("lost", f"{when} the copies of {path} differ")


def replicated(node: PairNode) -> dict[str, bytes]:
    """The replicated files on a machine, by path."""
    prefix = f"{DATA_DIR}/"
    return {
        path: bytes(inode.data)
        for path, inode in node.disk.files()
        if path.startswith(prefix)
        and not is_local(path.removeprefix(prefix))
        and not is_unfinished(path)
    }


def fit_for_two(scenario: Scenario, *, loses: bool) -> None:
    """Remove settings that are for one machine only. loses: whether a take-over may lose
    acknowledged records, and with them the deletion of a topic, or its additional partitions.
    """
    scenario.brokers, scenario.moves = 1, 0
    scenario.properties.pop("barnabas.brokers", None)
    scenario.kafka_epochs, scenario.outages, scenario.refusals = 0, 0, ()
    scenario.journal_damage, scenario.stops_ms = 0.0, ()
    scenario.chaos_ms += 3000
    if loses:
        scenario.growing = []
        scenario.topics.pop("gone", None)
        scenario.flushed_topics = []
        scenario.readers = [
            ([one for one in partitions if one[0] != "gone"], committed_only)
            for partitions, committed_only in scenario.readers
        ]


def run_pair(
    seed: int,
    *,
    tweak: Tweak | None = None,
    pair_tweak: Callable[[Pair], None] | None = None,
    tracing: Callable[[str], None] | None = None,
) -> Report:
    """Run the schedule of two machines for a seed."""
    with raised_faults():
        return PairWorld(seed, tweak=tweak, pair_tweak=pair_tweak, tracing=tracing).run()
