"""Apache Kafka's settings that have no effect here.

KEPT_SETTINGS                  may be changed at run time: checked, stored and described
IGNORED_KEYS, IGNORED_PREFIXES may be in a file: ignored with a warning that says why
UNSUPPORTED_MEMBERS            members of lists that are left out, with a warning
OTHER_NAMES                    members of lists that have another name here
_REFUSED_PREFIXES              end the start, since they would protect something
"""

from __future__ import annotations

import sys
from typing import Any

from barnabas.broker.java_text import trimmed
from barnabas.broker.settings.listeners import PREFIX as LISTENER_PREFIX
from barnabas.broker.settings.rows_broker import BROKER_SETTINGS
from barnabas.broker.settings.setting import LONG_MAX, MINUTE_MS, Kind, Setting


def _kept(name: str, kind: Kind, default: Any, why: str, **more: Any) -> Setting[Any]:
    doc = f"Stored and described; {why}."
    return Setting(kind, default, doc, name=name, dynamic=True, **more)


_ONE_REPLICA, _NO_KERBEROS = "there is one replica", "there is no Kerberos"
_NO_TIERED_STORAGE = "there is no tiered storage"
_NO_LOGIN = "the broker does not log in"
_OWN_MAP = "the cleaner's map has another form"
_UNTHROTTLED = "the cleaner is not throttled"
_KEPT_ROWS = (
    _kept("follower.replication.throttled.rate", Kind.LONG, LONG_MAX, _ONE_REPLICA, lowest=0),
    _kept("leader.replication.throttled.rate", Kind.LONG, LONG_MAX, _ONE_REPLICA, lowest=0),
    _kept("log.cleaner.io.buffer.load.factor", Kind.DOUBLE, 0.9, _OWN_MAP),
    _kept("log.cleaner.io.buffer.size", Kind.INT, 512 << 10, _UNTHROTTLED, lowest=0),
    _kept("log.cleaner.io.max.bytes.per.second", Kind.DOUBLE, sys.float_info.max, _UNTHROTTLED),
    _kept("log.cleaner.threads", Kind.INT, 1, "there is one cleaner process", lowest=1),
    _kept("metric.reporters", Kind.LIST, (), "there are no reporters"),
    _kept("remote.fetch.max.wait.ms", Kind.INT, 500, _NO_TIERED_STORAGE, lowest=1),
    _kept(
        "remote.log.index.file.cache.total.size.bytes",
        Kind.LONG,
        1 << 30,
        _NO_TIERED_STORAGE,
        lowest=1,
    ),
    _kept(
        "remote.log.manager.copy.max.bytes.per.second",
        Kind.LONG,
        LONG_MAX,
        _NO_TIERED_STORAGE,
        lowest=1,
    ),
    _kept(
        "remote.log.manager.fetch.max.bytes.per.second",
        Kind.LONG,
        LONG_MAX,
        _NO_TIERED_STORAGE,
        lowest=1,
    ),
    _kept(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        Kind.LONG,
        LONG_MAX,
        _ONE_REPLICA,
        lowest=0,
    ),
    _kept("sasl.kerberos.kinit.cmd", Kind.STRING, "/usr/bin/kinit", _NO_KERBEROS, per_broker=True),
    _kept(
        "sasl.kerberos.min.time.before.relogin", Kind.LONG, MINUTE_MS, _NO_KERBEROS, per_broker=True
    ),
    _kept(
        "sasl.kerberos.principal.to.local.rules",
        Kind.LIST,
        ("DEFAULT",),
        _NO_KERBEROS,
        per_broker=True,
    ),
    _kept("sasl.kerberos.service.name", Kind.STRING, None, _NO_KERBEROS, per_broker=True),
    _kept("sasl.kerberos.ticket.renew.jitter", Kind.DOUBLE, 0.05, _NO_KERBEROS, per_broker=True),
    _kept(
        "sasl.kerberos.ticket.renew.window.factor", Kind.DOUBLE, 0.8, _NO_KERBEROS, per_broker=True
    ),
    _kept(
        "sasl.login.refresh.buffer.seconds",
        Kind.SHORT,
        300,
        _NO_LOGIN,
        lowest=0,
        highest=3600,
        per_broker=True,
    ),
    _kept(
        "sasl.login.refresh.min.period.seconds",
        Kind.SHORT,
        60,
        _NO_LOGIN,
        lowest=0,
        highest=900,
        per_broker=True,
    ),
    _kept(
        "sasl.login.refresh.window.factor",
        Kind.DOUBLE,
        0.8,
        _NO_LOGIN,
        lowest=0.5,
        highest=1,
        per_broker=True,
    ),
    _kept(
        "sasl.login.refresh.window.jitter",
        Kind.DOUBLE,
        0.05,
        _NO_LOGIN,
        lowest=0,
        highest=0.25,
        per_broker=True,
    ),
)
# A start refuses settings ssl.* and sasl.* that BROKER_SETTINGS lacks (`_REFUSED_PREFIXES`).
KEPT_SETTINGS = {row.name: row for row in _KEPT_ROWS}
ALL_BROKER_SETTINGS = BROKER_SETTINGS | KEPT_SETTINGS

