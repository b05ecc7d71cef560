"""The broker's settings for streams groups (KIP-1071)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.broker.settings.setting import ConfigError, integer

INT_MAX = 2**31 - 1


class StreamsRows:
    """Streams groups: the groups of Kafka Streams applications with group.protocol=streams."""

    group_streams_assignment_interval_ms = integer(
        1000,
        "The shortest time between two computations of a streams group's assignment; 0: at each "
        "change.",
        lowest=0,
        dynamic=True,
    )
    group_streams_min_assignment_interval_ms = integer(
        0,
        "The least that a group may set as streams.assignment.interval.ms.",
        lowest=0,
    )
    group_streams_max_assignment_interval_ms = integer(
        15_000,
        "The most that a group may set as streams.assignment.interval.ms.",
        lowest=0,
    )
    group_streams_heartbeat_interval_ms = integer(
        5000,
        "How often members of streams groups send heartbeats.",
        lowest=1,
    )
    group_streams_min_heartbeat_interval_ms = integer(
        5000,
        "The least that a group may set as streams.heartbeat.interval.ms.",
        lowest=1,
    )
    group_streams_max_heartbeat_interval_ms = integer(
        15_000,
        "The most that a group may set as streams.heartbeat.interval.ms.",
        lowest=1,
    )
    group_streams_session_timeout_ms = integer(
        45_000,
        "How long a member of a streams group may be silent before it is removed.",
        lowest=1,
    )
    group_streams_min_session_timeout_ms = integer(
        45_000,
        "The least that a group may set as streams.session.timeout.ms.",
        lowest=1,
    )
    group_streams_max_session_timeout_ms = integer(
        60_000,
        "The most that a group may set as streams.session.timeout.ms.",
        lowest=1,
    )
    group_streams_initial_rebalance_delay_ms = integer(
        3000,
        "How long a streams group without members waits for more of them after the first joined.",
        lowest=0,
    )
    group_streams_max_size = integer(
        INT_MAX,
        "How many members a streams group may have.",
        lowest=1,
    )
    group_streams_num_standby_replicas = integer(
        0,
        "How many copies of the state of each task other instances of the application keep.",
        lowest=0,
    )
    group_streams_max_standby_replicas = integer(
        2,
        "The most that a group may set as streams.num.standby.replicas.",
        lowest=0,
    )


_BOUNDED = ("assignment.interval.ms", "heartbeat.interval.ms", "session.timeout.ms")


def check_streams_settings(values: Mapping[str, Any]) -> None:
    """Check the settings of streams groups. Raises: ConfigError for contradictory settings, which
    Apache Kafka refuses as well.
    """
    prefix = "group.streams."
    for rest in _BOUNDED:
        name, least, most = f"{prefix}{rest}", f"{prefix}min.{rest}", f"{prefix}max.{rest}"
        if not values[least] <= values[name] <= values[most]:
            raise ConfigError(
                f"{name}={values[name]}: it must be between {least}={values[least]} and "
                f"{most}={values[most]}"
            )
    heartbeat, session = f"{prefix}heartbeat.interval.ms", f"{prefix}session.timeout.ms"
    if values[heartbeat] >= values[session]:
        raise ConfigError(
            f"{heartbeat}={values[heartbeat]}: it must be below {session}={values[session]}"
        )
    count, most = f"{prefix}num.standby.replicas", f"{prefix}max.standby.replicas"
    if values[count] > values[most]:
        raise ConfigError(f"{count}={values[count]}: it must not exceed {most}={values[most]}")
