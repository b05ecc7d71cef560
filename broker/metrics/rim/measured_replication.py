"""Measuring a leader: metrics show how far behind its standby is.

The time that an answer waits for the standby is not in the phases of a request: it was handed over
before.
"""

from __future__ import annotations

from barnabas.broker.metrics.rim.measured import MeasuredServer, ReplicationState
from barnabas.broker.replication.rim.leader_endpoint import ReplicatedServer
from barnabas.broker.replication.rim.lease_endpoint import LeasedServer


class MeasuredReplicatedServer(MeasuredServer, ReplicatedServer):
    """A leader's server whose requests are measured."""

    def replication(self) -> ReplicationState:
        """How far behind the standby is. In the loop's thread."""
        leading = self.leading
        link = leading.link
        return ReplicationState(
            "sync" if leading.settings.is_sync else "async",
            leading.follows,
            self._is_standby_in_sync(),
            0 if link is None else link.waiting_bytes,
            0 if link is None else leading.position - max(0, link.applied),
            leading.lag_ms(self.now_ms()),
            self.waiting_count,
            self._leader_epoch(),
        )

    def _is_standby_in_sync(self) -> bool:
        link = self.leading.link
        return link is not None and link.is_awaited

    def _leader_epoch(self) -> int | None:
        return None


class MeasuredLeasedServer(MeasuredReplicatedServer, LeasedServer):
    """The server of a leader that has a lease, whose requests are measured."""

    def _is_standby_in_sync(self) -> bool:
        standby = self.broker.cluster.standby
        return standby is not None and standby.is_in_sync

    def _leader_epoch(self) -> int:
        return self.keeper.leader_epoch
