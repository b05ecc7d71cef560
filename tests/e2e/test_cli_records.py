"""`barnabas produce`, `consume` and `txn`: against the real daemon."""

from __future__ import annotations

import json

import pytest
from helpers.cli_commands import CommandLine
from helpers.e2e_clients import (
    PATIENCE_S,
    committed_offset,
    consumer,
    eventually,
    producer,
    send_all,
    unique,
    values_of,
)

pytestmark = pytest.mark.e2e


@pytest.fixture
def barnabas(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], servers: str
) -> CommandLine:
    """The command line, connected to the shared broker."""
    return CommandLine(monkeypatch, capsys).use(servers)


@pytest.fixture
def topic(barnabas: CommandLine) -> str:
    """A topic with one partition."""
    name = unique("lines")
    barnabas.ok("topics", "create", name)
    return name


def test_lines_in_and_out(barnabas: CommandLine, topic: str) -> None:
    barnabas.ok("produce", topic, stdin="one\ntwo\n\nfour")
    assert barnabas.ok("consume", topic).out == "one\ntwo\n\nfour\n"
    assert barnabas.ok("consume", topic, "--from", "1", "--to", "3").out == "two\n\n"
    assert barnabas.ok("consume", f"{topic}-0", "--count", "1").out == "one\n"
    assert barnabas.ok("consume", topic, "--from", "latest").out == ""


def test_a_record_above_one_mebibyte_goes_to_a_topic_that_allows_it(
    barnabas: CommandLine, topic: str
) -> None:
    large = b"x" * 3_000_000 + b"\n"
    refused = barnabas("produce", topic, stdin=large)
    assert (refused.code, "max.message.bytes" in refused.err) == (1, True)
    barnabas.ok("topics", "alter", topic, "--config", "max.message.bytes=4000000")
    barnabas.ok("produce", topic, stdin=large)
    assert barnabas.ok("consume", topic).out.encode() == large


def test_an_offset_beyond_the_end_is_an_error_with_the_end_offset(
    barnabas: CommandLine, topic: str
) -> None:
    barnabas.ok("produce", topic, stdin="one\ntwo\n")
    assert barnabas.ok("consume", topic, "--from", "2").out == ""
    beyond = barnabas("consume", topic, "--from", "999999999")
    assert (beyond.code, beyond.out) == (1, "")
    assert f"{topic}-0 ends at offset 2" in beyond.err
    barnabas.ok("topics", "alter", topic, "--partitions", "2")
    some = barnabas.ok("consume", topic, "--from", "1")
    assert some.out == "two\n"
    assert f"{topic}-1 ends at offset 0" in some.err


def test_keys_and_headers(barnabas: CommandLine, topic: str) -> None:
    barnabas.ok("produce", topic, "-K", ":", "-H", "origin=test", stdin="a:1:x\nb:2\n")
    assert barnabas.ok("consume", topic, "-K", "=").out == "a=1:x\nb=2\n"
    rows = barnabas.ok("consume", topic, "--json").lines
    assert [(row["key"], row["value"], row["headers"]) for row in rows] == [
        ("a", "1:x", [["origin", "test"]]),
        ("b", "2", [["origin", "test"]]),
    ]
    bad = barnabas("produce", topic, "-K", ":", stdin="no separator\n")
    assert (bad.code, "line 1" in bad.err) == (1, True)


def test_json_lines_through_a_pipe_and_a_transaction(barnabas: CommandLine, topic: str) -> None:
    copy = unique("copy")
    barnabas.ok("topics", "create", copy)
    rows = [
        {"key": "k", "value": "ä", "headers": [["h", "1"], ["h", "2"]], "timestamp_ms": 5},
        {"key": "gone", "value": None},
        {"key": {"base64": "/w=="}, "value": {"base64": "AP8="}},
        {"value": {"a": [1, 2]}},
    ]
    barnabas.ok("produce", topic, "--json", stdin="".join(json.dumps(row) + "\n" for row in rows))
    first = barnabas.ok("consume", topic, "--json")
    done = barnabas.ok("produce", copy, "--json", "-t", unique("copy"), stdin=first.out.encode())
    assert (done.data["records"], done.data["transactions"]) == (4, 1)
    strip = {"topic": "", "timestamp_ms": 0}
    assert [{**row, **strip} for row in barnabas.ok("consume", copy, "--json").lines] == [
        {**row, **strip} for row in first.lines
    ]
    assert first.lines[0]["timestamp_ms"] == 5
    assert [row["value"] for row in first.lines] == ["ä", None, {"base64": "AP8="}, '{"a":[1,2]}']


