"""A `DiskBroker` with every kind of state, whose disk can be made full for a time, and one request
of each API that writes.

    full = FullDisk()
    with full.no_space():
        assert full.codes(full.b.call(*REQUESTS[26](full))) == {Code.COORDINATOR_NOT_AVAILABLE}
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sim.disk import Refusal

from barnabas.coordinator.internal_topics import INTERNAL_TOPICS
from barnabas.coordinator.result import partition_for
from barnabas.protocol.messages import alter_share_group_offsets as altering
from barnabas.protocol.messages import delete_share_group_offsets as deleting
from barnabas.protocol.messages import delete_share_group_state as deleting_state
from barnabas.protocol.messages import initialize_share_group_state as initializing
from barnabas.protocol.messages import read_share_group_state as reading
from barnabas.protocol.messages import write_share_group_state as writing
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.protocol.messages.alter_configs import (
    AlterableConfig as WholeConfig,
)
from barnabas.protocol.messages.alter_configs import (
    AlterConfigsRequest,
)
from barnabas.protocol.messages.alter_configs import (
    AlterConfigsResource as WholeResource,
)
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from helpers.disk_broker import DiskBroker, Producer, creation_of, init_request
from helpers.hard_state import hard_state
from helpers.share_member import SHARED, ShareMember, begin_group, topic_id

ALL = frozenset({"inode", "entry", "write", "rename"})
CODE_FIELDS = ("error_code", "partition_error_code")
MANY_MS = 60_000


class FullDisk:
    """A broker, and clients that were started before the disk became full.

    `producer` has an open transaction on t-0 and on the offsets of "g". `member` is a member of the
    stable classic group "classic". `sharer` is a member of the share group "share" and holds
    records of s-0.
    """

    def __init__(self, new_broker: type[DiskBroker] = DiskBroker, **settings: Any) -> None:
        b = self.b = new_broker(
            **SHARED,
            group_streams_initial_rebalance_delay_ms="0",
            group_streams_assignment_interval_ms="0",
            **settings,
        )
        for name in ("t", "u", "s", "gone"):
            b.topic(name, 2)
            b.make_files(name)
            b.produce(name, (b"0", b"1", b"2"))
        for name in INTERNAL_TOPICS:
            b.broker.topics.ensure_internal_topic(name, b.now_ms)
            b.make_files(name)
        assert b.commit("old", "t", 1) == 0
        assert b.commit("committing", "t", 1) == 0
        self.pid = b.init(None)[1]
        self.producer = Producer(b, "txn")
        self.producer.send("t", 0, b"in the transaction")
        self.producer.send_offset("g", "t", 2)
        self.member_id, self.generation = self._classic_member("classic")
        self._classic_member("static", "instance")
        self.sync_id, self.sync_generation = self._joined("syncing")
        b.call(self.heartbeat("consumer", "m"), 1)
        b.call(ShareGroupHeartbeatRequest("sharing", "m", 0, None, ["s"]), 1)
        begin_group(b, "share", "s")
        self.sharer = ShareMember(b, "share", "m")
        assert self.sharer.take("s") == [(0, 2, 1)]
        b.call(initialization(self, "states"), 0)
        b.call(acl(self, "kept"), 3)
        b.tick(10)
        b.tick(10)

    # --- the disk --------------------------------------------------------------------------------

    @contextmanager
    def no_space(self, code: int = errno.ENOSPC) -> Iterator[None]:
        """A context in which every write fails: no byte can be appended, no file or directory
        created, and no name made longer.
        """
        self.b.disk.refuse(Refusal(ALL, code))
        try:
            yield
        finally:
            self.b.disk.refuse(None)

    def state(self) -> Any:
        """The hard state of all coordinators, and the contents of the logs."""
        broker = self.b.broker
        shares = broker.shares.get().coordinator
        transactions = {
            name: metadata._replace() for name, metadata in broker.transactions.snapshot().items()
        }
        logs = {
            key: (
                log.log_start_offset,
                log.log_end_offset,
                log.last_stable_offset,
                sorted(log.producer_state.open_transactions()),
            )
            for key, log in broker.logs.logs.items()
        }
        metadata = broker.metadata
        return {
            "groups": hard_state(broker.groups),
            "transactions": transactions,
            "shares": {key: str(shares.summary(key)) for key in tuple(shares.keys())},
            "logs": logs,
            "topics": dict(metadata.topics),
            "acls": dict(metadata.acls),
            "groups' settings": dict(metadata.group_configs),
        }

    def settle(self) -> None:
        """Advance the clock until requests that waited for space have been tried again."""
        for _ in range(12):
            self.b.tick(1_000)
            for _ in range(20):
                self.b.tick()
        assert not len(self.b.broker.unwritten)

    # --- members ---------------------------------------------------------------------------------

    def join(self, group: str, member_id: str, instance: str | None = None) -> Message:
        return JoinGroupRequest(
            group_id=group, session_timeout_ms=MANY_MS, rebalance_timeout_ms=MANY_MS,
            member_id=member_id, group_instance_id=instance, protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", b"")], reason=None,
        )  # fmt: skip

    def _joined(self, group: str, instance: str | None = None) -> tuple[str, int]:
        """Join the group as its only member, and return the member id and the generation."""
        answer = self.call(self.join(group, "", instance), 3 if instance is None else 5)
        assert answer.error_code == 0
        return answer.member_id, answer.generation_id

    def sync(
        self, group: str, member_id: str, generation: int, instance: str | None = None
    ) -> Message:
        assigned = [SyncGroupRequestAssignment(member_id, b"all")]
        return SyncGroupRequest(
            group_id=group, generation_id=generation, member_id=member_id,
            group_instance_id=instance, protocol_type="consumer", protocol_name="range",
            assignments=assigned,
        )  # fmt: skip

    def _classic_member(self, group: str, instance: str | None = None) -> tuple[str, int]:
        """Join a group as its only member, sync, and return the member id and the generation."""
        member_id, generation = self._joined(group, instance)
        sync = self.sync(group, member_id, generation, instance)
        assert self.call(sync, 5).error_code == 0
        return member_id, generation

    def call(self, request: Message, version: int) -> Any:
        """Send a request and return the response, which must arrive within a few ticks."""
        connection = self.b.connect()
        self.b.send(connection, request, version)
        for _ in range(20):
            if self.b.answer(connection) is None:
                self.b.tick(1)
        answer = self.b.answer(connection)
        assert answer is not None, request
        return answer

    def heartbeat(self, group: str, member: str, topic: str = "t") -> Message:
        return ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=0, rebalance_timeout_ms=MANY_MS,
            subscribed_topic_names=[topic], topic_partitions=[],
        )  # fmt: skip


def codes(answer: Any) -> set[int]:
    """All error codes in a response, except in parts for which an error is expected."""
    if isinstance(answer, list):
        return set().union(*map(codes, answer)) if answer else set()
    if not isinstance(answer, Message):
        return set()
    found: set[int] = set()
    for name in type(answer).__slots__:
        value = getattr(answer, name)
        if name in CODE_FIELDS:
            found.add(int(value))
        else:
            found |= codes(value)
    return found


def initialization(full: FullDisk, group: str) -> Message:
    """A request that initializes the share state of s-0."""
    rows = [initializing.PartitionData(0, 0, 0)]
    topics = [initializing.InitializeStateData(topic_id(full.b, "s"), rows)]
    return initializing.InitializeShareGroupStateRequest(group, topics)


def acl(full: FullDisk, name: str) -> Message:
    return CreateAclsRequest([AclCreation(2, name, 3, "User:a", "*", 3, 3)])


def _share_write(full: FullDisk) -> Message:
    """A request that writes the share state of s-0."""
    rows = [writing.PartitionData(0, 0, 0, 1, 0, [])]
    topics = [writing.WriteStateData(topic_id(full.b, "s"), rows)]
    return writing.WriteShareGroupStateRequest("states", topics)


def _share_read(full: FullDisk) -> Message:
    topics = [reading.ReadStateData(topic_id(full.b, "s"), [reading.PartitionData(0, 5)])]
    return reading.ReadShareGroupStateRequest("states", topics)


def _share_delete(full: FullDisk) -> Message:
    """A request that deletes the share state of s-0."""
    rows = [deleting_state.PartitionData(0)]
    topics = [deleting_state.DeleteStateData(topic_id(full.b, "s"), rows)]
    return deleting_state.DeleteShareGroupStateRequest("states", topics)


def _commit(full: FullDisk) -> Message:
    row = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=2, committed_leader_epoch=-1, committed_metadata=""
    )
    topics = [OffsetCommitRequestTopic(name="t", partitions=[row])]
    return OffsetCommitRequest(group_id="committing", topics=topics)


def _transaction_of(full: FullDisk) -> tuple[str, int, int]:
    return full.producer.txn, full.producer.pid, full.producer.epoch


def _add_partitions(full: FullDisk) -> Message:
    return AddPartitionsToTxnRequest(
        [], *_transaction_of(full), [AddPartitionsToTxnTopic("t", [1])]
    )


def _group_elsewhere() -> str:
    """The name of a group that is in another partition of __consumer_offsets than the group "g"."""
    return next(name for name in "abcd" if partition_for(name, 2) != partition_for("g", 2))


def _markers(full: FullDisk) -> Message:
    topics = [WritableTxnMarkerTopic("u", [0])]
    return WriteTxnMarkersRequest([WritableTxnMarker(full.pid, 0, False, topics, 0)])


def _topology() -> Topology:
    return Topology(0, [Subtopology("0", ["t"], [], [], [], [], [])])


REQUESTS: dict[int, Callable[[FullDisk], tuple[Message, int]]] = {
    0: lambda full: (full.b.produce_request("u", (b"3",)), 9),
    8: lambda full: (_commit(full), 8),
    11: lambda full: (full.join("static", "", "instance"), 5),
    13: lambda full: (
        LeaveGroupRequest("classic", members=[MemberIdentity(full.member_id, None, None)]), 5,
    ),
    14: lambda full: (full.sync("syncing", full.sync_id, full.sync_generation), 5),
    19: lambda full: (creation_of("new", 1, {}), 7),
    20: lambda full: (DeleteTopicsRequest(topic_names=["gone"], timeout_ms=1000), 5),
    21: lambda full: (
        DeleteRecordsRequest([DeleteRecordsTopic("u", [DeleteRecordsPartition(0, 1)])], 1000), 2,
    ),
    22: lambda full: (init_request("another"), 4),
    24: lambda full: (_add_partitions(full), 3),
    25: lambda full: (full.producer.add_offsets_request(_group_elsewhere()), 3),
    26: lambda full: (full.producer.end_request(True), 3),
    27: lambda full: (_markers(full), 1),
    28: lambda full: (full.producer.offset_request("g", "t", 3), 3),
    30: lambda full: (acl(full, "new"), 3),
    31: lambda full: (
        DeleteAclsRequest([DeleteAclsFilter(2, "kept", 3, None, None, 1, 1)]), 3,
    ),
    33: lambda full: (
        AlterConfigsRequest([WholeResource(2, "u", [WholeConfig("retention.ms", "77")])]), 2,
    ),
    37: lambda full: (CreatePartitionsRequest([CreatePartitionsTopic("u", 3, None)], 1000), 3),
    42: lambda full: (DeleteGroupsRequest(["old"]), 2),
    44: lambda full: (
        IncrementalAlterConfigsRequest(
            [AlterConfigsResource(2, "u", [AlterableConfig("retention.ms", 0, "78")])]
        ),
        1,
    ),
    47: lambda full: (
        OffsetDeleteRequest(
            "old", [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])]
        ),
        0,
    ),
    49: lambda full: (
        AlterClientQuotasRequest(
            [EntryData([EntityData("user", "a")], [OpData("producer_byte_rate", 1e9, False)])]
        ),
        1,
    ),
    51: lambda full: (
        AlterUserScramCredentialsRequest(
            [], [ScramCredentialUpsertion("a", 1, 4096, b"salt", b"x" * 32)]
        ),
        0,
    ),
    57: lambda full: (
        UpdateFeaturesRequest(
            feature_updates=[FeatureUpdateKey("transaction.version", 1, False, 2)]
        ),
        1,
    ),
    68: lambda full: (full.heartbeat("new consumers", "n"), 1),
    76: lambda full: (ShareGroupHeartbeatRequest("new sharers", "n", 0, None, ["s"]), 1),
    83: lambda full: (initialization(full, "new states"), 0),
    84: lambda full: (_share_read(full), 0),
    85: lambda full: (_share_write(full), 0),
    86: lambda full: (_share_delete(full), 0),
    88: lambda full: (
        StreamsGroupHeartbeatRequest(
            "new streams", "n", 0, rebalance_timeout_ms=10_000, topology=_topology(),
            process_id="n", active_tasks=[], standby_tasks=[], warmup_tasks=[],
        ),
        0,
    ),
    91: lambda full: (
        altering.AlterShareGroupOffsetsRequest(
            "set", [altering.AlterShareGroupOffsetsRequestTopic(
                "s", [altering.AlterShareGroupOffsetsRequestPartition(0, 1)])]
        ),
        0,
    ),
    92: lambda full: (
        deleting.DeleteShareGroupOffsetsRequest(
            "set", [deleting.DeleteShareGroupOffsetsRequestTopic("s")]
        ),
        0,
    ),
}  # fmt: skip
"""By API key: a request that has to write, and its version."""
