"""Rules that other brokers broke: the last stable offset, aborted transactions, and waiting
fetches.
"""

from __future__ import annotations

import itertools

import pytest
from helpers.disk_broker import DiskBroker, Producer

from barnabas.protocol.errors import Code

SMALL = {"segment_bytes": "400"}


@pytest.fixture
def b(request: pytest.FixtureRequest) -> DiskBroker:
    broker = DiskBroker(barnabas_flush_journal_logs=getattr(request, "param", "2"))
    broker.topic("t", 2)
    return broker


STEP_BY_STEP = pytest.mark.parametrize(
    "b", ["0"], indirect=True
)  # without the flush journal, a commit waits for each flush


# --- fetches that wait --------------------------------------------------------------------------


def test_a_waiting_fetch_reads_again_with_its_isolation_level_and_the_aborted_list(
    b: DiskBroker,
) -> None:
    """A fetch that has waited reads again, with its isolation level and the aborted transactions.

    When the fetch began to wait, the log had no records and no aborted transactions. The response
    has both.

    Source: KAFKA-5355, KAFKA-5376.
    """
    p = Producer(b, "txn")
    committed, everything = b.connect(), b.connect()
    b.send_fetch(committed, "t", 0, committed=True, max_wait_ms=10_000)
    b.send_fetch(everything, "t", 0, max_wait_ms=10_000)
    assert b.fetched(committed) is None and b.fetched(everything) is None
    p.send("t", 0, b"x1")
    found = b.fetched(everything)
    assert found is not None and found.rows() == [(0, b"x1")] and found.aborted is None
    assert b.fetched(committed) is None
    p.send("t", 0, b"x2")
    assert b.produce("t", (b"plain",))[0] == 0
    assert b.fetched(committed) is None, "nothing is stable yet"
    assert p.end(False) == 0
    found = b.fetched(committed)
    assert found is not None and found.aborted == [(p.pid, 0)]
    assert found.rows() == [(2, b"plain")]
    assert (found.last_stable_offset, found.high_watermark) == (4, 4)


def test_a_fetch_that_waits_for_more_bytes_lists_transactions_aborted_during_the_wait(
    b: DiskBroker,
) -> None:
    """A fetch that waits for more bytes lists transactions that are aborted in the meantime.

    One aborted transaction existed when the fetch began to wait. The data of a second transaction
    reaches the minimum size, so this transaction must be listed as well.

    Source: KAFKA-5355, KAFKA-5376.
    """
    one, two = Producer(b, "one"), Producer(b, "two")
    one.send("t", 0, b"x1")
    assert one.end(False) == 0
    size = len(b.fetch("t", committed=True).data)
    waiting = b.connect()
    b.send_fetch(waiting, "t", 0, committed=True, max_wait_ms=10_000, min_bytes=size + 1)
    assert b.fetched(waiting) is None
    two.send("t", 0, b"x2")
    assert b.fetched(waiting) is None
    assert two.end(False) == 0
    found = b.fetched(waiting)
    assert found is not None and sorted(found.aborted or []) == [(one.pid, 0), (two.pid, 2)]
    assert found.rows() == []


def test_a_fetch_at_its_deadline_returns_no_data_of_open_transactions(b: DiskBroker) -> None:
    """A fetch that reaches its deadline returns no data of open transactions.

    Source: KAFKA-5355, KAFKA-5376.
    """
    p = Producer(b, "txn")
    waiting = b.connect()
    b.send_fetch(waiting, "t", 0, committed=True, max_wait_ms=500)
    p.send("t", 0, b"x")
    b.tick(499)
    assert b.fetched(waiting) is None
    b.tick(1)
    found = b.fetched(waiting)
    assert found is not None and (found.data, found.aborted) == (b"", [])
    assert (found.last_stable_offset, found.high_watermark) == (0, 1)


@STEP_BY_STEP
def test_a_fetch_that_waits_while_markers_wait_for_the_disk_is_answered_with_the_commit(
    b: DiskBroker,
) -> None:
    """A fetch that waits while markers wait for the disk is completed with the commit.

    The response to the fetch is sent after the decision is durable, and not later than the response
    to EndTxn.

    Source: KAFKA-5355, KAFKA-5376.
    """
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    waiting = b.connect()
    b.send_fetch(waiting, "t", 0, committed=True, max_wait_ms=10_000)
    b.hold_flushes()
    p.start_end(True)
    assert b.flush_one() and b.state("txn")[0] == "PrepareCommit"
    assert b.fetched(waiting) is None
    assert b.flush_one() and p.ended() == 0
    found = b.fetched(waiting)
    assert found is not None and found.rows() == [(0, b"a")] and found.aborted == []


# --- sizes and segments -------------------------------------------------------------------------


