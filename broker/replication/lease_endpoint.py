"""The rim of a leader that has a lease: nothing goes out when it may have lapsed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any, cast

from barnabas.broker.core import Broker
from barnabas.broker.replication.leader_endpoint import ReplicatedConnection, ReplicatedServer
from barnabas.broker.replication.leadership import Role
from barnabas.broker.replication.leading import Leading, ReplicationSettings
from barnabas.broker.replication.lease_keeper import LeaseKeeper
from barnabas.broker.replication.replicated_disk import ReplicatedDisk

logger = logging.getLogger("barnabas.lease")

SENDS_REST_S, RELEASE_S = 3.0, 2.0
LAPSED = "the lease has lapsed"


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
        self._call_when_deposed: Callable[[], object] = lambda: None
        cluster_id = broker.logs.cluster_id or ""
        keeper.set_opened(cluster_id)
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
            logger.critical("node %d leads no more: %s", self.keeper.node_id,
                            self.keeper.failure or "another node has taken over")  # fmt: skip
            self.is_deposed = True
            self._call_when_deposed()
            return
        self.leading.on_in_sync_changed()
        self.endpoint.send_soon()

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
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SENDS_REST_S):
                await self.endpoint.ended
        self.keeper.release(RELEASE_S)
        self.keeper.stop()
