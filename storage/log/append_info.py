"""Values of an append to a log: the marker that is appended, and the result."""

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


class NewMarker(NamedTuple):
    """A marker that is to be appended.

    is_decided: whether a coordinator's decision restores it after a power loss. If not, and with
    flush.messages=1, its transaction is stable only when the disk has the marker.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    is_decided: bool
