"""A leader and its standby: refused standbys, catch-up, and responses that wait for the standby."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import socket
import uuid
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.disk_broker import Producer
from helpers.repeating import repeat_until
from helpers.standby_pair import SECRET, Pair, files_of, replicated_files
from sim.disk import Crash, SimDisk
from sim.node import SeededIds

from barnabas.broker.logs.metadata import ClusterMetadata
from barnabas.broker.settings.config import BrokerConfig
from barnabas.daemon.main import main
from barnabas.daemon.opening import open_broker
from barnabas.protocol.errors import Code
from barnabas.replication import catch_up as catch_up_module
from barnabas.replication import leading as leading_module
from barnabas.replication.catch_up import CatchUp, Held, take_inventory
from barnabas.replication.following import Following, StandbyNote, holding_of
from barnabas.replication.leadership import Holding
from barnabas.replication.leading import Leading, ReplicationSettings, StandbyLink, State
from barnabas.replication.lease_record import NodeAddresses
from barnabas.replication.lost_partitions import LostPartitions
from barnabas.replication.operations import DivergedError, Kind, Operation, Replica
from barnabas.replication.replicated_disk import ReplicatedDisk
from barnabas.replication.rim import leader_endpoint
from barnabas.replication.rim.standby import Standby
from barnabas.replication.wire import (
    NONCE_BYTES,
    VERSION,
    AnswersWait,
    Frames,
    WireError,
    frame,
    unpack,
)
from barnabas.storage.files.checkpoints import (
    CLEAN_SHUTDOWN_NAME,
    NOT_SENT_NAME,
    encode_offsets,
    encode_partition_metadata,
)
from barnabas.storage.log.log_directory import LogDirectoryError
from barnabas.storage.opening.last_run import LastRun, RunNote

NONCE = b"n" * NONCE_BYTES


def new_disk() -> SimDisk:
    disk = SimDisk(random.Random(0), lambda: 0)
    disk.mkdir("/x")
    return disk


def new_leading(*, is_sync: bool = True, may_be_alone: bool = True) -> tuple[Leading, list[str]]:
    """The leader's side of replication on an empty disk. Also returns a list that gets an entry
    whenever waiting responses may be ready to send.
    """
    released: list[str] = []
    settings = ReplicationSettings(is_sync, may_be_alone, 1000, SECRET)
    return Leading(new_disk(), "/x", settings, lambda: released.append("now")), released


def talk(leading: Leading, following: Following) -> None:
    """Exchange the messages of both sides until no message is left."""
    to_leader = following.greeting()
    while to_leader or (leading.link is not None and leading.link.is_behind):
        leading.on_bytes(to_leader, 0)
        to_leader = b"".join(following.on_bytes(leading.take_output()))


def follow(leading: Leading) -> Following:
    """Connect an empty standby, and let it catch up."""
    leading.on_connected(NONCE, 0)
    following = Following(new_disk(), "/x", SECRET, NONCE, lambda: None)
    talk(leading, following)
    assert leading.follows
    return following


def test_an_answer_waits_until_the_standby_has_what_was_done_before_it() -> None:
    leading, released = new_leading()
    following = follow(leading)
    leading.publish(Operation(Kind.CREATE, "f"))
    assert not leading.is_applied(leading.position)
    assert leading.is_applied(leading.position - 1)
    released.clear()
    for answer in following.on_bytes(leading.take_output()):
        leading.on_bytes(answer, 0)
    assert leading.is_applied(leading.position)
    assert released == ["now"]


@pytest.mark.parametrize(
    ("is_sync", "may_be_alone", "waits"),
    [(False, False, False), (True, True, False), (True, False, True)],
)
def test_whether_answers_wait_without_a_standby(
    is_sync: bool, may_be_alone: bool, waits: bool
) -> None:
    leading, released = new_leading(is_sync=is_sync, may_be_alone=may_be_alone)
    assert leading.is_applied(leading.position) is not waits
    follow(leading)
    leading.publish(Operation(Kind.CREATE, "f"))
    assert leading.is_applied(leading.position) is not is_sync
    released.clear()
    leading.on_closed()
    assert released == ["now"]
    assert leading.is_applied(leading.position) is not waits


def test_a_standby_that_is_silent_for_the_timeout_is_lost() -> None:
    leading, _ = new_leading()
    following = follow(leading)
    leading.on_tick(900)
    assert b"".join(following.on_bytes(leading.take_output()))  # the standby answers a ping
    leading.on_tick(1000)
    assert leading.lost is None
    leading.on_tick(1001)
    assert leading.lost == "it sent nothing for 1000 ms"


def test_a_lost_standby_may_connect_again_and_follow() -> None:
    """The reason for the loss of the earlier connection does not apply to the new connection."""
    leading, _ = new_leading()
    follow(leading)
    leading.on_tick(1001)
    assert leading.lost is not None
    leading.on_closed()
    following = follow(leading)
    assert leading.lost is None
    leading.publish(Operation(Kind.CREATE, "f"))
    for answer in following.on_bytes(leading.take_output()):
        leading.on_bytes(answer, 1002)
    assert leading.is_applied(leading.position)


@pytest.mark.parametrize("is_alike", [True, False])
def test_both_sides_send_messages_while_they_compare_large_files(
    is_alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If one side sent nothing, the other would regard it as lost. A standby with large files could
    then never follow again.
    """
    monkeypatch.setattr(catch_up_module, "PIECE_BYTES", 4)
    leading, _ = new_leading()
    copy = new_disk()
    content = bytes(range(200)) * 5
    leading._disk.open("/x/f", create=True).append(content)
    copy.open("/x/f", create=True).append(content if is_alike else content[::-1])
    link = leading.on_connected(NONCE, 0)
    following = Following(copy, "/x", SECRET, NONCE, lambda: None)
    to_leader, now_ms, longest_of_standby, silent = [following.greeting()], 0, 0, 0
    while not leading.follows:
        for data in to_leader:
            longest_of_standby = max(longest_of_standby, len(data))
            leading.on_bytes(data, now_ms)
        now_ms += 100  # the timeout is 1000 ms
        leading.on_tick(now_ms)
        assert leading.lost is None
        output = leading.take_output()
        silent = 0 if output else silent + 1
        assert silent < 5 or link.state is State.COMPARING
        to_leader = list(following.on_bytes(output))
    assert longest_of_standby < 200  # each message has only a few of the 250 checksums
    assert copy.read("/x/f") == content


def test_a_standby_has_no_applied_position_while_it_catches_up() -> None:
    """Otherwise a leader that has changed nothing since its start would regard the copy as complete
    too early.
    """
    pair = Pair()
    pair.leader.topic("t", 1)
    pair.leader.kill()
    pair.connect()
    link = pair.leader.leading.link
    assert link is not None
    while link.state is not State.FOLLOWING:
        pair.deliver(1000)
        assert link.applied == -1
    pair.deliver_all()
    assert link.applied == pair.leader.leading.position == 0


def test_a_connection_that_does_not_prove_the_secret_is_lost_despite_its_messages() -> None:
    """A leader accepts a single connection, which must not be blocked by a client that is no
    standby.
    """
    leading, _ = new_leading()
    link = leading.on_connected(NONCE, 0)
    link.on_bytes(frame(["hello", VERSION, NONCE]), 9000)
    with pytest.raises(WireError, match="begins with"):
        link.on_bytes(frame(["hello", VERSION, NONCE]), 9000)
    link.on_bytes(b"\0", 9999)
    leading.on_tick(10_001)
    assert leading.lost == "it sent nothing for 5000 ms"


