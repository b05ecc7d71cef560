"""The coordinators of groups and transactions, with the parts that carry out their decisions.

They are made at the first use: a start in an empty directory needs none of them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.brokers.cluster import Cluster, NodeProducerIds
from barnabas.broker.connections.access import ClientAccess
from barnabas.broker.groups.group_runtime import GroupRuntime
from barnabas.broker.groups.group_topics import GroupTopics, short_text
from barnabas.broker.lazy import Lazy
from barnabas.broker.logs.compaction import Compaction
from barnabas.broker.logs.flush_queue import FlushQueue
from barnabas.broker.logs.log_progress import LogProgress
from barnabas.broker.logs.new_files import FilesAhead
from barnabas.broker.logs.syncs import Syncs
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.logs.unwritten_work import UnwrittenWork
from barnabas.broker.observation.counters import Counters
from barnabas.broker.outbox import Ids, Outbox
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.settings import coordinator_settings as settings
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.current_features import CurrentFeatures
from barnabas.broker.settings.group_configs import GroupConfigs
from barnabas.broker.topic_changes.topic_deletion import TopicDeletion
from barnabas.broker.transactions.cuts import Cuts
from barnabas.broker.transactions.transaction_end import (
    Endings,
    TransactionEnds,
    TransactionMarkers,
)
from barnabas.broker.transactions.whole_transactions import WholeTransactions
from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.coordinator.transactions.producer_ids import ProducerIdAllocator
from barnabas.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from barnabas.storage.cleaning import clean_plan  # noqa: F401 - for the next tick of the compaction
from barnabas.storage.log import new_files  # noqa: F401 - for the first writes to logs
from barnabas.storage.log.log import Log
from barnabas.storage.opening import new_log  # noqa: F401 - for the logs of internal topics

if TYPE_CHECKING:
    from barnabas.broker.share_partitions.shares import Shares


class Coordinators(NamedTuple):
    """The coordinators of groups and transactions, the parts that carry out their decisions, the
    recorded cuts, and the deletion of topics, for which the creation of topics may have to wait.
    """

    groups: GroupCoordinator
    group_runtime: GroupRuntime
    transactions: TransactionCoordinator
    endings: Endings
    markers: TransactionMarkers
    transaction_ends: TransactionEnds
    cuts: Cuts
    deletion: TopicDeletion

    def use_features(self, config: BrokerConfig, features: CurrentFeatures) -> None:
        """Give the transaction coordinator the settings that follow from new feature levels."""
        self.transactions.settings = settings.transaction_settings(config, features.finalized)


def make_coordinators(
    config: BrokerConfig,
    ids: Ids,
    features: CurrentFeatures,
    access: ClientAccess,
    topics: TopicRegistry,
    producer_ids: ProducerIdAllocator | NodeProducerIds,
    flushes: FlushQueue,
    progress: LogProgress,
    requests: Requests,
    outbox: Outbox,
    files_ahead: FilesAhead,
    shares: Lazy[Shares],
    group_configs: GroupConfigs,
    compaction: Compaction,
    cluster: Cluster,
    syncs: Syncs,
    unwritten: UnwrittenWork,
    counters: Counters,
    *,
    is_loaded: bool,
) -> Coordinators:
    """Make the coordinators, and the parts that carry out their decisions.

    Takes: is_loaded, whether there is nothing to replay.
    """
    wall, endings = topics.logs.wall, Endings()
    transactions = TransactionCoordinator(
        partition_count=topics.internal_partition_count(TRANSACTIONS_TOPIC),
        settings=settings.transaction_settings(config, features.finalized),
        partition_exists=topics.partition_exists,
        allocate_producer_id=producer_ids.allocate,
        group_partition=topics.group_partition,
        wall=wall,
        coordinator_epoch=partial(topics.leader_epoch, TRANSACTIONS_TOPIC),
        is_ending=endings.is_decided,
    )
    transactions.is_loaded = is_loaded
    groups = GroupCoordinator(
        partition_count=topics.internal_partition_count(OFFSETS_TOPIC),
        settings=settings.group_settings(config),
        partition_exists=topics.partition_exists,
        new_member_suffix=lambda: str(ids.uuid()),
        wall=wall,
        topics=GroupTopics(topics, access.of),
        new_member_id=lambda: short_text(ids.uuid()),
        consumer_settings=settings.consumer_group_settings(config),
        share_settings=settings.share_group_settings(config),
        streams_settings=settings.streams_group_settings(config),
        overrides=group_configs.overrides,
        setting_of=group_configs.value,
    )
    group_runtime = GroupRuntime(
        groups, topics, flushes, progress, requests, shares, unwritten, counters
    )

    def on_risen(logs: list[Log]) -> None:
        # The cause usually notifies the fetches of its own logs next, and so of these. A flush or
        # a deleted log does not.
        progress.risen += logs
        outbox.deferred += (progress.try_risen, cuts.on_changed)

    cuts = Cuts(config, topics, syncs, outbox, unwritten, counters)
    whole = WholeTransactions(
        topics.logs.leader_epoch, on_risen, outbox.defer, cuts, is_live=is_loaded
    )
    markers = TransactionMarkers(topics, groups, whole)
    transaction_ends = TransactionEnds(
        config, endings, transactions, markers, topics, flushes, progress, requests, outbox,
        files_ahead, unwritten,
    )  # fmt: skip
    deletion = TopicDeletion(
        topics, groups, group_runtime, shares, transaction_ends, progress, flushes, compaction,
        cluster, syncs, requests.work, unwritten, cuts,
    )  # fmt: skip
    return Coordinators(
        groups, group_runtime, transactions, endings, markers, transaction_ends, cuts, deletion
    )
