"""Metadata: where the brokers are, and which topics and partitions there are."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from broker.metadata import INTERNAL_TOPICS
from broker.outbox import Context
from broker.topic_names import TakenNames, check_topic_name
from protocol import messages
from protocol.errors import Code, KafkaError

if TYPE_CHECKING:
    from broker.core import Broker
    from broker.metadata import Topic

NO_ID = uuid.UUID(int=0)
LEADER_EPOCH = 0
NONE_MEANS_NONE_SINCE, LEAVE_ASKED_SINCE, ASKED_BY_ID_SINCE = 1, 4, 12
TOPIC_OPERATIONS = frozenset({3, 4, 5, 6, 7, 8, 10, 11})  # AclOperation: read to describe, describe configs, alter configs
CLUSTER_OPERATIONS = frozenset({5, 7, 8, 9, 10, 11, 12})


def on_metadata(broker: Broker, request: Any, context: Context) -> Any:
    """This broker, and the topics asked for by name or (version 12) by id; null, or in version 0 an empty list: all.

    A topic that is missing is made where auto.create.topics.enable and the request allow it; as with Apache Kafka this answer still says
    that it is missing, and clients ask again. Errors, by topic: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_ID;
    INVALID_REQUEST for all where ids stand in a version that cannot ask by id.
    """
    response_class = messages.message_class("metadata", "MetadataResponse")
    host, port = broker.advertised(context)
    node = response_class.MetadataResponseBroker(node_id=broker.node_id, host=host, port=port, rack=broker.config["broker.rack"])
    return response_class(
        throttle_time_ms=0,
        brokers=[node],
        cluster_id=broker.logs.cluster_id,
        controller_id=broker.node_id,
        topics=_topics(broker, request, context, response_class.MetadataResponseTopic),
        authorized_operations=CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else None,
        error_code=int(Code.NONE),
    )


def _topics(broker: Broker, request: Any, context: Context, topic_class: Any) -> list[Any]:
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else None
    asked = request.topics
    if asked is None or (not asked and context.api_version < NONE_MEANS_NONE_SINCE):
        return [_found(broker, topic_class, topic, operations) for topic in broker.metadata.topics.values()]
    if context.api_version < ASKED_BY_ID_SINCE and any(wanted.name is None or (wanted.topic_id or NO_ID) != NO_ID for wanted in asked):
        return [
            _missing(topic_class, wanted.name or "", wanted.topic_id or NO_ID, Code.INVALID_REQUEST, operations) for wanted in asked
        ]
    may_create = broker.config["auto.create.topics.enable"] and (context.api_version < LEAVE_ASKED_SINCE or request.allow_auto_topic_creation)
    rows = []
    for name, topic_id in _once(asked):
        if topic_id != NO_ID:
            topic = broker.metadata.topic_by_id(topic_id)
            missing = Code.UNKNOWN_TOPIC_ID
        else:
            topic = broker.metadata.topic(name) if name is not None else None
            missing = Code.NONE if topic is not None else _why_missing(broker, name or "", context.now_ms, may_create=may_create)
        if topic is not None:
            rows.append(_found(broker, topic_class, topic, operations))
        else:
            rows.append(_missing(topic_class, None if topic_id != NO_ID else name, topic_id, missing, operations))
    return rows


def _once(asked: Iterable[Any]) -> Iterable[tuple[str | None, uuid.UUID]]:
    """Each name and each id once, in order."""
    return dict.fromkeys((None if wanted.topic_id else wanted.name, wanted.topic_id or NO_ID) for wanted in asked)


def _why_missing(broker: Broker, name: str, now_ms: int, *, may_create: bool) -> Code:
    """The code for a topic that was not there; it is now, if it may be made."""
    try:
        check_topic_name(name)
        if may_create:
            if name in INTERNAL_TOPICS:
                broker.ensure_internal_topic(name, now_ms)
            else:
                TakenNames(broker.metadata.topics).check(name)
                broker.create_topic(name, broker.config["num.partitions"], {}, now_ms=now_ms)
    except KafkaError as error:
        return error.code
    return Code.UNKNOWN_TOPIC_OR_PARTITION


def _found(broker: Broker, topic_class: Any, topic: Topic, operations: frozenset[int] | None) -> Any:
    return topic_class(
        error_code=int(Code.NONE),
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=_partitions(broker, topic),
        authorized_operations=operations,
    )


def _missing(topic_class: Any, name: str | None, topic_id: uuid.UUID, code: Code, operations: frozenset[int] | None) -> Any:
    return topic_class(
        error_code=int(code),
        name=name,
        topic_id=topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
        authorized_operations=operations,
    )


def _partitions(broker: Broker, topic: Topic) -> list[Any]:
    """Partition rows are the same in all topics, so they are shared: building them is half the work of an answer."""
    logs = broker.partitions_of(topic.name)
    return [_partition(broker.node_id, index, online=log is not None) for index, log in enumerate(logs)]


@lru_cache(maxsize=16_384)
def _partition(node_id: int, index: int, *, online: bool) -> Any:
    nodes = [node_id]
    return messages.message_class("metadata", "MetadataResponse").MetadataResponseTopic.MetadataResponsePartition(
        error_code=int(Code.NONE if online else Code.LEADER_NOT_AVAILABLE),
        partition_index=index,
        leader_id=node_id if online else -1,
        leader_epoch=LEADER_EPOCH,
        replica_nodes=nodes,
        isr_nodes=nodes,
        offline_replicas=[] if online else nodes,
    )
