"""Topics selected by pattern, deletion of records, a group's offsets from a file, and lag and age
in lists.
"""

from __future__ import annotations

import json
import sys

import click
import pytest
from helpers.cli_commands import CommandLine
from helpers.e2e_clients import (
    committed_offset,
    consumer,
    eventually,
    producer,
    send_all,
    unique,
)

from barnabas.cli.options import confirm
from barnabas.daemon.main import main

pytestmark = pytest.mark.e2e


@pytest.fixture
def barnabas(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], servers: str
) -> CommandLine:
    """The command line, connected to the shared broker."""
    return CommandLine(monkeypatch, capsys).use(servers)


# --- patterns ------------------------------------------------------------------------------------


def test_topics_are_listed_described_and_deleted_by_pattern(barnabas: CommandLine) -> None:
    prefix = unique("load")
    names = [f"{prefix}-1", f"{prefix}-2", f"{prefix}.a"]
    barnabas.ok("topics", "create", *names)

    def listed(*arguments: str) -> list[str]:
        found = barnabas.ok("topics", "list", *arguments, "--json").data
        return [row["topic"] for row in found]

    assert listed(f"{prefix}*") == names
    assert listed(f"{prefix}-?") == names[:2]
    assert listed(f"{prefix}-[13]", names[2]) == [names[0], names[2]]
    assert listed("--regex", f"{prefix}-[0-9]+") == names[:2]
    assert listed("-e", prefix + r"\.a") == names[2:], "an escaped dot is not any character"
    assert "__consumer_offsets" not in listed("*"), "internal topics are left out"
    described = barnabas.ok("topics", "describe", f"{prefix}-*", "--json").data
    assert [row["topic"] for row in described] == names[:2]
    none = barnabas("topics", "describe", f"{prefix}-z*")
    assert (none.code, "no topic has the pattern" in none.err) == (1, True)
    wrong = barnabas("topics", "list", "-e", "(")
    assert (wrong.code, "is not a regular expression" in wrong.err) == (2, True)

    dry = barnabas.ok("topics", "delete", f"{prefix}-*", "--dry-run")
    assert dry.out.splitlines() == [f"{name}: would be deleted" for name in names[:2]]
    refused = barnabas("topics", "delete", f"{prefix}-*")
    assert (refused.code, "Delete 2 topics" in refused.err) == (2, True)
    assert names[0] in refused.err, "the topics that it matches are shown before"
    barnabas.ok("topics", "delete", "-e", f"{prefix}-.", "--yes")
    assert listed(f"{prefix}*") == names[2:]
    assert barnabas("topics", "delete", f"{prefix}-*", "--yes").code == 1
    barnabas.ok("topics", "delete", f"{prefix}-*", "--yes", "--if-exists")


@pytest.mark.parametrize(("typed", "goes_on"), [("2", True), ("y", False), ("3", False)])
def test_deletion_of_several_topics_is_confirmed_by_typing_their_number(
    monkeypatch: pytest.MonkeyPatch, typed: str, goes_on: bool
) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(click, "prompt", lambda *args, **kwargs: typed)
    if goes_on:
        confirm("Delete?", yes=False, type_in="2")
        return
    with pytest.raises(click.Abort):
        confirm("Delete?", yes=False, type_in="2")


# --- records that are deleted --------------------------------------------------------------------


def test_records_are_deleted_up_to_an_offset_or_a_time(barnabas: CommandLine, servers: str) -> None:
    name = unique("trim")
    barnabas.ok("topics", "create", name, "-p", "2")
    lines = [
        json.dumps({"value": str(number), "partition": 0, "timestamp_ms": 1_000_000 + number})
        for number in range(10)
    ]
    barnabas.ok("produce", name, "--json", stdin="\n".join(lines) + "\n")

    def starts() -> list[int]:
        rows = barnabas.ok("topics", "offsets", name, "--json").data
        return [row["log_start_offset"] for row in rows]

    dry = barnabas.ok("records", "delete", name, "--before", "4", "--dry-run", "--json").data
    assert [(row["new_log_start_offset"], row["offsets"]) for row in dry["partitions"]] == [
        (4, 4),
        (0, 0),
    ]
    assert starts() == [0, 0]
    assert barnabas("records", "delete", name, "--before", "4").code == 2, "without --yes"
    barnabas.ok("records", "delete", f"{name}-0", "--before", "4", "--yes")
    assert starts() == [4, 0]
    assert barnabas.ok("consume", name).out.split() == [str(number) for number in range(4, 10)]
    time = "1970-01-01T00:16:40.007Z"
    barnabas.ok("records", "delete", name, "--before", time, "--yes")
    assert starts() == [7, 0]
    again = barnabas.ok("records", "delete", name, "--before", "5", "--yes")
    assert "nothing was changed" in again.err
    barnabas.ok("records", "delete", name, "--before", "latest", "--yes")
    assert starts() == [10, 0]
    barnabas.ok("config", "set", "topic", name, "cleanup.policy=compact")
    barnabas.ok("produce", name, "--key", "a", "-p", "1", stdin="late\n")
    kept = barnabas("records", "delete", name, "--before", "latest", "--yes")
    assert (kept.code, f"{name}-1: " in kept.err) == (1, True)


