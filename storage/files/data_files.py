"""Every kind of file in a data directory, one in each row.

What has to know all of them goes by this table: a standby, a copy for Apache Kafka, the return of a
directory from Kafka, and the tests. The simulator reports a file without a row. Which files belong
to a segment, and so are deleted, compacted and set aside with it, is in `segment_files`.

    is_kafkas      Apache Kafka has a file of this name, in the same format
    is_local       of this process or machine: a standby does not get it
    stays_behind   a copy for Apache Kafka does not get it
    is_outdated    it describes logs, so it is removed if Apache Kafka may have written to them

Further suffixes of a name: `.tmp` and `.new` (the next content of a file, under way); of a
segment's file also `.deleted`, `.cleaned` and `.swap`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from barnabas.storage.disk import REPLACING_SUFFIX, TEMPORARY_SUFFIX
from barnabas.storage.files.checkpoints import (
    CLEAN_SHUTDOWN_NAME,
    CLEANER_NAME,
    LEADER_EPOCH_NAME,
    LEASE_SESSION_NAME,
    LOCK_NAME,
    LOG_START_NAME,
    MANIFEST_NAME,
    META_PROPERTIES_NAME,
    METADATA_JOURNAL_NAME,
    NOT_SENT_NAME,
    PARTITION_METADATA_NAME,
    RECOVERY_POINT_NAME,
    REPLICATION_NAME,
    STANDBY_NOTE_NAME,
)
from barnabas.storage.files.flush_journal import FLUSH_JOURNAL_NAME
from barnabas.storage.files.leader_epochs import HIGHEST_EPOCH_NAME
from barnabas.storage.files.segment_files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_SUFFIX,
    TXN_SUFFIX,
)

Name = str | re.Pattern[str]


class DataFile(NamedTuple):
    """One kind of file. name: its whole name, or a pattern for it. what: what it has, and where
    that is decided. The other fields are in the module's table.
    """

    name: Name
    what: str
    is_kafkas: bool = False
    is_local: bool = False
    stays_behind: bool = False
    is_outdated: bool = False

    def has_name(self, name: str) -> bool:
        """Whether a file of this name is of this kind."""
        if isinstance(self.name, str):
            return self.name == name
        return self.name.fullmatch(name) is not None


def _numbered(suffix: str, more: str = "") -> re.Pattern[str]:
    """The names of files that begin with an offset."""
    return re.compile(rf"\d{{20}}{re.escape(suffix)}{more}")


OF_PARTITION = (
    DataFile(_numbered(LOG_SUFFIX), "batches: segments/batch_file", is_kafkas=True),
    DataFile(_numbered(INDEX_SUFFIX), "files/offset_index", is_kafkas=True),
    DataFile(_numbered(TIME_SUFFIX), "files/time_index", is_kafkas=True),
    DataFile(_numbered(TXN_SUFFIX), "files/txn_index", is_kafkas=True),
    DataFile(_numbered(SNAPSHOT_SUFFIX), "producers/producer_snapshots", is_kafkas=True),
    DataFile(LEADER_EPOCH_NAME, "files/leader_epochs", is_kafkas=True),
    DataFile(PARTITION_METADATA_NAME, "the topic id: files/checkpoints", is_kafkas=True),
    DataFile(
        MANIFEST_NAME,
        "sizes and checksums of the files: files/checkpoints",
        stays_behind=True,
        is_outdated=True,
    ),
    DataFile(
        _numbered(".log.set-aside", r"(-\d+)?"),
        "batches behind a hole after a power loss: opening/log_loader",
    ),
    DataFile(
        NOT_SENT_NAME,
        "no standby has the directory yet: replication/replicated_disk",
        is_local=True,
        stays_behind=True,
    ),
)
OF_DIRECTORY = (
    DataFile(META_PROPERTIES_NAME, "the owner: directory/meta_properties", is_kafkas=True),
    DataFile(
        LOCK_NAME,
        "locked while a broker runs in the directory",
        is_local=True,
        stays_behind=True,
    ),
    DataFile(CLEAN_SHUTDOWN_NAME, "the last stop was clean", is_kafkas=True, is_local=True),
    DataFile(RECOVERY_POINT_NAME, "directory/offset_checkpoints", is_kafkas=True),
    DataFile(LOG_START_NAME, "directory/log_starts", is_kafkas=True),
    DataFile(REPLICATION_NAME, "directory/offset_checkpoints", is_kafkas=True),
    DataFile(CLEANER_NAME, "what is compacted: cleaning/clean_plan", is_kafkas=True),
    DataFile(METADATA_JOURNAL_NAME, "topics, dynamic settings: broker/logs/metadata"),
    DataFile(f"{METADATA_JOURNAL_NAME}.size", "its durable size: broker/logs/durable_size"),
    DataFile(
        FLUSH_JOURNAL_NAME,
        "ends of logs that are not durable in their own files: files/flush_journal",
        stays_behind=True,
        is_outdated=True,
    ),
    DataFile(
        "barnabas-boot-id",
        "the run of the machine, and the mount: opening/last_run",
        is_local=True,
        stays_behind=True,
        is_outdated=True,
    ),
    DataFile(HIGHEST_EPOCH_NAME, "the highest leader epoch that was shown: files/leader_epochs"),
    DataFile(
        "barnabas-start-settings",
        "settings of the last start that decide what is deleted: broker/settings/deletion",
    ),
    DataFile("barnabas-unwritten-markers", "broker/transactions/unwritten_markers"),
    DataFile(
        re.compile(r"barnabas-cuts(\.next)?"),
        "cuts of whole transactions in the past: broker/transactions/cuts",
    ),
    DataFile(
        STANDBY_NOTE_NAME, "the state of a standby's copy: replication/following", is_local=True
    ),
    DataFile(
        LEASE_SESSION_NAME,
        "the last process that held the lease: replication/session_note",
        is_local=True,
        stays_behind=True,
    ),
    DataFile(
        "barnabas-graduated",
        "the directory was handed over to Apache Kafka: directory/graduated",
        stays_behind=True,
    ),
    DataFile(
        "barnabas-graduated.bootstrap",
        "bootstrap.checkpoint, while the directory is brought back: directory/graduated",
    ),
    DataFile(
        "bootstrap.checkpoint",
        "the records with which Apache Kafka begins: directory/graduated",
        is_kafkas=True,
        stays_behind=True,
    ),
    DataFile("server.properties", "settings for Apache Kafka: graduation/steps", is_kafkas=True),
    DataFile("barnabas-unfinished", "a copy that is not complete: graduation/copies"),
    DataFile("barnabas-test-power-losses", "of test control: test_control/forgetful_disk"),
)
_UNDER_WAY = (TEMPORARY_SUFFIX, REPLACING_SUFFIX)
_OF_SEGMENTS = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)


def kind_of(path: str) -> DataFile | None:
    """The kind of a file, by its path in the data directory; None if there is no row for it."""
    directory, _, name = path.rpartition("/")
    name = finished_name(name, of_partition=bool(directory))
    kinds = OF_PARTITION if directory else OF_DIRECTORY
    return next((kind for kind in kinds if kind.has_name(name)), None)


def finished_name(name: str, *, of_partition: bool = True) -> str:
    """A file's name without a suffix for content that is under way, or for the end of a segment."""
    for suffix in (*_UNDER_WAY, *(_OF_SEGMENTS if of_partition else ())):
        name = name.removesuffix(suffix)
    return name


def names_of(kinds: Iterable[DataFile]) -> frozenset[str]:
    """The names of kinds of which each has one name."""
    names = [kind.name for kind in kinds]
    assert all(isinstance(name, str) for name in names), f"one of {names} is a pattern"
    return frozenset(name for name in names if isinstance(name, str))
