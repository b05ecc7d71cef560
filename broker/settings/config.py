"""Settings by Apache Kafka's names: of the broker, and of topics.

Each table says a setting's kind, default, bounds and purpose, and for a topic's setting the
broker-level settings that are its default, in order of precedence. Four layers give a broker
setting its value, the first that has one:

    dynamic            changed at run time on this broker              kept in the metadata journal
    dynamic default    changed at run time for every broker (name "")  kept in the metadata journal
    explicit           properties file, --set
    default            the table

Source: Apache Kafka 3.9's configuration reference; KIP-226 (dynamic settings).
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from barnabas.broker.java_text import trimmed
from barnabas.broker.settings.features import EMULATED, LEVELS, TODAY, Release, release_of
from barnabas.broker.settings.listeners import (
    PASSWORD_MECHANISMS,
    SASL_MECHANISMS,
    ListenerError,
    read_listeners,
)
from barnabas.broker.settings.listeners import PREFIX as LISTENER_PREFIX
from barnabas.protocol.compression import Levels
from barnabas.storage.log_config import LogConfig

if TYPE_CHECKING:
    from barnabas.broker.logs.metadata import ScramCredential

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
OWN_PREFIX = "barnabas."
Value = TypeVar("Value")


class ConfigError(Exception):
    """A setting is unknown or has a value that it may not have; the text says which, and what to
    do.
    """


class Kind(Enum):
    """A setting's type; `number` is what DescribeConfigs tells of it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9

    @property
    def number(self) -> int:
        return self.value


_BOUNDS = {Kind.INT: 2**31, Kind.SHORT: 2**15, Kind.LONG: 2**63}
_LIST_COMMA = re.compile(r"\s*,\s*", re.ASCII)
_WHOLE_NUMBER = re.compile(
    r"[+-]?[0-9]+"
)  # int() would also take 1_000 and digits of other scripts
_NUMBER = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
)  # float() would also take nan and inf


class Setting(NamedTuple):
    """A setting: one row of the table.

    choices: of a STRING its values, of a LIST its members; empty: anything. lowest, highest:
    inclusive bounds of a number. never: values within these that it may not have either;
    never_because says why, and what it may. dynamic: a broker's setting that may change while it
    runs. synonyms: for a topic's setting, see the module. per_broker: may change on one broker, not
    for all at once.
    """

    name: str
    kind: Kind
    default: Any
    doc: str
    lowest: float | None = None
    highest: float | None = None
    choices: tuple[str, ...] = ()
    dynamic: bool = False
    synonyms: tuple[str, ...] = ()
    never: tuple[Any, ...] = ()
    never_because: str = ""
    per_broker: bool = False

    def parse(self, text: str) -> Any:
        """The typed value. Raises ConfigError."""
        text = trimmed(text)
        value = self._parse(text)
        if value in self.never:
            raise ConfigError(f"{self.name}={text}: {self.never_because}")
        return value

    def _parse(self, text: str) -> Any:
        kind = self.kind
        if kind is Kind.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise ConfigError(f"{self.name}={text}: it must be true or false")
            return text.lower() == "true"
        if kind in _BOUNDS or kind is Kind.DOUBLE:
            return self._parse_number(text)
        if kind is Kind.LIST:
            members = _LIST_COMMA.split(text) if text else []
            for member in members:
                if self.choices and member not in self.choices:
                    raise ConfigError(
                        f"{self.name}={text}: it is a list of {' and '.join(self.choices)}"
                    )
            return tuple(members)
        if self.choices and text not in self.choices:
            choices = ", ".join(choice or "empty" for choice in self.choices)
            raise ConfigError(f"{self.name}={text}: it must be one of {choices}")
        return text

    def _parse_number(self, text: str) -> float:
        if self.kind is Kind.DOUBLE:
            if not _NUMBER.fullmatch(text):
                raise ConfigError(f"{self.name}={text}: it must be a number")
            value = float(text)
        else:
            if not _WHOLE_NUMBER.fullmatch(text) or len(text) > 20:
                raise ConfigError(
                    f"{self.name}={text[:40]}: it must be a whole number of at most 19 digits"
                )
            value = int(text)
        bound = _BOUNDS.get(self.kind)
        lowest = self.lowest if self.lowest is not None else None if bound is None else -bound
        highest = self.highest if self.highest is not None else None if bound is None else bound - 1
        if (lowest is not None and value < lowest) or (highest is not None and value > highest):
            raise ConfigError(f"{self.name}={text}: it must be between {lowest} and {highest}")
        return value

    def render(self, value: Any) -> str | None:
        """The value as text, as DescribeConfigs shows it."""
        if value is None:
            return None
        if self.kind is Kind.BOOLEAN:
            return "true" if value else "false"
        if self.kind is Kind.LIST:
            return ",".join(value)
        return str(value)


def _topic(name: str, kind: Kind, default: Any, doc: str, *synonyms: str, **more: Any) -> Setting:
    return Setting(name, kind, default, doc, synonyms=synonyms, **more)


CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
POLICIES = ("compact", "delete")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")

_TOPIC_ROWS = (
    _topic("cleanup.policy", Kind.LIST, ("delete",), "What becomes of old data: delete, compact, or both.", "log.cleanup.policy", choices=POLICIES),
    _topic("compression.gzip.level", Kind.INT, -1, "The level where the broker compresses with gzip.", "compression.gzip.level", lowest=-1, highest=9, never=(0,), never_because="it is 1 to 9, or -1 for the codec's default"),
    _topic("compression.lz4.level", Kind.INT, 9, "The level where the broker compresses with lz4; 9 stands for its fast compressor.", "compression.lz4.level", lowest=1, highest=17),
    _topic("compression.type", Kind.STRING, "producer", "The codec that data are stored in; producer: as they come.", "compression.type", choices=CODECS),
    _topic("compression.zstd.level", Kind.INT, 3, "The level where the broker compresses with zstd.", "compression.zstd.level", lowest=-131072, highest=22),
    _topic("delete.retention.ms", Kind.LONG, DAY_MS, "How long compaction keeps tombstones and markers.", "log.cleaner.delete.retention.ms", lowest=0),
    _topic("file.delete.delay.ms", Kind.LONG, MINUTE_MS, "How long a deleted file stays on the disk.", "log.segment.delete.delay.ms", lowest=0),
    _topic("flush.messages", Kind.LONG, LONG_MAX, "When so many records are not on the disk yet, acks=all waits until they are; 1: always.", "log.flush.interval.messages", lowest=1),
    _topic("flush.ms", Kind.LONG, LONG_MAX, "How long a record may stay off the disk; its answer does not wait for that.", "log.flush.interval.ms", "log.flush.scheduler.interval.ms", lowest=0),
    _topic("follower.replication.throttled.replicas", Kind.LIST, (), "Accepted; there is one replica."),
    _topic("index.interval.bytes", Kind.INT, 4096, "How much data lies between two index entries.", "log.index.interval.bytes", lowest=0),
    _topic("leader.replication.throttled.replicas", Kind.LIST, (), "Accepted; there is one replica."),
    _topic("local.retention.bytes", Kind.LONG, -2, "Accepted; there is no tiered storage.", "log.local.retention.bytes", lowest=-2),
    _topic("local.retention.ms", Kind.LONG, -2, "Accepted; there is no tiered storage.", "log.local.retention.ms", lowest=-2),
    _topic("max.compaction.lag.ms", Kind.LONG, LONG_MAX, "How long a record may stay uncompacted.", "log.cleaner.max.compaction.lag.ms", lowest=1),
    _topic("max.message.bytes", Kind.INT, 1048588, "The largest batch that is taken.", "message.max.bytes", lowest=0),
    _topic("message.downconversion.enable", Kind.BOOLEAN, True, "Accepted; who asks for older messages is always given them.", "log.message.downconversion.enable"),
    _topic("message.format.version", Kind.STRING, "3.0-IV1", "Accepted; the format is v2.", "log.message.format.version"),
    _topic("message.timestamp.after.max.ms", Kind.LONG, LONG_MAX, "How far ahead of the broker's clock a record's time may be.", "log.message.timestamp.after.max.ms", lowest=0),
    _topic("message.timestamp.before.max.ms", Kind.LONG, LONG_MAX, "How far behind the broker's clock a record's time may be.", "log.message.timestamp.before.max.ms", lowest=0),
    _topic("message.timestamp.difference.max.ms", Kind.LONG, LONG_MAX, "Both of the two before, in older versions.", "log.message.timestamp.difference.max.ms", lowest=0),
    _topic("message.timestamp.type", Kind.STRING, "CreateTime", "Whose clock a record's time is.", "log.message.timestamp.type", choices=TIMESTAMP_TYPES),
    _topic("min.cleanable.dirty.ratio", Kind.DOUBLE, 0.5, "How much of a log must be uncompacted before it is compacted.", "log.cleaner.min.cleanable.ratio", lowest=0, highest=1),
    _topic("min.compaction.lag.ms", Kind.LONG, 0, "How long a record stays uncompacted at least.", "log.cleaner.min.compaction.lag.ms", lowest=0),
    _topic("min.insync.replicas", Kind.INT, 1, "How many replicas have to be in sync for a Produce with acks=all; one broker has one replica, and heeds it not.", "min.insync.replicas", lowest=1),
    _topic("preallocate", Kind.BOOLEAN, False, "Accepted; segments grow as they are written.", "log.preallocate"),
    _topic("remote.log.copy.disable", Kind.BOOLEAN, False, "Accepted; there is no tiered storage."),
    _topic("remote.log.delete.on.disable", Kind.BOOLEAN, False, "Accepted; there is no tiered storage."),
    _topic("remote.storage.enable", Kind.BOOLEAN, False, "There is no tiered storage: only false is taken.", never=(True,), never_because="there is no tiered storage here"),
    _topic("retention.bytes", Kind.LONG, -1, "How large a partition may grow before its oldest segments go; -1: no bound.", "log.retention.bytes"),
    _topic("retention.ms", Kind.LONG, 7 * DAY_MS, "How long records are kept; -1: for ever.", "log.retention.ms", "log.retention.minutes", "log.retention.hours", lowest=-1),
    _topic("segment.bytes", Kind.INT, 1 << 30, "How large a segment grows.", "log.segment.bytes", lowest=14),
    _topic("segment.index.bytes", Kind.INT, 10 << 20, "How large a segment's index grows.", "log.index.size.max.bytes", lowest=4),
    _topic("segment.jitter.ms", Kind.LONG, 0, "How much earlier than segment.ms a segment may be rolled.", "log.roll.jitter.ms", "log.roll.jitter.hours", lowest=0),
    _topic("segment.ms", Kind.LONG, 7 * DAY_MS, "How long a segment is written to.", "log.roll.ms", "log.roll.hours", lowest=1),
    _topic("unclean.leader.election.enable", Kind.BOOLEAN, False, "Whether, of several brokers, one that was not in sync may lead when none that was is there.", "unclean.leader.election.enable"),
)  # fmt: skip
TOPIC_SETTINGS = {row.name: row for row in _TOPIC_ROWS}
MOST_BROKERS = 100
KAFKAS_FACTOR = 3  # of Apache Kafka's own topics
REPLICATION_FACTORS = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
)
_UNIT_MS = {"hours": HOUR_MS, "minutes": MINUTE_MS}


