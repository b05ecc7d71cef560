"""Sends records, in transactions or without, and waits for their answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from barnabas.cli.errors import CommandError
from barnabas.cli.output import note
from barnabas.cli.records import InputRecord
from barnabas.cli.waiting import LOOK_EVERY_S, TimeoutOver, Waiting
from barnabas.texts import count_text

ABORT_SOON_S = 0.5
PENDING_MOST = 20_000  # the maximum number of unanswered records, at which reading pauses


class RecordSender:
    """Sends records and waits for their answers.

    count, transactions: the numbers of acknowledged records and of committed transactions. last:
    the last offset of each partition. committed: the number of records in committed transactions.
    """

    def __init__(
        self,
        producer: Any,
        topic: str,
        partition: int | None,
        headers: tuple[tuple[str, bytes], ...],
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._headers = headers
        self._pending: deque[Any] = deque()
        self._silence = producer.waiting.silence()
        self.count = 0
        self.committed = 0
        self.transactions = 0
        self.last: dict[int, int] = {}
        self._partitions = frozenset(producer.partitions_for(topic) or ())
        self._check_partition(partition)

    def send(self, records: Iterable[InputRecord], advance: Any) -> None:
        """Send all records. If reading fails, the records that were read before are still sent."""
        try:
            for record in records:
                self._send_one(record)
                advance()
        except (KeyboardInterrupt, TimeoutOver):
            raise
        except BaseException:
            self._wait()
            raise
        self._wait()

    def send_in_transactions(
        self, records: Iterable[InputRecord], every: int | None, advance: Any
    ) -> None:
        """Send all records in transactions; a failure aborts the open transaction."""
        self._producer.init_transactions()
        in_transaction = 0
        try:
            for record in records:
                if in_transaction == 0:
                    self._producer.begin_transaction()
                self._send_one(record)
                in_transaction += 1
                advance()
                if in_transaction == every:
                    self._commit()
                    in_transaction = 0
            if in_transaction:
                self._commit()
        except BaseException as error:
            if in_transaction:
                self._abort(soon=isinstance(error, KeyboardInterrupt | TimeoutOver))
            raise

    def _commit(self) -> None:
        """Wait for all answers, and commit the transaction."""
        self._wait()
        self._producer.commit_transaction()
        self.transactions += 1
        self.committed = self.count

    def _abort(self, *, soon: bool) -> None:
        """Abort the open transaction. An error is only reported, since the coordinator aborts the
        transaction later, or has already ended it because the producer was fenced.

        Takes: soon, whether to wait only briefly, as after Ctrl-C or if the broker does not answer.
        """
        from kafka.errors import KafkaError

        waiting = self._producer.waiting
        timeout_s = ABORT_SOON_S if soon else waiting.timeout_s
        try:
            Waiting(waiting.address, timeout_s).call(
                "the abort of the open transaction", self._producer.client.abort_transaction
            )
            note("the open transaction is aborted")
        except TimeoutOver:
            note("the open transaction will be aborted by its timeout: the broker does not answer")
        except (KafkaError, AssertionError, ValueError, RuntimeError) as error:
            note(f"the open transaction will be aborted by its timeout: {error}")

    def _check_partition(self, partition: int | None) -> None:
        """Raise CommandError if the topic has no such partition."""
        if partition is not None and partition not in self._partitions:
            count = count_text(len(self._partitions), "partition")
            raise CommandError(
                f"the topic {self._topic!r} has {count}, and a record is for partition "
                f"{partition}: pass --by-key, or add partitions to the topic"
            )

    def _send_one(self, record: InputRecord) -> None:
        """Put a record into the producer's queue; if too many records are unanswered, wait for
        their answers first.
        """
        if len(self._pending) >= PENDING_MOST:
            self._wait()
        self._check_partition(record.partition)
        if not self._pending:
            self._silence.end()
        self._pending.append(
            self._producer.send(
                self._topic,
                key=record.key,
                value=record.value,
                headers=[*self._headers, *record.headers],
                partition=self._partition if record.partition is None else record.partition,
                timestamp_ms=record.timestamp_ms,
            )
        )

    def look(self) -> None:
        """Count the records that the broker has acknowledged since the last call.

        Raises: TimeoutOver if no answer came within the timeout; the client's error for a record.
        """
        while self._pending and self._pending[0].is_done:
            sent = self._pending.popleft().get()
            self.count += 1
            self.last[sent.partition] = max(sent.offset, self.last.get(sent.partition, -1))
            self._silence.end()
        if self._pending:
            count = count_text(len(self._pending), "record")
            self._silence.look(f"its acknowledgement of {count}")

    def acknowledged(self) -> str:
        """A text on the acknowledged and committed records, for a command that ends before its
        input does.
        """
        answered = sum(future.is_done and not future.failed() for future in self._pending)
        count = self.count + answered
        was = "was" if count == 1 else "were"
        return f"{count_text(count, 'record')} {was} acknowledged"

    def _wait(self) -> None:
        """Wait until all sent records are acknowledged."""
        from kafka.errors import KafkaTimeoutError

        while self._pending:
            with suppress(KafkaTimeoutError):
                self._producer.client.flush(timeout=LOOK_EVERY_S)
            self.look()
