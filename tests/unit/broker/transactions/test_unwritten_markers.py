"""A transaction is decided while one of its partitions is off line: the partition's marker is
written when the partition is available again.
"""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest
from helpers.core_host import delete_topic
from helpers.disk_broker import DATA_DIR, DiskBroker, Producer
from sim.disk import Crash, Refusal

from barnabas.broker.transactions.unwritten_markers import (
    UNWRITTEN_MARKERS_NAME,
    UnwrittenMarker,
    UnwrittenMarkers,
)
from barnabas.protocol.errors import Code
from barnabas.storage.disk import NotWrittenError
from barnabas.storage.files.checkpoints import MANIFEST_NAME
from barnabas.storage.log.log_directory import LogDirectoryError

LOG = f"{DATA_DIR}/t-1/{0:020d}.log"
UNWRITTEN = f"{DATA_DIR}/{UNWRITTEN_MARKERS_NAME}"


def with_partition_off_line(**settings: str) -> tuple[DiskBroker, Producer]:
    """A broker that was killed with an open transaction on both partitions of t, and started with
    t-1 damaged.
    """
    b = DiskBroker(**settings)
    b.topic("t", 2)
    p = Producer(b, "txn")
    for index in (0, 1):
        p.send("t", index, b"a")
    b.disk.kill()
    damage(b)
    b.open()
    p.connection = b.connect()
    assert list(b.broker.logs.offline) == [("t", 1)]
    return b, p


def damage(b: DiskBroker) -> None:
    """Flip bits of an offset in the log of t-1. A second call undoes the change."""
    b.disk._file(LOG).data[7] ^= 7
    b.disk.unlink(f"{DATA_DIR}/t-1/{MANIFEST_NAME}")


def restore(b: DiskBroker) -> None:
    """Restart the broker with t-1 undamaged."""
    b.disk.kill()
    damage(b)
    b.open()
    assert not b.broker.logs.offline


def is_written_whole(b: DiskBroker, p: Producer, commit: bool) -> bool:
    """Check that the transaction is ended in both partitions. Gives whether the file of unwritten
    markers is gone.
    """
    assert b.read("t", committed=True) == ([b"a"] if commit else [])
    assert {(pid, ended) for pid, _, ended in b.markers("t", 1)} == {(p.pid, commit)}, (
        "a power loss may have it written twice"
    )
    assert b.end_offset("t", 1, committed=True) == b.end_offset("t", 1)
    assert b.read("t", 1, committed=True) == ([b"a"] if commit else [])
    return not b.disk.exists(UNWRITTEN)


@pytest.mark.parametrize("journal", ["0", "2"])
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("between", ["", "kill", "stop", "lose_power", "next"])
def test_a_decision_is_kept_for_an_offline_partition(
    commit: bool, between: str, journal: str
) -> None:
    b, p = with_partition_off_line(barnabas_flush_journal_logs=journal)
    assert p.end(commit) == 0
    if between == "next":
        p.send("t", 0, b"of the next")
        assert p.end(False) == 0
    elif between:
        for _ in range(2):
            getattr(b, between)()
            assert list(b.broker.logs.offline) == [("t", 1)]
    restore(b)
    assert is_written_whole(b, p, commit)
    b.lose_power()
    assert is_written_whole(b, p, commit)


@pytest.mark.parametrize("ways", [(), ("kill",), ("stop",), ("lose_power",), ("stop", "kill")])
def test_a_flush_journal_is_kept_until_its_offline_partition_has_the_data(
    ways: tuple[str, ...],
) -> None:
    """A power loss leaves a transaction's data and its decision in the flush journal alone. All
    other logs get their data in the next start, and are flushed in their own files soon after.
    """
    b = DiskBroker()
    b.topic("t", 2)
    p = Producer(b, "txn")
    for value in (b"a", b"b"):
        for index in (0, 1):
            p.send("t", index, value)
        assert p.end(True) == 0
    b.disk.lose_power()
    damage(b)
    b.open()
    for way in ways:
        b.tick(60_000)
        getattr(b, way)()
        assert list(b.broker.logs.offline) == [("t", 1)]
    for _ in range(3):
        b.tick(60_000)
    b.disk.lose_power()
    damage(b)
    b.open()
    assert not b.broker.logs.offline
    for index in (0, 1):
        assert b.read("t", index, committed=True) == [b"a", b"b"]
    for _ in range(3):
        b.tick(60_000)
    assert not any(path.endswith("0001.journal") for path, _ in b.disk.files()), (
        "then it is deleted"
    )


