"""ACLs over SASL_SSL: ACLs that are removed while a client works, and the ACLs that the connector
needs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from helpers.e2e_clients import unique

from barnabas import LocalBroker
from barnabas.client.cluster_reader import ClientError, ClusterReader
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch
from barnabas.spark_connector.read.options import SourceOptions, parse_source_options
from barnabas.spark_connector.read.planning import plan
from barnabas.spark_connector.read.reading import read_range
from barnabas.spark_connector.write.publishing import Publisher, PublishSettings
from barnabas.spark_connector.write.task_parts import TaskParts

pytestmark = pytest.mark.e2e
PASSWORD = "a-secret"
SETTINGS = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:admin"}
Rule = tuple[str, str, str, str]
"""(resource type, name, pattern type, operation), as librdkafka names them."""


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    users = dict.fromkeys(("admin", "reader", "writer", "spark"), PASSWORD)
    with LocalBroker(users=users, tls=True, settings=SETTINGS) as broker:
        yield broker


def settings_of(broker: LocalBroker, user: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(broker.ca_file),
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": PASSWORD,
        "log_level": 2,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


class Acls:
    """Adds and removes ACLs of a user."""

    def __init__(self, broker: LocalBroker, user: str) -> None:
        self._admin = AdminClient(settings_of(broker, "admin"))
        self._principal = f"User:{user}"

    def allow(self, *given: Rule) -> None:
        made = self._admin.create_acls(
            [AclBinding(*self._fields(one), AclPermissionType.ALLOW) for one in given]
        )
        for future in made.values():
            future.result(20)

    def remove(self, *given: Rule) -> None:
        removed = self._admin.delete_acls(
            [AclBindingFilter(*self._fields(one), AclPermissionType.ANY) for one in given]
        )
        assert all(len(future.result(20)) == 1 for future in removed.values())

    def _fields(self, given: Rule) -> tuple[Any, ...]:
        kind, name, pattern, operation = given
        return (
            ResourceType[kind], name, ResourcePatternType[pattern], self._principal, "*",
            AclOperation[operation],
        )  # fmt: skip


def create(broker: LocalBroker, topic: str) -> None:
    from confluent_kafka.admin import NewTopic

    admin = AdminClient(settings_of(broker, "admin"))
    admin.create_topics([NewTopic(topic, 1)])[topic].result(20)


def test_a_consumer_gets_an_error_when_its_right_is_removed_during_a_fetch_session(
    broker: LocalBroker,
) -> None:
    """The broker checks the ACL in each fetch, not only when the session begins. When the ACL is
    added again, the consumer continues.
    """
    topic = unique("session")
    create(broker, topic)
    acls = Acls(broker, "reader")
    read = ("TOPIC", topic, "LITERAL", "READ")
    acls.allow(read, ("GROUP", topic, "LITERAL", "READ"))
    consumer = Consumer(settings_of(broker, "reader", group_id=topic, auto_offset_reset="earliest"))
    producer = Producer(settings_of(broker, "admin"))
    try:
        consumer.subscribe([topic])
        for value in (b"1", b"2"):  # the second value is sent over the existing connection
            producer.produce(topic, value)
            assert producer.flush(20) == 0
            message = consumer.poll(20)
            assert message is not None and message.value() == value, message and message.error()
        acls.remove(read)
        producer.produce(topic, b"3")
        assert producer.flush(20) == 0
        message = consumer.poll(20)
        error = None if message is None else message.error()
        assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        acls.allow(read)
        message = poll_value(consumer)
        assert message == b"3"
    finally:
        consumer.close()


def poll_value(consumer: Consumer) -> bytes | None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            value: bytes | None = message.value()
            return value
    return None


def test_a_commit_is_refused_once_the_right_to_the_transactional_id_is_removed(
    broker: LocalBroker,
) -> None:
    """The transaction remains open. The next producer with the same id aborts it."""
    topic = unique("revoked")
    create(broker, topic)
    acls = Acls(broker, "writer")
    of_id = ("TRANSACTIONAL_ID", topic, "LITERAL", "WRITE")
    acls.allow(of_id, ("TOPIC", topic, "LITERAL", "WRITE"))
    producer = Producer(settings_of(broker, "writer", transactional_id=topic))
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"of the revoked")
    assert producer.flush(20) == 0
    acls.remove(of_id)
    with pytest.raises(KafkaException) as raised:
        producer.commit_transaction(20)
    error = raised.value.args[0]
    assert error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert read_values(broker, "admin", topic) == [], "nothing of it is seen"
    acls.allow(of_id)
    again = Producer(settings_of(broker, "writer", transactional_id=topic))
    again.init_transactions(20)
    again.begin_transaction()
    again.produce(topic, b"of the next")
    again.commit_transaction(20)
    assert read_values(broker, "admin", topic) == [b"of the next"]


# --- what the Spark connector needs -------------------------------------------------------------


def source_options(broker: LocalBroker, user: str, topic: str) -> SourceOptions:
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{user}" password="{PASSWORD}";'
    )
    return parse_source_options(
        {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "subscribe": topic,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.location": str(broker.ca_file),
            "kafka.ssl.truststore.type": "PEM",
            "kafka.sasl.mechanism": "SCRAM-SHA-256",
            "kafka.sasl.jaas.config": jaas,
            "kafka.default.api.timeout.ms": "1000",
            "kafka.retry.backoff.ms": "20",
        }
    )


def read_values(broker: LocalBroker, user: str, topic: str) -> list[bytes]:
    """The values that the connector's source reads as the given user."""
    options = source_options(broker, user, topic)
    with ClusterReader(options.client) as client:
        return [
            value
            for wanted in plan(client, options)
            for part in read_range(
                client, wanted, ["value"], read_committed=True, fail_on_data_loss=True
            )
            for value in part.column(0).to_pylist()
        ]


