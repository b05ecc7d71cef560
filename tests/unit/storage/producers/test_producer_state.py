"""The producers of a partition. The batches of a producer are remembered until its epoch ends.
Source: KIP-98 (a new epoch begins with sequence 0), KIP-360, and Apache Kafka's
ProducerStateManager (a retried batch is one of the last five of the same epoch).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from crc32c import crc32c

from barnabas.protocol.errors import Code, KafkaError
from barnabas.storage.producers.producer_state import (
    MAX_PRODUCER_EPOCH,
    MOST_REFUSED,
    ActiveProducer,
    BatchMeta,
    CompletedTxn,
    CorruptSnapshot,
    ProducerEntry,
    ProducerStateManager,
)

NOW_MS = 1_760_000_000_000
PID = 7


def wrote(state: ProducerStateManager, epoch: int, sequence: int) -> None:
    """Write one record."""
    offset = state.end_offset
    state.on_batch(PID, epoch, sequence, sequence, offset, offset, NOW_MS, True, NOW_MS)


def is_repeated(state: ProducerStateManager, epoch: int, sequence: int) -> bool:
    """Whether a batch of one record is considered a retry. Raises KafkaError if it is refused."""
    return state.check_batch(PID, epoch, sequence, sequence, True, lambda _: None) is not None


def marked(
    state: ProducerStateManager, epoch: int, *, commit: bool = False, coordinator_epoch: int = 0
) -> None:
    state.on_marker(PID, epoch, coordinator_epoch, commit, state.end_offset, NOW_MS, NOW_MS)


def is_out_of_order(state: ProducerStateManager, epoch: int, sequence: int) -> bool:
    with pytest.raises(KafkaError) as refused:
        is_repeated(state, epoch, sequence)
    return refused.value.code is Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def is_used_again(state: ProducerStateManager, first: int, last: int) -> bool:
    with pytest.raises(KafkaError) as refused:
        state.check_batch(PID, 0, first, last, True, lambda _: None)
    return refused.value.code is Code.UNKNOWN_PRODUCER_ID


def test_a_new_epoch_does_not_take_its_batches_for_those_of_the_former() -> None:
    """Batch 3 is out of order without batches 1 and 2. If it were taken for batch 3 of the former
    epoch, it would be acknowledged but not stored.
    """
    state = ProducerStateManager()
    for sequence in range(4):
        wrote(state, 0, sequence)
    assert is_repeated(state, 0, 2)
    wrote(state, 1, 0)
    assert is_repeated(state, 1, 0)
    for sequence in (2, 3):
        assert is_out_of_order(state, 1, sequence)
    for sequence in (1, 2, 3):
        assert not is_repeated(state, 1, sequence)
        wrote(state, 1, sequence)


def test_a_marker_with_a_new_epoch_ends_what_is_remembered() -> None:
    """The coordinator fences a producer with a marker of the next epoch. This marker may be the
    first entry of that epoch in a log.
    """
    state = ProducerStateManager()
    for sequence in range(3):
        wrote(state, 0, sequence)
    marked(state, 1)
    assert is_out_of_order(state, 1, 2)
    for sequence in range(3):
        assert not is_repeated(state, 1, sequence)
        wrote(state, 1, sequence)


def test_sequences_of_a_transaction_that_has_ended_are_not_used_again() -> None:
    """A client may give up a batch, abort, and use the sequences of the batch for other records. If
    these were taken for retries, they would be acknowledged but not written. A first sequence that
    is too high is still a gap.
    """
    state = ProducerStateManager()
    for sequence in range(3):
        wrote(state, 0, sequence)
    assert is_repeated(state, 0, 1)
    marked(state, 0, commit=False)
    for sequence in (0, 1, 2):
        assert is_used_again(state, sequence, sequence)
    assert is_used_again(state, 1, 2)
    assert is_out_of_order(state, 0, 4)
    assert not is_repeated(state, 0, 3)
    wrote(state, 0, 3)
    assert is_used_again(state, 2, 2)
    assert is_repeated(state, 0, 3)


def test_the_last_five_batches_are_remembered_and_no_more() -> None:
    state = ProducerStateManager()
    for sequence in range(7):
        wrote(state, 0, sequence)
    for sequence in range(2, 7):
        assert is_repeated(state, 0, sequence)
    assert is_used_again(state, 1, 1)


# --- transactions -------------------------------------------------------------------------------


def batch(
    state: ProducerStateManager,
    producer_id: int = PID,
    *,
    epoch: int = 0,
    sequence: int = 0,
    count: int = 1,
    transactional: bool = True,
    timestamp: int = NOW_MS,
    now_ms: int = NOW_MS,
) -> None:
    first = state.end_offset
    state.on_batch(
        producer_id, epoch, sequence, sequence + count - 1, first, first + count - 1,
        timestamp, transactional, now_ms,
    )  # fmt: skip


def marker(
    state: ProducerStateManager,
    producer_id: int = PID,
    *,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    commit: bool = True,
    now_ms: int = NOW_MS,
) -> CompletedTxn | None:
    offset = state.end_offset
    return state.on_marker(producer_id, epoch, coordinator_epoch, commit, offset, NOW_MS, now_ms)


def test_a_transaction_begins_with_its_first_batch_and_ends_with_its_marker() -> None:
    state = ProducerStateManager(100)
    batch(state, 1, count=3)
    batch(state, 2)
    batch(state, 1, sequence=3)
    assert state.open_transactions() == [1, 2]
    assert state.first_open_offset() == 100
    assert [state.first_offset_of_transaction(each) for each in (1, 2, 3)] == [100, 103, None]
    assert state.end_offset == 105
    assert marker(state, 1, commit=False) == CompletedTxn(1, 100, 105, True, 103)
    assert state.first_open_offset() == 103 and not state.has_ongoing_transaction_of(1)
    assert marker(state, 2) == CompletedTxn(2, 103, 106, False, 107)
    assert state.first_open_offset() is None and state.end_offset == 107


def test_a_marker_without_data_before_it_ends_nothing() -> None:
    state = ProducerStateManager(5)
    assert marker(state, 1, epoch=3, coordinator_epoch=2) is None
    assert (state.end_offset, state.producer_epoch_of(1), state.coordinator_epoch_of(1)) == (
        6,
        3,
        2,
    )
    batch(state, 2, transactional=False)
    assert marker(state, 2) is None and not state.open_transactions()


def test_a_transaction_is_ongoing_in_the_epoch_of_its_producer_alone() -> None:
    state = ProducerStateManager()
    batch(state, epoch=4)
    assert state.has_ongoing_transaction(PID, 4) and state.has_ongoing_transaction_of(PID)
    for producer_id, epoch in ((PID, 3), (PID, 5), (PID + 1, 4)):
        assert not state.has_ongoing_transaction(producer_id, epoch)
    marker(state, epoch=4)
    assert not state.has_ongoing_transaction(PID, 4)


def test_epochs_of_producers_that_are_not_remembered() -> None:
    state = ProducerStateManager()
    assert (state.producer_epoch_of(PID), state.coordinator_epoch_of(PID)) == (-1, 0)
    batch(state, epoch=2)
    assert (state.producer_epoch_of(PID), state.coordinator_epoch_of(PID)) == (2, 0), (
        "no marker yet"
    )
    marker(state, epoch=2, coordinator_epoch=1)
    assert state.coordinator_epoch_of(PID) == 1


def test_the_marker_of_a_decision_bears_no_lower_epoch_than_what_it_ends() -> None:
    """The broker is the only coordinator, so a marker always ends an open transaction. If no
    transaction is open and the log has a later epoch, the marker is refused.
    """
    state = ProducerStateManager()
    assert state.epochs_of_decision(PID, 3, 5) == (3, 5), "no producer wrote here"
    batch(state, epoch=4)
    assert state.epochs_of_decision(PID, 3, 5) == (4, 5)
    marker(state, epoch=4, coordinator_epoch=9)
    assert state.epochs_of_decision(PID, 3, 5) is None, "nothing is open, and its epoch is later"
    assert state.epochs_of_decision(PID, 4, 5) == (4, 9)
    assert state.epochs_of_decision(PID, 5, 10) == (5, 10)


def test_a_marker_of_version_2_that_is_written_again_does_not_end_the_next_transaction() -> None:
    """The transaction may begin with the first record of the log.

    Source: KIP-890, KIP-1228.
    """
    state = ProducerStateManager()
    batch(state, epoch=2, transactional=True)
    assert state.first_offset_of_transaction(PID) == 0
    with pytest.raises(KafkaError, match="epoch 2, the marker 2"):
        state.check_marker(PID, 2, 0, 2)
    state.check_marker(PID, 3, 0, 2)
    state.check_marker(PID, 2, 0, 1)
    marker(state, epoch=3)
    state.check_marker(PID, 3, 0, 2)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("epoch", [0, 7, MAX_PRODUCER_EPOCH - 1, MAX_PRODUCER_EPOCH])
def test_which_markers_a_producer_of_an_epoch_may_get(
    epoch: int, is_open: bool, version: int
) -> None:
    """From version 2 on, a marker has the epoch after that of its transaction, if such an epoch
    exists.

    Source: KIP-1228.
    """
    state = ProducerStateManager()
    batch(state, epoch=epoch, transactional=is_open)
    allowed = []
    for other in (epoch - 1, epoch, epoch + 1):
        if 0 <= other <= MAX_PRODUCER_EPOCH:
            with suppress(KafkaError):
                state.check_marker(PID, other, 0, version)
                allowed.append(other)
    is_same_allowed = version < 2 or not is_open or epoch == MAX_PRODUCER_EPOCH
    assert allowed == [
        other
        for other in (epoch, epoch + 1)
        if other <= MAX_PRODUCER_EPOCH and (other > epoch or is_same_allowed)
    ]


def test_a_marker_of_a_former_epoch_or_coordinator_is_refused() -> None:
    state = ProducerStateManager()
    state.check_marker(PID, 0, 0)
    batch(state, epoch=2)
    marker(state, epoch=2, coordinator_epoch=5)
    state.check_marker(PID, 2, 5)
    state.check_marker(PID, 3, 6)
    with pytest.raises(KafkaError, match="producer 7 has the epoch 2, the marker 1") as refused:
        state.check_marker(PID, 1, 5)
    assert refused.value.code is Code.INVALID_PRODUCER_EPOCH
    with pytest.raises(KafkaError, match=r"epoch 5 .* this one has 4") as refused:
        state.check_marker(PID, 2, 4)
    assert refused.value.code is Code.TRANSACTION_COORDINATOR_FENCED


def test_within_a_transaction_every_batch_is_transactional() -> None:
    state = ProducerStateManager()
    batch(state)

    def check(transactional: bool) -> object:
        return state.check_batch(PID, 0, 1, 1, transactional, lambda _: None)

    assert check(True) is None
    with pytest.raises(KafkaError) as refused:
        check(False)
    assert refused.value.code is Code.INVALID_TXN_STATE
    marker(state)
    assert check(False) is None


# --- sequences ----------------------------------------------------------------------------------


def test_an_unknown_producer_may_begin_anywhere_and_a_new_epoch_at_0() -> None:
    # contract: kip-98/gaps
    state = ProducerStateManager()
    assert state.check_batch(PID, 3, 17, 17, False, lambda _: None) is None
    batch(state, epoch=3, sequence=17, transactional=False)
    with pytest.raises(KafkaError, match="epoch 4 with the sequence 18") as refused:
        state.check_batch(PID, 4, 18, 18, False, lambda _: None)
    assert refused.value.code is Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.check_batch(PID, 4, 0, 0, False, lambda _: None) is None
    with pytest.raises(KafkaError, match="has the epoch 3, the batch 2") as refused:
        state.check_batch(PID, 2, 0, 0, False, lambda _: None)
    assert refused.value.code is Code.INVALID_PRODUCER_EPOCH


def test_sequences_go_on_at_0_after_the_last_there_is() -> None:
    state = ProducerStateManager()
    state.on_batch(PID, 0, 2**31 - 3, 2**31 - 1, 0, 2, NOW_MS, False, NOW_MS)
    assert state.check_batch(PID, 0, 0, 4, False, lambda _: None) is None
    assert is_out_of_order(state, 0, 1)


def test_a_repeated_batch_is_known_by_both_its_sequences() -> None:
    # contract: kip-98/sequences
    state = ProducerStateManager()
    batch(state, count=3)
    duplicate = state.check_batch(PID, 0, 0, 2, True, lambda _: None)
    assert duplicate == BatchMeta(0, 2, 0, 2, NOW_MS)
    for first, last in ((0, 1), (1, 2)):
        assert is_used_again(state, first, last)
    state = ProducerStateManager()
    state.on_batch(PID, 0, 0, 2, 0, 2, NOW_MS, False, NOW_MS)
    for first, last in ((0, 1), (1, 2)):
        with pytest.raises(KafkaError, match="its last was 2"):
            state.check_batch(PID, 0, first, last, False, lambda _: None)


def test_batches_that_are_in_the_log_alone_are_looked_for_once_they_are_needed() -> None:
    """A snapshot contains only the last batch of each producer."""
    state = ProducerStateManager()
    batch(state, transactional=False)
    batch(state, sequence=1, transactional=False)
    loaded = ProducerStateManager.decode_snapshot(state.encode_snapshot(), 2, NOW_MS)
    restored = []

    def restore(entry: ProducerEntry) -> None:
        restored.append(entry.producer_id)
        entry.batches.insert(0, BatchMeta(0, 0, 0, 0, NOW_MS))
        entry.has_whole_window = True

    assert loaded.check_batch(PID, 0, 2, 2, False, restore) is None
    assert loaded.check_batch(PID, 0, 1, 1, False, restore) == BatchMeta(1, 1, 1, 1, NOW_MS)
    assert restored == []
    assert loaded.check_batch(PID, 0, 0, 0, False, restore) == BatchMeta(0, 0, 0, 0, NOW_MS)
    with pytest.raises(KafkaError):
        loaded.check_batch(PID, 0, 9, 9, False, restore)
    assert restored == [PID], "it is known from then on"


def test_a_snapshot_tells_an_epoch_without_batches_from_a_producer_that_may_have_written() -> None:
    """A marker of version 2 begins an epoch whose first sequence must be 0, even after a restart. A
    producer that is known only from a marker may have expired earlier, so any sequence is valid.
    """
    state = ProducerStateManager()
    batch(state, PID)
    marker(state, PID, epoch=1)
    marker(state, PID + 1, epoch=1)
    loaded = ProducerStateManager.decode_snapshot(state.encode_snapshot(), 3, NOW_MS)
    for one in (state, loaded):
        with pytest.raises(KafkaError) as refused:
            one.check_batch(PID, 1, 1, 1, True, lambda _: None)
        assert refused.value.code is Code.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert one.check_batch(PID, 1, 0, 0, True, lambda _: None) is None
        assert one.check_batch(PID + 1, 1, 7, 7, True, lambda _: None) is None


def test_five_batches_that_were_appended_since_are_all_there_can_be() -> None:
    state = ProducerStateManager()
    batch(state)
    loaded = ProducerStateManager.decode_snapshot(state.encode_snapshot(), 1, NOW_MS)
    for sequence in range(1, 6):
        assert not loaded.producers[PID].has_whole_window
        batch(loaded, sequence=sequence)
    assert loaded.producers[PID].has_whole_window
    assert [one.first_sequence for one in loaded.producers[PID].batches] == [1, 2, 3, 4, 5]


def test_a_batch_must_not_overtake_one_that_found_no_room() -> None:
    """Batches of a producer were refused for lack of disk space. Later batches of the same epoch
    are refused as well, until the first refused batch or an earlier one is sent again.
    """
    state = ProducerStateManager()
    state.add_refused(PID, 0, 5)
    state.add_refused(PID, 0, 3)
    state.add_refused(PID, 0, 4)
    state.check_overtaking(PID, 1, 9)
    state.check_overtaking(PID + 1, 0, 9)
    with pytest.raises(KafkaError, match="was refused") as refused:
        state.check_overtaking(PID, 0, 4)
    assert refused.value.code is Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    state.check_overtaking(PID, 0, 3)
    state.check_overtaking(PID, 0, 4)
    state.add_refused(PID, 0, 3)
    state.check_overtaking(PID, 0, 2)
    state.check_overtaking(PID, 0, 9)


def test_a_batch_that_was_written_and_is_refused_as_it_comes_late_holds_nothing_up() -> None:
    """The batch arrived over a connection that broke. The client does not send it again."""
    state = ProducerStateManager()
    batch(state, count=3)
    state.add_refused(PID, 0, 0)
    state.add_refused(PID, 0, 2)
    assert state.refused == {}
    state.add_refused(PID, 1, 0)
    state.add_refused(PID, 0, 3)
    assert state.refused == {(PID, 1): 0, (PID, 0): 3}


def test_what_is_noted_of_refused_batches_has_a_bound() -> None:
    state = ProducerStateManager()
    state.add_refused(-1, -1, 0)
    assert not state.refused, "without a producer id there is no order to keep"
    for producer_id in range(MOST_REFUSED + 2):
        state.add_refused(producer_id, 0, 5)
    assert len(state.refused) == MOST_REFUSED
    state.add_refused(0, 0, 3)
    assert state.refused[0, 0] == 3, "those that are noted are kept up to date"


def test_after_a_batch_without_an_epoch_any_sequence_may_begin() -> None:
    """As in Apache Kafka, the epoch -1 does not count as the epoch of a producer."""
    state = ProducerStateManager()
    batch(state, epoch=-1, transactional=False)
    assert state.check_batch(PID, 0, 5, 5, False, lambda _: None) is None


def test_a_marker_fences_the_epochs_before_its_own() -> None:
    state = ProducerStateManager()
    batch(state, epoch=0)
    marker(state, epoch=1, commit=False)
    assert state.producer_epoch_of(PID) == 1
    with pytest.raises(KafkaError) as refused:
        state.check_batch(PID, 0, 1, 1, True, lambda _: None)
    assert refused.value.code is Code.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("by", ["batch", "marker"])
def test_of_a_new_epoch_all_batches_are_known(by: str) -> None:
    """The log is not searched for earlier batches of the epoch, since it has none."""
    state = ProducerStateManager()
    batch(state, transactional=False)
    loaded = ProducerStateManager.decode_snapshot(state.encode_snapshot(), 1, NOW_MS)
    if by == "marker":
        marker(loaded, epoch=1)
    batch(loaded, epoch=1, transactional=False)
    assert loaded.producers[PID].has_whole_window

    def restore(entry: ProducerEntry) -> None:
        raise AssertionError("there is nothing to look for")

    with pytest.raises(KafkaError):
        loaded.check_batch(PID, 1, 7, 7, False, restore)


def test_a_transaction_may_begin_at_the_first_offset_of_a_log() -> None:
    state = ProducerStateManager()
    batch(state, now_ms=0)
    batch(state, sequence=1, now_ms=0)
    assert state.first_open_offset() == 0
    assert state.expire(now_ms=10_000, expiration_ms=1) == 0, "it is open"
    loaded = ProducerStateManager.decode_snapshot(state.encode_snapshot(), 2, NOW_MS)
    assert loaded.open_txns == {PID: 0}
    assert marker(state) == CompletedTxn(PID, 0, 2, False, 3)


def test_the_first_sequence_there_is_comes_back_from_a_snapshot() -> None:
    state = ProducerStateManager()
    batch(state)
    loaded = ProducerStateManager.decode_snapshot(state.encode_snapshot(), 1, NOW_MS)
    assert loaded.producers[PID].batches == [BatchMeta(0, 0, 0, 0, NOW_MS)]


# --- expiry -------------------------------------------------------------------------------------


def test_producers_expire_by_the_clock_of_the_broker_unless_they_have_a_transaction_open() -> None:
    # contract: kip-98/producer-expiration
    state = ProducerStateManager()
    batch(state, 1, transactional=False, timestamp=5, now_ms=100)
    batch(state, 2, transactional=True, now_ms=100)
    batch(state, 3, transactional=False, now_ms=101)
    batch(state, 4, transactional=False, now_ms=100)
    batch(state, 4, sequence=1, transactional=False, now_ms=5_000)
    assert state.expire(now_ms=1_099, expiration_ms=1_000) == 0
    assert state.expire(now_ms=1_100, expiration_ms=1_000) == 1
    assert list(state.producers) == [2, 3, 4]
    marker(state, 2, now_ms=1_200)
    assert state.expire(now_ms=2_199, expiration_ms=1_000) == 1
    assert list(state.producers) == [2, 4]
    assert state.expire(now_ms=2_200, expiration_ms=1_000) == 1


# --- descriptions and snapshots------------------------------------------------------------------


def test_active_producers_are_shown_as_kip_664_has_them() -> None:
    state = ProducerStateManager(50)
    batch(state, 1, epoch=2, sequence=7, count=2, timestamp=123)
    marker(state, 3, epoch=4, coordinator_epoch=6)
    assert state.active_producers() == [
        ActiveProducer(1, 2, 8, 123, -1, 50),
        ActiveProducer(3, 4, -1, NOW_MS, 6, -1),
    ]


def test_a_snapshot_is_laid_out_as_kafka_writes_it() -> None:
    state = ProducerStateManager(16)
    batch(state, 1, epoch=2, sequence=7, count=2, timestamp=0x123)
    marker(state, 3, epoch=4, coordinator_epoch=6)
    data = state.encode_snapshot()
    body = (
        bytes.fromhex(
            "00000002"
            "0000000000000001 0002 00000008 0000000000000011 00000001 0000000000000123 ffffffff"
            "0000000000000010"
            # Without a batch, Apache Kafka writes 0 as the delta, and ignores the delta when it
            # reads the row.
            "0000000000000003 0004 ffffffff ffffffffffffffff ffffffff"
        )
        + NOW_MS.to_bytes(8, "big")
        + bytes.fromhex("00000006 ffffffffffffffff")
    )
    assert data[:2] == b"\0\1" and data[6:] == body
    again = ProducerStateManager.decode_snapshot(data, 19, 77)
    assert again.end_offset == 19 and again.encode_snapshot() == data
    assert again.producers[1].batches == [BatchMeta(7, 8, 16, 17, 0x123)]
    assert [again.producers[each].has_whole_window for each in (1, 3)] == [False, False]
    assert [again.producers[each].seen_ms for each in (1, 3)] == [77, 77]
    assert again.active_producers() == state.active_producers()
    assert again.open_transactions() == [1]


def test_a_loaded_batch_may_have_begun_before_the_sequences_began_again() -> None:
    state = ProducerStateManager()
    state.on_batch(PID, 0, 2**31 - 1, 1, 0, 2, NOW_MS, False, NOW_MS)
    loaded = ProducerStateManager.decode_snapshot(state.encode_snapshot(), 3, NOW_MS)
    assert loaded.producers[PID].batches == [BatchMeta(2**31 - 1, 1, 0, 2, NOW_MS)]


def test_open_transactions_are_loaded_in_the_order_of_their_first_offsets() -> None:
    state = ProducerStateManager()
    batch(state, 1, transactional=False)
    batch(state, 2)
    batch(state, 1, sequence=1)
    loaded = ProducerStateManager.decode_snapshot(state.encode_snapshot(), 3, NOW_MS)
    assert list(loaded.producers) == [1, 2]
    assert list(loaded.open_txns.items()) == [(2, 1), (1, 2)]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: data[:9], "9 bytes are too few"),
        (lambda data: b"\0\2" + data[2:], "its version is 2, not 1"),
        (lambda data: data[:-1] + b"\1", "its checksum is wrong"),
        (lambda data: data[:2] + _crc(data[6:-1]) + data[6:-1], "1 producers in 49 bytes"),
        (lambda data: data[:2] + _crc(data[6:] + b"x") + data[6:] + b"x", "1 producers in 51"),
    ],
)
def test_bytes_that_are_no_snapshot_are_refused(
    change: Callable[[bytes], bytes], says: str
) -> None:
    state = ProducerStateManager()
    batch(state)
    with pytest.raises(CorruptSnapshot, match=says):
        ProducerStateManager.decode_snapshot(change(state.encode_snapshot()), 1, NOW_MS)
    none = ProducerStateManager()
    assert len(none.encode_snapshot()) == 10
    assert not ProducerStateManager.decode_snapshot(none.encode_snapshot(), 0, 0).producers


def _crc(body: bytes) -> bytes:
    return crc32c(body).to_bytes(4, "big")


def test_half_of_all_sequences_lie_behind_the_last_and_half_before_it() -> None:
    """The sequence after 2147483647 is 0. The distance between two sequences therefore determines
    which one is earlier.
    """
    last, half = 2**30 + 5, 2**30
    state = ProducerStateManager()
    wrote(state, 0, last)
    marked(state, 0, commit=False)
    assert is_used_again(state, last - half + 1, last - half + 1)
    with pytest.raises(KafkaError) as refused:
        state.check_batch(PID, 0, last - half, last - half, True, lambda _: None)
    assert refused.value.code is Code.OUT_OF_ORDER_SEQUENCE_NUMBER
