"""Emulated releases of Apache Kafka. The expected versions and features are those of 3.9.0 and
4.3.2.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from helpers.core_host import CoreHost

from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.coordinator_settings import (
    consumer_group_settings,
    share_group_settings,
    streams_group_settings,
)
from barnabas.broker.settings.features import EMULATED, release_of
from barnabas.broker.settings.releases import advertised_versions
from barnabas.broker.settings.setting import ConfigError
from barnabas.protocol.api_table import BY_KEY
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
FROM_DEFAULT = 5
SHARE_AND_STREAMS_GROUPS = {76, 77, 78, 79, *range(83, 93)}


def reported(host: CoreHost) -> Any:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    return host.call(host.connect(1), request, 4)


@pytest.mark.parametrize(
    ("name", "some", "finalized"),
    [
        (
            "3.9",
            {0: (0, 11), 1: (0, 17), 3: (0, 12), 26: (0, 4), 41: (0, 3), 68: (0, 0)},
            {"metadata.version": 21},
        ),
        (
            "4.3",
            {0: (0, 13), 1: (4, 18), 3: (0, 13), 26: (0, 5), 41: (1, 3), 68: (0, 1)},
            {"eligible.leader.replicas.version": 1, "group.version": 1, "metadata.version": 30,
             "share.version": 1, "streams.version": 1, "transaction.version": 2},
        ),
        (
            "",
            {0: (0, 13), 1: (0, 18), 3: (0, 13), 26: (0, 5), 41: (0, 3), 68: (0, 1)},
            {"transaction.version": 2, "group.version": 1, "share.version": 1,
             "streams.version": 1, "metadata.version": 30},
        ),
    ],
)  # fmt: skip
def test_an_emulated_release_reports_its_versions_and_features(
    name: str, some: dict[int, tuple[int, int]], finalized: dict[str, int], tmp_path: Path
) -> None:
    answer = reported(CoreHost(tmp_path, barnabas_emulate=name))
    versions = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert {key: versions[key] for key in some} == some
    assert {row.name: row.max_version_level for row in answer.finalized_features} == finalized


@pytest.mark.parametrize("name", EMULATED)
def test_an_emulated_release_has_all_apis_except_share_and_streams_groups(name: str) -> None:
    spoken = {api.key: (api.min_version, api.max_version) for api in release_of(name).apis.values()}
    kafka = advertised_versions(name)
    assert spoken == {key: versions for key, versions in kafka.items() if key in spoken}
    assert kafka.keys() - spoken.keys() <= SHARE_AND_STREAMS_GROUPS


def test_a_request_version_that_the_release_lacks_closes_the_connection(tmp_path: Path) -> None:
    host = CoreHost(tmp_path, barnabas_emulate="3.9")
    host.ask(host.connect(1), EndTxnRequest(transactional_id="t"), 5)
    assert "versions 0 to 4 are" in host.closed[1]


def test_an_emulated_release_has_only_versions_that_this_broker_implements() -> None:
    for name in EMULATED:
        apis = release_of(name).apis
        assert apis.keys() <= BY_KEY.keys()
        for key, api in apis.items():
            assert BY_KEY[key].min_version <= api.min_version <= api.max_version
            assert api.max_version <= BY_KEY[key].max_version


def test_other_releases_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"3\.9, 4\.3"):
        BrokerConfig.from_properties({"barnabas.emulate": "2.0"})


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"barnabas_emulate": "3.9"}, Code.UNSUPPORTED_VERSION),
        (
            {
                "barnabas_emulate": "3.9",
                "group_coordinator_rebalance_protocols": "classic,consumer",
            },
            Code.GROUP_ID_NOT_FOUND,
        ),
        ({"barnabas_emulate": "4.3"}, Code.GROUP_ID_NOT_FOUND),
        ({"barnabas_features": "group.version=0"}, Code.UNSUPPORTED_VERSION),
        ({}, Code.GROUP_ID_NOT_FOUND),
    ],
)
def test_consumer_protocol_groups_are_enabled_as_in_the_release(
    settings: dict[str, str], code: Code, tmp_path: Path
) -> None:
    """GROUP_ID_NOT_FOUND shows that the protocol is enabled, since the broker has looked for the
    group.
    """
    host = CoreHost(tmp_path, **settings)
    connection = host.connect(1)
    described = host.call(connection, ConsumerGroupDescribeRequest(group_ids=["g"]), 0)
    assert [row.error_code for row in described.groups] == [code]
    beat = ConsumerGroupHeartbeatRequest("g", str(uuid.UUID(int=1)), member_epoch=1)
    assert host.call(connection, beat, 0).error_code == code


@pytest.mark.parametrize(("name", "count"), [("3.9", 2), ("4.3", 1)])
def test_a_partition_named_twice_in_list_offsets_is_refused(
    name: str, count: int, tmp_path: Path
) -> None:
    """Apache Kafka 3.9 returns one row for each requested row, and 4.3 returns one for each
    partition.
    """
    host = CoreHost(tmp_path, barnabas_emulate=name)
    host.create("t")
    rows = [ListOffsetsPartition(0, -1, -1), ListOffsetsPartition(0, -1, -2)]
    answer = host.call(host.connect(1), ListOffsetsRequest(topics=[ListOffsetsTopic("t", rows)]), 7)
    (topic,) = answer.topics
    assert [row.error_code for row in topic.partitions] == [Code.INVALID_REQUEST] * count


@pytest.mark.parametrize(("name", "source"), [("3.9", 5), ("4.3", 3)])
def test_where_min_insync_replicas_comes_from(name: str, source: int, tmp_path: Path) -> None:
    """KIP-966: since Kafka 4.1, the cluster stores min.insync.replicas as a dynamic default."""
    host = CoreHost(tmp_path, barnabas_emulate=name)
    host.create("t")
    resource = DescribeConfigsResource(TOPIC_RESOURCE, "t", ["min.insync.replicas"])
    answer = host.call(host.connect(1), DescribeConfigsRequest(resources=[resource]), 4)
    assert answer.results[0].configs[0].config_source == source


@pytest.mark.parametrize(
    ("name", "after_max_ms", "code"), [("3.9", 2**63 - 1, 0), ("4.3", 3600000, 40)]
)
def test_settings_and_defaults_are_those_of_the_release(
    name: str, after_max_ms: int, code: int, tmp_path: Path
) -> None:
    """KIP-1030 changed defaults with 4.0, and KIP-724 removed the settings of message formats."""
    host = CoreHost(tmp_path, barnabas_emulate=name)
    host.create("t")
    connection = host.connect(1)
    log = host.broker.topics.partition("t", 0)
    assert log is not None
    assert log.config.timestamp_after_max_ms == after_max_ms
    removed = ("message.format.version", "message.downconversion.enable",
               "message.timestamp.difference.max.ms")  # fmt: skip
    bound = "message.timestamp.after.max.ms"
    for kind, resource, prefix in ((TOPIC_RESOURCE, "t", ""), (BROKER_RESOURCE, "1", "log.")):
        request = DescribeConfigsRequest(
            resources=[DescribeConfigsResource(kind, resource, None)], include_synonyms=True
        )
        rows = {row.name: row for row in host.call(connection, request, 4).results[0].configs}
        assert (rows[prefix + bound].value, rows[prefix + bound].config_source) == (
            str(after_max_ms), FROM_DEFAULT,
        )  # fmt: skip
        assert {one.value for one in rows[prefix + bound].synonyms} == {str(after_max_ms)}
        assert [prefix + one in rows for one in removed] == [code == 0] * 3
    for one, value in zip(removed, ("3.0-IV1", "true", "5"), strict=True):
        assert altered(host, TOPIC_RESOURCE, "t", one, value) == code
    of_broker = Code.INVALID_REQUEST if code else Code.NONE
    assert altered(host, BROKER_RESOURCE, "1", "log.segment.bytes", "100") == of_broker
    assert altered(host, BROKER_RESOURCE, "", f"log.{removed[1]}", "true") == of_broker


def altered(host: CoreHost, kind: int, resource: str, name: str, value: str) -> int:
    """Set a setting. Gives: the error code."""
    change = AlterConfigsResource(kind, resource, [AlterableConfig(name, 0, value)])
    request = IncrementalAlterConfigsRequest([change])
    code: int = host.call(1, request, 1).responses[0].error_code
    return code


@pytest.mark.parametrize(("name", "is_assigned"), [("", True), ("3.9", False), ("4.3", False)])
def test_the_assignment_epoch_of_an_emptied_group(name: str, is_assigned: bool) -> None:
    """Apache Kafka raises it with the group's epoch since April 2026 (KAFKA-20442)."""
    config = BrokerConfig.from_properties({"barnabas.emulate": name} if name else {})
    for settings in (consumer_group_settings, share_group_settings, streams_group_settings):
        assert settings(config).assigns_emptied is is_assigned
