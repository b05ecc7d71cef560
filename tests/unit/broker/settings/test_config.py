"""Settings with Apache Kafka's names. Their defaults and bounds are those in the configuration
reference of Apache Kafka 3.9.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import permutations, product
from typing import Any

import pytest
from helpers.places import ROOT

from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.coordinator_settings import (
    consumer_group_settings,
    group_settings,
    share_group_settings,
    streams_group_settings,
    transaction_settings,
)
from barnabas.broker.settings.features import TRANSACTION_VERSION, FinalizedFeatures
from barnabas.broker.settings.properties import read_properties
from barnabas.broker.settings.rows_broker import BROKER_SETTINGS, BrokerRows
from barnabas.broker.settings.rows_topic import TOPIC_SETTINGS, TopicRows
from barnabas.broker.settings.setting import ConfigError, Kind, Row, Setting
from barnabas.broker.settings.topic_config import (
    TopicConfig,
    topic_log_config,
    validate_topic_configs,
)
from barnabas.protocol.compression import Levels
from barnabas.storage.log_config import LogConfig

LONG_MAX = 9223372036854775807

# The topic settings of Apache Kafka 3.9 as documented, each with its type (as DescribeConfigs
# encodes it) and its default.
KAFKA_TOPIC_SETTINGS = {
    "cleanup.policy": (7, "delete"),
    "compression.gzip.level": (3, "-1"),
    "compression.lz4.level": (3, "9"),
    "compression.type": (2, "producer"),
    "compression.zstd.level": (3, "3"),
    "delete.retention.ms": (5, "86400000"),
    "file.delete.delay.ms": (5, "60000"),
    "flush.messages": (5, str(LONG_MAX)),
    "flush.ms": (5, str(LONG_MAX)),
    "follower.replication.throttled.replicas": (7, ""),
    "index.interval.bytes": (3, "4096"),
    "leader.replication.throttled.replicas": (7, ""),
    "local.retention.bytes": (5, "-2"),
    "local.retention.ms": (5, "-2"),
    "max.compaction.lag.ms": (5, str(LONG_MAX)),
    "max.message.bytes": (3, "1048588"),
    "message.downconversion.enable": (1, "true"),
    "message.format.version": (2, "3.0-IV1"),
    "message.timestamp.after.max.ms": (5, str(LONG_MAX)),
    "message.timestamp.before.max.ms": (5, str(LONG_MAX)),
    "message.timestamp.difference.max.ms": (5, str(LONG_MAX)),
    "message.timestamp.type": (2, "CreateTime"),
    "min.cleanable.dirty.ratio": (6, "0.5"),
    "min.compaction.lag.ms": (5, "0"),
    "min.insync.replicas": (3, "1"),
    "preallocate": (1, "false"),
    "remote.log.copy.disable": (1, "false"),
    "remote.log.delete.on.disable": (1, "false"),
    "remote.storage.enable": (1, "false"),
    "retention.bytes": (5, "-1"),
    "retention.ms": (5, "604800000"),
    "segment.bytes": (3, "1073741824"),
    "segment.index.bytes": (3, "10485760"),
    "segment.jitter.ms": (5, "0"),
    "segment.ms": (5, "604800000"),
    "unclean.leader.election.enable": (1, "false"),
}

KAFKA_BROKER_DEFAULTS = {
    "num.partitions": 1,
    "default.replication.factor": 1,
    "auto.create.topics.enable": True,
    "delete.topic.enable": True,
    "message.max.bytes": 1048588,
    "fetch.max.bytes": 57671680,
    "socket.request.max.bytes": 104857600,
    "max.incremental.fetch.session.cache.slots": 1000,
    "log.retention.hours": 168,
    "log.retention.check.interval.ms": 300000,
    "log.segment.bytes": 1073741824,
    "log.roll.hours": 168,
    "log.cleaner.backoff.ms": 15000,
    "log.segment.delete.delay.ms": 60000,
    "log.initial.task.delay.ms": 30000,
    "log.flush.offset.checkpoint.interval.ms": 60000,
    "offset.metadata.max.bytes": 4096,
    "offsets.retention.minutes": 10080,
    "offsets.retention.check.interval.ms": 600000,
    "offsets.topic.num.partitions": 50,
    "offsets.topic.segment.bytes": 104857600,
    "transaction.state.log.num.partitions": 50,
    "transaction.state.log.segment.bytes": 104857600,
    "transaction.max.timeout.ms": 900000,
    "transactional.id.expiration.ms": 604800000,
    "producer.id.expiration.ms": 86400000,
    "producer.id.expiration.check.interval.ms": 600000,
    "group.min.session.timeout.ms": 6000,
    "group.max.session.timeout.ms": 1800000,
    "connections.max.idle.ms": 600000,
}

# config/kraft/server.properties of Apache Kafka 3.9, without comments
KRAFT_FILE = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""

ZOOKEEPER_FILE = """
broker.id=0
num.network.threads=3
log.dirs=/tmp/kafka-logs
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""

