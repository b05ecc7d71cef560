"""What a handler is given, and what the broker gives back to its rim."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from barnabas.protocol.errors import ProtocolViolation
from barnabas.protocol.hot_responses import Piece
from barnabas.protocol.messages.message import Message
from barnabas.storage.cleaning.cleaner import CleanJob
from barnabas.storage.disk import Syncable
from barnabas.storage.log.durability import FlushToken

if TYPE_CHECKING:
    from barnabas.broker.security.audit import AuditRecord

CloseReason = ProtocolViolation | str  # why the broker ends a connection, for its log


class Ids(Protocol):
    """The source of what must be unique: a seeded one in simulations."""

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
    tokens: tuple[tuple[Any, FlushToken], ...]  # (Log, token): what is durable then
    files: tuple[Syncable, ...]


class Work(NamedTuple):
    """What takes long: the rim calls `run` where nobody waits for it, then gives what it returned
    to `Broker.on_worked`.

    run: reads and writes nothing that the core has beside its own arguments. done: what the core
    does with the result. held_bytes: of the request that are kept until then, and count with what
    all connections hold.
    """

    connection_id: int  # whose request it is for
    run: Callable[[], Any]
    done: Callable[[Any, int], None]
    held_bytes: int = 0


class Outbox:
    """What the rim carries out after each call of the broker, in order: sends, then closes; flushes
    and cleanings in its own time.

    sends: (connection_id, pieces of one whole response frame). No pieces: the request has no answer
    (acks=0), the next may come. admitted: connections whose clients have shown who they are: their
    requests may be as large as any. closes: (connection_id, reason). cleanings: jobs for
    `storage.cleaner.clean`; the rim then calls `Broker.on_cleaned`. work: what would hold up
    everybody; the rim then calls `Broker.on_worked`. mutes: (connection_id, milliseconds) for which
    nothing more is read from a connection, counted from now on: its client is above a quota. audit:
    what an audit log is to have. deferred: work of the core for which nobody who is answered by
    `sends` has to wait. `Broker.on_sent` does it once those are sent, and the core does it itself
    before anything else comes in: nothing that anybody sees tells whether it was deferred.
    held_bytes: of requests that the core keeps until they are answered, as far as they are more or
    less than when the rim last took them: they count with what all connections hold.
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
    """The type of NO_RESPONSE: this request is not answered at all (Produce with acks=0)."""

    __slots__ = ()


class Encoded(NamedTuple):
    """An answer that its handler has encoded, frame size and header included."""

    pieces: Sequence[Piece]


Answer = Message | Encoded | Parked | NoResponse
"""What a handler returns."""

PARKED = Parked()
NO_RESPONSE = NoResponse()
