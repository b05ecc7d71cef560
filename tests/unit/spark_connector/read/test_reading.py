"""Ranges that are read from a server with prepared logs: isolation, ends of ranges that are not
records, data loss, and temporary and permanent errors.
"""

from __future__ import annotations

import pickle
import time
import types
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from helpers.fake_broker import FakeBroker, FakeLog
from helpers.ports import refusing_port

from barnabas.client.cluster_reader import ClientError, ClusterReader, RefusedError
from barnabas.client.options import ClientOptions
from barnabas.protocol.compression import Codec
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.records import NewRecord, assemble_batch, encode_batch, encode_marker
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark_connector.read.offsets import EARLIEST, LATEST, OffsetRange
from barnabas.spark_connector.read.reading import COLUMNS, DamageError, DataLossError, read_range

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


def emptied(base: int, last: int) -> bytes:
    """A batch that compaction has emptied. As the last batch of its producer, it keeps its header
    without records.
    """
    return bytes(
        assemble_batch(
            b"",
            base_offset=base,
            leader_epoch=0,
            attributes=0,
            last_offset_delta=last - base,
            base_timestamp=1,
            max_timestamp=1,
            producer_id=1,
            producer_epoch=0,
            base_sequence=0,
            record_count=0,
        )
    )


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


def once(code: int, kind: type, after: int = 0) -> Callable[[Any], int | None]:
    """Answer a single request of a kind with this error code, after `after` others of that kind."""
    seen: list[Any] = []

    def disturb(request: Any) -> int | None:
        if isinstance(request, kind):
            seen.append(request)
            return code if len(seen) == after + 1 else None
        return None

    return disturb


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


def test_aborted_and_control_batches_are_left_out(broker: FakeBroker, decoder: str) -> None:
    assert values(broker, 0, 13, decoder=decoder) == list("abcdef")
    assert values(broker, 0, 13, decoder=decoder, committed=False) == list("abcxydefz")


@pytest.mark.parametrize("max_bytes", [1, 100, 150, 250, 400])
def test_every_range_at_every_fetch_size(broker: FakeBroker, max_bytes: int, decoder: str) -> None:
    """Fetches begin within a transaction, end within a batch, or return only markers. The result of
    every range must be exactly the records of this range.
    """
    places = {0: "a", 1: "b", 2: "c", 5: "d", 8: "e", 9: "f"}
    for start in range(14):
        for end in range(start + 1, 14):
            expected = [value for offset, value in places.items() if start <= offset < end]
            assert (
                values(broker, start, end, fetch_max_bytes=max_bytes, decoder=decoder) == expected
            ), (start, end)


def test_all_columns(broker: FakeBroker, decoder: str) -> None:
    with ClusterReader(options(broker)) as client:
        wanted = OffsetRange("t", 0, 1, 2)
        (part,) = read_range(
            client,
            wanted,
            list(COLUMNS),
            read_committed=True,
            fail_on_data_loss=True,
            decoder=decoder,
        )
    (row,) = part.to_pylist()
    assert str(row.pop("timestamp")) == "1970-01-01 00:00:01.001000+00:00"
    assert row == {
        "key": b"k1",
        "value": b"b",
        "topic": "t",
        "partition": 0,
        "offset": 1,
        "timestampType": 0,
        "headers": None,
    }


def test_a_range_that_ends_in_what_compaction_left() -> None:
    log = FakeLog([batch(0, "a"), emptied(5, 9), batch(20, "b"), emptied(21, 29)])
    with FakeBroker({("t", 0): log}) as broker:
        assert values(broker, 0, 30) == ["a", "b"]
        assert values(broker, 1, 15) == []
        assert values(broker, 21, 30) == []


def test_the_end_is_the_last_stable_offset(broker: FakeBroker) -> None:
    broker.logs["t", 0].stable_offset = 11
    with ClusterReader(options(broker)) as client:
        assert client.offsets_at({T0: LATEST}, read_committed=True) == {T0: 11}
        assert client.offsets_at({T0: LATEST}, read_committed=False) == {T0: 13}