# further settings of Apache Kafka 3.9 that are common in configuration files
OTHER_KAFKA_SETTINGS = """
alter.config.policy.class.name alter.log.dirs.replication.quota.window.num auto.include.jmx.reporter
auto.leader.rebalance.enable background.threads broker.heartbeat.interval.ms
broker.id.generation.enable broker.rack broker.session.timeout.ms client.quota.callback.class
compression.gzip.level connection.failed.authentication.delay.ms connections.max.reauth.ms
controlled.shutdown.enable controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms
controller.quorum.election.timeout.ms controller.quorum.fetch.timeout.ms controller.quorum.voters
controller.quota.window.num controller.socket.timeout.ms create.topic.policy.class.name
delegation.token.max.lifetime.ms delete.records.purgatory.purge.interval.requests
early.start.listeners eligible.leader.replicas.enable fetch.purgatory.purge.interval.requests
group.consumer.assignors group.consumer.heartbeat.interval.ms group.consumer.max.size
group.consumer.migration.policy group.consumer.session.timeout.ms group.coordinator.append.linger.ms
group.coordinator.new.enable group.coordinator.rebalance.protocols group.coordinator.threads
group.share.enable initial.broker.registration.timeout.ms inter.broker.protocol.version
kafka.metrics.reporters leader.imbalance.check.interval.seconds
leader.imbalance.per.broker.percentage log.cleaner.dedupe.buffer.size log.cleaner.enable
log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second
log.cleaner.threads log.dir.failure.timeout.ms log.flush.interval.messages
log.message.downconversion.enable log.message.format.version log.message.timestamp.after.max.ms
max.connection.creation.rate max.connections max.connections.per.ip max.connections.per.ip.overrides
metadata.log.dir metadata.log.max.record.bytes.between.snapshots metadata.log.segment.bytes
metadata.max.idle.interval.ms metadata.max.retention.bytes metric.reporters metrics.num.samples
metrics.recording.level metrics.sample.window.ms num.replica.alter.log.dirs.threads
num.replica.fetchers offsets.commit.required.acks offsets.commit.timeout.ms offsets.load.buffer.size
offsets.topic.compression.codec password.encoder.iterations principal.builder.class
producer.purgatory.purge.interval.requests queued.max.request.bytes queued.max.requests
quota.window.num quota.window.size.seconds remote.log.manager.thread.pool.size
remote.log.storage.system.enable replica.fetch.backoff.ms replica.fetch.max.bytes
replica.fetch.min.bytes replica.fetch.response.max.bytes replica.fetch.wait.max.ms
replica.high.watermark.checkpoint.interval.ms replica.lag.time.max.ms replica.selector.class
replica.socket.receive.buffer.bytes replica.socket.timeout.ms replication.quota.window.num
request.timeout.ms reserved.broker.max.id security.inter.broker.protocol security.providers
server.max.startup.time.ms share.coordinator.state.topic.replication.factor
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms socket.listen.backlog.size
super.users allow.everyone.if.no.acl.found telemetry.max.bytes
transaction.partition.verification.enable transaction.remove.expired.transaction.cleanup.interval.ms
transaction.state.log.load.buffer.size unclean.leader.election.enable
unclean.leader.election.interval.ms unstable.api.versions.enable unstable.feature.versions.enable
zookeeper.max.in.flight.requests zookeeper.metadata.migration.enable zookeeper.session.timeout.ms
zookeeper.set.acl
""".split()  # noqa: SIM905


def config(**properties: str) -> BrokerConfig:
    """A broker configuration from keyword arguments: `log_dirs="/a"` sets log.dirs."""
    return BrokerConfig.from_properties(
        {name.replace("_", "."): value for name, value in properties.items()}
    )


def test_topic_settings_and_their_defaults_are_those_of_kafka() -> None:
    found = {
        name: (row.kind.number, row.render(row.default))
        for name, row in TOPIC_SETTINGS.items()
        if not name.startswith("barnabas.")
    }
    assert found == KAFKA_TOPIC_SETTINGS


def test_each_setting_of_our_own_is_read_by_the_product() -> None:
    """mypy notices a setting that has no row, and nothing else one that is never read."""
    texts = "".join(
        path.read_text("utf-8")
        for folder in ("barnabas", "broker", "coordinator", "storage")
        for path in (ROOT / folder).rglob("*.py")
    )
    read = {name.replace("_", ".") for name in re.findall(r"\.(barnabas_\w+)", texts)}
    read |= set(re.findall(r'"(barnabas\.[\w.]+)"', texts))
    own = {name for name in (*BROKER_SETTINGS, *TOPIC_SETTINGS) if name.startswith("barnabas.")}
    assert own - read == set()


def test_broker_defaults_are_those_of_kafka() -> None:
    defaults = config()
    assert {name: defaults[name] for name in KAFKA_BROKER_DEFAULTS} == KAFKA_BROKER_DEFAULTS


