"""Whatever changes a leader makes and however the connection is interrupted, a standby that follows
has a prefix of the leader's changes. A broker that is started on the standby's copy has everything
that the standby confirmed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from helpers.disk_broker import Producer
from helpers.examples import drawn
from helpers.standby_pair import Pair, replicated_files
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sim.disk import SimDisk

from barnabas.protocol.errors import Code
from barnabas.replication import catch_up as catch_up_module
from barnabas.replication import wire
from barnabas.replication.admission import Admission, Reply
from barnabas.replication.catch_up import CatchUp, Held, add_to_inventory, take_inventory
from barnabas.replication.operations import Operation, Replica
from barnabas.replication.replicated_disk import ReplicatedDisk

TOPICS = ("a", "b", "c")
ACTIONS = st.one_of(
    st.tuples(st.just("transaction"), st.sampled_from(TOPICS), st.booleans()),
    st.tuples(st.just("write"), st.sampled_from(TOPICS), st.integers(1, 40)),
    st.tuples(st.just("delete"), st.sampled_from(TOPICS), st.none()),
    st.tuples(st.just("tick"), st.integers(1, 120_000), st.none()),
    st.tuples(st.just("deliver"), st.integers(1, 5_000), st.integers(1, 20)),
    st.tuples(st.just("cut"), st.none(), st.none()),
    st.tuples(st.just("kill"), st.none(), st.none()),
    st.tuples(st.just("stop"), st.none(), st.none()),
)


class World:
    """A pair, and the transactions that were acknowledged. `committed` has, for each topic, the
    values of transactions that were committed since the topic was created. With each value it has
    the position in the leader's changes up to which a standby must have applied them, so that its
    copy has the value.
    """

    def __init__(self) -> None:
        self.pair = Pair(barnabas_flush_journal_logs="2")
        self.committed: dict[str, list[tuple[int, bytes]]] = {}
        self.count = 0
        self._producer: Producer | None = None

    def topic(self, name: str) -> None:
        """Create the topic if it does not exist."""
        if name not in self.committed:
            self.pair.leader.topic(name, 2, segment_bytes="1048576")
            self.committed[name] = []

    def transaction(self, name: str, commits: bool) -> None:
        """Write one record in a transaction, and end it."""
        self.topic(name)
        producer = self._producer
        if producer is None:
            producer = self._producer = Producer(self.pair.leader, "txn")
        self.count += 1
        value = b"%d" % self.count
        producer.send(name, 0, value)
        assert producer.end(commits) == Code.NONE
        if commits:
            self.committed[name].append((self.pair.leader.leading.position, value))

    def write(self, name: str, count: int) -> None:
        """Write records outside of transactions."""
        self.topic(name)
        values = tuple(b"plain %d" % at for at in range(count))
        assert self.pair.leader.produce(name, values, partition=1)[0] == Code.NONE

    def delete(self, name: str, _: None) -> None:
        """Delete a topic."""
        if name in self.committed:
            del self.committed[name]
            self._producer = None
            self.pair.leader.delete(name)

    def tick(self, elapsed_ms: int, _: None) -> None:
        """Let time pass, so that checkpoints are written and files of deleted topics are
        removed.
        """
        self.pair.leader.tick(elapsed_ms)

    def deliver(self, size: int, times: int) -> None:
        """Deliver some bytes. Open a connection first if there is none."""
        self.pair.connect()
        for _ in range(times):
            self.pair.deliver(size)

    def cut(self, _: None, __: None) -> None:
        """End the connection."""
        self.pair.cut()

    def kill(self, _: None, __: None) -> None:
        """Kill the leader and start it again."""
        self._restart(self.pair.leader.kill)

    def stop(self, _: None, __: None) -> None:
        """Stop the leader cleanly, and start it again."""
        self._restart(self.pair.leader.stop)

    def _restart(self, how: Callable[[], None]) -> None:
        """Cut the connection, and restart the leader by calling `how`."""
        self.pair.cut()
        self._producer = None
        how()
        # In the new run, positions start at 0 again. All acknowledged values are in the logs, and
        # therefore in every later copy.
        self.committed = {
            name: [(0, value) for _, value in rows] for name, rows in self.committed.items()
        }

    def check_successor(self) -> None:
        """Start a broker on the standby's copy, and check that it has everything that the standby
        confirmed.
        """
        applied = self.pair.applied
        if applied < 0:
            return
        successor = self.pair.take_over()
        for name, rows in self.committed.items():
            confirmed = [value for position, value in rows if position <= applied]
            if confirmed:
                values = successor.read(name, committed=True)
                assert values[: len(confirmed)] == confirmed


DIRECTORIES, NAMES = ("d", "e", "d.gone"), ("f", "g", "g.cleaned", "f.old")
PATHS = ("r", "s", *(f"{directory}/{name}" for directory in DIRECTORIES for name in NAMES))
CHANGES = st.one_of(
    st.tuples(st.just("append"), st.sampled_from(PATHS), st.binary(min_size=1, max_size=9)),
    st.tuples(st.just("truncate"), st.sampled_from(PATHS), st.integers(0, 9)),
    st.tuples(st.just("replace"), st.sampled_from(PATHS), st.binary(max_size=9)),
    st.tuples(st.just("remove"), st.sampled_from(PATHS), st.none()),
    st.tuples(st.just("rename"), st.sampled_from(PATHS[2:]), st.sampled_from(NAMES)),
    st.tuples(st.just("move"), st.sampled_from(DIRECTORIES), st.sampled_from(DIRECTORIES)),
    st.tuples(st.just("remove_tree"), st.sampled_from(DIRECTORIES), st.none()),
    st.tuples(st.just("look"), st.integers(1, 3), st.none()),
)
# Changes of a directory in which one file is discarded again and again, as the cleaner does.
DISCARDS = st.one_of(
    st.tuples(st.just("append"), st.sampled_from(("d/f", "d/f.old")), st.binary(min_size=1)),
    st.tuples(st.just("rename"), st.just("d/f"), st.just("f.old")),
    st.tuples(st.just("look"), st.just(1), st.none()),
)


# Changes of one file of several pieces. It is truncated and grows during the comparison, like a
# log.
CUTS = st.one_of(
    st.tuples(st.just("append"), st.just("r"), st.binary(min_size=4, max_size=9)),
    st.tuples(st.just("truncate"), st.just("r"), st.integers(0, 9)),
    st.tuples(st.just("look"), st.integers(1, 3), st.none()),
)


class Files:
    """A small directory whose changes are limited to those that a broker makes."""

    def __init__(self) -> None:
        self.inner = SimDisk(random.Random(0), lambda: 0)
        self.inner.mkdir("/x")
        self.disk = ReplicatedDisk(self.inner, "/x")

    def change(self, kind: str, path: Any, value: Any) -> None:
        """Make one change if it is possible, and otherwise do nothing."""
        disk: Any = self.disk
        full = f"/x/{path}"
        directory = full.rpartition("/")[0]
        if kind in ("append", "replace") and not disk.is_dir(directory):
            disk.mkdir(directory)
        if full.endswith(".cleaned") and kind in ("append", "replace", "truncate"):
            disk = self.inner  # the cleaner is another process, and writes directly to the disk
        if kind == "append":
            disk.open(full, create=True).append(value)
        elif kind == "replace":
            disk.write_atomic(full, value)
        elif not disk.exists(full):
            return
        elif kind == "truncate":
            file = disk.open(full)
            file.truncate(min(value, file.size))
        elif kind == "remove":
            disk.unlink(full)
        elif kind == "rename" and not value.endswith(".cleaned"):
            disk.rename(full, f"{directory}/{value}")
        elif kind == "move" and not disk.exists(f"/x/{value}"):
            disk.rename(full, f"/x/{value}")
        elif kind == "remove_tree":
            disk.rmtree(full)

    def content(self) -> dict[str, bytes]:
        """The contents of all files except the cleaner's."""
        names = [name for name, _ in take_inventory(self.disk, "/x")]
        return {
            name: self.disk.read(f"/x/{name}")
            for name in names
            if not name.endswith(("/", ".cleaned"))
        }


