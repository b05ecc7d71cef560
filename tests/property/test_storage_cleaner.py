"""Compares compaction with a naive model, over random histories, with a kill or a power loss at any
step.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from helpers.examples import drawn
from helpers.storage_cleaning import COMPACTED, batches_of, compact, entries, markers
from helpers.storage_logs import NOW_MS, SECOND_MS, TOPIC_ID, batch, committed_values, values_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sim.disk import Crash, SimDisk

from barnabas.protocol.records import records_of
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.log.broker_appends import append_marker
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_reader import Isolation
from barnabas.storage.log_config import LogConfig, LogManagerConfig

PRODUCERS, KEYS = (1, 2, 3), (b"a", b"b", b"c", b"d" * 40)
DAY_MS = 86_400_000

producers, keys = st.sampled_from(PRODUCERS), st.sampled_from(KEYS)
values = st.one_of(st.none(), st.binary(max_size=30))
records = st.lists(st.tuples(keys, values), min_size=1, max_size=4)
steps = st.one_of(
    st.tuples(st.just("plain"), records, st.integers(0, 4)),
    st.tuples(st.just("idempotent"), producers, records),
    st.tuples(st.just("transactional"), producers, records, st.integers(0, 4)),
    st.tuples(st.just("transactional"), producers, records, st.integers(0, 4)),
    st.tuples(st.just("end"), producers, st.booleans(), st.booleans()),
    st.tuples(st.just("end"), producers, st.booleans(), st.booleans()),
    st.tuples(st.just("clean"), st.sampled_from([1 << 20, 200 * 3])),
    st.tuples(st.just("stop"), st.booleans()),
    st.tuples(st.just("delete"), st.floats(0, 1)),
    st.tuples(st.just("wait"), st.sampled_from([1, 1000, DAY_MS])),
)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Disable logging, since kills cause warnings."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def open_on(disk: SimDisk, config: LogConfig, now_ms: int) -> LogManager:
    """A log manager on the disk, with all logs loaded."""
    manager = LogManager(disk, "/data", config=LogManagerConfig(), now_ms=now_ms)
    manager.load(lambda topic: config, now_ms)
    assert manager.offline == {}
    return manager


class History:
    """A log, and what a naive reader knows of everything ever written: each record, and which
    transactions were aborted.
    """

    def __init__(self, disk: SimDisk, config: LogConfig) -> None:
        config = replace(
            config, producer_id_expiration_ms=2**60
        )  # never expire them: a restart would restore expired producers
        self.disk, self.config, self.now_ms = disk, config, NOW_MS
        self.manager = open_on(disk, config, NOW_MS)
        self.log = self.manager.create("t", 0, TOPIC_ID, config, NOW_MS)
        self.log.files.make()
        self.written: dict[int, tuple[bytes, bytes | None]] = {}
        self.aborted: set[int] = set()
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.epochs = dict.fromkeys(PRODUCERS, 0)
        self.open: dict[int, list[int]] = {}
        self.cleaned_to: int | None = None

    def append(
        self,
        pairs: list[tuple[bytes, bytes | None]],
        codec: int = 0,
        pid: int = -1,
        transactional: bool = False,
    ) -> None:
        """Append a batch, and record its contents in the history."""
        sent = batch(
            [value for _, value in pairs],
            keys=[key for key, _ in pairs],
            times=[SECOND_MS + at for at in range(len(pairs))],
            codec=codec,
            pid=pid,
            epoch=self.epochs[pid] if pid >= 0 else -1,
            seq=self.sequences[pid] if pid >= 0 else -1,
            transactional=transactional,
        )
        first = self.log.append(sent, now_ms=self.now_ms).first_offset
        offsets = range(first, first + len(pairs))
        self.written.update(zip(offsets, pairs, strict=True))
        if pid >= 0:
            self.sequences[pid] += len(pairs)
        if transactional:
            self.open.setdefault(pid, []).extend(offsets)

    def end(self, pid: int, commit: bool, bump: bool) -> None:
        """Append a marker, with a higher epoch if `bump`, and record whether the transaction's
        records were committed.
        """
        if bump:
            self.epochs[pid] += 1
            self.sequences[pid] = 0
        append_marker(
            self.log,
            producer_id=pid,
            producer_epoch=self.epochs[pid],
            coordinator_epoch=0,
            commit=commit,
            now_ms=self.now_ms,
        )
        ended = self.open.pop(pid, [])
        if not commit:
            self.aborted.update(ended)

    def clean(self, map_bytes: int = 1 << 20) -> None:
        """Compact the log, and check that its offsets and producers remain the same."""
        before = self.state()
        self.cleaned_to = compact(
            self.manager, self.log, self.cleaned_to, self.now_ms, map_bytes=map_bytes
        )
        assert self.state() == before
        self.check()

    def state(self) -> object:
        """The log's offsets and active producers."""
        log = self.log
        return (
            log.log_start_offset,
            log.last_stable_offset,
            log.log_end_offset,
            sorted(log.producer_state.active_producers()),
        )

    def latest(self, end: int) -> dict[int, tuple[bytes, bytes | None]]:
        """The latest committed record of each key below `end`; the result is by offset."""
        found: dict[bytes, int] = {}
        for offset in sorted(self.written):
            if offset < end and offset not in self.aborted:
                found[self.written[offset][0]] = offset
        return {offset: self.written[offset] for offset in found.values()}

    def check(self) -> None:
        """Compare the log with the history: every key has its latest committed value below the
        cleaned offset, and readers get the rest unchanged.
        """
        log = self.log
        cleaned_to = min(self.cleaned_to or 0, log.last_stable_offset)
        start = log.log_start_offset
        files = {offset: (key, value) for offset, key, value in entries(log)}
        assert files.items() <= self.written.items()
        beyond = {
            offset: pair
            for offset, pair in self.written.items()
            if offset >= max(cleaned_to, start)
        }
        removed = beyond.keys() - files.keys()
        assert removed <= self.aborted, (
            "only aborted records go from the dirty part, as far as it was read"
        )
        wanted = {
            offset: pair for offset, pair in self.latest(cleaned_to).items() if offset >= start
        }
        for offset, (_, value) in wanted.items():
            assert offset in files or value is None, f"the record at {offset} is lost"
        kept = {offset for offset in files if start <= offset < cleaned_to}
        assert kept <= wanted.keys(), "more than the latest of a key is left"
        still_open = {offset for offsets in self.open.values() for offset in offsets}
        stable = {
            offset: value
            for offset, (_, value) in files.items()
            if start <= offset < log.last_stable_offset
        }
        assert committed_values(log) == {
            offset: value for offset, value in stable.items() if offset not in self.aborted
        }
        assert values_of(log) == {
            offset: value for offset, (_, value) in files.items() if offset >= start
        }
        assert not still_open - files.keys() - set(range(start))
        self.check_structure()

    def check_structure(self) -> None:
        """Check that no files of the cleaner are left, that batches are in order, and that a reader
        gets to the end.
        """
        log = self.log
        assert log.segments.size_bytes == sum(segment.batches.size for segment in log.segments)
        assert log.segments[-1] is log.segments.active
        assert [
            name for name in self.disk.list(log.directory) if name.endswith((".cleaned", ".swap"))
        ] == []
        last = -1
        for header, data in log.read_batches():
            assert last < header.base_offset <= header.last_offset
            last = header.last_offset
            assert len(records_of(data)) == header.record_count
        for isolation, end in (
            (Isolation.READ_UNCOMMITTED, log.log_end_offset),
            (Isolation.READ_COMMITTED, log.last_stable_offset),
        ):
            if self.cleaned_to is not None and log.log_start_offset < end:
                assert (
                    log.read(end - 1, max_bytes=100, isolation=isolation, min_one_batch=True).slice
                    is not None
                ), "a reader is stuck"

    def stop(self, clean: bool) -> None:
        """Stop or kill the process, load the log again, and check that it has the same state."""
        state, producers = (
            self.state(),
            {p.producer_id: p for p in self.log.producer_state.active_producers()},
        )
        if clean:
            self.manager.close(self.now_ms)
        self.disk.kill()
        self.manager = open_on(self.disk, self.config, self.now_ms)
        self.log = self.manager.logs["t", 0]
        assert self.state() == state, producers
        self.check()


