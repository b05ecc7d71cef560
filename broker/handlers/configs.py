"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListClientMetricsResources.

resource           name     what may be set on it                       kept
TOPIC 2            a topic  its settings (KIP-133)                      in the metadata journal
BROKER 4           node.id  the broker's dynamic settings (KIP-226)     in the metadata journal
BROKER 4           ""       the same, for every broker                  in the metadata journal
BROKER_LOGGER 8    node.id  the levels of loggers (KIP-412); only       until the process ends
                            IncrementalAlterConfigs sets them (KIP-339)
CLIENT_METRICS 16  any      a subscription (KIP-714)                    in the metadata journal
GROUP 32           any      a consumer group's timeouts (KIP-848)       in the metadata journal
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

from barnabas.broker.admission import guards, rights
from barnabas.broker.admission.guard_steps import Ask, Rule, by_hand, on_cluster, rule
from barnabas.broker.api_row import ApiRow
from barnabas.broker.brokers.cluster import Cluster
from barnabas.broker.logs.metadata import Topic
from barnabas.broker.logs.topic_names import check_topic_name
from barnabas.broker.logs.topics import TopicRegistry
from barnabas.broker.parts import Parts
from barnabas.broker.requests.wide_requests import Repeats, Shape, of_rows
from barnabas.broker.security.acls import Operation as Right
from barnabas.broker.settings import loggers
from barnabas.broker.settings.client_metrics import check_client_metrics
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.config_entries import (
    ConfigEntry,
    broker_default_entries,
    broker_entries,
    client_metrics_entries,
    group_entries,
    is_read_only,
    logger_entries,
    topic_entries,
)
from barnabas.broker.settings.features import Release
from barnabas.broker.settings.group_configs import check_group_configs
from barnabas.broker.settings.rows_topic import TOPIC_SETTINGS
from barnabas.broker.settings.rows_without_effect import (
    ALL_BROKER_SETTINGS,
    why_ignored,
    why_refused,
)
from barnabas.broker.settings.setting import (
    OWN_PREFIX,
    ConfigError,
    Kind,
    Setting,
    likely,
    nearest,
)
from barnabas.broker.settings.topic_config import (
    check_segment_bytes,
    topic_setting_value,
    validate_topic_configs,
)
from barnabas.protocol.api import FEW, Api
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.messages import alter_configs as plain
from barnabas.protocol.messages import incremental_alter_configs as incremental
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from barnabas.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from barnabas.protocol.request_context import RequestContext

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
KINDS = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)
RESOURCE_TYPES_SINCE = 1  # version of ListConfigResources
EVERY_BROKER = ""
# Unknown settings of a broker are stored without effect, within these bounds.
MOST_UNKNOWN, LONGEST_UNKNOWN_NAME, LONGEST_UNKNOWN_VALUE = 32, 249, 4096


