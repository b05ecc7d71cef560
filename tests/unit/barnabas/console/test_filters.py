"""The filter language of the console page: which records match, and the position that an error
reports.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.console import filters
from barnabas.console.filters import Facts, FilterError, contains_text, parse_filter
from barnabas.protocol.records import Record

ORDER = json.dumps(
    {"id": 7, "item": "Coffee", "price": 2.5, "tags": ["hot", {"n": 1}], "void": None}
)
FACTS = Facts(
    Record(40, 1_790_000_000_000, b"1", ORDER.encode(), (("trace", b"4711"), ("raw", b"\xff"))),
    2,
    "aborted",
)


def holds(text: str, facts: Facts = FACTS) -> bool:
    return parse_filter(text)(facts)


@pytest.mark.parametrize(
    "text",
    [
        'key = "1" and value contains "coffee" and partition in (0, 1, 2)',
        "key = 1",
        "key == '1' and not key = '2'",
        "value.id > 3 and value.id >= 7 and value.id < 7.5 and value.id <= 7",
        'value.item = "Coffee" and value.item != "coffee" and value.item contains "OFF"',
        "value.tags[1].n = 1",
        'value."item" > "Cafe"',
        'value.tags contains "hot"',
        "value.void is null and not value.id is null and value.id is not null",
        "value.nothing != 3",
        "offset = 40 and size = 1 or size > 10",
        'time >= "2026-09-21T00:00:00Z" and time < "2026-09-22"',
        "time > 1790000000000 or time = 1790000000000",
        'state in ("aborted", "open") and state not in ("committed")',
        'headers.trace = "4711" and headers.trace > 4000 and headers contains "RACE"',
        'headers.none != "4711"',
        "(key = 2 or key = 1) and ((partition != 3))",
        "key = 1 AND NOT key = 2",
        'value contains "\\"id\\""',
        "value.price = 2.5 and value.price > 2",
    ],
)  # fmt: skip
def test_a_record_fulfils(text: str) -> None:
    assert holds(text)
    assert not holds(f"not ({text})")


@pytest.mark.parametrize(
    "text",
    [
        'key = "01"',
        'value.id = "7"',
        "value.id = true",
        "value.item = 3",
        "value.tags[2].n = 1",
        "value.item.x = 1",
        "value.nothing < 3",
        "value.nothing is null",
        'headers.raw = "x"',
        "key > 1",
        'state = "open"',
        "value.void < 3",
    ],
)
def test_a_record_does_not_fulfil(text: str) -> None:
    assert not holds(text)


@pytest.mark.parametrize(
    ("text", "at", "words"),
    [
        ("", 0, "a field"),
        ("key", 3, "a comparison"),
        ("key = ", 5, "not the end"),
        ("key = value", 6, "a text in quotes or a number is expected, not `value`"),
        ('key = "a', 6, "no closing quote"),
        ("colour = 1", 0, "a field (key, value,"),
        ("key = 1 or", 10, "a field"),
        ("key = 1 key = 2", 8, "`and`, `or` or the end is expected, not `key`"),
        ("(key = 1", 8, "`)`"),
        ("partition.x = 1", 0, "has no parts"),
        ("headers.a.b = 1", 0, "no parts"),
        ("value[x] = 1", 6, "a number from 0 on"),
        ("value. = 1", 7, "the name of a part"),
        ("partition in 1", 13, "`(`"),
        ("partition in (1", 15, "`,` or `)`"),
        ("key not = 1", 8, "`in`"),
        ("key is 1", 7, "`null`"),
        ('time > "noon"', 7, "a time is written as"),
        ('offset contains "1"', 16, "is a number"),
        ("key contains 1", 13, "a text in quotes"),
        ("key = 1 ; drop", 8, "`;` has no meaning here"),
        ("not " * 30 + "key = 1", 80, "at most 20 levels"),
        ("(" * 30, 20, "at most 20 levels"),
        ("k" * 1001, 1000, "at most 1,000 characters"),
    ],
)
def test_an_error_names_its_place(text: str, at: int, words: str) -> None:
    with pytest.raises(FilterError) as error:
        parse_filter(text)
    assert error.value.at == at and words in str(error.value)


def facts_of(value: bytes | None, key: bytes | None = None) -> Facts:
    return Facts(Record(0, 0, key, value), 0, "plain")


@pytest.mark.parametrize("value", [None, b"no json", b"[" * 100_000, b"\xff", b"9" * 5000])
def test_a_value_that_is_no_json_has_no_parts(value: bytes | None) -> None:
    assert not holds("value.id = 1 or value.id < 1 or value.id is null", facts_of(value))
    assert not holds("value = 9", facts_of(value))


def test_json_of_more_than_a_mebibyte_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    value = b'{"id": 1, "pad": "' + b"x" * 100 + b'"}'
    assert holds("value.id = 1", facts_of(value))
    monkeypatch.setattr(filters, "MOST_JSON_BYTES", 100)
    assert not holds("value.id = 1", facts_of(value))


@pytest.mark.parametrize(
    ("text", "is_found"),
    [("COFFEE", True), ("tea", False), ("4711", True), ("Trace", True), ("1", True), ("ÿ", False)],
)
def test_a_text_is_looked_for_in_key_value_and_headers(text: str, is_found: bool) -> None:
    assert contains_text(text)(FACTS) is is_found


def test_letters_beyond_ascii_are_found_without_regard_to_case() -> None:
    assert contains_text("ÄPFEL")(facts_of("zwei äpfel".encode()))
    assert holds('value contains "ÄPFEL"', facts_of("zwei äpfel".encode()))
    assert holds("value is null", facts_of(None)) and not contains_text("x")(facts_of(None))


def test_a_null_value_is_not_smaller_than_anything() -> None:
    nothing: Any = facts_of(None)
    assert not holds('value < "z" or value = "" or value contains ""', nothing)
