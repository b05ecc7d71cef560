"""The views of logs: the overview, a topic, and one partition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from barnabas.broker.observe import ROWS_AT_ONCE, Look, PartitionState
from barnabas.console import topic_rows, views
from barnabas.console.history import History, Rates
from barnabas.console.lists import (
    PLACE_COLUMNS,
    TRANSACTION_COLUMNS,
    TransactionRow,
    holding_first,
    place_rows,
    transaction_rows,
)
from barnabas.console.rim.group_views import GroupViews
from barnabas.console.rim.source import (
    BadRequest,
    Query,
    Source,
    Viewer,
    bounds,
    choice,
    listed,
    number,
    strip_values,
)
from barnabas.console.spans import MOST_INDEX_ENTRIES, read_strip
from barnabas.console.topic_rows import TopicRow, known
from barnabas.why_stuck import sentence

SPANS_IN_OVERVIEW, SPANS_OF_PARTITION = 44, 160
PARTITION_INDEX_ENTRIES = 4 * MOST_INDEX_ENTRIES


class LogViews:
    """Handles requests for topics, partitions and their strips."""

    def __init__(self, source: Source, groups: GroupViews) -> None:
        self._source, self._groups = source, groups
        self._rows: dict[str, TopicRow] = {}
        self._rows_of: views.Broker | None = None
        self._transactions: list[TransactionRow] = []
        self._transactions_of: views.Broker | None = None

    def overview(self, viewer: Viewer, query: Query) -> Any:
        """Topics with strips, and the transactions and groups that need attention."""
        broker = self._source.look(viewer)
        names = views.topic_names(
            broker, query.get("search", ""), internal=query.get("internal") == "true"
        )
        first = names[: views.TOPICS_IN_OVERVIEW]
        shown = {name: views.shown_partitions(broker, name) for name in first}
        strips = self._source.strips(
            [row for rows in shown.values() for row in rows], SPANS_IN_OVERVIEW
        )
        groups = broker.groups_by_need[: views.ROWS_IN_OVERVIEW]
        return {
            "topics": {
                "total": len(names),
                "rows": [
                    {
                        **self._topic_value(broker, name),
                        "strips": strip_values(broker, shown[name], strips),
                    }
                    for name in first
                ],
            },
            "transactions": [
                views.transaction_value(row.transaction, broker)
                for row in holding_first(self._transaction_rows(broker))[: views.ROWS_IN_OVERVIEW]
            ],
            "groups": self._groups.values(broker, groups),
        }

    def topics(self, viewer: Viewer, query: Query) -> Any:
        """A part of the sorted list of all topics; see the module `topic_rows`."""
        broker = self._source.look(viewer)
        names = views.topic_names(
            broker, query.get("search", ""), internal=query.get("internal") == "true"
        )
        column = choice(query, "sort", topic_rows.COLUMNS)
        is_by_rate = column in topic_rows.BY_RATE
        rates = self._source.run(self._last_rates(names)) if is_by_rate else {}
        of_topics = self._topic_rows(broker)
        rows = topic_rows.in_order(
            (of_topics[name] for name in names),
            column,
            rates,
            descending=choice(query, "order", ("up", "down")) == "down",
        )
        first = min(number(query, "first", 0), max(0, len(rows) - 1))
        shown = rows[first : first + min(number(query, "count", 50), topic_rows.MOST_ROWS)]
        now = self._rates_now(broker, [row.name for row in shown])
        return {
            "total": len(rows),
            "first": first,
            "rows": [{**row._asdict(), **now[row.name]} for row in shown],
        }

    def _topic_rows(self, broker: views.Broker) -> dict[str, TopicRow]:
        """The topic rows of an observation, computed only once for each observation."""
        if self._rows_of is not broker:
            self._rows, self._rows_of = topic_rows.topic_rows(broker), broker
        return self._rows

    def _last_rates(self, names: list[str]) -> Look[dict[str, Rates]]:
        """The rates of topics at the last sample, read in slices in the loop's thread."""
        history, rates = self._source.sampler.history, {}
        for place, name in enumerate(names, 1):
            rates[name] = history.last_rates(name)
            if place % ROWS_AT_ONCE == 0:
                yield
        return rates

    def _rates_now(
        self, broker: views.Broker, names: Iterable[str]
    ) -> dict[str, dict[str, float | None]]:
        """The records and bytes per second of each topic, since the last sample."""
        now_ms = self._source.server.steady_ms()

        def look() -> Look[dict[str, dict[str, float | None]]]:
            rates = {}
            for name in names:
                rate = self._source.sampler.history.rates_now(broker.topics[name], now_ms)
                rates[name] = {"records_rate": known(rate.records), "bytes_rate": known(rate.bytes)}
                yield
            return rates

        return self._source.run(look())

    def _topic_value(self, broker: views.Broker, name: str) -> dict[str, Any]:
        """A topic for JSON: its size, and how many of its partitions are stuck."""
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
        value = {**self._topic_value(broker, name), **self._rates_now(broker, [name])[name]}
        if query.get("strips") == "no":
            return value
        page = views.page_of(broker.topics[name], number(query, "page", 0), views.STRIPS_A_PAGE)
        strips = self._source.strips(page.rows, SPANS_IN_OVERVIEW)
        groups = self._groups.of_topic(broker, name)
        return {
            **value,
            **bounds(page),
            "strips": strip_values(broker, page.rows, strips),
            "samples": self._samples(name),
            "groups": groups,
        }

    def _samples(self, name: str) -> list[list[float | None]]:
        """The age in ms of each sample, and its records and bytes per second, the oldest sample
        first.
        """
        now_ms = self._source.server.steady_ms()

        def read(history: History) -> list[list[float | None]]:
            rates = history.rates(name)
            return [
                [now_ms - at, known(rate.records), known(rate.bytes)]
                for at, rate in zip(history.times, rates, strict=bool(rates))
            ]

        return self._source.history(read)

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
                {**group._asdict(), **_reader_value(broker, row, group.group)}
                for group in self._groups.reading(broker, row, groups)
            ],
        }

    def transactions(self, viewer: Viewer, query: Query) -> Any:
        """A part of the sorted list of open transactions; see the module `lists`."""
        broker, search = self._source.look(viewer), query.get("search", "").lower()
        rows = [row for row in self._transaction_rows(broker) if search in row.name.lower()]
        part = listed(query, rows, TRANSACTION_COLUMNS)
        return {
            "total": part.total,
            "first": part.first,
            "rows": [views.transaction_value(row.transaction, broker) for row in part.rows],
        }

    def _transaction_rows(self, broker: views.Broker) -> list[TransactionRow]:
        """The transaction rows of an observation, computed only once for each observation."""
        if self._transactions_of is not broker:
            self._transactions, self._transactions_of = transaction_rows(broker), broker
        return self._transactions

    def transaction(self, viewer: Viewer, query: Query) -> Any:
        """One open transaction, and a part of its partitions."""
        broker, producer_id = self._source.look(viewer), number(query, "producer", -1)
        row = next(
            (row for row in broker.open_transactions if row.producer_id == producer_id), None
        )
        if row is None:
            raise BadRequest(
                f"There is no open transaction of producer {producer_id}: it may have ended.", 404
            )
        part = listed(query, place_rows(broker, row), PLACE_COLUMNS)
        return {
            **views.transaction_value(row, broker),
            "total": part.total,
            "first": part.first,
            "rows": [place._asdict() for place in part.rows],
        }


def _reader_value(broker: views.Broker, row: PartitionState, group_id: str) -> dict[str, Any]:
    """What a group waits for in one partition, and whether its offset is the number of a
    micro-batch.
    """
    for group in broker.observed.groups:
        if group.group_id == group_id:
            for offset in group.offsets:
                if (offset.topic, offset.partition) == (row.topic, row.partition):
                    here = group._replace(offsets=(offset,))
                    return {"status": here.status, "is_batch_number": offset.is_batch_number}
    return {"status": "", "is_batch_number": False}
