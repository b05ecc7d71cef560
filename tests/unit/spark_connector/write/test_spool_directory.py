"""The location of spool files without an option: a private directory, which must exist on the
driver.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from barnabas.spark_connector.write.spool import SpoolError
from barnabas.spark_connector.write.spool_directory import (
    check_checkpoint,
    check_temporary_directory,
    identity_of_temporary_directory,
    make_private_directory,
    private_directory,
)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_the_directory_is_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        for _ in range(2):
            make_private_directory(str(tmp_path / "spool"))
            assert mode_of(tmp_path / "spool") == 0o700
    finally:
        os.umask(before)


def test_a_directory_that_is_open_to_others_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    path.mkdir(mode=0o755)
    make_private_directory(str(path))
    assert mode_of(path) == 0o700


def test_two_users_have_two_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = private_directory()
    assert mine.startswith(tempfile.gettempdir())
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert private_directory() != mine


def test_another_users_directory_and_a_non_directory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    for name in ("file", "link"):
        with pytest.raises(SpoolError, match="belongs to another user or is not a directory"):
            make_private_directory(str(tmp_path / name))
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    with pytest.raises(SpoolError, match="set the option spoolDirectory"):
        make_private_directory(str(tmp_path / "theirs"))
    with pytest.raises(SpoolError, match=r"cannot be created: No such file or directory"):
        make_private_directory(str(tmp_path / "missing" / "spool"))


def test_a_task_with_another_temporary_directory_than_the_driver_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_driver = identity_of_temporary_directory()
    check_temporary_directory(of_driver)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(SpoolError, match=r"the driver has another one.*Set the option spoolDir"):
        check_temporary_directory(of_driver)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_task_that_cannot_see_the_checkpoint_is_an_error(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "check point").mkdir()
    name = "check point" if not scheme else "check%20point"
    check_checkpoint(f"{scheme}{tmp_path}/{name}")
    check_checkpoint("hdfs://nowhere/checkpoint", "metadata")
    with pytest.raises(SpoolError, match=r"on the driver's own disk\. Set the option spoolDirect"):
        check_checkpoint(f"{scheme}{tmp_path}/missing")
    (tmp_path / "check point" / "barnabas-spool").mkdir()  # left over from an earlier release
    with pytest.raises(SpoolError, match=r"on the driver's own disk"):
        check_checkpoint(f"{scheme}{tmp_path}/{name}", "metadata")
    (tmp_path / "check point" / "metadata").write_text("{}")
    check_checkpoint(f"{scheme}{tmp_path}/{name}", "metadata")
