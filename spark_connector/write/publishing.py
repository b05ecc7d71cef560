"""The publisher of micro-batches, which commits each batch once, together with its number in one
transaction, even if there are several attempts and drivers.

An attempt takes the transactional id, which ends all transactions of earlier attempts or other
drivers. Then it reads the numbers of the committed batches from the group, and returns if this
batch is among them (deduplication.py has the rules). A stream's first batch is announced, and each
of its batches writes its begun note. Then the attempt produces all record batches, commits
`batch_id + 1` as the group's offset on each of their topics in the same transaction, and ends the
transaction.

After a transient failure, another attempt begins from the start, where the committed offset shows
the outcome. The loss of the response to EndTxn is such a failure. A batch without a number
(`commit_unnumbered`) commits no offset. If the response to its EndTxn is lost, the EndTxn is sent
again. Source: KIP-98, KIP-447.

Transactions that tasks wrote (task_transactions.py) are ended after the transaction of the attempt.
An attempt first ends the transactions that the last note lists, and at its own end those that its
own note lists.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import Any, NamedTuple

from barnabas.client.errors import ClientError, PassingError
from barnabas.client.notices import RetryNotice
from barnabas.client.options import ClientOptions
from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch
from barnabas.spark_connector.task_process import kept_publisher
from barnabas.spark_connector.write.deduplication import Decide, decide_by_number
from barnabas.spark_connector.write.produce_request import PublishError
from barnabas.spark_connector.write.spool import SpoolError
from barnabas.spark_connector.write.task_parts import NO_PARTS, PartEndings, TaskParts
from barnabas.spark_connector.write.task_transactions import Coordinators
from barnabas.spark_connector.write.transaction_coordinators import TransactionCoordinators
from barnabas.spark_connector.write.transactional_producer import (
    FencedError,
    PublishSettings,
    TransactionalProducer,
)

__all__ = ["Publication", "PublishError", "PublishSettings", "Publisher"]

REPEAT_NUMBERED = (
    "Whether the last attempt was committed may be unknown; publishing it again is safe."
)
REPEAT_UNNUMBERED = (
    "Whether the last attempt was committed may be unknown: look at the topic before you write "
    "it again, or set the option writeId, with which a repetition writes no row twice."
)
RecordBatches = Callable[[], Iterable[EncodedRecordBatch]]
ABANDON_MS = 5_000  # the maximum time for the clean-up after a failed attempt
NO_NUMBER = -1


class BegunNotes(NamedTuple):
    """What is done for a batch before its transaction: the announcement, `before`, and the begun
    note, in this order.

    announcement: the metadata with which the batch's number is announced, if the group has no
    offset. before: a function that is called in each attempt before the begun note is written.
    """

    announcement: str
    before: Callable[[], None]


class Publication(NamedTuple):
    """The outcome of a batch: whether it was committed before, and what was sent.

    If it was committed before, the counts are 0.
    """

    # whether an earlier attempt, perhaps of another driver, has committed the batch
    was_committed: bool
    record_count: int
    byte_count: int
    attempts: int

    def last_committed(self, batch_id: int) -> int:
        """Return the last batch that is certainly committed.

        This batch does not count if it has no rows. Another driver may have rows for it, and
        publish them.
        """
        return batch_id if self.was_committed or self.record_count else batch_id - 1


NOTHING = Publication(was_committed=False, record_count=0, byte_count=0, attempts=0)


class Publisher:
    """The publisher of a transactional id, which keeps its connections from one batch to the next.

    It belongs to one thread. It can still be used after a fork, or after a restart of a broker.
    """

    def __init__(self, options: ClientOptions, settings: PublishSettings | None = None) -> None:
        self.options = options
        self.settings = settings or PublishSettings()
        self._producer: TransactionalProducer | None = None
        self._names = ("", "")
        self._coordinators: TransactionCoordinators | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "settings": self.settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["options"], state["settings"])  # type: ignore[misc]

    def __enter__(self) -> Publisher:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def renew(self, buffer_bytes: int) -> None:
        """Close all connections, except idle ones whose buffer has at most this size.

        Connections to the coordinators of the tasks' transactions are also closed.
        """
        if self._producer is not None:
            self._producer.keep_idle(buffer_bytes)
        self._forget_coordinators()

    def close(self) -> None:
        """Close all connections. The publisher can still be used after that."""
        if self._producer is not None:
            self._producer.forget_connections()
        self._forget_coordinators()

    def commit_once(
        self,
        *,
        transactional_id: str,
        group_id: str,
        batch_id: int,
        metadata: str,
        record_batches: RecordBatches,
        decide: Decide | None = None,
        begun: BegunNotes | None = None,
        parts: TaskParts = NO_PARTS,
    ) -> Publication:
        """Commit a batch, unless it is already committed.

        Takes:  record_batches, which is called for each attempt and whose result is consumed while
                requests are sent; if there are none, no request is sent, and the number is not
                committed. decide, which decides by the group's offsets; without it only numbers are
                compared (`decide_by_number`). begun, the begun notes, if they are used: `decide`
                then receives them, and also decides on batches without records.
        Gives:  the outcome, once read_committed readers can read the batch, or will be able to when
                the broker has written its markers.
        Raises: ClientError (PublishError and others) that says what to do; the errors of
                `record_batches`. In these cases no part of the batch ever becomes visible, unless
                the message says that the outcome is unknown. It is always safe to call this again.
                UncertainBatchError (a ClientError) from `decide`; in this case nothing was sent.
        """
        decide = decide_by_number(batch_id) if decide is None else decide
        has_parts = parts.transactions or parts.looks_for_open
        if begun is None and not has_parts and not _any(record_batches):
            return NOTHING
        producer = self._producer_for(transactional_id, group_id)
        failures = _Failures(
            self.options, self.settings, f"publishing batch {batch_id} as {transactional_id!r}"
        )

        def attempt() -> Publication:
            endings = PartEndings(parts, transactional_id, lambda: self._coordinators_of(producer))
            try:
                return self._try_transaction(
                    producer,
                    batch_id,
                    metadata,
                    record_batches,
                    decide,
                    begun,
                    endings,
                )
            except ClientError:
                self._forget_coordinators()
                raise

        try:
            return _until_committed(attempt, producer, failures)
        except PublishError as error:
            if parts.transactions and isinstance(error.__cause__, FencedError):
                self._abort_as_fenced(producer, parts)
            raise

    def _abort_as_fenced(self, producer: TransactionalProducer, parts: TaskParts) -> None:
        """Abort the tasks' transactions after another driver has taken the transactional id.

        From then on no decision of this driver can be committed, so the group's note shows whether
        an earlier decision was. The other driver is not affected.
        """
        endings = PartEndings(
            parts, producer.transactional_id, lambda: self._coordinators_of(producer)
        )
        try:
            endings.abort_undecided(producer.group_state())
        except ClientError:
            pass  # `abandon` tries again
        self._forget_coordinators()

    def abandon(self, *, transactional_id: str, group_id: str, parts: TaskParts) -> None:
        """End the transactions that the tasks of a failed attempt wrote in this run.

        They are committed if the decision to commit was made in spite of the failure. Otherwise
        they are aborted.

        Raises: ClientError. In this case the next driver or the timeout ends them.
        """
        producer = self._producer_for(transactional_id, group_id)
        settings = replace(
            self.settings, delivery_timeout_ms=min(self.settings.delivery_timeout_ms, ABANDON_MS)
        )
        failures = _Failures(self.options, settings, f"aborting as {transactional_id!r}")

        def attempt() -> Publication:
            endings = PartEndings(parts, transactional_id, lambda: self._coordinators_of(producer))
            try:
                if endings.has_open:
                    producer.begin()
                    endings.finish(producer.group_state(), NO_NUMBER)
                    endings.abandon(producer)
            except ClientError:
                self._forget_coordinators()
                raise
            return NOTHING

        _until_committed(attempt, producer, failures)

    def commit_unnumbered(
        self, *, transactional_id: str, record_batches: RecordBatches
    ) -> Publication:
        """Commit a batch that no later write repeats, in one transaction without an offset.

        No group is used. If the response to EndTxn is lost, the same EndTxn is sent again.

        Takes:  transactional_id, which no other write uses; record_batches, see `commit_once`.
        Raises: as `commit_once`, with one difference: after an error with an unknown outcome,
                another call may write the batch twice.
        """
        if not _any(record_batches):
            return NOTHING
        producer = self._producer_for(transactional_id, "")
        failures = _Failures(
            self.options, self.settings, f"publishing as {transactional_id!r}", is_numbered=False
        )

        def attempt() -> Publication:
            counts = producer.repeat_lost_end()
            if counts is None:
                producer.begin()
                for record_batch in record_batches():
                    producer.send(record_batch)
                counts = producer.record_count, producer.byte_count
                producer.commit_records()
            return Publication(False, *counts, attempts=0)

        return _until_committed(attempt, producer, failures)

    def _try_transaction(
        self,
        producer: TransactionalProducer,
        batch_id: int,
        metadata: str,
        record_batches: RecordBatches,
        decide: Decide,
        begun: BegunNotes | None,
        endings: PartEndings,
    ) -> Publication:
        """Publish the batch in one transaction, unless it is already committed."""
        producer.begin()
        state = producer.group_state(with_begun=begun is not None)
        endings.finish(state, batch_id)
        decision = decide(state)
        if decision.announces and begun is not None:
            producer.announce(decision.topics, batch_id, begun.announcement)
            producer.begin()
            state = producer.group_state(with_begun=True)
            endings.finish(state, batch_id)  # another driver may have committed the batch already
            decision = decide(state)
            if decision.announces:
                raise PassingError("the group lacks the announced batch number")
        if not decision.commits_number:
            endings.skip(producer)
            return Publication(decision.was_committed, 0, 0, attempts=0)
        text, more = endings.note(metadata, sends=decision.sends_records)
        if begun is not None:
            begun.before()
            producer.note_begun(decision.topics, batch_id + 1, text)
        topics = set(decision.topics)
        if decision.sends_records:
            topics |= endings.parts.topics
        for record_batch in record_batches() if decision.sends_records else ():
            topics.add(record_batch.topic)
            producer.send(record_batch)
        endings.prepare(sends=decision.sends_records)
        records, size = producer.record_count, producer.byte_count
        producer.commit(topics, batch_id + 1, text, more)
        endings.end()
        if decision.sends_records:
            records, size = records + endings.parts.counts[0], size + endings.parts.counts[1]
        return Publication(not decision.sends_records, records, size, attempts=0)

    def _coordinators_of(self, producer: TransactionalProducer) -> Coordinators:
        """Return the coordinators of the tasks' transactional ids."""
        if self._coordinators is None:
            self._coordinators = TransactionCoordinators(
                self.options, self.settings, producer.transactional_id
            )
        return self._coordinators

    def _forget_coordinators(self) -> None:
        if self._coordinators is not None:
            self._coordinators.close()
            self._coordinators = None

    def _producer_for(self, transactional_id: str, group_id: str) -> TransactionalProducer:
        """The producer for these ids: the last one, or a new one if the ids differ."""
        if self._producer is None or self._names != (transactional_id, group_id):
            self.close()
            self._producer = TransactionalProducer(
                self.options, self.settings, transactional_id, group_id
            )
            self._names = (transactional_id, group_id)
        return self._producer