def test_a_standby_that_does_not_read_is_lost_and_the_leader_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leading_module, "MOST_WAITING_BYTES", 100)
    leading, _ = new_leading()
    follow(leading)
    for at in range(3):
        leading.publish(Operation(Kind.APPEND, "f", 60 * at, bytes(60)))
    assert leading.lost is not None
    assert "behind" in leading.lost


def test_a_single_operation_may_exceed_the_limit_of_waiting_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leading_module, "MOST_WAITING_BYTES", 100)
    leading, _ = new_leading()
    following = follow(leading)
    for at in range(2):
        leading.publish(Operation(Kind.APPEND, "f", 900 * at, bytes(900)))
        leading.on_bytes(b"".join(following.on_bytes(leading.take_output())), 0)
    assert leading.lost is None
    assert leading.is_applied(leading.position)


class NoDescriptors:
    """A listening socket in a process that has no file descriptor left."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.fileno, self.getsockname = self._socket.fileno, self._socket.getsockname
        self.close, self.count = self._socket.close, 0

    def accept(self) -> None:
        self.count += 1
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_a_standby_waits_while_the_leader_has_no_file_descriptors(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Otherwise the event loop would do nothing but try to accept the connection again and
    again.
    """

    async def run() -> int:
        leading, _ = new_leading()
        sock, loop = NoDescriptors(), asyncio.get_running_loop()
        server = SimpleNamespace(leading=leading, catch_up_rate=0, now_ms=lambda: 0)
        disk = SimpleNamespace(most_open_files=lambda: 1024)
        endpoint = leader_endpoint._Endpoint(server, disk, sock, loop)  # type: ignore[arg-type]
        with socket.create_connection(sock.getsockname()):
            await asyncio.sleep(0.25)  # two ticks of 100 ms each
        endpoint.close()
        return sock.count

    assert 1 <= asyncio.run(run()) <= 4
    assert "a standby has to wait: [Errno 24] Too many open files" in caplog.text


def test_the_text_of_a_refusal_is_cleaned_and_truncated() -> None:
    following = Following(new_disk(), "/x", SECRET, NONCE, lambda: None)
    with pytest.raises(WireError) as refused:
        list(following.on_bytes(frame(["refused", "a\nb\x1b" + "c" * 3000])))
    assert str(refused.value) == "it refuses this standby: ab" + "c" * 196


@pytest.mark.parametrize("wrong", ["the standby's", "the leader's"])
def test_a_side_with_another_secret_is_refused(wrong: str) -> None:
    leading, _ = new_leading()
    link = leading.on_connected(NONCE, 0)
    secret = "another" if wrong == "the standby's" else SECRET
    following = Following(new_disk(), "/x", secret, NONCE, lambda: None)
    if wrong == "the leader's":
        link._secret = "another"
    with pytest.raises(WireError, match=r"has another barnabas.replication.secret"):
        talk(leading, following)
    assert not leading.follows


def test_a_leader_sends_nothing_before_the_proof_of_the_secret() -> None:
    link = StandbyLink(new_disk(), "/x", SECRET, NONCE, 0)
    for message in (["end"], ["have", []], ["applied", 1], ["hello", 9, NONCE], ["hello", 1, b""]):
        with pytest.raises(WireError):
            link.on_bytes(frame(message), 0)
    with pytest.raises(WireError, match="a message of"):
        link.on_bytes(b"\x7f\xff\xff\xff", 0)
    assert link.take_output(0) == b""


@pytest.mark.parametrize("path", ["", "/etc/x", "../x", "a/../../x", "a//b", "."])
def test_paths_outside_the_data_directory_are_refused(path: str) -> None:
    replica = Replica(new_disk(), "/x")
    with pytest.raises(DivergedError, match="not a path below"):
        replica.apply(Operation(Kind.REPLACE, path, data=b"x"))


@pytest.mark.parametrize(
    "operation",
    [
        Operation(Kind.APPEND, "f", 1, b"x"),
        Operation(Kind.TRUNCATE, "f", 1),
        Operation(Kind.RENAME, "g", new_path="h"),
        Operation(Kind.CREATE, "d/f"),
    ],
)
def test_a_copy_that_is_another_is_noticed(operation: Operation) -> None:
    with pytest.raises(DivergedError):
        Replica(new_disk(), "/x").apply(operation)


def test_frames_are_decoded_from_pieces_and_malformed_ones_refused() -> None:
    frames, data = Frames(), frame(["one", 1]) + frame(["two"])
    found = [message for byte in data for message in frames.feed(bytes([byte]))]
    assert found == [["one", 1], ["two"]]
    for bad in (b"\xc1", b"\x01", b"\x90", b"\x91\x01"):
        with pytest.raises(WireError):
            list(Frames().feed(len(bad).to_bytes(4, "big") + bad))


@pytest.mark.parametrize(
    "row", [None, [1, "f"], [9, "f", 0, b"", ""], [2, "f", -1, b"", ""], [2, "f", 0, "x", ""]]
)
def test_an_operation_that_cannot_be_read(row: object) -> None:
    with pytest.raises(WireError, match="an operation"):
        unpack(row)


def test_bytes_appended_to_a_file_before_its_comparison_are_sent_once() -> None:
    leader, copy = new_disk(), new_disk()
    leader.open("/x/f", create=True).append(b"ab")
    catch_up = CatchUp(leader, "/x", dict(take_inventory(copy, "/x")))
    assert list(catch_up.next_operations()) == [Operation(Kind.CREATE, "f")]
    leader.open("/x/f").append(b"c")
    assert catch_up.on_operation(Operation(Kind.APPEND, "f", 2, b"c")) == ()
    assert list(catch_up.next_operations()) == [Operation(Kind.APPEND, "f", 0, b"abc")]
    assert list(catch_up.next_operations()) == []
    assert catch_up.is_done


@pytest.mark.parametrize("held", [b"", b"of before, and longer"])
def test_a_compared_file_renamed_over_an_uncompared_one_is_not_sent_again(
    held: bytes,
) -> None:
    """The cleaner causes this when it discards a segment file while an earlier file with the same
    name still exists.
    """
    leader, copy = new_disk(), new_disk()
    for disk in (leader, copy):
        disk.mkdir("/x/d")
        disk.open("/x/d/f", create=True).append(b"new")
    leader.open("/x/d/f.deleted", create=True).append(b"of before")
    if held:
        copy.open("/x/d/f.deleted", create=True).append(held)
    catch_up = CatchUp(leader, "/x", dict(take_inventory(copy, "/x")))
    replica = Replica(copy, "/x")
    while "d/f" in catch_up._pending or not catch_up._pending:
        for operation in catch_up.next_operations():
            replica.apply(operation)
    assert "d/f.deleted" in catch_up._pending
    leader.rename("/x/d/f", "/x/d/f.deleted")
    for operation in catch_up.on_operation(Operation(Kind.RENAME, "d/f", new_path="d/f.deleted")):
        replica.apply(operation)
    while not catch_up.is_done:
        for operation in catch_up.next_operations():
            replica.apply(operation)
    assert copy.read("/x/d/f.deleted") == b"new"
    assert not copy.exists("/x/d/f")


def catch_up_all(catch_up: CatchUp, replica: Replica) -> None:
    while not catch_up.is_done:
        for operation in catch_up.next_operations():
            replica.apply(operation)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 8, 9])