def inventory_of(disk: ReplicatedDisk) -> dict[str, Held]:
    """The leader's inventory of a copy, after the standby has acknowledged everything."""
    inventory: dict[str, Held] = {}
    for path, part in take_inventory(disk, "/x"):
        add_to_inventory(inventory, path, part)
    return inventory


@settings(max_examples=drawn(400))
@example([("append", "d/f.old", b"0")], None, [("look", 1, None), ("rename", "d/f.old", "f.old")])
@example([("append", "d/f", b"0")], None, [("move", "d", "e")])
@example(  # A new directory has the name of an old one that the copy has not removed yet.
    [("append", "d/f", b"0")], [("append", "e/g", b"1")], [("look", 3, None), ("move", "d", "e")]
)
@example([("append", "d/f", b"0")], [("append", "e/f", b"1")], [("move", "d", "e")])
# A file has the name of one of the copy's directories, or a directory that of one of its files.
@example([("append", "e", b"0")], [("remove", "e", None), ("append", "e/f", b"1")], [])
@example([("append", "e/f", b"0")], [("remove_tree", "e", None), ("append", "e", b"1")], [])
@example(  # a file that the cleaner writes is sent when it is renamed, and not before
    [("append", "d/f.cleaned", b"0")], None, [("look", 3, None), ("rename", "d/f.cleaned", "f")]
)
@given(
    st.lists(CHANGES) | st.lists(DISCARDS, max_size=8),
    st.none() | st.lists(CHANGES),
    st.lists(CHANGES, max_size=60) | st.lists(DISCARDS, max_size=20),
)
def test_any_copy_becomes_equal_to_the_directory_while_that_changes(
    before: list[Any], of_the_copy: list[Any] | None, meanwhile: list[Any]
) -> None:
    check_copy(before, of_the_copy, meanwhile)


