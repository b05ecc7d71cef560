"""Compares indexes with linear scans, and decoded snapshots and batches with the originals."""

from __future__ import annotations

import uuid

import pytest
from helpers.examples import drawn
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.storage.batch.validate import AppendRefused, Rules, check_client_batch
from barnabas.storage.files.checkpoints import (
    CorruptCheckpoint,
    Manifest,
    SegmentNote,
    decode_offsets,
    encode_offsets,
)
from barnabas.storage.files.offset_index import NO_ENTRY, OffsetIndex
from barnabas.storage.files.time_index import TimeIndex
from barnabas.storage.files.txn_index import AbortedEntry, AbortedTxn, TxnIndex
from barnabas.storage.log_config import LogConfig
from barnabas.storage.producers import producer_rows, producer_state
from barnabas.storage.producers.producer_state import ProducerStateManager

STEPS = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 500)), max_size=40)


@given(STEPS, st.integers(-1, 2000), st.integers(0, 20000))
def test_the_offset_index_finds_the_same_as_a_linear_scan(
    steps: list[tuple[int, int]], offset: int, position: int
) -> None:
    index = OffsetIndex()
    entries = []
    at_offset = at_position = 0
    for more_offsets, more_bytes in steps:
        at_offset, at_position = at_offset + more_offsets, at_position + more_bytes
        index.append(at_offset, at_position)
        entries.append((at_offset, at_position))
    again = OffsetIndex.decode(index.encode(), at_position + 1)
    assert list(zip(again.offsets, again.positions, strict=True)) == entries
    for each in (index, again):
        assert each.lookup(offset) == max(
            (entry for entry in entries if entry[0] <= offset), default=NO_ENTRY
        )
        assert each.first_at_or_after(position) == min(
            (entry for entry in entries if entry[1] >= position), default=None
        )
    assert again.encode() == b"".join(
        o.to_bytes(4, "big") + p.to_bytes(4, "big") for o, p in entries
    )


@given(STEPS, st.integers(-1, 3000))
def test_the_time_index_finds_the_same_as_a_linear_scan(
    steps: list[tuple[int, int]], timestamp: int
) -> None:
    index = TimeIndex()
    entries: list[tuple[int, int]] = []
    for number, (time, _) in enumerate(steps):
        if time > (entries[-1][0] if entries else -1):
            entries.append((time, number))
        index.maybe_append(time, number)
    again = TimeIndex.decode(index.encode())
    for each in (index, again):
        assert list(zip(each.timestamps, each.offsets, strict=True)) == entries
        assert each.lookup(timestamp) == max(
            (entry for entry in entries if entry[0] <= timestamp), default=None
        )


@given(st.binary(max_size=200), st.integers(0, 1000))
def test_any_bytes_decode_to_a_sorted_index_or_are_refused(data: bytes, size: int) -> None:
    index = OffsetIndex.decode(data, size)
    assert list(index.offsets) == sorted(set(index.offsets))
    assert all(position < size for position in index.positions)
    times = TimeIndex.decode(data)
    assert list(times.timestamps) == sorted(set(times.timestamps))
    try:
        assert TxnIndex.decode(data).encode() == data
    except ValueError:
        pass


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30), st.integers(1, 30)), max_size=20),
    st.integers(0, 200),
    st.integers(0, 60),
)
def test_the_aborted_index_finds_what_a_scan_finds(
    rows: list[tuple[int, int, int]], fetch_offset: int, length: int
) -> None:
    """Transactions end at their markers. The last stable offset at a marker is the first offset of
    the earliest transaction that is open.
    """
    entries, end = [], 0
    for pid, back, ahead in rows:
        end += ahead
        first = max(end - back, 0)
        entries.append((pid, first, end))
    firsts = [first for _, first, _ in entries]
    index = TxnIndex()
    for number, (pid, first, last) in enumerate(entries):
        stable = min([last + 1, *[later for later in firsts[number + 1 :] if later <= last]])
        index.append(AbortedEntry(pid, first, last, stable))
    upper = fetch_offset + length
    found: list[AbortedTxn] = []
    TxnIndex.decode(index.encode()).collect(fetch_offset, upper, found)
    assert found == [
        (pid, first) for pid, first, last in entries if last >= fetch_offset and first < upper
    ]


@given(
    st.dictionaries(
        st.tuples(st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 99)),
        st.integers(0, 2**62),
    )
)
def test_a_checkpoint_is_decoded_as_encoded_and_refused_if_truncated(
    offsets: dict[tuple[str, int], int],
) -> None:
    data = encode_offsets(offsets)
    assert decode_offsets(data) == offsets
    for cut in range(len(data)):
        with pytest.raises(CorruptCheckpoint):
            decode_offsets(data[:cut])


@given(
    st.lists(
        st.tuples(
            st.integers(1, 9),
            st.integers(0, 3),
            st.integers(0, 2**31 - 1),
            st.integers(1, 5),
            st.booleans(),
        ),
        max_size=30,
    )
)
def test_a_snapshot_restores_the_last_batch_of_each_producer(
    rows: list[tuple[int, int, int, int, bool]],
) -> None:
    state, end = ProducerStateManager(), 0
    for pid, epoch, sequence, count, transactional in rows:
        last_sequence = (sequence + count - 1) & 0x7FFFFFFF
        state.on_batch(
            pid, epoch, sequence, last_sequence, end, end + count - 1, 7 * end, transactional, 5
        )
        end += count
    again = ProducerStateManager.decode_snapshot(state.encode_snapshot(), end, 9)
    assert again.open_txns == state.open_txns
    assert list(again.open_txns.values()) == sorted(again.open_txns.values())
    for pid, entry in state.producers.items():
        other = again.producers[pid]
        assert other.batches == entry.batches[-1:]
        assert (other.producer_epoch, other.txn_first_offset) == (
            entry.producer_epoch,
            entry.txn_first_offset,
        )
    assert again.encode_snapshot() == state.encode_snapshot()