def test_a_transaction_that_fails_at_a_wrong_line_shows_no_record(
    barnabas: CommandLine, servers: str, topic: str
) -> None:
    lines = '{"value": "1"}\n{"value": "2"}\n{"value": "3"}\nnot json\n'
    name = unique("broken")
    broken = barnabas("produce", topic, "--json", "-t", name, stdin=lines)
    assert (broken.code, "line 4 is not JSON" in broken.err) == (1, True)
    assert barnabas.ok("consume", topic).out == ""
    barnabas.ok("produce", topic, "-t", name, "--commit-every", "2", stdin="a\nb\nc\n")
    assert barnabas.ok("consume", topic).out == "a\nb\nc\n"
    uncommitted = barnabas.ok("consume", topic, "--isolation-level", "read_uncommitted").out
    assert set(uncommitted.split()) - {"a", "b", "c"} <= {"1", "2", "3"}
    assert values_of(servers, topic) == [b"a", b"b", b"c"]


def test_group_continues_at_its_committed_offset(
    barnabas: CommandLine, servers: str, topic: str
) -> None:
    group = unique("group")
    barnabas.ok("produce", topic, stdin="1\n2\n3\n")
    assert barnabas.ok("consume", topic, "-g", group, "-n", "2").out == "1\n2\n"
    assert committed_offset(servers, group, topic) == 2
    assert barnabas.ok("consume", topic, "-g", group).out == "3\n"
    assert barnabas.ok("consume", topic, "-g", group).out == ""


