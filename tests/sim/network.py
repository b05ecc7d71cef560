"""Connections that behave like TCP: bytes keep their order and may arrive late; when a connection
breaks, bytes in transit arrive or are lost.

So within one connection requests are never duplicated or reordered. Across connections they may be:
a request in transit when its connection broke may reach the broker long after the client has sent
it again on the next connection: see `LINGERING`. (The first version of the transaction protocol has
no protection against a late EndTxn or TxnOffsetCommit, which KIP-890 gives as its reason. So the
broker closes a connection that its producer has abandoned, see
`TransactionCoordinator.check_connection`.)
"""

from __future__ import annotations

import random
from enum import Enum
from typing import TYPE_CHECKING

from sim import wire
from sim.loop import Future

if TYPE_CHECKING:
    from sim.node import Node
    from sim.world import World

LINGERING = frozenset(
    {"Produce", "Fetch", "Heartbeat", "InitProducerId", "OffsetFetch", "EndTxn", "TxnOffsetCommit"}
)
REQUEST_TIMEOUT_MS = 1500


class Lost:
    """The result of a request whose response never arrived."""

    def __repr__(self) -> str:
        return "LOST"

    def __bool__(self) -> bool:
        return False


LOST = Lost()


class Forgiving(Enum):
    """When the broker may close a client's connection: never, after refusing a batch with acks=0,
    or at any time; a client chooses one.
    """

    NEVER = 0
    REFUSED_BATCHES = 1
    ALWAYS = 2


class Weather:
    """The current state of the network. Times are in ms; probabilities are for each request.

    cut: the probability that the connection breaks when the request is sent. stall: the probability
    that the connection stalls once, for an extra delay.
    """

    def __init__(
        self, *, delay_ms: int = 3, cut: float = 0.0, stall: float = 0.0, linger_ms: int = 2500
    ) -> None:
        self.delay_ms, self.cut, self.stall, self.linger_ms = delay_ms, cut, stall, linger_ms


