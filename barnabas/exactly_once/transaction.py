"""The transactional producer: which error means to repeat a call, to abort, or to end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from barnabas.exactly_once.errors import (
    AbortRequired,
    ConfigurationError,
    ExactlyOnceError,
    FatalError,
    StuckError,
    ending_error,
)
from barnabas.exactly_once.records import Output, Place

_CALL_S = 5.0  # after so long a call returns, so that the wait can be reported and bounded
_LARGE = KafkaError.MSG_SIZE_TOO_LARGE
_UNDELIVERED = KafkaError._INCONSISTENT  # of a commit: the client has no reason for all records
_UNKNOWN = (KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


class OutputError(Exception):
    """An output that the client refuses: too large, of another type than it can be, or for an
    unknown partition.
    """


class Transaction:
    """One transaction after the other of one transactional id.

    Takes:  settings, of the producer; patience_s, how long a call is repeated while the broker does
            not answer, or its answer is that it is not ready.
    """

    def __init__(self, settings: Mapping[str, Any], patience_s: float) -> None:
        try:
            self._producer = Producer(dict(settings))
        except (KafkaException, ValueError) as error:
            raise ConfigurationError(f"the producer's settings: {error}") from error
        self._patience_s = patience_s
        self.is_open = False
        self._topics: set[str] = set()

    def init(self) -> None:
        """Fence the predecessor with the same transactional id, and end its open transaction.

        Raises: ExactlyOnceError.
        After:  all records and offsets of the predecessor are committed or aborted.
        """
        self._until_decided("beginning the first transaction", self._producer.init_transactions)

    def begin(self) -> None:
        """Raises: ExactlyOnceError."""
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise self._ended_by(error.args[0], "beginning a transaction") from error
        self.is_open = True
        self._topics.clear()

    def produce(
        self, output: Output, on_delivery: Callable[[Any, Any], None] | None = None
    ) -> None:
        """Put a record into the client's queue; wait while the queue is full.

        Raises: OutputError if the client refuses it; AbortRequired, StuckError, ExactlyOnceError.
        """
        self._topics.add(output.topic)
        deadline = 0.0
        while True:
            try:
                self._producer.produce(
                    output.topic,
                    output.value,
                    output.key,
                    output.partition,
                    timestamp=output.timestamp_ms,
                    headers=list(output.headers) or None,
                    **({} if on_delivery is None else {"on_delivery": on_delivery}),
                )
                return
            except BufferError:
                now = time.monotonic()
                deadline = deadline or now + self._patience_s
                if now > deadline:
                    raise AbortRequired(
                        f"the producer's queue was full for {self._patience_s:.0f} s"
                    ) from None
                self.poll(0.05)
            except KafkaException as error:
                self._refused(error, output)
            except (TypeError, ValueError, OverflowError) as error:
                raise OutputError(f"a record for {output.topic}: {error}") from error

    def _refused(self, error: KafkaException, output: Output) -> None:
        """Raise what a refused record means."""
        kafka_error = error.args[0]
        if kafka_error.code() == _LARGE:
            raise OutputError(
                f"a record of {len(output.value or b'')} bytes for {output.topic} is larger than "
                "the producer's message.max.bytes"
            ) from error
        if kafka_error.code() in _UNKNOWN:
            raise OutputError(
                f"{output.topic} has no partition {output.partition}, or does not exist"
            ) from error
        if kafka_error.fatal():
            raise self._ended_by(kafka_error, "writing a record") from error
        raise AbortRequired(f"writing a record: {kafka_error.str()}") from error

    def poll(self, timeout_s: float = 0) -> None:
        """Run delivery callbacks.

        Raises: ExactlyOnceError after a fatal error of the client, such as being fenced.
        """
        try:
            self._producer.poll(timeout_s)
        except KafkaException as error:
            raise self._ended_by(error.args[0], "writing records") from error

    def send_offsets(self, ends: Mapping[Place, int], membership: Any) -> None:
        """Add the group's offsets to the transaction, with its membership (KIP-447).

        Raises: AbortRequired if the broker refuses them; ExactlyOnceError.
        """
        offsets = [
            TopicPartition(place.topic, place.partition, offset)
            for place, offset in sorted(ends.items())
        ]
        self._until_decided(
            "adding the offsets to the transaction",
            lambda timeout_s: self._producer.send_offsets_to_transaction(
                offsets, membership, timeout_s
            ),
        )

    def commit(self) -> None:
        """Raises: AbortRequired; ExactlyOnceError. After: the transaction is committed."""
        self._until_decided("committing", self._producer.commit_transaction)
        self.is_open = False

    def abort(self, patience_s: float = 0) -> None:
        """End the open transaction, if there is one, without its records.

        Takes:  patience_s, if it differs from that for all calls.
        Raises: ExactlyOnceError.
        After:  the transaction is aborted, and the client's queue is empty.
        """
        if not self.is_open:
            return
        try:
            self._until_decided("aborting", self._producer.abort_transaction, patience_s)
        except AbortRequired as error:
            raise FatalError(
                f"a transaction cannot be aborted: {error}. Restart the process: it continues "
                "after the last commit"
            ) from error
        self.is_open = False

    def _ended_by(self, error: Any, doing: str) -> ExactlyOnceError:
        """The exception for an error after which this producer cannot be used, not even to abort:
        the broker has aborted its transaction, or does so at its timeout.
        """
        self.is_open = False
        return ending_error(error, doing)

    def _until_decided(
        self, doing: str, call: Callable[[float], None], patience_s: float = 0
    ) -> None:
        """Repeat a call while its outcome is open: an answer may have been lost. The client does
        not send a request twice that took effect.

        Raises: AbortRequired; StuckError; ExactlyOnceError.
        """
        deadline = time.monotonic() + (patience_s or self._patience_s)
        while True:
            try:
                call(_CALL_S)
                return
            except KafkaException as failure:
                error = failure.args[0]
                if error.fatal():
                    raise self._ended_by(error, doing) from failure
                if error.txn_requires_abort():
                    raise AbortRequired(
                        f"{doing}: {error.str()}",
                        kind_of(error),
                        frozenset(self._topics) if error.code() == _UNDELIVERED else (),
                    ) from failure
                if not error.retriable():
                    raise self._ended_by(error, doing) from failure
                if time.monotonic() > deadline:
                    raise StuckError(
                        f"{doing} was not decided within {self._patience_s:.0f} s: {error.str()}. "
                        "Look whether the brokers can be reached; a restarted process begins "
                        "after the last commit"
                    ) from failure

    def close(self) -> None:
        """Drop what is in the queue. An open transaction is left to the broker, which aborts it
        when the next instance begins, or at its timeout.
        """
        with contextlib.suppress(KafkaException):  # a fatal error was raised before
            self._producer.purge()
            self._producer.flush(0)
        del self._producer  # ends the client's threads and connections


def kind_of(error: Any) -> str:
    """The kind of an abort: "rebalance" if the group has another generation."""
    rebalanced = (
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        113,  # STALE_MEMBER_EPOCH
        110,  # FENCED_MEMBER_EPOCH
    )
    return "rebalance" if error.code() in rebalanced else "error"
