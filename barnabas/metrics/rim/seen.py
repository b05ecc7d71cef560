"""The values of a scrape: collected in the loop's thread, read in the scrape's thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from barnabas.broker.observe import (
    ROWS_AT_ONCE,
    CommittedOffsetState,
    GroupState,
    Look,
    PartitionState,
    TransactionalIdState,
)
from barnabas.broker.seams.host import Host
from barnabas.broker.seams.snapshots import Snapshots
from barnabas.broker.seams.state import BrokerState
from barnabas.metrics.labels import label_text
from barnabas.metrics.rim.measured import Measuring, Traffic, traffic_of
from barnabas.replication.state import ReplicationState

MOST_ROWS = 100_000


class Source(NamedTuple):
    """The parts of the broker that a scrape reads. replication: a function that returns the
    standby's progress; None if no standby can follow.
    """

    server: Host
    snapshots: Snapshots
    measuring: Measuring
    replication: Callable[[], ReplicationState] | None

    @property
    def state(self) -> BrokerState:
        """The broker's state."""
        return self.server.state


@dataclass
class Seen:
    """The values that a scrape has collected.

    now: the metrics that have a single number, by name. wall_ms: the time of the observation.
    has_rows: whether partitions have metrics of their own. took_s: how long the scrape has taken so
    far.
    """

    source: Source
    now: Mapping[str, float]
    partitions: tuple[PartitionState, ...]
    transactional_ids: tuple[TransactionalIdState, ...]
    groups: tuple[GroupState, ...]
    traffic: Traffic
    replication: ReplicationState | None
    wall_ms: int
    has_rows: bool
    took_s: Callable[[], float]

    @property
    def shown_partitions(self) -> tuple[PartitionState, ...]:
        """The partitions that have their own metrics, at most MOST_ROWS."""
        return self.partitions[:MOST_ROWS]

    @cached_property
    def partition_labels(self) -> list[str]:
        """The labels of each shown partition, as text that nine metrics use."""
        return [
            label_text(("topic", "partition"), (row.topic, str(row.partition)))
            for row in self.shown_partitions
        ]

    @cached_property
    def topics(self) -> list[tuple[str, list[PartitionState]]]:
        """The partitions of each topic, together with the text of the topic's label."""
        topics: dict[str, list[PartitionState]] = {}
        for row in self.partitions:
            topics.setdefault(row.topic, []).append(row)
        return [(label_text(("topic",), (name,)), topics[name]) for name in sorted(topics)]

    @cached_property
    def shown_offsets(self) -> list[tuple[str, CommittedOffsetState]]:
        """The committed offsets that have their own metrics, each with its labels."""
        offsets = self._offsets()
        return [
            (
                label_text(
                    ("group", "topic", "partition"), (group_id, row.topic, str(row.partition))
                ),
                row,
            )
            for (group_id, row), _ in zip(offsets, range(MOST_ROWS), strict=False)
        ]

    def _offsets(self) -> Iterator[tuple[str, CommittedOffsetState]]:
        return ((group.group_id, row) for group in self.groups for row in group.offsets)

    def left_out(self) -> tuple[tuple[str, int], ...]:
        """The numbers of partitions and offsets that are not shown because there are too many."""
        partitions = len(self.partitions) if self.has_rows else 0
        offsets = sum(len(group.offsets) for group in self.groups) if self.has_rows else 0
        return (
            ("partitions", max(0, partitions - MOST_ROWS)),
            ("offsets", max(0, offsets - MOST_ROWS)),
        )


def look(
    source: Source,
    numbers: Mapping[str, Callable[[Source], float]],
    has_rows: bool,
    took_s: Callable[[], float],
) -> Look[Seen]:
    """Observe the broker, in the loop's thread. Takes: numbers, the functions that read single
    numbers, by the name of the metric. All of them are called in one slice.
    """
    source.measuring.instruments.fold()
    snapshot = yield from source.snapshots.observe(source.server.now_ms())
    traffic = yield from _look_at_traffic(source)
    return Seen(
        source,
        {name: read(source) for name, read in numbers.items()},
        snapshot.partitions,
        snapshot.transactional_ids,
        snapshot.groups,
        traffic,
        None if source.replication is None else source.replication(),
        snapshot.wall_ms,
        has_rows,
        took_s,
    )


def _look_at_traffic(source: Source) -> Look[Traffic]:
    """Count the bytes that all connections have received and sent since the start."""
    received = sent = 0
    for number, connection in enumerate(source.server.connections(), 1):
        if not connection.closed:
            traffic = traffic_of(connection)
            received, sent = received + traffic.received, sent + traffic.sent
        if number % ROWS_AT_ONCE == 0:
            yield
    closed = source.measuring.instruments.closed_traffic
    return Traffic(received + closed.received, sent + closed.sent)
