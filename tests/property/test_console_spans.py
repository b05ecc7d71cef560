"""Compares the console's strip of a log with a naive model that stores the state of each offset."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from helpers.examples import drawn
from helpers.storage_logs import NOW_MS, batch, new_log, reopened
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.console.spans import (
    ABORT_MARKER,
    ABORTED,
    COMMIT_MARKER,
    COMMITTED,
    GAP,
    OPEN,
    PLAIN,
    Strip,
    read_strip,
    take_window,
)
from barnabas.storage.log.broker_appends import append_marker
from barnabas.storage.log.log import Log

PRODUCERS = (1, 2, 3)


class Model:
    """The state of each offset. `pending` has the offsets of open transactions, by producer."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.kinds: dict[int, str] = {}
        self.owner: dict[int, tuple[int, int]] = {}
        self.markers: dict[tuple[int, int], int] = {}
        self.pending: dict[int, list[int]] = {}
        self.first: dict[int, int] = {}
        self.sequences = dict.fromkeys(PRODUCERS, 0)

    def write(self, producer_id: int, count: int, *, transactional: bool) -> None:
        """Append a batch, and record the kind of its offsets, which is plain or open."""
        start = self.log.log_end_offset
        offsets = range(start, start + count)
        values = [b"v"] * count
        if not transactional:
            self.log.append(batch(values), now_ms=NOW_MS)
            self.kinds.update(dict.fromkeys(offsets, PLAIN))
            return
        sequence = self.sequences[producer_id]
        self.log.append(
            batch(values, pid=producer_id, epoch=0, seq=sequence, transactional=True),
            now_ms=NOW_MS,
        )
        self.sequences[producer_id] += count
        self.kinds.update(dict.fromkeys(offsets, OPEN))
        self.pending.setdefault(producer_id, []).extend(offsets)
        first = self.first.setdefault(producer_id, start)
        self.owner.update(dict.fromkeys(offsets, (producer_id, first)))

    def end(self, producer_id: int, *, commit: bool) -> None:
        """Append a marker, and record whether the transaction's offsets were committed or
        aborted.
        """
        at = self.log.log_end_offset
        append_marker(
            self.log, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, commit=commit,
            now_ms=NOW_MS,
        )  # fmt: skip
        self.kinds[at] = COMMIT_MARKER if commit else ABORT_MARKER
        for offset in self.pending.pop(producer_id, []):
            self.kinds[offset] = COMMITTED if commit else ABORTED
        first = self.first.pop(producer_id, -1)
        if first >= 0:
            self.owner[at] = (producer_id, first)
            self.markers[producer_id, first] = at


def random_steps(rng: random.Random) -> Iterator[tuple[Any, ...]]:
    """Some writes and markers of three producers, and sometimes a deletion or a restart."""
    for _ in range(rng.randrange(70)):
        producer_id = rng.choice(PRODUCERS)
        kind = rng.choices(("write", "end", "delete", "reopen"), (60, 36, 3, 1))[0]
        match kind:
            case "write":
                yield kind, producer_id, rng.randint(1, 5), rng.random() < 0.85
            case "end":
                yield kind, producer_id, rng.random() < 0.5
            case "delete":
                yield kind, rng.random()
            case _:
                yield kind, rng.random() < 0.5


def check(strip: Strip, model: Model, log: Log) -> None:
    """Check that each shown offset is as in the model, and that the spans have the properties that
    their module promises.
    """
    window = strip.window
    assert strip.error == ""
    at = strip.spans[0].first_offset if strip.spans else window.end_offset
    for span in strip.spans:
        assert span.first_offset == at and span.end_offset > at, "spans follow each other"
        at = span.end_offset
        assert span.kind != GAP, "nothing was compacted"
        kinds = {model.kinds[offset] for offset in range(span.first_offset, span.end_offset)}
        assert kinds == {span.kind}
        for bound in (log.last_stable_offset, log.high_watermark):
            assert not span.first_offset < bound < span.end_offset
        owners = {model.owner.get(offset) for offset in range(span.first_offset, span.end_offset)}
        assert len(owners) == 1
        (owner,) = owners
        if owner is not None:
            transaction = strip.transactions[span.transaction]
            assert transaction.producer_id == owner[0]
            assert transaction.first_offset in (-1, owner[1])
            if transaction.fate in (OPEN, ABORTED) and span.kind in (OPEN, ABORTED):
                assert transaction.first_offset == owner[1]
            marker = model.markers.get(owner, -1)
            assert transaction.marker_offset == (marker if marker < window.end_offset else -1)
    assert at >= window.end_offset or window.end_offset == log.log_start_offset


@settings(max_examples=drawn(60), suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_strips_show_the_state_of_each_offset(seed: int) -> None:
    rng = random.Random(seed)
    segment_bytes, interval = rng.choice((300, 1000, 1 << 20)), rng.choice((0, 150, 4096))
    entries = rng.choice((1, 3, 48))
    path = tempfile.mkdtemp()
    config = {
        "segment_bytes": segment_bytes, "index_interval_bytes": interval, "retention_ms": -1,
    }  # fmt: skip
    manager, log = new_log(path, **config)
    try:
        model = Model(log)
        for step in random_steps(rng):
            match step:
                case ("write", producer_id, count, transactional):
                    model.write(producer_id, count, transactional=transactional)
                case ("end", producer_id, commit):
                    model.end(producer_id, commit=commit)
                case ("delete", part):
                    log.delete_records_before(round(part * log.last_stable_offset))
                case ("reopen", clean):
                    manager, log = reopened(manager, log.config, clean=clean)
                    model.log = log
        check(read_strip(take_window(log, None, entries), 10_000), model, log)
        few = read_strip(take_window(log, None, entries), 4)
        assert len(few.spans) <= 4
        check(few, model, log)
        before = log.log_start_offset + rng.randint(0, log.log_end_offset - log.log_start_offset)
        older = read_strip(take_window(log, before, entries), 10_000)
        assert all(span.first_offset < before for span in older.spans)
        check(older, model, log)
        if before > log.log_start_offset:
            assert older.spans, "something is below"
    finally:
        manager.close(NOW_MS)
        shutil.rmtree(path)
