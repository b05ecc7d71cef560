"""The first offsets of a new share group. They are looked up by timestamp, a few of them in each
event.
"""

from __future__ import annotations

import pytest
from helpers.admin_host import NOW_MS
from helpers.disk_broker import DiskBroker
from helpers.share_member import SHARED, ShareMember, acquired, begin_group, configure

from barnabas.broker.share_partitions import first_offsets
from barnabas.protocol.errors import Code
from barnabas.storage.segments import time_search

HOUR_MS = 3_600_000


def aged(partitions: int = 1) -> DiskBroker:
    """A broker with an old and a new record in each partition of a topic, and a group that starts
    with the records of the last hour.
    """
    b = DiskBroker(**SHARED)
    b.broker.wall.feed(NOW_MS, NOW_MS)
    b.topic("t", partitions, message_timestamp_type="LogAppendTime")
    for name in (b"old", b"new"):
        for index in range(partitions):
            b.produce("t", (name,), partition=index)
        b.now_ms += HOUR_MS
        b.broker.wall.feed(b.now_ms, b.now_ms)
    b.now_ms -= HOUR_MS // 2
    b.broker.wall.feed(b.now_ms, b.now_ms)
    begin_group(b, "g", "t", start=-1)
    configure(b, "g", share_auto_offset_reset="by_duration:PT1H")
    return b


def take(m: ShareMember, *places: tuple[str, int]) -> list[tuple[int, int, int]]:
    """Fetch records, after waiting until the group's first offsets are stored. Gives: the acquired
    records.
    """
    m.send_fetch(*places, max_wait_ms=1000)
    return acquired(m.answer())


def codes(answer: object) -> list[int]:
    return [
        row.error_code
        for topic in answer.responses  # type: ignore[attr-defined]
        for row in topic.partitions
    ]


def test_a_group_begins_at_the_first_record_that_is_young_enough() -> None:
    assert take(ShareMember(aged(), "g", "m"), ("t", 0)) == [(1, 1, 1)]


def test_without_a_record_since_the_start_time_the_member_tries_again() -> None:
    """No record is from the last hour, so the group gets no first offset until a new record is
    written.
    """
    b = aged()
    b.now_ms += 2 * HOUR_MS
    b.broker.wall.feed(b.now_ms, b.now_ms)
    m = ShareMember(b, "g", "m")
    assert codes(m.fetch(("t", 0))) == [Code.OFFSET_NOT_AVAILABLE]
    b.produce("t", (b"newer",))
    b.now_ms += 1
    assert take(m) == [(2, 2, 1)]


def test_many_look_ups_take_several_events(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up = 0
    look_up = first_offsets.offset_for_timestamp

    def counted(*arguments: object, **more: object) -> object:
        nonlocal looked_up
        looked_up += 1
        return look_up(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(first_offsets, "offset_for_timestamp", counted)
    b = aged(11)
    m = ShareMember(b, "g", "m")
    places = [("t", index) for index in range(11)]
    assert acquired(m.fetch(*places)) == [], "the first offsets are not stored yet"
    assert looked_up == first_offsets.LOOK_UPS_AT_ONCE
    m.send_fetch(max_wait_ms=1000, min_bytes=10_000)
    while b.broker.next_deadline_ms() == 0:
        before = looked_up
        b.tick()
        assert looked_up - before <= first_offsets.LOOK_UPS_AT_ONCE
    b.tick(1000)
    assert looked_up == 11, "one for each partition"
    assert len(acquired(m.answer())) == 11


def test_a_long_batch_is_searched_by_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_search, "MOST_RECORDS_AT_ONCE", 0)
    b = aged()
    b.topic("u")
    b.produce("u", (b"a",))
    begin_group(b, "g", "u", start=-1)
    m = ShareMember(b, "g", "m")
    b.holds_work = True
    m.send_fetch(("t", 0), max_wait_ms=5000)
    assert m.answer() is None and len(b.broker.outbox.work) == 1, "others are served meanwhile"
    b.do_work()
    assert acquired(m.answer()) == [(1, 1, 1)]


def test_a_partition_forgotten_during_its_search_does_not_return_to_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The member removes the partition from its session while a worker looks up its offset."""
    monkeypatch.setattr(time_search, "MOST_RECORDS_AT_ONCE", 0)
    b = aged()
    m = ShareMember(b, "g", "m")
    b.holds_work = True
    assert acquired(m.fetch(("t", 0))) == []
    assert acquired(m.fetch(forgotten=(("t", 0),))) == []
    b.do_work()
    assert acquired(m.fetch()) == []
    (session,) = b.broker.shares.get().sessions
    assert not session.ready and not session.targets and not session.unloaded
