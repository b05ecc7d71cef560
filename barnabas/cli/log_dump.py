"""`barnabas log dump`: a file of a data directory as rows.

The name of a file identifies its kind, as with Kafka. Every kind of `storage/files/data_files.py`
has a reader in `_READERS`, and so have the files of Kafka's own metadata. Internal topics are
recognized by the directory's name, and their records are shown decoded.
"""

from __future__ import annotations

import os
import re
import struct
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from barnabas.cli.errors import CommandError
from barnabas.cli.log_batches import BadPlace, StoredBatch, read_batches
from barnabas.cli.records import json_headers, to_json
from barnabas.coordinator.groups import group_records
from barnabas.coordinator.groups.group_records import GroupKey
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.coordinator.transactions import transaction_records
from barnabas.protocol.compression import Codec, DecompressionError
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.records import NO_PRODUCER_ID, Record, decode_marker, records_of
from barnabas.protocol.records import has_right_crc as is_right
from barnabas.storage.files import offset_index, time_index
from barnabas.storage.files.checkpoints import CorruptCheckpoint
from barnabas.storage.files.data_files import finished_name
from barnabas.storage.files.flush_journal import frames_in
from barnabas.storage.files.leader_epochs import highest_epoch_in
from barnabas.storage.files.txn_index import TxnIndex
from barnabas.storage.producers.producer_state import CorruptSnapshot, ProducerStateManager

Row = dict[str, Any]
_OFFSET_ENTRY, _TIME_ENTRY = struct.Struct(">II"), struct.Struct(">qI")


def topic_of(path: str) -> str:
    """The topic of a file, from the name of the partition's directory that contains it."""
    directory = os.path.basename(os.path.dirname(os.path.abspath(path)))
    return directory.rpartition("-")[0] or directory


def rows_of(path: str, *, records: bool) -> Iterator[Row]:
    """The rows of a file.

    Takes:  records, whether to decode a segment's records.
    Raises: CommandError for an unknown file, or a file that cannot be read.
    """
    name = finished_name(os.path.basename(path))
    reader = _reader_of(name)
    try:
        if reader is segment_rows:
            yield from segment_rows(path, records=records)
            return
        with open(path, "rb") as file:
            data = file.read()
        yield from reader(name, data)
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} cannot be read: it is not text") from error
    except (CorruptCheckpoint, CorruptSnapshot, ValueError) as error:
        raise CommandError(f"{path} cannot be read: {error}") from error


def _reader_of(name: str) -> Callable[..., Iterator[Row]]:
    """The function that reads a file of that name. Raises: CommandError."""
    for pattern, reader in _READERS:
        if re.fullmatch(pattern, name):
            return reader
    raise CommandError(
        f"{name} is not a file of a data directory: use .log, .index, .timeindex, .txnindex, "
        ".snapshot, .checkpoint, *-checkpoint, *.journal, segments.manifest, meta.properties or "
        "barnabas-*"
    )


# --- segments -----------------------------------------------------------------------------------


def segment_rows(path: str, *, records: bool, position: int = 0) -> Iterator[Row]:
    """A row for each batch, with its records if they are requested."""
    topic = topic_of(path)
    for batch in read_batches(path, position):
        if isinstance(batch, BadPlace):
            yield {"position": batch.position, "error": batch.why}
            return
        row = _batch_row(batch)
        if records and row["crc_is_right"]:
            try:
                row["records"] = [
                    _record_row(topic, record, row["kind"])
                    for record in (records_of(batch.data) if batch.header.record_count else ())
                ]
            except (KafkaError, DecompressionError) as error:
                row["error"] = str(error)
        yield row


def _batch_row(batch: StoredBatch) -> Row:
    """The row of a batch, from its header."""
    header = batch.header
    try:
        codec = Codec(header.codec).name.lower()
    except ValueError:
        codec = str(header.codec)
    kind = "data"
    if header.is_control:
        kind = "control"
        try:
            kind = "commit" if decode_marker(batch.data).commit else "abort"
        except (KafkaError, DecompressionError, IndexError):
            pass  # another kind of control record, or a control batch that compaction has emptied
    elif header.is_transactional:
        kind = "transactional"
    return {
        "position": batch.position,
        "size_bytes": len(batch.data),
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "record_count": header.record_count,
        "kind": kind,
        "codec": codec,
        "leader_epoch": header.leader_epoch,
        "max_timestamp_ms": header.max_timestamp,
        "producer_id": None if header.producer_id == NO_PRODUCER_ID else header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "crc_is_right": is_right(batch.data, header),
    }


def _record_row(topic: str, record: Record, kind: str) -> Row:
    """The row of a record. Takes: kind, the kind of its batch."""
    row: Row = {"offset": record.offset, "timestamp_ms": record.timestamp}
    if kind in ("commit", "abort"):
        return {**row, "kind": "marker", "marker": kind}
    readable = readable_record(topic, record.key, record.value)
    if readable is not None:
        return {**row, **readable}
    return {
        **row,
        "key": to_json(record.key),
        "value": to_json(record.value),
        "headers": json_headers(record.headers),
    }


