"""Runs each command in the documents that installs Barnabas. The commands are run exactly as
written, in a folder that contains a checkout.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))

from released import documents  # noqa: E402

pytestmark = pytest.mark.e2e

COMMAND = re.compile(r"pip install (?:-q )?(?:'\./barnabas\[[a-z,]+\]'|\./barnabas(?![\w.*-]))")
COMMANDS = sorted({found for path in documents() for found in COMMAND.findall(path.read_text())})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a clone of the project, and an environment that already has the
    requirements.
    """
    folder = tmp_path_factory.mktemp("beside")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        target = folder / "barnabas" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target, follow_symlinks=False)
    venv = [sys.executable, "-m", "venv", "--without-pip", folder / "venv"]
    subprocess.run(venv, check=True)
    pip = folder / "venv" / "bin" / "pip"
    pip.write_text('#!/bin/sh\nexec "$(dirname "$0")/python" -m pip "$@"\n')
    pip.chmod(0o755)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    here = Path(str(metadata.distribution("pytest").locate_file("")))
    (packages / "requirements.pth").write_text(f"{here}\n")
    return folder


ALWAYS = ("pip install './barnabas[cli]'",)  # the other commands are tried only by the long tests


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command, marks=() if command in ALWAYS else pytest.mark.long, id=command)
        for command in COMMANDS
    ],
)
def test_the_command_installs_the_checkout_with_the_requirements_of_its_extras(
    folder: Path, command: str
) -> None:
    environment = {
        **{name: text for name, text in os.environ.items() if name != "PYTHONPATH"},
        "PATH": f"{folder / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        # pip takes 0 as --no-build-isolation, so that it uses the setuptools that is already
        # installed
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_FORCE_REINSTALL": "0",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    version = subprocess.run(
        [folder / "venv" / "bin" / "barnabas", "--version"],
        cwd=folder, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert version.stdout.startswith("barnabas ")
