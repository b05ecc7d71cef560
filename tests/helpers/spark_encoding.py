"""The implementations of row encoding, all of which must produce the same bytes."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache

from barnabas.spark_connector.arrow import encoding_loops
from barnabas.spark_connector.arrow.numba_loops import (
    EncodingLoops,
    UnavailableError,
    load_encoding,
)

PLAIN = EncodingLoops(encoding_loops.write_records, encoding_loops.murmur2)


@lru_cache(maxsize=1)
def ways() -> list[EncodingLoops | None]:
    """The implementations: one with arrays (None), one with loops in plain Python, and one with
    compiled loops if numba is installed.
    """
    found = [None, PLAIN]
    with suppress(UnavailableError):
        found.append(load_encoding())
    return found
