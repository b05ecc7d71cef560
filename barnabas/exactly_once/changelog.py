"""Changelog topics: making them, and restoring partitions of states from them.

A state's partition is restored when the transactions that are on its changelog partition now have
ended: its last stable offset has passed the log's end. Only then is it certain which changes are
committed. A writer
that has lost the partition can still have a transaction open there; it is waited for, since its
offsets may have been accepted before it lost the partition.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from barnabas.exactly_once.checkpoint import Checkpoint
from barnabas.exactly_once.errors import (
    ConfigurationError,
    ExactlyOnceError,
    FatalError,
    StuckError,
    ending_error,
    is_passing,
)
from barnabas.exactly_once.records import Place
from barnabas.exactly_once.state import PartitionState

_LOG = logging.getLogger(__name__)
_REQUEST_S = 10.0
_PATIENCE_S = 60.0
_REFRESH_S = 5.0
_SLACK_S = 20.0  # more than the client needs to report that a request has timed out
_TOLD_EVERY_S = 5.0
_BATCH = 2000
_WAIT_S = 0.01
_PENDING = 50_000
_NO_ANSWER = (
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
)


class Topics:
    """What the pipeline asks the broker about topics.

    Raises: in all methods ExactlyOnceError if the broker refuses or does not answer.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._servers = settings["bootstrap.servers"]
        try:
            self._admin = AdminClient(dict(settings))
        except (KafkaException, ValueError) as error:
            raise ConfigurationError(f"the client's settings: {error}") from error

    def partitions(self, topic: str) -> int:
        """The number of partitions; 0 for an unknown topic."""
        return self._described(topic)[0]

    def check(self, topics: Iterable[str]) -> None:
        """Check that output topics exist, if the broker answers.

        Raises: ConfigurationError.
        """
        missing = []
        for topic in sorted(topics):
            try:
                if not self.partitions(topic):
                    missing.append(topic)
            except ExactlyOnceError as error:
                _LOG.warning("%s", error)
                return
        if missing:
            raise ConfigurationError(
                f"no such topic: {', '.join(missing)}. The broker does not create topics when they "
                "are written to (auto.create.topics.enable): create the output topics first"
            )

    def _described(self, topic: str) -> tuple[int, str]:
        """The number of partitions and the topic's id; (0, "") for an unknown topic.

        DescribeTopics, unlike a look-up of metadata, does not create the topic.
        """
        asked = self._admin.describe_topics(TopicCollection([topic]), request_timeout=_REQUEST_S)
        try:
            found = _answer(asked[topic])
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return 0, ""
            raise self._refusal(error.args[0], f"asking for topic {topic}") from error
        return len(found.partitions), str(found.topic_id)

    def make_compacted(self, topic: str, partitions: int, purpose: str) -> str:
        """Create the compacted topic unless it exists.

        Gives:  the topic's id.
        Raises: ConfigurationError if it exists with other partitions, or is not compacted.
        """
        new = NewTopic(topic, partitions, -1, config={"cleanup.policy": "compact"})
        try:
            _answer(self._admin.create_topics([new], request_timeout=_REQUEST_S)[topic])
            _LOG.info("%s: created topic %s with %d partitions", purpose, topic, partitions)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._refusal(error.args[0], f"creating topic {topic}") from error
        return self._checked(topic, partitions, purpose)

    def _checked(self, topic: str, partitions: int, purpose: str) -> str:
        """The topic's id. Raises: ConfigurationError."""
        deadline = time.monotonic() + _REQUEST_S
        while not (described := self._described(topic))[0] and time.monotonic() < deadline:
            time.sleep(0.05)  # another broker may not know a new topic yet
        count, topic_id = described
        if count != partitions:
            raise unlike_input(purpose, topic, count, partitions)
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            asked = self._admin.describe_configs([resource], request_timeout=_REQUEST_S)
            policy = _answer(asked[resource])
        except KafkaException as error:
            raise self._refusal(error.args[0], f"asking for topic {topic}") from error
        if "compact" not in policy["cleanup.policy"].value:
            raise ConfigurationError(
                f"{purpose}: topic {topic} is not compacted, so it would lose state by retention. "
                f"Set it: kafka-configs --alter --topic {topic} --add-config cleanup.policy=compact"
            )
        return topic_id

    def _refusal(self, error: Any, doing: str) -> ExactlyOnceError:
        """The exception for a request that was refused, or has no answer."""
        if error.code() in _NO_ANSWER:
            return FatalError(
                f"{doing}: no answer from {self._servers} ({error.str()}). Look at the address and "
                "its port, at the settings of TLS and SASL, and whether the broker runs"
            )
        return ending_error(error, doing)

    def ends(self, places: Iterable[Place]) -> dict[Place, tuple[int, int]]:
        """The last stable offset and the end of partitions, without those that have no leader
        now, or whose leader does not answer.
        """
        asked = {place: TopicPartition(*place) for place in places}
        latest = dict.fromkeys(asked.values(), OffsetSpec.latest())
        found: list[dict[Place, int]] = []
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
            answers = self._admin.list_offsets(
                latest, isolation_level=level, request_timeout=_REQUEST_S
            )
            found.append({})
            for place, partition in asked.items():
                try:
                    found[-1][place] = _answer(answers[partition]).offset
                except KafkaException as error:
                    if is_passing(error.args[0]):
                        _LOG.debug("the end of %s is not known now: %s", place, error)
                    else:
                        raise self._refusal(
                            error.args[0], f"asking for the end of {place}"
                        ) from error
        stable, ends = found
        both = {
            place: (stable[place], ends[place]) for place in asked if place in stable.keys() & ends
        }
        refresh(self._admin, {place.topic for place in asked.keys() - both.keys()})
        return both


