"""What a share session costs: its memory, the work of a request, and the room that it takes from
others.
"""

from __future__ import annotations

import gc
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.disk_broker import DiskBroker
from helpers.repeating import repeat_until
from helpers.share_member import SHARED, ShareMember, acquired, begin_group, topic_id

from barnabas.broker.share_partitions import share_sessions
from barnabas.broker.share_partitions.share_sessions import ShareSession, ShareTarget
from barnabas.broker.share_partitions.waiting_share_fetch import WaitingShareFetch
from barnabas.protocol.errors import Code
from barnabas.protocol.messages import share_acknowledge
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.share_fetch import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)

MOST_VISITS = 2_000  # of partitions, in one event; a visit takes 3 to 50 microseconds


@pytest.fixture
def b() -> DiskBroker:
    """A broker with a topic of 20 partitions, and a group that reads it from the beginning."""
    made = DiskBroker(**SHARED)
    made.topic_after_flushes("t", partitions=20)
    made.produce("t", (b"a",))
    begin_group(made, "g", "t")
    return made


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def fetch_of(
    topics: list[FetchTopic],
    epoch: int = 0,
    *,
    group: str = "g",
    member: str = "m",
    wait_ms: int = 0,
) -> ShareFetchRequest:
    return ShareFetchRequest(
        group, member, epoch, wait_ms, 1, 1 << 20, 500, 500, 0, False, topics, []
    )


def strangers(count: int) -> list[FetchTopic]:
    """Partitions of topics that no broker knows."""
    return [FetchTopic(uuid.UUID(int=at + 1), [FetchPartition(0)]) for at in range(count)]


def answer_of(b: DiskBroker, connection: int, request: Any) -> Any:
    b.send(connection, request, 2)
    repeat_until(lambda: b.answer(connection) is not None, b.tick)
    return b.answer(connection)


def codes_of(answer: Any) -> Counter[int]:
    assert answer.error_code == 0, answer
    return Counter(row.error_code for topic in answer.responses for row in topic.partitions)


def settle(b: DiskBroker) -> None:
    """Let all work be done that is due now."""
    repeat_until(lambda: b.broker.next_deadline_ms() != 0, b.tick)


def count_of(*kinds: type) -> int:
    return sum(isinstance(one, kinds) for one in gc.get_objects())


# --- memory ---------------------------------------------------------------------------------------


def test_unknown_topic_ids_are_answered_and_take_no_place_in_a_session(b: DiskBroker) -> None:
    sessions, one = b.broker.shares.get().sessions, b.connect()
    known = FetchTopic(topic_id(b, "t"), [FetchPartition(0)])
    answer = answer_of(b, one, fetch_of([*strangers(700), known]))
    assert codes_of(answer) == {Code.UNKNOWN_TOPIC_ID: 700, Code.NONE: 1}
    assert acquired(answer) == [(0, 0, 1)]
    assert (len(sessions), sessions.partition_count) == (1, 1)
    assert codes_of(answer_of(b, one, fetch_of(strangers(3), 1))) == {Code.UNKNOWN_TOPIC_ID: 3}
    assert sessions.partition_count == 1


def test_a_fetch_of_an_unknown_topic_does_not_wait(b: DiskBroker) -> None:
    """Its client has to read the metadata again, and to fetch other topics."""
    known = FetchTopic(topic_id(b, "t"), [FetchPartition(1)])
    one = b.connect()
    b.send(one, fetch_of([known, *strangers(1)], wait_ms=10_000), 2)
    assert codes_of(b.answer(one)) == {Code.UNKNOWN_TOPIC_ID: 1, Code.NONE: 1}


