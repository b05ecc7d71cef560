"""Incremental fetch sessions (KIP-227): the broker stores the partitions that a client fetches, and
responses contain only those that changed.

A session is found by its id on any connection; its epoch counts the fetches. One fetch has these
effects, in this order. Partitions that the request names are added to the session, and its
forgotten partitions are removed. All partitions are read in the session's order. The response
contains the changed partitions. Those with records move to the end of the order, so that all
partitions get their share.

The number of sessions is bounded, and so is the number of partitions of all sessions together. If
there is no room for a new session, sessions are evicted as by Apache Kafka. First, sessions that
were unused for two minutes are evicted, the longest unused first. If that is not enough, the
smallest of the sessions that are at least two minutes old is evicted if the new session has more
partitions. If that is not enough either, and the client is within its equal share of the room, the
largest session of the principal that holds most is evicted (`fair_room.py`). Otherwise the new
client gets no session, and does full fetches. A session that grows beyond the bound ends with an
error, and its client continues with full fetches, too. Source: KIP-227, "Fetch Session Caching";
the shares are ours.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator
from typing import TYPE_CHECKING

from barnabas.broker.fair_room import FairRoom
from barnabas.broker.outbox import Ids
from barnabas.protocol.errors import Code, KafkaError

if TYPE_CHECKING:
    from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
MAX_EPOCH = 2**31 - 1
NO_SESSION = 0
EVICTION_MS = 120_000
MOST_PARTITIONS = 300_000  # maximum partitions of all sessions together: 120 MB
LONG_NAME = 256  # a long name counts as one more partition for each 256 characters

TopicKey = str | uuid.UUID
Targets = dict[
    tuple[str | bytes, int], "FetchTarget"
]  # the name, or the 16 bytes of the id, since hashing a UUID object takes ten times as long


class FetchTarget:
    """One partition that a fetch reads: the values of the request, and in a session also those of
    the last response.
    """

    __slots__ = (
        "current_leader_epoch", "fetch_offset", "high_watermark", "index", "last_fetched_epoch",
        "log_start_offset",
        "partition_max_bytes", "topic",
    )  # fmt: skip

    def __init__(self, topic: TopicKey, partition: FetchPartition) -> None:
        self.topic = topic
        self.index: int = partition.partition
        self.high_watermark = self.log_start_offset = -1
        self.fetch_offset: int = partition.fetch_offset
        self.partition_max_bytes: int = partition.partition_max_bytes
        self.current_leader_epoch: int = partition.current_leader_epoch
        self.last_fetched_epoch: int = partition.last_fetched_epoch

    def update(self, partition: FetchPartition | FetchTarget) -> None:
        """Store the values of the client's latest request."""
        self.fetch_offset = partition.fetch_offset
        self.partition_max_bytes = partition.partition_max_bytes
        self.current_leader_epoch = partition.current_leader_epoch
        self.last_fetched_epoch = partition.last_fetched_epoch

    def has_news(
        self, error_code: int, high_watermark: int, log_start_offset: int, size: int
    ) -> bool:
        """Whether the response must contain the partition. After: the response's values are
        stored.
        """
        news = size > 0 or error_code != 0
        if high_watermark != self.high_watermark:
            news, self.high_watermark = True, high_watermark
        if log_start_offset != self.log_start_offset:
            news, self.log_start_offset = True, log_start_offset
        if error_code != 0:
            # Make the next response without the error count as a change.
            self.high_watermark = -1
        return news


class FetchSession:
    """The partitions of one client. owner: the client's principal, if there is an authorizer; only
    this client may use the session. holder: whose share of the room it takes. weight: the number of
    partitions that the session counts for.
    """

    __slots__ = (
        "began_ms", "epoch", "holder", "last_used_ms", "owner", "session_id", "targets",
        "uses_topic_ids", "weight",
    )  # fmt: skip

    def __init__(
        self, session_id: int, *, uses_topic_ids: bool, now_ms: int, owner: str, holder: str
    ) -> None:
        self.owner, self.holder = owner, holder
        self.session_id, self.uses_topic_ids = session_id, uses_topic_ids
        self.began_ms = self.last_used_ms = now_ms
        self.weight = 0
        self.epoch = 1
        self.targets: Targets = {}

    def to_end(self, target: FetchTarget) -> None:
        """Move a partition to the end of the order in which the session is read: a fetch has room
        for the first partitions only, so the others have their turn next (KIP-227).
        """
        key = (_name_of(target.topic), target.index)
        if self.targets.pop(key, None) is not None:
            self.targets[key] = target


