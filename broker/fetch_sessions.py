"""Incremental fetch sessions (KIP-227): what a client fetches is remembered, and it is told only of
what changed.

A session is found by its id on any connection; its epoch counts the fetches. Order of effects of
one fetch: the session takes up what the request names and forgets what it says; all its partitions
are read in the session's order; those with news are answered, and those that gave records go to the
end of the order, so that none starves. Eviction: when all slots are taken, the session longest
unused goes if it rested for two minutes; else the new client gets no session and fetches in full.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from barnabas.broker.outbox import Ids
from barnabas.protocol.errors import Code, KafkaError

if TYPE_CHECKING:
    from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
MAX_EPOCH = 2**31 - 1
NO_SESSION = 0
EVICTION_MS = 120_000

TopicKey = str | uuid.UUID
Targets = dict[
    tuple[str | bytes, int], "FetchTarget"
]  # by name or 16 bytes of id: a UUID is ten times as slow to look up


class FetchTarget:
    """One partition that a fetch reads: what the client asks for, and (in a session) what it was
    last told.
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

    def update(self, partition: FetchPartition) -> None:
        """What the client asks for now."""
        self.fetch_offset = partition.fetch_offset
        self.partition_max_bytes = partition.partition_max_bytes
        self.current_leader_epoch = partition.current_leader_epoch
        self.last_fetched_epoch = partition.last_fetched_epoch

    def has_news(
        self, error_code: int, high_watermark: int, log_start_offset: int, size: int
    ) -> bool:
        """Whether the client must be told; remembers what it is told."""
        news = size > 0 or error_code != 0
        if high_watermark != self.high_watermark:
            news, self.high_watermark = True, high_watermark
        if log_start_offset != self.log_start_offset:
            news, self.log_start_offset = True, log_start_offset
        if error_code != 0:
            self.high_watermark = -1  # so that the end of the error is news
        return news


class FetchSession:
    """A client's remembered partitions. owner: its principal, where there is an authorizer."""

    __slots__ = ("epoch", "last_used_ms", "owner", "session_id", "targets", "uses_topic_ids")

    def __init__(
        self, session_id: int, *, uses_topic_ids: bool, now_ms: int, owner: str = ""
    ) -> None:
        self.owner = owner
        self.session_id, self.uses_topic_ids, self.last_used_ms = session_id, uses_topic_ids, now_ms
        self.epoch = 1
        self.targets: Targets = {}

    def to_end(self, target: FetchTarget) -> None:
        key = (_name_of(target.topic), target.index)
        if self.targets.pop(key, None) is not None:
            self.targets[key] = target


class Planned:
    """What one request fetches. session: None where there is none; incremental: news alone."""

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

    def __init__(self, slots: int, ids: Ids) -> None:
        self._slots, self._ids = slots, ids
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def partitions_of(self, session_id: int) -> list[tuple[TopicKey, int]]:
        """What a session remembers; nothing where there is none of that id."""
        session = self._sessions.get(session_id)
        targets = session.targets.values() if session is not None else ()
        return [(target.topic, target.index) for target in targets]

    def forget(self, session_id: int) -> None:
        """Its client was not told of it."""
        self._sessions.pop(session_id, None)

    def clear(self) -> None:
        """Forget all: their broker went away."""
        self._sessions.clear()

    def plan(
        self, request: FetchRequest, *, uses_topic_ids: bool, now_ms: int, owner: str = ""
    ) -> Planned:
        """What to read for the request. A session is its owner's: others neither use nor end it.

        Raises: KafkaError FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH,
                FETCH_SESSION_TOPIC_ID_ERROR.
        """
        session_id, epoch = request.session_id, request.session_epoch
        existing = self._sessions.get(session_id)
        if existing is not None and existing.owner != owner:
            existing = None
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if existing is not None:
                del self._sessions[session_id]
            targets = _targets_of(request, uses_topic_ids=uses_topic_ids)
            if epoch == FINAL_EPOCH:
                return Planned(list(targets.values()), None, incremental=False)
            created = self._new_session(
                targets, uses_topic_ids=uses_topic_ids, now_ms=now_ms, owner=owner
            )
            return Planned(list(targets.values()), created, incremental=False)
        session = existing
        if session is None:
            raise KafkaError(Code.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(Code.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(Code.FETCH_SESSION_TOPIC_ID_ERROR)
        for topic in request.forgotten_topics_data or ():
            key = topic.topic_id if uses_topic_ids else topic.topic
            for index in topic.partitions:
                session.targets.pop((_name_of(_topic_key(key)), index), None)
        _take_up(session.targets, request, uses_topic_ids=uses_topic_ids)
        if not session.targets:
            del self._sessions[session_id]
            return Planned([], None, incremental=False)
        session.epoch = 1 if epoch == MAX_EPOCH else epoch + 1
        session.last_used_ms = now_ms
        self._sessions[session_id] = self._sessions.pop(session_id)
        return Planned(list(session.targets.values()), session, incremental=True)

    def _new_session(
        self, targets: Targets, *, uses_topic_ids: bool, now_ms: int, owner: str
    ) -> FetchSession | None:
        if len(self._sessions) >= self._slots:
            oldest = next(iter(self._sessions), None)
            if oldest is None or now_ms - self._sessions[oldest].last_used_ms < EVICTION_MS:
                return None
            del self._sessions[oldest]
        session_id = self._ids.random31()
        while session_id in self._sessions:
            session_id = self._ids.random31()
        session = FetchSession(
            session_id, uses_topic_ids=uses_topic_ids, now_ms=now_ms, owner=owner
        )
        session.targets = targets
        self._sessions[session_id] = session
        return session


def _targets_of(request: FetchRequest, *, uses_topic_ids: bool) -> Targets:
    targets: Targets = {}
    _take_up(targets, request, uses_topic_ids=uses_topic_ids)
    return targets


def _take_up(targets: Targets, request: FetchRequest, *, uses_topic_ids: bool) -> None:
    for topic in request.topics or ():
        key = _topic_key(topic.topic_id) if uses_topic_ids else topic.topic
        name = _name_of(key)
        for partition in topic.partitions:
            place = (name, partition.partition)
            target = targets.get(place)
            if target is None:
                targets[place] = FetchTarget(key, partition)
            else:
                target.update(partition)


def _topic_key(key: TopicKey | None) -> TopicKey:
    """A zero topic id comes out of the decoder as None."""
    return uuid.UUID(int=0) if key is None else key


def _name_of(key: TopicKey) -> str | bytes:
    return key if isinstance(key, str) else key.bytes
