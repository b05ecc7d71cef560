"""Counts of the events of share groups since the broker's start, for the metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.broker.share.share_partition import Acknowledgement


class StateWrites:
    """Counts and times of the share coordinator's writes, and the time of its loading.

    writes: requests and events whose records were written together. total_ms: the time from these
    writes until their answers could be sent, added up. load_ns: how long the replay of the internal
    topic took at the start of the coordinator; 0 without a clock.
    """

    __slots__ = ("load_ns", "total_ms", "writes")

    def __init__(self) -> None:
        self.writes = self.total_ms = self.load_ns = 0


class ShareCounts:
    """Counts of records; the loop's thread adds, another may read.

    acknowledged: records by the number of the acknowledgement's type. acquired: deliveries.
    lock_timeouts: records whose locks have expired. given_up: records that reached the group's
    delivery limit. evictions: sessions whose connections were closed.
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
