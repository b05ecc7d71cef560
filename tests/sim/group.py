"""Workers of a consumer group that read records, transform them, and write exactly one result for
each record (KIP-447).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from checkers import Access, Ending, Holding, Partition, ReportedOffset, Source, TakenCommit

from barnabas.coordinator.groups.classic.consumer_protocol import read_assignment, write_assignment
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from sim import wire
from sim.clients import Asking, Fenced, Refused, error_code, name_of
from sim.network import LOST
from sim.producers import SEQUENCE_ERRORS, Producer, TransactionalProducer

if TYPE_CHECKING:
    from sim.world import World

DURABLE_GROUPS = frozenset({"group"})
MOVED_ON = frozenset(
    {
        Code.ILLEGAL_GENERATION,
        Code.UNKNOWN_MEMBER_ID,
        Code.REBALANCE_IN_PROGRESS,
        Code.FENCED_INSTANCE_ID,
    }
)
REBALANCE_TIMEOUT_MS = 2500
SLOWEST_ROW_MS = 25  # ms; a batch has four rows, and waits 50 ms for a standby
STATIC_JOIN_VERSION, STATIC_SYNC_VERSION = 9, 5


def subscription(topics: list[str]) -> bytes:
    """A consumer's subscription in JoinGroup: version 0, its topics, no user data."""
    parts = [struct.pack(">hi", 0, len(topics))]
    for topic in topics:
        parts.append(struct.pack(">h", len(topic)) + topic.encode())
    return b"".join(parts) + struct.pack(">i", -1)


