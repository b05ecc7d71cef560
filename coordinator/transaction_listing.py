"""ListTransactions: which transactional ids pass its filters. Pure, and in parts.

There may be a hundred thousand ids, with letters of all the world, and a pattern of them that is
costly to read and to run. So a client gets only what its own pattern may cost:

    rows       in slices: the ids that the client may see, and that pass the other filters
    matching   in a thread, where there are many rows or the pattern is long: those of them that the
               pattern matches, and the rows of the answer as they are on the wire

Source: KIP-664; KIP-994 (the duration), KIP-1152 (the pattern).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import NamedTuple

from barnabas.coordinator.transactions.transaction_state import STATE_BY_NAME, TransactionMetadata
from barnabas.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from barnabas.protocol.messages.list_transactions import TransactionState as ListedTransaction
from barnabas.protocol.primitives import Writable

ROWS_OF_A_SLICE = 500
LONGEST_PATTERN_BYTES = (1 << 15) - 1  # as of a heartbeat's
MOST_PAUSES = 200  # of a pattern that is run: some 2 s

Rows = list[ListedTransaction]


class EncodedRows:
    """Rows of an answer that are encoded already: as many, and one that writes them all."""

    def __init__(self, count: int, data: bytes) -> None:
        self._count, self._data = count, data

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Writable]:
        return iter((self,))

    def write(self, out: bytearray, version: int) -> None:
        """Append what was encoded, which is of one version."""
        out += self._data


class Filters(NamedTuple):
    """What a request asks for, but for the pattern."""

    states: frozenset[object] | None
    producer_ids: frozenset[int] | None
    longer_than_ms: int
    now_ms: int

    @classmethod
    def of(cls, request: ListTransactionsRequest, now_ms: int) -> Filters:
        """Takes: now_ms, of the wall clock, which the durations go by."""
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
        """Whether the transaction passes all of them."""
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
    """The rows that pass, of the ids that the client may see; a slice after the other.

    Ids that come in between are not looked at, those that go are left out.
    """
    found = []
    for number, name in enumerate(list(transactions)):
        if number % ROWS_OF_A_SLICE == ROWS_OF_A_SLICE - 1:
            yield
        transaction = transactions.get(name)
        if transaction is not None and filters.pass_for(transaction) and is_visible(name):
            found.append(ListedTransaction(name, transaction.producer_id, transaction.state.value))
    return found


def matching(found: Rows, pattern: str | None) -> Rows | None:
    """Those rows whose whole id the pattern matches; of no pattern, and an empty one, each does.

    None where the text is no pattern, or where it would take too long to run it.
    """
    if not pattern:
        return found
    from barnabas.coordinator.groups.consumer.topic_patterns import (
        InvalidPatternError,
        TopicPattern,
    )

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
    """Whether `matching` and encoding these rows would hold up everybody else."""
    from barnabas.coordinator.groups.consumer.topic_patterns import LONGEST_AT_ONCE

    if len(found) > ROWS_OF_A_SLICE:
        return True
    if not pattern:
        return False
    size = sum(len(row.transactional_id) for row in found)
    return len(pattern) > LONGEST_AT_ONCE or "{" in pattern or size > 32 * ROWS_OF_A_SLICE


def is_too_long(pattern: str | None) -> bool:
    """Whether the pattern is not even read."""
    return pattern is not None and (
        len(pattern) > LONGEST_PATTERN_BYTES or len(pattern.encode()) > LONGEST_PATTERN_BYTES
    )


def answer(request: ListTransactionsRequest) -> ListTransactionsResponse:
    """The answer, still without rows. Each unknown state is listed once."""
    unknown = dict.fromkeys(name for name in request.state_filters if name not in STATE_BY_NAME)
    return ListTransactionsResponse(unknown_state_filters=list(unknown))
