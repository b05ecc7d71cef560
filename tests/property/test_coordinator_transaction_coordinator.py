"""Invariants of TransactionCoordinator after every step, for any order of requests, ticks, flushes,
written markers and crashes.

The host (helpers/txn_host.py) holds back responses and markers until all earlier records are
flushed, and a crash truncates the log to the flushed records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from helpers.examples import drawn
from helpers.txn_host import TxnHost
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.coordinator.internal_topics import OFFSETS_TOPIC
from barnabas.coordinator.result import partition_for
from barnabas.coordinator.transactions.transaction_records import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from barnabas.coordinator.transactions.transaction_state import (
    TransactionMetadata,
    TransactionState,
)
from barnabas.coordinator.transactions.transaction_table import TxnSettings
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest

TXNS = ("one", "two", "three")
PARTITIONS = (("t", 0), ("t", 1), ("t", 2), ("u", 0))
FOLLOWS = {
    None: {"Empty"},
    "Empty": {"Empty", "Ongoing"},
    "Ongoing": {"Ongoing", "PrepareCommit", "PrepareAbort"},
    "PrepareCommit": {"CompleteCommit"},
    "PrepareAbort": {"CompleteAbort"},
    "CompleteCommit": {"Empty", "Ongoing"},
    "CompleteAbort": {"Empty", "Ongoing"},
}
Producer = tuple[int, int]

txns = st.sampled_from(TXNS)
which = st.integers(0, 4)  # which producer of a transactional id: 0 is the newest one
some_partitions = st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=3, unique=True)


class TransactionCoordinatorMachine(RuleBasedStateMachine):
    """Random requests to a coordinator, and the checks of its responses. `granted` has, by
    transactional id, the (producer id, epoch) of each session that got a response, oldest first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.host = TxnHost(
            settings=TxnSettings(transactional_id_expiration_ms=5_000),
            writes_markers=False,
            flushes=False,
        )
        self.granted: dict[str, list[Producer]] = {txn: [] for txn in TXNS}
        self.checks: dict[int, Callable[[Any], None]] = {}
        self.partitions_of: dict[int, int] = {}

    @initialize(
        epochs=st.lists(st.sampled_from([-1, 0, 32764, 32765, 32766]), min_size=3, max_size=3)
    )
    def some_are_near_their_last_epoch(self, epochs: list[int]) -> None:
        """Begin with transactional ids of which some soon need another producer id, since epochs
        end at 32767.
        """
        for txn, epoch in zip(TXNS, epochs, strict=True):
            if epoch < 0:
                continue
            pid = self.host._ids.allocate()
            metadata = TransactionMetadata(txn, pid, epoch, 1_000, last_update_ms=self.host.now_ms)
            self.host._append(
                partition_for(txn, self.host.partition_count),
                encode_key(txn),
                encode_value(metadata),
            )
            self.granted[txn].append((pid, epoch))
        self.host.flush()

    # requests

    def producer(self, txn: str, nth: int) -> Producer:
        """The producer id and epoch that the transactional id got `nth` pairs before its latest
        pair. If it has got fewer pairs, the result is an unknown pair.
        """
        had = self.granted[txn]
        if nth < len(had):
            return had[-1 - nth]
        return (had[-1][0], had[-1][1] + 1) if had else (777, 0)

    def is_current(self, txn: str, producer: Producer) -> bool:
        found = self.host.coordinator.metadata(txn)
        return found is not None and found.producer == producer and found.is_epoch_given_out

    def sent(self, request: Any, version: int, check: Callable[[Any], None]) -> None:
        """Send a request, and have `check` called with its response."""
        ticket = self.host.send(request, version)
        self.checks[ticket] = check
        self.take_answers()

    def take_answers(self) -> None:
        for ticket in list(self.host.answers):
            self.checks.pop(ticket)(self.host.answers.pop(ticket))

    def durable(self, txn: str) -> list[TransactionMetadata | None]:
        """The states of `txn` in the flushed records, which survive a crash."""
        rows = self.host.log[: self.host.flushed_count]
        return [
            None if value is None else decode_value(txn, value)
            for _, _, key, value in rows
            if decode_key(key) == txn
        ]

    @rule(txn=txns, nth=st.none() | which, timeout_ms=st.sampled_from([500, 1_000, 3_000]))
    def init(self, txn: str, nth: int | None, timeout_ms: int) -> None:
        """Send InitProducerId, either for a new session or to continue that of the nth last
        producer. Only the current producer and the one before it may continue.
        """
        asked_by = None if nth is None else self.producer(txn, nth)
        known = (
            asked_by is None
            or self.host.coordinator.metadata(txn) is None
            or asked_by in self.known_to(txn)
        )

        def check(answer: Any) -> None:
            if answer.error_code:
                assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
                assert answer.error_code in (
                    (Code.CONCURRENT_TRANSACTIONS,) if known else (Code.PRODUCER_FENCED,)
                )
                return
            assert known, (
                f"{asked_by} is fenced, and began again as "
                f"{answer.producer_id, answer.producer_epoch}"
            )
            session = answer.producer_id, answer.producer_epoch
            assert any(
                found and found.producer == session and found.state.value == "Empty"
                for found in self.durable(txn)
            )
            assert session[1] < 32767, "the last epoch is the coordinator's"
            had = self.granted[txn]
            if session in had:
                assert asked_by is not None and had[-1] == session, (
                    "an epoch was given twice, and not to one who asks again"
                )
            else:
                assert not had or session[0] != had[-1][0] or session[1] > had[-1][1]
                assert not any(session in others for others in self.granted.values())
                had.append(session)

        pid, epoch = asked_by or (-1, -1)
        before = len(self.host.log)
        self.sent(
            InitProducerIdRequest(
                transactional_id=txn,
                transaction_timeout_ms=timeout_ms,
                producer_id=pid,
                producer_epoch=epoch,
            ),
            4,
            check,
        )
        self.check_fenced(before)

    def check_fenced(self, since: int) -> None:
        """Check the records from `since` on. If an abort fenced a producer, no producer may have
        got the epoch of the abort.
        """
        for _, _, key, value in self.host.log[since:]:
            txn = decode_key(key)
            found = None if txn is None or value is None else decode_value(txn, value)
            if found is not None and found.state is TransactionState.PREPARE_ABORT:
                assert found.producer not in self.granted[found.transactional_id]

    def known_to(self, txn: str) -> list[Producer]:
        """The producers that may continue: the current one and the one before it."""
        found = self.host.coordinator.metadata(txn)
        return (
            []
            if found is None
            else [*([found.producer] if found.is_epoch_given_out else ()), found.last_producer]
        )

    @rule(txn=txns, nth=which, partitions=some_partitions)
    def add(self, txn: str, nth: int, partitions: list[tuple[str, int]]) -> None:
        """Add partitions as the current or a former producer."""
        producer = self.producer(txn, nth)
        is_current = self.is_current(txn, producer)

        def check(answer: Any) -> None:
            codes = {
                result.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for result in topic.results_by_partition
            }
            (code,) = codes
            assert code in (
                (0, Code.CONCURRENT_TRANSACTIONS)
                if is_current
                else (Code.INVALID_PRODUCER_ID_MAPPING, Code.PRODUCER_FENCED)
            )
            if code == Code.NONE:
                self.check_added(txn, producer, partitions)

        self.sent(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=txn,
                v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1],
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=[partition])
                    for topic, partition in partitions
                ],
            ),
            3,
            check,
        )

    @rule(txn=txns, nth=which)
    def add_offsets(self, txn: str, nth: int) -> None:
        """Add a group's offsets as the current or a former producer."""
        producer = self.producer(txn, nth)
        is_current = self.is_current(txn, producer)

        def check(answer: Any) -> None:
            assert answer.error_code in (
                (0, Code.CONCURRENT_TRANSACTIONS)
                if is_current
                else (Code.INVALID_PRODUCER_ID_MAPPING, Code.PRODUCER_FENCED)
            )
            if answer.error_code == Code.NONE:
                self.check_added(txn, producer, [(OFFSETS_TOPIC, partition_for("group", 2))])

        self.sent(
            AddOffsetsToTxnRequest(
                transactional_id=txn,
                producer_id=producer[0],
                producer_epoch=producer[1],
                group_id="group",
            ),
            3,
            check,
        )

    def check_added(self, txn: str, producer: Producer, partitions: list[tuple[str, int]]) -> None:
        """Check that the record with these partitions was durable before the response."""
        assert any(
            found
            and found.state.value == "Ongoing"
            and found.producer == producer
            and all(p in found.partitions for p in partitions)
            for found in self.durable(txn)
        ), "answered before its record was durable"

    @rule(txn=txns, nth=which, commit=st.booleans())
    def end(self, txn: str, nth: int, commit: bool) -> None:
        """End the transaction as the current or a former producer. A repeated EndTxn succeeds."""
        producer = self.producer(txn, nth)
        is_current = self.is_current(txn, producer)
        state = self.host.state(txn)
        done = "CompleteCommit" if commit else "CompleteAbort"
        expected = (
            0
            if state in ("Ongoing", done)
            else Code.CONCURRENT_TRANSACTIONS
            if str(state).startswith("Prepare")
            else Code.INVALID_TXN_STATE
        )

        def check(answer: Any) -> None:
            if not is_current:
                assert answer.error_code in (Code.INVALID_PRODUCER_ID_MAPPING, Code.PRODUCER_FENCED)
                return
            assert answer.error_code == expected
            if expected == 0:
                assert any(
                    found and found.state.value == done and found.producer == producer
                    for found in self.durable(txn)
                )

        self.sent(
            EndTxnRequest(
                transactional_id=txn,
                producer_id=producer[0],
                producer_epoch=producer[1],
                committed=commit,
            ),
            3,
            check,
        )

    @rule(txn=txns, nth=which, pair=st.sampled_from(PARTITIONS))
    def verify(self, txn: str, nth: int, pair: tuple[str, int]) -> None:
        """Ask, as the leader of a partition, whether the partition is in the open transaction."""
        producer = self.producer(txn, nth)
        code = self.host.coordinator.additions.verify(txn, *producer, *pair, 9)
        if not self.is_current(txn, producer):
            assert code in (Code.INVALID_PRODUCER_EPOCH, Code.INVALID_PRODUCER_ID_MAPPING)
        elif code == Code.NONE:
            transaction = self.host.coordinator.metadata(txn)
            assert transaction is not None and pair in transaction.partitions
        else:
            assert code == (
                Code.NOT_ENOUGH_REPLICAS
                if str(self.host.state(txn)).startswith("Prepare")
                else Code.INVALID_TXN_STATE
            )

    # the world

    @rule()
    def flush(self) -> None:
        """Flush, and check that markers are released only for decisions that are durable."""
        before = len(self.host.markers)
        self.host.flush()
        for effect in self.host.markers[before:]:
            last = self.durable(effect.transactional_id)[-1]
            assert last is not None and last.producer == (effect.producer_id, effect.producer_epoch)
            assert last.state.value == ("PrepareCommit" if effect.commit else "PrepareAbort")
            # The order may differ, since a record groups the partitions by topic.
            assert sorted(effect.partitions) == sorted(last.partitions) != []
        self.take_answers()

    @rule(index=st.integers(0, 5))
    def write_markers(self, index: int) -> None:
        if self.host.markers:
            self.host.write_markers(index % len(self.host.markers))
            self.take_answers()

    @rule(elapsed_ms=st.sampled_from([0, 1, 400, 1_000, 5_000]))
    def tick(self, elapsed_ms: int) -> None:
        """Let time pass. Check that a record is written if and only if a deadline was due."""
        self.host.now_ms += elapsed_ms
        due = self.host.coordinator.next_deadline_ms()
        before = len(self.host.log)
        self.host.tick()
        self.check_fenced(before)
        assert (len(self.host.log) > before) == (due is not None and due <= self.host.now_ms)
        assert (self.host.coordinator.next_deadline_ms() or self.host.now_ms + 1) > self.host.now_ms
        self.take_answers()

    @rule()
    def crash(self) -> None:
        self.host.crash()
        self.checks.clear()

    # what always holds

    @invariant()
    def a_fresh_coordinator_fed_the_log_equals_the_live_one(self) -> None:
        fresh = self.host.replayed()
        assert fresh.snapshot() == self.host.coordinator.snapshot()
        assert fresh.next_deadline_ms() == self.host.coordinator.next_deadline_ms()

    @invariant()
    def each_step_is_legal_and_no_epoch_goes_backwards(self) -> None:
        last: dict[str, TransactionMetadata | None] = {}
        seen: set[int] = set()
        for partition, _, key, value in self.host.log:
            txn = decode_key(key)
            assert txn is not None and partition == partition_for(txn, self.host.partition_count)
            before = last.get(txn)
            found = last[txn] = None if value is None else decode_value(txn, value)
            if found is None:
                assert before is not None and before.state.value in (
                    "Empty",
                    "CompleteCommit",
                    "CompleteAbort",
                )
                continue
            assert found.state.value in FOLLOWS[None if before is None else before.state.value]
            if before is not None and before.producer_id == found.producer_id:
                assert found.producer_epoch >= before.producer_epoch
            else:
                assert found.producer_id not in seen, "a producer id came back"
                seen.add(found.producer_id)
            if (
                found.state is TransactionState.ONGOING
                and before is not None
                and before.state is TransactionState.ONGOING
            ):
                assert (
                    set(before.partitions) < set(found.partitions)
                    and found.producer == before.producer
                )

    @invariant()
    def what_was_granted_is_never_granted_again_after_a_crash(self) -> None:
        for txn, had in self.granted.items():
            found = self.host.coordinator.metadata(txn)
            if had and found is not None and found.producer_id == had[-1][0]:
                assert found.producer_epoch >= had[-1][1]

    def teardown(self) -> None:
        """Send no further requests, and check that every decision is completed and every request
        gets a response.
        """
        self.flush()
        while self.host.markers:
            self.write_markers(0)
            self.flush()
        assert not self.host.waiting and not self.checks
        assert not any(str(self.host.state(txn)).startswith("Prepare") for txn in TXNS)


TestTransactionCoordinator = TransactionCoordinatorMachine.TestCase
TestTransactionCoordinator.settings = settings(
    max_examples=drawn(60),
    stateful_step_count=40,
    phases=(
        Phase.explicit,
        Phase.reuse,
        Phase.generate,
    ),  # no Phase.shrink, since shrinking a failure takes minutes
)
