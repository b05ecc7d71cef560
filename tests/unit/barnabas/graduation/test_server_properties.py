"""The properties file for Kafka: listeners, internal topics, and the logins of clients and
brokers.
"""

from __future__ import annotations

import pytest
from helpers.graduation import (
    CREDENTIAL,
    NOW_MS,
    fill,
    new_disk,
    opened,
    planned,
    properties_of,
)
from sim.disk import SimDisk

from barnabas.broker.security.jaas import parse_jaas
from barnabas.broker.security.scram import SCRAM_SHA_512, credential_of, salted
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.properties import read_properties
from barnabas.coordinator.internal_topics import SHARE_STATE_TOPIC
from barnabas.graduation.hand_over import HandOver
from barnabas.graduation.server_properties import INTER_BROKER_USER


@pytest.fixture(scope="module")
def disk() -> SimDisk:
    disk = new_disk()
    fill(disk)
    return disk


def lines(plan: HandOver) -> dict[str, str]:
    return read_properties(plan.properties)


def test_one_node_is_broker_and_controller(disk: SimDisk) -> None:
    reported = lines(
        planned(
            disk,
            "3.9",
            listeners="CLIENTS://0.0.0.0:9092",
            listener_security_protocol_map="CLIENTS:PLAINTEXT",
            advertised_listeners="CLIENTS://kafka.example:9092",
        )
    )
    assert reported["process.roles"] == "broker,controller"
    assert reported["node.id"] == "3"
    assert reported["log.dirs"] == "/data"
    assert reported["controller.quorum.voters"] == "3@127.0.0.1:9093"
    assert reported["listeners"] == "CLIENTS://0.0.0.0:9092,CONTROLLER://127.0.0.1:9093"
    assert reported["advertised.listeners"] == "CLIENTS://kafka.example:9092"
    assert reported["listener.security.protocol.map"] == "CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert reported["inter.broker.listener.name"] == "CLIENTS"
    assert reported["group.coordinator.rebalance.protocols"] == "classic,consumer"
    assert reported["group.consumer.migration.policy"] == "bidirectional"
    assert "group.coordinator.rebalance.protocols" not in lines(planned(disk, "4.3"))


def test_internal_topics_keep_their_partitions_and_missing_ones_get_the_setting(
    disk: SimDisk,
) -> None:
    reported = lines(planned(disk, "4.3", offsets_topic_num_partitions="7"))
    assert reported["offsets.topic.num.partitions"] == "7"  # no such topic exists yet
    assert reported["transaction.state.log.num.partitions"] == "2"
    assert reported["offsets.topic.replication.factor"] == "1"
    assert reported["group.initial.rebalance.delay.ms"] == "0"


def test_the_states_of_share_groups_keep_their_partitions(disk: SimDisk) -> None:
    name = "share.coordinator.state.topic.num.partitions"
    settings = {"share_coordinator_state_topic_num_partitions": "7"}
    assert lines(planned(disk, "4.3", **settings))[name] == "7"  # no such topic exists
    assert name not in lines(planned(disk, "3.9", **settings)), "it has no such topic"
    shared = new_disk()
    broker = opened(shared, share_coordinator_state_topic_num_partitions="4")
    broker.topics.internal_log(SHARE_STATE_TOPIC, 0, NOW_MS)
    broker.close_logs(NOW_MS)
    assert lines(planned(shared, "4.3", **settings))[name] == "4"


# Settings of Apache Kafka's internal topics whose defaults need more than one broker, each with the
# first version that has it (from the configuration references of 3.9, 4.0 and 4.3).
WANT_MORE_BROKERS = {
    "offsets.topic.replication.factor": "3.9",
    "transaction.state.log.replication.factor": "3.9",
    "transaction.state.log.min.isr": "3.9",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "3.9",
    "share.coordinator.state.topic.replication.factor": "4.0",
    "share.coordinator.state.topic.min.isr": "4.0",
    "rlmm.config.remote.log.metadata.topic.min.isr": "4.3",
}