@given(
    st.lists(
        st.tuples(
            st.integers(1, 2),
            st.integers(0, 2),
            st.integers(0, 12),
            st.integers(1, 3),
            st.booleans(),
        ),
        max_size=40,
    )
)
def test_sequences_are_checked_as_by_a_naive_model(
    rows: list[tuple[int, int, int, int, bool]],
) -> None:
    """The model keeps every batch, and its verdicts follow KIP-98's rules."""
    state, end = ProducerStateManager(), 0
    history: dict[int, list[tuple[int, int, int, int]]] = {}
    for pid, epoch, sequence, count, transactional in rows:
        batches = history.setdefault(pid, [])
        latest = max((batch[0] for batch in batches), default=-1)
        of_epoch = [batch for batch in batches if batch[0] == epoch]
        last = sequence + count - 1
        expected: object = "append"
        if batches and epoch < latest:
            expected = Code.INVALID_PRODUCER_EPOCH
        elif batches and epoch > latest and sequence:
            expected = Code.OUT_OF_ORDER_SEQUENCE_NUMBER
        elif of_epoch and sequence != of_epoch[-1][2] + 1:
            same = [batch[3] for batch in of_epoch[-5:] if batch[1:3] == (sequence, last)]
            expected = same[0] if same else Code.OUT_OF_ORDER_SEQUENCE_NUMBER
            first_open = state.open_txns.get(pid)
            is_over = same and (first_open is None or same[0] < first_open)
            is_behind = not same and sequence <= of_epoch[-1][2]
            if transactional and (is_over or is_behind):
                expected = Code.UNKNOWN_PRODUCER_ID
        if expected == "append" and pid in state.open_txns and not transactional:
            expected = Code.INVALID_TXN_STATE
        try:
            duplicate = state.check_batch(
                pid, epoch, sequence, last, transactional, lambda entry: None
            )
            answer: object = "append" if duplicate is None else duplicate.first_offset
        except KafkaError as error:
            answer = error.code
        assert answer == expected
        if answer == "append":
            state.on_batch(pid, epoch, sequence, last, end, end + count - 1, 0, transactional, 0)
            batches.append((epoch, sequence, last, end))
            end += count


@settings(max_examples=drawn(300))
@given(st.binary(max_size=150), st.booleans(), st.integers(0, 149), st.integers(0, 255))
def test_any_bytes_pass_the_check_of_a_batch_or_are_refused(
    noise: bytes, real: bool, at: int, value: int
) -> None:
    sent = bytearray(noise)
    if real:
        sent = encode_batch([NewRecord(b"k", b"v", 5)] * 3)
        sent[at % len(sent)] = value
    try:
        check_client_batch(memoryview(sent), Rules(LogConfig()), 0)
    except AppendRefused:
        pass


def test_a_manifest_is_decoded_as_it_was_encoded() -> None:
    manifest = Manifest(uuid.UUID(int=5), 3, 40)
    manifest.segments[0] = SegmentNote(0, 100, 7, 3, 10)
    manifest.files["x.index"] = (-1, 0)
    again = Manifest.decode(manifest.encode())
    assert (again.topic_id, again.log_start_offset, again.log_end_offset) == (
        uuid.UUID(int=5),
        3,
        40,
    )
    assert (again.segments, again.files) == (manifest.segments, manifest.files)
    assert again.knows("x.index", None) and not again.knows("x.index", b"")


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("batch"), st.integers(1, 9), st.booleans()),
            st.tuples(st.just("marker"), st.integers(1, 9), st.booleans()),
            st.tuples(st.just("expire"), st.integers(1, 6), st.booleans()),
            st.tuples(st.just("snapshot"), st.just(0), st.booleans()),
        ),
        max_size=60,
    )
)
def test_a_snapshot_of_partly_packed_rows_equals_one_of_all_rows_packed(
    steps: list[tuple[str, int, bool]],
) -> None:
    """A step's number is its time. A step with True replaces the state by its decoded snapshot."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer_state, "FEWEST_PRODUCERS", 3)
        patch.setattr(producer_rows, "MOST_CHANGED", 2)
        state = ProducerStateManager()
        for now_ms, (step, number, flag) in enumerate(steps):
            offset = state.end_offset
            if step == "batch":
                state.on_batch(number, 0, 0, 0, offset, offset, now_ms, flag, now_ms)
            elif step == "marker":
                state.on_marker(number, 0, now_ms, flag, offset, now_ms, now_ms)
            elif step == "expire":
                state.expire(now_ms, number, 2 if flag else 100)
            snapshot = state.encode_snapshot() if step == "snapshot" or flag else b""
            if snapshot:
                rows = {snapshot[at : at + 46] for at in range(10, len(snapshot), 46)}
                assert rows == {entry.packed() for entry in state.producers.values()}
                assert len(snapshot) == 10 + 46 * len(state.producers)
            if step == "snapshot" and flag:
                state = ProducerStateManager.decode_snapshot(snapshot, offset, now_ms)
