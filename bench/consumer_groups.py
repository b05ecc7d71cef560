"""The broker's cost of a large group of the consumer protocol (KIP-848).

1,000 members join a topic of 1,000 partitions, one after the other. Then each member sends
heartbeats without changes, first singly, then many at a time. Then one more member joins. Each
figure is the broker's CPU for one request, which includes reading its frame and writing its
response. For single requests it also includes the wake-up. Apache Kafka was not measured here.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from typing import Any

from barnabas import LocalBroker
from barnabas.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from bench.common import Row, cpu_seconds, create_topic

MEMBERS = 1000
AT_ONCE = 50
API, VERSION = 68, 1
GROUP, TOPIC = "large", "partitions-of-the-large-group"
# With these settings each join causes an assignment, and no session ends during the joins.
SETTINGS = {
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.session.timeout.ms": "600000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}


class Connection:
    """A connection on which all members send their requests."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")

    def heartbeat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        self._socket.sendall(_frame(member_id, epoch, **fields))
        return self._answer()

    def heartbeats(self, epochs: Mapping[str, int]) -> None:
        """Send one heartbeat for each member, all before the first response is read."""
        self._socket.sendall(b"".join(_frame(*member) for member in epochs.items()))
        for _ in epochs:
            self._answer()

    def _answer(self) -> Any:
        """The next heartbeat's answer, which has to be without error."""
        (size,) = struct.unpack(">i", self._stream.read(4))
        answer = ConsumerGroupHeartbeatResponse.decode(self._stream.read(size)[5:], VERSION)
        assert answer.error_code == 0, answer
        return answer

    def join(self, member_id: str) -> Any:
        """Send the first heartbeat of a member."""
        return self.heartbeat(
            member_id,
            0,
            rebalance_timeout_ms=300_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )


def _frame(member_id: str, epoch: int, **fields: Any) -> bytes:
    """A heartbeat as bytes, with the size before it."""
    request = ConsumerGroupHeartbeatRequest(GROUP, member_id, epoch, **fields)
    body = struct.pack(">hhih", API, VERSION, 1, 1) + b"c\0" + request.encode(VERSION)
    return struct.pack(">i", len(body)) + body


def run(scale: float = 1.0) -> list[Row]:
    """Measure the group. A smaller scale sends fewer heartbeats; the group has the same size."""
    with LocalBroker(settings=SETTINGS) as broker:
        create_topic(broker, TOPIC, MEMBERS)
        connection = Connection(broker.port)
        names = [f"member-{number}" for number in range(MEMBERS)]
        before = cpu_seconds(broker.pid)
        for name in names:
            connection.join(name)
        joins_s = cpu_seconds(broker.pid) - before
        epochs = _settle(connection, names)
        rounds = max(1, round(10 * scale))
        before = cpu_seconds(broker.pid)
        for _ in range(rounds):
            for name in names:
                connection.heartbeat(name, epochs[name])
        heartbeats_s = cpu_seconds(broker.pid) - before
        before = cpu_seconds(broker.pid)
        for _ in range(rounds):
            for start in range(0, MEMBERS, AT_ONCE):
                connection.heartbeats({name: epochs[name] for name in names[start:][:AT_ONCE]})
        crowd_s = cpu_seconds(broker.pid) - before
        further = max(1, round(20 * scale))
        before = cpu_seconds(broker.pid)
        for number in range(further):
            connection.join(f"further-{number}")
        further_s = cpu_seconds(broker.pid) - before
    figures = (
        ("members of a group of 1,000 join, one after the other", joins_s / MEMBERS),
        ("heartbeat in a group of 1,000, one by one", heartbeats_s / (rounds * MEMBERS)),
        (f"heartbeat in a group of 1,000, {AT_ONCE} at a time", crowd_s / (rounds * MEMBERS)),
        ("one more joins 1,000 members on 1,000 partitions", further_s / further),
    )
    return [Row(work, _shown(seconds), "-", "-", "-") for work, seconds in figures]


def _settle(connection: Connection, names: list[str]) -> dict[str, int]:
    """Send heartbeats of all members until no assignment changes. Gives: the epoch of each
    member.
    """
    epochs = dict.fromkeys(names, 0)
    first = True
    while True:
        has_changed = False
        for name in names:
            answer = connection.join(name) if first else connection.heartbeat(name, epochs[name])
            if answer.assignment is not None and not first:
                owned: list[Any] = answer.assignment.topic_partitions
                answer = connection.heartbeat(name, answer.member_epoch, topic_partitions=owned)
            has_changed |= answer.member_epoch != epochs[name]
            epochs[name] = answer.member_epoch
        if not first and not has_changed:
            return epochs
        first = False


def _shown(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms" if seconds > 0.001 else f"{1e6 * seconds:.0f} µs"
