"""The planner of a streaming query, which decides which offsets each micro-batch covers. It lives
in the driver's reader process; PySpark is not needed here.

A batch's end is chosen once, written to the checkpoint by Spark, and from then on the batch is
[start, end) of each partition for ever. Under read_committed no end is beyond the last stable
offset, so that all of a batch is decided when it is planned, and a replay gives the same rows.

The start of a query's first batch is not written to the checkpoint, only its end is. So where a
query begins at the end of a partition's log, the first batch ends there too and has nothing of it:
what comes later belongs to the second batch, also if the query stops in between.

A topic that was deleted and made again has another id. Offsets carry the ids that they were read
under, so a query notices that under another id they mean nothing: ids are asked for after the ends
of each batch that has something of a topic, and again by the tasks that read it. Brokers that give
no ids, and offsets without (those of Spark's own Kafka source), change nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.spark_connector.client import Client, ClientError, UnknownTopicError
from barnabas.spark_connector.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    Offsets,
    divide,
    share_of_limit,
)
from barnabas.spark_connector.options import SourceOptions
from barnabas.spark_connector.patterns import is_found_in
from barnabas.spark_connector.planning import (
    partitions_to_read,
    resolve,
    wait_for_open_transactions,
)
from barnabas.spark_connector.reading import (
    DELETED,
    NOT_THE_SAME,
    DataLossError,
    not_read,
    topic_recreated,
)
from barnabas.spark_connector.user_messages import logger


class StreamPlanner:
    """The planner of one query, which keeps its connections; an unused one can be pickled."""

    def __init__(
        self, options: SourceOptions, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._clock = clock
        self._client = Client(options.client)
        self._partitions: list[TopicPartition] = []
        self._partitions_refreshed_at: float | None = None  # when partitions were last asked for
        self._initial: Offsets | None = None
        self._empty_in_first_batch: Offsets = {}  # where the first batch begins at the end of a log
        self._newest: Offsets | None = None
        self._target: Offsets | None = None  # with Trigger.AvailableNow
        self._micro_batch_planned_at: float | None = None  # when an end was last chosen
        self._warned_missing: set[str] = set()
        self._may_be_replay = True  # until the first batch was planned
        self._last_topic_ids: dict[str, str] = {}  # by topic, for offsets that carry none

    def initial(self) -> Offsets:
        """Where a query without checkpoint begins: the same offsets at each call.

        Raises: OptionError, ClientError.
        """
        if self._initial is None:
            options = self._options
            self._partitions = partitions_to_read(self._client, options.subscription)
            self._partitions_refreshed_at = self._clock()
            # Asked for before the beginning is: a beginning at the end of a log is then never taken
            # for one before it.
            ends = self._ends(self._partitions) if self._target is None else self._target
            starts = resolve(
                self._client,
                options.starting,
                self._partitions,
                read_committed=options.read_committed,
            )
            if self._target is not None:  # what came after it was chosen is for the next run
                starts = {
                    name: min(offset, ends[name]) for name, offset in starts.items() if name in ends
                }
            self._initial = starts
            self._empty_in_first_batch = {
                name: offset for name, offset in starts.items() if offset >= ends[name]
            }
            self._last_topic_ids = dict(self.topic_ids)
        return self._initial

    def latest(
        self,
        start: Offsets,
        *,
        topic_ids: Mapping[str, str] = MappingProxyType({}),
        max_offsets: int | None = None,
        min_offsets: int | None = None,
    ) -> Offsets:
        """Where the next batch ends; `start` itself where there is nothing, or not yet enough.

        A topic that was made again since is set back: its partitions end at 0, and begin there in
        the next batch.

        Takes:  topic_ids, under which `start` was read; max_offsets, how many to take at most (one
                of each partition that has any, at least); min_offsets, how many have to be there
                unless the last batch is trigger.max_delay_ms ago.
        Raises: DataLossError where partitions are gone, or a topic was made again, or their log
                ends before `start`, and failOnDataLoss is true; ClientError.
        """
        starts, newest = self._starts_and_newest(start, topic_ids)
        sizes = {name: max(0, offset - starts[name]) for name, offset in newest.items()}
        if min_offsets is not None and self._is_too_early(sum(sizes.values()), min_offsets):
            return start
        if max_offsets is not None:
            shares = share_of_limit(sizes, max_offsets)
            newest = {
                name: starts[name] + shares[name] if shares[name] else offset
                for name, offset in newest.items()
            }
        # The first batch of a run counts, too, where it is empty.
        if newest != start or self._micro_batch_planned_at is None:
            self._micro_batch_planned_at = self._clock()
        return newest

    def _starts_and_newest(
        self, start: Offsets, topic_ids: Mapping[str, str]
    ) -> tuple[Offsets, Offsets]:
        """Where the next batch begins and where it may end, once losses were reported."""
        newest = dict(
            self._available(start)
            if self._target is None
            else self._target_for(start, self._target)
        )
        self._refresh_topic_ids(start, newest)
        self._newest = dict(newest)
        recreated = self._report_recreated(start, {**self._last_topic_ids, **topic_ids})
        self._last_topic_ids = dict(self.topic_ids)
        self._report_lost(
            {name: offset for name, offset in start.items() if name.topic not in recreated},
            newest,
        )
        starts = start | self._starts_of_new(sorted(newest.keys() - start.keys()))
        for name in [name for name in newest if name.topic in recreated]:
            newest[name] = starts[name] = 0
        # What came since the query began at the end of a log is for its second batch.
        for name, offset in self._empty_in_first_batch.items():
            if start.get(name) == offset and name in newest:
                newest[name] = offset
        self._empty_in_first_batch = {}
        return starts, newest

    def freeze(self) -> None:
        """Leave what comes from now on to the next run: Trigger.AvailableNow."""
        self._target = self._available({})

    @property
    def topic_ids(self) -> dict[str, str]:
        """The ids of topics, as brokers gave them last."""
        return self._client.topic_ids

    @property
    def newest(self) -> Offsets | None:
        """The ends of all partitions as they were seen last, for progress reports."""
        return self._newest

    def ranges(
        self, start: Offsets, end: Offsets, *, topic_ids: Mapping[str, str] = MappingProxyType({})
    ) -> list[OffsetRange]:
        """One range for each task of a batch: the same for the same offsets, whenever and wherever.

        A partition that is not in `start` is a new one and begins at 0. The first batch of a
        process may be one that was planned before it: its end is then made sure to be decided, and
        what is gone meanwhile is left out. So is what is of a topic that had another id, in
        topic_ids.
        Raises: DataLossError where something is gone and failOnDataLoss is true;
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
        """The end of a repeated batch without lost partitions, once its transactions ended."""
        replayed = {name: offset for name, offset in end.items() if offset > start.get(name, 0)}
        deleted = self._deleted_partitions(replayed)
        for name in deleted:
            where = f"[{start.get(name, 0)}, {replayed.pop(name)})"
            self._lost(
                f"{name} is gone, and {where} of it is in a batch that is run again",
                f"{name} {where}",
            )
        for topic in self._recreated({name.topic for name in replayed}, topic_ids):
            names = [name for name in replayed if name.topic == topic]
            deleted += names
            self._lost(
                f"{topic_recreated(topic)}, and offsets of the former are in a batch that is run "
                "again",
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

    # --- what there is

    def _available(self, start: Offsets) -> Offsets:
        """The end of every partition, as far as a reader sees.

        Partitions are looked for when that was long ago, or something fails.
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
        """The target of Trigger.AvailableNow, with what it lacks of `start`, if that exists.

        It was chosen before the query's offsets were known.
        """
        missing = start.keys() - target.keys()
        if missing:
            self._refresh_partitions(start)
            target.update(self._ends(name for name in self._partitions if name in missing))
        return target

    def _ends(self, partitions: Iterable[TopicPartition]) -> Offsets:
        ends = self._client.offsets_at(
            dict.fromkeys(partitions, LATEST), read_committed=self._options.read_committed
        )
        return {name: offset or 0 for name, offset in ends.items()}

    def _refresh_partitions(self, start: Offsets) -> None:
        """Look for new topics and partitions.

        A topic that was there counts as gone only when the brokers have not known it for some
        seconds: one that starts may not know it yet.
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
        topics = {name.topic for name in names}
        if not topics:
            return []
        try:
            existing = self._client.partitions_of(topics)
        except UnknownTopicError:
            existing = self._client.partitions_of(topics, missing_ok=True)
        return sorted(set(names) - set(existing))

    def _recreated(self, topics: Iterable[str], topic_ids: Mapping[str, str]) -> list[str]:
        """Which topics have another id by now."""
        return self._client.recreated_topics(
            {topic: topic_ids[topic] for topic in topics if topic in topic_ids}
        )

    def _refresh_topic_ids(self, start: Offsets, newest: Offsets) -> None:
        """Ask for the ids of topics that have something new.

        After their ends: those of a topic that was made again would be taken for the former's.
        """
        topics = {
            name.topic for name, offset in newest.items() if start.get(name, 0) not in (0, offset)
        }
        if topics and self.topic_ids:
            self._client.partitions_of(topics, missing_ok=True)

    def _report_recreated(self, start: Offsets, topic_ids: Mapping[str, str]) -> list[str]:
        """Report the topics of which something was read and that were made again since, as lost."""
        recreated = self._recreated(
            {name.topic for name, offset in start.items() if offset}, topic_ids
        )
        for topic in recreated:
            offsets = ", ".join(
                f"{name} at {start[name]}" for name in sorted(start) if name.topic == topic
            )
            self._lost(
                f"{topic_recreated(topic)}: the query's offsets are of the former ({offsets})",
                why=NOT_THE_SAME,
            )
            logger.warning("barnabas: topic %r is read from its beginning", topic)
        return recreated

    def _is_subscribed(self, name: TopicPartition) -> bool:
        subscription = self._options.subscription
        if subscription.pattern is not None:
            return is_found_in(subscription.pattern, name.topic)
        return name.topic in subscription.topics or name in subscription.partitions

    def _warn_of_missing(self, topics: set[str]) -> None:
        """Warn of topics that do not exist, once of each.

        It may be a misspelled one that was added to a query with a checkpoint, or one that is yet
        to be made.
        """
        for topic in sorted(topics - self._warned_missing):
            logger.warning(
                "barnabas: topic %r does not exist: it is read from its beginning when it is there",
                topic,
            )
        self._warned_missing = topics

    def _starts_of_new(self, names: list[TopicPartition]) -> Offsets:
        """Where new partitions begin: at 0; records that were deleted before that are lost."""
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
        """Report partitions that are gone, and logs that end before the query's offset.

        `newest` is corrected where nothing is lost.
        """
        not_there = sorted(start.keys() - newest.keys())
        left_out = [name for name in not_there if not self._is_subscribed(name)]
        deleted = [name for name in not_there if name not in left_out]
        if deleted:
            self._lost(
                f"{', '.join(map(str, deleted))} is gone, and was read up to offset "
                f"{', '.join(str(start[name]) for name in deleted)}"
            )
        if left_out:
            upto = ", ".join(str(start[name]) for name in left_out)
            option = self._options.subscription.option
            self._lost(
                f"{', '.join(map(str, left_out))} was read up to offset {upto}, and the option "
                f"{option} leaves it out",
                why="name it there again to go on with it",
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
                    "open: it goes on when that is decided",
                    name,
                    start[name],
                    newest[name],
                )
                newest[name] = start[name]

    def _lost(self, what: str, where: str | None = None, why: str = DELETED) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(not_read(what, why))
        logger.warning(
            "barnabas: %s%s (failOnDataLoss=false: the query goes on)",
            what,
            f"; {where} is not read" if where else "",
        )

    def _is_too_early(self, available: int, wanted: int) -> bool:
        if self._target is not None or available >= wanted or self._micro_batch_planned_at is None:
            return False  # what AvailableNow does not take now it would never take
        return (
            self._clock() - self._micro_batch_planned_at < self._options.trigger.max_delay_ms / 1000
        )
