"""The connection between a leader and its standby, which behaves like TCP: bytes keep their order,
arrive late and in arbitrary pieces, and wait while the network between the machines is cut.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sim.pair import PairNode
    from sim.pair_world import PairWorld

LOOK_AGAIN_MS = 20
# The sender has to wait while more than this number of sent pieces have not arrived.
MOST_ON_ITS_WAY = 6


class Direction:
    """One direction of a connection. Sent bytes arrive at `to` in order, and the end of the
    connection arrives after all of them.
    """

    def __init__(self, world: PairWorld, stream: Stream, to: PairNode, sender: PairNode) -> None:
        self._world, self._stream, self._to, self._sender = world, stream, to, sender
        self._process = to.process
        self._queue: deque[bytes | None] = deque()
        self._last_ms = 0
        self.is_ended = False

    def send(self, data: bytes | None) -> None:
        """Send bytes; None ends the connection for the other side."""
        if self.is_ended:
            return
        self.is_ended = data is None
        rng, loop = self._world.pair_rng, self._world.loop
        parts: list[bytes | None] = [data]
        if data is not None and len(data) > 1 and rng.random() < 0.2:
            cut = rng.randrange(1, len(data))
            parts = [data[:cut], data[cut:]]
        for part in parts:
            self._queue.append(part)
            self._last_ms = max(
                self._last_ms, loop.now_ms + rng.randint(0, self._world.pair.delay_ms)
            )
            loop.at(self._last_ms, self._arrive)

    def _arrive(self) -> None:
        """Deliver the next bytes, or wait while the network between the machines is cut."""
        if self._world.are_apart:
            self._world.loop.later(LOOK_AGAIN_MS, self._arrive)
            return
        if self._queue:
            had_room = self.has_room
            self._to.on_stream(self._process, self._stream, self._queue.popleft())
            if not had_room and self.has_room:
                self._sender.on_room()

    @property
    def has_room(self) -> bool:
        """Whether the sockets can take more bytes immediately."""
        return len(self._queue) < MOST_ON_ITS_WAY


class Stream:
    """A connection; to_leader and to_standby are its two directions."""

    def __init__(self, world: PairWorld, leader: PairNode, standby: PairNode) -> None:
        self.to_leader = Direction(world, self, leader, standby)
        self.to_standby = Direction(world, self, standby, leader)

    def cut(self) -> None:
        """Break the connection without notifying either side."""
        self.to_leader.is_ended = self.to_standby.is_ended = True

    def end(self, node_is_leader: bool) -> None:
        """Close the connection from one side; the other side is notified after all bytes sent to
        it.
        """
        (self.to_standby if node_is_leader else self.to_leader).send(None)
        (self.to_leader if node_is_leader else self.to_standby).is_ended = True
