"""The reader of one range of one partition. It fetches, selects record batches, decodes them, and
makes Spark's columns. Tasks run this code, which does not need PySpark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from barnabas.client.cluster_reader import (
    ClientError,
    ClusterReader,
    FetchResult,
    RefusedError,
    UnknownTopicError,
)
from barnabas.client.notices import logger
from barnabas.protocol.errors import Code, KafkaError
from barnabas.spark_connector.arrow.decoding import HEADERS_TYPE, Columns, decode
from barnabas.spark_connector.arrow.numba_loops import AUTO, decoder_choice
from barnabas.spark_connector.arrow.record_batches import (
    Selection,
    first_record_batch_size,
    select_record_batches,
)
from barnabas.spark_connector.read.offsets import EARLIEST, LATEST, OffsetRange
from barnabas.spark_connector.read.open_transactions import OpenTransactionWait, UndecidedRange
from barnabas.spark_connector.read.options import MAX_INT, OpenTransactions

# The number of successive empty responses below the end of the log after which a reader gives up.
EMPTY_ANSWERS = 20
# The latest time that the column can contain. A producer may set any int64 as the timestamp.
LARGEST_TIMESTAMP_MS = ((1 << 63) - 1) // 1000

COLUMNS: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS_TYPE,
}

# The reasons why offsets are not read.
DELETED = "records were deleted, or the topic was recreated"
NOT_THE_SAME = "unread records of the deleted topic are lost"
NEVER_THERE = "the topic was recreated, or the offsets do not exist yet"
TOPIC_DELETED = "the topic was deleted"


class DataLossError(Exception):
    """Records of the range are no longer in the log, and failOnDataLoss is true."""


class DamageError(Exception):
    """Records exist, but cannot be read."""


def read_range(
    client: ClusterReader,
    offset_range: OffsetRange,
    columns: Sequence[str],
    *,
    read_committed: bool,
    fail_on_data_loss: bool,
    open_transactions: OpenTransactions = OpenTransactions(),  # noqa: B008 (frozen)
    decoder: str = AUTO,
    topic_id: str = "",
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the range, in order. With read_committed, records of aborted
    transactions are left out.

    The end of the range is a position, not a record. A range that ends with control records,
    aborted records or a gap of compaction is complete when the reader is past its end.

    Takes:  columns, names from COLUMNS in the wanted order; open_transactions, the policy if the
            range extends beyond an open transaction (the planner avoids that, but the last stable
            offset may be lower after a broker's power loss); decoder, the option's value; topic_id,
            the id under which the range was planned. A topic with another id is not read, even if
            it is created again during the read: before the rows of the last fetch are returned, all
            rows are known to belong to the topic with this id.
    Raises: DataLossError; OpenTransactionError; ClientError; OptionError; DamageError.
    """
    schema = pa.schema([pa.field(name, COLUMNS[name]) for name in columns])
    reader = _RangeReader(
        client, offset_range, read_committed, fail_on_data_loss, open_transactions, topic_id
    )
    constants = _Constants(offset_range)
    if reader.is_of_former_topic(offset_range.start_offset):
        return
    try:
        for fetched, selection, position in reader.selections():
            remaining = offset_range.end_offset - selection.next_offset
            parts = decode(
                fetched.records,
                selection.record_batches,
                start_offset=position,
                end_offset=offset_range.end_offset,
                key="key" in columns,
                value="value" in columns,
                headers="headers" in columns,
                loops=decoder_choice.loops_for(decoder, selection, remaining=remaining),
            )
            for part in parts:
                yield _arrow_batch(part, constants, schema)
    except KafkaError as error:
        raise DamageError(
            f"{offset_range.name} cannot be read, for the range [{offset_range.start_offset}, "
            f"{offset_range.end_offset}): {error}; read the records before and after it with "
            "startingOffsets and endingOffsets"
        ) from error


def topic_recreated(topic: str) -> str:
    """Return the error text for a topic that has another id because it was deleted and created
    again.
    """
    return f"topic {topic!r} was deleted and recreated, since it has another id"


