"""Once the deletion of a topic has begun, it is completed even after kills and power losses. Until
then, the topic is complete.
"""

from __future__ import annotations

import itertools
import uuid
from contextlib import suppress

import pytest
from helpers.disk_broker import DiskBroker, Producer, creation_of
from sim.disk import Crash

from barnabas.broker.slices import run_through
from barnabas.coordinator.groups.offsets import offset_removal
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.storage.log.log import Log

PARTITIONS = 3


def prepared() -> DiskBroker:
    """Return a broker with a topic that has a record in each partition, and a group that has read
    it. Everything is durable.
    """
    b = DiskBroker()
    b.topic("t", PARTITIONS, flush_messages="1")
    for partition in range(PARTITIONS):
        assert b.produce("t", (b"old",), partition=partition) == (0, 0)
    p = Producer(b, "txn")
    p.send_offset("g", "t", 1)
    assert p.end(True) == 0
    b.stop()
    return b


def delete(b: DiskBroker) -> None:
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
    assert b.call(request, 3).responses[0].error_code == Code.NONE


@pytest.mark.parametrize("crash", ["kill", "lose_power"])
def test_a_crash_at_any_step_leaves_the_topic_complete_or_deleted(crash: str) -> None:
    outcomes = set()
    for steps in itertools.count():
        b = prepared()
        b.disk.crash_in(steps)
        try:
            delete(b)
        except Crash:
            getattr(b, crash)()
        else:
            break
        found = b.broker.metadata.topic("t")
        if found is not None:
            assert [b.read("t", partition) for partition in range(PARTITIONS)] == [
                [b"old"]
            ] * PARTITIONS, f"step {steps}"
            assert b.group_offset("g", "t") == (0, 1)
        else:
            assert not {f"t-{partition}" for partition in range(PARTITIONS)} & set(
                b.disk.list("/data")
            ), f"step {steps}"
            b.topic("t", PARTITIONS)
            assert [b.read("t", partition) for partition in range(PARTITIONS)] == [[]] * PARTITIONS
            assert b.group_offset("g", "t") == (0, -1), (
                f"step {steps}: the offset is of the topic that was deleted"
            )
        outcomes.add(found is not None)
        getattr(b, crash)()
        assert b.broker.metadata.topic("t") is not None, (
            "the topic, also a new one of that name, survives the next crash"
        )
        assert b.broker.metadata.deletions == {}
    b.lose_power()
    assert b.broker.metadata.topic("t") is None, "a deletion that was answered is durable"
    assert steps > PARTITIONS
    assert outcomes == {True, False}


def sync_contents(b: DiskBroker) -> None:
    """Flush the contents of files but not their names, as an operating system may do by itself."""
    for _, inode in b.disk.files():
        inode.sync()


def test_a_finished_deletion_survives_a_power_loss() -> None:
    """The new names of the directories are durable before the deletion is forgotten."""
    b = DiskBroker(barnabas_flush_journal_logs="0")
    b.topic("t")
    assert b.produce("t", (b"old",)) == (0, 0)
    b.disk.sync_all()
    delete(b)
    assert b.broker.metadata.deletions == {}
    b.topic("u")  # this also writes the end of the deletion
    sync_contents(b)
    b.lose_power()
    assert b.broker.metadata.topic("t") is None


def test_a_deletion_removes_the_topics_compaction_checkpoint() -> None:
    """A new topic of that name begins at offset 0, and so must its compaction."""
    b = prepared()
    b.topic("u")
    b.broker.close_logs(b.now_ms)
    path = "/data/cleaner-offset-checkpoint"
    b.disk.write_atomic(path, b"0\n2\nt 1 1\nu 0 0\n")
    b.disk.kill()
    b.open()
    delete(b)
    assert b.disk.read(path) == b"0\n1\nu 0 0\n"


def test_committed_offsets_of_many_groups_are_removed_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offset_removal, "RECORDS_PER_BATCH", 2)
    b = DiskBroker()
    b.topic("t")
    for number in range(8):
        assert b.commit(f"g-{number}", "t", 0) == 0
    slices = b.parts.deletion.delete_topics(["t"], b.now_ms)
    slices.send(None)
    count = 1
    with suppress(StopIteration):
        while True:
            slices.send(b.now_ms)
            count += 1
    assert count >= 2
    b.flush()
    assert b.broker.metadata.deletions == {}
    assert all(b.group_offset(f"g-{number}", "t") == (0, -1) for number in range(8))


def test_a_deletion_that_a_start_finished_survives_a_power_loss() -> None:
    """Otherwise a directory that a power loss restores would be mistaken for the topic of another
    broker.
    """
    finished = 0
    for steps in itertools.count():
        b = prepared()
        b.disk.crash_in(steps)
        try:
            delete(b)
        except Crash:
            b.kill()
        else:
            break
        if b.broker.metadata.topic("t") is None:
            finished += 1
            b.topic("u")
            sync_contents(b)
            b.lose_power()
            assert b.broker.metadata.topic("t") is None, f"step {steps}"
    assert finished > 1


