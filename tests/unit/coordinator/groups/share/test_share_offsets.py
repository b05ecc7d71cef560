"""Setting and deleting the offsets of share groups. The expected responses are those of Apache
Kafka 4.3 (`offsets_of_share_groups_are_set`).
"""

from __future__ import annotations

from typing import Any

import pytest
from helpers.group_host import GroupHost

from barnabas.coordinator.groups.share.share_groups import share_group
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from barnabas.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequestTopic,
)


@pytest.fixture
def host() -> GroupHost:
    return GroupHost(topics={"t": 2, "u": 1})


def alter(host: GroupHost, offsets: dict[str, dict[int, int]], group: str = "g") -> Any:
    """Set start offsets. Gives the error code of each partition, or that of the whole response."""
    topics = [
        AlterShareGroupOffsetsRequestTopic(
            name, [AlterShareGroupOffsetsRequestPartition(*row) for row in of_topic.items()]
        )
        for name, of_topic in offsets.items()
    ]
    answer = host.call("AlterShareGroupOffsets", 0, group_id=group, topics=topics)
    if answer.error_code:
        assert answer.responses == [] and answer.error_message
        return answer.error_code
    return {
        (topic.topic_name, row.partition_index): row.error_code
        for topic in answer.responses
        for row in topic.partitions
    }


def delete(host: GroupHost, *names: str, group: str = "g") -> Any:
    """Delete the offsets of topics. Gives the error code of each topic, or that of the whole
    response.
    """
    topics = [DeleteShareGroupOffsetsRequestTopic(name) for name in names]
    answer = host.call("DeleteShareGroupOffsets", 0, group_id=group, topics=topics)
    if answer.error_code:
        assert answer.responses == [] and answer.error_message
        return answer.error_code
    return {topic.topic_name: topic.error_code for topic in answer.responses}


def starts(host: GroupHost) -> dict[tuple[str | None, int], int]:
    """The start offsets that the share coordinator has, by topic and partition."""
    return {
        (host.directory.name(topic_id), index): offset
        for (_, topic_id, index), offset in host.share_states.offsets.items()
    }


def read_once(host: GroupHost) -> None:
    """Let a member join, get partitions, and leave."""
    host.share_heartbeat("m")
    host.share_heartbeat("m", 2)
    host.share_heartbeat("m", -1)


def test_setting_offsets_of_a_missing_group_creates_it(host: GroupHost) -> None:
    assert alter(host, {"t": {0: 7, 1: -1}}) == {("t", 0): 0, ("t", 1): 0}
    assert starts(host) == {("t", 0): 7, ("t", 1): -1}
    assert host.list_groups() == {"g": ("share", "Empty")}
    described = host.describe_share_group()
    assert (described.group_state, described.group_epoch) == ("Empty", 1)
    assert host.coordinator.share_requests.initialized_partitions("g") == {"t": (0, 1)}
    host.restart()
    assert host.coordinator.share_requests.initialized_partitions("g") == {"t": (0, 1)}
    answer = host.share_heartbeat("m")
    assert host.assigned(answer) == {"t": [0, 1]}  # all are initialised
    assert answer.member_epoch == 2


def test_offsets_are_set_again(host: GroupHost) -> None:
    read_once(host)
    assert alter(host, {"t": {1: 5}}) == {("t", 1): 0}
    assert starts(host) == {("t", 0): -1, ("t", 1): 5}


def test_offsets_may_only_be_changed_for_a_share_group_without_members(host: GroupHost) -> None:
    host.share_heartbeat("m")
    assert alter(host, {"t": {0: 7}}) == Code.NON_EMPTY_GROUP
    assert delete(host, "t") == Code.NON_EMPTY_GROUP
    host.commit("classic", {"t": {0: 1}})
    assert alter(host, {"t": {0: 7}}, "classic") == Code.GROUP_ID_NOT_FOUND
    assert delete(host, "t", group="classic") == Code.GROUP_ID_NOT_FOUND
    assert delete(host, "t", group="none") == Code.GROUP_ID_NOT_FOUND
    assert alter(host, {"t": {0: 7}}, "") == Code.INVALID_GROUP_ID
    assert delete(host, "t", group="") == Code.INVALID_GROUP_ID


def test_unknown_partitions_and_invalid_offsets_are_refused_individually(host: GroupHost) -> None:
    answer = alter(host, {"t": {0: 1, 9: 1}, "none": {0: 1}, "u": {0: -2, -1: 0}})
    unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
    assert answer == {
        ("t", 0): 0,
        ("t", 9): unknown,
        ("none", 0): unknown,
        ("u", 0): Code.INVALID_REQUEST,
        ("u", -1): unknown,
    }
    assert starts(host) == {("t", 0): 1}
    assert alter(host, {"none": {0: 1}}, "h") == {("none", 0): unknown}
    assert host.list_groups().keys() == {"g"}


def test_offsets_are_deleted_by_topics(host: GroupHost) -> None:
    read_once(host)
    unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
    assert delete(host, "t", "u", "none") == {"t": 0, "u": unknown, "none": unknown}
    assert starts(host) == {}
    assert host.coordinator.share_requests.initialized_partitions("g") == {}
    assert delete(host, "t") == {"t": unknown}
    host.share_heartbeat("m")
    answer = host.share_heartbeat("m", 5)
    assert host.assigned(answer) == {"t": [0, 1]}