def _broker(name: str, kind: Kind, default: Any, doc: str, **more: Any) -> Setting:
    return Setting(name, kind, default, doc, **more)


_BROKER_ROWS = (
    _broker("node.id", Kind.INT, 1, "This broker's number.", lowest=0),
    _broker("broker.id", Kind.INT, None, "The older name of node.id.", lowest=0),
    _broker("broker.rack", Kind.STRING, None, "Told in Metadata."),
    _broker("listeners", Kind.STRING, "PLAINTEXT://127.0.0.1:9092", "Where to listen: NAME://ADDRESS:PORT, and more with commas between; a name is PLAINTEXT, SSL, SASL_PLAINTEXT (clients have to say who they are) or SASL_SSL, or one of listener.security.protocol.map; port 0 takes a free one; unix:///PATH is a socket in the file system."),
    _broker("advertised.listeners", Kind.STRING, None, "What clients are told to connect to, for each name of listeners; by default the address where they came in."),
    _broker("log.dirs", Kind.STRING, None, "The data directory; one."),
    _broker("log.dir", Kind.STRING, "./data", "The data directory, where log.dirs is not set."),
    _broker("socket.request.max.bytes", Kind.INT, 100 << 20, "The largest request that is read.", lowest=1),
    _broker("fetch.max.bytes", Kind.INT, 55 << 20, "The most that one fetch is given.", lowest=1024),
    _broker("max.incremental.fetch.session.cache.slots", Kind.INT, 1000, "How many fetch sessions are kept.", lowest=0),
    _broker("num.partitions", Kind.INT, 1, "How many partitions a topic gets where its creation does not say.", lowest=1),
    _broker("default.replication.factor", Kind.INT, 1, "How many replicas a topic gets; with several brokers (barnabas.brokers) the default is their number, 3 at most.", lowest=1),
    _broker("auto.create.topics.enable", Kind.BOOLEAN, True, "Whether topics are made when they are first asked for."),
    _broker("delete.topic.enable", Kind.BOOLEAN, True, "Whether topics may be deleted."),
    _broker("message.max.bytes", Kind.INT, 1048588, "Default of max.message.bytes.", lowest=0, dynamic=True),
    _broker("min.insync.replicas", Kind.INT, 1, "Default of the topic's setting.", lowest=1, dynamic=True),
    _broker("compression.type", Kind.STRING, "producer", "Default of the topic's setting.", choices=CODECS, dynamic=True),
    _broker("compression.gzip.level", Kind.INT, -1, "Default of the topic's setting.", lowest=-1, highest=9, never=(0,), never_because="it is 1 to 9, or -1 for the codec's default", dynamic=True),
    _broker("compression.lz4.level", Kind.INT, 9, "Default of the topic's setting.", lowest=1, highest=17, dynamic=True),
    _broker("compression.zstd.level", Kind.INT, 3, "Default of the topic's setting.", lowest=-131072, highest=22, dynamic=True),
    _broker("unclean.leader.election.enable", Kind.BOOLEAN, False, "Default of the topic's setting.", dynamic=True),
    _broker("log.cleanup.policy", Kind.LIST, ("delete",), "Default of cleanup.policy.", choices=POLICIES, dynamic=True),
    _broker("log.cleaner.delete.retention.ms", Kind.LONG, DAY_MS, "Default of delete.retention.ms.", lowest=0, dynamic=True),
    _broker("log.cleaner.max.compaction.lag.ms", Kind.LONG, LONG_MAX, "Default of max.compaction.lag.ms.", lowest=1, dynamic=True),
    _broker("log.cleaner.min.cleanable.ratio", Kind.DOUBLE, 0.5, "Default of min.cleanable.dirty.ratio.", lowest=0, highest=1, dynamic=True),
    _broker("log.cleaner.min.compaction.lag.ms", Kind.LONG, 0, "Default of min.compaction.lag.ms.", lowest=0, dynamic=True),
    _broker("log.cleaner.enable", Kind.BOOLEAN, True, "Whether compaction runs."),
    _broker("log.cleaner.dedupe.buffer.size", Kind.LONG, 128 << 20, "How much memory the cleaner's map of keys may take.", lowest=1 << 20, dynamic=True),
    _broker("log.cleaner.backoff.ms", Kind.LONG, 15_000, "How long the cleaner rests when there is nothing to do.", lowest=0, dynamic=True),
    _broker("log.flush.interval.messages", Kind.LONG, LONG_MAX, "Default of flush.messages.", lowest=1, dynamic=True),
    _broker("log.flush.interval.ms", Kind.LONG, None, "Default of flush.ms.", dynamic=True),
    _broker("log.flush.scheduler.interval.ms", Kind.LONG, LONG_MAX, "Default of flush.ms where log.flush.interval.ms is not set."),
    _broker("log.flush.offset.checkpoint.interval.ms", Kind.INT, MINUTE_MS, "How often recovery points are written down.", lowest=0),
    _broker("log.index.interval.bytes", Kind.INT, 4096, "Default of index.interval.bytes.", lowest=0, dynamic=True),
    _broker("log.index.size.max.bytes", Kind.INT, 10 << 20, "Default of segment.index.bytes.", lowest=4, dynamic=True),
    _broker("log.initial.task.delay.ms", Kind.LONG, 30_000, "How long after the start periodic tasks begin.", lowest=0),
    _broker("log.local.retention.bytes", Kind.LONG, -2, "Default of local.retention.bytes.", lowest=-2, dynamic=True),
    _broker("log.local.retention.ms", Kind.LONG, -2, "Default of local.retention.ms.", lowest=-2, dynamic=True),
    _broker("log.message.downconversion.enable", Kind.BOOLEAN, True, "Default of the topic's setting.", dynamic=True),
    _broker("log.message.format.version", Kind.STRING, "3.0-IV1", "Default of the topic's setting."),
    _broker("log.message.timestamp.after.max.ms", Kind.LONG, LONG_MAX, "Default of the topic's setting.", lowest=0, dynamic=True),
    _broker("log.message.timestamp.before.max.ms", Kind.LONG, LONG_MAX, "Default of the topic's setting.", lowest=0, dynamic=True),
    _broker("log.message.timestamp.difference.max.ms", Kind.LONG, LONG_MAX, "Default of the topic's setting.", lowest=0, dynamic=True),
    _broker("log.message.timestamp.type", Kind.STRING, "CreateTime", "Default of the topic's setting.", choices=TIMESTAMP_TYPES, dynamic=True),
    _broker("log.preallocate", Kind.BOOLEAN, False, "Default of preallocate.", dynamic=True),
    _broker("log.retention.bytes", Kind.LONG, -1, "Default of retention.bytes.", dynamic=True),
    _broker("log.retention.check.interval.ms", Kind.LONG, 300_000, "How often retention is looked after.", lowest=1),
    _broker("log.retention.hours", Kind.INT, 168, "Default of retention.ms, in hours, where neither of the next two is set.", never=(0,), never_because="it is 1 or more, or -1: for ever"),
    _broker("log.retention.minutes", Kind.INT, None, "Default of retention.ms, in minutes, where log.retention.ms is not set.", never=(0,), never_because="it is 1 or more, or -1: for ever"),
    _broker("log.retention.ms", Kind.LONG, None, "Default of retention.ms.", never=(0,), never_because="it is 1 or more, or -1: for ever", dynamic=True),
    _broker("log.roll.hours", Kind.INT, 168, "Default of segment.ms, in hours, where log.roll.ms is not set.", lowest=1),
    _broker("log.roll.ms", Kind.LONG, None, "Default of segment.ms.", dynamic=True),
    _broker("log.roll.jitter.hours", Kind.INT, 0, "Default of segment.jitter.ms, in hours.", lowest=0),
    _broker("log.roll.jitter.ms", Kind.LONG, None, "Default of segment.jitter.ms.", dynamic=True),
    _broker("log.segment.bytes", Kind.INT, 1 << 30, "Default of segment.bytes.", lowest=14, dynamic=True),
    _broker("log.segment.delete.delay.ms", Kind.LONG, MINUTE_MS, "Default of file.delete.delay.ms.", lowest=0, dynamic=True),
    _broker("offset.metadata.max.bytes", Kind.INT, 4096, "The longest metadata of a committed offset.", lowest=0),
    _broker("offsets.commit.required.acks", Kind.SHORT, -1, "Accepted; there is one replica."),
    _broker("offsets.commit.timeout.ms", Kind.INT, 5000, "Accepted; there is one replica.", lowest=1),
    _broker("offsets.retention.check.interval.ms", Kind.LONG, 600_000, "How often expired offsets are looked for.", lowest=1),
    _broker("offsets.retention.minutes", Kind.INT, 10_080, "How long offsets of an empty group are kept.", lowest=1),
    _broker("offsets.topic.num.partitions", Kind.INT, 50, "Partitions of __consumer_offsets, when it is made.", lowest=1),
    _broker("offsets.topic.replication.factor", Kind.SHORT, 1, "As default.replication.factor, for __consumer_offsets.", lowest=1),
    _broker("offsets.topic.segment.bytes", Kind.INT, 100 << 20, "Segments of __consumer_offsets.", lowest=14),
    _broker("offsets.topic.compression.codec", Kind.INT, 0, "Accepted; the topic is not compressed."),
    _broker("offsets.load.buffer.size", Kind.INT, 5 << 20, "Accepted."),
    _broker("transaction.state.log.num.partitions", Kind.INT, 50, "Partitions of __transaction_state, when it is made.", lowest=1),
    _broker("transaction.state.log.replication.factor", Kind.SHORT, 1, "As default.replication.factor, for __transaction_state.", lowest=1),
    _broker("transaction.state.log.min.isr", Kind.INT, 1, "How many replicas of __transaction_state have to be in sync for requests of transactions; one broker has one replica, and heeds it not.", lowest=1),
    _broker("transaction.state.log.segment.bytes", Kind.INT, 100 << 20, "Segments of __transaction_state.", lowest=14),
    _broker("transaction.state.log.load.buffer.size", Kind.INT, 5 << 20, "Accepted."),
    _broker("transaction.max.timeout.ms", Kind.INT, 15 * MINUTE_MS, "The longest transaction timeout that a producer may ask for.", lowest=1),
    _broker("transaction.abort.timed.out.transaction.cleanup.interval.ms", Kind.INT, 10_000, "Accepted; transactions are aborted when their time is up.", lowest=1),
    _broker("transaction.remove.expired.transaction.cleanup.interval.ms", Kind.INT, HOUR_MS, "Accepted; transactional ids expire when their time is up.", lowest=1),
    _broker("transaction.partition.verification.enable", Kind.BOOLEAN, True, "Accepted; partitions are always verified (KIP-890).", dynamic=True),
    _broker("transaction.two.phase.commit.enable", Kind.BOOLEAN, False, "Whether producers may take part in two-phase commit (KIP-939): their transactions have no timeout."),
    _broker("transactional.id.expiration.ms", Kind.INT, 7 * DAY_MS, "How long an unused transactional id is remembered.", lowest=1),
    _broker("producer.id.expiration.ms", Kind.INT, DAY_MS, "How long a partition remembers an idle producer.", lowest=1, dynamic=True),
    _broker("producer.id.expiration.check.interval.ms", Kind.INT, 600_000, "How often idle producers are looked for.", lowest=1),
    _broker("group.min.session.timeout.ms", Kind.INT, 6000, "The shortest session timeout of a group's member.", lowest=0),
    _broker("group.max.session.timeout.ms", Kind.INT, 1_800_000, "The longest session timeout of a group's member.", lowest=0),
    _broker("group.max.size", Kind.INT, INT_MAX, "How many members a group may have.", lowest=1),
    _broker("group.initial.rebalance.delay.ms", Kind.INT, 0, "How long a new group waits for more members.", lowest=0),
    _broker("group.coordinator.new.enable", Kind.BOOLEAN, False, "Accepted; there is one coordinator."),
    _broker("group.coordinator.rebalance.protocols", Kind.LIST, ("classic", "consumer"), "Accepted; both protocols are spoken."),
    _broker("group.coordinator.threads", Kind.INT, 1, "Accepted."),
    _broker("group.consumer.assignors", Kind.LIST, ("uniform", "range"), "The assignors of consumer groups (KIP-848); the first holds where members name none.", choices=("uniform", "range"), never=((),), never_because="one is needed"),
    _broker("group.consumer.assignment.interval.ms", Kind.INT, 1000, "How often the assignment of a consumer group is computed at most; 0: at each change.", lowest=0),
    _broker("group.consumer.min.assignment.interval.ms", Kind.INT, 0, "The least that a group may set as consumer.assignment.interval.ms.", lowest=0),
    _broker("group.consumer.max.assignment.interval.ms", Kind.INT, 15_000, "The most that a group may set as consumer.assignment.interval.ms.", lowest=0),
    _broker("group.consumer.heartbeat.interval.ms", Kind.INT, 5000, "How often members of consumer groups send heartbeats.", lowest=1),
    _broker("group.consumer.min.heartbeat.interval.ms", Kind.INT, 5000, "The least that a group may set as consumer.heartbeat.interval.ms.", lowest=1),
    _broker("group.consumer.max.heartbeat.interval.ms", Kind.INT, 15_000, "The most that a group may set as consumer.heartbeat.interval.ms.", lowest=1),
    _broker("group.consumer.session.timeout.ms", Kind.INT, 45_000, "When a member of a consumer group that is silent is removed.", lowest=1),
    _broker("group.consumer.min.session.timeout.ms", Kind.INT, 45_000, "The least that a group may set as consumer.session.timeout.ms.", lowest=1),
    _broker("group.consumer.max.session.timeout.ms", Kind.INT, 60_000, "The most that a group may set as consumer.session.timeout.ms.", lowest=1),
    _broker("group.consumer.max.size", Kind.INT, INT_MAX, "How many members a consumer group may have.", lowest=1),
    _broker("group.consumer.migration.policy", Kind.STRING, "bidirectional", "Whether groups become consumer groups when a consumer joins (upgrade), and classic ones when the last has left (downgrade).", choices=("disabled", "upgrade", "downgrade", "bidirectional")),
    _broker("group.consumer.regex.refresh.interval.ms", Kind.INT, 600_000, "When the patterns of a consumer group are looked up again though no topic came or went.", lowest=10_000),
    _broker("connections.max.idle.ms", Kind.LONG, 600_000, "A connection on which nothing came or was sent for so long, and that waits for no answer, is closed; negative: never."),
    _broker("quota.window.num", Kind.INT, 11, "Over how many windows the rates of clients with quotas are measured.", lowest=1),
    _broker("quota.window.size.seconds", Kind.INT, 1, "The length of such a window.", lowest=1),
    _broker("controller.quota.window.num", Kind.INT, 11, "How many windows' worth of a controller_mutation_rate may be used at once.", lowest=1),
    _broker("controller.quota.window.size.seconds", Kind.INT, 1, "The length of such a window.", lowest=1),
    _broker("max.connections", Kind.INT, INT_MAX, "How many connections there may be; who comes then waits until another one ends.", lowest=1, dynamic=True),
    _broker("max.connections.per.ip", Kind.INT, INT_MAX, "How many connections there may be from one address; those beyond are closed. 0 only with overrides.", lowest=0, dynamic=True),
    _broker("max.connections.per.ip.overrides", Kind.STRING, "", "Other numbers for some addresses: ADDRESS:NUMBER, joined by commas.", dynamic=True),
    _broker("max.connection.creation.rate", Kind.INT, INT_MAX, "How many connections are taken a second, measured over the windows of quotas; others wait.", lowest=0, dynamic=True),
    _broker("barnabas.authentication.timeout.ms", Kind.INT, 30_000, "A connection whose TLS is not set up by then, or whose client has not shown who it is where it has to, is closed; -1: never.", lowest=-1),
    _broker("num.network.threads", Kind.INT, 3, "Accepted; there is one thread.", lowest=1, dynamic=True),
    _broker("num.io.threads", Kind.INT, 8, "Accepted; there is one thread.", lowest=1, dynamic=True),
    _broker("num.recovery.threads.per.data.dir", Kind.INT, 1, "Accepted.", lowest=1, dynamic=True),
    _broker("num.replica.fetchers", Kind.INT, 1, "Accepted; there is one replica.", dynamic=True),
    _broker("background.threads", Kind.INT, 10, "Accepted; there is one thread.", lowest=1, dynamic=True),
    _broker("queued.max.request.bytes", Kind.LONG, 256 << 20, "What all connections together may hold of requests that are not whole yet, or wait for a thread: beyond it one connection of a principal at a time is read from, and those whose requests do not go on are closed; -1: no bound.", lowest=-1),
    _broker("barnabas.request.max.bytes", Kind.INT, 2 << 20, "The largest request that is read and is no Produce, and what a Produce may have beside its records. Those bytes name topics and partitions, and cost a hundred times as much.", lowest=1 << 16),
    _broker("queued.max.requests", Kind.INT, 500, "Accepted; each connection has one request under way.", lowest=1),
    _broker("socket.send.buffer.bytes", Kind.INT, 102_400, "Accepted; the system's default is used."),
    _broker("socket.receive.buffer.bytes", Kind.INT, 102_400, "Accepted; the system's default is used."),
    _broker("socket.listen.backlog.size", Kind.INT, 50, "Accepted.", lowest=1),
    _broker("auto.leader.rebalance.enable", Kind.BOOLEAN, True, "Accepted; there is one replica."),
    _broker("controlled.shutdown.enable", Kind.BOOLEAN, True, "Accepted; there is one broker."),
    _broker("security.inter.broker.protocol", Kind.STRING, "PLAINTEXT", "Accepted; there is one broker."),
    _broker("inter.broker.listener.name", Kind.STRING, None, "One of listeners; otherwise without effect, as there is one broker."),
    _broker("listener.security.protocol.map", Kind.STRING, "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL", "What protocol each listener name stands for, as NAME:PROTOCOL with commas between."),
    _broker("controller.listener.names", Kind.LIST, ("CONTROLLER",), "Listeners of these names are left out: there is no controller."),
    _broker("sasl.enabled.mechanisms", Kind.LIST, PASSWORD_MECHANISMS, "How clients may show who they are, on a listener with SASL.", choices=SASL_MECHANISMS),
    _broker("sasl.oauthbearer.jwks.endpoint.url", Kind.STRING, None, "Where the keys are that sign tokens (a JWKS): https://..., or file:///PATH. With OAUTHBEARER alone, as are the next."),
    _broker("sasl.oauthbearer.jwks.endpoint.refresh.ms", Kind.LONG, HOUR_MS, "How often they are read anew.", lowest=1),
    _broker("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", Kind.LONG, 100, "How soon they are read again where they could not be; nor sooner where a token's key was not among them.", lowest=1),
    _broker("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", Kind.LONG, 10_000, "The longest time between two tries.", lowest=1),
    _broker("sasl.oauthbearer.expected.audience", Kind.LIST, (), "Of which a token has to be for one."),
    _broker("sasl.oauthbearer.expected.issuer", Kind.STRING, None, "Who has to have issued a token."),
    _broker("sasl.oauthbearer.clock.skew.seconds", Kind.INT, 30, "How far the issuer's clock and the broker's may differ.", lowest=0),
    _broker("sasl.oauthbearer.scope.claim.name", Kind.STRING, "scope", "The claim with a token's scopes."),
    _broker("sasl.oauthbearer.sub.claim.name", Kind.STRING, "sub", "The claim with the user's name."),
    _broker("barnabas.oauthbearer.believe.unsigned.tokens.of.anybody", Kind.BOOLEAN, False, "Whether tokens that nobody has signed are believed: whoever connects can be any user then. For tests of clients, and nothing else."),
    _broker("ssl.keystore.location", Kind.STRING, None, "The file with the broker's private key and its certificates."),
    _broker("ssl.keystore.type", Kind.STRING, None, "PEM or PKCS12; by default what the file's name ends in says.", choices=("PEM", "PKCS12", "JKS")),
    _broker("ssl.keystore.password", Kind.PASSWORD, None, "Of a PKCS#12 key store."),
    _broker("ssl.keystore.key", Kind.PASSWORD, None, "The private key itself, as PEM, instead of a file."),
    _broker("ssl.keystore.certificate.chain", Kind.PASSWORD, None, "Its certificates, as PEM."),
    _broker("ssl.key.password", Kind.PASSWORD, None, "Of a private key that is encrypted."),
    _broker("ssl.truststore.location", Kind.STRING, None, "The file with the authorities that clients' certificates have to be signed by."),
    _broker("ssl.truststore.type", Kind.STRING, None, "PEM or PKCS12; by default what the file's name ends in says.", choices=("PEM", "PKCS12", "JKS")),
    _broker("ssl.truststore.password", Kind.PASSWORD, None, "Of a PKCS#12 trust store."),
    _broker("ssl.truststore.certificates", Kind.PASSWORD, None, "The authorities themselves, as PEM, instead of a file."),
    _broker("ssl.client.auth", Kind.STRING, "none", "Whether clients have to show a certificate.", choices=("none", "requested", "required")),
    _broker("ssl.enabled.protocols", Kind.LIST, ("TLSv1.2", "TLSv1.3"), "Versions of TLS.", choices=("TLSv1.2", "TLSv1.3")),
    _broker("ssl.principal.mapping.rules", Kind.STRING, "DEFAULT", "Who a client with a certificate is: RULE:PATTERN/REPLACEMENT/[LU], ..., of its subject; DEFAULT: the subject itself."),
    _broker("ssl.protocol", Kind.STRING, "TLSv1.3", "Accepted; ssl.enabled.protocols says which versions are spoken."),
    _broker("ssl.cipher.suites", Kind.LIST, (), "Those of TLS 1.2 that may be used, by OpenSSL's names."),
    _broker("sasl.mechanism.inter.broker.protocol", Kind.STRING, "GSSAPI", "Accepted; there is one broker."),
    _broker("sasl.server.max.receive.size", Kind.INT, 512 << 10, "The largest request that is read of a client that has not shown who it is.", lowest=1),
    _broker("connections.max.reauth.ms", Kind.LONG, 0, "How long a client is who it has shown to be, before it has to show it again; 0: for as long as the connection lasts.", lowest=0),
    _broker("connection.failed.authentication.delay.ms", Kind.INT, 100, "How long a client that does not show who it is waits for its refusal.", lowest=0),
    _broker("barnabas.users.file", Kind.STRING, None, "A file of users, for all mechanisms: a line NAME:PASSWORD for each. It is read at the start."),
    _broker("authorizer.class.name", Kind.STRING, "", "What says who may do what: StandardAuthorizer, by ACLs; empty: everybody may everything.", choices=("", "StandardAuthorizer", "org.apache.kafka.metadata.authorizer.StandardAuthorizer")),
    _broker("super.users", Kind.STRING, "", "Who may everything, whatever ACLs say: principals such as User:admin, with semicolons between them."),
    _broker("allow.everyone.if.no.acl.found", Kind.BOOLEAN, False, "Whether everybody may use what no ACL is about."),
    _broker("barnabas.audit.log", Kind.STRING, None, "A file that gets a line (JSON) for what is allowed and refused, and to whom; empty: none."),
    _broker("barnabas.brokers", Kind.INT, 1, "How many brokers this process is, for tests of clients: each has a port and a node.id of its own (the next ones after those set), all have one log directory, and what is written is there once. docs/TESTING.md.", lowest=1, highest=MOST_BROKERS),
    _broker("barnabas.emulate", Kind.STRING, "", "The release of Apache Kafka to be for clients, with its versions of requests, its features and its answers: 3.9 or 4.3; empty: the newest, with all older versions spoken. docs/COMPATIBILITY.md.", choices=("", *EMULATED)),
    _broker("barnabas.features", Kind.LIST, (), "Levels of features that are to be finalised instead of the newest, each as NAME=LEVEL; transaction.version=0 keeps clients with the first version of transactions.", choices=LEVELS),
    _broker("barnabas.log.format", Kind.STRING, "text", "How the log is written on standard error: text, a line for people, or json, a JSON object a line.", choices=("text", "json")),
    _broker("barnabas.metrics.port", Kind.INT, -1, "Where Prometheus scrapes: http://HOST:PORT/metrics; 0: a free port, which is logged; -1: nowhere. Needs `pip install 'barnabas[metrics]'`.", lowest=-1, highest=65535),
    _broker("barnabas.metrics.host", Kind.STRING, "127.0.0.1", "The address of barnabas.metrics.port. Whoever reaches it may read the names of topics, groups and errors."),
    _broker("barnabas.metrics.detail", Kind.STRING, "partitions", "Whether topics, and partitions, have metrics of their own; without them their number does not depend on that of topics and groups.", choices=("partitions", "topics", "none")),
    _broker("barnabas.console.port", Kind.INT, -1, "The port of the page that shows the broker live (--console-port); 0: a free one, which is printed; -1: no page.", lowest=-1),
    _broker("barnabas.console.host", Kind.STRING, "127.0.0.1", "The address where that page is served. It shows all records to whoever reaches it."),
    _broker("barnabas.decompressed.max.bytes", Kind.INT, 128 << 20, "What a producer's batch may decompress to, in bytes; one that would be larger is refused with MESSAGE_TOO_LARGE. Of one that is in a log already, compaction keeps all, and a time is looked for no further than to its first record.", lowest=1 << 20),
    _broker("barnabas.disk.reserve.bytes", Kind.LONG, 64 << 20, "Clients are refused when less than this is free on the disk; it is kept for ending transactions.", lowest=0),
    _broker("barnabas.lease.url", Kind.STRING, "", "What keeps the lease by which two nodes decide who leads (docs/STANDBY.md): etcd://HOST:PORT,HOST:PORT/NAME, etcds://... over TLS, or kubernetes://NAMESPACE/NAME. Empty: there is none."),
    _broker("barnabas.lease.ttl.ms", Kind.INT, 3000, "How long a leader may not have renewed the lease before the other node takes over. The same on both.", lowest=500),
    _broker("barnabas.lease.margin.ms", Kind.INT, 500, "How much earlier than that the leader stops answering: what the clocks of the two machines may differ by in that time.", lowest=1),
    _broker("barnabas.lease.user", Kind.STRING, "", "The user of etcd; empty: none."),
    _broker("barnabas.lease.password", Kind.PASSWORD, None, "The password of barnabas.lease.user."),
    _broker("barnabas.lease.ca.file", Kind.STRING, "", "The certificates that etcds:// or kubernetes:// is trusted by; empty: those of the system, or of the pod."),
    _broker("barnabas.replication.port", Kind.INT, -1, "Where a standby connects (`barnabas start --standby-of HOST:PORT`): docs/STANDBY.md. 0: a free port, which is logged; -1: nowhere.", lowest=-1, highest=65535),
    _broker("barnabas.replication.host", Kind.STRING, "127.0.0.1", "The address of barnabas.replication.port. One that is not of this machine alone needs TLS: barnabas.replication.security.protocol."),
    _broker("barnabas.replication.advertised", Kind.STRING, "", "With barnabas.lease.url, the HOST:PORT where the other node reaches barnabas.replication.port, if that is another than this node's own (behind NAT, or published by a container)."),
    _broker("barnabas.replication.secret", Kind.PASSWORD, None, "What the leader and its standby show each other that they know: the same on both, and long. Needed with barnabas.replication.port, barnabas.lease.url and --standby-of."),
    _broker("barnabas.replication.security.protocol", Kind.STRING, None, "SSL: the link speaks TLS, by the settings ssl.* of listeners (the standby believes the authorities of ssl.truststore.location, and the leader's certificate has to have its address); PLAINTEXT: it does not. By default SSL where ssl.keystore.* or ssl.truststore.* is set.", choices=("PLAINTEXT", "SSL")),
    _broker("barnabas.replication.mode", Kind.STRING, "async", "async: answers go out at once; sync: each waits until the standby has all that was done before it.", choices=("async", "sync")),
    _broker("barnabas.replication.alone", Kind.BOOLEAN, True, "With sync, whether answers go out while no standby follows; else they wait for one."),
    _broker("barnabas.replication.timeout.ms", Kind.INT, 10_000, "A standby, or a leader, that says nothing for so long is taken for gone.", lowest=100),
    _broker("barnabas.replication.catch.up.bytes.per.second", Kind.LONG, 0, "How fast a standby that comes is sent what it lacks; 0: as fast as it goes. It is no less than 1 MiB in half of barnabas.replication.timeout.ms.", lowest=0),
    _broker("barnabas.internal.topics.dirty.bytes", Kind.LONG, 4 << 20, "How much a start may have to replay of __consumer_offsets and __transaction_state together beyond what compaction leaves of them: where it is more, their segments are closed before they are full, and compacted.", lowest=0),
    _broker("barnabas.producer.snapshot.interval.ms", Kind.LONG, 30_000, "How long a partition's producers may differ from their last snapshot, which bounds what a start after a kill reads.", lowest=1),
    _broker("barnabas.flush.journal.logs", Kind.INT, 2, "Where so many logs are to be flushed together, or a transaction ends, what little each has goes to a journal first, and one file is flushed instead of all; 0: never, and a commit waits for three flushes.", lowest=0),
    _broker("barnabas.transaction.durability", Kind.STRING, "flush", "flush: a commit is answered when its data and its decision are on the disk; os: when the system has them.", choices=("flush", "os")),
)  # fmt: skip
BROKER_SETTINGS = {row.name: row for row in _BROKER_ROWS}


