"""The records of share partitions, compared with bytes written from Apache Kafka's schemas."""

from __future__ import annotations

import uuid

import pytest

from barnabas.coordinator.share_states.share_records import (
    SNAPSHOT_VERSION,
    UPDATE_VERSION,
    SharePartitionKey,
    Snapshot,
    Update,
    decode_key,
    decode_snapshot,
    decode_update,
    snapshot_record,
    tombstone,
    update_record,
)
from barnabas.coordinator.share_states.state_batches import StateBatch

TOPIC = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
KEY = SharePartitionKey("group", TOPIC.bytes, 3)
KEY_END = "0005" + b"group".hex() + TOPIC.hex + "00000003"
RUNS = (StateBatch(10, 14, 2, 1), StateBatch(15, 15, 0, 3))
RUNS_HEX = (
    "03"
    "000000000000000a" "000000000000000e" "02" "0001" "00"
    "000000000000000f" "000000000000000f" "00" "0003" "00"
)  # fmt: skip
COUNT_TAG = "01000400000005"


def test_a_snapshot_record_has_the_bytes_of_kafkas_schema() -> None:
    one = Snapshot(7, 1, 2, 10, 5, 1000, 2000, list(RUNS))
    record = snapshot_record(KEY, one)
    assert record.key.hex() == "0000" + KEY_END
    assert record.value is not None
    assert record.value.hex() == (
        "0000" "00000007" "00000001" "00000002" "000000000000000a"
        "00000000000003e8" "00000000000007d0" + RUNS_HEX + COUNT_TAG
    )  # fmt: skip
    assert decode_key(record.key) == (SNAPSHOT_VERSION, KEY)
    assert decode_snapshot(record.value) == one


def test_an_update_record_without_a_count_has_the_bytes_of_kafkas_schema() -> None:
    one = Update(7, 2, -1, -1, list(RUNS))
    record = update_record(KEY, one)
    assert record.key.hex() == "0001" + KEY_END
    assert record.value is not None
    assert record.value.hex() == (
        "0000" "00000007" "00000002" "ffffffffffffffff" + RUNS_HEX + "00"
    )  # fmt: skip
    assert decode_key(record.key) == (UPDATE_VERSION, KEY)
    assert decode_update(record.value) == one


def test_a_tombstone_is_a_snapshot_without_a_value() -> None:
    assert tombstone(KEY) == (bytes.fromhex("0000" + KEY_END), None)


def test_unknown_tags_are_skipped_and_unknown_versions_refused() -> None:
    value = bytes.fromhex(
        "0000" "00000007" "00000002" "ffffffffffffffff"
        "02" "000000000000000a" "000000000000000e" "02" "0001" "01" "09" "01" "ff"
        "02" "00" "04" "00000005" "05" "02" "abcd"
    )  # fmt: skip
    assert decode_update(value) == Update(7, 2, -1, 5, [StateBatch(10, 14, 2, 1)])
    assert decode_key(bytes.fromhex("0002" + KEY_END)) is None
    with pytest.raises(ValueError, match="unknown version 1"):
        decode_update(b"\0\1" + value[2:])
