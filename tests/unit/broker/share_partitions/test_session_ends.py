"""When a share group's member ends its session, the records that it has acquired are released in
slices.
"""

from __future__ import annotations

import itertools

import pytest
from helpers.disk_broker import DiskBroker
from helpers.repeating import repeat_until
from helpers.share_member import ACCEPT, SHARED, ShareMember, acquired, begin_group

from barnabas.broker.share_partitions import session_ends
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

PARTITIONS = 7
UPGRADE, DOWNGRADE = 1, 2


@pytest.fixture
def b(monkeypatch: pytest.MonkeyPatch) -> DiskBroker:
    """A broker with a topic that has one record in each partition. A slice releases two
    partitions.
    """
    monkeypatch.setattr(session_ends, "RELEASED_AT_ONCE", 2)
    made = DiskBroker(**SHARED)
    made.topic("t", PARTITIONS)
    for index in range(PARTITIONS):
        made.produce("t", (b"a",), partition=index)
    begin_group(made, "g", "t")
    return made


def everything() -> list[tuple[str, int]]:
    return [("t", index) for index in range(PARTITIONS)]


def take_all(member: ShareMember) -> int:
    """Let the member fetch all partitions. Gives: the number of acquired records."""
    return len(acquired(member.fetch(*everything())))


def is_due(b: DiskBroker) -> bool:
    return b.broker.next_deadline_ms() == 0


def test_the_records_of_a_disconnected_member_are_released_in_slices(b: DiskBroker) -> None:
    one, other = (ShareMember(b, "g", name) for name in ("one", "other"))
    assert take_all(one) == PARTITIONS and take_all(other) == 0
    b.broker.on_closed(one.connection)
    taken, ticks = 0, 0
    while is_due(b):
        b.tick()
        ticks += 1
        found = len(acquired(other.fetch()))
        assert found <= 2, "each tick releases the records of at most two partitions"
        taken += found
    assert taken == PARTITIONS and ticks >= 4
    assert len(b.broker.shares.get().partitions) == PARTITIONS, "the other member reads them"


@pytest.mark.parametrize("ticks", range(1, 6))
def test_releasing_a_sessions_records_does_not_release_those_of_the_next_session(
    b: DiskBroker, ticks: int
) -> None:
    """The member begins its next session while the records of the previous session are still being
    released. The release must not affect records that the next session has acquired.
    """
    one = ShareMember(b, "g", "one")
    assert take_all(one) == PARTITIONS
    b.broker.on_closed(one.connection)
    for _ in range(ticks):
        b.tick()
    again = ShareMember(b, "g", "one")
    again.fetch(*everything())
    got = acquired(again.last)
    while is_due(b):
        b.tick()
        got += acquired(again.fetch())
    assert got == [(0, 0, 2)] * PARTITIONS, "each was released once, and delivered once more"
    assert [again.acknowledge("t", (0, 0, ACCEPT), index=at) for at in range(PARTITIONS)] == [
        Code.NONE
    ] * PARTITIONS


def test_all_sessions_of_a_closed_connection_end_in_slices(
    b: DiskBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_ends, "ENDED_AT_ONCE", 1)
    members = [ShareMember(b, "g", name) for name in ("one", "two", "three")]
    for number, member in enumerate(members):
        member.connection = members[0].connection
        member.take("t", number)
    b.broker.on_closed(members[0].connection)
    sessions, left = b.broker.shares.get().sessions, []
    while is_due(b):
        b.tick()
        left.append(len(sessions))
    assert left[:3] == [2, 1, 0]
    assert take_all(ShareMember(b, "g", "other")) == PARTITIONS


def test_records_of_a_session_that_has_ended_are_not_acknowledged_in_the_next(
    b: DiskBroker,
) -> None:
    one = ShareMember(b, "g", "one")
    take_all(one)
    b.broker.on_closed(one.connection)
    b.tick()
    again = ShareMember(b, "g", "one")
    again.take("t", 0, max_records=1)
    assert [again.acknowledge("t", (0, 0, ACCEPT), index=at) for at in range(PARTITIONS)] == [
        Code.NONE,
        *[Code.INVALID_RECORD_STATE] * (PARTITIONS - 1),
    ]


