"""The rim of a leader that has a lease: nothing goes out when it may have lapsed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from barnabas.broker.core import Broker
from barnabas.broker.replication.leading import Leading, ReplicationSettings
from barnabas.broker.replication.leased_lead import LeasedLead
from barnabas.broker.replication.replicated_disk import ReplicatedDisk
from barnabas.broker.replication.rim.leader_endpoint import ReplicatedConnection, ReplicatedServer
from barnabas.broker.replication.rim.lease_keeper import LeaseKeeper
from barnabas.broker.replication.steps_of_end import Until, steps_of_end
from barnabas.broker.rim.server import unmapped

RELEASE_S = 2.0
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
    """The server of a leader that has a lease.

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
        self.keeper = keeper
        self._call_when_deposed: Callable[[], object] = lambda: None
        super().__init__(broker, sock, loop, endpoint_socket)
        logs = broker.logs
        self._lead = LeasedLead(keeper, self.leading, logs.cluster_id or "", logs.leader_epoch)
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
        if not self._lead.on_lease_changed():
            self.is_deposed = True
            self._call_when_deposed()
            return
        self.broker.cluster.standby = self._lead.standby
        self.endpoint.send_soon()

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
        self.keeper.on_change = lambda: None
        super().abandon()

    def _steps_of_end(self) -> Iterator[Until]:
        return steps_of_end(self, self.keeper)

    async def _wait_for(self, until: Until) -> None:
        if until is Until.RELEASED:
            self.keeper.wait_until_released(RELEASE_S)
        else:
            await super()._wait_for(until)
