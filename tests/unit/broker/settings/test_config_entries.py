"""Settings in the form that requests return: value, source and synonyms (KIP-226)."""

from __future__ import annotations

import pytest

from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.config_entries import (
    ConfigEntry,
    Source,
    broker_default_entries,
    broker_entries,
    is_read_only,
    logger_entries,
    topic_entries,
)
from barnabas.broker.settings.exposure import without_password
from barnabas.broker.settings.rows_without_effect import ALL_BROKER_SETTINGS
from barnabas.broker.settings.setting import ConfigError, Kind


def entry(entries: list[ConfigEntry], name: str) -> ConfigEntry:
    (one,) = [one for one in entries if one.setting.name == name]
    return one


def test_a_topics_setting_is_shown_with_every_layer_below_it() -> None:
    config = BrokerConfig.from_properties({"log.segment.bytes": "3000"})
    config.set_dynamic({"log.segment.bytes": "4000"})
    config.set_dynamic_defaults({"log.segment.bytes": "5000"})
    shown = entry(topic_entries(config, {"segment.bytes": "2000"}), "segment.bytes")
    assert (shown.value, shown.source) == ("2000", Source.TOPIC)
    assert [(synonym.value, synonym.source) for synonym in shown.synonyms] == [
        ("2000", Source.TOPIC),
        ("4000", Source.DYNAMIC_BROKER),
        ("5000", Source.DYNAMIC_DEFAULT_BROKER),
        ("3000", Source.STATIC_BROKER),
        ("1073741824", Source.DEFAULT),
    ]


def test_a_broker_setting_comes_from_the_first_layer_that_has_it() -> None:
    config = BrokerConfig.from_properties({"node.id": "3"})
    assert entry(broker_entries(config), "node.id").source is Source.STATIC_BROKER
    assert entry(broker_entries(config), "num.partitions").source is Source.DEFAULT
    assert broker_default_entries(config) == []
    config.set_dynamic_defaults({"log.segment.bytes": "5000"})
    assert [one.value for one in broker_default_entries(config)] == ["5000"]


def test_loggers_are_shown_as_settings() -> None:
    (root,) = logger_entries({"root": "INFO"})
    assert (root.setting.name, root.value) == ("root", "INFO")
    assert root.source is Source.DYNAMIC_BROKER_LOGGER


JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://ann:her-password@example.org/keys", "https://[hidden]@example.org/keys"),
        ("https://ann:her@password@example.org", "https://[hidden]@example.org"),
        ("https://ann:her/password@example.org", "https://[hidden]@example.org"),
        ("https://her-password@example.org:80/a@b", "https://[hidden]@example.org:80/a@b"),
        ("https://example.org:8080/a@b", "https://example.org:8080/a@b"),
        ("https://example.org/a@b", "https://example.org/a@b"),
        ("file:///keys.json", "file:///keys.json"),
    ],
)
def test_a_password_in_an_address_is_hidden(text: str, shown: str) -> None:
    assert without_password(text) == shown
    config = BrokerConfig.from_properties({JWKS_URL: text})
    one = entry(broker_entries(config), JWKS_URL)
    assert one.value == shown
    assert [synonym.value for synonym in one.synonyms] == [shown]


def test_no_setting_shows_a_password_wherever_it_is_set() -> None:
    """Each setting that accepts any text is set to a text with a password, on every level."""
    text = "https://ann:her-password@example.org/keys"
    for setting in broker_entries(BrokerConfig.from_properties({})):
        row = setting.setting
        if row.kind not in (Kind.STRING, Kind.PASSWORD) or row.choices:
            continue
        try:
            config = BrokerConfig.from_properties({row.name: text})
        except ConfigError:
            continue
        config.set_dynamic_defaults({row.name: text})
        rows = [*broker_entries(config), *broker_default_entries(config)]
        seen = [one.value for one in rows] + [s.value for one in rows for s in one.synonyms]
        assert not any("her-password" in (value or "") for value in seen), row.name


# --- what Kafka lets change at run time ---------------------------------------------------------

