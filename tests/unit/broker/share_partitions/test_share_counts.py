"""Counts in the metrics of share groups: acknowledgements by type, deliveries, locks, sessions."""

from __future__ import annotations

from helpers.disk_broker import DiskBroker
from helpers.share_member import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    SHARED,
    ShareMember,
    begin_group,
    configure,
)

from barnabas.broker.share_partitions.share_counts import ShareCounts
from barnabas.metrics.rim.share_rows import TYPES
from barnabas.protocol.errors import Code

LOCK_MS = 30_000


def queue() -> tuple[DiskBroker, ShareMember]:
    """A broker with ten records in a topic, and a member of a share group that has begun."""
    b = DiskBroker(**SHARED)
    b.topic("t")
    for at in range(10):
        b.produce("t", (b"%d" % at,))
    begin_group(b, "g", "t")
    return b, ShareMember(b, "g", "m")


def counts(b: DiskBroker) -> ShareCounts:
    counted: ShareCounts = b.broker.shares.get().counts
    return counted


def by_type(b: DiskBroker) -> dict[str, int]:
    found = counts(b).acknowledged
    return {name: found[number] for number, name in enumerate(TYPES) if found[number]}


def test_records_are_counted_by_the_type_of_their_acknowledgement() -> None:
    b, m = queue()
    m.take("t")
    assert counts(b).acquired == 10
    assert m.acknowledge("t", (0, 3, ACCEPT), (4, 6, [REJECT, RELEASE, ACCEPT])) == Code.NONE
    m.send_acknowledge("t", (7, 7, RENEW), is_renewal=True)
    assert m.acknowledged() == Code.NONE
    assert by_type(b) == {"accept": 5, "reject": 1, "release": 1, "renew": 1}


def test_refused_acknowledgements_are_not_counted() -> None:
    b, m = queue()
    m.take("t", max_records=5, mode=1)
    assert m.acknowledge("t", (0, 9, ACCEPT)) != Code.NONE
    assert by_type(b) == {}


def test_expired_locks_and_records_at_the_delivery_limit_are_counted() -> None:
    b, m = queue()
    configure(b, "g", share_delivery_count_limit="2")
    m.take("t")
    b.tick(LOCK_MS)
    assert (counts(b).lock_timeouts, counts(b).given_up) == (10, 0)
    m.take("t")
    assert counts(b).acquired == 20
    assert m.acknowledge("t", (0, 2, RELEASE)) == Code.NONE
    assert counts(b).given_up == 3
    b.tick(LOCK_MS)
    assert (counts(b).lock_timeouts, counts(b).given_up) == (17, 10)


def test_sessions_that_end_with_their_connection_are_counted() -> None:
    b, m = queue()
    m.take("t")
    m.fetch(session=-1)
    assert counts(b).evictions == 0
    other = ShareMember(b, "g", "other")
    other.take("t")
    other.hang_up()
    assert counts(b).evictions == 1


def test_records_in_flight_are_counted_for_a_partition() -> None:
    b, m = queue()
    shares = b.broker.shares.get()
    m.take("t", max_records=6, mode=1)
    assert m.acknowledge("t", (0, 1, ACCEPT)) == Code.NONE
    assert shares.in_flight("g", "t", 0) == (4, 1)
    assert shares.in_flight("g", "nothing", 0) == shares.in_flight("g", "t", 1) == (0, 0)


def test_writes_of_states_are_counted_with_the_time_until_they_are_durable() -> None:
    b, m = queue()
    m.take("t")
    writes = b.broker.shares.get().runtime.writes
    before = writes.writes
    b.hold_flushes()
    m.send_acknowledge("t", (0, 9, ACCEPT))
    b.now_ms += 7
    assert (writes.writes, writes.total_ms) == (before, 0)
    b.flush()
    assert m.acknowledged() == Code.NONE
    assert (writes.writes, writes.total_ms) == (before + 1, 7)


def test_the_time_to_load_share_states_is_measured_at_the_start() -> None:
    b, m = queue()
    m.take("t")
    assert m.acknowledge("t", (0, 9, ACCEPT)) == Code.NONE
    assert b.broker.shares.get().runtime.writes.load_ns == 0, "without a clock"
    b.clock_ns = iter((1_000, 251_000)).__next__
    b.kill()
    assert b.broker.shares.get().runtime.writes.load_ns == 250_000
