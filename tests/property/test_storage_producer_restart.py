"""A log's producer state gives the same verdict before and after a restart, on every batch that
could come next.
"""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
from helpers.examples import drawn
from helpers.storage_logs import NOW_MS, batch, new_log, reopened
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.errors import KafkaError
from barnabas.storage.log.broker_appends import append_marker
from barnabas.storage.log.log import Log
from barnabas.storage.log_config import LogConfig

PRODUCERS, EPOCHS, SEQUENCES = (1, 2), range(4), range(6)
Verdict = tuple[Any, ...]

writes = st.tuples(
    st.just("write"),
    st.sampled_from(PRODUCERS),
    st.integers(0, 1),  # the epoch's increase
    st.integers(1, 2),  # records
    st.booleans(),  # transactional
)
markers = st.tuples(
    st.just("end"),
    st.sampled_from(PRODUCERS),
    st.integers(0, 1),  # 1: a marker of version 2, which raises the epoch
    st.booleans(),
)
steps = st.one_of(writes, writes, markers, st.tuples(st.just("roll")))


def carry_out(log: Log, all_steps: list[tuple[Any, ...]]) -> None:
    """Try each step. The log may refuse a step, which is a verdict of its own."""
    for name, *values in all_steps:
        if name == "roll":
            if log.segments.active.batches.size:
                log._roll(NOW_MS)
            continue
        pid, later, *rest = values
        entry = log.producer_state.producers.get(pid)
        epoch = (0 if entry is None else entry.producer_epoch) + later
        try:
            if name == "write":
                count, transactional = rest
                is_same = entry is not None and not later
                seq = entry.last_sequence + 1 if is_same and entry is not None else 0
                log.append(
                    batch([b"v"] * count, pid=pid, epoch=epoch, seq=seq,
                          transactional=transactional),
                    now_ms=NOW_MS,
                )  # fmt: skip
            else:
                append_marker(
                    log, producer_id=pid, producer_epoch=epoch, coordinator_epoch=0, commit=rest[0],
                    now_ms=NOW_MS,
                )  # fmt: skip
        except KafkaError:
            pass


def verdict(log: Log, *sent: Any) -> Verdict:
    """What the log would do with a batch of this producer ID, epoch, first and last sequence."""
    try:
        earlier = log.producer_state.check_batch(*sent, log._restore_window)
    except KafkaError as error:
        return ("refused", error.code)
    # Compare only its sequences and offsets, since a snapshot in Apache Kafka's format has no
    # checksums, and only the producer's last timestamp.
    if earlier is None:
        return ("append",)
    return (
        "repeats",
        earlier.first_sequence,
        earlier.last_sequence,
        earlier.first_offset,
        earlier.last_offset,
    )


def verdicts(log: Log) -> dict[tuple[Any, ...], Verdict]:
    """The verdict of each batch that the steps can contain."""
    return {
        (pid, epoch, first, first + count - 1, transactional): verdict(
            log, pid, epoch, first, first + count - 1, transactional
        )
        for pid in PRODUCERS
        for epoch in EPOCHS
        for first in SEQUENCES
        for count in (1, 2)
        for transactional in (False, True)
    }


@pytest.mark.parametrize("clean", [True, False])
@settings(max_examples=drawn(40))
@given(all_steps=st.lists(steps, max_size=14))
def test_a_restarted_log_judges_every_batch_as_the_live_one(
    clean: bool, all_steps: list[tuple[Any, ...]]
) -> None:
    """After a clean stop, and after a kill with everything flushed."""
    with tempfile.TemporaryDirectory() as path:
        manager, log = new_log(path)
        carry_out(log, all_steps)
        before = verdicts(log)
        if not clean:
            log.flush()  # a start restores only flushed records
        manager, log = reopened(manager, LogConfig(), clean=clean)
        assert verdicts(log) == before
        manager.close(NOW_MS)
