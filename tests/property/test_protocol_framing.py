"""Frames come out of the buffer whole and in order, no matter in which pieces the bytes arrive.
Headers are decoded from kafka-python's encoding.
"""

from __future__ import annotations

import re
import struct
from typing import Any

import pytest
from helpers import kafka_messages as messages
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol import framing
from barnabas.protocol.api import Api
from barnabas.protocol.api_table import APIS, BY_KEY
from barnabas.protocol.errors import ProtocolViolation
from barnabas.protocol.framing import (
    KEPT_BYTES,
    SCARCE_BYTES,
    SHARED_BYTES,
    SMALL_BYTES,
    FrameBuffer,
    HeaderReader,
    ReceiveMemory,
    header_fields,
    read_request_header,
)

frames = st.lists(
    st.binary(min_size=1, max_size=300) | st.integers(1, 3 * SHARED_BYTES).map(bytes), max_size=12
)


def new_buffer(largest: int = 100 << 20, memory: ReceiveMemory | None = None) -> FrameBuffer:
    return FrameBuffer(largest, ReceiveMemory() if memory is None else memory)


def receive(buffer: FrameBuffer, data: bytes, largest: int) -> tuple[int, list[bytes]]:
    """Receive the beginning of `data`, at most `largest` bytes. Return the number of received
    bytes, and the complete frames.
    """
    view = buffer.writable()
    count = min(len(view), largest, len(data))
    view[:count] = data[:count]
    buffer.received(count)
    found = []
    while (frame := buffer.next_frame()) is not None:
        found.append(bytes(frame))
    buffer.keep_rest()
    return count, found


def feed(buffer: FrameBuffer, data: bytes, largest: int) -> list[bytes]:
    """Receive `data` in pieces of at most `largest` bytes, and take each frame when it is
    complete.
    """
    found, at = [], 0
    while at < len(data):
        count, frames = receive(buffer, data[at : at + largest], largest)
        found += frames
        at += count
    return found


def framed(contents: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(content)) + content for content in contents)


