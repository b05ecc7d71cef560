"""Texts that show times, durations and counts to people."""

from __future__ import annotations

import datetime


def time_text(time_ms: int) -> str:
    """A wall-clock time as local time, to the second; `-` if it is negative. A time beyond the
    calendar is the number of its milliseconds.
    """
    if time_ms < 0:
        return "-"
    try:
        moment = datetime.datetime.fromtimestamp(time_ms / 1000).astimezone()
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
    return moment.isoformat(" ", "seconds")


NO_TIMEOUT_MS = 2**31 - 1  # the timeout that marks a transaction in two-phase commit (KIP-939)


def duration_text(duration_ms: int) -> str:
    """A duration in its two largest units: `350 ms`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    if duration_ms < 1000:
        return f"{duration_ms} ms"
    seconds = duration_ms // 1000
    for size, unit, smaller, smaller_unit in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= size:
            rest = seconds % size // smaller
            return f"{seconds // size} {unit}" + (f" {rest} {smaller_unit}" if rest else "")
    return f"{seconds} s"


def count_text(count: int, noun: str, plural: str = "") -> str:
    """A count with its noun: `1 record`, `2 records`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def size_text(size_bytes: int) -> str:
    """A number of bytes in a unit in which it has at most four digits: `512 bytes`, `1.5 GB`."""
    size = float(size_bytes)
    if abs(size) < 1000:
        return count_text(size_bytes, "byte")
    units = ["KB", "MB", "GB", "TB"]
    size /= 1000
    while abs(size) >= 999.95 and len(units) > 1:
        size /= 1000
        del units[0]
    return f"{size:.1f} {units[0]}"


def is_batch_number(metadata: str | None) -> bool:
    """Whether the metadata of a committed offset shows that the offset is not a position in a
    partition.

    The Spark sink commits the number of its last micro-batch as the offset of a group, with a note
    as the metadata (`CommitNote` of the connector). Such an offset has no lag.
    """
    return (metadata or "").startswith('{"what": "batch ')
