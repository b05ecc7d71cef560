"""The parameters of a schedule, which are drawn from the seed or given."""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass, field
from typing import NamedTuple

from checkers import Partition

from barnabas.broker.logs.flush_queue import FULL_JOURNAL_BYTES
from barnabas.broker.quotas.entities import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from sim.disk import Refusal
from sim.network import Weather

BASE = {
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "20",
    "group.min.session.timeout.ms": "100",
    "auto.create.topics.enable": "false",
}
PLAIN_SHARE, QUOTA_SHARE, SHARERS_SHARE, STREAMERS_SHARE = 0.04, 0.15, 0.15, 0.15
# how producers send a batch again (`Producer._prepare_again`)
RETRIES = ("same bytes", "encoded again", "merged")
STREAMS_SESSION_MS = 1500
WHOLE, WHOLE_SHARE = "barnabas.transactions.whole", 0.35
CUT_INTERVAL, CUT_BYTES = f"{WHOLE}.cut.interval.ms", f"{WHOLE}.cut.max.bytes"
THINNED_BYTES = 4096  # a limit below which cuts are thinned out within a schedule
DURABILITY = "barnabas.transaction.durability"
CLOCK_STANDS = 0
CLOCK_STEPS_MS = (120_000, -3_600_000, 8 * 86_400_000, -8 * 86_400_000, CLOCK_STANDS)
WANT_OF_ROOM = (errno.ENOSPC, errno.EDQUOT)
REFUSED = (
    ("inode",),
    ("entry", "inode"),
    ("rename",),
    ("write",),
    ("inode", "entry", "rename", "write"),
)
EXPIRING = {
    "transactional.id.expiration.ms": "4500",
    "producer.id.expiration.ms": "4000",
    "producer.id.expiration.check.interval.ms": "300",
}
FAULTS = ("kill", "power", "stop", "crash", "storm", "delete")


class Group(NamedTuple):
    """A group of consumers of one topic that commit by OffsetCommit. `dying` is the probability, in
    each round, that a member stalls or dies.
    """

    name: str
    topic: str
    members: int
    session_timeout_ms: int
    dying: float
    leaving: float
    is_static: bool