class Operation(IntEnum):
    """An operation of IncrementalAlterConfigs on a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigHandler:
    """Answers the requests that read and change settings."""

    __slots__ = (
        "_cluster",
        "_config",
        "_topics",
    )

    def __init__(self, config: BrokerConfig, topics: TopicRegistry, cluster: Cluster) -> None:
        self._config = config
        self._topics = topics
        self._cluster = cluster

    def on_describe_configs(
        self, request: DescribeConfigsRequest, context: RequestContext
    ) -> DescribeConfigsResponse:
        """The named settings with their values and the sources of the values. An empty list or null
        asks for all settings.

        Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION; INVALID_REQUEST for another
        broker, and for all resources if one is of another kind.
        """
        results = []
        unknown = [one.resource_type for one in request.resources if one.resource_type not in KINDS]
        for resource in request.resources:
            code, message = Code.NONE, None
            rows: list[DescribeConfigsResourceResult] = []
            try:
                _check_resource_type(unknown[0] if unknown else resource.resource_type)
                wanted = set(resource.configuration_keys or ())
                for entry in self._entries(resource.resource_type, resource.resource_name, context):
                    if not wanted or entry.setting.name in wanted:
                        rows.append(_described(entry, request, resource.resource_type))
            except KafkaError as error:
                code, message = error.code, error.message
            results.append(
                DescribeConfigsResult(
                    code, message, resource.resource_type, resource.resource_name, rows
                )
            )
        return DescribeConfigsResponse(results=results)

    def _entries(self, resource_type: int, name: str, context: RequestContext) -> list[ConfigEntry]:
        """All settings of a resource. Raises: KafkaError if the resource does not exist, or is
        another broker.
        """
        if resource_type == TOPIC:
            return topic_entries(self._config, self._topic(name).configs)
        if resource_type == CLIENT_METRICS:
            _check_subscription_name(name)
            return client_metrics_entries(self._topics.metadata.client_metrics.get(name, {}))
        if resource_type == GROUP:
            _check_group_name(name)
            return group_entries(self._config, self._topics.metadata.group_configs.get(name, {}))
        if resource_type == BROKER_LOGGER:
            self._check_broker_asked(name, context)
            return logger_entries(loggers.levels())
        if name == EVERY_BROKER:
            return broker_default_entries(self._config)
        self._check_broker_asked(name, context)
        entries = broker_entries(self._config)
        if not self._cluster.is_one:
            entries = [entry._replace(value=name) if entry.setting.name == "node.id" else entry
                       for entry in entries]  # fmt: skip
        return entries

    def _topic(self, name: str) -> Topic:
        """The topic with that name. Raises: KafkaError."""
        check_topic_name(name)
        topic = self._topics.metadata.topic(name)
        if topic is None:
            raise KafkaError(Code.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
        return topic

    def _check_broker_asked(self, name: str, context: RequestContext) -> None:
        """Raise KafkaError INVALID_REQUEST if the name is the id of another broker."""
        self._check_broker_name(name)
        node_id = self._cluster.node_id_here(context)
        if name != str(node_id):
            raise KafkaError(
                Code.INVALID_REQUEST,
                f"This is broker {node_id}: send the request to broker {name}.",
            )

    def _check_broker_name(self, name: str) -> None:
        """Raise KafkaError INVALID_REQUEST if no broker has that id."""
        if not self._cluster.is_one:
            if name not in map(str, self._cluster.nodes):
                raise KafkaError(
                    Code.INVALID_REQUEST,
                    f"There is no broker '{name}': the brokers are {list(self._cluster.nodes)}.",
                )
            return
        if name != str(self._cluster.node_id):
            raise KafkaError(
                Code.INVALID_REQUEST,
                f"There is no broker '{name}': name the broker '{self._cluster.node_id}', which is "
                "the only one.",
            )

    def on_list_config_resources(
        self, request: ListConfigResourcesRequest, context: RequestContext
    ) -> ListConfigResourcesResponse:
        """The names of all resources with settings, of the requested types; of every type if none
        is given (KIP-1142).

        Version 0 is ListClientMetricsResources, which lists only the subscriptions of clients'
        metrics. Errors: UNSUPPORTED_VERSION for an unknown type.
        """
        brokers = [str(node.node_id) for node in self._cluster.nodes_there()]
        names = {
            TOPIC: list(self._topics.metadata.topics),
            BROKER: brokers,
            BROKER_LOGGER: brokers,
            CLIENT_METRICS: list(self._topics.metadata.client_metrics),
            GROUP: list(self._topics.metadata.group_configs),
        }
        wanted = [CLIENT_METRICS]
        if context.api_version >= RESOURCE_TYPES_SINCE:
            wanted = list(dict.fromkeys(request.resource_types)) or list(names)
        if not set(wanted) <= set(names):
            return ListConfigResourcesResponse(error_code=Code.UNSUPPORTED_VERSION)
        resources = [ConfigResource(name, kind) for kind in wanted for name in names[kind]]
        return ListConfigResourcesResponse(config_resources=resources)

    def on_alter_configs(
        self, request: plain.AlterConfigsRequest, context: RequestContext
    ) -> plain.AlterConfigsResponse:
        """Replace all settings of a resource. Settings that the request does not name return to
        their defaults.

        Errors: as IncrementalAlterConfigs.
        """
        outcomes = self._alter(request.validate_only, request.resources, self._replace)
        return plain.AlterConfigsResponse(
            responses=[plain.AlterConfigsResourceResponse(*one) for one in outcomes]
        )

    def on_incremental_alter_configs(
        self, request: incremental.IncrementalAlterConfigsRequest, context: RequestContext
    ) -> incremental.IncrementalAlterConfigsResponse:
        """Set, delete, append to or subtract from settings of resources. Either all changes of a
        resource are made or none.

        Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_CONFIG; INVALID_REQUEST
        for a resource or a key given twice, a null value, another broker or kind of resource, a
        broker setting that cannot change at run time, and an operation that loggers do not support;
        UNKNOWN_SERVER_ERROR for an unknown operation.
        """
        outcomes = self._alter(request.validate_only, request.resources, self._change)
        rows = [incremental.AlterConfigsResourceResponse(*one) for one in outcomes]
        return incremental.IncrementalAlterConfigsResponse(responses=rows)

    def _alter(
        self,
        validate_only: bool,
        resources: Sequence[Resource],
        change: Callable[[bool, Resource], None],
    ) -> list[_Outcome]:
        """Change each resource; an error of one does not affect the others."""
        counts: dict[tuple[int, str], int] = {}
        for resource in resources:
            key = (resource.resource_type, resource.resource_name)
            counts[key] = counts.get(key, 0) + 1
        rows = []
        for resource in resources:
            code, message = Code.NONE, None
            key = (resource.resource_type, resource.resource_name)
            try:
                if counts[key] > 1:
                    raise KafkaError(
                        Code.INVALID_REQUEST,
                        f"The resource '{resource.resource_name}' is named more than once in this "
                        "request: name it once.",
                    )
                _check_keys(resource)
                change(validate_only, resource)
            except KafkaError as error:
                code, message = error.code, error.message
            rows.append(_Outcome(code, message, *key))
        return rows

    def _replace(self, validate_only: bool, resource: plain.AlterConfigsResource) -> None:
        """Replace all settings of a resource (AlterConfigs). Raises: KafkaError."""
        _store(
            validate_only,
            self._target(resource.resource_type, resource.resource_name),
            {config.name: _value(config) for config in resource.configs},
        )

    def _change(self, validate_only: bool, resource: incremental.AlterConfigsResource) -> None:
        """Change some settings of a resource, or the levels of loggers (IncrementalAlterConfigs).
        Raises: KafkaError.
        """
        if resource.resource_type == BROKER_LOGGER:
            self._check_broker_name(resource.resource_name)
            _change_levels(resource.configs, validate_only=validate_only)
            return
        target = self._target(resource.resource_type, resource.resource_name)
        _store(validate_only, target, _changed(target, resource))

    def _target(self, resource_type: int, name: str) -> _Target:
        """Where the settings of a resource are stored, and how they are checked. Raises: KafkaError
        if the resource cannot be altered.
        """
        if resource_type == TOPIC:
            return self._topic_target(name)
        if resource_type == CLIENT_METRICS:
            _check_subscription_name(name)
            return _Target(
                {},  # as in Apache Kafka, a subscription's lists cannot be appended to
                self._topics.metadata.client_metrics.get(name, {}),
                Code.INVALID_CONFIG,
                lambda key: None,
                check_client_metrics,
                lambda configs: self._topics.metadata.set_client_metrics(name, configs),
            )
        if resource_type == GROUP:
            _check_group_name(name)
            return _Target(
                {},  # a group has no lists that could be appended to
                self._topics.metadata.group_configs.get(name, {}),
                Code.INVALID_CONFIG,
                lambda key: None,
                lambda configs: check_group_configs(self._config, configs),
                lambda configs: self._topics.metadata.set_group_configs(name, configs),
            )
        _check_resource_type(resource_type, (BROKER,))
        if name == EVERY_BROKER:
            return _Target(
                ALL_BROKER_SETTINGS,
                self._config.dynamic_defaults,
                Code.INVALID_REQUEST,
                self._config.default_value,
                lambda configs: _check_broker_default_configs(self._config.release, configs),
                self._topics.set_broker_default_configs,
            )
        self._check_broker_name(name)
        return _Target(
            ALL_BROKER_SETTINGS,
            self._config.dynamic,
            Code.INVALID_REQUEST,
            lambda key: self._config[key],
            lambda configs: _check_broker_configs(self._config.release, configs),
            self._topics.set_broker_configs,
        )

    def _topic_target(self, name: str) -> _Target:
        """The target for a topic. Whether the topic exists is checked after the settings, see
        `_check_topic_configs`.
        """
        check_topic_name(name)
        topic = self._topics.metadata.topic(name)
        own = {} if topic is None else topic.configs
        return _Target(
            TOPIC_SETTINGS,
            own,
            Code.INVALID_CONFIG,
            lambda key: topic_setting_value(self._config, own, key),
            lambda configs: self._check_topic_configs(name, configs),
            lambda configs: self._topics.set_topic_configs(name, configs),
        )

    def _check_topic_configs(self, name: str, configs: dict[str, str]) -> None:
        """Check the settings first, and then that the topic exists, as Kafka does: a request with
        both errors gets that of the settings.

        Raises: KafkaError INVALID_CONFIG, UNKNOWN_TOPIC_OR_PARTITION.
        """
        try:
            validate_topic_configs(configs, self._config.release)
        except ConfigError as error:
            raise KafkaError(Code.INVALID_CONFIG, str(error)) from error
        self._topic(name)


def _described(
    entry: ConfigEntry, request: DescribeConfigsRequest, resource_type: int
) -> DescribeConfigsResourceResult:
    """A setting as DescribeConfigs returns it."""
    setting = entry.setting
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=entry.value,
        read_only=resource_type == BROKER and is_read_only(setting),
        config_source=entry.source,
        # Apache Kafka returns false for every setting in the versions that have `config_source`.
        is_default=False,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(synonym.name, synonym.value, synonym.source)
            for synonym in synonyms
        ],
        config_type=setting.kind.number,
        documentation=setting.doc if request.include_documentation else None,
    )


def _check_resource_type(resource_type: int, kinds: Sequence[int] = KINDS) -> None:
    if resource_type not in kinds:
        raise KafkaError(
            Code.INVALID_REQUEST,
            f"Resources of type {resource_type} have no settings, or this request does not "
            f"support them: use topics ({TOPIC}), brokers ({BROKER}), loggers ({BROKER_LOGGER}; "
            f"not by AlterConfigs), client metrics ({CLIENT_METRICS}) or groups ({GROUP}).",
        )


def _check_subscription_name(name: str) -> None:
    if not name:
        raise KafkaError(
            Code.INVALID_REQUEST, "A subscription of client metrics needs a name: give one."
        )


def _check_group_name(name: str) -> None:
    if not name:
        raise KafkaError(Code.INVALID_REQUEST, "A group needs a name: give one.")


# --- changing -----------------------------------------------------------------------------------


class _Target(NamedTuple):
    """The resource whose settings are changed.

    settings: the settings to which members may be appended. effective: a function that returns the
    effective value of such a setting. configs: the values set on the resource so far. refusal: the
    error code for an invalid setting.
    """

    settings: Mapping[str, Setting[Any]]
    configs: dict[str, str]
    refusal: Code
    effective: Callable[[str], Any]
    check: Callable[[dict[str, str]], None]
    store: Callable[[dict[str, str]], None]


Resource = TypeVar("Resource", plain.AlterConfigsResource, incremental.AlterConfigsResource)
AlterableConfig = plain.AlterableConfig | incremental.AlterableConfig


class _Outcome(NamedTuple):
    """The result for one resource, an entry of the response."""

    error_code: Code
    error_message: str | None
    resource_type: int
    resource_name: str


def _check_keys(resource: plain.AlterConfigsResource | incremental.AlterConfigsResource) -> None:
    """Raise KafkaError INVALID_REQUEST if a resource names a setting twice."""
    seen: set[str] = set()
    for config in resource.configs:
        if config.name in seen:
            raise KafkaError(
                Code.INVALID_REQUEST,
                f"The setting {config.name} is named more than once: name it once.",
            )
        seen.add(config.name)


def _store(validate_only: bool, target: _Target, configs: dict[str, str]) -> None:
    """Check the new settings of a resource, and store them if they differ and the request does not
    only validate.
    """
    target.check(configs)
    if not validate_only and configs != target.configs:
        target.store(configs)


def _change_levels(configs: Iterable[incremental.AlterableConfig], *, validate_only: bool) -> None:
    """Set all levels of one request, or none."""
    levels = {config.name: _level(config) for config in configs}
    for name, level in {} if validate_only else levels.items():
        loggers.set_level(name, level)


def _level(config: incremental.AlterableConfig) -> str | None:
    """The level to set; None if the logger inherits the level of its parent."""
    if config.config_operation not in (Operation.SET, Operation.DELETE):
        raise KafkaError(
            Code.INVALID_REQUEST,
            f"The level of {config.name} can be set (0) or deleted (1), nothing else.",
        )
    if not loggers.exists(config.name):
        raise KafkaError(
            Code.INVALID_CONFIG,
            f"There is no logger {config.name}: DescribeConfigs lists the loggers.",
        )
    if config.config_operation == Operation.DELETE:
        if config.name == loggers.ROOT:
            raise KafkaError(
                Code.INVALID_REQUEST, f"The level of {loggers.ROOT} cannot be deleted: set it."
            )
        return None
    level = _value(config)
    if level not in loggers.LEVELS:
        raise KafkaError(
            Code.INVALID_CONFIG,
            f"{config.name}={level}: it must be one of {', '.join(loggers.LEVELS)}",
        )
    return level


def _changed(target: _Target, resource: incremental.AlterConfigsResource) -> dict[str, str]:
    """The settings of a resource after the operations of a request. Raises: KafkaError."""
    configs = dict(target.configs)
    for config in resource.configs:
        if config.config_operation == Operation.SET:
            configs[config.name] = _value(config)
        elif config.config_operation == Operation.DELETE:
            configs.pop(config.name, None)
        elif config.config_operation in (Operation.APPEND, Operation.SUBTRACT):
            configs[config.name] = _changed_list(target, config)
        else:
            raise KafkaError(
                Code.UNKNOWN_SERVER_ERROR,
                f"The operation {config.config_operation} on {config.name} is unknown: use 0 set, "
                "1 delete, 2 append or 3 subtract.",
            )
    return configs


def _value(config: AlterableConfig) -> str:
    """The value to set. Raises: KafkaError INVALID_REQUEST if it is null."""
    if config.value is None:
        raise KafkaError(
            Code.INVALID_REQUEST,
            f"The setting {config.name} has no value: give one, or delete the setting.",
        )
    return config.value


def _changed_list(target: _Target, config: incremental.AlterableConfig) -> str:
    """The value of a list after members are appended or subtracted; a list that was not set starts
    from its default.
    """
    setting = target.settings.get(config.name)
    if setting is None or setting.kind is not Kind.LIST:
        raise KafkaError(
            target.refusal,
            f"{config.name} is not a list: set it instead of appending or subtracting.",
        )
    given = [part.strip() for part in _value(config).split(",") if part.strip()]
    members = list(target.effective(config.name) or ())
    if config.config_operation == Operation.APPEND:
        members += [member for member in dict.fromkeys(given) if member not in members]
    else:
        members = [member for member in members if member not in given]
    return ",".join(members)


def _check_broker_default_configs(release: Release, configs: dict[str, str]) -> None:
    """Check dynamic settings for all brokers. Raises: KafkaError."""
    _check_broker_configs(release, configs)
    for name in configs:
        if name in ALL_BROKER_SETTINGS and ALL_BROKER_SETTINGS[name].per_broker:
            raise KafkaError(
                Code.INVALID_REQUEST,
                f"{name} cannot be set for all brokers at once: name one broker.",
            )


def _check_unknown(name: str, text: str) -> None:
    """Check a setting that is none here. Apache Kafka takes names that it does not know, since
    plugins have settings. Raises: KafkaError INVALID_REQUEST for a setting of Kafka's that cannot
    change at run time, or would protect something, and for a name that is probably misspelled.
    """
    if len(name) > LONGEST_UNKNOWN_NAME or len(text) > LONGEST_UNKNOWN_VALUE:
        raise KafkaError(
            Code.INVALID_REQUEST,
            f"{name[:40]}... is unknown, and its name or value is too long to be stored.",
        )
    reason = why_refused(name, text) or why_ignored(name)
    if reason is not None:
        raise KafkaError(Code.INVALID_REQUEST, f"{name} cannot be set: {reason}.")
    if _is_misspelled(name) or name.startswith(OWN_PREFIX):
        raise KafkaError(
            Code.INVALID_REQUEST,
            f"unknown broker setting {name}{nearest(name, ALL_BROKER_SETTINGS)}",
        )


@lru_cache(maxsize=8 * MOST_UNKNOWN)
def _is_misspelled(name: str) -> bool:
    """Whether an unknown name is probably one of ours. The comparison takes half a millisecond."""
    return likely(name, ALL_BROKER_SETTINGS) is not None


def _check_broker_configs(release: Release, configs: dict[str, str]) -> None:
    """Check dynamic settings of a broker. Raises: KafkaError."""
    unknown = [name for name in configs if name not in ALL_BROKER_SETTINGS]
    if len(unknown) > MOST_UNKNOWN:
        raise KafkaError(
            Code.INVALID_REQUEST,
            f"{len(unknown)} settings are unknown, such as {unknown[0][:40]}: at most "
            f"{MOST_UNKNOWN} are stored.",
        )
    for name, text in configs.items():
        if name in release.absent:
            raise KafkaError(
                Code.INVALID_REQUEST,
                f"Apache Kafka {release.name} has no {name} (barnabas.emulate)",
            )
        setting = ALL_BROKER_SETTINGS.get(name)
        if setting is None:
            _check_unknown(name, text)
            continue
        if not setting.dynamic:
            raise KafkaError(
                Code.INVALID_REQUEST,
                f"{name} cannot change while the broker runs: set it in the broker's config and "
                "restart it.",
            )
        try:
            check_segment_bytes(name, setting.parse(text), release)
        except ConfigError as error:
            raise KafkaError(Code.INVALID_REQUEST, str(error)) from error


# --- the APIs of this family ----------------------------------------------------------------------


def _handler(parts: Parts) -> ConfigHandler:
    return ConfigHandler(parts.config, parts.topics, parts.cluster)


def _of_configs(operation: Right) -> Rule:
    """The rule of a request for configs: the operation on each topic or group, and on the cluster
    for other resources.
    """
    of_cluster = "for brokers and clients' metrics"
    asks = (
        Ask(operation, rights.TOPIC),
        Ask(operation, rights.GROUP),
        Ask(operation, rights.CLUSTER, of_cluster),
    )
    return rule(by_hand(partial(guards.configs, operation=operation), *asks))


ROWS = (
    ApiRow(
        Api(32, "DescribeConfigs", 0, 4, flexible_from=4),
        right=_of_configs(rights.DESCRIBE_CONFIGS),
        shapes=(
            Shape(
                of_rows(
                    "resources", "results", "resource_type", "resource_name", "configuration_keys"
                ),
                at_once=10,
            ),
        ),
        handler=lambda parts: _handler(parts).on_describe_configs,
    ),
    ApiRow(
        Api(33, "AlterConfigs", 0, 2, flexible_from=2),
        right=_of_configs(rights.ALTER_CONFIGS),
        shapes=(
            Shape(
                of_rows("resources", "responses", "resource_type", "resource_name"),
                Repeats.PAIRED,
                50,
            ),
        ),
        handler=lambda parts: _handler(parts).on_alter_configs,
    ),
    ApiRow(
        Api(44, "IncrementalAlterConfigs", 0, 1, flexible_from=1),
        right=_of_configs(rights.ALTER_CONFIGS),
        shapes=(
            Shape(
                of_rows("resources", "responses", "resource_type", "resource_name"),
                Repeats.PAIRED,
                50,
            ),
        ),
        handler=lambda parts: _handler(parts).on_incremental_alter_configs,
    ),
    ApiRow(
        Api(74, "ListConfigResources", 0, 1, flexible_from=0, most_elements=FEW),
        right=rule(on_cluster(rights.DESCRIBE_CONFIGS)),
        handler=lambda parts: _handler(parts).on_list_config_resources,
    ),
)
