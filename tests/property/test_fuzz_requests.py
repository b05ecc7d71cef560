"""Mutated requests of every API and version against the real core. This module sends a few
thousand, and `PYTHONPATH=tests/tools:tests:. python -m fuzz` a hundred thousand.

The requirements are in fuzz/storm.py. The later tests send frames that earlier storms found.
"""

from __future__ import annotations

import gc
import logging
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from fuzz.making import Knowledge, Maker, mutated_batch
from fuzz.reading import Verdict, read
from fuzz.storm import Storm
from helpers.admin_host import NOW_MS
from helpers.examples import drawn
from helpers.hard_state import hard_state
from helpers.our_messages import read_request
from helpers.scratch import scratch_directory
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.api import Api
from barnabas.protocol.api_table import APIS
from barnabas.protocol.primitives import MalformedMessageError
from barnabas.protocol.records import NewRecord, encode_batch

pytestmark = pytest.mark.deep

VERSIONS = [
    (api, version) for api in APIS for version in range(api.min_version, api.max_version + 1)
]
PRODUCE, FETCH, METADATA, OFFSET_COMMIT, TXN_OFFSET_COMMIT, WRITE_TXN_MARKERS, ALTER_CONFIGS = (
    0,
    1,
    3,
    8,
    28,
    27,
    33,
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Disable logging, since thousands of requests are refused."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


WITH_RIGHTS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "barnabas.audit.log": "/dev/null",
}


@pytest.mark.parametrize(  # seeds whose mutations leave enough valid requests of each API
    ("seed", "settings"), [(1, {}), (5, WITH_RIGHTS)], ids=["plain", "with rights"]
)
def test_a_storm_of_mutated_requests_causes_no_finding(seed: int, settings: dict[str, str]) -> None:
    """The broker does not crash, sends no response to an undecodable request, and keeps no state of
    closed connections. A start after a kill and one after a clean stop both restore its state.
    """
    path = Path(scratch_directory())
    storm = Storm(path / "data", seed, **settings)
    storm.run(2500)
    storm.calm()
    assert storm.findings == {}, "\n\n".join(storm.findings.values())
    assert (
        storm.counts["answered"] > 1000
        and storm.counts["hung up"] > 500
        and storm.counts["parked"] > 10
    )
    assert (
        min(
            storm.fine.get(name, 0)
            for name in ("Produce", "Fetch", "AddPartitionsToTxn", "OffsetCommit", "InitProducerId")
        )
        > 10
    )
    storm.check_restarts(path / "copy")
    storm.broker.close_logs(storm.now_ms)


def test_undecodable_requests_leave_nothing_in_memory() -> None:
    """The same truncated frames are sent twice. The second time must take no more memory than the
    first.
    """
    storm = Storm(Path(scratch_directory()) / "data", 3)
    random, knowledge = Random(3), Knowledge()
    maker = Maker(random, knowledge, NOW_MS)
    frames = []
    for api, version in VERSIONS:
        frame = maker.request(api, version, 7)
        cut = frame[: random.randrange(8, len(frame))]
        if read(cut).verdict is Verdict.NOT_UNDERSTOOD:
            frames.append(cut)
    assert len(frames) > 100

    def offer_all() -> None:
        for frame in frames:
            storm.offer(frame, read(frame))

    offer_all()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(5):
        offer_all()
    gc.collect()
    assert sys.getallocatedblocks() - before < 1000
    assert storm.findings == {} and storm.counts["hung up"] == 6 * len(frames)
    storm.broker.close_logs(NOW_MS)


@pytest.mark.parametrize(
    ("api", "version"),
    VERSIONS,
    ids=lambda value: value.name if isinstance(value, Api) else str(value),
)
def test_both_decoders_read_the_same_values_of_a_valid_request(api: Api, version: int) -> None:
    """The fuzzer's own decoder and the broker's decoder get the same values from the same bytes."""
    random = Random(version)
    maker = Maker(random, Knowledge(), NOW_MS)
    for number in range(5):
        frame = maker.request(api, version, number, wild=0.2)
        reading = read(frame)
        assert reading.verdict is Verdict.UNDERSTOOD, reading
        start = 14 + (version >= api.flexible_from)
        request, end = read_request(api.name, memoryview(frame), start, version)
        assert end == len(frame)
        assert_same(reading.values, request)


