"""The state that the logs of one data directory share with each other and with their manager.

attribute        used by      meaning
disk, data_dir   all          the location of all files
cache            segments     the closed segments with indexes in memory
wall             logs         the wall clock, for timestamps and retention; everything else uses the
                              steady `now_ms`
trash            the manager  paths of files that are deleted later
changed_starts   the manager  logs whose log start offset has to be stored
changed_logs     the manager  logs that differ from their last checkpoint, in the order of their
                              first change, with its time
builds           the manager  indexes that are being built in slices
has_new_work     the broker   whether the manager may have got work since the broker last asked for
                              its next deadline, because of an append, a look-up or a deletion
unstored_epoch   logs         the highest leader epoch, if there was no space to store it; else None
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from barnabas.protocol.wall_clock import WallClock
from barnabas.storage.disk import Disk, NotWrittenError, is_out_of_resources, not_written
from barnabas.storage.files.leader_epochs import HighestEpoch
from barnabas.storage.files.segment_files import DELETED_SUFFIX, SEGMENT_SUFFIXES
from barnabas.storage.log.trash import Trash
from barnabas.storage.segments.index_builds import IndexBuilds
from barnabas.storage.segments.index_cache import BuildDeferred, IndexCache

if TYPE_CHECKING:
    from barnabas.storage.producers.producer_state import ProducerStateManager
    from barnabas.storage.segments.segment import Segment


class LogDirectoryError(Exception):
    """The data directory cannot be used. The message says why, and what to do."""


class DamagedFlushJournalError(LogDirectoryError):
    """A part of a flush journal that was durable is damaged. It may have been the only copy of
    commits.
    """


class ChangedLog(Protocol):
    """The part of a log's interface that the periodic work uses for logs that differ from their
    last checkpoint.
    """

    unread_bytes: int
    producer_state: ProducerStateManager

    def checkpoint(self) -> None:
        """Write the files that a start after a kill reads instead of the log."""


@dataclass(slots=True, eq=False)
class LogDirectory:
    """The data directory of a broker, as its logs use it; see the module's table."""

    disk: Disk
    data_dir: str
    cache: IndexCache = field(default_factory=IndexCache)
    wall: WallClock = field(default_factory=WallClock)
    trash: Trash = field(default_factory=Trash)
    changed_starts: set[tuple[str, int]] = field(default_factory=set)
    changed_logs: dict[ChangedLog, int] = field(default_factory=dict)
    builds: IndexBuilds | None = None
    has_new_work: bool = False
    unstored_epoch: int | None = None

    def build_later(self, deferred: BuildDeferred, then: Callable[[int], None]) -> None:
        """Build an index in slices. `then(now_ms)` is called when the build has succeeded or
        failed.
        """
        if self.builds is None:
            # imported here, since most directories do not need it

            self.builds = IndexBuilds()
        self.has_new_work = True
        self.builds.add(deferred, then)

    def store_epoch(self) -> None:
        """Store the highest leader epoch durably. This is done before a log gets its first batch of
        that epoch.
        """
        if self.unstored_epoch is not None:
            highest = HighestEpoch(self.disk, self.data_dir)
            try:
                highest.write(self.unstored_epoch)
            except OSError as error:
                if not (
                    isinstance(not_written(error), NotWrittenError)
                    and highest.raise_without_space(self.unstored_epoch)
                ):
                    raise
            self.unstored_epoch = None

    def path(self, name: str) -> str:
        """The path of a file or directory in the data directory."""
        return f"{self.data_dir}/{name}"

    def partition_path(self, topic: str, partition: int) -> str:
        """The path of a partition's directory."""
        return self.path(f"{topic}-{partition}")

    def discard_segments(self, segments: Iterable[Segment], due_ms: int) -> None:
        """Rename the files of unused segments, which are deleted at `due_ms`."""
        for segment in segments:
            self.cache.forget(segment.indexes)
            for suffix in SEGMENT_SUFFIXES:
                self.discard(segment.batches.path(suffix), due_ms)

    def discard(self, path: str, due_ms: int) -> None:
        """Rename an unused file, which is deleted at `due_ms`. If there is no space for the longer
        name, delete it now.
        """
        try:
            self.disk.rename(path, path + DELETED_SUFFIX)
        except FileNotFoundError:
            return
        except OSError as error:
            if not is_out_of_resources(error):
                raise
            self.disk.unlink(path)
            return
        self.trash.add(due_ms, path + DELETED_SUFFIX)
        self.has_new_work = True
