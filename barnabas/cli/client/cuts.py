"""Cuts of whole transactions, which a broker has recorded: what it gives for a time in topics with
`barnabas.transactions.whole`.

A client asks by ListOffsets with a time of `protocol/cut_times.py`. Another broker, and one that
has recorded none, answers that it has no record so late.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas.cli.client.cluster_client import ClusterClient
from barnabas.cli.client.configs import describe_configs
from barnabas.cli.client.topics import found_by_time
from barnabas.cli.errors import CommandError, RefusedError
from barnabas.coordinator.internal_topics import INTERNAL_TOPICS
from barnabas.protocol.cut_times import AT_OR_BEFORE
from barnabas.protocol.errors import Code
from barnabas.protocol.topic_partition import TopicPartition

WHOLE = "barnabas.transactions.whole"
NOT_IN_CUT = -1
MOST_TRIES = 5


class RecordedCut(NamedTuple):
    """A recorded cut: its time, and the offset of each partition, or NOT_IN_CUT."""

    time_ms: int
    offsets: dict[TopicPartition, int]

    @property
    def time_text(self) -> str:
        """The time as local time, with the milliseconds by which cuts differ."""
        moment = datetime.datetime.fromtimestamp(self.time_ms / 1000).astimezone()
        return moment.isoformat(" ", "milliseconds")


def whole_topics(client: ClusterClient, names: Iterable[str]) -> frozenset[str]:
    """Those of the topics that show whole transactions; none with another broker, or without the
    right to describe their settings.
    """
    try:
        return _with_setting(client, names)
    except RefusedError:
        return frozenset()


def _with_setting(client: ClusterClient, names: Iterable[str]) -> frozenset[str]:
    """Those of the topics that show whole transactions. Raises: RefusedError.

    Internal topics do not, whatever the broker's default is.
    """
    names = set(names).difference(INTERNAL_TOPICS)
    return frozenset(
        name
        for name, rows in describe_configs(client, "topic", sorted(names)).items()
        if any(row.name == WHOLE and row.value == "true" for row in rows)
    )


def cut_at_or_before(
    client: ClusterClient, partitions: Sequence[TopicPartition], time_ms: int
) -> RecordedCut | None:
    """The newest recorded cut at or before a time; None if there is none.

    Brokers of a cluster, and the parts of a large request, may answer with different cuts while one
    is being recorded. Then all are asked for the earliest of these.

    Raises: CommandError if a topic does not have the setting; RefusedError.
    """
    for _ in range(MOST_TRIES):
        try:
            found = found_by_time(client, dict.fromkeys(partitions, AT_OR_BEFORE + time_ms))
        except RefusedError as error:
            if error.code == Code.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                raise without_setting(error.resource) from error
            raise
        times = {time for time, _ in found.values()}
        if len(times) == 1:
            time_ms = times.pop()
            if time_ms < 0:
                return None
            return RecordedCut(
                time_ms, {partition: offset for partition, (_, offset) in found.items()}
            )
        time_ms = min(times)
        if time_ms < 0:
            return None
    raise CommandError("the brokers give different cuts each time: try again, or name a time ago")


def without_setting(topic: str) -> CommandError:
    """The error for a topic whose cuts are not recorded."""
    if topic in INTERNAL_TOPICS:
        return CommandError(f"no cuts are recorded of {topic!r}, since it is an internal topic")
    return CommandError(
        f"no cuts are recorded of {topic!r}, which does not have {WHOLE}=true: "
        f"`barnabas config set topic {topic} {WHOLE}=true` lets the broker record them from then "
        "on (Barnabas alone has this setting)"
    )


def require_whole(client: ClusterClient, names: Sequence[str]) -> None:
    """Raise CommandError for a topic without the setting, if the settings may be described.

    Another broker does not refuse such a topic, but finds no cut.
    """
    try:
        having = _with_setting(client, names)
    except RefusedError:
        return
    for name in names:
        if name not in having:
            raise without_setting(name)
