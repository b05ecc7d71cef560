"""The effects of a share group's decisions on the states of its partitions, which the share
coordinator stores.

The host carries out a `StateChange` after the records of its Result, part by part, and passes the
codes of all its rows to `GroupCoordinator.on_states_changed` when they are durable.
"""

from __future__ import annotations

import uuid
from typing import NamedTuple

from barnabas.coordinator.result import Reply

BY_THE_GROUP = -1
"""The start offset of a state whose start is decided by the group's `share.auto.offset.reset`."""


class StateRow(NamedTuple):
    """The state of one partition. start_offset: for an initialisation."""

    topic_id: uuid.UUID
    partition: int
    start_offset: int = BY_THE_GROUP


class StateChange(NamedTuple):
    """States of a group's partitions to be initialised, or deleted.

    state_epoch: the group's epoch, for an initialisation. reply: the answer that waits for the
    change, still without its errors.
    """

    group_id: str
    is_deletion: bool
    rows: tuple[StateRow, ...]
    state_epoch: int = 0
    reply: Reply | None = None
