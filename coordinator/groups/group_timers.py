"""The kinds of timers of groups; each is keyed (kind, group, member).

classic/rebalance.py, classic/group_members.py, consumer/consumer_groups.py,
streams/streams_groups.py and offsets/offset_removal.py describe them.
"""

from __future__ import annotations

from barnabas.coordinator.timers import Timers

TimerKey = tuple[str, str, str]
SESSION, JOIN, SYNC, RETENTION = "session", "join", "sync", "retention"
REBALANCE, PATTERNS, FIRST_TARGET = "rebalance", "patterns", "first target"

OF_MEMBERS = (SESSION, REBALANCE, JOIN, SYNC)


def cancel_member(timers: Timers[TimerKey], group_id: str, member_id: str) -> None:
    """Cancel all timers of a member."""
    for kind in OF_MEMBERS:
        timers.cancel((kind, group_id, member_id))
