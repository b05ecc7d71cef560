"""The changes that a share group's decisions cause in the states of its partitions.

The share coordinator stores the states. After the records of a Result are written, the host carries
out the Result's `StateChange`, part by part. When all rows of the change are durable, the host
passes their error codes to `GroupCoordinator.on_states_changed`.
"""

from __future__ import annotations

import uuid
from typing import NamedTuple

from barnabas.coordinator.result import Reply

BY_THE_GROUP = -1
"""The start offset of a state whose start is decided by the group's `share.auto.offset.reset`."""


class StateRow(NamedTuple):
    """The state of one partition. start_offset: the start offset of a state that is initialised."""

    topic_id: uuid.UUID
    partition: int
    start_offset: int = BY_THE_GROUP


class StateChange(NamedTuple):
    """A change of the states of a group's partitions: their initialisation or deletion.

    state_epoch: the group's epoch, for an initialisation. reply: the response to send after the
    change. The error codes of the partitions are added to it before.
    """

    group_id: str
    is_deletion: bool
    rows: tuple[StateRow, ...]
    state_epoch: int = 0
    reply: Reply | None = None
