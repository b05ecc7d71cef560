"""What the records of consumer, share and streams groups have in common."""

from __future__ import annotations


def check_version(value: bytes, kind: str) -> None:
    """Check the version of a value. Takes: kind, the kind of group, for the error text.

    Raises: ValueError if the version is unknown; IndexError if the value is empty.
    """
    if value[0] or value[1]:
        version = int.from_bytes(value[:2], "big", signed=True)
        raise ValueError(f"a record of a {kind} group has the unknown version {version}")
