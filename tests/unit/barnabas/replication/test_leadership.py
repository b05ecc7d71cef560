"""Leadership between two nodes. One record, which is changed with compare-and-swap, decides it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from barnabas.replication.leadership import (
    ABSENT,
    Answer,
    Conflict,
    Found,
    Holding,
    Leadership,
    LeaseSettings,
    Node,
    Read,
    Request,
    Role,
    Unknown,
    Write,
    Written,
)
from barnabas.replication.lease_record import (
    LeaseRecord,
    LeaseRecordError,
    NodeAddresses,
    decode_lease_record,
)

TTL_MS, MARGIN_MS = 3000, 500
RECORD = LeaseRecord("c", 1, "s", 1, frozenset({1}), {1: NodeAddresses("a:1", {})}, "w").encode()
BOTH = frozenset({1, 2})


class Register:
    """A fake lease engine: one record with a version."""

    def __init__(self) -> None:
        self.version, self.value = ABSENT, b""

    def apply(self, request: Request) -> Answer:
        """Read the record, or replace it if the request names its current version."""
        if isinstance(request, Read):
            return Found(self.version, self.value)
        if request.version != self.version:
            return Conflict()
        self.version = str(int(self.version or "0") + 1)
        self.value = request.value
        return Written(self.version)


def test_an_opened_directory_counts_as_whole() -> None:
    leader = Leadership(
        Node(1, NodeAddresses("a:1", {}), "s"),
        LeaseSettings(TTL_MS, MARGIN_MS),
        Holding.POWER_LOST,
        0,
    )
    leader.set_opened(4)
    assert leader.holding is Holding.WHOLE


def test_a_refused_write_does_not_count_as_possibly_applied() -> None:
    """Otherwise responses would wait for the node in the refused record until another version of
    the record is read.
    """
    engine = Register()
    leader = Leadership(
        Node(1, NodeAddresses("a:1", {}), "s"), LeaseSettings(TTL_MS, MARGIN_MS), Holding.WHOLE, 0
    )
    while leader.role is not Role.LEADING:
        request = leader.next_request(TTL_MS)
        assert request is not None
        leader.on_answer(engine.apply(request), TTL_MS)
    leader.want_in_sync((2,))
    assert isinstance(leader.next_request(TTL_MS), Write)
    assert leader.may_be_in_sync() == BOTH
    leader.on_answer(Conflict(), TTL_MS)
    leader.want_in_sync(())
    assert leader.may_be_in_sync() == {1}


def node(
    node_id: int,
    holding: Holding = Holding.WHOLE,
    now_ms: int = 0,
    session: str = "",
    **more: str | int,
) -> Leadership:
    addresses = NodeAddresses(f"host{node_id}:9093", {"PLAINTEXT": f"host{node_id}:9092"})
    its = Node(node_id, addresses, session or f"s{node_id}", **more)  # type: ignore[arg-type]
    return Leadership(its, LeaseSettings(TTL_MS, MARGIN_MS), holding, now_ms)


def run(one: Leadership, engine: Register, now_ms: int) -> list[Request]:
    """Let the engine respond to a node's requests until there are no more. Gives the requests."""
    requests = []
    while (request := one.next_request(now_ms)) is not None:
        requests.append(request)
        one.on_answer(engine.apply(request), now_ms)
    return requests


def leader_of_pair(engine: Register) -> Leadership:
    """Make node 1 the leader, with node 2 in sync. Gives: the leadership of node 1."""
    leader = node(1)
    run(leader, engine, 0)
    leader.want_in_sync(BOTH)
    run(leader, engine, 0)
    assert leader.in_sync == BOTH
    return leader


def test_the_first_node_makes_the_record_and_leads() -> None:
    engine, one = Register(), node(1, cluster_id="c", leader_epoch=4)
    assert [type(request) for request in run(one, engine, 10)] == [Read, Write]
    assert one.role is Role.LEADING
    record = decode_lease_record(engine.value)
    assert (record.cluster_id, record.leader, record.in_sync) == ("c", 1, frozenset({1}))
    assert record.leader_epoch == one.leader_epoch == 5
    assert record.nodes[1].listeners == {"PLAINTEXT": "host1:9092"}


