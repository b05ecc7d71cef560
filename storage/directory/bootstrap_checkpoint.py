"""Finds out whether a `bootstrap.checkpoint` was written when the directory was handed over to
Apache Kafka. That file contains topics; Kafka's own has only features and users. The check is only
made for directories with a mark or with Kafka's metadata (graduated.py).
"""

from __future__ import annotations

from barnabas.protocol.checksum import crc32c
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records import batches_in, has_right_crc, records_of
from barnabas.storage.disk import Disk

# The first bytes of the value of a topic record: frame version and API key.
_TOPIC_RECORD = b"\x01\x02"


def mark_of(bootstrap: bytes) -> bytes:
    """The content of the mark file for a `bootstrap.checkpoint` with this content."""
    return b"%08x\n" % crc32c(bootstrap)


def is_what_kafka_was_given(disk: Disk, mark: str, bootstrap: bytes) -> bool:
    """Whether this content of `bootstrap.checkpoint` was written by the hand-over to Apache Kafka.

    It was if its checksum is in the mark file. If the mark file was lost, the content was written
    by the hand-over if it has topics.

    Takes:  mark, the path of the mark file.
    """
    try:
        return disk.read(mark) == mark_of(bootstrap)
    except FileNotFoundError:
        return _holds_topics(bootstrap)


def _holds_topics(bootstrap: bytes) -> bool:
    """Whether the checkpoint has a topic record; False if the checkpoint cannot be read."""
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
