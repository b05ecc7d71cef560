"""Releases the records that members held when their share sessions ended. Each tick does this for
some partitions.

The member may begin another session meanwhile. Then the records that it held of a partition are
released before it gets or acknowledges new records of that partition. When a group has no sessions,
its share partitions are dropped afterwards.

The partitions of an ended session are removed from it one by one, with the references that share
partitions have to them. So all of the session's memory is freed without the cycle collector.
"""

from __future__ import annotations

from collections import deque

from barnabas.broker.share_partitions.share_partition_cache import SharePartitionCache
from barnabas.broker.share_partitions.share_sessions import (
    PartitionKey,
    ShareSession,
    ShareSessions,
    ShareTarget,
)
from barnabas.coordinator.share_states.share_records import SharePartitionKey

# The maximum number of partitions released in one tick, which takes 5 to 20 ms, including the
# records that store the change. A partition of which the member held no records costs less.
RELEASED_AT_ONCE = 200
UNREAD_PER_RELEASED = 25
ENDED_AT_ONCE = 5_000  # maximum number of partitions in the sessions that one tick ends


class SessionEnds:
    """The sessions whose records are to be released, by group and member, and the groups whose
    share partitions are to be dropped.
    """

    def __init__(self, partitions: SharePartitionCache, sessions: ShareSessions) -> None:
        self._partitions, self._sessions = partitions, sessions
        sessions.on_replaced = self._on_replaced
        sessions.on_evicted = self._on_evicted
        self._held: dict[tuple[str, str], list[ShareSession]] = {}
        self._replaced: deque[ShareSession] = deque()
        self._evicted: deque[ShareSession] = deque()
        self._maybe_without_sessions: dict[str, None] = {}
        self._closed: dict[int, None] = {}  # connections whose sessions end

    @property
    def is_ready(self) -> bool:
        """Whether `on_tick` has work."""
        return bool(
            self._closed
            or self._held
            or self._maybe_without_sessions
            or self._replaced
            or self._evicted
        )

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
        if self.end(session):
            self._release(session.key.group_id, session.key.member_id, RELEASED_AT_ONCE, now_ms)
            self._drop(RELEASED_AT_ONCE, now_ms)

    def end(self, session: ShareSession) -> bool:
        """End a session, unless the member has begun another one in its place. The next ticks
        release its records. Gives: whether it was ended.
        """
        if self._sessions.get(session.key) is not session:
            return False
        self._sessions.remove(session.key)
        self._end(session)
        return True

    def _on_replaced(self, session: ShareSession) -> None:
        """The member has begun another session. It still holds the records of the former one."""
        self._replaced.append(session)

    def _on_evicted(self, session: ShareSession) -> None:
        """The session was ended, since others need its room. The next tick answers its fetches."""
        self._partitions.counts.evictions += 1
        self._end(session)
        self._evicted.append(session)

    def release_now(self, group_id: str, member_id: str, place: PartitionKey, now_ms: int) -> None:
        """Release the records that a member held in one partition, unless they are already
        released.
        """
        for session in self._held.get((group_id, member_id), ()):
            target = session.targets.pop(place, None)
            if target is not None:
                _take_down(target)
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
        while self._evicted:
            self._answer_fetches(self._evicted.popleft(), now_ms)
        left = ENDED_AT_ONCE
        while self._closed and left > 0:
            connection_id = next(iter(self._closed))
            for session in self._sessions.of_connection(connection_id):
                if left > 0:
                    left -= 1 + len(session.targets)
                    self._partitions.counts.evictions += 1
                    self.end(session)
                    # The connection is still open if share groups were turned off.
                    self._answer_fetches(session, now_ms)
            if left > 0:
                del self._closed[connection_id]
        left = RELEASED_AT_ONCE
        while self._held and left > 0:
            left -= self._release(*next(iter(self._held)), left, now_ms)
        while self._replaced and left > 0:
            left -= self._take_down_some(self._replaced[0], left)[0]
            if not self._replaced[0].targets:
                self._replaced.popleft().end()
        self._drop(left, now_ms)

    @staticmethod
    def _answer_fetches(session: ShareSession, now_ms: int) -> None:
        """Answer the fetches that wait for records of an ended session."""
        for fetch in list(session.waiting):
            fetch.try_complete(now_ms, False)

    def _end(self, session: ShareSession) -> None:
        """Have the records of an ended session released, some partitions at a time."""
        key = session.key
        self._held.setdefault((key.group_id, key.member_id), []).append(session)
        self._maybe_without_sessions[key.group_id] = None

    def _release(self, group_id: str, member_id: str, most: int, now_ms: int) -> int:
        """Release the records that a member held in some partitions. Gives: the cost of the call,
        which is the number of these partitions plus one, or more.
        """
        sessions = self._held[group_id, member_id]
        cost, keys = self._take_down_some(sessions[0], most)
        if not sessions[0].targets:
            sessions.pop(0).end()
            if not sessions:
                del self._held[group_id, member_id]
        self._partitions.release(keys, member_id, now_ms)
        return cost

    def _take_down_some(
        self, session: ShareSession, most: int
    ) -> tuple[int, list[SharePartitionKey]]:
        """Remove some partitions from an ended session. Gives: the cost, and the share partitions
        of which the member may hold records.
        """
        loaded, unread = list[SharePartitionKey](), 0
        targets, group_id = session.targets, session.key.group_id
        while targets and len(loaded) + unread // UNREAD_PER_RELEASED < most:
            place, target = targets.popitem()
            _take_down(target)
            key = SharePartitionKey(group_id, *place)
            if self._partitions.get(key) is None:
                unread += 1
            else:
                loaded.append(key)
        return 1 + len(loaded) + unread // UNREAD_PER_RELEASED, loaded

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


def _take_down(target: ShareTarget) -> None:
    """Remove the reference from a share partition to a partition of an ended session."""
    if target.partition is not None:
        target.partition.idle.pop(target, None)
