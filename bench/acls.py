"""The cost of checking 100,000 ACLs, and of SASL and ACLs for each request."""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Callable

from barnabas import LocalBroker
from barnabas.broker.logs.metadata import ClusterMetadata
from barnabas.broker.security.acls import Operation, PatternType, Permission, ResourceType
from barnabas.broker.security.authorizer import Authorizer
from barnabas.broker.security.stored import Acl
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.records import NewRecord, encode_batch
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.disk import OsDisk
from bench.common import Row, threads_cpu_seconds
from bench.transactions import PlainProducer

ACLS, TOPICS = 100_000, 1000
USERS = {"bench": "bench-secret"}
TOPIC, WRITE = ResourceType.TOPIC, Operation.WRITE
CONTEXT = RequestContext(1, 9, "bench", "/127.0.0.1", connection_id=1, api_key=0)
WITH_ACLS = {
    "authorizer.class.name": "StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def run(scale: float = 1.0) -> list[Row]:
    """Measure checks of 1,000 topics against 100,000 ACLs, and single requests with and without
    SASL and an authorizer.
    """
    return [*_checks(int(ACLS * scale)), *_requests(int(600 * scale))]


def _checks(count: int) -> list[Row]:
    """Measure checks of rights in this process, without a broker: the first check of each topic,
    repeated ones, and a change of the ACLs.
    """
    with tempfile.TemporaryDirectory() as directory:
        authorizer = Authorizer(ClusterMetadata(OsDisk(), f"{directory}/journal"))
        began = time.perf_counter()
        authorizer.add({uuid.UUID(int=number): _acl(number) for number in range(count)})
        added_s = time.perf_counter() - began
        names = [f"topic-{number}" for number in range(TOPICS)]

        def ask() -> None:
            # the lookup that a request makes
            may = authorizer.access("User:u7", "/127.0.0.1", CONTEXT).may
            for name in names:
                may(WRITE, TOPIC, name)

        first_us = _each_us(ask)
        again_us = min(_each_us(ask) for _ in range(20))
        began = time.perf_counter()
        authorizer.add({uuid.uuid4(): _acl(count)})
        change_ms = (time.perf_counter() - began) * 1000
    return [
        _row(f"a check with {count:,} ACLs, remembered", f"{again_us:.2f} us"),
        _row(f"a check with {count:,} ACLs, the first of its kind", f"{first_us:.1f} us"),
        _row(f"{count:,} ACLs added at once", f"{added_s:.2f} s"),
        _row(f"one more ACL, with {count:,} there", f"{change_ms:.1f} ms"),
    ]


def _acl(number: int) -> Acl:
    """The ACL with this number, one of many ACLs for 5,000 users. A third of them have a prefix
    pattern, and a tenth deny.
    """
    pattern = PatternType.PREFIXED if number % 3 == 0 else PatternType.LITERAL
    permission = Permission.DENY if number % 10 == 0 else Permission.ALLOW
    name = f"topic-{number % TOPICS}"
    return Acl(TOPIC, name, pattern, f"User:u{number % 5000}", "*", WRITE, permission)


def _each_us(ask: Callable[[], None]) -> float:
    """The time of one check: `ask` makes one for each of the TOPICS topics."""
    began = time.perf_counter()
    ask()
    return (time.perf_counter() - began) / TOPICS * 1e6


def _requests(rounds: int) -> list[Row]:
    """Measure requests of each kind in short turns on two brokers, one with SASL and an authorizer
    and one without.

    Each broker gets one request at a time over one connection. Since the brokers take short turns,
    other load slows both equally.
    """
    batch = encode_batch([NewRecord(None, b"x" * 100, 1_700_000_000_000)])
    data = TopicProduceData("bench", partition_data=[PartitionProduceData(0, batch)])
    produce = encode_request(ProduceRequest(None, -1, 10_000, [data]), 9, 1, "bench")
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    topic = FetchTopic(topic="bench", partitions=[partition])
    fetch = encode_request(
        FetchRequest(replica_id=-1, min_bytes=1, max_bytes=1000, topics=[topic]), 11, 1, "bench"
    )
    works: dict[str, tuple[int, Callable[[PlainProducer], object]]] = {
        "Produce": (40, lambda client: client.exchange(produce)),
        "Fetch": (40, lambda client: client.exchange(fetch)),
        "transaction": (10, lambda client: client.transact()),
    }
    spent_s: dict[tuple[str, bool], float] = {}
    topics = {"bench": 1}
    with (
        LocalBroker(topics=topics) as open_broker,
        LocalBroker(topics=topics, users=USERS, settings=WITH_ACLS) as guarded,
    ):
        clients = {}
        for broker, user in ((open_broker, None), (guarded, next(iter(USERS.items())))):
            client = PlainProducer(broker.port, "bench", 1, is_version_2=False, user=user)
            clients[user is not None] = (broker, client)
        for number in range(rounds):
            for name, (times, work) in works.items():
                for is_guarded in (False, True) if number % 2 else (True, False):
                    broker, client = clients[is_guarded]
                    before = threads_cpu_seconds(broker.pid)
                    for _ in range(times):
                        work(client)
                    cpu_s = threads_cpu_seconds(broker.pid) - before
                    key = (name, is_guarded)
                    spent_s[key] = spent_s.get(key, 0.0) + cpu_s
        for _, client in clients.values():
            client.close()
    rows = []
    for name, (times, _) in works.items():
        without, guarded_us = (
            spent_s[name, is_guarded] / (rounds * times) * 1e6 for is_guarded in (False, True)
        )
        cost = f"{guarded_us:.1f} us, {without:.1f} without: {guarded_us / without - 1:+.1%}"
        rows.append(_row(f"a {name} with SASL and an authorizer", cost))
    return rows


def _row(work: str, cpu: str) -> Row:
    return Row(work, cpu, "-", "-", "-")
