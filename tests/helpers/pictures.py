"""The state of a broker as plain values, each under the path that leads to it. Two brokers can thus
be compared part by part.

All attributes are compared except those in LEFT_OUT, which gives a reason for each. The comparison
needs no list of attributes. It finds any state that a start loses, that remains after its record
was deleted, or that replay builds differently from live code.
"""

from __future__ import annotations

import dataclasses
import enum
import re
import types
import uuid
from collections import deque
from collections.abc import Collection, Generator, Iterator, Mapping
from typing import Any

from barnabas.coordinator.groups.classic.rebalance import State
from barnabas.coordinator.timers import Timers

OURS = "barnabas."
PLAIN = (int, str, bytes, float, bool, type(None), uuid.UUID, enum.Enum)
NOT_STATE = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.MethodWrapperType,
    type,
    Generator,
)

_OTHER = "another part, of which the picture is not"
_TIME = "of the steady clock, or of how long the process runs"
_AGAIN = "is computed again when it is asked for"
_FILES = "how far files are written or trusted, which a start finds out again"
LEFT_OUT: dict[str, str] = {
    # logs
    "Log._changed_logs": _OTHER, "Log.log_dir": _OTHER, "Log.leader_epoch": "each start begins one",
    "Log.unread_bytes": _FILES, "Log.whole_from": "when this run began",
    "LeaderEpochs": "each start begins one", "Durability": _FILES,
    "LogCheckpoint": _FILES, "LogFiles": _FILES, "SegmentTurnover": _FILES, "LogReader": _OTHER,
    "Segment.room": _AGAIN,
    "SegmentIndexes": _FILES, "Segment._older": _OTHER, "Segment.created_ms": _TIME,
    "ProducerSnapshots": _FILES,
    "BatchFile.open_file": _OTHER, "BatchFile._file": _OTHER,
    "ProducerStateManager._rows": "made when producers are many, of the same entries",
    "ProducerStateManager.refused": "what was refused may be sent again after a restart, too",
    "ProducerEntry.seen_ms": _TIME, "ProducerEntry.row": "a place in `_rows`",
    "ProducerEntry.batches": "a snapshot has the last one; `check_batch` reads the others again",
    "ProducerEntry.has_whole_window": "see `batches`",
    "Segment._recent": _AGAIN, "SegmentList._end": _AGAIN, "PooledDisk": _OTHER,
    # coordinators
    "ShareCoordinator._next_cold_ms": _TIME, "GroupSettings": _OTHER, "WallClock": _OTHER,
    "ShareState.incarnation": "a count since its first record, which is deleted after a snapshot",
    "ShareCoordinator._changed": "which logs the next cold snapshots look at; a start assumes all",
    "Rebalance._has_new_member": "of a rebalance under way, which a restart begins again",
    "Rebalance._is_initial": "of a rebalance under way",
    "Rebalance._initial_remaining_ms": "of a rebalance under way",
    "assigned_ms": _AGAIN, "topics_version": _AGAIN, "patterns_ms": _AGAIN, "_subscribed": _AGAIN,
    "patterns_version": _AGAIN, "looked_up_for": _AGAIN, "lookup": _AGAIN,
    "StreamsGroup.plan": _AGAIN, "Topology.required_topics": _AGAIN,
    "Member.is_new": "its first answer was sent, or its connection is gone",
    "TransactionCoordinator._wall": _OTHER,
    "TransactionCoordinator._last_due": _TIME, "TransactionCoordinator.is_loaded": _TIME,
    "TransactionCoordinator._latest_connections": "after a restart no connection is known",
    "TransactionCoordinator.sessions": _OTHER, "TransactionCoordinator.additions": _OTHER,
    # groups
    "GroupCoordinator._wall": _OTHER,
    "GroupCoordinator._context": _OTHER, "GroupCoordinator._kinds": _OTHER,
    "GroupCoordinator._topic_partitions": _AGAIN, "GroupCoordinator._settings": _OTHER,
    **{
        f"GroupCoordinator.{name}": _OTHER
        for name in (
            "membership", "commits", "fetches", "removal", "administration",
            "share_requests", "share_offsets", "streams_requests",
        )
    },
    "CommittedOffset.since_ms": _TIME,
    # the journal
    "ClusterMetadata._file": _FILES, "ClusterMetadata._durable_size": _FILES,
    "ClusterMetadata.change_count": _TIME,
    "ClusterMetadata._frames": _FILES, "ClusterMetadata._gone": "written with the next change",
    "ClusterMetadata._disk": _OTHER,
}  # fmt: skip


# These timers stay set after a rebalance until the next rebalance sets them again, as in Apache
# Kafka.
WAITS_OF_A_REBALANCE = ("join", "sync")


