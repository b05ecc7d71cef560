"""The filter of the page's search: a small language of conditions on a record.

    filter      any
    any         all {"or" all}
    all         one {"and" one}
    one         "not" one | "(" any ")" | field comparison
    comparison  ("=" | "!=" | "<" | "<=" | ">" | ">=") literal
                | "contains" string
                | ["not"] "in" "(" literal {"," literal} ")"
                | "is" ["not"] "null"
    field       name {"." name | "." string | "[" number "]"}
    literal     "text" | 'text' | number | true | false | null

    field           what is compared
    key value       the bytes, as UTF-8; with a path (`value.items[0].id`) a part of them as JSON.
                    Where a schema decodes them: that value
    headers         `headers.trace`: a header's value; `headers contains "x"`: any name or value
    partition offset size    numbers; size: bytes of key and value
    time            milliseconds since 1970, or a text as "2026-11-26T10:00:00Z"
    state           "committed", "aborted", "open" or "plain"

A number is compared with a text that is a number. A missing value, or one of another type, is
neither equal to a literal nor smaller nor greater; `!=` is the opposite of `=`. `contains` ignores
the case of letters. A filter has at most LONGEST_FILTER characters and DEEPEST levels.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from barnabas.console.decoding import NOT_DECODED, Values, has_schema_id
from barnabas.protocol.records import Record, header_name_bytes

LONGEST_FILTER, DEEPEST = 1000, 20
MOST_JSON_BYTES = 1 << 20
"""A larger key or value has no fields for a filter."""
NUMBER_FIELDS = ("partition", "offset", "size", "time")
FIELDS = ("key", "value", "headers", *NUMBER_FIELDS, "state")
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
      | (?P<name>[^\W\d][\w-]*)
      | (?P<sign><=|>=|!=|==|[=<>(),.\[\]])
    )""",
    re.VERBOSE,
)
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None}

MISSING: Any = object()
_NOT_PARSED: Any = object()
Condition = Callable[["Facts"], bool]


class FilterError(ValueError):
    """The text of a filter is invalid. at: the position of the error in the text, counted from
    0.
    """

    def __init__(self, text: str, at: int) -> None:
        super().__init__(text)
        self.at = at


class Facts:
    """The values of one record that a filter can compare. JSON is parsed, and a key or value is
    decoded by its schema, only when it is first compared.

    Takes: decode, a function that decodes records.
    """

    __slots__ = ("_decode", "_decoded", "_key_json", "_value_json", "partition", "record", "state")

    def __init__(
        self,
        record: Record,
        partition: int,
        state: str,
        decode: Callable[[Record], Values] = lambda record: NOT_DECODED,
    ) -> None:
        self.record, self.partition, self.state = record, partition, state
        self._decode, self._decoded = decode, NOT_DECODED
        self._key_json = self._value_json = _NOT_PARSED

    def key_json(self) -> Any:
        """The key as JSON, parsed on first use; MISSING if it is no JSON."""
        if self._key_json is _NOT_PARSED:
            self._key_json = _parsed(self.key_text())
        return self._key_json

    def value_json(self) -> Any:
        """The value as JSON, parsed on first use; MISSING if it is no JSON."""
        if self._value_json is _NOT_PARSED:
            self._value_json = _parsed(self.value_text())
        return self._value_json

    def key_text(self) -> bytes | str | None:
        """The key as JSON text, decoded by its schema, or as bytes if it has no schema."""
        return self._text(self.record.key, 0)

    def value_text(self) -> bytes | str | None:
        """The value as JSON text, decoded by its schema, or as bytes if it has no schema."""
        return self._text(self.record.value, 1)

    def _text(self, data: bytes | None, place: int) -> bytes | str | None:
        """The data as text by its schema, if it has a schema id and can be decoded; otherwise the
        data. Takes: place, 0 for the key, 1 for the value.
        """
        if not has_schema_id(data):
            return data
        if self._decoded is NOT_DECODED:
            self._decoded = self._decode(self.record)
        decoded = self._decoded[place]
        return data if decoded is None or decoded.error else decoded.text

    def key(self) -> Any:
        """The decoded key, or its bytes if it has no schema."""
        return self.key_json() if isinstance(self.key_text(), str) else self.record.key

    def value(self) -> Any:
        """The decoded value, or its bytes if it has no schema."""
        return self.value_json() if isinstance(self.value_text(), str) else self.record.value