# The settings in Apache Kafka's DynamicBrokerConfig.AllDynamicConfigs, divided as in its source
# code.
SSL_RECONFIGURABLE = """ssl.keystore.type ssl.keystore.location ssl.keystore.password
    ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key ssl.truststore.type
    ssl.truststore.location ssl.truststore.password ssl.truststore.certificates"""
LOG_CLEANER = """log.cleaner.threads log.cleaner.dedupe.buffer.size
    log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size message.max.bytes
    log.cleaner.io.max.bytes.per.second log.cleaner.backoff.ms"""
OF_TOPICS = """log.segment.bytes log.roll.ms log.roll.jitter.ms log.index.size.max.bytes
    log.flush.interval.messages log.flush.interval.ms log.retention.bytes log.retention.ms
    log.local.retention.ms log.local.retention.bytes log.index.interval.bytes
    log.cleaner.delete.retention.ms log.cleaner.min.compaction.lag.ms
    log.cleaner.max.compaction.lag.ms log.segment.delete.delay.ms log.cleaner.min.cleanable.ratio
    log.cleanup.policy unclean.leader.election.enable min.insync.replicas compression.type
    compression.gzip.level compression.lz4.level compression.zstd.level log.preallocate
    log.message.timestamp.type log.message.timestamp.difference.max.ms
    log.message.timestamp.before.max.ms log.message.timestamp.after.max.ms
    log.message.downconversion.enable"""
THREADS = """num.io.threads num.replica.fetchers num.recovery.threads.per.data.dir
    background.threads num.network.threads"""
# advertised.listeners was one of them before Kafka 4.3
LISTENERS = """listeners listener.security.protocol.map
    principal.builder.class ssl.protocol ssl.provider ssl.cipher.suites ssl.enabled.protocols
    ssl.keymanager.algorithm ssl.trustmanager.algorithm ssl.endpoint.identification.algorithm
    ssl.secure.random.implementation ssl.client.auth ssl.engine.factory.class
    sasl.mechanism.inter.broker.protocol sasl.jaas.config sasl.enabled.mechanisms
    sasl.kerberos.service.name sasl.kerberos.kinit.cmd sasl.kerberos.ticket.renew.window.factor
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.min.time.before.relogin
    sasl.kerberos.principal.to.local.rules sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter sasl.login.refresh.min.period.seconds
    sasl.login.refresh.buffer.seconds"""
CONNECTIONS = """max.connections max.connection.creation.rate max.connections.per.ip
    max.connections.per.ip.overrides"""
OTHERS = """metric.reporters producer.id.expiration.ms transaction.partition.verification.enable
    remote.log.index.file.cache.total.size.bytes remote.fetch.max.wait.ms
    remote.log.manager.copy.max.bytes.per.second remote.log.manager.fetch.max.bytes.per.second
    group.consumer.assignment.interval.ms
    group.share.assignment.interval.ms
    group.streams.assignment.interval.ms"""  # the last three exist since 4.3
ALL_DYNAMIC = {
    name
    for names in (
        SSL_RECONFIGURABLE,
        LOG_CLEANER,
        OF_TOPICS,
        THREADS,
        LISTENERS,
        CONNECTIONS,
        OTHERS,
    )
    for name in names.split()
}
# Kafka lists these quotas only once they are set, which is possible only at run time.
LISTED_WHERE_SET = {
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}


@pytest.mark.parametrize(
    "name", [name for name in ALL_BROKER_SETTINGS if not name.startswith("barnabas.")]
)
def test_a_setting_is_read_only_where_it_is_in_kafka(name: str) -> None:
    setting = ALL_BROKER_SETTINGS[name]
    assert is_read_only(setting) == (name not in ALL_DYNAMIC | LISTED_WHERE_SET)


def test_our_own_settings_are_read_only_where_they_cannot_change() -> None:
    for name, setting in ALL_BROKER_SETTINGS.items():
        if name.startswith("barnabas."):
            assert is_read_only(setting) is not setting.dynamic
