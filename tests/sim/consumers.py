"""Members of a group that read a topic and commit offsets, even while the topic is deleted and
created again, or truncated by a power loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from checkers import NEVER_MS, Commit, Partition

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from sim import wire
from sim.clients import Asking, Fenced, Refused
from sim.group import Worker
from sim.network import LOST
from sim.readers import EARLIEST, OTHER_EPOCH, Reader, last_epoch

if TYPE_CHECKING:
    from sim.world import World


class Consumer(Worker):
    """A member process. A topic that is deleted and created again has several lives. The member
    knows to which of them its positions belong, and fetches the group's offsets again in the next
    life.
    """

    def __init__(
        self,
        world: World,
        name: str,
        group: str,
        inputs: list[Partition],
        *,
        topic: str = "",
        instance_id: str | None = None,
        leaving: float = 0.0,
        dying: float = 0.0,
        session_timeout_ms: int = 0,
    ) -> None:
        super().__init__(
            world, name, "", group, inputs, [], 0, instance_id=instance_id, leaving=leaving
        )
        self.topic = topic or world.scenario.remade_topic
        self.dying = dying
        self.session_timeout_ms = session_timeout_ms or self.session_timeout_ms
        self.goes_on = world.scenario.members_go_on
        self.tells_epochs = bool(world.scenario.epoch_followers)
        # Like Kafka's clients, the member does not check by default whether the log still has the
        # committed offset.
        self.follows_epochs = world.scenario.epoch_followers > 1
        self.leader_epochs: dict[Partition, int] = {}
        self.topics = [self.topic]
        self.share: list[Partition] = []
        self.life: int | None = None

    def init(self, *, bump: bool = False, timeout_ms: int = 0) -> Asking:
        """Do nothing: a consumer does not write, so it needs no producer id."""
        return
        yield

    def lead(self, answer: Any) -> list[Any]:
        """The leader's assignments. A leader that has rejoined assigns again: meanwhile the topic
        may have been created again, with a different number of partitions.
        """
        assignments = super().lead(answer)
        if answer.skip_assignment:
            self.leads_for = 0
        return assignments

    def fetch_offsets(self, partitions: list[Partition]) -> Asking:
        """Fetch the offsets, and record to which life of the topic they belong."""
        self.share = partitions
        self.leader_epochs = {}
        asked_ms = self.world.loop.now_ms
        yield from super().fetch_offsets(
            [partition for partition in partitions if partition in self.inputs]
        )
        self.life = self._life_since(asked_ms)
        if self.life is None:
            self.positions = {}
        return True

    def _life_since(self, asked_ms: int) -> int | None:
        return self.world.history.life_at(self.topic, asked_ms, self.world.loop.now_ms)

    def _is_another_life(self) -> bool:
        lives = self.world.history.lives.get(self.topic)
        return lives is not None and self.life != (
            len(lives) - 1 if lives[-1].asked_ms == NEVER_MS else None
        )

    def work(self) -> Asking:
        """Work until the group moves on, or a response is lost; after a lost response some
        consumers continue from their positions, as Kafka's clients do.
        """
        while not self.world.is_over:
            lost = self.lost
            if not (yield from self.heartbeat()):
                if self.lost == lost or not self.goes_on:
                    return
                yield self.rng.randint(5, 60)
                continue
            if 0 <= self.leads_for != len(self.inputs) or self.wants_to_leave(0.15):
                return
            if self.dying and not self.world.is_draining and self.rng.random() < self.dying:
                if self.rng.random() < 0.5:
                    raise Fenced  # the process dies; it has not left the group
                yield self.rng.randint(self.session_timeout_ms // 2, 2 * self.session_timeout_ms)
            if self.share and (self.life is None or self._is_another_life()):
                yield self.rng.randint(5, 60)
                yield from self.fetch_offsets(self.share)
                continue
            if not self.positions:
                self.is_idle = True
                yield self.within_session(self.rng.randint(100, 400))
                continue
            if self.follows_epochs and not (yield from self._follow_epochs()):
                if not self.goes_on:
                    return
                continue
            asked_ms = self.world.loop.now_ms
            targets = [(*p, at, self.leader_epochs.get(p, -1)) for p, at in self.positions.items()]
            max_wait_ms = self.within_session(400)
            answer = yield from self.ask(
                wire.fetch(targets, committed=True, max_wait_ms=max_wait_ms)
            )
            if answer is LOST:
                if not self.goes_on:
                    return
                continue
            if self._life_since(asked_ms) != self.life:
                continue
            has_moved, gone = self._take(answer)
            for partition in gone:
                yield from self._begin_again(partition)
            self.is_idle = not has_moved
            if not has_moved:
                yield self.within_session(self.rng.randint(50, 300))
            elif not (yield from self.commit()) and (self.lost == lost or not self.goes_on):
                return

    def _follow_epochs(self) -> Asking:
        """Fetch the leader epochs, and go back if a log was truncated, as librdkafka does. Gives:
        False if a response was lost.
        """
        guide = Reader(
            self.world, self.name, list(self.positions), committed_only=True, follows_epochs=True
        )
        guide.link, guide.positions = self.link, self.positions
        guide.leader_epochs, guide.read_epochs = self.leader_epochs, self.read_epochs
        yield from guide.follow_epochs()
        self.link = guide.link
        self.lost += guide.lost
        return guide.lost == 0

    def _take(self, answer: wire.FetchAnswer) -> tuple[bool, list[Partition]]:
        """Process a fetch response. Gives: whether there was anything to read, and the partitions
        whose position is out of range. Raises: Refused.
        """
        has_moved = False
        gone: list[Partition] = []
        for found in answer.partitions:
            partition = (found.topic, found.partition)
            if found.error_code == Code.OFFSET_OUT_OF_RANGE:
                gone.append(partition)
                continue
            if found.error_code == Code.KAFKA_STORAGE_ERROR:
                continue
            if found.error_code in OTHER_EPOCH and self.follows_epochs:
                self.leader_epochs.pop(partition, None)
                continue
            if found.error_code:
                raise Refused(
                    f"{self.name}: Fetch of {partition} from {self.positions[partition]}",
                    found.error_code,
                )
            rows, position = self.world.opener.records(
                found, self.positions[partition], committed_only=True
            )
            assert self.life is not None
            self.world.history.consumed.update(
                (self.group, partition, self.life, value) for _, value in rows
            )
            has_moved = has_moved or position > self.positions[partition]
            self.positions[partition] = position
            if found.records:
                self.read_epochs[partition] = last_epoch(found.records)
        return has_moved, gone

    def _begin_again(self, partition: Partition) -> Asking:
        """Continue from the log's start, as with auto.offset.reset=earliest, since the group's
        offset is out of range.

        This is a finding if nothing was deleted, and neither a power loss nor a commit of another
        life explains it.
        """
        history = self.world.history
        probe = Reader(self.world, self.name, [partition], committed_only=True)
        start = yield from probe.offset_at(partition, EARLIEST)
        probe.hang_up()
        position = self.positions.get(partition)
        if start is None or position is None:
            return
        if (
            position >= start
            and not self.world.may_forget
            and self.group not in history.unsure_groups
        ):
            history.incident(
                "offsets",
                f"{self.name}: {self.group} stands at {position} of {partition}, out of its range",
            )
        self.positions[partition] = start

    def commit(self) -> Asking:
        """Send an OffsetCommit with this member's positions. Gives: False if the response is lost,
        or if the group has moved on.
        """
        history = self.world.history
        standing = dict(self.positions)
        epochs = self.read_epochs if self.tells_epochs else {}
        rows = [
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=epochs.get(partition, -1),
                committed_metadata="",
            )
            for partition, offset in standing.items()
            for index in partition[1:]
        ]
        call = self.commit_call(rows)
        asked_ms, life = self.world.loop.now_ms, self.life
        if life is not None:
            history.commits_asked.update((self.group, partition, life) for partition in standing)
        answer: Any = yield from self.ask(call)
        if life is None or self._life_since(asked_ms) != life:
            history.unsure_groups.add(self.group)
            return False
        if answer is LOST:
            return False
        code = max(partition.error_code for partition in answer.topics[0].partitions)
        if code == Code.COORDINATOR_NOT_AVAILABLE:
            return False  # the disk is full; the next commit includes this position
        if code in self.moved_on:
            self._stop_if_replaced(code)
            self._was_put_out(code)
            if code == Code.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            return False
        self.check(code, "OffsetCommit")
        self._was_let_on(asked_ms)
        self._note_taken(list(standing), asked_ms)
        history.commits.extend(
            Commit(self.group, partition, offset, life, asked_ms)
            for partition, offset in standing.items()
        )
        return True

    def commit_call(self, rows: list[OffsetCommitRequestPartition]) -> wire.Call:
        return wire.request(
            OffsetCommitRequest(
                group_id=self.group,
                generation_id_or_member_epoch=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                topics=[OffsetCommitRequestTopic(name=self.topic, partitions=rows)],
            ),
            7,
        )
