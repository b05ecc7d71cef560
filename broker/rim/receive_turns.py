"""Which connections go on receiving when all together hold as much as they may
(`queued.max.request.bytes`).

One connection of each principal then (of each address, where clients do not show who they are), and
of three principals at most: a connection takes the turn by having something to receive, and keeps
it until its request is whole and handed on. So the bound is passed by three requests at most, what
is begun can be ended, and a client with all the memory does not keep other principals out. The
others are not read from, and their bytes stay in the kernel and with their senders. Small requests
are received as ever, independent of the turn.

Whole requests that wait for the worker's thread count, too. Where they alone are half of what may
be held, no connection gets the turn until some are done: so all together is at most half as much
again, and those three requests. (Waiting for all of them would let a client that sends small ones
of that kind keep large ones out.)

What is held for a request whose rest does not come is given back: while a connection waits, each
that holds a part of a large request, and of which nothing or next to nothing has come in
`SILENCE_S`, is hung up on, whether it has the turn or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from barnabas.protocol.framing import ReceiveMemory

SILENCE_S = 10.0
LEAST_PROGRESS_BYTES = 64 * 1024  # in that time
MOST_HOLDERS = 3


class Receiver(Protocol):
    """A connection that may hold a part of a large request.

    owner: whose share it takes. held_bytes: what it has received of requests that are not handed
    on. awaits_rest: whether it holds a part of a large request, and is read from.
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
    """Who waits, in the order in which they came.

    Takes: receivers, all connections whose parts of requests the memory counts.
    holders: the connections that have a turn, by their owners.
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
        """Asked when there is something to receive; False: it waits, and is notified when it may
        continue."""
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
        """Whether it goes on though as much is held as may be."""
        return receiver in self.holders.values()

    def _take_turn(self, receiver: Receiver) -> bool:
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
        """Forget a connection: it holds no part of a large request any more, or is gone."""
        self._waiting.pop(receiver, None)
        for owner, holder in self.holders.items():
            if holder is receiver:
                del self.holders[owner]
                break
        self.on_freed()

    def on_freed(self) -> None:
        """Resume those that wait for memory, now that less is held; all, or the next ones."""
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
        """What each connection holds whose client is to send the rest."""
        return {one: one.held_bytes for one in self._receivers() if one.awaits_rest}

    def _on_timer(self) -> None:
        self._timer = None
        if not self._waiting:
            self._held_before = {}
            return
        before, self._held_before = self._held_before, self._parts()
        self._timer = self._loop.call_later(SILENCE_S, self._on_timer)
        for receiver, held_bytes in self._held_before.items():
            # one that holds less has begun another request
            if 0 <= held_bytes - before.get(receiver, -(1 << 62)) < LEAST_PROGRESS_BYTES:
                receiver.hang_up(
                    f"it sent a part of a large request and then less than {LEAST_PROGRESS_BYTES} "
                    f"bytes in {SILENCE_S:.0f} s, while others wait since all hold "
                    f"queued.max.request.bytes={self._memory.max_bytes}"
                )

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