def picture(roots: Mapping[str, Any], left_out: Mapping[str, str] = LEFT_OUT) -> dict[str, str]:
    """The plain values by their paths from the roots. Containers and objects are replaced by their
    members. Each object appears once, at its shortest path. An empty container is a plain value.
    """
    rows: dict[str, str] = {}
    seen: set[int] = set()
    waiting: deque[tuple[str, Any]] = deque(roots.items())
    while waiting:
        way, value = waiting.popleft()
        if isinstance(value, PLAIN):
            rows[way] = repr(value)
            continue
        if isinstance(value, bytearray | memoryview):
            rows[way] = repr(bytes(value))
            continue
        if isinstance(value, NOT_STATE) or type(value).__name__ in left_out:
            continue
        if _is_one(value):
            if id(value) in seen:
                continue
            seen.add(id(value))
        members = list(_members(value, left_out))
        if not members:
            rows[way] = "empty"
        waiting.extend((way + name, member) for name, member in members)
    return rows


def _is_one(value: Any) -> bool:
    """Whether the value is an object with an identity, rather than a plain value that may occur
    several times.
    """
    kind = type(value)
    if not kind.__module__.startswith(OURS) or isinstance(value, tuple):
        return False
    return not (dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen)  # type: ignore[attr-defined]


def _members(value: Any, left_out: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """The members of a value, each with its step in the path."""
    if isinstance(value, Timers):  # compares which deadlines exist, but not their times
        for key in value:
            if key[0] not in WAITS_OF_A_REBALANCE:
                yield f"[{_key(key)}]", True
    elif isinstance(value, Mapping):
        for key, member in value.items():
            yield f"[{_key(key)}]", member
    elif isinstance(value, set | frozenset):
        for member in value:
            yield f"{{{_key(member)}}}", True
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for name, member in zip(value._fields, value, strict=True):
            if f"{type(value).__name__}.{name}" not in left_out:
                yield f".{name}", member
    elif isinstance(value, list | tuple | deque):
        for number, member in enumerate(value):
            yield f"[{number}]", member
    elif type(value).__module__.startswith(OURS):
        for name, member in sorted(_attributes(value)):
            kinds = [kind.__name__ for kind in type(value).__mro__]
            if name not in left_out and not any(f"{kind}.{name}" in left_out for kind in kinds):
                yield f".{name}", member


def _attributes(value: Any) -> list[tuple[str, Any]]:
    """The attributes of an object, including those in slots."""
    found = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(value, name):
                found[name] = getattr(value, name)
    return list(found.items())


def _key(key: Any) -> str:
    text = repr(key)
    return text if len(text) < 120 else f"{text[:100]}…{hash(text) & 0xFFFF}"


def differences(live: Mapping[str, str], restarted: Mapping[str, str]) -> list[str]:
    """The paths at which two pictures differ. An empty table counts as equal to a missing one."""
    return [
        f"{way}: live {live.get(way, 'nothing')[:80]}, "
        f"after a start {restarted.get(way, 'nothing')[:80]}"
        for way in dict.fromkeys((*live, *restarted))
        if live.get(way, "empty") != restarted.get(way, "empty") and not _is_more(way, live)
    ]


def _is_more(way: str, live: Mapping[str, str]) -> bool:
    """Whether a restarted broker may have this path although the live one does not. A start sets
    the retention timer of every group, which a share group otherwise does not need. An expired
    producer exists again until the next checkpoint.
    """
    if "timers[('retention'" in way:
        return way not in live
    return ".producer_state.producers" in way and live.get(way, "empty") == "empty"


def known_of(broker: Any, left_out_groups: Collection[str] = ()) -> dict[str, str]:
    """The picture of the state that a start must restore.

    Takes: left_out_groups, the groups with joining members, whose state a start does not restore.
    """
    names = [repr(name) for name in left_out_groups]
    return {
        way: value
        for way, value in picture(_roots_of(broker)).items()
        if not way.startswith("groups.") or not any(name in way for name in names)
    }


def groups_unknown_to_a_start(broker: Any) -> list[str]:
    """The classic groups with members that are joining or not synchronised, and the groups without
    a record.

    A group may have no record if its only offsets were those of an aborted transaction.
    """
    return [
        group.group_id
        for group in broker.groups.all_groups()
        if group.classic.pending_ids
        or group.classic.state not in (State.EMPTY, State.STABLE)
        or _is_without_state(group)
    ]


def _is_without_state(group: Any) -> bool:
    """Whether the group has neither offsets nor members, and never had a generation."""
    offsets = group.offsets
    has_any = offsets.committed or offsets.pending or group.member_ids or group.modern is not None
    return not has_any and group.classic.rebalance.generation == 0


def _roots_of(broker: Any) -> dict[str, Any]:
    """The parts of a broker whose state a start restores."""
    parts = broker.routes.parts
    logs = parts.logs
    roots = {
        "metadata": parts.metadata,
        "transactions": parts.transactions,
        "groups": parts.groups,
        "share states": parts.shares.get().coordinator,
        "off line": {key: str(error) for key, error in logs.offline.items()},
        "unwritten markers": parts.coordinators.get().markers.unwritten,
    }
    for key in sorted(logs.logs):
        roots["log {}-{}".format(*key)] = logs.logs[key]
    return roots


def short(way: str) -> str:
    """The path without keys and numbers, as a name for this kind of difference."""
    return re.sub(r"\[[^\[\]]*\]|\{[^{}]*\}", "[]", re.sub(r"'[^']*'|\"[^\"]*\"", "", way))
