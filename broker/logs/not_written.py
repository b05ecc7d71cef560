"""The refusal of a coordinator's records for which the disk has no space."""

from __future__ import annotations

MOST_LINES_OF_A_LOG = 1  # a minute, about records without space


class NotWrittenError(OSError):
    """The disk has no space for the records of a Result: none of them was written or replayed.

    It ends the broker as any OSError does, but for events that have changed nothing yet.
    """
