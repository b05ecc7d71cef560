"""The broker's settings for share groups (KIP-932), for their coordinators, and for the topic that
stores the groups' state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.broker.settings.setting import (
    MINUTE_MS,
    ConfigError,
    integer,
    rows_of,
    short,
    strings,
)


class ShareRows:
    """Share groups and their state."""

    group_share_assignors = strings(
        ("simple",),
        "The assignor of share groups.",
        choices=("simple",),
        never=((),),
        never_because="one is needed",
    )
    group_share_assignment_interval_ms = integer(
        1000,
        "The shortest time between two computations of a share group's assignment; 0: at each "
        "change.",
        lowest=0,
        dynamic=True,
    )
    group_share_min_assignment_interval_ms = integer(
        0,
        "The least that a group may set as share.assignment.interval.ms.",
        lowest=0,
    )
    group_share_max_assignment_interval_ms = integer(
        15_000,
        "The most that a group may set as share.assignment.interval.ms.",
        lowest=0,
    )
    group_share_delivery_count_limit = integer(
        5,
        "How often a record is delivered to a share group before it is given up.",
        lowest=2,
        highest=10,
    )
    group_share_min_delivery_count_limit = integer(
        2,
        "The least that a group may set as share.delivery.count.limit.",
        lowest=2,
        highest=5,
    )
    group_share_max_delivery_count_limit = integer(
        10,
        "The most that a group may set as share.delivery.count.limit.",
        lowest=5,
        highest=25,
    )
    group_share_heartbeat_interval_ms = integer(
        5000,
        "How often members of share groups send heartbeats.",
        lowest=1,
    )
    group_share_min_heartbeat_interval_ms = integer(
        5000,
        "The least that a group may set as share.heartbeat.interval.ms.",
        lowest=1,
    )
    group_share_max_heartbeat_interval_ms = integer(
        15_000,
        "The most that a group may set as share.heartbeat.interval.ms.",
        lowest=1,
    )
    group_share_initialize_retry_interval_ms = integer(
        30_000,
        "How long a share group waits for the state of new partitions before it asks for it again.",
        lowest=1,
    )
    group_share_max_share_sessions = integer(
        2000,
        "The largest number of share sessions of the broker.",
        lowest=1,
    )
    group_share_max_size = integer(
        200,
        "How many members a share group may have.",
        lowest=1,
        highest=1000,
    )
    group_share_partition_max_record_locks = integer(
        2000,
        "How many records of a partition may be locked for a share group at a time.",
        lowest=100,
        highest=10_000,
    )
    group_share_min_partition_max_record_locks = integer(
        100,
        "The least that a group may set as share.partition.max.record.locks.",
        lowest=100,
        highest=2000,
    )
    group_share_max_partition_max_record_locks = integer(
        4000,
        "The most that a group may set as share.partition.max.record.locks.",
        lowest=2000,
        highest=10_000,
    )
    group_share_record_lock_duration_ms = integer(
        30_000,
        "How long a record is locked for the member of a share group that got it.",
        lowest=1000,
        highest=3_600_000,
    )
    group_share_min_record_lock_duration_ms = integer(
        15_000,
        "The least that a group may set as share.record.lock.duration.ms.",
        lowest=1000,
        highest=30_000,
    )
    group_share_max_record_lock_duration_ms = integer(
        60_000,
        "The most that a group may set as share.record.lock.duration.ms.",
        lowest=30_000,
        highest=3_600_000,
    )
    group_share_session_timeout_ms = integer(
        45_000,
        "How long a member of a share group may be silent before it is removed.",
        lowest=1,
    )
    group_share_min_session_timeout_ms = integer(
        45_000,
        "The least that a group may set as share.session.timeout.ms.",
        lowest=1,
    )
    group_share_max_session_timeout_ms = integer(
        60_000,
        "The most that a group may set as share.session.timeout.ms.",
        lowest=1,
    )
    share_coordinator_state_topic_num_partitions = integer(
        50,
        "Partitions of __share_group_state, when it is created.",
        lowest=1,
    )
    share_coordinator_state_topic_replication_factor = short(
        1,
        "The same as default.replication.factor, for __share_group_state.",
        lowest=1,
    )
    share_coordinator_state_topic_min_isr = short(
        1,
        "Accepted; with one broker there is one replica.",
        lowest=1,
    )
    share_coordinator_state_topic_segment_bytes = integer(
        100 << 20,
        "Segments of __share_group_state.",
        lowest=14,
    )
    share_coordinator_state_topic_compression_codec = integer(
        0, "Accepted; the topic is not compressed."
    )
    share_coordinator_state_topic_prune_interval_ms = integer(
        5 * MINUTE_MS,
        "How often replaced records of __share_group_state are deleted.",
        lowest=1,
    )
    share_coordinator_snapshot_update_records_per_snapshot = integer(
        500,
        "The number of updates of a share partition after which its whole state is written.",
        lowest=0,
        highest=500,
    )
    share_coordinator_cold_partition_snapshot_interval_ms = integer(
        5 * MINUTE_MS,
        "How long a share partition may be unchanged before its state is written again, so that "
        "earlier records can be deleted.",
        lowest=1,
    )
    share_coordinator_load_buffer_size = integer(5 << 20, "Accepted.", lowest=1)
    share_coordinator_threads = integer(1, "Accepted.", lowest=1)
    share_coordinator_write_timeout_ms = integer(5000, "Accepted; there is one replica.", lowest=1)


_ROWS = rows_of(ShareRows)
_BOUNDED = tuple(
    name for name in _ROWS if f"group.share.min.{name.removeprefix('group.share.')}" in _ROWS
)


def check_share_settings(values: Mapping[str, Any]) -> None:
    """Check the settings of share groups. Raises: ConfigError for contradictory settings, which
    Apache Kafka refuses as well.
    """
    for name in _BOUNDED:
        rest = name.removeprefix("group.share.")
        least, most = f"group.share.min.{rest}", f"group.share.max.{rest}"
        if not values[least] <= values[name] <= values[most]:
            raise ConfigError(
                f"{name}={values[name]}: it must be between {least}={values[least]} and "
                f"{most}={values[most]}"
            )
    for less, more in (
        ("group.share.heartbeat.interval.ms", "group.share.session.timeout.ms"),
        ("group.share.max.size", "group.share.max.share.sessions"),
    ):
        if values[less] > values[more] or (values[less] == values[more] and less.endswith(".ms")):
            raise ConfigError(f"{less}={values[less]}: it must be below {more}={values[more]}")
