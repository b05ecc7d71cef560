"""The last hour in samples: records and bytes of each topic, the lag of each group.

A sample is taken from an observation of the broker every INTERVAL_MS, and kept in rings of LENGTH
numbers. A topic has two rings of four-byte numbers, which take 1.2 KB with their objects; a group
has one, which takes 0.7 KB. So 10,000 topics with as many groups take 20 MB. Topics and groups
beyond MOST_TOPICS and MOST_GROUPS are not sampled. Deleted topics and groups are dropped with the
next sample.

    records of a topic   how far its partitions' high watermarks rose, markers included
    bytes of a topic     how much its logs grew; if retention or compaction has removed something
                         since, the records times the mean size of the partition's records
    lag of a group       over all partitions, at the time of the sample

NaN is a missing sample. A group's lag counts as growing if, in the last TREND_SAMPLES samples, it
never fell back to its first value, and is higher now than in their middle. The module does no I/O;
the rim passes the observations to it.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from barnabas.broker.observe import ROWS_AT_ONCE, GroupState, Look, PartitionState

INTERVAL_MS, LENGTH = 30_000, 120
MOST_TOPICS = MOST_GROUPS = 10_000
TREND_SAMPLES, FEWEST_OF_TREND = 10, 3
SHORTEST_RATE_MS = 1500
NAN = math.nan


class Rates(NamedTuple):
    """Records and bytes of a topic per second; NaN for unknown rates."""

    records: float
    bytes: float


class Trend(NamedTuple):
    """How a group's lag has changed over the last minutes.

    change: the difference from the first of the compared samples. over_ms: the time since that
    sample. grows: see the module docstring. moves: whether a committed offset has changed since the
    last sample; None if that is not known yet.
    """

    change: int
    over_ms: int
    grows: bool
    moves: bool | None


NO_TREND = Trend(0, 0, grows=False, moves=None)


def _ring() -> array[float]:
    return array("f", [NAN]) * LENGTH


class History:
    """The samples of topics and groups. times: when each sample was taken (steady clock), the
    oldest first.
    """

    def __init__(self) -> None:
        self.times: list[int] = []
        self._at = -1  # the index of the last sample in the rings
        self._topics: dict[str, tuple[array[float], array[float]]] = {}
        self._groups: dict[str, array[float]] = {}
        self._partitions_before: dict[tuple[str, int], PartitionState] = {}
        self._groups_before: dict[str, GroupState] = {}

    def is_due(self, now_ms: int) -> bool:
        """Whether the next sample is due."""
        return not self.times or now_ms >= self.times[-1] + INTERVAL_MS

    def add(
        self, partitions: Iterable[PartitionState], groups: Iterable[GroupState], now_ms: int
    ) -> Look[None]:
        """Take a sample, in slices. Between two slices, only some topics and groups already have
        the new sample.
        """
        at = (self._at + 1) % LENGTH
        before, now = self._partitions_before, {}
        sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        seconds = (now_ms - self.times[-1]) / 1000 if self.times else NAN
        for number, row in enumerate(partitions, 1):
            now[row.topic, row.partition] = row
            last = before.get((row.topic, row.partition))
            records, size = (NAN, NAN) if last is None else _grown(last, row)
            total = sums[row.topic]
            total[0] += records / seconds
            total[1] += size / seconds
            if number % ROWS_AT_ONCE == 0:
                yield
        for number, (topic, total) in enumerate(sums.items(), 1):
            rings = self._topics.get(topic)
            if rings is None and len(self._topics) < MOST_TOPICS:
                rings = self._topics[topic] = (_ring(), _ring())
            if rings is not None:
                rings[0][at], rings[1][at] = total
            if number % ROWS_AT_ONCE == 0:
                yield
        known = {}
        for number, group in enumerate(groups, 1):
            ring = self._groups.get(group.group_id)
            if ring is None and len(self._groups) < MOST_GROUPS:
                ring = self._groups[group.group_id] = _ring()
            if ring is not None:
                ring[at] = group.lag
                known[group.group_id] = group
            if number % ROWS_AT_ONCE == 0:
                yield
        self._at = at
        self.times = [*self.times[-LENGTH + 1 :], now_ms]
        self._partitions_before, self._groups_before = now, known
        yield
        for topic in [topic for topic in self._topics if topic not in sums]:
            del self._topics[topic]
        for group_id in [group_id for group_id in self._groups if group_id not in known]:
            del self._groups[group_id]

    # --- topics ----------------------------------------------------------------------------------

    def rates(self, topic: str) -> list[Rates]:
        """The rates of a topic at each sample, the oldest first; empty for a topic that is not
        sampled.
        """
        rings = self._topics.get(topic)
        if rings is None:
            return []
        pairs = zip(self._in_order(rings[0]), self._in_order(rings[1]), strict=True)
        return [Rates(*pair) for pair in pairs]

    def last_rates(self, topic: str) -> Rates:
        """The rates of a topic at the last sample."""
        rings = self._topics.get(topic)
        if rings is None or not self.times:
            return Rates(NAN, NAN)
        return Rates(rings[0][self._at], rings[1][self._at])

    def rates_now(self, partitions: Iterable[PartitionState], now_ms: int) -> Rates:
        """The rates of a topic since the last sample. If that sample is very recent, its own rates
        are returned.
        """
        rows = list(partitions)
        if not self.times or not rows:
            return Rates(NAN, NAN)
        passed_ms = now_ms - self.times[-1]
        if passed_ms < SHORTEST_RATE_MS:
            rings = self._topics.get(rows[0].topic)
            return (
                Rates(NAN, NAN) if rings is None else Rates(rings[0][self._at], rings[1][self._at])
            )
        records = size = 0.0
        for row in rows:
            last = self._partitions_before.get((row.topic, row.partition))
            grown = (NAN, NAN) if last is None else _grown(last, row)
            records, size = records + grown[0], size + grown[1]
        return Rates(records * 1000 / passed_ms, size * 1000 / passed_ms)

    # --- groups ----------------------------------------------------------------------------------

    def lags(self, group_id: str) -> list[float]:
        """The lag of a group at each sample, the oldest first; empty for a group that is not
        sampled.
        """
        ring = self._groups.get(group_id)
        return [] if ring is None else self._in_order(ring)

    def trend(self, group: GroupState, now_ms: int) -> Trend:
        """How the group's lag has changed until now."""
        moves = self._moves(group)
        lags = self.lags(group.group_id)[-TREND_SAMPLES:]
        times = self.times[-len(lags) :] if lags else []
        known = [(at, lag) for at, lag in zip(times, lags, strict=True) if not math.isnan(lag)]
        if not known:
            return NO_TREND._replace(moves=moves)
        first_ms, first = known[0]
        later = [lag for _, lag in islice(known, 1, None)]
        # the lag grows if it is now above the first sample and above the middle one, and no later
        # sample was as low as the first: a lag that falls after a peak does not grow
        grows = (
            len(known) >= FEWEST_OF_TREND
            and min(*later, group.lag) > first
            and group.lag > known[len(known) // 2][1]
        )
        return Trend(group.lag - int(first), now_ms - first_ms, grows, moves)

    def _moves(self, group: GroupState) -> bool | None:
        """Whether the group has committed other offsets since the last sample; None without an
        earlier sample.
        """
        last = self._groups_before.get(group.group_id)
        if last is None:
            return None
        return _positions(last) != _positions(group)

    def positions(self, group_id: str) -> dict[tuple[str, int], int]:
        """The offsets that the group had committed at the last sample."""
        last = self._groups_before.get(group_id)
        return {} if last is None else _positions(last)

    def _in_order(self, ring: array[float]) -> list[float]:
        """The numbers of a ring in the order of `times`."""
        count = len(self.times)
        start = (self._at - count + 1) % LENGTH
        return [ring[(start + number) % LENGTH] for number in range(count)]


def _positions(group: GroupState) -> dict[tuple[str, int], int]:
    return {(row.topic, row.partition): row.offset for row in group.offsets}


def _grown(last: PartitionState, row: PartitionState) -> tuple[float, float]:
    """How many records, and about how many bytes, were appended between two observations."""
    records = row.high_watermark - last.high_watermark
    if records < 0:  # the topic was deleted and created again
        return NAN, NAN
    size = row.size_bytes - last.size_bytes
    if row.log_start_offset != last.log_start_offset or size < 0:
        count = row.log_end_offset - row.log_start_offset
        size = int(records * row.size_bytes / count) if count else 0
    return records, size
