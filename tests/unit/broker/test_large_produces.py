"""The largest and the most repetitive Produce requests do not block the core for more than a
moment.

The core receives each request as one frame, from a client without rights and from one with all
rights. Requests that are refused before rights are checked go to a broker without an authorizer.
Work in the worker does not count. The measure is CPU time (`thread_time`), the shortest of some
attempts, since the machine may be busy with something else.
"""

from __future__ import annotations

import functools
import gc
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers.core_host import CoreHost
from helpers.slowness import least_desk_s

from barnabas.protocol.hot_requests import MOST_PRODUCE_ELEMENTS
from barnabas.protocol.primitives import write_uvarint
from barnabas.protocol.records import NewRecord, encode_batch

MOST_S = 0.1
ATTEMPTS = 4
LARGEST_BYTES, HUGE_BYTES = 100 << 20, 32 << 20
HALF = MOST_PRODUCE_ELEMENTS // 2 - 1


def count(number: int) -> bytes:
    """The encoded length of a compact array or of compact bytes."""
    out = bytearray()
    write_uvarint(out, number + 1)
    return bytes(out)


def batch(records: list[bytes], codec: int = 0) -> bytes:
    return bytes(encode_batch([NewRecord(None, value, 1) for value in records], codec=codec))


def rows(records: bytes | None, number: int) -> bytes:
    """Encode `number` partitions with their count. Each partition has the index 0."""
    field = b"\0" if records is None else count(len(records)) + records
    return count(number) + (bytes(4) + field + b"\0") * number


def topics(name: bytes, partitions: bytes, number: int) -> bytes:
    return count(number) + (count(len(name)) + name + partitions + b"\0") * number


def repetitions(values: list[bytes], number: int, codec: int = 0) -> bytes:
    """Encode `number` partitions: a batch of an idempotent producer, then repetitions of it that
    were encoded later, so that their contents have to be compared.
    """

    def sent_at(time_ms: int) -> bytes:
        records = [NewRecord(None, value, time_ms + at % 3) for at, value in enumerate(values)]
        return bytes(
            encode_batch(records, codec=codec, producer_id=1, producer_epoch=0, base_sequence=0)
        )

    first, later = [bytes(4) + count(len(sent)) + sent + b"\0" for sent in map(sent_at, (1, 9))]
    return count(number) + first + later * (number - 1)