@pytest.mark.parametrize("more", [b"x", b"xyz", b"wxyz", b"of a leader before"])
def test_a_copy_is_truncated_to_the_leaders_file(
    monkeypatch: pytest.MonkeyPatch, size: int, more: bytes
) -> None:
    """The leader's file may end anywhere in the compared pieces. The copy's additional data was
    never acknowledged.
    """
    monkeypatch.setattr(catch_up_module, "PIECE_BYTES", 4)
    leader, copy = new_disk(), new_disk()
    data = bytes(range(size))
    leader.open("/x/f", create=True).append(data)
    copy.open("/x/f", create=True).append(data + more)
    catch_up_all(CatchUp(leader, "/x", dict(take_inventory(copy, "/x"))), Replica(copy, "/x"))
    assert copy.read("/x/f") == data


@pytest.mark.parametrize("held", [b"", b"of be", b"of before, and longer"])
@pytest.mark.parametrize("pieces", [0, 1, 2])
@pytest.mark.parametrize("is_made_again", [False, True])
def test_the_comparison_of_a_file_ends_when_the_file_is_deleted(
    monkeypatch: pytest.MonkeyPatch, held: bytes, pieces: int, is_made_again: bool
) -> None:
    """For example, the flush journal is deleted and created again. If the comparison went on, the
    standby would be lost again and again, or would append the rest of the old file to the new one.
    """
    monkeypatch.setattr(catch_up_module, "PIECE_BYTES", 4)
    leader, copy = new_disk(), new_disk()
    replicated = ReplicatedDisk(leader, "/x")
    leader.open("/x/f", create=True).append(b"of before")
    copy.open("/x/f", create=True).append(held)
    catch_up = CatchUp(leader, "/x", dict(take_inventory(copy, "/x")))
    replica = Replica(copy, "/x")

    def publish(operation: Operation) -> None:
        for one in catch_up.on_operation(operation):
            replica.apply(one)

    replicated.publish = publish
    for _ in range(1 + pieces):
        for operation in catch_up.next_operations():
            replica.apply(operation)
    replicated.unlink("/x/f")
    if is_made_again:
        replicated.open("/x/f", create=True).append(b"new")
    catch_up_all(catch_up, replica)
    assert copy.list("/x") == leader.list("/x")
    assert not is_made_again or copy.read("/x/f") == b"new"


def test_an_entry_renamed_before_its_turn_is_copied_under_the_new_name() -> None:
    leader, copy = new_disk(), new_disk()
    leader.mkdir("/x/t-0")
    leader.open("/x/t-0/f", create=True).append(b"of the topic")
    catch_up = CatchUp(leader, "/x", dict(take_inventory(copy, "/x")))
    leader.rename("/x/t-0", "/x/t-1")
    assert catch_up.on_operation(Operation(Kind.RENAME, "t-0", new_path="t-1")) == ()
    catch_up_all(catch_up, Replica(copy, "/x"))
    assert (copy.list("/x"), copy.read("/x/t-1/f")) == (["t-1"], b"of the topic")


def test_a_new_entry_replaces_the_copys_older_one_of_the_same_name() -> None:
    """For example, a topic is deleted and created again while the standby is away."""
    leader, copy = new_disk(), new_disk()
    copy.mkdir("/x/t-0")
    copy.open("/x/t-0/old", create=True).append(b"of the topic before")
    catch_up = CatchUp(leader, "/x", dict(take_inventory(copy, "/x")))
    replica = Replica(copy, "/x")
    leader.mkdir("/x/t-0")
    for operation in catch_up.on_operation(Operation(Kind.MAKE_DIRECTORY, "t-0")):
        replica.apply(operation)
    assert copy.list("/x/t-0") == []
    while not catch_up.is_done:
        for operation in catch_up.next_operations():
            replica.apply(operation)
    assert copy.list("/x") == ["t-0"]


def test_a_copy_writes_to_the_file_that_has_the_name_after_a_rename() -> None:
    disk = new_disk()
    replica = Replica(disk, "/x")
    for operation in (
        Operation(Kind.MAKE_DIRECTORY, "d"),
        Operation(Kind.APPEND, "d/f", 0, b"old"),
        Operation(Kind.RENAME, "d", new_path="e"),
        Operation(Kind.MAKE_DIRECTORY, "d"),
        Operation(Kind.APPEND, "d/f", 0, b"new"),
    ):
        replica.apply(operation)
    assert (disk.read("/x/e/f"), disk.read("/x/d/f")) == (b"old", b"new")


@pytest.mark.parametrize(
    "gone",
    [
        [Operation(Kind.REMOVE, "d/f")],
        [Operation(Kind.REMOVE_TREE, "d"), Operation(Kind.MAKE_DIRECTORY, "d")],
        [Operation(Kind.RENAME, "d/f", new_path="d/g")],
        [Operation(Kind.RENAME, "d", new_path="e"), Operation(Kind.MAKE_DIRECTORY, "d")],
    ],
)
def test_a_copy_does_not_write_to_a_file_that_lost_its_name(gone: list[Operation]) -> None:
    """After a lack of space, a log's files may be created again. Later data must not be appended to
    a file that no longer has a name.
    """
    disk = new_disk()
    replica = Replica(disk, "/x")
    for operation in (
        Operation(Kind.MAKE_DIRECTORY, "d"),
        Operation(Kind.CREATE, "d/f"),
        *gone,
        Operation(Kind.CREATE, "d/f"),
        Operation(Kind.APPEND, "d/f", 0, b"new"),
    ):
        replica.apply(operation)
    assert disk.read("/x/d/f") == b"new"


def test_a_copy_writes_to_the_file_that_was_renamed_to_the_name() -> None:
    disk = new_disk()
    replica = Replica(disk, "/x")
    for operation in (
        Operation(Kind.APPEND, "g", 0, b"old and longer"),
        Operation(Kind.APPEND, "f", 0, b"new"),
        Operation(Kind.RENAME, "f", new_path="g"),
        Operation(Kind.APPEND, "g", 3, b"er"),
    ):
        replica.apply(operation)
    assert disk.read("/x/g") == b"newer"


def test_a_copy_appends_to_the_file_that_replaced_another() -> None:
    """For example, the metadata journal is rewritten and then appended to."""
    disk = new_disk()
    replica = Replica(disk, "/x")
    for operation in (
        Operation(Kind.APPEND, "f", 0, b"a"),
        Operation(Kind.REPLACE, "f", data=b"b"),
        Operation(Kind.APPEND, "f", 1, b"c"),
    ):
        replica.apply(operation)
    assert disk.read("/x/f") == b"bc"


def test_a_broker_does_not_start_on_an_incomplete_copy() -> None:
    pair = Pair()
    note = StandbyNote(pair.standby_disk, "/data")
    assert note.check() is False
    pair.connect()
    repeat_until(lambda: note.read() is not None, lambda: pair.deliver(1 << 20))
    with pytest.raises(LogDirectoryError, match="has not caught up"):
        pair.take_over()
    pair.deliver_all()
    successor = pair.take_over()
    assert not successor.disk.exists("/data/barnabas-standby")


def test_a_copy_is_noted_as_complete_only_when_it_is_durable() -> None:
    """Otherwise a power loss in between would leave a standby note that calls the copy complete,
    although some of its data is lost.
    """
    leading, _ = new_leading()
    leading._disk.open("/x/f", create=True).append(b"of the leader")
    disk, seen = new_disk(), []
    note = StandbyNote(disk, "/x")

    def make_durable() -> None:
        seen.append((disk.read("/x/f"), note.read(), following.has_caught_up))
        disk.sync_all()

    following = Following(disk, "/x", SECRET, NONCE, make_durable)
    leading.on_connected(NONCE, 0)
    talk(leading, following)
    assert seen == [(b"of the leader", "catching up", False)]
    assert note.read() == "following"


