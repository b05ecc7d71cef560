"""When a process switches to compiled loops, and what it does if they are unavailable."""

from __future__ import annotations

import importlib.util
import logging
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.places import ROOT

pytest.importorskip("pyarrow")

from barnabas.installing import install_command
from barnabas.protocol.records import NewRecord, encode_batch, read_header
from barnabas.spark_connector.arrow import encoding_loops, numba_loops, record_loops
from barnabas.spark_connector.arrow.numba_loops import (
    CompiledLoops,
    DecoderChoice,
    EncoderChoice,
    EncodingLoops,
    UnavailableError,
)
from barnabas.spark_connector.arrow.record_batches import LocatedRecordBatch, Selection
from barnabas.spark_connector.option_error import OptionError

LOOPS = CompiledLoops(record_loops.parse, record_loops.headers, record_loops.gather)
ENCODING = EncodingLoops(encoding_loops.write_records, encoding_loops.murmur2)


def fetched(rows: int, *, offsets: int | None = None, size_bytes: int = 0) -> Selection:
    """A fetch of one batch whose header says that it has these numbers of rows and offsets."""
    last = (rows if offsets is None else offsets) - 1
    header = read_header(encode_batch([NewRecord(None, b"")]))
    header = header._replace(record_count=rows, last_offset_delta=last, batch_length=size_bytes)
    return Selection([LocatedRecordBatch(0, header)], last + 1, 1)


class Loading:
    """A replacement for the function that loads numba, which counts its calls."""

    def __init__(self) -> None:
        self.times = 0
        self.fails = ""

    def __call__(self) -> CompiledLoops:
        self.times += 1
        if self.fails:
            raise UnavailableError(self.fails)
        return LOOPS


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> Loading:
    counter = Loading()
    monkeypatch.setattr(numba_loops, "load", counter)
    monkeypatch.setattr(numba_loops, "is_cached", lambda: True)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    return counter


def test_little_is_read_with_arrays(loading: Loading) -> None:
    choice = DecoderChoice()
    assert choice.loops_for("auto", fetched(400), remaining=0) is None
    assert choice.loops_for("auto", fetched(100_000), remaining=500_000) is None
    assert loading.times == 0


def test_a_range_that_holds_much_is_read_with_loops_from_its_first_fetch_on(
    loading: Loading,
) -> None:
    choice = DecoderChoice()
    assert choice.loops_for("auto", fetched(100_000), remaining=20_000_000) is LOOPS
    assert choice.loops_for("auto", fetched(1), remaining=0) is LOOPS, "what is loaded is used"
    assert loading.times == 1


def test_large_records_are_worth_it_sooner(loading: Loading) -> None:
    assert (
        DecoderChoice().loops_for("auto", fetched(15_000, size_bytes=16_000_000), remaining=600_000)
        is LOOPS
    )
    assert (
        DecoderChoice().loops_for("auto", fetched(15_000, size_bytes=1_600_000), remaining=600_000)
        is None
    )


def test_what_a_process_reads_in_many_small_ranges_adds_up(loading: Loading) -> None:
    choice = DecoderChoice()
    used = [choice.loops_for("auto", fetched(100_000), remaining=0) is LOOPS for _ in range(100)]
    first = used.index(True)
    assert 10 < first < 90 and all(used[first:])


def test_offsets_that_compaction_emptied_are_not_taken_for_records(loading: Loading) -> None:
    assert (
        DecoderChoice().loops_for("auto", fetched(400, offsets=50_000_000), remaining=50_000_000)
        is None
    )
    assert loading.times == 0


def test_what_has_to_be_compiled_first_must_be_worth_more(
    loading: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba_loops, "is_cached", lambda: False)
    assert DecoderChoice().loops_for("auto", fetched(1000), remaining=4_000_000) is None
    assert DecoderChoice().loops_for("auto", fetched(1000), remaining=40_000_000) is LOOPS