@given(frames, st.integers(1, 5000) | st.just(1 << 20))
def test_frames_come_whole_and_in_order(expected: list[bytes], largest: int) -> None:
    data = framed(expected)
    memory = ReceiveMemory()
    buffer = new_buffer(memory=memory)
    assert feed(buffer, data, max(largest, len(data) // 2000 + 1)) == expected
    assert buffer.held_bytes == memory.held_bytes == 0


@given(st.lists(frames, min_size=2, max_size=4), st.data())
def test_connections_that_share_memory_keep_apart(
    expected: list[list[bytes]], data: st.DataObject
) -> None:
    memory = ReceiveMemory(data.draw(st.sampled_from((-1, 0, 1000, 1 << 20))))
    buffers = [new_buffer(memory=memory) for _ in expected]
    left = [framed(contents) for contents in expected]
    found: list[list[bytes]] = [[] for _ in expected]
    largest = data.draw(st.integers(max(1, sum(map(len, left)) // 200), 1 << 20))
    while any(left):
        number = data.draw(st.sampled_from([number for number, rest in enumerate(left) if rest]))
        count, whole = receive(buffers[number], left[number][:largest], largest)
        left[number] = left[number][count:]
        found[number] += whole
    assert found == expected
    assert memory.held_bytes == 0


def test_frames_that_are_not_taken_yet_are_kept() -> None:
    """A request of the connection is pending, and the buffer has received further requests."""
    memory = ReceiveMemory()
    one, other = new_buffer(memory=memory), new_buffer(memory=memory)
    data = framed([b"first", b"second", b"third"])
    one.writable()[: len(data)] = data
    one.received(len(data))
    assert bytes(one.next_frame() or b"") == b"first"
    one.keep_rest()
    assert feed(other, framed([b"x" * 100]), 1000) == [b"x" * 100]
    assert [bytes(one.next_frame() or b""), bytes(one.next_frame() or b"")] == [b"second", b"third"]
    assert one.keep_rest()
    assert memory.held_bytes == 0


def test_a_large_frame_gives_its_memory_back() -> None:
    memory = ReceiveMemory()
    buffer = new_buffer(memory=memory)
    big = bytes(KEPT_BYTES * 2)
    assert feed(buffer, framed([big]), 1 << 20) == [big]
    assert memory.held_bytes == 0
    assert buffer.writable() is memory.shared


def test_only_a_produce_may_be_larger_than_other_requests() -> None:
    """A larger request is refused as soon as its size and API are known, before the rest is
    received.
    """

    def next_of(api_key: int, size: int) -> memoryview | None:
        buffer = FrameBuffer(1 << 20, ReceiveMemory(), 1000)
        data = struct.pack(">ih", size, api_key)
        buffer.writable()[: len(data)] = data
        buffer.received(len(data))
        return buffer.next_frame()

    assert next_of(0, 1 << 20) is None
    assert next_of(11, 1000) is None
    with pytest.raises(
        ProtocolViolation, match=r"JoinGroup of 1001 bytes.*barnabas.request.max.bytes"
    ):
        next_of(11, 1001)
    with pytest.raises(ProtocolViolation, match="API key 999"):
        next_of(999, 1001)


@pytest.mark.parametrize("received", [5, 100_000])
def test_a_buffer_that_moves_is_counted_only_by_its_new_memory(received: int) -> None:
    """After a client has logged in, its buffer moves from the memory for clients without a login to
    the memory for all other clients.
    """
    first = ReceiveMemory()
    second = ReceiveMemory(shared=first.shared)
    buffer = new_buffer(memory=first)
    data = framed([bytes(200_000)])
    feed(buffer, data[:received], received)
    held = first.held_bytes
    buffer.move_to(second)
    assert (first.held_bytes, second.held_bytes) == (0, held)
    assert feed(buffer, data[received:], 50_000) == [bytes(200_000)]
    assert (first.held_bytes, second.held_bytes) == (0, 0)


def test_a_connection_without_a_part_of_a_request_holds_nothing() -> None:
    memory = ReceiveMemory()
    buffers = [new_buffer(memory=memory) for _ in range(1000)]
    for buffer in buffers:
        assert feed(buffer, framed([b"request"]), 100) == [b"request"]
    assert memory.held_bytes == 0


def test_an_announced_size_takes_no_memory_before_its_bytes_arrive() -> None:
    memory = ReceiveMemory()
    buffer = new_buffer(memory=memory)
    assert feed(buffer, struct.pack(">i", 100 << 20) + b"x", 5) == []
    assert memory.held_bytes <= 1024
    fed = 1
    for size in (1000, 100_000, 1_000_000):
        feed(buffer, bytes(size), size)
        fed += size
        assert memory.held_bytes <= 4 * fed + SHARED_BYTES


def test_little_is_received_at_once_where_memory_is_full() -> None:
    """If memory is full, each connection receives few bytes at a time, so that small requests are
    still completed.
    """
    memory = ReceiveMemory(1000)
    holder = new_buffer(memory=memory)
    feed(holder, struct.pack(">i", 1 << 20) + bytes(2000), 2004)
    assert memory.is_full
    assert holder.holds_much
    small = new_buffer(memory=memory)
    assert len(small.writable()) == SCARCE_BYTES
    feed(small, struct.pack(">i", SMALL_BYTES // 2) + bytes(2000), 2004)
    assert not small.holds_much
    holder.drop()
    small.drop()
    assert len(new_buffer(memory=memory).writable()) == SHARED_BYTES


@pytest.mark.parametrize("size", [-1, 0, 101, 2**31 - 1])
def test_a_wrong_size_is_refused(size: int) -> None:
    buffer = new_buffer(100)
    with pytest.raises(ProtocolViolation, match="between 1 and 100"):
        feed(buffer, struct.pack(">i", size), 4)


@pytest.mark.parametrize(("first", "hint"), [(b"\x16\x03\x01\x00", "TLS"), (b"GET ", "HTTP")])
def test_other_protocols_are_named(first: bytes, hint: str) -> None:
    with pytest.raises(ProtocolViolation, match=hint):
        feed(new_buffer(100), first, 4)


@given(
    st.sampled_from(APIS),
    st.data(),
    st.integers(-(2**31), 2**31 - 1),
    st.none() | st.text(max_size=30),
)
def test_headers_are_read_as_they_are_written(
    api: Api, data: st.DataObject, correlation_id: int, client_id: str | None
) -> None:
    version = data.draw(st.integers(api.min_version, api.max_version))
    request_class = messages.message_class(api.name + "Request")
    request = request_class(version=version)
    request.with_header(correlation_id=correlation_id, client_id=client_id)
    assert request_class.flexible_version_q(version) == (version >= api.flexible_from)
    encoded = bytes(request.header.encode(flexible=request_class.flexible_version_q(version)))
    header = read_request_header(memoryview(encoded + b"body"))
    assert header.api is api
    assert (header.api_version, header.correlation_id, header.client_id) == (
        version,
        correlation_id,
        client_id or "",
    )
    assert header.body_start == len(encoded)


clients = st.sampled_from([b"", b"a", b"rdkafka", b"\xff", b"c" * 127, b"c" * 128, b"c" * 300])
bodies = st.sampled_from([b"", b"\0", b"\1\2\1x", b"\0" * 9, b"\1body", b"\x80\1"])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [(0, 9), (0, 3), (0, 99), (1, 11), (12, 4), (18, 3), (18, 0), (500, 1)]
            ),
            st.integers(-(2**31), 2**31 - 1),
            st.none() | clients,
            bodies,
            st.integers(0, 8),
        ),
        max_size=12,
    )
)
def test_a_header_that_is_remembered_is_that_of_its_bytes(requests: Any) -> None:
    """In any order, also where it is cut off, has tagged fields, or is of an unsupported API."""
    reader = HeaderReader(BY_KEY)
    for (key, version), correlation_id, client, body, cut in requests:
        size = -1 if client is None else len(client)
        start = struct.pack(">hhih", key, version, correlation_id, size) + (client or b"")
        frame = memoryview(start + body)
        frame = frame[: len(frame) - cut] if cut > 4 else frame
        try:
            api, *fields = header_fields(frame, BY_KEY)
        except ProtocolViolation as error:
            with pytest.raises(ProtocolViolation, match=re.escape(str(error))):
                reader.read(frame)
            continue
        api_key, api_version, _, client_id, body_start = fields
        row, read_id = reader.read(frame)
        assert (row[0] is api, read_id) == (True, correlation_id)
        assert row[1:] == (api_key, api_version, client_id, body_start)


def test_remembered_headers_are_bounded() -> None:
    reader = HeaderReader(BY_KEY)
    for number in range(framing._MOST_HEADERS + 5):
        client = b"%d" % number
        reader.read(memoryview(struct.pack(">hhih", 18, 3, 1, len(client)) + client + bytes(3)))
    assert 0 < len(reader._known) <= framing._MOST_HEADERS


@given(st.binary(max_size=60))
def test_any_header_is_read_or_refused(data: bytes) -> None:
    try:
        header = read_request_header(memoryview(data))
    except ProtocolViolation:
        return
    assert header.body_start <= len(data)
