"""Schedules that concentrate on one kind of fault: each changes a drawn scenario so that a certain
kind of mistake is more likely to be found.

The search for planted mistakes uses them (`defects.py`), and a share of all seeds uses one
(`drawn_focus`), so that a few hundred seeds include schedules that would otherwise be rare.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

from sim.disk import Refusal
from sim.network import Weather
from sim.scenario import CUT_BYTES, CUT_INTERVAL, DURABILITY, FAULTS, WHOLE, Group, Scenario

Focus = Callable[[Scenario], None]
SHARE, LATER_SHARE, LATEST_SHARE = 0.4, 0.2, 0.1


def with_kills(scenario: Scenario) -> None:
    """Mostly kills of the broker, and no power loss."""
    scenario.faults, scenario.fault_weights = FAULTS, (4, 0, 1, 4, 2, 0)
    scenario.fault_count = 6
    scenario.power_share = 0.0
    scenario.last_restart = "kill"


def with_whole_transactions(scenario: Scenario) -> None:
    """All topics show whole transactions, of which many overlap and some stay open."""
    scenario.kafka_epochs, scenario.outages, scenario.refusals = 0, 0, ()
    scenario.properties |= {WHOLE: "true", CUT_INTERVAL: "20"}
    scenario.applications, scenario.rounds, scenario.pausing = 4, 8, 0.4
    with_kills(scenario)


def with_thinned_cuts(scenario: Scenario) -> None:
    """Recorded cuts of whole transactions are thinned out all the time."""
    with_whole_transactions(scenario)
    scenario.properties[CUT_BYTES] = "1024"


def with_lost_cuts(scenario: Scenario) -> None:
    """Power losses remove committed transactions, and what was written after recorded cuts."""
    with_whole_transactions(scenario)
    with_power(scenario)
    scenario.properties[DURABILITY], scenario.last_restart = "os", "kill"


def with_toggled_topics(scenario: Scenario) -> None:
    """Topics get and lose the setting for whole transactions."""
    with_whole_transactions(scenario)
    scenario.toggled = tuple(scenario.topics)


def with_power(scenario: Scenario) -> None:
    """Mostly power losses."""
    scenario.faults, scenario.fault_weights = FAULTS, (0, 4, 0, 1, 0, 0)
    scenario.power_share = 1.0
    scenario.fault_count = 4
    scenario.last_restart = "power"


def with_quotas(scenario: Scenario) -> None:
    """More clients that have to wait for a quota, and none of the clients that may not wait."""
    scenario.workers = scenario.consumers = scenario.meddlers = scenario.two_phase = 0
    scenario.groups, scenario.stops_ms, scenario.is_audited, scenario.kafka_epochs = (
        (),
        (),
        False,
        0,
    )
    scenario.ids_expire, scenario.padding = False, 0.0
    scenario.applications, scenario.idempotent_producers, scenario.rounds = 2, 2, 8
    scenario.draw_quotas(random.Random(scenario.fault_count + scenario.chaos_ms))


def with_produce_quotas(scenario: Scenario) -> None:
    with_quotas(scenario)
    scenario.quotas = {"producer_byte_rate": 1000.0}


def with_produce_quotas_and_kills(scenario: Scenario) -> None:
    with_produce_quotas(scenario)
    with_kills(scenario)


def with_fetch_quotas(scenario: Scenario) -> None:
    with_quotas(scenario)
    scenario.quotas = {"consumer_byte_rate": 4000.0}


def with_power_and_survivors(scenario: Scenario) -> None:
    with_power(scenario)
    scenario.sessions_end_with_power = False


def with_compaction(scenario: Scenario) -> None:
    """One compacted topic with small segments, which is compacted often."""
    scenario.topics = {"kv": 1}
    scenario.groups, scenario.meddlers = (), 0
    scenario.compacted_topics = ["kv"]
    scenario.topic_configs = {
        "kv": {
            "segment.bytes": "400",
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
        }
    }
    scenario.properties["log.cleaner.backoff.ms"] = "50"
    scenario.flushed_topics, scenario.readers = [], [([("kv", 0)], True)]
    scenario.workers, scenario.applications, scenario.idempotent_producers, scenario.rounds = (
        0,
        2,
        1,
        6,
    )
    scenario.fault_weights, scenario.fault_count, scenario.power_share, scenario.last_restart = (
        (1, 0, 1, 1, 1, 0),
        2,
        0.0,
        "kill",
    )


def with_compacted_shares(scenario: Scenario) -> None:
    """Share groups of a compacted topic: members hold records that compaction removes."""
    with_compaction(scenario)
    scenario.brokers, scenario.moves, scenario.kafka_epochs, scenario.outages = 1, 0, 0, 0
    scenario.properties.pop("barnabas.brokers", None)
    scenario.journal_damage, scenario.consumers, scenario.remade_topic = 0.0, 0, ""
    scenario.applications, scenario.idempotent_producers, scenario.rounds = 2, 2, 12
    scenario.properties["log.cleaner.backoff.ms"] = "20"
    scenario.use_sharers(3)


def with_crashes_amid_compaction(scenario: Scenario) -> None:
    """Kills between any two steps of a swap of segments, and of the start that completes it."""
    with_compaction(scenario)
    scenario.fault_weights, scenario.fault_count, scenario.fault_gap_ms = (
        (0, 0, 0, 1, 0, 0),
        20,
        (30, 300),
    )
    scenario.crash_at_start, scenario.start_steps = 0.5, (0, 60)
    scenario.power_share, scenario.rounds, scenario.chaos_ms = 0.2, 12, 8000
    scenario.properties["log.cleaner.backoff.ms"] = "10"


def with_crashes_amid_swaps(scenario: Scenario) -> None:
    """Kills between the first rename of a swap and its last, in many swaps."""
    with_crashes_amid_compaction(scenario)
    scenario.aims_at_swaps, scenario.crash_at_start, scenario.power_share = True, 0.1, 0.0


def with_small_segments_and_power(scenario: Scenario) -> None:
    with_power(scenario)
    scenario.padding = 0.0  # no padding: a padded batch would not fit into such small segments
    for configs in scenario.topic_configs.values():
        configs["segment.bytes"] = "400"


def with_power_on_transactions(scenario: Scenario) -> None:
    with_power(scenario)
    scenario.workers, scenario.applications, scenario.rounds, scenario.pausing = 0, 2, 8, 0.0


def with_power_and_short_journals(scenario: Scenario) -> None:
    with_power_on_transactions(scenario)
    scenario.properties["log.flush.offset.checkpoint.interval.ms"] = "20"


def with_crashes_of_starts(scenario: Scenario) -> None:
    """Power losses during transactions whose producers continue, and kills during the starts after
    them.
    """
    with_power_on_transactions(scenario)
    scenario.topics, scenario.flushed_topics, scenario.compacted_topics, scenario.consumers = (
        {"tx": 2},
        [],
        [],
        0,
    )
    (
        scenario.topic_configs,
        scenario.growing,
        scenario.remade_topic,
        scenario.idempotent_producers,
    ) = {"tx": {}}, [], "", 0
    scenario.readers = [(scenario.partitions_of("tx"), True)]
    scenario.sessions_end_with_power, scenario.pausing, scenario.applications, scenario.zombies = (
        False,
        1.0,
        3,
        0.0,
    )
    scenario.fault_weights, scenario.power_share, scenario.fault_count = (0, 1, 0, 0, 0, 0), 0.1, 10
    scenario.fault_gap_ms, scenario.crash_at_start, scenario.start_steps = (30, 300), 0.8, (25, 70)
    scenario.transaction_timeout_ms = 5000


def with_flushed_records_and_power(scenario: Scenario) -> None:
    """Only records whose flush was acknowledged, in logs that share a flush journal."""
    with_power(scenario)
    scenario.topics = {"plain": 4}
    scenario.groups = ()
    scenario.topic_configs = {"plain": {"flush.messages": "1"}}
    scenario.flushed_topics, scenario.compacted_topics, scenario.growing, scenario.remade_topic = (
        ["plain"],
        [],
        [],
        "",
    )
    (
        scenario.idempotent_producers,
        scenario.applications,
        scenario.workers,
        scenario.consumers,
        scenario.rounds,
    ) = 4, 0, 0, 0, 24
    scenario.fault_count, scenario.fault_gap_ms = 12, (20, 300)
    scenario.crash_at_start, scenario.start_steps = 0.7, (20, 90)
    scenario.properties["barnabas.flush.journal.logs"] = "1"
    scenario.readers = [(scenario.partitions_of("plain"), False)]


def with_stops_and_power(scenario: Scenario) -> None:
    """A clean stop, and a power loss soon after the next start, during transactions whose producers
    continue.
    """
    with_power_on_transactions(scenario)
    scenario.sessions_end_with_power, scenario.pausing, scenario.applications = False, 0.5, 3
    scenario.fault_weights, scenario.fault_count, scenario.fault_gap_ms = (
        (0, 3, 3, 0, 0, 0),
        12,
        (2, 200),
    )
    scenario.properties |= {
        "barnabas.flush.journal.logs": "0",
        "log.flush.offset.checkpoint.interval.ms": "60000",
        "log.initial.task.delay.ms": "30000",
    }


def with_kills_and_power_without_journal(scenario: Scenario) -> None:
    """A slow disk, a kill between a decision and its flush, and a power loss soon after."""
    with_power_on_transactions(scenario)
    scenario.topics, scenario.flushed_topics, scenario.compacted_topics, scenario.consumers = (
        {"tx": 3},
        [],
        [],
        0,
    )
    (
        scenario.topic_configs,
        scenario.growing,
        scenario.remade_topic,
        scenario.idempotent_producers,
    ) = {"tx": {}}, [], "", 0
    scenario.meddlers, scenario.is_audited, scenario.plain_acks = 0, False, ()
    scenario.readers = [(scenario.partitions_of("tx"), True)]
    scenario.properties["barnabas.flush.journal.logs"] = "0"
    scenario.fault_weights, scenario.power_share, scenario.fault_count, scenario.fault_gap_ms = (
        (4, 4, 0, 0, 0, 0),
        0.0,
        14,
        (100, 700),
    )
    scenario.crash_at_start, scenario.rounds, scenario.fsync_ms, scenario.chaos_ms = (
        0.0,
        40,
        120,
        9000,
    )
    scenario.zombies, scenario.dying, scenario.applications, scenario.sessions_end_with_power = (
        0.0,
        0.0,
        1,
        False,
    )


def with_power_and_slow_flushes(scenario: Scenario) -> None:
    """Power losses while fsyncs run. An fsync takes 60 ms, and each transaction is flushed through
    the flush journal, even if it wrote to one log only, so that many faults come between the write
    of a transaction and its fsync.
    """
    with_power_on_transactions(scenario)
    scenario.properties["barnabas.flush.journal.logs"] = "1"
    scenario.fsync_ms = 60
    scenario.fault_count, scenario.fault_gap_ms = 8, (30, 500)


def with_power_on_unflushed_transactions(scenario: Scenario) -> None:
    with_power_on_transactions(scenario)
    scenario.properties[DURABILITY] = "os"
    scenario.applications, scenario.rounds = 2, 10


def with_a_clock_set_back(scenario: Scenario) -> None:
    scenario.clock_steps_ms = (-3_600_000,)


def with_a_clock_set_back_and_kills(scenario: Scenario) -> None:
    with_kills(scenario)
    with_a_clock_set_back(scenario)
    scenario.applications, scenario.dying = 2, 0.4


def with_deletions(scenario: Scenario) -> None:
    with_kills(scenario)
    scenario.fault_weights = (4, 0, 0, 0, 0, 4)


def with_deletions_and_power(scenario: Scenario) -> None:
    with_power(scenario)
    scenario.fault_weights, scenario.fault_count = (0, 3, 0, 0, 0, 4), 8


def with_retention_and_power(scenario: Scenario) -> None:
    with_power(scenario)
    scenario.padding = 0.0
    scenario.topic_configs["plain"] |= {"segment.bytes": "400", "retention.bytes": "0"}
    scenario.properties |= {
        "log.initial.task.delay.ms": "200",
        "log.retention.check.interval.ms": "500",
    }
    scenario.idempotent_producers, scenario.rounds = 2, 6


def with_refused_rolls(scenario: Scenario) -> None:
    """Repeatedly there is no space for new segments, in a log that retention keeps short."""
    scenario.topics = {"plain": 1}
    scenario.topic_configs = {
        "plain": {"segment.bytes": "400", "retention.bytes": "3000", "file.delete.delay.ms": "0"}
    }
    scenario.properties |= {
        "log.initial.task.delay.ms": "200",
        "log.retention.check.interval.ms": "500",
    }
    scenario.flushed_topics, scenario.compacted_topics, scenario.growing, scenario.remade_topic = (
        [],
        [],
        [],
        "",
    )
    (
        scenario.idempotent_producers,
        scenario.applications,
        scenario.workers,
        scenario.consumers,
        scenario.rounds,
    ) = 2, 0, 0, 0, 30
    scenario.readers = [([("plain", 0)], False)]
    scenario.fault_count, scenario.chaos_ms = 0, 6000
    scenario.refusals = tuple(Refusal(frozenset({"inode"}), errno.EDQUOT) for _ in range(8))


def with_no_space(scenario: Scenario) -> None:
    """Repeatedly no byte can be written for seconds, with clients of every kind."""
    scenario.refusals = tuple(
        Refusal(frozenset({"inode", "entry", "rename", "write"}), code, after)
        for code, after in (
            (errno.ENOSPC, 0), (errno.EDQUOT, 25), (errno.EFBIG, 60), (errno.ENOSPC, 7),
        )
    )  # fmt: skip
    scenario.refusal_ms, scenario.fault_gap_ms = (200, 2500), (100, 700)
    scenario.chaos_ms, scenario.transaction_timeout_ms = max(scenario.chaos_ms, 9000), 5000
    scenario.rounds, scenario.stops_ms = 12, ()


def with_no_space_and_the_same_bytes(scenario: Scenario) -> None:
    """`with_no_space`, with producers that send the same bytes again."""
    with_no_space(scenario)
    scenario.retries = "same bytes"


def with_no_space_and_groups(scenario: Scenario) -> None:
    """`with_no_space` together with groups whose members have short sessions."""
    with_stops(scenario)
    with_no_space(scenario)


def with_starts_without_space(scenario: Scenario) -> None:
    """`with_no_space` together with kills and stops of the broker meanwhile, so that most starts
    find no space.
    """
    with_no_space(scenario)
    scenario.faults, scenario.fault_weights, scenario.fault_count = ("kill", "stop"), (3, 1), 8
    scenario.power_share, scenario.crash_at_start, scenario.refusal_ms = 0.0, 0.0, (600, 2500)


def with_outages(scenario: Scenario) -> None:
    """Partitions that go offline and return, during transactions on them."""
    scenario.topics, scenario.flushed_topics, scenario.compacted_topics, scenario.consumers = (
        {"tx": 2},
        [],
        [],
        0,
    )
    (
        scenario.topic_configs,
        scenario.growing,
        scenario.remade_topic,
        scenario.idempotent_producers,
    ) = {"tx": {}}, [], "", 0
    scenario.readers = [(scenario.partitions_of("tx"), True)]
    scenario.workers, scenario.applications, scenario.rounds, scenario.pausing, scenario.zombies = (
        0,
        3,
        20,
        0.0,
        0.0,
    )
    scenario.fault_count, scenario.power_share, scenario.crash_at_start, scenario.chaos_ms = (
        0,
        0.0,
        0.0,
        9000,
    )
    scenario.outages, scenario.fault_gap_ms, scenario.transaction_timeout_ms = 6, (50, 600), 20_000
    scenario.groups = ()


def with_outages_and_slow_flushes(scenario: Scenario) -> None:
    """Kills between the write of a decision to the journal and the transaction's end; after the
    restart the partition is online again.
    """
    with_outages(scenario)
    scenario.aims_at_ends = True
    scenario.fsync_ms = 250
    scenario.properties["barnabas.flush.journal.logs"] = "1"


def with_damaged_batches(scenario: Scenario) -> None:
    """Partitions that are offline because durable batches are damaged."""
    with_outages(scenario)
    scenario.damages_batches = True


def with_outages_and_remakes(scenario: Scenario) -> None:
    """A topic is deleted and created again while it is offline, with transactions on the old topic
    and on the new one.
    """
    with_outages(scenario)
    scenario.topics, scenario.topic_configs = {"gone": 2}, {"gone": {"file.delete.delay.ms": "0"}}
    scenario.remade_topic, scenario.remakes, scenario.meddlers = "gone", 12, 0
    scenario.readers = [(scenario.partitions_of("gone"), True)]
    scenario.outages, scenario.applications, scenario.version_2 = 10, 3, 0.0
    scenario.fault_weights, scenario.fault_count = (1, 0, 0, 0, 0, 0), 10


def with_many_producers_and_kills(scenario: Scenario) -> None:
    """Several idempotent producers on one partition, whose batches are sent again and arrive out of
    order after restarts.
    """
    with_lost_answers(scenario)
    scenario.topics, scenario.flushed_topics, scenario.topic_configs["plain"] = {"plain": 1}, [], {}
    scenario.compacted_topics, scenario.growing, scenario.remade_topic, scenario.consumers = (
        [],
        [],
        "",
        0,
    )
    scenario.groups, scenario.workers, scenario.applications = (), 0, 0
    scenario.readers = [(scenario.partitions_of("plain"), False)]
    scenario.idempotent_producers, scenario.rounds, scenario.most_in_flight = 5, 30, 5
    scenario.fault_count, scenario.fault_gap_ms, scenario.chaos_ms = 12, (50, 500), 6000


def from_kafka(scenario: Scenario) -> None:
    """The first writes go to an Apache Kafka that was restarted often."""
    scenario.kafka_epochs, scenario.applications, scenario.rounds = 3, 2, 8


def from_killed_kafka(scenario: Scenario) -> None:
    """The first writes go to an Apache Kafka that was restarted often, and finally killed while its
    cleaner was running.
    """
    with_compaction(scenario)
    scenario.kafka_epochs, scenario.kafka_was_killed = 3, True
    scenario.power_share, scenario.fault_count = 0.0, 0


def with_stops_amid_flushes(scenario: Scenario) -> None:
    """The broker is stopped during flushes, and loses power later. It has one partition: the first
    flush of each other one would also make the names in the data directory durable.
    """
    with_power_on_transactions(scenario)
    scenario.topics, scenario.flushed_topics = {"plain": 1}, ["plain"]
    scenario.topic_configs = {"plain": {"flush.messages": "1"}}
    scenario.compacted_topics, scenario.growing, scenario.remade_topic = [], [], ""
    scenario.applications = scenario.consumers = scenario.meddlers = scenario.two_phase = 0
    scenario.sharers = scenario.streamers = 0
    scenario.groups, scenario.idempotent_producers = (), 2
    scenario.readers = [(scenario.partitions_of("plain"), False)]
    scenario.faults, scenario.fault_weights = ("stop", "power"), (4, 1)
    scenario.fault_count, scenario.fault_gap_ms, scenario.fsync_ms = 10, (20, 200), 60


def with_damaged_journals(scenario: Scenario) -> None:
    with_power_on_transactions(scenario)
    scenario.journal_damage, scenario.fault_count = 1.0, 8


def with_deaths(scenario: Scenario) -> None:
    scenario.dying, scenario.applications, scenario.workers, scenario.chaos_ms = 0.4, 2, 0, 1000


def with_small_segments(scenario: Scenario) -> None:
    """Segments of a few batches."""
    scenario.padding = 0.0
    for configs in scenario.topic_configs.values():
        configs["segment.bytes"] = "400"


def with_several_partitions(scenario: Scenario) -> None:
    scenario.topics["tx"], scenario.applications = 3, 2


def with_bumped_epochs(scenario: Scenario) -> None:
    """Power losses, after which idempotent producers continue with their ids and the next epoch."""
    with_power(scenario)
    (
        scenario.bumps_epochs,
        scenario.idempotent_producers,
        scenario.applications,
        scenario.workers,
    ) = True, 2, 0, 0
    scenario.topics, scenario.flushed_topics, scenario.topic_configs["plain"] = {"plain": 1}, [], {}
    scenario.compacted_topics, scenario.growing, scenario.remade_topic, scenario.consumers = (
        [],
        [],
        "",
        0,
    )
    scenario.readers = [(scenario.partitions_of("plain"), False)]
    scenario.rounds, scenario.fault_count, scenario.fault_gap_ms, scenario.chaos_ms = (
        40,
        20,
        (20, 400),
        6000,
    )


def with_new_producers(scenario: Scenario) -> None:
    """Power losses, after which a producer that is out of sequence requests a new id."""
    with_bumped_epochs(scenario)
    scenario.bumps_epochs = False


def with_lost_tails(scenario: Scenario) -> None:
    """Power losses that remove records which readers and members of a group have read; more records
    than these are written afterwards.
    """
    with_power(scenario)
    (
        scenario.bumps_epochs,
        scenario.idempotent_producers,
        scenario.applications,
        scenario.workers,
    ) = True, 2, 0, 0
    scenario.topics, scenario.flushed_topics, scenario.topic_configs["plain"] = {"plain": 1}, [], {}
    (
        scenario.compacted_topics,
        scenario.growing,
        scenario.remade_topic,
        scenario.outages,
        scenario.refusals,
    ) = [], [], "", 0, ()
    scenario.readers, scenario.epoch_followers = [(scenario.partitions_of("plain"), False)], 1
    scenario.consumers, scenario.groups = (
        0,
        (Group("readers of plain", "plain", 1, 1500, 0.0, 0.0, False),),
    )
    scenario.rounds, scenario.fault_count, scenario.fault_gap_ms, scenario.chaos_ms = (
        40,
        12,
        (100, 700),
        6000,
    )


def with_lost_tails_and_members_that_go_on(scenario: Scenario) -> None:
    with_lost_tails(scenario)
    scenario.members_go_on = True


def with_group(scenario: Scenario) -> None:
    """Workers that read, process and write within transactions, as one group."""
    scenario.topics |= {"in": 1, "out": 1}
    scenario.transaction_timeout_ms = 5000
    scenario.workers, scenario.feeders, scenario.applications, scenario.idempotent_producers = (
        2,
        1,
        0,
        0,
    )
    scenario.readers = [(scenario.partitions_of("out"), True)]


def with_remakes(scenario: Scenario) -> None:
    """A topic that is deleted and created again, with few other clients."""
    with_kills(scenario)
    scenario.topics = {"gone": 1}
    scenario.groups, scenario.meddlers = (), 0
    scenario.topic_configs = {"gone": {"file.delete.delay.ms": "60000"}}
    scenario.flushed_topics, scenario.compacted_topics, scenario.growing = [], [], []
    scenario.remade_topic, scenario.remakes, scenario.consumers = "gone", 2, 1
    scenario.workers, scenario.applications, scenario.idempotent_producers, scenario.rounds = (
        0,
        1,
        1,
        6,
    )
    scenario.readers = [([("gone", 0)], True)]


def with_remakes_and_power(scenario: Scenario) -> None:
    """Topics are deleted and created again between power losses, which are the most frequent fault;
    records are readable only once they are flushed.
    """
    with_remakes(scenario)
    scenario.topic_configs["gone"]["flush.messages"] = "1"
    scenario.flushed_topics, scenario.consumers, scenario.remakes = ["gone"], 2, 4
    scenario.fault_weights, scenario.fault_count, scenario.power_share, scenario.last_restart = (
        (2, 3, 1, 4, 1, 0),
        6,
        0.6,
        "power",
    )


def with_calm_remakes(scenario: Scenario) -> None:
    with_remakes(scenario)
    scenario.fault_count = 0


def with_remakes_amid_flushes(scenario: Scenario) -> None:
    """A slow disk, so that a topic is deleted while transactions on it are being flushed."""
    with_remakes(scenario)
    scenario.fault_count, scenario.remakes, scenario.fsync_ms = 0, 12, 200
    scenario.applications, scenario.idempotent_producers, scenario.rounds = 3, 0, 30
    scenario.pausing, scenario.zombies, scenario.dying = 0.0, 0.0, 0.0


def with_unanswered_batches(scenario: Scenario) -> None:
    scenario.plain_acks, scenario.refusals, scenario.outages = (0, 0), (), 0
    scenario.remade_topic, scenario.consumers = "", 0


def with_growth(scenario: Scenario) -> None:
    with_kills(scenario)
    scenario.growing, scenario.idempotent_producers, scenario.rounds = ["plain"], 2, 6


def with_static_members(scenario: Scenario) -> None:
    """Static members of a classic group, which often return while their previous processes are
    still running.
    """
    with_group(scenario)
    scenario.consumer_protocol = 0.0
    scenario.is_static, scenario.twins, scenario.fault_count = True, 0.8, 1


def with_static_members_and_rebalances(scenario: Scenario) -> None:
    with_static_members(scenario)
    scenario.leaving, scenario.twins, scenario.chaos_ms, scenario.fault_count = 0.2, 0.0, 8000, 0


def with_departures(scenario: Scenario) -> None:
    with_group(scenario)
    scenario.leaving = 0.6


def with_meddlers(scenario: Scenario) -> None:
    """Clients that send malformed and forbidden requests, beside two transactional producers."""
    scenario.meddlers, scenario.applications = 2, 2
    scenario.properties["barnabas.decompressed.max.bytes"] = "1200000"
    scenario.topic_configs = {topic: {"segment.bytes": "4000000"} for topic in scenario.topics}
    scenario.compacted_topics, scenario.flushed_topics = [], []


def with_stops(scenario: Scenario) -> None:
    """The broker's process is stopped several times, for longer than transactions may last."""
    with_group(scenario)
    scenario.stops_ms, scenario.fault_count, scenario.weather = (
        (1400, 1400, 1400),
        0,
        Weather(delay_ms=3),
    )
    scenario.chaos_ms, scenario.transaction_timeout_ms = 6000, 800


