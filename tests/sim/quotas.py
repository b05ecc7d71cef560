"""Client quotas in a schedule: throttle times are compared with a model that knows less than the
broker, and predicts only what is certain.

    a response has a throttle time    exactly this connection is muted, for exactly that time
    a Produce has a response          it has a throttle time if the bytes of the last two windows
                                      exceed what the quota allows in four windows; it has none
                                      if the bytes of the last five windows are below what the
                                      quota allows in two, and there is no other quota

(`broker/quotas/rates.py` calculates the rate over two to four windows, of one second here.)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from barnabas.broker.quotas.entities import PRODUCER_BYTE_RATE
from sim import wire

if TYPE_CHECKING:
    from sim.network import Link
    from sim.world import World

WINDOW_MS = 1000
ENTITY = (("client-id", wire.CLIENT_ID.decode()),)
SLACK = 1.02


class Throttles:
    """Checks the throttle times in the responses of one process of the broker."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._limit = world.scenario.quotas.get(PRODUCER_BYTE_RATE)
        self._is_alone = len(world.scenario.quotas) == 1
        self._produced: deque[tuple[int, int]] = deque()
        self._told: dict[int, int] = {}

    def on_heard(self, frame: bytes) -> None:
        """Record the time and size of a Produce request that reaches the core."""
        if int.from_bytes(frame[:2]) == wire.PRODUCE:
            self._produced.append((self._world.loop.now_ms, len(frame)))

    def on_answer(self, link: Link, answer: bytes) -> None:
        """Record the throttle time of a response that the core sends."""
        call = link.call_of(int.from_bytes(answer[4:8]))
        if call is None:
            return
        throttle_ms = wire.throttle_ms_of(call, answer[8:])
        if throttle_ms is None:
            return
        self._told[link.link_id] = throttle_ms
        if call.api_key == wire.PRODUCE and self._limit is not None:
            self._judge(throttle_ms, self._limit)

    def _judge(self, throttle_ms: int, limit: float) -> None:
        """Report a finding if the throttle time of a Produce response contradicts the number of
        bytes that were produced.
        """
        if not throttle_ms and self._bytes_of(2) > 4 * limit * SLACK:
            self._found(f"{self._bytes_of(2)} bytes came in two windows, and none had to wait")
        if throttle_ms and self._is_alone and self._bytes_of(5) < 2 * limit:
            self._found(f"a Produce has to wait for {throttle_ms} ms below its quota")

    def _bytes_of(self, windows: int) -> int:
        since_ms = self._world.loop.now_ms - windows * WINDOW_MS
        return sum(size for at_ms, size in self._produced if at_ms > since_ms)

    def on_mutes(self, mutes: Iterable[tuple[int, int]]) -> None:
        """Compare the connections that the core mutes with the throttle times in the responses that
        it has just sent.
        """
        reported, self._told = self._told, {}
        for connection_id, throttle_ms in mutes:
            of_answer = reported.pop(
                connection_id, throttle_ms
            )  # acks=0 has no response, and the responses of some versions have no throttle time
            if of_answer != throttle_ms:
                self._found(f"a client gets {of_answer} ms, and waits for {throttle_ms}")
        for throttle_ms in filter(None, reported.values()):
            self._found(f"a client has to wait for {throttle_ms} ms, and is not held to it")

    def _found(self, what: str) -> None:
        self._world.history.incident("quota", what)
