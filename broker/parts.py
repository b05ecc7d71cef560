"""The parts of a broker, by the names that rows of `requests/dispatch.py` use, and the routes of
requests.

assemble.py makes the parts. The table of `dispatch.py` selects the parts that a handler takes, so
no other module has all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.broker.admission.coordinator_edge import CoordinatorEdge
    from barnabas.broker.brokers.addresses import Addresses
    from barnabas.broker.brokers.cluster import Cluster
    from barnabas.broker.brokers.failover import Failover
    from barnabas.broker.connections.access import ClientAccess
    from barnabas.broker.connections.connection_state import ConnectionState
    from barnabas.broker.groups.group_runtime import GroupRuntime
    from barnabas.broker.lazy import Lazy
    from barnabas.broker.logs.disk_space import DiskSpace
    from barnabas.broker.logs.flush_queue import FlushQueue
    from barnabas.broker.logs.log_progress import LogProgress
    from barnabas.broker.logs.metadata import ClusterMetadata
    from barnabas.broker.logs.new_files import FilesAhead
    from barnabas.broker.logs.topics import TopicRegistry
    from barnabas.broker.observation.counters import Counters
    from barnabas.broker.outbox import Ids
    from barnabas.broker.quotas.quotas import Quotas
    from barnabas.broker.requests.imports import Imports
    from barnabas.broker.requests.pending_requests import Requests
    from barnabas.broker.requests.telemetry import Telemetry
    from barnabas.broker.requests.wide_requests import WideRequests
    from barnabas.broker.routes import Route
    from barnabas.broker.settings.config import BrokerConfig
    from barnabas.broker.settings.current_features import CurrentFeatures
    from barnabas.broker.settings.group_configs import GroupConfigs
    from barnabas.broker.share.shares import Shares
    from barnabas.broker.topic_changes.new_topics import NewTopics
    from barnabas.broker.topic_changes.streams_topics import StreamsTopics
    from barnabas.broker.topic_changes.topic_deletion import TopicDeletion
    from barnabas.broker.transactions.transaction_end import (
        Endings,
        TransactionEnds,
        TransactionMarkers,
    )
    from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
    from barnabas.coordinator.transactions.producer_ids import ProducerIdAllocator
    from barnabas.coordinator.transactions.transaction_coordinator import TransactionCoordinator
    from barnabas.protocol.api_table import Api
    from barnabas.storage.directory.log_manager import LogManager


class Coordinators(NamedTuple):
    """The coordinators of groups and transactions, the parts that carry out their decisions, and
    the deletion of topics, for which the creation of topics may have to wait.
    """

    groups: GroupCoordinator
    group_runtime: GroupRuntime
    transactions: TransactionCoordinator
    endings: Endings
    markers: TransactionMarkers
    transaction_ends: TransactionEnds
    deletion: TopicDeletion


@dataclass(slots=True, kw_only=True)
class Parts:
    """All parts of a broker that handlers use. The rows of the table refer to the names of these
    fields and properties.
    """

    config: BrokerConfig
    metadata: ClusterMetadata
    logs: LogManager
    ids: Ids
    connections: Mapping[int, ConnectionState]
    requests: Requests
    imports: Imports
    wide: Lazy[WideRequests]
    quotas: Quotas
    access: ClientAccess
    features: CurrentFeatures
    topics: TopicRegistry
    disk_space: DiskSpace
    files_ahead: Lazy[FilesAhead]
    flushes: FlushQueue
    progress: LogProgress
    cluster: Cluster
    addresses: Addresses
    failover: Lazy[Failover]
    edge: Lazy[CoordinatorEdge]
    coordinators: Lazy[Coordinators]
    shares: Lazy[Shares]
    group_configs: Lazy[GroupConfigs]
    producer_ids: ProducerIdAllocator
    telemetry: Lazy[Telemetry]
    counters: Counters
    new_topics: Lazy[NewTopics]
    streams_topics: Lazy[StreamsTopics]

    @property
    def groups(self) -> GroupCoordinator:
        return self.coordinators.get().groups

    @property
    def group_runtime(self) -> GroupRuntime:
        return self.coordinators.get().group_runtime

    @property
    def transactions(self) -> TransactionCoordinator:
        return self.coordinators.get().transactions

    @property
    def endings(self) -> Endings:
        return self.coordinators.get().endings

    @property
    def transaction_ends(self) -> TransactionEnds:
        return self.coordinators.get().transaction_ends

    @property
    def deletion(self) -> TopicDeletion:
        return self.coordinators.get().deletion


class Routes:
    """The routes of requests. A route is loaded from the table with the first request of its API.

    loaded: the loaded routes, by API key. It is cleared when the steps around handlers change.
    imports: whether the worker imports the modules of an API before its first request is handled,
    and how many requests wait for this.
    """

    def __init__(self, parts: Parts, loaded: dict[int, Route]) -> None:
        self.parts, self.loaded, self.imports = parts, loaded, parts.imports
        self._imported: set[int] = set()

    def load(self, api: Api) -> Route:
        """Load the route of an API, for its first request."""
        from barnabas.broker.dispatch import load_route

        route = self.loaded[api.key] = load_route(self.parts, api)
        return route

    def waits_for_modules(self, api: Api) -> bool:
        """Whether the worker has to import the modules of an API first."""
        return self.imports.are_elsewhere and api.key not in self._imported

    def importer_of(self, api: Api) -> Callable[[], None]:
        """A function for the worker, which imports all modules that requests of an API may need."""
        is_one = self.parts.cluster.is_one

        def run() -> None:
            from barnabas.broker.dispatch import import_modules

            import_modules(api, is_one=is_one)

        return run

    def on_imported(self, api: Api) -> None:
        """Record that the worker has imported the modules of an API."""
        self._imported.add(api.key)
