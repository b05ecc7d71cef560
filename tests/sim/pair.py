"""One of two machines: a broker that leads, or a standby that follows the other.

The product's own code decides here, as in the daemon: `MemberSteps` until the node leads, then
`LeasedLead`, `Admission`, `HeldAnswers`, `StandbyFeed` and `steps_of_end`; a `LeaseKeeper` without
its thread, and the exchange with etcd. The daemon's sockets, threads and pauses are replaced by a
connection, an HTTP client and events of the simulated clock.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from barnabas.replication.admission import Admission
from barnabas.replication.following import Following, StandbyNote, holding_of
from barnabas.replication.held_answers import HeldAnswers
from barnabas.replication.leadership import (
    TIMEOUT_PARTS,
    Answer,
    Holding,
    Leadership,
    LeaseSettings,
    Role,
)
from barnabas.replication.leading import GREETING_MS, Leading, ReplicationSettings
from barnabas.replication.lease_exchange import EngineSettings, EtcdExchange, Exchange
from barnabas.replication.lease_record import LeaseRecordError, NodeAddresses
from barnabas.replication.leased_lead import LeasedLead
from barnabas.replication.member_steps import MemberSteps, node_of
from barnabas.replication.operations import DivergedError
from barnabas.replication.replicated_disk import ReplicatedDisk
from barnabas.replication.rim.early_sync import EarlySync
from barnabas.replication.rim.lease_keeper import LeaseKeeper
from barnabas.replication.standby_feed import StandbyFeed
from barnabas.replication.standby_steps import Connect, Copy, Receive, Send, Steps, Wait
from barnabas.replication.steps_of_end import Until, steps_of_end
from barnabas.replication.wire import NONCE_BYTES
from barnabas.storage.files.checkpoints import LOCK_NAME
from barnabas.storage.files.leader_epochs import HighestEpoch
from barnabas.storage.log.log_directory import LogDirectoryError
from sim.disk import Crash
from sim.etcd import PASSWORD, USER, HttpClient
from sim.node import DATA_DIR, Node, _joined, _Session
from sim.stream import Stream

if TYPE_CHECKING:
    from sim.pair_world import PairWorld

SECRET = "of both"
TICK_MS = 40
REST_MS, RELEASE_MS = 3000, 2000  # these values are from leader_endpoint.py and lease_endpoint.py
Waiting = tuple[int, _Session, bytes]


class SimKeeper(LeaseKeeper):
    """The real lease keeper, driven by the node's events in place of its thread."""

    def __init__(self, node: PairNode, leadership: Leadership, exchange: EtcdExchange) -> None:
        super().__init__(leadership, exchange, node.clock_ms)  # type: ignore[arg-type]
        self._wake = node.on_keeper_changed

    def _notify(self) -> None:
        super()._notify()
        self._wake()

    def stop(self) -> None:
        self.on_change = lambda: None
        self._ends = True


class WatchedFollowing(Following):
    """A connection to a leader, which checks that everything the leader sends fits the copy."""

    node: PairNode

    def on_bytes(self, data: bytes) -> Iterator[bytes]:
        try:
            yield from super().on_bytes(data)
        except DivergedError as error:
            self.node.world.history.incident("diverged", str(error))
            raise


