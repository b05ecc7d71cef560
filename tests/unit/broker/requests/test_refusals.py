"""Responses that have the same error for all items of a request, for every API and version. Both
these responses and this test are generated from the schemas.
"""

from __future__ import annotations

import itertools
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.api_rows import ROWS, SHAPES

from barnabas.broker.requests.refusals import refused_rows
from barnabas.protocol.api import Api
from barnabas.protocol.api_table import APIS
from barnabas.protocol.errors import Code
from barnabas.protocol.generator.schema import Field, Struct, structs_of
from barnabas.protocol.message_classes import message_class
from barnabas.protocol.messages.message import Message

VERSIONS = [
    (api, version) for api in APIS for version in range(api.min_version, api.max_version + 1)
]
ROWS_IN_A_LIST = 3
CODE = Code.NOT_COORDINATOR
# Fields that identify the subject of a row; the fields of one tuple have the same meaning.
NAMING = (
    ("name", "topic", "topic_name"),
    ("topic_id",),
    ("partition_index", "partition", "partition_id", "index"),
    ("group_id", "key"),
    ("transactional_id", "producer_id"),
    ("resource_type",),
    ("resource_name",),
    ("entity",),
)
# Responses that have an error field only in the row of a log directory.
WITHOUT_A_PLACE = {("DescribeLogDirs", version) for version in range(3)}
# APIs whose rows have no name, or names from several lists. They have tests of their own.
OTHERWISE = {
    "AlterReplicaLogDirs", "AlterUserScramCredentials", "CreateAcls", "DeleteAcls",
    "DescribeUserScramCredentials",
}  # fmt: skip


class Maker:
    """Makes requests with some rows in each list, and with a different value in each field."""

    def __init__(self, api: Api, version: int) -> None:
        """Read the schema of the request. `make` uses it to fill all fields of a version."""
        self._structs = {one.name: one for one in structs_of(api.name, api.min_version)}
        self._classes = vars(__import__(message_class(api, "Request").__module__, fromlist=["*"]))
        self._version, self._numbers = version, itertools.count(1)

    def make(self, name: str) -> Message:
        """A message of this class with a different value in each field."""
        struct: Struct = self._structs[name]
        message: Message = self._classes[name]()
        for one in struct.fields:
            if one.versions.first <= self._version <= one.versions.last:
                setattr(message, one.name, self._value(one))
        return message

    def _value(self, one: Field) -> Any:
        if one.is_array:
            return [self._single(one) for _ in range(ROWS_IN_A_LIST)]
        return self._single(one)

    def _single(self, one: Field) -> Any:
        if one.struct is not None:
            return self.make(one.struct)
        number = next(self._numbers)
        values = {
            "string": f"name-{number}", "uuid": uuid.UUID(int=number), "bool": True,
            "bytes": b"bytes", "records": b"records", "int8": number % 100,
        }  # fmt: skip
        return values.get(one.type, number)


def made(api: Api, version: int) -> Message:
    """A request with three items in each of its lists, decoded from its encoded form."""
    request = Maker(api, version).make(f"{api.name}Request")
    return type(request).decode(request.encode(version), version)


def refused(api: Api, version: int, request: Message) -> Any:
    """Return the error response, encoded and decoded again as a client would do it."""
    answer = request.error_response(version, CODE)
    assert type(answer) is message_class(api, "Response")
    return type(answer).decode(answer.encode(version), version)


def error_of(message: Any) -> int | None:
    names = [name for name in message.__slots__ if name.endswith("error_code")]
    return getattr(message, names[0]) if names else None


def codes_in(message: Any) -> Iterator[int]:
    """All error codes of a response that are not 0."""
    for name in message.__slots__:
        value = getattr(message, name)
        if name.endswith("error_code") and value:
            yield value
        elif isinstance(value, list):
            for row in value:
                if isinstance(row, Message):
                    yield from codes_in(row)


def name_of(row: Any) -> tuple[Any, ...]:
    """The values of the fields that identify the subject of a row, in a request or a response."""
    if not isinstance(row, Message):
        return (row,)
    names = [
        next((getattr(row, field) for field in fields if field in row.__slots__), None)
        for fields in NAMING
    ]
    return tuple(name for name in names if name not in (None, ""))


def inner_list(row: Any) -> list[Any] | None:
    """The list of partitions or topics inside a row."""
    names = [
        name
        for name in row.__slots__
        if name.startswith(("partition", "topics", "topic_results", "results_by_"))
        and isinstance(getattr(row, name), list)
    ]
    return getattr(row, names[0]) if names else None


def refused_paths(rows: list[Any]) -> Iterator[tuple[tuple[Any, ...], ...]]:
    """Yield, for each row with the error, the names of the rows that contain it, from the outermost
    row on.
    """
    for row in rows:
        if error_of(row) is not None:
            assert error_of(row) == CODE
            yield (name_of(row),)
        else:
            for below in refused_paths(inner_list(row) or []):
                yield (name_of(row), *below)


