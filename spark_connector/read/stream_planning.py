"""The planner of a streaming query, which decides the offsets of each micro-batch. It runs in the
driver's reader process, and does not need PySpark.

The end of a batch is chosen once, and Spark writes it to the checkpoint. From then on the batch is
fixed as [start, end) of each partition. Under read_committed no end is beyond the last stable
offset. All transactions in a batch are therefore decided when the batch is planned, and a replay
gives the same rows.

Spark writes the end of a query's first batch to the checkpoint, but not its start. If a query
begins at the end of a partition's log, the first batch therefore also ends at that offset and has
no records of the partition. Later records belong to the second batch, even if the query stops in
between.

A topic that was deleted and created again has another id. Offsets are stored with the topic ids
under which they were read. If a topic's id has changed, the query detects by the stored id that the
offsets are invalid. In each batch that has records of a topic, the topic's id is requested after
the ends of the partitions, and again by the tasks that read the topic. There is no check if the
brokers send no ids, or if the offsets have none (those of Spark's own Kafka source).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from barnabas.client.cluster_reader import ClientError, ClusterReader, UnknownTopicError
from barnabas.client.notices import logger
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark_connector.read.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    Offsets,
    divide,
    share_of_limit,
)
from barnabas.spark_connector.read.options import SourceOptions
from barnabas.spark_connector.read.patterns import is_found_in
from barnabas.spark_connector.read.planning import (
    partitions_to_read,
    resolve,
    wait_for_open_transactions,
)
from barnabas.spark_connector.read.reading import (
    DELETED,
    NEVER_THERE,
    NOT_THE_SAME,
    DataLossError,
    not_read,
    topic_recreated,
)

LOG_ENDS_AGE_S = 1  # how old the known ends of logs may be, since an idle query triggers often
OPEN_S = 10  # how long a partition may wait for a transaction before there is a warning


class LogEnds:
    """The ends of the logs beyond their last stable offsets, and how long each partition has been
    waiting for an open transaction.
    """

    def __init__(self, clock: Callable[[], float], hint: str = "") -> None:
        self._clock, self._hint = clock, hint
        self._ends: Offsets = {}
        self._updated_at: float | None = None
        # the last stable offset of each partition that waits, when it was first seen, and whether
        # there was a warning
        self._waiting: dict[TopicPartition, tuple[int, float, bool]] = {}

    @property
    def are_old(self) -> bool:
        """Whether the ends have to be requested again."""
        return self._updated_at is None or self._clock() - self._updated_at >= LOG_ENDS_AGE_S

    def at_least(self, stable: Offsets) -> Offsets:
        """The end of each log, which is not before the last stable offset."""
        return {name: max(offset, self._ends.get(name, 0)) for name, offset in stable.items()}

    def update(self, ends: Offsets, stable: Offsets) -> None:
        """Store the ends. If a partition has been waiting for long, warn of it once."""
        now = self._clock()
        self._ends, self._updated_at = ends, now
        waiting = {}
        for name, offset in stable.items():
            if ends[name] <= offset:
                continue
            before, since, is_warned = self._waiting.get(name, (-1, now, False))
            if before != offset:
                since, is_warned = now, False
            if not is_warned and now - since >= OPEN_S:
                is_warned = True
                logger.warning(
                    "barnabas: %s: the query waits at offset %d, where a transaction has been open "
                    "for %d s and more; %d offsets are behind it%s",
                    name,
                    offset,
                    now - since,
                    ends[name] - offset,
                    self._hint,
                )
            waiting[name] = offset, since, is_warned
        self._waiting = waiting


class StreamPlanner:
    """The planner of one query. It keeps its connections open, and can be pickled only before its
    first use.
    """

    def __init__(
        self, options: SourceOptions, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._clock = clock
        self._client = ClusterReader(options.client)
        self._partitions: list[TopicPartition] = []
        self._partitions_refreshed_at: float | None = None  # when partitions were last requested
        self._initial: Offsets | None = None
        # partitions whose first batch begins at the end of the log, with that offset
        self._empty_in_first_batch: Offsets = {}
        self._newest: Offsets | None = None
        self._log_ends = LogEnds(clock)
        self._target: Offsets | None = None  # the ends at which Trigger.AvailableNow stops
        self._micro_batch_planned_at: float | None = None  # when the end of a batch was last chosen
        self._warned_missing: set[str] = set()
        self._may_be_replay = True  # true until the first batch is planned
        self._last_topic_ids: dict[str, str] = {}  # the topic ids to use for offsets that have none

    def initial(self) -> Offsets:
        """The first offsets of a query without checkpoint, which are the same for each call.

        Raises: OptionError, ClientError; DataLossError if a log ends before a given offset, and
                failOnDataLoss is true.
        """
        if self._initial is None:
            options = self._options
            self._partitions = partitions_to_read(self._client, options.subscription)
            self._partitions_refreshed_at = self._clock()
            # The ends are requested before the starts. A start at the end of a log is then never
            # below this end.
            ends = self._ends(self._partitions) if self._target is None else self._target
            starts = resolve(
                self._client,
                options.starting,
                self._partitions,
                read_committed=options.read_committed,
            )
            if self._target is not None:  # records after the target belong to the next run
                given = self._given_within_the_log(starts, ends)
                starts = given | {
                    name: min(offset, ends[name])
                    for name, offset in starts.items()
                    if name in ends and name not in given
                }
            self._initial = starts
            self._empty_in_first_batch = {
                name: offset for name, offset in starts.items() if offset >= ends[name]
            }
            self._last_topic_ids = dict(self.topic_ids)
        return self._initial

    def _given_within_the_log(self, starts: Offsets, ends: Offsets) -> Offsets:
        """The offsets given in startingOffsets that are beyond the target of
        Trigger.AvailableNow, since a transaction is open before them. An offset that the log does
        not reach is reported as a data loss.
        """
        beyond = [
            name
            for name, offset in self._options.starting.offsets.items()
            if name in ends and offset > ends[name]
        ]
        marks = self._client.offsets_at(dict.fromkeys(beyond, LATEST), read_committed=False)
        for name in beyond:
            if (mark := marks[name] or 0) < starts[name]:
                self._lost(
                    f"the log of {name} ends at {mark}, before startingOffsets, {starts[name]}",
                    why=NEVER_THERE,
                )
        return {name: starts[name] for name in beyond if starts[name] <= (marks[name] or 0)}

    def latest(
        self,
        start: Offsets,
        *,
        topic_ids: Mapping[str, str] = MappingProxyType({}),
        max_offsets: int | None = None,
        min_offsets: int | None = None,
    ) -> Offsets:
        """The end of the next batch. If there are no records, or too few, it is `start` itself.

        If a topic was created again, its partitions end at 0 in this batch, and begin at 0 in the
        next one.

        Takes:  topic_ids, the ids under which `start` was read; max_offsets, the maximum number of
                offsets (but at least one of each partition with records); min_offsets, the minimum
                number, unless the last batch was trigger.max_delay_ms ago.
        Raises: DataLossError if failOnDataLoss is true and partitions are missing, a topic was
                created again, or a log ends before `start`; ClientError.
        """
        starts, newest = self._starts_and_newest(start, topic_ids)
        sizes = {name: max(0, offset - starts[name]) for name, offset in newest.items()}
        if min_offsets is not None and self._is_too_early(sum(sizes.values()), min_offsets):
            return start
        if max_offsets is not None and sum(sizes.values()) > max_offsets:
            newest = self._limited(starts, newest, max_offsets)
        # The time of a run's first batch is stored even if the batch is empty.
        if newest != start or self._micro_batch_planned_at is None:
            self._micro_batch_planned_at = self._clock()
        return newest

    def _limited(self, starts: Offsets, newest: Offsets, max_offsets: int) -> Offsets:
        """The end of a batch that would have more than max_offsets otherwise."""
        sizes = {name: max(0, offset - starts[name]) for name, offset in newest.items()}
        shares = share_of_limit(sizes, max_offsets)
        return {
            name: starts[name] + shares[name] if shares[name] else offset
            for name, offset in newest.items()
        }

    def _starts_and_newest(
        self, start: Offsets, topic_ids: Mapping[str, str]
    ) -> tuple[Offsets, Offsets]:
        """Find the beginning and the possible end of the next batch. Data losses are reported
        first.
        """
        newest = dict(
            self._available(start)
            if self._target is None
            else self._target_for(start, self._target)
        )
        self._refresh_topic_ids(start, newest)
        self._newest = dict(newest)
        self._look_for_open_transactions(newest)
        recreated = self._report_recreated(start, {**self._last_topic_ids, **topic_ids})
        self._last_topic_ids = dict(self.topic_ids)
        self._report_lost(
            {name: offset for name, offset in start.items() if name.topic not in recreated},
            newest,
        )
        starts = start | self._starts_of_new(sorted(newest.keys() - start.keys()))
        for name in [name for name in newest if name.topic in recreated]:
            newest[name] = starts[name] = 0
        # If the query began at the end of a log, records written since then belong to its second
        # batch.
        for name, offset in self._empty_in_first_batch.items():
            if start.get(name) == offset and name in newest:
                newest[name] = offset
        self._empty_in_first_batch = {}
        return starts, newest

    def freeze(self) -> None:
        """Fix the current ends as the target of this run, as Trigger.AvailableNow requires. Later
        records are left to the next run.
        """
        self._target = self._available({})
        self._look_for_open_transactions(self._target)

    @property
    def topic_ids(self) -> dict[str, str]:
        """The ids of topics in the last response to Metadata."""
        return self._client.topic_ids

    @property
    def newest(self) -> Offsets | None:
        """The last known ends of all partitions, for progress reports. Records behind an open
        transaction are before these ends.
        """
        return None if self._newest is None else self._log_ends.at_least(self._newest)

    def ranges(
        self, start: Offsets, end: Offsets, *, topic_ids: Mapping[str, str] = MappingProxyType({})
    ) -> list[OffsetRange]:
        """One range for each task of a batch. The same offsets always give the same ranges.

        A partition that is not in `start` is new and begins at 0. The first batch of a process may
        have been planned by an earlier process. In that case, the ranges are returned only when the
        transactions before the batch's end are decided. Partitions that no longer exist are left
        out, and so are topics whose id differs from topic_ids.

        Raises: DataLossError if partitions are missing and failOnDataLoss is true;
                OpenTransactionError, ClientError.
        """
        options = self._options
        if self._may_be_replay:
            end = self._replayed_end(start, end, topic_ids)
        self._may_be_replay = False
        whole = [OffsetRange(*name, start.get(name, 0), end[name]) for name in sorted(end)]
        return divide(
            whole,
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
        )

    def _replayed_end(self, start: Offsets, end: Offsets, topic_ids: Mapping[str, str]) -> Offsets:
        """Wait until the transactions of a repeated batch have ended. Gives: the end of the batch,
        without lost partitions.
        """
        replayed = {name: offset for name, offset in end.items() if offset > start.get(name, 0)}
        deleted = self._deleted_partitions(replayed)
        for name in deleted:
            where = f"[{start.get(name, 0)}, {replayed.pop(name)})"
            self._lost(
                f"{name} does not exist, and {where} of it is in a batch that is repeated",
                f"{name} {where}",
            )
        for topic in self._recreated({name.topic for name in replayed}, topic_ids):
            names = [name for name in replayed if name.topic == topic]
            deleted += names
            self._lost(
                f"{topic_recreated(topic)}, and a repeated batch has offsets of the former",
                ", ".join(f"{name} [{start.get(name, 0)}, {replayed.pop(name)})" for name in names),
                NOT_THE_SAME,
            )
        if self._options.read_committed:
            end = end | wait_for_open_transactions(
                self._client, replayed, self._options.open_transactions
            )
        return {name: offset for name, offset in end.items() if name not in deleted}

    def close(self) -> None:
        """Close connections."""
        self._client.close()

    def _look_for_open_transactions(self, stable: Offsets) -> None:
        """Request where the logs end, if that may be beyond the last stable offsets. The ends of
        Trigger.AvailableNow are those of its start.
        """
        is_fixed = self._target is not None and stable is not self._target
        if self._options.read_committed and not is_fixed and self._log_ends.are_old:
            ends = self._client.offsets_at(dict.fromkeys(stable, LATEST), read_committed=False)
            self._log_ends.update({name: end or 0 for name, end in ends.items()}, stable)

    # --- topics and partitions

    def _available(self, start: Offsets) -> Offsets:
        """The end of every partition, as far as a reader may read.

        The partitions are requested again after a failure, or if the last request was long ago.
        """
        age_s = self._options.metadata_max_age_ms / 1000
        if (
            self._partitions_refreshed_at is None
            or self._clock() - self._partitions_refreshed_at >= age_s
        ):
            self._refresh_partitions(start)
        try:
            return self._ends(self._partitions)
        except ClientError:
            before = self._partitions
            self._refresh_partitions(start)
            if self._partitions == before:
                raise
            return self._ends(self._partitions)

    def _target_for(self, start: Offsets, target: Offsets) -> Offsets:
        """Add the existing partitions of `start` to the target of Trigger.AvailableNow, and return
        it.

        The target was chosen before the query's offsets were known.
        """
        missing = start.keys() - target.keys()
        if missing:
            self._refresh_partitions(start)
            target.update(self._ends(name for name in self._partitions if name in missing))
        return target

    def _ends(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The end of each partition. For read_committed it is the last stable offset."""
        ends = self._client.offsets_at(
            dict.fromkeys(partitions, LATEST), read_committed=self._options.read_committed
        )
        return {name: offset or 0 for name, offset in ends.items()}

    def _refresh_partitions(self, start: Offsets) -> None:
        """Request the existing topics and partitions again.

        A known topic is considered deleted only if the brokers report it as unknown for some
        seconds, since a broker that has just started may not know it yet.
        """
        partitions = self._find_partitions()
        missing = {name.topic for name in (*start, *self._partitions)} - {
            name.topic for name in partitions
        }
        if missing:
            try:
                self._client.partitions_of(missing)
            except ClientError as error:
                logger.info("barnabas: %s", error)
            partitions = self._find_partitions()
        self._partitions = partitions
        self._partitions_refreshed_at = self._clock()

    def _find_partitions(self) -> list[TopicPartition]:
        """The subscribed partitions that exist now."""
        subscription = self._options.subscription
        if subscription.pattern is not None:
            topics = self._client.topics_matching(subscription.pattern)
            return self._client.partitions_of(topics, missing_ok=True) if topics else []
        if subscription.topics:
            partitions = self._client.partitions_of(subscription.topics, missing_ok=True)
            self._warn_of_missing(set(subscription.topics) - {name.topic for name in partitions})
            return partitions
        existing = self._client.partitions_of(
            {name.topic for name in subscription.partitions}, missing_ok=True
        )
        return sorted(set(existing) & set(subscription.partitions))

    def _deleted_partitions(self, names: Iterable[TopicPartition]) -> list[TopicPartition]:
        """The partitions among `names` that no longer exist. A topic is requested for some seconds
        before it is considered deleted.
        """
        topics = {name.topic for name in names}
        if not topics:
            return []
        try:
            existing = self._client.partitions_of(topics)
        except UnknownTopicError:
            existing = self._client.partitions_of(topics, missing_ok=True)
        return sorted(set(names) - set(existing))

    def _recreated(self, topics: Iterable[str], topic_ids: Mapping[str, str]) -> list[str]:
        """The topics whose id differs from the id in topic_ids."""
        return self._client.recreated_topics(
            {topic: topic_ids[topic] for topic in topics if topic in topic_ids}
        )

    def _refresh_topic_ids(self, start: Offsets, newest: Offsets) -> None:
        """Request the ids of topics with new records.

        The ids are requested after the ends. Otherwise the ends of a topic that was created again
        could be taken for those of the deleted topic.
        """
        topics = {
            name.topic for name, offset in newest.items() if start.get(name, 0) not in (0, offset)
        }
        if topics and self.topic_ids:
            self._client.partitions_of(topics, missing_ok=True)

    def _report_recreated(self, start: Offsets, topic_ids: Mapping[str, str]) -> list[str]:
        """Report topics that the query has read and that were created again since. Their records
        are lost.
        """
        recreated = self._recreated(
            {name.topic for name, offset in start.items() if offset}, topic_ids
        )
        for topic in recreated:
            offsets = ", ".join(
                f"{name} at {start[name]}" for name in sorted(start) if name.topic == topic
            )
            self._lost(
                f"{topic_recreated(topic)}: the query's offsets belong to the former ({offsets})",
                why=NOT_THE_SAME,
            )
            logger.warning("barnabas: topic %r is read from its beginning", topic)
        return recreated

    def _is_subscribed(self, name: TopicPartition) -> bool:
        """Whether the options select the partition."""
        subscription = self._options.subscription
        if subscription.pattern is not None:
            return is_found_in(subscription.pattern, name.topic)
        return name.topic in subscription.topics or name in subscription.partitions

    def _warn_of_missing(self, topics: set[str]) -> None:
        """Warn of each topic that does not exist, once.

        The name in the options may be misspelled, or the topic may not have been created yet.
        """
        for topic in sorted(topics - self._warned_missing):
            logger.warning(
                "barnabas: topic %r does not exist: it is read from its beginning when it exists",
                topic,
            )
        self._warned_missing = topics

    def _starts_of_new(self, names: list[TopicPartition]) -> Offsets:
        """The first offset of new partitions, which is 0. If the first records of a partition were
        already deleted, a data loss is reported.
        """
        if not names:
            return {}
        starts = self._client.offsets_at(dict.fromkeys(names, EARLIEST), read_committed=False)
        for name, start in starts.items():
            if start:
                self._lost(
                    f"{name} is new and begins at offset {start}, not at 0", f"{name} [0, {start})"
                )
        return {name: start or 0 for name, start in starts.items()}

    def _report_lost(self, start: Offsets, newest: Offsets) -> None:
        """Report missing partitions, and logs that end before the query's offset.

        If nothing is lost, and the end is lower only because a transaction is open, `newest` is
        corrected.
        """
        not_there = sorted(start.keys() - newest.keys())
        left_out = [name for name in not_there if not self._is_subscribed(name)]
        deleted = [name for name in not_there if name not in left_out]
        if deleted:
            self._lost(
                f"{', '.join(map(str, deleted))} does not exist, and was read up to offset "
                f"{', '.join(str(start[name]) for name in deleted)}"
            )
        if left_out:
            upto = ", ".join(str(start[name]) for name in left_out)
            option = self._options.subscription.option
            self._lost(
                f"{', '.join(map(str, left_out))} was read up to offset {upto}, and the option "
                f"{option} leaves it out",
                why="name it there again to continue with it",
            )
        behind = [name for name in sorted(newest) if newest[name] < start.get(name, 0)]
        if not behind:
            return
        marks = self._client.offsets_at(dict.fromkeys(behind, LATEST), read_committed=False)
        for name in behind:
            mark = marks[name] or 0
            if mark < start[name]:
                self._lost(
                    f"the log of {name} ends at {mark}, before the query's offset {start[name]}"
                )
            else:
                logger.warning(
                    "barnabas: %s: the query is at offset %d, and from %d on a transaction is "
                    "open: it continues when the transaction ends",
                    name,
                    start[name],
                    newest[name],
                )
                newest[name] = start[name]

    def _lost(self, what: str, where: str | None = None, why: str = DELETED) -> None:
        """Report a data loss by a warning, or by DataLossError if the options require it. Takes:
        where, the offsets that are not read; why, the advice in the error.
        """
        if self._options.fail_on_data_loss:
            raise DataLossError(not_read(what, why))
        logger.warning(
            "barnabas: %s%s (failOnDataLoss=false: the query continues)",
            what,
            f"; {where} is not read" if where else "",
        )

    def _is_too_early(self, available: int, wanted: int) -> bool:
        """Whether to wait for more offsets before the next micro-batch (minOffsetsPerTrigger)."""
        if self._target is not None or available >= wanted or self._micro_batch_planned_at is None:
            return False  # AvailableNow would never read records that are left out now
        return (
            self._clock() - self._micro_batch_planned_at < self._options.trigger.max_delay_ms / 1000
        )