# A few files, all of which exist. Most changes therefore affect a file that was or will be
# compared.
FEW = ("r", "d/f", "d/g", "e/f")
FULL = st.tuples(*(st.binary(max_size=9) for _ in FEW)).map(
    lambda contents: [("replace", path, data) for path, data in zip(FEW, contents, strict=True)]
)
CHANGES_OF_FEW = st.one_of(
    st.tuples(st.just("look"), st.integers(1, 2), st.none()),
    st.tuples(st.just("append"), st.sampled_from(FEW), st.binary(min_size=1, max_size=9)),
    st.tuples(st.just("truncate"), st.sampled_from(FEW), st.integers(0, 9)),
    st.tuples(st.sampled_from(("remove", "remove", "replace")), st.sampled_from(FEW), st.just(b"")),
    st.tuples(st.just("rename"), st.sampled_from(FEW[1:]), st.sampled_from(("f", "g"))),
    st.tuples(st.just("move"), st.sampled_from(("d", "e", "h")), st.sampled_from(("d", "e", "h"))),
    st.tuples(st.just("remove_tree"), st.sampled_from(("d", "e")), st.none()),
)


@settings(max_examples=drawn(300))
@given(FULL, st.none() | FULL, st.lists(CHANGES_OF_FEW, min_size=2, max_size=12))
def test_files_that_change_while_they_are_compared_are_copied(
    before: list[Any], of_the_copy: list[Any] | None, meanwhile: list[Any]
) -> None:
    check_copy(before, of_the_copy, meanwhile)


@settings(max_examples=drawn(200))
@given(st.none() | st.lists(CUTS, max_size=4), st.lists(CUTS, min_size=4, max_size=12))
def test_a_file_that_is_truncated_and_grows_while_it_is_compared_is_copied(
    of_the_copy: list[Any] | None, meanwhile: list[Any]
) -> None:
    check_copy([("append", "r", bytes(range(20)))], of_the_copy, meanwhile)


