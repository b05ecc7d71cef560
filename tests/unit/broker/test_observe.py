"""Snapshots of the broker's state for metrics and the console, which are taken in slices."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from helpers.core_host import CoreHost, produce

from barnabas.broker.observe import (
    NO_OFFSET,
    ROWS_AT_ONCE,
    CommittedOffsetState,
    look_at_groups,
    look_at_partitions,
    look_at_transactional_ids,
)
from barnabas.group_lag import Situation
from barnabas.process.http_server import in_slices
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.spark_connector.write.deduplication import CommitNote

T = TypeVar("T")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[CoreHost]:
    host = CoreHost(tmp_path)
    host.connect(1)
    yield host
    host.close()


def seen(look: Generator[None, None, T]) -> tuple[T, int]:
    """Take a snapshot. Gives: its result, and how many times it paused to let other requests
    run.
    """
    turns = 0
    while True:
        try:
            next(look)
        except StopIteration as end:
            return end.value, turns
        turns += 1


def begin(host: CoreHost, transactional_id: str) -> tuple[int, int]:
    """Begin a transaction with a record in t-1. Gives the producer's id and epoch."""
    host.ask(
        1,
        InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=60_000,
            producer_id=-1,
            producer_epoch=-1,
        ),
        4,
    )
    while host.flushes:
        host.flush()
    session = host.answers[1].pop()
    identity = (session.producer_id, session.producer_epoch)
    host.call(
        1,
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=identity[0],
            v3_and_below_producer_epoch=identity[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[1])],
        ),
        3,
    )
    request = produce("t", partition=1, transactional_id=transactional_id, identity=identity)
    host.call(1, request, 9)
    return identity


def commit_offset(
    host: CoreHost,
    group: str,
    offsets: dict[int, int],
    metadata: str = "",
    member: tuple[str, int] = ("", -1),
) -> None:
    rows = [
        OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        for partition, offset in offsets.items()
    ]
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=member[1],
        member_id=member[0],
        topics=[OffsetCommitRequestTopic(name="t", partitions=rows)],
    )
    before = len(host.answers[1])
    host.ask(1, request, 7 if member[1] < 0 else 9)
    if len(host.answers[1]) == before:  # a large commit is handled in parts
        host.await_answer(1)


def test_a_snapshot_shows_a_partition_with_its_open_transaction(host: CoreHost) -> None:
    host.create("t", 2)
    host.call(1, produce("t", partition=1), 9)
    identity = begin(host, "txn")
    rows, _ = seen(look_at_partitions(host.broker.logs))
    assert ("__transaction_state", 0) in [row[:2] for row in rows]
    empty, row = (row for row in rows if row.topic == "t")
    assert empty[2:6] == (0, 0, 0, 0)
    assert (empty.size_bytes, empty.producer_id_count, empty.open_transactions) == (0, 0, ())
    assert row[:6] == ("t", 1, 0, 1, 2, 2)
    assert row.stable_lag == 1
    assert row.size_bytes > 0
    assert (row.segment_count, row.producer_id_count) == (1, 1)
    (transaction,) = row.open_transactions
    assert transaction[:3] == (*identity, 1)


def test_a_transactional_id_has_an_age_only_while_its_transaction_is_open(host: CoreHost) -> None:
    host.create("t", 2)
    identity = begin(host, "txn")
    host.tick(1500)
    (row,), _ = seen(look_at_transactional_ids(host.broker.transactions, host.now_ms))
    assert row[:3] == ("txn", *identity)
    assert (row.state, row.age_ms, row.timeout_ms) == ("Ongoing", 1500, 60_000)
    assert row.partitions == (("t", 1),)
    host.tick(60_000)
    while host.flushes:
        host.flush()
    (row,), _ = seen(look_at_transactional_ids(host.broker.transactions, host.now_ms))
    assert (row.state, row.age_ms, row.partitions) == ("CompleteAbort", None, ())


def test_a_snapshot_shows_a_group_with_its_lag(host: CoreHost) -> None:
    host.create("t", 2)
    for _ in range(3):
        host.call(1, produce("t"), 9)
    commit_offset(host, "g", {0: 1, 1: 0})
    (group,), _ = seen(look_at_groups(host.broker.groups, host.broker.topics, host.broker.shares))
    assert (group.group_id, group.state, group.member_count) == ("g", "Empty", 0)
    assert group.offsets == (
        CommittedOffsetState("t", 0, 1, 2),
        CommittedOffsetState("t", 1, 0, 0, situation=Situation.UP_TO_DATE),
    )
    assert (group.lag, group.pending_count) == (2, 0)


