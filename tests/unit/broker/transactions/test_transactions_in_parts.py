"""Transactions with many partitions: their markers are written in parts, and any other request may
be processed between two parts.
"""

from __future__ import annotations

import pytest
from helpers.disk_broker import (
    DiskBroker,
    Producer,
    code_of_adding,
    creation_of,
    init_request,
)
from helpers.repeating import repeat_until

from barnabas.broker.transactions import transaction_end
from barnabas.broker.transactions.transaction_end import TransactionEnds
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest

PARTITIONS = 3
COLUMNS = [
    (True, {}),
    (True, {"barnabas_flush_journal_logs": "0"}),
    (True, {"barnabas_transaction_durability": "os"}),
    (False, {}),
]


def in_parts(**settings: str) -> tuple[DiskBroker, Producer]:
    """A broker that writes one marker per step, and a producer with an open transaction on three
    partitions.
    """
    b = DiskBroker(**settings)
    b.topic("t", PARTITIONS)
    b.parts.transaction_ends.markers_at_once = 1
    p = Producer(b, "txn")
    for partition in range(PARTITIONS):
        p.send("t", partition, b"a")
    return b, p


def marked(b: DiskBroker) -> list[int]:
    """The number of markers in each partition."""
    return [len(b.markers("t", partition)) for partition in range(PARTITIONS)]


def read_all(b: DiskBroker) -> list[list[bytes]]:
    return [b.read("t", partition, committed=True) for partition in range(PARTITIONS)]


