"""A small blocking client for administrative requests to Barnabas: topics, open transactions.

It needs only the broker's own package, so tests and scripts can use it without a Kafka client. For
other brokers, use a Kafka client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import NamedTuple, TypeVar

from barnabas.client.connection import Connection, Connections
from barnabas.client.errors import ClientError, LoginError
from barnabas.client.options import ClientOptions
from barnabas.client.request_kind import RequestKind, Response
from barnabas.client.security_options import PLAIN, SecurityOptions
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from barnabas.protocol.messages.message import Message
from barnabas.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

T = TypeVar("T")

_OPEN_STATES = ["Ongoing", "PrepareCommit", "PrepareAbort"]
# The versions in which this client sends its requests.
_CREATE_TOPICS, _LIST_TRANSACTIONS, _DESCRIBE_TRANSACTIONS = 5, 1, 0
_METADATA, _DESCRIBE_CONFIGS, _LIST_OFFSETS = 9, 4, 6
_READ_COMMITTED = 1
_TOPIC = 2  # the resource type "topic" in DescribeConfigs


class AdminError(Exception):
    """An error that the broker returned; `code` is Kafka's error code."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class NewTopic(NamedTuple):
    """A topic to create. With -1 for partitions or replication_factor the broker's default
    applies.
    """

    name: str
    partitions: int = -1
    configs: Mapping[str, str] = {}
    replication_factor: int = -1


