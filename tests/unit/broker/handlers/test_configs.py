"""Settings of topics and of the broker: requests that describe, set, append and replace them. The
expected codes and sources are those of Apache Kafka 3.9.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.admin_host import NODE_ID, AdminHost, creatable

from barnabas.broker.settings.rows_broker import BROKER_SETTINGS
from barnabas.broker.settings.rows_topic import TOPIC_SETTINGS
from barnabas.broker.settings.rows_without_effect import KEPT_SETTINGS
from barnabas.protocol.errors import Code
from barnabas.protocol.messages import alter_configs, incremental_alter_configs
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from barnabas.protocol.messages.list_config_resources import ListConfigResourcesRequest

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16
EVERY_BROKER = ""
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
(
    FROM_TOPIC,
    FROM_DYNAMIC,
    FROM_DYNAMIC_DEFAULT,
    FROM_STATIC,
    FROM_DEFAULT,
    FROM_LOGGER,
    FROM_SUBSCRIPTION,
) = 1, 2, 3, 4, 5, 6, 7
ME = str(NODE_ID)
# settings that Apache Kafka does not have are listed only where they are set
OF_A_TOPIC = {name for name in TOPIC_SETTINGS if not name.startswith("barnabas.")}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AdminHost]:
    host = AdminHost(tmp_path, log_segment_bytes="1000000", log_retention_hours="3")
    host.create(creatable("t", configs={"retention.ms": " 1234 "}), creatable("plain"))
    yield host
    host.close()


def describe(
    host: AdminHost,
    name: str,
    *keys: str,
    kind: int = TOPIC,
    version: int = 4,
    synonyms: bool = False,
    documentation: bool = False,
) -> Any:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=synonyms, include_documentation=documentation
    )
    (result,) = host.call(request, version).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    assert (result.error_message is None) == (result.error_code == Code.NONE)
    return result


def reported(
    host: AdminHost, name: str, *keys: str, kind: int = TOPIC
) -> dict[str, tuple[str, int]]:
    """The value and source of each setting, by the setting's name."""
    return {
        row.name: (row.value, row.config_source)
        for row in describe(host, name, *keys, kind=kind).configs
    }


def alter(
    host: AdminHost,
    name: str,
    *changes: tuple[str, int, str | None],
    kind: int = TOPIC,
    validate_only: bool = False,
) -> int:
    configs = [
        incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=configs
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=validate_only
    )
    return only_code(host.call(request, 1), kind, name)


def replace(
    host: AdminHost,
    name: str,
    configs: dict[str, str | None],
    *,
    kind: int = TOPIC,
    validate_only: bool = False,
) -> int:
    rows = [alter_configs.AlterableConfig(name=key, value=value) for key, value in configs.items()]
    resource = alter_configs.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=rows
    )
    return only_code(
        host.call(
            alter_configs.AlterConfigsRequest(resources=[resource], validate_only=validate_only), 2
        ),
        kind,
        name,
    )


def only_code(answer: Any, kind: int, name: str) -> int:
    (row,) = answer.responses
    assert (row.resource_type, row.resource_name) == (kind, name)
    assert (row.error_message is None) == (row.error_code == Code.NONE)
    code: int = row.error_code
    return code


# --- shown--------------------------------------------------------------------------------------


def test_a_topics_settings_come_from_itself_from_the_broker_or_from_the_defaults(
    host: AdminHost,
) -> None:
    assert reported(host, "t", "retention.ms", "segment.bytes", "cleanup.policy") == {
        "retention.ms": ("1234", FROM_TOPIC),
        "segment.bytes": ("1000000", FROM_STATIC),
        "cleanup.policy": ("delete", FROM_DEFAULT),
    }
    assert reported(host, "plain", "retention.ms") == {"retention.ms": ("10800000", FROM_STATIC)}
    alter(host, ME, ("log.retention.ms", SET, "99"), kind=BROKER)
    assert reported(host, "plain", "retention.ms") == {"retention.ms": ("99", FROM_DYNAMIC)}