def readable_record(topic: str, key: bytes | None, value: bytes | None) -> Row | None:
    """The fields of a record of an internal topic; None for other topics and unknown record
    types.
    """
    if key is None or topic not in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        return None
    try:
        if topic == TRANSACTIONS_TOPIC:
            return _transaction_row(key, value)
        return _group_row(key, value)
    except (ValueError, struct.error, IndexError) as error:
        return {"key": to_json(key), "value": to_json(value), "error": str(error)}


def _transaction_row(key: bytes, value: bytes | None) -> Row | None:
    """The fields of a record of __transaction_state; None for an unknown key."""
    name = transaction_records.decode_key(key)
    if name is None:
        return None
    if value is None:
        return {"kind": "transaction", "transactional_id": name, "deleted": True}
    transaction = transaction_records.decode_value(name, value)
    return {
        "kind": "transaction",
        "transactional_id": name,
        "state": transaction.state.value,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "timeout_ms": transaction.timeout_ms,
        "partitions": [str(partition) for partition in transaction.partitions],
        "start_time_ms": transaction.start_ms,
        "last_update_time_ms": transaction.last_update_ms,
    }


def _group_row(key: bytes, value: bytes | None) -> Row | None:
    """The fields of a record of __consumer_offsets, of a group or an offset; None for an unknown
    key.
    """
    whose = group_records.decode_key(key)
    if whose is None:
        return None
    if isinstance(whose, GroupKey):
        row: Row = {"kind": "group", "group": whose.group_id}
        if value is None:
            return {**row, "deleted": True}
        group = group_records.decode_group(value)
        return {
            **row,
            "protocol_type": group.protocol_type,
            "generation": group.generation,
            "assignor": group.protocol_name,
            "leader": group.leader_id,
            "members": [
                {
                    "member_id": member.member_id,
                    "client_id": member.client_id,
                    "client_host": member.client_host,
                }
                for member in group.members
            ],
        }
    row = {
        "kind": "offset",
        "group": whose.group_id,
        "topic": whose.topic,
        "partition": whose.partition,
    }
    if value is None:
        return {**row, "deleted": True}
    committed = group_records.decode_offset(value, 0)
    return {
        **row,
        "committed_offset": committed.offset,
        "metadata": committed.metadata,
        "commit_time_ms": committed.commit_timestamp_ms,
    }


# --- indexes, snapshots, journals, text ---------------------------------------------------------


def _base_of(name: str) -> int:
    return int(name[:20]) if name[:20].isdigit() else 0


def _offset_index_rows(name: str, data: bytes) -> Iterator[Row]:
    """The entries of an offset index."""
    base = _base_of(name)
    whole = len(data) - len(data) % offset_index.ENTRY_SIZE
    for relative, position in _OFFSET_ENTRY.iter_unpack(data[:whole]):
        if (relative, position) == (0, 0):
            # Only preallocated zeros follow: no entry is (0, 0), since a segment's first batch has
            # no entry.
            return
        yield {"offset": base + relative, "position": position}
    yield from _unreadable_rest(data, whole)


def _unreadable_rest(data: bytes, end: int) -> Iterator[Row]:
    """A row for the bytes after the last entry that can be read, if there are any."""
    if end < len(data):
        yield {"position": end, "kind": "unreadable", "size_bytes": len(data) - end}


def _time_index_rows(name: str, data: bytes) -> Iterator[Row]:
    """The entries of a time index."""
    base = _base_of(name)
    whole = len(data) - len(data) % time_index.ENTRY_SIZE
    if whole > time_index.ENTRY_SIZE and not any(data):
        return  # preallocated, without entries
    for number, (timestamp, relative) in enumerate(_TIME_ENTRY.iter_unpack(data[:whole])):
        if number and (timestamp, relative) == (0, 0):
            return  # allocated ahead
        yield {"timestamp_ms": timestamp, "offset": base + relative}
    yield from _unreadable_rest(data, whole)


def _txn_index_rows(name: str, data: bytes) -> Iterator[Row]:
    for entry in TxnIndex.decode(data).entries:
        yield entry._asdict()


def _snapshot_rows(name: str, data: bytes) -> Iterator[Row]:
    """The producers in a snapshot."""
    state = ProducerStateManager.decode_snapshot(data, _base_of(name), 0)
    for producer in state.producers.values():
        first_open = producer.txn_first_offset
        yield {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "last_sequence": producer.last_sequence,
            "last_offset": producer.last_offset,
            "last_timestamp_ms": producer.last_timestamp,
            "coordinator_epoch": producer.coordinator_epoch,
            "txn_start_offset": None if first_open < 0 else first_open,
        }


