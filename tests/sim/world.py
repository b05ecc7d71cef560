"""One schedule, drawn from a seed: a broker, its clients and the faults. After the last fault it
checks that all work is completed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import random
import sys
import traceback
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from checkers import NEVER_MS, FinalLog, Finding, History, Life, Partition, Source, check
from helpers import pictures, strays
from helpers.raised_faults import raised_faults
from helpers.waiting_readers import waiting_for_what_is_there

from barnabas.broker.outbox import CloseReason
from barnabas.protocol.errors import Code, DelayedRequest
from barnabas.protocol.records import decode_marker, records_of
from barnabas.protocol.wall_clock import MOST_LEAD_MS
from barnabas.storage.disk import (
    FailedFsync,
    NotWrittenError,
    is_out_of_resources,
    may_have_lost_pages,
)
from barnabas.storage.files.checkpoints import NO_TOPIC_ID
from barnabas.storage.files.segment_files import SNAPSHOT_SUFFIX, SWAP_SUFFIX
from barnabas.storage.log.time_lookup import offset_for_timestamp
from barnabas.storage.producers.producer_snapshots import KEPT_SNAPSHOTS
from sim import emptying, sharers, streamers, two_phase
from sim.administrator import Administrator
from sim.auditor import Auditor
from sim.brokers import Bundle, Unled, move_leaders
from sim.clients import Asking, Fenced, Refused
from sim.consumer_protocol import ConsumerProtocolConsumer, ConsumerProtocolWorker
from sim.consumers import Consumer
from sim.disk import Crash
from sim.focuses import drawn_focus
from sim.group import Worker, committed_offsets
from sim.kafka_directory import KafkaTopic, leave_as_kafka
from sim.loop import EndlessError, Future, Loop
from sim.meddler import Meddler
from sim.network import Forgiving, Link, Weather
from sim.node import DATA_DIR, Node
from sim.producers import IdempotentProducer, Inits, PlainProducer, Producer, TransactionalProducer
from sim.quotas import ENTITY
from sim.readers import Opener, Reader, read_all
from sim.scenario import (
    CLOCK_STANDS,
    CUT_BYTES,
    THINNED_BYTES,
    WANT_OF_ROOM,
    WHOLE,
    Group,
    Scenario,
)

if TYPE_CHECKING:
    from barnabas.broker.core import Broker

START_MS = 1_760_000_000_000
PEACE_MS = 30_000
PEACE_WITH_QUOTAS_MS = 120_000  # all readers together receive at least 4,000 bytes per second
LONGEST_AIM_MS, AIM_STEP_MS = 500, 2
GROUP, READERS = "group", "readers"
Tweak = Callable[[Scenario], None]


class Report(NamedTuple):
    """The result of a simulation run. `digest` is a hash of all bytes that were sent, in order;
    `seen` names what happened (`whole_days.THINGS`).
    """

    seed: int
    findings: list[Finding]
    digest: str
    operations: int
    virtual_ms: int
    restarts: int
    history: History
    seen: frozenset[str] = frozenset()


class World:
    """The whole state of one schedule, and the code that runs it."""

    # Whether the end of the schedule checks that an emptied broker keeps nothing. This check needs
    # a single broker.
    is_to_be_emptied = True

    def __init__(
        self,
        seed: int,
        *,
        tweak: Tweak | None = None,
        is_plain: bool = False,
        tracing: Callable[[str], None] | None = None,
    ) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.scenario = Scenario.drawn(self.rng, is_plain=is_plain)
        if tweak is None and not is_plain:
            tweak = drawn_focus(seed)
        if tweak is not None:
            tweak(self.scenario)
        self.scenario.drop_whole_if_off_line()
        self.scenario.set_up_consumer_groups()
        self.scenario.set_up_quotas()
        self.has_quotas = False
        topics = self.scenario.topics
        self.scenario.groups = tuple(
            group for group in self.scenario.groups if group.topic in topics
        )
        self.scenario.growing = [topic for topic in self.scenario.growing if topic in topics]
        if self.scenario.remade_topic not in topics:
            self.scenario.remade_topic, self.scenario.consumers = "", 0
        self.loop = Loop(START_MS)
        self.wall_ahead_ms = 0
        self.wall_stands_ms: int | None = None
        self.history = _history_of(self.scenario)
        self.idempotent_partitions = self.scenario.idempotent_partitions
        self.transactional_partitions = self.scenario.transactional_partitions
        self.input_partitions, self.output_partitions = (
            self.scenario.input_partitions,
            self.scenario.output_partitions,
        )
        self.remade_partitions = self.scenario.remade_partitions
        self.first_input_count = len(self.input_partitions)
        self.weather = self.scenario.weather
        self.flushed_topics = frozenset(self.scenario.flushed_topics)
        self.node = self._made_node()
        self.opener = Opener()
        self.routing = random.Random(f"{seed} brokers")
        self.unled = Unled(self)
        self.operations = 0
        self.restarts = 0
        self.seen: set[str] = set()  # what has happened, for a count of schedules
        self.producers: dict[str, tuple[int, int]] = {}
        self.inits: dict[str, Inits] = {}
        self.group_names = [group.name for group in self.scenario.groups]
        self._members: dict[str, list[Consumer]] = {name: [] for name in self.group_names}
        self._group_inputs = {
            group.topic: self.scenario.partitions_of(group.topic) for group in self.scenario.groups
        }
        self.departures: dict[tuple[str, str], int] = {}
        self.selves: dict[tuple[str, str], list[Worker]] = {}
        self.place_asked_ms: dict[tuple[str, str], dict[str, int]] = {}
        self.place_taken: dict[tuple[str, str], tuple[Worker, int]] = {}
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.is_draining = self.is_over = self._is_powerless = self.is_emptied = False
        self._mistaken_losses = 0
        self.drains_until_ms = -1
        self._digest = hashlib.blake2b(digest_size=12)
        self._tracing = tracing
        self._next_link = 1
        self._busy = 0
        self._readers: list[Reader] = []
        self._workers: list[Worker] = []
        self._consumers: list[Consumer] = []
        self.share_groups: list[sharers.Group] = []
        self.streams_groups: list[streamers.Group] = []
        self._watermarks: dict[Any, tuple[int, int, int]] = {}
        # recorded cuts: the time, the power losses before, and the start and offset of each log
        self._recorded: dict[Any, tuple[int, int, dict[Any, tuple[int, int]]]] = {}
        self._cut_offsets: dict[Any, tuple[int, int]] = {}
        self._had_whole: dict[str, bool] = {}
        self.may_lack_cuts = False
        # the offsets up to which the timestamps of markers were checked
        self._checked_ends: dict[Any, int] = {}
        self._logs: list[tuple[Any, Any]] = []
        self._logs_of = (-1, -1)

    def _made_node(self) -> Node:
        return Node(self, self.scenario.properties)

    # --- what clients and the node ask for -------------------------------------------------------

    @property
    def may_forget(self) -> bool:
        """Whether the broker may have lost data that was not durable, since there was a power
        loss.
        """
        return bool(self.history.power_losses)

    @property
    def cleanings(self) -> int:
        """How many compactions may have removed a record so far."""
        return self.node.cleanings

    @property
    def fences(self) -> int:
        """How many starts may have fenced producers and removed members. A broker does both when it
        starts after a power loss, or after something that it mistook for a power loss.
        """
        return len(self.history.power_losses) + self._mistaken_losses

    def wall_ms(self) -> int:
        """The time of day on the broker's machine, the only machine whose clock may be wrong."""
        return (
            self.loop.now_ms + self.wall_ahead_ms
            if self.wall_stands_ms is None
            else self.wall_stands_ms
        )

    def try_connect(self) -> Link | None:
        if not self.node.is_up or self.is_emptied:
            return None
        if self.scenario.brokers > 1:
            # clients use a bundle of links and a single link in the same way
            return cast(Link, Bundle(self))
        return self.connect_to(None)

    def connect_to(self, node_id: int | None, node: Node | None = None) -> Link:
        """Connect to the running broker with this node id, or to the only broker if it is None.
        `node` is the broker's machine, if it is not the first.
        """
        link = Link(self, self._next_link, node_id, node)
        self._next_link += 1
        link.node.connect(link)
        return link

    def trace(self, what: str, link_id: int, name: str, number: int, data: bytes) -> None:
        """Write one line of the schedule's trace, and add it to the digest. Two runs of a seed are
        equal if their digests are equal.
        """
        self._digest.update(f"{self.loop.now_ms} {what} {link_id} {name} {number} ".encode() + data)
        if self._tracing is not None:
            self._tracing(
                f"{self.loop.now_ms - START_MS:6d} {what:>8} {link_id:3d} {name} {number} "
                f"{data[:400].hex()}"
            )

    def refused(self, refusal: Refused, *, is_explained: bool) -> None:
        """Handle the failure of a client that could not continue. It is a finding unless a power
        loss or the deletion of a topic explains it.
        """
        self.trace("refused", 0, str(refusal), 0, b"")
        if not is_explained:
            self.history.incident("refused", str(refusal))

    def is_between_lives(self, refusal: Refused) -> bool:
        """Whether the request may have been refused because the topic did not exist at that time,
        or because the partition belonged to an earlier topic of the same name.
        """
        if refusal.code != Code.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        counts, now_ms = self.scenario.topics, self.loop.now_ms
        return any(
            self.history.life_at(topic, refusal.asked_ms, now_ms) is None
            or (topic in self.history.lives and index >= counts[topic])
            for topic, index in refusal.partitions
        )

    def was_deleted(self, refusal: Refused) -> bool:
        """Whether one of the refused request's topics was deleted, or may have been deleted,
        before.
        """
        lives = [
            self.history.lives[topic]
            for topic, _ in refusal.partitions
            if topic in self.history.lives
        ]
        return any(len(lives_of) > 1 or lives_of[0].asked_ms != NEVER_MS for lives_of in lives)

    def set_partition_count(self, topic: str, count: int) -> None:
        """Set a topic's number of partitions. Its writers write to all of them from now on, and its
        readers read all of them.
        """
        scenario = self.scenario
        scenario.topics[topic] = count
        self.idempotent_partitions[:] = scenario.idempotent_partitions
        self.transactional_partitions[:] = scenario.transactional_partitions
        self.input_partitions[:], self.output_partitions[:] = (
            scenario.input_partitions,
            scenario.output_partitions,
        )
        self.remade_partitions[:] = scenario.remade_partitions
        if topic in self._group_inputs:
            self._group_inputs[topic][:] = scenario.partitions_of(topic)
        for reader in self._readers:
            followed = [partition for partition in reader.partitions if partition[0] == topic]
            for partition in scenario.partitions_of(topic) if followed else ():
                reader.follow(partition)
            for partition in followed:
                if partition[1] >= count:
                    reader.unfollow(partition)

    def on_broker_closes(self, reason: CloseReason, link: Link | None) -> None:
        """Handle a connection that the broker closed. This is a finding, unless a request on it
        arrived too late, or a batch with acks=0 may have been refused, for example by a broker that
        is no longer the leader.
        """
        scenario = self.scenario
        may_refuse = (
            scenario.remade_topic
            or scenario.refusals
            or scenario.outages
            or self.node.disk.is_without_room
        )
        is_refusal = link is not None and link.forgives is Forgiving.REFUSED_BATCHES and may_refuse
        is_moved = scenario.brokers > 1 and "failed: NOT_LEADER_OR_FOLLOWER" in str(reason)
        if not isinstance(reason, DelayedRequest) and not is_refusal and not is_moved:
            self.history.incident("refused", f"the broker closed a connection: {reason}")

    def on_crash(self, node: Node) -> None:
        """Handle the end of a broker whose disk crashed as planned during an operation, or refused
        an operation.
        """
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self.note_failure(error)
            if error.errno in (*WANT_OF_ROOM, errno.EFBIG) and not isinstance(error, FailedFsync):
                last_calls = "".join(traceback.format_exception(error, limit=-12))
                self.history.incident("crashed", f"it ends for want of room: {last_calls}")
        if self.rng.random() < self.scenario.power_share:
            self.lose_power()
        else:
            self.trace("killed", 0, "in the midst", 0, b"")
            self.node.kill()
        self.start_later()

    def note_failure(self, error: OSError) -> None:
        """Record the failure as a daemon does, which ends with this error and leaves a note for its
        next start. Data that was not flushed may be lost, unless the error was a lack of space.
        """
        if error.errno == errno.EIO or isinstance(error, FailedFsync):
            self._is_powerless = True
            self.history.power_losses.append(self.loop.now_ms)
            self._watermarks = {
                key: (start, 0, 0) for key, (start, _, _) in self._watermarks.items()
            }
        elif not is_out_of_resources(error):
            self.history.incident("crashed", "".join(traceback.format_exception(error, limit=-4)))
        if may_have_lost_pages(error):
            self.node.note_failure()
            if self.node.has_noted_failure():
                self._is_powerless = True
                # because of the note, the next start fences producers even if no data is lost
                self._mistaken_losses += 1

    def observe(self) -> None:
        """Check after each event that the offsets of no log have decreased. Only a power loss may
        decrease the last two of them, and nothing the log start offset. Check also that no fetch
        waits for records that are already available.
        """
        broker = self.node.broker
        if broker is None:
            return
        logs_of = (self.node.generation, broker.topics.version)
        if self._logs_of != logs_of:
            self._logs_of = logs_of
            logs = [
                row for row in sorted(broker.logs.logs.items()) if not row[0][0].startswith("__")
            ]
            self._logs = [((*key, log.topic_id), log) for key, log in logs]
            self._checked_ends = {key: log.log_end_offset for key, log in self._logs}
        moved = []
        for key, log in self._logs:
            if self.scenario.clock_steps_ms:
                self._check_times_of_markers(key, log)
            now = (log.log_start_offset, log.last_stable_offset, log.high_watermark)
            before = self._watermarks.get(key)
            if now != before:
                is_back = before is not None and now[0] < before[0] and _shows_data(log, before[0])
                # a topic that loses the setting and gets it again may show less after a restart
                is_less = (
                    before is not None
                    and now[1] < before[1]
                    and key[0] not in self.scenario.toggled
                )
                if before is not None and (is_back or is_less or now[2] < before[2]):
                    self.history.incident(
                        "watermark",
                        f"{key}: start, last stable offset and high watermark were {before} and "
                        f"are {now}",
                    )
                self._watermarks[key] = now
                moved.append(log)
        if self.scenario.toggled:
            self._note_toggled()
        self._note_recorded_cut(broker)
        if moved:
            self._note_cut()
            for kind, where in waiting_for_what_is_there(broker, moved):
                self.history.incident("stuck", f"a {kind} waits for what {where} has")

    def _note_cut(self) -> None:
        """Record the last stable offsets of the topics that show whole transactions."""
        toggled = self.scenario.toggled
        topics = self.scenario.whole_topics.union(toggled) - self.history.lives.keys()
        cut = {
            (key[0], key[1]): (log.log_start_offset, log.last_stable_offset)
            for key, log in self._logs
            if key[0] in topics and (log.is_whole or key[0] not in toggled)
        }
        cuts = self.history.cuts
        if cut and (not cuts or cuts[-1][1] != cut):
            cuts.append((self.loop.now_ms, cut))

    def _note_toggled(self) -> None:
        """Record when topics get barnabas.transactions.whole."""
        for key, log in self._logs:
            if key[0] in self.scenario.toggled:
                had_whole = self._had_whole.get(key[0])
                if log.is_whole and not had_whole:
                    since = self.history.whole_since.setdefault(key[0], [])
                    since.append(self.loop.now_ms)
                if had_whole is not None and log.is_whole != had_whole:
                    self.seen.add(f"a topic {'got' if log.is_whole else 'lost'} the setting")
                self._had_whole[key[0]] = log.is_whole

    def _note_recorded_cut(self, broker: Broker) -> None:
        """Check the newest recorded cut, and remember it for the end."""
        made = broker.coordinators.made
        newest = None if made is None else made.cuts.newest()
        if made is None or newest is None or newest in self._recorded:
            return
        if not broker.counters.of("barnabas_cuts_recorded_total"):
            return  # a clean stop has recorded it; topics may have changed since
        offsets, lost_power = {}, len(self.history.power_losses)
        for key, log in self._logs:
            offset = made.cuts.offset_of(log, newest) if log.is_whole else -1
            if offset >= 0:
                offsets[key] = log.log_start_offset, offset
                before = self._cut_offsets.get(key, (lost_power, 0))
                is_back = offset < before[1] and before[0] == lost_power
                if (is_back and key[0] not in self.scenario.toggled) or (
                    offset > log.last_stable_offset
                ):
                    self.history.incident(
                        "cut",
                        f"{key}: {newest} has {offset}, the one before {before[1]}, and the last "
                        f"stable offset is {log.last_stable_offset}",
                    )
                self._cut_offsets[key] = lost_power, offset
            elif not log.is_whole:
                offsets[key] = log.log_start_offset, -1
        self._recorded[newest] = self.loop.now_ms, lost_power, offsets

    def _check_recorded_cuts(self) -> None:
        """Check at the end that recorded cuts are found, with the offsets of their time.

        A cut may be missing if it was thinned out, after a power loss, and if all records below it
        are gone.
        """
        broker = self.node.broker
        if broker is None or not self._recorded:
            return
        cuts = broker.coordinators.get().cuts
        found = set(cuts.loaded())
        is_thinned = int(self.scenario.properties.get(CUT_BYTES, "4194304")) <= THINNED_BYTES
        may_lack = self.history.power_losses or self._mistaken_losses or self.may_lack_cuts
        topics = self.history.lives.keys()
        for cut, (at_ms, _, offsets) in self._recorded.items():
            if cut not in found:
                if not is_thinned and not may_lack and self._has_records(offsets):
                    self.history.incident("cut", f"{cut} is not found")
                continue
            now: dict[Partition, tuple[int, int]] = {}
            for key, log in self._logs:
                if key not in offsets or not log.is_whole:
                    continue
                offset, at_cut = cuts.offset_of(log, cut), offsets[key][1]
                expected = max(at_cut, log.log_start_offset)
                # at_cut is -1 if its topic did not have the setting; then it may have been empty
                if offset != expected and (at_cut >= 0 or offset != at_cut):
                    self.history.incident(
                        "cut", f"{key}: {cut} has {offset}, and had {offsets[key][1]}"
                    )
                if key[0] not in topics and at_cut >= 0:
                    now[key[0], key[1]] = log.log_start_offset, offset
            self.history.past_cuts.append((at_ms, now))

    def _has_records(self, offsets: dict[Any, tuple[int, int]]) -> bool:
        """Whether a log still has records below its offset."""
        return any(
            log.log_start_offset < offsets[key][1] for key, log in self._logs if key in offsets
        )

    def _check_times_of_markers(self, key: Any, log: Any) -> None:
        """Check that a marker's timestamp is the time of the wall clock when it was written.

        Retention and look-ups by time use this timestamp. The timestamps in other batches come from
        their clients.
        """
        checked, self._checked_ends[key] = self._checked_ends[key], log.log_end_offset
        for header, _ in log.read_batches(checked) if checked < log.log_end_offset else ():
            is_new = header.is_control and header.base_offset >= checked
            if is_new and abs(header.max_timestamp - self.wall_ms()) > MOST_LEAD_MS:
                self.history.incident(
                    "clock",
                    f"{key}: the marker at {header.base_offset} has the time "
                    f"{header.max_timestamp}, the clock {self.wall_ms()}",
                )

    def _check_look_ups_by_time(self) -> None:
        """Check at the end that a look-up by time finds what a scan of all records finds."""
        for key, log in self._logs:
            first_at: dict[int, int] = {}
            latest = -1
            for _, record_batch in log.read_batches():
                for record in records_of(record_batch):
                    if record.offset >= log.log_start_offset and record.timestamp > latest:
                        latest = record.timestamp
                        first_at[latest] = record.offset
            for timestamp, offset in first_at.items():
                found = offset_for_timestamp(log, timestamp)
                if found is None or (found.timestamp, found.offset) != (timestamp, offset):
                    self.history.incident(
                        "clock",
                        f"{key}: the first record of {timestamp} or later is at {offset}, and "
                        f"{found} is found",
                    )
            if offset_for_timestamp(log, latest + 1) is not None:
                self.history.incident("clock", f"{key}: nothing is as late as {latest + 1}")

    def _check_epochs_of_markers(self) -> None:
        """Check at the end that the coordinator epochs in a producer's markers never decrease.

        Our broker ends a transaction whatever the epoch is. But an Apache Kafka that continues on
        this directory would refuse a marker whose epoch is lower than the previous one.
        """
        for key, log in self._logs:
            highest: dict[int, int] = {}
            for header, record_batch in log.read_batches():
                if not header.is_control:
                    continue
                epoch = decode_marker(record_batch).coordinator_epoch
                before = highest.setdefault(header.producer_id, epoch)
                if epoch < before:
                    self.history.incident(
                        "epoch",
                        f"{key}: the marker at {header.base_offset} has the coordinator epoch "
                        f"{epoch}, an earlier one of producer {header.producer_id} {before}",
                    )
                highest[header.producer_id] = max(before, epoch)

    # --- faults ----------------------------------------------------------------------------------

    def lose_power(self) -> None:
        """Let the machine lose power, after which its logs may be shorter."""
        self.trace("power", 0, "", 0, b"")
        self.node.lose_power(
            damages_journal=bool(self.scenario.journal_damage)
            and self.rng.random() < self.scenario.journal_damage
        )
        self._is_powerless = True
        self.history.power_losses.append(self.loop.now_ms)
        self._watermarks = {key: (start, 0, 0) for key, (start, _, _) in self._watermarks.items()}

    def start_later(self) -> None:
        self.loop.later(self.rng.randint(5, 1200), self.start)

    def start(self) -> None:
        """Start the broker. Some starts are interrupted by a crash after a number of disk steps,
        and are tried again later, possibly after a power loss.
        """
        if self.node.is_up:
            return
        self.restarts += 1
        is_armed = not self.is_draining and self.rng.random() < self.scenario.crash_at_start
        if is_armed:
            self.node.disk.crash_in(self.rng.randint(*self.scenario.start_steps))
        if self.node.start():
            self.node.disk.crash_in(-1)
            self._notice_power_loss()
            self.observe()
        else:
            if not is_armed and self.node.disk.refusal is None and not self.node.was_restored:
                self.history.incident(
                    "crashed", "the broker does not start, although nothing disturbs it"
                )
            if self.node.damages:
                # if files are damaged, the broker may have taken the kill for a power loss
                self._mistaken_losses += 1
            if self.rng.random() < self.scenario.power_share:
                self.lose_power()
            self.start_later()

    def _notice_power_loss(self) -> None:
        """Check that the broker can distinguish a kill, which ends no transaction, from a power
        loss.

        It cannot do so if the durable part of a damaged file is in a flush journal, since the disk
        may then also be a copy. In that case the broker acts as after a power loss, but loses
        nothing: the file is either offline, or rewritten from the journal.
        """
        assert self.node.broker is not None
        logs = self.node.broker.logs
        if logs.lost_power and not self._is_powerless:
            if logs.offline or self.node.damages:
                self._mistaken_losses += 1
            else:
                self.history.incident("refused", "a kill is taken for a power loss")
        # without space to note this run, the next start treats a kill as a power loss again
        self._is_powerless = logs.lacks_run_note

    def nemesis(self) -> Asking:
        """Inject the faults one after another."""
        scenario, rng = self.scenario, self.rng
        for _ in range(scenario.fault_count):
            yield rng.randint(*scenario.fault_gap_ms)
            if self.is_draining:
                return
            fault = rng.choices(scenario.faults, scenario.fault_weights)[0]
            if scenario.aims_at_ends:
                yield from self._await_end()
            if not self.node.is_up or self.is_draining:
                continue
            self.trace("fault", 0, fault, 0, b"")
            self.seen.add(fault)
            match fault:
                case "kill":
                    self.node.kill()
                    self.start_later()
                case "power":
                    self.lose_power()
                    self.start_later()
                case "stop":
                    self.node.stop()
                    self.start_later()
                case "crash" if scenario.aims_at_swaps:
                    self.node.disk.crash_after_rename(SWAP_SUFFIX, rng.randint(0, 30))
                case "crash":
                    steps = rng.randint(0, 60)
                    self.node.disk.crash_in(steps, is_full=steps % 4 == 0)
                    if steps % 4 == 0:
                        yield 400
                        self.node.disk.crash_in(-1)
                case "storm":
                    calm = self.weather
                    self.weather = Weather(
                        delay_ms=40, cut=0.15, stall=0.1, linger_ms=calm.linger_ms
                    )
                    yield rng.randint(300, 1500)
                    if not self.is_draining:
                        self.weather = calm
                case "delete":
                    self.delete_records()

    def turn_the_clock(self) -> Asking:
        """Set the clock of the broker's machine, as an operator or a time server may do. The
        clients' clocks stay right.
        """
        for step_ms in self.scenario.clock_steps_ms:
            yield self.rng.randint(50, 1200)
            stood_ms, self.wall_stands_ms = self.wall_stands_ms, None
            if stood_ms is not None:
                # the clock continues from where it stopped
                self.wall_ahead_ms = stood_ms - self.loop.now_ms
            if step_ms == CLOCK_STANDS:
                self.wall_stands_ms = self.wall_ms()
            self.wall_ahead_ms += step_ms
            self.trace("clock", 0, "", step_ms, b"")

    def toggle_whole(self) -> Asking:
        """Give topics barnabas.transactions.whole, and take it away, as an operator may do."""
        rng = random.Random(f"{self.seed} settings")
        while True:
            yield rng.randint(50, 800)
            broker, topic = self.node.broker, rng.choice(self.scenario.toggled)
            value = rng.choice(("true", "false"))
            if self.is_draining:
                return
            if broker is not None and topic in broker.topics:
                self.node.change(_set_whole, broker, topic, value)

    def trouble_the_disk(self) -> Asking:
        """Let the disk refuse some operations for a while."""
        for refusal in self.scenario.refusals:
            yield self.rng.randint(*self.scenario.fault_gap_ms)
            if self.is_draining:
                return
            self.trace("refusal", 0, ",".join(sorted(refusal.operations)), refusal.code, b"")
            self.node.disk.refuse(refusal)
            yield self.rng.randint(*self.scenario.refusal_ms)
            self.node.disk.refuse(None)

    def take_off_line(self) -> Asking:
        """Kill the broker, damage a partition's file, and later restore the file for another
        start.
        """
        for _ in range(self.scenario.outages):
            yield self.rng.randint(*self.scenario.fault_gap_ms)
            if self.is_draining:
                return
            if not self.node.is_up:
                continue
            self.node.kill()
            self.start_later()
            self.node.damage(self.rng)
            yield self.rng.randint(300, 2500)
            if self.scenario.aims_at_ends:
                yield from self._await_end()
            if self.is_draining:
                return
            self._restore()

    def _await_end(self) -> Asking:
        """Wait until the broker is writing the outcome of a transaction to disk, for at most half a
        second.
        """
        for _ in range(LONGEST_AIM_MS // AIM_STEP_MS):
            broker = self.node.broker
            if self.is_draining or (broker is not None and decides_any(broker)):
                return
            yield AIM_STEP_MS

    def _restore(self) -> None:
        """Restore damaged files. A broker that runs with a damaged file is restarted, since it
        notices only at its start that the file is restored.
        """
        if self.node.damages:
            if self.node.is_up:
                self.node.kill()
                self.start_later()
            self.node.restore()

    def stop_the_process(self) -> Asking:
        """Stop the broker's process with SIGSTOP, as an operator may do, and later continue it with
        SIGCONT.
        """
        for for_ms in self.scenario.stops_ms:
            yield self.rng.randint(200, 1500)
            self.trace("stopped", 0, "", for_ms, b"")
            self.node.stand_still(for_ms)
            yield for_ms

    def delete_records(self) -> None:
        """Delete records from one of the logs whose oldest records may be deleted."""
        broker = self.node.broker
        assert broker is not None
        partition = self.rng.choice(self.scenario.deletable)
        log = broker.topics.partition(*partition)
        if log is None:
            return
        offset = self.rng.randint(log.log_start_offset, log.high_watermark)
        self.loop.spawn(Administrator(self).delete_records(partition, offset))

    # --- the course of things --------------------------------------------------------------------

    def run(self) -> Report:
        """Run the whole schedule. An exception that the broker raises is reported as a finding."""
        try:
            self._run()
        except Crash:
            raise AssertionError("a crash got out of the node") from None
        except EndlessError as error:
            self.history.incident("stuck", str(error))
        except Exception:
            self.history.incident("crashed", traceback.format_exc(limit=-6))
        self.history.end_ms = self.wall_ms()
        findings = check(self.history)
        digest = self._digest.hexdigest()
        return Report(
            self.seed,
            findings,
            digest,
            self.operations,
            self.loop.now_ms - START_MS,
            self.restarts,
            self.history,
        )

    def _run(self) -> None:
        scenario = self.scenario
        assert self.node.start()
        broker = self.node.broker
        assert broker is not None
        for name, count in scenario.topics.items():
            broker.topics.create_topic(
                name, count, scenario.topic_configs.get(name, {}), now_ms=self.node.now_ms()
            )
        self.topic_ids = {name: topic.topic_id for name, topic in broker.metadata.topics.items()}
        if scenario.quotas:
            self.has_quotas = True
            broker.quotas.set({ENTITY: scenario.quotas})
            self.node.heed_quotas()
        self._set_off_writers()
        if scenario.kafka_epochs:
            self.loop.run_until(START_MS + self.rng.randint(200, 1000))
            self._come_from_kafka()
        self._set_off_others()
        self.loop.spawn(self.nemesis())
        if self.scenario.clock_steps_ms:
            self.loop.spawn(self.turn_the_clock())
        if scenario.refusals:
            self.loop.spawn(self.trouble_the_disk())
        if scenario.outages:
            self.loop.spawn(self.take_off_line())
        if self.scenario.stops_ms:
            self.loop.spawn(self.stop_the_process())
        if scenario.moves:
            self.loop.spawn(move_leaders(self))
        if scenario.toggled:
            self.loop.spawn(self.toggle_whole())
        self._live_and_settle()

    def _live_and_settle(self) -> None:
        """Run with faults, then without faults until all work is done."""
        scenario = self.scenario
        self.loop.run_until(START_MS + scenario.chaos_ms)
        self._make_peace()
        self._await_settled()
        if self.is_settled():
            scenario.dying = 0.0
            self._busy_with(self._let_newcomer_write())
            self._await_settled()
        if not self.is_settled():
            self.history.incident("stuck", self.what_is_missing())
        self._look_for_leftovers()
        self._compare_with_a_start()
        self.is_over = True
        if scenario.last_restart != "none" and self.node.is_up:
            self._restart_at_last()
        self._look_at_the_end()
        is_one = scenario.brokers == 1 and self.is_to_be_emptied
        if scenario.last_restart == "none" and is_one:
            for kept in emptying.keeps(self) if self.node.is_up else ():
                self.history.incident("left", kept)

    def _await_settled(self) -> None:
        """Wait until everything is settled. The wait is extended while readers make progress, since
        some read only one batch between redirections.
        """
        patience_ms = PEACE_WITH_QUOTAS_MS if self.has_quotas else PEACE_MS
        end_ms = self.loop.now_ms + patience_ms
        latest_ms = self.loop.now_ms + 4 * patience_ms
        furthest: dict[tuple[str, Partition], int] = {}
        while self.loop.now_ms < end_ms and not self.is_settled():
            self.loop.run_until(self.loop.now_ms + 40)
            for reader in self._readers:
                for partition, position in reader.positions.items():
                    key = reader.name, partition
                    if position > furthest.get(key, -1):
                        furthest[key] = position
                        end_ms = min(self.loop.now_ms + patience_ms, latest_ms)

    def _come_from_kafka(self) -> None:
        """Restart the broker on a directory as Apache Kafka would have left it, so that all earlier
        writes count as Apache Kafka's.
        """
        broker, node, scenario = self.node.broker, self.node, self.scenario
        assert broker is not None
        self.restarts += 1
        topics = [
            KafkaTopic(topic.name, topic.topic_id, topic.configs)
            for topic in broker.metadata.topics.values()
        ]
        next_producer_id = broker.metadata.next_producer_id
        for log in broker.logs.logs.values():
            # Apache Kafka creates the directory before the first write to the partition
            log.files.make()
        assert node.stop()
        self.trace("kafka", 0, "", scenario.kafka_epochs, b"")
        leave_as_kafka(
            node.disk,
            DATA_DIR,
            topics,
            rng=self.rng,
            epochs=scenario.kafka_epochs,
            next_producer_id=next_producer_id,
            is_clean=not scenario.kafka_was_killed,
        )
        # Apache Kafka was killed. The start cannot distinguish this from a power loss, and assumes
        # a power loss.
        if scenario.kafka_was_killed:
            self._mistaken_losses += 1
            self._is_powerless = True
        assert node.start()
        self.observe()

    def _set_off_writers(self) -> None:
        """Start the producers and the workers."""
        scenario = self.scenario
        for number in range(scenario.idempotent_producers):
            producer = IdempotentProducer(
                self, f"i{number}", self.idempotent_partitions, scenario.rounds
            )
            self._busy_with(producer.run())
        for number in range(scenario.applications):
            self._busy_with(self._application(f"t{number}", self.transactional_partitions))
        if scenario.workers:
            for number in range(scenario.feeders):
                self._busy_with(self._application(f"f{number}", self.input_partitions))
            for number in range(scenario.workers):
                self.loop.spawn(self._worker(number))

        for number in range(scenario.two_phase):
            partitions = [
                partition
                for partition in self.transactional_partitions
                if partition[0] != scenario.remade_topic
            ]
            if partitions:
                self._busy_with(two_phase.application(self, f"x{number}", partitions))

    def _set_off_others(self) -> None:
        """Start the readers, the groups and every other client."""
        scenario, rng = self.scenario, self.rng
        for number, (partitions, committed_only) in enumerate(scenario.readers):
            reader = Reader(
                self,
                f"r{number}" + ("c" if committed_only else "u"),
                partitions,
                committed_only=committed_only,
                uses_session=rng.random() < 0.5 and scenario.brokers == 1,
                max_bytes=rng.choice((1, 300, 1 << 20)),
                follows_epochs=len(scenario.readers) - number <= scenario.epoch_followers,
                follows_by_fetch=scenario.follows_by_fetch,
            )
            self._readers.append(reader)
            self.loop.spawn(reader.run())
        for number in range(scenario.consumers):
            self.loop.spawn(self._consumer(number))
        for group in scenario.groups:
            for number in range(group.members):
                self.loop.spawn(self._member(group, number))
        for number, acks in enumerate(scenario.plain_acks):
            self._busy_with(
                PlainProducer(
                    self, f"p{number}", self.idempotent_partitions, scenario.rounds, acks
                ).run()
            )
        if scenario.sharers and scenario.shared_topics:
            self._set_off_sharers()
        if scenario.streamers and scenario.streamed_topics:
            counts = {
                topic: len(scenario.partitions_of(topic)) for topic in scenario.streamed_topics
            }
            streams_group = streamers.Group(self, "streams", counts)
            self.streams_groups.append(streams_group)
            for number in range(scenario.streamers):
                self.loop.spawn(streamers.Streamer(self, number, streams_group).run())
        if scenario.is_audited:
            self.loop.spawn(Auditor(self, self._lasting_partitions()).run())
        for number in range(scenario.meddlers):
            # The workers' inputs are excluded, since they are written only in transactions. A power
            # loss might remove a meddler's records from an input while the outputs made from them
            # remain.
            partitions = [
                partition for partition in self._lasting_partitions() if partition[0] != "in"
            ]
            self._busy_with(Meddler(self, f"m{number}", partitions, rounds=12).run())
        if scenario.remade_topic:
            self._busy_with(Administrator(self).remake(scenario.remade_topic, scenario.remakes))
        for topic in scenario.growing:
            self._busy_with(Administrator(self).let_grow(topic))

    def _set_off_sharers(self) -> None:
        scenario = self.scenario
        partitions = [
            partition
            for topic in scenario.shared_topics
            for partition in scenario.partitions_of(topic)
        ]
        for name, committed_only in (("shared", False), ("shared.committed", True)):
            group = sharers.Group(self, name, partitions, committed_only=committed_only)
            self.share_groups.append(group)
            self._busy_with(sharers.begin(self, group, scenario.sharers))

    def _lasting_partitions(self) -> list[Partition]:
        """The partitions of all topics that are never deleted."""
        scenario = self.scenario
        return [
            partition
            for topic in scenario.topics
            if topic != scenario.remade_topic
            for partition in scenario.partitions_of(topic)
        ]

    def _busy_with(self, task: Asking) -> Future:
        """Start a task that must end before the world is settled."""
        self._busy += 1
        future = self.loop.spawn(task)
        future.then(self._no_longer_busy)
        return future

    def _no_longer_busy(self, value: Any) -> None:
        self._busy -= 1

    def _application(self, name: str, partitions: list[Partition]) -> Asking:
        """Run a sequence of instances with one transactional id. Some start before their
        predecessor knows that it has been replaced.
        """
        rng, scenario = self.rng, self.scenario
        for instance in range(6):
            producer = TransactionalProducer(
                self,
                f"{name}.{instance}",
                name,
                partitions,
                rounds=scenario.rounds,
                timeout_ms=scenario.transaction_timeout_ms,
            )
            if rng.random() < scenario.pausing:
                producer.pauses_at = rng.randrange(min(4, scenario.rounds))
                producer.pause_ms = rng.randint(200, 2 * scenario.transaction_timeout_ms)
            future = self._busy_with(producer.run())
            if rng.random() < scenario.zombies:
                yield rng.randint(50, 1500)
            elif (yield future) or self.is_draining:
                return
            yield rng.randint(10, 300)

    def _worker(self, number: int) -> Asking:
        """Run one worker process after another until the schedule ends. With `twins`, the next one
        may start while the last one still runs.
        """
        scenario, rng = self.scenario, self.rng
        instance = 0
        while not self.is_over:
            kind = ConsumerProtocolWorker if self._chooses_consumer_protocol() else Worker
            worker = kind(
                self,
                f"w{number}.{instance}",
                f"w{number}.{instance % 2}" if scenario.is_static else f"w{number}",
                GROUP,
                self.input_partitions,
                self.output_partitions,
                scenario.transaction_timeout_ms,
                instance_id=f"s{number}" if scenario.is_static else None,
                leaving=scenario.leaving,
            )
            worker.stalls = rng.choice((0, 0, 1, 2)) if instance == 0 else 0
            self._workers.append(worker)
            ended = self.loop.spawn(worker.run())
            ended.then(lambda _, worker=worker: self._workers.remove(worker))
            if scenario.twins and not self.is_draining and rng.random() < scenario.twins:
                yield rng.randint(200, 2000)
            else:
                yield ended
            instance += 1
            yield rng.randint(10, 300)

    def _consumer(self, number: int) -> Asking:
        """Run one consumer process after another until the schedule ends. With `twins`, the next
        one may start while the last one still runs.
        """
        scenario, rng = self.scenario, self.rng
        instance = 0
        while not self.is_over:
            consumer = Consumer(
                self,
                f"c{number}.{instance}",
                READERS,
                self.remade_partitions,
                instance_id=f"c{number}" if scenario.is_static else None,
                leaving=scenario.leaving,
            )
            self._consumers.append(consumer)
            ended = self.loop.spawn(consumer.run())
            ended.then(lambda _, consumer=consumer: self._consumers.remove(consumer))
            yield (
                rng.randint(200, 2000)
                if scenario.twins and not self.is_draining and rng.random() < scenario.twins
                else ended
            )
            instance += 1
            yield rng.randint(10, 300)

    def _member(self, group: Group, number: int) -> Asking:
        """Run a sequence of instances, each of which replaces the previous one as a member of a
        group.
        """
        rng = self.rng
        instance = 0
        while not self.is_over:
            kind = ConsumerProtocolConsumer if self._chooses_consumer_protocol() else Consumer
            consumer = kind(
                self,
                f"{group.name}.{number}.{instance}",
                group.name,
                self._group_inputs[group.topic],
                topic=group.topic,
                instance_id=f"{group.name}.{number}" if group.is_static else None,
                leaving=group.leaving,
                dying=group.dying,
                session_timeout_ms=group.session_timeout_ms,
            )
            self._members[group.name].append(consumer)
            yield self.loop.spawn(consumer.run())
            self._members[group.name].remove(consumer)
            instance += 1
            yield rng.randint(10, 800)
            retention_ms = self.scenario.offsets_retention_ms
            if retention_ms is not None and not self.is_draining and rng.random() < 0.5:
                yield rng.randint(retention_ms // 2, 3 * retention_ms)

    def _chooses_consumer_protocol(self) -> bool:
        share = self.scenario.consumer_protocol
        return share > 0 and self.rng.random() < share

    def _make_peace(self) -> None:
        """End all faults; from now on clients complete their work."""
        self.trace("peace", 0, "", 0, b"")
        self.is_draining = True
        self.weather = Weather()
        self.node.disk.crash_never()
        self.node.disk.refuse(None)
        broker = self.node.broker
        if broker is not None and not broker.cluster.is_one:
            for node in broker.cluster.nodes:
                self.node.change(broker.failover.give_back, node)
        self._restore()
        if not self.node.is_up:
            self.start_later()

    def _let_newcomer_write(self) -> Asking:
        """Check that a client that starts after the faults gets a session and can complete
        transactions.

        A lease that was last renewed during the faults may still expire while this client runs. If
        the new leader then lacks acknowledged data, it fences this client, and another client is
        started.
        """
        partitions = self.transactional_partitions or self.idempotent_partitions
        fences, name = -1, "newcomer"
        while fences != self.fences:
            fences = self.fences
            newcomer = TransactionalProducer(self, name, "newcomer", partitions, rounds=2)
            name = f"newcomer.{fences}"
            try:
                yield from newcomer.init()
                for number in range(newcomer.rounds):
                    yield from newcomer.transact(number)
                fences = self.fences
            except Fenced:
                if fences == self.fences:
                    self.history.incident(
                        "refused", "a producer is fenced that no other producer knows of"
                    )
            except Refused as refusal:
                self.history.incident("refused", str(refusal))
            newcomer.hang_up()

    def is_settled(self) -> bool:
        """Whether producers are done, no transaction is open, readers have read everything, and the
        group has processed everything.
        """
        broker = self.node.broker
        if self._busy or broker is None or any(not reader.is_at_end() for reader in self._readers):
            return False
        for (_, _), log in self._all_logs():
            if log.last_stable_offset != log.high_watermark:
                return False
        if self.scenario.workers and not self._has_read_all(
            self._workers, self.scenario.input_partitions
        ):
            return False
        if not all(group.is_drained() for group in self.share_groups):
            return False
        if not all(group.is_at_rest() for group in self.streams_groups):
            return False
        for group in self.scenario.groups:
            if not self._has_read_all(
                self._members[group.name], self.scenario.partitions_of(group.topic)
            ):
                return False
        return not self.scenario.consumers or self._has_read_all(
            self._consumers, self.scenario.remade_partitions
        )

    def _all_logs(self) -> list[tuple[Partition, Any]]:
        assert self.node.broker is not None
        return sorted(self.node.broker.logs.logs.items())

    def _has_read_all(self, members: Sequence[Worker], partitions: list[Partition]) -> bool:
        """Whether, for each partition, an idle member has reached the end."""
        assert self.node.broker is not None
        for partition in partitions:
            log = self.node.broker.topics.partition(*partition)
            end = log.high_watermark if log is not None else 0
            if not any(
                member.is_idle and member.positions.get(partition, -1) >= end for member in members
            ):
                return False
        return True

    def what_is_missing(self) -> str:
        """Describe the work that has not been completed, for the finding."""
        if self.node.broker is None:
            return "the broker did not come up"
        parts = [f"{self._busy} producers are not done"] if self._busy else []
        for key, log in self._all_logs():
            if log.last_stable_offset != log.high_watermark:
                parts.append(
                    f"{key}: last stable offset {log.last_stable_offset}, high watermark "
                    f"{log.high_watermark}"
                )
        for reader in self._readers:
            if not reader.is_at_end():
                parts.append(
                    f"{reader.name} is at {reader.positions}, saw {reader.stable} as stable"
                )
        parts += [
            f"{group.name} has not worked off all"
            for group in self.share_groups
            if not group.is_drained()
        ]
        parts += [
            f"{group.name}: {[(m.id, m.epoch, sorted(m.active)) for m in group.members]}"
            for group in self.streams_groups
            if not group.is_at_rest()
        ]
        if not parts:
            members = [
                *self._workers,
                *self._consumers,
                *(member for found in self._members.values() for member in found),
            ]
            parts.append(
                f"the groups: {[(m.name, m.generation, m.is_idle, m.positions) for m in members]}"
            )
        return "; ".join(parts)

    def _look_for_leftovers(self) -> None:
        """Check that no unneeded file remains: all producer snapshots except the latest must have
        been deleted with their segments. Check also that no table has an entry for a request that
        already got a response, or whose client has disconnected.
        """
        if self.node.broker is None:
            return
        requests = self.node.broker.requests
        kept = [
            ticket
            for ticket in (*requests._waiting_fetches, *requests._amendments)
            if not requests.is_parked(ticket) and ticket not in requests._takers
        ]
        kept += [
            context.ticket
            for context in requests._parked.values()
            if not requests.is_waited_for(context)
        ]
        if kept:
            self.history.incident("left", f"{len(kept)} requests, of which the last is {kept[-1]}")
        for (topic, index), log in self._all_logs():
            if not self.node.disk.is_dir(log.directory):
                continue  # without a directory, the partition was never written to
            names = self.node.disk.list(log.directory)
            held = sorted(int(name[:20]) for name in names if name.endswith(SNAPSHOT_SUFFIX))
            needless = [at for at in held[:-KEPT_SNAPSHOTS] if at < log.segments[0].base_offset]
            if needless:
                self.history.incident(
                    "left",
                    f"{topic}-{index} keeps snapshots as of {needless}, and begins at "
                    f"{log.segments[0].base_offset}",
                )

    def _compare_with_a_start(self) -> None:
        """Check that the broker's state is the same after a kill and a restart."""
        broker = self.node.broker
        if broker is None or not broker.flushes.is_idle or broker.routes.parts.endings.by_id:
            return
        for stray in strays.strays_of(broker)[:2]:
            self.history.incident("left", stray)
        if any(log.high_watermark < log.log_end_offset for _, log in self._all_logs()):
            # records above the high watermark survive a kill, but are visible only after a flush
            return
        if broker.logs.lacks_run_note:
            # Without space the run could not be noted: until then a kill counts as a power loss,
            # after which each transactional id gets another producer id.
            return
        under_way = pictures.groups_unknown_to_a_start(broker)
        live = pictures.known_of(broker, under_way)
        restarted = pictures.known_of(self.node.started_on_a_copy(), under_way)
        for difference in pictures.differences(live, restarted):
            # the age of a record depends on the wall clock, which was set in this schedule
            is_of_the_clock = self.scenario.clock_steps_ms and "state_since_ms" in difference
            # a start on a full disk could not store the topic id of a log that had none
            lacked_room = f"topic_id: live {NO_TOPIC_ID!r}" in difference
            if not is_of_the_clock and not lacked_room:
                self.history.incident("left", difference)
                break

    def _restart_at_last(self) -> None:
        """Restart the broker in the way that the scenario specifies."""
        if self.scenario.last_restart == "kill":
            self.node.kill()
        elif self.scenario.last_restart == "power":
            self.lose_power()
        else:
            self.node.stop()
        if not self.node.start() and self.node.was_restored:
            self.node.start()
        self.observe()

    def _look_at_the_end(self) -> None:
        """Read everything, after waiting until no request on a broken connection is still in
        transit.
        """
        self.loop.run_until(max(self.loop.now_ms, self.drains_until_ms + 1))
        for reader in self._readers:
            for partition in reader.partitions:
                reader.close_span(partition)
        finished = self.loop.spawn(self._read_everything())
        self.loop.run_until(self.loop.now_ms + 60_000, lambda: finished.done)
        if not finished.done:
            self.history.incident("stuck", "the last reader does not come to an end")
        for group in self.share_groups:
            group.look_at_the_end()
        self._check_recorded_cuts()
        if self.scenario.clock_steps_ms:
            self._check_look_ups_by_time()
        if self.scenario.kafka_epochs and not self.scenario.ids_expire:
            self._check_epochs_of_markers()

    def _read_everything(self) -> Asking:
        """Read all partitions and committed offsets after the last fault, for the checks of the
        history.
        """
        scenario = self.scenario
        try:
            for name in scenario.topics:
                for partition in scenario.partitions_of(name):
                    yield from self._read_partition(partition)
            if scenario.is_audited:
                yield from Auditor(self, self._lasting_partitions()).look_at_the_end()
            asker = Producer(self, "the last worker")
            if scenario.consumers:
                found = yield from committed_offsets(asker, READERS, scenario.remade_partitions)
                for partition, offset in found.items():
                    self.history.final_positions[READERS, partition] = max(offset, 0)
            for group in scenario.groups:
                found = yield from committed_offsets(
                    asker, group.name, scenario.partitions_of(group.topic)
                )
                for partition, offset in found.items():
                    self.history.final_positions[group.name, partition] = max(offset, 0)
            if scenario.workers:
                found = yield from committed_offsets(asker, GROUP, scenario.input_partitions)
                for partition, offset in found.items():
                    self.history.final_offsets[GROUP, partition] = max(offset, 0)
        except Refused as refusal:
            self.history.incident("stuck", str(refusal))

    def _read_partition(self, partition: Partition) -> Asking:
        """Read a partition at both isolation levels, and store the result as its final log."""
        try:
            asked_ms = self.loop.now_ms
            everything, last = yield from read_all(self, partition, committed_only=False)
            committed, then = yield from read_all(self, partition, committed_only=True)
            # The reads are repeated because retention deleted records between them.
            while then.log_start_offset != last.log_start_offset:
                asked_ms = self.loop.now_ms
                everything, last = yield from read_all(self, partition, committed_only=False)
                committed, then = yield from read_all(self, partition, committed_only=True)
        except Refused as refusal:
            if refusal.code != Code.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            self.history.incident("lost", f"the whole partition: {refusal}")
            return
        self.history.final[partition] = FinalLog(
            last.log_start_offset,
            last.last_stable_offset,
            last.high_watermark,
            committed,
            everything,
            asked_ms,
        )


def _history_of(scenario: Scenario) -> History:
    """An empty history that knows what the scenario guarantees for its topics and groups."""
    expires_ms = scenario.properties.get("producer.id.expiration.ms")
    history = History(
        compacted=frozenset(scenario.compacted_topics),
        commits_are_durable=scenario.commits_are_durable,
        flushed=frozenset(scenario.flushed_topics),
        toggled=frozenset(scenario.toggled),
        kept_topics=scenario.kept_topics,
        retention_ms=scenario.retention_ms,
        producer_expiration_ms=int(expires_ms) if expires_ms else None,
        offsets_retention_ms=scenario.offsets_retention_ms,
    )
    if scenario.remade_topic:
        history.lives[scenario.remade_topic] = [Life()]
    return history


def _set_whole(broker: Broker, topic: str, value: str, _now_ms: int) -> None:
    """Set barnabas.transactions.whole of a topic, unless there is no disk space for it."""
    configs = broker.metadata.topics[topic].configs
    with contextlib.suppress(NotWrittenError):
        broker.topics.set_topic_configs(topic, {**configs, WHOLE: value})


def decides_any(broker: Broker) -> bool:
    """Whether the broker is writing the outcome of any transaction."""
    endings = broker.routes.parts.endings
    return any(map(endings.is_decided, endings.by_id))


def _shows_data(log: Any, below: int) -> bool:
    """Whether a log has data records below an offset. If it has none, an earlier power loss had
    removed them, and only markers were written again.
    """
    return any(
        header.base_offset < below and not header.is_control for header, _ in log.read_batches()
    )


def run_seed(
    seed: int,
    *,
    tweak: Tweak | None = None,
    is_plain: bool = False,
    tracing: Callable[[str], None] | None = None,
) -> Report:
    """Run the schedule of a seed. `tweak` changes the drawn scenario before the start. For
    `is_plain`, see `Scenario.drawn`.
    """
    with raised_faults():
        return World(seed, tweak=tweak, is_plain=is_plain, tracing=tracing).run()


__all__ = ["Report", "Source", "World", "run_seed"]