def _kept(name: str, kind: Kind, default: Any, why: str, **more: Any) -> Setting:
    return Setting(name, kind, default, f"Kept and told of; {why}.", dynamic=True, **more)


_ONE_REPLICA, _NO_KERBEROS = "there is one replica", "there is no Kerberos"
_NO_TIERED_STORAGE, _NO_LOGIN = (
    "there is no tiered storage",
    "there is no login of the broker's own",
)
_KEPT_ROWS = (
    _kept("follower.replication.throttled.rate", Kind.LONG, LONG_MAX, _ONE_REPLICA, lowest=0),
    _kept("leader.replication.throttled.rate", Kind.LONG, LONG_MAX, _ONE_REPLICA, lowest=0),
    _kept("log.cleaner.io.buffer.load.factor", Kind.DOUBLE, 0.9, "the cleaner has a map of its own form"),
    _kept("log.cleaner.io.buffer.size", Kind.INT, 512 << 10, "the cleaner reads and writes as the system lets it", lowest=0),
    _kept("log.cleaner.io.max.bytes.per.second", Kind.DOUBLE, sys.float_info.max, "the cleaner reads and writes as the system lets it"),
    _kept("log.cleaner.threads", Kind.INT, 1, "there is one process that cleans", lowest=1),
    _kept("metric.reporters", Kind.LIST, (), "nothing is reported"),
    _kept("remote.fetch.max.wait.ms", Kind.INT, 500, _NO_TIERED_STORAGE, lowest=1),
    _kept("remote.log.index.file.cache.total.size.bytes", Kind.LONG, 1 << 30, _NO_TIERED_STORAGE, lowest=1),
    _kept("remote.log.manager.copy.max.bytes.per.second", Kind.LONG, LONG_MAX, _NO_TIERED_STORAGE, lowest=1),
    _kept("remote.log.manager.fetch.max.bytes.per.second", Kind.LONG, LONG_MAX, _NO_TIERED_STORAGE, lowest=1),
    _kept("replica.alter.log.dirs.io.max.bytes.per.second", Kind.LONG, LONG_MAX, _ONE_REPLICA, lowest=0),
    _kept("sasl.kerberos.kinit.cmd", Kind.STRING, "/usr/bin/kinit", _NO_KERBEROS, per_broker=True),
    _kept("sasl.kerberos.min.time.before.relogin", Kind.LONG, MINUTE_MS, _NO_KERBEROS, per_broker=True),
    _kept("sasl.kerberos.principal.to.local.rules", Kind.LIST, ("DEFAULT",), _NO_KERBEROS, per_broker=True),
    _kept("sasl.kerberos.service.name", Kind.STRING, None, _NO_KERBEROS, per_broker=True),
    _kept("sasl.kerberos.ticket.renew.jitter", Kind.DOUBLE, 0.05, _NO_KERBEROS, per_broker=True),
    _kept("sasl.kerberos.ticket.renew.window.factor", Kind.DOUBLE, 0.8, _NO_KERBEROS, per_broker=True),
    _kept("sasl.login.refresh.buffer.seconds", Kind.SHORT, 300, _NO_LOGIN, lowest=0, highest=3600, per_broker=True),
    _kept("sasl.login.refresh.min.period.seconds", Kind.SHORT, 60, _NO_LOGIN, lowest=0, highest=900, per_broker=True),
    _kept("sasl.login.refresh.window.factor", Kind.DOUBLE, 0.8, _NO_LOGIN, lowest=0.5, highest=1, per_broker=True),
    _kept("sasl.login.refresh.window.jitter", Kind.DOUBLE, 0.05, _NO_LOGIN, lowest=0, highest=0.25, per_broker=True),
)  # fmt: skip
# Dynamic settings of Kafka's that have nothing to act on here. Those that would protect something
# (TLS, who may log in) are not among them.
KEPT_SETTINGS = {row.name: row for row in _KEPT_ROWS}
ALL_BROKER_SETTINGS = BROKER_SETTINGS | KEPT_SETTINGS

