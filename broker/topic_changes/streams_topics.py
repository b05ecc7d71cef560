"""The topics of streams groups (KIP-1071): which names a topology may have, and the internal topics
that the broker makes for the application.

A heartbeat shows which internal topics are missing. As in Apache Kafka, the broker creates them
after its response, and a later heartbeat finds them. If a topic could not be created, the responses
to the next heartbeats contain the reason. The creation is not tried again until the reason is
dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence

from barnabas.broker.logs.metadata import Topic
from barnabas.broker.logs.topic_names import TakenNames, check_topic_name
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.quotas.quotas import Quotas
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.slices import MOST_PARTITIONS_AT_ONCE, Slices
from barnabas.broker.topic_changes.new_topics import UNSET, NewTopics
from barnabas.coordinator.internal_topics import INTERNAL_TOPICS
from barnabas.coordinator.result import InternalTopic
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from barnabas.protocol.messages.streams_group_heartbeat import Topology
from barnabas.protocol.request_context import RequestContext

logger = logging.getLogger("barnabas.groups")

MOST_REASONS = 3  # maximum number of reasons in one response
MOST_KEPT = 1_000  # maximum number of reasons that are kept
NO_ROOM = "the broker's disk is full"


# --- names --------------------------------------------------------------------------------------


def names_of(topology: Topology) -> Iterator[str]:
    """The names of all topics of a topology."""
    for one in topology.subtopologies:
        yield from one.source_topics
        yield from one.repartition_sink_topics
        for topic in (*one.repartition_source_topics, *one.state_changelog_topics):
            yield topic.name


def check_names(topology: Topology) -> None:
    """Check the names of a topology's topics. Raises: KafkaError STREAMS_INVALID_TOPOLOGY for
    invalid names, and for names of the broker's own topics.
    """
    for name in names_of(topology):
        if name in INTERNAL_TOPICS:
            raise KafkaError(
                Code.STREAMS_INVALID_TOPOLOGY,
                f"The topic '{name}' is internal: an application may not use it.",
            )
        try:
            check_topic_name(name)
        except KafkaError as error:
            raise KafkaError(Code.STREAMS_INVALID_TOPOLOGY, error.message or "") from error


# --- internal topics ----------------------------------------------------------------------------


class StreamsTopics:
    """Creates internal topics. If a creation fails, the reason is kept for a while."""

    def __init__(
        self, new_topics: NewTopics, topics: TopicRegistry, requests: Requests, quotas: Quotas
    ) -> None:
        self._new_topics, self._topics = new_topics, topics
        self._requests, self._quotas = requests, quotas
        self._making: set[str] = set()
        # by topic: the reason, and the time until which it is kept
        self._reasons: dict[str, tuple[str, int]] = {}

    def why_missing(self, names: Iterable[str], now_ms: int) -> str:
        """Why some of the topics could not be made; empty if no creation has failed recently."""
        reasons = [
            f"{name}: {self._reasons[name][0]}" for name in names if self._has_failed(name, now_ms)
        ]
        if not reasons:
            return ""
        more = len(reasons) - MOST_REASONS
        shown = "; ".join(reasons[:MOST_REASONS])
        return f"{shown}; and {more} more" if more > 0 else shown

    def make(self, missing: Sequence[InternalTopic], context: RequestContext, kept_ms: int) -> None:
        """Create the missing topics, except those that are being created and those whose creation
        has failed recently.

        Takes: kept_ms, how long the reason for a failure is kept.
        """
        now_ms = context.now_ms
        wanted = [
            topic
            for topic in missing
            if topic.name not in self._making and not self._has_failed(topic.name, now_ms)
        ]
        if wanted:
            self._making.update(topic.name for topic in wanted)
            work = self._make(wanted, context, kept_ms)
            self._requests.work.begin(context.ticket, work, now_ms)

    def _has_failed(self, name: str, now_ms: int) -> bool:
        """Whether the creation of the topic failed recently; a reason that is too old is
        forgotten.
        """
        reason = self._reasons.get(name)
        if reason is not None and reason[1] <= now_ms:
            del self._reasons[name]
            reason = None
        return reason is not None

    def _make(
        self, wanted: Sequence[InternalTopic], context: RequestContext, kept_ms: int
    ) -> Slices:
        """Create the topics, in slices. After: the reason of each failure is kept for the next
        heartbeats.
        """
        now_ms = yield
        taken = TakenNames(self._topics.metadata.topics)
        quotas = self._quotas.clients
        mutations = None if quotas is None else quotas.mutations(context)
        checked: list[Topic] = []
        failed: dict[str, str] = {}
        count = 0
        for request in map(_creatable, wanted):
            try:
                count += request.num_partitions
                if count > MOST_PARTITIONS_AT_ONCE:
                    raise KafkaError(
                        Code.POLICY_VIOLATION,
                        f"the application needs more than {MOST_PARTITIONS_AT_ONCE} partitions of "
                        "internal topics at once: create some of them first.",
                    )
                topic = self._new_topics.checked(request, taken)
                if mutations is not None:
                    mutations.record(topic.partition_count)
                taken.add(topic.name)
                checked.append(topic)
            except KafkaError as error:
                if error.code is not Code.TOPIC_ALREADY_EXISTS:
                    failed[request.name] = error.message or error.code.name
        if checked:
            lacking = yield from self._topics.create_topics(checked, now_ms)
            failed.update(dict.fromkeys(lacking, NO_ROOM))
        self._making.difference_update(topic.name for topic in wanted)
        for name, reason in failed.items():
            logger.warning("the internal topic %s could not be created: %s", name, reason)
            while len(self._reasons) >= MOST_KEPT:
                del self._reasons[next(iter(self._reasons))]
            self._reasons[name] = (reason, now_ms + kept_ms)


def _creatable(topic: InternalTopic) -> CreatableTopic:
    """The internal topic of an application, as a row of CreateTopics."""
    return CreatableTopic(
        topic.name,
        topic.partition_count,
        topic.replication_factor or UNSET,
        [],
        [CreatableTopicConfig(key, value) for key, value in topic.configs],
    )
