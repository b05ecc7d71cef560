"""The deadlines of transactional ids, and how they are moved when there is no disk space."""

from __future__ import annotations

from barnabas.coordinator.timers import PUT_OFF_MS, Timers
from barnabas.coordinator.transactions.transaction_state import (
    NO_TIMEOUT_MS,
    PREPARED,
    TransactionMetadata,
    TransactionState,
)


class TransactionDeadlines:
    """The base class of `TransactionCoordinator` that contains its deadlines.

    _transactions: the transactions by transactional id, which only the coordinator changes.
    _last_due: the ids that the last tick handled.
    """

    def __init__(self, transactions: dict[str, TransactionMetadata]) -> None:
        self._transactions = transactions
        self._timers: Timers[str] = Timers()
        self._last_due: list[str] = []

    @property
    def timers(self) -> Timers[str]:
        """All deadlines; only the coordinator changes them."""
        return self._timers

    def next_deadline_ms(self) -> int | None:
        """Return the time when `on_tick` has work next, or None if no deadline is set."""
        return self._timers.next_deadline_ms()

    def on_not_ended(self, transactional_id: str, now_ms: int, *, is_requested: bool) -> None:
        """Set a new deadline after the decision to end a transaction was dropped for lack of disk
        space.

        Takes:  is_requested, whether the producer requested the end. In this case the producer will
                request it again, and the timeout restarts. Otherwise the abort by timeout is tried
                again later.
        """
        transaction = self._transactions.get(transactional_id)
        if (
            transaction is None
            or transaction.state is not TransactionState.ONGOING
            or transaction.timeout_ms == NO_TIMEOUT_MS
        ):
            return
        if is_requested:
            self._timers.schedule(transactional_id, now_ms + transaction.timeout_ms)
        elif transactional_id not in self._timers:
            self._timers.schedule(transactional_id, now_ms + PUT_OFF_MS)

    def on_tick_not_written(self, now_ms: int) -> None:
        """Schedule the decisions of the last `on_tick` again, because there was no disk space for
        them.
        """
        for transactional_id in self._last_due:
            transaction = self._transactions.get(transactional_id)
            if (
                transaction is not None
                and transaction.state not in PREPARED
                and transactional_id not in self._timers
            ):
                self._timers.schedule(transactional_id, now_ms + PUT_OFF_MS)
