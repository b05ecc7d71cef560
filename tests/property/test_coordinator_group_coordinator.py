"""Invariants of two groups with random members, producers and operators, and with restarts.

These hold after every step. A new coordinator that replays the log has the same hard state (which
the host checks). Offsets equal those of a naive reading of the log. Generations do not decrease. A
member gets one assignment in each generation. The deletion of offsets removes no group. No request
gets two responses. At the end, when only time passes, every waiting request gets a response.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from helpers.examples import drawn
from helpers.group_host import GroupHost
from helpers.strays import wrong_deadlines
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.coordinator.groups.group_records import (
    GroupKey,
    OffsetKey,
    decode_group,
    decode_key,
    decode_offset,
)
from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.protocol.errors import Code

GROUPS = ("a", "b")
INSTANCES = (None, None, None, "i", "j")
PROTOCOLS = (
    {"range": b"r"},
    {"range": b"R", "sticky": b"s"},
    {"sticky": b"S", "range": b"r"},
    {"range": b"r", "sticky": b"s"},
)
UNSHARED = {"roundrobin": b"x"}
JOIN_VERSIONS = (3, 5, 7, 9)
PAUSES_MS = (1, 200, 400, 900, 1_500, 3_000, 6_000, 11_000)
AGES_MS = (700_000, 8 * 24 * 3_600_000)
PRODUCERS = 3


class Step(NamedTuple):
    kind: str
    who: int
    group: int
    what: int


KINDS = {
    # The weight of each step. In a round, each client without a waiting request follows the
    # protocol.
    "round": 10,
    "join": 3,  # this and the following steps do not follow the protocol
    "sync": 2,
    "heartbeat": 1,
    "leave": 1,
    "evict": 1,
    "commit": 2,
    "simple commit": 1,
    "txn_commit": 3,
    "end": 3,
    "delete offsets": 1,
    "delete group": 1,
    "delete topic": 1,
    "pause": 3,
    "age": 1,
    "restart": 1,
    "lose power": 1,
}
STEPS = st.builds(
    Step,
    st.sampled_from([kind for kind, weight in KINDS.items() for _ in range(weight)]),
    st.integers(0, len(INSTANCES) - 1),
    st.integers(0, len(GROUPS) - 1),
    st.integers(0, 7),
)


class Actor:
    """A client of one group that acts on the last response it received."""

    def __init__(self, group: str, instance: str | None) -> None:
        self.group, self.instance = group, instance
        self.protocol, self.protocols = "range", PROTOCOLS[0]
        self.forget()

    def forget(self) -> None:
        """Forget the membership, like a client that has not joined yet."""
        self.member_id, self.generation, self.next = "", -1, "join"


class World:
    """The coordinator's host, the clients, and the observations about each group."""

    def __init__(self, group_settings: GroupSettings) -> None:
        self.host = GroupHost(settings=group_settings, partition_count=2)
        self.actors = {
            (group, who): Actor(group, instance)
            for group in GROUPS
            for who, instance in enumerate(INSTANCES)
        }
        self.senders: dict[int, tuple[Actor, str, int]] = {}
        self.seen: set[int] = set()
        self.lives = dict.fromkeys(GROUPS, 0)
        self.generations = dict.fromkeys(GROUPS, 0)
        self.assignments: dict[tuple[str, int, int, str], bytes] = {}
        self.assigned = 0

    def take(self, step: Step) -> None:
        """Make one step of a member, a producer or an operator."""
        group, actor = GROUPS[step.group], self.actors[GROUPS[step.group], step.who]
        host, what = self.host, step.what
        offsets = {"t": {what % 3: what}, "u": {0: what}} if what % 2 else {"t": {what % 3: what}}
        match step.kind:
            case "round":
                for who in range(len(INSTANCES)):
                    if who != step.who:
                        self.follow_the_protocol(self.actors[group, who])
            case "join":
                actor.protocols = PROTOCOLS[what % len(PROTOCOLS)] if what else UNSHARED
                self.join(actor)
            case "sync":
                self.sync(actor, what)
            case "heartbeat":
                host.heartbeat(group, actor.generation, actor.member_id, actor.instance)
            case "leave":
                host.leave(group, (actor.member_id, actor.instance))
            case "evict":
                host.leave(group, ("", INSTANCES[-1 - what % 2]))
            case "commit":
                host.commit(
                    group,
                    offsets,
                    generation=actor.generation,
                    member=actor.member_id,
                    instance=actor.instance,
                )
            case "simple commit":
                host.commit(group, offsets, version=4, retention_ms=(-1, 5_000)[what % 2])
            case "txn_commit":
                generation, member = (-1, "") if what % 2 else (actor.generation, actor.member_id)
                host.txn_commit(
                    group,
                    offsets,
                    producer_id=step.who % PRODUCERS,
                    generation=generation,
                    member=member,
                )
            case "end":
                host.end_transaction(step.who % PRODUCERS, commit=bool(what % 3))
            case "delete offsets":
                state = host.state(group)
                answer = host.delete_offsets(group, {"t": [what % 3]})
                assert (answer == Code.GROUP_ID_NOT_FOUND) == (state == "Dead")
                assert host.state(group) == state, "a group remains without its last offset"
            case "delete group":
                host.delete_groups(group)
            case "delete topic":
                host.delete_topics("u")
                host.topics["u"] = 1
            case "pause":
                host.pass_time(PAUSES_MS[what])
            case "age":
                host.pass_time(AGES_MS[what % 2])
            case "lose power":
                self.lose_power(what)
            case "restart":
                host.restart()
                stored = self.stored_generations()
                self.generations = {group: stored.get(group, 0) for group in GROUPS}
                self.senders = {
                    ticket: sender
                    for ticket, sender in self.senders.items()
                    if ticket in host.requests
                }

    def lose_power(self, end_offset: int) -> None:
        """Simulate a power loss after which no log of topic "t" ends beyond `end_offset`. Check
        that no group has members, and that no committed offset is beyond the end of its log.
        """
        host = self.host
        before = {group: host.fetch(group) for group in GROUPS}
        host.lose_power({("t", 0): end_offset, ("t", 1): end_offset, ("t", 2): end_offset})
        for group in GROUPS:
            assert not host.describe(group).members
            for (topic, partition), (offset, metadata) in before[group].items():
                expected = min(offset, end_offset) if topic == "t" else offset
                assert host.fetch(group, {topic: [partition]}) == {
                    (topic, partition): (expected, metadata)
                }
        stored = self.stored_generations()
        self.generations = {group: stored.get(group, 0) for group in GROUPS}
        self.senders = {
            ticket: sender for ticket, sender in self.senders.items() if ticket in host.requests
        }

    def follow_the_protocol(self, actor: Actor) -> None:
        """Send the member's next request, as a client would."""
        if any(self.senders[ticket][0] is actor for ticket in self.host.waiting()):
            return
        if actor.next == "heartbeat":
            code = self.host.heartbeat(
                actor.group, actor.generation, actor.member_id, actor.instance
            )
            if code in (Code.REBALANCE_IN_PROGRESS, Code.ILLEGAL_GENERATION):
                actor.next = "join"
            elif code != Code.NONE:
                actor.forget()
        elif actor.next == "sync":
            self.sync(actor, 7)
        else:
            self.join(actor)
        self.read_answers()

    def join(self, actor: Actor) -> None:
        """Send JoinGroup. The response is read later."""
        who = next(who for (_, who), one in self.actors.items() if one is actor)
        ticket = self.host.join_later(
            actor.group,
            actor.member_id,
            instance=actor.instance,
            protocols=actor.protocols,
            session_ms=6_000,
            rebalance_ms=(1_000, 4_000)[who % 2],
            version=JOIN_VERSIONS[who] if actor.instance is None else 9,
        )
        self.senders[ticket] = actor, "join", -1

    def sync(self, actor: Actor, count: int) -> None:
        """Send SyncGroup with assignments for the first `count` members. Each assignment is a value
        that was not used before.
        """
        self.assigned += 1
        everyone = [one.member_id for one in self.host.describe(actor.group).members]
        plan = dict.fromkeys(everyone[:count], b"%d" % self.assigned)
        ticket = self.host.sync_later(
            actor.group,
            actor.generation,
            actor.member_id,
            plan,
            instance=actor.instance,
            protocol=actor.protocol,
        )
        self.senders[ticket] = actor, actor.member_id, actor.generation

    def read_answers(self) -> None:
        """Let members take the responses that have arrived. Check that a member's assignment does
        not change within a generation.
        """
        for ticket, (actor, request, generation) in self.senders.items():
            answer = self.host.answers.get(ticket)
            if answer is None or ticket in self.seen:
                continue
            self.seen.add(ticket)
            if request == "join":
                self.read_join(actor, answer)
            elif answer.error_code == Code.NONE:
                key = (actor.group, self.lives[actor.group], generation, request)
                assert self.assignments.setdefault(key, answer.assignment) == answer.assignment
                actor.next = "heartbeat"
            elif answer.error_code in (Code.UNKNOWN_MEMBER_ID, Code.FENCED_INSTANCE_ID):
                actor.forget()
            else:
                actor.next = "join"

    def read_join(self, actor: Actor, answer: Any) -> None:
        """Let a member take the response to its JoinGroup. Check that the generation does not
        decrease.
        """
        if answer.error_code == Code.MEMBER_ID_REQUIRED:
            actor.member_id = answer.member_id
        elif answer.error_code == Code.NONE:
            assert answer.generation_id >= self.generations[actor.group]
            self.generations[actor.group] = answer.generation_id
            actor.member_id, actor.generation, actor.protocol = (
                answer.member_id,
                answer.generation_id,
                answer.protocol_name,
            )
            actor.next = "sync"
        elif answer.error_code in (
            Code.UNKNOWN_MEMBER_ID,
            Code.FENCED_INSTANCE_ID,
            Code.GROUP_MAX_SIZE_REACHED,
        ):
            actor.forget()

    def stored_generations(self) -> dict[str, int]:
        """The generation in each group's last record. Checks that generations only increase while
        the group exists.
        """
        generations: dict[str, int] = {}
        for _, key, value, _ in self.host.log:
            about = None if key is None else decode_key(key)
            if isinstance(about, GroupKey):
                if value is None:
                    generations.pop(about.group_id, None)
                else:
                    generation = decode_group(value).generation
                    assert generation >= generations.get(about.group_id, 0)
                    generations[about.group_id] = generation
        return generations

    def check_offsets(self) -> None:
        """Check that each group's offset for a partition is the last committed one in the log that
        is not followed by a tombstone.
        """
        rows = list(enumerate(self.host.log))
        committed: dict[tuple[str, str, int], int] = {}
        pending: set[tuple[str, str, int]] = set()
        for at, (partition, key, value, producer) in rows:
            about = None if key is None else decode_key(key)
            if not isinstance(about, OffsetKey):
                continue
            if value is None:
                committed.pop(about, None)
                pending.discard(about)
                continue
            if any(
                later_key == key and later_value is None
                for _, (_, later_key, later_value, _) in rows[at + 1 :]
            ):
                continue
            ends = [
                marker[2]
                for _, (where, later_key, marker, _) in rows[at + 1 :]
                if later_key is None
                and where == partition
                and producer is not None
                and marker[0] == producer[0]
            ]
            if producer is None or (ends and ends[0]):
                committed[about] = decode_offset(value, 0).offset
            elif not ends:
                pending.add(about)
        for group in GROUPS:
            expected = {
                (topic, partition): (offset, "")
                for (owner, topic, partition), offset in committed.items()
                if owner == group
            }
            assert self.host.fetch(group) == expected
            unstable = {
                tp
                for tp, fetched in self.host.fetch(
                    group, {"t": [0, 1, 2], "u": [0]}, stable=True
                ).items()
                if isinstance(fetched, int)
            }
            assert unstable == {
                (topic, partition) for owner, topic, partition in pending if owner == group
            }

    def check_groups(self) -> None:
        """Check each existing group. After a group is deleted, its generations start at 0 again."""
        assert wrong_deadlines(self.host.coordinator) == []
        living = self.host.list_groups()
        for group in GROUPS:
            if group not in living:
                self.lives[group] += 1
                self.generations[group] = 0
            else:
                self.check_group(group)

    def check_group(self, group: str) -> None:
        """Check that member ids and instance ids are unique, and that the group's state agrees with
        its members and waiting requests.
        """
        answer = self.host.describe(group)
        ids = [member.member_id for member in answer.members]
        instances = [
            member.group_instance_id
            for member in answer.members
            if member.group_instance_id is not None
        ]
        assert len(set(ids)) == len(ids) and len(set(instances)) == len(instances)
        assert (answer.group_state == "Empty") == (
            not ids
        ) or answer.group_state == "PreparingRebalance"
        if answer.group_state == "Stable":
            assert not [
                ticket for ticket in self.waiting_at(group) if self.senders[ticket][1] != "join"
            ]
        if answer.group_state == "Empty":
            assert not self.waiting_at(group)

    def waiting_at(self, group: str) -> list[int]:
        return [ticket for ticket in self.host.waiting() if self.senders[ticket][0].group == group]

    def run(self, steps: list[Step]) -> None:
        """Make the steps, with checks after each. Check that in the end all members expire and no
        request waits.
        """
        for step in steps:
            self.take(step)
            self.read_answers()
            self.check_groups()
        self.stored_generations()
        self.check_offsets()
        self.host.pass_time(600_000)
        self.read_answers()
        assert not self.host.waiting(), "requests that wait for ever"
        states = {group: state for group, (_, state) in self.host.list_groups().items()}
        assert set(states.values()) <= {"Empty"}, states


