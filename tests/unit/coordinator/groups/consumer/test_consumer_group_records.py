"""The records of consumer groups, compared with bytes written by hand from Apache Kafka's schemas
(ConsumerGroup*Key and ConsumerGroup*Value of 4.3).
"""

from __future__ import annotations

import uuid

import pytest

from barnabas.coordinator.groups.consumer import consumer_group_records as records
from barnabas.coordinator.groups.consumer.consumer_group_records import (
    ClassicMember,
    ConsumerGroupKey,
    CurrentValue,
    GroupEpochValue,
    MemberState,
    MemberValue,
    PatternValue,
)

T = uuid.UUID(int=7)
ID = T.bytes


def test_the_groups_epoch() -> None:
    record = records.group_epoch_record("g", 5, 0)
    assert record.key == b"\0\3\0\1g"
    assert record.value == b"\0\0" + b"\0\0\0\5" + b"\0"
    assert records.decode_group_epoch(record.value) == GroupEpochValue(5, 0)
    hashed = records.group_epoch_record("g", 5, -2)
    assert hashed.value == b"\0\0" + b"\0\0\0\5" + b"\1\0\x08" + b"\xff" * 7 + b"\xfe"
    assert records.decode_group_epoch(hashed.value) == GroupEpochValue(5, -2)


def test_a_later_kafkas_time_of_creation_is_passed_over() -> None:
    value = b"\0\0" + b"\0\0\0\5" + b"\2\0\x08" + b"\0" * 7 + b"\3" + b"\1\x08" + b"\0" * 8
    assert records.decode_group_epoch(value) == GroupEpochValue(5, 3)


def test_a_member() -> None:
    member = MemberValue("i", None, "c", "/h", ("t", "u"), "a.*", 300, "range", None)
    record = records.member_record("g", "m", member)
    assert record.key == b"\0\5\0\1g\0\1m"
    assert record.value == (
        b"\0\0" + b"\2i" + b"\0" + b"\2c" + b"\3/h" + b"\3\2t\2u" + b"\4a.*" + b"\0\0\1\x2c"
        b"\6range" + b"\0"
    )
    assert records.decode_member(record.value) == member


def test_a_classic_member() -> None:
    classic = ClassicMember(10, (("range", b"xy"),))
    member = MemberValue(None, "r", "c", "/h", (), "", -1, None, classic)
    record = records.member_record("g", "m", member)
    assert record.value == (
        b"\0\0" + b"\0" + b"\2r" + b"\2c" + b"\3/h" + b"\1" + b"\0" + b"\xff\xff\xff\xff" + b"\0"
        b"\1\0\x11" + b"\1" + b"\0\0\0\x0a" + b"\2" + b"\6range" + b"\3xy" + b"\0" + b"\0"
    )
    assert records.decode_member(record.value) == member


def test_a_member_as_kafka_writes_it_with_a_tag_for_no_classic_member() -> None:
    """Apache Kafka 4.3 writes the tag for each member, with a zero if the struct is null."""
    value = bytes.fromhex(
        "00000000087264 6b61666b610b2f3132372e302e302e310206706c61696e 01 000493e0 00 01000100"
    )
    member = MemberValue(None, None, "rdkafka", "/127.0.0.1", ("plain",), "", 300_000, None, None)
    assert records.decode_member(value) == member


def test_the_target() -> None:
    record = records.target_epoch_record("g", 9)
    assert record == (b"\0\6\0\1g", b"\0\0\0\0\0\x09\0")
    assert records.decode_target_epoch(record.value or b"") == 9
    mine = records.member_target_record("g", "m", {T: (0, 2)})
    assert mine.key == b"\0\7\0\1g\0\1m"
    assert mine.value == b"\0\0" + b"\2" + ID + b"\3\0\0\0\0\0\0\0\2" + b"\0" + b"\0"
    assert records.decode_member_target(mine.value) == {T: (0, 2)}