def driver_publisher(
    options: ClientOptions, settings: PublishSettings, transactional_id: str
) -> AbstractContextManager[Publisher]:
    """The publisher of a transactional id, with connections that its last batch in this process has
    left open.
    """
    key = (options, settings, transactional_id)
    return kept_publisher(key, lambda: Publisher(options, settings))


def _until_committed(
    attempt: Callable[[], Publication], producer: TransactionalProducer, failures: _Failures
) -> Publication:
    """Repeat attempts until one succeeds, or a failure is permanent."""
    while True:
        try:
            return attempt()._replace(attempts=failures.count + 1)
        except SpoolError as error:
            # Another driver may have committed the batch since, and deleted its files. The next
            # attempt then finds the number of the batch.
            _abort(producer)
            failures.add_missing_file(error)
        except FencedError as error:
            producer.forget_connections()
            failures.add_fenced(error)
        except PassingError as error:
            producer.forget_connections()
            try:
                failures.add_passing(producer.advice(error), error)
            except PublishError:
                _abort(producer)
                raise
        except Exception:
            _abort(producer)
            raise
        # for example Ctrl-C, which may have interrupted the reception of a response
        except BaseException:
            producer.forget_connections()
            _abort(producer)
            raise


class _Failures:
    """Counts the failed attempts of one batch, and decides whether and when another attempt
    follows.

    The time limit for transient failures begins with the first failure, so attempts without a
    failure may take any time.
    """

    def __init__(
        self,
        options: ClientOptions,
        settings: PublishSettings,
        what: str,
        *,
        is_numbered: bool = True,
    ) -> None:
        self._settings, self._what = settings, what
        self._advice = REPEAT_NUMBERED if is_numbered else REPEAT_UNNUMBERED
        self._backoff_ms = options.retry_backoff_ms
        self._longest_backoff_ms = max(settings.retry_backoff_max_ms, options.retry_backoff_ms)
        self._fenced = self._missing_files = 0
        self._deadline: float | None = None
        self._notice = RetryNotice(settings.delivery_timeout_ms)
        self.count = 0

    def add_missing_file(self, error: SpoolError) -> None:
        """Count a missing spool file. Raises: the error itself, if this is the second time."""
        self.count += 1
        self._missing_files += 1
        if self._missing_files > 1:
            raise error

    def add_fenced(self, error: FencedError) -> None:
        """Count a fenced attempt. Raises: PublishError, if this is the second time."""
        self.count += 1
        self._fenced += 1
        if self._fenced > 1:
            raise PublishError(
                f"{self._what} was ended by others twice, the last time with {error}: another "
                "driver publishes under the same id (stop one of them), or the transaction "
                "takes longer than kafka.transaction.timeout.ms (raise it, or make batches "
                "smaller)"
            ) from error

    def add_passing(self, advice: str, error: PassingError) -> None:
        """Count a transient failure, and pause. Raises: PublishError when the time limit is
        reached.
        """
        self.count += 1
        patience_s = self._settings.delivery_timeout_ms / 1000
        if self._deadline is None:
            self._deadline = time.monotonic() + patience_s
        if time.monotonic() >= self._deadline:
            raise PublishError(
                f"{self._what} failed {self.count} times, for {patience_s:.0f} s and more: "
                f"{advice}. {self._advice}"
            ) from error
        self._notice.failed(f"{self._what}: {advice}")
        time.sleep(self._backoff_ms / 1000)
        self._backoff_ms = min(2 * self._backoff_ms, self._longest_backoff_ms)


def _any(record_batches: RecordBatches) -> bool:
    """Whether there is a record batch to publish.

    If the batches cannot be read, the result is True. The attempt will then raise the error, or
    find that the batch is committed.
    """
    try:
        return next(iter(record_batches()), None) is not None
    except SpoolError:
        return True


def _abort(producer: TransactionalProducer) -> None:
    """Try to abort the transaction.

    If that fails, the broker aborts the transaction after its timeout. Readers of the partitions
    wait until then.
    """
    try:
        producer.abort()
    except ClientError:
        producer.forget_connections()
