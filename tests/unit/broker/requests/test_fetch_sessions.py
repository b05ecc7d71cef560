"""Incremental fetch sessions (KIP-227). The expected values of the two long tests are the responses
of Apache Kafka 3.9 to the same requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.core_host import CoreHost, fetch, produce

from barnabas.broker.requests.fetch_sessions import EVICTION_MS, FetchTarget
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.fetch import FetchPartition
from barnabas.protocol.records import records_of

VERSION = 12
Told = dict[tuple[str, int], tuple[int, int, list[bytes | None]]]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[CoreHost]:
    host = CoreHost(tmp_path, max_incremental_fetch_session_cache_slots="2")
    host.connect(1)
    host.connect(2)
    yield host
    host.close()


def ask(
    host: CoreHost,
    topics: dict[str, dict[int, int]],
    *,
    connection: int = 1,
    version: int = VERSION,
    **more: Any,
) -> Any:
    return host.call(connection, fetch(topics, **more), version)


def reported(answer: Any) -> Told:
    """Return the (error code, high watermark, values) of each partition in a response, in the order
    of the response.
    """
    assert answer.error_code == Code.NONE
    return {
        (topic.topic, row.partition_index): (
            row.error_code,
            row.high_watermark,
            [record.value for record in records_of(bytes(row.records))] if row.records else [],
        )
        for topic in answer.responses
        for row in topic.partitions
    }


def test_an_incremental_response_has_only_the_partitions_with_changes(host: CoreHost) -> None:
    host.create("t", 3)
    host.call(1, produce("t", b"a"), 9)
    first = ask(host, {"t": {0: 0, 1: 0}}, session=(0, 0))
    session = first.session_id
    assert session != 0
    assert reported(first) == {("t", 0): (0, 1, [b"a"]), ("t", 1): (0, 0, [])}
    again = ask(host, {}, session=(session, 1))
    assert reported(again) == {("t", 0): (0, 1, [b"a"])}, (
        "nothing changed, but the client's offset is still before the data"
    )
    assert reported(ask(host, {"t": {0: 1}}, session=(session, 2))) == {}, "the offset moves on"
    assert reported(ask(host, {}, session=(session, 3))) == {}
    host.call(1, produce("t", b"b", partition=1), 9)
    assert reported(ask(host, {}, session=(session, 4))) == {("t", 1): (0, 1, [b"b"])}
    assert reported(ask(host, {"t": {1: 1, 2: 0}}, session=(session, 5))) == {
        ("t", 2): (0, 0, [])
    }, "a third is added"
    for partition, value in enumerate((b"c", b"d", b"e")):
        host.call(1, produce("t", value, partition=partition), 9)
    assert list(reported(ask(host, {}, forget={"t": [0]}, session=(session, 6)))) == [
        ("t", 1),
        ("t", 2),
    ], "the first is forgotten"
    assert (
        reported(ask(host, {"t": {1: 2, 2: 1}}, forget={"t": [9]}, session=(session, 7))) == {}
    ), "a forgotten partition that is not in the session is ignored"
    wrong = {("t", 1): (Code.OFFSET_OUT_OF_RANGE, -1, [])}
    assert reported(ask(host, {"t": {1: 77}}, session=(session, 8))) == wrong
    assert reported(ask(host, {}, session=(session, 9))) == wrong, (
        "an error is returned in each response"
    )
    missing = ("missing", 0)
    answer = reported(ask(host, {"t": {1: 2}, "missing": {0: 0}}, session=(session, 10)))
    assert answer[missing] == (Code.UNKNOWN_TOPIC_OR_PARTITION, -1, []) and answer["t", 1] == (
        0,
        2,
        [],
    )
    assert reported(ask(host, {}, session=(session, 11))) == {
        missing: (Code.UNKNOWN_TOPIC_OR_PARTITION, -1, [])
    }
    closing = ask(host, {"t": {0: 0}}, session=(session, -1))
    assert closing.session_id == 0 and ("t", 0) in reported(closing)
    refused = ask(host, {}, session=(session, 12))
    assert (refused.error_code, refused.session_id, refused.responses) == (
        Code.FETCH_SESSION_ID_NOT_FOUND,
        0,
        [],
    )


@pytest.mark.parametrize("high_watermark", [-1, 5])
def test_a_partition_is_in_the_response_again_after_its_error_has_ended(
    high_watermark: int,
) -> None:
    """A client that got an error waits until a response contains the partition again."""
    target = FetchTarget("t", FetchPartition(partition=0))
    assert target.has_news(0, 5, 0, 0)
    assert not target.has_news(0, 5, 0, 0)
    assert target.has_news(Code.KAFKA_STORAGE_ERROR, high_watermark, 0, 0)
    assert target.has_news(0, 5, 0, 0)
    assert not target.has_news(0, 5, 0, 0)


def test_requests_with_a_wrong_session_id_or_epoch_are_refused(host: CoreHost) -> None:
    host.create("t")
    host.call(1, produce("t", b"a"), 9)
    session = ask(host, {"t": {0: 0}}, session=(0, 0)).session_id

    def refusal(
        session_id: int, epoch: int, topics: dict[str, dict[int, int]] | None = None
    ) -> tuple[int, int]:
        answer = ask(host, topics or {}, session=(session_id, epoch))
        return answer.error_code, answer.session_id

    assert refusal(session, 2) == (Code.INVALID_FETCH_SESSION_EPOCH, 0)
    assert reported(ask(host, {}, session=(session, 1))) == {("t", 0): (0, 1, [b"a"])}, (
        "the right one after that"
    )
    assert refusal(session, 1) == (Code.INVALID_FETCH_SESSION_EPOCH, 0)
    assert refusal(session + 1, 1) == (Code.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert refusal(0, 1) == (Code.FETCH_SESSION_ID_NOT_FOUND, 0)
    older = ask(host, {}, session=(session, 2), version=7)
    assert older.session_id == session and ("t", 0) in reported(older)
    elsewhere = ask(host, {"t": {0: 1}}, session=(session, 3), connection=2)
    assert (elsewhere.session_id, reported(elsewhere)) == (session, {})
    request = fetch({}, session=(session, 4))
    by_id = host.call(1, request, 13)
    assert (by_id.error_code, by_id.session_id) == (Code.FETCH_SESSION_TOPIC_ID_ERROR, 0)


def test_a_session_without_partitions_ends_with_its_next_request(host: CoreHost) -> None:
    begun = ask(host, {}, session=(0, 0))
    assert begun.session_id != 0
    asked = ask(host, {}, session=(begun.session_id, 1))
    assert (asked.error_code, asked.session_id) == (Code.NONE, 0)
    assert len(host.broker.cluster.nodes[1].fetch_sessions) == 0


def test_epoch_0_with_a_session_id_replaces_that_session(host: CoreHost) -> None:
    """Epoch 0 with the id of a session closes that session and creates another."""
    host.create("t")
    first = ask(host, {"t": {0: 0}}, session=(0, 0)).session_id
    second = ask(host, {"t": {0: 0}}, session=(first, 0)).session_id
    assert second not in (0, first)
    assert ask(host, {}, session=(first, 1)).error_code == Code.FETCH_SESSION_ID_NOT_FOUND


def test_epochs_wrap_to_one(host: CoreHost) -> None:
    host.create("t")
    session = ask(host, {"t": {0: 0}}, session=(0, 0)).session_id
    host.broker.cluster.nodes[1].fetch_sessions._sessions[session].epoch = 2**31 - 1
    assert ask(host, {}, session=(session, 2**31 - 1)).error_code == Code.NONE
    assert ask(host, {}, session=(session, 1)).error_code == Code.NONE


def test_without_a_free_slot_a_client_gets_no_session_until_one_is_idle(host: CoreHost) -> None:
    """A session may be evicted after two idle minutes. Until then a new client gets no session, and
    each of its responses has all its partitions.
    """
    host.create("t")
    first, second = (ask(host, {"t": {0: 0}}, session=(0, 0)).session_id for _ in range(2))
    host.now_ms += EVICTION_MS - 1
    assert ask(host, {}, session=(first, 1)).error_code == Code.NONE, (
        "it is used: the other is the one that rests"
    )
    assert ask(host, {"t": {0: 0}}, session=(0, 0)).session_id == 0
    host.now_ms += 1
    third = ask(host, {"t": {0: 0}}, session=(0, 0)).session_id
    assert third != 0
    assert ask(host, {}, session=(second, 1)).error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    assert ask(host, {}, session=(first, 2)).error_code == Code.NONE


def test_a_session_with_more_partitions_evicts_an_old_one_with_fewer(host: CoreHost) -> None:
    """Of the sessions that are older than two minutes, the one with the fewest partitions is
    evicted, although it is in use.
    """
    host.create("t", 3)
    many = ask(host, {"t": {0: 0, 1: 0}}, session=(0, 0)).session_id
    few = ask(host, {"t": {0: 0}}, session=(0, 0)).session_id
    host.now_ms += EVICTION_MS - 1
    assert ask(host, {}, session=(many, 1)).error_code == Code.NONE
    assert ask(host, {}, session=(few, 1)).error_code == Code.NONE
    assert ask(host, {"t": {0: 0, 1: 0}}, session=(0, 0)).session_id == 0, "they are too young"
    host.now_ms += 1
    assert ask(host, {"t": {0: 0}}, session=(0, 0)).session_id == 0, "it has no more than another"
    third = ask(host, {"t": {0: 0, 1: 0}}, session=(0, 0)).session_id
    assert third != 0
    assert ask(host, {}, session=(few, 2)).error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    assert ask(host, {}, session=(many, 2)).error_code == Code.NONE
    assert ask(host, {"t": {0: 0, 1: 0, 2: 0}}, session=(0, 0)).session_id != 0
    assert ask(host, {}, session=(many, 3)).error_code == Code.FETCH_SESSION_ID_NOT_FOUND


@pytest.fixture
def small(host: CoreHost) -> CoreHost:
    """A broker whose sessions may have ten partitions in total."""
    host.create("t", 20)
    host.broker.cluster.nodes[1].fetch_sessions._weights.limit = 10
    return host


def partitions(*indexes: int) -> dict[str, dict[int, int]]:
    return {"t": dict.fromkeys(indexes, 0)}


def test_the_partitions_of_all_sessions_together_are_bounded(small: CoreHost) -> None:
    """If a client's partitions would exceed the limit, it gets no session, and each of its
    responses has all its partitions. Sessions that were idle for two minutes are evicted.
    """
    first = ask(small, partitions(*range(6)), session=(0, 0)).session_id
    none = ask(small, partitions(*range(5)), session=(0, 0))
    assert (none.session_id, len(reported(none))) == (0, 5)
    second = ask(small, partitions(*range(4)), session=(0, 0)).session_id
    assert 0 not in (first, second)
    assert ask(small, partitions(0), session=(0, 0)).session_id == 0
    small.now_ms += EVICTION_MS - 1
    assert ask(small, {}, session=(second, 1)).error_code == Code.NONE
    assert ask(small, partitions(*range(6)), session=(0, 0)).session_id == 0
    small.now_ms += 1
    assert ask(small, partitions(*range(6)), session=(0, 0)).session_id != 0
    assert ask(small, {}, session=(first, 1)).error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    assert ask(small, {}, session=(second, 2)).error_code == Code.NONE


def test_forgotten_partitions_and_closed_sessions_make_room_for_others(small: CoreHost) -> None:
    """The sessions of a broker may have a limited number of partitions together. Partitions that
    are forgotten, and sessions that are closed, count no longer.
    """
    first = ask(small, partitions(*range(10)), session=(0, 0)).session_id
    assert ask(small, {}, session=(first, 1), forget={"t": [0, 1, 2, 2, 17]}).error_code == 0
    second = ask(small, partitions(*range(3)), session=(0, 0)).session_id
    assert second != 0
    assert ask(small, partitions(0), session=(0, 0)).session_id == 0
    assert ask(small, {}, session=(second, 1), forget={"t": [0, 1, 2]}).session_id == 0
    third = ask(small, partitions(*range(3)), session=(0, 0)).session_id
    assert third != 0
    ask(small, {}, session=(third, -1))
    ask(small, partitions(3), session=(first, 0))
    assert small.broker.cluster.nodes[1].fetch_sessions.weight == 1
    small.broker.cluster.nodes[1].fetch_sessions.clear()
    assert small.broker.cluster.nodes[1].fetch_sessions.weight == 0


def test_a_session_ends_when_it_grows_beyond_the_common_bound(small: CoreHost) -> None:
    """All sessions together may have a limited number of partitions. A session that would exceed it
    ends, unless an idle session can be evicted.
    """
    first = ask(small, partitions(*range(6)), session=(0, 0)).session_id
    second = ask(small, partitions(*range(3)), session=(0, 0)).session_id
    assert ask(small, partitions(3), session=(second, 1)).error_code == Code.NONE
    grown = ask(small, partitions(4), session=(second, 2))
    assert (grown.error_code, grown.session_id) == (Code.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert small.broker.cluster.nodes[1].fetch_sessions.weight == 6
    third = ask(small, partitions(1), session=(0, 0)).session_id
    small.now_ms += EVICTION_MS
    more = ask(small, partitions(*range(2, 8)), session=(third, 1))
    assert more.error_code == Code.NONE, "the idle session is evicted"
    assert ask(small, {}, session=(first, 1)).error_code == Code.FETCH_SESSION_ID_NOT_FOUND


def test_a_partition_of_a_topic_with_a_long_name_counts_as_several(small: CoreHost) -> None:
    for length, count in ((255, 1), (256, 2), (2303, 9), (2304, 10)):
        session = ask(small, {"n" * length: {0: 0}}, session=(0, 0)).session_id
        assert (session != 0, small.broker.cluster.nodes[1].fetch_sessions.weight) == (True, count)
        ask(small, {}, session=(session, -1))
    assert ask(small, {"n" * 2560: {0: 0}}, session=(0, 0)).session_id == 0


def test_partitions_whose_records_were_sent_move_to_the_end_of_the_session(host: CoreHost) -> None:
    """If partitions with records kept their place in the session, a fetch with a small max_bytes
    would never read the last ones.
    """
    host.create("t", 3)
    for partition in range(3):
        host.call(1, produce("t", b"x" * 500, partition=partition), 9)
    session = ask(host, {"t": {0: 5, 1: 5, 2: 5}}, session=(0, 0)).session_id
    request = fetch({"t": {0: 0, 1: 0, 2: 0}}, session=(session, 1))
    request.max_bytes = 1
    order = []
    for epoch in range(1, 4):
        request.session_epoch = epoch
        rows = reported(host.call(1, request, VERSION))
        order += [key[1] for key, row in rows.items() if row[2]]
        request = fetch({}, session=(session, epoch + 1))
        request.max_bytes = 1
    assert order == [0, 1, 2]


# --- shares of the room ---------------------------------------------------------------------------


def test_a_principal_that_holds_all_the_room_shuts_no_other_out(small: CoreHost) -> None:
    """The largest session of the principal that holds most ends, for one within its share."""
    for connection, principal in ((1, "User:eve"), (2, "User:ada")):
        small.broker.connections[connection].principal = principal
    large = ask(small, partitions(*range(6)), session=(0, 0)).session_id
    small.broker.cluster.nodes[1].fetch_sessions._count.limit = 3
    other = ask(small, partitions(*range(4)), session=(0, 0)).session_id
    assert 0 not in (large, other)
    assert ask(small, partitions(0), session=(0, 0)).session_id == 0, "its own share is used up"
    assert ask(small, partitions(*range(6)), session=(0, 0), connection=2).session_id == 0
    modest = ask(small, partitions(*range(5)), session=(0, 0), connection=2).session_id
    assert modest != 0
    assert ask(small, {}, session=(large, 1)).error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    assert ask(small, {}, session=(other, 1)).error_code == Code.NONE


def test_a_principal_with_all_slots_shuts_no_other_out(host: CoreHost) -> None:
    host.create("t")
    host.broker.connections[2].client_host = "/192.0.2.77"
    first, second = (ask(host, {"t": {0: 0}}, session=(0, 0)).session_id for _ in range(2))
    assert ask(host, {"t": {0: 0}}, session=(0, 0)).session_id == 0
    assert ask(host, {"t": {0: 0}}, session=(0, 0), connection=2).session_id != 0
    assert ask(host, {"t": {0: 0}}, session=(0, 0), connection=2).session_id == 0, "it has a half"
    codes = [ask(host, {}, session=(one, 1)).error_code for one in (first, second)]
    assert sorted(codes) == [Code.NONE, Code.FETCH_SESSION_ID_NOT_FOUND]


def test_a_session_grows_at_the_cost_of_one_that_holds_more_than_its_share(small: CoreHost) -> None:
    small.broker.connections[2].client_host = "/192.0.2.77"
    modest = ask(small, partitions(0), session=(0, 0), connection=2).session_id
    large = ask(small, partitions(*range(9)), session=(0, 0)).session_id
    grown = ask(small, partitions(1, 2), session=(modest, 1), connection=2)
    assert grown.error_code == Code.NONE
    assert ask(small, {}, session=(large, 1)).error_code == Code.FETCH_SESSION_ID_NOT_FOUND
    assert small.broker.cluster.nodes[1].fetch_sessions.weight == 3


def test_a_large_request_is_planned_in_slices(host: CoreHost) -> None:
    """Its session is the same as if it had been planned at once."""
    host.create("t", 3)
    host.ask(1, fetch(partitions(*range(5_000)), session=(0, 0)), VERSION)
    sessions = host.broker.cluster.nodes[1].fetch_sessions
    assert len(sessions) == 0 and not host.answers[1], "other clients are served first"
    session = host.await_answer(1).session_id
    assert (sessions.weight, len(sessions)) == (5_000, 1)
    forgotten = {"t": list(range(3, 2_500))}
    host.ask(
        1, fetch(partitions(*range(2_500, 6_000)), session=(session, 1), forget=forgotten), VERSION
    )
    rows = reported(host.await_answer(1))
    assert sessions.weight == 6_000 - 2_497 and len(rows) == 3_500
