"""Imports modules before the first requests need them. While the process has nothing else to do,
the worker imports the modules that clients will most likely use.

A start imports only what it needs at once. Without this module, the first request of an API waits
while the worker imports the modules of that API, which takes 30 to 150 ms. Here the worker imports
them in advance, for one API at a time. A request that arrives meanwhile waits for at most one of
these imports.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.broker.outbox import NO_CONNECTION, Work
from barnabas.protocol.api_table import BY_KEY

if TYPE_CHECKING:
    from barnabas.broker.rim.server import Server

# The requests of most clients, in their usual order. The modules of transactions, share groups and
# similar APIs take 4 MB, and are imported at their first use.
FIRST_APIS = (
    18,  # ApiVersions
    3,  # Metadata
    0,  # Produce
    1,  # Fetch
    2,  # ListOffsets
    10,  # FindCoordinator
    11,  # JoinGroup
    14,  # SyncGroup
    12,  # Heartbeat
    9,  # OffsetFetch
    8,  # OffsetCommit
    13,  # LeaveGroup
    22,  # InitProducerId
    19,  # CreateTopics
)
WINDOW_S = 0.05
IDLE_SHARE = 0.2  # fraction of a window; a process that uses more CPU time is not idle


class LoadingAhead:
    """The modules that remain to be imported. cpu_s: a function that returns the CPU time that the
    process has used.
    """

    def __init__(
        self,
        server: Server,
        loop: asyncio.AbstractEventLoop,
        cpu_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._server, self._loop, self._cpu_s = server, loop, cpu_s
        self._left = [BY_KEY[key] for key in FIRST_APIS]
        self._before_s = 0.0
        self._begin()

    def _begin(self) -> None:
        """Begin a window. After WINDOW_S, `_step` checks whether the process was idle in the
        window.
        """
        self._before_s = self._cpu_s()
        self._loop.call_later(WINDOW_S, self._step)

    def _step(self) -> None:
        """If the process was idle in the last window, let the worker import the modules of the next
        API; otherwise wait for another window.
        """
        if self._server.is_closed:
            return
        if self._cpu_s() - self._before_s > IDLE_SHARE * WINDOW_S:
            self._begin()
            return
        routes, outbox = self._server.broker.routes, self._server.broker.outbox
        while self._left and not routes.waits_for_modules(self._left[0]):
            del self._left[0]
        if not self._left:
            return
        api = self._left.pop(0)

        def done(_: None, now_ms: int) -> None:
            routes.on_imported(api)
            self._begin()

        outbox.work.append(Work(NO_CONNECTION, routes.importer_of(api), done))
        self._server.carry_out()
