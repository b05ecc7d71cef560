"""JSON that came from outside is shown and sent with its own digits and names: by the command line,
and by the console's page, whose layout is compared with that of the browser's JSON.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from helpers.places import ROOT
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.consuming.record_template import compile_template
from barnabas.cli.errors import CommandError
from barnabas.cli.producing.csv_rows import typed
from barnabas.cli.records import ConsumedRecord, Decoded, from_json, json_record, parse_json_line
from barnabas.json_text import JsonText, json_line, json_text, parse_json
from barnabas.schemas.avro import AvroSerde
from barnabas.schemas.errors import SerdeError
from barnabas.schemas.json_schema import JsonSchemaSerde

STATIC = ROOT / "barnabas" / "console" / "static"
NUMBERS = [
    "9007199254740993", "12345678901234567890", "0.1000000000000000055", "3.0", "-0", "1e2", "-0.0",
    "1E400", "123456789012345678901234567890.5",
]  # fmt: skip
SPACE = st.sampled_from(["", " ", "\n", "\t\r\n "])
STRINGS = st.text(max_size=5).map(json.dumps) | st.sampled_from(
    ['"\\u00e9"', '"\\ud800"', '"\u202e"', '"\x9b"', '"\\" , : ] }"', '"\\\\"', '"a\\/b"']
)


def _array(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    parts = st.lists(st.tuples(SPACE, inner, SPACE).map("".join), max_size=4)
    return parts.map(lambda texts: f"[{','.join(texts)}]")


def _object(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """An object, in which a name may be there twice."""
    names = STRINGS | st.sampled_from(['"a"', '"2"', '"1"'])
    part = st.tuples(SPACE, names, SPACE, st.just(":"), SPACE, inner).map("".join)
    return st.lists(part, max_size=4).map(lambda texts: f"{{{','.join(texts)}}}")


TEXTS = st.recursive(
    st.sampled_from([*NUMBERS, "true", "false", "null"]) | STRINGS,
    lambda inner: _array(inner) | _object(inner),
    max_leaves=12,
)


def tokens(text: str) -> list[str]:
    """The tokens of a JSON text, without the white space between them."""
    found, at = [], 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        end = at + 1
        if text[at] == '"':
            while text[end] != '"':
                end += 2 if text[end] == "\\" else 1
            end += 1
        elif text[at] not in "[]{},:":
            while end < len(text) and text[end] not in "[]{},: \t\r\n":
                end += 1
        found.append(text[at:end])
        at = end
    return found


def pairs(text: str) -> Any:
    """The value of a JSON text, in which an object is the list of its members."""
    return json.loads(text, object_pairs_hook=list, parse_float=str, parse_int=int)


# --- what was read is printed -------------------------------------------------------------------


@given(TEXTS)
def test_json_of_a_schema_is_printed_with_its_tokens(text: str) -> None:
    serde = JsonSchemaSerde("{}")
    decoded = Decoded(serde.decode_text(text.encode("utf-8", "surrogatepass")), b"")
    record = ConsumedRecord("orders", 0, 1, 2, None, decoded, [])
    line = json_line(json_record(record))
    assert "\n" not in line and "\x9b" not in line and "\u202e" not in line
    assert dict(pairs(line))["value"] == pairs(text)
    in_line = line.partition('"value": ')[2].rpartition(', "headers"')[0]
    assert [escaped(one) for one in tokens(text)] == tokens(in_line)
    assert compile_template("%v{json}")(record).decode() == json_text(decoded.text)


def escaped(token: str) -> str:
    return json_text(JsonText(token))


def test_a_decoded_number_keeps_its_digits_in_each_form() -> None:
    text = f"[{', '.join(NUMBERS)}]"
    decoded = Decoded(JsonSchemaSerde("{}").decode_text(text.encode()), b"")
    record = ConsumedRecord("orders", 0, 1, 2, None, decoded, [])
    for template in ("%v", "%v{json}"):
        assert compile_template(template)(record).decode() == text


def test_avro_longs_doubles_and_decimals_are_exact() -> None:
    long = AvroSerde('"long"')
    assert long.decode_text(long.encode(2**53 + 1)) == "9007199254740993"
    double = AvroSerde('"double"')
    assert double.decode_text(double.encode(3.0)) == "3.0"
    assert double.decode_text(double.encode("NaN")) == '"NaN"'
    schema = '{"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 19}'
    amount = AvroSerde(schema)
    data = amount.encode(parse_json("12345.1000000000000000055"))
    assert amount.decode_text(data) == '"12345.1000000000000000055"'


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}'])
def test_what_only_python_reads_is_no_json(text: str) -> None:
    with pytest.raises(SerdeError, match="is no number of JSON"):
        JsonSchemaSerde("{}").decode_text(text.encode())
    with pytest.raises(CommandError, match="is no number of JSON"):
        parse_json_line(b'{"value": %s}' % text.encode(), "line 1")


# --- what was read is sent ------------------------------------------------------------------------


@given(TEXTS)
def test_json_of_the_input_is_sent_with_its_tokens(text: str) -> None:
    """Or it is refused, since of members with the same name only one would be sent."""
    line = f'{{"value": [{text}]}}'.replace("\n", " ").encode("utf-8", "surrogatepass")
    has_twice = "twice" in _refusal(lambda: parse_json_line(line, "line 1"))
    if has_twice:
        return
    sent = from_json(parse_json_line(line, "line 1").value)
    assert sent is not None and pairs(sent.decode()) == pairs(f"[{text}]")


def _refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except CommandError as error:
        return str(error)
    return ""


def test_a_doubled_name_of_the_input_is_refused_by_its_name() -> None:
    with pytest.raises(CommandError, match="line 7 is not JSON: an object has the name 'a' twice"):
        parse_json_line(b'{"value": {"a": 1, "b": 2, "a": 3}}', "line 7")


def test_a_cell_of_a_csv_keeps_digits_that_a_float_lacks() -> None:
    assert from_json([typed("n", "0.1000000000000000055", "float", "")]) == (
        b"[0.1000000000000000055]"
    )
    assert from_json([typed("n", "2.50", "float", "")]) == b"[2.5]"


# --- the page -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def laid_out() -> Callable[[list[str]], list[str | None]]:
    """The page's function, in Node.js."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    program = (
        f"import {{ laidOut }} from {json.dumps(str(STATIC / 'json_text.js'))};"
        'import { readFileSync } from "fs";'
        "const texts = JSON.parse(readFileSync(0));"
        "console.log(JSON.stringify(texts.map((text) => [laidOut(text), plain(text)])));"
        "function plain(text) {"
        " try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return null; } }"
    )

    def run(texts: list[str]) -> list[Any]:
        done = subprocess.run(
            [node, "--input-type=module", "-e", program],
            input=json.dumps(texts), capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found: list[Any] = json.loads(done.stdout)
        return found

    return run


def test_the_page_shows_numbers_names_and_escapes_as_they_came(
    laid_out: Callable[[list[str]], list[Any]],
) -> None:
    texts = [
        f'{{"a": {number}, "2": [{number}, [], {{}}], "1": "\\u00e9", "1": {{"b": null}}}}'
        for number in NUMBERS
    ]
    for text, (shown, _) in zip(texts, laid_out(texts), strict=True):
        assert tokens(shown) == tokens(text)
        assert shown.splitlines()[:3] == ["{", f'  "a": {tokens(text)[3]},', '  "2": [']


def test_the_page_lays_json_out_as_the_browser_does_and_refuses_the_same(
    laid_out: Callable[[list[str]], list[Any]],
) -> None:
    """Where the browser's own JSON changes nothing, the texts are equal."""
    values: list[Any] = [
        {"a": [1, 2, {"b": []}], "c": {}, "d": "x\ny\"\\"}, [], {}, [[[]]], "x", 5, None, [True],
        {"": {"": [{}]}},
    ]  # fmt: skip
    broken = ["", "{", "[1,]", "{'a': 1}", "NaN", "[1 2]", '{"a" 1}', "]", '"', "01", "\ufeff1"]
    texts = [json.dumps(value, ensure_ascii=False) for value in values] + broken
    for shown, plain in laid_out(texts):
        assert shown == plain


def test_brackets_on_the_page_do_not_grow_by_their_square(
    laid_out: Callable[[list[str]], list[Any]],
) -> None:
    text = "[" * 30_000 + "]" * 30_000
    ((shown, _),) = laid_out([text])
    assert tokens(shown) == list(text) and len(shown) < 90 * len(text)
