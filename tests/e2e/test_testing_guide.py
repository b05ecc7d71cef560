"""Runs each program of docs/TESTING.md, and the cookbook to which it leads."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.local_broker import LocalBroker

pytestmark = [pytest.mark.e2e, pytest.mark.deep]

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "TESTING.md").read_text("utf-8")
COOKBOOK = ROOT / "examples" / "cookbook" / "test_cookbook.py"
RECIPES = re.findall(r"^def (test_\w+)", COOKBOOK.read_text("utf-8"), re.MULTILINE)


def programs(text: str) -> list[tuple[str, str]]:
    """Return each program in the text, as (language, program)."""
    return re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL)


PROGRAMS = programs(GUIDE)

NODE = """
const net = require("node:net");
startBroker().then(async (broker) => {
  const [host, port] = broker.address.split(":");
  await new Promise((resolve, reject) =>
    net.connect(Number(port), host, resolve).on("error", reject).unref());
  await broker.stop();
  console.log("done");
  process.exit(0);
});
"""
GO = """
package orders

import (
	"net"
	"testing"
)

func TestItListens(t *testing.T) {
	connection, err := net.Dial("tcp", broker)
	if err != nil {
		t.Fatal(err)
	}
	connection.Close()
}
"""
JAVA = """
class Main {
    public static void main(String[] arguments) throws Exception {
        try (LocalBroker broker = LocalBroker.start()) {
            String[] address = broker.bootstrapServers.split(":");
            new java.net.Socket(address[0], Integer.parseInt(address[1])).close();
        }
        System.out.println("done");
    }
}
"""


def program(language: str, containing: str) -> str:
    """Return the guide's only program in `language` whose text contains `containing`."""
    (text,) = [text for spoken, text in PROGRAMS if spoken == language and containing in text]
    return text


def run(directory: Path, *command: str) -> str:
    """Run a command in a directory, with `barnabas` on the PATH, and return its output."""
    binaries, temporary = directory / "binaries", directory / "temporary"
    binaries.mkdir(exist_ok=True)
    temporary.mkdir(exist_ok=True)
    barnabas = binaries / "barnabas"
    barnabas.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m barnabas "$@"\n')
    barnabas.chmod(0o755)
    environment = {
        name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")
    }
    environment |= {"PATH": f"{binaries}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    environment |= {"HOME": str(directory), "TMPDIR": str(temporary)}
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def needs(name: str) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"no {name} on this machine")


def test_the_guide_has_only_programs_of_the_languages_that_are_run_here() -> None:
    spoken = [language for language, _ in PROGRAMS]
    # `py` is the code of another library, which is replaced
    assert sorted(set(spoken)) == ["go", "java", "javascript", "py", "python", "sh", "yaml"]
    assert spoken.count("python") == 15


def test_with_pytest(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(program("python", "barnabas_options"))
    (tmp_path / "test_one.py").write_text(program("python", "test_what_is_sent_arrives"))
    (tmp_path / "test_two.py").write_text(program("python", "test_with_short_sessions"))
    said = run(tmp_path, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", ".")
    assert "2 passed" in said


def test_a_fresh_broker_and_what_replaces_other_libraries(tmp_path: Path) -> None:
    (tmp_path / "test_fresh.py").write_text(program("python", "test_an_order_arrives"))
    (tmp_path / "test_service.py").write_text(program("python", "test_the_service"))
    (tmp_path / "conftest.py").write_text(program("python", "def kafka_servers"))
    (tmp_path / "test_own.py").write_text(
        "def test_own(kafka_servers):\n    assert kafka_servers.startswith('127.0.0.1:')\n"
    )
    said = run(tmp_path, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", ".")
    assert "3 passed" in said
    (tmp_path / "script.py").write_text(
        program("python", "with LocalBroker() as kafka") + "    print(servers)\n"
    )
    assert run(tmp_path, sys.executable, "script.py").startswith("127.0.0.1:")


@pytest.mark.parametrize(
    ("library", "containing"),
    [
        ("faststream", "faststream.kafka"),
        ("celery", "start_worker"),
        ("quixstreams", "Application("),
        pytest.param("pyspark", "local_session", marks=pytest.mark.spark),
    ],
)
def test_with_a_framework(tmp_path: Path, library: str, containing: str) -> None:
    pytest.importorskip(library)
    (tmp_path / "test_it.py").write_text(program("python", containing))
    said = run(tmp_path, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", ".")
    assert "1 passed" in said


def test_a_script(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(program("python", "print(broker.bootstrap_servers)"))
    assert run(tmp_path, sys.executable, "script.py").startswith("127.0.0.1:")


def test_faults_and_time(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(program("python", "drop_answer"))
    assert run(tmp_path, sys.executable, "script.py") == "0\n"


def test_several_brokers(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(program("python", "without_broker"))
    assert run(tmp_path, sys.executable, "script.py") == ""


def test_with_curl(tmp_path: Path) -> None:
    needs("curl")
    with LocalBroker(control=True, brokers=3, topics=["orders"]) as broker:
        port = broker.control.url.rpartition(":")[2]
        script = f"set -e\nCONTROL={port}\n" + program("sh", "curl").replace("curl", "curl -sSf")
        assert '"met": 0' in run(tmp_path, "sh", "-c", script)


def test_the_guide_lists_each_recipe_of_the_cookbook() -> None:
    section = GUIDE.partition("\n## Cookbook\n")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"`(test_\w+)`", section)) == sorted(RECIPES)
    assert len(RECIPES) == 16


@pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.long)])
def test_the_cookbook(tmp_path: Path, half: int) -> None:
    """The recipe that the guide shows is run with the first half."""
    shutil.copy(COOKBOOK, tmp_path)
    chosen = [f"{COOKBOOK.name}::{name}" for name in RECIPES[half::2]]
    if half == 0:
        (tmp_path / "test_shown.py").write_text(program("python", "test_a_stuck_transaction_ends"))
        chosen.append("test_shown.py")
    said = run(tmp_path, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen)
    assert "passed" in said


def test_with_unittest(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(program("python", "unittest"))
    run(tmp_path, sys.executable, "-m", "unittest", "-q", "test_orders")


def test_with_node(tmp_path: Path) -> None:
    needs("node")
    (tmp_path / "orders.js").write_text(program("javascript", "startBroker") + NODE)
    assert run(tmp_path, "node", "orders.js") == "done\n"


def test_with_go(tmp_path: Path) -> None:
    needs("go")
    (tmp_path / "go.mod").write_text("module orders\n\ngo 1.18\n")
    (tmp_path / "broker_test.go").write_text(program("go", "TestMain"))
    (tmp_path / "orders_test.go").write_text(GO)
    assert run(tmp_path, "go", "test", "./...").startswith("ok")


def test_with_java(tmp_path: Path) -> None:
    needs("javac")
    (tmp_path / "LocalBroker.java").write_text(program("java", "class LocalBroker"))
    (tmp_path / "Main.java").write_text(JAVA)
    run(tmp_path, "javac", "-d", "classes", "LocalBroker.java", "Main.java")
    temporary = tmp_path / "java-temporary"
    temporary.mkdir()
    where = f"-Djava.io.tmpdir={temporary}"
    assert run(tmp_path, "java", where, "-cp", "classes", "Main") == "done\n"
    assert list(temporary.glob("barnabas-*")) == []
