"""Decides which of two nodes leads, by compare-and-swap of one record in an external engine.

The module does no IO: it gets the engine's answers and the time, and yields requests to the engine.
No node takes over just because the other one is silent. The engine needs no clock and no leases of
its own: it has one record (`lease_record`) with a version, which can be read (linearizably), and
can be replaced if its version is still the one that was read. etcd and Kubernetes support this.

**The right to answer.** A leader renews its lease by writing the record again. Its right ends `ttl
- margin` after it SENT the last write that is known to be in the record. Another node claims when
it has seen the same version for a whole `ttl`, from the time when it RECEIVED that version. It
replaces exactly that version, so there was no renewal in between. Each node uses its own clock,
whose rate has to be right within `margin` of `ttl`. After the end of its right a leader sends no
answers (`may_answer`); it keeps trying, and leads again if its next write succeeds, since then no
other node has led in between. If the record names another node, the leader is DEPOSED, and restarts
as a standby.

**The right to claim.** Nodes in the record's set `in_sync` may claim. With `sync` this invariant
holds at each moment, for any order of messages, crashes and expiries: *every acknowledged write is
on every node of the set*. So the leader

    does this                                   only if
    answers                                     each other node that may be in the set has applied
                                                everything before the answer (`may_be_in_sync`)
    adds a standby to the set                   answers wait for it, and it has applied everything
                                                that was done before answers began to wait for it
    changes a standby's copy out of order       that node is certainly not in the set
    (a catch-up)

A write with an unknown outcome may be applied at any later time, as long as the version that it
replaces is the current one. So a node *may be* in the set if it is in the record last seen, or in
such a write (`may_be_in_sync`). Once another version has been seen, the writes before it have
failed.

**The state of a directory** (`Holding`) decides whether a node in the set may claim:

    holding     the directory                                     may claim      leaves the set
    WHOLE       has everything that was written to it             in the set     no
    POWER_LOST  a leader's, and the machine was down: it lacks    alone in it    where others are
                unflushed data                                                   in it, and it was
                                                                                 not the last leader
    NOTHING     empty, or a standby's that is not whole or        never          where others are
                whose machine was down: it flushed nothing                       in it

A directory may be found WHOLE although it has only had lower leader epochs than the record says
(`held_epochs`). Then it is an older copy, and counts as NOTHING until it has followed.

When both machines lose power the standby leaves the set, and the leader continues with the data of
its disk. The first node creates a missing record. A node with an empty directory does so only after
a `ttl`, so that a node with data comes first. If a record has no `cluster_id`, its first leader
died before it had opened its directory. Then a node that is alone in the record's set may claim
even with NOTHING.

    role      after                              requests to the engine
    WATCHING  the start                          a read each `ttl / 12`; a claim
    LEADING   a claim that is in the record      a write each `ttl / 6`, and at each change
    RELEASED  `release`, once it was written     nothing
    DEPOSED   another node's claim was seen      nothing
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from barnabas.replication.lease_record import (
    LeaseRecord,
    LeaseRecordError,
    NodeAddresses,
    decode_lease_record,
)

ABSENT = ""  # the version of a record that does not exist
POLL_PARTS, RENEW_PARTS, TIMEOUT_PARTS = 12, 6, 4  # ttl is divided by these numbers
# a node may see two versions written by a dead process: the version that it found first, and one
# that a late write made
MOST_WRITES_OF_THE_DEAD = 2


@dataclass(frozen=True)  # this is no NamedTuple, since an empty tuple would be falsy
class Read:
    """A request to the engine for the record and its version. The answer is Found or Unknown."""


class Write(NamedTuple):
    """A request to the engine to replace the given version of the record, or to create the record
    if the version is ABSENT.

    The answer is Written, Conflict or Unknown. Conflict means that the record has another version,
    so nothing was written.
    """

    version: str
    value: bytes


class Found(NamedTuple):
    """The engine's answer to a read: the current record."""

    version: str
    value: bytes


class Written(NamedTuple):
    """The write succeeded. version: the new version of the record."""

    version: str


