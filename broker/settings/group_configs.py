"""The settings of a single consumer group (KIP-848).

A setting of a group overrides the broker's `group.<setting>`, within the broker's
`group.consumer.min.…` and `….max.…`. A group need not exist to have settings.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.setting import ConfigError, integer, nearest
from barnabas.protocol.errors import Code, KafkaError

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"

GROUP_SETTINGS = {
    row.name: row
    for row in (
        integer(
            1000,
            "How often the assignment of the group is computed at most; 0: at each change.",
            name=ASSIGNMENT_INTERVAL,
            lowest=0,
        ),
        integer(
            5000,
            "How often members of the group send heartbeats.",
            name=HEARTBEAT_INTERVAL,
            lowest=1,
        ),
        integer(
            45_000,
            "When a member that is silent is removed.",
            name=SESSION_TIMEOUT,
            lowest=1,
        ),
    )
}


def broker_setting(name: str) -> str:
    """The name of the broker's setting that is the default of a group's."""
    return f"group.{name}"


def check_group_configs(config: BrokerConfig, configs: Mapping[str, str]) -> None:
    """Raise KafkaError INVALID_CONFIG for settings that a group cannot have."""
    values = {}
    for name, text in configs.items():
        setting = GROUP_SETTINGS.get(name)
        if setting is None:
            raise KafkaError(
                Code.INVALID_CONFIG,
                f"unknown setting of groups {name}{nearest(name, GROUP_SETTINGS)}",
            )
        kind, _, rest = name.partition(".")
        least, most = (config[f"group.{kind}.{bound}.{rest}"] for bound in ("min", "max"))
        try:
            value = values[name] = setting.parse(text)
        except ConfigError as error:
            raise KafkaError(Code.INVALID_CONFIG, str(error)) from error
        if not least <= value <= most:
            raise KafkaError(
                Code.INVALID_CONFIG,
                f"{name}={text}: this broker allows {least} to {most} "
                f"(group.{kind}.min.{rest} and …max…)",
            )
    session_ms = values.get(SESSION_TIMEOUT, config[broker_setting(SESSION_TIMEOUT)])
    heartbeat_ms = values.get(HEARTBEAT_INTERVAL, config[broker_setting(HEARTBEAT_INTERVAL)])
    if heartbeat_ms >= session_ms:
        raise KafkaError(
            Code.INVALID_CONFIG,
            f"{HEARTBEAT_INTERVAL}={heartbeat_ms} is not below {SESSION_TIMEOUT}={session_ms}: "
            "members would be removed between two heartbeats",
        )


def group_overrides(configs: Mapping[str, str]) -> dict[str, int]:
    """The settings of a group, as numbers."""
    return {
        name: GROUP_SETTINGS[name].parse(text)
        for name, text in configs.items()
        if name in GROUP_SETTINGS
    }
