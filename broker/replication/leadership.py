"""Who of two nodes leads: decided by one record with compare-and-swap, kept by an engine outside.

Sans-IO: answers of the engine and the clock go in; requests to the engine come out. Neither node
decides by the other's silence. The engine needs no clock, no leases of its own: it has one record
(`lease_record`) with a version, that can be read (linearizably) and be replaced where its version
is still the one that was read. etcd has that, and Kubernetes has nothing else.

**The right to answer.** A leader renews: it writes the record again. Its right ends `ttl - margin`
after it SENT the last write that is known to be in the record. Another node claims when it has seen
the same version for a whole `ttl`, from when it RECEIVED that version on. It replaces that very
version, so no renewal came between. Each goes by its own clock, which has to be right only in its
rate, and only within `margin` of `ttl`. Past its right a leader answers nobody (`may_answer`); it
goes on trying, and leads again if its next write succeeds: then nobody has led in between. If the
record names another, it is DEPOSED, and begins anew as a standby.

**Who may claim.** Who is in the record's set `in_sync`. What holds at each moment, with `sync`, in
whatever order messages, crashes and expiries come: *what was acknowledged is on every node of the
set*. For this the leader

    does                                        only when
    answers                                     each other node that may be in the set has applied
                                                what was done before the answer (`may_be_in_sync`)
    asks for a standby to be in the set         answers wait for it, and it has applied all that
                                                was done before they began to
    lets a standby's copy be changed out of     that node is certainly not in the set
    order (a catch-up)

A write whose outcome is unknown may be applied at any later time, as long as the version that it
replaces is there. So a node *may be* in the set that is in the record last seen, or in such a write
(`may_be_in_sync`); once another version has been seen, the writes before it are done with.

**What a directory is worth** (`Holding`) decides whether a node in the set may make use of it:

    holding     the directory                                     may claim      leaves the set
    WHOLE       has all that was written to it                    in the set     no
    POWER_LOST  a leader's, and the machine was down: it lacks    alone in it    where others are
                what was not flushed                                             in it, and it was
                                                                                 not the last leader
    NOTHING     empty, or a standby's that is not whole or        never          where others are
                whose machine was down: it flushed nothing                       in it

A directory that is WHOLE as it was found, and has had lower leader epochs alone than the record
knows of it (`held_epochs`), is an older copy, and worth NOTHING until it has followed.

When both machines lose power the standby leaves the set, and the leader goes on with what its disk
has. A record that is not there is made by the first node, and by one whose directory is empty only
after a `ttl`, so that one with data comes first. A record without a `cluster_id` is of a first
leader that died before its directory was one: who is alone in its set claims, with NOTHING.

    role      after                              what goes out
    WATCHING  the start                          a read each `ttl / 12`; a claim
    LEADING   a claim that is in the record      a write each `ttl / 6`, and at each change
    RELEASED  `release`, once it was written     nothing
    DEPOSED   another's claim was seen           nothing
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from barnabas.broker.replication.lease_record import (
    LeaseRecord,
    LeaseRecordError,
    NodeAddresses,
    decode_lease_record,
)

ABSENT = ""  # the version of a record that is not there
POLL_PARTS, RENEW_PARTS, TIMEOUT_PARTS = 12, 6, 4  # of ttl
# that a node sees of a process that is gone: what it found, and a write that came late
MOST_WRITES_OF_THE_DEAD = 2


@dataclass(frozen=True)  # an empty tuple would be false
class Read:
    """A request to the engine: the record and its version. Answered by Found, or Unknown."""


class Write(NamedTuple):
    """A request to the engine: replace that version, or make the record where it is ABSENT.

    Answered by Written; by Conflict, if the version is another and so nothing was written; or by
    Unknown.
    """

    version: str
    value: bytes


class Found(NamedTuple):
    """The engine's answer to a read: the record as it is now."""

    version: str
    value: bytes


class Written(NamedTuple):
    """The record is what was asked for. version: its new one."""

    version: str


