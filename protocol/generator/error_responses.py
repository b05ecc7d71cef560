"""Generates a method of each request, which makes the response with one error for everything that
the request names.

In most APIs a request and its response are lists of the same things: topics and their partitions,
groups, ids, resources. The response that reports an error for all of them can therefore be derived
from the two schemas:

1. If the response has an error code for the whole request, it has the error there, and its lists
   are empty.
2. Otherwise the lists have the error. They have an element for each element of the request, with
   its names, and with the error at the outermost level that has a field for it.
3. Fields whose values are unknown after an error have the value in UNKNOWN. Other fields have their
   defaults.

A list of the request corresponds to a list of the response if fields of both have names of the same
kind (NAMES). The tables below have the APIs for which Apache Kafka responds in another way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from barnabas.protocol.generator.schema import Field, Struct

# The fields that identify what an element of a list is about, with the kind of each. `key` is the
# field of FindCoordinator.
NAMES = {
    "name": "name", "topic": "name", "topic_name": "name", "user": "name",
    "partition": "partition", "partition_index": "partition", "partition_id": "partition",
    "index": "partition", "topic_id": "topic_id", "group_id": "group_id", "key": "key",
    "transactional_id": "transactional_id", "producer_id": "producer_id",
    "member_id": "member_id", "resource_type": "resource_type", "resource_name": "resource_name",
    "entity": "entity", "feature": "feature", "log_dir": "log_dir",
}  # fmt: skip
# The values that fields have after an error if their real value is unknown. The key is the name of
# a field, or of a struct and its field.
UNKNOWN = {
    "base_offset": "-1", "committed_offset": "-1", "error_message": "None",
    "high_watermark": "-1", "low_watermark": "-1", "node_id": "-1", "port": "-1",
    "InitProducerIdResponse.producer_epoch": "-1", "protocol_name": "None", "records": 'b""',
}  # fmt: skip
# The error is in the elements of the lists, although the response has an error code for the whole
# request.
IN_ROWS = {"AddPartitionsToTxn", "Metadata"}
# The error is in the elements of the lists, and in the response as a whole.
IN_BOTH = {"AlterPartitionReassignments", "DescribeUserScramCredentials", "ElectLeaders"}
# The elements of the lists have the error, but no names.
WITHOUT_NAMES = {"DescribeUserScramCredentials"}
# For the elements of these lists of a request, the response has no elements.
NOT_ANSWERED = {"forgotten_topics_data"}
_VARIABLES = ("row", "part", "item")


class _Rows(NamedTuple):
    """A list of the request.

    within: the outer list whose elements contain this list; None if it is not nested.
    """

    field: Field
    within: Field | None = None


def error_response(api_name: str, structs: list[Struct]) -> list[str]:
    """Return the lines of the method `error_response`."""
    return _Writer(api_name, structs).method()


def answered_rows(api_name: str, structs: list[Struct]) -> list[str]:
    """Return the lines of a table that maps lists of the request to lists of the response.

    The response's list has an element for each element of the request's list.
    """
    pairs = _Writer(api_name, structs).pairs()
    text = ", ".join(f'"{rows}": "{answers}"' for rows, answers in pairs.items())
    return [f"    ROWS: ClassVar[dict[str, str]] = {{{text}}}"] if pairs else []


class _Writer:
    """Writes the method for the request of one API."""

    def __init__(self, api_name: str, structs: list[Struct]) -> None:
        self._api_name = api_name
        self._structs = {struct.name: struct for struct in structs}
        self._request = self._structs[f"{api_name}Request"]
        self._response = self._structs[f"{api_name}Response"]

    def method(self) -> list[str]:
        """The lines of `error_response`; adjacent versions with the same expression share a
        branch.
        """
        valid = self._request.valid.within(self._response.valid)
        answers = groupby(range(valid.first, valid.last + 1), self._answer)
        branches = [(text, list(versions)[-1]) for text, versions in answers]
        lines = [f"def error_response(self, version: int, code: Code) -> {self._response.name}:"]
        for text, last in branches[:-1]:
            lines += [f"    if version <= {last}:", f"        return {text}"]
        lines.append(f"    return {branches[-1][0]}")
        return [f"    {line}" for line in lines]

    def pairs(self) -> dict[str, str]:
        """Return the names of the request's lists, each with the name of the response's list that
        corresponds to it.
        """
        valid = self._request.valid
        return {
            rows.field.name: answers.name
            for version in range(valid.first, valid.last + 1)
            for answers in self._error_lists(self._response, version)
            for rows in self._rows_of(answers, self._request, version)
            if rows.within is None
        }

    def _answer(self, version: int) -> str:
        """Return the expression that makes the response in a version."""
        whole = _error_field(self._response, version)
        arguments: list[str] = []
        if whole is not None and self._api_name not in IN_ROWS:
            arguments.append(f"{whole.name}=code")
        if not arguments or self._api_name in IN_BOTH:
            arguments += self._lists(self._response, self._request, version, 0)
        arguments += _unknown(self._response, version)
        return f"{self._response.name}({', '.join(arguments)})"

    def _lists(self, answer: Struct, asked: Struct, version: int, depth: int) -> Iterator[str]:
        """Generate a constructor argument for each list that contains the error code.

        Takes: answer, the response, or a struct that is nested in it.
        """
        owner = _VARIABLES[depth - 1] if depth else "self"
        for answers in self._error_lists(answer, version):
            rows = self._rows_of(answers, asked, version)
            if rows:
                yield f"{answers.name}={self._comprehension(answers, rows, owner, version, depth)}"

    def _comprehension(
        self, answers: Field, rows: list[_Rows], owner: str, version: int, depth: int
    ) -> str:
        """The expression that makes a list of the response, with a row for each row of the
        request's lists. Takes: owner, the expression of the message or row that has the lists.
        """
        variable = _VARIABLES[depth]
        # a name that is in several of the request's lists occurs only once in the response
        if len(rows) > 1:
            names = ", ".join(f"*(one.name for one in {owner}.{one.field.name})" for one in rows)
            name = replace(rows[0].field, type="string", struct=None)
            made = self._row(answers, name, variable, version, depth)
            return f"[{made} for {variable} in dict.fromkeys([{names}])]"
        made = self._row(answers, rows[0].field, variable, version, depth)
        (one,) = rows
        if one.within is not None:
            outer = f"for outer in {owner}.{one.within.name} "
            return f"[{made} {outer}for {variable} in outer.{one.field.name}]"
        source = f"{owner}.{one.field.name}{' or ()' if one.field.may_be_null else ''}"
        return f"[{made} for {variable if variable in made else '_'} in {source}]"

    def _row(self, answers: Field, asked: Field, variable: str, version: int, depth: int) -> str:
        """Return the expression that makes one element of a list of the response."""
        answer = self._struct_of(answers)
        error = _error_field(answer, version)
        arguments: list[str] = []
        if self._api_name not in WITHOUT_NAMES:
            arguments += self._names(answer, asked, variable, version)
        if error is not None:
            arguments.append(f"{error.name}=code")
        elif asked.struct is not None:
            arguments += self._lists(answer, self._structs[asked.struct], version, depth + 1)
        arguments += _unknown(answer, version)
        return f"{answer.name}({', '.join(_by_position(answer, arguments))})"

    def _names(self, answer: Struct, asked: Field, variable: str, version: int) -> Iterator[str]:
        """Return the arguments for the names in one element of a list of the response."""
        if asked.struct is None:
            name = next(one for one in _names(answer) if one.type == asked.type)
            yield f"{name.name}={variable}"
            return
        of_kind = {NAMES[one.name]: one for one in _names(self._structs[asked.struct])}
        for name in _names(answer):
            named = of_kind.get(NAMES[name.name])
            if named is not None:
                is_lost = named.may_be_null and not _may_be_null(name, version)
                yield f"{name.name}={variable}.{named.name}" + (' or ""' if is_lost else "")

    def _error_lists(self, struct: Struct, version: int) -> Iterator[Field]:
        """Return those lists of a response, or of a part of it, whose elements have a field for an
        error.
        """
        for one in _fields(struct, version):
            if one.is_array and one.struct is not None and self._has_error(one, version):
                yield one

    def _has_error(self, one: Field, version: int) -> bool:
        struct = self._struct_of(one)
        return _error_field(struct, version) is not None or any(self._error_lists(struct, version))

    def _rows_of(self, answers: Field, asked: Struct, version: int) -> list[_Rows]:
        """Return the lists of the request, or of a part of it, that correspond to a list of the
        response.
        """
        lists = [
            one for one in _fields(asked, version) if one.is_array and one.name not in NOT_ANSWERED
        ]
        named = _names(self._struct_of(answers))
        # the elements have no names: they correspond to those of the request, in the same order
        if not named:
            return [_Rows(one) for one in lists]
        found = [_Rows(one) for one in lists if self._has_names(one, named)]
        return found or [
            _Rows(inner, one)
            for one in lists
            if one.struct is not None
            for inner in _fields(self._structs[one.struct], version)
            if inner.is_array and self._has_names(inner, named)
        ]

    def _has_names(self, asked: Field, named: list[Field]) -> bool:
        """Whether the elements of the request's list have names of the same kind as those of the
        response's list.
        """
        if asked.struct is None:
            return asked.type in {one.type for one in named}
        kinds = {NAMES[one.name] for one in _names(self._structs[asked.struct])}
        return not kinds.isdisjoint(NAMES[one.name] for one in named)

    def _struct_of(self, one: Field) -> Struct:
        assert one.struct is not None
        return self._structs[one.struct]


def _fields(struct: Struct, version: int) -> list[Field]:
    return [one for one in struct.fields if one.versions.first <= version <= one.versions.last]


def _by_position(struct: Struct, arguments: list[str]) -> list[str]:
    """Return the arguments, as positional ones if they are the first ones of the constructor.

    Thousands of these objects may be made at once, and a call with keyword arguments takes up to 50
    % longer.
    """
    values = dict(argument.split("=", 1) for argument in arguments)
    first = [one.name for one in struct.fields[: len(values)]]
    return [values[name] for name in first] if set(first) == set(values) else arguments


def _may_be_null(one: Field, version: int) -> bool:
    return one.nullable.first <= version <= one.nullable.last


def _names(struct: Struct) -> list[Field]:
    return [one for one in struct.fields if one.name in NAMES]


def _error_field(struct: Struct, version: int) -> Field | None:
    fields = _fields(struct, version)
    return next((one for one in fields if one.name.endswith("error_code")), None)


def _unknown(struct: Struct, version: int) -> Iterator[str]:
    """The arguments for fields that are unknown after an error, if they differ from their
    defaults.
    """
    for one in struct.fields:
        value = UNKNOWN.get(one.name, UNKNOWN.get(f"{struct.name}.{one.name}"))
        if value is None or value == {"null": "None"}.get(one.default or "", one.default):
            continue
        is_there = one.versions.first <= version <= one.versions.last
        if one.is_ignorable or (is_there if value != "None" else _may_be_null(one, version)):
            yield f"{one.name}={value}"
