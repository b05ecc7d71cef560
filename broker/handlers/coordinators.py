"""FindCoordinator: the broker that leads the partition with a group or a transactional id."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.broker.brokers.cluster import NO_LEADER
from barnabas.broker.logs.new_files import MADE_BY_A_REQUEST
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.protocol.errors import Code
from barnabas.protocol.hot_responses import Endpoint
from barnabas.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.disk import is_out_of_resources

if TYPE_CHECKING:
    from barnabas.broker.brokers.addresses import Addresses
    from barnabas.broker.brokers.cluster import Cluster
    from barnabas.broker.logs.topics import TopicRegistry

logger = logging.getLogger("barnabas.broker")

GROUP, TRANSACTION = 0, 1
BATCHED_SINCE = 4
NOWHERE = Endpoint(-1, "", -1)


def on_find_coordinator(
    topics: TopicRegistry,
    cluster: Cluster,
    addresses: Addresses,
    request: FindCoordinatorRequest,
    context: RequestContext,
) -> FindCoordinatorResponse:
    """The coordinator of groups and transactional ids. Its internal topic is made now, as clients
    of Kafka expect.

    The files of the first keys' partitions are made before the answer, so that a lack of space is
    found now and not by a coordinator's write; another thread makes the other files.

    Errors: INVALID_REQUEST for other kinds; COORDINATOR_NOT_AVAILABLE where no running broker can
    be the coordinator, or there is no space for its files.
    """
    topic = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}.get(request.key_type)
    is_batched = context.api_version >= BATCHED_SINCE
    keys = request.coordinator_keys if is_batched else [request.key]
    if topic is not None and keys:
        topics.ensure_internal_topic(topic, context.now_ms)
    rows = []
    for number, key in enumerate(keys):
        code, (node_id, host, port, _) = _coordinator(cluster, addresses, topic, key, context)
        if not code and number < MADE_BY_A_REQUEST and not _has_files(topics, cluster, topic, key):
            code, (node_id, host, port, _) = Code.COORDINATOR_NOT_AVAILABLE, NOWHERE
        rows.append(Coordinator(key, node_id, host, port, code, error_message=None))
    if is_batched:
        return FindCoordinatorResponse(coordinators=rows)
    (row,) = rows
    return FindCoordinatorResponse(
        error_code=row.error_code,
        error_message=None,
        node_id=row.node_id,
        host=row.host,
        port=row.port,
    )


def _has_files(topics: TopicRegistry, cluster: Cluster, topic: str | None, key: str) -> bool:
    """Whether a coordinator's log has its files, or gets them now."""
    assert topic is not None, "a coordinator has a topic"
    log = topics.partition(*cluster.coordinator_partition(topic, key))
    try:
        if log is not None:
            log.files.make()
    except OSError as error:
        if not is_out_of_resources(error):
            raise
        logger.warning("%r has no files, and its coordinator is not available: %s", log, error)
        return False
    return True


def _coordinator(
    cluster: Cluster, addresses: Addresses, topic: str | None, key: str, context: RequestContext
) -> tuple[Code, Endpoint]:
    if topic is None:
        return Code.INVALID_REQUEST, NOWHERE
    node_id = cluster.node_id
    if not cluster.is_one:
        leadership = cluster.leadership(*cluster.coordinator_partition(topic, key))
        if leadership is None or leadership.leader == NO_LEADER:
            return Code.COORDINATOR_NOT_AVAILABLE, NOWHERE
        node_id = leadership.leader
    return Code.NONE, addresses.endpoint(node_id, context)