def test_synonyms_are_listed_by_precedence(host: AdminHost) -> None:
    alter(host, ME, ("log.segment.bytes", SET, "2000000"), kind=BROKER)
    alter(host, "t", ("segment.bytes", SET, "3000000"))
    rows = describe(
        host, "t", "segment.bytes", "retention.ms", "cleanup.policy", synonyms=True
    ).configs
    listed = {
        row.name: [(synonym.name, synonym.value, synonym.source) for synonym in row.synonyms]
        for row in rows
    }
    assert listed == {
        "segment.bytes": [
            ("segment.bytes", "3000000", FROM_TOPIC),
            ("log.segment.bytes", "2000000", FROM_DYNAMIC),
            ("log.segment.bytes", "1000000", FROM_STATIC),
            ("log.segment.bytes", "1073741824", FROM_DEFAULT),
        ],
        "retention.ms": [("retention.ms", "1234", FROM_TOPIC)],
        "cleanup.policy": [("log.cleanup.policy", "delete", FROM_DEFAULT)],
    }
    assert describe(host, "t", "segment.bytes").configs[0].synonyms == []


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_describe_configs_is_answered(host: AdminHost, version: int) -> None:
    (row,) = describe(
        host, "t", "retention.ms", version=version, documentation=version >= 3
    ).configs
    assert (row.name, row.value, row.read_only, row.is_sensitive) == (
        "retention.ms",
        "1234",
        False,
        False,
    )
    assert version > 0 or row.is_default is False
    assert version < 1 or row.config_source == FROM_TOPIC
    assert version < 3 or (
        row.config_type == 5 and row.documentation == TOPIC_SETTINGS["retention.ms"].doc
    )


def test_describe_configs_has_type_numbers_and_documentation_only_on_request(
    host: AdminHost,
) -> None:
    keys = (
        "preallocate",
        "compression.type",
        "segment.bytes",
        "retention.ms",
        "min.cleanable.dirty.ratio",
        "cleanup.policy",
    )
    rows = describe(host, "t", *keys).configs
    assert {row.name: row.config_type for row in rows} == dict(
        zip(keys, (1, 2, 3, 5, 6, 7), strict=True)
    )
    assert all(row.documentation is None for row in rows)


def test_all_settings_are_described_when_none_is_named(host: AdminHost) -> None:
    assert set(reported(host, "t")) == OF_A_TOPIC
    assert set(reported(host, ME, kind=BROKER)) == set(BROKER_SETTINGS) | set(KEPT_SETTINGS)
    assert reported(host, "t", "no.such.key") == {}


@pytest.mark.parametrize("keys", [None, []])
def test_an_empty_list_of_names_and_null_mean_all_settings(
    host: AdminHost, keys: list[str] | None
) -> None:
    """Sarama and other clients send an empty list to get all settings."""
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        for kind, name in ((TOPIC, "t"), (BROKER, ME), (BROKER_LOGGER, ME))
    ]
    request = DescribeConfigsRequest(
        resources=resources, include_synonyms=False, include_documentation=False
    )
    for version in range(5):
        of_topic, of_broker, of_loggers = host.call(request, version).results
        assert {row.name for row in of_topic.configs} == OF_A_TOPIC
        assert {row.name for row in of_broker.configs} == set(BROKER_SETTINGS) | set(KEPT_SETTINGS)
        assert "barnabas" in {row.name for row in of_loggers.configs}


def test_broker_settings_are_read_only_unless_they_can_change_at_run_time(host: AdminHost) -> None:
    keys = (
        "log.segment.bytes",
        "log.retention.hours",
        "message.max.bytes",
        "num.partitions",
        "log.retention.ms",
    )
    rows = describe(host, ME, *keys, kind=BROKER).configs
    assert {row.name: (row.value, row.config_source, row.read_only) for row in rows} == {
        "log.segment.bytes": ("1000000", FROM_STATIC, False),
        "log.retention.hours": ("3", FROM_STATIC, True),
        "message.max.bytes": ("1048588", FROM_DEFAULT, False),
        "num.partitions": ("1", FROM_DEFAULT, True),
        "log.retention.ms": (None, FROM_DEFAULT, False),
    }


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", Code.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", Code.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "a/b", Code.INVALID_TOPIC_EXCEPTION),
        (BROKER, "4711", Code.INVALID_REQUEST),
        (BROKER, "abc", Code.INVALID_REQUEST),
        (BROKER_LOGGER, "", Code.INVALID_REQUEST),
        (BROKER_LOGGER, "4711", Code.INVALID_REQUEST),
        (CLIENT_METRICS, "", Code.INVALID_REQUEST),
        (77, "x", Code.INVALID_REQUEST),
    ],
)
def test_unknown_resources_are_neither_described_nor_changed(
    host: AdminHost, kind: int, name: str, code: Code
) -> None:
    result = describe(host, name, kind=kind)
    assert (result.error_code, result.configs) == (code, [])
    assert alter(host, name, ("retention.ms", SET, "8"), kind=kind) == code
    assert replace(host, name, {"retention.ms": "8"}, kind=kind) == code


