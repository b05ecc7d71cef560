"""The types of groups, as in ListGroups."""

from __future__ import annotations

CLASSIC_TYPE, CONSUMER_TYPE = "classic", "consumer"
SHARE_TYPE, STREAMS_TYPE = "share", "streams"
_BY_VERSION = {
    **dict.fromkeys(range(10, 16), SHARE_TYPE),
    **dict.fromkeys(range(17, 24), STREAMS_TYPE),
}


def type_of_version(version: int) -> str | None:
    """The type of group whose record keys have this version, share or streams; None for other
    versions.
    """
    return _BY_VERSION.get(version)
