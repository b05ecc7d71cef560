"""The compression levels of each codec (KIP-390). Independent libraries decompress the result."""

from __future__ import annotations

import gzip
import random
import tracemalloc
import zlib
from typing import Any

import cramjam
import lz4.frame
import pytest
import zstandard

from barnabas.protocol.compression import (
    DEFAULT_LEVELS,
    MOST_PARTS_AT_ONCE,
    XERIAL_MAGIC,
    Codec,
    DecompressionError,
    Levels,
    TooLargeError,
    TooManyPartsError,
    compress,
    decompress,
    decompress_to_memory,
)
from barnabas.protocol.errors import Code

_RANDOM = random.Random(390)
PLAIN = b"".join(
    b"%d:%s:%d;"
    % (number % 97, _RANDOM.choice([b"click", b"view", b"buy"]), _RANDOM.randrange(1000))
    for number in range(9000)
)

READERS = {
    Codec.GZIP: gzip.decompress,
    Codec.LZ4: lz4.frame.decompress,
    Codec.ZSTD: lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
}


@pytest.mark.parametrize(
    ("codec", "quick", "thorough"),
    [
        (Codec.GZIP, Levels(gzip=1), Levels(gzip=9)),
        (Codec.LZ4, Levels(lz4=1), Levels(lz4=17)),
        (Codec.LZ4, Levels(lz4=9), Levels(lz4=8)),
        (Codec.ZSTD, Levels(zstd=-5), Levels(zstd=12)),
        (Codec.ZSTD, Levels(zstd=-131072), Levels(zstd=22)),
    ],
)
def test_a_higher_level_makes_less_of_the_same(
    codec: Codec, quick: Levels, thorough: Levels
) -> None:
    longer, shorter = compress(codec, PLAIN, quick), compress(codec, PLAIN, thorough)
    assert len(shorter) < 0.95 * len(longer)
    for data in (longer, shorter):
        assert READERS[codec](data) == PLAIN
        assert decompress(codec, data) == PLAIN


def test_the_defaults_are_apache_kafkas() -> None:
    """Kafka uses Deflater.DEFAULT_COMPRESSION, lz4-java's fast compressor, and
    Zstd.defaultCompressionLevel().
    """
    assert DEFAULT_LEVELS == (-1, 9, 3)
    assert compress(Codec.GZIP, PLAIN)[10:-8] == zlib.compress(PLAIN, 6, -15)
    assert compress(Codec.ZSTD, PLAIN) == compress(Codec.ZSTD, PLAIN, Levels(zstd=0)), (
        "which is the library's word for its default"
    )
    fast = lz4.frame.compress(PLAIN, compression_level=0, block_linked=False, store_size=False)
    assert abs(len(compress(Codec.LZ4, PLAIN)) - len(fast)) < 0.02 * len(fast)


@pytest.mark.parametrize("level", [1, 2, 3, 8, 9, 12, 17])
@pytest.mark.parametrize(
    "plain",
    [b"", b"x", PLAIN, random.Random(1).randbytes(150_000)],
    ids=["nothing", "a byte", "text", "noise"],
)
def test_lz4_blocks_are_independent_at_every_level(level: int, plain: bytes) -> None:
    """Java's reader refuses frames whose blocks depend on each other. For blocks of more than 64
    KB, it would need more memory than it reserves.
    """
    data = compress(Codec.LZ4, plain, Levels(lz4=level))
    reported = lz4.frame.get_frame_info(data)
    assert (reported["block_linked"], reported["block_size"], reported["content_checksum"]) == (
        False,
        65536,
        False,
    )
    assert lz4.frame.decompress(data) == plain
    assert decompress(Codec.LZ4, data) == plain


def test_what_has_no_levels_heeds_none() -> None:
    other = Levels(1, 1, 1)
    assert compress(Codec.NONE, PLAIN, other) == PLAIN
    assert compress(Codec.SNAPPY, PLAIN, other) == compress(Codec.SNAPPY, PLAIN)


PLAIN_PARTS = {
    Codec.GZIP: gzip.compress,
    Codec.LZ4: lambda data: compress(Codec.LZ4, data),
    Codec.ZSTD: lambda data: compress(Codec.ZSTD, data),
}


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_frames_that_follow_each_other_are_one_text(codec: Codec) -> None:
    part = PLAIN_PARTS[codec]
    assert decompress(codec, part(PLAIN) + part(b"") + part(b"and more")) == PLAIN + b"and more"
    with pytest.raises(DecompressionError):
        decompress(codec, part(PLAIN) + part(b"and more")[:-3])


