"""DeleteGroups with many groups. Other requests are served in between, and each group is in the
response once.
"""

from __future__ import annotations

import pytest
from helpers.disk_broker import READER, DiskBroker

from barnabas.broker.slices import GROUPS_DELETED_AT_ONCE
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

MANY = 2 * GROUPS_DELETED_AT_ONCE + 1


def with_groups(count: int) -> tuple[DiskBroker, list[str]]:
    """Return a broker with `count` groups that have one committed offset each, and their names."""
    b = DiskBroker()
    b.topic("t")
    names = [f"g{number}" for number in range(count)]
    for name in names:
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=1, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=name,
            generation_id_or_member_epoch=-1,
            member_id="",
            retention_time_ms=-1,
            topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
        )
        answer = b.call(request, 2, READER)
        assert answer.topics[0].partitions[0].error_code == Code.NONE
    return b, names


def groups_of(b: DiskBroker) -> set[str]:
    return {group.group_id for group in b.call(ListGroupsRequest(), 2, READER).groups}


def test_few_groups_are_deleted_at_once() -> None:
    b, names = with_groups(2)
    answer = b.call(DeleteGroupsRequest(groups_names=[*names, "none", names[0]]), 2, READER)
    assert [(row.group_id, row.error_code) for row in answer.results] == [
        ("g0", Code.NONE),
        ("g1", Code.NONE),
        ("none", Code.GROUP_ID_NOT_FOUND),
    ]
    assert groups_of(b) == set()
    assert b.call(DeleteGroupsRequest(groups_names=[]), 2, READER).results == []


def test_others_are_served_between_two_slices() -> None:
    b, names = with_groups(MANY)
    deleter = b.connect()
    b.send(deleter, DeleteGroupsRequest(groups_names=names), 2)
    assert b.answer(deleter) is None
    assert groups_of(b) == set(names[GROUPS_DELETED_AT_ONCE:])
    b.tick(1)
    assert b.answer(deleter) is None
    assert groups_of(b) == set(names[2 * GROUPS_DELETED_AT_ONCE :])
    b.tick(1)
    answer = b.answer(deleter)
    assert [(row.group_id, row.error_code) for row in answer.results] == [
        (name, Code.NONE) for name in names
    ]
    assert groups_of(b) == set()


@pytest.mark.parametrize("ticks", [0, 1])
def test_a_kill_between_two_slices_leaves_the_rest(ticks: int) -> None:
    b, names = with_groups(MANY)
    b.send(b.connect(), DeleteGroupsRequest(groups_names=names), 2)
    for _ in range(ticks):
        b.tick(1)
    b.kill()
    left = names[(1 + ticks) * GROUPS_DELETED_AT_ONCE :]
    assert groups_of(b) == set(left)
    answer = b.call(DeleteGroupsRequest(groups_names=names[-1:]), 2, READER)
    assert answer.results[0].error_code == Code.NONE


def test_groups_are_deleted_although_the_client_disconnects() -> None:
    b, names = with_groups(MANY)
    deleter = b.connect()
    b.send(deleter, DeleteGroupsRequest(groups_names=names), 2)
    b.broker.on_closed(deleter)
    b.tick(1)
    b.tick(1)
    assert groups_of(b) == set()
