"""A broker under test control, observed through the control endpoint and over a plain
connection.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.e2e_wire import NAMES_CLOSED, Wire
from sim import wire

from barnabas.broker.handlers.produce import ROWS_AT_ONCE
from barnabas.control import Control, ControlError
from barnabas.local_broker import LocalBroker
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.list_transactions import ListTransactionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.records import NewRecord, encode_batch

pytestmark = pytest.mark.e2e

MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalBroker]:
    with LocalBroker(control=True, topics=["t"]) as broker:
        yield broker


@pytest.fixture
def broker(shared: LocalBroker) -> Iterator[LocalBroker]:
    yield shared
    shared.control.remove_all_faults()


def wait_until(holds: Callable[[], bool], within_s: float = 10.0) -> None:
    """Wait until the condition is true; fail after `within_s`."""
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end, "it did not come to hold in time"
        time.sleep(0.02)


def init(name: str) -> wire.Call:
    return init_request(name, MINUTE_MS)


def init_request(name: str | None, timeout_ms: int) -> wire.Call:
    """An InitProducerId with a transaction timeout. If `name` is None, it is for an idempotent
    producer.
    """
    request = InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=timeout_ms, producer_id=-1, producer_epoch=-1
    )
    return wire.request(request, 4)


def add(name: str, session: Any) -> wire.Call:
    """An AddPartitionsToTxn that adds t-0 to the transaction."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=session.producer_id,
        v3_and_below_producer_epoch=session.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    return wire.request(request, 3)


def end(name: str, session: Any) -> wire.Call:
    """An EndTxn that commits the transaction."""
    request = EndTxnRequest(
        transactional_id=name,
        producer_id=session.producer_id,
        producer_epoch=session.producer_epoch,
        committed=True,
    )
    return wire.request(request, 3)


def committed(client: Wire, group: str, topic: str) -> list[int]:
    """The committed offsets of a group, for 60 partitions."""
    topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=list(range(60)))]
    answer = client.call(wire.request(OffsetFetchRequest(group_id=group, topics=topics), 5))
    return [row.committed_offset for row in answer.topics[0].partitions]


def list_transactions() -> wire.Call:
    return wire.request(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 0)


def deliveries(broker: LocalBroker, name: str) -> list[int]:
    requests = broker.control.requests("EndTxn", transactional_id=name)
    return [request["deliveries"] for request in requests]


def test_a_late_request_arrives_over_the_connection_that_the_client_gave_up(
    broker: LocalBroker,
) -> None:
    """A request that is held until its connection was closed must still count as a request of that
    connection. If the late EndTxn arrived over the new connection, it would end the next
    transaction, which no broker allows.
    """
    with broker.control.fault("hold", api="EndTxn", times=1) as fault:
        with Wire(broker.port) as earlier:
            session = earlier.call(init("late"))
            earlier.call(add("late", session))
            earlier.send(end("late", session))
            wait_until(lambda: fault.met == 1)
            assert broker.control.close_connections() >= 1
        with Wire(broker.port) as later:
            assert later.call(end("late", session)).error_code == Code.NONE
            later.call(add("late", session))
            fault.release()
            wait_until(lambda: deliveries(broker, "late") == [1, 1])
            assert [row.state for row in broker.open_transactions()] == ["Ongoing"]
            assert later.call(end("late", session)).error_code == Code.NONE


def test_a_late_request_keeps_the_user_of_its_connection() -> None:
    """A late request keeps the user of its own connection, even if clients must authenticate and
    only that user may list the transaction.
    """
    settings = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:alice"}
    with (
        LocalBroker(control=True, users={"alice": "her-secret"}, settings=settings) as broker,
        broker.control.fault("hold", api="ListTransactions", times=1) as fault,
    ):
        listing = wire.request(ListTransactionsRequest(), 0)
        with Wire(broker.port) as client:
            shake = wire.request(SaslHandshakeRequest("PLAIN"), 1)
            assert client.call(shake).error_code == Code.NONE
            login = wire.request(SaslAuthenticateRequest(b"\0alice\0her-secret"), 2)
            assert client.call(login).error_code == Code.NONE
            client.send(listing)
            wait_until(lambda: fault.met == 1)
            assert broker.control.close_connections() >= 1
        fault.release()
        wait_until(
            lambda: (
                [one["deliveries"] for one in broker.control.requests("ListTransactions")] == [1]
            )
        )
        assert "an authentication is" not in "".join(broker.output)
        assert not [line for line in broker.output if "closing the connection" in line]


