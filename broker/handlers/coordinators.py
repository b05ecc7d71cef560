"""FindCoordinator: the broker that leads the partition in which a group or transactional id is
stored.
"""

from __future__ import annotations

import base64
import logging
import re
import uuid
from functools import partial

from barnabas.broker import coordinators  # noqa: F401 - for the logs of the internal topics
from barnabas.broker.admission import guards, rights
from barnabas.broker.admission.guard_steps import Ask, by_hand, rule
from barnabas.broker.api_row import ApiRow
from barnabas.broker.brokers.addresses import Addresses
from barnabas.broker.brokers.cluster import NO_LEADER, Cluster
from barnabas.broker.groups.group_topics import short_text
from barnabas.broker.logs.new_files import MADE_BY_A_REQUEST
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.requests.wide_requests import Shape, of_rows
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.features import SHARE_VERSION
from barnabas.coordinator.internal_topics import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
)
from barnabas.protocol.api import Api
from barnabas.protocol.errors import Code
from barnabas.protocol.hot_responses import Endpoint
from barnabas.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.disk import is_out_of_resources

logger = logging.getLogger("barnabas.broker")

GROUP, TRANSACTION, SHARE = 0, 1, 2
BATCHED_SINCE, SHARE_SINCE = 4, 6
NOWHERE = Endpoint(-1, "", -1)
_PARTITION = re.compile(r"[-+]?[0-9]{1,10}", re.ASCII)
_INTS, _LONGEST_ID = 1 << 31, 24


def on_find_coordinator(
    topics: TopicRegistry,
    cluster: Cluster,
    addresses: Addresses,
    config: BrokerConfig,
    request: FindCoordinatorRequest,
    context: RequestContext,
) -> FindCoordinatorResponse:
    """The coordinators of groups, transactional ids or share partitions. Their internal topic is
    made now, as clients of Kafka expect.

    The files of the first keys' partitions are made before the answer, so that a lack of space is
    found now and not when a coordinator writes; another thread makes the other files.

    Errors: INVALID_REQUEST for other kinds, and for a share partition that is not GROUP:TOPIC
    ID:PARTITION; COORDINATOR_NOT_AVAILABLE if no running broker can be the coordinator, or if there
    is no space for its files.
    """
    topic = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}.get(request.key_type)
    if request.key_type == SHARE and _may_be_share(config, context):
        topic = SHARE_STATE_TOPIC
    is_batched = context.api_version >= BATCHED_SINCE
    keys = request.coordinator_keys if is_batched else [request.key]
    if topic is not None and keys:
        topics.ensure_internal_topic(topic, context.now_ms)
    rows = []
    for number, key in enumerate(keys):
        name = share_key(key) if topic == SHARE_STATE_TOPIC else key
        code, (node_id, host, port, _) = _coordinator(cluster, addresses, topic, name, context)
        if not code and number < MADE_BY_A_REQUEST and not _has_files(topics, cluster, topic, name):
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


def _may_be_share(config: BrokerConfig, context: RequestContext) -> bool:
    """Whether the version of the request and the emulated release have share groups."""
    features = config.release.features
    return context.api_version >= SHARE_SINCE and any(
        feature.name == SHARE_VERSION for feature in features
    )


def share_key(key: str) -> str | None:
    """The key of a share partition in its coordinator's form; None if the text is not such a key.

    The group's id may contain colons.
    """
    group_id, _, rest = key.rpartition(":")
    group_id, _, topic_id = group_id.rpartition(":")
    if not group_id.strip() or not _PARTITION.fullmatch(rest) or not -_INTS <= int(rest) < _INTS:
        return None
    try:
        encoded = base64.urlsafe_b64decode(topic_id[:_LONGEST_ID].rstrip("=") + "==")
    except ValueError:
        return None
    if len(encoded) != 16 or len(topic_id) > _LONGEST_ID:
        return None
    written = short_text(uuid.UUID(bytes=encoded))
    if written != topic_id.rstrip("="):
        return None
    return f"{group_id}:{written}:{int(rest)}"


def _has_files(topics: TopicRegistry, cluster: Cluster, topic: str | None, key: str | None) -> bool:
    """Whether a coordinator's log has its files, after an attempt to create missing files."""
    assert topic is not None and key is not None, "a coordinator has a topic"
    log = topics.partition(*cluster.coordinator_partition(topic, key))
    try:
        if log is not None:
            log.files.make()
    except OSError as error:
        if not is_out_of_resources(error):
            raise
        logger.warning("%r has no files; its coordinator is not available: %s", log, error)
        return False
    return True


def _coordinator(
    cluster: Cluster,
    addresses: Addresses,
    topic: str | None,
    key: str | None,
    context: RequestContext,
) -> tuple[Code, Endpoint]:
    """The broker that leads the partition of a key; an error code and NOWHERE if there is none."""
    if topic is None or key is None:
        return Code.INVALID_REQUEST, NOWHERE
    node_id = cluster.node_id
    if not cluster.is_one:
        leadership = cluster.leadership(*cluster.coordinator_partition(topic, key))
        if leadership is None or leadership.leader == NO_LEADER:
            return Code.COORDINATOR_NOT_AVAILABLE, NOWHERE
        node_id = leadership.leader
    return Code.NONE, addresses.endpoint(node_id, context)


# --- the APIs of this family ----------------------------------------------------------------------


ROWS = (
    ApiRow(
        Api(10, "FindCoordinator", 0, 6, flexible_from=3),
        right=rule(
            by_hand(
                guards.find_coordinator,
                Ask(rights.DESCRIBE, rights.GROUP),
                Ask(rights.DESCRIBE, rights.TRANSACTIONAL_ID),
                Ask(rights.CLUSTER_ACTION, rights.CLUSTER, "for a share partition"),
            )
        ),
        shapes=(Shape(of_rows("coordinator_keys", "coordinators"), first_version=4),),
        handler=lambda parts: partial(
            on_find_coordinator, parts.topics, parts.cluster, parts.addresses, parts.config
        ),
    ),
)
