"""The sessions of transactional producers: InitProducerId, and the end of all sessions after a
power loss.

A session is a producer id and epoch. InitProducerId begins a session. If a transaction is open, the
request first fences the producer and aborts the transaction, and the session begins when the abort
is complete (`WaitingInit`). In two-phase commit (KIP-939) the open transaction may be kept instead.
Only the producer of the next session may then end it.

Source: KIP-98, KIP-360 (a producer requests its next epoch), KIP-890, KIP-939; README.md lists the
        differences from Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.coordinator.result import Reply, Result
from barnabas.coordinator.transactions.fencing import code_for_version
from barnabas.coordinator.transactions.transaction_state import (
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TICKET,
    NO_TIMEOUT_MS,
    PREPARED,
    VERSION_2,
    Decision,
    ProducerIdAndEpoch,
    SessionAtEnd,
    TransactionMetadata,
    TransactionState,
    WaitingInit,
    is_epoch_exhausted,
)
from barnabas.coordinator.transactions.transaction_table import TransactionTable
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.wall_clock import WallClock

# for earlier versions, INVALID_PRODUCER_EPOCH replaces PRODUCER_FENCED
_FIRST_VERSION_WITH_FENCED = 4


class ProducerSessions:
    """Decides the next producer id and epoch of a transactional id."""

    def __init__(
        self, table: TransactionTable, allocate_producer_id: Callable[[], int], wall: WallClock
    ) -> None:
        self._table, self._allocate_producer_id, self._wall = table, allocate_producer_id, wall

    # --- InitProducerId --------------------------------------------------------------------------

    def on_init_producer_id(
        self, request: InitProducerIdRequest, context: RequestContext, now_ms: int
    ) -> Result:
        """Handle the first request of a producer, or its request for the next epoch (KIP-360).

        Gives:  an Empty record and its response. If a transaction is open, the result is its abort,
                and the response follows when the abort is complete. If the transaction is kept
                (KIP-939), the result is an Ongoing record and the response. Errors:
                INVALID_REQUEST; INVALID_TRANSACTION_TIMEOUT; PRODUCER_FENCED;
                CONCURRENT_TRANSACTIONS (markers are being written);
                TRANSACTIONAL_ID_AUTHORIZATION_FAILED for two-phase commit if it is not enabled;
                INVALID_TXN_STATE for a request without two-phase commit that would keep an open
                transaction of two-phase commit.
        """
        transactional_id = request.transactional_id
        try:
            requester = _requester(request)
            if transactional_id is None:
                producer = ProducerIdAndEpoch(self._allocate_producer_id(), 0)
                return Result(replies=[Reply(context.ticket, init_response(producer))])
            if not transactional_id:
                raise KafkaError(Code.INVALID_REQUEST)
            timeout_ms = self._timeout_of(request)
            transaction = self._table.by_id.get(transactional_id)
            if transaction is None:
                return self._first_session(transactional_id, timeout_ms, context, now_ms)
            self._check_may_init(transaction, requester)
            if request.keep_prepared_txn and transaction.state is TransactionState.ONGOING:
                return self._keep(transaction, requester, timeout_ms, context, now_ms)
        except KafkaError as error:
            code = code_for_version(error.code, context, _FIRST_VERSION_WITH_FENCED)
            refusal = InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
            return Result(replies=[Reply(context.ticket, refusal)])
        init = WaitingInit(context.ticket, requester, timeout_ms)
        if transaction.state is TransactionState.ONGOING:
            fence = self.fenced(transaction, requester, now_ms)
            return Result(effects=[self._table.decision(fence, init)])
        return self.begin_session(transaction, init, now_ms)

    def _timeout_of(self, request: InitProducerIdRequest) -> int:
        """Return the timeout of the session's transactions. Raises: KafkaError if the timeout is
        not allowed.
        """
        settings = self._table.settings
        if request.enable2_pc:
            if not settings.two_phase_commit_enable:
                raise KafkaError(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return NO_TIMEOUT_MS
        if not 0 < request.transaction_timeout_ms <= settings.transaction_max_timeout_ms:
            raise KafkaError(Code.INVALID_TRANSACTION_TIMEOUT)
        return request.transaction_timeout_ms

    def _check_may_init(
        self, transaction: TransactionMetadata, requester: ProducerIdAndEpoch
    ) -> None:
        """Check that the requester may begin a session. Raises: KafkaError.

        If a producer sends its id and epoch, they must be the current ones. In a retry they may
        also be the previous ones, with which the producer requested the current ones. Kafka lets
        any epoch of the current producer id abort an open transaction; here a fenced producer
        cannot.
        """
        current = transaction.current_producer
        if requester not in (NO_PRODUCER, current, transaction.last_producer):
            raise KafkaError(Code.PRODUCER_FENCED)
        if requester == current and not transaction.is_epoch_given_out:
            raise KafkaError(Code.PRODUCER_FENCED)
        if self._table.is_ending(transaction):
            raise KafkaError(Code.CONCURRENT_TRANSACTIONS)

    def _first_session(
        self, transactional_id: str, timeout_ms: int, context: RequestContext, now_ms: int
    ) -> Result:
        """Begin the first session of a transactional id.

        A request with an earlier producer id is accepted here. It means that the transactional id
        has expired, and that no other producer has used it since.
        """
        created = TransactionMetadata(
            transactional_id,
            self._allocate_producer_id(),
            0,
            timeout_ms,
            last_update_ms=now_ms + self._wall.ahead_ms,
        )
        reply = Reply(context.ticket, init_response(created.producer))
        return self._once_durable(created, [reply])

    def _keep(
        self,
        transaction: TransactionMetadata,
        requester: ProducerIdAndEpoch,
        timeout_ms: int,
        context: RequestContext,
        now_ms: int,
    ) -> Result:
        """Fence the producer of an open transaction. After that only the requester may end the
        transaction.

        The timeout is never shortened, since it must not abort a prepared transaction.

        Raises: KafkaError INVALID_TXN_STATE, see `on_init_producer_id`.
        """
        if transaction.is_two_phase and timeout_ms != NO_TIMEOUT_MS:
            raise KafkaError(Code.INVALID_TXN_STATE)
        current = transaction.current_producer
        is_retry = requester != NO_PRODUCER and requester == transaction.last_producer
        if transaction.is_kept and is_retry:
            producer = current
        elif is_epoch_exhausted(current.producer_epoch):
            producer = ProducerIdAndEpoch(self._allocate_producer_id(), 0)
        else:
            producer = ProducerIdAndEpoch(current.producer_id, current.producer_epoch + 1)
        kept = transaction.kept(
            producer,
            requester,
            max(timeout_ms, transaction.timeout_ms),
            now_ms + self._wall.ahead_ms,
        )
        return self._once_durable(
            kept, [Reply(context.ticket, init_response(producer, kept.producer))]
        )

    def begin_session(
        self, transaction: TransactionMetadata, init: WaitingInit, now_ms: int
    ) -> Result:
        """Begin the session that an InitProducerId requested. Its transactional id has no open
        transaction.
        """
        session = self._next_session(transaction, init, now_ms)
        reply = Reply(init.ticket, init_response(session.producer))
        return self._once_durable(session, [] if init.ticket == NO_TICKET else [reply])

    def _next_session(
        self, transaction: TransactionMetadata, init: WaitingInit, now_ms: int
    ) -> TransactionMetadata:
        """Return the record of the next session of a transactional id that has no open transaction.

        A retry receives the epoch that the first request created, with one exception: if the first
        request led to an abort in version 1, and a crash prevented its response, the retry gets a
        new epoch. The epoch of the abort may be the highest one, which no producer may have. In
        version 2 the abort itself creates the requested epoch.
        """
        is_retry = (
            init.requester != NO_PRODUCER
            and init.requester == transaction.last_producer
            and transaction.is_epoch_given_out
        )
        if is_retry and not init.takes_new_id:
            producer = transaction.producer
        elif init.takes_new_id or is_epoch_exhausted(transaction.producer_epoch):
            producer = ProducerIdAndEpoch(self._allocate_producer_id(), 0)
        else:
            producer = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch + 1)
        return transaction.in_new_session(
            producer, init.requester, init.timeout_ms, now_ms + self._wall.ahead_ms
        )

    def _once_durable(self, session: TransactionMetadata, replies: list[Reply]) -> Result:
        """Return the result that begins a session. The response is sent only after the record is
        durable.

        Otherwise a second producer could get the same epoch after a power loss removed the record.
        """
        result = self._table.result(session.transactional_id, [session], replies)
        result.durable = True
        return result

    # --- the coordinator's own aborts ------------------------------------------------------------

    def fenced(
        self, transaction: TransactionMetadata, requester: ProducerIdAndEpoch, now_ms: int
    ) -> TransactionMetadata:
        """Return the Prepare record by which the coordinator aborts an open transaction.

        At level 2 of transaction.version the record alone does not fence the producer, whose epoch
        is then one behind. The producer receives the new epoch when it requests the abort itself,
        or when it requests its next epoch.

        Takes:  requester, the producer itself if its request is the reason, otherwise NO_PRODUCER.
        """
        wall_ms = now_ms + self._wall.ahead_ms
        if self._table.settings.transaction_version >= VERSION_2:
            return transaction.prepared_with_next_epoch(False, wall_ms, self._allocate_producer_id)
        return transaction.fenced(requester, wall_ms)

    def on_power_loss(self, now_ms: int, *, spares_two_phase: bool = True) -> Result:
        """Give every transactional id another producer id, when the broker starts after a power
        loss.

        A producer on another machine continues its session, but the broker may have lost data of
        this session that was not flushed: an acknowledged batch, the record that a partition is in
        the transaction, an abort. No session may therefore continue: open transactions are aborted,
        and every producer is fenced once. A producer that requests its next epoch (KIP-360)
        receives it.

        Each transactional id gets another producer id, since its next epoch may already be in use:
        an abort of version 2 assigns one and is not flushed. Such aborts are possible at any level
        of transaction.version, which may have changed since.

        An open transaction of two-phase commit stays open with its producer, since every response
        about it was durable. There are two exceptions, a broker whose responses do not wait for the
        disk, and a copy of such a leader's log (`spares_two_phase` is false).
        """
        moved: list[TransactionMetadata] = []
        effects: list[Decision | SessionAtEnd] = []
        spares_two_phase = spares_two_phase and self._table.settings.is_durable
        for transaction in self._table.by_id.values():
            is_open = transaction.state is TransactionState.ONGOING
            if is_open and transaction.is_two_phase and spares_two_phase:
                continue
            requester = (
                transaction.current_producer
                if transaction.is_epoch_given_out
                else transaction.last_producer
            )
            session = WaitingInit(NO_TICKET, requester, transaction.timeout_ms, takes_new_id=True)
            if is_open:
                # The producer is fenced at every level of transaction.version. An abort of version
                # 2 would not fence it, but give it the next epoch.
                fence = transaction.fenced(requester, now_ms + self._wall.ahead_ms)
                effects.append(self._table.decision(fence, session))
            elif transaction.state in PREPARED:
                effects.append(SessionAtEnd(transaction.transactional_id, session))
            else:
                moved.append(self._next_session(transaction, session, now_ms))
        return self._table.results(moved, effects, [])


def _requester(request: InitProducerIdRequest) -> ProducerIdAndEpoch:
    """The producer id and epoch in the request; NO_PRODUCER if a new producer sent it.

    Raises: KafkaError INVALID_REQUEST if only one of id and epoch is set.
    """
    requester = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    if (requester.producer_id == NO_PRODUCER_ID) != (requester.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(Code.INVALID_REQUEST)
    return requester


def init_response(
    producer: ProducerIdAndEpoch, ongoing: ProducerIdAndEpoch = NO_PRODUCER
) -> InitProducerIdResponse:
    """Make the response for a request that succeeded.

    Takes:  ongoing, the producer of the kept transaction.
    """
    return InitProducerIdResponse(
        error_code=Code.NONE,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        ongoing_txn_producer_id=ongoing.producer_id,
        ongoing_txn_producer_epoch=ongoing.producer_epoch,
    )
