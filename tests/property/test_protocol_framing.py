"""Frames come out of the buffer whole and in order, however the bytes come in; headers are read as kafka-python writes them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import messages
from protocol.api_table import APIS, Api
from protocol.errors import ProtocolViolation
from protocol.framing import INITIAL_BYTES, KEPT_BYTES, FrameBuffer, read_request_header

frames = st.lists(st.binary(min_size=1, max_size=300) | st.integers(1, 3 * INITIAL_BYTES).map(bytes), max_size=12)


def feed(buffer: FrameBuffer, data: bytes, largest: int) -> list[bytes]:
    """Receive `data` in pieces of at most `largest` bytes, taking frames as they become whole."""
    found, at = [], 0
    while at < len(data):
        view = buffer.writable()
        count = min(len(view), largest, len(data) - at)
        view[:count] = data[at : at + count]
        buffer.received(count)
        at += count
        while (frame := buffer.next_frame()) is not None:
            found.append(bytes(frame))
    return found


@given(frames, st.integers(1, 5000) | st.just(1 << 20))
def test_frames_come_whole_and_in_order(expected: list[bytes], largest: int) -> None:
    data = b"".join(struct.pack(">i", len(frame)) + frame for frame in expected)
    buffer = FrameBuffer(100 << 20)
    assert feed(buffer, data, max(largest, len(data) // 2000 + 1)) == expected
    assert buffer.held_bytes == 0


def test_a_large_frame_gives_its_memory_back() -> None:
    buffer = FrameBuffer(100 << 20)
    big = bytes(KEPT_BYTES * 2)
    assert feed(buffer, struct.pack(">i", len(big)) + big, 1 << 20) == [big]
    assert len(buffer.writable()) == INITIAL_BYTES


def test_the_word_of_a_size_takes_no_memory() -> None:
    buffer = FrameBuffer(100 << 20)
    assert feed(buffer, struct.pack(">i", 100 << 20) + b"x", 5) == []
    assert len(buffer.writable()) <= INITIAL_BYTES


@pytest.mark.parametrize("size", [-1, 0, 101, 2**31 - 1])
def test_a_wrong_size_is_refused(size: int) -> None:
    buffer = FrameBuffer(100)
    with pytest.raises(ProtocolViolation, match="between 1 and 100"):
        feed(buffer, struct.pack(">i", size), 4)


@pytest.mark.parametrize(("first", "hint"), [(b"\x16\x03\x01\x00", "TLS"), (b"GET ", "HTTP")])
def test_other_protocols_are_named(first: bytes, hint: str) -> None:
    with pytest.raises(ProtocolViolation, match=hint):
        feed(FrameBuffer(100), first, 4)


@given(st.sampled_from(APIS), st.data(), st.integers(-(2**31), 2**31 - 1), st.none() | st.text(max_size=30))
def test_headers_are_read_as_they_are_written(api: Api, data: st.DataObject, correlation_id: int, client_id: str | None) -> None:
    version = data.draw(st.integers(api.min_version, api.max_version))
    request_class = messages.message_class(api.family, api.name + "Request")
    request = request_class(version=version)
    request.with_header(correlation_id=correlation_id, client_id=client_id)
    assert request_class.flexible_version_q(version) == (version >= api.flexible_from)
    encoded = bytes(request.header.encode(flexible=request_class.flexible_version_q(version)))
    header = read_request_header(memoryview(encoded + b"body"))
    assert header.api is api
    assert (header.api_version, header.correlation_id, header.client_id) == (version, correlation_id, client_id or "")
    assert header.body_start == len(encoded)


@given(st.binary(max_size=60))
def test_any_header_is_read_or_refused(data: bytes) -> None:
    try:
        header = read_request_header(memoryview(data))
    except ProtocolViolation:
        return
    assert header.body_start <= len(data)
