"""The output of `consume`: templates, patterns, and the last records of each partition."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest
from helpers.cli_commands import CommandLine
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.client.records import records_in
from barnabas.cli.consuming.partition_reader import in_order_of_time, last_records
from barnabas.cli.consuming.record_search import PLACES, RecordSearch, WrongPattern
from barnabas.cli.consuming.record_template import WrongTemplate, compile_template
from barnabas.cli.records import ConsumedRecord, Decoded, json_record, parse_json_line
from barnabas.json_text import JsonText, json_line
from barnabas.protocol.messages.fetch import PartitionData
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.protocol.topic_partition import TopicPartition


class Record(NamedTuple):
    """A record with the fields of a consumed record."""

    topic: str = "orders"
    partition: int = 2
    offset: int = 17
    timestamp: int | None = 1_795_360_027_358
    key: Any = b"anna"
    value: Any = b"coffee"
    headers: Sequence[tuple[str, bytes | None]] = (("trace", b"7"), ("lang", b"\xff"))


@pytest.fixture
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


# The letters of the fields are those of `kcat -h` (-f) and `rpk topic consume --help` (--format).
@pytest.mark.usefixtures("_in_utc")
@pytest.mark.parametrize(
    ("template", "written"),
    [
        (r"%t [%p] at %o: %k=%v\n", b"orders [2] at 17: anna=coffee\n"),
        ("%s", b"coffee"),
        ("%T", b"1795360027358"),
        ("%d", b"2026-11-22T15:07:07.358+00:00"),
        ("%d{%Y-%m-%d}T%d{%H}", b"2026-11-22T15"),
        ("%K/%V/%S", b"4/6/6"),
        ("%h", b"trace=7,lang=\xff"),
        ("%h{%k: %v;}%o", b"trace: 7;lang: \xff;17"),
        (r"%h{}%o", b"17"),
        ("%k{hex} %v{base64} %v{json} %v{text}", b'616e6e61 Y29mZmVl "coffee" coffee'),
        (r"100%% %o\t\\\0\x7b\x0A", b"100% 17\t\\\0{\n"),
        ("ä%oä", "ä17ä".encode()),
        ("{%o}", b"{17}"),
    ],
)
def test_template(template: str, written: bytes) -> None:
    assert compile_template(template)(Record()) == written


def test_null_key_and_value_in_a_template() -> None:
    write = compile_template("%k|%v|%K|%V|%v{hex}|%v{json}|%h|%d|%T")
    null = Record(key=None, value=None, headers=(), timestamp=-1)
    assert write(null) == b"||-1|-1||null|||-1"
    assert compile_template("%h")(Record(headers=[("gone", None)])) == b"gone="


def test_a_decoded_value_in_a_template_is_json_and_its_length_that_of_the_record() -> None:
    record = Record(value=Decoded(JsonText('{"id": 1, "name": "ä"}'), b"\0\0\0\0\7ab"))
    assert compile_template("%v %V")(record) == '{"id": 1, "name": "ä"} 7'.encode()
    assert compile_template("%v{json}")(record) == '{"id": 1, "name": "ä"}'.encode()


def test_a_time_beyond_the_calendar_is_its_milliseconds() -> None:
    assert compile_template("%d")(Record(timestamp=2**62)) == b"%d" % 2**62


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("%x", "%x, at character 1, is not a field: use %t topic, %p partition"),
        ("%t %", "a percent sign at the end, at character 4, is not a field"),
        (r"%t\q", r"'\\q' at character 3 is not an escape: use \n, \r"),
        (r"%t\x1", r"is not an escape"),
        ("%t\\", "is not an escape"),
        ("%v{bin}", r"%v{bin}, at character 1, is not a form of a value: use %v{text}, %v{hex}"),
        ("%k{hex", "the brace at character 3 is not closed"),
        ("%o{3}", r"%o, at character 1, takes no braces: write \x7b"),
        ("%h{%o}", "%o within %h{…} is not a field of a header: use %k"),
        ("{key} {value}", "it names no field of a record: write %t topic"),
        ("", "it names no field"),
    ],
)
def test_a_template_that_is_wrong_says_what_is_allowed(template: str, text: str) -> None:
    with pytest.raises(WrongTemplate) as raised:
        compile_template(template)
    assert text in str(raised.value)


@pytest.mark.parametrize(
    ("pattern", "places", "is_found"),
    [
        ("ann", PLACES, True),
        ("^coffee$", PLACES, True),
        ("trace=7", PLACES, True),
        ("^lang=", ["headers"], True),
        ("ann", ["value", "headers"], False),
        ("coffee", ["key"], False),
        ("Anna", PLACES, False),
        ("�", PLACES, True),
        ("anna.*coffee", PLACES, False),  # key and value are searched separately
    ],
)
def test_pattern(pattern: str, places: Sequence[str], is_found: bool) -> None:
    assert RecordSearch([pattern], places).has(Record()) is is_found
    assert RecordSearch([pattern], places, inverted=True).has(Record()) is not is_found


def test_search_with_several_patterns_case_and_null_fields() -> None:
    assert RecordSearch(["tea", "COFF"], ignore_case=True).has(Record())
    assert not RecordSearch(["tea", "COFF"]).has(Record())
    null = Record(key=None, value=None, headers=())
    assert not RecordSearch([""]).has(null)
    assert RecordSearch(["x"], inverted=True).has(null)
    assert RecordSearch(['"id": 1']).has(Record(value=Decoded(JsonText('{"id": 1}'), b"")))
    with pytest.raises(WrongPattern, match=r"write '\\\\\(' for the text itself"):
        RecordSearch(["("])


# --- the last records ----------------------------------------------------------------------------


class FakeSilence:
    """A fake time limit for silence, which never ends."""

    def end(self) -> None:
        pass

    def look(self, what: str) -> None:
        pass


class FakeConsumer:
    """A reader of logs in memory. None in a log marks an offset without a readable record, such
    as that of a marker or an aborted record. The position moves past it, as in a real reader.
    """

    class waiting:
        silence = FakeSilence

    def __init__(self, logs: dict[TopicPartition, list[Record | None]]) -> None:
        self._logs = logs
        self.positions: dict[TopicPartition, int] = {}
        self.read: list[tuple[int, int]] = []

    def assign(self, positions: dict[TopicPartition, int]) -> None:
        self.positions = positions

    def poll(self, wait_ms: int) -> dict[TopicPartition, list[Record]]:
        """Return up to three records of each assigned partition. None in a log, which represents a
        marker, is skipped.
        """
        found = {}
        for key, at in self.positions.items():
            rows = self._logs[key][at : at + 3]
            found[key] = [row for row in rows if row is not None]
            self.read += [(key.partition, row.offset) for row in found[key]]
            self.positions[key] = at + len(rows)
        return found


OFFSETS = st.lists(st.sampled_from([None, "a", "b"]), max_size=120)


@given(st.lists(OFFSETS, min_size=1, max_size=3), st.integers(1, 8), st.integers(0, 3))
def test_last_records_are_those_of_the_whole_log(
    columns: list[list[str | None]], count: int, start: int
) -> None:
    logs: dict[TopicPartition, list[Record | None]] = {}
    for partition, letters in enumerate(columns):
        logs[TopicPartition("t", partition)] = [
            letter and Record("t", partition, offset, value=letter.encode())  # type: ignore[misc]
            for offset, letter in enumerate(letters)
        ]
    starts = {row: min(start, len(log)) for row, log in logs.items()}
    ends = {row: len(log) for row, log in logs.items()}
    consumer = FakeConsumer(logs)
    for wanted in (b"a", None):
        found = last_records(
            consumer,
            starts,
            ends,
            count,
            lambda row: row if wanted in (None, row.value) else None,  # noqa: B023
        )
        for row, log in logs.items():
            whole = [one for one in log[start:] if one and wanted in (None, one.value)]
            assert found[row] == whole[-count:]


def test_last_records_reads_only_a_few_offsets_before_the_end() -> None:
    row = TopicPartition("t", 0)
    log: list[Record | None] = [Record("t", 0, offset) for offset in range(10_000)]
    consumer = FakeConsumer({row: log})
    found = last_records(consumer, {row: 0}, {row: 10_000}, 2, lambda record: record)
    assert [record.offset for record in found[row]] == [9998, 9999]
    # the consumer starts ten offsets earlier, in case the last offsets are markers
    assert min(consumer.read) == (0, 10_000 - 2 - 10)
    assert len(set(consumer.read)) == len(consumer.read)


def test_order_of_time_keeps_the_order_of_each_partition() -> None:
    def rows(partition: int, *times: int) -> list[Record]:
        return [Record("t", partition, at, time_ms) for at, time_ms in enumerate(times)]

    tails = {TopicPartition("t", 0): rows(0, 10, 30, 20), TopicPartition("t", 1): rows(1, 25, 40)}
    ordered = in_order_of_time(tails)
    assert [(row.partition, row.offset) for row in ordered] == [
        (0, 0),
        (1, 0),
        (0, 1),
        (0, 2),
        (1, 1),
    ]


# --- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--last", "3", "--count", "3"], "--count is the first N records and --last the last N"),
        (["--last", "3", "--group", "g"], "leave out --group or --last"),
        (["--per-partition"], "needs --last N"),
        (["--grep-in", "key"], "--grep-in needs --grep"),
        (["-v"], "--invert-match needs --grep"),
        (["-i"], "--ignore-case needs --grep"),
        (["--grep", "["], "--grep: '[' is not a regular expression"),
        (["--grep", "x", "--grep-in", "topic"], "'headers'"),
        (["--format", "%q"], "--format: %q, at character 1, is not a field"),
        (["--format", "%k", "--json"], "--json and --format cannot be combined"),
        (["--format", "%k", "-K", ":"], "--key-separator and --format cannot be combined"),
        (["--follow", "--to", "3", "--last", "2"], "--follow has no end"),
        (["--last", "0"], "--last"),
    ],
)
def test_options_that_do_not_go_together_are_wrong_usage(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    text: str,
) -> None:
    run = CommandLine(monkeypatch, capsys)("consume", "t", *arguments)
    assert (run.code, run.out) == (2, "")
    assert text in run.err


def test_a_header_name_that_is_not_utf8_is_read_and_printed() -> None:
    name = b"h\xff".decode(errors="surrogateescape")
    records = [
        NewRecord(b"1", b"a", 1000, (("plain", b"x"),)),
        NewRecord(None, b"b", 1001, ((name, b"\xfe"), ("n", None))),
        NewRecord(b"3", None, 1002),
    ]
    data = bytes(encode_batch(records, base_offset=7))
    read, position = records_in(PartitionData(records=data), TopicPartition("t", 0), 7)
    assert position == 10
    assert [(one.offset, one.timestamp, one.key, one.value) for one in read] == [
        (7, 1000, b"1", b"a"), (8, 1001, None, b"b"), (9, 1002, b"3", None)
    ]  # fmt: skip
    shown = Record(value=b"b", headers=read[1].headers)
    assert json_record(shown)["headers"] == [
        [{"base64": "aP8="}, {"base64": "/g=="}], ["n", None]
    ]  # fmt: skip
    assert compile_template("%h")(shown) == b"h\xff=\xfe,n="
    line = json_line(json_record(ConsumedRecord("t", 0, *read[1]))).encode()
    assert parse_json_line(line, "line 1").headers[0][0] == name  # `produce` sends it again
