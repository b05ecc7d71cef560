"""The rim of the simulation around the real core, instead of server.py, flusher.py and main.py.

Further frames of a connection wait while a request is in progress. A flush job's files are fsynced
one by one, each at its own time and in any order; then the core is notified. Compaction jobs run
between two events. So a crash may come between any two of these steps.
"""

from __future__ import annotations

import random
import struct
import uuid
from collections import deque
from typing import TYPE_CHECKING, Any

from barnabas.broker.core import Broker
from barnabas.broker.outbox import CloseReason, FlushJob, Work
from barnabas.broker.settings.config import BrokerConfig
from barnabas.daemon.opening import open_broker
from barnabas.protocol.api_table import BY_KEY
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest
from barnabas.protocol.messages.sync_group import SyncGroupRequest
from barnabas.protocol.records import HEADER_SIZE, LENGTH_END, batch_size_of
from barnabas.storage.cleaning.clean_job import CleanJob, CleanResult
from barnabas.storage.cleaning.cleaner import clean
from barnabas.storage.disk import Slice, is_out_of_resources
from barnabas.storage.files.checkpoints import MANIFEST_NAME
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.log.log_directory import DamagedFlushJournalError
from barnabas.storage.opening.last_run import BOOT_ID_NAME
from sim.disk import Crash, Inode, SimDisk
from sim.network import Forgiving
from sim.quotas import Throttles

if TYPE_CHECKING:
    from sim.network import Link
    from sim.world import World

DATA_DIR = "/data"
UPTIME_MS = 1_000_000
_FRAME = struct.Struct(">4sIQQI")  # storage/files/flush_journal.py
_IN_A_FRAME = _FRAME.size
# Requests that may wait for long: for records, or for other members of a group.
MAY_WAIT = frozenset({FetchRequest.API_KEY, JoinGroupRequest.API_KEY, SyncGroupRequest.API_KEY})
DESCRIPTORS = (1, 4, 8, 16, 1 << 20)  # limits of open files: one, two, four, eight, or none
LOGS_OF_A_FLUSH = (2, 3, 1024, 1024)
# In this share of the schedules, the markers of small transactions are appended in parts, with up
# to this delay between them.
PARTS_SHARE, MOST_PART_DELAY_MS = 0.3, 25
MOST_WORK_NS = 8_000_000  # between two readings
LONGEST_WAIT_MS, FLUSHES_OF_A_REQUEST = 1000, 8


