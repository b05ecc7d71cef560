"""Invariants of share groups with random members; administrators that set, delete and describe
offsets; topics that are created, grow and are deleted; lost responses; restarts; and a share
coordinator that is late or refuses.

These hold after every step. A new coordinator that replays the log has the same hard state (which
the host checks). A partition is assigned only if its share state is initialised, and only to
members that want its topic. States that the group lists as initialised exist. At the end, after
undisturbed heartbeats, each partition that a member wants is assigned to as many members as the
assignor decides, and no state remains to be initialised or deleted.

The tests also find planted defects.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from helpers.examples import drawn
from helpers.group_host import GroupHost
from helpers.strays import wrong_deadlines
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.coordinator.groups.consumer.assignors import Assignment
from barnabas.coordinator.groups.share import partition_states
from barnabas.coordinator.groups.share.share_group import ShareGroup
from barnabas.coordinator.groups.share.share_group_change import ShareGroupChange
from barnabas.coordinator.groups.share.share_group_settings import ShareGroupSettings
from barnabas.coordinator.groups.share.share_groups import share_group
from barnabas.coordinator.groups.share.simple_assignor import MemberToAssign, assign_simple
from barnabas.coordinator.result import Result, StateRow
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from barnabas.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequestTopic,
)

NAMES = ("a", "b", "c", "d", "e")
SUBSCRIPTIONS = (["t"], ["t", "u"], ["u"], ["t", "missing"], ["u", "t"])
PAUSES_MS = (1, 500, 1_000, 3_000, 11_000, 31_000)
INTERVAL_MS, RETRY_MS = 500, 5_000
GROUP = "g"
PATIENT = ("share.session.timeout.ms", 10_000)


class Step(NamedTuple):
    kind: str
    who: int
    what: int


KINDS = {
    "beat": 14, "round": 6, "lose answer": 3, "subscribe": 2, "leave": 2, "die": 1, "pause": 4,
    "grow": 1, "delete": 1, "create": 1, "restart": 1, "late": 1, "in time": 2, "refuse": 1,
    "forget": 1, "alter": 2, "delete offsets": 1, "delete group": 1,
}  # fmt: skip
STEPS = st.builds(
    Step,
    st.sampled_from([kind for kind, weight in KINDS.items() for _ in range(weight)]),
    st.integers(0, len(NAMES) - 1),
    st.integers(0, 5),
)


class Actor:
    """A client that acts on the last response it received."""

    def __init__(self, host: GroupHost, name: str) -> None:
        self.host, self.id = host, name
        self.topics, self.epoch, self.is_full = ["t"], 0, True
        self.owned: set[tuple[uuid.UUID, int]] = set()

    def beat(self, *, hears: bool = True) -> None:
        """Send a heartbeat, and do what the response requires. If `hears` is false, the response is
        lost.
        """
        answer = self.host.share_heartbeat(
            self.id, self.epoch, topics=self.topics if self.is_full else None
        )
        self.is_full = not hears
        if not hears:
            return
        if answer.error_code == Code.NONE:
            assert answer.member_epoch >= self.epoch, "an epoch goes back"
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = {
                    (row.topic_id, index)
                    for row in answer.assignment.topic_partitions
                    for index in row.partitions
                }
        else:
            assert answer.error_code in (
                Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH, Code.GROUP_ID_NOT_FOUND
            ), answer  # fmt: skip
            self.epoch, self.owned, self.is_full = 0, set(), True

    def subscribe(self, topics: list[str]) -> None:
        self.topics, self.is_full = topics, True
        self.beat()

    def leave(self) -> None:
        self.host.share_heartbeat(self.id, -1)
        self.epoch, self.owned, self.is_full = 0, set(), True


class World:
    """The coordinator's host and the clients."""

    def __init__(self, interval_ms: int) -> None:
        self.host = GroupHost(
            topics={"t": 3, "u": 2},
            partition_count=1,
            share_settings=ShareGroupSettings(initialize_retry_interval_ms=RETRY_MS),
        )
        self.host.overrides[GROUP] = {
            "share.assignment.interval.ms": interval_ms,
            PATIENT[0]: PATIENT[1],
        }
        self.actors = [Actor(self.host, name) for name in NAMES]
        self.is_active = dict.fromkeys(NAMES, False)

    def take(self, step: Step) -> None:
        """Make one step: an action of a member, or a change of its environment."""
        actor = self.actors[step.who]
        match step.kind:
            case "beat":
                self.is_active[actor.id] = True
                actor.beat()
            case "round":
                for other in self.actors:
                    if self.is_active[other.id] and other is not actor:
                        other.beat()
            case "lose answer":
                actor.beat(hears=False)
            case "subscribe":
                actor.subscribe(list(SUBSCRIPTIONS[step.what % len(SUBSCRIPTIONS)]))
            case "leave":
                self.is_active[actor.id] = False
                actor.leave()
            case "die":
                self.is_active[actor.id] = False
                actor.epoch, actor.owned, actor.is_full = 0, set(), True
            case _:
                self.change(step)

    def change(self, step: Step) -> None:
        """Make a step that is not an action of a member: change the topics, the time or the
        coordinator.
        """
        host, what = self.host, step.what
        match step.kind:
            case "pause":
                host.pass_time(PAUSES_MS[what])
            case "grow":
                if "t" in host.topics:
                    host.topics["t"] += what % 2
            case "delete":
                name = ("t", "u")[what % 2]
                if name in host.topics:
                    host.delete_topics(name)
            case "create":
                host.topics.setdefault(("t", "u")[what % 2], 1 + what % 3)
            case "restart":
                host.share_states.pending.clear()
                host.restart()
            case "late":
                host.share_states.at_once = False
            case "in time":
                host.share_states.at_once, host.share_states.failing = True, Code.NONE
                host.change_states()
            case "refuse":
                host.share_states.failing = Code.COORDINATOR_NOT_AVAILABLE
            case "forget":
                host.share_states.pending.clear()
            case _:
                self.administer(step)

    def administer(self, step: Step) -> None:
        """Send a request of an administrator: set or delete offsets, or delete the group."""
        host, what = self.host, step.what
        name = ("t", "u", "missing")[what % 3]
        if step.kind == "alter":
            rows = [AlterShareGroupOffsetsRequestPartition(what % 2, what)]
            topics = [AlterShareGroupOffsetsRequestTopic(name, rows)]
            host.send("AlterShareGroupOffsets", 0, group_id=GROUP, topics=topics)
        elif step.kind == "delete offsets":
            topics_to_delete = [DeleteShareGroupOffsetsRequestTopic(name)]
            host.send("DeleteShareGroupOffsets", 0, group_id=GROUP, topics=topics_to_delete)
        elif host.share_states.at_once:
            assert host.delete_groups(GROUP)[0][1] in (
                Code.NONE, Code.NON_EMPTY_GROUP, Code.GROUP_ID_NOT_FOUND
            )  # fmt: skip

    def share(self) -> ShareGroup:
        group = self.host.coordinator.group(GROUP)
        return ShareGroup() if group is None else share_group(group)

    def check(self) -> None:
        """Check that only wanted partitions with an initialised share state are assigned."""
        share, host = self.share(), self.host
        assert wrong_deadlines(host.coordinator) == []
        assert share.members or share.epoch == share.target_epoch, "KAFKA-20442"
        for topic_id, (_, partitions) in share.states.initialized.items():
            for index in partitions:
                assert (GROUP, topic_id, index) in host.share_states.offsets, "a state is missing"
        for member_id, current in share.currents.items():
            names = share.members[member_id].subscribed_topic_names
            for topic_id, indexes in current.assigned.items():
                name = host.directory.name(topic_id)
                assert name is None or name in names, "a topic that is not wanted is assigned"
                initialized = share.states.initialized.get(topic_id)
                assert name is None or (
                    initialized is not None and set(indexes) <= set(initialized.partitions)
                ), "a partition without a state is assigned"

    def settle(self) -> None:
        """Send undisturbed heartbeats until the group is stable, and check that each wanted
        partition is assigned.
        """
        host = self.host
        host.share_states.at_once, host.share_states.failing = True, Code.NONE
        host.change_states()
        host.topics.setdefault("t", 2)
        # With checks, each event replays the whole log. A single check at the end is enough.
        host.checks = False
        for _ in range(25):
            for actor in self.actors:
                actor.beat()
            host.pass_time(700)
        self.check()
        host.checks = True
        host.handle(Result())
        share = self.share()
        assert share.members.keys() == set(NAMES)
        # what an administrator began for a topic that no member wants waits for one that does
        subscribed = {name for actor in self.actors for name in actor.topics}
        waiting = {host.directory.name(topic_id) for topic_id in share.states.initializing}
        assert not waiting & subscribed
        wanted = {
            (known[0], index)
            for actor in self.actors
            for name in actor.topics
            if (known := host.directory.topic(name)) is not None
            for index in range(known[1])
        }
        counts = Counter(pair for actor in self.actors for pair in actor.owned)
        assert counts.keys() == wanted
        for actor in self.actors:
            current = share.current(actor.id)
            owned = {(one, index) for one, row in current.assigned.items() for index in row}
            assert (actor.epoch, actor.owned) == (current.member_epoch, owned)
            names = [name for name in actor.topics if name in host.topics]
            assert bool(actor.owned) == bool(names), "a member has nothing"


