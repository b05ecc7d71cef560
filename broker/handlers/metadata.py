"""Metadata: where the broker is, and which topics and partitions there are."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from broker.metadata import INTERNAL_TOPICS
from broker.outbox import Context, Encoded
from broker.topic_names import TakenNames, check_topic_name
from protocol.errors import Code, KafkaError
from protocol.metadata_response import OPERATIONS_NOT_ASKED, MetadataTopic, encode_metadata

if TYPE_CHECKING:
    from broker.core import Broker
    from broker.metadata import Topic

NO_ID = uuid.UUID(int=0)
NONE_MEANS_NONE_SINCE, LEAVE_ASKED_SINCE, ASKED_BY_ID_SINCE = 1, 4, 12
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))  # AclOperation: read to describe, and configs
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))  # create to idempotent write


def on_metadata(broker: Broker, request: Any, context: Context) -> Encoded:
    """This broker, and the topics asked for by name or (version 12) by id; null, or in version 0 an empty list: all.

    A topic that is missing is made where auto.create.topics.enable and the request allow it; as with Apache Kafka this answer still says
    that it is missing, and clients ask again. Errors, by topic: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_ID;
    INVALID_REQUEST for all where ids stand in a version that cannot ask by id.
    """
    host, port = broker.advertised(context)
    frame = encode_metadata(
        context.correlation_id,
        context.api_version,
        node_id=broker.node_id,
        host=host,
        port=port,
        rack=broker.config["broker.rack"],
        cluster_id=broker.logs.cluster_id,
        topics=_topics(broker, request, context),
        topic_operations=TOPIC_OPERATIONS if request.include_topic_authorized_operations else OPERATIONS_NOT_ASKED,
        cluster_operations=CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED,
    )
    return Encoded((frame,))


def _topics(broker: Broker, request: Any, context: Context) -> list[MetadataTopic]:
    asked = request.topics
    if asked is None or (not asked and context.api_version < NONE_MEANS_NONE_SINCE):
        return [_found(broker, topic) for topic in broker.metadata.topics.values()]
    if context.api_version < ASKED_BY_ID_SINCE and any(wanted.name is None or wanted.topic_id for wanted in asked):
        return [MetadataTopic(Code.INVALID_REQUEST, wanted.name or "", wanted.topic_id or NO_ID) for wanted in asked]
    leave = context.api_version < LEAVE_ASKED_SINCE or request.allow_auto_topic_creation
    may_create = leave and broker.config["auto.create.topics.enable"]
    rows = []
    for name, topic_id in _once(asked):
        if topic_id is not None:
            topic = broker.metadata.topic_by_id(topic_id)
            rows.append(MetadataTopic(Code.UNKNOWN_TOPIC_ID, None, topic_id) if topic is None else _found(broker, topic))
            continue
        topic = broker.metadata.topic(name)
        if topic is not None:
            rows.append(_found(broker, topic))
        else:
            code = _why_missing(broker, name, context.now_ms, may_create=may_create)
            rows.append(MetadataTopic(code, name, NO_ID, name in INTERNAL_TOPICS))
    return rows


def _once(asked: Iterable[Any]) -> Iterable[tuple[str, uuid.UUID | None]]:
    """Each name and each id once, in order. Where both are given the id counts."""
    return dict.fromkeys(("", wanted.topic_id) if wanted.topic_id else (wanted.name or "", None) for wanted in asked)


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


def _found(broker: Broker, topic: Topic) -> MetadataTopic:
    logs = broker.partitions_of(topic.name)
    offline = frozenset(index for index, log in enumerate(logs) if log is None) if None in logs else frozenset()
    return MetadataTopic(Code.NONE, topic.name, topic.topic_id, topic.internal, broker.leader_epochs(topic.name), offline)
