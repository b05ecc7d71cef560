"""The published distributions: a wheel and an sdist, which are installed into an empty environment
and run there.

The Python that runs the tests is always tried. The versions in BARNABAS_PYTHONS, which `make dist`
sets, are tried if the machine has them.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from helpers.e2e_clients import PATIENCE_S, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.long]  # run only by `make dist`

ROOT = Path(__file__).resolve().parents[2]
THIS = f"{sys.version_info[0]}.{sys.version_info[1]}"
VERSIONS = list(dict.fromkeys([THIS, *os.environ.get("BARNABAS_PYTHONS", "").split()]))


def interpreter(version: str) -> str | None:
    """A Python of the given version on the PATH or from pyenv, or None."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [
        shutil.which(f"python{version}"),
        *(str(path) for path in sorted(pyenv.glob(f"{version}.*/bin/python"))),
    ]
    for candidate in candidates:
        if candidate and subprocess.run([candidate, "-c", ""], check=False).returncode == 0:
            return candidate
    return None


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a command to its end, without this environment's PYTHONPATH. Gives: its output."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two files: the sdist, built from a copy of the tree, and the wheel, built from
    the sdist.
    """
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    files = run("git", "ls-files", "-z", cwd=ROOT).split("\0")
    for name in filter(None, files):
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", made, source)
    return made


def test_wheel_and_sdist_have_the_license_and_only_the_projects_packages(
    distributions: Path,
) -> None:
    (wheel,) = distributions.glob("*.whl")
    (sdist,) = distributions.glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {
        "barnabas",
        "pyspark_barnabas.py",
    }
    page = "barnabas/console/static/index.html"
    assert {"barnabas/py.typed", page, page.replace("index.html", "main.js")} <= set(names)
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    with tarfile.open(sdist) as archive:
        members = {member.split("/", 1)[-1] for member in archive.getnames()}
    assert {
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "barnabas/storage/log/log.py",
        page,
    } <= members


@pytest.mark.parametrize("version", VERSIONS)
def test_the_wheel_runs_in_an_empty_environment(
    distributions: Path, version: str, tmp_path: Path
) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    run(python, "-m", "venv", tmp_path / "venv")
    binaries = tmp_path / "venv" / "bin"
    run(binaries / "pip", "install", "-q", *distributions.glob("*.whl"))
    assert run(binaries / "barnabas", "--version").startswith("barnabas ")
    ready = tmp_path / "ready"
    options = ["--port", "0", "--data-dir", "data", "--ready-file", str(ready)]
    with subprocess.Popen(
        [str(binaries / "barnabas"), "start", *options],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as broker:  # fmt: skip
        try:
            eventually(ready.exists, what="it listens")
            host, port = ready.read_text().strip().split(":")
            socket.create_connection((host, int(port)), timeout=PATIENCE_S).close()
        finally:
            broker.terminate()
    assert broker.returncode == 0
