"""Decodes a request and its response, and converts them to plain values for a test.

The module does no I/O.
"""

from __future__ import annotations

import difflib
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from barnabas.protocol.api import Api
from barnabas.protocol.api_table import BY_KEY
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.framing import decode_response, read_request_header
from barnabas.protocol.message_classes import message_class
from barnabas.protocol.messages.fetch import FetchRequest, ForgottenTopic
from barnabas.protocol.messages.message import Message
from barnabas.protocol.records import batches_in

SHOWN_BYTES = 32
_GROUP_FIELDS = ("group_id",)
_TRANSACTION_FIELDS = ("transactional_id", "v3_and_below_transactional_id")
_PARTITION_FIELDS = ("index", "partition_index", "partition")


class ObservedRequest(NamedTuple):
    """A request of one connection.

    topics: the topics that the request contains, by name (or by id as text), with their partitions.
    body: None if it cannot be decoded.
    """

    api: Api
    version: int
    correlation_id: int
    client_id: str
    body: Message | None
    topics: dict[str, set[int]]
    groups: set[str]
    transactional_ids: set[str]


def observe(frame: memoryview) -> ObservedRequest | None:
    """The request in a frame without the size field; None for an unknown API or version."""
    try:
        header = read_request_header(frame)
    except Exception:  # the broker itself reports the invalid request
        return None
    if header.api is None:
        return None
    try:
        request_class = message_class(header.api, "Request")
        body: Message | None = request_class.read(frame, header.body_start, header.api_version)[0]
    except (ValueError, IndexError, struct.error):
        body = None
    topics: dict[str, set[int]] = {}
    texts: dict[str, set[str]] = {}
    if body is not None:
        _collect(body, None, topics, texts)
    return ObservedRequest(
        header.api,
        header.api_version,
        header.correlation_id,
        header.client_id,
        body,
        topics,
        set().union(*(texts.get(name, set()) for name in _GROUP_FIELDS)),
        set().union(*(texts.get(name, set()) for name in _TRANSACTION_FIELDS)),
    )


def with_fetch_session(
    request: ObservedRequest, remembered: Iterable[tuple[str | UUID, int]]
) -> ObservedRequest:
    """A Fetch, to which the partitions of its fetch session are added.

    Takes: remembered, the session's partitions, each as a topic (its name or id) and an index.
    """
    assert isinstance(request.body, FetchRequest)
    forgotten = {
        (topic.topic or str(topic.topic_id), partition)
        for topic in request.body.forgotten_topics_data or ()
        for partition in topic.partitions
    }
    topics = {name: set(partitions) for name, partitions in request.topics.items()}
    for topic, partition in remembered:
        if (str(topic), partition) not in forgotten:
            topics.setdefault(str(topic), set()).add(partition)
    return request._replace(topics=topics)


def _collect(
    message: Message,
    topic: str | None,
    topics: dict[str, set[int]],
    texts: dict[str, set[str]],
) -> None:
    """Collect the topics, partitions, groups and transactional ids in a message and in its nested
    messages.
    """
    if isinstance(message, ForgottenTopic):
        return  # these topics are removed from a fetch session
    values = {name: getattr(message, name) for name in message.__slots__}
    for name in (*_GROUP_FIELDS, *_TRANSACTION_FIELDS):
        if isinstance(values.get(name), str) and values[name]:
            texts.setdefault(name, set()).add(values[name])
    if "Topic" in type(message).__name__:
        topic = values.get("name") or values.get("topic") or str(values.get("topic_id") or "")
    if topic:
        partitions = topics.setdefault(topic, set())
        partitions.update(_partitions_in(values))
    for name, value in values.items():
        for item in value if isinstance(value, list) else ():
            if isinstance(item, Message):
                _collect(item, topic, topics, texts)
            elif isinstance(item, str) and name == "topic_names":
                topics.setdefault(item, set())


def _partitions_in(values: Mapping[str, Any]) -> Iterator[int]:
    """The partitions in the fields of a message, as single numbers or in lists."""
    for name in _PARTITION_FIELDS:
        if isinstance(values.get(name), int):
            yield values[name]
    for name, value in values.items():
        if name.startswith("partition") and isinstance(value, list):
            yield from (item for item in value if isinstance(item, int))


def answer_of(request: ObservedRequest, frame: bytes) -> Message | None:
    """The decoded response in a frame that includes the size field; None if it cannot be
    decoded.
    """
    try:
        return decode_response(message_class(request.api, "Response"), frame[4:], request.version)[
            1
        ]
    except (ValueError, IndexError, struct.error):
        return None


def plain(value: Any) -> Any:
    """A message as dictionaries, lists, numbers and texts, for JSON.

    Records are replaced by the headers of their batches, and other bytes by their length and the
    first bytes.
    """
    if isinstance(value, Message):
        return {
            name: _records(getattr(value, name))
            if name == "records"
            else plain(getattr(value, name))
            for name in value.__slots__
        }
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return {"bytes": len(value), "hex": bytes(value[:SHOWN_BYTES]).hex()}
    if isinstance(value, UUID):
        return str(value)
    return value


def _records(data: Any) -> Any:
    """The records of a message as their size and the headers of their batches."""
    if data is None:
        return None
    return {"bytes": len(data), "batches": list(_batches(bytes(data)))}


def _batches(data: bytes) -> Iterator[dict[str, Any]]:
    """The headers of the batches in data. If a batch is unreadable, the last entry is the error."""
    try:
        for _, header in batches_in(data):
            yield {
                "base_offset": header.base_offset,
                "records": header.record_count,
                "producer_id": header.producer_id,
                "producer_epoch": header.producer_epoch,
                "base_sequence": header.base_sequence,
                "transactional": header.is_transactional,
                "control": header.is_control,
            }
    except (KafkaError, ValueError, IndexError, struct.error) as error:
        yield {"unreadable": str(error)}


def error_codes(answer: Message | None) -> list[str]:
    """The names of the errors in a response, in the order of their first occurrence."""
    names: dict[str, None] = {}

    def collect(message: Message) -> None:
        for name in message.__slots__:
            value = getattr(message, name)
            if name in ("error_code", "partition_error_code") and value:
                names[Code(value).name] = None
            for item in value if isinstance(value, list) else ():
                if isinstance(item, Message):
                    collect(item)

    if answer is not None:
        collect(answer)
    return list(names)


def api_named(name: str) -> Api:
    """The API with the given name. Raises: ValueError, which suggests the most similar names."""
    for api in BY_KEY.values():
        if api.name.lower() == name.lower():
            return api
    near = difflib.get_close_matches(name, [api.name for api in BY_KEY.values()])
    raise ValueError(f"unknown API {name!r}{': perhaps ' + ' or '.join(near) if near else ''}")
