"""Protobuf by Google's library, and its messages as JSON.

A schema is a .proto file as text, which the compiler of grpcio-tools reads, or a compiled one: a
FileDescriptorSet, as of `protoc --descriptor_set_out`. JSON is Protobuf's own JSON form, with the
names of the .proto file: 64-bit numbers are strings, bytes base64, times ISO 8601, and fields
without presence are always there. Both forms of names are read.

The compiler runs in a separate process, since it writes its errors to standard error, and its input
may come from a registry.

Source: protobuf.dev, "ProtoJSON Format"; for the indexes of messages, wire_format.py.
"""

from __future__ import annotations

import base64
import binascii
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from barnabas.json_text import JsonText, json_text
from barnabas.schemas.errors import SchemaError, SerdeError, libraries

COMPILER_TIMEOUT_S = 60
DEPTH_MOST = 100


class ProtobufSchema:
    """The messages of one .proto file.

    Takes: descriptor_set, a FileDescriptorSet with all imports; main, the name of the file in it,
           by default the last; origin, the source of the schema, for errors.
    """

    def __init__(self, descriptor_set: bytes, main: str = "", origin: str = "the schema") -> None:
        with libraries("Protobuf"):
            from google.protobuf import descriptor_pb2, descriptor_pool, message
        self.origin = origin
        files = descriptor_pb2.FileDescriptorSet()
        try:
            files.ParseFromString(descriptor_set)
            self._pool = descriptor_pool.DescriptorPool()
            for file in _in_order(files.file):
                self._pool.Add(file)
            self._file = self._pool.FindFileByName(main or files.file[-1].name)
            self.imports = [one.name for one in self._file.dependencies]
        except (message.DecodeError, IndexError, KeyError, TypeError) as error:
            raise SchemaError(f"{origin} is no compiled Protobuf schema: {error}") from error

    def named(self, name: str | None) -> ProtobufSerde:
        """The message with that full name, or that name in the file's package; without a name the
        first message.

        Raises: SchemaError.
        """
        messages = self._messages()
        if not messages:
            raise SchemaError(f"{self.origin} has no message")
        if name is None:
            return self._serde(next(iter(messages.values())))
        package = f"{self._file.package}." if self._file.package else ""
        for full_name in (name, package + name):
            if full_name in messages:
                return self._serde(messages[full_name])
        raise SchemaError(f"{self.origin} has no message {name!r}: there are {', '.join(messages)}")

    def at(self, indexes: Sequence[int]) -> ProtobufSerde:
        """The message that the indexes identify. Raises: SerdeError."""
        try:
            found = list(self._file.message_types_by_name.values())[indexes[0]]
            for index in indexes[1:]:
                found = found.nested_types[index]
        except IndexError:
            text = ".".join(map(str, indexes))
            raise SerdeError(f"{self.origin} has no message with the indexes {text}") from None
        return self._serde(found)

    def _serde(self, descriptor: Any) -> ProtobufSerde:
        return ProtobufSerde(descriptor, self._pool)

    def _messages(self) -> dict[str, Any]:
        """The messages of the file, nested ones included, by their full names."""

        def below(descriptors: Sequence[Any]) -> Iterator[Any]:
            for descriptor in descriptors:
                yield descriptor
                inner = [one for one in descriptor.nested_types if not one.GetOptions().map_entry]
                yield from below(inner)

        first = list(self._file.message_types_by_name.values())
        return {one.full_name: one for one in [*first, *below(first)]}


class ProtobufSerde:
    """Decodes and encodes data of one Protobuf message. indexes: the position of the message in its
    file.
    """

    def __init__(self, descriptor: Any, pool: Any) -> None:
        from google.protobuf import json_format, message, message_factory

        self._format, self._error = json_format, message.Error
        self._class = message_factory.GetMessageClass(descriptor)
        self._pool = pool
        self._descriptor = descriptor
        self.indexes = _indexes(descriptor)

    def decode(self, data: bytes) -> Any:
        """The JSON value of data. Raises: SerdeError."""
        found = self._class()
        try:
            found.ParseFromString(data)
            return self._format.MessageToDict(
                found,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
                descriptor_pool=self._pool,
            )
        except (self._error, self._format.Error, ValueError, TypeError) as error:
            name = self._descriptor.full_name
            raise SerdeError(f"it is not data of the message {name}: {error}") from error

    def decode_text(self, data: bytes) -> JsonText:
        """The JSON text of data. Raises: SerdeError."""
        return JsonText(json_text(self.decode(data)))

    def encode(self, value: Any) -> bytes:
        """The data of a JSON value. Raises: SerdeError."""
        if not isinstance(value, dict) and self._descriptor.file.package != "google.protobuf":
            raise SerdeError(f"the value is no object, and {self._descriptor.full_name} is one")
        message = self._class()
        try:
            self._format.ParseDict(value, message, descriptor_pool=self._pool)
            encoded: bytes = message.SerializeToString()
        except (self._error, self._format.Error, ValueError, TypeError) as error:
            name = self._descriptor.full_name
            raise SerdeError(f"it does not fit the message {name}: {error}") from error
        return encoded

    def columns(self) -> dict[str, str]:
        """The types of the fields as types of CSV columns."""
        return {field.name: _column(field) for field in self._descriptor.fields}


