"""Handlers of requests that the transaction coordinator answers: the coordinator decides, and its
Result is carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter

from barnabas.broker.outbox import PARKED, Answer
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.requests.without_space import refuse
from barnabas.broker.routes import Decide, Handler, Request
from barnabas.broker.transactions.transaction_end import Endings, TransactionEnds
from barnabas.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from barnabas.protocol.messages.message import Message
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.disk import NotWrittenError


def to_transactions(
    decide: Decide[Request],
    endings: Endings,
    transaction_ends: TransactionEnds,
    transactions: TransactionCoordinator,
    requests: Requests,
    id_field: str = "",
    producer_fields: Sequence[str] = (),
) -> Handler[Request]:
    """Make the handler of a request that the transaction coordinator answers.

    Takes: id_field, the field with the transactional id, if the request has to wait until the id's
           previous transaction is complete; producer_fields, if the request adds to it, the
           fields with the transactional id, the producer id and the producer epoch.
    """
    id_of: Callable[[Request], str | None] = attrgetter(id_field) if id_field else _no_id
    producer_of: Callable[[Request], tuple[str, int, int]] | None = (
        attrgetter(*producer_fields) if producer_fields else None
    )

    def handle(request: Request, context: RequestContext) -> Answer:
        if producer_of is not None:
            transactional_id, producer_id, producer_epoch = producer_of(request)
            transactions.check_connection(
                transactional_id,
                (producer_id, producer_epoch),
                context.connection_id,
                node_id=context.node_id,
            )
        requests.park(context, keeps_request=True)

        def run(now_ms: int) -> None:
            try:
                transaction_ends.run(decide(request, context, now_ms), now_ms)
            except NotWrittenError:
                refuse(requests, request, context)

        endings.after_end_of(id_of(request), run, context.now_ms)
        return PARKED

    return handle


def _no_id(request: Message) -> None:
    return None
