"""A setting: its name, type, default, bounds and purpose, and the parser of its text.

The tables (`rows_broker.py`, `rows_topic.py`) declare each setting once, as an attribute of a
class:

    node_id = integer(1, "This broker's number.", lowest=0)

The attribute's name, with dots in place of the underscores, is the setting's name. Read from the
class, the attribute is the Setting. Read from a config, which has the values, it is the typed value
(`Row`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from enum import Enum
from typing import Any, Generic, Protocol, TypedDict, TypeVar, Unpack, overload

from barnabas.broker.java_text import trimmed

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
OWN_PREFIX = "barnabas."
Value = TypeVar("Value")


class ConfigError(Exception):
    """A setting is unknown, or has a value that is not allowed. The text says what to do."""


class Kind(Enum):
    """A setting's type, with the number that DescribeConfigs uses."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9

    @property
    def number(self) -> int:
        return self.value


_BOUNDS = {Kind.INT: 2**31, Kind.SHORT: 2**15, Kind.LONG: 2**63}
_LIST_COMMA = re.compile(r"\s*,\s*", re.ASCII)
# Regular expressions are used because int() also accepts 1_000 and digits of other scripts, and
# float() also accepts nan and inf.
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class HasValues(Protocol):
    """A config: the typed values of settings by their names."""

    _values: dict[str, Any]


class Options(TypedDict, total=False):
    """The optional columns of a row, besides default and purpose. They are described at Setting."""

    name: str
    lowest: float
    highest: float
    choices: tuple[str, ...]
    dynamic: bool
    synonyms: tuple[str, ...]
    never: tuple[Any, ...]
    never_because: str
    deletes: bool


class Setting(Generic[Value]):
    """A setting, which is one row of a table.

    choices         the values of a STRING, the members of a LIST; empty: anything
    lowest, highest inclusive bounds of a number
    never           values within these bounds that are refused; never_because says why
    dynamic         whether this setting of the broker may change while the broker runs
    per_broker      whether it may be changed on one broker, but not for all at once
    synonyms        for a setting of a topic: the settings of the broker that provide its default,
                    in order of precedence
    deletes         whether it decides which data are deleted, or when (deletion.py)
    """

    __slots__ = (
        "choices", "default", "deletes", "doc", "dynamic", "highest", "kind", "lowest", "name",
        "never", "never_because", "per_broker", "synonyms",
    )  # fmt: skip

    def __init__(
        self,
        kind: Kind,
        default: Value,
        doc: str,
        *,
        name: str = "",
        lowest: float | None = None,
        highest: float | None = None,
        choices: tuple[str, ...] = (),
        dynamic: bool = False,
        synonyms: tuple[str, ...] = (),
        never: tuple[Any, ...] = (),
        never_because: str = "",
        per_broker: bool = False,
        deletes: bool = False,
    ) -> None:
        """The parameters are the columns of the table."""
        self.name, self.kind, self.default, self.doc = name, kind, default, doc
        self.lowest, self.highest, self.choices = lowest, highest, choices
        self.dynamic, self.synonyms, self.per_broker = dynamic, synonyms, per_broker
        self.never, self.never_because = never, never_because
        self.deletes = deletes

    def parse(self, text: str) -> Value:
        """Convert the text to the typed value. Raises: ConfigError."""
        text = trimmed(text)
        value: Value = self._parse(text)
        if value in self.never:
            raise ConfigError(f"{self.name}={text}: {self.never_because}")
        return value

    def _parse(self, text: str) -> Any:
        """The value of a text by the kind of the setting. Raises: ConfigError."""
        kind = self.kind
        if kind is Kind.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise ConfigError(f"{self.name}={text}: it must be true or false")
            return text.lower() == "true"
        if kind in _BOUNDS or kind is Kind.DOUBLE:
            return self._parse_number(text)
        if kind is Kind.LIST:
            members = _LIST_COMMA.split(text) if text else []
            for member in members:
                if self.choices and member not in self.choices:
                    raise ConfigError(
                        f"{self.name}={text}: it must be a list of {' and '.join(self.choices)}"
                    )
            return tuple(members)
        if self.choices and text not in self.choices:
            choices = ", ".join(choice or "empty" for choice in self.choices)
            raise ConfigError(f"{self.name}={text}: it must be one of {choices}")
        return text

    def _parse_number(self, text: str) -> float:
        """The number in a text, checked against the bounds of the setting and of its kind. Raises:
        ConfigError.
        """
        if self.kind is Kind.DOUBLE:
            if not _NUMBER.fullmatch(text):
                raise ConfigError(f"{self.name}={text}: it must be a number")
            value = float(text)
        else:
            if not _WHOLE_NUMBER.fullmatch(text) or len(text) > 20:
                raise ConfigError(
                    f"{self.name}={text[:40]}: it must be a whole number of at most 19 digits"
                )
            value = int(text)
        bound = _BOUNDS.get(self.kind)
        lowest = self.lowest if self.lowest is not None else None if bound is None else -bound
        highest = self.highest if self.highest is not None else None if bound is None else bound - 1
        if (lowest is not None and value < lowest) or (highest is not None and value > highest):
            raise ConfigError(f"{self.name}={text}: it must be between {lowest} and {highest}")
        return value

    def render(self, value: Any) -> str | None:
        """The value as text, in the form that DescribeConfigs shows."""
        if value is None:
            return None
        if self.kind is Kind.BOOLEAN:
            return "true" if value else "false"
        if self.kind is Kind.LIST:
            return ",".join(value)
        return str(value)


