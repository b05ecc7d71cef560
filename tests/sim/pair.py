"""One of two machines: a broker that leads, or a standby that follows the other.

What the daemon's rim does around `Leadership`, `Leading` and `Following` is done here in the same
places: a request to the lease's engine at a time, answers that wait until they may go out, and a
copy that changes while it catches up.
"""

from __future__ import annotations

import copy
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.replication.following import Following, StandbyNote, holding_of
from barnabas.broker.replication.leadership import (
    Answer,
    Holding,
    Leadership,
    LeaseSettings,
    Role,
)
from barnabas.broker.replication.leadership import Node as LeaseNode
from barnabas.broker.replication.leading import Leading, ReplicationSettings
from barnabas.broker.replication.lease_record import NodeAddresses
from barnabas.broker.replication.operations import DivergedError
from barnabas.broker.replication.replicated_disk import ReplicatedDisk
from barnabas.broker.replication.wire import NONCE_BYTES, WireError
from barnabas.storage.files.leader_epochs import HighestEpoch
from sim.disk import Crash
from sim.node import DATA_DIR, Node, _joined, _Session
from sim.stream import Stream

if TYPE_CHECKING:
    from sim.pair_world import PairWorld

SECRET = "of both"
TICK_MS = 40


class Waiting(NamedTuple):
    """An answer that may not go out yet. position: what the standby has to apply before."""

    position: int
    connection_id: int
    session: _Session
    answer: bytes