def with_groups(scenario: Scenario) -> None:
    """Two groups of consumers, one of which has very short sessions."""
    scenario.groups = (
        Group("group 0", "plain", 2, 2500, 0.05, 0.0, False),
        Group("group 1", "plain", 2, 300, 0.15, 0.0, False),
    )
    scenario.chaos_ms, scenario.fault_count = 6000, 1


def with_consumer_protocol(scenario: Scenario) -> None:
    """Workers and consumers with the consumer protocol, some of which stall or die; classic members
    join and leave.
    """
    with_group(scenario)
    with_kills(scenario)
    scenario.consumer_protocol = 0.7
    scenario.properties["group.consumer.assignment.interval.ms"] = "0"
    scenario.topics |= {"in": 3, "plain": 2}
    scenario.workers, scenario.feeders, scenario.leaving = 3, 2, 0.3
    scenario.idempotent_producers, scenario.remade_topic, scenario.consumers = 1, "", 0
    scenario.groups = (Group("group 0", "plain", 3, 1500, 0.1, 0.3, False),)
    scenario.rounds, scenario.chaos_ms, scenario.session_timeout_ms = 6, 6000, 1500


def with_a_clock_put_forward(scenario: Scenario) -> None:
    """A group, and a wall clock that is set forward by two minutes."""
    with_group(scenario)
    scenario.clock_steps_ms, scenario.fault_count, scenario.weather = (
        (120_000,),
        0,
        Weather(delay_ms=3),
    )
    scenario.chaos_ms = 3000