class _RangeReader:
    """The fetches of one range, from its first position to its end.

    This class decides how to continue if the log does not have a position, or a fetch returned no
    new data.
    """

    def __init__(
        self,
        client: ClusterReader,
        offset_range: OffsetRange,
        read_committed: bool,
        fail_on_data_loss: bool,
        open_transactions: OpenTransactions,
        topic_id: str,
    ) -> None:
        self._client, self._range, self._topic_id = client, offset_range, topic_id
        self._read_committed, self._fail_on_data_loss = read_committed, fail_on_data_loss
        self._open_transaction_wait = OpenTransactionWait(open_transactions)
        self._max_bytes = client.options.fetch_max_bytes
        # The number of empty responses since the last response with data, and the time of the first
        # of these empty ones.
        self._empty_answers = 0
        self._empty_since = 0.0

    def is_of_former_topic(self, position: int) -> bool:
        """Whether the topic was deleted and created again. The range then has offsets of the former
        topic.

        At the start of a range this needs no additional request, since the first fetch needs the
        partition's leader.

        Takes:  position, the position from which on the range is not read if the topic was created
                again.
        Raises: DataLossError.
        """
        topic = self._range.topic
        if not self._topic_id:
            return False
        self._client.partitions_of([topic], missing_ok=True)
        if not self._client.recreated_topics({topic: self._topic_id}):
            return False
        what = f"{topic_recreated(topic)}, and offsets of the former are in the range"
        self._lost(what, position, self._range.end_offset, NOT_THE_SAME)
        return True

    def selections(self) -> Iterator[tuple[FetchResult, Selection, int]]:
        """Yield each fetch with its selected part, and the position at which it began.

        While the caller processes one fetch, the broker already prepares the next one.
        """
        position, end_offset = self._range.start_offset, self._range.end_offset
        pending = self._start_fetch(position)
        try:
            while True:
                try:
                    fetched = pending()
                except RefusedError as error:
                    if error.code != Code.OFFSET_OUT_OF_RANGE:
                        raise
                    position = self._position_after_loss(position)
                    if position >= end_offset:
                        return
                    pending = self._start_fetch(position)
                    continue
                selection = self._select(fetched, position)
                fetch_position, position = position, selection.next_offset
                if position == fetch_position:
                    if not self._look_again(fetched, position):
                        return
                    pending = self._start_fetch(position)
                    continue
                self._empty_answers = 0
                is_last = position >= end_offset
                if not is_last:
                    pending = self._start_fetch(position)
                elif not fetched.is_by_id and self.is_of_former_topic(fetch_position):
                    return  # only for a broker before Kafka 3.1, from which topics are read by name
                if selection.record_batches:
                    yield fetched, selection, fetch_position
                if is_last:
                    return
        except UnknownTopicError:
            if self.is_of_former_topic(position):
                return
            what = f"{self._range.name} does not exist, for the range"
            self._lost(what, position, end_offset, TOPIC_DELETED)

    def _start_fetch(self, position: int) -> Callable[[], FetchResult]:
        """Send a Fetch for the position. Gives: a function that waits for the response."""
        return self._client.start_fetch(
            self._range.name,
            position,
            read_committed=self._read_committed,
            max_bytes=self._max_bytes,
            topic_id=self._topic_id,
        )

    def _select(self, fetched: FetchResult, position: int) -> Selection:
        """The batches of a fetch with records of the range that were not aborted."""
        return select_record_batches(
            fetched.records,
            fetched.aborted_transactions if self._read_committed else None,
            start_offset=position,
            end_offset=self._range.end_offset,
            check_crc=self._client.options.check_crcs,
        )

    def _look_again(self, fetched: FetchResult, position: int) -> bool:
        """Decide what to do after a fetch that returned no new data.

        Gives:  True, after a pause, if the caller has to fetch again; False, after a warning, if
                the range ends at the position.
        Raises: DataLossError, OpenTransactionError; ClientError if the broker reports more data but
                does not return them in time.
        """
        # If a record batch exceeds the maximum size of a fetch, the next fetch requests all of it.
        first_bytes = first_record_batch_size(fetched.records) or 0
        self._max_bytes = min(max(self._max_bytes, first_bytes), MAX_INT)
        name, end_offset = self._range.name, self._range.end_offset
        end = fetched.last_stable_offset if self._read_committed else fetched.high_watermark
        if position >= end:
            # The end offsets in a new leader's Fetch responses are too low at first. The end is
            # therefore requested by ListOffsets, which does not return such offsets (KIP-207).
            end = self._log_end(read_committed=False)
            if position >= end:
                what = f"the log of {name} ends at {end}, before the end of the range"
                self._lost(what, position, end_offset, NEVER_THERE)
                return False
            # The last stable offset is requested after the end of the log. Otherwise records
            # written in between would look like an open transaction.
            stable = self._log_end(read_committed=True) if self._read_committed else end
            if position >= stable:
                return self._open_transaction_wait.look_again(
                    {name: UndecidedRange(end_offset, stable)}
                )
        self._pause_after_empty_answer(position, end)
        return True

    def _log_end(self, *, read_committed: bool) -> int:
        name = self._range.name
        return self._client.offsets_at({name: LATEST}, read_committed=read_committed)[name] or 0

    def _pause_after_empty_answer(self, position: int, end: int) -> None:
        """Pause before the next fetch. Raises: ClientError after several empty responses in a row,
        for as long as retries are allowed.
        """
        now = time.monotonic()
        self._empty_answers += 1
        if self._empty_answers == 1:
            self._empty_since = now
        patience_s = self._client.options.retry_timeout_ms / 1000
        if self._empty_answers > EMPTY_ANSWERS and now - self._empty_since >= patience_s:
            raise ClientError(
                f"reading {self._range.name}: no record is returned at offset {position}, "
                f"although the log continues to {end}"
            )
        time.sleep(self._client.options.retry_backoff_ms / 1000)

    def _position_after_loss(self, position: int) -> int:
        """Return the next position to read if the log no longer has the current one, or does not
        have it yet.
        """
        name, end_offset = self._range.name, self._range.end_offset
        earliest = self._client.offsets_at({name: EARLIEST}, read_committed=False)[name] or 0
        if earliest <= position:
            what = f"the log of {name} does not reach offset {position}, for the range"
            self._lost(what, position, end_offset, NEVER_THERE)
            return end_offset
        what = f"the log of {name} begins at {earliest} now, not at {position}, for the range"
        self._lost(what, position, min(earliest, end_offset), DELETED)
        return earliest

    def _lost(self, what: str, first: int, end: int, why: str) -> None:
        """Warn that offsets [first, end) are not read. Raises: DataLossError if the options require
        this.
        """
        whole = f"{what} [{self._range.start_offset}, {self._range.end_offset})"
        if self._fail_on_data_loss:
            raise DataLossError(not_read(whole, why))
        logger.warning(
            "barnabas: %s: offsets [%d, %d) of %s are not read (failOnDataLoss=false)",
            whole,
            first,
            end,
            self._range.name,
        )


