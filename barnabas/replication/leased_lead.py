"""A leader's use of its lease: which nodes clients see, and when the leader has to end. The module
does no IO.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from barnabas.broker.seams.nodes import Standby
from barnabas.replication.leadership import Role
from barnabas.replication.leading import Leading
from barnabas.replication.lease_record import (
    LeaseRecordError,
    NodeAddresses,
    addresses_for_clients,
)

logger = logging.getLogger("barnabas.lease")


class Keeper(Protocol):
    """The part of `lease_keeper.LeaseKeeper` that a leader uses."""

    node_id: int
    failure: LeaseRecordError | None

    @property
    def role(self) -> Role: ...

    @property
    def trouble(self) -> str: ...

    @property
    def nodes(self) -> Mapping[int, NodeAddresses]: ...

    @property
    def in_sync(self) -> frozenset[int]: ...

    def may_answer(self) -> bool: ...

    def set_opened(self, cluster_id: str, leader_epoch: int) -> None: ...

    def begin_release(self) -> None: ...

    def stop(self) -> None: ...


def standby_of(keeper: Keeper, leading: Leading) -> Standby | None:
    """The other node as clients see it; None if its address is unknown."""
    nodes = keeper.nodes
    other = next((one for one in nodes if one != keeper.node_id), None)
    if other is None:
        return None
    link = leading.link
    is_there = link is not None and link.node_id == other
    is_in_sync = is_there and leading.follows and other in keeper.in_sync
    addresses = addresses_for_clients(nodes[other])
    return Standby(other, addresses, is_there=is_there, is_in_sync=is_in_sync)


class LeasedLead:
    """A leader's use of its lease, from the opening of its directory until another node leads.

    standby: the other node, as clients see it.
    """

    def __init__(
        self, keeper: Keeper, leading: Leading, cluster_id: str, leader_epoch: int
    ) -> None:
        """Takes: cluster_id and leader_epoch, the values of the open directory."""
        self._keeper, self._leading = keeper, leading
        self.standby: Standby | None = None
        self._is_in_trouble = self._may_be_succeeded = False
        keeper.set_opened(cluster_id, leader_epoch)
        leading.cluster_id = cluster_id
        leading.on_start()

    def on_lease_changed(self) -> bool:
        """Handle an answer of the lease's engine. Gives: whether this node leads.

        After the method has returned False once, this node never leads again in this process.
        """
        keeper = self._keeper
        if keeper.failure is not None:
            logger.critical("node %d no longer leads: %s", keeper.node_id, keeper.failure)
            return False
        if keeper.role is not Role.LEADING:
            logger.warning("node %d no longer leads: another node has taken over", keeper.node_id)
            return False
        self._leading.on_in_sync_changed()
        self._look_at_standby()
        self._warn_of_trouble()
        return True

    def _look_at_standby(self) -> None:
        """Set the other node for clients. Log when that node becomes able to take over, and when it
        no longer is.
        """
        standby = self.standby = standby_of(self._keeper, self._leading)
        may_take_over = standby is not None and standby.is_in_sync
        if standby is not None and may_take_over is not self._may_be_succeeded:
            self._may_be_succeeded = may_take_over
            text = "node %d may take over" if may_take_over else "node %d may no longer take over"
            logger.warning(text, standby.node_id)

    def _warn_of_trouble(self) -> None:
        """Log once that the engine cannot be reached, and once that it is back."""
        trouble = self._keeper.trouble
        if bool(trouble) is not self._is_in_trouble:
            self._is_in_trouble = bool(trouble)
            if trouble:
                logger.warning(
                    "the lease cannot be renewed; no request is answered after its end: %s",
                               trouble)  # fmt: skip
            else:
                logger.warning("the lease is renewed again")
