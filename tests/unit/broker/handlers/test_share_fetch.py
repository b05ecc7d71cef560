"""ShareFetch and ShareAcknowledge on a whole broker. The expected responses are those of Apache
Kafka 4.3.
"""

from __future__ import annotations

import errno
import itertools
from typing import Any

import pytest
from helpers.disk_broker import READER, DiskBroker, Producer
from helpers.full_disk import ALL
from helpers.repeating import repeat_until
from helpers.share_member import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    SHARED,
    ShareMember,
    acquired,
    begin_group,
    configure,
    delete_state,
    initialize_state,
    topic_id,
    values,
)
from sim.disk import Refusal

from barnabas.broker.share_partitions import share_runtime, share_sessions
from barnabas.broker.share_partitions.loaded_partition import Wakes
from barnabas.broker.share_partitions.share_sessions import (
    MAX_EPOCH,
    SessionKey,
    ShareSessions,
    ShareTarget,
)
from barnabas.broker.share_partitions.waiting_share_fetch import WaitingShareFetch
from barnabas.coordinator.share_states.share_records import SharePartitionKey
from barnabas.protocol.errors import Code
from barnabas.protocol.messages import delete_share_group_state as deleting
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from barnabas.protocol.messages.share_fetch import ShareFetchRequest
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.disk import NotWrittenError

LOCK_MS = 30_000


def queue(records: int = 10, partitions: int = 1, **settings: str) -> DiskBroker:
    """A broker with a topic of some batches with one record each, and a group that starts at the
    topic's beginning.
    """
    b = DiskBroker(**SHARED, **settings)
    b.topic("t", partitions=partitions)
    for index in range(partitions):
        for at in range(records):
            b.produce("t", (b"%d" % at,), partition=index)
    begin_group(b, "g", "t")
    return b


def two(b: DiskBroker) -> tuple[ShareMember, ShareMember]:
    return ShareMember(b, "g", "one"), ShareMember(b, "g", "two")


# --- acquiring and acknowledging ------------------------------------------------------------------


def test_records_have_one_holder_and_are_delivered_again_when_released() -> None:
    b = queue()
    one, other = two(b)
    assert one.take("t") == [(0, 9, 1)]
    assert values(one.last) == [b"%d" % at for at in range(10)]
    assert other.take("t") == []
    assert one.acknowledge("t", (0, 1, ACCEPT)) == Code.NONE
    assert one.acknowledge("t", (0, 1, ACCEPT)) == Code.NONE, (
        "a repeated acknowledgement of finished records is no error"
    )
    assert other.acknowledge("t", (2, 2, ACCEPT)) == Code.INVALID_RECORD_STATE
    assert one.acknowledge("t", (2, 3, RELEASE)) == Code.NONE
    assert other.take("t") == [(2, 3, 2)]
    assert values(other.last) == [b"2", b"3"]
    assert one.acknowledge("t", (5, 7, [ACCEPT, RELEASE, REJECT])) == Code.NONE
    assert other.take("t") == [(6, 6, 2)]


def test_a_fetch_acknowledges_first() -> None:
    b = queue(4)
    one, _ = two(b)
    one.take("t")
    assert one.take("t", acknowledged={("t", 0): [(2, 3, RELEASE)]}) == [(2, 3, 2)]
    row = one.last.responses[0].partitions[0]
    assert (row.error_code, row.acknowledge_error_code) == (0, 0)
    one.fetch(("t", 0), acknowledged={("t", 0): [(9, 9, ACCEPT)]})
    assert one.last.responses[0].partitions[0].acknowledge_error_code == Code.INVALID_REQUEST


@pytest.mark.parametrize(
    ("batches", "code"),
    [
        ([(10, 12, ACCEPT)], Code.INVALID_REQUEST),
        ([(8, 9, [ACCEPT] * 3)], Code.INVALID_REQUEST),
        ([(8, 8, 9)], Code.INVALID_REQUEST),
        ([(9, 8, ACCEPT)], Code.INVALID_REQUEST),
        ([(8, 8, [])], Code.INVALID_REQUEST),
        ([(5, 6, ACCEPT), (3, 4, ACCEPT)], Code.INVALID_REQUEST),
        ([(8, 9, ACCEPT), (9, 9, ACCEPT)], Code.INVALID_RECORD_STATE),
        ([(8, 8, RENEW)], Code.INVALID_REQUEST),
    ],
)
def test_invalid_acknowledgements_are_refused_and_change_nothing(
    batches: list[tuple[int, int, int | list[int]]], code: Code
) -> None:
    b = queue()
    one, _ = two(b)
    one.take("t")
    assert one.acknowledge("t", *batches) == code
    assert one.acknowledge("t", (0, 9, ACCEPT)) == Code.NONE


def test_a_record_is_archived_after_the_delivery_count_limit() -> None:
    b = queue(2)
    configure(b, "g", share_delivery_count_limit="3")
    one, _ = two(b)
    for delivery in (1, 2, 3):
        assert one.take("t", max_records=1, mode=1) == [(0, 0, delivery)]
        assert one.acknowledge("t", (0, 0, RELEASE)) == Code.NONE
    assert one.take("t") == [(1, 1, 1)]


def test_settings_of_a_group_count_at_once() -> None:
    b = queue(3)
    one, _ = two(b)
    assert one.take("t", max_records=1, mode=1) == [(0, 0, 1)]
    configure(b, "g", share_record_lock_duration_ms="60000", share_delivery_count_limit="2")
    assert one.take("t", max_records=1, mode=1) == [(1, 1, 1)]
    assert one.last.acquisition_lock_timeout_ms == 60_000
    b.tick(LOCK_MS)
    assert one.take("t", max_records=1, mode=1) == [(0, 0, 2)], "the other is still locked"
    assert one.acknowledge("t", (0, 0, RELEASE)) == Code.NONE
    assert one.take("t") == [(2, 2, 1)], "the first one is given up"


