"""Both versions of transactions on one transactional id, in any order, with late and repeated
requests, timeouts, other sessions and kills. The model predicts each response and the outcome of
each transaction.

Source: KIP-890, and tables of Apache Kafka 4.3's responses.
"""

from __future__ import annotations

from typing import Any

from helpers.examples import drawn
from helpers.txn_host import TxnHost
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.coordinator.transactions.transaction_coordinator import TxnSettings
from barnabas.coordinator.transactions.transaction_records import encode_key, encode_value
from barnabas.coordinator.transactions.transaction_state import (
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.topic_partition import TopicPartition

TXN = "txn"
TIMEOUT_MS = 1_000
T0 = TopicPartition("t", 0)
LATE = (Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_ID_MAPPING)
NO_PRODUCER = (-1, -1)

which = st.integers(0, 3)  # 0: the current producer, 1: its predecessor, ...


class Versions(RuleBasedStateMachine):
    """A model of one transactional id.

    `pairs` has all (producer id, epoch) pairs that were assigned, in order. `current` is the pair
    that may continue; it is NO_PRODUCER after an abort below level 2. `is_open` says whether a
    transaction is open. `ended` is the pair whose EndTxn of version 2 led to `current`, and whether
    it committed. `decisions` has, for each ended transaction, whether it committed.
    """

    @initialize(level=st.integers(0, 2), epoch=st.sampled_from([0, 32_763, 32_765]))
    def begin(self, level: int, epoch: int) -> None:
        """Begin with a session. With some epochs, one of the next sessions needs another producer
        id.
        """
        self.level = level
        self.host = TxnHost(settings=TxnSettings(transaction_version=level))
        self.pairs: list[tuple[int, int]] = []
        self.is_open = False
        self.ended: tuple[tuple[int, int], bool] | None = None
        self.decisions: list[bool] = []
        if epoch:
            pid = self.host._ids.allocate()
            metadata = TransactionMetadata(
                TXN, pid, epoch, TIMEOUT_MS, last_update_ms=self.host.now_ms
            )
            self.host._append(0, encode_key(TXN), encode_value(metadata))
        self.begin_session()

    def pair(self, nth: int) -> tuple[int, int]:
        """The pair that was assigned `nth` pairs before the latest one, or an unknown pair if there
        were fewer.
        """
        return self.pairs[-1 - nth] if nth < len(self.pairs) else (9_999, 0)

    def give(self, pair: tuple[int, int]) -> None:
        """Make `pair`, which must be new, the pair of the current producer."""
        assert pair not in self.pairs and 0 <= pair[1] <= 32_766
        if self.pairs and pair[0] == self.pairs[-1][0]:
            assert pair[1] > self.pairs[-1][1], "an epoch went backwards"
        self.pairs.append(pair)
        self.current = pair

    def abort_if_open(self) -> None:
        """Record in the model that an open transaction was aborted."""
        if self.is_open:
            self.decisions.append(False)
        self.is_open = False

    # --- requests --------------------------------------------------------------------------------

    @rule()
    def begin_session(self) -> None:
        """Send InitProducerId, which aborts an open transaction."""
        answer = self.host.init(TXN, timeout_ms=TIMEOUT_MS)
        assert answer.error_code == Code.NONE
        self.abort_if_open()
        self.ended = None
        self.give((answer.producer_id, answer.producer_epoch))

    @rule(nth=which)
    def write(self, nth: int) -> None:
        """Send Produce of version 12, which adds the partition to the transaction and verifies
        it.
        """
        pair = self.pair(nth)
        self.host.handle(
            self.host.coordinator.additions.on_writing(
                TXN, ProducerIdAndEpoch(*pair), [T0], self.host.event_ms()
            )
        )
        code = self.host.coordinator.additions.verify(TXN, *pair, *T0, 12)
        if pair == self.current:
            assert code == Code.NONE
            self.is_open, self.ended = True, None
        else:
            assert code in (Code.INVALID_PRODUCER_EPOCH, Code.INVALID_PRODUCER_ID_MAPPING)

    @rule(nth=which)
    def add(self, nth: int) -> None:
        """Send AddPartitionsToTxn of version 3. Only the current producer may do so."""
        pair = self.pair(nth)
        (code,) = self.host.add(TXN, *pair, {"t": [0]}).values()
        if pair == self.current:
            assert code == Code.NONE
            self.is_open, self.ended = True, None
        else:
            assert code in LATE

    @rule(nth=which, commit=st.booleans())
    def end_in_version_1(self, nth: int, commit: bool) -> None:
        """Send EndTxn of version 3. A repetition with the same outcome succeeds."""
        pair, was_open = self.pair(nth), self.is_open
        code = self.host.end(TXN, *pair, commit)
        if pair != self.current:
            assert code in LATE
        elif was_open:
            assert code == Code.NONE
            self.is_open = False
            self.decisions.append(commit)
        else:
            state = self.host.state(TXN)
            is_again = state == ("CompleteCommit" if commit else "CompleteAbort")
            assert code == (Code.NONE if is_again else Code.INVALID_TXN_STATE)

    @rule(nth=which, commit=st.booleans())
    def end_in_version_2(self, nth: int, commit: bool) -> None:
        """Send EndTxn of version 5, whose response has the next epoch. A repetition with the former
        epoch gets the same response.
        """
        pair = self.pair(nth)
        answer = self.host.call(EndTxnRequest(TXN, *pair, commit), 5)
        given = answer.producer_id, answer.producer_epoch
        if pair == self.current and (self.is_open or not commit):
            assert answer.error_code == Code.NONE
            if self.is_open:
                self.decisions.append(commit)
            self.is_open, self.ended = False, (pair, commit)
            self.give(given)
            return
        if pair == self.current:
            expected: Any = (Code.INVALID_TXN_STATE,)
        elif self.ended is not None and pair == self.ended[0]:
            expected = (Code.NONE,) if commit == self.ended[1] else (Code.INVALID_TXN_STATE,)
        else:
            expected = LATE
        assert answer.error_code in expected
        assert given == (self.current if answer.error_code == Code.NONE else NO_PRODUCER)

    # --- the world -------------------------------------------------------------------------------

    @rule()
    def time_is_up(self) -> None:
        """Let the timeout of an open transaction pass, and check that the transaction is aborted
        with a higher epoch.
        """
        self.host.tick(TIMEOUT_MS)
        if not self.is_open:
            return
        before = self.current
        self.abort_if_open()
        metadata = self.host.coordinator.metadata(TXN)
        assert metadata is not None
        if self.level < 2:
            assert not metadata.is_epoch_given_out
            self.current = NO_PRODUCER
        else:
            self.give(tuple(metadata.producer))
            self.ended = before, False

    @rule()
    def kill(self) -> None:
        self.host.crash()

    @rule()
    def lose_power(self) -> None:
        """Simulate a power loss if the level is 2. At this level it aborts an open transaction with
        a higher epoch.
        """
        if self.level == 2:
            self.host.crash()
            self.host.handle(self.host.coordinator.sessions.on_power_loss(self.host.event_ms()))
            self.abort_if_open()
            metadata = self.host.coordinator.metadata(TXN)
            assert metadata is not None
            self.ended = None
            self.give(tuple(metadata.producer))

    @invariant()
    def each_transaction_ended_as_it_should(self) -> None:
        if hasattr(self, "host"):
            ended = [decision.commit for decision in self.host.written if decision.partitions]
            assert ended == self.decisions

    @invariant()
    def a_fresh_coordinator_equals_the_live_one(self) -> None:
        if hasattr(self, "host"):
            assert self.host.replayed().snapshot() == self.host.coordinator.snapshot()


TestVersions = Versions.TestCase
TestVersions.settings = settings(max_examples=drawn(150), stateful_step_count=25)
