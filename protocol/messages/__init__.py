"""The message classes: kafka-python's `kafka.protocol`, loaded one family at a time, with what a server needs around them.

kafka-python generates its classes and codecs from Apache Kafka's public schemas. Two things are added here. Importing the package `kafka`
also imports its clients, which is most of its cost and nothing a broker uses: here the package is entered without them (they still load when
somebody asks for one). And requests are read as strictly as Apache Kafka reads them: see `decoder`.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import re
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

Decoder = Callable[[Any, int], tuple[Any, int]]
FAMILIES = ("metadata", "producer", "consumer", "admin")
PRODUCE = 0

_classes: dict[str, Any] = {}
_decoders: dict[tuple[str, int], Decoder] = {}


def enter_kafka_without_clients() -> None:
    """Put a package `kafka` into sys.modules whose own code runs when an attribute that it lacks is asked for."""
    if "kafka" in sys.modules:
        return
    spec = importlib.util.find_spec("kafka")
    if spec is None or spec.loader is None or spec.submodule_search_locations is None:
        raise ImportError("kafka-python is missing: install it with `pip install 'kafka-python>=3.0.12'`")
    package = types.ModuleType("kafka")
    package.__spec__, package.__loader__, package.__file__ = spec, spec.loader, spec.origin
    package.__path__ = list(spec.submodule_search_locations)
    loader = spec.loader

    def load_all(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        del package.__dict__["__getattr__"]
        loader.exec_module(package)
        return getattr(package, name)

    package.__dict__["__getattr__"] = load_all
    sys.modules["kafka"] = package


def message_class(family: str, name: str) -> Any:
    """The class `name` of `kafka.protocol.<family>`."""
    known = _classes.get(name)
    if known is None:
        enter_kafka_without_clients()
        known = _classes[name] = getattr(importlib.import_module(f"kafka.protocol.{family}"), name)
    return known


class LazyMessage:
    """A message class that is loaded when it is first called or looked into: importing all of them takes longer than all else at a start."""

    __slots__ = ("_family", "_loaded", "_path")

    def __init__(self, family: str, path: str) -> None:
        self._family, self._path = family, path
        self._loaded: Any = None

    def __call__(self, *arguments: Any, **fields: Any) -> Any:
        return (self._loaded or self._load())(*arguments, **fields)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loaded or self._load(), name)

    def _load(self) -> Any:
        name, *inner = self._path.split(".")
        loaded = message_class(self._family, name)
        for part in inner:
            loaded = getattr(loaded, part)
        self._loaded = loaded
        return loaded


def lazy_message(family: str, path: str) -> Any:
    """The class, or a class inside it ("FetchResponse.FetchableTopicResponse"), loaded when it is first used."""
    return LazyMessage(family, path)


def __getattr__(name: str) -> Any:
    """Message classes by name: `messages.FetchResponse`."""
    if name in _classes:
        return _classes[name]
    if name.startswith("_"):
        raise AttributeError(name)
    enter_kafka_without_clients()
    for family in FAMILIES:
        module = importlib.import_module(f"kafka.protocol.{family}")
        if hasattr(module, name):
            _classes[name] = getattr(module, name)
            return _classes[name]
    raise AttributeError(f"kafka-python has no message {name}")


def decoder(message_class: Any, version: int) -> Decoder:
    """f(buffer, position) -> (message, position after it).

    It reads beyond a buffer that is too short without complaint; the caller compares the position with the buffer's end. The code is what
    kafka-python generates, with some things changed: any negative count is null; a varint ends after five bytes; tagged fields end where
    they say; null in a request's field that may not be null is a ValueError; letters in a request that are not UTF-8 are replaced, as Java
    does. And a Produce request keeps `records` as a view of the buffer instead of a copy.
    """
    key = (message_class.__name__, version)
    known = _decoders.get(key)
    if known is None:
        known = _decoders[key] = _compile(message_class, version)
    return known


def _compile(message_class: Any, version: int) -> Decoder:
    from kafka.protocol.schemas.fields.codegen import CodegenContext

    form = message_class._struct
    flexible = message_class.flexible_version_q(version)
    context = CodegenContext()
    context.lines.append("def _decode(data, pos):")
    saved, form._data_class = form._data_class, message_class  # else a weak reference stands there
    try:
        form.emit_decode_from(context, "obj", "    ", version=version, compact=flexible, tagged=flexible)
    finally:
        form._data_class = saved
    context.lines.append("    return obj, pos")
    source = _NO_COUNT.sub(r"\1 < 0:", context.source())
    source = _VARINT.sub(r"\1\2 = data[pos]\n\1pos += 1\n\1if \2 > 0x7f: \2, pos = _read_varint(data, pos - 1)\n", source)
    source = _TAGGED.sub(r"\1_tfd, pos = _read_tagged(\2, data, pos, \3)", source)
    context.globs["_read_tagged"] = _read_tagged
    context.globs["_read_varint"] = _read_varint
    if message_class.is_request():
        source = source.replace('], "utf-8")', '], "utf-8", "replace")')
        source = _refusing_null(source, *_nullability(form, version))
    exec(compile(source, f"<decoder of {message_class.__name__} {version}>", "exec"), context.globs)
    if message_class.is_request() and message_class.API_KEY == PRODUCE:
        context.globs["bytes"] = _unchanged  # the generated code copies a `bytes` field by calling bytes() on a slice
    decode: Decoder = context.globs["_decode"]
    return decode


_NO_COUNT = re.compile(r"(if _n\d+) == -1:")
_VARINT = re.compile(r"^( *)(_\w+) = 0\n\1(_sh\d+) = 0\n\1while True:\n(?:\1    .*\n){4}\1    \3 \+= 7\n", re.MULTILINE)
_TAGGED = re.compile(r"^( *)_bio\d+ = .*\n *_tfd = (_tf\d+)\.decode\(_bio\d+, version=(\d+)\)\n *pos \+= _bio\d+\.tell\(\)$", re.MULTILINE)
_NULL = re.compile(r"^( *)(_\w+) = None$")
_ASSIGNED = re.compile(r"^ *_?obj\d*\.(\w+) = (_\w+)$|^ *_val\d+\.(\w+) = (_\w+)$")


def _read_tagged(form: Any, data: Any, position: int, version: int) -> tuple[dict[str, Any], int]:
    """The known ones of a message's tagged fields, and the position after all of them."""
    values: dict[str, Any] = {}
    count, position = _read_varint(data, position)
    for _ in range(count):
        tag, position = _read_varint(data, position)
        size, position = _read_varint(data, position)
        if size > len(data) - position:
            raise ValueError("a tagged field is longer than its message")
        field = form._tags.get(tag)
        if field is not None:
            values[field.name] = field.decode(io.BytesIO(data[position : position + size]), version=version, compact=True, tagged=None)
        position += size
    return values, position


