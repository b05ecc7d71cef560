"""Rules that other brokers broke: offsets of groups that are committed in transactions."""

import pytest
from helpers.group_host import (
    CLIENT_HOST,
    PARKED,
    GroupHost,
    GroupMember,
    alone,
    pair,
)
from helpers.hard_state import hard_state

from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.coordinator.result import partition_for
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.request_context import RequestContext

DAY_MS = 24 * 3_600_000
CHECK_MS = GroupSettings().offsets_retention_check_interval_ms
NOTHING = (-1, "")


def test_a_new_owner_is_told_to_wait_while_an_offset_is_pending():
    # contract: kip-447/require-stable
    """A new owner of a partition must wait while an offset of the partition is pending.

    Source: KIP-447, KAFKA-9346.
    """
    host = GroupHost()
    leader, follower = pair(host)
    leader.commit({"t": {0: 1}})
    host.txn_commit("g", {"t": {0: 5}}, generation=leader.generation, member=leader.id)
    leader.leave()
    follower.join()
    for version in (7, 8, 9):
        assert host.fetch("g", {"t": [0, 1]}, stable=True, version=version) == {
            ("t", 0): Code.UNSTABLE_OFFSET_COMMIT,
            ("t", 1): NOTHING,
        }
    host.end_transaction(7, commit=True)
    assert host.fetch("g", {"t": [0]}, stable=True) == {("t", 0): (5, "")}


def test_an_abandoned_transaction_blocks_the_group_only_until_its_abort():
    # contract: kip-447/abandoned
    """An abandoned transaction blocks the group only until its abort.

    Source: redpanda#6423.
    """
    host = GroupHost()
    for producer_id in (1, 2, 3):  # the application uses a new transactional id after each start
        host.txn_commit("g", {"t": {0: producer_id}}, producer_id=producer_id)
        assert host.fetch("g", {"t": [0]}, stable=True) == {("t", 0): Code.UNSTABLE_OFFSET_COMMIT}
        host.restart()
        assert host.fetch("g", {"t": [0]}, stable=True) == {("t", 0): Code.UNSTABLE_OFFSET_COMMIT}
        host.end_transaction(producer_id, commit=False, producer_epoch=1)
        assert host.fetch("g", {"t": [0]}, stable=True) == {("t", 0): NOTHING}


def test_the_offset_is_in_sight_as_soon_as_the_marker_is_replayed():
    """The offset is visible as soon as the marker is replayed, so the host may send the response to
    EndTxn after the replay.

    Source: KAFKA-17507.
    """
    host = GroupHost(checks=False)
    host.txn_commit("g", {"t": {0: 5}})
    host.coordinator.replay_marker(partition_for("g", host.partition_count), 1, 7, 0, True)
    assert host.fetch("g", {"t": [0]}, stable=True) == {("t", 0): (5, "")}


def test_zombies_are_fenced_by_generation_member_and_instance():
    # contract: kip-447/group-fencing
    """Zombies are fenced by generation, member id and instance id.

    An older client, from before KIP-447, sends no member id, and may commit in its transaction.

    Source: KIP-447, KAFKA-9365.
    """
    host = GroupHost()

    def one(code):
        return {("t", 0): code}

    member = alone(host)
    static = alone(host, "static", instance="i")
    again = host.join("static", instance="i").member_id

    def txn_commit(**who):
        return host.txn_commit("g", {"t": {0: 1}}, **who)

    assert txn_commit(generation=1, member=member.id) == one(Code.NONE)
    assert txn_commit(generation=0, member=member.id) == one(Code.ILLEGAL_GENERATION)
    assert txn_commit(generation=2, member=member.id) == one(Code.ILLEGAL_GENERATION)
    assert txn_commit(generation=1, member="absent") == one(Code.UNKNOWN_MEMBER_ID)
    assert txn_commit(generation=1, member=member.id, instance="absent") == one(
        Code.UNKNOWN_MEMBER_ID
    )
    assert txn_commit() == one(Code.NONE)
    assert txn_commit(version=2) == one(Code.NONE)
    fenced = host.txn_commit("static", {"t": {0: 1}}, generation=1, member=static.id, instance="i")
    assert fenced == one(Code.FENCED_INSTANCE_ID)
    assert host.txn_commit(
        "static", {"t": {0: 1}}, generation=1, member=again, instance="i"
    ) == one(Code.NONE)


def test_a_refused_commit_leaves_nothing_pending():
    """A refused commit leaves nothing pending.

    Source: KIP-447, KAFKA-9365.
    """
    host = GroupHost()
    member = alone(host)
    written = len(host.log)
    host.txn_commit("g", {"t": {0: 1}}, generation=9, member=member.id)
    assert len(host.log) == written
    assert host.fetch("g", {"t": [0]}, stable=True) == {("t", 0): NOTHING}


def test_a_transaction_may_commit_while_the_group_rebalances():
    # contract: kip-447/rebalance
    """A transaction may commit offsets while the group rebalances.

    A plain commit then gets REBALANCE_IN_PROGRESS. The transaction has the current generation, so
    its client is not a zombie.

    Source: KIP-447, KAFKA-9365.
    """
    host = GroupHost()
    member = GroupMember(host)
    member.join()
    assert host.state("g") == "CompletingRebalance"
    assert host.txn_commit("g", {"t": {0: 1}}, generation=1, member=member.id) == {
        ("t", 0): Code.NONE
    }