@pytest.mark.parametrize(("commit", "settings"), COLUMNS)
def test_many_markers_are_written_in_parts_with_other_requests_between(
    commit: bool, settings: dict[str, str]
) -> None:
    b, p = in_parts(**settings)
    p.start_end(commit)
    seen = [marked(b)]
    while p.ended() is None:
        assert b.broker.next_deadline_ms() == 0
        assert b.state("txn")[0] == ("PrepareCommit" if commit else "PrepareAbort")
        assert b.produce("t", (b"of another",), partition=PARTITIONS - 1)[0] == 0
        b.tick()
        seen.append(marked(b))
    assert seen == [[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert p.ended() == 0 and b.parts.transaction_ends.is_idle
    assert b.state("txn")[0] == ("CompleteCommit" if commit else "CompleteAbort")
    others = [b"of another"] * PARTITIONS
    own = [b"a"] if commit else []
    assert read_all(b) == [own, own, own + others]


@pytest.mark.parametrize("end", ["kill", "lose_power", "stop"])
@pytest.mark.parametrize("parts", range(PARTITIONS))
@pytest.mark.parametrize(("commit", "settings"), COLUMNS)
def test_a_start_writes_the_remaining_markers(
    commit: bool, settings: dict[str, str], parts: int, end: str
) -> None:
    b, p = in_parts(**settings)
    p.start_end(commit)
    for _ in range(parts):
        b.tick()
    assert sum(marked(b)) == parts and p.ended() is None
    getattr(b, end)()
    if "barnabas_transaction_durability" in settings and end == "lose_power":
        assert read_all(b) == [[]] * PARTITIONS, (
            "nothing was flushed, so the power loss removed everything"
        )
        return
    assert read_all(b) == [[b"a"] if commit else []] * PARTITIONS
    for partition in range(PARTITIONS):
        assert b.end_offset("t", partition) == b.end_offset("t", partition, committed=True)


MOST_ROUNDS = 1000


@pytest.mark.parametrize("settings", [settings for _, settings in COLUMNS[:2]])
def test_a_start_after_a_power_loss_aborts_a_large_transaction_in_parts(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No tick comes before the start has ended, so the start itself has to append each part."""
    b, _ = in_parts(**settings)
    b.disk.sync_all()
    monkeypatch.setattr(transaction_end, "MARKERS_AT_ONCE", 1)
    rounds = iter(range(MOST_ROUNDS))
    is_idle = TransactionEnds.is_idle.fget

    def counted(ends: TransactionEnds) -> bool:
        assert next(rounds, None) is not None, "the start waits for ever"
        assert is_idle is not None
        return bool(is_idle(ends))

    monkeypatch.setattr(TransactionEnds, "is_idle", property(counted))
    b.lose_power()
    assert marked(b) == [1] * PARTITIONS
    assert next(rounds) > PARTITIONS, "each part was a round of its own"
    assert read_all(b) == [[]] * PARTITIONS


@pytest.mark.parametrize(("commit", "settings"), COLUMNS)
def test_requests_of_the_transactional_id_wait_for_the_last_marker(
    commit: bool, settings: dict[str, str]
) -> None:
    """While markers are written in parts, requests of the transactional id wait. A batch is
    accepted on a partition that has no marker yet, and refused where the marker is written.
    """
    b, p = in_parts(**settings)
    p.start_end(commit)
    b.tick()
    adding, beginning = b.connect(), b.connect()
    b.send(adding, p.add_request({"t": (0,)}), 3)
    b.send(beginning, init_request("txn"), 4)
    other = b.connect()
    assert p.produce("t", 2, b"late", connection=other) == 0, (
        "the partition has no marker yet, so it accepts the batch, as in Kafka"
    )
    late = p.produce("t", 0, b"too late", sequence=1, connection=other)
    assert late == Code.NOT_ENOUGH_REPLICAS, (
        "the error is one after which clients send the batch again"
    )
    b.tick()
    assert b.answer(adding) is b.answer(beginning) is None
    b.tick()
    assert p.ended() == 0 and code_of_adding(b.answer(adding)) == 0
    while b.answer(beginning) is None:
        assert b.parts.transaction_ends.in_parts, (
            "the transaction that the AddPartitionsToTxn began is aborted"
        )
        b.tick()
    assert b.answer(beginning).error_code in (Code.NONE, Code.CONCURRENT_TRANSACTIONS)


@pytest.mark.parametrize(("commit", "settings"), COLUMNS)
@pytest.mark.parametrize("parts", range(PARTITIONS))
def test_a_topic_deleted_between_two_parts_gets_no_further_markers(
    commit: bool, settings: dict[str, str], parts: int
) -> None:
    """The deleted topic gets no further markers. A new topic with the same name can be created only
    after the Complete record is durable, so it gets no marker either.
    """
    b, p = in_parts(**settings)
    b.topic("u")
    p.send("u", 0, b"x")
    b.hold_flushes()
    p.start_end(commit)
    while not b.parts.transaction_ends.in_parts:
        assert b.flush_one()
    for _ in range(parts):
        b.tick()
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
    assert b.call(request, 3).responses[0].error_code == Code.NONE
    making = b.connect()
    b.send(making, creation_of("t", PARTITIONS, {}), 7)
    assert b.answer(making) is None and "t" not in b.broker.topics
    while b.answer(making) is None:
        assert b.broker.next_deadline_ms() == 0 or b.broker.outbox.flushes, "it waits for nothing"
        b.tick()
        b.flush_one()
    assert b.state("txn")[0].startswith("Complete") and not b.parts.transaction_ends.undurable()
    b.release_flushes()
    assert p.ended() == 0
    assert marked(b) == [0] * PARTITIONS and len(b.markers("u")) == 1
    assert p.add("t", 0) == 0 and p.produce("t", 0, b"of the next", sequence=0) == 0
    b.sync("t-0")
    b.lose_power()
    assert b.read("t", committed=True) == []
    if "barnabas_transaction_durability" not in settings:
        assert b.read("u", committed=True) == ([b"x"] if commit else [])


@pytest.mark.parametrize(("commit", "settings"), COLUMNS)
def test_a_name_is_used_again_when_all_decisions_on_it_are_carried_out(
    commit: bool, settings: dict[str, str]
) -> None:
    b, first = in_parts(**settings)
    producers = [first, Producer(b, "second"), Producer(b, "third")]
    for p in producers[1:]:
        for partition in range(PARTITIONS):
            p.send("t", partition, b"a")
    for p in producers:
        p.start_end(commit)
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
    assert b.call(request, 3).responses[0].error_code == Code.NONE
    making = b.connect()
    b.send(making, creation_of("t", PARTITIONS, {}), 7)
    while b.answer(making) is None:
        assert b.broker.next_deadline_ms() == 0, "the creation continues with each tick"
        b.tick()
    assert all(b.state(p.txn)[0].startswith("Complete") for p in producers)
    assert marked(b) == [0] * PARTITIONS


def test_a_journal_is_kept_until_the_last_part_is_written() -> None:
    """The Complete record may become durable before the markers. The journal contains the decision,
    so it must be kept until the markers are durable as well.
    """
    b, p = in_parts()
    p.start_end(True)
    b.tick(60_000)  # starts a new journal, and flushes the logs of the old one to their own files
    b.tick()
    assert p.ended() is None
    b.hold_flushes()
    b.tick()
    assert p.ended() == 0
    b.sync("__transaction_state")
    b.lose_power()
    assert read_all(b) == [[b"a"]] * PARTITIONS


@pytest.mark.parametrize("flush_messages", ["1", "1000"])
def test_the_journal_goes_when_all_parts_are_in_the_logs_own_files(flush_messages: str) -> None:
    """The journal contains the data and the decision, or the decision alone if the data were
    flushed before.
    """
    b = DiskBroker()
    b.topic("t", PARTITIONS, flush_messages=flush_messages)
    b.parts.transaction_ends.markers_at_once = 1
    p = Producer(b, "txn")
    for partition in range(PARTITIONS):
        p.send("t", partition, b"a")
    p.start_end(True)
    journals = journals_with(b, b"txn")
    assert journals
    repeat_until(lambda: p.ended() is not None, b.tick)
    for _ in range(3):
        b.tick(60_000)
    assert not journals & journals_with(b, b"txn"), "it is deleted"
    b.sync("__transaction_state")
    b.lose_power()
    assert read_all(b) == [[b"a"]] * PARTITIONS


def journals_with(b: DiskBroker, part: bytes) -> set[str]:
    """The flush journals that contain these bytes."""
    files = b.disk.files()
    return {path for path, inode in files if "barnabas-flush" in path and part in inode.data}


@pytest.mark.parametrize("settings", [{}, {"barnabas_flush_journal_logs": "0"}])
def test_many_small_transactions_of_one_flush_are_marked_in_parts(
    settings: dict[str, str],
) -> None:
    """One call writes at most `markers_at_once` markers; later calls write the others."""
    b = DiskBroker(**settings)
    b.topic("t", 5)
    b.parts.transaction_ends.markers_at_once = 3
    producers = [Producer(b, f"txn-{number}") for number in range(5)]
    for number, p in enumerate(producers):
        p.send("t", number, b"a")
    b.hold_flushes()
    for p in producers:
        p.start_end(True)
    while sum(p.ended() is not None for p in producers) == 0:
        assert b.flush_one()
    b.hold_flushes()
    counts = [len(b.markers("t", partition)) for partition in range(5)]
    assert max(counts) == 1 and 1 <= sum(counts) <= 4
    b.holds_flushes = False
    b.release_flushes()
    repeat_until(lambda: not b.parts.transaction_ends.in_parts, b.tick)
    assert [p.ended() for p in producers] == [0] * 5
    assert [b.read("t", n, committed=True) for n in range(5)] == [[b"a"]] * 5
    for number, p in enumerate(producers):
        p.send("t", number, b"b")
        assert p.end(True) == 0, "the count of what is soon marked is back at 0"