def test_no_more_records_are_locked_than_the_group_allows() -> None:
    b = queue(150)
    configure(b, "g", share_partition_max_record_locks="100")
    one, other = two(b)
    assert one.take("t", max_records=1000) == [(0, 99, 1)]
    assert other.take("t") == []
    assert one.acknowledge("t", (50, 99, ACCEPT)) == Code.NONE
    assert other.take("t") == [], "the window begins at the first record that is not done with"
    assert one.acknowledge("t", (0, 29, ACCEPT)) == Code.NONE
    assert other.take("t") == [(100, 129, 1)]


# --- durability -----------------------------------------------------------------------------------


def test_an_acknowledgement_is_answered_when_it_is_on_the_disk() -> None:
    b = queue()
    one, _ = two(b)
    one.take("t")
    b.sync("t-0")
    b.hold_flushes()
    one.send_acknowledge("t", (0, 4, ACCEPT))
    assert one.acknowledged() is None
    b.flush()
    assert one.acknowledged() == Code.NONE
    b.lose_power()
    assert ShareMember(b, "g", "m").take("t") == [(5, 9, 1)]


def test_without_durable_transactions_an_acknowledgement_is_answered_at_once() -> None:
    b = queue(barnabas_transaction_durability="os")
    one, _ = two(b)
    one.take("t")
    b.hold_flushes()
    assert one.acknowledge("t", (0, 4, ACCEPT)) == Code.NONE
    b.kill()
    assert ShareMember(b, "g", "m").take("t") == [(5, 9, 1)]


def test_a_fetch_with_acknowledgements_is_answered_when_they_are_on_the_disk() -> None:
    b = queue()
    one, _ = two(b)
    one.take("t", max_records=5, batch_size=1)
    b.sync("t-0")
    b.hold_flushes()
    one.send_fetch(("t", 0), acknowledged={("t", 0): [(0, 4, ACCEPT)]})
    assert one.answer() is None
    b.flush()
    assert acquired(one.answer()) == [(5, 9, 1)]
    b.lose_power()
    assert ShareMember(b, "g", "m").take("t") == [(5, 9, 1)]


def test_a_kill_releases_what_was_not_acknowledged_and_keeps_the_counts() -> None:
    b = queue(4)
    one, _ = two(b)
    one.take("t")
    one.acknowledge("t", (0, 1, ACCEPT), (2, 2, RELEASE))
    assert one.take("t") == [(2, 2, 2)]
    b.kill()
    assert ShareMember(b, "g", "m").take("t") == [(2, 2, 2), (3, 3, 1)]


def test_where_a_group_begins_is_stored_before_it_reads() -> None:
    b = DiskBroker(**SHARED)
    b.topic("t")
    b.produce("t", (b"before",))
    begin_group(b, "g", "t", start=-1)
    m = ShareMember(b, "g", "m")
    assert m.take("t") == [], "the group begins behind the last record"
    b.produce("t", (b"after",))
    assert m.take("t") == [(1, 1, 1)]
    b.kill()
    assert ShareMember(b, "g", "m").take("t") == [(1, 1, 1)], "it was not acknowledged"


def test_a_group_may_start_by_duration() -> None:
    """The first fetch is accepted, although the start offset may not be found yet. The offset
    itself is tested in test_first_offsets.py.
    """
    b = queue(3)
    begin_group(b, "old", "t", start=-1)
    configure(b, "old", share_auto_offset_reset="by_duration:PT1H")
    answer = ShareMember(b, "old", "m").fetch(("t", 0))
    assert answer.responses[0].partitions[0].error_code in (0, Code.OFFSET_NOT_AVAILABLE)
    b.now_ms += 7_200_000
    answer = ShareMember(b, "old", "n").fetch(("t", 0))
    assert answer.responses[0].partitions[0].error_code in (0, Code.OFFSET_NOT_AVAILABLE)


# --- locks ----------------------------------------------------------------------------------------


def test_an_expired_acquisition_lock_releases_the_records() -> None:
    b = queue(3)
    one, other = two(b)
    assert one.take("t") == [(0, 2, 1)]
    assert one.last.acquisition_lock_timeout_ms == LOCK_MS
    b.tick(LOCK_MS - 1)
    assert other.take("t") == []
    b.tick(1)
    assert other.take("t") == [(0, 2, 2)]
    assert one.acknowledge("t", (0, 0, ACCEPT)) == Code.INVALID_RECORD_STATE


def test_the_broker_wakes_up_when_a_lock_ends() -> None:
    b = queue(1)
    one, other = two(b)
    one.take("t")
    other.send_fetch(("t", 0), max_wait_ms=LOCK_MS + 5)
    deadline_ms = b.broker.next_deadline_ms()
    assert deadline_ms is not None
    assert deadline_ms <= b.now_ms + LOCK_MS
    b.tick(LOCK_MS)
    assert acquired(other.answer()) == [(0, 0, 2)]


def test_a_lock_is_renewed_and_others_end_one_by_one_while_members_wait() -> None:
    """A member renews the lock of one of its three records. The other locks time out first, and
    another member that waits gets these records before the renewed one.
    """
    b = queue(3)
    one, other = two(b)
    one.take("t")
    b.tick(10_000)
    assert one.acknowledge("t", (0, 0, RENEW), is_renewal=True) == Code.NONE
    other.send_fetch(("t", 0), max_wait_ms=LOCK_MS)
    b.tick(20_000)
    assert acquired(other.answer()) == [(1, 1, 2)]
    assert other.take("t") == [(2, 2, 2)]
    b.tick(10_000)
    assert other.take("t") == [(0, 0, 2)]


def test_a_group_may_forbid_renewals() -> None:
    b = queue(1)
    configure(b, "g", share_renew_acknowledge_enable="false")
    one, _ = two(b)
    one.take("t")
    assert one.acknowledge("t", (0, 0, RENEW), is_renewal=True) == Code.INVALID_RECORD_STATE


def test_a_fetch_that_renews_fetches_nothing() -> None:
    b = queue(2)
    one, _ = two(b)
    one.take("t", max_records=1, mode=1)
    renewal = {("t", 0): [(0, 0, RENEW)]}
    assert one.fetch(acknowledged=renewal, is_renewal=True).error_code == Code.INVALID_REQUEST
    answer = one.fetch(
        acknowledged=renewal, is_renewal=True, max_bytes=0, min_bytes=0, max_records=0
    )
    row = answer.responses[0].partitions[0]
    assert (row.acknowledge_error_code, row.acquired_records) == (Code.NONE, [])


