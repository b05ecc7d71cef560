"""The result of an append to a log, and the description of a marker to append."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class AppendInfo:
    """The result of an append. For a duplicate it is the result of the earlier append.

    last_offset: inclusive. log_append_time_ms: -1 if the records keep the producer's time.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool


@dataclass(slots=True)
class NewMarker:
    """A marker to be appended.

    is_decided: whether the marker can be restored after a power loss from a coordinator's decision.
    If it cannot, and flush.messages=1, its transaction is stable only when the marker is on the
    disk.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    is_decided: bool