def test_a_node_that_comes_back_with_another_address_has_that_in_the_record() -> None:
    """The record gets a standby's new address when the standby connects, and a leader's new address
    when the leader claims the lease.
    """
    engine = Register()
    leader = leader_of_pair(engine)
    leader.add_node(2, NodeAddresses("host2:9093", {"PLAINTEXT": "host2:9092"}))
    run(leader, engine, 0)
    moved = NodeAddresses("elsewhere:9093", {"PLAINTEXT": "elsewhere:9092"})
    leader.add_node(2, moved)
    run(leader, engine, 1)
    assert leader.nodes[2] == decode_lease_record(engine.value).nodes[2] == moved
    again = Leadership(
        Node(1, moved, "s1 again", earlier_session="s1"),
        LeaseSettings(TTL_MS, MARGIN_MS),
        Holding.WHOLE,
        2,
    )
    run(again, engine, 2)
    assert again.role is Role.LEADING
    assert decode_lease_record(engine.value).nodes == {1: moved, 2: moved}


def test_a_record_of_an_earlier_version_is_read_and_one_of_another_program_is_not() -> None:
    nodes = {1: NodeAddresses("a:1", {"PLAINTEXT": "a:2"})}
    record = LeaseRecord("c", 1, "s", 3, BOTH, nodes, "w", 1, {1: 3, 2: 2})
    assert decode_lease_record(record.encode()) == record
    later = {"opened_by": None, "held_epochs": {}}
    for name in record._fields:
        fields = json.loads(record.encode())
        del fields[name]
        value = json.dumps(fields).encode()
        if name in later:
            assert decode_lease_record(value) == record._replace(**{name: later[name]})
        else:
            with pytest.raises(LeaseRecordError, match="Another program wrote it"):
                decode_lease_record(value)


def test_a_node_with_an_empty_directory_claims_later_than_one_with_data() -> None:
    engine, empty = Register(), node(2, Holding.NOTHING)
    run(empty, engine, 0)
    run(empty, engine, TTL_MS - 1)
    assert engine.version == ABSENT
    run(empty, engine, TTL_MS)
    assert empty.role is Role.LEADING


def test_a_first_leader_that_died_before_it_created_its_directory_leads_again() -> None:
    """If the record has a cluster id, a directory was created and may have records. A node with an
    empty directory must then not lead.
    """
    engine, empty = Register(), node(1, Holding.NOTHING)
    run(empty, engine, 0)
    run(empty, engine, TTL_MS)
    for cluster_id, leads in (("", True), ("c", False)):
        record = decode_lease_record(engine.value)._replace(cluster_id=cluster_id)
        engine.version, engine.value = engine.version + "0", record.encode()
        again = node(1, Holding.NOTHING, earlier_session=record.session)
        run(again, engine, 2 * TTL_MS)
        assert (again.role is Role.LEADING) == leads


def test_a_leader_may_answer_until_a_margin_before_its_lease_ends() -> None:
    """The lease begins when its write was sent (100), not when the response arrived (900)."""
    engine, one = Register(), node(1)
    one.on_answer(engine.apply(one.next_request(0) or Read()), 0)
    request = one.next_request(100)
    assert request is not None
    one.on_answer(engine.apply(request), 900)
    assert one.may_answer(100 + TTL_MS - MARGIN_MS - 1)
    assert not one.may_answer(100 + TTL_MS - MARGIN_MS)


def test_a_standby_claims_after_a_whole_lease_without_a_change() -> None:
    engine = Register()
    leader, standby = leader_of_pair(engine), node(2)
    run(standby, engine, 100)
    run(leader, engine, 2000)  # renews
    run(standby, engine, 2100)
    run(standby, engine, 100 + TTL_MS)
    assert standby.role is Role.WATCHING
    run(standby, engine, 2100 + TTL_MS)
    assert standby.role is Role.LEADING
    assert standby.leader_epoch == leader.leader_epoch + 1
    assert standby.in_sync == BOTH
    run(leader, engine, 2100 + TTL_MS)
    assert leader.role is Role.DEPOSED
    assert leader.next_request_ms(0) is None


