"""Compares the readers and encoders that remember messages with the generated code."""

from __future__ import annotations

import struct
import uuid
from typing import Any, cast

from helpers.reading import Read, outcome
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.requests.encoded_rows import EncodedRows
from barnabas.protocol import repeated_messages
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.primitives import BoundedBytes
from barnabas.protocol.repeated_messages import (
    encode_committed,
    encode_heartbeat,
    read_heartbeat,
    read_offset_commit,
)

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=3) | st.just("n" * 200)
# few values, so that requests have the same bytes but for some
NUMBERS = st.integers(-1, 2) | st.just(2**31 - 1)
OFFSETS = NUMBERS | st.just(2**63 - 1)
IDS = st.none() | st.just(uuid.UUID(int=1)) | st.uuids()
NOISE = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 2) | st.integers(0, 255)))


@st.composite
def heartbeats(draw: st.DrawFn) -> tuple[HeartbeatRequest, int]:
    version = draw(st.integers(0, 4))
    instance_id = draw(st.none() | NAMES) if version >= 3 else None
    return HeartbeatRequest(draw(NAMES), draw(NUMBERS), draw(NAMES), instance_id), version


@st.composite
def commits(draw: st.DrawFn) -> tuple[OffsetCommitRequest, int]:
    version = draw(st.integers(0, 10))
    by_id = version >= 10
    partition = st.builds(
        OffsetCommitRequestPartition,
        NUMBERS,
        OFFSETS,
        NUMBERS if version >= 6 else st.just(-1),
        NUMBERS if version == 1 else st.just(-1),
        st.none() | st.just("") | NAMES,
    )
    topic = st.builds(
        OffsetCommitRequestTopic,
        st.just("") if by_id else NAMES,
        IDS if by_id else st.none(),
        st.lists(partition, min_size=1, max_size=1) | st.lists(partition, max_size=3),
    )
    request = st.builds(
        OffsetCommitRequest,
        NAMES,
        NUMBERS if version >= 1 else st.just(-1),
        NAMES if version >= 1 else st.just(""),
        st.none() | NAMES if version >= 7 else st.none(),
        OFFSETS if 2 <= version <= 4 else st.just(-1),
        st.lists(topic, min_size=1, max_size=1) | st.lists(topic, max_size=3),
    )
    return draw(request), version


def check(
    read: Read, generated: Read, request: Message, version: int, noise: list[tuple[int, int]]
) -> None:
    """Check that both readers give the same for the request, cut, longer and with other bytes. Each
    is read twice: the second time it may be remembered.
    """
    encoded = request.encode(version)
    assert read(b"head" + encoded, 4, version) == (request, 4 + len(encoded))
    changed = bytearray(encoded)
    variants = [encoded, encoded + b"\0", encoded + bytes(16), *map(encoded.__getitem__, CUTS)]
    for place, value in noise:
        changed[place % len(changed)] = value
        variants.append(bytes(changed))
    for variant in variants:
        for data in (variant, variant, BoundedBytes(variant), memoryview(variant)):
            if type(data) is BoundedBytes:
                data.elements_left = 1000
            expected = outcome(generated, variant, 0, version)
            assert outcome(read, data, 0, version) == expected


CUTS = [slice(0, -count) for count in range(1, 20)]


@given(heartbeats(), NOISE)
def test_a_heartbeat_is_read_as_by_the_generated_reader(
    drawn: tuple[HeartbeatRequest, int], noise: list[tuple[int, int]]
) -> None:
    request, version = drawn
    check(read_heartbeat, HeartbeatRequest.read, request, version, noise)


@given(commits(), NOISE)
def test_a_commit_is_read_as_by_the_generated_reader(
    drawn: tuple[OffsetCommitRequest, int], noise: list[tuple[int, int]]
) -> None:
    request, version = drawn
    check(read_offset_commit, OffsetCommitRequest.read, request, version, noise)


