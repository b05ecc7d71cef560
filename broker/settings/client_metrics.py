"""The settings of a subscription to clients' metrics (KIP-714).

Subscriptions are stored and can be described, and `telemetry.py` asks clients for the metrics that
the subscriptions name. Source: KIP-714, Apache Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.settings.setting import (
    HOUR_MS,
    ConfigError,
    integer,
    nearest,
    rows_of,
    strings,
)
from barnabas.protocol.errors import Code, KafkaError


class SubscriptionRows:
    """The settings of a subscription to clients' metrics."""

    interval_ms = integer(
        300_000, "How often a client sends its metrics.", lowest=100, highest=HOUR_MS
    )
    match = strings(
        (), "The clients that send metrics: PROPERTY=PATTERN, joined by commas; empty: all."
    )
    metrics = strings((), "Prefixes of the names of wanted metrics; *: all.")


CLIENT_METRICS_SETTINGS = rows_of(SubscriptionRows)
CLIENT_PROPERTIES = frozenset(
    {
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


def check_client_metrics(configs: Mapping[str, str]) -> None:
    """Check the settings of a subscription. A pattern is not compiled, since Kafka's patterns have
    Java's syntax.

    Raises: KafkaError INVALID_REQUEST for an unknown name or a wrong value, INVALID_CONFIG for a
            wrong `match`.
    """
    for name, text in configs.items():
        setting = CLIENT_METRICS_SETTINGS.get(name)
        if setting is None:
            near = nearest(name, CLIENT_METRICS_SETTINGS)
            raise KafkaError(
                Code.INVALID_REQUEST, f"unknown setting of client metrics {name}{near}"
            )
        try:
            setting.parse(text)
        except ConfigError as error:
            raise KafkaError(Code.INVALID_REQUEST, str(error)) from error
    for pattern in configs["match"].split(",") if "match" in configs else ():
        name, equals, wanted = pattern.partition("=")
        if (
            not equals
            or not wanted.strip()
            or "=" in wanted
            or name.strip() not in CLIENT_PROPERTIES
        ):
            properties = ", ".join(sorted(CLIENT_PROPERTIES))
            raise KafkaError(
                Code.INVALID_CONFIG,
                f"match={pattern}: write PROPERTY=PATTERN, where PROPERTY is one of {properties}",
            )