def with_large_batches(scenario: Scenario) -> None:
    """Large batches of transactions, over connections that are cut often."""
    with_lost_answers(scenario)
    scenario.weather = Weather(delay_ms=5, cut=0.2)
    scenario.padding, scenario.applications, scenario.idempotent_producers, scenario.workers = (
        0.8,
        2,
        0,
        0,
    )
    scenario.transaction_timeout_ms, scenario.pausing, scenario.fault_count = 3000, 0.0, 0
    scenario.topic_configs = {topic: {"segment.bytes": "4000000"} for topic in scenario.topics}
    scenario.compacted_topics, scenario.flushed_topics = [], []


def with_expiry(scenario: Scenario) -> None:
    """Producers that pause in transactions for longer than a partition keeps an idle producer."""
    scenario._draw_expiry()
    scenario.properties["producer.id.expiration.ms"] = "1500"
    (
        scenario.transaction_timeout_ms,
        scenario.pausing,
        scenario.applications,
        scenario.fault_count,
    ) = 4000, 1.0, 2, 0
    scenario.zombies, scenario.workers, scenario.idempotent_producers = 0.0, 0, 0


def with_retention(scenario: Scenario) -> None:
    """Small segments that are deleted soon after they were written."""
    for topic in ("plain", "tx"):
        scenario.topic_configs[topic] = {
            "segment.bytes": "400",
            "retention.ms": "1500",
            "file.delete.delay.ms": "0",
        }
    scenario.properties |= {
        "log.initial.task.delay.ms": "200",
        "log.retention.check.interval.ms": "200",
    }
    scenario.fault_count, scenario.last_restart, scenario.rounds, scenario.flushed_topics = (
        0,
        "none",
        8,
        [],
    )


