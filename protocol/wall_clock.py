"""The two times of the broker, and the way from one to the other.

| time | where it stands | what it is for |
|---|---|---|
| steady | `now_ms`, an argument of every event | deadlines, and how long ago something was |
| wall | `wall_ms`, every `..._timestamp` in a record | records say it, and are compared with it |

The steady time never steps: it goes on while the process runs, and its zero means nothing, so it
is never written down. The wall clock is what a person or a time server sets, so it may step, stand
or lie, and it is never waited for. A time that comes out of a record becomes a deadline through
`WallClock.since_ms`, once, when the record is replayed; from there on the steady time alone counts.

Some times in records also order events: the decisions of one transactional id. Such a time goes on
by a millisecond where the clock did not advance or was set back, but it leads the clock by no more
than MOST_LEAD_MS. Beyond that the record has the time of the clock, and the order is stored apart.
"""

from __future__ import annotations

MOST_LEAD_MS = 1000


class WallClock:
    """What the wall clock shows, for those few who write timestamps or compare with them.

    One value, shared by logs and coordinators; the rim feeds it before each event. Unfed, as in
    most tests, both times are the same.

    ahead_ms: how far the wall clock is ahead: an event of the steady time `now_ms` is at the wall
    time `now_ms + ahead_ms`.
    """

    __slots__ = ("_now_ms", "ahead_ms")

    def __init__(self) -> None:
        self.ahead_ms = 0
        self._now_ms: int | None = None

    def feed(self, now_ms: int, wall_ms: int) -> None:
        """Both times of the event that comes."""
        self.ahead_ms, self._now_ms = wall_ms - now_ms, now_ms

    @property
    def now_ms(self) -> int | None:
        """The steady time of the event that came last; None: it is not fed."""
        return self._now_ms

    def since_ms(self, timestamp_ms: int) -> int:
        """The steady time of a timestamp.

        Of one that is yet to come, as the clock stands, it is now.

        So what has been recorded before a start has run for as long as the wall clock says, but not
        for less than nothing: a clock that was set back prolongs no deadline beyond its whole
        length.
        """
        since_ms = timestamp_ms - self.ahead_ms
        return since_ms if self._now_ms is None or since_ms < self._now_ms else self._now_ms
