"""Members of a group that read a topic and commit what they have read, also while it is deleted and made again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from checkers import NEVER_MS, Commit, Partition

from barnabas.protocol.errors import Code
from sim import wire
from sim.clients import Asking, Refused
from sim.group import MOVED_ON, Worker
from sim.network import LOST

if TYPE_CHECKING:
    from sim.world import World


class Consumer(Worker):
    """One instance. It knows of which life of the topic its positions are, and asks for the group's offsets anew in the next."""

    def __init__(
        self, world: World, name: str, group: str, inputs: list[Partition], *, instance_id: str | None = None, leaving: float = 0.0
    ) -> None:
        super().__init__(world, name, "", group, inputs, [], 0, instance_id=instance_id, leaving=leaving)
        self.topic = world.scenario.remade_topic
        self.topics = [self.topic]
        self.share: list[Partition] = []
        self.life: int | None = None

    def init(self, *, bump: bool = False, timeout_ms: int = 0) -> Asking:
        """It writes nothing, so it needs no producer id."""
        return
        yield

    def lead(self, answer: Any) -> list[Any]:
        """A leader that has come back shares out anew: the topic may have been made again since, with other partitions."""
        assignments = super().lead(answer)
        if answer.skip_assignment:
            self.leads_for = 0
        return assignments

    def fetch_offsets(self, partitions: list[Partition]) -> Asking:
        self.share = partitions
        asked_ms = self.world.loop.now_ms
        yield from super().fetch_offsets([partition for partition in partitions if partition in self.inputs])
        self.life = self._life_since(asked_ms)
        if self.life is None:
            self.positions = {}
        return True

    def _life_since(self, asked_ms: int) -> int | None:
        return self.world.history.life_at(self.topic, asked_ms, self.world.loop.now_ms)

    def _is_another_life(self) -> bool:
        lives = self.world.history.lives[self.topic]
        return self.life != (len(lives) - 1 if lives[-1].asked_ms == NEVER_MS else None)

    def work(self) -> Asking:
        """Until the group moves on, or an answer is lost."""
        while not self.world.is_over:
            if not (yield from self.heartbeat()):
                return
            if 0 <= self.leads_for != len(self.inputs) or self.wants_to_leave(0.15):
                return
            if self.share and (self.life is None or self._is_another_life()):
                yield self.rng.randint(5, 60)
                yield from self.fetch_offsets(self.share)
                continue
            if not self.positions:
                self.is_idle = True
                yield self.rng.randint(100, 400)
                continue
            asked_ms = self.world.loop.now_ms
            targets = [(topic, index, at) for (topic, index), at in self.positions.items()]
            answer = yield from self.ask(wire.fetch(targets, committed=True, max_wait_ms=400))
            if answer is LOST:
                return
            if self._life_since(asked_ms) != self.life:
                continue
            has_moved = self._take(answer)
            self.is_idle = not has_moved
            if not has_moved:
                yield self.rng.randint(50, 300)
            elif not (yield from self.commit()):
                return

    def _take(self, answer: wire.FetchAnswer) -> bool:
        """Whether there was anything. Raises: Refused."""
        has_moved = False
        for found in answer.partitions:
            partition = (found.topic, found.partition)
            if found.error_code == Code.OFFSET_OUT_OF_RANGE:
                self._begin_anew(partition)
                continue
            if found.error_code == Code.KAFKA_STORAGE_ERROR:
                continue
            if found.error_code:
                raise Refused(f"{self.name}: Fetch of {partition} from {self.positions[partition]}", found.error_code)
            rows, position = self.world.opener.records(found, self.positions[partition], committed_only=True)
            assert self.life is not None
            self.world.history.consumed.update((self.group, partition, self.life, offset) for offset, _ in rows)
            has_moved = has_moved or position > self.positions[partition]
            self.positions[partition] = position
        return has_moved

    def _begin_anew(self, partition: Partition) -> None:
        """The group's offset is out of range. That is a finding where neither a power loss nor a commit of another life explains it."""
        history = self.world.history
        if not self.world.may_forget and self.group not in history.unsure_groups:
            history.incident("offsets", f"{self.name}: {self.group} stands at {self.positions[partition]} of {partition}, out of its range")
        self.positions[partition] = 0

    def commit(self) -> Asking:
        """OffsetCommit of where it stands. False: the answer is lost, or the group has moved on."""
        history = self.world.history
        topic = wire.messages.OffsetCommitRequest.OffsetCommitRequestTopic
        standing = dict(self.positions)
        rows = [
            topic.OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
            )
            for (_, index), offset in standing.items()
        ]
        call = wire.request(
            "OffsetCommit",
            7,
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[topic(name=self.topic, partitions=rows)],
        )
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
        if code in MOVED_ON:
            self._stop_if_replaced(code)
            if code == Code.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            return False
        self.check(code, "OffsetCommit")
        self._was_let_on(asked_ms)
        history.commits.extend(Commit(self.group, partition, offset, life) for partition, offset in standing.items())
        return True