# --- changed bit by bit -------------------------------------------------------------------------


@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize("name", [str(NODE_ID - 1), str(NODE_ID + 3), "a name"])
def test_a_broker_that_is_not_there_has_no_settings(
    name: str, brokers: int, tmp_path: Path
) -> None:
    """This holds for every request. The broker that receives it does not change its own
    settings.
    """
    host = AdminHost(tmp_path, barnabas_brokers=str(brokers))
    assert describe(host, name, kind=BROKER).error_code == Code.INVALID_REQUEST
    assert describe(host, name, kind=BROKER_LOGGER).error_code == Code.INVALID_REQUEST
    assert alter(host, name, ("log.retention.ms", SET, "777"), kind=BROKER) == Code.INVALID_REQUEST
    assert replace(host, name, {"log.retention.ms": "777"}, kind=BROKER) == Code.INVALID_REQUEST
    debug = ("barnabas.broker", SET, "DEBUG")
    assert alter(host, name, debug, kind=BROKER_LOGGER) == Code.INVALID_REQUEST
    assert host.broker.config.dynamic == {}
    host.close()


def test_a_topic_setting_takes_effect_immediately_and_after_a_restart(host: AdminHost) -> None:
    assert alter(host, "t", ("max.message.bytes", SET, "5000"), ("retention.ms", DELETE, None)) == 0
    log = host.broker.topics.partition("t", 0)
    assert log is not None and (log.config.max_message_bytes, log.config.retention_ms) == (
        5000,
        10_800_000,
    )
    host.restart()
    log = host.broker.topics.partition("t", 0)
    assert log is not None and (log.config.max_message_bytes, log.config.retention_ms) == (
        5000,
        10_800_000,
    )
    assert reported(host, "t", "max.message.bytes") == {"max.message.bytes": ("5000", FROM_TOPIC)}


def test_lists_are_appended_to_and_subtracted_from(host: AdminHost) -> None:
    def policy(operation: int, value: str) -> str:
        assert alter(host, "t", ("cleanup.policy", operation, value)) == 0
        return reported(host, "t", "cleanup.policy")["cleanup.policy"][0]

    assert policy(APPEND, "compact") == "delete,compact"  # "compact" is added to the default value
    assert policy(APPEND, "compact") == "delete,compact"
    assert policy(SUBTRACT, "delete") == "compact"
    assert policy(SUBTRACT, "delete") == "compact"
    assert policy(SUBTRACT, "compact") == ""
    assert policy(APPEND, "delete, compact,delete") == "delete,compact"
    assert policy(DELETE, "") == "delete"
    assert host.broker.metadata.topics["t"].configs == {"retention.ms": " 1234 "}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("retention.ms", APPEND, "5")], Code.INVALID_CONFIG),
        ([("retention.ms", SUBTRACT, "5")], Code.INVALID_CONFIG),
        ([("no.such.key", SET, "1")], Code.INVALID_CONFIG),
        ([("no.such.key", APPEND, "1")], Code.INVALID_CONFIG),
        ([("no.such.key", DELETE, None)], Code.NONE),
        ([("cleanup.policy", APPEND, "burn")], Code.INVALID_CONFIG),
        ([("retention.ms", SET, "abc")], Code.INVALID_CONFIG),
        ([("retention.ms", SET, None)], Code.INVALID_REQUEST),
        ([("cleanup.policy", APPEND, None)], Code.INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], Code.INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], Code.INVALID_REQUEST),
        ([("retention.ms", SET, "7"), ("segment.bytes", SET, "x")], Code.INVALID_CONFIG),
        ([("retention.ms", 9, "7")], Code.UNKNOWN_SERVER_ERROR),
        ([], Code.NONE),
        ([("retention.bytes", DELETE, None)], Code.NONE),
    ],
    ids=str,
)
def test_invalid_or_empty_changes_change_nothing(
    host: AdminHost, changes: list[tuple[str, int, str | None]], code: Code
) -> None:
    assert alter(host, "t", *changes, validate_only=True) == code
    assert alter(host, "t", *changes) == code
    assert host.broker.metadata.topics["t"].configs == {"retention.ms": " 1234 "}


