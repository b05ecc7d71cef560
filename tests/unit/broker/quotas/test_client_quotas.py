"""Throttling of clients above their quotas, on a real core: the throttle times in responses, and
for how long the server reads nothing from these clients. The numbers follow the formula of Apache
Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.admin_host import NOW_MS, creatable
from helpers.core_host import CoreHost, fetch, produce
from helpers.disk_broker import READER, DiskBroker
from helpers.our_messages import request_frame
from helpers.repeating import repeat_until

from barnabas.broker.logs.metadata import QuotaEntity
from barnabas.broker.quotas.client_quotas import FEWEST_KEPT, ClientQuotas
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

CLIENT, OTHER_CLIENT = (("client-id", "tests"),), (("client-id", "other"),)
ALL_USERS: QuotaEntity = (("user", None),)
VALUE = b"x" * 12_000
# over ten windows of 1 s, one value means 1200 B/s, which is below this quota, and two values mean
# 2400 B/s
VALUE_RATE = 2000.0
RECORD_BYTES = 70  # slightly more than the overhead of a batch with one record


@pytest.fixture
def host(tmp_path: Path) -> Iterator[CoreHost]:
    host = CoreHost(tmp_path)
    host.create("t")
    host.connect(1)
    yield host
    host.close()


def put(host: CoreHost, entity: QuotaEntity = CLIENT, **quotas: float) -> ClientQuotas | None:
    host.broker.quotas.set({entity: quotas})
    return host.broker.quotas.clients


def mutes(host: CoreHost) -> list[tuple[int, int]]:
    muted, host.broker.outbox.mutes = host.broker.outbox.mutes, []
    return muted


def call(host: CoreHost, request: Message, version: int) -> Any:
    """Send a request that may be processed in slices. Gives: its response."""
    before = len(host.answers[1])
    host.ask(1, request, version)
    repeat_until(lambda: len(host.answers[1]) != before, lambda: host.tick(0))
    return host.answers[1][-1]


def metadata(*names: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])


def size_of(request: Message, version: int) -> int:
    return len(request_frame(request, version, 1))


# --- Produce ------------------------------------------------------------------------------------


def test_a_produce_above_its_quota_is_appended_and_throttled(host: CoreHost) -> None:
    put(host, producer_byte_rate=1000.0)
    request = produce("t", VALUE)
    answer = host.call(1, request, 9)
    # The bytes of the frame count over ten windows of a second, the last of which has just begun.
    throttle_ms = size_of(request, 9) - 10_000
    assert answer.throttle_time_ms == throttle_ms > 2000
    assert answer.responses[0].partition_responses[0].error_code == Code.NONE
    assert mutes(host) == [(1, throttle_ms)]
    log = host.broker.topics.partition("t", 0)
    assert log is not None and log.log_end_offset == 1


def test_a_first_quota_applies_to_kinds_of_requests_that_were_sent_before(host: CoreHost) -> None:
    """Once the only quota is removed, no request is throttled."""
    for _ in range(2):
        assert host.call(1, produce("t", VALUE), 9).throttle_time_ms == 0
        assert mutes(host) == []
        put(host, producer_byte_rate=1000.0)
        assert host.call(1, produce("t", VALUE), 9).throttle_time_ms > 2000
        assert [connection for connection, _ in mutes(host)] == [1]
        assert put(host) is None


def test_a_produce_with_acks_0_is_throttled_for_the_same_time(host: CoreHost) -> None:
    put(host, producer_byte_rate=1000.0)
    request = produce("t", VALUE, acks=0)
    host.ask(1, request, 9)
    assert host.answers[1] == [None]
    assert mutes(host) == [(1, size_of(request, 9) - 10_000)]


def test_the_throttle_time_of_a_produce_that_waits_for_a_flush_is_from_its_response_on(
    tmp_path: Path,
) -> None:
    host = CoreHost(tmp_path, log_flush_interval_messages="1")
    host.create("t")
    host.connect(1)
    put(host, producer_byte_rate=1000.0)
    request = produce("t", VALUE)
    host.ask(1, request, 9)
    assert mutes(host) == []
    host.tick(500)
    host.flush()
    (answer,) = host.answers[1]
    assert answer.throttle_time_ms == size_of(request, 9) - 10_500
    assert mutes(host) == [(1, answer.throttle_time_ms)]
    host.close()


def test_only_produce_requests_count_for_the_producer_byte_rate(host: CoreHost) -> None:
    put(host, producer_byte_rate=VALUE_RATE)
    assert host.call(1, produce("t", VALUE), 9).throttle_time_ms == 0
    for _ in range(5):
        host.call(1, metadata("t"), 12)
    assert host.call(1, produce("t"), 9).throttle_time_ms == 0


def test_a_produce_below_its_quota_is_not_throttled(host: CoreHost) -> None:
    put(host, producer_byte_rate=2000.0)
    assert host.call(1, produce("t", VALUE), 9).throttle_time_ms == 0
    assert mutes(host) == []
    # When the quota changes, earlier bytes still count.
    put(host, producer_byte_rate=1000.0)
    assert host.call(1, produce("t"), 9).throttle_time_ms > 2000
    put(host)
    assert host.broker.quotas.clients is None
    assert host.call(1, produce("t", VALUE), 9).throttle_time_ms == 0


# --- Fetch --------------------------------------------------------------------------------------


def fetched(host: CoreHost, **more: Any) -> tuple[int, int]:
    """Send a Fetch. Gives the throttle time and the number of bytes of records."""
    answer = host.call(1, fetch({"t": {0: 0}}, **more), 11)
    records = [part.records or b"" for topic in answer.responses for part in topic.partitions]
    return answer.throttle_time_ms, sum(map(len, records))


def test_a_fetch_above_its_quota_gets_no_records(host: CoreHost) -> None:
    """The numbers correspond to a recording of Apache Kafka, where 76 of 10,076 bytes were not
    records. In this test they are 67 bytes, since the topic's name has one letter.
    """
    for _ in range(3):
        host.call(1, produce("t", b"x" * 9_900), 9)
    put(host, consumer_byte_rate=1000.0)
    throttle_ms, size = fetched(host)
    assert (throttle_ms, size) == (67, 0)
    assert mutes(host) == [(1, 67)]
    host.tick(207)
    assert fetched(host) == (0, 10_000)
    host.tick(143)
    throttle_ms, size = fetched(host)
    assert (throttle_ms, size) == (2 * 10_067 - 10_350, 0)
    assert len(host.broker.cluster.nodes[1].fetch_sessions) == 0


def test_a_throttled_fetch_does_not_change_its_session(host: CoreHost) -> None:
    put(host, consumer_byte_rate=1000.0)
    begun = host.call(1, fetch({"t": {0: 0}}, session=(0, 0)), 11)
    assert begun.throttle_time_ms == 0 and begun.session_id
    host.call(1, produce("t", VALUE), 9)
    waits = host.call(1, fetch({}, session=(begun.session_id, 1)), 11)
    assert waits.throttle_time_ms > 2000
    assert (waits.session_id, waits.responses) == (begun.session_id, [])
    host.tick(20_000)
    put(host, consumer_byte_rate=1e9)
    given = host.call(1, fetch({}, session=(begun.session_id, 2)), 11)
    assert len(given.responses[0].partitions[0].records) > len(VALUE)
    assert given.responses[0].partitions[0].high_watermark == 1


def test_a_throttled_fetch_creates_no_session(host: CoreHost) -> None:
    host.call(1, produce("t", VALUE), 9)
    put(host, consumer_byte_rate=1000.0)
    answer = host.call(1, fetch({"t": {0: 0}}, session=(0, 0)), 11)
    assert answer.throttle_time_ms > 2000
    assert (answer.session_id, len(host.broker.cluster.nodes[1].fetch_sessions)) == (0, 0)


@pytest.mark.parametrize("version", [0, 1, 3, 4, 5])
def test_a_throttled_fetch_has_its_throttle_time_from_version_1_on(
    host: CoreHost, version: int
) -> None:
    host.call(1, produce("t", VALUE), 9)
    put(host, consumer_byte_rate=1000.0)
    answer = host.call(1, fetch({"t": {0: 0}}), version)
    assert (answer.throttle_time_ms > 2000, answer.responses) == (version > 0, [])
    assert mutes(host)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect the sizes of Fetch responses that the quotas count."""
    sizes: list[int] = []

    def note(self: ClientQuotas, context: object, size: int) -> tuple[int, bool]:
        sizes.append(size)
        return 0, False

    monkeypatch.setattr(ClientQuotas, "on_fetched", note)
    return sizes


