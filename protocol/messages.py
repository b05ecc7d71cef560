"""The message classes: kafka-python's `kafka.protocol`, loaded one family at a time, with what a server needs around them.

kafka-python generates its classes and codecs from Apache Kafka's public schemas. Two things are added here. Importing the package `kafka`
also imports its clients, which is most of its cost and nothing a broker uses: here the package is entered without them (they still load when
somebody asks for one). And a decoded Produce request keeps `records` as a view of the received frame instead of a copy.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any

Decoder = Callable[[Any, int], tuple[Any, int]]
FAMILIES = ("metadata", "producer", "consumer", "admin")
PRODUCE = 0

_classes: dict[str, Any] = {}
_decoders: dict[tuple[str, int], Decoder] = {}
_required: dict[tuple[str, int], list[_Required]] = {}


def _enter_kafka_without_clients() -> None:
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
        _enter_kafka_without_clients()
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
    _enter_kafka_without_clients()
    for family in FAMILIES:
        module = importlib.import_module(f"kafka.protocol.{family}")
        if hasattr(module, name):
            _classes[name] = getattr(module, name)
            return _classes[name]
    raise AttributeError(f"kafka-python has no message {name}")


def decoder(request_class: Any, version: int) -> Decoder:
    """f(buffer, position) -> (request, position after it).

    It reads beyond a buffer that is too short without complaint; the caller compares the position with the buffer's end.
    """
    key = (request_class.__name__, version)
    known = _decoders.get(key)
    if known is None:
        flexible = request_class.flexible_version_q(version)
        known = request_class._struct.compiled_decode_from(
            version, compact=flexible, tagged=flexible, data_class=request_class
        )
        if request_class.API_KEY == PRODUCE:
            known.__globals__["bytes"] = _unchanged  # the generated code copies a `bytes` field by calling bytes() on a slice
        _decoders[key] = known
    return known


def _unchanged(view: memoryview) -> memoryview:
    return view


class _Required:
    """A string, array or struct field that may not be null, or one whose inner fields may not."""

    __slots__ = ("inner", "is_array", "name", "nullable")

    def __init__(self, name: str, nullable: bool, is_array: bool, inner: list[_Required]) -> None:
        self.name, self.nullable, self.is_array, self.inner = name, nullable, is_array, inner


def null_field(request: Any, request_class: Any, version: int) -> str | None:
    """The name of a field that is null and must not be, or None. kafka-python's decoders take null anywhere."""
    key = (request_class.__name__, version)
    required = _required.get(key)
    if required is None:
        required = _required[key] = _required_fields(request_class._struct, version)
    return _find_null(request, required)


def _required_fields(struct: Any, version: int) -> list[_Required]:
    found = []
    for field in struct.untagged_fields(version):
        kind = field._type_str
        inner = _required_fields(field, version) if kind.startswith("[]") and getattr(field, "_fields", None) else []
        nullable = bool(field.nullable_for_version_q(version))
        if inner or (not nullable and (kind.startswith("[]") or kind in ("string", "bytes"))):
            found.append(_Required(field.name, nullable, kind.startswith("[]"), inner))
    return found


def _find_null(message: Any, required: list[_Required]) -> str | None:
    for field in required:
        value = getattr(message, field.name)
        if value is None:
            if not field.nullable:
                return field.name
        elif field.inner:
            for item in value:
                name = _find_null(item, field.inner)
                if name is not None:
                    return f"{field.name}.{name}"
    return None
