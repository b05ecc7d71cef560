"""One file of a log directory is truncated, changed or missing: the log loads with everything that
the other files contain, or an error names the place and the fault.

Each kind of damage is sampled over every file and byte of a small directory, after a clean stop and
after a kill. It has several segments, open and aborted transactions, and a log start within a
segment.
"""

from __future__ import annotations

import logging
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
from helpers.examples import drawn
from helpers.storage_logs import (
    NOW_MS,
    TOPIC_ID,
    batch,
    committed_values,
    fetched,
    kill,
    new_log,
    open_manager,
    values_of,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.records import batches_in
from barnabas.storage.disk import OsDisk
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.log.broker_appends import append_marker
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_directory import LogDirectoryError
from barnabas.storage.log.time_lookup import offset_for_timestamp, offset_of_max_timestamp
from barnabas.storage.log_config import LogConfig

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=100, retention_ms=-1)
WAYS = ("clean", "killed", "killed after a checkpoint")
LAST = {5: [(12, 3), (9, 3), (6, 3), (3, 3), (0, 3)], 6: [(4, 2), (2, 2), (0, 2)]}


def write_history(path: str, way: str) -> Log:
    """Write a log of about four segments. Producer 5 is idempotent, 6 aborts transactions, and 7
    has one open at the end.
    """
    manager, log = new_log(path, segment_bytes=700, index_interval_bytes=100, retention_ms=-1)
    for turn in range(5):
        log.append(batch([b"i%d" % turn] * 3, pid=5, epoch=0, seq=3 * turn), now_ms=NOW_MS)
        log.append(batch([b"plain%d" % turn], timestamp=NOW_MS + turn), now_ms=NOW_MS)
        if turn < 3:
            log.append(
                batch([b"t%d" % turn] * 2, pid=6, epoch=0, seq=2 * turn, transactional=True),
                now_ms=NOW_MS,
            )
            log.append(batch([b"x" * 40]), now_ms=NOW_MS)
            append_marker(
                log,
                producer_id=6,
                producer_epoch=0,
                coordinator_epoch=0,
                commit=turn == 1,
                now_ms=NOW_MS,
            )
        if turn == 3:
            log.delete_records_before(2)
            log.append(batch([b"open"], pid=7, epoch=0, seq=0, transactional=True), now_ms=NOW_MS)
            manager.on_tick(NOW_MS)
            if way == "killed after a checkpoint":
                log.flush()
                log.checkpoint()
                manager.write_checkpoints()
    if way == "clean":
        manager.close(NOW_MS)
    else:
        kill(manager)
    return log


@cache
def original(
    way: str,
) -> tuple[str, dict[int, bytes | None], dict[int, bytes | None], tuple[int, int, int]]:
    """A directory with the history of `write_history`, the records read from it, and its
    offsets.
    """
    path = mkdtemp()
    log = write_history(path, way)
    reader = open_manager(shutil.copytree(path, mkdtemp() + "/data"), CONFIG).logs["t", 0]
    offsets = (reader.log_start_offset, reader.last_stable_offset, reader.log_end_offset)
    assert offsets == (log.log_start_offset, log.last_stable_offset, log.log_end_offset)
    return path, values_of(reader), committed_values(reader), offsets


def files_of(path: str) -> list[str]:
    names = [str(file.relative_to(path)) for file in Path(path).rglob("*") if file.is_file()]
    return sorted(name for name in names if name != ".lock")


def damage(file: Path, kind: str, where: float, value: int) -> int:
    """Damage a file, and return the position of the first damaged byte."""
    data = bytearray(file.read_bytes())
    at = min(int(len(data) * where), max(len(data) - 1, 0))
    if kind == "delete":
        file.unlink()
        return 0
    if kind == "truncate":
        del data[at:]
    elif data:
        data[at] ^= value
    file.write_bytes(data)
    return at


@settings(max_examples=drawn(200), suppress_health_check=[HealthCheck.too_slow])
@given(
    way=st.sampled_from(WAYS),
    pick=st.floats(0, 0.999),
    kind=st.sampled_from(["truncate", "flip", "delete"]),
    where=st.floats(0, 1),
    value=st.integers(1, 255),
)
def test_a_log_loads_or_is_refused_with_any_damage_of_one_file(
    way: str, pick: float, kind: str, where: float, value: int
) -> None:
    path, values, committed, offsets = original(way)
    names = files_of(path)
    name = names[int(len(names) * pick)]
    copy = mkdtemp()
    logging.disable(logging.CRITICAL)
    try:
        shutil.copytree(path, copy, dirs_exist_ok=True)
        at = damage(Path(copy, name), kind, where, value)
        if name.endswith(".log"):
            check_what_a_log_file_still_holds(copy, path, name, kind, at)
        else:
            check_that_nothing_is_missing(copy, name, values, committed, offsets)
    finally:
        logging.disable(logging.NOTSET)
        shutil.rmtree(copy)


