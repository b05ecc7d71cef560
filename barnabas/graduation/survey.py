"""A survey of a stopped data directory: all of its content that a hand-over needs.

Everything is read from the files and nothing is written. The directory is locked by the caller.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.broker.logs.metadata import ClusterMetadata, Topic
from barnabas.broker.settings.deletion import StartNote
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.coordinator.transactions.transaction_records import decode_key, decode_value
from barnabas.coordinator.transactions.transaction_state import (
    AT_REST,
    TransactionMetadata,
    TransactionState,
)
from barnabas.graduation.typed_groups import replay_group
from barnabas.protocol.records import Record, batches_in, records_of
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.replication.following import StandbyNote
from barnabas.storage.directory.graduated import KAFKA_METADATA_NAME, is_graduated
from barnabas.storage.directory.offset_checkpoints import OffsetCheckpoints
from barnabas.storage.disk import Disk
from barnabas.storage.files.checkpoints import (
    CLEAN_SHUTDOWN_NAME,
    LEADER_EPOCH_NAME,
    META_PROPERTIES_NAME,
    METADATA_JOURNAL_NAME,
    PARTITION_METADATA_NAME,
    RECOVERY_POINT_NAME,
    CorruptCheckpoint,
    decode_partition_metadata,
    decode_properties,
)
from barnabas.storage.files.flush_journal import FLUSH_JOURNAL_NAME
from barnabas.storage.files.leader_epochs import HighestEpoch, LeaderEpochs
from barnabas.storage.files.segment_files import LOG_SUFFIX, SNAPSHOT_SUFFIX
from barnabas.storage.producers.producer_state import CorruptSnapshot, ProducerStateManager

# a higher id was not assigned by a broker, but made up by a client
LIKELY_PRODUCER_IDS = range(1 << 62)
_GOING = re.compile(r".+\.[0-9a-f]{32}-(delete|stray)")
_SHOWN = 10


class GraduationError(Exception):
    """The directory cannot be handed over or brought back; the text says why, and what to do."""


class UncleanError(GraduationError):
    """The broker on this directory was not stopped, or was not stopped cleanly. A start and a stop
    repair the directory.
    """


class OpenTransaction(NamedTuple):
    """A transaction that is open, or decided but incomplete, at the hand-over to Kafka.

    waits_for_decision: whether another system, or a later producer, decides whether the transaction
    commits (KIP-939).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    start_ms: int
    timeout_ms: int
    partitions: tuple[TopicPartition, ...]
    waits_for_decision: bool = False


@dataclass
class Survey:
    """The result of a survey.

    metadata: the journal, which is closed, so only its values are used. leader_epochs: for each
    partition of a topic, the highest leader epoch that a client may have seen. next_producer_id: an
    id above every producer id in logs and transactional ids. torn: files of empty logs that a power
    loss damaged. Barnabas does not need them, and Kafka does not start with them. without_files:
    for each partition that has no directory yet, the name of the future directory and the topic id.
    typed_groups: the types of share groups and streams groups, by the name of the group.
    start_settings: the settings of the last start that decide about deletion.
    """

    data_dir: str
    node_id: int
    cluster_id: str
    directory_id: str
    metadata: ClusterMetadata
    leader_epochs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    next_producer_id: int = 0
    open_transactions: list[OpenTransaction] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    without_files: dict[str, uuid.UUID] = field(default_factory=dict)
    typed_groups: dict[str, str] = field(default_factory=dict)
    start_settings: dict[str, str] = field(default_factory=dict)

    @property
    def topics(self) -> list[Topic]:
        """All topics, sorted by name."""
        return [topic for _, topic in sorted(self.metadata.topics.items())]

    @property
    def partition_count(self) -> int:
        """The number of partitions of all topics."""
        return sum(topic.partition_count for topic in self.metadata.topics.values())

    @property
    def directories(self) -> list[str]:
        """The names of the existing directories of partitions, by topic and number."""
        return [
            name
            for topic in self.topics
            for index in range(topic.partition_count)
            if (name := f"{topic.name}-{index}") not in self.without_files
        ]


