"""The outputs of the core: the Outbox that the rim carries out, and the results of handlers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from barnabas.broker.audit import AuditRecord
from barnabas.protocol.errors import ProtocolViolation
from barnabas.protocol.hot_responses import Piece
from barnabas.protocol.messages.message import Message
from barnabas.storage.cleaning.clean_job import CleanJob
from barnabas.storage.disk import Syncable

if TYPE_CHECKING:
    from barnabas.storage.log.durability import FlushToken, LogEnd

# the reason why the broker ends a connection, for the broker's log
CloseReason = ProtocolViolation | str


class Ids(Protocol):
    """The source of unique ids. Simulations use a seeded source."""

    def uuid(self) -> uuid.UUID:
        """A random version-4 UUID."""
        ...

    def random31(self) -> int:
        """A random number from 1 to 2^31 - 1."""
        ...


class FlushJob(NamedTuple):
    """Files that the rim has to flush. It then calls `Broker.on_flushed` with the same job."""

    job_id: int
    # pairs (Log, token): after the flush the log is durable up to the token
    tokens: tuple[tuple[Any, FlushToken | LogEnd], ...]
    files: tuple[Syncable, ...]
    # called at the end of a job that does not come from the flush queue
    then: Callable[[int], None] | None = None


NO_CONNECTION = 0  # the connection id of work for which no request waits


class Work(NamedTuple):
    """A long computation: the rim calls `run` in the worker's thread, then passes its result to
    `Broker.on_worked`.

    run: a function that reads and writes no state of the core except its own arguments. done: the
    function that the core calls with the result. held_bytes: the bytes of the request that stay in
    memory until then. They count towards the memory of all connections.
    """

    connection_id: int  # the connection of the request for which the work is done
    run: Callable[[], Any]
    done: Callable[[Any, int], None]
    held_bytes: int = 0


class Outbox:
    """The outputs of the core. After each call of the broker the rim carries them out in this order
    (`Server.empty_outbox`):

    | output | content | what the rim does |
    |---|---|---|
    | `sends` | (connection_id, pieces of a response frame) | sends them; acks=0 has no pieces |
    | `admitted` | connections of authenticated clients | lifts the lower limit of requests |
    | `mutes` | (connection_id, milliseconds) | reads nothing from it for this time (quotas) |
    | `closes` | (connection_id, reason) | closes the connection |
    | `flushes` | files | flushes them in threads, then calls `Broker.on_flushed` |
    | `deferred` | calls of the core | calls `Broker.on_sent`, once `sends` are sent |
    | `cleanings` | jobs of compaction | runs them in a process, then calls `Broker.on_cleaned` |
    | `work` | long computations | runs them in a thread, then calls `Broker.on_worked` |
    | `audit` | records | writes them to the audit log |

    After a connection's row in `sends` its next frame may be processed. The core makes the deferred
    calls itself before it processes any other input, so no client can observe whether they were
    deferred.

    held_bytes: the change in the bytes of requests that the core keeps until they are answered,
    since the rim last took this number. These bytes count towards the memory of all connections.
    """

    __slots__ = (
        "admitted",
        "audit",
        "cleanings",
        "closes",
        "deferred",
        "flushes",
        "held_bytes",
        "mutes",
        "sends",
        "work",
    )

    def __init__(self) -> None:
        self.sends: list[tuple[int, Sequence[Piece]]] = []
        self.closes: list[tuple[int, CloseReason]] = []
        self.admitted: list[int] = []
        self.mutes: list[tuple[int, int]] = []
        self.audit: list[AuditRecord] = []
        self.flushes: list[FlushJob] = []
        self.cleanings: list[CleanJob] = []
        self.work: list[Work] = []
        self.deferred: list[Callable[[int], None]] = []
        self.held_bytes = 0

    def defer(self, call: Callable[[int], None]) -> None:
        """Add a call to `deferred`."""
        self.deferred.append(call)


class Parked:
    """The type of PARKED, which means that the response is sent later, through `Requests.reply`."""

    __slots__ = ()


class NoResponse:
    """The type of NO_RESPONSE, which means that the request gets no response (Produce with
    acks=0).
    """

    __slots__ = ()


class Encoded(tuple["Piece", ...]):
    """The pieces of a response that its handler has encoded, with the frame's size and header."""

    __slots__ = ()


class DeadlineKept(Encoded):
    """The response to a request after which no part of the core has work at an earlier time than
    before it. So the next deadline need not be computed again, see `Broker.next_deadline_ms`.
    """

    __slots__ = ()


Answer = Message | Encoded | Parked | NoResponse
"""The result of a handler."""

PARKED = Parked()
NO_RESPONSE = NoResponse()