def test_a_standby_outside_the_in_sync_set_never_claims_the_lease() -> None:
    engine = Register()
    leader = leader_of_pair(engine)
    leader.want_in_sync(frozenset({1}))
    run(leader, engine, 10)
    standby = node(2)
    for now_ms in range(0, 3 * TTL_MS, 100):
        run(standby, engine, now_ms)
    assert standby.role is Role.WATCHING


def test_a_standby_claims_a_released_lease_at_once() -> None:
    engine = Register()
    leader, standby = leader_of_pair(engine), node(2)
    run(standby, engine, 0)
    leader.release()
    assert not leader.may_answer(0)
    run(leader, engine, 10)
    assert leader.role is Role.RELEASED
    run(standby, engine, 300)
    assert standby.role is Role.LEADING


def test_a_leader_with_an_expired_lease_renews_it_if_no_other_node_claimed_it() -> None:
    engine = Register()
    leader = leader_of_pair(engine)
    request = leader.next_request(600)
    assert isinstance(request, Write)
    leader.on_answer(Unknown(), 1300)
    assert not leader.may_answer(2600)
    run(leader, engine, 2600)
    assert leader.role is Role.LEADING
    assert leader.may_answer(2600)


def test_a_write_of_unknown_outcome_counts_until_a_later_version_is_written() -> None:
    """A write that adds node 2 to the in-sync set gets no answer. Node 2 counts as possibly in sync
    until another write has replaced the version, since only then the lost write can no longer be
    applied.
    """
    engine = Register()
    leader = node(1)
    run(leader, engine, 0)
    leader.want_in_sync(BOTH)
    lost = leader.next_request(10)
    assert lost is not None
    assert leader.may_be_in_sync() == BOTH
    leader.on_answer(Unknown(), 700)
    leader.want_in_sync(frozenset({1}))
    assert leader.may_be_in_sync() == BOTH
    now_ms = leader.next_request_ms(700)
    assert now_ms is not None
    assert leader.next_request(now_ms) == Read()
    leader.on_answer(engine.apply(Read()), now_ms)
    assert leader.in_sync == frozenset({1})
    assert leader.may_be_in_sync() == BOTH  # the lost write may still be applied
    run(leader, engine, now_ms)
    assert leader.may_be_in_sync() == frozenset({1})
    assert engine.apply(lost) == Conflict()


def test_an_unanswered_renewal_that_was_applied_counts_from_its_sending() -> None:
    engine = Register()
    leader = node(1)
    run(leader, engine, 0)
    request = leader.next_request(500)
    assert isinstance(request, Write)
    engine.apply(request)
    leader.on_answer(Unknown(), 1200)
    run(leader, engine, 1500)
    assert leader.may_answer(500 + TTL_MS - MARGIN_MS - 1)


def test_a_node_that_lost_power_leads_only_as_the_only_in_sync_node() -> None:
    """After a power loss a node may lack flushed changes that the other in-sync node has. It leads
    only once the other node has left the in-sync set.
    """
    engine = Register()
    leader_of_pair(engine)
    again = node(1, Holding.POWER_LOST)
    for now_ms in range(0, 2 * TTL_MS, 200):
        run(again, engine, now_ms)
    assert again.role is Role.WATCHING
    standby = node(2, Holding.NOTHING)  # node 2 has also lost power
    run(standby, engine, 10_000)
    assert decode_lease_record(engine.value).in_sync == frozenset({1})
    run(again, engine, 10_000)
    run(again, engine, 10_000 + TTL_MS)
    assert again.role is Role.LEADING


