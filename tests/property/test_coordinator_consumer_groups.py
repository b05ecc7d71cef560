"""Invariants of a group with random members of both protocols, with lost responses, restarts,
topics that are created and deleted, and conversions between the protocols.

These hold after every step. A new coordinator that replays the log has the same hard state (which
the host checks). The topics that the coordinator regards as known are those of the registry, even
while it looks up patterns in slices. No partition is owned by two members. A member's epoch does
not decrease while the member stays. At the end, after undisturbed heartbeats, each partition that a
member wants is owned by a member that wants it.

The tests also find planted defects.
"""

from __future__ import annotations

import random
import uuid
from functools import partialmethod
from typing import Any, NamedTuple

import pytest
from helpers.examples import drawn
from helpers.group_host import GroupHost, subscription
from helpers.strays import wrong_deadlines
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.coordinator.groups.classic.consumer_protocol import read_assignment, write_assignment
from barnabas.coordinator.groups.consumer import (
    consumer_groups,
    reconciliation,
    topic_patterns,
)
from barnabas.coordinator.groups.consumer.consumer_group_change import GroupChange
from barnabas.coordinator.groups.consumer.consumer_group_settings import ConsumerGroupSettings
from barnabas.coordinator.groups.consumer.consumer_groups import ConsumerGroups
from barnabas.coordinator.groups.group import Group
from barnabas.coordinator.result import Result
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.consumer_group_heartbeat import TopicPartitions

NAMES = ("a", "b", "c", "d", "e", "f")
CLASSIC = ("d", "e", "f")
STATIC = {"c": "i", "f": "j"}
SUBSCRIPTIONS = (["t"], ["t", "u"], ["u"], [], ["t", "missing"])
PATTERNS = ("", "t|u", "u", "t.*")
PAUSES_MS = (1, 500, 1_000, 4_000, 11_000, 46_000)
SESSION_MS, REBALANCE_MS = 10_000, 4_000
INTERVAL_MS = 500
GROUP = "g"

Partition = tuple[uuid.UUID, int]


class Step(NamedTuple):
    kind: str
    who: int
    what: int


