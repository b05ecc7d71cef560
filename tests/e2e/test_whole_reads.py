"""Reads of whole transactions by the connector without Spark, on real brokers: each batch has both
halves of each transaction, while producers commit, hang and abort, and while the broker is killed.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

pytest.importorskip("pyarrow")

from confluent_kafka import KafkaException, Producer

from barnabas import LocalBroker
from barnabas.client.cluster_reader import ClusterReader
from barnabas.spark_connector.read.offsets import OffsetRange
from barnabas.spark_connector.read.options import parse_source_options
from barnabas.spark_connector.read.planning import plan
from barnabas.spark_connector.read.reading import read_range
from barnabas.spark_connector.read.whole_stream_planning import WholeStreamPlanner

TOPIC = {"partitions": 2, "barnabas.transactions.whole": "true"}
SETTINGS = {"barnabas.transactions.whole.cut.interval.ms": "20"}
BATCHES = 25


def write_pairs(servers: str, name: str, is_over: threading.Event, hangs_s: float) -> None:
    """Write pairs, each a transaction with a value in one topic and the same value in the other."""
    chance, number = random.Random(name), 0
    while not is_over.is_set():
        producer = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": name,
                "linger.ms": 0,
                "log_level": 2,
                "reconnect.backoff.max.ms": 100,
            }
        )
        with suppress(KafkaException):  # of the broker that is killed: with a new session again
            producer.init_transactions(60)
            while not is_over.is_set():
                number += 1
                producer.begin_transaction()
                for topic in chance.sample(["a", "b"], 2):
                    value = f"{name}-{number}".encode()
                    producer.produce(topic, value, partition=chance.randrange(2))
                    if hangs_s:
                        producer.flush(60)
                        time.sleep(chance.uniform(0, hangs_s))
                if chance.random() < 0.2:
                    producer.abort_transaction(60)
                else:
                    producer.commit_transaction(60)
                time.sleep(0.002)


@contextmanager
def writers(servers: str) -> Iterator[None]:
    """Two quick producers and a slow one, until the end of the block."""
    is_over = threading.Event()
    threads = [
        threading.Thread(target=write_pairs, args=(servers, name, is_over, hangs_s))
        for name, hangs_s in (("one", 0.0), ("two", 0.0), ("slow", 0.2))
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


def options(broker: LocalBroker, **more: str) -> dict[str, str]:
    base = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": "a,b",
        "wholeTransactions": "true",
    }
    return base | more


def values_in(client: ClusterReader, ranges: list[OffsetRange]) -> list[str]:
    return [
        value.decode()
        for each in ranges
        for rows in read_range(client, each, ["value"], read_committed=True, fail_on_data_loss=True)
        for value in rows.column(0).to_pylist()
    ]


@pytest.mark.parametrize("brokers", [1, 3])
def test_each_batch_has_both_halves_of_each_transaction(brokers: int) -> None:
    """Three brokers are asked one after the other, so their answers are from several moments."""
    topics = {"a": TOPIC, "b": TOPIC}
    with LocalBroker(topics=topics, settings=SETTINGS, brokers=brokers) as broker:
        parsed = parse_source_options(options(broker, startingOffsets="earliest"), streaming=True)
        stream = WholeStreamPlanner(parsed)
        seen: Counter[str] = Counter()
        with ClusterReader(parsed.client) as client, writers(broker.bootstrap_servers):
            at, count, has_killed = stream.initial(), 0, False
            while count < BATCHES:
                limit = random.Random(count).choice([None, 40, 400])
                end = stream.latest(at, max_offsets=limit)
                if end == at:
                    time.sleep(0.02)
                    continue
                ranges = stream.ranges(at, end)
                batch = Counter(values_in(client, ranges))
                assert set(batch.values()) <= {2}, "a half of a transaction"
                assert not batch.keys() & seen.keys()
                seen += batch
                at, count = end, count + 1
                if count == BATCHES // 2 and brokers == 1 and not has_killed:
                    has_killed = True
                    broker.kill()
                    broker.start()
            both = Counter(values_in(client, plan(client, parse_source_options(options(broker)))))
            assert set(both.values()) == {2} and seen.keys() <= both.keys()
            time_ms = int(time.time() * 1000) - 200
            past, rest = (
                Counter(
                    values_in(
                        client, plan(client, parse_source_options(options(broker, **at_time)))
                    )
                )
                for at_time in ({"asOf": str(time_ms)}, {"startingCut": str(time_ms)})
            )
            assert set(past.values()) <= {2} and set(rest.values()) <= {2}
            assert past and not past.keys() & rest.keys()
            assert past.keys() | rest.keys() >= both.keys()
        stream.close()