def assert_same(values: object, decoded: object) -> None:
    """Check that the broker decoded the same values as the fuzzer."""
    if isinstance(values, dict):
        for name, value in values.items():
            assert_same(value, getattr(decoded, name))
    elif isinstance(values, list):
        assert isinstance(decoded, list) and len(decoded) == len(values)
        for value, other in zip(values, decoded, strict=True):
            assert_same(value, other)
    elif isinstance(values, bytes):
        assert bytes(decoded) == values  # type: ignore[call-overload]
    elif decoded is None:
        assert values is None or getattr(values, "int", None) == 0
    else:
        assert decoded == values


@settings(max_examples=drawn(300))
@given(st.binary(max_size=200), st.sampled_from(VERSIONS))
def test_any_bytes_as_a_body_are_decoded_or_refused(body: bytes, row: tuple[Api, int]) -> None:
    """The decoder accepts the bytes, or raises one of the errors that the core expects."""
    api, version = row
    frame = (
        struct.pack(">hhih", api.key, version, 7, -1)
        + (b"\0" if version >= api.flexible_from else b"")
        + body
    )
    start = len(frame) - len(body)
    verdict = read(frame).verdict
    try:
        _, end = read_request(api.name, memoryview(frame), start, version)
    except (struct.error, IndexError, MalformedMessageError):
        assert verdict is not Verdict.UNDERSTOOD
    else:
        assert end <= len(frame)
        assert verdict in (Verdict.UNDERSTOOD, Verdict.EITHER)


@settings(max_examples=drawn(200))
@given(st.integers(0, 2**32), st.booleans())
def test_a_mutated_batch_is_a_batch_of_bytes(seed: int, small: bool) -> None:
    """The mutator never fails."""
    batch = encode_batch([NewRecord(b"k", b"v" * (1 if small else 50), NOW_MS)])
    assert isinstance(mutated_batch(bytearray(batch), Random(seed)), bytes)


# --- what storms found --------------------------------------------------------------------------


def head(key: int, version: int) -> bytes:
    return struct.pack(">hhih", key, version, 7, -1)


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


@pytest.fixture
def storm() -> Iterator[Storm]:
    """A storm's broker, to which a test sends single frames."""
    running = Storm(Path(scratch_directory()) / "data", 1)
    yield running
    running.broker.close_logs(NOW_MS)


def outcome(storm: Storm, frame: bytes) -> str:
    """What the broker does with the frame: it answers, closes the connection, or waits."""
    before = dict(storm.counts)
    storm.offer(frame, read(frame))
    assert storm.findings == {}, storm.findings
    if storm.counts["hung up"] > before["hung up"]:
        return "hung up"
    return "answered" if storm.counts["answered"] > before["answered"] else "parked"


@pytest.mark.parametrize("count", [-2, -5, -(2**31)])
def test_a_negative_count_is_null(storm: Storm, count: int) -> None:
    """A negative count means null, not an empty array. Metadata returns all topics for null, and
    DescribeGroups (key 15) does not accept null.
    """
    assert outcome(storm, head(METADATA, 1) + struct.pack(">i", count)) == "answered"
    assert outcome(storm, head(15, 0) + struct.pack(">i", count)) == "hung up"


def test_a_fetch_with_null_for_an_array_is_refused(storm: Storm) -> None:
    fields = struct.pack(">iiiibii", -1, 0, 1, 1000, 0, 0, -1)
    assert (
        outcome(storm, head(FETCH, 7) + fields + struct.pack(">i", -1) + struct.pack(">i", 0))
        == "hung up"
    )
    topic = struct.pack(">i", 1) + string("plain") + struct.pack(">i", -1)
    assert outcome(storm, head(FETCH, 7) + fields + topic + struct.pack(">i", 0)) == "hung up"


def test_a_produce_with_null_for_an_array_or_a_name_is_refused(storm: Storm) -> None:
    fields = struct.pack(">hhi", -1, -1, 100)
    assert outcome(storm, head(PRODUCE, 7) + fields + struct.pack(">i", -1)) == "hung up"
    assert outcome(storm, head(PRODUCE, 7) + fields + struct.pack(">ihi", 1, -1, 0)) == "hung up"
    assert (
        outcome(
            storm,
            head(PRODUCE, 7)
            + fields
            + struct.pack(">i", 1)
            + string("plain")
            + struct.pack(">i", -1),
        )
        == "hung up"
    )


