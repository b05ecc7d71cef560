"""Plain counters: code increments each by its metric's name where the event happens.

    counters.add("barnabas_throttled_requests_total")

A scrape shows a counter if the table of metrics has a row with its name. Errors in responses, and
logins, have their own counters in modules beside this one.
"""

from __future__ import annotations


class Counters:
    """Counts since the start, by the name of the metric and the values of its labels.

    The loop's thread increments them; another thread may read them.
    """

    def __init__(self) -> None:
        self._counts: dict[str, dict[tuple[str, ...], int]] = {}

    def add(self, name: str, *labels: str, count: int = 1) -> None:
        """Increment a counter."""
        counts = self._counts.setdefault(name, {})
        counts[labels] = counts.get(labels, 0) + count

    def of(self, name: str, *labels: str) -> int:
        """The count of a metric with the given labels."""
        return self._counts.get(name, {}).get(labels, 0)

    def rows(self, name: str) -> dict[tuple[str, ...], int]:
        """All counts of a metric, by the values of its labels."""
        return self._counts.get(name, {}).copy()
