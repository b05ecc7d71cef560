"""Share groups of compacted topics: records that compaction removed are archived and skipped, as in
Apache Kafka. A member is never given an offset at which the log has no batch.
"""

from __future__ import annotations

import pytest
from helpers.disk_broker import DiskBroker
from helpers.share_member import (
    ACCEPT,
    RELEASE,
    SHARED,
    ShareMember,
    acquired,
    begin_group,
    values,
)

from barnabas.coordinator.share_states.share_records import SharePartitionKey

LOCK_MS = 30_000
COMPACTED = {
    "cleanup_policy": "compact",
    "segment_bytes": "2000",
    "min_cleanable_dirty_ratio": "0.01",
}


def compacted_topic() -> DiskBroker:
    """A broker with a compacted topic and a group that begins at the topic's start."""
    b = DiskBroker(log_cleaner_backoff_ms="1", **SHARED)
    b.topic("kv", **COMPACTED)
    begin_group(b, "g", "kv")
    return b


def roll(b: DiskBroker) -> None:
    """Close the active segment, so that its records are compacted."""
    b.put("kv", b"fill", b"x" * 1900)
    b.put("kv", b"last", b"x")


def accept_all(member: ShareMember) -> None:
    """Accept records until there are none for the member."""
    while taken := member.take("kv"):
        for first, last, _ in taken:
            assert member.acknowledge("kv", (first, last, ACCEPT)) == 0


def in_flight(b: DiskBroker) -> tuple[int, int]:
    """The start offset of the share partition, and the number of its records in flight."""
    topic = b.broker.metadata.topic("kv")
    assert topic is not None and b.broker.shares.made is not None
    loaded = b.broker.shares.made.partitions.get(SharePartitionKey("g", topic.topic_id.bytes, 0))
    assert loaded is not None
    return loaded.value.start_offset, loaded.value.in_flight_count


def test_records_that_were_compacted_while_a_dead_member_held_them_are_skipped() -> None:
    b = compacted_topic()
    for key in (b"k0", b"k1", b"k2"):
        b.put("kv", key, b"v")
    dead, alive = ShareMember(b, "g", "dead"), ShareMember(b, "g", "alive")
    assert dead.take("kv") == [(0, 2, 1)]
    assert dead.acknowledge("kv", (1, 1, ACCEPT)) == 0
    for key in (b"k0", b"k2"):
        b.put("kv", key, b"new")
    roll(b)
    accept_all(alive)
    b.compact()
    alive.send_fetch(("kv", 0), max_wait_ms=5000)
    dead.hang_up()
    b.tick()
    assert alive.answer() is None, "there are no records: offsets 0 and 2 were removed"
    b.put("kv", b"k3", b"v")
    assert acquired(alive.answer()) == [(7, 7, 1)]
    assert in_flight(b) == (7, 1)


@pytest.mark.parametrize("mode", [0, 1])
@pytest.mark.parametrize("max_records", [1, 2, 500])
def test_every_record_that_is_left_is_delivered_whatever_was_removed_around_it(
    mode: int, max_records: int
) -> None:
    """The records were delivered before, so that some are in flight, and others are new."""
    b = compacted_topic()
    one = ShareMember(b, "g", "one")
    for number, key in enumerate((0, 1, 2, 1, 4, 2, 6, 7, 6)):
        b.put("kv", b"k%d" % key, b"%d" % number)
    assert one.take("kv", max_records=6, mode=1) == [(0, 5, 1)]
    assert one.acknowledge("kv", (0, 5, RELEASE)) == 0
    roll(b)
    b.compact()
    left = dict(rows(b))
    assert list(left) == [0, 3, 4, 5, 7, 8, 9, 10], "1, 2 and 6 were removed"
    seen = dict[int, bytes]()
    for _ in range(60):
        got = one.take("kv", max_records=max_records, mode=mode)
        if not got:
            break
        offsets = [at for first, last, _ in got for at in range(first, last + 1)]
        assert set(offsets) <= set(left), f"{offsets}: the log has no batch at some of these"
        seen |= dict(zip(offsets, values(one.last), strict=True))
        for first, last, _ in got:
            assert one.acknowledge("kv", (first, last, ACCEPT)) == 0
    assert seen == left
    assert in_flight(b)[1] == 0


def rows(b: DiskBroker) -> list[tuple[int, bytes]]:
    """The offset and value of each record in the log."""
    found: list[tuple[int, bytes]] = []
    offset = 0
    while offset < b.end_offset("kv"):
        fetched = b.fetch("kv", offset)
        found += fetched.rows()
        offset = fetched.next_offset(offset)
    return found


def test_a_member_keeps_records_that_are_compacted_while_it_holds_them() -> None:
    b = compacted_topic()
    for key in (b"k0", b"k1", b"k2"):
        b.put("kv", key, b"v")
    one, other = ShareMember(b, "g", "one"), ShareMember(b, "g", "other")
    assert one.take("kv") == [(0, 2, 1)]
    for key in (b"k0", b"k1", b"k2"):
        b.put("kv", key, b"new")
    roll(b)
    b.compact()
    accept_all(other)
    assert one.acknowledge("kv", (0, 2, ACCEPT)) == 0


def test_a_group_continues_after_more_removed_records_than_a_member_may_fetch() -> None:
    b = compacted_topic()
    for number in range(40):
        b.put("kv", b"k", b"%d" % number)
    roll(b)
    b.compact()
    one = ShareMember(b, "g", "one")
    got: list[bytes] = []
    for _ in range(50):
        taken = one.take("kv", max_records=1, mode=1)
        if not taken:
            break
        got += values(one.last)
        for first, last, _ in taken:
            assert one.acknowledge("kv", (first, last, ACCEPT)) == 0
    assert got == [value for _, value in rows(b)]


def test_an_expired_lock_of_removed_records_leaves_nothing_to_deliver() -> None:
    b = compacted_topic()
    for key in (b"k0", b"k1"):
        b.put("kv", key, b"v")
    one, other = ShareMember(b, "g", "one"), ShareMember(b, "g", "other")
    assert one.take("kv") == [(0, 1, 1)]
    for key in (b"k0", b"k1"):
        b.put("kv", key, b"new")
    roll(b)
    accept_all(other)
    b.compact()
    other.send_fetch(("kv", 0), max_wait_ms=2 * LOCK_MS)
    b.tick(LOCK_MS + 1)
    b.tick()
    assert other.answer() is None
    assert in_flight(b) == (6, 0)