def with_an_auditor(scenario: Scenario) -> None:
    with_kills(scenario)
    scenario.is_audited, scenario.applications = True, 2


def with_power_on_flushed_topics(scenario: Scenario) -> None:
    with_power(scenario)
    scenario.topic_configs["plain"] = {"flush.messages": "1"}
    scenario.flushed_topics, scenario.readers = (
        ["plain"],
        [([("plain", 0)], False), ([("plain", 0)], True)],
    )
    scenario.idempotent_producers, scenario.rounds = 2, 6


def with_lost_answers(scenario: Scenario) -> None:
    """Idempotent producers whose responses are often lost."""
    with_kills(scenario)
    scenario.weather = Weather(delay_ms=30, cut=0.08, stall=0.02)
    scenario.idempotent_producers = 2


def with_a_disk_that_fails(scenario: Scenario) -> None:
    """A disk whose fsyncs fail repeatedly, and which then accepts no new file."""
    scenario.power_share, scenario.crash_at_start, scenario.last_restart = 0.0, 0.0, "kill"
    scenario.fault_count, scenario.stops_ms, scenario.sessions_end_with_power = 0, (), False
    scenario.rounds, scenario.transaction_timeout_ms, scenario.pausing = 12, 5000, 0.0
    scenario.refusals = tuple(
        Refusal(frozenset({"fsync", "inode"}), errno.EIO, after) for after in (0, 0, 1, 0)
    )


