"""BrokerConfig: the broker's settings, each a typed attribute (`config.node_id`).

The tables are in `rows_broker.py`, and `setting.py` describes how a row is read. A setting's value
comes from the first of four layers that contains it:

    dynamic            changed at run time on this broker              kept in the metadata journal
    dynamic default    changed at run time for every broker (name "")  kept in the metadata journal
    explicit           properties file, --set
    default            the table

Source: Apache Kafka 3.9's configuration reference; KIP-226 (dynamic settings).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from barnabas.broker.java_text import trimmed
from barnabas.broker.security.stored import ScramCredential
from barnabas.broker.settings.features import release_of
from barnabas.broker.settings.listeners import PREFIX as LISTENER_PREFIX
from barnabas.broker.settings.listeners import (
    ListenerError,
    is_setting_of_listeners,
    read_listeners,
)
from barnabas.broker.settings.rows_broker import BROKER_SETTINGS, BrokerRows
from barnabas.broker.settings.rows_share import check_share_settings
from barnabas.broker.settings.rows_streams import check_streams_settings
from barnabas.broker.settings.rows_without_effect import (
    ALL_BROKER_SETTINGS,
    why_ignored,
    why_refused,
    with_supported_members,
)
from barnabas.broker.settings.setting import INT_MAX, OWN_PREFIX, ConfigError, likely, nearest

KAFKAS_FACTOR = 3  # Apache Kafka's default replication factor for its internal topics
REPLICATION_FACTORS = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "share.coordinator.state.topic.replication.factor",
    "transaction.state.log.replication.factor",
)


class BrokerConfig(BrokerRows):
    """The broker's settings as typed attributes. `config[name]` is for code that has a setting's
    name, for example from a request.

    explicit: the settings of the file and the command line, as text. dynamic, dynamic_defaults: the
    settings that were changed at run time on this broker, and for every broker, as text. warnings:
    lines about settings that were accepted but have no effect here. listeners: in the order in
    which `listeners` names them. users: the passwords of barnabas.users.file, by name.
    user_credentials: the SCRAM credentials of these users.
    """

    def __init__(
        self, explicit: dict[str, str], warnings: list[str], of_listeners: Mapping[str, str]
    ) -> None:
        """Takes: of_listeners, the settings `listener.name.NAME...`."""
        self.explicit, self.warnings = explicit, warnings
        self.dynamic: dict[str, str] = {}
        self.dynamic_defaults: dict[str, str] = {}
        self.release = release_of(explicit.get("barnabas.emulate", ""))
        given = {**self.release.defaults, **explicit}
        self._fixed: dict[str, Any] = {
            name: setting.parse(given[name]) if name in given else setting.default
            for name, setting in ALL_BROKER_SETTINGS.items()
        }
        if self._fixed["broker.id"] is not None and "node.id" not in explicit:
            self._fixed["node.id"] = self._fixed["broker.id"]
        # a simulated cluster of several brokers has the replication factors of Kafka, as far as its
        # size permits
        for name in REPLICATION_FACTORS if self._fixed["barnabas.brokers"] > 1 else ():
            if name not in explicit:
                self._fixed[name] = min(self._fixed["barnabas.brokers"], KAFKAS_FACTOR)
        _check_connections(self._fixed)
        check_share_settings(self._fixed)
        check_streams_settings(self._fixed)
        self._values: dict[str, Any] = dict(self._fixed)
        self.data_dir = _one_data_dir(self._values["log.dirs"] or self._values["log.dir"])
        self.users: dict[str, str] = {}
        self.user_credentials: dict[tuple[str, int], ScramCredential] = {}
        self.super_users = _principals("super.users", self.super_users_text)
        try:
            self.listeners = read_listeners(self._fixed, of_listeners, BROKER_SETTINGS, warnings)
        except ListenerError as error:
            raise ConfigError(str(error)) from error

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], *, of_file: Collection[str] = ()
    ) -> BrokerConfig:
        """Make a config from the given settings.

        Takes:  of_file, the names of settings that stand in a properties file, which may have been
                made for Apache Kafka: those that are not known have no effect, as in Kafka, and a
                warning names them all. A name that begins with `barnabas.` has to be known.
        Raises: ConfigError for the first invalid setting.
        """
        explicit: dict[str, str] = {}
        of_listeners: dict[str, str] = {}
        warnings: list[str] = []
        unknown: list[str] = []
        for name, given in properties.items():
            text = with_supported_members(name, given, warnings)
            if name.startswith(LISTENER_PREFIX):
                if name in of_file and not is_setting_of_listeners(name):
                    unknown.append(name)
                else:
                    of_listeners[name] = trimmed(text)
                continue
            refusal = why_refused(name, text)
            if refusal is not None:
                raise ConfigError(f"{name}: {refusal}")
            ignored = why_ignored(name)
            if ignored is not None:
                warnings.append(f"{name} has no effect: {ignored}")
                continue
            setting = BROKER_SETTINGS.get(name)
            if setting is None:
                if name not in of_file or name.startswith(OWN_PREFIX):
                    raise ConfigError(f"unknown setting {name}{nearest(name, BROKER_SETTINGS)}")
                near = likely(name, BROKER_SETTINGS)
                unknown.append(f"{name} (did you mean {near}?)" if near else name)
                continue
            setting.parse(text)
            explicit[name] = trimmed(text)
        if unknown:
            warnings.append(f"unknown settings, which have no effect: {', '.join(unknown)}")
        return cls(explicit, warnings, of_listeners)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    @property
    def has_sasl(self) -> bool:
        """Whether clients have to authenticate by SASL on any listener."""
        return any(listener.has_sasl for listener in self.listeners)

    @property
    def limits_connections(self) -> bool:
        """Whether a setting bounds the number or the rate of connections."""
        numbers = (
            self.max_connections, self.max_connections_per_ip, self.max_connection_creation_rate,
        )  # fmt: skip
        return min(numbers) != INT_MAX or self.max_connections_per_ip_overrides != ""

    def set_dynamic(self, configs: Mapping[str, str]) -> None:
        """Apply the settings that were changed at run time on this broker.

        Raises: ConfigError if a value is not allowed; then no setting has changed.
        """
        self._values = self._layered(self.dynamic_defaults, configs)
        self.dynamic = dict(configs)

    def set_dynamic_defaults(self, configs: Mapping[str, str]) -> None:
        """Apply the settings that were changed at run time for every broker.

        Raises: ConfigError if a value is not allowed; then no setting has changed.
        """
        self._values = self._layered(configs, self.dynamic)
        self.dynamic_defaults = dict(configs)

    def default_value(self, name: str) -> Any:
        """The typed value that the setting has without the changes made at run time on
        this broker.
        """
        return self._layered(self.dynamic_defaults, {})[name]

    def _layered(self, *layers: Mapping[str, str]) -> dict[str, Any]:
        """Put the typed values of the layers over those of the fixed layers. The last layer takes
        precedence.

        An unknown name, which a later version may have stored, is skipped.
        """
        values = dict(self._fixed)
        for configs in layers:
            values |= {
                name: ALL_BROKER_SETTINGS[name].parse(text)
                for name, text in configs.items()
                if name in ALL_BROKER_SETTINGS
            }
        _check_connections(values)
        return values

    @property
    def shown_dynamic_defaults(self) -> Mapping[str, str]:
        """The settings that were changed at run time for every broker, and the settings that an
        emulated release itself stores as dynamic defaults.
        """
        if not self.release.kept_defaults:
            return self.dynamic_defaults
        kept = {
            name: ALL_BROKER_SETTINGS[name].render(self._values[name]) or ""
            for name in self.release.kept_defaults
        }
        return {**kept, **self.dynamic_defaults}

    def untouched(self, name: str) -> Any:
        """The typed value that a setting has where nobody has set it."""
        text, setting = self.release.defaults.get(name), ALL_BROKER_SETTINGS[name]
        return setting.default if text is None else setting.parse(text)

    def source_of(self, name: str) -> str:
        """The layer of a setting's value: dynamic, dynamic default, explicit or default."""
        if name in self.dynamic:
            return "dynamic"
        if name in self.shown_dynamic_defaults:
            return "dynamic default"
        return "explicit" if name in self.explicit else "default"