def test_records_that_were_deleted(broker: FakeBroker) -> None:
    broker.logs["t", 0].start_offset = 2
    broker.logs["t", 0].batches = broker.logs["t", 0].batches[0:]
    with pytest.raises(
        DataLossError,
        match=(
            r"the log of t-0 begins at 2 now, not at 0, for the range \[0, "
            r"13\).*failOnDataLoss"
        ),
    ):
        values(broker, 0, 13)
    assert values(broker, 0, 13, strict=False) == list("cdef")
    assert values(broker, 0, 1, strict=False) == []


def test_a_log_that_ends_before_the_range(broker: FakeBroker) -> None:
    with pytest.raises(
        DataLossError, match=r"the log of t-0 ends at 13, before the end of the range \[8, 20\)"
    ):
        values(broker, 8, 20)
    assert values(broker, 8, 20, strict=False) == ["e", "f"]
    with pytest.raises(DataLossError, match="does not reach offset 15"):
        values(broker, 15, 20)
    assert values(broker, 15, 20, strict=False) == []


@pytest.mark.parametrize(
    "code", [FakeBroker.HANG_UP, Code.NOT_LEADER_OR_FOLLOWER, Code.KAFKA_STORAGE_ERROR]
)
@pytest.mark.parametrize("after", [0, 1, 3])
def test_what_passes_is_tried_again(broker: FakeBroker, code: int, after: int) -> None:
    broker.disturb = once(code, FetchRequest, after)
    assert values(broker, 0, 13, fetch_max_bytes=1) == list("abcdef")
    fetches = [request for request in broker.requests if isinstance(request, FetchRequest)]
    metadata = [request for request in broker.requests if isinstance(request, MetadataRequest)]
    assert len(fetches) >= 10
    assert len(metadata) >= 2, "leaders are asked for again after a failure"


def test_offsets_are_asked_for_again(broker: FakeBroker) -> None:
    broker.disturb = once(Code.LEADER_NOT_AVAILABLE, ListOffsetsRequest)
    with ClusterReader(options(broker)) as client:
        assert client.offsets_at({T0: EARLIEST}, read_committed=True) == {T0: 0}


