"""What a reader does where its range goes on beyond an open transaction: wait and say so, or end
there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from barnabas.spark_connector.offsets import PartitionName
from barnabas.spark_connector.options import OpenTransactions
from barnabas.spark_connector.user_messages import logger

STEP_S = 0.1  # between two looks
REMINDER_S = 10.0


class OpenTransactionError(Exception):
    """A transaction stayed open for longer than the reader was to wait."""


class Beyond(NamedTuple):
    """Where a range wants to end, and the last stable offset before that, where a transaction is
    open.
    """

    end_offset: int
    open_from: int


class Patience:
    """Decides, each time a reader finds an open transaction before the end of its range, whether it
    looks again.
    """

    def __init__(
        self,
        policy: OpenTransactions,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._sleep = sleep
        self._since: float | None = None
        self._said = 0.0

    def look_again(self, waiting: Mapping[PartitionName, Beyond]) -> bool:
        """True after a pause; False where ranges are to end at open transactions, which is told.

        Raises: OpenTransactionError when the time is over.
        """
        if not self._policy.wait:
            for name, (end_offset, open_from) in waiting.items():
                logger.warning(
                    "barnabas: %s: offsets [%d, %d) are not read: a transaction is open from %d on "
                    "(onOpenTransaction=end)",
                    name,
                    open_from,
                    end_offset,
                    open_from,
                )
            return False
        now = self._clock()
        if self._since is None:
            self._since = now
            self._say(waiting, 0.0, now)
        spent = now - self._since
        if spent * 1000 >= self._policy.timeout_ms:
            raise OpenTransactionError(
                f"after {spent:.0f} s a transaction is still open: {_described(waiting)}. No "
                "record was deleted: the rest can be read when its "
                "producer commits or aborts, or the broker aborts it (transaction.timeout.ms). "
                "Wait longer with openTransactionTimeout, "
                "or read what is before it with onOpenTransaction=end"
            )
        if now - self._said >= REMINDER_S:
            self._say(waiting, spent, now)
        self._sleep(STEP_S)
        return True

    def _say(self, waiting: Mapping[PartitionName, Beyond], spent: float, now: float) -> None:
        self._said = now
        logger.warning(
            "barnabas: waiting for the end of an open transaction, for %.0f s of at most %.0f s: "
            "%s (onOpenTransaction=end would not wait)",
            spent,
            self._policy.timeout_ms / 1000,
            _described(waiting),
        )


def _described(waiting: Mapping[PartitionName, Beyond]) -> str:
    return ", ".join(
        f"{name} is to be read up to offset {end_offset}, and from {open_from} on a transaction is "
        "open"
        for name, (end_offset, open_from) in waiting.items()
    )