def test_an_identical_copy_loses_its_mark_of_a_clean_stop() -> None:
    """More data is written to the copy without a flush. A start would trust this data if the mark
    of the clean stop were still there.
    """
    leading, _ = new_leading()
    disk = new_disk()
    disk.write_atomic(f"/x/{CLEAN_SHUTDOWN_NAME}", b"")
    leading.on_connected(NONCE, 0)
    talk(leading, Following(disk, "/x", SECRET, NONCE, disk.sync_all))
    assert leading.follows
    assert not disk.exists(f"/x/{CLEAN_SHUTDOWN_NAME}")


def test_the_removal_of_the_standbys_note_is_durable_at_once() -> None:
    """If a power loss restored the standby note, the data that the broker wrote afterwards would be
    taken for the data of a copy.
    """
    disk = new_disk()
    note = StandbyNote(disk, "/x")
    for _ in range(12):  # a power loss keeps each unflushed change at random
        note.write_following(AnswersWait.ALWAYS)
        disk.fsync_dir("/x")
        note.remove()
        disk.lose_power()
        assert note.read() is None


def test_a_standby_with_many_files_may_send_its_inventory() -> None:
    """The inventory needs a longer message than is allowed before authentication."""
    leading, _ = new_leading()
    copy = new_disk()
    for number in range(60):
        copy.open(f"/x/{number:0250d}", create=True).append(b"x")
    leading.on_connected(NONCE, 0)
    talk(leading, Following(copy, "/x", SECRET, NONCE, lambda: None))
    assert leading.follows
    assert copy.list("/x") == ["barnabas-boot-id", "barnabas-standby"]


def test_a_node_reports_its_copy_as_incomplete_before_the_copy_changes() -> None:
    leading, _ = new_leading()
    leading._disk.open("/x/f", create=True).append(b"of the leader")
    disk, seen = new_disk(), []

    def on_holding(holding: Holding) -> None:
        seen.append((holding, StandbyNote(disk, "/x").read(), disk.exists("/x/f")))

    leading.on_connected(NONCE, 0)
    talk(leading, Following(disk, "/x", SECRET, NONCE, lambda: None, on_holding=on_holding))
    assert seen == [(Holding.NOTHING, None, False), (Holding.WHOLE, "following", True)]


def test_a_copy_stays_complete_while_it_is_only_compared() -> None:
    """Comparing files changes nothing, so the copy stays usable. The first change to the copy marks
    it as incomplete.
    """
    leading, _ = new_leading()
    following = follow(leading)
    disk = following._disk
    leading.on_closed()
    leading._disk.open("/x/f", create=True).append(b"new")
    disk.write_atomic("/x/.kafka_cleanshutdown", b"")  # a broker ran here in the meantime
    leading.on_connected(NONCE, 0)
    following = Following(disk, "/x", SECRET, NONCE, lambda: None)
    note, to_leader, states = StandbyNote(disk, "/x"), following.greeting(), []
    while not following.has_caught_up:
        leading.on_bytes(to_leader, 0)
        to_leader = b"".join(following.on_bytes(leading.take_output()))
        is_clean = disk.exists("/x/.kafka_cleanshutdown")
        states.append((disk.exists("/x/f"), note.read(), is_clean))
    assert (False, "following", True) in states
    assert (True, "catching up", False) in states
    assert states[-1] == (True, "following", False)


def test_a_standby_refuses_a_directory_with_foreign_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.txt").write_text("of three years")
    secret = ["--set", "barnabas.replication.secret=x"]
    assert main(["start", "--standby-of", "127.0.0.1:9", "--data-dir", str(tmp_path), *secret]) == 1
    assert "is not a broker's data directory" in capsys.readouterr().err


@pytest.mark.parametrize("path", [None, "copy/t-0"])
def test_the_error_for_a_full_disk_names_the_standbys_copy(
    path: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    config = BrokerConfig.from_properties({"log.dirs": str(tmp_path / "copy")})
    standby = Standby(config, ("127.0.0.1", 9))
    monkeypatch.setattr(socket, "create_connection", full)
    assert not standby.carry_out(standby.steps.follow())
    standby._lock.release()
    assert "copy cannot be written to: No space left on device" in caplog.text


@pytest.mark.parametrize("message", [["do"], ["do", 1], ["caught up"], ["what"]])
def test_an_unknown_message_of_the_leader_is_an_error(message: list[object]) -> None:
    leading, _ = new_leading()
    following = follow(leading)
    with pytest.raises(WireError, match="the leader says"):
        list(following.on_bytes(frame(message)))


def test_a_file_without_all_checksums_in_the_inventory_is_sent_whole() -> None:
    leader = new_disk()
    leader.open("/x/f", create=True).append(b"ab")
    catch_up = CatchUp(leader, "/x", {"f": Held(2, ())})
    operations = [one for _ in range(3) for one in catch_up.next_operations()]
    assert operations == [Operation(Kind.TRUNCATE, "f"), Operation(Kind.APPEND, "f", 0, b"ab")]
    assert catch_up.is_done


def test_a_data_directory_may_be_given_with_a_slash_at_its_end() -> None:
    operations: list[Operation] = []
    disk = ReplicatedDisk(new_disk(), "/x/")
    disk.publish = operations.append
    disk.write_atomic("/x//f", b"1")
    disk.write_atomic("/x//barnabas-boot-id", b"of this machine")
    assert operations == [Operation(Kind.REPLACE, "f", data=b"1")]


def test_a_directory_is_marked_as_not_sent_only_when_it_is_made() -> None:
    """The standby may already have a directory that existed before. If this directory were marked
    as not sent, its last copy could be removed.
    """
    inner = new_disk()
    inner.mkdir("/x/t-0")
    disk = ReplicatedDisk(inner, "/x")
    disk.mkdir("/x/t-0")
    disk.mkdir("/x/t-1")
    disk.mkdir("/x/t-1/below")
    assert [
        path for path in ("t-0", "t-1", "t-1/below") if inner.exists(f"/x/{path}/{NOT_SENT_NAME}")
    ] == ["t-1"]


def test_a_cleaned_segments_bytes_are_sent_before_its_rename() -> None:
    """A standby that gets the new name without the bytes would serve an empty segment instead of
    the cleaned one.
    """
    operations: list[Operation] = []
    inner = new_disk()
    inner.open("/x/f.cleaned", create=True).append(b"kept")
    disk = ReplicatedDisk(inner, "/x")
    disk.publish = operations.append
    disk.rename("/x/f.cleaned", "/x/f")
    assert [(one.kind, one.path, one.content) for one in operations] == [
        (Kind.CREATE, "f.cleaned", b""),
        (Kind.APPEND, "f.cleaned", b"kept"),
        (Kind.RENAME, "f.cleaned", b""),
    ]


def test_a_broker_does_not_start_on_a_copy_after_a_power_loss() -> None:
    pair = Pair()
    pair.connect()
    pair.deliver_all()
    note = StandbyNote(pair.standby_disk, "/data")
    assert note.check() is True
    pair.standby_disk.lose_power()
    with pytest.raises(LogDirectoryError, match="remove /data/barnabas-standby"):
        note.check()


PORT_0 = ["--set", "barnabas.replication.port=0"]
SECRET_IS, HOST_IS = "--set barnabas.replication.secret={}", "--set barnabas.replication.host={}"
WITH_TLS = ["--set", "barnabas.replication.security.protocol=SSL"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--standby-of", "here"], "must have the form HOST:PORT"),
        (["--standby-of", "127.0.0.1:9"], "barnabas.replication.secret is not set"),
        (["--standby-of", "127.0.0.1:9", *SECRET_IS.format("").split()], "secret is not set"),
        (["--standby-of", "10.0.0.1:9", *SECRET_IS.format("x").split()], "10.0.0.1 is reachable"),
        (PORT_0, "barnabas.replication.secret is not set"),
        ([*PORT_0, *SECRET_IS.format("x").split(), *HOST_IS.format("0.0.0.0").split()],
         "barnabas.replication.security.protocol=SSL"),
        ([*PORT_0, *SECRET_IS.format("x").split(), *HOST_IS.format("127.example.com").split()],
         "127.example.com is reachable from other machines"),
        ([*PORT_0, *SECRET_IS.format("x").split(), *WITH_TLS], "ssl.keystore.location is missing"),
    ],
)  # fmt: skip
def test_invalid_replication_options_are_refused(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["start", "--port", "0", "--data-dir", str(tmp_path / "x"), *arguments]) == 1
    assert said in capsys.readouterr().err


