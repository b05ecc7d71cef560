"""The settings of Java consumers and producers: what `kafka.*` options may be called, and which
values they take.

A setting that means nothing here is passed over, as long as a Java client would take it. A value
that it would refuse is refused; a name that it does not know is warned of, as it does, with the
nearest one. Names that begin with `ssl.` or `sasl.` belong to security.py and to plug-ins, and are
not looked at.
Source: the documentation of Apache Kafka 4.1, "Consumer Configs" and "Producer Configs".
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import lru_cache

from barnabas.spark_connector.user_messages import logger

TEXT, BOOLEAN, INT, LONG = (
    "a text",
    "true or false",
    "a whole number of 32 bits",
    "a whole number of 64 bits",
)
_BITS = {INT: 31, LONG: 63}
_NAMES = {
    TEXT: """
        acks auto.offset.reset bootstrap.servers client.dns.lookup client.id client.rack
        compression.type config.providers group.id group.instance.id group.protocol
        group.remote.assignor interceptor.classes isolation.level key.deserializer
        key.serializer metadata.recovery.strategy metric.reporters metrics.recording.level
        partition.assignment.strategy partitioner.class security.protocol security.providers
        share.acknowledgement.mode transactional.id value.deserializer value.serializer
    """,
    BOOLEAN: """
        allow.auto.create.topics auto.include.jmx.reporter check.crcs enable.auto.commit
        enable.idempotence enable.metrics.push exclude.internal.topics
        partitioner.adaptive.partitioning.enable partitioner.ignore.keys
        transaction.two.phase.commit.enable
    """,
    INT: """
        auto.commit.interval.ms batch.size compression.gzip.level compression.lz4.level
        compression.zstd.level default.api.timeout.ms delivery.timeout.ms fetch.max.bytes
        fetch.max.wait.ms fetch.min.bytes heartbeat.interval.ms
        max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms
        max.poll.records max.request.size metrics.num.samples receive.buffer.bytes
        request.timeout.ms retries send.buffer.bytes session.timeout.ms
        transaction.timeout.ms
    """,
    LONG: """
        buffer.memory connections.max.idle.ms linger.ms max.block.ms metadata.max.age.ms
        metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms
        metrics.sample.window.ms partitioner.availability.timeout.ms
        reconnect.backoff.max.ms reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms
        socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
    """,
}
KINDS = {name: kind for kind, names in _NAMES.items() for name in names.split()}


def wrong_value(name: str, text: str) -> str:
    """The words for what a setting takes, where it does not take this.

    Empty where it does, or nobody knows the name, which comes without `kafka.` before it.
    """
    kind = KINDS.get(name, TEXT)
    if kind == BOOLEAN:
        return "" if text.strip().lower() in ("true", "false") else kind
    if kind in _BITS:
        try:
            number = int(text.strip())
        except ValueError:
            return kind
        return "" if -(1 << _BITS[kind]) <= number < 1 << _BITS[kind] else kind
    return ""


def warn_of_unknown(names: Iterable[str]) -> None:
    """Warn of names that no Java client knows, once of each in a process."""
    for name in names:
        if name not in KINDS and not name.startswith(("ssl.", "sasl.")):
            _warn(name)


@lru_cache(maxsize=1000)
def _warn(name: str) -> None:
    near = difflib.get_close_matches(name, KINDS, n=1, cutoff=0.6)
    hint = f"did you mean kafka.{near[0]}?" if near else "it is passed over"
    logger.warning("barnabas: option kafka.%s is no setting of a Kafka client: %s", name, hint)
