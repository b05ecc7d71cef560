"""Decides which producer may use a transactional id, and which error other producers receive.

These are pure functions. Modules call them as `fencing.require_current(...)`, which lets a test
replace a rule in one place.

Source: KIP-98, KIP-360, KIP-588, KIP-890, KIP-939.
"""

from __future__ import annotations

from barnabas.coordinator.transactions.transaction_state import (
    ProducerIdAndEpoch,
    TransactionMetadata,
    TransactionState,
)
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.request_context import RequestContext


def require_current(
    transaction: TransactionMetadata | None, transactional_id: str, producer: tuple[int, int]
) -> TransactionMetadata:
    """Return the transaction if `producer`, an id and an epoch, is its current producer.

    Raises: KafkaError INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED.
    """
    if not transactional_id:
        raise KafkaError(Code.INVALID_REQUEST)
    if transaction is None:
        raise KafkaError(Code.INVALID_PRODUCER_ID_MAPPING)
    producer_id, producer_epoch = producer
    # the first comparison, which costs no call, is enough unless two-phase commit is used
    if transaction.next_producer_epoch >= 0 and transaction.is_kept:
        current = transaction.current_producer
        if producer_id not in (transaction.producer_id, current.producer_id):
            raise KafkaError(Code.INVALID_PRODUCER_ID_MAPPING)
        if producer != current:
            raise KafkaError(Code.PRODUCER_FENCED)
        return transaction
    if transaction.producer_id != producer_id:
        if _is_of_last_session(transaction, producer_id):
            raise KafkaError(Code.PRODUCER_FENCED)
        raise KafkaError(Code.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != producer_epoch or not transaction.is_epoch_given_out:
        raise KafkaError(Code.PRODUCER_FENCED)
    return transaction


def require_current_or_last(
    transaction: TransactionMetadata | None, transactional_id: str, producer: ProducerIdAndEpoch
) -> tuple[TransactionMetadata, bool]:
    """Return the transaction, and whether `producer` repeats the request that ended it (see
    `ENDS_OF_VERSION_2`).

    Raises: KafkaError, as `require_current`.
    """
    if transaction is not None and transactional_id and transaction.was_ended_by(producer):
        return transaction, True
    return require_current(transaction, transactional_id, producer), False


def _is_of_last_session(transaction: TransactionMetadata, producer_id: int) -> bool:
    """Whether the producer still uses the producer id of the previous session. This happens after a
    power loss.
    """
    is_new = transaction.state is TransactionState.EMPTY
    return is_new and producer_id == transaction.previous_producer_id


def code_for_version(code: Code, context: RequestContext, first_version: int) -> Code:
    """Replace PRODUCER_FENCED by INVALID_PRODUCER_EPOCH if the version of the request does not know
    it.

    Takes:  first_version, the first version of the request that knows PRODUCER_FENCED.
    """
    if code is Code.PRODUCER_FENCED and context.api_version < first_version:
        return Code.INVALID_PRODUCER_EPOCH
    return code
