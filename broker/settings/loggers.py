"""The loggers of this process. Levels have log4j's names, which Kafka's requests use (KIP-412).

    log4j    TRACE  DEBUG  INFO  WARN     ERROR  FATAL
    Python   5      DEBUG  INFO  WARNING  ERROR  CRITICAL

A logger's level that is not in this table is shown as the next more severe one. A change lasts
until the process ends.

Tools and runbooks name Apache Kafka's loggers. KAFKAS lists those that people set, each with the
logger of this program that writes about the same: they are described and set like any other.
"""

from __future__ import annotations

import logging

ROOT = "root"
LEVELS = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}

KAFKAS = {
    "kafka": "barnabas",
    "kafka.authorizer.logger": "barnabas.security",
    "kafka.controller": "barnabas.metadata",
    "kafka.coordinator.group": "barnabas.groups",
    "kafka.coordinator.transaction": "barnabas.transactions",
    "kafka.log": "barnabas.storage",
    "kafka.log.LogCleaner": "barnabas.compaction",
    "kafka.log.LogManager": "barnabas.storage.directory.log_manager",
    "kafka.network": "barnabas.server",
    "kafka.network.RequestChannel$": "barnabas.server",
    "kafka.request.logger": "barnabas.server",
    "kafka.server": "barnabas.broker",
    "kafka.server.KafkaApis": "barnabas.broker",
    "kafka.server.ReplicaManager": "barnabas.broker",
    "org.apache.kafka": "barnabas",
    "org.apache.kafka.common.network": "barnabas.server",
    "org.apache.kafka.controller": "barnabas.metadata",
    "org.apache.kafka.coordinator.group": "barnabas.groups",
    "org.apache.kafka.coordinator.transaction": "barnabas.transactions",
    "org.apache.kafka.storage.internals.log": "barnabas.storage",
    "org.apache.kafka.storage.internals.log.LogCleaner": "barnabas.compaction",
    "state.change.logger": "barnabas.metadata",
}

# The parent of all loggers of this program. It is created here so that its level can be set.
logger = logging.getLogger("barnabas")


def levels() -> dict[str, str]:
    """The effective level of each logger, beginning with the root logger; Kafka's come last."""
    return (
        {ROOT: _name_of(logging.getLogger().level)}
        | {
            name: _name_of(existing.getEffectiveLevel())
            for name in sorted(logging.Logger.manager.loggerDict)
            if (existing := _existing(name)) is not None
        }
        | {
            name: _name_of(logging.getLogger(ours).getEffectiveLevel())
            for name, ours in KAFKAS.items()
        }
    )


def exists(name: str) -> bool:
    """Whether a logger with the given name exists, without creating one."""
    return _existing(name) is not None


def set_level(name: str, level: str | None) -> None:
    """Set the level of an existing logger to one of LEVELS. None resets it to the level of its
    parent.
    """
    existing = _existing(name)
    assert existing is not None, name
    existing.setLevel(logging.NOTSET if level is None else LEVELS[level])
    logger.warning(
        "the level of the logger %s is %s now", name, level or "that of the one above it"
    )


def _existing(name: str) -> logging.Logger | None:
    if name in KAFKAS:
        return logging.getLogger(KAFKAS[name])
    existing = logging.getLogger() if name == ROOT else logging.Logger.manager.loggerDict.get(name)
    return existing if isinstance(existing, logging.Logger) else None


def _name_of(number: int) -> str:
    return next((name for name, level in LEVELS.items() if number <= level), "FATAL")
