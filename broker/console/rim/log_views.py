"""The views of logs: the overview, a topic, and one partition."""

from __future__ import annotations

from typing import Any

from barnabas.broker.console import views
from barnabas.broker.console.rim.group_views import GroupViews
from barnabas.broker.console.rim.source import (
    BadRequest,
    Query,
    Source,
    Viewer,
    bounds,
    number,
    strip_values,
)
from barnabas.broker.console.spans import MOST_INDEX_ENTRIES, read_strip
from barnabas.why_stuck import sentence

SPANS_IN_OVERVIEW, SPANS_OF_PARTITION = 44, 160
PARTITION_INDEX_ENTRIES = 4 * MOST_INDEX_ENTRIES


class LogViews:
    """Answers with topics, partitions and their strips."""

    def __init__(self, source: Source, groups: GroupViews) -> None:
        self._source, self._groups = source, groups

    def overview(self, viewer: Viewer, query: Query) -> Any:
        """Topics with strips, the oldest transactions, and groups that wait or are behind."""
        broker = self._source.look(viewer)
        page = views.topics_page(
            broker,
            query.get("search", ""),
            number(query, "page", 0),
            internal=query.get("internal") == "true",
        )
        shown = {name: views.shown_partitions(broker, name) for name in page.rows}
        strips = self._source.strips(
            [row for rows in shown.values() for row in rows], SPANS_IN_OVERVIEW
        )
        groups = views.groups_by_need(broker)[: views.ROWS_IN_OVERVIEW]
        waits = self._groups.waits(broker, groups)
        return {
            "topics": {
                **bounds(page),
                "rows": [
                    {
                        **self._topic_value(broker, name),
                        "strips": strip_values(broker, shown[name], strips),
                    }
                    for name in page.rows
                ],
            },
            "transactions": [
                views.transaction_value(row, broker)
                for row in broker.open_transactions[: views.ROWS_IN_OVERVIEW]
            ],
            "groups": [views.group_value(group, broker, waits) for group in groups],
        }

    def _topic_value(self, broker: views.Broker, name: str) -> dict[str, Any]:
        rows = broker.topics[name]
        return {
            "topic": name,
            "partition_count": len(rows),
            "stuck_count": sum(map(broker.is_stuck, rows)),
            "size_bytes": sum(row.size_bytes for row in rows),
        }

    def topic(self, viewer: Viewer, query: Query) -> Any:
        """The strips of a topic's partitions."""
        broker, name = self._source.look(viewer), query.get("topic", "")
        if name not in broker.topics:
            raise BadRequest(f"There is no topic {name!r}.", 404)
        if query.get("strips") == "no":
            return self._topic_value(broker, name)
        page = views.page_of(broker.topics[name], number(query, "page", 0), views.STRIPS_A_PAGE)
        strips = self._source.strips(page.rows, SPANS_IN_OVERVIEW)
        return {
            **self._topic_value(broker, name),
            **bounds(page),
            "strips": strip_values(broker, page.rows, strips),
        }

    def partition(self, viewer: Viewer, query: Query) -> Any:
        """A longer strip of one partition, and why it is stuck."""
        topic, index = query.get("topic", ""), number(query, "partition", 0)
        before = number(query, "before", -1)
        broker = self._source.look(viewer)
        row = broker.partition.get((topic, index))
        if row is None:
            raise BadRequest(f"There is no partition {topic}-{index}, or it is offline.", 404)
        window = self._source.run(
            self._source.take([(row, before if before >= 0 else None)], PARTITION_INDEX_ENTRIES)
        )
        strips = [read_strip(window, SPANS_OF_PARTITION) for window in window]
        strip = strips[0] if strips else None
        groups = self._groups.waiting(broker, row)
        answer = views.answer_of(broker, row, groups)
        return {
            "strip": views.strip_value(strip, broker) if strip is not None else None,
            "stuck": answer.is_stuck,
            "explanation": sentence(answer),
            "transactions": [
                views.transaction_value(open_row, broker)
                for open_row in broker.open_transactions
                if any(place is row for place, _ in open_row.places)
            ],
            "groups": [
                {**group._asdict(), "lag": row.high_watermark - group.committed_offset}
                for group in self._groups.reading(broker, row, groups)
            ],
        }

    def transactions(self, viewer: Viewer, query: Query) -> Any:
        """All open transactions, the oldest first."""
        broker = self._source.look(viewer)
        page = views.page_of(broker.open_transactions, number(query, "page", 0), views.ROWS_A_PAGE)
        return {
            **bounds(page),
            "rows": [views.transaction_value(row, broker) for row in page.rows],
        }