@dataclass(frozen=True)
class Conflict:
    """The record has another version than the one that the write was to replace. Nothing was
    written, and nothing will be written later.
    """


@dataclass(frozen=True)
class Unknown:
    """The engine has not answered. The request may have been executed, or may be executed later."""


Request = Read | Write
Answer = Found | Written | Conflict | Unknown


class Role(Enum):
    """The role of the node; see the module's table."""

    WATCHING = auto()
    LEADING = auto()
    RELEASED = auto()
    DEPOSED = auto()


class Holding(Enum):
    """The state of the node's directory; see the module's table."""

    WHOLE = auto()
    POWER_LOST = auto()
    NOTHING = auto()


class LeaseSettings(NamedTuple):
    """The times of a lease.

    ttl_ms: how long the lease lasts without a renewal. margin_ms: how much earlier the leader stops
    answering.
    """

    ttl_ms: int
    margin_ms: int


class Node(NamedTuple):
    """This node.

    session: the unique id of this process. leader_epoch: the highest epoch that the node's
    directory has had. earlier_session: the session of the process that used the directory before,
    if that process and its lease have certainly ended.
    """

    node_id: int
    addresses: NodeAddresses
    session: str
    cluster_id: str = ""
    leader_epoch: int = 0
    earlier_session: str = ""


class _Pending(NamedTuple):
    """A write that has been applied to the record, or may be applied now or later."""

    record: LeaseRecord
    sent_ms: int


