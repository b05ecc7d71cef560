"""The take-over of an Apache Kafka data directory.

Topics that exist only as directories are added to the journal. If there is a metadata log of
Kafka's, their settings are added as well, and producer ids that it reserved are not assigned again.
Users' SCRAM credentials, ACLs, client quotas, and the settings of groups and of clients' metrics
are taken over together with the first topics.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from typing import Protocol

from barnabas.broker.logs.metadata import ClusterMetadata
from barnabas.broker.outbox import Ids
from barnabas.broker.settings.client_metrics import CLIENT_METRICS_SETTINGS
from barnabas.broker.settings.deletion import (
    DELETING_BROKER_SETTINGS,
    is_topic_default,
)
from barnabas.broker.settings.group_configs import GROUP_SETTINGS
from barnabas.broker.settings.rows_broker import BROKER_SETTINGS
from barnabas.broker.settings.rows_topic import TOPIC_SETTINGS
from barnabas.coordinator.transactions.producer_ids import ProducerIdAllocator
from barnabas.graduation.kafka_directory.kafka_metadata import (
    OF_CLIENT_METRICS,
    OF_GROUP,
    KafkaMetadata,
    read_kafka_metadata,
    usable_configs,
)
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.directory.partition_directories import most_frequent
from barnabas.storage.files.checkpoints import NO_TOPIC_ID

logger = logging.getLogger("barnabas.broker")


class Topics(Protocol):
    """The part of the broker's topics that a take-over uses."""

    @property
    def logs(self) -> LogManager: ...

    @property
    def metadata(self) -> ClusterMetadata: ...

    def set_broker_configs(self, configs: dict[str, str]) -> None:
        """Replace the dynamic configs of this broker."""

    def set_broker_default_configs(self, configs: dict[str, str]) -> None:
        """Replace the dynamic configs for all brokers."""


def take_over_topics(
    topics: Topics, producer_ids: ProducerIdAllocator, ids: Ids, node_id: int
) -> None:
    """Add to the journal every topic that is not in it yet but has directories, which another
    broker has written.
    """
    logs, metadata = topics.logs, topics.metadata
    counts: dict[str, int] = {}
    for name, index in [*logs.logs, *logs.offline]:
        counts[name] = max(counts.get(name, 0), index + 1)
    counts = {name: counts[name] for name in sorted(counts) if metadata.topic(name) is None}
    if not counts:
        return

    kafka = read_kafka_metadata(logs.disk, logs.data_dir)
    refused: dict[str, None] = {}
    if kafka is not None:
        if not metadata.topics:
            # A journal with topics already has its own users, ACLs and groups' settings, and those
            # that were removed must not return.
            _take_over_security(kafka, metadata)
            refused.update(dict.fromkeys(_take_over_groups(kafka, metadata)))
        refused.update(dict.fromkeys(_take_over_broker_configs(kafka, topics, node_id)))
        if kafka.next_producer_id > metadata.next_producer_id:
            metadata.set_next_producer_id(
                kafka.next_producer_id
            )  # stored, since the next start does not read Kafka's metadata again
            producer_ids.skip_used(kafka.next_producer_id)
    ids_of_logs = _topic_ids_of_logs(logs)
    for name, count in counts.items():
        topic_id = ids_of_logs.get(name) or ids.uuid()
        configs = kafka.topic_configs(name, topic_id) if kafka is not None else None
        if configs is not None:
            configs, wrong = usable_configs(configs, TOPIC_SETTINGS)
            refused.update(dict.fromkeys(wrong))
        metadata.adopt_topic(name, topic_id, count, configs)
    if refused:
        logger.warning(
            "these settings in Kafka's metadata log are not taken over: %s", "; ".join(refused)
        )


def _take_over_security(kafka: KafkaMetadata, metadata: ClusterMetadata) -> None:
    """Add Kafka's users, ACLs and quotas to the journal."""
    users = {
        key: credential
        for key, credential in kafka.scram_credentials.items()
        if key not in metadata.scram_credentials
    }
    acls = {acl_id: acl for acl_id, acl in kafka.acls.items() if acl_id not in metadata.acls}
    if users:
        metadata.set_scram_credentials(users)
    if acls:
        metadata.add_acls(acls)
    if users or acls:
        logger.info(
            "taking over the users (%d SCRAM credentials) and ACLs (%d) that Kafka's metadata log "
            "has",
            len(users),
            len(acls),
        )
    if kafka.client_quotas:
        logger.info(
            "taking over %d client quotas of Kafka's metadata log", len(kafka.client_quotas)
        )
        metadata.set_client_quotas(kafka.client_quotas)


def _take_over_groups(kafka: KafkaMetadata, metadata: ClusterMetadata) -> list[str]:
    """Add the settings of Kafka's groups, and of clients' metrics, to the journal.

    Gives: the errors of the settings that are not taken over.
    """
    refused: list[str] = []
    for kind, settings, keep in (
        (OF_GROUP, GROUP_SETTINGS, metadata.set_group_configs),
        (OF_CLIENT_METRICS, CLIENT_METRICS_SETTINGS, metadata.set_client_metrics),
    ):
        for name, configs in sorted(kafka.configs_of(kind).items()):
            usable, wrong = usable_configs(configs, settings)
            refused += wrong
            if usable:
                keep(name, usable)
    return refused


def _topic_ids_of_logs(logs: LogManager) -> dict[str, uuid.UUID]:
    """The topic id that most directories of a topic have, by topic name. Topics without an id are
    left out.
    """
    ids: dict[str, list[uuid.UUID]] = {}
    for (topic, _), log in sorted(logs.logs.items()):
        if log.topic_id != NO_TOPIC_ID:
            ids.setdefault(topic, []).append(log.topic_id)
    return {topic: most_frequent(of_topic) for topic, of_topic in ids.items()}


def _take_over_broker_configs(kafka: KafkaMetadata, topics: Topics, node_id: int) -> list[str]:
    """Take over the dynamic broker settings that are defaults of topic settings, or decide what is
    deleted. They are taken over for this broker, or for all brokers, only if the journal has no
    such settings there yet.

    Gives: the errors of the settings that are not taken over.
    """
    metadata = topics.metadata
    refused: list[str] = []
    if not metadata.broker_default_configs:
        configs, wrong = _defaults_of_topics(kafka.broker_default_configs())
        refused += wrong
        if configs:
            topics.set_broker_default_configs(configs)
    if not metadata.broker_configs:
        configs, wrong = _defaults_of_topics(kafka.broker_configs(node_id))
        refused += wrong
        if configs:
            topics.set_broker_configs(configs)
    return refused


def _defaults_of_topics(configs: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The usable settings of a broker that are defaults of topic settings, or decide what is
    deleted, and the errors of the other settings.
    """
    defaults = {
        name
        for name, setting in BROKER_SETTINGS.items()
        if setting.dynamic and (is_topic_default(name) or name in DELETING_BROKER_SETTINGS)
    }

    usable, wrong = usable_configs(
        {name: text for name, text in configs.items() if name in defaults}, BROKER_SETTINGS
    )
    if usable:
        logger.info("taking over the broker settings that Kafka's metadata log has: %s", usable)
    return usable, wrong