class Worker(TransactionalProducer):
    """A member process: it joins the group, and transforms records of its share of `inputs` into
    records of `outputs`, with the offsets in the same transaction.

    moved_on: the error codes after which it fetches its share again. holdings: for the partitions
    that it owns now; held: for all that it ever owned. asks_for_place: whether it has sent a
    request to replace another process of its instance, without a response yet.
    """

    moved_on = MOVED_ON

    def __init__(
        self,
        world: World,
        name: str,
        transactional_id: str,
        group: str,
        inputs: list[Partition],
        outputs: list[Partition],
        timeout_ms: int,
        *,
        instance_id: str | None = None,
        leaving: float = 0.0,
    ) -> None:
        super().__init__(world, name, transactional_id, outputs, rounds=0, timeout_ms=timeout_ms)
        self.group, self.inputs, self.outputs = group, inputs, outputs
        self.instance_id, self.leaving = instance_id, leaving
        self.member_id, self.generation = "", -1
        self.leads_for = -1
        self.knows_too_few: int | None = None
        self.topics = ["in"]
        self.session_timeout_ms = world.scenario.session_timeout_ms
        self.heard_ms, self.heard_after = -1, 0
        self.positions: dict[Partition, int] = {}
        self.read_epochs: dict[Partition, int] = {}
        self.holdings: dict[Partition, Holding] = {}
        self.held: list[Holding] = []
        self.asks_for_place = False
        self.is_idle = False
        self.stalls = 0
        self.rounds_done = 0

    def run(self) -> Asking:
        """Run the worker. Gives: whether it ended by itself."""
        try:
            yield from self.init(timeout_ms=self.timeout_ms)
            while not self.world.is_over:
                joined = yield from self.join()
                if joined:
                    yield from self.work()
                self.positions = {}
                if self.wants_to_leave(1.0 if joined else 0.1):
                    yield from self.leave()
        except Fenced:
            self.world.trace("fenced", 0, self.name, 0, b"")
            return False
        except Refused as refusal:
            self.world.refused(refusal, is_explained=self.world.may_forget)
            return False
        finally:
            self.positions = {}
            self.is_idle = False
            self.hang_up()
        return True

    # --- the group -------------------------------------------------------------------------------

    def join(self) -> Asking:
        """Send JoinGroup and SyncGroup. Gives: True if the member has a share of the partitions,
        False if it must try again.
        """
        self.end_holdings()
        if not self.member_id:
            self.ask_for_place()
        call = self._join_call()
        answer = yield from self.ask(call, REBALANCE_TIMEOUT_MS + 2000)
        if answer is LOST or answer.error_code == Code.COORDINATOR_NOT_AVAILABLE:
            yield self.rng.randint(5, 60)
            return False
        if answer.error_code:
            if answer.error_code == Code.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            elif answer.error_code in MOVED_ON:
                self._stop_if_replaced(answer.error_code)
                self._was_put_out(answer.error_code)
                self.member_id = ""
            else:
                raise Refused(f"{self.name}: JoinGroup", answer.error_code)
            return False
        self.member_id, self.generation = answer.member_id, answer.generation_id
        self._replace_other_selves()
        self.leads_for = -1
        assignments = self.lead(answer) if answer.leader == answer.member_id else []
        call = self._sync_call(assignments)
        asked_ms = self.world.loop.now_ms
        answer = yield from self.ask(call, REBALANCE_TIMEOUT_MS + 2000)
        if answer is LOST:
            return False
        # a lost request may still be carried out
        if answer.error_code == Code.COORDINATOR_NOT_AVAILABLE:
            yield self.rng.randint(5, 60)
            return False
        if answer.error_code:
            if answer.error_code not in MOVED_ON:
                raise Refused(f"{self.name}: SyncGroup", answer.error_code)
            self._stop_if_replaced(answer.error_code)
            self._was_put_out(answer.error_code)
            if answer.error_code == Code.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            return False
        self._was_let_on(asked_ms)
        self._was_heard(asked_ms)
        numbers = (read_assignment(bytes(answer.assignment)) or {}).get(self.topics[0], [])
        mine = [self.inputs[number] for number in numbers if number < len(self.inputs)]
        self.knows_too_few = len(self.inputs) if len(mine) < len(numbers) else None
        self.hold(mine, asked_ms)
        return (yield from self.fetch_offsets(mine))

    def _join_call(self) -> wire.Call:
        return wire.request(
            JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=self.session_timeout_ms,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type="consumer",
                protocols=[
                    JoinGroupRequestProtocol(name="range", metadata=subscription(self.topics))
                ],
            ),
            5 if self.instance_id is None else STATIC_JOIN_VERSION,
        )

    def _sync_call(self, assignments: list[Any]) -> wire.Call:
        return wire.request(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=assignments,
            ),
            3 if self.instance_id is None else STATIC_SYNC_VERSION,
        )

    def lead(self, answer: Any) -> list[Any]:
        """The assignments; none if the group continues unchanged, since its leader has only
        rejoined (KIP-814).

        Such a leader does not know how many partitions its former process has assigned, and assumes
        the initial number.
        """
        self.leads_for = (
            self.world.first_input_count if answer.skip_assignment else len(self.inputs)
        )
        return [] if answer.skip_assignment else self.assign(answer)

    def _stop_if_replaced(self, code: int) -> None:
        """Raise Fenced if another process has joined with this instance's name."""
        if code == Code.FENCED_INSTANCE_ID:
            raise Fenced

    @property
    def self_id(self) -> str:
        """An id that distinguishes this process of the member from earlier and later ones."""
        return self.member_id

    def _was_let_on(self, asked_ms: int, *, is_leave: bool = False) -> None:
        """Note in the history that the coordinator accepted this member. `asked_ms` is the time of
        the request.
        """
        self.world.history.accesses.append(
            Access(
                self.group,
                self.self_id,
                self.instance_id,
                self.generation,
                asked_ms,
                self.world.loop.now_ms,
                is_leave,
            )
        )

    def _was_heard(self, asked_ms: int) -> None:
        """Note the response to a heartbeat or SyncGroup: until its session time has passed since
        the request, the broker must not remove the member.
        """
        if self._may_have_lost_place(asked_ms):
            return
        self.heard_ms, self.heard_after = asked_ms, self.asked_after
        self._replace_other_selves()
        for holding in self.holdings.values():
            holding.until_ms = max(holding.until_ms, self._kept_until(asked_ms))

    def within_session(self, wait_ms: int) -> int:
        """The time to wait between two heartbeats. While draining, two heartbeats fit into the
        session, as with Kafka's clients, whose heartbeats come from a separate thread; before that,
        some sessions time out.
        """
        return min(wait_ms, self.session_timeout_ms // 3) if self.world.is_draining else wait_ms

    # --- what is its own -------------------------------------------------------------------------

    def _kept_until(self, heard_ms: int) -> int:
        """The time until which a member that gets no further response may assume that it owns its
        share.
        """
        return heard_ms + min(self.session_timeout_ms, REBALANCE_TIMEOUT_MS)

    def hold(self, partitions: list[Partition], asked_ms: int) -> None:
        """Note that the member owns these partitions, according to the response to a request that
        was sent at that time.
        """
        if self._may_have_lost_place(asked_ms):
            return
        world = self.world
        for partition in partitions:
            holding = Holding(
                self.group,
                self.instance_id or self.name,
                partition,
                world.loop.now_ms,
                self._kept_until(asked_ms),
                self.asked_after,
            )
            self.holdings[partition] = holding
            self.held.append(holding)
            world.history.holdings.append(holding)

    def end_holdings(self, partitions: Iterable[Partition] | None = None) -> None:
        """Note that these partitions (None: all of them) may be assigned to another member from now
        on.
        """
        for partition in list(self.holdings if partitions is None else partitions):
            holding = self.holdings.pop(partition, None)
            if holding is not None:
                holding.until_ms = min(holding.until_ms, self.world.loop.now_ms)

    def ask_for_place(self) -> None:
        """Note that the member is about to send a request to replace another process of its
        instance. From then on that process's partitions may be assigned again, whether or not a
        response arrives.
        """
        if self.instance_id is not None:
            self.asks_for_place = True
            asked_ms = self.world.place_asked_ms.setdefault((self.group, self.instance_id), {})
            asked_ms.setdefault(self.name, self.world.loop.now_ms)

    def _replace_other_selves(self) -> None:
        """Note that this process has replaced the other processes of its instance. These may still
        be working, although their partitions now belong to this process or to another member.
        """
        if self.instance_id is None:
            return
        since_ms = self.world.loop.now_ms
        if self.asks_for_place:
            asked_ms = self.world.place_asked_ms[self.group, self.instance_id]
            since_ms, own_ms = min(asked_ms.values()), asked_ms.pop(self.name)
            # requests of these processes may still be carried out later than this one's
            for name in asked_ms:
                asked_ms[name] = max(asked_ms[name], own_ms)
            self.asks_for_place = False
            place = self.group, self.instance_id
            self.world.place_taken[place] = self, self.world.loop.now_ms
        selves = self.world.selves.setdefault((self.group, self.instance_id), [])
        for other in selves:
            if other is not self:
                other.lose_place(since_ms)
        if self not in selves:
            selves.append(self)

    def _may_have_lost_place(self, asked_ms: int) -> bool:
        """Whether another process of its instance may have replaced this one after the request: the
        broker may have answered before that, and the response was slow.
        """
        if self.instance_id is None or self.asks_for_place:
            return False
        place = self.group, self.instance_id
        holder, taken_ms = self.world.place_taken.get(place, (self, -1))
        return holder is not self and taken_ms >= asked_ms

    def lose_place(self, since_ms: int) -> None:
        self.end_holdings()
        for holding in self.held:
            holding.until_ms = min(holding.until_ms, max(holding.from_ms, since_ms))

    def _note_taken(self, partitions: list[Partition], asked_ms: int) -> None:
        """Record that the broker accepted offsets from the member."""
        world = self.world
        world.history.taken_commits.extend(
            TakenCommit(
                self.group,
                self.instance_id or self.name,
                partition,
                asked_ms,
                world.loop.now_ms,
                self.asked_after,
            )
            for partition in partitions
        )

    def _was_put_out(self, code: int) -> None:
        """Handle a response which says that the group does not know this member. It is a finding if
        the member's session cannot have timed out.

        If the broker's process was stopped, no client times out whose request is in the socket when
        the process continues. A static member may have been replaced by another process with its
        name. If that process has left since, no member has the name. For offsets, a group of the
        consumer protocol knows only the current member id of an instance.
        """
        world = self.world
        heard_ms, self.heard_ms = self.heard_ms, -1
        if code != Code.UNKNOWN_MEMBER_ID or heard_ms < 0 or self.heard_after != world.fences:
            return
        if world.scenario.moves:
            # a rebalance may have ended without the member while it searched for its coordinator
            return
        if self.instance_id is not None and (
            world.departures.get((self.group, self.instance_id), -1) >= heard_ms
            or self.group in world.history.groups_of_consumer_protocol
        ):
            return
        now_ms = world.loop.now_ms
        arrived_ms = self.link.last_arrival_ms if self.link is not None else now_ms
        silent_ms = (
            now_ms - heard_ms - world.node.stood_still_ms(heard_ms, now_ms, arrived_ms=arrived_ms)
        )
        if silent_ms < self.session_timeout_ms:
            world.history.incident(
                "early",
                f"{self.name}: {self.group} put {self.member_id} out after {silent_ms} of "
                f"{self.session_timeout_ms} ms",
            )

    def wants_to_leave(self, share: float) -> bool:
        return (
            self.leaving > 0
            and bool(self.member_id)
            and not self.world.is_draining
            and self.rng.random() < share * self.leaving
        )

    def leave(self) -> Asking:
        """Send LeaveGroup, with the member's id or the instance's name. If the response is lost,
        later requests of the member may be refused.
        """
        if self.instance_id is None and self.rng.random() < 0.5:
            call = wire.request(LeaveGroupRequest(group_id=self.group, member_id=self.member_id), 1)
        else:
            members = [MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)]
            call = wire.request(LeaveGroupRequest(group_id=self.group, members=members), 3)
        asked_ms = self.world.loop.now_ms
        self.end_holdings()
        if self.instance_id is not None:
            self.world.departures[self.group, self.instance_id] = asked_ms
        answer = yield from self.ask(call)
        self.heard_ms = -1
        if answer is not LOST:
            code = answer.error_code or max(
                (member.error_code for member in answer.members), default=0
            )
            self._stop_if_replaced(code)
            if code not in (0, Code.UNKNOWN_MEMBER_ID, Code.COORDINATOR_NOT_AVAILABLE):
                raise Refused(f"{self.name}: LeaveGroup", code)
            if code == 0:
                self._was_let_on(asked_ms, is_leave=True)
                yield 1
                if (
                    self.rng.random() < 0.5 and self.link is not None and self.link.is_open
                ):  # not after a lost connection, since a kill may have restored the member
                    # as from a heartbeat thread that does not yet know of the leave
                    yield from self.heartbeat()
        self.member_id = ""
        yield self.rng.randint(10, 400)

    def assign(self, answer: Any) -> list[Any]:
        """The assignments by the leader: partitions are assigned to the members in turn, in order
        of their names.
        """
        members = sorted(member.member_id for member in answer.members)
        shares: dict[str, list[int]] = {member: [] for member in members}
        for number in range(len(self.inputs)):
            shares[members[number % len(members)]].append(number)
        return [
            SyncGroupRequestAssignment(
                member_id=member, assignment=write_assignment(0, {self.topics[0]: numbers})
            )
            for member, numbers in shares.items()
        ]

    def fetch_offsets(self, partitions: list[Partition]) -> Asking:
        """Fetch the group's offsets, once no open transaction may change them."""
        self.positions = {}
        if not partitions:
            return True
        self.read_epochs = {}
        found = yield from committed_offsets(self, self.group, partitions, self.read_epochs)
        self.positions = {partition: max(offset, 0) for partition, offset in found.items()}
        return True

    def heartbeat(self) -> Asking:
        """Send a heartbeat. Gives: whether the member may continue."""
        call = wire.request(
            HeartbeatRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
            ),
            3,
        )
        asked_ms = self.world.loop.now_ms
        answer = yield from self.ask(call)
        if answer is LOST or answer.error_code == Code.COORDINATOR_NOT_AVAILABLE:
            return False
        if answer.error_code and answer.error_code not in MOVED_ON:
            raise Refused(f"{self.name}: Heartbeat", answer.error_code)
        self._stop_if_replaced(answer.error_code)
        self._was_put_out(answer.error_code)
        if answer.error_code == Code.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if answer.error_code == 0:
            self._was_let_on(asked_ms)
            self._was_heard(asked_ms)
        return answer.error_code == 0

    # --- the work --------------------------------------------------------------------------------

    def work(self) -> Asking:
        """Work until the group moves on, or a response is lost; then uncommitted records are read
        again.
        """
        while not self.world.is_over:
            if not (yield from self.heartbeat()):
                return
            if 0 <= self.leads_for != len(self.inputs):
                return  # join again, since there are more partitions than were assigned
            if self.knows_too_few is not None and len(self.inputs) > self.knows_too_few:
                return  # join again, since it was assigned a partition that it did not know
            if self.wants_to_leave(0.15):
                return
            if not self.positions:
                self.is_idle = True
                yield self.within_session(self.rng.randint(100, 400))
                continue
            targets = [(topic, index, at) for (topic, index), at in self.positions.items()]
            max_wait_ms = self.within_session(400)
            answer = yield from self.ask(
                wire.fetch(targets, committed=True, max_wait_ms=max_wait_ms)
            )
            if answer is LOST:
                return
            rows: list[tuple[Partition, int]] = []
            moved: dict[Partition, int] = {}
            for found in answer.partitions:
                partition = (found.topic, found.partition)
                if (
                    found.error_code == Code.OFFSET_OUT_OF_RANGE
                    and self.world.may_forget
                    and not self.world.history.commits_are_durable
                ):
                    # a power loss preserved the offset but not its record
                    self.positions[partition] = 0
                    continue
                if found.error_code == Code.KAFKA_STORAGE_ERROR:
                    continue
                if found.error_code:
                    raise Refused(
                        f"{self.name}: Fetch of {partition} from {self.positions[partition]}",
                        found.error_code,
                    )
                opened, position = self.world.opener.records(
                    found, self.positions[partition], committed_only=True
                )
                if opened:
                    opened = opened[: self.most_rows(len(rows))]
                    rows.extend((partition, offset) for offset, _ in opened)
                    if opened:
                        moved[partition] = opened[-1][0] + 1
                elif position > self.positions[partition]:
                    self.positions[partition] = position
            self.is_idle = not rows
            if not rows:
                yield self.within_session(self.rng.randint(50, 300))
            elif not (yield from self.turn(rows, moved)):
                return

    def most_rows(self, taken: int) -> int | None:
        """The number of rows that the transaction may still take; None if unlimited. While
        draining, it is limited to what can be written within the transaction's timeout; before
        that, some transactions time out.
        """
        if not self.world.is_draining:
            return None
        return max(0, self.timeout_ms // SLOWEST_ROW_MS - taken)

    def turn(self, rows: list[tuple[Partition, int]], moved: dict[Partition, int]) -> Asking:
        """Run one transaction with an output for each row, and the offsets. Gives: False if it had
        no effect, or the group moved on.
        """
        world, rng = self.world, self.rng
        self.rounds_done += 1
        if world.is_draining and world.scenario.ids_expire:
            # Its transactional id may have expired while other members had all partitions, and
            # could expire again.
            yield from self.init(timeout_ms=self.timeout_ms)
        transaction = world.history.begin(
            f"{self.name}#{self.rounds_done}", session=self.session, now_ms=world.loop.now_ms
        )
        self.begin_version()
        try:
            output = rng.choice(self.outputs)
            yield from self.add_partitions([output])
            sources = [Source(self.group, partition, offset) for partition, offset in rows]
            for start in range(0, len(sources), 4):
                part = sources[start : start + 4]
                self.put(output, len(part), transaction, part)
            resolved = False
            try:
                resolved = yield from self.send_all(patience=0.8)
            except Refused as refusal:
                is_forgotten = refusal.code in SEQUENCE_ERRORS and self.may_have_expired(refusal)
                world.refused(refusal, is_explained=world.may_forget or is_forgotten)
            stall = (
                rng.choice(("before", "after"))
                if resolved and self.stalls > 0 and rng.random() < 0.4
                else ""
            )
            if stall:
                self.stalls -= 1
            if stall == "before":
                yield rng.randint(self.session_timeout_ms, 2 * self.session_timeout_ms)
            commit = resolved and (yield from self.send_offsets(moved)) and rng.random() < 0.9
            if stall == "after":
                yield rng.randint(self.session_timeout_ms, 2 * self.session_timeout_ms)
            yield from self.end(transaction, commit=commit)
            if not resolved and not self.is_version_2:
                yield from self.init(bump=True, timeout_ms=self.timeout_ms)
        except Fenced:
            self.note_end_of(transaction)
            raise
        if transaction.ending is not Ending.COMMITTED:
            return False
        self.positions.update(moved)
        return True

    def send_offsets(self, moved: dict[Partition, int]) -> Asking:
        """Send TxnOffsetCommit, which the group's generation fences; in transaction version 1, send
        AddOffsetsToTxn first.
        """
        if not self.is_version_2:
            call = wire.request(
                AddOffsetsToTxnRequest(
                    transactional_id=self.transactional_id,
                    producer_id=self.producer_id,
                    producer_epoch=self.epoch,
                    group_id=self.group,
                ),
                3,
            )
            answer = yield from self.insist(call, error_code)
            self.check(answer.error_code, "AddOffsetsToTxn")
        call = self._offsets_call(moved)
        asked_ms = self.world.loop.now_ms
        answer = yield from self.insist(
            call, lambda found: max(p.error_code for t in found.topics for p in t.partitions)
        )
        code = max(p.error_code for t in answer.topics for p in t.partitions)
        if code == 0:
            self._was_let_on(asked_ms)
            self._note_taken(list(moved), asked_ms)
        if code in self.moved_on:
            self._stop_if_replaced(code)
            self._was_put_out(code)
            self.world.trace("offsets refused", 0, f"{self.name} {name_of(code)}", 0, b"")
            if code == Code.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            return False
        self.check(code, "TxnOffsetCommit")
        return True

    def _offsets_call(self, moved: dict[Partition, int]) -> wire.Call:
        topics: dict[str, list[Any]] = {}
        for (name, index), offset in moved.items():
            topics.setdefault(name, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=-1,
                    committed_metadata="",
                )
            )
        return wire.request(
            TxnOffsetCommitRequest(
                transactional_id=self.transactional_id,
                group_id=self.group,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                topics=[
                    TxnOffsetCommitRequestTopic(name=name, partitions=partitions)
                    for name, partitions in topics.items()
                ],
            ),
            5 if self.is_version_2 else 3,
        )


