"""The implementations of row encoding, all of which must give the same bytes."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache

from barnabas.spark_connector import encoding_loops
from barnabas.spark_connector.numba_loops import EncodingLoops, UnavailableError, load_encoding

PLAIN = EncodingLoops(encoding_loops.write_records, encoding_loops.murmur2)


@lru_cache(maxsize=1)
def ways() -> list[EncodingLoops | None]:
    """The implementations: arrays (None), loops in plain Python, and compiled loops if numba is
    installed.
    """
    found = [None, PLAIN]
    with suppress(UnavailableError):
        found.append(load_encoding())
    return found
