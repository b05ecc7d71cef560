"""Arguments and output of commands: positions, settings, records as lines, tables, errors."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.cli_commands import CommandLine

from barnabas.cli import output
from barnabas.cli.cluster import Connection, client_settings
from barnabas.cli.errors import CommandError, RefusedError, explain
from barnabas.cli.options import EARLIEST, LATEST, OffsetSpec, parse_place
from barnabas.cli.output import Column, Output
from barnabas.cli.producing.record_encoding import RecordEncoding
from barnabas.cli.records import from_json, parse_json_line, to_json
from barnabas.client.oauth import TokenError, token_of
from barnabas.client.security_options import TokenSource
from barnabas.installing import install_command
from barnabas.protocol.errors import Code
from barnabas.texts import count_text, duration_text

NOW_MS = 1_800_000_000_000


@pytest.fixture
def barnabas(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """The command line."""
    return CommandLine(monkeypatch, capsys)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", EARLIEST),
        ("END", LATEST),
        ("0", OffsetSpec("offset", 0)),
        ("1234", OffsetSpec("offset", 1234)),
        ("now", OffsetSpec("time", NOW_MS)),
        ("10m", OffsetSpec("time", NOW_MS - 600_000)),
        ("-1.5h", OffsetSpec("time", NOW_MS - 5_400_000)),
        ("7d ago", OffsetSpec("time", NOW_MS - 7 * 86_400_000)),
        ("1970-01-01T00:00:01Z", OffsetSpec("time", 1000)),
        ("1970-01-01T01:00:00.5+01:00", OffsetSpec("time", 500)),
        ("07:59Z", OffsetSpec("time", NOW_MS - 60_000)),
        ("08:00:01+00:00", OffsetSpec("time", NOW_MS - 86_400_000 + 1000)),
        ("yesterday", None),
        ("-5", None),
        ("", None),
    ],
)
def test_place(text: str, place: OffsetSpec | None) -> None:
    assert parse_place(text, NOW_MS) == place


@pytest.mark.parametrize(
    ("data", "value"),
    [(None, None), (b"", ""), ("ä".encode(), "ä"), (b"\xff\x00", {"base64": "/wA="})],
)
def test_bytes_as_json_and_back(data: bytes | None, value: Any) -> None:
    assert to_json(data) == value
    assert from_json(json.loads(json.dumps(value))) == data


def test_other_json_values_are_sent_as_json() -> None:
    assert from_json({"a": [1, "ä"]}) == '{"a":[1,"ä"]}'.encode()
    assert from_json(5) == b"5"
    assert from_json({"base64": "/wA=", "and": "more"}) == b'{"base64":"/wA=","and":"more"}'


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"{", "line 7 is not JSON"),
        (b"[]", "line 7 is not a JSON object"),
        (b'{"valeu": 1}', "unknown field 'valeu'"),
        (b'{"value": "x", "partition": "0"}', "partition must be a whole number"),
        (b'{"value": "x", "headers": ["h"]}', "headers must be"),
        (
            b'{"value": "x", "headers": [[{"base64": "%"}, "v"]]}',
            "the name of a header: '%' is not",
        ),
        (b"{}", "line 7 has neither key nor value"),
        (b'{"value": {"base64": "?"}}', "line 7: the value: '\\?' is not base64"),
    ],
)
def test_line_that_is_no_record_is_named(line: bytes, text: str) -> None:
    with pytest.raises(CommandError, match=text):
        RecordEncoding({}).record(parse_json_line(line, "line 7"))


def test_headers_may_be_an_object() -> None:
    item = parse_json_line(b'{"value": "x", "headers": {"a": "1"}}', "line 1")
    assert RecordEncoding({}).record(item).headers == (("a", b"1"),)


def test_client_settings_with_kafkas_names_are_translated() -> None:
    assert client_settings(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="alice" password="a b;c";',
            "ssl.truststore.location": "ca.pem",
            "ssl.truststore.type": "PEM",
            "ssl.endpoint.identification.algorithm": "",
        }
    ) == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "a b;c",
        "ssl_cafile": "ca.pem",
        "ssl_check_hostname": False,
    }
    with pytest.raises(CommandError, match=r"sasl\.mechansim"):
        client_settings({"sasl.mechansim": "PLAIN"})


@pytest.mark.parametrize(
    ("data", "refusal"),
    [
        (b"-----BEGIN CERTIFICATE-----", None),
        (bytes.fromhex("308206fc020103"), "is PKCS#12; only PEM.*openssl pkcs12"),
        (bytes.fromhex("feedfeed00000002"), "is a Java key store; only PEM.*keytool"),
    ],
)
@pytest.mark.parametrize("name", ["trust.jks", "trust.pem"])
def test_the_content_of_a_clients_store_decides(
    tmp_path: Path, name: str, data: bytes, refusal: str | None
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    settings = {"ssl.truststore.location": str(path)}
    if refusal is None:
        assert client_settings(settings) == {"ssl_cafile": str(path)}
    else:
        with pytest.raises(CommandError, match=refusal):
            client_settings(settings)


def test_bootstrap_addresses_are_parsed() -> None:
    assert Connection("a:1,b, [::1]:3", None, 1).addresses() == [("a", 1), ("b", 9092), ("::1", 3)]
    with pytest.raises(CommandError, match="HOST:PORT"):
        Connection("a:port", None, 1).addresses()


def test_errors_say_what_to_do() -> None:
    text = explain(RefusedError(Code.UNKNOWN_TOPIC_OR_PARTITION, "no such"), "orders")
    assert text.startswith("orders: there is no such topic")
    assert "`barnabas topics list`" in text
    missing = FileNotFoundError(2, "No such file or directory", "barnabas.log")
    assert explain(missing, "logs/1") == "logs/1: barnabas.log: No such file or directory"
    plain = explain(RefusedError(Code.INVALID_REQUEST, "it is wrong"))
    assert plain == "it is wrong (InvalidRequest)"


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (12_345, "12 s"),
        (60_000, "1 min"),
        (200_000, "3 min 20 s"),
        (7_500_000, "2 h 5 min"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_duration(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text


def test_count() -> None:
    assert count_text(1, "batch", "batches") == "1 batch"
    assert count_text(12_000, "record") == "12,000 records"


def test_table_in_a_pipe_has_no_colours_and_no_spaces_at_its_ends(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [{"name": "a" * 200, "count": 5, "list": [1, 2]}, {"name": "b", "count": None}]
    columns = [Column("name", "NAME", "name"), Column("count", "N"), Column("list", "LIST")]
    Output().table(rows, columns)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["NAME", "N", "LIST"],
        ["a" * 200, "5", "1,", "2"],
        ["b", "-", "-"],
    ]
    assert all(line == line.rstrip() for line in lines)


def test_help_lists_all_commands_and_each_has_examples(barnabas: CommandLine) -> None:
    text = barnabas.ok("--help").out
    commands = "start settings check completion config consume groups log produce topics txn"
    for name in commands.split():
        assert f"\n  {name} " in text
    assert barnabas.ok().out == text
    for command in (
        ["topics", "create"],
        ["groups", "reset-offsets"],
        ["txn", "why-stuck"],
        ["log", "verify"],
        ["produce"],
        ["consume"],
        ["check"],
        ["config", "set"],
    ):
        examples = barnabas.ok(*command, "--help").out.partition("Examples:\n")[2]
        assert f"barnabas {' '.join(command)}" in examples


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such"],
        ["topics", "no-such"],
        ["topics", "create"],
        ["txn", "abort"],
        ["txn", "abort", "orders"],
        ["produce", "t", "--commit-every", "5"],
        ["consume", "t", "--from", "yesterday"],
        ["consume", "t", "--follow", "--to", "5"],
        ["config", "set", "topic", "t", "no-value"],
        ["groups", "reset-offsets", "g"],
    ],
)
def test_wrong_usage_is_exit_code_2(barnabas: CommandLine, arguments: list[str]) -> None:
    run = barnabas(*arguments)
    assert (run.code, run.out) == (2, "")
    assert "Error: " in run.err


def test_nearest_command_is_named(barnabas: CommandLine) -> None:
    assert "`barnabas topics`" in barnabas("topcs").err


def test_an_option_before_its_command_causes_a_hint_on_its_place(barnabas: CommandLine) -> None:
    run = barnabas("topics", "-b", "127.0.0.1:9092", "list")
    assert (run.code, "after the command" in run.err) == (2, True)
    assert "whole command" not in barnabas("topics", "list", "--nonsense").err


def test_without_the_extra_one_line_says_what_to_install(
    barnabas: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the import without click binds the package's attribute to another module; this undoes it
    monkeypatch.setattr(sys.modules["barnabas"], "cli", sys.modules["barnabas.cli"])
    for name in [name for name in sys.modules if name.startswith("barnabas.cli")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "click", None)
    run = barnabas("topics", "list")
    assert (run.code, install_command("cli") in run.err) == (1, True)
    assert "start" in barnabas.ok("--help").out
    wrong = barnabas("strt")
    assert (wrong.code, "`barnabas start`" in wrong.err) == (2, True)
    assert install_command("cli") not in wrong.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(barnabas: CommandLine, shell: str) -> None:
    assert "_BARNABAS_COMPLETE" in barnabas.ok("completion", shell).out


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("barnabas t", {"take-over", "topics", "txn"}),
        ("barnabas txn why", {"why-stuck"}),
        ("barnabas start --da", {"--data-dir"}),
        ("barnabas consume --isol", {"--isolation-level"}),
        ("barnabas consume --gre", {"--grep", "--grep-in"}),
        ("barnabas consume t --grep-in v", {"value"}),
        ("barnabas produce t --value-schema reg", {"registry", "reg"}),
        ("barnabas produce t --input c", {"csv"}),
    ],
)
def test_shell_completion_suggests_commands_options_and_values(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    wanted: set[str],
) -> None:
    monkeypatch.setenv("_BARNABAS_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    from barnabas.daemon.main import main

    with pytest.raises(SystemExit):
        main([])
    assert {line.partition(",")[2] for line in capsys.readouterr().out.splitlines()} == wanted


def test_a_token_is_read_from_its_file_each_time(tmp_path: Path) -> None:
    name, file = "sasl.oauthbearer.token.endpoint.url", tmp_path / "token"
    source = TokenSource(
        endpoint_url=client_settings({name: file.as_uri()})["sasl_oauth_token_url"]
    )
    with pytest.raises(TokenError, match="No such file"):
        token_of(source)
    for text in ("a.b.c", "d.e.f"):
        file.write_text(text + "\n")
        assert token_of(source) == text
    with pytest.raises(CommandError, match="file:///PATH"):
        client_settings({name: "https://issuer.example/token"})


def test_a_table_in_a_pipe_equals_the_one_that_rich_draws(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"name": "orders", "count": 12, "parts": [1, 2], "flag": True, "none": None},
        {"name": "注文-ä", "count": None, "parts": [], "flag": False, "none": ""},
        {"name": "", "count": 123456, "parts": ["x"], "flag": None, "none": None},
    ]
    columns = [Column(key, key.upper()) for key in rows[0]]
    Output().table(rows, columns)
    plain = capsys.readouterr().out
    assert plain.splitlines()[1].startswith("orders   ")
    monkeypatch.setattr(output, "_is_plain", lambda stream: False)
    Output().table(rows, columns)
    drawn = capsys.readouterr().out
    assert plain.splitlines() == [line.rstrip() for line in drawn.splitlines()]
