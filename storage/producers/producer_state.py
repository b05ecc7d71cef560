"""The state of a log's producers: epochs, sequences, open transactions; and snapshots of it.

This module reads no clock or file. `check_batch` decides whether a batch may be written and changes
nothing. `on_batch` and `on_marker` update the state after the write and never raise an error, so
live appends and replay share their code.

A snapshot, big-endian, named `<offset>.snapshot`: the state before the batch at that offset.

    at  size  field                     one producer, 46 bytes:
     0   2    version (1)                0   8   producer_id
     2   4    crc: CRC-32C of the rest   8   2   producer_epoch
     6   4    producer count            10   4   last_sequence (-1: no batch)
    10        the producers             14   8   last_offset (-1: no batch)
                                        22   4   offset_delta: last minus first offset of it;
                                                 without a batch 0, or -1 if there may have
                                                 been some in the epoch (`MAY_HAVE_WRITTEN`)
                                        26   8   timestamp
                                        34   4   coordinator_epoch (-1: no marker yet)
                                        38   8   current_txn_first_offset (-1: none open)

It has only the last batch of each producer; earlier ones are read from the log when a batch is
repeated (`producer_window`). It has no checksums of batches (`repetition`).

Source: KIP-98 (idempotence, transactions), KIP-360 (epochs); the layout as Apache Kafka 3.9 writes
        it.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.checksum import crc32c
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.records import MAX_SEQUENCE, NO_PRODUCER_EPOCH, NO_SEQUENCE
from barnabas.storage.batch.validate import CheckBudget

if TYPE_CHECKING:
    from barnabas.storage.producers.producer_rows import ProducerRows

REMEMBERED_BATCHES = 5
MOST_REFUSED = 10_000  # the maximum size of `refused` in one log
FEWEST_PRODUCERS = 1000  # if a log has fewer producers, each snapshot packs all rows
SNAPSHOT_VERSION = 1
HEAD = struct.Struct(">hI")
COUNT = struct.Struct(">i")
PRODUCER = struct.Struct(">qhiqiqiq")
PRODUCER_SIZE = PRODUCER.size
NO_OFFSET = -1
MAX_PRODUCER_EPOCH = 2**15 - 1
NO_CRC = -1
MAY_HAVE_WRITTEN = -1  # a value of offset_delta, which Apache Kafka ignores if there is no batch
_HALF_THE_SEQUENCES = 1 << 30


class CorruptSnapshot(Exception):
    """The bytes are not a snapshot, or are damaged."""


@dataclass(slots=True)
class BatchMeta:
    """A written batch, with the values by which a duplicate is recognised.

    crc: the checksum of the batch as the client sent it; NO_CRC if it is unknown, as after a
    restart.
    """

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int
    crc: int = NO_CRC


@dataclass(slots=True)
class CompletedTxn:
    """A transaction that a marker has ended on this partition."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool
    last_stable_offset: int


