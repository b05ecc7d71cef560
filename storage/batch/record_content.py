"""What an application wrote in a batch: keys, values and headers in their order.

A client that sends a batch again may encode it again: with the times of its second attempt
(kafkajs; sarama to 1.47), in other bytes of its codec, or in another codec. What the
application wrote is the same then, and the digest of this module, too.
"""

from __future__ import annotations

from hashlib import blake2b

from barnabas.protocol.records import decode_varint

_DIGEST_BYTES = 32
_BLOCK = 1024  # the number of records that are hashed together


def content_digest(body: bytes | bytearray | memoryview, position: int, count: int) -> bytes:
    """A digest of the keys, values and headers of the `count` records from `position` on.

    The fields after a record's offset delta are hashed as they are encoded: each has its length or
    number before it, so no two contents have the same bytes. The record's length, attributes and
    deltas are left out. The records were checked when they were written, or received.

    Raises: IndexError, KafkaError if these are no `count` records.
    """
    digest = blake2b(digest_size=_DIGEST_BYTES)
    while count > 0:
        contents = []
        for _ in range(min(count, _BLOCK)):
            size = body[position]
            if size > 0x7F:
                size, position = decode_varint(body, position)
            else:
                size, position = (size >> 1) ^ -(size & 1), position + 1
            end = position + size
            position += 1  # the attributes
            while body[position] > 0x7F:  # the timestamp delta
                position += 1
            position += 1
            while body[position] > 0x7F:  # the offset delta
                position += 1
            if not position < end <= len(body):
                raise IndexError(f"a record of {size} bytes does not end in the batch")
            contents.append(body[position + 1 : end])
            position = end
        digest.update(b"".join(contents))
        count -= _BLOCK
    return digest.digest()