# Settings of share groups with (default, lower bound, upper bound) of Apache Kafka 4.3; None means
# no bound. Unlike in Apache Kafka, __share_group_state has one replica by default, as other topics
# have.
KAFKA_SHARE_SETTINGS = {
    "group.share.assignment.interval.ms": (1000, 0, None),
    "group.share.assignors": (("simple",), None, None),
    "group.share.delivery.count.limit": (5, 2, 10),
    "group.share.heartbeat.interval.ms": (5000, 1, None),
    "group.share.initialize.retry.interval.ms": (30_000, 1, None),
    "group.share.max.assignment.interval.ms": (15_000, 0, None),
    "group.share.max.delivery.count.limit": (10, 5, 25),
    "group.share.max.heartbeat.interval.ms": (15_000, 1, None),
    "group.share.max.partition.max.record.locks": (4000, 2000, 10_000),
    "group.share.max.record.lock.duration.ms": (60_000, 30_000, 3_600_000),
    "group.share.max.session.timeout.ms": (60_000, 1, None),
    "group.share.max.share.sessions": (2000, 1, None),
    "group.share.max.size": (200, 1, 1000),
    "group.share.min.assignment.interval.ms": (0, 0, None),
    "group.share.min.delivery.count.limit": (2, 2, 5),
    "group.share.min.heartbeat.interval.ms": (5000, 1, None),
    "group.share.min.partition.max.record.locks": (100, 100, 2000),
    "group.share.min.record.lock.duration.ms": (15_000, 1000, 30_000),
    "group.share.min.session.timeout.ms": (45_000, 1, None),
    "group.share.partition.max.record.locks": (2000, 100, 10_000),
    "group.share.record.lock.duration.ms": (30_000, 1000, 3_600_000),
    "group.share.session.timeout.ms": (45_000, 1, None),
    "share.coordinator.cold.partition.snapshot.interval.ms": (300_000, 1, None),
    "share.coordinator.load.buffer.size": (5 << 20, 1, None),
    "share.coordinator.snapshot.update.records.per.snapshot": (500, 0, 500),
    "share.coordinator.state.topic.compression.codec": (0, None, None),
    "share.coordinator.state.topic.min.isr": (1, 1, None),
    "share.coordinator.state.topic.num.partitions": (50, 1, None),
    "share.coordinator.state.topic.prune.interval.ms": (300_000, 1, None),
    "share.coordinator.state.topic.replication.factor": (1, 1, None),
    "share.coordinator.state.topic.segment.bytes": (100 << 20, 14, None),
    "share.coordinator.threads": (1, 1, None),
    "share.coordinator.write.timeout.ms": (5000, 1, None),
}


def test_settings_of_share_groups_are_those_of_kafka() -> None:
    found = {
        name: (row.default, row.lowest, row.highest)
        for name, row in BROKER_SETTINGS.items()
        if name.startswith(("group.share.", "share."))
    }
    assert found == KAFKA_SHARE_SETTINGS


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("group.share.delivery.count.limit", "10"),
        ("group.share.record.lock.duration.ms", "3600000"),
        ("group.share.record.lock.duration.ms", "14999"),
        ("group.share.session.timeout.ms", "44999"),
        ("group.share.session.timeout.ms", "60001"),
        ("group.share.heartbeat.interval.ms", "4999"),
        ("group.share.assignment.interval.ms", "15001"),
        ("group.share.partition.max.record.locks", "4001"),
        ("group.share.max.share.sessions", "199"),
    ],
)
def test_settings_of_share_groups_may_not_contradict_each_other(name: str, text: str) -> None:
    """Each of the values is outside the bounds that another setting defines, for example a delivery
    count limit above its maximum (9 here), or a session timeout below its minimum.
    """
    properties = {name: text, "group.share.max.delivery.count.limit": "9"}
    with pytest.raises(ConfigError, match="it must be b"):
        BrokerConfig.from_properties(properties)


def test_a_heartbeat_of_share_groups_is_shorter_than_a_session() -> None:
    properties = {
        "group.share.min.session.timeout.ms": "1",
        "group.share.session.timeout.ms": "5000",
    }
    with pytest.raises(ConfigError, match="it must be below"):
        BrokerConfig.from_properties(properties)
    BrokerConfig.from_properties({**properties, "group.share.session.timeout.ms": "5001"})


def test_defaults_that_differ_from_kafkas_or_are_barnabas_own() -> None:
    defaults = config()
    assert defaults["group.initial.rebalance.delay.ms"] == 0
    assert defaults.data_dir == "./data"
    assert defaults["barnabas.transaction.durability"] == "flush"
    (listener,) = defaults.listeners
    assert str(listener.endpoint) == "PLAINTEXT://127.0.0.1:9092"
    assert listener.advertised is None


def test_each_default_rendered_as_text_parses_to_the_same_value() -> None:
    for row in (*TOPIC_SETTINGS.values(), *BROKER_SETTINGS.values()):
        if row.default is not None:
            text = row.render(row.default)
            assert text is not None
            assert row.parse(text) == row.default, row.name


def test_broker_level_names_of_topic_settings_exist() -> None:
    """The synonym of a topic setting is the broker setting that provides its default. Both have the
    same kind, or the synonym is an INT (log.retention.hours).
    """
    for row in TOPIC_SETTINGS.values():
        for synonym in row.synonyms:
            assert BROKER_SETTINGS[synonym].kind in (row.kind, Kind.INT), f"{row.name}: {synonym}"


def test_a_topic_without_settings_has_kafkas_defaults_in_its_logs() -> None:
    assert topic_log_config(config(), {}) == LogConfig()