@settings(max_examples=drawn(60))
@given(st.lists(STEPS, min_size=10, max_size=60))
def test_groups_without_an_initial_delay(steps: list[Step]) -> None:
    World(GroupSettings()).run(steps)


@settings(max_examples=drawn(80))
@given(st.lists(STEPS, min_size=10, max_size=60), st.integers(1, 4))
def test_small_groups_with_an_initial_delay(steps: list[Step], max_size: int) -> None:
    World(GroupSettings(initial_rebalance_delay_ms=2_000, max_size=max_size)).run(steps)


@settings(max_examples=drawn(120))
@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.integers(0, 9), st.integers(0, 5)), min_size=1, max_size=5
    ),
    st.data(),
)
def test_after_a_power_loss_a_groups_offset_is_the_end_of_the_records_it_has_read(
    runs: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    """A broker has several runs, each with new records, a power loss that removes some records at
    the end, and a start.

    A naive group remembers the records that it received. They must include all records below its
    reset offset, and no record from this offset on.
    """
    host = GroupHost(partition_count=1)
    log: list[tuple[int, int]] = []  # (leader epoch, a unique number) of each record
    given: list[tuple[int, int]] = []
    for epoch, (count, lost, read_count) in enumerate(runs):
        log += [(epoch, len(log) + number + 100 * epoch) for number in range(count)]
        if read_count:
            given = log[: min(len(given) + read_count, len(log))]
            host.commit(
                "g",
                {"t": {0: len(given)}},
                leader_epoch=data.draw(st.sampled_from([given[-1][0], given[-1][0], -1])),
            )
        log = log[: max(0, len(log) - lost)]
        ends = {("t", 0, each): _end_of_epoch(log, each) for each in range(epoch + 1)}
        host.lose_power({("t", 0): len(log)}, ends)
        kept = [row for row, other in zip(given, log, strict=False) if row == other]
        fetched = host.fetch("g", {"t": [0]})["t", 0][0]
        assert max(fetched, 0) == len(kept)
        given = kept


def _end_of_epoch(log: list[tuple[int, int]], leader_epoch: int) -> tuple[int, int]:
    """The largest epoch up to `leader_epoch` and its end offset, as in OffsetForLeaderEpoch."""
    below = [epoch for epoch, _ in log if epoch <= leader_epoch]
    return (below[-1], len(below)) if below else (leader_epoch, 0)
