"""The producer of one transactional id: its requests to its coordinator, its group's coordinator
and the leaders of partitions.

`TransactionalProducer` does one transaction after the other, and each failure ends its transaction:
single requests are not retried. Order of use:

    begin()      InitProducerId: fences the producer that had the id before, aborts its open
                 transaction, returns a new epoch
    group_state  what the group has committed, by topic, and the begun notes of the second group;
                 an error while an offset is not decided yet (KIP-447, require_stable)
    announce     commits only offset and note, in a separate transaction; then begin again
    note_begun   writes the begun note, outside of the transaction
    send(batch)  AddPartitionsToTxn if the partition is new (version 1), Produce, as soon as a
                 request is full; waits when enough requests are in flight
    commit(...)  AddOffsetsToTxn (version 1), TxnOffsetCommit, the outstanding responses, EndTxn
    abort()      instead of commit

A producer without a group has no `group_state`: `commit_records` commits only records, and if the
response to its EndTxn is lost, `repeat_lost_end` sends the same EndTxn again before the next
`begin`. A coordinator answers a repeated end as it answered the first one, or with an error if the
transaction was aborted meanwhile (KIP-98, KIP-890).

If the cluster has finalised `transaction.version` at 2 (KIP-890, second part), Produce and
TxnOffsetCommit add partitions by themselves, and AddPartitionsToTxn and AddOffsetsToTxn are left
out; late requests of an ended transaction are identified by their epoch. Otherwise the versions are
those that Apache Kafka 2.5 to 4 have in common. `begin` determines the version each time. Source:
KIP-98, KIP-360, KIP-447, KIP-890.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.client.cluster import GROUP, TRANSACTION, Cluster
from barnabas.client.connection import Connection
from barnabas.client.errors import (
    PASSING,
    UNKNOWN_TOPIC_PATIENCE_MS,
    ClientError,
    PassingError,
    code_name,
)
from barnabas.client.options import ClientOptions
from barnabas.client.request_kind import RequestKind
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from barnabas.protocol.messages.metadata import MetadataResponseTopic
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from barnabas.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from barnabas.protocol.records import (
    HEADER_SIZE,
    add_sequence,
)
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch
from barnabas.spark_connector.write.deduplication import CommittedBatch, GroupState, parse_note
from barnabas.spark_connector.write.produce_request import (
    Producer,
    PublishError,
    StampedRecordBatch,
    encode_produce,
    stamp_header,
)

BEGUN_GROUP = 2  # not a key type of Kafka's: the coordinator of the second group
CONTROL = "control"  # the purpose of connections that must not wait for a Produce

# Versions that Apache Kafka 2.5 and 4 have in common.
INIT_PRODUCER_ID = RequestKind(InitProducerIdRequest, InitProducerIdResponse, 1, 5)
ADD_PARTITIONS_TO_TXN = RequestKind(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, 1, 3)
ADD_OFFSETS_TO_TXN = RequestKind(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, 1, 4)
TXN_OFFSET_COMMIT = RequestKind(TxnOffsetCommitRequest, TxnOffsetCommitResponse, 2, 4)
END_TXN = RequestKind(EndTxnRequest, EndTxnResponse, 1, 4)
OFFSET_FETCH = RequestKind(OffsetFetchRequest, OffsetFetchResponse, 7, 7)
# The versions that have a retention time, which overrides offsets.retention.minutes (KIP-211).
LASTING_OFFSET_COMMIT = RequestKind(OffsetCommitRequest, OffsetCommitResponse, 2, 4)
LASTING_MS = 100 * 365 * 24 * 3_600_000
BEGUN = "-begun"  # the suffix in the second group's name
PRODUCE = RequestKind(ProduceRequest, ProduceResponse, 3, 11)

# Versions that belong to version 2 of the protocol of transactions.
TRANSACTION_VERSION = "transaction.version"
TXN_OFFSET_COMMIT_2 = RequestKind(TxnOffsetCommitRequest, TxnOffsetCommitResponse, 5, 5)
END_TXN_2 = RequestKind(EndTxnRequest, EndTxnResponse, 5, 5)
PRODUCE_2 = RequestKind(ProduceRequest, ProduceResponse, 12, 12)

# Errors after which another transaction is tried. Each transaction begins with a new epoch, so a
# sequence error means that the broker has lost acknowledged state.
PASSING_CODES = PASSING | {
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_COORDINATOR,
    Code.CONCURRENT_TRANSACTIONS,
    Code.NOT_ENOUGH_REPLICAS,
    Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    Code.UNSTABLE_OFFSET_COMMIT,
    Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Code.DUPLICATE_SEQUENCE_NUMBER,
    Code.UNKNOWN_PRODUCER_ID,
    Code.INVALID_PRODUCER_ID_MAPPING,
    Code.TRANSACTION_ABORTABLE,
    Code.TRANSACTION_COORDINATOR_FENCED,
    Code.THROTTLING_QUOTA_EXCEEDED,
    Code.CORRUPT_MESSAGE,  # the checksum was correct when the batch was sent
}
_FENCED = frozenset({Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH, Code.INVALID_TXN_STATE})

_ADVICE: dict[int, str] = {
    Code.MESSAGE_TOO_LARGE: (
        "raise max.message.bytes of the topic, or write smaller rows or batches"
    ),
    Code.RECORD_LIST_TOO_LARGE: (
        "raise segment.bytes of the topic, or write smaller rows or batches"
    ),
    Code.INVALID_RECORD: "the topic refuses such records; a compacted topic needs a key in each",
    Code.INVALID_TIMESTAMP: (
        "the topic's message.timestamp.*.max.ms refuses timestamps this far from now"
    ),
    Code.UNSUPPORTED_COMPRESSION_TYPE: "choose another compression",
    Code.INVALID_TOPIC_EXCEPTION: "this name is not allowed, or is an internal topic's",
    Code.TOPIC_AUTHORIZATION_FAILED: (
        "the user needs the right to WRITE and to READ the topic "
        "(READ since the batch id is committed with it)"
    ),
    Code.GROUP_AUTHORIZATION_FAILED: (
        "the user needs the right to READ the group (of a stream, also the one whose name ends in "
        f"{BEGUN})"
    ),
    Code.CLUSTER_AUTHORIZATION_FAILED: (
        "the user needs the right to write (IDEMPOTENT_WRITE on the cluster)"
    ),
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "the user needs the right to WRITE and DESCRIBE the transactional id"
    ),
    Code.INVALID_TRANSACTION_TIMEOUT: (
        "lower kafka.transaction.timeout.ms, or raise transaction.max.timeout.ms of the broker"
    ),
    Code.OFFSET_METADATA_TOO_LARGE: "raise offset.metadata.max.bytes of the broker",
    Code.INVALID_REQUIRED_ACKS: "the broker does not support acks=all",
    Code.POLICY_VIOLATION: "a policy of the broker forbids it",
}


class FencedError(ClientError):
    """Another producer has begun with the transactional id, or the broker ended the transaction.

    The broker ends a transaction when its timeout has passed.
    """


@dataclass(frozen=True)
class PublishSettings:
    """The limits and timeouts of publishing.

    `delivery_timeout_ms`: how long transient failures are followed by another attempt. An attempt
    that makes progress is not interrupted.
    """

    transaction_timeout_ms: int = 60_000
    delivery_timeout_ms: int = 120_000
    max_request_bytes: int = 1 << 20  # a request is larger only if it has a single larger batch
    in_flight: int = 5  # the maximum number of unanswered requests to one broker
    retry_backoff_max_ms: int = 1000


@dataclass(frozen=True)
class _LostEnd:
    """A transaction whose EndTxn was not answered: its producer and the size of its records."""

    producer: Producer
    is_version_2: bool
    record_count: int
    byte_count: int


@dataclass
class LeaderQueue:
    """The record batches for the leader of their partitions, and its unanswered requests.

    `unanswered`: the partitions of each unanswered request.
    """

    record_batches: dict[TopicPartition, StampedRecordBatch] = field(default_factory=dict)
    size_bytes: int = 0
    unanswered: deque[list[TopicPartition]] = field(default_factory=deque)


class TransactionalProducer:
    """The producer of one transaction after the other, over connections that stay open.

    It belongs to one thread.
    """

    def __init__(
        self,
        options: ClientOptions,
        settings: PublishSettings,
        transactional_id: str,
        group_id: str,
    ) -> None:
        self._options, self._settings = options, settings
        self.transactional_id, self._group_id = transactional_id, group_id
        self._cluster = Cluster(options)
        self._connections = self._cluster.connections
        self._lost_end: _LostEnd | None = None
        self._forget_transaction()

    def _forget_transaction(self) -> None:
        self._producer = Producer(-1, -1)
        self._is_version_2 = False
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition] = set()
        self._has_offsets = False
        self._under_way: dict[int, LeaderQueue] = {}
        self.record_count = self.byte_count = 0

    @property
    def is_open(self) -> bool:
        """Whether the transaction may have to be ended: it may contain a partition or offsets."""
        return bool(self._added) or self._has_offsets

    # --- the steps

    def begin(self) -> None:
        """Begin an empty transaction with a new epoch of the transactional id.

        Raises: PassingError while an earlier transaction is ending.
        """
        self._init(INIT_PRODUCER_ID, InitProducerIdRequest())

    def _init(
        self,
        kind: RequestKind[InitProducerIdRequest, InitProducerIdResponse],
        request: InitProducerIdRequest,
    ) -> InitProducerIdResponse:
        self._forget_transaction()
        self._connections.after_fork()
        self._connections.close_stale()
        coordinator = self._coordinator(TRANSACTION)
        request.transactional_id = self.transactional_id
        request.transaction_timeout_ms = self._settings.transaction_timeout_ms
        answer = coordinator.request(kind, request)
        code = answer.error_code
        if code in (Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH):
            # Another producer is beginning at the same time.
            raise PassingError(f"transactional id {self.transactional_id!r}: {code_name(code)}")
        self._check(code, f"transactional id {self.transactional_id!r}")
        self._producer = Producer(answer.producer_id, answer.producer_epoch)
        self._is_version_2 = coordinator.level_of(TRANSACTION_VERSION) >= 2
        return answer

    @property
    def _produce(self) -> RequestKind[ProduceRequest, ProduceResponse]:
        return PRODUCE_2 if self._is_version_2 else PRODUCE

    def group_state(self, *, with_begun: bool = False) -> GroupState:
        """The numbers and notes that the group has committed, by topic.

        Takes:  with_begun, whether to read the begun notes as well; there are none if the broker
                does not support retention times.
        Raises: PassingError while an offset is being committed.
        """
        committed = self._offsets_of(self._group_id, GROUP)
        if not with_begun or not self._keeps_begun:
            return GroupState(committed)
        return GroupState(committed, self._offsets_of(self._group_id + BEGUN, BEGUN_GROUP))

    def _offsets_of(self, group_id: str, kind: int) -> dict[str, CommittedBatch]:
        answer = self._coordinator(kind).request(
            OFFSET_FETCH, OffsetFetchRequest(group_id=group_id, topics=None, require_stable=True)
        )
        what = f"group {group_id!r}"
        self._check(answer.error_code, what)
        for topic in answer.topics:
            for partition in topic.partitions:
                self._check(partition.error_code, what)
        return _committed_in(answer)

    @property
    def _keeps_begun(self) -> bool:
        return self._coordinator(BEGUN_GROUP).speaks(LASTING_OFFSET_COMMIT)

    def note_begun(self, topics: Iterable[str], offset: int, metadata_text: str) -> None:
        """Store offset and note in the second group, with an unlimited retention.

        They are not part of the transaction, and remain if that is aborted.
        Raises: PassingError, PublishError.
        """
        if not self._keeps_begun:
            return
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=metadata_text
        )
        answer = self._coordinator(BEGUN_GROUP).request(
            LASTING_OFFSET_COMMIT,
            OffsetCommitRequest(
                group_id=self._group_id + BEGUN,
                retention_time_ms=LASTING_MS,
                topics=[
                    OffsetCommitRequestTopic(name=topic, partitions=[partition])
                    for topic in self._existing(topics)
                ],
            ),
        )
        for each in answer.topics:
            for part in each.partitions:
                what = f"group {self._group_id + BEGUN!r}, topic {each.name!r}"
                self._check(part.error_code, what)

    def announce(self, topics: Iterable[str], offset: int, metadata_text: str) -> None:
        """Commit offset and note in a transaction without records.

        After:  `begin` has to follow. Raises: see `commit`.
        """
        self.commit(self._existing(topics), offset, metadata_text)

    def _existing(self, topics: Iterable[str]) -> list[str]:
        """Wait until all topics exist, as the topic of an offset must. Gives: the topics."""
        for topic in (names := sorted(set(topics))):
            self._leader_of(TopicPartition(topic, 0))
        return names

    def send(self, record_batch: EncodedRecordBatch) -> None:
        """Add the record batch to the next request for its leader.

        The bytes of the batch are read when they are sent, which happens in `commit` at the latest.
        """
        self._put(self._stamped(record_batch))

    def _stamped(self, record_batch: EncodedRecordBatch) -> StampedRecordBatch:
        """The record batch with its producer and the next sequence number of its partition."""
        name = TopicPartition(record_batch.topic, record_batch.partition)
        sequence = self._sequences.get(name, 0)
        header = stamp_header(record_batch, self._producer, sequence)
        self._sequences[name] = add_sequence(sequence, record_batch.record_count)
        self.record_count += record_batch.record_count
        self.byte_count += len(record_batch.data)
        return StampedRecordBatch(name, header, memoryview(record_batch.data)[HEADER_SIZE:])

    def _put(self, record_batch: StampedRecordBatch) -> None:
        """Add a record batch to the next request for its leader. If that is full, send it first."""
        name = record_batch.partition
        node = self._leader_of(name)
        leader = self._under_way.setdefault(node, LeaderQueue())
        if (
            name in leader.record_batches
            or leader.size_bytes + record_batch.size_bytes > self._settings.max_request_bytes
        ):
            self._send_out(node, leader)
        leader.record_batches[name] = record_batch
        leader.size_bytes += record_batch.size_bytes

    def commit(
        self,
        topics: Iterable[str],
        offset: int,
        metadata_text: str,
        more: Sequence[str] = (),
    ) -> None:
        """Commit everything that was sent.

        `offset` is committed as the group's offset on partition 0 of each of the topics. The texts
        of `more` are committed with it on the next partitions, of topics that have these.

        Raises: PassingError, also for a lost response; then only `group_state` shows the outcome.
        """
        self._send_all_out()
        self._commit_offset(sorted(set(topics)), offset, (metadata_text, *more))
        self._receive_all()
        self._end(commit=True)
        self._forget_transaction()

    def commit_records(self) -> None:
        """Commit everything that was sent, and no offset.

        Raises: PassingError, also for a lost response, after which `repeat_lost_end` has to follow.
        """
        self._send_all_out()
        self._receive_all()
        self._lost_end = _LostEnd(
            self._producer, self._is_version_2, self.record_count, self.byte_count
        )
        try:
            self._end(commit=True)
        except (FencedError, PublishError):
            self._lost_end = None  # EndTxn was answered with an error: nothing is committed
            raise
        self._lost_end = None
        self._forget_transaction()

    def repeat_lost_end(self) -> tuple[int, int] | None:
        """Find out whether a `commit_records` without a response has succeeded, by sending its
        EndTxn again.

        Gives:  the counts of records and bytes if it is committed; None if it is not, or if no
                response was lost.
        Raises: PassingError while the outcome is unknown; PublishError if it remains unknown.
        """
        lost = self._lost_end
        if lost is None:
            return None
        self._producer, self._is_version_2 = lost.producer, lost.is_version_2
        try:
            self._end(commit=True)
        except FencedError:  # the transaction has timed out, and was aborted
            self._lost_end = None
            return None
        self._lost_end = None
        self._forget_transaction()
        return lost.record_count, lost.byte_count

    def check_session(self) -> None:
        """If nothing was sent, check that no other producer has begun with the transactional id.

        After:  `begin` has to follow.
        Raises: FencedError if another producer has begun; PassingError.
        """
        answer = self._ask_for_end(commit=False)
        if answer.error_code != Code.INVALID_TXN_STATE:  # there is no transaction to end
            self._check(answer.error_code, f"transactional id {self.transactional_id!r}")

    def _send_all_out(self) -> None:
        for node, leader in self._under_way.items():
            self._send_out(node, leader)

    def _receive_all(self) -> None:
        for node, leader in self._under_way.items():
            while leader.unanswered:
                self._receive(node, leader)

    def abort(self) -> None:
        """Abort the transaction.

        A Produce that is still in flight must not arrive after the marker, since it could open the
        transaction again. Either all responses are received first, or a new epoch fences requests.

        Raises: ClientError on failure, after which the transaction's timeout aborts it.
        """
        if not self.is_open:
            return
        try:
            self._await_answers()
            self._end(commit=False)
        except FencedError:
            pass  # the transaction has ended already
        except ClientError:
            self.forget_connections()
            self.begin()
        self._forget_transaction()

    def _await_answers(self) -> None:
        """Receive all responses to Produce requests, and ignore their content."""
        for node, leader in self._under_way.items():
            if leader.unanswered:
                connection = self._connections.of_node(node)
                if connection.unanswered != len(leader.unanswered):
                    raise PassingError(f"{connection.address}: an answer was lost")
                while leader.unanswered:
                    leader.unanswered.popleft()
                    connection.receive(self._produce)

    # --- parts

    def _commit_offset(self, topics: Sequence[str], offset: int, texts: Sequence[str]) -> None:
        counts = dict.fromkeys(topics, 1)
        if len(texts) > 1:
            counts = {topic: min(self.partition_count(topic), len(texts)) for topic in topics}
        self._commit_offsets(_offset_rows(counts, offset, texts))

    def _commit_offsets(
        self,
        topics: list[TxnOffsetCommitRequestTopic],
        member: tuple[int, str, str | None] = (-1, "", None),
    ) -> None:
        """Commit offsets in the transaction.

        Takes:  member, the generation, member id and instance id by which the group fences
                (KIP-447); by default none.
        """
        what = f"group {self._group_id!r}"
        self._has_offsets = True  # set before the request, whose response may be lost
        if not self._is_version_2:
            added = self._coordinator(TRANSACTION).request(
                ADD_OFFSETS_TO_TXN,
                AddOffsetsToTxnRequest(
                    transactional_id=self.transactional_id,
                    producer_id=self._producer.producer_id,
                    producer_epoch=self._producer.epoch,
                    group_id=self._group_id,
                ),
            )
            self._check(added.error_code, what)
        generation_id, member_id, group_instance_id = member
        answer = self._coordinator(GROUP).request(
            TXN_OFFSET_COMMIT_2 if self._is_version_2 else TXN_OFFSET_COMMIT,
            TxnOffsetCommitRequest(
                transactional_id=self.transactional_id,
                group_id=self._group_id,
                producer_id=self._producer.producer_id,
                producer_epoch=self._producer.epoch,
                generation_id=generation_id,
                member_id=member_id,
                group_instance_id=group_instance_id,
                topics=topics,
            ),
        )
        for each in answer.topics:
            for part in each.partitions:
                self._check(part.error_code, f"{what}, topic {each.name!r}")

    def _end(self, *, commit: bool) -> None:
        answer = self._ask_for_end(commit=commit)
        self._check(answer.error_code, f"the end of a transaction of {self.transactional_id!r}")

    def _ask_for_end(self, *, commit: bool) -> EndTxnResponse:
        return self._coordinator(TRANSACTION).request(
            END_TXN_2 if self._is_version_2 else END_TXN,
            EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self._producer.producer_id,
                producer_epoch=self._producer.epoch,
                committed=commit,
            ),
        )

    def _send_out(self, node: int, leader: LeaderQueue) -> None:
        """When few enough requests to a leader are in flight, send the records collected for it."""
        record_batches = list(leader.record_batches.values())
        if not record_batches:
            return
        leader.record_batches, leader.size_bytes = {}, 0
        self._add_partitions(
            [
                record_batch.partition
                for record_batch in record_batches
                if record_batch.partition not in self._added
            ]
        )
        while len(leader.unanswered) >= self._settings.in_flight:
            self._receive(node, leader)
        while leader.unanswered and self._connections.of_node(node).is_expired:
            self._receive(node, leader)
        connection = self._connections.of_node(node)
        version = connection.version_of(self._produce)
        body = encode_produce(
            version, self.transactional_id, self._options.request_timeout_ms, record_batches
        )
        connection.send_encoded(self._produce, version, body)
        leader.unanswered.append([record_batch.partition for record_batch in record_batches])

    def _add_partitions(self, names: Iterable[TopicPartition]) -> None:
        topics: dict[str, list[int]] = {}
        for name in names:
            topics.setdefault(name.topic, []).append(name.partition)
            self._added.add(name)  # set before the request, whose response may be lost
        if not topics or self._is_version_2:
            return
        answer = self._coordinator(TRANSACTION).request(
            ADD_PARTITIONS_TO_TXN,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self._producer.producer_id,
                v3_and_below_producer_epoch=self._producer.epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(topic, partitions)
                    for topic, partitions in topics.items()
                ],
            ),
        )
        codes = {
            TopicPartition(topic.name, partition.partition_index): partition.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        }
        for name, code in codes.items():
            # OPERATION_NOT_ATTEMPTED only means that another partition has an error.
            if code != Code.OPERATION_NOT_ATTEMPTED:
                self._check(code, f"partition {name}")

    def _receive(self, node: int, leader: LeaderQueue) -> None:
        """Receive the response to the oldest Produce of a leader."""
        unanswered = set(leader.unanswered.popleft())
        answer = self._connections.of_node(node).receive(self._produce)
        for topic in answer.responses:
            for part in topic.partition_responses:
                name = TopicPartition(topic.name, part.index)
                unanswered.discard(name)
                self._check(part.error_code, f"partition {name}", _message_of(part))
        if unanswered:
            raise PassingError(f"an answer to Produce lacks {min(unanswered)}")

    # --- answers

    def partition_count(self, topic: str) -> int:
        """The partition count of a topic, which the broker may create for this request."""
        self._leader_of(TopicPartition(topic, 0))
        return sum(name.topic == topic for name in self._cluster.leaders)

    def _coordinator(self, kind: int) -> Connection:
        """The connection to the coordinator of the transaction or of a group."""
        if kind == TRANSACTION:
            key, what = self.transactional_id, f"transactional id {self.transactional_id!r}"
        else:
            key = self._group_id + (BEGUN if kind == BEGUN_GROUP else "")
            what = f"group {key!r}"
        key_type = TRANSACTION if kind == TRANSACTION else GROUP

        def check(_: str, code: int, message: str) -> None:
            self._check(code, f"looking for the coordinator of {what}", message)

        return self._cluster.coordinator(key, key_type, check, CONTROL)

    def _leader_of(self, name: TopicPartition) -> int:
        """The id of the broker that leads a partition.

        Metadata is requested repeatedly for a while, since a new topic may not have a leader yet.
        """
        leaders = self._cluster.leaders
        start = time.monotonic()
        while leaders.get(name, -1) < 0:
            (topic,) = self._cluster.refresh([name.topic], create=True, purpose=CONTROL).topics
            if leaders.get(name, -1) >= 0:
                break
            what = f"topic {name.topic!r}"
            if topic.error_code not in PASSING_CODES:
                self._check(topic.error_code, what)
            if (time.monotonic() - start) * 1000 >= UNKNOWN_TOPIC_PATIENCE_MS:
                raise self._no_leader(name, topic)
            time.sleep(self._options.retry_backoff_ms / 1000)
        return leaders[name]

    def _no_leader(self, name: TopicPartition, topic: MetadataResponseTopic) -> ClientError:
        if topic.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION:
            return PublishError(
                f"topic {name.topic!r} does not exist, and the broker does not create it "
                "(auto.create.topics.enable): create it first",
                Code.UNKNOWN_TOPIC_OR_PARTITION,
            )
        if topic.error_code:
            return PassingError(f"topic {name.topic!r}: {code_name(topic.error_code)}")
        indexes = [partition.partition_index for partition in topic.partitions]
        if name.partition in indexes:
            return PassingError(f"partition {name} has no leader")
        return PublishError(
            f"partition {name} does not exist: topic {name.topic!r} has {len(indexes)} partitions",
            Code.UNKNOWN_TOPIC_OR_PARTITION,
        )

    def _check(self, code: int, what: str, broker_message: str = "") -> None:
        if not code:
            return
        message = f"{what}: {code_name(code)}" + (f" ({broker_message})" if broker_message else "")
        if code in PASSING_CODES:
            raise PassingError(message)
        if code in _FENCED:
            raise FencedError(message)
        advice = _ADVICE.get(code)
        raise PublishError(f"{message}: {advice}" if advice else message, code)

    # --- connections

    def keep_idle(self, buffer_bytes: int) -> None:
        """Close all connections, except idle ones whose buffer has at most this size."""
        self._connections.keep_idle(buffer_bytes)

    def forget_connections(self) -> None:
        """Close all connections, and discard the known leaders and coordinators, which a failure
        may have changed.
        """
        self._connections.close()
        self._cluster.forget()

    def advice(self, error: Exception) -> str:
        """The text of an error, with possible causes."""
        return self._connections.advice(error)


def _committed_in(answer: OffsetFetchResponse) -> dict[str, CommittedBatch]:
    """The offset of partition 0 of each topic, and the texts of the next partitions with the same
    offset.
    """
    committed: dict[str, CommittedBatch] = {}
    for topic in answer.topics:
        parts = {each.partition_index: each for each in topic.partitions}
        first = parts.pop(0, None)
        if first is None or first.committed_offset < 0:
            continue
        more = tuple(
            part.metadata or ""
            for _, part in sorted(parts.items())
            if part.committed_offset == first.committed_offset
        )
        note = parse_note(first.metadata)
        committed[topic.name] = CommittedBatch(first.committed_offset, note, more)
    return committed


def _offset_rows(
    counts: Mapping[str, int], offset: int, texts: Sequence[str]
) -> list[TxnOffsetCommitRequestTopic]:
    """The rows that commit an offset with its texts: all of them for topics with enough partitions,
    else the first.

    Raises: PublishError if no topic has enough partitions.
    """
    if max(counts.values()) < len(texts):
        raise PublishError(
            "too many tasks of the batch wrote their rows: their list needs the offset metadata "
            f"of {len(texts)} partitions, and no topic of the batch has so many. Give the write "
            "fewer tasks (coalesce), or the topic more partitions, or set sinkMode=driver"
        )
    partitions = [
        TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=text
        )
        for index, text in enumerate(texts)
    ]
    return [
        TxnOffsetCommitRequestTopic(
            name=topic, partitions=partitions if count == len(texts) else partitions[:1]
        )
        for topic, count in counts.items()
    ]


def _message_of(part: PartitionProduceResponse) -> str:
    """The broker's message in a Produce response, for the batch or its first faulty record."""
    records = [
        each.batch_index_error_message
        for each in part.record_errors
        if each.batch_index_error_message
    ]
    return part.error_message or (records[0] if records else "")
