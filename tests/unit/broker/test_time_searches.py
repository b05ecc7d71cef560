"""ListOffsets by time over batches that take long to search: other clients are served in the
meantime, and the response describes the log at the end of the search.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.admin_host import NOW_MS
from helpers.core_host import CoreHost, delete_topic, error_of, produce
from helpers.storage_logs import append_unchecked

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.records import NewRecord, encode_batch

COUNT = 12_000
MAX_TIMESTAMP = -3


def many(codec: int) -> bytearray:
    """Return a batch with two records for each timestamp. The first record with the highest
    timestamp is therefore the last but one.
    """
    return bytearray(
        encode_batch(
            [NewRecord(None, b"", NOW_MS + number // 2) for number in range(COUNT)], codec=codec
        )
    )


def asking(*timestamps: int) -> Any:
    """A ListOffsets request with one timestamp for each partition."""
    rows = [
        ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=timestamp)
        for index, timestamp in enumerate(timestamps)
    ]
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name="t", partitions=rows)]
    )


def rows(answer: Any) -> list[tuple[int, int, int]]:
    return [(row.error_code, row.timestamp, row.offset) for row in answer.topics[0].partitions]


def host_with(tmp_path: Path, batch: bytearray, **settings: str) -> CoreHost:
    host = CoreHost(tmp_path, **settings)
    for log in host.create("t", 2):
        append_unchecked(log, batch)
    host.connect(1)
    host.connect(2)
    return host


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_other_requests_are_answered_while_a_large_batch_is_searched(
    tmp_path: Path, codec: int
) -> None:
    host = host_with(tmp_path, many(codec))
    host.ask(1, asking(NOW_MS + 5000, MAX_TIMESTAMP), 7)
    assert host.work and not host.answers[1]
    assert error_of(host.call(2, produce("t"), 9)) == 0
    host.finish_work()
    assert [rows(answer) for answer in host.answers[1]] == [
        [(0, NOW_MS + 5000, 10_000), (0, NOW_MS + 5999, COUNT - 2)]
    ]


def test_few_records_are_searched_at_once_however_many_batches_there_are(tmp_path: Path) -> None:
    host = host_with(
        tmp_path,
        bytearray(
            encode_batch([NewRecord(None, b"v", NOW_MS + number) for number in range(10)], codec=4)
        ),
    )
    assert rows(host.call(1, asking(NOW_MS + 4, NOW_MS + 10), 7)) == [
        (0, NOW_MS + 4, 4),
        (0, -1, -1),
    ]
    assert not host.work


def test_few_records_that_decompress_to_many_bytes_are_searched_by_the_worker(
    tmp_path: Path,
) -> None:
    large = [NewRecord(None, bytes(1 << 20), NOW_MS + number) for number in range(2)]
    host = host_with(tmp_path, bytearray(encode_batch(large, codec=4)))
    host.ask(1, asking(NOW_MS + 1, NOW_MS), 7)
    host.finish_work()
    assert [rows(answer) for answer in host.answers[1]] == [[(0, NOW_MS + 1, 1), (0, NOW_MS, 0)]]


@pytest.mark.parametrize("timestamp", [NOW_MS, MAX_TIMESTAMP])
def test_records_deleted_during_a_search_are_not_returned(tmp_path: Path, timestamp: int) -> None:
    host = host_with(tmp_path, many(4))
    host.ask(1, asking(timestamp), 7)
    log = host.broker.topics.partition("t", 0)
    assert log is not None
    log.delete_records_before(COUNT - 1)
    while host.work:
        host.finish_work()
    assert [rows(answer) for answer in host.answers[1]] == [[(0, NOW_MS + 5999, COUNT - 1)]]


def test_a_topic_deleted_during_a_search_gets_an_error(tmp_path: Path) -> None:
    host = host_with(tmp_path, many(4))
    host.ask(1, asking(NOW_MS), 7)
    delete_topic(host.parts.deletion, "t", NOW_MS)
    host.finish_work()
    assert [rows(answer) for answer in host.answers[1]] == [
        [(Code.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)]
    ]


def test_a_search_ends_when_its_connection_is_closed(tmp_path: Path) -> None:
    host = host_with(tmp_path, many(4))
    host.ask(1, asking(NOW_MS), 7)
    host.broker.on_closed(1)
    host.finish_work()
    assert not host.work and not host.answers[1]


def test_a_request_searches_one_part_at_a_time_to_bound_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.broker.handlers.list_offsets.MOST_BYTES_IN_MEMORY", 1)
    host = host_with(tmp_path, many(4))
    host.ask(1, asking(NOW_MS, NOW_MS + 1), 7)
    for left in (1, 0):
        assert len(host.finish_work().run()) == 1
        assert len(host.work) == left
    assert [rows(answer) for answer in host.answers[1]] == [[(0, NOW_MS, 0), (0, NOW_MS + 1, 2)]]


def test_the_first_record_is_returned_for_a_batch_that_decompresses_to_too_much(
    tmp_path: Path,
) -> None:
    """A reader that starts at the first record skips nothing. Earlier versions accepted batches as
    large as this one.
    """
    bomb = bytearray(
        encode_batch(
            [NewRecord(None, bytes(3 << 20), NOW_MS + number) for number in range(2)], codec=4
        )
    )
    host = host_with(tmp_path, bomb, barnabas_decompressed_max_bytes=str(2 << 20))
    host.ask(1, asking(NOW_MS + 1, NOW_MS), 7)
    host.finish_work()
    assert [rows(answer) for answer in host.answers[1]] == [[(0, NOW_MS + 1, 0), (0, NOW_MS, 0)]]
