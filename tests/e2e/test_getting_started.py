"""Each program of docs/GETTING_STARTED.md writes an order and reads it back.

Clients for other languages are in `.clients/`, into which `make clients` installs as many as the
machine allows (see tests/clients/fetch.sh). A test is skipped if its client is missing.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.local_broker import LocalBroker

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / ".clients"
PAGE = (ROOT / "docs" / "GETTING_STARTED.md").read_text("utf-8")
PROGRAMS = {
    heading: (language, program)
    for heading, language, program in re.findall(
        r"^###? ([^\n]+)\n(?:(?!^#).)*?^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE
    )
}
PYTHON = ("confluent-kafka", "kafka-python", "aiokafka")


def run_program(tmp_path: Path, heading: str, name: str, *command: str) -> None:
    """Run the program under a heading, with a broker that is started for it. Takes: name, the
    program's file; command, the command that runs this file.
    """
    with LocalBroker() as broker:
        program = PROGRAMS[heading][1]
        assert "127.0.0.1:9092" in program
        text = program.replace("127.0.0.1:9092", broker.bootstrap_servers)
        (tmp_path / name).write_text(text, "utf-8")
        environment = {**os.environ, "NODE_PATH": str(CLIENTS / "node" / "node_modules")}
        environment |= {"KAFKAJS_NO_PARTITIONER_WARNING": "1", "GOFLAGS": "-mod=mod"}
        done = subprocess.run(
            ["sh", "-c", *command],
            cwd=tmp_path,
            env=environment | {"GOPROXY": "off"},
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.split() == ["coffee"], done.stdout + done.stderr


def needs(is_there: bool, what: str) -> None:
    if not is_there:
        pytest.skip(f"{what} is not on this machine (`make clients` fetches what it can)")


def test_each_program_is_run_here() -> None:
    assert list(PROGRAMS) == [*PYTHON, "Java", "Go", "Node", "C"]
    assert PAGE.count("\n```python") == len(PYTHON)


def test_the_readme_has_the_same_first_program() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    (program,) = re.findall(r"```python\n(from confluent_kafka .*?)```", readme, re.DOTALL)
    assert program == PROGRAMS["confluent-kafka"][1]


@pytest.mark.parametrize("client", PYTHON)
def test_python(tmp_path: Path, client: str) -> None:
    run_program(tmp_path, client, "orders.py", f'"{sys.executable}" orders.py')


def test_java(tmp_path: Path) -> None:
    libraries = CLIENTS / "java"
    needs(shutil.which("java") is not None and any(libraries.glob("*.jar")), "Java's client")
    run_program(tmp_path, "Java", "Orders.java", f'java -cp "{libraries}/*" Orders.java')


def test_go(tmp_path: Path) -> None:
    module = CLIENTS / "go"
    needs(shutil.which("go") is not None and (module / "go.sum").exists(), "franz-go")
    for name in ("go.mod", "go.sum"):
        shutil.copy(module / name, tmp_path)
    run_program(tmp_path, "Go", "orders.go", "go run orders.go")


def test_node(tmp_path: Path) -> None:
    there = (CLIENTS / "node" / "node_modules" / "kafkajs").exists()
    needs(shutil.which("node") is not None and there, "kafkajs")
    run_program(tmp_path, "Node", "orders.js", "node orders.js")


def test_c(tmp_path: Path) -> None:
    asks = ["pkg-config", "--exists", "rdkafka"]
    tools = shutil.which("cc") is not None and shutil.which("pkg-config") is not None
    needs(tools and subprocess.run(asks, check=False).returncode == 0, "librdkafka's header")
    flags = "$(pkg-config --cflags --libs rdkafka)"
    run_program(
        tmp_path, "C", "orders.c", f"cc -Wall -Werror orders.c -o orders {flags} && ./orders"
    )