def take_survey(disk: Disk, data_dir: str) -> Survey:
    """Survey a directory. Raises: GraduationError, LogDirectoryError, OSError."""
    _check_state(disk, data_dir)
    node_id, cluster_id, directory_id = _ids(disk, data_dir)
    metadata = ClusterMetadata(disk, f"{data_dir}/{METADATA_JOURNAL_NAME}")
    metadata.close()
    if metadata.deletions or metadata.coming:
        raise UncleanError(f"{data_dir} has topics whose creation or deletion is unfinished")
    survey = Survey(data_dir, node_id, cluster_id, directory_id, metadata)
    survey.start_settings = StartNote(disk, data_dir).read()
    _check_directories(disk, survey)
    highest = HighestEpoch(disk, data_dir).read()
    for topic in survey.topics:
        survey.leader_epochs[topic.name] = tuple(
            max(highest, _latest_epoch(disk, survey, f"{topic.name}-{index}"), 0)
            for index in range(topic.partition_count)
        )
    for index in range(_partition_count(survey, OFFSETS_TOPIC)):
        directory = f"{OFFSETS_TOPIC}-{index}"
        if directory not in survey.without_files:
            for record in _records(disk, f"{data_dir}/{directory}"):
                replay_group(survey.typed_groups, record)
    transactions = _transactions(disk, survey)
    survey.open_transactions = [
        _as_open(transaction) for transaction in transactions if transaction.state not in AT_REST
    ]
    survey.next_producer_id = max(
        metadata.next_producer_id, _highest_producer_id(disk, survey, transactions) + 1
    )
    return survey


def _as_open(transaction: TransactionMetadata) -> OpenTransaction:
    """The entry for an open transaction in the reports."""
    return OpenTransaction(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.state.value,
        transaction.start_ms,
        transaction.timeout_ms,
        tuple(sorted(transaction.partitions)),
        transaction.is_kept
        or (transaction.is_two_phase and transaction.state is TransactionState.ONGOING),
    )


def check_decided(survey: Survey) -> None:
    """Raise GraduationError if transactions of two-phase commit are open.

    No producer can resume such a transaction in Kafka, so a decision about it could not be
    carried out.

    Raises: GraduationError.
    """
    names = [one.transactional_id for one in survey.open_transactions if one.waits_for_decision]
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise GraduationError(
            f"open for two-phase commit: {', '.join(names[:_SHOWN])}{more}. Kafka cannot "
            "complete them as their coordinators decided: start the broker and let these "
            "complete them, or look up the decisions and pass them to `barnabas txn commit` or "
            "`abort`; --abort-transactions aborts all open transactions, whatever the decisions"
        )


def _check_state(disk: Disk, data_dir: str) -> None:
    """Check that the directory is ours, and was stopped cleanly. Raises: GraduationError,
    UncleanError.
    """
    if is_graduated(disk, data_dir):
        raise GraduationError(
            f"{data_dir} was handed over already: start Kafka there, or bring it back with "
            f"`barnabas take-over {data_dir}`"
        )
    for name in (METADATA_JOURNAL_NAME, META_PROPERTIES_NAME):
        if not disk.exists(f"{data_dir}/{name}"):
            raise GraduationError(
                f"{data_dir} has no {name}: name the directory of --data-dir (log.dirs) that a "
                "barnabas broker has run in"
            )
    if StandbyNote(disk, data_dir).check():
        raise UncleanError(f"{data_dir} was a standby's, and no broker has started on it since")
    is_clean = disk.exists(f"{data_dir}/{CLEAN_SHUTDOWN_NAME}")
    left = [
        name
        for name in disk.list(data_dir)
        if FLUSH_JOURNAL_NAME.fullmatch(name) and disk.size(f"{data_dir}/{name}")
    ]
    if left or not is_clean:
        raise UncleanError(f"the broker of {data_dir} was not stopped cleanly")


def _ids(disk: Disk, data_dir: str) -> tuple[int, str, str]:
    """The node id, cluster id and directory id in meta.properties. Raises: GraduationError,
    UncleanError.
    """
    path = f"{data_dir}/{META_PROPERTIES_NAME}"
    try:
        properties = decode_properties(disk.read(path))
        return int(properties["node.id"]), properties["cluster.id"], properties["directory.id"]
    except (CorruptCheckpoint, ValueError) as error:
        raise GraduationError(f"{path} cannot be read ({error}): restore it") from error
    except KeyError as error:
        raise UncleanError(f"{path} has no {error}, which a start writes") from error


