"""Batches whose checksum is correct but whose records are unreadable. Earlier versions of the
broker accepted them from clients.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from helpers.storage_cleaning import COMPACTED, batches_of, job_of
from helpers.storage_logs import (
    NOW_MS,
    SECOND_MS,
    TOPIC_ID,
    append_unchecked,
    batch,
    broken,
    new_log,
    open_manager,
)

from barnabas.storage.cleaning.cleaner import clean
from barnabas.storage.cleaning.segment_swap import swap_in
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.log.log import Log
from barnabas.storage.log.time_lookup import offset_for_timestamp, offset_of_max_timestamp

UNREADABLE = [
    pytest.param(broken([b"x"], body=bytes.fromhex("0c000000780200")), id="no record"),
    pytest.param(broken([b"x"], codec=4, body=b"nonsense"), id="no zstd"),
    pytest.param(
        broken([b"x"], body=bytes.fromhex("14000080897a026b02780000")[:11]),
        id="an offset of another batch",
    ),
]


def log_with(tmp_path: Path, unreadable: bytearray) -> tuple[LogManager, Log]:
    """A log that an earlier version wrote. It has a record with key k, the unreadable batch,
    another record with key k, and a record with another key.
    """
    manager = open_manager(tmp_path, COMPACTED)
    log = manager.create("t", 0, TOPIC_ID, COMPACTED, NOW_MS)
    log.append(batch([b"old"], keys=[b"k"], timestamp=SECOND_MS - 10), now_ms=NOW_MS)
    append_unchecked(log, unreadable)
    log.append(batch([b"new"], keys=[b"k"], timestamp=SECOND_MS), now_ms=NOW_MS)
    log.append(batch([b"last"], keys=[b"other"], timestamp=SECOND_MS - 5), now_ms=NOW_MS)
    return manager, log


def test_compaction_does_not_decompress_more_than_a_batch_may_become(tmp_path: Path) -> None:
    small = replace(COMPACTED, max_decompressed_bytes=1 << 20)
    manager = open_manager(tmp_path, small)
    log = manager.create("t", 0, TOPIC_ID, small, NOW_MS)
    append_unchecked(log, batch([bytes(2 << 20)], keys=[b"k"], codec=4))
    log.append(batch([b"new"], keys=[b"k"], timestamp=SECOND_MS), now_ms=NOW_MS)
    log.append(batch([b"last"], keys=[b"other"], timestamp=SECOND_MS), now_ms=NOW_MS)
    log.flush()
    job = job_of(log)
    assert job is not None
    assert clean(manager.disk, job).unreadable == (0,)


@pytest.mark.parametrize("unreadable", UNREADABLE)
def test_compaction_keeps_what_it_cannot_read_and_says_so(
    tmp_path: Path, unreadable: bytearray
) -> None:
    manager, log = log_with(tmp_path, unreadable)
    log.flush()
    job = job_of(log)
    assert job is not None
    result = clean(manager.disk, job)
    assert result.unreadable == (1,)
    assert swap_in(log, result.segments, NOW_MS)
    left = {header.base_offset: data for header, data in batches_of(log)}
    assert sorted(left) == [1, 2, 3]
    assert left[1][16:] == bytes(unreadable[16:])


@pytest.mark.parametrize("unreadable", UNREADABLE[1:])
def test_a_time_is_looked_for_behind_it(tmp_path: Path, unreadable: bytearray) -> None:
    _, log = log_with(tmp_path, unreadable)
    assert offset_for_timestamp(log, SECOND_MS) == (SECOND_MS, 2, 0)


@pytest.mark.parametrize("codec", [0, 4])
def test_a_time_is_found_at_either_end_of_a_large_batch(tmp_path: Path, codec: int) -> None:
    _, log = new_log(tmp_path)
    times = [SECOND_MS + number // 3 * 50 for number in range(5000)]
    log.append(
        batch(
            [b"v" * (number % 100) for number in range(5000)],
            keys=[b"k"] * 5000,
            times=times,
            codec=codec,
        ),
        now_ms=NOW_MS,
    )
    for number in (0, 3, 300, 4998):
        assert offset_for_timestamp(log, times[number] - 49) == (times[number], number, 0)
    assert offset_of_max_timestamp(log) == (times[-1], 4998, 0)
    log.delete_records_before(302)
    assert offset_for_timestamp(log, 0) == (times[302], 302, 0)
    assert offset_for_timestamp(log, times[-1] + 1) is None
