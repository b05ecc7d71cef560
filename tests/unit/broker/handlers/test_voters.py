"""Registration and removal of brokers and voters. The expected codes were recorded from Apache
Kafka 3.9.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from helpers.core_host import CoreHost

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.add_raft_voter import AddRaftVoterRequest
from barnabas.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from barnabas.protocol.messages.unregister_broker import UnregisterBrokerRequest


@pytest.mark.parametrize(
    ("node_id", "code"), [(77, Code.BROKER_ID_NOT_REGISTERED), (1, Code.INVALID_REQUEST)]
)
def test_a_broker_is_not_forgotten_while_it_runs(node_id: int, code: Code, tmp_path: Path) -> None:
    host = CoreHost(tmp_path)
    assert host.call(host.connect(1), UnregisterBrokerRequest(node_id), 0).error_code == code


def test_no_broker_of_several_is_forgotten_while_it_runs(tmp_path: Path) -> None:
    connection = (host := CoreHost(tmp_path, barnabas_brokers="3")).connect(1)
    codes = [
        host.call(connection, UnregisterBrokerRequest(node_id), 0).error_code
        for node_id in range(5)
    ]
    gone = Code.BROKER_ID_NOT_REGISTERED
    assert codes == [gone, *[Code.INVALID_REQUEST] * 3, gone]


@pytest.mark.parametrize(
    ("cluster_id", "code"),
    [(None, Code.UNSUPPORTED_VERSION), ("another", Code.INCONSISTENT_CLUSTER_ID)],
)
def test_voters_cannot_be_added_or_removed(
    cluster_id: str | None, code: Code, tmp_path: Path
) -> None:
    connection = (host := CoreHost(tmp_path)).connect(1)
    directory = uuid.UUID(int=5)
    add = AddRaftVoterRequest(cluster_id=cluster_id, voter_id=5, voter_directory_id=directory)
    remove = RemoveRaftVoterRequest(cluster_id, 5, directory)
    assert host.call(connection, add, 1).error_code == code
    assert host.call(connection, remove, 0).error_code == code
