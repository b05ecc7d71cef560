"""The changes that a share group's decisions cause in the states of its partitions.

The share coordinator stores the states. The host carries out a `StateChange` after the records of
its Result are written, part by part, and passes the codes of all its rows to
`GroupCoordinator.on_states_changed` when they are durable.
"""

from __future__ import annotations

import uuid
from typing import NamedTuple

from barnabas.coordinator.result import Reply

BY_THE_GROUP = -1
"""The start offset of a state whose start is decided by the group's `share.auto.offset.reset`."""


class StateRow(NamedTuple):
    """The state of one partition. start_offset: where an initialised state begins."""

    topic_id: uuid.UUID
    partition: int
    start_offset: int = BY_THE_GROUP


class StateChange(NamedTuple):
    """States of a group's partitions that are to be initialised, or deleted.

    state_epoch: the group's epoch, for an initialisation. reply: the response to send after the
    change, still without the error codes of the partitions.
    """

    group_id: str
    is_deletion: bool
    rows: tuple[StateRow, ...]
    state_epoch: int = 0
    reply: Reply | None = None