def test_a_finished_deletion_is_not_repeated_on_restored_directories() -> None:
    """A directory that an operator restores counts as a directory of another broker. Its topic is
    taken over, and not deleted again.
    """
    b = prepared()
    delete(b)
    assert b.broker.metadata.deletions == {}
    going = [
        name for name in b.disk.list("/data") if name.startswith("t-") and name.endswith("-delete")
    ]
    assert len(going) == PARTITIONS
    b.broker.close_logs(b.now_ms)
    b.disk.kill()
    for name in going:
        b.disk.rename(f"/data/{name}", f"/data/{name[:3]}")
    b.open()
    assert [b.read("t", partition) for partition in range(PARTITIONS)] == [[b"old"]] * PARTITIONS


def test_creating_a_topic_of_another_name_does_not_flush_group_offsets() -> None:
    """Group offsets are flushed only when a new topic has the name of a topic that is being
    deleted: the offsets of the old topic must first be removed.
    """
    b = DiskBroker(barnabas_flush_journal_logs="0")
    for name in ("t", "u"):
        b.topic(name)
    assert b.commit("g", "t", 0) == 0
    b.hold_flushes()
    offsets = b.broker.topics.logs_of("__consumer_offsets")

    def are_durable() -> bool:
        return all(log.durability.durable_offset == log.log_end_offset for log in offsets)

    delete(b)
    b.topic("v")
    assert not are_durable() and b.broker.metadata.deletions
    b.topic_after_flushes("t")
    assert are_durable() and not b.broker.metadata.deletions


def test_a_topic_may_be_deleted_while_a_flush_of_it_runs() -> None:
    b = DiskBroker()
    b.topic("t", flush_ms="1")
    assert b.produce("t", (b"old",)) == (0, 0)
    b.hold_flushes()
    b.tick(5)
    assert b.broker.outbox.flushes, "the new log's directory is to be flushed"
    delete(b)
    b.release_flushes()
    b.topic("t")
    assert b.read("t") == []


def test_a_topic_that_was_deleted_before_its_flush_is_due_is_not_flushed() -> None:
    b = DiskBroker()
    b.topic("t", flush_ms="50")
    assert b.produce("t", (b"old",)) == (0, 0)
    delete(b)
    b.topic("t")
    b.tick(60)
    assert b.read("t") == []


def test_a_topic_recreated_at_once_has_no_offsets_of_the_deleted_one() -> None:
    """This must hold even if a power loss occurs before the next flush of the offsets'
    tombstones.
    """
    b = prepared()
    b.hold_flushes()
    delete(b)
    assert b.broker.metadata.deletions
    b.topic_after_flushes("t")
    assert b.broker.metadata.deletions == {}
    b.lose_power()
    assert b.group_offset("g", "t") == (0, -1)


def test_an_interrupted_deletion_ignores_the_topics_records_in_a_flush_journal() -> None:
    """The flush journal has records of the topic's logs. After an interrupted deletion, a start
    must not write them to the next topic of that name.
    """
    for steps in range(1, 4):
        b = DiskBroker()
        b.topic("t", PARTITIONS)
        p = Producer(b, "txn")
        for _ in range(2):  # the first flush of a log goes to its own files
            for partition in range(PARTITIONS):
                p.send("t", partition, b"old")
            assert p.end(True) == 0
        assert [name for name in b.disk.list("/data") if name.startswith("barnabas-flush-")]
        b.parts.transaction_ends.flush_completions(
            b.now_ms
        )  # `steps` then counts only the disk operations of the deletion
        b.disk.crash_in(steps)
        with pytest.raises(Crash):
            delete(b)
        b.kill()
        assert b.broker.metadata.topic("t") is None
        b.tick(100)
        b.topic("t", PARTITIONS)
        assert b.read("t", 2) == []


@pytest.mark.parametrize("journal", ["0", "2"])
@pytest.mark.parametrize("way", ["before", "meanwhile", "before a kill"])
def test_a_decision_does_not_end_a_transaction_on_a_recreated_topic(way: str, journal: str) -> None:
    """The worst power loss keeps the decision and loses the record of its completion. The
    transaction that is then open in the topic is a later one.
    """
    b = DiskBroker(barnabas_flush_journal_logs=journal)
    b.topic("t", flush_messages="1")
    p = Producer(b, "txn")
    p.send("t", 0, b"of the first")
    if way == "before":
        assert p.end(True) == 0
    else:
        b.hold_flushes()
        p.start_end(True)
        while p.ended() is None:
            assert b.flush_one()
        if way == "before a kill":
            b.broker.metadata.delete_topics(["t"])
            b.kill()
            p.connection = b.connect()
        b.release_flushes()
    if way != "before a kill":
        delete(b)
    b.topic("t", flush_messages="1")
    assert p.add("t", 0) == 0
    assert p.produce("t", 0, b"of the second") == 0
    b.lose_power()
    assert b.read("t") == [b"of the second"], "it was flushed"
    assert b.read("t", committed=True) == []