ONE = batch([b""])
HUGE = {
    "partitions without records": lambda: topics(b"t", rows(None, HUGE_BYTES // 6), 1),
    "topics without partitions": lambda: topics(b"t", b"\1", HUGE_BYTES // 4),
    "partitions of a record": lambda: topics(b"t", rows(ONE, HUGE_BYTES // 80), 1),
    "long names": lambda: topics(b"n" * 30_000, b"\1", HUGE_BYTES // 30_010),
    "one long name": lambda: topics(b"n" * (HUGE_BYTES - 1000), b"\1", 1),
    "tagged fields": lambda: (
        topics(b"t", rows(None, 1)[:-1], 1)[:-1]
        + count(HUGE_BYTES // 2)
        + b"\0\0" * (HUGE_BYTES // 2)
        + b"\0"
    ),
    "one long tagged field": lambda: (
        topics(b"t", rows(None, 1)[:-1], 1)[:-1]
        + b"\1\0"
        + count(HUGE_BYTES - 1000)
        + bytes(HUGE_BYTES - 1000)
        + b"\0"
    ),
}
"""What is refused: the connection ends."""
LARGE = {
    "partitions without records": lambda: topics(b"t", rows(None, 2 * HALF), 1),
    "topics without partitions": lambda: topics(b"t", b"\1", 2 * HALF),
    "topics without records": lambda: topics(b"t", rows(None, 1), HALF),
    "missing topics": lambda: topics(b"missing", rows(ONE, 1), HALF),
    "partitions of a record": lambda: topics(b"t", rows(ONE, 2 * HALF), 1),
    "as many as are appended at once": lambda: topics(b"t", rows(ONE, 500), 1),
    "large batches": lambda: topics(b"t", rows(batch([bytes(1_000_000)]), 95), 1),
    "batches": lambda: topics(b"t", rows(batch([bytes(LARGEST_BYTES // HALF - 200)]), HALF), 1),
    "small records": lambda: topics(b"t", rows(batch([b""] * 130_000), 95), 1),
    "many small records": lambda: topics(b"t", rows(batch([b""] * 10_000), 400), 1),
    "what decompresses to much": lambda: topics(b"t", rows(batch([bytes(1 << 20)], 4), 400), 1),
    "repetitions": lambda: topics(b"t", repetitions([b"v"], HALF), 1),
    "repetitions of many records": lambda: topics(b"t", repetitions([b""] * 4000, 60), 1),
    "long repetitions": lambda: topics(b"t", repetitions([b""] * 20_000, 10), 1),
    "compressed repetitions": lambda: topics(b"t", repetitions([bytes(1 << 18)] * 3, 60, 4), 1),
    "broken batches": lambda: topics(b"t", rows(ONE[:-1] + b"x", 2 * HALF), 1),
}
"""What is answered."""


@functools.cache
def frame_of(content: str, *, is_huge: bool) -> bytes:
    body = (HUGE if is_huge else LARGE)[content]()
    acks, timeout_ms = 1, 1000
    # the request header (Produce 9), then no transactional id, acks and timeout
    return struct.pack(">hhihbbhi", 0, 9, 7, -1, 0, 0, acks, timeout_ms) + body + b"\0"


USERS = {
    "absent": {},
    "without rights": {"authorizer_class_name": "StandardAuthorizer"},
    "with all rights": {
        "authorizer_class_name": "StandardAuthorizer",
        "super_users": "User:ANONYMOUS",
    },
}


def longest_s(directory: Path, user: str, frame: bytes) -> tuple[float, CoreHost]:
    """Send one request. Gives: the CPU time of the longest call into the core until the response;
    the host.
    """
    host = CoreHost(directory, **USERS[user])
    host.create("t", 1)
    host.connect(1)
    longest = 0.0

    def timed(call: Callable[[], None]) -> None:
        nonlocal longest
        before = time.thread_time()
        call()
        longest = max(longest, time.thread_time() - before)

    data = memoryview(bytearray(frame))
    gc.collect()
    # so that the garbage collector does not scan the tests' objects, which the daemon does not have
    gc.freeze()
    timed(lambda: host.broker.on_frame(1, data, host.event_ms()))
    outbox = host.broker.outbox
    while outbox.work:
        (work,) = outbox.work
        outbox.work = []
        result = work.run()
        timed(lambda work=work, result=result: host.broker.on_worked(work, result, None, 0))
    return longest, host


def check(tmp_path: Path, user: str, frame: bytes, is_refused: bool) -> None:
    """Check that the longest call stays below MOST_S in the best of some attempts. Check also that
    the request gets a response or, if `is_refused`, that its connection is closed.
    """

    def attempts() -> Iterator[float]:
        for number in range(ATTEMPTS):
            one_s, host = longest_s(tmp_path / str(number), user, frame)
            outbox = host.broker.outbox
            assert bool(outbox.closes) is is_refused and bool(outbox.sends) is not is_refused
            outbox.sends = []
            host.close()
            yield one_s

    assert least_desk_s(attempts(), MOST_S) < MOST_S


# the decoder refuses the request before rights are checked
@pytest.mark.parametrize("user", ["absent"])
@pytest.mark.parametrize("content", HUGE)
def test_a_produce_with_too_many_topics_or_partitions_is_refused_at_once(
    content: str, user: str, tmp_path: Path
) -> None:
    check(tmp_path, user, frame_of(content, is_huge=True), is_refused=True)


@pytest.mark.parametrize("user", ["without rights", "with all rights"])
@pytest.mark.parametrize("content", LARGE)
def test_a_large_produce_keeps_the_core_for_a_short_time(
    content: str, user: str, tmp_path: Path
) -> None:
    check(tmp_path, user, frame_of(content, is_huge=False), is_refused=False)
