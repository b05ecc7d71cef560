"""The examples as a user runs them: their folder is on the path, each test has topics of its own,
one broker and one PostgreSQL serve all.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from barnabas import LocalBroker

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples" / "guarantees"
sys.path.insert(0, str(EXAMPLES))

import guarantee_tools  # noqa: E402 (these are found by the line above)
from postgres_process import PostgresProcess  # noqa: E402

guarantee_tools.TIMEOUT_S = 300.0  # of a machine that does much else


@pytest.fixture(scope="session")
def broker() -> Iterator[LocalBroker]:
    """Sessions may be short, so that no client waits for dead ones."""
    settings = {
        "group.min.session.timeout.ms": "500",
        "transaction.two.phase.commit.enable": "true",
    }
    with LocalBroker(settings=settings) as running:
        yield running
        assert not [
            line
            for line in running.output
            if " ERROR " in line or " CRITICAL " in line or "Traceback" in line
        ], running.output[-60:]


@pytest.fixture
def servers(broker: LocalBroker) -> str:
    return broker.bootstrap_servers


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresProcess]:
    """A kill takes nothing that was written, fsynced or not."""
    with PostgresProcess({"fsync": "off"}) as running:
        yield running


@pytest.fixture
def dsn(postgres: PostgresProcess) -> str:
    """Without any table."""
    return empty_schema(postgres)


def empty_schema(postgres: PostgresProcess) -> str:
    """A schema is made in no time, where a database is a copy of files."""
    name = f"test_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{postgres.dsn} options='-c search_path={name}'"


@pytest.fixture(scope="session")
def shared_dsn(postgres: PostgresProcess) -> str:
    """For fixtures that live longer than a test."""
    return empty_schema(postgres)


@pytest.fixture
def name() -> str:
    """For topics and groups that no other test has."""
    return uuid.uuid4().hex[:8]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What client libraries leave open is their own affair."""
    for item in items:
        if "tests/examples" in str(item.path):
            item.add_marker(pytest.mark.e2e)
            for ignored in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{ignored}"))