# --- waiting --------------------------------------------------------------------------------------


def test_a_fetch_waits_for_records_until_its_time_is_up() -> None:
    b = queue(0)
    one, other = two(b)
    for member in (one, other):
        member.send_fetch(("t", 0), max_wait_ms=500)
        assert member.answer() is None
    b.produce("t", (b"a",))
    assert acquired(one.answer()) == [(0, 0, 1)]
    assert other.answer() is None
    b.tick(500)
    assert acquired(other.answer()) == []
    assert len(other.last.responses[0].partitions) == 1, "a new session has all its partitions"
    other.send_fetch(max_wait_ms=500)
    b.tick(500)
    assert other.answer().responses == [], "later responses leave out partitions without records"


def test_a_fetch_waits_for_what_another_member_releases() -> None:
    b = queue(1)
    one, other = two(b)
    one.take("t")
    other.take("t")
    other.send_fetch(("t", 0), max_wait_ms=500)
    one.acknowledge("t", (0, 0, RELEASE))
    assert acquired(other.answer()) == [(0, 0, 2)]


def test_a_fetch_waits_for_as_many_bytes_as_it_wants() -> None:
    b = queue(0, partitions=2)
    one, _ = two(b)
    one.send_fetch(("t", 0), ("t", 1), max_wait_ms=500, min_bytes=200)
    b.produce("t", (bytes(70),))
    assert one.answer() is None
    b.produce("t", (bytes(70),), partition=1)
    assert acquired(one.answer()) == [(0, 0, 1), (0, 0, 1)]


@pytest.mark.parametrize("is_another", [False, True])
def test_a_client_that_hangs_up_while_it_waits_gets_nothing(is_another: bool) -> None:
    """The same holds if the client's session began on another connection. Such a session does not
    end when this connection is closed.
    """
    b = queue(0)
    one, other = two(b)
    if is_another:
        assert one.take("t") == []
        one.connection = b.connect()
    one.send_fetch(("t", 0), max_wait_ms=500)
    assert one.answer() is None
    one.hang_up()
    b.produce("t", (b"a",))
    assert other.take("t") == [(0, 0, 1)]
    assert not is_another or b.broker.shares.made.sessions.get(SessionKey("g", "one", 1))


def test_a_client_that_hangs_up_while_it_acknowledges_gets_nothing() -> None:
    """The client's acknowledgements are stored. Another member gets the records that its fetch
    would have acquired.
    """
    b = queue()
    one, other = two(b)
    one.take("t", max_records=5, batch_size=1)
    one.connection = b.connect()
    b.sync("t-0")
    b.hold_flushes()
    one.send_fetch(acknowledged={("t", 0): [(0, 4, ACCEPT)]})
    assert one.answer() is None
    one.hang_up()
    b.release_flushes()
    assert other.take("t") == [(5, 9, 1)]


# --- sessions -------------------------------------------------------------------------------------


def test_requests_with_a_wrong_share_session_epoch_are_refused() -> None:
    b = queue()
    one, _ = two(b)
    assert one.fetch(("t", 0), session=1).error_code == Code.SHARE_SESSION_NOT_FOUND
    assert one.acknowledge("t", (0, 0, ACCEPT)) == Code.INVALID_SHARE_SESSION_EPOCH
    one.take("t", max_records=2, batch_size=1)
    assert one.fetch(session=5).error_code == Code.INVALID_SHARE_SESSION_EPOCH
    opened = one.fetch(acknowledged={("t", 0): [(0, 0, ACCEPT)]}, session=0)
    assert opened.error_code == Code.INVALID_REQUEST
    assert one.acknowledge("t", (0, 0, ACCEPT), session=-1) == Code.NONE
    assert one.acknowledge("t", (1, 1, ACCEPT), session=-1) == Code.SHARE_SESSION_NOT_FOUND


@pytest.mark.parametrize("member_id", ["", "m" * 37])
def test_a_member_needs_an_id(member_id: str) -> None:
    b = queue()
    assert ShareMember(b, "g", member_id).fetch(("t", 0)).error_code == Code.INVALID_REQUEST


def test_a_session_that_is_closed_releases_what_it_has() -> None:
    b = queue(6)
    one, other = two(b)
    one.take("t")
    assert one.acknowledge("t", (0, 1, ACCEPT), session=-1) == Code.NONE
    assert other.take("t") == [(2, 5, 2)]
    other.fetch(session=-1)
    third = ShareMember(b, "g", "three")
    assert third.take("t") == [(2, 5, 3)]
    third.hang_up()
    assert not len(b.broker.shares.get().sessions)
    assert not len(b.broker.shares.get().partitions), "no member reads it"
    fourth = ShareMember(b, "g", "four")
    assert fourth.take("t") == [(2, 3, 4)], "after three deliveries they come in smaller parts"
    assert fourth.take("t") == [(4, 5, 4)]


def test_there_are_no_more_sessions_than_the_settings_allow() -> None:
    b = queue(1, group_share_max_share_sessions="1", group_share_max_size="1")
    one, other = two(b)
    one.take("t")
    other.send_fetch(("t", 0), max_wait_ms=500)
    # If the error were sent immediately, the client would also try again immediately.
    assert other.answer() is None, "it would come again at once"
    b.tick(500)
    assert other.answer().error_code == Code.SHARE_SESSION_LIMIT_REACHED
    one.hang_up()
    assert other.fetch(("t", 0)).error_code == Code.NONE


def test_a_session_forgets_partitions() -> None:
    b = queue(1, partitions=2)
    one, _ = two(b)
    assert one.take("t", 0) == [(0, 0, 1)]
    assert one.take("t", 1, forgotten=(("t", 0),)) == [(0, 0, 1)]
    one.acknowledge("t", (0, 0, RELEASE))
    one.acknowledge("t", (0, 0, RELEASE), index=1)
    answer = one.fetch()
    assert [row.partition_index for row in answer.responses[0].partitions] == [1]


