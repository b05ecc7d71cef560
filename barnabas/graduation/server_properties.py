"""`server.properties` for Kafka: one node that is broker and controller, over the same directory.

The file contains the settings with which the broker was started. It omits Barnabas's own
settings, settings that Kafka no longer needs, and the defaults of topic settings, which are in
the metadata. Listeners keep their names and addresses. If clients have to authenticate, Kafka has
to do so as well, since its transaction coordinator connects to its own broker. For this there is
a SCRAM user, INTER_BROKER_USER. With an authorizer the controller's listener authenticates too. It
uses PLAIN, since SCRAM users are stored in the metadata that the controller itself serves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from barnabas.broker.security.scram import FEWEST_ITERATIONS, MECHANISMS, credential_of, salted
from barnabas.broker.settings.config import BrokerConfig
from barnabas.broker.settings.config_providers import KAFKAS_CLASSES, PROVIDERS
from barnabas.broker.settings.listeners import OAUTHBEARER, ListenerConfig
from barnabas.broker.settings.listeners import PREFIX as LISTENER_PREFIX
from barnabas.broker.settings.rows_topic import TOPIC_SETTINGS
from barnabas.broker.settings.setting import OWN_PREFIX
from barnabas.coordinator.internal_topics import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
)
from barnabas.graduation.hand_over import HandOver
from barnabas.graduation.survey import GraduationError

INTER_BROKER_USER = "kafka-inter-broker"
CONTROLLER = "CONTROLLER"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_INTER_BROKER_MECHANISM = "SCRAM-SHA-512"
_VALIDATOR = "oauthbearer.sasl.server.callback.handler.class"
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.$-]*")
_LOGIN = "org.apache.kafka.common.security"
_STORES = ("ssl.keystore.location", "ssl.truststore.location")
_TOPIC_DEFAULTS = {name for setting in TOPIC_SETTINGS.values() for name in setting.synonyms}
SHARE_PARTITIONS = "share.coordinator.state.topic.num.partitions"
# These settings are written here with new values, or belong to the previous cluster.
_LEFT_OUT = {
    "node.id", "broker.id", "log.dir", "log.dirs", "process.roles", "listeners",
    "advertised.listeners", "listener.security.protocol.map", "inter.broker.listener.name",
    "security.inter.broker.protocol", "sasl.mechanism.inter.broker.protocol",
    "sasl.enabled.mechanisms", "super.users", "offsets.topic.num.partitions",
    "offsets.topic.replication.factor", "transaction.state.log.num.partitions",
    "transaction.state.log.replication.factor", "transaction.state.log.min.isr",
    "default.replication.factor", "group.initial.rebalance.delay.ms", "advertised.host.name",
    "host.name", "port", "inter.broker.protocol.version", "reserved.broker.max.id",
    "share.coordinator.state.topic.replication.factor", "share.coordinator.state.topic.min.isr",
    SHARE_PARTITIONS,
}  # fmt: skip
_LEFT_OUT_PREFIXES = (OWN_PREFIX, "controller.", "zookeeper.", "confluent.", "metadata.log.")
_ASSIGNORS = {
    "uniform": "org.apache.kafka.coordinator.group.assignor.UniformAssignor",
    "range": "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
}


class StartSettings(NamedTuple):
    """The settings with which the broker was started, by name. texts: the values as written.
    values: the values after references to files and the environment (config.providers) are
    resolved.
    """

    texts: Mapping[str, str]
    values: Mapping[str, str]


def write_properties(
    plan: HandOver,
    config: BrokerConfig,
    given: StartSettings,
    *,
    data_dir: str,
    controller: str,
    password: str,
    new_salt: Callable[[], bytes],
    kind_of_file: Callable[[str], str | None],
) -> None:
    """Add the text of `server.properties`, and the users that Kafka needs, to the plan.

    Takes:  data_dir, the path of the directory for Kafka; controller, HOST:PORT of the
            controller's listener; password, a random string for INTER_BROKER_USER; new_salt,
            a function that returns random bytes for a user's credential; kind_of_file, a function
            that returns the kind of the key store in a file, or None if that is unknown.
    Raises: GraduationError if no listener is left.
    """
    listeners = _listeners(plan, config)
    lines: dict[str, str] = {
        "process.roles": "broker,controller",
        "node.id": str(plan.survey.node_id),
        "log.dirs": data_dir,
        "controller.quorum.voters": f"{plan.survey.node_id}@{controller}",
        "controller.listener.names": CONTROLLER,
    }
    lines |= _of_listeners(listeners, given, controller)
    lines |= _of_topics(plan, config)
    if plan.kafka.is_before_4:
        lines["group.coordinator.new.enable"] = "true"
        lines["group.coordinator.rebalance.protocols"] = "classic,consumer"
        policy = "group.consumer.migration.policy"
        lines[policy] = str(config[policy])
    lines |= _carried(plan, given)
    lines |= _store_types(given, kind_of_file)
    lines |= _of_security(plan, config, listeners, given.values, password)
    if any(listener.has_sasl for listener in listeners):
        users = {**config.users, INTER_BROKER_USER: password}
        _add_scram_users(plan, users, lines["sasl.enabled.mechanisms"].split(","), new_salt)
    plan.properties = _HEAD + "".join(f"{name}={_escaped(text)}\n" for name, text in lines.items())


_HEAD = """\
# For Apache Kafka, over the data directory of a barnabas broker; made by `barnabas graduate`.
# Defaults of topics' settings (log.retention.ms and such) are in the cluster's metadata instead,
# for all brokers: kafka-configs.sh --entity-type brokers --entity-default --describe
"""


def _escaped(text: str) -> str:
    """A value escaped for java.util.Properties. It is one line of ASCII, since that class reads
    Latin-1.
    """
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    if text.startswith((" ", "\t", "\f")):
        text = "\\" + text
    return "".join(one if one.isascii() else _as_utf_16(one) for one in text)


def _as_utf_16(letter: str) -> str:
    units = letter.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _listeners(plan: HandOver, config: BrokerConfig) -> list[ListenerConfig]:
    """The listeners for clients, in their order, without Unix domain sockets."""
    listeners = [listener for listener in config.listeners if listener.path is None]
    if len(listeners) < len(config.listeners):
        plan.note("Kafka has no sockets in the file system: those listeners are left out")
    if not listeners:
        raise GraduationError("no listener is left for Kafka: name one with --broker-set listeners")
    return listeners


def _of_listeners(
    listeners: list[ListenerConfig], given: StartSettings, controller: str
) -> dict[str, str]:
    """The addresses at which Kafka listens, and the listener by which it connects to itself.

    With an authorizer Kafka preferably connects to itself by a listener that authenticates with
    SASL, and without an authorizer by a PLAINTEXT listener.
    """
    names = [listener.name for listener in listeners]
    has_authorizer = _has_authorizer(given.values)
    wished = given.values.get("inter.broker.listener.name", "")
    easiest = [
        one.name
        for one in listeners
        if (one.has_sasl if has_authorizer else one.security_protocol == "PLAINTEXT")
    ]
    controller_protocol = "SASL_PLAINTEXT" if has_authorizer else "PLAINTEXT"
    protocols = {one.name: one.security_protocol for one in listeners}
    protocols[CONTROLLER] = controller_protocol
    lines = {
        "listeners": ",".join(str(one.endpoint) for one in listeners)
        + f",{CONTROLLER}://{controller}",
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in protocols.items()
        ),
        "inter.broker.listener.name": wished if wished in names else (easiest or names)[0],
    }
    advertised = [
        f"{one.name}://{one.advertised[0]}:{one.advertised[1]}"
        for one in listeners
        if one.advertised
    ]
    if advertised:
        lines["advertised.listeners"] = ",".join(advertised)
    return lines


def _of_topics(plan: HandOver, config: BrokerConfig) -> dict[str, str]:
    """Settings that let the internal topics work with one broker. Existing topics keep their
    partition counts.
    """
    counts = {
        name: str(config[setting] if topic is None else topic.partition_count)
        for name, setting in (
            (OFFSETS_TOPIC, "offsets.topic.num.partitions"),
            (TRANSACTIONS_TOPIC, "transaction.state.log.num.partitions"),
            (SHARE_STATE_TOPIC, SHARE_PARTITIONS),
        )
        for topic in (plan.survey.metadata.topic(name),)
    }
    return {
        "offsets.topic.num.partitions": counts[OFFSETS_TOPIC],
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": counts[TRANSACTIONS_TOPIC],
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "default.replication.factor": "1",
        **plan.kafka.own_topics,
        **({SHARE_PARTITIONS: counts[SHARE_STATE_TOPIC]} if plan.kafka.has_share_groups else {}),
        "group.initial.rebalance.delay.ms": str(config["group.initial.rebalance.delay.ms"]),
    }


def _carried(plan: HandOver, given: StartSettings) -> dict[str, str]:
    """The settings with which the broker was started and which Kafka also has. They are copied as
    written, so references to values in files are kept.
    """
    lines = {}
    for name, text in sorted(given.texts.items()):
        if (
            name in _LEFT_OUT
            or name in _TOPIC_DEFAULTS
            or name.startswith(_LEFT_OUT_PREFIXES)
            or not text.strip()
        ):
            continue
        if name == "group.consumer.assignors" and plan.kafka.is_before_4:
            text = ",".join(_ASSIGNORS.get(one.strip(), one) for one in text.split(","))
        lines[name] = text
    for provider in given.texts.get(PROVIDERS, "").split(","):
        name = f"{PROVIDERS}.{provider.strip()}.class"
        if provider.strip() in KAFKAS_CLASSES and name not in lines:
            lines[name] = KAFKAS_CLASSES[provider.strip()]
    return lines


def _store_types(given: StartSettings, kind_of_file: Callable[[str], str | None]) -> dict[str, str]:
    """The types of key stores and trust stores by their content, which decides here. Kafka goes by
    the type, whose default is JKS, and reads PKCS#12 also as JKS.
    """
    lines = {}
    for name, location in given.values.items():
        kind = kind_of_file(location) if name.endswith(_STORES) and location.strip() else None
        if kind is not None:
            lines[name.removesuffix("location") + "type"] = kind
    return lines


# --- authentication of clients ------------------------------------------------------------------


def _has_authorizer(given: Mapping[str, str]) -> bool:
    return bool(given.get("authorizer.class.name", "").strip())


def _of_security(
    plan: HandOver,
    config: BrokerConfig,
    listeners: list[ListenerConfig],
    given: Mapping[str, str],
    password: str,
) -> dict[str, str]:
    """The settings of SASL mechanisms, logins and super users."""
    lines: dict[str, str] = {}
    of_sasl = [one for one in listeners if one.has_sasl]
    if of_sasl:
        mechanisms = given.get("sasl.enabled.mechanisms") or ",".join(
            config["sasl.enabled.mechanisms"]
        )
        enabled = [one.strip() for one in mechanisms.split(",") if one.strip()]
        if _INTER_BROKER_MECHANISM not in enabled:
            enabled.append(_INTER_BROKER_MECHANISM)
        lines["sasl.enabled.mechanisms"] = ",".join(enabled)
        lines["sasl.mechanism.inter.broker.protocol"] = _INTER_BROKER_MECHANISM
        for listener in of_sasl:
            lines |= _logins(plan, config, listener, enabled, given, password)
    if _has_authorizer(given):
        lines["authorizer.class.name"] = STANDARD_AUTHORIZER
        supers = [one for one in given.get("super.users", "").split(";") if one.strip()]
        lines["super.users"] = ";".join([*supers, f"User:{INTER_BROKER_USER}"])
        prefix = f"{LISTENER_PREFIX}{CONTROLLER.lower()}"
        lines["sasl.mechanism.controller.protocol"] = "PLAIN"
        lines[f"{prefix}.sasl.enabled.mechanisms"] = "PLAIN"
        lines[f"{prefix}.plain.sasl.jaas.config"] = _login(
            "plain.PlainLoginModule",
            {"username": INTER_BROKER_USER, "password": password,
             f"user_{INTER_BROKER_USER}": password},
        )  # fmt: skip
        if not of_sasl:
            plan.note(
                "no listener authenticates brokers by SASL: name in super.users, in the "
                "properties file, the principal that Kafka has on its own listener (of TLS its "
                "certificate's)"
            )
    if any(one.has_tls for one in listeners) and not any(
        name.endswith(("ssl.truststore.location", "ssl.truststore.certificates")) for name in given
    ):
        plan.note(
            "Kafka's broker connects to itself with TLS: name in the properties file the "
            "authorities that it trusts (ssl.truststore.location)"
        )
    return lines


def _logins(
    plan: HandOver,
    config: BrokerConfig,
    listener: ListenerConfig,
    enabled: list[str],
    given: Mapping[str, str],
    password: str,
) -> dict[str, str]:
    """The `sasl.jaas.config` settings of a listener, for each mechanism that has no such setting
    yet.
    """
    lines = {}
    prefix = f"{LISTENER_PREFIX}{listener.name.lower()}"
    own = given.get(f"{prefix}.sasl.enabled.mechanisms")
    if own is not None and _INTER_BROKER_MECHANISM not in own:
        lines[f"{prefix}.sasl.enabled.mechanisms"] = f"{own},{_INTER_BROKER_MECHANISM}"
    for mechanism in enabled:
        name = f"{prefix}.{mechanism.lower()}.sasl.jaas.config"
        if mechanism == _INTER_BROKER_MECHANISM:
            login = {"username": INTER_BROKER_USER, "password": password}
            lines[name] = _login("scram.ScramLoginModule", login)
        elif name in given and not (mechanism == "PLAIN" and config.users):
            continue
        elif mechanism in MECHANISMS:
            lines[name] = _login("scram.ScramLoginModule", {})
        elif mechanism == "PLAIN":
            passwords = {**config.users, **listener.plain_passwords}
            users = {f"user_{user}": text for user, text in passwords.items()}
            lines[name] = _login("plain.PlainLoginModule", users)
        elif mechanism == OAUTHBEARER:
            lines[name] = f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule required;"
            package = "oauthbearer.secured" if plan.kafka.is_before_4 else "oauthbearer"
            lines[f"{prefix}.{_VALIDATOR}"] = (
                f"{_LOGIN}.{package}.OAuthBearerValidatorCallbackHandler"
            )
        else:
            plan.note(f"the mechanism {mechanism} may need settings of Kafka's own ({name})")
    return lines


def _login(module: str, options: Mapping[str, str]) -> str:
    """A JAAS text with the options of a login module."""
    words = "".join(
        f" {name if _WORD.fullmatch(name) else _quoted(name)}={_quoted(text)}"
        for name, text in options.items()
    )
    return f"{_LOGIN}.{module} required{words};"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _add_scram_users(
    plan: HandOver, users: Mapping[str, str], mechanisms: list[str], new_salt: Callable[[], bytes]
) -> None:
    """Add SCRAM credentials for the users whose passwords are known and who have no credentials
    yet.
    """
    for mechanism in (MECHANISMS[name] for name in mechanisms if name in MECHANISMS):
        for user, password in users.items():
            if (user, mechanism.number) not in plan.scram_credentials:
                salt = new_salt()
                salted_password = salted(mechanism, password, salt, FEWEST_ITERATIONS)
                plan.scram_credentials[user, mechanism.number] = credential_of(
                    mechanism, salted_password, salt, FEWEST_ITERATIONS
                )