def test_without_numba_arrays_do_it_and_the_log_says_so_once(
    loading: Loading, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    choice = DecoderChoice()
    assert choice.loops_for("auto", fetched(1), remaining=0) is None and not caplog.records, (
        "a small read does not need numba"
    )
    for _ in range(2):
        assert choice.loops_for("auto", fetched(1000), remaining=10**9) is None
    assert loading.times == 0
    assert [record.message for record in caplog.records] == [
        "barnabas: records are decoded with numpy, at half the speed or less, since numba is "
        f"missing: install it where the tasks run: {install_command('numba')}"
    ]


def test_a_fetch_of_nothing_decides_nothing(loading: Loading) -> None:
    assert DecoderChoice().loops_for("auto", Selection([], 5, 1), remaining=10**12) is None
    assert loading.times == 0


def test_the_option_decides(loading: Loading) -> None:
    choice = DecoderChoice()
    assert choice.loops_for("numba", fetched(1), remaining=0) is LOOPS
    assert choice.loops_for("numpy", fetched(1), remaining=10**9) is None


def test_loops_that_cannot_be_had_are_an_error_only_where_they_are_asked_for(
    loading: Loading, caplog: pytest.LogCaptureFixture
) -> None:
    loading.fails = "numba is too old"
    with pytest.raises(
        OptionError,
        match="option decoder=numba: numba is too old; or leave the option out",
    ):
        DecoderChoice().loops_for("numba", fetched(1), remaining=0)
    choice = DecoderChoice()
    with caplog.at_level(logging.WARNING, "barnabas.spark"):
        for _ in range(3):
            assert choice.loops_for("auto", fetched(1000), remaining=10**9) is None
    assert [record.getMessage() for record in caplog.records] == [
        "barnabas: records are decoded with numpy: numba is too old"
    ]
    assert loading.times == 2, "once for each choice"


def test_a_writer_goes_over_to_loops_when_they_would_have_paid(
    loading: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba_loops, "is_cached", lambda module, function: True)
    monkeypatch.setattr(numba_loops, "load_encoding", lambda: ENCODING)
    choice = EncoderChoice()
    assert choice.loops_for(400_000) is None and choice.loops_for(400_000) is None
    assert choice.loops_for(800_000) is ENCODING
    assert choice.loops_for(1) is ENCODING, "what is loaded is used"


def test_loops_of_a_writer_that_have_to_be_compiled_must_be_worth_more(
    loading: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba_loops, "is_cached", lambda module, function: False)
    monkeypatch.setattr(numba_loops, "load_encoding", lambda: ENCODING)
    choice = EncoderChoice()
    assert choice.loops_for(2_000_000) is None
    assert choice.loops_for(10_000_000) is ENCODING


def test_a_writer_without_numba_uses_arrays(
    loading: Loading, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def load_encoding() -> EncodingLoops:
        raise UnavailableError("numba is too old")

    monkeypatch.setattr(numba_loops, "is_cached", lambda module, function: True)
    monkeypatch.setattr(numba_loops, "load_encoding", load_encoding)
    choice = EncoderChoice()
    assert choice.loops_for(10**9) is None and choice.loops_for(10**9) is None
    assert [record.message for record in caplog.records] == [
        "barnabas: records are encoded with numpy: numba is too old"
    ]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert EncoderChoice().loops_for(10**9) is None and len(caplog.records) == 1


def test_numba_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    numba_loops.load.cache_clear()
    advice = re.escape(install_command("numba"))
    with pytest.raises(UnavailableError, match=rf"numba cannot be imported .*{advice}"):
        numba_loops.load()


def test_a_cache_that_cannot_be_used_is_done_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("numba")
    tried = []

    def compile_loops(*, cache: bool) -> CompiledLoops:
        tried.append(cache)
        if cache:
            raise RuntimeError("cannot cache")
        return LOOPS

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(numba_loops, "compile_loops", compile_loops)
    numba_loops.load.cache_clear()
    try:
        assert numba_loops.load() is LOOPS
    finally:
        numba_loops.load.cache_clear()
    assert tried == [True, True, False]


def test_loops_that_numba_may_not_compile_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    numba = pytest.importorskip("numba")
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    numba_loops.load.cache_clear()
    with pytest.raises(UnavailableError, match="NUMBA_DISABLE_JIT is set"):
        numba_loops.load()


def test_a_damaged_cache_is_made_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    numba = pytest.importorskip("numba")
    kept = numba_loops.load().parse.stats.cache_path  # type: ignore[attr-defined]
    if kept is None:
        pytest.skip("numba has no directory to write to here")
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert not numba_loops.is_cached()
    place = Path(numba.njit(cache=True)(record_loops.parse).stats.cache_path)
    shutil.copytree(
        kept,
        place,
        dirs_exist_ok=True,
        ignore=lambda _, names: [name for name in names if not name.startswith("record_loops.")],
    )
    assert numba_loops.is_cached()
    for data in place.glob("record_loops.parse-*.nbc"):
        data.write_bytes(data.read_bytes()[:100])
    numba_loops.load.cache_clear()
    again = numba_loops.load()
    assert (sum(again.parse.stats.cache_hits.values()), again.parse.stats.cache_path) == (
        0,
        str(place),
    )  # type: ignore[attr-defined]
    numba_loops.load.cache_clear()
    assert sum(numba_loops.load().parse.stats.cache_hits.values()) == 1  # type: ignore[attr-defined]


def test_nothing_of_numba_is_imported_before_it_is_worth_it() -> None:
    script = (
        "import sys; from spark_connector.arrow import numba_loops; "
        "from spark_connector.read import reading; "
        "numba_loops.is_cached(); sys.exit('numba' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, timeout=600, check=True)