def parse_connection_overrides(text: str) -> dict[str, int]:
    """The maximum number of connections for each address. Host names are not resolved.

    Raises: ConfigError.
    """
    if not text:
        return {}
    import ipaddress

    most = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        address, _, number = part.rpartition(":")
        try:
            if not number.isdecimal():
                raise ValueError(f"'{number}' is not a number")
            most[str(ipaddress.ip_address(address.strip("[]")))] = int(number)
        except ValueError as error:
            raise ConfigError(
                f"max.connections.per.ip.overrides={text}: write ADDRESS:NUMBER, joined by commas "
                f"({error})"
            ) from error
    return most


def _check_connections(values: Mapping[str, Any]) -> None:
    """Check the limits of connections. Raises: ConfigError if they are invalid or contradictory."""
    overrides = parse_connection_overrides(values["max.connections.per.ip.overrides"])
    if values["max.connections.per.ip"] == 0 and not overrides:
        raise ConfigError(
            "max.connections.per.ip=0: no client could connect; list the allowed addresses in "
            "max.connections.per.ip.overrides"
        )


def _one_data_dir(text: str) -> str:
    """The only directory of the setting log.dirs. Raises: ConfigError."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) != 1:
        raise ConfigError(f"log.dirs={text}: name one data directory")
    return parts[0]


def _principals(name: str, text: str) -> tuple[str, ...]:
    """Parse a list of principals that is separated by semicolons. Raises: ConfigError."""
    principals = tuple(filter(None, map(trimmed, text.split(";"))))
    for principal in principals:
        kind, colon, user = principal.partition(":")
        if not (kind and colon and user):
            raise ConfigError(
                f"{name}={text}: {principal} must have the form User:NAME; separate several "
                "with semicolons"
            )
    return principals
