"""A broker process that was stopped (SIGSTOP) for longer than any timeout. It processes the
requests that were sent meanwhile before members and transactions time out.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psutil
import pytest
from helpers.e2e_clients import create_topic, eventually
from helpers.e2e_wire import Wire
from sim import wire

from barnabas import LocalBroker
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.protocol.records import NewRecord, encode_batch

pytestmark = pytest.mark.e2e

TIMEOUT_MS = 5000  # longer than the set-up takes on a slow machine
MEMBERS = 20


@contextmanager
def stopped(broker: LocalBroker) -> Iterator[None]:
    """A context within which the broker's process is stopped by SIGSTOP."""
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        eventually(
            lambda: psutil.Process(broker.pid).status() == psutil.STATUS_STOPPED,
            what="the process is stopped",
        )
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


def joined(connection: Wire, group: str) -> dict[str, Any]:
    """Join a group as its only member. Gives: the fields for the member's next requests."""
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    names = {
        "session_timeout_ms": TIMEOUT_MS,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": protocols,
    }
    answer = connection.call(
        wire.request(JoinGroupRequest(group_id=group, member_id="", **names), 3)
    )
    assert answer.error_code == Code.NONE
    member = {
        "group_id": group,
        "generation_id": answer.generation_id,
        "member_id": answer.member_id,
    }
    assignment = SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"all")
    assert (
        connection.call(
            wire.request(SyncGroupRequest(**member, assignments=[assignment]), 2)
        ).error_code
        == Code.NONE
    )
    return member


def begun(connection: Wire, topic: str) -> dict[str, Any]:
    """Begin a transaction with one record, whose timeout ends while the broker is stopped."""
    answer = connection.call(
        wire.request(
            InitProducerIdRequest(transactional_id="txn", transaction_timeout_ms=TIMEOUT_MS), 1
        )
    )
    assert answer.error_code == Code.NONE
    pid, epoch = answer.producer_id, answer.producer_epoch
    topics = [AddPartitionsToTxnTopic(name=topic, partitions=[0])]
    names = {
        "v3_and_below_transactional_id": "txn",
        "v3_and_below_producer_id": pid,
        "v3_and_below_producer_epoch": epoch,
    }
    added = connection.call(
        wire.request(AddPartitionsToTxnRequest(**names, v3_and_below_topics=topics), 2)
    )
    assert (
        added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        == Code.NONE
    )
    batch = encode_batch(
        [NewRecord(None, b"v", 0)],
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
    )
    assert connection.call(wire.produce("txn", topic, 0, batch)).error_code == Code.NONE
    return {"transactional_id": "txn", "producer_id": pid, "producer_epoch": epoch}


def test_requests_sent_while_the_process_was_stopped_are_handled_before_timeouts() -> None:
    """Half of the requests arrive on connections that clients opened during the stop, and which the
    broker still has to accept.
    """
    settings = {"group.min.session.timeout.ms": "100", "group.initial.rebalance.delay.ms": "0"}
    with LocalBroker(settings=settings) as broker, ExitStack() as stack:
        topic = create_topic(broker.bootstrap_servers, "t")

        def connected() -> Wire:
            return stack.enter_context(Wire(broker.port))

        connections = [connected() for _ in range(MEMBERS)]
        producer = connected()
        members = [
            joined(connection, f"g{number}") for number, connection in enumerate(connections)
        ]
        session = begun(producer, topic)
        with stopped(broker):
            # After this time every session and the transaction have exceeded their timeouts.
            time.sleep(1.2 * TIMEOUT_MS / 1000)
            asked = []
            for number, (connection, member) in enumerate(zip(connections, members, strict=True)):
                used = connected() if number % 2 else connection
                call = wire.request(HeartbeatRequest(**member), 3)
                used.send(call)
                asked.append((used, call))
            end = wire.request(EndTxnRequest(**session, committed=True), 1)
            last = connected()
            last.send(end)
        assert [used.receive(call).error_code for used, call in asked] == [0] * MEMBERS
        assert last.receive(end).error_code == Code.NONE
        fetch = wire.fetch([(topic, 0, 0)], committed=True, max_wait_ms=0)
        (found,) = producer.call(fetch).partitions
        assert found.last_stable_offset == 2 and not found.aborted
        answered_s = time.monotonic()
        silent = wire.request(HeartbeatRequest(**members[0]), 3)
        eventually(
            lambda: time.monotonic() - answered_s > 1.2 * TIMEOUT_MS / 1000, what="silence goes on"
        )
        assert connections[0].call(silent).error_code == Code.UNKNOWN_MEMBER_ID, (
            "a member that sends nothing while the broker runs is removed"
        )
