"""Decoding with compiled loops and with array operations: for any bytes of a batch, both give the
same rows or the same error, and no loop reads outside of the bytes.

The loops run as plain Python on an array that refuses every index outside of it, and as compiled
code if numba is installed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import numpy as np
import pyarrow as pa
from helpers.examples import drawn
from helpers.spark_decoding import timestamp_types
from hypothesis import event, given, settings
from hypothesis import strategies as st

from barnabas.protocol.compression import Codec, compress
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.records import (
    LOG_APPEND_TIME,
    NewRecord,
    assemble_batch,
    batches_in,
    encode_record,
    encode_varint,
    read_header,
)
from barnabas.spark_connector.arrow import decoding, record_loops
from barnabas.spark_connector.arrow.numba_loops import CompiledLoops, UnavailableError, load
from barnabas.spark_connector.arrow.record_batches import LocatedRecordBatch

FAR = 2**62


class Guarded:
    """An array that refuses indexes outside of its elements, including negative ones, since
    compiled loops have no bounds checks.
    """

    def __init__(self, data: Any) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def _checked(self, index: Any) -> Any:
        """Check that the index is within the array, and return it."""
        for place, size in zip(
            index if isinstance(index, tuple) else (index,), self._data.shape, strict=True
        ):
            assert 0 <= place < size, f"index {place} of an array of {size}"
        return index

    def __getitem__(self, index: Any) -> Any:
        return self._data[self._checked(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._data[self._checked(index)] = value


def guarded(function: Callable[..., bool]) -> Callable[..., bool]:
    return lambda *arrays: function(*map(Guarded, arrays))


PLAIN = CompiledLoops(
    guarded(record_loops.parse), guarded(record_loops.headers), guarded(record_loops.gather)
)


@lru_cache(maxsize=1)
def all_loops() -> list[CompiledLoops]:
    """The loops in plain Python, and the compiled ones if numba is installed."""
    with contextlib.suppress(UnavailableError):
        return [PLAIN, load()]
    return [PLAIN]


def test_compiled_loops_are_among_those_that_are_tested() -> None:
    pytest.importorskip("numba")
    assert len(all_loops()) == 2


# ODD has bytes that take the place of a varint: small values, values near the ends of their ranges,
# varints that are too long, and varints with needless bytes.
def varint(value: int) -> bytes:
    """The encoded varint."""
    out = bytearray()
    encode_varint(value, out)
    return bytes(out)


LIMITS = [2**31 - 1, -(2**31), 2**61, 2**62, 2**63 - 1, -(2**63)]
ODD = [
    b"\x80\x00",
    b"\x8c\x80\x00",
    b"\x80" * 9 + b"\x00",
    b"\x80" * 9 + b"\x01",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 12,
    b"\xff",
]
numbers = (st.integers(-3, 70) | st.sampled_from(LIMITS) | st.integers(-(2**63), 2**63 - 1)).map(
    varint
) | st.sampled_from(ODD)
blobs = (
    st.none()
    | st.binary(max_size=12)
    | st.binary(min_size=60, max_size=200)
    | st.sampled_from([b"", b"\0" * 70, b"\x0c\0\0\0\1\1\0" * 3])
)
headers = st.lists(st.tuples(st.text(max_size=4), blobs), max_size=3).map(tuple)
deltas = st.integers(-5, 5) | st.sampled_from(
    [2**31, -(2**31), 2**41, -(2**62), 2**63 - 1, -(2**63)]
)


@st.composite
def written(draw: st.DrawFn, delta: int, damage: bool) -> bytes:
    """An encoded record. With `damage`, any of its parts may be arbitrary."""
    whole = encode_record(
        NewRecord(draw(blobs), draw(blobs), draw(deltas), draw(headers)), delta, 0
    )
    if not damage:
        return whole
    kind = draw(st.sampled_from(["whole", "part", "bytes", "length", "cut"]))
    if kind == "whole":
        return whole
    if kind == "part":
        content = draw(st.sampled_from([b"\0", b"\0", b"\0", b"\1"])) + b"".join(
            draw(st.lists(numbers | st.binary(max_size=3), max_size=9))
        )
        return draw(st.just(varint(len(content))) | numbers) + content
    if kind == "length":
        return draw(numbers) + whole[1:]
    place = draw(st.integers(0, len(whole) - 1))
    if kind == "cut":
        return whole[:place]
    return whole[:place] + draw(numbers | st.binary(min_size=1, max_size=2)) + whole[place + 1 :]


def assemble(
    body: bytes,
    count: int,
    *,
    base: int = 0,
    codec: int = Codec.NONE,
    flags: int = 0,
    timestamp: int = 0,
) -> bytearray:
    """A batch with this body and this count of records, whether they agree or not."""
    return assemble_batch(
        compress(codec, body),
        base_offset=base,
        leader_epoch=0,
        attributes=codec | flags,
        last_offset_delta=max(count, 1) - 1,
        base_timestamp=timestamp,
        max_timestamp=5,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )


@st.composite
def logs(draw: st.DrawFn, damage: bool) -> bytes:
    """Batches of each codec. With `damage`, one record or the record count may be arbitrary."""
    out, base = bytearray(), draw(st.sampled_from([0, 7, 2**40]))
    for _ in range(draw(st.integers(1, 4))):
        count = draw(st.integers(1, 6))
        damaged = draw(st.integers(0, count)) if damage else count
        body = b"".join(draw(written(delta, delta == damaged)) for delta in range(count))
        codec = draw(st.sampled_from(Codec))
        said = (
            draw(st.sampled_from([count] * 12 + [count + 1, 1, -1, -(2**31), 2**31 - 1]))
            if damage
            else count
        )
        out += assemble(
            body,
            said,
            base=base,
            codec=codec,
            flags=draw(st.sampled_from([0, LOG_APPEND_TIME])),
            timestamp=draw(deltas),
        )
        base += count
    return bytes(out)


Outcome = list[tuple[Any, ...]] | str


def outcome(
    buffer: bytes | bytearray,
    loops: CompiledLoops | None,
    start: int,
    end: int,
    wanted: dict[str, bool],
) -> Outcome:
    """The decoded parts, or the error's text."""
    record_batches = [
        LocatedRecordBatch(position, header) for position, header in batches_in(buffer)
    ]
    try:
        parts = list(
            decoding.decode(
                buffer, record_batches, start_offset=start, end_offset=end, loops=loops, **wanted
            )
        )
    except KafkaError as error:
        return f"{error.code}: {error}"
    return [
        (
            part.offset.tolist(),
            part.timestamp_ms.tolist(),
            timestamp_types(part),
            *(
                None if column is None else checked(column).to_pylist()
                for column in (part.key, part.value)
            ),
            None if part.headers is None else pieces(checked(part.headers)),
        )
        for part in parts
    ]


