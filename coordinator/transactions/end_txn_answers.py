"""The error codes in responses to EndTxn, depending on the state of the transaction.

In the tables, None means that the request is accepted and decides the transaction. In version 1, an
EndTxn for a transaction that is not open may be a retry or a mistake, and its epoch does not show
which. In version 2 each end raises the epoch, which distinguishes the two. The tables do not list
the states in which a transaction is ending: every EndTxn then receives CONCURRENT_TRANSACTIONS, and
the client repeats it later.

Source: KIP-98; KIP-890, part two, as Apache Kafka 4.3 implements it.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.coordinator.transactions.transaction_state import TransactionState
from barnabas.protocol.errors import Code

_S = TransactionState
_PF, _ITS = Code.PRODUCER_FENCED, Code.INVALID_TXN_STATE
_DECIDES = None
ENDS_OF_VERSION_2: Mapping[TransactionState, tuple[Code | None, ...]] = {
    # The columns: abort (repeated request, new request), commit (repeated request, new request).
    _S.EMPTY: (_PF, _DECIDES, _PF, _ITS),
    _S.ONGOING: (_PF, _DECIDES, _PF, _DECIDES),
    _S.COMPLETE_ABORT: (Code.NONE, _DECIDES, _ITS, _ITS),
    _S.COMPLETE_COMMIT: (_ITS, _DECIDES, Code.NONE, _ITS),
}
"""The answer to an EndTxn of version 2.

A new request comes from the current producer. A repeated one comes from the producer whose end led
to the current epoch, and which did not receive the answer to it.
"""


def code_of_version_1(state: TransactionState, commit: bool) -> Code | None:
    """Return the code for an EndTxn of version 1 from the current producer, or None if the request
    decides the transaction.

    If no transaction is open and the last one ended in the same way, the request is a retry, and
    the code is NONE.
    """
    if state is TransactionState.ONGOING:
        return None
    if state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT):
        return Code.NONE
    return Code.INVALID_TXN_STATE


def code_of_version_2(state: TransactionState, commit: bool, *, is_again: bool) -> Code | None:
    """Return the code for an EndTxn of version 2, or None if the request decides the transaction.

    Takes:  is_again, whether the producer that ended the last transaction repeats its request.
    """
    return ENDS_OF_VERSION_2[state][2 * commit + (not is_again)]