def refresh(admin: AdminClient, topics: Iterable[str]) -> None:
    """Let a client ask for the leaders of topics again. After FENCED_LEADER_EPOCH it does not by
    itself, and would send the old leader epoch until its metadata are 15 minutes old.
    """
    with contextlib.suppress(KafkaException):
        for topic in topics:
            admin.list_topics(topic, timeout=_REFRESH_S)


def unlike_input(purpose: str, topic: str, count: int, needed: int) -> ConfigurationError:
    """The exception for a topic that has another number of partitions than the input."""
    return ConfigurationError(
        f"{purpose}: topic {topic} has {count} partitions and needs {needed}, as many as the "
        "input. The input's number of partitions was changed, so keys have moved: stop all "
        "instances, and begin with a new application name"
    )


def _answer(future: Any) -> Any:
    """The answer to a request. Raises: KafkaException, also if the client reports nothing."""
    try:
        return future.result(_REQUEST_S + _SLACK_S)
    except TimeoutError as error:
        timeout = KafkaError(KafkaError._TIMED_OUT, "the client gave no answer", retriable=True)
        raise KafkaException(timeout) from error


@dataclass
class Restoring:
    """A partition of a state that is being restored."""

    topic: str
    partition: int
    state: PartitionState
    checkpoint: Checkpoint | None
    position: int
    target: int | None = None
    end: int | None = None
    records: int = 0
    began: float = field(default_factory=time.monotonic)
    told: float = 0.0
    unanswered: float | None = None
    done: bool = False


