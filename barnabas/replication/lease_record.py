"""The record that the nodes of a pair share in an external engine: the leader and the in-sync set.

    field        meaning
    cluster_id   the cluster id of the data; empty until the first leader has opened its directory
    leader       the leader's node id; null: the last leader has released the lease
    session      the id of the leader's process; a restarted node has another one
    leader_epoch the leader epoch of all partitions; each claim raises it
    in_sync      the ids of the nodes that have all acknowledged writes: only they may claim
    nodes        by node id: the address for the other node, and the address of each listener
    write_id     the unique id of this write
    opened_by    the node id of the last leader that has opened its directory; null: none has
    held_epochs  by node id, a leader epoch that its directory is known to have had since the node
                 joined the set: a directory with only lower ones is an older copy

The engine stores it as JSON. Source: none, since the record is Barnabas's own. The idea is that of
client-go's `leaderelection`, with the in-sync set added.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

HIGHEST_LEADER_EPOCH = 2**31 - 1


class LeaseRecordError(Exception):
    """The record in the engine cannot be read, because it is not the record of a pair, or has
    another version.
    """


class NodeAddresses(NamedTuple):
    """The addresses of a node.

    replication: HOST:PORT for the other node. listeners: HOST:PORT for clients, by listener.
    """

    replication: str
    listeners: Mapping[str, str]


def addresses_for_clients(node: NodeAddresses) -> dict[str, tuple[str, int]]:
    """The host and port of each listener. Invalid addresses are left out."""
    parts = {name: text.rpartition(":") for name, text in node.listeners.items()}
    return {
        name: (host, int(port))
        for name, (host, _, port) in parts.items()
        if host and port.isdecimal() and 0 < int(port) <= 65535
    }


class LeaseRecord(NamedTuple):
    """The record in the engine; see the module's table."""

    cluster_id: str
    leader: int | None
    session: str
    leader_epoch: int
    in_sync: frozenset[int]
    nodes: Mapping[int, NodeAddresses]
    write_id: str
    opened_by: int | None = None
    held_epochs: Mapping[int, int] = MappingProxyType({})

    def encode(self) -> bytes:
        """The record as bytes for the engine."""
        nodes = {
            str(node_id): {"replication": node.replication, "listeners": dict(node.listeners)}
            for node_id, node in sorted(self.nodes.items())
        }
        held = {str(node_id): epoch for node_id, epoch in sorted(self.held_epochs.items())}
        fields = self._asdict() | {
            "in_sync": sorted(self.in_sync),
            "nodes": nodes,
            "held_epochs": held,
        }
        return json.dumps(fields, separators=(",", ":")).encode()


def decode_lease_record(value: bytes) -> LeaseRecord:
    """Decode a record. Raises: LeaseRecordError."""
    try:
        fields = json.loads(value)
        leader, opened_by = fields["leader"], fields.get("opened_by")
        record = LeaseRecord(
            str(fields["cluster_id"]),
            None if leader is None else int(leader),
            str(fields["session"]),
            int(fields["leader_epoch"]),
            frozenset(map(int, fields["in_sync"])),
            {int(node_id): _addresses(node) for node_id, node in fields["nodes"].items()},
            str(fields["write_id"]),
            None if opened_by is None else int(opened_by),
            {int(node_id): int(epoch) for node_id, epoch in fields.get("held_epochs", {}).items()},
        )
        if not 0 <= record.leader_epoch <= HIGHEST_LEADER_EPOCH:
            raise ValueError(f"the leader epoch is {record.leader_epoch}")
        return record
    except RecursionError as error:
        raise LeaseRecordError("the lease's record cannot be read: it is nested deeply") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise LeaseRecordError(
            f"the lease's record cannot be read: {error!r}. Another program wrote it: use "
            "another name in barnabas.lease.url, start the node that led last, then the other "
            "one"
        ) from error


def _addresses(node: Any) -> NodeAddresses:
    listeners = {str(name): str(address) for name, address in node["listeners"].items()}
    return NodeAddresses(str(node["replication"]), listeners)
