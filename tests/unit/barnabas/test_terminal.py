"""Text from outside on a terminal: no character of it is a command to the terminal."""

from __future__ import annotations

import io
import json
import logging
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.observation.log_lines import LineFormatter
from barnabas.cli.completing import _beginning
from barnabas.cli.consuming.record_template import compile_template
from barnabas.cli.output import Column, Output, note
from barnabas.json_text import json_text
from barnabas.process.log_format import JsonFormatter
from barnabas.terminal import guard_terminal, raw_stream, visible_bytes, visible_text

EVIL = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\r\x9b31m\x00\x08\u202e"
SHOWN = r"\x1b]52;c;ZXZpbA==\x07\x1b[2J\x0d\x9b31m\x00\x08\u202e"


class Terminal(io.TextIOWrapper):
    """A stream that says that it is a terminal."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True

    def written(self) -> bytes:
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue()


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Put standard output and standard error on one terminal, and guard it. Not a fixture, since
    pytest sets both streams after the setup of a test.
    """
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    guard_terminal()
    return screen


def test_what_is_printed_by_any_means_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_a_terminal(monkeypatch)
    print(EVIL)
    sys.stdout.buffer.write(EVIL.encode() + b"\xff\x9b\n")
    sys.stdout.flush()
    sys.stderr.write(EVIL + "\n")
    assert screen.written().decode().splitlines() == [SHOWN, SHOWN + r"\xff\x9b", SHOWN]


def test_tables_lines_fields_and_notes_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_a_terminal(monkeypatch)
    output = Output()
    output.table([{"group": f"a\tb\n{EVIL}"}], [Column("group", "GROUP")])
    output.heading(EVIL)
    output.line(EVIL, "name")
    output.fields([("group", f"{EVIL}\n")])
    note(EVIL)
    text = screen.written().decode()
    assert text.count(SHOWN) == 5 and r"a\x09b\x0a" + SHOWN in text
    assert not set(EVIL) & set(text) - {"\x1b", *"[]0123456789;mcZXpbA=J"}
    assert "\x1b]" not in text and "\x1b[2J" not in text


def test_a_guard_is_made_once_and_a_pipe_gets_the_bytes_unchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = on_a_terminal(monkeypatch)
    guarded = sys.stdout
    guard_terminal()
    assert sys.stdout is guarded and raw_stream(guarded) is screen
    pipe = io.TextIOWrapper(io.BytesIO(), write_through=True)
    monkeypatch.setattr(sys, "stdout", pipe)
    guard_terminal()
    assert sys.stdout is pipe and raw_stream(pipe) is pipe


@given(st.text() | st.binary().map(lambda data: data.decode("utf-8", "surrogateescape")))
def test_no_control_character_is_left_and_other_text_is_unchanged(text: str) -> None:
    shown = visible_text(text)
    assert all(unicodedata.category(one) not in ("Cc", "Cs") for one in shown if one not in "\t\n")
    shown.encode()
    if text.isprintable():
        assert shown == text
    assert visible_text(text, is_line=True).splitlines() in ([], [visible_text(text, is_line=True)])


@given(st.binary())
def test_bytes_are_visible_as_utf8(data: bytes) -> None:
    shown = visible_bytes(data).decode()
    assert not any(unicodedata.category(one) == "Cc" for one in shown if one not in "\t\n")


@given(st.text())
def test_json_has_no_control_character_and_the_same_value(text: str) -> None:
    written = json_text({text: [text]})
    assert json.loads(written) == {text: [text]}
    assert not any(unicodedata.category(one) in ("Cc", "Cs") for one in written)


def test_a_template_keeps_its_own_colours() -> None:
    class Record:
        key, value, headers = b"k\x1b]0;x\x07", b"v\x9b", [("h\x1b", b"\x08")]

    write = compile_template("\x1b[1m%k\x1b[0m %v %h{%k\\x1b%v}\\n", visible_bytes)
    assert write(Record()) == b"\x1b[1mk\\x1b]0;x\\x07\x1b[0m v\\x9b h\\x1b\\x1b\\x08\n"


def test_a_name_with_control_characters_is_not_completed() -> None:
    assert _beginning(["orders", "or\x1b]0;x\x07"], "or") == ["orders"]


@pytest.mark.parametrize("formatter", [LineFormatter(), JsonFormatter()])
def test_a_line_of_the_log_is_visible_with_its_exception(formatter: logging.Formatter) -> None:
    try:
        raise ValueError(EVIL)
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "%s", (EVIL,), sys.exc_info())
    line = formatter.format(record)
    assert not any(unicodedata.category(one) == "Cc" for one in line if one != "\n")