class Link:
    """A client's end of a connection. All requests in flight get their responses in order, or all
    are lost.
    """

    def __init__(
        self, world: World, link_id: int, node_id: int | None = None, node: Node | None = None
    ) -> None:
        self.world, self.link_id, self.node_id = world, link_id, node_id
        self.node = world.node if node is None else node
        self.generation = self.node.generation
        self.is_open, self.forgives = True, Forgiving.NEVER
        self.last_arrival_ms = 0
        self._correlation_id = 0
        self._waiting: dict[int, tuple[Future, wire.Call]] = {}
        self._last_out_ms = self._last_in_ms = self._quiet_until_ms = 0
        self._drains = False
        self.resent = 0  # always 0, unlike in `Bundle`, since there is no other broker

    # --- the client's side -----------------------------------------------------------------------

    def call(self, call: wire.Call, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Future:
        """Send a request. Gives: a future for the decoded response, or LOST."""
        world, rng = self.world, self.world.rng
        future = Future()
        if not self.is_open:
            world.loop.later(1, future.resolve, LOST)
            return future
        self._correlation_id += 1
        correlation_id = self._correlation_id
        if call.is_answered:
            self._waiting[correlation_id] = (future, call)
        else:
            world.loop.later(0, future.resolve, None)
        weather = world.weather
        arrives_ms = max(self._last_out_ms, world.loop.now_ms + rng.randint(0, weather.delay_ms))
        quiet_ms = max(0, self._quiet_until_ms - world.loop.now_ms)
        if quiet_ms:
            arrives_ms, timeout_ms = arrives_ms + quiet_ms, timeout_ms + quiet_ms
        chance = rng.random()
        if chance < weather.cut:
            self._break(call, correlation_id)
            return future
        if chance < weather.cut + weather.stall:
            arrives_ms += rng.randint(50, 2000)
        self._last_out_ms = arrives_ms
        frame = wire.frame(call, correlation_id)
        world.trace("->", self.link_id, call.name, correlation_id, frame)
        world.loop.at(arrives_ms, self._arrive, frame)
        world.loop.later(timeout_ms, self._time_out, correlation_id)
        return future

    def _break(self, call: wire.Call, correlation_id: int) -> None:
        """Break the connection with this request in flight: the request may still arrive, and gets
        no response.
        """
        world, rng = self.world, self.world.rng
        fate = rng.randrange(3)
        frame = wire.frame(call, correlation_id)
        end_ms = max(self._last_out_ms, world.loop.now_ms)
        if call.name in LINGERING:
            if fate == 2:
                end_ms += rng.randint(1, world.weather.linger_ms)
        elif end_ms > world.loop.now_ms:
            fate = 0
        world.trace("-~" if fate else "-x", self.link_id, call.name, correlation_id, frame)
        if fate:
            self._drain_until(end_ms)
            world.loop.at(end_ms, self._arrive, frame)
        self.lose(end_ms)

    def _drain_until(self, end_ms: int) -> None:
        """Let requests that were sent over the broken connection arrive until that time."""
        self._drains = True
        self.world.drains_until_ms = max(self.world.drains_until_ms, end_ms)

    def _arrive(self, frame: bytes) -> None:
        if self.is_open or self._drains:
            self.last_arrival_ms = self.world.loop.now_ms
            self.node.on_frame(self.link_id, self.generation, frame)

    def call_of(self, correlation_id: int) -> wire.Call | None:
        """The request with that correlation id, if it waits for its response."""
        waiting = self._waiting.get(correlation_id)
        return None if waiting is None else waiting[1]

    def _time_out(self, correlation_id: int) -> None:
        """Give up the connection if the request still waits; requests already sent may arrive
        later.
        """
        if correlation_id in self._waiting:
            world = self.world
            world.trace("timeout", self.link_id, "", correlation_id, b"")
            if world.rng.random() < 0.5 and all(
                call.name in LINGERING for _, call in self._waiting.values()
            ):
                end_ms = max(world.loop.now_ms, self._last_out_ms)
                self._drain_until(end_ms)
                self.lose(end_ms)
            else:
                self.lose(world.loop.now_ms)

    def lose(self, broker_learns_ms: int) -> None:
        """Close the client's side; the broker notices it later."""
        if not self.is_open:
            return
        self.is_open = False
        self.world.loop.at(broker_learns_ms, self.node.on_hang_up, self.link_id, self.generation)
        delay_ms = self.world.rng.randint(0, 30)
        waiting, self._waiting = self._waiting, {}
        for future, _ in waiting.values():
            self.world.loop.later(delay_ms, future.resolve, LOST)

    close = lose

    # --- the broker's side -----------------------------------------------------------------------

    def deliver(self, data: bytes) -> None:
        """Deliver a response of the broker to the client."""
        weather, rng = self.world.weather, self.world.rng
        arrives_ms = max(
            self._last_in_ms, self.world.loop.now_ms + rng.randint(0, weather.delay_ms)
        )
        if rng.random() < weather.stall:
            arrives_ms += rng.randint(50, 2000)
        self._last_in_ms = arrives_ms
        self.world.loop.at(arrives_ms, self._receive, data)

    def _receive(self, data: bytes) -> None:
        """Give a response to its request. The broker must answer in the order of the requests."""
        if not self.is_open:
            return
        size = int.from_bytes(data[:4], "big")
        assert size == len(data) - 4, (
            f"an answer says that it has {size} bytes and has {len(data) - 4}"
        )
        correlation_id = int.from_bytes(data[4:8], "big")
        first = next(iter(self._waiting), None)
        assert first == correlation_id, f"answer {correlation_id} came before that to {first}"
        future, call = self._waiting.pop(correlation_id)
        self.world.trace("<-", self.link_id, call.name, correlation_id, data)
        if self.world.scenario.heeds_throttles:
            throttle_ms = wire.throttle_ms_of(call, data[8:]) or 0
            self._quiet_until_ms = self.world.loop.now_ms + throttle_ms
        future.resolve(call.decode(data[8:]))

    def broken(self) -> None:
        """Note that the broker has closed the connection, or has ended."""
        if self.is_open:
            self.is_open = False
            delay_ms = self.world.rng.randint(0, 30)
            waiting, self._waiting = self._waiting, {}
            for future, _ in waiting.values():
                self.world.loop.later(delay_ms, future.resolve, LOST)


def seeded(seed: int) -> random.Random:
    """A random generator for a seed, which is the only one that its schedule uses."""
    return random.Random(seed)
