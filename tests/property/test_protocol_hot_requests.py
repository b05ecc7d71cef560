"""Compares the hand-written decoders of Produce and Fetch with the generated ones."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest
from helpers.reading import Read, outcome
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol import hot_requests
from barnabas.protocol.hot_requests import produce_reader, read_fetch
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.primitives import Buffer

read_produce = produce_reader(None)

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.just("n" * 200)
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)


@st.composite
def fetches(draw: st.DrawFn) -> tuple[FetchRequest, int]:
    """A Fetch request with any values, and a version that has these fields."""
    version = draw(st.integers(4, 17))

    def since(first: int, values: st.SearchStrategy[Any], otherwise: Any) -> Any:
        return draw(values) if version >= first else otherwise

    def partition() -> FetchPartition:
        return FetchPartition(
            draw(INT32),
            since(9, INT32, -1),
            draw(INT64),
            since(12, INT32, -1),
            since(5, INT64, -1),
            draw(INT32),
            replica_directory_id=since(17, st.none() | st.uuids(), None),
        )

    def place() -> dict[str, Any]:
        return (
            {"topic": draw(NAMES)} if version < 13 else {"topic_id": draw(st.none() | st.uuids())}
        )

    def topic() -> FetchTopic:
        return FetchTopic(
            **place(), partitions=[partition() for _ in range(draw(st.integers(0, 4)))]
        )

    def forgotten() -> ForgottenTopic:
        return ForgottenTopic(**place(), partitions=draw(st.lists(INT32, max_size=3)))

    request = FetchRequest(
        cluster_id=since(12, st.none() | NAMES, None),
        replica_id=draw(INT32) if version < 15 else -1,
        replica_state=ReplicaState(*draw(st.tuples(INT32, INT64)))
        if version >= 15 and draw(st.booleans())
        else None,
        max_wait_ms=draw(INT32),
        min_bytes=draw(INT32),
        max_bytes=draw(INT32),
        isolation_level=draw(st.integers(-128, 127)),
        session_id=since(7, INT32, 0),
        session_epoch=since(7, INT32, -1),
        topics=[topic() for _ in range(draw(st.integers(0, 3)))],
        forgotten_topics_data=[forgotten() for _ in range(draw(st.integers(0, 2)))]
        if version >= 7
        else [],
        rack_id=since(11, NAMES, ""),
    )
    return request, version


@st.composite
def produces(draw: st.DrawFn) -> tuple[ProduceRequest, int]:
    """A Produce request with any values, and a version that has these fields."""
    partition = st.builds(PartitionProduceData, INT32, st.none() | st.binary(max_size=200))
    version = draw(st.integers(0, 13))
    by_id = version >= 13
    topic = st.builds(
        TopicProduceData,
        st.just("") if by_id else NAMES,
        (st.none() | st.uuids()) if by_id else st.none(),
        st.lists(partition, max_size=4),
    )
    request = st.builds(
        ProduceRequest,
        st.none() | NAMES if version >= 3 else st.none(),
        st.integers(-(2**15), 2**15 - 1),
        INT32,
        st.lists(topic, max_size=3),
    )
    return draw(request), version


def check(
    by_hand: Read, generated: Read, encoded: bytes, version: int, noise: list[tuple[int, int]]
) -> None:
    """Check that both decoders give the same result for the whole request, for each truncation of
    it, and for the request with some changed bytes.
    """
    for end in range(len(encoded)):
        assert outcome(by_hand, memoryview(encoded)[:end], 0, version) is None
    data = bytearray(encoded + b"more")
    for place, value in noise:
        data[place % len(data)] = value
        assert outcome(by_hand, memoryview(data), 0, version) == outcome(
            generated, memoryview(data), 0, version
        )


NOISE = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=8)


@given(fetches(), NOISE)
def test_a_fetch_is_decoded_as_by_the_generated_decoder(
    drawn: tuple[FetchRequest, int], noise: list[tuple[int, int]]
) -> None:
    request, version = drawn
    encoded = request.encode(version)
    assert read_fetch(memoryview(b"head" + encoded), 4, version) == (request, 4 + len(encoded))
    check(read_fetch, FetchRequest.read, encoded, version, noise)


@given(
    st.integers(4, 17), INT64, st.lists(st.tuples(INT32, INT64), min_size=2, max_size=3), NOISE,
    st.sampled_from(["", "r"]), st.booleans(),
)  # fmt: skip
def test_a_fetch_of_one_partition_is_decoded_as_by_the_generated_decoder(
    version: int,
    log_start: int,
    numbers: list[tuple[int, int]],
    noise: list[tuple[int, int]],
    rack: str,
    has_state: bool,
) -> None:
    """From the second on, all but the session epoch and the offset may be remembered."""

    def read_bytes(data: Buffer, at: int, version: int) -> tuple[Message, int]:
        return read_fetch(bytes(data), at, version)

    for epoch, offset in numbers:
        row = FetchPartition(1, fetch_offset=offset, partition_max_bytes=9)
        row.log_start_offset = log_start if version >= 5 else -1
        name, topic_id = ("t", None) if version < 13 else ("", uuid.UUID(int=7))
        request = FetchRequest(
            session_epoch=epoch if version >= 7 else -1,
            replica_state=ReplicaState(1, 2) if has_state and version >= 15 else None,
            topics=[FetchTopic(name, topic_id, [row])],
            rack_id=rack if version >= 11 else "",
        )
        encoded = request.encode(version)
        whole = b"head" + encoded
        assert read_fetch(whole, 4, version) == (request, len(whole))
        assert read_fetch(whole + b"more", 4, version) == (request, len(whole))
        check(read_bytes, FetchRequest.read, encoded, version, noise)


@given(st.integers(12, 17), INT32, INT64)
def test_tagged_fields_that_look_like_the_end_of_a_fetch_are_no_offset(
    version: int, epoch: int, offset: int
) -> None:
    """An unknown tagged field may have the bytes of an offset and what follows it."""
    name, topic_id = ("t", None) if version < 13 else ("", uuid.UUID(int=7))
    rows = [FetchPartition(1, fetch_offset=3)]
    request = FetchRequest(session_epoch=epoch, topics=[FetchTopic(name, topic_id, rows)])
    encoded = request.encode(version)
    # what follows an offset up to the end of its topic, whose number of tagged fields is the last
    # byte; three bytes of the request come after it
    field = struct.pack(">q", offset) + encoded[-21:-3]
    data = encoded[:-4] + bytes((1, 99, len(field))) + field + encoded[-3:]
    for _ in range(2):
        assert read_fetch(data, 0, version) == (request, len(data))


def test_fetches_are_remembered_only_up_to_a_number() -> None:
    for number in range(3000):
        request = FetchRequest(
            topics=[FetchTopic(f"t{number}", partitions=[FetchPartition(number)])]
        )
        assert read_fetch(request.encode(12), 0, 12)[0] == request
    assert 0 < len(hot_requests._FETCHES) <= 1000


@given(produces(), NOISE)
def test_a_produce_is_decoded_as_by_the_generated_decoder(
    drawn: tuple[ProduceRequest, int], noise: list[tuple[int, int]]
) -> None:
    request, version = drawn
    encoded = request.encode(version)
    # the second time the fields before the records may be remembered
    for _ in range(2):
        whole = memoryview(b"head" + encoded)
        assert read_produce(whole, 4, version) == (request, 4 + len(encoded))
    check(read_produce, ProduceRequest.read, encoded, version, noise)


@pytest.mark.parametrize("version", range(3, 14))
def test_decoded_records_are_a_view_of_the_receive_buffer(version: int) -> None:
    """A batch is patched and appended in the receive buffer, without a copy."""
    request = ProduceRequest(
        topic_data=[
            TopicProduceData(
                "t" if version < 13 else "", partition_data=[PartitionProduceData(0, b"batch")]
            )
        ]
    )
    frame = bytearray(request.encode(version))
    read, _ = read_produce(memoryview(frame), 0, version)
    records = read.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[:5] = b"other"
    assert b"other" in frame


@pytest.mark.parametrize("version", range(4, 18))
def test_a_decoded_fetch_has_no_view_of_the_receive_buffer(version: int) -> None:
    """A fetch may wait until long after the buffer was reused."""
    request = FetchRequest(
        topics=[FetchTopic("t" if version < 13 else "", partitions=[FetchPartition(1)])]
    )
    frame = bytearray(request.encode(version))
    read, _ = read_fetch(memoryview(frame), 0, version)
    frame[:] = b"\xff" * len(frame)
    assert read == request
