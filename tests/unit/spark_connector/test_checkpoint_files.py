"""How a local session gets the manager of checkpoint files, and which files the manager needs. The
manager itself is tested in tests/spark/test_checkpoint_files.py.
"""

from __future__ import annotations

import tempfile
import types
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JError

from barnabas.spark_connector.checkpoint_files import (
    BASE_CLASS,
    FILE_MANAGER,
    LOCAL_CLASS,
    SOURCE,
    use_quick_checkpoints,
)


class FakeJvm:
    """The py4j view of a fake JVM that has these classes, and also Janino if `has_janino` is set.

    The JVM can load a class if an added directory contains the complete class file.
    """

    def __init__(self, *classes: str, has_janino: bool = True) -> None:
        self.classes, self.has_janino = classes, has_janino
        self.compiled: list[str] = []
        self.directories: list[Path] = []

    def __getattr__(self, _: str) -> FakeJvm:
        return self  # this object also acts as any package or method

    def __call__(self, *_: object) -> FakeJvm:
        return self

    def classIsLoadable(self, name: str) -> bool:
        """Whether the class is in Spark or in an added directory. A damaged class file raises an
        error.
        """
        path = Path(*name.split(".")).with_suffix(".class")
        for directory in self.directories:
            if (directory / path).exists():
                if (directory / path).read_bytes() != b"code":
                    raise Py4JError("java.lang.ClassFormatError")
                return True
        return name in self.classes

    def File(self, path: str) -> Directory:
        return Directory(Path(path))

    def addURL(self, directory: Directory) -> None:
        self.directories.append(directory.path)

    def SimpleCompiler(self) -> FakeJvm:
        if not self.has_janino:
            raise TypeError("'JavaPackage' object is not callable")
        return self

    def cook(self, source: str) -> None:
        self.compiled.append(source)

    def getBytecodes(self) -> dict[str, bytes]:
        return {LOCAL_CLASS: b"code"}


class Directory(types.SimpleNamespace):
    def __init__(self, path: Path) -> None:
        super().__init__(path=path, toURI=lambda: self, toURL=lambda: self)


def session_with(jvm: FakeJvm, **settings: str) -> Any:
    conf = types.SimpleNamespace(get=settings.get, set=settings.__setitem__)
    return types.SimpleNamespace(
        conf=conf, version="4.3.0", sparkContext=types.SimpleNamespace(_jvm=jvm)
    )


def chosen(jvm: FakeJvm, **settings: str) -> str | None:
    """The file manager that the session uses afterwards. None means Spark's default."""
    session = session_with(jvm, **settings)
    use_quick_checkpoints(session)
    name: str | None = session.conf.get(FILE_MANAGER, None)
    return name


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    return tmp_path


def test_the_class_is_compiled_once(temporary: Path) -> None:
    first, second = FakeJvm(BASE_CLASS), FakeJvm(BASE_CLASS)
    assert chosen(first) == chosen(second) == LOCAL_CLASS
    assert (first.compiled, second.compiled) == ([SOURCE], [])
    (home,) = temporary.iterdir()
    assert home.stat().st_mode & 0o777 == 0o700
    assert [each.name for each in home.rglob("*.*")] == ["LocalCheckpointFileManager.class"]


def test_a_session_with_a_manager_keeps_it(temporary: Path) -> None:
    assert chosen(FakeJvm(BASE_CLASS), **{FILE_MANAGER: "mine"}) == "mine"
    assert not list(temporary.iterdir())


def test_a_release_without_the_base_class_keeps_its_default() -> None:
    jvm = FakeJvm()
    assert chosen(jvm) is None
    assert not jvm.compiled


def test_without_a_compiler_sparks_default_remains() -> None:
    assert chosen(FakeJvm(BASE_CLASS, has_janino=False)) is None


def test_a_directory_of_another_kind_is_not_used(temporary: Path) -> None:
    jvm = FakeJvm(BASE_CLASS)
    assert chosen(jvm) == LOCAL_CLASS
    (home,) = temporary.iterdir()
    home.rename(temporary / "elsewhere")
    home.symlink_to(temporary / "elsewhere")
    assert chosen(FakeJvm(BASE_CLASS)) is None


def test_a_damaged_class_is_compiled_again_by_the_next_session(temporary: Path) -> None:
    chosen(FakeJvm(BASE_CLASS))
    (code,) = temporary.rglob("*.class")
    code.write_bytes(b"co")
    assert chosen(FakeJvm(BASE_CLASS)) is None
    third = FakeJvm(BASE_CLASS)
    assert chosen(third) == LOCAL_CLASS
    assert third.compiled
