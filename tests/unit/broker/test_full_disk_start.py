"""Starts and stops on a disk without a free byte: reads are served, and writes are refused."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest
from helpers.disk_broker import DiskBroker, Producer
from helpers.full_disk import ALL, FullDisk
from sim.disk import Refusal

from barnabas.protocol.errors import Code
from barnabas.storage.disk import NotWrittenError
from barnabas.storage.opening.last_run import LastRun

NO_SPACE = Refusal(ALL, errno.ENOSPC)


def kill(b: DiskBroker) -> None:
    b.disk.refuse(NO_SPACE)
    b.kill()


def stop(b: DiskBroker) -> None:
    """Stop the broker cleanly, then start it without disk space."""
    b.broker.close_logs(b.now_ms)
    b.disk.kill()
    b.disk.refuse(NO_SPACE)
    b.open()


def stop_and_boot(b: DiskBroker) -> None:
    """Stop the broker cleanly and restart the machine, then start the broker without disk space."""
    b.broker.close_logs(b.now_ms)
    b.disk.sync_all()
    b.disk.lose_power()
    b.disk.refuse(NO_SPACE)
    b.open()


def stop_without_space(b: DiskBroker) -> None:
    """Stop the broker without space for the files that a clean start reads, then start it."""
    b.disk.refuse(NO_SPACE)
    with pytest.raises(OSError, match="No space left"):
        b.broker.close_logs(b.now_ms)
    b.disk.kill()
    b.open()


ENDS = (kill, stop, stop_and_boot, stop_without_space)


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.__name__)
def test_a_start_without_space_serves_reads_and_refuses_writes(
    end: Callable[[DiskBroker], None],
) -> None:
    """The broker stays up for any length of time. It serves writes once there is space, and then a
    kill is not treated as a power loss.
    """
    full = FullDisk()
    b, before = full.b, full.state()
    end(b)
    for _ in range(2):
        assert b.read("t", committed=True) == [b"0", b"1", b"2"]
        assert b.read("t") == [b"0", b"1", b"2", b"in the transaction"]
        assert b.group_offset("old", "t") == (Code.NONE, 1)
        assert b.produce("t", (b"3",))[0] == Code.KAFKA_STORAGE_ERROR
        assert b.commit("old", "t", 2) == Code.COORDINATOR_NOT_AVAILABLE
        assert full.state() == before
        for _ in range(90):
            b.tick(1_000)
    b.disk.refuse(None)
    full.settle()
    for _ in range(90):
        b.tick(1_000)
    assert b.produce("u", (b"3",))[0] == Code.NONE
    assert b.commit("old", "t", 2) == Code.NONE
    b.kill()
    assert b.broker.logs.last_run is LastRun.KILLED
    assert b.read("u") == [b"0", b"1", b"2", b"3"]


def test_leader_epochs_of_moves_on_a_full_disk_are_not_used_again() -> None:
    """Clients know the epoch of the move from Metadata, so after the restart the leader must have a
    later epoch.
    """
    b = DiskBroker(barnabas_brokers="3")
    b.topic("t")
    b.produce("t", (b"0",))
    b.disk.refuse(NO_SPACE)
    node_ids = list(b.broker.cluster.nodes)
    epochs = [b.broker.topics.leader_epoch("t", 0)]
    for node_id in (*node_ids[1:], *node_ids):
        b.broker.failover.take_away(node_id, b.now_ms)
        b.broker.failover.give_back(node_id, b.now_ms)
        epochs.append(b.broker.topics.leader_epoch("t", 0))
    assert epochs == sorted(epochs)
    assert epochs[-1] > epochs[0]
    b.disk.refuse(None)
    b.lose_power()
    assert b.broker.topics.leader_epoch("t", 0) > epochs[-1]


@pytest.mark.parametrize("after", [0, 1, 2, 5, 9, 14, 30])
def test_a_stop_that_runs_out_of_space_ends_as_a_kill(after: int) -> None:
    """There is space for some of the files that the stop writes, and for a part of another."""
    full = FullDisk()
    b, before = full.b, full.state()
    b.disk.rng = random.Random(after)
    b.disk.refuse(NO_SPACE._replace(after=after))
    with pytest.raises(OSError, match="No space left"):
        b.broker.close_logs(b.now_ms)
    b.disk.kill()
    b.disk.refuse(NO_SPACE)
    b.open()
    assert b.broker.logs.last_run is LastRun.KILLED
    for _ in range(2):
        assert full.state() == before
        assert b.read("t", committed=True) == [b"0", b"1", b"2"]
        b.disk.refuse(None)
        b.kill()


@pytest.mark.parametrize("durability", ["flush", "os"])
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_completely_after_starts_on_a_full_disk(
    durability: str, commit: bool
) -> None:
    """The disk becomes full at any step, and then the broker is killed. The next start fails if it
    must write a decision before it serves requests. If it must only write markers, it succeeds, and
    writes them later.
    """
    refused, served, rows = 0, 0, [b"a"] if commit else []
    for after in range(24):
        b = DiskBroker(barnabas_transaction_durability=durability)
        for topic in ("t", "u"):
            b.topic(topic)
            b.make_files(topic)
        producer = Producer(b, "txn")
        for topic in ("t", "u"):
            producer.send(topic, 0, b"a")
        b.disk.refuse(NO_SPACE._replace(after=after))
        producer.start_end(commit)
        is_ended = producer.ended() == Code.NONE
        b.disk.refuse(NO_SPACE)
        for _ in range(2):
            try:
                b.kill()
            except NotWrittenError:
                refused += 1
            else:
                served += 1
                for _ in range(5):
                    b.tick(1_000)
                for topic in ("t", "u"):
                    assert b.read(topic, committed=True) in ([], rows)
        b.disk.refuse(None)
        b.kill()
        for _ in range(5):
            b.tick(1_000)
        if not is_ended:
            producer.reconnect()
            assert producer.end(commit) == Code.NONE
            b.tick(1_000)
        assert [b.read(topic, committed=True) for topic in ("t", "u")] == [rows, rows], after
        assert b.state("txn")[0] == ("CompleteCommit" if commit else "CompleteAbort")
    assert served
    assert refused or not (commit and durability == "flush")
