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

import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from barnabas.cli.client.calls import WaitingCalls, client_options
from barnabas.cli.errors import CommandError, RefusedError
from barnabas.cli.waiting import Waiting
from barnabas.client.cluster import GROUP, Cluster
from barnabas.client.connection import Connection
from barnabas.client.errors import NoHostError, PassingError, TlsError, UnreachableError
from barnabas.client.request_kind import Request, RequestKind, Response
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.metadata import MetadataResponseTopic
from barnabas.protocol.topic_partition import TopicPartition

T = TypeVar("T")

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


class NoBrokerError(CommandError):
    """No broker of the cluster accepts a connection."""


class ClusterClient:
    """The connections to all brokers of a cluster, for one command.

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
        self._mistake = mistake
        self._calls = WaitingCalls(waiting, mistake)
        options = client_options(addresses, settings, waiting.timeout_s)
        self._cluster = Cluster(options, self._calls)

    @property
    def brokers(self) -> dict[int, Broker]:
        """The brokers that the last Metadata response names, by id."""
        nodes = self._cluster.connections.nodes
        return {node_id: Broker(node_id, *address) for node_id, address in nodes.items()}

    @property
    def leaders(self) -> dict[TopicPartition, int]:
        """The leader of each partition of all requested topics; -1 for a partition without a
        leader.
        """
        return self._cluster.leaders

    @property
    def controller_id(self) -> int:
        """The id of the controller in the last Metadata response; -1 if there is none."""
        return self._cluster.controller_id

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id in the last Metadata response."""
        return self._cluster.cluster_id

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
        except PassingError as error:
            from barnabas.cli.client.wording import closed_text

            reason = self._mistake() or closed_text(error.__cause__)
            reason = reason or f"{error}, without a reason: see the broker's log"
            raise CommandError(reason) from error

    def close(self) -> None:
        """Close all connections."""
        self._cluster.connections.close()

    def _any_connection(self) -> Connection:
        """An open connection, or a new connection to the first address that accepts one."""
        try:
            return self._cluster.connections.any()
        except (UnreachableError, NoHostError) as error:
            raise self._no_broker(error) from error
        except TlsError as error:
            raise _of_settings(error) from error

    def _no_broker(self, error: UnreachableError | NoHostError) -> NoBrokerError:
        problem = error.reason if isinstance(error, NoHostError) else error
        return NoBrokerError(
            f"no broker at {problem}. Start one with `barnabas start`, or say where it is with -b "
            "HOST:PORT (or the environment's BARNABAS_BOOTSTRAP_SERVER)"
        )

    def _connection_to(self, node_id: int) -> Connection:
        """The connection to the broker with this id. Raises: UnreachableError if the metadata do
        not contain the broker, or if the connection fails.
        """
        address = self._cluster.connections.nodes.get(node_id)
        if address is None:
            raise UnreachableError(f"the cluster's metadata have no broker {node_id}")
        try:
            return self._cluster.connections.at(address)
        except UnreachableError as error:
            host, port = address
            why = getattr(error.__cause__, "strerror", None) or error.__cause__
            raise UnreachableError(
                f"broker {node_id} is at {host}:{port}, by the cluster's metadata, and cannot be "
                f"reached there ({why}): check that it runs, and its advertised.listeners"
            ) from error
        except TlsError as error:
            raise _of_settings(error) from error

    # --- requests

    def refresh(
        self, topics: list[str] | None, *, create: bool = False
    ) -> list[MetadataResponseTopic]:
        """Request the brokers and the named topics (all topics if None), and store the brokers and
        the leaders.

        Takes: create, whether the broker is asked to create missing topics.
        """
        try:
            return self._cluster.refresh(topics, create=create).topics
        except (UnreachableError, NoHostError) as error:
            raise self._no_broker(error) from error
        except TlsError as error:
            raise _of_settings(error) from error

    def api_versions(self) -> dict[int, tuple[int, int]]:
        """The requests that a broker supports, with the lowest and the highest version of each."""
        return dict(self._any_connection().versions)

    def speaks(self, kind: RequestKind[Any, Any]) -> bool:
        """Whether the connected broker supports a kind of request."""
        return self._any_connection().speaks(kind)

    def any(self, kind: RequestKind[Request, Response], request: Request) -> Response:
        """The response of any broker to a request."""
        return self.trying(lambda: self._calls.ask(self._any_connection(), kind, request), kind)

    def node(
        self, node_id: int, kind: RequestKind[Request, Response], request: Request
    ) -> Response:
        """The answer of the broker with that id to a request."""
        return self.trying(
            lambda: self._calls.ask(self._connection_to(node_id), kind, request), kind
        )

    def once(
        self, node_id: int, kind: RequestKind[Request, Response], request: Request, what: str
    ) -> Response:
        """The response of the broker with that id, without a retry; for `persist`.

        Takes:  what, the awaited thing, as in "waiting for 127.0.0.1:9092: WHAT".
        Raises: PassingError.
        """
        return self._calls.ask(self._connection_to(node_id), kind, request, what)

    def post(self, node_id: int, kind: RequestKind[Request, Any], request: Request) -> None:
        """Send the broker with that id a request that has no response."""
        self._calls.post(self._connection_to(node_id), kind, request)

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
            answer = self._calls.ask(at or self._connection_to(self.controller_id), kind, request)
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
            answer = self._calls.ask(
                self._connection_to(self.coordinator_id(key, key_type)), kind, request
            )
            code = code_of(answer)
            if code in PASSING:
                raise RefusedError(code, "", key)
            return answer

        return self.trying(ask, kind)

    def coordinator_id(self, key: str, key_type: int) -> int:
        """The id of the broker that coordinates a group or a transactional id."""
        self._any_connection()  # its errors are those of a command
        (found,) = self._cluster.coordinators([key], key_type, _check_coordinator)
        return found.node_id

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
            except PassingError as error:
                if not name.startswith(REPEATABLE) or time.monotonic() >= deadline:
                    raise CommandError(self._mistake() or str(error)) from error
                waits_for = str(error)
            silence.look(waits_for)
            time.sleep(min(RETRY_S, max(deadline - time.monotonic(), 0)))
            self._cluster.forget()
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
            except (PassingError, NoBrokerError):
                pass
            silence.look(what)
            time.sleep(RETRY_S)
            self._cluster.forget()
            with suppress(NoBrokerError):
                self._try_refresh()

    def _try_refresh(self) -> None:
        """Request the list of brokers again. A lost connection is ignored."""
        try:
            self.refresh([])
        except PassingError:
            pass  # the request itself then reports the error


def _of_settings(error: TlsError) -> CommandError:
    """The error for a certificate, a key or another setting of TLS that cannot be used."""
    from barnabas.cli.client.wording import tls_text

    return CommandError(tls_text(error))


def _check_coordinator(key: str, code: int, message: str) -> None:
    """Raise RefusedError for an error code of FindCoordinator."""
    if code:
        raise RefusedError(code, message, key)