def _parsed(data: bytes | str | None) -> Any:
    """The JSON value of a key or value; MISSING if it is no JSON, or too large to parse."""
    if data is None or len(data) > MOST_JSON_BYTES:
        return MISSING
    try:
        return json.loads(data.decode() if isinstance(data, bytes) else data)
    except (ValueError, RecursionError):
        return MISSING


def parse_filter(text: str) -> Condition:
    """The condition that a filter's text describes. Raises: FilterError."""
    if len(text) > LONGEST_FILTER:
        raise FilterError(f"a filter has at most {LONGEST_FILTER:,} characters", LONGEST_FILTER)
    return _Parser(text).whole()


def contains_text(text: str) -> Condition:
    """A condition that is true if the key, the value or a header contains a text, ignoring case."""
    needle = text.casefold()

    def holds(facts: Facts) -> bool:
        record = facts.record
        return (
            _has(record.key, needle)
            or _has(record.value, needle)
            or any(
                _has(header_name_bytes(name), needle) or _has(data, needle)
                for name, data in record.headers
            )
            or _has_text(facts.key_text(), needle)
            or _has_text(facts.value_text(), needle)
        )

    return holds


def _has_text(text: bytes | str | None, needle: str) -> bool:
    return isinstance(text, str) and needle in text.casefold()


def _has(data: bytes | None, needle: str) -> bool:
    """Whether data contain a text that is already in lower case (casefolded)."""
    if data is None:
        return False
    if needle.isascii():
        return needle.encode() in data.lower()
    return needle in data.decode(errors="replace").casefold()


class _Token(NamedTuple):
    kind: str  # string, number, name, sign, end
    text: str
    at: int


