"""The records of `__consumer_offsets`, compared with a log that Apache Kafka 3.9 wrote and with the
output of Kafka's dump tool.
"""

import json
import re

import pytest
from helpers.group_host import GroupHost
from helpers.hard_state import hard_state
from helpers.places import TESTS

from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
from barnabas.coordinator.groups.group_offsets import CommittedOffset
from barnabas.coordinator.groups.group_records import (
    GroupKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetKey,
    decode_group,
    decode_key,
    decode_offset,
    encode_group_key,
    encode_offset_key,
    group_record,
    group_tombstone,
    offset_record,
    offset_tombstone,
    split_offset_key,
)
from barnabas.protocol.records import batches_in, decode_marker, records_of
from barnabas.protocol.wall_clock import WallClock

FIXTURE = TESTS / "fixtures" / "consumer_offsets"
PARTITIONS_OF_THE_FIXTURE = 2


def written_by_kafka():
    """The (batch header, batch, record) of each record in the log."""
    log = (FIXTURE / "00000000000000000000.log").read_bytes()
    for position, header in batches_in(log):
        batch = log[position : position + header.size_bytes]
        for record in records_of(batch):
            yield header, batch, record


def printed_by_kafka():
    """The (key, payload) of each record that is not a marker, by its offset."""
    line = re.compile(r"^\| offset: (\d+) .* key: (\{.*\}) payload: (\{.*\})$")
    found = (line.match(text) for text in (FIXTURE / "dump.txt").read_text().splitlines())
    return {int(one[1]): (json.loads(one[2]), json.loads(one[3])) for one in found if one}


def fed_with_kafkas_log() -> GroupCoordinator:
    """A coordinator that has replayed the log of Apache Kafka."""
    coordinator = GroupHost(partition_count=PARTITIONS_OF_THE_FIXTURE).coordinator
    for header, batch, record in written_by_kafka():
        if header.is_control:
            coordinator.replay_marker(
                0,
                record.offset,
                header.producer_id,
                header.producer_epoch,
                decode_marker(batch).commit,
            )
        else:
            producer = (
                (header.producer_id, header.producer_epoch) if header.is_transactional else None
            )
            coordinator.replay(0, record.offset, record.key, record.value, producer)
    return coordinator


def test_kafkas_records_are_read_as_its_own_tool_reads_them():
    printed = printed_by_kafka()
    read = {
        record.offset: record for header, _, record in written_by_kafka() if not header.is_control
    }
    assert list(read) == list(printed) and len(read) == 13
    for offset, record in read.items():
        key, payload = printed[offset]
        assert decode_key(record.key) == OffsetKey(
            key["data"]["group"], key["data"]["topic"], key["data"]["partition"]
        )
        data = payload["data"]
        assert decode_offset(record.value, offset) == CommittedOffset(
            data["offset"],
            data["leaderEpoch"],
            data["metadata"],
            data["commitTimestamp"],
            -1,
            offset,
        )


def test_records_are_written_byte_for_byte_as_kafka_writes_them():
    for header, _, record in written_by_kafka():
        if not header.is_control:
            key = decode_key(record.key)
            assert isinstance(key, OffsetKey)
            assert offset_record(*key, decode_offset(record.value, 0)[:5]) == (
                record.key,
                record.value,
            )


def test_a_coordinator_fed_with_kafkas_log_has_the_offsets_that_clients_read():
    host = GroupHost(partition_count=PARTITIONS_OF_THE_FIXTURE)
    host.checks = False
    host.coordinator = fed_with_kafkas_log()
    host.handle(host.coordinator.on_loaded(host.now_ms))
    assert host.fetch("plain-group") == {("plain", 0): (5, "five\0"), ("plain", 1): (7, "")}
    assert host.fetch("readers", stable=True) == {("plain", 0): (11, "")}
    assert host.list_groups() == {"readers": ("", "Empty"), "plain-group": ("", "Empty")}


MEMBERS = (
    MemberMetadata("one-1", None, "client", "/192.0.2.7", 3000, 10000, b"sub", b"all"),
    MemberMetadata("two-2", "two", "klient-ä", "/192.0.2.8", 3001, 10001, b"", b""),
)