# --- with a lease -------------------------------------------------------------------------------


class InSync:
    """The in-sync set of the lease. The test changes it directly."""

    node_id = 1

    def __init__(self) -> None:
        self.now, self.wanted = frozenset({1, 2}), frozenset({1, 2})
        self.reported: list[int] = []

    def may_be_in_sync(self) -> frozenset[int]:
        return self.now | self.wanted

    def want_in_sync(self, node_ids: Iterable[int]) -> None:
        self.wanted = frozenset({1, *node_ids})

    def add_node(self, node_id: int, addresses: NodeAddresses) -> None:
        self.reported.append(node_id)


def new_leased(*, may_be_alone: bool = True) -> tuple[Leading, InSync]:
    in_sync = InSync()
    settings = ReplicationSettings(True, may_be_alone, 1000, SECRET)
    return Leading(new_disk(), "/x", settings, lambda: None, in_sync, "c"), in_sync


def follow_as(leading: Leading, node_id: int) -> Following:
    leading.on_connected(NONCE, 0)
    following = Following(new_disk(), "/x", SECRET, NONCE, lambda: None, node_id=node_id)
    talk(leading, following)
    return following


def test_answers_wait_for_the_other_node_until_it_is_out_of_the_in_sync_set() -> None:
    leading, in_sync = new_leased()
    leading.on_start()
    assert in_sync.wanted == {1}
    assert not leading.is_applied(0)
    in_sync.now = in_sync.wanted
    assert leading.is_applied(0)


@pytest.mark.parametrize("event", ["on_start", "on_closed"])
def test_an_async_leader_without_a_standby_removes_the_other_node_from_the_in_sync_set(
    event: str,
) -> None:
    """In async mode the leader does this even if it may not be alone, since that setting only
    affects responses that wait for the standby.
    """
    leading, in_sync = new_leased(may_be_alone=False)
    leading.settings = leading.settings._replace(is_sync=False)
    getattr(leading, event)()
    assert in_sync.wanted == {1}


def test_a_leader_that_may_not_be_alone_leaves_the_other_node_in_the_set() -> None:
    leading, in_sync = new_leased(may_be_alone=False)
    leading.on_start()
    leading.on_closed()
    assert in_sync.wanted == {1, 2}
    assert not leading.is_applied(0)


def test_a_disconnected_standby_is_removed_from_the_in_sync_set() -> None:
    """Otherwise the leader could not respond to any client until the standby returns."""
    leading, in_sync = new_leased()
    in_sync.now = frozenset({1})
    follow_as(leading, 2)
    in_sync.now = in_sync.wanted
    assert in_sync.now == {1, 2}
    leading.on_closed()
    assert in_sync.wanted == {1}
    assert not leading.is_applied(leading.position), "until the set says so"
    in_sync.now = in_sync.wanted
    assert leading.is_applied(leading.position)


def test_a_catch_up_begins_only_when_the_standby_is_out_of_the_in_sync_set() -> None:
    """With a lease, the leader first takes the standby out of the in-sync set, and compares the
    copy only when the lease's record says so. After the catch-up it wants the standby in the set
    again.
    """
    leading, in_sync = new_leased(may_be_alone=False)
    following = follow_as(leading, 2)
    assert leading.link is not None
    assert leading.link.state is State.PROVEN
    assert (in_sync.wanted, in_sync.reported) == ({1}, [2])
    in_sync.now = in_sync.wanted
    leading.on_in_sync_changed()
    to_leader = b"".join(following.on_bytes(leading.take_output()))
    assert leading.link.state is State.COMPARING
    assert not leading.is_applied(0)
    leading.on_bytes(to_leader, 0)
    assert in_sync.wanted == {1}
    to_leader = b"".join(following.on_bytes(leading.take_output()))
    # the response for this operation does not wait for the standby
    leading.publish(Operation(Kind.CREATE, "f"))
    leading.on_bytes(to_leader, 0)
    assert in_sync.wanted == {1}
    assert not leading.is_applied(leading.position)
    for answer in following.on_bytes(leading.take_output()):
        leading.on_bytes(answer, 0)
    assert in_sync.wanted == {1, 2}
    assert leading.is_applied(leading.position)


def test_a_third_node_in_the_set_keeps_answers_waiting() -> None:
    leading, in_sync = new_leased()
    leading.on_start()
    in_sync.now = frozenset({1})
    follow_as(leading, 2)
    assert leading.is_applied(leading.position)
    in_sync.now = frozenset({1, 3})
    assert not leading.is_applied(leading.position)


def test_a_standby_of_the_same_node_id_is_refused() -> None:
    leading, _ = new_leased()
    with pytest.raises(WireError, match=r"this node's node\.id, 1"):
        follow_as(leading, 1)


def test_a_standby_does_not_follow_a_leader_of_another_cluster() -> None:
    leading, in_sync = new_leased()
    in_sync.now = frozenset({1})
    disk, worth = new_disk(), []
    disk.write_atomic("/x/meta.properties", b"cluster.id=d\n")
    leading.on_connected(NONCE, 0)
    following = Following(disk, "/x", SECRET, NONCE, lambda: None, on_holding=worth.append)
    with pytest.raises(LogDirectoryError, match="to the cluster d, and its leader to"):
        talk(leading, following)
    assert worth == []


@pytest.mark.parametrize("data", [None, b"", b"cluster.id"])
def test_a_standby_removes_nothing_from_a_directory_without_a_cluster_id(
    data: bytes | None,
) -> None:
    """The directory has no meta.properties, so it may belong to another cluster."""
    leading, in_sync = new_leased()
    in_sync.now = frozenset({1})
    disk = new_disk()
    disk.mkdir("/x/t-0")
    if data is not None:
        disk.write_atomic("/x/meta.properties", data)
    leading.on_connected(NONCE, 0)
    following = Following(disk, "/x", SECRET, NONCE, lambda: None)
    with pytest.raises(LogDirectoryError, match="does not name the directory's cluster"):
        talk(leading, following)
    assert disk.is_dir("/x/t-0")


