"""Requests for the state of share partitions, on a whole broker. Acknowledged state is durable,
survives a kill and a power loss, and is deleted with its topic.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from helpers.disk_broker import READER, DiskBroker, Producer

from barnabas.coordinator.internal_topics import SHARE_STATE_TOPIC
from barnabas.coordinator.result import CoordinatorRecord, StateChange, StateRow
from barnabas.protocol.errors import Code
from barnabas.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.storage.log.broker_appends import append_records

FEW = {"share_coordinator_state_topic_num_partitions": "4"}


def broker(records: int = 20, **settings: str) -> tuple[DiskBroker, uuid.UUID]:
    """A broker with a topic that has some durable records, and the topic's id."""
    b = DiskBroker(**(FEW | settings))
    b.topic("t", partitions=2)
    for _ in range(records):
        b.produce("t", (b"x",))
    b.sync("t-0")
    topic = b.broker.metadata.topic("t")
    assert topic is not None
    return b, topic.topic_id


def initialize(b: DiskBroker, topic_id: uuid.UUID, *partitions: int, start: int = 0) -> list[int]:
    made = initialize_share_group_state
    rows = [made.PartitionData(index, 0, start) for index in partitions]
    request = made.InitializeShareGroupStateRequest("g", [made.InitializeStateData(topic_id, rows)])
    return [row.error_code for row in b.call(request, 0).results[0].partitions]


def write_request(
    topic_id: uuid.UUID, *runs: tuple[int, int, int, int], start: int = -1
) -> write_share_group_state.WriteShareGroupStateRequest:
    made = write_share_group_state
    row = made.PartitionData(0, 0, 0, start, 3, [made.StateBatch(*run) for run in runs])
    return made.WriteShareGroupStateRequest("g", [made.WriteStateData(topic_id, [row])])


def read(b: DiskBroker, topic_id: uuid.UUID, partition: int = 0) -> Any:
    made = read_share_group_state
    rows = [made.PartitionData(partition, 0)]
    request = made.ReadShareGroupStateRequest("g", [made.ReadStateData(topic_id, rows)])
    return b.call(request, 0).results[0].partitions[0]


def summary(b: DiskBroker, topic_id: uuid.UUID, partition: int = 0) -> Any:
    made = read_share_group_state_summary
    rows = [made.PartitionData(partition, -1)]
    topics = [made.ReadStateSummaryData(topic_id, rows)]
    request = made.ReadShareGroupStateSummaryRequest("g", topics)
    return b.call(request, 1).results[0].partitions[0]


def runs_of(row: Any) -> list[tuple[int, int, int, int]]:
    return [
        (run.first_offset, run.last_offset, run.delivery_state, run.delivery_count)
        for run in row.state_batches
    ]


def test_a_start_without_share_groups_does_not_create_their_parts() -> None:
    b, _ = broker()
    assert b.broker.shares.made is None
    b.kill()
    assert b.broker.shares.made is None
    assert SHARE_STATE_TOPIC not in b.broker.topics


def test_a_write_is_answered_when_it_is_on_the_disk() -> None:
    b, topic_id = broker()
    assert initialize(b, topic_id, 0) == [Code.NONE]
    b.hold_flushes()
    connection = b.connect()
    b.send(connection, write_request(topic_id, (0, 4, 2, 1)), 1)
    assert b.answer(connection) is None
    b.flush()
    assert b.answer(connection).results[0].partitions[0].error_code == Code.NONE
    b.lose_power()
    assert runs_of(read(b, topic_id)) == [(0, 4, 2, 1)]


def test_a_new_share_state_is_durable_even_without_durable_transactions() -> None:
    b, topic_id = broker(barnabas_transaction_durability="os")
    assert initialize(b, topic_id, 0) == [Code.NONE]
    b.lose_power()
    assert read(b, topic_id).error_code == Code.NONE


def test_a_group_hears_of_its_states_when_they_are_durable_also_where_transactions_are_not() -> (
    None
):
    b, topic_id = broker(barnabas_transaction_durability="os")
    codes = list[list[int]]()
    change = StateChange("g", False, (StateRow(topic_id, 0, 0),), 0)
    changes = b.broker.shares.get().changes
    changes.begin(change, lambda row, _: codes.append(list(row)), b.now_ms)
    changes.on_tick(b.now_ms)
    assert codes == []
    b.flush()
    changes.on_tick(b.now_ms)
    assert codes == [[Code.NONE]]


