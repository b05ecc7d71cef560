"""The decision on a commit in the flush journal: the state of the transaction after a kill or a
power loss at any step.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from helpers.core_host import delete_topic
from helpers.disk_broker import DATA_DIR, DiskBroker, Producer
from sim.disk import Crash, Inode

from barnabas.coordinator.result import partition_for
from barnabas.storage.log.log_directory import LogDirectoryError

TRANSACTIONS = "__transaction_state"


def ready(**settings: str) -> tuple[DiskBroker, Producer]:
    """Create a broker and a producer with one committed transaction, after which all files were
    flushed, and an open transaction with further records.
    """
    b = DiskBroker(**settings)
    b.topic("in")
    b.topic("t", 2)
    p = Producer(b, "txn")
    for value in (b"a", b"b"):
        p.send("t", 0, value)
        p.send("t", 1, value)
        p.send_offset("group", "in", 1 if value == b"a" else 2)
        if value == b"a":
            assert p.end(True) == 0
            b.tick(1000)
    return b, p


def is_committed(b: DiskBroker) -> bool:
    """Whether the second transaction is visible to readers; fails if only a part of it is."""
    found = [b.read("t", index, committed=True) for index in (0, 1)]
    assert found in ([[b"a"], [b"a"]], [[b"a", b"b"], [b"a", b"b"]]), found
    is_whole = found[0] == [b"a", b"b"]
    assert b.group_offset("group", "in") == (0, 2 if is_whole else 1)
    return is_whole


def with_decision_on_the_disk(**settings: str) -> tuple[DiskBroker, Producer]:
    """Return a broker whose journal has a durable frame with the decision. The core does not know
    yet that the flush has ended.
    """
    b, p = ready(**settings)
    b.hold_flushes()
    p.start_end(True)
    (job,) = b.broker.outbox.flushes
    assert [getattr(file, "path", "")[-8:] for file in job.files] == [".journal"], (
        "one file for data and decision"
    )
    for file in job.files:
        file.fsync()
    assert p.ended() is None and b.state("txn")[0] == "Ongoing"
    return b, p


@pytest.mark.parametrize("restart", ["kill", "lose_power"])
def test_a_decision_that_is_only_in_the_journal_takes_effect_after_a_restart(restart: str) -> None:
    b, _ = with_decision_on_the_disk()
    getattr(b, restart)()
    assert is_committed(b)
    assert b.markers("t")[-1][2] is True
    assert b.state("txn")[0] == ("CompleteCommit" if restart == "kill" else "Empty")


def test_a_commit_that_is_repeated_after_a_kill_succeeds() -> None:
    b, p = with_decision_on_the_disk()
    b.kill()
    p.connection = b.connect()
    assert p.end(True) == 0
    p.send("t", 0, b"c")
    assert p.end(False) == 0
    b.lose_power()
    assert is_committed(b)


def test_a_decision_survives_a_power_loss_during_the_start_that_found_it() -> None:
    """The journal is kept until all effects of the decision are in the logs' own files."""
    b, _ = with_decision_on_the_disk()
    b.disk.kill()
    b.holds_flushes = True
    b.open()
    b.disk.lose_power()
    b.open()
    b.lose_power()
    assert is_committed(b)


@pytest.mark.parametrize("way", ["kill", "lose_power"])
def test_a_decision_survives_a_crash_at_any_step_of_the_start(way: str) -> None:
    """Each start crashes one disk operation later than the previous one."""
    b, _ = with_decision_on_the_disk()
    b.holds_flushes = False
    cuts = 0
    for steps in range(300):
        getattr(b.disk, way)()
        b.disk.crash_in(steps)
        try:
            b.open()
        except Crash:
            cuts += 1
        else:
            break
    b.disk.crash_in(-1)
    assert cuts > 5
    assert is_committed(b)
    b.lose_power()
    assert is_committed(b)


def test_an_unflushed_decision_is_lost_with_the_power_but_survives_a_kill() -> None:
    b, p = ready()
    b.hold_flushes()
    p.start_end(True)
    b.lose_power()
    assert not is_committed(b)
    b, p = ready()
    b.hold_flushes()
    p.start_end(True)
    b.kill()
    assert is_committed(b), "the page cache has the decision; both outcomes would be valid"


@pytest.mark.parametrize("kept", ["", TRANSACTIONS, "t-0", "t-1", "__consumer_offsets"])
def test_a_commit_that_was_answered_survives_a_power_loss(kept: str) -> None:
    """The record of the commit and its markers are durable only in the journal. In the logs' own
    files they are in the page cache, and the system may write back any of these files.
    """
    b, p = ready()
    b.hold_flushes()
    p.start_end(True)
    assert b.flush_one() and not b.flush_one()
    assert p.ended() == 0 and is_committed(b)
    if kept:
        b.sync(kept)
    b.lose_power()
    assert is_committed(b)
    b.kill()
    assert is_committed(b)