@dataclass
class Scenario:
    """Topics, clients and faults of a schedule. Probabilities are between 0 and 1; power_share is
    the share of crashes that are power losses.

    start_steps: the number of disk operations after which a crashing start crashes
    (`crash_at_start`). fsync_ms: the longest time of an fsync. bumps_epochs: whether an idempotent
    producer that is out of sequence continues with its id and the next epoch, rather than with a
    new id. sessions_end_with_power: whether transactional producers end with the broker's machine
    and start new sessions; otherwise they continue as after a lost connection. toggled: topics
    that get and lose barnabas.transactions.whole. remade_topic: a
    topic that is deleted and created again, at most `remakes` times, "" for none; consumers: the
    number of members of a group that reads that topic and commits by OffsetCommit. growing: topics
    to which partitions are added. is_static: whether members of groups have instance names; with
    the probability `twins` they return while their previous processes are still running; leaving:
    the probability that a member leaves its group when it stops working. clock_steps_ms: successive
    changes of the wall clock of the broker's machine; at CLOCK_STANDS it stops until the next
    change; the end of the faults does not correct it. epoch_followers: how many of the readers, the
    last ones, follow leader epochs; with at least one, members of groups that commit by
    OffsetCommit include the epoch of their last record, and with two they go back if a log was
    truncated; follows_by_fetch: whether those readers use only Fetch for that. aims_at_ends:
    whether a fault waits until a decision on a transaction is in progress; aims_at_swaps: whether a
    crash waits until compacted files replace others. members_go_on: whether members keep their
    membership when a response is lost, instead of joining again.

    refusals: what the disk refuses, one after the other, each for refusal_ms. outages: how often
    the file of a partition is damaged while the broker is down, and restored at a later start;
    damages_batches: whether the damage is within a batch that others follow, not at a batch's
    start. full_journal_bytes: the maximum size of a flush journal. journal_damage: the probability
    that a power loss also damages the middle of a flush journal. meddlers: the number of clients
    that send invalid requests. stops_ms: the durations for which the process is stopped. padding:
    the probability that a batch decompresses to 1 MB; codecs: the compression codecs of batches;
    plain_acks: the acks of each producer without an id. is_audited: whether a client continuously
    requests producers and transactions. ids_expire: whether the settings EXPIRING apply, and
    producers pause for so long. groups: additional groups. offsets_retention_ms: how long their
    offsets are kept while they have no members. kafka_epochs: if not 0, the first writes go to an
    Apache Kafka whose epochs are higher by this number, and the broker takes over its directory;
    kafka_was_killed: whether it was killed rather than stopped. reuses_sequences: whether a
    transactional producer that gives up batches in an abort reuses their sequences in the same
    epoch; it then writes to each partition that it adds, unless adds_unwritten. retries: how
    producers send a batch again, one of `RETRIES`.

    version_2: the probability that a transaction is of version 2 (KIP-890). brokers: the number of
    brokers; moves: how often leaders move among them, or a broker leaves and returns.
    consumer_protocol: the probability that a new member of a group uses the consumer protocol
    (KIP-848). two_phase: the number of applications whose transactions end as a database has
    decided (KIP-939). sharers: the number of members of each of two share groups (KIP-932), if
    there are topics for them. streamers: the number of members of a streams group (KIP-1071).
    quotas: quotas of all clients together, by Kafka's names; heeds_throttles: whether clients
    themselves wait for the throttle time of a response, as Apache Kafka's do.
    """

    topics: dict[str, int] = field(default_factory=lambda: {"plain": 1, "tx": 2})
    topic_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=lambda: dict(BASE))
    flushed_topics: list[str] = field(default_factory=list)
    compacted_topics: list[str] = field(default_factory=list)
    weather: Weather = field(default_factory=Weather)
    idempotent_producers: int = 1
    applications: int = 2
    feeders: int = 1
    workers: int = 0
    rounds: int = 5
    readers: list[tuple[list[Partition], bool]] = field(default_factory=list)
    transaction_timeout_ms: int = 3000
    pausing: float = 0.3
    zombies: float = 0.2
    dying: float = 0.03
    chaos_ms: int = 5000
    fault_count: int = 4
    fault_gap_ms: tuple[int, int] = (100, 1000)
    faults: tuple[str, ...] = FAULTS
    fault_weights: tuple[int, ...] = (3, 0, 1, 3, 2, 0)
    power_share: float = 0.0
    crash_at_start: float = 0.2
    start_steps: tuple[int, int] = (0, 40)
    bumps_epochs: bool = False
    fsync_ms: int = 6
    sessions_end_with_power: bool = True
    last_restart: str = "kill"
    remade_topic: str = ""
    toggled: tuple[str, ...] = ()
    remakes: int = 2
    consumers: int = 0
    epoch_followers: int = 0
    follows_by_fetch: bool = False
    aims_at_ends: bool = False
    aims_at_swaps: bool = False
    damages_batches: bool = False
    members_go_on: bool = False
    growing: list[str] = field(default_factory=list)
    is_static: bool = False
    twins: float = 0.0
    leaving: float = 0.0
    clock_steps_ms: tuple[int, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    refusal_ms: tuple[int, int] = (50, 900)
    outages: int = 0
    full_journal_bytes: int = FULL_JOURNAL_BYTES
    journal_damage: float = 0.0
    meddlers: int = 0
    stops_ms: tuple[int, ...] = ()
    session_timeout_ms: int = 1500
    padding: float = 0.0
    codecs: tuple[int, ...] = ()
    most_in_flight: int = 5
    plain_acks: tuple[int, ...] = ()
    is_audited: bool = False
    ids_expire: bool = False
    groups: tuple[Group, ...] = ()
    offsets_retention_ms: int | None = None
    kafka_epochs: int = 0
    kafka_was_killed: bool = False
    reuses_sequences: bool = False
    adds_unwritten: bool = False
    retries: str = RETRIES[0]
    version_2: float = 0.0
    brokers: int = 1
    moves: int = 0
    consumer_protocol: float = 0.0
    two_phase: int = 0
    sharers: int = 0
    streamers: int = 0
    quotas: dict[str, float] = field(default_factory=dict)
    heeds_throttles: bool = False

    @property
    def idempotent_partitions(self) -> list[Partition]:
        return (
            self.partitions_of("plain")
            + self.partitions_of("tx")[:1]
            + self.partitions_of("kv")
            + self.partitions_of("gone")
        )

    @property
    def transactional_partitions(self) -> list[Partition]:
        return [
            partition
            for topic in ("tx", "pay", "kv", "gone")
            for partition in self.partitions_of(topic)
        ]

    @property
    def input_partitions(self) -> list[Partition]:
        return self.partitions_of("in")

    @property
    def output_partitions(self) -> list[Partition]:
        return self.partitions_of("out")

    @property
    def remade_partitions(self) -> list[Partition]:
        return self.partitions_of(self.remade_topic)

    @property
    def deletable(self) -> list[Partition]:
        return self.partitions_of("plain") + self.partitions_of("tx")

    def partitions_of(self, topic: str) -> list[Partition]:
        return [(topic, index) for index in range(self.topics.get(topic, 0))]

    @property
    def kept_topics(self) -> frozenset[str]:
        """The topics in which retention deletes nothing: those without limits of their own, to
        which the broker's limit of 7 days applies.
        """
        bounds = {"retention.bytes", "retention.ms"}
        return frozenset(
            topic
            for topic in self.topics
            if topic != self.remade_topic and not bounds & self.topic_configs.get(topic, {}).keys()
        )

    @property
    def retention_ms(self) -> dict[str, int]:
        """The retention time of topics that are limited only by time; empty if the wall clock,
        which retention uses, is changed.
        """
        if self.clock_steps_ms:
            return {}
        bounds = {topic: self.topic_configs.get(topic, {}) for topic in self.topics}
        return {
            topic: int(configs["retention.ms"])
            for topic, configs in bounds.items()
            if "retention.ms" in configs
            and "retention.bytes" not in configs
            and topic not in self.compacted_topics
        }

    @property
    def commits_are_durable(self) -> bool:
        return self.properties.get(DURABILITY) != "os"

    @classmethod
    def drawn(cls, rng: random.Random, *, is_plain: bool = False) -> Scenario:
        """Return a random scenario. With `is_plain`, it has none of the options that `_draw_more`
        and the later draws add.
        """
        scenario = cls._drawn(rng)
        more = random.Random()
        more.setstate(rng.getstate())
        if not is_plain:
            draws = (
                scenario._draw_more,
                scenario._draw_wider,
                scenario._draw_beginning,
                scenario._draw_protocols,
                scenario._draw_brokers,
                scenario._draw_consumer_protocol,
            )
            chances = [random.Random(more.getrandbits(64)) for _ in draws]
            if more.random() >= PLAIN_SHARE:
                for draw, chance in zip(draws, chances, strict=True):
                    draw(chance)
                scenario._draw_widest(more)
                scenario._draw_two_phase(random.Random(more.getrandbits(64)))
                scenario._draw_aims(random.Random(more.getrandbits(64)))
                quota_chance = random.Random(more.getrandbits(64))
                if quota_chance.random() < QUOTA_SHARE:
                    scenario.draw_quotas(quota_chance)
                scenario._draw_replay(random.Random(more.getrandbits(64)))
                scenario._draw_sharers(random.Random(more.getrandbits(64)))
                scenario._draw_streamers(random.Random(more.getrandbits(64)))
                bits = more.getrandbits(64)
                scenario.retries = random.Random(bits).choice(RETRIES)
                scenario._draw_whole(random.Random(bits))
        return scenario

    def _draw_whole(self, rng: random.Random) -> None:
        """Draw the topics that show whole transactions: all, or some."""
        if rng.random() < WHOLE_SHARE:
            if rng.random() < 0.5:
                self.properties[WHOLE] = "true"
            else:
                for topic in self.topics:
                    if rng.random() < 0.7:
                        self.topic_configs.setdefault(topic, {})[WHOLE] = "true"
            self.properties[CUT_INTERVAL] = rng.choice(("10", "50", "300", "1000"))
            self.properties[CUT_BYTES] = rng.choice(("1024", str(THINNED_BYTES), "4194304"))
            if rng.random() < 0.3:
                self.toggled = tuple(topic for topic in self.topics if rng.random() < 0.5)

    def drop_whole_if_off_line(self) -> None:
        """Let no topic show whole transactions if partitions may be off line for a time, or belong
        to Apache Kafka at first: the broker keeps together only what it can read.
        """
        cannot_open = any("open" in refusal.operations for refusal in self.refusals)
        if self.kafka_epochs or self.outages or cannot_open:
            self.properties.pop(WHOLE, None)
            self.toggled = ()
            for configs in self.topic_configs.values():
                configs.pop(WHOLE, None)

    @property
    def whole_topics(self) -> frozenset[str]:
        """The topics that show whole transactions."""
        default = self.properties.get(WHOLE, "false")
        return frozenset(
            topic
            for topic in self.topics
            if self.topic_configs.get(topic, {}).get(WHOLE, default) == "true"
        )

    def _draw_sharers(self, rng: random.Random) -> None:
        """Draw members of share groups: one group reads all records, one only committed records."""
        if rng.random() < SHARERS_SHARE:
            self.use_sharers(rng.randint(2, 3), rng.choice(("0", "3", "500")))

    def use_sharers(self, members: int, updates_per_snapshot: str = "3") -> None:
        """Set the number of members in each share group."""
        self.sharers = members
        self.properties |= {
            "group.share.min.record.lock.duration.ms": "1000",
            "share.coordinator.state.topic.num.partitions": "2",
            "share.coordinator.snapshot.update.records.per.snapshot": updates_per_snapshot,
            "share.coordinator.cold.partition.snapshot.interval.ms": "400",
            "share.coordinator.state.topic.prune.interval.ms": "150",
        }

    def _draw_streamers(self, rng: random.Random) -> None:
        """Draw members of a streams group."""
        if rng.random() < STREAMERS_SHARE:
            self.use_streamers(rng.randint(2, 4))

    def use_streamers(self, members: int) -> None:
        """Set the number of members in the streams group."""
        self.streamers = members
        self.properties |= {
            "group.streams.min.session.timeout.ms": str(STREAMS_SESSION_MS),
            "group.streams.session.timeout.ms": str(STREAMS_SESSION_MS),
            "group.streams.min.heartbeat.interval.ms": "500",
            "group.streams.heartbeat.interval.ms": "500",
            "group.streams.assignment.interval.ms": "0",
            "group.streams.initial.rebalance.delay.ms": "100",
        }

    @property
    def streamed_topics(self) -> list[str]:
        """The topics that the streams group reads: those that neither grow nor are deleted."""
        return [
            name
            for name in self.shared_topics
            if name not in self.growing and name not in self.compacted_topics
        ]

    @property
    def shared_topics(self) -> list[str]:
        """The topics that share groups read: none if another broker has or had a part of them, or
        if damage may lose acknowledged records.
        """
        if self.brokers > 1 or self.kafka_epochs or self.journal_damage or self.outages:
            return []
        return [name for name in self.topics if name != self.remade_topic]

    def _draw_replay(self, rng: random.Random) -> None:
        """Draw how much internal logs contain before they are rolled early and compacted."""
        dirty_bytes = rng.choice(("0", "1500", "6000", ""))
        if dirty_bytes:
            self.properties["barnabas.internal.topics.dirty.bytes"] = dirty_bytes

    def _draw_more(self, rng: random.Random) -> None:
        """Draw options that only some schedules have. They have a separate random generator: if
        none is drawn, the schedule of a seed is the same as before these options existed.
        """
        if rng.random() < 0.16:
            self.remade_topic, self.remakes = "gone", rng.randint(1, 2)
            self.topics["gone"] = rng.randint(1, 2)
            self.topic_configs["gone"] = {
                "segment.bytes": rng.choice(("400", "1000000")),
                "file.delete.delay.ms": rng.choice(("0", "60000")),
            }
            match rng.randrange(3):
                case 0:
                    self.topic_configs["gone"]["flush.messages"] = "1"
                    self.flushed_topics = [*self.flushed_topics, "gone"]
                case 1:
                    self.topic_configs["gone"]["flush.ms"] = rng.choice(("10", "300"))
            self.readers[0] = (
                self.readers[0][0][:1] + self.partitions_of("gone"),
                self.readers[0][1],
            )
            self.consumers = rng.choice((0, 1, 2))
        if rng.random() < 0.2:
            growable = [topic for topic in self.topics if topic != "gone"]
            self.growing = rng.sample(growable, min(len(growable), rng.randint(1, 2)))
        if rng.random() < 0.15:
            self.properties[DURABILITY] = "os"
        has_members = bool(self.workers or self.consumers)
        if has_members and rng.random() < 0.35:
            self.is_static, self.twins = True, rng.choice((0.0, 0.5))
        if has_members and rng.random() < 0.3:
            self.leaving = 0.3
        if rng.random() < 0.2:
            self._draw_clock_steps(rng)
        self.bumps_epochs = rng.random() < 0.3
        if rng.random() < 0.25:
            self._draw_refusals(rng)
        if rng.random() < 0.15:
            self.outages = rng.randint(1, 2)
        if rng.random() < 0.3:
            self._draw_orders_of_writes(rng)
        if self.power_share and rng.random() < 0.3:
            self.journal_damage = 0.5
        self.epoch_followers = rng.choice((0, 0, 0, 1, 2))
        self.members_go_on = bool(self.consumers) and rng.random() < 0.5

    def _draw_refusals(self, rng: random.Random) -> None:
        """Choose at random when and how the disk fails. Usually it has no space for a short time;
        rarely it fails in a way that may lose much data.
        """
        refusals = []
        for _ in range(rng.randint(1, 4)):
            after = rng.choice((0, 0, rng.randint(0, 30)))
            if rng.random() < 0.1:
                refusals.append(Refusal(frozenset({"open"}), errno.EMFILE, after))
            elif self.power_share and rng.random() < 0.2:
                operations = ("fsync", "inode")[: 1 + after % 2]
                refusals.append(Refusal(frozenset(operations), errno.EIO, after))
            else:
                refusals.append(
                    Refusal(frozenset(rng.choice(REFUSED)), rng.choice(WANT_OF_ROOM), after)
                )
        self.refusals = tuple(refusals)

    def _draw_orders_of_writes(self, rng: random.Random) -> None:
        """Draw settings that decide when and in which file writes become durable."""
        self.full_journal_bytes = rng.choice((300, 2000, FULL_JOURNAL_BYTES))
        self.properties["log.flush.offset.checkpoint.interval.ms"] = rng.choice(
            ("5", "50", "60000")
        )
        self.properties["log.index.size.max.bytes"] = rng.choice(("24", "96", "10485760"))
        self.properties["transaction.state.log.segment.bytes"] = rng.choice(("400", "1000000"))
        match rng.randrange(4):
            case 0:
                self.properties["log.flush.interval.messages"] = rng.choice(("1", "3"))
            case 1:
                self.properties["log.flush.interval.ms"] = rng.choice(("0", "40"))
        if (
            not self.clock_steps_ms
            and "retention.bytes" not in self.topic_configs["plain"]
            and rng.random() < 0.5
        ):
            self.topic_configs["plain"] |= {
                "retention.ms": rng.choice(("100", "900")),
                "file.delete.delay.ms": rng.choice(("0", "300")),
            }

    def _draw_wider(self, rng: random.Random) -> None:
        """Draw more options as `_draw_more` does, from another random generator."""
        if rng.random() < 0.12:
            self.meddlers = rng.randint(1, 2)
            if rng.random() < 0.5:
                self.properties["barnabas.decompressed.max.bytes"] = "1200000"
        if rng.random() < 0.15:
            self.stops_ms = tuple(
                rng.choice((300, 1000, 1400, 3000)) for _ in range(rng.randint(1, 3))
            )
        if rng.random() < 0.15:
            self.session_timeout_ms = rng.choice((400, 900, 2500))
        if rng.random() < 0.1:
            self.plain_acks = tuple(rng.choice((0, 1, -1)) for _ in range(rng.randint(1, 2)))
        if rng.random() < 0.1:
            self.is_audited = True
        if rng.random() < 0.12:
            self._draw_batches(rng)

        if rng.random() < 0.1:
            self._draw_groups(rng)
            self.members_go_on = rng.random() < 0.5
        if rng.random() < 0.06 and not self.clock_steps_ms:
            self._draw_expiry()
        if rng.random() < 0.12 and not self.clock_steps_ms:
            self._draw_retention(rng)

    def _draw_widest(self, rng: random.Random) -> None:
        """Draw options that were added later, so that no other draw of a seed depends on them."""
        self.follows_by_fetch = rng.random() < 0.5
        self.aims_at_ends = rng.random() < 0.15

    def _draw_beginning(self, rng: random.Random) -> None:
        """Draw the directory that the broker finds at its first start."""
        if rng.random() < 0.12:
            self.kafka_epochs = rng.choice((1, 3, 40))
            self.kafka_was_killed = rng.random() < 0.3
        if rng.random() < 0.2:
            self._draw_rolls_and_partitions(rng)
        may_expire = self.groups and not self.workers and not self.clock_steps_ms
        if may_expire and rng.random() < 0.4:
            self._draw_offsets_retention(rng)

    def _draw_protocols(self, rng: random.Random) -> None:
        """Draw the protocol of transactional producers."""
        self.reuses_sequences = rng.random() < 0.35
        self.version_2 = rng.choice((0.0, 0.0, 0.5, 1.0))
        if not self.version_2 and (level := rng.choice((0, 1, 2))) < 2:  # level 2 is the default
            self.properties["barnabas.features"] = f"transaction.version={level}"

    def _draw_brokers(self, rng: random.Random) -> None:
        """Draw several brokers with moving leaders, but no clients whose requests are meant for a
        single broker.
        """
        is_for_one = self.meddlers or self.is_audited or self.kafka_epochs
        if rng.random() < 0.18 and not is_for_one:
            self.spread_over_brokers(rng.randint(2, 8))

    def spread_over_brokers(self, moves: int) -> None:
        """Use three brokers, and move leaders `moves` times."""
        self.brokers, self.moves = 3, moves
        self.meddlers, self.is_audited, self.kafka_epochs = 0, False, 0
        self.properties["barnabas.brokers"] = "3"

    def _draw_two_phase(self, rng: random.Random) -> None:
        """Draw two-phase producers, unless the broker takes over the directory of an Apache Kafka,
        which does not support them.
        """
        if rng.random() < 0.12 and not self.kafka_epochs:
            self.use_two_phase(rng.randint(1, 2))

    def _draw_aims(self, rng: random.Random) -> None:
        """Draw whether crashes and damage are aimed at particular moments and places."""
        self.aims_at_swaps = bool(self.compacted_topics) and rng.random() < 0.3
        self.damages_batches = rng.random() < 0.3

    def draw_quotas(self, rng: random.Random) -> None:
        """Draw quotas that clients sometimes exceed."""
        rates = {
            PRODUCER_BYTE_RATE: float(rng.choice((1000, 2000, 4000))),
            CONSUMER_BYTE_RATE: float(rng.choice((4000, 8000))),
            REQUEST_PERCENTAGE: float(rng.choice((10, 30))),
            CONTROLLER_MUTATION_RATE: rng.choice((0.5, 2.0)),
        }
        names = rng.sample(sorted(rates), rng.choice((1, 1, 2, 4)))
        self.quotas = {name: rates[name] for name in names}
        self.heeds_throttles = rng.random() < 0.5

    def set_up_quotas(self) -> None:
        """Keep the quotas only in schedules with long transaction timeouts and without group
        members, whose sessions could time out during a throttle. Remove the quotas also if the
        broker takes over a directory that does not have them, or if a client sends invalid
        requests.
        """
        if not self.quotas:
            return
        has_members = self.workers or self.consumers or self.groups
        has_others = self.meddlers or self.two_phase or self.stops_ms or self.is_audited
        if has_members or has_others or self.kafka_epochs or self.ids_expire or self.padding:
            self.quotas, self.heeds_throttles = {}, False
        else:
            self.transaction_timeout_ms = 10_000
            self.properties |= {"quota.window.num": "3", "quota.window.size.seconds": "1"}

    def use_two_phase(self, applications: int) -> None:
        """Set the number of applications that use two-phase commit, and enable it in the broker."""
        self.two_phase = applications
        self.properties["transaction.two.phase.commit.enable"] = "true"

    def _draw_consumer_protocol(self, rng: random.Random) -> None:
        """Draw members of the consumer protocol, together with classic members or without them."""
        if (self.workers or self.groups) and rng.random() < 0.5:
            self.consumer_protocol = rng.choice((0.3, 0.6, 1.0))
            self.properties["group.consumer.assignment.interval.ms"] = rng.choice(
                ("0", "200", "1000")
            )

    def set_up_consumer_groups(self) -> None:
        """Give the consumer protocol the session timeout of classic members, which a focus may have
        changed.
        """
        if self.consumer_protocol:
            self.properties |= {
                "group.consumer.min.session.timeout.ms": "100",
                "group.consumer.session.timeout.ms": str(self.session_timeout_ms),
                "group.consumer.min.heartbeat.interval.ms": "10",
                "group.consumer.heartbeat.interval.ms": str(self.session_timeout_ms // 3),
            }

    def _draw_rolls_and_partitions(self, rng: random.Random) -> None:
        """Draw more settings that decide to which file a write goes, and when that file is
        rolled.
        """
        for name in ("transaction.state.log.num.partitions", "offsets.topic.num.partitions"):
            self.properties[name] = rng.choice(("1", "2", "5"))
        if not self.clock_steps_ms:  # a segment's age is measured by the wall clock
            for topic in sorted(self.topics):
                configs = self.topic_configs.setdefault(topic, {})
                configs["segment.ms"] = rng.choice(("200", "1000", "604800000"))
                configs["segment.jitter.ms"] = rng.choice(("0", "150"))
        for topic in self.compacted_topics:
            self.topic_configs[topic] |= {
                "min.compaction.lag.ms": rng.choice(("0", "400")),
                "max.compaction.lag.ms": rng.choice(("500", "9223372036854775807")),
                "min.cleanable.dirty.ratio": rng.choice(("0.01", "0.5", "1")),
            }
        self.fsync_ms = rng.choice((0, 6, 60))
        self.properties |= {
            "log.cleaner.enable": rng.choice(("true", "true", "false")),
            "log.index.interval.bytes": rng.choice(("0", "4096")),
        }

    def _draw_offsets_retention(self, rng: random.Random) -> None:
        """Draw offsets that expire while a group has no members, and groups whose members all leave
        for that long.
        """
        self.offsets_retention_ms = rng.choice((600, 1500))
        self.properties["offsets.retention.check.interval.ms"] = rng.choice(("100", "700"))
        self.groups = tuple(
            group._replace(members=min(group.members, 2), leaving=0.5) for group in self.groups
        )
        self.chaos_ms = max(self.chaos_ms, 6000)

    def _draw_groups(self, rng: random.Random) -> None:
        """Draw two or three groups over the same topics, whose members leave and return."""
        topics = [topic for topic in ("plain", "tx") if topic in self.topics]
        topic = rng.choice(topics)
        self.groups = tuple(
            Group(
                f"group {number}",
                topic if rng.random() < 0.7 else rng.choice(topics),
                rng.randint(1, 3),
                rng.choice((300, 800, 1500, 2500)),
                rng.choice((0.0, 0.05, 0.15)),
                rng.choice((0.0, 0.3)),
                rng.random() < 0.3,
            )
            for number in range(rng.randint(1, 3))
        )

    def _draw_expiry(self) -> None:
        """Let producer ids expire. Limit delays so that a request is repeated before the partition
        forgets its producer, as Apache Kafka requires.
        """
        self.ids_expire = True
        self.properties |= EXPIRING
        self.weather = Weather(delay_ms=self.weather.delay_ms, cut=self.weather.cut, linger_ms=500)
        self.fault_weights = (*self.fault_weights[:4], 0, self.fault_weights[5])
        self.stops_ms = ()
        self.session_timeout_ms = min(
            self.session_timeout_ms, 1500
        )  # short, since a rebalance waits for dead members, and ids must not expire meanwhile
        self.chaos_ms = 9000

    def _draw_retention(self, rng: random.Random) -> None:
        """Draw retention by time, in topics that may lose their oldest records, including compacted
        ones.
        """
        for topic in ("plain", "tx", "kv"):
            if topic in self.topics:
                configs = self.topic_configs.setdefault(topic, {})
                configs |= {
                    "retention.ms": rng.choice(("600", "1500", "3000")),
                    "file.delete.delay.ms": rng.choice(("0", "300")),
                }
                if self.padding == 0:
                    configs["segment.bytes"] = rng.choice(("400", "1000"))
                if topic == "kv":
                    configs["cleanup.policy"] = "compact,delete"
        self.properties |= {
            "log.initial.task.delay.ms": "200",
            "log.retention.check.interval.ms": "300",
        }
        self.fault_weights = (*self.fault_weights[:5], 3)

    def _draw_batches(self, rng: random.Random) -> None:
        """Draw how producers make and send batches, and how topics store them."""
        self.codecs = tuple(rng.choices(range(5), k=2))
        self.most_in_flight = rng.randint(1, 5)
        self.padding = rng.choice((0.0, 0.0, 0.0, 0.1))
        for topic in sorted(self.topics):
            configs = self.topic_configs.setdefault(topic, {})
            configs["compression.type"] = rng.choice(
                ("producer", "producer", "gzip" if self.padding else "uncompressed", "zstd", "lz4")
            )
            if self.padding:
                configs["segment.bytes"] = "4000000"
            if topic not in self.flushed_topics and rng.random() < 0.3:
                configs["flush.messages"] = rng.choice(("2", "5"))

    def _draw_clock_steps(self, rng: random.Random) -> None:
        """Draw changes of the wall clock, and disable retention limits in days, since retention and
        a start of the broker compute ages by the wall clock.
        """
        self.clock_steps_ms = tuple(rng.choice(CLOCK_STEPS_MS) for _ in range(rng.randint(1, 4)))
        self.properties |= {
            "log.retention.ms": "-1",
            "offsets.retention.minutes": "1000000",
            "transactional.id.expiration.ms": "2147483647",
        }

    @classmethod
    def _drawn(cls, rng: random.Random) -> Scenario:
        scenario = cls(topics={"plain": 1, "tx": rng.randint(1, 2)})
        loses_power = rng.random() < 0.4
        scenario.power_share = 0.5 if loses_power else 0.0
        scenario.sessions_end_with_power = rng.random() < 0.3
        scenario.fault_weights = (3, 3 if loses_power else 0, 1, 3, 2, 1)
        scenario.last_restart = rng.choice(
            ("none", "stop", "kill", "power" if loses_power else "kill")
        )
        scenario.fault_count = rng.choice((0, 2, 4, 6))
        scenario.weather = Weather(
            delay_ms=rng.choice((1, 5, 30)),
            cut=rng.choice((0.0, 0.02, 0.06)),
            stall=rng.choice((0.0, 0.02)),
        )
        scenario.idempotent_producers = rng.randint(0, 2)
        scenario.applications = rng.randint(1, 2)
        scenario.workers = rng.choice((0, 0, 0, 1, 2))
        scenario.rounds = rng.randint(2, 4)
        scenario.chaos_ms = rng.randint(1500, 4000)
        scenario.transaction_timeout_ms = rng.choice((800, 1500, 3000))
        if scenario.workers:
            scenario.topics |= {"in": rng.randint(1, 2), "out": rng.randint(1, 2)}
            scenario.applications = rng.randint(0, 1)
        if rng.random() < 0.3:
            scenario.topics["kv"] = 1
            scenario.compacted_topics = ["kv"]
        segment_bytes = rng.choice((400, 1000, 4000, 1 << 20))
        for topic in scenario.topics:
            scenario.topic_configs[topic] = {
                "segment.bytes": str(segment_bytes),
                "index.interval.bytes": rng.choice(("0", "300", "4096")),
            }
        if scenario.compacted_topics:
            scenario.topic_configs["kv"] |= {
                "segment.bytes": "400",
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "0.01",
                "delete.retention.ms": rng.choice(("0", "500", "86400000")),
                "file.delete.delay.ms": "300",
            }
        scenario.properties["log.cleaner.backoff.ms"] = rng.choice(("100", "15000"))
        if rng.random() < 0.5:
            scenario.flushed_topics = ["plain"]
            scenario.topic_configs["plain"]["flush.messages"] = "1"
        if rng.random() < 0.3:
            scenario.topic_configs["plain"] |= {
                "retention.bytes": rng.choice(("0", "1000", "3000")),
                "file.delete.delay.ms": "300",
            }
        scenario._draw_intervals(rng)
        readable = [
            partition for topic in scenario.topics for partition in scenario.partitions_of(topic)
        ]
        scenario.readers = [
            (rng.sample(readable, rng.randint(1, len(readable))), rng.random() < 0.7)
            for _ in range(rng.randint(1, 2))
        ]
        return scenario

    def _draw_intervals(self, rng: random.Random) -> None:
        """Draw how often the broker checks and writes its state, and how large internal segments
        become.
        """
        self.properties["log.initial.task.delay.ms"] = rng.choice(("200", "800", "30000"))
        self.properties["log.retention.check.interval.ms"] = rng.choice(("500", "300000"))
        self.properties["barnabas.producer.snapshot.interval.ms"] = rng.choice(
            ("50", "400", "30000")
        )
        self.properties["log.flush.offset.checkpoint.interval.ms"] = rng.choice(
            ("150", "700", "60000")
        )
        self.properties["transaction.state.log.segment.bytes"] = rng.choice(("2000", "1000000"))
        self.properties["offsets.topic.segment.bytes"] = rng.choice(("1000", "1000000"))
