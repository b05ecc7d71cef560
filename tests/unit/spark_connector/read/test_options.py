"""Options have the names and meanings of Spark's own Kafka source, and errors name the option and
say what to do.
"""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyarrow")

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark_connector.option_error import OptionError
from barnabas.spark_connector.read.offsets import EARLIEST, LATEST
from barnabas.spark_connector.read.options import (
    OpenTransactions,
    SourceOptions,
    TriggerOptions,
    includes_headers,
    parse_source_options,
)

REQUIRED = {"kafka.bootstrap.servers": "one:9092, [::1]:9093", "subscribe": "a"}


def parse(**options: str) -> SourceOptions:
    return parse_source_options(
        REQUIRED | {name.replace("__", "."): value for name, value in options.items()}
    )


def without(*names: str, **options: str) -> SourceOptions:
    return parse_source_options(
        {name: value for name, value in REQUIRED.items() if name not in names} | options
    )


def test_defaults() -> None:
    options = parse()
    assert options.client.bootstrap_servers == (("one", 9092), ("::1", 9093))
    assert options.subscription.topics == ("a",)
    assert (options.starting.everywhere, options.ending.everywhere) == (EARLIEST, LATEST)
    assert options.read_committed and options.fail_on_data_loss and not options.include_headers
    assert options.min_partitions is None and options.client.fetch_max_bytes == 16 << 20


def test_names_are_case_insensitive() -> None:
    assert parse(INCLUDEHEADERS="True", minpartitions="7").min_partitions == 7
    assert includes_headers({"IncludeHeaders": "true"})


def test_topics_partitions_and_patterns() -> None:
    assert parse(subscribe=" b , a,b").subscription.topics == ("b", "a")
    assert without("subscribe", subscribePattern="a.*").subscription.pattern == "a.*"
    assigned = without("subscribe", assign='{"b": [1, 0, 1], "a": [2]}').subscription.partitions
    assert assigned == (TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("b", 1))


def test_offsets() -> None:
    options = parse(
        startingOffsets='{"a": {"0": 23, "1": -2}}', endingOffsets='{"a": {"0": 50, "1": -1}}'
    )
    assert options.starting.offsets == {
        TopicPartition("a", 0): 23,
        TopicPartition("a", 1): EARLIEST,
    }
    assert options.ending.offsets[TopicPartition("a", 1)] == LATEST
    assert parse(endingOffsets="LATEST").ending.everywhere == LATEST


def test_timestamps_go_before_offsets() -> None:
    options = parse(
        startingOffsets="earliest",
        startingOffsetsByTimestamp='{"a": {"0": 1000}}',
        endingTimestamp="5",
    )
    assert (
        options.starting.timestamps_ms == {TopicPartition("a", 0): 1000}
        and not options.starting.or_latest
    )
    assert options.ending.timestamp_ms == 5 and options.ending.or_latest
    both = parse(
        startingTimestamp="7",
        startingOffsetsByTimestamp='{"a": {"0": 1}}',
        startingOffsetsByTimestampStrategy="latest",
    )
    assert both.starting.timestamp_ms == 7 and both.starting.or_latest


