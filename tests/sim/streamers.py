"""Members of a streams group (KIP-1071), and invariants of their tasks.

A member joins, sends heartbeats and revokes tasks on demand; it leaves, is silent for longer than
its session, or dies and returns with another id, as a restarted process does. The invariants are
checked after each response: no task is active on two members of the group, according to the last
responses that the members received, and a member's epoch never decreases. At the end, each task is
active on exactly one member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.coordinator.groups.streams.streams_group import STABLE, StreamsGroup
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    Topology,
)
from sim import wire
from sim.clients import RETRIABLE, Asking, Client
from sim.network import LOST
from sim.scenario import STREAMS_SESSION_MS

if TYPE_CHECKING:
    from sim.world import World

REBALANCE_MS = 1000
OVER = frozenset({Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH, Code.GROUP_ID_NOT_FOUND})
LEAVING = -1

Task = tuple[str, int]


class Group:
    """A group whose topology has one subtopology for each topic. `members` are the running
    members.
    """

    def __init__(self, world: World, name: str, topics: dict[str, int]) -> None:
        self.world, self.name, self.topics = world, name, topics
        self.members: list[Streamer] = []

    @property
    def topology(self) -> Topology:
        return Topology(0, [Subtopology(name, [name], [], [], [], [], []) for name in self.topics])

    @property
    def tasks(self) -> set[Task]:
        return {(name, index) for name, count in self.topics.items() for index in range(count)}

    def state(self) -> StreamsGroup | None:
        """The broker's state of the group; None if the group does not exist."""
        broker = self.world.node.broker
        group = None if broker is None else broker.groups.group(self.name)
        typed = None if group is None else group.modern
        return typed if isinstance(typed, StreamsGroup) else None

    def check(self) -> None:
        """Check that no task is active on two members."""
        state = self.state()
        if state is None:
            return
        owners: dict[Task, str] = {}
        for member in self.members:
            if member.epoch > 0 and member.id in state.members:
                for task in member.active:
                    other = owners.setdefault(task, member.id)
                    if other != member.id:
                        self.world.history.incident(
                            "owners", f"{self.name}: {task} is active at {other} and {member.id}"
                        )

    def is_at_rest(self) -> bool:
        """Whether each task is active at one member, and the group has no other members."""
        state = self.state()
        if state is None or state.state_name != STABLE:
            return False
        active = [task for member in self.members for task in member.active]
        ids = {member.id for member in self.members}
        return set(state.members) == ids and sorted(active) == sorted(self.tasks)


class Streamer(Client):
    """A member of the streams group. `sent` has the tasks that its last heartbeat listed."""

    def __init__(self, world: World, number: int, group: Group) -> None:
        super().__init__(world, f"{group.name}.{number}")
        self.group, self.number, self.incarnation = group, number, 0
        self._begin()

    def _begin(self) -> None:
        """Start again, as another process with another id."""
        self.incarnation += 1
        self.id, self.epoch = f"{self.name}.{self.incarnation}", 0
        self.active: set[Task] = set()
        self.sent: set[Task] | None = None

    def run(self) -> Asking:
        self.group.members.append(self)
        rng = self.rng
        while not self.world.is_over:
            what = 1.0 if self.world.is_draining else rng.random()
            if self.epoch > 0 and what < 0.02:
                yield from self._ask(LEAVING)
                self._begin()
            elif what < 0.04:  # the process dies, and another takes its place
                self.hang_up()
                self._begin()
                yield rng.randint(5, 2 * STREAMS_SESSION_MS)
            elif what < 0.06:  # the member is silent for so long that the group may remove it
                yield rng.randint(STREAMS_SESSION_MS // 2, 2 * STREAMS_SESSION_MS)
            else:
                yield from self._beat()
            yield rng.randint(20, 300)

    def _beat(self) -> Asking:
        """Send a heartbeat, and take the tasks of its response."""
        before = self.epoch
        answer = yield from self._ask(self.epoch)
        if answer is LOST:
            self.sent = None  # the next heartbeat lists all tasks again
            if before == 0:
                self._begin()
            return
        if answer.error_code in OVER:
            self._begin()
        elif answer.error_code == Code.NONE:
            if answer.member_epoch < before:
                self.world.history.incident("owners", f"{self.id}: its epoch goes back")
            self.epoch = answer.member_epoch
            if answer.active_tasks is not None:
                self.active = {
                    (row.subtopology_id, index)
                    for row in answer.active_tasks
                    for index in row.partitions
                }
            self.group.check()
        elif answer.error_code not in RETRIABLE:
            self.world.history.incident(
                "refused", f"{self.id}: a heartbeat: {answer.error_code} {answer.error_message}"
            )

    def _ask(self, epoch: int) -> Asking:
        """Send a heartbeat with this epoch. It lists the active tasks only if they have changed."""
        request = StreamsGroupHeartbeatRequest(self.group.name, self.id, epoch)
        if epoch == 0:
            request.topology, request.process_id = self.group.topology, self.id
            request.rebalance_timeout_ms = REBALANCE_MS
        if epoch == 0 or (epoch > 0 and self.sent != self.active):
            request.active_tasks = _rows(self.active)
            request.standby_tasks, request.warmup_tasks = [], []
            self.sent = set(self.active)
        return (yield from self.ask(wire.request(request, 0)))


def _rows(tasks: set[Task]) -> list[Any]:
    names: dict[str, list[int]] = {}
    for name, index in sorted(tasks):
        names.setdefault(name, []).append(index)
    return [TaskIds(name, indexes) for name, indexes in names.items()]