# --- a group's offsets ---------------------------------------------------------------------------


def test_offsets_of_a_group_are_exported_to_a_file_and_reset_from_it(
    barnabas: CommandLine, servers: str
) -> None:
    name, group = unique("file"), unique("kitchen")
    barnabas.ok("topics", "create", name)
    send_all(servers, name, [b"%d" % number for number in range(10)])
    barnabas.ok("consume", name, "--group", group, "--count", "6")
    exported = barnabas.ok("groups", "export-offsets", group).out
    assert exported == f"{name},0,6\n"
    assert barnabas.ok("groups", "export-offsets", group, "--json").data == [
        {"topic": name, "partition": 0, "offset": 6}
    ]
    edited = f"# by hand\n\n{group},{name},0,2\n"
    reset = ("groups", "reset-offsets", group, "--from-file", "-")
    plan = barnabas.ok(*reset, "--dry-run", "--json", stdin=edited).data["partitions"]
    assert [(row["committed_offset"], row["new_offset"]) for row in plan] == [(6, 2)]
    assert committed_offset(servers, group, name) == 6
    barnabas.ok(*reset, "--yes", stdin=edited)
    assert committed_offset(servers, group, name) == 2
    barnabas.ok(*reset, "--yes", stdin=exported)
    assert committed_offset(servers, group, name) == 6
    for wrong, said in (
        (f"{name},0\n", "line 1 is not TOPIC,PARTITION,OFFSET"),
        (f"{name},0,-1\n", "line 1 is not"),
        (f"{name},0,1\n{name},0,2\n", "for a second time"),
        (f"{name},7,1\n", f"there is no partition {name}-7"),
        ("\n", "has no offsets"),
    ):
        refused = barnabas(*reset, "--yes", stdin=wrong)
        assert (refused.code, said in refused.err) == (1, True), refused
    both = barnabas(*reset, "--to", "latest", "--yes", stdin=exported)
    assert (both.code, "one of" in both.err) == (2, True)
    beyond = barnabas.ok(*reset, "--dry-run", "--json", stdin=f"{name},0,999\n").data
    assert beyond["partitions"][0]["new_offset"] == 10, "no further than the end"


def test_offsets_of_a_group_are_deleted(barnabas: CommandLine, servers: str) -> None:
    name, other, group = unique("gone"), unique("kept"), unique("kitchen")
    for topic in (name, other):
        barnabas.ok("topics", "create", topic)
        send_all(servers, topic, [b"a"])
        barnabas.ok("consume", topic, "--group", group)
    delete = ("groups", "delete-offsets", group)
    dry = barnabas.ok(*delete, "-t", name, "--dry-run", "--json").data
    assert [(row["topic"], row["committed_offset"]) for row in dry["partitions"]] == [(name, 1)]
    assert barnabas(*delete, "-t", name).code == 2
    barnabas.ok(*delete, "-t", f"{name}-0", "--yes")
    left = barnabas.ok("groups", "export-offsets", group).out
    assert left == f"{other},0,1\n"
    nothing = barnabas(*delete, "-t", name, "--yes")
    assert (nothing.code, "has no committed offsets for" in nothing.err) == (1, True)
    reader = consumer(servers, group)
    try:
        reader.subscribe([other])
        eventually(lambda: reader.poll(0.2) or reader.assignment(), what="an assignment")
        busy = barnabas(*delete, "-t", other, "--yes")
        assert busy.code == 1
        assert f"{other}-0: " in busy.err
    finally:
        reader.close()


# --- lag and age ---------------------------------------------------------------------------------


def _listed(barnabas: CommandLine, group: str, *arguments: str) -> dict[str, object]:
    """The group's row in `groups list`."""
    rows = barnabas.ok("groups", "list", "--json", *arguments).data
    (row,) = [row for row in rows if row["group"] == group]
    return dict(row)