@pytest.mark.parametrize(
    "made_again",
    [
        [Operation(Kind.MAKE_DIRECTORY, "t-0"), Operation(Kind.APPEND, "t-0/new", 0, b"new")],
        [Operation(Kind.MAKE_DIRECTORY, "t-0"), Operation(Kind.REPLACE, "t-0/new", data=b"new")],
        [
            Operation(Kind.MAKE_DIRECTORY, "other"),
            Operation(Kind.APPEND, "other/new", 0, b"new"),
            Operation(Kind.RENAME, "other", new_path="t-0"),
        ],
    ],
)
def test_a_delayed_removal_happens_before_the_directory_is_created_again(
    made_again: list[Operation],
) -> None:
    """Otherwise the new directory would contain files of the old one, and would be removed with
    it.
    """
    disk = new_disk()
    disk.mkdir("/x/t-0")
    disk.open(f"/x/t-0/{0:020}.log", create=True).append(b"records")
    lost, replica = LostPartitions(disk, "/x"), Replica(disk, "/x")
    assert lost.holds_back(Operation(Kind.REMOVE_TREE, "t-0"))
    assert disk.is_dir("/x/t-0")
    for operation in made_again:
        assert not lost.holds_back(operation)
        replica.apply(operation)
    lost.on_caught_up()
    assert (disk.list("/x/t-0"), disk.read("/x/t-0/new")) == (["new"], b"new")


def test_an_interrupted_first_copy_without_a_cluster_id_continues() -> None:
    """The standby note says that all files of the copy came from a leader."""
    leading, in_sync = new_leased()
    in_sync.now = frozenset({1})
    disk = new_disk()
    disk.mkdir("/x/t-0")
    StandbyNote(disk, "/x").write_catching_up()
    leading.on_connected(NONCE, 0)
    talk(leading, Following(disk, "/x", SECRET, NONCE, lambda: None))
    assert leading.follows


def test_a_standby_keeps_a_partition_that_its_leader_lost() -> None:
    """The leader has no record that the partition was deleted, so the standby may have the last
    copy.
    """
    pair = Pair()
    pair.leader.topic("t", 2)
    for index in (0, 1):
        pair.leader.produce("t", (b"%d" % index,), partition=index)
    pair.connect()
    pair.deliver_all()
    pair.cut()
    copy = pair.standby_disk.read("/data/t-1/00000000000000000000.log")
    pair.leader.disk.rmtree("/data/t-1")
    pair.leader.kill()
    pair.connect()
    with pytest.raises(LogDirectoryError, match="the leader has lost the directories t-1, which"):
        pair.deliver_all()
    assert pair.standby_disk.read("/data/t-1/00000000000000000000.log") == copy
    pair.cut()
    pair.standby_disk.rmtree("/data/t-1")
    pair.connect()
    pair.deliver_all()
    assert pair.applied >= 0


def succeeded(pair: Pair) -> Pair:
    """Let the standby take over with the data that it has. Gives a pair in which the former leader
    is the standby.
    """
    pair.cut()
    pair.leader.disk.kill()
    after = Pair()
    after.leader.load(files_of(pair.standby_disk))
    after.leader.open()
    after.standby_disk = pair.leader.disk
    return after


@pytest.mark.parametrize("is_sent", [False, True])
def test_a_former_leader_removes_a_partition_that_was_never_sent(*, is_sent: bool) -> None:
    """The next leader never had the partition, so it has not lost the partition either. A directory
    that was sent to the standby may be the last copy.
    """
    pair = Pair()
    pair.leader.topic("t", 2)
    pair.leader.produce("t", (b"a",))
    pair.connect()
    pair.deliver_all()
    if not is_sent:
        pair.cut()
    pair.leader.produce("t", (b"b",), partition=1)
    pair.deliver_all()
    pair = succeeded(pair)
    assert pair.leader.disk.is_dir("/data/t-1") is is_sent
    pair.leader.disk.rmtree("/data/t-1")
    pair.leader.kill()
    pair.connect()
    if is_sent:
        with pytest.raises(LogDirectoryError, match="the leader has lost the directories t-1, wh"):
            pair.deliver_all()
    else:
        pair.deliver_all()
        assert pair.applied >= 0
    assert pair.standby_disk.is_dir("/data/t-1") is is_sent


@pytest.mark.parametrize("is_flushed", [False, True])
@pytest.mark.parametrize("loses_power", [False, True])
def test_a_former_leader_sets_an_unmarked_undurable_directory_aside(
    *, loses_power: bool, is_flushed: bool
) -> None:
    """Without a flush, a power loss may remove the mark, so its absence proves nothing. The mark of
    a flushed directory that was not sent is durable. If it is missing, the directory was sent, and
    may be the last copy.
    """
    pair = Pair()
    pair.leader.topic("t", 2)
    pair.leader.produce("t", (b"a",))
    pair.connect()
    pair.deliver_all()
    pair.cut()
    pair.leader.produce("t", (b"never sent",), partition=1)
    if is_flushed:
        log = pair.leader.broker.topics.partition("t", 1)
        assert log is not None
        log.flush()
        pair.leader.broker.logs.write_checkpoints()
    # a power loss may remove the mark and keep the other files
    pair.leader.disk.unlink("/data/t-1/barnabas-not-sent")
    pair.leader.disk.boots += loses_power
    kept = pair.leader.disk.contents("/data/t-1/00000000000000000000.log")
    pair = succeeded(pair)
    for _ in range(2):
        pair.connect()
        if not loses_power or is_flushed:
            with pytest.raises(LogDirectoryError, match="has lost the directories t-1, wh"):
                pair.deliver_all()
            return
        pair.deliver_all()
        (aside,) = [name for name in pair.standby_disk.list("/data") if name.endswith("-stray")]
        assert pair.standby_disk.contents(f"/data/{aside}/00000000000000000000.log") == kept
        pair.cut()
    assert not pair.standby_disk.is_dir("/data/t-1")


@pytest.mark.parametrize("is_flushed", [False, True])
@pytest.mark.parametrize("loses_power", [False, True])
def test_a_standby_sets_aside_a_directory_that_its_leader_lost_in_a_power_loss(
    *, loses_power: bool, is_flushed: bool
) -> None:
    """Without a flush, the leader's directory was not durable, and the leader's state is correct. A
    flushed directory survives the leader's power loss. If the directory is missing, it was lost in
    another way, and the standby may have the last copy.
    """
    pair = Pair()
    pair.leader.topic("t", 2)
    pair.connect()
    pair.deliver_all()
    for index in (0, 1):
        pair.leader.produce("t", (b"%d" % index,), partition=index)
    if is_flushed:
        log = pair.leader.broker.topics.partition("t", 1)
        assert log is not None
        log.flush()
        pair.leader.broker.logs.write_checkpoints()
    pair.deliver_all()
    pair.cut()
    kept = pair.standby_disk.contents("/data/t-1/00000000000000000000.log")
    pair.leader.disk.rmtree("/data/t-1")
    pair.leader.kill()
    pair.standby_disk.boots += loses_power
    for _ in range(2):
        pair.connect()
        if not loses_power or is_flushed:
            with pytest.raises(LogDirectoryError, match="has lost the directories t-1, wh"):
                pair.deliver_all()
            assert pair.standby_disk.contents("/data/t-1/00000000000000000000.log") == kept
            return
        pair.deliver_all()
        (aside,) = [name for name in pair.standby_disk.list("/data") if name.endswith("-stray")]
        assert pair.standby_disk.contents(f"/data/{aside}/00000000000000000000.log") == kept
        pair.cut()
    assert not pair.standby_disk.is_dir("/data/t-1")


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_catch_up_removes_the_not_sent_marks(*, is_restarted: bool) -> None:
    """An earlier process may have created the partition before any standby connected."""
    pair = Pair()
    pair.leader.topic("t")
    pair.leader.produce("t", (b"a",))
    marks = [name for name in files_of(pair.leader.disk) if name.endswith(NOT_SENT_NAME)]
    assert marks == ["/data/t-0/barnabas-not-sent"]
    if is_restarted:
        pair.leader.kill()
    pair.connect()
    pair.deliver_all()
    assert not any(name.endswith(NOT_SENT_NAME) for name in files_of(pair.leader.disk))
    assert replicated_files(pair.standby_disk) == replicated_files(pair.leader.disk)


