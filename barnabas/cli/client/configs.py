"""Requests about settings of topics, brokers, groups and client metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.cli.client.cluster_client import ClusterClient
from barnabas.cli.errors import CommandError, RefusedError
from barnabas.client.request_kind import RequestKind
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

DESCRIBE_CONFIGS = RequestKind(DescribeConfigsRequest, DescribeConfigsResponse, 1, 4)
ALTER_CONFIGS = RequestKind(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, 0, 1)
TYPES = {"topic": 2, "broker": 4, "client-metrics": 16, "group": 32}
SET, DELETE = 0, 1
DYNAMIC_DEFAULT, STATIC, DEFAULT = 3, 4, 5
SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG", 2: "DYNAMIC_BROKER_CONFIG", DYNAMIC_DEFAULT:
    "DYNAMIC_DEFAULT_BROKER_CONFIG", STATIC: "STATIC_BROKER_CONFIG", DEFAULT: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG", 7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}  # fmt: skip


class Setting(NamedTuple):
    """A setting of a resource. `value` is None if the broker does not return it."""

    name: str
    value: str | None
    source: str
    is_altered: bool
    is_read_only: bool
    is_sensitive: bool


def describe_configs(
    client: ClusterClient, kind: str, names: Sequence[str]
) -> dict[str, list[Setting]]:
    """All settings of resources, by name. Raises: RefusedError if the broker refuses a resource."""
    found: dict[str, list[Setting]] = {}
    for node_id, part in _by_node(kind, names):
        request = DescribeConfigsRequest(
            [DescribeConfigsResource(TYPES[kind], name, None) for name in part]
        )
        if node_id is None:
            answer = client.any(DESCRIBE_CONFIGS, request)
        else:
            _check_broker(client, node_id)
            answer = client.node(node_id, DESCRIBE_CONFIGS, request)
        for result in answer.results:
            if result.error_code:
                raise RefusedError(result.error_code, result.error_message, result.resource_name)
            found[result.resource_name] = [
                Setting(
                    row.name,
                    row.value,
                    SOURCES.get(row.config_source, "UNKNOWN"),
                    # all settings of all brokers (the empty name) were set by somebody
                    row.config_source not in (DYNAMIC_DEFAULT, STATIC, DEFAULT)
                    or not result.resource_name,
                    row.read_only,
                    row.is_sensitive,
                )
                for row in result.configs
            ]
    return found


def alter_configs(
    client: ClusterClient,
    kind: str,
    name: str,
    values: Mapping[str, str],
    unset: Sequence[str],
    *,
    dry_run: bool = False,
) -> None:
    """Set some of a resource's settings, and reset others to their defaults. Raises:
    RefusedError.
    """
    changes = [AlterableConfig(key, SET, value) for key, value in values.items()]
    changes += [AlterableConfig(key, DELETE, None) for key in unset]
    request = IncrementalAlterConfigsRequest(
        [AlterConfigsResource(TYPES[kind], name, changes)], validate_only=dry_run
    )
    ((node_id, _),) = _by_node(kind, [name])
    if node_id is None:
        answer = client.any(ALTER_CONFIGS, request)
    else:
        _check_broker(client, node_id)
        answer = client.node(node_id, ALTER_CONFIGS, request)
    (result,) = answer.responses
    if result.error_code:
        raise RefusedError(result.error_code, result.error_message, name)


def _by_node(kind: str, names: Sequence[str]) -> list[tuple[int | None, list[str]]]:
    """Names of resources, grouped by the id of the broker that receives the request; None if any
    broker can answer.

    A broker's settings are requested from that broker. The empty name means the default for all
    brokers.
    """
    if kind != "broker":
        return [(None, list(names))] if names else []
    wrong = [name for name in names if name and not name.isdigit()]
    if wrong:
        raise CommandError(
            f"{wrong[0]!r} is not a broker's id: `barnabas check` shows the ids; '' means all "
            "brokers"
        )
    return [(int(name) if name else None, [name]) for name in names]


def _check_broker(client: ClusterClient, node_id: int) -> None:
    if node_id not in client.brokers:
        raise CommandError(f"{node_id}: there is no such broker: `barnabas check` shows their ids")
