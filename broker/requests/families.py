"""The families of handlers: modules of `broker/handlers/`. Each is loaded with the first request of
one of its APIs.

In the daemon the worker loads them, while the request waits: in the loop's thread the imports would
block all other requests, for 30 to 150 ms. This is the one place where the broker loads code later
than at its start, apart from what a setting switches on (`broker/assemble.py`). So a family imports
all that its handlers need, at its top.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from barnabas.broker.outbox import NO_CONNECTION, Outbox, Work
from barnabas.broker.slices import Wait


class Families:
    """Decides which requests wait until their family is loaded.

    are_loaded_elsewhere: whether the worker, a part of the rim, loads them. If not, they are loaded
    at once. waiting_count: the number of requests that wait for a family.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._loaded: set[str] = set()
        self.are_loaded_elsewhere = False
        self.waiting_count = 0

    def has_to_load(self, family: str) -> bool:
        """Whether the worker has to load a family before its requests are handled."""
        return self.are_loaded_elsewhere and family not in self._loaded

    def load_elsewhere(
        self,
        family: str,
        then: Callable[[int], None],
        connection_id: int = NO_CONNECTION,
        held_bytes: int = 0,
    ) -> None:
        """Let the worker load a family, and then call a function with the time.

        Takes: connection_id, held_bytes, of the request that waits, as in `Work`.
        """

        def done(_: None, now_ms: int) -> None:
            self.waiting_count -= 1
            self._loaded.add(family)
            then(now_ms)

        def run() -> None:
            load(family)

        self.waiting_count += 1
        self._outbox.work.append(Work(connection_id, run, done, held_bytes))

    def wait(self, family: str) -> Wait | None:
        """The wait for a family, for work in slices; None if the work does not have to wait."""
        if not self.has_to_load(family):
            return None
        return Wait(
            lambda then: self.load_elsewhere(family, then),
            lambda: load(family),
        )


def load(family: str) -> Any:
    """The module of a family. It may be loaded in any thread, since loading uses no state of a
    broker.
    """
    return importlib.import_module(f"barnabas.broker.handlers.{family}")