def test_the_current_assignment_of_a_member() -> None:
    current = CurrentValue(4, 3, MemberState.UNREVOKED_PARTITIONS, {T: {0: 2, 1: 4}}, {T: {5: 1}})
    record = records.current_record("g", "m", current)
    assert record.key == b"\0\x08\0\1g\0\1m"
    assert record.value == (
        b"\0\0" + b"\0\0\0\4\0\0\0\3\1"
        b"\2" + ID + b"\3\0\0\0\0\0\0\0\1" + b"\1\0\x09" + b"\3\0\0\0\2\0\0\0\4"
        b"\2" + ID + b"\2\0\0\0\5" + b"\1\0\x05" + b"\2\0\0\0\1" + b"\0"
    )
    assert records.decode_current(record.value) == current


def test_without_assignment_epochs_a_partition_has_the_members_epoch() -> None:
    """Records written before KIP-1251 have no assignment epochs. An epoch of -2 means that a static
    member has left.
    """
    value = b"\0\0" + b"\0\0\0\4\0\0\0\3\0" + b"\2" + ID + b"\2\0\0\0\1" + b"\0" + b"\1" + b"\0"
    assert records.decode_current(value).assigned == {T: {1: 4}}
    left = b"\0\0" + b"\xff\xff\xff\xfe" + value[6:]
    assert records.decode_current(left).assigned == {T: {1: 0}}


def test_assignment_epochs_are_ignored_if_their_number_is_not_that_of_the_partitions() -> None:
    """If the numbers differ, it is unknown which epoch belongs to which partition."""
    encoded = b"\1\0\x05" + b"\2\0\0\0\2"
    value = b"\0\0" + b"\0\0\0\4\0\0\0\3\0" + b"\2" + ID + b"\3\0\0\0\1\0\0\0\3" + encoded
    assert records.decode_current(value + b"\1" + b"\0").assigned == {T: {1: 4, 3: 4}}


def test_a_classic_member_may_be_null() -> None:
    member = MemberValue(None, None, "c", "/h", (), "", -1, None, None)
    value = records.member_record("g", "m", member).value
    assert value is not None
    assert records.decode_member(value[:-1] + b"\1\0\1\xff") == member


def test_a_topic_without_partitions_is_nothing_to_have() -> None:
    value = records.member_target_record("g", "m", {T: ()}).value
    assert value is not None and records.decode_member_target(value) == {}


def test_a_topic_id_of_zeros_is_read_as_it_is() -> None:
    zeros = uuid.UUID(int=0)
    value = records.member_target_record("g", "m", {zeros: (1,)}).value
    assert value is not None and records.decode_member_target(value) == {zeros: (1,)}


def test_a_state_to_come_is_one_from_which_a_member_goes_on() -> None:
    value = b"\0\0" + b"\0\0\0\4\0\0\0\3\x7f" + b"\1\1\0"
    assert records.decode_current(value).state is MemberState.UNRELEASED_PARTITIONS


def test_a_pattern() -> None:
    pattern = PatternValue(("t", "u"), 3, 258)
    record = records.pattern_record("g", "[tu]", pattern)
    assert record.key == b"\0\x10\0\1g\0\4[tu]"
    assert record.value == b"\0\0" + b"\3\2t\2u" + b"\0" * 7 + b"\3" + b"\0" * 6 + b"\1\2" + b"\0"
    assert records.decode_pattern(record.value) == pattern


def test_keys_and_tombstones() -> None:
    for version in (3, 4, 6):
        record = records.tombstone(version, "g")
        assert record == (version.to_bytes(2, "big") + b"\0\1g", None)
        assert records.decode_consumer_key(record.key) == ConsumerGroupKey(version, "g", "")
    for version in (5, 7, 8, 16):
        record = records.tombstone(version, "g", "m")
        assert record == (version.to_bytes(2, "big") + b"\0\1g\0\1m", None)
        assert records.decode_consumer_key(record.key) == ConsumerGroupKey(version, "g", "m")
    for version in (0, 1, 2, 9, 15, 99):
        assert records.decode_consumer_key(version.to_bytes(2, "big") + b"\0\1g") is None


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown version 1"):
        records.decode_target_epoch(b"\0\1\0\0\0\0\0")