def with_offsets_that_expire(scenario: Scenario) -> None:
    """A group whose only member leaves for as long as its offsets are kept."""
    scenario.workers, scenario.consumers, scenario.meddlers, scenario.clock_steps_ms = 0, 0, 0, ()
    scenario.groups = (Group("group 0", "plain", 2, 900, 0.05, 0.3, is_static=False),)
    scenario._draw_offsets_retention(random.Random(1))


def with_reused_sequences(scenario: Scenario) -> None:
    with_lost_answers(scenario)
    scenario.reuses_sequences = True
    scenario.applications = 3


def with_batches_encoded_again(scenario: Scenario) -> None:
    with_lost_answers(scenario)
    scenario.retries = "encoded again"


def with_late_batches(scenario: Scenario) -> None:
    """Many broken connections, and no other faults."""
    scenario.weather = Weather(delay_ms=5, cut=0.15, linger_ms=600)
    scenario.reuses_sequences = True
    scenario.applications, scenario.workers, scenario.idempotent_producers = 4, 0, 0
    scenario.rounds, scenario.chaos_ms, scenario.transaction_timeout_ms = 12, 8000, 5000
    scenario.fault_count, scenario.meddlers, scenario.kafka_epochs = 0, 0, 0
    scenario.pausing = scenario.dying = scenario.zombies = 0.0