@pytest.mark.parametrize("text", [KRAFT_FILE, ZOOKEEPER_FILE])
def test_kafkas_server_properties_files_are_accepted(text: str) -> None:
    """A server.properties file of Apache Kafka is accepted. Settings that have no effect in this
    broker cause warnings.
    """
    taken = BrokerConfig.from_properties(read_properties(text))
    assert taken.data_dir.startswith("/tmp/k")
    assert taken.warnings


def test_kafkas_kraft_file_sets_the_listener_and_warns_of_settings_without_effect() -> None:
    taken = BrokerConfig.from_properties(read_properties(KRAFT_FILE))
    (listener,) = taken.listeners
    assert str(listener.endpoint) == "PLAINTEXT://0.0.0.0:9092"
    assert listener.advertised == ("localhost", 9092)
    assert taken.warnings == [
        "process.roles has no effect: one process is broker and controller",
        "controller.quorum.bootstrap.servers has no effect: there is no quorum",
    ]


def test_kafkas_zookeeper_file_gives_the_node_its_id() -> None:
    assert BrokerConfig.from_properties(read_properties(ZOOKEEPER_FILE))["node.id"] == 0
    assert config(broker_id="5", node_id="6")["node.id"] == 6


def test_every_other_kafka_setting_is_implemented_or_gives_a_warning() -> None:
    for name in OTHER_KAFKA_SETTINGS:
        if name in BROKER_SETTINGS:
            continue
        assert BrokerConfig.from_properties({name: "1"}).warnings, name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.enabled.mechanisms", "GSSAPI"),
        ("sasl.jaas.config", "x"),
        ("authorizer.class.name", "kafka.security.authorizer.AclAuthorizer"),
        ("super.users", "admin"),
        ("listener.name.external.ssl.engine.factory.class", "x"),
        ("listeners", "KERBEROS://:9092"),
    ],
)
def test_security_that_is_not_there_is_refused_instead_of_ignored(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name.split(".", maxsplit=1)[0]):
        BrokerConfig.from_properties({name: value})


OF_A_KAFKA = """
listeners=SASL_SSL://0.0.0.0:9093,PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9094
sasl.enabled.mechanisms=GSSAPI, SCRAM-SHA-512
sasl.kerberos.service.name=kafka
sasl.mechanism.controller.protocol=PLAIN
sasl.login.callback.handler.class=org.example.Login
listener.name.sasl_ssl.gssapi.sasl.jaas.config=org.example.Krb5LoginModule required;
listener.name.sasl_ssl.sasl.enabled.mechanisms=GSSAPI,PLAIN
listener.name.plaintext.num.network.threads=4
listener.name.controller.ssl.engine.factory.class=org.example.Engine
ssl.enabled.protocols=TLSv1.2,TLSv1.1,TLSv1
ssl.allow.dn.changes=true
group.consumer.assignors=org.apache.kafka.coordinator.group.assignor.RangeAssignor
org.example.plugin=on
a.setting.of.a.later.release=1
num.partitons=7
"""


def test_a_file_made_for_kafka_starts_with_one_line_about_what_is_not_known() -> None:
    properties = read_properties(OF_A_KAFKA)
    taken = BrokerConfig.from_properties(properties, of_file=properties.keys())
    sasl_ssl, plaintext = taken.listeners
    assert sasl_ssl.sasl_mechanisms == ("PLAIN",)
    assert plaintext.sasl_mechanisms == ("SCRAM-SHA-512",)
    assert taken.ssl_enabled_protocols == ("TLSv1.2",)
    assert taken.group_consumer_assignors == ("range",)
    (unknown,) = [text for text in taken.warnings if text.startswith("unknown settings")]
    assert unknown == (
        "unknown settings, which have no effect: "
        "listener.name.sasl_ssl.gssapi.sasl.jaas.config, "
        "listener.name.plaintext.num.network.threads, org.example.plugin, "
        "a.setting.of.a.later.release, num.partitons (did you mean num.partitions?)"
    )
    assert "GSSAPI of sasl.enabled.mechanisms is not supported: there is no Kerberos" in (
        taken.warnings
    )
    assert any(
        text.startswith("TLSv1.1, TLSv1 of ssl.enabled.protocols") for text in taken.warnings
    )
    assert (taken.num_partitions, "num.partitons" in taken.explicit) == (1, False)


@pytest.mark.parametrize(
    "text",
    [
        "barnabas.topics.maximum=1",
        "sasl.server.callback.handler.class=org.example.Handler",
        "sasl.enabled.mechanisms=PLANE",
        "sasl.enabled.mechanisms=GSSAPI",
        "ssl.enabled.protocols=TLSv1",
        "ssl.engine.factory.class=org.example.Engine",
        "listener.name.plaintext.ssl.engine.factory.class=org.example.Engine",
        "num.partitions=many",
    ],
)
def test_a_file_is_refused_for_our_own_names_wrong_values_and_missing_security(text: str) -> None:
    properties = read_properties(text)
    with pytest.raises(ConfigError):
        BrokerConfig.from_properties(properties, of_file=properties.keys())


