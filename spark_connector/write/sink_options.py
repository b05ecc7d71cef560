"""The options of `df.write.format("barnabas")` and `df.writeStream.format("barnabas")`.

An option that Spark's own Kafka sink or a Kafka producer also has keeps its name and meaning here.
Unknown options are rejected. Options that would break the guarantee (each micro-batch is written
once, a batch write completely or not at all) are rejected with the reason.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from barnabas.client.options import ClientOptions
from barnabas.client.security import TOKEN_PROVIDER
from barnabas.protocol.compression import DEFAULT_LEVELS, Codec, Levels
from barnabas.spark_connector.arrow.encoding import Compression
from barnabas.spark_connector.kafka_settings import PRODUCER
from barnabas.spark_connector.option_error import OptionError
from barnabas.spark_connector.read.options import (
    OptionValues,
    check_kafka_settings,
    client_options,
    refuse_unknown,
)
from barnabas.spark_connector.write.deduplication import FAIL, SKIP_IT, WRITE_IT
from barnabas.spark_connector.write.hadoop_paths import PathError, site_settings
from barnabas.spark_connector.write.publishing import PublishSettings
from barnabas.spark_connector.write.spool_directory import identity_of_temporary_directory
from barnabas.spark_connector.write.task_transactions import AUTO, BY_DRIVER, BY_TASKS

# What compareCheckpoint=false means for a batch write.
ONLY_NUMBERS = (
    "then only numbers are compared, and rows are lost or doubled without an error if a "
    "checkpoint is restored from an older copy, or copied for a second query"
)
KIBIBYTE = 1 << 10
# A task's transaction is open while the batch is written. Unless transaction.max.timeout.ms is
# changed, no broker allows a longer timeout.
TASK_TIMEOUT_MS = 900_000
NO_COMPRESSION = Compression()

SINK_OPTIONS = (
    "topic",
    TOKEN_PROVIDER,
    "writeId",
    "batchId",
    "onUncertainBatch",
    "compareCheckpoint",
    "sinkMode",
    "spoolDirectory",
    "inlineBytes",
    "transactionalIdPrefix",
)
MEANINGLESS = ("checkpointLocation", "queryName", "path", "includeHeaders", "truncate", "numRows")
# Settings of Spark that must be absent or `false`. With any other value, the checkpoint may be more
# than one batch behind the sink.
REFUSED_MODES = {
    "asyncProgressTrackingEnabled": (
        "Spark then writes its checkpoint some batches late, and after a crash restarts several "
        "batches back with other offsets; leave it out, or use a sink that may write twice"
    ),
}
REFUSED_KAFKA = {
    "transactional.id": (
        "it is derived from the query's id, so that a new driver fences the former; use "
        "transactionalIdPrefix"
    ),
    "key.serializer": "the column key is not serialized; cast it to binary or string",
    "value.serializer": "the column value is not serialized; cast it to binary or string",
    "interceptor.classes": "Java classes are not supported",
    "partitioner.class": (
        "the partition is the column partition, or murmur2 of the key as in the Java client"
    ),
}
CODECS = {
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


@dataclass(frozen=True)
class SinkOptions:
    """All options of the sink, checked.

    topic: the topic of rows without a column `topic`. write_id: the name of a batch write; a
    repetition of the write is skipped. batch_id: the number of a write among those with the same
    write_id (foreachBatch). Writes are made in the order of their numbers, and a write is skipped
    if its number or a later one was written. on_uncertain_batch: what to do if it is unknown
    whether a batch was written before. compare_checkpoint: whether a batch's commit note is
    compared with the checkpoint; otherwise only the batch numbers are compared. working_directory:
    the working directory of the driver's process, for relative paths. site: Hadoop's settings on
    the driver. sink_mode: whether the driver or the task writes the rows of a task that exceed
    inline_bytes; AUTO lets the brokers' features decide. task_timeout_ms: the timeout of tasks'
    transactions. spool_directory: the directory for task outputs that are too large for a message
    to the driver, or None for the directory in the checkpoint. inline_bytes: the maximum size of a
    task's message.
    """

    client: ClientOptions
    publish: PublishSettings
    topic: str | None = None
    write_id: str | None = None
    batch_id: int = 0
    on_uncertain_batch: str = FAIL
    compare_checkpoint: bool = True
    sink_mode: str = AUTO
    task_timeout_ms: int = TASK_TIMEOUT_MS
    spool_directory: str | None = None
    temporary_directory: str = ""
    checkpoint_location: str | None = None
    working_directory: str = "/"
    site: Mapping[str, str] = field(default_factory=dict)
    query_name: str | None = None
    inline_bytes: int = 256 * KIBIBYTE
    transactional_id_prefix: str = "barnabas-spark"
    compression: Compression = NO_COMPRESSION
    record_batch_bytes: int = 512 * KIBIBYTE


def parse_sink_options(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Check all options of a write. Raises: OptionError."""
    values = OptionValues(options)
    _refuse(values, streaming)
    parsed = SinkOptions(
        client=client_options(values),
        publish=_publish_settings(values),
        topic=_topic(values.text("topic")),
        write_id=_write_id(values.text("writeId")),
        batch_id=values.number("batchId", SinkOptions.batch_id),
        on_uncertain_batch=values.choice("onUncertainBatch", (FAIL, WRITE_IT, SKIP_IT)),
        compare_checkpoint=values.boolean("compareCheckpoint", True),
        sink_mode=values.choice("sinkMode", (AUTO, BY_DRIVER, BY_TASKS)),
        task_timeout_ms=values.number("kafka.transaction.timeout.ms", TASK_TIMEOUT_MS, minimum=1),
        spool_directory=values.text("spoolDirectory"),
        temporary_directory=identity_of_temporary_directory(),
        checkpoint_location=values.text("checkpointLocation"),
        # the working directory of the driver, which parses the options
        working_directory=os.getcwd(),
        site=_site_settings() if streaming or values.text("checkpointLocation") else {},
        query_name=values.text("queryName"),
        inline_bytes=values.number("inlineBytes", SinkOptions.inline_bytes),
        transactional_id_prefix=values.text("transactionalIdPrefix")
        or SinkOptions.transactional_id_prefix,
        compression=_compression(values),
        # A producer's batch.size is 16 KiB, since a producer waits for records to fill its batches.
        # Here all records are available from the start.
        record_batch_bytes=values.number(
            "kafka.batch.size", SinkOptions.record_batch_bytes, minimum=KIBIBYTE
        ),
    )
    check_kafka_settings(values, PRODUCER)
    return parsed


