"""The interfaces of kinds of groups with a special protocol: share groups (KIP-932) and streams
groups (KIP-1071).

A `TypedGroup` is the hard state of one such group. A `TypedKind` reads its records; a
`GroupMachine` answers its members. Both are loaded with the first group of the kind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import uuid

    from barnabas.coordinator.groups.group import Group
    from barnabas.coordinator.groups.group_timers import TimerKey
    from barnabas.coordinator.groups.offsets.group_offsets import CommitCheck
    from barnabas.coordinator.result import CoordinatorRecord, Result
    from barnabas.protocol.errors import Code


class TypedGroup(Protocol):
    """One group. kind, protocol_type: the group's type, and its members' protocol type, as in
    ListGroups.
    """

    kind: str
    protocol_type: str

    @property
    def exists(self) -> bool:
        """Whether the log has a record of the group."""

    @property
    def member_ids(self) -> Collection[str]:
        """The ids of its members."""

    @property
    def state(self) -> str:
        """The name of its state."""

    @property
    def subscribed_topics(self) -> Collection[str]:
        """The names of the topics that its members read; their offsets are retained."""

    @property
    def reads_on(self) -> bool:
        """Whether its members continue from their own positions. If so they have to join again
        after a power loss, which may have removed the records before these positions.
        """

    @property
    def is_replaceable(self) -> bool:
        """Whether a classic group may replace it."""

    @property
    def is_unused(self) -> bool:
        """Whether the group is removed together with its last offset."""

    def check_commit(
        self, member_id: str, epoch: int, api_version: int, *, transactional: bool
    ) -> CommitCheck:
        """Whether the member may commit offsets in that epoch."""

    def has_had(
        self, check: CommitCheck, topic: str, topic_id: uuid.UUID | None, partition: int
    ) -> bool:
        """Whether a member has had the partition since the earlier epoch of its commit."""

    def check_fetch(self, member_id: str | None, epoch: int) -> Code:
        """NONE where offsets may be fetched, else the code."""

    def check_offset_delete(self) -> Code:
        """NONE where offsets may be deleted, else the code."""

    def decide_again(self) -> None:
        """Let the next heartbeat repeat the decision of the last one, whose records were
        dropped.
        """

    def replay(self, key: Any, value: bytes | None) -> None:
        """Apply one record."""

    def tombstones(self, group_id: str) -> Iterator[CoordinatorRecord]:
        """The records that remove the group; its own record is the last."""

    def without_topics(
        self, group_id: str, topic_ids: Collection[uuid.UUID]
    ) -> Iterator[CoordinatorRecord]:
        """The records that remove deleted topics from the group, except from its members'
        subscriptions.
        """


class TypedKey(Protocol):
    """The key of a record of such a group."""

    @property
    def group_id(self) -> str: ...


class TypedKind(Protocol):
    """The reader of the records of a kind of group."""

    def decode_key(self, key: bytes) -> TypedKey | None:
        """The key of a record; None where it is unknown."""

    def is_group_key(self, key: Any) -> bool:
        """Whether the key's tombstone removes the group."""

    def new_group(self) -> TypedGroup:
        """A group without records."""


class GroupMachine(Protocol):
    """The members of groups of one kind."""

    def on_loaded(self, group: Group, now_ms: int) -> None:
        """Begin the sessions of the members, after a start."""

    def on_timers(self, group: Group, due: Iterable[TimerKey], result: Result, now_ms: int) -> None:
        """Handle all timers of the group that are due at once."""

    def remove_members(
        self, group: Group, member_ids: Iterable[str], result: Result, now_ms: int
    ) -> None:
        """Remove members."""