def test_a_kill_before_the_unwritten_marker_is_stored_loses_nothing() -> None:
    """The flush journal contains the decision, and the end offset of each partition except the
    offline one, whose end offset is unknown.
    """
    b, p = with_partition_off_line()
    other = Producer(b, "other")
    other.send("t", 0, b"first")  # every file has been flushed once after this transaction
    assert other.end(True) == 0
    b.tick(1000)
    b.hold_flushes()
    p.start_end(True)
    (job,) = b.broker.outbox.flushes
    assert any(getattr(file, "path", "").endswith(".journal") for file in job.files)
    for file in job.files:
        file.fsync()
    assert p.ended() is None and not b.disk.exists(UNWRITTEN)
    restore(b)
    assert (b.read("t", committed=True), b.read("t", 1, committed=True)) == (
        [b"a", b"first"],
        [b"a"],
    )

    b.release_flushes()
    p.connection = b.connect()
    p.send("t", 1, b"of the next")
    b.kill()
    assert b.read("t", 1, committed=True) == [b"a"], "what is open now was not decided on"
    p.connection = b.connect()
    assert p.end(False) == 0


def test_an_unwritten_marker_is_kept_after_the_transactional_id_has_expired() -> None:
    b, p = with_partition_off_line(transactional_id_expiration_ms="1000")
    assert p.end(True) == 0
    b.tick(10_000)
    b.tick(10_000)
    assert b.broker.transactions.metadata("txn") is None
    restore(b)
    assert is_written_whole(b, p, True)


@pytest.mark.parametrize("step", range(25))
def test_a_power_loss_at_any_step_leaves_the_transaction_whole(step: int) -> None:
    """The disk fails one operation later in each case. The transaction is committed as a whole, or,
    if its EndTxn was not acknowledged, may be aborted as a whole.
    """
    b, p = with_partition_off_line()
    b.disk.crash_in(step)
    answer = -1
    with suppress(Crash):
        answer = p.end(True)
    b.disk.crash_in(-1)
    b.lose_power()
    restore(b)
    assert is_written_whole(b, p, b.read("t", committed=True) == [b"a"])
    assert answer != 0 or b.read("t", 1, committed=True) == [b"a"]


def test_unwritten_markers_of_a_deleted_topic_are_not_written_to_its_successor() -> None:
    b, p = with_partition_off_line()
    assert p.end(True) == 0
    delete_topic(b.parts.deletion, "t", b.now_ms)
    b.topic("t", 2)
    assert b.disk.exists(UNWRITTEN)
    b.kill()
    assert not b.disk.exists(UNWRITTEN) and b.markers("t", 1) == []


def test_the_file_of_unwritten_markers_is_written_once() -> None:
    """While the partition is offline, further decisions and starts do not write the file of
    unwritten markers again.
    """
    b, p = with_partition_off_line()
    assert p.end(True) == 0
    kept = b.disk._file(UNWRITTEN)
    p.send("t", 0, b"b")
    assert p.add("t", 1) == 0
    assert p.end(True) == 0
    assert b.disk._file(UNWRITTEN) is kept
    b.kill()
    assert b.disk._file(UNWRITTEN) is kept


def test_unwritten_markers_of_a_deleted_topic_are_removed() -> None:
    b, p = with_partition_off_line()
    assert p.end(True) == 0
    delete_topic(b.parts.deletion, "t", b.now_ms)
    b.kill()
    assert not b.disk.exists(UNWRITTEN)


def test_a_kept_marker_has_the_timestamp_of_its_decision() -> None:
    b, p = with_partition_off_line()
    other = Producer(b, "other")
    other.send("t", 0, b"b")
    assert other.add("t", 1) == 0
    assert p.end(True) == 0
    b.now_ms += 5000
    assert other.end(True) == 0
    b.now_ms += 5000
    restore(b)
    times = [
        {
            header.base_timestamp
            for header, _ in log.read_batches()
            if header.is_control and header.producer_id == p.pid
        }
        for log in b.broker.topics.logs_of("t")
    ]
    assert len(times[0]) == 1 and times[1] == times[0]


def test_an_unwritten_marker_does_not_end_a_transaction_on_a_recreated_topic() -> None:
    b, p = with_partition_off_line()
    assert p.end(True) == 0
    delete_topic(b.parts.deletion, "t", b.now_ms)
    b.topic("t", 2)
    p.send("t", 1, b"of the next")
    b.kill()
    assert b.markers("t", 1) == [] and b.read("t", 1, committed=True) == []


