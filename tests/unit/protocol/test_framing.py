"""Frames and request headers. The property tests cover how incoming bytes are split."""

from __future__ import annotations

import struct

import pytest

from barnabas.protocol.api_table import BY_KEY
from barnabas.protocol.errors import ProtocolViolation
from barnabas.protocol.framing import (
    GIVEN_AWAY_BYTES,
    FrameBuffer,
    ReceiveMemory,
    encode_request,
    read_request_header,
    response_has_tagged_header,
)
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest


def received(
    data: bytes, *, largest: int = 1 << 20, largest_other: int | None = None
) -> FrameBuffer:
    buffer = FrameBuffer(largest, ReceiveMemory(), largest_other)
    buffer.writable()[: len(data)] = data
    buffer.received(len(data))
    return buffer


def test_a_frame_is_given_out_without_its_size() -> None:
    buffer = received(struct.pack(">i", 3) + b"abc" + struct.pack(">i", 2) + b"d")
    assert bytes(buffer.next_frame() or b"") == b"abc"
    assert buffer.next_frame() is None
    assert buffer.held_bytes == 5


@pytest.mark.parametrize(
    ("first_bytes", "hint"),
    [(b"\x16\x03\x01\x02", "TLS"), (b"GET ", "HTTP"), (b"\xff" * 4, "must be between 1 and")],
)
def test_another_protocol_is_refused_with_a_word_on_what_it_is(
    first_bytes: bytes, hint: str
) -> None:
    with pytest.raises(ProtocolViolation, match=hint):
        received(first_bytes).next_frame()


def test_only_produce_may_be_large() -> None:
    for api_key, is_refused in ((0, False), (3, True)):
        buffer = received(struct.pack(">ih", 500, api_key), largest_other=100)
        if is_refused:
            with pytest.raises(ProtocolViolation, match="a Metadata of 500 bytes"):
                buffer.next_frame()
        else:
            assert buffer.next_frame() is None


@pytest.mark.parametrize("version", [0, 4])
def test_a_header_of_both_forms(version: int) -> None:
    frame = encode_request(HeartbeatRequest(group_id="g"), version, 77, "klient-ä")
    header = read_request_header(memoryview(frame)[4:])
    assert (header.api_key, header.api_version, header.correlation_id) == (12, version, 77)
    assert (header.client_id, header.api) == ("klient-ä", BY_KEY[12])
    body = bytearray()
    HeartbeatRequest(group_id="g").write(body, version)
    assert frame[4 + header.body_start :] == body


def test_a_version_that_is_not_spoken_has_no_api() -> None:
    frame = struct.pack(">hhih", 12, 99, 1, -1) + b"\0"
    assert read_request_header(memoryview(frame)).api is None


def test_the_answer_to_api_versions_has_the_old_header_in_every_version() -> None:
    """A client must be able to read this response before it knows the supported versions
    (KIP-511).
    """
    assert not response_has_tagged_header(BY_KEY[ApiVersionsRequest.API_KEY], 3)
    assert response_has_tagged_header(BY_KEY[12], 4)
    assert not response_has_tagged_header(BY_KEY[12], 3)


def test_the_memory_of_a_large_frame_is_not_received_into_again() -> None:
    """A large frame is passed on without a copy, so its memory belongs to the receiver. Later bytes
    must be received into other memory.
    """
    size = GIVEN_AWAY_BYTES + 1
    memory = ReceiveMemory()
    buffer = FrameBuffer(2 * size, memory)
    sent = memoryview(
        size.to_bytes(4, "big") + b"p" * size + (5).to_bytes(4, "big") + b"other" + b"res"
    )
    frames = []
    while sent:
        view = buffer.writable()
        count = min(len(view), len(sent))
        view[:count] = sent[:count]
        sent = sent[count:]
        buffer.received(count)
        while (frame := buffer.next_frame()) is not None:
            frames.append(frame if len(frame) == size else memoryview(bytes(frame)))
        buffer.keep_rest()
    assert buffer.held_bytes == 3 and memory.held_bytes < size
    buffer.writable()[:] = bytes(len(buffer.writable()))
    assert [bytes(frame) for frame in frames] == [b"p" * size, b"other"]


@pytest.mark.parametrize("count", [0, 1, 100, 101])
def test_a_header_has_a_hundred_tagged_fields_at_most(count: int) -> None:
    fields = bytes([count]) + b"\1\2ab" * count
    frame = memoryview(struct.pack(">hhih", 18, 3, 7, -1) + fields + b"body")
    if count > 100:
        with pytest.raises(ProtocolViolation, match="more than 100 tagged fields"):
            read_request_header(frame)
    else:
        assert bytes(frame[read_request_header(frame).body_start :]) == b"body"
