"""Giants are the largest and the most repetitive requests of every API and version, made from the
schemas.

A giant fills one array of the request, at any depth, with as many elements as the API's limit in
the API table and the size limit allow. One further giant exceeds the number of elements, and
another one fills the tagged fields of the body. The other fields have existing names and
meaningful numbers, so that the broker processes the request.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from barnabas.protocol.api import Api
from barnabas.protocol.generator.emit import LETTERS
from barnabas.protocol.generator.schema import Field, Struct, structs_of

MOST_BYTES = (2 << 20) - 64
LONG = "n" * 200
TOPIC, GROUP, TRANSACTIONAL_ID, USER = "t", "g", "x", "alice"
TOPIC_ID = uuid.UUID(int=0x1234)
SIZES = {letter: struct.calcsize(f">{letter}") for letter in LETTERS.values()}

NAMES = {
    "group_id": GROUP, "groups": GROUP, "group_ids": GROUP, "groups_names": GROUP,
    "coordinator_keys": GROUP, "key": GROUP, "transactional_id": TRANSACTIONAL_ID,
    "transactional_ids": TRANSACTIONAL_ID, "v3_and_below_transactional_id": TRANSACTIONAL_ID,
    "topic": TOPIC, "name": TOPIC, "topic_name": TOPIC, "topic_names": TOPIC,
    "subscribed_topic_names": TOPIC, "resource_name": TOPIC, "configuration_keys": "retention.ms",
    "member_id": "m", "principal": "User:alice", "host": "*", "protocol_type": "consumer",
    "principal_filter": "User:alice", "host_filter": "*", "resource_name_filter": TOPIC,
    "entity_type": "user", "entity_name": USER, "path": "/", "feature": "metadata.version",
    "client_software_name": "a", "client_software_version": "b",
    "subscribed_topic_regex": "", "rack_id": "", "server_assignor": "uniform",
}  # fmt: skip
COMMITTED = "offsets"  # the id of a group that has committed an offset with metadata
OF_API = {
    ("name", "DescribeUserScramCredentials"): USER,
    ("name", "JoinGroup"): "range",
    ("group_id", "OffsetFetch"): COMMITTED,
}
NUMBERS = {
    "resource_type": 2, "resource_pattern_type": 3, "operation": 3, "permission_type": 3,
    "resource_type_filter": 2, "pattern_type_filter": 3, "num_partitions": 1,
    "replication_factor": 1, "current_leader_epoch": -1, "leader_epoch": -1, "replica_id": -1,
    "timestamp": -1, "session_timeout_ms": 600_000, "rebalance_timeout_ms": 600_000,
    "max_bytes": 1 << 20, "max_wait_ms": 0, "partition_max_bytes": 1 << 20, "count": 2,
    "generation_id": -1, "generation_id_or_member_epoch": -1, "timeout_ms": 1000,
    "response_partition_limit": 2000, "committed_offset": 1, "producer_id": 1000,
    "v3_and_below_producer_id": 1000, "iterations": 4096, "mechanism": 1, "duration_filter": -1,
    "retention_time_ms": -1, "committed_leader_epoch": -1, "session_epoch": -1,
    "last_fetched_epoch": -1, "log_start_offset": -1,
}  # fmt: skip
SHAPES = ("empty", "same", "long", "distinct")
TOO_MANY, TAGGED = "too many", "tagged fields"
KINDS = (*SHAPES, TOO_MANY, TAGGED)


class Giant(NamedTuple):
    """One giant request. `frame` is the request without its size, and `name` describes it.
    `elements` counts the elements of all its arrays; an element that is a plain number counts as a
    quarter.
    """

    name: str
    frame: bytes
    elements: int


@cache
def _structs(api_name: str) -> dict[str, Struct]:
    return {struct.name: struct for struct in structs_of(api_name)}


def array_paths(api: Api, version: int) -> list[tuple[str, ...]]:
    """The path of each array in a request of this version. A path consists of the names of the
    fields that lead to the array.
    """
    structs = _structs(api.name)

    def below(kind: Struct, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for field in kind.fields:
            if not field.versions.first <= version <= field.versions.last or field.tag is not None:
                continue
            here = (*path, field.name)
            if field.is_array:
                yield here
            if field.struct:
                yield from below(structs[field.struct], here)

    return list(below(structs[f"{api.name}Request"], ()))


def giants(
    api: Api,
    version: int,
    most_bytes: int = MOST_BYTES,
    kinds: tuple[str, ...] = KINDS,
    is_wanted: Callable[[], bool] = lambda: True,
) -> Iterator[Giant]:
    """Yield, for each array of the request, a giant of each kind, and one giant with tagged fields.
    Only giants that `is_wanted` selects are made, since each takes a while.
    """
    for path in array_paths(api, version):
        for shape in kinds:
            if shape == TAGGED or not is_wanted():
                continue
            made = _Made(api, version, path, shape, most_bytes)
            frame = made.frame()
            name = f"{api.name} {version} {'.'.join(path)} {shape}"
            yield Giant(name, frame, made.elements)
    if version >= api.flexible_from and TAGGED in kinds and is_wanted():
        made = _Made(api, version, (), "same", most_bytes)
        frame = made.frame()
        assert frame[-1] == 0, "a flexible request ends with the count of its tagged fields"
        count = (most_bytes - len(frame)) // 5
        tags = b"".join(_uvarint(16384 + tag) + b"\0" for tag in range(count))
        yield Giant(
            f"{api.name} {version} tagged fields", frame[:-1] + _uvarint(count) + tags, count
        )


class _Made:
    """A request whose array at `path` is filled up to `most_bytes`."""

    def __init__(
        self, api: Api, version: int, path: tuple[str, ...], shape: str, most_bytes: int
    ) -> None:
        self._api, self._version, self._path = api, version, path
        self._shape, self._most_bytes = shape, most_bytes
        self._is_bounded = shape != TOO_MANY
        if not self._is_bounded:
            self._shape = "empty"
        self._compact = version >= api.flexible_from
        self._structs = _structs(api.name)
        # `_number` is the number of the current distinct element. `_quarters` counts four for each
        # array element so far, or one if the element is a plain number.
        self._number = self._quarters = 0

    @property
    def elements(self) -> int:
        return self._quarters // 4

    def frame(self) -> bytes:
        """The whole request, with its header."""
        head = struct.pack(">hhih", self._api.key, self._version, 7, 1) + b"c"
        if self._compact:
            head += b"\0"
        return head + self._struct(self._structs[f"{self._api.name}Request"], self._path, True)

    def _struct(self, kind: Struct, path: tuple[str, ...], is_outer: bool) -> bytes:
        """Encode a struct. `path` has the names of the fields from here to the array that is
        filled. It is empty if the array is not inside this struct.
        """
        out = b""
        for field in kind.fields:
            if field.tag is None and field.versions.first <= self._version <= field.versions.last:
                is_on_path = bool(path) and field.name == path[0]
                out += self._field(field, path[1:] if is_on_path else (), is_on_path, is_outer)
        return out + b"\0" if self._compact else out

    def _field(
        self, field: Field, rest: tuple[str, ...], is_on_path: bool, is_outer: bool
    ) -> bytes:
        """Encode a field. If the field is on the path to the array, `rest` is the path below the
        field. Fields that are not on the path are null or hold one element.
        """
        if not field.is_array:
            if not field.struct:
                return self._value(field, is_outer=is_outer)
            inner = self._struct(self._structs[field.struct], rest, is_outer)
            if is_on_path or not self._may_be_null(field):
                return (b"\1" if field.may_be_null else b"") + inner
            return b"\xff"
        if is_on_path and rest:
            assert field.struct
            return self._count(1) + self._struct(self._structs[field.struct], rest, True)
        if is_on_path:
            return self._filled(field)
        if not is_outer and self._shape == "empty":
            return self._count(0)
        if self._may_be_null(field):
            return self._count(-1)
        self._quarters += self._quarters_of(field)
        return self._count(1) + self._element(field)

    def _filled(self, field: Field) -> bytes:
        """Encode the array with as many elements as `most_bytes` and the API's limit of elements
        allow.
        """
        before = self._quarters
        element = self._element(field)
        quarters = self._quarters - before + self._quarters_of(field)
        most = (4 * self._api.most_elements - before - 400) // quarters  # 400: a reserve
        if not self._is_bounded:
            most = self._most_bytes
        if self._shape == "distinct":
            elements, size = [element], len(element)
            while size < self._most_bytes - 200 and len(elements) < most:
                self._number += 1
                elements.append(self._element(field))
                size += len(elements[-1])
            self._quarters = before + quarters * len(elements)
            return self._count(len(elements)) + b"".join(elements)
        count = max(1, min(most, (self._most_bytes - 200) // len(element)))
        self._quarters = before + quarters * count
        return self._count(count) + element * count

    def _quarters_of(self, field: Field) -> int:
        return 1 if field.type in LETTERS else 4

    def _element(self, field: Field) -> bytes:
        """One element of an array, without further elements inside."""
        if field.struct:
            return self._struct(self._structs[field.struct], (), False)
        return self._value(field, is_outer=False)

    def _may_be_null(self, field: Field) -> bool:
        return field.nullable.first <= self._version <= field.nullable.last

    def _value(self, field: Field, *, is_outer: bool) -> bytes:
        """Encode a value. Outside the filled array, the value is a meaningful one. Inside it, the
        value depends on the giant's shape.
        """
        kind, name = field.type, field.name
        if kind in LETTERS:
            value = NUMBERS.get(name, 0)
            if not is_outer and self._shape == "distinct" and name not in NUMBERS:
                value = self._number
            letter = LETTERS[kind]
            if letter in "bBhHiIqQ":
                value = max(-1, value) % (1 << 8 * SIZES[letter] - 1) if value >= 0 else value
            return struct.pack(f">{letter}", value)
        if kind == "uuid":
            if not is_outer and self._shape == "distinct":
                return uuid.UUID(int=self._number + (1 << 64)).bytes
            return bytes(16) if self._has_name(field) else TOPIC_ID.bytes
        if kind == "string":
            return self._string(self._text(name, is_outer=is_outer))
        return self._bytes(b"")

    def _has_name(self, field: Field) -> bool:
        """Whether the struct with this id field also has a name field in this version."""
        for kind in self._structs.values():
            if field in kind.fields:
                return any(
                    one.type == "string"
                    and one.name in ("name", "topic", "topic_name")
                    and one.versions.first <= self._version <= one.versions.last
                    for one in kind.fields
                )
        return False

    def _text(self, name: str, *, is_outer: bool) -> str:
        """Return a text for this field. Outside the filled array, the text is a known name. Inside
        it, the text depends on the giant's shape.
        """
        known = OF_API.get((name, self._api.name), NAMES.get(name, "a"))
        if is_outer or self._shape == "same":
            return known
        if self._shape == "empty":
            return ""
        return LONG if self._shape == "long" else f"{self._number:06d}"

    def _string(self, text: str) -> bytes:
        data = text.encode()
        if self._compact:
            return _uvarint(len(data) + 1) + data
        return struct.pack(">h", len(data)) + data

    def _bytes(self, data: bytes) -> bytes:
        if self._compact:
            return _uvarint(len(data) + 1) + data
        return struct.pack(">i", len(data)) + data

    def _count(self, count: int) -> bytes:
        return _uvarint(count + 1) if self._compact else struct.pack(">i", count)


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
