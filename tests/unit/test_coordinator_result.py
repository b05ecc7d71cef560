"""Results over several partitions, and the partition that a group or transactional id belongs to.

The partition is Apache Kafka's, whose directories are taken over.

Source: Utils.abs(id.hashCode()) % partitions, where the lowest int has no absolute value and counts
        as 0; the hash codes are Java's.
"""

from __future__ import annotations

import pytest

from barnabas.coordinator.result import (
    RECORDS_PER_BATCH,
    CoordinatorRecord,
    Reply,
    Result,
    ResultsByPartition,
    java_string_hash,
    partition_for,
)
from barnabas.protocol.messages.heartbeat import HeartbeatResponse


@pytest.mark.parametrize(
    ("name", "hash_code"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("hello world", 1794106052),
        ("polygenelubricants", -(1 << 31)),
        ("\u20ac", 8364),
        ("\U0001f600", 1772899),
    ],
)
def test_hash_codes_are_javas(name: str, hash_code: int) -> None:
    assert java_string_hash(name) == hash_code


def test_partitions() -> None:
    assert partition_for("hello", 50) == 22
    assert partition_for("polygenelubricants", 50) == 0


def record(number: int) -> CoordinatorRecord:
    return CoordinatorRecord(b"%d" % number, None)


def test_the_results_of_several_partitions_become_one() -> None:
    results = ResultsByPartition()
    results.add(3, [record(1)])
    results.of(5).replies.append(Reply(9, HeartbeatResponse()))
    results.add(3, [record(2)])
    first = results.as_one(Reply(8, HeartbeatResponse()))
    assert (first.partition, first.records, first.replies) == (3, [record(1), record(2)], [])
    (last,) = first.more
    assert (last.partition, last.records) == (5, [])
    assert [reply.ticket for reply in last.replies] == [9, 8], "the reply leaves after all of them"


def test_a_partition_gets_another_batch_where_one_is_full() -> None:
    results = ResultsByPartition()
    records = [record(number) for number in range(2 * RECORDS_PER_BATCH + 1)]
    results.add(0, records)
    results.add(0, [record(-1)])
    one = results.as_one()
    batches = [one.records, *(each.records for each in one.more)]
    assert [len(batch) for batch in batches] == [RECORDS_PER_BATCH, RECORDS_PER_BATCH, 2]
    assert [each for batch in batches for each in batch] == [*records, record(-1)]


def test_of_nothing_there_is_an_empty_result() -> None:
    empty = ResultsByPartition().as_one(Reply(8, HeartbeatResponse()))
    assert (empty.records, empty.more) == ([], [])
    assert [reply.ticket for reply in empty.replies] == [8]
    nothing = ResultsByPartition()
    nothing.add(0, [])
    assert nothing.as_one() == Result(), "no partition is touched"