@pytest.mark.parametrize("form", ["gzip", "xerial", "raw", "lz4", "zstd"])
def test_nothing_decompresses_to_more_than_the_limit(form: str) -> None:
    """Each compressed input expands to 64 MiB of zeros. The limit applies to the memory that
    tracemalloc measures.
    """
    codec = Codec.SNAPPY if form in ("xerial", "raw") else Codec[form.upper()]
    data = (
        bytes(cramjam.snappy.compress_raw(bytes(64 << 20)))
        if form == "raw"
        else compress(codec, bytes(64 << 20))
    )
    tracemalloc.start()
    try:
        with pytest.raises(TooLargeError, match=f"more than {1 << 20} bytes") as refused:
            decompress(codec, data, 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 4 * (1 << 20) + 2 * len(data)
    finally:
        tracemalloc.stop()
    assert refused.value.code == Code.MESSAGE_TOO_LARGE
    assert decompress(codec, data, 64 << 20) == bytes(64 << 20)


@pytest.mark.parametrize("form", ["gzip", "xerial", "raw", "lz4", "zstd"])
@pytest.mark.parametrize("kept", [0, 1, 20, 100, -5, -1])
def test_what_is_cut_off_is_refused(form: str, kept: int) -> None:
    codec = Codec.SNAPPY if form in ("xerial", "raw") else Codec[form.upper()]
    data = bytes(cramjam.snappy.compress_raw(PLAIN)) if form == "raw" else compress(codec, PLAIN)
    with pytest.raises(DecompressionError):
        decompress(codec, data[:kept])


def test_a_snappy_block_that_claims_four_gigabytes_gets_none_of_it() -> None:
    with pytest.raises(DecompressionError, match="7 bytes do not decompress to 4294967295"):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f\0a", 1 << 40)


_DECOMPRESSOBJ = zlib.decompressobj


class _CountingStreams:
    """Replaces `zlib.decompressobj`. `given_bytes` counts the bytes that the streams receive, and
    so bounds the number of bytes that are copied.
    """

    def __init__(self) -> None:
        self.given_bytes = 0

    def __call__(self, window_bits: int) -> Any:
        outer, stream = self, _DECOMPRESSOBJ(window_bits)

        class Counting:
            def decompress(self, data: Any, most: int) -> bytes:
                outer.given_bytes += len(data)
                return stream.decompress(data, most)

            def __getattr__(self, name: str) -> Any:
                return getattr(stream, name)

        return Counting()


@pytest.mark.parametrize("plain", [b"", b"a", PLAIN[:2000], PLAIN])
@pytest.mark.parametrize("zeros", [0, 700])
def test_a_member_of_gzip_costs_no_copy_of_all_that_follows_it(
    plain: bytes, zeros: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = gzip.compress(plain, mtime=0) + bytes(zeros)
    count = 300_000 // len(member)
    streams = _CountingStreams()
    monkeypatch.setattr(zlib, "decompressobj", streams)
    assert decompress(Codec.GZIP, member * count) == plain * count
    assert streams.given_bytes <= 15 * count * len(member)


MANY_PARTS = {
    Codec.GZIP: lambda count: gzip.compress(b"", mtime=0) * count,
    Codec.SNAPPY: lambda count: XERIAL_MAGIC + bytes(8) + b"\0\0\0\1\0" * count,
}


@pytest.mark.parametrize("codec", MANY_PARTS)
def test_parts_are_counted_where_time_is_short(codec: Codec) -> None:
    data = MANY_PARTS[codec](41)
    assert decompress(codec, data) == b""
    assert decompress_to_memory(codec, data, 10, 41) == b""
    with pytest.raises(TooManyPartsError):
        decompress_to_memory(codec, data, 10, 40)


@pytest.mark.parametrize("codec", MANY_PARTS)
def test_what_clients_compress_of_a_mebibyte_has_few_parts(codec: Codec) -> None:
    plain = bytes(1 << 20)
    data = compress(codec, plain)
    assert decompress_to_memory(codec, data, 1 << 20, MOST_PARTS_AT_ONCE) == plain
