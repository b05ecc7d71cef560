"""Reading one range of one partition: fetch, choose batches, decode, and make Spark's columns. What
tasks do; PySpark is not needed here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from barnabas.protocol.errors import Code, KafkaError
from barnabas.spark_connector.client import (
    Client,
    ClientError,
    FetchedPartition,
    RefusedError,
    UnknownTopicError,
)
from barnabas.spark_connector.decoding import HEADERS_TYPE, Columns, decode
from barnabas.spark_connector.numba_loops import AUTO, decoder_choice
from barnabas.spark_connector.offsets import EARLIEST, LATEST, OffsetRange
from barnabas.spark_connector.open_transactions import Beyond, Patience
from barnabas.spark_connector.options import MAX_INT, OpenTransactions
from barnabas.spark_connector.record_batches import (
    Selection,
    first_record_batch_size,
    select_record_batches,
)
from barnabas.spark_connector.user_messages import logger

EMPTY_ANSWERS = (
    20  # in a row, below the end of the log, that a reader takes at least before it gives up
)
LARGEST_TIMESTAMP_MS = (
    (1 << 63) - 1
) // 1000  # that the column has room for; a producer may give any int64

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


DELETED = "records were deleted or the topic was made anew"
NOT_THE_SAME = "records of the topic that was deleted are lost as far as they were not read"
NEVER_THERE = "the topic was made anew, or offsets were given that are not there yet"


class DataLossError(Exception):
    """Records of the range are no longer in the log, and failOnDataLoss is true."""


class DamageError(Exception):
    """Records are there and cannot be read."""


def read_range(
    client: Client,
    wanted: OffsetRange,
    columns: Sequence[str],
    *,
    read_committed: bool,
    fail_on_data_loss: bool,
    open_transactions: OpenTransactions = OpenTransactions(),  # noqa: B008 (frozen)
    decoder: str = AUTO,
    topic_id: str = "",
) -> Iterator[pa.RecordBatch]:
    """The records of the range, in order; of aborted transactions none where read_committed.

    The end of the range is a position, not a record: a range that ends in control records, in
    aborted records or in a gap that compaction left is finished when the reader is past it.
    Takes:  columns, names from COLUMNS in the order in which they are to come; open_transactions,
            what to do where the range goes on beyond one. Who plans a range sees to it that it does
            not; but the last stable offset can be lower after a broker lost power; decoder, the
            option's value; topic_id, under which the range was planned: nothing is read of a topic
            that has another id.
    Raises: DataLossError; OpenTransactionError; ClientError; OptionError; DamageError.
    """
    schema = pa.schema([pa.field(name, COLUMNS[name]) for name in columns])
    if topic_id and _is_renewed(client, wanted, topic_id):
        what = f"{made_again(wanted.topic)}, and offsets of the former are in the range"
        _lost(what, wanted, wanted.start_offset, wanted.end_offset, fail_on_data_loss, NOT_THE_SAME)
        return
    try:
        for fetched, selection, position in _selections(
            client, wanted, read_committed, fail_on_data_loss, open_transactions
        ):
            parts = decode(
                fetched.records,
                selection.record_batches,
                start_offset=position,
                end_offset=wanted.end_offset,
                key="key" in columns,
                value="value" in columns,
                headers="headers" in columns,
                loops=decoder_choice.loops_for(
                    decoder, selection, remaining=wanted.end_offset - selection.next_offset
                ),
            )
            for part in parts:
                yield _arrow_batch(part, wanted, schema)
    except KafkaError as error:
        raise DamageError(
            f"{wanted.name} cannot be read, for the range [{wanted.start_offset}, "
            f"{wanted.end_offset}): {error}; "
            "what is before and behind it can be, with startingOffsets and endingOffsets"
        ) from error


def made_again(topic: str) -> str:
    """What is told of a topic that has another id than before."""
    return f"topic {topic!r} was deleted and made again, since it has another id"


def _is_renewed(client: Client, wanted: OffsetRange, topic_id: str) -> bool:
    """Costs no request of its own: the first fetch would ask who leads the partition."""
    client.partitions_of([wanted.topic], missing_ok=True)
    return bool(client.renewed({wanted.topic: topic_id}))


def _selections(
    client: Client,
    wanted: OffsetRange,
    read_committed: bool,
    fail_on_data_loss: bool,
    open_transactions: OpenTransactions,
) -> Iterator[tuple[FetchedPartition, Selection, int]]:
    """Each fetch with what was chosen of it, and the position it began at. The next one is under
    way while the caller has this one.
    """
    max_bytes = client.options.fetch_max_bytes
    standstill = _Standstill(client, wanted, read_committed, fail_on_data_loss, open_transactions)

    def start(position: int) -> Callable[[], FetchedPartition]:
        return client.start_fetch(
            wanted.name, position, read_committed=read_committed, max_bytes=max_bytes
        )

    position = wanted.start_offset
    pending = start(position)
    try:
        while True:
            try:
                fetched = pending()
            except RefusedError as error:
                if error.code != Code.OFFSET_OUT_OF_RANGE:
                    raise
                position = _after_loss(client, wanted, position, fail_on_data_loss)
                if position >= wanted.end_offset:
                    return
                pending = start(position)
                continue
            selection = select_record_batches(
                fetched.records,
                fetched.aborted_transactions if read_committed else None,
                start_offset=position,
                end_offset=wanted.end_offset,
                check_crc=client.options.check_crcs,
            )
            began, position = position, selection.next_offset
            if position == began:
                max_bytes = min(
                    max(max_bytes, first_record_batch_size(fetched.records) or 0), MAX_INT
                )
                if not standstill.look_again(fetched, position):
                    return
                pending = start(position)
                continue
            standstill.is_over()
            last = position >= wanted.end_offset
            if not last:
                pending = start(position)
            if selection.record_batches:
                yield fetched, selection, began
            if last:
                return
    except UnknownTopicError:
        what = f"{wanted.name} is gone, for the range"
        _lost(what, wanted, position, wanted.end_offset, fail_on_data_loss, "the topic was deleted")


class _Standstill:
    """Decides what it means that a fetch brought nothing new, and whether another one may."""

    def __init__(
        self,
        client: Client,
        wanted: OffsetRange,
        read_committed: bool,
        fail_on_data_loss: bool,
        open_transactions: OpenTransactions,
    ) -> None:
        self._client, self._wanted = client, wanted
        self._read_committed, self._fail_on_data_loss = read_committed, fail_on_data_loss
        self._patience = Patience(open_transactions)
        self._answers = 0
        self._since = 0.0

    def is_over(self) -> None:
        """A fetch brought something."""
        self._answers = 0

    def look_again(self, fetched: FetchedPartition, position: int) -> bool:
        """True after a pause; False where the range ends at the position, which was told.

        Raises: DataLossError, OpenTransactionError; ClientError where the broker has had its time,
                and says that there is more.
        """
        wanted, name = self._wanted, self._wanted.name
        end = fetched.last_stable_offset if self._read_committed else fetched.high_watermark
        if position >= end:
            # The ends that a new leader knows of lag behind at first, and its fetches tell them all
            # the same. ListOffsets does not (KIP-207).
            end = self._client.offsets_at({name: LATEST}, read_committed=False)[name] or 0
            if position >= end:
                what = f"the log of {name} ends at {end}, before the end of the range"
                _lost(
                    what, wanted, position, wanted.end_offset, self._fail_on_data_loss, NEVER_THERE
                )
                return False
            # Asked for last: a log that has grown in between has no open transaction because of
            # that.
            stable = (
                self._client.offsets_at({name: LATEST}, read_committed=True)[name] or 0
                if self._read_committed
                else end
            )
            if position >= stable:
                return self._patience.look_again({name: Beyond(wanted.end_offset, stable)})
        now = time.monotonic()
        self._answers += 1
        if self._answers == 1:
            self._since = now
        if (
            self._answers > EMPTY_ANSWERS
            and now - self._since >= self._client.options.retry_timeout_ms / 1000
        ):
            raise ClientError(
                f"reading {name}: nothing comes at offset {position} although the log goes on to "
                f"{end}"
            )
        time.sleep(self._client.options.retry_backoff_ms / 1000)
        return True


def _after_loss(client: Client, wanted: OffsetRange, position: int, fail_on_data_loss: bool) -> int:
    """Where to go on when the log does not have the position any more (or not yet)."""
    earliest = client.offsets_at({wanted.name: EARLIEST}, read_committed=False)[wanted.name] or 0
    if earliest <= position:
        what = f"the log of {wanted.name} does not reach offset {position}, for the range"
        _lost(what, wanted, position, wanted.end_offset, fail_on_data_loss, NEVER_THERE)
        return wanted.end_offset
    what = f"the log of {wanted.name} begins at {earliest} by now, not at {position}, for the range"
    _lost(what, wanted, position, min(earliest, wanted.end_offset), fail_on_data_loss, DELETED)
    return earliest


def not_read(what: str, why: str = DELETED) -> str:
    """The sentence that failOnDataLoss promises."""
    return f'{what}: {why}. Set .option("failOnDataLoss", "false") to read what is there.'


def _lost(
    what: str, wanted: OffsetRange, first: int, end: int, fail_on_data_loss: bool, why: str
) -> None:
    whole = f"{what} [{wanted.start_offset}, {wanted.end_offset})"
    if fail_on_data_loss:
        raise DataLossError(not_read(whole, why))
    logger.warning(
        "barnabas: %s: offsets [%d, %d) of %s are not read (failOnDataLoss=false)",
        whole,
        first,
        end,
        wanted.name,
    )


def _arrow_batch(part: Columns, wanted: OffsetRange, schema: pa.Schema) -> pa.RecordBatch:
    count = len(part.offset)
    arrays: list[pa.Array] = []
    for name in schema.names:
        if name == "topic":
            arrays.append(pa.repeat(pa.scalar(wanted.topic, pa.string()), count))
        elif name == "partition":
            arrays.append(pa.array(np.full(count, wanted.partition, np.int32)))
        elif name == "offset":
            arrays.append(pa.array(part.offset))
        elif name == "timestamp":
            arrays.append(
                pa.array(
                    np.clip(part.timestamp_ms, -LARGEST_TIMESTAMP_MS, LARGEST_TIMESTAMP_MS) * 1000
                ).view(COLUMNS["timestamp"])
            )
        elif name == "timestampType":
            arrays.append(pa.array(part.timestamp_type))
        else:
            arrays.append(getattr(part, name))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
