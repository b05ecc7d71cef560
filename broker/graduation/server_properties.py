"""`server.properties` for Kafka: one node that is broker and controller, over the same directory.

What the broker was started with goes along, but for what is ours alone, what Kafka no longer needs,
and defaults of topics' settings, which are in the metadata. Listeners keep their names and
addresses. Where they ask clients who they are, Kafka asks itself, too (its transaction coordinator
connects to the broker): it gets a SCRAM user of its own, INTER_BROKER_USER. With an authorizer the
controller's listener asks as well, by PLAIN, since SCRAM users are in the metadata that it serves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.config import LISTENER_PREFIX, OWN_PREFIX, TOPIC_SETTINGS
from barnabas.broker.security.scram import FEWEST_ITERATIONS, MECHANISMS, credential_of, salted
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

if TYPE_CHECKING:
    from barnabas.broker.config import BrokerConfig
    from barnabas.broker.graduation.hand_over import HandOver

INTER_BROKER_USER = "kafka-inter-broker"
CONTROLLER = "CONTROLLER"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_INTER_BROKER_MECHANISM = "SCRAM-SHA-512"
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LOGIN = "org.apache.kafka.common.security"
_STORE_TYPES = {".pem": "PEM", ".crt": "PEM", ".p12": "PKCS12", ".pfx": "PKCS12"}
_TOPIC_DEFAULTS = {name for setting in TOPIC_SETTINGS.values() for name in setting.synonyms}
# Written anew here, or of a cluster that no longer is.
_LEFT_OUT = {
    "node.id", "broker.id", "log.dir", "log.dirs", "process.roles", "listeners",
    "advertised.listeners", "listener.security.protocol.map", "inter.broker.listener.name",
    "security.inter.broker.protocol", "sasl.mechanism.inter.broker.protocol",
    "sasl.enabled.mechanisms", "super.users", "offsets.topic.num.partitions",
    "offsets.topic.replication.factor", "transaction.state.log.num.partitions",
    "transaction.state.log.replication.factor", "transaction.state.log.min.isr",
    "default.replication.factor", "group.initial.rebalance.delay.ms", "advertised.host.name",
    "host.name", "port", "inter.broker.protocol.version", "reserved.broker.max.id",
}  # fmt: skip
_LEFT_OUT_PREFIXES = (OWN_PREFIX, "controller.", "zookeeper.", "confluent.", "metadata.log.")
_ASSIGNORS = {
    "uniform": "org.apache.kafka.coordinator.group.assignor.UniformAssignor",
    "range": "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
}


class _Listener(NamedTuple):
    name: str
    protocol: str
    address: str


def write_properties(
    plan: HandOver,
    config: BrokerConfig,
    given: Mapping[str, str],
    *,
    data_dir: str,
    controller: str,
    password: str,
    new_salt: Callable[[], bytes],
) -> None:
    """Make the file's text, and the users that it needs, in the plan.

    Takes: given, all that the broker was started with, by name. data_dir, as Kafka is to name it.
           controller, HOST:PORT of the controller's listener. password, one that nobody knows, for
           INTER_BROKER_USER. new_salt, random bytes for a user's credential.
    """
    listeners = _listeners(given, config)
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
    lines |= _carried(plan, given)
    lines |= _of_security(plan, config, listeners, given, password)
    if any(listener.protocol.startswith("SASL_") for listener in listeners):
        users = {**config.users, INTER_BROKER_USER: password}
        _add_scram_users(plan, users, lines["sasl.enabled.mechanisms"].split(","), new_salt)
    plan.properties = _HEAD + "".join(f"{name}={_escaped(text)}\n" for name, text in lines.items())


_HEAD = """\
# For Apache Kafka, over the data directory of a barnabas broker; made by `barnabas graduate`.
# Defaults of topics' settings (log.retention.ms and such) are in the cluster's metadata instead,
# for all brokers: kafka-configs.sh --entity-type brokers --entity-default --describe
"""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n\\\n")


def _listeners(given: Mapping[str, str], config: BrokerConfig) -> list[_Listener]:
    """The listeners of clients, in their order."""
    protocols = {name: name for name in _PROTOCOLS}
    for pair in given.get("listener.security.protocol.map", "").split(","):
        name, colon, protocol = pair.partition(":")
        if colon:
            protocols[name.strip().upper()] = protocol.strip().upper()
    controllers = given.get("controller.listener.names", CONTROLLER).upper().split(",")
    listeners = []
    for part in str(config["listeners"]).split(","):
        name, _, address = part.strip().partition("://")
        if name.upper() not in [one.strip() for one in controllers]:
            listeners.append(_Listener(name, protocols.get(name.upper(), name.upper()), address))
    return listeners


def _of_listeners(
    listeners: list[_Listener], given: Mapping[str, str], controller: str
) -> dict[str, str]:
    """Where Kafka listens, and by which listener it speaks to itself."""
    names = [listener.name for listener in listeners]
    wished = given.get("inter.broker.listener.name", "")
    plain = [one.name for one in listeners if one.protocol == "PLAINTEXT"]
    controller_protocol = "SASL_PLAINTEXT" if _has_authorizer(given) else "PLAINTEXT"
    protocols = {one.name: one.protocol for one in listeners} | {CONTROLLER: controller_protocol}
    lines = {
        "listeners": ",".join(f"{one.name}://{one.address}" for one in listeners)
        + f",{CONTROLLER}://{controller}",
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}" for name, protocol in protocols.items()
        ),
        "inter.broker.listener.name": wished if wished in names else (plain or names)[0],
    }
    if given.get("advertised.listeners"):
        kept = [
            part
            for part in given["advertised.listeners"].split(",")
            if part.strip().partition("://")[0] in names
        ]
        lines["advertised.listeners"] = ",".join(kept)
    return lines


def _of_topics(plan: HandOver, config: BrokerConfig) -> dict[str, str]:
    """The internal topics as they are, for one broker."""
    counts = {
        name: str(config[setting] if topic is None else topic.partition_count)
        for name, setting in (
            (OFFSETS_TOPIC, "offsets.topic.num.partitions"),
            (TRANSACTIONS_TOPIC, "transaction.state.log.num.partitions"),
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
        "group.initial.rebalance.delay.ms": str(config["group.initial.rebalance.delay.ms"]),
    }


def _carried(plan: HandOver, given: Mapping[str, str]) -> dict[str, str]:
    """What the broker was started with, and Kafka heeds as well."""
    lines = {}
    for name, text in sorted(given.items()):
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
    for store in ("ssl.keystore", "ssl.truststore"):
        location = given.get(f"{store}.location")
        suffix = "" if location is None else "." + location.rpartition(".")[2].lower()
        if f"{store}.type" not in given and suffix in _STORE_TYPES:
            lines[f"{store}.type"] = _STORE_TYPES[suffix]
    return lines


# --- who clients are ----------------------------------------------------------------------------


def _has_authorizer(given: Mapping[str, str]) -> bool:
    return bool(given.get("authorizer.class.name", "").strip())


def _of_security(
    plan: HandOver,
    config: BrokerConfig,
    listeners: list[_Listener],
    given: Mapping[str, str],
    password: str,
) -> dict[str, str]:
    """Mechanisms, logins and super users."""
    lines: dict[str, str] = {}
    of_sasl = [one for one in listeners if one.protocol.startswith("SASL_")]
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
                "no listener asks by SASL who a broker is: name in super.users, in the properties "
                "file, the principal that Kafka has on its own listener (of TLS its certificate's)"
            )
    if any(one.protocol.endswith("SSL") for one in listeners) and not any(
        name.endswith(("ssl.truststore.location", "ssl.truststore.certificates")) for name in given
    ):
        plan.note(
            "Kafka speaks TLS to itself, too: name in the properties file what it is to trust "
            "(ssl.truststore.location)"
        )
    return lines


def _logins(
    plan: HandOver,
    config: BrokerConfig,
    listener: _Listener,
    enabled: list[str],
    given: Mapping[str, str],
    password: str,
) -> dict[str, str]:
    """The JAAS text for each mechanism of a listener that is not given."""
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
        elif name in given:
            continue
        elif mechanism in MECHANISMS:
            lines[name] = _login("scram.ScramLoginModule", {})
        elif mechanism == "PLAIN":
            users = {f"user_{user}": text for user, text in config.users.items()}
            lines[name] = _login("plain.PlainLoginModule", users)
        else:
            plan.note(f"the mechanism {mechanism} may need settings of Kafka's own ({name})")
    return lines


def _login(module: str, options: Mapping[str, str]) -> str:
    quoted: Callable[[str], str] = lambda text: text.replace("\\", "\\\\").replace('"', '\\"')  # noqa: E731
    words = "".join(f' {name}="{quoted(text)}"' for name, text in options.items())
    return f"{_LOGIN}.{module} required{words};"


def _add_scram_users(
    plan: HandOver, users: Mapping[str, str], mechanisms: list[str], new_salt: Callable[[], bytes]
) -> None:
    """Let users whose passwords are known log in by SCRAM; those that were changed since stay."""
    for mechanism in (MECHANISMS[name] for name in mechanisms if name in MECHANISMS):
        for user, password in users.items():
            if (user, mechanism.number) not in plan.scram_credentials:
                salt = new_salt()
                salted_password = salted(mechanism, password, salt, FEWEST_ITERATIONS)
                plan.scram_credentials[user, mechanism.number] = credential_of(
                    mechanism, salted_password, salt, FEWEST_ITERATIONS
                )
