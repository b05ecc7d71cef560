"""Shows what a broker does with requests of a transactional producer that arrive late.

The producer is a stock confluent-kafka. A small TCP proxy delays one of its requests: the producer
loses its connection, connects again, sends the request again or gives it up, and continues with its
next transaction. Then the proxy delivers the delayed request over the old connection. A network
does the same when a connection breaks while data are in a buffer on the way.

    python examples/late_requests/late_requests.py                        # starts a Barnabas
    BOOTSTRAP=127.0.0.1:9092 python examples/late_requests/late_requests.py   # any broker

It needs a broker without TLS and logins, and a right to create a topic. It ends with exit code 1 if
a record was lost or mixed into another transaction, and with 2 if no broker answers.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_proxy import (
    CUT,
    END_TXN,
    KEEP,
    PASS,
    PRODUCE,
    Action,
    ClusterProxy,
    Frame,
    LateRequest,
    once,
)

from barnabas import LocalBroker
from barnabas.protocol.errors import Code
from barnabas.protocol.framing import decode_response
from barnabas.protocol.messages.end_txn import EndTxnResponse
from barnabas.protocol.messages.produce import ProduceResponse

TIMEOUT_S = 60.0
ANSWER_S = 10.0
ATTEMPTS = 5
CLIENT: dict[str, Any] = {
    "log_level": 2,  # hides lines about lost connections, since the proxy closes them
    "reconnect.backoff.max.ms": 200,
}


class Ledger:
    """What the producer was told about its transactions."""

    def __init__(self) -> None:
        self.committed: list[list[str]] = []  # the values of each transaction
        self.aborted: list[list[str]] = []


class Outcome(NamedTuple):
    """What came of one case."""

    case: str
    late: str  # the broker's answer to the late request
    committed: list[str]  # values of transactions whose commit succeeded, in order
    read: list[str]  # values that a reader of committed records gets
    faults: list[str]


class Case(NamedTuple):
    """A kind of late request, and the function that produces it."""

    name: str
    run: Callable[[ClusterProxy, str, Ledger], LateRequest]


# --- the cases


def late_commit(proxy: ClusterProxy, topic: str, ledger: Ledger) -> LateRequest:
    """A commit is delayed and repeated. It arrives in the next transaction, which is aborted."""
    proxy.on_request(END_TXN, once(KEEP))
    producer = new_producer(proxy)
    transact(producer, topic, [("coffee", 0)], ledger)
    producer.begin_transaction()
    send(producer, topic, "tea", 0)
    late = proxy.late[0]
    late.deliver()
    send(producer, topic, "cake", 1)
    producer.abort_transaction(TIMEOUT_S)
    ledger.aborted.append(["tea", "cake"])
    return late


def late_abort(proxy: ClusterProxy, topic: str, ledger: Ledger) -> LateRequest:
    """An abort is delayed and repeated. It arrives in the next transaction, which commits."""
    proxy.on_request(END_TXN, once(KEEP))
    producer = new_producer(proxy)
    producer.begin_transaction()
    send(producer, topic, "coffee", 0)
    producer.abort_transaction(TIMEOUT_S)
    ledger.aborted.append(["coffee"])
    late = proxy.late[0]
    transact(producer, topic, [("tea", 0), ("cake", 1)], ledger, between=late.deliver)
    return late


def late_write(proxy: ClusterProxy, topic: str, ledger: Ledger) -> LateRequest:
    """A write is delayed and given up with its transaction. It arrives in the next transaction, and
    before the first write of that.
    """
    has_given_up, is_kept = threading.Event(), threading.Event()

    def on_produce(_: Frame) -> Action:
        if not is_kept.is_set():
            is_kept.set()
            return KEEP
        if not has_given_up.is_set():
            return CUT  # the network is broken until the producer gives up
        proxy.late[0].deliver()
        return PASS

    proxy.on_request(PRODUCE, on_produce)
    producer = new_producer(proxy)
    producer.begin_transaction()
    producer.produce(topic, "coffee", partition=0)
    wait_for(producer, is_kept)
    producer.abort_transaction(TIMEOUT_S)
    ledger.aborted.append(["coffee"])
    has_given_up.set()
    transact(producer, topic, [("tea", 0)], ledger)
    return proxy.late[0]


CASES = (
    Case("late commit", late_commit),
    Case("late abort", late_abort),
    Case("late write", late_write),
)


# --- the producer, as an application has it


def new_producer(proxy: ClusterProxy) -> Producer:
    """Make a producer that uses the proxy, and begin its session."""
    producer = Producer(
        {
            "bootstrap.servers": proxy.bootstrap_servers,
            "transactional.id": f"late-{uuid.uuid4().hex[:8]}",
            **CLIENT,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def transact(
    producer: Producer,
    topic: str,
    records: Sequence[tuple[str, int]],
    ledger: Ledger,
    between: Callable[[], object] | None = None,
) -> None:
    """Write values to partitions in one transaction. If the client says that the transaction has to
    be aborted, abort it and write it again, as the documentation of the client recommends.

    Takes:  between, what happens after the first record.
    Raises: KafkaException with an error that ends the producer.
    """
    values = [value for value, _ in records]
    for _ in range(ATTEMPTS):
        producer.begin_transaction()
        try:
            for number, (value, partition) in enumerate(records):
                if number == 1 and between is not None:
                    between()
                send(producer, topic, value, partition)
            producer.commit_transaction(TIMEOUT_S)
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(TIMEOUT_S)
        else:
            ledger.committed.append(values)
            return
    raise TimeoutError(f"{values} were aborted {ATTEMPTS} times")


def send(producer: Producer, topic: str, value: str, partition: int) -> None:
    """Write a record, and wait until it is acknowledged. Raises: KafkaException."""
    errors: list[KafkaError | None] = []
    producer.produce(
        topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error)
    )
    producer.flush(TIMEOUT_S)
    if not errors:
        raise TimeoutError(f"{value} was not acknowledged in {TIMEOUT_S:.0f} s")
    if errors[0] is not None:
        producer.commit_transaction(TIMEOUT_S)  # raises what the error means for the transaction


def wait_for(producer: Producer, event: threading.Event) -> None:
    """Serve the producer until the proxy has the request."""
    deadline = time.monotonic() + TIMEOUT_S
    while not event.is_set():
        if time.monotonic() > deadline:
            raise TimeoutError("the proxy has not seen the request")
        producer.poll(0.01)


# --- what readers get


def read_committed(servers: str, topic: str) -> list[str]:
    """Return the values of all committed records, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"reader-of-{topic}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **CLIENT,
        }
    )
    found: list[tuple[int, int, str]] = []
    try:
        unfinished = {0, 1}
        consumer.assign([TopicPartition(topic, partition, 0) for partition in unfinished])
        deadline = time.monotonic() + TIMEOUT_S
        while unfinished:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the end of {topic} was not reached")
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                value = (message.value() or b"").decode()
                found.append((message.partition() or 0, message.offset() or 0, value))
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(message.partition() or 0)
            elif error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise KafkaException(error)
    finally:
        consumer.close()
    return [value for _, _, value in sorted(found)]


