"""The input of `produce`: lines, JSON lines and CSV, with fields for keys and headers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers.cli_commands import CommandLine
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.errors import CommandError
from barnabas.cli.producing import input_values
from barnabas.cli.producing.csv_rows import CsvOptions, rows
from barnabas.cli.producing.input_lines import InputFile, open_input
from barnabas.cli.producing.input_values import FieldOptions
from barnabas.cli.producing.record_encoding import RecordEncoding
from barnabas.cli.records import InputRecord
from barnabas.schemas.errors import SerdeError


def file(text: str | bytes, name: str = "orders.csv") -> InputFile:
    """An input file with this text."""
    data = text.encode() if isinstance(text, str) else text
    return InputFile(name, iter(data.removesuffix(b"\n").split(b"\n")))


def sent(values: Iterable[Any], encoders: Mapping[str, Any] | None = None) -> list[InputRecord]:
    """The records that `produce` sends for these values."""
    return list(map(RecordEncoding(encoders or {}).record, values))


def of_csv(
    text: str | bytes,
    fields: FieldOptions = FieldOptions(),  # noqa: B008
    columns: Mapping[str, Mapping[str, str]] | None = None,
    **options: Any,
) -> list[InputRecord]:
    """The records that `produce` sends for a CSV text."""
    found = input_values.of_csv(file(text), None, fields, CsvOptions(**options), columns or {})
    return sent(found)


def of_json(text: str, fields: FieldOptions = FieldOptions()) -> list[InputRecord]:  # noqa: B008
    """The records that `produce` sends for JSON lines."""
    return sent(input_values.of_json(file(text, "o.jsonl"), None, fields))


# --- CSV -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("id,name\n1,tea\n", [b'{"id":"1","name":"tea"}']),
        ("id,name\r\n1,tea\r\n", [b'{"id":"1","name":"tea"}']),
        ("\ufeffid,name\n1,\n", [b'{"id":"1","name":""}']),
        ('a,b\n"x, ""y""",1\n', [b'{"a":"x, \\"y\\"","b":"1"}']),
        ('a,b\n"two\nlines",1\n"x",2\n', [b'{"a":"two\\nlines","b":"1"}', b'{"a":"x","b":"2"}']),
        ("a\nä\n", ['{"a":"ä"}'.encode()]),
        ("a,b\n1,2\n\n3,4\n", [b'{"a":"1","b":"2"}', b'{"a":"3","b":"4"}']),
        ("a,b\n", []),
    ],
)
def test_rows_are_objects(text: str, values: list[bytes]) -> None:
    assert [record.value for record in of_csv(text)] == values


@given(
    st.lists(
        st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=2,
                 max_size=2),
        max_size=5,
    )
)  # fmt: skip
def test_any_table_that_python_writes_is_read(table: list[list[str]]) -> None:
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows([["a", "b"], *table])
    found = [
        [row.cells["a"], row.cells["b"]] for row in rows(file(stream.getvalue()), CsvOptions())
    ]
    assert found == table


def test_types_of_columns() -> None:
    types = {"i": "int", "f": "float", "b": "bool", "j": "json", "s": "string"}
    text = 'i,f,b,j,s\n-7,2.5,TRUE,"[1, null]",05\n,,,,\n 8 ,1e3,0,null,x\n'
    values = [record.value for record in of_csv(text, types=types)]
    assert values == [
        b'{"i":-7,"f":2.5,"b":true,"j":[1,null],"s":"05"}',
        b'{"i":null,"f":null,"b":null,"j":null,"s":""}',
        b'{"i":8,"f":1000.0,"b":false,"j":null,"s":"x"}',
    ]
    of_schema = {"value": {"i": "int", "s": "string"}}
    assert of_csv("i,s\n5,5\n", columns=of_schema)[0].value == b'{"i":5,"s":"5"}'
    typed = of_csv("i,s\n5,5\n", columns=of_schema, types={"i": "string", "s": "int"})
    assert typed[0].value == b'{"i":"5","s":5}'


