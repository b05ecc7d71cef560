"""Reading one range of one partition: fetch, choose batches, decode, and make Spark's columns. What tasks do; PySpark is not needed here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from protocol.errors import Code
from spark_connector.batches import Selection, first_batch_size, select_batches
from spark_connector.client import Client, ClientError, Fetched, RefusedError
from spark_connector.compiled import AUTO, choice
from spark_connector.decoding import HEADERS_TYPE, Columns, decode
from spark_connector.offsets import EARLIEST, OffsetRange
from spark_connector.options import OpenTransactions
from spark_connector.waiting import Beyond, Patience, logger

EMPTY_ANSWERS = 20  # in a row, below the end of the log, before a reader gives up

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


class DataLossError(Exception):
    """Records of the range are no longer in the log, and failOnDataLoss is true."""


def read_range(
    client: Client,
    wanted: OffsetRange,
    columns: Sequence[str],
    *,
    read_committed: bool,
    fail_on_data_loss: bool,
    open_transactions: OpenTransactions = OpenTransactions(),  # noqa: B008 (frozen)
    decoder: str = AUTO,
) -> Iterator[pa.RecordBatch]:
    """The records of the range, in order; of aborted transactions none where read_committed.

    The end of the range is a position, not a record: a range that ends in control records, in aborted records or in a gap that compaction
    left is finished when the reader is past it.
    Takes:  columns, names from COLUMNS in the order in which they are to come; open_transactions, what to do where the range goes on beyond
            one. Who plans a range sees to it that it does not; but the last stable offset can be lower after a broker lost power; decoder,
            the option's value.
    Raises: DataLossError; OpenTransactionError; ClientError; OptionError; KafkaError where a batch is damaged.
    """
    schema = pa.schema([pa.field(name, COLUMNS[name]) for name in columns])
    for fetched, selection, position in _selections(client, wanted, read_committed, fail_on_data_loss, open_transactions):
        parts = decode(
            fetched.records,
            selection.batches,
            start_offset=position,
            end_offset=wanted.end_offset,
            key="key" in columns,
            value="value" in columns,
            headers="headers" in columns,
            compiled=choice.kernels(decoder, selection, remaining=wanted.end_offset - selection.next_offset),
        )
        for part in parts:
            yield _record_batch(part, wanted, schema)


def _selections(
    client: Client, wanted: OffsetRange, read_committed: bool, fail_on_data_loss: bool, open_transactions: OpenTransactions
) -> Iterator[tuple[Fetched, Selection, int]]:
    """Each fetch with what was chosen of it, and the position it began at. The next one is under way while the caller has this one."""
    max_bytes = client.options.fetch_max_bytes
    empty_answers = 0
    patience = Patience(open_transactions)

    def start(position: int) -> Callable[[], Fetched]:
        return client.start_fetch(wanted.name, position, read_committed=read_committed, max_bytes=max_bytes)

    position = wanted.start_offset
    pending = start(position)
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
        selection = select_batches(
            fetched.records,
            fetched.aborted if read_committed else None,
            start_offset=position,
            end_offset=wanted.end_offset,
            check_crc=client.options.check_crcs,
        )
        began, position = position, selection.next_offset
        if not selection.whole_batches:
            end = fetched.last_stable_offset if read_committed else fetched.high_watermark
            if read_committed and position >= end and fetched.high_watermark > end:
                if not patience.look_again({wanted.name: Beyond(wanted.end_offset, end)}):
                    return
                pending = start(position)
                continue
            if position >= end:
                what = f"the log of {wanted.name} ends at {end}, before the end of the range"
                _lost(what, wanted, end, wanted.end_offset, fail_on_data_loss, beyond=True)
                return
            empty_answers += 1
            if empty_answers > EMPTY_ANSWERS:
                raise ClientError(f"reading {wanted.name}: nothing comes at offset {position} although the log goes on to {end}")
            max_bytes = max(max_bytes, first_batch_size(fetched.records) or 0)
            pending = start(position)
            continue
        empty_answers = 0
        last = position >= wanted.end_offset
        if not last:
            pending = start(position)
        if selection.batches:
            yield fetched, selection, began
        if last:
            return


def _after_loss(client: Client, wanted: OffsetRange, position: int, fail_on_data_loss: bool) -> int:
    """Where to go on when the log does not have the position any more (or not yet)."""
    earliest = client.offsets_at({wanted.name: EARLIEST}, read_committed=False)[wanted.name] or 0
    if earliest <= position:
        what = f"the log of {wanted.name} does not reach offset {position}, for the range"
        _lost(what, wanted, position, wanted.end_offset, fail_on_data_loss, beyond=True)
        return wanted.end_offset
    what = f"the log of {wanted.name} begins at {earliest} by now, not at {position}, for the range"
    _lost(what, wanted, position, min(earliest, wanted.end_offset), fail_on_data_loss, beyond=False)
    return earliest


def not_read(what: str, why: str = "records were deleted or the topic was made anew") -> str:
    """The sentence that failOnDataLoss promises."""
    return f'{what}: {why}. Set .option("failOnDataLoss", "false") to read what is there.'


def _lost(what: str, wanted: OffsetRange, first: int, end: int, fail_on_data_loss: bool, *, beyond: bool) -> None:
    """Where `beyond`, offsets are missing at the end of the log, where there may never have been any."""
    whole = f"{what} [{wanted.start_offset}, {wanted.end_offset})"
    if fail_on_data_loss:
        raise DataLossError(
            not_read(whole, "the topic was made anew, or offsets were given that are not there yet") if beyond else not_read(whole)
        )
    logger.warning("barnabas: %s: offsets [%d, %d) of %s are not read (failOnDataLoss=false)", whole, first, end, wanted.name)


def _record_batch(part: Columns, wanted: OffsetRange, schema: pa.Schema) -> pa.RecordBatch:
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
            arrays.append(pa.array(part.timestamp_ms * 1000).view(COLUMNS["timestamp"]))
        elif name == "timestampType":
            arrays.append(pa.array(part.timestamp_type))
        else:
            arrays.append(getattr(part, name))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