def check_copy(before: list[Any], of_the_copy: list[Any] | None, meanwhile: list[Any]) -> None:
    """Check that a standby's copy becomes equal to the directory, which changes in the meantime.

    Takes: of_the_copy, the changes by which the copy differs at the start, or None if there is no
    copy.
    """
    leader, copy = Files(), Files()
    for change in before:
        leader.change(*change)
        if of_the_copy is not None:
            copy.change(*change)
    for change in of_the_copy or ():
        copy.change(*change)
    replica = Replica(copy.disk, "/x")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catch_up_module, "PIECE_BYTES", 4)
        catch_up = CatchUp(leader.disk, "/x", inventory_of(copy.disk))

        def publish(operation: Operation) -> None:
            operations = [operation] if catch_up.is_done else catch_up.on_operation(operation)
            for one in operations:
                replica.apply(one)

        leader.disk.publish = publish
        for kind, path, value in meanwhile:
            if kind != "look":
                leader.change(kind, path, value)
                continue
            for _ in range(path):
                for operation in catch_up.next_operations():
                    replica.apply(operation)
        while not catch_up.is_done:
            for operation in catch_up.next_operations():
                replica.apply(operation)
    assert copy.content() == leader.content()


@settings(max_examples=drawn(15))
@given(st.lists(ACTIONS, max_size=25), st.data())
def test_a_standby_has_a_prefix_and_all_that_it_confirmed(
    actions: list[tuple[str, object, object]], data: st.DataObject
) -> None:
    world = World()
    for name, first, second in actions:
        getattr(world, name)(first, second)
        if data.draw(st.integers(0, 5)) == 0:
            world.check_successor()
    world.pair.connect()
    world.pair.deliver_all()
    assert world.pair.leader.leading.follows
    assert replicated_files(world.pair.standby_disk) == replicated_files(world.pair.leader.disk)
    world.check_successor()


# --- strangers ------------------------------------------------------------------------------------

NUMBERS = st.integers(-(1 << 63), (1 << 64) - 1)  # the integers that msgpack can encode
PROOFS = st.one_of(st.binary(max_size=40), st.none(), st.text(max_size=5), NUMBERS)
SAID = st.one_of(
    st.tuples(st.just("hello"), st.sampled_from([wire.VERSION, 0, "x"]), st.binary(max_size=40)),
    st.just(("hello", wire.VERSION, b"s" * wire.NONCE_BYTES)),
    st.tuples(st.just("proof"), PROOFS, st.integers(-1, 3), st.just("h:1"), st.just({})),
    st.tuples(st.sampled_from(["have", "end", "applied", "ping", "welcome"]), st.integers(0, 9)),
)


@settings(max_examples=drawn(15))
@given(st.lists(st.lists(SAID, max_size=4), max_size=5), st.integers(1, 50), st.randoms())
def test_clients_without_the_secret_get_at_most_a_challenge_and_replace_no_standby(
    strangers: list[list[tuple[Any, ...]]], cut: int, order: random.Random
) -> None:
    """This holds for any bytes, in any pieces, and before, while and after a standby connects."""
    pair = Pair()
    leading = pair.leader.leading
    admission: Admission[int] = Admission(leading)
    for number in range(len(strangers)):
        admission.on_accepted(number, "h")
        admission.on_connected(number, bytes(wire.NONCE_BYTES), 0)
    pair.leader.topic("a")
    waits = [*range(len(strangers)), -1]
    order.shuffle(waits)
    for number in waits:
        if number < 0:
            pair.connect()
            pair.deliver_all()
            continue
        before, sent, reply = leading.link, b"", Reply()
        said = b"".join(map(wire.frame, strangers[number]))
        for at in range(0, len(said), cut):
            if not reply.end:
                reply = admission.on_bytes(number, said[at : at + cut], 0)
                sent += reply.data
        assert not reply.is_admitted and admission.standby is None
        assert leading.link is before
        names = [message[0] for message in wire.Frames().feed(sent)]
        assert names in ([], ["challenge"])
    assert leading.follows
    pair.leader.topic("b")
    pair.deliver_all()
    assert replicated_files(pair.standby_disk) == replicated_files(pair.leader.disk)
