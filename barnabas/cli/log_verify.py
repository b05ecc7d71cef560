"""`barnabas log verify`: finds faults in a data directory without changing a byte.

The log is authoritative. All other files are checked against the log or against a checksum.

    file                     what is checked
    .log                     each batch: CRC, length, consecutive offsets, leader epochs
                             that do not decrease, number and length of records, times,
                             producers' epochs and sequences, transactions and their markers
    .index, .timeindex       each entry against the batches; order; nothing beyond the end
    .txnindex                against the aborted transactions of the batches
    .snapshot                checksum; the producers, against the batches before it
    leader-epoch-checkpoint  has each epoch of the batches
    segments.manifest        checksum; the files whose checksums it contains (Barnabas only)
    partition.metadata       can be read; all partitions of a topic have one topic id
    *-checkpoint, meta.properties     can be read
    barnabas-*.journal       each frame's checksum

A missing offset is a fault, except in a compacted log, which the cleaner's checkpoint names. The
unfinished writes of a running broker are not faults. In a directory that is in use, a fault
therefore counts only if a second check finds it, too.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from barnabas.cli.log_batches import BadPlace, StoredBatch, read_batches
from barnabas.cli.log_indexes import (
    SegmentFacts,
    check_aborted,
    check_offset_index,
    check_time_index,
)
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC
from barnabas.protocol.compression import DecompressionError
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.records import (
    BatchHeader,
    decode_marker,
    has_right_crc,
    records_of,
)
from barnabas.storage.files import checkpoints
from barnabas.storage.files.checkpoints import CorruptCheckpoint, Manifest
from barnabas.storage.files.flush_journal import FLUSH_JOURNAL_NAME, frames_in, later_frame
from barnabas.storage.files.segment_files import SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX
from barnabas.storage.files.txn_index import AbortedEntry
from barnabas.storage.producers.producer_state import CorruptSnapshot, ProducerStateManager

PARTITION = re.compile(r"(.+)-(\d+)")
SEGMENT_FILE = re.compile(
    rf"(\d{{20}})({'|'.join(map(re.escape, (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX)))})"
)
CLUSTER_METADATA = "__cluster_metadata"
Advance = Callable[[int], None]
Decoded = TypeVar("Decoded")


class Fault(NamedTuple):
    """A fault: its file, its byte position (-1 for the whole file), and a text."""

    path: str
    position: int
    text: str


class PartitionReport(NamedTuple):
    """The content of a partition's directory, and its faults.

    open_transactions: (producer id, first offset) of each transaction without a marker.
    """

    directory: str
    name: str
    segments: int
    size_bytes: int
    batches: int
    records: int
    log_start_offset: int
    log_end_offset: int
    open_transactions: tuple[tuple[int, int], ...]
    faults: tuple[Fault, ...]


def is_partition_directory(path: str) -> bool:
    """Whether a directory is a partition's, by its name and its files."""
    if not PARTITION.fullmatch(os.path.basename(os.path.normpath(path))):
        return False
    return any(SEGMENT_FILE.fullmatch(name) for name in os.listdir(path))


def partition_directories(data_dir: str) -> list[str]:
    """The directories of partitions in a data directory, by name, without deleted ones."""
    return sorted(
        entry.path
        for entry in os.scandir(data_dir)
        if entry.is_dir()
        and PARTITION.fullmatch(entry.name)
        and not entry.name.endswith(("-delete", "-stray", "-future"))
    )


def verify_partition(
    directory: str, *, in_use: bool, compacted: bool, opens: bool, advance: Advance
) -> PartitionReport:
    """Check one partition's directory.

    Takes:  in_use, whether a broker may be writing to the directory; compacted, whether offsets may
            be missing; opens, whether to decode the records of batches.
    """
    return _Verifier(directory, in_use=in_use, compacted=compacted, opens=opens).run(advance)


