"""Lets a reader wait for the end of a transaction that is open within its range. As an alternative,
the range may end where the transaction begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from barnabas.client.notices import logger
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark_connector.read.options import OpenTransactions

PAUSE_S = 0.1  # the pause between two checks of the last stable offset
REMINDER_S = 10.0


class OpenTransactionError(Exception):
    """A transaction stayed open for longer than a reader may wait."""


class UndecidedRange(NamedTuple):
    """The end of a range, and the start of an open transaction before it.

    This start is the last stable offset.
    """

    end_offset: int
    transaction_start: int


class OpenTransactionWait:
    """Waits for the ends of open transactions that begin before the end of a reader's range."""

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
        self._last_warning = 0.0

    def look_again(self, undecided: Mapping[TopicPartition, UndecidedRange]) -> bool:
        """Pause, and return True if the caller has to check again. Return False if ranges are to
        end at open transactions.

        Raises: OpenTransactionError when the time limit is reached.
        """
        if not self._policy.wait:
            for name, (end_offset, transaction_start) in undecided.items():
                logger.warning(
                    "barnabas: %s: offsets [%d, %d) are not read: a transaction is open from %d on "
                    "(onOpenTransaction=end)",
                    name,
                    transaction_start,
                    end_offset,
                    transaction_start,
                )
            return False
        now = self._clock()
        if self._since is None:
            self._since = now
            self._warn(undecided, 0.0, now)
        spent = now - self._since
        if spent * 1000 >= self._policy.timeout_ms:
            raise OpenTransactionError(
                f"after {spent:.0f} s a transaction is still open: {_described(undecided)}. No "
                "record was deleted: the rest can be read when its producer commits or aborts, "
                "or the broker aborts it (transaction.timeout.ms). Wait longer with "
                "openTransactionTimeout, or read the records before it with "
                "onOpenTransaction=end"
            )
        if now - self._last_warning >= REMINDER_S:
            self._warn(undecided, spent, now)
        self._sleep(PAUSE_S)
        return True

    def _warn(
        self, undecided: Mapping[TopicPartition, UndecidedRange], spent: float, now: float
    ) -> None:
        """Log what the read waits for, and since when."""
        self._last_warning = now
        logger.warning(
            "barnabas: waiting for the end of an open transaction, for %.0f s of at most %.0f "
            "s: %s (onOpenTransaction=end does not wait)",
            spent,
            self._policy.timeout_ms / 1000,
            _described(undecided),
        )


def _described(undecided: Mapping[TopicPartition, UndecidedRange]) -> str:
    """The open transactions, as words for a message."""
    return ", ".join(
        f"{name} is to be read up to offset {end_offset}, and from {transaction_start} on a "
        "transaction is open"
        for name, (end_offset, transaction_start) in undecided.items()
    )