_NO_QUORUM, _NO_ZOOKEEPER = "there is no quorum", "there is no ZooKeeper"
_ONE_BROKER, _NOTHING_REPORTED = "there is one broker", "nothing is reported"
_NO_SHARE_GROUPS, _NO_TIERS = "share groups are not spoken", "there is no tiered storage"
_NO_PURGATORY = "waiting requests cost nothing once they are answered"
IGNORED_KEYS = {
    "process.roles": "one process is broker and controller",
    "advertised.host.name": "advertised.listeners takes its place",
    "auto.include.jmx.reporter": _NOTHING_REPORTED,
    "broker.id.generation.enable": "node.id is what is set",
    "client.quota.callback.class": "quotas are what is set on users and client ids",
    "delete.records.purgatory.purge.interval.requests": _NO_PURGATORY,
    "early.start.listeners": "all listeners start together",
    "eligible.leader.replicas.enable": _ONE_BROKER,
    "fetch.purgatory.purge.interval.requests": _NO_PURGATORY,
    "group.coordinator.append.linger.ms": "a group's record is written at once",
    "host.name": "listeners takes its place",
    "initial.broker.registration.timeout.ms": _NO_QUORUM,
    "inter.broker.protocol.version": _ONE_BROKER,
    "log.cleaner.threads": "there is one process that cleans",
    "log.flush.start.offset.checkpoint.interval.ms": "where a log starts is written down before anybody is told",
    "log.dir.failure.timeout.ms": "a data directory that fails ends the broker at once",
    "metric.reporters": _NOTHING_REPORTED,
    "port": "listeners takes its place",
    "principal.builder.class": "a principal is the user's name",
    "producer.purgatory.purge.interval.requests": _NO_PURGATORY,
    "request.timeout.ms": _ONE_BROKER,
    "reserved.broker.max.id": _ONE_BROKER,
    "ssl.endpoint.identification.algorithm": "it is for clients",
    "ssl.keymanager.algorithm": "there is no Java here",
    "ssl.provider": "there is no Java here",
    "ssl.secure.random.implementation": "there is no Java here",
    "ssl.trustmanager.algorithm": "there is no Java here",
    "security.providers": "there is no Java here",
    "server.max.startup.time.ms": "the start takes as long as recovery does",
    "unclean.leader.election.interval.ms": _ONE_BROKER,
    "unstable.api.versions.enable": "only stable versions are spoken",
    "unstable.feature.versions.enable": "only stable versions are spoken",
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
    "group.share.": _NO_SHARE_GROUPS,
    "kafka.metrics.": _NOTHING_REPORTED,
    "leader.imbalance.": _ONE_BROKER,
    "log.cleaner.io.": "the cleaner reads and writes as the system lets it",
    "log4j.": "the broker logs to standard error",
    "metadata.": "metadata are kept in a journal in the data directory",
    "metrics.": _NOTHING_REPORTED,
    "num.replica.": _ONE_BROKER,
    "password.encoder.": _NO_ZOOKEEPER,
    "remote.": _NO_TIERS,
    "replica.": _ONE_BROKER,
    "replication.quota.": _ONE_BROKER,
    "share.coordinator.": _NO_SHARE_GROUPS,
    "socket.connection.setup.": _ONE_BROKER,
    "telemetry.": _NOTHING_REPORTED,
    "zookeeper.": _NO_ZOOKEEPER,
}
_REFUSED_PREFIXES = {
    "sasl.": "it has no counterpart here: remove it; docs/SECURITY.md says which settings of SASL there are",
    "ssl.": "it has no counterpart here: remove it; docs/SECURITY.md says which settings of TLS there are",
    "zookeeper.ssl.": "there is no ZooKeeper: remove it",
}


