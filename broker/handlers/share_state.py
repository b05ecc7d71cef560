"""The requests about the states of share partitions (KIP-932): the share coordinator answers."""

from __future__ import annotations

from barnabas.broker import coordinators  # noqa: F401 - loaded with the family
from barnabas.broker.admission.coordination import Coordination
from barnabas.broker.admission.guard_steps import on_cluster, rule
from barnabas.broker.admission.rights import CLUSTER_ACTION
from barnabas.broker.api_row import ApiRow
from barnabas.broker.parts import Parts
from barnabas.broker.requests.wide_requests import Level, Repeats, Shape, of_partitions
from barnabas.broker.routes import Decide, Handler, Request
from barnabas.broker.share_partitions import shares  # noqa: F401 - the part of share groups
from barnabas.broker.share_partitions.to_share_coordinator import to_share_coordinator
from barnabas.protocol.api import Api

# --- the APIs of this family ----------------------------------------------------------------------


def _to_coordinator(parts: Parts, decide: Decide[Request]) -> Handler[Request]:
    return to_share_coordinator(decide, parts.shares.get().runtime, parts.requests)


ROWS = (
    ApiRow(
        Api(83, "InitializeShareGroupState", 0, 0, flexible_from=0, most_elements=10_000),
        right=rule(on_cluster(CLUSTER_ACTION)),
        coordination=Coordination(share_state_writes=True),
        handler=lambda parts: _to_coordinator(parts, parts.shares.get().coordinator.on_initialize),
    ),
    ApiRow(
        Api(84, "ReadShareGroupState", 0, 0, flexible_from=0, most_elements=10_000),
        right=rule(on_cluster(CLUSTER_ACTION)),
        coordination=Coordination(share_state_writes=True),
        shapes=(
            Shape(
                of_partitions(
                    Level("topics", "results", ("topic_id",)),
                    "partitions",
                    "partitions",
                    "partition",
                ),
                Repeats.PAIRED,
                at_once=4,  # each may have thousands of batches
            ),
        ),
        handler=lambda parts: _to_coordinator(parts, parts.shares.get().coordinator.on_read),
    ),
    ApiRow(
        Api(85, "WriteShareGroupState", 0, 1, flexible_from=0, most_elements=11_000),
        right=rule(on_cluster(CLUSTER_ACTION)),
        coordination=Coordination(share_state_writes=True),
        handler=lambda parts: _to_coordinator(parts, parts.shares.get().coordinator.on_write),
    ),
    ApiRow(
        Api(86, "DeleteShareGroupState", 0, 0, flexible_from=0, most_elements=10_000),
        right=rule(on_cluster(CLUSTER_ACTION)),
        coordination=Coordination(share_state_writes=True),
        handler=lambda parts: _to_coordinator(parts, parts.shares.get().coordinator.on_delete),
    ),
    ApiRow(
        Api(87, "ReadShareGroupStateSummary", 0, 1, flexible_from=0, most_elements=10_000),
        right=rule(on_cluster(CLUSTER_ACTION)),
        coordination=Coordination(share_state_writes=False),
        handler=lambda parts: _to_coordinator(
            parts, parts.shares.get().coordinator.on_read_summary
        ),
    ),
)