def test_states_are_not_deleted_by_the_retention_of_topics() -> None:
    b, topic_id = broker(log_retention_ms="1000", log_retention_bytes="1000")
    initialize(b, topic_id, 0)
    logs = b.broker.topics.logs_of("__share_group_state")
    assert {(log.config.retention_ms, log.config.retention_bytes) for log in logs} == {(-1, -1)}


def test_the_state_is_the_same_after_a_kill_and_a_stop() -> None:
    b, topic_id = broker()
    initialize(b, topic_id, 0, 1)
    for at in range(5):
        b.call(write_request(topic_id, (2 * at, 2 * at, 2, 1), start=0), 1)
    before = runs_of(read(b, topic_id)), summary(b, topic_id)
    for again in (b.kill, b.stop):
        again()
        after = runs_of(read(b, topic_id)), summary(b, topic_id)
        assert after == before
    assert before[1].delivery_complete_count == 3
    assert summary(b, topic_id, 1).start_offset == 0


def test_acknowledgements_of_records_lost_in_a_power_loss_are_removed() -> None:
    """The acknowledgements of lost records (offsets 10 and higher) must be removed, since new
    records get these offsets.
    """
    b, topic_id = broker(10)
    initialize(b, topic_id, 0)
    for _ in range(10):
        b.produce("t", (b"lost",))  # not flushed
    b.call(write_request(topic_id, (3, 15, 2, 1), (18, 19, 2, 1), start=3), 1)
    b.lose_power()
    assert b.end_offset("t") == 10
    assert runs_of(read(b, topic_id)) == [(3, 9, 2, 1)]
    b.lose_power()
    assert runs_of(read(b, topic_id)) == [(3, 9, 2, 1)], "the state that was set back is durable"


@pytest.mark.parametrize("durability", ["flush", "os"])
def test_states_that_are_set_back_are_durable_before_records_are_written_again(
    durability: str,
) -> None:
    """The second power loss keeps the new records. Without a flush of the states, it would restore
    the acknowledgements of the lost records at the same offsets.
    """
    b, topic_id = broker(10, barnabas_transaction_durability=durability)
    initialize(b, topic_id, 0)
    for _ in range(10):
        b.produce("t", (b"lost",))  # not flushed
    b.call(write_request(topic_id, (3, 15, 2, 1), start=3), 1)
    b.lose_power()
    log = b.broker.topics.partition("t", 0)
    append_records(log, [CoordinatorRecord(b"k", b"new")] * 10, b.now_ms)
    log.flush()
    b.lose_power()
    assert b.end_offset("t") == 20
    assert runs_of(read(b, topic_id)) == [(3, 9, 2, 1)]


def test_the_states_of_a_deleted_topic_are_deleted() -> None:
    b, topic_id = broker()
    initialize(b, topic_id, 0, 1)
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
    b.send(READER, request, 4)
    for _ in range(3):
        b.tick()
    assert b.answer(READER).responses[0].error_code == Code.NONE
    assert len(b.broker.shares.get().coordinator) == 0
    b.kill()
    assert len(b.broker.shares.get().coordinator) == 0
    assert summary(b, topic_id).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_a_start_deletes_the_states_of_a_topic_whose_deletion_was_interrupted() -> None:
    b, topic_id = broker()
    initialize(b, topic_id, 0, 1)
    b.broker.metadata.delete_topics(["t"])
    b.kill()
    b.tick()
    assert len(b.broker.shares.get().coordinator) == 0


@pytest.mark.parametrize("holds_flushes", [False, True])
def test_a_deletion_is_not_complete_before_the_deleted_states_are_durable(
    holds_flushes: bool,
) -> None:
    """The next change of the metadata also records that the deletion is complete. No later start
    repeats the deletion then.
    """
    b, topic_id = broker()
    initialize(b, topic_id, 0, 1)
    b.flush()
    b.holds_flushes = holds_flushes
    b.send(READER, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 4)
    for _ in range(3):
        b.tick()
    assert len(b.broker.shares.get().coordinator) == 0
    b.broker.metadata.set_next_producer_id(10_000)
    b.lose_power()
    assert len(b.broker.shares.get().coordinator) == 0


