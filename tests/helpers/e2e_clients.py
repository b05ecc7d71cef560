"""For the end-to-end tests: one interface to the three client libraries for producing and
consuming, and functions that wait until a deadline.

No wait here is a fixed sleep. `eventually` tries again until its deadline, and consumers stop at
the end of the log.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import aiokafka
import confluent_kafka
import kafka
from confluent_kafka.admin import AdminClient, NewTopic

T = TypeVar("T")
PATIENCE_S = 120.0  # more than enough: all awaited steps are fast on an idle machine
# If the only broker restarts, librdkafka's search for another one may never end (its issues 5456
# and 5511).
RECONNECTING = {"metadata.recovery.strategy": "none"}
# If a poll of kafka-python's consumer is shorter than its first join, the consumer may lose the
# response to the join, and then neither fetches nor joins again. A long timeout costs nothing,
# since the poll returns at the first record.
KAFKA_PYTHON_POLL_MS = 5_000
# Without this, librdkafka logs to stderr each connection that a killed broker ends.
QUIET = {"log_level": 0}


class Seen(NamedTuple):
    """A record that a consumer got."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


def unique(prefix: str) -> str:
    """A name that is unique to this call."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def eventually(
    probe: Callable[[], T], *, what: str, timeout_s: float = PATIENCE_S, pause_s: float = 0.05
) -> T:
    """Call `probe` until its value is true, and return this value.

    Raises: AssertionError with the last value, if the deadline passes.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        value = probe()
        if value:
            return value
        assert time.monotonic() < deadline, (
            f"{what}: not within {timeout_s:.0f} s; last seen: {value!r}"
        )
        time.sleep(pause_s)


def admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers, **QUIET, **RECONNECTING})


def create_topic(servers: str, prefix: str, partitions: int = 1, **configs: str) -> str:
    """Create a topic with a unique name, and return the name. In the names of settings, underscores
    replace the dots.
    """
    name = unique(prefix)
    create_named_topic(servers, name, partitions, **configs)
    return name


def create_named_topic(servers: str, name: str, partitions: int = 1, **configs: str) -> None:
    """Create the topic, and wait until it exists."""
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    # The client is kept in a variable, since the futures fail when it is garbage-collected.
    client = admin(servers)
    for future in client.create_topics([NewTopic(name, partitions, 1, config=settings)]).values():
        future.result(PATIENCE_S)


def producer(servers: str, **settings: Any) -> confluent_kafka.Producer:
    """A confluent-kafka producer. In the names of settings, underscores replace the dots.
    Transactions have a long timeout unless one is given.
    """
    if "transactional_id" in settings:
        settings = {"transaction_timeout_ms": 600_000, **settings}
    return confluent_kafka.Producer(
        {"bootstrap.servers": servers, "linger.ms": 0, **QUIET, **RECONNECTING, **_dotted(settings)}
    )


def consumer(servers: str, group: str = "", **settings: Any) -> confluent_kafka.Consumer:
    """A confluent-kafka consumer that starts at the beginning of the log, without automatic
    commits.
    """
    base = {
        "bootstrap.servers": servers,
        "group.id": group or unique("reader"),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 50,
        **QUIET,
        **RECONNECTING,
    }
    return confluent_kafka.Consumer({**base, **_dotted(settings)})


def _dotted(settings: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "."): value for key, value in settings.items()}


def send_all(
    servers: str, topic: str, values: Iterable[bytes], *, partition: int = 0, **settings: Any
) -> list[int]:
    """Produce values in order, wait for all acknowledgements, and return the acknowledged
    offsets.
    """
    offsets: list[int] = []
    failures: list[Any] = []

    def on_delivery(error: Any, message: Any) -> None:
        if error is None:
            offsets.append(message.offset())
        else:
            failures.append(error)

    client = producer(servers, **settings)
    for value in values:
        client.produce(topic, value, partition=partition, on_delivery=on_delivery)
        client.poll(0)
    assert client.flush(PATIENCE_S) == 0, "records are left in the producer's queue"
    assert not failures, failures
    return offsets


def transact(
    client: confluent_kafka.Producer,
    topic: str,
    values: Iterable[bytes],
    *,
    partition: int = 0,
    commit: bool = True,
) -> None:
    """Run one whole transaction."""
    client.begin_transaction()
    for value in values:
        client.produce(topic, value, partition=partition)
    if commit:
        client.commit_transaction(PATIENCE_S)
    else:
        assert client.flush(PATIENCE_S) == 0
        client.abort_transaction(PATIENCE_S)