def test_a_partition_that_comes_and_goes_in_one_request_is_not_loaded() -> None:
    b = queue(2, partitions=2)
    one, _ = two(b)
    assert acquired(one.fetch(("t", 0), ("t", 1), forgotten=(("t", 1),))) == [(0, 1, 1)]
    assert [loaded.key.partition for loaded in b.broker.shares.get().partitions] == [0]


def test_each_partition_gets_its_turn() -> None:
    b = queue(4, partitions=3)
    one, _ = two(b)
    seen = []
    places = (("t", 0), ("t", 1), ("t", 2))
    for _ in range(6):
        answer = one.fetch(*places, max_records=1, mode=1)
        seen += [
            row.partition_index for row in answer.responses[0].partitions if row.acquired_records
        ]
    assert sorted(seen[:3]) == sorted(seen[3:]) == [0, 1, 2]


def test_a_fetch_visits_the_partitions_that_it_gets_records_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 60
    b = queue(3, partitions=count)
    member = ShareMember(b, "g", "m")
    visits: list[int] = []
    visit = WaitingShareFetch._visit

    def counted(fetch: WaitingShareFetch, target: ShareTarget, now_ms: int) -> object:
        visits.append(target.index)
        return visit(fetch, target, now_ms)

    monkeypatch.setattr(WaitingShareFetch, "_visit", counted)
    every = [("t", index) for index in range(count)]
    first = member.fetch(*every, max_records=3, batch_size=3)
    assert len(acquired(first)) == 1
    visits.clear()  # the first fetch of the session has loaded all partitions
    assert len(acquired(member.fetch(max_records=3))) == 1 and len(visits) == 1
    visits.clear()
    more = member.fetch(max_records=36, batch_size=36)
    assert len(acquired(more)) == 12 and len(visits) == 12
    visits.clear()
    rest = member.fetch(max_records=500)
    assert len(acquired(rest)) == count - 14, "a fetch that wants more visits all"
    assert not acquired(member.fetch(max_records=500))


def test_errors_of_partitions_are_in_their_rows() -> None:
    b = queue(1)
    one, _ = two(b)
    one.send_fetch(("t", 0), ("t", 9), max_wait_ms=500)
    rows = {row.partition_index: row for row in one.answer().responses[0].partitions}
    assert {index: row.error_code for index, row in rows.items()} == {
        0: Code.NONE,
        9: Code.UNKNOWN_TOPIC_OR_PARTITION,
    }
    unknown = ShareMember(b, "none", "m").fetch(("t", 0))
    assert unknown.responses[0].partitions[0].error_code == Code.UNKNOWN_SERVER_ERROR
    assert one.acknowledge("t", (0, 0, ACCEPT), index=9) == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_the_end_of_a_partitions_error_is_in_a_row() -> None:
    """Without this row, the member would consider the partition to be failed until it has new
    records.
    """
    b = queue(0)
    one, _ = two(b)
    b.topic("u", 2)
    names = {topic_id(b, name): name for name in ("t", "u")}

    def errors_of(answer: Any) -> dict[tuple[str, int], int]:
        return {
            (names[topic.topic_id], row.partition_index): row.error_code
            for topic in answer.responses
            for row in topic.partitions
        }

    refused = {("u", 1): Code.UNKNOWN_SERVER_ERROR}
    first = one.fetch(("t", 0), ("u", 1))
    assert errors_of(first) == {("t", 0): Code.NONE, **refused}
    # in the first round, the partition is new in the session; in the second round, its error begins
    # after rows without an error
    for _ in range(2):
        assert errors_of(one.fetch()) == refused, "as long as it is there"
        begin_group(b, "g", "u")
        assert errors_of(one.fetch()) == {("u", 1): Code.NONE}
        assert errors_of(one.fetch()) == {}
        rows = [deleting.DeleteStateData(topic_id(b, "u"), [deleting.PartitionData(1)])]
        b.call(deleting.DeleteShareGroupStateRequest("g", rows), 0)
        key = SharePartitionKey("g", topic_id(b, "u").bytes, 1)
        b.broker.shares.get().partitions.drop(key, b.now_ms)


def test_a_waiting_fetch_of_a_deleted_topic_gets_an_unknown_topic_error() -> None:
    b = queue(0)
    one, _ = two(b)
    one.send_fetch(("t", 0), max_wait_ms=500)
    b.send(READER, DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 4)
    for _ in range(3):
        b.tick()
    answer = one.answer()
    assert answer is not None
    assert answer.responses[0].partitions[0].error_code == Code.UNKNOWN_TOPIC_ID
    assert not len(b.broker.shares.get().partitions)


# --- logs -----------------------------------------------------------------------------------------


def test_a_group_of_committed_records_sees_no_others() -> None:
    b = queue(1)
    configure(b, "g", share_isolation_level="read_committed")
    m = ShareMember(b, "g", "m")
    assert m.take("t") == [(0, 0, 1)]
    p = Producer(b, "txn")
    p.send("t", 0, b"aborted")
    b.produce("t", (b"plain",))
    assert m.take("t") == [], "the transaction is open"
    p.end(False)
    assert m.take("t") == [(2, 3, 1)]
    assert values(m.last) == [b"plain"]
    p.send("t", 0, b"committed")
    p.end(True)
    assert m.take("t") == [(4, 5, 1)]
    assert values(m.last) == [b"committed"]
    assert m.acknowledge("t", (0, 0, ACCEPT), (2, 5, ACCEPT)) == Code.NONE
    b.kill()
    assert ShareMember(b, "g", "m").take("t") == []


def test_more_aborted_records_than_record_locks_do_not_block_the_group() -> None:
    b = queue(0)
    configure(
        b, "g", share_isolation_level="read_committed", share_partition_max_record_locks="100"
    )
    p = Producer(b, "txn")
    for _ in range(40):
        p.send("t", 0, *(b"aborted" for _ in range(10)))
    p.end(False)
    b.produce("t", (b"plain",))
    m = ShareMember(b, "g", "m")
    found: list[bytes] = []
    for _ in range(10):
        m.take("t")
        found += values(m.last)
    assert found == [b"plain"]


