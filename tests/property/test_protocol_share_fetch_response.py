"""The hand-written response to ShareFetch has the same bytes as the generated message."""

from __future__ import annotations

import struct
import uuid

from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.hot_responses import CurrentLeader, Endpoint
from barnabas.protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from barnabas.protocol.share_fetch_response import SharedPartition, encode_share_fetch

codes = st.integers(-1, 200)
texts = st.none() | st.text(max_size=200)
offsets = st.integers(0, 2**62)
rows = st.builds(
    SharedPartition,
    st.integers(0, 2**31 - 1),
    codes,
    codes,
    texts,
    st.none() | st.binary(max_size=300),
    st.lists(st.tuples(offsets, offsets, st.integers(0, 100)), max_size=4),
    st.none() | st.builds(CurrentLeader, st.integers(-1, 9), st.integers(-1, 9)),
)
topics = st.lists(st.tuples(st.uuids(), st.lists(rows, max_size=4)), max_size=3)
endpoints = st.lists(
    st.builds(Endpoint, st.integers(0, 9), st.text(max_size=9), st.integers(0, 65535), texts),
    max_size=3,
)


@given(topics, endpoints, codes, st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1))
def test_a_share_fetch_response_has_the_bytes_of_the_generated_message(
    of_topics: list[tuple[uuid.UUID, list[SharedPartition]]],
    nodes: list[Endpoint],
    code: int,
    throttle_ms: int,
    lock_ms: int,
) -> None:
    pieces = encode_share_fetch(
        7,
        of_topics,
        error_code=code,
        throttle_time_ms=throttle_ms,
        lock_timeout_ms=lock_ms,
        endpoints=nodes,
    )
    expected = bytearray(struct.pack(">iib", 0, 7, 0))
    ShareFetchResponse(
        throttle_ms,
        code,
        None,
        lock_ms,
        [
            ShareFetchableTopicResponse(
                topic_id,
                [
                    PartitionData(
                        row.index,
                        row.error_code,
                        None,
                        row.acknowledge_error_code,
                        row.acknowledge_error_message,
                        LeaderIdAndEpoch(*(row.leader or (0, 0))),
                        row.records or b"",
                        [AcquiredRecords(*one) for one in row.acquired],
                    )
                    for row in partitions
                ],
            )
            for topic_id, partitions in of_topics
        ],
        [NodeEndpoint(*node) for node in nodes],
    ).write(expected, 2)
    struct.pack_into(">i", expected, 0, len(expected) - 4)
    assert b"".join(bytes(piece) for piece in pieces) == expected  # type: ignore[arg-type]
