"""The codecs of record batches: their numbers (attributes, bits 0-2), and decompression of what
clients send.

    0 none   1 gzip   2 snappy (raw, or framed as Java writes it)   3 lz4 (a frame)   4 zstd

Brokers pass batches through as received; they decompress only to check a batch, to look into it, or
to store it in the codec that the topic's `compression.type` asks for. 33 KB may become 1 GB: so
nothing is decompressed but under a limit, into memory that never is larger, and what would be more
ends with TooLargeError. Source: Kafka's message format, KIP-110 (zstd), KIP-57 (lz4 frames),
KIP-390 (levels).
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import NamedTuple

import cramjam

from barnabas.protocol.errors import Code, KafkaError

XERIAL_MAGIC = b"\x82SNAPPY\0"
XERIAL_HEADER_SIZE = 16
LZ4_MAGIC = b"\x04\x22\x4d\x18"
LZ4_INDEPENDENT_BLOCKS = 0x20
XERIAL_BLOCK_SIZE = 32 * 1024
LZ4_BLOCK_SIZE = 64 * 1024
MOST_DECOMPRESSED_BYTES = 1 << 30  # where the caller knows of no lower limit
_FIRST_BYTES = 64 * 1024  # what decompresses to so much at first is given memory once
_GROWTH = 8
_PIECE_BYTES = 256 * 1024
_FEWEST_INPUT_BYTES, _MOST_INPUT_BYTES = 256, 64 * 1024  # given to zlib in one call
# members of gzip, blocks of snappy: 0.1 ms, whatever they hold; clients make blocks of 32 KiB
MOST_PARTS_AT_ONCE = 40
_MOST_SNAPPY_RATIO = 32  # a copy of 64 bytes is told in three
_GZIP = 16 + zlib.MAX_WBITS
LZ4_FAST_LEVEL = (
    9  # Apache Kafka's default, which stands for the fast compressor; the other numbers are levels
)


class Codec(IntEnum):
    """A batch's compression codec."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Levels(NamedTuple):
    """How hard each codec tries: Kafka's settings `compression.<codec>.level`.

    snappy has no levels.

    gzip: 1 to 9, -1 for the library's own (6). lz4: 1 to 17, where 9 stands for the fast
    compressor. zstd: -131072 to 22.
    """

    gzip: int = -1
    lz4: int = LZ4_FAST_LEVEL
    zstd: int = 3


DEFAULT_LEVELS = Levels()


class DecompressionError(KafkaError):
    """The compressed records cannot be read.

    Apache Kafka answers such a batch with UNKNOWN_SERVER_ERROR.
    """

    def __init__(self, codec: int, why: str) -> None:
        super().__init__(
            Code.UNKNOWN_SERVER_ERROR,
            f"the records do not decompress as {Codec(codec).name.lower()}: {why}",
        )


