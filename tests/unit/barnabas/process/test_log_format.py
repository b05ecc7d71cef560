"""Log lines as JSON. Each line has the fields of its subject, even if the caller gave none."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.core_host import CoreHost

from barnabas.daemon import main as command
from barnabas.process.log_format import FIELDS, JsonFormatter
from barnabas.protocol.topic_partition import TopicPartition


def line(text: str, *arguments: Any, error: bool = False, **fields: Any) -> dict[str, Any]:
    record = logging.LogRecord("barnabas.x", logging.INFO, "", 0, text, arguments, None)
    record.created = 1_763_720_102.4175
    record.__dict__.update(fields)
    if error:
        record.exc_info = sys.exc_info()
    written = JsonFormatter().format(record)
    assert "\n" not in written
    return dict(json.loads(written))


def test_a_line_is_an_object() -> None:
    assert line('it says "%s"\n', "no") == {
        "time": "2025-11-21T10:15:02.417Z",
        "level": "INFO",
        "logger": "barnabas.x",
        "message": 'it says "no"\n',
    }


def test_a_log_or_partition_among_the_arguments_sets_topic_and_partition(tmp_path: Path) -> None:
    host = CoreHost(tmp_path)
    (log,) = host.create("orders")
    for argument in (log, TopicPartition("orders", 0)):
        shown = line("%s is well", argument)
        assert shown["message"] == "orders-0 is well"
        assert (shown["topic"], shown["partition"]) == ("orders", 0)
    host.close()


def test_other_fields_are_those_that_the_caller_gives() -> None:
    given = {name: name.upper() for name in FIELDS}
    shown = line("x", **given)
    assert {name: shown[name] for name in FIELDS} == given
    assert "transactional_id" not in line("x", transactional_id=None)


def test_fields_that_are_zero_or_empty_are_shown(tmp_path: Path) -> None:
    """Zero and empty are values: the first partition, offset, producer id and epoch are 0, and a
    client may have an empty name.
    """
    given = {"offset": 0, "producer_id": 0, "producer_epoch": 0, "client_id": ""}
    shown = line("%s", TopicPartition("orders", 0), **given)
    assert {name: shown[name] for name in given} == given
    assert (shown["topic"], shown["partition"]) == ("orders", 0)
    assert line("x", partition=0)["partition"] == 0


def test_an_exception_is_shown() -> None:
    try:
        raise ValueError("out of order")
    except ValueError:
        shown = line("it failed", error=True)
    assert "ValueError: out of order" in shown["exception"]


def test_a_level_that_there_is_not_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["start", "--port", "0", "--log-level", "barnabas=LOUD"]) == 1
    assert "TRACE, DEBUG, INFO, WARN, ERROR, FATAL" in capsys.readouterr().err
