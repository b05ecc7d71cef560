"""The producer of one task. It writes the task's record batches in a separate transaction, and
leaves the transaction open for the driver to end.

Unlike the driver's producer it repeats single requests, since it gets a task's rows only once.
Batches without a response are sent again with the same sequence numbers, and a leader appends them
only once (KIP-98). The producer can therefore continue after a broker has restarted, if the restart
takes less than `delivery_timeout_ms`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from barnabas.client.errors import ClientError, PassingError, code_name
from barnabas.client.notices import RetryNotice
from barnabas.client.options import ClientOptions
from barnabas.protocol.errors import Code
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch
from barnabas.spark_connector.write.produce_request import PublishError, StampedRecordBatch
from barnabas.spark_connector.write.task_transactions import ENDED, TaskTransaction
from barnabas.spark_connector.write.transaction_coordinators import TransactionCoordinators
from barnabas.spark_connector.write.transactional_ids import TransactionalIds
from barnabas.spark_connector.write.transactional_producer import (
    FencedError,
    LeaderQueue,
    PublishSettings,
    TransactionalProducer,
)

T = TypeVar("T")
# Errors which mean that another producer session has begun for the id, or that the broker does not
# know this session.
_ENDED = frozenset(
    {
        Code.INVALID_PRODUCER_ID_MAPPING,
        Code.UNKNOWN_PRODUCER_ID,
        Code.TRANSACTION_ABORTABLE,
    }
)


def repeat(
    options: ClientOptions,
    settings: PublishSettings,
    what: str,
    step: Callable[[], T],
    again: Callable[[], T],
    forget: Callable[[], None],
) -> T:
    """Call `step`. After a transient failure, pause and call `again` instead, until that succeeds.

    Takes:  forget, a function that closes the connections before each repetition.
    Raises: PublishError when `delivery_timeout_ms` has passed; ClientError.
    """
    deadline: float | None = None
    notice = RetryNotice(settings.delivery_timeout_ms)
    pause_s = options.retry_backoff_ms / 1000
    while True:
        try:
            return step()
        except PassingError as error:
            forget()
            patience_s = settings.delivery_timeout_ms / 1000
            deadline = time.monotonic() + patience_s if deadline is None else deadline
            if time.monotonic() >= deadline:
                raise PublishError(
                    f"{what} failed for {patience_s:.0f} s and more: {error}"
                ) from error
            notice.failed(f"{what}: {error}")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, max(settings.retry_backoff_max_ms / 1000, pause_s))
        step = again


class TaskProducer(TransactionalProducer):
    """The producer of one transaction. Call `open`, then `write` any number of times, then
    `finish`; or `discard` at any time.

    `_unacknowledged` has the record batches of each partition, in order, that the leader has not
    acknowledged yet.
    """

    def __init__(
        self, options: ClientOptions, settings: PublishSettings, transactional_id: str
    ) -> None:
        """`_unacknowledged` has, for each partition, the record batches to send again if a response
        is lost.
        """
        super().__init__(options, settings, transactional_id, "")
        self._unacknowledged: dict[TopicPartition, deque[StampedRecordBatch]] = {}
        self._began_ms = 0

    def open(self) -> None:
        """Begin the transaction, with a new epoch of the transactional id. Raises: ClientError."""
        self._began_ms = time.time_ns() // 1_000_000
        self._repeat(self.begin, self.begin)

    def write(self, record_batches: Iterable[EncodedRecordBatch]) -> None:
        """Send record batches. A request is sent as soon as it is full. Raises: ClientError."""
        for record_batch in record_batches:
            stamped = self._stamped(record_batch)
            self._unacknowledged.setdefault(stamped.partition, deque()).append(stamped)
            self._repeat(partial(self._put, stamped), self._put_again)

    def finish(self) -> TaskTransaction:
        """Wait until all record batches are acknowledged, and close the connections.

        Gives:  the transaction, which remains open.
        Raises: ClientError.
        """

        def flush() -> None:
            self._send_all_out()
            self._receive_all()

        def flush_again() -> None:
            self._put_again()
            flush()

        self._repeat(flush, flush_again)
        self.forget_connections()
        return TaskTransaction(self.transactional_id, self._producer, self._began_ms)

    def discard(self) -> None:
        """Abort the transaction. If the brokers cannot be reached, its timeout aborts it.

        The abort uses a new epoch, which fences requests that are still in flight.
        """
        self.forget_connections()
        try:
            self.begin()
        except ClientError:
            pass
        self.forget_connections()

    def _put_again(self) -> None:
        """Add all unacknowledged record batches to new requests, with their former sequence
        numbers.
        """
        self._under_way.clear()
        self._added.clear()
        for record_batches in self._unacknowledged.values():
            for record_batch in record_batches:
                self._put(record_batch)

    def _receive(self, node: int, leader: LeaderQueue) -> None:
        """Receive a response, and forget the record batches that it acknowledges."""
        names = leader.unanswered[0]
        super()._receive(node, leader)
        for name in names:
            self._unacknowledged[name].popleft()

    def _repeat(self, step: Callable[[], None], again: Callable[[], None]) -> None:
        """Call `step`. After a transient failure, call `again` instead."""
        what = f"writing as {self.transactional_id!r}"
        repeat(self._options, self._settings, what, step, again, self.forget_connections)

    def _check(self, code: int, what: str, broker_message: str = "") -> None:
        if code in _ENDED:
            raise FencedError(f"{what}: {code_name(code)}")
        super()._check(code, what, broker_message)


class TaskWriter:
    """Writes one task's record batches in a separate transaction."""

    def __init__(self, producer: TaskProducer, ids: TransactionalIds, batch_id: int) -> None:
        self._producer, self._ids, self._batch_id = producer, ids, batch_id

    def append(self, record_batch: EncodedRecordBatch) -> None:
        """Send one record batch. Raises: ClientError."""
        self._producer.write([record_batch])

    def close(self) -> TaskTransaction:
        """Wait until all record batches are acknowledged. After: a later batch may use the
        transactional id again.

        Raises: ClientError.
        """
        transaction = self._producer.finish()
        self._ids.put_back(transaction.transactional_id, self._batch_id)
        return transaction

    def discard(self) -> None:
        """Try to abort the transaction."""
        self._producer.discard()


