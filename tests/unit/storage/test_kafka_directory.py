"""A log directory that Apache Kafka 3.9 wrote. Its files can be read, and files that are written
again are identical.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from helpers.places import TESTS
from helpers.storage_logs import NOW_MS, fetched, open_manager

from barnabas.protocol.records import batches_in, records_of
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.files.checkpoints import (
    decode_epochs,
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
    encode_offsets,
)
from barnabas.storage.files.offset_index import OffsetIndex
from barnabas.storage.files.time_index import TimeIndex
from barnabas.storage.files.txn_index import TxnIndex
from barnabas.storage.log.broker_appends import append_marker
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_reader import Isolation
from barnabas.storage.log_config import LogConfig
from barnabas.storage.producers.producer_state import ProducerStateManager

FIXTURE = TESTS / "fixtures" / "kafka-logdir"
KAFKA = FIXTURE / "logdir"
EXPECTED = json.loads((FIXTURE / "expected.json").read_text())
DUMPS = (FIXTURE / "dumps" / "snapshots-and-txnindexes.txt").read_text()
PARTITIONS = sorted(directory.name for directory in KAFKA.iterdir() if directory.is_dir())


@pytest.fixture
def manager(tmp_path: Path) -> LogManager:
    shutil.copytree(KAFKA, tmp_path, dirs_exist_ok=True)
    return open_manager(tmp_path, LogConfig(segment_bytes=2048))


def consumed(log: Log, isolation: Isolation) -> list[list[object]]:
    """The offset, timestamp, key, value and headers of each record, in the form of
    expected.json.
    """
    found: list[list[object]] = []
    at = log.log_start_offset
    end = log.last_stable_offset if isolation else log.high_watermark
    while at < end:
        data = log.read(at, max_bytes=300, isolation=isolation, min_one_batch=True)
        waiting = list(data.aborted or [])
        aborting: set[int] = set()
        raw = fetched(data)
        assert raw
        for position, header in batches_in(raw):
            aborting |= {
                aborted.producer_id
                for aborted in waiting
                if aborted.first_offset <= header.last_offset
            }
            waiting = [aborted for aborted in waiting if aborted.first_offset > header.last_offset]
            at = header.next_offset
            if header.is_control:
                aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                for record in records_of(raw[position : position + header.size_bytes]):
                    found.append(
                        [
                            record.offset,
                            record.timestamp,
                            None if record.key is None else record.key.decode(),
                            None if record.value is None else record.value.decode(),
                            [
                                [name, None if value is None else value.decode()]
                                for name, value in record.headers
                            ],
                        ]
                    )
    return found


@pytest.mark.parametrize(
    ("topic", "section", "isolation"),
    [
        ("plain", "plain", Isolation.READ_UNCOMMITTED),
        ("compacted", "compacted", Isolation.READ_UNCOMMITTED),
        ("txn", "txn read_uncommitted", Isolation.READ_UNCOMMITTED),
        ("txn", "txn read_committed", Isolation.READ_COMMITTED),
    ],
)
def test_consumers_read_what_they_read_from_kafka(
    manager: LogManager, topic: str, section: str, isolation: Isolation
) -> None:
    for partition, expected in EXPECTED[section].items():
        log = manager.logs[topic, int(partition)]
        assert consumed(log, isolation) == expected["records"]
        assert (log.last_stable_offset if isolation else log.high_watermark) == expected["end"]


def test_no_partition_is_missing_or_off_line(manager: LogManager) -> None:
    assert sorted(f"{topic}-{partition}" for topic, partition in manager.logs) == PARTITIONS
    assert manager.offline == {}
    assert manager.cluster_id == "S77YdvnpTm-HVUzxuSPgvQ"


def _optional(offset: int) -> str:
    """The text that Java prints for an OptionalLong with this offset."""
    return "OptionalLong.empty" if offset < 0 else f"OptionalLong[{offset}]"


@pytest.mark.parametrize(
    "snapshot",
    sorted(KAFKA.rglob("*.snapshot")),
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_snapshots_are_read_as_kafkas_tool_prints_them_and_written_as_they_were(
    snapshot: Path,
) -> None:
    state = ProducerStateManager.decode_snapshot(snapshot.read_bytes(), int(snapshot.stem), NOW_MS)
    lines = [
        f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} coordinatorEpoch: "
        f"{entry.coordinator_epoch} "
        "currentTxnFirstOffset: "
        f"{_optional(entry.txn_first_offset)} "
        f"lastTimestamp: {entry.last_timestamp} firstSequence: {entry.batches[-1].first_sequence} "
        f"lastSequence: {entry.last_sequence} lastOffset: {entry.last_offset} "
        f"offsetDelta: {entry.batches[-1].last_offset - entry.batches[-1].first_offset} timestamp: "
        f"{entry.batches[-1].timestamp}"
        for entry in state.producers.values()
    ]
    dumped = dump_of(snapshot)
    if dumped is not None:
        assert lines == dumped
    assert state.encode_snapshot() == snapshot.read_bytes()


def dump_of(path: Path) -> list[str] | None:
    match = re.search(
        rf"^Dumping data/{path.parent.name}/{path.name}\n((?:(?!Dumping).*\n?)*)",
        DUMPS,
        re.MULTILINE,
    )
    return match[1].splitlines() if match else None


@pytest.mark.parametrize(
    "index", sorted(KAFKA.rglob("*.txnindex")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_aborted_indexes_are_read_as_kafkas_tool_prints_them(index: Path) -> None:
    found = TxnIndex.decode(index.read_bytes())
    lines = [
        f"version: 0 producerId: {entry.producer_id} firstOffset: {entry.first_offset} lastOffset: "
        f"{entry.last_offset} "
        f"lastStableOffset: {entry.last_stable_offset}"
        for entry in found.entries
    ]
    dumped = dump_of(index)
    if dumped is not None:
        assert lines == dumped
    assert found.encode() == index.read_bytes()


def test_some_dumps_were_compared() -> None:
    assert sum(dump_of(path) is not None for path in KAFKA.rglob("*.snapshot")) >= 5
    assert sum(dump_of(path) is not None for path in KAFKA.rglob("*.txnindex")) >= 2


def test_all_indexes_rebuilt_are_kafkas_to_the_byte(tmp_path: Path) -> None:
    shutil.copytree(KAFKA, tmp_path, dirs_exist_ok=True)
    suffixes = (".index", ".timeindex", ".txnindex")
    for path in tmp_path.rglob("*-*/*"):
        if path.suffix in suffixes:
            path.unlink()
    manager = open_manager(tmp_path, LogConfig(segment_bytes=2048))
    for log in manager.logs.values():
        for segment in log.segments:
            segment.indexes.offset_index()
            log.reader.txn_index(segment)
    manager.close(NOW_MS)
    compared = 0
    for original in KAFKA.rglob("*-*/*"):
        if original.suffix in suffixes:
            assert (tmp_path / original.relative_to(KAFKA)).read_bytes() == original.read_bytes(), (
                original
            )
            compared += 1
    assert compared > 30


def test_snapshots_rebuilt_hold_what_kafkas_hold(tmp_path: Path) -> None:
    shutil.copytree(KAFKA, tmp_path, dirs_exist_ok=True)
    for path in tmp_path.rglob("*.snapshot"):
        path.unlink()
    manager = open_manager(tmp_path, LogConfig(segment_bytes=2048))
    manager.close(NOW_MS)
    compared = 0
    for (topic, partition), log in manager.logs.items():
        name = f"{topic}-{partition}/{log.log_end_offset:020d}.snapshot"
        if (KAFKA / name).exists():
            ours, kafkas = [
                ProducerStateManager.decode_snapshot(
                    (root / name).read_bytes(), log.log_end_offset, 0
                )
                for root in (tmp_path, KAFKA)
            ]
            rows = [
                {
                    pid: (
                        e.producer_epoch,
                        e.batches,
                        e.coordinator_epoch,
                        e.txn_first_offset,
                        e.last_timestamp,
                    )
                    for pid, e in state.producers.items()
                }
                for state in (ours, kafkas)
            ]
            assert rows[0] == rows[1]
            compared += 1
    assert compared >= 7


def test_the_open_transaction_of_delta_is_still_open(manager: LogManager) -> None:
    log = manager.logs["txn", 0]
    assert (log.last_stable_offset, log.log_end_offset) == (48, 49)
    assert log.producer_state.has_ongoing_transaction(8, 0)
    append_marker(
        log, producer_id=8, producer_epoch=0, coordinator_epoch=0, commit=False, now_ms=NOW_MS
    )
    assert log.last_stable_offset == 50
    data = log.read(48, max_bytes=1 << 20, isolation=Isolation.READ_COMMITTED, min_one_batch=True)
    assert data.aborted == [(8, 48)]


def test_text_files_are_read_and_written_as_they_were() -> None:
    for name in (
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
    ):
        data = (KAFKA / name).read_bytes()
        assert encode_offsets(decode_offsets(data)) == data
    assert decode_offsets((KAFKA / "recovery-point-offset-checkpoint").read_bytes())["txn", 0] == 49
    assert decode_epochs((KAFKA / "txn-0" / "leader-epoch-checkpoint").read_bytes()) == [(0, 0)]
    assert decode_properties((KAFKA / "meta.properties").read_bytes())["node.id"] == "1"
    assert (
        decode_partition_metadata((KAFKA / "txn-0" / "partition.metadata").read_bytes()).version
        is not None
    )


def test_a_stop_leaves_kafkas_files_as_they_were(tmp_path: Path) -> None:
    """Files that need no change keep exactly the bytes that Kafka wrote."""
    shutil.copytree(KAFKA, tmp_path, dirs_exist_ok=True)
    open_manager(tmp_path, LogConfig(segment_bytes=2048)).close(NOW_MS)
    for original in KAFKA.rglob("*-*/*"):
        assert (tmp_path / original.relative_to(KAFKA)).read_bytes() == original.read_bytes(), (
            original
        )
    again = (tmp_path / "recovery-point-offset-checkpoint").read_bytes()
    assert decode_offsets(again) == decode_offsets(
        (KAFKA / "recovery-point-offset-checkpoint").read_bytes()
    )


def test_an_index_that_kafka_preallocated_ends_where_its_zeros_begin() -> None:
    assert len(OffsetIndex.decode(bytes.fromhex("0000001f00001077") + bytes(800), 8053)) == 1
    times = (KAFKA / "__transaction_state-0" / "00000000000000000000.timeindex").read_bytes()
    assert len(TimeIndex.decode(times + bytes(1200))) == 2