@dataclass(frozen=True)
class Conflict:
    """The version was another: nothing was written, nor will be."""


@dataclass(frozen=True)
class Unknown:
    """No answer: what was asked for may have been done, or may be done later."""


Request = Read | Write
Answer = Found | Written | Conflict | Unknown


class Role(Enum):
    """What the node is; see the module's table."""

    WATCHING = auto()
    LEADING = auto()
    RELEASED = auto()
    DEPOSED = auto()


class Holding(Enum):
    """What the node's directory is worth; see the module's table."""

    WHOLE = auto()
    POWER_LOST = auto()
    NOTHING = auto()


class LeaseSettings(NamedTuple):
    """ttl_ms: how long a leader may say nothing. margin_ms: how much earlier its right ends."""

    ttl_ms: int
    margin_ms: int


class Node(NamedTuple):
    """This node. session: of this process, not used before. leader_epoch: the highest that its
    directory has had. earlier_session: of the process that had the directory before, if it is
    certain that it is gone: what it held has ended.
    """

    node_id: int
    addresses: NodeAddresses
    session: str
    cluster_id: str = ""
    leader_epoch: int = 0
    earlier_session: str = ""


class _Pending(NamedTuple):
    """A write that is in the record, may be, or may come to be."""

    record: LeaseRecord
    sent_ms: int