_NO_QUORUM, _NO_ZOOKEEPER = "there is no quorum", "there is no ZooKeeper"
_ONE_BROKER, _NOTHING_REPORTED = "there is one broker", "barnabas.metrics.port serves metrics"
_AT_ONCE = "a coordinator's record is written at once"
_NO_PURGATORY = "answered requests leave no entries behind"
IGNORED_KEYS = {
    "process.roles": "one process is broker and controller",
    "advertised.host.name": "advertised.listeners takes its place",
    "auto.include.jmx.reporter": _NOTHING_REPORTED,
    "broker.id.generation.enable": "set node.id instead",
    "client.quota.callback.class": "set quotas on users and client ids instead",
    "delete.records.purgatory.purge.interval.requests": _NO_PURGATORY,
    "early.start.listeners": "all listeners start together",
    "eligible.leader.replicas.enable": _ONE_BROKER,
    "fetch.purgatory.purge.interval.requests": _NO_PURGATORY,
    "group.coordinator.append.linger.ms": _AT_ONCE,
    "group.coordinator.cached.buffer.max.bytes": _AT_ONCE,
    "group.share.enable": "the feature share.version enables share groups",
    "group.share.max.groups": "the number of share groups is not limited",
    "group.share.persister.class.name": "__share_group_state stores the state of share groups",
    "host.name": "listeners takes its place",
    "initial.broker.registration.timeout.ms": _NO_QUORUM,
    "inter.broker.protocol.version": _ONE_BROKER,
    "log.cleaner.threads": "there is one cleaner process",
    "log.flush.start.offset.checkpoint.interval.ms": (
        "the start of a log is written to the disk before a client sees it"
    ),
    "log.dir.failure.timeout.ms": "a failure of the data directory stops the broker at once",
    "metric.reporters": _NOTHING_REPORTED,
    "port": "listeners takes its place",
    "principal.builder.class": "a principal is the user's name",
    "producer.purgatory.purge.interval.requests": _NO_PURGATORY,
    "request.timeout.ms": _ONE_BROKER,
    "reserved.broker.max.id": _ONE_BROKER,
    "sasl.client.callback.handler.class": _NO_LOGIN,
    "sasl.mechanism.controller.protocol": _NO_QUORUM,
    "ssl.allow.dn.changes": "a changed certificate is used as it is",
    "ssl.allow.san.changes": "a changed certificate is used as it is",
    "ssl.endpoint.identification.algorithm": "it is a setting of clients",
    "ssl.keymanager.algorithm": "there is no Java here",
    "ssl.provider": "there is no Java here",
    "ssl.secure.random.implementation": "there is no Java here",
    "ssl.trustmanager.algorithm": "there is no Java here",
    "security.providers": "there is no Java here",
    "server.max.startup.time.ms": "a start has no time limit",
    "share.coordinator.append.linger.ms": _AT_ONCE,
    "share.coordinator.cached.buffer.max.bytes": _AT_ONCE,
    "share.fetch.purgatory.purge.interval.requests": _NO_PURGATORY,
    "unclean.leader.election.interval.ms": _ONE_BROKER,
    "unstable.api.versions.enable": "only stable versions are supported",
    "unstable.feature.versions.enable": "only stable versions are supported",
}
IGNORED_PREFIXES = {
    "alter.config.policy.": "there are no policies",
    "alter.log.dirs.replication.quota.": _ONE_BROKER,
    "broker.heartbeat.": _NO_QUORUM,
    "broker.session.": _NO_QUORUM,
    "confluent.": _NOTHING_REPORTED,
    "controlled.shutdown.": _ONE_BROKER,
    "controller.": _NO_QUORUM,
    "create.topic.policy.": "there are no policies",
    "delegation.token.": "there are no delegation tokens",
    "group.consumer.assignor.offload.": "the assignment is computed at once",
    "group.share.assignor.offload.": "the assignment is computed at once",
    "group.streams.assignor.offload.": "an assignment of many tasks is computed in slices",
    "kafka.metrics.": _NOTHING_REPORTED,
    "leader.imbalance.": _ONE_BROKER,
    "log.cleaner.io.": _UNTHROTTLED,
    "log4j.": "the broker logs to standard error",
    "metadata.": "metadata are kept in a journal in the data directory",
    "metrics.": _NOTHING_REPORTED,
    "num.replica.": _ONE_BROKER,
    "password.encoder.": _NO_ZOOKEEPER,
    "remote.": _NO_TIERED_STORAGE,
    "replica.": _ONE_BROKER,
    "replication.quota.": _ONE_BROKER,
    "rlmm.config.": _NO_TIERED_STORAGE,
    "sasl.kerberos.": _NO_KERBEROS,
    "sasl.login.": _NO_LOGIN,
    "socket.connection.setup.": _ONE_BROKER,
    "telemetry.": "clients' metrics are counted and dropped",
    "zookeeper.": _NO_ZOOKEEPER,
}
UNSUPPORTED_MEMBERS = {
    "sasl.enabled.mechanisms": (("GSSAPI",), _NO_KERBEROS),
    "ssl.enabled.protocols": (
        ("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1"),
        "these versions are not secure (RFC 8996)",
    ),
}
_ASSIGNORS = "org.apache.kafka.coordinator.group.assignor."
OTHER_NAMES = {
    "group.consumer.assignors": {
        f"{_ASSIGNORS}UniformAssignor": "uniform",
        f"{_ASSIGNORS}RangeAssignor": "range",
    },
    "group.share.assignors": {f"{_ASSIGNORS}SimpleAssignor": "simple"},
}
_REFUSED_PREFIXES = {
    "sasl.": (
        "it has no counterpart: remove it; docs/SECURITY.md says which settings of SASL there are"
    ),
    "ssl.": (
        "it has no counterpart: remove it; docs/SECURITY.md says which settings of TLS there are"
    ),
    "zookeeper.ssl.": "there is no ZooKeeper: remove it",
}


