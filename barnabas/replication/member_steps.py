"""The steps of a node of a pair until the node leads: it follows the leader, or waits. The module
does no IO.

A generator yields the same steps as in `standby_steps`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from barnabas.replication.following import cluster_id_of
from barnabas.replication.leadership import Node, Role
from barnabas.replication.lease_record import LeaseRecord, LeaseRecordError, NodeAddresses
from barnabas.replication.session_note import read_session, write_session
from barnabas.replication.standby_steps import (
    Address,
    Copy,
    Receive,
    StandbySteps,
    Steps,
    Wait,
)
from barnabas.storage.disk import Disk
from barnabas.storage.files.checkpoints import (
    META_PROPERTIES_NAME,
    STANDBY_NOTE_NAME,
    decode_properties,
    encode_properties,
)
from barnabas.storage.files.leader_epochs import HighestEpoch

logger = logging.getLogger("barnabas.lease")

POLL_S = 0.1
LONGEST_PAUSE_S = 2.0  # the longest wait before the next attempt to follow a leader
TROUBLE_EVERY_S = 30.0
SYNC_PARTS = 3  # the copy is flushed if the leader has not renewed its lease for a third of ttl
# connecting may take a quarter of ttl, less than the time after which this node could lead
CONNECT_PARTS = 4


def node_of(
    disk: Disk, data_dir: str, node_id: int, addresses: NodeAddresses, session: str
) -> Node:
    """The values that describe this node for the lease, read from its directory. Raises:
    OSError.
    """
    return Node(
        node_id,
        addresses,
        session,
        cluster_id_of(disk, data_dir),
        max(0, HighestEpoch(disk, data_dir).read()),
        earlier_session=read_session(disk, data_dir),
    )


class MemberKeeper(Protocol):
    """The part of `lease_keeper.LeaseKeeper` that a node of a pair uses until it leads."""

    node_id: int
    failure: LeaseRecordError | None

    @property
    def role(self) -> Role: ...

    @property
    def record(self) -> LeaseRecord | None: ...

    @property
    def trouble(self) -> str: ...

    @property
    def obstacle(self) -> str: ...

    @property
    def unchanged_ms(self) -> int: ...


class MemberSteps(StandbySteps):
    """A node of the pair, until it leads.

    Takes: session, the id of this process for the lease's record; now_s, the steady clock; ttl_ms,
           how long the lease lasts without a renewal.
    """

    def __init__(
        self,
        copy: Copy,
        timeout_s: float,
        *,
        keeper: MemberKeeper,
        session: str,
        ttl_ms: int,
        now_s: Callable[[], float],
    ) -> None:
        super().__init__(copy, timeout_s)
        self._keeper, self._session, self._now_s = keeper, session, now_s
        self._sync_ms = ttl_ms // SYNC_PARTS
        self.connect_timeout_s = min(timeout_s, ttl_ms / 1000 / CONNECT_PARTS)
        self._warned_s = now_s() - TROUBLE_EVERY_S
        self._pause_s = 0.0
        self._followed: Address | None = None

    @property
    def goes_on(self) -> bool:
        """Whether to continue: the node does not lead yet, and may lead later."""
        return self._keeper.role is Role.WATCHING and self._keeper.failure is None

    def run(self) -> Steps:
        """Follow until this node leads, or the lease fails."""
        while self.goes_on:
            leader = self.leader_address()
            if leader is not None:
                self.leader = leader
                yield from self._follow_after_pause()
            self._warn_of_trouble()
            self._prepare_to_lead()
            if self.goes_on:
                yield Wait(POLL_S)
        if self._keeper.failure is None:
            self._take_directory()

    def _follow_after_pause(self) -> Steps:
        """Follow the leader over one connection. The pause before it grows with each failure."""
        if self.leader != self._followed:
            self._followed, self._pause_s = self.leader, 0.0
        ends_s = self._now_s() + self._pause_s
        while self._now_s() < ends_s:
            yield Wait(POLL_S)
            self._prepare_to_lead()
            if not self.goes_on or self.leader_address() != self.leader:
                return
        is_followed = yield from self.follow()
        longer_s = min(max(2 * self._pause_s, POLL_S), LONGEST_PAUSE_S)
        self._pause_s = 0.0 if is_followed else longer_s

    def receive(self) -> Steps:
        """The leader's next bytes. Empty at the end of the stream, after timeout_s without bytes,
        and when this node leads.
        """
        ends_s = self._now_s() + self.timeout_s
        self._prepare_to_lead()
        while self.goes_on and self._now_s() < ends_s:
            try:
                return (yield Receive(POLL_S))
            except TimeoutError:
                self._warn_of_trouble()
                self._prepare_to_lead()
        return b""

    def leader_address(self) -> Address | None:
        """The address of the other node, if the record names it as leader. Raises:
        LeaseRecordError."""
        record = self._keeper.record
        if record is None or record.leader in (None, self._keeper.node_id):
            return None
        assert record.leader is not None, "no node leads"
        node = record.nodes.get(record.leader)
        host, _, port = ("" if node is None else node.replication).rpartition(":")
        if not host or not port.isdecimal():
            raise LeaseRecordError(
                f"the lease has no address of its leader {record.leader}: start that node again"
            )
        return host.strip("[]"), int(port)

    def _prepare_to_lead(self) -> None:
        """Begin to flush the copy if the leader has not renewed its lease for a while. The flush
        then runs while the lease expires.
        """
        if self._keeper.unchanged_ms >= self._sync_ms:
            self.copy.sync.begin()

    def _warn_of_trouble(self) -> None:
        """Log why no node leads, at most once in TROUBLE_EVERY_S."""
        now_s = self._now_s()
        if now_s - self._warned_s < TROUBLE_EVERY_S:
            return
        trouble, obstacle = self._keeper.trouble, self._keeper.obstacle
        if trouble:
            logger.warning("the lease cannot be read, so no node can lead: %s", trouble)
        elif obstacle:
            logger.warning("no node leads: %s", obstacle)
        if trouble or obstacle:
            self._warned_s = now_s

    def _take_directory(self) -> None:
        """Replace the leader's node.id in the copy by this node's."""
        disk, data_dir = self.copy.disk, self.copy.data_dir
        if self._keeper.role is Role.LEADING:
            write_session(disk, data_dir, self._session)
        path = f"{data_dir}/{META_PROPERTIES_NAME}"
        if disk.exists(f"{data_dir}/{STANDBY_NOTE_NAME}") and disk.exists(path):
            properties = decode_properties(disk.read(path))
            properties["node.id"] = str(self._keeper.node_id)
            disk.write_atomic(path, encode_properties(properties))
        self.copy.sync.on_written()
