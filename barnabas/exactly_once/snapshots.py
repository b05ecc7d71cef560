"""Consistent snapshots: the states of pipelines as they were at a past cut.

    from barnabas.exactly_once.snapshots import Catalogue

    catalogue = Catalogue("localhost:9092")
    noon = catalogue.snapshot(["views-counts-changelog", "views-users-changelog"], at=time_ms)
    noon.time_ms, noon.states["views-counts-changelog"]["/index"]

A changelog has the changes of a state in the order of their transactions, so the state at a cut is
what its changelog says up to the cut. The cut is one that the broker has recorded for topics with
`barnabas.transactions.whole` (TRANSACTIONS.md): of each transaction all topics of the snapshot have
everything or nothing, states of several applications too. The broker has to be Barnabas.

A changelog is compacted: what a key had at the cut is gone when a later change of it was compacted.
`min.compaction.lag.ms` of the changelog says how long changes are kept in any case; an older
snapshot is refused.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from barnabas.exactly_once.changelog import Topics, refresh
from barnabas.exactly_once.errors import (
    ConfigurationError,
    ExactlyOnceError,
    ending_error,
    is_passing,
)

# A ListOffsets for AT_OR_BEFORE + T gives the newest cut at or before the time T (TRANSACTIONS.md).
AT_OR_BEFORE, CUT_TIMES_END = 8_000_000_000_000_000_000, 1_000_000_000_000_000
WHOLE, LAG = "barnabas.transactions.whole", "min.compaction.lag.ms"
_REQUEST_S = 10.0
_BATCH = 2000
_MOST_TRIES = 5

Decoder = Callable[[bytes], Any]


class Snapshot(NamedTuple):
    """States at a cut. time_ms: the time of the cut, in ms since 1970. ends: the offset of each
    partition up to which its changelog was read. states: by changelog topic.
    """

    time_ms: int
    ends: Mapping[tuple[str, int], int]
    states: Mapping[str, Mapping[Any, Any]]


class Catalogue:
    """The cuts that the broker has recorded of changelog topics, and the states at each.

    Takes:  servers: the brokers' addresses, as for a client. settings: further settings of the
            clients. key_decoder, decoder: of keys and values; by default text and JSON, which a
            pipeline writes by default, too.
    """

    def __init__(
        self,
        servers: str,
        *,
        settings: Mapping[str, Any] | None = None,
        key_decoder: Decoder = bytes.decode,
        decoder: Decoder | None = None,
    ) -> None:
        if decoder is None:
            decoder = json.loads
        self._settings = {**(settings or {}), "bootstrap.servers": servers}
        self._decode_key, self._decode = key_decoder, decoder
        self._admin, self._topics = AdminClient(dict(self._settings)), Topics(self._settings)

    def cuts(self, topics: Iterable[str], *, before: int = CUT_TIMES_END - 1) -> Iterator[int]:
        """The times of the recorded cuts, the newest first.

        Takes:  before: begin at the newest cut at or before this time, in ms since 1970.
        Raises: ConfigurationError, ExactlyOnceError.
        """
        partitions = self._partitions(topics)
        while (found := self._cut(partitions, before)) is not None:
            yield found[0]
            before = found[0] - 1

    def snapshot(self, topics: Iterable[str], *, at: int | None = None) -> Snapshot:
        """The states at the newest recorded cut at or before a time.

        Takes:  topics, changelogs, also those of several applications. at: in ms since 1970; None
                for the newest cut.
        Raises: ConfigurationError if a topic does not exist or has no cuts, if none is recorded up
                to that time, or if compaction may have removed what the state was then;
                ExactlyOnceError.
        """
        partitions = self._partitions(topics)
        found = self._cut(partitions, CUT_TIMES_END - 1 if at is None else at)
        if found is None:
            raise ConfigurationError(
                f"no cut of {_names(partitions)} is recorded up to {at}: the broker records them "
                f"for topics with {WHOLE}=true, once a second in which something is committed"
            )
        time_ms, ends = found
        self._check_compaction({topic for topic, _ in partitions}, time_ms)
        return Snapshot(time_ms, ends, self._read(ends))

    def _partitions(self, topics: Iterable[str]) -> list[tuple[str, int]]:
        found = []
        for topic in dict.fromkeys(topics):
            count = self._topics.partitions(topic)
            if not count:
                raise ConfigurationError(f"topic {topic} does not exist")
            found += [(topic, index) for index in range(count)]
        return found

    def _cut(
        self, partitions: list[tuple[str, int]], time_ms: int
    ) -> tuple[int, dict[tuple[str, int], int]] | None:
        """The time and the offsets of the newest cut at or before a time."""
        for _ in range(_MOST_TRIES):
            asked = {
                TopicPartition(*one): OffsetSpec.for_timestamp(AT_OR_BEFORE + time_ms)
                for one in partitions
            }
            answers = self._admin.list_offsets(
                asked,
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=_REQUEST_S,
            )
            ends, times, missing = {}, set(), None
            for place, answer in answers.items():
                try:
                    row = answer.result(_REQUEST_S)
                except KafkaException as error:
                    if not is_passing(error.args[0]):
                        raise self._refusal(error.args[0], place) from error
                    missing = error.args[0], place
                    continue
                times.add(row.timestamp)
                ends[place.topic, place.partition] = row.offset
            if missing is not None:
                refresh(self._admin, dict.fromkeys(topic for topic, _ in partitions))
                continue
            if len(times) == 1:  # otherwise brokers have answered at different times
                break
            time_ms = min(times)
        if missing is not None:
            raise self._refusal(*missing)
        time_ms = min(times)
        if len(times) > 1:
            raise ExactlyOnceError("the brokers give different cuts each time: try again")
        if time_ms < 0:
            return None
        lacking = [one for one, offset in ends.items() if offset < 0]
        if lacking:
            raise ConfigurationError(f"{_names(lacking)} had no {WHOLE}=true at that time")
        return time_ms, ends

    def _refusal(self, error: KafkaError, place: TopicPartition) -> Exception:
        if error.code() == KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT:
            return ConfigurationError(
                f"no cuts are recorded of {place.topic}: set {WHOLE}=true on it"
            )
        return ending_error(error, f"asking for a cut of {place.topic}")

    def _check_compaction(self, topics: set[str], time_ms: int) -> None:
        """Refuse a cut if a compacted topic may have lost what was there at that time."""
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(topics)]
        for resource, answer in self._admin.describe_configs(resources).items():
            try:
                configs = answer.result(_REQUEST_S)
            except KafkaException as error:
                raise ending_error(error.args[0], f"asking for topic {resource.name}") from error
            lag_ms = int(configs[LAG].value)
            is_compacted = "compact" in configs["cleanup.policy"].value
            if is_compacted and time.time() * 1000 - lag_ms > time_ms:
                raise ConfigurationError(
                    f"topic {resource.name} is compacted, and keeps all changes of {LAG}={lag_ms} "
                    f"only: a snapshot of that time may lack keys. Set {LAG} to how far back "
                    "snapshots shall reach; it holds for what is written from then on"
                )

    def _read(self, ends: Mapping[tuple[str, int], int]) -> dict[str, dict[Any, Any]]:
        """Read the changelogs up to the cut."""
        states: dict[str, dict[Any, Any]] = {topic: {} for topic, _ in ends}
        consumer = Consumer(
            {
                **self._settings,
                "group.id": "barnabas-snapshots",  # nothing is committed
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
            }
        )
        left = {one for one, end in ends.items() if end > 0}
        try:
            consumer.assign([TopicPartition(*one, OFFSET_BEGINNING) for one in sorted(left)])
            while left:
                for message in consumer.consume(_BATCH, 0.1):
                    one = message.topic(), message.partition()
                    error, offset = message.error(), message.offset()
                    if error is not None and error.code() != KafkaError._PARTITION_EOF:
                        if error.fatal() or not error.retriable():
                            raise ending_error(error, f"reading {one[0]}-{one[1]}")
                        continue
                    if one not in left:
                        continue
                    if error is not None or offset >= ends[one]:
                        left.discard(one)
                        consumer.incremental_unassign([TopicPartition(*one)])
                        continue
                    key, value = self._decode_key(message.key()), message.value()
                    if value is None:
                        states[one[0]].pop(key, None)
                    else:
                        states[one[0]][key] = self._decode(value)
        finally:
            consumer.close()
        return states


def _names(partitions: Iterable[tuple[str, int]]) -> str:
    return ", ".join(dict.fromkeys(topic for topic, _ in partitions))