def why_ignored(name: str) -> str | None:
    """Why one of Apache Kafka's settings has no effect here; None if it has an effect, or is
    unknown.
    """
    if name in BROKER_SETTINGS:
        return None
    return IGNORED_KEYS.get(name) or next(
        (why for prefix, why in IGNORED_PREFIXES.items() if name.startswith(prefix)), None
    )


def why_refused(name: str, text: str) -> str | None:
    """Why the broker does not start with one of Apache Kafka's settings, since its user would rely
    on an effect that is missing here. None if the setting does not prevent the start; an empty
    value never does.
    """
    if not trimmed(text):
        return None
    if name in BROKER_SETTINGS or why_ignored(name) is not None:
        return None
    return next((why for prefix, why in _REFUSED_PREFIXES.items() if name.startswith(prefix)), None)


def with_supported_members(name: str, text: str, warnings: list[str]) -> str:
    """The text of a list without the members of Apache Kafka's that this broker does not support,
    and with the names that others have here. A list of which nothing would be left is unchanged.

    Takes: warnings, to which a line is added if members are left out.
    """
    is_of_listener = name.startswith(LISTENER_PREFIX)
    setting = name.removeprefix(LISTENER_PREFIX).partition(".")[2] if is_of_listener else name
    unsupported, why = UNSUPPORTED_MEMBERS.get(setting, ((), ""))
    names = OTHER_NAMES.get(setting)
    if not unsupported and names is None:
        return text
    members = [trimmed(member) for member in text.split(",")]
    left = [(names or {}).get(one, one) for one in members if one not in unsupported]
    missing = [one for one in members if one in unsupported]
    if not left:
        return text
    if missing:
        warnings.append(f"{', '.join(missing)} of {name} is not supported: {why}")
    return ",".join(left)
