"""ListTransactions and DescribeTransactions: functions over the transactional ids, without I/O.

ListTransactions works in two steps. There may be a hundred thousand ids with any Unicode
characters, and a pattern may take long to compile and match:

    rows       in slices: the ids that the client may see, and that pass the other filters
    matching   in a thread if there are many rows or the pattern is long: the rows that the
               pattern matches, with their encoding for the response

Source: KIP-664; KIP-994 (the duration), KIP-1152 (the pattern).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import NamedTuple

from barnabas.coordinator.groups.consumer.topic_patterns import (
    LONGEST_AT_ONCE,
    InvalidPatternError,
    TopicPattern,
)
from barnabas.coordinator.transactions.transaction_state import STATE_BY_NAME, TransactionMetadata
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from barnabas.protocol.messages.describe_transactions import (
    TransactionState as DescribedTransaction,
)
from barnabas.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from barnabas.protocol.messages.list_transactions import TransactionState as ListedTransaction
from barnabas.protocol.primitives import Writable

ROWS_AT_ONCE = 500
LONGEST_PATTERN_BYTES = (1 << 15) - 1  # the same limit as for the pattern in a heartbeat
MOST_PAUSES = 200  # the maximum number of pauses while a pattern is matched, reached after some 2 s

Rows = list[ListedTransaction]


class EncodedRows:
    """Rows of a response that are already encoded.

    Its length is the number of rows. It contains one element, which writes all of them.
    """

    def __init__(self, count: int, data: bytes) -> None:
        self._count, self._data = count, data

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Writable]:
        return iter((self,))

    def write(self, out: bytearray, version: int) -> None:
        """Append the encoded rows. `version` must be the version for which they were encoded."""
        out += self._data


class Filters(NamedTuple):
    """The filters of a request, without its pattern."""

    states: frozenset[object] | None
    producer_ids: frozenset[int] | None
    longer_than_ms: int
    now_ms: int

    @classmethod
    def of(cls, request: ListTransactionsRequest, now_ms: int) -> Filters:
        """Make the filters of a request.

        Takes:  now_ms, the wall-clock time, from which durations are computed.
        """
        names, ids = request.state_filters, request.producer_id_filters
        return cls(
            frozenset(STATE_BY_NAME[name] for name in names if name in STATE_BY_NAME)
            if names
            else None,
            frozenset(ids) if ids else None,
            request.duration_filter,
            now_ms,
        )

    def pass_for(self, transaction: TransactionMetadata) -> bool:
        """Whether the transaction passes all filters."""
        if self.states is not None and transaction.state not in self.states:
            return False
        if self.producer_ids is not None and transaction.producer_id not in self.producer_ids:
            return False
        return self.longer_than_ms < 0 or self.now_ms - transaction.start_ms > self.longer_than_ms


def rows(
    transactions: Mapping[str, TransactionMetadata],
    filters: Filters,
    is_visible: Callable[[str], bool],
) -> Generator[None, int, Rows]:
    """List the ids that pass the filters and that the client may see, in slices.

    Ids that are created, or that expire, while the list is being made are not listed.
    """
    found = []
    for number, name in enumerate(list(transactions)):
        if number % ROWS_AT_ONCE == ROWS_AT_ONCE - 1:
            yield
        transaction = transactions.get(name)
        if transaction is not None and filters.pass_for(transaction) and is_visible(name):
            found.append(ListedTransaction(name, transaction.producer_id, transaction.state.value))
    return found


def matching(found: Rows, pattern: str | None) -> Rows | None:
    """Return the rows whose whole id matches the pattern, or all rows if the pattern is None or
    empty.

    Gives:  None if the text is not a pattern, or if matching it would take too long.
    """
    if not pattern:
        return found

    letters: set[str] = set()
    for row in found:
        letters.update(row.transactional_id)
    try:
        made = TopicPattern(pattern, frozenset(letters))
    except InvalidPatternError:
        return None
    lookup = made.matching([row.transactional_id for row in found])
    try:
        for _ in range(MOST_PAUSES):
            next(lookup)
    except StopIteration as end:
        matched = frozenset(end.value)
        return [row for row in found if row.transactional_id in matched]
    return None


def takes_long(found: Rows, pattern: str | None) -> bool:
    """Whether matching and encoding these rows would delay other requests."""
    if len(found) > ROWS_AT_ONCE:
        return True
    if not pattern:
        return False
    size = sum(len(row.transactional_id) for row in found)
    return len(pattern) > LONGEST_AT_ONCE or "{" in pattern or size > 32 * ROWS_AT_ONCE


def is_too_long(pattern: str | None) -> bool:
    """Whether the pattern is longer than a request allows."""
    return pattern is not None and (
        len(pattern) > LONGEST_PATTERN_BYTES or len(pattern.encode()) > LONGEST_PATTERN_BYTES
    )


def answer(request: ListTransactionsRequest) -> ListTransactionsResponse:
    """Make the response without its rows. It lists each unknown state filter once."""
    unknown = dict.fromkeys(name for name in request.state_filters if name not in STATE_BY_NAME)
    return ListTransactionsResponse(unknown_state_filters=list(unknown))


# --- DescribeTransactions ------------------------------------------------------------------------


def described(
    request: DescribeTransactionsRequest, transactions: Mapping[str, TransactionMetadata]
) -> DescribeTransactionsResponse:
    """The response, with an error for each id that is empty or unknown."""
    return DescribeTransactionsResponse(
        transaction_states=[
            _description(transactional_id, transactions.get(transactional_id))
            for transactional_id in request.transactional_ids
        ]
    )


def _description(
    transactional_id: str, transaction: TransactionMetadata | None
) -> DescribedTransaction:
    """The row of a transactional id. If the id is empty or unknown, the row has an error code."""
    if transaction is None:
        code = Code.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else Code.INVALID_REQUEST
        return DescribedTransaction(
            error_code=code,
            transactional_id=transactional_id,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=0,
            producer_id=0,
            producer_epoch=0,
            topics=[],
        )
    topics: dict[str, list[int]] = {}
    for topic, partition in transaction.partitions:
        topics.setdefault(topic, []).append(partition)
    return DescribedTransaction(
        error_code=Code.NONE,
        transactional_id=transactional_id,
        transaction_state=transaction.state.value,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
    )
