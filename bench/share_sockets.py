"""The cost of a share group in a broker with real sockets, compared with another broker.

    python -m bench.share_sockets [--records N] [--rounds N] [--set SETTING=VALUE]
                                  [--beside HOST:PORT --pid PID]

Members send bare requests: they acquire records of 100 bytes and acknowledge them with their next
ShareFetch, as Kafka's clients do. The topic has four partitions, and the group has one member, or
eight, each with one request in flight. A figure is the CPU time of the broker's process from the
first fetch to the last acknowledgement, the median of the rounds. The daemon and the other broker
work by turns, each round with a new topic and group. The first round is a warm-up and is not
counted.

The other broker listens on this machine without TLS and passwords, and its process is measured in
the same way. Apache Kafka's figures in docs/SHARE_GROUPS.md are from such a measurement.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from barnabas import LocalBroker
from barnabas.protocol.framing import encode_request
from barnabas.protocol.messages import create_topics as create
from barnabas.protocol.messages import find_coordinator as find
from barnabas.protocol.messages import incremental_alter_configs as alter
from barnabas.protocol.messages import produce
from barnabas.protocol.messages import share_fetch as fetch
from barnabas.protocol.messages import share_group_heartbeat as heartbeat
from barnabas.protocol.messages.message import Message
from barnabas.protocol.records import NewRecord, encode_batch
from bench.common import cpu_seconds
from bench.sockets import Client

PARTITIONS, RECORD_BYTES, RECORDS_IN_BATCH = 4, 100, 500
MEMBERS = (1, 8)
GROUP_RESOURCE, SET, ACCEPT = 32, 0, 1
MAX_WAIT_MS, PATIENCE_S, HEARTBEAT_S = 500, 60, 3
END_OFFSET_OF_HEADER = 5  # the size of the header of a flexible response: correlation id and tags

Answer_co = TypeVar("Answer_co", bound=Message, covariant=True)


class Response(Protocol[Answer_co]):
    """A message class that can read a response."""

    def read(self, data: bytes, at: int, version: int) -> tuple[Answer_co, int]: ...


class Target(NamedTuple):
    """A broker and its process."""

    name: str
    port: int
    pid: int


class Cost(NamedTuple):
    """The cost of one round."""

    cpu_s: float
    wall_s: float
    requests: int


class Wire(Client):
    """A connection that decodes responses of flexible versions."""

    def ask(self, request: Message, version: int, response: Response[Answer_co]) -> Answer_co:
        return response.read(self.call(request, version), END_OFFSET_OF_HEADER, version)[0]


def until(attempt: Callable[[], bool]) -> None:
    """Repeat an attempt until it succeeds, since a new topic or coordinator takes a while."""
    end_s = time.monotonic() + PATIENCE_S
    while not attempt():
        assert time.monotonic() < end_s, f"no success within {PATIENCE_S} s"
        time.sleep(0.1)


class Member:
    """A member of a share group, with one connection. left: the acknowledgements that it sends with
    its next fetch.
    """

    def __init__(self, port: int, group: str, topic: str) -> None:
        self.group, self.topic = group, topic
        self.name = str(uuid.uuid4())
        self.wire, self.coordinator = Wire(port), Wire(port)
        self.epoch = self.session = 0
        self.assigned: list[int] = []
        self.topic_id = uuid.UUID(int=0)
        self.left: dict[int, list[fetch.AcknowledgementBatch]] = {}
        self.beat_at_s = 0.0

    def beat(self) -> bool:
        """Send a heartbeat. Gives: whether the member has partitions."""
        topics = [self.topic] if self.epoch == 0 else None
        request = heartbeat.ShareGroupHeartbeatRequest(
            self.group, self.name, self.epoch, None, topics
        )
        answer = self.coordinator.ask(request, 1, heartbeat.ShareGroupHeartbeatResponse)
        if answer.error_code:
            return False
        self.epoch, self.beat_at_s = answer.member_epoch, time.monotonic()
        if answer.assignment is not None and answer.assignment.topic_partitions:
            (row,) = answer.assignment.topic_partitions
            assert row.topic_id is not None
            self.topic_id, self.assigned = row.topic_id, row.partitions
        return bool(self.assigned)

    def send_fetch(self) -> None:
        """Send a ShareFetch, which also acknowledges the records of the previous one. The first
        ShareFetch begins a session.
        """
        indexes = self.assigned if self.session == 0 else list(self.left)
        rows = [fetch.FetchPartition(index, self.left.get(index, [])) for index in indexes]
        topics = [fetch.FetchTopic(self.topic_id, rows)] if rows else []
        request = fetch.ShareFetchRequest(
            self.group, self.name, self.session, MAX_WAIT_MS, 1, 50 << 20,
            RECORDS_IN_BATCH, RECORDS_IN_BATCH, 0, False, topics, [],
        )  # fmt: skip
        self.wire.send(encode_request(request, 2, 1, "bench"))
        self.session += 1

    def read_fetch(self) -> int:
        """Read the response to the ShareFetch. Gives: the number of records that the ShareFetch
        acknowledged.
        """
        data = self.wire.answer()
        answer, _ = fetch.ShareFetchResponse.read(data, END_OFFSET_OF_HEADER, 2)
        assert answer.error_code == 0, answer.error_message
        rows = [row for topic in answer.responses for row in topic.partitions]
        assert not any(row.error_code or row.acknowledge_error_code for row in rows), rows
        done = sum(
            one.last_offset - one.first_offset + 1
            for batches in self.left.values()
            for one in batches
        )
        self.left = {
            row.partition_index: [
                fetch.AcknowledgementBatch(one.first_offset, one.last_offset, [ACCEPT])
                for one in row.acquired_records
            ]
            for row in rows
            if row.acquired_records
        }
        return done

    def close(self) -> None:
        self.wire.close()
        self.coordinator.close()


class Preparation:
    """The preparation of a run: it creates a topic with records, and a group that starts at the
    first record.
    """

    def __init__(self, port: int, topic: str, group: str) -> None:
        self.wire, self.topic, self.group = Wire(port), topic, group

    def has_coordinator(self) -> bool:
        """Whether the group's coordinator is available. The request also makes the broker create
        it.
        """
        request = find.FindCoordinatorRequest("", 0, [self.group])
        answer = self.wire.ask(request, 4, find.FindCoordinatorResponse)
        return not answer.coordinators[0].error_code

    def create_topic(self) -> None:
        """Create the topic with PARTITIONS partitions."""
        request = create.CreateTopicsRequest([create.CreatableTopic(self.topic, PARTITIONS, 1)])
        (row,) = self.wire.ask(request, 7, create.CreateTopicsResponse).topics
        assert not row.error_code, row.error_message

    def configure_group(self) -> None:
        """Let the group read from the start of the topic, which is filled before its
        members join.
        """
        setting = alter.AlterableConfig("share.auto.offset.reset", SET, "earliest")
        resource = alter.AlterConfigsResource(GROUP_RESOURCE, self.group, [setting])
        request = alter.IncrementalAlterConfigsRequest([resource])
        (row,) = self.wire.ask(request, 1, alter.IncrementalAlterConfigsResponse).responses
        assert not row.error_code, row.error_message

    def produce(self, index: int, batch: bytes) -> bool:
        """Write one batch. Gives: whether the broker accepted it."""
        rows = [produce.PartitionProduceData(index, batch)]
        data = produce.TopicProduceData(self.topic, partition_data=rows)
        request = produce.ProduceRequest(None, 1, 10_000, [data])
        answer = self.wire.ask(request, 9, produce.ProduceResponse)
        return not answer.responses[0].partition_responses[0].error_code

    def run(self, records: int) -> None:
        """Create the topic, configure the group and write the records."""
        until(self.has_coordinator)
        self.create_topic()
        self.configure_group()
        record = NewRecord(None, bytes(RECORD_BYTES), int(1000 * time.time()))
        batch = bytes(encode_batch([record] * RECORDS_IN_BATCH))
        for number in range(math.ceil(records / RECORDS_IN_BATCH)):
            until(partial(self.produce, number % PARTITIONS, batch))
        self.wire.close()


def all_assigned(members: list[Member]) -> bool:
    """Send a heartbeat of each member. Gives: whether each member has partitions."""
    return False not in [member.beat() for member in members]


def consume(target: Target, members: int, records: int) -> Cost:
    """Let members of a new group acquire and acknowledge all records of a new topic."""
    topic = group = f"share-{uuid.uuid4()}"
    Preparation(target.port, topic, group).run(records)
    there = [Member(target.port, group, topic) for _ in range(members)]
    until(partial(all_assigned, there))
    epochs: list[int] = []
    # wait until no member gets a new assignment
    while epochs != (epochs := [member.epoch for member in there]):
        time.sleep(1.5)  # longer than share.assignment.interval.ms
        until(partial(all_assigned, there))
    cpu, wall, done, requests = cpu_seconds(target.pid), time.perf_counter(), 0, members
    for member in there:
        member.send_fetch()
    while done < records:
        for member in there:
            done += member.read_fetch()
            member.send_fetch()
            requests += 1
            if time.monotonic() > member.beat_at_s + HEARTBEAT_S:
                member.beat()
    cost = Cost(cpu_seconds(target.pid) - cpu, time.perf_counter() - wall, requests)
    assert done == records, (done, records)
    for member in there:
        member.close()
    return cost


def measured(targets: list[Target], records: int, rounds: int) -> Iterator[str]:
    """The rows of the table, with each target's figures for one member and for eight."""
    for members in MEMBERS:
        costs: dict[str, list[Cost]] = {target.name: [] for target in targets}
        # the first round warms up, and has a column of its own
        for _ in range(rounds + 1):
            for target in targets:
                costs[target.name].append(consume(target, members, records))
        for name, (first, *others) in costs.items():
            cpus = sorted(cost.cpu_s for cost in others)
            yield (
                f"| {members} | {name} | {statistics.median(cpus):.2f} s "
                f"({cpus[0]:.2f}-{cpus[-1]:.2f}) | {first.cpu_s:.2f} s "
                f"| {statistics.median(cost.wall_s for cost in others):.1f} s "
                f"| {statistics.median(cost.requests for cost in others):,.0f} |"
            )


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(prog="python -m bench.share_sockets", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], help="a setting of the daemon")
    parser.add_argument("--beside", metavar="HOST:PORT", help="another broker")
    parser.add_argument("--pid", type=int, help="the other broker's process")
    options = parser.parse_args()
    if (options.beside is None) != (options.pid is None):
        parser.error("--beside needs --pid, and --pid --beside")
    settings = dict(one.split("=", 1) for one in options.set)
    # The directory is on a disk, since a flush to memory would cost nothing.
    with LocalBroker(in_memory=False, settings=settings) as broker:
        targets = [Target("Barnabas", broker.port, broker.pid)]
        if options.beside is not None:
            targets.append(
                Target(options.beside, int(options.beside.rpartition(":")[2]), options.pid)
            )
        print(f"{options.records:,} records of {RECORD_BYTES} bytes, {options.rounds} rounds\n")
        print("| members | broker | CPU, median (least-most) | first round | wall | requests |")
        print("| ---: | --- | ---: | ---: | ---: | ---: |")
        for line in measured(targets, options.records, options.rounds):
            print(line, flush=True)


if __name__ == "__main__":
    main()
