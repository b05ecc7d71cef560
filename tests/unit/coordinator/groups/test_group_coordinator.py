"""Committed offsets: commits and fetches by version, transactions, deletion and retention. Also,
descriptions of groups.
"""

import pytest
from helpers.group_host import (
    CLIENT_HOST,
    GroupHost,
    GroupMember,
    alone,
    subscription,
)
from helpers.hard_state import hard_state
from helpers.our_messages import operations_in
from helpers.strays import deadlines_of_nothing

from barnabas.coordinator.groups.group_records import (
    decode_offset,
    group_tombstone,
    offset_tombstone,
)
from barnabas.coordinator.groups.group_settings import GroupSettings
from barnabas.coordinator.groups.group_timers import JOIN, PATTERNS, REBALANCE, SYNC
from barnabas.coordinator.result import RECORDS_PER_BATCH, Result, partition_for
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.request_context import RequestContext

DAY_MS = 24 * 3_600_000
CHECK_MS = GroupSettings().offsets_retention_check_interval_ms
NOTHING = (-1, "")


# --- commits without a member ------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 10))
def test_a_commit_without_members_makes_a_group(version):
    host = GroupHost()
    assert host.commit("g", {"t": {0: version}}, metadata=f"m{version}", version=version) == {
        ("t", 0): Code.NONE
    }
    assert host.fetch("g", {"t": [0, 1]}) == {("t", 0): (version, f"m{version}"), ("t", 1): NOTHING}
    answer = host.describe("g")
    assert (answer.group_state, answer.protocol_type, answer.protocol_data, answer.members) == (
        "Empty",
        "",
        "",
        [],
    )


@pytest.mark.parametrize("version", range(1, 10))
def test_fetches_by_version(version):
    host = GroupHost()
    assert host.fetch("g", {"t": [0]}, version=version) == {("t", 0): NOTHING}
    assert epoch_of(host) == -1
    host.commit("g", {"t": {0: 9}}, metadata="m")
    assert host.fetch("g", {"t": [0, 1]}, version=version) == {
        ("t", 0): (9, "m"),
        ("t", 1): NOTHING,
    }
    if version >= 2:
        assert host.fetch("g", version=version) == {("t", 0): (9, "m")}
        assert host.fetch("unknown", version=version) == {}


@pytest.mark.parametrize(("commit_version", "epoch"), [(5, -1), (6, 3), (9, 3)])
def test_leader_epochs_are_kept_from_version_6_on(commit_version, epoch):
    host = GroupHost()
    host.commit("g", {"t": {0: 9}}, leader_epoch=3, version=commit_version)
    answer = host.call(
        "OffsetFetch",
        7,
        group_id="g",
        topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])],
    )
    assert answer.topics[0].partitions[0].committed_leader_epoch == epoch


def epoch_of(host, group="g", partition=0):
    """The leader epoch of the group's committed offset for a partition of t."""
    answer = host.call(
        "OffsetFetch",
        7,
        group_id=group,
        topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[partition])],
    )
    return answer.topics[0].partitions[0].committed_leader_epoch


@pytest.mark.parametrize("lost_power", [False, True])
def test_an_offset_beyond_the_end_of_its_log_is_set_back_to_it(lost_power):
    """`find_logs_cut` takes the end offset of each log. For a leader epoch, it also takes the last
    epoch that the log has, and the end offset of this epoch (KIP-320).
    """
    host = GroupHost()
    host.commit("g", {"t": {0: 15, 1: 9, 2: 15}}, leader_epoch=3)
    host.commit("h", {"t": {0: 10}}, leader_epoch=3)
    host.restart()
    ends = {("t", 0): 12, ("t", 1): 9}  # t-2 is off line, so its end is unknown
    host.find_logs_cut(ends, {("t", 0, 3): (2, 10), ("t", 1, 3): (3, 4)}, lost_power=lost_power)
    assert host.fetch("g", {"t": [0, 1, 2]}) == {
        ("t", 0): (10, ""),
        ("t", 1): (9, ""),
        ("t", 2): (15, ""),
    }
    assert [epoch_of(host, partition=partition) for partition in (0, 1, 2)] == [2, 3, 3], (
        "10 is the end of the epoch 2"
    )
    assert host.fetch("h", {"t": [0]}) == {("t", 0): (10, "")}
    host.restart()
    assert host.fetch("g", {"t": [0, 1, 2]}) == {
        ("t", 0): (10, ""),
        ("t", 1): (9, ""),
        ("t", 2): (15, ""),
    }


def test_an_offset_is_set_back_to_the_end_of_its_log_although_its_epoch_ends_later():
    """The host checks that no offset is set beyond the end of its log."""
    host = GroupHost()
    host.commit("g", {"t": {0: 15}}, leader_epoch=3)
    host.lose_power({("t", 0): 12}, {("t", 0, 3): (3, 14)})
    assert host.fetch("g", {"t": [0]}) == {("t", 0): (12, "")}


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
@pytest.mark.parametrize("session_ms", [2_000, 90_000])
def test_a_member_of_a_loaded_group_has_the_session_of_its_group(kind, session_ms):
    """The setting of the group is shorter or longer than the broker's 45 s."""
    host = GroupHost(topics={"t": 1})
    host.overrides["g"] = {f"{kind}.session.timeout.ms": session_ms}
    getattr(host, f"{kind}_heartbeat")("m")
    host.restart()
    host.pass_time(session_ms - 1)
    assert list(host.coordinator.group("g").member_ids) == ["m"]
    host.pass_time(1)
    assert list(host.coordinator.group("g").member_ids) == []


def test_an_offset_of_an_unknown_leader_epoch_is_set_back_to_the_end_of_its_log():
    host = GroupHost()
    host.commit("g", {"t": {0: 15}}, leader_epoch=7)
    host.lose_power({("t", 0): 12})
    assert host.fetch("g", {"t": [0]}) == {("t", 0): (12, "")}
    assert epoch_of(host) == -1


def test_a_committed_number_that_is_no_offset_is_not_set_back():
    """A commit with metadata but without a leader epoch may contain a number that is no offset, for
    example the number of a Spark micro-batch.
    """
    host = GroupHost()
    host.commit("ledger", {"t": {0: 15}}, metadata="batch 15")
    host.commit("plain", {"t": {0: 15}})
    host.restart()
    host.find_logs_cut({("t", 0): 12}, {}, lost_power=False)
    assert host.fetch("plain", {"t": [0]}) == {("t", 0): (15, "")}, (
        "nothing says that the log was longer"
    )
    host.lose_power({("t", 0): 12})
    assert host.fetch("ledger", {"t": [0]}) == {("t", 0): (15, "batch 15")}
    assert host.fetch("plain", {"t": [0]}) == {("t", 0): (12, "")}


