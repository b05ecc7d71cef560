"""The wiring of a broker: its parts, the other parts that each one needs, and the order in which
they are made.

A part is made after all the parts that it takes, so no part gets a half-made broker. Some are
loaded later than this module. A start in an empty directory without further settings does not need
them, and they would double its time:

| what | loaded |
|---|---|
| the coordinators, and what carries out their decisions | with the first family that needs them |
| the parts for share groups | in the same way |
| the steps of a start on existing topics (`opening/`) | where there are topics |
| the login by SASL (`admission/gate.py`) | where a listener has it |
| the checks for several brokers (`admission/coordinator_edge.py`) | where there are several |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.brokers.addresses import Addresses
from barnabas.broker.brokers.cluster import Cluster, NodeProducerIds
from barnabas.broker.brokers.failover import Failover
from barnabas.broker.connections.access import ClientAccess
from barnabas.broker.connections.connection_state import ConnectionState
from barnabas.broker.connections.logins import Logins
from barnabas.broker.core import Broker
from barnabas.broker.dispatch import Routes
from barnabas.broker.lazy import Lazy
from barnabas.broker.logs.compaction import Compaction
from barnabas.broker.logs.disk_space import DiskSpace
from barnabas.broker.logs.flush_queue import FlushQueue
from barnabas.broker.logs.log_progress import LogProgress
from barnabas.broker.logs.metadata import ClusterMetadata
from barnabas.broker.logs.new_files import FilesAhead
from barnabas.broker.logs.purgatory import Purgatory
from barnabas.broker.logs.syncs import Syncs
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.logs.unwritten_work import UnwrittenWork
from barnabas.broker.observation.counters import Counters
from barnabas.broker.outbox import Ids, Outbox
from barnabas.broker.parts import Parts
from barnabas.broker.quotas.quotas import Quotas, no_time
from barnabas.broker.requests.families import Families
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.requests.wide_requests import WideRequests
from barnabas.broker.routes import Route
from barnabas.broker.security.authorizer import Authorizer
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.current_features import CurrentFeatures
from barnabas.broker.settings.group_configs import GroupConfigs
from barnabas.coordinator.transactions.producer_ids import ProducerIdAllocator
from barnabas.storage.directory.log_manager import LogManager, sync_one_by_one
from barnabas.storage.disk import Syncable

if TYPE_CHECKING:
    from barnabas.broker.admission.coordinator_edge import CoordinatorEdge
    from barnabas.broker.admission.gate import SaslGate
    from barnabas.broker.coordinators import Coordinators
    from barnabas.broker.opening.start import TakeOver
    from barnabas.broker.share_partitions.shares import Shares

PRODUCER_ID_BLOCK = 1000


def assemble(
    config: BrokerConfig,
    metadata: ClusterMetadata,
    logs: LogManager,
    ids: Ids,
    now_ms: int,
    take_over: TakeOver,
    sync: Callable[[list[Syncable]], None] = sync_one_by_one,
    clock_ns: Callable[[], int] = no_time,
) -> Broker:
    """Make a broker from an opened data directory.

    This is one long function, to show all wiring in one place.

    Takes: metadata and logs, both loaded; ids, the source of random names; now_ms, the steady time
           at startup; take_over, which adds topics of another broker's directory to the journal;
           sync, a function that fsyncs several files; clock_ns, the clock that
           measures the steps of startup.
    After: internal topics are replayed into the coordinators, and transactions found in a PREPARE_*
           state are being completed.
    """
    wall, outbox = logs.wall, Outbox()
    connections: dict[int, ConnectionState] = {}
    loaded_routes: dict[int, Route] = {}

    # topics, their logs, and the brokers that lead them
    disk_space = DiskSpace(
        lambda: logs.disk.free_bytes(logs.data_dir),
        config.barnabas_disk_reserve_bytes,
        logs.data_dir,
    )
    disk_space.look()
    unwritten = UnwrittenWork(disk_space.on_not_written)
    features = CurrentFeatures(config, metadata)
    files_ahead = FilesAhead(outbox, logs)
    topics = TopicRegistry(config, metadata, logs, ids, disk_space, files_ahead.begin)
    cluster = Cluster(config, topics, ids)
    producer_ids = ProducerIdAllocator(
        block_size=PRODUCER_ID_BLOCK,
        persist=metadata.set_next_producer_id,
        next_id=metadata.next_producer_id,
    )
    # Without any of these there is nothing to replay, so the coordinators are made only at their
    # first use.
    has_state = bool(
        metadata.topics or metadata.deletions or logs.logs or logs.offline or logs.decisions
        or logs.may_lack_acknowledged
    )  # fmt: skip
    if has_state:
        from barnabas.broker.opening.start import Start, adopt_logs
        from barnabas.broker.transactions.transaction_recovery import TransactionRecovery

        adopt_logs(topics, producer_ids, ids, config.node_id, now_ms, take_over)

    # requests, and the fetches that wait for logs
    purgatory = Purgatory(config.barnabas_waiting_fetches_max_bytes)
    quotas = Quotas(config, metadata, connections, outbox, wall, loaded_routes)
    requests = Requests(connections, outbox, purgatory, quotas)
    wide = WideRequests(requests)
    flushes = _flush_queue(config, logs, outbox, purgatory, disk_space)
    progress = LogProgress(purgatory, flushes)
    syncs = Syncs(outbox)
    compaction = Compaction(config, logs, flushes, syncs, outbox, now_ms)

    # authentication, authorization, and the addresses of brokers
    access = ClientAccess(_authorizer(config, metadata, outbox, cluster), connections)
    logins = Logins(config, outbox)
    sasl = _sasl_gate(config, metadata, logs, ids, connections, outbox, requests, logins)
    addresses = Addresses(config, cluster, connections)
    failover = Failover(cluster, topics, connections, requests, progress)

    # the coordinators, and the parts that carry out their decisions
    node_producer_ids = NodeProducerIds(cluster, producer_ids)
    group_configs = GroupConfigs(config, metadata)
    counters = Counters()

    def late_shares() -> Shares:
        from barnabas.broker.share_partitions.shares import make_shares

        return make_shares(
            config, topics, flushes, progress, requests, purgatory, group_configs, unwritten,
            now_ms, clock_ns,
        )  # fmt: skip

    def late_coordinators() -> Coordinators:
        from barnabas.broker.coordinators import make_coordinators

        return make_coordinators(
            config, ids, features, access, topics,
            producer_ids if cluster.is_one else node_producer_ids,
            flushes, progress, requests, outbox, files_ahead, shares, group_configs, compaction,
            cluster, syncs, unwritten, counters, is_loaded=not has_state,
        )  # fmt: skip

    shares, coordinators = Lazy(late_shares), Lazy(late_coordinators)
    features.on_updated.append(partial(_apply_features, config, features, coordinators, shares))
    edge = _coordinator_edge(
        cluster, node_producer_ids, connections, requests, coordinators, features
    )
    if has_state:
        unwritten.may_wait = not logs.may_lack_acknowledged
        made = coordinators.get()
        recovery = TransactionRecovery(
            made.transaction_ends, made.markers, made.transactions, topics, flushes, outbox
        )
        start = Start(
            topics, made.groups, made.transactions, producer_ids, made.group_runtime, shares,
            made.transaction_ends, recovery, made.deletion,
        )  # fmt: skip
        start.resume(now_ms, sync)
    logs.run_steps = metadata.run_steps = syncs.run
    unwritten.may_wait = True

    parts = Parts(
        config=config, metadata=metadata, logs=logs, ids=ids, connections=connections,
        requests=requests, families=Families(outbox), wide=wide, quotas=quotas, access=access,
        features=features, topics=topics, disk_space=disk_space, files_ahead=files_ahead,
        flushes=flushes, progress=progress, cluster=cluster, addresses=addresses,
        failover=failover, edge=edge, coordinators=coordinators, shares=shares,
        group_configs=group_configs, producer_ids=producer_ids, counters=counters,
    )  # fmt: skip
    return Broker(
        config, metadata, logs, outbox, connections, requests, Routes(parts, loaded_routes),
        wide=wide, quotas=quotas, access=access, sasl=sasl, logins=logins, topics=topics,
        cluster=cluster, failover=failover, purgatory=purgatory, progress=progress, flushes=flushes,
        compaction=compaction, coordinators=coordinators, shares=shares, counters=counters,
        unwritten=unwritten,
    )  # fmt: skip


def _flush_queue(
    config: BrokerConfig,
    logs: LogManager,
    outbox: Outbox,
    purgatory: Purgatory,
    disk_space: DiskSpace,
) -> FlushQueue:
    """Make the flush queue. Logs without records in the current journal need a checkpoint only if
    journals of earlier runs exist.
    """
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
    """The authorizer that the settings name. If they name none: an authorizer that allows every
    request if the audit log is enabled, else None.
    """
    if not config.authorizer_class_name and not config.barnabas_audit_log:
        return None

    def on_changed() -> None:
        cluster.readable_version += 1

    return Authorizer(
        metadata,
        config.super_users,
        everyone_if_no_acl=config.allow_everyone_if_no_acl_found,
        is_on=bool(config.authorizer_class_name),
        audit=outbox.audit.append if config.barnabas_audit_log else None,
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
    logins: Logins,
) -> SaslGate | None:
    """The gate that authenticates clients; None if no listener has SASL."""
    if not config.has_sasl:
        return None
    from barnabas.broker.admission.gate import SaslGate

    return SaslGate(config, metadata, ids, logs.wall, connections, outbox, requests, logins)


def _coordinator_edge(
    cluster: Cluster,
    node_producer_ids: NodeProducerIds,
    connections: Mapping[int, ConnectionState],
    requests: Requests,
    coordinators: Lazy[Coordinators],
    features: CurrentFeatures,
) -> CoordinatorEdge | None:
    """The checks around requests for coordinators; None with one broker."""
    if cluster.is_one:
        return None
    from barnabas.broker.admission.coordinator_edge import CoordinatorEdge

    return CoordinatorEdge(
        cluster, node_producer_ids, connections, requests, coordinators.get, features
    )


def _apply_features(
    config: BrokerConfig,
    features: CurrentFeatures,
    coordinators: Lazy[Coordinators],
    shares: Lazy[Shares],
) -> None:
    """Apply the current feature levels to parts that were made before the levels changed: end all
    share sessions if share groups are disabled, and give the transaction coordinator its new
    settings.
    """
    if shares.made is not None and not features.speaks_share_groups:
        shares.made.session_ends.end_all()
    # coordinators that are made later use the new feature levels anyway
    if coordinators.made is not None:
        coordinators.made.use_features(config, features)