def _publish_settings(values: OptionValues) -> PublishSettings:
    """The limits and timeouts of publishing. Raises: OptionError."""
    return PublishSettings(
        transaction_timeout_ms=values.number(
            "kafka.transaction.timeout.ms", PublishSettings.transaction_timeout_ms, minimum=1
        ),
        delivery_timeout_ms=values.number(
            "kafka.delivery.timeout.ms", PublishSettings.delivery_timeout_ms, minimum=1
        ),
        max_request_bytes=values.number(
            "kafka.max.request.size", PublishSettings.max_request_bytes, minimum=KIBIBYTE
        ),
        in_flight=values.number(
            "kafka.max.in.flight.requests.per.connection",
            PublishSettings.in_flight,
            minimum=1,
            maximum=PublishSettings.in_flight,
        ),
        retry_backoff_max_ms=values.number(
            "kafka.retry.backoff.max.ms", PublishSettings.retry_backoff_max_ms
        ),
    )


def _refuse(values: OptionValues, streaming: bool) -> None:
    """Raise OptionError for unknown options, and for values that contradict exactly-once or each
    other.
    """
    refuse_unknown(
        values,
        (*SINK_OPTIONS, *MEANINGLESS, *REFUSED_MODES),
        ("asyncprogresstracking",),
        REFUSED_KAFKA,
        "sink",
    )
    for name, why in REFUSED_MODES.items():
        if values.boolean(name, False):
            raise OptionError(
                f"option {name}: the sink cannot keep exactly-once in this mode: {why}"
            )
    acks = values.text("kafka.acks")
    if acks is not None and acks not in ("all", "-1"):
        raise OptionError(f"option kafka.acks={acks!r}: a transaction needs acks=all; leave it out")
    if not values.boolean("kafka.enable.idempotence", True):
        raise OptionError(
            "option kafka.enable.idempotence=false: a transaction needs an idempotent producer; "
            "leave it out"
        )
    for name in ("writeId", "batchId"):
        if streaming and values.text(name) is not None:
            raise OptionError(
                f"option {name} is for batch writes; the id in its checkpoint identifies a "
                "streaming query"
            )
    if not streaming and values.text("writeId") is None and values.text("sinkMode") == BY_TASKS:
        raise OptionError(
            "option sinkMode=tasks in a batch write needs the option writeId: tasks' "
            "transactions end one by one, and if the driver dies meanwhile, the same write with "
            "the same writeId ends the others"
        )
    if not streaming:
        _refuse_number_without_checkpoint(values)