class _Verifier:
    """Checks one partition, one segment after the other. Its attributes are the state that the
    check collects.
    """

    def __init__(self, directory: str, *, in_use: bool, compacted: bool, opens: bool) -> None:
        self.directory = directory
        name = os.path.basename(os.path.normpath(directory))
        match = PARTITION.fullmatch(name)
        self.topic = match[1] if match else name
        self.name = name
        self.in_use = in_use
        self.may_have_gaps = compacted
        self.opens = opens
        self.faults: list[Fault] = []
        self.files = sorted(os.listdir(directory))
        self.bases = [int(name[:20]) for name in self.files if re.fullmatch(r"\d{20}\.log", name)]
        self.state = ProducerStateManager(0)
        self.knows_all = True  # whether `state` includes every batch since offset 0
        self.state_is_sound = True  # whether no batch so far was faulty
        self.next_offset = -1
        self.leader_epoch = -1
        self.epochs: list[tuple[int, int, str, int]] = []
        self.ends: dict[int, tuple[int, int]] = {}  # base offset -> size, next offset
        self.batches = self.records = self.size_bytes = 0
        self.snapshots = {int(name[:20]): name for name in self.files if name.endswith(".snapshot")}

    def fault(self, name: str, position: int, text: str) -> None:
        """Add a fault."""
        self.faults.append(Fault(f"{self.directory}/{name}", position, text))

    def run(self, advance: Advance) -> PartitionReport:
        """Check the whole partition."""
        self._begin()
        end_of_last = True
        for number, base in enumerate(self.bases):
            is_active = number == len(self.bases) - 1
            facts = self._check_segment(base, is_active=is_active, advance=advance)
            end_of_last = facts.is_whole
            self._check_indexes(facts)
        self._check_snapshots_beyond(end_of_last)
        self._check_small_files()
        self._check_names()
        return PartitionReport(
            self.directory,
            self.name,
            len(self.bases),
            self.size_bytes,
            self.batches,
            self.records,
            self.bases[0] if self.bases else 0,
            max(self.next_offset, 0),
            tuple(self.state.open_txns.items()),
            tuple(self.faults),
        )

    def _begin(self) -> None:
        """Load the snapshot at the log's start, if there is one. It has the producer state from the
        batches that were deleted.
        """
        if not self.bases:
            self.fault("", -1, "there is no segment")
            return
        first = self.bases[0]
        self.knows_all = first == 0
        if first > 0 and first in self.snapshots:
            state = self._load_snapshot(first)
            if state is not None:
                self.state, self.knows_all = state, True

    def _load_snapshot(self, offset: int) -> ProducerStateManager | None:
        """The producers in a snapshot; None if it was removed in the meantime, or cannot be read. A
        snapshot that cannot be read is reported as a fault.
        """
        name = self.snapshots[offset]
        try:
            with open(f"{self.directory}/{name}", "rb") as file:
                return ProducerStateManager.decode_snapshot(file.read(), offset, 0)
        except FileNotFoundError:  # removed by the running broker
            return None
        except CorruptSnapshot as error:
            self.fault(name, -1, f"the snapshot cannot be read: {error}")
            return None

    # --- batches ---------------------------------------------------------------------------------

    def _check_segment(self, base: int, *, is_active: bool, advance: Advance) -> SegmentFacts:
        """Check the batches of a segment. Gives: the facts with which its indexes are compared."""
        name = f"{base:020}.log"
        facts = SegmentFacts(base)
        if self.next_offset >= 0 and base != self.next_offset:
            if base < self.next_offset:
                self.fault(name, 0, f"the segment before it ends at {self.next_offset - 1}")
            elif not self.may_have_gaps:
                self.fault(name, 0, self._gap_text(base))
        self.next_offset = max(self.next_offset, base)
        for batch in read_batches(f"{self.directory}/{name}"):
            if isinstance(batch, BadPlace):
                facts.is_whole = False
                self.state_is_sound = self.state_is_sound and is_active
                self._note_end(name, batch, is_active=is_active)
                break
            self._check_batch(name, batch, facts)
            advance(len(batch.data))
            facts.size_bytes = batch.position + len(batch.data)
        self.size_bytes += facts.size_bytes
        self.ends[base] = (facts.size_bytes, self.next_offset)
        return facts

    def _gap_text(self, base: int) -> str:
        """The text of a fault for missing offsets before a batch or segment."""
        return (
            f"the offsets {self.next_offset} to {base - 1} are missing (normal only if the "
            "topic was once compacted: then pass --compacted)"
        )

    def _note_end(self, name: str, bad: BadPlace, *, is_active: bool) -> None:
        """Report a place where the batches end before the file does. An unfinished batch at the end
        of the active segment is not reported if a broker may be appending it.
        """
        if bad.unfinished and is_active and self.in_use:
            return
        hint = "; the next start cuts it off" if bad.unfinished and is_active else ""
        self.fault(name, bad.position, f"{bad.why}{hint}")

    def _check_batch(self, name: str, batch: StoredBatch, facts: SegmentFacts) -> None:
        """Check a batch, and add it to the facts and to the state of producers."""
        header, position = batch.header, batch.position
        self.batches += 1
        if header.base_offset in self.snapshots and header.base_offset != self.bases[0]:
            self._compare_snapshot(header.base_offset)
        if not has_right_crc(batch.data, header):
            self.fault(
                name, position, f"the CRC of the batch at offset {header.base_offset} is wrong"
            )
            facts.is_sound = self.state_is_sound = False
        self._check_offsets(name, position, header)
        self._check_leader_epoch(name, position, header)
        facts.add(position, header)
        if facts.is_sound and self.opens and header.record_count > 0:
            self._check_records(name, batch)
        if self.state_is_sound:
            self._check_producer(name, batch, facts)
        self.records += max(header.record_count, 0)
        self.next_offset = max(header.next_offset, self.next_offset)

    def _check_offsets(self, name: str, position: int, header: BatchHeader) -> None:
        """Check that a batch follows the one before it, and has a record for each of its
        offsets.
        """
        base = header.base_offset
        if header.last_offset_delta < 0 or header.record_count < 0:
            self.fault(
                name,
                position,
                f"the batch at offset {base} declares {header.record_count} records up to "
                f"offset {header.last_offset}",
            )
        elif base < self.next_offset:
            self.fault(
                name, position, f"the batch has offset {base}, and {self.next_offset} comes next"
            )
        elif base > self.next_offset and not self.may_have_gaps:
            self.fault(name, position, self._gap_text(base))
        count = header.last_offset_delta + 1
        if not self.may_have_gaps and 0 <= header.record_count != count:
            self.fault(
                name,
                position,
                f"the batch at offset {base} has {header.record_count} records for {count} offsets",
            )

    def _check_leader_epoch(self, name: str, position: int, header: BatchHeader) -> None:
        """Check that leader epochs do not decrease, and record where each begins."""
        if header.leader_epoch < self.leader_epoch:
            self.fault(
                name,
                position,
                f"the leader epoch falls from {self.leader_epoch} to {header.leader_epoch}",
            )
        elif header.leader_epoch > self.leader_epoch:
            self.leader_epoch = header.leader_epoch
            self.epochs.append((header.leader_epoch, header.base_offset, name, position))

    def _check_records(self, name: str, batch: StoredBatch) -> None:
        """Decode the records of a batch, and compare their offsets and times with its header."""
        header = batch.header
        try:
            records = records_of(batch.data)
        except (KafkaError, DecompressionError) as error:
            text = f"the records of the batch at offset {header.base_offset}: {error}"
            self.fault(name, batch.position, text)
            return
        before = header.base_offset - 1
        for record in records:
            if not before < record.offset <= header.last_offset:
                self.fault(
                    name,
                    batch.position,
                    f"a record of the batch at offset {header.base_offset} has offset "
                    f"{record.offset}",
                )
                return
            before = record.offset
        latest = max(record.timestamp for record in records)
        if latest > header.max_timestamp and not header.is_control:
            self.fault(
                name,
                batch.position,
                f"the batch at offset {header.base_offset} has the highest time "
                f"{header.max_timestamp}, a record of it {latest}",
            )

    # --- producers -------------------------------------------------------------------------------

    def _check_producer(self, name: str, batch: StoredBatch, facts: SegmentFacts) -> None:
        """Check a batch against the state of its producer, as a broker does before an append."""
        header = batch.header
        if header.is_control:
            self._check_marker(name, batch, facts)
            return
        if header.producer_id < 0:
            if header.is_transactional:
                self.fault(name, batch.position, "a transactional batch without a producer")
            return
        # The group coordinator writes the batches of this topic, always with sequence 0.
        if self.topic != OFFSETS_TOPIC:
            self._check_sequence(name, batch)
        self.state.on_batch(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
            header.is_transactional,
            0,
        )

    def _check_sequence(self, name: str, batch: StoredBatch) -> None:
        """Check that the producer's epoch and sequence follow its previous batch."""
        header = batch.header
        try:
            repeated = self.state.check_batch(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.last_sequence,
                header.is_transactional,
                lambda entry: None,
            )
        except KafkaError as error:
            if not (self.may_have_gaps and error.code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER):
                text = f"the batch at offset {header.base_offset}: {error.message}"
                self.fault(name, batch.position, text)
        else:
            if repeated is not None:
                self.fault(
                    name,
                    batch.position,
                    f"the batch at offset {header.base_offset} repeats the one at offset "
                    f"{repeated.first_offset}",
                )

    def _check_marker(self, name: str, batch: StoredBatch, facts: SegmentFacts) -> None:
        """Check a marker. If it aborts a transaction, add the transaction to `facts`."""
        header = batch.header
        if self.topic == CLUSTER_METADATA or header.record_count == 0:
            return  # other control records, and control batches that compaction has emptied
        try:
            marker = decode_marker(batch.data)
        except (KafkaError, DecompressionError, IndexError) as error:
            text = f"the marker at offset {header.base_offset} cannot be read: {error}"
            self.fault(name, batch.position, text)
            return
        try:
            self.state.check_marker(
                header.producer_id, header.producer_epoch, marker.coordinator_epoch
            )
        except KafkaError as error:
            text = f"the marker at offset {header.base_offset}: {error.message}"
            self.fault(name, batch.position, text)
        completed = self.state.on_marker(
            header.producer_id,
            header.producer_epoch,
            marker.coordinator_epoch,
            marker.commit,
            header.base_offset,
            header.max_timestamp,
            0,
        )
        facts.markers[header.base_offset] = (header.producer_id, marker.commit)
        if completed is not None and completed.aborted:
            facts.aborted.append(
                AbortedEntry(
                    completed.producer_id,
                    completed.first_offset,
                    completed.last_offset,
                    completed.last_stable_offset,
                )
            )

    def _compare_snapshot(self, offset: int) -> None:
        """Compare a snapshot with the producers found in the batches before it."""
        snapshot = self._load_snapshot(offset)
        if snapshot is None or self.may_have_gaps or not self.state_is_sound:
            return
        name = self.snapshots[offset]
        for producer_id, noted in snapshot.producers.items():
            own = self.state.producers.get(producer_id)
            if own is None:
                if self.knows_all:
                    self.fault(name, -1, f"no batch is of its producer {producer_id}")
                continue
            pairs = (
                ("producer epoch", noted.producer_epoch, own.producer_epoch),
                ("last sequence", noted.last_sequence, own.last_sequence),
                ("last offset", noted.last_offset, own.last_offset),
                ("first open offset", noted.txn_first_offset, own.txn_first_offset),
            )
            for what, written, counted in pairs:
                if written != counted:
                    self.fault(
                        name,
                        -1,
                        f"producer {producer_id} has the {what} {written}, by the batches "
                        f"{counted}",
                    )

    # --- the other files -------------------------------------------------------------------------

    def _read(self, name: str) -> bytes | None:
        """The content of a file of the partition; None if there is none."""
        try:
            with open(f"{self.directory}/{name}", "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def _check_indexes(self, facts: SegmentFacts) -> None:
        """Check the three indexes of a segment against its batches.

        A segment whose batches have faults is skipped, since nothing can be checked against them.
        Its index of aborted transactions is also skipped if the log may have gaps, or the state of
        its producers is not reliable.
        """
        if not facts.is_sound:
            return  # no reliable batches to check the indexes against
        for suffix, check in ((".index", check_offset_index), (".timeindex", check_time_index)):
            name = f"{facts.base_offset:020}{suffix}"
            data = self._read(name)
            if data:
                for position, text in check(data, facts, in_use=self.in_use):
                    self.fault(name, position, text)
        name = f"{facts.base_offset:020}.txnindex"
        if not self.may_have_gaps and self.state_is_sound:
            data = self._read(name)
            for position, text in check_aborted(
                data, facts, knows_all=self.knows_all, in_use=self.in_use
            ):
                self.fault(name, position, text)

    def _check_snapshots_beyond(self, is_whole: bool) -> None:
        """Check snapshots at the log's end, and report snapshots beyond it."""
        for offset, name in sorted(self.snapshots.items()):
            if offset == self.next_offset:
                self._compare_snapshot(offset)
            elif offset > self.next_offset and is_whole and not self.in_use:
                self._load_snapshot(offset)
                self.fault(name, -1, f"the log ends before it, at {self.next_offset}")
            elif offset < self.next_offset:
                self._load_snapshot(offset)

    def _check_small_files(self) -> None:
        """Check the leader epochs, the topic id and the manifest."""
        manifest = self._decoded(checkpoints.MANIFEST_NAME, Manifest.decode)
        epochs = self._decoded(checkpoints.LEADER_EPOCH_NAME, _epochs_of)
        if epochs is not None:
            starts = dict(epochs)
            log_start_offset = self._log_start_offset(manifest)
            # A running broker removes epochs first, and records the new log start offset a little
            # later.
            if self.in_use and starts:
                log_start_offset = max(log_start_offset, min(starts.values()))
            self._check_epochs(starts, log_start_offset)
        topic_id = self._decoded(
            checkpoints.PARTITION_METADATA_NAME, checkpoints.decode_partition_metadata
        )
        if manifest is None:
            return
        if topic_id is not None and manifest.topic_id != topic_id:
            text = f"has another topic id than {checkpoints.MANIFEST_NAME}, which has a checksum"
            self.fault(checkpoints.PARTITION_METADATA_NAME, -1, text)
        for name in manifest.files:
            data = self._read(name)
            if not manifest.knows(name, data) and manifest.prefix(name, data) is None:
                text = "is missing" if data is None else "differs from segments.manifest"
                self.fault(name, -1, f"the file {text}")
        for base, note in manifest.segments.items():
            path = f"{self.directory}/{base:020}.log"
            size = os.path.getsize(path) if os.path.exists(path) else -1
            if 0 <= size < note.size or (size < 0 and base in range(*self._range())):
                text = f"{max(size, 0)} bytes, and segments.manifest has {note.size}"
                self.fault(f"{base:020}.log", -1, text)
            elif self.ends.get(base, (0, 0))[0] == note.size != 0:
                end = self.ends[base][1]
                if end != note.end_offset:
                    text = f"it ends at offset {end}, and segments.manifest has {note.end_offset}"
                    self.fault(f"{base:020}.log", -1, text)

    def _log_start_offset(self, manifest: Manifest | None) -> int:
        """The log start offset that was recorded. The first segment may begin earlier."""
        data = _read_or_none(f"{os.path.dirname(self.directory)}/{checkpoints.LOG_START_NAME}")
        noted = 0
        if data:
            # reported by the check of the data directory
            with contextlib.suppress(CorruptCheckpoint):
                index = int(self.name.rpartition("-")[2])
                noted = checkpoints.decode_offsets(data).get((self.topic, index), 0)
        return noted if manifest is None else max(noted, manifest.log_start_offset)

    def _check_epochs(self, starts: dict[int, int], log_start_offset: int) -> None:
        """Check that each leader epoch of the batches is recorded, with a start offset at or before
        its first batch.

        Batches before the log start offset may still exist after DeleteRecords has raised it; their
        epochs are not recorded.
        """
        before = -1
        ends = [*(offset for _, offset, _, _ in self.epochs[1:]), self.next_offset]
        for (epoch, offset, name, position), end in zip(self.epochs, ends, strict=False):
            noted = checkpoints.LEADER_EPOCH_NAME
            if epoch >= 0 and epoch not in starts:
                if end > log_start_offset:
                    self.fault(name, position, f"{noted} lacks the epoch {epoch} from {offset} on")
            elif epoch >= 0 and not before < starts[epoch] <= max(offset, log_start_offset):
                text = f"the epoch {epoch} begins at {starts[epoch]}, by the batches at {offset}"
                self.fault(noted, -1, text)
            before = offset

    def _range(self) -> tuple[int, int]:
        """The range from the first segment's base offset to the log's end."""
        return (self.bases[0] if self.bases else 0, max(self.next_offset, 1))

    def _decoded(self, name: str, decode: Callable[[bytes], Decoded]) -> Decoded | None:
        """The decoded content of a file; None if it is missing or cannot be read. A file that
        cannot be read is reported as a fault.
        """
        data = self._read(name)
        if data is None:
            return None
        try:
            return decode(data)
        except (CorruptCheckpoint, ValueError, IndexError) as error:
            self.fault(name, -1, f"cannot be read: {error}")
            return None

    def _check_names(self) -> None:
        """Report indexes whose segment does not exist."""
        for name in self.files:
            match = SEGMENT_FILE.fullmatch(name)
            if match and match[2] not in (".log", ".snapshot") and int(match[1]) not in self.bases:
                self.fault(name, -1, "there is no segment of that name")


def _epochs_of(data: bytes) -> list[tuple[int, int]]:
    """The content of leader-epoch-checkpoint. Apache Kafka creates the file empty, and writes it
    with the first batch. Raises: CorruptCheckpoint.
    """
    return checkpoints.decode_epochs(data) if data else []


# --- the data directory -------------------------------------------------------------------------


def verify_data_files(data_dir: str, *, in_use: bool) -> Iterator[Fault]:
    """The faults of the files that are directly in the data directory."""
    for name in (
        checkpoints.RECOVERY_POINT_NAME,
        checkpoints.LOG_START_NAME,
        checkpoints.REPLICATION_NAME,
        checkpoints.CLEANER_NAME,
    ):
        path = f"{data_dir}/{name}"
        data = _read_or_none(path)
        if data:
            try:
                checkpoints.decode_offsets(data)
            except CorruptCheckpoint as error:
                yield Fault(path, -1, f"cannot be read: {error}")
    path = f"{data_dir}/{checkpoints.META_PROPERTIES_NAME}"
    data = _read_or_none(path)
    if data is not None:
        try:
            checkpoints.decode_properties(data)
        except CorruptCheckpoint as error:
            yield Fault(path, -1, f"cannot be read: {error}")
    for entry in sorted(os.scandir(data_dir), key=lambda entry: entry.name):
        if FLUSH_JOURNAL_NAME.fullmatch(entry.name):
            yield from _check_flush_journal(entry.path, in_use=in_use)
        elif entry.name == checkpoints.METADATA_JOURNAL_NAME:
            yield from _check_metadata_journal(entry.path, in_use=in_use)


def verify_topic_ids(directories: list[str]) -> Iterator[Fault]:
    """Check that all partitions of a topic have one topic id."""
    first: dict[tuple[str, str], tuple[str, object]] = {}
    for directory in directories:
        path = f"{directory}/{checkpoints.PARTITION_METADATA_NAME}"
        data = _read_or_none(path)
        match = PARTITION.fullmatch(os.path.basename(os.path.normpath(directory)))
        if data is None or match is None:
            continue
        try:
            topic_id = checkpoints.decode_partition_metadata(data)
        except CorruptCheckpoint:
            continue  # reported by the check of its partition
        data_dir = os.path.dirname(os.path.abspath(directory))
        other, noted = first.setdefault((data_dir, match[1]), (path, topic_id))
        if noted != topic_id:
            yield Fault(path, -1, f"has another topic id than {other}")


def _read_or_none(path: str) -> bytes | None:
    """The content of a file; None if there is none."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _check_flush_journal(path: str, *, in_use: bool) -> Iterator[Fault]:
    """Yields a fault if a flush journal has bytes after its last complete frame."""
    data = _read_or_none(path) or b""
    end = 0
    for frame in frames_in(data):
        end = frame.end
    if end == len(data):
        return
    behind = later_frame(data, end)
    if behind >= 0:
        yield Fault(path, end, f"a frame is damaged; the one at byte {behind} says it was durable")
    elif not in_use:
        yield Fault(path, end, "an unfinished frame, which was never acknowledged")


def _check_metadata_journal(path: str, *, in_use: bool) -> Iterator[Fault]:
    """Yields a fault if a metadata journal has bytes after its last complete frame."""
    from barnabas.broker.logs.metadata import changes_in

    data = _read_or_none(path) or b""
    end = 0
    for _, after, _ in changes_in(data):
        end = after
    if end < len(data) and not in_use:
        yield Fault(path, end, "a frame cannot be read")


def compacted_partitions(data_dir: str) -> set[str]:
    """The names of the directories of partitions that were compacted."""
    data = _read_or_none(f"{data_dir}/{checkpoints.CLEANER_NAME}")
    try:
        offsets = checkpoints.decode_offsets(data) if data else {}
    except CorruptCheckpoint:
        return set()
    return {f"{topic}-{partition}" for topic, partition in offsets}


def is_in_use(data_dir: str) -> bool:
    """Whether a process holds the directory's lock, according to /proc/locks."""
    try:
        inode = os.stat(f"{data_dir}/{checkpoints.LOCK_NAME}").st_ino
        with open("/proc/locks", encoding="ascii") as table:
            return any(f":{inode} " in line for line in table)
    except OSError:
        return False