def checked(column: pa.Array) -> pa.Array:
    column.validate()  # not full=True: a header's key may be invalid UTF-8
    return column


def pieces(headers: pa.Array) -> tuple[list[Any], ...]:
    """The headers' nulls, offsets, keys and values."""
    entries = headers.values
    keys = entries.field("key").view(pa.binary())
    return (
        headers.is_null().to_pylist(),
        headers.offsets.to_pylist(),
        keys.to_pylist(),
        entries.field("value").to_pylist(),
    )


@contextlib.contextmanager
def parts_of(size_bytes: int) -> Iterator[None]:
    """A context in which the decoder makes parts of this size."""
    before = decoding.PART_BYTES, decoding.LOOPS_PART_BYTES
    decoding.PART_BYTES = decoding.LOOPS_PART_BYTES = size_bytes
    try:
        yield
    finally:
        decoding.PART_BYTES, decoding.LOOPS_PART_BYTES = before


columns = st.fixed_dictionaries(
    {"key": st.booleans(), "value": st.booleans(), "headers": st.sampled_from([True, True, False])}
)
part_bytes = st.sampled_from([1, 150, 1 << 19])


@settings(max_examples=drawn(50))
@given(logs(damage=False), columns, part_bytes, st.integers(0, 24), st.integers(0, 24))
def test_loops_decode_the_same_rows_as_array_operations(
    log: bytes, wanted: dict[str, bool], size: int, start: int, end: int
) -> None:
    base = read_header(log).base_offset
    with parts_of(size):
        expected = outcome(log, None, base + start, base + end, wanted)
        assert isinstance(expected, list)
        for loops in all_loops():
            for buffer in (log, bytearray(log)):  # a bytearray, as a connection's receive buffer is
                assert outcome(buffer, loops, base + start, base + end, wanted) == expected


@settings(max_examples=drawn(150))
@given(logs(damage=True), columns, part_bytes)
def test_damaged_batches_give_the_same_error_in_each_implementation(
    log: bytes, wanted: dict[str, bool], size: int
) -> None:
    with parts_of(size):
        expected = outcome(log, None, 0, FAR, wanted)
        event(expected if isinstance(expected, str) else "read")
        for loops in all_loops():
            assert outcome(log, loops, 0, FAR, wanted) == expected