def aborted(count: int, records: int = 1) -> DiskBroker:
    """A broker with a topic of many batches of an aborted transaction, and one record after
    them.
    """
    b = queue(0)
    configure(b, "g", share_isolation_level="read_committed")
    p = Producer(b, "txn")
    for _ in range(count):
        p.send("t", 0, *(b"aborted" for _ in range(records)))
    p.end(False)
    b.produce("t", (b"plain",))
    return b


@pytest.mark.parametrize("how", [{"max_records": 1}, {"max_records": 500, "max_bytes": 1}])
def test_a_fetch_reads_past_aborted_records_in_several_turns(how: dict[str, int]) -> None:
    b = aborted(70)
    one, other = two(b)
    one.send_fetch(("t", 0), max_wait_ms=5000, **how)
    assert one.answer() is None, "there is more to read than in one turn"
    assert b.broker.next_deadline_ms() == 0
    for _ in range(10):
        b.tick(0)
    assert acquired(one.answer()) == [(70, 70, 1)], "the marker of the transaction"
    assert one.take("t") == [(71, 71, 1)]
    assert b.broker.next_deadline_ms() != 0, "nothing is left to do"
    other.send_fetch(("t", 0), max_wait_ms=500)
    assert other.answer() is None


def test_fetches_without_a_wait_come_past_aborted_records() -> None:
    b = aborted(70)
    one, _ = two(b)
    found = [one.take("t", max_records=1) for _ in range(7)]
    assert [each for each in found if each] == [[(70, 70, 1)], [(71, 71, 1)]]


def test_deleted_records_are_skipped_and_may_be_acknowledged() -> None:
    b = queue()
    one, _ = two(b)
    assert one.take("t", max_records=4, batch_size=1) == [(at, at, 1) for at in range(4)]
    rows = [DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 6)])]
    b.call(DeleteRecordsRequest(topics=rows, timeout_ms=100), 2)
    assert one.take("t") == [(6, 9, 1)]
    assert one.acknowledge("t", (0, 3, ACCEPT)) == Code.NONE
    assert one.acknowledge("t", (6, 9, ACCEPT)) == Code.NONE


def test_a_fetch_gets_no_more_bytes_than_it_wants_but_one_batch() -> None:
    b = queue(0)
    for _ in range(10):
        b.produce("t", (bytes(100),))
    one, other = two(b)
    assert one.take("t", max_bytes=400) == [(0, 1, 1)]
    assert other.take("t", max_bytes=1) == [(2, 2, 1)]


def test_a_fetch_of_many_partitions_gets_one_batch_too_much_at_most() -> None:
    """Each partition may provide a batch that is larger than the partition's share of the bytes."""
    b = queue(0, partitions=6)
    for index in range(6):
        b.produce("t", (bytes(100),), partition=index)
    one, _ = two(b)
    one.fetch(*(("t", index) for index in range(6)), max_bytes=300)
    assert len(acquired(one.last)) == 2, "batches of some 170 bytes"


def test_a_fetch_waits_for_no_more_bytes_than_it_may_get() -> None:
    b = queue(10)
    one, _ = two(b)
    assert one.take("t", max_bytes=100, min_bytes=10_000, max_wait_ms=60_000) == [(0, 0, 1)]


@pytest.mark.parametrize("index", [-1, 2])
def test_a_partition_that_the_topic_has_not_is_unknown(index: int) -> None:
    b = queue(2, partitions=2)
    one, _ = two(b)
    row = one.fetch(("t", index)).responses[0].partitions[0]
    assert (row.partition_index, row.error_code) == (index, Code.UNKNOWN_TOPIC_OR_PARTITION)
    assert one.acknowledge("t", (0, 0, ACCEPT), index=index) == Code.UNKNOWN_TOPIC_OR_PARTITION


# --- the whole group ------------------------------------------------------------------------------


def test_an_acknowledgement_is_fenced_after_the_stored_state_was_initialized_again() -> None:
    b = queue()
    one, _ = two(b)
    one.take("t")
    shares = b.broker.shares.get()
    (key,) = shares.coordinator.keys()
    initialize_state(b, key, 1, 7)
    assert one.acknowledge("t", (0, 4, ACCEPT)) == Code.NOT_LEADER_OR_FOLLOWER
    assert one.take("t") == [(7, 9, 1)], "it is loaded again"


def test_a_share_partition_that_another_leader_has_read_gives_no_records() -> None:
    b = queue()
    one, _ = two(b)
    assert one.take("t", max_records=2, mode=1) == [(0, 1, 1)]
    shares = b.broker.shares.get()
    (key,) = shares.coordinator.keys()
    shares.runtime.store(
        [shares.coordinator.decide_read(key, 99, b.now_ms)], lambda _: None, b.now_ms
    )
    assert one.acknowledge("t", (0, 1, ACCEPT)) == Code.NOT_LEADER_OR_FOLLOWER
    row = one.fetch(("t", 0)).responses[0].partitions[0]
    assert (row.error_code, row.acquired_records) == (Code.NOT_LEADER_OR_FOLLOWER, [])


def test_a_waiting_fetch_runs_after_all_acknowledgements_of_a_request() -> None:
    """A member acknowledges records of two partitions in one request. The second partition's state
    was initialised again, so its acknowledgement is refused and its records become available.
    Another member's waiting fetch must then get them once.
    """
    b = queue(0, partitions=2)
    for index in (0, 1):
        b.produce("t", (b"a", b"b", b"c", b"d"), partition=index)
    one, other = two(b)
    assert acquired(one.fetch(("t", 0), ("t", 1))) == [(0, 3, 1), (0, 3, 1)]
    other.send_fetch(("t", 0), ("t", 1), max_wait_ms=60_000, min_bytes=120)
    assert one.acknowledge("t", (2, 3, RELEASE)) == Code.NONE
    assert other.answer() is None, "these are too few bytes"
    shares = b.broker.shares.get()
    (fenced,) = (key for key in list(shares.coordinator.keys()) if key.partition == 1)
    initialize_state(b, fenced, 7, 0)
    rows = [
        AcknowledgePartition(0, [AcknowledgementBatch(0, 1, [ACCEPT])]),
        AcknowledgePartition(1, [AcknowledgementBatch(0, 3, [ACCEPT])]),
    ]
    topics = [AcknowledgeTopic(topic_id(b, "t"), rows)]
    b.send(one.connection, ShareAcknowledgeRequest("g", "one", one.session, False, topics), 2)
    codes = [row.error_code for topic in one.answer().responses for row in topic.partitions]
    assert codes == [Code.NONE, Code.NOT_LEADER_OR_FOLLOWER]
    assert acquired(other.answer()) == [(2, 3, 2), (0, 3, 1)]
    assert ShareMember(b, "g", "three").take("t") == [], "one member holds them"
    assert other.acknowledge("t", (2, 3, ACCEPT)) == Code.NONE


