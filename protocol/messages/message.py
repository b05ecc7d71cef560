"""The base class of all messages. `make protocol` generates the other modules of this package.

Messages are plain classes with slots, not dataclasses: the creation of a dataclass takes half a
millisecond on import, and for 250 classes that would be half of the broker's start.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self, cast

from barnabas.protocol.errors import Code
from barnabas.protocol.primitives import Buffer

NOTHING: Any = cast(Any, [])  # "not given", where None means null


class Message:
    """A request, a response, or a part of one. Messages are equal if all their fields are.

    A field that a version does not have keeps its default when that version is read. On writing,
    any other value than the default is refused, unless Kafka's schema declares the field ignorable.
    """

    __slots__: tuple[str, ...] = ()
    API_KEY: ClassVar[int]
    FIRST_VERSION: ClassVar[int]
    LAST_VERSION: ClassVar[int]
    # The first version with compact types and tagged headers (KIP-482).
    FLEXIBLE_FROM: ClassVar[int]
    # By a list of the request, the list of the answer that has a row for each of its rows.
    ROWS: ClassVar[dict[str, str]] = {}

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[Self, int]:
        """Read a message at a position. Gives: the message, and the position after it.

        Raises: MalformedMessageError, IndexError or struct.error where the bytes are not a message.
        """
        raise NotImplementedError

    def write(self, out: bytearray, version: int) -> None:
        """Append the bytes of the message.

        Raises: UnwritableMessageError where the version cannot express a value; struct.error where
                a number is too large for its field.
        """
        raise NotImplementedError

    def error_response(self, version: int, code: Code) -> Message:
        """The answer to a request that has one error for everything that it names.

        The error is where the answer has a place for it: for the whole, or in each row. Versions 0
        to 2 of DescribeLogDirs have none: the answer is empty.
        """
        raise NotImplementedError

    @classmethod
    def decode(cls, data: Buffer, version: int) -> Self:
        """The message at the start of the bytes."""
        return cls.read(data, 0, version)[0]

    def encode(self, version: int) -> bytes:
        """The bytes of the message."""
        out = bytearray()
        self.write(out, version)
        return bytes(out)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment] # its fields may change

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({fields})"
