"""Rules that other brokers broke: damaged files next to a log, and a kill at any moment."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from helpers.disk_broker import DiskBroker, Producer
from sim.disk import Crash

from barnabas.protocol.errors import Code

SMALL = {"segment_bytes": "400"}
CLEAN = "/data/.kafka_cleanshutdown"


class _Filled:
    """A log of several segments with aborted, committed and open transactions. Its files are those
    that a kill leaves long after the last flush.

    saved: the files. expected: the result of a start with undamaged files.
    """

    def __init__(self) -> None:
        b = self.b = DiskBroker(
            transaction_state_log_num_partitions="1", offsets_topic_num_partitions="1"
        )
        b.topic("t", **SMALL)
        self.idempotent = b.init(None)[1]
        for number in range(4):
            assert b.produce(
                "t", (b"i%d" % number,), pid=self.idempotent, epoch=0, sequence=number
            ) == (0, number)
        done, still_open = Producer(b, "done"), Producer(b, "open")
        for number in range(7):
            done.send("t", 0, b"%d" % number + b"." * 60)
            assert done.end(number % 3 == 0) == 0
            if number == 5:
                still_open.send("t", 0, b"open")
        b.stop()
        b.disk.kill()
        self.saved = b.saved()
        self.expected = self._look()
        values, aborted, stable, end, repeated = self.expected
        assert values == (b"i0", b"i1", b"i2", b"i3", b"0" + b"." * 60, b"3" + b"." * 60)
        assert (aborted, stable, end, repeated) == (4, 16, Code.NOT_ENOUGH_REPLICAS, (0, 3))
        self.saved.pop(CLEAN, None)

    def _look(self) -> tuple[Any, ...]:
        """Return the values that no damage may change: the committed records, the number of aborted
        transactions, the end offsets, and the response to a retried batch.
        """
        b = self.b
        fetched = b.fetch("t", committed=True)
        values, aborted, offset = [], set(), 0
        while offset < fetched.last_stable_offset:
            one = b.fetch("t", offset, committed=True)
            values += [value for _, value in one.rows()]
            aborted.update(one.aborted or [])
            offset = one.next_offset(offset)
        repeated = b.produce("t", (b"i3",), pid=self.idempotent, epoch=0, sequence=3)
        return (
            tuple(values),
            len(aborted),
            fetched.last_stable_offset,
            fetched.high_watermark,
            repeated,
        )

    def found_with(self, path: str, data: bytes | None) -> tuple[Any, ...]:
        """The values after an unclean stop and a start in which one file has this data, or is
        missing (None).
        """
        files = {**self.saved, path: data}
        self.b.load({name: content for name, content in files.items() if content is not None})
        self.b.open()
        return self._look()

    def files(self, suffix: str) -> list[tuple[str, bytes]]:
        return [
            (path, data)
            for path, data in self.saved.items()
            if path.startswith("/data/t-0/") and path.endswith(suffix)
        ]


@pytest.fixture(scope="module")
def filled() -> _Filled:
    return _Filled()


@pytest.mark.parametrize("suffix", [".txnindex", ".snapshot", ".index", ".timeindex"])
def test_what_stands_beside_the_log_is_rebuilt_when_it_is_missing(
    filled: _Filled, suffix: str
) -> None:
    """The index and snapshot files of a log are rebuilt if one of them is missing.

    Each file is removed by itself.

    Source: Kafka: LogLoader.
    """
    paths = filled.files(suffix)
    assert len(paths) >= 2
    for path, _ in paths:
        assert filled.found_with(path, None) == filled.expected, path


@pytest.mark.parametrize("suffix", [".txnindex", ".snapshot"])
def test_what_stands_beside_the_log_is_rebuilt_when_it_was_cut_at_any_byte(
    filled: _Filled, suffix: str
) -> None:
    """The index and snapshot files of a log are rebuilt if one of them was truncated at any byte.

    The last file of each kind, which a start needs, is truncated at every byte. The other files are
    truncated at every eleventh byte.

    Source: Kafka: LogLoader.
    """
    *others, last = [row for row in filled.files(suffix) if row[1]]
    assert others
    for path, data in others:
        for size in range(0, len(data), 11):
            assert filled.found_with(path, data[:size]) == filled.expected, f"{path} cut at {size}"
    path, data = last
    assert len(data) > 30
    for size in range(len(data)):
        assert filled.found_with(path, data[:size]) == filled.expected, f"{path} cut at {size}"


@pytest.mark.parametrize("suffix", [".txnindex", ".snapshot"])
def test_what_stands_beside_the_log_is_rebuilt_when_a_byte_of_it_is_wrong(
    filled: _Filled, suffix: str
) -> None:
    # contract: kip-98/damage
    """The index and snapshot files of a log are rebuilt if a byte of one of them is wrong.

    Some bytes of each file are changed, one at a time.

    Source: Kafka: LogLoader.
    """
    for path, data in filled.files(suffix):
        for at in range(0, len(data), 7):
            wrong = bytearray(data)
            wrong[at] ^= 0xFF
            assert filled.found_with(path, bytes(wrong)) == filled.expected, f"{path}, byte {at}"


# --- a kill at any moment -----------------------------------------------------------------------


def prepared() -> tuple[DiskBroker, Producer, int]:
    """Return a broker with one committed transaction, which has created all files; the producer of
    the transaction; and the id of an idempotent producer.
    """
    b = DiskBroker()
    b.topic("t", 2)
    b.topic("plain", flush_messages="1")
    p = Producer(b, "txn")
    p.send("t", 0, b"first")
    p.send_offset("g", "t", 1)
    assert p.end(True) == 0
    pid = b.init(None)[1]
    assert b.produce("plain", (b"0",), pid=pid, epoch=0, sequence=0) == (0, 0)
    return b, p, pid


def run(b: DiskBroker, p: Producer, pid: int, done: list[str]) -> None:
    """Commit a transaction that covers two partitions and a group's offset, abort a second one, and
    write a durable record. Each acknowledged step is added to `done`.
    """
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
def test_killed_between_any_two_steps_a_transaction_is_whole_and_what_was_acknowledged_is_there(
    way: str,
) -> None:
    """After a kill between any two steps, transactions are whole and acknowledged data is kept.

    The process or the machine fails before one change to the disk (an append, fsync or rename),
    each time one change later. With acks=all, a record always survives a kill. It also survives a
    power loss if the topic has flush.messages=1. A commit survives both once its response is sent.

    Source: Jepsen: Redpanda 21.10.1, Jepsen: Bufstream 0.1.0.
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
        seen = (
            b.read("t", 0, committed=True),
            b.read("t", 1, committed=True),
            b.group_offset("g", "t"),
        )
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
    assert {(0, False), (1, False), (1, True), (2, True)} <= outcomes, (
        "killed before, within and after"
    )
