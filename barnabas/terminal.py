"""Text from outside on a terminal: control characters become visible escapes such as `\\x1b`.

Names of groups, keys, values and error messages are chosen by strangers. A terminal takes some
characters for commands: ESC ]52 sets the clipboard, ESC ]0 the title; others move the cursor, or
turn the direction of the text. `guard_terminal` is called once when a command begins. After it,
whatever is written to standard output or standard error passes `visible_bytes` if that is a
terminal. What writes colours itself takes `raw_stream`, and passes all texts through
`visible_text`. A pipe or a file gets the bytes unchanged.
"""

from __future__ import annotations

import io
import re
import sys
from typing import IO, Any, TextIO

# C0 without tab and line feed, DEL, C1; line separators and changes of direction; halves of pairs
_CONTROLS = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_LINES = re.compile("[\t\n]")


def visible_text(text: str, *, is_line: bool = False) -> str:
    """The text with escapes for control characters.

    Takes: is_line, whether to write escapes for line feeds and tabs, too, as in a cell of a table.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _CONTROLS.sub(_escape, text)
    return _LINES.sub(_escape, text) if is_line else text


def visible_bytes(data: bytes) -> bytes:
    """The bytes with escapes for control characters, and for bytes that are not UTF-8."""
    return visible_text(data.decode("utf-8", "backslashreplace")).encode()


def guard_terminal() -> None:
    """Let no control character reach a terminal through standard output or standard error."""
    sys.stdout = _guarded(sys.stdout)
    sys.stderr = _guarded(sys.stderr)


def raw_stream(stream: Any) -> Any:
    """The stream below a guarded stream; any other stream unchanged."""
    buffer = getattr(stream, "buffer", None)
    return buffer.text_stream if isinstance(buffer, _Visible) else stream


def is_terminal(stream: Any) -> bool:
    """Whether a stream is a terminal; standard output may have been closed or replaced."""
    return stream is not None and stream.isatty()


class _Visible(io.BufferedIOBase):
    """The bytes below a guarded stream."""

    def __init__(self, text_stream: TextIO) -> None:
        self.text_stream = text_stream
        self._below: IO[bytes] = text_stream.buffer

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._below.write(visible_bytes(bytes(data)))
        return len(data)

    def flush(self) -> None:
        self._below.flush()

    def fileno(self) -> int:
        return self._below.fileno()

    def isatty(self) -> bool:
        return True

    def close(self) -> None:
        """Leave the stream below open: it belongs to the interpreter."""


def _guarded(stream: TextIO) -> TextIO:
    if not is_terminal(stream) or not hasattr(stream, "buffer") or raw_stream(stream) is not stream:
        return stream
    stream.flush()
    below: Any = _Visible(stream)
    return io.TextIOWrapper(below, encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
