"""The subscription that a consumer sends as the metadata of its protocol in JoinGroup.

The broker reads the topics alone; all else is between the consumers. All versions begin with the
fields of version 0, big-endian:

    version int16, topics (int32 count, each: int16 size and UTF-8), user_data (int32 size, bytes)

Source: Apache Kafka's schema ConsumerProtocolSubscription.
"""

from __future__ import annotations

import struct

CONSUMER_PROTOCOL_TYPE = "consumer"

_HEAD = struct.Struct(">hi")  # version, count of topics
_TOPIC_SIZE = struct.Struct(">h")
_USER_DATA_SIZE = struct.Struct(">i")


def subscribed_topics(metadata: bytes) -> list[str] | None:
    """The topics of a consumer's subscription; None where the bytes are no subscription."""
    try:
        version, count = _HEAD.unpack_from(metadata)
        if version < 0 or count < 0:
            return None
        topics, position = [], _HEAD.size
        for _ in range(count):
            (size,) = _TOPIC_SIZE.unpack_from(metadata, position)
            position += _TOPIC_SIZE.size + size
            if size < 0:
                return None
            topics.append(metadata[position - size : position].decode())
        (size,) = _USER_DATA_SIZE.unpack_from(metadata, position)
    except (struct.error, UnicodeDecodeError):
        return None
    return topics if position + _USER_DATA_SIZE.size + size <= len(metadata) else None
