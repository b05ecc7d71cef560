"""Loggers whose levels have log4j's names (KIP-412)."""

from __future__ import annotations

import logging

import pytest

from barnabas.broker.settings import loggers


@pytest.mark.parametrize(
    ("level", "number"), [("TRACE", 5), ("WARN", logging.WARNING), ("FATAL", logging.CRITICAL)]
)
def test_a_level_is_set_and_shown_by_its_log4j_name(level: str, number: int) -> None:
    logging.getLogger("barnabas.a-test")
    loggers.set_level("barnabas.a-test", level)
    assert logging.getLogger("barnabas.a-test").level == number
    assert loggers.levels()["barnabas.a-test"] == level
    loggers.set_level("barnabas.a-test", None)
    assert logging.getLogger("barnabas.a-test").level == logging.NOTSET


def test_a_level_between_two_is_shown_as_the_more_severe() -> None:
    logging.getLogger("barnabas.a-test").setLevel(logging.INFO + 1)
    assert loggers.levels()["barnabas.a-test"] == "WARN"
    logging.getLogger("barnabas.a-test").setLevel(logging.NOTSET)


@pytest.mark.parametrize(("kafkas", "ours"), loggers.KAFKAS.items())
def test_kafkas_loggers_set_those_that_write_about_the_same(kafkas: str, ours: str) -> None:
    """kafka-configs refuses a logger that DescribeConfigs does not list."""
    before = logging.getLogger(ours).level
    assert loggers.exists(kafkas)
    loggers.set_level(kafkas, "DEBUG")
    assert logging.getLogger(ours).level == logging.DEBUG
    assert loggers.levels()[kafkas] == "DEBUG"
    logging.getLogger(ours).setLevel(before)
    assert kafkas not in logging.Logger.manager.loggerDict or not kafkas.startswith("org.")


def test_exists_does_not_create_a_logger() -> None:
    assert not loggers.exists("barnabas.nobody-made-it")
    assert "barnabas.nobody-made-it" not in loggers.levels()
    assert loggers.exists(loggers.ROOT)