@pytest.mark.parametrize(
    "group",
    [
        GroupMetadataValue("consumer", 7, "range", "one-1", 1_700_000_000_000, MEMBERS),
        GroupMetadataValue("consumer", 8, None, None, 1_700_000_000_000, ()),
        GroupMetadataValue("", 0, None, None, -1, ()),
    ],
)
def test_a_group_record_decodes_to_the_encoded_group(group):
    record = group_record("group", group)
    assert decode_key(record.key) == GroupKey("group")
    assert decode_group(record.value) == group


def test_the_layout_of_a_group_is_kafkas_version_3():
    group = GroupMetadataValue(
        "consumer", 7, "range", "m", 258, (MemberMetadata("m", "i", "c", "/h", 1, 2, b"S", b"AA"),)
    )
    assert group_record("g", group) == (
        bytes.fromhex("0002 0001 67"),
        bytes.fromhex(
            "0003 0008 636f6e73756d6572 00000007 0005 72616e6765 0001 6d 0000000000000102 00000001"
            "0001 6d 0001 69 0001 63 0002 2f68 00000001 00000002 00000001 53 00000002 4141"
        ),
    )


def test_values_of_older_versions_are_read():
    string = {
        "consumer": "0008 636f6e73756d6572",
        "range": "0005 72616e6765",
        "m": "0001 6d",
        "c": "0001 63",
        "h": "0001 68",
    }
    start = string["consumer"] + "00000007" + string["range"] + string["m"]
    member = string["m"] + string["c"] + string["h"]
    end = "00000002 00000001 53 00000001 41"
    version_0 = bytes.fromhex("0000" + start + "00000001" + member + end)
    version_1 = bytes.fromhex("0001" + start + "00000001" + member + "00000005" + end)
    version_2 = bytes.fromhex(
        "0002" + start + "0000000000000102" + "00000001" + member + "00000005" + end
    )
    expected = MemberMetadata("m", None, "c", "h", 2, 2, b"S", b"A")
    assert decode_group(version_0) == GroupMetadataValue(
        "consumer", 7, "range", "m", -1, (expected,)
    )
    assert decode_group(version_1) == GroupMetadataValue(
        "consumer", 7, "range", "m", -1, (expected._replace(rebalance_timeout_ms=5),)
    )
    assert decode_group(version_2) == GroupMetadataValue(
        "consumer", 7, "range", "m", 258, (expected._replace(rebalance_timeout_ms=5),)
    )
    with_rebalance_timeout_0 = bytes.fromhex(
        "0001" + start + "00000001" + member + "00000000" + end
    )
    assert decode_group(with_rebalance_timeout_0).members == (
        expected._replace(rebalance_timeout_ms=0),
    )
    offset, timestamp = "0000000000000009", "0000000000000102"
    assert decode_offset(
        bytes.fromhex("0000" + offset + string["m"] + timestamp), 3
    ) == CommittedOffset(9, -1, "m", 258, -1, 3)
    with_expiry = bytes.fromhex("0001" + offset + string["m"] + timestamp + "0000000000000103")
    assert decode_offset(with_expiry, 3) == CommittedOffset(9, -1, "m", 258, 259, 3)
    assert decode_offset(
        bytes.fromhex("0002" + offset + string["m"] + timestamp), 3
    ) == CommittedOffset(9, -1, "m", 258, -1, 3)


def test_values_of_the_flexible_version_are_read():
    """Newer brokers write these values. A broker that can read them can be the target of a
    downgrade (KIP-915).
    """
    member = "026d 0269 0263 0268 00000005 00000002 0253 0341 41 00"
    group = bytes.fromhex(
        "0004 09636f6e73756d6572 00000007 0672616e6765 026d 0000000000000102 02"
        + member
        + "01 05 02 ffff"
    )
    kept = MemberMetadata("m", "i", "c", "h", 5, 2, b"S", b"AA")
    assert decode_group(group) == GroupMetadataValue("consumer", 7, "range", "m", 258, (kept,))
    offset = bytes.fromhex("0004 0000000000000009 00000004 026d 0000000000000102 00")
    assert decode_offset(offset, 3) == CommittedOffset(9, 4, "m", 258, -1, 3)