def in_a_short_transaction(
    servers: str, topic: str, value: bytes, *, timeout_ms: int
) -> confluent_kafka.Producer:
    """Write a record in a transaction and leave the transaction open. The broker aborts it after
    `timeout_ms`. Return the transaction's producer.

    If a transaction times out before the record arrives, another attempt is made. The log may
    therefore also have aborted records of earlier attempts.
    """
    while True:
        failures: list[Any] = []
        client = producer(
            servers, transactional_id=unique("short"), transaction_timeout_ms=timeout_ms
        )
        client.init_transactions(PATIENCE_S)
        client.begin_transaction()
        client.produce(
            topic,
            value,
            partition=0,
            on_delivery=lambda error, _, failures=failures: (
                failures.append(error) if error else None
            ),
        )
        assert client.flush(PATIENCE_S) == 0, "the record is left in the producer's queue"
        if not failures:
            return client
        assert timeout_ms < 1000 * PATIENCE_S, failures
        timeout_ms *= 4


def read_all(
    servers: str, topic: str, *, committed: bool = True, timeout_s: float = PATIENCE_S
) -> list[Seen]:
    """All records that a new consumer finds up to the end of each partition or, with `committed`,
    up to its last stable offset.
    """
    level = "read_committed" if committed else "read_uncommitted"
    reader = consumer(servers, isolation_level=level, enable_partition_eof=True)
    try:
        metadata = reader.list_topics(topic, PATIENCE_S).topics[topic]
        assert metadata.error is None, metadata.error
        partitions = sorted(metadata.partitions)
        reader.assign(
            [
                confluent_kafka.TopicPartition(topic, index, confluent_kafka.OFFSET_BEGINNING)
                for index in partitions
            ]
        )
        found: list[Seen] = []
        open_partitions = set(partitions)
        deadline = time.monotonic() + timeout_s
        while open_partitions:
            assert time.monotonic() < deadline, (
                f"{topic}: no end of partitions {sorted(open_partitions)} after {len(found)} "
                "records"
            )
            for message in reader.consume(1000, 0.1):
                error = message.error()
                if error is None:
                    found.append(
                        Seen(message.partition(), message.offset(), message.key(), message.value())
                    )
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    open_partitions.discard(message.partition())
                elif not error.retriable():
                    raise AssertionError(str(error))
        return found
    finally:
        reader.close()


def values_of(servers: str, topic: str, *, committed: bool = True) -> list[bytes | None]:
    """The values of a topic, ordered by partition and offset."""
    return [
        seen.value
        for seen in sorted(
            read_all(servers, topic, committed=committed),
            key=lambda seen: (seen.partition, seen.offset),
        )
    ]


def committed_offset(servers: str, group: str, topic: str, partition: int = 0) -> int:
    """The group's committed offset, or -1001 if there is none."""
    client = consumer(servers, group)
    try:
        (found,) = client.committed([confluent_kafka.TopicPartition(topic, partition)], PATIENCE_S)
        return int(found.offset)
    finally:
        client.close()


def wait_until_ready(servers: str, timeout_s: float = PATIENCE_S) -> None:
    """Wait until a restarted broker responds."""
    admin(servers).list_topics(timeout=timeout_s)


# --- one face for the three libraries -----------------------------------------------------------


class Confluent:
    """confluent-kafka: librdkafka."""

    name = "confluent-kafka"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")

    @staticmethod
    def produce(servers: str, topic: str, values: Sequence[bytes], *, codec: str = "none") -> None:
        send_all(servers, topic, values, compression_type=codec, linger_ms=5)

    @staticmethod
    def read(servers: str, topic: str, *, committed: bool = False) -> list[bytes | None]:
        return values_of(servers, topic, committed=committed)

    @staticmethod
    def transactions(
        servers: str, topic: str, steps: Sequence[tuple[Sequence[bytes], bool]]
    ) -> None:
        """Run transactions in one session. Each step has the values of a transaction, and whether
        it is committed.
        """
        client = producer(servers, transactional_id=unique("confluent"))
        client.init_transactions(PATIENCE_S)
        for values, commit in steps:
            transact(client, topic, values, commit=commit)


