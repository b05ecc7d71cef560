"""Decisions that a partition has not heard of, since it was off line: they are kept until it is
there again.

A transaction may be decided while one of its partitions is off line (its log was damaged at the
start). What the coordinator knows of it goes with its next transaction, with compaction, or when
the transactional id expires; so the markers that such partitions lack are noted apart.

    barnabas-owed-markers    in the data directory; written whole, and on the disk before the
                             transaction counts as complete:

    | bytes | field                                                                       |
    |-------|-----------------------------------------------------------------------------|
    | 4     | CRC-32C of all that follows, uint32                                         |
    | n     | msgpack: a list of markers, in the order of the decisions                   |

    a marker        [topic, partition, topic id (16 bytes), producer id, producer epoch,
                     coordinator epoch, commit, time of the decision]

Kept are the first of each producer on each partition: what is open there was begun before the
partition went off line, and is of the transaction that was decided first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgpack
from crc32c import crc32c

from barnabas.storage.disk import Disk
from barnabas.storage.log_manager import LogDirectoryError

OWED_MARKERS_NAME = "barnabas-owed-markers"


class OwedMarker(NamedTuple):
    """What one partition is to be told of a transaction."""

    topic: str
    partition: int
    topic_id: bytes
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    decided_ms: int

    @property
    def place(self) -> tuple[str, int, bytes, int]:
        return self.topic, self.partition, self.topic_id, self.producer_id


class OwedMarkers:
    """The file, and what it holds. Raises LogDirectoryError where it is damaged."""

    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk = disk
        self._path = f"{data_dir}/{OWED_MARKERS_NAME}"
        self._markers: dict[tuple[str, int, bytes, int], OwedMarker] = {}
        if disk.exists(self._path):
            data = disk.read(self._path)
            if len(data) <= 4 or crc32c(data[4:]) != int.from_bytes(
                data[:4]
            ):  # the sum of no bytes is 0
                raise LogDirectoryError(
                    f"{self._path} is damaged; it says how transactions ended on partitions that "
                    "were off line: "
                    f"restore it from a copy; or, to have what is open there aborted, remove it"
                )
            self._markers = {
                marker.place: marker
                for marker in (OwedMarker(*row) for row in msgpack.unpackb(data[4:]))
            }

    def __len__(self) -> int:
        return len(self._markers)

    def add(self, markers: list[OwedMarker]) -> None:
        """Note them, on the disk. What is known of the same producer and partition stays as it is."""
        count = len(self._markers)
        for marker in markers:
            self._markers.setdefault(marker.place, marker)
        if len(self._markers) != count:
            self._write()

    def take(self, is_over: Callable[[OwedMarker], bool]) -> None:
        """Forget those that are over: their partition has been told, durably, or is no more."""
        left = {place: marker for place, marker in self._markers.items() if not is_over(marker)}
        if len(left) != len(self._markers):
            self._markers = left
            self._write()

    def _write(self) -> None:
        if self._markers:
            body: bytes = msgpack.packb(list(self._markers.values()))
            self._disk.write_atomic(self._path, crc32c(body).to_bytes(4) + body)
        else:
            self._disk.unlink(self._path)
