"""The two clocks of the broker, and the conversion of timestamps to steady time.

| time | in the code | use |
|---|---|---|
| steady | `now_ms`, an argument of every event | deadlines, ages |
| wall | `wall_ms`, every `..._timestamp` of a record | stored in records, compared with them |

The steady time never steps. Its zero has no meaning, so it is never stored. The wall clock is set
by a person or a time server: it may step, stop or be wrong, and nothing waits for it. A timestamp
of a record becomes a deadline through `WallClock.since_ms`, once, when the record is replayed;
after that only the steady time is used.

Some timestamps also order events: the decisions of one transactional id. Such a timestamp is the
last one plus a millisecond where the clock did not advance or was set back, but at most
MOST_LEAD_MS ahead of the clock. Beyond that the record has the clock's time, and the order is
stored separately.
"""

from __future__ import annotations

MOST_LEAD_MS = 1000


class WallClock:
    """The wall clock's time, for code that writes timestamps or compares with them.

    One instance, shared by logs and coordinators; the rim calls `feed` before each event. Without
    `feed`, as in most tests, both times are equal.

    ahead_ms: how far the wall clock is ahead: an event of the steady time `now_ms` is at the wall
    time `now_ms + ahead_ms`. now_ms: the steady time of the current event; None before the first
    `feed`.
    """

    __slots__ = ("ahead_ms", "now_ms")

    def __init__(self) -> None:
        self.ahead_ms = 0
        self.now_ms: int | None = None

    def feed(self, now_ms: int, wall_ms: int) -> None:
        """Set both times of the next event."""
        self.ahead_ms, self.now_ms = wall_ms - now_ms, now_ms

    def since_ms(self, timestamp_ms: int) -> int:
        """The steady time of a timestamp; the current time for a timestamp in the future.

        So the wall clock measures a period that began before a start, but never as negative: if the
        clock was set back, a deadline is at most its whole length away.
        """
        since_ms = timestamp_ms - self.ahead_ms
        return since_ms if self.now_ms is None or since_ms < self.now_ms else self.now_ms
