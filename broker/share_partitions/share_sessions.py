"""Share sessions (KIP-932): the share partitions that each member fetches.

A session is identified by the group and the member, and its epoch counts the member's requests. It
ends with the member's last request, or with the connection on which it was begun. The member's
records are then released. The partitions of a session that may have records for the member are
`ready`. A fetch visits only these, so that its cost does not depend on the number of partitions
without records. The others become ready again when their records may be acquired. Partitions with
an error are `refused`. Each fetch visits some of them again, in turn.

A session does not contain topic ids that the broker does not know: they take no memory. The number
of sessions is bounded, and so is the number of partitions of all sessions together. When there is
no room, each principal (or address, if clients are not authenticated) keeps an equal share: a
session of the one that holds most ends, as if its connection were closed (`fair_room.py`). Its
member gets SHARE_SESSION_NOT_FOUND and begins another session.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from barnabas.broker.fair_room import FairRoom
from barnabas.broker.share_partitions.loaded_partition import LoadedPartition
from barnabas.protocol.errors import Code, KafkaError

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
MAX_EPOCH = 2**31 - 1
MOST_PARTITIONS = 300_000  # maximum number of partitions in all sessions together

NO_ID = uuid.UUID(int=0)  # the decoder returns None for it
# A topic id as its 16 bytes, which are fast to hash, and a partition index.
PartitionKey = tuple[bytes, int]
# A partition that a request names: the topic's id as the request has it, and the place.
Named = tuple[uuid.UUID, PartitionKey]


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

    def __init__(self, session: ShareSession, topic_id: uuid.UUID, place: PartitionKey) -> None:
        self.session, self.topic_id, self.place = session, topic_id, place
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

    owner: the client's principal, or its address. epoch: the epoch of the next request. fresh:
    partitions that the next response contains even without records, since they are new, or had an
    error that is over. refused: partitions with an error. unloaded: new partitions that no fetch
    has visited. waiting: fetches that wait for records.
    """

    __slots__ = (
        "connection_id", "epoch", "fresh", "key", "owner", "ready", "refused", "targets",
        "unloaded", "waiting",
    )  # fmt: skip

    def __init__(self, key: SessionKey, connection_id: int, owner: str) -> None:
        self.key, self.connection_id, self.owner = key, connection_id, owner
        self.epoch = INITIAL_EPOCH + 1
        self.targets: dict[PartitionKey, ShareTarget] = {}
        self.ready: dict[ShareTarget, None] = {}
        self.fresh: dict[ShareTarget, None] = {}
        self.refused: dict[ShareTarget, None] = {}
        self.unloaded: dict[ShareTarget, None] = {}
        self.waiting: dict[Waiting, None] = {}

    def add(self, topic_id: uuid.UUID, place: PartitionKey) -> None:
        """Add a partition, unless the session already has it."""
        if place not in self.targets:
            target = self.targets[place] = ShareTarget(self, topic_id, place)
            self.ready[target] = self.fresh[target] = self.unloaded[target] = None

    def forget(self, place: PartitionKey) -> None:
        """Remove a partition."""
        target = self.targets.pop(place, None)
        if target is not None:
            for places in (self.ready, self.fresh, self.refused, self.unloaded):
                places.pop(target, None)
            if target.partition is not None:
                target.partition.idle.pop(target, None)

    def refuse(self, target: ShareTarget) -> None:
        """Record that a partition has an error."""
        self.ready.pop(target, None)
        self.fresh.pop(target, None)
        self.refused[target] = None

    def pop_refused(self, most: int) -> list[ShareTarget]:
        """Make some of the refused partitions ready again, since their errors may be over."""
        some = list(islice(self.refused, most))
        for target in some:
            del self.refused[target]
            self.ready[target] = self.fresh[target] = None
        return some

    def end(self) -> None:
        """Drop all lists of partitions except `targets`. Otherwise the session and its partitions
        would refer to each other, and their memory would be freed late.
        """
        for places in (self.ready, self.fresh, self.refused, self.unloaded):
            places.clear()

    def to_end(self, target: ShareTarget) -> None:
        """If a partition is ready, move it to the end of the ready partitions."""
        if target in self.ready:
            del self.ready[target]
            self.ready[target] = None

    def advance(self) -> None:
        """Advance the epoch to that of the next request."""
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1