def check_that_nothing_is_missing(
    copy: str,
    name: str,
    values: dict[int, bytes | None],
    committed: dict[int, bytes | None],
    offsets: tuple[int, int, int],
) -> None:
    """Check that offsets, records, producers and lookups are those of the undamaged log, unless the
    error names meta.properties.
    """
    try:
        manager = open_manager(copy, CONFIG)
    except LogDirectoryError as error:
        if name == "meta.properties" and name in str(error):
            return
        raise
    log = manager.logs["t", 0]
    assert (log.log_start_offset, log.last_stable_offset, log.log_end_offset) == offsets
    assert committed_values(log) == committed
    assert values_of(log) == values
    found = offset_for_timestamp(log, NOW_MS + 3)
    assert (
        found is not None
        and log.read(found.offset, max_bytes=1, min_one_batch=True).slice is not None
    )
    highest = offset_of_max_timestamp(log)
    assert highest is not None and (highest.timestamp, values[highest.offset]) == (
        NOW_MS + 4,
        b"plain4",
    )
    assert log.producer_state.has_ongoing_transaction(7, 0)
    if name != "t-0/partition.metadata":
        assert log.topic_id == TOPIC_ID
    for pid, sent in LAST.items():
        for sequence, count in sent:
            value = b"%c%d" % (b"i"[0] if pid == 5 else b"t"[0], sequence // count)
            again = batch([value] * count, pid=pid, epoch=0, seq=sequence, transactional=pid == 6)
            if pid == 5:
                assert log.append(again, now_ms=NOW_MS).duplicate
                continue
            with pytest.raises(KafkaError) as refused:  # its transaction has ended
                log.append(again, now_ms=NOW_MS)
            assert refused.value.code == Code.UNKNOWN_PRODUCER_ID
    assert log.end_offset_for_epoch(0) == (0, offsets[2])


def check_what_a_log_file_still_holds(copy: str, path: str, name: str, kind: str, at: int) -> None:
    """Check that every undamaged batch is read or is set aside with a log message, or that an error
    names the file.
    """
    intact = []
    for original_file in sorted(Path(path, "t-0").glob("*.log")):
        data = original_file.read_bytes()
        for position, header in batches_in(data):
            damaged = original_file.name == Path(name).name and (
                position + header.size_bytes > at
                if kind != "flip"
                else position <= at < position + header.size_bytes
            )
            if not damaged:
                intact.append(
                    (
                        header.base_offset,
                        header.last_offset,
                        data[position : position + header.size_bytes],
                    )
                )
    manager = open_manager(copy, CONFIG)
    if ("t", 0) in manager.offline:
        error = manager.offline["t", 0]
        assert isinstance(error, CorruptLog)
        assert Path(name).name in str(error) or Path(error.path).parent.name == "t-0"
        assert "truncate" in str(error) or "Restore" in str(error)
        return
    log = manager.logs["t", 0]
    aside = b"".join(file.read_bytes() for file in sorted(Path(copy, "t-0").glob("*.set-aside*")))
    for base_offset, last_offset, content in intact:
        if content in aside:
            continue
        if last_offset < log.log_start_offset:
            continue
        assert read_or_refused(log, max(base_offset, log.log_start_offset)) in (content, None)
    log.append(batch([b"goes on"]), now_ms=NOW_MS)


def read_or_refused(log: Log, offset: int) -> bytes | None:
    """The batch at an offset, or None if an error names the file."""
    try:
        return fetched(log.read(offset, max_bytes=1, min_one_batch=True))
    except KafkaError as error:
        if error.code == Code.KAFKA_STORAGE_ERROR and ".log" in str(error):
            return None
        raise


@pytest.mark.parametrize("way", WAYS)
def test_an_undamaged_log_loads_completely(way: str, tmp_path: Path) -> None:
    path, values, committed, offsets = original(way)
    shutil.copytree(path, tmp_path, dirs_exist_ok=True)
    check_that_nothing_is_missing(str(tmp_path), "", values, committed, offsets)
    assert len([name for name in OsDisk().list(f"{path}/t-0") if name.endswith(".log")]) >= 3
    assert any(name.endswith(".txnindex") for name in OsDisk().list(f"{path}/t-0"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".snapshot", ""])
def test_a_log_loads_completely_without_all_files_of_a_kind(
    way: str, suffix: str, tmp_path: Path
) -> None:
    path, values, committed, offsets = original(way)
    shutil.copytree(path, tmp_path, dirs_exist_ok=True)
    for file in Path(tmp_path, "t-0").iterdir():
        if file.name.endswith(suffix) and not file.name.endswith(".log"):
            file.unlink()
    check_that_nothing_is_missing(
        str(tmp_path), "t-0/partition.metadata" if not suffix else "", values, committed, offsets
    )
