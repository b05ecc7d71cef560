"""The addresses at which clients reach the brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.broker.brokers.cluster import NO_LEADER, Cluster
from barnabas.broker.connections.connection_state import ConnectionState
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.listeners import ListenerConfig
from barnabas.protocol.hot_responses import CurrentLeader, Endpoint
from barnabas.protocol.request_context import RequestContext


class Addresses:
    """The addresses of the brokers, as the client of a request sees them: those of the listener at
    which the request arrived.
    """

    def __init__(
        self, config: BrokerConfig, cluster: Cluster, connections: Mapping[int, ConnectionState]
    ) -> None:
        self._config, self._cluster, self._connections = config, cluster, connections

    def endpoint(self, node_id: int, context: RequestContext) -> Endpoint:
        """The address of a broker: from advertised.listeners if it is set, otherwise with the host
        at which the request arrived.

        With several brokers, advertised.listeners has the port of the first broker. The advertised
        port of another broker is higher by the difference between the ports at which the two
        brokers listen.
        """
        listener, cluster = self._listener_of(context), self._cluster
        host, port = listener.advertised or (context.local_host, context.local_port)
        if not cluster.is_one:
            nodes, name = cluster.nodes, listener.name
            if listener.advertised is None:
                port = nodes[node_id].ports.get(name, -1)
            else:
                port += nodes[node_id].ports[name] - nodes[cluster.node_id].ports[name]
        return Endpoint(node_id, host, port, self._config.broker_rack)

    def endpoints(self, context: RequestContext) -> list[Endpoint]:
        """The addresses of the running brokers. In a pair, the other node is included even if it is
        down, since clients that know both nodes reconnect by themselves after a failover.
        """
        there = [self.endpoint(node.node_id, context) for node in self._cluster.nodes_there()]
        standby = self._cluster.standby
        if standby is not None:
            address = standby.addresses.get(self._listener_of(context).name)
            if address is not None:
                there.append(Endpoint(standby.node_id, *address, rack=None))
        return there

    def endpoints_of(
        self, leaders: Iterable[CurrentLeader], context: RequestContext
    ) -> list[Endpoint]:
        """The addresses of the given leaders, without duplicates."""
        node_ids = dict.fromkeys(one.leader_id for one in leaders if one.leader_id != NO_LEADER)
        return [self.endpoint(node_id, context) for node_id in node_ids]

    def _listener_of(self, context: RequestContext) -> ListenerConfig:
        # None if the client has disconnected since
        connection = self._connections.get(context.connection_id)
        return self._config.listeners[0] if connection is None else connection.listener