class Leadership:
    """One node's part in deciding who leads.

    The rim asks `next_request`, sends it, and feeds `on_answer` with what came of it, one at a
    time; what comes later than `timeout_ms` is Unknown, and is not fed afterwards. It asks again
    after each answer, each change of a wish, and at `next_request_ms`.

    holding: the rim sets it when it changes, before the directory becomes worth less, after it is
    worth more. node_id: of this node. has_opened: whether the leader's directory is open and no
    standby's any more (`set_opened`).
    """

    def __init__(self, node: Node, settings: LeaseSettings, holding: Holding, now_ms: int) -> None:
        assert 0 < settings.margin_ms < settings.ttl_ms, "a margin as long as the lease"
        self._node, self._settings, self._holding = node, settings, holding
        self._is_as_found = True  # nothing was done in the directory since the start
        self.timeout_ms = settings.ttl_ms // TIMEOUT_PARTS
        self.role, self.has_opened, self._opened_epoch = Role.WATCHING, False, 0
        self.record: LeaseRecord | None = None
        self.node_id = node.node_id
        self._wanted_in_sync: frozenset[int] = frozenset()
        self.cluster_id = node.cluster_id
        self._nodes: dict[int, NodeAddresses] = {node.node_id: node.addresses}
        self._version: str | None = None  # None: nothing was read yet
        self._seen_ms = now_ms  # when this version was received first
        self._answers_until_ms: int | None = None
        self._pending: list[_Pending] = []  # writes that replace this version
        self._request: Request | None = None
        self._write_count = self._namesake_writes = 0
        self._must_read, self._wants_release = True, False
        self._next_ms = self._renew_ms = now_ms

    # --- what is asked of it ---------------------------------------------------------------------

    @property
    def holding(self) -> Holding:
        """What the directory is worth."""
        return self._holding

    @holding.setter
    def holding(self, holding: Holding) -> None:
        self._holding, self._is_as_found = holding, False

    def may_answer(self, now_ms: int) -> bool:
        """Whether this node leads, and certainly no other does: asked before each output."""
        until_ms = self._answers_until_ms
        return until_ms is not None and now_ms < until_ms

    @property
    def leader_epoch(self) -> int:
        """The epoch of this node's claim: its partitions are led by no lower one."""
        assert self.record is not None, "nobody has claimed"
        return self.record.leader_epoch

    @property
    def in_sync(self) -> frozenset[int]:
        """The set as it was seen last."""
        return frozenset() if self.record is None else self.record.in_sync

    def may_be_in_sync(self) -> frozenset[int]:
        """Every node that is in the set, or may come to be by what was asked for."""
        return self.in_sync.union(*(pending.record.in_sync for pending in self._pending))

    @property
    def nodes(self) -> Mapping[int, NodeAddresses]:
        """Where each node is that was ever told of."""
        known = {} if self.record is None else self.record.nodes
        return {**known, **self._nodes}

    def leader(self) -> int | None:
        """Who leads by the record that was seen last; it may have ended since."""
        return None if self.record is None else self.record.leader

    def unchanged_ms(self, now_ms: int) -> int:
        """For how long the record has been the same, as far as was seen."""
        return now_ms - self._seen_ms

    def obstacle(self, now_ms: int) -> str:
        """Why this node does not lead, though nobody has for a while; empty where it is not so."""
        record = self.record
        if self.role is not Role.WATCHING or record is None:
            return ""
        if now_ms - self._seen_ms < 2 * self._settings.ttl_ms:
            return ""
        if self.node_id not in record.in_sync:
            able = ", ".join(map(str, sorted(record.in_sync)))
            return f"this node may lack what was answered: start node {able}"
        if self.holding is Holding.NOTHING and record.cluster_id:
            return (
                f"this node has no whole copy of the cluster {record.cluster_id}, of which the "
                "lease is: start the node that has the data; for other data take another name in "
                "the lease's URL"
            )
        if self._is_older(record):
            return (
                f"this directory is an older copy: it has had leader epoch "
                f"{self._node.leader_epoch}, and this node's was there in epoch "
                f"{record.held_epochs[self.node_id]}: start the node that has the data; to go on "
                "with what is here take another name in the lease's URL"
            )
        return ""

    def set_opened(self, leader_epoch: int) -> None:
        """The leader's directory is open, no standby's any more, and its partitions are led in that
        epoch: that of the claim, or a higher one where the directory had one of before the lease.
        The record tells of it, so that the next claim is above it.
        """
        self.has_opened, self._opened_epoch = True, leader_epoch
        self.holding = Holding.WHOLE

    def want_in_sync(self, node_ids: Iterable[int]) -> None:
        """Whom the leader wants in the set from now on, beside itself; until then, and after a node
        has left the set, it is whoever is in it.
        """
        self._wanted_in_sync = frozenset(node_ids)

    def add_node(self, node_id: int, addresses: NodeAddresses) -> None:
        """The standby tells where it is; the record will."""
        self._nodes[node_id] = addresses

    def release(self) -> None:
        """Give the leadership up: nothing is answered from now on, and another may claim at once.

        The leader has stopped, and its standby has all that it could be given.
        """
        self._wants_release, self._answers_until_ms = True, None

    # --- requests --------------------------------------------------------------------------------

    def next_request(self, now_ms: int) -> Request | None:
        """What the engine is asked now; None: nothing, ask again at `next_request_ms`."""
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
        """When `next_request` may have one, if nothing happens before; None: never."""
        if self._request is not None or self.role in (Role.RELEASED, Role.DEPOSED):
            return None
        if self.role is Role.LEADING and not self._must_read:
            return max(self._renew_ms, now_ms)
        return max(self._next_ms, now_ms)

    def _as_leader(self, now_ms: int) -> LeaseRecord | None:
        """The record as this leader writes it: at a change, or to renew."""
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
        # a write of unknown outcome is overtaken, else what it asks for may still come to be
        if wanted == record and not self._pending and now_ms < self._renew_ms:
            return None
        return self._written(wanted._replace(held_epochs=self._held_epochs(record, wanted)))

    def _held_epochs(self, record: LeaseRecord, wanted: LeaseRecord) -> dict[int, int]:
        """The leader epoch that each node of the in-sync set is known to hold.

        Who comes into the set has all that the leader has, as the leader itself does.
        """
        held = {node_id: epoch for node_id, epoch in record.held_epochs.items()
                if node_id in wanted.in_sync}  # fmt: skip
        for node_id in wanted.in_sync:
            is_me = node_id == self._node.node_id
            if self.has_opened if is_me else node_id not in record.in_sync:
                held[node_id] = wanted.leader_epoch
        return held

    def _claim(self, now_ms: int) -> LeaseRecord | None:
        """The record that makes this node the leader, or takes it out of the set; None: neither."""
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
        """Whether any other node of the set has more: of two that lost power, who led last. A
        standby that claimed and lost power before its directory was a leader's has NOTHING.
        """
        if self.holding is Holding.POWER_LOST:
            last = record.leader if record.opened_by is None else record.opened_by
            return last != self.node_id
        return self.holding is Holding.NOTHING or self._is_older(record)

    def _is_older(self, record: LeaseRecord) -> bool:
        """Whether this is an earlier copy of the directory that the node had in the set."""
        is_whole = self._is_as_found and self.holding is Holding.WHOLE
        return is_whole and 0 < self._node.leader_epoch < record.held_epochs.get(self.node_id, 0)

    def _claimed(self, record: LeaseRecord) -> LeaseRecord:
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
        self._write_count += 1
        node = self._node
        write_id = f"{node.node_id}-{node.session}-{self._write_count}"
        return record._replace(write_id=write_id)

    # --- answers ---------------------------------------------------------------------------------

    def on_answer(self, answer: Answer, now_ms: int) -> None:
        """What came of the request. Raises: LeaseRecordError."""
        request, self._request = self._request, None
        assert request is not None, "an answer to nothing"
        if isinstance(answer, Found):
            assert isinstance(request, Read), "a write is answered with a record"
            self._see(answer.version, answer.value, now_ms)
        elif isinstance(answer, Written):
            assert isinstance(request, Write), "a read is answered as a write"
            self._see(answer.version, request.value, now_ms)
        else:
            if isinstance(answer, Conflict):
                self._pending.pop()
                self._next_ms = now_ms
            else:
                self._next_ms = now_ms + self._settings.ttl_ms // POLL_PARTS
            self._must_read = True

    def _see(self, version: str, value: bytes, now_ms: int) -> None:
        """Take it that this is the record now."""
        self._must_read = False
        if version != self._version:
            record = None if version == ABSENT else decode_lease_record(value)
            self._check_is_of_this_cluster(record)
            self._check_is_the_only_one_so_called(record)
            pending, self._pending = self._pending, []
            self._version, self.record, self._seen_ms = version, record, now_ms
            own = [one for one in pending if record and one.record.write_id == record.write_id]
            if own:
                self._on_own_write(own[0])
            else:
                self._on_others_write(record)
        self._next_ms = now_ms + self._settings.ttl_ms // POLL_PARTS

    def _check_is_of_this_cluster(self, record: LeaseRecord | None) -> None:
        ours = self.cluster_id
        if record is not None and record.cluster_id and ours and record.cluster_id != ours:
            raise LeaseRecordError(
                f"the lease is of the cluster {record.cluster_id}, and the data directory of the "
                f"cluster {ours}: take an empty directory for a standby, or another lease"
            )

    def _check_is_the_only_one_so_called(self, record: LeaseRecord | None) -> None:
        """Raises: LeaseRecordError where another process goes on to lead as this very node."""
        if self.role is not Role.WATCHING or record is None or record.leader != self.node_id:
            return
        name = f"{self.node_id}-{record.session}-"
        if record.session != self._node.session and record.write_id.startswith(name):
            self._namesake_writes += 1
        if self._namesake_writes > MOST_WRITES_OF_THE_DEAD:
            raise LeaseRecordError(
                f"another process leads as node {self.node_id}: give each of the two nodes a "
                "node.id of its own"
            )

    def _on_own_write(self, write: _Pending) -> None:
        """A write of this node is the record now."""
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
        """The record is another than this node has written."""
        if self.role is not Role.LEADING:
            return
        if record is None or not self._leads_by(record):
            self.role, self._answers_until_ms = Role.DEPOSED, None
        else:  # a node has left the set
            self._wanted_in_sync &= record.in_sync

    def _leads_by(self, record: LeaseRecord) -> bool:
        return (record.leader, record.session) == (self._node.node_id, self._node.session)
