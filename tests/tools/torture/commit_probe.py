"""Measures how long a pair of brokers is unavailable, with a client that tries to commit until it
succeeds.

Real clients also wait for reasons of their own (socket timeouts, backoff, pending requests), so
their times would say more about the clients than about the pair.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from helpers.e2e_wire import Wire
from sim import wire

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.records import NewRecord, encode_batch

TOPIC = NAME = "commit-probe"
ANSWER_S = 1.0
PAUSE_S = 0.02


def prepare(port: int) -> None:
    """Create the topic for the probe's transactions."""
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    with Wire(port, timeout_s=10) as client:
        client.call(wire.request(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5))


def has_committed(port: int) -> bool:
    """Whether a transaction of one record can be committed at this port. Each response must arrive
    within ANSWER_S.
    """
    try:
        with Wire(port, timeout_s=ANSWER_S) as client:
            return _commit(client)
    except (OSError, EOFError):
        return False


def _commit(client: Wire) -> bool:
    session = client.call(
        wire.request(
            InitProducerIdRequest(
                transactional_id=NAME,
                transaction_timeout_ms=10_000,
                producer_id=-1,
                producer_epoch=-1,
            ),
            4,
        )
    )
    if session.error_code != Code.NONE:
        return False
    added = client.call(
        wire.request(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=NAME,
                v3_and_below_producer_id=session.producer_id,
                v3_and_below_producer_epoch=session.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
            ),
            3,
        )
    )
    rows = [
        row for topic in added.results_by_topic_v3_and_below for row in topic.results_by_partition
    ]
    if any(row.partition_error_code != Code.NONE for row in rows):
        return False
    batch = encode_batch(
        [NewRecord(None, b"v", 0)],
        producer_id=session.producer_id,
        producer_epoch=session.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    if client.call(wire.produce(NAME, TOPIC, 0, batch)).error_code != Code.NONE:
        return False
    ended = client.call(
        wire.request(
            EndTxnRequest(
                transactional_id=NAME,
                producer_id=session.producer_id,
                producer_epoch=session.producer_epoch,
                committed=True,
            ),
            3,
        )
    )
    return bool(ended.error_code == Code.NONE)


def first_commit_ms(
    ports: Sequence[int], *, within_s: float, wait: Callable[[float], None]
) -> int | None:
    """Try to commit at these ports in turn. Gives: the milliseconds until the first commit, or None
    if there was none within `within_s`.
    """
    began_s = time.monotonic()
    while time.monotonic() < began_s + within_s:
        if any(has_committed(port) for port in ports):
            return round((time.monotonic() - began_s) * 1000)
        wait(PAUSE_S)
    return None
