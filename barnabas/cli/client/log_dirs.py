"""The log directories of brokers, and the room in them (DescribeLogDirs, KIP-827)."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.cli.client.cluster_client import ClusterClient
from barnabas.cli.errors import RefusedError
from barnabas.client.request_kind import RequestKind
from barnabas.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

LOG_DIRS = RequestKind(DescribeLogDirsRequest, DescribeLogDirsResponse, 1, 4)


class LogDir(NamedTuple):
    """A log directory of a broker. usable_bytes: what may still be written; None if the broker does
    not say it, as before version 3.3 of Apache Kafka. error_code: not 0 if it is off line.
    """

    node_id: int
    path: str
    usable_bytes: int | None
    error_code: int

    @property
    def has_room(self) -> bool:
        """Whether the broker takes records."""
        return not self.error_code and self.usable_bytes != 0


def log_dirs(client: ClusterClient) -> list[LogDir]:
    """The log directories of all brokers. Raises: RefusedError."""
    found = []
    for node_id in sorted(client.brokers):

        def ask(node_id: int = node_id) -> DescribeLogDirsResponse:
            # no topics: only the directories are wanted
            answer = client.node(node_id, LOG_DIRS, DescribeLogDirsRequest(topics=[]))
            if answer.error_code:
                raise RefusedError(answer.error_code)
            return answer

        found += [
            LogDir(
                node_id,
                row.log_dir,
                row.usable_bytes if row.usable_bytes >= 0 else None,
                row.error_code,
            )
            for row in client.trying(ask).results
        ]
    return found


def without_room(client: ClusterClient) -> str:
    """Which brokers have no room for records, in words; empty if all have, or none says it."""
    return "; ".join(
        f"broker {row.node_id} has no room for records in {row.path}: free some space there, or "
        "shorten retention (its log says how much is missing)"
        for row in log_dirs(client)
        if not row.has_room
    )