def _why_ignored(name: str) -> str | None:
    """Why one of Apache Kafka's settings does nothing here; None where it does something, or is
    unknown.
    """
    if name in BROKER_SETTINGS:
        return None
    return IGNORED_KEYS.get(name) or next(
        (why for prefix, why in IGNORED_PREFIXES.items() if name.startswith(prefix)), None
    )


def _why_refused(name: str, text: str) -> str | None:
    """Why one of Apache Kafka's settings ends the start: who sets it relies on what it does. An
    empty one asks for nothing.
    """
    if not trimmed(text):
        return None
    if name in BROKER_SETTINGS:
        return None
    return next((why for prefix, why in _REFUSED_PREFIXES.items() if name.startswith(prefix)), None)


def _principals(name: str, text: str) -> tuple[str, ...]:
    """The principals of a list with semicolons. Raises: ConfigError."""
    principals = tuple(filter(None, map(trimmed, text.split(";"))))
    for principal in principals:
        kind, colon, user = principal.partition(":")
        if not (kind and colon and user):
            raise ConfigError(
                f"{name}={text}: {principal} must have the form User:NAME, and semicolons stand "
                "between several"
            )
    return principals


def nearest(name: str, names: Iterable[str]) -> str:
    """A word on which known name the unknown one may have meant."""
    matches = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return (
        f"; did you mean {matches[0]}?" if matches else "; `barnabas settings` lists what there is"
    )


