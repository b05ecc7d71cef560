"""Well-formed requests with values that are invalid or at their limits. The broker must refuse each
of them, however often it is sent.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

from checkers import Partition

from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from sim import wire

NO_MEMBER, NOT_A_GROUP = "absent", "no such group"
NOT_AN_EPOCH = 32_767
NOT_A_LEADER_EPOCH = 1 << 30
HIGHEST_INT = (1 << 31) - 1
TOPIC_RESOURCE, SET = 2, 0


class Nonsense(NamedTuple):
    """An invalid request, with its description."""

    what: str
    call: wire.Call


class Victim(NamedTuple):
    """A transactional id, and the producer that has it.

    is_known: whether the broker certainly knows the id.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    is_known: bool


def is_refused(answer: Any) -> bool:
    """Whether a response contains an error anywhere."""
    if isinstance(answer, list):
        return any(is_refused(item) for item in answer)
    names = answer.__slots__ if isinstance(answer, Message) else getattr(answer, "_fields", ())
    return any(
        bool(value) if name.endswith("error_code") else is_refused(value)
        for name in names
        for value in [getattr(answer, name)]
    )


def of_transactions(victim: Victim, rng: random.Random) -> Iterator[Nonsense]:
    """Invalid requests with another producer's transactional id."""
    name, producer_id, epoch, is_known = victim
    strange_epoch = rng.choice((NOT_AN_EPOCH, min(epoch + 1000, NOT_AN_EPOCH)))
    for timeout_ms in (0, -1, HIGHEST_INT):
        request = InitProducerIdRequest(name, timeout_ms)
        yield Nonsense(f"InitProducerId of {name} for {timeout_ms} ms", wire.request(request, 4))
    if is_known:  # if the broker did not know the id, it would accept it as a new id
        request = InitProducerIdRequest(name, 1000, producer_id, strange_epoch)
        yield Nonsense(
            f"InitProducerId of {name} with the epoch {strange_epoch}", wire.request(request, 4)
        )
    for strange_id, its_epoch in (
        (producer_id, strange_epoch),
        (producer_id + 1_000_000, epoch),
        (-1, -1),
        (producer_id, -1),
    ):
        who = f"of {name} as {strange_id} with the epoch {its_epoch}"
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=strange_id,
            v3_and_below_producer_epoch=its_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic("plain", [0])],
        )
        yield Nonsense(f"AddPartitionsToTxn {who}", wire.request(added, 3))
        offsets = AddOffsetsToTxnRequest(name, strange_id, its_epoch, NOT_A_GROUP)
        yield Nonsense(f"AddOffsetsToTxn {who}", wire.request(offsets, 3))
        for committed in (False, True):
            end = EndTxnRequest(name, strange_id, its_epoch, committed)
            yield Nonsense(f"EndTxn({committed}) {who}", wire.request(end, 3))
        yield Nonsense(
            f"TxnOffsetCommit {who}", _offsets_in_transaction(name, strange_id, its_epoch)
        )


def _offsets_in_transaction(name: str, producer_id: int, epoch: int) -> wire.Call:
    """A TxnOffsetCommit of a client that is not a member of the group."""
    row = TxnOffsetCommitRequestPartition(0, 1 << 40)
    request = TxnOffsetCommitRequest(
        name, NOT_A_GROUP, producer_id, epoch, 5, NO_MEMBER, None, [
            TxnOffsetCommitRequestTopic("plain", [row])
        ],
    )  # fmt: skip
    return wire.request(request, 3)


def of_markers(victim: Victim, partition: Partition) -> Iterator[Nonsense]:
    """WriteTxnMarkers from a client: for impossible producers, and for missing partitions."""
    topic, index = partition
    for producer_id, epoch, name, number in (
        (-1, 0, topic, index),
        (victim.producer_id, -1, topic, index),
        (-(1 << 63), -(1 << 15), topic, index),
        (victim.producer_id, victim.epoch, topic, 1 << 20),
        (victim.producer_id, victim.epoch, topic, -1),
        (victim.producer_id, victim.epoch, "no such topic", 0),
    ):
        yield Nonsense(
            f"WriteTxnMarkers of {producer_id} with the epoch {epoch} in {name}-{number}",
            markers(producer_id, epoch, 1 << 20, (name, number), commit=True),
        )


def markers(
    producer_id: int, epoch: int, coordinator_epoch: int, partition: Partition, *, commit: bool
) -> wire.Call:
    """A WriteTxnMarkers with one marker for one partition."""
    topic = WritableTxnMarkerTopic(partition[0], [partition[1]])
    marker = WritableTxnMarker(producer_id, epoch, commit, [topic], coordinator_epoch)
    return wire.request(WriteTxnMarkersRequest([marker]), 1)


