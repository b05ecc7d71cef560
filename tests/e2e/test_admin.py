"""The admin clients of all three libraries, and kcat, against the real daemon."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from typing import Any

import confluent_kafka
import kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin import RecordsToDelete as AioRecordsToDelete
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from helpers.e2e_clients import (
    PATIENCE_S,
    admin,
    committed_offset,
    consumer,
    create_topic,
    eventually,
    send_all,
    unique,
    values_of,
)
from kafka.admin import ConfigResource as PythonConfigResource
from kafka.admin import ConfigResourceType as PythonConfigResourceType
from kafka.admin import NewPartitions as PythonNewPartitions
from kafka.admin import NewTopic as PythonNewTopic

from barnabas import LocalBroker

pytestmark = pytest.mark.e2e


def result(futures: dict[Any, Any]) -> Any:
    """The result of the only future in the dict."""
    (future,) = futures.values()
    return future.result(PATIENCE_S)


def refused(futures: dict[Any, Any]) -> int:
    """The error code with which the only future in a dict fails."""
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        result(futures)
    return int(caught.value.args[0].code())


def test_confluent_topics_from_cradle_to_grave(servers: str) -> None:
    client, name = admin(servers), unique("cradle")
    result(
        client.create_topics(
            [NewTopic(name, 2, 1, config={"retention.ms": "1000000"})], validate_only=True
        )
    )
    assert name not in client.list_topics(timeout=PATIENCE_S).topics
    result(client.create_topics([NewTopic(name, 2, 1, config={"retention.ms": "1000000"})]))
    assert (
        refused(client.create_topics([NewTopic(name, 2, 1)]))
        == confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS
    )
    assert (
        refused(client.create_topics([NewTopic("no good name!", 1, 1)]))
        == confluent_kafka.KafkaError.TOPIC_EXCEPTION
    )
    assert (
        refused(client.create_topics([NewTopic(unique("x"), 1, 3)]))
        == confluent_kafka.KafkaError.INVALID_REPLICATION_FACTOR
    )
    assert (
        refused(client.create_topics([NewTopic(unique("x"), 1, 1, config={"no.such": "1"})]))
        == confluent_kafka.KafkaError.INVALID_CONFIG
    )
    assert len(client.list_topics(name, PATIENCE_S).topics[name].partitions) == 2
    result(client.create_partitions([NewPartitions(name, 5)]))
    assert len(client.list_topics(name, PATIENCE_S).topics[name].partitions) == 5
    assert (
        refused(client.create_partitions([NewPartitions(name, 3)]))
        == confluent_kafka.KafkaError.INVALID_PARTITIONS
    )
    send_all(servers, name, [b"v"], partition=4)
    described = result(client.describe_topics(confluent_kafka.TopicCollection([name])))
    assert (described.name, len(described.partitions), described.is_internal) == (name, 5, False)
    result(client.delete_topics([name]))
    assert name not in client.list_topics(timeout=PATIENCE_S).topics
    assert refused(client.delete_topics([name])) == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART
    result(client.create_topics([NewTopic(name, 1, 1)]))
    assert values_of(servers, name) == []


def test_confluent_settings_of_a_topic_and_of_the_broker(servers: str) -> None:
    client, name = admin(servers), create_topic(servers, "settings", retention_ms="1000000")
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    found = result(client.describe_configs([resource]))
    assert found["retention.ms"].value == "1000000"
    assert found["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert found["segment.bytes"].value == "1073741824"
    assert found["segment.bytes"].is_default
    changes = [
        ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ConfigEntry("max.message.bytes", "3000", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
    ]
    result(
        client.incremental_alter_configs(
            [ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=changes)]
        )
    )
    found = result(client.describe_configs([resource]))
    assert found["retention.ms"].value == "-1", "the broker's default applies again"
    assert found["max.message.bytes"].value == "3000"
    assert found["cleanup.policy"].value == "delete,compact"
    bad = [ConfigEntry("max.message.bytes", "many", incremental_operation=AlterConfigOpType.SET)]
    assert (
        refused(
            client.incremental_alter_configs(
                [ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=bad)]
            )
        )
        == confluent_kafka.KafkaError.INVALID_CONFIG
    )
    broker_id = str(next(iter(client.list_topics(timeout=PATIENCE_S).brokers)))
    settings = result(
        client.describe_configs([ConfigResource(ConfigResource.Type.BROKER, broker_id)])
    )
    assert settings["log.segment.bytes"].value == "1073741824"
    assert settings["group.min.session.timeout.ms"].value == "500"


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated:DeprecationWarning")
def test_confluent_can_set_broker_settings_that_have_no_effect(servers: str) -> None:
    """The broker accepts settings that have no effect on it, since librdkafka's own test of
    AlterConfigs sets them.
    """
    client, key = admin(servers), "sasl.kerberos.min.time.before.relogin"
    broker_id = str(next(iter(client.list_topics(timeout=PATIENCE_S).brokers)))

    def replace(**settings: str) -> tuple[str, int]:
        dotted = {name.replace("_", "."): value for name, value in settings.items()}
        result(
            client.alter_configs(
                [ConfigResource(ConfigResource.Type.BROKER, broker_id, set_config=dotted)]
            )
        )
        entry = result(
            client.describe_configs([ConfigResource(ConfigResource.Type.BROKER, broker_id)])
        )[key]
        return entry.value, entry.source

    assert replace(sasl_kerberos_min_time_before_relogin="58000") == (
        "58000",
        ConfigSource.DYNAMIC_BROKER_CONFIG.value,
    )
    assert replace() == ("60000", ConfigSource.DEFAULT_CONFIG.value)


def test_confluent_cluster_and_offsets_and_deleted_records(servers: str) -> None:
    client, name = admin(servers), create_topic(servers, "offsets")
    cluster = client.describe_cluster().result(PATIENCE_S)
    assert cluster.cluster_id
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [servers]
    assert cluster.controller.id == cluster.nodes[0].id
    send_all(servers, name, [b"%d" % number for number in range(10)])
    partition = confluent_kafka.TopicPartition(name, 0)
    assert result(client.list_offsets({partition: OffsetSpec.latest()})).offset == 10
    assert result(client.list_offsets({partition: OffsetSpec.earliest()})).offset == 0
    assert result(client.list_offsets({partition: OffsetSpec.max_timestamp()})).offset >= 0
    assert result(client.list_offsets({partition: OffsetSpec.for_timestamp(0)})).offset == 0
    assert (
        result(client.delete_records([confluent_kafka.TopicPartition(name, 0, 7)])).low_watermark
        == 7
    )
    assert result(client.list_offsets({partition: OffsetSpec.earliest()})).offset == 7
    assert values_of(servers, name) == [b"7", b"8", b"9"]
    assert (
        refused(client.delete_records([confluent_kafka.TopicPartition(name, 0, 70)]))
        == confluent_kafka.KafkaError.OFFSET_OUT_OF_RANGE
    )
    assert (
        result(client.delete_records([confluent_kafka.TopicPartition(name, 0, -1)])).low_watermark
        == 10
    )


def test_confluent_groups(servers: str) -> None:
    client, name, group = admin(servers), create_topic(servers, "groups"), unique("group")
    send_all(servers, name, [b"%d" % number for number in range(10)])
    member = consumer(servers, group, client_id="the member")
    member.subscribe([name])
    eventually(lambda: member.poll(0.5), what="the group is joined")
    listed = client.list_consumer_groups().result(PATIENCE_S)
    assert group in {found.group_id for found in listed.valid}
    assert not listed.errors
    described = result(client.describe_consumer_groups([group]))
    assert described.state == confluent_kafka.ConsumerGroupState.STABLE
    assert [found.client_id for found in described.members] == ["the member"]
    assert [
        (found.topic, found.partition) for found in described.members[0].assignment.topic_partitions
    ] == [(name, 0)]
    assert (
        refused(client.delete_consumer_groups([group]))
        == confluent_kafka.KafkaError.NON_EMPTY_GROUP
    )
    member.commit(offsets=[confluent_kafka.TopicPartition(name, 0, 4)], asynchronous=False)
    member.close()
    wanted = confluent_kafka.ConsumerGroupTopicPartitions(
        group, [confluent_kafka.TopicPartition(name, 0)]
    )
    assert result(client.list_consumer_group_offsets([wanted])).topic_partitions[0].offset == 4
    moved = confluent_kafka.ConsumerGroupTopicPartitions(
        group, [confluent_kafka.TopicPartition(name, 0, 8)]
    )
    result(client.alter_consumer_group_offsets([moved]))
    assert committed_offset(servers, group, name) == 8
    empty = confluent_kafka.ConsumerGroupState.EMPTY
    # If the group were deleted before the member has left it, the consumer would never get its
    # response to LeaveGroup, and would hang when it is closed.
    eventually(
        lambda: result(client.describe_consumer_groups([group])).state == empty,
        what="the group is left",
    )
    result(client.delete_consumer_groups([group]))
    assert group not in {
        found.group_id for found in client.list_consumer_groups().result(PATIENCE_S).valid
    }
    assert committed_offset(servers, group, name) == confluent_kafka.OFFSET_INVALID


def test_kafka_python_admin(servers: str) -> None:
    client, name, group = (
        kafka.KafkaAdminClient(bootstrap_servers=servers),
        unique("python"),
        unique("group"),
    )
    try:
        client.create_topics(
            [
                PythonNewTopic(
                    name,
                    num_partitions=2,
                    replication_factor=1,
                    topic_configs={"retention.ms": "1000000"},
                )
            ]
        )
        with pytest.raises(kafka.errors.TopicAlreadyExistsError):
            client.create_topics([PythonNewTopic(name, num_partitions=2, replication_factor=1)])
        assert name in str(client.list_topics())
        client.create_partitions({name: PythonNewPartitions(3)})
        assert str(client.describe_topics([name])).count("partition_index") == 3
        resource = PythonConfigResource(PythonConfigResourceType.TOPIC, name)
        assert "1000000" in str(client.describe_configs([resource]))
        client.alter_configs(
            [
                PythonConfigResource(
                    PythonConfigResourceType.TOPIC, name, {"retention.ms": "2000000"}
                )
            ]
        )
        assert "2000000" in str(client.describe_configs([resource]))
        send_all(servers, name, [b"%d" % number for number in range(10)])
        partition = kafka.TopicPartition(name, 0)
        assert client.delete_records({partition: 6})
        assert values_of(servers, name) == [b"6", b"7", b"8", b"9"]
        assert "10" in str(
            client.list_partition_offsets({partition: kafka.admin.OffsetSpec.LATEST})
        )
        cluster = client.describe_cluster()
        assert str(servers.rpartition(":")[2]) in str(cluster)
        member = consumer(servers, group)
        member.subscribe([name])
        eventually(lambda: member.poll(0.5), what="the group is joined")
        assert group in str(client.list_groups())
        assert "Stable" in str(client.describe_groups([group]))
        member.commit(offsets=[confluent_kafka.TopicPartition(name, 0, 7)], asynchronous=False)
        member.close()
        assert "offset=7" in str(client.list_group_offsets(group)).replace(
            "'offset': 7", "offset=7"
        )
        client.delete_groups([group])
        assert group not in str(client.list_groups())
        assert name in str(client.describe_log_dirs())
        client.delete_topics([name])
        assert name not in str(client.list_topics())
    finally:
        client.close()


def test_kafka_python_loggers_and_client_metrics(servers: str) -> None:
    client, name = kafka.KafkaAdminClient(bootstrap_servers=servers), unique("subscription")

    def reported(kind: PythonConfigResourceType, of: str) -> dict[str, str]:
        ((_, resources),) = client.describe_configs(
            [PythonConfigResource(kind, of)], config_filter="all"
        ).items()
        return {key: row["value"] for key, row in resources[of].items()}

    def change(kind: PythonConfigResourceType, of: str, configs: dict[str, str]) -> None:
        client.alter_configs([PythonConfigResource(kind, of, configs)], raise_on_unknown=False)

    try:
        broker_id = str(client.describe_cluster()["brokers"][0]["broker_id"])
        kinds = PythonConfigResourceType
        assert reported(kinds.BROKER_LOGGER, broker_id)["barnabas.compaction"] == "INFO"
        change(kinds.BROKER_LOGGER, broker_id, {"barnabas.compaction": "WARN"})
        assert reported(kinds.BROKER_LOGGER, broker_id)["barnabas.compaction"] == "WARN"
        change(kinds.BROKER_LOGGER, broker_id, {"barnabas.compaction": "INFO"})
        change(kinds.CLIENT_METRICS, name, {"interval.ms": "500"})
        assert reported(kinds.CLIENT_METRICS, name) == {
            "interval.ms": "500", "match": "", "metrics": "",
        }  # fmt: skip
        change(kinds.BROKER_LOGGER, broker_id, {"kafka.log.LogCleaner": "WARN"})
        assert reported(kinds.BROKER_LOGGER, broker_id)["barnabas.compaction"] == "WARN"
        change(kinds.BROKER_LOGGER, broker_id, {"kafka.log.LogCleaner": "INFO"})
        assert name in str(client.list_config_resources([kinds.CLIENT_METRICS]))
    finally:
        client.close()


def test_aiokafka_admin(servers: str) -> None:
    name, group = unique("aio"), unique("group")

    async def run() -> None:
        client = AIOKafkaAdminClient(bootstrap_servers=servers)
        await client.start()
        try:
            created = await client.create_topics(
                [AioNewTopic(name, 2, 1, topic_configs={"retention.ms": "1000000"})]
            )
            assert created.topic_errors[0][1] == 0
            assert name in await client.list_topics()
            await client.create_partitions({name: AioNewPartitions(3)})
            (described,) = await client.describe_topics([name])
            assert len(described["partitions"]) == 3
            resource = AioConfigResource(AioConfigResourceType.TOPIC, name)
            assert "1000000" in str(await client.describe_configs([resource]))
            await client.alter_configs(
                [
                    AioConfigResource(
                        AioConfigResourceType.TOPIC, name, configs={"retention.ms": "2000000"}
                    )
                ]
            )
            assert "2000000" in str(await client.describe_configs([resource]))
            await asyncio.to_thread(
                send_all, servers, name, [b"%d" % number for number in range(10)]
            )
            import aiokafka

            partition = aiokafka.TopicPartition(name, 0)
            assert (await client.delete_records({partition: AioRecordsToDelete(before_offset=6)}))[
                partition
            ] == 6
            assert str(servers.rpartition(":")[2]) in str(await client.describe_cluster())
            member = aiokafka.AIOKafkaConsumer(
                name, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest"
            )
            await member.start()
            found = await asyncio.wait_for(member.getone(), PATIENCE_S)
            assert found.value == b"6"
            await member.commit({partition: 7})
            assert group in str(await client.list_consumer_groups())
            assert "Stable" in str(await client.describe_consumer_groups([group]))
            await member.stop()
            assert (await client.list_consumer_group_offsets(group))[partition].offset == 7
            await client.delete_topics([name])
            assert name not in await client.list_topics()
        finally:
            await client.close()

    asyncio.run(run())


@pytest.mark.skipif(
    shutil.which("kcat") is None, reason="kcat is not installed (apt-get install kcat)"
)
def test_kcat(broker: LocalBroker) -> None:
    servers, topic = broker.bootstrap_servers, create_topic(broker.bootstrap_servers, "kcat", 2)

    def kcat(*arguments: str, text: str = "") -> str:
        done = subprocess.run(
            ["kcat", "-b", servers, *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    kcat("-P", "-t", topic, "-p", "0", "-K:", "-z", "snappy", text="a:1\nb:2\nc:3\n")
    assert kcat("-C", "-t", topic, "-e", "-q", "-K:") == "a:1\nb:2\nc:3\n"
    assert (
        kcat("-C", "-t", topic, "-e", "-q", "-f", "%p %o %k %s\\n", "-o", "-1", "-p", "0")
        == "0 2 c 3\n"
    )
    listed = kcat("-L")
    assert f'topic "{topic}" with 2 partitions' in listed
    assert f"at {servers}" in listed
    assert kcat("-Q", "-t", f"{topic}:0:-1").strip() == f"{topic} [0] offset 3"
    group = unique("kcat")
    read = kcat("-G", group, "-c", "3", "-q", "-X", "auto.offset.reset=earliest", topic)
    assert sorted(read.split()) == ["1", "2", "3"]