def test_delimiter_columns_and_null() -> None:
    (record,) = of_csv("a;b;c\n1;NULL;\n", delimiter=";", null="NULL")
    assert record.value == b'{"a":"1","b":null,"c":""}'
    (named,) = sent(
        input_values.of_csv(file("1,2\n"), None, FieldOptions(), CsvOptions(columns=["x", "y"]), {})
    )
    assert named.value == b'{"x":"1","y":"2"}'
    assert of_csv('a\n""\n', null="")[0].value == b'{"a":null}'


@pytest.mark.parametrize(
    ("text", "options", "error"),
    [
        (
            "a,b\n1,2\n3\n",
            {},
            "orders.csv line 3 has 1 cells, and there are 2 columns: a, b; is ','",
        ),
        ("a,b\n1,2,3\n", {}, "orders.csv line 2 has 3 cells"),
        ('a\n"x\ny"\nz,z\n', {}, "orders.csv line 4 has 2 cells"),
        ('a\n"x"y\n', {}, "orders.csv line 2 is no CSV"),
        ('a\nb\n"x\n', {}, "orders.csv line 3 is no CSV"),
        (b"a\n\xe4\n", {}, "orders.csv line 2 is not UTF-8: byte 0xe4 at position 1; `iconv"),
        ("a,a\n", {}, "line 1 has the column 'a' twice"),
        ("\n1\n", {}, "line 1 has no column names"),
        ("n\nx\n", {"types": {"n": "int"}}, "line 2, column 'n': 'x' is no int; see --csv-type n"),
        ("n\n1.0\n", {"types": {"n": "int"}}, "'1.0' is no int"),
        ("n\nnan\n", {"types": {"n": "float"}}, "'nan' is no float"),
        ("n\nyes\n", {"types": {"n": "bool"}}, "'yes' is no bool"),
        ("n\n{\n", {"types": {"n": "json"}}, "'{' is no json"),
        ("n\n1\n", {"types": {"m": "int"}}, "--csv-type m: orders.csv line 1 has no such column"),
    ],
)
def test_the_error_for_wrong_csv_names_the_line_and_the_column(
    text: str | bytes, options: dict[str, Any], error: str
) -> None:
    with pytest.raises(CommandError) as raised:
        of_csv(text, **options)
    assert error in str(raised.value)


# --- keys and headers by fields ------------------------------------------------------------------


def test_fields_of_rows() -> None:
    fields = FieldOptions(
        key="id",
        headers=(("trace", "t"), ("lang", "l")),
        partition="p",
        time="at",
        omitted=("p", "t", "l", "at"),
    )
    text = "id,name,p,t,l,at\n1,tea,3,x,,1970-01-01T00:00:01Z\n2,cake,,y,de,2500\n"
    options = {"columns": {"value": {"id": "int", "at": "int"}}, "null": ""}
    assert of_csv(text, fields, **options) == [
        InputRecord(b"1", b'{"id":1,"name":"tea"}', (("trace", b"x"),), 3, 1000),
        InputRecord(
            b"2", b'{"id":2,"name":"cake"}', (("trace", b"y"), ("lang", b"de")), None, 2500
        ),
    ]
    alone = of_csv("k,v\na,b\n", FieldOptions(key="k", value="v"))
    assert alone == [InputRecord(b"a", b"b")]
    typed = of_csv("k,v\n5,6\n", FieldOptions(key="k", value="v"), {"value": {"": "int"}})
    assert typed == [InputRecord(b"5", b"6")]


def test_fields_of_json() -> None:
    fields = FieldOptions(
        key="customer.id", headers=(("h", "customer.name"),), time="at", omitted=("customer.id",)
    )
    line = '{"customer": {"id": 7, "name": "ä"}, "at": 1000, "x.y": 1}\n'
    assert of_json(line, fields) == [
        InputRecord(
            b"7",
            '{"customer":{"name":"ä"},"at":1000,"x.y":1}'.encode(),
            (("h", "ä".encode()),),
            None,
            1000,
        )
    ]
    assert of_json(line, FieldOptions(key="x.y"))[0].key == b"1"
    assert of_json('{"a": null}\n', FieldOptions(key="a"))[0].key is None
    assert of_json('5\n"x"\n\n[1]\n') == [
        InputRecord(None, b"5"),
        InputRecord(None, b"x"),
        InputRecord(None, b"[1]"),
    ]


