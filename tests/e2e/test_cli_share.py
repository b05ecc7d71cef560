"""`barnabas share consume`: against the real daemon."""

from __future__ import annotations

import pytest
from helpers.cli_commands import CommandLine
from helpers.e2e_clients import unique

pytestmark = pytest.mark.e2e


@pytest.fixture
def barnabas(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], servers: str
) -> CommandLine:
    """The command line, connected to the shared broker."""
    return CommandLine(monkeypatch, capsys).use(servers)


@pytest.fixture
def topic(barnabas: CommandLine) -> str:
    """A topic with one partition and four records."""
    name = unique("shared")
    barnabas.ok("topics", "create", name)
    barnabas.ok("produce", name, stdin="a\nb\nc\nd\n")
    return name


@pytest.fixture
def group(barnabas: CommandLine) -> str:
    """A share group that starts at the first record."""
    name = unique("workers")
    barnabas.ok("config", "set", "group", name, "share.auto.offset.reset=earliest")
    return name


def test_each_record_is_printed_once(barnabas: CommandLine, topic: str, group: str) -> None:
    some = ("share", "consume", topic, "-g", group, "--idle", "1")
    assert barnabas.ok(*some, "--count", "3").out == "a\nb\nc\n"
    assert barnabas.ok(*some).out == "d\n"
    assert barnabas.ok(*some).out == ""


def test_released_records_are_delivered_again_and_rejected_ones_are_not(
    barnabas: CommandLine, topic: str, group: str
) -> None:
    some = ("share", "consume", topic, "-g", group, "--idle", "1", "--json", "--count", "2")
    for kind, count in (("release", 1), ("reject", 2)):
        rows = barnabas.ok(*some, "--as", kind).lines
        assert [(row["value"], row["delivery_count"]) for row in rows] == [
            ("a", count),
            ("b", count),
        ]
    assert [row["value"] for row in barnabas.ok(*some).lines] == ["c", "d"]


def test_a_new_share_group_begins_after_the_last_record(barnabas: CommandLine, topic: str) -> None:
    """share.auto.offset.reset is latest by default. The first command creates the group, and the
    record is written after that.
    """
    some = ("share", "consume", topic, "-g", unique("workers"), "--idle", "1")
    assert barnabas.ok(*some).out == ""
    barnabas.ok("produce", topic, stdin="e\n")
    assert barnabas.ok(*some).out == "e\n"


def test_an_unknown_topic_is_an_error(barnabas: CommandLine, group: str) -> None:
    refused = barnabas("share", "consume", "nothing-of-it", "-g", group)
    assert (refused.code, "there is no topic 'nothing-of-it'" in refused.err) == (1, True)
