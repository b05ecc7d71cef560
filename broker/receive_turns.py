"""Who goes on receiving when all connections together hold as much as they may
(`queued.max.request.bytes`).

One connection at a time then: it takes the turn by having something to receive, and keeps it until
its request is whole and handed on. So the bound is passed by one request at most, and what is begun
can be ended. The others are not read from, and their bytes stay in the kernel and with their
senders. Small requests are received as ever, whoever has the turn.

Whole requests that wait for the worker's thread count, too. Where they alone are half of what may
be held, nobody gets the turn until some are done: so all together is at most half as much again.
(Waiting for all of them would let a client that sends small ones of that kind keep large ones out.)

A client that has the turn and sends nothing, while others wait, is hung up on: its half a request
would keep all others out.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from barnabas.protocol.framing import ReceiveMemory

SILENCE_S = 10.0


class Receiver(Protocol):
    """A connection that holds a part of a large request."""

    def resume_receiving(self) -> None: ...

    def hang_up(self, reason: str) -> None: ...


class ReceiveTurns:
    """Who waits, in the order in which they came. holder: the one that has the turn."""

    def __init__(self, memory: ReceiveMemory, loop: asyncio.AbstractEventLoop) -> None:
        self._memory, self._loop = memory, loop
        self.holder: Receiver | None = None
        self._has_received = False
        self._waiting: dict[Receiver, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def may_receive(self, receiver: Receiver) -> bool:
        """Asked when there is something to receive; False: it waits, and is told to go on."""
        if not self._memory.is_full:
            return True
        if self.holder is None and not self._memory.is_full_of_work:
            self.holder = receiver
        if self.holder is receiver:
            self._has_received = True
            return True
        self._waiting[receiver] = None
        if self._timer is None:
            self._has_received = True
            self._timer = self._loop.call_later(SILENCE_S, self._on_timer)
        return False

    def on_released(self, receiver: Receiver) -> None:
        """Forget a connection: it holds no part of a large request any more, or is gone."""
        self._waiting.pop(receiver, None)
        if self.holder is receiver:
            self.holder = None
        self.on_freed()

    def on_freed(self) -> None:
        """Resume those that wait for memory, now that less is held; all, or the next one."""
        if not self._memory.is_full:
            waiting, self._waiting = self._waiting, {}
            for other in waiting:
                other.resume_receiving()
        elif self.holder is None and self._waiting and not self._memory.is_full_of_work:
            self.holder = next(iter(self._waiting))
            del self._waiting[self.holder]
            self._has_received = True
            self.holder.resume_receiving()

    def _on_timer(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        is_silent, self._has_received = not self._has_received, False
        self._timer = self._loop.call_later(SILENCE_S, self._on_timer)
        if is_silent and self.holder is not None:
            self.holder.hang_up(
                f"it sent a part of a large request and then nothing for {SILENCE_S:.0f} s, while "
                "others wait since all hold "
                f"queued.max.request.bytes={self._memory.max_bytes}"
            )

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
