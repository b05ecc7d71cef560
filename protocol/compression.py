"""The codecs of record batches: their numbers (attributes, bits 0-2), and decompression of the
batches of clients.

    0 none   1 gzip   2 snappy (raw, or framed as Java writes it)   3 lz4 (a frame)   4 zstd

A broker stores batches as received. It decompresses a batch only to check it, to read its records,
or to store it in the codec of the topic's `compression.type`. Since 33 KB may become 1 GB, there is
a limit for the decompressed size, and not more memory than this is ever allocated. TooLargeError is
raised if the limit is exceeded.

Source: Kafka's message format, KIP-110 (zstd), KIP-57 (lz4 frames), KIP-390 (levels).
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
MOST_DECOMPRESSED_BYTES = 1 << 30  # the limit if the caller sets no lower one
_FIRST_BYTES = 64 * 1024  # the smallest first allocation, which is enough for most batches
_GROWTH = 8
_PIECE_BYTES = 256 * 1024
# the number of bytes that are passed to one call of zlib
_FEWEST_INPUT_BYTES, _MOST_INPUT_BYTES = 256, 64 * 1024
# The maximum number of gzip members or snappy blocks: 0.1 ms in all. Clients make blocks of 32 KiB.
MOST_PARTS_AT_ONCE = 40
# above the highest ratio of snappy's format, in which three bytes can encode a copy of 64 bytes
_MOST_SNAPPY_RATIO = 32
_GZIP = 16 + zlib.MAX_WBITS
# Apache Kafka's default level, which means the fast compressor here. Other numbers are levels.
LZ4_FAST_LEVEL = 9


class Codec(IntEnum):
    """The compression codec of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Levels(NamedTuple):
    """The compression levels, which Kafka's settings `compression.<codec>.level` contain.

    gzip: 1 to 9, -1 for the library's default (6). lz4: 1 to 17, where 9 means the fast compressor.
    zstd: -131072 to 22. snappy has no levels.
    """

    gzip: int = -1
    lz4: int = LZ4_FAST_LEVEL
    zstd: int = 3


DEFAULT_LEVELS = Levels()


class DecompressionError(KafkaError):
    """Raised if the compressed records cannot be read.

    Apache Kafka returns UNKNOWN_SERVER_ERROR for such a batch.
    """

    def __init__(self, codec: int, why: str) -> None:
        super().__init__(
            Code.UNKNOWN_SERVER_ERROR,
            f"the records do not decompress as {Codec(codec).name.lower()}: {why}",
        )


class TooLargeError(KafkaError):
    """Raised if the decompressed records are larger than the limit.

    The code is MESSAGE_TOO_LARGE. Java's producer then splits the batch. Other clients drop it.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(
            Code.MESSAGE_TOO_LARGE, f"the records decompress to more than {limit} bytes"
        )


class TooManyPartsError(Exception):
    """Raised if the records have more gzip members or snappy blocks than the caller allows.

    Each member or block costs some microseconds, even if it is empty.
    """


def decompress(codec: int, data: bytes | memoryview, limit: int = MOST_DECOMPRESSED_BYTES) -> bytes:
    """Decompress the records of a batch. Takes, Raises: as `decompress_to_memory`."""
    return bytes(decompress_to_memory(codec, data, limit))


def decompress_to_memory(
    codec: int,
    data: bytes | memoryview,
    limit: int = MOST_DECOMPRESSED_BYTES,
    most_parts: int | None = None,
) -> bytes | bytearray:
    """Decompress the records of a batch.

    A large result is not copied, since a copy holds the interpreter's lock and so blocks all
    threads.

    Takes:  codec, the number from the batch's attributes; data, the bytes after the 61-byte header;
            limit, the maximum size of the result; most_parts, the maximum number of members or
            blocks, None for no limit.
    Gives:  the memory into which the codec wrote.
    Raises: DecompressionError if the data are not in the codec's format; TooLargeError;
            TooManyPartsError, only if most_parts is given.
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
    except Exception as error:  # each library raises its own exceptions, but only for broken data
        raise DecompressionError(codec, str(error)) from error