class SeededIds:
    """Random ids, which are the same for the same seed."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._rng.getrandbits(128), version=4)

    def random31(self) -> int:
        return self._rng.randrange(1, 2**31)


class PartOfAMinute(int):
    """A setting in minutes whose value is already in milliseconds: multiplication does not change
    it.
    """

    def __mul__(self, other: int) -> int:
        return int(self)


class _Session:
    __slots__ = ("api_key", "frames", "in_flight", "is_muted", "link", "since_ms")

    def __init__(self, link: Link | None) -> None:
        self.link = link
        self.frames: deque[bytes] = deque()
        self.in_flight = self.is_muted = False
        # the API key, and the arrival time, of the request in progress
        self.api_key, self.since_ms = -1, 0


class Node:
    """A machine: its disk, and the running broker. generation: the number of the broker's
    processes.

    was_restored: whether the last start ended with an error about a damaged file, which was then
    restored. stops: the times during which a process was stopped.
    """

    hears_first = True

    def __init__(self, world: World, properties: dict[str, str]) -> None:
        self.world = world
        self.properties = {
            "log.dirs": DATA_DIR,
            "barnabas.flush.journal.logs": random.Random(world.seed).choice("0112"),
            **properties,
        }
        self.disk = SimDisk(world.rng, world.wall_ms)
        # The limit has its own random generator, so that older seeds keep their schedules.
        self.disk.descriptors = random.Random(f"{world.seed} descriptors").choice(DESCRIPTORS)
        self.disk.mkdir(DATA_DIR)
        self.disk.fsync_dir("/")
        self.broker: Broker | None = None
        self.generation = 0
        self.cleanings = self.works = 0
        self.damages: list[tuple[Inode, int, bytes]] = []
        self._damaged_frame: Inode | None = None
        self.was_restored = False
        self._sessions: dict[int, _Session] = {}
        self._zero_ms = 0
        self._timer_ms = self._deadline_ms = -1
        self._carrying_out = False
        self._pumping: set[int] = set()
        self.stops: list[tuple[int, int]] = []
        self.throttles: Throttles | None = None
        delays = random.Random(f"{world.seed} parts")
        self._part_delays = delays if delays.random() < PARTS_SHARE else None
        self._work_chance, self._worked_ns = random.Random(f"{world.seed} work"), 0
        self._is_stopped = False
        self._held: list[tuple[Any, tuple[Any, ...]]] = []

    @property
    def is_up(self) -> bool:
        return self.broker is not None

    @property
    def is_running(self) -> bool:
        """Whether there is a process. In a pair, the process of a standby has no broker."""
        return self.is_up

    def _begin_generation(self) -> None:
        self.generation += 1

    def _opened_disk(self) -> Any:
        """The disk object that the broker gets."""
        return self.disk

    def _claimed_epoch(self) -> int:
        """The leader epoch that this machine has claimed, if there is a lease."""
        return 0

    # --- start and stop --------------------------------------------------------------------------

    def start(self) -> bool:
        """Open the data directory. Gives: False if the process died during the start."""
        assert self.broker is None
        self._begin_generation()
        self.was_restored = False
        self._zero_ms = self.world.loop.now_ms - self.generation * UPTIME_MS
        try:
            self.broker = open_broker(
                self._config(),
                SeededIds(self.world.rng),
                disk=self._opened_disk(),
                now_ms=self._steady_ms(),
                wall_ms=self.world.wall_ms(),
                leader_epoch=self._claimed_epoch(),
            )
            self.broker.flushes.full_journal_bytes = self.world.scenario.full_journal_bytes
            if random.Random(f"{self.world.seed} files").random() < 0.2:
                # a thread creates the files of all partitions, unless a coordinator writes first
                files_ahead = self.broker.routes.parts.files_ahead
                files_ahead.fewest, files_ahead.most_by_request = 1, 0
            if self._part_delays is not None:
                ends = self.broker.routes.parts.transaction_ends
                ends.markers_at_once = self._part_delays.choice((1, 1, 2, 3))
            self.broker.flushes.most_logs = random.Random(f"{self.world.seed} flushes").choice(
                LOGS_OF_A_FLUSH
            )
            self.heed_quotas()
            self._carry_out()
        except Crash:
            self.kill()
            return False
        except DamagedFlushJournalError:
            if self._damaged_frame is None:
                raise
            self._restore_frame()
            self.was_restored = True
            self.kill()
            return False
        except OSError as error:
            self.world.note_failure(error)
            self.kill()
            return False
        self._damaged_frame = None
        self.world.trace("started", self.generation, "", 0, b"")
        return True

    def _config(self) -> BrokerConfig:
        """The broker's settings; offsets.retention.minutes may be less than a minute here."""
        config = BrokerConfig.from_properties(self.properties)
        retention_ms = self.world.scenario.offsets_retention_ms
        if retention_ms is not None:
            for values in (config._fixed, config._values):
                values["offsets.retention.minutes"] = PartOfAMinute(retention_ms)
        return config

    def started_on_a_copy(self) -> Broker:
        """Another broker, in the state after a kill and a restart at this moment; this broker
        continues.
        """
        disk = self.disk.copied()
        disk.descriptors = self.disk.descriptors
        broker = open_broker(
            self._config(),
            SeededIds(random.Random(0)),
            disk=disk,
            now_ms=self._steady_ms(),
            wall_ms=self.world.wall_ms(),
            leader_epoch=self._claimed_epoch(),
        )
        while broker.outbox.deferred:
            broker.on_sent(self._steady_ms())
        return broker

    def heed_quotas(self) -> None:
        """From now on, subject clients to the current quotas."""
        assert self.broker is not None
        if self.world.has_quotas:
            self.throttles = Throttles(self.world)
            self.broker.quotas.busy_ns = self._busy_ns

    def _busy_ns(self) -> int:
        """The CPU time of the core so far, simulated by a random increase at each call."""
        self._worked_ns += self._work_chance.randint(0, MOST_WORK_NS)
        return self._worked_ns

    def kill(self) -> None:
        """Kill the process; everything written remains."""
        self._gone()
        self.disk.kill()

    def lose_power(self, *, damages_journal: bool = False) -> None:
        """Let the machine lose power. damages_journal: whether a frame of a flush journal is
        damaged as well; an operator restores it when a start reports it.
        """
        # Data damaged earlier are restored first: after a power loss, damaged data that no
        # checkpoint declares durable are truncated.
        self.restore()
        self._restore_frame()
        frame = self._durable_frame() if damages_journal and self.is_up else None
        self._gone()
        self.disk.lose_power()
        if frame is not None:
            frame.data[_IN_A_FRAME] ^= 1
            self._damaged_frame = frame

    def _durable_frame(self) -> Inode | None:
        """A flush journal that has two complete frames, the first of which was durable before the
        second was written; None if there is none.
        """
        for path, inode in self.disk.files():
            if path.startswith(f"{DATA_DIR}/barnabas-flush-") and inode.before_cut is None:
                second = _end_of_frame(inode.data, 0)
                if (
                    second
                    and (end := _end_of_frame(inode.data, second))
                    and end <= inode.synced
                    and self.disk.is_durable(path)
                ):
                    return inode
        return None

    def _restore_frame(self) -> None:
        if self._damaged_frame is not None:
            self._damaged_frame.data[_IN_A_FRAME] ^= 1
            self._damaged_frame = None

    def note_failure(self) -> None:
        """Write the note of a disk failure, as the daemon does when such a failure ends it."""
        if self.broker is not None:
            self.broker.logs.note_failure()

    def has_noted_failure(self) -> bool:
        """Whether the directory has a note of a disk failure, which may be empty."""
        try:
            note = self.disk.contents(f"{DATA_DIR}/{BOOT_ID_NAME}")
        except FileNotFoundError:
            return False
        return not note or note.endswith(b" failed")

    def damage(self, rng: random.Random) -> None:
        """Damage the first offset of a log's last file, which no checksum covers, and the files
        that prove the original. If compaction leaves no gaps, some of these offsets are slightly
        wrong. In some schedules, damage instead a byte within a batch that intact batches follow.
        """
        files = {
            path: inode
            for path, inode in self.disk.files()
            if path.endswith(".log") and "/__" not in path
        }
        names = sorted(
            {
                path.rpartition("/")[0]
                for path, inode in files.items()
                if inode.data and "-delete" not in path
            }
        )
        if not names:
            return
        name = rng.choice(names)
        inode = files[max(path for path in files if path.startswith(name + "/"))]
        if not inode.data:
            return  # only the last file, since a start reads no other
        self.disk.unlink(f"{name}/{MANIFEST_NAME}")
        second = batch_size_of(bytes(inode.data[:LENGTH_END]))
        if self.world.scenario.damages_batches and second + HEADER_SIZE < len(inode.data):
            self._damage(inode, second - 1, 1)
            return
        topic = name.rpartition("/")[2].rpartition("-")[0]
        is_far = topic in self.world.scenario.compacted_topics or len(inode.data) % 2
        self._damage(inode, *((3, 1) if is_far else (7, 4)))

    def _damage(self, inode: Inode, position: int, change: int) -> None:
        self.damages.append((inode, position, bytes(inode.data[position : position + 1])))
        inode.data[position] ^= change

    def restore(self) -> None:
        """Undo `damage`."""
        for inode, position, byte in self.damages:
            if position < len(inode.data):
                inode.data[position : position + 1] = byte
        self.damages.clear()

    def stop(self) -> bool:
        """Stop the broker cleanly. Gives: False if it was killed during the stop."""
        broker = self.broker
        assert broker is not None
        self._hang_up_all()
        self.broker = None
        try:
            broker.close_logs(self._steady_ms())
        except Crash:
            self.kill()
            return False
        except OSError as error:
            if not is_out_of_resources(error):  # on a full disk, a clean stop is not possible
                self.world.note_failure(error)
            self.kill()
            return False
        self.disk.kill()
        self._begin_generation()
        return True

    def _gone(self) -> None:
        """Discard the connections and the later events of the process, which has ended."""
        self.broker = None
        self._hang_up_all()
        self._begin_generation()

    def _hang_up_all(self) -> None:
        if self._is_stopped:
            self.stops.pop()  # ended first: a killed process never continues
        self._is_stopped, self._held = False, []
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            if session.link is not None:
                session.link.broken()
        self._timer_ms = -1

    # --- time ------------------------------------------------------------------------------------

    def _steady_ms(self) -> int:
        """The monotonic clock of a machine that has been up for a time. It differs for each
        process, and would be years off if it were used as a wall clock.
        """
        return self.world.loop.now_ms - self._zero_ms

    def now_ms(self) -> int:
        """The monotonic time of the core's next event; also sets the wall clock."""
        assert self.broker is not None
        self.broker.wall.feed(self._steady_ms(), self.world.wall_ms())
        return self._steady_ms()

    # --- a process that is stopped for a while ---------------------------------------------------

    def stand_still(self, for_ms: int) -> None:
        """Stop the process, and continue it `for_ms` later. In between, received bytes stay in the
        sockets, and no thread makes progress.
        """
        if not self.is_running or self._is_stopped:
            return
        self._is_stopped = True
        self.stops.append((self.world.loop.now_ms, self.world.loop.now_ms + for_ms))
        self.world.loop.later(for_ms, self._go_on, self.generation)

    def stood_still_ms(self, from_ms: int, to_ms: int, *, arrived_ms: int) -> int:
        """How much of this time the process was stopped, counting only stops at whose end a request
        that arrived at `arrived_ms` was still in the socket.
        """
        return sum(
            max(0, min(end_ms, to_ms) - max(began_ms, from_ms))
            for began_ms, end_ms in self.stops
            if arrived_ms < end_ms
        )

    def _go_on(self, generation: int) -> None:
        """Continue the process like the daemon's `_tick_after_reading`: everything received is
        processed before any deadline is checked.
        """
        if generation != self.generation or not self.is_running:
            return
        self._is_stopped = False
        held, self._held = self._held, []
        if not self.hears_first and self.broker is not None:
            self._guarded(self.broker.on_tick, self.now_ms())
        for call, arguments in held:
            if generation == self.generation:
                call(*arguments)
        if self.broker is not None and generation == self.generation:
            self._guarded(self.broker.on_tick, self.now_ms())

    def _is_held(self, generation: int, call: Any, *arguments: Any) -> bool:
        """Whether the process is stopped. If so, the call is made when it continues."""
        if self._is_stopped and generation == self.generation:
            self._held.append((call, arguments))
            return True
        return False

    # --- input -----------------------------------------------------------------------------------

    def connect(self, link: Link) -> None:
        assert self.broker is not None
        if self._is_held(self.generation, self.connect, link):
            return
        self._sessions[link.link_id] = _Session(link)
        self.broker.on_connected(link.link_id, "10.0.0.7", "10.0.0.1", 9092, link.node_id)

    def connect_nobody(self, connection_id: int) -> None:
        """Open a connection without a client, whose responses are dropped."""
        assert self.broker is not None
        self._sessions[connection_id] = _Session(None)
        self.broker.on_connected(connection_id, "10.0.0.8", "10.0.0.1", 9092, None)

    def is_asked(self, connection_id: int) -> bool:
        """Whether a request of the connection waits for its response."""
        session = self._sessions.get(connection_id)
        return session is not None and (session.in_flight or bool(session.frames))

    def hang_up_clients(self) -> None:
        """Close all connections from the clients' side."""
        for link_id in list(self._sessions):
            self.on_hang_up(link_id, self.generation)

    def on_frame(self, link_id: int, generation: int, frame: bytes) -> None:
        if self._is_held(generation, self.on_frame, link_id, generation, frame):
            return
        session = self._sessions.get(link_id)
        if session is None or generation != self.generation:
            return
        session.frames.append(frame)
        self._pump(link_id)

    def on_hang_up(self, link_id: int, generation: int) -> None:
        if self._is_held(generation, self.on_hang_up, link_id, generation):
            return
        if generation != self.generation or self.broker is None:
            return
        session = self._sessions.pop(link_id, None)
        if session is not None:
            self._judge_wait(session)
            self._guarded(self.broker.on_closed, link_id)

    def _pump(self, link_id: int) -> None:
        """Give the core the connection's next requests, one at a time."""
        if link_id in self._pumping:
            return
        self._pumping.add(link_id)
        try:
            while (
                (session := self._sessions.get(link_id)) is not None
                and session.frames
                and not session.in_flight
                and not session.is_muted
            ):
                broker, frame = self.broker, session.frames.popleft()
                assert broker is not None
                session.in_flight = True
                session.api_key = int.from_bytes(frame[:2])
                session.since_ms = self.world.loop.now_ms
                if session.link is not None and session.link.node_id is not None:
                    self.world.unled.on_heard(session.link, frame)
                if self.throttles is not None:
                    self.throttles.on_heard(frame)
                self._guarded(broker.on_frame, link_id, memoryview(bytearray(frame)), self.now_ms())
        finally:
            self._pumping.discard(link_id)

    def change(self, call: Any, *arguments: Any) -> None:
        """Call a function that changes leaders among several brokers, as an input of the core."""
        if self.broker is not None:
            self._guarded(call, *arguments, self.now_ms())

    def _on_timer(self, generation: int, when_ms: int) -> None:
        if generation == self.generation and self._timer_ms == when_ms and self.broker is not None:
            self._timer_ms = -1
            if self._is_stopped:
                return  # late, after everything in the sockets has been processed
            self._guarded(self.broker.on_tick, self.now_ms())

    def _guarded(self, event: Any, *arguments: Any) -> None:
        """Run one event of the core, and the actions that it requests. A Crash or a failing disk
        ends the process; any other error is a finding.
        """
        try:
            event(*arguments)
            self._judge_timer()
            self._carry_out()
        except (Crash, OSError):
            self.world.on_crash(self)
        else:
            self.world.observe()

    def _judge_timer(self) -> None:
        """Report a finding if the core believes that the timer is early enough, and it is not."""
        if self.broker is not None and self.broker.timer_is_set:
            deadline_ms = self.broker.next_deadline_ms()
            if self._deadline_ms > deadline_ms:
                text = (
                    f"the timer is set to {self._deadline_ms}, and there is work at {deadline_ms}"
                )
                self.world.history.incident("stuck", text)

    # --- the outbox ------------------------------------------------------------------------------

    def _carry_out(self) -> None:
        """Carry out everything that the core requests in its outbox."""
        broker = self.broker
        if broker is None or self._carrying_out:
            return
        self._carrying_out = True
        outbox = broker.outbox
        woken: list[int] = []
        try:
            while (
                outbox.sends
                or outbox.closes
                or outbox.flushes
                or outbox.cleanings
                or outbox.work
                or outbox.deferred
            ):
                sends, outbox.sends = outbox.sends, []
                for connection_id, pieces in sends:
                    session = self._sessions.get(connection_id)
                    if session is not None and self._answers(connection_id, session, pieces):
                        woken.append(connection_id)
                if self.throttles is not None:
                    self._mute()
                closes, outbox.closes = outbox.closes, []
                for connection_id, reason in closes:
                    self._disconnect(connection_id, reason)
                flushes, outbox.flushes = outbox.flushes, []
                for job in flushes:
                    self._flush(job)
                cleanings, outbox.cleanings = outbox.cleanings, []
                for cleaning in cleanings:
                    self.world.loop.later(
                        self.world.rng.randint(1, 60), self._clean, self.generation, cleaning
                    )
                works, outbox.work = outbox.work, []
                for work in works:
                    self.world.loop.later(
                        self.world.rng.randint(1, 60), self._work, self.generation, work
                    )
                broker.on_sent(self._steady_ms())
        finally:
            self._carrying_out = False
        self._set_timer()
        for connection_id in woken:
            self.world.loop.later(0, self._pump_if, self.generation, connection_id)

    def _mute(self) -> None:
        """Ignore input from clients above a quota for as long as the core requests it (KIP-219)."""
        assert self.broker is not None and self.throttles is not None
        mutes, self.broker.outbox.mutes = self.broker.outbox.mutes, []
        self.throttles.on_mutes(mutes)
        for connection_id, throttle_ms in mutes:
            session = self._sessions.get(connection_id)
            if session is not None:
                session.is_muted = True
                self.world.loop.later(throttle_ms, self._unmute, self.generation, connection_id)

    def _unmute(self, generation: int, connection_id: int) -> None:
        session = self._sessions.get(connection_id)
        if generation == self.generation and session is not None:
            session.is_muted = False
            self._pump_if(generation, connection_id)

    def _answers(self, connection_id: int, session: _Session, pieces: Any) -> bool:
        """Send a response. Gives: whether the connection has another request."""
        self._judge_wait(session)
        session.in_flight = False
        if pieces and session.link is not None:
            try:
                answer = _joined(pieces)
            except FileNotFoundError:
                # The file was removed since. The rim closes the connection.
                self._drop(connection_id, session)
                return False
            if session.link.node_id is not None:
                self.world.unled.on_answered(session.link, answer)
            if self.throttles is not None:
                self.throttles.on_answer(session.link, answer)
            session.link.deliver(answer)
        return bool(session.frames)

    def _judge_wait(self, session: _Session) -> None:
        """Report a finding if a request waits, or has waited, for longer than the disk explains."""
        if not session.in_flight or session.api_key in MAY_WAIT:
            return
        now_ms, since_ms = self.world.loop.now_ms, session.since_ms
        waited_ms = now_ms - since_ms
        if waited_ms > LONGEST_WAIT_MS:
            waited_ms -= self.stood_still_ms(since_ms, now_ms, arrived_ms=since_ms)
            limit_ms = LONGEST_WAIT_MS + FLUSHES_OF_A_REQUEST * self.world.scenario.fsync_ms
            if waited_ms > limit_ms:
                name = BY_KEY[session.api_key].name
                self.world.history.incident("stuck", f"{name} waits for {waited_ms} ms")

    def _pump_if(self, generation: int, connection_id: int) -> None:
        if self._is_held(generation, self._pump_if, generation, connection_id):
            return
        if generation == self.generation and self.broker is not None:
            self._pump(connection_id)

    def _disconnect(self, connection_id: int, reason: CloseReason) -> None:
        """Close a connection as the broker requests. This may be a finding, unless the connection's
        broker was taken away (broker/brokers/failover.py) or its client allows any close.
        """
        session = self._sessions.get(connection_id)
        if session is None:
            return
        is_away = "is taken away" in str(reason)
        if not is_away and (session.link is None or session.link.forgives is not Forgiving.ALWAYS):
            self.world.on_broker_closes(reason, session.link)
        self._drop(connection_id, session)

    def _drop(self, connection_id: int, session: _Session) -> None:
        """Close a connection."""
        assert self.broker is not None
        self._sessions.pop(connection_id, None)
        self.broker.on_closed(connection_id)
        if session.link is not None:
            session.link.broken()

    def _set_timer(self) -> None:
        """Plan the core's next tick."""
        assert self.broker is not None
        deadline = self._deadline_ms = self.broker.next_deadline_ms()
        self.broker.on_timer_set()
        when_ms = max(deadline + self._zero_ms, self.world.loop.now_ms)
        if self._part_delays is not None and self.broker.routes.parts.transaction_ends.in_parts:
            when_ms = self.world.loop.now_ms + self._part_delays.randint(0, MOST_PART_DELAY_MS)
        if self._timer_ms < 0 or when_ms < self._timer_ms:
            self._timer_ms = when_ms
            self.world.loop.at(when_ms, self._on_timer, self.generation, when_ms)

    # --- flushes ---------------------------------------------------------------------------------

    def _flush(self, job: FlushJob) -> None:
        """Sync the files of a flush, each after a random delay."""
        rng, loop = self.world.rng, self.world.loop
        last_ms = 0
        for file in job.files:
            delay_ms = rng.randint(0, self.world.scenario.fsync_ms)
            last_ms = max(last_ms, delay_ms)
            loop.later(delay_ms, self._sync, self.generation, file)
        loop.later(last_ms + rng.randint(0, 2), self._flushed, self.generation, job)

    def _sync(self, generation: int, file: Any) -> None:
        if self._is_held(generation, self._sync, generation, file):
            return
        if generation == self.generation:
            try:
                file.fsync()
            except (Crash, OSError):
                self.world.on_crash(self)

    def _flushed(self, generation: int, job: FlushJob) -> None:
        if self._is_held(generation, self._flushed, generation, job):
            return
        if generation == self.generation and self.broker is not None:
            self._guarded(self.broker.on_flushed, job, self.now_ms())

    def _work(self, generation: int, work: Work) -> None:
        """Do a job of the daemon's worker. The core is notified later, when much may have
        changed.
        """
        if self._is_held(generation, self._work, generation, work):
            return
        if generation == self.generation:
            self.works += 1
            try:
                result = work.run()
            except Crash:  # some jobs create files
                self.world.on_crash(self)
                return
            self.world.loop.later(
                self.world.rng.randint(0, 40), self._worked, generation, work, result
            )

    def _worked(self, generation: int, work: Work, result: Any) -> None:
        if self._is_held(generation, self._worked, generation, work, result):
            return
        if generation == self.generation and self.broker is not None:
            self._guarded(self.broker.on_worked, work, result, None, self.now_ms())

    # --- compaction ------------------------------------------------------------------------------

    def _clean(self, generation: int, job: CleanJob) -> None:
        """Do a job of the daemon's cleaner process. The core is notified later, or never, if the
        broker has ended by then.
        """
        if self._is_held(generation, self._clean, generation, job) or generation != self.generation:
            return
        result, error = None, ""
        try:
            result = clean(self.disk, job)
        except (CorruptLog, OSError) as failure:
            error = str(failure)
        except Crash:
            self.world.on_crash(self)
            return
        self.cleanings += result is not None and bool(result.segments)
        self.world.loop.later(
            self.world.rng.randint(0, 40), self._cleaned, generation, job, result, error
        )

    def _cleaned(
        self, generation: int, job: CleanJob, result: CleanResult | None, error: str
    ) -> None:
        if self._is_held(generation, self._cleaned, generation, job, result, error):
            return
        if generation == self.generation and self.broker is not None:
            self._guarded(self.broker.on_cleaned, job, result, error, self.now_ms())


def _end_of_frame(data: bytearray, position: int) -> int:
    """The end of the flush journal's frame at this position; 0 if no complete frame begins
    there.
    """
    if len(data) < position + _FRAME.size:
        return 0
    end: int = position + _FRAME.size + _FRAME.unpack_from(data, position)[-1]
    return end if end <= len(data) else 0


def _joined(pieces: Any) -> bytes:
    """The bytes of a response, with the slices of files read."""
    out = bytearray()
    for piece in pieces:
        if type(piece) is Slice:
            data = piece.file.pread(piece.size, piece.position)
            assert len(data) == piece.size, (
                f"{piece.file.path} is shorter than the answer to a fetch promised"
            )
            out += data
        else:
            out += piece
    return bytes(out)