def committed_offsets(
    client: Producer,
    group: str,
    partitions: list[Partition],
    epochs: dict[Partition, int] | None = None,
) -> Asking:
    """Send OffsetFetch until the offsets are stable. epochs: receives the leader epochs of the last
    records before the offsets.
    """
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    call = wire.request(
        OffsetFetchRequest(
            group_id=group,
            topics=[
                OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
                for name, indexes in topics.items()
            ],
            require_stable=True,
        ),
        7,
    )

    def code_of(answer: Any) -> int:
        return int(
            answer.error_code or max(p.error_code for t in answer.topics for p in t.partitions)
        )

    asked_ms = client.world.loop.now_ms
    lost_before = client.lost
    answer = yield from client.insist(call, code_of)
    if code_of(answer):
        raise Refused(f"{client.name}: OffsetFetch", code_of(answer))
    history, now_ms = client.world.history, client.world.loop.now_ms
    if client.lost > lost_before:
        asked_ms = -1
    for t in answer.topics:
        for p in t.partitions:
            if epochs is not None:
                epochs[t.name, p.partition_index] = p.committed_leader_epoch
            history.reported_offsets.append(
                ReportedOffset(
                    group,
                    (t.name, p.partition_index),
                    p.committed_offset,
                    group in DURABLE_GROUPS,
                    asked_ms,
                    now_ms,
                )
            )
    return {
        (t.name, p.partition_index): p.committed_offset for t in answer.topics for p in t.partitions
    }