def test_an_offset_that_is_set_back_keeps_what_else_was_committed_with_it():
    host = GroupHost()
    host.commit("g", {"t": {0: 15}}, leader_epoch=0, metadata="m")
    host.commit("old", {"t": {0: 15}}, version=4, retention_ms=5_000)
    host.pass_time(1_000)
    host.lose_power({("t", 0): 12}, {("t", 0, 0): (0, 12)})
    assert host.fetch("g", {"t": [0]}) == {("t", 0): (12, "m")}
    assert host.fetch("old", {"t": [0]}) == {("t", 0): (12, "")}
    host.pass_time(700_000)
    assert host.fetch("old", {"t": [0]}) == {("t", 0): NOTHING}, "it expires as it would have"


def test_commits_without_members():
    host = GroupHost()
    host.commit("g", {"t": {0: 9}})
    assert host.commit("g", {"t": {0: 1}}) == {("t", 0): Code.NONE}, "back to an earlier offset"
    assert host.commit("g", {"t": {1: 5, 7: 5}}) == {
        ("t", 1): Code.NONE,
        ("t", 7): Code.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert host.commit("g", {"missing": {0: 5}}) == {
        ("missing", 0): Code.UNKNOWN_TOPIC_OR_PARTITION
    }
    assert host.fetch("g", {"absent": [0]}) == {("absent", 0): NOTHING}
    assert host.commit("g", {"t": {2: -1}}) == {("t", 2): Code.NONE}
    assert host.fetch("g", {"t": [2]}) == {("t", 2): NOTHING}
    assert host.commit("g", {"t": {2: 10**12}}) == {("t", 2): Code.NONE}, (
        "beyond the end of the log"
    )
    assert host.commit("g", {"t": {2: 6}}, metadata="x" * 4096) == {("t", 2): Code.NONE}
    assert host.commit("g", {"t": {2: 7}}, metadata="x" * 4097) == {
        ("t", 2): Code.OFFSET_METADATA_TOO_LARGE
    }
    assert host.fetch("g", {"t": [2]}) == {("t", 2): (6, "x" * 4096)}
    assert host.commit("g", {"t": {2: 8}}, metadata=None) == {("t", 2): Code.NONE}
    assert host.commit("g", {"t": {0: 1}}, member="somebody") == {("t", 0): Code.NONE}
    assert host.commit("g", {"t": {0: 1}}, generation=3) == {("t", 0): Code.UNKNOWN_MEMBER_ID}
    assert host.commit("g", {"t": {0: 1}}, instance="static") == {("t", 0): Code.NONE}
    assert host.fetch("g") == {("t", 0): (1, ""), ("t", 1): (5, ""), ("t", 2): (8, "")}


def test_an_empty_group_id_is_accepted_by_simple_commits_fetches_and_deletions():
    host = GroupHost()
    assert host.fetch("", {"t": [0]}) == {("t", 0): NOTHING}
    assert host.delete_groups("") == [("", Code.GROUP_ID_NOT_FOUND)]
    assert host.commit("", {"t": {0: 1}}) == {("t", 0): Code.NONE}
    assert host.delete_groups("") == [("", Code.NONE)]


@pytest.mark.parametrize("version", [2, 8, 9])
def test_a_commit_of_a_member_of_a_missing_group_is_refused(version):
    host = GroupHost()
    codes = host.commit("g", {"t": {0: 1}}, generation=1, member="absent", version=version)
    code = Code.ILLEGAL_GENERATION if version < 9 else Code.GROUP_ID_NOT_FOUND
    assert codes == {("t", 0): code}
    assert host.txn_commit("g", {"t": {0: 1}}, generation=1, member="absent") == {
        ("t", 0): Code.ILLEGAL_GENERATION
    }
    assert host.state("g") == "Dead"


def test_unknown_partitions_have_their_own_error_in_a_refused_commit():
    host = GroupHost()
    alone(host)
    codes = host.commit("g", {"missing": {0: 1}, "t": {0: 1, 1: 1}})
    refused = Code.UNKNOWN_MEMBER_ID
    assert codes == {
        ("missing", 0): Code.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", 0): refused,
        ("t", 1): refused,
    }


# --- commits of members -------------------------------------------------------------------------


def test_commits_of_members():
    host = GroupHost()

    def one(code):
        return {("t", 0): code}

    member = GroupMember(host)
    assert member.commit({"t": {0: 1}}, generation=0) == one(Code.UNKNOWN_MEMBER_ID), (
        "the member has an id but has not joined"
    )
    member.join()
    assert member.commit({"t": {0: 1}}) == one(Code.REBALANCE_IN_PROGRESS)
    assert host.commit("g", {"t": {0: 2}}) == one(Code.UNKNOWN_MEMBER_ID), "without a member"
    member.sync({member.id: b"all"})
    assert member.commit({"t": {0: 3}}) == one(Code.NONE)
    assert member.commit({"t": {0: 4}}, generation=0) == one(Code.ILLEGAL_GENERATION)
    assert member.commit({"t": {0: 4}}, generation=2) == one(Code.ILLEGAL_GENERATION)
    assert host.commit("g", {"t": {0: 4}}, generation=1, member="absent") == one(
        Code.UNKNOWN_MEMBER_ID
    )
    assert host.commit("g", {"t": {0: 4}}) == one(Code.UNKNOWN_MEMBER_ID), "without a member"
    unknown = host.commit("g", {"t": {0: 4}}, generation=1, member=member.id, instance="absent")
    assert unknown == one(Code.UNKNOWN_MEMBER_ID)
    assert host.fetch("g", {"t": [0]}) == {("t", 0): (3, "")}
    member.leave()
    assert member.commit({"t": {0: 5}}) == one(Code.UNKNOWN_MEMBER_ID)
    assert host.commit("g", {"t": {0: 6}}) == one(Code.NONE), (
        "without a member, once the group is empty"
    )
    assert host.fetch("g", {"t": [0]}) == {("t", 0): (6, "")}


def test_offsets_of_many_groups():
    host = GroupHost()
    host.commit("one", {"t": {0: 1, 1: 2}, "u": {0: 3}})
    host.commit("two", {"t": {0: 4}}, metadata="m")

    def ask(*groups, version=8):
        answer = host.call("OffsetFetch", version, groups=list(groups), require_stable=False)
        return [
            (
                one.group_id,
                one.error_code,
                [
                    (t.name, [(p.partition_index, p.committed_offset) for p in t.partitions])
                    for t in one.topics
                ],
            )
            for one in answer.groups
        ]

    def every(group, **member):
        return OffsetFetchRequestGroup(group_id=group, topics=None, **member)

    def some(group, *partitions):
        return OffsetFetchRequestGroup(
            group_id=group,
            topics=[OffsetFetchRequestTopics(name="t", partition_indexes=list(partitions))],
        )

    of_two = ("two", 0, [("t", [(0, 4)])])
    assert ask(every("one"), some("two", 0, 1), every("none")) == [
        ("one", 0, [("t", [(0, 1), (1, 2)]), ("u", [(0, 3)])]),
        ("two", 0, [("t", [(0, 4), (1, -1)])]),
        ("none", 0, []),
    ]
    assert ask(every("two"), OffsetFetchRequestGroup(group_id="two", topics=[])) == [
        of_two,
        ("two", 0, []),
    ]
    assert ask(some("", 0), every("two")) == [("", 0, [("t", [(0, -1)])]), of_two]
    for member in (
        {},
        {"member_id": "absent", "member_epoch": 1},
        {"member_id": None, "member_epoch": 7},
    ):
        assert ask(every("two", **member), version=9) == [of_two]
    assert ask() == []


# --- transactions -------------------------------------------------------------------------------


def test_offsets_follow_the_transaction():
    host = GroupHost()
    assert host.txn_commit("g", {"t": {0: 5}}) == {("t", 0): Code.NONE}
    assert host.fetch("g", {"t": [0, 1]}, stable=True) == {
        ("t", 0): Code.UNSTABLE_OFFSET_COMMIT,
        ("t", 1): NOTHING,
    }
    assert host.fetch("g", {"t": [0]}) == {("t", 0): NOTHING}
    assert host.fetch("g", stable=True) == {}, "none is committed"
    host.end_transaction(7, commit=True)
    assert host.fetch("g", {"t": [0, 1]}, stable=True) == {("t", 0): (5, ""), ("t", 1): NOTHING}
    host.txn_commit("g", {"t": {0: 9, 1: 3}})
    assert host.fetch("g", stable=True) == {("t", 0): Code.UNSTABLE_OFFSET_COMMIT}
    host.end_transaction(7, commit=False)
    assert host.fetch("g", {"t": [0, 1]}, stable=True) == {("t", 0): (5, ""), ("t", 1): NOTHING}


@pytest.mark.parametrize("version", range(5))
def test_transactional_offset_commits_by_version(version):
    # contract: kip-447/former-clients
    host = GroupHost()
    assert host.txn_commit("g", {"t": {0: 5, 9: 1}}, metadata="m", version=version) == {
        ("t", 0): Code.NONE,
        ("t", 9): Code.UNKNOWN_TOPIC_OR_PARTITION,
    }
    host.end_transaction(7, commit=True)
    assert host.fetch("g") == {("t", 0): (5, "m")}


def test_the_marker_of_a_fenced_producer_has_a_later_epoch_and_ends_its_transaction():
    host = GroupHost()
    host.txn_commit("g", {"t": {0: 1}}, producer_epoch=3)
    host.end_transaction(7, commit=False, producer_epoch=4)
    assert host.fetch("g", {"t": [0]}, stable=True) == {("t", 0): NOTHING}


def test_transactions_of_two_producers_are_held_apart():
    host = GroupHost()
    host.txn_commit("g", {"t": {0: 1, 1: 1}}, producer_id=1)
    host.txn_commit("g", {"t": {1: 2, 2: 2}}, producer_id=2)
    host.end_transaction(1, commit=False)
    assert host.fetch("g", {"t": [0, 1, 2]}, stable=True) == {
        ("t", 0): NOTHING,
        ("t", 1): Code.UNSTABLE_OFFSET_COMMIT,
        ("t", 2): Code.UNSTABLE_OFFSET_COMMIT,
    }
    host.end_transaction(2, commit=True)
    assert host.fetch("g", stable=True) == {("t", 1): (2, ""), ("t", 2): (2, "")}


def test_one_transaction_holds_offsets_of_several_groups():
    host = GroupHost(partition_count=1)
    host.txn_commit("one", {"t": {0: 1}})
    host.txn_commit("two", {"t": {0: 2}})
    host.end_transaction(7, commit=True)
    assert (host.fetch("one"), host.fetch("two")) == ({("t", 0): (1, "")}, {("t", 0): (2, "")})


def test_a_marker_on_another_partition_of_the_internal_topic_ends_nothing_here():
    host = GroupHost()
    host.txn_commit("one", {"t": {0: 1}})  # stored in partition 2 of 4
    host.txn_commit("two", {"t": {0: 2}})  # stored in partition 0 of 4
    host.end_transaction(7, commit=True, group="two")
    assert host.fetch("one", {"t": [0]}, stable=True) == {("t", 0): Code.UNSTABLE_OFFSET_COMMIT}
    assert host.fetch("two", stable=True) == {("t", 0): (2, "")}


def test_a_marker_of_a_producer_without_pending_offsets_changes_nothing():
    host = GroupHost()
    host.end_transaction(12345, commit=True)
    assert hard_state(host.coordinator) == {"groups": {}, "open": {}}


def test_a_deletion_removes_pending_offsets():
    host = GroupHost()
    host.commit("g", {"t": {0: 1}})
    host.txn_commit("g", {"t": {0: 5, 1: 6}})
    assert host.delete_offsets("g", {"t": [0]}) == {("t", 0): Code.NONE}
    host.end_transaction(7, commit=True)
    assert host.fetch("g") == {("t", 1): (6, "")}


# --- deletion -----------------------------------------------------------------------------------


def test_deleting_offsets():
    """KIP-496."""
    host = GroupHost()
    assert host.delete_offsets("g", {"t": [0]}) == Code.GROUP_ID_NOT_FOUND
    assert host.delete_offsets("", {"t": [0]}) == Code.INVALID_GROUP_ID
    host.commit("g", {"t": {0: 1, 1: 2}, "u": {0: 3}})
    member = alone(host, topics=("u",))
    answer = host.delete_offsets("g", {"t": [0], "u": [0]})
    assert answer == {("t", 0): Code.NONE, ("u", 0): Code.GROUP_SUBSCRIBED_TO_TOPIC}
    unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
    answer = host.delete_offsets("g", {"t": [0, 9], "missing": [0]})
    assert answer == {("t", 0): Code.NONE, ("t", 9): unknown, ("missing", 0): unknown}
    assert host.fetch("g") == {("t", 1): (2, ""), ("u", 0): (3, "")}
    member.leave()
    assert host.delete_offsets("g", {"u": [0]}) == {("u", 0): Code.NONE}
    assert host.fetch("g") == {("t", 1): (2, "")}


def test_an_empty_group_remains_without_offsets_until_its_retention_check():
    """`kafka-consumer-groups --delete` can follow `--delete-offsets`."""
    host = GroupHost()
    host.commit("simple", {"t": {0: 1, 1: 2}})
    alone(host, "left").leave()
    host.commit("left", {"t": {0: 1}})
    assert host.delete_offsets("simple", {"t": [0]}) == {("t", 0): Code.NONE}
    assert host.state("simple") == "Empty"
    assert host.delete_offsets("simple", {"t": [1]}) == {("t", 1): Code.NONE}
    assert host.delete_offsets("left", {"t": [0, 1]}) == {("t", 0): Code.NONE, ("t", 1): Code.NONE}
    for _ in range(2):
        assert (host.state("simple"), host.state("left")) == ("Empty", "Empty")
        assert host.txn_commit("simple", {"t": {0: 1}}, generation=3) == {
            ("t", 0): Code.UNKNOWN_MEMBER_ID
        }
        host.restart()
    assert host.delete_groups("left") == [("left", Code.NONE)]
    host.pass_time(2 * host.settings.offsets_retention_check_interval_ms)
    assert host.list_groups() == {}
    host.restart()
    host.pass_time(2 * host.settings.offsets_retention_check_interval_ms)
    assert host.list_groups() == {}
    assert host.delete_offsets("left", {"t": [0]}) == Code.GROUP_ID_NOT_FOUND


def test_a_heartbeat_without_a_group_is_refused():
    assert GroupHost().heartbeat("", 1, "m") == Code.INVALID_GROUP_ID


def test_a_group_with_members_is_kept_without_offsets():
    host = GroupHost()
    host.commit("g", {"t": {0: 1}})
    member = alone(host, topics=("u",))
    assert host.delete_offsets("g", {"t": [0]}) == {("t", 0): Code.NONE}
    assert (host.state("g"), member.heartbeat()) == ("Stable", Code.NONE)


@pytest.mark.parametrize("commit", [True, False])
def test_deleting_offsets_removes_pending_offsets_without_committed_ones(commit):
    host = GroupHost()
    host.txn_commit("g", {"t": {0: 5, 1: 6}})
    assert host.delete_offsets("g", {"t": [0]}) == {("t", 0): Code.NONE}
    host.restart()
    host.end_transaction(7, commit=commit)
    assert host.fetch("g") == ({("t", 1): (6, "")} if commit else {})


def test_a_group_with_pending_offsets_is_kept_without_committed_offsets():
    host = GroupHost()
    host.commit("g", {"t": {0: 1}})
    host.txn_commit("g", {"t": {1: 6}})
    assert host.delete_offsets("g", {"t": [0]}) == {("t", 0): Code.NONE}
    assert host.state("g") == "Empty"
    host.end_transaction(7, commit=True)
    assert host.fetch("g") == {("t", 1): (6, "")}


def test_offsets_of_a_non_empty_group_of_another_protocol_type_are_not_deleted():
    host = GroupHost()
    host.commit("g", {"t": {0: 1}})
    alone(host, kind="connect")
    assert host.delete_offsets("g", {"t": [0]}) == Code.NON_EMPTY_GROUP


@pytest.mark.parametrize(
    "metadata", [b"", b"sub", b"\0\0\0\0\0\1\0\5t", b"\xff\xff" + bytes(8), subscription("t")[:-1]]
)
def test_a_member_with_an_unreadable_subscription_counts_as_subscribed_to_all_topics(metadata):
    host = GroupHost()
    host.commit("g", {"u": {0: 1}})
    GroupMember(host, protocols={"range": metadata}).join()
    assert host.delete_offsets("g", {"u": [0]}) == {("u", 0): Code.GROUP_SUBSCRIBED_TO_TOPIC}


def test_subscribed_topics_are_read_from_later_versions_of_a_subscription():
    host = GroupHost()
    host.commit("g", {"t": {0: 1}, "u": {0: 1}})
    alone(
        host,
        protocols={
            "cooperative-sticky": b"\0\3" + subscription("u")[2:] + b"owned partitions and more"
        },
    )
    codes = host.delete_offsets("g", {"t": [0], "u": [0]})
    assert codes == {("t", 0): Code.NONE, ("u", 0): Code.GROUP_SUBSCRIBED_TO_TOPIC}


def test_offsets_are_removed_with_their_topic():
    host = GroupHost()
    host.commit("g", {"t": {0: 1}, "u": {0: 2}})
    host.txn_commit("h", {"t": {0: 1}, "u": {0: 2}})
    host.delete_topics("t", "v")
    assert host.fetch("g") == {("u", 0): (2, "")}
    assert host.fetch("g", {"t": [0]}) == {("t", 0): NOTHING}
    host.end_transaction(7, commit=True)
    assert host.fetch("h") == {("u", 0): (2, "")}, "the pending offset goes too"


def test_deleting_groups():
    host = GroupHost()
    member = alone(host, "stable")
    alone(host, "empty").leave()
    host.commit("offsets", {"t": {0: 1}})
    assert host.delete_groups("stable", "empty", "offsets", "missing") == [
        ("stable", Code.NON_EMPTY_GROUP),
        ("empty", Code.NONE),
        ("offsets", Code.NONE),
        ("missing", Code.GROUP_ID_NOT_FOUND),
    ]
    assert host.delete_groups("empty", "offsets") == [
        ("empty", Code.GROUP_ID_NOT_FOUND),
        ("offsets", Code.GROUP_ID_NOT_FOUND),
    ]
    assert host.fetch("offsets") == {}
    assert host.state("empty") == "Dead"
    assert host.delete_groups("") == [("", Code.GROUP_ID_NOT_FOUND)]
    assert host.delete_groups("stable", "stable") == [("stable", Code.NON_EMPTY_GROUP)], (
        "answered once"
    )
    assert member.heartbeat() == Code.NONE
    host.restart()
    assert list(host.list_groups()) == ["stable"]


def test_pending_offsets_are_removed_with_their_group():
    host = GroupHost()
    host.txn_commit("g", {"t": {0: 1}})
    assert host.delete_groups("g") == [("g", Code.NONE)]
    host.end_transaction(7, commit=True)
    assert host.fetch("g") == {}
    assert host.state("g") == "Dead"


def test_a_large_group_is_deleted_in_several_batches_and_answered_after_the_last():
    host = GroupHost(topics={"t": 2_500})
    host.checks = False
    host.commit("g", {"t": dict.fromkeys(range(2_500), 1)})
    request = DeleteGroupsRequest(groups_names=["g"])
    result = host.coordinator.administration.on_delete_groups(
        request, RequestContext(1, 2, "client", CLIENT_HOST), host.now_ms
    )
    parts = [result, *result.more]
    assert [len(part.records) for part in parts] == [RECORDS_PER_BATCH, RECORDS_PER_BATCH, 501]
    assert [len(part.replies) for part in parts] == [0, 0, 1]


def test_the_offsets_of_deleted_topics_are_removed_in_parts():
    host = GroupHost(topics={"t": 2_500, "kept": 1})
    host.checks = False
    for group in ("g", "h"):
        host.commit(group, {"t": dict.fromkeys(range(2_500), 1), "kept": {0: 1}})
    host.txn_commit("pending", {"t": {0: 1}})
    parts = []
    for result in host.coordinator.removal.on_topics_deleted(["t"], ()):
        parts.append(sum(len(part.records) for part in (result, *result.more)))
        host.handle(result)
        host.delete_groups("h")
    assert max(parts) <= 2 * RECORDS_PER_BATCH
    assert len(parts) >= 3
    assert host.fetch("g") == {("kept", 0): (1, "")}
    host.end_transaction(7, commit=True)
    assert host.fetch("pending") == {}


def test_many_offsets_expire_in_parts():
    host = GroupHost(topics={"t": 2_500})
    host.checks = False
    for group in ("g", "h", "i"):
        host.commit(group, {"t": dict.fromkeys(range(2_500), 1)})
    host.now_ms += 7 * DAY_MS + CHECK_MS
    parts = []
    while (deadline := host.coordinator.next_deadline_ms()) is not None and deadline <= host.now_ms:
        result = host.coordinator.on_tick(host.now_ms)
        parts.append(sum(len(part.records) for part in (result, *result.more)))
        host.handle(result)
    assert max(parts) <= 2 * RECORDS_PER_BATCH
    assert sum(parts) == 3 * 2_501
    assert [host.state(group) for group in ("g", "h", "i")] == ["Dead"] * 3


# --- retention (KIP-211) ------------------------------------------------------------------------


def test_offsets_are_kept_for_the_retention_time_after_their_group_became_empty():
    host = GroupHost()
    member = alone(host, topics=("t",))
    member.commit({"t": {0: 1}, "u": {0: 2}})
    for _ in range(8):
        host.pass_time(1_000)
        member.heartbeat()
    member.leave()
    host.pass_time(7 * DAY_MS - 1)
    assert host.fetch("g") == {("t", 0): (1, ""), ("u", 0): (2, "")}
    host.pass_time(CHECK_MS)
    assert host.fetch("g") == {}
    assert host.state("g") == "Dead"
    host.restart()
    assert host.list_groups() == {}


def test_a_deleted_group_leaves_no_timer():
    host = GroupHost()
    host.commit("g", {"t": {0: 5}})
    assert host.coordinator.next_deadline_ms() is not None
    assert host.delete_groups("g") == [("g", Code.NONE)]
    assert host.coordinator.next_deadline_ms() is None


def test_a_restart_does_not_prolong_retention():
    host = GroupHost()
    member = alone(host)
    member.commit({"t": {0: 1}})
    member.leave()
    host.pass_time(6 * DAY_MS)
    host.restart()
    host.pass_time(DAY_MS + CHECK_MS)
    assert host.fetch("g") == {}


def test_offsets_of_a_simple_group_are_kept_for_the_retention_time_after_their_commit():
    host = GroupHost()
    host.commit("g", {"t": {0: 1, 1: 1}})
    host.pass_time(4 * DAY_MS)
    host.commit("g", {"t": {0: 2}})
    host.pass_time(3 * DAY_MS + CHECK_MS)
    assert host.fetch("g") == {("t", 0): (2, "")}
    host.pass_time(4 * DAY_MS + CHECK_MS)
    assert host.fetch("g") == {}
    assert host.list_groups() == {}


def test_offsets_of_unsubscribed_topics_expire_while_the_group_has_members():
    host = GroupHost(checks=False)
    member = alone(host, topics=("t",), session_ms=1_800_000)
    member.commit({"t": {0: 1}, "u": {0: 2}})
    for _ in range(7 * 24 * 3):
        host.pass_time(20 * 60_000)
        assert member.heartbeat() == Code.NONE
    host.pass_time(CHECK_MS)
    assert host.fetch("g") == {("t", 0): (1, "")}
    assert host.state("g") == "Stable"


def test_offsets_of_a_non_empty_group_of_another_protocol_type_do_not_expire():
    host = GroupHost(checks=False)
    member = alone(host, kind="connect", session_ms=1_800_000)
    member.commit({"t": {0: 1}})
    for _ in range(8 * 24 * 3):
        host.pass_time(20 * 60_000)
        assert member.heartbeat() == Code.NONE
    assert host.fetch("g") == {("t", 0): (1, "")}


def test_a_group_that_gets_members_again_keeps_its_offsets():
    host = GroupHost()
    member = alone(host, topics=("t",))
    member.commit({"t": {0: 1}})
    member.leave()
    host.pass_time(7 * DAY_MS - 1_000)
    member = alone(host, topics=("t",))
    host.pass_time(9_999)
    assert member.heartbeat() == Code.NONE
    host.pass_time(DAY_MS)
    assert (host.state("g"), host.fetch("g")) == ("Empty", {("t", 0): (1, "")})


def test_a_group_keeps_its_record_while_one_of_its_offsets_is_retained():
    host = GroupHost()
    alone(host).leave()
    host.commit("g", {"t": {0: 1}}, version=4, retention_ms=1_000)
    host.commit("g", {"t": {1: 2}})
    host.pass_time(2 * CHECK_MS)
    host.restart()
    assert host.fetch("g") == {("t", 1): (2, "")}
    assert host.list_groups() == {"g": ("consumer", "Empty")}


def test_a_commits_own_retention_time_may_be_longer_than_the_brokers():
    host = GroupHost()
    host.commit("g", {"t": {0: 1}}, version=4, retention_ms=30 * DAY_MS)
    host.pass_time(29 * DAY_MS)
    assert host.fetch("g") == {("t", 0): (1, "")}
    host.pass_time(DAY_MS + CHECK_MS)
    assert host.fetch("g") == {}


@pytest.mark.parametrize("ahead_ms", [-5_000, 7_000])
def test_records_of_commits_have_the_time_of_the_wall_clock(ahead_ms):
    host = GroupHost(partition_count=1)
    host.wall_ahead_ms = ahead_ms
    host.commit("g", {"t": {0: 1}})
    host.commit("g", {"t": {0: 1}}, version=4, retention_ms=60_000)
    host.txn_commit("g", {"t": {0: 1}})
    commits = [decode_offset(value, 0) for _, _, value, _ in host.log]
    wall_ms = host.now_ms + ahead_ms
    assert [one.commit_timestamp_ms for one in commits] == [wall_ms] * 3
    assert commits[1].expire_timestamp_ms == wall_ms + 60_000


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("retention_ms", [0, 1_000])
def test_a_commits_own_retention_time_survives_a_restart(version, retention_ms):
    host = GroupHost()
    host.commit("g", {"t": {0: 1}}, version=version, retention_ms=retention_ms)
    host.commit("g", {"t": {1: 1}}, version=version)
    host.restart()
    host.pass_time(CHECK_MS)
    assert host.fetch("g") == {("t", 1): (1, "")}


def test_an_empty_group_without_offsets_is_removed_by_the_next_check():
    host = GroupHost()
    alone(host).leave()
    GroupMember(host, "only an id")
    assert host.list_groups() == {"g": ("consumer", "Empty"), "only an id": ("", "Empty")}
    host.pass_time(CHECK_MS)
    assert host.list_groups() == {}
    host.restart()
    assert host.list_groups() == {}


def test_ticks_when_nothing_is_due_write_nothing():
    host = GroupHost()
    member = alone(host)
    member.commit({"t": {0: 1}})
    written = len(host.log)
    for _ in range(100):
        result = host.coordinator.on_tick(host.now_ms + 1)
        assert not result.records and not result.replies and not result.more
    assert len(host.log) == written


# --- descriptions -------------------------------------------------------------------------------


def test_listing_groups():
    host = GroupHost()
    alone(host, "stable")
    alone(host, "empty", kind="connect").leave()
    host.commit("offsets", {"t": {0: 1}})
    stable, others = (
        {"stable": ("consumer", "Stable")},
        {"empty": ("connect", "Empty"), "offsets": ("", "Empty")},
    )
    assert host.list_groups() == {**stable, **others}
    without_states = {"stable": ("consumer", ""), "empty": ("connect", ""), "offsets": ("", "")}
    assert [host.list_groups(version) for version in range(4)] == [without_states] * 4
    assert (
        host.list_groups(4, states_filter=["Stable"])
        == host.list_groups(4, states_filter=["stable"])
        == stable
    )
    assert host.list_groups(4, states_filter=["Empty", "Dead"]) == others
    assert host.list_groups(4, states_filter=["Nonsense"]) == {}
    assert (
        host.list_groups(5, types_filter=["classic"])
        == host.list_groups(5, types_filter=["CLASSIC"])
        == {**stable, **others}
    )
    assert (
        host.list_groups(5, types_filter=["consumer"])
        == host.list_groups(5, types_filter=["nonsense"])
        == {}
    )
    assert host.list_groups(5, states_filter=["Stable"], types_filter=["classic"]) == stable
    answer = host.call("ListGroups", 5, states_filter=[], types_filter=[])
    assert [one.group_type for one in answer.groups] == ["classic"] * 3


@pytest.mark.parametrize("version", range(7))
def test_describing_groups(version):
    host = GroupHost()
    member = alone(host, "stable", b"metadata")
    alone(host, "empty").leave()
    stable, empty, missing = (
        host.describe(name, version) for name in ("stable", "empty", "missing")
    )
    assert (stable.error_code, stable.group_state, stable.protocol_type, stable.protocol_data) == (
        Code.NONE,
        "Stable",
        "consumer",
        "range",
    )
    (one,) = stable.members
    assert (one.member_id, one.client_id, one.client_host) == (member.id, "client", CLIENT_HOST)
    assert (one.member_metadata, one.member_assignment) == (subscription(data=b"metadata"), b"all")
    assert (empty.error_code, empty.group_state, empty.protocol_type, empty.protocol_data) == (
        Code.NONE,
        "Empty",
        "consumer",
        "",
    )
    assert (missing.group_state, missing.protocol_type, missing.protocol_data, missing.members) == (
        "Dead",
        "",
        "",
        [],
    )
    assert missing.error_code == (Code.GROUP_ID_NOT_FOUND if version >= 6 else Code.NONE)
    if version >= 6:
        assert missing.error_message == "Group missing not found."
        assert stable.error_message is None
    assert host.describe("", version).group_state == "Dead"
    assert host.call("DescribeGroups", version, groups=[]).groups == []


def test_authorized_operations_are_returned_on_request():
    host = GroupHost()
    alone(host)
    answer = host.call("DescribeGroups", 5, groups=["g"], include_authorized_operations=True)
    assert operations_in(answer.groups[0].authorized_operations) == {3, 6, 8, 10, 11}


def test_authorized_operations_of_consumer_groups_are_returned_only_on_request():
    host = GroupHost()
    host.consumer_heartbeat()
    groups = {}
    for is_asked in (False, True):
        answer = host.call(
            "ConsumerGroupDescribe",
            1,
            group_ids=["g", "missing"],
            include_authorized_operations=is_asked,
        )
        groups[is_asked] = {row.group_id: row.authorized_operations for row in answer.groups}
    not_requested = -(2**31)
    assert groups[False] == {"g": not_requested, "missing": not_requested}
    assert operations_in(groups[True]["g"]) == {3, 6, 8, 10, 11}
    assert groups[True]["missing"] == not_requested


def test_describing_a_missing_consumer_group_returns_its_error():
    host = GroupHost()
    answer = host.call("ConsumerGroupDescribe", 1, group_ids=["missing", ""])
    assert [(row.group_id, row.error_code) for row in answer.groups] == [
        ("missing", Code.GROUP_ID_NOT_FOUND),
        ("", Code.INVALID_GROUP_ID),
    ]
    assert "'missing'" in answer.groups[0].error_message


# --- records that are replayed ------------------------------------------------------------------


def test_a_tombstone_of_a_missing_group_changes_nothing():
    """Compaction may have removed the older records, so that only the tombstone remains."""
    coordinator = GroupHost().coordinator
    of_a_consumer_group = [key for key, _ in rows_of_a_consumer_group()]
    for key in (offset_tombstone("g", "t", 0)[0], group_tombstone("g")[0], *of_a_consumer_group):
        coordinator.replay(0, 0, key, None, None)
    assert hard_state(coordinator) == {"groups": {}, "open": {}}
    assert coordinator.all_groups() == []


def rows_of_a_consumer_group(member="m"):
    """The (key, value) pairs of a consumer group with one member. The record of the group comes
    first.
    """
    host = GroupHost(partition_count=1)
    host.consumer_heartbeat(member)
    return sorted((key, value) for _, key, value, _ in host.log)


@pytest.mark.parametrize("first", ["classic", "consumer"])
def test_a_group_exists_while_the_log_has_a_record_of_either_kind(first):
    """While a group is converted to the other kind, the log has records of both kinds."""
    host = GroupHost(partition_count=1)
    alone(host).leave()
    rows = {
        "classic": [(key, value) for _, key, value, _ in host.log],
        "consumer": rows_of_a_consumer_group(),
    }
    second = "consumer" if first == "classic" else "classic"
    coordinator = host.new_coordinator()
    for kind in (first, second):
        for key, value in rows[kind]:
            coordinator.replay(0, 0, key, value, None)
    for key in dict(reversed(rows[first])):
        coordinator.replay(0, 0, key, None, None)
    (group,) = coordinator.all_groups()
    assert (group.kind == "consumer", group.metadata_value is not None) == (
        second == "consumer",
        second == "classic",
    )
    for key in dict(reversed(rows[second])):
        coordinator.replay(0, 0, key, None, None)
    assert coordinator.all_groups() == []


def test_the_hard_state_has_the_members_of_consumer_groups():
    states = []
    for member in ("one", "other"):
        coordinator = GroupHost().coordinator
        for key, value in rows_of_a_consumer_group(member):
            coordinator.replay(0, 0, key, value, None)
        states.append(hard_state(coordinator))
    assert states[0] != states[1]


def test_an_open_transaction_has_its_producers_latest_epoch():
    host = GroupHost(partition_count=1)
    host.txn_commit("g", {"t": {0: 1}}, producer_epoch=3)
    host.txn_commit("g", {"t": {1: 1}}, producer_epoch=4)
    assert hard_state(host.coordinator)["open"] == {(0, 7): (4, ("g",))}


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_on_offsets_is_forgotten_after_its_marker(commit: bool):
    """Otherwise the coordinator would keep every producer id in memory, and each session may use a
    new one.
    """
    host = GroupHost(partition_count=1)
    for producer_id in (7, 8):
        host.txn_commit("g", {"t": {0: 1}}, producer_id=producer_id)
        host.txn_commit("other", {"t": {0: 1}}, producer_id=producer_id)
    host.end_transaction(7, commit)
    assert hard_state(host.coordinator)["open"] == {(0, 8): (0, ("g", "other"))}
    host.end_transaction(8, commit)
    assert hard_state(host.coordinator)["open"] == {}


def test_a_group_whose_record_is_deleted_keeps_its_offsets():
    host = GroupHost(partition_count=1)
    alone(host).leave()
    host.commit("g", {"t": {0: 1}})
    host.handle(Result(partition=0, records=[group_tombstone("g")]))
    assert hard_state(host.coordinator)["groups"]["g"][1] is None
    host.restart()
    assert host.fetch("g") == {("t", 0): (1, "")}
    assert host.list_groups() == {"g": ("", "Empty")}


def test_a_start_after_a_power_loss_writes_nothing_for_groups_without_members():
    host = GroupHost()
    alone(host, "left").leave()
    host.consumer_heartbeat(group="consumers")
    host.consumer_heartbeat(epoch=-1, group="consumers")
    host.commit("simple", {"t": {0: 1}})
    written = len(host.log)
    host.lose_power({})
    assert len(host.log) == written


def test_each_offset_beyond_its_log_is_set_back():
    host = GroupHost()
    host.commit("g", {"t": {0: 5}}, metadata="batch 5")
    host.commit("g", {"t": {1: 9, 2: 15}}, leader_epoch=3)
    host.restart()
    host.find_logs_cut(
        {("t", 0): 2, ("t", 1): 9, ("t", 2): 12}, {("t", 2, 3): (2, 0)}, lost_power=True
    )
    assert host.fetch("g") == {("t", 0): (5, "batch 5"), ("t", 1): (9, ""), ("t", 2): (0, "")}, (
        "the epoch of the third ended before its first record"
    )


# --- ticks --------------------------------------------------------------------------------------


def test_one_tick_does_all_that_is_due():
    host = GroupHost()
    for name, session_ms in (("silent", 10_000), ("long silent", 1_800_000)):
        alone(host, name, session_ms=session_ms)
    host.commit("old", {"t": {0: 1}}, version=4, retention_ms=1_000)
    alone(host, "left").leave()
    assert host.delete_groups("left") == [("left", Code.NONE)]
    host.now_ms += 4 * CHECK_MS
    host.handle(host.coordinator.on_tick(host.event_ms()))
    states = {name: host.state(name) for name in ("silent", "long silent", "old", "left")}
    assert states == {"silent": "Empty", "long silent": "Empty", "old": "Dead", "left": "Dead"}


@pytest.mark.parametrize("kind", [JOIN, SYNC, REBALANCE, PATTERNS])
@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance"])
def test_left_over_timers_of_another_group_kind_do_not_end_a_rebalance(state, kind):
    """A classic group is in a rebalance, and a timer of its former kind is due. The timer must
    change nothing.
    """
    host = GroupHost()
    member = alone(host)
    other = GroupMember(host)
    other.join_later()
    if state == "CompletingRebalance":
        member.join()
    assert host.state("g") == state
    key = (kind, "g", "" if kind == PATTERNS else "somebody")
    host.coordinator.timers.schedule(key, host.now_ms)
    host.pass_time(0)
    assert host.state("g") == state


def test_many_groups_expire_in_parts():
    host = GroupHost(checks=False)
    groups = [f"g{number}" for number in range(300)]
    for group in groups:
        host.commit(group, {"t": {0: 1, 1: 1, 2: 1}}, version=4, retention_ms=1_000)
    host.now_ms += CHECK_MS
    parts = []
    while host.list_groups():
        result = host.coordinator.on_tick(host.event_ms())
        parts.append(sum(len(part.records) for part in (result, *result.more)))
        host.handle(result)
    assert sum(parts) == 4 * len(groups)
    assert max(parts) <= sum(parts) // 3


def test_at_most_100_members_are_removed_in_a_tick():
    host = GroupHost(checks=False)
    for number in range(300):
        alone(host, f"g{number}", topics=("t",), session_ms=10_000)
    host.now_ms += 10_000
    parts = []
    while (due_ms := host.coordinator.next_deadline_ms()) is not None and due_ms <= host.now_ms:
        result = host.coordinator.on_tick(host.event_ms())
        parts.append(sum(len(part.records) for part in (result, *result.more)))
        host.handle(result)
    assert sum(parts) == 300
    assert max(parts) <= 100


def test_a_group_with_members_and_without_offsets_is_kept_by_checks():
    host = GroupHost()
    member = alone(host, topics=("t",), session_ms=1_800_000)
    host.pass_time(2 * CHECK_MS)
    assert member.heartbeat() == Code.NONE
    host.restart()
    assert (host.state("g"), member.heartbeat()) == ("Stable", Code.NONE)


def test_an_id_that_never_joined_leaves_no_record():
    host = GroupHost()
    GroupMember(host)
    host.pass_time(2 * CHECK_MS)
    assert (host.list_groups(), host.log) == ({}, [])


def test_offsets_are_checked_within_one_interval_of_each_commit():
    host = GroupHost()
    host.commit("g", {"t": {0: 1}})
    assert host.coordinator.next_deadline_ms() == host.now_ms + CHECK_MS
    host.pass_time(CHECK_MS)
    assert host.coordinator.next_deadline_ms() == host.now_ms - CHECK_MS + 7 * DAY_MS
    host.commit("g", {"t": {1: 1}}, version=4, retention_ms=1_000)
    for _ in range(4):
        host.pass_time(CHECK_MS // 4)
        host.commit("g", {"t": {2: 1}})
    assert host.fetch("g") == {("t", 0): (1, ""), ("t", 2): (1, "")}, "commits do not put it off"


def test_a_group_whose_only_transaction_was_aborted_is_removed_by_the_next_check():
    host = GroupHost()
    host.txn_commit("g", {"t": {0: 1}})
    host.end_transaction(7, commit=False)
    assert host.list_groups() == {"g": ("", "Empty")}
    host.pass_time(CHECK_MS)
    assert host.list_groups() == {}


def test_commits_for_unknown_partitions_alone_make_no_group():
    host = GroupHost()
    unknown = {("missing", 0): Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert host.commit("g", {"missing": {0: 1}}) == unknown
    assert host.commit("g", {"missing": {0: 1}}, generation=1, member="absent") == unknown
    assert host.txn_commit("g", {"missing": {0: 1}}) == unknown
    assert host.list_groups() == {}


def test_offsets_that_expired_while_the_broker_was_down_are_removed_by_the_first_check():
    host = GroupHost()
    host.commit("g", {"t": {0: 1}})
    host.pass_time(4 * DAY_MS)
    host.commit("g", {"t": {1: 1}})
    host.now_ms += 4 * DAY_MS
    host.restart()
    host.pass_time(CHECK_MS)
    assert host.fetch("g") == {("t", 1): (1, "")}


def test_metadata_that_are_too_long_are_refused_for_their_partition_alone():
    host = GroupHost()
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=5,
            committed_leader_epoch=-1,
            committed_metadata="x" * size,
        )
        for index, size in ((0, 4_097), (1, 4_096), (2, 0))
    ]
    answer = host.call(
        "OffsetCommit",
        9,
        group_id="g",
        topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)],
    )
    codes = [one.error_code for one in answer.topics[0].partitions]
    assert codes == [Code.OFFSET_METADATA_TOO_LARGE, Code.NONE, Code.NONE]
    assert host.fetch("g") == {("t", 1): (5, "x" * 4_096), ("t", 2): (5, "")}