def run(interval_ms: int, steps: list[Step]) -> None:
    """Make the steps, check after each, and let the group become stable."""
    world = World(interval_ms)
    for step in steps:
        world.take(step)
        world.check()
    world.settle()


@settings(max_examples=drawn(120))
@given(st.sampled_from((0, INTERVAL_MS)), st.lists(STEPS, max_size=60))
@example(0, [Step("late", 0, 0), Step("alter", 0, 1), Step("forget", 0, 0)])
def test_members_come_and_go(interval_ms: int, steps: list[Step]) -> None:
    run(interval_ms, steps)


# --- planted defects ----------------------------------------------------------------------------


def random_steps(seed: int) -> list[Step]:
    """Sixty steps of random kinds."""
    rng = random.Random(seed)
    kinds = [kind for kind, weight in KINDS.items() for _ in range(weight)]
    return [Step(rng.choice(kinds), rng.randrange(len(NAMES)), rng.randrange(6)) for _ in range(60)]


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """A context in which an attribute has another value."""
    kept = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, kept)


def assigned_before_it_is_initialised(self: ShareGroupChange, *_: Any) -> tuple[StateRow, ...]:
    return ()


def never_lacking(self: ShareGroup, topics: Any) -> bool:
    return False


def nothing_is_forgotten(self: ShareGroup, *_: Any) -> Iterator[Any]:
    return iter(())