def test_validate_only_changes_no_setting(host: AdminHost) -> None:
    assert alter(host, "t", ("retention.ms", SET, "8"), validate_only=True) == 0
    assert replace(host, "t", {"retention.ms": "8"}, validate_only=True) == 0
    assert reported(host, "t", "retention.ms") == {"retention.ms": ("1234", FROM_TOPIC)}


def test_a_resource_named_twice_is_not_changed(host: AdminHost) -> None:
    configs = [
        incremental_alter_configs.AlterableConfig(
            name="retention.ms", config_operation=SET, value="8"
        )
    ]
    resources = [
        incremental_alter_configs.AlterConfigsResource(
            resource_type=TOPIC, resource_name=name, configs=configs
        )
        for name in ("t", "plain", "t")
    ]
    rows = host.call(
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=resources, validate_only=False
        ),
        0,
    ).responses
    assert {row.resource_name: row.error_code for row in rows} == {
        "t": Code.INVALID_REQUEST,
        "plain": 0,
    }
    assert reported(host, "t", "retention.ms") == {"retention.ms": ("1234", FROM_TOPIC)}
    assert reported(host, "plain", "retention.ms") == {"retention.ms": ("8", FROM_TOPIC)}


# --- the broker's -------------------------------------------------------------------------------


def test_a_dynamic_broker_setting_applies_to_topics_immediately_and_after_a_restart(
    host: AdminHost,
) -> None:
    assert alter(host, ME, ("message.max.bytes", SET, "5000"), kind=BROKER, validate_only=True) == 0
    assert reported(host, ME, "message.max.bytes", kind=BROKER) == {
        "message.max.bytes": ("1048588", FROM_DEFAULT)
    }
    assert alter(host, ME, ("message.max.bytes", SET, "5000"), kind=BROKER) == 0
    for _ in range(2):
        assert reported(host, ME, "message.max.bytes", kind=BROKER) == {
            "message.max.bytes": ("5000", FROM_DYNAMIC)
        }
        log = host.broker.topics.partition("plain", 0)
        assert log is not None and log.config.max_message_bytes == 5000
        host.restart()
    assert alter(host, ME, ("message.max.bytes", DELETE, None), kind=BROKER) == 0
    assert reported(host, "plain", "max.message.bytes") == {
        "max.message.bytes": ("1048588", FROM_DEFAULT)
    }


def test_a_brokers_setting_that_nobody_knows_is_taken_and_its_value_not_shown(
    host: AdminHost,
) -> None:
    """As in Apache Kafka, whose plugins have settings of their own."""
    hidden = (None, FROM_DYNAMIC)
    assert alter(host, ME, ("org.example.plugin", SET, "on"), kind=BROKER) == 0
    assert alter(host, EVERY_BROKER, ("org.example.key", SET, "secret"), kind=BROKER) == 0
    for _ in range(2):
        assert reported(host, ME, kind=BROKER)["org.example.plugin"] == hidden
        assert reported(host, EVERY_BROKER, kind=BROKER) == {
            "org.example.key": (None, FROM_DYNAMIC_DEFAULT)
        }
        host.restart()
    for name, value in (("x" * 250, "1"), ("org.example.long", "x" * 4_097)):
        assert alter(host, ME, (name, SET, value), kind=BROKER) == Code.INVALID_REQUEST
    many = [(f"org.example.{number}", SET, "1") for number in range(32)]
    assert alter(host, ME, *many, kind=BROKER) == Code.INVALID_REQUEST  # with the one above: 33
    assert alter(host, ME, *many[1:], kind=BROKER) == 0
    assert alter(host, ME, *((name, DELETE, None) for name, _, _ in many), kind=BROKER) == 0
    assert alter(host, ME, ("org.example.plugin", DELETE, None), kind=BROKER) == 0
    assert "org.example.plugin" not in reported(host, ME, kind=BROKER)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num.partitions", "3"),
        ("log.retention.hours", "3"),
        ("num.partitons", "1"),
        ("barnabas.no.such.key", "1"),
        ("zookeeper.connect", "host:2181"),
        ("log.segment.bytes", "x"),
        ("node.id", "8"),
    ],
)
def test_broker_settings_that_are_static_or_invalid_are_refused(
    host: AdminHost, name: str, value: str
) -> None:
    """Kafka's error is INVALID_REQUEST, not INVALID_CONFIG: see KAFKA-13609."""
    before = reported(host, ME, kind=BROKER)
    assert alter(host, ME, (name, SET, value), kind=BROKER) == Code.INVALID_REQUEST
    assert replace(host, ME, {name: value}, kind=BROKER) == Code.INVALID_REQUEST
    assert reported(host, ME, kind=BROKER) == before