def not_read(what: str, why: str = DELETED) -> str:
    """Return the error text about offsets that are not read. It mentions failOnDataLoss."""
    return f'{what}: {why}. Set .option("failOnDataLoss", "false") to read the remaining records.'


class _Constants:
    """The columns that are the same in all rows of a range. Each is kept, and made again only if
    more rows are needed.
    """

    def __init__(self, offset_range: OffsetRange) -> None:
        self._range = offset_range
        self._arrays: dict[str, pa.Array] = {}

    def column(self, name: str, count: int) -> pa.Array:
        """Return the column with the topic, the partition, or the usual timestampType, for a number
        of rows.
        """
        array = self._arrays.get(name)
        if array is None or len(array) < count:
            value = {"topic": self._range.topic, "partition": self._range.partition}.get(name, 0)
            array = self._arrays[name] = pa.repeat(pa.scalar(value, COLUMNS[name]), count)
        return array.slice(0, count)


def _arrow_batch(part: Columns, constants: _Constants, schema: pa.Schema) -> pa.RecordBatch:
    """The decoded columns as an Arrow batch, with the columns of the schema."""
    count = len(part.offset)
    arrays: list[pa.Array] = []
    for name in schema.names:
        if name in ("topic", "partition"):
            arrays.append(constants.column(name, count))
        elif name == "offset":
            arrays.append(pa.array(part.offset))
        elif name == "timestamp":
            microseconds = (
                np.clip(part.timestamp_ms, -LARGEST_TIMESTAMP_MS, LARGEST_TIMESTAMP_MS) * 1000
            )
            arrays.append(
                pa.Array.from_buffers(COLUMNS[name], count, [None, pa.py_buffer(microseconds)])
            )
        elif name == "timestampType":
            arrays.append(
                constants.column(name, count)
                if part.timestamp_type is None
                else pa.array(part.timestamp_type)
            )
        else:
            arrays.append(getattr(part, name))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
