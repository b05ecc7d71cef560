"""The counts in a Result that become metrics: rebalances by group type, and committed offsets.

Source: the code of Kafka's GroupMetadataManager and OffsetMetadataManager that updates sensors.
"""

from __future__ import annotations

from pathlib import Path

from helpers.core_host import CoreHost
from helpers.group_host import GroupHost, alone

from barnabas.coordinator.result import Counted, Result
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

DAY_MS = 24 * 3_600_000


def test_a_classic_group_has_rebalanced_when_its_leader_has_assigned() -> None:
    host = GroupHost()
    member = alone(host)
    member.sync()
    assert host.counts == {Counted.CLASSIC_REBALANCE: 1}
    member.join()
    assert host.counts == {Counted.CLASSIC_REBALANCE: 1}, "it has not assigned yet"
    member.sync({member.id: b"all"})
    assert host.counts == {Counted.CLASSIC_REBALANCE: 2}
    member.leave()
    assert host.counts == {Counted.CLASSIC_REBALANCE: 2}, "no member is left to assign to"


def test_a_consumer_group_rebalances_when_its_epoch_rises() -> None:
    host = GroupHost()
    host.consumer_heartbeat("m")
    host.consumer_heartbeat("m", 1)
    assert host.counts == {Counted.CONSUMER_REBALANCE: 1}
    host.consumer_heartbeat("n")
    host.consumer_heartbeat("n", 2)
    assert host.counts == {Counted.CONSUMER_REBALANCE: 2}
    host.consumer_heartbeat("n", 2, subscribed_topic_names=["t", "u"])
    assert host.counts == {Counted.CONSUMER_REBALANCE: 3}
    host.consumer_heartbeat("n", -1)
    assert host.counts == {Counted.CONSUMER_REBALANCE: 4}


def test_a_share_group_rebalances_when_its_epoch_rises() -> None:
    host = GroupHost()
    answer = host.share_heartbeat("m")
    assert host.counts == {Counted.SHARE_REBALANCE: 1}
    before = host.describe_share_group().group_epoch
    host.share_heartbeat("n")
    host.share_heartbeat("m", answer.member_epoch)
    host.share_heartbeat("n", -1)
    rises = host.describe_share_group().group_epoch - before
    assert rises >= 2
    assert host.counts == {Counted.SHARE_REBALANCE: 1 + rises}


def test_a_streams_group_rebalances_when_its_epoch_rises() -> None:
    host = GroupHost()
    epoch = host.streams_heartbeat("m").member_epoch
    host.streams_heartbeat("m", epoch)
    before = host.counts[Counted.STREAMS_REBALANCE]
    assert before >= 1
    host.streams_heartbeat("n")
    host.streams_heartbeat("n", -1)
    assert host.counts == {Counted.STREAMS_REBALANCE: before + 2}


def test_each_committed_offset_counts_and_refused_ones_do_not() -> None:
    host = GroupHost()
    host.commit("g", {"t": {0: 1, 1: 2}, "missing": {0: 1}})
    assert host.counts == {Counted.OFFSET_COMMIT: 2}
    host.txn_commit("g", {"u": {0: 3}})
    assert host.counts == {Counted.OFFSET_COMMIT: 3}
    host.commit("g", {"t": {0: 1}}, metadata="x" * 5000)
    host.commit("g", {"t": {0: 1}}, generation=5)
    assert host.counts == {Counted.OFFSET_COMMIT: 3}
    rows = [
        OffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=1,
            committed_leader_epoch=-1,
            committed_metadata="x" * size,
        )
        for index, size in ((0, 1), (1, 5000), (2, 1))
    ]
    topics = [OffsetCommitRequestTopic(name="t", partitions=rows)]
    host.call(
        "OffsetCommit",
        9,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=topics,
    )
    assert host.counts == {Counted.OFFSET_COMMIT: 5}, "one of the three is refused"


def test_deleted_and_expired_offsets_are_counted_separately() -> None:
    host = GroupHost()
    host.commit("g", {"t": {0: 1, 1: 2, 2: 3}})
    host.delete_offsets("g", {"t": [0], "missing": [0]})
    host.delete_offsets("g", {"t": [0]})
    assert host.counts == {Counted.OFFSET_COMMIT: 3, Counted.OFFSET_DELETION: 1}
    host.pass_time(8 * DAY_MS)
    assert host.fetch("g") == {}
    assert host.counts == {
        Counted.OFFSET_COMMIT: 3,
        Counted.OFFSET_DELETION: 1,
        Counted.OFFSET_EXPIRATION: 2,
    }


def test_offsets_removed_with_their_topic_or_group_are_not_counted_as_deletions() -> None:
    host = GroupHost()
    host.commit("g", {"t": {0: 1}, "u": {0: 1}})
    host.delete_topics("t")
    assert host.delete_groups("g") == [("g", Code.NONE)]
    assert host.counts == {Counted.OFFSET_COMMIT: 2}


def test_a_broker_adds_what_its_results_count_to_the_metrics(tmp_path: Path) -> None:
    host = CoreHost(tmp_path)
    counted = Result(partition=0, more=[Result(partition=1)])
    counted.count(Counted.SHARE_REBALANCE)
    counted.more[0].count(Counted.OFFSET_COMMIT, 3)
    host.parts.group_runtime.run(counted, host.now_ms)
    of = host.broker.counters.of
    assert of("barnabas_group_rebalances_total", "share") == 1
    assert of("barnabas_group_rebalances_total", "classic") == 0
    assert of("barnabas_group_offset_commits_total") == 3
