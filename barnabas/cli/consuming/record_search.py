"""The patterns of `consume --grep`, which filter the printed records.

A pattern is a Python regular expression. It is searched in the text that would be printed: bytes
as UTF-8 (invalid bytes as U+FFFD), decoded values as JSON, a header as name=value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from barnabas.cli.records import shown_bytes

PLACES = ("key", "value", "headers")


class WrongPattern(ValueError):
    """A pattern is not a valid regular expression; the text says what to do."""


class RecordSearch:
    """A test of whether a record contains one of several patterns.

    Takes:  patterns; places, the parts of a record that are searched, a selection of PLACES;
            inverted, whether records without a match are wanted instead.
    Raises: WrongPattern.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        places: Sequence[str] = PLACES,
        *,
        ignore_case: bool = False,
        inverted: bool = False,
    ) -> None:
        self._patterns = [_compiled(text, ignore_case) for text in patterns]
        self._places = frozenset(places)
        self._inverted = inverted

    def has(self, record: Any) -> bool:
        """Whether the record is wanted."""
        is_found = any(
            pattern.search(text) for text in self._texts(record) for pattern in self._patterns
        )
        return is_found is not self._inverted

    def _texts(self, record: Any) -> Iterator[str]:
        """The texts of a record in which the patterns are searched."""
        for place in ("key", "value"):
            if place in self._places and (data := shown_bytes(getattr(record, place))) is not None:
                yield data.decode("utf-8", "replace")
        if "headers" in self._places:
            for name, value in record.headers or ():
                yield f"{name}={(value or b'').decode('utf-8', 'replace')}"


def _compiled(text: str, ignore_case: bool) -> re.Pattern[str]:
    """The compiled pattern. Raises: WrongPattern."""
    try:
        return re.compile(text, re.IGNORECASE if ignore_case else 0)
    except re.error as error:
        raise WrongPattern(
            f"{text!r} is not a regular expression: {error}; write {re.escape(text)!r} for the "
            "text itself"
        ) from error