def test_a_late_large_request_is_carried_out(broker: LocalBroker) -> None:
    """A thread decodes a large request, which takes longer than one call. The connection must stay
    open for that time.
    """
    broker.create_topic("wide", 60)
    rows = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=index, committed_metadata="x" * 4000
        )
        for index in range(60)
    ]
    topics = [OffsetCommitRequestTopic(name="wide", partitions=rows)]
    commit = wire.request(
        OffsetCommitRequest(group_id="large", generation_id_or_member_epoch=-1, topics=topics), 7
    )
    with broker.control.fault("hold", api="OffsetCommit") as fault:
        with Wire(broker.port) as client:
            client.send(commit)
            wait_until(lambda: fault.met == 1)
        assert broker.control.close_connections() == 1
        with Wire(broker.port) as other:
            assert committed(other, "large", "wide") == [-1] * 60
            fault.release()
            wait_until(lambda: committed(other, "large", "wide") == list(range(60)))
            assert len(broker.control.connections()) == 1


@pytest.mark.parametrize("version", [12, 13])
def test_a_fault_of_a_topic_applies_to_fetches_of_a_session_with_that_topic(
    broker: LocalBroker, version: int
) -> None:
    """A Fetch in a fetch session may name no topics, since the session has them. A fault for a
    topic applies to such a request too.
    """
    with Wire(broker.port) as client:
        metadata = client.call(
            wire.request(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
        )
        named = {"topic": "t"} if version == 12 else {"topic_id": metadata.topics[0].topic_id}
        topics = [FetchTopic(partitions=[FetchPartition(partition=0)], **named)]

        def fetch(**session: Any) -> Any:
            return client.call(wire.request(FetchRequest(max_wait_ms=0, **session), version))

        session = fetch(session_epoch=0, topics=topics).session_id
        with broker.control.fault("error", api="Fetch", topic="t", code="UNKNOWN_TOPIC_ID") as met:
            assert fetch(session_id=session, session_epoch=1).error_code == Code.UNKNOWN_TOPIC_ID
            assert met.met == 1
        with broker.control.fault("error", api="Fetch", topic="u", code="UNKNOWN_TOPIC_ID"):
            assert fetch(session_id=session, session_epoch=1).error_code == Code.NONE
        assert broker.control.requests("Fetch", topic="t")[-1]["outcome"] == "answered"


def test_a_delayed_request_is_answered_though_the_fault_that_held_it_was_removed(
    broker: LocalBroker,
) -> None:
    """The request is both delayed and held. The fault that holds it is removed during the delay, so
    that no fault is left to release the request when the delay ends.
    """
    control = broker.control
    control.add_fault("delay", api="ListTransactions", ms=300)
    with Wire(broker.port, timeout_s=10) as client:
        with control.fault("hold", api="ListTransactions") as fault:
            client.send(list_transactions())
            wait_until(lambda: fault.met == 1)
        assert client.receive(list_transactions()).error_code == Code.NONE


def test_an_injected_error_is_returned_though_another_fault_delivers_the_request_twice(
    broker: LocalBroker,
) -> None:
    control = broker.control
    control.forget_requests()
    control.add_fault("twice", api="ListTransactions")
    control.add_fault("error", api="ListTransactions", code="NOT_COORDINATOR")
    with Wire(broker.port) as client:
        answer = client.call(list_transactions())
    assert answer.error_code == Code.NOT_COORDINATOR
    assert [e["deliveries"] for e in control.requests("ListTransactions")] == [0]


def end_offsets(client: Wire, topic: str, count: int) -> list[int]:
    """The end offsets of the topic's first `count` partitions."""
    rows = [ListOffsetsPartition(index, -1, -1) for index in range(count)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(topic, rows)])
    answer = client.call(wire.request(request, 5))
    return [row.offset for row in answer.topics[0].partitions]


