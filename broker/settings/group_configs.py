"""The settings of a single group: of a consumer group (KIP-848), a share group (KIP-932) or a
streams group (KIP-1071).

A setting of a group overrides the broker's `group.<setting>`, if there is one. Its value has to be
within the broker's `group.<kind>.min.…` and `….max.…`. A group need not exist to have settings.

If a value was accepted, but a later start has narrower bounds, the value is limited to them, as in
Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.offset_reset import OffsetResetSetting
from barnabas.broker.settings.rows_broker import BROKER_SETTINGS
from barnabas.broker.settings.setting import ConfigError, Setting, boolean, integer, nearest, string
from barnabas.protocol.errors import Code, KafkaError

SESSION_TIMEOUT = "session.timeout.ms"
HEARTBEAT_INTERVAL = "heartbeat.interval.ms"
NO_CONFIGS: Mapping[str, Any] = {}

_CONSUMER_ROWS: tuple[Setting[Any], ...] = (
    integer(
        1000,
        "The shortest time between two computations of the group's assignment; 0: at each change.",
        name="consumer.assignment.interval.ms",
        lowest=0,
    ),
    integer(
        5000,
        "How often members of the group send heartbeats.",
        name="consumer.heartbeat.interval.ms",
        lowest=1,
    ),
    integer(
        45_000,
        "How long a member may be silent before it is removed.",
        name="consumer.session.timeout.ms",
        lowest=1,
    ),
)
_SHARE_ROWS: tuple[Setting[Any], ...] = (
    integer(
        1000,
        "The shortest time between two computations of the share group's assignment; 0: at each "
        "change.",
        name="share.assignment.interval.ms",
        lowest=0,
    ),
    OffsetResetSetting(
        "share.auto.offset.reset",
        "Where the group begins in a partition: earliest, latest, or by_duration:DURATION, an ISO "
        "8601 duration before now.",
    ),
    integer(
        5,
        "How often a record is delivered before it is given up.",
        name="share.delivery.count.limit",
        lowest=2,
    ),
    integer(
        5000,
        "How often members of the share group send heartbeats.",
        name="share.heartbeat.interval.ms",
        lowest=1,
    ),
    string(
        "read_uncommitted",
        "read_committed: records of transactions are delivered when these have committed; "
        "read_uncommitted: all records are delivered.",
        name="share.isolation.level",
        choices=("read_committed", "read_uncommitted"),
    ),
    integer(
        2000,
        "How many records of a partition may be locked at a time.",
        name="share.partition.max.record.locks",
        lowest=100,
    ),
    integer(
        30_000,
        "How long a record is locked for the member that got it.",
        name="share.record.lock.duration.ms",
        lowest=1000,
    ),
    boolean(
        True,
        "Whether members may renew the lock of a record.",
        name="share.renew.acknowledge.enable",
    ),
    integer(
        45_000,
        "How long a member of the share group may be silent before it is removed.",
        name="share.session.timeout.ms",
        lowest=1,
    ),
)
_STREAMS_ROWS: tuple[Setting[Any], ...] = (
    integer(
        1000,
        "The shortest time between two computations of the streams group's assignment; 0: at "
        "each change.",
        name="streams.assignment.interval.ms",
        lowest=0,
    ),
    integer(
        5000,
        "How often members of the streams group send heartbeats.",
        name="streams.heartbeat.interval.ms",
        lowest=1,
    ),
    integer(
        3000,
        "How long the group waits for more members after the first joined.",
        name="streams.initial.rebalance.delay.ms",
        lowest=0,
    ),
    integer(
        0,
        "How many copies of the state of each task other instances of the application keep.",
        name="streams.num.standby.replicas",
        lowest=0,
    ),
    integer(
        45_000,
        "How long a member of the streams group may be silent before it is removed.",
        name="streams.session.timeout.ms",
        lowest=1,
    ),
)
GROUP_SETTINGS = {row.name: row for row in (*_CONSUMER_ROWS, *_SHARE_ROWS, *_STREAMS_ROWS)}
DYNAMIC_OF_CONSUMERS = tuple(
    row.name for row in _CONSUMER_ROWS if BROKER_SETTINGS[f"group.{row.name}"].dynamic
)
KINDS = tuple(dict.fromkeys(name.partition(".")[0] for name in GROUP_SETTINGS))


def broker_setting(name: str) -> str | None:
    """The name of the broker's setting that provides the default for a group's setting, or None."""
    broker_name = f"group.{name}"
    return broker_name if broker_name in BROKER_SETTINGS else None


def default_value(config: BrokerConfig, name: str) -> Any:
    """The typed value for a group that does not have the setting itself."""
    broker_name = broker_setting(name)
    return GROUP_SETTINGS[name].default if broker_name is None else config[broker_name]


def check_group_configs(config: BrokerConfig, configs: Mapping[str, str]) -> None:
    """Check the settings of a group. Raises: KafkaError INVALID_CONFIG for settings that a group
    cannot have.
    """
    values = {}
    for name, text in configs.items():
        setting = GROUP_SETTINGS.get(name)
        if setting is None:
            raise KafkaError(
                Code.INVALID_CONFIG,
                f"unknown setting of groups {name}{nearest(name, GROUP_SETTINGS)}",
            )
        try:
            value = values[name] = setting.parse(text)
        except ConfigError as error:
            raise KafkaError(Code.INVALID_CONFIG, str(error)) from error
        least, most = _bounds(config, name)
        if (least is not None and value < least) or (most is not None and value > most):
            names = [bound for bound in _names_of_bounds(name) if bound in BROKER_SETTINGS]
            bounds = ", ".join(f"{bound}={config[bound]}" for bound in names)
            raise KafkaError(
                Code.INVALID_CONFIG, f"{name}={text}: the broker's limits do not allow it: {bounds}"
            )
    for kind in KINDS:
        _check_heartbeat(config, kind, values)


def _check_heartbeat(config: BrokerConfig, kind: str, values: Mapping[str, Any]) -> None:
    """Raise KafkaError INVALID_CONFIG if the heartbeat interval of that kind of group is not
    shorter than its session timeout. A value that is not set has its default.
    """
    heartbeat, session = f"{kind}.{HEARTBEAT_INTERVAL}", f"{kind}.{SESSION_TIMEOUT}"
    heartbeat_ms = values.get(heartbeat, default_value(config, heartbeat))
    session_ms = values.get(session, default_value(config, session))
    if heartbeat_ms >= session_ms:
        raise KafkaError(
            Code.INVALID_CONFIG,
            f"{heartbeat}={heartbeat_ms} is not below {session}={session_ms}: members would be "
            "removed between two heartbeats",
        )


def _bounds(config: BrokerConfig, name: str) -> tuple[int | None, int | None]:
    """The minimum and the maximum that the broker allows for a setting; None for a
    missing bound.
    """
    least, most = (
        config[bound] if bound in BROKER_SETTINGS else None for bound in _names_of_bounds(name)
    )
    return least, most


def _names_of_bounds(name: str) -> tuple[str, str]:
    """The names of the broker's settings for the minimum and the maximum. Such settings need not
    exist.
    """
    kind, _, rest = name.partition(".")
    rest = rest.removeprefix("num.")
    return f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"


def group_overrides(config: BrokerConfig, configs: Mapping[str, str]) -> dict[str, Any]:
    """The settings of a group as typed values, limited to the broker's bounds."""
    values = {}
    for name, text in configs.items():
        if name not in GROUP_SETTINGS:
            continue
        value = GROUP_SETTINGS[name].parse(text)
        least, most = _bounds(config, name)
        if least is not None:
            value = max(value, least)
        values[name] = value if most is None else min(value, most)
    return values