class _Typed(Generic[Value]):
    """A setting of BrokerConfig as an attribute: `config.node_id` is `config["node.id"]`, an int.

    The table remains the one list: an attribute without a row is refused when this module is
    loaded, and a test compares each one's type with its row's kind.
    """

    def __set_name__(self, owner: type[BrokerConfig], name: str) -> None:
        self.name = name.replace("_", ".")
        assert self.name in ALL_BROKER_SETTINGS, f"there is no setting {self.name}"

    def __get__(self, config: BrokerConfig, owner: type[BrokerConfig] | None = None) -> Value:
        value: Value = config._values[self.name]
        return value


class BrokerConfig:
    """The broker's settings. Those that the broker itself heeds are typed attributes; `config[name]`
    is for requests that go by names.

    explicit: what a file or the command line said; dynamic, dynamic_defaults: what was changed at
    run time on this broker, and for every broker; all as text. warnings: settings that were taken
    and do nothing here. listeners: in the order in which they are named. users: passwords of
    barnabas.users.file, by name; user_credentials: what was made of them for SCRAM.
    """

    allow_everyone_if_no_acl_found = _Typed[bool]()
    authorizer_class_name = _Typed[str]()
    auto_create_topics_enable = _Typed[bool]()
    barnabas_audit_log = _Typed[str | None]()
    barnabas_authentication_timeout_ms = _Typed[int]()
    barnabas_brokers = _Typed[int]()
    barnabas_users_file = _Typed[str | None]()
    quota_window_num = _Typed[int]()
    quota_window_size_seconds = _Typed[int]()
    controller_quota_window_num = _Typed[int]()
    transaction_state_log_min_isr = _Typed[int]()
    group_coordinator_rebalance_protocols = _Typed[tuple[str, ...]]()
    controller_quota_window_size_seconds = _Typed[int]()
    connection_failed_authentication_delay_ms = _Typed[int]()
    sasl_server_max_receive_size = _Typed[int]()
    barnabas_console_port = _Typed[int]()
    barnabas_console_host = _Typed[str]()
    barnabas_decompressed_max_bytes = _Typed[int]()
    barnabas_disk_reserve_bytes = _Typed[int]()
    barnabas_features = _Typed[tuple[str, ...]]()
    barnabas_flush_journal_logs = _Typed[int]()
    barnabas_lease_ca_file = _Typed[str]()
    barnabas_lease_margin_ms = _Typed[int]()
    barnabas_lease_password = _Typed[str | None]()
    barnabas_lease_ttl_ms = _Typed[int]()
    barnabas_lease_url = _Typed[str]()
    barnabas_lease_user = _Typed[str]()
    barnabas_log_format = _Typed[str]()
    barnabas_metrics_detail = _Typed[str]()
    barnabas_metrics_host = _Typed[str]()
    barnabas_metrics_port = _Typed[int]()
    barnabas_internal_topics_dirty_bytes = _Typed[int]()
    barnabas_producer_snapshot_interval_ms = _Typed[int]()
    barnabas_replication_advertised = _Typed[str]()
    barnabas_replication_alone = _Typed[bool]()
    barnabas_replication_catch_up_bytes_per_second = _Typed[int]()
    barnabas_replication_host = _Typed[str]()
    barnabas_replication_mode = _Typed[str]()
    barnabas_replication_port = _Typed[int]()
    barnabas_replication_secret = _Typed[str | None]()
    barnabas_replication_security_protocol = _Typed[str | None]()
    barnabas_replication_timeout_ms = _Typed[int]()
    barnabas_request_max_bytes = _Typed[int]()
    barnabas_transaction_durability = _Typed[str]()
    broker_rack = _Typed[str | None]()
    connections_max_idle_ms = _Typed[int]()
    delete_topic_enable = _Typed[bool]()
    fetch_max_bytes = _Typed[int]()
    group_consumer_assignment_interval_ms = _Typed[int]()
    group_consumer_assignors = _Typed[tuple[str, ...]]()
    group_consumer_heartbeat_interval_ms = _Typed[int]()
    group_consumer_max_size = _Typed[int]()
    group_consumer_migration_policy = _Typed[str]()
    group_consumer_regex_refresh_interval_ms = _Typed[int]()
    group_consumer_session_timeout_ms = _Typed[int]()
    group_initial_rebalance_delay_ms = _Typed[int]()
    group_max_session_timeout_ms = _Typed[int]()
    group_max_size = _Typed[int]()
    group_min_session_timeout_ms = _Typed[int]()
    log_cleaner_backoff_ms = _Typed[int]()
    log_cleaner_dedupe_buffer_size = _Typed[int]()
    log_cleaner_enable = _Typed[bool]()
    log_flush_offset_checkpoint_interval_ms = _Typed[int]()
    log_initial_task_delay_ms = _Typed[int]()
    log_retention_check_interval_ms = _Typed[int]()
    max_connection_creation_rate = _Typed[int]()
    max_connections = _Typed[int]()
    max_connections_per_ip = _Typed[int]()
    max_connections_per_ip_overrides = _Typed[str]()
    max_incremental_fetch_session_cache_slots = _Typed[int]()
    message_max_bytes = _Typed[int]()
    node_id = _Typed[int]()
    num_partitions = _Typed[int]()
    offset_metadata_max_bytes = _Typed[int]()
    offsets_retention_check_interval_ms = _Typed[int]()
    offsets_retention_minutes = _Typed[int]()
    offsets_topic_num_partitions = _Typed[int]()
    offsets_topic_segment_bytes = _Typed[int]()
    producer_id_expiration_check_interval_ms = _Typed[int]()
    producer_id_expiration_ms = _Typed[int]()
    queued_max_request_bytes = _Typed[int]()
    socket_request_max_bytes = _Typed[int]()
    transaction_max_timeout_ms = _Typed[int]()
    transaction_state_log_num_partitions = _Typed[int]()
    transaction_state_log_segment_bytes = _Typed[int]()
    transaction_two_phase_commit_enable = _Typed[bool]()
    transactional_id_expiration_ms = _Typed[int]()

    def __init__(
        self, explicit: dict[str, str], warnings: list[str], of_listeners: Mapping[str, str]
    ) -> None:
        """of_listeners: the settings `listener.name.NAME...`."""
        self.explicit, self.warnings = explicit, warnings
        self.dynamic: dict[str, str] = {}
        self.dynamic_defaults: dict[str, str] = {}
        self.release = release_of(explicit.get("barnabas.emulate", ""))
        given = {**self.release.defaults, **explicit}
        self._fixed = {
            name: setting.parse(given[name]) if name in given else setting.default
            for name, setting in ALL_BROKER_SETTINGS.items()
        }
        if self._fixed["broker.id"] is not None and "node.id" not in explicit:
            self._fixed["node.id"] = self._fixed["broker.id"]
        for name in REPLICATION_FACTORS if self._fixed["barnabas.brokers"] > 1 else ():
            if name not in explicit:
                self._fixed[name] = min(self._fixed["barnabas.brokers"], KAFKAS_FACTOR)
        _check_connections(self._fixed)
        self._values = dict(self._fixed)
        self.data_dir = _one_data_dir(self._values["log.dirs"] or self._values["log.dir"])
        self.users: dict[str, str] = {}
        self.user_credentials: dict[tuple[str, int], ScramCredential] = {}
        self.super_users = _principals("super.users", self["super.users"])
        try:
            self.listeners = read_listeners(self._fixed, of_listeners, BROKER_SETTINGS, warnings)
        except ListenerError as error:
            raise ConfigError(str(error)) from error

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """Check and take the settings. Raises ConfigError on the first that is wrong."""
        explicit: dict[str, str] = {}
        of_listeners: dict[str, str] = {}
        warnings = []
        for name, text in properties.items():
            if name.startswith(LISTENER_PREFIX):
                of_listeners[name] = trimmed(text)
                continue
            refusal = _why_refused(name, text)
            if refusal is not None:
                raise ConfigError(f"{name}: {refusal}")
            ignored = _why_ignored(name)
            if ignored is not None:
                warnings.append(f"{name} does nothing here: {ignored}")
                continue
            setting = BROKER_SETTINGS.get(name)
            if setting is None:
                raise ConfigError(f"unknown setting {name}{nearest(name, BROKER_SETTINGS)}")
            setting.parse(text)
            explicit[name] = trimmed(text)
        return cls(explicit, warnings, of_listeners)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    @property
    def has_sasl(self) -> bool:
        """Whether clients have to say who they are, on any listener."""
        return any(listener.has_sasl for listener in self.listeners)

    @property
    def limits_connections(self) -> bool:
        """Whether a setting bounds how many connections there may be, or how fast they may come."""
        numbers = (
            self.max_connections, self.max_connections_per_ip, self.max_connection_creation_rate,
        )  # fmt: skip
        return min(numbers) != INT_MAX or self.max_connections_per_ip_overrides != ""

    def set_dynamic(self, configs: Mapping[str, str]) -> None:
        """Let what was changed at run time on this broker hold.

        Raises: ConfigError on a value that may not be; then nothing has changed.
        """
        self._values = self._layered(self.dynamic_defaults, configs)
        self.dynamic = dict(configs)

    def set_dynamic_defaults(self, configs: Mapping[str, str]) -> None:
        """Let what was changed at run time for every broker hold.

        Raises: ConfigError on a value that may not be; then nothing has changed.
        """
        self._values = self._layered(configs, self.dynamic)
        self.dynamic_defaults = dict(configs)

    def default_value(self, name: str) -> Any:
        """What would hold were nothing set on this broker at run time. Typed."""
        return self._layered(self.dynamic_defaults, {})[name]

    def _layered(self, *layers: Mapping[str, str]) -> dict[str, Any]:
        """The typed values with these layers over the fixed ones, the last on top.

        A name that only a later version knows is passed over.
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
    def told_dynamic_defaults(self) -> Mapping[str, str]:
        """What was changed for every broker, with what an emulated release keeps there by itself."""
        if not self.release.kept_defaults:
            return self.dynamic_defaults
        kept = {
            name: ALL_BROKER_SETTINGS[name].render(self._values[name]) or ""
            for name in self.release.kept_defaults
        }
        return {**kept, **self.dynamic_defaults}

    def source_of(self, name: str) -> str:
        """Which layer gives the value: dynamic, dynamic default, explicit or default."""
        layers = {
            "dynamic": self.dynamic,
            "dynamic default": self.told_dynamic_defaults,
            "explicit": self.explicit,
        }
        return next((layer for layer, configs in layers.items() if name in configs), "default")


def parse_connection_overrides(text: str) -> dict[str, int]:
    """How many connections there may be from each address. Names are not looked up.

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
                raise ValueError(f"'{number}' is no number")
            most[str(ipaddress.ip_address(address.strip("[]")))] = int(number)
        except ValueError as error:
            raise ConfigError(
                f"max.connections.per.ip.overrides={text}: write ADDRESS:NUMBER, joined by commas "
                f"({error})"
            ) from error
    return most


