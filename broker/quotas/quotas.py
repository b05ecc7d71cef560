"""The quotas that are set. The code for quotas of clients is loaded only if such quotas are set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from barnabas.broker.connections.connection_state import ConnectionState
from barnabas.broker.logs.metadata import ClusterMetadata, QuotaEntity
from barnabas.broker.outbox import Outbox
from barnabas.broker.settings.config import BrokerConfig
from barnabas.protocol.wall_clock import WallClock

if TYPE_CHECKING:
    from barnabas.broker.quotas.client_quotas import ClientQuotas


class Quotas:
    """The quotas that are set.

    clients: records the use of clients and throttles them; None without quotas of clients.
    have_addresses: whether there are quotas of addresses, which the rim enforces. busy_ns: the time
    that the core has worked, updated by the rim.

    Takes: loaded_routes, whose handlers are wrapped to record use if clients have quotas. When the
           first quota of a client is set or the last is removed, these routes are dropped. They are
           loaded again with the next request.
    """

    def __init__(
        self,
        config: BrokerConfig,
        metadata: ClusterMetadata,
        connections: Mapping[int, ConnectionState],
        outbox: Outbox,
        wall: WallClock,
        loaded_routes: dict[int, Any],
    ) -> None:
        self._config, self._metadata, self._wall = config, metadata, wall
        self._connections, self._outbox = connections, outbox
        self._loaded_routes = loaded_routes
        self.busy_ns: Callable[[], int] = no_time
        self.clients: ClientQuotas | None = None
        self.have_addresses = False
        self._apply()

    def set(self, changes: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Replace all quotas of some entities."""
        self._metadata.set_client_quotas(changes)
        self._apply()

    def _apply(self) -> None:
        """Load the code for quotas of clients if there are any, and reload the routes. Without such
        quotas the routes have no step for them.
        """
        types = {entity[0][0] for entity in self._metadata.client_quotas}
        self.have_addresses = "ip" in types
        is_wanted = bool(types - {"ip"})
        if self.clients is not None and is_wanted:
            self.clients.on_changed()
        elif is_wanted is not (self.clients is not None):
            self._loaded_routes.clear()
            self.clients = self._client_quotas() if is_wanted else None

    def _busy_ns_now(self) -> int:
        return self.busy_ns()

    def _client_quotas(self) -> ClientQuotas:
        from barnabas.broker.quotas.client_quotas import ClientQuotas

        return ClientQuotas(
            self._config,
            self._metadata,
            self._connections,
            self._outbox,
            self._wall,
            self._busy_ns_now,
        )


def no_time() -> int:
    """The clock of a broker that measures no time: always 0."""
    return 0
