"""The codecs of record batches: their numbers (attributes, bits 0-2), and decompression of what clients send.

    0 none   1 gzip   2 snappy (raw, or in xerial's framing as Java writes it)   3 lz4 (a frame)   4 zstd

Brokers pass batches through as received; they decompress only to check a batch, to look into it, or to store it in the codec that the
topic's `compression.type` asks for. Source: Kafka's message format, KIP-110 (zstd), KIP-57 (lz4 frames), KIP-390 (levels).
"""

from __future__ import annotations

import gzip
import struct
from enum import IntEnum
from typing import NamedTuple

import cramjam

from protocol.errors import Code, KafkaError

XERIAL_MAGIC = b"\x82SNAPPY\0"
XERIAL_HEADER_SIZE = 16
LZ4_MAGIC = b"\x04\x22\x4d\x18"
LZ4_INDEPENDENT_BLOCKS = 0x20
XERIAL_BLOCK_SIZE = 32 * 1024
LZ4_BLOCK_SIZE = 64 * 1024
LZ4_FAST_LEVEL = 9  # Apache Kafka's default, which stands for the fast compressor; the other numbers are levels


class Codec(IntEnum):
    """A batch's compression codec."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Levels(NamedTuple):
    """How hard each codec tries, by Kafka's settings `compression.<codec>.level` and their defaults; snappy has no levels.

    gzip: 1 to 9, -1 for the library's own (6). lz4: 1 to 17, where 9 stands for the fast compressor. zstd: -131072 to 22.
    """

    gzip: int = -1
    lz4: int = LZ4_FAST_LEVEL
    zstd: int = 3


DEFAULT_LEVELS = Levels()


class DecompressionError(KafkaError):
    """The compressed records cannot be read. Apache Kafka answers such a batch with UNKNOWN_SERVER_ERROR."""

    def __init__(self, codec: int, why: str) -> None:
        super().__init__(Code.UNKNOWN_SERVER_ERROR, f"the records do not decompress as {Codec(codec).name.lower()}: {why}")


def decompress(codec: int, data: bytes | memoryview) -> bytes:
    """The records of a batch, decompressed.

    Takes:  codec, the number from the batch's attributes; data, what follows the 61-byte header.
    Raises: DecompressionError when the data are not in that codec's form.
    """
    if codec == Codec.NONE:
        return bytes(data)
    try:
        if codec == Codec.GZIP:
            return gzip.decompress(data)
        if codec == Codec.SNAPPY:
            return _decompress_snappy(bytes(data))
        if codec == Codec.LZ4:
            return _decompress_lz4(bytes(data))
        return bytes(cramjam.zstd.decompress(data))
    except DecompressionError:
        raise
    except Exception as error:  # each library has its own; all mean that the peer's data are broken
        raise DecompressionError(codec, str(error)) from error


def compress(codec: int, data: bytes, levels: Levels = DEFAULT_LEVELS) -> bytes:
    """The records of a batch in the form that every Kafka client reads (xerial framing for snappy, independent lz4 blocks)."""
    if codec == Codec.NONE:
        return data
    if codec == Codec.GZIP:
        return gzip.compress(data, levels.gzip, mtime=0)
    if codec == Codec.SNAPPY:
        return _compress_snappy(data)
    if codec == Codec.LZ4:
        return _compress_lz4(data) if levels.lz4 == LZ4_FAST_LEVEL else _compress_lz4_at(data, levels.lz4)
    return bytes(cramjam.zstd.compress(data, level=levels.zstd))


def _decompress_snappy(data: bytes) -> bytes:
    if not data.startswith(XERIAL_MAGIC):
        return bytes(cramjam.snappy.decompress_raw(data))
    blocks, position = [], XERIAL_HEADER_SIZE
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        position += 4
        if size < 0 or position + size > len(data):
            raise DecompressionError(Codec.SNAPPY, "a block is cut off")
        blocks.append(bytes(cramjam.snappy.decompress_raw(data[position : position + size])))
        position += size
    return b"".join(blocks)


def _compress_snappy(data: bytes) -> bytes:
    blocks = [XERIAL_MAGIC + struct.pack(">ii", 1, 1)]
    for start in range(0, len(data), XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + XERIAL_BLOCK_SIZE]))
        blocks.append(struct.pack(">i", len(block)) + block)
    return b"".join(blocks)


def _decompress_lz4(data: bytes) -> bytes:
    if not data.startswith(LZ4_MAGIC) or len(data) < 7:
        raise DecompressionError(Codec.LZ4, "no frame begins there")
    if not data[4] & LZ4_INDEPENDENT_BLOCKS:  # the Java reader, which most consumers use, refuses them
        raise DecompressionError(Codec.LZ4, "its blocks depend on each other, which Java clients do not read")
    return bytes(cramjam.lz4.decompress(data))


def _compress_lz4(data: bytes) -> bytes:
    """A frame of independent blocks: magic, flags 0x60 (version 1, independent), 64 KB blocks (0x40), header checksum 0x82."""
    parts = [LZ4_MAGIC + b"\x60\x40\x82"]
    for start in range(0, len(data), LZ4_BLOCK_SIZE):
        plain = data[start : start + LZ4_BLOCK_SIZE]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            parts.append(struct.pack("<I", len(block)) + block)
        else:
            parts.append(struct.pack("<I", len(plain) | 0x80000000) + plain)
    return b"".join(parts) + bytes(4)


def _compress_lz4_at(data: bytes, level: int) -> bytes:
    """A frame of independent blocks as the library makes it: only its frames heed a level."""
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())
