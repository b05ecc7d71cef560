"""ListOffsets requests: which are refused, with the codes of Apache Kafka 3.9, and which offsets
version 0 and read_committed clients get.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.admin_host import NOW_MS, AdminHost, creatable

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.records import NewRecord, encode_batch

LATEST, MAX_TIMESTAMP = -1, -3
VERSION = 7


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AdminHost]:
    host = AdminHost(tmp_path)
    host.create(creatable("t"))
    yield host
    host.close()


def code(
    host: AdminHost,
    name: str,
    isolation_level: int,
    *,
    timestamp: int = LATEST,
    version: int = VERSION,
) -> int:
    partition = ListOffsetsPartition(
        partition_index=0, current_leader_epoch=-1, timestamp=timestamp
    )
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=name, partitions=[partition])],
    )
    (row,) = host.call(request, version).topics[0].partitions
    assert row.error_code == Code.NONE or (row.offset, row.timestamp, row.leader_epoch) == (
        -1,
        -1,
        -1,
    )
    found: int = row.error_code
    return found


@pytest.mark.parametrize("version", [2, VERSION])
def test_an_isolation_level_that_does_not_exist_is_refused(host: AdminHost, version: int) -> None:
    assert [code(host, "t", level, version=version) for level in (0, 1)] == [Code.NONE, Code.NONE]
    for level in (2, -1, 127):
        assert code(host, "t", level, version=version) == Code.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    ("timestamp", "offsets"),
    [(LATEST, [2, 1]), (400, [0, 0]), (500, [0, 0]), (550, [1, -1]), (650, [-1, -1])],
)
def test_a_read_committed_client_finds_no_offset_of_an_open_transaction(
    host: AdminHost, timestamp: int, offsets: list[int]
) -> None:
    """The offsets at the isolation levels read_uncommitted and read_committed."""
    (log,) = host.broker.topics.partitions_of("t")
    log.append(encode_batch([NewRecord(None, b"committed", 500)]), now_ms=NOW_MS)
    of_transaction = encode_batch(
        [NewRecord(None, b"open", 600)],
        producer_id=5,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    log.append(of_transaction, now_ms=NOW_MS)
    partition = ListOffsetsPartition(0, current_leader_epoch=-1, timestamp=timestamp)
    found = []
    for level in (0, 1):
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=level, topics=[ListOffsetsTopic("t", [partition])]
        )
        (row,) = host.call(request, VERSION).topics[0].partitions
        assert row.error_code == Code.NONE
        found.append(row.offset)
    assert found == offsets


def test_versions_that_have_no_isolation_level_are_answered(host: AdminHost) -> None:
    assert code(host, "t", 0, version=1) == Code.NONE


def test_the_requests_own_fields_are_checked_before_its_partitions(host: AdminHost) -> None:
    assert code(host, "missing", 1) == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert code(host, "missing", 2) == Code.UNKNOWN_SERVER_ERROR
    assert code(host, "missing", 2, timestamp=MAX_TIMESTAMP, version=6) == Code.UNSUPPORTED_VERSION


@pytest.mark.parametrize(("timestamp", "since"), [(MAX_TIMESTAMP, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_each_special_timestamp_is_accepted_since_its_request_version(
    host: AdminHost, timestamp: int, since: int
) -> None:
    """These timestamps were introduced by KIP-734, KIP-405, KIP-1005 and KIP-1023. Request versions
    before `since` refuse them.
    """
    assert code(host, "t", 0, timestamp=timestamp, version=since) == Code.NONE
    assert code(host, "t", 0, timestamp=timestamp, version=since - 1) == Code.UNSUPPORTED_VERSION


def test_offsets_of_tiered_storage_are_unknown(host: AdminHost) -> None:
    """Timestamps -5 and -6 request offsets in tiered storage, which this broker does not have."""
    for timestamp in (-5, -6):
        partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic("t", [partition])], timeout_ms=9)
        (row,) = host.call(request, 11).topics[0].partitions
        assert (row.error_code, row.offset, row.leader_epoch) == (Code.NONE, -1, -1)


@pytest.mark.parametrize(
    ("timestamp", "most", "offsets"),
    [(LATEST, 9, [3, 2, 1, 0]), (LATEST, 1, [3]), (-2, 9, [0]), (500, 9, [0]), (0, 9, [])],
)
def test_version_0_tells_where_segments_begin(
    host: AdminHost, timestamp: int, most: int, offsets: list[int]
) -> None:
    """As in Kafka 0.8, version 0 returns the start offsets of segments, the latest one first."""
    host.create(creatable("rolled", configs={"segment.bytes": "200"}))
    (log,) = host.broker.topics.partitions_of("rolled")
    for number in range(3):
        log.append(encode_batch([NewRecord(None, bytes(80), 500 + number)]), now_ms=NOW_MS)
    partition = ListOffsetsPartition(0, timestamp=timestamp, max_num_offsets=most)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic("rolled", [partition])])
    (row,) = host.call(request, 0).topics[0].partitions
    assert (row.error_code, row.old_style_offsets) == (Code.NONE, offsets)
    missing = ListOffsetsRequest(topics=[ListOffsetsTopic("missing", [partition])])
    (row,) = host.call(missing, 0).topics[0].partitions
    assert row.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_version_0_tells_no_offset_that_was_deleted(host: AdminHost) -> None:
    """The log start offset may be within the first segment."""
    host.create(creatable("rolled", configs={"segment.bytes": "400"}))
    (log,) = host.broker.topics.partitions_of("rolled")
    for number in range(4):
        log.append(encode_batch([NewRecord(None, bytes(100), 500 + number)]), now_ms=NOW_MS)
    partition = ListOffsetsPartition(0, timestamp=LATEST, max_num_offsets=9)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic("rolled", [partition])])
    for start in (0, 1):
        host.broker.logs.raise_starts({log: start})
        (row,) = host.call(request, 0).topics[0].partitions
        assert row.old_style_offsets == [4, 2, start]
