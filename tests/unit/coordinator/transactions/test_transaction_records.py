"""Records of __transaction_state that Apache Kafka 3.9 wrote. They are decoded as Kafka's dump tool
decodes them, and encoded to the same bytes.
"""

from __future__ import annotations

import re

import pytest
from helpers.places import TESTS

from barnabas.coordinator.result import partition_for
from barnabas.coordinator.transactions.transaction_records import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    producer_id_of,
)
from barnabas.coordinator.transactions.transaction_state import (
    STATE_BY_NAME,
    TransactionMetadata,
    TransactionState,
)
from barnabas.protocol.records import Record, batches_in, records_of

FIXTURES = TESTS / "fixtures" / "transaction_state"
DUMPED = re.compile(
    r"\| offset: (\d+) .*transactionalId=(\S+) payload: producerId:(-?\d+),"
    r"producerEpoch:(-?\d+),state=(\w+),"
    r"partitions=\[(.*)\],txnLastUpdateTimestamp=(-?\d+),txnTimeoutMs=(\d+)"
)


def records_of_kafka(partition: int) -> list[Record]:
    log = (FIXTURES / f"kafka-3.9-partition-{partition}.log").read_bytes()
    return [
        record
        for at, header in batches_in(log)
        for record in records_of(log[at : at + header.size_bytes])
    ]


def dump_of_kafka(partition: int) -> list[tuple[str, ...]]:
    lines = (FIXTURES / f"kafka-3.9-partition-{partition}.txt").read_text().splitlines()
    return [found.groups() for line in lines if (found := DUMPED.match(line))]


@pytest.mark.parametrize(("partition", "count"), [(0, 60), (1, 28)])
def test_kafkas_records_are_read_as_its_dump_tool_reads_them(partition: int, count: int) -> None:
    records, dump = records_of_kafka(partition), dump_of_kafka(partition)
    assert len(records) == len(dump) == count
    for record, (
        offset,
        transactional_id,
        pid,
        epoch,
        state,
        partitions,
        updated_ms,
        timeout_ms,
    ) in zip(records, dump, strict=True):
        assert record.key is not None and record.value is not None
        assert decode_key(record.key) == transactional_id
        found = decode_value(transactional_id, record.value)
        assert record.offset == int(offset)
        assert (found.producer_id, found.producer_epoch, found.timeout_ms) == (
            int(pid),
            int(epoch),
            int(timeout_ms),
        )
        assert found.state is STATE_BY_NAME[state]
        assert ",".join(f"{topic}-{index}" for topic, index in found.partitions) == partitions
        assert found.last_update_ms == int(updated_ms)
        assert partition_for(transactional_id, 2) == partition


@pytest.mark.parametrize("partition", [0, 1])
def test_kafkas_records_are_written_byte_for_byte(partition: int) -> None:
    # contract: kip-98/records
    for record in records_of_kafka(partition):
        assert record.key is not None and record.value is not None
        transactional_id = decode_key(record.key)
        assert transactional_id is not None
        assert encode_key(transactional_id) == record.key
        assert encode_value(decode_value(transactional_id, record.value)) == record.value


def test_a_key_has_the_size_of_the_encoded_id() -> None:
    # Written manually from the schema of TransactionLogKey: Kafka reads as many bytes as it says.
    assert encode_key("größe") == bytes.fromhex("0000 0007 6772c3b6c39f65")
    assert decode_key(encode_key("größe")) == "größe"


def test_a_value_of_version_1_has_compact_fields_and_tags() -> None:
    # Written manually from the schema of TransactionLogValue in Apache Kafka 3.9.
    value = bytes.fromhex(
        "0001"  # version
        "0000000000000005"  # producer_id
        "0003"  # producer_epoch
        "0000ea60"  # timeout_ms
        "01"  # Ongoing
        "02"
        "0374"
        "78"
        "0300000000"
        "00000002"
        "00"  # the topic "tx" with partitions 0 and 2, and no tagged fields
        "0000000000000010"  # last_update_ms
        "0000000000000008"  # start_ms
        "03"
        "00"
        "08"
        "0000000000000004"
        "01"
        "08"
        "0000000000000006"
        "02"
        "02"
        "0002"  # Kafka's three tagged fields
    )
    metadata = TransactionMetadata(
        "id",
        5,
        3,
        60_000,
        TransactionState.ONGOING,
        {("tx", 0): None, ("tx", 2): None},
        16,
        8,
        previous_producer_id=4,
        next_producer_id=6,
        client_transaction_version=2,
    )
    assert decode_value("id", value) == metadata
    assert encode_value(metadata) == value
    assert producer_id_of(value) == 5