# Whether the brokers support two-phase commit, by bootstrap servers.
_keeps: dict[tuple[object, ...], bool] = {}


def _keeps_for(options: ClientOptions, ask: Callable[[], bool]) -> bool:
    """Whether the brokers support two-phase commit. Only a positive result is cached."""
    if not _keeps.get(options.bootstrap_servers):
        _keeps[options.bootstrap_servers] = ask()
    return _keeps[options.bootstrap_servers]


def open_task_writer(
    options: ClientOptions,
    settings: PublishSettings,
    ids: TransactionalIds,
    driver_id: str,
    batch_id: int,
    *,
    only_two_phase: bool,
) -> TaskWriter | None:
    """Begin a task's transaction.

    Takes:  only_two_phase, whether to begin it only if the brokers support two-phase commit.
    Gives:  the writer, or None if the transaction was not begun for that reason.
    Raises: ClientError.
    """
    coordinators = TransactionCoordinators(options, settings, driver_id)

    def patiently(step: Callable[[], T]) -> T:
        what = f"preparing to write for {driver_id!r}"
        return repeat(options, settings, what, step, step, coordinators.close)

    try:
        if not only_two_phase:
            patiently(coordinators.check_versions)
        elif not _keeps_for(options, lambda: patiently(lambda: coordinators.keeps)):
            return None
        name = ids.new()
        for earlier in ids.take(batch_id):
            described = patiently(partial(coordinators.describe, [earlier]))
            if not described or described[earlier].state in ENDED:
                name = earlier
                break
            ids.put_back(earlier, batch_id)
    finally:
        coordinators.close()
    producer = TaskProducer(options, settings, name)
    producer.open()
    return TaskWriter(producer, ids, batch_id)
