"""kafka-python's message classes. They are an independent implementation with which our own is
compared.

They are attributes of this module, such as `kafka_messages.FetchResponse`. kafka-python's nested
classes are attributes of the message class, such as `kafka_messages.FetchRequest.FetchTopic`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import types
from collections.abc import Callable
from typing import Any

from kafka.protocol.api_message import ApiMessage

Decoder = Callable[[Any, int], tuple[Any, int]]
FAMILIES = ("metadata", "producer", "consumer", "admin", "sasl")
# Packages with schemas of messages that kafka-python does not have.
OWN_SCHEMAS = ("barnabas.protocol.generator.schemas",)


@functools.cache
def message_class(name: str) -> Any:
    """The class with this name from one of kafka-python's modules. If they do not have it, the
    class that kafka-python generates from our schema.
    """
    for family in FAMILIES:
        module = importlib.import_module(f"kafka.protocol.{family}")
        if hasattr(module, name):
            return getattr(module, name)
    for folder in OWN_SCHEMAS:
        with contextlib.suppress(FileNotFoundError):
            return types.new_class(name, (ApiMessage,), {"load_json": folder})
    raise AttributeError(f"kafka-python has no message {name}")


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    return message_class(name)


def decoder(message_class: Any, version: int) -> Decoder:
    """A function (buffer, position) -> (message, end position), which decodes like kafka-python's
    own `decode`.
    """
    is_flexible = message_class.flexible_version_q(version)
    decode: Decoder = message_class._struct.compiled_decode_from(
        version, compact=is_flexible, tagged=is_flexible, data_class=message_class[None]
    )
    return decode
