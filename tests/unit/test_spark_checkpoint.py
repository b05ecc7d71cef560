"""What the sink reads in a query's checkpoint, and the file that it keeps there."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from barnabas.spark_connector.checkpoint import BEGUN, DONE, NAME, Checkpoint


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_the_file_in_the_checkpoint(tmp_path: Path, scheme: str) -> None:
    checkpoint = Checkpoint(f"{scheme}{tmp_path}")
    assert checkpoint.published_before(3) == ""
    checkpoint.note(BEGUN, "g", 3)
    assert checkpoint.published_before(3) == "", "the driver may have died before it published"
    assert (
        checkpoint.published_before(4)
        == checkpoint.published_before(2)
        == "this query published batches from 3 on, as group 'g'"
    )
    checkpoint.note(DONE, "g", 3)
    assert checkpoint.published_before(3) == "this query published batches from 3 on, as group 'g'"
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    (tmp_path / NAME).write_bytes(b"{")
    assert checkpoint.published_before(3) == "this query published before"


def test_the_plan_of_a_batch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text("v1\n{}\n{}")
    (tmp_path / "offsets" / "4").write_text("v1\n{}\n{} ")
    checkpoint = Checkpoint(str(tmp_path))
    assert checkpoint.plan_of(3) == checkpoint.plan_of(3) != checkpoint.plan_of(4)
    assert checkpoint.plan_of(5) == ""
    for place in (None, "unknown:/x"):
        elsewhere = Checkpoint(place)
        assert elsewhere.plan_of(3) == elsewhere.published_before(3) == ""
    Checkpoint("unknown:/x").note(DONE, "g", 3)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
