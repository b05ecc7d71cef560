"""Produce and fetch records with the real daemon: each library reads the records of every other
library in each codec. Other tests use large records, many partitions, and long polls.
"""

from __future__ import annotations

import importlib.util
import time

import confluent_kafka
import pytest
import sim.wire
from helpers.e2e_clients import (
    LIBRARIES,
    PATIENCE_S,
    consumer,
    create_topic,
    eventually,
    producer,
    read_all,
    send_all,
    unique,
    values_of,
)
from helpers.e2e_wire import Wire

from barnabas import LocalBroker
from barnabas.protocol.records import records_of

pytestmark = pytest.mark.e2e

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_BY_NAME = {"ids": lambda library: getattr(library, "name", library)}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("library", LIBRARIES, **_BY_NAME)
def test_every_codec_of_every_library_is_read_by_all(
    servers: str, library: type, codec: str
) -> None:
    if codec not in library.codecs:
        pytest.skip(f"{library.name} has no {codec} here: its optional library is not installed")
    topic = create_topic(servers, f"codec-{codec}")
    values = [f"{codec} {number} ".encode() * 20 for number in range(50)]
    library.produce(servers, topic, values, codec=codec)
    for reader in LIBRARIES:
        if codec in reader.codecs:
            assert reader.read(servers, topic) == values, reader.name


def test_keys_headers_timestamps_and_empty_values_come_back(servers: str) -> None:
    topic = create_topic(servers, "whole")
    client = producer(servers)
    headers = [("a", b"1"), ("a", b""), ("umlaut-ä", "ü".encode()), ("none", None)]
    client.produce(topic, value=b"v", key=b"k", headers=headers, timestamp=1_600_000_000_123)
    client.produce(topic, value=None, key=b"tombstone")
    client.produce(topic, value=b"", key=b"")
    assert client.flush(PATIENCE_S) == 0
    reader = consumer(servers)
    reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[confluent_kafka.Message] = []
    eventually(
        lambda: found.extend(reader.consume(3, 1.0)) or len(found) == 3, what="three records"
    )
    reader.close()
    assert found[0].headers() == headers
    assert found[0].timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, 1_600_000_000_123)
    assert [(message.key(), message.value()) for message in found] == [
        (b"k", b"v"),
        (b"tombstone", None),
        (b"", b""),
    ]


def test_log_append_time_replaces_the_clients(servers: str) -> None:
    topic = create_topic(servers, "append-time", message_timestamp_type="LogAppendTime")
    client = producer(servers)
    client.produce(topic, b"v", timestamp=1_000)
    assert client.flush(PATIENCE_S) == 0
    reader = consumer(servers)
    reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    message = eventually(lambda: reader.poll(1.0), what="the record")
    reader.close()
    kind, timestamp = message.timestamp()
    assert kind == confluent_kafka.TIMESTAMP_LOG_APPEND_TIME
    assert abs(timestamp - time.time() * 1000) < 60_000


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_records_arrive_with_each_setting_of_acks(servers: str, acks: object) -> None:
    topic = create_topic(servers, "acks")
    values = [b"%d" % number for number in range(200)]
    send_all(servers, topic, values, acks=acks)
    eventually(lambda: values_of(servers, topic) == values, what="all records are there")


def test_a_topic_is_made_by_the_first_record_for_it(servers: str) -> None:
    topic = unique("made-by-use")
    send_all(servers, topic, [b"first"], partition=-1)
    assert values_of(servers, topic) == [b"first"]


def test_ten_megabytes_in_one_record(servers: str) -> None:
    topic = create_topic(servers, "big", max_message_bytes=str(11 << 20))
    value = bytes(range(256)) * (10 << 12)
    send_all(servers, topic, [value, b"small"], message_max_bytes=11 << 20)
    for library in LIBRARIES:
        assert library.read(servers, topic) == [value, b"small"], library.name


def test_a_record_over_the_topics_limit_is_refused_and_the_next_one_taken(servers: str) -> None:
    topic = create_topic(servers, "too-big", max_message_bytes="2000")
    outcomes: list[object] = []
    client = producer(servers)
    for value in (b"x" * 5000, b"fits"):
        client.produce(
            topic, value, on_delivery=lambda error, message: outcomes.append(error and error.code())
        )
        client.flush(PATIENCE_S)
    assert outcomes == [confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE, None]
    assert values_of(servers, topic) == [b"fits"]


def test_a_hundred_partitions(servers: str) -> None:
    topic = create_topic(servers, "hundred", 100)
    client = producer(servers)
    for number in range(1000):
        client.produce(topic, b"%d" % number, partition=number % 100)
    assert client.flush(PATIENCE_S) == 0
    found = read_all(servers, topic)
    assert len(found) == 1000
    for seen in found:
        assert int(seen.value or b"") == seen.offset * 100 + seen.partition


def test_a_waiting_reader_gets_a_record_at_once(broker: LocalBroker) -> None:
    """The fetch may wait for ten minutes, much longer than the client waits. A new record ends the
    wait.
    """
    topic = create_topic(broker.bootstrap_servers, "long-poll")
    with Wire(broker.port) as wire:
        fetch = sim.wire.fetch([(topic, 0, 0)], committed=True, max_wait_ms=600_000)
        wire.send(fetch)
        send_all(broker.bootstrap_servers, topic, [b"now"])
        (found,) = wire.receive(fetch).partitions
    assert [record.value for record in records_of(found.records)] == [b"now"]


def test_offsets_for_times(servers: str) -> None:
    topic = create_topic(servers, "times")
    client = producer(servers)
    for number in range(10):
        client.produce(topic, b"%d" % number, timestamp=1_600_000_000_000 + 1000 * number)
    assert client.flush(PATIENCE_S) == 0
    reader = consumer(servers)
    for timestamp, offset in (
        (1_600_000_000_000, 0),
        (1_600_000_004_001, 5),
        (1_600_000_009_000, 9),
        (1_600_000_009_001, confluent_kafka.OFFSET_END),
    ):
        (found,) = reader.offsets_for_times(
            [confluent_kafka.TopicPartition(topic, 0, timestamp)], PATIENCE_S
        )
        assert found.offset == offset, timestamp
    assert reader.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), PATIENCE_S) == (
        0,
        10,
    )
    reader.close()


@pytest.mark.skipif(
    importlib.util.find_spec("barnabas.storage.cleaning.cleaner") is None,
    reason="there is no log cleaner",
)
def test_compacted_topics_keep_each_keys_last_record() -> None:
    """The real cleaner runs. Segments are so small that some are inactive and can be cleaned."""
    settings = {"log.cleaner.backoff.ms": "100"}
    with LocalBroker(settings=settings) as broker:
        servers = broker.bootstrap_servers
        topic = create_topic(
            servers,
            "compacted",
            cleanup_policy="compact",
            segment_bytes="1000",
            min_cleanable_dirty_ratio="0.01",
        )
        client = producer(servers)
        for number in range(200):
            client.produce(topic, b"%d" % number, key=b"k%d" % (number % 3), partition=0)
            client.flush(PATIENCE_S)
        eventually(lambda: len(read_all(servers, topic)) < 60, what="the log is cleaned")
        last = {seen.key: seen.value for seen in read_all(servers, topic)}
        assert last == {b"k0": b"198", b"k1": b"199", b"k2": b"197"}
