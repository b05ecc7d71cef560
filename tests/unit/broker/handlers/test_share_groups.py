"""Share groups on a whole broker: members, start offsets, and the state after a kill, compared with
Apache Kafka 4.3 (`offsets_of_share_groups_are_set`, `kinds_of_groups_do_not_mix`).
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.admin_host import NODE_ID, AdminHost
from helpers.disk_broker import READER, DiskBroker
from helpers.repeating import repeat_until
from sim.disk import Refusal

from barnabas.broker.groups.group_topics import short_text
from barnabas.broker.handlers.coordinators import share_key
from barnabas.broker.observe import (
    NO_OFFSET,
    CommittedOffsetState,
    GroupState,
    look_at_groups,
)
from barnabas.broker.observe_groups import describe_members
from barnabas.broker.share_partitions.state_changes import StateChanges
from barnabas.coordinator.internal_topics import SHARE_STATE_TOPIC
from barnabas.coordinator.result import StateChange, StateRow, partition_for
from barnabas.coordinator.share_states.share_records import SharePartitionKey
from barnabas.coordinator.share_states.share_state import Change, LeaderWrite
from barnabas.group_lag import Situation
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.storage.disk import NotWrittenError

FEW = {
    "share_coordinator_state_topic_num_partitions": "4",
    "group_share_assignment_interval_ms": "0",
}
RECORDS = 20


def broker(partitions: int = 2, **settings: str) -> tuple[DiskBroker, uuid.UUID]:
    """A broker with a topic that has some records, and the topic's id."""
    b = DiskBroker(**{**FEW, **settings})
    b.broker.topics.create_topic("t", partitions, {"retention.ms": "-1"}, now_ms=b.now_ms)
    for _ in range(RECORDS):
        b.produce("t", (b"x",))
    b.sync("t-")
    topic = b.broker.metadata.topic("t")
    assert topic is not None
    return b, topic.topic_id


def beat(b: DiskBroker, epoch: int = 0, member: str = "m", group: str = "g") -> Any:
    """Send a heartbeat; epoch 0 joins the group. Gives the response."""
    names = ["t"] if epoch == 0 else None
    answer = b.call(ShareGroupHeartbeatRequest(group, member, epoch, None, names), 1)
    for _ in range(50):  # the group now decides on its partitions, with flushes in between
        b.tick()
    return answer


def join(b: DiskBroker, group: str = "g") -> list[int]:
    """Join the group as a member. Gives the numbers of the assigned partitions."""
    first = beat(b, group=group)
    assert first.error_code == Code.NONE, first
    answer = beat(b, first.member_epoch, group=group)
    rows = (answer.assignment or first.assignment).topic_partitions
    return [index for row in rows for index in row.partitions]


def leave(b: DiskBroker, group: str = "g") -> None:
    assert beat(b, -1, group=group).error_code == Code.NONE


def offsets(b: DiskBroker, topics: dict[str, list[int]] | None, group: str = "g") -> Any:
    """The (start, lag, code) of each partition in the response."""
    rows = (
        None
        if topics is None
        else [DescribeShareGroupOffsetsRequestTopic(*row) for row in topics.items()]
    )
    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group, rows)])
    b.send(READER, request, 1)
    for _ in range(50):
        if b.answer(READER) is None:
            b.tick()
    (answer,) = b.answer(READER).groups
    assert (answer.group_id, answer.error_code) == (group, Code.NONE)
    return {
        (topic.topic_name, row.partition_index): (row.start_offset, row.lag, row.error_code)
        for topic in answer.topics
        for row in topic.partitions
    }


def alter_request(group: str = "g", **starts: int) -> AlterShareGroupOffsetsRequest:
    rows = [
        AlterShareGroupOffsetsRequestPartition(int(name.removeprefix("p")), start)
        for name, start in starts.items()
    ]
    return AlterShareGroupOffsetsRequest(group, [AlterShareGroupOffsetsRequestTopic("t", rows)])


def alter(b: DiskBroker, group: str = "g", **starts: int) -> Any:
    """Set start offsets. Gives: the error code of the response, or the code of each partition."""
    b.send(READER, alter_request(group, **starts), 0)
    b.tick()
    answer = b.answer(READER)
    assert answer is not None
    return answer.error_code or [row.error_code for row in answer.responses[0].partitions]


def delete_offsets(b: DiskBroker, name: str = "t", group: str = "g") -> int:
    """Delete the group's offsets of a topic. Gives the error code."""
    topics = [DeleteShareGroupOffsetsRequestTopic(name)]
    b.send(READER, DeleteShareGroupOffsetsRequest(group, topics), 0)
    b.tick()
    answer = b.answer(READER)
    assert answer is not None
    code: int = answer.error_code or answer.responses[0].error_code
    return code