def test_share_partitions_that_no_member_reads_are_dropped() -> None:
    b = queue(6, group_share_max_share_sessions="1", group_share_max_size="1")
    one, other = two(b)
    shares = b.broker.shares.get()
    one.take("t")
    assert len(shares.partitions) == 1
    assert one.acknowledge("t", (0, 5, ACCEPT), session=-1) == Code.NONE
    assert not len(shares.partitions), "after the last request of the member"
    other.take("t")
    other.fetch(session=-1)
    assert not len(shares.partitions), "after a last fetch"


@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize("epoch", [0, 5])
def test_a_group_whose_start_offset_is_reset_reads_from_the_new_offset(
    epoch: int, is_closed: bool
) -> None:
    b = queue(6)
    one, other = two(b)
    one.take("t")
    assert one.acknowledge("t", (0, 3, ACCEPT)) == Code.NONE
    if is_closed:
        one.fetch(session=-1)
    shares = b.broker.shares.get()
    (key,) = shares.coordinator.keys()
    initialize_state(b, key, epoch, 2)
    assert other.take("t") == [(2, 5, 1)]
    assert other.acknowledge("t", (2, 2, ACCEPT)) == Code.NONE


def test_a_group_that_has_read_nothing_is_set_back() -> None:
    """The group has acknowledged nothing, so its stored state is only the start offset. A second
    initialisation sets it back.
    """
    b = queue(6)
    one, other = two(b)
    shares = b.broker.shares.get()
    (key,) = shares.coordinator.keys()
    initialize_state(b, key, 0, 4)
    assert one.take("t") == [(4, 5, 1)]
    initialize_state(b, key, 0, 2)
    assert other.take("t") == [(2, 5, 1)]


def test_the_next_leader_of_a_partition_holds_no_records() -> None:
    b = queue(3)
    one, other = two(b)
    assert one.take("t") == [(0, 2, 1)]
    b.broker.topics.begin_leader_epoch([TopicPartition("t", 0)])
    assert other.take("t") == [(0, 2, 1)], "who held them is not stored"
    assert one.acknowledge("t", (0, 2, ACCEPT)) == Code.INVALID_RECORD_STATE


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_group_whose_state_was_deleted_reads_all_records_again(is_closed: bool) -> None:
    b = queue(6)
    one, other = two(b)
    one.take("t")
    assert one.acknowledge("t", (0, 3, ACCEPT)) == Code.NONE
    if is_closed:
        one.fetch(session=-1)
    shares = b.broker.shares.get()
    (key,) = shares.coordinator.keys()
    delete_state(b, key)
    begin_group(b, "g", "t")
    assert other.take("t") == [(0, 5, 1)]
    if not is_closed:
        assert one.acknowledge("t", (4, 5, ACCEPT)) == Code.INVALID_RECORD_STATE
    assert shares.coordinator.summary(key).start_offset == 0


def test_an_acknowledgement_of_a_deleted_state_does_not_enter_the_next_one() -> None:
    b = queue(6)
    one, other = two(b)
    one.take("t")
    shares = b.broker.shares.get()
    (key,) = shares.coordinator.keys()
    delete_state(b, key)
    begin_group(b, "g", "t")
    assert one.acknowledge("t", (0, 3, ACCEPT)) == Code.NOT_LEADER_OR_FOLLOWER
    assert other.take("t") == [(0, 5, 1)]


@pytest.mark.parametrize("min_bytes", [1, 100, 200, 400])
def test_a_waiting_share_fetch_continues_after_a_new_leader_epoch(min_bytes: int) -> None:
    """A new leader epoch makes the broker load the share partitions again while a fetch waits. The
    fetch must still be answered, and no watcher of the former ones may be left.
    """
    b = queue(0, partitions=2)
    b.produce("t", (b"a", b"b"))
    b.produce("t", (b"a", b"b", b"c", b"d"), partition=1)
    b.produce("t", (b"x",), partition=1)
    one, other = two(b)
    assert acquired(one.fetch(("t", 1), max_records=1)) == [(0, 3, 1)]
    other.send_fetch(("t", 0), ("t", 1), max_wait_ms=60_000, min_bytes=min_bytes)
    places = [TopicPartition("t", index) for index in (0, 1)]
    b.broker.progress.try_fetches(b.broker.topics.begin_leader_epoch(places), b.now_ms)
    b.tick(60_000)
    before = other.answer()
    assert before is not None
    assert acquired(before)[0] == (0, 1, 1)
    watchers = b.broker.purgatory.watchers
    assert sum(len(each) for each in watchers.values()) == len(b.broker.shares.get().partitions)
    assert other.fetch().error_code == Code.NONE