@pytest.mark.parametrize("version", ["3.9", "4.0", "4.3"])
def test_a_single_kafka_broker_can_create_each_internal_topic(disk: SimDisk, version: str) -> None:
    """With Kafka's defaults for the internal topic, a single broker refused share groups with
    INVALID_REPLICATION_FACTOR.
    """
    written = lines(planned(disk, version, share_coordinator_state_topic_min_isr="2"))
    wanted = {name for name, since in WANT_MORE_BROKERS.items() if since <= version}
    found = {name: text for name, text in written.items() if name in WANT_MORE_BROKERS}
    assert found == dict.fromkeys(wanted, "1")


def test_settings_that_kafka_has_are_taken_over(disk: SimDisk) -> None:
    reported = lines(
        planned(
            disk,
            "4.3",
            message_max_bytes="2000000",
            offsets_retention_minutes="77",
            barnabas_disk_reserve_bytes="1",
            num_partitions="5",
        )
    )
    assert reported["offsets.retention.minutes"] == "77"
    assert reported["num.partitions"] == "5"
    assert "message.max.bytes" not in reported  # topic defaults are in the metadata
    assert not any(name.startswith("barnabas.") for name in reported)


def test_with_sasl_listeners_kafkas_broker_gets_a_login_of_its_own(disk: SimDisk) -> None:
    plan = planned(
        disk,
        "4.3",
        listeners="SASL_PLAINTEXT://127.0.0.1:9092",
        sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256",
    )
    reported = lines(plan)
    assert reported["sasl.enabled.mechanisms"] == "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
    assert reported["sasl.mechanism.inter.broker.protocol"] == "SCRAM-SHA-512"
    prefix = "listener.name.sasl_plaintext"
    assert reported[f"{prefix}.scram-sha-512.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{INTER_BROKER_USER}" password="drawn";'
    )
    assert reported[f"{prefix}.scram-sha-256.sasl.jaas.config"].endswith(
        "ScramLoginModule required;"
    )
    kept = plan.scram_credentials[INTER_BROKER_USER, 2]
    expected = salted(SCRAM_SHA_512, "drawn", kept.salt, kept.iterations)
    assert kept == credential_of(SCRAM_SHA_512, expected, kept.salt, kept.iterations)
    assert plan.scram_credentials["alice", 1] == CREDENTIAL
    assert plan.notes[2:] == []


