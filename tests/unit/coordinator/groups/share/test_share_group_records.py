"""The records of share groups, compared with bytes written by hand from Apache Kafka's schemas
(ShareGroup*Key and ShareGroup*Value of 4.3).
"""

from __future__ import annotations

import uuid

import pytest

from barnabas.coordinator.groups.group_types import type_of_version
from barnabas.coordinator.groups.share import share_group_records as records
from barnabas.coordinator.groups.share.share_group_records import (
    CurrentValue,
    EpochValue,
    MemberValue,
    ShareGroupKey,
    StatesValue,
    TopicStates,
)

T, U = uuid.UUID(int=7), uuid.UUID(int=8)


def test_the_groups_epoch() -> None:
    record = records.epoch_record("g", 5, -2)
    assert record.key == b"\0\x0b\0\1g"
    assert record.value == b"\0\0" + b"\0\0\0\5" + b"\xff" * 7 + b"\xfe" + b"\0"
    assert records.decode_epoch(record.value) == EpochValue(5, -2)


def test_a_member() -> None:
    member = MemberValue(None, "c", "/h", ("t", "u"))
    record = records.member_record("g", "m", member)
    assert record.key == b"\0\x0a\0\1g\0\1m"
    assert record.value == b"\0\0" + b"\0" + b"\2c" + b"\3/h" + b"\3\2t\2u" + b"\0"
    assert records.decode_member(record.value) == member
    in_rack = records.member_record("g", "m", member._replace(rack_id="r")).value
    assert in_rack == b"\0\0" + b"\2r" + record.value[3:]
    assert records.decode_member(in_rack).rack_id == "r"


def test_the_target() -> None:
    record = records.target_epoch_record("g", 9, 258)
    assert record.key == b"\0\x0c\0\1g"
    assert record.value == b"\0\0" + b"\0\0\0\x09" + b"\1\0\x08" + b"\0" * 6 + b"\1\2"
    assert records.decode_target_epoch(record.value) == 9
    assert records.target_epoch_record("g", 9, 0).value == b"\0\0\0\0\0\x09\0"
    mine = records.member_target_record("g", "m", {T: (0, 2)})
    assert mine.key == b"\0\x0d\0\1g\0\1m"
    assert mine.value == b"\0\0" + b"\2" + T.bytes + b"\3\0\0\0\0\0\0\0\2" + b"\0" + b"\0"
    assert records.decode_member_target(mine.value) == {T: (0, 2)}


def test_the_current_assignment_of_a_member() -> None:
    current = CurrentValue(4, -1, {T: (1,)})
    record = records.current_record("g", "m", current)
    assert record.key == b"\0\x0e\0\1g\0\1m"
    assert record.value == (
        b"\0\0" + b"\0\0\0\4\xff\xff\xff\xff\0" + b"\2" + T.bytes + b"\2\0\0\0\1" + b"\0" + b"\0"
    )
    assert records.decode_current(record.value) == current


def test_the_states_of_partitions() -> None:
    states = StatesValue({T: TopicStates("t", (0, 2))}, {U: TopicStates("u", (1,))}, {T: "t"})
    record = records.states_record("g", states)
    assert record.key == b"\0\x0f\0\1g"
    assert record.value == (
        b"\0\0"
        b"\2" + T.bytes + b"\2t" + b"\3\0\0\0\0\0\0\0\2" + b"\0"
        b"\2" + U.bytes + b"\2u" + b"\2\0\0\0\1" + b"\0"
        b"\2" + T.bytes + b"\2t" + b"\0" + b"\0"
    )
    assert records.decode_states(record.value) == states


def test_partitions_are_read_in_order_and_topics_without_any_are_nothing_to_have() -> None:
    value = records.member_target_record("g", "m", {T: (2, 0), U: ()}).value
    assert value is not None and records.decode_member_target(value) == {T: (0, 2)}


def test_keys_and_tombstones() -> None:
    for version in (11, 12, 15):
        record = records.tombstone(version, "g")
        assert record == (version.to_bytes(2, "big") + b"\0\1g", None)
        assert records.decode_share_key(record.key) == ShareGroupKey(version, "g", "")
    for version in (10, 13, 14):
        record = records.tombstone(version, "g", "m")
        assert record == (version.to_bytes(2, "big") + b"\0\1g\0\1m", None)
        assert records.decode_share_key(record.key) == ShareGroupKey(version, "g", "m")
    for version in (0, 2, 3, 9, 16, 17, 99):
        assert records.decode_share_key(version.to_bytes(2, "big") + b"\0\1g") is None


def test_the_version_of_a_key_determines_the_type_of_its_group() -> None:
    types = {version: type_of_version(version) for version in range(25)}
    assert [version for version, kind in types.items() if kind == "consumer"] == [*range(3, 9), 16]
    assert [version for version, kind in types.items() if kind == "share"] == [*range(10, 16)]
    assert [version for version, kind in types.items() if kind == "streams"] == [*range(17, 24)]


@pytest.mark.parametrize("decode", [records.decode_epoch, records.decode_states])
def test_a_value_of_a_later_version_is_not_read(decode: object) -> None:
    with pytest.raises(ValueError, match="unknown version 1"):
        decode(b"\0\1" + bytes(20))  # type: ignore[operator]
