"""Releases the records that members held when their share sessions ended. Each tick does this for
some partitions.

The member may begin another session meanwhile. Then the records that it held of a partition are
released before it gets or acknowledges new records of that partition. When a group has no sessions,
its share partitions are dropped afterwards.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from barnabas.coordinator.share.share_records import SharePartitionKey

if TYPE_CHECKING:
    from barnabas.broker.share.loaded_partitions import LoadedPartitions
    from barnabas.broker.share.share_sessions import Place, ShareSession, ShareSessions

# The maximum number of partitions released in one tick, which takes 5 to 20 ms, including the
# records that store the change.
RELEASED_AT_ONCE = 200
ENDED_AT_ONCE = 5_000  # maximum number of partitions in the sessions that one tick ends


class SessionEnds:
    """The partitions whose records are to be released, by group and member, and the groups whose
    share partitions are to be dropped.
    """

    def __init__(self, partitions: LoadedPartitions, sessions: ShareSessions) -> None:
        self._partitions, self._sessions = partitions, sessions
        self._held: dict[tuple[str, str], dict[Place, None]] = {}
        self._maybe_without_sessions: dict[str, None] = {}
        self._closed: dict[int, None] = {}  # connections whose sessions end

    @property
    def is_ready(self) -> bool:
        """Whether `on_tick` has work."""
        return bool(self._closed or self._held or self._maybe_without_sessions)

    def on_closed(self, connection_id: int) -> None:
        """Record that a connection was closed, so that the next ticks end its sessions."""
        if self._sessions.of_connection(connection_id):
            self._closed[connection_id] = None

    def end_all(self) -> None:
        """Have the next ticks end all sessions, as if their connections were closed, since share
        groups are turned off.
        """
        self._closed.update(dict.fromkeys(one.connection_id for one in self._sessions))

    def close_session(self, session: ShareSession, now_ms: int) -> None:
        """End a session, unless the member has begun another one in its place. The records that the
        member holds are released at once in some of the partitions, and in later ticks in the
        others.
        """
        if self._sessions.get(session.key) is session:
            self._end(session)
            self._release(session.key.group_id, session.key.member_id, RELEASED_AT_ONCE, now_ms)
            self._drop(RELEASED_AT_ONCE, now_ms)

    def release_now(self, group_id: str, member_id: str, place: Place, now_ms: int) -> None:
        """Release the records that a member held in one partition, unless they are already
        released.
        """
        held = self._held.get((group_id, member_id))
        if held is not None and place in held:
            del held[place]
            key = SharePartitionKey(group_id, *place)
            self._partitions.release([key], member_id, now_ms)

    def drop_unread(self, group_id: str, now_ms: int) -> None:
        """Drop the share partitions of a group, if none of its members has a session."""
        self._maybe_without_sessions[group_id] = None
        self._drop(RELEASED_AT_ONCE, now_ms)

    def on_tick(self, now_ms: int) -> None:
        """End the sessions of closed connections. Then release records of some partitions, and drop
        some share partitions.
        """
        left = ENDED_AT_ONCE
        while self._closed and left > 0:
            connection_id = next(iter(self._closed))
            sessions = self._sessions.of_connection(connection_id)
            for session in sessions:
                if left > 0:
                    left -= 1 + len(session.targets)
                    self._partitions.counts.evictions += 1
                    self._end(session)
                    # The connection is still open if share groups were turned off.
                    for fetch in list(session.waiting):
                        fetch.try_complete(now_ms, False)
            if left > 0:
                del self._closed[connection_id]
        left = RELEASED_AT_ONCE
        while self._held and left > 0:
            left -= self._release(*next(iter(self._held)), left, now_ms)
        self._drop(left, now_ms)

    def _end(self, session: ShareSession) -> None:
        """End a session. Its records are released later, some partitions at a time."""
        key = session.key
        self._sessions.remove(key)
        self._held.setdefault((key.group_id, key.member_id), {}).update(
            dict.fromkeys(session.targets)
        )
        self._maybe_without_sessions[key.group_id] = None

    def _release(self, group_id: str, member_id: str, most: int, now_ms: int) -> int:
        """Release the records that a member held in some partitions. Gives: the cost of the call,
        which is the number of these partitions plus one.
        """
        held = self._held[group_id, member_id]
        some = list(islice(held, most))
        for place in some:
            del held[place]
        if not held:
            del self._held[group_id, member_id]
        keys = (SharePartitionKey(group_id, *place) for place in some)
        self._partitions.release(keys, member_id, now_ms)
        return 1 + len(some)

    def _drop(self, most: int, now_ms: int) -> None:
        """Drop share partitions of groups without sessions, if all records of the group are
        released.
        """
        holding = {group_id for group_id, _ in self._held}
        for group_id in [one for one in self._maybe_without_sessions if one not in holding]:
            if most <= 0:
                return
            if self._sessions.has_group(group_id):
                del self._maybe_without_sessions[group_id]
                continue
            count = self._partitions.drop_some(group_id, most, now_ms)
            if count < most:
                del self._maybe_without_sessions[group_id]
            most -= count