def test_a_list_setting_of_the_broker_can_be_appended_to(host: AdminHost) -> None:
    assert alter(host, ME, ("log.cleanup.policy", APPEND, "compact"), kind=BROKER) == 0
    assert reported(host, "plain", "cleanup.policy") == {
        "cleanup.policy": ("delete,compact", FROM_DYNAMIC)
    }
    assert alter(host, ME, ("log.segment.bytes", APPEND, "5"), kind=BROKER) == Code.INVALID_REQUEST


# --- every broker's -----------------------------------------------------------------------------


def test_a_setting_for_every_broker_has_lower_precedence_than_the_brokers_own(
    host: AdminHost,
) -> None:
    """KIP-226: a broker's own dynamic value has precedence over the dynamic value for all brokers.
    Both have precedence over the properties file, and the file over the default.
    """
    key = "log.segment.bytes"
    assert reported(host, EVERY_BROKER, kind=BROKER) == {}
    assert alter(host, EVERY_BROKER, (key, SET, "2000000"), kind=BROKER, validate_only=True) == 0
    assert reported(host, EVERY_BROKER, kind=BROKER) == {}
    assert (
        alter(
            host, EVERY_BROKER, (key, SET, "2000000"), ("log.retention.ms", SET, "5"), kind=BROKER
        )
        == 0
    )
    for _ in range(2):
        assert reported(host, EVERY_BROKER, kind=BROKER) == {
            key: ("2000000", FROM_DYNAMIC_DEFAULT),
            "log.retention.ms": ("5", FROM_DYNAMIC_DEFAULT),
        }
        assert reported(host, EVERY_BROKER, key, "num.io.threads", kind=BROKER) == {
            key: ("2000000", FROM_DYNAMIC_DEFAULT)
        }
        assert reported(host, ME, key, kind=BROKER) == {key: ("2000000", FROM_DYNAMIC_DEFAULT)}
        assert reported(host, "plain", "segment.bytes") == {
            "segment.bytes": ("2000000", FROM_DYNAMIC_DEFAULT)
        }
        log = host.broker.topics.partition("plain", 0)
        assert log is not None and (log.config.segment_bytes, log.config.retention_ms) == (
            2_000_000,
            5,
        )
        host.restart()
    assert alter(host, ME, (key, SET, "3000000"), kind=BROKER) == 0
    assert reported(host, ME, key, kind=BROKER) == {key: ("3000000", FROM_DYNAMIC)}
    assert reported(host, EVERY_BROKER, key, kind=BROKER) == {
        key: ("2000000", FROM_DYNAMIC_DEFAULT)
    }
    (row,) = describe(host, ME, key, kind=BROKER, synonyms=True).configs
    assert [(synonym.value, synonym.source) for synonym in row.synonyms] == [
        ("3000000", FROM_DYNAMIC),
        ("2000000", FROM_DYNAMIC_DEFAULT),
        ("1000000", FROM_STATIC),
        ("1073741824", FROM_DEFAULT),
    ]
    (row,) = describe(host, EVERY_BROKER, key, kind=BROKER, synonyms=True).configs
    assert [(synonym.value, synonym.source) for synonym in row.synonyms] == [
        ("2000000", FROM_DYNAMIC_DEFAULT)
    ]
    assert replace(host, EVERY_BROKER, {"log.retention.ms": "6"}, kind=BROKER) == 0
    assert reported(host, EVERY_BROKER, kind=BROKER) == {
        "log.retention.ms": ("6", FROM_DYNAMIC_DEFAULT)
    }
    assert alter(host, ME, (key, DELETE, None), kind=BROKER) == 0
    assert reported(host, ME, key, kind=BROKER) == {key: ("1000000", FROM_STATIC)}


