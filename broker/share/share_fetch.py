"""One ShareFetch request in progress. It acquires records when there are enough, or when its time
is up.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.broker.logs.purgatory import WaitingFetch
from barnabas.broker.outbox import Encoded
from barnabas.broker.share.acknowledging import Acknowledging, Codes
from barnabas.broker.share.acquisition import RECORD_LIMIT, Acquired, Taker, acquire, without
from barnabas.broker.share.first_offsets import SearchedLater
from barnabas.broker.share.log_batches import aborted_batches, batches_of, slice_of
from barnabas.broker.share.share_parts import ShareParts, Topics
from barnabas.broker.slices import Slices
from barnabas.coordinator.share.share_records import SharePartitionKey
from barnabas.protocol.errors import KafkaError
from barnabas.protocol.messages.share_fetch import ShareFetchRequest
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.share_fetch_response import SharedPartition, encode_share_fetch
from barnabas.storage.index_cache import BuildPutOff
from barnabas.storage.log.log_reader import Isolation

if TYPE_CHECKING:
    from barnabas.broker.share.loaded_partition import LoadedPartition
    from barnabas.broker.share.share_sessions import Place, ShareSession, ShareTarget
    from barnabas.storage.disk import Slice

VISITED_AT_ONCE = 200  # maximum number of partitions loaded in one slice
# The maximum number of reads of one partition, if all records that are read belong to aborted
# transactions.
READS_AT_ONCE = 16
ROW_BYTES = 40


class _Candidate(NamedTuple):
    """A partition that has records for a member."""

    target: ShareTarget
    partition: LoadedPartition
    offset: int


class ShareFetch:
    """One ShareFetch request in progress, to which exactly one response is sent."""

    __slots__ = (
        "_codes", "_context", "_deadline_ms", "_errors", "_group_id", "_is_committed", "_is_done",
        "_is_durable", "_max_bytes", "_member_id", "_min_bytes", "_parts", "_request", "_rows",
        "_session", "_shares", "_topics",
    )  # fmt: skip

    def __init__(
        self,
        parts: ShareParts,
        request: ShareFetchRequest,
        context: RequestContext,
        session: ShareSession | None,
    ) -> None:
        """Takes: session, the member's session; None if no records are fetched."""
        self._parts, self._request, self._context = parts, request, context
        self._session = session
        self._shares = parts.shares.get()
        self._topics = Topics(parts, context)
        self._codes: Codes = {}
        self._errors: dict[ShareTarget, KafkaError] = {}
        self._rows: dict[Place, tuple[uuid.UUID, SharedPartition]] = {}
        self._is_done, self._is_durable = False, True
        self._deadline_ms: int | None = None
        self._group_id: str = request.group_id or ""
        self._member_id: str = request.member_id or ""
        level = parts.group_configs.get().value(self._group_id, "share.isolation.level")
        self._is_committed = level == "read_committed"
        self._max_bytes = min(request.max_bytes, parts.config.fetch_max_bytes)
        if parts.quotas.clients is not None:
            most_bytes = parts.quotas.clients.most_fetched_bytes(context)
            if most_bytes is not None:
                self._max_bytes = min(self._max_bytes, most_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)

    # --- acknowledgements, and the end -----------------------------------------------------------

    def acknowledge(self, acknowledging: Acknowledging, now_ms: int) -> Slices:
        """Store the request's acknowledgements. Records are acquired only after these are durable.
        Otherwise the records would be locked, and their log could be deleted, while the response
        waits for the disk.
        """
        self._is_durable = False
        self._codes = acknowledging.codes
        yield from acknowledging.in_slices(self._on_durable, now_ms)

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
                session.waiting[self] = None
                waiting = WaitingFetch([], self.try_complete, on_closed=self._on_closed)
                self._parts.requests.park_fetch(self._context, waiting, deadline_ms)

    def _on_closed(self) -> None:
        """Handle the client's disconnection. A session that was begun on another connection
        continues.
        """
        if self._session is not None:
            self._session.waiting.pop(self, None)

    def _finish(self) -> None:
        """Send the response with the rows."""
        assert not self._is_done, "a ShareFetch is answered once"
        self._is_done = True
        session = self._session
        if session is not None:
            session.waiting.pop(self, None)
        self._parts.requests.end_wait(self._context)
        self._reply()

    def _reply(self) -> None:
        """Send the answer: the rows of the partitions with records or errors, and the error codes
        of the acknowledgements.
        """
        for place, (code, message) in self._codes.items():
            _, row = self._rows.get(place, (None, SharedPartition(place[1])))
            self._rows[place] = (
                uuid.UUID(bytes=place[0]),
                row._replace(acknowledge_error_code=code, acknowledge_error_message=message),
            )
        topics: dict[uuid.UUID, list[SharedPartition]] = {}
        for topic_id, row in self._rows.values():
            topics.setdefault(topic_id, []).append(row)
        parts, context = self._parts, self._context
        errors = parts.requests.errors
        if errors is not None:
            for rows in topics.values():
                errors.count_rows(context.api_key, rows)
        leaders = [row.leader for _, row in self._rows.values() if row.leader is not None]
        parts.requests.reply(
            context.ticket,
            Encoded(
                encode_share_fetch(
                    context.correlation_id,
                    list(topics.items()),
                    throttle_time_ms=self._throttle_ms(),
                    lock_timeout_ms=self._shares.partitions.limits(self._group_id).lock_duration_ms,
                    endpoints=parts.addresses.endpoints_of(leaders, context) if leaders else (),
                )
            ),
        )

    def _throttle_ms(self) -> int:
        """The throttle time of the answer, by the client's quota; 0 without quotas."""
        clients = self._parts.quotas.clients
        if clients is None:
            return 0
        size = sum(
            ROW_BYTES + (0 if row.records is None else row.records.size)
            for _, row in self._rows.values()
        )
        return clients.on_shared(self._context, size)

    # --- records ---------------------------------------------------------------------------------

    def try_complete(self, now_ms: int, out_of_time: bool) -> bool:
        """If there are enough records or the time is up, acquire records and send the response.

        Other fetches are tried only after this one has its share partitions, and not while it loads
        one of them.
        """
        with self._shares.partitions.wakes:
            return self._is_done or self._try(now_ms, out_of_time)

    def _try(self, now_ms: int, out_of_time: bool) -> bool:
        """Complete the fetch if there are min_bytes, an error, or no time left. Gives: whether the
        fetch is complete.
        """
        session, request = self._session, self._request
        if session is None or not session.targets or not self._is_current(session):
            self._finish()
            return True
        if request.max_records > 0 and self._max_bytes > 0:
            self._errors.clear()
            unvisited = iter(list(session.ready))
            candidates = self._candidates(session, unvisited, now_ms)
            is_refused = len(self._errors) == len(session.targets)
            if not (out_of_time or is_refused or self._is_enough(candidates)):
                return False
            has_records = self._acquire_all(session, candidates, unvisited, now_ms)
            if not (has_records or out_of_time or self._errors or self._min_bytes <= 0):
                return False  # all records that were read are aborted, or not readable yet
            self._add_errors(session)
            self._add_fresh(session)
        self._finish()
        return True

    def _is_current(self, session: ShareSession) -> bool:
        """Whether the member can still receive records in the response."""
        return self._shares.sessions.get(
            session.key
        ) is session and self._parts.requests.is_waited_for(self._context)

    def load_some(self, now_ms: int) -> bool:
        """Load some of the partitions that no request has visited. Gives: whether others remain."""
        session = self._session
        if session is None or not self._is_current(session):
            return False
        for target in list(islice(session.unloaded, VISITED_AT_ONCE)):
            del session.unloaded[target]
            self._visit(target, now_ms)
        return bool(session.unloaded)

    def _candidates(
        self, session: ShareSession, unvisited: Iterator[ShareTarget], now_ms: int
    ) -> list[_Candidate]:
        """The next unvisited partition that has records. If min_bytes may need several partitions,
        up to max_records such partitions. A partition that has no records is visited again when it
        has some.
        """
        most = 1 if self._min_bytes <= 1 else self._request.max_records
        limits = self._shares.partitions.limits(self._group_id)
        found: list[_Candidate] = []
        for target in unvisited:
            loaded = self._visit(target, now_ms)
            if loaded is None:
                continue
            log, value = loaded.log, loaded.value
            if log.log_start_offset > value.start_offset:
                value.on_log_start(log.log_start_offset)
            offset = value.next_offset
            end_offset = log.last_stable_offset if self._is_committed else log.high_watermark
            # Add the target even if the partition has records, since these may be too few.
            loaded.idle[target] = None
            if offset < end_offset and loaded.is_stored and value.may_acquire(limits.record_locks):
                found.append(_Candidate(target, loaded, offset))
                if len(found) >= most:
                    break
            else:
                session.ready.pop(target, None)
        return found

    def _visit(self, target: ShareTarget, now_ms: int) -> LoadedPartition | None:
        """The share partition of a target. None if its start offset is not known yet, or after an
        error, which is recorded.
        """
        try:
            log = self._topics.log(target.topic_id, target.index)
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
            return None
        except KafkaError as error:
            self._errors[target] = error
            return None

    def _is_enough(self, candidates: Sequence[_Candidate]) -> bool:
        """Whether the candidates have min_bytes of records to acquire."""
        if self._min_bytes <= 1:
            return bool(candidates) or self._min_bytes <= 0
        size = 0
        for one in candidates:
            data = self._read(one.partition, one.offset, self._max_bytes)
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
        left_records, left_bytes = self._request.max_records, self._max_bytes
        count_at_most = min(len(candidates) + length_hint(unvisited), left_records)
        share_bytes = max(1, left_bytes // max(1, count_at_most))
        for target, loaded, offset in self._and_more(session, candidates, unvisited, now_ms):
            most_bytes = min(share_bytes, left_bytes)
            try:
                records, acquired, has_more = self._acquire(
                    loaded, offset, left_records, most_bytes, now_ms
                )
            except KafkaError as error:
                self._errors[target] = error
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

    def _add_errors(self, session: ShareSession) -> None:
        """Add a row for each partition with an error. The partition counts as newly added again, so
        that the next response contains its state.
        """
        for target, refused in self._errors.items():
            topic = self._parts.metadata.topic_by_id(target.topic_id)
            leader = None
            if topic is not None:
                leader = self._parts.cluster.hint(topic.name, target.index, refused.code)
            row = SharedPartition(target.index, refused.code, leader=leader)
            self._rows[target.place] = (target.topic_id, row)
            session.fresh[target] = None

    def _add_fresh(self, session: ShareSession) -> None:
        """Add rows without records for the partitions that were just added to the session."""
        if not session.fresh:
            return
        for target in list(session.fresh):
            if target not in self._errors:
                del session.fresh[target]
                row = SharedPartition(target.index)
                self._rows.setdefault(target.place, (target.topic_id, row))

    def _acquire(
        self, loaded: LoadedPartition, offset: int, most: int, most_bytes: int, now_ms: int
    ) -> tuple[Slice | None, Sequence[Acquired], bool]:
        """Acquire records of a partition.

        Gives:  the batches that contain the records, or None; the acquired records; and whether the
                part of the log that was not read may contain more.
        """
        request, value = self._request, loaded.value
        limits = self._shares.partitions.limits(self._group_id)
        taker = Taker(
            self._member_id,
            min(most, limits.record_locks),
            request.batch_size,
            request.share_acquire_mode == RECORD_LIMIT,
        )
        for _ in range(READS_AT_ONCE):
            found = self._read(loaded, offset, most_bytes)
            if found is None:
                return None, (), False
            data, aborted = found
            read = batches_of(data, max(offset, value.end_offset) + taker.most_records)
            batches = [one.batch for one in read]
            acquired = acquire(value, taker, batches, offset, limits, now_ms)
            if aborted:
                acquired = without(value, acquired, aborted_batches(data, read, aborted))
            if value.settle():
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
            with logs.cache.putting_off():
                data = log.read(
                    offset, max_bytes=most_bytes, isolation=isolation, min_one_batch=True
                )
        except BuildPutOff as put_off:
            logs.log_dir.build_later(put_off, loaded.wake)
            return None
        return None if data.slice is None else (data.slice, data.aborted or ())