def test_why_a_partition_is_stuck(barnabas: CommandLine, servers: str, topic: str) -> None:
    assert barnabas.ok("txn", "why-stuck", f"{topic}-0").out.startswith(f"{topic}-0 is not stuck")
    send_all(servers, topic, [b"before"])
    name, group = unique("payments"), unique("kitchen")
    writer = producer(servers, transactional_id=name, transaction_timeout_ms=50_000)
    writer.init_transactions(PATIENCE_S)
    writer.begin_transaction()
    for number in range(3):
        writer.produce(topic, b"%d" % number)
    writer.flush(PATIENCE_S)
    reader = consumer(servers, group, client_id="cook", isolation_level="read_committed")
    reader.subscribe([topic])
    message = eventually(lambda: reader.poll(0.5), what="the record before the transaction")
    reader.commit(message, asynchronous=False)

    stuck = barnabas("txn", "why-stuck", f"{topic}-0", "--json")
    assert stuck.code == 3
    (reported,) = stuck.data["transactions"]
    assert (reported["transactional_id"], reported["state"], reported["hanging"]) == (
        name,
        "Ongoing",
        False,
    )
    assert (reported["start_offset"], reported["timeout_ms"]) == (1, 50_000)
    assert reported["client_address"] == "127.0.0.1"
    assert reported["timeout_at_ms"] == reported["start_time_ms"] + 50_000
    (waiting,) = stuck.data["groups"]
    assert (waiting["group"], waiting["waits"]) == (group, True)
    assert waiting["members"] == ["cook at 127.0.0.1"]
    words = barnabas("txn", "why-stuck", f"{topic}-0")
    assert words.code == 3
    for part in (
        f"'{name}'",
        "offset 1",
        "Ongoing",
        "timeout of 50 s",
        "(at 127.0.0.1)",
        f"'{group}'",
    ):
        assert part in words.out
    listed = barnabas("txn", "why-stuck", "--json")
    assert listed.code == 3
    (row,) = [row for row in listed.data if row["topic"] == topic]
    assert (row["last_stable_offset"], row["high_watermark"]) == (1, 4)
    assert (row["transaction"]["transactional_id"], row["age_ms"] >= 0) == (name, True)
    table = barnabas("txn", "why-stuck")
    assert table.code == 3
    (line,) = [line for line in table.out.splitlines() if line.startswith(f"{topic}-0 ")]
    assert line.split()[1:3] == ["1", "3"]
    assert f"{name} at 127.0.0.1" in line
    patient = barnabas("check", "--read-only", "--json")
    (step,) = [step for step in patient.data["steps"] if step["step"] == "stuck"]
    assert (step["ok"], f"{topic}-0 for" in step["result"]) == (True, True)
    strict = barnabas("check", "--read-only", "--stuck-after", "0")
    assert strict.code == 3
    (line,) = [line for line in strict.out.splitlines() if "stuck" in line and "FAILED" in line]
    assert f"{topic}-0 for" in line
    assert name in line
    held = barnabas("consume", topic)
    assert (held.out, "why-stuck" in held.err) == ("before\n", True)
    reader.close()

    assert [row["state"] for row in _listed(barnabas, name)] == ["Ongoing"]
    (described,) = barnabas.ok("txn", "describe", name, "--json").data
    assert (described["state"], described["partitions"]) == ("Ongoing", [f"{topic}-0"])
    wrong = barnabas("txn", "abort", f"{topic}-0", "--start-offset", "7", "--yes")
    assert (wrong.code, "there are: 1" in wrong.err) == (1, True)
    refused = barnabas("txn", "abort", f"{topic}-0", "--yes")
    assert (refused.code, "--transactional-id" in refused.err) == (1, True)
    done = barnabas.ok("txn", "abort", "--transactional-id", name, "--yes", "--json").data
    assert (done["aborted"], done["state_before"]) == (True, "Ongoing")
    assert barnabas.ok("txn", "why-stuck", f"{topic}-0", "--json").data["stuck"] is False
    assert barnabas.ok("consume", topic).out == "before\n"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_an_open_transaction_holds_back_has_a_lag_before_its_first_commit(
    barnabas: CommandLine, servers: str, topic: str, protocol: str
) -> None:
    group, name = unique("waits"), unique("holds")
    writer = producer(servers, transactional_id=name)
    writer.init_transactions(PATIENCE_S)
    writer.begin_transaction()
    for number in range(5):
        writer.produce(topic, b"%d" % number)
    writer.flush(PATIENCE_S)
    more = {"group.protocol": protocol}
    reader = consumer(servers, group, isolation_level="read_committed", **more)
    reader.subscribe([topic])

    def waits() -> bool:
        assert reader.poll(0.2) is None
        return bool(reader.assignment())

    eventually(waits, what="an assignment")
    (row,) = barnabas.ok("groups", "describe", group, "--json").data
    (partition,) = row["partitions"]
    assert (partition["committed_offset"], partition["lag"], partition["held_back"]) == (None, 5, 5)
    words = barnabas.ok("groups", "describe", group)
    assert f"{topic}-0: the open transaction of {name} at 127.0.0.1 holds back 5" in words.err
    assert partition["held_back_by"] == f"{name} at 127.0.0.1"
    writer.abort_transaction(PATIENCE_S)
    reader.close()


def _listed(barnabas: CommandLine, name: str) -> list[dict[str, object]]:
    rows = barnabas.ok("txn", "list", "--open", "--json").data
    return [row for row in rows if row["transactional_id"] == name]


def test_txn_abort_with_force_writes_a_marker_past_the_coordinator(
    barnabas: CommandLine, servers: str, topic: str
) -> None:
    """The marker ends the transaction in the partition. The coordinator still has the transaction
    open until it is aborted by its transactional id.
    """
    name = unique("forced")
    writer = producer(servers, transactional_id=name)
    writer.init_transactions(PATIENCE_S)
    writer.begin_transaction()
    writer.produce(topic, b"open")
    writer.flush(PATIENCE_S)
    done = barnabas.ok("txn", "abort", f"{topic}-0", "--force", "--yes", "--json").data
    assert (done["start_offset"], done["aborted"]) == (0, True)
    assert barnabas.ok("txn", "why-stuck", f"{topic}-0", "--json").data["stuck"] is False
    assert _listed(barnabas, name), "the coordinator still has the transaction open"
    words = barnabas.ok("txn", "abort", "--transactional-id", name, "--yes").out
    assert "aborted its open transaction" in words
    assert not _listed(barnabas, name)
    nothing = barnabas("txn", "abort", f"{topic}-0", "--yes")
    assert (nothing.code, "no transaction is open" in nothing.err) == (1, True)
