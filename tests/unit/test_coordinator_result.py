"""Which partition of an internal topic has a group or a transactional id: as Apache Kafka, whose
directories are taken over.

Source: Utils.abs(id.hashCode()) % partitions, where the lowest int has no absolute value and counts
        as 0; the hash codes are Java's.
"""

from __future__ import annotations

import pytest

from barnabas.coordinator.result import java_string_hash, partition_for


@pytest.mark.parametrize(
    ("name", "hash_code"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("hello world", 1794106052),
        ("polygenelubricants", -(1 << 31)),
    ],
)
def test_hash_codes_are_javas(name: str, hash_code: int) -> None:
    assert java_string_hash(name) == hash_code


def test_partitions() -> None:
    assert partition_for("hello", 50) == 22
    assert partition_for("polygenelubricants", 50) == 0
