"""A coordinator that loads records of Apache Kafka 3.9 continues where Kafka stopped."""

from __future__ import annotations

import re

from helpers.places import TESTS
from helpers.txn_host import TxnHost

from barnabas.coordinator.transactions.transaction_state import AT_REST
from barnabas.protocol.errors import Code
from barnabas.protocol.records import batches_in, records_of

FIXTURES = TESTS / "fixtures" / "transaction_state"
DUMPED = re.compile(
    r"\| offset: .*transactionalId=(\S+) payload: producerId:(\d+),producerEpoch:(\d+),state=(\w+),"
)


def host_after_kafka() -> TxnHost:
    """A host that has loaded Kafka's records. Its clock shows the time of the last record."""
    host = TxnHost(partition_count=2, topics={"txn": 2}, now_ms=0)
    host.reserved_ids = 1_000
    host._ids = host._new_allocator()
    for partition in (0, 1):
        log = (FIXTURES / f"kafka-3.9-partition-{partition}.log").read_bytes()
        for at, header in batches_in(log):
            for record in records_of(log[at : at + header.size_bytes]):
                assert record.key is not None
                host.now_ms = max(host.now_ms, record.timestamp)
                host._append(partition, record.key, record.value)
    host.flush()
    return host


def last_lines_of_kafkas_dump() -> dict[str, tuple[int, int, str]]:
    last = {}
    for partition in (0, 1):
        for line in (FIXTURES / f"kafka-3.9-partition-{partition}.txt").read_text().splitlines():
            if found := DUMPED.match(line):
                last[found[1]] = int(found[2]), int(found[3]), found[4]
    return last


def test_states_are_those_of_kafkas_last_records() -> None:
    host = host_after_kafka()
    assert {
        name: (found.producer_id, found.producer_epoch, found.state.value)
        for name, found in host.coordinator.snapshot().items()
    } == last_lines_of_kafkas_dump()
    host.resume()
    assert host.markers == [], "Kafka had stopped cleanly, with nothing half done"


def test_producers_at_rest_go_on_and_new_sessions_fence_them() -> None:
    host = host_after_kafka()
    for name, found in host.coordinator.snapshot().items():
        if found.state not in AT_REST:
            continue
        pid, epoch = found.producer
        assert host.add(name, pid, epoch, {"txn": [0]}) == {("txn", 0): 0}
        assert host.end(name, pid, epoch, True) == 0
        answer = host.init(name)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (
            Code.NONE,
            pid,
            epoch + 1,
        )
        assert host.end(name, pid, epoch, True) == Code.PRODUCER_FENCED


def test_the_transaction_that_kafka_left_open_is_aborted_at_its_timeout() -> None:
    host = host_after_kafka()
    open_ones = {
        name: found
        for name, found in host.coordinator.snapshot().items()
        if found.state.value == "Ongoing"
    }
    assert len(open_ones) == 1
    ((name, found),) = open_ones.items()
    assert host.coordinator.next_deadline_ms() == found.start_ms + 600_000
    host.now_ms = found.start_ms + 600_000
    host.tick()
    assert host.state(name) == "CompleteAbort"
    assert [(e.producer_id, e.producer_epoch, e.commit, e.partitions) for e in host.written] == [
        (found.producer_id, found.producer_epoch + 1, False, tuple(found.partitions))
    ]
