"""ListOffsets: the first and last offsets of a log, and the offset for a timestamp."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.admission.guard_steps import each, rule
from barnabas.broker.admission.rights import DESCRIBE, TOPIC
from barnabas.broker.api_row import ApiRow
from barnabas.broker.brokers.cluster import Cluster
from barnabas.broker.lazy import Lazy
from barnabas.broker.outbox import PARKED, Parked
from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.requests.wide_requests import Level, Repeats, Shape, of_partitions
from barnabas.broker.settings.config import BrokerConfig
from barnabas.protocol.api import Api
from barnabas.protocol.cut_times import AT_OR_BEFORE, asks_for_cut
from barnabas.protocol.errors import Code, KafkaError, detached
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.records import NO_LEADER_EPOCH
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_reader import Isolation, reading
from barnabas.storage.log.time_lookup import offset_for_timestamp, offset_of_max_timestamp
from barnabas.storage.segments.index_cache import BuildDeferred
from barnabas.storage.segments.time_search import Searched, SearchResult, SearchTakesLong

if TYPE_CHECKING:
    from barnabas.broker.coordinators import Coordinators
    from barnabas.broker.transactions.cuts import Cuts

logger = logging.getLogger("barnabas.broker")

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
EARLIEST_PENDING_UPLOAD = -6
KNOWN_SINCE = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
NOT_FOUND = (-1, -1, -1)
TIMES_SINCE, ISOLATION_SINCE, LEADER_EPOCH_SINCE = 1, 2, 4
MOST_BYTES_IN_MEMORY = (
    8 << 20
)  # maximum bytes of batches that one request's searches hold in memory, besides the first batch


class DeferredWork(NamedTuple):
    """The deferred work that a response waits for: the reading of the recorded cuts, builds of
    indexes, and searches of batches. They are done one after the other, in this order.
    """

    searches: list[tuple[Log, SearchTakesLong]]
    builds: list[BuildDeferred]
    readings: list[Cuts]

    def __bool__(self) -> bool:
        return bool(self.searches or self.builds or self.readings)


class ListOffsetsHandler:
    """Answers ListOffsets at once, or after another thread has done long searches."""

    __slots__ = (
        "_cluster",
        "_config",
        "_coordinators",
        "_logs",
        "_requests",
    )

    def __init__(
        self,
        config: BrokerConfig,
        requests: Requests,
        cluster: Cluster,
        logs: LogManager,
        coordinators: Lazy[Coordinators],
    ) -> None:
        self._config = config
        self._coordinators = coordinators
        self._requests = requests
        self._cluster = cluster
        self._logs = logs

    def on_list_offsets(
        self, request: ListOffsetsRequest, context: RequestContext
    ) -> ListOffsetsResponse | Parked:
        """One offset for each requested partition.

        Timestamps: -1 latest (the last stable offset for isolation level 1), -2 earliest, -3 the
        offset of the highest timestamp (7+), -4 earliest local (8+), -5 latest tiered (9+), -6
        earliest to be tiered (11+), any other value the first record at or after that time, in ms.
        A value of `protocol/cut_times.py` means a recorded cut of whole transactions; in a topic
        without them it is refused with UNSUPPORTED_FOR_MESSAGE_FORMAT, which clients take for "no
        offset". Errors: UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
        UNSUPPORTED_VERSION for kinds that the version does not know, INVALID_REQUEST for a
        partition named twice, CORRUPT_MESSAGE where a file is damaged, UNKNOWN_SERVER_ERROR, as in
        Apache Kafka, for an unknown isolation level. Version 0, which is older than the timestamps
        of records, uses the starts of segments.

        If a batch takes long to search, the request is parked while a thread searches it. Then all
        offsets are looked up again, with the results of the searches, so that all are valid at the
        time of the response.
        """
        searched: dict[Log, Searched] = {}
        answer, deferred = self._answer(request, context, searched)
        if deferred:
            self._requests.park(context, keeps_request=True)
            self._go_on_later(request, context, searched, deferred)
            return PARKED
        return answer

    def _go_on_later(
        self,
        request: ListOffsetsRequest,
        context: RequestContext,
        searched: dict[Log, Searched],
        deferred: DeferredWork,
    ) -> None:
        """Answer when the deferred work is done, of which this begins the first."""
        if not deferred.builds and not deferred.readings:
            self._search_elsewhere(request, context, searched, deferred.searches)
            return

        def on_done(now_ms: int) -> None:
            if self._requests.is_waited_for(context):
                self._requests.go_on(
                    context, lambda: self._answer_later(request, context, searched)
                )

        if deferred.readings:
            deferred.readings[0].when_read(on_done)
        else:
            self._logs.log_dir.build_later(deferred.builds[0], on_done)

    def _answer_later(
        self,
        request: ListOffsetsRequest,
        context: RequestContext,
        searched: dict[Log, Searched],
    ) -> None:
        """Look all rows up again; answer, or wait for further deferred work."""
        answer, deferred = self._answer(request, context, searched)
        if deferred:
            self._go_on_later(request, context, searched, deferred)
        else:
            self._requests.reply(context.ticket, answer)

    def _search_elsewhere(
        self,
        request: ListOffsetsRequest,
        context: RequestContext,
        searched: dict[Log, Searched],
        deferred: list[tuple[Log, SearchTakesLong]],
    ) -> None:
        """Let the worker search the batches that take long, then look all rows up again with the
        results.
        """

        def run() -> list[SearchResult]:
            return [search.run() for _, search in deferred]

        def done(results: list[SearchResult], now_ms: int) -> None:
            if not self._requests.is_waited_for(context):
                return
            for (log, search), result in zip(deferred, results, strict=True):
                searched[log][search.name] = result
            self._answer_later(request, context, searched)

        self._requests.run_elsewhere(context, run, done)

    def _answer(
        self,
        request: ListOffsetsRequest,
        context: RequestContext,
        searched: dict[Log, Searched],
    ) -> tuple[ListOffsetsResponse, DeferredWork]:
        """The response for the present state of the logs. It is not valid if searches or builds
        were deferred.
        """
        if context.api_version < TIMES_SINCE:
            try:
                with self._logs.cache.deferring_builds():
                    return self._by_segments(request, context), DeferredWork([], [], [])
            except BuildDeferred as build:
                return ListOffsetsResponse(), DeferredWork([], [detached(build)], [])
        return self._by_times(request, context, searched)

    def _by_times(
        self,
        request: ListOffsetsRequest,
        context: RequestContext,
        searched: dict[Log, Searched],
    ) -> tuple[ListOffsetsResponse, DeferredWork]:
        """The response for version 1 and later, which looks up offsets by timestamp."""
        topics_here = self._cluster.topics_here(context)
        deferred = DeferredWork([], [], [])
        left_bytes = MOST_BYTES_IN_MEMORY
        counts = Counter(
            TopicPartition(topic.name, partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
        )
        topics = []
        for topic in request.topics:
            rows = []
            for partition in self._partitions(topic):
                code, result = Code.NONE, NOT_FOUND
                try:
                    if counts[TopicPartition(topic.name, partition.partition_index)] > 1:
                        raise KafkaError(Code.INVALID_REQUEST)
                    _check_kind(partition.timestamp, context.api_version)
                    committed = _is_committed(request, context.api_version)
                    log = topics_here.fenced_partition(
                        topic.name, partition.partition_index, partition.current_leader_epoch
                    )
                    if partition.timestamp >= AT_OR_BEFORE and asks_for_cut(partition.timestamp):
                        cuts = self._cuts_of(log)
                        if cuts.try_read():
                            result = _at_cut(log, cuts, partition.timestamp)
                        else:
                            deferred.readings.append(cuts)
                    elif left_bytes > 0:
                        known = searched.setdefault(log, {})
                        with self._logs.cache.deferring_builds():
                            result = _look_up(log, partition.timestamp, known, committed=committed)
                except SearchTakesLong as search:
                    deferred.searches.append((log, detached(search)))
                    left_bytes -= search.data_bytes
                except BuildDeferred as build:
                    deferred.builds.append(detached(build))
                    left_bytes = 0
                except (KafkaError, CorruptLog) as error:
                    code = _code_of(error)
                timestamp, offset, leader_epoch = result
                if context.api_version < LEADER_EPOCH_SINCE:
                    leader_epoch = NO_LEADER_EPOCH
                rows.append(
                    ListOffsetsPartitionResponse(
                        partition.partition_index, code, None, timestamp, offset, leader_epoch
                    )
                )
            topics.append(ListOffsetsTopicResponse(topic.name, rows))
        return ListOffsetsResponse(topics=topics), deferred

    def _cuts_of(self, log: Log) -> Cuts:
        """The recorded cuts, which have offsets of logs with whole transactions."""
        if not log.is_whole:
            raise KafkaError(
                Code.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                f"{log!r} has no cuts: its topic is without barnabas.transactions.whole",
            )
        return self._coordinators.get().cuts

    def _partitions(self, topic: ListOffsetsTopic) -> Iterable[ListOffsetsPartition]:
        """The partitions in the response. A partition that the request repeats gets an error: once,
        or, in some releases, for each repetition.
        """
        if self._config.release.names_doubled_offsets:
            return topic.partitions
        return {partition.partition_index: partition for partition in topic.partitions}.values()

    def _by_segments(
        self, request: ListOffsetsRequest, context: RequestContext
    ) -> ListOffsetsResponse:
        """The response for version 0, which looks up offsets by the starts of segments. Errors:
        UNKNOWN_TOPIC_OR_PARTITION.
        """
        topics_here = self._cluster.topics_here(context)
        topics = []
        for topic in request.topics:
            rows = []
            for partition in topic.partitions:
                index = partition.partition_index
                try:
                    log = topics_here.fenced_partition(topic.name, index, NO_LEADER_EPOCH)
                    with reading(log):
                        offsets = _segments_before(
                            log, partition.timestamp, partition.max_num_offsets
                        )
                    rows.append(ListOffsetsPartitionResponse(index, Code.NONE, offsets))
                except (KafkaError, CorruptLog) as error:
                    rows.append(ListOffsetsPartitionResponse(index, _code_of(error)))
            topics.append(ListOffsetsTopicResponse(topic.name, rows))
        return ListOffsetsResponse(topics=topics)


def _code_of(error: KafkaError | CorruptLog) -> Code:
    """The code of a partition's error. For a damaged file it is CORRUPT_MESSAGE, as in Apache
    Kafka, which clients do not retry for ever.
    """
    if isinstance(error, KafkaError):
        return error.code
    logger.error("ListOffsets cannot read a log: %s", error)
    return Code.CORRUPT_MESSAGE


def _check_kind(timestamp: int, version: int) -> None:
    """Raise KafkaError UNSUPPORTED_VERSION for a kind of offset that the version does not know."""
    if timestamp < 0 and version < KNOWN_SINCE.get(timestamp, 1 << 15):
        raise KafkaError(Code.UNSUPPORTED_VERSION)


def _segments_before(log: Log, timestamp: int, most: int) -> list[int]:
    """The start offsets of the last `most` segments, the latest first.

    Takes: timestamp, a time, which selects the segments that existed then, by the timestamps of
           their records; or -1 for all segments and the end of the log; or -2 for only the
           first segment.
    """
    for segment in log.segments:
        segment.indexes.load_times()
    known = [
        (max(segment.base_offset, log.log_start_offset), segment.indexes.max_timestamp)
        for segment in log.segments
    ]
    if log.log_end_offset > known[-1][0]:
        known.append((log.log_end_offset, sys.maxsize))
    if timestamp == EARLIEST:
        known = known[:1]
    elif timestamp != LATEST:
        known = [row for row in known if row[1] <= timestamp]
    return [offset for offset, _ in reversed(known)][: max(0, most)]


def _is_committed(request: ListOffsetsRequest, version: int) -> bool:
    """Whether the last stable offset is the upper bound of the returned offsets."""
    level = request.isolation_level if version >= ISOLATION_SINCE else Isolation.READ_UNCOMMITTED
    if level not in tuple(Isolation):
        raise KafkaError(Code.UNKNOWN_SERVER_ERROR, f"unknown isolation level {level}: use 0 or 1")
    return level == Isolation.READ_COMMITTED


def _at_cut(log: Log, cuts: Cuts, timestamp: int) -> tuple[int, int, int]:
    """Look up the offset of a log at a recorded cut.

    Gives: NOT_FOUND if there is no such cut; with the time of the cut and -1 as the offset if the
           cut does not include the log.
    """
    cut = cuts.find(timestamp)
    if cut is None:
        return NOT_FOUND
    offset = cuts.offset_of(log, cut)
    return cut.time_ms, offset, -1 if offset < 0 else log.epochs.epoch_of(offset)


def _look_up(
    log: Log, timestamp: int, searched: Searched, *, committed: bool
) -> tuple[int, int, int]:
    """Look up an offset by a time, or by the kind of offset. Gives: (timestamp, offset, leader
    epoch).
    """
    upper_bound = log.last_stable_offset if committed else log.high_watermark
    if timestamp == LATEST:
        return -1, upper_bound, log.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.log_start_offset, log.epochs.epoch_of(log.log_start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):  # there is no tiered storage
        return NOT_FOUND
    if timestamp == MAX_TIMESTAMP:
        position = offset_of_max_timestamp(log, searched=searched)
    else:
        position = offset_for_timestamp(
            log, timestamp, upper_bound_offset=upper_bound, searched=searched
        )
    return NOT_FOUND if position is None else (position[0], position[1], position[2])


# --- the APIs of this family ----------------------------------------------------------------------


ROWS = (
    ApiRow(
        Api(2, "ListOffsets", 0, 11, flexible_from=6),
        right=rule(each(DESCRIBE, TOPIC, "topics.name")),
        shapes=(
            Shape(
                of_partitions(
                    Level("topics", "topics", ("name",)),
                    "partitions",
                    "partitions",
                    "partition_index",
                ),
                Repeats.PAIRED,
            ),
        ),
        handler=lambda parts: (
            ListOffsetsHandler(
                parts.config, parts.requests, parts.cluster, parts.logs, parts.coordinators
            ).on_list_offsets
        ),
    ),
)