def test_appending_to_a_list_for_every_broker_ignores_the_brokers_own_value(
    host: AdminHost,
) -> None:
    assert alter(host, ME, ("log.cleanup.policy", SET, "compact"), kind=BROKER) == 0
    assert alter(host, EVERY_BROKER, ("log.cleanup.policy", APPEND, "compact"), kind=BROKER) == 0
    assert host.broker.config.dynamic_defaults == {"log.cleanup.policy": "delete,compact"}
    assert reported(host, "plain", "cleanup.policy") == {
        "cleanup.policy": ("compact", FROM_DYNAMIC)
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num.partitions", "3"),
        ("num.partitons", "1"),
        ("barnabas.no.such.key", "1"),
        ("zookeeper.connect", "host:2181"),
        ("log.segment.bytes", "x"),
        ("sasl.kerberos.min.time.before.relogin", "58000"),
    ],
)
def test_settings_that_are_static_or_invalid_are_refused_for_every_broker(
    host: AdminHost, name: str, value: str
) -> None:
    assert alter(host, EVERY_BROKER, (name, SET, value), kind=BROKER) == Code.INVALID_REQUEST
    assert replace(host, EVERY_BROKER, {name: value}, kind=BROKER) == Code.INVALID_REQUEST
    assert reported(host, EVERY_BROKER, kind=BROKER) == {}


# --- of Kafka's, that nothing here heeds --------------------------------------------------------


def test_dynamic_settings_that_only_kafka_uses_are_stored_and_described(host: AdminHost) -> None:
    """librdkafka's test of AlterConfigs sets this key."""
    key = "sasl.kerberos.min.time.before.relogin"
    assert reported(host, ME, key, kind=BROKER) == {key: ("60000", FROM_DEFAULT)}
    assert replace(host, ME, {key: "58000"}, kind=BROKER) == 0
    host.restart()
    assert reported(host, ME, key, kind=BROKER) == {key: ("58000", FROM_DYNAMIC)}
    assert not describe(host, ME, key, kind=BROKER).configs[0].read_only
    assert alter(host, ME, (key, SET, "soon"), kind=BROKER) == Code.INVALID_REQUEST
    assert (
        alter(
            host,
            EVERY_BROKER,
            ("metric.reporters", APPEND, "a.B"),
            ("max.connections", SET, "9"),
            kind=BROKER,
        )
        == 0
    )
    assert reported(host, ME, "metric.reporters", "max.connections", kind=BROKER) == {
        "metric.reporters": ("a.B", FROM_DYNAMIC_DEFAULT),
        "max.connections": ("9", FROM_DYNAMIC_DEFAULT),
    }


@pytest.mark.parametrize(
    "name",
    ["ssl.keystore.location", "ssl.client.auth", "sasl.enabled.mechanisms", "sasl.jaas.config"],
)
def test_settings_that_would_protect_something_are_refused(host: AdminHost, name: str) -> None:
    assert alter(host, ME, (name, SET, "x"), kind=BROKER) == Code.INVALID_REQUEST


# --- loggers ------------------------------------------------------------------------------------


@pytest.fixture
def levels() -> Iterator[None]:
    """Restore the loggers' levels after the test."""
    names = ("", "barnabas", "barnabas.tests", "barnabas.tests.one")
    before = [logging.getLogger(name).level for name in names]
    yield
    for name, level in zip(names, before, strict=True):
        logging.getLogger(name).setLevel(level)


def level_of(host: AdminHost, name: str) -> str | None:
    return reported(host, ME, name, kind=BROKER_LOGGER).get(name, (None, 0))[0]


@pytest.mark.usefixtures("levels")
def test_loggers_are_described_with_their_effective_level(host: AdminHost) -> None:
    logging.getLogger().setLevel(logging.ERROR)
    logging.getLogger("barnabas").setLevel(logging.NOTSET)
    logging.getLogger("barnabas.tests").setLevel(logging.DEBUG)
    logging.getLogger("barnabas.tests.one").setLevel(logging.NOTSET)
    found = reported(host, ME, kind=BROKER_LOGGER)
    assert found["root"] == found["barnabas"] == ("ERROR", FROM_LOGGER)
    assert found["barnabas.tests"] == found["barnabas.tests.one"] == ("DEBUG", FROM_LOGGER)
    (row,) = describe(host, ME, "root", kind=BROKER_LOGGER, synonyms=True).configs
    assert (row.read_only, row.is_sensitive, row.synonyms) == (False, False, [])