class Leadership:
    """One node's part in the decision which node leads.

    The rim calls `next_request`, sends the request, and passes its answer to `on_answer`, one
    request at a time. After `timeout_ms` the answer is Unknown, and an answer that arrives later is
    dropped. The rim calls `next_request` again after each answer, after each call that changes what
    this node wants to write, and at `next_request_ms`.

    holding: the state of the directory. The rim sets it before the state gets worse, and after it
    has got better. node_id: the id of this node. has_opened: whether the leader's directory is open
    and no longer a standby's (`set_opened`).
    """

    def __init__(self, node: Node, settings: LeaseSettings, holding: Holding, now_ms: int) -> None:
        assert 0 < settings.margin_ms < settings.ttl_ms, "a margin as long as the lease"
        self._node, self._settings, self._holding = node, settings, holding
        self._is_as_found = True  # whether the directory has not been written to since the start
        self.timeout_ms = settings.ttl_ms // TIMEOUT_PARTS
        self.role, self.has_opened, self._opened_epoch = Role.WATCHING, False, 0
        self.record: LeaseRecord | None = None
        self.node_id = node.node_id
        self._wanted_in_sync: frozenset[int] = frozenset()
        self.cluster_id = node.cluster_id
        self._nodes: dict[int, NodeAddresses] = {node.node_id: node.addresses}
        self._version: str | None = None  # None before the first read
        self._seen_ms = now_ms  # when this version was first received
        self._answers_until_ms: int | None = None
        self._pending: list[_Pending] = []  # writes that are to replace this version
        self._request: Request | None = None
        self._write_count = self._namesake_writes = 0
        self._must_read, self._wants_release = True, False
        self._next_ms = self._renew_ms = now_ms

    # --- reading its state -----------------------------------------------------------------------

    @property
    def holding(self) -> Holding:
        """The state of this node's directory."""
        return self._holding

    @holding.setter
    def holding(self, holding: Holding) -> None:
        self._holding, self._is_as_found = holding, False

    def may_answer(self, now_ms: int) -> bool:
        """Whether this node leads and certainly no other node does. Checked before each output."""
        until_ms = self._answers_until_ms
        return until_ms is not None and now_ms < until_ms

    @property
    def leader_epoch(self) -> int:
        """The epoch of this node's claim. The node leads its partitions in this epoch or a higher
        one.
        """
        assert self.record is not None, "there is no claim"
        return self.record.leader_epoch

    @property
    def in_sync(self) -> frozenset[int]:
        """The in-sync set of the record that was last seen; empty if no record was seen."""
        return frozenset() if self.record is None else self.record.in_sync

    def may_be_in_sync(self) -> frozenset[int]:
        """The nodes that are in the in-sync set, or may be in it because of a write with unknown
        outcome.
        """
        return self.in_sync.union(*(pending.record.in_sync for pending in self._pending))

    @property
    def nodes(self) -> Mapping[int, NodeAddresses]:
        """The addresses of all known nodes."""
        known = {} if self.record is None else self.record.nodes
        return {**known, **self._nodes}

    def leader(self) -> int | None:
        """The leader in the record that was last seen. Its lease may have ended since then."""
        return None if self.record is None else self.record.leader

    def unchanged_ms(self, now_ms: int) -> int:
        """The time in ms for which the record has been unchanged, as far as this node has seen."""
        return now_ms - self._seen_ms

    def obstacle(self, now_ms: int) -> str:
        """Why this node does not lead although no other node has led for a while; empty if nothing
        prevents it.
        """
        record = self.record
        if self.role is not Role.WATCHING or record is None:
            return ""
        if now_ms - self._seen_ms < 2 * self._settings.ttl_ms:
            return ""
        if self.node_id not in record.in_sync:
            able = ", ".join(map(str, sorted(record.in_sync)))
            return f"this node may lack acknowledged data: start node {able}"
        if self.holding is Holding.NOTHING and record.cluster_id:
            return (
                f"this node has no whole copy of the cluster {record.cluster_id}, to which the "
                "lease belongs: start the node that has the data; for other data use another "
                "name in the lease's URL"
            )
        if self._is_older(record):
            return (
                f"this directory is an older copy, of leader epoch {self._node.leader_epoch}; "
                f"the node last had epoch {record.held_epochs[self.node_id]}: start the node "
                "that has the data; to continue with this directory use another name in the "
                "lease's URL"
            )
        return ""

    def set_opened(self, leader_epoch: int) -> None:
        """Record that the leader's directory is open, and that its partitions are led in
        `leader_epoch`.

        This is the epoch of the claim, or a higher one if the directory already had a higher epoch
        before the lease. It is stored in the record, so that the next claim has a higher epoch.
        """
        self.has_opened, self._opened_epoch = True, leader_epoch
        self.holding = Holding.WHOLE

    def want_in_sync(self, node_ids: Iterable[int]) -> None:
        """Set the other nodes that the leader wants in the in-sync set from now on.

        Before the first call, the wanted nodes are those that are in the set. A node that leaves
        the set is no longer wanted.
        """
        self._wanted_in_sync = frozenset(node_ids)

    def add_node(self, node_id: int, addresses: NodeAddresses) -> None:
        """Add the addresses of the standby. The next write stores them in the record."""
        self._nodes[node_id] = addresses

    def release(self) -> None:
        """Release the leadership. From now on no response is sent, and another node may claim at
        once.

        Before this call the leader has stopped, and has sent its standby all available data.
        """
        self._wants_release, self._answers_until_ms = True, None

    # --- requests --------------------------------------------------------------------------------

    def next_request(self, now_ms: int) -> Request | None:
        """The next request to the engine; None if none is due. `next_request_ms` says when the next
        one is due.
        """
        if self._request is not None or self.role in (Role.RELEASED, Role.DEPOSED):
            return None
        record = None
        if not self._must_read:
            record = self._as_leader(now_ms) if self.role is Role.LEADING else self._claim(now_ms)
        if record is not None:
            assert self._version is not None, "a write before the first read"
            request: Request = Write(self._version, record.encode())
            self._pending.append(_Pending(record, now_ms))
        elif now_ms < self._next_ms or (self.role is Role.LEADING and not self._must_read):
            return None
        else:
            request = Read()
        self._request = request
        return request

    def next_request_ms(self, now_ms: int) -> int | None:
        """The time at which `next_request` may return a request even if nothing else happens; None
        if there is no such time.
        """
        if self._request is not None or self.role in (Role.RELEASED, Role.DEPOSED):
            return None
        if self.role is Role.LEADING and not self._must_read:
            return max(self._renew_ms, now_ms)
        return max(self._next_ms, now_ms)

    def _as_leader(self, now_ms: int) -> LeaseRecord | None:
        """The record that this leader has to write, to change something or to renew its lease; None
        if neither is due.
        """
        record, me = self.record, self._node.node_id
        assert record is not None, "a leader without a record"
        if self._wants_release:
            return self._written(record._replace(leader=None))
        wanted = record._replace(
            cluster_id=self.cluster_id or record.cluster_id,
            in_sync=self._wanted_in_sync.union((me,)),
            opened_by=me if self.has_opened else record.opened_by,
            leader_epoch=max(record.leader_epoch, self._opened_epoch),
            nodes=self.nodes,
        )
        # Write the record again after a write with unknown outcome, since the old write might still
        # be applied.
        if wanted == record and not self._pending and now_ms < self._renew_ms:
            return None
        return self._written(wanted._replace(held_epochs=self._held_epochs(record, wanted)))

    def _held_epochs(self, record: LeaseRecord, wanted: LeaseRecord) -> dict[int, int]:
        """The leader epoch that each node of the in-sync set is known to have.

        A node that joins the set has everything that the leader has.
        """
        held = {node_id: epoch for node_id, epoch in record.held_epochs.items()
                if node_id in wanted.in_sync}  # fmt: skip
        for node_id in wanted.in_sync:
            is_me = node_id == self._node.node_id
            # this node has the epoch once its directory is open; another node gets it when it joins
            # the set
            if self.has_opened if is_me else node_id not in record.in_sync:
                held[node_id] = wanted.leader_epoch
        return held

    def _claim(self, now_ms: int) -> LeaseRecord | None:
        """The record that makes this node the leader, or removes this node from the set; None if it
        may do neither.
        """
        record, me = self.record, self._node.node_id
        has_ended = now_ms - self._seen_ms >= self._settings.ttl_ms
        if record is not None and record.leader == me:
            has_ended = has_ended or record.session == self._node.earlier_session
        if record is None:
            if self.holding is Holding.NOTHING and not has_ended:
                return None
            made = LeaseRecord(self.cluster_id, me, "", 0, frozenset((me,)), {}, "")
            return self._claimed(made)
        if me not in record.in_sync:
            return None
        is_alone = len(record.in_sync) == 1
        is_used = bool(record.cluster_id)
        if self._is_worth_less(record) and not is_alone:
            return self._written(record._replace(in_sync=record.in_sync - {me}))
        if (self.holding is Holding.NOTHING and is_used) or self._is_older(record):
            return None
        may_use = self.holding is Holding.WHOLE or is_alone
        if not may_use or not (has_ended or record.leader is None):
            return None
        return self._claimed(record)

    def _is_worth_less(self, record: LeaseRecord) -> bool:
        """Whether another node of the set has more data. If both nodes lost power, the last leader
        has more.

        A node with NOTHING always has less. Example: a standby that claimed, and then lost power
        before it opened its directory as a leader.
        """
        if self.holding is Holding.POWER_LOST:
            last = record.leader if record.opened_by is None else record.opened_by
            return last != self.node_id
        return self.holding is Holding.NOTHING or self._is_older(record)

    def _is_older(self, record: LeaseRecord) -> bool:
        """Whether the directory is an earlier copy of the directory that the node had when it was
        in the set.
        """
        is_whole = self._is_as_found and self.holding is Holding.WHOLE
        return is_whole and 0 < self._node.leader_epoch < record.held_epochs.get(self.node_id, 0)

    def _claimed(self, record: LeaseRecord) -> LeaseRecord:
        """A record that makes this node the leader, in a leader epoch that is higher than all
        earlier ones.
        """
        node = self._node
        return self._written(
            record._replace(
                leader=node.node_id,
                session=node.session,
                leader_epoch=max(record.leader_epoch, node.leader_epoch) + 1,
                nodes=self.nodes,
            )
        )

    def _written(self, record: LeaseRecord) -> LeaseRecord:
        """A record with a unique id of this write: if the outcome of the write is unknown, a later
        read shows by the id whether it was applied.
        """
        self._write_count += 1
        node = self._node
        write_id = f"{node.node_id}-{node.session}-{self._write_count}"
        return record._replace(write_id=write_id)

    # --- answers ---------------------------------------------------------------------------------

    def on_answer(self, answer: Answer, now_ms: int) -> None:
        """Process the engine's answer to the pending request. Raises: LeaseRecordError."""
        request, self._request = self._request, None
        assert request is not None, "an answer to nothing"
        if isinstance(answer, Found):
            assert isinstance(request, Read), "a write is answered with a record"
            self._process_record(answer.version, answer.value, now_ms)
        elif isinstance(answer, Written):
            assert isinstance(request, Write), "a read is answered as a write"
            self._process_record(answer.version, request.value, now_ms)
        else:
            if isinstance(answer, Conflict):
                self._pending.pop()
                self._next_ms = now_ms
            else:
                self._next_ms = now_ms + self._settings.ttl_ms // POLL_PARTS
            self._must_read = True

    def _process_record(self, version: str, value: bytes, now_ms: int) -> None:
        """Process a version of the record that was read or written."""
        self._must_read = False
        if version != self._version:
            record = None if version == ABSENT else decode_lease_record(value)
            self._check_is_of_this_cluster(record)
            self._check_name_is_unique(record)
            pending, self._pending = self._pending, []
            self._version, self.record, self._seen_ms = version, record, now_ms
            own = [one for one in pending if record and one.record.write_id == record.write_id]
            if own:
                self._on_own_write(own[0])
            else:
                self._on_others_write(record)
        self._next_ms = now_ms + self._settings.ttl_ms // POLL_PARTS

    def _check_is_of_this_cluster(self, record: LeaseRecord | None) -> None:
        """Check that the record and the directory belong to the same cluster. Raises:
        LeaseRecordError.
        """
        ours = self.cluster_id
        if record is not None and record.cluster_id and ours and record.cluster_id != ours:
            raise LeaseRecordError(
                f"the lease belongs to the cluster {record.cluster_id}, and the data directory "
                f"to the cluster {ours}: use an empty directory for a standby, or another lease"
            )

    def _check_name_is_unique(self, record: LeaseRecord | None) -> None:
        """Check that no other process leads with this node's id. Raises: LeaseRecordError."""
        if self.role is not Role.WATCHING or record is None or record.leader != self.node_id:
            return
        name = f"{self.node_id}-{record.session}-"
        if record.session != self._node.session and record.write_id.startswith(name):
            self._namesake_writes += 1
        if self._namesake_writes > MOST_WRITES_OF_THE_DEAD:
            raise LeaseRecordError(
                f"another process leads as node {self.node_id}: give the two nodes different "
                "node.ids"
            )

    def _on_own_write(self, write: _Pending) -> None:
        """Process a record that this node wrote."""
        settings = self._settings
        if self._leads_by(write.record):
            if self.role is Role.WATCHING:
                self.role, self._wanted_in_sync = Role.LEADING, write.record.in_sync
            self._renew_ms = write.sent_ms + settings.ttl_ms // RENEW_PARTS
            if not self._wants_release:
                self._answers_until_ms = write.sent_ms + settings.ttl_ms - settings.margin_ms
        elif self.role is Role.LEADING:
            self.role = Role.RELEASED

    def _on_others_write(self, record: LeaseRecord | None) -> None:
        """Process a record that another node wrote."""
        if self.role is not Role.LEADING:
            return
        if record is None or not self._leads_by(record):
            self.role, self._answers_until_ms = Role.DEPOSED, None
        else:  # a node has left the set
            self._wanted_in_sync &= record.in_sync

    def _leads_by(self, record: LeaseRecord) -> bool:
        return (record.leader, record.session) == (self._node.node_id, self._node.session)
