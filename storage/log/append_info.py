"""The result of an append to a log, and the description of a marker to append."""

from __future__ import annotations

from dataclasses import dataclass, field

MarkerHeader = tuple[str, bytes]
"""The header of a marker's record: its name and its value."""


@dataclass(slots=True)
class AppendInfo:
    """The result of an append. For a duplicate it is the result of the earlier append.

    last_offset: inclusive. log_append_time_ms: -1 if the records keep the producer's time.
    """

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool


EncodedMarker = tuple[bytearray, int, int, MarkerHeader | None, int]
"""The batch of a marker, its timestamp, the wall-clock time at which it was encoded, the header of
its record, and the CRC of the batch without its last bytes, if they differ between logs.
"""


@dataclass(slots=True)
class NewMarker:
    """A marker to be appended. The partitions of a transaction have the same one.

    is_decided: whether the marker can be restored after a power loss from a coordinator's decision.
    If it cannot, and flush.messages=1, its transaction is stable only when the marker is on the
    disk. decided_ms: the time of the decision, by which the decisions of a transactional id are
    ordered; None if the marker is written without a decision, by an operator or at a start.
    encoded: its batch, with what it was encoded from. Each partition gets these bytes, with its own
    base offset and leader epoch, and, with whole transactions, its own last bytes.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    is_decided: bool = True
    decided_ms: int | None = None
    encoded: EncodedMarker | None = field(default=None, init=False, repr=False, compare=False)
