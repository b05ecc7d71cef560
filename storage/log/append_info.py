"""The result of an append to a log."""

from __future__ import annotations

from typing import NamedTuple


class AppendInfo(NamedTuple):
    """The result of an append; for a duplicate, the result of the earlier batch.

    last_offset is inclusive; log_append_time_ms is -1 if the records keep the producer's time.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool
