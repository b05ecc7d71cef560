"""The values of `share.auto.offset.reset`: the offset at which a share group begins in a partition.

earliest                 at the first record
latest                   after the last record
by_duration:<duration>   at the first record that is not older than an ISO 8601 duration
                         (PnDTnHnMn.nS), in the form that Java's Duration reads; it may not be
                         negative
"""

from __future__ import annotations

import re
from typing import NamedTuple

from barnabas.broker.settings.setting import ConfigError, Kind, Setting

EARLIEST_TIMESTAMP, LATEST_TIMESTAMP = -2, -1  # timestamps of ListOffsets
_BY_DURATION = "by_duration:"
_DAY_S, _HOUR_S, _MINUTE_S = 86_400, 3600, 60
_MOST_S = 2**63 - 1
_LONGEST = 100  # maximum length of a duration
# compiled at its first use, since a start rarely needs it
_DURATION = (
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?[0-9]+)D)?"
    r"(?P<time>T(?:(?P<hours>[-+]?[0-9]+)H)?(?:(?P<minutes>[-+]?[0-9]+)M)?"
    r"(?:(?P<seconds>[-+]?[0-9]+)(?:[.,](?P<fraction>[0-9]{0,9}))?S)?)?"
)


class OffsetReset(NamedTuple):
    """A value of the setting. age_ms: the length of the duration; None for the other values."""

    text: str
    age_ms: int | None

    def timestamp(self, wall_ms: int) -> int:
        """The timestamp with which ListOffsets would find the offset."""
        if self.age_ms is not None:
            return max(wall_ms - self.age_ms, 0)
        return EARLIEST_TIMESTAMP if self.text == "earliest" else LATEST_TIMESTAMP


LATEST = OffsetReset("latest", None)


class OffsetResetSetting(Setting[OffsetReset]):
    """The setting `share.auto.offset.reset`, as a row of the table."""

    __slots__ = ()

    def __init__(self, name: str, doc: str) -> None:
        super().__init__(Kind.STRING, LATEST, doc, name=name)

    def _parse(self, text: str) -> OffsetReset:
        """Parse a value of the setting. Raises: ConfigError."""
        if text in ("earliest", "latest"):
            return OffsetReset(text, None)
        if text.startswith(_BY_DURATION):
            age_ms = _milliseconds(text.removeprefix(_BY_DURATION))
            if age_ms is not None:
                return OffsetReset(text, age_ms)
        raise ConfigError(
            f"{self.name}={text}: it must be earliest, latest or by_duration:DURATION, with an "
            "ISO 8601 duration such as PT1H or P7D"
        )

    def render(self, value: OffsetReset) -> str:
        return value.text


def _milliseconds(text: str) -> int | None:
    """The length of a duration in milliseconds; None if the text is invalid or the duration
    negative.
    """
    found = re.fullmatch(_DURATION, text[:_LONGEST], re.IGNORECASE | re.ASCII)
    if found is None or len(text) >= _LONGEST:
        return None
    parts = found.groupdict()
    if parts["time"] in ("T", "t") or not any(
        parts[unit] for unit in ("days", "hours", "minutes", "seconds")
    ):
        return None
    seconds = (
        int(parts["days"] or 0) * _DAY_S
        + int(parts["hours"] or 0) * _HOUR_S
        + int(parts["minutes"] or 0) * _MINUTE_S
        + int(parts["seconds"] or 0)
    )
    nanoseconds = int((parts["fraction"] or "").ljust(9, "0"))
    if (parts["seconds"] or "").startswith("-"):
        nanoseconds = -nanoseconds
    total = seconds * 1_000_000_000 + nanoseconds
    if parts["sign"] == "-":
        total = -total
    return total // 1_000_000 if 0 <= total <= _MOST_S * 1_000_000_000 else None
