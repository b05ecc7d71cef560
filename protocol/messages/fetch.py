"""Fetch, API key 1: versions 0 to 18, flexible from 12.

Made by `make protocol` from Apache Kafka's schemas, as kafka-python ships them; not to be edited.
"""

from __future__ import annotations

import struct
import uuid
from typing import ClassVar

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.message import NOTHING, Message
from barnabas.protocol.primitives import (
    Buffer,
    read_nullable_records,
    read_nullable_string,
    read_nullable_structs,
    read_numbers,
    read_string,
    read_structs,
    read_tags,
    read_uuid,
    refuse_value,
    skip_tags,
    write_nullable_bytes,
    write_nullable_string,
    write_nullable_structs,
    write_numbers,
    write_string,
    write_structs,
    write_tags,
    write_uuid,
)

_INT16_INT32 = struct.Struct(">hi")
_INT32 = struct.Struct(">i")
_INT32_2_TIMES = struct.Struct(">ii")
_INT32_INT16_INT64 = struct.Struct(">ihq")
_INT32_INT64 = struct.Struct(">iq")
_INT64 = struct.Struct(">q")
_INT64_2_TIMES = struct.Struct(">qq")
_INT64_INT32 = struct.Struct(">qi")
_INT8 = struct.Struct(">b")


class ReplicaState(Message):
    """The state of the replica in the follower.

    replica_id (from version 15): The replica ID of the follower, or -1 if this request is from
        a consumer.
    replica_epoch (from version 15): The epoch of this follower, or -1 if not available.
    """

    __slots__ = ("replica_epoch", "replica_id")

    def __init__(self, replica_id: int = -1, replica_epoch: int = -1) -> None:
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ReplicaState, int]:
        compact = version >= 12
        replica_id = -1
        replica_epoch = -1
        if version >= 15:
            replica_id, replica_epoch = _INT32_INT64.unpack_from(data, at)
            at += 12
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(replica_id, replica_epoch), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 12
        if version >= 15:
            out += _INT32_INT64.pack(self.replica_id, self.replica_epoch)
        elif self.replica_id != -1:
            refuse_value("replica_id", version)
        elif self.replica_epoch != -1:
            refuse_value("replica_epoch", version)
        if compact:
            out.append(0)