@pytest.mark.parametrize("kept", ["", TRANSACTIONS])
def test_the_transaction_after_a_decided_one_is_not_committed_with_it(kept: str) -> None:
    """The journal has the decision on a commit. The producer's next transaction is open at the
    power loss, after which the first transaction must be committed and the second aborted.
    """
    b, p = ready()
    b.hold_flushes()
    p.start_end(True)
    assert b.flush_one()
    p.send("t", 0, b"c")
    b.sync("t-0")
    if kept:
        b.sync(kept)
    b.lose_power()
    assert is_committed(b)
    assert [commit for _, _, commit in b.markers("t")][-1] is False


@pytest.mark.parametrize("kept", [DATA_DIR, "/t-0/"])
def test_a_marker_that_was_deleted_is_not_written_to_the_next_transaction(kept: str) -> None:
    """DeleteRecords removed the marker of the decided transaction, and the transaction that is now
    open in the partition began later.

    If only the partition's files survive, the decision itself is applied again.
    """
    b, p = ready(log_segment_bytes="300")
    assert p.end(True) == 0
    p.send("t", 0, b"c")
    log = b.broker.topics.partition("t", 0)
    assert log is not None and len(log.segments) == 2
    log.delete_records_before(log.last_stable_offset)
    assert log.delete_old_segments(b.now_ms) == 1
    b.tick()
    b.sync(kept)
    b.lose_power()
    assert b.rows("t", log.log_start_offset, committed=True) == []
    assert b.markers("t")[-1][2] is False


def test_a_decision_does_not_apply_to_a_later_topic_of_the_same_name() -> None:
    b, p = ready()
    assert p.end(True) == 0
    delete_topic(b.parts.deletion, "t", b.now_ms)
    b.flush()
    b.topic("t", 2)
    p.begin_session()
    p.send("t", 0, b"c")
    b.sync(DATA_DIR)
    b.lose_power()
    assert b.read("t", 0, committed=True) == []
    assert [commit for _, _, commit in b.markers("t")] == [False]


def test_a_decision_does_not_apply_to_a_topic_that_was_created_after_it() -> None:
    """The topic was deleted before the decision, and another topic with its name was created after
    the decision.
    """
    b, p = ready()
    b.topic("gone")
    p.send("gone", 0, b"x")
    delete_topic(b.parts.deletion, "gone", b.now_ms)
    b.flush()
    assert p.end(True) == 0
    b.topic("gone")
    p.send("gone", 0, b"c")
    b.kill()
    assert b.read("gone", committed=True) == [] and b.markers("gone") == []
    assert is_committed(b)
    p.connection = b.connect()
    assert p.end(True) == 0
    assert b.read("gone", committed=True) == [b"c"]


def test_markers_in_the_page_cache_are_flushed_before_the_journal_is_deleted() -> None:
    """The records were flushed to the logs' own files before the decision, so the journal does not
    contain them.
    """
    b, p = ready()
    for log in b.broker.topics.logs_of("t"):
        log.flush()
    assert p.end(True) == 0
    b.kill()
    b.tick(1000)
    b.tick(1000)
    assert [name for name in b.disk.list(DATA_DIR) if name.startswith("barnabas-flush")] == []
    files = [inode for path, inode in b.disk.files() if "/t-" in path and path.endswith(".log")]
    assert len(files) == 2 and all(inode.synced == len(inode.data) for inode in files)
    b.lose_power()
    assert is_committed(b)


@pytest.mark.parametrize("is_decided", [True, False])
def test_a_start_flushes_the_transaction_log_when_it_contains_a_decision(
    is_decided: bool,
) -> None:
    """The start makes the effects of a decision visible to readers, so the decision must be durable
    first. Records of an open transaction need no flush.
    """
    b, p = ready(barnabas_flush_journal_logs="0")
    b.hold_flushes()
    if is_decided:
        p.start_end(True)
        assert b.flush_one() and b.state("txn")[0] == "PrepareCommit"
    logs = b.broker.topics.logs_of(TRANSACTIONS)
    path = logs[partition_for("txn", len(logs))].segments.active.batches.path(".log")
    inode = next(one for name, one in b.disk.files() if name == path)
    size = len(inode.data)
    assert inode.synced < size
    b.disk.kill()
    b.open()
    assert (inode.synced >= size) is is_decided
    assert b.read("t", committed=True) == ([b"a", b"b"] if is_decided else [b"a"])