def test_tags_of_others_are_skipped() -> None:
    metadata = TransactionMetadata(
        "id", 5, 3, 60_000, previous_producer_id=4, last_producer_epoch=32766
    )
    value = bytearray(encode_value(metadata))
    tags_at = len(value) - 1 - 10 - 5
    assert value[tags_at] == 2
    value[tags_at] = 3
    value += b"\xff\xff\x7f" + b"\x03abc"
    assert decode_value("id", bytes(value)) == metadata


def test_what_version_0_cannot_say_is_said_in_version_1_and_only_that() -> None:
    plain = TransactionMetadata("id", 5, 3, 60_000)
    asked = TransactionMetadata("id", 5, 3, 60_000, previous_producer_id=5, last_producer_epoch=2)
    assert encode_value(plain)[:2] == b"\0\0"
    assert encode_value(asked)[:2] == b"\0\1"
    assert decode_value("id", encode_value(asked)).last_producer == (5, 2)


def test_keys_of_later_versions_are_skipped_and_values_of_them_are_not() -> None:
    assert decode_key(b"\0\1whatever") is None
    value = encode_value(TransactionMetadata("id", 5, 3, 60_000))
    with pytest.raises(ValueError, match="unknown version 2"):
        decode_value("id", b"\0\2" + value[2:])


def test_a_value_cut_anywhere_or_with_more_behind_it_is_refused() -> None:
    for metadata in (
        TransactionMetadata("id", 5, 3, 60_000, TransactionState.ONGOING, {("topic", 1): None}),
        TransactionMetadata(
            "id",
            5,
            3,
            60_000,
            TransactionState.ONGOING,
            {("topic", 1): None},
            last_producer_epoch=1,
        ),
    ):
        value = encode_value(metadata)
        assert decode_value("id", value) == metadata
        for end in range(len(value)):
            with pytest.raises(ValueError, match=r"cut off|tag"):
                decode_value("id", value[:end])
        with pytest.raises(ValueError, match="left over"):
            decode_value("id", value + b"\0")


def test_an_unknown_state_is_refused() -> None:
    value = bytearray(encode_value(TransactionMetadata("id", 5, 3, 60_000)))
    value[16] = 8
    with pytest.raises(ValueError, match="unknown state 8"):
        decode_value("id", bytes(value))


@pytest.mark.parametrize("key", [b"\0\0\0\3txnn", b"\0\0\0\5txn"])
def test_a_key_of_a_wrong_length_is_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match="has a wrong length"):
        decode_key(key)
    assert decode_key(b"\0\0\0\3txn") == "txn"


@pytest.mark.parametrize(
    ("size", "prefix"), [(126, b"\x7f"), (127, b"\x80\x01"), (300, b"\xad\x02")]
)
def test_names_have_sizes_of_one_byte_and_more(size: int, prefix: bytes) -> None:
    name = "n" * size
    metadata = TransactionMetadata(
        "id",
        5,
        3,
        60_000,
        TransactionState.ONGOING,
        {(name, 0): None},
        16,
        8,
        last_producer_epoch=2,
    )
    value = encode_value(metadata)
    assert prefix + name.encode() in value
    assert decode_value("id", value) == metadata


def test_a_tagged_field_of_the_wrong_size_is_refused() -> None:
    value = bytearray(
        encode_value(TransactionMetadata("id", 5, 3, 60_000, last_producer_epoch=32766))
    )
    assert value[-3:] == b"\x02\x7f\xfe"
    value[-3:] = b"\x01\x7f"
    with pytest.raises(ValueError, match="tag 10000 has 1 bytes instead of 2"):
        decode_value("id", bytes(value))


def test_a_name_may_need_a_size_of_three_bytes() -> None:
    metadata = TransactionMetadata(
        "id", 5, 3, 60_000, TransactionState.ONGOING, {("n" * 20_000, 0): None}, 16, 8,
        last_producer_epoch=2,
    )  # fmt: skip
    assert decode_value("id", encode_value(metadata)) == metadata


def test_a_tagged_field_may_be_empty_and_a_name_may_not_be_null() -> None:
    metadata = TransactionMetadata("id", 5, 3, 60_000, last_producer_epoch=32766)
    value = bytearray(encode_value(metadata))
    tags_at = len(value) - 1 - 5
    assert value[tags_at] == 1
    # add a second tagged field, whose data are empty
    value[tags_at] = 2
    assert decode_value("id", bytes(value + b"\xff\xff\x7f\x00")) == metadata
    named = TransactionMetadata(
        "id", 5, 3, 60_000, TransactionState.ONGOING, {("n", 0): None}, 16, 8, last_producer_epoch=2
    )
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        decode_value("id", encode_value(named).replace(b"\x02n", b"\x00n"))
