"""The views of groups, and of the groups that wait for a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from barnabas.broker.observe import (
    CommittedOffsetState,
    GroupState,
    Look,
    PartitionState,
)
from barnabas.console import views
from barnabas.console.groups import (
    partition_progress,
)
from barnabas.console.history import History, Trend
from barnabas.console.lists import (
    GROUP_COLUMNS,
    IN_FLIGHT_COLUMNS,
    MEMBER_COLUMNS,
    OFFSET_COLUMNS,
    GroupRow,
    group_rows,
)
from barnabas.console.rim.source import (
    BadRequest,
    Query,
    Source,
    Viewer,
    choice,
    listed,
)
from barnabas.console.spans import MOST_INDEX_ENTRIES, read_strip
from barnabas.console.topic_rows import known
from barnabas.coordinator.groups.group_types import SHARE_TYPE
from barnabas.why_stuck import WaitingGroup

SPANS_OF_WAIT = 160
MOST_CANDIDATES, MOST_STUCK_WINDOWS = 500, 20


class GroupViews:
    """Handles requests for groups."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._rows: list[GroupRow] = []
        self._rows_of: views.Broker | None = None

    def groups(self, viewer: Viewer, query: Query) -> Any:
        """A part of the sorted list of groups; see the module `lists`."""
        broker, search = self._source.look(viewer), query.get("search", "").lower()
        if self._rows_of is not broker:
            self._rows, self._rows_of = group_rows(broker), broker
        rows = [row for row in self._rows if search in row.name.lower()]
        part = listed(query, rows, GROUP_COLUMNS)
        groups = [row.group for row in part.rows]
        return {
            "total": part.total,
            "first": part.first,
            "rows": self.values(broker, groups),
        }

    def group(self, viewer: Viewer, query: Query) -> Any:
        """One group, and a part of its offsets, its members or its records in flight."""
        broker, name = self._source.look(viewer), query.get("group", "")
        group = next((row for row in broker.observed.groups if row.group_id == name), None)
        if group is None:
            raise BadRequest(f"There is no group {name!r}.", 404)
        of = choice(query, "of", ("offsets", "members", "in_flight"))
        if of == "members":
            part = listed(query, self._members(name), MEMBER_COLUMNS)
            rows = list(part.rows)
        elif of == "in_flight":
            part = listed(query, self._in_flight(broker, group), IN_FLIGHT_COLUMNS)
            rows = list(part.rows)
        else:
            part = listed(query, group.offsets, OFFSET_COLUMNS)
            rows = self._offset_values(group, part.rows)
        (value,) = self.values(broker, [group])
        return {
            **value,
            "total": part.total,
            "first": part.first,
            "rows": rows,
            "samples": self._samples(name),
        }

    def _members(self, name: str) -> list[dict[str, Any]]:
        """The members of a group, read in the loop's thread."""

        def members() -> Look[list[dict[str, Any]]]:
            yield
            return self._source.snapshots.members_of(name)

        return self._source.run(members())

    def values(self, broker: views.Broker, groups: Iterable[GroupState]) -> list[dict[str, Any]]:
        """Groups for JSON, with their progress."""
        rows, now_ms = list(groups), self._source.server.steady_ms()

        def look() -> Look[list[Trend]]:
            trends = []
            for group in rows:
                trends.append(self._source.sampler.history.trend(group, now_ms))
                yield
            return trends

        trends = self._source.run(look())
        return [
            views.group_value(group, broker, trend)
            for group, trend in zip(rows, trends, strict=True)
        ]

    def of_topic(self, broker: views.Broker, topic: str) -> list[dict[str, Any]]:
        """The groups that read a topic, and what they wait for there, the largest lag first."""
        here = {
            group.group_id: group._replace(offsets=offsets)
            for group in broker.observed.groups
            if (offsets := tuple(row for row in group.offsets if row.topic == topic))
        }
        groups = [group for group in broker.observed.groups if group.group_id in here]
        groups.sort(key=lambda group: (-here[group.group_id].lag, group.group_id))
        return [
            {
                **value,
                "topic_status": here[value["group"]].status,
                "samples": self._samples(value["group"]),
            }
            for value in self.values(broker, groups[: views.ROWS_A_PAGE])
        ]

    def _offset_values(
        self,
        group: GroupState,
        rows: Sequence[CommittedOffsetState],
    ) -> list[dict[str, Any]]:
        """Committed offsets for JSON, with the group's progress since the last sample."""
        name = group.group_id
        before = self._source.history(lambda history: history.positions(name))
        return [
            {
                **row._asdict(),
                "progress": partition_progress(
                    group,
                    row,
                    has_moved=before.get((row.topic, row.partition), row.offset) != row.offset,
                ),
            }
            for row in rows
        ]

    def _samples(self, group_id: str) -> list[list[float | None]]:
        """The age in ms and the lag of each sample, the oldest first."""
        now_ms = self._source.server.steady_ms()

        def read(history: History) -> list[list[float | None]]:
            lags = history.lags(group_id)
            return [
                [now_ms - at, known(lag)] for at, lag in zip(history.times, lags, strict=bool(lags))
            ]

        return self._source.history(read)

    def _in_flight(self, broker: views.Broker, group: GroupState) -> list[dict[str, Any]]:
        """The in-flight records of a share group, in topics that the viewer may see."""
        if group.kind != SHARE_TYPE:
            return []
        look = self._source.snapshots.in_flight(group.group_id, self._source.server.steady_ms())
        return [row for row in self._source.run(look) if row["topic"] in broker.topics]

    # --- waiting readers -------------------------------------------------------------------------

    def waits(
        self, broker: views.Broker, groups: Iterable[GroupState]
    ) -> dict[tuple[str, str, int], bool]:
        """Whether a group has nothing left to read before the last stable offset of a stuck
        partition. The result has a value for each group and each stuck partition in which it has a
        committed offset.
        """
        rows = views.candidates(broker, groups)[:MOST_CANDIDATES]
        before_end = {
            (row.topic, row.partition): (row, row.last_stable_offset)
            for _, offset, row in rows
            if offset.offset < row.last_stable_offset
        }
        shown = list(before_end.values())[:MOST_STUCK_WINDOWS]
        windows = self._source.run(self._source.take(shown, MOST_INDEX_ENTRIES))
        strips = {
            (window.topic, window.partition): read_strip(window, SPANS_OF_WAIT)
            for window in windows
        }
        waits = {}
        for group, offset, row in rows:
            key = (row.topic, row.partition)
            waits[group.group_id, *key] = offset.offset == row.last_stable_offset or (
                key in strips and not views.has_readable(strips[key], offset.offset)
            )
        return waits

    def reading(
        self, broker: views.Broker, row: PartitionState, waiting: list[WaitingGroup]
    ) -> list[WaitingGroup]:
        """The groups that have a committed offset on a partition. Groups that wait come first."""
        by_name = {group.group: group for group in waiting}
        for group in broker.observed.groups:
            for offset in group.offsets:
                if (offset.topic, offset.partition) == (row.topic, row.partition):
                    by_name.setdefault(
                        group.group_id,
                        WaitingGroup(group.group_id, group.state, offset.offset, False, ()),
                    )
        return list(by_name.values())[: views.ROWS_A_PAGE]

    def waiting(self, broker: views.Broker, row: PartitionState) -> list[WaitingGroup]:
        """The groups that have not passed the last stable offset of a stuck partition."""
        if not row.stable_lag:
            return []
        groups = [
            group
            for group in broker.observed.groups
            if any(
                (offset.topic, offset.partition) == (row.topic, row.partition)
                and offset.offset <= row.last_stable_offset
                and not offset.is_batch_number
                for offset in group.offsets
            )
        ][: views.ROWS_A_PAGE]
        waits = self.waits(broker, groups)

        def take() -> Look[list[WaitingGroup]]:
            found = []
            for group in groups:
                yield
                committed = next(
                    offset.offset
                    for offset in group.offsets
                    if (offset.topic, offset.partition) == (row.topic, row.partition)
                )
                members = tuple(
                    f"{member['client_id']} at {member['client_host']}"
                    for member in self._source.snapshots.members_of(group.group_id)
                    if [row.topic, row.partition] in member["assignment"]
                )
                is_waiting = waits.get((group.group_id, row.topic, row.partition), False)
                found.append(
                    WaitingGroup(group.group_id, group.state, committed, is_waiting, members)
                )
            return found

        return self._source.run(take())
