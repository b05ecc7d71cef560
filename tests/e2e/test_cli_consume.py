"""`barnabas consume` against the real daemon: --last, --grep and --format, and their combinations
with transactions, groups, end offsets and --follow.
"""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from helpers.cli_commands import CommandLine
from helpers.e2e_clients import PATIENCE_S, committed_offset, producer, unique
from helpers.interrupting import sigint_not_ignored
from helpers.waiting_input import has_input

pytestmark = pytest.mark.e2e


@pytest.fixture
def barnabas(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], servers: str
) -> CommandLine:
    """The command line, connected to the shared broker."""
    return CommandLine(monkeypatch, capsys).use(servers)


@pytest.fixture
def topic(barnabas: CommandLine) -> str:
    """A topic with two partitions."""
    name = unique("lines")
    barnabas.ok("topics", "create", name, "--partitions", "2")
    return name


def _fill(servers: str, topic: str) -> None:
    """Write ten records: record N has the timestamp 1000 + N and is in partition N % 2.

    Each record is in a separate transaction, and is followed by six aborted records. Together with
    the markers they take nine offsets.
    """
    writer = producer(servers, transactional_id=unique("fill"))
    writer.init_transactions(PATIENCE_S)
    for number in range(10):
        writer.begin_transaction()
        writer.produce(
            topic,
            b"value %d" % number,
            b"key %d" % (number % 5),
            number % 2,
            timestamp=1000 + number,
            headers=[("trace", b"t%d" % number)],
        )
        writer.commit_transaction(PATIENCE_S)
        writer.begin_transaction()
        for _ in range(6):
            writer.produce(topic, b"aborted %d" % number, b"key 0", number % 2, timestamp=2000)
        writer.flush(PATIENCE_S)
        writer.abort_transaction(PATIENCE_S)


def _values(*numbers: int) -> str:
    return "".join(f"value {number}\n" for number in numbers)


def test_the_last_records_of_a_topic_and_of_each_partition(
    barnabas: CommandLine, servers: str, topic: str
) -> None:
    _fill(servers, topic)
    assert barnabas.ok("consume", topic, "--last", "3").out == _values(7, 8, 9)
    assert barnabas.ok("consume", topic, "--last", "1000").out == _values(*range(10))
    both = barnabas.ok("consume", topic, "--last", "2", "--per-partition")
    assert both.out == _values(6, 7, 8, 9)
    assert barnabas.ok("consume", f"{topic}-1", "--last", "2").out == _values(7, 9)
    assert barnabas.ok("consume", topic, "--last", "2", "--until-end").out == _values(8, 9)
    uncommitted = barnabas.ok(
        "consume", topic, "--last", "2", "--isolation-level", "read_uncommitted"
    )
    assert uncommitted.out == "aborted 9\naborted 9\n"
    # --from and --to are offsets. A partition has a value, a marker, six aborted records, a marker,
    # and so on.
    assert barnabas.ok("consume", f"{topic}-0", "--to", "10", "--last", "2").out == _values(0, 2)
    assert barnabas.ok("consume", f"{topic}-0", "--from", "10", "--last", "9").out == _values(
        4, 6, 8
    )


def test_the_last_records_are_those_below_an_open_transaction(
    barnabas: CommandLine, servers: str, topic: str
) -> None:
    _fill(servers, topic)
    writer = producer(servers, transactional_id=unique("open"))
    writer.init_transactions(PATIENCE_S)
    writer.begin_transaction()
    writer.produce(topic, b"open", b"key 0", 0)
    writer.flush(PATIENCE_S)
    run = barnabas.ok("consume", topic, "--last", "2")
    assert (run.out, "an open transaction holds back" in run.err) == (_values(8, 9), True)
    writer.abort_transaction(PATIENCE_S)


def test_patterns_with_counts_ends_and_forms(
    barnabas: CommandLine, servers: str, topic: str
) -> None:
    _fill(servers, topic)
    grep = ("consume", topic, "--grep")
    by_key = barnabas.ok(*grep, "KEY [03]", "-i", "--format", r"%o %v\n").out
    assert sorted(by_key.splitlines()) == ["0 value 0", "18 value 5", "36 value 8", "9 value 3"]
    assert barnabas.ok(*grep, "aborted").out == ""
    assert barnabas.ok(*grep, "trace=t4", "--grep", "value 7", "--last", "9").out == _values(4, 7)
    assert barnabas.ok(*grep, "t4", "--grep-in", "value").out == ""
    assert barnabas.ok(*grep, "key [03]", "--last", "1").out == _values(8)
    assert barnabas.ok("consume", f"{topic}-0", "--grep", "key [03]", "-n", "1").out == _values(0)
    rest = barnabas.ok(*grep, "[2-9]$", "--invert-match", "--grep-in", "value", "--json").lines
    assert sorted(row["value"] for row in rest) == ["value 0", "value 1"]


def test_a_group_commits_records_that_were_read_also_if_grep_did_not_print_them(
    barnabas: CommandLine, servers: str, topic: str
) -> None:
    _fill(servers, topic)
    name, part = unique("group"), f"{topic}-0"
    first = barnabas.ok("consume", part, "--grep", "value [48]", "--group", name, "-n", "1")
    # Each record takes nine offsets. The value 4 is the third of the partition, at offset 18, and
    # the partition ends at 45.
    assert (first.out, committed_offset(servers, name, topic)) == (_values(4), 19)
    barnabas.ok("consume", part, "--grep", "nothing", "--group", name)
    assert committed_offset(servers, name, topic) == 45


def test_a_template_writes_bytes_as_they_are(
    barnabas: CommandLine, servers: str, topic: str
) -> None:
    barnabas.ok(
        "produce",
        topic,
        "--json",
        stdin='{"key": "k", "value": {"base64": "AP8="}, "partition": 1, "timestamp_ms": 5, '
        '"headers": [["a", "1"], ["a", "2"]]}\n{"key": "gone", "value": null, "partition": 1}\n',
    )
    run = subprocess.run(
        [
            *(sys.executable, "-m", "barnabas", "consume", topic, "-b", servers),
            *("--format", r"%t|%p|%o|%k|%v|%V|%h|%T|%v{base64}\0"),
            *("--count", "1"),
        ],
        capture_output=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert run.stdout == topic.encode() + b"|1|0|k|\x00\xff|2|a=1,a=2|5|AP8=\0"
    assert barnabas.ok("consume", topic, "--format", r"%k%V,", "--last", "1").out == "gone-1,"


def test_follow_prints_the_last_records_and_then_new_ones(
    barnabas: CommandLine, servers: str, topic: str
) -> None:
    _fill(servers, topic)
    command = [sys.executable, "-u", "-m", "barnabas", "consume", topic, "-b", servers]
    with sigint_not_ignored():
        follower = subprocess.Popen(
            [*command, "--last", "2", "--follow", "--grep", "value [89]|new"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # unbuffered, so that poll sees all output
        )
    with follower:
        output, errors = follower.stdout, follower.stderr
        assert output is not None and errors is not None

        def line() -> bytes:
            assert has_input(output, PATIENCE_S)
            return output.readline()

        try:
            assert [line(), line()] == [b"value 8\n", b"value 9\n"]
            barnabas.ok("produce", topic, stdin="other\nnew\n")
            assert line() == b"new\n"
            follower.send_signal(signal.SIGINT)
            assert follower.wait(PATIENCE_S) == 130
            assert b"3 records printed" in errors.read()
        finally:
            follower.kill()
