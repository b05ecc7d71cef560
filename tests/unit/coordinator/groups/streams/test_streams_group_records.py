"""The records of streams groups. Bytes that Apache Kafka 4.3 wrote are decoded and encoded
again.
"""

from __future__ import annotations

import pytest

from barnabas.coordinator.groups.streams import streams_group_records as records
from barnabas.coordinator.groups.streams.streams_group_records import (
    NO_EPOCH,
    CurrentValue,
    GroupEpochValue,
    MemberState,
    MemberValue,
    StreamsGroupKey,
)
from barnabas.coordinator.groups.streams.tasks import NONE_HELD, HeldTasks, TaskSet
from barnabas.coordinator.groups.streams.topology import Subtopology, Topology
from barnabas.coordinator.result import InternalTopic
from barnabas.protocol.primitives import write_uvarint

GROUP = (
    "0000000000029fae72fa7971a1bb02000400000000011902156e756d2e7374616e6462792e7265706c69636173"
    "023000"
)
MEMBER = "0000000002630b2f3132372e302e302e31000027100000000005702d6d31010368310001000100"
TOPOLOGY = (
    "000000000000030230020973373932363937370101020b7265703739323639373701010002310101020b6c6f6737"
    "393236393737000000000000020f636c65616e75702e706f6c69637908636f6d70616374000001020b7265703739"
    "32363937370000000000000100010000"
)
TARGET = (
    "00000302300500000000000000010000000200000003000231080000000000000001000000020000000300000004"
    "000000050000000600010100"
)
TARGET_EPOCH = "000000000002010008000001a213c3bb04"
CURRENT = (
    "0000000000030000000201030230050000000000000001000000020000000301001105000000030000000300000003"
    "000000030231080000000000000001000000020000000300000004000000050000000601001d0800000003000000030"
    "000000300000003000000030000000300000003010101010100"
)
EPOCHS = dict.fromkeys(range(4), 3)


def test_a_group_record_of_kafka_is_read_and_written_again() -> None:
    value = GroupEpochValue(2, -6940483555626475077, 0, (("num.standby.replicas", "0"),))
    assert records.decode_group_epoch(bytes.fromhex(GROUP)) == value
    key, encoded = records.group_epoch_record("g", value)
    assert (key, encoded) == (b"\0\x11\0\x01g", bytes.fromhex(GROUP))


@pytest.mark.parametrize("tags", [b"\0", b"\1\1\1\0"])
def test_a_group_without_configs_has_no_validated_topology(tags: bytes) -> None:
    value = bytes.fromhex(GROUP)[:14] + tags
    assert records.decode_group_epoch(value)[2:] == (NO_EPOCH, ())
    again = records.group_epoch_record("g", records.decode_group_epoch(value)).value
    assert again == bytes.fromhex(GROUP)[:14] + b"\1\1\1\1"


def test_a_member_record_of_kafka_is_read_and_written_again() -> None:
    value = MemberValue(None, None, "c", "/127.0.0.1", 10_000, 0, "p-m1", ("h1", 1), ())
    assert records.decode_member(bytes.fromhex(MEMBER)) == value
    key, encoded = records.member_record("g", "m1", value)
    assert (key, encoded) == (b"\0\x13\0\x01g\0\x02m1", bytes.fromhex(MEMBER))
    for more in (
        value._replace(endpoint=None),
        value._replace(rack_id="r", instance_id="i", client_tags=(("zone", "a"), ("os", "b"))),
    ):
        again = records.member_record("g", "m1", more).value
        assert again is not None and records.decode_member(again) == more


def test_a_topology_record_of_kafka_is_read_and_written_again() -> None:
    source = Subtopology("0", ("s7926977",), (), (), ("rep7926977",), (), ())
    counting = Subtopology(
        "1", (), (), (InternalTopic("log7926977", 0, 0, (("cleanup.policy", "compact"),)),), (),
        (InternalTopic("rep7926977", 0, 0, ()),), (),
    )  # fmt: skip
    topology = Topology(0, (source, counting))
    assert records.decode_topology(bytes.fromhex(TOPOLOGY)) == topology
    key, encoded = records.topology_record("g", topology)
    assert (key, encoded) == (b"\0\x17\0\x01g", bytes.fromhex(TOPOLOGY))
    assert topology.required_topics == ("s7926977", "rep7926977", "log7926977")
    assert topology.subtopology_of == {"s7926977": "0", "rep7926977": "1"}


def test_target_assignment_records_of_kafka_are_read_and_written_again() -> None:
    target = TaskSet({"0": (0, 1, 2, 3), "1": tuple(range(7))}, {}, {})
    assert records.decode_member_target(bytes.fromhex(TARGET)) == target
    assert records.member_target_record("g", "m1", target).value == bytes.fromhex(TARGET)
    assert records.decode_target_epoch(bytes.fromhex(TARGET_EPOCH)) == 2
    timestamp_ms = int(TARGET_EPOCH[-16:], 16)
    key, encoded = records.target_epoch_record("g", 2, timestamp_ms)
    assert (key, encoded) == (b"\0\x14\0\x01g", bytes.fromhex(TARGET_EPOCH))
    assert records.target_epoch_record("g", 2, 0).value == bytes.fromhex(TARGET_EPOCH)[:6] + b"\0"


def test_a_current_assignment_record_of_kafka_is_read_and_written_again() -> None:
    held = HeldTasks({"0": EPOCHS, "1": dict.fromkeys(range(7), 3)}, {}, {})
    current = CurrentValue(3, 2, MemberState.STABLE, held, NONE_HELD)
    assert records.decode_current(bytes.fromhex(CURRENT)) == current
    assert records.current_record("g", "m1", current).value == bytes.fromhex(CURRENT)
    more = CurrentValue(
        4, 3, MemberState.UNREVOKED_TASKS,
        HeldTasks({"0": {1: 2, 5: 4}}, {"1": (0, 2)}, {"1": (4,)}),
        HeldTasks({"1": {3: 1}}, {"0": (0,)}, {"0": (2,)}),
    )  # fmt: skip
    again = records.current_record("g", "m1", more).value
    assert again is not None and records.decode_current(again) == more


def test_tasks_without_epochs_get_the_epoch_of_the_member() -> None:
    value = bytearray(bytes.fromhex("000000000005000000047f"))
    value += b"\2\x020\2" + bytes(4) + b"\0"
    for _ in range(5):
        write_uvarint(value, 1)
    value += b"\0"
    current = records.decode_current(bytes(value))
    # 127 represents a state that a later version of Apache Kafka may add
    assert current.state is MemberState.UNKNOWN
    assert current.assigned.active == {"0": {0: 5}}


def test_tombstones_have_the_keys_of_groups_and_members() -> None:
    for version in (17, 20, 23):
        key, value = records.tombstone(version, "g")
        assert value is None
        assert records.decode_streams_key(key) == StreamsGroupKey(version, "g", "")
    for version in (19, 21, 22):
        key, value = records.tombstone(version, "g", "m")
        assert value is None
        assert records.decode_streams_key(key) == StreamsGroupKey(version, "g", "m")
    assert records.decode_streams_key(b"\0\x12\0\x01g") is None


def test_a_later_version_of_a_value_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown version 1"):
        records.decode_target_epoch(b"\0\1\0\0\0\1\0")