class KafkaPython:
    """kafka-python."""

    name = "kafka-python"
    codecs = tuple(
        codec
        for codec, there in (
            ("none", True),
            ("gzip", True),
            ("snappy", kafka.codec.has_snappy()),
            ("lz4", kafka.codec.has_lz4()),
            ("zstd", kafka.codec.has_zstd()),
        )
        if there
    )

    @staticmethod
    def produce(servers: str, topic: str, values: Sequence[bytes], *, codec: str = "none") -> None:
        """Produce the values to partition 0 with this codec."""
        client = kafka.KafkaProducer(
            bootstrap_servers=servers,
            compression_type=None if codec == "none" else codec,
            linger_ms=5,
        )
        try:
            for future in [client.send(topic, value, partition=0) for value in values]:
                future.get(timeout=PATIENCE_S)
        finally:
            client.close()

    @staticmethod
    def read(servers: str, topic: str, *, committed: bool = False) -> list[bytes | None]:
        """All values of partition 0."""
        level = "read_committed" if committed else "read_uncommitted"
        client = kafka.KafkaConsumer(
            bootstrap_servers=servers, isolation_level=level, fetch_max_wait_ms=50
        )
        try:
            partition = kafka.TopicPartition(topic, 0)
            client.assign([partition])
            client.seek_to_beginning(partition)
            end = client.end_offsets([partition])[partition]
            found: list[bytes | None] = []
            deadline = time.monotonic() + PATIENCE_S
            while client.position(partition) < end:
                assert time.monotonic() < deadline, (
                    f"{topic}: position {client.position(partition)} of {end}"
                )
                for records in client.poll(timeout_ms=200).values():
                    found += [record.value for record in records]
            return found
        finally:
            client.close()

    @staticmethod
    def transactions(
        servers: str, topic: str, steps: Sequence[tuple[Sequence[bytes], bool]]
    ) -> None:
        """Run transactions in one session. Each step has the values of a transaction, and whether
        it is committed.
        """
        client = kafka.KafkaProducer(
            bootstrap_servers=servers, transactional_id=unique("kafka-python")
        )
        try:
            client.init_transactions()
            for values, commit in steps:
                client.begin_transaction()
                for value in values:
                    client.send(topic, value, partition=0)
                client.flush(PATIENCE_S)
                if commit:
                    client.commit_transaction()
                else:
                    client.abort_transaction()
        finally:
            client.close()


class AioKafka:
    """aiokafka."""

    name = "aiokafka"
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")

    @staticmethod
    def produce(servers: str, topic: str, values: Sequence[bytes], *, codec: str = "none") -> None:
        """Produce the values to partition 0 with this codec."""

        async def run() -> None:
            client = aiokafka.AIOKafkaProducer(
                bootstrap_servers=servers,
                compression_type=None if codec == "none" else codec,
                linger_ms=5,
            )
            await client.start()
            try:
                for future in [await client.send(topic, value, partition=0) for value in values]:
                    await asyncio.wait_for(future, PATIENCE_S)
            finally:
                await client.stop()

        asyncio.run(run())

    @staticmethod
    def read(servers: str, topic: str, *, committed: bool = False) -> list[bytes | None]:
        """All values of partition 0."""
        level = "read_committed" if committed else "read_uncommitted"

        async def run() -> list[bytes | None]:
            client = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=servers, isolation_level=level, fetch_max_wait_ms=50
            )
            await client.start()
            try:
                partition = aiokafka.TopicPartition(topic, 0)
                client.assign([partition])
                await client.seek_to_beginning(partition)
                end = (await client.end_offsets([partition]))[partition]
                found: list[bytes | None] = []
                deadline = time.monotonic() + PATIENCE_S
                while await client.position(partition) < end:
                    assert time.monotonic() < deadline, (
                        f"{topic}: position {await client.position(partition)} of {end}"
                    )
                    for records in (await client.getmany(timeout_ms=200)).values():
                        found += [record.value for record in records]
                return found
            finally:
                await client.stop()

        return asyncio.run(run())

    @staticmethod
    def transactions(
        servers: str, topic: str, steps: Sequence[tuple[Sequence[bytes], bool]]
    ) -> None:
        """Run transactions in one session. Each step has the values of a transaction, and whether
        it is committed.
        """

        async def run() -> None:
            client = aiokafka.AIOKafkaProducer(
                bootstrap_servers=servers, transactional_id=unique("aiokafka")
            )
            await client.start()
            try:
                for values, commit in steps:
                    await client.begin_transaction()
                    for value in values:
                        await (await client.send(topic, value, partition=0))
                    if commit:
                        await client.commit_transaction()
                    else:
                        await client.abort_transaction()
            finally:
                await client.stop()

        asyncio.run(run())


LIBRARIES = (Confluent, KafkaPython, AioKafka)