def test_a_commit_of_generation_0_of_a_missing_group_is_refused():
    assert GroupHost().commit("g", {"t": {0: 1}}, generation=0, member="m", version=8) == {
        ("t", 0): Code.ILLEGAL_GENERATION
    }


def test_deleting_offsets_of_only_unknown_partitions_checks_the_group_too():
    host = GroupHost()
    assert host.delete_offsets("absent", {"missing": [0]}) == Code.GROUP_ID_NOT_FOUND
    assert host.delete_offsets("", {"missing": [0]}) == Code.INVALID_GROUP_ID


def test_a_result_names_the_partition_of_its_group():
    """Also one that has no records."""
    host = GroupHost(partition_count=50)
    context = RequestContext(1, 8, "client", CLIENT_HOST)

    topics = [OffsetCommitRequestTopic("missing", partitions=[OffsetCommitRequestPartition(0, 1)])]
    request = OffsetCommitRequest("hello", topics=topics)
    result = host.coordinator.commits.on_offset_commit(request, context, host.now_ms)
    assert not result.records
    assert result.partition == partition_for("hello", 50) == 22


def test_a_group_that_is_named_twice_is_deleted_once():
    host = GroupHost()
    host.commit("g", {"t": {0: 1}})
    written = len(host.log)
    assert host.delete_groups("g", "g") == [("g", Code.NONE)]
    assert len(host.log) == written + 2, "the tombstones of its offset and of itself"


