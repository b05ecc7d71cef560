"""The seam for reading the whole state of a broker, for the console and metrics.

What may be long is a `Look`, a generator that runs in slices, in the loop's thread between two
requests (`process.http_server.in_slices`). Its result are values that another thread may keep.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from barnabas.broker.core import Broker
from barnabas.broker.observe import (
    GroupState,
    Look,
    PartitionState,
    TransactionalIdState,
    look_at_groups,
    look_at_partitions,
    look_at_transactional_ids,
)
from barnabas.broker.observe_groups import describe_in_flight, describe_members


class Snapshot(NamedTuple):
    """The rows of all partitions, transactional ids and groups, and the time of the observation."""

    partitions: tuple[PartitionState, ...]
    transactional_ids: tuple[TransactionalIdState, ...]
    groups: tuple[GroupState, ...]
    wall_ms: int


class Snapshots:
    """Makes snapshots of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def observe(self, now_ms: int) -> Look[Snapshot]:
        """All partitions, transactional ids and groups."""
        broker = self._broker
        wall_ms = now_ms + broker.wall.ahead_ms
        partitions = yield from look_at_partitions(broker.logs)
        ids = yield from look_at_transactional_ids(broker.transactions, wall_ms)
        groups = yield from look_at_groups(broker.groups, broker.topics, broker.shares)
        return Snapshot(partitions, ids, groups, wall_ms)

    def members_of(self, group_id: str) -> list[dict[str, Any]]:
        """The members of a group for JSON, with their assignments; none for an unknown group."""
        return describe_members(self._broker.groups, group_id)

    def in_flight(self, group_id: str, now_ms: int) -> Look[list[dict[str, Any]]]:
        """The in-flight records of a share group for JSON."""
        yield
        shares = self._broker.shares.made
        if shares is None:
            return []
        return (yield from describe_in_flight(shares, self._broker.topics, group_id, now_ms))