def run(history: History, script: list[tuple[object, ...]]) -> None:
    """Do the steps of a script."""
    for step in script:
        match step:
            case ("plain", pairs, codec):
                history.append(pairs, codec)  # type: ignore[arg-type]
            case ("idempotent", pid, pairs):
                if pid not in history.open:
                    history.append(pairs, pid=pid)  # type: ignore[arg-type]
            case ("transactional", pid, pairs, codec):
                history.append(pairs, codec, pid, True)  # type: ignore[arg-type]
            case ("end", pid, commit, bump):
                history.end(pid, commit, bump)  # type: ignore[arg-type]
            case ("clean", map_bytes):
                history.clean(map_bytes)  # type: ignore[arg-type]
            case ("stop", clean):
                history.stop(clean)  # type: ignore[arg-type]
            case ("delete", share):
                history.log.delete_records_before(int(history.log.high_watermark * share))  # type: ignore[operator]
                history.log.delete_old_segments(history.now_ms)
                history.manager.on_tick(history.now_ms)
            case ("wait", time_ms):
                history.now_ms += time_ms  # type: ignore[operator]


@settings(max_examples=drawn(150))
@given(
    st.lists(steps, max_size=40),
    st.sampled_from([400, 800, 2000]),
    st.sampled_from([0, 200, 4096]),
    st.sampled_from([0, 1000, 2 * DAY_MS]),
)
@example(
    [
        ("transactional", 1, [(b"a", b"1")], 0),
        ("end", 1, False, False),
        ("plain", [(b"a", None)], 0),
        ("clean", 1 << 20),
    ]
    * 5,
    400,
    0,
    0,
)
def test_a_cleaned_log_has_the_latest_committed_value_of_each_key(
    script: list[tuple[object, ...]], segment_bytes: int, interval: int, retention_ms: int
) -> None:
    config = replace(
        COMPACTED,
        segment_bytes=segment_bytes,
        index_interval_bytes=interval,
        delete_retention_ms=retention_ms,
    )
    history = History(SimDisk(random.Random(0), lambda: NOW_MS), config)
    run(history, script)
    for pid in list(history.open):
        history.end(pid, True, False)
    history.append([(b"last", b"x" * 1900)] if segment_bytes == 2000 else [(b"last", b".")])
    history.append([(b"last", b".")])
    history.clean()
    if retention_ms > DAY_MS and not any(step[0] == "wait" for step in script):
        kept = {offset for offset, _, _ in entries(history.log)}
        wanted = {
            offset
            for offset in history.latest(history.cleaned_to or 0)
            if offset >= history.log.log_start_offset
        }
        assert wanted <= kept, "a tombstone went before its time"


