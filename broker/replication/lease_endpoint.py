"""The rim of a leader that has a lease: nothing goes out when it may have lapsed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any, cast

from barnabas.broker.cluster import Standby
from barnabas.broker.core import Broker
from barnabas.broker.replication.leader_endpoint import ReplicatedConnection, ReplicatedServer
from barnabas.broker.replication.leadership import Role
from barnabas.broker.replication.leading import Leading, ReplicationSettings
from barnabas.broker.replication.lease_keeper import LeaseKeeper
from barnabas.broker.replication.lease_record import addresses_for_clients
from barnabas.broker.replication.replicated_disk import ReplicatedDisk
from barnabas.broker.server import unmapped

logger = logging.getLogger("barnabas.lease")

RELEASE_S = 2.0
LAPSED = "the lease has lapsed"


def standby_of(keeper: LeaseKeeper, leading: Leading) -> Standby | None:
    """The other node, as clients are told of it; None where nobody has ever told where it is."""
    other = next((one for one in keeper.nodes if one != keeper.node_id), None)
    if other is None:
        return None
    link = leading.link
    is_there = link is not None and link.node_id == other
    is_in_sync = is_there and leading.follows and other in keeper.in_sync
    addresses = addresses_for_clients(keeper.nodes[other])
    return Standby(other, addresses, is_there=is_there, is_in_sync=is_in_sync)


class LeasedConnection(ReplicatedConnection):
    """A connection that is closed where it would send past the right to answer."""

    __slots__ = ()

    def _may_answer(self) -> bool:
        return cast(LeasedServer, self._server).keeper.may_answer()

    def _write(self, pieces: Sequence[Any]) -> None:
        if self._may_answer():
            super()._write(pieces)
        else:
            self._server.disconnect(self, LAPSED)

    def _flush(self) -> None:
        if self._may_answer():
            super()._flush()
        else:
            self._server.disconnect(self, LAPSED)

    def close(self) -> None:
        """Let go of the socket; what was gathered goes out only within the lease."""
        if not self._may_answer():
            self._gathered.clear()
        super().close()


class LeasedServer(ReplicatedServer):
    """A leader's server. is_deposed: whether another node leads.

    Answers that are ready past the right to answer wait, and go out if the lease is this node's
    after all: then nobody has led in between.
    """

    connection_class = LeasedConnection

    def __init__(
        self,
        broker: Broker,
        sock: Any,
        loop: asyncio.AbstractEventLoop,
        endpoint_socket: socket.socket,
        keeper: LeaseKeeper,
    ) -> None:
        self.keeper, self.is_deposed = keeper, False
        self._is_in_trouble = self._may_be_succeeded = False
        self._call_when_deposed: Callable[[], object] = lambda: None
        cluster_id = broker.logs.cluster_id or ""
        keeper.set_opened(cluster_id, broker.logs.leader_epoch)
        super().__init__(broker, sock, loop, endpoint_socket)
        self.leading.cluster_id = cluster_id
        self.leading.on_start()
        keeper.on_change = self._changed_in_thread
        self._on_lease_changed()

    def _new_leading(self, disk: ReplicatedDisk, settings: ReplicationSettings) -> Leading:
        return Leading(disk, self.data_dir, settings, self._release, self.keeper)

    def _may_go_out(self, position: int) -> bool:
        return self.keeper.may_answer() and super()._may_go_out(position)

    def _changed_in_thread(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._on_lease_changed)

    def _on_lease_changed(self) -> None:
        if self._is_closed or self.is_deposed:
            return
        if self.keeper.failure is not None or self.keeper.role is not Role.LEADING:
            if self.keeper.failure is not None:
                logger.critical("node %d leads no more: %s", self.keeper.node_id,
                                self.keeper.failure)  # fmt: skip
            else:
                logger.warning("node %d leads no more: another node has taken over",
                               self.keeper.node_id)  # fmt: skip
            self.is_deposed = True
            self._call_when_deposed()
            return
        self.leading.on_in_sync_changed()
        self._tell_of_standby()
        self._tell_trouble()
        self.endpoint.send_soon()

    def _tell_of_standby(self) -> None:
        """Let clients hear of the other node, as it is now."""
        standby = standby_of(self.keeper, self.leading)
        self.broker.cluster.standby = standby
        may_take_over = standby is not None and standby.is_in_sync
        if standby is not None and may_take_over is not self._may_be_succeeded:
            self._may_be_succeeded = may_take_over
            text = (
                "node %d may take over" if may_take_over else "node %d may not take over any more"
            )
            logger.warning(text, standby.node_id)

    def _tell_trouble(self) -> None:
        """Say once that the engine is away, and once that it is back."""
        trouble = self.keeper.trouble
        if bool(trouble) is not self._is_in_trouble:
            self._is_in_trouble = bool(trouble)
            if trouble:
                logger.warning("the lease cannot be renewed; nothing is answered after its end: %s",
                               trouble)  # fmt: skip
            else:
                logger.warning("the lease is renewed again")

    def adopt(self, listener_name: str, sock: socket.socket) -> None:
        """Take up a client that connected while this node did not lead; in any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._adopt, listener_name, sock)

    def _adopt(self, listener_name: str, sock: socket.socket) -> None:
        listener = next(one for one in self.listeners if one.config.name == listener_name)
        try:
            host, port = sock.getpeername()[:2]
        except OSError:  # it has hung up already
            sock.close()
            return
        self._take_up(listener, sock, unmapped(host), port)

    def on_deposed(self, call: Callable[[], object]) -> None:
        """Call that once another node leads, or now."""
        self._call_when_deposed = call
        if self.is_deposed:
            call()

    def abandon(self) -> None:
        """Another leads: hang up without a word. The directory stays as after a kill."""
        self._is_closed = True
        self.keeper.on_change = lambda: None
        for connection in self.connections():
            connection.close()
        self._cleaner.stop()

    async def release(self) -> None:
        """After `close`: the standby gets what there was, and may claim at once."""
        await self.send_rest()
        self.keeper.begin_release()
        self.keeper.wait_until_released(RELEASE_S)
        self.keeper.stop()