class PairNode(Node):
    """A machine of the pair, with at most one process.

    keeper: the lease's keeper, while there is a process. leading: the leader's side of
    replication, while it leads. stream: the connection to the other machine.

    process: the number of its processes so far. rate: the speed of its clock. claimed_with: the
    state of the directory when it claimed the lease. was_standby: whether it was a standby's
    directory then. is_off: whether the daemon is not started any more. saved_epoch: the leader
    epoch of the saved directory. ended_ms: when its last process was requested to stop, and which
    process of the other machine followed it then.
    """

    world: PairWorld

    def __init__(self, world: PairWorld, properties: dict[str, str], node_id: int) -> None:
        super().__init__(world, {**properties, "node.id": str(node_id)})
        self.node_id = node_id
        self.disk.machine = f"{node_id}-"
        self.rate = 1.0
        self.keeper: SimKeeper | None = None
        self.leading: Leading | None = None
        self.stream: Stream | None = None
        self.claimed_with, self.is_off, self.was_standby = Holding.NOTHING, False, False
        self.is_deposed = self.failed = False
        self.ended_ms: tuple[int, int] | None = None
        # the time since which only the lease delays its responses, or None
        self.alone_since_ms: int | None = None
        self.process = 0
        self._steps: Steps | None = None
        self._inbox: deque[bytes] = deque()
        # counts the waits of the steps, so that an event for an earlier wait is ignored
        self._pause = 0
        self._waits_for_change = self._waits_to_receive = False
        self._asks_engine = self._change_is_due = self._is_sending = False
        self._lease_timer_ms = -1
        self._lead: LeasedLead | None = None
        self._admission: Admission[Stream] | None = None
        self._feed: StandbyFeed | None = None
        self._held_answers: HeldAnswers[Waiting] = HeldAnswers(self._may_go_out)
        self._replicated: ReplicatedDisk | None = None
        self._end: Iterator[Until] | None = None
        self._until: Until | None = None
        self._saved, self.saved_epoch = self.disk.root, 0

    @property
    def is_running(self) -> bool:
        return self.keeper is not None

    @property
    def address(self) -> str:
        """The address to which the other machine connects as a standby."""
        return f"10.0.0.{self.node_id}:9093"

    @property
    def other(self) -> PairNode:
        """The other machine."""
        return next(node for node in self.world.nodes if node is not self)

    def back_up(self) -> None:
        """Save a copy of the current directory."""
        self._saved = copy.deepcopy(self.disk.root)
        self.saved_epoch = max(0, HighestEpoch(self.disk, DATA_DIR).read())

    def restore_backup(self, *, is_new_mount: bool) -> None:
        """Replace the directory by the saved one. is_new_mount: whether the copy is on another
        mount, as far as the system shows.
        """
        self.ended_ms = None
        self.disk.replace(copy.deepcopy(self._saved), is_new_mount=is_new_mount)

    def is_serving(self) -> bool:
        """Whether its broker is running and may respond."""
        return self.broker is not None and self.keeper is not None and self.keeper.may_answer()

    def _begin_generation(self) -> None:
        self.generation = self.world.next_generation()

    def clock_ms(self) -> int:
        """The machine's own monotonic time, which drifts a little."""
        return int(self.world.loop.now_ms * self.rate)

    def _later(self, delay_ms: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call a function of this process after a delay by the machine's own clock, unless the
        process has ended by then.
        """
        real_ms = max(0, int(delay_ms / self.rate + 0.999))
        self.world.loop.later(real_ms, self._event, self.process, call, *arguments)

    def _event(self, process: int, call: Callable[..., None], *arguments: Any) -> None:
        """Run a call of that process, unless it has ended."""
        if process != self.process:
            return
        if not self._is_held(self.generation, self._event, process, call, *arguments):
            call(*arguments)

    # --- the process -----------------------------------------------------------------------------

    def boot(self) -> None:
        """Start the daemon, as a standby or as the lease's record decides."""
        if self.is_running or self.is_off:
            return
        self._begin_generation()
        self.process += 1
        self.is_deposed = self.failed = False
        pair, session = self.world.pair, f"{self.node_id}.{self.generation}"
        self.world.trace("booted", self.node_id, "", self.generation, b"")
        try:
            self._lock = self.disk.lock(f"{DATA_DIR}/{LOCK_NAME}")
            node = node_of(
                self.disk, DATA_DIR, self.node_id, NodeAddresses(self.address, {}), session
            )
            leadership = Leadership(
                node,
                LeaseSettings(pair.ttl_ms, pair.margin_ms),
                holding_of(self.disk, DATA_DIR),
                self.clock_ms(),
            )
        except Crash:
            self.world.on_crash(self)
            return
        etcd, timeout_ms = self.world.engine, pair.ttl_ms // TIMEOUT_PARTS
        self._http = HttpClient(etcd, self.node_id, timeout_ms)
        user, password = (USER, PASSWORD) if etcd.has_users else ("", "")
        self._exchange = EtcdExchange(
            EngineSettings(
                etcd.endpoints, "pair", timeout_ms, pair.ttl_ms, user=user, password=password
            )
        )
        self.keeper = SimKeeper(self, leadership, self._exchange)
        self._early_sync = EarlySync(self.disk.sync_all, self._run_beside)
        self._member = MemberSteps(
            Copy(self.disk, DATA_DIR, self._early_sync, self._new_following),
            pair.timeout_ms / 1000,
            keeper=self.keeper,
            session=session,
            ttl_ms=pair.ttl_ms,
            now_s=lambda: self.clock_ms() / 1000,
        )
        self._asks_engine, self._lease_timer_ms = False, -1
        self._ask_engine()
        self._steps = self._member.run()
        self._advance()

    def _new_following(self, make_durable: Callable[[], None]) -> Following:
        assert self.keeper is not None
        following = WatchedFollowing(
            self.disk,
            DATA_DIR,
            SECRET,
            b"n" * NONCE_BYTES,
            make_durable,
            node_id=self.node_id,
            addresses=NodeAddresses(self.address, {}),
            on_holding=self.keeper.set_holding,
        )
        following.node = self
        return following

    def _run_beside(self, call: Callable[[], None]) -> Callable[[], None]:
        """Run a call in a simulated thread. It is done some time later, or when the returned
        function waits for it.
        """
        is_done = False

        def run() -> None:
            nonlocal is_done
            if not is_done:
                is_done = True
                call()

        def run_now() -> None:
            try:
                run()
            except Crash:
                self.world.on_crash(self)

        self._later(self.world.pair_rng.randint(0, self.world.pair.ttl_ms), run_now)
        return run

    def _gone(self) -> None:
        """End everything of this process: its stream, its keeper and its steps."""
        self._end_stream(is_notified=True)
        self._end_greeting(is_notified=True)
        self.process += 1
        steps, self._steps = self._steps, None
        if steps is not None and not steps.gi_running:
            steps.close()
        if self.keeper is not None:
            self.keeper.stop()
        self.keeper = self.leading = self._lead = self._feed = self._replicated = None
        self._admission = None
        self._end = self._until = self.alone_since_ms = None
        self._held_answers = HeldAnswers(self._may_go_out)
        self._is_sending = self._change_is_due = False
        super()._gone()

    def lose_power(self, *, damages_journal: bool = False) -> None:
        # no comparison later, since its files may now differ from those at its clean end
        self.ended_ms = None
        self._end_stream(is_notified=False)
        self._end_greeting(is_notified=False)
        super().lose_power(damages_journal=damages_journal)

    # --- a member, until it leads ----------------------------------------------------------------

    def _advance(self, result: bytes | None = None, failure: OSError | None = None) -> None:
        """Run the steps of a member until one has to wait."""
        steps, process = self._steps, self.process
        assert steps is not None
        self._pause += 1
        self._waits_for_change = self._waits_to_receive = False
        try:
            while True:
                step = steps.send(result) if failure is None else steps.throw(failure)
                result = failure = None
                if isinstance(step, Send):
                    if self.stream is None:
                        failure = ConnectionResetError(104, "Connection reset by peer")
                    else:
                        self.stream.to_leader.send(step.data)
                elif isinstance(step, Receive) and self._inbox:
                    result = self._inbox.popleft()
                elif isinstance(step, Receive) and self.stream is None:
                    result = b""
                elif isinstance(step, Wait | Connect | Receive):
                    self._wait_for(step)
                    return
                else:
                    self._end_stream(is_notified=True)
        except StopIteration:
            self._steps = None
            self._leave_membership()
        except Crash:
            self.world.on_crash(self)
        except (LogDirectoryError, LeaseRecordError, OSError) as error:
            if process == self.process:
                self.world.history.incident("crashed", f"node {self.node_id} ends: {error!r}")
                self.kill()

    def _wait_for(self, step: Wait | Connect | Receive) -> None:
        """Plan how the member's steps go on after a step that waits."""
        pause, rng = self._pause, self.world.pair_rng
        if isinstance(step, Wait):
            self._waits_for_change = True
            self._later(step.seconds * 1000, self._go_on_after, pause, None)
        elif isinstance(step, Receive):
            self._waits_to_receive = True
            self._later(step.timeout_s * 1000, self._go_on_after, pause, TimeoutError())
        elif self.world.are_apart:
            self._later(step.timeout_s * 1000, self._go_on_after, pause, TimeoutError())
        else:
            assert step.address == ("10.0.0." + str(self.other.node_id), 9093)
            self._later(rng.randint(0, 2), self._connect, pause)

    def _go_on_after(self, pause: int, failure: OSError | None) -> None:
        if pause == self._pause and self._steps is not None:
            self._advance(failure=failure)

    def _connect(self, pause: int) -> None:
        """Connect to the leader, unless another wait of the steps has begun since. A stopped leader
        does not respond, and a node that does not lead refuses.
        """
        if pause != self._pause:
            return
        leader = self.other
        if leader._is_stopped:  # the system accepts the connection, but no response follows
            self._later(self.world.pair.timeout_ms, self._go_on_after, pause, TimeoutError())
            return
        if leader.leading is None or leader._until is not None:
            self._advance(failure=ConnectionRefusedError(111, "Connection refused"))
            return
        self.stream = Stream(self.world, leader, self)
        leader.take_up(self.stream)
        self._inbox.clear()
        self._advance()

    def on_keeper_changed(self) -> None:
        """React to a change of the lease, or to a new request to the keeper."""
        if not self._change_is_due:
            self._change_is_due = True
            self._later(0, self._after_change)

    def _after_change(self) -> None:
        self._change_is_due = False
        self._ask_engine()
        if self._waits_for_change and self._steps is not None:
            self._advance()
        if self._until is Until.RELEASED and self.keeper is not None and self.keeper.has_released:
            self._go_on_ending()

    def _leave_membership(self) -> None:
        """End the membership as `Standby.run` and `PairMember` do: this node leads, or its lease
        cannot be kept.
        """
        assert self.keeper is not None
        self.was_standby = StandbyNote(self.disk, DATA_DIR).read() is not None
        try:
            self._early_sync.finish()
        except Crash:
            self.world.on_crash(self)
            return
        self._lock.release()
        if self.keeper.failure is not None:
            self.world.history.incident("crashed", f"the lease: {self.keeper.failure}")
            self.kill()
        else:
            assert self.keeper.role is Role.LEADING, self.keeper.role
            self._open()

    # --- the lease -------------------------------------------------------------------------------

    def _ask_engine(self) -> None:
        """Send the keeper's next request to the lease engine, if none is under way. If there is no
        request yet, try again after the keeper's pause.
        """
        keeper = self.keeper
        if keeper is None or self._asks_engine:
            return
        request = keeper.next_request()
        if request is not None:
            self._asks_engine = True
            exchange = self._exchange.ask(request)
            self._exchange_on(exchange, None)
            return
        now_ms = self.clock_ms()
        when_ms = now_ms + max(1, int(keeper.pause_s() * 1000))
        if not now_ms < self._lease_timer_ms <= when_ms:
            self._lease_timer_ms = when_ms
            self._later(when_ms - now_ms, self._ask_engine)

    def _exchange_on(self, exchange: Exchange, outcome: Any) -> None:
        """Send the next HTTP request of an exchange with the engine, or process its result."""
        process = self.process
        try:
            call = exchange.send(outcome)
        except StopIteration as end:
            self._on_engine(end.value)
            return
        self._http.send(
            call, lambda found: self._event(process, self._exchange_on, exchange, found)
        )

    def _on_engine(self, answer: Answer) -> None:
        keeper = self.keeper
        assert keeper is not None
        self._asks_engine = False
        keeper.take_answer(answer)
        self._ask_engine()

    # --- a leader --------------------------------------------------------------------------------

    def _open(self) -> None:
        """Open the broker on the directory, since the lease's record has this node's claim."""
        assert self.keeper is not None
        self.claimed_with = self.keeper._leadership.holding
        self.world.on_claim(self)
        process = self.process
        if not self.start():
            self.world.boot_later(self)
            return
        if process != self.process:
            return
        broker, leading = self.broker, self.leading
        assert broker is not None and leading is not None
        logs = broker.logs
        self._lead = LeasedLead(self.keeper, leading, logs.cluster_id or "", logs.leader_epoch)
        self.keeper.on_change = lambda: self._later(0, self._on_lease_changed)
        self._on_lease_changed()
        self._later(TICK_MS, self._tick)
        self.world.on_leader(self)

    def _claimed_epoch(self) -> int:
        assert self.keeper is not None
        return self.keeper.leader_epoch

    def _opened_disk(self) -> Any:
        pair = self.world.pair
        self._replicated = ReplicatedDisk(self.disk, DATA_DIR)
        settings = ReplicationSettings(pair.is_sync, pair.may_be_alone, pair.timeout_ms, SECRET)
        self.leading = Leading(self._replicated, DATA_DIR, settings, self._release, self.keeper)
        self._admission = Admission(self.leading)
        return self._replicated

    def _on_lease_changed(self) -> None:
        """Continue with the new lease, or end because another node leads."""
        if self._lead is None or self._until is not None or self.is_deposed:
            return
        if self._lead.on_lease_changed():
            self._send_soon()
        else:
            self.is_deposed = True
            self.world.trace("deposed", self.node_id, "", self.generation, b"")
            self.end()

    def _tick(self) -> None:
        if self.leading is None or self._until is not None:
            return
        self._later(TICK_MS, self._tick)
        self.leading.on_tick(self.clock_ms())
        self._send_soon()
        self._judge_held_answers()

    def take_up(self, stream: Stream) -> None:
        """Accept a connection, which must prove that it knows the secret before it is the
        standby's.
        """
        admission = self._admission
        assert admission is not None
        admission.on_accepted(stream, self.other.address)
        admission.on_connected(stream, self.world.nonce(), self.clock_ms())
        self._later(GREETING_MS, self._end_if_greeting, stream)

    def _end_if_greeting(self, stream: Stream) -> None:
        if self._admission is not None and stream in self._admission.greeting:
            self._end_newcomer(stream, is_notified=True)

    def _end_newcomer(self, stream: Stream, *, is_notified: bool) -> None:
        """Close a connection that is not the standby's."""
        assert self._admission is not None
        self._admission.on_closed(stream)
        if is_notified:
            stream.end(node_is_leader=True)
        else:
            stream.cut()

    def _end_greeting(self, *, is_notified: bool) -> None:
        """Close all connections that have not yet proved that they know the secret."""
        for stream in self._admission.greeting if self._admission is not None else ():
            self._end_newcomer(stream, is_notified=is_notified)

    def _on_standby_admitted(self, stream: Stream) -> None:
        leading, replicated, pair = self.leading, self._replicated, self.world.pair
        assert leading is not None and replicated is not None
        self.stream = stream
        self._feed = StandbyFeed(leading, "standby", pair.timeout_ms / 1000, pair.catch_up_rate)
        replicated.publish = self._publish

    def _publish(self, operation: Any) -> None:
        assert self.leading is not None
        self.leading.publish(operation)
        self._send_soon()

    def _send_soon(self) -> None:
        if not self._is_sending and self.stream is not None and self._feed is not None:
            self._is_sending = True
            self._later(self.world.pair_rng.randint(0, 2), self._send_stream)

    def _send_stream(self) -> None:
        self._is_sending = False
        feed, stream = self._feed, self.stream
        if feed is None or stream is None or self._until is not None:
            return
        turn = feed.next_turn(may_write=stream.to_standby.has_room)
        if turn.end:
            self._end_stream(is_notified=True)
            return
        if turn.data:
            stream.to_standby.send(turn.data)
        if turn.again_s is not None and not self._is_sending:
            self._is_sending = True
            pause_ms = turn.again_s * 1000 or self.world.pair_rng.randint(0, 2)
            self._later(pause_ms, self._send_stream)

    def on_room(self) -> None:
        """Send more bytes, since the connection can take some."""
        self._send_soon()

    # --- the stream ------------------------------------------------------------------------------

    def _end_stream(self, *, is_notified: bool) -> None:
        """Close the connection, if there is one. is_notified: whether the other side notices."""
        stream = self.stream
        if stream is None:
            return
        if is_notified:
            stream.end(self.leading is not None)
        else:
            stream.cut()
        self._forget_stream()

    def _forget_stream(self) -> None:
        """Update the state after the connection has ended."""
        stream, self.stream = self.stream, None
        if self.leading is None:
            return
        assert self._admission is not None and stream is not None
        self._admission.on_closed(stream)
        self._feed = None
        if self._until is Until.REST_IS_SENT:
            self._later(0, self._go_on_ending)
        elif self._until is None and self._replicated is not None:
            self._replicated.publish = None
            self.leading.on_closed()

    def on_stream(self, process: int, stream: Stream, data: bytes | None) -> None:
        """Handle bytes from the other side, or the end of the connection."""
        self._event(process, self._on_stream, stream, data)

    def _on_stream(self, stream: Stream, data: bytes | None) -> None:
        if self.leading is not None:
            self._on_stream_of_leader(stream, data)
        elif stream is self.stream:
            # an empty item is the end, which is handled once, by closing this side
            self._inbox.append(data or b"")
            if self._steps is not None and self._waits_to_receive:
                self._advance(self._inbox.popleft())

    def _on_stream_of_leader(self, stream: Stream, data: bytes | None) -> None:
        admission = self._admission
        assert admission is not None
        if data is None:
            if stream is self.stream:
                self._forget_stream()
            else:
                admission.on_closed(stream)
            return
        try:
            reply = admission.on_bytes(stream, data, self.clock_ms())
        except Crash:
            self.world.on_crash(self)
            return
        if reply.data:
            stream.to_standby.send(reply.data)
        if reply.is_admitted:
            self._on_standby_admitted(stream)
        if not reply.end:
            self._send_soon()
        elif stream is self.stream:
            self._end_stream(is_notified=True)
        else:
            self._end_newcomer(stream, is_notified=True)

    # --- the end of a process --------------------------------------------------------------------

    def terminate(self) -> None:
        """SIGTERM."""
        self._event(self.process, self.end)

    def end(self) -> None:
        """Stop the process, on request or because another node leads."""
        if self._end is not None or not self.is_running:
            return
        if self.broker is None or self._lead is None:
            self._stop_member()
            return
        self._end = steps_of_end(self, self.keeper)
        self._go_on_ending()

    def _stop_member(self) -> None:
        """Stop a node that does not lead, as `Standby.run` ends."""
        steps, self._steps = self._steps, None
        self._end_stream(is_notified=True)
        try:
            if steps is not None:
                steps.close()
                self._early_sync.finish()
        except Crash:
            self.world.on_crash(self)
            return
        self.kill()
        self.world.boot_later(self)

    def _go_on_ending(self) -> None:
        """Run the next step of a leader's stop."""
        end, process = self._end, self.process
        assert end is not None
        try:
            self._until = next(end, None)
        except Crash:
            self.world.on_crash(self)
            return
        if process != self.process:
            return
        if self._until is None:
            self.kill()
            self.world.boot_later(self)
        elif self._until is Until.REST_IS_SENT and self.stream is None:
            self._later(0, self._go_on_ending)
        else:
            most_ms = REST_MS if self._until is Until.REST_IS_SENT else RELEASE_MS
            self._later(most_ms, self._give_up_waiting, self._until)

    def _give_up_waiting(self, until: Until) -> None:
        if self._until is until:
            self._go_on_ending()

    def close(self) -> None:
        """Close the clients' connections and the logs, and send the rest of the stream to the
        standby, as `ReplicatedServer.close` does.
        """
        broker = self.broker
        assert broker is not None and self.leading is not None
        self._hang_up_all()
        self.broker = None
        broker.close_logs(self._steady_ms())
        # a follower that has not crashed meanwhile
        if self.leading.follows and self.stream is not None:
            self.ended_ms = self.world.loop.now_ms, self.other.process
        self._until = Until.REST_IS_SENT
        self._end_greeting(is_notified=True)
        if self.stream is None:
            return
        if not self.leading.follows:
            self._end_stream(is_notified=True)
            return
        assert self._feed is not None
        for data in self._feed.rest():
            self.stream.to_standby.send(data)
        self.stream.to_standby.send(None)

    def abandon(self) -> None:
        """Do nothing: another node leads, so the directory stays as after a kill."""

    # --- answers that wait -----------------------------------------------------------------------

    def _may_go_out(self, position: int) -> bool:
        """Whether a response at this position of the stream may be sent."""
        keeper, leading = self.keeper, self.leading
        assert keeper is not None and leading is not None
        return keeper.may_answer() and leading.is_applied(position)

    def _answers(self, connection_id: int, session: _Session, pieces: Any) -> bool:
        assert self.leading is not None
        if not pieces:
            return super()._answers(connection_id, session, pieces)
        waiting = connection_id, session, _joined(pieces)
        if self._held_answers.holds(self.leading.position, waiting):
            return False
        self.world.on_answered_by(self)
        return super()._answers(connection_id, session, pieces)

    def _release(self) -> None:
        """Send the responses that no longer have to wait."""
        for connection_id, session, answer in self._held_answers.released():
            if self._sessions.get(connection_id) is session:
                self.world.on_answered_by(self)
                if super()._answers(connection_id, session, [answer]):
                    self.world.loop.later(0, self._pump_if, self.generation, connection_id)

    def _judge_wait(self, session: _Session) -> None:
        """Do nothing: a response may have to wait for the lease, or for the standby."""

    def _judge_held_answers(self) -> None:
        """Report a finding if responses wait although this leader may continue alone, has its lease
        and a responsive engine, and no standby has been connected for some time.
        """
        world, pair = self.world, self.world.pair
        may_be_alone = pair.may_be_alone or not pair.is_sync
        is_alone = may_be_alone and self.stream is None and world.engine.is_well
        if not is_alone or not self.is_serving():
            self.alone_since_ms = None
        elif self.alone_since_ms is None:
            self.alone_since_ms = world.loop.now_ms
        elif self._held_answers and world.loop.now_ms - self.alone_since_ms > pair.patience_ms:
            world.history.incident(
                "stuck", f"node {self.node_id} leads alone, and {len(self._held_answers)} answers "
                "wait for a standby that is not there"
            )  # fmt: skip
            self.alone_since_ms = None

    def _carry_out(self) -> None:
        super()._carry_out()
        self._send_soon()