@pytest.mark.parametrize("acknowledges", [True, False])
def test_a_last_request_in_slices_does_not_end_the_next_session(acknowledges: bool) -> None:
    """A member's request that ends its session is processed in slices. Meanwhile the same member
    begins a new session, which must not end with the old one.
    """
    b = DiskBroker(**SHARED)
    b.topic_after_flushes("t", partitions=450)
    begin_group(b, "g", "t")
    for index in range(450):
        b.produce("t", (b"x",), partition=index)
    one = ShareMember(b, "g", "m")
    one.send_fetch(*(("t", index) for index in range(450)))
    repeat_until(lambda: one.answer() is not None, b.tick)
    if acknowledges:
        rows = [
            AcknowledgePartition(index, [AcknowledgementBatch(0, 0, [ACCEPT])])
            for index in range(450)
        ]
        topics = [AcknowledgeTopic(topic_id(b, "t"), rows)]
        b.send(one.connection, ShareAcknowledgeRequest("g", "m", -1, False, topics), 2)
    else:
        held = {("t", index): [(0, 0, ACCEPT)] for index in range(450)}
        one.send_fetch(session=-1, acknowledged=held)
    again = ShareMember(b, "g", "m")
    b.produce("t", (b"y",))
    again.fetch(("t", 0))
    for _ in range(10):
        b.tick()
    assert one.answer().error_code == Code.NONE
    assert again.fetch().error_code == Code.NONE


def test_sessions_have_no_more_partitions_than_the_broker_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(share_sessions, "MOST_PARTITIONS", 5)
    b = queue(1, partitions=20)
    one, other = two(b)
    sessions = b.broker.shares.get().sessions
    places = [("t", index) for index in range(20)]
    assert one.fetch(*places[:4]).error_code == Code.NONE
    assert one.fetch(*places).error_code == Code.SHARE_SESSION_LIMIT_REACHED
    assert other.fetch(*places[:2]).error_code == Code.SHARE_SESSION_LIMIT_REACHED
    assert (sessions.partition_count, len(sessions)) == (4, 1)
    assert one.fetch(*places[3:6], forgotten=(places[0],)).error_code == Code.NONE
    assert sessions.partition_count == 5
    assert one.fetch(*places[:2], forgotten=(places[5], places[4])).error_code == Code.NONE
    assert sessions.partition_count == 4


@pytest.mark.parametrize("end", ["last request", "connection", "begun again", "forgotten"])
def test_the_partition_count_of_all_sessions_stays_right(end: str) -> None:
    """The count must be right after every way in which a session ends or shrinks. If it stayed too
    high, the broker would finally refuse all new sessions.
    """
    b = queue(1, partitions=20)
    one, other = two(b)
    sessions = b.broker.shares.get().sessions
    places = [("t", index) for index in range(20)]
    other.fetch(*places[:3])
    for count in (5, 2, 7):
        assert one.fetch(*places[:count]).error_code == Code.NONE
        assert sessions.partition_count == 3 + count
        if end == "last request":
            one.fetch(session=-1)
        elif end == "connection":
            one.hang_up()
        elif end == "begun again":
            one.fetch(places[0], session=0)
        else:
            one.fetch(forgotten=tuple(places[:count]))
        assert sessions.partition_count == sum(len(session.targets) for session in sessions)
        one = ShareMember(b, "g", "one")
    one.fetch(session=0)
    one.fetch(session=-1)
    other.fetch(session=-1)
    assert (sessions.partition_count, len(sessions)) == (0, 0)


def test_the_limits_of_a_group_without_sessions_are_dropped() -> None:
    b = queue(3)
    one, other = two(b)
    one.take("t")
    other.take("t")
    partitions = b.broker.shares.get().partitions
    one.hang_up()
    assert list(partitions._limits) == ["g"]
    other.hang_up()
    assert (len(partitions), partitions._limits) == (0, {})


def test_renewed_and_released_locks_do_not_accumulate() -> None:
    b = queue(0)
    b.produce("t", tuple(b"x" for _ in range(100)))
    one, _ = two(b)
    one.take("t")
    (loaded,) = b.broker.shares.get().partitions
    each = [(at, at, RENEW) for at in range(100)]
    for _ in range(10):
        b.tick(100)
        assert one.acknowledge("t", *each, is_renewal=True) == Code.NONE
        assert len(loaded.value._locks) <= 200
    for _ in range(4):
        one.acknowledge("t", *((at, at, RELEASE) for at in range(100)))
        while one.take("t"):
            pass
        assert len(loaded.value._locks) <= 200
    b.tick(LOCK_MS - 1)
    assert one.acknowledge("t", (0, 0, RENEW), is_renewal=True) == Code.NONE
    b.tick(1)
    assert one.acknowledge("t", (99, 99, ACCEPT)) == Code.INVALID_RECORD_STATE
    assert one.acknowledge("t", (0, 0, ACCEPT)) == Code.NONE


def test_locks_end_in_several_ticks() -> None:
    """For each lock that ends, a record is written to the state topic, at most 100 in a tick."""
    b = queue(0)
    b.produce("t", tuple(b"x" for _ in range(500)))
    one, other = two(b)
    assert one.take("t") == [(0, 499, 1)]
    assert one.acknowledge("t", (0, 0, RELEASE)) == Code.NONE
    other.send_fetch(("t", 0), max_wait_ms=2 * LOCK_MS, min_bytes=1 << 19)
    states = b.broker.topics.logs_of("__share_group_state")
    ends = []
    b.now_ms += LOCK_MS
    for _ in range(8):
        before = sum(log.log_end_offset for log in states)
        b.tick(0)
        ends.append(sum(log.log_end_offset for log in states) - before)
        deadline_ms = b.broker.next_deadline_ms()
        assert sum(ends) == 499 or (deadline_ms is not None and deadline_ms <= b.now_ms)
    assert sum(ends) == 499
    assert max(ends) <= 100
    assert ShareMember(b, "g", "three").take("t") != []


def test_lock_expiries_that_could_not_be_written_are_stored_with_the_next_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = queue(4)
    one, other = two(b)
    assert one.take("t") == [(0, 3, 1)]

    def is_full(*_: object) -> None:
        raise NotWrittenError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patched:
        patched.setattr(share_runtime, "append_records", is_full)
        b.tick(LOCK_MS)
    assert other.take("t", max_records=1, mode=1) == [(0, 0, 2)]
    assert other.acknowledge("t", (0, 0, ACCEPT)) == Code.NONE
    other.fetch(session=-1)
    one.fetch(session=-1)
    assert not len(b.broker.shares.get().partitions)
    b.kill()
    assert ShareMember(b, "g", "m").take("t") == [(1, 3, 2)]


