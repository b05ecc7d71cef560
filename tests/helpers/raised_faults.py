"""In tests that run a broker in their own process, an exception that `exception_guard` would
contain is raised, so that no fault of the broker stays unnoticed. Damaged files are no such faults.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from barnabas.storage import exception_guard
from barnabas.storage.files.segment_files import CorruptLog

REPORT = exception_guard.report


def _raise_faults(error: Exception, what: object) -> None:
    if not isinstance(error, CorruptLog):
        raise error
    REPORT(error, what)


@contextmanager
def reporting_by(report: Any) -> Iterator[None]:
    before, exception_guard.report = exception_guard.report, report
    try:
        yield
    finally:
        exception_guard.report = before


def raised_faults() -> Any:
    """A context in which contained exceptions are raised."""
    return reporting_by(_raise_faults)


def contained_faults() -> Any:
    """A context in which exceptions are contained, as in the daemon."""
    return reporting_by(REPORT)
