"""docs/SPARK_OPTIONS.md describes each option of Spark's own connector in the way the code
handles it.
"""

from __future__ import annotations

import logging

import pytest
from helpers.places import ROOT

pytest.importorskip("pyarrow")

from barnabas.spark_connector import kafka_settings
from barnabas.spark_connector.option_error import OptionError
from barnabas.spark_connector.read import options
from barnabas.spark_connector.read.options import parse_source_options
from barnabas.spark_connector.write.sink_options import parse_sink_options

PAGE = ROOT / "docs" / "SPARK_OPTIONS.md"
# Source: Spark 4.3, "Structured Streaming + Kafka Integration Guide".
SOURCE_NAMES = """
    assign endingOffsets endingOffsetsByTimestamp endingTimestamp failOnDataLoss
    fetchOffset.numRetries fetchOffset.retryIntervalMs groupIdPrefix includeHeaders
    kafka.bootstrap.servers kafka.group.id kafka.isolation.level kafkaConsumer.pollTimeoutMs
    maxOffsetsPerTrigger maxRecordsPerPartition maxTriggerDelay minOffsetsPerTrigger minPartitions
    startingOffsets startingOffsetsByTimestamp startingOffsetsByTimestampStrategy
    startingTimestamp subscribe subscribePattern
"""
SINK_NAMES = """
    includeHeaders kafka.acks kafka.bootstrap.servers kafka.compression.type
    kafka.transactional.id topic
"""
SOURCE, SINK = SOURCE_NAMES.split(), SINK_NAMES.split()
BY_PARTITION = '{"t": {"0": 5}}'
VALUES = {
    "kafka.bootstrap.servers": "another:1",
    "assign": '{"t": [0]}',
    "subscribe": "another",
    "subscribePattern": "t.*",
    "startingOffsets": BY_PARTITION,
    "endingOffsets": BY_PARTITION,
    "startingOffsetsByTimestamp": BY_PARTITION,
    "endingOffsetsByTimestamp": BY_PARTITION,
    "startingOffsetsByTimestampStrategy": "latest",
    "failOnDataLoss": "false",
    "includeHeaders": "true",
    "kafka.isolation.level": "read_uncommitted",
    "kafka.acks": "1",
    "kafka.compression.type": "lz4",
    "topic": "another",
}


def table(title: str) -> dict[str, tuple[str, str, str]]:
    """The (batch, stream, remark) cells of each option in the table below a title."""
    section = PAGE.read_text().split(f"### {title}\n")[1].split("\n#")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return {
        cells[0].strip().strip("`"): (cells[1].strip(), cells[2].strip(), cells[3].strip())
        for cells in rows
    }


def test_all_options_of_spark_are_in_the_page() -> None:
    assert sorted(table("The source")) == sorted(SOURCE)
    assert sorted(table("The sink")) == sorted(SINK)


CASES = [
    (side, name, is_stream)
    for side, names in (("source", SOURCE), ("sink", SINK))
    for name in names
    for is_stream in (False, True)
]


@pytest.mark.parametrize(("side", "name", "is_stream"), CASES)
def test_an_option_is_what_the_page_says(
    caplog: pytest.LogCaptureFixture, side: str, name: str, is_stream: bool
) -> None:
    batch, stream, remark = table(f"The {side}")[name]
    says = stream if is_stream else batch
    base = {"kafka.bootstrap.servers": "one:1"}
    base |= {"topic": "t"} if side == "sink" else {"subscribe": "t"}
    if name == "startingOffsetsByTimestampStrategy":
        base["startingTimestamp"] = "5"
    parse = parse_sink_options if side == "sink" else parse_source_options
    given = base | {name: VALUES.get(name, "7")}
    if name in ("assign", "subscribePattern"):
        del given["subscribe"]
    kafka_settings._warn.cache_clear()
    options.warn_without_effect.cache_clear()
    caplog.set_level(logging.WARNING)
    if says == "refused":
        with pytest.raises(OptionError, match=name):
            parse(given, streaming=is_stream)
        return
    found = parse(given, streaming=is_stream)
    assert (found != parse(base, streaming=is_stream)) == (says == "honoured")
    is_warned = any(name in record.message for record in caplog.records)
    assert is_warned == (says == "without effect" and "no warning" not in remark)