def test_what_a_commit_changes_is_what_its_records_say():
    """A commit changes only the state that its records contain, and only when they are replayed.

    Source: KAFKA-15784.
    """
    host = GroupHost()
    host.commit("g", {"t": {0: 1}})
    before = hard_state(host.coordinator)
    partition = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_leader_epoch=-1, committed_metadata=""
    )
    request = TxnOffsetCommitRequest(
        transactional_id="txn",
        group_id="g",
        producer_id=7,
        producer_epoch=2,
        generation_id=-1,
        member_id="",
        group_instance_id=None,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
    )
    result = host.coordinator.commits.on_txn_offset_commit(
        request, RequestContext(99, 4, "client", CLIENT_HOST), host.now_ms
    )
    assert hard_state(host.coordinator) == before
    assert (result.producer, len(result.records)) == ((7, 2), 1)


@pytest.mark.parametrize("way", ["retention", "a retention time of its own"])
def test_retention_spares_offsets_that_are_pending(way):
    """Retention keeps pending offsets.

    Source: redpanda#31483.
    """
    host = GroupHost()
    retention_ms = -1 if way == "retention" else 1_000
    host.commit("g", {"t": {0: 1, 1: 1}}, version=4, retention_ms=retention_ms)
    host.txn_commit("g", {"t": {0: 5, 2: 5}})
    host.pass_time(8 * DAY_MS)
    assert host.fetch("g") == {("t", 0): (1, "")}
    assert host.fetch("g", {"t": [0, 2]}, stable=True) == dict.fromkeys(
        [("t", 0), ("t", 2)], Code.UNSTABLE_OFFSET_COMMIT
    )
    host.end_transaction(7, commit=False)
    host.pass_time(CHECK_MS)
    assert host.fetch("g") == {}
    assert host.state("g") == "Dead"


def test_a_group_with_nothing_but_a_pending_offset_is_not_removed():
    """A group that has only a pending offset is not removed.

    Source: redpanda#31483.
    """
    host = GroupHost()
    host.txn_commit("g", {"t": {0: 5}})
    written = len(host.log)
    host.pass_time(DAY_MS)
    assert len(host.log) == written, "a tombstone would be one too many"
    host.end_transaction(7, commit=True)
    assert host.fetch("g") == {("t", 0): (5, "")}


@pytest.mark.parametrize("restarts", [False, True])
def test_the_later_record_wins_when_the_transaction_ends(restarts):
    """When the transaction ends, its offset loses to a plain commit whose record is later.

    Source: redpanda#31483.
    """
    host = GroupHost()
    host.txn_commit("g", {"t": {0: 10}})
    assert host.commit("g", {"t": {0: 20}}) == {("t", 0): Code.NONE}
    assert host.fetch("g", {"t": [0]}) == {("t", 0): (20, "")}
    if restarts:
        host.restart()
    host.end_transaction(7, commit=True)
    assert host.fetch("g", {"t": [0]}, stable=True) == {("t", 0): (20, "")}
    host.txn_commit("g", {"t": {0: 5}})
    host.end_transaction(7, commit=True)
    assert host.fetch("g", {"t": [0]}, stable=True) == {("t", 0): (5, "")}, (
        "later, though the offset is lower"
    )
    host.restart()
    assert host.fetch("g", {"t": [0]}, stable=True) == {("t", 0): (5, "")}


def test_of_two_transactions_the_one_that_staged_later_wins_whichever_ends_first():
    """If two transactions commit the same offset, the one that wrote it later wins, no matter which
    transaction ends first.

    Source: redpanda#31483.
    """
    host = GroupHost()
    host.txn_commit("g", {"t": {0: 1}}, producer_id=1)
    host.txn_commit("g", {"t": {0: 2}}, producer_id=2)
    host.end_transaction(2, commit=True)
    host.end_transaction(1, commit=True)
    assert host.fetch("g", stable=True) == {("t", 0): (2, "")}


@pytest.mark.parametrize("metadata", ["", "five\0", "ä€😀", "x" * 4096])
def test_metadata_come_back_exactly(metadata):
    """Metadata of commits is returned unchanged.

    Source: Kafka: OffsetCommit, SyncGroup.
    """
    host = GroupHost()
    host.commit("g", {"t": {0: 1}}, metadata=metadata)
    host.txn_commit("g", {"t": {1: 2}}, metadata=metadata)
    host.end_transaction(7, commit=True)
    host.restart()
    assert host.fetch("g") == {("t", 0): (1, metadata), ("t", 1): (2, metadata)}


def test_assignments_come_back_exactly_whatever_their_size():
    """Assignments of any size are returned unchanged.

    Source: Kafka: OffsetCommit, SyncGroup.
    """
    host = GroupHost()
    leader, follower = pair(host)
    ticket = follower.join_later(protocols={"range": b"changed"})
    leader.join()
    follower.took(host.answers[ticket])
    large, binary = bytes(range(256)) * 1_000, bytes(range(256))
    assert leader.sync({leader.id: large, follower.id: binary}).assignment == large
    host.restart()
    assert follower.sync().assignment == binary
    assert leader.sync().assignment == large


def test_rebalances_that_overlap_lose_no_member():
    """Overlapping rebalances lose no member.

    Members that join while others join all end in one generation, and no member id becomes unknown.

    Source: Kafka: GroupMetadataManager.
    """
    host = GroupHost()
    members = [GroupMember(host) for _ in range(5)]
    tickets = {member.id: member.join_later() for member in members}
    for _ in range(20):
        for member in members:
            answer = host.answers.get(tickets[member.id], PARKED)
            if answer is not PARKED:
                assert answer.error_code == Code.NONE
                member.took(answer)
                if member.heartbeat() == Code.REBALANCE_IN_PROGRESS:
                    tickets[member.id] = member.join_later()
    assert len({member.generation for member in members}) == 1
    assert len(host.describe("g").members) == 5
