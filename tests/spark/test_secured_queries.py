"""A query over SASL_SSL, with a user that has exactly the ACLs that the documentation lists."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from helpers.e2e_clients import PATIENCE_S, QUIET, unique
from helpers.spark_driver import through_slow_starts

from barnabas import LocalBroker

pytestmark = pytest.mark.deep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

USER, PASSWORD = "etl", "the password of etl"
Rule = tuple[str, str, str, str]
"""(resource type, name, pattern type, operation), as librdkafka names them."""
SETTINGS = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:admin"}
OF_PREFIX: list[Rule] = [
    ("TRANSACTIONAL_ID", "barnabas-spark-", "PREFIXED", "WRITE"),
    ("GROUP", "barnabas-spark-", "PREFIXED", "READ"),
]


@pytest.fixture(scope="module")
def secured() -> Iterator[LocalBroker]:
    with LocalBroker(
        users={"admin": PASSWORD, USER: PASSWORD}, tls=True, settings=SETTINGS
    ) as running:
        yield running


class Secured:
    """The broker, with the client options of its administrator and of the query's user."""

    def __init__(self, broker: LocalBroker, spark: SparkSession) -> None:
        self.broker, self.spark = broker, spark
        self.admin = AdminClient(self.client_settings())
        self.source, self.sink = (broker.create_topic(unique(name), 2) for name in ("in", "out"))
        self.sent = 0
        self.rules: list[Rule] = [
            ("TOPIC", self.source, "LITERAL", "READ"),
            ("TOPIC", self.sink, "LITERAL", "WRITE"),
            ("TOPIC", self.sink, "LITERAL", "READ"),
            *OF_PREFIX,
        ]

    def client_settings(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.broker.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.broker.ca_file),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "admin",
            "sasl.password": PASSWORD,
            **QUIET,
        }

    def options(self) -> dict[str, str]:
        """The user's options, as those of a Java client."""
        return {
            "kafka.bootstrap.servers": self.broker.bootstrap_servers,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.location": str(self.broker.ca_file),
            "kafka.ssl.truststore.type": "PEM",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required "
                f'username="{USER}" password="{PASSWORD}";'
            ),
        }

    def allow(self, *rules: Rule) -> None:
        bindings = [AclBinding(*fields(rule), AclPermissionType.ALLOW) for rule in rules]
        for future in self.admin.create_acls(bindings).values():
            future.result(PATIENCE_S)

    def take_away(self, *rules: Rule) -> None:
        filters = [AclBindingFilter(*fields(rule), AclPermissionType.ANY) for rule in rules]
        for future in self.admin.delete_acls(filters).values():
            assert len(future.result(PATIENCE_S)) == 1

    def send(self, count: int = 4) -> list[bytes]:
        """Send more records to the source topic. Gives: the values of all records so far."""
        producer = confluent_kafka.Producer(self.client_settings())
        for number in range(self.sent, self.sent + count):
            producer.produce(self.source, b"%03d" % number, partition=number % 2)
        assert producer.flush(PATIENCE_S) == 0
        self.sent += count
        return [b"%03d" % number for number in range(self.sent)]

    def copy(self, checkpoint: Path) -> StreamingQuery:
        """Run a query that copies all available records."""
        rows = (
            self.spark.readStream.format("barnabas")
            .options(**self.options(), subscribe=self.source, startingOffsets="earliest")
            .load()
            .select("value")
        )
        writer = (
            rows.writeStream.format("barnabas")
            .options(**self.options(), topic=self.sink, checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
        )

        def run() -> StreamingQuery:
            query = writer.start()
            assert query.awaitTermination(600), "the query does not end"
            return query

        return through_slow_starts(run)

    def read(self) -> list[bytes]:
        """The values that the user reads from the sink's topic in a batch."""
        rows = (
            self.spark.read.format("barnabas").options(**self.options(), subscribe=self.sink).load()
        )
        return sorted(bytes(row.value) for row in rows.select("value").collect())


def fields(rule: Rule) -> tuple[Any, ...]:
    kind, name, pattern, operation = rule
    return (
        ResourceType[kind],
        name,
        ResourcePatternType[pattern],
        f"User:{USER}",
        "*",
        AclOperation[operation],
    )


@pytest.mark.long
def test_the_acls_of_the_documentation_are_enough(
    spark: SparkSession, secured: LocalBroker, tmp_path: Path
) -> None:
    world = Secured(secured, spark)
    world.allow(*world.rules)
    sent = world.send()
    world.copy(tmp_path)
    assert world.read() == sent


@pytest.mark.long
def test_a_query_says_which_right_it_lacks_and_goes_on_when_it_has_it(
    spark: SparkSession, secured: LocalBroker, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    world = Secured(secured, spark)
    world.allow(*world.rules)
    says = [
        f"topic '{world.source}': TOPIC_AUTHORIZATION_FAILED",
        f"partition {world.sink}-",
        f"topic '{world.sink}': TOPIC_AUTHORIZATION_FAILED: the user needs the right to",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED: the user needs the right to WRITE and DESCRIBE",
        "GROUP_AUTHORIZATION_FAILED: the user needs the right to READ the group",
    ]
    for rule, words in zip(world.rules, says, strict=True):
        sent = world.send()
        world.take_away(rule)
        with pytest.raises(StreamingQueryException) as caught:
            world.copy(tmp_path)
        assert words in str(caught.value), rule
        assert "the user needs the right to" in str(caught.value), rule
        assert PASSWORD not in str(caught.value)
        world.allow(rule)
        world.copy(tmp_path)
        assert world.read() == sent, f"each once, after {rule} was given back"


def test_a_pattern_finds_the_topics_that_the_user_may_see(
    spark: SparkSession, secured: LocalBroker
) -> None:
    world = Secured(secured, spark)
    world.allow(("TOPIC", world.source, "LITERAL", "READ"))
    sent = world.send()
    rows = (
        spark.read.format("barnabas")
        .options(**world.options(), subscribePattern=f"{world.source}|{world.sink}")
        .load()
    )
    assert sorted(bytes(row.value) for row in rows.collect()) == sent
