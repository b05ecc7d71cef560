"""The response to a Fetch before version 4. It has messages in an older format, made from the
batches that were read.

They are made in the event loop, while all other clients wait. So a response has at most
`MOST_BYTES` of messages, except that the first message may be larger; later requests get the rest.
Such clients do not rotate their partitions, as later ones do (KIP-74), so each response begins with
a different partition.

Markers, and batches that compaction has emptied, give no messages. A client that gets no message
would request the same offset for ever, so reading continues after such batches.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from barnabas.broker.requests.fetch_sessions import FetchTarget
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.hot_responses import FetchedPartition
from barnabas.protocol.message_sets import MOST_BYTES, TIMES_IN_FETCH, downgraded
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.log.log import Log

_FRAME = struct.Struct(">ii")


def encode_older(
    context: RequestContext,
    topics: Sequence[tuple[Any, Sequence[FetchedPartition]]],
    logs: Sequence[tuple[FetchTarget, Log]],
    throttle_ms: int,
) -> bytes:
    """The whole frame of a response of version 0 to 3.

    Takes: topics, the topics of the response in its latest version; logs, the logs that were read.
    """
    version = context.api_version
    sources = {(target.topic, target.index): (target, log) for target, log in logs}
    readable = [
        (name, row.index) for name, rows in topics for row in rows if row.records is not None
    ]
    # The size of a response is limited, so each request begins with another partition. Otherwise
    # the same partitions would be left out every time.
    begin = context.correlation_id % len(readable) if readable else 0
    converted: dict[tuple[Any, int], tuple[int, bytes]] = {}
    left = MOST_BYTES
    for key in readable[begin:] + readable[:begin]:
        if left <= 0:
            break
        converted[key] = _converted(*sources[key], int(version >= TIMES_IN_FETCH), left)
        left -= len(converted[key][1])
    responses = []
    for name, rows in topics:
        partitions = []
        for row in rows:
            code, messages = converted.get((name, row.index), (row.error_code, b""))
            partitions.append(
                PartitionData(
                    partition_index=row.index,
                    error_code=code,
                    high_watermark=row.high_watermark,
                    records=messages,
                )
            )
        responses.append(FetchableTopicResponse(topic=name, partitions=partitions))
    body = FetchResponse(throttle_time_ms=throttle_ms, responses=responses).encode(version)
    return _FRAME.pack(4 + len(body), context.correlation_id) + body


def _converted(target: FetchTarget, log: Log, magic: int, most_bytes: int) -> tuple[int, bytes]:
    """A partition's error code, and its messages from the requested offset on."""
    most_bytes = min(most_bytes, target.partition_max_bytes)
    offset = target.fetch_offset
    try:
        while True:
            data = log.read(offset, max_bytes=most_bytes, min_one_batch=True)[0]
            if data is None:
                return Code.NONE, b""
            batches = data.file.pread(data.size, data.position)
            messages, next_offset = downgraded(batches, magic, offset, most_bytes)
            # Return if there are messages. Otherwise continue with the next batches: control
            # batches, for example, contain no messages.
            if messages or next_offset <= offset:
                return Code.NONE, messages
            offset = next_offset
    except KafkaError as error:
        return error.code, b""