def test_a_produce_with_acks_0_is_delivered_twice_also_if_it_is_checked_in_slices(
    broker: LocalBroker,
) -> None:
    """The broker checks a Produce request with this many partitions in slices, so it completes the
    request only some iterations of the event loop later.
    """
    count = ROWS_AT_ONCE + 1
    broker.create_topic("many", count)
    batch = bytes(encode_batch([NewRecord(None, b"v")]))
    rows = [PartitionProduceData(index, batch) for index in range(count)]
    request = ProduceRequest(
        acks=0, timeout_ms=1000, topic_data=[TopicProduceData("many", partition_data=rows)]
    )
    control = broker.control
    with control.fault("twice", api="Produce", times=1), Wire(broker.port) as client:
        client.send(wire.request(request, 9))
        wait_until(lambda: end_offsets(client, "many", count) == [2] * count)
        assert control.requests("Produce", topic="many")[-1]["deliveries"] == 2


def test_a_connection_with_a_late_request_is_counted_once_as_ended() -> None:
    """At most three connections are allowed. If the end of the late request's connection were
    counted twice, a fourth connection would be accepted.
    """
    settings = {"max.connections.per.ip": 3}
    with LocalBroker(control=True, settings=settings) as broker:
        control = broker.control
        fault = control.add_fault("hold", api="ListTransactions", times=1)
        with Wire(broker.port) as client:
            client.send(list_transactions())
            wait_until(lambda: fault.met == 1)
            assert control.close_connections() == 1
        with Wire(broker.port) as first, Wire(broker.port) as second, Wire(broker.port) as third:
            first.call(list_transactions())
            fault.release()
            wait_until(lambda: control.requests("ListTransactions")[0]["deliveries"] == 1)
            second.call(list_transactions())
            third.call(list_transactions())
            with Wire(broker.port, timeout_s=10) as fourth:
                assert fourth.is_closed_by_broker()


def test_the_journal_has_each_request_as_it_was_received(broker: LocalBroker) -> None:
    """The broker writes the base offset into the batch of a Produce. The journal still has the 0
    that the client sent.
    """
    control = broker.control
    control.forget_requests()
    with Wire(broker.port) as client:
        for count in (3, 2, 1):
            batch = encode_batch([NewRecord(None, b"v" * 100, 0)] * count)
            client.call(wire.produce(None, "t", 0, batch))
    shown = [
        partition["records"]["batches"]
        for e in control.requests("Produce")
        for topic in e["request"]["topic_data"]
        for partition in topic["partition_data"]
    ]
    assert [[(b["records"], b["base_offset"]) for b in batches] for batches in shown] == [
        [(3, 0)], [(2, 0)], [(1, 0)],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "request_text",
    [
        "POST /faults HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: many\r\n\r\n",
        "POST /faults HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
        "POST /faults HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /time/advance HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 17\r\n\r\n"
        '{"days":Infinity}',
        "POST /time/advance HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 14\r\n\r\n"
        '{"days":1e300}',
        'GET /requests HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{"api":1}',
    ],
)
def test_a_malformed_request_to_the_control_endpoint_gets_status_400(
    broker: LocalBroker, request_text: str
) -> None:
    port = int(broker.control.url.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(request_text.encode())
        answer = client.makefile("rb")
        assert answer.readline().split()[1] == b"400"
        while answer.readline() != b"\r\n":
            pass
        assert json.loads(answer.readline())["error"]
    # The refused requests did not advance the clock.
    assert broker.control.ahead_ms < 86_400_000


@pytest.mark.parametrize(
    "header",
    [
        "Origin: http://example.org",
        "Origin: http://[",
        "Origin: null",
        "Origin: http://127.0.0.1:1",
        "Host: example.org",
    ],
)
def test_requests_of_a_page_of_another_origin_are_refused(broker: LocalBroker, header: str) -> None:
    port = int(broker.control.url.rsplit(":", 1)[1])
    host = "" if header.startswith("Host") else "Host: 127.0.0.1\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(
            f"POST /time/freeze HTTP/1.1\r\n{header}\r\n{host}Content-Length: 0\r\n\r\n".encode()
        )
        assert client.makefile("rb").readline().split()[1] == b"403"


