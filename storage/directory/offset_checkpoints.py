"""The checkpoints of a data directory. Each has an offset of every partition, in a file that is
replaced.

    recovery-point-offset-checkpoint    everything below is durable in the log's own files
    log-start-offset-checkpoint         the log's start, if not 0
    replication-offset-checkpoint       the high watermark

A file is durable when `write` returns, or at the end of the steps of `replace`, which writes it to
`<name>.new` first. The table in the docstring of `checkpoints` describes its format.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING

from barnabas.storage.disk import (
    REPLACING_SUFFIX,
    DirectorySync,
    Disk,
    FileSync,
    Syncable,
    SyncSteps,
)
from barnabas.storage.files.checkpoints import (
    LOG_START_NAME,
    RECOVERY_POINT_NAME,
    REPLICATION_NAME,
    CorruptCheckpoint,
    Offsets,
    decode_offsets,
    encode_offsets,
    encode_rows,
    offset_row,
)

if TYPE_CHECKING:
    from barnabas.storage.log.log import Log

ENCODED_AT_ONCE = 5000  # logs handled in one step, which takes 10 ms

logger = logging.getLogger(__name__)


class OffsetCheckpoints:
    """The offset checkpoints of one data directory. A file that has not changed is not written.

    _contents: the content of each file, as last read or written. _under_way: for each file that
    `replace` has not renamed yet, the number of the attempt.
    """

    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk = disk
        self._data_dir = data_dir
        self._contents: dict[str, bytes] = {}
        self._under_way: dict[str, int] = {}
        self._attempt_count = 0

    def read(self, name: str) -> Offsets | None:
        """Read the offsets of a checkpoint; None if it is missing or damaged."""
        path = f"{self._data_dir}/{name}"
        try:
            data = self._disk.read(path)
            offsets = decode_offsets(data)
        except FileNotFoundError:
            return None
        except CorruptCheckpoint as error:
            logger.warning(
                "%s cannot be used (%s): the logs are checked from an earlier offset", path, error
            )
            return None
        self._contents[name] = data
        return offsets

    def write(self, name: str, offsets: Offsets, *, force: bool = False, sync: bool = True) -> None:
        """Write a checkpoint, if its content changes or `force` is set."""
        data = encode_offsets(offsets)
        if self._under_way.pop(name, None) is not None:  # its new file has older content
            self._disk.unlink(self._new_path(name))
        if force or self._contents.get(name) != data:
            self._disk.write_atomic(f"{self._data_dir}/{name}", data, sync=sync)
            self._contents[name] = data

    def replace_offsets(
        self,
        logs: Mapping[tuple[str, int], Log],
        offline_points: Offsets,
        starts: Callable[[], Offsets] | None,
    ) -> Generator[Sequence[Syncable], None, Offsets]:
        """Write recovery points, high watermarks and given `starts` in steps, each for some of the
        logs.

        Gives:  the recovery points.
        """
        points: Offsets = {}
        rows: list[str] = []
        watermarks: list[str] = []
        for number, (key, log) in enumerate(list(logs.items()), 1):
            if number % ENCODED_AT_ONCE == 0:
                yield []
            if logs.get(key) is log and log.files.are_made:
                points[key] = log.durability.recovery_point
                rows.append(offset_row(key, points[key]))
                watermarks.append(offset_row(key, log.high_watermark))
        # These points are read last, since a log may go offline between two steps.
        rows[:0] = [offset_row(*item) for item in offline_points.items() if item[0] not in points]
        points = offline_points | points
        contents = {
            RECOVERY_POINT_NAME: encode_rows(rows),
            REPLICATION_NAME: encode_rows(watermarks),
        }
        # The log starts are read without a pause before `replace` compares them, since `write` may
        # have stored others in between.
        if starts is not None:
            contents[LOG_START_NAME] = encode_offsets(starts())
        yield from self.replace(contents)
        return points

    def replace(self, contents: Mapping[str, bytes]) -> SyncSteps:
        """Write the checkpoints that change, in steps. If `write` stores one of them between two
        steps, the content that it stored is kept.
        """
        changed = {
            name: data for name, data in contents.items() if self._contents.get(name) != data
        }
        self._attempt_count += 1
        attempt = self._attempt_count
        for name, data in changed.items():
            self._disk.write_atomic(self._new_path(name), data, sync=False)
            self._under_way[name] = attempt
        if not changed:
            return
        yield [FileSync(self._disk, self._new_path(name)) for name in changed]
        for name, data in changed.items():
            if self._under_way.get(name) == attempt:
                del self._under_way[name]
                self._disk.rename(self._new_path(name), f"{self._data_dir}/{name}")
                self._contents[name] = data
        yield [DirectorySync(self._disk, self._data_dir)]

    def _new_path(self, name: str) -> str:
        return f"{self._data_dir}/{name}{REPLACING_SUFFIX}"