KINDS = {
    "beat": 12, "round": 6, "lose answer": 3, "subscribe": 2, "pattern": 3, "leave": 2,
    "leave for a while": 1, "die": 1, "pause": 4, "grow": 1, "delete": 2, "create": 2,
    "restart": 1, "power": 1, "assignor": 1,
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
        self.host, self.name, self.incarnation = host, name, 0
        self.instance = STATIC.get(name)
        self.topics, self.pattern, self.assignor = ["t"], "", None
        self.begin()

    def begin(self) -> None:
        """Start again as a new process with the same name."""
        self.incarnation += 1
        self.owned: set[Partition] = set()

    def by_id(self, partitions: dict[str, list[int]]) -> set[Partition]:
        """The partitions, with topic ids in place of topic names."""
        return {
            (topic[0], number)
            for name, numbers in partitions.items()
            if (topic := self.host.directory.topic(name)) is not None
            for number in numbers
        }

    def wants(self) -> set[str]:
        """The existing topics to which the member subscribes."""
        found = set(self.topics)
        if self.pattern:
            found |= {"t|u": {"t", "u"}, "u": {"u"}, "t.*": {"t"}}[self.pattern]
        return found & set(self.host.topics)


class Consumer(Actor):
    """A member of the consumer protocol."""

    def begin(self) -> None:
        super().begin()
        self.id, self.epoch, self.has_missed = f"{self.name}{self.incarnation}", 0, False

    def beat(self, *, hears: bool = True, **more: Any) -> None:
        """Send a heartbeat with all fields that a client sends, and do what the response requires.
        If `hears` is false, the response is lost.
        """
        is_full = self.epoch == 0 or self.has_missed
        if is_full or "subscribed_topic_names" in more:
            more |= {"subscribed_topic_names": self.topics, "rebalance_timeout_ms": REBALANCE_MS}
        if is_full or "subscribed_topic_regex" in more:
            more["subscribed_topic_regex"] = self.pattern
        if self.epoch == 0:
            self.owned = set()
        answer = self.host.consumer_heartbeat(
            self.id,
            self.epoch,
            instance_id=self.instance,
            server_assignor=self.assignor,
            topic_partitions=[
                TopicPartitions(topic_id, [number]) for topic_id, number in sorted(self.owned)
            ],
            **more,
        )
        self.has_missed = not hears
        if not hears:
            return
        if answer.error_code in (Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH):
            self.owned, self.epoch = set(), 0
        elif answer.error_code == Code.FENCED_INSTANCE_ID:
            self.begin()
        elif answer.error_code == Code.NONE:
            assert answer.member_epoch >= self.epoch, "an epoch goes back"
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = {
                    (row.topic_id, number)
                    for row in answer.assignment.topic_partitions
                    for number in row.partitions
                }
        else:
            assert answer.error_code in (
                Code.GROUP_ID_NOT_FOUND, Code.UNRELEASED_INSTANCE_ID
            ), answer  # fmt: skip
            self.owned, self.epoch = set(), 0

    def leave(self, epoch: int) -> None:
        """Leave the group. With the epoch -2, a static member leaves for a while."""
        if epoch == -2 and self.instance is None:
            epoch = -1
        self.owned = set()
        self.host.consumer_heartbeat(self.id, epoch, instance_id=self.instance)
        self.begin()


class Classic(Actor):
    """A member of the classic protocol that revokes everything before it joins."""

    def begin(self) -> None:
        super().begin()
        self.id, self.generation = "", -1
        self.ticket: int | None = None
        self.next = "join"

    def beat(self, *, hears: bool = True, **_: Any) -> None:
        """Send the next request of the classic protocol: JoinGroup, SyncGroup or Heartbeat."""
        if self.ticket is not None and self.ticket not in self.host.requests:
            self.ticket, self.next = None, "join"  # the waiting request was lost in a restart
        if self.ticket is not None:
            pass
        elif self.next == "join":
            self.owned = set()
            self.ticket = self.host.join_later(
                GROUP, self.id, protocols={"range": subscription(*self.topics)},
                instance=self.instance, session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS,
            )  # fmt: skip
        elif self.next == "sync":
            self.ticket = self.host.sync_later(
                GROUP, self.generation, self.id, self.plan, instance=self.instance
            )
        else:
            code = self.host.heartbeat(GROUP, self.generation, self.id, self.instance)
            if hears and code != Code.NONE:
                self.owned, self.next = set(), "join"
                if code != Code.REBALANCE_IN_PROGRESS:
                    self.begin()
        self.read(hears=hears)

    def read(self, *, hears: bool) -> None:
        """Take the response to the waiting request, if there is one. If `hears` is false, the
        response is lost.
        """
        answer = None if self.ticket is None else self.host.answers.get(self.ticket)
        if answer is not None:
            self.ticket = None
            if hears:
                self.take(answer)

    def take(self, answer: Any) -> None:
        """Do what the response to a JoinGroup or SyncGroup requires. Each member computes an
        assignment as if it were the leader.
        """
        is_join = self.next == "join"
        if answer.error_code == Code.MEMBER_ID_REQUIRED:
            self.id = answer.member_id
        elif answer.error_code in (Code.UNKNOWN_MEMBER_ID, Code.FENCED_INSTANCE_ID):
            self.begin()
        elif answer.error_code != Code.NONE:
            self.owned, self.next = set(), "join"
        elif is_join:
            self.id, self.generation, self.next = answer.member_id, answer.generation_id, "sync"
            self.plan: dict[str, bytes] = {}
            ids = [member.member_id for member in answer.members]
            for rank, member_id in enumerate(ids):
                numbers = range(rank, self.host.topics.get("t", 0), len(ids))
                self.plan[member_id] = write_assignment(0, {"t": list(numbers)})
        else:
            self.owned = self.by_id(read_assignment(answer.assignment) or {})
            self.next = "heartbeat"

    def leave(self, _: int) -> None:
        """Leave the group, unless a request waits."""
        self.owned = set()
        if self.id and self.ticket is None:
            self.host.leave(GROUP, (self.id, self.instance))
        if self.ticket is None:
            self.begin()


class World:
    """The coordinator's host and the clients."""

    def __init__(self, interval_ms: int) -> None:
        self.host = GroupHost(
            topics={"t": 4, "u": 2},
            partition_count=1,
            consumer_settings=ConsumerGroupSettings(assignment_interval_ms=interval_ms),
        )
        self.actors: list[Consumer | Classic] = [
            (Classic if name in CLASSIC else Consumer)(self.host, name) for name in NAMES
        ]
        self.is_active = dict.fromkeys(NAMES, False)

    def take(self, step: Step) -> None:
        """Make one step: an action of a member, or a change of its environment."""
        actor, what = self.actors[step.who], step.what
        match step.kind:
            case "beat":
                self.is_active[actor.name] = True
                actor.beat()
            case "round":
                for other in self.actors:
                    if self.is_active[other.name] and other is not actor:
                        other.beat()
            case "lose answer":
                if isinstance(actor, Consumer):
                    actor.beat(hears=False)
            case "subscribe":
                actor.topics = list(SUBSCRIPTIONS[what % len(SUBSCRIPTIONS)])
                if isinstance(actor, Consumer):
                    actor.beat(subscribed_topic_names=None)
            case "pattern":
                if isinstance(actor, Consumer):
                    actor.pattern = PATTERNS[what % len(PATTERNS)]
                    actor.beat(subscribed_topic_regex=None)
            case "assignor":
                actor.assignor = (None, "range", "uniform")[what % 3]
            case "leave" | "leave for a while":
                self.is_active[actor.name] = False
                actor.leave(-1 if step.kind == "leave" else -2)
            case "die":
                self.is_active[actor.name] = False
                if not (isinstance(actor, Classic) and actor.ticket is not None):
                    actor.begin()
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
                if "u" in host.topics:
                    host.delete_topics("u")
            case "create":
                host.topics.setdefault("u", 1 + what % 3)
            case "restart":
                host.restart()
            case _:
                host.lose_power({})

    def members(self) -> dict[str, tuple[str, Any]]:
        """The group's current members by id, each with its kind and its description."""
        described = self.host.describe_consumer_group()
        if described.error_code == Code.NONE:
            return {row.member_id: ("consumer", row) for row in described.members}
        return {row.member_id: ("classic", row) for row in self.host.describe(GROUP).members}

    def check(self) -> None:
        """Check that no two members believe that they own the same partition."""
        assert wrong_deadlines(self.host.coordinator) == []
        described = self.host.describe_consumer_group()
        if described.error_code == Code.NONE and not described.members:
            assert described.group_epoch == described.assignment_epoch, "KAFKA-20442"
        members = self.members()
        owners: dict[Partition, str] = {}
        for actor in self.actors:
            if actor.id not in members:
                # This client is no longer a member, so the coordinator would refuse its commits.
                continue
            kind, row = members[actor.id]
            if kind == "consumer" and row.member_epoch < 0:
                continue
            if isinstance(actor, Consumer) and kind == "classic":
                continue
            for partition in actor.owned:
                assert partition not in owners, (
                    f"{owners[partition]} and {actor.name} both own {partition}"
                )
                owners[partition] = actor.name

    def settle(self) -> None:
        """Send undisturbed heartbeats until the group is stable, and check that each wanted
        partition has an owner.

        Members that no client uses any more expire in the meantime.
        """
        for actor in self.actors:
            self.is_active[actor.name] = True
        # With checks, each event replays the whole log. A single check at the end is enough.
        self.host.checks = False
        for rank in range(70):
            for actor in self.actors:
                actor.beat()
            if rank % 7 == 0:
                self.check()
            self.host.pass_time(700)
        self.host.checks = True
        self.host.handle(Result())
        members = self.members()
        assert {actor.id for actor in self.actors} == members.keys()
        assert {kind for kind, _ in members.values()} == {"consumer"}
        assert self.host.describe_consumer_group().group_state == "Stable"
        owned = {partition: actor for actor in self.actors for partition in actor.owned}
        wanted = {
            partition
            for actor in self.actors
            for name in actor.wants()
            for partition in actor.by_id({name: list(range(self.host.topics[name]))})
        }
        assert owned.keys() == wanted
        for (topic_id, _), actor in owned.items():
            assert self.host.directory.name(topic_id) in actor.wants()


def run(steps: list[Step], interval_ms: int) -> None:
    """Make the steps, check after each, and let the group become stable."""
    with pytest.MonkeyPatch.context() as patch:
        # The slices are short, and other steps are made in the pauses between them.
        patch.setattr(topic_patterns, "WORK_BETWEEN_PAUSES", 1)
        patch.setattr(consumer_groups, "LOOKUP_PAUSE_MS", 400)
        world = World(interval_ms)
        for step in steps:
            world.take(step)
            world.check()
        world.settle()


def _notes_the_topics_of_its_end(
    groups: ConsumerGroups, group: Group, result: Result, now_ms: int, look_up: Any
) -> None:
    """A defect: the search of a pattern stores the version of the topics at its end, although the
    topics may have changed since its start.
    """
    look_up(groups, group, result, now_ms)
    consumer = group.modern
    if consumer.lookup is None:
        consumer.patterns_version = groups._topics.version


DEFECTS = {
    "a partition is given out while another has it": (
        GroupChange, "_is_free", lambda change, member_id, topic_id, partition: True,
    ),
    "a member is believed to have given up what it was only asked to": (
        reconciliation, "_owns_any", lambda owned, partitions: False,
    ),
    "a silent member is not removed": (
        ConsumerGroups, "on_timers", lambda groups, group, due, result, now_ms: None,
    ),
    "a lookup of patterns counts as one of the topics at its end": (
        ConsumerGroups,
        "_look_up_patterns",
        partialmethod(_notes_the_topics_of_its_end, look_up=ConsumerGroups._look_up_patterns),
    ),
}  # fmt: skip


FIRST_SEEDS = {  # start at these seeds for defects that the first seeds do not find
    "a lookup of patterns counts as one of the topics at its end": 64,
    "a member is believed to have given up what it was only asked to": 40,
}


@pytest.mark.parametrize("defect", sorted(DEFECTS))
def test_a_planted_defect_is_found(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least one of 150 random histories must fail with the defect in the code."""
    owner, name, broken = DEFECTS[defect]
    monkeypatch.setattr(owner, name, broken)
    kinds = [kind for kind, weight in KINDS.items() for _ in range(weight)]
    first = FIRST_SEEDS.get(defect, 0)
    for seed in range(first, first + 150):
        rng = random.Random(seed)
        steps = [
            Step(rng.choice(kinds), rng.randrange(len(NAMES)), rng.randrange(6)) for _ in range(40)
        ]
        try:
            run(steps, 0)
        except AssertionError:
            return
    raise LookupError(f"nothing found of it: {defect}")


@settings(max_examples=drawn(25))
@given(st.lists(STEPS, min_size=10, max_size=60))
def test_groups_that_assign_at_each_change(steps: list[Step]) -> None:
    run(steps, 0)


@settings(max_examples=drawn(25))
@given(st.lists(STEPS, min_size=10, max_size=60))
def test_groups_that_assign_now_and_then(steps: list[Step]) -> None:
    run(steps, INTERVAL_MS)
