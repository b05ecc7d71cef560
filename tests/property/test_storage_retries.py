"""An idempotent producer sends batches again in each of the ways of stock clients
(docs/TRANSACTIONS.md, "Repeated batches"), and reuses sequences for other records: the log has what
was acknowledged, once and in order, and acknowledges nothing that it does not have.
"""

from __future__ import annotations

import contextlib
import tempfile
from typing import Any

from helpers.examples import drawn
from helpers.storage_logs import NOW_MS, SECOND_MS, new_log, reopened
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.records import NewRecord, encode_batch, read_header, records_of
from barnabas.storage.batch.validate import (
    CheckBudget,
    TakesLongError,
    check_client_batch,
)
from barnabas.storage.log.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.producers.repetition import (
    Comparison,
    ComparisonTakesLong,
    have_same_content,
    stored_batch,
)

CONFIG = LogConfig(max_message_bytes=2000)
Content = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

blobs = st.one_of(st.none(), st.binary(max_size=3), st.just(b"v" * 100))
headers = st.lists(st.tuples(st.sampled_from("hi"), st.none() | st.binary(max_size=2)), max_size=2)
contents = st.tuples(blobs, blobs, headers.map(tuple))
batches = st.lists(contents, min_size=1, max_size=4)
times = st.lists(st.integers(0, SECOND_MS), min_size=4, max_size=4)
codecs = st.integers(0, 4)
# a record, and a field of it
changes = st.tuples(st.integers(0, 3), st.sampled_from(("key", "value", "header", "order")))
write = st.tuples(st.just("write"), batches, times, codecs)
one_change = st.tuples(st.just("one change"), st.integers(0, 5), changes, times, codecs)
steps = st.one_of(
    write,
    write,
    one_change,
    one_change,
    st.tuples(st.just("too large"), batches, times, codecs),
    # the number of batches from the end of the log, and how it is encoded the second time
    st.tuples(st.just("again"), st.integers(0, 5), times, codecs),
    st.tuples(st.just("other records"), st.integers(0, 5), batches, times, codecs),
    st.tuples(st.just("merged"), st.integers(0, 5), batches, times, codecs),
    st.tuples(st.just("half"), st.integers(0, 5), times, codecs),
    st.tuples(st.just("restart"), st.booleans()),
)


def changed(contents: list[Content], at: int, field: str) -> list[Content]:
    """The contents with the smallest change in a field of one record."""
    at %= len(contents)
    key, value, headers = contents[at]
    others = contents[:at], contents[at + 1 :]
    if field == "order":
        return [*others[1], contents[at], *others[0]]
    if field == "key":
        key = None if key == b"" else (key or b"")[:-1]
    elif field == "value":
        value = b"" if value is None else value + b"\0"
    else:
        headers = (*headers[:-1], ("h", b"?")) if headers else (("h", None),)
    return [*others[0], (key, value, headers), *others[1]]


class SearchTakesLong(Exception):
    """The search for a producer's last batches continues with the next attempt."""