def _flush_journal_rows(name: str, data: bytes) -> Iterator[Row]:
    """The entries and decisions in a flush journal; bytes that cannot be read are one row at the
    end.
    """
    end = 0
    for frame in frames_in(data):
        end = frame.end
        for entry in frame.entries:
            yield {
                "position": frame.position,
                "kind": "data",
                "topic": entry.topic,
                "partition": entry.partition,
                "segment": entry.base_offset,
                "segment_position": entry.position,
                "size_bytes": len(entry.data),
            }
        for decision in frame.decisions:
            transaction = readable_record(TRANSACTIONS_TOPIC, decision.key, decision.value) or {}
            yield {
                "position": frame.position,
                "kind": "decision",
                "transactional_id": transaction.get("transactional_id"),
                "state": transaction.get("state"),
                "producer_id": transaction.get("producer_id"),
                "producer_epoch": transaction.get("producer_epoch"),
                "ends": [f"{row.topic}-{row.partition}@{row.offset}" for row in decision.ends],
            }
    yield from _unreadable_rest(data, end)


def _metadata_journal_rows(name: str, data: bytes) -> Iterator[Row]:
    """The changes in a metadata journal; bytes that cannot be read are one row at the end."""
    from barnabas.broker.logs.metadata import changes_in

    end = 0
    for position, after, body in changes_in(data):
        end = after
        fields = {
            key: to_json(value) if isinstance(value, bytes) else value
            for key, value in body.items()
        }
        kind = fields.pop("kind", None)
        fields.pop("id", None)
        if kind == "changes":
            fields = {"changes": len(body["changes"])}
        yield {"position": position, "kind": kind, "fields": fields}
    if end < len(data):
        yield {"position": end, "kind": "unreadable", "fields": {"bytes": len(data) - end}}


def _durable_size_rows(name: str, data: bytes) -> Iterator[Row]:
    """The sizes of the metadata journal that were recorded. The highest row counts."""
    from barnabas.broker.logs.durable_size import RECORD_BYTES, records_in

    for number, record in enumerate(records_in(data)):
        row: Row = {"position": number * RECORD_BYTES}
        if record is None:
            yield {**row, "kind": "unreadable", "size_bytes": RECORD_BYTES}
        else:
            epoch, size_bytes = record
            yield {**row, "kind": "size", "journal_epoch": epoch, "journal_bytes": size_bytes}
    yield from _unreadable_rest(data, len(data) - len(data) % RECORD_BYTES)


def _highest_epoch_rows(name: str, data: bytes) -> Iterator[Row]:
    yield {"leader_epoch": highest_epoch_in(data)}


def _unwritten_marker_rows(name: str, data: bytes) -> Iterator[Row]:
    """The markers that partitions lack."""
    from barnabas.broker.transactions.unwritten_markers import decode

    for marker in decode(data):
        row = marker._asdict()
        kind = "commit" if row.pop("commit") else "abort"
        yield {**row, "topic_id": str(uuid.UUID(bytes=marker.topic_id)), "marker": kind}


def _cut_rows(name: str, data: bytes) -> Iterator[Row]:
    """The cuts of whole transactions, then the offsets that have changed since the cut before."""
    from barnabas.broker.transactions.cut_history import DamagedHistory, HistoryReader

    reader = HistoryReader(lambda size, at: data[at : at + size], len(data))
    try:
        while reader.read_some():
            pass
    except DamagedHistory:
        raise ValueError("the frames at its beginning are damaged or incomplete") from None
    history = reader.history
    for cut in history:
        yield {
            "kind": "cut",
            "cut": cut.number,
            "time_ms": cut.time_ms,
            "leader_epoch": cut.leader_epoch,
        }
    for (topic_id, partition), track in history.tracks.items():
        for number, offset in zip(track.numbers, track.offsets, strict=True):
            yield {
                "kind": "offset",
                "cut": number,
                "topic_id": str(uuid.UUID(bytes=topic_id)),
                "partition": partition,
                "offset": offset,
            }
    yield from _unreadable_rest(data, reader.size_bytes)


def _text_rows(name: str, data: bytes) -> Iterator[Row]:
    for line in data.decode().splitlines():
        yield {"line": line}


_TEXTS = (
    r"[a-z-]+-checkpoint", r"segments\.manifest", r"partition\.metadata", r"meta\.properties",
    r"server\.properties", r"\.kafka_cleanshutdown", r"\.lock",
    "barnabas-boot-id", "barnabas-graduated", "barnabas-lease-session", "barnabas-not-sent",
    "barnabas-standby", "barnabas-start-settings", "barnabas-test-power-losses",
    "barnabas-unfinished",
)  # fmt: skip
_READERS: tuple[tuple[str, Callable[..., Iterator[Row]]], ...] = (
    (r".*\.log(\..*)?|.*\.checkpoint|barnabas-graduated\.bootstrap", segment_rows),
    (r".*\.index", _offset_index_rows),
    (r".*\.timeindex", _time_index_rows),
    (r".*\.txnindex", _txn_index_rows),
    (r".*\.snapshot", _snapshot_rows),
    (r"barnabas-flush-\d+\.journal", _flush_journal_rows),
    (r"barnabas-metadata\.journal", _metadata_journal_rows),
    (r"barnabas-metadata\.journal\.size", _durable_size_rows),
    (r"barnabas-leader-epoch", _highest_epoch_rows),
    (r"barnabas-unwritten-markers", _unwritten_marker_rows),
    (r"barnabas-cuts(\.next)?", _cut_rows),
    ("|".join(_TEXTS), _text_rows),
)
