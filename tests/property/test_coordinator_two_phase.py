"""Sessions of two-phase commit on one transactional id. Transactions are prepared, kept, ended,
aborted and abandoned in any order, with kills, power losses and pauses of any length in between.
The model says which producer may do what.

Source: KIP-939.
"""

from __future__ import annotations

from typing import Any

from helpers.examples import drawn
from helpers.txn_host import TxnHost
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.coordinator.transactions.transaction_records import encode_key, encode_value
from barnabas.coordinator.transactions.transaction_state import (
    NO_PRODUCER,
    NO_TIMEOUT_MS,
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from barnabas.coordinator.transactions.transaction_table import TxnSettings
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.topic_partition import TopicPartition

TXN = "txn"
TIMEOUT_MS = 1_000
T0 = TopicPartition("t", 0)
LATE = (Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_ID_MAPPING)

timeouts = st.sampled_from([TIMEOUT_MS, 3 * TIMEOUT_MS])
which = st.sampled_from([0, 0, 0, 0, 1, 2])  # 0: the current producer, 1: its predecessor, ...


class Prepared(RuleBasedStateMachine):
    """A model of one transactional id, with two-phase commit.

    `pairs` has all assigned (producer id, epoch) pairs. `writer` is the pair with the open
    transaction, or None. `is_kept` says whether the current producer is another one, and
    `has_offsets` whether the transaction has offsets of a group. With `is_two_phase` the
    transaction never times out; otherwise it is aborted `timeout_ms` after `began_ms`. `decisions`
    has, for each ended transaction, whether it committed.
    """

    @initialize(level=st.integers(0, 2), epoch=st.sampled_from([0, 32_762, 32_765]))
    def begin(self, level: int, epoch: int) -> None:
        """Begin with a session of two-phase commit. With some epochs, one of the next sessions
        needs another producer id.
        """
        chosen = TxnSettings(transaction_version=level, two_phase_commit_enable=True)
        self.level, self.host = level, TxnHost(settings=chosen)
        self.pairs: list[tuple[int, int]] = []
        self.writer: tuple[int, int] | None = None
        self.is_kept = self.is_two_phase = self.has_offsets = False
        self.timeout_ms, self.began_ms = TIMEOUT_MS, 0
        self.decisions: list[bool] = []
        if epoch:
            pid = self.host._ids.allocate()
            metadata = TransactionMetadata(
                TXN, pid, epoch, NO_TIMEOUT_MS, last_update_ms=self.host.now_ms
            )
            self.host._append(0, encode_key(TXN), encode_value(metadata))
        self.begin_session(enable=True)

    def pair(self, nth: int) -> tuple[int, int]:
        return self.pairs[-1 - nth] if nth < len(self.pairs) else (9_999, 0)

    def give(self, pair: tuple[int, int]) -> None:
        """Make `pair`, which must be new, the pair of the current producer."""
        assert pair not in self.pairs and 0 <= pair[1] <= 32_766
        if self.pairs and pair[0] == self.pairs[-1][0]:
            assert pair[1] > self.pairs[-1][1], "an epoch went backwards"
        self.pairs.append(pair)
        self.current = pair

    def end(self, commit: bool) -> None:
        """Record in the model that the open transaction, if there is one, was committed or
        aborted.
        """
        if self.writer is not None:
            self.decisions.append(commit)
        self.writer, self.is_kept, self.has_offsets = None, False, False

    def init(self, *, enable: bool, keep: bool, timeout_ms: int = TIMEOUT_MS) -> Any:
        asked = InitProducerIdRequest(TXN, timeout_ms, enable2_pc=enable, keep_prepared_txn=keep)
        return self.host.call(asked, 6)

    # --- requests --------------------------------------------------------------------------------

    @rule(enable=st.booleans(), timeout_ms=timeouts)
    def begin_session(self, enable: bool, timeout_ms: int = TIMEOUT_MS) -> None:
        """Send InitProducerId without keepPreparedTxn, which aborts an open transaction."""
        answer = self.init(enable=enable, keep=False, timeout_ms=timeout_ms)
        assert answer.error_code == Code.NONE and answer.ongoing_txn_producer_id == -1
        self.end(False)
        self.is_two_phase, self.timeout_ms = enable, timeout_ms
        self.give((answer.producer_id, answer.producer_epoch))

    @rule(enable=st.booleans(), timeout_ms=timeouts)
    def keep(self, enable: bool, timeout_ms: int) -> None:
        """Send InitProducerId with keepPreparedTxn. An open transaction stays open and keeps its
        own producer.
        """
        answer = self.init(enable=enable, keep=True, timeout_ms=timeout_ms)
        if self.writer is not None and self.is_two_phase and not enable:
            assert answer.error_code == Code.INVALID_TXN_STATE
            return
        assert answer.error_code == Code.NONE
        self.is_kept, self.is_two_phase = self.writer is not None, enable
        # The open transaction may have been prepared with the longer timeout.
        self.timeout_ms = max(self.timeout_ms, timeout_ms) if self.is_kept else timeout_ms
        ongoing = (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)
        assert ongoing == (self.writer or NO_PRODUCER), "the prepared transaction keeps its name"
        self.give((answer.producer_id, answer.producer_epoch))

    @rule(first_ms=timeouts, then_ms=timeouts)
    def prepare_and_keep(self, first_ms: int, then_ms: int) -> None:
        """Keep a transaction in a later session that has a long timeout and no two-phase commit."""
        self.begin_session(enable=False, timeout_ms=first_ms)
        self.write(0)
        self.keep(enable=False, timeout_ms=then_ms)

    @rule(nth=which)
    def write(self, nth: int) -> None:
        """Produce as the nth last producer. Only the current producer may do so, and only if no
        transaction is kept.
        """
        pair = self.pair(nth)
        coordinator = self.host.coordinator
        asked = (TXN, ProducerIdAndEpoch(*pair), [T0], self.host.event_ms())
        self.host.handle(coordinator.additions.on_writing(*asked))
        code = coordinator.additions.verify(TXN, *pair, *T0, 12)
        if pair != self.current:
            assert code in (Code.INVALID_PRODUCER_EPOCH, Code.INVALID_PRODUCER_ID_MAPPING)
        elif self.is_kept:
            assert code == Code.INVALID_TXN_STATE
        else:
            assert code == Code.NONE
            self.joined(pair)

    def joined(self, pair: tuple[int, int]) -> None:
        if self.writer is None:
            self.began_ms = self.host.now_ms
        self.writer = pair

    @rule(nth=which, version=st.sampled_from([3, 5]))
    def commit_offsets(self, nth: int, version: int) -> None:
        pair = self.pair(nth)
        coordinator = self.host.coordinator
        if version == 5:
            asked = (TXN, ProducerIdAndEpoch(*pair), "group", self.host.event_ms())
            self.host.handle(coordinator.additions.on_writing_offsets(*asked))
        else:
            self.host.add_offsets(TXN, *pair, "group")
        open_epoch = None
        if self.has_offsets and self.writer is not None and self.writer[0] == pair[0]:
            open_epoch = self.writer[1]
        code = coordinator.additions.verify_offsets(TXN, *pair, "group", version, open_epoch)
        if pair == self.current and not self.is_kept:
            assert code == Code.NONE
            self.joined(pair)
            self.has_offsets = True
        else:
            assert code in (
                Code.INVALID_PRODUCER_EPOCH,
                Code.INVALID_PRODUCER_ID_MAPPING,
                Code.INVALID_TXN_STATE,
            )

    @rule(enable=st.booleans(), nth=which, version=st.sampled_from([3, 5]))
    def prepare_offsets_and_keep(self, enable: bool, nth: int, version: int) -> None:
        """Prepare a transaction with offsets and keep it. Then one of the producers commits further
        offsets.
        """
        self.begin_session(enable=enable)
        self.commit_offsets(0, version)
        self.keep(enable=enable, timeout_ms=TIMEOUT_MS)
        self.commit_offsets(nth, version)

    @rule(nth=which, commit=st.booleans(), version=st.sampled_from([4, 5, 5]))
    def finish(self, nth: int, commit: bool, version: int) -> None:
        """End the transaction as the nth last producer. Only the current producer may do so."""
        pair = self.pair(nth)
        was_open = self.writer is not None
        answer = self.host.call(EndTxnRequest(TXN, *pair, commit), version)
        if pair == self.current and was_open:
            assert answer.error_code == Code.NONE
            self.end(commit)
            if version == 5:
                self.give((answer.producer_id, answer.producer_epoch))
        elif was_open:
            assert answer.error_code in LATE
        elif pair == self.current and version == 5 and not commit:  # without a transaction
            assert answer.error_code == Code.NONE
            self.give((answer.producer_id, answer.producer_epoch))
        # The other cases, a repeated EndTxn and one without a transaction, are covered by other
        # tests.

    # --- the world -------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([TIMEOUT_MS, TIMEOUT_MS, NO_TIMEOUT_MS]))
    def time_goes_by(self, ms: int) -> None:
        """Let time pass. Only a transaction without two-phase commit is aborted at its timeout."""
        if ms > TIMEOUT_MS and self.writer is None:
            return  # the transactional id would expire in a longer time
        self.host.tick(ms)
        if self.writer is None or self.is_two_phase:
            return
        if self.host.now_ms < self.began_ms + self.timeout_ms:
            return
        self.end(False)
        metadata = self.host.coordinator.metadata(TXN)
        assert metadata is not None
        if self.level < 2:
            assert not metadata.is_epoch_given_out
            self.begin_session(enable=True)
        else:
            self.give(tuple(metadata.producer))

    @rule()
    def kill(self) -> None:
        self.host.crash()

    @rule()
    def lose_power(self) -> None:
        """Simulate a power loss. It aborts any transaction without two-phase commit, since some of
        its records may be lost.
        """
        if self.level < 2:
            return
        self.host.crash()
        self.host.handle(self.host.coordinator.sessions.on_power_loss(self.host.event_ms()))
        if self.writer is not None and self.is_two_phase:
            return
        self.end(False)
        metadata = self.host.coordinator.metadata(TXN)
        assert metadata is not None
        self.give(tuple(metadata.producer))

    @invariant()
    def an_open_transaction_is_described_with_its_own_producer(self) -> None:
        if hasattr(self, "host"):
            (row,) = self.host.describe(TXN)
            is_open = row.transaction_state == "Ongoing"
            assert is_open == (self.writer is not None)
            if is_open:
                assert (row.producer_id, row.producer_epoch) == self.writer
                assert (row.transaction_timeout_ms == NO_TIMEOUT_MS) == self.is_two_phase

    @invariant()
    def each_transaction_ended_as_it_should(self) -> None:
        if hasattr(self, "host"):
            ended = [decision.commit for decision in self.host.written if decision.partitions]
            assert ended == self.decisions

    @invariant()
    def a_fresh_coordinator_equals_the_live_one(self) -> None:
        if hasattr(self, "host"):
            fresh, live = self.host.replayed(), self.host.coordinator
            assert fresh.snapshot() == live.snapshot()
            assert (fresh.two_phase, fresh.kept_from) == (live.two_phase, live.kept_from)


TestPrepared = Prepared.TestCase
TestPrepared.settings = settings(max_examples=drawn(70), stateful_step_count=30)
