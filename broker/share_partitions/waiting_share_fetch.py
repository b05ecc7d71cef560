"""One ShareFetch request in progress. It acquires records when there are enough, or when its time
is up.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Iterable, Iterator, Sequence
from operator import length_hint
from typing import Any, NamedTuple

from barnabas.broker.logs.purgatory import WaitingFetch
from barnabas.broker.share_partitions.acquisition import (
    RECORD_LIMIT,
    Acquired,
    Taker,
    acquire,
    without,
)
from barnabas.broker.share_partitions.first_offsets import SearchedLater
from barnabas.broker.share_partitions.loaded_partition import LoadedPartition
from barnabas.broker.share_partitions.log_batches import aborted_batches, batches_of, slice_of
from barnabas.broker.share_partitions.request_acknowledgements import Codes, RequestAcknowledgements
from barnabas.broker.share_partitions.share_parts import ReadableLogs, ShareParts
from barnabas.broker.share_partitions.share_sessions import (
    Named,
    PartitionKey,
    ShareSession,
    ShareTarget,
)
from barnabas.broker.slices import Slices
from barnabas.coordinator.share_states.share_records import SharePartitionKey
from barnabas.protocol.errors import Code, KafkaError
from barnabas.protocol.hot_responses import CurrentLeader
from barnabas.protocol.messages.share_fetch import ShareFetchRequest
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.share_fetch_response import SharedPartition, encode_share_fetch
from barnabas.storage.disk import Slice
from barnabas.storage.exception_guard import contain
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_reader import Isolation
from barnabas.storage.segments.index_cache import BuildDeferred

VISITED_AT_ONCE = 200  # maximum number of partitions loaded in one slice
REFUSED_PER_VISITED = 10  # a partition with an error costs less than one that is loaded
ANSWERED_AT_ONCE = 1_000  # maximum number of rows of the response that are made in one slice
# The maximum number of reads of one partition, if all records that are read belong to aborted
# transactions.
READS_AT_ONCE = 16
ROW_BYTES = 40


class _Candidate(NamedTuple):
    """A partition that has records for a member."""

    target: ShareTarget
    partition: LoadedPartition
    offset: int


class WaitingShareFetch:
    """One ShareFetch request in progress, to which exactly one response is sent."""

    __slots__ = (
        "_batch_size", "_codes", "_context", "_deadline_ms", "_errors", "_fresh", "_group_id",
        "_is_by_records", "_is_committed", "_is_done", "_is_durable", "_least_throttle_ms",
        "_max_bytes", "_max_records", "_member_id", "_min_bytes", "_parts", "_readable_logs",
        "_rows", "_session", "_shares", "_unknown",
    )  # fmt: skip

    def __init__(
        self,
        parts: ShareParts,
        request: ShareFetchRequest,
        context: RequestContext,
        session: ShareSession | None,
    ) -> None:
        """Takes: session, the member's session; None if no records are fetched."""
        self._parts, self._context, self._session = parts, context, session
        # The fetch may wait. It does not keep the request, which may be large.
        self._max_records, self._batch_size = request.max_records, request.batch_size
        self._is_by_records = request.share_acquire_mode == RECORD_LIMIT
        self._shares = parts.shares.get()
        self._readable_logs = ReadableLogs(parts, context)
        self._codes: Codes = {}
        self._errors: dict[ShareTarget, int] = {}
        self._fresh: dict[ShareTarget, None] = {}
        self._unknown: dict[PartitionKey, uuid.UUID] = {}
        self._rows: dict[PartitionKey, tuple[uuid.UUID, SharedPartition]] = {}
        self._is_done, self._is_durable = False, True
        self._deadline_ms: int | None = None
        self._least_throttle_ms = 0
        self._group_id: str = request.group_id or ""
        self._member_id: str = request.member_id or ""
        level = parts.group_configs.value(self._group_id, "share.isolation.level")
        self._is_committed = level == "read_committed"
        self._max_bytes = min(request.max_bytes, parts.config.fetch_max_bytes)
        if parts.quotas.clients is not None:
            most_bytes = parts.quotas.clients.most_fetched_bytes(context)
            if most_bytes is not None:
                self._max_bytes = min(self._max_bytes, most_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)

    # --- acknowledgements, and the end -----------------------------------------------------------

    def acknowledge(self, acknowledgements: RequestAcknowledgements, now_ms: int) -> Slices:
        """Store the request's acknowledgements. Records are acquired only after these are durable.
        Otherwise the records would be locked, and their log could be deleted, while the response
        waits for the disk.
        """
        self._is_durable = False
        self._codes = acknowledgements.codes
        yield from acknowledgements.decide_and_store(self._on_durable, now_ms)

    def _on_durable(self, now_ms: int) -> None:
        """The acknowledgements are durable: acquire records, if `begin` was called meanwhile."""
        self._is_durable = True
        if self._deadline_ms is not None:
            self._try_or_wait(self._deadline_ms, now_ms)

    def begin(self, deadline_ms: int, now_ms: int) -> None:
        """Acquire records, or wait for them until the deadline."""
        self._deadline_ms = deadline_ms
        if self._is_durable:
            self._try_or_wait(deadline_ms, now_ms)

    def _try_or_wait(self, deadline_ms: int, now_ms: int) -> None:
        """Complete the fetch now if it can be; otherwise park it until records arrive or the
        deadline.
        """
        session = self._session
        with self._shares.partitions.wakes:
            if not self.try_complete(now_ms, now_ms >= deadline_ms) and session is not None:
                waiting = WaitingFetch([], self.try_complete, on_closed=self._on_closed)
                requests = self._parts.requests
                if requests.try_park_fetch(self._context, waiting, deadline_ms):
                    session.waiting[self] = None
                else:
                    self._least_throttle_ms = requests.throttle_without_wait(self._context)
                    self.try_complete(now_ms, True)

    def _on_closed(self) -> None:
        """Handle the client's disconnection. A session that was begun on another connection
        continues.
        """
        if self._session is not None:
            self._session.waiting.pop(self, None)
            self._session = None

    def _finish(self) -> None:
        """Send the response with the rows."""
        assert not self._is_done, "a ShareFetch is answered once"
        self._is_done = True
        session, self._session = self._session, None  # the purgatory may keep an answered fetch
        if session is not None:
            session.waiting.pop(self, None)
        self._parts.requests.end_wait(self._context)
        self._reply()

    def _reply(self) -> None:
        """Send the answer: the rows of the partitions with records or errors, and the error codes
        of the acknowledgements. The rows of a long answer are made in slices, and it is encoded by
        the worker.
        """
        self._parts.requests.reply_in_slices(self._context, self._answer())

    def _answer(self) -> Slices:
        """Make the rows of the answer, in slices. Gives: a function that encodes the answer."""
        yield
        parts, context = self._parts, self._context
        topics: dict[bytes, tuple[uuid.UUID, list[SharedPartition]]] = {}
        leaders: list[CurrentLeader] = []
        errors = parts.requests.errors
        size = 0
        for count, (topic_id, row) in enumerate(self._each_row(), 1):
            if count % ANSWERED_AT_ONCE == 0:
                yield
            topics.setdefault(topic_id.bytes, (topic_id, []))[1].append(row)
            size += ROW_BYTES + (0 if row.records is None else row.records.size)
            if row.leader is not None:
                leaders.append(row.leader)
            if row.error_code and errors is not None:
                errors.count(context.api_key, row.error_code)
        clients = parts.quotas.clients
        return functools.partial(
            encode_share_fetch,
            context.correlation_id,
            list(topics.values()),
            throttle_time_ms=max(
                self._least_throttle_ms,
                0 if clients is None else clients.on_shared(context, size),
            ),
            lock_timeout_ms=self._shares.partitions.limits(self._group_id).lock_duration_ms,
            endpoints=parts.addresses.endpoints_of(leaders, context) if leaders else (),
        )

    def _each_row(self) -> Iterator[tuple[uuid.UUID, SharedPartition]]:
        """The rows of the answer, each with the id of its topic: partitions with records, with
        errors, those that were just added to the session, and those of unknown topics. A row has
        the code of the partition's acknowledgements, too.
        """
        codes = self._codes

        def acknowledged(place: PartitionKey, row: SharedPartition) -> SharedPartition:
            if place not in codes:
                return row
            code, message = codes.pop(place)
            return row._replace(acknowledge_error_code=code, acknowledge_error_message=message)

        for place, (topic_id, row) in self._rows.items():
            yield topic_id, acknowledged(place, row)
        for target, code in self._errors.items():
            leader = self._parts.leader(target.topic_id, target.index, code)
            row = SharedPartition(target.index, code, leader=leader)
            yield target.topic_id, acknowledged(target.place, row)
        for target in self._fresh:
            if target.place not in self._rows:
                row = SharedPartition(target.index)
                yield target.topic_id, acknowledged(target.place, row)
        for place, topic_id in self._unknown.items():
            row = SharedPartition(place[1], Code.UNKNOWN_TOPIC_ID)
            yield topic_id, acknowledged(place, row)
        for place in list(codes):
            yield uuid.UUID(bytes=place[0]), acknowledged(place, SharedPartition(place[1]))

    # --- records ---------------------------------------------------------------------------------

    def try_complete(self, now_ms: int, out_of_time: bool) -> bool:
        """If there are enough records or the time is up, acquire records and send the response.

        Other fetches are tried only after this one has its share partitions, and not while it loads
        one of them.
        """
        with self._shares.partitions.wakes:
            try:
                return self._is_done or self._try(now_ms, out_of_time)
            except Exception as error:
                self._fail(error)
                return True

    def _fail(self, error: Exception) -> None:
        """An exception ends this request, and not the event that has tried it. Raises: the error if
        it ends the process.
        """
        context, requests = self._context, self._parts.requests
        requests.fail(context.ticket, context.connection_id, error)
        self._is_done = True
        self._on_closed()
        requests.end_wait(context)

    def _try(self, now_ms: int, out_of_time: bool) -> bool:
        """Complete the fetch if there are min_bytes, an error, or no time left. Gives: whether the
        fetch is complete.
        """
        session = self._session
        if session is None or not session.targets or not self._is_current(session):
            self._finish()
            return True
        if self._max_records > 0 and self._max_bytes > 0:
            for target in session.pop_refused(VISITED_AT_ONCE):
                self._look(session, target, now_ms)
            unvisited = iter(list(session.ready))
            candidates = self._candidates(session, unvisited, now_ms)
            is_over = out_of_time or self._is_refused(session)
            if not (is_over or self._is_enough(candidates)):
                return False
            has_records = self._acquire_all(session, candidates, unvisited, now_ms)
            if not (has_records or is_over or self._errors or self._min_bytes <= 0):
                return False  # all records that were read are aborted, or not readable yet
            self._fresh, session.fresh = session.fresh, {}
        self._finish()
        return True

    def _is_refused(self, session: ShareSession) -> bool:
        """Whether waiting is useless: all partitions have errors, or the client has to learn that
        topics are unknown.
        """
        return bool(self._unknown) or len(session.refused) == len(session.targets)

    def _is_current(self, session: ShareSession) -> bool:
        """Whether the member can still receive records in the response."""
        return self._shares.sessions.get(
            session.key
        ) is session and self._parts.requests.is_waited_for(self._context)

    def refuse_unknown(self, unknown: Iterable[Named]) -> None:
        """Note partitions whose topic ids the broker does not know. They are in the answer, and not
        in the session.
        """
        if self._session is not None:
            self._unknown.update((place, topic_id) for topic_id, place in unknown)

    def load_some(self, now_ms: int) -> bool:
        """Load some of the partitions that no request has visited. Gives: whether others remain."""
        session = self._session
        if session is None or not self._is_current(session):
            return False
        left = VISITED_AT_ONCE * REFUSED_PER_VISITED
        while session.unloaded and left > 0:
            target, _ = session.unloaded.popitem()
            self._look(session, target, now_ms)
            left -= 1 if target in session.refused else REFUSED_PER_VISITED
        return bool(session.unloaded)

    def _candidates(
        self, session: ShareSession, unvisited: Iterator[ShareTarget], now_ms: int
    ) -> list[_Candidate]:
        """The next unvisited partition that has records. If min_bytes may need several partitions,
        up to max_records such partitions. A partition that has no records is visited again when it
        has some.
        """
        most = 1 if self._min_bytes <= 1 else self._max_records
        found: list[_Candidate] = []
        for target in unvisited:
            candidate = self._look(session, target, now_ms)
            if candidate is not None:
                found.append(candidate)
                if len(found) >= most:
                    break
        return found

    def _look(self, session: ShareSession, target: ShareTarget, now_ms: int) -> _Candidate | None:
        """Visit a partition. Gives: the candidate if it has records; otherwise the partition is no
        longer ready.
        """
        loaded = self._visit(target, now_ms)
        if loaded is None:
            return None
        self._errors.pop(target, None)
        log, value = loaded.log, loaded.value
        if log.log_start_offset > value.start_offset:
            value.on_log_start(log.log_start_offset)
        offset = value.next_offset
        end_offset = log.last_stable_offset if self._is_committed else log.high_watermark
        # Add the target even if the partition has records, since these may be too few.
        loaded.idle[target] = None
        limits = self._shares.partitions.limits(self._group_id)
        if offset < end_offset and loaded.is_stored and value.may_acquire(limits.record_locks):
            return _Candidate(target, loaded, offset)
        session.ready.pop(target, None)
        return None

    def _visit(self, target: ShareTarget, now_ms: int) -> LoadedPartition | None:
        """The share partition of a target. None if its start offset is not known yet, or after an
        error, which is recorded.
        """
        try:
            log = self._readable_logs.log(target.topic_id, target.index)
            loaded = target.partition
            if loaded is None or not loaded.is_of(log):
                key = SharePartitionKey(self._group_id, *target.place)
                loaded = target.partition = self._shares.partitions.load(key, log, now_ms)
            self._shares.session_ends.release_now(
                self._group_id, self._member_id, target.place, now_ms
            )
            return loaded
        except SearchedLater as search:
            search.wake(target)
            target.session.ready.pop(target, None)
        except KafkaError as error:
            self._refuse(target, error.code)
        return None

    def _refuse(self, target: ShareTarget, code: int) -> None:
        """Record the error of a partition. Only its code is kept, since an exception refers to the
        frames that it passed, and these to this fetch.
        """
        self._errors[target] = code
        target.session.refuse(target)

    def _is_enough(self, candidates: Sequence[_Candidate]) -> bool:
        """Whether the candidates have min_bytes of records to acquire."""
        if self._min_bytes <= 1:
            return bool(candidates) or self._min_bytes <= 0
        size = 0
        for one in candidates:
            try:
                data = self._read(one.partition, one.offset, self._max_bytes)
            except KafkaError as error:
                self._refuse(one.target, error.code)
                return True
            size += 0 if data is None else data[0].size
            if size >= self._min_bytes:
                return True
        return False

    def _acquire_all(
        self,
        session: ShareSession,
        candidates: Sequence[_Candidate],
        unvisited: Iterator[ShareTarget],
        now_ms: int,
    ) -> bool:
        """Acquire records of the candidates, and then of unvisited partitions, until the member has
        as many as it requested. Each partition may use an equal share of the bytes that are left.

        Gives: whether any records were acquired.
        """
        left_records, left_bytes = self._max_records, self._max_bytes
        count_at_most = min(len(candidates) + length_hint(unvisited), left_records)
        share_bytes = max(1, left_bytes // max(1, count_at_most))
        for target, loaded, offset in self._and_more(session, candidates, unvisited, now_ms):
            most_bytes = min(share_bytes, left_bytes)
            try:
                records, acquired, has_more = self._acquire(
                    loaded, offset, left_records, most_bytes, now_ms
                )
            except KafkaError as error:
                self._refuse(target, error.code)
                continue
            except Exception as error:
                contain(error, f"a ShareFetch of {loaded.log!r}")
                is_damage = isinstance(error, CorruptLog)
                code = Code.KAFKA_STORAGE_ERROR if is_damage else Code.UNKNOWN_SERVER_ERROR
                self._refuse(target, code)
                continue
            if records is None:
                if has_more:
                    self._shares.partitions.wake_later(loaded)
                else:
                    session.ready.pop(target, None)
                continue
            count = sum(one.last_offset - one.first_offset + 1 for one in acquired)
            self._shares.counts.acquired += count
            left_records -= count
            left_bytes -= records.size
            row = SharedPartition(target.index, records=records, acquired=acquired)
            self._rows[target.place] = (target.topic_id, row)
            session.fresh.pop(target, None)
            session.to_end(target)
            self._shares.partitions.schedule(loaded)
            if left_records <= 0 or left_bytes <= 0:
                break  # do not let the loop's iterator visit another partition
        return bool(self._rows)

    def _and_more(
        self,
        session: ShareSession,
        candidates: Sequence[_Candidate],
        unvisited: Iterator[ShareTarget],
        now_ms: int,
    ) -> Iterator[_Candidate]:
        """The candidates, then further ones among the unvisited partitions, as long as the caller
        continues.
        """
        while candidates:
            yield from candidates
            candidates = self._candidates(session, unvisited, now_ms)

    def _acquire(
        self, loaded: LoadedPartition, offset: int, most: int, most_bytes: int, now_ms: int
    ) -> tuple[Slice | None, Sequence[Acquired], bool]:
        """Acquire records of a partition.

        Gives:  the batches that contain the records, or None; the acquired records; and whether the
                part of the log that was not read may contain more.
        """
        value = loaded.value
        limits = self._shares.partitions.limits(self._group_id)
        taker = Taker(
            self._member_id,
            min(most, limits.record_locks),
            self._batch_size,
            self._is_by_records,
        )
        for _ in range(READS_AT_ONCE):
            found = self._read(loaded, offset, most_bytes)
            if found is None:
                return None, (), False
            data, aborted = found
            most_offset = max(offset, value.end_offset) + taker.most_records
            read = batches_of(data, most_offset, loaded.log.log_end_offset)
            if not read:
                raise _corrupt(loaded.log, data, offset, "no batch begins there")
            try:
                in_aborted = aborted_batches(data, read, aborted) if aborted else ()
            except KafkaError as error:
                raise _corrupt(loaded.log, data, offset, str(error)) from error
            batches = [one.batch for one in read]
            acquired = acquire(value, taker, batches, offset, limits, now_ms)
            if in_aborted:
                acquired = without(value, acquired, in_aborted)
            if value.move_start():
                self._shares.partitions.wake_later(loaded)
            if acquired:
                first, last = acquired[0].first_offset, acquired[-1].last_offset
                return slice_of(data, read, first, last), acquired, False
            if value.next_offset == offset or not value.may_acquire(limits.record_locks):
                return None, (), False
            offset = value.next_offset
        return None, (), True

    def _read(
        self, loaded: LoadedPartition, offset: int, most_bytes: int
    ) -> tuple[Slice, Sequence[Any]] | None:
        """Read from the log. Gives: None if there is nothing to read, or if an index has to be
        built first.
        """
        log, logs = loaded.log, self._parts.logs
        isolation = Isolation.READ_COMMITTED if self._is_committed else Isolation.READ_UNCOMMITTED
        if offset > log.log_end_offset:
            return None
        try:
            with logs.cache.deferring_builds():
                data = log.read(
                    offset, max_bytes=most_bytes, isolation=isolation, min_one_batch=True
                )
        except BuildDeferred as deferred:
            logs.log_dir.build_later(deferred, loaded.wake)
            return None
        return None if data.slice is None else (data.slice, data.aborted or ())


def _corrupt(log: Log, data: Slice, offset: int, why: str) -> CorruptLog:
    """The error for damaged bytes in a slice that was read from an offset."""
    segment = next(one for one in reversed(log.segments) if one.base_offset <= offset)
    return segment.batches.corrupt(data.position, why)