def paths(rows: list[Any], depth: int) -> Iterator[tuple[tuple[Any, ...], ...]]:
    """Yield, for each row of a request at this depth, the names of the rows that contain it, and
    its own.
    """
    for row in rows:
        if depth == 1:
            yield (name_of(row),)
        else:
            for below in paths(inner_list(row) or [], depth - 1):
                yield (name_of(row), *below)


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=str)
def test_the_error_response_of_each_request_has_the_error_for_each_item(
    api: Api, version: int
) -> None:
    request = made(api, version)
    answer = refused(api, version, request)
    codes = set(codes_in(answer))
    if (api.name, version) in WITHOUT_A_PLACE:
        assert codes == set()
        return
    assert codes == {CODE}
    if error_of(answer) == CODE or api.name in OTHERWISE:
        return
    lists = {
        rows: getattr(answer, answers)
        for rows, answers in request.ROWS.items()
        if getattr(request, rows) and getattr(answer, answers)
    }
    (rows, answers) = next(iter(lists.items()))
    assert len(lists) == 1
    found = list(refused_paths(answers))
    assert found == list(paths(getattr(request, rows), len(found[0])))
    assert len(found) == ROWS_IN_A_LIST ** len(found[0])
    assert all(name for path in found for name in path)


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=str)
def test_the_error_response_of_an_empty_request_can_be_encoded(api: Api, version: int) -> None:
    """The lists of such a request are empty, or null if null means everything."""
    request = message_class(api, "Request")()
    refused(api, version, request)
    for one in structs_of(api.name, api.min_version):
        if one.api_key is not None and one.name == f"{api.name}Request":
            for field in one.fields:
                if field.nullable.first <= version <= field.nullable.last:
                    setattr(request, field.name, None)
    refused(api, version, request)


def test_the_error_response_for_a_topic_id_without_a_name_has_the_id() -> None:
    """Up to version 11 of Metadata, the name in a response cannot be null."""
    (api,) = (api for api in APIS if api.name == "Metadata")
    for version in range(10, 14):
        request: Any = made(api, version)
        request.topics[0].name = None
        (row, *_) = refused(api, version, request).topics
        assert row.topic_id == request.topics[0].topic_id
        assert not row.name


def test_error_responses_without_names_have_a_row_for_each_item() -> None:
    rows = {"CreateAcls": "results", "DeleteAcls": "filter_results"}
    rows["DescribeUserScramCredentials"] = "results"
    for api in APIS:
        if api.name in rows:
            answer = refused(api, api.max_version, made(api, api.max_version))
            assert len(getattr(answer, rows[api.name])) == ROWS_IN_A_LIST


def test_an_item_in_several_lists_has_one_row_in_the_error_response() -> None:
    apis = {api.name: api for api in APIS}
    request: Any = made(apis["AlterUserScramCredentials"], 0)
    request.upsertions[0].name = request.deletions[0].name
    named = [one.name for one in (*request.deletions, *request.upsertions)]
    answer = refused(apis["AlterUserScramCredentials"], 0, request)
    assert [row.user for row in answer.results] == list(dict.fromkeys(named))
    assert len(answer.results) == 5
    request = made(apis["AlterReplicaLogDirs"], 2)
    topics = [topic for directory in request.dirs for topic in directory.topics]
    answer = refused(apis["AlterReplicaLogDirs"], 2, request)
    assert [row.topic_name for row in answer.results] == [topic.name for topic in topics]
    assert [len(row.partitions) for row in answer.results] == [ROWS_IN_A_LIST] * 9


def test_an_offset_delete_can_have_the_error_in_its_rows_or_at_the_top() -> None:
    (api,) = (api for api in APIS if api.name == "OffsetDelete")
    request: Any = made(api, 0)
    answer: Any = refused_rows(request, 0, CODE)
    assert answer.error_code == 0
    assert list(refused_paths(answer.topics)) == list(paths(request.topics, 2))
    assert refused(api, 0, request).topics == []


def test_making_an_error_response_imports_no_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error response is made in the event loop's thread, where an import would delay all
    clients.
    """
    (api,) = (api for api in APIS if api.name == "FindCoordinator")
    request = made(api, 4)
    module = "barnabas.protocol.messages.offset_delete"
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.delattr(module, raising=False)
    refused_rows(request, 4, CODE)
    assert module not in sys.modules


def test_the_tables_of_request_parts_and_error_rows_have_the_same_lists() -> None:
    """Two hand-written tables must have the same pairs of lists."""
    pairs = {api.name: message_class(api, "Request").ROWS for api in APIS}
    for name, shapes in SHAPES.items():
        for shape in shapes:
            assert pairs[name][shape.levels[0].rows] == shape.levels[0].answers
    for name, row in ROWS.items():
        several = None if row.coordination is None else row.coordination.several
        if several is None:
            continue
        assert pairs[name][several.field] == several.rows