class Row(Setting[Value]):
    """A setting that is declared as an attribute of a class. On a config, the attribute is the
    typed value.
    """

    __slots__ = ()

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.name = self.name or attribute.replace("_", ".")

    @overload
    def __get__(self, config: None, owner: type) -> Row[Value]: ...

    @overload
    def __get__(self, config: HasValues, owner: type) -> Value: ...

    def __get__(self, config: HasValues | None, owner: type) -> Row[Value] | Value:
        if config is None:
            return self
        value: Value = config._values[self.name]
        return value


# --- constructors of rows -----------------------------------------------------------------------


def boolean(default: bool, doc: str, **more: Unpack[Options]) -> Row[bool]:
    return Row(Kind.BOOLEAN, default, doc, **more)


def string(default: str, doc: str, **more: Unpack[Options]) -> Row[str]:
    return Row(Kind.STRING, default, doc, **more)


def optional_string(doc: str, **more: Unpack[Options]) -> Row[str | None]:
    return Row(Kind.STRING, None, doc, **more)


def password(doc: str, **more: Unpack[Options]) -> Row[str | None]:
    return Row(Kind.PASSWORD, None, doc, **more)


def strings(default: tuple[str, ...], doc: str, **more: Unpack[Options]) -> Row[tuple[str, ...]]:
    return Row(Kind.LIST, default, doc, **more)


def short(default: int, doc: str, **more: Unpack[Options]) -> Row[int]:
    return Row(Kind.SHORT, default, doc, **more)


def integer(default: int, doc: str, **more: Unpack[Options]) -> Row[int]:
    return Row(Kind.INT, default, doc, **more)


def optional_integer(doc: str, **more: Unpack[Options]) -> Row[int | None]:
    return Row(Kind.INT, None, doc, **more)


def long(default: int, doc: str, **more: Unpack[Options]) -> Row[int]:
    return Row(Kind.LONG, default, doc, **more)


def optional_long(doc: str, **more: Unpack[Options]) -> Row[int | None]:
    return Row(Kind.LONG, None, doc, **more)


def double(default: float, doc: str, **more: Unpack[Options]) -> Row[float]:
    return Row(Kind.DOUBLE, default, doc, **more)


def rows_of(table: type) -> dict[str, Setting[Any]]:
    """The settings that a table's class and its base classes declare, by name, in the order of
    declaration.
    """
    return {
        row.name: row
        for part in table.__mro__
        for row in vars(part).values()
        if isinstance(row, Setting)
    }


def likely(name: str, names: Iterable[str]) -> str | None:
    """The known name of which an unknown name is probably a misspelling; None if it is not one."""
    matches = difflib.get_close_matches(name, list(names), n=1, cutoff=0.85)
    return matches[0] if matches else None


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint for the end of an error text about an unknown name: the most similar known name."""
    matches = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f"; did you mean {matches[0]}?" if matches else "; `barnabas settings` lists all names"