def compile_file(path: Path, include: Sequence[Path], origin: str) -> ProtobufSchema:
    """The schema of a .proto file.

    Takes:  include, the folders of its imports; by default the folder of the file.
    Raises: SchemaError.
    """
    folders = [folder.resolve() for folder in include] or [path.resolve().parent]
    for folder in folders:
        if path.resolve().is_relative_to(folder):
            name = path.resolve().relative_to(folder).as_posix()
            return ProtobufSchema(_compiled(folders, name, origin), name, origin)
    raise SchemaError(f"{origin} is in no folder of --proto-path: {', '.join(map(str, include))}")


def compile_text(text: str, references: Mapping[str, str], origin: str) -> ProtobufSchema:
    """The compiled schema of a registry. Its imports are given by their names.

    Raises: SchemaError.
    """
    if (descriptor := _from_base64(text)) is not None:
        return _of_descriptors([*map(_from_base64, references.values()), descriptor], origin)
    with tempfile.TemporaryDirectory(prefix="barnabas-proto-") as folder:
        main = "barnabas_schema.proto"
        for name, source in (*references.items(), (main, text)):
            parts = PurePosixPath(name)
            if parts.is_absolute() or ".." in parts.parts or not parts.parts:
                raise SchemaError(f"{origin} imports {name!r}, which is no path below a folder")
            path = Path(folder, *parts.parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source, encoding="utf-8")
        return ProtobufSchema(_compiled([Path(folder)], main, origin), main, origin)


def _compiled(folders: Sequence[Path], name: str, origin: str) -> bytes:
    """The FileDescriptorSet of a file and its imports, by the compiler."""
    with libraries("Protobuf"):
        import grpc_tools  # noqa: F401
    with tempfile.TemporaryDirectory(prefix="barnabas-proto-") as target:
        out = Path(target, "set")
        command = [sys.executable, "-m", "grpc_tools.protoc", *(f"-I{one}" for one in folders)]
        command += [f"--descriptor_set_out={out}", "--include_imports", name]
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=COMPILER_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise SchemaError(f"{origin}: protoc took more than {COMPILER_TIMEOUT_S} s") from None
        if done.returncode or not out.exists():
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
            said = "; ".join(line for line in lines if "warning" not in line.lower())
            raise SchemaError(f"{origin} cannot be compiled: {said or done.returncode}")
        return out.read_bytes()


def _from_base64(text: str) -> bytes | None:
    """The FileDescriptorProto that some clients register instead of text; None for text."""
    try:
        return base64.b64decode("".join(text.split()), validate=True) or None
    except (binascii.Error, ValueError):
        return None


def _of_descriptors(encoded: Sequence[bytes | None], origin: str) -> ProtobufSchema:
    from google.protobuf import descriptor_pb2, message

    files = descriptor_pb2.FileDescriptorSet()
    for one in encoded:
        if one is None:
            raise SchemaError(f"{origin} is compiled, and one that it imports is text")
        try:
            files.file.add().ParseFromString(one)
        except message.DecodeError as error:
            raise SchemaError(f"{origin} is neither .proto text nor compiled: {error}") from error
    return ProtobufSchema(files.SerializeToString(), files.file[-1].name, origin)


def _in_order(files: Any) -> list[Any]:
    """The files, each after its imports; Google's common files are added."""
    from google.protobuf import descriptor_pool

    by_name = {file.name: file for file in files}
    ordered: dict[str, Any] = {}

    def visit(name: str, depth: int) -> None:
        if name in ordered or depth > DEPTH_MOST:
            return
        file = by_name.get(name)
        if file is None:
            file = _common(name, descriptor_pool.Default())
        for dependency in file.dependency:
            visit(dependency, depth + 1)
        ordered[name] = file

    for name in by_name:
        visit(name, 0)
    return list(ordered.values())


def _common(name: str, pool: Any) -> Any:
    """A file that comes with Protobuf, such as google/protobuf/timestamp.proto."""
    import importlib

    from google.protobuf import descriptor_pb2

    if not name.startswith("google/protobuf/"):
        raise KeyError(f"it imports {name}, which is not in it (protoc --include_imports)")
    importlib.import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2")
    file = descriptor_pb2.FileDescriptorProto()
    pool.FindFileByName(name).CopyToProto(file)
    return file


def _indexes(descriptor: Any) -> tuple[int, ...]:
    found: list[int] = []
    while descriptor.containing_type is not None:
        parent = descriptor.containing_type
        names = [one.name for one in parent.nested_types]
        found.insert(0, names.index(descriptor.name))
        descriptor = parent
    names = list(descriptor.file.message_types_by_name)
    return (names.index(descriptor.name), *found)


def _column(field: Any) -> str:
    if _is_repeated(field):
        return "json"
    if field.cpp_type == field.CPPTYPE_MESSAGE:  # times, durations and wrappers are texts
        return "string" if field.message_type.file.package == "google.protobuf" else "json"
    kinds = {
        "bool": (field.CPPTYPE_BOOL,),
        "float": (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE),
        "int": (
            field.CPPTYPE_INT32,
            field.CPPTYPE_INT64,
            field.CPPTYPE_UINT32,
            field.CPPTYPE_UINT64,
        ),
    }
    return next((name for name, types in kinds.items() if field.cpp_type in types), "string")


def _is_repeated(field: Any) -> bool:
    """Whether a field is a list or a map; `label` is deprecated in newer versions."""
    found = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if found is None else found)