def test_a_members_final_request_releases_its_records_in_slices(b: DiskBroker) -> None:
    one = ShareMember(b, "g", "one")
    take_all(one)
    assert one.fetch(session=-1).error_code == Code.NONE
    assert is_due(b)
    repeat_until(lambda: not is_due(b), b.tick)
    assert len(b.broker.shares.get().partitions) == 0
    assert take_all(ShareMember(b, "g", "other")) == PARTITIONS


def test_share_partitions_are_not_dropped_before_their_records_are_released(
    b: DiskBroker,
) -> None:
    """The first slice of the final request releases records of the last partitions. The first
    partitions, which are dropped first, still have acquired records then. If they were dropped, the
    deliveries of these records would not be counted.
    """
    first, one = ShareMember(b, "g", "first"), ShareMember(b, "g", "one")
    first.fetch(*everything(), max_records=0)
    assert len(acquired(one.fetch(*reversed(everything())))) == PARTITIONS
    first.fetch(session=-1)
    one.fetch(session=-1)
    repeat_until(lambda: not is_due(b), b.tick)
    assert acquired(ShareMember(b, "g", "other").fetch(*everything())) == [(0, 0, 2)] * PARTITIONS


def test_share_partitions_are_dropped_in_slices_unless_another_member_reads_them(
    b: DiskBroker,
) -> None:
    one = ShareMember(b, "g", "one")
    take_all(one)
    partitions = b.broker.shares.get().partitions
    b.broker.on_closed(one.connection)
    counts = [len(partitions)]
    while is_due(b):
        b.tick()
        counts.append(len(partitions))
    assert counts[-1] == 0 and max(x - y for x, y in itertools.pairwise(counts)) <= 2
    one = ShareMember(b, "g", "one")
    take_all(one)
    b.broker.on_closed(one.connection)
    repeat_until(lambda: len(partitions) != PARTITIONS, b.tick)
    ShareMember(b, "g", "other").take("t", PARTITIONS - 1)
    repeat_until(lambda: not is_due(b), b.tick)
    assert 0 < len(partitions) < PARTITIONS


def test_all_share_sessions_end_when_the_feature_is_switched_off(b: DiskBroker) -> None:
    one, other = ShareMember(b, "g", "one"), ShareMember(b, "g", "two")
    one.fetch(*everything())
    assert set_share_version(b, 0) == Code.NONE
    assert one.fetch().error_code == Code.UNSUPPORTED_VERSION
    for _ in range(PARTITIONS):
        b.tick()
    assert set_share_version(b, 1) == Code.NONE
    assert one.fetch().error_code == Code.SHARE_SESSION_NOT_FOUND
    assert len(acquired(other.fetch(*everything()))) == PARTITIONS, "no member holds them"


def test_nothing_of_share_sessions_is_left_when_the_feature_is_switched_off(b: DiskBroker) -> None:
    """A fetch that waits is answered without waiting for more records. The deliveries are stored,
    so they count after the feature is switched on again.
    """
    one, other = ShareMember(b, "g", "one"), ShareMember(b, "g", "two")
    take_all(one)
    other.send_fetch(*everything(), max_wait_ms=60_000)
    assert other.answer() is None
    assert set_share_version(b, 0) == Code.NONE
    repeat_until(lambda: not is_due(b), b.tick)
    assert other.answer() is not None
    shares = b.broker.shares.get()
    assert (len(shares.sessions), len(shares.partitions)) == (0, 0)
    assert not shares.session_ends.is_ready
    b.kill()
    assert set_share_version(b, 1) == Code.NONE
    assert acquired(ShareMember(b, "g", "one").fetch(*everything())) == [(0, 0, 2)] * PARTITIONS


def test_a_fetch_that_waits_is_answered_when_the_feature_is_switched_off(b: DiskBroker) -> None:
    """Nothing is released here that would answer it anyway."""
    one = ShareMember(b, "empty", "one")
    b.topic("u")
    begin_group(b, "empty", "u")
    one.send_fetch(("u", 0), max_wait_ms=60_000)
    assert one.answer() is None
    assert set_share_version(b, 0) == Code.NONE
    repeat_until(lambda: not is_due(b), b.tick)
    assert one.answer() is not None


def set_share_version(b: DiskBroker, level: int) -> int:
    update = FeatureUpdateKey("share.version", level, upgrade_type=UPGRADE if level else DOWNGRADE)
    answer = b.call(UpdateFeaturesRequest(feature_updates=[update]), 1)
    return int(answer.results[0].error_code)
