"""Whether a `bootstrap.checkpoint` is the one with which the directory was handed over to Apache
Kafka. If so, it has topics; Kafka's own has only features and users. This is only checked for
directories with a mark or with Kafka's metadata (graduated.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.checksum import crc32c
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records import batches_in, has_right_crc, records_of

if TYPE_CHECKING:
    from barnabas.storage.disk import Disk

# the first bytes of the value of a topic record: frame version, API key
_TOPIC_RECORD = b"\x01\x02"


def mark_of(bootstrap: bytes) -> bytes:
    """The content of the mark for a `bootstrap.checkpoint` with this content."""
    return b"%08x\n" % crc32c(bootstrap)


def is_what_kafka_was_given(disk: Disk, mark: str, bootstrap: bytes) -> bool:
    """Whether this content of `bootstrap.checkpoint` was written by the hand-over to Apache Kafka.

    It was if it matches the mark, whose path is given. If the mark was lost, it was if it has
    topics.
    """
    try:
        return disk.read(mark) == mark_of(bootstrap)
    except FileNotFoundError:
        return _holds_topics(bootstrap)


def _holds_topics(bootstrap: bytes) -> bool:
    """Whether the checkpoint has a record of a topic; False if it cannot be read."""
    try:
        for position, header in batches_in(bootstrap):
            batch = memoryview(bootstrap)[position : position + header.size_bytes]
            if not has_right_crc(batch, header):
                return False
            if not header.is_control and any(
                record.value is not None and bytes(record.value[:2]) == _TOPIC_RECORD
                for record in records_of(batch)
            ):
                return True
    except KafkaError:
        return False
    return False