def with_quota() -> DiskBroker:
    """A broker with two topics, and a quota so high that no fetch is throttled."""
    b = DiskBroker()
    for name in ("short", "a-longer-name"):
        b.topic(name, 2)
        assert b.produce(name, (b"x",))[0] == 0
    b.broker.quotas.set({(("client-id", "tests"),): {"consumer_byte_rate": 1e9}})
    return b


@pytest.mark.parametrize("isolation", [0, 1])
@pytest.mark.parametrize(
    "topics",
    [
        [("short", {0: 0})],
        [("short", {0: 0, 1: 0}), ("a-longer-name", {0: 0, 1: 0})],
        [("short", {0: 0, 1: 99})],  # out of range
        [("short", {0: 0}), ("short", {1: 0})],  # the response has this topic once
        [("a-longer-name", {1: 0})],
        [],
    ],
)
def test_a_fetch_counts_with_the_size_of_its_response(
    topics: list[tuple[str, dict[int, int]]], isolation: int, counted: list[int]
) -> None:
    """The first fetch begins a session. With version 11, two later fetches of the session follow,
    one of them with a new record.
    """
    b = with_quota()
    request = fetch({}, session=(0, 0), isolation=isolation)
    for name, offsets in topics:
        request.topics += fetch({name: offsets}).topics
    answer = b.call(request, 11)
    assert counted == [len(b.answer_frames[READER])]
    if topics:
        assert b.produce("short", (b"y",))[0] == 0
        for epoch in (1, 2):
            b.call(fetch({}, session=(answer.session_id, epoch), isolation=isolation), 11)
            assert counted.pop() == len(b.answer_frames[READER])