@pytest.mark.usefixtures("levels")
@pytest.mark.parametrize(
    ("level", "number"),
    [("TRACE", 5), ("DEBUG", 10), ("INFO", 20), ("WARN", 30), ("ERROR", 40), ("FATAL", 50)],
)
def test_levels_are_set_by_log4js_names(host: AdminHost, level: str, number: int) -> None:
    one = logging.getLogger("barnabas.tests.one")
    assert (
        alter(host, ME, ("barnabas.tests.one", SET, level), kind=BROKER_LOGGER, validate_only=True)
        == 0
    )
    assert one.level == logging.NOTSET
    assert alter(host, ME, ("barnabas.tests.one", SET, level), kind=BROKER_LOGGER) == 0
    assert (one.level, level_of(host, "barnabas.tests.one")) == (number, level)
    assert alter(host, ME, ("barnabas.tests.one", DELETE, None), kind=BROKER_LOGGER) == 0
    assert one.level == logging.NOTSET
    assert host.broker.metadata.broker_configs == {}


@pytest.mark.usefixtures("levels")
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("barnabas.nobody", SET, "INFO"), Code.INVALID_CONFIG),
        (("barnabas.nobody", DELETE, None), Code.INVALID_CONFIG),
        (("barnabas.tests.one", SET, "LOUD"), Code.INVALID_CONFIG),
        (("barnabas.tests.one", SET, "info"), Code.INVALID_CONFIG),
        (("barnabas.tests.one", SET, None), Code.INVALID_REQUEST),
        (("barnabas.tests.one", APPEND, "INFO"), Code.INVALID_REQUEST),
        (("barnabas.tests.one", SUBTRACT, "INFO"), Code.INVALID_REQUEST),
        (("barnabas.tests.one", 9, "INFO"), Code.INVALID_REQUEST),
        (("root", DELETE, None), Code.INVALID_REQUEST),
    ],
    ids=str,
)
def test_invalid_logger_changes_change_nothing(
    host: AdminHost, change: tuple[str, int, str | None], code: Code
) -> None:
    logging.getLogger("barnabas.tests").setLevel(logging.INFO)
    logging.getLogger("barnabas.tests.one")
    before = reported(host, ME, kind=BROKER_LOGGER)
    assert alter(host, ME, ("barnabas.tests", SET, "FATAL"), change, kind=BROKER_LOGGER) == code
    assert reported(host, ME, kind=BROKER_LOGGER) == before


def test_loggers_are_not_replaced(host: AdminHost) -> None:
    """KIP-412: the older request, AlterConfigs, does not support loggers."""
    assert replace(host, ME, {"root": "INFO"}, kind=BROKER_LOGGER) == Code.INVALID_REQUEST


# --- what has settings --------------------------------------------------------------------------


def test_config_resources_are_listed_by_type(host: AdminHost) -> None:
    """KIP-1142: a request without types lists every type; version 0 lists only client metrics."""
    assert replace(host, "s", {"interval.ms": "100"}, kind=CLIENT_METRICS) == 0
    answer = host.call(ListConfigResourcesRequest(), 1)
    everything = {(row.resource_type, row.resource_name) for row in answer.config_resources}
    topics = {(TOPIC, name) for name in host.broker.metadata.topics}
    assert topics
    assert everything == topics | {(BROKER, ME), (BROKER_LOGGER, ME), (CLIENT_METRICS, "s")}
    answer = host.call(ListConfigResourcesRequest([BROKER, CLIENT_METRICS, BROKER]), 1)
    assert [(row.resource_type, row.resource_name) for row in answer.config_resources] == [
        (BROKER, ME),
        (CLIENT_METRICS, "s"),
    ]
    assert subscriptions(host) == ["s"]


@pytest.mark.parametrize("kind", [0, 1, 3, -1])
def test_a_type_that_there_is_not_is_refused(host: AdminHost, kind: int) -> None:
    answer = host.call(ListConfigResourcesRequest([TOPIC, kind]), 1)
    assert (answer.error_code, answer.config_resources) == (Code.UNSUPPORTED_VERSION, [])


# --- client metrics -----------------------------------------------------------------------------