class PairNode(Node):
    """leading: of the broker, while it leads; stream: the connection to the other machine.

    rate: how its clock goes. claimed_with: what the directory was worth when it claimed.
    was_standby: whether it was a standby's then. is_off: nobody starts the daemon. saved_epoch: the
    leader epoch of the directory that was saved.
    """

    world: PairWorld

    def __init__(self, world: PairWorld, properties: dict[str, str], node_id: int) -> None:
        super().__init__(world, properties)
        self.node_id = node_id
        self.disk.machine = f"{node_id}-"
        self.rate = 1.0
        self.leadership: Leadership | None = None
        self.leading: Leading | None = None
        self.following: Following | None = None
        self.stream: Stream | None = None
        self.claimed_with, self.is_off, self.was_standby = Holding.NOTHING, False, False
        self._waiting: deque[Waiting] = deque()
        self._replicated: ReplicatedDisk | None = None
        self._heard_ms = 0
        self._is_sending = False
        self._lease_timer_ms, self._session = -1, ""
        self._saved, self.saved_epoch = self.disk.root, 0

    @property
    def is_running(self) -> bool:
        return self.leadership is not None

    @property
    def other(self) -> PairNode:
        """The other machine."""
        return next(node for node in self.world.nodes if node is not self)

    def back_up(self) -> None:
        """Save the directory as it is."""
        self._saved = copy.deepcopy(self.disk.root)
        self.saved_epoch = max(0, HighestEpoch(self.disk, DATA_DIR).read())

    def restore_backup(self, *, is_told: bool) -> None:
        """The directory is what was saved; is_told: whether the system tells it from the other."""
        self.disk.replace(copy.deepcopy(self._saved), is_told=is_told)
        self._session = ""  # the note of the last one is of an earlier process

    def is_serving(self) -> bool:
        """Whether its broker is up, and may answer."""
        return (
            self.broker is not None
            and self.leadership is not None
            and self.leadership.may_answer(self.clock_ms())
        )

    def _begin_generation(self) -> None:
        self.generation = self.world.next_generation()

    def clock_ms(self) -> int:
        """The machine's own steady time, which goes a little wrong."""
        return int(self.world.loop.now_ms * self.rate)

    # --- the process -----------------------------------------------------------------------------

    def boot(self) -> None:
        """The daemon starts, as a standby or whatever the lease's record makes of it."""
        if self.is_running or self.is_off:
            return
        self._begin_generation()
        pair, session = self.world.pair, f"{self.node_id}.{self.generation}"
        self.leadership = Leadership(
            LeaseNode(
                self.node_id,
                NodeAddresses("", {}),
                session,
                leader_epoch=max(0, HighestEpoch(self.disk, DATA_DIR).read()),
                earlier_session=self._session,
            ),
            LeaseSettings(pair.ttl_ms, pair.margin_ms),
            holding_of(self.disk, DATA_DIR),
            self.clock_ms(),
        )
        self._session = session
        self.world.trace("booted", self.node_id, "", self.generation, b"")
        self._set_off()

    def _set_off(self) -> None:
        self._lease_timer_ms = -1
        self._ask_engine()
        self.world.loop.later(TICK_MS, self._tick, self.generation)

    def _gone(self) -> None:
        self._end_stream()
        if self.following is not None:
            self.following.close()
        self.leadership = self.leading = self.following = self._replicated = None
        self._waiting.clear()
        self._is_sending = False
        super()._gone()

    def lose_power(self, *, damages_journal: bool = False) -> None:
        if self.stream is not None:  # nobody is told of its end
            self.stream.to_leader.is_ended = self.stream.to_standby.is_ended = True
            self.stream = None
        super().lose_power(damages_journal=damages_journal)

    def _tick(self, generation: int) -> None:
        if self._is_held(generation, self._tick, generation) or generation != self.generation:
            return
        self.world.loop.later(TICK_MS, self._tick, generation)
        now_ms = self.clock_ms()
        if self.leading is not None:
            self.leading.on_tick(now_ms)
            if self.leading.lost is not None:
                self._end_stream()
            self._send_soon()
        elif self.stream is not None and now_ms - self._heard_ms > self.world.pair.timeout_ms:
            self._end_stream()
        elif self.stream is None:
            self._connect()
        self._after_event()

    def _after_event(self) -> None:
        """What may follow from anything that happened."""
        if self.leading is not None:
            self.leading.on_in_sync_changed()  # by an answer of the engine, or a request to it
        self._ask_engine()

    # --- the lease -------------------------------------------------------------------------------

    def _ask_engine(self) -> None:
        leadership, loop = self.leadership, self.world.loop
        if leadership is None:
            return
        now_ms, generation = self.clock_ms(), self.generation
        request = leadership.next_request(now_ms)
        if request is not None:
            self.world.engine.ask(
                self.node_id,
                request,
                leadership.timeout_ms,
                lambda answer: self._on_engine(generation, answer),
            )
        when_ms = leadership.next_request_ms(now_ms)
        if when_ms is not None:
            at_ms = loop.now_ms + max(1, int((when_ms - now_ms) / self.rate) + 1)
            if not loop.now_ms < self._lease_timer_ms <= at_ms:
                self._lease_timer_ms = at_ms
                loop.at(at_ms, self._on_lease_timer, generation)

    def _on_lease_timer(self, generation: int) -> None:
        held = self._is_held(generation, self._on_lease_timer, generation)
        if not held and generation == self.generation:
            self._ask_engine()

    def _on_engine(self, generation: int, answer: Answer) -> None:
        if self._is_held(generation, self._on_engine, generation, answer):
            return
        leadership = self.leadership
        if leadership is None or generation != self.generation:
            return
        leadership.on_answer(answer, self.clock_ms())
        if leadership.role is Role.LEADING and self.broker is None:
            self._lead()
        elif leadership.role is Role.DEPOSED:
            self.world.trace("deposed", self.node_id, "", generation, b"")
            self.kill()
            self.world.boot_later(self)
        if self.is_running:
            self._after_event()

    def _lead(self) -> None:
        """The claim is in the record: open the broker on what is there."""
        self._end_stream()
        if self.following is not None:
            self.following.close()
            self.following = None
        assert self.leadership is not None
        self.claimed_with = self.leadership.holding
        self.world.on_claim(self)
        try:
            self.was_standby = StandbyNote(self.disk, DATA_DIR).read() is not None
            if self.was_standby:
                self.disk.sync_all()  # as main.py does: no checkpoint tells more than the disk has
        except Crash:
            self.world.on_crash(self)
            return
        if self.start():
            assert self.broker is not None
            assert self.leading is not None
            self.leadership.cluster_id = self.leading.cluster_id = self.broker.logs.cluster_id
            self.leadership.set_opened(self.broker.logs.leader_epoch)
            self.leading.on_start()
            self._set_off()
            self.world.on_leader(self)
        else:
            self.world.boot_later(self)

    def _claimed_epoch(self) -> int:
        assert self.leadership is not None
        return self.leadership.leader_epoch

    def _opened_disk(self) -> Any:
        pair = self.world.pair
        self._replicated = ReplicatedDisk(self.disk, DATA_DIR)
        settings = ReplicationSettings(pair.is_sync, pair.may_be_alone, pair.timeout_ms, SECRET)
        self.leading = Leading(self._replicated, DATA_DIR, settings, self._release, self.leadership)
        return self._replicated

    # --- the stream ------------------------------------------------------------------------------

    def _connect(self) -> None:
        """A standby goes to whom the record names."""
        assert self.leadership is not None
        world, leader = self.world, self.other
        if self.leadership.leader() != leader.node_id or leader.leading is None:
            return
        if world.are_apart or leader.stream is not None or leader._is_stopped:
            return
        self.stream = leader.stream = Stream(world, leader, self)
        self._heard_ms = self.clock_ms()
        leader.leading.on_connected(world.nonce(), leader.clock_ms())
        assert leader._replicated is not None
        leader._replicated.publish = leader.leading.publish
        self.following = Following(
            self.disk,
            DATA_DIR,
            SECRET,
            b"n" * NONCE_BYTES,
            self.disk.sync_all,
            node_id=self.node_id,
            on_holding=self._on_holding,
        )
        self.stream.to_leader.send(self.following.greeting())

    def _end_stream(self) -> None:
        """Hang up, if there is a connection."""
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.end(self.leading is not None)
            self._forget_stream()

    def _forget_stream(self) -> None:
        self.stream = None
        if self.leading is not None:
            assert self._replicated is not None
            self._replicated.publish = None
            self.leading.on_closed()
        elif self.following is not None:
            self.following.close()
            self.following = None

    def on_stream(self, generation: int, stream: Stream, data: bytes | None) -> None:
        """Bytes of the other side, or its end."""
        if self._is_held(generation, self.on_stream, generation, stream, data):
            return
        if generation != self.generation or stream is not self.stream:
            return
        if data is None:
            self._forget_stream()
        elif self.leading is not None:
            try:
                self.leading.on_bytes(data, self.clock_ms())
            except (WireError, OSError):
                self._end_stream()
        else:
            self._follow(stream, data)
        if self.is_running:
            self._after_event()
            self._send_soon()

    def _follow(self, stream: Stream, data: bytes) -> None:
        assert self.following is not None and self.leadership is not None
        self._heard_ms = self.clock_ms()
        try:
            for answer in self.following.on_bytes(data):
                stream.to_leader.send(answer)
        except Crash:
            self.world.on_crash(self)
        except (WireError, DivergedError, OSError) as error:
            self.world.trace("diverged", self.node_id, str(error), 0, b"")
            self._end_stream()

    def _on_holding(self, holding: Holding) -> None:
        if self.leadership is not None:
            self.leadership.holding = holding

    def _send_soon(self) -> None:
        if not self._is_sending and self.leading is not None and self.stream is not None:
            self._is_sending = True
            self.world.loop.later(
                self.world.pair_rng.randint(0, 2), self._send_stream, self.generation
            )

    def _send_stream(self, generation: int) -> None:
        if self._is_held(generation, self._send_stream, generation):
            return
        if generation != self.generation:
            return
        self._is_sending = False
        leading, stream = self.leading, self.stream
        if leading is None or stream is None or leading.link is None:
            return
        if leading.lost is not None:
            self._end_stream()
            self._after_event()
            return
        try:
            output = leading.take_output()
        except OSError:
            self._end_stream()
            return
        if output:
            stream.to_standby.send(output)
        if leading.link.is_behind:
            self._send_soon()
        self._after_event()

    # --- answers that wait -----------------------------------------------------------------------

    def _may_go_out(self, position: int) -> bool:
        leadership, leading = self.leadership, self.leading
        assert leadership is not None and leading is not None
        return leadership.may_answer(self.clock_ms()) and leading.is_applied(position)

    def _answers(self, connection_id: int, session: _Session, pieces: Any) -> bool:
        assert self.leading is not None
        position = self.leading.position
        if not pieces or (not self._waiting and self._may_go_out(position)):
            if pieces:
                self.world.on_answered_by(self)
            return super()._answers(connection_id, session, pieces)
        self._waiting.append(Waiting(position, connection_id, session, _joined(pieces)))
        return False

    def _release(self) -> None:
        """Send the answers that need not wait any more."""
        waiting = self._waiting
        while waiting and self._may_go_out(waiting[0].position):
            _, connection_id, session, answer = waiting.popleft()
            if self._sessions.get(connection_id) is session:
                self.world.on_answered_by(self)
                if super()._answers(connection_id, session, [answer]):
                    self.world.loop.later(0, self._pump_if, self.generation, connection_id)

    def _judge_wait(self, session: _Session) -> None:
        """An answer may have to wait for the lease, or for the standby."""

    def _carry_out(self) -> None:
        super()._carry_out()
        self._send_soon()
