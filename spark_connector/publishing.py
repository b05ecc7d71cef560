"""Publishing a micro-batch: all of it and its number in one transaction, once, however often it is
tried and by however many drivers.

An attempt takes the transactional id, which ends whatever an earlier attempt or another driver had
begun. Then it asks the group for the numbers of the batches that were committed, and returns if
this one is recognised (deduplication.py has the rules). Then it produces everything, commits
`batch_id + 1` as the group's offset on each topic of it in the same transaction, and ends it.
Whatever fails for a reason that passes, also an end of which nobody knows whether it took place, is
followed by another attempt from the start: the committed offset says what happened. Source: KIP-98,
KIP-447.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, NamedTuple

from barnabas.spark_connector.connection import ClientError, PassingError
from barnabas.spark_connector.deduplication import Recognise, by_number
from barnabas.spark_connector.options import ClientOptions
from barnabas.spark_connector.produce_request import PublishError
from barnabas.spark_connector.spool import EncodedBatch, SpoolError
from barnabas.spark_connector.transactional_producer import (
    FencedError,
    PublishSettings,
    TransactionalProducer,
)

__all__ = ["Publication", "PublishError", "PublishSettings", "Publisher", "publish"]

MAX_BACKOFF_MS = 1000
Batches = Callable[[], Iterable[EncodedBatch]]


class Publication(NamedTuple):
    """What publishing came to. Of a batch that was there already the counts are 0."""

    already: bool  # an earlier attempt had committed it, perhaps one of another driver
    record_count: int
    byte_count: int
    attempts: int

    def last_committed(self, batch_id: int) -> int:
        """The last batch that is surely committed. One without rows leaves no trace: another driver
        may have some for it, and publish them.
        """
        return batch_id if self.already or self.record_count else batch_id - 1


def publish(
    options: ClientOptions,
    *,
    transactional_id: str,
    group_id: str,
    batch_id: int,
    metadata: str,
    batches: Batches,
    settings: PublishSettings,
    recognise: Recognise | None = None,
) -> Publication:
    """Publish one batch over connections of its own. See `Publisher.publish`."""
    with Publisher(options, settings) as publisher:
        return publisher.publish(
            transactional_id=transactional_id,
            group_id=group_id,
            batch_id=batch_id,
            metadata=metadata,
            batches=batches,
            recognise=recognise,
        )


class Publisher:
    """Publishes one batch after the other over connections that are kept. Belongs to one thread;
    survives a fork and a broker's restart.
    """

    def __init__(self, options: ClientOptions, settings: PublishSettings | None = None) -> None:
        self.options = options
        self.settings = settings or PublishSettings()
        self._producer: TransactionalProducer | None = None
        self._names = ("", "")

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

    def close(self) -> None:
        """Close all connections; the publisher can be used again."""
        if self._producer is not None:
            self._producer.forget_connections()

    def publish(
        self,
        *,
        transactional_id: str,
        group_id: str,
        batch_id: int,
        metadata: str,
        batches: Batches,
        recognise: Recognise | None = None,
    ) -> Publication:
        """Commit the batch, unless it is committed.

        Takes:  batches, called anew for each attempt and consumed as requests go out; with none at
                all nothing is sent, not even the number. recognise, which decides by what the group
                has; without it, numbers alone do (`by_number`).
        Gives:  when the batch can be read by read_committed readers, or will be as soon as the
                broker has written its markers.
        Raises: ClientError (PublishError and others) with what to do; whatever `batches` raises.
                Then nothing of the batch is ever visible, except where the message says that the
                outcome is not known; a repetition is safe in each case. UncertainBatchError (a
                ClientError) where `recognise` says so; nothing was sent then.
        """
        recognise = by_number(batch_id) if recognise is None else recognise
        if not _any(batches):
            return Publication(already=False, record_count=0, byte_count=0, attempts=0)
        producer = self._producer_for(transactional_id, group_id)
        deadline: float | None = (
            # counted from the first failure: how long an attempt takes that works is nobody's
            # business
            None
        )
        what = f"publishing batch {batch_id} as {transactional_id!r}"
        attempts = fenced = spool_errors = 0
        backoff_ms = self.options.retry_backoff_ms
        while True:
            attempts += 1
            try:
                return self._attempt(producer, batch_id, metadata, batches, recognise)._replace(
                    attempts=attempts
                )
            except SpoolError:
                # Another driver may have committed the batch meanwhile, and deleted its files: then
                # the next attempt finds its number.
                _abort(producer)
                spool_errors += 1
                if spool_errors > 1:
                    raise
            except FencedError as error:
                producer.forget_connections()
                fenced += 1
                if fenced > 1:
                    raise PublishError(
                        f"{what} was ended from outside twice, at last with {error}: another "
                        "driver publishes under the same id (stop one of "
                        "them), or the transaction takes longer than kafka.transaction.timeout.ms "
                        "(raise it, or make batches smaller)"
                    ) from error
            except PassingError as error:
                producer.forget_connections()
                deadline = (
                    time.monotonic() + self.settings.delivery_timeout_ms / 1000
                    if deadline is None
                    else deadline
                )
                if time.monotonic() >= deadline:
                    _abort(producer)
                    raise PublishError(
                        f"{what} failed {attempts} times, for "
                        f"{self.settings.delivery_timeout_ms / 1000:.0f} s and more: "
                        f"{producer.advice(error)}. "
                        "Whether the last attempt was committed may not be known; publishing it "
                        "again is safe."
                    ) from error
                time.sleep(backoff_ms / 1000)
                backoff_ms = min(2 * backoff_ms, max(MAX_BACKOFF_MS, self.options.retry_backoff_ms))
            except Exception:
                _abort(producer)
                raise
            except BaseException:  # Ctrl-C may have come in the middle of an answer
                producer.forget_connections()
                _abort(producer)
                raise

    def _attempt(
        self,
        producer: TransactionalProducer,
        batch_id: int,
        metadata: str,
        batches: Batches,
        recognise: Recognise,
    ) -> Publication:
        producer.begin()
        decision = recognise(producer.committed())
        if not decision.commits_number:
            return Publication(already=True, record_count=0, byte_count=0, attempts=0)
        topics = set(decision.topics)
        for batch in batches() if decision.sends_records else ():
            topics.add(batch.topic)
            producer.send(batch)
        counts = producer.record_count, producer.byte_count
        producer.commit(topics, batch_id + 1, metadata)
        return Publication(not decision.sends_records, *counts, attempts=0)

    def _producer_for(self, transactional_id: str, group_id: str) -> TransactionalProducer:
        if self._producer is None or self._names != (transactional_id, group_id):
            self.close()
            self._producer = TransactionalProducer(
                self.options, self.settings, transactional_id, group_id
            )
            self._names = (transactional_id, group_id)
        return self._producer


def _any(batches: Batches) -> bool:
    """Whether there is anything to publish. Where that cannot be read, an attempt will say so, or
    that it is committed.
    """
    try:
        return next(iter(batches()), None) is not None
    except SpoolError:
        return True


def _abort(producer: TransactionalProducer) -> None:
    """Best effort: what is not aborted now is, when the transaction times out; until then readers
    of the partitions wait.
    """
    try:
        producer.abort()
    except ClientError:
        producer.forget_connections()
