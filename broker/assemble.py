"""The wiring of a broker: its parts, what each is made of, and the order in which they are made.

A part is made after all the parts that it takes, so no part gets a half-made broker. Some parts are
rarely needed: these are `Lazy`, and their modules are loaded at their first use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.brokers.addresses import Addresses
from barnabas.broker.brokers.cluster import Cluster, NodeProducerIds
from barnabas.broker.core import Broker
from barnabas.broker.group_runtime import GroupRuntime
from barnabas.broker.group_topics import GroupTopics, short_text
from barnabas.broker.lazy import Lazy
from barnabas.broker.logs.compaction import Compaction
from barnabas.broker.logs.disk_space import DiskSpace
from barnabas.broker.logs.flush_queue import FlushQueue
from barnabas.broker.logs.log_progress import LogProgress
from barnabas.broker.logs.start import Start, adopt_logs
from barnabas.broker.logs.syncs import Syncs
from barnabas.broker.logs.topic_deletion import TopicDeletion
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.logs.unwritten_work import UnwrittenWork
from barnabas.broker.observation.counters import Counters
from barnabas.broker.outbox import Ids, Outbox
from barnabas.broker.quotas.quotas import Quotas, no_time
from barnabas.broker.requests.parts import Parts, Routes
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.requests.purgatory import Purgatory
from barnabas.broker.requests.routes import Route
from barnabas.broker.security.access import ClientAccess
from barnabas.broker.settings.coordinator_settings import (
    consumer_group_settings,
    group_settings,
    share_group_settings,
    streams_group_settings,
    transaction_settings,
)
from barnabas.broker.settings.current_features import CurrentFeatures
from barnabas.broker.transactions.transaction_end import (
    Endings,
    TransactionEnds,
    TransactionMarkers,
)
from barnabas.broker.transactions.transaction_recovery import TransactionRecovery
from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.coordinator.transactions.producer_ids import ProducerIdAllocator
from barnabas.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from barnabas.storage.directory.log_manager import LogManager, sync_one_by_one
from barnabas.storage.disk import Syncable

if TYPE_CHECKING:
    from barnabas.broker.brokers.coordinator_edge import CoordinatorEdge
    from barnabas.broker.brokers.failover import Failover
    from barnabas.broker.connections import ConnectionState
    from barnabas.broker.logs.metadata import ClusterMetadata
    from barnabas.broker.logs.new_files import FilesAhead
    from barnabas.broker.logs.new_topics import NewTopics
    from barnabas.broker.requests.telemetry import Telemetry
    from barnabas.broker.requests.wide_requests import WideRequests
    from barnabas.broker.security.authorizer import Authorizer
    from barnabas.broker.security.gate import SaslGate
    from barnabas.broker.security.logins import Logins
    from barnabas.broker.settings.config import BrokerConfig
    from barnabas.broker.settings.group_configs import GroupConfigs
    from barnabas.broker.share.shares import Shares
    from barnabas.broker.streams_topics import StreamsTopics

PRODUCER_ID_BLOCK = 1000


def assemble(
    config: BrokerConfig,
    metadata: ClusterMetadata,
    logs: LogManager,
    ids: Ids,
    now_ms: int,
    sync: Callable[[list[Syncable]], None] = sync_one_by_one,
    clock_ns: Callable[[], int] = no_time,
) -> Broker:
    """Make a broker of an opened data directory. One function, so that a reader sees all wiring.

    Takes: metadata and logs, both loaded; ids, the source of random names; now_ms, the steady time
           of the start; sync, which fsyncs many files; clock_ns, which measures parts of the
           start.
    After: internal topics are replayed into the coordinators; transactions found in PREPARE_* are
           under way to completion.
    """
    wall, outbox, unwritten = logs.wall, Outbox(), UnwrittenWork()
    connections: dict[int, ConnectionState] = {}
    loaded_routes: dict[int, Route] = {}

    # topics, their logs, and the brokers that lead them
    disk_space = DiskSpace(
        lambda: logs.disk.free_bytes(logs.data_dir), config.barnabas_disk_reserve_bytes
    )
    features = CurrentFeatures(config, metadata)
    files_ahead = Lazy(partial(_files_ahead, outbox, logs))
    topics = TopicRegistry(
        config, metadata, logs, ids, disk_space, lambda made: files_ahead.get().begin(made)
    )
    cluster = Cluster(config, topics, ids)
    producer_ids = ProducerIdAllocator(
        block_size=PRODUCER_ID_BLOCK,
        persist=metadata.set_next_producer_id,
        next_id=metadata.next_producer_id,
    )
    adopt_logs(topics, producer_ids, ids, config.node_id, now_ms)

    # requests, and what waits for logs
    purgatory = Purgatory()
    quotas = Quotas(config, metadata, connections, outbox, wall, loaded_routes)
    requests = Requests(connections, outbox, purgatory, quotas)
    wide = Lazy(partial(_wide_requests, requests, outbox))
    flushes = _flush_queue(config, logs, outbox, purgatory, disk_space)
    progress = LogProgress(purgatory, flushes)
    syncs = Syncs(outbox)
    compaction = Compaction(config, logs, flushes, syncs, outbox, now_ms)

    # authentication, authorization and addresses of brokers
    access = ClientAccess(_authorizer(config, metadata, outbox, cluster), connections)
    logins = Lazy(partial(_logins, config, outbox))
    sasl = _sasl_gate(config, metadata, logs, ids, connections, outbox, requests, logins)
    addresses = Addresses(config, cluster, connections)
    failover = Lazy(partial(_failover, cluster, topics, connections, requests, progress))

    # the coordinators, and the parts that carry out their decisions
    endings = Endings()
    node_producer_ids = NodeProducerIds(cluster, producer_ids)
    transactions = TransactionCoordinator(
        partition_count=topics.internal_partition_count(TRANSACTIONS_TOPIC),
        settings=transaction_settings(config, features.finalized),
        partition_exists=topics.partition_exists,
        allocate_producer_id=(producer_ids if cluster.is_one else node_producer_ids).allocate,
        group_partition=topics.group_partition,
        wall=wall,
        coordinator_epoch=partial(topics.leader_epoch, TRANSACTIONS_TOPIC),
        is_ending=endings.is_decided,
    )
    features.on_updated.append(partial(_apply_features, config, features, transactions))
    group_configs = Lazy(partial(_group_configs, config, metadata))
    groups = GroupCoordinator(
        partition_count=topics.internal_partition_count(OFFSETS_TOPIC),
        settings=group_settings(config),
        partition_exists=topics.partition_exists,
        new_member_suffix=lambda: str(ids.uuid()),
        wall=wall,
        topics=GroupTopics(topics, access.of),
        new_member_id=lambda: short_text(ids.uuid()),
        consumer_settings=consumer_group_settings(config),
        share_settings=share_group_settings(config),
        streams_settings=streams_group_settings(config),
        overrides=lambda group_id: group_configs.get().overrides(group_id),
        setting_of=lambda group_id, name: group_configs.get().value(group_id, name),
    )
    shares = Lazy(
        partial(
            _shares,
            config, topics, flushes, progress, requests, purgatory, group_configs, unwritten,
            now_ms, clock_ns,
        )
    )  # fmt: skip
    group_runtime = GroupRuntime(groups, topics, flushes, progress, requests, shares, unwritten)
    markers = TransactionMarkers(topics, groups)
    transaction_ends = TransactionEnds(
        config,
        endings,
        transactions,
        markers,
        topics,
        flushes,
        progress,
        requests,
        outbox,
        files_ahead,
        unwritten,
    )
    edge = Lazy(
        partial(
            _coordinator_edge,
            cluster, node_producer_ids, connections, requests, groups, group_runtime, features,
        )
    )  # fmt: skip
    deletion = TopicDeletion(
        topics, groups, group_runtime, shares, transaction_ends, progress, flushes, compaction,
        cluster, syncs, requests.work, unwritten,
    )  # fmt: skip

    recovery = TransactionRecovery(transaction_ends, markers, transactions, topics, flushes, outbox)
    start = Start(
        topics, groups, transactions, producer_ids, group_runtime, shares, transaction_ends,
        recovery, deletion,
    )  # fmt: skip
    unwritten.may_wait = not logs.may_lack_acknowledged
    start.resume(now_ms, sync)
    logs.run_steps = metadata.run_steps = syncs.run
    unwritten.may_wait = True

    new_topics = Lazy(partial(_new_topics, config, ids, topics, cluster))
    streams_topics = Lazy(partial(_streams_topics, new_topics, topics, requests, quotas))
    counters = Counters()
    telemetry = Lazy(partial(_telemetry, metadata, counters))
    parts = Parts(
        config=config, metadata=metadata, logs=logs, ids=ids, connections=connections,
        requests=requests, wide=wide, quotas=quotas, access=access, features=features,
        topics=topics, disk_space=disk_space, files_ahead=files_ahead, flushes=flushes,
        progress=progress, deletion=deletion, cluster=cluster, addresses=addresses,
        failover=failover, edge=edge, groups=groups, group_runtime=group_runtime, shares=shares,
        group_configs=group_configs, transactions=transactions, producer_ids=producer_ids,
        endings=endings, markers=markers,
        transaction_ends=transaction_ends, telemetry=telemetry, counters=counters,
        new_topics=new_topics, streams_topics=streams_topics,
    )  # fmt: skip
    return Broker(
        config, metadata, logs, outbox, connections, requests, Routes(parts, loaded_routes),
        wide=wide, quotas=quotas, access=access, sasl=sasl, logins=logins, topics=topics,
        cluster=cluster, failover=failover, purgatory=purgatory, progress=progress, flushes=flushes,
        compaction=compaction, groups=groups, group_runtime=group_runtime, shares=shares,
        transactions=transactions, transaction_ends=transaction_ends, counters=counters,
        unwritten=unwritten,
    )  # fmt: skip


def _flush_queue(
    config: BrokerConfig,
    logs: LogManager,
    outbox: Outbox,
    purgatory: Purgatory,
    disk_space: DiskSpace,
) -> FlushQueue:
    return FlushQueue(
        outbox,
        logs.journal,
        fewest_logs=config.barnabas_flush_journal_logs,
        journal_roll_ms=config.log_flush_offset_checkpoint_interval_ms,
        logs_to_checkpoint=logs.logs.values() if logs.journal.has_older else (),
        keeps_earlier_journals=lambda: bool(logs.offline),
        disk_space=disk_space,
        on_advanced=purgatory.on_progress,
    )


def _authorizer(
    config: BrokerConfig, metadata: ClusterMetadata, outbox: Outbox, cluster: Cluster
) -> Authorizer | None:
    """The authorizer that the settings name. With an audit log and no authorizer: one that allows
    every request. Else None.
    """
    if not config.authorizer_class_name and not config.barnabas_audit_log:
        return None
    # loaded now: otherwise the first request would delay the others while the modules load
    import barnabas.broker.security.authorization  # noqa: F401
    from barnabas.broker.security.authorizer import Authorizer

    def on_changed() -> None:
        cluster.generation += 1

    return Authorizer(
        metadata,
        config.super_users,
        everyone_if_no_acl=config.allow_everyone_if_no_acl_found,
        is_on=bool(config.authorizer_class_name),
        tell=outbox.audit.append if config.barnabas_audit_log else None,
        on_changed=on_changed,
    )


def _sasl_gate(
    config: BrokerConfig,
    metadata: ClusterMetadata,
    logs: LogManager,
    ids: Ids,
    connections: Mapping[int, ConnectionState],
    outbox: Outbox,
    requests: Requests,
    logins: Lazy[Logins],
) -> SaslGate | None:
    """The gate that authenticates clients; None where no listener has SASL."""
    if not config.has_sasl:
        return None
    from barnabas.broker.security.gate import SaslGate

    return SaslGate(config, metadata, ids, logs.wall, connections, outbox, requests, logins.get())


def _files_ahead(outbox: Outbox, logs: LogManager) -> FilesAhead:
    from barnabas.broker.logs.new_files import FilesAhead

    return FilesAhead(outbox, logs)


def _wide_requests(requests: Requests, outbox: Outbox) -> WideRequests:
    from barnabas.broker.requests.wide_requests import WideRequests

    return WideRequests(requests, outbox)


def _shares(
    config: BrokerConfig,
    topics: TopicRegistry,
    flushes: FlushQueue,
    progress: LogProgress,
    requests: Requests,
    purgatory: Purgatory,
    group_configs: Lazy[GroupConfigs],
    unwritten: UnwrittenWork,
    now_ms: int,
    clock_ns: Callable[[], int],
) -> Shares:
    """Make the part for share groups; its parameters are the parts that it uses."""
    from barnabas.broker.share.shares import make_shares

    return make_shares(
        config, topics, flushes, progress, requests, purgatory, group_configs.get(), unwritten,
        now_ms, clock_ns,
    )  # fmt: skip


def _new_topics(
    config: BrokerConfig, ids: Ids, topics: TopicRegistry, cluster: Cluster
) -> NewTopics:
    from barnabas.broker.logs.new_topics import NewTopics

    return NewTopics(config, ids, topics, cluster)


def _streams_topics(
    new_topics: Lazy[NewTopics], topics: TopicRegistry, requests: Requests, quotas: Quotas
) -> StreamsTopics:
    from barnabas.broker.streams_topics import StreamsTopics

    return StreamsTopics(new_topics.get(), topics, requests, quotas)


def _coordinator_edge(
    cluster: Cluster,
    node_producer_ids: NodeProducerIds,
    connections: Mapping[int, ConnectionState],
    requests: Requests,
    groups: GroupCoordinator,
    group_runtime: GroupRuntime,
    features: CurrentFeatures,
) -> CoordinatorEdge:
    from barnabas.broker.brokers.coordinator_edge import CoordinatorEdge

    return CoordinatorEdge(
        cluster, node_producer_ids, connections, requests, groups, group_runtime, features
    )


def _failover(
    cluster: Cluster,
    topics: TopicRegistry,
    connections: Mapping[int, ConnectionState],
    requests: Requests,
    progress: LogProgress,
) -> Failover:
    from barnabas.broker.brokers.failover import Failover

    return Failover(cluster, topics, connections, requests, progress)


def _logins(config: BrokerConfig, outbox: Outbox) -> Logins:
    from barnabas.broker.security.logins import Logins

    return Logins(config, outbox)


def _telemetry(metadata: ClusterMetadata, counters: Counters) -> Telemetry:
    from barnabas.broker.requests.telemetry import Telemetry

    return Telemetry(metadata.client_metrics, counters)


def _group_configs(config: BrokerConfig, metadata: ClusterMetadata) -> GroupConfigs:
    from barnabas.broker.settings.group_configs import GroupConfigs

    return GroupConfigs(config, metadata)


def _apply_features(
    config: BrokerConfig, features: CurrentFeatures, transactions: TransactionCoordinator
) -> None:
    transactions.settings = transaction_settings(config, features.finalized)
