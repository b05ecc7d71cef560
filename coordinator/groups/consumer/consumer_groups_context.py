"""What the state machines for the members of consumer groups share with the coordinator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from barnabas.coordinator.groups.consumer.consumer_group_settings import ConsumerGroupSettings
from barnabas.coordinator.groups.group_timers import TimerKey
from barnabas.coordinator.groups.topic_directory import TopicDirectory
from barnabas.coordinator.timers import Timers
from barnabas.protocol.wall_clock import WallClock

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"


class ConsumerGroupsContext(NamedTuple):
    """What the state machines of consumer groups share with the coordinator.

    overrides: returns the settings that a group overrides. new_member_id: makes a unique id for a
    member that has none.
    """

    settings: ConsumerGroupSettings
    overrides: Callable[[str], Mapping[str, int]]
    topics: TopicDirectory
    timers: Timers[TimerKey]
    wall: WallClock
    new_member_id: Callable[[], str]