def _check_directories(disk: Disk, survey: Survey) -> None:
    """Check that partitions with records have directories, and that Kafka can start with each
    directory.
    """
    data_dir = survey.data_dir
    had_files = OffsetCheckpoints(disk, data_dir).read(RECOVERY_POINT_NAME) or {}
    directories = {name for name in disk.list(data_dir) if disk.is_dir(f"{data_dir}/{name}")}
    problems = []
    for topic in survey.topics:
        for index in range(topic.partition_count):
            name = f"{topic.name}-{index}"
            if name in directories:
                problem = _problem_of(disk, data_dir, name, topic)
            elif (topic.name, index) in had_files:
                problem = "missing: restore it from a copy"
            else:
                problem = ""
                survey.without_files[name] = topic.topic_id
            if problem:
                problems.append(f"{name} is {problem}")
            directories.discard(name)
    for name in sorted(directories - {KAFKA_METADATA_NAME}):
        if not _GOING.fullmatch(name):
            problems.append(
                f"{name} is not a partition's directory, and Kafka refuses to start with it: "
                "move it away"
            )
    if problems:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise GraduationError(f"{data_dir}: {'; '.join(problems[:_SHOWN])}{more}")


def _problem_of(disk: Disk, data_dir: str, name: str, topic: Topic) -> str:
    """Why a partition's directory cannot be handed over, according to the topic id in it. Empty if
    it can be handed over.
    """
    try:
        data = disk.read(f"{data_dir}/{name}/{PARTITION_METADATA_NAME}")
        topic_id = decode_partition_metadata(data)
    except (FileNotFoundError, CorruptCheckpoint) as error:
        return (
            f"without a readable {PARTITION_METADATA_NAME} ({error}): start the broker there and "
            "stop it, which writes the file"
        )
    return (
        ""
        if topic_id == topic.topic_id
        else "the directory of another topic of that name: move it away"
    )


def _latest_epoch(disk: Disk, survey: Survey, name: str) -> int:
    """The last leader epoch of a partition's records; -1 if none is known."""
    directory = f"{survey.data_dir}/{name}"
    try:
        return LeaderEpochs.load(disk, directory).latest
    except FileNotFoundError:
        return -1
    except CorruptCheckpoint as error:
        logs = [file for file in disk.list(directory) if file.endswith(LOG_SUFFIX)]
        if any(disk.size(f"{directory}/{file}") for file in logs):
            raise UncleanError(
                f"{directory}/{LEADER_EPOCH_NAME} cannot be read ({error})"
            ) from error
        survey.torn.append(f"{name}/{LEADER_EPOCH_NAME}")
        return -1


def _transactions(disk: Disk, survey: Survey) -> list[TransactionMetadata]:
    """The last record of each transactional id."""
    transactions: dict[str, TransactionMetadata] = {}
    for index in range(_partition_count(survey, TRANSACTIONS_TOPIC)):
        directory = f"{survey.data_dir}/{TRANSACTIONS_TOPIC}-{index}"
        if not disk.is_dir(directory):
            raise GraduationError(
                f"{directory} is missing: restore it from a copy; or, if the disk was full when "
                "the broker stopped, start the broker there and stop it, which makes it"
            )
        for record in _records(disk, directory):
            name = None if record.key is None else decode_key(bytes(record.key))
            if name is None:
                continue
            if record.value is None:
                transactions.pop(name, None)
            else:
                transactions[name] = decode_value(name, bytes(record.value))
    return [transaction for _, transaction in sorted(transactions.items())]


def _partition_count(survey: Survey, name: str) -> int:
    topic = survey.metadata.topic(name)
    return 0 if topic is None else topic.partition_count


def _records(disk: Disk, directory: str) -> Iterator[Record]:
    """The data records in all segments of a partition's directory, in order."""
    for name in disk.list(directory):
        if name.endswith(LOG_SUFFIX):
            data = disk.read(f"{directory}/{name}")
            for position, header in batches_in(data):
                if not header.is_control:
                    yield from records_of(memoryview(data)[position : position + header.size_bytes])


def _highest_producer_id(
    disk: Disk, survey: Survey, transactions: list[TransactionMetadata]
) -> int:
    """The highest producer id of logs and transactional ids; -1 if there is none."""
    highest = max((max(one.producer_id, one.next_producer_id) for one in transactions), default=-1)
    for name in survey.directories:
        for producer_id in _producer_ids(disk, f"{survey.data_dir}/{name}"):
            if producer_id > highest and producer_id in LIKELY_PRODUCER_IDS:
                highest = producer_id
    return highest


def _producer_ids(disk: Disk, directory: str) -> Iterator[int]:
    """The producer ids of a partition's last snapshot, which a clean stop writes."""
    snapshots = [name for name in disk.list(directory) if name.endswith(SNAPSHOT_SUFFIX)]
    for name in snapshots[-1:]:
        try:
            data = disk.read(f"{directory}/{name}")
            yield from ProducerStateManager.decode_snapshot(data, int(name[:20]), 0).producers
        except (CorruptSnapshot, ValueError) as error:
            raise UncleanError(f"{directory}/{name} cannot be read ({error})") from error
