"""A search for state that outlives the object to which it belongs. It needs no list of attributes.

`strays_of` visits all objects that are reachable from a broker. It reports state of an object that
is no longer in its table, empty containers in tables, and deadlines without an owner.

`sizes_of` counts the elements of each container by its path. When all topics, groups, connections
and timers of a broker are gone, `surplus` returns the containers in which it has more elements than
a broker that was just started on its directory.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from barnabas.broker.connections.connection_state import ConnectionState
from barnabas.broker.logs.metadata import Topic
from barnabas.broker.share_partitions.loaded_partition import LoadedPartition
from barnabas.broker.share_partitions.share_sessions import ShareSession
from barnabas.broker.transactions.transaction_end import Ending
from barnabas.coordinator.groups import group_timers as timers_of
from barnabas.coordinator.groups.classic.rebalance import State
from barnabas.coordinator.groups.consumer.consumer_group import consumer_group
from barnabas.coordinator.groups.group import Group
from barnabas.coordinator.groups.group_coordinator import GroupCoordinator
from barnabas.coordinator.groups.group_timers import OF_MEMBERS, TimerKey
from barnabas.coordinator.groups.group_types import CONSUMER_TYPE
from barnabas.coordinator.groups.share.share_group import ShareGroup
from barnabas.coordinator.groups.streams.streams_group import StreamsGroup
from barnabas.coordinator.groups.streams.streams_group_records import MemberState as TasksState
from barnabas.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from barnabas.coordinator.transactions.transaction_state import (
    NO_TIMEOUT_MS,
    PREPARED,
    TransactionState,
)
from barnabas.storage.log.log import Log
from helpers.kept_files import wrong_files
from helpers.leftovers import is_to_enter, parts_of
from helpers.pictures import short
from helpers.stamped import wrongly_current

MOST_OBJECTS = 400_000

# Empty containers in tables that are allowed, by a part of their paths, each with the reason.
EMPTY_ROWS = {
    ".targets[": "the target of a member that gets nothing",
    "._disk._files[": "a directory whose files are closed; the row goes with the directory",
}
NOT_ENTERED = {
    "._loaded_routes": "one for each API that was asked for",
    ".loaded": "the same",
    ".encoders": "one for each of these with an encoder of its own",
}
NAMES_KEPT = {
    ".fetch_sessions._sessions": "sessions outlive connections",
    ".transactions._last_due": "the ids of the last tick, a few",
    "._topic_partitions": "decoded keys of offsets, up to a bound",
    "._read_header": "client ids, up to a bound",
    ".counters._counts": "labels of metrics, which a group may be named like",
}
# Containers that may have more rows; what is in the rows is compared nevertheless.
MORE_ROWS = {
    ".routes.parts.own": "a part for each family of handlers that was used, of a few families",
}
# Bounded caches that grow with requests, and sizes of values that are not tables.
GROWING = {
    ".transactions._last_due": "the ids of the last tick, a few",
    ".logs.logs[].segments": "how far files are written and trusted",
    ".durability._unflushed": "segments to be flushed",
    ".logs.cache._entries": "indexes in memory, within index_cache_bytes",
    "._disk._removed": "open files whose names are gone, a share of the descriptors",
    "._disk._files": "files of logs that are there",
    "._disk.order": "open files, a share of the descriptors",
    ".fetch_sessions._sessions": "sessions outlive connections, within max.incremental.fetch...",
    ".fetch_sessions._count": "the owners of the sessions",
    ".fetch_sessions._weights": "the owners of the sessions",
    ".topics._made_at": "when each topic was made, of those that are there",
    ".transaction_ends._completions": "internal logs whose Complete records nothing waits for",
    ".unwritten._lines": "lines of the last minute",
    "._topic_partitions": "decoded keys of offsets, up to a bound",
    "._read_header": "headers by their bytes, up to a bound",
    ".group_configs._parsed": "of groups that have settings, which outlive groups",
    ".counters._counts": "a number for each metric and its labels",
    ".share.counts": "a number for each kind of acknowledgement",
    ".shares.made.counts": "a number for each kind of acknowledgement",
    ".quotas.clients._": "by user and client id; dropped when there are too many",
    ".metadata._gone": "deletions that are noted with the next change",
    ".logs.journal._earlier": "the journals that the start found",
}


def reached(broker: Any) -> Iterator[tuple[str, Any, Any]]:
    """The path, the holder and the value of everything that is reachable. Each object occurs
    once.
    """
    seen = {id(broker)}
    waiting: deque[tuple[str, Any]] = deque([("", broker)])
    count = 0
    while waiting:
        way, holder = waiting.popleft()
        count += 1
        assert count < MOST_OBJECTS, f"a walk without an end: {way}"
        for name, value in parts_of(holder):
            if name in NOT_ENTERED:
                continue
            yield way + name, holder, value
            if id(value) not in seen and is_to_enter(value):
                seen.add(id(value))
                waiting.append((way + name, value))


def strays_of(broker: Any) -> list[str]:
    """The state that belongs to deleted objects.

    Takes: broker, an idle broker.
    """
    parts = broker.routes.parts
    homes = {
        Log: lambda log: parts.logs.logs.get((log.topic, log.partition)),
        Topic: lambda topic: parts.metadata.topics.get(topic.name),
        Group: lambda group: parts.groups.group(group.group_id),
        ConnectionState: lambda one: broker.connections.get(one.connection_id),
        Ending: lambda ending: parts.endings.by_id.get(ending.transactional_id),
    }
    if parts.shares.made is not None:
        shares = parts.shares.made
        homes[ShareSession] = lambda session: shares.sessions.get(session.key)
        homes[LoadedPartition] = lambda one: shares.partitions._loaded.get(one.key)
    found = []
    for way, holder, value in reached(broker):
        home = homes.get(type(value))
        if home is not None and home(value) is not value:
            found.append(f"{way}: {value!r} is gone, and still there")
        # Whether the value is an entry of a dict, rather than an attribute of a subclass of dict.
        is_row = isinstance(holder, dict) and way.endswith("]")
        is_empty = isinstance(value, dict | set | list | deque) and not value
        if is_row and is_empty and not any(end in way for end in EMPTY_ROWS):
            found.append(f"{way}: an empty row")
    found += deadlines_of_nothing(parts.groups)
    found += lacking_deadlines_of_groups(parts.groups)
    found += wrongly_current(parts.groups)
    if broker.compaction._under_way is None:
        found += wrong_files(broker)
    found += lacking_deadlines(parts.transactions, parts.endings.by_id)
    return found


def wrong_deadlines(groups: GroupCoordinator) -> list[str]:
    """Deadlines of groups that are superfluous or missing. May be called after any event."""
    return [*deadlines_of_nothing(groups), *lacking_deadlines_of_groups(groups)]


def deadlines_of_nothing(groups: GroupCoordinator) -> Iterator[str]:
    """Descriptions of deadlines that belong to deleted groups or members."""
    for key in groups.timers:
        kind, group_id, member_id = key
        group = groups.group(group_id)
        if group is None:
            yield f"a deadline of a group that is gone: {key}"
            continue
        known = (*group.member_ids, *group.classic.pending_ids)
        if kind in OF_MEMBERS and member_id and member_id not in known:
            yield f"a deadline of a member that is gone: {key}"


def lacking_deadlines_of_groups(groups: GroupCoordinator) -> Iterator[str]:
    """Descriptions of waiting groups and members that have no deadline."""
    for group in groups.all_groups():
        lacking = [key for key in _wanted_deadlines(group) if key not in groups.timers]
        yield from (f"no time ends that: {key}" for key in lacking)


def _wanted_deadlines(group: Group) -> Iterator[TimerKey]:
    """The timers that a group in this state must have."""
    group_id, classic = group.group_id, group.classic
    if not isinstance(group.modern, ShareGroup):  # the offsets of a share group do not expire
        yield timers_of.RETENTION, group_id, ""
    for member_id in (*group.member_ids, *classic.pending_ids):
        yield timers_of.SESSION, group_id, member_id
    if classic.state is State.PREPARING_REBALANCE:
        yield timers_of.JOIN, group_id, ""
    if classic.state is State.COMPLETING_REBALANCE:
        yield timers_of.SYNC, group_id, ""
    if group.kind == CONSUMER_TYPE:
        consumer = consumer_group(group)
        for member_id, value in consumer.members.items():
            if consumer.current(member_id).pending_revocation and value.classic is None:
                yield timers_of.REBALANCE, group_id, member_id
    if isinstance(group.modern, StreamsGroup):
        for member_id in group.modern.members:
            if group.modern.current(member_id).state is TasksState.UNREVOKED_TASKS:
                yield timers_of.REBALANCE, group_id, member_id
        if group.modern.assigning is not None:
            yield timers_of.ASSIGNING, group_id, ""


def lacking_deadlines(
    transactions: TransactionCoordinator, under_way: Collection[str] = ()
) -> Iterator[str]:
    """Transactional ids without a deadline, and deadlines of deleted ids.

    Takes: under_way, the transactional ids whose transactions are being ended.
    """
    for transactional_id in transactions.timers:
        if transactions.metadata(transactional_id) is None:
            yield f"a deadline of a transactional id that is gone: {transactional_id}"
    for transactional_id, one in transactions.snapshot().items():
        if (
            one.state not in PREPARED
            and (one.state is not TransactionState.ONGOING or one.timeout_ms != NO_TIMEOUT_MS)
            and transactional_id not in transactions.timers
            and transactional_id not in under_way
        ):
            yield f"{transactional_id} is {one.state.value}, and has no deadline"


def traces_of(broker: Any, names: Collection[str]) -> list[str]:
    """The paths at which one of the names still occurs, as a key or a value."""
    return [
        f"{way}: {value!r}"
        for way, _, value in reached(broker)
        if type(value) is str and value in names and not any(part in way for part in NAMES_KEPT)
    ]


def sizes_of(broker: Any) -> Counter[str]:
    """The number of elements of all containers with the same path, by this path. Keys are left out
    of the paths.
    """
    sizes: Counter[str] = Counter()
    for way, _, value in reached(broker):
        if isinstance(value, dict | list | set | deque):
            sizes[short(way)] += len(value)
    return sizes


def surplus(emptied: Mapping[str, int], started: Mapping[str, int]) -> list[str]:
    """The paths at which the emptied broker has more elements than the newly started one."""
    return [
        f"{way}: {size} and not {started.get(way, 0)}"
        for way, size in sorted(emptied.items())
        if size > started.get(way, 0)
        and way not in MORE_ROWS
        and not any(part in way for part in GROWING)
    ]
