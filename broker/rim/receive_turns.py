"""Limits which connections receive large requests while all connections together hold
`queued.max.request.bytes`.

At that bound, one connection of each principal (or address, if clients are not authenticated) may
have a turn, for at most three principals. A connection takes the turn when it has bytes to receive,
and keeps it until its request is complete and passed on. So the bound is exceeded by at most three
requests, a request that has begun can be completed, and a client that uses all the memory does not
block other principals. The other connections are not read from: their bytes stay in the kernel and
with the senders. Small requests are received without a turn.

Complete requests that wait for the worker's thread also count. If they alone exceed half of the
bound, no connection gets a turn until some of them are done. The total is therefore at most one and
a half times the bound, plus the three requests. (If connections waited until all of them are done,
a client that sends small requests for the worker could block large requests.)

The memory of a request that stays incomplete is freed. While any connection waits, each connection
that holds part of a large request and has received less than LEAST_PROGRESS_BYTES in `SILENCE_S`
is closed, whether it has a turn or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from barnabas.protocol.framing import ReceiveMemory

SILENCE_S = 10.0
LEAST_PROGRESS_BYTES = 64 * 1024  # bytes in SILENCE_S
MOST_HOLDERS = 3


class Receiver(Protocol):
    """A connection that may hold a part of a large request.

    owner: the client's principal, or its address if it is not authenticated. held_bytes: the
    received bytes of requests that are not passed on yet. awaits_rest: whether the connection holds
    a part of a large request, and waits for the rest.
    """

    @property
    def owner(self) -> str: ...

    @property
    def held_bytes(self) -> int: ...

    @property
    def awaits_rest(self) -> bool: ...

    def resume_receiving(self) -> None: ...

    def hang_up(self, reason: str) -> None: ...


class ReceiveTurns:
    """The connections that wait for memory, in the order of arrival.

    holders: the connections that have a turn, by their owners.

    Takes: receivers, a function that returns all connections whose incomplete requests count
           towards the memory.
    """

    def __init__(
        self,
        memory: ReceiveMemory,
        loop: asyncio.AbstractEventLoop,
        receivers: Callable[[], Iterable[Receiver]],
    ) -> None:
        self._memory, self._loop, self._receivers = memory, loop, receivers
        self.holders: dict[str, Receiver] = {}
        self._held_before: dict[Receiver, int] = {}
        self._waiting: dict[Receiver, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def may_receive(self, receiver: Receiver) -> bool:
        """Whether a connection with bytes to receive may receive them now. If not, it waits, and is
        notified when it may.
        """
        if not self._memory.is_full:
            return True
        if self.has_turn(receiver) or self._take_turn(receiver):
            return True
        self._waiting[receiver] = None
        if self._timer is None:
            self._held_before = self._parts()
            self._timer = self._loop.call_later(SILENCE_S, self._on_timer)
        return False

    def has_turn(self, receiver: Receiver) -> bool:
        """Whether the connection may receive although the bound is reached."""
        return receiver in self.holders.values()

    def _take_turn(self, receiver: Receiver) -> bool:
        """Give the connection the turn of its owner (principal or address), if its owner has none
        and a turn is free. Gives: whether the connection has a turn.
        """
        owner = receiver.owner
        if (
            owner in self.holders
            or len(self.holders) >= MOST_HOLDERS
            or self._memory.is_full_of_work
        ):
            return False
        self.holders[owner] = receiver
        return True

    def on_released(self, receiver: Receiver) -> None:
        """Remove a connection: it no longer holds a part of a large request, or is closed."""
        self._waiting.pop(receiver, None)
        for owner, holder in self.holders.items():
            if holder is receiver:
                del self.holders[owner]
                break
        self.on_freed()

    def on_freed(self) -> None:
        """Resume waiting connections, since memory was freed: all of them, or those that can take a
        turn now.
        """
        if not self._waiting:
            return
        if not self._memory.is_full:
            resumed, self._waiting = self._waiting, {}
        elif len(self.holders) < MOST_HOLDERS:
            resumed = {one: None for one in list(self._waiting) if self._take_turn(one)}
        else:
            return
        for receiver in resumed:
            self._waiting.pop(receiver, None)
            receiver.resume_receiving()

    def _parts(self) -> dict[Receiver, int]:
        """The held bytes of each connection that waits for the rest of a large request."""
        return {one: one.held_bytes for one in self._receivers() if one.awaits_rest}

    def _on_timer(self) -> None:
        """Close each connection that holds a part of a large request and sent almost nothing since
        the last timer, while others wait for the memory.
        """
        self._timer = None
        if not self._waiting:
            self._held_before = {}
            return
        before, self._held_before = self._held_before, self._parts()
        self._timer = self._loop.call_later(SILENCE_S, self._on_timer)
        for receiver, held_bytes in self._held_before.items():
            # A connection that holds fewer bytes than before has begun another request, and is not
            # closed. Nor is a connection that held nothing at the last timer: the default makes its
            # difference very large.
            if 0 <= held_bytes - before.get(receiver, -(1 << 62)) < LEAST_PROGRESS_BYTES:
                receiver.hang_up(
                    "it sent a part of a large request and then less than "
                    f"{LEAST_PROGRESS_BYTES} bytes in {SILENCE_S:.0f} s, while other "
                    f"connections wait for queued.max.request.bytes={self._memory.max_bytes}"
                )

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