def test_a_group_that_has_committed_nothing_has_its_members_partitions(host: CoreHost) -> None:
    """A group that is stuck at its first record must not look up to date. Behind the record of an
    open transaction, it waits for the transaction.
    """
    host.create("t", 3)
    host.call(1, produce("t"), 9)
    begin(host, "txn")
    host.connect(2)
    join = ConsumerGroupHeartbeatRequest(
        "g", "m", 0, rebalance_timeout_ms=60_000, subscribed_topic_names=["t"], topic_partitions=[]
    )
    joined = host.call(2, join, 1)
    assert len(joined.assignment.topic_partitions[0].partitions) == 3
    commit_offset(host, "idle", {0: 0})
    parts = host.broker.groups, host.broker.topics, host.broker.shares
    never = [
        (0, NO_OFFSET, 1, 0, Situation.NEVER_COMMITTED),
        (1, NO_OFFSET, 1, 1, Situation.WAITS),
        (2, NO_OFFSET, 0, 0, Situation.NEVER_COMMITTED),
    ]
    for committed, status in (
        (
            {},
            "2 behind, 1 of them held back by an open transaction, "
            "nothing committed in 2 partitions",
        ),
        ({0: 1, 2: 0}, "1 behind, held back by an open transaction"),
        ({1: 0}, "1 behind, held back by an open transaction"),
    ):
        if committed:
            commit_offset(host, "g", committed, member=("m", joined.member_epoch))
        groups, _ = seen(look_at_groups(*parts))
        by_name = {group.group_id: group for group in groups}
        assert by_name["g"].status == status
        if not committed:
            rows = by_name["g"].offsets
            assert [
                (row.partition, row.offset, row.lag, row.held, row.situation) for row in rows
            ] == never
            assert all(row.is_assigned for row in rows)
        assert by_name["idle"].status == "1 behind"
        assert len(by_name["idle"].offsets) == 1


def test_markers_that_follow_the_committed_offset_are_no_lag(host: CoreHost) -> None:
    """Librdkafka commits the offset after the last record, not the offset after its marker."""
    host.create("t", 2)
    for txn, commit in (("one", True), ("two", False)):
        identity = begin(host, txn)
        if commit:
            commit_offset(host, "g", {1: 1})
        host.ask(1, EndTxnRequest(txn, *identity, commit), 3)
        while host.flushes:
            host.flush()
        (group,), _ = seen(
            look_at_groups(host.broker.groups, host.broker.topics, host.broker.shares)
        )
        (row,) = group.offsets
        assert (row.situation, row.lag) == (Situation.UP_TO_DATE, 0)
        assert host.broker.topics.partition("t", 1).high_watermark > row.offset


def test_a_committed_micro_batch_number_has_no_lag(host: CoreHost) -> None:
    host.create("t")
    for _ in range(9):
        host.call(1, produce("t"), 9)
    note = CommitNote(what="batch 3 of query q", target="t").to_text()
    commit_offset(host, "sink", {0: 3}, note)
    (group,), _ = seen(look_at_groups(host.broker.groups, host.broker.topics, host.broker.shares))
    assert group.offsets == (
        CommittedOffsetState(
            "t", 0, 3, None, is_batch_number=True, situation=Situation.BATCH_NUMBER
        ),
    )
    assert group.lag == 0


def test_a_snapshot_of_thousands_of_partitions_is_taken_in_slices(host: CoreHost) -> None:
    count = 3 * ROWS_AT_ONCE
    host.create("t", count)
    look = look_at_partitions(host.broker.logs)
    next(look)
    host.create("u")  # a change during the snapshot does no harm
    rows, turns = seen(look)
    assert len([row for row in rows if row.topic == "t"]) == count
    assert turns >= 2
    commit_offset(host, "g", dict.fromkeys(range(count), 0))
    (group,), turns = seen(
        look_at_groups(host.broker.groups, host.broker.topics, host.broker.shares)
    )
    assert len(group.offsets) == count
    assert turns >= 2


def test_a_snapshot_of_thousands_of_share_groups_is_taken_in_slices(host: CoreHost) -> None:
    """The snapshot includes groups that have read no partition, although each of them takes far
    less than a slice.
    """
    count = 3 * ROWS_AT_ONCE
    for number in range(count):
        host.call(1, ShareGroupHeartbeatRequest(f"g-{number}", "m", 0, None, ["t"]), 1)
    groups, turns = seen(look_at_groups(host.broker.groups, host.broker.topics, host.broker.shares))
    assert len(groups) == count and {group.kind for group in groups} == {"share"}
    assert turns >= 2


def test_other_callbacks_run_between_the_slices_of_a_snapshot() -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    order: list[str] = []

    def look() -> Generator[None, None, int]:
        for number in range(3):
            order.append(f"slice {number}")
            loop.call_soon(order.append, "another")
            yield
        return 7

    assert in_slices(loop, look()) == 7
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    assert order == ["slice 0", "another", "slice 1", "another", "slice 2", "another"]