@pytest.mark.parametrize("left", [None, 0, 3, 4])
def test_a_damaged_file_of_unwritten_markers_stops_the_start(left: int | None) -> None:
    """The file has a changed byte, or is cut to `left` zero bytes. An empty file needs its own
    check, since the checksum of no bytes is 0.
    """
    b, p = with_partition_off_line()
    assert p.end(True) == 0
    data = b.disk._file(UNWRITTEN).data
    if left is None:
        data[9] ^= 1
    else:
        data[:] = bytes(left)
    with pytest.raises(LogDirectoryError, match="unwritten-markers is damaged"):
        b.kill()


def test_an_offline_partition_may_be_added_to_a_transaction_and_have_offsets_committed() -> None:
    """As in Apache Kafka, an offline partition still exists. It can be added to a transaction, and
    offsets can be committed for it, but records for it are refused.
    """
    b, p = with_partition_off_line()
    assert p.end(True) == 0
    assert p.add("t", 1) == 0
    assert p.produce("t", 1, b"b") == Code.KAFKA_STORAGE_ERROR
    assert p.add_offsets("g") == 0
    answer = b.call(p.offset_request("g", "t", 7, partition=1), 3, p.connection)
    assert answer.topics[0].partitions[0].error_code == Code.NONE
    assert p.end(False) == 0
    assert p.add("t", 2) == Code.UNKNOWN_TOPIC_OR_PARTITION
    restore(b)
    assert is_written_whole(b, p, True)


@pytest.mark.parametrize("has_journal", [True, False])
@pytest.mark.parametrize("decisions", [1, 2])
def test_a_decision_over_an_offline_partition_does_not_end_a_later_transaction_there(
    decisions: int, has_journal: bool
) -> None:
    """The earlier transactions have no record in the offline partition. Their decisions are in the
    flush journal, which the next two starts read.
    """
    b = DiskBroker()
    b.topic("t", 2)
    assert b.produce("t", (b"plain",), partition=1)[0] == 0
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    assert p.add("t", 1) == 0
    b.disk.kill()
    damage(b)
    b.open()
    p.connection = b.connect()
    assert p.end(True) == 0
    for _ in range(decisions - 1):
        p.send("t", 0, b"b")
        assert p.add("t", 1) == 0
        assert p.end(True) == 0
    b.holds_flushes = has_journal  # a completed flush deletes the journal
    restore(b)
    p.connection = b.connect()
    p.send("t", 1, b"open")
    b.kill()
    assert b.read("t", 1, committed=True) == [b"plain"]
    p.connection = b.connect()
    assert p.end(False) == 0
    assert b.read("t", 1, committed=True) == [b"plain"]


@pytest.mark.parametrize("journal", ["0", "2"])
@pytest.mark.parametrize("commit", [True, False])
def test_a_power_loss_does_not_restore_an_unwritten_marker_that_was_written(
    commit: bool, journal: str
) -> None:
    """If the marker were restored, it would end the next transaction, which is already open in the
    partition.
    """
    b, p = with_partition_off_line(barnabas_flush_journal_logs=journal)
    assert p.end(commit) == 0
    restore(b)
    p.connection = b.connect()
    p.send("t", 1, b"of the next")
    for path, inode in b.disk.files():
        if path.startswith(f"{DATA_DIR}/t-1/"):
            inode.sync()  # the file names in the data directory are not synced
    b.lose_power()
    assert b.read("t", 1, committed=True) == ([b"a"] if commit else [])


def test_the_first_marker_of_a_producer_on_a_partition_is_kept() -> None:
    """A later transaction includes the same partition, and another partition that has gone offline
    since.
    """
    b = DiskBroker()
    markers = UnwrittenMarkers(b.disk, DATA_DIR)
    first = UnwrittenMarker("t", 0, bytes(16), 7, 0, 0, True, 5)
    later, other = first._replace(commit=False, decided_ms=6), first._replace(partition=1)
    markers.add([first, later])
    markers.add([later, other])
    for one in (markers, UnwrittenMarkers(b.disk, DATA_DIR)):
        kept: set[UnwrittenMarker] = set()
        one.remove(lambda marker, kept=kept: bool(kept.add(marker)))  # type: ignore[misc]
        assert kept == {first, other}


def test_an_unwritten_marker_refused_by_a_full_disk_may_be_added_again() -> None:
    b = DiskBroker()
    markers = UnwrittenMarkers(b.disk, DATA_DIR)
    marker = UnwrittenMarker("t", 0, bytes(16), 7, 0, 0, True, 5)
    b.disk.refuse(Refusal(frozenset({"write", "inode"}), errno.ENOSPC))
    with pytest.raises(NotWrittenError):
        markers.add([marker])
    assert not len(markers)
    b.disk.refuse(None)
    markers.add([marker])
    assert UnwrittenMarkers(b.disk, DATA_DIR).producer_ids == {7}