def test_groups_are_listed_with_their_lag_and_its_trend(
    barnabas: CommandLine, servers: str
) -> None:
    name, group = unique("lag"), unique("kitchen")
    barnabas.ok("topics", "create", name)
    send_all(servers, name, [b"%d" % number for number in range(10)])
    barnabas.ok("consume", name, "--group", group, "--count", "10")
    assert _listed(barnabas, group)["status"] == "up to date"
    barnabas.ok("groups", "reset-offsets", group, "--to", "3", "--yes")
    row = _listed(barnabas, group)
    assert (row["lag"], row["lag_change"]) == (7, None)
    assert row["status"] == "7 behind", "`consume` commits without members"
    assert "lag" not in _listed(barnabas, group, "--no-lag")
    still = _listed(barnabas, group, "--trend", "0.05")
    assert still["status"] == "7 behind, unchanged for 0.05 s"
    assert "7 behind" in barnabas.ok("groups", "describe", group).out


def test_open_transactions_have_an_age_in_the_list(barnabas: CommandLine, servers: str) -> None:
    name = unique("aged")
    barnabas.ok("topics", "create", name)
    sender = producer(servers, transactional_id=name)
    sender.init_transactions()
    sender.begin_transaction()
    sender.produce(name, b"held")
    sender.flush(30)
    (row,) = [
        row
        for row in barnabas.ok("txn", "list", "--open", "--json").data
        if row["transactional_id"] == name
    ]
    assert row["age_ms"] >= 0
    assert row["start_time_ms"] > 0
    assert "OPEN FOR" in barnabas.ok("txn", "list").out
    sender.abort_transaction(30)
    (row,) = [
        row for row in barnabas.ok("txn", "list", "--json").data if row["transactional_id"] == name
    ]
    assert row["age_ms"] is None


# --- completion ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("topics describe", "topic"),
        ("records delete", "topic"),
        ("share consume", "topic"),
        ("groups describe", "group"),
        ("groups reset-offsets", "group"),
        ("txn describe", "transactional id"),
    ],
)
def test_names_of_the_cluster_are_completed(
    barnabas: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    kind: str,
) -> None:
    name = unique("completed")
    barnabas.ok("topics", "create", name)
    barnabas.ok("produce", name, "-t", name, stdin="a\n")
    barnabas.ok("consume", name, "--group", name)
    assert _completed(monkeypatch, capsys, words, name[:-1]) == [name], kind
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", "127.0.0.1:1")
    assert _completed(monkeypatch, capsys, words, name[:-1]) == [], (
        "without a broker, completion offers nothing and prints no error"
    )


def _completed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    incomplete: str,
) -> list[str]:
    """The words that a shell would offer for the incomplete last word, after these words of a
    command. Nothing may be written to standard error.
    """
    monkeypatch.setenv("_BARNABAS_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"barnabas {words} {incomplete}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) + 1))
    with pytest.raises(SystemExit):
        main([])
    monkeypatch.delenv("_BARNABAS_COMPLETE")
    out, err = capsys.readouterr()
    assert err == ""
    return [line.partition(",")[2] for line in out.splitlines() if line]


VERBS_OF_A_TOPIC = (
    ("topics", "describe", "{}"),
    ("topics", "offsets", "{}"),
    ("topics", "alter", "{}", "--partitions", "4"),
    ("consume", "{}"),
    ("share", "consume", "{}", "--group", "g"),
    ("records", "delete", "{}", "--before", "latest", "--yes"),
    ("config", "describe", "topic", "{}"),
    ("txn", "why-stuck", "{}-0"),
    ("groups", "reset-offsets", "g", "-t", "{}", "--to", "latest", "--yes"),
)


@pytest.mark.parametrize("words", VERBS_OF_A_TOPIC, ids=lambda words: " ".join(words[:2]))
def test_a_misspelled_topic_gets_a_similar_name(
    barnabas: CommandLine, words: tuple[str, ...]
) -> None:
    right = unique("orders")
    barnabas.ok("topics", "create", right)
    wrong = right.replace("orders", "ordres")
    run = barnabas(*(word.format(wrong) for word in words))
    assert run.code == 1 and f"there is no topic '{wrong}" in run.err
    assert f"; did you mean '{right}'?" in run.err


def test_a_misspelled_group_gets_a_similar_name(barnabas: CommandLine) -> None:
    right = unique("kitchen")
    barnabas.ok("topics", "create", right)
    barnabas.ok("produce", right, stdin="coffee\n")
    barnabas.ok("consume", right, "--group", right)
    run = barnabas("groups", "describe", right.replace("kitchen", "kitchne"))
    assert run.code == 1 and f"; did you mean '{right}'?" in run.err


def test_a_topic_that_produce_creates_is_told(barnabas: CommandLine) -> None:
    right = unique("orders")
    barnabas.ok("topics", "create", right)
    wrong = right.replace("orders", "ordres")
    told = barnabas.ok("produce", wrong, stdin="coffee\n").err
    assert f"there is no topic '{wrong}' yet: it is created with the first record" in told
    assert f"; did you mean '{right}'?" in told
    for name in (wrong, right):
        assert "there is no topic" not in barnabas.ok("produce", name, stdin="tea\n").err
