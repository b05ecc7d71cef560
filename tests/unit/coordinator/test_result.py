"""Results that cover several partitions, and the partition to which a group or transactional id
belongs.

The partition must be the same as in Apache Kafka, since its directories can be taken over.

Source: Utils.abs(id.hashCode()) % partitions. The hash codes are those of Java. The lowest int has
        no absolute value, and counts as 0.
"""

from __future__ import annotations

import time

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


@pytest.mark.parametrize("length", [*range(1, 20), 255, 256, 32_767])
def test_the_hash_equals_javas_definition_for_any_length(length: int) -> None:
    """java.lang.String defines the hash as s[0]*31^(n-1) + s[1]*31^(n-2) + ... + s[n-1], in 32
    bits.
    """
    letters = [(number * 40_503 + length) % 0xD800 for number in range(length)]
    value = sum(
        letter * pow(31, exponent, 1 << 32)
        for letter, exponent in zip(letters, reversed(range(length)), strict=True)
    ) % (1 << 32)
    assert java_string_hash("".join(map(chr, letters))) % (1 << 32) == value


def test_the_cache_of_partitions_has_few_keys_since_they_may_be_long() -> None:
    """A key may have 32,767 letters, so a cache of thousands of keys would take a hundred
    megabytes.
    """
    most = partition_for.cache_info().maxsize
    assert most is not None and most * 32_767 < 40 << 20


def letter_by_letter(text: str) -> None:
    """Compute the hash with a loop over the letters, for comparison."""
    value, units = 0, text.encode("utf-16-be")
    for position in range(0, len(units), 2):
        value = (value * 31 + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF


def test_the_hash_of_a_long_key_is_faster_than_a_loop_over_its_letters() -> None:
    """The test measures CPU time, and takes the shortest of several attempts."""
    spent = {}
    for hashed in (java_string_hash, letter_by_letter):
        spent[hashed] = float("inf")
        for _ in range(10):
            began = time.thread_time()
            hashed("k" * 32_000)
            spent[hashed] = min(spent[hashed], time.thread_time() - began)
    assert spent[java_string_hash] < 0.75 * spent[letter_by_letter]


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


def test_records_beyond_a_full_batch_are_in_another_batch() -> None:
    results = ResultsByPartition()
    records = [record(number) for number in range(2 * RECORDS_PER_BATCH + 1)]
    results.add(0, records)
    results.add(0, [record(-1)])
    one = results.as_one()
    batches = [one.records, *(each.records for each in one.more)]
    assert [len(batch) for batch in batches] == [RECORDS_PER_BATCH, RECORDS_PER_BATCH, 2]
    assert [each for batch in batches for each in batch] == [*records, record(-1)]


def test_without_records_the_result_is_empty() -> None:
    empty = ResultsByPartition().as_one(Reply(8, HeartbeatResponse()))
    assert (empty.records, empty.more) == ([], [])
    assert [reply.ticket for reply in empty.replies] == [8]
    nothing = ResultsByPartition()
    nothing.add(0, [])
    assert nothing.as_one() == Result(), "no partition is touched"
