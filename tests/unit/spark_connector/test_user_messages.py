"""Errors that PySpark shows without a traceback."""

from __future__ import annotations

import os

import pytest

from barnabas.client.notices import logger
from barnabas.spark_connector.user_messages import (
    errors_of_a_stream,
    hide_traceback,
    without_traceback,
)

VARIABLE = "SPARK_HIDE_TRACEBACK"  # Source: pyspark/util.py, handle_worker_exception


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "")


def test_errors_of_the_given_kinds_are_told_without_traceback() -> None:
    with pytest.raises(ValueError, match="wrong"), without_traceback(ValueError, OSError):
        raise ValueError("wrong")
    assert os.environ[VARIABLE] == "1"


def test_other_errors_keep_theirs() -> None:
    with pytest.raises(KeyError), without_traceback(ValueError):
        raise KeyError("ours")
    with without_traceback(ValueError):
        pass
    assert not os.environ[VARIABLE]


def test_an_error_of_a_stream_also_has_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Spark shows it within a trace of Java."""
    with pytest.raises(ValueError, match="wrong"), errors_of_a_stream(ValueError):
        raise ValueError("wrong")
    assert caplog.messages == ["barnabas: wrong"] and os.environ[VARIABLE] == "1"
    with pytest.raises(KeyError), errors_of_a_stream(ValueError):
        raise KeyError("ours")
    assert len(caplog.messages) == 1


def test_the_next_error_is_told_without_traceback() -> None:
    hide_traceback()
    assert os.environ[VARIABLE] == "1"


def test_the_logger_is_named_as_the_documentation_has_it() -> None:
    assert logger.name == "barnabas.spark"