@pytest.mark.parametrize(
    ("line", "fields", "error"),
    [
        ("{", FieldOptions(), "o.jsonl line 1 is not JSON: Expecting property name"),
        ("5", FieldOptions(key="a"), "o.jsonl line 1 is not a JSON object"),
        ('{"b": 1}', FieldOptions(key="a"), "line 1 has no field 'a' (--key-field): there are b"),
        ('{"b": 1}', FieldOptions(headers=(("h", "b.c"),)), "has no field 'b.c' (--header-field)"),
        ('{"b": 1}', FieldOptions(omitted=("a",)), "has no field 'a' (--omit-field)"),
        ('{"b": 1}', FieldOptions(value="a"), "has no field 'a' (--value-field)"),
        ('{"p": -1}', FieldOptions(partition="p"), "field 'p' (--partition-field): -1 is no"),
        ('{"p": "x"}', FieldOptions(partition="p"), '"x" is not a partition'),
        (
            '{"t": "soon"}',
            FieldOptions(time="t"),
            "field 't' (--time-field): \"soon\" is not a time",
        ),
        ('{"t": 1.5}', FieldOptions(time="t"), "1.5 is not a time"),
    ],
)
def test_the_error_for_a_wrong_field_names_the_line_and_the_option(
    line: str, fields: FieldOptions, error: str
) -> None:
    with pytest.raises(CommandError) as raised:
        of_json(line, fields)
    assert error in str(raised.value)


class Doubling:
    """An encoder that doubles numbers."""

    columns: Mapping[str, str] = {}

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, int):
            raise SerdeError("the value is no number")
        return b"%d" % (2 * value)


def test_parts_with_a_schema_are_json_and_null_stays_null() -> None:
    encoders = {"value": Doubling(), "key": Doubling()}
    lines = input_values.of_lines(file("3:4\n", ""), None, ":")
    assert sent(lines, encoders) == [InputRecord(b"6", b"8")]
    tombstone = input_values.of_records(file('{"key": 5, "value": null}', ""), None)
    assert sent(tombstone, encoders) == [InputRecord(b"10", None)]
    for text, error in (
        ("3:x\n", "line 1: the value is not JSON: Expecting value"),
        ('3:"x"\n', "line 1: the value cannot be encoded: the value is no number"),
        ("\n", "line 1 has no ':' (--key-separator)"),
    ):
        with pytest.raises(CommandError) as raised:
            sent(input_values.of_lines(file(text, ""), None, ":"), encoders)
        assert error in str(raised.value)


def test_lines_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a\r\n\n" + b"x" * 100_000)
    found = [item.value for item in input_values.of_lines(open_input(str(path), int), b"k", None)]
    assert found == [b"a", b"", b"x" * 100_000]
    with pytest.raises(CommandError, match="cannot be read: No such file"):
        list(open_input(str(tmp_path / "gone"), int).lines)


# --- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--key-field", "id"], "--key-field and other fields need --input jsonl, csv or tsv"),
        (["--csv-null", "x"], "--csv-… are for --input csv or tsv"),
        (["-i", "csv", "-K", ":"], "--key-separator is for --input lines"),
        (["-i", "csv", "-k", "a", "--key-field", "b"], "--key and --key-field both give the key"),
        (["-i", "csv", "--value-field", "a", "--omit-field", "b"], "--value-field is the whole"),
        (["-i", "csv", "--csv-type", "a=number"], "'number' is not a type: use string, int"),
        (["-i", "csv", "--csv-delimiter", "ab"], "it is one letter, such as ; or tab"),
        (["-i", "xml"], "'jsonl'"),
        (["no-such-file"], "no-such-file"),
        (["--value-schema", "no-such.avsc"], "there is no file 'no-such.avsc': write registry"),
        (["--value-schema", "registry:no-such.avsc"], "there is no file 'no-such.avsc': or an id"),
        (["--value-schema", __file__], "has an unknown suffix: use .avsc is Avro, .proto Protobuf"),
        (["--key-message", "A"], "--key-message needs --key-schema"),
        (["--value-subject", "a"], "--value-subject needs --value-schema"),
    ],
)
def test_options_that_do_not_go_together_are_wrong_usage(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    text: str,
) -> None:
    run = CommandLine(monkeypatch, capsys)("produce", "t", *arguments)
    assert (run.code, run.out) == (2, "")
    assert text in " ".join(run.err.split())
