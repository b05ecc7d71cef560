"""Requests that change a cluster's brokers and controllers, which are refused here:
UnregisterBroker (KIP-631), AddRaftVoter and RemoveRaftVoter (KIP-853).

The responses are those of an Apache Kafka whose only node is broker and controller, with
`controller.quorum.voters` (`kraft.version` 0).
"""

from __future__ import annotations

from functools import partial

from barnabas.broker.admission.guard_steps import on_cluster, rule
from barnabas.broker.admission.rights import ALTER
from barnabas.broker.api_row import ApiRow
from barnabas.broker.brokers.cluster import Cluster
from barnabas.protocol.api import FEW, Api
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from barnabas.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from barnabas.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from barnabas.protocol.request_context import RequestContext
from barnabas.storage.directory.log_manager import LogManager


def on_unregister_broker(
    cluster: Cluster, request: UnregisterBrokerRequest, context: RequestContext
) -> UnregisterBrokerResponse:
    """Refuse UnregisterBroker: with INVALID_REQUEST for an existing broker, since it is running,
    and otherwise with BROKER_ID_NOT_REGISTERED.
    """
    node_id = request.broker_id
    if node_id in cluster.nodes:
        return UnregisterBrokerResponse(
            error_code=Code.INVALID_REQUEST,
            error_message=f"Broker {node_id} is this process: stop it instead.",
        )
    return UnregisterBrokerResponse(
        error_code=Code.BROKER_ID_NOT_REGISTERED, error_message=f"There is no broker {node_id}."
    )


def on_add_raft_voter(
    logs: LogManager, request: AddRaftVoterRequest, context: RequestContext
) -> AddRaftVoterResponse:
    """Refuse AddRaftVoter: with INCONSISTENT_CLUSTER_ID if the request names another cluster;
    otherwise with UNSUPPORTED_VERSION.
    """
    code, message = _refusal(logs, request.cluster_id)
    return AddRaftVoterResponse(error_code=code, error_message=message)


def on_remove_raft_voter(
    logs: LogManager, request: RemoveRaftVoterRequest, context: RequestContext
) -> RemoveRaftVoterResponse:
    """Refuse RemoveRaftVoter: with INCONSISTENT_CLUSTER_ID if the request names another cluster;
    otherwise with UNSUPPORTED_VERSION.
    """
    code, message = _refusal(logs, request.cluster_id)
    return RemoveRaftVoterResponse(error_code=code, error_message=message)


def _refusal(logs: LogManager, cluster_id: str | None) -> tuple[Code, str]:
    if cluster_id not in (None, logs.cluster_id):
        return (
            Code.INCONSISTENT_CLUSTER_ID,
            f"This is the cluster {logs.cluster_id}, not {cluster_id}.",
        )
    return Code.UNSUPPORTED_VERSION, "This broker is the only voter: its quorum cannot change."


# --- the APIs of this family ----------------------------------------------------------------------


ROWS = (
    ApiRow(
        Api(64, "UnregisterBroker", 0, 0, flexible_from=0, most_elements=FEW),
        right=rule(on_cluster(ALTER)),
        handler=lambda parts: partial(on_unregister_broker, parts.cluster),
    ),
    ApiRow(
        Api(80, "AddRaftVoter", 0, 1, flexible_from=0, most_elements=FEW),
        right=rule(on_cluster(ALTER)),
        handler=lambda parts: partial(on_add_raft_voter, parts.logs),
    ),
    ApiRow(
        Api(81, "RemoveRaftVoter", 0, 0, flexible_from=0, most_elements=FEW),
        right=rule(on_cluster(ALTER)),
        handler=lambda parts: partial(on_remove_raft_voter, parts.logs),
    ),
)