class ShareSessions:
    """All sessions.

    on_replaced, on_evicted: called with a session that was removed, because its member has begun
    another one, or because another owner needs the room. They release its partitions
    (`SessionEnds`).
    """

    def __init__(self, most: int) -> None:
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[int, dict[SessionKey, None]] = {}
        self._by_group: dict[str, int] = {}
        self._count, self._partitions = FairRoom(most), FairRoom(MOST_PARTITIONS)
        self.on_replaced: Callable[[ShareSession], None] = _ignore
        self.on_evicted: Callable[[ShareSession], None] = _ignore

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[ShareSession]:
        return iter(self._sessions.values())

    @property
    def partition_count(self) -> int:
        """The number of partitions in all sessions together."""
        return self._partitions.total

    def get(self, key: SessionKey) -> ShareSession | None:
        """The session of a member, or None."""
        return self._sessions.get(key)

    def has_group(self, group_id: str) -> bool:
        """Whether a member of the group has a session."""
        return group_id in self._by_group

    def begin(self, key: SessionKey, connection_id: int, owner: str = "") -> ShareSession:
        """Begin a session, which replaces the member's earlier session.

        Raises: KafkaError SHARE_SESSION_LIMIT_REACHED if there is no room for another session, or
                for partitions.
        """
        replaced = self.remove(key)
        if replaced is not None:
            self.on_replaced(replaced)
        self._make_room(self._count, owner, 1)
        self._make_room(self._partitions, owner, 1)
        session = self._sessions[key] = ShareSession(key, connection_id, owner)
        self._count.change(owner, 1)
        self._by_connection.setdefault(connection_id, {})[key] = None
        self._by_group[key.group_id] = self._by_group.get(key.group_id, 0) + 1
        return session

    def _make_room(self, room: FairRoom, owner: str, more: int) -> None:
        """End sessions of owners that hold more than their shares, until there is room for an owner
        within its own. Raises: KafkaError SHARE_SESSION_LIMIT_REACHED.
        """
        while not room.has_room(more):
            largest = room.who_yields(owner, more)
            if largest is None:
                raise KafkaError(Code.SHARE_SESSION_LIMIT_REACHED)
            of_owner = (one for one in self._sessions.values() if one.owner == largest)
            evicted = max(of_owner, key=lambda one: len(one.targets))
            self.remove(evicted.key)
            self.on_evicted(evicted)

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
        self, session: ShareSession, added: Sequence[Named], forgotten: Iterable[PartitionKey]
    ) -> None:
        """Add partitions to a session, and remove others.

        Raises: KafkaError SHARE_SESSION_LIMIT_REACHED if there is no room for the partitions. Then
                the session is unchanged.
        """
        had = session.targets  # not a set operation, which would copy all partitions of the session
        places = {place for _, place in added}
        left = set(forgotten)
        more = sum(place not in had for place in places - left) - sum(
            place in had for place in left
        )
        if more > 0:
            self._make_room(self._partitions, session.owner, more)
        before = len(session.targets)
        for topic_id, place in added:
            session.add(topic_id, place)
        for place in left:
            session.forget(place)
        self._partitions.change(session.owner, len(session.targets) - before)

    def remove(self, key: SessionKey) -> ShareSession | None:
        """End a session. Its share partitions still refer to its partitions.

        Gives: the session, if there was one.
        """
        session = self._sessions.pop(key, None)
        if session is None:
            return None
        self._count.change(session.owner, -1)
        self._partitions.change(session.owner, -len(session.targets))
        keys = self._by_connection[session.connection_id]
        del keys[key]
        if not keys:
            del self._by_connection[session.connection_id]
        left = self._by_group[key.group_id] - 1
        if left:
            self._by_group[key.group_id] = left
        else:
            del self._by_group[key.group_id]
        session.end()
        return session

    def of_connection(self, connection_id: int) -> list[ShareSession]:
        """The sessions that were begun on a connection."""
        return [self._sessions[key] for key in self._by_connection.get(connection_id, ())]


def _ignore(_: ShareSession) -> None:
    return