class TooLargeError(KafkaError):
    """The records decompress to more than may be.

    MESSAGE_TOO_LARGE: Java's producer then divides the batch, the others give it up.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(
            Code.MESSAGE_TOO_LARGE, f"the records decompress to more than {limit} bytes"
        )


class TooManyPartsError(Exception):
    """The records are in more members of gzip, or blocks of snappy, than the caller has time for.

    Each costs some microseconds, also where it holds nothing.
    """


def decompress(codec: int, data: bytes | memoryview, limit: int = MOST_DECOMPRESSED_BYTES) -> bytes:
    """The records of a batch, decompressed. Takes and raises what `decompress_to_memory` does."""
    return bytes(decompress_to_memory(codec, data, limit))


def decompress_to_memory(
    codec: int,
    data: bytes | memoryview,
    limit: int = MOST_DECOMPRESSED_BYTES,
    most_parts: int | None = None,
) -> bytes | bytearray:
    """The records of a batch, decompressed, in the memory that the codec wrote.

    What is large is not copied, which would hold up all threads.

    Takes:  codec, the number from the batch's attributes; data, what follows the 61-byte header;
            limit, the most bytes that may come of it; most_parts, the most members or blocks that
            are decompressed, None: there is no bound.
    Raises: DecompressionError when the data are not in that codec's form; TooLargeError;
            TooManyPartsError, only where most_parts is given.
    """
    if codec == Codec.NONE:
        return bytes(data)
    try:
        if codec == Codec.GZIP:
            return _decompress_gzip(data, limit, most_parts)
        if codec == Codec.SNAPPY:
            return _decompress_snappy(bytes(data), limit, most_parts)
        if codec == Codec.LZ4:
            _check_lz4(data)
            return _decompress_frames(cramjam.lz4.decompress_into, data, limit)
        return _decompress_frames(cramjam.zstd.decompress_into, data, limit)
    except (DecompressionError, TooLargeError, TooManyPartsError):
        raise
    except Exception as error:  # each library has its own; all mean that the peer's data are broken
        raise DecompressionError(codec, str(error)) from error


def _decompress_frames(
    decompress_into: Callable[[bytes | memoryview, bytearray], int],
    data: bytes | memoryview,
    limit: int,
) -> bytearray:
    """All frames of lz4 or zstd: into memory that grows until it does, or until the limit."""
    size = min(max(_FIRST_BYTES, _GROWTH * len(data)), limit)
    while True:
        out = bytearray(size)
        try:
            written = decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise
            if size == limit:
                raise TooLargeError(limit) from error
            size = min(_GROWTH * size, limit)
        else:
            del out[written:]
            return out


def _decompress_gzip(data: bytes | memoryview, limit: int, most_parts: int | None) -> bytearray:
    """All members, one after the other; nothing but zeros may follow them.

    zlib copies what it does not use of each input. So the input is given to it in pieces, which are
    small where a member begins and grow with it: a thousand members in a row cost a thousand small
    copies, and not a thousand copies of all that follows.
    """
    out = bytearray()
    view = memoryview(data)
    position = members = 0
    while True:
        members += 1
        if most_parts is not None and members > most_parts:
            raise TooManyPartsError
        position = _decompress_member(view, position, out, limit)
        position = _behind_zeros(view, position)
        if position == len(view):
            return out


def _decompress_member(view: memoryview, position: int, out: bytearray, limit: int) -> int:
    """Add what one member of gzip decompresses to. Gives where it ends."""
    stream = zlib.decompressobj(_GZIP)
    size = _FEWEST_INPUT_BYTES
    rest: bytes | memoryview = b""
    while not stream.eof:
        if not rest:
            rest = view[position : position + size]
            position += len(rest)
            size = min(2 * size, _MOST_INPUT_BYTES)
        is_last = not rest
        piece = stream.decompress(rest, _PIECE_BYTES)
        out += piece
        if len(out) > limit:
            raise TooLargeError(limit)
        rest = stream.unconsumed_tail
        if is_last and not piece and not stream.eof:
            raise DecompressionError(Codec.GZIP, "it is cut off")
    return position - len(stream.unused_data)


def _behind_zeros(view: memoryview, position: int) -> int:
    """Where zeros that begin there end."""
    size = _FEWEST_INPUT_BYTES
    while position < len(view):
        piece = bytes(view[position : position + size])
        rest = piece.lstrip(b"\0")
        position += len(piece) - len(rest)
        if rest:
            break
        size = min(2 * size, _MOST_INPUT_BYTES)
    return position


def compress(codec: int, data: bytes, levels: Levels = DEFAULT_LEVELS) -> bytes:
    """The records of a batch in the form that every Kafka client reads.

    That is xerial framing for snappy, and independent blocks for lz4.
    """
    if codec == Codec.NONE:
        return data
    if codec == Codec.GZIP:
        return gzip.compress(data, levels.gzip, mtime=0)
    if codec == Codec.SNAPPY:
        return _compress_snappy(data)
    if codec == Codec.LZ4:
        return (
            _compress_lz4(data)
            if levels.lz4 == LZ4_FAST_LEVEL
            else _compress_lz4_at(data, levels.lz4)
        )
    return bytes(cramjam.zstd.compress(data, level=levels.zstd))


def _decompress_snappy(data: bytes, limit: int, most_parts: int | None) -> bytes | bytearray:
    if not data.startswith(XERIAL_MAGIC):
        return _snappy_block(data, limit)
    out, position, blocks = bytearray(), XERIAL_HEADER_SIZE, 0
    while position < len(data):
        blocks += 1
        if most_parts is not None and blocks > most_parts:
            raise TooManyPartsError
        (size,) = struct.unpack_from(">i", data, position)
        position += 4
        if size < 0 or position + size > len(data):
            raise DecompressionError(Codec.SNAPPY, "a block is cut off")
        out += _snappy_block(data[position : position + size], limit, len(out))
        position += size
    return out


def _snappy_block(data: bytes, limit: int, before: int = 0) -> bytearray:
    """One block of snappy, decompressed.

    It says first how long it becomes, which is believed only as far as so few bytes can say so
    much.
    """
    size = cramjam.snappy.decompress_raw_len(data)
    if size > _MOST_SNAPPY_RATIO * len(data):
        raise DecompressionError(Codec.SNAPPY, f"{len(data)} bytes do not become {size}")
    if before + size > limit:
        raise TooLargeError(limit)
    out = bytearray(size)
    cramjam.snappy.decompress_raw_into(data, out)
    return out


def _compress_snappy(data: bytes) -> bytes:
    blocks = [XERIAL_MAGIC + struct.pack(">ii", 1, 1)]
    for start in range(0, len(data), XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + XERIAL_BLOCK_SIZE]))
        blocks.append(struct.pack(">i", len(block)) + block)
    return b"".join(blocks)


def _check_lz4(data: bytes | memoryview) -> None:
    if data[:4] != LZ4_MAGIC or len(data) < 7:
        raise DecompressionError(Codec.LZ4, "no frame begins there")
    if (
        not data[4] & LZ4_INDEPENDENT_BLOCKS
    ):  # the Java reader, which most consumers use, refuses them
        raise DecompressionError(
            Codec.LZ4, "its blocks depend on each other, which Java clients do not read"
        )


def _compress_lz4(data: bytes) -> bytes:
    """A frame of independent blocks.

    Magic, flags 0x60 (version 1, independent), 64 KB blocks (0x40), header checksum 0x82.
    """
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