def subscriptions(host: AdminHost) -> list[str]:
    """Return the names of the client metrics subscriptions, using a request of version 0."""
    answer = host.call(ListConfigResourcesRequest(), 0)
    assert answer.error_code == Code.NONE
    return [row.resource_name for row in answer.config_resources]


def test_subscriptions_of_client_metrics_are_stored_and_described(host: AdminHost) -> None:
    defaults = {
        "interval.ms": ("300000", FROM_DEFAULT), "match": ("", FROM_DEFAULT),
        "metrics": ("", FROM_DEFAULT),
    }  # fmt: skip
    assert (reported(host, "s", kind=CLIENT_METRICS), subscriptions(host)) == (defaults, [])
    matching = "client_software_name=Java, client_software_version=11.1.*"
    assert (
        alter(host, "s", ("interval.ms", SET, "100"), ("match", SET, matching), kind=CLIENT_METRICS)
        == 0
    )
    assert replace(host, "other", {"metrics": "org.apache."}, kind=CLIENT_METRICS) == 0
    host.restart()
    assert reported(host, "s", kind=CLIENT_METRICS) == {
        "interval.ms": ("100", FROM_SUBSCRIPTION),
        "match": (matching, FROM_SUBSCRIPTION),
        "metrics": ("", FROM_DEFAULT),
    }
    rows = describe(host, "s", kind=CLIENT_METRICS, synonyms=True).configs
    synonyms = [[(one.name, one.value, one.source) for one in row.synonyms] for row in rows]
    assert synonyms == [
        [("interval.ms", "100", FROM_SUBSCRIPTION)], [("match", matching, FROM_SUBSCRIPTION)], [],
    ]  # fmt: skip
    assert subscriptions(host) == ["s", "other"]
    assert (
        alter(
            host, "s", ("interval.ms", DELETE, None), ("match", DELETE, None), kind=CLIENT_METRICS
        )
        == 0
    )
    assert subscriptions(host) == ["other"]
    host.restart()
    assert subscriptions(host) == ["other"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("no.such.key", SET, "1"), Code.INVALID_REQUEST),
        (("interval.ms", SET, "99"), Code.INVALID_REQUEST),
        (("interval.ms", SET, "3600001"), Code.INVALID_REQUEST),
        (("interval.ms", SET, "often"), Code.INVALID_REQUEST),
        (("interval.ms", SET, None), Code.INVALID_REQUEST),
        (("match", SET, "client_id"), Code.INVALID_CONFIG),
        (("match", SET, "client_id="), Code.INVALID_CONFIG),
        (("match", SET, "client_id=a=b"), Code.INVALID_CONFIG),
        (("match", SET, "shoe_size=44"), Code.INVALID_CONFIG),
        (("match", SET, ""), Code.INVALID_CONFIG),
        (("match", APPEND, "client_id=a"), Code.INVALID_CONFIG),
    ],
    ids=str,
)
def test_invalid_client_metrics_subscriptions_are_refused(
    host: AdminHost, change: tuple[str, int, str | None], code: Code
) -> None:
    assert alter(host, "s", ("metrics", SET, "org."), change, kind=CLIENT_METRICS) == code
    assert subscriptions(host) == []


# --- replaced -----------------------------------------------------------------------------------


def test_alter_configs_removes_settings_that_it_does_not_name(host: AdminHost) -> None:
    assert replace(host, "t", {"max.message.bytes": "5000"}) == 0
    assert host.broker.metadata.topics["t"].configs == {"max.message.bytes": "5000"}
    for configs, code in (
        ({"retention.ms": "abc"}, Code.INVALID_CONFIG),
        ({"no.such.key": "1"}, Code.INVALID_CONFIG),
        ({"retention.ms": None}, Code.INVALID_REQUEST),
    ):
        assert replace(host, "t", configs) == code
        assert host.broker.metadata.topics["t"].configs == {"max.message.bytes": "5000"}
    assert replace(host, "t", {}) == 0
    assert host.broker.metadata.topics["t"].configs == {}
    assert alter(host, ME, ("message.max.bytes", SET, "5000"), kind=BROKER) == 0
    assert replace(host, ME, {"log.segment.bytes": "2000000"}, kind=BROKER) == 0
    assert host.broker.config.dynamic == {"log.segment.bytes": "2000000"}