def publish(broker: LocalBroker, user: str, topic: str, batch_id: int) -> None:
    """Publish a micro-batch of one record as the sink does, with its default names."""
    options = source_options(broker, user, topic).client
    name = f"barnabas-spark-{topic}"
    records = [NewRecord(None, b"%d" % batch_id, time.time_ns() // 1_000_000)]
    batch = EncodedRecordBatch(topic, 0, 1, encode_batch(records, transactional=True))
    with Publisher(options, PublishSettings(delivery_timeout_ms=2000)) as publisher:
        publisher.commit_once(
            transactional_id=name,
            group_id=name,
            batch_id=batch_id,
            metadata="",
            record_batches=lambda: [batch],
            parts=TaskParts(looks_for_open=True),
        )


def test_the_documented_acls_of_spark_are_sufficient_and_each_is_necessary(
    broker: LocalBroker,
) -> None:
    """The test uses the ACLs of docs/SECURITY.md."""
    topic = unique("spark")
    create(broker, topic)
    acls = Acls(broker, "spark")
    read: Rule = ("TOPIC", topic, "LITERAL", "READ")
    sink: list[Rule] = [
        ("TOPIC", topic, "LITERAL", "WRITE"),
        read,
        ("TRANSACTIONAL_ID", "barnabas-spark-", "PREFIXED", "WRITE"),
        ("GROUP", "barnabas-spark-", "PREFIXED", "READ"),
    ]
    acls.allow(*sink)
    publish(broker, "spark", topic, 0)
    for number, one in enumerate(sink, 1):
        acls.remove(one)
        with pytest.raises(ClientError, match=r"(?i)authoriz|not allowed|may not"):
            publish(broker, "spark", topic, number)
        acls.allow(one)
    publish(broker, "spark", topic, 9)
    # If the driver writes, a rule for the literal transactional id is enough.
    literal: Rule = ("TRANSACTIONAL_ID", f"barnabas-spark-{topic}", "LITERAL", "WRITE")
    acls.remove(sink[2])
    acls.allow(literal)
    publish(broker, "spark", topic, 10)
    acls.remove(literal)
    acls.allow(sink[2])
    for one in sink:
        if one != read:
            acls.remove(one)
    assert read_values(broker, "spark", topic) == [b"0", b"9", b"10"]
    acls.remove(read)
    with pytest.raises(ClientError, match=r"(?i)authoriz|not allowed|may not"):
        read_values(broker, "spark", topic)