class Producer:
    """An idempotent producer and what the log has to have of it.

    written: the first sequence and the contents of each batch. is_on_loop: whether comparisons have
    the smallest limits, so that each is made apart from the append.
    """

    def __init__(self, path: str, is_on_loop: bool) -> None:
        self.manager, self.log = new_log(path, max_message_bytes=2000)
        self.is_on_loop = is_on_loop
        self.written: list[tuple[int, list[Content]]] = []

    @property
    def next_sequence(self) -> int:
        return sum(len(contents) for _, contents in self.written)

    def send(
        self, sequence: int, contents: list[Content], times: list[int], codec: int
    ) -> tuple[int, bool] | Code:
        """Send a batch. Gives: its first offset, and whether it repeats another; or the error."""
        records = [
            NewRecord(key, value, time, headers)
            for (key, value, headers), time in zip(contents, times * 4, strict=False)
        ]
        sent = encode_batch(
            records, codec=codec, producer_id=1, producer_epoch=0, base_sequence=sequence
        )
        try:
            info = self._append(self.log, sent)
        except KafkaError as error:
            return error.code
        return info.first_offset, info.duplicate

    def _append(self, log: Log, sent: bytearray) -> Any:
        if not self.is_on_loop:
            return log.append(sent, now_ms=NOW_MS)
        checked = check_client_batch(memoryview(sent), log.rules, NOW_MS)
        how: dict[str, Any] = {"now_ms": NOW_MS, "at_once": CheckBudget(1), "checked": checked}
        try:
            while True:
                with contextlib.suppress(SearchTakesLong):
                    return self._append_once(log, sent, how)
        except ComparisonTakesLong as error:
            stored = stored_batch(error.written, log.segments)
            assert stored is not None
            comparison = Comparison(error.written, have_same_content(stored, sent, 1 << 20))
            return log.append(sent, comparison=comparison, **how)

    def _append_once(self, log: Log, sent: bytearray, how: dict[str, Any]) -> Any:
        try:
            return log.append(sent, **how)
        except ComparisonTakesLong:
            raise
        except TakesLongError as error:  # the search for the producer's batches goes on
            how["at_once"] = CheckBudget(1)
            raise SearchTakesLong from error

    def step(self, name: str, *values: Any) -> None:
        if name == "restart":
            self.log.flush()
            self.manager, self.log = reopened(self.manager, CONFIG, clean=values[0])
        elif name == "write":
            self.write(*values)
        elif name == "too large":
            contents, *encoded = values
            large = (None, bytes(range(256)) * 8, ())  # gzip and zstd make it small
            first = self.next_sequence
            answer = self.send(first, [*contents, large], encoded[0], 0)
            assert answer == Code.MESSAGE_TOO_LARGE
            self.write(contents, *encoded)  # the client splits it, and uses its sequences again
        elif self.written[-5:]:
            back, *rest = values
            self.send_again(name, max(len(self.written) - 1 - back, 0), *rest)

    def write(self, contents: list[Content], *encoded: Any) -> None:
        first = self.next_sequence
        assert self.send(first, contents, *encoded) == (first, False)
        self.written.append((first, contents))

    def send_again(self, name: str, at: int, *values: Any) -> None:
        """Send a batch with sequences that are used."""
        sequence, contents = self.written[at]
        if name == "again":
            answer = self.send(sequence, contents, *values)
            is_remembered = at >= len(self.written) - 5
            assert answer == (
                (sequence, True) if is_remembered else Code.OUT_OF_ORDER_SEQUENCE_NUMBER
            )
            return
        if name == "half":
            other = contents[: len(contents) // 2]
            if not other:
                return
        else:
            new, *values = values  # type: ignore[assignment]
            if name == "one change":
                other = changed(contents, *new)
            else:
                other = [*contents, *new] if name == "merged" else new
        answer = self.send(sequence, other, *values)
        if other == contents and at >= len(self.written) - 5:
            assert answer == (sequence, True)
        elif len(other) == len(contents) and at >= len(self.written) - 5:
            assert answer == Code.UNKNOWN_PRODUCER_ID
        else:
            has_these = (sequence, len(other)) in {
                (first, len(written)) for first, written in self.written[-5:]
            }
            assert not has_these
            assert answer == Code.OUT_OF_ORDER_SEQUENCE_NUMBER

    def check(self) -> None:
        """Compare the records of the log with what was written."""
        records = []
        for segment in self.log.segments:
            for position, header in segment.batches.headers(0, segment.batches.size):
                data = segment.batches.file.pread(header.size_bytes, position)
                assert read_header(data).base_sequence == header.base_offset
                records += [(key, value, more) for _, _, key, value, more in records_of(data)]
        assert records == [content for _, contents in self.written for content in contents]


@settings(max_examples=drawn(60))
@given(all_steps=st.lists(steps, min_size=10, max_size=24), is_on_loop=st.booleans())
def test_batches_that_are_sent_again_are_written_once_and_others_are_refused(
    all_steps: list[tuple[Any, ...]], is_on_loop: bool
) -> None:
    with tempfile.TemporaryDirectory() as path:
        producer = Producer(path, is_on_loop)
        for name, *values in all_steps:
            producer.step(name, *values)
        producer.check()
        producer.manager.close(NOW_MS)
