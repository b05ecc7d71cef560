"""Plans of a batch read: topics by name and by pattern, and the ends of ranges."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from helpers.fake_broker import FakeBroker, FakeLog

from barnabas.client.cluster_reader import ClientError, ClusterReader
from barnabas.client.options import ClientOptions
from barnabas.protocol.compression import Codec
from barnabas.protocol.records import NewRecord, encode_batch, encode_marker
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark_connector.option_error import OptionError
from barnabas.spark_connector.read.offsets import OffsetRange, OffsetSpec
from barnabas.spark_connector.read.options import parse_source_options
from barnabas.spark_connector.read.planning import plan, resolve
from barnabas.spark_connector.read.reading import DataLossError, read_range

T0 = TopicPartition("t", 0)


def batch(
    base: int,
    *values: str,
    producer: int | None = None,
    codec: Codec = Codec.NONE,
    timestamp: int = 1000,
) -> bytes:
    records = [
        NewRecord(b"k%d" % (base + place), value.encode(), timestamp + place)
        for place, value in enumerate(values)
    ]
    transactional = producer is not None
    return bytes(
        encode_batch(
            records,
            base_offset=base,
            producer_id=producer if transactional else -1,
            transactional=transactional,
            codec=codec,
        )
    )


def marker(base: int, producer: int, *, commit: bool) -> bytes:
    encoded = encode_marker(
        commit=commit, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp=1
    )
    return base.to_bytes(8, "big") + bytes(encoded[8:])


def options(broker: FakeBroker, **changes: Any) -> ClientOptions:
    defaults: dict[str, Any] = {
        "retry_timeout_ms": 600_000,
        "retry_backoff_ms": 5,
        "fetch_max_wait_ms": 0,
        "request_timeout_ms": 600_000,
    }
    return ClientOptions((("127.0.0.1", broker.port),), **(defaults | changes))


@pytest.fixture(params=["numpy", "numba"])
def decoder(request: pytest.FixtureRequest) -> str:
    if request.param == "numba":
        pytest.importorskip("numba")
    return str(request.param)


def values(
    broker: FakeBroker,
    start: int,
    end: int,
    *,
    committed: bool = True,
    strict: bool = True,
    decoder: str = "auto",
    **changes: Any,
) -> list[str]:
    """The values that a read of partition t-0 returns."""
    with ClusterReader(options(broker, **changes)) as client:
        parts = read_range(
            client,
            OffsetRange("t", 0, start, end),
            ("value",),
            read_committed=committed,
            fail_on_data_loss=strict,
            decoder=decoder,
        )
        return [value.decode() for part in parts for value in part.column("value").to_pylist()]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    log = FakeLog(
        batches=[
            batch(0, "a", "b", "c"),
            batch(3, "x", "y", producer=1, codec=Codec.ZSTD),
            batch(5, "d", producer=2),
            marker(6, 1, commit=False),
            marker(7, 2, commit=True),
            batch(8, "e", "f", producer=1, codec=Codec.LZ4),
            marker(10, 1, commit=True),
            batch(11, "z", producer=2),
            marker(12, 2, commit=False),
        ],
        # (producer id, first offset, offset of the marker)
        aborted=[(1, 3, 6), (2, 11, 12)],
    )
    with FakeBroker(
        {
            ("t", 0): log,
            ("t", 1): FakeLog(),
            ("other", 0): FakeLog([batch(0, "o")]),
            ("__internal", 0): FakeLog(),
        }
    ) as running:
        yield running


def test_topics_by_name_and_pattern(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.client.cluster_reader.UNKNOWN_TOPIC_PATIENCE_MS", 20)
    with ClusterReader(options(broker)) as client:
        assert client.topics_matching("o?t.*") == ["other", "t"]
        assert client.topics_matching("oth") == ["other"], (
            "found, as by Spark's own source, and not matched as a whole"
        )
        assert client.topics_matching("^oth$") == []
        with pytest.raises(ClientError, match="topic 'nope' does not exist"):
            client.partitions_of(["nope"])


def planned(broker: FakeBroker, **given: str) -> list[OffsetRange]:
    parsed = parse_source_options({"kafka.bootstrap.servers": broker.bootstrap_servers, **given})
    with ClusterReader(parsed.client) as client:
        return plan(client, parsed)


def test_the_ranges_of_a_batch_read(broker: FakeBroker) -> None:
    assert planned(broker, subscribe="t,other") == [
        OffsetRange("other", 0, 0, 1),
        OffsetRange("t", 0, 0, 13),
    ]
    assert planned(broker, subscribePattern="nothing.*") == []
    assert planned(
        broker,
        assign='{"t": [0]}',
        startingOffsets='{"t": {"0": -2}}',
        endingOffsets='{"t": {"0": 5}}',
    ) == [OffsetRange("t", 0, 0, 5)]
    assert len(planned(broker, subscribe="t", minPartitions="4")) == 4
    with pytest.raises(
        OptionError,
        match=(
            r"option startingOffsets has to name every partition.*t-1 is missing, x-0 is not "
            r"read"
        ),
    ):
        planned(broker, subscribe="t", startingOffsets='{"t": {"0": 1}, "x": {"0": 1}}')
    with pytest.raises(OptionError, match="option assign names partitions that do not exist: t-7"):
        planned(broker, assign='{"t": [0, 7]}')


def test_starting_offsets_behind_the_end_are_an_error(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """If the topic was recreated, a read that continues at the end of the previous read must not
    silently return nothing.
    """

    def from_offset(offset: int, **given: str) -> list[OffsetRange]:
        return planned(
            broker, assign='{"t": [0]}', startingOffsets=json.dumps({"t": {"0": offset}}), **given
        )

    assert from_offset(13) == []
    with pytest.raises(
        DataLossError,
        match=(
            r"the log of t-0 ends at 13, before startingOffsets, 14: the topic was "
            r"recreated.*failOnDataLoss"
        ),
    ):
        from_offset(14)
    assert from_offset(14, failOnDataLoss="false") == []
    assert "the log of t-0 ends at 13, before startingOffsets, 14" in caplog.text
    assert from_offset(5, endingOffsets='{"t": {"0": 5}}') == []
    with pytest.raises(
        OptionError, match=r"option startingOffsets: 6 for t-0 is behind the 5 of endingOffsets"
    ):
        from_offset(6, endingOffsets='{"t": {"0": 5}}')
    broker.logs["t", 0].stable_offset = 7
    assert from_offset(9) == [], "what is behind an open transaction is not lost"
    assert from_offset(14, endingTimestamp="1") == []


def test_timestamps_are_resolved_to_offsets(broker: FakeBroker) -> None:
    broker.logs["t", 0].batches = [
        batch(0, "a", timestamp=100),
        batch(1, "b", timestamp=200),
        batch(2, "c", timestamp=300),
    ]
    both = [T0, TopicPartition("other", 0)]
    with ClusterReader(options(broker)) as client:
        found = resolve(
            client, OffsetSpec("endingTimestamp", timestamp_ms=150), both, read_committed=True
        )
        assert found == {both[0]: 1, both[1]: 0}
        late = OffsetSpec("startingTimestamp", timestamp_ms=10_000, or_latest=False)
        with pytest.raises(
            OptionError,
            match=(
                r"option startingTimestamp: no record has this time or a later one in t-0, "
                r"other-0"
            ),
        ):
            resolve(client, late, both, read_committed=True)
        assert resolve(
            client, OffsetSpec("endingTimestamp", timestamp_ms=10_000), [T0], read_committed=True
        ) == {T0: 3}
        by_partition = OffsetSpec("startingOffsetsByTimestamp", timestamps_ms={T0: 250})
        assert resolve(client, by_partition, [T0], read_committed=True) == {T0: 2}