class ActiveProducer(NamedTuple):
    """A producer of a partition, as in the response to DescribeProducers.

    A field is -1 if there is no batch yet, no marker yet, or no open transaction.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


class ProducerEntry:
    """One producer on one partition.

    batches: the last five of the current epoch, oldest first. has_whole_window: False while earlier
    batches may be in the log but not in `batches`. That is the case after a snapshot was loaded, or
    if a marker made the entry: the producer may have written before, and expired since. (A snapshot
    distinguishes this case from an epoch that began with a marker and has no batches.) seen_ms: the
    broker's clock at the last append (or at loading), by which the entry expires, since the
    timestamps of batches may have any value. window_search: where the search for earlier batches
    continues, and how many headers it has read; None if none is under way (`producer_window`). row:
    the index in `ProducerRows`; -1 if there is none.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "has_whole_window",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
        "row",
        "seen_ms",
        "txn_first_offset",
        "window_search",
    )

    def __init__(self, producer_id: int, producer_epoch: int, seen_ms: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.batches: list[BatchMeta] = []
        self.coordinator_epoch = -1
        self.txn_first_offset = NO_OFFSET
        self.last_timestamp = -1
        self.seen_ms = seen_ms
        self.has_whole_window = True
        self.window_search: tuple[int, int] | None = None
        self.row = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def find(self, first_sequence: int, last_sequence: int) -> BatchMeta | None:
        """The batch in `batches` that has exactly these sequence numbers."""
        for batch in self.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                return batch
        return None

    def packed(self) -> bytes:
        """The producer's row in a snapshot."""
        last = self.batches[-1] if self.batches else None
        return PRODUCER.pack(
            self.producer_id,
            self.producer_epoch,
            last.last_sequence if last else NO_SEQUENCE,
            last.last_offset if last else NO_OFFSET,
            last.last_offset - last.first_offset
            if last
            else 0
            if self.has_whole_window
            else MAY_HAVE_WRITTEN,
            self.last_timestamp,
            self.coordinator_epoch,
            self.txn_first_offset,
        )


def used_again(producer_id: int, base_sequence: int) -> KafkaError:
    """The error for a batch with sequence numbers that were used for another batch.

    The client dropped the other batch. The code was chosen by how clients react.
    UNKNOWN_PRODUCER_ID makes librdkafka, the Java client and franz-go abort the transaction, and
    kafka-python end it, and all of them request a new epoch, in which sequences restart. An
    idempotent librdkafka or Java producer sends the batch again in its next epoch.
    OUT_OF_ORDER_SEQUENCE_NUMBER is fatal to a librdkafka producer. With DUPLICATE_SEQUENCE_NUMBER
    all of them treat the batch as written. TRANSACTION_ABORTABLE makes them abort, but librdkafka
    keeps its epoch, and gets the error again.
    """
    return KafkaError(
        Code.UNKNOWN_PRODUCER_ID,
        f"producer {producer_id} used the sequence {base_sequence} for other records, which "
        "were written: abort the transaction, and begin a new epoch",
    )


class ProducerStateManager:
    """The producers of one log.

    open_txns: producer id -> first offset of its open transaction, in the order of the first
    offsets (a transaction begins at the end of the log, so the order of insertion is that of the
    offsets). end_offset: the state includes all batches below it. refused: (producer id, epoch) ->
    the first sequence of a rejected batch that may be sent again (`add_refused`). _rows: the packed
    rows of a snapshot, if there are many producers.
    """

    __slots__ = ("_rows", "end_offset", "open_txns", "producers", "refused")

    def __init__(self, end_offset: int = 0) -> None:
        self.producers: dict[int, ProducerEntry] = {}
        self.open_txns: dict[int, int] = {}
        self.refused: dict[tuple[int, int], int] = {}
        self.end_offset = end_offset
        self._rows: ProducerRows | None = None

    # --- reading ---------------------------------------------------------------------------------

    def first_open_offset(self) -> int | None:
        """The first offset of the earliest open transaction; None if none is open."""
        for offset in self.open_txns.values():
            return offset
        return None

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the producer has an open transaction in that epoch, in which case its batches are
        verified.
        """
        if producer_id not in self.open_txns:
            return False
        return self.producers[producer_id].producer_epoch == producer_epoch

    def has_ongoing_transaction_of(self, producer_id: int) -> bool:
        """Whether the producer has an open transaction, in any epoch."""
        return producer_id in self.open_txns

    def first_offset_of_transaction(self, producer_id: int) -> int | None:
        """The first offset of the producer's open transaction; None if it has none."""
        return self.open_txns.get(producer_id)

    def extent_of_transaction(self, producer_id: int) -> tuple[int, int, int] | None:
        """(first offset, end offset, time of the last append) of the producer's open transaction;
        None if it has none. The end is after its last record; the time is the broker's clock.
        """
        first_offset = self.open_txns.get(producer_id)
        if first_offset is None:
            return None
        entry = self.producers[producer_id]
        batches = entry.batches
        # If the entry has no batch, any batch up to the end of the log may belong to the
        # transaction. Only a marker of another broker can cause this.
        end_offset = batches[-1].last_offset + 1 if batches else self.end_offset
        return first_offset, end_offset, entry.seen_ms

    def open_transactions(self) -> list[int]:
        """The producers with an open transaction, in the order in which the transactions began."""
        return list(self.open_txns)

    def producer_epoch_of(self, producer_id: int) -> int:
        """The producer's last epoch; -1 if the producer is unknown."""
        entry = self.producers.get(producer_id)
        return -1 if entry is None else entry.producer_epoch

    def has_batch_of(self, producer_id: int) -> bool:
        """Whether a batch of the producer's last epoch is known. If so, its next sequence number is
        known too.
        """
        entry = self.producers.get(producer_id)
        return entry is not None and bool(entry.batches)

    def coordinator_epoch_of(self, producer_id: int) -> int:
        """The coordinator epoch of the producer's last marker; 0 if it has none."""
        entry = self.producers.get(producer_id)
        return 0 if entry is None else max(entry.coordinator_epoch, 0)

    def epochs_of_decision(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> tuple[int, int] | None:
        """(producer epoch, coordinator epoch) of the marker for a coordinator's decision.

        An open transaction can always be ended. There is no other coordinator, so a higher epoch in
        the partition was caused by a client (WriteTxnMarkers accepts any coordinator epoch, a batch
        any producer epoch), and the marker gets that epoch. Apache Kafka does not write such a
        marker, and the transaction hangs.

        Gives:  None if no transaction is open, and the producer has a later epoch in this
                partition.
        """
        entry = self.producers.get(producer_id)
        if entry is None:
            return producer_epoch, coordinator_epoch
        if producer_epoch < entry.producer_epoch:
            if entry.txn_first_offset < 0:
                return None
            producer_epoch = entry.producer_epoch
        return producer_epoch, max(coordinator_epoch, entry.coordinator_epoch)

    def active_producers(self) -> list[ActiveProducer]:
        """The known producers, as KIP-664 describes them."""
        return list(self.each_active_producer())

    def each_active_producer(self) -> Iterator[ActiveProducer]:
        """Iterate over the result of `active_producers`. Appends may happen in between."""
        for entry in list(self.producers.values()):
            yield ActiveProducer(
                entry.producer_id,
                entry.producer_epoch,
                entry.last_sequence,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.txn_first_offset,
            )

    def check_batch(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        last_sequence: int,
        transactional: bool,
        restore_window: Callable[..., None],
        at_once: CheckBudget | None = None,
    ) -> BatchMeta | None:
        """Check that a client's batch is the next one. One long function, since calls cost time.

        Takes:  restore_window, which adds the entry's earlier batches to it; called if they are
                needed and may be only in the log; at_once, its limits on the loop.
        Gives:  None if the batch has to be appended, otherwise the earlier batch that it repeats.
        Raises: what restore_window raises;
                KafkaError INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE;
                UNKNOWN_PRODUCER_ID for a transactional batch with used sequence numbers, unless it
                repeats a batch of the same transaction, see `used_again`.
        Source: KIP-98; an unknown producer may begin with any sequence, a new epoch must begin with
                0. If a producer is known only by the marker of a transaction that has no batch in
                this partition, it may have expired before, and may also begin with any sequence:
                Apache Kafka rejects that, which is fatal to a librdkafka producer.
        """
        entry = self.producers.get(producer_id)
        if entry is None:
            return None
        epoch = entry.producer_epoch
        batches = entry.batches
        if producer_epoch == epoch:
            last = batches[-1].last_sequence if batches else NO_SEQUENCE
            if base_sequence != last + 1 and not (base_sequence == 0 and last == MAX_SEQUENCE):
                if not batches and not entry.has_whole_window:
                    return None
                duplicate = entry.find(base_sequence, last_sequence)
                if duplicate is None and not entry.has_whole_window:
                    if at_once is None:
                        restore_window(entry)
                    else:
                        restore_window(entry, at_once)
                    duplicate = entry.find(base_sequence, last_sequence)
                if duplicate is not None:
                    if transactional and not 0 <= entry.txn_first_offset <= duplicate.first_offset:
                        raise used_again(producer_id, base_sequence)
                    return duplicate
                if transactional and (last - base_sequence) & MAX_SEQUENCE < _HALF_THE_SEQUENCES:
                    raise used_again(producer_id, base_sequence)
                raise KafkaError(
                    Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer_id} sent the sequence {base_sequence}, its last was "
                    f"{last}",
                )
        elif producer_epoch < epoch:
            raise KafkaError(
                Code.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has the epoch {epoch}, the batch {producer_epoch}",
            )
        elif base_sequence != 0 and epoch != NO_PRODUCER_EPOCH:
            raise KafkaError(
                Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} begins its epoch {producer_epoch} with the sequence "
                f"{base_sequence}",
            )
        if entry.txn_first_offset >= 0 and not transactional:
            raise KafkaError(
                Code.INVALID_TXN_STATE,
                f"producer {producer_id} has an open transaction, and the batch is not "
                "transactional",
            )
        return None

    def check_overtaking(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Reject a batch while an earlier, rejected batch of its producer has to be sent again.

        Once the earlier batch was sent again, later batches are accepted.

        Raises: KafkaError OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        first_refused = self.refused.get((producer_id, producer_epoch))
        if first_refused is None:
            return
        if base_sequence > first_refused:
            raise KafkaError(
                Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
                "an earlier batch of this producer was refused and has not been sent again yet",
            )
        del self.refused[producer_id, producer_epoch]

    def check_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        transaction_version: int = 0,
    ) -> None:
        """Check a marker. Raises: KafkaError INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED.

        A marker of version 2 has a later epoch than its transaction (KIP-1228). One with the same
        epoch, while no transaction is open, is a repeated marker.
        """
        entry = self.producers.get(producer_id)
        if entry is None:
            return
        is_of_next = (
            transaction_version >= 2
            and producer_epoch == entry.producer_epoch < MAX_PRODUCER_EPOCH
            and entry.txn_first_offset >= 0
        )
        if producer_epoch < entry.producer_epoch or is_of_next:
            raise KafkaError(
                Code.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has the epoch {entry.producer_epoch}, the marker "
                f"{producer_epoch}",
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                Code.TRANSACTION_COORDINATOR_FENCED,
                f"a coordinator of epoch {entry.coordinator_epoch} has ended transactions here, "
                f"this one has {coordinator_epoch}",
            )

    # --- change ----------------------------------------------------------------------------------

    def add_refused(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Remember an idempotent producer's batch that was rejected.

        It was rejected because the disk was full, or the broker was not the leader. Later batches
        of the producer, which are already in flight, must not overtake the rejected one: a log
        accepts the first batch of an unknown producer with any sequence. A later batch would leave
        a gap in the sequences, and the rejected one, when it is sent again, would be permanently
        out of order. A duplicate of a written batch may arrive late, over a broken connection; it
        is not remembered, since no client sends it again.
        """
        entry = self.producers.get(producer_id)
        if entry is not None and entry.producer_epoch == producer_epoch and entry.batches:
            last = entry.batches[-1].last_sequence
            if (last - base_sequence) & MAX_SEQUENCE < _HALF_THE_SEQUENCES:
                return
        key = producer_id, producer_epoch
        if producer_id >= 0 and (key in self.refused or len(self.refused) < MOST_REFUSED):
            self.refused[key] = min(base_sequence, self.refused.get(key, base_sequence))

    def on_batch(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        last_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
        transactional: bool,
        now_ms: int,
        crc: int = NO_CRC,
    ) -> None:
        """Update the state for a written batch. Takes: crc, that of the batch as its client sent
        it.

        Its parameters are single fields, since it is called with every append, and an object would
        cost time.
        """
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self._add(producer_id, producer_epoch, now_ms)
        elif entry.producer_epoch != producer_epoch or not entry.batches:
            entry.producer_epoch = producer_epoch
            entry.batches = []
            entry.has_whole_window = True
        batches = entry.batches
        batches.append(
            BatchMeta(base_sequence, last_sequence, first_offset, last_offset, timestamp, crc)
        )
        if len(batches) > REMEMBERED_BATCHES:
            del batches[0]
            entry.has_whole_window = True
        entry.last_timestamp = timestamp
        entry.seen_ms = now_ms
        if transactional and entry.txn_first_offset < 0:
            entry.txn_first_offset = first_offset
            self.open_txns[producer_id] = first_offset
        self.end_offset = last_offset + 1
        if self._rows is not None:
            self._rows.note(entry)

    def _add(self, producer_id: int, producer_epoch: int, now_ms: int) -> ProducerEntry:
        """Add a producer. If there are many, their rows are kept encoded, so that a snapshot takes
        little time.
        """
        entry = self.producers[producer_id] = ProducerEntry(producer_id, producer_epoch, now_ms)
        if self._rows is None and len(self.producers) >= FEWEST_PRODUCERS:
            self._rows = _rows_of(self.producers)
        return entry

    def on_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        offset: int,
        timestamp: int,
        now_ms: int,
    ) -> CompletedTxn | None:
        """Update the state for a written marker.

        Gives:  the transaction that the marker ended; None if the transaction had no data in this
                log.
        """
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self._add(producer_id, producer_epoch, now_ms)
            entry.has_whole_window = False
        elif entry.producer_epoch != producer_epoch:
            entry.producer_epoch = producer_epoch
            entry.batches = []
            entry.has_whole_window = True
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        entry.seen_ms = now_ms
        self.end_offset = offset + 1
        first_offset = entry.txn_first_offset
        entry.txn_first_offset = NO_OFFSET
        if self._rows is not None:
            self._rows.note(entry)
        if first_offset < 0:
            return None
        del self.open_txns[producer_id]
        return CompletedTxn(
            producer_id,
            first_offset,
            offset,
            not commit,
            next(iter(self.open_txns.values()), offset + 1),
        )

    def expire(self, now_ms: int, expiration_ms: int, most: int = sys.maxsize) -> int:
        """Remove producers that were idle for `expiration_ms` and have no open transaction.

        Takes:  most, the maximum number in one call.
        Gives:  the number of removed producers.
        """
        all_expired = (
            producer_id
            for producer_id, entry in self.producers.items()
            if entry.txn_first_offset < 0 and now_ms - entry.seen_ms >= expiration_ms
        )
        expired = list(islice(all_expired, most))
        rows = self._rows
        if len(self.producers) - len(expired) < FEWEST_PRODUCERS:
            rows = self._rows = None
        for producer_id in expired:
            entry = self.producers.pop(producer_id)
            if rows is not None:
                rows.remove(entry)
        return len(expired)

    # --- snapshots -------------------------------------------------------------------------------

    def encode_snapshot(self) -> bytes:
        """Encode the current state as a snapshot, in the format in the module's docstring."""
        if self._rows is not None:
            return self._rows.encode()
        rows = [COUNT.pack(len(self.producers))]
        rows += [entry.packed() for entry in self.producers.values()]
        body = b"".join(rows)
        return HEAD.pack(SNAPSHOT_VERSION, crc32c(body)) + body

    @classmethod
    def decode_snapshot(cls, data: bytes, offset: int, now_ms: int) -> ProducerStateManager:
        """Decode the state before `offset`. Raises: CorruptSnapshot."""
        if len(data) < HEAD.size + COUNT.size:
            raise CorruptSnapshot(f"{len(data)} bytes are too few")
        version, crc = HEAD.unpack_from(data)
        body = data[HEAD.size :]
        if version != SNAPSHOT_VERSION:
            raise CorruptSnapshot(f"its version is {version}, not {SNAPSHOT_VERSION}")
        if crc32c(body) != crc:
            raise CorruptSnapshot("its checksum is wrong")
        (count,) = COUNT.unpack_from(body)
        if len(body) != COUNT.size + count * PRODUCER_SIZE:
            raise CorruptSnapshot(f"{count} producers in {len(body)} bytes")
        state = cls(offset)
        producers, still_open = state.producers, []
        for row in PRODUCER.iter_unpack(body[COUNT.size :]):
            (
                producer_id,
                epoch,
                last_sequence,
                last_offset,
                delta,
                timestamp,
                coordinator_epoch,
                txn_first,
            ) = row
            entry = ProducerEntry(producer_id, epoch, now_ms)
            entry.has_whole_window = last_offset < 0 and delta != MAY_HAVE_WRITTEN
            if last_offset >= 0:
                first_sequence = (
                    NO_SEQUENCE if last_sequence < 0 else (last_sequence - delta) & MAX_SEQUENCE
                )
                entry.batches = [
                    BatchMeta(
                        first_sequence, last_sequence, last_offset - delta, last_offset, timestamp
                    )
                ]
            entry.last_timestamp = timestamp
            entry.coordinator_epoch = coordinator_epoch
            if txn_first >= 0:
                entry.txn_first_offset = txn_first
                still_open.append((txn_first, producer_id))
            producers[producer_id] = entry
        state.open_txns = {
            producer_id: first_offset for first_offset, producer_id in sorted(still_open)
        }
        if FEWEST_PRODUCERS <= count == len(producers):
            state._rows = _rows_of(producers, data)
        return state


def _rows_of(producers: dict[int, ProducerEntry], snapshot: bytes = b"") -> ProducerRows:
    """The packed rows of many producers. The module for them is loaded only if a log needs it."""
    from barnabas.storage.producers.producer_rows import ProducerRows

    return ProducerRows(producers, snapshot)