@given(st.integers(8, 10), OFFSETS, NUMBERS, st.none() | st.just(""))
def test_tagged_fields_that_look_like_the_end_of_a_commit_are_no_numbers(
    version: int, offset: int, epoch: int, metadata: str | None
) -> None:
    """A request may end in an unknown tagged field, whose bytes are those of an offset, an epoch
    and what follows them.
    """
    row = OffsetCommitRequestPartition(0, 5, 6, -1, metadata)
    name, topic_id = ("", uuid.UUID(int=9)) if version >= 10 else ("t", None)
    topic = OffsetCommitRequestTopic(name, topic_id, [row])
    request = OffsetCommitRequest("g", 1, "m", None, -1, [topic])
    field = struct.pack(">qi4s", offset, epoch, b"\1\0\0\0" if metadata == "" else bytes(4))
    data = request.encode(version)[:-1] + bytes((1, 7, len(field))) + field
    for _ in range(2):
        assert read_offset_commit(data, 0, version) == (request, len(data))


def test_requests_are_remembered_only_up_to_a_number() -> None:
    for number in range(3000):
        heartbeat = HeartbeatRequest(f"g{number}", 1, "m")
        topic = OffsetCommitRequestTopic(
            "t", partitions=[OffsetCommitRequestPartition(number, 1, 1)]
        )
        commit = OffsetCommitRequest("g", 1, "m", topics=[topic])
        assert read_heartbeat(heartbeat.encode(4), 0, 4)[0] == heartbeat
        assert read_offset_commit(commit.encode(8), 0, 8)[0] == commit
    for remembered in (repeated_messages._HEARTBEATS, repeated_messages._COMMITS):
        assert 0 < len(remembered) <= 1000


def test_what_is_remembered_is_not_changed_with_a_request() -> None:
    """Each reader makes another object: its handler may change it."""
    row = OffsetCommitRequestPartition(0, 5, 6)
    commit = OffsetCommitRequest("g", 1, "m", topics=[OffsetCommitRequestTopic("t", None, [row])])
    data = commit.encode(9)
    for _ in range(3):
        read, _ = read_offset_commit(data, 0, 9)
        assert read == commit
        read.topics[0].partitions.clear()
        read.topics.clear()


@given(st.integers(0, 4), NUMBERS, st.integers(-1, 120))
def test_the_answer_to_a_heartbeat_is_encoded_as_by_the_generated_encoder(
    version: int, throttle_ms: int, error_code: int
) -> None:
    response = HeartbeatResponse(throttle_ms if version >= 1 else 0, error_code)
    assert encode_heartbeat(response, version) == response.encode(version)


@st.composite
def committed(draw: st.DrawFn) -> tuple[OffsetCommitResponse, int]:
    version = draw(st.integers(0, 10))
    by_id = version >= 10
    partition = st.builds(OffsetCommitResponsePartition, NUMBERS, st.integers(-1, 120))
    topic = st.builds(
        OffsetCommitResponseTopic,
        st.just("") if by_id else NAMES,
        IDS if by_id else st.none(),
        st.lists(partition, min_size=1, max_size=1) | st.lists(partition, max_size=3),
    )
    response = st.builds(
        OffsetCommitResponse,
        st.just(0) | NUMBERS if version >= 3 else st.just(0),
        st.lists(topic, min_size=1, max_size=1) | st.lists(topic, max_size=3),
    )
    return draw(response), version


@given(committed())
def test_the_answer_to_a_commit_is_encoded_as_by_the_generated_encoder(
    drawn: tuple[OffsetCommitResponse, int],
) -> None:
    response, version = drawn
    assert encode_committed(response, version) == response.encode(version)


def test_rows_that_are_encoded_already_are_written_as_they_are() -> None:
    """The answers to the parts of a large commit are encoded one by one."""
    row = OffsetCommitResponsePartition(3, 0)
    topic = OffsetCommitResponseTopic("t", None, [row])
    expected = OffsetCommitResponse(0, [topic]).encode(8)
    inner, rows = EncodedRows(), EncodedRows()
    inner.add((row,), 8)
    joined: Any = OffsetCommitResponseTopic("t", None, cast(Any, inner))
    assert encode_committed(OffsetCommitResponse(0, [joined]), 8) == expected
    rows.add((topic,), 8)
    assert encode_committed(OffsetCommitResponse(0, cast(Any, rows)), 8) == expected