def aborted_run(b: DiskBroker, transactions: int, batches: int) -> list[bytes]:
    """Write many aborted batches, with one committed record before them and one after them. Gives
    the committed records.
    """
    p = Producer(b, "txn")
    p.send("t", 0, b"first")
    assert p.end(True) == 0
    for _ in range(transactions):
        for _ in range(batches):
            p.send("t", 0, b"x" * 50)
        assert p.end(False) == 0
    p.send("t", 0, b"last")
    assert p.end(True) == 0
    return [b"first", b"last"]


@pytest.mark.parametrize("max_bytes", [1, 100, 150, 333, 1000, 1 << 20])
def test_a_reader_gets_through_a_long_run_of_aborted_data_with_any_buffer(
    max_bytes: int,
) -> None:
    """A reader can pass a long run of aborted data with a buffer of any size.

    No response is larger than the request allows, except for one whole batch, and each response
    moves the reader forward.

    Source: librdkafka#2993.
    """
    b = DiskBroker()
    b.topic("t", **SMALL)
    expected = aborted_run(b, 5, 8)
    assert [value for _, value in b.rows("t", committed=True, max_bytes=max_bytes)] == expected
    offset = 0
    while offset < b.end_offset("t"):
        one = b.fetch("t", offset, committed=True, max_bytes=max_bytes)
        assert len(one.data) <= max(max_bytes, 200)
        assert len(one.data) <= max_bytes or one.next_offset(offset) == b.fetch(
            "t", offset, committed=True, max_bytes=1
        ).next_offset(offset)
        offset = one.next_offset(offset)


@pytest.mark.parametrize("restart", ["", "kill", "stop"])
def test_data_and_aborted_list_agree_wherever_a_fetch_begins_and_ends(restart: str) -> None:
    # contract: kip-98/aborted-index
    """The data of a fetch agrees with its list of aborted transactions, no matter where it begins
    and ends.

    The transactions begin in one segment and end in another. The test fetches from every offset
    with every size, in old segments and in the active one.

    Source: redpanda#7819.
    """
    b = DiskBroker()
    b.topic("t", **SMALL)
    producers = [Producer(b, name) for name in ("one", "two", "three")]
    expected: dict[int, bytes] = {}
    ends = itertools.cycle((False, True, False, False, True))
    for number in range(15):
        commit = next(ends)
        first = producers[number % 3]
        second = producers[(number + 1) % 3]
        written = []
        for part in range(3):
            value = b"%d-%d" % (number, part) + b"." * 40
            written.append((b.end_offset("t"), value))
            first.send("t", 0, value)
            if part == 1:
                second.send("t", 0, b"x")
        assert second.end(False) == 0
        assert first.end(commit) == 0
        expected.update(written if commit else [])
    if restart:
        getattr(b, restart)()
    assert (
        len([path for path, _ in b.disk.files() if "/t-0/" in path and path.endswith(".log")]) > 5
    )
    end = b.end_offset("t")
    for max_bytes in (1, 300, 900, 1 << 20):
        for offset in range(end):
            one = b.fetch("t", offset, committed=True, max_bytes=max_bytes)
            upper = one.next_offset(offset)
            seen = dict(row for row in one.rows() if row[0] >= offset)
            assert seen == {at: value for at, value in expected.items() if offset <= at < upper}


@pytest.mark.parametrize("restart", ["kill", "stop"])
def test_the_first_fetch_after_a_start_returns_no_more_than_the_last_one_before(
    restart: str,
) -> None:
    """The first fetch after a start returns no more than the last one before it.

    Open transactions and pending offsets are loaded before the first response.

    Source: redpanda#7143.
    """
    b = DiskBroker()
    b.topic("t", **SMALL)
    done, p = Producer(b, "done"), Producer(b, "txn")
    done.send("t", 0, b"a")
    assert done.end(True) == 0
    p.send("t", 0, b"x1")
    p.send_offset("g", "t", 7)
    for number in range(12):
        done.send("t", 0, b"%d" % number + b"." * 60)
        assert done.end(number % 2 == 0) == 0
    before = b.fetch("t", committed=True)
    assert before.last_stable_offset == 2
    getattr(b, restart)()
    assert b.fetch("t", committed=True) == before
    assert b.end_offset("t", committed=True) == 2
    assert b.group_offset("g", "t") == (Code.UNSTABLE_OFFSET_COMMIT, -1)
    p.reconnect()
    assert p.end(True) == 0
    assert b.read("t", committed=True)[:2] == [b"a", b"x1"]
    assert b.group_offset("g", "t") == (0, 7)


