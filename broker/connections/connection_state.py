"""The state of clients' connections in the core."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.audit import ANONYMOUS, AuditRecord
from barnabas.broker.security.authorizer import Access
from barnabas.broker.settings.listeners import ListenerConfig
from barnabas.protocol.messages.message import Message

if TYPE_CHECKING:
    from barnabas.broker.security.authentication import Authentication


class CoordinatorWait(NamedTuple):
    """A parked request to a coordinator, in a process with several brokers.

    partitions: the partitions of the internal topic that the request depends on. refusal: makes the
    response if one of these partitions gets another leader before the request is done.
    """

    ticket: int
    topic: str
    partitions: frozenset[int]
    refusal: Callable[[], Message]


class ConnectionState:
    """The state of a connection in the core.

    in_flight: a request is being handled, and the next one waits, so that responses keep their
    order. authentication: the state of the SASL login; None on a listener without SASL. principal:
    the client's principal in Kafka's form (`User:NAME`); ANONYMOUS until the client is
    authenticated. access: the principal's permissions, cached after the first check. listener: the
    listener that accepted the connection. node_id: the id of the broker that the client connected
    to, if the process runs several. waits_for_coordinator: set while a request to a coordinator is
    parked. has_hung_up: whether the client will send nothing more.
    """

    __slots__ = (
        "access",
        "authentication",
        "client_host",
        "client_software",
        "connection_id",
        "has_hung_up",
        "in_flight",
        "listener",
        "local_host",
        "local_port",
        "node_id",
        "parked_ticket",
        "principal",
        "waits_for_coordinator",
    )

    def __init__(
        self,
        connection_id: int,
        client_host: str,
        local_host: str,
        local_port: int,
        node_id: int,
        listener: ListenerConfig,
    ) -> None:
        self.connection_id = connection_id
        self.node_id, self.listener = node_id, listener
        self.principal = ANONYMOUS
        self.access: Access | None = None
        self.client_host = client_host
        self.local_host, self.local_port = local_host, local_port
        self.client_software = ""
        self.authentication: Authentication | None = None
        self.in_flight = self.has_hung_up = False
        self.parked_ticket = -1
        self.waits_for_coordinator: CoordinatorWait | None = None

    @property
    def owner(self) -> str:
        """Whose share of a room the client uses: its principal's, or that of its address if it is
        not authenticated.
        """
        return self.client_host if self.principal == ANONYMOUS else self.principal


def login_record(connection: ConnectionState, api_key: int, *, is_allowed: bool) -> AuditRecord:
    """The audit record of a login that succeeded or failed."""
    host = connection.client_host.removeprefix("/")
    return AuditRecord(
        connection.principal, host, "", api_key, "AUTHENTICATE", "LISTENER",
        connection.listener.name, is_allowed,
    )  # fmt: skip
