"""The settings of Java clients: values that one would refuse, names that none has."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from barnabas.spark_connector.kafka_settings import wrong_value
from barnabas.spark_connector.options import (
    SourceOptions,
    parse_source_options,
)

REQUIRED = {"kafka.bootstrap.servers": "one:9092, [::1]:9093", "subscribe": "a"}


def parse(**options: str) -> SourceOptions:
    return parse_source_options(
        REQUIRED | {name.replace("__", "."): value for name, value in options.items()}
    )


def test_a_name_that_no_client_knows_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        parse(
            kafka__max__pol__records="7",
            kafka__xyzzy="1",
            kafka__ssl__of__a__plugin="x",
            kafka__linger__ms="5",
        )
    assert [record.message for record in caplog.records] == [
        "barnabas: option kafka.max.pol.records is no setting of a Kafka client: did you mean "
        "kafka.max.poll.records?",
        "barnabas: option kafka.xyzzy is no setting of a Kafka client: it is passed over",
    ]


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("max.poll.records", "500", ""),
        ("max.poll.records", " 500 ", ""),
        ("max.poll.records", "-2147483648", ""),
        ("max.poll.records", "2147483648", "a whole number of 32 bits"),
        ("max.poll.records", "abc", "a whole number of 32 bits"),
        ("linger.ms", "2147483648", ""),
        ("linger.ms", str(1 << 63), "a whole number of 64 bits"),
        ("check.crcs", "TRUE", ""),
        ("check.crcs", "yes", "true or false"),
        ("group.id", "anything", ""),
        ("of.nobody", "anything", ""),
    ],
)
def test_values_are_those_that_a_java_client_takes(name: str, value: str, accepted: str) -> None:
    """Source: Apache Kafka, ConfigDef.parseType."""
    assert wrong_value(name, value) == accepted