@settings(max_examples=drawn(150))
@given(
    st.data(),
    st.binary(max_size=80)
    | st.lists(numbers | st.just(b"\x0c\0\0\0\1\1\0"), max_size=20).map(b"".join),
)
def test_no_loop_reads_outside_of_its_bytes(data: st.DataObject, content: bytes) -> None:
    """The loops get arbitrary bytes, with any position and any number of records. They may refuse
    the bytes, but must not read outside of them.
    """
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, len(content)))
    count = data.draw(st.integers(1, 12))
    array = np.frombuffer(content, np.uint8)
    for loops in all_loops():
        table, null = np.full((record_loops.FIELDS, count), -1), np.zeros((2, count), np.bool_)
        if loops.parse(array, *(np.array([each]) for each in (start, end, count)), table, null):
            assert table[record_loops.RECORD_END][-1] == end
            assert (
                table[record_loops.VALUE_AT] + table[record_loops.VALUE_SIZE]
                < table[record_loops.RECORD_END]
            ).all()
            assert (
                table[[record_loops.KEY_SIZE, record_loops.VALUE_SIZE, record_loops.HEADER_COUNT]]
                >= 0
            ).all()
        keys, values = np.full((2, count), -1), np.full((2, count), -1)
        if loops.headers(
            array,
            *(np.array([each]) for each in (count, start, end)),
            keys,
            values,
            np.zeros(count, np.bool_),
        ):
            for positions, lengths in (keys, values):
                assert (
                    (start <= positions).all()
                    and (lengths >= 0).all()
                    and (positions + lengths <= end).all()
                )


places = st.integers(-3, 20) | st.sampled_from([2**31, 2**62, -(2**63)])


@settings(max_examples=drawn(150))
@given(
    st.binary(max_size=16), st.lists(places, min_size=1, max_size=4), st.integers(0, 20), st.data()
)
def test_copies_stay_within_both_arrays(
    content: bytes, positions: list[int], room: int, data: st.DataObject
) -> None:
    bounds = st.lists(
        st.integers(-3, 20) | st.sampled_from([2**31 - 1, -(2**31)]),
        min_size=len(positions) + 1,
        max_size=len(positions) + 1,
    )
    edges = data.draw(bounds)
    spans = list(zip(positions, edges, edges[1:], strict=False))
    fits = all(
        here >= 0 and 0 <= there <= after <= room and here + after - there <= len(content)
        for here, there, after in spans
    )
    expected = bytearray(room)
    for here, there, after in spans if fits else ():
        expected[there:after] = content[here : here + after - there]
    array = np.frombuffer(content, np.uint8)
    for loops in all_loops():
        out = np.zeros(room, np.uint8)
        assert loops.gather(array, np.array(positions), np.array(edges, np.int32), out) == fits
        assert not fits or out.tobytes() == bytes(expected)


# The fields of a record with a header whose key is not UTF-8.
CONTENT = b"\0\0\0\1\1\2\2\xff\1"


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (varint(9) + CONTENT, "read"),
        (b"\x92\x80\x80\x80\x00" + CONTENT, "read"),
        (b"\x92\x80\x80\x80\x80\x00" + CONTENT, "read"),  # the length is a varint of six bytes
        (varint(9) + b"\1" + CONTENT[1:], "read"),  # attributes
        (b"\x13" + CONTENT, "a record is not as long as it says"),  # the length is -10
        (varint(6) + b"\0\0\0\1\1\1", "a record has a negative number of headers"),
    ],
)
def test_unusual_and_invalid_records_have_the_same_outcome_in_each_implementation(
    record: bytes, says: str
) -> None:
    for way in (None, *all_loops()):
        said = outcome(assemble(record, 1), way, 0, FAR, {"headers": True})
        assert (
            said if isinstance(said, str) else f"{Code.INVALID_RECORD}: read"
        ) == f"{Code.INVALID_RECORD}: {says}"


def test_an_impossible_record_count_is_refused_before_memory_is_allocated() -> None:
    """The header says that there are 2^31 - 1 records. A table for that many would take 144 GiB."""
    log = assemble(b"\0" * 40, 2**31 - 1)
    said = {str(outcome(log, way, 0, FAR, {})) for way in (None, *all_loops())}
    assert said == {f"{Code.INVALID_RECORD}: a record is not as long as it says"}


def test_an_impossible_number_of_headers_is_an_error() -> None:
    for count in (2**61, 2**62 - 1, 2**62, 2**63 - 1):
        content = b"\0\0\0\1\1" + varint(count)
        log = assemble(varint(len(content)) + content, 1)
        said = {str(outcome(log, way, 0, FAR, {"headers": True})) for way in (None, *all_loops())}
        assert said == {f"{Code.INVALID_RECORD}: a record is not as long as it says"}


def test_a_body_that_arrow_cannot_count_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "LARGEST_BODY", 100)
    log = assemble(encode_record(NewRecord(None, bytes(200)), 0, 0), 1, codec=Codec.GZIP)
    said = {str(outcome(log, way, 0, FAR, {})) for way in (None, *all_loops())}
    assert said == {f"{Code.INVALID_RECORD}: the batch at offset 0 holds more than 2 GiB"}