def previous_wishes(self: ShareGroupChange, member_id: str, is_changed: bool) -> Any:
    return self._group.current(member_id)


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (ShareGroupChange, "begin_states", assigned_before_it_is_initialised),
        (ShareGroup, "lacks_assignment", never_lacking),
        (ShareGroup, "without_topics", nothing_is_forgotten),
        (ShareGroupChange, "reconcile", previous_wishes),
        (partition_states, "done", lambda states, rows, names: states),
        (partition_states, "failed", lambda states, rows: states),
    ],
)
def test_a_planted_defect_is_found(owner: Any, name: str, value: Any) -> None:
    """At least one of forty random histories must fail with the defect in the code."""
    with replaced(owner, name, value), pytest.raises(AssertionError):  # noqa: PT012
        for seed in range(40):
            run(0, random_steps(seed))


# --- the assignor -------------------------------------------------------------------------------

TOPICS = [uuid.UUID(int=number) for number in (1, 2, 3)]
SIZES = st.lists(st.integers(0, 5), min_size=1, max_size=3)


@st.composite
def groups(draw: Any) -> tuple[dict[str, MemberToAssign], dict[uuid.UUID, range]]:
    """Members that may still have a part of an earlier assignment, and the partitions of some
    topics.
    """
    partitions = {TOPICS[at]: range(size) for at, size in enumerate(draw(SIZES))}
    members = {}
    is_alike = draw(st.booleans())
    for number in range(draw(st.integers(1, 9))):
        wanted = tuple(partitions) if is_alike else draw(st.sets(st.sampled_from(list(partitions))))
        had: Assignment = {
            topic_id: tuple(sorted(draw(st.sets(st.sampled_from(indexes)))))
            for topic_id, indexes in partitions.items()
            if indexes
        }
        members[f"m{number}"] = MemberToAssign(wanted, had)
    return members, partitions


@settings(max_examples=drawn(300))
@given(groups())
def test_partitions_are_divided_evenly_and_stay_divided(
    group: tuple[dict[str, MemberToAssign], dict[uuid.UUID, range]],
) -> None:
    members, partitions = group
    assigned = assign_simple(members, partitions)
    takers: dict[uuid.UUID, tuple[str, ...]] = {
        topic_id: tuple(one for one, member in members.items() if topic_id in member.topics)
        for topic_id in partitions
    }
    for of_topics in {takers[topic_id] for topic_id in partitions if takers[topic_id]}:
        alike = [
            (one, at) for one in partitions if takers[one] == of_topics for at in partitions[one]
        ]
        if not alike:
            continue
        sharing = -(-len(of_topics) // len(alike))
        sizes = Counter(
            {member_id: sum(at in assigned[member_id].get(one, ()) for one, at in alike)
             for member_id in of_topics}
        )  # fmt: skip
        assert max(sizes.values()) - min(sizes.values()) <= 1
        for one, at in alike:
            assert sum(at in assigned[member_id].get(one, ()) for member_id in of_topics) == sharing
    for member_id, assignment in assigned.items():
        assert assignment.keys() <= set(members[member_id].topics)
    again = {
        member_id: member._replace(assignment=assigned[member_id])
        for member_id, member in members.items()
    }
    assert assign_simple(again, partitions) == assigned