@pytest.mark.parametrize("topic", ["t", "u"])
def test_groups_are_searched_in_parts_for_the_offsets_of_a_deleted_topic(topic):
    """Other requests must not wait for the whole search, even if no group has such offsets."""
    host = GroupHost(checks=False)
    for number in range(2_500):
        host.commit(f"g{number}", {topic: {0: 1}})
    parts = []
    for result in host.coordinator.removal.on_topics_deleted(["t"], ()):
        parts.append(sum(len(part.records) for part in (result, *result.more)))
        host.handle(result)
    assert sum(parts) == (2_500 if topic == "t" else 0)
    assert max(parts) <= RECORDS_PER_BATCH
    assert 3 <= len(parts) <= 6


def test_dropped_records_of_a_classic_or_missing_group_change_nothing():
    """A decision of a classic group is valid even if its records are dropped. A group that does not
    exist has made no decision.
    """
    host = GroupHost()
    member = alone(host)
    for group in ("g", "missing"):
        host.coordinator.on_records_dropped(group)
    assert member.heartbeat() == Code.NONE


def test_a_deleted_group_leaves_no_timer_of_a_pending_member() -> None:
    host = GroupHost()
    host.commit("g", {"t": {0: 1}})
    assert host.join("g", version=4).error_code == Code.MEMBER_ID_REQUIRED
    assert len(host.coordinator.timers) > 1
    assert host.delete_groups("g") == [("g", Code.NONE)]
    assert host.coordinator.group("g") is None
    assert list(deadlines_of_nothing(host.coordinator)) == []


@pytest.mark.parametrize("kind", ["consumer", "streams"])
def test_a_classic_group_that_another_kind_replaced_leaves_no_state(kind: str) -> None:
    """Otherwise the next classic group of that name would continue with the old generation, until
    the coordinator restarts.
    """
    host = GroupHost()
    member = host.join("g", host.join("g").member_id)
    host.sync("g", member.generation_id, member.member_id, {member.member_id: b"all"})
    host.leave("g", (member.member_id, None))
    beat = getattr(host, f"{kind}_heartbeat")
    assert [beat("m", group=name).error_code for name in ("g", "other")] == [0, 0]
    replaced, made = (host.coordinator.group(name) for name in ("g", "other"))
    assert replaced is not None and made is not None
    names = ("generation", "protocol_type", "protocol_name", "subscribed_topics", "state_since_ms")
    for name in names:
        values = {getattr(one.classic.rebalance, name) for one in (replaced, made)}
        assert len(values) == 1, name
