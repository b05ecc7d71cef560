"""Logs on a disk that loses power: all flushed records survive, and the log opens and accepts
appends.
"""

from __future__ import annotations

import contextlib
import logging
import random

import pytest
from helpers.examples import drawn
from helpers.storage_logs import NOW_MS, TOPIC_ID, batch, committed_values, values_of
from hypothesis import given, settings
from hypothesis import strategies as st
from sim.disk import Crash, SimDisk

from barnabas.protocol.errors import Code, KafkaError
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.log.broker_appends import append_marker
from barnabas.storage.log.log import Log
from barnabas.storage.log_config import LogConfig, LogManagerConfig

CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=200, retention_ms=-1)


def open_on(disk: SimDisk, config: LogConfig = CONFIG) -> LogManager:
    """A LogManager with everything that the disk has."""
    manager = LogManager(disk, "/data", config=LogManagerConfig(), now_ms=NOW_MS)
    manager.load(lambda topic: config, NOW_MS)
    return manager


@settings(max_examples=drawn(60))
@given(st.integers(0, 2**32), st.booleans())
def test_what_was_flushed_survives(seed: int, power: bool) -> None:
    rng = random.Random(seed)
    disk = SimDisk(rng, lambda: NOW_MS)
    logging.disable(logging.CRITICAL)
    try:
        live(rng, disk, power)
    finally:
        logging.disable(logging.NOTSET)


def live(rng: random.Random, disk: SimDisk, power: bool) -> None:
    """Run a log several times, with crashes. The model has the records that were durable at the
    latest flush.
    """
    manager = open_on(disk)
    log = manager.create("t", 0, TOPIC_ID, CONFIG, NOW_MS)
    sequence, now_ms = 0, NOW_MS
    durable: dict[int, bytes | None] = {}
    for _ in range(4):
        if rng.random() < 0.5:
            disk.crash_in(rng.randrange(60))
        try:
            for _ in range(rng.randrange(40)):
                size = rng.choice((1, 30, 700))
                log.append(
                    batch([rng.randbytes(size)], pid=1, epoch=0, seq=sequence, transactional=True),
                    now_ms=now_ms,
                )
                sequence += 1
                if rng.random() < 0.3:
                    append_marker(
                        log,
                        producer_id=1,
                        producer_epoch=0,
                        coordinator_epoch=0,
                        commit=rng.random() < 0.5,
                        now_ms=now_ms,
                    )
                if rng.random() < 0.3:
                    flush(rng, manager, log)
                    durable = values_of(log)
                if rng.random() < 0.2:
                    now_ms += 60_000
                    manager.on_tick(now_ms)
            if rng.random() < 0.3:
                manager.close(now_ms)
                durable = values_of(log)
        except Crash:
            pass
        if power:
            disk.lose_power()
        else:
            disk.kill()
        manager = open_on(disk)
        assert manager.offline == {}
        opened = manager.logs.get(("t", 0))
        if opened is None:  # no write, or not even the directory, reached the disk
            assert not durable
            opened = manager.create(
                "t", 0, TOPIC_ID, CONFIG, NOW_MS, leader_epoch=manager.leader_epoch
            )
        log = opened
        found = values_of(log)
        assert {offset: found.get(offset) for offset in durable} == durable
        committed = committed_values(log)
        assert committed.items() <= found.items()
        durable = found
        entry = log.producer_state.producers.get(1)
        sequence = 0 if entry is None else entry.last_sequence + 1
        if entry is not None and entry.batches:
            last = entry.batches[-1]
            assert last.last_offset in found
            offsets = range(last.first_offset, last.last_offset + 1)
            values = [found[offset] or b"" for offset in offsets]
            again = batch(values, pid=1, epoch=0, seq=last.first_sequence, transactional=True)
            if 0 <= entry.txn_first_offset <= last.first_offset:
                assert log.append(again, now_ms=now_ms).duplicate
            else:
                with pytest.raises(KafkaError) as refused:  # its transaction has ended
                    log.append(again, now_ms=now_ms)
                assert refused.value.code == Code.UNKNOWN_PRODUCER_ID
        log.flush()


def flush(rng: random.Random, manager: LogManager, log: Log) -> None:
    """Flush the log's own files, or append to the journal, which is deleted once the log is
    flushed.
    """
    begun = log.durability.try_begin_journal(1 << 20) if rng.random() < 0.7 else None
    if begun is None:
        log.flush()
        return
    entry, token = begun
    for file in manager.journal.append([entry]):
        file.fsync()
    log.finish_flush(token)
    if rng.random() < 0.2:
        manager.journal.begin_next()
        if rng.random() < 0.7:
            log.flush()
            manager.journal.forget_older()


@settings(max_examples=drawn(40))
@given(st.integers(0, 2**32), st.booleans())
def test_the_start_of_a_log_never_goes_back(seed: int, compacted: bool) -> None:
    """DeleteRecords may raise it above the durable end, and then the power fails, also during the
    start. No offset below the start is given again.
    """
    rng = random.Random(seed)
    disk = SimDisk(rng, lambda: NOW_MS)
    config = LogConfig(
        segment_bytes=1500,
        retention_ms=-1,
        cleanup_policy=frozenset({"compact", "delete"} if compacted else {"delete"}),
    )
    manager = open_on(disk, config)
    log = manager.create("t", 0, TOPIC_ID, config, NOW_MS)
    log.append(batch([b"first"], keys=[b"k"]), now_ms=NOW_MS)
    log.flush()
    raised = 0
    for _ in range(5):
        for _ in range(rng.randrange(8)):
            info = log.append(batch([b"v" * 300], keys=[b"k"]), now_ms=NOW_MS)
            assert info.first_offset >= raised
            if rng.random() < 0.2:
                log.flush()
        if rng.random() < 0.7:
            raised = rng.randint(log.log_start_offset, log.high_watermark)
            manager.raise_starts({log: raised})
        if rng.random() < 0.3:
            manager.write_checkpoints(force=True)
        if rng.random() < 0.3:
            log.delete_old_segments(NOW_MS)
        for _ in range(rng.randrange(3)):  # starts that crash, or lose their power soon after
            (disk.lose_power if rng.random() < 0.7 else disk.kill)()
            disk.crash_in(rng.randrange(30))
            with contextlib.suppress(Crash):
                open_on(disk, config)
            disk.crash_never()
        (disk.lose_power if rng.random() < 0.7 else disk.kill)()
        manager = open_on(disk, config)
        assert manager.offline == {}
        log = manager.logs["t", 0]
        assert raised <= log.log_start_offset <= log.log_end_offset == log.high_watermark
        assert all(offset >= raised for offset in values_of(log))