@pytest.mark.parametrize("journal", ["0", "2"])
@pytest.mark.parametrize("comes_again", [False, True])
def test_a_topic_goes_while_a_commit_on_it_waits_for_its_data(
    comes_again: bool, journal: str
) -> None:
    """The transaction commits in the other topic. It does not affect the next topic with the
    deleted topic's name.
    """
    b = DiskBroker(barnabas_flush_journal_logs=journal)
    p = Producer(b, "txn")
    for topic in ("t", "u"):
        b.topic(topic)
        p.send(topic, 0, b"a")
    b.hold_flushes()
    p.start_end(True)
    delete(b)
    if comes_again:
        b.send(b.connect(), creation_of("t", 1, {}), 7)
    while p.ended() is None:
        assert b.flush_one()
    assert p.ended() == 0
    b.release_flushes()
    for _ in range(2):
        b.tick()
        assert ("t" in b.broker.topics) == comes_again
        assert b.read("u", committed=True) == [b"a"]
        assert not comes_again or b.read("t") == b.markers("t") == []
        b.lose_power()


@pytest.mark.parametrize("journal", ["0", "2"])
def test_a_name_is_used_again_when_the_completions_of_decisions_on_it_are_durable(
    journal: str,
) -> None:
    """All flushes are held back until the creation of the next topic waits for them."""
    b = DiskBroker(barnabas_flush_journal_logs=journal)
    b.topic("t")
    p = Producer(b, "txn")
    p.send("t", 0, b"of the first")
    assert p.end(True) == 0
    b.hold_flushes()
    delete(b)
    b.topic_after_flushes("t")
    b.sync("t-0")
    b.lose_power()
    assert b.markers("t") == [], "the decision is not carried out again"


def test_offsets_of_a_recreated_topic_are_kept() -> None:
    """The kill occurs when the next topic of that name exists, but the end of the deletion is not
    yet written.
    """
    b = prepared()
    delete(b)
    b.topic("t", PARTITIONS)
    p = Producer(b, "next")
    p.send_offset("g", "t", 7)
    assert p.end(True) == 0
    b.broker.metadata.deletions[uuid.UUID(int=1)] = "t"
    run_through(b.parts.deletion.end_deletions({uuid.UUID(int=1): "t"}, b.now_ms), b.now_ms)
    assert b.group_offset("g", "t") == (0, 7)


def test_removed_directories_are_durable_before_the_deletion_ends() -> None:
    b = prepared()
    delete(b)
    b.flush()
    b.lose_power()
    names = [name for name in b.disk.list("/data") if name.startswith("t-")]
    assert [name for name in names if not name.endswith("-delete")] == []


@pytest.mark.parametrize("steps", range(1, 5))
def test_directories_that_a_start_removes_are_durable_before_the_deletion_ends(steps: int) -> None:
    b = prepared()
    b.disk.crash_in(steps)
    with pytest.raises(Crash):
        delete(b)
    b.kill()
    assert b.broker.metadata.deletions == {}
    b.lose_power()
    names = [name for name in b.disk.list("/data") if name.startswith("t-")]
    assert [name for name in names if not name.endswith("-delete")] == []
    assert b.broker.metadata.topic("t") is None


def test_creating_a_topic_ends_only_the_deletion_of_that_name() -> None:
    b = prepared()
    first, second = uuid.UUID(int=1), uuid.UUID(int=2)
    b.broker.metadata.deletions.update({first: "u", second: "v"})
    b.topic("w")
    assert set(b.broker.metadata.deletions) == {first, second}
    b.topic("u")
    assert set(b.broker.metadata.deletions) == {second}


def refuse(self: Log) -> None:
    raise AssertionError(f"{self!r} is flushed while everybody else waits")


@pytest.mark.parametrize("journal", ["0", "2"])
def test_flushes_before_a_recreation_do_not_run_in_the_event_loop(
    journal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Log.flush`, which blocks the event loop, is replaced by a function that fails: all flushes
    before the new creation must go through the flush queue.
    """
    b = DiskBroker(barnabas_flush_journal_logs=journal, offsets_topic_num_partitions="50")
    b.topic("t")
    p = Producer(b, "txn")
    p.send("t", 0, b"of the first")
    assert b.commit("g", "t", 0) == 0
    assert p.end(True) == 0
    b.hold_flushes()
    monkeypatch.setattr(Log, "flush", refuse)
    delete(b)
    b.topic_after_flushes("t")
    assert not b.parts.transaction_ends.undurable()
    assert b.read("t") == []


def test_a_stop_completes_a_creation_that_waits_for_a_flush() -> None:
    b = prepared()
    b.hold_flushes()
    delete(b)
    b.send(b.connect(), creation_of("t", 1, {}), 7)
    assert "t" not in b.broker.topics
    b.broker.close_logs(b.now_ms)
    assert "t" in b.broker.topics