def test_an_unknown_setting_of_the_command_line_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting num\.partitons; did you mean"):
        BrokerConfig.from_properties({"num.partitons": "1"}, of_file=("num.partitions",))


def test_super_users_are_principals() -> None:
    users = config(super_users="User:admin; User:CN=a,O=b;").super_users
    assert users == ("User:admin", "User:CN=a,O=b")


def test_security_settings_that_ask_for_nothing_are_taken() -> None:
    config(sasl_enabled_mechanisms="", authorizer_class_name="")


def test_exactly_one_data_directory_may_be_configured() -> None:
    assert config(log_dir="/a").data_dir == "/a"
    assert config(log_dir="/a", log_dirs=" /b ").data_dir == "/b"
    with pytest.raises(ConfigError, match="name one data directory"):
        config(log_dirs="/a,/b")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("num.partition", "num.partitions"),
        ("log.segments.bytes", "log.segment.bytes"),
        ("retention.ms", "log.retention.ms"),
        ("barnabas.transactions.durability", "barnabas.transaction.durability"),
    ],
)
def test_an_unknown_setting_is_told_with_what_it_may_have_meant(name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown setting {name}; did you mean {meant}\\?"):
        BrokerConfig.from_properties({name: "1"})


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("num.partitions", "0", "between 1 and 2147483647"),
        ("num.partitions", "2147483648", "between 1 and 2147483647"),
        ("num.partitions", "1_000", "a whole number"),
        ("num.partitions", "１", "a whole number"),
        ("num.partitions", "1.5", "a whole number"),
        ("num.partitions", "", "a whole number"),
        ("num.partitions", "9" * 5000, "a whole number"),
        ("auto.create.topics.enable", "yes", "true or false"),
        ("log.cleanup.policy", "compact,burn", "compact and delete"),
        ("log.cleaner.min.cleanable.ratio", "1.1", "between 0 and 1"),
        ("log.cleaner.min.cleanable.ratio", "nan", "a number"),
        ("compression.type", "GZIP", "one of uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("barnabas.transaction.durability", "maybe", "one of flush, os"),
        ("log.retention.hours", "0", "1 or more, or -1"),
        ("offsets.topic.replication.factor", "32768", "between 1 and 32767"),
    ],
)
def test_the_error_for_a_bad_value_names_the_setting_and_the_allowed_values(
    name: str, value: str, allowed: str
) -> None:
    with pytest.raises(ConfigError, match=f"{name}=.*{allowed}"):
        BrokerConfig.from_properties({name: value})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("num.partitions", " 7 ", 7),
        ("num.partitions", "+7", 7),
        ("auto.create.topics.enable", "FALSE", False),
        ("log.cleanup.policy", " compact , delete ", ("compact", "delete")),
        ("log.cleanup.policy", "", ()),
        ("log.cleaner.min.cleanable.ratio", ".25", 0.25),
        ("log.cleaner.min.cleanable.ratio", "5e-1", 0.5),
    ],
)
def test_values_are_typed(name: str, value: str, expected: Any) -> None:
    assert BrokerConfig.from_properties({name: value})[name] == expected


# --- topics -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ({"no.such.key": "1"}, "unknown topic setting no.such.key"),
        ({"retention.mss": "1"}, r"did you mean retention.ms\?"),
        ({"retention.ms": "abc"}, "whole number"),
        ({"retention.ms": ""}, "whole number"),
        ({"retention.ms": None}, "has no value"),
        ({"retention.ms": "-2"}, "between -1 and"),
        ({"segment.bytes": "1"}, "between 14 and"),
        ({"segment.index.bytes": "3"}, "between 4 and"),
        ({"cleanup.policy": "burn"}, "compact and delete"),
        ({"cleanup.policy": "delete,"}, "compact and delete"),
        ({"compression.type": "GZIP"}, "must be one of"),
        ({"compression.gzip.level": "0"}, "1 to 9, or -1"),
        ({"compression.gzip.level": "10"}, "between -1 and 9"),
        ({"compression.lz4.level": "18"}, "between 1 and 17"),
        ({"compression.zstd.level": "23"}, "between -131072 and 22"),
        ({"message.timestamp.type": "createtime"}, "must be one of"),
        ({"min.cleanable.dirty.ratio": "2"}, "between 0 and 1"),
        ({"min.insync.replicas": "0"}, "between 1 and"),
        ({"remote.storage.enable": "true"}, "no tiered storage"),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "not be more than max.compaction.lag.ms",
        ),
        ({"retention.ms": str(2**63)}, "between -1 and 9223372036854775807"),
    ],
)
def test_topic_settings_that_are_refused(configs: dict[str, str | None], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        validate_topic_configs(configs)


def test_valid_topic_settings_are_accepted() -> None:
    for configs in (
        {"cleanup.policy": "compact,delete", "retention.ms": " 1000 "},
        {"cleanup.policy": ""},
        {"min.insync.replicas": "2"},
        {"retention.ms": "0"},
        {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"},
        {},
    ):
        validate_topic_configs(configs)


def test_a_topics_own_value_overrides_the_brokers_which_overrides_the_default() -> None:
    broker = config(
        log_segment_bytes="1000",
        log_cleanup_policy="compact",
        message_max_bytes="77",
        producer_id_expiration_ms="5",
    )
    own = topic_log_config(broker, {"segment.bytes": "2000", "retention.ms": " 9 "})
    assert (own.segment_bytes, own.cleanup_policy, own.max_message_bytes, own.retention_ms) == (
        2000,
        frozenset({"compact"}),
        77,
        9,
    )
    assert own.producer_id_expiration_ms == 5
    assert own.segment_ms == LogConfig().segment_ms


def test_compression_levels_come_from_the_topic_then_the_broker() -> None:
    broker = config(compression_gzip_level="9", compression_zstd_level="-7")
    assert topic_log_config(broker, {}).compression_levels == Levels(gzip=9, lz4=9, zstd=-7)
    own = {"compression.gzip.level": "1", "compression.lz4.level": "17"}
    assert topic_log_config(broker, own).compression_levels == Levels(gzip=1, lz4=17, zstd=-7)


@pytest.mark.parametrize(
    ("properties", "expected_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-1", "log.retention.hours": "5"}, -1),
        ({}, 604_800_000),
    ],
)
def test_retention_is_taken_in_the_finest_unit_that_is_given(
    properties: dict[str, str], expected_ms: int
) -> None:
    assert (
        topic_log_config(BrokerConfig.from_properties(properties), {}).retention_ms == expected_ms
    )