def test_kafka_options_that_are_used_and_those_that_are_passed_over() -> None:
    options = parse(
        kafka__isolation__level="read_uncommitted",
        kafka__max__partition__fetch__bytes="1000",
        kafka__client__id="me",
        kafka__check__crcs="false",
        kafka__heartbeat__interval__ms="1",
        kafka__security__protocol="plaintext",
        groupIdPrefix="x",
        checkpointLocation="/tmp",
    )
    assert not options.read_committed
    assert (
        options.client.fetch_max_bytes,
        options.client.client_id,
        options.client.check_crcs,
    ) == (1000, "me", False)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"startingOffset": "1"},
            "startingoffset is unknown to the source: did you mean startingOffsets",
        ),
        ({"xyzzy": "1"}, "xyzzy is unknown to the source: spark_connector/README.md"),
        ({"subscribe": " , "}, "option subscribe="),
        ({"assign": '{"a": [0]}'}, "subscribe and assign are given together"),
        (
            {"startingOffsets": "latest"},
            "option startingOffsets=latest: a batch read would be empty",
        ),
        ({"endingOffsets": "earliest"}, "option endingOffsets=earliest"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, r"option startingOffsets: -1 \(latest\) for a-0"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, r"option endingOffsets: -2 \(earliest\) for a-0"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "option startingOffsets=.*give JSON like"),
        ({"startingOffsets": '{"a": 5}'}, "option startingOffsets=.*give JSON like"),
        ({"startingOffsets": '{"a": {"0": true}}'}, "option startingOffsets=.*give JSON like"),
        ({"startingOffsets": "soon"}, "option startingOffsets='soon': give JSON like"),
        ({"startingTimestamp": "noon"}, "option startingTimestamp='noon': give a whole number"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "give error or latest"),
        ({"minPartitions": "0"}, "option minPartitions='0': give a whole number of at least 1"),
        ({"failOnDataLoss": "maybe"}, "option failOnDataLoss='maybe': give true or false"),
        ({"decoder": "cython"}, "option decoder='cython': give auto or numpy or numba"),
        (
            {"kafka.isolation.level": "serializable"},
            "option kafka.isolation.level='serializable': give read_committed or read_uncommitted",
        ),
        ({"kafka.bootstrap.servers": "host"}, "'host' is not host:port"),
        ({"kafka.bootstrap.servers": "host:99999"}, "is not host:port"),
        ({"kafka.bootstrap.servers": ","}, "give at least one host:port"),
        (
            {"kafka.auto.offset.reset": "latest"},
            "kafka.auto.offset.reset cannot be set: use startingOffsets",
        ),
        (
            {"kafka.security.protocol": "SASL_SSL"},
            "option kafka.sasl.mechanism is missing: give PLAIN",
        ),
        (
            {"startingTimestamp": str(2**63)},
            f"option startingTimestamp='{2**63}': give a whole number of at most {2**63 - 1}",
        ),
        (
            {"startingOffsets": json.dumps({"a": {"0": 2**63}})},
            "option startingOffsets=.*give JSON like",
        ),
        (
            {"endingOffsetsByTimestamp": json.dumps({"a": {"0": 2**63}})},
            "option endingOffsetsByTimestamp=.*give JSON like",
        ),
        ({"startingOffsets": "[" * 100_000}, "option startingOffsets=.*give JSON like"),
        (
            {"kafka.max.partition.fetch.bytes": str(2**31)},
            "option kafka.max.partition.fetch.bytes=.*at most 2147483647",
        ),
        (
            {"kafka.fetch.max.wait.ms": str(2**31)},
            "option kafka.fetch.max.wait.ms=.*at most 2147483647",
        ),
        (
            {"kafka.request.timeout.ms": str(10**20)},
            "option kafka.request.timeout.ms=.*at most 2147483647",
        ),
        (
            {"kafka.retry.backoff.ms": str(10**20)},
            "option kafka.retry.backoff.ms=.*at most 2147483647",
        ),
        (
            {"kafka.max.poll.records": "abc"},
            "option kafka.max.poll.records='abc': give a whole number of 32 bits",
        ),
        (
            {"kafka.heartbeat.interval.ms": str(2**31)},
            "option kafka.heartbeat.interval.ms='2147483648': give a whole number of 32 bits",
        ),
        (
            {"kafka.buffer.memory": "1e6"},
            "option kafka.buffer.memory='1e6': give a whole number of 64 bits",
        ),
        (
            {"kafka.allow.auto.create.topics": "yes"},
            "option kafka.allow.auto.create.topics='yes': give true or false",
        ),
    ],
)
def test_errors_name_the_option_and_what_to_do(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        parse_source_options(REQUIRED | given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {},
            "exactly one of the options subscribe, subscribePattern and assign is needed: "
            "none of them is given",
        ),
        ({"assign": "[]"}, "option assign="),
        ({"assign": "{}"}, "option assign="),
        ({"assign": '{"a": [-1]}'}, "option assign="),
        ({"subscribePattern": "("}, "option subscribePattern='\\('"),
        ({"subscribePattern": ""}, "option subscribePattern is empty"),
        (
            {"subscribePattern": "a{99999999999}"},
            "option subscribePattern=.*not a regular expression",
        ),
        (
            {"subscribePattern": "[a-z&&[^b]]+"},
            "option subscribePattern=.*not a regular expression of Python.*set intersection",
        ),
    ],
)
def test_what_to_read_has_to_be_said_once_and_well(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        without("subscribe", **given)


def test_the_brokers_have_to_be_named() -> None:
    with pytest.raises(OptionError, match=r"option kafka.bootstrap.servers is missing"):
        without("kafka.bootstrap.servers")


def stream(**options: str) -> SourceOptions:
    return parse_source_options(
        REQUIRED | {name.replace("__", "."): value for name, value in options.items()},
        streaming=True,
    )


def test_a_stream_begins_at_the_end_and_may_begin_anywhere() -> None:
    assert stream().starting.everywhere == LATEST
    assert stream(startingOffsets="earliest").starting.everywhere == EARLIEST
    mixed = stream(startingOffsets='{"a": {"0": -1, "1": -2, "2": 7}}').starting.offsets
    assert sorted(mixed.values()) == [EARLIEST, LATEST, 7]
    assert stream(startingTimestamp="5").starting.timestamp_ms == 5


def test_limits_of_a_stream() -> None:
    assert stream().trigger == TriggerOptions(None, None, 900_000)
    assert stream(
        maxOffsetsPerTrigger="9", minOffsetsPerTrigger="3", maxTriggerDelay="90s"
    ).trigger == TriggerOptions(9, 3, 90_000)
    assert parse(maxOffsetsPerTrigger="9").trigger == TriggerOptions(), (
        "passed over in a batch read, as Spark does"
    )
    assert stream(kafka__metadata__max__age__ms="100").metadata_max_age_ms == 100


def test_open_transactions_and_filters() -> None:
    assert parse().open_transactions == OpenTransactions(wait=True, timeout_ms=1_200_000)
    assert parse(
        onOpenTransaction="END", openTransactionTimeout="2 min"
    ).open_transactions == OpenTransactions(wait=False, timeout_ms=120_000)
    assert stream(openTransactionTimeout="1500").open_transactions.timeout_ms == 1500
    assert parse(pushDownFilters="true").push_down_filters and not parse().push_down_filters
    assert [parse().decoder, parse(decoder="numpy").decoder, parse(decoder="Numba").decoder] == [
        "auto",
        "numpy",
        "numba",
    ]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"endingOffsets": "latest"},
            r"option endingOffsets is for batch reads; leave it out, or stop the stream with "
            r".*availableNow",
        ),
        ({"endingTimestamp": "5"}, "option endingTimestamp is for batch reads"),
        ({"endingOffsetsByTimestamp": "{}"}, "option endingOffsetsByTimestamp is for batch reads"),
        (
            {"maxOffsetsPerTrigger": "0"},
            "option maxOffsetsPerTrigger='0': give a whole number of at least 1",
        ),
        (
            {"maxOffsetsPerTrigger": "1", "minOffsetsPerTrigger": "2"},
            "option minOffsetsPerTrigger=2 is more than maxOffsetsPerTrigger=1",
        ),
        (
            {"maxTriggerDelay": "soon"},
            "option maxTriggerDelay='soon': give a duration like 500ms, 30s, 15m or 1h",
        ),
        ({"onOpenTransaction": "skip"}, "option onOpenTransaction='skip': give wait or end"),
    ],
)
def test_errors_of_streams(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        stream(**given)
