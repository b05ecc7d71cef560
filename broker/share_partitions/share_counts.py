"""Counts of the events of share groups since the broker's start, for the metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.broker.share_partitions.share_partition import Acknowledgement


class StateWrites:
    """Counts and durations of the share coordinator's writes, and the duration of its loading.

    writes: the number of requests and events, for each of which all records are written together.
    total_ms: the sum of the times from these writes until the responses could be sent. load_ns: how
    long the coordinator took at its start to replay the internal topic; 0 without a clock.
    """

    __slots__ = ("load_ns", "total_ms", "writes")

    def __init__(self) -> None:
        self.writes = self.total_ms = self.load_ns = 0


class ShareCounts:
    """Counts of records. The loop's thread increments the counts, and another thread may read them.

    acknowledged: acknowledged records, by the number of the acknowledgement's type. acquired: the
    number of deliveries. lock_timeouts: records whose locks have expired. given_up: records that
    reached the group's delivery limit. evictions: sessions that ended because their connections
    were closed.
    """

    __slots__ = ("acknowledged", "acquired", "evictions", "given_up", "lock_timeouts")

    def __init__(self) -> None:
        self.acknowledged: Counter[int] = Counter()
        self.acquired = self.lock_timeouts = self.given_up = self.evictions = 0

    def acknowledge(self, acknowledgements: Iterable[Acknowledgement]) -> None:
        """Count the acknowledgements of a member."""
        for one in acknowledgements:
            if len(one.types) == 1:
                self.acknowledged[one.types[0]] += one.last_offset - one.first_offset + 1
            else:
                self.acknowledged.update(one.types)
