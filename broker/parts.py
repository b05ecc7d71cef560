"""The parts of a broker. assemble.py makes them, and the row of an API selects those that its
handler takes, so no other module has all of them.

Each family of handlers imports this module, and so the parts that are loaded with a family, or with
a setting, are named only as types here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.broker.brokers.addresses import Addresses
from barnabas.broker.brokers.cluster import Cluster
from barnabas.broker.brokers.failover import Failover
from barnabas.broker.connections.access import ClientAccess
from barnabas.broker.connections.connection_state import ConnectionState
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
from barnabas.broker.requests.families import Families
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.requests.wide_requests import WideRequests
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.current_features import CurrentFeatures
from barnabas.broker.settings.group_configs import GroupConfigs
from barnabas.coordinator.transactions.producer_ids import ProducerIdAllocator
from barnabas.storage.directory.log_manager import LogManager

if TYPE_CHECKING:
    from barnabas.broker.admission.coordinator_edge import CoordinatorEdge
    from barnabas.broker.coordinators import Coordinators
    from barnabas.broker.groups.group_runtime import GroupRuntime
    from barnabas.broker.share_partitions.shares import Shares
    from barnabas.broker.topic_changes.topic_deletion import TopicDeletion
    from barnabas.broker.transactions.transaction_end import Endings, TransactionEnds
    from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
    from barnabas.coordinator.transactions.transaction_coordinator import TransactionCoordinator


Part = TypeVar("Part")


@dataclass(slots=True, kw_only=True)
class Parts:
    """All parts of a broker that handlers use.

    edge: None with one broker. own: the parts that a family has for itself, by their class.
    """

    config: BrokerConfig
    metadata: ClusterMetadata
    logs: LogManager
    ids: Ids
    connections: Mapping[int, ConnectionState]
    requests: Requests
    families: Families
    wide: WideRequests
    quotas: Quotas
    access: ClientAccess
    features: CurrentFeatures
    topics: TopicRegistry
    disk_space: DiskSpace
    files_ahead: FilesAhead
    flushes: FlushQueue
    progress: LogProgress
    cluster: Cluster
    addresses: Addresses
    failover: Failover
    edge: CoordinatorEdge | None
    coordinators: Lazy[Coordinators]
    shares: Lazy[Shares]
    group_configs: GroupConfigs
    producer_ids: ProducerIdAllocator
    counters: Counters
    own: dict[type[Any], Any] = field(default_factory=dict)

    def of_family(self, kind: type[Part], make: Callable[[], Part]) -> Part:
        """A part that one family of handlers has for itself. The first call makes it."""
        if kind not in self.own:
            self.own[kind] = make()
        part: Part = self.own[kind]
        return part

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