class _Parser:
    """A recursive descent parser. Each method reads one rule of the grammar."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = 0
        self._depth = 0

    def whole(self) -> Condition:
        """Parse the whole filter. Raises: FilterError."""
        condition = self._any()
        if self._token.kind != "end":
            raise self._unexpected("`and`, `or` or the end")
        return condition

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _next_token(self) -> _Token:
        """The next token, which is consumed. At the end, the end token is returned again and
        again.
        """
        token = self._token
        self._next += token.kind != "end"
        return token

    def _accept(self, *texts: str) -> bool:
        """Whether the next token is one of these words or signs; if so it is consumed."""
        token = self._token
        if token.kind in ("name", "sign") and token.text.lower() in texts:
            self._next += 1
            return True
        return False

    def _unexpected(self, expected: str) -> FilterError:
        """The error for the next token, which is not what the grammar requires there."""
        token = self._token
        found = "the end" if token.kind == "end" else f"`{token.text}`"
        return FilterError(f"{expected} is expected, not {found}", token.at)

    def _any(self) -> Condition:
        """Parse conditions that are joined by `or`, which binds less tightly than `and`."""
        parts = [self._all()]
        while self._accept("or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else lambda facts: any(part(facts) for part in parts)

    def _all(self) -> Condition:
        """Parse conditions that are joined by `and`."""
        parts = [self._one()]
        while self._accept("and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else lambda facts: all(part(facts) for part in parts)

    def _one(self) -> Condition:
        """Parse one condition: a comparison, a negation, or a condition in parentheses."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise FilterError(f"a filter has at most {DEEPEST} levels", self._token.at)
        try:
            if self._accept("not"):
                condition = self._one()
                return lambda facts: not condition(facts)
            if self._accept("("):
                condition = self._any()
                if not self._accept(")"):
                    raise self._unexpected("`)`")
                return condition
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Condition:
        """Parse a comparison: a field, then `contains`, `is [not] null`, `[not] in` or an
        operator.
        """
        name, read = self._field()
        if self._accept("contains"):
            return self._contains(name, read)
        if self._accept("is"):
            is_not = self._accept("not")
            if not self._accept("null"):
                raise self._unexpected("`null`")
            return lambda facts: (read(facts) is None) is not is_not
        is_not = self._accept("not")
        if self._accept("in"):
            literals = self._literals(name)
            return lambda facts: (
                any(_equal(read(facts), literal) for literal in literals) is not is_not
            )
        if is_not:
            raise self._unexpected("`in`")
        return self._order(name, read)

    def _contains(self, name: str, read: Callable[[Facts], Any]) -> Condition:
        """Parse the text after `contains`. Gives: a condition that ignores case."""
        if name in NUMBER_FIELDS:
            raise FilterError(f"`{name}` is a number: `contains` is for text", self._token.at)
        token = self._next_token()
        if token.kind != "string":
            # Step back, since the error describes the unexpected token.
            self._next -= token.kind != "end"
            raise self._unexpected("a text in quotes")
        needle = _unquoted(token).casefold()

        def holds(facts: Facts) -> bool:
            found = read(facts)
            if isinstance(found, bytes):
                return _has(found, needle)
            if isinstance(found, (list, dict)):
                return needle in json.dumps(found, ensure_ascii=False).casefold()
            return isinstance(found, str) and needle in found.casefold()

        return holds

    def _literals(self, name: str) -> list[Any]:
        """Parse the list in parentheses after `in`."""
        if not self._accept("("):
            raise self._unexpected("`(`")
        literals = [self._literal(name)]
        while self._accept(","):
            literals.append(self._literal(name))
        if not self._accept(")"):
            raise self._unexpected("`,` or `)`")
        return literals

    def _order(self, name: str, read: Callable[[Facts], Any]) -> Condition:
        """Parse a comparison by an operator (=, !=, <, <=, >, >=)."""
        if self._accept("=", "=="):
            wanted = self._literal(name)
            return lambda facts: _equal(read(facts), wanted)
        if self._accept("!="):
            unwanted = self._literal(name)
            return lambda facts: not _equal(read(facts), unwanted)
        for sign, order in _ORDERS.items():
            if self._accept(sign):
                bound = self._literal(name)
                return lambda facts: _ordered(read(facts), bound, order)
        raise self._unexpected("a comparison (=, !=, <, <=, >, >=, contains, in, is null)")

    def _literal(self, name: str) -> Any:
        """Parse a constant: a text, a number, true, false or null; a text for `time` becomes
        milliseconds.
        """
        token = self._next_token()
        if token.kind == "string":
            return _time_of(token) if name == "time" else _unquoted(token)
        if token.kind == "number":
            return float(token.text) if re.search("[.eE]", token.text) else int(token.text)
        if token.kind == "name" and token.text.lower() in _CONSTANTS:
            return _CONSTANTS[token.text.lower()]
        # Step back, since the error describes the unexpected token.
        self._next -= token.kind != "end"
        raise self._unexpected("a text in quotes or a number")

    def _field(self) -> tuple[str, Callable[[Facts], Any]]:
        """Parse a field with its path. Gives: the field's name, and a function that reads its
        value.
        """
        token = self._token
        if token.kind != "name" or token.text not in FIELDS:
            raise self._unexpected(f"a field ({', '.join(FIELDS)})")
        self._next += 1
        name, path = token.text, self._path()
        if path and name not in ("key", "value", "headers"):
            raise FilterError(f"`{name}` has no parts", token.at)
        if name == "headers":
            if not path:
                return name, _all_headers
            if len(path) > 1 or not isinstance(path[0], str):
                raise FilterError("a header has a name and no parts: `headers.trace`", token.at)
            return name, _header(path[0])
        if path:
            whole = Facts.key_json if name == "key" else Facts.value_json
            return name, lambda facts: _within(whole(facts), path)
        return name, _READERS[name]

    def _path(self) -> list[str | int]:
        """Parse the parts after a field's name: `.name`, `."name"` or `[number]`, any number of
        them.
        """
        path: list[str | int] = []
        while True:
            if self._accept("."):
                token = self._next_token()
                if token.kind not in ("name", "string"):
                    self._next -= token.kind != "end"
                    raise self._unexpected("the name of a part")
                path.append(_unquoted(token) if token.kind == "string" else token.text)
            elif self._accept("["):
                token = self._next_token()
                if token.kind != "number" or not token.text.isdigit():
                    self._next -= token.kind != "end"
                    raise self._unexpected("a number from 0 on")
                path.append(int(token.text))
                if not self._accept("]"):
                    raise self._unexpected("`]`")
            else:
                return path


