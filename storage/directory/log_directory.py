"""What the logs of one data directory share, with each other and with their manager.

attribute        what it is                                             who reads it
disk, data_dir   where everything lies                                  all
cache            which closed segments have their indexes in memory     segments
wall             the wall clock: records are stamped and kept by it,    logs
                 all else runs on the steady `now_ms`
trash            paths of deleted files that go from the disk later     the manager
changed_starts   logs whose log start offset has to be written down     the manager
changed_logs     logs that are not as their last checkpoint says, in    the manager
                 the order in which they came to be so, with the time
builds           indexes that are built in slices                       the manager
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.protocol.wall_clock import WallClock
from barnabas.storage.directory.trash import Trash
from barnabas.storage.disk import Disk
from barnabas.storage.log.segment import (
    DELETED_SUFFIX,
    SEGMENT_SUFFIXES,
    BuildPutOff,
    IndexCache,
    Segment,
)

if TYPE_CHECKING:
    from barnabas.storage.index_builds import IndexBuilds
    from barnabas.storage.log.log import Log


class LogDirectoryError(Exception):
    """The data directory cannot be used; the text says why and what to do."""


class DamagedFlushJournalError(LogDirectoryError):
    """A flush journal is damaged where it was durable: the last of commits may be in it alone."""


@dataclass(slots=True, eq=False)
class LogDirectory:
    """The data directory of a broker as its logs see it; see the module's table."""

    disk: Disk
    data_dir: str
    cache: IndexCache = field(default_factory=IndexCache)
    wall: WallClock = field(default_factory=WallClock)
    trash: Trash = field(default_factory=Trash)
    changed_starts: set[tuple[str, int]] = field(default_factory=set)
    changed_logs: dict[Log, int] = field(default_factory=dict)
    builds: IndexBuilds | None = None

    def build_later(self, put_off: BuildPutOff, then: Callable[[int], None]) -> None:
        """Have an index built in slices; `then(now_ms)` is called when it is, or cannot be."""
        if self.builds is None:
            from barnabas.storage.index_builds import IndexBuilds  # most directories need none

            self.builds = IndexBuilds()
        self.builds.add(put_off, then)

    def path(self, name: str) -> str:
        """The path of a file or directory in the data directory."""
        return f"{self.data_dir}/{name}"

    def partition_path(self, topic: str, partition: int) -> str:
        """The path of a partition's directory."""
        return self.path(f"{topic}-{partition}")

    def discard_segments(self, segments: Iterable[Segment], due_ms: int) -> None:
        """Rename the files of segments that are out of use; they go from the disk at `due_ms`."""
        for segment in segments:
            self.cache.forget(segment)
            for suffix in SEGMENT_SUFFIXES:
                self.discard(segment.path(suffix), due_ms)

    def discard(self, path: str, due_ms: int) -> None:
        """Rename a file that is out of use; it goes from the disk at `due_ms`."""
        try:
            self.disk.rename(path, path + DELETED_SUFFIX)
        except FileNotFoundError:
            return
        self.trash.add(due_ms, path + DELETED_SUFFIX)