def test_a_request_waits_until_the_states_are_changed(host: GroupHost) -> None:
    read_once(host)
    host.share_states.at_once = False
    topics = [
        AlterShareGroupOffsetsRequestTopic("t", [AlterShareGroupOffsetsRequestPartition(0, 7)])
    ]
    ticket = host.send("AlterShareGroupOffsets", 0, group_id="g", topics=topics)
    assert ticket not in host.answers
    host.change_states()
    assert host.answers[ticket].responses[0].partitions[0].error_code == Code.NONE
    ticket = host.send(
        "DeleteShareGroupOffsets",
        0,
        group_id="g",
        topics=[DeleteShareGroupOffsetsRequestTopic("t")],
    )
    assert ticket not in host.answers
    host.change_states()
    assert host.answers[ticket].responses[0].error_code == Code.NONE


def test_errors_of_the_share_coordinator_are_in_the_response(host: GroupHost) -> None:
    read_once(host)
    host.share_states.failing = Code.FENCED_STATE_EPOCH
    assert alter(host, {"t": {0: 7}}) == {("t", 0): Code.FENCED_STATE_EPOCH}
    assert delete(host, "t") == {"t": Code.FENCED_STATE_EPOCH}
    host.share_states.failing = Code.NONE
    assert delete(host, "t") == {"t": Code.NONE}, "an earlier deletion is done again"
    assert starts(host) == {}


def test_states_left_by_a_kill_are_deleted_with_their_group(
    host: GroupHost,
) -> None:
    read_once(host)
    host.share_states.at_once = False
    ticket = host.send(
        "DeleteShareGroupOffsets",
        0,
        group_id="g",
        topics=[DeleteShareGroupOffsetsRequestTopic("t")],
    )
    host.share_states.pending.clear()
    host.restart()
    host.share_states.at_once = True
    assert ticket not in host.answers and len(starts(host)) == 2
    assert host.delete_groups("g") == [("g", Code.NONE)]
    assert starts(host) == {}


def test_offsets_that_are_set_after_a_deletion_was_cut_short_are_not_deleted(
    host: GroupHost,
) -> None:
    """Setting the offsets must also remove the topic from the record's list of topics whose states
    are being deleted: Apache Kafka deletes the states of all topics in this list.
    """
    read_once(host)
    host.share_states.at_once = False
    topics = [DeleteShareGroupOffsetsRequestTopic("t")]
    host.send("DeleteShareGroupOffsets", 0, group_id="g", topics=topics)
    host.share_states.pending.clear()
    host.restart()
    host.share_states.at_once = True
    assert set(alter(host, {"t": {0: 5, 1: 6}}).values()) == {Code.NONE}
    states = share_group(host.coordinator.group("g")).states  # type: ignore[arg-type]
    assert (states.initializing, states.deleting) == ({}, {})
    assert starts(host) == {("t", 0): 5, ("t", 1): 6}


def test_states_initialised_before_a_kill_are_deleted_with_their_group(host: GroupHost) -> None:
    """The kill comes after the share coordinator has initialised the states, and before the group
    has stored a record of this.
    """
    host.share_states.at_once = False
    host.share_heartbeat("m")
    (change,) = host.share_states.pending
    assert host.share_states.carry_out(change, host.directory) == [Code.NONE] * 2
    host.share_states.pending.clear()
    host.restart()
    host.share_states.at_once = True
    host.share_heartbeat("m", -1)
    assert len(starts(host)) == 2
    assert host.delete_groups("g") == [("g", Code.NONE)]
    assert starts(host) == {}


def test_a_group_that_is_deleted_while_its_states_are_set_stays_deleted(host: GroupHost) -> None:
    read_once(host)
    host.share_states.at_once = False
    topics = [
        AlterShareGroupOffsetsRequestTopic("t", [AlterShareGroupOffsetsRequestPartition(0, 7)])
    ]
    ticket = host.send("AlterShareGroupOffsets", 0, group_id="g", topics=topics)
    waiting = list(host.share_states.pending)
    host.share_states.pending.clear()
    assert host.delete_groups("g") == [("g", Code.NONE)]
    host.share_states.pending = waiting
    host.change_states()
    assert ticket in host.answers
    assert host.coordinator.all_groups() == []
    assert not [key for key, offset in host.share_states.offsets.items() if offset == 7]


def test_states_left_by_an_earlier_group_of_the_same_name_are_deleted(host: GroupHost) -> None:
    """The remaining states have a higher state epoch than the new group. The share coordinator
    would refuse the new group's requests.
    """
    host.share_states.failing = Code.FENCED_STATE_EPOCH
    known = host.directory.topic("t")
    assert known is not None
    host.share_states.offsets = {("g", known[0], 0): 7}
    host.share_states.at_once = False
    host.share_heartbeat("m")
    change = host.share_states.pending.pop()
    codes = host.share_states.carry_out(change, host.directory)
    host.share_states.failing = Code.NONE
    host.handle(host.coordinator.share_offsets.on_states_changed(change, codes))
    (deletion,) = host.share_states.pending
    assert deletion.is_deletion and [row.partition for row in deletion.rows] == [0, 1]
    host.change_states()
    assert starts(host) == {}
    host.share_states.at_once = True
    host.share_heartbeat("m", 2)
    assert host.assigned(host.share_heartbeat("m", 2)) == {"t": [0, 1]}
