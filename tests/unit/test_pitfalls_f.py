"""Section F of the known failures of other brokers, its last two rows: damaged state beside the log, and a kill at any moment."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from helpers.pitfall_broker import PitfallBroker, Producer
from sim.disk import Crash

SMALL = {"segment_bytes": "400"}
UNCLEAN = "/data/.kafka_cleanshutdown"


class _Filled:
    """A log of several segments with aborted, committed and open transactions, found after a kill that came long after the last flush."""

    def __init__(self) -> None:
        b = self.b = PitfallBroker()
        b.topic("t", **SMALL)
        self.idempotent = b.init(None)[1]
        for number in range(4):
            assert b.produce("t", (b"i%d" % number,), pid=self.idempotent, epoch=0, sequence=number) == (0, number)
        done, self.open = Producer(b, "done"), Producer(b, "open")
        for number in range(12):
            done.send("t", 0, b"%d" % number + b"." * 60)
            assert done.end(number % 3 == 0) == 0
            if number == 8:
                self.open.send("t", 0, b"open")
        b.stop()
        b.disk.kill()
        self.saved = b.saved()
        self.expected = self._look()
        rows, _, stable = self.expected[0]
        assert 4 < len(rows) < 12 and stable == self.expected[2]
        assert self.expected[1] == (0, 3)

    def _look(self) -> tuple[object, ...]:
        """All that must be the same after any damage: what readers are given, a repeated batch's offset, the open transaction's end."""
        b = self.b
        fetched = b.fetch("t", committed=True)
        rows = [row for row in b.rows("t", committed=True)]
        aborted = sorted(fetched.aborted or [])
        stable = fetched.last_stable_offset
        repeated = b.produce("t", (b"i3",), pid=self.idempotent, epoch=0, sequence=3)
        return (tuple(rows), tuple(aborted), stable), repeated, stable

    def damaged(self, path: str, damage: Callable[[bytearray], None] | None) -> tuple[object, ...]:
        """What is found when this one file was damaged (None: removed) and the stop was no clean one."""
        b = self.b
        b.load(self.saved)
        if b.disk.exists(UNCLEAN):
            b.disk.unlink(UNCLEAN)
        if damage is None:
            b.disk.unlink(path)
        else:
            damage(b.disk._file(path).data)
        b.open()
        return self._look()

    def files(self, *suffixes: str) -> list[str]:
        self.b.load(self.saved)
        return [path for path, _ in self.b.disk.files() if "/t-0/" in path and path.endswith(suffixes)]


@pytest.fixture(scope="module")
def filled() -> _Filled:
    return _Filled()


@pytest.mark.parametrize("suffix", [".txnindex", ".snapshot", ".index", ".timeindex"])
def test_f8_what_stands_beside_the_log_is_rebuilt_when_it_is_missing(filled: _Filled, suffix: str) -> None:
    """F8: each file by itself."""
    paths = filled.files(suffix)
    assert paths
    for path in paths:
        assert filled.damaged(path, None) == filled.expected, path


@pytest.mark.parametrize("suffix", [".txnindex", ".snapshot"])
def test_f8_what_stands_beside_the_log_is_rebuilt_when_it_was_cut_at_any_byte(filled: _Filled, suffix: str) -> None:
    """F8: every byte at which the file may have been cut off."""
    cuts = 0
    for path in filled.files(suffix):
        for size in range(filled.b.disk.size(path)):

            def cut(data: bytearray, size: int = size) -> None:
                del data[size:]

            assert filled.damaged(path, cut) == filled.expected, f"{path} cut at {size}"
            cuts += 1
            filled.b.load(filled.saved)
    assert cuts > 30


@pytest.mark.parametrize("suffix", [".txnindex", ".snapshot"])
def test_f8_what_stands_beside_the_log_is_rebuilt_when_a_byte_of_it_is_wrong(filled: _Filled, suffix: str) -> None:
    """F8: every third byte turned over; in the files whose bytes all matter."""
    for path in filled.files(suffix):
        for at in range(0, filled.b.disk.size(path), 3):

            def turn(data: bytearray, at: int = at) -> None:
                data[at] ^= 0xFF

            assert filled.damaged(path, turn) == filled.expected, f"{path}, byte {at}"
            filled.b.load(filled.saved)


# --- a kill at any moment ----------------------------------------------------------------------------------------------------------------------


def prepared() -> tuple[PitfallBroker, Producer, int]:
    """A broker with one committed transaction, and all that is made at first use; an idempotent producer's id."""
    b = PitfallBroker()
    b.topic("t", 2)
    b.topic("plain", flush_messages="1")
    p = Producer(b, "txn")
    p.send("t", 0, b"first")
    p.send_offset("g", "t", 1)
    assert p.end(True) == 0
    pid = b.init(None)[1]
    assert b.produce("plain", (b"0",), pid=pid, epoch=0, sequence=0) == (0, 0)
    return b, p, pid


def run(b: PitfallBroker, p: Producer, pid: int, done: list[str]) -> None:
    """One transaction over two partitions and a group's offset, an aborted one, and a durable record; `done` has what was acknowledged."""
    assert b.produce("plain", (b"1",), pid=pid, epoch=0, sequence=1) == (0, 1)
    done.append("plain")
    p.send("t", 0, b"a")
    p.send("t", 1, b"b")
    p.send_offset("g", "t", 2)
    assert p.end(True) == 0
    done.append("committed")
    p.send("t", 1, b"x")
    p.send_offset("g", "t", 9)
    assert p.end(False) == 0
    done.append("aborted")


@pytest.mark.parametrize("way", ["kill", "lose_power"])
def test_f9_killed_between_any_two_steps_a_transaction_is_whole_and_what_was_acknowledged_is_there(way: str) -> None:
    """F9: the process, or the machine, goes down before each change to the disk in turn: appends, fsyncs, renames.

    acks=all is durable against a kill always, and against a loss of power where the topic says flush.messages=1; a commit is durable against
    both once it is answered.
    """
    outcomes = set()
    for steps in itertools.count():
        b, p, pid = prepared()
        done: list[str] = []
        b.disk.crash_in(steps)
        try:
            run(b, p, pid, done)
        except Crash:
            getattr(b, way)()
        else:
            break
        again = Producer(b, "txn")
        where = f"{way} at step {steps}, after {done}"
        plain = b.read("plain")
        assert plain in ([b"0"], [b"0", b"1"]) and (plain[-1] == b"1" or "plain" not in done), where
        assert b.produce("plain", (b"1",), pid=pid, epoch=0, sequence=1) == (0, 1), where
        seen = (b.read("t", 0, committed=True), b.read("t", 1, committed=True), b.group_offset("g", "t"))
        whole = ([b"first", b"a"], [b"b"], (0, 2))
        assert seen in (whole, ([b"first"], [], (0, 1))), where
        assert seen == whole or "committed" not in done, where
        for index in (0, 1):
            assert b.end_offset("t", index) == b.end_offset("t", index, committed=True), where
        again.send("t", 0, b"next")
        assert again.end(True) == 0
        assert b.read("t", 0, committed=True)[-1] == b"next"
        outcomes.add((len(done), seen == whole))
    assert steps > 10
    assert {(0, False), (1, False), (1, True), (2, True)} <= outcomes, "killed before, within and after"
