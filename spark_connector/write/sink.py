"""PySpark's classes of the sink: a micro-batch, or a batch write, becomes one transaction.

Tasks encode the rows. A task's result has no effect until the driver has it, so failed, repeated
and speculative tasks need no special handling. The driver publishes everything in one transaction,
which also commits `batch id + 1` as an offset of the query's own consumer group
(`Publisher.commit_once`). After a crash Spark runs the last batch again, under the same id. The
batch is skipped if the group's offset shows that it is committed. With sinkMode a task may write
many rows itself, in a transaction that stays open until the driver's transaction has decided on it
(task_transactions.py).

    where           what Spark calls                 what it does
    in the driver   streamWriter() -> StreamWriter   plans: checks options and schema; is pickled
    in each task    write(rows) -> TaskMessage       encodes; little goes into the message, much to
                                                     a spool file or a transaction of its own
    in the driver   streamWriter() again,            publishes, ends the tasks' transactions,
                    commit(messages, batch id)       deletes the spool files
                    abort(messages, batch id)        deletes the spool files, aborts what tasks
                                                     wrote unless it is decided on; the next attempt
                                                     ends an open transaction of the driver

Spark calls abort after a commit that raised an error, although the transaction may have been
committed. Abort therefore makes no decision.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from barnabas.client.cluster_reader import ClientError
from barnabas.client.notices import logger
from barnabas.spark_connector.arrow.encoding import Encoder, EncodingError, check_schema
from barnabas.spark_connector.arrow.numba_loops import encoder_choice
from barnabas.spark_connector.encoded_record_batch import EncodedRecordBatch
from barnabas.spark_connector.task_process import (
    exempt_modules_from_collection,
    is_first_of_run,
    task_client,
)
from barnabas.spark_connector.user_messages import errors_of_a_stream, hide_traceback
from barnabas.spark_connector.write.checkpoint import (
    Checkpoint,
    CheckpointError,
    CheckpointPlace,
    trail_of_write,
)
from barnabas.spark_connector.write.deduplication import (
    ANNOUNCED,
    COLUMN,
    FAIL,
    CommitNote,
    Decide,
    Decision,
    GroupState,
    Lineage,
    PlannedBatch,
    Trail,
    decide_batch_write,
    decide_micro_batch,
    decide_write_of_micro_batch,
)
from barnabas.spark_connector.write.hadoop_paths import PathError, path_rules
from barnabas.spark_connector.write.publishing import (
    NOTHING,
    BegunNotes,
    Publication,
    Publisher,
    driver_publisher,
)
from barnabas.spark_connector.write.sink_options import ONLY_NUMBERS, SinkOptions
from barnabas.spark_connector.write.spool import (
    SpoolError,
    SpoolWriter,
    delete_directory,
    delete_micro_batches,
    delete_spool,
    from_message,
    is_local,
    join_uri,
    read_spool,
    to_message,
)
from barnabas.spark_connector.write.spool_directory import NAME as SPOOL
from barnabas.spark_connector.write.spool_directory import (
    check_checkpoint,
    check_temporary_directory,
    make_private_directory,
    private_directory,
)
from barnabas.spark_connector.write.task_parts import NO_RUN, TaskParts, run_token
from barnabas.spark_connector.write.task_producer import TaskWriter, open_task_writer
from barnabas.spark_connector.write.task_transactions import (
    AUTO,
    BY_DRIVER,
    TaskTransaction,
    fits_into_notes,
)
from barnabas.spark_connector.write.transactional_ids import TransactionalIds

# Properties that Spark sets for its tasks (StreamExecution, MicroBatchExecution). These names have
# existed for long, but they are not documented.
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
CONTINUOUS = "__is_continuous_processing"
RUN_ID = "spark.jobGroup.id"  # identifies the run of a streaming query, and differs for each start
SESSION_CHECKPOINT = "spark.sql.streaming.checkpointLocation"


class SinkError(Exception):
    """A batch could not be written. The message names query and batch, and says what to do."""


# The lineage that is used with compareCheckpoint=false.
NO_LINEAGE = Lineage(Trail(is_complete=False), lambda batch_id: "")
NOT_CONTINUOUS = (
    "the sink cannot guarantee exactly-once with Trigger.Continuous, which has no "
    "micro-batches, and writes nothing; stop the query, and use the trigger processingTime or "
    "availableNow"
)
# The errors that users can correct. They are shown without a traceback.
USER_ERRORS = (ClientError, EncodingError, SpoolError, CheckpointError, PathError, OSError)


class DecideByLineage(Protocol):
    """A rule for a micro-batch: `decide_micro_batch`, or `decide_write_of_micro_batch`."""

    def __call__(
        self,
        state: GroupState,
        batch_id: int,
        note: CommitNote,
        topics: Collection[str],
        *,
        lineage: Lineage,
        on_uncertain: str,
    ) -> Decision:
        """Decide on the batch."""


def _without_traceback(text: str) -> SinkError:
    hide_traceback()
    return SinkError(text)


def _not_published(note: CommitNote, error: Exception) -> SinkError:
    return _without_traceback(f"{note.what} was not published: {error}")


def _origin(batch_id: str, query_id: str) -> str:
    """The batch of a query to which a write belongs, as text for its note."""
    return f"batch {batch_id} of query {query_id}"


def _topics_of(messages: Iterable[WriterCommitMessage | None]) -> frozenset[str]:
    """The topics to which the tasks of these messages have rows."""
    return frozenset(
        topic
        for message in messages
        if isinstance(message, TaskMessage)
        for topic in message.topics
    )


def record_batches_of(
    messages: Sequence[WriterCommitMessage | None],
) -> Iterator[EncodedRecordBatch]:
    """Iterate over the record batches of all tasks, one task after the other."""
    for message in messages:
        assert isinstance(message, TaskMessage), "commit without the messages of all tasks"
        yield from message.record_batches()


@dataclass
class TaskMessage(WriterCommitMessage):  # type: ignore[misc]
    """The commit message of one task: its encoded record batches, or the file that contains them.

    query_id, query_batch: the query and micro-batch in which a batch write is made (foreachBatch),
    if they are known. run: the id of this run of the query. place: the location of its checkpoint.
    transaction: if the task wrote the records itself, the transaction that contains them.
    byte_count: the size of the task's records in bytes.
    """

    write_id: str
    inline: bytes
    spool: str | None
    record_count: int
    topics: frozenset[str] = frozenset()
    run: str = ""
    place: CheckpointPlace = field(default_factory=CheckpointPlace)
    transaction: TaskTransaction | None = None
    byte_count: int = 0
    query_id: str = ""
    query_batch: str = ""

    def record_batches(self) -> Iterator[EncodedRecordBatch]:
        """Return all record batches that the driver has to write, in the order of the task's rows.

        Raises: SpoolError if the file is missing or damaged.
        """
        if self.transaction is not None:
            return iter(())
        return read_spool(self.spool) if self.spool is not None else iter(from_message(self.inline))


class TaskOutput:
    """The record batches of one task.

    Up to `inline_bytes` they are kept in memory. Larger outputs are in a file or in a transaction.
    """

    def __init__(
        self, inline_bytes: int, open_overflow: Callable[[], SpoolWriter | TaskWriter]
    ) -> None:
        """Takes: inline_bytes, up to which the record batches are part of the task's message;
        open_overflow, which opens a file or a transaction for more.
        """
        self._inline_bytes = inline_bytes
        self._open_overflow = open_overflow
        self._kept: list[EncodedRecordBatch] = []
        self._overflow: SpoolWriter | TaskWriter | None = None
        self.record_count = self.byte_count = 0
        self.topics: set[str] = set()

    def add(self, record_batches: Iterable[EncodedRecordBatch]) -> None:
        """Add record batches, in order."""
        for record_batch in record_batches:
            self.record_count += record_batch.record_count
            self.byte_count += len(record_batch.data)
            self.topics.add(record_batch.topic)
            if self._overflow is not None:
                self._overflow.append(record_batch)
                continue
            self._kept.append(record_batch)
            if self.byte_count > self._inline_bytes:
                self._overflow = self._open_overflow()
                for kept in self._kept:
                    self._overflow.append(kept)
                self._kept.clear()

    def message(self, write_id: str) -> TaskMessage:
        """Make the task's message to the driver.

        After:  no further record batches can be added.
        """
        inline = to_message(self._kept) if self._overflow is None else b""
        written = None if self._overflow is None else self._overflow.close()
        return TaskMessage(
            write_id,
            inline,
            written if isinstance(written, str) else None,
            self.record_count,
            frozenset(self.topics),
            transaction=written if isinstance(written, TaskTransaction) else None,
            byte_count=self.byte_count,
        )

    def discard(self) -> None:
        """Delete the file of a failed task, or abort its transaction."""
        if self._overflow is not None:
            self._overflow.discard()


class _Writer:
    """What streaming and batch writes have in common. An object is pickled into each task."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(
            [(field.name, field.dataType.simpleString()) for field in schema.fields], options.topic
        )
        self.options = options

    def encode(
        self,
        arrow_batches: Iterable[pa.RecordBatch],
        write_id: str,
        batch_id: int,
        what: str,
        place: CheckpointPlace = CheckpointPlace(),  # noqa: B008 (immutable)
        run: str = NO_RUN,
    ) -> TaskMessage:
        """Encode one task's rows. If there are many, also write them to a file or in a transaction.

        Raises: SinkError. Before it is raised, the file is removed or the transaction aborted, if
                possible.
        """
        exempt_modules_from_collection()
        context = TaskContext.get()
        assert context is not None, "write is called in tasks"
        name = f"{context.partitionId()}-{context.attemptNumber()}-{uuid.uuid4().hex[:12]}"
        directory = join_uri(self.spool_of(place, write_id), str(batch_id))

        counts: dict[str, int] = {}

        def open_file() -> SpoolWriter:
            self._prepare_spool_directory(place)
            return SpoolWriter(directory, name)

        def open_overflow() -> SpoolWriter | TaskWriter:
            most_partitions = max(counts.values(), default=1)
            is_listed = fits_into_notes(context.partitionId(), most_partitions)
            if self.options.sink_mode == AUTO and not is_listed:
                with suppress(SpoolError):  # the list of all transactions may fit nevertheless
                    return open_file()
            return self._open_transaction(write_id, batch_id, run) or open_file()

        output = TaskOutput(self.options.inline_bytes, open_overflow)
        with task_client(self.options.client) as client:

            def partition_count(topic: str) -> int:
                counts[topic] = len(client.partitions_of([topic], create=True))
                return counts[topic]

            encoder = Encoder(
                topic=self.options.topic,
                partition_counts=partition_count,
                compression=self.options.compression,
                record_batch_bytes=self.options.record_batch_bytes,
                task=context.partitionId(),
                now_ms=lambda: time.time_ns() // 1_000_000,
                loops_for=encoder_choice.loops_for,
            )
            try:
                for arrow_batch in arrow_batches:
                    output.add(encoder.add(arrow_batch))
                output.add(encoder.finish())
                return output.message(write_id)
            except BaseException as error:
                output.discard()
                if isinstance(error, USER_ERRORS):
                    raise _without_traceback(f"{what} cannot be written: {error}") from None
                raise

    def spool_directory(self, place: CheckpointPlace) -> str:
        """Return the directory of spool files.

        It is the one in the option, or else one in the checkpoint of a stream, or else a private
        one in the temporary directory.
        """
        if self.options.spool_directory is not None:
            return self.options.spool_directory
        checkpoint = place.location or place.root
        return join_uri(checkpoint, SPOOL) if checkpoint else private_directory()

    def spool_of(self, place: CheckpointPlace, write_id: str) -> str:
        """Return the directory of one write's spool files."""
        return join_uri(self.spool_directory(place), write_id)

    def place_of(self, job_properties: Mapping[str, str]) -> CheckpointPlace:
        """Find the location of the query's checkpoint, as far as a task can determine it.

        Takes:  job_properties, those of the task's context, which include Spark's settings.
        Raises: PathError.
        """
        options = self.options
        rules = path_rules(options.site, job_properties, options.working_directory)
        if options.checkpoint_location is not None:
            return CheckpointPlace(location=rules.resolve(options.checkpoint_location))
        root = job_properties.get(SESSION_CHECKPOINT)
        if root is None:
            return CheckpointPlace()
        if options.query_name is not None:
            names = options.query_name.split("/")
            return CheckpointPlace(location=join_uri(rules.resolve(root), *names))
        return CheckpointPlace(root=rules.resolve(root))

    def _prepare_spool_directory(self, place: CheckpointPlace) -> None:
        """Check that the driver uses the same directory as the tasks, if this can be determined, or
        make a private directory.

        Raises: SpoolError.
        """
        if self.options.spool_directory is not None:
            return
        if place.location:
            check_checkpoint(place.location, "metadata")
        elif place.root:
            check_checkpoint(place.root)
        else:
            check_temporary_directory(self.options.temporary_directory)
            make_private_directory(private_directory())

    def _open_transaction(self, write_id: str, batch_id: int, run: str) -> TaskWriter | None:
        """Begin a transaction for a task with many rows.

        Gives:  None if a file has to be used instead.
        Raises: ClientError.
        """
        options = self.options
        if options.sink_mode == BY_DRIVER or not self.repeats_batches:
            return None
        driver_id = self.driver_id_of(write_id)
        return open_task_writer(
            options.client,
            replace(options.publish, transaction_timeout_ms=options.task_timeout_ms),
            TransactionalIds(driver_id, run),
            driver_id,
            batch_id,
            only_two_phase=options.sink_mode == AUTO,
        )

    @property
    def repeats_batches(self) -> bool:
        """Whether a batch is repeated after a crash. If so, the repetition ends the transactions of
        the first attempt.
        """
        return True

    def driver_id_of(self, write_id: str) -> str:
        """The transactional id of the driver."""
        return self.group_name(write_id)

    def group_name(self, write_id: str) -> str:
        """Return the name of a write's group, which consists of the prefix and the write's id."""
        return f"{self.options.transactional_id_prefix}-{write_id}"

    def parts_of(
        self,
        messages: Sequence[WriterCommitMessage | None],
        note: CommitNote,
        *,
        run: str = "",
        looks_for_open: bool = False,
        target: str | None = None,
    ) -> TaskParts:
        """Collect the transactions that the tasks wrote, for the publisher."""
        written = [each for each in messages if isinstance(each, TaskMessage) and each.transaction]
        return TaskParts(
            note,
            run,
            tuple(each.transaction for each in written if each.transaction),
            _topics_of(written),
            (sum(each.record_count for each in written), sum(each.byte_count for each in written)),
            self.options.task_timeout_ms,
            looks_for_open,
            target,
            tolerates_aborts=self.options.on_uncertain_batch != FAIL,
        )

    def publish_micro_batch(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batch_id: int,
        note: CommitNote,
        checkpoint: Checkpoint | None,
        run: str,
        decide: DecideByLineage,
        *,
        target: str | None = None,
    ) -> Publication:
        """Publish a micro-batch, or the part of it that foreachBatch writes to one target, and
        write its trail.

        The first batch of a run is compared with the checkpoint even if it has no rows.

        Takes:  checkpoint, or None if the batch is not compared; run, the run of the query; decide,
                the rule for the batch; target, that of a batch write, and None for a stream.
        Raises: CheckpointError; SinkError.
        """
        trail = Trail() if checkpoint is None else checkpoint.trail()
        is_compared = checkpoint is not None and (not trail.run or trail.run != run)
        topics = _topics_of(messages)
        if not topics and not is_compared and self.options.on_uncertain_batch == FAIL:
            return NOTHING
        if checkpoint is not None:
            note = replace(note, plan=checkpoint.plan_of_batch(batch_id, check_id=is_compared))
        trail = Trail(
            group=self.group_name(self.write_id_of(messages)),
            run=run,
            begun=PlannedBatch(batch_id, note.plan),
        )
        keeper = _TrailKeeper(checkpoint, trail, target)
        parts = self.parts_of(
            messages,
            note,
            run=run_token(run) if target is None else "",
            looks_for_open=is_compared or (checkpoint is None and self._is_first(messages, run)),
            target=target,
        )
        done = self.publish_messages(
            messages,
            batch_id,
            note,
            parts=parts,
            decide=lambda state: decide(
                state,
                batch_id,
                note,
                topics,
                lineage=keeper.lineage(state),
                on_uncertain=self.options.on_uncertain_batch,
            ),
            begun=BegunNotes(replace(note, state=ANNOUNCED).to_text(), keeper.write_trail),
        )
        if is_compared:
            keeper.record_run()
        return done

    def _is_first(self, messages: Sequence[WriterCommitMessage | None], run: str) -> bool:
        """Whether this is the first batch of a run in this process, if no checkpoint shows it."""
        return is_first_of_run(self.driver_id_of(self.write_id_of(messages)), run)

    def publish_messages(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batch_id: int,
        note: CommitNote,
        *,
        decide: Decide,
        parts: TaskParts,
        begun: BegunNotes | None = None,
    ) -> Publication:
        """Publish the record batches of the tasks' messages in one transaction, unless the batch is
        already committed.

        Takes:  begun, the begun notes of a stream; with them, batches without rows are checked as
                well.
        Raises: SinkError.
        """
        write_id = self.write_id_of(messages)
        driver_id = self.driver_id_of(write_id)
        options = self.options
        try:
            with driver_publisher(options.client, options.publish, driver_id) as publisher:
                done = publisher.commit_once(
                    transactional_id=driver_id,
                    group_id=self.group_name(write_id),
                    batch_id=batch_id,
                    metadata=note.to_text(),
                    record_batches=lambda: record_batches_of(messages),
                    decide=decide,
                    begun=begun,
                    parts=parts,
                )
        except USER_ERRORS as error:
            raise _not_published(note, error) from None
        if done.was_committed:
            logger.warning(
                "barnabas: %s was committed by an earlier attempt and is not written again",
                note.what,
            )
        return done

    def abandon(
        self,
        messages: Sequence[WriterCommitMessage | None],
        parts: TaskParts,
        write_id: str,
        what: str,
    ) -> None:
        """Abort the transactions that the tasks of a failed batch wrote.

        The messages may be incomplete, since a task that failed or was killed has no message.
        """
        may_have_written = parts.transactions or any(each is None for each in messages)
        mode = self.options.sink_mode
        if not may_have_written or mode == BY_DRIVER or not self.repeats_batches:
            return
        try:
            with Publisher(self.options.client, self.options.publish) as publisher:
                publisher.abandon(
                    transactional_id=self.driver_id_of(write_id),
                    group_id=self.group_name(write_id),
                    parts=parts,
                )
        except USER_ERRORS as error:
            logger.warning(
                "barnabas: transactions of tasks of %s may be open until it runs again or "
                "kafka.transaction.timeout.ms is over: %s",
                what,
                error,
            )

    def write_id_of(self, messages: Sequence[WriterCommitMessage | None]) -> str:
        """Return the id of the write to which the messages belong."""
        write_ids = {message.write_id for message in messages if isinstance(message, TaskMessage)}
        assert len(write_ids) == 1, f"tasks of several writes in one commit: {write_ids}"
        return write_ids.pop()

    @property
    def target(self) -> str:
        """The topic of all rows, or COLUMN if a column contains the topic of each row."""
        return self.options.topic if self.options.topic is not None else COLUMN

    def delete_files(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the spool files of these messages, if they still exist."""
        for message in messages:
            if isinstance(message, TaskMessage) and message.spool is not None:
                try:
                    delete_spool(message.spool)
                except (OSError, SpoolError) as error:
                    logger.warning(
                        "barnabas: the spool file %s could not be deleted; remove it by hand: %s",
                        message.spool,
                        error,
                    )

    def clean_up(self, messages: Sequence[WriterCommitMessage | None], last: int | None) -> None:
        """Delete all spool files of batches up to `last`, which is committed. If `last` is None,
        delete the files of all batches.

        Not all of these files are named in messages. There may also be files of failed and
        speculative tasks, of a killed driver whose successor used fewer files, and of a driver that
        was believed dead and repeated a batch.
        """
        task_messages = [message for message in messages if isinstance(message, TaskMessage)]
        directory = self.spool_of(task_messages[0].place, task_messages[0].write_id)
        if not is_local(directory) and all(message.spool is None for message in task_messages):
            # Listing a remote directory takes a request. The next batch that has spool files
            # deletes what is left.
            return
        try:
            if last is None:
                delete_directory(directory)
            else:
                delete_micro_batches(directory, last)
        except (OSError, SpoolError) as error:
            which = "" if last is None else f" of batches up to {last}"
            logger.warning(
                "barnabas: spool files in %s%s could not be deleted; remove them by hand: %s",
                directory,
                which,
                error,
            )


class _TrailKeeper:
    """The lineage of one micro-batch: the trail with which the batch is compared, and the trail
    that is written for it.

    checkpoint: None if the batch is not compared with a checkpoint. target: that of a batch write,
    whose notes are the only ones that count; None for a stream.
    """

    def __init__(
        self, checkpoint: Checkpoint | None, trail: Trail, target: str | None = None
    ) -> None:
        self._checkpoint, self._trail, self._target = checkpoint, trail, target

    def lineage(self, state: GroupState) -> Lineage:
        """Read the lineage from the checkpoint as it is now, for one decision."""
        if self._checkpoint is None:
            return NO_LINEAGE
        lineage = self._checkpoint.lineage()
        state = state if self._target is None else state.of_target(self._target)
        last = None if state.last is None else state.last.planned
        is_own = last is not None and not lineage.is_foreign(last)
        self._trail = replace(self._trail, after=last if is_own else lineage.trail.after)
        return lineage

    def write_trail(self) -> None:
        """Write the trail. This is done before the batch is published."""
        if self._checkpoint is not None:
            self._checkpoint.write(self._trail)

    def record_run(self) -> None:
        """Record that this run has compared the checkpoint. Used if nothing was published."""
        if self._checkpoint is not None:
            kept = self._checkpoint.trail()
            if kept.run != self._trail.run:
                self._checkpoint.write(replace(kept, run=self._trail.run))


class StreamWriter(_Writer, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """The writer of a streaming query, which writes each micro-batch exactly once."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Write the rows of one task of a micro-batch. Gives: its message to the driver."""
        context = TaskContext.get()
        assert context is not None, "write is called in tasks"
        query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if context.getLocalProperty(CONTINUOUS) == "true":
            raise _without_traceback(NOT_CONTINUOUS)
        if query_id is None or batch_id is None:
            raise SinkError(
                "this Spark does not pass the ids of query and batch to its tasks, which "
                "exactly-once needs; use PySpark 4.2 or later"
            )
        what = self._batch_text(query_id, int(batch_id))
        try:
            place = self.place_of(getattr(context, "_localProperties", None) or {})
        except (PathError, SpoolError) as error:
            raise _without_traceback(f"{what} cannot be written: {error}") from None
        run = context.getLocalProperty(RUN_ID) or ""
        message = self.encode(
            iterator, query_id, int(batch_id), what, place, run_token(run) or NO_RUN
        )
        message.run, message.place = run, place
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish the micro-batch on the driver, after all its tasks, then delete its files."""
        exempt_modules_from_collection()
        if not messages:
            return  # a batch without tasks has no rows
        # With Trigger.Continuous, Spark commits epochs without ever calling `write` of a Python
        # sink. The query would not fail by itself.
        message = next((each for each in messages if isinstance(each, TaskMessage)), None)
        if message is None:
            raise _without_traceback(NOT_CONTINUOUS)
        note = CommitNote(self._batch_text(message.write_id, batchId), self.target)
        with errors_of_a_stream(SinkError):
            try:
                done = self._publish(messages, batchId, message, note)
            except USER_ERRORS as error:
                raise _not_published(note, error) from None
        self.clean_up(messages, done.last_committed(batchId))

    def _publish(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batch_id: int,
        message: TaskMessage,
        note: CommitNote,
    ) -> Publication:
        """Publish a batch, and write its trail. Raises: CheckpointError; SinkError."""
        checkpoint = (
            Checkpoint.at(message.place, message.write_id)
            if self.options.compare_checkpoint
            else None
        )
        return self.publish_micro_batch(
            messages, batch_id, note, checkpoint, message.run, decide_micro_batch
        )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Clean up after a task or commit of a micro-batch failed: delete the files, and abort the
        transactions of its tasks, unless they are decided on.
        """
        self.delete_files(messages)
        message = next((each for each in messages if isinstance(each, TaskMessage)), None)
        if message is not None:  # the names of the transactions are in the messages
            parts = self.parts_of(messages, CommitNote(), run=run_token(message.run))
            self.abandon(messages, parts, message.write_id, f"batch {batchId}")

    def _batch_text(self, query_id: str, batch_id: int) -> str:
        """The name of a micro-batch in messages and notes."""
        name = f"{self.options.query_name} ({query_id})" if self.options.query_name else query_id
        return f"batch {batch_id} of query {name}"


class BatchWriter(_Writer, DataSourceArrowWriter):  # type: ignore[misc]
    """The writer of a batch write, which is written completely or not at all. With the option
    writeId, it is also written only once.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self.write_id = options.write_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        """Write the rows of one task. In foreachBatch, its message also names the query and batch
        in which it runs.

        Raises: SinkError.
        """
        context = TaskContext.get()
        assert context is not None, "write is called in tasks"
        query_id, query_batch = (context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID))
        if query_id is not None and query_batch is not None:
            self._check_number(query_batch)
        what, place = self._write_text(), CheckpointPlace()
        if self._is_compared:
            properties = getattr(context, "_localProperties", None) or {}
            try:
                place = self.place_of(properties)
            except (PathError, SpoolError) as error:
                raise _without_traceback(f"{what} cannot be written: {error}") from None
        message = self.encode(iterator, self.write_id, self.options.batch_id, what, place)
        message.place, message.run = place, context.getLocalProperty(RUN_ID) or ""
        if query_id is not None and query_batch is not None:
            message.query_id, message.query_batch = query_id, query_batch
        return message

    @property
    def _is_compared(self) -> bool:
        """Whether the write is compared with the checkpoint of a query, as a part of its batch."""
        options = self.options
        return (
            options.write_id is not None
            and options.compare_checkpoint
            and options.checkpoint_location is not None
        )

    def _check_number(self, query_batch: str) -> None:
        """Check that a write in foreachBatch is identified as a part of its micro-batch.

        Raises: SinkError.
        """
        options = self.options
        if options.write_id is None or not options.compare_checkpoint:
            return
        if not self._is_compared or str(options.batch_id) != query_batch:
            raise _without_traceback(
                f"{self._write_text()} is made in batch {query_batch} of a query (foreachBatch): "
                "give the batch's id as batchId, and the query's checkpointLocation. Or set "
                f"compareCheckpoint=false: {ONLY_NUMBERS}"
            )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the write on the driver, after all its tasks: once for each writeId, if the
        option is set.
        """
        if not messages:
            return
        if self.options.write_id is None:
            self._publish_unnamed(messages)
            self.clean_up(messages, None)
            return
        batch_id = self.options.batch_id
        note = CommitNote(self._write_text(), self.target)
        try:
            publish = self._publish_in_query if self._is_compared else self._publish_named
            done = publish(messages, batch_id, note)
        except USER_ERRORS as error:
            raise _not_published(note, error) from None
        self.clean_up(messages, done.last_committed(batch_id))

    def _publish_in_query(
        self, messages: Sequence[WriterCommitMessage | None], batch_id: int, note: CommitNote
    ) -> Publication:
        """Publish the write as a part of a query's micro-batch. Raises: CheckpointError;
        SinkError.
        """
        message = next(each for each in messages if isinstance(each, TaskMessage))
        checkpoint = Checkpoint(
            message.place.location,
            message.query_id,
            trail_of_write(self.group_name(self.write_id), self.target),
        )
        query_id = message.query_id or checkpoint.id()
        note = replace(note, origin=_origin(str(batch_id), query_id))
        return self.publish_micro_batch(
            messages,
            batch_id,
            note,
            checkpoint,
            message.run,
            decide_write_of_micro_batch,
            target=self.target,
        )

    def _publish_named(
        self, messages: Sequence[WriterCommitMessage | None], batch_id: int, note: CommitNote
    ) -> Publication:
        """Publish a write that is known by its name and number only. Raises: SinkError."""
        origins = {
            _origin(message.query_batch, message.query_id)
            for message in messages
            if isinstance(message, TaskMessage) and message.query_id
        }
        note = replace(note, origin=max(origins, default=""))

        def decide(state: GroupState) -> Decision:
            return decide_batch_write(
                state,
                batch_id,
                note,
                _topics_of(messages),
                on_uncertain=self.options.on_uncertain_batch,
            )

        run = next(each.run for each in messages if isinstance(each, TaskMessage))
        looks_for_open = self._is_first(messages, run)
        parts = self.parts_of(messages, note, looks_for_open=looks_for_open, target=self.target)
        return self.publish_messages(messages, batch_id, note, parts=parts, decide=decide)

    def _publish_unnamed(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish a write that has a random id. No later write repeats it, so it needs no group."""
        try:
            with Publisher(self.options.client, self.options.publish) as publisher:
                publisher.commit_unnumbered(
                    transactional_id=self.group_name(self.write_id_of(messages)),
                    record_batches=lambda: record_batches_of(messages),
                )
        except USER_ERRORS as error:
            raise _not_published(CommitNote(self._write_text()), error) from None

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Clean up after a task or the commit of a write failed: delete the files, and abort the
        transactions of its tasks, unless they are decided on.
        """
        self.delete_files(messages)
        parts = self.parts_of(messages, CommitNote(), target=self.target)
        self.abandon(messages, parts, self.write_id, self._write_text())

    @property
    def repeats_batches(self) -> bool:
        return self.options.write_id is not None

    def spool_of(self, place: CheckpointPlace, write_id: str) -> str:
        """Return the directory of this write's spool files.

        There is one for each topic, since writes with the same writeId to several topics may run
        concurrently, and each of them deletes its directory's earlier files.
        """
        options = self.options
        is_one_of_several = options.write_id is not None and options.topic is not None
        name = f"{write_id}@{options.topic}" if is_one_of_several else write_id
        return join_uri(self.spool_directory(place), name)

    def driver_id_of(self, write_id: str) -> str:
        """The transactional id of the driver.

        There is one for each topic, since writes with the same writeId to several topics may run
        concurrently.
        """
        name = self.group_name(write_id)
        return f"{name}-{self.options.topic}" if self.options.topic else name

    def _write_text(self) -> str:
        """The name of the write in messages and notes."""
        return f"batch {self.options.batch_id} of write {self.write_id}"