def test_segment_times_are_taken_in_the_finest_unit_too() -> None:
    assert topic_log_config(config(log_roll_hours="1"), {}).segment_ms == 3_600_000
    assert topic_log_config(config(log_roll_hours="1", log_roll_ms="5"), {}).segment_ms == 5
    assert topic_log_config(config(log_roll_jitter_hours="1"), {}).segment_jitter_ms == 3_600_000
    assert topic_log_config(config(log_flush_scheduler_interval_ms="8"), {}).flush_ms == 8


def test_the_deprecated_timestamp_bound_holds_where_no_newer_bound_is_set() -> None:
    """message.timestamp.difference.max.ms is the deprecated setting for both directions. The newer
    setting for one direction has precedence.
    """
    bounded = topic_log_config(
        config(),
        {"message.timestamp.difference.max.ms": "10", "message.timestamp.after.max.ms": "5"},
    )
    assert (bounded.timestamp_before_max_ms, bounded.timestamp_after_max_ms) == (10, 5)


def test_dynamic_settings_override_the_file_until_they_are_removed() -> None:
    broker = config(message_max_bytes="100")
    assert broker.source_of("message.max.bytes") == "explicit"
    broker.set_dynamic({"message.max.bytes": "200", "log.retention.ms": "5"})
    assert broker["message.max.bytes"] == 200
    assert broker.source_of("message.max.bytes") == "dynamic"
    assert topic_log_config(broker, {}).retention_ms == 5
    broker.set_dynamic({})
    assert broker["message.max.bytes"] == 100
    assert broker.source_of("log.retention.ms") == "default"


def test_a_cluster_wide_dynamic_value_ranks_below_the_brokers_own_and_above_the_file() -> None:
    broker = config(message_max_bytes="100")
    broker.set_dynamic_defaults({"message.max.bytes": "200", "setting.of.a.later.version": "x"})
    assert (broker["message.max.bytes"], broker.source_of("message.max.bytes")) == (
        200,
        "dynamic default",
    )
    broker.set_dynamic({"message.max.bytes": "300"})
    assert (broker["message.max.bytes"], broker.source_of("message.max.bytes")) == (300, "dynamic")
    assert broker.default_value("message.max.bytes") == 200
    broker.set_dynamic_defaults({})
    assert (broker["message.max.bytes"], broker.default_value("message.max.bytes")) == (300, 100)


def test_a_value_is_that_of_the_first_layer_whichever_was_changed_last() -> None:
    name, layers = "message.max.bytes", ("300", "200", "100")
    for own, default, explicit in product(*((text, None) for text in layers)):
        for changes in permutations(("set_dynamic", "set_dynamic_defaults")):
            broker = BrokerConfig.from_properties({} if explicit is None else {name: explicit})
            texts = {"set_dynamic": own, "set_dynamic_defaults": default}
            for change in changes:
                text = texts[change]
                getattr(broker, change)({} if text is None else {name: text})
            given = next(filter(None, (own, default, explicit)), "1048588")
            assert broker[name] == int(given), (own, default, explicit, changes)


def test_a_bad_dynamic_value_changes_nothing() -> None:
    broker = config()
    broker.set_dynamic({"log.retention.ms": "5"})
    broker.set_dynamic_defaults({"log.segment.bytes": "6000"})
    with pytest.raises(ConfigError):
        broker.set_dynamic({"message.max.bytes": "x"})
    with pytest.raises(ConfigError):
        broker.set_dynamic_defaults({"message.max.bytes": "x"})
    assert broker.dynamic == {"log.retention.ms": "5"}
    assert broker.dynamic_defaults == {"log.segment.bytes": "6000"}
    assert (broker["log.retention.ms"], broker["log.segment.bytes"]) == (5, 6000)