def begin_a_flush(b: DiskBroker) -> None:
    """Start a flush of another topic that does not complete."""
    b.hold_flushes()
    assert b.produce("in", (b"x",))[0] == 0
    log = b.broker.topics.partition("in", 0)
    assert log is not None
    b.broker.flushes.wait([log], lambda _: None, b.now_ms)


@pytest.mark.parametrize("when", ["when all is over", "while it is decided"])
def test_a_late_end_does_not_commit_the_next_transaction(when: str) -> None:
    """The late EndTxn arrives on a connection that the producer has abandoned, and waits for a
    flush while the next transaction begins.
    """
    b, p = ready()
    old = p.reconnect()
    if when == "when all is over":
        assert p.end(True) == 0
        begin_a_flush(b)
        b.send(old, p.end_request(True), 3)
    else:
        b.hold_flushes()
        p.start_end(True)
        begin_a_flush(b)
        b.send(old, p.end_request(True), 3)
        assert b.flush_one() and p.ended() == 0
    p.send("t", 0, b"c")
    b.release_flushes()
    assert b.state("txn")[0] == "Ongoing" and is_committed(b)
    assert p.end(False) == 0
    assert is_committed(b)


def test_without_flushes_a_kill_at_any_step_leaves_the_transaction_whole() -> None:
    """The page cache survives a kill; only a power loss can put a decision in doubt."""
    outcomes = set()
    for steps in range(8):
        b, p = ready(barnabas_transaction_durability="os")
        b.disk.crash_in(steps)
        with suppress(Crash):
            p.start_end(True)
        b.disk.crash_in(-1)
        b.kill()
        if b.state("txn")[0] == "Ongoing":
            p.connection = b.connect()
            assert p.end(False) == 0
        outcomes.add(is_committed(b))
    assert outcomes == {True, False}


def test_records_that_readers_saw_after_a_kill_survive_a_power_loss() -> None:
    """The frame with the decision was only in the page cache, so the start flushes it before it
    applies the decision.
    """
    b, p = ready()
    b.hold_flushes()
    p.start_end(True)
    b.disk.kill()
    # start again after the kill
    b.open()
    assert is_committed(b)
    b.lose_power()
    assert is_committed(b)


def test_an_expired_transactional_id_is_not_restored_from_the_journal() -> None:
    b, p = ready(transactional_id_expiration_ms="2000")
    assert p.end(True) == 0
    b.tick(5000)
    b.kill()
    assert b.broker.transactions.metadata("txn") is None
    assert is_committed(b)


def test_a_decision_in_the_journal_does_not_undo_a_later_abort() -> None:
    """The journal still has the decision on the transaction before the aborted one. The offsets of
    that decision are below the log's end.
    """
    b, p = ready()
    assert p.end(True) == 0
    p.send("t", 0, b"c")
    assert p.end(False) == 0
    for restart in (b.kill, b.lose_power, b.kill):
        restart()
        assert is_committed(b)
        assert b.end_offset("t", committed=True) == b.end_offset("t")


def test_a_new_producer_session_keeps_its_epoch_despite_an_earlier_decision_in_the_journal() -> (
    None
):
    b, p = ready()
    assert p.end(True) == 0
    p.begin_session()
    epoch = p.epoch
    b.kill()
    assert b.state("txn")[2] == epoch
    b.lose_power()
    _, pid, epoch = b.state("txn")
    assert (pid > p.pid, epoch) == (True, 0), (
        "the power loss may have removed the new epoch, so the producer gets another id"
    )


def hanging() -> tuple[DiskBroker, Inode]:
    """Return a broker after a power loss, and the file of a partition. The power loss kept a batch
    in this file, but not the coordinator's record that added the partition to the transaction.
    """
    b = DiskBroker()
    b.topic("t")
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    assert p.end(True) == 0
    b.disk.sync_all()
    p.send("t", 0, b"b")
    log = b.broker.topics.partition("t", 0)
    assert log is not None
    log.flush()
    b.lose_power()
    assert [commit for _, _, commit in b.markers("t")] == [True, False]
    return b, next(inode for path, inode in b.disk.files() if path.endswith(f"t-0/{0:020d}.log"))


def test_the_abort_of_a_hanging_transaction_is_durable_before_any_request() -> None:
    """Otherwise another power loss would open the hanging transaction again, as a part of the
    producer's next transaction.
    """
    _, inode = hanging()
    assert inode.synced == len(inode.data)


