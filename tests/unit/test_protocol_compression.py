"""Compression levels (KIP-390): what each codec makes of them, read back by libraries that are not ours."""

from __future__ import annotations

import gzip
import random
import zlib

import lz4.frame
import pytest
import zstandard

from protocol.compression import DEFAULT_LEVELS, Codec, Levels, compress, decompress

_RANDOM = random.Random(390)
PLAIN = b"".join(
    b"%d:%s:%d;" % (number % 97, _RANDOM.choice([b"click", b"view", b"buy"]), _RANDOM.randrange(1000)) for number in range(9000)
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
def test_a_higher_level_makes_less_of_the_same(codec: Codec, quick: Levels, thorough: Levels) -> None:
    longer, shorter = compress(codec, PLAIN, quick), compress(codec, PLAIN, thorough)
    assert len(shorter) < 0.95 * len(longer)
    for data in (longer, shorter):
        assert READERS[codec](data) == PLAIN
        assert decompress(codec, data) == PLAIN


def test_the_defaults_are_apache_kafkas() -> None:
    """Deflater.DEFAULT_COMPRESSION, lz4-java's fast compressor, Zstd.defaultCompressionLevel()."""
    assert DEFAULT_LEVELS == (-1, 9, 3)
    assert compress(Codec.GZIP, PLAIN)[10:-8] == zlib.compress(PLAIN, 6, -15)
    assert compress(Codec.ZSTD, PLAIN) == compress(Codec.ZSTD, PLAIN, Levels(zstd=0)), "which is the library's word for its default"
    fast = lz4.frame.compress(PLAIN, compression_level=0, block_linked=False, store_size=False)
    assert abs(len(compress(Codec.LZ4, PLAIN)) - len(fast)) < 0.02 * len(fast)


@pytest.mark.parametrize("level", [1, 2, 3, 8, 9, 12, 17])
@pytest.mark.parametrize("plain", [b"", b"x", PLAIN, random.Random(1).randbytes(150_000)], ids=["nothing", "a byte", "text", "noise"])
def test_lz4_blocks_are_independent_at_every_level(level: int, plain: bytes) -> None:
    """Java's reader refuses a frame whose blocks depend on each other, and blocks of more than 64 KB need more memory than it has ready."""
    data = compress(Codec.LZ4, plain, Levels(lz4=level))
    told = lz4.frame.get_frame_info(data)
    assert (told["block_linked"], told["block_size"], told["content_checksum"]) == (False, 65536, False)
    assert lz4.frame.decompress(data) == plain
    assert decompress(Codec.LZ4, data) == plain


def test_what_has_no_levels_heeds_none() -> None:
    other = Levels(1, 1, 1)
    assert compress(Codec.NONE, PLAIN, other) == PLAIN
    assert compress(Codec.SNAPPY, PLAIN, other) == compress(Codec.SNAPPY, PLAIN)
