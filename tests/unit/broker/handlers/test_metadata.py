"""Metadata: topics by name and id, and topics that a request creates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.admin_host import AdminHost, creatable

from barnabas.protocol.errors import Code


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AdminHost]:
    host = AdminHost(tmp_path)
    yield host
    host.close()


def test_a_topic_with_its_partitions(host: AdminHost) -> None:
    host.create(creatable("t", 2))
    (topic,) = host.metadata("t")
    assert (topic.error_code, topic.name, topic.is_internal) == (Code.NONE, "t", False)
    assert [(row.partition_index, row.leader_epoch) for row in topic.partitions] == [(0, 0), (1, 0)]


def test_a_missing_topic_is_created_only_if_the_request_allows_it(host: AdminHost) -> None:
    (topic,) = host.metadata("new")
    assert topic.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert "new" not in host.broker.topics
    host.metadata("new", auto=True)
    assert "new" in host.broker.topics


def test_a_name_that_may_not_be(host: AdminHost) -> None:
    (topic,) = host.metadata("a/b", auto=True)
    assert topic.error_code == Code.INVALID_TOPIC_EXCEPTION
