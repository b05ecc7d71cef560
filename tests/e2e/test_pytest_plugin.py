"""The pytest fixtures work in a project that has Barnabas installed, without an import or a
configuration.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]


def run_pytest(directory: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a new project with one file of tests."""
    (directory / "test_of_a_user.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTEST_XDIST_WORKER", None)
    environment.pop("PYTEST_ADDOPTS", None)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments, "."],
        cwd=directory, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_one_broker_serves_the_session(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        """
import pytest
seen = []

@pytest.fixture(scope="session")
def barnabas_options():
    return {"topics": {"orders": 3}}

@pytest.mark.parametrize("number", [1, 2])
def test_shared(barnabas_broker, barnabas_topic, number):
    seen.append((barnabas_broker.pid, barnabas_topic(partitions=2, cleanup_policy="compact")))

def test_it_was_one_with_topics_of_their_own():
    (pid, one), (again, other) = seen
    assert pid == again
    assert one != other
    assert one.startswith("test_shared-1-")
""",
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_a_fresh_broker_has_the_settings_and_topics_of_its_marker(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        """
import pytest
from confluent_kafka.admin import AdminClient
seen = set()

@pytest.mark.barnabas(settings={"num.partitions": 4}, topics=["orders"])
@pytest.mark.parametrize("number", [1, 2])
def test_fresh(fresh_barnabas_broker, number):
    seen.add(fresh_barnabas_broker.pid)
    admin = AdminClient({"bootstrap.servers": fresh_barnabas_broker.bootstrap_servers})
    assert len(admin.list_topics(timeout=30).topics["orders"].partitions) == 4

def test_each_had_its_own():
    assert len(seen) == 2
""",
        "--strict-markers",
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_a_marker_that_would_be_ignored_is_an_error(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        """
import pytest

@pytest.mark.barnabas(topics=["orders"])
def test_shared(barnabas_broker):
    pass

@pytest.mark.barnabas({"num.partitions": 4})
def test_positional(fresh_barnabas_broker):
    pass
""",
        "--strict-markers",
    )
    assert "2 errors" in done.stdout, done.stdout + done.stderr
    assert "barnabas_options" in done.stdout and "by name" in done.stdout


def test_a_failure_shows_the_brokers_log_and_open_transactions(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        """
from confluent_kafka import Producer

def test_that_fails(fresh_barnabas_broker):
    fresh_barnabas_broker.create_topic("orders", 2)
    settings = {"bootstrap.servers": fresh_barnabas_broker.bootstrap_servers}
    producer = Producer({**settings, "transactional.id": "delta"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"1", partition=1)
    producer.flush(30)
    assert False, "the commit is missing"
""",
    )
    assert "1 failed" in done.stdout, done.stdout + done.stderr
    assert "last log lines" in done.stdout
    assert "listens on 127.0.0.1" in done.stdout
    assert "delta: Ongoing, producer" in done.stdout
    assert "orders-1" in done.stdout


def test_a_failure_names_the_earlier_test_that_ended_the_shared_broker(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        """
def test_fine(barnabas_broker):
    assert barnabas_broker.is_running

def test_that_kills(barnabas_broker):
    barnabas_broker.kill()

def test_of_a_topic(barnabas_topic):
    barnabas_topic()

def test_of_the_broker(barnabas_broker):
    assert barnabas_broker.is_running

def test_that_starts_it_again(barnabas_broker):
    barnabas_broker.start()

def test_that_fails_for_another_reason(barnabas_broker):
    assert False
""",
    )
    assert "3 passed" in done.stdout and "3 failed" in done.stdout, done.stdout + done.stderr
    said = "during an earlier test, test_of_a_user.py::test_that_kills."
    assert done.stdout.count(said) == 2, done.stdout
    assert "uses fresh_barnabas_broker" in done.stdout


def test_each_process_of_xdist_has_its_own_broker(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_shared(barnabas_broker, barnabas_topic, number):
    assert barnabas_broker.is_running
    barnabas_topic()
""",
        "-n", "2",
    )  # fmt: skip
    assert "4 passed" in done.stdout, done.stdout + done.stderr


def test_forked_brokers_in_each_process_of_xdist_and_their_logs_in_reports(tmp_path: Path) -> None:
    done = run_pytest(
        tmp_path,
        """
import asyncio
import unittest
import pytest
from barnabas import LocalBroker
from barnabas.forked_daemon import FORKING, ForkedProcess

ports = set()

@pytest.fixture(autouse=True)
def is_forked(fresh_barnabas_broker):
    FORKING.wait_until_ready()
    ports.add(fresh_barnabas_broker.port)

@pytest.mark.barnabas(settings={"num.partitions": 2}, topics=["orders"])
@pytest.mark.parametrize("number", range(12))
def test_fresh(fresh_barnabas_broker, number):
    with fresh_barnabas_broker.admin() as admin:
        assert admin.open_transactions() == []

def test_async():
    async def run():
        async with LocalBroker() as broker:
            assert broker.is_running
    asyncio.run(run())

class OfUnittest(unittest.TestCase):
    def test_with(self):
        self.enterContext(LocalBroker())

def test_that_fails(fresh_barnabas_broker):
    while not isinstance(fresh_barnabas_broker.process, ForkedProcess):
        FORKING.wait_until_ready()
        fresh_barnabas_broker.restart()
    assert len(ports) < 2, "of a forked one"
""",
        "-n", "2",
    )  # fmt: skip
    assert "14 passed" in done.stdout, done.stdout + done.stderr
    assert "1 failed" in done.stdout, done.stdout + done.stderr
    assert "of a forked one" in done.stdout
    assert "last log lines" in done.stdout and "listens on 127.0.0.1" in done.stdout
