"""Requests and responses as bytes. The two most frequent requests are packed with `struct`; the
others are the broker's message classes, which property tests compare with kafka-python's.

    Produce v8, Fetch v11     packed with struct, since they have no tagged fields
    Produce v12, Fetch v12    message classes; this Produce is for transactions of version 2

A response is decoded without its size and correlation id, which the link has removed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from helpers.our_messages import response_class

from barnabas.protocol.api_table import BY_KEY
from barnabas.protocol.framing import response_has_tagged_header
from barnabas.protocol.messages.fetch import FetchRequest, PartitionData
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

PRODUCE, FETCH = 0, 1
PRODUCE_VERSION, PRODUCE_ADDS, FETCH_VERSION, FETCH_DIVERGES = 8, 12, 11, 12
CLIENT_ID = b"sim"
__all__ = [
    "Call",
    "FetchAnswer",
    "Fetched",
    "Produced",
    "fetch",
    "frame",
    "produce",
    "produce_and_add",
    "request",
    "with_last_epochs",
]
_I, _H, _Q = struct.Struct(">i"), struct.Struct(">h"), struct.Struct(">q")
_HEAD = struct.Struct(">ihhih")
_FETCH_HEAD = struct.Struct(">iiiibii")

Decode = Callable[[bytes], Any]


class Call(NamedTuple):
    """An encoded request: its API and version, its body, the decoder of its response, and whether
    there is a response. `about` is its message or, for the two most frequent requests, the
    partitions that it names: a client of several brokers uses it to find the right broker.
    """

    name: str
    api_key: int
    api_version: int
    body: bytes
    decode: Decode
    is_answered: bool = True
    about: Any = None


def frame(call: Call, correlation_id: int) -> bytes:
    """Return the request's frame without the size field, as the broker's core expects it."""
    tagged = call.api_version >= BY_KEY[call.api_key].flexible_from
    head = (
        struct.pack(">hhih", call.api_key, call.api_version, correlation_id, len(CLIENT_ID))
        + CLIENT_ID
    )
    return head + (b"\0" if tagged else b"") + call.body


def request(message: Message, version: int) -> Call:
    """Encode a request in the given version. It may be any request except the two that are packed
    with `struct`.
    """
    api = BY_KEY[message.API_KEY]
    start = 1 if response_has_tagged_header(api, version) else 0
    read = response_class(api.name).read

    def decode(data: bytes) -> Message:
        answer, end = read(data, start, version)
        assert end == len(data), f"{api.name} v{version}: {len(data) - end} bytes are left over"
        return answer

    return Call(api.name, api.key, version, message.encode(version), decode, about=message)


class Produced(NamedTuple):
    """The result of a Produce for one partition."""

    error_code: int
    base_offset: int
    log_start_offset: int


def produce(
    transactional_id: str | None,
    topic: str,
    partition: int,
    batch: bytes | bytearray,
    *,
    timeout_ms: int = 1000,
) -> Call:
    """Encode a Produce request with one batch for one partition, and acks=all."""
    name = topic.encode()
    if transactional_id is None:
        head = b"\xff\xff"
    else:
        text = transactional_id.encode()
        head = _H.pack(len(text)) + text
    body = b"".join(
        (
            head,
            struct.pack(">hiih", -1, timeout_ms, 1, len(name)),
            name,
            struct.pack(">iii", 1, partition, len(batch)),
            batch,
        )
    )
    about = [(topic, partition)]
    return Call("Produce", PRODUCE, PRODUCE_VERSION, body, _decode_produce, about=about)


def produce_and_add(
    transactional_id: str | None, topic: str, partition: int, batch: bytes | bytearray
) -> Call:
    """Encode a Produce request of version 12 with one batch. It also adds the partition to the
    transaction.
    """
    row = PartitionProduceData(index=partition, records=bytes(batch))
    message = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=topic, partition_data=[row])],
    )
    call = request(message, PRODUCE_ADDS)

    def decode(data: bytes) -> Produced:
        row = call.decode(data).responses[0].partition_responses[0]
        return Produced(row.error_code, row.base_offset, row.log_start_offset)

    return call._replace(decode=decode)


def with_acks(call: Call, acks: int) -> Call:
    """Return the given Produce request with another value of acks."""
    (size,) = _H.unpack_from(call.body, 0)
    at = 2 + max(size, 0)
    return call._replace(
        body=call.body[:at] + _H.pack(acks) + call.body[at + 2 :], is_answered=acks != 0
    )


def _decode_produce(data: bytes) -> Produced:
    (size,) = _H.unpack_from(data, 4)
    at = 6 + size + 4
    _, code, base, _, start = struct.unpack_from(">ihqqq", data, at)
    return Produced(code, base, start)


def throttle_ms_of(call: Call, data: bytes) -> int | None:
    """The throttle time in a response, or None if the response has no such field."""
    if call.api_key == PRODUCE:
        start = 0 if call.api_version < 9 else 1
        return ProduceResponse.read(data, start, call.api_version)[0].throttle_time_ms
    if call.api_key == FETCH:
        return int(_I.unpack_from(data, 0 if call.api_version < 12 else 1)[0])
    return getattr(call.decode(data), "throttle_time_ms", None)


class Fetched(NamedTuple):
    """The result of a Fetch for one partition. `aborted` has pairs (producer_id, first_offset); it
    is empty for read_uncommitted. If the reader's log diverges from this log, `diverging` has the
    latest common leader epoch and the offset where it ends.
    """

    topic: str
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]]
    records: bytes
    diverging: tuple[int, int] | None = None


class FetchAnswer(NamedTuple):
    """A whole Fetch response."""

    error_code: int
    session_id: int
    partitions: list[Fetched]


def fetch(
    targets: Sequence[tuple[str, int, int] | tuple[str, int, int, int]],
    *,
    committed: bool,
    max_wait_ms: int,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    session_id: int = 0,
    session_epoch: int = -1,
    forgotten: tuple[tuple[str, int], ...] = (),
) -> Call:
    """Encode a Fetch request. Each of `targets` is (topic, partition, offset), followed by the
    leader epoch that the client knows if it follows epochs.
    """
    parts = [
        _FETCH_HEAD.pack(
            -1, max_wait_ms, min_bytes, max_bytes, 1 if committed else 0, session_id, session_epoch
        )
    ]
    parts.append(_I.pack(len(targets)))
    for topic, partition, offset, *epoch in targets:
        name = topic.encode()
        current = epoch[0] if epoch else -1
        parts.append(
            _H.pack(len(name))
            + name
            + struct.pack(">iiiqqi", 1, partition, current, offset, -1, partition_max_bytes)
        )
    parts.append(_I.pack(len(forgotten)))
    for topic, partition in forgotten:
        name = topic.encode()
        parts.append(_H.pack(len(name)) + name + struct.pack(">ii", 1, partition))
    parts.append(_H.pack(0))
    about = [target[:2] for target in targets]
    return Call("Fetch", FETCH, FETCH_VERSION, b"".join(parts), _decode_fetch, about=about)


def with_last_epochs(call: Call, last_epochs: Sequence[int]) -> Call:
    """Return the given Fetch request in version 12, which adds the leader epoch of the last record
    that the client read from each partition, or -1 if it read none (KIP-595).
    """
    (old, _) = FetchRequest.read(call.body, 0, FETCH_VERSION)
    epochs = iter(last_epochs)
    for topic in old.topics:
        for row in topic.partitions:
            row.last_fetched_epoch = next(epochs)
    newer = request(old, FETCH_DIVERGES)

    def decode(data: bytes) -> FetchAnswer:
        answer = newer.decode(data)
        return FetchAnswer(
            answer.error_code,
            answer.session_id,
            [_fetched(topic.topic, row) for topic in answer.responses for row in topic.partitions],
        )

    return newer._replace(decode=decode, about=call.about)


def _fetched(topic: str, row: PartitionData) -> Fetched:
    parts = row.diverging_epoch
    return Fetched(
        topic,
        row.partition_index,
        row.error_code,
        row.high_watermark,
        row.last_stable_offset,
        row.log_start_offset,
        [(one.producer_id, one.first_offset) for one in row.aborted_transactions or ()],
        bytes(row.records or b""),
        None if parts is None or parts.end_offset < 0 else (parts.epoch, parts.end_offset),
    )


def _decode_fetch(data: bytes) -> FetchAnswer:
    _, error_code, session_id, topic_count = struct.unpack_from(">ihii", data, 0)
    at = 14
    found = []
    for _ in range(topic_count):
        (size,) = _H.unpack_from(data, at)
        topic = data[at + 2 : at + 2 + size].decode()
        at += 2 + size
        (count,) = _I.unpack_from(data, at)
        at += 4
        for _ in range(count):
            partition, code, high, stable, start, aborted_count = struct.unpack_from(
                ">ihqqqi", data, at
            )
            at += 34
            aborted = []
            for _ in range(max(aborted_count, 0)):
                aborted.append(struct.unpack_from(">qq", data, at))
                at += 16
            _, size = struct.unpack_from(">ii", data, at)
            at += 8
            records = data[at : at + max(size, 0)]
            at += max(size, 0)
            found.append(Fetched(topic, partition, code, high, stable, start, aborted, records))
    assert at == len(data), f"Fetch: {len(data) - at} bytes are left over"
    return FetchAnswer(error_code, session_id, found)
