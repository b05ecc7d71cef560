"""The hosts of producers in DescribeTransactions. Clients that request the hosts get them, and
other clients can still read the response.
"""

from __future__ import annotations

from helpers.disk_broker import READER, DiskBroker, Producer

from barnabas.protocol.client_hosts import (
    CLIENT_HOST,
    DescribeTransactionsWithHostsRequest,
    DescribeTransactionsWithHostsResponse,
    TransactionWithHost,
)
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.message import Message
from barnabas.protocol.primitives import read_tags


def described_host(b: DiskBroker, request: Message) -> str | None:
    """The client host of the only transaction in the response, or None if the response has no
    host.
    """
    answer = b.call(request, 0)
    plain = bytearray()
    answer.write(plain, 0)
    frame = b.answer_frames[READER]
    body = frame[5:]  # without the correlation id and the header's empty tags
    tags, _ = read_tags(body, len(plain) - 2)  # the tagged fields of the transaction
    return tags[CLIENT_HOST][1:].decode() if CLIENT_HOST in tags else None


def test_the_host_of_an_open_transaction_is_told_to_who_asks() -> None:
    b = DiskBroker()
    b.topic("t")
    p = Producer(b, "txn")
    asking = DescribeTransactionsWithHostsRequest(["txn"], asks_for_hosts=True)
    assert described_host(b, asking) is None, "no transaction is open"
    assert p.add("t", 0) == Code.NONE
    assert described_host(b, asking) == "192.0.2.9"
    assert described_host(b, DescribeTransactionsRequest(["txn"])) is None, (
        "as Apache Kafka answers"
    )
    b.broker.on_closed(p.connection)
    assert described_host(b, asking) is None, "its producer is not connected any more"


def test_a_client_reads_the_hosts_of_an_answer() -> None:
    b = DiskBroker()
    b.topic("t")
    p = Producer(b, "txn")
    assert p.add("t", 0) == Code.NONE
    b.call(DescribeTransactionsWithHostsRequest(["txn", "none"], asks_for_hosts=True), 0)
    answer = DescribeTransactionsWithHostsResponse.decode(b.answer_frames[READER][5:], 0)
    described, unknown = answer.transaction_states
    assert isinstance(described, TransactionWithHost)
    assert isinstance(unknown, TransactionWithHost)
    assert (described.client_host, described.transaction_state) == ("192.0.2.9", "Ongoing")
    assert (unknown.client_host, unknown.error_code) == ("", Code.TRANSACTIONAL_ID_NOT_FOUND)
    b.call(DescribeTransactionsRequest(["txn"]), 0)
    answer = DescribeTransactionsWithHostsResponse.decode(b.answer_frames[READER][5:], 0)
    assert [row.client_host for row in answer.transaction_states] == [""]  # type: ignore[attr-defined]