def test_a_broker_that_refuses_connections_stops_though_another_process_has_its_port() -> None:
    with LocalBroker(control=True) as broker:
        broker.control.ask("POST", "/connections/refuse")
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", broker.port))
            other.listen()
            with pytest.raises(ControlError):
                broker.control.ask("POST", "/connections/accept")
            assert broker.stop() == 0


def test_removing_a_fault_after_its_broker_was_killed_is_no_error() -> None:
    """The first context ends while its broker is down, so the fault and the frozen clock are
    removed from a broker that does not run. In the second context, the test has already removed the
    fault.
    """
    with LocalBroker(control=True, topics=["t"]) as broker:
        with broker.control.fault("hold", api="EndTxn"), broker.control.frozen():
            broker.kill()
        broker.start()
        with broker.control.fault("hold", api="EndTxn") as fault:
            fault.remove()


def test_the_test_clock_survives_the_kill_of_a_paused_broker() -> None:
    with LocalBroker(control=True) as broker:
        broker.control.advance(days=8)
        broker.pause()
        broker.kill()
        broker.start()
        assert broker.control.ahead_ms >= 8 * 86_400_000


def test_the_test_clock_survives_a_kill_from_outside() -> None:
    with LocalBroker(control=True) as broker:
        broker.control.advance(days=8)
        os.kill(broker.pid, signal.SIGKILL)
        broker.restart()
        assert broker.control.ahead_ms >= 8 * 86_400_000


def _batch_of(client: Wire) -> bytes:
    """A batch of an idempotent producer."""
    producer = client.call(init_request(None, 60_000))
    return bytes(
        encode_batch([NewRecord(None, b"v", 0)], producer_id=producer.producer_id,
                     producer_epoch=producer.producer_epoch, base_sequence=0)
    )  # fmt: skip


def _offset_of(group: str) -> wire.Call:
    """An OffsetCommit of offset 1 in t-0, for a group without members."""
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_leader_epoch=-1, committed_metadata=""
    )
    return wire.request(
        OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=-1, member_id="",
            topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
        ),
        8,
    )  # fmt: skip


def _producers_of(topic: str) -> wire.Call:
    topics = [TopicRequest(name=topic, partition_indexes=[0])]
    return wire.request(DescribeProducersRequest(topics=topics), 0)


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_after_a_restart_the_age_of_loaded_state_follows_the_test_clock(end: str) -> None:
    """Offsets, transactional ids and open transactions expire after 60 minutes. The test clock
    advances by 45 minutes before the restart. They all still exist 10 minutes after it, and have
    all expired another 10 minutes later.
    """
    hour = {
        "offsets.retention.minutes": 60,
        "offsets.retention.check.interval.ms": 1000,
        "transactional.id.expiration.ms": 60 * MINUTE_MS,
        "producer.id.expiration.ms": 60 * MINUTE_MS,
        "transaction.max.timeout.ms": 60 * MINUTE_MS,
    }
    with LocalBroker(control=True, topics=["t", "u"], settings=hour) as broker:
        with Wire(broker.port) as client:
            written = wire.produce(None, "u", 0, _batch_of(client))
            assert client.call(written).error_code == Code.NONE
            client.call(_offset_of("g"))
            client.call(init("resting"))
            opened = init_request("open", 60 * MINUTE_MS)
            assert client.call(add("open", client.call(opened))).results_by_topic_v3_and_below
        broker.control.advance(minutes=45)
        getattr(broker, end)()
        broker.start()
        with Wire(broker.port) as client:
            for minutes, is_there in ((0, True), (10, True), (10, False)):
                broker.control.advance(minutes=minutes, ms=1)
                states = {
                    row.transactional_id: row.transaction_state
                    for row in client.call(list_transactions()).transaction_states
                }
                (producers,) = client.call(_producers_of("u")).topics[0].partitions
                assert [
                    committed(client, "g", "t")[0] >= 0,
                    "resting" in states,
                    states["open"] == "Ongoing",
                ] == [is_there] * 3, minutes
                assert producers.active_producers, (
                    "the start counts as an append of each producer, so none expires"
                )


