"""`barnabas produce` against the real daemon: files, CSV and JSON lines, keys and headers from
fields, and all of these in transactions.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.cli_commands import CommandLine, Run
from helpers.e2e_clients import unique

pytestmark = pytest.mark.e2e

CSV = 'id,item,where,at,trace\n1,tea,0,1970-01-01T00:00:01Z,a\n2,"cake, large",1,2000,\n'


@pytest.fixture
def barnabas(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], servers: str
) -> CommandLine:
    """The command line, connected to the shared broker."""
    return CommandLine(monkeypatch, capsys).use(servers)


@pytest.fixture
def topic(barnabas: CommandLine) -> str:
    """A topic with two partitions."""
    name = unique("rows")
    barnabas.ok("topics", "create", name, "--partitions", "2")
    return name


def _rows(barnabas: CommandLine, topic: str) -> list[tuple[object, ...]]:
    """The partition, key, value, headers and timestamp of each record, in order of time."""
    found = barnabas.ok("consume", topic, "--last", "100", "--json").lines
    return [
        (row["partition"], row["key"], row["value"], row["headers"], row["timestamp_ms"])
        for row in found
    ]


def test_key_partition_time_and_headers_of_a_record_come_from_csv_columns(
    barnabas: CommandLine, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / "orders.csv"
    file.write_text(CSV)
    fields = (
        *("--key-field", "id", "--partition-field", "where", "--time-field", "at"),
        *("--header-field", "t=trace", "-H", "origin=csv", "--csv-null", ""),
        *("--csv-type", "id=int"),
    )
    omitted = [part for name in ("where", "at", "trace") for part in ("--omit-field", name)]
    barnabas.ok("produce", topic, str(file), *fields, *omitted)
    assert _rows(barnabas, topic) == [
        (0, "1", '{"id":1,"item":"tea"}', [["origin", "csv"], ["t", "a"]], 1000),
        (1, "2", '{"id":2,"item":"cake, large"}', [["origin", "csv"]], 2000),
    ]
    barnabas.ok(
        *("produce", topic, "-i", "tsv", "--csv-columns", "k,v", "--key-field", "k"),
        *("--value-field", "v", "--partition", "1"),
        stdin="a\tb\n",
    )
    assert _rows(barnabas, topic)[-1][:3] == (1, "a", "b")


def test_the_format_of_each_file_follows_from_its_name(
    barnabas: CommandLine, topic: str, tmp_path: Path
) -> None:
    names = {"a.csv": "n\n1\n", "b.jsonl": '{"n": 2}\n', "c.tsv": "n\tm\n3\t4\n", "d.txt": "5\n"}
    for name, text in names.items():
        (tmp_path / name).write_text(text)
    files = [str(tmp_path / name) for name in names]
    barnabas.ok("produce", topic, *files, "-", "-p", "0", stdin="6\n")
    assert barnabas.ok("consume", topic).out.splitlines() == [
        '{"n":"1"}',
        '{"n":2}',
        '{"n":"3","m":"4"}',
        "5",
        "6",
    ]


def test_produce_reads_the_json_that_consume_printed(
    barnabas: CommandLine, topic: str, tmp_path: Path
) -> None:
    barnabas.ok("produce", topic, "-K", ":", stdin="a:1\nb:2\n")
    file = tmp_path / "copy.jsonl"
    file.write_text(barnabas.ok("consume", topic, "--json").out)
    copy = unique("copy")
    barnabas.ok("topics", "create", copy, "--partitions", "2")
    done = barnabas.ok("produce", copy, str(file), "--json").data
    assert done["records"] == 2
    assert [row[:3] for row in _rows(barnabas, copy)] == [row[:3] for row in _rows(barnabas, topic)]
    barnabas.ok("produce", copy, str(file), "--key-field", "key", "--value-field", "offset")
    assert sorted(str(row[1]) for row in _rows(barnabas, copy)) == ["a", "a", "b", "b"]


def test_a_key_that_is_a_field_chooses_the_partition(barnabas: CommandLine, topic: str) -> None:
    """A key from a JSON field goes to the same partition as the same key given as text."""
    lines = "".join(f'{{"customer": {{"id": {number % 3}}}}}\n' for number in range(30))
    barnabas.ok("produce", topic, "-i", "jsonl", "--key-field", "customer.id", stdin=lines)
    barnabas.ok("produce", topic, "-K", ":", stdin="0:x\n1:x\n2:x\n")
    places: dict[object, set[object]] = {}
    for row in _rows(barnabas, topic):
        places.setdefault(row[1], set()).add(row[0])
    assert {key: len(found) for key, found in places.items()} == {"0": 1, "1": 1, "2": 1}


@pytest.mark.parametrize(
    ("arguments", "text", "error"),
    [
        (["orders.csv"], f"{CSV}3\n", "orders.csv line 4 has 1 cells, and there are 5 columns"),
        (["orders.csv", "--csv-type", "where=int"], f"{CSV}3,a,b,1,\n", "line 4, column 'where'"),
        (["orders.csv", "--partition-field", "where"], f"{CSV}3,a,7,1,\n", "partition 7"),
        (["orders.csv", "--time-field", "at"], f"{CSV}3,a,1,soon,\n", '"soon" is not a time'),
        (["orders.csv", "--key-field", "ident"], CSV, "orders.csv line 2 has no field 'ident'"),
        (["orders.jsonl", "--key-field", "a"], '{"a": 1}\n{"b": 1}\n', "orders.jsonl line 2 has"),
        (["orders.jsonl"], '{"a": 1}\n{"a": 1,}\n', "orders.jsonl line 2 is not JSON"),
    ],
)
def test_no_record_is_visible_if_a_file_that_is_produced_in_a_transaction_is_wrong(
    barnabas: CommandLine,
    topic: str,
    tmp_path: Path,
    arguments: list[str],
    text: str,
    error: str,
) -> None:
    file = tmp_path / arguments[0]
    file.write_text(text)
    run: Run = barnabas("produce", topic, str(file), *arguments[1:], "-t", unique("load"))
    assert (run.code, run.out) == (1, "")
    assert error in run.err
    assert barnabas.ok("consume", topic).out == ""
