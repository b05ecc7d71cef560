"""The planner of a streaming query that reads whole transactions: each micro-batch begins and ends
at a cut (cuts.py).

    without a limit   a batch ends at the present cut
    with a limit      at the last recorded cut within it, or else at the first one after it
    AvailableNow      the last batch ends at the cut of the start of the run

The end of a batch is in the checkpoint. So a repeated batch has the same rows, however old the
record of its cut is.

The partitions are requested after each cut with new records. A transaction below the cut may have
written to a partition that was created since they were last requested; then the cut is requested
again, with that partition.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from barnabas.client.cluster_reader import ClientError
from barnabas.client.notices import logger
from barnabas.spark_connector.read.cuts import CutReader
from barnabas.spark_connector.read.offsets import LATEST, Offsets
from barnabas.spark_connector.read.options import CutOptions, SourceOptions
from barnabas.spark_connector.read.planning import partitions_to_read, resolve
from barnabas.spark_connector.read.stream_planning import LogEnds, StreamPlanner

HELD_ELSEWHERE = " (it may be open in another partition: `barnabas txn why-stuck` says where)"


class WholeStreamPlanner(StreamPlanner):
    """The planner of a query with wholeTransactions=true."""

    def __init__(
        self, options: SourceOptions, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(options, clock=clock)
        assert options.cuts is not None
        self._cut_options: CutOptions = options.cuts
        self._cuts = CutReader(self._client)
        self._log_ends = LogEnds(clock, HELD_ELSEWHERE)
        self._has_warned_of_halves = False
        self._largest = 0  # the number of offsets of the largest batch that exceeded its limit

    def initial(self) -> Offsets:
        """The first offsets of a query without checkpoint, which are the same for each call.

        If they are chosen now (`latest`, startingCut), the first batch ends there and is empty, so
        that they get into the checkpoint.

        Raises: OptionError, ClientError.
        """
        if self._initial is None:
            options, time_ms = self._options, self._cut_options.starting_ms
            self._partitions = partitions_to_read(self._client, options.subscription)
            self._partitions_refreshed_at = self._clock()
            ends = self._available({}) if self._target is None else self._target
            if time_ms is not None:
                starts = self._cuts.as_of(ends, time_ms, "startingCut")
            elif options.starting.everywhere == LATEST:
                starts = ends
            else:
                starts = resolve(self._client, options.starting, list(ends), read_committed=True)
            starts = {name: min(offset, ends[name]) for name, offset in starts.items()}
            is_chosen_now = time_ms is not None or options.starting.everywhere == LATEST
            self._initial = starts
            self._empty_in_first_batch = dict(starts) if is_chosen_now else {}
            self._last_topic_ids = dict(self.topic_ids)
        return self._initial

    def warn_of_halves(self) -> None:
        """Warn, once, that the query's offsets are no cut: they are of the time before the option
        was set.
        """
        if not self._has_warned_of_halves:
            self._has_warned_of_halves = True
            logger.warning(
                "barnabas: the query's checkpoint is of a time without wholeTransactions: its "
                "next batch may begin with the second halves of transactions whose first halves "
                "were read before; those after it have whole transactions"
            )

    # --- the end of a batch

    def _available(self, start: Offsets) -> Offsets:
        """The present cut of all partitions that exist."""
        age_s = self._options.metadata_max_age_ms / 1000
        if (
            self._partitions_refreshed_at is None
            or self._clock() - self._partitions_refreshed_at >= age_s
        ):
            self._refresh_partitions(start)
        while True:
            partitions = self._partitions
            try:
                ends = self._cuts.newest(partitions, start)
            except ClientError:
                self._refresh_partitions(start)
                if self._partitions == partitions:
                    raise
                continue
            if ends == start:
                return ends
            self._refresh_partitions(start)
            if self._partitions == partitions:
                self._cuts.check(partitions)
                return ends

    def _target_for(self, start: Offsets, target: Offsets) -> Offsets:
        """Move the target of Trigger.AvailableNow to the present cut if it lacks existing
        partitions of `start`. It was chosen before the query's offsets were known.
        """
        if start.keys() - target.keys():
            self._refresh_partitions(start)
            if set(self._partitions) - target.keys():
                target.update(self._available(start))
        return target

    def _limited(self, starts: Offsets, newest: Offsets, max_offsets: int) -> Offsets:
        ends, size = self._cuts.within(starts, newest, max_offsets)
        if size > max_offsets and size > self._largest:
            self._largest = size
            logger.warning(
                "barnabas: the micro-batch has %d offsets, more than maxOffsetsPerTrigger=%d: no "
                "cut is recorded between its beginning and its end, and a batch that ended there "
                "would divide transactions",
                size,
                max_offsets,
            )
        return ends

    def _starts_and_newest(
        self, start: Offsets, topic_ids: Mapping[str, str]
    ) -> tuple[Offsets, Offsets]:
        """Find the beginning and the possible end of the next batch.

        Some partitions may have to stay where they are: those of a first batch whose offsets are
        chosen now, and those of a topic that was created again, which end at 0. Then the others do
        not advance either, since both may have records of one transaction.
        """
        first = self._empty_in_first_batch
        is_first = bool(first) and all(start.get(name) == first[name] for name in first)
        starts, newest = super()._starts_and_newest(start, topic_ids)
        if is_first or any(starts[name] < start.get(name, 0) for name in newest):
            newest = {name: min(starts[name], start[name]) for name in newest if name in start}
        return starts, newest
