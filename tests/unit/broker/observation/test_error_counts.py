"""Errors are counted when the response is sent, once for each partition."""

from __future__ import annotations

from pathlib import Path

from helpers.core_host import CoreHost, fetch, produce

from barnabas.broker.observation.error_counts import ErrorCounts
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic


def test_errors_are_counted_by_request_and_partition(tmp_path: Path) -> None:
    host = CoreHost(tmp_path, auto_create_topics_enable="false")
    errors = host.broker.requests.errors = ErrorCounts()
    host.connect(1)
    host.create("t", 2)
    host.call(1, produce("t"), 9)
    host.call(1, fetch({"t": {0: 0}}), 11)
    assert errors.counts == {}
    host.call(1, produce("t", partition=7), 9)
    host.call(1, fetch({"t": {0: 99, 1: 98}}), 11)
    host.call(1, fetch({"t": {0: 0}}, session=(5, 5)), 11)
    host.call(1, MetadataRequest(topics=[MetadataRequestTopic(name="nowhere")]), 9)
    host.call(1, HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 3)
    named = {(api, Code(code).name): count for (api, code), count in errors.counts.items()}
    assert named == {
        (0, "UNKNOWN_TOPIC_OR_PARTITION"): 1,
        (1, "OFFSET_OUT_OF_RANGE"): 2,
        (1, "FETCH_SESSION_ID_NOT_FOUND"): 1,
        (3, "UNKNOWN_TOPIC_OR_PARTITION"): 1,
        (12, "UNKNOWN_MEMBER_ID"): 1,
    }
    host.close()


def test_the_counts_of_the_worker_are_added_to_those_of_the_core() -> None:
    """The worker counts errors when it encodes a long response."""
    here, there = ErrorCounts(), ErrorCounts()
    for counts, codes in ((here, (3, 3, 6)), (there, (3, 7))):
        for code in codes:
            counts.count(0, code)
    there.count(1, 3)
    here.add(there)
    here.add(ErrorCounts())
    assert here.counts == {(0, 3): 3, (0, 6): 1, (0, 7): 1, (1, 3): 1}
    assert there.counts == {(0, 3): 1, (0, 7): 1, (1, 3): 1}


def test_errors_of_rows_that_are_encoded_by_hand_are_counted() -> None:
    errors = ErrorCounts()
    rows = [HeartbeatResponse(error_code=code) for code in (0, 25, 0, 25, 27)]
    errors.count_rows(12, rows)
    errors.count_rows(12, rows[:2])
    assert errors.counts == {(12, 25): 3, (12, 27): 1}
