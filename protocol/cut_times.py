"""The timestamps by which ListOffsets asks for a recorded cut of whole transactions.

They are far above all times, so that every client can send them where it sends the time of a
record, and a broker without cuts answers that it has no record so late:

    AT_OR_BEFORE + T   the newest recorded cut whose time is at or before T
    AT_OR_AFTER + T    the first recorded cut whose time is at or after T

T is a time in ms since 1970, below CUT_TIMES_END.
"""

from __future__ import annotations

AT_OR_BEFORE = 8_000_000_000_000_000_000
AT_OR_AFTER = 9_000_000_000_000_000_000
CUT_TIMES_END = 1_000_000_000_000_000


def asks_for_cut(timestamp: int) -> bool:
    """Whether a timestamp of ListOffsets asks for a recorded cut."""
    return (
        AT_OR_BEFORE <= timestamp < AT_OR_BEFORE + CUT_TIMES_END
        or AT_OR_AFTER <= timestamp < AT_OR_AFTER + CUT_TIMES_END
    )
