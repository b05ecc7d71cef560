"""Takes the samples of the last hour. It observes the broker every half minute, in the loop's
thread.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from barnabas.broker.observe import Look
from barnabas.console.history import History

if TYPE_CHECKING:
    from barnabas.console.rim.source import Source

logger = logging.getLogger("barnabas.console")

CHECK_S = 1.0


class Sampler:
    """Adds samples to a History while the console runs.

    history: the samples, which only the loop's thread may read.
    """

    def __init__(self, source: Source) -> None:
        self._source, self._server = source, source.server
        self.history = History()
        self._is_closed = False
        self._task: asyncio.Task[None] | None = None
        self._server.loop.call_soon_threadsafe(self._check)

    def close(self) -> None:
        """Take no more samples."""
        self._is_closed = True

    def _check(self) -> None:
        """Begin a sample if one is due and the previous one has ended; check again after
        CHECK_S.
        """
        if self._is_closed:
            return
        is_free = self._task is None or self._task.done()
        if is_free and self.history.is_due(self._server.steady_ms()):
            self._task = self._server.loop.create_task(self._sample())
        self._server.loop.call_later(CHECK_S, self._check)

    async def _sample(self) -> None:
        """Take one sample in slices, between which the loop serves clients."""
        try:
            for _ in self._steps():
                await asyncio.sleep(0)
                if self._is_closed:
                    return
        except Exception:  # Samples are only shown, so the broker continues without this one.
            logger.exception("the console could not take a sample")

    def _steps(self) -> Look[None]:
        now_ms = self._server.steady_ms()
        observed = yield from self._source.observe()
        yield from self.history.add(observed.partitions, observed.groups, now_ms)
