"""The settings of topics, one in each row: name, type, default, bounds, purpose.

A row is a typed attribute of TopicConfig (topic_config.py). The setting's name is the attribute's
name with dots in place of the underscores. synonyms: the broker's settings that provide its
default, in order of precedence.

Source: Apache Kafka 3.9's configuration reference.
"""

from __future__ import annotations

from barnabas.broker.settings.setting import (
    DAY_MS,
    LONG_MAX,
    MINUTE_MS,
    boolean,
    double,
    integer,
    long,
    rows_of,
    string,
    strings,
)

CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
POLICIES = ("compact", "delete")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


class TopicRows:
    """All settings of a topic."""

    barnabas_transactions_whole = boolean(
        False,
        "Whether readers of committed records get each transaction in all topics with this setting "
        "at once, never a part of it.",
        synonyms=("barnabas.transactions.whole",),
    )
    cleanup_policy = strings(
        ("delete",),
        "What happens to old data: delete, compact, or both.",
        synonyms=("log.cleanup.policy",),
        choices=POLICIES,
        deletes=True,
    )
    compression_gzip_level = integer(
        -1,
        "The level where the broker compresses with gzip.",
        synonyms=("compression.gzip.level",),
        lowest=-1,
        highest=9,
        never=(0,),
        never_because="it is 1 to 9, or -1 for the codec's default",
    )
    compression_lz4_level = integer(
        9,
        "The level where the broker compresses with lz4; 9 is its fast compressor.",
        synonyms=("compression.lz4.level",),
        lowest=1,
        highest=17,
    )
    compression_type = string(
        "producer",
        "The codec of stored data; producer: the producer's codec.",
        synonyms=("compression.type",),
        choices=CODECS,
    )
    compression_zstd_level = integer(
        3,
        "The level where the broker compresses with zstd.",
        synonyms=("compression.zstd.level",),
        lowest=-131072,
        highest=22,
    )
    delete_retention_ms = long(
        DAY_MS,
        "How long compaction keeps tombstones and markers.",
        synonyms=("log.cleaner.delete.retention.ms",),
        lowest=0,
        deletes=True,
    )
    file_delete_delay_ms = long(
        MINUTE_MS,
        "How long a deleted file stays on the disk.",
        synonyms=("log.segment.delete.delay.ms",),
        lowest=0,
    )
    flush_messages = long(
        LONG_MAX,
        "The number of unflushed records from which a Produce with acks=all waits for the disk; "
        "1: each one waits.",
        synonyms=("log.flush.interval.messages",),
        lowest=1,
    )
    flush_ms = long(
        LONG_MAX,
        "The longest time until a record is flushed to the disk; the answer to its Produce does "
        "not wait for it.",
        synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        lowest=0,
    )
    follower_replication_throttled_replicas = strings((), "Accepted; there is one replica.")
    index_interval_bytes = integer(
        4096,
        "The bytes of data between two index entries.",
        synonyms=("log.index.interval.bytes",),
        lowest=0,
    )
    leader_replication_throttled_replicas = strings((), "Accepted; there is one replica.")
    local_retention_bytes = long(
        -2,
        "Accepted; there is no tiered storage.",
        synonyms=("log.local.retention.bytes",),
        lowest=-2,
    )
    local_retention_ms = long(
        -2,
        "Accepted; there is no tiered storage.",
        synonyms=("log.local.retention.ms",),
        lowest=-2,
    )
    max_compaction_lag_ms = long(
        LONG_MAX,
        "How long a record may stay uncompacted.",
        synonyms=("log.cleaner.max.compaction.lag.ms",),
        lowest=1,
        deletes=True,
    )
    max_message_bytes = integer(
        1048588,
        "The largest batch that is accepted.",
        synonyms=("message.max.bytes",),
        lowest=0,
    )
    message_downconversion_enable = boolean(
        True,
        "Accepted; clients that ask for older message formats always get them.",
        synonyms=("log.message.downconversion.enable",),
    )
    message_format_version = string(
        "3.0-IV1",
        "Accepted; the format is v2.",
        synonyms=("log.message.format.version",),
    )
    message_timestamp_after_max_ms = long(
        LONG_MAX,
        "How far ahead of the broker's clock a record's time may be.",
        synonyms=("log.message.timestamp.after.max.ms",),
        lowest=0,
    )
    message_timestamp_before_max_ms = long(
        LONG_MAX,
        "How far behind the broker's clock a record's time may be.",
        synonyms=("log.message.timestamp.before.max.ms",),
        lowest=0,
    )
    message_timestamp_difference_max_ms = long(
        LONG_MAX,
        "The older name of message.timestamp.before.max.ms and message.timestamp.after.max.ms "
        "together.",
        synonyms=("log.message.timestamp.difference.max.ms",),
        lowest=0,
    )
    message_timestamp_type = string(
        "CreateTime",
        "The clock of a record's time: the producer's or the broker's.",
        synonyms=("log.message.timestamp.type",),
        choices=TIMESTAMP_TYPES,
        deletes=True,
    )
    min_cleanable_dirty_ratio = double(
        0.5,
        "How much of a log must be uncompacted before it is compacted.",
        synonyms=("log.cleaner.min.cleanable.ratio",),
        lowest=0,
        highest=1,
        deletes=True,
    )
    min_compaction_lag_ms = long(
        0,
        "The shortest time that a record stays uncompacted.",
        synonyms=("log.cleaner.min.compaction.lag.ms",),
        lowest=0,
        deletes=True,
    )
    min_insync_replicas = integer(
        1,
        "The replicas that have to be in sync for a Produce with acks=all; with one broker, which "
        "has one replica, it has no effect.",
        synonyms=("min.insync.replicas",),
        lowest=1,
    )
    preallocate = boolean(
        False,
        "Accepted; segments grow as they are written.",
        synonyms=("log.preallocate",),
    )
    remote_log_copy_disable = boolean(False, "Accepted; there is no tiered storage.")
    remote_log_delete_on_disable = boolean(False, "Accepted; there is no tiered storage.")
    remote_storage_enable = boolean(
        False,
        "There is no tiered storage: only false is accepted.",
        never=(True,),
        never_because="there is no tiered storage",
        deletes=True,
    )
    retention_bytes = long(
        -1,
        "The size of a partition above which its oldest segments are deleted; -1: no bound.",
        synonyms=("log.retention.bytes",),
        deletes=True,
    )
    retention_ms = long(
        7 * DAY_MS,
        "How long records are kept; -1: for ever.",
        synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        lowest=-1,
        deletes=True,
    )
    segment_bytes = integer(
        1 << 30,
        "The largest size of a segment.",
        synonyms=("log.segment.bytes",),
        lowest=14,
        deletes=True,
    )
    segment_index_bytes = integer(
        10 << 20,
        "The largest size of a segment's index.",
        synonyms=("log.index.size.max.bytes",),
        lowest=4,
    )
    segment_jitter_ms = long(
        0,
        "How much earlier than segment.ms a segment may be closed.",
        synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours"),
        lowest=0,
        deletes=True,
    )
    segment_ms = long(
        7 * DAY_MS,
        "How long records are appended to one segment.",
        synonyms=("log.roll.ms", "log.roll.hours"),
        lowest=1,
        deletes=True,
    )
    unclean_leader_election_enable = boolean(
        False,
        "Whether, with several brokers, one that was not in sync may lead when none that was in "
        "sync is available.",
        synonyms=("unclean.leader.election.enable",),
    )


TOPIC_SETTINGS = rows_of(TopicRows)
