"""A range is read completely and once despite any temporary trouble of the brokers: leaders move,
metadata is stale, connections end, end offsets lag behind.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyarrow")

from helpers.examples import drawn
from helpers.fake_broker import FakeBroker, FakeLog
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.client.cluster_reader import ClusterReader
from barnabas.client.options import ClientOptions
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest
from barnabas.protocol.messages.metadata import MetadataResponseBroker
from barnabas.protocol.records import NewRecord, encode_batch, encode_marker
from barnabas.spark_connector.read.offsets import OffsetRange
from barnabas.spark_connector.read.options import OpenTransactions
from barnabas.spark_connector.read.reading import read_range

NODES = (1, 2)
PASSING = (
    FakeBroker.HANG_UP,
    Code.REQUEST_TIMED_OUT,
    Code.KAFKA_STORAGE_ERROR,
    Code.OFFSET_NOT_AVAILABLE,
    Code.FENCED_LEADER_EPOCH,
    Code.UNKNOWN_LEADER_EPOCH,
)


class Written(NamedTuple):
    """A log, and its committed values by offset."""

    log: FakeLog
    values: dict[int, str]


@st.composite
def logs(draw: st.DrawFn) -> Written:
    """Logs with plain batches and interleaved transactions of three producers, with gaps as after
    compaction. All transactions have ended, and the last record is plain.
    """
    batches: list[bytes] = []
    aborted: list[tuple[int, int, int]] = []
    values: dict[int, str] = {}
    ongoing: dict[int, list[int]] = {}
    offset = 0

    def append(count: int, producer: int | None) -> None:
        nonlocal offset
        new = range(offset, offset + count)
        values.update({each: f"v{each}" for each in new})
        records = [NewRecord(None, values[each].encode(), 1) for each in new]
        batches.append(
            bytes(
                encode_batch(
                    records,
                    base_offset=offset,
                    producer_id=producer or -1,
                    transactional=producer is not None,
                )
            )
        )
        if producer is not None:
            ongoing.setdefault(producer, []).extend(new)
        offset += count

    def end(producer: int, *, commit: bool) -> None:
        nonlocal offset
        marker = encode_marker(
            commit=commit, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp=1
        )
        batches.append(offset.to_bytes(8, "big") + bytes(marker[8:]))
        written = ongoing.pop(producer)
        if not commit:
            aborted.append((producer, written[0], offset))
            for each in written:
                del values[each]
        offset += 1

    for step in draw(
        st.lists(
            st.sampled_from(["plain", "gap", "transaction", "transaction", "end", "end"]),
            max_size=20,
        )
    ):
        if step == "gap":
            offset += draw(st.integers(1, 4))
        elif step == "end" and ongoing:
            end(draw(st.sampled_from(sorted(ongoing))), commit=draw(st.booleans()))
        else:
            append(
                draw(st.integers(1, 4)), draw(st.integers(1, 3)) if step == "transaction" else None
            )
    for producer in sorted(ongoing):
        end(producer, commit=draw(st.booleans()))
    append(1, None)
    return Written(FakeLog(batches, aborted), values)


@contextmanager
def restless(log: FakeLog, chance: random.Random) -> Iterator[list[FakeBroker]]:
    """Two nodes with the same log, which take turns as its leader at random."""
    leader = 1
    nodes = [FakeBroker({("t", 0): log}) for _ in NODES]

    def disturb(node: int, request: Any) -> int | None:
        nonlocal leader
        if chance.random() < 0.1:
            leader = chance.choice(NODES)
        if isinstance(request, FetchRequest | ListOffsetsRequest) and node != leader:
            return chance.choice((Code.NOT_LEADER_OR_FOLLOWER, Code.UNKNOWN_TOPIC_OR_PARTITION))
        if chance.random() < 0.15:
            return (
                FakeBroker.HANG_UP
                if isinstance(request, ApiVersionsRequest)
                else chance.choice(PASSING)
            )
        return None

    def metadata(broker: FakeBroker, request: Any, code: int) -> Any:
        answer = FakeBroker._metadata(broker, request, code)
        answer.brokers = [
            MetadataResponseBroker(node_id=node, host="127.0.0.1", port=each.port, rack=None)
            for node, each in zip(NODES, nodes, strict=True)
        ]
        for topic in answer.topics:
            for partition in topic.partitions:
                partition.leader_id = (
                    leader if chance.random() < 0.7 else chance.choice((*NODES, -1))
                )
        return answer

    def fetch(broker: FakeBroker, request: Any, code: int) -> Any:
        answer = FakeBroker._fetch(broker, request, code)
        if chance.random() < 0.3:  # the leader is new, and its end offset lags behind
            (part,) = answer.responses[0].partitions
            part.last_stable_offset = request.topics[0].partitions[0].fetch_offset
            part.high_watermark = chance.choice((part.last_stable_offset, part.high_watermark))
            part.records, part.aborted_transactions = b"", []
        return answer

    with ExitStack() as running:
        for node, broker in zip(NODES, nodes, strict=True):
            broker.disturb = lambda request, node=node: disturb(node, request)  # type: ignore[misc]
            broker._metadata = lambda request, code, broker=broker: metadata(broker, request, code)  # type: ignore[method-assign,misc]
            broker._fetch = lambda request, code, broker=broker: fetch(broker, request, code)  # type: ignore[method-assign,misc]
            running.enter_context(broker)
        yield nodes


@settings(max_examples=drawn(40))
@given(logs(), st.data(), st.integers(0, 2**32), st.sampled_from([1, 100, 300, 10_000]))
def test_each_committed_record_of_a_range_is_read_once(
    written: Written, data: st.DataObject, seed: int, max_bytes: int
) -> None:
    start = data.draw(st.integers(0, written.log.end - 1))
    end = data.draw(st.integers(start + 1, written.log.end))
    with pytest.MonkeyPatch.context() as patch, restless(written.log, random.Random(seed)) as nodes:
        patch.setattr(
            "barnabas.client.cluster_reader.UNKNOWN_TOPIC_PATIENCE_MS", 600_000
        )  # the partition never stays unavailable here
        options = ClientOptions(
            tuple(("127.0.0.1", node.port) for node in nodes),
            retry_backoff_ms=1,
            retry_timeout_ms=600_000,
            fetch_max_wait_ms=0,
            fetch_max_bytes=max_bytes,
        )
        with ClusterReader(options) as client:
            parts = read_range(
                client,
                OffsetRange("t", 0, start, end),
                ("offset", "value"),
                read_committed=True,
                fail_on_data_loss=True,
                open_transactions=OpenTransactions(wait=False),  # no transaction is open
            )
            rows = [
                (row["offset"], row["value"].decode()) for part in parts for row in part.to_pylist()
            ]
    assert rows == [
        (offset, value) for offset, value in sorted(written.values.items()) if start <= offset < end
    ]
