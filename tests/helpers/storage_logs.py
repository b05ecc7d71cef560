"""Logs and batches for tests of the storage engine. The logs are real files in a temporary
directory, and the batches may be corrupt.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from crc32c import crc32c

from barnabas.protocol.compression import compress
from barnabas.protocol.records import (
    BASE_OFFSET,
    LEADER_EPOCH,
    LEADER_EPOCH_AT,
    NewRecord,
    batches_in,
    encode_batch,
    encode_record,
    read_header,
    records_of,
)
from barnabas.storage.batch.validate import Checked
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.disk import Disk, OsDisk
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_reader import FetchData, Isolation
from barnabas.storage.log_config import LogConfig, LogManagerConfig
from barnabas.storage.opening.last_run import BOOT_ID_NAME
from barnabas.storage.producers.producer_snapshots import replay_segment
from barnabas.storage.producers.producer_state import ProducerStateManager

NOW_MS = 1_700_000_100_000
SECOND_MS = 1_700_000_000_000
TOPIC_ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


def set_offset_and_epoch(batch: bytearray, base_offset: int, leader_epoch: int) -> None:
    """Patch the two fields that the broker assigns; the CRC does not cover them."""
    BASE_OFFSET.pack_into(batch, 0, base_offset)
    LEADER_EPOCH.pack_into(batch, LEADER_EPOCH_AT, leader_epoch)


def batch(
    values: Sequence[bytes | None] = (b"v",),
    *,
    keys: Sequence[bytes | None] | None = None,
    times: Sequence[int] | None = None,
    pid: int = -1,
    epoch: int = -1,
    seq: int = -1,
    transactional: bool = False,
    timestamp: int = SECOND_MS,
    codec: int = 0,
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> bytearray:
    """A batch as a client sends it."""
    keys = keys if keys is not None else [None] * len(values)
    times = times if times is not None else [timestamp] * len(values)
    records = [
        NewRecord(key, value, time, headers)
        for key, value, time in zip(keys, values, times, strict=True)
    ]
    return encode_batch(
        records,
        codec=codec,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=seq,
        transactional=transactional,
    )


def append_unchecked(log: Log, batch: bytes | bytearray) -> None:
    """Append a batch without validation, as an earlier version of the broker may have done."""
    header = read_header(batch)
    checked = Checked(
        bytearray(batch),
        len(batch),
        header.attributes,
        header.last_offset_delta,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.crc,
    )
    config = log.config
    log.config = replace(config, segment_bytes=max(config.segment_bytes, len(batch)))
    log.append(checked.view, now_ms=NOW_MS, checked=checked)
    log.config = config


def broken(
    values: Sequence[bytes] = (b"v",),
    *,
    crc_xor: int = 0,
    count: int | None = None,
    last_offset_delta: int | None = None,
    magic: int = 2,
    base_offset: int = 0,
    attributes: int = 0,
    pid: int = -1,
    seq: int = -1,
    codec: int = 0,
    body: bytes | None = None,
) -> bytearray:
    """A corrupt batch, for example with a wrong count, checksum, magic, offset or attributes.
    `body` replaces the compressed records.
    """
    records = b"".join(
        encode_record(NewRecord(None, value, SECOND_MS), at, SECOND_MS)
        for at, value in enumerate(values)
    )
    body = compress(codec, records) if body is None else body
    count = len(values) if count is None else count
    tail = struct.pack(
        ">hiqqqhii",
        attributes | codec,
        count - 1 if last_offset_delta is None else last_offset_delta,
        SECOND_MS,
        SECOND_MS,
        pid,
        0 if pid >= 0 else -1,
        seq,
        count,
    )
    tail += body
    return bytearray(
        struct.pack(">qiibI", base_offset, 9 + len(tail), 0, magic, crc32c(tail) ^ crc_xor) + tail
    )


def open_manager(
    path: Path | str,
    config: LogConfig | None = None,
    now_ms: int = NOW_MS,
    *,
    disk: Disk | None = None,
    **settings: object,
) -> LogManager:
    """A log manager with all logs of the directory loaded."""
    manager = LogManager(
        disk or OsDisk(), str(path), config=LogManagerConfig(**settings), now_ms=now_ms
    )  # type: ignore[arg-type]
    manager.load(lambda topic: config or LogConfig(), now_ms)
    return manager


def kill(manager: LogManager, *, machine: bool = True) -> None:
    """Kill the process: it writes nothing more, and its lock is released. With `machine`, the
    machine has failed as well, so that unflushed data may be lost.
    """
    assert manager._lock is not None
    manager._lock.release()
    if machine and isinstance(manager.disk, OsDisk):
        manager.disk.unlink(f"{manager.data_dir}/{BOOT_ID_NAME}")


def new_log(path: Path | str, **config: object) -> tuple[LogManager, Log]:
    """A log manager on a new directory, and its only log, t-0."""
    settings = LogConfig(**config)  # type: ignore[arg-type]
    manager = open_manager(path, settings)
    log = manager.create("t", 0, TOPIC_ID, settings, NOW_MS)
    log.files.make()
    return manager, log


def reopened(
    manager: LogManager, config: LogConfig, *, clean: bool, now_ms: int = NOW_MS
) -> tuple[LogManager, Log]:
    """Reopen the log after a clean stop or a power loss. Return its manager and the log."""
    if clean:
        manager.close(now_ms)
    else:
        kill(manager)
    again = open_manager(manager.data_dir, config, now_ms)
    return again, again.logs["t", 0]


def fetched(data: FetchData) -> bytes:
    """The bytes that a fetch returns."""
    return (
        b"" if data.slice is None else data.slice.file.pread(data.slice.size, data.slice.position)
    )


def offsets_in(data: FetchData) -> list[int]:
    """The offsets of all records, including markers, in the whole batches of a fetch."""
    raw = fetched(data)
    return [
        record.offset
        for at, header in batches_in(raw)
        for record in records_of(raw[at : at + header.size_bytes])
    ]


def values_of(log: Log) -> dict[int, bytes | None]:
    """The offset and the value of each data record. They are fetched in one response after the
    other, as a read_uncommitted consumer does.
    """
    found: dict[int, bytes | None] = {}
    at = log.log_start_offset
    while at < log.log_end_offset:
        raw = fetched(log.read(at, max_bytes=400, min_one_batch=True))
        if not raw:
            break
        for position, header in batches_in(raw):
            at = header.next_offset
            if not header.is_control:
                for record in records_of(raw[position : position + header.size_bytes]):
                    if record.offset >= log.log_start_offset:
                        found[record.offset] = record.value
    return found


def committed_values(log: Log) -> dict[int, bytes | None]:
    """The offset and the value of each record that a read_committed consumer delivers. It skips the
    aborted transactions that each response lists.
    """
    found: dict[int, bytes | None] = {}
    at = log.log_start_offset
    while at < log.last_stable_offset:
        data = log.read(at, max_bytes=400, isolation=Isolation.READ_COMMITTED, min_one_batch=True)
        raw = fetched(data)
        if not raw:
            break
        waiting = sorted(data.aborted or [], key=lambda aborted: aborted.first_offset)
        aborting: set[int] = set()
        for position, header in batches_in(raw):
            while waiting and waiting[0].first_offset <= header.last_offset:
                aborting.add(waiting.pop(0).producer_id)
            at = header.next_offset
            if header.is_control:
                aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                for record in records_of(raw[position : position + header.size_bytes]):
                    if record.offset >= log.log_start_offset:
                        found[record.offset] = record.value
    return found


def delete_log(manager: LogManager, topic: str, partition: int, now_ms: int) -> None:
    """Delete one log. Its files are deleted after file.delete.delay.ms."""
    manager.remove(topic, partition, now_ms)
    manager.end_removals()


def state_at(log: Log, offset: int) -> ProducerStateManager:
    """The producers' state before the batch at `offset`, from a snapshot and the batches after
    it.
    """
    state = log.snapshots.latest(offset, log.segments[0].base_offset, 0)
    for segment in log.segments:
        if log.segments.end_of(segment) > state.end_offset and segment.base_offset < offset:
            replay_segment(state, segment, state.end_offset, offset, 0)
    return state
