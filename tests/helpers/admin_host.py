"""A real Broker on its own directory, and one connection to it. Requests and responses pass in
their encoded form.
"""

from __future__ import annotations

import itertools
import struct
import uuid
from pathlib import Path
from typing import Any

from barnabas.broker.core import Broker
from barnabas.broker.parts import Parts
from barnabas.broker.settings.config import BrokerConfig
from barnabas.daemon.opening import open_broker
from barnabas.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.storage.disk import Disk
from helpers.our_messages import read_answer, request_frame

NOW_MS = 1_700_000_000_000
NODE_ID = 7
HOST, PORT = "192.0.2.1", 19092
ASKS_FOR_CREATION = 4  # the first version of Metadata that can request topic creation


class CountedIds:
    """An id source that returns 1, 2, 3 and so on."""

    def __init__(self) -> None:
        self._next = itertools.count(1)

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(int=next(self._next), version=4)

    def random31(self) -> int:
        return next(self._next)


class AdminHost:
    """A broker, which `restart` reopens on the same directory, and a connection to it."""

    def __init__(self, directory: Path, *, disk: Disk | None = None, **settings: str) -> None:
        self._disk = disk
        self._properties = {"node.id": str(NODE_ID), "log.dirs": str(directory / "data")}
        self._properties |= {name.replace("_", "."): value for name, value in settings.items()}
        self._ids = CountedIds()
        self.broker = self._open()

    @property
    def parts(self) -> Parts:
        """The broker's objects, which a test may inspect."""
        return self.broker.routes.parts

    def _open(self) -> Broker:
        """Open the broker, with connection 1."""
        broker = open_broker(
            BrokerConfig.from_properties(self._properties),
            self._ids,
            disk=self._disk,
            now_ms=NOW_MS,
        )
        broker.on_connected(1, "192.0.2.9", HOST, PORT)
        return broker

    def restart(self) -> None:
        self.close()
        self.broker = self._open()

    def close(self) -> None:
        self.broker.close_logs(NOW_MS)

    def call(self, request: Message, version: int) -> Any:
        """The decoded response."""
        frame = bytearray(request_frame(request, version, 4711))
        self.broker.on_frame(1, memoryview(frame), NOW_MS)
        assert self.broker.outbox.closes == []
        ((connection_id, pieces),) = self.broker.outbox.sends
        self.broker.outbox.sends.clear()
        answer = b"".join(bytes(piece) for piece in pieces)
        size, correlation_id = struct.unpack_from(">ii", answer)
        assert (connection_id, size, correlation_id) == (1, len(answer) - 4, 4711)
        return read_answer(memoryview(answer)[4:], type(request), version)

    # --- the requests that most tests need -------------------------------------------------------

    def create(self, *topics: Any, validate_only: bool = False, version: int = 7) -> list[Any]:
        """Create the topics, and return the topics of the response."""
        request = CreateTopicsRequest(
            topics=list(topics), timeout_ms=1000, validate_only=validate_only
        )
        rows: list[Any] = self.call(request, version).topics
        return rows

    def metadata(self, *names: str, version: int = 12, auto: bool = False) -> list[Any]:
        """The topics in the response to a Metadata request. With `auto`, missing topics may be
        created.
        """
        wanted = [MetadataRequestTopic(name=name, topic_id=uuid.UUID(int=0)) for name in names]
        may_create = auto or version < ASKS_FOR_CREATION
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=may_create)
        rows: list[Any] = self.call(request, version).topics
        return rows


def creatable(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    configs: dict[str, str | None] | None = None,
    assignments: dict[int, list[int]] | None = None,
) -> Any:
    """A topic as an entry of a CreateTopics request."""
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in (assignments or {}).items()
        ],
        configs=[
            CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ],
    )
