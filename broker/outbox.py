"""The outputs of the core: the Outbox that the rim carries out, and the answers of handlers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from barnabas.protocol.errors import ProtocolViolation
from barnabas.protocol.messages.message import Message

if TYPE_CHECKING:
    from barnabas.broker.security.audit import AuditRecord
    from barnabas.protocol.hot_responses import Piece
    from barnabas.storage.cleaning.clean_job import CleanJob
    from barnabas.storage.disk import Syncable
    from barnabas.storage.log.durability import FlushToken

CloseReason = ProtocolViolation | str  # why the broker ends a connection, for its log


class Ids(Protocol):
    """The source of unique ids: a seeded one in simulations."""

    def uuid(self) -> uuid.UUID:
        """A random version-4 UUID."""
        ...

    def random31(self) -> int:
        """A random number from 1 to 2^31 - 1."""
        ...


class FlushJob(NamedTuple):
    """Files to be brought to the disk by the rim, which then calls `Broker.on_flushed` with the
    same job.
    """

    job_id: int
    # (Log, token): the log is durable up to the token afterwards
    tokens: tuple[tuple[Any, FlushToken], ...]
    files: tuple[Syncable, ...]
    # called at the end of a job that does not come from the flush queue
    then: Callable[[int], None] | None = None


NO_CONNECTION = 0  # ticket of work that no request waits for


class Work(NamedTuple):
    """A long computation: the rim calls `run` in the worker's thread, then passes its result to
    `Broker.on_worked`.

    run: reads and writes no state of the core but its own arguments. done: called by the core with
    the result. held_bytes: the bytes of the request that stay in memory until then; they count
    towards the memory of all connections.
    """

    connection_id: int  # the ticket of the request that the work is for
    run: Callable[[], Any]
    done: Callable[[Any, int], None]
    held_bytes: int = 0


class Outbox:
    """The outputs that the rim carries out after each call of the broker, in order: sends, then
    closes; flushes and cleanings in the background.

    sends: (connection_id, pieces of one whole response frame). Without pieces the request has no
    answer (acks=0), and the connection's next frame may be processed. admitted: connections whose
    clients are authenticated: the size limit for unauthenticated clients no longer applies to them.
    closes: (connection_id, reason). cleanings: jobs for `storage.cleaner.clean`; the rim then calls
    `Broker.on_cleaned`. work: long computations, which would delay other requests; the rim then
    calls `Broker.on_worked`. mutes: (connection_id, milliseconds): for that long from now on the
    rim reads nothing from the connection, since its client is above a quota. audit: records for the
    audit log. deferred: calls of the core that may run after `sends` are sent. `Broker.on_sent`
    runs them once the answers are sent, and the core runs them itself before it processes any other
    input: no client can observe whether they were deferred. held_bytes: the change, since the rim
    last took it, of the bytes of requests that the core keeps until they are answered; they count
    towards the memory of all connections.
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


class Parked:
    """The type of PARKED: the answer comes later, through `Requests.reply`."""

    __slots__ = ()


class NoResponse:
    """The type of NO_RESPONSE: the request gets no answer (Produce with acks=0)."""

    __slots__ = ()


class Encoded(NamedTuple):
    """An answer that its handler has encoded, frame size and header included."""

    pieces: Sequence[Piece]


Answer = Message | Encoded | Parked | NoResponse
"""The result of a handler."""

PARKED = Parked()
NO_RESPONSE = NoResponse()