def delete_groups(b: DiskBroker, *names: str) -> dict[str, int]:
    """Delete groups. Gives the error code of each."""
    b.send(READER, DeleteGroupsRequest(list(names)), 2)
    for _ in range(50):
        b.tick()
    answer = b.answer(READER)
    assert answer is not None
    return {row.group_id: row.error_code for row in answer.results}


def state(b: DiskBroker, topic_id: uuid.UUID, partition: int = 0, group: str = "g") -> Any:
    key = SharePartitionKey(group, topic_id.bytes, partition)
    return b.broker.shares.get().coordinator.state(key)


def test_states_of_share_partitions_survive_a_kill_and_a_power_loss() -> None:
    b, topic_id = broker()
    assert join(b) == [0, 1]
    for crash in (b.kill, b.lose_power):
        crash()
        for partition in (0, 1):
            assert state(b, topic_id, partition).start_offset == -1
        described = b.call(ShareGroupDescribeRequest(["g"]), 1).groups[0]
        assert described.group_state == "Stable"
        initialized = b.broker.groups.share_requests.initialized_partitions("g")
        assert initialized == {"t": (0, 1)}, (
            "partitions that are not listed would be initialised again"
        )
        assert join(b) == [0, 1]


def test_share_group_offsets_are_described_with_their_lags() -> None:
    b, topic_id = broker()
    join(b)
    assert offsets(b, None) == {("t", 0): (-1, -1, 0), ("t", 1): (-1, -1, 0)}
    leave(b)
    assert alter(b, p0=7, p9=1) == [Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert offsets(b, {"t": [0]}) == {("t", 0): (7, RECORDS - 7, 0)}
    shares = b.broker.shares.get()
    key = SharePartitionKey("g", topic_id.bytes, 0)
    shares.runtime.store(
        [shares.coordinator.decide_write(key, LeaderWrite(-1, -1, 10, 2, []), b.now_ms)],
        lambda _: None,
        b.now_ms,
    )
    # The start offset is 10, and two further records are finished.
    assert offsets(b, {"t": [0]}) == {("t", 0): (10, RECORDS - 12, 0)}
    unknown = (-1, -1, 0)
    assert offsets(b, {"t": [9], "none": [0]}) == {("t", 9): unknown, ("none", 0): unknown}
    assert offsets(b, {}) == {}
    assert offsets(b, {"t": [0]}, "other") == {("t", 0): unknown}
    assert offsets(b, None, "other") == {}


def seen_groups(b: DiskBroker) -> tuple[GroupState, ...]:
    """The states of groups as metrics and the console show them."""
    look = look_at_groups(b.broker.groups, b.broker.topics, b.broker.shares)
    while True:
        try:
            next(look)
        except StopIteration as end:
            found: tuple[GroupState, ...] = end.value
            return found


def test_metrics_and_the_console_see_start_offsets_lags_and_members() -> None:
    b, topic_id = broker()
    join(b)
    (group,) = seen_groups(b)
    not_started = [
        CommittedOffsetState(
            "t", index, NO_OFFSET, None, is_of_share_group=True,
            situation=Situation.NOT_STARTED, is_assigned=True,
        )
        for index in range(2)
    ]  # fmt: skip
    assert group == GroupState("g", "Stable", 1, tuple(not_started), 0, "share")
    assert group.status == "no record of 2 partitions delivered yet"
    (member,) = describe_members(b.broker.groups, "g")
    assert (member["member_id"], member["assignment"]) == ("m", [["t", 0], ["t", 1]])
    shares = b.broker.shares.get()
    key = SharePartitionKey("g", topic_id.bytes, 0)
    written = LeaderWrite(-1, 0, 10, 2, [])
    change = shares.coordinator.decide_write(key, written, b.now_ms)
    shares.runtime.store([change], lambda _: None, b.now_ms)
    (group,) = seen_groups(b)
    assert group.offsets == (
        CommittedOffsetState("t", 0, 10, RECORDS - 12, is_of_share_group=True, is_assigned=True),
        not_started[1],
    )
    shares.runtime.store(
        [
            shares.coordinator.decide_write(
                key, written._replace(delivery_complete_count=-1), b.now_ms
            )
        ],
        lambda _: None,
        b.now_ms,
    )
    assert seen_groups(b)[0].offsets[0].lag is None, "the state has no count of finished records"


def test_the_lag_of_a_partition_that_is_off_line_is_unknown() -> None:
    b, _ = broker()
    assert alter(b, p0=7) == [Code.NONE]
    # A partition without a log is off line.
    b.broker.topics._partitions["t"][0] = None
    assert offsets(b, {"t": [0]}) == {("t", 0): (0, -1, Code.KAFKA_STORAGE_ERROR)}


def test_share_group_offsets_are_set_and_deleted_only_without_members() -> None:
    b, topic_id = broker()
    join(b)
    assert alter(b, p0=7) == Code.NON_EMPTY_GROUP
    assert delete_offsets(b) == Code.NON_EMPTY_GROUP
    leave(b)
    assert alter(b, p0=7) == [Code.NONE]
    b.lose_power()
    assert state(b, topic_id).start_offset == 7, "the response was sent after the flush"
    assert delete_offsets(b) == Code.NONE
    b.lose_power()
    assert state(b, topic_id) is None
    assert offsets(b, {"t": [0]}) == {("t", 0): (-1, -1, 0)}
    assert delete_offsets(b) == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert delete_offsets(b, group="none") == Code.GROUP_ID_NOT_FOUND
    assert join(b) == [0, 1]


def test_a_request_to_set_offsets_is_answered_when_they_are_on_the_disk() -> None:
    b, topic_id = broker()
    b.hold_flushes()
    b.send(READER, alter_request(p0=7), 0)
    assert b.answer(READER) is None and state(b, topic_id).start_offset == 7
    b.release_flushes()
    b.tick()
    assert b.answer(READER).responses[0].partitions[0].error_code == Code.NONE


def test_offsets_whose_group_record_finds_no_space_get_an_error_and_are_written_later() -> None:
    """The states of the partitions are set, but there is no space for the record in which the group
    notes this. The client may send the request again.
    """
    b, _ = broker()
    join(b)
    leave(b)
    b.hold_flushes()
    b.send(READER, alter_request(p0=7), 0)
    assert b.answer(READER) is None
    b.disk.refuse(Refusal(frozenset({"write"}), errno.ENOSPC))
    b.release_flushes()
    b.tick()
    assert b.answer(READER).error_code == Code.COORDINATOR_NOT_AVAILABLE
    b.disk.refuse(None)
    for _ in range(3):
        b.tick(1_000)
    assert offsets(b, {"t": [0]}) == {("t", 0): (7, RECORDS - 7, Code.NONE)}
    assert alter(b, p0=8) == [Code.NONE]


def test_a_group_is_deleted_with_the_states_of_its_partitions() -> None:
    b, topic_id = broker()
    join(b)
    assert delete_groups(b, "g") == {"g": Code.NON_EMPTY_GROUP}
    leave(b)
    assert delete_groups(b, "none", "g") == {
        "none": Code.GROUP_ID_NOT_FOUND,
        "g": Code.NONE,
    }
    assert state(b, topic_id) is None and b.broker.groups.group("g") is None
    b.kill()
    assert state(b, topic_id) is None and b.broker.groups.group("g") is None
    assert join(b) == [0, 1]


def test_a_group_is_kept_if_a_state_of_its_partitions_cannot_be_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise a later group of that id would start from the states of the deleted one."""
    b, topic_id = broker()
    for group in ("g", "h"):
        join(b, group)
        leave(b, group)
    coordinator = b.broker.shares.get().coordinator
    delete = coordinator.decide_delete

    def refused(key: SharePartitionKey) -> Change:
        if key.group_id == "g" and key.partition == 1:
            return Change(error_code=Code.COORDINATOR_NOT_AVAILABLE)
        return delete(key)

    monkeypatch.setattr(coordinator, "decide_delete", refused)
    assert delete_groups(b, "g", "h") == {"g": Code.COORDINATOR_NOT_AVAILABLE, "h": Code.NONE}
    assert b.broker.groups.group("g") is not None and b.broker.groups.group("h") is None
    monkeypatch.undo()
    assert state(b, topic_id, 1) is not None
    assert delete_groups(b, "g") == {"g": Code.NONE}
    assert state(b, topic_id, 1) is None and b.broker.groups.group("g") is None


def test_the_states_of_a_deleted_topic_are_deleted() -> None:
    b, topic_id = broker()
    join(b)
    b.send(READER, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    for _ in range(20):
        b.tick()
    group = b.broker.groups.group("g")
    assert group is not None and group.modern.states.initialized == {}  # type: ignore[union-attr]
    assert state(b, topic_id) is None
    assert offsets(b, None) == {}
    b.topic("t", partitions=1)
    answer = beat(b, 3)
    answer = beat(b, answer.member_epoch)
    assert [row.partitions for row in answer.assignment.topic_partitions] == [[0]]


def test_the_states_of_a_thousand_partitions_are_written_in_slices() -> None:
    b, _ = broker(partitions=1000)
    b.hold_flushes()
    b.call(ShareGroupHeartbeatRequest("g", "m", 0, None, ["t"]), 1)
    coordinator = b.broker.shares.get().coordinator
    counts = [len(coordinator)]
    while len(coordinator) < 1000:
        assert b.flush_one(), "a slice waits for the disk"
        assert b.broker.next_deadline_ms() == 0
        b.tick()
        counts.append(len(coordinator))
    assert counts == [250, 500, 750, 1000]
    b.release_flushes()
    b.tick()
    assert len(beat(b, 2).assignment.topic_partitions[0].partitions) == 1000
    assert len(offsets(b, None)) == 1000
    leave(b)
    b.send(READER, DeleteGroupsRequest(["g"]), 2)
    for _ in range(20):
        b.tick()
    assert b.answer(READER).results[0].error_code == Code.NONE
    assert len(coordinator) == 0


def test_a_clean_stop_completes_the_deletion_of_a_group() -> None:
    b, topic_id = broker(partitions=600)
    join(b)
    leave(b)
    b.hold_flushes()
    b.send(READER, DeleteGroupsRequest(["g"]), 2)
    assert state(b, topic_id, 0) is not None, (
        "the states are kept until the group's record is on the disk"
    )
    b.flush_one()
    b.tick()
    assert state(b, topic_id, 0) is None and state(b, topic_id, 599) is not None
    b.stop()
    assert b.broker.groups.group("g") is None
    assert len(b.broker.shares.get().coordinator) == 0


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (ShareGroupHeartbeatRequest("g", "m", 0, None, ["t"]), 1),
        (alter_request(p0=1), 0),
        (DeleteShareGroupOffsetsRequest("g", []), 0),
    ],
)
def test_without_the_feature_requests_for_share_groups_are_unsupported(
    request_: Any, version: int
) -> None:
    b, _ = broker(barnabas_features="share.version=0")
    assert b.call(request_, version).error_code == Code.UNSUPPORTED_VERSION
    assert b.broker.shares.made is None
    described = b.call(ShareGroupDescribeRequest(["g"]), 1).groups[0]
    assert described.error_code == Code.UNSUPPORTED_VERSION
    row = DescribeShareGroupOffsetsRequestGroup("g", None)
    (group,) = b.call(DescribeShareGroupOffsetsRequest([row]), 0).groups
    assert (group.group_id, group.error_code) == ("g", Code.UNSUPPORTED_VERSION)


def test_a_power_loss_during_a_deletion_leaves_no_group_without_its_states() -> None:
    """If a record of the group became durable after records that rely on it, a power loss could
    leave a group with states that do not exist, or a group that initialises states that have
    acknowledgements.
    """
    for flushes in range(8):
        b, topic_id = broker()
        join(b)
        leave(b)
        b.hold_flushes()
        b.send(READER, DeleteGroupsRequest(["g"]), 2)
        for _ in range(flushes):
            b.flush_one()
            b.tick()
        b.lose_power()
        partitions = b.broker.groups.share_requests.initialized_partitions("g").get("t", ())
        for index in partitions:
            assert state(b, topic_id, index) is not None, flushes
        b.release_flushes()
        assert join(b) == [0, 1]


def test_a_power_loss_during_a_deletion_of_offsets_keeps_the_states_that_the_group_has() -> None:
    """The states are deleted only after the group's record of the deletion is durable."""
    for flushes in range(6):
        b, topic_id = broker()
        join(b)
        leave(b)
        b.hold_flushes()
        topics = [DeleteShareGroupOffsetsRequestTopic("t")]
        b.send(READER, DeleteShareGroupOffsetsRequest("g", topics), 0)
        for _ in range(flushes):
            b.flush_one()
            b.tick()
        b.lose_power()
        for index in b.broker.groups.share_requests.initialized_partitions("g").get("t", ()):
            assert state(b, topic_id, index) is not None, flushes


def test_states_with_acknowledgements_are_not_initialised_again_after_a_power_loss() -> None:
    """The power is lost after each number of flushes while the states are initialised. If an
    acknowledgement was answered, its start offset (10) must still be there; the group must not
    initialise the state again.
    """
    for flushes in range(6):
        b, topic_id = broker()
        b.hold_flushes()
        b.call(ShareGroupHeartbeatRequest("g", "m", 0, None, ["t"]), 1)
        for _ in range(flushes):
            b.flush_one()
            b.tick()
        acknowledged: list[int] = []
        group = b.broker.groups.group("g")
        if group is not None and group.modern.states.initialized:  # type: ignore[union-attr]
            shares = b.broker.shares.get()
            key = SharePartitionKey("g", topic_id.bytes, 0)
            change = shares.coordinator.decide_write(key, LeaderWrite(-1, -1, 10, 0, []), b.now_ms)
            shares.runtime.store([change], acknowledged.append, b.now_ms)
            while not acknowledged:
                assert b.flush_one()
        b.lose_power()
        b.release_flushes()
        join(b)
        assert state(b, topic_id).start_offset == (10 if acknowledged else -1), flushes


# --- the coordinator of a share partition -------------------------------------------------------

ID = uuid.UUID(int=0xABC)


def test_find_coordinator_finds_share_partitions_from_version_6_on(tmp_path: Path) -> None:
    host = AdminHost(tmp_path)
    key = f"my:group:{short_text(ID)}:3"
    keys = [key, f"{key}x", "g:0", f" :{short_text(ID)}:0"]
    answer = host.call(FindCoordinatorRequest(key_type=2, coordinator_keys=keys), 6)
    assert [(row.key, row.error_code, row.node_id) for row in answer.coordinators] == [
        (key, Code.NONE, NODE_ID),
        *((wrong, Code.INVALID_REQUEST, -1) for wrong in keys[1:]),
    ]
    assert SHARE_STATE_TOPIC in host.broker.topics
    index = partition_for(key, host.broker.topics.internal_partition_count(SHARE_STATE_TOPIC))
    log = host.broker.topics.partition(SHARE_STATE_TOPIC, index)
    assert log is not None and log.files.are_made
    answer = host.call(FindCoordinatorRequest(key_type=2, coordinator_keys=[key]), 5)
    assert answer.coordinators[0].error_code == Code.INVALID_REQUEST
    host.close()


def test_an_emulated_release_without_share_groups_has_no_coordinator_for_them(
    tmp_path: Path,
) -> None:
    host = AdminHost(tmp_path, barnabas_emulate="3.9")
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=[f"g:{short_text(ID)}:3"])
    assert host.call(request, 6).coordinators[0].error_code == Code.INVALID_REQUEST
    assert SHARE_STATE_TOPIC not in host.broker.topics
    host.close()