def _tokens(text: str) -> list[_Token]:
    """The tokens of a filter; the last one is of kind "end". Raises: FilterError."""
    tokens, at = [], 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            if text[at] in "\"'":
                raise FilterError("this text has no closing quote: add one", at)
            raise FilterError(f"`{text[at]}` has no meaning here", at)
        kind = match.lastgroup or ""
        tokens.append(_Token(kind, match[kind], match.start(kind)))
        at = match.end()
    tokens.append(_Token("end", "", end))
    return tokens


def _unquoted(token: _Token) -> str:
    return re.sub(r"\\(.)", r"\1", token.text[1:-1], flags=re.DOTALL)


def _time_of(token: _Token) -> int:
    """The time that a text literal describes, in milliseconds; a text without a zone is in UTC."""
    try:
        time = datetime.fromisoformat(_unquoted(token))
    except ValueError as error:
        raise FilterError(
            "a time is written as 2026-11-26T10:00:00Z, or in milliseconds", token.at
        ) from error
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _size(facts: Facts) -> int:
    return len(facts.record.key or b"") + len(facts.record.value or b"")


def _all_headers(facts: Facts) -> str | None:
    """The names and values of all headers, one per line, for the operator `contains`."""
    parts = [
        f"{name}\n{(data or b'').decode(errors='replace')}" for name, data in facts.record.headers
    ]
    return "\n".join(parts) if parts else None


def _header(name: str) -> Callable[[Facts], Any]:
    """A function that reads the first header of that name; MISSING if the record has none."""

    def read(facts: Facts) -> Any:
        return next((data for key, data in facts.record.headers if key == name), MISSING)

    return read


_READERS: dict[str, Callable[[Facts], Any]] = {
    "key": Facts.key,
    "value": Facts.value,
    "partition": lambda facts: facts.partition,
    "offset": lambda facts: facts.record.offset,
    "time": lambda facts: facts.record.timestamp,
    "state": lambda facts: facts.state,
    "size": _size,
}


def _within(value: Any, path: list[str | int]) -> Any:
    """The part of a JSON value at a path; MISSING if the value has no such part."""
    for part in path:
        if isinstance(part, str):
            value = value.get(part, MISSING) if isinstance(value, dict) else MISSING
        else:
            is_there = isinstance(value, list) and part < len(value)
            value = value[part] if is_there else MISSING
    return value


def _comparable(found: Any, literal: Any) -> Any:
    """The field's value in the type of the literal; MISSING if it cannot be converted."""
    if isinstance(found, bytes):
        try:
            found = found.decode()
        except UnicodeDecodeError:
            return MISSING
    is_number = isinstance(literal, (int, float)) and not isinstance(literal, bool)
    if is_number and isinstance(found, str):
        try:
            found = float(found) if re.search("[.eE]", found) else int(found)
        except ValueError:
            return MISSING
    if is_number:
        is_same = isinstance(found, (int, float)) and not isinstance(found, bool)
        return found if is_same else MISSING
    return found if type(found) is type(literal) else MISSING


def _equal(found: Any, literal: Any) -> bool:
    return bool(_comparable(found, literal) == literal)


def _ordered(found: Any, bound: Any, order: Callable[[Any, Any], bool]) -> bool:
    value = _comparable(found, bound)
    return value is not MISSING and isinstance(bound, (str, int, float)) and order(value, bound)