def test_a_topic_that_is_deleted_under_a_range(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each start, a stream repeats the last batch of its checkpoint. With
    failOnDataLoss=false, the deleted topic must not block the stream forever.
    """
    monkeypatch.setattr("barnabas.client.cluster_reader.UNKNOWN_TOPIC_PATIENCE_MS", 20)

    def delete(request: Any) -> None:
        if isinstance(request, FetchRequest) and request.topics[0].partitions[0].fetch_offset == 5:
            broker.logs.pop(("t", 0), None)
            broker.logs.pop(("t", 1), None)

    kept = dict(broker.logs)
    broker.disturb = delete
    with pytest.raises(
        DataLossError,
        match=r"t-0 does not exist, for the range \[0, 13\): the topic was deleted.*failOnDataLoss",
    ):
        values(broker, 0, 13, fetch_max_bytes=1)
    broker.logs.update(kept)
    assert values(broker, 0, 13, fetch_max_bytes=1, strict=False) == list("abc")
    assert "offsets [5, 13) of t-0 are not read" in caplog.text


def test_an_end_of_the_log_that_lags_behind_is_no_loss(broker: FakeBroker) -> None:
    """A new leader's high watermark may be lower than that of the former leader for a moment.

    Source: KIP-207.
    """
    log = broker.logs["t", 0]
    log.end_offset = 8

    def catch_up(request: Any) -> int | None:
        if isinstance(request, ListOffsetsRequest):
            asked.append(request)
            if len(asked) == 1:
                return Code.OFFSET_NOT_AVAILABLE
            log.end_offset = None
        return None

    asked: list[Any] = []
    broker.disturb = catch_up
    assert values(broker, 0, 13) == list("abcdef")
    assert len(asked) == 3, "refused once, and then asked for both ends"


def test_a_broker_that_never_brings_what_it_says_it_has(broker: FakeBroker) -> None:
    """If a response is empty, or has only earlier batches, the reader retries for a limited
    time.
    """
    broker.logs["t", 0] = FakeLog([batch(0, "a")], end_offset=5)
    with pytest.raises(
        ClientError,
        match=r"reading t-0: no record is returned at offset 1, although the log continues to 5",
    ):
        values(broker, 0, 5, retry_timeout_ms=50)
    broker.logs["t", 0] = FakeLog([batch(0, "a"), batch(1, "b")], end_offset=5)
    first = FetchableTopicResponse(
        topic="t",
        partitions=[
            PartitionData(
                partition_index=0,
                error_code=0,
                high_watermark=5,
                last_stable_offset=5,
                log_start_offset=0,
                aborted_transactions=None,
                preferred_read_replica=-1,
                records=batch(0, "a"),
            )
        ],
    )
    broker._fetch = lambda request, code: FetchResponse(
        throttle_time_ms=0, error_code=0, session_id=0, responses=[first]
    )  # type: ignore[method-assign]
    with pytest.raises(
        ClientError,
        match=r"reading t-0: no record is returned at offset 1, although the log continues to 5",
    ):
        values(broker, 0, 5, retry_timeout_ms=50)


def test_a_batch_that_says_it_is_larger_than_any_is_never_whole(broker: FakeBroker) -> None:
    damaged = bytearray(batch(0, "a"))
    damaged[8:12] = b"\x7f\xff\xff\xff"
    broker.logs["t", 0] = FakeLog([bytes(damaged)], end_offset=1)
    with pytest.raises(
        ClientError,
        match="reading t-0: no record is returned at offset 0, although the log continues to 1",
    ):
        values(broker, 0, 1, retry_timeout_ms=50)


def test_a_broker_that_starts_and_does_not_know_its_topics_yet(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeout for an unknown topic starts with the first response that reports the topic as
    unknown, not with the lost connection.
    """
    monkeypatch.setattr("barnabas.client.cluster_reader.UNKNOWN_TOPIC_PATIENCE_MS", 60_000)
    now = [0.0]
    monkeypatch.setattr(
        "barnabas.client.cluster_reader.time",
        types.SimpleNamespace(monotonic=lambda: now[0], sleep=lambda s: None),
    )
    states = iter([*[FakeBroker.HANG_UP] * 5, *[Code.UNKNOWN_TOPIC_OR_PARTITION] * 5])

    def starting(request: Any) -> int | None:
        if isinstance(request, MetadataRequest):
            now[0] += 14  # five lost connections then take over a minute
            return next(states, None)
        return None

    broker.disturb = starting
    with ClusterReader(options(broker, retry_timeout_ms=600_000)) as client:
        assert client.partitions_of(["other"]) == [TopicPartition("other", 0)]


def test_an_answer_that_leaves_a_partition_out_is_asked_for_again(broker: FakeBroker) -> None:
    whole = broker._offsets
    answers = iter([True])

    def without_partitions(request: Any, code: int) -> Any:
        answer = whole(request, code)
        if next(answers, False):
            answer.topics[0].partitions = answer.topics[0].partitions[:1]
        return answer

    broker._offsets = without_partitions  # type: ignore[method-assign]
    with ClusterReader(options(broker)) as client:
        assert client.offsets_at(
            {T0: LATEST, TopicPartition("t", 1): LATEST}, read_committed=True
        ) == {T0: 13, TopicPartition("t", 1): 0}


def test_times_that_no_column_has_room_for_are_the_latest_there_are(
    broker: FakeBroker, decoder: str
) -> None:
    """A producer may send any int64 as milliseconds, but the column stores microseconds."""
    broker.logs["t", 0] = FakeLog(
        [
            batch(0, "a", timestamp=2**63 - 1),
            batch(1, "b", timestamp=-(2**63)),
            batch(2, "c", timestamp=-1),
        ]
    )
    with ClusterReader(options(broker)) as client:
        parts = read_range(
            client,
            OffsetRange("t", 0, 0, 3),
            ("timestamp",),
            read_committed=True,
            fail_on_data_loss=True,
            decoder=decoder,
        )
        found = [each for part in parts for each in part.column(0).cast("int64").to_pylist()]
    assert found == [(2**63 - 1) // 1000 * 1000, -(2**63 // 1000) * 1000, -1000]


def test_a_broker_that_has_a_quota_is_waited_for(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker responds at once with a throttle time and without the partition. It keeps the
    connection open.

    Source: KIP-219.
    """
    whole, slept = broker._fetch, []
    throttled = iter([70, 30])

    def fetch(request: Any, code: int) -> Any:
        pause = next(throttled, 0)
        return (
            FetchResponse(throttle_time_ms=pause, error_code=0, session_id=0, responses=[])
            if pause
            else whole(request, code)
        )

    broker._fetch = fetch  # type: ignore[method-assign]
    monkeypatch.setattr(
        "barnabas.client.cluster_reader.time",
        types.SimpleNamespace(monotonic=time.monotonic, sleep=slept.append),
    )
    assert values(broker, 0, 13) == list("abcdef")
    assert slept == [0.07, 0.03]
    assert sum(isinstance(request, MetadataRequest) for request in broker.requests) == 1


def test_a_fetch_does_not_wait_for_longer_than_its_answer_may_take(broker: FakeBroker) -> None:
    values(broker, 0, 13, fetch_max_wait_ms=60_000, request_timeout_ms=8000)
    assert {
        request.max_wait_ms for request in broker.requests if isinstance(request, FetchRequest)
    } == {4000}


FORMER, LATER = uuid.UUID(int=1), uuid.UUID(int=2)
FORMER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
OLD_LOG = [batch(base, f"old {base}") for base in range(6)]
NEW_LOG = [batch(base, f"new {base}") for base in range(6)]
# The Fetch versions of two brokers: one uses topic names, as before Kafka 3.1, and the other topic
# ids.
FETCH_VERSIONS = [(4, 11), (4, 13)]


def recreated_after(fetches: int, fetch_versions: tuple[int, int]) -> FakeBroker:
    """A broker whose topic is deleted, created again and filled after this number of fetches."""
    broker = FakeBroker(
        {("t", 0): FakeLog(OLD_LOG)}, topic_ids={"t": FORMER}, fetch_versions=fetch_versions
    )
    seen: list[Any] = []

    def disturb(request: Any) -> None:
        seen.append(isinstance(request, FetchRequest))
        if sum(seen) > fetches:
            broker.logs["t", 0], broker.topic_ids["t"] = FakeLog(NEW_LOG), LATER

    broker.disturb = disturb
    return broker


def read_former(broker: FakeBroker, *, strict: bool = True) -> list[str]:
    found: list[str] = []
    with ClusterReader(options(broker, fetch_max_bytes=1)) as client:
        for part in read_range(
            client,
            OffsetRange("t", 0, 0, 6),
            ("value",),
            read_committed=True,
            fail_on_data_loss=strict,
            topic_id=FORMER_ID,
        ):
            found += [value.decode() for value in part.column("value").to_pylist()]
    return found


@pytest.mark.parametrize("fetch_versions", FETCH_VERSIONS)
@pytest.mark.parametrize("fetches", range(6))
def test_a_topic_that_is_made_again_while_a_range_is_read_is_a_loss(
    fetches: int, fetch_versions: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic is recreated before the first fetch of the range, then before the second, and so
    on. The reader must never return rows of both topics without an error.
    """
    monkeypatch.setattr("barnabas.client.cluster_reader.UNKNOWN_TOPIC_PATIENCE_MS", 20)
    says = r"topic 't' was deleted and recreated.*in the range \[0, 6\)"
    with (
        recreated_after(fetches, fetch_versions) as broker,
        pytest.raises(DataLossError, match=says),
    ):
        read_former(broker)


@pytest.mark.parametrize("fetches", range(6))
def test_by_its_id_nothing_is_read_of_the_later_topic(
    fetches: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("barnabas.client.cluster_reader.UNKNOWN_TOPIC_PATIENCE_MS", 20)
    with recreated_after(fetches, (4, 13)) as broker:
        assert read_former(broker, strict=False) == [f"old {base}" for base in range(fetches)]
    assert f"offsets [{fetches}, 6) of t-0 are not read" in caplog.text


def test_a_topic_that_is_deleted_while_a_range_is_read_by_id_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("barnabas.client.cluster_reader.UNKNOWN_TOPIC_PATIENCE_MS", 20)
    broker = recreated_after(6, (4, 13))
    broker.disturb = lambda request: (
        Code.UNKNOWN_TOPIC_ID if isinstance(request, FetchRequest) else None
    )
    with broker, pytest.raises(DataLossError, match="t-0 does not exist, for the range"):
        read_former(broker)


@pytest.mark.parametrize("fetch_versions", FETCH_VERSIONS)
def test_a_topic_that_stays_is_read_with_its_id(fetch_versions: tuple[int, int]) -> None:
    with recreated_after(7, fetch_versions) as broker:
        assert read_former(broker) == [f"old {base}" for base in range(6)]
        by_id = {
            request.topics[0].topic_id is not None
            for request in broker.requests
            if isinstance(request, FetchRequest)
        }
    assert by_id == {fetch_versions[1] >= 13}


def test_refusals_are_final(broker: FakeBroker) -> None:
    broker.disturb = lambda request: (
        Code.TOPIC_AUTHORIZATION_FAILED if isinstance(request, FetchRequest) else None
    )
    with pytest.raises(RefusedError, match="partition t-0: TOPIC_AUTHORIZATION_FAILED"):
        values(broker, 0, 13)
    assert sum(isinstance(request, FetchRequest) for request in broker.requests) == 1


def test_in_the_end_the_failure_is_told(broker: FakeBroker) -> None:
    broker.disturb = lambda request: (
        Code.LEADER_NOT_AVAILABLE if isinstance(request, FetchRequest) else None
    )
    with pytest.raises(
        ClientError, match=r"reading t-0 from offset 0 failed.*LEADER_NOT_AVAILABLE"
    ):
        values(broker, 0, 13, retry_timeout_ms=50)


def test_nobody_listens() -> None:
    says = (
        r"no broker of kafka.bootstrap.servers can be reached .*Connection refused.*check that "
        r"one is running"
    )
    with refusing_port() as port, pytest.raises(ClientError, match=says):
        ClusterReader(
            ClientOptions((("127.0.0.1", port),), retry_timeout_ms=30, retry_backoff_ms=5)
        ).partitions_of(["t"])


def test_one_of_several_brokers_is_enough(broker: FakeBroker) -> None:
    with (
        refusing_port() as port,
        ClusterReader(ClientOptions((("127.0.0.1", port), ("127.0.0.1", broker.port)))) as client,
    ):
        assert client.partitions_of(["t"]) == [T0, TopicPartition("t", 1)]


def test_damage_is_told(broker: FakeBroker) -> None:
    bad = bytearray(batch(0, "a"))
    bad[-2] ^= 1
    broker.logs["t", 0] = FakeLog([bytes(bad)])
    with pytest.raises(
        DamageError,
        match=(
            r"t-0 cannot be read, for the range \[0, 1\): the checksum of the batch at offset "
            r"0 is wrong; .*startingOffsets"
        ),
    ):
        values(broker, 0, 1)
    codec = bytearray(batch(0, "a" * 100, codec=Codec.GZIP))
    codec[70:] = bytes(len(codec) - 70)
    broker.logs["t", 0] = FakeLog([bytes(codec)])
    with pytest.raises(
        DamageError,
        match=r"t-0 cannot be read, for the range \[0, 1\): the records do not decompress as gzip",
    ):
        values(broker, 0, 1, check_crcs=False)


def test_a_client_travels_without_its_connections(broker: FakeBroker) -> None:
    with ClusterReader(options(broker)) as client:
        client.partitions_of(["t"])
        with pickle.loads(pickle.dumps(client)) as copy:
            assert copy.partitions_of(["t"]) == client.partitions_of(["t"])