def test_records_that_snapshots_replace_are_deleted_from_the_log() -> None:
    updates = "share_coordinator_snapshot_update_records_per_snapshot"
    b, topic_id = broker(**{updates: "100", "share_coordinator_state_topic_prune_interval_ms": "9"})
    initialize(b, topic_id, 0)
    for at in range(1200):
        b.call(write_request(topic_id, (at % 20, at % 20, 2, 1), start=0), 1)
    (log,) = [log for log in b.broker.topics.logs_of(SHARE_STATE_TOPIC) if log.log_end_offset]
    b.tick(10)
    assert log.log_start_offset >= 1000
    before = runs_of(read(b, topic_id))
    b.kill()
    assert runs_of(read(b, topic_id)) == before == [(0, 19, 2, 1)]


@pytest.mark.parametrize("journal_logs", ["0", "1"])
def test_no_record_is_deleted_before_the_snapshots_that_replace_it_are_durable(
    journal_logs: str,
) -> None:
    """The tick that writes the snapshots of states without changes also deletes old records. If the
    power is lost before the snapshots are on the disk, the states are still in the old records.
    """
    b, topic_id = broker(
        share_coordinator_state_topic_prune_interval_ms="300000",
        share_coordinator_snapshot_update_records_per_snapshot="2",
        barnabas_flush_journal_logs=journal_logs,
        share_coordinator_state_topic_num_partitions="1",
    )
    assert initialize(b, topic_id, 0, 1) == [0, 0]
    for offset in range(7):
        assert b.call(write_request(topic_id, (offset, offset, 2, 1)), 0)
    expected = [read(b, topic_id, index) for index in (0, 1)]
    (log,) = b.broker.topics.logs_of(SHARE_STATE_TOPIC)
    b.hold_flushes()
    b.tick(300_001)
    b.tick()
    assert log.log_start_offset == 0, "a flush is under way"
    b.lose_power()
    assert [read(b, topic_id, index) for index in (0, 1)] == expected
    b.tick(300_001)
    b.tick()
    (log,) = b.broker.topics.logs_of(SHARE_STATE_TOPIC)
    assert log.log_start_offset > 0
    b.lose_power()
    assert [read(b, topic_id, index) for index in (0, 1)] == expected


def test_a_deleted_state_is_not_read() -> None:
    b, topic_id = broker()
    initialize(b, topic_id, 0, start=-1)
    assert (read(b, topic_id).start_offset, summary(b, topic_id).delivery_complete_count) == (
        -1,
        -1,
    )
    made = delete_share_group_state
    topics = [made.DeleteStateData(topic_id, [made.PartitionData(0), made.PartitionData(9)])]
    rows = b.call(made.DeleteShareGroupStateRequest("g", topics), 0).results[0].partitions
    assert [row.error_code for row in rows] == [Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert read(b, topic_id).error_code == Code.INVALID_REQUEST


def test_a_request_without_a_group_or_partitions_has_an_empty_response() -> None:
    b, topic_id = broker()
    made = read_share_group_state
    rows = [made.PartitionData(0, 0)]
    for request in (
        made.ReadShareGroupStateRequest("", [made.ReadStateData(topic_id, rows)]),
        made.ReadShareGroupStateRequest("g", []),
        made.ReadShareGroupStateRequest("g", [made.ReadStateData(topic_id, [])]),
    ):
        assert b.call(request, 0).results == []


def test_a_share_partition_that_is_named_twice_is_refused_the_second_time() -> None:
    b, topic_id = broker()
    assert initialize(b, topic_id, 0, 0, -1) == [
        Code.NONE,
        Code.INVALID_REQUEST,
        Code.INVALID_REQUEST,
    ]


def test_transactions_and_share_states_become_durable_beside_each_other() -> None:
    b, topic_id = broker()
    initialize(b, topic_id, 0)
    p = Producer(b, "txn")
    p.send("t", 1, b"a")
    b.hold_flushes()
    p.start_end(True)
    connection = b.connect()
    b.send(connection, write_request(topic_id, (0, 4, 2, 1)), 1)
    b.release_flushes()
    assert p.ended() == Code.NONE
    assert b.answer(connection).results[0].partitions[0].error_code == Code.NONE