def test_wrong_calls_of_the_control_are_errors(broker: LocalBroker) -> None:
    control = broker.control
    for ask, says in (
        (lambda: control.requests(api="Prodduce"), "perhaps Produce"),
        (lambda: control.requests(outcome="lost"), "`outcome` has to be one of: under way"),
        (lambda: control.requests(partition="0"), "unknown filter"),
        (lambda: control.leader("nope"), "there is no partition nope-0"),
        (lambda: control.leader("t", 7), "there is no partition t-7"),
        (lambda: control.add_fault("delay", ms=5, times=0), "counts from 1"),
        (lambda: control.add_fault("drop_answer", ms=5), "takes no `ms`"),
        (lambda: control.add_fault("twice", api="Heartbeat", version=9), "versions 0 to 4"),
    ):
        with pytest.raises(ControlError, match=says):
            ask()
    assert control.leader("t") is not None
    fault = control.add_fault("drop_answer", api="EndTxn")
    with pytest.raises(ControlError, match="holds no request"):
        fault.release()
    fault.remove()
    with pytest.raises(ControlError, match="was removed"):
        fault.release()
    with pytest.raises(ControlError, match="was removed"):
        _ = fault.met


def test_kill_ends_the_broker_though_its_control_endpoint_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise ControlError("TimeoutError()")

    with LocalBroker(control=True) as broker:
        pid = broker.pid
        monkeypatch.setattr(Control, "ask", refuse)
        broker.kill()
        with pytest.raises(ProcessLookupError):
            # SIGCONT does nothing to a running process, and fails if the process does not exist.
            os.kill(pid, signal.SIGCONT)


def test_nothing_is_written_after_a_power_loss() -> None:
    """A write after the power loss would leave a hole in a segment. No real power failure leaves
    such a hole, and the next start would set the later data aside.
    """
    batch = encode_batch([NewRecord(None, b"v" * 100, 0)])
    lost = threading.Event()

    def send_for_ever(port: int) -> None:
        with contextlib.suppress(*NAMES_CLOSED), Wire(port) as client:
            while not lost.is_set():
                client.call(wire.produce(None, "t", 0, batch))

    with LocalBroker(control=True, topics=["t"]) as broker:
        threads = [
            threading.Thread(target=send_for_ever, args=(broker.port,), daemon=True)
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        answered = []
        while len(answered) < 20:  # wait until all threads are sending
            answered = broker.control.requests(api="Produce", outcome="answered")
        broker.lose_power()
        lost.set()
        for thread in threads:
            thread.join()
        broker.start()
        segment = os.path.join(broker.data_dir, "t-0", f"{0:020}.log")
        assert not [line for line in broker.output if "set aside" in line]
        assert os.path.getsize(segment) == 0, "nothing of it was flushed"


def quota_of_all_clients(percentage: float | None) -> wire.Call:
    """A request that sets the request quota of all clients. If `percentage` is None, it removes the
    quota.
    """
    entry = EntryData(
        [EntityData("client-id", None)],
        [OpData("request_percentage", percentage or 0.0, percentage is None)],
    )
    return wire.request(AlterClientQuotasRequest([entry]), 1)


def test_a_delayed_response_precedes_the_next_one_also_above_a_quota(
    broker: LocalBroker,
) -> None:
    """The first response is delayed for longer than the throttle time of the second request, but is
    still sent first.
    """
    calls = [list_transactions(), init("above")]
    with Wire(broker.port) as client:
        client.call(quota_of_all_clients(1e-6))
        with broker.control.fault("delay_answer", api="ListTransactions", ms=1500, times=1):
            for call in calls:
                client.send(call)
            # `receive` expects the id of the last request that was sent, but this response belongs
            # to the request before it.
            client._correlation_id -= 1
            client.receive(calls[0])
            client._correlation_id += 1
            assert client.receive(calls[1]).throttle_time_ms == 1000  # at most one quota window
    with Wire(broker.port) as client:
        client.call(quota_of_all_clients(None))