def _read_varint(data: Any, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("a varint is longer than five bytes")


def _unchanged(view: memoryview) -> memoryview:
    return view


def _nullability(form: Any, version: int) -> tuple[set[str], set[str]]:
    """The names of the fields that may be null, and of those that may not."""
    may: set[str] = set()
    may_not: set[str] = set()
    for field in form.untagged_fields(version):
        (may if field.nullable_for_version_q(version) or field._type_str == "uuid" else may_not).add(field.name)
        inner = getattr(field, "array_of", None) or field
        if hasattr(inner, "untagged_fields"):
            inner_may, inner_may_not = _nullability(inner, version)
            may |= inner_may
            may_not |= inner_may_not
    return may, may_not


def _refusing_null(source: str, may: set[str], may_not: set[str]) -> str:
    """Raise where null would be given to a field that may not be null."""
    assert not may & may_not, f"{may & may_not} may be null in one place and not in another"
    fields = {variable: name for variable, name in _assignments(source) if name in may}
    lines = []
    for line in source.split("\n"):
        null = _NULL.match(line)
        if null is not None and null[2].startswith(("_val", "_item")) and null[2] not in fields:
            line = f"{null[1]}raise ValueError('null stands where it may not')"
        lines.append(line)
    return "\n".join(lines)


def _assignments(source: str) -> Iterator[tuple[str, str]]:
    """(variable, field) of each line that gives a variable to a field of a message."""
    for line in source.split("\n"):
        assigned = _ASSIGNED.match(line)
        if assigned is not None:
            yield assigned[2] or assigned[4], assigned[1] or assigned[3]
