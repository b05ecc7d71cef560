"""Every script runs without options and reports what happened."""

from __future__ import annotations

import subprocess
import sys

import pytest
from guarantee_tools import HERE


def said(*command: str) -> str:
    """The output of a Python command that must succeed."""
    ran = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=600, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.parametrize(
    "script",
    [
        "consume_transform_produce.py",
        "without_guarantee.py",
        "crash_demo.py",
        "into_postgres.py",
        "idempotent_upsert.py",
        "deduplicate_on_spark.py",
        "files.py",
        "bloom_filter.py",
    ],
)
def test_help(script: str) -> None:
    assert "--bootstrap-servers" in said(str(HERE / script), "--help")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("consume_transform_produce.py",), "invoices has 100 invoices of 100 orders"),
        (("without_guarantee.py",), "invoices has 100 invoices of 100 orders"),
        (("into_postgres.py",), "the table has 100 invoices of 100 orders"),
        (("idempotent_upsert.py",), "the table has 20 orders, of versions [5]"),
    ],
)
def test_alone(command: tuple[str, ...], expected: str) -> None:
    assert expected in said(str(HERE / command[0]), *command[1:])
