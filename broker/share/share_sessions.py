"""Share sessions (KIP-932): the share partitions that each member fetches.

A session is identified by the group and the member, and its epoch counts the member's requests. It
ends with the member's last request, or with the connection on which it was begun. The member's
records are then released. The partitions of a session that may have records for the member are
`ready`. A fetch visits only these, so that its cost does not depend on the number of partitions
without records. The others become ready again when their records may be acquired.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.protocol.errors import Code, KafkaError

if TYPE_CHECKING:
    from barnabas.broker.share.loaded_partition import LoadedPartition

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
MAX_EPOCH = 2**31 - 1
MOST_PARTITIONS = 300_000  # maximum number of partitions in all sessions together

# A topic id as its 16 bytes, which are fast to hash, and a partition index.
Place = tuple[bytes, int]


class SessionKey(NamedTuple):
    """The key of a session: the ids of the group, of the member, and of the broker."""

    group_id: str
    member_id: str
    node_id: int


class Waiting(Protocol):
    """A fetch that waits for records."""

    def try_complete(self, now_ms: int, out_of_time: bool) -> bool:
        """If there are records, answer the fetch. Gives: whether it is answered."""
        ...


class ShareTarget:
    """A partition in a session. partition: the loaded share partition; None until the
    first visit.
    """

    __slots__ = ("partition", "place", "session", "topic_id")

    def __init__(self, session: ShareSession, topic_id: uuid.UUID, index: int) -> None:
        self.session, self.topic_id = session, topic_id
        self.place: Place = (topic_id.bytes, index)
        self.partition: LoadedPartition | None = None

    @property
    def index(self) -> int:
        return self.place[1]

    @property
    def is_waited_for(self) -> bool:
        """Whether a fetch of the session is waiting."""
        return bool(self.session.waiting)

    def make_ready(self) -> None:
        """Let the next fetch visit the partition."""
        self.session.ready[self] = None

    def try_fetches(self, now_ms: int) -> None:
        """Try again the fetches of the session that are waiting."""
        for fetch in list(self.session.waiting):
            fetch.try_complete(now_ms, False)


class ShareSession:
    """The session of a member, with the partitions that it fetches.

    epoch: the epoch of the next request. fresh: partitions that the next response contains even
    without records, since they are new or had an error. unloaded: new partitions that no fetch has
    visited. waiting: fetches that wait for records.
    """

    __slots__ = (
        "connection_id", "epoch", "fresh", "key", "ready", "targets", "unloaded", "waiting",
    )  # fmt: skip

    def __init__(self, key: SessionKey, connection_id: int) -> None:
        self.key, self.connection_id = key, connection_id
        self.epoch = INITIAL_EPOCH + 1
        self.targets: dict[Place, ShareTarget] = {}
        self.ready: dict[ShareTarget, None] = {}
        self.fresh: dict[ShareTarget, None] = {}
        self.unloaded: dict[ShareTarget, None] = {}
        self.waiting: dict[Waiting, None] = {}

    def add(self, topic_id: uuid.UUID, index: int) -> None:
        """Add a partition, unless the session already has it."""
        place = (topic_id.bytes, index)
        if place not in self.targets:
            target = self.targets[place] = ShareTarget(self, topic_id, index)
            self.ready[target] = self.fresh[target] = self.unloaded[target] = None

    def forget(self, topic_id: uuid.UUID, index: int) -> None:
        """Remove a partition."""
        target = self.targets.pop((topic_id.bytes, index), None)
        if target is not None:
            self.ready.pop(target, None)
            self.fresh.pop(target, None)
            self.unloaded.pop(target, None)
            if target.partition is not None:
                target.partition.idle.pop(target, None)

    def to_end(self, target: ShareTarget) -> None:
        """If a partition is ready, move it to the end of the ready partitions."""
        if target in self.ready:
            del self.ready[target]
            self.ready[target] = None

    def advance(self) -> None:
        """Advance the epoch to that of the next request."""
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1


class ShareSessions:
    """All sessions. partition_count: the number of partitions in all sessions together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[int, dict[SessionKey, None]] = {}
        self._by_group: dict[str, int] = {}
        self.partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[ShareSession]:
        return iter(self._sessions.values())

    def get(self, key: SessionKey) -> ShareSession | None:
        """The session of a member, or None."""
        return self._sessions.get(key)

    def has_group(self, group_id: str) -> bool:
        """Whether a member of the group has a session."""
        return group_id in self._by_group

    def begin(self, key: SessionKey, connection_id: int) -> ShareSession:
        """Begin a session, which replaces the member's earlier session.

        Raises: KafkaError SHARE_SESSION_LIMIT_REACHED.
        """
        self.remove(key)
        if len(self._sessions) >= self._most or self.partition_count >= MOST_PARTITIONS:
            raise KafkaError(Code.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[key] = ShareSession(key, connection_id)
        self._by_connection.setdefault(connection_id, {})[key] = None
        self._by_group[key.group_id] = self._by_group.get(key.group_id, 0) + 1
        return session

    def require(self, key: SessionKey, epoch: int) -> ShareSession:
        """The session of a request that requires a session.

        Raises: KafkaError SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(Code.SHARE_SESSION_NOT_FOUND)
        if epoch not in (FINAL_EPOCH, session.epoch):
            raise KafkaError(Code.INVALID_SHARE_SESSION_EPOCH)
        return session

    def update(
        self,
        session: ShareSession,
        added: Iterable[tuple[uuid.UUID, int]],
        forgotten: Iterable[tuple[uuid.UUID, int]],
    ) -> None:
        """Add partitions to a session, and remove others.

        Raises: KafkaError SHARE_SESSION_LIMIT_REACHED if all sessions together would have too many
                partitions. Then the session is unchanged, or is ended if it had no partitions.
        """
        added, forgotten = list(added), list(forgotten)
        had = session.targets  # not a set operation, which would copy all partitions of the session
        places = {(topic_id.bytes, index) for topic_id, index in added}
        left = {(topic_id.bytes, index) for topic_id, index in forgotten}
        more = sum(place not in had for place in places - left) - sum(
            place in had for place in left
        )
        if more > 0 and self.partition_count + more > MOST_PARTITIONS:
            if not session.targets:
                self.remove(session.key)
            raise KafkaError(Code.SHARE_SESSION_LIMIT_REACHED)
        before = len(session.targets)
        for topic_id, index in added:
            session.add(topic_id, index)
        for topic_id, index in forgotten:
            session.forget(topic_id, index)
        self.partition_count += len(session.targets) - before

    def remove(self, key: SessionKey) -> ShareSession | None:
        """End a session. Gives: the session, if there was one."""
        session = self._sessions.pop(key, None)
        if session is None:
            return None
        self.partition_count -= len(session.targets)
        for target in session.targets.values():
            if target.partition is not None:
                target.partition.idle.pop(target, None)
        keys = self._by_connection[session.connection_id]
        del keys[key]
        if not keys:
            del self._by_connection[session.connection_id]
        left = self._by_group[key.group_id] - 1
        if left:
            self._by_group[key.group_id] = left
        else:
            del self._by_group[key.group_id]
        return session

    def of_connection(self, connection_id: int) -> list[ShareSession]:
        """The sessions that were begun on a connection."""
        return [self._sessions[key] for key in self._by_connection.get(connection_id, ())]
