"""An addition to DescribeTransactions: the host of a transaction's producer.

No response in Apache Kafka's protocol contains this host. A request asks for it by the tagged field
CLIENT_HOST at its end. The response then contains the field for each transaction whose producer is
connected:

    request    tag CLIENT_HOST, with any bytes
    response   each such transaction: tag CLIENT_HOST, compact string, the host, as "127.0.0.1"

Unknown tagged fields are skipped (KIP-482). The request can therefore be sent to any broker, and
clients that do not ask for the host receive the same response as from Apache Kafka.
"""

from __future__ import annotations

import struct
from typing import ClassVar

from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from barnabas.protocol.primitives import (
    Buffer,
    read_string,
    read_strings,
    read_structs,
    read_tags,
    skip_tags,
    write_string,
    write_tags,
)

_INT32 = struct.Struct(">i")
CLIENT_HOST = 25185  # the tag, far above Kafka's own tags, whose numbers begin at 0


class DescribeTransactionsWithHostsRequest(DescribeTransactionsRequest):
    """A DescribeTransactions request.

    asks_for_hosts: whether the response should contain the producers' hosts.
    """

    __slots__ = ("asks_for_hosts",)
    API_KEY: ClassVar[int] = DescribeTransactionsRequest.API_KEY

    def __init__(
        self, transactional_ids: list[str] | None = None, *, asks_for_hosts: bool = False
    ) -> None:
        super().__init__(transactional_ids)
        self.asks_for_hosts = asks_for_hosts

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[DescribeTransactionsWithHostsRequest, int]:
        transactional_ids, at = read_strings(data, at, True)
        tags, at = read_tags(data, at)
        return cls(transactional_ids, asks_for_hosts=CLIENT_HOST in tags), at

    def write(self, out: bytearray, version: int) -> None:
        super().write(out, version)
        if self.asks_for_hosts:
            _end_in(out, bytearray())


class TransactionWithHost(TransactionState):
    """The description of a transaction, with the host of its producer."""

    __slots__ = ("client_host",)

    def __init__(self, transaction: TransactionState, client_host: str) -> None:
        for name in TransactionState.__slots__:
            setattr(self, name, getattr(transaction, name))
        self.client_host = client_host

    @classmethod
    def read(cls, data: Buffer, at: int, version: int) -> tuple[TransactionWithHost, int]:
        transaction, end = TransactionState.read(data, at, version)
        plain = bytearray()
        # the last byte that this writes is the count of tagged fields
        transaction.write(plain, version)
        tags, _ = read_tags(data, at + len(plain) - 1)
        host = read_string(tags[CLIENT_HOST], 0, True)[0] if CLIENT_HOST in tags else ""
        return cls(transaction, host), end

    def write(self, out: bytearray, version: int) -> None:
        super().write(out, version)
        host = bytearray()
        write_string(host, self.client_host, True)
        _end_in(out, host)


class DescribeTransactionsWithHostsResponse(DescribeTransactionsResponse):
    """The response as a client reads it. Its transactions are `TransactionWithHost` objects."""

    __slots__ = ()
    API_KEY: ClassVar[int] = DescribeTransactionsResponse.API_KEY

    @classmethod
    def read(
        cls, data: Buffer, at: int, version: int
    ) -> tuple[DescribeTransactionsWithHostsResponse, int]:
        (throttle_time_ms,) = _INT32.unpack_from(data, at)
        states, at = read_structs(data, at + 4, True, TransactionWithHost.read, version)
        return cls(throttle_time_ms, [*states]), skip_tags(data, at)


def _end_in(out: bytearray, data: bytearray) -> None:
    """Append the tagged field CLIENT_HOST to a struct.

    It replaces the empty count of tagged fields with which every struct ends.
    """
    assert out[-1] == 0  # the generated writers write no tagged fields
    out.pop()
    write_tags(out, {CLIENT_HOST: data})