def _decompress_frames(
    decompress_into: Callable[[bytes | memoryview, bytearray], int],
    data: bytes | memoryview,
    limit: int,
) -> bytearray:
    """Decompress all frames of lz4 or zstd.

    It tries with more and more memory until the result fits, or until the limit is reached.
    """
    size = min(max(_FIRST_BYTES, _GROWTH * len(data)), limit)
    while True:
        out = bytearray(size)
        try:
            written = decompress_into(data, out)
        except cramjam.DecompressionError as error:
            # The library raises the same exception for all errors. Only its text shows that the
            # memory was too small.
            if "whole buffer" not in str(error):
                raise
            if size == limit:
                raise TooLargeError(limit) from error
            size = min(_GROWTH * size, limit)
        else:
            del out[written:]
            return out


def _decompress_gzip(data: bytes | memoryview, limit: int, most_parts: int | None) -> bytearray:
    """Decompress all gzip members, one after the other. Only zeros may follow them.

    zlib copies the unused part of each input. Therefore the input is passed in parts, which are
    small at the beginning of a member and then grow. A thousand members cost a thousand small
    copies, and not a thousand copies of the whole remaining input.
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
    """Decompress one gzip member and append the result to `out`. Gives: the position of its end."""
    stream = zlib.decompressobj(_GZIP)
    size = _FEWEST_INPUT_BYTES
    rest: bytes | memoryview = b""
    while not stream.eof:
        if not rest:
            rest = view[position : position + size]
            position += len(rest)
            size = min(2 * size, _MOST_INPUT_BYTES)
        is_last = not rest  # if no input is left, zlib may still have output
        piece = stream.decompress(rest, _PIECE_BYTES)
        out += piece
        if len(out) > limit:
            raise TooLargeError(limit)
        rest = stream.unconsumed_tail
        if is_last and not piece and not stream.eof:
            raise DecompressionError(Codec.GZIP, "it is cut off")
    # The last input may have contained the beginning of the next member.
    return position - len(stream.unused_data)


def _behind_zeros(view: memoryview, position: int) -> int:
    """Skip the zeros that begin at `position`. Gives: the position after them."""
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
    """Compress the records of a batch in a format that every Kafka client reads.

    For snappy this is xerial framing, for lz4 a frame of independent blocks.
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
    """Decompress the blocks of the xerial framing, or a single raw block."""
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
    """Decompress one snappy block.

    A block begins with its decompressed size. Before memory is allocated, this size is checked: it
    may be at most `_MOST_SNAPPY_RATIO` times the size of the block.
    """
    size = cramjam.snappy.decompress_raw_len(data)
    if size > _MOST_SNAPPY_RATIO * len(data):
        raise DecompressionError(Codec.SNAPPY, f"{len(data)} bytes do not decompress to {size}")
    if before + size > limit:
        raise TooLargeError(limit)
    out = bytearray(size)
    cramjam.snappy.decompress_raw_into(data, out)
    return out


def _compress_snappy(data: bytes) -> bytes:
    """Compress into blocks with the xerial framing, which Java clients write."""
    blocks = [XERIAL_MAGIC + struct.pack(">ii", 1, 1)]
    for start in range(0, len(data), XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + XERIAL_BLOCK_SIZE]))
        blocks.append(struct.pack(">i", len(block)) + block)
    return b"".join(blocks)


def _check_lz4(data: bytes | memoryview) -> None:
    """Raise DecompressionError unless an lz4 frame of independent blocks begins here."""
    if data[:4] != LZ4_MAGIC or len(data) < 7:
        raise DecompressionError(Codec.LZ4, "no frame begins there")
    # Java's reader, which most consumers use, rejects frames without independent blocks.
    if not data[4] & LZ4_INDEPENDENT_BLOCKS:
        raise DecompressionError(
            Codec.LZ4, "its blocks depend on each other, which Java clients cannot read"
        )


def _compress_lz4(data: bytes) -> bytes:
    """Make an lz4 frame of independent blocks.

    Header: magic, flags 0x60 (version 1, independent), 64 KB blocks (0x40), checksum 0x82.
    """
    parts = [LZ4_MAGIC + b"\x60\x40\x82"]
    for start in range(0, len(data), LZ4_BLOCK_SIZE):
        plain = data[start : start + LZ4_BLOCK_SIZE]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            parts.append(struct.pack("<I", len(block)) + block)
        else:
            # The highest bit of the size means that the block is stored without compression.
            parts.append(struct.pack("<I", len(plain) | 0x80000000) + plain)
    # A size of 0 ends the frame.
    return b"".join(parts) + bytes(4)


def _compress_lz4_at(data: bytes, level: int) -> bytes:
    """Make an lz4 frame of independent blocks at a compression level. Only the library's frame
    compressor supports levels.
    """
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())
