"""The rim of a leader with a lease. Nothing is sent when the lease may have expired."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from barnabas.broker.seams.nodes import PairOfNodes
from barnabas.broker.settings.config import BrokerConfig
from barnabas.replication.leading import Leading, ReplicationSettings
from barnabas.replication.leased_lead import LeasedLead
from barnabas.replication.replicated_disk import ReplicatedDisk
from barnabas.replication.rim.leader_endpoint import Leader
from barnabas.replication.rim.lease_keeper import LeaseKeeper
from barnabas.replication.steps_of_end import Until
from barnabas.storage.directory.log_manager import LogManager

RELEASE_S = 2.0
LAPSED = "the lease has lapsed"


class LeasedLeader(Leader):
    """A leader with a lease.

    A connection that tries to send after the end of the right to answer is closed. Responses that
    become ready later wait. They are sent if this node gets the lease again, since then no other
    node has led in between.
    """

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        cluster: PairOfNodes,
        endpoint_socket: socket.socket,
        loop: asyncio.AbstractEventLoop,
        keeper: LeaseKeeper,
    ) -> None:
        self.keeper, self.silence = keeper, self._silence
        self._call_when_deposed: Callable[[], object] = lambda: None
        super().__init__(config, logs.disk, endpoint_socket, loop)
        self._logs, self._cluster, self._loop = logs, cluster, loop

    def _silence(self) -> str | None:
        return None if self.keeper.may_answer() else LAPSED

    def start(self) -> None:
        """Begin to lead: report the open directory to the lease, and react to the lease's changes.
        Called when the server listens.
        """
        cluster_id, leader_epoch = self._logs.cluster_id or "", self._logs.leader_epoch
        self._lead = LeasedLead(self.keeper, self.leading, cluster_id, leader_epoch)
        self.keeper.on_change = self._changed_in_thread
        self._on_lease_changed()

    def _new_leading(self, disk: ReplicatedDisk, settings: ReplicationSettings) -> Leading:
        return Leading(disk, self.data_dir, settings, self._release, self.keeper)

    def _may_go_out(self, position: int) -> bool:
        return self.keeper.may_answer() and super()._may_go_out(position)

    def _is_standby_in_sync(self) -> bool:
        standby = self._cluster.standby
        return standby is not None and standby.is_in_sync

    def _leader_epoch(self) -> int:
        return self.keeper.leader_epoch

    def _changed_in_thread(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop may be closed already
            self._loop.call_soon_threadsafe(self._on_lease_changed)

    def _on_lease_changed(self) -> None:
        """React to a change of the lease, in the loop's thread: continue to lead, or end because
        another node leads.
        """
        if self.server.is_closed or self.is_deposed:
            return
        if not self._lead.on_lease_changed():
            self.is_deposed = True
            self._call_when_deposed()
            return
        self._cluster.standby = self._lead.standby
        self.endpoint.send_soon()

    def adopt(self, listener_name: str, sock: socket.socket) -> None:
        """Accept a client that connected while this node did not lead. May be called in any
        thread.
        """
        with contextlib.suppress(RuntimeError):  # the loop may be closed already
            self._loop.call_soon_threadsafe(self.server.nodes.ports.adopt, listener_name, sock)

    def on_deposed(self, call: Callable[[], object]) -> None:
        """Set the function that is called once another node leads. If another node already leads,
        the function is called at once.
        """
        self._call_when_deposed = call
        if self.is_deposed:
            call()

    def abandon(self) -> None:
        """Close all connections without responses, since another node leads.

        The directory is left as a kill would leave it.
        """
        self.keeper.on_change = lambda: None
        super().abandon()

    def _keeper(self) -> LeaseKeeper:
        return self.keeper

    async def _wait_for(self, until: Until) -> None:
        """Wait for the release of the lease. Wait for any other condition as a leader without a
        lease does.
        """
        if until is Until.RELEASED:
            self.keeper.wait_until_released(RELEASE_S)
        else:
            await super()._wait_for(until)
