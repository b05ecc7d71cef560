"""A directory without manifests, as Apache Kafka leaves it. Its indexes are built in slices, and
other clients are served between two slices. The responses equal those of a broker that builds an
index all at once.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.admin_host import NOW_MS
from helpers.core_host import CoreHost, delete_topic, error_of, fetch, produce
from helpers.repeating import repeat_until
from helpers.storage_logs import append_unchecked

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.storage.files.checkpoints import MANIFEST_NAME
from barnabas.storage.log.broker_appends import append_marker
from barnabas.storage.log.log import Log
from barnabas.storage.segments import batch_file, segment_indexes
from barnabas.storage.segments.index_builds import IndexBuilds
from barnabas.storage.segments.segment_indexes import BuildDeferred

MAX_TIMESTAMP = -3
BATCHES, SEGMENT_BYTES = 400, 16_384
READER, OTHER = 1, 2
DAY_MS = 86_400_000


def fill(log: Log) -> None:
    """Append batches of one record, a millisecond apart. Every tenth batch is an aborted
    transaction.
    """
    for number in range(BATCHES):
        records = [NewRecord(None, b"v" * 100, NOW_MS + number)]
        identity = {} if number % 10 else {"producer_id": number, "producer_epoch": 0}
        batch = encode_batch(records, transactional=bool(identity), **identity, **(
            {"base_sequence": 0} if identity else {}
        ))  # fmt: skip
        append_unchecked(log, batch)
        if identity:
            append_marker(
                log, producer_id=number, producer_epoch=0, coordinator_epoch=0, commit=False,
                now_ms=NOW_MS + number,
            )  # fmt: skip


@pytest.fixture(scope="module")
def as_kafka_left_it(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with two partitions of many segments each, and without manifests."""
    path = tmp_path_factory.mktemp("kafka")
    host = CoreHost(path, log_segment_bytes=str(SEGMENT_BYTES))
    for log in host.create("t", 2):
        fill(log)
        assert len(log.segments) > 4
    host.close()
    for manifest in path.rglob(MANIFEST_NAME):
        manifest.unlink()
    return path


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Build even small indexes in slices. Gives the number of batches that each slice has read."""
    looked_at: list[int] = []
    in_slices = batch_file.in_slices

    def counted(*arguments: Any) -> Iterator[Any]:
        looked_at.append(0)
        for position, header in in_slices(*arguments):
            looked_at[-1] += header is not None
            yield position, header
            if header is None:
                looked_at.append(0)

    monkeypatch.setattr(segment_indexes, "BUILT_AT_ONCE_BYTES", SEGMENT_BYTES // 2)
    monkeypatch.setattr(batch_file, "SLICE_COST", 20)
    monkeypatch.setattr(segment_indexes, "in_slices", counted)
    monkeypatch.setattr("barnabas.storage.producers.producer_snapshots.in_slices", counted)
    yield looked_at
    assert max(looked_at, default=0) <= 20


def opened(as_kafka_left_it: Path, path: Path, **settings: str) -> CoreHost:
    shutil.copytree(as_kafka_left_it, path, dirs_exist_ok=True)
    host = CoreHost(path, log_segment_bytes=str(SEGMENT_BYTES), **settings)
    host.connect(READER)
    host.connect(OTHER)
    return host


def finish(host: CoreHost) -> int:
    """Run ticks until the reader has its response, and serve another client between two ticks.

    Only the reader's own request is delayed. An index that another step needs is built at once.
    """

    def step() -> None:
        assert host.broker.next_deadline_ms() == 0, "nothing is to be done, and it waits"
        assert not host.broker.logs.cache.defers_builds, "who cannot wait would not be served"
        host.tick(0)
        assert host.call(OTHER, ApiVersionsRequest(), 0).error_code == 0

    return repeat_until(lambda: host.answers[READER], step)


def by_time(*timestamps: int, version: int = 7) -> Any:
    rows = [ListOffsetsPartition(index, -1, each) for index, each in enumerate(timestamps)]
    if not version:
        rows = [ListOffsetsPartition(row.partition_index, -1, row.timestamp, 100) for row in rows]
    return ListOffsetsRequest(-1, 0, [ListOffsetsTopic("t", rows)])


def code_of(answer: Any) -> int:
    return answer.responses[0].partitions[0].error_code


def committed(offset: int = 0, max_wait_ms: int = 0) -> Any:
    return fetch({"t": {0: offset, 1: offset}}, isolation=1, max_wait_ms=max_wait_ms)


ASKED: dict[str, tuple[Callable[[], Any], int]] = {
    "by time, in the last segments": (lambda: by_time(NOW_MS + 390, NOW_MS + 350), 7),
    "by time, in the first": (lambda: by_time(NOW_MS + 1, NOW_MS + 5000), 7),
    "of the highest time": (lambda: by_time(MAX_TIMESTAMP, MAX_TIMESTAMP), 7),
    "where segments begin": (lambda: by_time(NOW_MS + 390, -1, version=0), 0),
    "committed records": (committed, 11),
    "committed records of the middle": (lambda: committed(200), 11),
}


@pytest.mark.parametrize("what", ASKED)
def test_other_clients_are_served_while_indexes_are_built(
    as_kafka_left_it: Path, tmp_path: Path, slices: list[int], what: str
) -> None:
    ask, version = ASKED[what]
    at_once = opened(as_kafka_left_it, tmp_path / "at-once")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_indexes, "BUILT_AT_ONCE_BYTES", 1 << 30)
        expected = at_once.call(READER, ask(), version)
    slices.clear()
    host = opened(as_kafka_left_it, tmp_path / "later")
    host.ask(READER, ask(), version)
    assert host.answers[READER] == [] and len(slices) == 0
    assert finish(host) >= 4
    assert host.answers[READER] == [expected]
    # This request needs no slice, since the index is built only once.
    assert host.call(READER, ask(), version) == expected


def test_retention_by_time_builds_indexes_in_slices_and_deletes_old_segments(
    as_kafka_left_it: Path, tmp_path: Path, slices: list[int]
) -> None:
    host = opened(
        as_kafka_left_it, tmp_path, log_retention_ms=str(DAY_MS), log_initial_task_delay_ms="1000"
    )
    logs = host.broker.topics.logs_of("t")
    host.now_ms += DAY_MS + BATCHES // 2
    for _ in range(2000):
        host.tick(0)
        assert host.call(OTHER, ApiVersionsRequest(), 0).error_code == 0
        if not host.broker.logs.log_dir.builds and host.broker.next_deadline_ms() != 0:
            break
    for log in logs:
        log.segments[0].indexes.load_times()
        assert log.log_start_offset > 0
        assert log.segments[0].indexes.max_timestamp >= NOW_MS + BATCHES // 2
    assert len(slices) > 10


@pytest.mark.parametrize(("max_wait_ms", "min_bytes"), [(0, 1), (500, 1 << 30)])
def test_an_index_build_for_a_closed_connection_gives_no_response(
    as_kafka_left_it: Path, tmp_path: Path, slices: list[int], max_wait_ms: int, min_bytes: int
) -> None:
    """A fetch that waited for an index could also go on to wait for data."""
    host = opened(as_kafka_left_it, tmp_path)
    request = fetch({"t": {0: 0}}, isolation=1, max_wait_ms=max_wait_ms, min_bytes=min_bytes)
    host.ask(READER, request, 11)
    assert host.broker.logs.log_dir.builds
    host.broker.on_closed(READER)
    repeat_until(lambda: host.broker.next_deadline_ms() != 0, lambda: host.tick(0))
    assert not host.broker.logs.log_dir.builds and host.answers[READER] == []


def test_a_fetch_that_waited_for_an_index_then_waits_for_data(
    as_kafka_left_it: Path, tmp_path: Path, slices: list[int]
) -> None:
    host = opened(as_kafka_left_it, tmp_path)
    end = host.broker.topics.logs_of("t")[0].log_end_offset
    request = fetch({"t": {0: end - 1}}, isolation=1, max_wait_ms=500, min_bytes=10_000)
    host.broker.topics.logs_of("t")[0].segments.active.close_for_appends()
    host.ask(READER, request, 11)
    repeat_until(lambda: not host.broker.logs.log_dir.builds, lambda: host.tick(0))
    assert host.answers[READER] == []
    host.tick(500)
    assert code_of(host.answers[READER][0]) == 0


def test_a_topic_deleted_during_its_index_build_gets_no_index(
    as_kafka_left_it: Path, tmp_path: Path, slices: list[int]
) -> None:
    host = opened(as_kafka_left_it, tmp_path)
    host.ask(READER, by_time(NOW_MS + 390, -1), 7)
    host.tick(0)
    directory = Path(host.broker.topics.logs_of("t")[0].directory)
    delete_topic(host.parts.deletion, "t", host.now_ms)
    finish(host)
    codes = [row.error_code for row in host.answers[READER][0].topics[0].partitions]
    assert codes == [Code.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert not directory.exists()


def test_a_damaged_segment_is_an_error_when_its_index_build_ends(
    as_kafka_left_it: Path, tmp_path: Path, slices: list[int]
) -> None:
    host = opened(as_kafka_left_it, tmp_path)
    log = host.broker.topics.logs_of("t")[0]
    file = log.segments[1].batches.path(".log")
    with open(file, "r+b") as opened_file:
        opened_file.seek(SEGMENT_BYTES // 2)
        opened_file.write(bytes(1000))
    Path(log.segments[1].batches.path(".index")).unlink()
    host.ask(READER, fetch({"t": {0: log.segments[1].base_offset}}), 11)
    finish(host)
    assert code_of(host.answers[READER][0]) == Code.KAFKA_STORAGE_ERROR
    whole = host.call(READER, fetch({"t": {0: log.segments[2].base_offset}}), 11)
    assert code_of(whole) == 0


@pytest.mark.parametrize("what", ["by time, in the first", "committed records"])
def test_a_build_without_a_descriptor_is_an_error_of_its_reader_alone(
    as_kafka_left_it: Path, tmp_path: Path, slices: list[int], what: str
) -> None:
    """The next reader gets the response that it would have got without the failure."""
    ask, version = ASKED[what]
    expected = opened(as_kafka_left_it, tmp_path / "at-once")
    expected.ask(READER, ask(), version)
    finish(expected)
    host = opened(as_kafka_left_it, tmp_path / "later")
    host.ask(READER, ask(), version)

    def refuse(batches: batch_file.BatchFile) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_file.BatchFile, "file", property(refuse))
        finish(host)
    rows = host.answers[READER].pop()
    rows = rows.responses if hasattr(rows, "responses") else rows.topics
    assert {row.error_code for row in rows[0].partitions} == {Code.KAFKA_STORAGE_ERROR}
    host.ask(READER, ask(), version)
    finish(host)
    assert host.answers[READER] == expected.answers[READER]


def test_two_requests_for_the_same_index_wait_for_one_build(
    as_kafka_left_it: Path, tmp_path: Path, slices: list[int]
) -> None:
    host = opened(as_kafka_left_it, tmp_path)
    host.ask(READER, by_time(NOW_MS + 390, NOW_MS + 390), 7)
    host.ask(OTHER, by_time(NOW_MS + 390, NOW_MS + 390), 7)
    assert len(host.broker.logs.log_dir.builds or ()) == 1
    repeat_until(lambda: host.answers[READER] and host.answers[OTHER], lambda: host.tick(0))
    assert host.answers[READER] == host.answers[OTHER]
    assert error_of(host.call(OTHER, produce("t"), 9)) == 0


def test_builds_run_one_after_the_other_and_call_each_callback_once() -> None:
    notified: list[tuple[str, int]] = []
    builds = IndexBuilds()
    segments: list[Any] = ["a", "b"]
    for name in segments:
        builds.add(
            BuildDeferred(name, lambda: iter([None, None])),
            lambda now_ms, name=name: notified.append((name, now_ms)),
        )
    assert len(builds) == 2
    for now_ms in range(6):
        builds.on_tick(now_ms)
    assert notified == [("a", 2), ("b", 5)] and not builds
    builds.on_tick(9)
    assert batch_file.SLICE_COST <= 5000
