"""The audit log's lines, and the report of lines that cannot be written."""

from __future__ import annotations

import errno
import json
import logging
import os
from pathlib import Path

import pytest

from barnabas.broker.audit import AuditRecord
from barnabas.broker.rim.audit_log import AuditLog

RECORD = AuditRecord(
    "User:ann\n", "192.0.2.1", "client", 20, "DELETE", "TOPIC", "orders", is_allowed=False
)


def test_each_decision_is_a_line_of_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    for _ in range(2):  # a later start appends to the same file
        log = AuditLog(str(path))
        log.write([RECORD, RECORD._replace(is_allowed=True)], 1_700_000_000_123)
        log.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0] == {
        "time": "2023-11-14T22:13:20.123Z",
        "principal": "User:ann\n",
        "host": "192.0.2.1",
        "client_id": "client",
        "request": "DeleteTopics",
        "operation": "DELETE",
        "resource_type": "TOPIC",
        "resource_name": "orders",
        "allowed": False,
    }
    assert [line["allowed"] for line in lines] == [False, True] * 2
    assert path.stat().st_mode & 0o777 == 0o600


def test_write_failures_in_a_row_are_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The file is replaced by /dev/full, to which every write fails with ENOSPC."""
    log = AuditLog(str(tmp_path / "audit.log"))
    os.close(log._file)
    log._file = os.open("/dev/full", os.O_WRONLY)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            log.write([RECORD], 0)
    log.close()
    assert len(caplog.records) == 1 and "No space left" in caplog.text


def test_a_line_torn_by_a_full_disk_does_not_damage_the_next_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk has room for 10 bytes of the first line. When it has room again, the next line must
    not be appended to those 10 bytes: it would be lost with them.
    """
    path = tmp_path / "audit.log"
    log, room = AuditLog(str(path)), 10
    write = os.write

    def write_while_there_is_room(file: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = write(file, data[: min(room, 100)])
        room -= count
        return count

    monkeypatch.setattr("barnabas.broker.rim.audit_log.os.write", write_while_there_is_room)
    log.write([RECORD], 0)
    log.write([RECORD], 0)
    room = 1 << 20
    log.write([RECORD] * 3, 0)
    monkeypatch.undo()
    log.close()
    torn, *whole = path.read_text().splitlines()
    assert len(torn) == 10
    assert [json.loads(line)["resource_name"] for line in whole] == ["orders"] * 3


def test_a_renamed_file_is_left_when_the_log_is_opened_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, renamed = tmp_path / "logs" / "audit.log", tmp_path / "audit.log.1"
    path.parent.mkdir()
    log = AuditLog(str(path))
    log.write([RECORD], 0)
    path.rename(renamed)
    log.reopen()
    log.write([RECORD], 1)
    assert len(renamed.read_text().splitlines()) == len(path.read_text().splitlines()) == 1
    assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
    path.parent.rmdir()
    log.reopen()  # the former file stays in use
    log.write([RECORD], 2)
    log.close()
    assert "cannot be opened again" in caplog.text
    assert "cannot be written" not in caplog.text
