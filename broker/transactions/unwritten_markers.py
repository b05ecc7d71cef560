"""The markers that could not be written because their partitions were off line. They are kept until
the partitions are on line again.

A transaction may be decided while one of its partitions is off line (its log was damaged at the
start). The coordinator forgets such a transaction after the next one, by compaction, or when the
transactional id expires. So the missing markers of such partitions are recorded in a separate file.

    barnabas-unwritten-markers    in the data directory; written whole, and on the disk before the
                                  transaction counts as complete:

    | bytes | field                                                                       |
    |-------|-----------------------------------------------------------------------------|
    | 4     | CRC-32C of all that follows, uint32                                         |
    | n     | msgpack: a list of markers, in the order of the decisions                   |

    a marker        [topic, partition, topic id (16 bytes), producer id, producer epoch,
                     coordinator epoch, commit, time of the decision]

For each producer and partition, only the first marker is kept: the transaction that is open in the
partition began before the partition went off line, so it was decided first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgpack

from barnabas.protocol.checksum import crc32c
from barnabas.storage.disk import Disk, not_written
from barnabas.storage.log.log_directory import LogDirectoryError

UNWRITTEN_MARKERS_NAME = "barnabas-unwritten-markers"


class UnwrittenMarker(NamedTuple):
    """A marker that is missing in a partition."""

    topic: str
    partition: int
    topic_id: bytes
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    decided_ms: int

    @property
    def key(self) -> tuple[str, int, bytes, int]:
        """The unique key of a marker: the partition, with the topic's id, and the producer."""
        return self.topic, self.partition, self.topic_id, self.producer_id


def decode(data: bytes) -> list[UnwrittenMarker]:
    """The markers in the file's content. Raises: ValueError if it is damaged."""
    # The checksum of no bytes is 0, so four zero bytes need the first test.
    if len(data) <= 4 or crc32c(data[4:]) != int.from_bytes(data[:4]):
        raise ValueError("its checksum is wrong")
    return [UnwrittenMarker(*row) for row in msgpack.unpackb(data[4:])]


class UnwrittenMarkers:
    """The markers in the file. Raises: LogDirectoryError if the file is damaged."""

    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk, self._data_dir = disk, data_dir
        self._path = f"{data_dir}/{UNWRITTEN_MARKERS_NAME}"
        self._markers: dict[tuple[str, int, bytes, int], UnwrittenMarker] = {}
        if disk.exists(self._path):
            data = disk.read(self._path)
            try:
                markers = decode(data)
            except ValueError as error:
                raise LogDirectoryError(
                    f"{self._path} is damaged; it has the outcomes of transactions on "
                    "partitions that were off line: restore it from a copy; or, to abort the "
                    "open transactions there, remove it"
                ) from error
            self._markers = {marker.key: marker for marker in markers}

    def __len__(self) -> int:
        return len(self._markers)

    @property
    def producer_ids(self) -> set[int]:
        """The ids of the producers that lack a marker in any partition."""
        return {marker.producer_id for marker in self._markers.values()}

    def add(self, markers: list[UnwrittenMarker]) -> None:
        """Store markers durably. An earlier marker of the same producer and partition is kept.

        Raises: NotWrittenError if there is no disk space, in which case none is stored; OSError.
        """
        new = {marker.key: marker for marker in reversed(markers)}
        if new.keys() <= self._markers.keys():
            return
        before, self._markers = self._markers, new | self._markers
        try:
            self._write()
        except OSError as error:
            self._markers = before
            raise not_written(error) from error

    def remove(self, is_over: Callable[[UnwrittenMarker], bool]) -> None:
        """Delete the markers that are over: those that are durable in their partition, or whose
        partition is deleted.
        """
        left = {key: marker for key, marker in self._markers.items() if not is_over(marker)}
        if len(left) != len(self._markers):
            self._markers = left
            self._write()

    def _write(self) -> None:
        """Write the file with all markers durably, or remove it if there are none."""
        if self._markers:
            body: bytes = msgpack.packb(list(self._markers.values()))
            self._disk.write_atomic(self._path, crc32c(body).to_bytes(4) + body)
        else:
            self._disk.unlink(self._path)
            # Without this fsync, a power loss could restore the file, and its markers would end
            # later transactions.
            self._disk.fsync_dir(self._data_dir)