@pytest.mark.parametrize("how", ["hangs up", "last request", "begins again", "is pushed out"])
@pytest.mark.parametrize("kind", ["no such topic", "no such partition", "read"])
def test_the_memory_of_a_share_session_is_freed_at_its_end(
    b: DiskBroker, without_collector: None, kind: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is freed at once: nothing waits for the cycle collector."""
    first = 0 if kind == "read" else 20
    rows = [FetchPartition(index) for index in range(first, first + 20)]
    topics = strangers(20) if kind == "no such topic" else [FetchTopic(topic_id(b, "t"), rows)]
    kinds = (ShareSession, ShareTarget, WaitingShareFetch, Exception, FetchTopic)
    before, turns = 0, 12
    for turn in range(turns):
        if turn == 2:  # the first sessions load code, and fill caches
            before = count_of(*kinds)
        one = b.connect()
        answer_of(b, one, fetch_of(topics))
        b.send(one, fetch_of([], 1, wait_ms=1_000), 2)
        if how == "begins again":
            answer_of(b, one := b.connect(), fetch_of([]))
        elif how == "last request":
            b.tick(1_000)
            answer_of(b, one, fetch_of([], -1))
        elif how == "is pushed out":
            sessions = b.broker.shares.get().sessions
            for session in list(sessions):
                sessions.remove(session.key)
                sessions.on_evicted(session)
        b.broker.on_closed(one)
        settle(b)
        for _ in range(4):
            b.tick(30_000)
    assert len(b.broker.shares.get().sessions) == 0
    left = count_of(*kinds) - before
    assert left < turns - 2, "each session leaves something"


# --- work -----------------------------------------------------------------------------------------


@pytest.fixture
def most_visits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of partitions that ShareFetches visited, one number for each event."""
    visits = [0]
    visit, begin = WaitingShareFetch._visit, DiskBroker.tick

    def counted(fetch: WaitingShareFetch, target: ShareTarget, now_ms: int) -> object:
        visits[-1] += 1
        return visit(fetch, target, now_ms)

    def tick(self: DiskBroker, ms: int = 0) -> None:
        visits.append(0)
        begin(self, ms)

    monkeypatch.setattr(WaitingShareFetch, "_visit", counted)
    monkeypatch.setattr(DiskBroker, "tick", tick)
    return visits


def test_partitions_with_errors_are_visited_some_at_a_time(
    b: DiskBroker, most_visits: list[int]
) -> None:
    """A session of 9,000 partitions that do not exist costs little with each later request."""
    one, rows = b.connect(), [FetchPartition(index) for index in range(9_020)]
    missing = Code.UNKNOWN_TOPIC_OR_PARTITION
    answer = answer_of(b, one, fetch_of([FetchTopic(topic_id(b, "t"), rows)]))
    assert codes_of(answer) == {missing: 9_000, Code.NONE: 20}
    assert acquired(answer) == [(0, 0, 1)]
    assert max(most_visits) <= MOST_VISITS + 250
    for epoch in range(1, 4):
        most_visits.append(0)
        answer = answer_of(b, one, fetch_of([], epoch))
        assert codes_of(answer).keys() == {missing} and max(most_visits[-2:]) <= 250


def test_a_partition_with_an_error_is_read_after_its_error_is_over(b: DiskBroker) -> None:
    """Each fetch tries some of the partitions that have errors, and each has its turn."""
    one, rows = b.connect(), [FetchPartition(index) for index in range(20, 1_020)]
    answer_of(b, one, fetch_of([FetchTopic(topic_id(b, "t"), rows)]))
    grown = b.call(CreatePartitionsRequest([CreatePartitionsTopic("t", 21, None)], 1_000, False), 3)
    assert grown.results[0].error_code == Code.NONE
    begin_group(b, "g", "t")
    b.produce("t", (b"b",), partition=20)
    epochs = iter(range(1, 12))
    got: list[Any] = []

    def fetch() -> None:
        got.extend(acquired(answer_of(b, one, fetch_of([], next(epochs)))))

    repeat_until(lambda: got, fetch, 8)
    assert got == [(0, 0, 1)]


def test_a_client_that_hangs_up_ends_the_work_of_its_request(b: DiskBroker) -> None:
    one, rows = b.connect(), [FetchPartition(index) for index in range(9_000)]
    b.send(one, fetch_of([FetchTopic(topic_id(b, "t"), rows)]), 2)
    assert b.answer(one) is None
    b.broker.on_closed(one)
    sessions = b.broker.shares.get().sessions
    settle(b)
    assert (len(sessions), sessions.partition_count) == (0, 0)


@pytest.mark.parametrize("ticks", range(8))
def test_a_client_that_hangs_up_during_a_refusal_or_a_long_answer_gets_nothing(
    b: DiskBroker, ticks: int
) -> None:
    b.broker.shares.get().sessions._partitions.limit = 6_000
    rows = [FetchPartition(index) for index in range(9_000)]
    for at, topics in enumerate(([FetchTopic(topic_id(b, "t"), rows)], strangers(7_000))):
        one = b.connect()
        b.send(one, fetch_of(topics, member=f"m{at}", wait_ms=1_000), 2)
        for _ in range(ticks):
            b.tick()
        b.broker.on_closed(one)
        settle(b)
        b.tick(2_000)
    assert b.broker.shares.get().sessions.partition_count == 0


def test_a_large_session_that_finds_no_room_ends_and_its_refusal_waits(b: DiskBroker) -> None:
    """Some of its partitions were added before: the client begins another session."""
    sessions, one = b.broker.shares.get().sessions, b.connect()
    sessions._partitions.limit = 6_000
    rows = [FetchPartition(index) for index in range(9_000)]
    assert answer_of(b, one, fetch_of([])).error_code == 0
    b.send(one, fetch_of([FetchTopic(topic_id(b, "t"), rows)], 1, wait_ms=500), 2)
    settle(b)
    assert b.answer(one) is None and (len(sessions), sessions.partition_count) == (0, 0)
    b.tick(500)
    assert b.answer(one).error_code == Code.SHARE_SESSION_LIMIT_REACHED


def test_a_client_that_hangs_up_before_its_acknowledgements_are_stored_gets_nothing(
    b: DiskBroker,
) -> None:
    one, rows = b.connect(), [FetchPartition(index) for index in range(20)]
    answer_of(b, one, fetch_of([FetchTopic(topic_id(b, "t"), rows)]))
    batches = [share_acknowledge.AcknowledgementBatch(0, 0, [1])]
    acknowledged = [share_acknowledge.AcknowledgePartition(at, batches) for at in range(3_000)]
    topics = [share_acknowledge.AcknowledgeTopic(topic_id(b, "t"), acknowledged)]
    b.hold_flushes()
    b.send(one, share_acknowledge.ShareAcknowledgeRequest("g", "m", 1, False, topics), 2)
    settle(b)
    assert b.answer(one) is None
    b.broker.on_closed(one)
    repeat_until(lambda: not b.flush_one(), lambda: None)
    settle(b)
    assert b.answer(one) is None


def test_a_session_that_begins_again_meanwhile_has_only_its_own_partitions(b: DiskBroker) -> None:
    one, other = b.connect(), b.connect()
    rows = [FetchPartition(index) for index in range(9_000)]
    b.send(one, fetch_of([FetchTopic(topic_id(b, "t"), rows)]), 2)
    few = [FetchTopic(topic_id(b, "t"), rows[:3])]
    assert codes_of(answer_of(b, other, fetch_of(few))) == {Code.NONE: 3}
    settle(b)
    sessions = b.broker.shares.get().sessions
    assert sessions.partition_count == 3
    assert b.answer(one).responses == []


def test_acknowledgements_of_thousands_of_partitions_are_answered(b: DiskBroker) -> None:
    one = b.connect()
    answer_of(b, one, fetch_of([]))
    rows = [
        share_acknowledge.AcknowledgePartition(
            index, [share_acknowledge.AcknowledgementBatch(0, 0, [1])]
        )
        for index in range(6_000)
    ]
    topics = [
        share_acknowledge.AcknowledgeTopic(id, rows if at == 0 else rows[:1])
        for at, id in enumerate([topic_id(b, "t"), *(uuid.UUID(int=at) for at in range(1, 3_000))])
    ]
    request = share_acknowledge.ShareAcknowledgeRequest("g", "m", 1, False, topics)
    assert codes_of(answer_of(b, one, request)) == {
        Code.UNKNOWN_TOPIC_OR_PARTITION: 6_000,
        Code.UNKNOWN_TOPIC_ID: 2_999,
    }


# --- shares of principals -------------------------------------------------------------------------


def member_of(b: DiskBroker, principal: str, name: str) -> ShareMember:
    member = ShareMember(b, "g", name)
    b.broker.connections[member.connection].principal = principal
    return member


def test_a_principal_that_has_all_the_room_shuts_no_other_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(share_sessions, "MOST_PARTITIONS", 12)
    b = DiskBroker(**SHARED)
    b.topic("t", 12)
    begin_group(b, "g", "t")
    greedy = [member_of(b, "User:eve", f"e{at}") for at in range(4)]
    for at, member in enumerate(greedy):
        member.fetch(*[("t", index) for index in range(5 if at == 1 else 2)])
    greedy[0].send_fetch(("t", 11), max_wait_ms=30_000)
    assert greedy[0].answer() is None
    sessions = b.broker.shares.get().sessions
    assert sessions.partition_count == 12
    assert greedy[2].fetch(("t", 9), ("t", 10)).error_code == Code.SHARE_SESSION_LIMIT_REACHED

    modest = member_of(b, "User:ada", "a")
    assert modest.fetch(*[("t", index) for index in range(3)]).error_code == Code.NONE
    assert greedy[1].fetch().error_code == Code.SHARE_SESSION_NOT_FOUND, "its largest session"
    assert greedy[0].answer() is None and greedy[2].fetch().error_code == Code.NONE

    assert modest.fetch(("t", 3), ("t", 4), ("t", 5)).error_code == Code.NONE, "half of the room"
    b.tick()
    assert greedy[0].answer().error_code == Code.NONE, "its session has ended, too"
    assert modest.fetch(("t", 6), ("t", 7)).error_code == Code.NONE, "there is room"
    assert modest.fetch(("t", 8)).error_code == Code.SHARE_SESSION_LIMIT_REACHED
    assert modest.fetch().error_code == Code.NONE, "the session is as it was"


def test_a_session_that_others_push_out_releases_its_records_and_answers_its_fetch() -> None:
    b = DiskBroker(**SHARED, group_share_max_share_sessions="2", group_share_max_size="2")
    b.topic("t")
    b.produce("t", (b"a",))
    begin_group(b, "g", "t")
    idle, one = member_of(b, "User:eve", "idle"), member_of(b, "User:eve", "one")
    idle.fetch()
    assert one.take("t") == [(0, 0, 1)]
    one.send_fetch(max_wait_ms=60_000)
    assert one.answer() is None
    other = member_of(b, "User:ada", "other")
    assert acquired(other.fetch(("t", 0))) == []
    settle(b)
    assert one.answer() is not None and acquired(other.fetch()) == [(0, 0, 2)]
    assert b.broker.shares.get().counts.evictions == 1


def test_clients_without_a_login_have_the_shares_of_their_addresses() -> None:
    b = DiskBroker(**SHARED, group_share_max_share_sessions="2", group_share_max_size="2")
    b.topic("t")
    begin_group(b, "g", "t")
    members = [ShareMember(b, "g", name) for name in ("one", "two", "three", "far")]
    b.broker.connections[members[3].connection].client_host = "/192.0.2.77"
    codes = [member.fetch(("t", 0)).error_code for member in members]
    assert codes == [Code.NONE, Code.NONE, Code.SHARE_SESSION_LIMIT_REACHED, Code.NONE]


def test_thousands_of_forgotten_partitions_are_removed_in_slices(b: DiskBroker) -> None:
    one, count = b.connect(), 9_000
    topic, sessions = topic_id(b, "t"), b.broker.shares.get().sessions
    rows = [FetchPartition(index) for index in range(count)]
    answer_of(b, one, fetch_of([FetchTopic(topic, rows)]))
    request = fetch_of([], 1)
    request.forgotten_topics_data = [ForgottenTopic(topic, list(range(3, count)))]
    b.send(one, request, 2)
    assert b.answer(one) is None and 3 < sessions.partition_count < count
    repeat_until(lambda: b.answer(one) is not None, b.tick)
    assert sessions.partition_count == 3