def test_tagged_fields_that_exceed_the_request_are_refused(storm: Storm) -> None:
    """The rule also holds for a Produce, which is decoded in the receive buffer."""
    frame = head(PRODUCE, 9) + b"\0" + b"\0" + struct.pack(">hi", -1, 100) + b"\1"
    assert outcome(storm, frame + b"\0") == "answered"
    assert outcome(storm, frame + b"\1\5\3abc") == "answered"
    assert outcome(storm, frame + b"\1\5\4abc") == "hung up"


def test_a_varint_without_end_is_refused_at_once(storm: Storm) -> None:
    """Without the check, such a frame would keep the core busy for hours. The limit of a minute
    allows for slow machines.
    """
    began = time.process_time()
    endless = b"\xff" * 4_000_000
    assert outcome(storm, head(METADATA, 9) + b"\0" + endless) == "hung up"
    assert outcome(storm, head(METADATA, 9) + endless) == "hung up"
    assert outcome(storm, head(PRODUCE, 9) + b"\0" + endless) == "hung up"
    assert outcome(storm, head(METADATA, 9) + b"\0" + b"\1\0\0" + endless) == "hung up"
    assert time.process_time() - began < 60


@pytest.mark.parametrize("first", ["ok", "\ufffd"])
def test_invalid_utf8_is_replaced_only_in_the_string_that_has_it(storm: Storm, first: str) -> None:
    """The same bytes also occur elsewhere in the request, and must not be replaced there."""
    resource = (
        struct.pack(">ib", 1, 4)
        + struct.pack(">h", 1)
        + b"\xff"
        + struct.pack(">i", 1)
        + string(first)
        + struct.pack(">h", -1)
    )
    assert outcome(storm, head(ALTER_CONFIGS, 0) + resource + b"\1") == "answered"


def test_an_offset_commit_with_the_longest_retention_is_accepted(storm: Storm) -> None:
    """The sum of the retention of 2^63 - 1 ms and the current time must not overflow."""
    body = string("g") + struct.pack(">i", -1) + string("") + struct.pack(">q", 2**63 - 1)
    body += struct.pack(">i", 1) + string("plain") + struct.pack(">iiq", 1, 0, 5) + string("")
    assert outcome(storm, head(OFFSET_COMMIT, 2) + body) == "answered"
    assert hard_state(storm.broker.groups)


def test_a_marker_of_no_producer_is_refused(storm: Storm) -> None:
    """WriteTxnMarkers with producer id -1 appends no marker and adds no producer."""
    flexible = (
        struct.pack(">Bqhb", 2, -1, 5, 0)
        + b"\2"
        + b"\6plain"
        + b"\2"
        + struct.pack(">i", 0)
        + b"\0"
        + struct.pack(">i", 0)
        + b"\0\0"
    )
    assert outcome(storm, head(WRITE_TXN_MARKERS, 1) + b"\0" + flexible) == "answered"
    log = storm.broker.topics.partition("plain", 0)
    assert (
        log is not None and log.log_end_offset == 0 and log.producer_state.active_producers() == []
    )


def test_offsets_with_an_unassigned_epoch_do_not_keep_a_transaction_open(storm: Storm) -> None:
    """While a transaction is open, offsets with such an epoch are accepted, as in Apache Kafka, and
    raise the partition's epoch. The coordinator must still be able to end the transaction.
    """
    broker = storm.broker
    assert outcome(storm, head(22, 1) + string("id") + struct.pack(">i", 60_000)) in (
        "answered",
        "parked",
    )
    storm.flush()
    (metadata,) = broker.transactions.snapshot().values()
    producer = struct.pack(">qh", metadata.producer_id, metadata.producer_epoch)
    outcome(storm, head(25, 0) + string("id") + producer + string("g"))
    offsets = struct.pack(">i", 1) + string("plain") + struct.pack(">iiq", 1, 0, 5) + string("")
    outcome(storm, head(TXN_OFFSET_COMMIT, 0) + string("id") + string("g") + producer + offsets)
    later = struct.pack(">qh", metadata.producer_id, metadata.producer_epoch + 100)
    outcome(storm, head(TXN_OFFSET_COMMIT, 0) + string("id") + string("g") + later + offsets)
    storm.flush()
    assert any(
        log.producer_state.open_transactions()
        for log in broker.topics.partitions_of("__consumer_offsets")
        if log
    )
    storm.calm()