def with_late_batches_anywhere(scenario: Scenario) -> None:
    """Only for a planted defect: late batches may also reach a partition that was added to the
    transaction and not written to. If such a batch arrives before any other of its producer, the
    broker cannot distinguish it from a batch of the next transaction.
    """
    with_late_batches(scenario)
    scenario.adds_unwritten = True


def with_version_2(scenario: Scenario) -> None:
    """Lost responses, and only transactions of version 2."""
    with_lost_answers(scenario)
    scenario.version_2, scenario.applications, scenario.rounds = 1.0, 3, 8
    scenario.properties.pop("barnabas.features", None)


# Focuses on schedules that would otherwise rarely be drawn.
FOCUSES: tuple[Focus, ...] = (
    with_crashes_amid_compaction,
    with_small_segments_and_power,
    with_crashes_of_starts,
    with_flushed_records_and_power,
    with_stops_and_power,
    with_kills_and_power_without_journal,
    with_power_and_slow_flushes,
    with_power_on_unflushed_transactions,
    with_a_clock_set_back_and_kills,
    with_deletions_and_power,
    with_retention_and_power,
    with_refused_rolls,
    with_outages,
    with_outages_and_slow_flushes,
    from_kafka,
    from_killed_kafka,
    with_damaged_journals,
    with_deaths,
    with_bumped_epochs,
    with_lost_tails,
    with_remakes_and_power,
    with_remakes_amid_flushes,
    with_unanswered_batches,
    with_expiry,
    with_power_on_flushed_topics,
    with_a_disk_that_fails,
    with_offsets_that_expire,
    with_reused_sequences,
    with_late_batches,
    with_consumer_protocol,
)

# Focuses that were added later; a share of the seeds without one of FOCUSES has one of these.
LATER_FOCUSES: tuple[Focus, ...] = (
    with_crashes_amid_swaps,
    with_damaged_batches,
    with_outages_and_remakes,
    with_many_producers_and_kills,
    with_no_space,
)
# Focuses that were added last; a share of the seeds without one of the other focuses has one of
# these.
LATEST_FOCUSES: tuple[Focus, ...] = (
    with_no_space_and_groups,
    with_starts_without_space,
    with_compacted_shares,
)


def drawn_focus(seed: int) -> Focus | None:
    """The focus of a seed's schedule; None for most seeds."""
    rng = random.Random(f"{seed} focus")
    if rng.random() < SHARE:
        return rng.choice(FOCUSES)
    if rng.random() < LATER_SHARE:
        return rng.choice(LATER_FOCUSES)
    return rng.choice(LATEST_FOCUSES) if rng.random() < LATEST_SHARE else None
