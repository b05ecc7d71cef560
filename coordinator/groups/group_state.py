"""The interfaces for kinds of groups with their own protocol: share groups (KIP-932) and streams
groups (KIP-1071).

A `TypedGroup` is the hard state of one such group. A `TypedKind` reads the records of the kind, and
a `GroupMachine` handles the requests of the members. Both are loaded with the first group of the
kind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import uuid

    from barnabas.coordinator.groups.group import Group
    from barnabas.coordinator.groups.group_offsets import CommitCheck
    from barnabas.coordinator.groups.group_timers import TimerKey
    from barnabas.coordinator.result import CoordinatorRecord, Result
    from barnabas.protocol.errors import Code


class TypedGroup(Protocol):
    """The hard state of one group.

    kind: the group's type, as in ListGroups. protocol_type: the protocol type of its members.
    """

    kind: str
    protocol_type: str

    @property
    def exists(self) -> bool:
        """Whether the log has a record of the group."""

    @property
    def member_ids(self) -> Collection[str]:
        """The ids of the group's members."""

    @property
    def state(self) -> str:
        """The name of the group's state."""

    @property
    def subscribed_topics(self) -> Collection[str]:
        """The names of the topics that the members read. Offsets of these topics do not expire."""

    @property
    def reads_on(self) -> bool:
        """Whether members continue from their own positions.

        Such members have to join again after a power loss, which may have removed records before
        these positions.
        """

    @property
    def is_replaceable(self) -> bool:
        """Whether a classic group may replace this one."""

    @property
    def is_unused(self) -> bool:
        """Whether the group is to be removed when its last offset is removed."""

    def check_commit(
        self, member_id: str, epoch: int, api_version: int, *, transactional: bool
    ) -> CommitCheck:
        """Whether the member may commit offsets in the given epoch."""

    def has_had(
        self, check: CommitCheck, topic: str, topic_id: uuid.UUID | None, partition: int
    ) -> bool:
        """Whether the member has had the partition since the earlier epoch in which it commits."""

    def check_fetch(self, member_id: str | None, epoch: int) -> Code:
        """Return NONE if offsets may be fetched, otherwise the error code."""

    def check_offset_delete(self) -> Code:
        """Return NONE if offsets may be deleted, otherwise the error code."""

    def decide_again(self) -> None:
        """Make the next heartbeat repeat a decision whose records were dropped."""

    def replay(self, key: Any, value: bytes | None) -> None:
        """Apply one record."""

    def tombstones(self, group_id: str) -> Iterator[CoordinatorRecord]:
        """Return the records that remove the group.

        The tombstone of the group's own record is the last.
        """

    def without_topics(
        self, group_id: str, topic_ids: Collection[uuid.UUID]
    ) -> Iterator[CoordinatorRecord]:
        """Return the records that remove deleted topics from the group.

        The subscriptions of the members keep these topics.
        """


class TypedKey(Protocol):
    """The key of a record of a share group or streams group."""

    @property
    def group_id(self) -> str: ...


class TypedKind(Protocol):
    """Reads the records of a kind of group."""

    def decode_key(self, key: bytes) -> TypedKey | None:
        """The key of a record; None if its version is unknown."""

    def is_group_key(self, key: Any) -> bool:
        """Whether a tombstone with this key removes the group."""

    def new_group(self) -> TypedGroup:
        """A group that has no records yet."""


class GroupMachine(Protocol):
    """The state machine for the members of groups of one kind."""

    def on_loaded(self, group: Group, now_ms: int) -> None:
        """Begin the sessions of the members when the broker has started and loaded the group."""

    def on_timers(self, group: Group, due: Iterable[TimerKey], result: Result, now_ms: int) -> None:
        """Handle all timers of the group that are due at the same time."""

    def remove_members(
        self, group: Group, member_ids: Iterable[str], result: Result, now_ms: int
    ) -> None:
        """Remove members."""
