"""PySpark's view of the writer: a micro-batch, or a batch write, becomes one transaction.

Tasks only encode: what they did is nothing until the driver has it, so failed, repeated and
speculative ones need no care. The driver publishes all in one transaction that also commits `batch
id + 1` as an offset of a consumer group of the query's own. After a crash Spark runs the last batch
again, under the same id; what the group's offset shows to be committed is passed over.
(`publishing.publish` is that transaction.)

    in the driver    streamWriter() -> StreamWriter, pickled          plans: checks options and schema
    in each task     write(rows) -> BatchMessage                      encodes; much goes to a spool file, little into the message
    in the driver    streamWriter() again, commit(messages, batch id) publishes, then deletes the spool files
                     abort(messages, batch id)                        deletes the spool files; the transaction, if any, is left to the next

Spark calls abort after a commit that raised, when the transaction may have been committed all the
same: so abort decides nothing.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from barnabas.spark_connector.checkpoint import BEGUN, DONE, Checkpoint
from barnabas.spark_connector.client import Client, ClientError
from barnabas.spark_connector.deduplication import (
    COLUMN,
    Committed,
    Decision,
    Note,
    Recognise,
    recognise_micro_batch,
    recognise_write,
)
from barnabas.spark_connector.encoding import Encoder, EncodingError, check_schema
from barnabas.spark_connector.publishing import Publication, publish
from barnabas.spark_connector.sink_options import SinkOptions
from barnabas.spark_connector.spool import (
    EncodedBatch,
    SpoolError,
    SpoolWriter,
    delete_batches,
    delete_directory,
    delete_spool,
    from_message,
    is_local,
    join_uri,
    read_spool,
    to_message,
)
from barnabas.spark_connector.user_messages import hide_traceback, logger

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

# What Spark tells its tasks (StreamExecution, MicroBatchExecution); old names, though not in its
# documentation.
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
CONTINUOUS = "__is_continuous_processing"


class SinkError(Exception):
    """A batch could not be written; the message names the query, the batch and what to do."""


NOT_CONTINUOUS = (
    "the sink cannot keep exactly-once with Trigger.Continuous and writes nothing: it has no "
    "micro-batches; stop the query, and use the trigger "
    "processingTime or availableNow"
)
# What users can do something about.
TOLD = (ClientError, EncodingError, SpoolError, OSError)


def _plain(text: str) -> SinkError:
    hide_traceback()
    return SinkError(text)


def _topics_of(messages: Iterable[WriterCommitMessage | None]) -> frozenset[str]:
    return frozenset(
        topic
        for message in messages
        if isinstance(message, BatchMessage)
        for topic in message.topics
    )


@dataclass
class BatchMessage(WriterCommitMessage):  # type: ignore[misc]
    """What one task has for the driver: its encoded batches, or the file that holds them."""

    write_id: str
    inline: bytes
    spool: str | None
    record_count: int
    topics: frozenset[str] = frozenset()
    origin: str = (
        ""  # where a batch write belongs to a streaming query (foreachBatch): its query and batch
    )

    def batches(self) -> Iterator[EncodedBatch]:
        """All batches in the order of the task's rows. Raises SpoolError where the file is missing
        or damaged.
        """
        return read_spool(self.spool) if self.spool is not None else iter(from_message(self.inline))


class TaskOutput:
    """Encoded batches of one task: kept up to `inline_bytes`, from there on all in a file."""

    def __init__(self, inline_bytes: int, open_spool: Callable[[], SpoolWriter]) -> None:
        self._inline_bytes = inline_bytes
        self._open_spool = open_spool
        self._kept: list[EncodedBatch] = []
        self._kept_bytes = 0
        self._spool: SpoolWriter | None = None
        self.record_count = 0
        self.topics: set[str] = set()

    def add(self, batches: Iterable[EncodedBatch]) -> None:
        """Take more batches, in order."""
        for batch in batches:
            self.record_count += batch.record_count
            self.topics.add(batch.topic)
            if self._spool is not None:
                self._spool.append(batch)
                continue
            self._kept.append(batch)
            self._kept_bytes += len(batch.data)
            if self._kept_bytes > self._inline_bytes:
                self._spool = self._open_spool()
                for kept in self._kept:
                    self._spool.append(kept)
                self._kept.clear()

    def message(self, write_id: str) -> BatchMessage:
        """Close the file, if there is one. After: no more can be added."""
        if self._spool is None:
            return BatchMessage(
                write_id, to_message(self._kept), None, self.record_count, frozenset(self.topics)
            )
        return BatchMessage(
            write_id, b"", self._spool.close(), self.record_count, frozenset(self.topics)
        )

    def discard(self) -> None:
        """The task failed: the file is of no use to anybody."""
        if self._spool is not None:
            self._spool.discard()


class _Writer:
    """What streaming and batch writes have in common. Pickled into tasks."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(
            [(field.name, field.dataType.simpleString()) for field in schema.fields], options.topic
        )
        self.options = options

    def encode(
        self, rows: Iterable[pa.RecordBatch], write_id: str, batch_id: int, what: str
    ) -> BatchMessage:
        """One task's work. Raises SinkError; leaves no file then."""
        context = TaskContext.get()
        assert context is not None, "write is called in tasks"
        name = f"{context.partitionId()}-{context.attemptNumber()}-{uuid.uuid4().hex[:12]}"
        directory = join_uri(self.spool_directory(), write_id, str(batch_id))
        output = TaskOutput(self.options.inline_bytes, lambda: SpoolWriter(directory, name))
        with Client(self.options.client) as client:
            encoder = Encoder(
                topic=self.options.topic,
                partition_counts=lambda topic: len(client.partitions_of([topic], create=True)),
                compression=self.options.compression,
                batch_bytes=self.options.batch_bytes,
                task=context.partitionId(),
                now_ms=lambda: time.time_ns() // 1_000_000,
            )
            try:
                for batch in rows:
                    output.add(encoder.add(batch))
                output.add(encoder.finish())
                return output.message(write_id)
            except BaseException as error:
                output.discard()
                if isinstance(error, TOLD):
                    raise _plain(f"{what} cannot be written: {error}") from None
                raise

    def spool_directory(self) -> str:
        """Where files go: as the option says, else beside the checkpoint, which has to be shared by
        all machines anyway.
        """
        options = self.options
        if options.spool_directory is not None:
            return options.spool_directory
        if options.checkpoint_location is not None:
            return join_uri(options.checkpoint_location, "barnabas-spool")
        return join_uri(tempfile.gettempdir(), "barnabas-spool")

    def publish(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batch_id: int,
        note: Note,
        *,
        per_topic: bool,
        recognise: Recognise,
    ) -> Publication:
        """The transaction. per_topic: writes of one id to several topics are done side by side.
        Raises SinkError.
        """
        what = note.what
        found = [message for message in messages if isinstance(message, BatchMessage)]
        assert len(found) == len(messages), "commit without the messages of all tasks"
        write_ids = {message.write_id for message in found}
        assert len(write_ids) == 1, f"tasks of several writes in one commit: {write_ids}"
        name = f"{self.options.transactional_id_prefix}-{write_ids.pop()}"
        try:
            done = publish(
                self.options.client,
                transactional_id=f"{name}-{self.options.topic}"
                if per_topic and self.options.topic
                else name,
                group_id=name,
                batch_id=batch_id,
                metadata=note.to_text(),
                batches=lambda: (batch for message in found for batch in message.batches()),
                settings=self.options.publish,
                recognise=recognise,
            )
        except TOLD as error:
            raise _plain(f"{what} was not published: {error}") from None
        if done.already:
            logger.warning(
                "barnabas: %s was committed by an earlier attempt and is not written again", what
            )
        return done

    @property
    def target(self) -> str:
        """Where rows go: a topic, or what says that a column tells."""
        return self.options.topic if self.options.topic is not None else COLUMN

    def delete_files(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """The spool files of these messages, as far as they are still there."""
        for message in messages:
            if isinstance(message, BatchMessage) and message.spool is not None:
                try:
                    delete_spool(message.spool)
                except (OSError, SpoolError) as error:
                    logger.warning(
                        "barnabas: the spool file %s could not be deleted and can be removed by "
                        "hand: %s",
                        message.spool,
                        error,
                    )

    def clean_up(self, messages: Sequence[WriterCommitMessage | None], last: int | None) -> None:
        """Delete all files of batches up to the last that is committed (None: of all): nobody needs
        them any more.

        Beside those of the messages there may be some of failed and speculative tasks, of a driver
        that was killed and whose successor had less to write into files, and of a zombie that ran a
        batch again.
        """
        found = [message for message in messages if isinstance(message, BatchMessage)]
        directory = join_uri(self.spool_directory(), found[0].write_id)
        if not is_local(directory) and all(message.spool is None for message in found):
            return  # it would take a request; the next batch that has files sees to them
        try:
            if last is None:
                delete_directory(directory)
            else:
                delete_batches(directory, last)
        except (OSError, SpoolError) as error:
            which = "" if last is None else f" of batches up to {last}"
            logger.warning(
                "barnabas: spool files in %s%s could not be deleted and can be removed by hand: %s",
                directory,
                which,
                error,
            )


class StreamWriter(_Writer, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Exactly once per micro-batch."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchMessage:
        context = TaskContext.get()
        assert context is not None, "write is called in tasks"
        query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if context.getLocalProperty(CONTINUOUS) == "true":
            raise _plain(NOT_CONTINUOUS)
        if query_id is None or batch_id is None:
            raise SinkError(
                "this Spark does not tell its tasks the ids of query and batch, on which "
                "exactly-once rests; use PySpark 4.2 or later"
            )
        return self.encode(iterator, query_id, int(batch_id), self._what(query_id, int(batch_id)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if not messages:
            return  # a batch without tasks has no rows
        # So Spark commits the epochs of Trigger.Continuous, in which it calls `write` of no sink in
        # Python. Its query does not end of that.
        if not any(isinstance(message, BatchMessage) for message in messages):
            raise _plain(NOT_CONTINUOUS)
        query_id = next(
            message.write_id for message in messages if isinstance(message, BatchMessage)
        )
        checkpoint = Checkpoint(self.options.checkpoint_location)
        note = Note(self._what(query_id, batchId), self.target, checkpoint.plan_of(batchId))
        group_id = f"{self.options.transactional_id_prefix}-{query_id}"
        is_first = False

        def recognise(committed: Mapping[str, Committed]) -> Decision:
            nonlocal is_first
            decision = recognise_micro_batch(
                committed,
                batchId,
                note,
                _topics_of(messages),
                published_before=lambda: checkpoint.published_before(batchId),
                on_uncertain=self.options.on_uncertain_batch,
            )
            if not committed and decision.commits_number:
                is_first = True
                checkpoint.note(BEGUN, group_id, batchId)
            return decision

        done = self.publish(messages, batchId, note, per_topic=False, recognise=recognise)
        if is_first:
            checkpoint.note(DONE, group_id, batchId)
        self.clean_up(messages, done.last_committed(batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.delete_files(messages)

    def _what(self, query_id: str, batch_id: int) -> str:
        name = f"{self.options.query_name} ({query_id})" if self.options.query_name else query_id
        return f"batch {batch_id} of query {name}"


class BatchWriter(_Writer, DataSourceArrowWriter):  # type: ignore[misc]
    """A batch write: one transaction, all or nothing; once, where the option writeId names it."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self.write_id = options.write_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchMessage:
        message = self.encode(iterator, self.write_id, self.options.batch_id, self._what())
        context = TaskContext.get()
        assert context is not None, "write is called in tasks"
        query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query_id is not None and batch_id is not None:
            message.origin = f"batch {batch_id} of query {query_id}"
        return message

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if messages:
            batch_id = self.options.batch_id
            origins = {message.origin for message in messages if isinstance(message, BatchMessage)}
            note = Note(self._what(), self.target, origin=max(origins, default=""))

            def recognise(committed: Mapping[str, Committed]) -> Decision:
                return recognise_write(
                    committed,
                    batch_id,
                    note,
                    _topics_of(messages),
                    on_uncertain=self.options.on_uncertain_batch,
                )

            is_named = self.options.write_id is not None  # else nobody will ever repeat it
            done = self.publish(messages, batch_id, note, per_topic=is_named, recognise=recognise)
            self.clean_up(
                messages, done.last_committed(self.options.batch_id) if is_named else None
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.delete_files(messages)

    def _what(self) -> str:
        return f"batch {self.options.batch_id} of write {self.write_id}"