def test_a_session_response_without_records_counts_as_an_empty_one(counted: list[int]) -> None:
    """The second response has a partition, since its log start offset rose. The third response is
    empty. Both count with the size of an empty response.
    """
    b = with_quota()
    begun = b.call(fetch({"short": {0: 1}}, session=(0, 0)), 11)
    log = b.broker.topics.partition("short", 0)
    assert log is not None
    log.delete_records_before(1)
    answer = b.call(fetch({}, session=(begun.session_id, 1)), 11)
    assert len(answer.responses) == 1
    b.call(fetch({}, session=(begun.session_id, 2)), 11)
    assert counted[1] == counted[2] == len(b.answer_frames[READER])


def test_a_fetch_with_an_unknown_session_counts_for_the_request_percentage(host: CoreHost) -> None:
    """An error response also uses the broker's time."""
    host.broker.quotas.busy_ns = Work()
    put(host, request_percentage=0.01)
    throttled = [host.call(1, fetch({}, session=(7, 1)), 11).throttle_time_ms for _ in range(3)]
    assert any(throttled) and mutes(host)


# --- the time of the core -----------------------------------------------------------------------


class Work:
    """A clock of the core's work. It advances by a millisecond with each reading."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        self.ns += 1_000_000
        return self.ns


def test_a_client_above_its_request_percentage_is_throttled_for_at_most_a_window(
    host: CoreHost,
) -> None:
    host.broker.quotas.busy_ns = Work()
    put(host, request_percentage=0.01)
    # A millisecond in ten seconds is a hundredth of a percent, which is exactly the quota.
    assert host.call(1, metadata("t"), 12).throttle_time_ms == 0
    assert host.call(1, metadata("t"), 12).throttle_time_ms == 1000
    assert host.call(1, produce("t"), 9).throttle_time_ms == 1000
    # A fetch that is throttled still gets its records, since they have been read already.
    throttle_ms, size = fetched(host)
    assert throttle_ms == 1000 and size > 0
    assert mutes(host) == [(1, 1000)] * 3
    markers = WriteTxnMarkersRequest(markers=[])
    host.ask(1, markers, 1)
    assert mutes(host) == []


@pytest.mark.parametrize("request_of", [metadata("t"), produce("t"), fetch({"t": {0: 0}})])
def test_the_processing_time_of_a_request_counts_once(host: CoreHost, request_of: Message) -> None:
    """The clock advances by 300 ms during the request, and then stops."""
    looks = iter([0])
    host.broker.quotas.busy_ns = lambda: next(looks, 300_000_000)
    quotas = put(host, request_percentage=1000.0)
    assert quotas is not None
    host.ask(1, request_of, 9)
    usages = [usage for key, usage in quotas._usages.items() if key[0] == "request_percentage"]
    rates = [usage.rate for usage in usages if usage.rate is not None]
    assert [sum(sample.total for sample in rate._samples) for rate in rates] == [30.0]


def test_the_processing_time_of_a_waiting_request_counts_immediately(host: CoreHost) -> None:
    host.broker.quotas.busy_ns = Work()
    put(host, request_percentage=0.01)
    host.ask(1, fetch({"t": {0: 0}}, max_wait_ms=60_000, min_bytes=1), 11)
    host.connect(2)
    assert host.call(2, metadata("t"), 12).throttle_time_ms == 1000


def test_only_the_own_processing_time_of_a_waiting_request_counts(host: CoreHost) -> None:
    """Work that the broker does while the fetch waits belongs to other requests."""
    work = Work()
    host.broker.quotas.busy_ns = lambda: work.ns
    put(host, request_percentage=50.0)
    host.ask(1, fetch({"t": {0: 0}}, max_wait_ms=60_000, min_bytes=1), 11)
    work.ns += 60_000_000_000
    host.tick(60_000)
    assert host.answers[1][-1].throttle_time_ms == 0
    assert mutes(host) == []


# --- changes of topics --------------------------------------------------------------------------


def created(host: CoreHost, name: str, partitions: int, version: int, **more: bool) -> Any:
    """Create a topic. Gives the error code and the throttle time."""
    request = CreateTopicsRequest(
        topics=[creatable(name, partitions)], timeout_ms=1000, validate_only=False
    )
    for key, value in more.items():
        setattr(request, key, value)
    answer = call(host, request, version)
    return answer.topics[0].error_code, answer.throttle_time_ms


def test_topic_changes_above_the_controller_mutation_rate_are_refused(host: CoreHost) -> None:
    """As recorded from Apache Kafka, a burst of 22 partitions is allowed, and the excess delays
    later changes.
    """
    put(host, controller_mutation_rate=2.0)
    assert created(host, "a", 3, 6) == (Code.NONE, 0)
    assert created(host, "b", 30, 6) == (Code.NONE, 0)
    exceeded = Code.THROTTLING_QUOTA_EXCEEDED
    assert created(host, "c", 1, 6) == (exceeded, 5500)
    assert created(host, "c", 1, 7, validate_only=True) == (exceeded, 5500)
    assert host.broker.metadata.topic("c") is None
    growth = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="a", count=4, assignments=None)], timeout_ms=1000
    )
    answer = call(host, growth, 3)
    assert (answer.results[0].error_code, answer.throttle_time_ms) == (exceeded, 5500)
    deletion = DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000)
    answer = call(host, deletion, 5)
    assert (answer.responses[0].error_code, answer.throttle_time_ms) == (exceeded, 5500)
    assert mutes(host) == [(1, 5500)] * 4
    # In versions before KIP-599 the change is made, and the client is throttled afterwards.
    assert created(host, "c", 1, 5) == (Code.NONE, 6000)
    answer = call(host, growth, 2)
    assert (answer.results[0].error_code, answer.throttle_time_ms) == (Code.NONE, 6500)
    answer = call(host, deletion, 4)
    assert (answer.responses[0].error_code, answer.throttle_time_ms) == (Code.NONE, 8500)
    host.now_ms += 8500
    assert created(host, "d", 1, 6) == (Code.NONE, 0)


def test_automatically_created_topics_count_for_the_controller_mutation_rate(
    host: CoreHost,
) -> None:
    put(host, controller_mutation_rate=2.0)
    assert call(host, metadata(*"abcdefghijklmnopqrsuvwxyz"), 12).throttle_time_ms == 1500
    assert host.broker.metadata.topic("z") is not None
    assert mutes(host) == [(1, 1500)]


def test_the_usage_of_a_client_is_dropped_when_it_disconnects(host: CoreHost) -> None:
    quotas = put(host, controller_mutation_rate=2.0)
    assert quotas is not None
    created(host, "a", 30, 6)
    host.broker.on_closed(1)
    assert quotas._mutations == {}


# --- whom it is for -----------------------------------------------------------------------------


def test_clients_of_the_same_user_share_its_quota(host: CoreHost) -> None:
    put(host, ALL_USERS, producer_byte_rate=1000.0)
    host.connect(2)
    assert host.call(1, produce("t", VALUE), 9).throttle_time_ms > 2000
    assert host.call(2, produce("t"), 9).throttle_time_ms > 2000
    host.broker.on_identified(2, "User:alice")
    assert host.call(2, produce("t"), 9).throttle_time_ms == 0


def test_the_usage_of_clients_without_a_quota_is_not_counted(host: CoreHost) -> None:
    quotas = put(host, OTHER_CLIENT, producer_byte_rate=1.0)
    assert quotas is not None
    assert host.call(1, produce("t", VALUE), 9).throttle_time_ms == 0
    assert quotas._usages == {}


def test_the_number_of_rows_for_clients_is_bounded(host: CoreHost) -> None:
    """A client may send another client id with each request. The number of entries that the broker
    keeps is bounded nevertheless.
    """
    quotas = put(host, (("client-id", None),), producer_byte_rate=1000.0)
    assert quotas is not None
    host.connect(2)
    for number in range(3 * FEWEST_KEPT):
        context = quotas_context(number)
        produced = quotas._client(context).produced
        assert produced is not None
        produced.record(1, context.now_ms)
    assert len(quotas._usages) <= 2100
    assert len(quotas._clients) <= quotas._most_kept <= 4200


def quotas_context(number: int) -> Any:
    """Return the context of a request with its own client id. Requests are 11 ms apart."""
    from barnabas.protocol.request_context import RequestContext

    now_ms = NOW_MS + number * 11  # a thousand requests are within the windows
    return RequestContext(number, 9, f"c{number}", "", connection_id=2, now_ms=now_ms)


def test_the_number_of_rows_for_clients_without_a_quota_is_bounded(host: CoreHost) -> None:
    quotas = put(host, OTHER_CLIENT, producer_byte_rate=1000.0)
    assert quotas is not None
    host.connect(2)
    for number in range(3 * FEWEST_KEPT):
        assert quotas._client(quotas_context(number)).produced is None
    assert len(quotas._clients) <= FEWEST_KEPT


def test_the_number_of_rows_for_topic_changes_is_bounded(host: CoreHost) -> None:
    quotas = put(host, (("client-id", None),), controller_mutation_rate=1000.0)
    assert quotas is not None
    host.connect(2)
    for number in range(3 * FEWEST_KEPT):
        mutations = quotas.mutations(quotas_context(number).replace(api_key=19))
        assert mutations is not None
        mutations.record(1)
    assert len(quotas._buckets) <= FEWEST_KEPT + 1


def test_quotas_apply_after_a_restart(tmp_path: Path) -> None:
    host = CoreHost(tmp_path)
    put(host, producer_byte_rate=1000.0)
    host.broker.quotas.set({(("ip", "192.0.2.9"),): {"connection_creation_rate": 5.0}})
    host.close()
    host = CoreHost(tmp_path)
    assert host.broker.quotas.clients is not None
    assert host.broker.quotas.have_addresses
    host.create("t")
    host.connect(1)
    assert host.call(1, produce("t", VALUE), 9).throttle_time_ms > 0
    host.close()


def test_clients_share_a_quota_whose_row_was_dropped(
    host: CoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that was idle for an hour and a later client still count together."""
    monkeypatch.setattr("barnabas.broker.quotas.client_quotas.FEWEST_KEPT", 10)
    quotas = put(
        host, ALL_USERS,
        producer_byte_rate=1000.0, consumer_byte_rate=1000.0, request_percentage=50.0,
    )  # fmt: skip
    assert quotas is not None
    # low enough that the table of clients is kept, but old rows are dropped, of which each client
    # has three
    quotas._most_kept = 10
    host.connect(2)
    produced = quotas._client(quotas_context(0)).produced
    assert produced is not None
    produced.record(1, NOW_MS)
    for number in range(1, 4):
        host.connect(100 + number)
        host.broker.on_identified(100 + number, f"User:u{number}")
        context = quotas_context(number).replace(
            connection_id=100 + number, now_ms=NOW_MS + 3_600_000
        )
        quotas._client(context)
    later = [quotas._client(quotas_context(number)).produced for number in (0, 50)]
    assert later[0] is later[1]
    kept = {id(usage) for usage in quotas._usages.values()}
    used = {id(usage) for client in quotas._clients.values() for usage in client[:3] if usage}
    assert used <= kept


def test_addresses_alone_are_no_reason_to_count_requests(host: CoreHost) -> None:
    assert put(host, (("ip", None),), connection_creation_rate=1.0) is None