def test_the_settings_that_may_change_at_run_time_are_kafkas() -> None:
    """The sample has dynamic and read-only settings, from the "update mode" column of the
    reference.
    """
    dynamic = {
        "log.segment.bytes",
        "log.retention.ms",
        "message.max.bytes",
        "min.insync.replicas",
        "log.cleaner.backoff.ms",
        "num.io.threads",
    }
    fixed = {
        "log.retention.hours",
        "num.partitions",
        "default.replication.factor",
        "auto.create.topics.enable",
        "node.id",
        "log.dirs",
        "group.max.session.timeout.ms",
        "transaction.max.timeout.ms",
        "transactional.id.expiration.ms",
    }
    assert {name for name in dynamic | fixed if BROKER_SETTINGS[name].dynamic} == dynamic


# --- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a = b", {"a": "b"}),
        ("a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a = b = c", {"a": "b = c"}),
        ("  a=b", {"a": "b"}),
        ("a=b\r\nc=d\re=f\n", {"a": "b", "c": "d", "e": "f"}),
        ("# a=b\n! c=d\n\ne=f", {"e": "f"}),
        ("a=b#c", {"a": "b#c"}),
        ("a=one,\\\n    two", {"a": "one,two"}),
        ("a=one\\\n# two", {"a": "one# two"}),
        ("# comment \\\na=b", {"a": "b"}),
        ("a=c:\\\\temp", {"a": "c:\\temp"}),
        ("a=ends\\\\\nb=c", {"a": "ends\\", "b": "c"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a\\ b=c", {"a b": "c"}),
        ("a=\\t\\n\\u00e9\\x", {"a": "\t\néx"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=last\\", {"a": "last"}),
        ("a=x\x0by\u2028z", {"a": "x\x0by\u2028z"}),
        ("", {}),
    ],
)
def test_properties_files_are_read_as_java_does(text: str, expected: dict[str, str]) -> None:
    assert read_properties(text) == expected


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\uZZZZ", "\\u=b", "a=\\ud83d"])
def test_the_error_for_a_bad_escape_gives_the_line_number_but_not_the_text(text: str) -> None:
    """The line may hold a password, so the error must not quote it."""
    with pytest.raises(ConfigError, match=r"^line 3: a \\u is ") as error:
        read_properties(f"x=1\n\n{text}\ny=2")
    for part in ("12", "ZZZZ", "=b", "d83d"):
        assert part not in str(error.value)


TYPES = {
    Kind.BOOLEAN: bool,
    Kind.STRING: str,
    Kind.PASSWORD: str,
    Kind.INT: int,
    Kind.SHORT: int,
    Kind.LONG: int,
    Kind.DOUBLE: float,
    Kind.LIST: tuple,
}
# Prefixes of settings whose names the code composes, such as the bounds of a group or the tokens of
# a listener.
READ_BY_PREFIX = (
    "group.consumer.min.", "group.consumer.max.", "group.share.", "group.streams.",
    "sasl.oauthbearer.",
)  # fmt: skip


def attributes_of(table: type) -> dict[str, Row[Any]]:
    """Return the rows of a settings table by the names of its attributes."""
    parts = (vars(part) for part in table.__mro__)
    return {name: row for part in parts for name, row in part.items() if isinstance(row, Row)}


def test_each_row_is_an_attribute_that_has_a_value_of_its_type() -> None:
    """mypy derives an attribute's type from the function that defines the row; this test checks the
    value.
    """
    broker, topic = (
        BrokerConfig.from_properties({}),
        TopicConfig(BrokerConfig.from_properties({}), {}),
    )
    for config, table, settings in (
        (broker, BrokerRows, BROKER_SETTINGS),
        (topic, TopicRows, TOPIC_SETTINGS),
    ):
        attributes = attributes_of(table)
        assert {row.name for row in attributes.values()} == settings.keys()
        for attribute, row in attributes.items():
            assert getattr(table, attribute) is row is settings[row.name]
            value = getattr(config, attribute)
            assert value == row.default
            assert value is None or type(value) is TYPES[row.kind] or row.kind is Kind.DOUBLE


def test_a_setting_that_has_an_effect_is_read_somewhere() -> None:
    """The code may read a setting by its attribute or its name. A topic setting's default is read
    together with the topic's own value.
    """
    root = ROOT
    code = "\n".join(
        path.read_text()
        for folder in ("broker", "barnabas")
        for path in (root / folder).rglob("*.py")
        if not path.name.startswith("rows_")
    )
    names = set(re.findall(r"\.(\w+)\b", code)) | set(re.findall(r'"([a-z.]+)"', code))
    unread = {
        row.name
        for table in (BrokerRows, TopicRows)
        for attribute, row in attributes_of(table).items()
        if not {attribute, row.name} & names
        and not row.doc.startswith(("Accepted", "Default of"))
        and not row.name.startswith(READ_BY_PREFIX)
        and row.name != "remote.storage.enable"  # this setting can only be false
    }
    assert unread == set()


def test_a_typed_attribute_follows_dynamic_changes_of_its_setting() -> None:
    config = BrokerConfig.from_properties({"log.cleaner.backoff.ms": "7"})
    assert config.log_cleaner_backoff_ms == 7
    config.set_dynamic({"log.cleaner.backoff.ms": "8"})
    assert config.log_cleaner_backoff_ms == 8
    config.set_dynamic({})
    assert config.log_cleaner_backoff_ms == 7


# --- who clients are ----------------------------------------------------------------------------


# --- where settings have their effects ----------------------------------------------------------

# Each function that derives a part's settings from the broker's settings, with the names of these
# settings and the fields that they set.
TRANSACTIONS = FinalizedFeatures({TRANSACTION_VERSION: 2}, 1)
FIELDS_OF_COORDINATORS: dict[Callable[[BrokerConfig], Any], dict[str, str]] = {
    group_settings: {
        "group.min.session.timeout.ms": "min_session_timeout_ms",
        "group.max.session.timeout.ms": "max_session_timeout_ms",
        "group.initial.rebalance.delay.ms": "initial_rebalance_delay_ms",
        "group.max.size": "max_size",
        "offset.metadata.max.bytes": "offset_metadata_max_size",
        "message.max.bytes": "max_record_bytes",
        "offsets.retention.minutes": "offsets_retention_ms",
        "offsets.retention.check.interval.ms": "offsets_retention_check_interval_ms",
    },
    consumer_group_settings: {
        "group.consumer.session.timeout.ms": "session_timeout_ms",
        "group.consumer.heartbeat.interval.ms": "heartbeat_interval_ms",
        "group.consumer.assignment.interval.ms": "assignment_interval_ms",
        "group.consumer.max.size": "max_size",
        "group.consumer.assignors": "assignors",
        "group.consumer.migration.policy": "migration_policy",
        "group.consumer.regex.refresh.interval.ms": "regex_refresh_interval_ms",
    },
    share_group_settings: {
        "group.share.max.size": "max_size",
        "group.share.initialize.retry.interval.ms": "initialize_retry_interval_ms",
    },
    streams_group_settings: {"group.streams.max.size": "max_size"},
    partial(transaction_settings, features=TRANSACTIONS): {
        "transaction.max.timeout.ms": "transaction_max_timeout_ms",
        "transactional.id.expiration.ms": "transactional_id_expiration_ms",
        "transaction.two.phase.commit.enable": "two_phase_commit_enable",
        "barnabas.transaction.durability": "is_durable",
    },
}
# The fields of LogConfig that have other names than the settings.
OTHER_FIELDS_OF_LOGS = {
    "barnabas.transactions.whole": {"whole_transactions"},
    "compression.lz4.level": {"compression_levels"},
    "compression.zstd.level": {"compression_levels"},
    "message.timestamp.after.max.ms": {"timestamp_after_max_ms"},
    "message.timestamp.before.max.ms": {"timestamp_before_max_ms"},
    "message.timestamp.difference.max.ms": {"timestamp_after_max_ms", "timestamp_before_max_ms"},
    "message.timestamp.type": {"timestamp_type_log_append"},
}


def another_value(setting: Setting[Any]) -> str | None:
    """Return a value other than the default, as text. Gives: None if the type does not suggest
    one.
    """
    if setting.kind is Kind.BOOLEAN:
        return str(not setting.default).lower()
    if setting.kind is Kind.DOUBLE:
        return "0.25"
    choices: Iterable[Any] = setting.choices
    if setting.kind in (Kind.INT, Kind.LONG, Kind.SHORT) and setting.default is not None:
        choices = (setting.default + 1, setting.default - 1)
    for choice in choices:
        with suppress(ConfigError):
            if setting.parse(str(choice)) != setting.default:
                return str(choice)
    return None


def differences(before: Any, after: Any) -> set[str]:
    names = before._fields if hasattr(before, "_fields") else before.__dataclass_fields__
    return {name for name in names if getattr(before, name) != getattr(after, name)}


def test_each_setting_of_the_coordinators_has_its_effect_and_no_other_one() -> None:
    """If the code read another setting by mistake, the types would not show it, and often the
    defaults would not either.
    """
    broker = config()
    before = {function: function(broker) for function in FIELDS_OF_COORDINATORS}
    for name, setting in BROKER_SETTINGS.items():
        text = another_value(setting)
        broker.set_dynamic({} if text is None else {name: text})
        for function, fields in FIELDS_OF_COORDINATORS.items():
            changed = {fields[name]} if name in fields else set()
            assert differences(before[function], function(broker)) == changed, (
                f"{name}: FIELDS_OF_COORDINATORS says which setting has which field"
            )


def test_each_setting_of_a_topic_has_its_effect_on_logs_and_no_other_one() -> None:
    before = topic_log_config(config(), {})
    changed = set()
    for name, setting in TOPIC_SETTINGS.items():
        text = another_value(setting)
        if text is None:
            continue
        field = name.removeprefix("barnabas.").replace(".", "_")
        own = {field} & set(LogConfig.__dataclass_fields__)
        found = differences(before, topic_log_config(config(), {name: text}))
        assert found == OTHER_FIELDS_OF_LOGS.get(name, own), (
            f"{name}: the field of LogConfig has the setting's name, or a row above"
        )
        changed |= found
    assert len(changed) >= 20
