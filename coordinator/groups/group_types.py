"""The types of groups, with their names in ListGroups."""

from __future__ import annotations

CLASSIC_TYPE, CONSUMER_TYPE = "classic", "consumer"
SHARE_TYPE, STREAMS_TYPE = "share", "streams"
_BY_VERSION = {
    **dict.fromkeys((*range(3, 9), 16), CONSUMER_TYPE),
    **dict.fromkeys(range(10, 16), SHARE_TYPE),
    **dict.fromkeys(range(17, 24), STREAMS_TYPE),
}


def type_of_version(version: int) -> str | None:
    """The modern type of group that has record keys of this version. None for other versions."""
    return _BY_VERSION.get(version)
