"""Members of the consumer protocol (KIP-848): their heartbeats list the partitions that they own,
and the responses those that they should own.

They do the work of `group.py` and `consumers.py`, together with classic members or instead of them.
A member that missed the response to a heartbeat sends all fields in the next one, as Kafka's
clients do.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from checkers import Partition, ReportedOffset

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from sim import wire
from sim.clients import RETRIABLE, Asking, Refused
from sim.consumers import Consumer
from sim.group import DURABLE_GROUPS, MOVED_ON, REBALANCE_TIMEOUT_MS, Worker
from sim.network import LOST

if TYPE_CHECKING:
    from sim.world import World

JOINING, LEAVING, LEAVING_FOR_A_WHILE = 0, -1, -2
PUT_OUT = frozenset({Code.UNKNOWN_MEMBER_ID, Code.GROUP_ID_NOT_FOUND})
"""After the group's last member of this protocol was removed, the group is a classic one, or
deleted.
"""


class ConsumerProtocolWorker(Worker):
    """A worker with the consumer protocol; `generation` is its member epoch.

    owned: the partitions that it was assigned and has not revoked. is_sure: whether all its
    heartbeats got responses. joins: how often it has sent a joining heartbeat. Its id stays the
    same, so it may join again with the id of an instance that another process has taken over.
    """

    speaks_consumer_protocol = True
    moved_on = MOVED_ON | {
        Code.STALE_MEMBER_EPOCH,
        Code.FENCED_MEMBER_EPOCH,
        Code.GROUP_ID_NOT_FOUND,
    }

    def __init__(self, world: World, name: str, *rest: Any, **more: Any) -> None:
        super().__init__(world, name, *rest, **more)
        world.history.groups_of_consumer_protocol.add(self.group)
        self.generation = JOINING
        self.session_timeout_ms = world.scenario.session_timeout_ms
        self.owned: list[Partition] = []
        self.is_sure = False
        self.joins = 0
        self.heartbeat_version = self.rng.randint(0, 1)
        self.assignor = self.rng.choice((None, "uniform", "range"))

    # --- the group -------------------------------------------------------------------------------

    def join(self) -> Asking:
        """Become a member, or get the current assignment. Gives: whether it may work."""
        if not self.member_id:
            self.generation = JOINING
            # With version 0 the broker assigns the id.
            self.member_id = self._new_id() if self.heartbeat_version else ""
        if self.generation == JOINING:
            self.release_all()
        self.is_sure = False
        if (yield from self.heartbeat()):
            return True
        yield self.rng.randint(5, 60)
        return False

    @property
    def self_id(self) -> str:
        return f"{self.member_id}/{self.joins}"

    def _new_id(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def heartbeat(self) -> Asking:
        """Send heartbeats until there is nothing left to revoke. Gives: whether the member may
        continue.
        """
        if not self.member_id and self.generation != JOINING:
            return False  # join again, since the response to a commit said that it was removed
        while True:
            asked_ms, tells_all = self.world.loop.now_ms, not self.is_sure
            owned_before = list(self.owned)
            self.is_sure = False
            if self.generation == JOINING:
                self.joins += 1
                self.ask_for_place()
            answer = yield from self.ask(self._heartbeat_call(tells_all=tells_all))
            if answer is LOST or answer.error_code in RETRIABLE:
                return False
            if answer.error_code:
                self._was_refused(answer.error_code)
                return False
            self.member_id, self.generation = answer.member_id, answer.member_epoch
            self.is_sure = True
            self._was_let_on(asked_ms)
            self._was_heard(asked_ms)
            if answer.assignment is not None:
                self._own(self._partitions(answer.assignment), asked_ms)
            if not (yield from self._take_up()):
                return False
            if self.owned == owned_before:
                return True
            self.is_sure = False  # another heartbeat, which lists the partitions that it owns now

    def _own(self, reported: list[Partition], asked_ms: int) -> None:
        """Own exactly these partitions."""
        self.release([partition for partition in self.owned if partition not in reported])
        new = [partition for partition in reported if partition not in self.owned]
        self.owned = [partition for partition in self.owned if partition in reported] + new
        self.hold(new, asked_ms)

    def _heartbeat_call(self, *, tells_all: bool, epoch: int | None = None) -> wire.Call:
        epoch = self.generation if epoch is None else epoch
        ids = self.world.topic_ids
        rows = [
            TopicPartitions(ids[topic], [index for name, index in self.owned if name == topic])
            for topic in dict.fromkeys(name for name, _ in self.owned)
        ]
        return wire.request(
            ConsumerGroupHeartbeatRequest(
                group_id=self.group,
                member_id=self.member_id,
                member_epoch=epoch,
                instance_id=self.instance_id,
                rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if tells_all else -1,
                subscribed_topic_names=list(self.topics) if tells_all else None,
                server_assignor=self.assignor if tells_all else None,
                topic_partitions=rows if tells_all else None,
            ),
            self.heartbeat_version,
        )

    def _was_refused(self, code: int) -> None:
        """Revoke all partitions and join again, since the member was removed or its epoch is not
        the group's.

        Raises: Fenced, Refused.
        """
        self._stop_if_replaced(code)
        if code == Code.UNRELEASED_INSTANCE_ID:
            return  # try again, since the previous process of the instance is still a member
        if code not in self.moved_on:
            raise Refused(f"{self.name}: ConsumerGroupHeartbeat", code)
        self._was_put_out(Code.UNKNOWN_MEMBER_ID if code in PUT_OUT else code)
        self.generation = JOINING
        self.release_all()

    def _partitions(self, assignment: Any) -> list[Partition]:
        names = {topic_id: name for name, topic_id in self.world.topic_ids.items()}
        return [
            (names[row.topic_id], index)
            for row in assignment.topic_partitions
            for index in row.partitions
        ]

    def release(self, partitions: list[Partition]) -> None:
        """Stop working on partitions: the next owner continues from the committed offsets."""
        self.end_holdings(partitions)
        for partition in partitions:
            self.positions.pop(partition, None)

    def release_all(self) -> None:
        self.end_holdings()
        self.owned, self.positions = [], {}

    def wants_to_leave(self, share: float) -> bool:
        return self.generation != JOINING and super().wants_to_leave(share)

    def leave(self) -> Asking:
        """Send a heartbeat with epoch -1. In half of the cases a static member sends -2 instead,
        and keeps its membership for the rest of its session.
        """
        is_for_a_while = self.instance_id is not None and self.rng.random() < 0.5
        asked_ms = self.world.loop.now_ms
        if self.instance_id is not None:
            self.world.departures[self.group, self.instance_id] = asked_ms
        self.release_all()
        answer = yield from self.ask(
            self._heartbeat_call(
                tells_all=False, epoch=LEAVING_FOR_A_WHILE if is_for_a_while else LEAVING
            )
        )
        self.heard_ms = -1
        if answer is not LOST and answer.error_code not in RETRIABLE:
            self._stop_if_replaced(answer.error_code)
            if answer.error_code not in (0, *PUT_OUT):
                raise Refused(f"{self.name}: leaving", answer.error_code)
            if answer.error_code == 0 and not is_for_a_while:
                self._was_let_on(asked_ms, is_leave=True)
        self.member_id, self.generation = "", JOINING
        yield self.rng.randint(10, 400)

    # --- offsets ---------------------------------------------------------------------------------

    def _take_up(self) -> Asking:
        """Continue at the group's offsets in newly owned partitions, once no open transaction may
        change these. Gives: False if the group has moved on.
        """
        partitions = [partition for partition in self.owned if partition not in self.positions]
        if not partitions:
            return True
        asked_ms, lost_before = self.world.loop.now_ms, self.lost

        def code_of(answer: Any) -> int:
            (group,) = answer.groups
            return int(
                group.error_code or max(p.error_code for t in group.topics for p in t.partitions)
            )

        answer = yield from self.insist(self._fetch_call(partitions), code_of)
        code = code_of(answer)
        if code in self.moved_on:
            self._was_put_out(code)
            return False
        self.check(code, "OffsetFetch")
        names = {topic_id: name for name, topic_id in self.world.topic_ids.items()}
        for topic in answer.groups[0].topics:
            for row in topic.partitions:
                partition = (topic.name or names[topic.topic_id], row.partition_index)
                self.positions[partition] = max(row.committed_offset, 0)
                self.read_epochs[partition] = row.committed_leader_epoch
                self.world.history.reported_offsets.append(
                    ReportedOffset(
                        self.group,
                        partition,
                        row.committed_offset,
                        self.group in DURABLE_GROUPS,
                        asked_ms if self.lost == lost_before else -1,
                        self.world.loop.now_ms,
                    )
                )
        return True

    def _fetch_call(self, partitions: list[Partition]) -> wire.Call:
        version = self.rng.choice((9, 10))
        topics: dict[str, list[int]] = {}
        for name, index in partitions:
            topics.setdefault(name, []).append(index)
        rows = [
            OffsetFetchRequestTopics(
                name=name if version < 10 else "",
                topic_id=self.world.topic_ids[name] if version >= 10 else None,
                partition_indexes=indexes,
            )
            for name, indexes in topics.items()
        ]
        group = OffsetFetchRequestGroup(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.generation,
            topics=rows,
        )
        return wire.request(OffsetFetchRequest(groups=[group], require_stable=True), version)


class ConsumerProtocolConsumer(ConsumerProtocolWorker, Consumer):
    """A consumer with the consumer protocol, of a topic that is not deleted."""

    def __init__(self, world: World, name: str, *rest: Any, **more: Any) -> None:
        super().__init__(world, name, *rest, **more)
        self.life = 0

    def release(self, partitions: list[Partition]) -> None:
        super().release(partitions)
        for partition in partitions:
            self.leader_epochs.pop(partition, None)

    def commit_call(self, rows: list[OffsetCommitRequestPartition]) -> wire.Call:
        version = self.rng.choice((9, 10))
        topic = OffsetCommitRequestTopic(
            name=self.topic if version < 10 else "",
            topic_id=self.world.topic_ids[self.topic] if version >= 10 else None,
            partitions=rows,
        )
        return wire.request(
            OffsetCommitRequest(
                group_id=self.group,
                generation_id_or_member_epoch=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                topics=[topic],
            ),
            version,
        )
