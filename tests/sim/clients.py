"""What all simulated clients have in common: they connect, send, and retry."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any

from checkers import Partition

from barnabas.protocol.errors import Code
from sim import wire
from sim.network import LOST, REQUEST_TIMEOUT_MS, Forgiving, Link

if TYPE_CHECKING:
    from sim.world import World

Asking = Generator[Any, Any, Any]

FENCED = frozenset(
    {Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH, Code.INVALID_PRODUCER_ID_MAPPING}
)
RETRIABLE = frozenset(
    {
        Code.CONCURRENT_TRANSACTIONS,
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.NOT_COORDINATOR,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.NOT_ENOUGH_REPLICAS,
        Code.KAFKA_STORAGE_ERROR,
        Code.UNSTABLE_OFFSET_COMMIT,
    }
)


class Fenced(Exception):
    """The broker reports that another producer has replaced this one, so this instance ends."""


class Refused(Exception):
    """A response after which this client cannot continue without a new session. partitions: the
    request's partitions; asked_ms: when the request was sent.
    """

    def __init__(
        self, what: str, code: int, partitions: Iterable[Partition] = (), asked_ms: int = 0
    ) -> None:
        super().__init__(f"{what}: {name_of(code)}")
        self.code, self.partitions, self.asked_ms = code, tuple(partitions), asked_ms


def name_of(code: int) -> str:
    """The error code's name, or its number if Kafka has none for it."""
    try:
        return Code(code).name
    except ValueError:
        return str(code)


class Client:
    """A client with one connection.

    lost: the number of requests that never got a response. unsure: the number of attempts with an
    unknown outcome: lost requests, and requests that were sent again after a coordinator moved.
    asked_after: the number of starts that may have fenced producers before its last request, whose
    response may come late from an earlier leader. forgives: when the broker may close its
    connection. ends_after: the number of power losses that the client survives.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.rng = world, name, world.rng
        self.link: Link | None = None
        self.forgives = Forgiving.NEVER
        self.lost = self.unsure = self.asked_after = 0
        self.ends_after: int | None = None

    def connected(self) -> Asking:
        """Wait for a connection.

        Raises: Fenced if the client has ended because of a power loss.
        """
        while self.link is None or not self.link.is_open:
            if (
                self.ends_after is not None
                and len(self.world.history.power_losses) > self.ends_after
            ):
                raise Fenced
            self.link = self.world.try_connect()
            if self.link is None:
                yield self.rng.randint(20, 120)
            else:
                self.link.forgives = self.forgives
        return self.link

    def ask(self, call: wire.Call, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Asking:
        """Send one request, and return the response, or LOST, after which the connection is
        closed.
        """
        link = yield from self.connected()
        self.world.operations += 1
        self.asked_after = self.world.fences
        resent = link.resent
        answer = yield link.call(call, timeout_ms)
        self.unsure += (answer is LOST) + link.resent - resent
        if answer is LOST:
            self.lost += 1
            self.link = None
        return answer

    def insist(
        self, call: wire.Call, code_of: Callable[[Any], int], timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> Asking:
        """Repeat a request until the response is not a retriable error. Gives: the response."""
        while True:
            answer = yield from self.ask(call, timeout_ms)
            if answer is not LOST and code_of(answer) not in RETRIABLE:
                return answer
            yield self.rng.randint(5, 60)

    def hang_up(self) -> None:
        if self.link is not None:
            self.link.close(self.world.loop.now_ms + self.rng.randint(0, 20))
            self.link = None


def error_code(answer: Any) -> int:
    return int(answer.error_code)