class OpenTransaction(NamedTuple):
    """A transaction that is not complete, as DescribeTransactions returns it (KIP-664).

    state is Ongoing, PrepareCommit or PrepareAbort. started_ms is wall clock time. partitions has
    (topic, partition) pairs.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    started_ms: int
    timeout_ms: int
    partitions: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        shown = ", ".join(f"{topic}-{partition}" for topic, partition in self.partitions)
        return (
            f"{self.transactional_id}: {self.state}, producer {self.producer_id} epoch "
            f"{self.producer_epoch}, timeout {self.timeout_ms} ms, partitions: {shown or 'none'}"
        )


class Admin:
    """A connection for administrative requests, as a context manager.

    Takes:  user and password, if the broker requires authentication (PLAIN); ca_file, the
            certificate of the authority that signed the broker's certificate, if it uses TLS.
    Raises: OSError if the broker cannot be reached or does not answer within `timeout_s`;
            AdminError if it rejects the user.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        timeout_s: float = 10.0,
        user: tuple[str, str] | None = None,
        ca_file: str | None = None,
    ) -> None:
        self._connections = Connections(
            ClientOptions(
                ((host, port),),
                client_id="barnabas",
                software_name="barnabas-admin",
                connect_timeout_ms=round(timeout_s * 1000),
                tls_timeout_ms=round(timeout_s * 1000),
                request_timeout_ms=round(timeout_s * 1000),
                logs_silence=False,
                security=_security(user, ca_file),
            )
        )
        try:
            self._connection: Connection = _asked(self._connections.any)
        except LoginError as error:
            assert user is not None
            raise AdminError(Code(error.code), f"user {user[0]!r}: {error.reason}") from error

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connections.close()

    def call(self, request: Message, version: int, response_class: type[Response]) -> Response:
        """Send one request and wait for its response. Raises: OSError."""
        kind = RequestKind(type(request), response_class, version, version)
        return _asked(lambda: self._connection.request(kind, request))

    def create_topics(self, topics: Iterable[NewTopic], *, keep_different: bool = False) -> None:
        """Create topics. A topic that already exists with the same settings is not an error.

        Takes:  keep_different, whether an existing topic may also differ from the wanted one.
        Raises: AdminError; TOPIC_ALREADY_EXISTS if a topic exists with another number of partitions
                or replicas, or other settings.
        """
        topics = list(topics)
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    configs=[
                        CreatableTopicConfig(name=name, value=str(value))
                        for name, value in topic.configs.items()
                    ],
                )
                for topic in topics
            ]
        )
        existing = set()
        for row in self.call(request, _CREATE_TOPICS, CreateTopicsResponse).topics:
            code = Code(row.error_code)
            if code is Code.TOPIC_ALREADY_EXISTS:
                existing.add(row.name)
            elif code is not Code.NONE:
                raise AdminError(code, f"topic {row.name!r}: {row.error_message or code.name}")
        if not keep_different:
            for topic in topics:
                if topic.name in existing:
                    self._check_is_identical(topic)

    def _check_is_identical(self, topic: NewTopic) -> None:
        """Check that an existing topic is identical. Raises: AdminError TOPIC_ALREADY_EXISTS if it
        differs.
        """
        (row,) = self.call(
            MetadataRequest(
                topics=[MetadataRequestTopic(name=topic.name)], allow_auto_topic_creation=False
            ),
            _METADATA,
            MetadataResponse,
        ).topics
        counts = (len(row.partitions), *{len(one.replica_nodes) for one in row.partitions})
        for what, found, wanted in zip(
            ("partitions", "replicas"), counts, (topic.partitions, topic.replication_factor),
            strict=False,
        ):  # fmt: skip
            if wanted not in (-1, found):
                raise AdminError(
                    Code.TOPIC_ALREADY_EXISTS,
                    f"topic {topic.name!r} exists already, with {found} {what} and not {wanted}",
                )
        if not topic.configs:
            return
        (described,) = self.call(
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=_TOPIC,
                        resource_name=topic.name,
                        configuration_keys=list(topic.configs),
                    )
                ]
            ),
            _DESCRIBE_CONFIGS,
            DescribeConfigsResponse,
        ).results
        values = {config.name: config.value for config in described.configs}
        for name, value in topic.configs.items():
            if name not in values:
                raise AdminError(Code.INVALID_CONFIG, f"topics have no setting {name!r}")
            if values[name] != value:
                raise AdminError(
                    Code.TOPIC_ALREADY_EXISTS,
                    f"topic {topic.name!r} exists already, with {name}={values[name]} and not "
                    f"{value}",
                )

    def partitions_without_leader(self, topic: str) -> list[int]:
        """The indexes of the partitions without a leader; an empty list for an unknown topic."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        (row,) = self.call(request, _METADATA, MetadataResponse).topics
        return sorted(one.partition_index for one in row.partitions if one.leader_id < 0)

    def committed_offsets(self, topics: Iterable[str], timestamp: int) -> dict[str, list[int]]:
        """The offset of each partition of the topics at a timestamp of ListOffsets, from one
        answer, for readers of committed records.

        Raises: AdminError with the first error of a topic or partition.
        """
        metadata = self.call(
            MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in topics],
                allow_auto_topic_creation=False,
            ),
            _METADATA,
            MetadataResponse,
        )
        for topic in metadata.topics:
            if topic.error_code:
                raise AdminError(Code(topic.error_code), f"topic {topic.name!r} is not known")
        rows = [
            ListOffsetsTopic(
                name=topic.name or "",
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                    for index in range(len(topic.partitions))
                ],
            )
            for topic in metadata.topics
        ]
        request = ListOffsetsRequest(-1, _READ_COMMITTED, rows)
        answer = self.call(request, _LIST_OFFSETS, ListOffsetsResponse)
        for row in answer.topics:
            for one in row.partitions:
                if one.error_code:
                    code = Code(one.error_code)
                    raise AdminError(code, f"{row.name}-{one.partition_index}: {code.name}")
        return {
            row.name: [
                one.offset for one in sorted(row.partitions, key=lambda one: one.partition_index)
            ]
            for row in answer.topics
        }

    def open_transactions(self) -> list[OpenTransaction]:
        """The transactions that are not complete, in the broker's order."""
        listed = self.call(
            ListTransactionsRequest(state_filters=_OPEN_STATES),
            _LIST_TRANSACTIONS,
            ListTransactionsResponse,
        )
        described = self.call(
            DescribeTransactionsRequest(
                transactional_ids=[row.transactional_id for row in listed.transaction_states]
            ),
            _DESCRIBE_TRANSACTIONS,
            DescribeTransactionsResponse,
        )
        return [
            OpenTransaction(
                row.transactional_id,
                row.transaction_state,
                row.producer_id,
                row.producer_epoch,
                row.transaction_start_time_ms,
                row.transaction_timeout_ms,
                tuple((topic.topic, index) for topic in row.topics for index in topic.partitions),
            )
            for row in described.transaction_states
            if row.error_code == Code.NONE and row.transaction_state in _OPEN_STATES
        ]


def _security(user: tuple[str, str] | None, ca_file: str | None) -> SecurityOptions:
    """The protection of the connection: a login by PLAIN, TLS, both or neither."""
    name, password = user or ("", "")
    protocol = ("SASL_" if user is not None else "") + ("PLAINTEXT" if ca_file is None else "SSL")
    return SecurityOptions(
        protocol,
        ca_file=ca_file,
        mechanism=None if user is None else PLAIN,
        username=name,
        password=password,
    )


def _asked(call: Callable[[], T]) -> T:
    """The result of a call that waits for the broker. Raises: OSError; LoginError."""
    try:
        return call()
    except LoginError:
        raise
    except ClientError as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        raise ConnectionError(str(error)) from error
