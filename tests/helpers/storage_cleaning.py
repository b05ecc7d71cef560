"""Compaction of a log without a broker. One call takes all steps of `broker.compaction`; other
functions return the contents of the log.
"""

from __future__ import annotations

from barnabas.protocol.records import BatchHeader, records_of
from barnabas.storage.cleaning.clean_job import CleanJob, CleanResult
from barnabas.storage.cleaning.clean_plan import Dirt, assess, plan
from barnabas.storage.cleaning.cleaner import clean
from barnabas.storage.cleaning.segment_swap import swap_in
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.disk import Disk
from barnabas.storage.log.log import Log
from barnabas.storage.log_config import LogConfig
from helpers.storage_logs import NOW_MS, batch

COMPACTED = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=100,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=0,
    retention_ms=-1,
)


def put(log: Log, key: bytes, value: bytes | None, now_ms: int = NOW_MS, **sent: object) -> int:
    return log.append(batch([value], keys=[key], **sent), now_ms=now_ms).first_offset  # type: ignore[arg-type]


def put_many(
    log: Log, now_ms: int = NOW_MS, *, sent: dict[str, object] | None = None, **values: bytes | None
) -> int:
    """Append a batch with a record for each key, and return its first offset."""
    data = batch(list(values.values()), keys=[key.encode() for key in values], **(sent or {}))  # type: ignore[arg-type]
    return log.append(data, now_ms=now_ms).first_offset


def job_of(
    log: Log, cleaned_to: int | None = None, now_ms: int = NOW_MS, map_bytes: int = 1 << 20
) -> CleanJob | None:
    """The cleaner's job for the log, or None if there is nothing to clean."""
    dirt: Dirt | None = assess(log, cleaned_to, now_ms)
    return None if dirt is None else plan(log, dirt, job_id=1, map_bytes=map_bytes, wall_ms=now_ms)


def compact(
    manager: LogManager,
    log: Log,
    cleaned_to: int | None = None,
    now_ms: int = NOW_MS,
    *,
    map_bytes: int = 1 << 20,
    disk: Disk | None = None,
) -> int | None:
    """Compact a log once, and return the end offset of the clean part."""
    log.flush()
    job = job_of(log, cleaned_to, now_ms, map_bytes)
    if job is None:
        return cleaned_to
    result: CleanResult = clean(disk or manager.disk, job)
    if manager.lacks_recovery_point(log, job.end_offset):
        manager.write_checkpoints()
    return result.next_dirty_offset if swap_in(log, result.segments, now_ms) else cleaned_to


def batches_of(log: Log) -> list[tuple[BatchHeader, bytes]]:
    return list(log.read_batches())


def entries(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    """The offset, key and value of each data record in the files, including aborted records."""
    return [
        (record.offset, record.key, record.value)
        for header, data in log.read_batches()
        if not header.is_control
        for record in records_of(data)
    ]


def markers(log: Log) -> list[int]:
    """The offsets of the markers in the log."""
    return [
        header.base_offset
        for header, _ in log.read_batches()
        if header.is_control and header.record_count
    ]


def empty_batches(log: Log) -> list[int]:
    """The last offset of each batch that has no records."""
    return [header.last_offset for header, _ in log.read_batches() if not header.record_count]
