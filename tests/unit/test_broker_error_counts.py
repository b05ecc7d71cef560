"""Errors are counted where they are answered, each partition's by itself."""

from __future__ import annotations

from pathlib import Path

from helpers.core_host import CoreHost, fetch, produce

from barnabas.broker.observation.error_counts import ErrorCounts
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic


def test_errors_are_counted_where_they_are_answered(tmp_path: Path) -> None:
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
