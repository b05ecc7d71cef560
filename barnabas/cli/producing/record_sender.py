"""Sends records, in transactions or without, and waits for their answers."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from barnabas.cli.errors import CommandError, RefusedError
from barnabas.cli.output import note
from barnabas.cli.producing.record_producer import RecordProducer
from barnabas.cli.records import InputRecord
from barnabas.cli.waiting import TimeoutOver, Waiting
from barnabas.protocol.records import NewRecord
from barnabas.texts import count_text

ABORT_SOON_S = 0.5


class RecordSender:
    """Sends records and waits for their answers.

    transactions, committed: the numbers of committed transactions, and of records in them.
    """

    def __init__(
        self,
        producer: RecordProducer,
        partition: int | None,
        headers: tuple[tuple[str, bytes], ...],
    ) -> None:
        self._producer = producer
        self._partition = partition
        self._headers = headers
        self.committed = 0
        self.transactions = 0
        self._check_partition(partition)

    @property
    def count(self) -> int:
        """The number of acknowledged records."""
        return self._producer.count

    @property
    def last(self) -> dict[int, int]:
        """The last offset of each partition."""
        return self._producer.last

    def send(self, records: Iterable[InputRecord], advance: Any) -> None:
        """Send all records. If reading fails, the records that were read before are still sent."""
        try:
            for record in records:
                self._send_one(record)
                advance()
        except (KeyboardInterrupt, TimeoutOver):
            raise
        except BaseException:
            self._producer.flush()
            raise
        self._producer.flush()

    def send_in_transactions(
        self, records: Iterable[InputRecord], every: int | None, advance: Any
    ) -> None:
        """Send all records in transactions; a failure aborts the open transaction."""
        in_transaction = 0
        try:
            for record in records:
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
        self._producer.commit()
        self.transactions += 1
        self.committed = self.count

    def _abort(self, *, soon: bool) -> None:
        """Abort the open transaction. An error is only reported, since the coordinator aborts the
        transaction later, or has already ended it because the producer was fenced.

        Takes: soon, whether to wait only briefly, as after Ctrl-C or if the broker does not answer.
        """
        waiting = self._producer.waiting
        timeout_s = ABORT_SOON_S if soon else waiting.timeout_s
        try:
            Waiting(waiting.address, timeout_s).call(
                "the abort of the open transaction", self._producer.abort
            )
            note("the open transaction is aborted")
        except TimeoutOver:
            note("the open transaction will be aborted by its timeout: the broker does not answer")
        except (CommandError, OSError, RefusedError) as error:
            note(f"the open transaction will be aborted by its timeout: {error}")

    def _check_partition(self, partition: int | None) -> None:
        """Raise CommandError if the topic has no such partition."""
        if partition is not None and partition >= self._producer.partition_count:
            count = count_text(self._producer.partition_count, "partition")
            raise CommandError(
                f"the topic {self._producer.topic!r} has {count}, and a record is for partition "
                f"{partition}: pass --by-key, or add partitions to the topic"
            )

    def _send_one(self, record: InputRecord) -> None:
        """Give a record to the producer, which sends it with others."""
        self._check_partition(record.partition)
        timestamp_ms = record.timestamp_ms
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        headers = (*self._headers, *record.headers)
        self._producer.add(
            NewRecord(record.key, record.value, timestamp_ms, headers),
            self._partition if record.partition is None else record.partition,
        )

    def look(self) -> None:
        """Send the records that have waited for others. Called while there is no input.

        Raises: TimeoutOver if no answer came within the timeout; RefusedError.
        """
        self._producer.flush_if_old()

    def acknowledged(self) -> str:
        """A text on the acknowledged and committed records, for a command that ends before its
        input does.
        """
        was = "was" if self.count == 1 else "were"
        return f"{count_text(self.count, 'record')} {was} acknowledged"
