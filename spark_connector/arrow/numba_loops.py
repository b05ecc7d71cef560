"""The loops of record_loops.py and encoding_loops.py, compiled by numba. This module decides
whether this process uses them, and loads them.

Array arithmetic decodes records (decoding.py) and encodes them (encoding.py). Compiled loops take a
third of its time to decode and a quarter to encode. But importing numba and loading the loops from
its cache takes as long as decoding a million records, and compiling the loops takes as long as
decoding several million. Spark's Python workers are short-lived processes, and reading a topic of
400 rows should take no noticeable time. A process therefore begins with arrays. It switches to the
loops when the time that they would have saved so far, and would save in the current range, is as
long as loading them takes.

    python -m barnabas.spark_connector.numba_loops      compiles now, for all future processes that
                                                        have access to the same cache
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol, TypeVar

from barnabas.client.notices import logger
from barnabas.installing import install_command
from barnabas.spark_connector.arrow import encoding_loops, record_loops
from barnabas.spark_connector.arrow.record_batches import Selection
from barnabas.spark_connector.option_error import OptionError

Loops_co = TypeVar("Loops_co", covariant=True)
ARRAYS, LOOPS, AUTO = "numpy", "numba", "auto"
# The times that loops save, and the times that loading and compiling them take, measured on one
# core of a busy machine (README.md, Decisions).
SAVED_PER_ROW_NS, SAVED_PER_BYTE_NS = 200, 1
SAVED_PER_ENCODED_ROW_NS = 400
LOADING_S, COMPILING_S = 0.6, 2.5


class CompiledLoops(NamedTuple):
    """The compiled functions of record_loops.py."""

    parse: Callable[..., bool]
    headers: Callable[..., bool]
    gather: Callable[..., bool]


class EncodingLoops(NamedTuple):
    """The compiled functions of encoding_loops.py."""

    write_records: Callable[..., bool]
    murmur2: Callable[..., bool]


class UnavailableError(Exception):
    """There are no compiled loops. The message says why."""


def _advice() -> str:
    return f"install it where the tasks run: {install_command('numba')}"


class DecoderChoice:
    """Chooses between arrays and loops for decoding, by how much the process has decoded so far."""

    def __init__(self) -> None:
        self._missed_ns = 0  # the time that loops would have saved so far
        self._loaded: CompiledLoops | None = None
        self._unavailable = False

    def loops_for(
        self, decoder: str, fetched: Selection, *, remaining: int
    ) -> CompiledLoops | None:
        """Return the compiled loops, or None if the fetch is to be decoded with arrays.

        Takes:  decoder, the option's value; fetched, the batches of the fetch; remaining, the
                number of offsets in the range after the fetch.
        Raises: OptionError if the option requires the loops and they are not available.
        """
        if decoder == ARRAYS:
            return None
        try:
            if self._loaded is None and (decoder == LOOPS or self._is_worth_it(fetched, remaining)):
                self._loaded = load()
        except UnavailableError as error:
            if decoder == LOOPS:
                raise OptionError(
                    f"option decoder=numba: {error}; or leave the option out"
                ) from error
            logger.warning("barnabas: records are decoded with numpy: %s", error)
            self._unavailable = True
        return self._loaded

    def _is_worth_it(self, fetched: Selection, remaining: int) -> bool:
        """Whether the loops save more time than it takes to load or compile them. The time that
        they would have saved so far counts as well.
        """
        if self._unavailable or not fetched.record_batches:
            return False
        saved_ns = sum(
            record_batch.header.record_count * SAVED_PER_ROW_NS
            + record_batch.header.size_bytes * SAVED_PER_BYTE_NS
            for record_batch in fetched.record_batches
        )
        offsets = (
            fetched.record_batches[-1].header.next_offset
            - fetched.record_batches[0].header.base_offset
        )
        self._missed_ns += saved_ns
        # The number of remaining records is estimated from this fetch, as compaction may have
        # removed most of them.
        total_s = (self._missed_ns + remaining * saved_ns // max(offsets, 1)) / 1e9
        if total_s < LOADING_S:
            return False
        if importlib.util.find_spec("numba") is None:
            self._unavailable = True
            logger.warning(
                "barnabas: records are decoded with numpy, at half the speed or less, since "
                "numba is missing: %s",
                _advice(),
            )
            return False
        return total_s >= COMPILING_S or is_cached()


class EncoderChoice:
    """Chooses between arrays and loops for encoding, by how much the process has encoded so far."""

    def __init__(self) -> None:
        self._missed_ns = 0  # the time that loops would have saved so far
        self._loaded: EncodingLoops | None = None
        self._unavailable = False

    def loops_for(self, rows: int) -> EncodingLoops | None:
        """Return the compiled loops, or None if the next `rows` rows are to be encoded with arrays.

        With this rule a process takes at most twice the time of the better choice.
        """
        if self._loaded is not None or self._unavailable:
            return self._loaded
        self._missed_ns += rows * SAVED_PER_ENCODED_ROW_NS
        if self._missed_ns < LOADING_S * 1e9:
            return None
        if importlib.util.find_spec("numba") is None:
            self._unavailable = True
        elif self._missed_ns >= COMPILING_S * 1e9 or is_cached(encoding_loops, "write_records"):
            try:
                self._loaded = load_encoding()
            except UnavailableError as error:
                logger.warning("barnabas: records are encoded with numpy: %s", error)
                self._unavailable = True
        return self._loaded


# there is one choice of each kind in a process, which keeps the loaded loops
decoder_choice = DecoderChoice()
encoder_choice = EncoderChoice()


@lru_cache(maxsize=1)
def load() -> CompiledLoops:
    """Load the compiled loops for decoding from numba's cache, or compile them now.

    Raises: UnavailableError.
    """
    return _load(record_loops, compile_loops)


@lru_cache(maxsize=1)
def load_encoding() -> EncodingLoops:
    """Load the compiled loops for encoding from numba's cache, or compile them now.

    Raises: UnavailableError.
    """
    return _load(encoding_loops, compile_encoding)


class _Compile(Protocol[Loops_co]):
    def __call__(self, *, cache: bool) -> Loops_co: ...


def _load(module: ModuleType, compile_now: _Compile[Loops_co]) -> Loops_co:
    """Compile the loops, or load them from the cache. A damaged cache is cleared; the last attempt
    uses none. Raises: UnavailableError.
    """
    try:
        import numba
    except ImportError as error:
        raise UnavailableError(f"numba cannot be imported ({error}); {_advice()}") from error
    if numba.config.DISABLE_JIT:
        raise UnavailableError(
            "NUMBA_DISABLE_JIT is set, and loops that are not compiled are slower than arrays; "
            "unset it"
        )
    for cache in (True, True, False):
        try:
            return compile_now(cache=cache)
        # A missing directory, a full disk, a damaged file or the compiler may be the cause. Each of
        # them raises another error.
        except Exception as error:
            reason = error
            logger.info("barnabas: numba %s its cache: %s", "with" if cache else "without", error)
            _clear_cache(module)
    raise UnavailableError(f"numba does not compile ({reason})") from reason


def compile_loops(*, cache: bool) -> CompiledLoops:
    """Compile the decoding loops now, for the types of arguments that decoding.py passes."""
    from numba import njit, types
    from numba.extending import register_jitable

    data = types.Array(types.uint8, 1, "C", readonly=True)
    ints, table, flags, flag_table = (
        types.int64[::1],
        types.int64[:, ::1],
        types.boolean[::1],
        types.boolean[:, ::1],
    )
    strings, edges = types.uint8[::1], types.int32[::1]
    register_jitable(record_loops.varint)
    # numba's bounds checks are enabled in case the loops' own checks are wrong. They cost 5 %. In
    # the copying loop they are disabled, since there they would cost nearly all the time that the
    # loop saves.
    checked = {"nogil": True, "cache": cache, "boundscheck": True}
    return CompiledLoops(
        parse=njit(types.boolean(data, ints, ints, ints, table, flag_table), **checked)(
            record_loops.parse
        ),
        headers=njit(types.boolean(data, ints, ints, ints, table, table, flags), **checked)(
            record_loops.headers
        ),
        gather=njit(
            types.boolean(data, ints, edges, strings), nogil=True, cache=cache, boundscheck=False
        )(record_loops.gather),
    )


def compile_encoding(*, cache: bool) -> EncodingLoops:
    """Compile the encoding loops now, for the types of arguments that encoding.py passes."""
    from numba import njit, types
    from numba.extending import register_jitable

    data = types.Array(types.uint8, 1, "C", readonly=True)
    edges = types.Array(types.int32, 1, "C", readonly=True)
    ints, lengths, out = types.int64[::1], types.uint32[::1], types.uint8[::1]
    for part in (encoding_loops.varint_size, encoding_loops.put_varint, encoding_loops.put_bytes):
        register_jitable(part)
    # numba's bounds checks would cost nearly all the time that the loops save. The loops have their
    # own checks.
    unchecked = {"nogil": True, "cache": cache, "boundscheck": False}
    strings = (lengths, edges, data)
    return EncodingLoops(
        write_records=njit(
            types.boolean(*(ints, ints, ints, ints), *strings, *strings, edges, data, out, ints),
            **unchecked,
        )(encoding_loops.write_records),
        murmur2=njit(types.boolean(data, edges, lengths), **unchecked)(encoding_loops.murmur2),
    )


def is_cached(module: ModuleType = record_loops, function: str = "parse") -> bool:
    """Whether one of numba's cache directories probably has compiled loops.

    The check does not import numba, which takes long.
    """
    version = f"{sys.version_info.major}{sys.version_info.minor}"
    return any(True for _ in _cached(module, f"{function}-*.py{version}*.nbi"))


def _clear_cache(module: ModuleType) -> None:
    """Delete the cached loops. Otherwise numba would fail each time because of a damaged file."""
    for file in _cached(module, "*.nb[ci]"):
        with suppress(OSError):
            file.unlink()


def _cached(module: ModuleType, pattern: str) -> Iterator[Path]:
    """Find the files of compiled loops in those cache directories to which this process may write.

    Source: numba's documentation, "Notes on Caching" and NUMBA_CACHE_DIR.
    """
    assert module.__file__ is not None
    here, name = Path(module.__file__).parent, module.__name__.rpartition(".")[2]
    set_by_user = os.environ.get("NUMBA_CACHE_DIR")
    if set_by_user:
        directories = list(Path(set_by_user).glob(f"{here.name}_*"))
    else:
        caches = os.path.expanduser(
            "~/Library/Caches"
            if sys.platform == "darwin"
            else os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        )
        directories = [here / "__pycache__", *Path(caches, "numba").glob(f"{here.name}_*")]
    for directory in directories:
        if os.access(directory, os.W_OK):
            yield from directory.glob(f"{name}.{pattern}")


def main() -> None:
    """Compile the loops, and print where they are stored."""
    start = time.perf_counter()
    try:
        loaded: Any = load()
        load_encoding()
    except UnavailableError as error:
        sys.exit(f"no compiled loops: {error}")
    where = loaded.parse.stats.cache_path
    kept = (
        f"kept in {where}"
        if where
        else "not cached: there is no writable directory; set NUMBA_CACHE_DIR to one"
    )
    print(f"compiled or loaded in {time.perf_counter() - start:.1f} s, {kept}")
