"""The settings of streams groups (KIP-1071)."""

from __future__ import annotations

from typing import NamedTuple

SESSION_TIMEOUT = "streams.session.timeout.ms"
HEARTBEAT_INTERVAL = "streams.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL = "streams.assignment.interval.ms"
INITIAL_REBALANCE_DELAY = "streams.initial.rebalance.delay.ms"
NUM_STANDBY_REPLICAS = "streams.num.standby.replicas"


class StreamsGroupSettings(NamedTuple):
    """The broker's settings of streams groups that cannot be set for a single group.

    The comment at each field is the name of the setting in Kafka.
    """

    max_size: int = 2**31 - 1  # group.streams.max.size
    assigns_emptied: bool = True  # not while a release is emulated (KAFKA-20442)