class FetchPlan:
    """The partitions that one request fetches. session: the session of the request, or None.
    incremental: whether the response contains only changed partitions.
    """

    __slots__ = ("incremental", "session", "targets")

    def __init__(
        self, targets: list[FetchTarget], session: FetchSession | None, *, incremental: bool
    ) -> None:
        self.targets, self.session, self.incremental = targets, session, incremental

    @property
    def session_id(self) -> int:
        return NO_SESSION if self.session is None else self.session.session_id


class FetchSessions:
    """All sessions, in order of last use."""

    def __init__(self, slots: int, ids: Ids, most_partitions: int = MOST_PARTITIONS) -> None:
        self._ids = ids
        self._sessions: dict[int, FetchSession] = {}
        self._count, self._weights = FairRoom(slots), FairRoom(most_partitions)

    @property
    def weight(self) -> int:
        """The sum of the sessions' weights."""
        return self._weights.total

    def __len__(self) -> int:
        return len(self._sessions)

    def partitions_of(self, session_id: int) -> list[tuple[TopicKey, int]]:
        """The partitions of a session; none if no session has the given id."""
        session = self._sessions.get(session_id)
        targets = session.targets.values() if session is not None else ()
        return [(target.topic, target.index) for target in targets]

    def forget(self, session_id: int) -> None:
        """Drop a session whose client did not receive the response."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._count.change(session.holder, -1)
            self._weights.change(session.holder, -session.weight)

    def clear(self) -> None:
        """Drop all sessions, since their broker has stopped."""
        self._sessions.clear()
        self._count.clear()
        self._weights.clear()

    def plan(
        self,
        request: FetchRequest,
        *,
        uses_topic_ids: bool,
        now_ms: int,
        owner: str = "",
        holder: str = "",
        named: Targets | None = None,
    ) -> FetchPlan:
        """The partitions to read for the request. Only the owner of a session can use or end it.

        Takes:  holder, whose share of the room a new session takes; named, the partitions of a
                large request, if `targets_in_slices` has already read them.
        Raises: KafkaError FETCH_SESSION_ID_NOT_FOUND, also if the session has no room for the
                added partitions; INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        session_id, epoch = request.session_id, request.session_epoch
        existing = self._sessions.get(session_id)
        if existing is not None and existing.owner != owner:
            existing = None
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if existing is not None:
                self.forget(session_id)
            targets: Targets = {}
            weight = _take_up(targets, request, named, uses_topic_ids=uses_topic_ids)
            if epoch == FINAL_EPOCH:
                return FetchPlan(list(targets.values()), None, incremental=False)
            created = None
            if self._make_room(weight, holder, now_ms):
                created = self._new_session(
                    targets,
                    weight,
                    uses_topic_ids=uses_topic_ids,
                    now_ms=now_ms,
                    owner=owner,
                    holder=holder,
                )
            return FetchPlan(list(targets.values()), created, incremental=False)
        session = existing
        if session is None:
            raise KafkaError(Code.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(Code.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(Code.FETCH_SESSION_TOPIC_ID_ERROR)
        self._update(session, request, named)
        if not session.targets:
            self.forget(session_id)
            return FetchPlan([], None, incremental=False)
        session.epoch = 1 if epoch == MAX_EPOCH else epoch + 1
        session.last_used_ms = now_ms
        # Move the session to the end of the order of use: unused sessions are evicted from its
        # front.
        self._sessions[session_id] = self._sessions.pop(session_id)
        if (
            not self._weights.has_room(0)
            and not self._evict_resting(0, 0, now_ms)
            and not self._evict_for(self._weights, session.holder, 0)
        ):
            self.forget(session_id)
            raise KafkaError(Code.FETCH_SESSION_ID_NOT_FOUND)
        return FetchPlan(list(session.targets.values()), session, incremental=True)

    def _update(self, session: FetchSession, request: FetchRequest, named: Targets | None) -> None:
        """Remove the partitions that the request forgets, and add those that it names."""
        change = 0
        for topic in request.forgotten_topics_data or ():
            key = topic.topic_id if session.uses_topic_ids else topic.topic
            name = _name_of(_topic_key(key))
            for index in topic.partitions:
                if session.targets.pop((name, index), None) is not None:
                    change -= _weight_of(name)
        change += _take_up(session.targets, request, named, uses_topic_ids=session.uses_topic_ids)
        session.weight += change
        if change:
            self._weights.change(session.holder, change)

    def _make_room(self, weight: int, holder: str, now_ms: int) -> bool:
        """Evict sessions until there is room for a new one. Gives: whether there is room."""
        if not self._evict_resting(weight, 1, now_ms) and not self._evict_for(
            self._weights, holder, weight
        ):
            return False
        if self._count.has_room(1):
            return True
        old = [one for one in self._sessions.values() if now_ms - one.began_ms >= EVICTION_MS]
        # as in Apache Kafka, a larger new session may replace a smaller one that is older than two
        # minutes
        least = min(old, key=lambda one: one.weight, default=None)
        if least is None or least.weight >= weight:
            return self._evict_for(self._count, holder, 1)
        self.forget(least.session_id)
        return True

    def _evict_for(self, room: FairRoom, holder: str, more: int) -> bool:
        """Evict sessions of holders that have more than their shares, until `holder` has room
        within its own. Gives: whether it has.
        """
        while not room.has_room(more):
            largest = room.who_yields(holder, more)
            if largest is None:
                return False
            of_largest = (one for one in self._sessions.values() if one.holder == largest)
            self.forget(max(of_largest, key=lambda one: one.weight).session_id)
        return True

    def _evict_resting(self, weight: int, slots: int, now_ms: int) -> bool:
        """Evict sessions that were unused for two minutes, until there is room for the given weight
        and number of sessions. Gives: whether there is room for the weight.
        """
        while self._sessions and not (
            self._weights.has_room(weight) and self._count.has_room(slots)
        ):
            oldest = next(iter(self._sessions.values()))
            if now_ms - oldest.last_used_ms < EVICTION_MS:
                break
            self.forget(oldest.session_id)
        return self._weights.has_room(weight)

    def _new_session(
        self,
        targets: Targets,
        weight: int,
        *,
        uses_topic_ids: bool,
        now_ms: int,
        owner: str,
        holder: str,
    ) -> FetchSession:
        """Store a new session under a random unused id."""
        session_id = self._ids.random31()
        while session_id in self._sessions:
            session_id = self._ids.random31()
        session = FetchSession(
            session_id, uses_topic_ids=uses_topic_ids, now_ms=now_ms, owner=owner, holder=holder
        )
        session.targets, session.weight = targets, weight
        self._count.change(holder, 1)
        self._weights.change(holder, weight)
        self._sessions[session_id] = session
        return session


def targets_in_slices(
    request: FetchRequest, at_once: int, *, uses_topic_ids: bool
) -> Generator[None, int, Targets]:
    """The partitions that a large request names, read in slices for `FetchSessions.plan`."""
    targets: Targets = {}
    left = at_once
    for topic in request.topics or ():
        key = _topic_key(topic.topic_id) if uses_topic_ids else topic.topic
        name = _name_of(key)
        for partition in topic.partitions:
            targets[name, partition.partition] = FetchTarget(key, partition)
            left -= 1
            if not left:
                left = at_once
                yield
    return targets


def _take_up(
    targets: Targets, request: FetchRequest, named: Targets | None, *, uses_topic_ids: bool
) -> int:
    """Add the partitions that the request names. Gives: the weight of the new partitions.

    Takes: named, these partitions, if they have been read already.
    """
    weight = 0
    if named is not None:
        for place, target in named.items():
            if place in targets:
                targets[place].update(target)
            else:
                targets[place] = target
                weight += _weight_of(place[0])
        return weight
    for topic in request.topics or ():
        key = _topic_key(topic.topic_id) if uses_topic_ids else topic.topic
        name = _name_of(key)
        one = _weight_of(name)
        for partition in topic.partitions:
            place = (name, partition.partition)
            known = targets.get(place)
            if known is None:
                targets[place] = FetchTarget(key, partition)
                weight += one
            else:
                known.update(partition)
    return weight


def _weight_of(name: str | bytes) -> int:
    return 1 + len(name) // LONG_NAME


def _topic_key(key: TopicKey | None) -> TopicKey:
    """The topic's id or name as a key. None means a zero id, since the decoder returns None for
    it.
    """
    return uuid.UUID(int=0) if key is None else key


def _name_of(key: TopicKey) -> str | bytes:
    return key if isinstance(key, str) else key.bytes
