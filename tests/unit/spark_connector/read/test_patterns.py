"""Java's regular expressions, translated into Python's. The tests check which topics they match."""

from __future__ import annotations

import logging

import pytest
from helpers.fake_broker import FakeBroker, FakeLog

from barnabas.client.cluster_reader import ClusterReader
from barnabas.client.options import ClientOptions
from barnabas.spark_connector.read.options import Subscription
from barnabas.spark_connector.read.patterns import PatternError, is_found_in, translate_pattern
from barnabas.spark_connector.read.planning import partitions_to_read

TOPICS = ("orders", "orders-eu", "Orders", "o.1", "a+b", "42", "x_y")


@pytest.mark.parametrize(
    ("java", "taken"),
    [
        ("orders", ["orders", "orders-eu"]),
        ("^orders$", ["orders"]),
        (r"\Aorders\z", ["orders"]),
        (r"^\p{Lower}+$", ["orders"]),
        (r"^\p{Upper}", ["Orders"]),
        (r"^\p{Alpha}+$", ["orders", "Orders"]),
        (r"^[\p{Alpha}-]+$", ["orders", "orders-eu", "Orders"]),
        (r"^[^\p{Alpha}]+$", ["42"]),
        (r"^\P{Alpha}+$", ["42"]),
        (r"\p{Punct}", ["orders-eu", "o.1", "a+b", "x_y"]),
        (r"^\pL+$", ["orders", "Orders"]),
        (r"^\Qa+b\E$", ["a+b"]),
        (r"\Q.1", ["o.1"]),
        (r"(?<first>o)\.\d", ["o.1"]),
        (r"^(?i)orders$".replace("^(?i)", "(?i)^"), ["orders", "Orders"]),
        (r"[\]_]", ["x_y"]),
    ],
)
def test_as_java_reads_it(java: str, taken: list[str]) -> None:
    pattern = translate_pattern(java)
    assert [topic for topic in TOPICS if is_found_in(pattern, topic)] == taken


@pytest.mark.parametrize(
    ("java", "says"),
    [
        (r"\p{IsGreek}", "the class 'p{IsGreek}' has no counterpart: write the characters"),
        (r"[\P{Alpha}x]", "the class 'P{Alpha}' cannot be in a set"),
        ("[a-z&&[^b]]", "not a regular expression of Python .*set intersection"),
        (r"\R", "not a regular expression of Python"),
        ("(", "not a regular expression of Python"),
    ],
)
def test_what_has_no_counterpart_is_refused(java: str, says: str) -> None:
    with pytest.raises(PatternError, match=says):
        translate_pattern(java)


def test_a_pattern_that_is_found_nowhere_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "barnabas.spark")
    with (
        FakeBroker({("t", 0): FakeLog()}) as broker,
        ClusterReader(ClientOptions((("127.0.0.1", broker.port),))) as client,
    ):
        assert partitions_to_read(client, Subscription(pattern="^nothing")) == []
        assert "subscribePattern=^nothing matches no topic" in caplog.text
