"""The interface of the four kinds of groups.

    kind       members use                      state of one group
    classic    JoinGroup, SyncGroup, Heartbeat  classic/classic_group.py
    consumer   heartbeats (KIP-848)             consumer/consumer_group.py
    share      heartbeats (KIP-932)             share/share_group.py
    streams    heartbeats (KIP-1071)            streams/streams_group.py

A `GroupState` is the state of one group of a kind. The last three kinds are modern ones: their
members and assignments are records of the log, and the members have epochs. A `GroupKind` reads the
records of a modern kind. group_machine.py has the interface to the members' requests.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from typing import Any, ClassVar, NamedTuple, Protocol

from barnabas.coordinator.result import CoordinatorRecord
from barnabas.protocol.errors import Code


class CommitSender(NamedTuple):
    """Who commits offsets, according to the request.

    epoch: the member's epoch, or the generation of a classic member; negative if there is none.
    api_version: of OffsetCommit or TxnOffsetCommit. transactional: whether the offsets are part of
    a transaction. is_preview: whether the broker answers as the preview of consumer groups does.
    """

    member_id: str
    epoch: int
    api_version: int
    transactional: bool = False
    instance_id: str | None = None
    is_preview: bool = False


class CommitCheck(NamedTuple):
    """The result of checking the member and epoch of a commit.

    code: the error code for the whole request. partition_code: the error code for partitions that
    the member has not had since `since_epoch`; None if all partitions may be committed.
    """

    code: Code
    partition_code: Code | None = None
    member_id: str = ""
    since_epoch: int = 0


MAY_COMMIT = CommitCheck(Code.NONE)


class GroupState(ABC):
    """The state of one group.

    kind: the group's type, as in ListGroups. has_member_epochs: whether the members have epochs.
    """

    __slots__ = ()

    kind: ClassVar[str]
    has_member_epochs: ClassVar[bool]

    # --- members ---------------------------------------------------------------------------------

    @property
    @abstractmethod
    def protocol_type(self) -> str:
        """The type of the members' protocol; empty if the group never had members."""

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The name of the group's state."""

    @property
    @abstractmethod
    def member_ids(self) -> Collection[str]:
        """The ids of the group's members."""

    @property
    def has_members(self) -> bool:
        return bool(self.member_ids)

    @property
    @abstractmethod
    def reads_on(self) -> bool:
        """Whether members continue from their own positions.

        Such members have to join again after a power loss, which may have removed records before
        these positions.
        """

    @property
    @abstractmethod
    def accepts_join_group(self) -> bool:
        """Whether a member may join the group, or the classic group that replaces it, with a
        JoinGroup.
        """

    @property
    @abstractmethod
    def is_unused(self) -> bool:
        """Whether the group is to be removed when its last offset is removed."""

    @abstractmethod
    def decide_again(self) -> None:
        """Make the next heartbeat repeat a decision whose records were dropped."""

    # --- offsets ---------------------------------------------------------------------------------

    @property
    def retains_offsets(self) -> bool:
        """Whether no offset expires as long as the group is in this state."""
        return False

    @property
    def emptied_ms(self) -> int | None:
        """When the group became empty, if the retention of its offsets begins then. None if it
        begins with the commit of each offset.
        """
        return None

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member of the group reads the topic."""

    @abstractmethod
    def check_commit(self, sender: CommitSender) -> CommitCheck:
        """Whether the sender may commit offsets."""

    def has_had(
        self, check: CommitCheck, topic: str, topic_id: uuid.UUID | None, partition: int
    ) -> bool:
        """Whether the member has had the partition since the earlier epoch in which it commits.

        Called only if the check has a code for partitions.
        """
        raise AssertionError(f"a {self.kind} group does not check each partition of a commit")

    def check_fetch(self, member_id: str | None, epoch: int) -> Code:
        """Return NONE if offsets may be fetched, otherwise the error code."""
        return Code.NONE

    @abstractmethod
    def check_offset_delete(self) -> Code:
        """Return NONE if offsets may be deleted, otherwise the error code."""

    # --- records ---------------------------------------------------------------------------------

    @abstractmethod
    def tombstones(self, group_id: str) -> Iterator[CoordinatorRecord]:
        """Return the records that remove the group, but not its offsets.

        The tombstone of the group's own record is the last.
        """

    def without_topics(
        self, group_id: str, topic_ids: Collection[uuid.UUID]
    ) -> Iterable[CoordinatorRecord]:
        """Return the records that remove deleted topics from the group.

        The subscriptions of the members keep these topics.
        """
        return ()


class ModernGroup(GroupState):
    """The hard state of one consumer, share or streams group. Only `replay` changes it."""

    __slots__ = ()

    has_member_epochs = True

    @property
    @abstractmethod
    def exists(self) -> bool:
        """Whether the log has a record of the group."""

    @property
    @abstractmethod
    def subscribed_topics(self) -> Collection[str]:
        """The names of the topics that the members read. Offsets of these topics do not expire."""

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed_topics

    @abstractmethod
    def replay(self, key: Any, value: bytes | None) -> None:
        """Apply one record."""


class ModernKey(Protocol):
    """The key of a record of a consumer, share or streams group."""

    @property
    def group_id(self) -> str: ...


class GroupKind(Protocol):
    """Reads the records of a modern kind of group."""

    def decode_key(self, key: bytes) -> ModernKey | None:
        """The key of a record; None if its version is unknown."""

    def is_group_key(self, key: Any) -> bool:
        """Whether a tombstone with this key removes the group."""

    def new_group(self) -> ModernGroup:
        """A group that has no records yet."""