@settings(max_examples=drawn(60))
@given(st.lists(steps, max_size=30), st.sampled_from([400, 900]))
def test_cleaning_a_clean_log_changes_nothing(
    script: list[tuple[object, ...]], segment_bytes: int
) -> None:
    history = History(
        SimDisk(random.Random(0), lambda: NOW_MS),
        replace(COMPACTED, segment_bytes=segment_bytes, delete_retention_ms=DAY_MS),
    )
    run(history, script)
    history.append([(b"last", b".")])
    history.append([(b"last", b".")])
    for _ in range(
        3
    ):  # 1: data is removed. 2: markers and tombstones get a horizon. 3: empty segments merge
        compact(history.manager, history.log, None, history.now_ms)
    before = [data for _, data in batches_of(history.log)]
    compact(history.manager, history.log, None, history.now_ms + 1)
    assert [data for _, data in batches_of(history.log)] == before


def untouched_producers(log: Log) -> dict[int, tuple[int, int, int]]:
    """Epoch, last sequence and open transaction of each producer."""
    return {
        p.producer_id: (p.producer_epoch, p.last_sequence, p.current_txn_start_offset)
        for p in log.producer_state.active_producers()
    }


@settings(max_examples=drawn(60))
@given(st.lists(steps, max_size=30), st.sampled_from([400, 900]))
def test_producers_are_restored_from_a_cleaned_log_without_snapshots(
    script: list[tuple[object, ...]], segment_bytes: int
) -> None:
    """The snapshots and the manifest are deleted before the log is loaded.

    Sequences, epochs and open transactions come from the cleaned batches.

    Source: KAFKA-5490.
    """
    history = History(
        SimDisk(random.Random(0), lambda: NOW_MS), replace(COMPACTED, segment_bytes=segment_bytes)
    )
    run(history, [step for step in script if step[0] != "delete"])
    for turn in range(3):
        history.append([(b"last", b".")])
        history.now_ms += turn
        history.clean()
    known, log = untouched_producers(history.log), history.log
    stable = log.last_stable_offset
    history.disk.kill()
    for name in history.disk.list(log.directory):
        if name.endswith((".snapshot", ".manifest")):
            history.disk.unlink(f"{log.directory}/{name}")
    again = open_on(history.disk, history.config, history.now_ms).logs["t", 0]
    found = untouched_producers(again)
    assert again.last_stable_offset == stable
    for pid, (epoch, sequence, start) in known.items():
        assert found[pid][0] == epoch
        assert found[pid][1] == sequence
        assert (found[pid][2] >= 0) == (start >= 0)