def test_after_a_power_loss_of_both_nodes_the_last_leader_leads() -> None:
    """Both nodes lose power after node 2 took over. Node 2 waits as long as node 1 is in the
    in-sync set, since its own disk may lack records. When node 1 has also started after the loss
    and left the set, node 2 leads.
    """
    engine = Register()
    leader_of_pair(engine)
    run(node(2), engine, 0)
    second = node(2)
    run(second, engine, 1)
    run(second, engine, 1 + TTL_MS)
    assert second.role is Role.LEADING and second.in_sync == BOTH
    first, last = (
        node(number, Holding.POWER_LOST, 2 * TTL_MS, f"later {number}") for number in (1, 2)
    )
    run(last, engine, 2 * TTL_MS)
    run(last, engine, 4 * TTL_MS)
    assert last.role is Role.WATCHING, "the other node may have more records"
    run(first, engine, 4 * TTL_MS)
    assert decode_lease_record(engine.value).in_sync == {2}
    run(last, engine, 5 * TTL_MS)
    run(last, engine, 6 * TTL_MS)
    assert last.role is Role.LEADING


def test_a_standby_that_lost_power_before_it_opened_does_not_lead_before_the_old_leader() -> None:
    """Node 2 takes the lease over, but loses power before it opens its copy, which may then be
    incomplete. Node 1, which led before, loses power as well. Node 1 must lead.
    """
    engine = Register()
    leader = leader_of_pair(engine)
    leader.set_opened(1)
    run(leader, engine, 1)
    standby = node(2)
    run(standby, engine, 1)
    run(standby, engine, 1 + TTL_MS)
    assert standby.role is Role.LEADING
    first = node(1, Holding.POWER_LOST, 2 * TTL_MS, "later 1")
    second = node(2, Holding.NOTHING, 2 * TTL_MS, "later 2")
    for now_ms in range(2 * TTL_MS, 5 * TTL_MS, TTL_MS // 12):
        run(first, engine, now_ms)
        run(second, engine, now_ms)
    assert first.role is Role.LEADING and first.in_sync == {1}


def test_a_leader_keeps_a_node_that_left_the_in_sync_set_out_of_it() -> None:
    engine = Register()
    leader = leader_of_pair(engine)
    run(node(2, Holding.NOTHING), engine, 10)
    run(leader, engine, 600)
    run(leader, engine, 1200)
    assert leader.role is Role.LEADING
    assert decode_lease_record(engine.value).in_sync == frozenset({1})


@pytest.mark.parametrize(("earlier", "leads"), [("s1", True), ("other", False), ("", False)])
def test_a_restarted_leader_leads_at_once_if_the_lease_is_its_own_session(
    earlier: str, leads: bool
) -> None:
    """A process knows the session of the previous process on its directory. That process cannot run
    any more, so the new one need not wait for the end of its lease.
    """
    engine = Register()
    leader_of_pair(engine)
    again = node(1, earlier_session=earlier)
    run(again, engine, 10)
    assert (again.role is Role.LEADING) == leads


def test_a_record_of_another_cluster_is_refused() -> None:
    engine = Register()
    run(node(1, cluster_id="c"), engine, 0)
    with pytest.raises(LeaseRecordError, match="to the cluster c"):
        run(node(2, cluster_id="d"), engine, 0)


@pytest.mark.parametrize(
    "value",
    [
        b"{}",
        b"",
        b"\xff",
        b"[" * 100_000,
        b"null",
        *(
            RECORD.replace(b'"leader_epoch":1', b'"leader_epoch":' + epoch)
            for epoch in (b"Infinity", b"1e400", b"-1", b"2147483648", b"null", b'"x"')
        ),
        RECORD.replace(b'"in_sync":[1]', b'"in_sync":[Infinity]'),
        RECORD.replace(b'"nodes":{', b'"nodes":{"x":1,'),
    ],
)
def test_an_unreadable_record_is_refused(value: bytes) -> None:
    assert value != RECORD
    engine = Register()
    engine.version, engine.value = "7", value
    with pytest.raises(LeaseRecordError, match="cannot be read"):
        run(node(1), engine, 0)


def test_two_nodes_with_the_same_node_id_are_detected() -> None:
    """Otherwise the second node would wait for ever, or claim the lease with an outdated
    directory.
    """
    engine = Register()
    leader = leader_of_pair(engine)
    namesake = node(1, session="other")
    run(namesake, engine, 0)
    run(leader, engine, 500)
    run(namesake, engine, 500)
    run(leader, engine, 1000)
    with pytest.raises(LeaseRecordError, match="give the two nodes"):
        run(namesake, engine, 1000)


def test_a_leader_is_deposed_if_the_record_was_deleted() -> None:
    engine = Register()
    leader = leader_of_pair(engine)
    engine.version = ABSENT
    run(leader, engine, 600)
    assert leader.role is Role.DEPOSED


class World:
    """Two nodes whose requests and responses may be late, lost or swapped, and whose clocks
    drift.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.engine = Register()
        self.now_ms = 0
        self.rates = [self.random.uniform(0.94, 1.06) for _ in range(2)]
        self.nodes = [self.new_node(index) for index in range(2)]
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.leads = [0, 0]
        self.acknowledged: list[set[int]] = [set(), set()]

    def clock(self, index: int) -> int:
        return int(self.now_ms * self.rates[index]) + 1000 * index

    def new_node(self, index: int) -> Leadership:
        its = Node(index + 1, NodeAddresses("", {}), str(self.random.random()))
        settings = LeaseSettings(TTL_MS, MARGIN_MS)
        return Leadership(its, settings, Holding.WHOLE, self.clock(index))

    def later(self, delay_ms: float, do: Callable[[], None]) -> None:
        self.events.append((self.now_ms + int(delay_ms), len(self.events), do))

    def send(self, index: int) -> None:
        """Send a node's next request. The request and its response arrive late, or after the
        timeout, by chance.
        """
        one = self.nodes[index]
        request = one.next_request(self.clock(index))
        if request is None:
            return
        state: list[Answer | None] = [None]

        def answer(given: Answer | None) -> None:
            if state[0] is None and self.nodes[index] is one:
                state[0] = given or Unknown()
                one.on_answer(state[0], self.clock(index))

        slow = 4000 if self.random.random() < 0.15 else 60
        arrives, back = self.random.uniform(1, slow), self.random.uniform(1, slow)

        def arrive() -> None:
            given = self.engine.apply(request)
            self.later(back, lambda: answer(given))

        self.later(arrives, arrive)
        self.later(one.timeout_ms, lambda: answer(None))

    def step(self) -> None:
        """Advance the clock by 20 ms: let due messages arrive, restart nodes and change the in-sync
        set at random, and send requests.
        """
        self.now_ms += 20
        due = [event for event in self.events if event[0] <= self.now_ms]
        self.events = [event for event in self.events if event[0] > self.now_ms]
        for _, _, do in sorted(due, key=lambda event: event[:2]):
            do()
        for index, one in enumerate(self.nodes):
            if one.role is Role.DEPOSED or self.random.random() < 0.0005:
                self.nodes[index] = self.new_node(index)
            elif self.random.random() < 0.01:
                one.want_in_sync(self.random.choice([frozenset({index + 1}), BOTH]))
            if self.random.random() > 0.1:
                self.send(index)

    def check(self) -> None:
        """Check that at most one node may respond to clients, and that this node knows each node
        that may be in the in-sync set of the record.
        """
        answering = [one for i, one in enumerate(self.nodes) if one.may_answer(self.clock(i))]
        assert len(answering) <= 1
        for one in answering:
            record = decode_lease_record(self.engine.value)
            assert record.in_sync <= one.may_be_in_sync()
            self.leads[self.nodes.index(one)] += 1


def test_at_most_one_node_answers_clients_in_a_world_with_failures() -> None:
    """Two nodes with clocks of different speed, lost messages and restarts, for a minute in each of
    eight worlds.
    """
    leads = [0, 0]
    for seed in range(8):
        world = World(seed)
        for _ in range(3000):  # a minute
            world.step()
            world.check()
        leads = [sum(pair) for pair in zip(leads, world.leads, strict=True)]
    assert min(leads) > 500


def test_the_record_has_the_leader_epoch_of_the_opened_directory() -> None:
    """A directory may have had higher leader epochs before it had a lease. The epoch of the next
    claim must be above all of them.
    """
    engine = Register()
    first = leader_of_pair(engine)
    first.set_opened(52)
    run(first, engine, 1)
    record = decode_lease_record(engine.value)
    assert record.leader_epoch == 52
    assert record.held_epochs[1] == 52
    second = node(2)
    run(second, engine, 1)
    run(second, engine, 1 + TTL_MS)
    assert second.role is Role.LEADING
    assert second.leader_epoch == 53


def record_after_a_take_over(engine: Register) -> LeaseRecord:
    """Return the lease record after node 2 took over, opened its directory and had node 1 in sync
    again. Both nodes have then stopped.
    """
    leader_of_pair(engine)
    second = node(2)
    run(second, engine, 0)
    run(second, engine, TTL_MS)
    second.want_in_sync(())
    second.set_opened(1)
    run(second, engine, TTL_MS)
    second.want_in_sync(BOTH)
    run(second, engine, TTL_MS)
    assert second.record is not None
    assert second.record.held_epochs == {1: 2, 2: 2}
    return second.record


def test_an_older_copy_of_a_directory_does_not_lead() -> None:
    engine = Register()
    record_after_a_take_over(engine)
    restored = node(1, session="restored", leader_epoch=1)
    run(restored, engine, 0)
    run(restored, engine, 2 * TTL_MS)
    assert restored.role is Role.WATCHING
    assert restored.in_sync == {2}
    second = node(2, session="again", leader_epoch=2)
    run(second, engine, 0)
    run(second, engine, TTL_MS)
    assert second.role is Role.LEADING


def test_an_older_copy_that_is_the_only_in_sync_node_explains_why_it_does_not_lead() -> None:
    engine = Register()
    record = record_after_a_take_over(engine)._replace(in_sync=frozenset({1}))
    engine.apply(Write(engine.version, record.encode()))
    restored = node(1, session="restored", leader_epoch=1)
    run(restored, engine, 0)
    run(restored, engine, 2 * TTL_MS)
    assert restored.role is Role.WATCHING
    assert "an older copy" in restored.obstacle(2 * TTL_MS)
    restored.holding = Holding.WHOLE  # the node has followed a leader in the meantime
    run(restored, engine, 2 * TTL_MS)
    assert restored.role is Role.LEADING


@pytest.mark.parametrize("epoch", [2, 3])
def test_a_directory_with_the_recorded_epoch_or_a_later_one_may_lead(epoch: int) -> None:
    """The record has epoch 2 for the directory of node 1. A directory with this epoch or a later
    one is not an older copy.
    """
    engine = Register()
    record_after_a_take_over(engine)
    first = node(1, session="again", leader_epoch=epoch)
    run(first, engine, 0)
    run(first, engine, TTL_MS)
    assert first.role is Role.LEADING


@pytest.mark.parametrize(
    ("node_id", "holding", "says"),
    [
        (2, Holding.NOTHING, "no whole copy of the cluster c"),
        (3, Holding.WHOLE, "start node 1, 2"),
        (2, Holding.WHOLE, ""),
    ],
)
def test_a_waiting_node_explains_why_no_node_leads(
    node_id: int, holding: Holding, says: str
) -> None:
    """The leader does not run any more. The last node in this table is in sync and lacks nothing,
    so it claims the lease, and names no obstacle.
    """
    engine = Register()
    record = LeaseRecord("c", 1, "gone", 4, BOTH, {}, "1-gone-9")
    engine.apply(Write(ABSENT, record.encode()))
    waiting = node(node_id, holding)
    waiting.on_answer(engine.apply(waiting.next_request(0) or Read()), 0)
    assert waiting.obstacle(TTL_MS) == ""
    assert says in waiting.obstacle(2 * TTL_MS)
    assert bool(waiting.obstacle(2 * TTL_MS)) is bool(says)
