"""Decides when compacted logs are cleaned: one at a time, the dirtiest first. Another process
cleans them (`Outbox.cleanings`).

The order of effects: the log is flushed up to the end of the part that is cleaned -> the job is
sent -> `on_cleaned` -> the recovery point is written -> the new segments are swapped in, a few at
each tick -> the cleaner's checkpoint is written. A cleaning that fails is logged and tried again
later; the log is unchanged.

A start replays the logs of internal topics from their first record to their last. An active segment
may have 100 MB, and only the last record of each key in it matters. So when these logs are dirty by
more than barnabas.internal.topics.dirty.bytes together, their active segments are closed before
they are full.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from barnabas.broker.logs.flush_queue import FlushQueue
from barnabas.broker.logs.syncs import Syncs
from barnabas.broker.outbox import Outbox
from barnabas.broker.settings.config import BrokerConfig
from barnabas.coordinator.internal_topics import INTERNAL_TOPICS
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.storage.cleaning.clean_job import CleanedSegment, CleanJob, CleanResult
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.disk import (
    NotWrittenError,
    SyncSteps,
    is_out_of_descriptors,
    is_out_of_resources,
)
from barnabas.storage.exception_guard import contain
from barnabas.storage.files.checkpoints import (
    CLEANER_NAME,
    CorruptCheckpoint,
    Offsets,
    decode_offsets,
    encode_offsets,
)
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.segments.index_cache import BuildDeferred

if TYPE_CHECKING:
    from barnabas.storage.cleaning.clean_plan import Dirt
    from barnabas.storage.log.log import Log

logger = logging.getLogger("barnabas.compaction")

FIRST_RETRY_MS, LAST_RETRY_MS = 15_000, 3_600_000
# the number of segments that are swapped in one slice: each swap renames a dozen files, during
# which no client is served
SWAPPED_AT_ONCE = 16
ROLLED_AT_ONCE = 4
# an active segment stays open if it has less than this fraction of
# barnabas.internal.topics.dirty.bytes
LEAST_SHARE = 1 / 16


class Compaction:
    """Decides when the broker's logs are cleaned. There is at most one cleaning job at a time."""

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        flushes: FlushQueue,
        syncs: Syncs,
        outbox: Outbox,
        now_ms: int,
    ) -> None:
        self._config, self._logs, self._flushes, self._outbox = config, logs, flushes, outbox
        self._syncs, self._is_storing, self._store_error = syncs, False, ""
        self._cleaned_to = self._load()
        self._under_way: Log | None = None
        self._job: CleanJob | None = None
        self._result: CleanResult | None = None
        self._rest: tuple[CleanedSegment, ...] = ()
        self._next_job_id = 1
        self._next_ms = now_ms + config.log_cleaner_backoff_ms
        self._is_enabled = config.log_cleaner_enable
        self._failures: dict[TopicPartition, tuple[int, int]] = {}
        self._warned_of: set[TopicPartition] = set()
        # compacted logs with files that could not be renamed yet for lack of disk space
        self._with_swap_names: dict[TopicPartition, Log] = {}

    def next_deadline_ms(self) -> int | None:
        """The time of the next check; None while a job runs, or if no check is needed."""
        if self._under_way is not None:
            return None if self._result is None or self._is_storing else self._next_ms
        return self._next_ms if self._is_enabled else None

    def on_tick(self, now_ms: int) -> None:
        """Begin to clean the dirtiest log, if one is dirty enough, or continue the swap of a
        cleaned log.
        """
        deadline = self.next_deadline_ms()
        if deadline is None or now_ms < deadline:
            return
        if self._result is not None:
            self._swap(now_ms)
            return
        self._next_ms = now_ms + self._config.log_cleaner_backoff_ms
        self._rename_rest()
        logs = self._compactable(now_ms)
        if not logs:
            # returning here, so that the plan's module is imported only once there are compacted
            # logs
            return
        self._roll_internal(logs, now_ms)
        dirtiest = self._dirtiest(logs, now_ms)
        if dirtiest is None:
            return
        log, dirt = dirtiest
        self._under_way = log
        if log.durability.recovery_point >= dirt.end_offset:
            self._begin(now_ms)
        else:
            self._flushes.wait([log], self._begin, now_ms, in_place=True)

    def on_cleaned(
        self, job: CleanJob, result: CleanResult | None, error: str, now_ms: int
    ) -> None:
        """Handle the end of a cleaning job. Takes: result, None if the job failed; error, the
        reason of the failure.
        """
        log = self._under_way
        assert log is not None and job is self._job, "a cleaning ended that was not under way"
        key = TopicPartition(log.topic, log.partition)
        if result is None:
            self._end(now_ms)
            if self._is_wanted(log):
                self._note_failure(key, error, now_ms)
            return
        self._failures.pop(key, None)
        if result.unreadable and key not in self._warned_of:
            self._warned_of.add(key)
            logger.warning(
                "%s: the records of %d batches cannot be read, the first at offset %d; a "
                "producer wrote them so, and compaction keeps them unchanged",
                TopicPartition(*key), len(result.unreadable), result.unreadable[0],
            )  # fmt: skip
        self._result, self._rest = result, result.segments
        self._swap(now_ms)

    def _swap(self, now_ms: int) -> None:
        """Swap in a few of the new segments. After the last one the cleaning is finished."""
        # imported here, since a start does not need it; the cleaner's thread has already loaded it
        from barnabas.storage.cleaning.segment_swap import discard_result, has_swap_names, swap_in

        log, job, result = self._under_way, self._job, self._result
        assert log is not None and job is not None and result is not None
        if not self._is_wanted(log):
            discard_result(log, self._rest)
            self._end(now_ms)
            return
        if self._store_error:
            discard_result(log, self._rest)  # the new segments occupy disk space that is needed
            self._note_failure(TopicPartition(log.topic, log.partition), self._store_error, now_ms)
            self._end(now_ms)
            return
        if self._logs.lacks_recovery_point(log, job.end_offset):
            self._is_storing = True
            self._syncs.run(self._storing(), now_ms, self._on_stored)
            return
        first, self._rest = self._rest[:SWAPPED_AT_ONCE], self._rest[SWAPPED_AT_ONCE:]
        try:
            complete = swap_in(log, first, now_ms)
        except NotWrittenError as error:
            discard_result(log, self._rest)
            self._note_failure(TopicPartition(log.topic, log.partition), str(error), now_ms)
            self._end(now_ms)
            return
        except Exception as error:
            # The files of the segments that were being swapped stay as after a kill at this moment.
            self._note_error(TopicPartition(log.topic, log.partition), error, now_ms)
            self._end(now_ms)
            return
        if has_swap_names(log):
            self._with_swap_names[TopicPartition(log.topic, log.partition)] = log
        if complete and self._rest:
            self._next_ms = now_ms
            return
        if complete:
            self._cleaned_to[log.topic, log.partition] = result.next_dirty_offset
            self._try_write()
        else:
            discard_result(log, self._rest)
        logger.info(
            "%r: compacted up to offset %d: %s", log, result.next_dirty_offset, _sizes(result)
        )
        self._end(now_ms)

    def _rename_rest(self) -> None:
        """Rename the files of compacted segments that could not be renamed before for lack of
        space.
        """
        for key, log in list(self._with_swap_names.items()):
            from barnabas.storage.cleaning.segment_swap import try_rename_rest

            if self._logs.logs.get(key) is not log or try_rename_rest(log):
                del self._with_swap_names[key]

    def _storing(self) -> SyncSteps:
        """Store that the cleaned part of the log is durable, so that gaps in it do not count as
        damage.
        """
        try:
            yield from self._logs.checkpoint_steps()
        except OSError as error:
            if not is_out_of_resources(error):
                raise
            self._store_error = str(error)

    def _on_stored(self, now_ms: int) -> None:
        self._is_storing = False
        self._swap(now_ms)

    def _is_wanted(self, log: Log) -> bool:
        return self._logs.logs.get((log.topic, log.partition)) is log and log.config.is_compacted

    def _end(self, now_ms: int) -> None:
        """End the cleaning of the current log; the next check is due at once."""
        self._under_way = self._job = self._result = None
        self._store_error = ""
        self._rest = ()
        self._next_ms = now_ms  # check again at once, since another log may be due

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        """Forget deleted logs."""
        was_cleaned = False
        for key in keys:
            self._failures.pop(key, None)
            self._warned_of.discard(key)
            self._with_swap_names.pop(key, None)
            was_cleaned |= self._cleaned_to.pop(key, None) is not None
        if was_cleaned:
            # if the write fails, the checkpoint keeps an offset of a deleted log, which is ignored
            self._try_write()

    # --- choosing --------------------------------------------------------------------------------

    def _roll_internal(self, logs: list[Log], now_ms: int) -> None:
        """Close some active segments, the dirtiest first, if a start would replay too much."""
        from barnabas.storage.cleaning.clean_plan import dirty_bytes_if_rolled

        most = self._config.barnabas_internal_topics_dirty_bytes
        dirty = [
            (dirty_bytes, log)
            for log in logs
            if log.topic in INTERNAL_TOPICS
            and log.segments.active.batches.size >= most * LEAST_SHARE
            and (dirty_bytes := dirty_bytes_if_rolled(log, self._cleaned_to_of(log)))
        ]
        excess = sum(dirty_bytes for dirty_bytes, _ in dirty) - most
        dirty.sort(key=lambda row: row[0], reverse=True)
        for dirty_bytes, log in dirty[:ROLLED_AT_ONCE]:
            if excess <= 0 or not log.try_roll(now_ms):
                return
            excess -= dirty_bytes
        if excess > 0:
            self._next_ms = now_ms

    def _dirtiest(self, logs: list[Log], now_ms: int) -> tuple[Log, Dirt] | None:
        """The log with the highest share of dirty bytes among those that are due; None if none is
        due.
        """
        from barnabas.storage.cleaning.clean_plan import is_due

        best: tuple[Log, Dirt] | None = None
        for log in logs:
            dirt = self._assess(log, now_ms)
            if (
                dirt is not None
                and is_due(log, dirt)
                and (best is None or dirt.ratio > best[1].ratio)
            ):
                best = log, dirt
        return best

    def _compactable(self, now_ms: int) -> list[Log]:
        """The compacted logs, except those whose cleaning failed and is not due again yet, and
        those with files that wait to be renamed.
        """
        waiting = {key for key, (_, again_ms) in self._failures.items() if again_ms > now_ms}
        return [
            log
            for key, log in self._logs.logs.items()
            if log.config.is_compacted and key not in waiting and key not in self._with_swap_names
        ]

    def _cleaned_to_of(self, log: Log) -> int | None:
        return self._cleaned_to.get((log.topic, log.partition))

    def _assess(self, log: Log, now_ms: int) -> Dirt | None:
        """How dirty a log is; None if it is unknown now, because an index is being built or the log
        cannot be read.
        """
        from barnabas.storage.cleaning.clean_plan import assess

        key = TopicPartition(log.topic, log.partition)
        try:
            with self._logs.cache.deferring_builds():
                return assess(log, self._cleaned_to_of(log), now_ms + self._logs.wall.ahead_ms)
        except BuildDeferred as deferred:  # the log is cleaned once its index is built
            self._logs.log_dir.build_later(deferred, lambda _: None)
            return None
        except Exception as error:
            self._note_error(key, error, now_ms)
            return None

    def _begin(self, now_ms: int) -> None:
        """Send the cleaning job of a log that has been flushed, if the log still has to be
        cleaned.
        """
        from barnabas.storage.cleaning.clean_plan import plan

        log = self._under_way
        assert log is not None and self._job is None
        key = TopicPartition(log.topic, log.partition)
        dirt = self._assess(log, now_ms) if self._logs.logs.get(key) is log else None
        if dirt is not None and log.durability.recovery_point < dirt.end_offset:
            dirt = None  # the log has got a new segment since the flush, so it is cleaned later
        try:
            if dirt is not None:
                with self._logs.cache.deferring_builds():
                    self._job = plan(
                        log,
                        dirt,
                        job_id=self._next_job_id,
                        map_bytes=self._config.log_cleaner_dedupe_buffer_size,
                        wall_ms=now_ms + self._logs.wall.ahead_ms,
                    )
        except BuildDeferred as deferred:
            self._logs.log_dir.build_later(deferred, self._begin)
            return
        except Exception as error:
            self._note_error(key, error, now_ms)
        if self._job is None:
            self._under_way = None
            return
        self._next_job_id += 1
        self._outbox.cleanings.append(self._job)

    def _note_error(self, key: TopicPartition, error: Exception, now_ms: int) -> None:
        """Schedule another attempt for a log that is damaged, or that cannot be read for lack of
        descriptors. Raises: the error if it ends the process.
        """
        is_expected = isinstance(error, CorruptLog) or (
            isinstance(error, OSError) and is_out_of_descriptors(error)
        )
        if not is_expected:
            contain(error, f"compaction of {TopicPartition(*key)}")
        self._note_failure(key, str(error) or repr(error), now_ms)

    def _note_failure(self, key: TopicPartition, error: str, now_ms: int) -> None:
        """Schedule the next attempt at a log; the wait doubles with each failure."""
        count = self._failures.get(key, (0, 0))[0] + 1
        wait_ms = min(FIRST_RETRY_MS << min(count - 1, 16), LAST_RETRY_MS)
        self._failures[key] = count, now_ms + wait_ms
        logger.error(
            "%s cannot be compacted; tried again in %d s: %s",
            TopicPartition(*key),
            wait_ms // 1000,
            error,
        )

    # --- the checkpoint --------------------------------------------------------------------------

    def _try_write(self) -> None:
        """Write the cleaner's checkpoint. If the disk is full, the checkpoint stays old, and the
        next start cleans some segments again.
        """
        try:
            self._write()
        except OSError as error:
            if not is_out_of_resources(error):
                raise
            logger.warning("%s waits for space: %s", self._path(), error)

    def _path(self) -> str:
        return f"{self._logs.data_dir}/{CLEANER_NAME}"

    def _load(self) -> Offsets:
        """The offsets in the checkpoint up to which logs are cleaned. Without a usable file all
        logs are cleaned from their start, which does no harm.
        """
        try:
            data = self._logs.disk.read(self._path())
            # the file is empty if Apache Kafka has created it
            return decode_offsets(data) if data else {}
        except FileNotFoundError:
            return {}
        except CorruptCheckpoint as error:
            logger.warning(
                "%s cannot be used (%s): compacted logs are cleaned from their start",
                self._path(),
                error,
            )
            return {}

    def _write(self) -> None:
        """Write the cleaner's checkpoint without a sync. If a power loss restores an old one, or
        none, some segments are cleaned again.
        """
        self._logs.disk.write_atomic(self._path(), encode_offsets(self._cleaned_to), sync=False)


def _sizes(result: CleanResult) -> str:
    """The result of a cleaning as text for the log."""
    replaced = sum(len(segment.replaces) for segment in result.segments)
    return (
        f"{result.read_bytes} bytes read, {replaced} segments became {len(result.segments)} "
        f"with {result.written_bytes} bytes"
    )
