"""The seam for the brokers of the process and for their ports: test control stops brokers and moves
leaders, the console and a pair of nodes hand in connections.

With one broker (`barnabas.brokers`) there is one node. After a change the caller carries out the
outbox (`Host.carry_out`).
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Protocol

from barnabas.broker.brokers.cluster import NO_LEADER, Cluster, Standby
from barnabas.broker.brokers.failover import Failover
from barnabas.broker.settings.listeners import ListenerConfig

__all__ = ["NO_LEADER", "Listener", "Nodes", "PairOfNodes", "Ports", "Standby"]


class PairOfNodes(Protocol):
    """The brokers, of which one leads a pair. standby: the other node, as clients see it."""

    standby: Standby | None


class Listener(Protocol):
    """A listening socket of one broker, which may be closed for a while.

    greeting_bytes: the largest request of a client that is not authenticated; 0 if clients of this
    listener do not have to authenticate.
    """

    node_id: int
    config: ListenerConfig
    address: tuple[str, int]
    greeting_bytes: int


class Ports(Protocol):
    """The listening sockets of the process."""

    @property
    def listeners(self) -> Sequence[Listener]: ...

    def listener_of(self, node_id: int) -> Listener:
        """The first listener of a broker."""

    def close_listener(self, node_id: int) -> None:
        """Close a broker's ports. The operating system then refuses connections to them."""

    def open_listener(self, node_id: int) -> None:
        """Listen on a broker's ports again. Raises: OSError if another process uses one of them."""

    def adopt(self, listener_name: str, sock: socket.socket) -> None:
        """Set up the connection of a client that connected elsewhere."""

    def connect_inside(
        self,
        sock: socket.socket,
        client_host: str,
        principal: str | None,
        listener: Listener | None,
        node_id: int | None,
    ) -> None:
        """Set up a connection of the process to itself, outside the limits of connections.

        Takes: principal, the principal of a client that does not have to authenticate; None for a
               client that authenticates at the listener. listener, node_id: the listener, or None
               for the first one of the broker; the broker, or None for the first one.
        """


class Nodes:
    """The brokers of the process. ports: their listening sockets."""

    def __init__(self, cluster: Cluster, failover: Failover, ports: Ports) -> None:
        self._cluster, self.ports = cluster, ports
        # Each raises ValueError with an explanation if the change is impossible.
        self.take_away, self.give_back = failover.take_away, failover.give_back
        self.set_controller = failover.set_controller
        self.move_leader, self.move_coordinator = failover.move_leader, failover.move_coordinator

    @property
    def ids(self) -> list[int]:
        """The ids of all brokers."""
        return list(self._cluster.nodes)

    @property
    def ids_there(self) -> list[int]:
        """The ids of the running brokers."""
        return [node.node_id for node in self._cluster.nodes_there()]

    @property
    def controller_id(self) -> int:
        """The broker that clients see as the controller."""
        return self._cluster.controller_id

    def require(self, node_id: int) -> None:
        """Raises: ValueError if there is no such broker."""
        self._cluster.node(node_id)

    def leaders(self, topic: str) -> list[int]:
        """The leader of each partition of a topic, or NO_LEADER; empty if the topic does not
        exist.
        """
        return [one.leader for one in self._cluster.leaderships(topic)]
