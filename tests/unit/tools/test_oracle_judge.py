"""The verdict of `make oracle` on the output of the transcript runner, including failed runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from oracle import __main__ as oracle

OUTPUT = "FAILED one: (- Apache Kafka, + this broker)\n@@ -1 +1 @@\n- 1\n+ 2\n3 passed, 1 failed\n"
RUN = oracle.Run("a run", ("family",))


@pytest.mark.parametrize(
    ("reasons", "output", "code", "said"),
    [
        ({}, OUTPUT, 1, "3 passed, 0 differ by intention, 0 with the time, 1 failed"),
        ({"one": "why"}, OUTPUT, 0, "differs by intention: one: why"),
        ({"one": "why", "two": "why"}, OUTPUT, 1, "two differs no more"),
        ({}, "4 passed, 0 failed\n", 0, "4 passed, 0 differ by intention, 0 with the time"),
        ({}, "", 1, ""),
    ],
)  # fmt: skip
def test_a_difference_fails_unless_it_has_a_reason(
    reasons: dict[str, str],
    output: str,
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "scenarios").mkdir()
    scenarios = "@scenario\ndef one(b): ...\n\n@scenario\ndef two(b): ...\n"
    (tmp_path / "scenarios" / "family.py").write_text(scenarios)
    monkeypatch.setattr(oracle, "DIFFERENCES", {"a run": reasons})
    assert oracle._judge(tmp_path, RUN, ["family"], output) == code
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(("lines", "code"), [({"- 1", "+ 2"}, 0), ({"- 1", "+ 3"}, 1)])
def test_a_listed_timing_difference_passes_and_another_one_fails(
    lines: set[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "family.py").write_text("@scenario\ndef one(b): ...\n")
    monkeypatch.setattr(oracle, "OF_TIMING", {"one": (lines, "why")})
    assert oracle._judge(tmp_path, RUN, ["family"], OUTPUT) == code
    assert oracle._judge(tmp_path, RUN, ["family"], "4 passed, 0 failed\n") == 0