@pytest.mark.parametrize("mode", [2, -1])
def test_an_unknown_mode_of_acquisition_is_refused(mode: int) -> None:
    b = queue()
    one, _ = two(b)
    assert one.fetch(("t", 0), mode=mode).error_code == Code.INVALID_REQUEST


@pytest.mark.parametrize("batch_size", [0, -1])
def test_a_batch_size_below_one_gives_each_batch_of_the_log(batch_size: int) -> None:
    b = queue()
    one, _ = two(b)
    answer = one.fetch(("t", 0), batch_size=batch_size)
    rows = answer.responses[0].partitions[0].acquired_records
    assert [(row.first_offset, row.last_offset) for row in rows] == [(n, n) for n in range(10)]


def test_a_group_without_a_name_is_refused() -> None:
    b = queue()
    request = ShareFetchRequest(group_id=None, member_id="m")
    assert b.call(request, 2).error_code == Code.INVALID_REQUEST


def test_many_partitions_are_loaded_in_slices() -> None:
    b = DiskBroker(**SHARED)
    b.topic_after_flushes("t", partitions=450)
    begin_group(b, "g", "t")
    b.produce("t", (b"x",), partition=449)
    one, _ = two(b)
    places = tuple(("t", index) for index in range(450))
    one.send_fetch(*places)
    assert one.answer() is None
    repeat_until(lambda: one.answer() is not None, b.tick)
    rows = [row for topic in one.last.responses for row in topic.partitions]
    assert len(rows) == 450
    assert acquired(one.last) == [(0, 0, 1)]
    session = next(iter(b.broker.shares.get().sessions))
    one.take("t", 449)
    assert len(session.ready) <= 1, "partitions without records are not visited"
    b.produce("t", (b"y",), partition=3)
    assert one.take("t", 3) == [(0, 0, 1)]
    assert topic_id(b, "t")


def test_refused_acknowledgements_do_not_drop_unstored_lock_expiries() -> None:
    """Because of a lack of space, the expiry of a lock could not be stored, and an acknowledgement
    was refused.
    """
    b = queue(3)
    one, other = two(b)
    assert one.take("t") == [(0, 2, 1)]
    b.disk.refuse(Refusal(ALL, errno.ENOSPC))
    b.tick(LOCK_MS)
    assert other.take("t") == [(0, 2, 2)], "the end of the locks is not stored"
    (loaded,) = b.broker.shares.get().partitions._loaded.values()
    unstored = list(loaded.unstored)
    assert unstored
    for _ in range(2):
        assert other.acknowledge("t", (0, 0, ACCEPT)) == Code.COORDINATOR_NOT_AVAILABLE
        assert loaded.unstored == unstored
    b.disk.refuse(None)
    assert other.acknowledge("t", (0, 0, ACCEPT)) == Code.NONE
    assert loaded.unstored == []
    b.kill()
    assert ShareMember(b, "g", "three").take("t") == [(1, 2, 2)], "of the two that began, one ended"


def test_what_is_not_stored_yet_outlives_the_last_session() -> None:
    b = queue(1)
    one, other = two(b)
    assert one.take("t") == [(0, 0, 1)]
    b.disk.refuse(Refusal(ALL, errno.ENOSPC))
    b.tick(LOCK_MS)
    one.hang_up()
    assert len(b.broker.shares.get().partitions) == 1
    b.disk.refuse(None)
    assert other.take("t") == [(0, 0, 2)], "its first delivery counts"


def test_the_epoch_of_a_session_begins_again_behind_the_highest() -> None:
    sessions, key = ShareSessions(1), SessionKey("g", "m", 1)
    session = sessions.begin(key, 1)
    session.epoch = MAX_EPOCH
    session.advance()
    assert sessions.require(key, 1) is session


class Chained:
    """A share partition whose fetch, when it is woken, wakes the next share partition."""

    def __init__(self, wakes: Wakes, running: list[Chained]) -> None:
        self.wakes, self.running, self.count = wakes, running, 0
        self.following: Chained | None = None

    def wake_now(self, now_ms: int) -> None:
        assert not self.running, "another share partition is being woken"
        self.running.append(self)
        self.count += 1
        if self.following is not None:
            self.wakes.wake(self.following, now_ms)  # type: ignore[arg-type]
        self.running.pop()


def test_share_partitions_that_wake_each_other_are_woken_one_after_the_other() -> None:
    """The fetches of any number of share partitions are not nested, so the stack cannot
    overflow.
    """
    wakes, running = Wakes(), list[Chained]()
    chain = [Chained(wakes, running) for _ in range(2_000)]
    for one, other in itertools.pairwise(chain):
        one.following = other
    with wakes:
        wakes.wake(chain[0], 0)  # type: ignore[arg-type]
        assert chain[0].count == 0, "it is deferred to the end"
    assert {one.count for one in chain} == {1}


def test_the_stored_count_of_complete_deliveries_includes_those_of_the_change() -> None:
    """It is what DescribeShareGroupOffsets computes the lag from."""
    b = queue(10)
    one, _ = two(b)
    assert one.take("t") == [(0, 9, 1)]

    def stored() -> int:
        coordinator = b.broker.shares.get().coordinator
        (key,) = coordinator.keys()
        return coordinator.summary(key).delivery_complete_count

    assert one.acknowledge("t", (3, 4, ACCEPT)) == Code.NONE
    assert stored() == 2
    assert one.acknowledge("t", (6, 8, REJECT)) == Code.NONE
    assert stored() == 5


def test_changes_that_could_not_be_stored_replace_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Members may fetch and hang up for as long as the disk is full."""
    b = queue(4)

    def is_full(*_: object) -> None:
        raise NotWrittenError(errno.ENOSPC, "no space")

    one, _ = two(b)
    assert one.take("t") != []
    (key,) = b.broker.shares.get().coordinator.keys()
    loaded = b.broker.shares.get().partitions.get(key)
    assert loaded is not None
    with monkeypatch.context() as patched:
        patched.setattr(share_runtime, "append_records", is_full)
        for _ in range(4):
            one.fetch(session=-1)
            one = ShareMember(b, "g", "one")
            one.take("t")
    assert sum(run.last_offset - run.first_offset + 1 for run in loaded.unstored) == 4