def test_a_commit_with_an_expiry_time_is_written_in_version_1():
    committed = CommittedOffset(9, -1, "m", 258, 259)
    _, value = offset_record("g", "t", 1, committed[:5])
    assert value is not None and value[:2] == b"\0\1"
    assert decode_offset(value, -1) == committed


def test_a_commit_has_its_age_by_the_steady_clock():
    wall = WallClock()
    wall.feed(1_000, 5_000)
    for version in (1, 2, 3):
        commit = bytes.fromhex("000000000000000a") + b"\0\1m" + (4_700).to_bytes(8, "big")
        if version == 3:
            commit = commit[:8] + b"\0\0\0\4" + commit[8:]
        value = version.to_bytes(2, "big") + commit + b"\0" * (8 if version == 1 else 0)
        assert decode_offset(value, 3, wall).since_ms == 700
        assert decode_offset(value, 3).since_ms == -1


@pytest.mark.parametrize("size", [1, 255, 256, 300, 20_000])
def test_split_offset_key_returns_the_group_and_the_rest_of_the_key(size):
    group = "g" * size
    key = encode_offset_key(group, "topic", 5)
    assert split_offset_key(key) == (group, b"\0\5topic\0\0\0\5")


def test_tombstones_have_the_keys_of_what_they_remove():
    assert offset_tombstone("g", "t", 5) == (encode_offset_key("g", "t", 5), None)
    assert group_tombstone("g") == (encode_group_key("g"), None)
    assert decode_key(encode_offset_key("g", "t", 5)) == OffsetKey("g", "t", 5)
    assert decode_key(b"\0\0" + encode_offset_key("g", "t", 5)[2:]) == OffsetKey("g", "t", 5), (
        "version 0 is the same"
    )


@pytest.mark.parametrize("version", [9, 24, 99])
def test_records_of_unknown_kinds_are_passed_over(version):
    key = version.to_bytes(2, "big") + b"\0\1g"
    assert decode_key(key) is None
    coordinator = GroupHost().coordinator
    coordinator.replay(0, 0, key, b"\0\0whatever", None)
    assert hard_state(coordinator) == {"groups": {}, "open": {}}


def test_a_truncated_group_value_or_an_unknown_version_is_an_error():
    record = group_record("g", GroupMetadataValue("consumer", 7, "range", "m", 258, MEMBERS))
    assert record.value is not None
    with pytest.raises(ValueError, match="version"):
        decode_group(b"\0\5" + record.value[2:])
    for size in range(2, len(record.value)):
        with pytest.raises(ValueError, match="longer than its record"):
            decode_group(record.value[:size])


@pytest.mark.parametrize(
    ("size", "prefix"), [(126, "7f"), (127, "80 01"), (300, "ad 02"), (20_000, "a1 9c 01")]
)
def test_compact_strings_have_sizes_of_one_byte_and_more(size, prefix):
    value = bytes.fromhex("0004 0000000000000009 00000004" + prefix) + b"m" * size
    end = bytes.fromhex("0000000000000102 00")
    assert decode_offset(value + end, 3) == CommittedOffset(9, 4, "m" * size, 258, -1, 3)


def test_tagged_fields_of_a_member_are_skipped():
    members = "".join(
        f"02{name} 00 0263 0268 00000005 00000002 01 01 {tags}"
        for name, tags in (("6d", "02 05 02 ffff 07 00"), ("6e", "00"))
    )
    group = "0004 09636f6e73756d6572 00000007 0672616e6765 026d 0000000000000102 03"
    decoded = decode_group(bytes.fromhex(group + members + "00"))
    assert decoded.members == tuple(
        MemberMetadata(name, None, "c", "h", 5, 2, b"", b"") for name in ("m", "n")
    )


def test_fields_that_may_not_be_null_or_negative_are_refused():
    record = group_record("g", GroupMetadataValue("", 7, "range", "m", 258, MEMBERS))
    assert record.value is not None
    with pytest.raises(ValueError, match="null"):
        decode_group(record.value[:2] + b"\xff\xff" + record.value[4:])
    assignment = record.value.rindex(b"\0\0\0\0")
    with pytest.raises(ValueError, match="longer than its record"):
        decode_group(record.value[:assignment] + b"\xff\xff\xff\xff")