def test_names_and_passwords_of_any_kind_are_in_the_logins(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JAAS parser of Barnabas reads the passwords back, and Apache Kafka 3.9 accepted both
    logins.
    """
    given = BrokerConfig.from_properties

    def with_users(properties: dict[str, str]) -> BrokerConfig:
        config = given(properties)
        config.users = {"alice": 'pa"ss\\w', "c@d e": "x"}
        return config

    monkeypatch.setattr(BrokerConfig, "from_properties", with_users)
    reported = lines(planned(disk, "3.9", listeners="SASL_PLAINTEXT://127.0.0.1:9094"))
    text = reported["listener.name.sasl_plaintext.plain.sasl.jaas.config"]
    assert '"user_c@d e"="x"' in text
    assert parse_jaas(text.replace(' "user_c@d e"="x"', "")).passwords == {"alice": 'pa"ss\\w'}


@pytest.mark.parametrize("users", [{}, {"alice": "hers", "bob": "of the file"}])
def test_a_login_that_is_given_stays_but_for_users_of_the_file(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch, users: dict[str, str]
) -> None:
    """A JAAS text has precedence over the users file, as at the listeners of Barnabas."""
    given = BrokerConfig.from_properties

    def with_users(properties: dict[str, str]) -> BrokerConfig:
        config = given(properties)
        config.users = users
        return config

    monkeypatch.setattr(BrokerConfig, "from_properties", with_users)
    name = "listener.name.clients.plain.sasl.jaas.config"
    text = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="his";'
    reported = lines(
        planned(
            disk, "3.9", listeners="CLIENTS://127.0.0.1:9094",
            listener_security_protocol_map="CLIENTS:SASL_PLAINTEXT", **{name: text},
        )
    )  # fmt: skip
    assert parse_jaas(reported[name]).passwords == {**users, "bob": "his"}


def test_values_are_on_one_line_each_and_in_ascii(disk: SimDisk) -> None:
    """The expected lines were recorded with java.util.Properties, which reads a file's bytes as
    Latin-1.
    """
    key = "-----BEGIN PRIVATE KEY-----\r\n  MIIE==\n-----END PRIVATE KEY-----\n"
    texts = {"ssl_keystore_key": key, "ssl_key_password": " \\p\u00e4ss\U0001f511"}
    plan = planned(disk, "3.9", **texts)
    assert plan.properties.isascii()
    assert "MIIE" in next(
        line for line in plan.properties.split("\n") if line.startswith("ssl.keystore.key=")
    )
    reported = lines(plan)
    assert (reported["ssl.keystore.key"], reported["ssl.key.password"]) == tuple(texts.values())


def test_with_an_authorizer_the_inter_broker_listener_has_a_login(disk: SimDisk) -> None:
    """A broker without a principal could not write a transaction's markers, since WriteTxnMarkers
    needs a right on the cluster (KIP-98).
    """
    reported = lines(
        planned(
            disk,
            "3.9",
            listeners="PLAINTEXT://127.0.0.1:9092,SASL_PLAINTEXT://127.0.0.1:9094",
            authorizer_class_name="StandardAuthorizer",
            super_users="User:admin",
        )
    )
    assert reported["inter.broker.listener.name"] == "SASL_PLAINTEXT"
    assert reported["super.users"] == f"User:admin;User:{INTER_BROKER_USER}"
    assert reported["authorizer.class.name"].endswith("metadata.authorizer.StandardAuthorizer")
    assert "CONTROLLER:SASL_PLAINTEXT" in reported["listener.security.protocol.map"]
    assert (
        f'user_{INTER_BROKER_USER}="drawn"'
        in (reported["listener.name.controller.plain.sasl.jaas.config"])
    )
    without = lines(
        planned(disk, "3.9", listeners="SASL_PLAINTEXT://127.0.0.1:9094,PLAINTEXT://127.0.0.1:9092")
    )
    assert without["inter.broker.listener.name"] == "PLAINTEXT"


@pytest.mark.parametrize("kafka", ["3.9", "4.0", "4.3"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"listeners": "SASL_PLAINTEXT://127.0.0.1:9092,PLAINTEXT://127.0.0.1:9095"},
        {
            "listeners": "SASL_SSL://127.0.0.1:9092",
            "authorizer_class_name": "StandardAuthorizer",
            "group_consumer_assignors": "range,uniform",
            "super_users": "User:admin",
        },
    ],
)
def test_the_file_for_kafka_starts_this_broker_too(
    disk: SimDisk, kafka: str, settings: dict[str, str]
) -> None:
    """`take-over` advises it where the original file is lost."""
    properties = lines(planned(disk, kafka, **settings))
    config = BrokerConfig.from_properties(properties, of_file=properties.keys())
    expected = BrokerConfig.from_properties(properties_of(**settings))
    assert [str(one.endpoint) for one in config.listeners] == [
        str(one.endpoint) for one in expected.listeners
    ]
    assert config.group_consumer_assignors == expected.group_consumer_assignors
    assert not any(text.startswith("unknown settings") for text in config.warnings)


def test_a_tls_store_has_its_type_and_a_missing_trust_store_is_noted(disk: SimDisk) -> None:
    settings = {
        "listeners": "SSL://127.0.0.1:9092", "ssl_keystore_location": "/etc/broker.jks",
        "ssl_keystore_type": "JKS", "listener_name_ssl_ssl_truststore_location": "/etc/trust",
    }  # fmt: skip
    kinds = {"/etc/broker.jks": "PEM", "/etc/trust": "PKCS12"}
    written = lines(planned(disk, "3.9", kinds_of_files=kinds, **settings))
    assert written["ssl.keystore.type"] == "PEM"
    assert written["listener.name.ssl.ssl.truststore.type"] == "PKCS12"
    plan = planned(
        disk, "3.9", listeners="SSL://127.0.0.1:9092", ssl_keystore_location="/etc/broker.pem"
    )
    assert "ssl.keystore.type" not in lines(plan)  # the file could not be read
    assert any("ssl.truststore.location" in text for text in plan.notes)