def of_groups(group: str) -> Iterator[Nonsense]:
    """Group requests of a client that is not a member."""
    for generation in (0, 5, HIGHEST_INT):
        who = f"of an unknown member in generation {generation} of {group}"
        heartbeat = HeartbeatRequest(group, generation, NO_MEMBER)
        yield Nonsense(f"Heartbeat {who}", wire.request(heartbeat, 3))
        yield Nonsense(f"OffsetCommit {who}", _commit(group, generation, NO_MEMBER, 1 << 40, ""))
    too_long = _commit(NOT_A_GROUP, -1, "", 0, "m" * 5000)
    yield Nonsense("OffsetCommit with 5,000 bytes of metadata", too_long)
    protocols = [JoinGroupRequestProtocol("range", b"")]
    for session_timeout_ms in (-1, 0, HIGHEST_INT):
        join = JoinGroupRequest(
            group, session_timeout_ms, 1000, protocol_type="consumer", protocols=protocols
        )
        yield Nonsense(
            f"JoinGroup of {group} with a session of {session_timeout_ms} ms", wire.request(join, 5)
        )
    without = JoinGroupRequest(group, 1000, 1000, protocol_type="consumer")
    yield Nonsense(f"JoinGroup of {group} without a protocol", wire.request(without, 5))
    yield Nonsense(
        f"SyncGroup of an unknown member in {group}",
        wire.request(SyncGroupRequest(group, 1, NO_MEMBER), 3),
    )
    yield Nonsense(
        f"LeaveGroup of an unknown member in {group}",
        wire.request(LeaveGroupRequest(group, NO_MEMBER), 1),
    )


def _commit(group: str, generation: int, member_id: str, offset: int, metadata: str) -> wire.Call:
    row = OffsetCommitRequestPartition(0, offset, committed_metadata=metadata)
    topics = [OffsetCommitRequestTopic("plain", None, [row])]
    return wire.request(OffsetCommitRequest(group, generation, member_id, topics=topics), 7)


def of_topics(partition: Partition) -> Iterator[Nonsense]:
    """Invalid requests of an administrator."""
    topic, index = partition
    for offset in (-2, -(1 << 63), 1 << 50):
        rows = [DeleteRecordsTopic(topic, [DeleteRecordsPartition(index, offset)])]
        yield Nonsense(
            f"DeleteRecords of {topic} below {offset}",
            wire.request(DeleteRecordsRequest(rows, 500), 2),
        )
    for count in (-1, 0, 1, HIGHEST_INT):
        growing = CreatePartitionsTopic(topic, count, None)
        yield Nonsense(
            f"CreatePartitions of {topic}: {count}",
            wire.request(CreatePartitionsRequest([growing], 500), 2),
        )
    for name, count in (
        ("../up", 1),
        ("", 1),
        (".", 1),
        ("x" * 300, 1),
        ("nothing", 0),
        ("nothing", -9),
        ("__consumer_offsets/x", 1),
        (topic, 1),
    ):
        yield Nonsense(
            f"CreateTopics of {name[:20]!r} with {count} partitions",
            wire.request(CreateTopicsRequest([CreatableTopic(name, count, 1)], 500), 4),
        )
    for setting, value in (("segment.bytes", "-5"), ("no.such.setting", "1"), ("retention.ms", "")):
        configs = [AlterableConfig(setting, SET, value)]
        yield Nonsense(
            f"IncrementalAlterConfigs of {topic}: {setting}={value!r}",
            wire.request(
                IncrementalAlterConfigsRequest(
                    [AlterConfigsResource(TOPIC_RESOURCE, topic, configs)]
                ),
                1,
            ),
        )


def of_logs(partition: Partition, rng: random.Random) -> Iterator[Nonsense]:
    """Invalid requests of a reader."""
    topic, index = partition
    for offset in (-1, -(1 << 63), 1 << 50):
        call = wire.fetch([(topic, index, offset)], committed=False, max_wait_ms=0)
        body = bytearray(call.body)
        body[16] = rng.choice((0, 1, 7, 255))  # the isolation level, which may be invalid
        yield Nonsense(f"Fetch of {topic} from {offset}", call._replace(body=bytes(body)))
    strange = [(topic, index, 0, NOT_A_LEADER_EPOCH)]
    yield Nonsense(
        f"Fetch of {topic} in a leader epoch to come",
        wire.fetch(strange, committed=False, max_wait_ms=0),
    )
    for isolation, epoch in ((7, -1), (-1, -1), (0, NOT_A_LEADER_EPOCH)):
        listed = ListOffsetsTopic(topic, [ListOffsetsPartition(index, epoch, -1)])
        yield Nonsense(
            f"ListOffsets with the isolation level {isolation} and the leader epoch {epoch}",
            wire.request(ListOffsetsRequest(-1, isolation, [listed]), 7),
        )
    row = OffsetForLeaderPartition(index, NOT_A_LEADER_EPOCH, 0)
    yield Nonsense(
        f"OffsetForLeaderEpoch of {topic} in a leader epoch to come",
        wire.request(OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic(topic, [row])]), 3),
    )