class Restorer:
    """Restores partitions of changelogs, step by step, so that the pipeline goes on meanwhile.

    Takes:  on_waiting, a function that is told, about every 5 seconds, what is waited for.
    """

    def __init__(self, settings: Mapping[str, Any], topics: Topics, on_waiting: Any) -> None:
        self._settings, self._topics, self._on_waiting = settings, topics, on_waiting
        self._consumer: Consumer | None = None
        self._rows: dict[Place, Restoring] = {}

    def begin(self, topic: str, topic_id: str, partition: int, path: Path | None) -> Restoring:
        """Begin to restore a partition.

        Takes:  path, of its checkpoint; None to have none.
        """
        checkpoint = None if path is None else Checkpoint(path, topic_id)
        entries, position = ({}, 0) if checkpoint is None else checkpoint.load()
        row = Restoring(topic, partition, PartitionState(entries), checkpoint, position)
        self._rows[Place(topic, partition)] = row
        return row

    def drop(self, row: Restoring) -> None:
        """The partition was revoked."""
        if self._rows.pop(Place(row.topic, row.partition), None) is None:
            return
        if row.checkpoint is not None:
            row.checkpoint.close(None)
        if row.end is not None and self._consumer is not None and not row.done:
            self._consumer.incremental_unassign([TopicPartition(row.topic, row.partition)])

    def step(self) -> bool:
        """Do a part of the work: about a tenth of a second at most.

        Gives:  whether there is more to do at once.
        Raises: ExactlyOnceError.
        """
        waiting = {place: row for place, row in self._rows.items() if row.end is None}
        if waiting:
            ends = self._topics.ends(waiting)
            self._begin_reading([(waiting[place], *ends[place]) for place in ends])
            self._check_patience(waiting, ends)
        if self._consumer is None:
            return False
        if not self._rows:
            self.close()
            return False
        messages = self._consumer.consume(_BATCH, _WAIT_S)
        for message in messages:
            found = self._rows.get(Place(message.topic(), message.partition()))
            if found is not None:
                self._take(found, message)
        return bool(messages)

    def _check_patience(self, waiting: Mapping[Place, Restoring], ends: Container[Place]) -> None:
        """Note which partitions have no answer. Raises: StuckError after a minute without one."""
        now = time.monotonic()
        for place, row in waiting.items():
            if place in ends:
                row.unanswered = None
            elif row.unanswered is None:
                row.unanswered = now
            elif now - row.unanswered > _PATIENCE_S:
                raise StuckError(
                    f"the end of {row.topic}-{row.partition} is not known within {_PATIENCE_S:.0f} "
                    "s: look whether the topic exists, and whether the brokers can be reached"
                )

    def _begin_reading(self, rows: Iterable[tuple[Restoring, int, int]]) -> None:
        """Read the partitions on which no transaction is open.

        Takes:  rows, each with its last stable offset and its end.
        """
        places = []
        for row, stable, end in rows:
            if row.target is None:
                # What is written later is of others, or is refused: it need not be waited for.
                row.target = end
            if stable < row.target:
                self._tell(row, stable, row.target)
                continue
            row.end = row.target
            if row.position > row.end:
                _LOG.warning("%s-%d ends before the checkpoint", row.topic, row.partition)
                assert row.checkpoint is not None, "without a checkpoint the position is 0"
                row.checkpoint.forget()
                row.state, row.position = PartitionState(), 0
            if row.position == row.end:
                self._finish(row)
            else:  # -2: the beginning
                places.append(TopicPartition(row.topic, row.partition, row.position or -2))
        if places:
            if self._consumer is None:
                self._consumer = Consumer(dict(self._settings))
            self._consumer.incremental_assign(places)

    def _tell(self, row: Restoring, stable: int, end: int) -> None:
        now = time.monotonic()
        if now - row.told > _TOLD_EVERY_S:
            row.told = now
            self._on_waiting(
                f"{row.topic}-{row.partition} has an open transaction at offset {stable} of {end}: "
                "an instance that had this partition before has not ended it. It ends at the "
                "latest at that instance's transaction_timeout_s; `barnabas txn list` (or "
                "kafka-transactions.sh) shows whose it is"
            )

    def _take(self, row: Restoring, message: Any) -> None:
        """Apply a change, or note the end."""
        error = message.error()
        if error is None:
            key, value = message.key(), message.value()
            entries = row.state.entries
            if value is None:
                entries.pop(key, None)
            else:
                entries[key] = value
            if row.checkpoint is not None:
                row.checkpoint.add({key: value})
                if row.checkpoint.pending >= _PENDING:
                    row.checkpoint.write(message.offset() + 1)
            row.records += 1
            row.position = message.offset() + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            assert row.end is not None, "a partition is read after its end is known"
            if message.offset() >= row.end:
                row.position = message.offset()
                self._finish(row)
                assert self._consumer is not None
                self._consumer.incremental_unassign([TopicPartition(row.topic, row.partition)])
        elif error.code() == KafkaError._AUTO_OFFSET_RESET and row.checkpoint is not None:
            row.checkpoint.forget()
            row.state, row.position, row.end = PartitionState(), 0, None
            row.target = None
            assert self._consumer is not None
            self._consumer.incremental_unassign([TopicPartition(row.topic, row.partition)])
        elif error.fatal() or not is_passing(error):
            raise ending_error(error, f"restoring from {row.topic}-{row.partition}")

    def _finish(self, row: Restoring) -> None:
        row.done = True
        del self._rows[Place(row.topic, row.partition)]
        if row.checkpoint is not None:
            row.checkpoint.write(row.position)

    def close(self) -> None:
        """Close the consumer; it is made again for the next partition."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
