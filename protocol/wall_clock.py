"""The two clocks of the broker, and the conversion of timestamps to steady time.

| time | in the code | use |
|---|---|---|
| steady | `now_ms`, an argument of every event | deadlines, ages |
| wall | `wall_ms`, every `..._timestamp` of a record | stored in records, compared with them |

The steady time is never set forward or back. Its zero has no meaning, so it is never stored. The
wall clock is set by a person or a time server. It may jump, stop or be wrong, and no code waits for
it. `WallClock.since_ms` converts a timestamp of a record to steady time once, when the record is
replayed. The deadline that follows from it only uses the steady time.

Some timestamps also determine the order of events: those of the decisions about one transactional
id. If the clock did not advance or was set back, such a timestamp is the last one plus a
millisecond, but at most MOST_LEAD_MS ahead of the clock. Beyond that the record has the clock's
time, and the order is stored separately.
"""

from __future__ import annotations

MOST_LEAD_MS = 1000


class WallClock:
    """The wall clock's time, for code that writes timestamps or compares with them.

    Logs and coordinators share one instance. The rim calls `feed` before each event. If `feed` is
    never called, as in most tests, both times are equal.

    ahead_ms: how far the wall clock is ahead of the steady time: an event at the steady time
    `now_ms` has the wall time `now_ms + ahead_ms`. now_ms: the steady time of the current event;
    None before the first `feed`.
    """

    __slots__ = ("ahead_ms", "now_ms")

    def __init__(self) -> None:
        self.ahead_ms = 0
        self.now_ms: int | None = None

    def feed(self, now_ms: int, wall_ms: int) -> None:
        """Set both times of the next event."""
        self.ahead_ms, self.now_ms = wall_ms - now_ms, now_ms

    def since_ms(self, timestamp_ms: int) -> int:
        """Return the steady time of a timestamp, or the current time if the timestamp is in the
        future.

        A period that began before the broker started is measured by the wall clock. If this clock
        was set back, the period counts as beginning now, so that no deadline is further away than
        its whole length.
        """
        since_ms = timestamp_ms - self.ahead_ms
        return since_ms if self.now_ms is None or since_ms < self.now_ms else self.now_ms
