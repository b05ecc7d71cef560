"""The responses to EndTxn, compared with a table of Apache Kafka's responses.

Source: Apache Kafka 4.3, TransactionCoordinator.endTransaction and endTransactionWithTV1. In Kafka,
a transaction has a pending transition while it is in a PREPARE_* state, and while its Prepare
record is being appended. The row "pending" covers both cases.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers.txn_host import TxnHost

from barnabas.coordinator.transactions.transaction_state import (
    MAX_PRODUCER_EPOCH,
    ProducerIdAndEpoch,
    TransactionState,
)
from barnabas.protocol.errors import Code

TXN, T0 = "txn", ("t", 0)
ENDS = "ends it"
NONE, FENCED, STATE = Code.NONE, Code.PRODUCER_FENCED, Code.INVALID_TXN_STATE
BUSY, MAPPING = Code.CONCURRENT_TRANSACTIONS, Code.INVALID_PRODUCER_ID_MAPPING
PRODUCERS = "current", "former", "older", "next", "another id"
OTHERS = ((FENCED, FENCED), (FENCED, FENCED), (MAPPING, MAPPING))  # older, next, another id
ALL_FENCED = ((FENCED, FENCED), *OTHERS)
ALL_BUSY = ((BUSY, BUSY),) * 5

Row = tuple[tuple[object, object], ...]
# Each row has a pair for each of PRODUCERS: the responses to a commit and to an abort.
VERSION_4: dict[str, Row] = {
    "Empty": ((STATE, STATE), *ALL_FENCED),
    "Ongoing": ((ENDS, ENDS), *ALL_FENCED),
    "pending": ((BUSY, BUSY), *ALL_FENCED),
    # Only the coordinator uses the fencing epoch. No producer has it.
    "fenced": ((FENCED, FENCED), *ALL_FENCED),
    "CompleteCommit": ((NONE, STATE), *ALL_FENCED),
    "CompleteAbort": ((STATE, NONE), *ALL_FENCED),
}
VERSION_5: dict[str, Row] = {
    "Empty": ((STATE, ENDS), *ALL_FENCED),
    "Ongoing": ((ENDS, ENDS), *ALL_FENCED),
    # Kafka looks for a pending transition before it checks the producer id and epoch.
    "pending": ALL_BUSY,
    "fenced": ALL_BUSY,
    "CompleteCommit": ((STATE, ENDS), (NONE, STATE), *OTHERS),
    "CompleteAbort": ((STATE, ENDS), (STATE, NONE), *OTHERS),
}


class Ended(TxnHost):
    """A coordinator with one transactional id in a given state.

    version: the version of the EndTxn that led to this state.
    """

    def __init__(self, version: int) -> None:
        """A host with a transactional id that has had three epochs, so that the former epoch and an
        older one exist.
        """
        super().__init__()
        self._version = version
        for _ in range(3):
            self.init(TXN)

    @property
    def current(self) -> ProducerIdAndEpoch:
        transaction = self.coordinator.metadata(TXN)
        assert transaction is not None
        return transaction.producer

    def begin(self) -> None:
        """Open a transaction, by AddPartitionsToTxn before version 5, and by a write from version 5
        on (KIP-890).
        """
        producer = self.current
        if self._version < 5:
            self.add(TXN, *producer, {"t": [0]})
        else:
            self.handle(self.coordinator.additions.on_writing(TXN, producer, [T0], self.event_ms()))

    def decide(self, *, commit: bool) -> None:
        self.begin()
        self.end(TXN, *self.current, commit, version=self._version, call=False)

    def prepare(self, *, commit: bool) -> None:
        """Decide on the transaction, but leave its markers unwritten."""
        self.writes_markers = False
        self.decide(commit=commit)
        assert self.state(TXN) == ("PrepareCommit" if commit else "PrepareAbort")

    def decide_without_record(self) -> None:
        """Decide on the transaction in the flush journal, without appending the Prepare record."""
        self.begin()
        self.decided.add(TXN)

    def fence(self) -> None:
        """Let the transaction time out, which aborts it."""
        self.writes_markers = False
        self.begin()
        self.tick(60_000)
        assert self.state(TXN) == "PrepareAbort"


WAYS: dict[str, tuple[str, Callable[[Ended], None]]] = {
    "Empty": ("Empty", lambda host: None),
    "Ongoing": ("Ongoing", Ended.begin),
    "PrepareCommit": ("pending", lambda host: host.prepare(commit=True)),
    "PrepareAbort": ("pending", lambda host: host.prepare(commit=False)),
    "PrepareAbort of a timeout": ("fenced", Ended.fence),
    "decided": ("pending", Ended.decide_without_record),
    "CompleteCommit": ("CompleteCommit", lambda host: host.decide(commit=True)),
    "CompleteAbort": ("CompleteAbort", lambda host: host.decide(commit=False)),
}


def requester(host: Ended, name: str) -> ProducerIdAndEpoch:
    """The id and epoch of a producer, which the table names relative to the current id and
    epoch.
    """
    pid, epoch = host.current
    return {
        "current": ProducerIdAndEpoch(pid, epoch),
        "former": ProducerIdAndEpoch(pid, epoch - 1),
        "older": ProducerIdAndEpoch(pid, epoch - 2),
        "next": ProducerIdAndEpoch(pid, epoch + 1),
        "another id": ProducerIdAndEpoch(pid + 1, epoch),
    }[name]


def answer_of(host: Ended, producer: ProducerIdAndEpoch, commit: bool, version: int) -> object:
    """The error code of an EndTxn, or ENDS if it ends the transaction."""
    host.writes_markers = False
    ended, records = len(host.markers), len(host.log)
    ticket = host.end(TXN, *producer, commit, version=version, call=False)
    if len(host.markers) > ended:
        assert host.markers[-1].commit == commit
        return ENDS
    assert len(host.log) == records, "a refused request wrote a record"
    answer = host.answers.pop(ticket)
    given = ProducerIdAndEpoch(-1, -1)
    if version >= 5:
        given = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
    is_given = answer.error_code == NONE and version >= 5
    assert given == (host.current if is_given else (-1, -1))
    return Code(answer.error_code)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("version", "table"), [(4, VERSION_4), (5, VERSION_5)])
def test_the_answers_are_those_of_kafka(way: str, version: int, table: dict[str, Row]) -> None:
    """WAYS bring the transaction into each state. For that state, the table has the error codes of
    a commit and an abort by each producer.
    """
    state, enter = WAYS[way]
    for name, codes in zip(PRODUCERS, table[state], strict=True):
        for commit, code in zip((True, False), codes, strict=True):
            host = Ended(version)
            enter(host)
            got = answer_of(host, requester(host, name), commit, version)
            assert got == code, f"{way}: {'commit' if commit else 'abort'} of the {name}"


@pytest.mark.parametrize("commit", [True, False])
def test_a_repeated_end_txn_that_exhausted_the_producer_id_succeeds_again(*, commit: bool) -> None:
    """The epoch was the last one of its producer id. Apache Kafka calls this case
    `retryOnOverflow`.
    """
    host = Ended(5)
    transaction = host.coordinator.metadata(TXN)
    assert transaction is not None
    last = transaction._replace(producer_epoch=MAX_PRODUCER_EPOCH - 1)
    host.coordinator.apply(last)
    former = host.current
    host.decide(commit=commit)
    assert host.current.producer_id != former.producer_id
    assert host.current.producer_epoch == 0
    assert answer_of(host, former, commit, 5) == NONE
    assert answer_of(host, former, not commit, 5) == STATE
    assert answer_of(host, former._replace(producer_epoch=7), commit, 5) == MAPPING


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_txn_of_a_fenced_producer_does_not_return_the_new_sessions_epoch(
    *, commit: bool
) -> None:
    """This differs from Apache Kafka (see coordinator/README.md). Kafka assumes that the producer
    with the previous epoch ended the transaction, even if a new session raised the epoch and an
    EndTxn of version 1 ended the transaction.
    """
    host = Ended(4)
    pid, epoch = host.current
    host.decide(commit=commit)
    assert host.state(TXN) in ("CompleteCommit", "CompleteAbort")
    assert host.current == (pid, epoch)
    for again in (commit, not commit):
        assert answer_of(host, ProducerIdAndEpoch(pid, epoch - 1), again, 5) == FENCED


def test_an_end_txn_of_an_unknown_transactional_id_is_refused() -> None:
    host = Ended(5)
    for version in (4, 5):
        assert host.end("unknown", *host.current, True, version=version) == MAPPING
        assert host.end("", *host.current, True, version=version) == Code.INVALID_REQUEST


def test_every_state_in_which_a_request_can_find_a_transaction_is_in_the_table() -> None:
    """The table has no rows for two states. A transaction in DEAD is removed in the step that
    enters the state, and one in PREPARE_EPOCH_FENCE leaves it in that step.
    """
    seen = set()
    for _, enter in WAYS.values():
        host = Ended(5)
        enter(host)
        seen.add(host.state(TXN))
    never = {TransactionState.DEAD.value, TransactionState.PREPARE_EPOCH_FENCE.value}
    assert seen == {state.value for state in TransactionState} - never
