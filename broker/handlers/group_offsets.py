"""OffsetCommit, OffsetFetch and OffsetDelete, which the group coordinator answers."""

from __future__ import annotations

from barnabas.broker import coordinators  # noqa: F401 - loaded with the family
from barnabas.broker.admission import guards
from barnabas.broker.admission.coordination import Coordination, One, Several
from barnabas.broker.admission.guard_steps import Ask, by_hand, each, rule, whole
from barnabas.broker.admission.rights import DELETE, DESCRIBE, GROUP, READ, TOPIC
from barnabas.broker.api_row import ApiRow
from barnabas.broker.groups.to_groups import ToGroups
from barnabas.broker.parts import Parts
from barnabas.broker.requests.wide_requests import Level, Repeats, Shape, of_partitions
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC
from barnabas.protocol.api import NEVER, Api
from barnabas.protocol.repeated_messages import encode_committed, read_offset_commit

# --- the APIs of this family ----------------------------------------------------------------------


def _to_groups(parts: Parts) -> ToGroups:
    return ToGroups(parts.groups, parts.group_runtime, parts.requests, parts.features)


ROWS = (
    ApiRow(
        Api(8, "OffsetCommit", 0, 10, flexible_from=8),
        right=rule(whole(READ, GROUP, "group_id"), each(READ, TOPIC, "topics.name", by_id=True)),
        shapes=(Shape(of_partitions(Level("topics", "topics", ("name",))), Repeats.KEPT),),
        coordination=Coordination(one=One(OFFSETS_TOPIC, "group_id"), writes=True),
        read=lambda parts: read_offset_commit,
        encode=encode_committed,
        handler=lambda parts: _to_groups(parts).of_commits(parts.groups.commits.on_offset_commit),
    ),
    ApiRow(
        Api(9, "OffsetFetch", 0, 10, flexible_from=6),
        right=rule(
            by_hand(
                guards.offset_fetch_step,
                Ask(DESCRIBE, GROUP),
                Ask(DESCRIBE, TOPIC, "others are left out where all are asked for"),
            )
        ),
        shapes=(
            Shape(
                of_partitions(Level("topics", "topics", ("name",)), "partition_indexes"),
                last_version=7,
            ),
            Shape(
                (
                    Level("groups", "groups", ("group_id",)),
                    Level("topics", "topics", ("name", "topic_id")),
                    Level("partition_indexes", "partitions"),
                ),
                first_version=8,
            ),
        ),
        coordination=Coordination(
            one=One(OFFSETS_TOPIC, "group_id"),
            several=Several(OFFSETS_TOPIC, "groups", "groups", "group_id", 8),
        ),
        handler=lambda parts: _to_groups(parts).of_offsets(parts.groups.fetches.on_offset_fetch),
    ),
    ApiRow(
        Api(47, "OffsetDelete", 0, 0, flexible_from=NEVER),
        right=rule(whole(DELETE, GROUP, "group_id"), each(READ, TOPIC, "topics.name")),
        shapes=(Shape(of_partitions(Level("topics", "topics", ("name",))), Repeats.KEPT),),
        coordination=Coordination(one=One(OFFSETS_TOPIC, "group_id"), writes=True),
        handler=lambda parts: _to_groups(parts).writing(parts.groups.removal.on_offset_delete),
    ),
)
