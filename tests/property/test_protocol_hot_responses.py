"""The hand-written responses to Produce and Fetch have the same bytes as kafka-python's."""

from __future__ import annotations

import struct
import uuid
from typing import Any

from helpers import kafka_messages as messages
from hypothesis import given
from hypothesis import strategies as st

from barnabas.protocol.hot_responses import (
    CurrentLeader,
    FetchedPartition,
    ProducedPartition,
    encode_fetch,
    encode_produce,
)

int16 = st.integers(-1, 2**15 - 1)
int32 = st.integers(-1, 2**31 - 1)
int64 = st.integers(-1, 2**63 - 1)
names = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=40)
errors = st.lists(st.tuples(int32, st.none() | names), max_size=3)
accepted = st.builds(
    ProducedPartition,
    int32,
    st.just(0),
    int64,
    int64,
    int64,
    st.just([]),
    st.none(),
    st.none(),
)
refused = st.builds(
    ProducedPartition,
    int32,
    int16.filter(bool),
    int64,
    int64,
    int64,
    errors,
    st.none() | names,
    st.none(),
)
produced = accepted | refused
fetched = st.builds(
    FetchedPartition,
    int32,
    int16,
    int64,
    int64,
    int64,
    st.none() | st.lists(st.tuples(int64, int64), max_size=3),
    st.none() | st.binary(min_size=1, max_size=300),
    diverging_epoch=st.none(),
    current_leader=st.none(),
)
diverging = st.builds(
    lambda p, epoch, end: p._replace(diverging_epoch=(epoch, end)), fetched, int32, int64
)
with_leader = st.builds(
    lambda p, code, leader, epoch: p._replace(
        error_code=code, current_leader=CurrentLeader(leader, epoch)
    ),
    fetched,
    int16.filter(bool),
    int32,
    int32,
)


def framed(response: Any, correlation_id: int, version: int) -> bytes:
    """kafka-python's encoded response, with the size and the header."""
    body = bytes(response.encode(version=version))
    tags = b"\0" if response.flexible_version_q(version) else b""
    return struct.pack(">ii", 4 + len(tags) + len(body), correlation_id) + tags + body


@given(
    int32,
    st.integers(0, 13),
    st.lists(st.tuples(names, st.uuids(), st.lists(produced, max_size=3)), max_size=3),
    int32,
)
def test_produce(correlation_id: int, version: int, topics: Any, throttle_time_ms: int) -> None:
    response_class = messages.ProduceResponse
    topic_class = response_class.TopicProduceResponse
    partition_class = topic_class.PartitionProduceResponse
    response = response_class(
        responses=[
            topic_class(
                **({"topic_id": topic_id} if version >= 13 else {"name": name}),
                partition_responses=[
                    partition_class(
                        index=p.index,
                        error_code=p.error_code,
                        base_offset=p.base_offset,
                        log_append_time_ms=p.log_append_time_ms,
                        log_start_offset=p.log_start_offset,
                        record_errors=[
                            partition_class.BatchIndexAndErrorMessage(
                                batch_index=index, batch_index_error_message=message
                            )
                            for index, message in p.record_errors
                        ],
                        error_message=p.error_message,
                    )
                    for p in partitions
                ],
            )
            for name, topic_id, partitions in topics
        ],
        throttle_time_ms=throttle_time_ms,
    )
    keyed = [(topic[1] if version >= 13 else topic[0], topic[2]) for topic in topics]
    assert encode_produce(correlation_id, version, keyed, throttle_time_ms) == framed(
        response, correlation_id, version
    )


@given(
    int32,
    st.integers(4, 17),
    st.lists(
        st.tuples(names, st.uuids(), st.lists(fetched | diverging | with_leader, max_size=3)),
        max_size=3,
    ),
    int16,
    int32,
)
def test_fetch(
    correlation_id: int, version: int, topics: Any, error_code: int, session_id: int
) -> None:
    response_class = messages.FetchResponse
    topic_class = response_class.FetchableTopicResponse
    partition_class = topic_class.PartitionData

    def partition(p: FetchedPartition) -> Any:
        fields: dict[str, Any] = {}
        if p.current_leader is not None and version >= 12:
            leader_id, leader_epoch = p.current_leader
            fields["current_leader"] = partition_class.LeaderIdAndEpoch(
                leader_id=leader_id, leader_epoch=leader_epoch
            )
        if p.diverging_epoch is not None and version >= 12:
            epoch, end_offset = p.diverging_epoch
            fields["diverging_epoch"] = partition_class.EpochEndOffset(
                epoch=epoch, end_offset=end_offset
            )
        return partition_class(
            partition_index=p.index,
            error_code=p.error_code,
            high_watermark=p.high_watermark,
            last_stable_offset=p.last_stable_offset,
            log_start_offset=p.log_start_offset,
            aborted_transactions=None
            if p.aborted is None
            else [
                partition_class.AbortedTransaction(producer_id=pid, first_offset=first)
                for pid, first in p.aborted
            ],
            preferred_read_replica=-1,
            records=p.records or b"",
            **fields,
        )

    response = response_class(
        throttle_time_ms=0,
        error_code=error_code,
        session_id=session_id,
        responses=[
            topic_class(
                topic=name, topic_id=topic_id, partitions=[partition(p) for p in partitions]
            )
            for name, topic_id, partitions in topics
        ],
    )
    keyed: list[tuple[str | uuid.UUID, Any]] = [
        (t[1] if version >= 13 else t[0], t[2]) for t in topics
    ]
    pieces = encode_fetch(
        correlation_id, version, keyed, error_code=error_code, session_id=session_id
    )
    assert b"".join(bytes(piece) for piece in pieces) == framed(response, correlation_id, version)  # type: ignore[arg-type]
