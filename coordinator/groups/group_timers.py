"""The kinds of groups' timers. The key of each timer is (kind, group, member).

classic_groups.py, consumer/consumer_groups.py, streams/streams_groups.py and
offsets/offset_removal.py describe the timers.
"""

from __future__ import annotations

from barnabas.coordinator.timers import Timers

TimerKey = tuple[str, str, str]
SESSION, JOIN, SYNC, RETENTION = "session", "join", "sync", "retention"
REBALANCE, PATTERNS, FIRST_TARGET = "rebalance", "patterns", "first target"
ASSIGNING = "assigning"

OF_MEMBERS = (SESSION, REBALANCE, JOIN, SYNC)
OF_MODERN_GROUPS = (FIRST_TARGET, ASSIGNING)


def one_slice(timers: Timers[TimerKey], due: list[TimerKey], now_ms: int) -> list[TimerKey]:
    """The due keys, with at most one of the keys that compute a slice of an assignment.

    The other keys of that kind are due again at the next tick.
    """
    slices = [key for key in due if key[0] == ASSIGNING][1:]
    for key in slices:
        timers.schedule(key, now_ms)
    return [key for key in due if key not in slices] if slices else due


def cancel_member(timers: Timers[TimerKey], group_id: str, member_id: str) -> None:
    """Cancel all timers of a member."""
    for kind in OF_MEMBERS:
        timers.cancel((kind, group_id, member_id))
