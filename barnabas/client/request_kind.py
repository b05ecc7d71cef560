"""The kinds of requests that a client sends."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from barnabas.protocol.messages.message import Message

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


class RequestKind(NamedTuple, Generic[Request, Response]):
    """One kind of request: its two messages, and the range of versions that are used here."""

    request_class: type[Request]
    response_class: type[Response]
    first_version: int
    last_version: int

    @property
    def name(self) -> str:
        """The request's name in Kafka, such as Metadata."""
        return self.request_class.__name__.removesuffix("Request")
