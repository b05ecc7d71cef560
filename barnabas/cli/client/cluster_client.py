"""The brokers of a cluster, for one command: the choice of a broker for a request, the time limits,
and the retries.

    failure                                              what happens
    ---------------------------------------------------  -----------------------------------------
    nothing listens at any bootstrap address             CommandError at once
    a setting of security is wrong                       CommandError that names it, at once
    no leader, no coordinator, another coordinator       retried, for a part of --timeout
    a broker that Metadata names cannot be reached       retried, for a part of --timeout
    the connection ends before the response              sent again if that does no harm: REPEATABLE
    any other error code of a response                   RefusedError
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from barnabas.cli.client.connection import (
    CLIENT_ID,
    BrokerConnection,
    ConnectionLostError,
    RefusedLoginError,
)
from barnabas.cli.errors import CommandError, RefusedError
from barnabas.cli.waiting import Waiting
from barnabas.client.request_kind import Request, RequestKind, Response
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

T = TypeVar("T")

METADATA = RequestKind(MetadataRequest, MetadataResponse, 1, 12)
GROUP, TRANSACTION = 0, 1  # key types of FindCoordinator
PASSING = frozenset(
    {
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.NOT_COORDINATOR,
        Code.NOT_CONTROLLER,
        Code.CONCURRENT_TRANSACTIONS,
    }
)
CONNECT_TIMEOUT_S = 5.0
PROBE_AFTER_S = 1.0
# The fraction of --timeout after which a command stops retrying. It then reports the last error,
# which is a better message than a timeout.
PASSING_PART = 0.8
RETRY_S = 0.1
# The first words of requests that do the same if they are sent twice: those that only read, and
# those of a producer with its id and epoch.
REPEATABLE = (
    *("ApiVersions", "Describe", "Fetch", "Find", "List", "Metadata", "OffsetFetch"),
    *("AddPartitionsToTxn", "EndTxn", "InitProducerId"),
)


class Broker(NamedTuple):
    """A broker that Metadata names."""

    node_id: int
    host: str
    port: int


class UnreachableError(Exception):
    """A broker that Metadata names cannot be reached."""


class NoBrokerError(CommandError):
    """No broker of the cluster accepts a connection."""


class ClusterClient:
    """The connections to all brokers of a cluster, for one command.

    brokers, controller_id and cluster_id are from the last Metadata response. leaders: the leader
    of each partition of all requested topics, by topic and number; -1 for a partition without a
    leader.

    Takes: addresses, the bootstrap addresses; settings, the client's security settings by the
           names of `client_settings`; mistake, a function that probes the port and describes the
           error in these settings.
    """

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        settings: Mapping[str, Any],
        waiting: Waiting,
        mistake: Callable[[], str],
    ) -> None:
        self.waiting = waiting
        self.brokers: dict[int, Broker] = {}
        self.controller_id = -1
        self.cluster_id: str | None = None
        self._addresses = addresses
        self._client_id = str(settings.get("client_id", CLIENT_ID))
        self._mistake = mistake
        self.leaders: dict[tuple[str, int], int] = {}
        self._open: dict[tuple[str, int], BrokerConnection] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._login = None
        if settings.get("security_protocol", "PLAINTEXT") != "PLAINTEXT":
            from barnabas.cli.client.logins import Login

            self._login = Login(settings)

    @property
    def patience_s(self) -> float:
        """How long a request is retried after transient failures."""
        return PASSING_PART * self.waiting.timeout_s

    # --- connections

    def connect(self) -> None:
        """Connect to the first bootstrap address that responds, and request the list of brokers.

        Raises: CommandError if nothing listens at any address, or if a security setting is wrong.
        """
        try:
            self.refresh([])
        except ConnectionLostError as error:
            from barnabas.cli.client.logins import closed_reason

            reason = self._mistake() or closed_reason(error.__cause__)
            reason = reason or f"{error}, without a reason: see the broker's log"
            raise CommandError(reason) from error

    def close(self) -> None:
        """Close all connections."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def _any_connection(self) -> BrokerConnection:
        """An open connection, or a new connection to the first address that accepts one."""
        for connection in self._open.values():
            if not connection.is_expired:
                return connection
        known = [(broker.host, broker.port) for broker in self.brokers.values()]
        problem = ""
        for host, port in dict.fromkeys([*self._addresses, *known]):
            try:
                return self._connection(host, port)
            except OSError as error:
                said = "it did not answer in time" if isinstance(error, TimeoutError) else ""
                problem = problem or f"{host}:{port}: {said or error.strerror or error}"
        raise NoBrokerError(
            f"no broker at {problem}. Start one with `barnabas start`, or say where it is with -b "
            "HOST:PORT (or the environment's BARNABAS_BOOTSTRAP_SERVER)"
        )

    def _connection(self, host: str, port: int) -> BrokerConnection:
        """The connection to an address. A new one is opened if none is usable.

        Raises: OSError if nothing listens.
        """
        connection = self._open.get((host, port))
        if connection is not None and not connection.is_expired:
            return connection
        timeout_s = min(CONNECT_TIMEOUT_S, self.waiting.timeout_s)
        sock = self.waiting.call(
            "a connection", socket.create_connection, (host, port), timeout=timeout_s
        )
        sock.settimeout(2 * self.waiting.timeout_s)  # `Waiting` ends earlier
        began = time.monotonic()

        def security_mistake() -> str:
            """Describe the error in the security settings. The port is probed once, as soon as the
            connection takes longer than PROBE_AFTER_S; the text is empty at any other time.
            """
            nonlocal began
            if time.monotonic() - began <= PROBE_AFTER_S:
                return ""
            began = time.monotonic() + self.waiting.timeout_s  # no second probe
            return self._mistake()

        waiting = Waiting(self.waiting.address, self.waiting.timeout_s, security_mistake)
        try:
            connection = waiting.call(
                "its answer to a new client",
                BrokerConnection, sock, host, port, self._login, self._client_id,
            )  # fmt: skip
        except RefusedLoginError as error:
            from barnabas.cli.client.logins import login_reason

            raise CommandError(self._mistake() or login_reason(str(error))) from error
        except BaseException:
            sock.close()
            raise
        assert isinstance(connection, BrokerConnection)
        self._open[host, port] = connection
        return connection

    def _connection_to(self, node_id: int) -> BrokerConnection:
        """The connection to the broker with this id. Raises: UnreachableError if the metadata do
        not contain the broker, or if the connection fails.
        """
        broker = self.brokers.get(node_id)
        if broker is None:
            raise UnreachableError(f"the cluster's metadata have no broker {node_id}")
        try:
            return self._connection(broker.host, broker.port)
        except OSError as error:
            raise UnreachableError(
                f"broker {node_id} is at {broker.host}:{broker.port}, by the cluster's "
                f"metadata, and cannot be reached there ({error.strerror or error}): check that "
                "it runs, and its advertised.listeners"
            ) from error

    def _drop(self, connection: BrokerConnection) -> None:
        connection.close()
        self._open = {key: row for key, row in self._open.items() if row is not connection}

    def _ask(
        self,
        connection: BrokerConnection,
        kind: RequestKind[Request, Response],
        request: Request,
        what: str = "",
    ) -> Response:
        """The response to a request. A connection that still expects a response is not used
        again.

        Takes: what, the awaited thing; empty for the response to the request.
        """
        name = kind.request_class.__name__.removesuffix("Request")
        RefusedError.last_request = name
        what = what or f"its answer to {name}"
        try:
            answer = self.waiting.call(what, connection.request, kind, request)
        except (ConnectionLostError, KeyboardInterrupt, CommandError):
            self._drop(connection)
            raise
        assert isinstance(answer, kind.response_class)
        return answer

    # --- requests

    def refresh(
        self, topics: list[str] | None, *, create: bool = False
    ) -> list[MetadataResponseTopic]:
        """Request the brokers and the named topics (all topics if None), and store the brokers and
        the leaders.

        Takes: create, whether the broker is asked to create missing topics.
        """
        rows = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=rows, allow_auto_topic_creation=create)
        answer = self._ask(self._any_connection(), METADATA, request)
        self.brokers = {row.node_id: Broker(row.node_id, row.host, row.port)
                        for row in answer.brokers}  # fmt: skip
        self.controller_id, self.cluster_id = answer.controller_id, answer.cluster_id
        for topic in answer.topics:
            for row in topic.partitions:
                self.leaders[topic.name or "", row.partition_index] = row.leader_id
        return answer.topics

    def api_versions(self) -> dict[int, tuple[int, int]]:
        """The requests that a broker supports, with the lowest and the highest version of each."""
        return self._any_connection().versions

    def speaks(self, kind: RequestKind[Any, Any]) -> bool:
        """Whether the connected broker supports a kind of request."""
        return self._any_connection().speaks(kind)

    def any(self, kind: RequestKind[Request, Response], request: Request) -> Response:
        """The response of any broker to a request."""
        return self.trying(lambda: self._ask(self._any_connection(), kind, request), kind)

    def node(
        self, node_id: int, kind: RequestKind[Request, Response], request: Request
    ) -> Response:
        """The answer of the broker with that id to a request."""
        return self.trying(lambda: self._ask(self._connection_to(node_id), kind, request), kind)

    def once(
        self, node_id: int, kind: RequestKind[Request, Response], request: Request, what: str
    ) -> Response:
        """The response of the broker with that id, without a retry; for `persist`.

        Takes:  what, the awaited thing, as in "waiting for 127.0.0.1:9092: WHAT".
        Raises: UnreachableError, ConnectionLostError.
        """
        return self._ask(self._connection_to(node_id), kind, request, what)

    def post(self, node_id: int, kind: RequestKind[Request, Any], request: Request) -> None:
        """Send the broker with that id a request that has no response."""
        connection = self._connection_to(node_id)
        try:
            self.waiting.call("room for more records", connection.post, kind, request)
        except (ConnectionLostError, KeyboardInterrupt, CommandError):
            self._drop(connection)
            raise

    def controller(
        self,
        kind: RequestKind[Request, Response],
        request: Request,
        code_of: Callable[[Response], int],
    ) -> Response:
        """The response of the controller, or of a broker that forwards the request to the
        controller.

        Takes:  code_of, a function that returns the error code of a response, which may show that
                another broker is the controller.
        """

        def ask() -> Response:
            at = self._any_connection() if self.controller_id < 0 else None
            answer = self._ask(at or self._connection_to(self.controller_id), kind, request)
            if code_of(answer) == Code.NOT_CONTROLLER:
                raise RefusedError(Code.NOT_CONTROLLER)
            return answer

        return self.trying(ask, kind)

    def coordinator(
        self,
        key: str,
        kind: RequestKind[Request, Response],
        request: Request,
        code_of: Callable[[Response], int],
        *,
        key_type: int = GROUP,
    ) -> Response:
        """The response of the coordinator of a group or a transactional id.

        Takes:  code_of, a function that returns the error code of a response, which may show that
                another broker is the coordinator.
        """

        def ask() -> Response:
            answer = self._ask(
                self._connection_to(self.coordinator_id(key, key_type)), kind, request
            )
            code = code_of(answer)
            if code in PASSING:
                raise RefusedError(code, "", key)
            return answer

        return self.trying(ask, kind)

    def coordinator_id(self, key: str, key_type: int) -> int:
        """The id of the broker that coordinates a group or a transactional id."""
        from barnabas.protocol.messages.find_coordinator import (
            FindCoordinatorRequest,
            FindCoordinatorResponse,
        )

        node_id = self._coordinators.get((key_type, key))
        if node_id is None:
            kind = RequestKind(FindCoordinatorRequest, FindCoordinatorResponse, 0, 3)
            request = FindCoordinatorRequest(key=key, key_type=key_type)
            answer = self._ask(self._any_connection(), kind, request)
            if answer.error_code:
                raise RefusedError(answer.error_code, answer.error_message, key)
            node_id = self._coordinators[key_type, key] = answer.node_id
            if node_id not in self.brokers:
                self.brokers[node_id] = Broker(node_id, answer.host, answer.port)
        return node_id

    def trying(self, ask: Callable[[], T], kind: RequestKind[Any, Any] | None = None) -> T:
        """The result of `ask`, a function that sends requests. `ask` is called again after
        transient failures.

        Takes: kind, the kind of request; None if `ask` only sends requests of REPEATABLE.
        """
        name = "Describe" if kind is None else kind.request_class.__name__
        deadline = time.monotonic() + self.patience_s
        silence = self.waiting.silence()
        while True:
            try:
                return ask()
            except RefusedError as error:
                if error.code not in PASSING or time.monotonic() >= deadline:
                    raise
                waits_for = error.name
            except UnreachableError as error:
                if time.monotonic() >= deadline:
                    raise CommandError(str(error)) from error
                waits_for = str(error)
            except ConnectionLostError as error:
                if not name.startswith(REPEATABLE) or time.monotonic() >= deadline:
                    raise CommandError(self._mistake() or str(error)) from error
                waits_for = str(error)
            silence.look(waits_for)
            time.sleep(min(RETRY_S, max(deadline - time.monotonic(), 0)))
            self._coordinators.clear()
            self.leaders.clear()
            self._try_refresh()

    def persist(self, ask: Callable[[], T], what: str, retried: Container[int] = PASSING) -> T:
        """The result of `ask`, a function that sends requests which may be sent twice. Unlike
        `trying`, which an administrator waits for, it lasts for the whole --timeout, also while no
        broker listens: a reader or a producer outlives a broker's restart.

        Takes:  retried, the error codes after which `ask` is called again.
        Raises: TimeoutOver; RefusedError for any other code.
        """
        silence = self.waiting.silence()
        while True:
            try:
                return ask()
            except RefusedError as error:
                if error.code not in retried:
                    raise
            except (ConnectionLostError, NoBrokerError, UnreachableError):
                pass
            silence.look(what)
            time.sleep(RETRY_S)
            self._coordinators.clear()
            self.leaders.clear()
            with suppress(NoBrokerError):
                self._try_refresh()

    def _try_refresh(self) -> None:
        """Request the list of brokers again. A lost connection is ignored."""
        try:
            self.refresh([])
        except (ConnectionLostError, UnreachableError):
            pass  # the request itself then reports the error