def test_a_catch_up_removes_the_not_sent_mark_of_a_directory_created_during_it() -> None:
    pair = Pair()
    pair.leader.topic("t", 2)
    pair.leader.produce("t", (b"a",))
    pair.connect()
    link = pair.leader.leading.link
    assert link is not None
    repeat_until(lambda: link.state is State.CATCHING_UP, lambda: pair.deliver(1 << 20))
    pair.leader.produce("t", (b"b",), partition=1)
    assert link.not_sent
    pair.deliver_all()
    assert not any(name.endswith(NOT_SENT_NAME) for name in files_of(pair.leader.disk))
    assert replicated_files(pair.standby_disk) == replicated_files(pair.leader.disk)


def test_a_directory_keeps_its_not_sent_mark_until_the_standby_applied_its_creation() -> None:
    pair = Pair()
    pair.leader.topic("t", 2)
    pair.leader.produce("t", (b"a",))
    pair.connect()
    pair.deliver_all()
    pair.leader.produce("t", (b"b",))
    leading, mark = pair.leader.leading, "/data/t-1/barnabas-not-sent"
    made: list[int] = []  # the position after the directory's creation

    def publish(operation: Operation) -> None:
        leading.publish(operation)
        if (operation.kind, operation.path) == (Kind.MAKE_DIRECTORY, "t-1"):
            made.append(leading.position)

    pair.leader.replicated.publish = publish
    pair.leader.produce("t", (b"c",), partition=1)
    assert leading.link is not None
    (made_at,) = made
    assert list(leading.link.not_sent.values()) == made
    leading.on_bytes(frame(["applied", made_at - 1]), 0)
    assert pair.leader.disk.exists(mark)
    leading.on_bytes(frame(["applied", made_at]), 0)
    assert not pair.leader.disk.exists(mark)
    pair.deliver_all()
    assert replicated_files(pair.standby_disk) == replicated_files(pair.leader.disk)


TOPIC_ID = uuid.UUID(int=7)
IDS = {
    "its": encode_partition_metadata(TOPIC_ID),
    "another topic's": encode_partition_metadata(uuid.UUID(int=8)),
    "torn": b"version: 0",
    "none": None,
}


@pytest.mark.parametrize("loses_power", [False, True])
def test_the_fate_of_a_directory_that_the_leader_does_not_have(loses_power: bool) -> None:
    """If the leader has lost the directory, the standby refuses to follow, and keeps the directory.
    The leader has lost it if the topic exists and the directory was sent. But if this node lost
    power before anything in the directory was flushed, the directory may be one that the leader
    never had, and it is set aside. In all other cases it is removed.
    """
    for index, has_topic, is_marked, id_file, recovery_point in product(
        (0, 1, 2), (True, False), (False, True), IDS, (None, 0, 5)
    ):
        disk, name = new_disk(), f"t-{index}"
        disk.write_atomic("/x/meta.properties", b"cluster.id=c\n")
        RunNote(disk, "/x").write()
        disk.boots += loses_power  # the machine was started again
        journal = ClusterMetadata(disk, "/x/barnabas-metadata.journal")
        if has_topic:
            journal.create_topic("t", TOPIC_ID, 2, {})
        journal.close()
        if recovery_point is not None:
            data = encode_offsets({("t", index): recovery_point})
            disk.write_atomic("/x/recovery-point-offset-checkpoint", data)
        disk.mkdir(f"/x/{name}")
        disk.open(f"/x/{name}/{0:020}.log", create=True).append(b"records")
        content = IDS[id_file]
        if content is not None:
            disk.write_atomic(f"/x/{name}/partition.metadata", content)
        if is_marked:
            disk.open(f"/x/{name}/{NOT_SENT_NAME}", create=True)

        lost = LostPartitions(disk, "/x")
        assert lost.holds_back(Operation(Kind.REMOVE_TREE, name))
        is_lost = has_topic and index < 2 and not is_marked and id_file != "another topic's"
        may_be_of_power_loss = loses_power and not recovery_point
        case = index, has_topic, is_marked, id_file, recovery_point
        if is_lost and not may_be_of_power_loss:
            with pytest.raises(LogDirectoryError, match=f"has lost the directories {name}, which"):
                lost.on_caught_up()
            assert disk.is_dir(f"/x/{name}"), case
            continue
        lost.on_caught_up()
        aside = [one for one in disk.list("/x") if one.startswith(f"{name}.")]
        assert not disk.is_dir(f"/x/{name}") and len(aside) == is_lost, case


def test_a_former_leaders_not_sent_marks_are_removed_when_it_has_caught_up() -> None:
    """From then on, the directory has the data of the new leader. If the new leader loses its own
    copy, this one must be kept.
    """
    pair = Pair()
    pair.leader.topic("t")
    pair.connect()
    pair.deliver_all()
    pair.cut()
    pair.leader.produce("t", (b"never sent",))
    pair = succeeded(pair)
    pair.leader.produce("t", (b"a",))
    assert pair.standby_disk.exists("/data/t-0/barnabas-not-sent")
    pair.connect()
    pair.deliver_all()
    assert not pair.standby_disk.exists("/data/t-0/barnabas-not-sent")
    pair.cut()
    pair.leader.disk.rmtree("/data/t-0")
    pair.leader.kill()
    pair.connect()
    with pytest.raises(LogDirectoryError, match="the leader has lost the directories t-0, which"):
        pair.deliver_all()


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_topic_deleted_while_the_standby_was_away_is_removed_from_the_copy(
    *, is_made_again: bool
) -> None:
    pair = Pair()
    pair.leader.topic("t", 2)
    pair.leader.produce("t", (b"a",))
    pair.leader.produce("t", (b"b",), partition=1)
    pair.connect()
    pair.deliver_all()
    pair.cut()
    pair.leader.delete("t")
    pair.leader.tick(3_600_000)
    if is_made_again:
        pair.leader.topic("t", 2)
        pair.leader.produce("t", (b"again",))
    pair.connect()
    pair.deliver_all()
    assert pair.applied >= 0
    assert not pair.standby_disk.is_dir("/data/t-1")
    assert pair.standby_disk.is_dir("/data/t-0") is is_made_again


def test_a_standby_reports_its_applied_position_while_more_data_arrives() -> None:
    """Otherwise, while other clients write without waiting for responses, the responses to those
    that wait would be delayed.
    """
    leading, _ = new_leading()
    following = follow(leading)
    for at in range(3):
        leading.publish(Operation(Kind.APPEND, "f", at << 20, bytes(1 << 20)))
    for answer in following.on_bytes(leading.take_output()):
        leading.on_bytes(answer, 0)
    assert leading.link is not None
    assert leading.link.is_behind
    assert leading.link.waiting_bytes > 1 << 20
    assert leading.is_applied(leading.position - 2)
    assert leading.level_ms == 0


def test_a_standby_reports_an_operation_as_applied_only_once_its_copy_has_it() -> None:
    """The leader sends the responses that wait for the operation when it gets this report."""
    leading, _ = new_leading()
    leading.on_connected(NONCE, 0)
    disk = new_disk()
    following = Following(disk, "/x", SECRET, NONCE, lambda: None)
    talk(leading, following)
    size = 0
    for at in range(3):
        leading.publish(Operation(Kind.APPEND, "f", at * 100, bytes(100)))
        size += 100
        for answer in following.on_bytes(leading.take_output()):
            leading.on_bytes(answer, 0)
            assert disk.size("/x/f") == size or not leading.is_applied(leading.position)
    assert leading.is_applied(leading.position)


