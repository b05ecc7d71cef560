"""Imports that the worker does while a request waits. In the loop's thread they would block all
other requests.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from barnabas.broker.outbox import NO_CONNECTION, Work
from barnabas.broker.slices import Wait

if TYPE_CHECKING:
    from barnabas.broker.outbox import Outbox

FOR_COORDINATORS = (  # the modules that `_coordinators` in broker/assemble.py uses
    "broker.groups.group_runtime",
    "broker.groups.group_topics",
    "broker.topic_changes.topic_deletion",
    "broker.settings.coordinator_settings",
    "broker.transactions.transaction_end",
    "coordinator.groups.group_coordinator",
    "coordinator.transactions.transaction_coordinator",
)
FOR_NEW_LOGS = (
    "broker.logs.new_files",
    "storage.cleaning.clean_plan",  # used by the next tick of the compaction
    "storage.log.new_files",
    "storage.opening.new_log",
)
FOR_TOPICS_AT_A_START = (  # a start imports these modules only if it finds topics
    "broker.opening.start",
    "broker.transactions.transaction_recovery",
    "storage.opening.recovery",
)


def import_all(names: Sequence[str]) -> None:
    """Import modules of Barnabas, by their names without `barnabas.`."""
    for name in names:
        importlib.import_module(f"barnabas.{name}")


class Imports:
    """Decides which requests wait for imports.

    are_elsewhere: whether the worker, a part of the rim, does the imports. If not, they are done at
    once. count: the number of requests that wait for an import.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.are_elsewhere = False
        self.count = 0
        self._done: set[tuple[str, ...]] = set()

    def wait(self, names: tuple[str, ...]) -> Wait | None:
        """The wait for the import of the given modules, for work in slices; None if the work does
        not have to wait.
        """
        if not self.are_elsewhere or names in self._done:
            return None

        def begin(then: Callable[[int], None]) -> None:
            def done(_: None, now_ms: int) -> None:
                self.count -= 1
                self._done.add(names)
                then(now_ms)

            self.count += 1
            self._outbox.work.append(Work(NO_CONNECTION, run, done))

        def run() -> None:
            import_all(names)

        return Wait(begin, run)