class FetchPartition(Message):
    """The partitions to fetch.

    partition: The partition index.
    current_leader_epoch (from version 9): The current leader epoch of the partition.
    fetch_offset: The message offset.
    last_fetched_epoch (from version 12): The epoch of the last fetched record or -1 if there is
        none.
    log_start_offset (from version 5): The earliest available offset of the follower replica.
        The field is only used when the request is sent by the follower.
    partition_max_bytes: The maximum bytes to fetch from this partition.  See KIP-74 for cases
        where this limit may not be honored.
    replica_directory_id (from version 17): The directory id of the follower fetching.
    high_watermark (version 18): The high-watermark known by the replica. -1 if the high-
        watermark is not known and 9223372036854775807 if the feature is not supported.
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "last_fetched_epoch",
        "log_start_offset",
        "partition",
        "partition_max_bytes",
        "replica_directory_id",
    )

    def __init__(
        self,
        partition: int = 0,
        current_leader_epoch: int = -1,
        fetch_offset: int = 0,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
        partition_max_bytes: int = 0,
        replica_directory_id: uuid.UUID | None = None,
        high_watermark: int = 9223372036854775807,
    ) -> None:
        self.partition = partition
        self.current_leader_epoch = current_leader_epoch
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.partition_max_bytes = partition_max_bytes
        self.replica_directory_id = replica_directory_id
        self.high_watermark = high_watermark

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[FetchPartition, int]:
        compact = version >= 12
        (partition,) = _INT32.unpack_from(data, at)
        at += 4
        current_leader_epoch = -1
        if version >= 9:
            (current_leader_epoch,) = _INT32.unpack_from(data, at)
            at += 4
        (fetch_offset,) = _INT64.unpack_from(data, at)
        at += 8
        last_fetched_epoch = -1
        if version >= 12:
            (last_fetched_epoch,) = _INT32.unpack_from(data, at)
            at += 4
        log_start_offset = -1
        if version >= 5:
            (log_start_offset,) = _INT64.unpack_from(data, at)
            at += 8
        (partition_max_bytes,) = _INT32.unpack_from(data, at)
        at += 4
        replica_directory_id: uuid.UUID | None = None
        high_watermark = 9223372036854775807
        if compact:
            tags, at = read_tags(data, at)
            if 0 in tags and version >= 17:
                replica_directory_id, _ = read_uuid(tags[0], 0)
            if 1 in tags and version >= 18:
                (high_watermark,) = struct.unpack(">q", tags[1])
        return cls(
            partition,
            current_leader_epoch,
            fetch_offset,
            last_fetched_epoch,
            log_start_offset,
            partition_max_bytes,
            replica_directory_id,
            high_watermark,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 12
        out += _INT32.pack(self.partition)
        if version >= 9:
            out += _INT32.pack(self.current_leader_epoch)
        out += _INT64.pack(self.fetch_offset)
        if version >= 12:
            out += _INT32.pack(self.last_fetched_epoch)
        elif self.last_fetched_epoch != -1:
            refuse_value("last_fetched_epoch", version)
        if version >= 5:
            out += _INT64.pack(self.log_start_offset)
        out += _INT32.pack(self.partition_max_bytes)
        if compact:
            tags: dict[int, bytearray] = {}
            if self.replica_directory_id is not None and version >= 17:
                tags[0] = bytearray()
                write_uuid(tags[0], self.replica_directory_id)
            if self.high_watermark != 9223372036854775807 and version >= 18:
                tags[1] = bytearray(struct.pack(">q", self.high_watermark))
            write_tags(out, tags)


class FetchTopic(Message):
    """The topics to fetch.

    topic (versions 0 to 12): The name of the topic to fetch.
    topic_id (from version 13): The unique topic ID.
    partitions: The partitions to fetch.
    """

    __slots__ = ("partitions", "topic", "topic_id")

    def __init__(
        self,
        topic: str = "",
        topic_id: uuid.UUID | None = None,
        partitions: list[FetchPartition] | None = None,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partitions: list[FetchPartition] = [] if partitions is None else partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[FetchTopic, int]:
        compact = version >= 12
        topic = ""
        if version <= 12:
            topic, at = read_string(data, at, compact)
        topic_id: uuid.UUID | None = None
        if version >= 13:
            topic_id, at = read_uuid(data, at)
        partitions, at = read_structs(data, at, compact, FetchPartition.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic, topic_id, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 12
        if version <= 12:
            write_string(out, self.topic, compact)
        if version >= 13:
            write_uuid(out, self.topic_id)
        write_structs(out, self.partitions, compact, version)
        if compact:
            out.append(0)


class ForgottenTopic(Message):
    """In an incremental fetch request, the partitions to remove.

    topic (versions 7 to 12): The topic name.
    topic_id (from version 13): The unique topic ID.
    partitions (from version 7): The partitions indexes to forget.
    """

    __slots__ = ("partitions", "topic", "topic_id")

    def __init__(
        self,
        topic: str = "",
        topic_id: uuid.UUID | None = None,
        partitions: list[int] | None = None,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partitions: list[int] = [] if partitions is None else partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[ForgottenTopic, int]:
        compact = version >= 12
        topic = ""
        if 7 <= version <= 12:
            topic, at = read_string(data, at, compact)
        topic_id: uuid.UUID | None = None
        if version >= 13:
            topic_id, at = read_uuid(data, at)
        partitions: list[int] = []
        if version >= 7:
            partitions, at = read_numbers(data, at, compact, "i")
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic, topic_id, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 12
        if 7 <= version <= 12:
            write_string(out, self.topic, compact)
        if version >= 13:
            write_uuid(out, self.topic_id)
        if version >= 7:
            write_numbers(out, self.partitions, compact, "i")
        elif self.partitions != []:
            refuse_value("partitions", version)
        if compact:
            out.append(0)


class FetchRequest(Message):
    """The request.

    cluster_id (from version 12): The clusterId if known. This is used to validate metadata
        fetches prior to broker registration.
    replica_id (versions 0 to 14): The broker ID of the follower, of -1 if this request is from
        a consumer.
    replica_state (from version 15): The state of the replica in the follower.
    max_wait_ms: The maximum time in milliseconds to wait for the response.
    min_bytes: The minimum bytes to accumulate in the response.
    max_bytes (from version 3): The maximum bytes to fetch.  See KIP-74 for cases where this
        limit may not be honored.
    isolation_level (from version 4): This setting controls the visibility of transactional
        records. Using READ_UNCOMMITTED (isolation_level = 0) makes all records visible. With
        READ_COMMITTED (isolation_level = 1), non-transactional and COMMITTED transactional
        records are visible. To be more concrete, READ_COMMITTED returns all data from offsets
        smaller than the current LSO (last stable offset), and enables the inclusion of the list
        of aborted transactions in the result, which allows consumers to discard ABORTED
        transactional records.
    session_id (from version 7): The fetch session ID.
    session_epoch (from version 7): The fetch session epoch, which is used for ordering requests
        in a session.
    topics: The topics to fetch.
    forgotten_topics_data (from version 7): In an incremental fetch request, the partitions to
        remove.
    rack_id (from version 11): Rack ID of the consumer making this request.
    """

    __slots__ = (
        "cluster_id",
        "forgotten_topics_data",
        "isolation_level",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "rack_id",
        "replica_id",
        "replica_state",
        "session_epoch",
        "session_id",
        "topics",
    )
    API_KEY: ClassVar[int] = 1
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 18
    FLEXIBLE_FROM: ClassVar[int] = 12
    ROWS: ClassVar[dict[str, str]] = {"topics": "responses"}

    def __init__(
        self,
        cluster_id: str | None = None,
        replica_id: int = -1,
        replica_state: ReplicaState | None = None,
        max_wait_ms: int = 0,
        min_bytes: int = 0,
        max_bytes: int = 2147483647,
        isolation_level: int = 0,
        session_id: int = 0,
        session_epoch: int = -1,
        topics: list[FetchTopic] | None = None,
        forgotten_topics_data: list[ForgottenTopic] | None = None,
        rack_id: str = "",
    ) -> None:
        self.cluster_id = cluster_id
        self.replica_id = replica_id
        self.replica_state: ReplicaState = (
            ReplicaState() if replica_state is None else replica_state
        )
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.isolation_level = isolation_level
        self.session_id = session_id
        self.session_epoch = session_epoch
        self.topics: list[FetchTopic] = [] if topics is None else topics
        self.forgotten_topics_data: list[ForgottenTopic] = (
            [] if forgotten_topics_data is None else forgotten_topics_data
        )
        self.rack_id = rack_id

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[FetchRequest, int]:
        compact = version >= 12
        replica_id = -1
        if version <= 14:
            (replica_id,) = _INT32.unpack_from(data, at)
            at += 4
        max_wait_ms, min_bytes = _INT32_2_TIMES.unpack_from(data, at)
        at += 8
        max_bytes = 2147483647
        if version >= 3:
            (max_bytes,) = _INT32.unpack_from(data, at)
            at += 4
        isolation_level = 0
        if version >= 4:
            (isolation_level,) = _INT8.unpack_from(data, at)
            at += 1
        session_id = 0
        session_epoch = -1
        if version >= 7:
            session_id, session_epoch = _INT32_2_TIMES.unpack_from(data, at)
            at += 8
        topics, at = read_structs(data, at, compact, FetchTopic.read, version)
        forgotten_topics_data: list[ForgottenTopic] = []
        if version >= 7:
            forgotten_topics_data, at = read_structs(
                data, at, compact, ForgottenTopic.read, version
            )
        rack_id = ""
        if version >= 11:
            rack_id, at = read_string(data, at, compact)
        cluster_id: str | None = None
        replica_state = ReplicaState()
        if compact:
            tags, at = read_tags(data, at)
            if 0 in tags:
                cluster_id, _ = read_nullable_string(tags[0], 0, True)
            if 1 in tags and version >= 15:
                replica_state, _ = ReplicaState.read(tags[1], 0, version)
        return cls(
            cluster_id,
            replica_id,
            replica_state,
            max_wait_ms,
            min_bytes,
            max_bytes,
            isolation_level,
            session_id,
            session_epoch,
            topics,
            forgotten_topics_data,
            rack_id,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 12
        if version <= 14:
            out += _INT32.pack(self.replica_id)
        elif self.replica_id != -1:
            refuse_value("replica_id", version)
        out += _INT32_2_TIMES.pack(self.max_wait_ms, self.min_bytes)
        if version >= 3:
            out += _INT32.pack(self.max_bytes)
        if version >= 4:
            out += _INT8.pack(self.isolation_level)
        if version >= 7:
            out += _INT32_2_TIMES.pack(self.session_id, self.session_epoch)
        write_structs(out, self.topics, compact, version)
        if version >= 7:
            write_structs(out, self.forgotten_topics_data, compact, version)
        elif self.forgotten_topics_data != []:
            refuse_value("forgotten_topics_data", version)
        if version >= 11:
            write_string(out, self.rack_id, compact)
        if compact:
            tags: dict[int, bytearray] = {}
            if self.cluster_id is not None:
                tags[0] = bytearray()
                write_nullable_string(tags[0], self.cluster_id, True)
            if self.replica_state != ReplicaState() and version >= 15:
                tags[1] = bytearray()
                self.replica_state.write(tags[1], version)
            write_tags(out, tags)
        elif self.replica_state != ReplicaState():
            refuse_value("replica_state", version)

    def error_response(self, version: int, code: Code) -> FetchResponse:
        if version <= 6:
            return FetchResponse(
                responses=[
                    FetchableTopicResponse(
                        row.topic,
                        row.topic_id,
                        [
                            PartitionData(
                                partition_index=part.partition,
                                error_code=code,
                                high_watermark=-1,
                                records=b"",
                            )
                            for part in row.partitions
                        ],
                    )
                    for row in self.topics
                ]
            )
        return FetchResponse(error_code=code)


class EpochEndOffset(Message):
    """In case divergence is detected based on the `LastFetchedEpoch` and `FetchOffset` in the
    request, this field indicates the largest epoch and its end offset such that subsequent
    records are known to diverge.

    epoch (from version 12): The largest epoch.
    end_offset (from version 12): The end offset of the epoch.
    """

    __slots__ = ("end_offset", "epoch")

    def __init__(self, epoch: int = -1, end_offset: int = -1) -> None:
        self.epoch = epoch
        self.end_offset = end_offset

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[EpochEndOffset, int]:
        compact = version >= 12
        epoch = -1
        end_offset = -1
        if version >= 12:
            epoch, end_offset = _INT32_INT64.unpack_from(data, at)
            at += 12
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(epoch, end_offset), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 12
        if version >= 12:
            out += _INT32_INT64.pack(self.epoch, self.end_offset)
        elif self.epoch != -1:
            refuse_value("epoch", version)
        elif self.end_offset != -1:
            refuse_value("end_offset", version)
        if compact:
            out.append(0)


class LeaderIdAndEpoch(Message):
    """The current leader of the partition.

    leader_id (from version 12): The ID of the current leader or -1 if the leader is unknown.
    leader_epoch (from version 12): The latest known leader epoch.
    """

    __slots__ = ("leader_epoch", "leader_id")

    def __init__(self, leader_id: int = -1, leader_epoch: int = -1) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[LeaderIdAndEpoch, int]:
        compact = version >= 12
        leader_id = -1
        leader_epoch = -1
        if version >= 12:
            leader_id, leader_epoch = _INT32_2_TIMES.unpack_from(data, at)
            at += 8
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(leader_id, leader_epoch), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 12
        if version >= 12:
            out += _INT32_2_TIMES.pack(self.leader_id, self.leader_epoch)
        elif self.leader_id != -1:
            refuse_value("leader_id", version)
        elif self.leader_epoch != -1:
            refuse_value("leader_epoch", version)
        if compact:
            out.append(0)


class SnapshotId(Message):
    """In the case of fetching an offset less than the LogStartOffset, this is the end offset and
    epoch that should be used in the FetchSnapshot request.

    end_offset: The end offset of the epoch.
    epoch: The largest epoch.
    """

    __slots__ = ("end_offset", "epoch")

    def __init__(self, end_offset: int = -1, epoch: int = -1) -> None:
        self.end_offset = end_offset
        self.epoch = epoch

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[SnapshotId, int]:
        compact = version >= 12
        end_offset, epoch = _INT64_INT32.unpack_from(data, at)
        at += 12
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(end_offset, epoch), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 12
        out += _INT64_INT32.pack(self.end_offset, self.epoch)
        if compact:
            out.append(0)


class AbortedTransaction(Message):
    """The aborted transactions.

    producer_id (from version 4): The producer id associated with the aborted transaction.
    first_offset (from version 4): The first offset in the aborted transaction.
    """

    __slots__ = ("first_offset", "producer_id")

    def __init__(self, producer_id: int = 0, first_offset: int = 0) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[AbortedTransaction, int]:
        compact = version >= 12
        producer_id = 0
        first_offset = 0
        if version >= 4:
            producer_id, first_offset = _INT64_2_TIMES.unpack_from(data, at)
            at += 16
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(producer_id, first_offset), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 12
        if version >= 4:
            out += _INT64_2_TIMES.pack(self.producer_id, self.first_offset)
        elif self.producer_id != 0:
            refuse_value("producer_id", version)
        elif self.first_offset != 0:
            refuse_value("first_offset", version)
        if compact:
            out.append(0)


class PartitionData(Message):
    """The topic partitions.

    partition_index: The partition index.
    error_code: The error code, or 0 if there was no fetch error.
    high_watermark: The current high water mark.
    last_stable_offset (from version 4): The last stable offset (or LSO) of the partition. This
        is the last offset such that the state of all transactional records prior to this offset
        have been decided (ABORTED or COMMITTED).
    log_start_offset (from version 5): The current log start offset.
    diverging_epoch (from version 12): In case divergence is detected based on the
        `LastFetchedEpoch` and `FetchOffset` in the request, this field indicates the largest
        epoch and its end offset such that subsequent records are known to diverge.
    current_leader (from version 12): The current leader of the partition.
    snapshot_id (from version 12): In the case of fetching an offset less than the
        LogStartOffset, this is the end offset and epoch that should be used in the
        FetchSnapshot request.
    aborted_transactions (from version 4): The aborted transactions.
    preferred_read_replica (from version 11): The preferred read replica for the consumer to use
        on its next fetch request.
    records: The record data.
    """

    __slots__ = (
        "aborted_transactions",
        "current_leader",
        "diverging_epoch",
        "error_code",
        "high_watermark",
        "last_stable_offset",
        "log_start_offset",
        "partition_index",
        "preferred_read_replica",
        "records",
        "snapshot_id",
    )

    def __init__(
        self,
        partition_index: int = 0,
        error_code: int = 0,
        high_watermark: int = 0,
        last_stable_offset: int = -1,
        log_start_offset: int = -1,
        diverging_epoch: EpochEndOffset | None = None,
        current_leader: LeaderIdAndEpoch | None = None,
        snapshot_id: SnapshotId | None = None,
        aborted_transactions: list[AbortedTransaction] | None = NOTHING,
        preferred_read_replica: int = -1,
        records: Buffer | None = None,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        self.diverging_epoch: EpochEndOffset = (
            EpochEndOffset() if diverging_epoch is None else diverging_epoch
        )
        self.current_leader: LeaderIdAndEpoch = (
            LeaderIdAndEpoch() if current_leader is None else current_leader
        )
        self.snapshot_id: SnapshotId = SnapshotId() if snapshot_id is None else snapshot_id
        self.aborted_transactions: list[AbortedTransaction] | None = (
            [] if aborted_transactions is NOTHING else aborted_transactions
        )
        self.preferred_read_replica = preferred_read_replica
        self.records = records

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[PartitionData, int]:
        compact = version >= 12
        partition_index, error_code, high_watermark = _INT32_INT16_INT64.unpack_from(data, at)
        at += 14
        last_stable_offset = -1
        if version >= 4:
            (last_stable_offset,) = _INT64.unpack_from(data, at)
            at += 8
        log_start_offset = -1
        if version >= 5:
            (log_start_offset,) = _INT64.unpack_from(data, at)
            at += 8
        aborted_transactions: list[AbortedTransaction] | None = []
        if version >= 4:
            aborted_transactions, at = read_nullable_structs(
                data, at, compact, AbortedTransaction.read, version
            )
        preferred_read_replica = -1
        if version >= 11:
            (preferred_read_replica,) = _INT32.unpack_from(data, at)
            at += 4
        records, at = read_nullable_records(data, at, compact)
        diverging_epoch = EpochEndOffset()
        current_leader = LeaderIdAndEpoch()
        snapshot_id = SnapshotId()
        if compact:
            tags, at = read_tags(data, at)
            if 0 in tags:
                diverging_epoch, _ = EpochEndOffset.read(tags[0], 0, version)
            if 1 in tags:
                current_leader, _ = LeaderIdAndEpoch.read(tags[1], 0, version)
            if 2 in tags:
                snapshot_id, _ = SnapshotId.read(tags[2], 0, version)
        return cls(
            partition_index,
            error_code,
            high_watermark,
            last_stable_offset,
            log_start_offset,
            diverging_epoch,
            current_leader,
            snapshot_id,
            aborted_transactions,
            preferred_read_replica,
            records,
        ), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 12
        out += _INT32_INT16_INT64.pack(self.partition_index, self.error_code, self.high_watermark)
        if version >= 4:
            out += _INT64.pack(self.last_stable_offset)
        if version >= 5:
            out += _INT64.pack(self.log_start_offset)
        if version >= 4:
            write_nullable_structs(out, self.aborted_transactions, compact, version)
        if version >= 11:
            out += _INT32.pack(self.preferred_read_replica)
        elif self.preferred_read_replica != -1:
            refuse_value("preferred_read_replica", version)
        write_nullable_bytes(out, self.records, compact)
        if compact:
            tags: dict[int, bytearray] = {}
            if self.diverging_epoch != EpochEndOffset():
                tags[0] = bytearray()
                self.diverging_epoch.write(tags[0], version)
            if self.current_leader != LeaderIdAndEpoch():
                tags[1] = bytearray()
                self.current_leader.write(tags[1], version)
            if self.snapshot_id != SnapshotId():
                tags[2] = bytearray()
                self.snapshot_id.write(tags[2], version)
            write_tags(out, tags)
        elif self.diverging_epoch != EpochEndOffset():
            refuse_value("diverging_epoch", version)
        elif self.current_leader != LeaderIdAndEpoch():
            refuse_value("current_leader", version)
        elif self.snapshot_id != SnapshotId():
            refuse_value("snapshot_id", version)


class FetchableTopicResponse(Message):
    """The response topics.

    topic (versions 0 to 12): The topic name.
    topic_id (from version 13): The unique topic ID.
    partitions: The topic partitions.
    """

    __slots__ = ("partitions", "topic", "topic_id")

    def __init__(
        self,
        topic: str = "",
        topic_id: uuid.UUID | None = None,
        partitions: list[PartitionData] | None = None,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partitions: list[PartitionData] = [] if partitions is None else partitions

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[FetchableTopicResponse, int]:
        compact = version >= 12
        topic = ""
        if version <= 12:
            topic, at = read_string(data, at, compact)
        topic_id: uuid.UUID | None = None
        if version >= 13:
            topic_id, at = read_uuid(data, at)
        partitions, at = read_structs(data, at, compact, PartitionData.read, version)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(topic, topic_id, partitions), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 12
        if version <= 12:
            write_string(out, self.topic, compact)
        if version >= 13:
            write_uuid(out, self.topic_id)
        write_structs(out, self.partitions, compact, version)
        if compact:
            out.append(0)


class NodeEndpoint(Message):
    """Endpoints for all current-leaders enumerated in PartitionData, with errors
    NOT_LEADER_OR_FOLLOWER & FENCED_LEADER_EPOCH.

    node_id (from version 16): The ID of the associated node.
    host (from version 16): The node's hostname.
    port (from version 16): The node's port.
    rack (from version 16): The rack of the node, or null if it has not been assigned to a rack.
    """

    __slots__ = ("host", "node_id", "port", "rack")

    def __init__(
        self, node_id: int = 0, host: str = "", port: int = 0, rack: str | None = None
    ) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.rack = rack

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[NodeEndpoint, int]:
        compact = version >= 12
        node_id = 0
        host = ""
        port = 0
        rack: str | None = None
        if version >= 16:
            (node_id,) = _INT32.unpack_from(data, at)
            at += 4
            host, at = read_string(data, at, compact)
            (port,) = _INT32.unpack_from(data, at)
            at += 4
            rack, at = read_nullable_string(data, at, compact)
        if compact:
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
        return cls(node_id, host, port, rack), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 12
        if version >= 16:
            out += _INT32.pack(self.node_id)
            write_string(out, self.host, compact)
            out += _INT32.pack(self.port)
            write_nullable_string(out, self.rack, compact)
        elif self.node_id != 0:
            refuse_value("node_id", version)
        elif self.host != "":
            refuse_value("host", version)
        elif self.port != 0:
            refuse_value("port", version)
        elif self.rack is not None:
            refuse_value("rack", version)
        if compact:
            out.append(0)


class FetchResponse(Message):
    """The response.

    throttle_time_ms (from version 1): The duration in milliseconds for which the request was
        throttled due to a quota violation, or zero if the request did not violate any quota.
    error_code (from version 7): The top level response error code.
    session_id (from version 7): The fetch session ID, or 0 if this is not part of a fetch
        session.
    responses: The response topics.
    node_endpoints (from version 16): Endpoints for all current-leaders enumerated in
        PartitionData, with errors NOT_LEADER_OR_FOLLOWER & FENCED_LEADER_EPOCH.
    """

    __slots__ = ("error_code", "node_endpoints", "responses", "session_id", "throttle_time_ms")
    API_KEY: ClassVar[int] = 1
    FIRST_VERSION: ClassVar[int] = 0
    LAST_VERSION: ClassVar[int] = 18
    FLEXIBLE_FROM: ClassVar[int] = 12

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        session_id: int = 0,
        responses: list[FetchableTopicResponse] | None = None,
        node_endpoints: list[NodeEndpoint] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.session_id = session_id
        self.responses: list[FetchableTopicResponse] = [] if responses is None else responses
        self.node_endpoints: list[NodeEndpoint] = [] if node_endpoints is None else node_endpoints

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[FetchResponse, int]:
        compact = version >= 12
        throttle_time_ms = 0
        if version >= 1:
            (throttle_time_ms,) = _INT32.unpack_from(data, at)
            at += 4
        error_code = 0
        session_id = 0
        if version >= 7:
            error_code, session_id = _INT16_INT32.unpack_from(data, at)
            at += 6
        responses, at = read_structs(data, at, compact, FetchableTopicResponse.read, version)
        node_endpoints: list[NodeEndpoint] = []
        if compact:
            tags, at = read_tags(data, at)
            if 0 in tags and version >= 16:
                node_endpoints, _ = read_structs(tags[0], 0, True, NodeEndpoint.read, version)
        return cls(throttle_time_ms, error_code, session_id, responses, node_endpoints), at

    def write(self, out: bytearray, version: int) -> None:
        compact = version >= 12
        if version >= 1:
            out += _INT32.pack(self.throttle_time_ms)
        if version >= 7:
            out += _INT16_INT32.pack(self.error_code, self.session_id)
        elif self.session_id != 0:
            refuse_value("session_id", version)
        write_structs(out, self.responses, compact, version)
        if compact:
            tags: dict[int, bytearray] = {}
            if self.node_endpoints != [] and version >= 16:
                tags[0] = bytearray()
                write_structs(tags[0], self.node_endpoints, True, version)
            write_tags(out, tags)
        elif self.node_endpoints != []:
            refuse_value("node_endpoints", version)