@pytest.mark.parametrize(("claimed", "led"), [(0, 0), (7, 7)])
def test_a_claimed_leader_epoch_is_a_lower_bound_for_the_brokers(claimed: int, led: int) -> None:
    """A standby may not know the last leader epoch of its leader."""
    disk = SimDisk(random.Random(0), lambda: 0)
    config = BrokerConfig.from_properties({"log.dirs": "/data"})
    broker = open_broker(
        config, SeededIds(random.Random(0)), disk=disk, now_ms=0, leader_epoch=claimed
    )
    assert broker.logs.leader_epoch == led


def note_of_standby(*, is_sync: bool, may_be_alone: bool, is_leased: bool) -> StandbyNote:
    """The standby note of a standby that follows a leader with these settings."""
    settings = ReplicationSettings(is_sync, may_be_alone, 1000, SECRET)
    in_sync = InSync()
    in_sync.now = frozenset({1})
    leading = Leading(new_disk(), "/x", settings, lambda: None, in_sync if is_leased else None, "c")
    return StandbyNote(follow_as(leading, 2)._disk, "/x")


@pytest.mark.parametrize(
    ("is_sync", "may_be_alone", "is_leased", "lacks_by_hand", "lacks_as_claimed"),
    [
        (False, True, True, True, True),
        (False, False, True, True, True),
        (True, True, True, True, False),  # only a node in the in-sync set claims the lease
        (True, False, True, False, False),
        (True, True, False, True, True),
        (True, False, False, False, False),
    ],
)
def test_the_note_says_whether_the_copy_may_lack_acknowledged_data(
    is_sync: bool, may_be_alone: bool, is_leased: bool, lacks_by_hand: bool, lacks_as_claimed: bool
) -> None:
    for leader_epoch, lacks in ((0, lacks_by_hand), (3, lacks_as_claimed)):
        note = note_of_standby(is_sync=is_sync, may_be_alone=may_be_alone, is_leased=is_leased)
        assert note.read() == "following"
        assert note.may_lack_acknowledged(is_claimed=leader_epoch > 0) is lacks
        config, ids = BrokerConfig.from_properties({"log.dirs": "/x"}), SeededIds(random.Random(0))
        broker = open_broker(config, ids, disk=note._disk, now_ms=0, leader_epoch=leader_epoch)
        assert broker.logs.may_lack_acknowledged is lacks, "what a start does about it"


@pytest.mark.parametrize("last_run", LastRun)
def test_what_a_directory_holds_that_no_process_has_open(last_run: LastRun) -> None:
    """The copy of a standby is whole until its machine goes down. The directory of a broker is
    whole after a clean stop or a kill. The lease relies on this (`leadership`).
    """
    is_same_run = last_run is LastRun.KILLED
    of_a_broker = {LastRun.CLEAN: Holding.WHOLE, LastRun.KILLED: Holding.WHOLE}
    notes = ("following: answers wait never", "catching up", "?", None)
    for note, is_used in product(notes, (False, True)):
        disk = new_disk()
        if is_used:
            disk.write_atomic("/x/meta.properties", b"cluster.id=c\n")
        if last_run is not LastRun.FOREIGN:
            RunNote(disk, "/x").write()
        disk.boots += not is_same_run
        if last_run is LastRun.CLEAN:
            disk.write_atomic(f"/x/{CLEAN_SHUTDOWN_NAME}", b"")
        if note is not None:
            disk.write_atomic("/x/barnabas-standby", f"{note}\n".encode())
            is_whole = note.startswith("following") and is_same_run
            expected = Holding.WHOLE if is_whole else Holding.NOTHING
        elif is_used:
            expected = of_a_broker.get(last_run, Holding.POWER_LOST)
        else:
            expected = Holding.NOTHING
        assert holding_of(disk, "/x") is expected, (note, is_used)


def test_a_note_without_the_answer_mode_means_that_acknowledged_data_may_be_missing() -> None:
    disk = new_disk()
    disk.write_atomic("/x/barnabas-standby", b"following\n")
    assert StandbyNote(disk, "/x").read() == "following"
    assert StandbyNote(disk, "/x").may_lack_acknowledged(is_claimed=True)


def test_a_producer_whose_abort_was_not_replicated_is_fenced() -> None:
    """Otherwise the producer would continue with its epoch, and would commit records that it
    believes to be aborted.
    """
    pair = Pair()
    pair.leader.topic("t")
    producer = Producer(pair.leader, "x")
    producer.send("t", 0, b"aborted")
    pair.connect()
    pair.deliver_all()
    pair.cut()
    assert producer.end(commit=False) == Code.NONE
    unheard = [pair.leader.init(None)[1] for _ in range(2000)]

    successor = pair.take_over()
    producer.b, producer.connection = successor, successor.connect()
    assert producer.add("t", 0) != Code.NONE
    assert producer.end(commit=True) != Code.NONE
    assert successor.read("t", committed=True) == []
    assert successor.state("x")[1] > max(unheard)  # this id belongs to no other producer
    assert successor.broker.logs.leader_epoch > pair.leader.broker.logs.leader_epoch + 1


def test_a_copy_with_all_acknowledged_data_continues_transactions() -> None:
    """The standby's note says that every response waited for it. The copy then has all acknowledged
    data, so the take-over does not count as a power loss.
    """
    pair = Pair()
    pair.leader.topic("t")
    producer = Producer(pair.leader, "x")
    producer.send("t", 0, b"open")
    pair.connect()
    pair.deliver_all()
    StandbyNote(pair.standby_disk, "/data").write_following(AnswersWait.ALWAYS)
    successor = pair.take_over()
    producer.b, producer.connection = successor, successor.connect()
    assert producer.end(commit=True) == Code.NONE
    assert successor.read("t", committed=True) == [b"open"]


def test_in_async_mode_answers_wait_while_a_node_that_does_not_follow_may_take_over() -> None:
    """Otherwise a leader that has lost the connections to that node and to the lease engine would
    acknowledge data of which it has the only copy.
    """
    settings, in_sync = ReplicationSettings(False, True, 1000, SECRET), InSync()
    leading = Leading(new_disk(), "/x", settings, lambda: None, in_sync, "c")
    leading.on_start()
    assert in_sync.wanted == {1}
    assert not leading.is_applied(0)
    in_sync.now = frozenset({1})
    assert leading.is_applied(0)
    follow_as(leading, 2)
    in_sync.now = frozenset({1, 2})
    leading.publish(Operation(Kind.CREATE, "f"))
    assert leading.is_applied(leading.position)


def test_a_replacing_file_is_sent_when_it_is_renamed() -> None:
    """Until the rename, the standby keeps the earlier file as a whole."""
    disk = SimDisk(random.Random(1), lambda: 0)
    disk.mkdir("/data")
    replicated = ReplicatedDisk(disk, "/data")
    sent: list[Operation] = []
    replicated.publish = sent.append
    replicated.write_atomic("/data/checkpoint.new", b"next", sync=False)
    file = replicated.open("/data/checkpoint.new")
    file.append(b" one")
    assert sent == []
    replicated.rename("/data/checkpoint.new", "/data/checkpoint")
    assert sent == [Operation(Kind.REPLACE, "checkpoint", data=b"next one")]


def test_a_removal_that_failed_is_not_sent() -> None:
    operations: list[Operation] = []
    inner = new_disk()
    inner.open("/x/f", create=True)
    disk = ReplicatedDisk(inner, "/x")
    disk.publish = operations.append
    inner.crash_in(0)
    with pytest.raises(Crash):
        disk.unlink("/x/f")
    assert operations == []