def _check_connections(values: Mapping[str, Any]) -> None:
    """Raises: ConfigError of settings of connections that cannot be, or not together."""
    overrides = parse_connection_overrides(values["max.connections.per.ip.overrides"])
    if values["max.connections.per.ip"] == 0 and not overrides:
        raise ConfigError(
            "max.connections.per.ip=0: nobody could connect; name those who may in "
            "max.connections.per.ip.overrides"
        )


def _one_data_dir(text: str) -> str:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) != 1:
        raise ConfigError(f"log.dirs={text}: name one data directory")
    return parts[0]


_LINE_END = re.compile(r"\r\n|\r|\n")
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]{4}")


def read_properties(text: str) -> dict[str, str]:
    """The pairs of a Java properties file: # and ! begin comments; a backslash at a line's end
    continues it; = or : or a blank separates.

    Raises: ConfigError where \\u is not followed by four hexadecimal digits; it shows nothing of
            the line, which may have a password.
    """
    properties: dict[str, str] = {}
    pending, number = "", 0
    # splitlines() would also split at a form feed and other separators inside a value
    for number, raw in enumerate(_LINE_END.split(text), 1):
        line = pending + raw.lstrip(" \t\f")
        pending = ""
        if not line or (not pending and line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
            continue
        properties.update([_read_pair(line, number)])
    if pending:
        properties.update([_read_pair(pending, number)])
    return properties


def _read_pair(line: str, number: int) -> tuple[str, str]:
    key, value = _split_pair(line)
    try:
        return _unescape(key), _unescape(value)
    except ConfigError as error:
        raise ConfigError(f"line {number}: {error}") from None


def _split_pair(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    key, rest = line[:position], line[position:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return key, rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out, position = [], 0
    while position < len(text):
        character = text[position]
        if character == "\\" and position + 1 < len(text):
            position += 1
            character = text[position]
            if character == "u":
                digits = text[position + 1 : position + 5]
                if not _HEXADECIMAL.fullmatch(digits):
                    raise ConfigError(
                        "a \\u is not followed by four hexadecimal digits; write \\\\ for a backslash"
                    )
                out.append(chr(int(digits, 16)))
                position += 5
                continue
            character = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}.get(character, character)
        out.append(character)
        position += 1
    return _with_whole_letters("".join(out))


def _with_whole_letters(text: str) -> str:
    """Two \\u that are one letter in UTF-16, as one letter. Raises: ConfigError for half of one."""
    try:
        return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
    except UnicodeDecodeError:
        raise ConfigError("a \\u is half of a letter, and the other half is missing") from None


# --- topics -------------------------------------------------------------------------------------


def check_segment_bytes(name: str, value: Any, release: Release) -> None:
    """Raise ConfigError where a topic's segments would be smaller than an emulated release allows."""
    if name in ("segment.bytes", "log.segment.bytes") and value < release.fewest_segment_bytes:
        raise ConfigError(
            f"{name}={value}: Apache Kafka {release.name} takes {release.fewest_segment_bytes} at "
            "the least (barnabas.emulate)"
        )


def validate_topic_configs(configs: Mapping[str, str | None], release: Release = TODAY) -> None:
    """Raises ConfigError on an unknown name, a null, a value that may not be, or values that
    contradict each other.
    """
    values = {}
    for name, text in configs.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            raise ConfigError(f"unknown topic setting {name}{nearest(name, TOPIC_SETTINGS)}")
        if text is None:
            raise ConfigError(f"{name} has no value: give one")
        values[name] = setting.parse(text)
        check_segment_bytes(name, values[name], release)
    shortest, longest = (
        values.get("min.compaction.lag.ms", 0),
        values.get("max.compaction.lag.ms", LONG_MAX),
    )
    if shortest > longest:
        raise ConfigError(
            f"min.compaction.lag.ms={shortest}: it must not be more than max.compaction.lag.ms, "
            f"which is {longest}"
        )


def broker_default(config: BrokerConfig, setting: Setting) -> tuple[Any, str | None]:
    """A topic setting's default, typed and in its own unit, and the broker setting that gives it
    (None: the table).
    """
    for name in setting.synonyms:
        if config.source_of(name) != "default":
            unit_ms = _UNIT_MS.get(name.rsplit(".", 1)[1])
            if unit_ms is None:
                return config[name], name
            return config[name] * unit_ms if config[name] > 0 else config[
                name
            ], name  # -1 hours are no time either: for ever
    return setting.default, None


def topic_setting_value(config: BrokerConfig, overrides: Mapping[str, str], name: str) -> Any:
    """What holds for a topic: its own value, else the broker's default. Typed."""
    setting = TOPIC_SETTINGS[name]
    return (
        setting.parse(overrides[name]) if name in overrides else broker_default(config, setting)[0]
    )


def topic_log_config(config: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """A topic's settings as its logs heed them."""
    value: Callable[[str], Any] = lambda name: topic_setting_value(config, overrides, name)  # noqa: E731
    return LogConfig(
        segment_bytes=value("segment.bytes"),
        segment_ms=value("segment.ms"),
        segment_jitter_ms=value("segment.jitter.ms"),
        segment_index_bytes=value("segment.index.bytes"),
        index_interval_bytes=value("index.interval.bytes"),
        max_message_bytes=value("max.message.bytes"),
        max_decompressed_bytes=config.barnabas_decompressed_max_bytes,
        retention_ms=value("retention.ms"),
        retention_bytes=value("retention.bytes"),
        cleanup_policy=frozenset(value("cleanup.policy")),
        compression_type=value("compression.type"),
        compression_levels=Levels(
            value("compression.gzip.level"),
            value("compression.lz4.level"),
            value("compression.zstd.level"),
        ),
        timestamp_type_log_append=value("message.timestamp.type") == "LogAppendTime",
        timestamp_before_max_ms=min(
            value("message.timestamp.before.max.ms"), value("message.timestamp.difference.max.ms")
        ),
        timestamp_after_max_ms=min(
            value("message.timestamp.after.max.ms"), value("message.timestamp.difference.max.ms")
        ),
        delete_retention_ms=value("delete.retention.ms"),
        min_cleanable_dirty_ratio=value("min.cleanable.dirty.ratio"),
        min_compaction_lag_ms=value("min.compaction.lag.ms"),
        max_compaction_lag_ms=value("max.compaction.lag.ms"),
        file_delete_delay_ms=value("file.delete.delay.ms"),
        flush_messages=value("flush.messages"),
        flush_ms=value("flush.ms"),
        preallocate=value("preallocate"),
        producer_id_expiration_ms=config.producer_id_expiration_ms,
    )
