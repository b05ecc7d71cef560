"""Markers for a partition that has no batch, when the disk has no space for its files."""

from __future__ import annotations

import errno

import pytest
from helpers.disk_broker import DiskBroker, Producer
from sim.disk import Refusal

from barnabas.protocol.errors import Code

WANTING = [
    ("entry", errno.EDQUOT),
    ("inode", errno.ENOSPC),
    ("rename", errno.ENOSPC),
    ("inode", errno.EMFILE),
]


def refuse(b: DiskBroker, operation: str, code: int) -> None:
    """Make an operation of the disk fail for the files of partitions."""
    for log in b.broker.topics.logs_of("__transaction_state"):
        # After this flush, the coordinator's files need no flush, so only those of the partition
        # are refused.
        log.flush()
    b.disk.refuse(Refusal(frozenset([operation]), code))


@pytest.mark.parametrize(("operation", "code"), WANTING)
def test_a_transaction_whose_first_batch_was_refused_can_be_aborted(
    operation: str, code: int
) -> None:
    b = DiskBroker()
    b.topic("t")
    p = Producer(b, "txn")
    assert p.add("t", 0) == 0
    refuse(b, operation, code)
    assert p.produce("t", 0, b"a") == Code.KAFKA_STORAGE_ERROR
    assert p.end(False) == 0
    b.disk.refuse(None)
    assert b.state("txn")[0] == "CompleteAbort"
    p.send("t", 0, b"b")
    assert p.end(True) == 0
    b.kill()
    assert b.read("t", committed=True) == [b"b"]


@pytest.mark.parametrize(("operation", "code"), WANTING)
def test_a_transaction_without_a_batch_times_out_without_disk_space(
    operation: str, code: int
) -> None:
    b = DiskBroker()
    b.topic("t")
    p = Producer(b, "txn", timeout_ms=1000)
    assert p.add("t", 0) == 0
    refuse(b, operation, code)
    b.tick(20_000)
    b.disk.refuse(None)
    assert b.state("txn")[0] == "CompleteAbort"


@pytest.mark.parametrize("commit", [False, True])
def test_a_decision_whose_marker_is_missing_does_not_end_the_next_transaction(commit: bool) -> None:
    """Partition t-1 has no marker that shows that the decision was applied, so the Complete record
    is flushed. Otherwise the start after a power loss would apply the decision again.
    """
    b = DiskBroker()
    b.topic("t", 2)
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    assert p.add("t", 1) == 0
    refuse(b, "entry", errno.EDQUOT)
    assert p.end(commit) == 0
    b.disk.refuse(None)
    p.send("t", 1, b"next")
    b.sync("t-1")
    b.sync("__transaction_state")
    b.lose_power()
    assert b.read("t", 0, committed=True) == ([b"a"] if commit else [])
    assert b.read("t", 1, committed=True) == []
    assert b.end_offset("t", 1, committed=True) == b.end_offset("t", 1)


@pytest.mark.parametrize(("operation", "code"), WANTING)
def test_write_txn_markers_is_refused_without_disk_space(operation: str, code: int) -> None:
    b = DiskBroker()
    b.topic("t")
    refuse(b, operation, code)
    assert b.write_marker(77, 0, "t", commit=False) == Code.KAFKA_STORAGE_ERROR
    b.disk.refuse(None)
    assert b.markers("t") == []
    assert b.write_marker(77, 0, "t", commit=False) == 0
    assert b.markers("t") == [(77, 0, False)]


def test_a_disk_error_other_than_lack_of_space_ends_the_broker() -> None:
    b = DiskBroker()
    b.topic("t")
    p = Producer(b, "txn")
    assert p.add("t", 0) == 0
    refuse(b, "entry", errno.EIO)
    with pytest.raises(OSError, match=r"Input/output"):
        p.end(False)
    with pytest.raises(OSError, match=r"Input/output"):
        b.write_marker(77, 0, "t", commit=False)


def test_a_flush_of_many_new_logs_syncs_the_data_directory_once() -> None:
    b = DiskBroker()
    b.topic("t", 20)
    p = Producer(b, "txn")
    b.hold_flushes()
    for index in range(20):
        p.send("t", index, b"a")
    b.send(p.connection, p.end_request(True), 3)
    files = [file for job in b.broker.outbox.flushes for file in job.files]
    assert len(files) == len(set(files)) > 20
