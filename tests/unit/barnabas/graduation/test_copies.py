"""A copy of a directory for Apache Kafka. Closed segments may be hard links; other files are real
copies.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.graduation import copies
from barnabas.graduation.copies import copy_directory

CLOSED, ACTIVE = f"{0:020}.log", f"{7:020}.log"
LEFT_OUT = (
    ".lock", "barnabas-boot-id", "barnabas-flush-0000000001.journal", "bootstrap.checkpoint",
    "t-0/segments.manifest", "t-0/barnabas-not-sent",
)  # fmt: skip
TAKEN = (
    "meta.properties", ".kafka_cleanshutdown", f"t-0/{CLOSED}", f"t-0/{ACTIVE}",
    f"t-0/{0:020}.index", "t-0/leader-epoch-checkpoint",
)  # fmt: skip


@pytest.fixture
def source(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    for name in ("t-0", f"t-1.{'0' * 32}-delete", "__cluster_metadata-0"):
        (directory / name).mkdir(parents=True)
        (directory / name / "file").write_bytes(b"f")
    for name in (*TAKEN, *LEFT_OUT):
        (directory / name).write_bytes(name.encode())
    return directory


@pytest.mark.parametrize("clones", [True, False])
def test_a_copy_has_kafkas_files_and_shares_only_closed_segments(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clones: bool
) -> None:
    """If the file system supports clones, closed segments are copied as reflinks. Otherwise they
    are hard links, since neither broker changes them. Kafka's writes to the copy must not reach any
    other file.
    """
    if not clones:
        monkeypatch.setattr(copies, "_is_cloned", lambda source, target: False)
    target, sizes = tmp_path / "kafka", []
    copy_directory(str(source), str(target), sizes.append)
    copied = sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())
    assert copied == sorted([*TAKEN, "t-0/file", "barnabas-unfinished"])
    for name in TAKEN:
        assert (target / name).read_bytes() == name.encode()
    assert sum(sizes) == sum((target / name).stat().st_size for name in copied if "/" in name)
    if not clones:
        assert (target / "t-0" / CLOSED).samefile(source / "t-0" / CLOSED)
    for name in set(TAKEN) - {f"t-0/{CLOSED}"}:
        assert not (target / name).samefile(source / name)
        with (target / name).open("ab") as file:
            file.write(b"of Kafka")
        assert (source / name).read_bytes() == name.encode()
