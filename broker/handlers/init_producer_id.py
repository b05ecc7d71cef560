"""InitProducerId, which the coordinator decides. A transaction that is kept for two-phase commit is
flushed first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.outbox import PARKED, Parked
from barnabas.broker.requests.without_space import refuse
from barnabas.coordinator.transactions.transaction_state import TransactionState
from barnabas.storage.disk import NotWrittenError

if TYPE_CHECKING:
    from barnabas.broker.logs.flush_queue import FlushQueue
    from barnabas.broker.logs.topics import TopicRegistry
    from barnabas.broker.requests.pending_requests import Requests
    from barnabas.broker.transactions.transaction_end import Endings, TransactionEnds
    from barnabas.coordinator.transactions.transaction_coordinator import TransactionCoordinator
    from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
    from barnabas.protocol.request_context import RequestContext
    from barnabas.storage.log.log import Log


class InitProducerIdHandler:
    """Answers InitProducerId: the coordinator decides.

    If the response says that a transaction is kept for two-phase commit (KIP-939), the transaction
    has to be durable. An external database may decide on it at once, so a power loss must not
    remove it. The producer that wrote it may have had an ordinary session, in which responses do
    not wait for the disk. So the transaction's logs are flushed before it is kept. (Requests of
    that producer that are still in flight are not part of the prepared transaction.)
    """

    __slots__ = (
        "_endings",
        "_flushes",
        "_requests",
        "_topics",
        "_transaction_ends",
        "_transactions",
    )

    def __init__(
        self,
        requests: Requests,
        topics: TopicRegistry,
        transactions: TransactionCoordinator,
        endings: Endings,
        transaction_ends: TransactionEnds,
        flushes: FlushQueue,
    ) -> None:
        self._requests, self._topics, self._flushes = requests, topics, flushes
        self._transactions = transactions
        self._endings, self._transaction_ends = endings, transaction_ends

    def on_init_producer_id(
        self, request: InitProducerIdRequest, context: RequestContext
    ) -> Parked:
        """Begin the session of a producer; see `ProducerSessions.on_init_producer_id`."""
        self._requests.park(context)

        def run(now_ms: int) -> None:
            try:
                decided = self._transactions.sessions.on_init_producer_id(request, context, now_ms)
                self._transaction_ends.run(decided, now_ms)
            except NotWrittenError:
                refuse(self._requests, request, context)

        def flush_and_run(now_ms: int) -> None:
            self._flushes.wait(self._unflushed(request), run, now_ms)

        keeps = request.enable2_pc and request.keep_prepared_txn
        self._endings.hold_back(
            request.transactional_id, flush_and_run if keeps else run, context.now_ms
        )
        return PARKED

    def _unflushed(self, request: InitProducerIdRequest) -> list[Log]:
        """The logs to be flushed: those with data of an open transaction of an ordinary session."""
        transactions = self._transactions
        open_one = transactions.metadata(request.transactional_id or "")
        if open_one is None or open_one.is_two_phase or not transactions.settings.is_durable:
            return []
        if open_one.state is not TransactionState.ONGOING:
            return []
        logs = (self._topics.partition(*partition) for partition in open_one.partitions)
        return [log for log in logs if log is not None]
