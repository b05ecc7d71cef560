"""The partitions of open transactions: requests add them, and writes are checked against them.

A transaction begins with the Ongoing record of its first partition. Three requests add partitions:
AddPartitionsToTxn, AddOffsetsToTxn (which adds the partition of __consumer_offsets that stores a
group), and in version 2 the write itself (KIP-890, part two). Before a batch is appended, the
broker verifies that its partition is in the transaction (KIP-890, part one).

Source: KIP-98, KIP-447, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from barnabas.coordinator.internal_topics import (
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
)
from barnabas.coordinator.result import PartitionExists, Reply, Result
from barnabas.coordinator.transactions import fencing
from barnabas.coordinator.transactions.transaction_state import (
    MAX_PRODUCER_EPOCH,
    VERSION_2,
    TransactionMetadata,
)
from barnabas.coordinator.transactions.transaction_table import TransactionTable
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.protocol.wall_clock import WallClock

# From these versions on, Produce and TxnOffsetCommit add the partition that they write to (KIP-890,
# part two).
PRODUCE_ADDS, OFFSETS_ADD = 12, 5
# The first versions that know TRANSACTION_ABORTABLE, the code for a partition that was not added.
# For earlier versions INVALID_TXN_STATE replaces it.
_PRODUCE_KNOWS_ABORTABLE, _OFFSETS_KNOW_ABORTABLE, _ADD_KNOWS_ABORTABLE = 11, 4, 5
_ADD_KNOWS_FENCED = 2  # for earlier versions, INVALID_PRODUCER_EPOCH replaces PRODUCER_FENCED
_ADD_KNOWS_BATCHES = 4
_NONE = Code.NONE  # a module's name is found sooner than the member of an Enum


class PartitionAdditions:
    """Decides whether partitions may be added to open transactions, and whether a write may be
    appended.
    """

    def __init__(
        self,
        table: TransactionTable,
        partition_exists: PartitionExists,
        group_partition: Callable[[str], int],
        wall: WallClock,
    ) -> None:
        self._table, self._partition_exists = table, partition_exists
        self._group_partition, self._wall = group_partition, wall

    # --- AddPartitionsToTxn ----------------------------------------------------------------------

    def on_add_partitions_to_txn(
        self, request: AddPartitionsToTxnRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Add the partitions that a producer is about to write to.

        From version 4 on, a request names many transactions, and may request only a verification.

        Gives:  an Ongoing record and the response, or only the response if all partitions are
                already added. Errors: INVALID_REQUEST; TOPIC_AUTHORIZATION_FAILED for internal
                topics and UNKNOWN_TOPIC_OR_PARTITION (then OPERATION_NOT_ATTEMPTED for the other
                partitions of that transaction); INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
                CONCURRENT_TRANSACTIONS. For a verification: TRANSACTION_ABORTABLE
                (INVALID_TXN_STATE before version 5) if a partition is not in the transaction.
        """
        if context.api_version >= _ADD_KNOWS_BATCHES:
            return self._add_in_batch(request, context, now_ms)
        added, results = self._add(
            self._table.by_id.get(request.v3_and_below_transactional_id),
            request.v3_and_below_transactional_id,
            (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
            request.v3_and_below_topics,
            context,
            now_ms,
        )
        reply = Reply(
            context.ticket, AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
        )
        return self._table.result(
            request.v3_and_below_transactional_id, [] if added is None else [added], [reply]
        )

    def _add_in_batch(
        self, request: AddPartitionsToTxnRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Handle a request that names many transactions. The last part of the result has the
        response.
        """
        decided: dict[str, TransactionMetadata] = {}
        results = []
        for entry in request.transactions:
            name = entry.transactional_id
            producer = entry.producer_id, entry.producer_epoch
            transaction = decided.get(name) or self._table.by_id.get(name)
            if entry.verify_only:
                topics = self._verification(transaction, name, producer, entry.topics, context)
            else:
                added, topics = self._add(
                    transaction, name, producer, entry.topics, context, now_ms
                )
                if added is not None:
                    decided[name] = added
            results.append(AddPartitionsToTxnResult(transactional_id=name, topic_results=topics))
        response = AddPartitionsToTxnResponse(error_code=_NONE, results_by_transaction=results)
        return self._table.results(decided.values(), [], [Reply(context.ticket, response)])

    def _add(
        self,
        transaction: TransactionMetadata | None,
        transactional_id: str,
        producer: tuple[int, int],
        topics: Iterable[AddPartitionsToTxnTopic],
        context: RequestContext,
        now_ms: int,
    ) -> tuple[TransactionMetadata | None, list[AddPartitionsToTxnTopicResult]]:
        """Decide whether the partitions may be added to one transaction.

        Gives:  the changed transaction, or None if nothing changes, and the result of each
                partition.
        """
        # made in this way, which is sooner, since there may be many
        pairs = [
            tuple.__new__(TopicPartition, (topic.name, partition))
            for topic in topics
            for partition in topic.partitions
        ]
        refused = self._refused_partitions(
            pairs, is_from_client=context.api_version < _ADD_KNOWS_BATCHES
        )
        if refused:
            return None, _results_by_topic(topics, refused, Code.OPERATION_NOT_ATTEMPTED)
        try:
            added = self.with_partitions(transaction, transactional_id, producer, pairs, now_ms)
        except KafkaError as error:
            code = fencing.code_for_version(error.code, context, _ADD_KNOWS_FENCED)
            return None, _results_by_topic(topics, {}, code)
        return added, _results_by_topic(topics, {}, _NONE)

    def _refused_partitions(
        self, pairs: Iterable[TopicPartition], *, is_from_client: bool
    ) -> dict[TopicPartition, Code]:
        """Return the partitions that no transaction may include, with their error codes.

        Apache Kafka cannot load a partition of __transaction_state that has a marker, so no version
        of the request may add such a partition. Clients add the partitions of __consumer_offsets
        with AddOffsetsToTxn. Brokers (from version 4 on) add them like any other partition.
        """
        internal = INTERNAL_TOPICS if is_from_client else (TRANSACTIONS_TOPIC,)
        refused = {}
        for pair in pairs:
            topic, partition = pair
            if topic in internal:
                refused[pair] = Code.TOPIC_AUTHORIZATION_FAILED
            elif not self._partition_exists(topic, partition):
                refused[pair] = Code.UNKNOWN_TOPIC_OR_PARTITION
        return refused

    def with_partitions(
        self,
        transaction: TransactionMetadata | None,
        transactional_id: str,
        producer: tuple[int, int],
        pairs: list[TopicPartition],
        now_ms: int,
        client_transaction_version: int = 0,
    ) -> TransactionMetadata | None:
        """Return the transaction with `pairs` added, or None if it already has all of them.

        Raises: KafkaError.
        """
        transaction = self._require_writer(transaction, transactional_id, producer)
        partitions = transaction.partitions
        for pair in pairs:
            if pair not in partitions:
                return transaction.with_partitions(
                    pairs, now_ms + self._wall.ahead_ms, client_transaction_version
                )
        # With an empty list nothing changes either, since a transaction does not begin without a
        # partition.
        return None

    def _require_writer(
        self,
        transaction: TransactionMetadata | None,
        transactional_id: str,
        producer: tuple[int, int],
    ) -> TransactionMetadata:
        """Return the transaction if `producer` may write to it now, and add partitions.

        Raises: KafkaError of `require_current`, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
        """
        transaction = fencing.require_current(transaction, transactional_id, producer)
        if self._table.is_ending(transaction):
            raise KafkaError(Code.CONCURRENT_TRANSACTIONS)
        if transaction.next_producer_epoch >= 0 and transaction.is_kept:  # see `require_current`
            raise KafkaError(Code.INVALID_TXN_STATE)
        return transaction

    # --- AddOffsetsToTxn, and writes that add ----------------------------------------------------

    def on_add_offsets_to_txn(
        self, request: AddOffsetsToTxnRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Add the partition of __consumer_offsets that stores a group.

        Errors: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
        CONCURRENT_TRANSACTIONS.
        """
        producer = request.producer_id, request.producer_epoch
        added, code = None, _NONE
        try:
            added = self.with_partitions(
                self._table.by_id.get(request.transactional_id),
                request.transactional_id,
                producer,
                [self._offsets_partition(request.group_id)],
                now_ms,
            )
        except KafkaError as error:
            code = fencing.code_for_version(error.code, context, _ADD_KNOWS_FENCED)
        reply = Reply(context.ticket, AddOffsetsToTxnResponse(error_code=code))
        return self._table.result(
            request.transactional_id, [] if added is None else [added], [reply]
        )

    def on_writing(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        pairs: list[TopicPartition],
        now_ms: int,
    ) -> Result:
        """Add the partitions that a producer of version 2 is about to write to.

        Gives:  an Ongoing record, which is appended before the first batch. If the partitions may
                not be added, there is no record, and `verify` then returns the code.
        """
        transaction = self._table.by_id.get(transactional_id)
        try:
            added = self.with_partitions(
                transaction, transactional_id, producer, pairs, now_ms, VERSION_2
            )
        except KafkaError:
            return Result()
        return self._table.result(transactional_id, [] if added is None else [added], [])

    def on_writing_offsets(
        self, transactional_id: str, producer: tuple[int, int], group_id: str, now_ms: int
    ) -> Result:
        """Call `on_writing` for the partition of __consumer_offsets that stores the group."""
        pair = self._offsets_partition(group_id)
        return self.on_writing(transactional_id, producer, [pair], now_ms)

    def _offsets_partition(self, group_id: str) -> TopicPartition:
        """The partition that stores the group's offsets. It always exists, so it is not looked
        up.
        """
        return TopicPartition(OFFSETS_TOPIC, self._group_partition(group_id))

    # --- verification ----------------------------------------------------------------------------

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        topic: str,
        partition: int,
        api_version: int,
    ) -> Code:
        """Check whether a transactional batch may be appended.

        Clients do not expect PRODUCER_FENCED in a Produce response: INVALID_PRODUCER_EPOCH replaces
        it. Before version 12 they do not retry after CONCURRENT_TRANSACTIONS: NOT_ENOUGH_REPLICAS
        replaces it.

        Gives:  NONE, or the error code for the Produce response.
        """
        partitions = self.open_partitions(transactional_id, (producer_id, producer_epoch))
        return self.code_of_batch(partitions, (topic, partition), api_version)

    def open_partitions(
        self, transactional_id: str, producer: tuple[int, int]
    ) -> Mapping[TopicPartition, None] | Code:
        """The partitions of the producer's open transaction; the error code if none is open."""
        transaction = self._table.by_id.get(transactional_id)
        try:
            return self._require_writer(transaction, transactional_id, producer).partitions
        except KafkaError as error:
            return error.code

    def code_of_batch(
        self,
        partitions: Mapping[TopicPartition, None] | Code,
        pair: tuple[str, int],
        api_version: int,
    ) -> Code:
        """What `verify` gives. Takes: partitions, the result of `open_partitions`, which a Produce
        of several batches asks once; pair, the topic and the partition of the batch.
        """
        if not isinstance(partitions, Code):
            # a plain tuple finds the TopicPartition, and costs less to make
            if pair in partitions:
                return _NONE
            code = Code.TRANSACTION_ABORTABLE
        else:
            code = partitions
        if code is Code.PRODUCER_FENCED:
            return Code.INVALID_PRODUCER_EPOCH
        if code is Code.CONCURRENT_TRANSACTIONS and api_version < PRODUCE_ADDS:
            return Code.NOT_ENOUGH_REPLICAS
        if code is Code.TRANSACTION_ABORTABLE and api_version < _PRODUCE_KNOWS_ABORTABLE:
            return Code.INVALID_TXN_STATE
        return code

    def verify_offsets(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        group_id: str,
        api_version: int,
        open_epoch: int | None = None,
    ) -> Code:
        """Check whether offsets of a group may be appended.

        Before its first offsets are accepted, the group must have been added to the transaction,
        like a partition before its first batch (KIP-890). For later offsets, below level 2 of
        transaction.version, a higher epoch is accepted too, and fences the producer. Recordings
        show that Apache Kafka 3.9 does this, whereas 4.3 does not. There are two exceptions: the
        highest epoch is rejected, since no producer can have it, and so is a higher epoch for a
        kept transaction.

        Takes:  open_epoch, the epoch with which the producer has an open transaction in the group's
                partition; None if the partition has no such transaction.
        Gives:  NONE, or the error code for the TxnOffsetCommit response.
        """
        table = self._table
        producer = producer_id, producer_epoch
        if producer in table.kept_from:
            return Code.INVALID_PRODUCER_EPOCH
        is_lax = table.settings.transaction_version < VERSION_2 and api_version < OFFSETS_ADD
        if table.kept_from and is_lax:  # the producer that has kept a transaction may only end it
            transaction = table.by_id.get(transactional_id)
            is_lax = transaction is None or not transaction.is_kept
        if open_epoch is not None and is_lax:
            is_valid = open_epoch <= producer_epoch < MAX_PRODUCER_EPOCH
            return _NONE if is_valid else Code.INVALID_PRODUCER_EPOCH
        partitions = self.open_partitions(transactional_id, producer)
        if isinstance(partitions, Code):
            code = partitions
        elif self._offsets_partition(group_id) in partitions:
            return _NONE
        else:
            code = Code.TRANSACTION_ABORTABLE
        if code is Code.TRANSACTION_ABORTABLE and api_version < _OFFSETS_KNOW_ABORTABLE:
            return Code.INVALID_TXN_STATE
        return Code.INVALID_PRODUCER_EPOCH if code is Code.PRODUCER_FENCED else code

    def _verification(
        self,
        transaction: TransactionMetadata | None,
        transactional_id: str,
        producer: tuple[int, int],
        topics: Iterable[AddPartitionsToTxnTopic],
        context: RequestContext,
    ) -> list[AddPartitionsToTxnTopicResult]:
        """Return the result of each partition for an AddPartitionsToTxn that only verifies."""
        try:
            transaction = fencing.require_current(transaction, transactional_id, producer)
            if self._table.is_ending(transaction):
                raise KafkaError(Code.CONCURRENT_TRANSACTIONS)
        except KafkaError as error:
            return _results_by_topic(topics, {}, error.code)
        knows_abortable = context.api_version >= _ADD_KNOWS_ABORTABLE
        missing = Code.TRANSACTION_ABORTABLE if knows_abortable else Code.INVALID_TXN_STATE
        return _results_by_topic(topics, dict.fromkeys(transaction.partitions, _NONE), missing)


def _results_by_topic(
    topics: Iterable[AddPartitionsToTxnTopic], codes: Mapping[Any, Code], otherwise: Code
) -> list[AddPartitionsToTxnTopicResult]:
    """Return a result with an error code for each partition, in the order of the request."""
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition,
                    codes.get((topic.name, partition), otherwise) if codes else otherwise,
                )
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]
