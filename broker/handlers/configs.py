"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: the settings of topics and of this broker (KIP-133, KIP-226, KIP-339)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.config import BROKER_SETTINGS, TOPIC_SETTINGS, ConfigError, Kind, Setting, nearest, topic_setting_value, validate_topic_configs
from broker.config_entries import ConfigEntry, broker_entries, topic_entries
from broker.outbox import Context
from broker.topic_names import check_topic_name
from protocol import messages
from protocol.errors import Code, KafkaError

if TYPE_CHECKING:
    from broker.core import Broker
    from broker.metadata import Topic

TOPIC, BROKER = 2, 4


class Operation(IntEnum):
    """What IncrementalAlterConfigs does to a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


# --- DescribeConfigs ----------------------------------------------------------------------------------------------------------------------


def on_describe_configs(broker: Broker, request: Any, context: Context) -> Any:
    """Settings with their values and where these come from; all, or those asked for that there are.

    Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION; INVALID_REQUEST for another broker or another kind of resource.
    """
    response_class = messages.message_class("admin", "DescribeConfigsResponse")
    result_class = response_class.DescribeConfigsResult
    results = []
    for asked in request.resources:
        code, message = Code.NONE, None
        rows: list[Any] = []
        try:
            wanted = asked.configuration_keys if asked.configuration_keys is None else set(asked.configuration_keys)
            for entry in _entries(broker, asked.resource_type, asked.resource_name):
                if wanted is None or entry.setting.name in wanted:
                    rows.append(_described(result_class.DescribeConfigsResourceResult, entry, request, asked.resource_type))
        except KafkaError as error:
            code, message = error.code, error.message
        results.append(
            result_class(
                error_code=int(code),
                error_message=message,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
                configs=rows,
            )
        )
    return response_class(throttle_time_ms=0, results=results)


def _entries(broker: Broker, resource_type: int, name: str) -> list[ConfigEntry]:
    if resource_type == TOPIC:
        return topic_entries(broker.config, _topic(broker, name).configs)
    _check_broker_resource(broker, resource_type, name)
    return broker_entries(broker.config)


def _described(row_class: Any, entry: ConfigEntry, request: Any, resource_type: int) -> Any:
    setting = entry.setting
    synonym_class = row_class.DescribeConfigsSynonym
    synonyms = entry.synonyms if request.include_synonyms else ()
    return row_class(
        name=setting.name,
        value=entry.value,
        read_only=resource_type == BROKER and not setting.dynamic,
        config_source=int(entry.source),
        is_default=False,  # as Apache Kafka answers since it tells of sources
        is_sensitive=entry.is_sensitive,
        synonyms=[synonym_class(name=synonym.name, value=synonym.value, source=int(synonym.source)) for synonym in synonyms],
        config_type=setting.kind.number,
        documentation=setting.doc if request.include_documentation else None,
    )


def _topic(broker: Broker, name: str) -> Topic:
    check_topic_name(name)
    topic = broker.metadata.topic(name)
    if topic is None:
        raise KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
    return topic


def _check_broker_resource(broker: Broker, resource_type: int, name: str) -> None:
    if resource_type != BROKER:
        raise KafkaError(
            Code.INVALID_REQUEST,
            f"Resources of type {resource_type} have no settings here: ask for topics ({TOPIC}) or brokers ({BROKER}).",
        )
    if name != str(broker.node_id):
        raise KafkaError(Code.INVALID_REQUEST, f"There is no broker '{name}': name the broker '{broker.node_id}', which is the only one.")


# --- changing -----------------------------------------------------------------------------------------------------------------------------


class _Target(NamedTuple):
    """What is changed. configs: what is set on it now; refusal: the code for what may not be set on it."""

    settings: Mapping[str, Setting]
    configs: dict[str, str]
    refusal: Code
    effective: Callable[[str], Any]
    check: Callable[[dict[str, str]], None]
    store: Callable[[dict[str, str]], None]


Change = Callable[[_Target, Any], dict[str, str]]


def on_alter_configs(broker: Broker, request: Any, context: Context) -> Any:
    """Replace all that is set on a resource: what is not named falls back to its default. Errors: as IncrementalAlterConfigs."""
    return _alter(broker, request, context, messages.message_class("admin", "AlterConfigsResponse"), _replaced)


def on_incremental_alter_configs(broker: Broker, request: Any, context: Context) -> Any:
    """Set, delete, append to or subtract from settings of a resource: all changes of one, or none.

    Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_CONFIG; INVALID_REQUEST for a resource or a key given twice, a null
    value, another broker or kind, and whatever a broker may not be told at run time; UNKNOWN_SERVER_ERROR for an unknown operation.
    """
    return _alter(broker, request, context, messages.message_class("admin", "IncrementalAlterConfigsResponse"), _changed)


def _alter(broker: Broker, request: Any, context: Context, response_class: Any, change: Change) -> Any:
    counts: dict[tuple[int, str], int] = {}
    for asked in request.resources:
        key = (asked.resource_type, asked.resource_name)
        counts[key] = counts.get(key, 0) + 1
    rows = []
    for asked in request.resources:
        code, message = Code.NONE, None
        key = (asked.resource_type, asked.resource_name)
        try:
            if counts[key] > 1:
                raise KafkaError(
                    Code.INVALID_REQUEST, f"The resource '{asked.resource_name}' is named more than once in this request: name it once."
                )
            _check_keys(asked)
            target = _target(broker, asked.resource_type, asked.resource_name, context.now_ms)
            configs = change(target, asked)
            target.check(configs)
            if not request.validate_only and configs != target.configs:
                target.store(configs)
        except KafkaError as error:
            code, message = error.code, error.message
        rows.append(
            response_class.AlterConfigsResourceResponse(
                error_code=int(code), error_message=message, resource_type=asked.resource_type, resource_name=asked.resource_name
            )
        )
    return response_class(throttle_time_ms=0, responses=rows)


def _check_keys(asked: Any) -> None:
    seen: set[str] = set()
    for config in asked.configs:
        if config.name in seen:
            raise KafkaError(Code.INVALID_REQUEST, f"The setting {config.name} is named more than once: name it once.")
        seen.add(config.name)


def _replaced(target: _Target, asked: Any) -> dict[str, str]:
    return {config.name: _value(config) for config in asked.configs}


def _changed(target: _Target, asked: Any) -> dict[str, str]:
    configs = dict(target.configs)
    for config in asked.configs:
        if config.config_operation == Operation.SET:
            configs[config.name] = _value(config)
        elif config.config_operation == Operation.DELETE:
            configs.pop(config.name, None)
        elif config.config_operation in (Operation.APPEND, Operation.SUBTRACT):
            configs[config.name] = _changed_list(target, config)
        else:
            raise KafkaError(
                Code.UNKNOWN_SERVER_ERROR,
                f"The operation {config.config_operation} on {config.name} is unknown: use 0 set, 1 delete, 2 append or 3 subtract.",
            )
    return configs


def _value(config: Any) -> str:
    if config.value is None:
        raise KafkaError(Code.INVALID_REQUEST, f"The setting {config.name} has no value: give one, or delete the setting.")
    value: str = config.value
    return value


def _changed_list(target: _Target, config: Any) -> str:
    """What a list is after members were appended to it or subtracted from it: from its default if it was not set."""
    setting = target.settings.get(config.name)
    if setting is None or setting.kind is not Kind.LIST:
        raise KafkaError(target.refusal, f"{config.name} is no list: nothing can be appended to it or subtracted from it; set it instead.")
    given = [part.strip() for part in _value(config).split(",") if part.strip()]
    members = list(target.effective(config.name) or ())
    if config.config_operation == Operation.APPEND:
        members += [member for member in dict.fromkeys(given) if member not in members]
    else:
        members = [member for member in members if member not in given]
    return ",".join(members)


def _target(broker: Broker, resource_type: int, name: str, now_ms: int) -> _Target:
    if resource_type == TOPIC:
        topic = _topic(broker, name)
        return _Target(
            TOPIC_SETTINGS,
            topic.configs,
            Code.INVALID_CONFIG,
            lambda key: topic_setting_value(broker.config, topic.configs, key),
            _check_topic_configs,
            lambda configs: broker.set_topic_configs(name, configs, now_ms),
        )
    _check_broker_resource(broker, resource_type, name)
    return _Target(
        BROKER_SETTINGS,
        broker.config.dynamic,
        Code.INVALID_REQUEST,
        lambda key: broker.config[key],
        _check_broker_configs,
        broker.set_broker_configs,
    )


def _check_topic_configs(configs: dict[str, str]) -> None:
    try:
        validate_topic_configs(configs)
    except ConfigError as error:
        raise KafkaError(Code.INVALID_CONFIG, str(error)) from error


def _check_broker_configs(configs: dict[str, str]) -> None:
    for name, text in configs.items():
        setting = BROKER_SETTINGS.get(name)
        if setting is None:
            raise KafkaError(Code.INVALID_REQUEST, f"unknown broker setting {name}{nearest(name, BROKER_SETTINGS)}")
        if not setting.dynamic:
            raise KafkaError(
                Code.INVALID_REQUEST, f"{name} cannot change while the broker runs: set it in the broker's config and restart it."
            )
        try:
            setting.parse(text)
        except ConfigError as error:
            raise KafkaError(Code.INVALID_REQUEST, str(error)) from error
