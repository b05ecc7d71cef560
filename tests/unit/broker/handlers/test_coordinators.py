"""FindCoordinator returns this broker for every key."""

from __future__ import annotations

from pathlib import Path

from helpers.admin_host import HOST, NODE_ID, PORT, AdminHost

from barnabas.coordinator.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest


def test_the_coordinator_is_this_broker_and_its_topic_is_made(tmp_path: Path) -> None:
    host = AdminHost(tmp_path)
    for kind, topic in ((0, OFFSETS_TOPIC), (1, TRANSACTIONS_TOPIC)):
        assert topic not in host.broker.topics
        answer = host.call(FindCoordinatorRequest(key="k", key_type=kind), 2)
        assert (answer.error_code, answer.node_id) == (Code.NONE, NODE_ID)
        assert (answer.host, answer.port) == (HOST, PORT)
        assert topic in host.broker.topics
    host.close()


def test_several_keys_in_a_request_and_an_unknown_key_type(tmp_path: Path) -> None:
    host = AdminHost(tmp_path)
    answer = host.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b"]), 4)
    assert [(row.key, row.node_id) for row in answer.coordinators] == [
        ("a", NODE_ID),
        ("b", NODE_ID),
    ]
    answer = host.call(FindCoordinatorRequest(key_type=7, coordinator_keys=["a"]), 4)
    assert [(row.error_code, row.node_id) for row in answer.coordinators] == [
        (Code.INVALID_REQUEST, -1)
    ]
    host.close()