def test_a_start_aborts_all_hanging_transactions(caplog: pytest.LogCaptureFixture) -> None:
    """There are hanging transactions of two producers on two partitions each, and one open
    transaction that the coordinator knows, which is aborted after the power loss as well.
    """
    b = DiskBroker()
    b.topic("t", 3)
    producers = [Producer(b, f"txn-{number}") for number in range(3)]
    for p in producers:
        p.send("t", 0, b"a")
        assert p.end(True) == 0
    producers[0].send("t", 1, b"known")
    b.disk.sync_all()
    for p in producers[1:]:
        for index in (1, 2):
            p.send("t", index, b"hangs")
    b.sync("/t-")
    b.lose_power()
    assert caplog.text.count("unknown to its coordinator") == 4
    assert [b.read("t", index, committed=True) for index in range(3)] == [[b"a"] * 3, [], []]
    for index in range(3):
        assert b.end_offset("t", index, committed=True) == b.end_offset("t", index)


def test_a_commit_does_not_include_open_records_of_an_earlier_epoch() -> None:
    b = DiskBroker()
    b.topic("t")
    Producer(b, "txn").send("t", 0, b"a")
    # the InitProducerId request of this producer aborts the open transaction
    p = Producer(b, "txn")
    assert p.add("t", 0) == 0
    log = b.broker.topics.partition("t", 0)
    assert log is not None
    *_, (position, marker) = log.segments.active.batches.headers()
    assert marker.is_control
    file = next(
        inode for path, inode in b.disk.files() if path == log.segments.active.batches.path(".log")
    )
    file.cut(position)  # a power loss might truncate the file like this
    b.kill()
    assert b.state("txn") == ("Ongoing", p.pid, p.epoch)
    p.connection = b.connect()
    assert p.end(True) == 0
    assert b.read("t", committed=True) == []


@pytest.mark.parametrize("setting", ["no journal", "no room"])
def test_without_a_journal_each_step_waits_for_the_disk(setting: str) -> None:
    b, p = ready(**{"barnabas_flush_journal_logs": "0"} if setting == "no journal" else {})
    if setting == "no room":
        b.parts.disk_space.is_full = True
    b.hold_flushes()
    p.start_end(True)
    seen = []
    while b.flush_one():
        seen.append((b.state("txn")[0], p.ended()))
    assert seen[:3] == [("PrepareCommit", None), ("PrepareCommit", 0), ("CompleteCommit", 0)], (
        "data, decision, markers"
    )
    b.lose_power()
    assert is_committed(b)


def test_the_journal_is_used_again_when_the_disk_has_space_again() -> None:
    b, p = ready()
    b.parts.disk_space.is_full = True
    assert p.end(True) == 0
    b.parts.disk_space.is_full = False
    p.send("t", 0, b"c")
    assert p.end(True) == 0
    b.lose_power()
    assert b.read("t", 0, committed=True) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("commits", range(3, 13))
def test_journals_are_deleted_when_the_logs_own_files_have_their_content(commits: int) -> None:
    """A new journal is started after every few of these commits. All commits that got a response
    survive a power loss at any time.
    """
    b, p = ready(log_flush_offset_checkpoint_interval_ms="30")
    assert p.end(True) == 0
    answered = [b"a", b"b"]
    for number in range(commits):
        p.send("t", 0, b"%d" % number)
        p.send("t", 1, b"%d" % number)
        assert p.end(True) == 0
        answered.append(b"%d" % number)
        b.tick(10)
    b.lose_power()
    assert [b.read("t", index, committed=True) for index in (0, 1)] == [answered] * 2
    b.tick(1000)
    assert [name for name in b.disk.list(DATA_DIR) if name.startswith("barnabas-flush")] == []
    b.lose_power()
    assert [b.read("t", index, committed=True) for index in (0, 1)] == [answered] * 2


def test_a_start_fails_when_a_journal_frame_before_valid_ones_is_damaged() -> None:
    """The damaged frame is the first of four commits in the journal; valid frames follow it."""
    b, p = ready()
    for value in (b"b", b"c", b"d", b"e"):
        p.send("t", 0, value)
        assert p.end(True) == 0
    path = max(path for path, _ in b.disk.files() if path.endswith(".journal"))
    b.disk._file(path).data[60] ^= 1
    with pytest.raises(LogDirectoryError, match="damaged"):
        b.lose_power()


def test_a_commit_requested_in_time_does_not_time_out_while_a_flush_runs() -> None:
    b, other = ready()
    p = Producer(b, "late", timeout_ms=5000)
    p.send("t", 0, b"c")
    b.hold_flushes()
    other.start_end(True)  # the flush for this request begins, and ends only at release_flushes
    b.tick(4999)
    p.start_end(True)
    b.tick(1)
    assert b.state("late")[0] == "Ongoing", "the disk's time is not the producer's"
    b.release_flushes()
    assert (other.ended(), p.ended()) == (0, 0)
    assert b.read("t", 0, committed=True) == [b"a", b"b", b"c"]
