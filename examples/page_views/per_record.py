"""Counts as Kafka Streams does: one revision for each record, and a stream time for each task,
independent of how Spark divides the input into batches.

In Kafka Streams the re-keyed records go through a repartition topic. Each of its partitions has a
separate task, which holds the counts of its categories and a stream time: the latest event time
that the task has seen. Here the number of the task is the key of the state, so that the categories
of one task share a stream time, as in Kafka Streams. (If the category were the key, each category
would have its own stream time; with a watermark all categories have the same.) A window accepts
records until the stream time has reached the window's end plus the grace period.
"""

from __future__ import annotations

import heapq
import importlib.metadata
import re
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from page_views import GRACE_MS, WINDOW_MS
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StatefulProcessorHandle

# By default Spark sends the processor to its workers as the name of its module, so that only
# workers with this folder on their path could import it. This call makes it send the code itself.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

MINIMUM_PROTOBUF = (6, 33, 5)
COUNTS = "category string, window_start_ms long, count long, time_ms long, stream_time_ms long"


class Revision(NamedTuple):
    """The effect of one record on its window.

    count: None if the record was too late. time_ms: the record's time; None for a final result.
    """

    category: str
    window_start_ms: int
    count: int | None  # type: ignore[assignment]  # a tuple has a method of this name
    time_ms: int | None
    stream_time_ms: int


def is_too_late(revision: Revision) -> bool:
    return revision.count is None


class TaskCounts:
    """The stream time and the open windows of one task. The class does not use Spark, and its
    results do not depend on how the input is divided into batches.
    """

    def __init__(
        self,
        stream_time_ms: int | None,
        counts: dict[tuple[str, int], int],
        *,
        window_ms: int,
        grace_ms: int,
    ) -> None:
        self.stream_time_ms = stream_time_ms
        self.counts = counts
        self._window_ms = window_ms
        self._grace_ms = grace_ms

    def add(self, category: str, time_ms: int) -> Revision:
        """Count one view. The record first advances the stream time, which then decides whether its
        window is still open.
        """
        self.stream_time_ms = now = (
            time_ms if self.stream_time_ms is None else max(self.stream_time_ms, time_ms)
        )
        start = time_ms - time_ms % self._window_ms
        if self._is_closed(start):
            return Revision(category, start, None, time_ms, now)
        count = self.counts.get((category, start), 0) + 1
        self.counts[category, start] = count
        return Revision(category, start, count, time_ms, now)

    def close(self) -> list[Revision]:
        """Remove the windows that are now closed. Gives: their final counts."""
        closed = sorted(
            (start, category) for category, start in self.counts if self._is_closed(start)
        )
        return [
            Revision(
                category, start, self.counts.pop((category, start)), None, self.stream_time_ms or 0
            )
            for start, category in closed
        ]

    def _is_closed(self, start: int) -> bool:
        """Whether the window that begins at that time is over, including its grace period."""
        return (
            self.stream_time_ms is not None
            and start + self._window_ms + self._grace_ms <= self.stream_time_ms
        )


class PerRecord(StatefulProcessor):  # type: ignore[misc]
    """A task's counts, loaded from Spark's state at the beginning of a batch and stored at its end.

    Takes:  only_final, whether to emit each window only once, when it is closed, as Kafka Streams'
            suppress does. Records that are too late are emitted in both cases.
    """

    def __init__(self, *, only_final: bool) -> None:
        self._only_final = only_final

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state that Spark keeps for each task: the stream time, and the counts of open
        windows.
        """
        self._stream_time = handle.getValueState("stream_time", "ms long")
        self._counts = handle.getMapState(
            "counts", "category string, window_start_ms long", "count long"
        )

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Count the records of a micro-batch for one task. Gives: each revision; or, if only final
        counts are requested, those of closed windows and the records that came too late.
        """
        before = {(row[0], row[1]): count[0] for row, count in self._counts.iterator()}
        stream_time = self._stream_time.get()
        task = TaskCounts(
            stream_time[0] if stream_time else None,
            dict(before),
            window_ms=WINDOW_MS,
            grace_ms=GRACE_MS,
        )
        revisions = [task.add(row.category, row.time_ms) for row in in_order(rows)]
        final = task.close()
        self._store(task, before)
        emitted = [*filter(is_too_late, revisions), *final] if self._only_final else revisions
        return (Row(**revision._asdict()) for revision in emitted)

    def _store(self, task: TaskCounts, before: dict[tuple[str, int], int]) -> None:
        """Write the changed counts to Spark's state, and remove those of closed windows."""
        self._stream_time.update((task.stream_time_ms,))
        for window in before.keys() - task.counts.keys():
            self._counts.removeKey(window)
        for window, count in task.counts.items():
            if before.get(window) != count:
                self._counts.updateValue(window, (count,))

    def close(self) -> None:
        """Do nothing, since this class holds no resources."""


def in_order(rows: Iterable[Row]) -> Iterator[Row]:
    """Return the rows of a batch in the order in which a task of Kafka Streams reads them.

    Each partition is read in its order. The next row is always that with the earliest time among
    the partitions.

    Shuffles do not preserve an order. This order depends only on the rows, so a repeated batch
    gives the same revisions.
    """
    partitions: dict[int, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.offset):
        partitions.setdefault(row.partition, []).append(row)
    return heapq.merge(
        *(partitions[number] for number in sorted(partitions)), key=lambda row: row.time_ms
    )


def counted_per_record(views: DataFrame, *, tasks: int, only_final: bool = False) -> DataFrame:
    """Count the views, and return revisions or final counts with the columns of `Revision`.

    Takes:  tasks, the number of tasks among which the categories are divided; it must not change
            while the query has state.
    Raises: SystemExit if protobuf is missing.
    """
    require_protobuf()
    by_task = views.withColumn("task", F.pmod(F.hash("category"), F.lit(tasks))).groupBy("task")
    # The output mode is append although counts are updated, since each revision is emitted only
    # once.
    return by_task.transformWithState(PerRecord(only_final=only_final), COUNTS, "Append", "None")


def require_protobuf() -> None:
    """Raise SystemExit, which names the package to install, if protobuf is missing."""
    wanted = ".".join(map(str, MINIMUM_PROTOBUF))
    try:
        version = importlib.metadata.version("protobuf")
    except importlib.metadata.PackageNotFoundError:
        version = "none"
    if tuple(int(part) for part in re.findall(r"\d+", version)[:3]) < MINIMUM_PROTOBUF:
        raise SystemExit(
            f"Spark's transformWithState needs protobuf {wanted} or later, found {version}: pip "
            f"install 'protobuf>={wanted}'"
        )
