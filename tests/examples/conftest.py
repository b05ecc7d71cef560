"""Runs the examples as a user does: their folder is on the path, each test has its own topics, and
all tests share one broker and one PostgreSQL.
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

import guarantee_tools  # noqa: E402 (the line above makes these importable)
from postgres_process import PostgresProcess  # noqa: E402

guarantee_tools.TIMEOUT_S = 300.0  # long enough for a busy machine


@pytest.fixture(scope="session")
def broker() -> Iterator[LocalBroker]:
    """A broker that allows short session timeouts, so that no test waits long for a killed client
    to expire.
    """
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
    """A PostgreSQL without fsync, because tests kill only the process, which loses no writes."""
    with PostgresProcess({"fsync": "off"}) as running:
        yield running


@pytest.fixture
def dsn(postgres: PostgresProcess) -> str:
    """The connection string of a new, empty schema in PostgreSQL."""
    return empty_schema(postgres)


def empty_schema(postgres: PostgresProcess) -> str:
    """Create a schema and return its connection string. A new database would take longer, because
    PostgreSQL copies the files of a template.
    """
    name = f"test_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{postgres.dsn} options='-c search_path={name}'"


@pytest.fixture(scope="session")
def shared_dsn(postgres: PostgresProcess) -> str:
    """The connection string of an empty schema, for fixtures that are shared between tests."""
    return empty_schema(postgres)


@pytest.fixture
def name() -> str:
    """A unique name for topics and groups."""
    return uuid.uuid4().hex[:8]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore warnings about resources that client libraries leave open."""
    for item in items:
        if "tests/examples" in str(item.path):
            item.add_marker(pytest.mark.e2e)
            for ignored in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{ignored}"))
