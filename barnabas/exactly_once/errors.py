"""The errors that end a pipeline. Each says what happened and what to do.

Errors that a pipeline overcomes by itself (a lost answer, an abort, a rebalance) are not raised;
`Hooks.on_abort` has their reasons.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from confluent_kafka import KafkaError

_FENCED = frozenset(
    (
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.FENCED_INSTANCE_ID,
        90,  # PRODUCER_FENCED, which older clients do not name
    )
)
_PASSING = frozenset(
    (
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._NOENT,  # an admin client knows no leader
        KafkaError._WAIT_COORD,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.UNKNOWN_TOPIC_OR_PART,  # a broker that has just started may answer it
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    )
)
_REFUSED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "the group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the transactional id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the cluster (IdempotentWrite, on brokers below 2.8)",
}


class ExactlyOnceError(Exception):
    """Base class: the pipeline has ended. What was not committed is aborted and will be repeated by
    the next instance.
    """


class ConfigurationError(ExactlyOnceError, ValueError):
    """An argument, or a topic, does not fit."""


class HandlerError(ExactlyOnceError):
    """The handler failed on a record as often as `Retry` permits, and there is no dead-letter
    topic. Its exception is the cause.
    """


class FencedError(ExactlyOnceError):
    """Another instance has taken this one's place. Its transaction is aborted."""


class UnreleasedError(FencedError):
    """The instance name belongs to another member whose session has not expired."""


class FatalError(ExactlyOnceError):
    """The client or the broker cannot continue. A restart begins after the last commit."""


class OffsetsDeletedError(ExactlyOnceError):
    """Records were deleted (retention) before the pipeline read them. It does not skip them
    silently.
    """


class StuckError(ExactlyOnceError):
    """The same transaction was aborted again and again, or a wait exceeded its time."""


class StateError(ExactlyOnceError):
    """State was used outside of a handler, or its changelog topic does not fit."""


class AbortRequired(Exception):
    """Inside of the package: the open transaction has to be aborted, and its records read again.

    Takes:  reason, for people; kind, a word for the label of a metric; undelivered, the topics of
            the transaction if the client could not deliver its records.
    """

    def __init__(self, reason: str, kind: str = "error", undelivered: Collection[str] = ()) -> None:
        super().__init__(reason)
        self.kind, self.undelivered = kind, undelivered


def is_passing(error: Any) -> bool:
    """Whether to ask again, since a broker ends, starts, or gives its partitions to another one.

    Only errors of the transactional producer say by themselves that they are retriable.
    """
    return bool(error.retriable()) or error.code() in _PASSING


def fatal_event(error: Any) -> ExactlyOnceError:
    """The exception for the consumer's last event. It has the original error as text only.

    Takes:  error, a KafkaError _FATAL.
    """
    text = error.str()
    if "group.instance.id" in text or "fenced" in text:
        return FencedError(
            f"{text}. Another process runs with the same instance name: give each process one of "
            "its own"
        )
    if "instance ID is still used" in text:
        return UnreleasedError(
            f"{text}. With group_protocol='consumer' a process that was killed keeps its instance "
            "name until its session expires (group.consumer.session.timeout.ms, 45 s)"
        )
    return FatalError(f"reading: {text}. Restart the process: it continues after the last commit")


def ending_error(error: Any, doing: str) -> ExactlyOnceError:
    """The exception for an error of the client that the pipeline cannot overcome.

    Takes:  error, a KafkaError; doing, what the pipeline did.
    """
    code, text = error.code(), f"{doing}: {error.name()}: {error.str()}"
    if code in _FENCED:
        return FencedError(
            f"{text}. Another process runs with the same transactional id or instance name, or "
            "this one's transaction exceeded transaction_timeout_s. Give each process an instance "
            "name of its own; if there is no other process, raise the timeout or commit more often"
        )
    if code in _REFUSED:
        return FatalError(
            f"{text}. The user has no right for {_REFUSED[code]}: a pipeline needs Read on its "
            "input topics and its group, Write on its output topics, and Write and Describe on its "
            "transactional id"
        )
    return FatalError(f"{text}. Restart the process: it continues after the last commit")
