"""A group with very many members is described in slices, and the response is nevertheless
consistent.
"""

from __future__ import annotations

from typing import Any

import pytest
from helpers.disk_broker import DiskBroker
from helpers.group_host import GroupHost

from barnabas.coordinator import descriptions
from barnabas.coordinator.descriptions import MEMBERS_AT_ONCE
from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
from barnabas.coordinator.groups.share import share_group_records as share
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from barnabas.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from barnabas.protocol.request_context import RequestContext

MEMBERS = 12 * MEMBERS_AT_ONCE + 1


def large_share_group(b: DiskBroker) -> GroupCoordinator:
    """A coordinator with a large share group, which is loaded from its records as at a start."""
    groups: GroupCoordinator = b.parts.groups
    partition = b.parts.topics.group_partition("g")
    records = [share.epoch_record("g", 1, 0)]
    for number in range(MEMBERS):
        name = f"m{number}"
        records += [
            share.member_record("g", name, share.MemberValue(None, "c", "/192.0.2.7", ("t",))),
            share.current_record("g", name, share.CurrentValue(1, 0, {})),
        ]
    for offset, (key, value) in enumerate(records):
        groups.replay(partition, offset, key, value, None)
    return groups


def finish(work: Any) -> tuple[int, Any]:
    """Run the generator to its end. Gives the number of yields, and the result."""
    count = 0
    try:
        while True:
            next(work)
            count += 1
    except StopIteration as end:
        return count, end.value


def test_the_members_of_a_group_are_described_in_slices() -> None:
    b = DiskBroker()
    b.topic("t")
    groups = large_share_group(b)
    request = ShareGroupDescribeRequest(["g", "none"])
    work: Any = groups.share_requests.describe_groups(request, None)
    slices, answer = finish(work)
    assert slices >= MEMBERS // MEMBERS_AT_ONCE
    assert isinstance(answer, ShareGroupDescribeResponse)
    large, _ = answer.groups
    assert [one.member_id for one in large.members] == [f"m{n}" for n in range(MEMBERS)]


def test_a_description_has_the_members_of_its_first_slice() -> None:
    b = DiskBroker()
    b.topic("t")
    groups = large_share_group(b)
    work: Any = groups.share_requests.describe_groups(ShareGroupDescribeRequest(["g"]), None)
    next(work)
    next(work)
    partition = b.parts.topics.group_partition("g")
    for kind in (share.CURRENT_VERSION, share.MEMBER_VERSION):
        key, value = share.tombstone(kind, "g", f"m{MEMBERS - 1}")
        groups.replay(partition, 10**6, key, value, None)
    _, answer = finish(work)
    (large,) = answer.groups
    assert len(large.members) == MEMBERS and large.members[-1].member_epoch == 1


@pytest.mark.parametrize("kind", ["classic", "consumer", "share", "streams"])
def test_each_kind_of_group_is_described_in_slices(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptions, "MEMBERS_AT_ONCE", 1)
    host = GroupHost()
    names = ["a", "b", "c"]
    for name in names:
        if kind == "classic":
            host.join_later(member="", instance=name)
        elif kind == "consumer":
            host.consumer_heartbeat(name)
        elif kind == "share":
            host.share_heartbeat(name)
        else:
            host.streams_heartbeat(name)
    coordinator, context = host.coordinator, RequestContext(1, 5, "c", "h")
    work: Any = {
        "classic": lambda: coordinator.administration.describe_groups(
            DescribeGroupsRequest(["g"]), context
        ),
        "consumer": lambda: coordinator.administration.describe_consumer_groups(
            ConsumerGroupDescribeRequest(["g"]), context
        ),
        "share": lambda: coordinator.share_requests.describe_groups(
            ShareGroupDescribeRequest(["g"]), context
        ),
        "streams": lambda: coordinator.streams_requests.describe_groups(
            StreamsGroupDescribeRequest(["g"]), context
        ),
    }[kind]()
    breaks, answer = finish(work)
    assert len(answer.groups[0].members) == len(names)
    assert breaks == len(names), "one before the first group, and one before each further member"


def test_members_with_many_topics_are_described_in_more_slices() -> None:
    """A member may have subscribed to thousands of topics. The response has all these names, and is
    encoded by the worker if there was more than one slice.
    """
    host = GroupHost()
    for member in "abc":
        names = [f"t{at}" for at in range(2_000)]
        assert host.consumer_heartbeat(member, subscribed_topic_names=names).error_code == 0
    work: Any = host.coordinator.administration.describe_consumer_groups(
        ConsumerGroupDescribeRequest(["g"]), RequestContext(1, 1, "c", "/h")
    )
    slices, answer = finish(work)
    assert slices >= 3
    assert [len(row.subscribed_topic_names) for row in answer.groups[0].members] == [2_000] * 3
