"""Idempotence, transactions, reads and deletions on one log, compared with the results of Apache
Kafka 3.9 in the oracle's scenarios.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.recording_disk import RecordingDisk
from helpers.storage_logs import (
    NOW_MS,
    SECOND_MS,
    TOPIC_ID,
    batch,
    committed_values,
    fetched,
    kill,
    new_log,
    offsets_in,
    open_manager,
    reopened,
    values_of,
)

from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.records import (
    HEADER_SIZE,
    EndTransactionMarker,
    computed_crc,
    decode_marker,
    read_header,
    records_of,
)
from barnabas.storage.batch.validate import CheckBudget, TakesLongError, check_client_batch
from barnabas.storage.disk import Data, DirectorySync, OsDisk
from barnabas.storage.files.checkpoints import (
    LEADER_EPOCH_NAME,
    MANIFEST_NAME,
    PARTITION_METADATA_NAME,
)
from barnabas.storage.log.append_info import AppendInfo, NewMarker
from barnabas.storage.log.broker_appends import append_marker, append_records, write_marker
from barnabas.storage.log.log import UNREAD_BATCH_BYTES, Log
from barnabas.storage.log.log_reader import Isolation
from barnabas.storage.log.time_lookup import offset_for_timestamp, offset_of_max_timestamp
from barnabas.storage.log_config import LogConfig
from barnabas.storage.producers.producer_snapshots import KEPT_SNAPSHOTS
from barnabas.storage.producers.refused_batches import add_refused, check_overtaking

COMMITTED = Isolation.READ_COMMITTED
YEAR_MS = 365 * 24 * 3_600_000


def refused(log: Log, **sent: object) -> Code:
    """Append a batch that must be refused. Gives the error code."""
    with pytest.raises(KafkaError) as error:
        log.append(batch(**sent), now_ms=NOW_MS)  # type: ignore[arg-type]
    assert getattr(error.value, "knows_log_start", True)
    return error.value.code


def send(log: Log, values: list[bytes] | None = None, **sent: object) -> AppendInfo:
    return log.append(batch(values or [b"v"], **sent), now_ms=NOW_MS)  # type: ignore[arg-type]


def end(
    log: Log,
    pid: int,
    commit: bool,
    *,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    now_ms: int = NOW_MS,
) -> int:
    return append_marker(
        log,
        producer_id=pid,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        commit=commit,
        now_ms=now_ms,
    )


# --- idempotence --------------------------------------------------------------------------------


def test_only_the_last_five_batches_are_recognised_as_duplicates(
    tmp_path: Path,
) -> None:
    _, log = new_log(tmp_path)
    for number in range(8):
        send(log, [b"%d" % number] * 2, pid=1, epoch=0, seq=2 * number)
    for number in (7, 6, 5, 4, 3):
        info = send(log, [b"%d" % number] * 2, pid=1, epoch=0, seq=2 * number)
        assert info == AppendInfo(2 * number, 2 * number + 1, SECOND_MS, True)
    for number in (2, 1, 0):
        assert (
            refused(log, values=[b"x"] * 2, pid=1, epoch=0, seq=2 * number)
            == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
        )
    assert log.log_end_offset == 16


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("segment_bytes", [1 << 30, 150])
def test_the_last_five_batches_are_remembered_after_a_restart(
    tmp_path: Path, clean: bool, segment_bytes: int
) -> None:
    """The last five batches of a producer are remembered after a restart.
    A repeated batch gets its first offset again, even if it is from before a stop or a kill.
    Source: KIP-98, KAFKA-5494, redpanda#3039, redpanda#5356.
    """
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=0)
    manager, log = new_log(tmp_path, segment_bytes=segment_bytes, index_interval_bytes=0)
    for number in range(8):
        send(log, [b"%d" % number] * 2, pid=1, epoch=0, seq=2 * number)
        send(log)
    _, log = reopened(manager, config, clean=clean)
    for number in (3, 7, 5, 4, 6):
        info = send(log, [b"%d" % number] * 2, pid=1, epoch=0, seq=2 * number)
        assert (info.first_offset, info.duplicate) == (3 * number, True)
    assert (
        refused(log, values=[b"x"] * 2, pid=1, epoch=0, seq=4) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    assert not send(log, pid=1, epoch=0, seq=16).duplicate


def test_a_part_of_an_earlier_batch_is_not_taken_for_a_duplicate(tmp_path: Path) -> None:
    _, log = new_log(tmp_path)
    send(log, [b"a"] * 4, pid=1, epoch=0, seq=0)
    assert (
        refused(log, values=[b"a"] * 2, pid=1, epoch=0, seq=0) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    assert (
        refused(log, values=[b"a"] * 4, pid=1, epoch=0, seq=2) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    )


def test_a_sequence_gap_is_refused_and_the_next_sequence_is_accepted(tmp_path: Path) -> None:
    _, log = new_log(tmp_path)
    send(log, pid=1, epoch=0, seq=0)
    assert refused(log, pid=1, epoch=0, seq=2) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, pid=1, epoch=0, seq=1).first_offset == 1


def test_a_producer_that_is_not_known_may_begin_anywhere(tmp_path: Path) -> None:
    """An unknown producer may begin with any sequence.
    Source: redpanda#22670, aiokafka#1017.
    """
    _, log = new_log(tmp_path)
    assert send(log, pid=1, epoch=0, seq=7).first_offset == 0
    assert send(log, pid=1, epoch=0, seq=8).first_offset == 1


def test_a_batch_larger_than_a_segment_is_refused_and_one_as_large_is_not(tmp_path: Path) -> None:
    """A batch may be as large as a segment, but not larger.
    Source: Kafka: UnifiedLog.append, RecordBatchTooLargeException.
    """
    data = batch()
    log = new_log(tmp_path / "as-large", segment_bytes=len(data))[1]
    log.append(data, now_ms=NOW_MS)
    log = new_log(tmp_path / "smaller", segment_bytes=len(data) - 1)[1]
    with pytest.raises(KafkaError) as refused:
        log.append(batch(), now_ms=NOW_MS)
    assert refused.value.code is Code.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 0


def test_epochs(tmp_path: Path) -> None:
    """A new epoch begins with sequence 0, and batches of the epoch before it are refused.
    Source: KAFKA-12152, librdkafka#4953.
    """
    _, log = new_log(tmp_path)
    send(log, pid=1, epoch=1, seq=0)
    assert refused(log, pid=1, epoch=0, seq=1) == Code.INVALID_PRODUCER_EPOCH
    assert refused(log, pid=1, epoch=2, seq=1) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, pid=1, epoch=2, seq=0).first_offset == 1
    assert refused(log, pid=1, epoch=1, seq=1) == Code.INVALID_PRODUCER_EPOCH


def test_sequences_wrap(tmp_path: Path) -> None:
    """After the highest sequence, the next one is 0.
    Source: KAFKA-5283.
    """
    _, log = new_log(tmp_path)
    top = 2**31 - 1
    send(log, [b"a"] * 2, pid=1, epoch=0, seq=top - 1)
    assert send(log, [b"b"] * 2, pid=1, epoch=0, seq=0).first_offset == 2
    assert send(log, pid=1, epoch=0, seq=2).first_offset == 4
    send(log, [b"a"] * 3, pid=2, epoch=0, seq=top - 1)
    assert send(log, pid=2, epoch=0, seq=1).first_offset == 8


def test_a_plain_batch_inside_the_producers_transaction_is_refused(tmp_path: Path) -> None:
    """A plain batch within the producer's transaction is refused.
    Source: Kafka: ProducerAppendInfo.
    """
    _, log = new_log(tmp_path)
    send(log, pid=1, epoch=0, seq=0, transactional=True)
    assert refused(log, pid=1, epoch=0, seq=1) == Code.INVALID_TXN_STATE


def test_producers_expire_by_the_brokers_clock_and_not_within_a_transaction(tmp_path: Path) -> None:
    """A producer expires when it was idle for too long by the broker's clock, whatever the
    timestamps of its records, which are far in the past here. A marker is a write of its producer,
    too. A producer with an open transaction does not expire. Source: KAFKA-9144.
    """
    _, log = new_log(tmp_path, producer_id_expiration_ms=1000)
    send(log, pid=1, epoch=0, seq=0)
    send(log, pid=2, epoch=0, seq=0, transactional=True)
    send(log, pid=3, epoch=0, seq=0, transactional=True)
    end(log, 3, True, now_ms=NOW_MS + 500)
    assert log.expire_producers(NOW_MS + 1000) == 1
    assert sorted(log.producer_state.producers) == [2, 3]
    assert send(log, pid=1, epoch=0, seq=9).first_offset == 4


# --- transactions -------------------------------------------------------------------------------


def test_markers_are_fenced_by_producer_and_coordinator_epoch(tmp_path: Path) -> None:
    """A marker is refused if its producer epoch or its coordinator epoch is too low.
    Source: Kafka: ProducerAppendInfo.
    """
    _, log = new_log(tmp_path)
    send(log, pid=1, epoch=1, seq=0, transactional=True)
    with pytest.raises(KafkaError) as error:
        end(log, 1, True, epoch=0)
    assert error.value.code == Code.INVALID_PRODUCER_EPOCH
    end(log, 1, False, epoch=1, coordinator_epoch=4)
    end(log, 1, False, epoch=1, coordinator_epoch=4)
    with pytest.raises(KafkaError) as error:
        end(log, 1, True, epoch=1, coordinator_epoch=3)
    assert error.value.code == Code.TRANSACTION_COORDINATOR_FENCED
    assert log.read(0, max_bytes=1000, isolation=COMMITTED, min_one_batch=True).aborted == [(1, 0)]


def test_a_marker_with_a_newer_epoch_fences_the_producer(tmp_path: Path) -> None:
    """A marker with a newer epoch fences the producer.
    Requests of the fenced session that arrive later are refused, and do not hold back the last
    stable offset.
    Source: KIP-890, KAFKA-14402, KAFKA-19690.
    """
    _, log = new_log(tmp_path)
    send(log, pid=1, epoch=0, seq=0, transactional=True)
    end(log, 1, False, epoch=1)
    assert refused(log, pid=1, epoch=0, seq=1, transactional=True) == Code.INVALID_PRODUCER_EPOCH
    assert log.last_stable_offset == log.log_end_offset == 2
    assert send(log, pid=1, epoch=1, seq=0, transactional=True).first_offset == 2


def test_an_abort_without_data_is_not_listed(tmp_path: Path) -> None:
    """An aborted transaction without data is not listed.
    Source: librdkafka#2498, librdkafka#3369.
    """
    _, log = new_log(tmp_path)
    end(log, 1, False)
    send(log)
    assert log.read(0, max_bytes=1000, isolation=COMMITTED, min_one_batch=True).aborted == []


def test_of_interleaved_transactions_those_that_overlap_the_fetch_are_listed(
    tmp_path: Path,
) -> None:
    """Of interleaved transactions, those that overlap the fetch are listed.
    Source: platformatic/kafka#391, Kafka: TransactionIndex.
    """
    _, log = new_log(tmp_path)
    for pid in (1, 2, 3):
        send(log, [b"%da" % pid], pid=pid, epoch=0, seq=0, transactional=True)
    for pid in (1, 2):
        send(log, [b"%db" % pid], pid=pid, epoch=0, seq=1, transactional=True)
    end(log, 2, False)
    assert log.last_stable_offset == 0
    assert log.read(0, max_bytes=1000, isolation=COMMITTED, min_one_batch=True).slice is None
    end(log, 1, True)
    assert log.last_stable_offset == 2
    data = log.read(0, max_bytes=1000, isolation=COMMITTED, min_one_batch=True)
    assert offsets_in(data) == [0, 1]
    assert data.aborted == [(2, 1)]
    end(log, 3, False)
    for offset, listed in ((0, [(2, 1), (3, 2)]), (4, [(2, 1), (3, 2)]), (6, [(3, 2)])):
        assert (
            log.read(offset, max_bytes=1000, isolation=COMMITTED, min_one_batch=True).aborted
            == listed
        )
    assert committed_values(log) == {0: b"1a", 3: b"1b"}
    uncommitted = log.read(0, max_bytes=1000, min_one_batch=True)
    assert uncommitted.aborted is None
    assert offsets_in(uncommitted) == list(range(8))


def test_without_index_entries_the_aborted_list_reaches_to_the_end_of_the_log(
    tmp_path: Path,
) -> None:
    """If a segment has no index entries, the list extends to the end of the log, as in the oracle's
    scenario many_transactions_one_after_another.
    """
    _, log = new_log(tmp_path)
    for number in range(12):
        send(log, [b"%d" % number], pid=1, epoch=0, seq=number, transactional=True)
        end(log, 1, number % 3 != 0)
    for offset, firsts in (
        (0, [0, 6, 12, 18]),
        (3, [6, 12, 18]),
        (7, [6, 12, 18]),
        (12, [12, 18]),
        (23, []),
    ):
        data = log.read(offset, max_bytes=1, isolation=COMMITTED, min_one_batch=True)
        assert data.aborted == [(1, first) for first in firsts]


def test_with_index_entries_the_aborted_list_ends_at_the_data(tmp_path: Path) -> None:
    _, log = new_log(tmp_path, index_interval_bytes=0)
    for number in range(12):
        send(log, [b"%d" % number], pid=1, epoch=0, seq=number, transactional=True)
        end(log, 1, number % 3 != 0)
    data = log.read(0, max_bytes=1, isolation=COMMITTED, min_one_batch=True)
    assert data.aborted == [(1, 0)]


@pytest.mark.parametrize("clean", [True, False])
def test_open_transactions_survive_also_without_their_data(tmp_path: Path, clean: bool) -> None:
    """Open transactions are kept even without their data. A transaction whose batches were all
    deleted is still open after a restart, and holds back the last stable offset.
    Source: redpanda#30003.
    """
    manager, log = new_log(tmp_path)
    send(log, [b"a", b"b"], pid=1, epoch=0, seq=0, transactional=True)
    log.delete_records_before(-1)
    manager.on_tick(NOW_MS)
    send(log, [b"plain"])
    _, log = reopened(manager, LogConfig(), clean=clean)
    assert (log.log_start_offset, log.last_stable_offset, log.log_end_offset) == (2, 2, 3)
    assert log.producer_state.has_ongoing_transaction(
        1, 0
    ) and not log.producer_state.has_ongoing_transaction(1, 1)
    end(log, 1, True)
    assert log.last_stable_offset == 4


def test_a_producer_with_markers_alone_survives(tmp_path: Path) -> None:
    """A producer that is known only by markers is kept.
    Source: KAFKA-9144.
    """
    manager, log = new_log(tmp_path)
    end(log, 1, False, epoch=3, coordinator_epoch=7)
    _, log = reopened(manager, LogConfig(), clean=True)
    entry = log.producer_state.producers[1]
    assert (entry.producer_epoch, entry.coordinator_epoch, entry.last_offset, entry.batches) == (
        3,
        7,
        -1,
        [],
    )
    assert refused(log, pid=1, epoch=2, seq=0) == Code.INVALID_PRODUCER_EPOCH
    assert send(log, pid=1, epoch=3, seq=0).first_offset == 1


@pytest.mark.parametrize("is_reopened", [False, True])
def test_an_expired_producer_may_continue_after_a_transaction_without_a_batch(
    tmp_path: Path, is_reopened: bool
) -> None:
    """The marker has the producer's epoch but no sequence, so the producer may continue with any
    sequence.
    """
    manager, log = new_log(tmp_path)
    send(log, pid=1, epoch=3, seq=0)
    log.producer_state.producers.clear()  # it has expired
    end(log, 1, False, epoch=3)
    if is_reopened:
        _, log = reopened(manager, LogConfig(), clean=True)
    assert send(log, pid=1, epoch=3, seq=1).first_offset == 2
    assert send(log, pid=1, epoch=3, seq=1).duplicate
    assert refused(log, pid=1, epoch=3, seq=3) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_coordinators_batches_have_no_sequence_and_can_be_transactional(tmp_path: Path) -> None:
    _, log = new_log(tmp_path)
    for _ in range(2):
        append_records(log, [(b"k", b"v")], NOW_MS, (5, 0))
    assert (log.log_end_offset, log.last_stable_offset) == (2, 0)
    end(log, 5, True)
    assert log.last_stable_offset == 3
    assert [header.base_offset for header, _ in log.read_batches()] == [0, 1, 2]
    assert [header.base_offset for header, _ in log.read_batches(1)] == [1, 2]
    assert list(log.read_batches(log.log_end_offset)) == []


# --- reading ------------------------------------------------------------------------------------


def test_a_fetch_may_begin_between_the_log_start_and_end_offsets(tmp_path: Path) -> None:
    """A fetch may begin within a batch and at the end of the log, but not beyond it or below its
    start.
    Source: Kafka: UnifiedLog.
    """
    _, log = new_log(tmp_path)
    for value in (b"a", b"b", b"c"):
        send(log, [value, value])
    assert offsets_in(log.read(3, max_bytes=1000, min_one_batch=True)) == [2, 3, 4, 5]
    assert log.read(6, max_bytes=1000, min_one_batch=True).slice is None
    for offset in (7, -1):
        with pytest.raises(KafkaError) as error:
            log.read(offset, max_bytes=1000, min_one_batch=True)
        assert error.value.code == Code.OFFSET_OUT_OF_RANGE


def test_limits_of_a_fetch(tmp_path: Path) -> None:
    _, log = new_log(tmp_path)
    for value in (b"a", b"b", b"c"):
        send(log, [value * 100])
    size = log.segments.size_bytes // 3
    for max_bytes in (0, 1):
        assert len(fetched(log.read(0, max_bytes=max_bytes, min_one_batch=True))) == size
        assert log.read(0, max_bytes=max_bytes, min_one_batch=False).slice is None
    assert len(fetched(log.read(0, max_bytes=size * 3 // 2, min_one_batch=True))) == size * 3 // 2
    assert offsets_in(log.read(0, max_bytes=size * 2, min_one_batch=True)) == [0, 1]
    with pytest.raises(KafkaError) as error:
        log.read(0, max_bytes=-1, min_one_batch=True)
    assert error.value.code == Code.UNKNOWN_SERVER_ERROR


def test_a_fetch_ends_with_its_segment(tmp_path: Path) -> None:
    _, log = new_log(tmp_path, segment_bytes=100)
    for value in (b"a", b"b"):
        send(log, [value])
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    assert offsets_in(log.read(0, max_bytes=1000, min_one_batch=True)) == [0]


def test_committed_readers_stop_at_the_last_stable_offset(tmp_path: Path) -> None:
    """Readers of committed records stop at the last stable offset.
    They reach the last stable offset even if the log ends in markers and data of open transactions.
    Source: redpanda#8698, SPARK-25005, quix-streams#1017, kafka-node#1336.
    """
    _, log = new_log(tmp_path)
    send(log, [b"a"], pid=1, epoch=0, seq=0, transactional=True)
    end(log, 1, True)
    send(log, [b"b"], pid=1, epoch=0, seq=1, transactional=True)
    end(log, 1, False, now_ms=NOW_MS + 10)
    send(log, [b"c", b"d"], pid=1, epoch=0, seq=2, transactional=True)
    send(log, [b"e"])
    assert (log.last_stable_offset, log.log_end_offset) == (4, 7)
    for offset, given, listed in (
        (1, [1, 2, 3], [(1, 2)]),
        (3, [3], [(1, 2)]),
        (4, [], []),
        (6, [], []),
        (7, [], []),
    ):
        data = log.read(offset, max_bytes=1000, isolation=COMMITTED, min_one_batch=True)
        assert (offsets_in(data), data.aborted) == (given, listed)
    assert offset_of_max_timestamp(log) == (NOW_MS + 10, 3, 0)
    assert offset_for_timestamp(log, SECOND_MS + 1, upper_bound_offset=4) == (NOW_MS, 1, 0)
    assert offset_for_timestamp(log, SECOND_MS + 1, upper_bound_offset=1) is None


def test_offsets_by_time(tmp_path: Path) -> None:
    """The offset for a time is that of the first record in the log that is not older.
    The values are those of the oracle's scenario offsets_by_time.
    Source: KIP-79, KIP-98, KIP-734.
    """
    _, log = new_log(tmp_path)
    assert offset_of_max_timestamp(log) is None
    assert offset_for_timestamp(log, SECOND_MS) is None
    for times in ([10, 20, 30], [60, 40, 50], [25]):
        send(log, [b"x"] * len(times), times=[SECOND_MS + plus for plus in times])
    wanted = {
        0: (10, 0),
        10: (10, 0),
        11: (20, 1),
        25: (30, 2),
        30: (30, 2),
        31: (60, 3),
        45: (60, 3),
        60: (60, 3),
    }
    for plus, (time, offset) in wanted.items():
        assert offset_for_timestamp(log, SECOND_MS + plus) == (SECOND_MS + time, offset, 0)
    assert offset_for_timestamp(log, SECOND_MS + 61) is None
    assert offset_of_max_timestamp(log) == (SECOND_MS + 60, 3, 0)


def test_ends_of_leader_epochs(tmp_path: Path) -> None:
    _, log = new_log(tmp_path)
    assert log.end_offset_for_epoch(0) == (0, 0)
    send(log, [b"a", b"b"])
    assert log.end_offset_for_epoch(0) == (0, 2)
    assert log.end_offset_for_epoch(7) == log.end_offset_for_epoch(-1) == (-1, -1)
    assert log.end_offset_for_epoch(-2) == (-2, 0)
    assert read_header(fetched(log.read(0, max_bytes=100, min_one_batch=True))).leader_epoch == 0


# --- deleting -----------------------------------------------------------------------------------


def test_deleting_records(tmp_path: Path) -> None:
    _, log = new_log(tmp_path)
    for value in (b"a", b"b", b"c"):
        send(log, [value, value])
    assert log.delete_records_before(3) == 3
    assert offsets_in(log.read(3, max_bytes=1000, min_one_batch=True)) == [2, 3, 4, 5]
    assert offset_for_timestamp(log, 0) == (SECOND_MS, 3, 0)
    assert offset_of_max_timestamp(log) == (SECOND_MS, 3, 0)
    assert log.delete_records_before(1) == 3
    for offset in (7, -2):
        with pytest.raises(KafkaError) as error:
            log.delete_records_before(offset)
        assert error.value.code == Code.OFFSET_OUT_OF_RANGE
    assert log.delete_records_before(-1) == 6
    assert offset_for_timestamp(log, 0) is None
    assert offset_of_max_timestamp(log) is None
    assert send(log).first_offset == 6
    assert values_of(log) == {6: b"v"}


def test_records_that_readers_may_not_see_yet_are_not_deleted(tmp_path: Path) -> None:
    """With flush.messages=1 a power loss could remove records above the high watermark. The log
    would then end below its start.
    """
    _, log = new_log(tmp_path, flush_messages=1)
    send(log, [b"a", b"b"])
    log.flush()
    send(log, [b"c"])
    with pytest.raises(KafkaError) as error:
        log.delete_records_before(3)
    assert error.value.code == Code.OFFSET_OUT_OF_RANGE
    assert log.delete_records_before(-1) == log.log_start_offset == 2
    log.flush()
    assert log.delete_records_before(3) == 3


def test_deleting_records_of_an_open_transaction(tmp_path: Path) -> None:
    _, log = new_log(tmp_path)
    send(log, [b"a", b"b"], pid=1, epoch=0, seq=0, transactional=True)
    send(log, [b"plain"])
    assert log.delete_records_before(-1) == 3
    assert log.last_stable_offset == 3
    data = log.read(3, max_bytes=1000, isolation=COMMITTED, min_one_batch=True)
    assert (data.slice, data.aborted) == (None, [])
    assert send(log, [b"c"], pid=1, epoch=0, seq=2, transactional=True).first_offset == 3
    assert log.last_stable_offset == 3
    end(log, 1, False)
    data = log.read(3, max_bytes=1000, isolation=COMMITTED, min_one_batch=True)
    assert data.aborted == [(1, 0)]
    assert offsets_in(data) == [3, 4]


def test_an_aborted_transaction_is_no_longer_listed_when_its_segment_is_deleted(
    tmp_path: Path,
) -> None:
    _, log = new_log(tmp_path, segment_bytes=100)
    send(log, [b"a"], pid=1, epoch=0, seq=0, transactional=True)
    end(log, 1, False)
    send(log, [b"plain"])
    for start, listed in ((1, [(1, 0)]), (2, [])):
        log.delete_records_before(start)
        log.delete_old_segments(NOW_MS)
        assert (
            log.read(start, max_bytes=1000, isolation=COMMITTED, min_one_batch=True).aborted
            == listed
        )
    assert send(log, [b"b"], pid=1, epoch=0, seq=1, transactional=True).first_offset == 3
    end(log, 1, True)
    assert committed_values(log) == {2: b"plain", 3: b"b"}


def test_a_producer_whose_batches_were_deleted_is_still_known(tmp_path: Path) -> None:
    """A producer whose batches are deleted is still known.
    Source: KAFKA-7298.
    """
    _, log = new_log(tmp_path)
    for sequence in range(3):
        send(log, pid=1, epoch=0, seq=sequence)
    log.delete_records_before(-1)
    log.delete_old_segments(NOW_MS)
    assert send(log, pid=1, epoch=0, seq=2) == AppendInfo(2, 2, SECOND_MS, True)
    assert refused(log, pid=1, epoch=0, seq=7) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(log, pid=1, epoch=0, seq=3).first_offset == 3
    assert send(log, pid=2, epoch=0, seq=9).first_offset == 4


# --- flushing -----------------------------------------------------------------------------------


def test_a_flush_covers_all_segments_and_new_names(tmp_path: Path) -> None:
    _, log = new_log(tmp_path, segment_bytes=100)
    send(log)
    log.flush()
    assert log.durability.begin_flush() is None and log.durability.durable_offset >= 1
    for _ in range(3):
        send(log)
    token = log.durability.begin_flush()
    assert token is not None
    assert token.end[0] == 4
    paths = [getattr(file, "path", None) for file in token.files]
    assert [segment.batches.path(".log") for segment in log.segments] == paths[:4]
    assert len(paths) > 4  # also the directory, since the files are new
    send(log)
    assert log.durability.durable_offset < 4
    log.finish_flush(token)
    assert (
        log.durability.recovery_point,
        log.durability.durable_offset >= 4,
        log.durability.durable_offset >= 5,
    ) == (4, True, False)
    again = log.durability.begin_flush()
    assert again is not None
    assert again.end[0] == 5
    log.finish_flush(token)
    assert log.durability.recovery_point == 4


def test_an_earlier_transaction_that_aborts_later_is_listed_too(tmp_path: Path) -> None:
    """The last stable offset in the first index entry is below the end of the fetch. The next entry
    must therefore be read as well.
    """
    _, log = new_log(tmp_path, index_interval_bytes=0)
    send(log, [b"a"], pid=1, epoch=0, seq=0, transactional=True)
    send(log, [b"b"], pid=2, epoch=0, seq=0, transactional=True)
    size = log.segments.size_bytes
    end(log, 2, False)
    end(log, 1, False)
    data = log.read(0, max_bytes=size, isolation=COMMITTED, min_one_batch=True)
    assert offsets_in(data) == [0, 1]
    assert data.aborted == [(2, 1), (1, 0)]


def test_the_end_of_a_flush_does_not_lower_the_high_watermark(tmp_path: Path) -> None:
    """Another batch is appended during the flush. It stays readable when the flush ends."""
    _, log = new_log(tmp_path)
    send(log)
    token = log.durability.begin_flush()
    assert token is not None
    send(log)
    assert not log.finish_flush(token)
    assert (log.high_watermark, log.last_stable_offset) == (2, 2)


def test_a_fetch_at_the_last_stable_offset_or_the_high_watermark_is_empty(tmp_path: Path) -> None:
    _, log = new_log(tmp_path)
    send(log, pid=1, epoch=0, seq=0, transactional=True)
    data = log.read(0, max_bytes=1_000, isolation=COMMITTED, min_one_batch=True)
    assert data.slice is None and data.aborted == []
    data = log.read(1, max_bytes=1_000, isolation=Isolation.READ_UNCOMMITTED, min_one_batch=True)
    assert data.slice is None


# --- with flush.messages=1 ----------------------------------------------------------------------


def test_a_change_of_flush_messages_does_not_hide_records_from_readers(tmp_path: Path) -> None:
    """When flush.messages changes from 1 to a higher value, here 2, readers get records before the
    records are flushed.
    """
    log = new_log(tmp_path, flush_messages=1)[1]
    send(log, [b"a", b"b"])
    assert (log.high_watermark, log.last_stable_offset) == (0, 0)
    log.config = replace(log.config, flush_messages=2)
    assert (log.high_watermark, log.last_stable_offset) == (2, 2)
    log.config = replace(log.config, flush_messages=1)
    send(log)
    assert (log.high_watermark, log.last_stable_offset) == (2, 2)
    log.config = replace(log.config, retention_bytes=1)
    assert (log.high_watermark, log.last_stable_offset) == (2, 2), "another setting is none of it"


def test_an_open_transaction_beyond_the_high_watermark_does_not_move_the_stable_offset(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path, flush_messages=1)[1]
    send(log)
    send(log, pid=1, epoch=0, seq=0, transactional=True)
    assert (log.high_watermark, log.last_stable_offset) == (0, 0)
    log.flush()
    assert (log.high_watermark, log.last_stable_offset) == (2, 1)
    end(log, 1, True)
    assert (log.high_watermark, log.last_stable_offset) == (2, 2), "a decision brings it back"


def test_the_end_of_a_flush_says_whether_readers_may_read_more(tmp_path: Path) -> None:
    log = new_log(tmp_path, flush_messages=1)[1]
    send(log)
    first = log.durability.begin_flush()
    send(log)
    second = log.durability.begin_flush()
    assert first is not None and second is not None
    assert log.finish_flush(second) and log.high_watermark == log.last_stable_offset == 2
    assert not log.finish_flush(first) and not log.finish_flush(second)
    assert log.high_watermark == 2


def test_without_flush_messages_1_the_end_of_a_flush_makes_no_record_readable(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path)[1]
    send(log)
    token = log.durability.begin_flush()
    assert token is not None and not log.finish_flush(token)


@pytest.mark.parametrize("flush_messages", [1, 2])
@pytest.mark.parametrize("is_decided", [False, True])
@pytest.mark.parametrize("has_data", [False, True])
def test_an_undecided_marker_that_is_not_durable_leaves_its_transaction_unstable(
    tmp_path: Path, flush_messages: int, is_decided: bool, has_data: bool
) -> None:
    """The data of the transaction are durable, but its marker is not."""
    log = new_log(tmp_path, flush_messages=flush_messages)[1]
    if has_data:
        send(log, pid=1, epoch=0, seq=0, transactional=True)
    log.flush()
    offset = append_marker(
        log,
        producer_id=1,
        producer_epoch=0,
        coordinator_epoch=0,
        commit=True,
        now_ms=NOW_MS,
        is_decided=is_decided,
    )
    assert offset == int(has_data)
    if flush_messages > 1:
        assert log.last_stable_offset == log.log_end_offset
    else:
        is_stable = is_decided or not has_data
        assert log.last_stable_offset == (int(has_data) if is_stable else 0)
    log.flush()
    assert log.last_stable_offset == log.log_end_offset


def test_after_a_start_readers_see_records_up_to_the_recovery_point_until_a_flush(
    tmp_path: Path,
) -> None:
    manager, log = new_log(tmp_path, flush_messages=1)
    send(log)
    log.flush()
    manager.write_checkpoints()
    send(log)
    config = log.config
    manager, log = reopened(manager, config, clean=False)
    assert (log.high_watermark, log.last_stable_offset, log.log_end_offset) == (1, 1, 2)
    log.flush()
    assert log.high_watermark == 2


def test_a_start_restores_open_transactions_below_the_recovery_point(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path, flush_messages=1)
    send(log)
    send(log, pid=1, epoch=0, seq=0, transactional=True)
    send(log)
    log = reopened(manager, log.config, clean=True)[1]
    assert (log.high_watermark, log.last_stable_offset) == (3, 1)


# --- the wall clock -----------------------------------------------------------------------------


def test_records_are_stamped_by_the_wall_clock_and_not_by_the_steady_one(tmp_path: Path) -> None:
    log = new_log(tmp_path, timestamp_type_log_append=True)[1]
    log.wall.ahead_ms = 5_000
    send(log)
    checked = check_client_batch(memoryview(batch()), log.rules, NOW_MS)
    log.append(checked.view, now_ms=NOW_MS, checked=checked)
    append_records(log, [(b"k", b"v")], NOW_MS)
    end(log, 1, True)
    assert [header.max_timestamp for header, _ in log.read_batches()] == [NOW_MS + 5_000] * 4


@pytest.mark.parametrize("behind_ms", [-YEAR_MS, -1001, -1000, -1, 0, 1, 1000, 1001, YEAR_MS])
def test_a_markers_record_has_the_wall_clock_time_if_its_decision_is_far_away(
    tmp_path: Path, behind_ms: int
) -> None:
    """The base timestamp orders decisions. Retention uses the timestamp of the record."""
    log = new_log(tmp_path)[1]
    send(log, pid=2, epoch=0, seq=0, transactional=True)
    decided_ms = NOW_MS + behind_ms
    write_marker(log, NewMarker(2, 0, 7, True, True, decided_ms), NOW_MS)
    header, marker = list(log.read_batches())[-1]
    is_near = abs(behind_ms) <= 1000
    assert (header.base_timestamp, header.max_timestamp) == (
        decided_ms,
        decided_ms if is_near else NOW_MS,
    )
    (record,) = records_of(marker)
    assert record.timestamp == header.max_timestamp
    assert decode_marker(marker) == EndTransactionMarker(commit=True, coordinator_epoch=7)
    assert header.crc == computed_crc(marker)
    send(log, pid=2, epoch=0, seq=1, transactional=True)
    assert log.ended_before_open_transaction(2, decided_ms)
    assert not log.ended_before_open_transaction(2, decided_ms + 1)


def test_retention_goes_by_the_wall_clock(tmp_path: Path) -> None:
    log = new_log(tmp_path, retention_ms=1_000)[1]
    log.wall.ahead_ms = 0
    send(log, timestamp=NOW_MS)
    log.flush()
    log.wall.ahead_ms = -5_000
    assert log.delete_old_segments(NOW_MS + 2_000) == 0
    log.wall.ahead_ms = 5_000
    assert log.delete_old_segments(NOW_MS - 2_000) == 1


# --- leader epochs ------------------------------------------------------------------------------


def test_the_leader_epoch_of_batches_is_the_latest_that_began(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path)
    assert log.leader_epoch == 0
    send(log)
    log.begin_leader_epoch(7)
    send(log)
    assert [header.leader_epoch for header, _ in log.read_batches()] == [0, 7]
    again = reopened(manager, log.config, clean=True)[1]
    assert again.epochs.latest == again.leader_epoch == 8, "a start begins one"


def test_an_epoch_is_written_once_and_before_its_first_batch(tmp_path: Path) -> None:
    """An epoch without a batch is dropped when the next epoch begins. This changes rows that the
    manifest covers, so the manifest is rewritten.
    """
    log = new_log(tmp_path)[1]
    disk = RecordingDisk()
    send(log)
    log.epochs.disk = log._checkpoint._disk = disk
    for epoch, makes_checkpoint in ((3, False), (4, False)):
        log.begin_leader_epoch(epoch)
        send(log)
        steps = disk.take_steps()
        assert ("write", LEADER_EPOCH_NAME) in steps
        assert (("write", MANIFEST_NAME) in steps) == makes_checkpoint
        send(log)
        assert disk.take_steps() == [], "it is in the file"
    log.begin_leader_epoch(5)
    log.epochs.write()
    log.begin_leader_epoch(6)
    send(log)
    steps = disk.take_steps()
    assert ("write", LEADER_EPOCH_NAME) in steps and ("write", MANIFEST_NAME) in steps
    assert log.epochs.entries[-1] == (6, 5)


# --- files, and due work ------------------------------------------------------------------------


def test_the_files_of_a_log_are_created_once_and_not_flushed(tmp_path: Path) -> None:
    disk = RecordingDisk()
    config = LogConfig()
    log = open_manager(tmp_path, config, disk=disk).create("t", 0, TOPIC_ID, config, NOW_MS)
    disk.take_steps()
    log.files.make()
    assert sorted(disk.take_steps()) == [
        ("write", LEADER_EPOCH_NAME),
        ("write", PARTITION_METADATA_NAME),
    ]
    log.files.make()
    assert disk.take_steps() == []


def test_unread_bytes_counts_what_was_written_since_the_checkpoint(
    tmp_path: Path,
) -> None:
    manager, log = new_log(tmp_path)
    for _ in range(3):
        send(log)
    size = log.segments.active.batches.size
    assert log.unread_bytes == size + 3 * UNREAD_BATCH_BYTES
    manifest = Path(log.directory, MANIFEST_NAME)
    assert not manifest.exists()
    again, log = reopened(manager, log.config, clean=False)
    assert log.unread_bytes == size + 3 * UNREAD_BATCH_BYTES
    assert log in log.log_dir.changed_logs
    log.checkpoint()
    assert log.unread_bytes == 0 and log.snapshots.offsets[-1] == 3
    assert log not in log.log_dir.changed_logs
    log = reopened(again, log.config, clean=True)[1]
    assert log.unread_bytes == 0 and log not in log.log_dir.changed_logs


def test_a_checkpoint_is_due_only_if_a_producer_expired(tmp_path: Path) -> None:
    log = new_log(tmp_path, producer_id_expiration_ms=1_000)[1]
    send(log, pid=1, epoch=0, seq=0)
    log.checkpoint()
    assert log.expire_producers(NOW_MS) == 0
    assert log not in log.log_dir.changed_logs
    assert log.expire_producers(NOW_MS + 1_000) == 1
    assert log in log.log_dir.changed_logs


def test_a_batch_whose_check_is_deferred_is_not_changed(tmp_path: Path) -> None:
    log = new_log(tmp_path)[1]
    long = batch([b""] * 20_000)
    given = bytes(long)
    with pytest.raises(TakesLongError):
        log.append(long, now_ms=NOW_MS, at_once=CheckBudget())
    assert (long, log.log_end_offset) == (given, 0)
    log.append(long, now_ms=NOW_MS)
    assert log.log_end_offset == 20_000


def test_after_a_refused_batch_later_batches_of_its_producer_are_refused(tmp_path: Path) -> None:
    """The header of a refused batch is enough to determine its producer. A batch with fewer bytes
    is ignored.
    """
    log = new_log(tmp_path)[1]
    first, second = (batch(pid=1, epoch=0, seq=seq) for seq in (0, 1))
    add_refused(log.producer_state, first[:HEADER_SIZE])
    add_refused(log.producer_state, first[: HEADER_SIZE - 1])
    check_overtaking(log.producer_state, second[: HEADER_SIZE - 1])
    with pytest.raises(KafkaError) as error:
        check_overtaking(log.producer_state, second)
    assert error.value.code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    check_overtaking(log.producer_state, first)


def test_a_committed_read_without_a_batch_lists_no_aborted_transactions(tmp_path: Path) -> None:
    log = new_log(tmp_path)[1]
    send(log)
    found = log.read(0, max_bytes=1, isolation=COMMITTED, min_one_batch=False)
    assert (found.slice, found.aborted) == (None, [])


def test_offset_for_timestamp_with_an_upper_bound(tmp_path: Path) -> None:
    log = new_log(tmp_path)[1]
    send(log)
    assert offset_for_timestamp(log, SECOND_MS + 1, upper_bound_offset=5) is None
    assert offset_for_timestamp(log, SECOND_MS, upper_bound_offset=0) is None
    found = offset_for_timestamp(log, SECOND_MS, upper_bound_offset=1)
    assert found is not None and found.offset == 0


# --- segments -----------------------------------------------------------------------------------


def test_jitter_only_shortens_the_age_of_a_segment(tmp_path: Path) -> None:
    """Each segment gets its own share of the jitter, which does not change."""
    logs = [
        new_log(tmp_path / str(jitter), segment_ms=10_000, segment_jitter_ms=jitter)[1]
        for jitter in (0, 1, 9_000, 90_000)
    ]
    ages = [log.turnover.limits.age_ms for log in logs]
    assert ages[:2] == [10_000, 10_000]
    assert all(0 < age < 10_000 for age in ages[2:])
    log = logs[2]
    found = {log.turnover.limits.age_ms}
    for _ in range(3):
        send(log)
        log._roll(NOW_MS)
        found.add(log.turnover.limits.age_ms)
    assert len(found) > 1
    log.turnover.set_config(log.config)
    assert log.turnover.limits.age_ms in found


def test_a_change_of_the_index_interval_holds_for_the_active_segment(tmp_path: Path) -> None:
    log = new_log(tmp_path, index_interval_bytes=100_000)[1]
    send(log)
    log.config = replace(log.config, index_interval_bytes=0)
    send(log)
    assert len(log.segments.active.indexes.offset_index()) == 1


def test_after_a_roll_the_files_of_the_closed_segment_are_complete(tmp_path: Path) -> None:
    """The manifest contains the new segment, so a start after a kill needs to read neither of the
    segments.
    """
    manager, log = new_log(tmp_path, index_interval_bytes=0)
    for _ in range(3):
        send(log)
    log._roll(NOW_MS)
    assert log.unread_bytes == 0
    path = Path(log.directory, f"{0:020d}.index")
    assert path.stat().st_size == 2 * 8
    assert path.with_suffix(".timeindex").stat().st_size == 12
    kill(manager, machine=False)
    again = open_manager(tmp_path, log.config).logs["t", 0]
    assert again.unread_bytes == 0


def test_deleted_segments_are_not_flushed_and_old_snapshots_are_removed(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=150, file_delete_delay_ms=10)[1]
    for number in range(9):
        send(log, pid=1, epoch=0, seq=number)
    assert len(log.snapshots.offsets) > KEPT_SNAPSHOTS
    log.delete_records_before(9)
    assert log.delete_old_segments(NOW_MS) > 3
    token = log.durability.begin_flush()
    assert token is not None
    files = [file for file in token.files if not isinstance(file, DirectorySync)]
    new_name = 1  # partition.metadata
    assert len(files) == len(log.segments) + new_name
    left = sorted(int(path.stem) for path in Path(log.directory).glob("*.snapshot"))
    assert left == sorted(log.snapshots.offsets)


def test_snapshots_of_deleted_segments_are_removed(tmp_path: Path) -> None:
    """The snapshots are deleted together with the segments. If the topic gets no more writes, no
    later roll would delete them.
    """
    log = new_log(tmp_path, segment_bytes=150)[1]
    for number in range(20):
        send(log, pid=1, epoch=0, seq=number)
    assert len(list(Path(log.directory).glob("*.snapshot"))) > 5
    log.delete_records_before(20)
    log.delete_old_segments(NOW_MS)
    assert len(list(Path(log.directory).glob("*.snapshot"))) == KEPT_SNAPSHOTS


def test_no_record_at_all_may_be_deleted_before_offset_0(tmp_path: Path) -> None:
    log = new_log(tmp_path)[1]
    assert log.delete_records_before(0) == 0


def test_epochs_before_the_logs_start_are_forgotten(tmp_path: Path) -> None:
    log = new_log(tmp_path)[1]
    send(log)
    log.begin_leader_epoch(3)
    send(log)
    log.begin_leader_epoch(4)
    send(log)
    log.delete_records_before(2)
    assert log.epochs.entries == [(4, 2)]


# --- close --------------------------------------------------------------------------------------


def test_a_log_that_was_not_written_to_leaves_no_files(tmp_path: Path) -> None:
    config = LogConfig()
    manager = open_manager(tmp_path, config)
    log = manager.create("t", 0, TOPIC_ID, config, NOW_MS)
    assert log.begin_close() == []
    assert not Path(log.directory).exists()


def test_a_stop_flushes_names_that_are_not_durable(tmp_path: Path) -> None:
    manager, log = new_log(tmp_path)
    send(log)
    log = reopened(manager, log.config, clean=True)[1]
    assert log.begin_close() == []
    log.durability.add_names()
    assert log.begin_close() != []


def test_a_closed_log_is_durable_and_has_no_file_open(tmp_path: Path) -> None:
    log = new_log(tmp_path)[1]
    send(log)
    flushed: list[str] = []
    file = log.segments.active.batches.file

    class Watched:
        def fsync(self) -> None:
            flushed.append("log")
            file.fsync()

        def __getattr__(self, name: str) -> object:
            return getattr(file, name)

    log.segments.active.batches.open_file = Watched()  # type: ignore[assignment]
    log.close()
    assert flushed == ["log"]
    assert log.segments.active.batches.open_file is None


def test_a_deleted_log_is_due_for_no_checkpoint(tmp_path: Path) -> None:
    log = new_log(tmp_path)[1]
    send(log)
    assert log in log.log_dir.changed_logs
    log._roll(NOW_MS)
    log.segments[0].seal()
    log.segments[0].indexes.drop()
    log.segments[0].indexes.offset_index()
    assert log.log_dir.cache.bytes > 0
    log.forget()
    assert log.log_dir.cache.bytes == 0
    send(log)
    assert log not in log.log_dir.changed_logs


# --- errors of the disk -------------------------------------------------------------------------


class FailingDisk(OsDisk):
    """A disk on which an atomic write of the file named `fails` raises an error."""

    fails, code = "", errno.EIO

    def write_atomic(self, path: str, data: Data, *, sync: bool = True) -> None:
        if self.fails and path.endswith(self.fails):
            raise OSError(self.code, os.strerror(self.code), path)
        super().write_atomic(path, data, sync=sync)


def log_on_failing_disk(path: Path) -> tuple[Log, FailingDisk]:
    disk = FailingDisk()
    config = LogConfig(segment_bytes=150)
    log = open_manager(path, config, disk=disk).create("t", 0, TOPIC_ID, config, NOW_MS)
    send(log)
    log.begin_leader_epoch(3)
    send(log)
    return log, disk


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_full_disk_delays_file_writes_and_another_disk_error_is_raised(
    tmp_path: Path, code: int
) -> None:
    """If the disk has no space for a manifest, for a roll that retention needs, or for the file of
    leader epochs, the write is retried later. Any other error of the disk is raised.
    """

    def act(fails: str, action: Callable[[Log], object]) -> None:
        log, disk = log_on_failing_disk(tmp_path / fails)
        disk.fails, disk.code = fails, code
        if code == errno.EIO:
            with pytest.raises(OSError, match=os.strerror(code)):
                action(log)
        else:
            action(log)

    act(MANIFEST_NAME, lambda log: log._roll(NOW_MS))
    act(".snapshot", lambda log: log.try_roll(NOW_MS))
    act(LEADER_EPOCH_NAME, lambda log: log.delete_records_before(1))