def _refuse_number_without_checkpoint(values: OptionValues) -> None:
    """Raise OptionError if a batch write has a part of what identifies a write of foreachBatch: a
    number is that of one batch only together with the query's checkpoint.
    """
    has_name, has_number = values.text("writeId") is not None, values.text("batchId") is not None
    has_place = values.text("checkpointLocation") is not None
    if has_number and not has_name:
        raise OptionError("option batchId numbers the writes of one writeId: give writeId, too")
    if not has_name or not values.boolean("compareCheckpoint", True):
        return
    if has_number and not has_place:
        raise OptionError(
            "option batchId needs the option checkpointLocation, with the query's checkpoint: a "
            "batch in foreachBatch is known by its input offsets there. Or set "
            f"compareCheckpoint=false: {ONLY_NUMBERS}"
        )
    if has_place and not has_number:
        raise OptionError(
            "option checkpointLocation in a batch write with writeId needs the option batchId: "
            "the batch's id that foreachBatch gives"
        )


def _compression(values: OptionValues) -> Compression:
    """The compression codec, and the compression levels of all codecs (KIP-390). Raises:
    OptionError.
    """

    def level(codec: str, lowest: int, highest: int) -> int:
        name, default = f"kafka.compression.{codec}.level", getattr(DEFAULT_LEVELS, codec)
        chosen = values.number(name, default, minimum=lowest, maximum=highest)
        if codec == "gzip" and not chosen:
            raise OptionError(f"option {name}='0': give 1 to 9, or -1 for the codec's own")
        return chosen

    return Compression(
        CODECS[values.choice("kafka.compression.type", tuple(CODECS))],
        Levels(level("gzip", -1, 9), level("lz4", 1, 17), level("zstd", -131072, 22)),
    )


def _site_settings() -> dict[str, str]:
    """The settings of Hadoop on the driver. Raises: OptionError."""
    try:
        return site_settings(os.environ)
    except PathError as error:
        raise OptionError(str(error)) from error


def _topic(text: str | None) -> str | None:
    """Check the option topic, and return it. Raises: OptionError."""
    if text is not None and not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", text):
        raise OptionError(
            f"option topic={text!r} is not a topic's name: letters, digits, '.', '_' and '-', "
            "249 at most"
        )
    return text


def _write_id(text: str | None) -> str | None:
    """Check the option writeId, which becomes the name of a directory, and return it. Raises:
    OptionError.
    """
    if text is not None and (text in ("", ".", "..") or "/" in text):
        raise OptionError(
            f"option writeId={text!r}: give a unique name without '/' for this write, or leave "
            "it out"
        )
    return text