class GroupConfigJournal(Protocol):
    """Where the settings of groups are stored: `ClusterMetadata` in `broker/logs/metadata.py`."""

    group_configs: dict[str, dict[str, str]]


class GroupConfigs:
    """The values of the groups' settings. Their text is parsed only once after each change."""

    def __init__(self, config: BrokerConfig, journal: GroupConfigJournal) -> None:
        self._config, self._journal = config, journal
        self._parsed: dict[str, tuple[Mapping[str, str], Mapping[str, Any]]] = {}

    def overrides(self, group_id: str) -> Mapping[str, Any]:
        """The settings of the group itself, as typed values by name, and those of all consumer
        groups that were changed at run time.
        """
        own, config = self.own(group_id), self._config
        changed = {
            name: config[f"group.{name}"]
            for name in DYNAMIC_OF_CONSUMERS
            if name not in own and config.source_of(f"group.{name}").startswith("dynamic")
        }
        return {**own, **changed} if changed else own

    def own(self, group_id: str) -> Mapping[str, Any]:
        """The settings of the group itself, as typed values by name. The same object, as long as
        they do not change.
        """
        configs = self._journal.group_configs.get(group_id)
        if configs is None:
            if self._parsed:
                self._parsed.pop(group_id, None)
            return NO_CONFIGS
        parsed = self._parsed.get(group_id)
        if parsed is None or parsed[0] is not configs:
            parsed = self._parsed[group_id] = (configs, group_overrides(self._config, configs))
        return parsed[1]

    def value(self, group_id: str, name: str) -> Any:
        """The value of one setting: the group's own value, or else the broker's."""
        own = self.own(group_id)
        return own[name] if name in own else default_value(self._config, name)