def test_the_key_of_a_share_partition_is_read_from_its_end() -> None:
    written = short_text(ID)
    assert share_key(f"g:{written}:0") == f"g:{written}:0"
    assert share_key(f"a:b:c:{written}==:+07") == f"a:b:c:{written}:7"
    assert share_key(f"g:{written}:-1") == f"g:{written}:-1"
    for wrong in (
        "", "g", f"g:{written}", f"g:{written}:", f"g:{written}:x", f":{written}:0",
        f"g:{written[:-1]}:0", f"g:{written[:-1]}!:0", f"g:{written}:2147483648", "g::0",
        f"g:{written}A:0",
    ):  # fmt: skip
        assert share_key(wrong) is None, wrong


class Storing:
    """A stand-in for the group runtime and for the unwritten work. The first write fails for lack
    of disk space.
    """

    def __init__(self) -> None:
        self.writes: list[int] = []
        self.waiting: list[Callable[[int], None]] = []

    def store(self, changes: Sequence[Change], then: Callable[[int], None], now_ms: int) -> None:
        self.writes.append(len(changes))
        if len(self.writes) == 1:
            raise NotWrittenError(errno.ENOSPC, "no space")
        then(now_ms)

    def later(self, done: Callable[[int], None], now_ms: int) -> None:
        self.waiting.append(done)


def test_states_without_disk_space_are_stored_when_there_is_some() -> None:
    """A write of states fails for lack of disk space. The change waits until it is notified of free
    space, and writes the same states again.
    """
    storing, ended = Storing(), list[tuple[list[int], int]]()
    b, topic_id = broker()
    coordinator = b.broker.shares.get().coordinator
    changes = StateChanges(coordinator, storing, storing)  # type: ignore[arg-type]
    rows = tuple(StateRow(topic_id, index) for index in range(2))
    change = StateChange("g", is_deletion=False, rows=rows, state_epoch=1)
    changes.begin(change, lambda codes, at_ms: ended.append((list(codes), at_ms)), 0)
    repeat_until(lambda: not changes.is_ready, lambda: changes.on_tick(1))
    assert (storing.writes, ended) == ([2], [])
    storing.waiting.pop()(5)
    repeat_until(lambda: not changes.is_ready, lambda: changes.on_tick(6))
    assert storing.writes == [2, 2]
    assert [codes for codes, _ in ended] == [[Code.NONE, Code.NONE]]