def faults_of(ledger: Ledger, read: Sequence[str]) -> list[str]:
    """Compare what was read with what the producer was told."""
    faults = []
    for values in ledger.committed:
        lost = [value for value in values if value not in read]
        if lost:
            whole = "" if len(lost) == len(values) else f" of {' and '.join(values)}"
            faults.append(f"LOST: {' and '.join(lost)}{whole}, though the commit succeeded")
    for values in ledger.aborted:
        revealed = [value for value in values if value in read]
        if revealed:
            whole = "" if len(revealed) == len(values) else f" of {' and '.join(values)}"
            faults.append(f"MIXED IN: {' and '.join(revealed)}{whole}, though it was aborted")
    faults += [f"TWICE: {value}" for value in sorted(set(read)) if read.count(value) > 1]
    return faults


def answer_to(late: LateRequest) -> str:
    """The broker's answer to the late request, in words."""
    response = late.deliver()
    if response is None:
        return "none, connection closed"
    version = late.frame.api_version
    if late.frame.api_key == END_TXN:
        code = decode_response(EndTxnResponse, response, version)[1].error_code
    else:
        topics = decode_response(ProduceResponse, response, version)[1].responses
        code = topics[0].partition_responses[0].error_code
    return Code(code).name


# --- the whole


def run(servers: str) -> Iterator[Outcome]:
    """Run each case on a topic of its own, which is deleted afterwards."""
    admin = AdminClient({"bootstrap.servers": servers, **CLIENT})
    for case in CASES:
        topic = f"late-requests-{uuid.uuid4().hex[:8]}"
        admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(TIMEOUT_S)
        ledger = Ledger()
        faults = []
        try:
            with ClusterProxy(servers.partition(",")[0]) as proxy:
                late = answer_to(case.run(proxy, topic, ledger))
        except KafkaException as failure:
            late, faults = "?", [f"the producer ended: {failure.args[0].str()}"]
        read = read_committed(servers, topic)
        faults += faults_of(ledger, read)
        committed = [value for values in ledger.committed for value in values]
        yield Outcome(case.name, late, committed, read, faults)
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all cases, and print a table. Gives: the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--bootstrap-servers",
        default=os.environ.get("BOOTSTRAP"),
        help="a broker to try (BOOTSTRAP; without it, a Barnabas is started)",
    )
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        servers = options.bootstrap_servers
        if not servers:
            servers = stack.enter_context(LocalBroker()).bootstrap_servers
        try:
            AdminClient({"bootstrap.servers": servers, **CLIENT}).list_topics(timeout=ANSWER_S)
        except KafkaException as error:
            parser.error(f"no broker answers at {servers}: {error.args[0].str()}")
        rows = [("late request", "answer to it", "committed", "read", "verdict")]
        count = 0
        for outcome in run(servers):
            committed, read = ", ".join(outcome.committed), ", ".join(outcome.read)
            verdict = "; ".join(outcome.faults) or "right"
            rows.append((outcome.case, outcome.late, committed, read, verdict))
            count += len(outcome.faults)
    widths = [max(len(row[at]) for row in rows) for at in range(5)]
    for row in rows:
        print(
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        )
    print(f"\n{count} faults" if count else "\nNothing is lost, and nothing is mixed.")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
