"""Metrics that clients push (KIP-714): the subscriptions of each client, and counts of pushes.

When an administrator sets a subscription (`client_metrics.py`), ApiVersions lists the two requests,
and clients request their subscription. The pushed metrics are counted but not decoded, since this
broker has no plugin that would export them. Without subscriptions no client pushes metrics.

For each of the latest `MOST_INSTANCES` clients that requested a subscription there is one entry.
The entries are not stored, so clients have to request their subscription again after a restart.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.broker.observation.counters import Counters
from barnabas.broker.settings.client_metrics import CLIENT_METRICS_SETTINGS
from barnabas.coordinator.groups.consumer.topic_patterns import InvalidPatternError, TopicPattern
from barnabas.protocol.compression import Codec
from barnabas.protocol.errors import Code, KafkaError

MOST_INSTANCES = 10_000
MOST_BYTES = 1 << 20  # telemetry.max.bytes
DEFAULT_INTERVAL_MS: int = CLIENT_METRICS_SETTINGS["interval.ms"].default
CODECS = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
ALL_METRICS = "*"
# longer properties match no pattern, since each letter may add an automaton state
LONGEST_MATCHED = 1000
NO_ID = uuid.UUID(int=0)


class MetricsSubscription(NamedTuple):
    """The subscription of one client. metrics: prefixes of the names of the wanted metrics; empty
    if no metrics are wanted.
    """

    subscription_id: int
    interval_ms: int
    metrics: tuple[str, ...]


@dataclass(slots=True)
class _Instance:
    """The state of one client. last_ms: the time of its last request that was not refused.
    may_push: whether it has requested its subscription since its last push. may_ask: whether it may
    request the subscription early, since a response required it to do so.
    """

    wanted: MetricsSubscription
    last_ms: int
    may_push: bool = True
    may_ask: bool = False
    has_ended: bool = False


class Telemetry:
    """The clients that have subscriptions, and the times of their requests.

    Takes: subscriptions, the subscriptions by name, as stored in the metadata journal; counters,
           which count the pushes of clients.
    """

    def __init__(self, subscriptions: Mapping[str, Mapping[str, str]], counters: Counters) -> None:
        self._subscriptions = subscriptions
        self._instances: dict[uuid.UUID, _Instance] = {}
        self._counters = counters

    def on_get_subscriptions(
        self, client_id: uuid.UUID, properties: Mapping[str, str], now_ms: int
    ) -> MetricsSubscription:
        """The subscription of the client.

        Takes:  properties, the client's properties, by the names that `match` uses.
        Raises: KafkaError THROTTLING_QUOTA_EXCEEDED if the client sent a request too recently.
        """
        known = self._instances.pop(client_id, None)
        if known is not None:
            self._instances[client_id] = known
            if not known.may_ask and now_ms < known.last_ms + known.wanted.interval_ms:
                raise KafkaError(Code.THROTTLING_QUOTA_EXCEEDED)
        wanted = self._wanted(client_id, properties)
        self._instances[client_id] = _Instance(wanted, now_ms)
        if len(self._instances) > MOST_INSTANCES:
            del self._instances[next(iter(self._instances))]
        return wanted

    def on_push(
        self,
        client_id: uuid.UUID,
        subscription_id: int,
        properties: Mapping[str, str],
        *,
        codec: int,
        size_bytes: int,
        is_last: bool,
        now_ms: int,
    ) -> None:
        """Count the metrics that a client has pushed.

        Raises: KafkaError INVALID_REQUEST without an id, or after the client's last push;
                THROTTLING_QUOTA_EXCEEDED for a push that is too early, UNKNOWN_SUBSCRIPTION_ID
                if the subscription has changed, UNSUPPORTED_COMPRESSION_TYPE,
                TELEMETRY_TOO_LARGE.
        """
        try:
            instance = self._instances.get(client_id)
            if client_id == NO_ID or (instance is not None and instance.has_ended):
                raise KafkaError(Code.INVALID_REQUEST)
            if instance is None:
                raise KafkaError(Code.UNKNOWN_SUBSCRIPTION_ID)
            is_early = now_ms < instance.last_ms + instance.wanted.interval_ms
            if is_early and not instance.may_push and not is_last:
                raise KafkaError(Code.THROTTLING_QUOTA_EXCEEDED)
            instance.may_push, instance.last_ms = False, now_ms
            if subscription_id != self._wanted(client_id, properties).subscription_id:
                instance.may_ask = True
                raise KafkaError(Code.UNKNOWN_SUBSCRIPTION_ID)
            if codec not in (Codec.NONE, *CODECS):
                instance.may_ask = True
                raise KafkaError(Code.UNSUPPORTED_COMPRESSION_TYPE)
            if size_bytes > MOST_BYTES:
                raise KafkaError(Code.TELEMETRY_TOO_LARGE)
            instance.has_ended = is_last
        except KafkaError:
            self._counters.add("barnabas_client_metrics_pushes_total", "refused")
            raise
        self._counters.add("barnabas_client_metrics_pushes_total", "taken")
        self._counters.add("barnabas_client_metrics_bytes_total", count=size_bytes)

    def _wanted(self, client_id: uuid.UUID, properties: Mapping[str, str]) -> MetricsSubscription:
        """The union of all matching subscriptions: all their metrics, at the shortest interval."""
        metrics: dict[str, None] = {}
        interval_ms = None
        for configs in self._subscriptions.values():
            if not _matches(configs.get("match", ""), properties):
                continue
            named = CLIENT_METRICS_SETTINGS["metrics"].parse(configs.get("metrics", ""))
            metrics.update(dict.fromkeys(named))
            own = CLIENT_METRICS_SETTINGS["interval.ms"].parse(
                configs.get("interval.ms", str(DEFAULT_INTERVAL_MS))
            )
            interval_ms = own if interval_ms is None else min(interval_ms, own)
        names = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
        interval_ms = DEFAULT_INTERVAL_MS if interval_ms is None else interval_ms
        text = f"{interval_ms} {','.join(names)}".encode()
        number = zlib.crc32(client_id.bytes, zlib.crc32(text))
        return MetricsSubscription(
            # the id is a signed int32 in the protocol
            number - (1 << 32) if number >> 31 else number,
            interval_ms,
            names,
        )


def _matches(patterns: str, properties: Mapping[str, str]) -> bool:
    """Whether every PROPERTY=PATTERN matches. A pattern that is not valid in RE2's syntax matches
    no client, and no pattern matches a client with very long properties.
    """
    for pattern in CLIENT_METRICS_SETTINGS["match"].parse(patterns):
        name, _, wanted = pattern.partition("=")
        value = properties.get(name.strip(), "")
        if len(value) > LONGEST_MATCHED:
            return False
        try:
            if not TopicPattern(wanted.strip(), frozenset(value)).matches(value):
                return False
        except InvalidPatternError:
            return False
    return True