def test_a_start_after_a_power_loss_aborts_transactions_that_no_client_can_end() -> None:
    """After a power loss, a start ends transactions that no client can end, before its first
    response.

    The data of the transaction is durable, but the coordinator's record is not. The start aborts
    the transaction, and the last stable offset advances.

    Source: redpanda#7143.
    """
    b = DiskBroker()
    b.topic("t")
    p = Producer(b, "txn")
    p.send("t", 0, b"x")
    b.sync("/t-0/")
    b.lose_power()
    assert b.markers("t") == [(p.pid, p.epoch, False)]
    assert b.fetch("t", committed=True).rows() == []
    assert b.end_offset("t", committed=True) == b.end_offset("t") == 2


# --- reads of a transaction's own data ---------------------------------------------------------


def test_a_transaction_does_not_read_its_own_records_before_their_commit(
    b: DiskBroker,
) -> None:
    """A transaction does not read its own records before their commit, not even over its own
    connection or with a waiting fetch.

    Source: Jepsen: precommitted-read.
    """
    p = Producer(b, "txn")
    p.send("t", 0, b"a")
    assert b.fetch("t", 0, p.connection, committed=True).data == b""
    assert b.fetch("t", 0, p.connection).rows() == [(0, b"a")]
    b.send_fetch(p.connection, "t", 0, committed=True, max_wait_ms=100)
    p.reconnect()
    p.send("t", 0, b"b")
    b.tick(100)
    assert b.fetched(1) is not None and b.fetched(1).data == b""  # type: ignore[union-attr]
    assert b.end_offset("t", committed=True) == 0
    assert p.end(True) == 0
    assert b.fetch("t", 0, p.connection, committed=True).rows() == [(0, b"a"), (1, b"b")]


# --- positions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", ["kill", "stop", "lose_power"])
def test_an_acknowledged_offset_is_unique_and_final(restart: str) -> None:
    """An acknowledged offset is unique and final.

    The test has several producers, retries, refused requests and restarts. Each acknowledged record
    is at its acknowledged offset and at no other.

    Source: Jepsen: Redpanda 21.10.1, Jepsen: Bufstream 0.1.0.
    """
    b = DiskBroker()
    b.topic("t", flush_messages="1", **SMALL)
    promised: dict[int, bytes] = {}
    idempotent = [b.init(None)[1] for _ in range(3)]
    for number in range(20):
        if number % 5 == 4:
            getattr(b, restart)()
        for index, pid in enumerate(idempotent):
            value = b"%d/%d" % (index, number)
            code, offset = b.produce("t", (value,), pid=pid, epoch=0, sequence=number)
            assert code == Code.NONE and offset not in promised
            assert (offset == 0) == (number == index == 0), (
                "no offset 0 for a record that is not the first"
            )
            promised[offset] = value
            assert b.produce("t", (value,), pid=pid, epoch=0, sequence=number) == (0, offset)
            assert b.produce("t", (b"gap",), pid=pid, epoch=0, sequence=number + 5) == (
                Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
                -1,
            ), "no offset for what is refused"
        code, offset = b.produce("t", (b"plain %d" % number,))
        assert code == Code.NONE and offset not in promised
        promised[offset] = b"plain %d" % number
    assert dict(b.rows("t")) == promised
    assert sorted(promised) == list(range(80)) and b.end_offset("t") == 80


def test_a_missing_offset_is_minus_one(b: DiskBroker) -> None:
    """A missing offset is -1, not 0.

    The response for a group without commits, an unknown topic or a refused batch has -1, a value
    that no client takes for a position.

    Source: Jepsen: Redpanda 21.10.1, Jepsen: Bufstream 0.1.0.
    """
    assert b.produce("nowhere", (b"x",)) == (Code.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert b.produce("t", (b"x",), pid=4711, epoch=0, sequence=0, txn="unknown")[1] == -1
    assert b.group_offset("unknown", "t") == (0, -1)
    p = Producer(b, "txn")
    p.send_offset("g", "t", 3)
    assert b.group_offset("g", "t") == (Code.UNSTABLE_OFFSET_COMMIT, -1)
    assert b.group_offset("g", "t", stable=False) == (0, -1)
    assert p.end(False) == 0
    assert b.group_offset("g", "t") == (0, -1)


def test_a_reader_that_waits_at_the_end_gets_every_record_that_is_acknowledged(
    b: DiskBroker,
) -> None:
    """A reader that waits at the end of the log gets every acknowledged record.

    No fetch hangs, and no record is skipped: each waiting fetch returns the next record.

    Source: Jepsen: Redpanda 21.10.1, Jepsen: Bufstream 0.1.0.
    """
    reader, offset = b.connect(), 0
    p = Producer(b, "txn")
    for number in range(10):
        b.send_fetch(reader, "t", offset, committed=True, max_wait_ms=60_000)
        assert b.fetched(reader) is None
        p.send("t", 0, b"%d" % number)
        assert p.end(True) == 0
        found = b.fetched(reader)
        assert found is not None and found.rows() == [(offset, b"%d" % number)]
        offset = b.end_offset("t", committed=True)