def dirty_history(seed: int, disk: SimDisk) -> History:
    """A history of transactions, tombstones and plain records over several segments, some of which
    have been cleaned.
    """
    rng = random.Random(seed)
    history = History(
        disk,
        replace(
            COMPACTED,
            segment_bytes=rng.choice((200, 400, 700)),
            delete_retention_ms=rng.choice((0, DAY_MS)),
        ),
    )
    for _ in range(rng.randrange(8, 40)):
        pairs = [
            (rng.choice(KEYS), rng.choice((None, rng.randbytes(10))))
            for _ in range(rng.randrange(1, 3))
        ]
        pid, draw = rng.choice(PRODUCERS), rng.random()
        if draw < 0.3:
            history.append(pairs)
        elif draw < 0.7:
            history.append(pairs, rng.randrange(5), pid, True)
        elif draw < 0.9:
            history.end(pid, rng.random() < 0.5, rng.random() < 0.2)
        else:
            history.clean()
    for pid in list(history.open):
        history.end(pid, rng.random() < 0.5, False)
    history.append([(b"last", b".")])
    history.append([(b"last", b".")])
    history.log.flush()
    return history


@settings(max_examples=drawn(150))
@given(st.integers(0, 2**32), st.integers(0, 400), st.booleans())
def test_a_kill_or_power_loss_at_any_step_of_a_cleaning_loses_nothing(
    seed: int, at: int, power: bool
) -> None:
    disk = SimDisk(random.Random(seed), lambda: NOW_MS)
    history = dirty_history(seed, disk)
    log = history.log
    state = untouched_producers(log)
    ends = log.log_start_offset, log.last_stable_offset, log.log_end_offset
    cleaned_to = history.cleaned_to
    disk.crash_in(at)
    try:
        done = compact(history.manager, log, cleaned_to, NOW_MS + 1)
    except Crash:
        done = cleaned_to  # the crash came before the checkpoint was written
    crashes = 0
    while True:  # a crash may interrupt a start as well
        if power:
            disk.lose_power()
        else:
            disk.kill()
        if crashes < 2 and at % 3 == 0:
            disk.crash_in(at % 17 + crashes)
        try:
            history.manager = open_on(disk, history.config, NOW_MS + 1)
            break
        except Crash:
            crashes += 1
    disk.crash_in(-1)
    history.log = log = history.manager.logs["t", 0]
    assert (log.log_start_offset, log.last_stable_offset, log.log_end_offset) == ends
    assert untouched_producers(log) == state
    history.cleaned_to = done
    history.check_structure()
    present = {offset for offset, _, _ in entries(log)}
    for offset, (_, value) in history.latest(log.log_end_offset).items():
        assert offset in present or value is None, f"the record at {offset} is lost"
    live: dict[bytes, bytes | None] = {}
    for offset, value in sorted(committed_values(log).items()):
        live[history.written[offset][0]] = value
    wanted = {
        key: value
        for key, value in history.latest(log.log_end_offset).values()
        if value is not None
    }
    assert {key: value for key, value in live.items() if value is not None} == wanted, (
        "an older value came back"
    )
    assert not committed_values(log).keys() & history.aborted
    history.now_ms = NOW_MS + 2
    history.append([(b"last", b".")])
    history.clean()
    history.stop(clean=False)


def test_a_cleaning_has_enough_steps_for_the_kills_of_the_test_above() -> None:
    """At least half of the cleanings have more than 100 steps. The test above kills at one of the
    first 400 steps, so enough of its kills come before the end of the cleaning.
    """
    counts = []
    for seed in range(10):
        disk = SimDisk(random.Random(seed), lambda: NOW_MS)
        history = dirty_history(seed, disk)
        disk.crash_in(100_000)
        compact(history.manager, history.log, history.cleaned_to, NOW_MS + 1)
        counts.append(100_000 - disk.steps_until_crash)
    assert sorted(counts)[5] > 100
    assert markers(history.log) is not None
