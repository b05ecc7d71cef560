"""The first offset of a group in a partition that it has not read yet: `share.auto.offset.reset`.

If the setting is a duration, the first record that is not older than it is found by a look-up by
time, which reads the log. One event makes a few of these look-ups. The others wait for a tick, and
keep the time of their first attempt. The worker searches a batch if that takes long, and a large
index is built in slices. Meanwhile, the members get no records of the partition.
"""

from __future__ import annotations

from barnabas.broker.requests.pending_requests import Requests
from barnabas.broker.settings.group_configs import GroupConfigs
from barnabas.broker.share_partitions.share_sessions import ShareTarget
from barnabas.coordinator.share_states.share_records import SharePartitionKey
from barnabas.protocol.errors import Code, KafkaError
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.exception_guard import contain
from barnabas.storage.log.log import Log
from barnabas.storage.log.time_lookup import offset_for_timestamp
from barnabas.storage.segments.index_cache import BuildDeferred
from barnabas.storage.segments.time_search import Searched, SearchResult, SearchTakesLong

# The maximum number of look-ups in one event. Each reads a batch of up to 10,000 records, or 1 MiB,
# in 3 ms.
LOOK_UPS_AT_ONCE = 4


class SearchedLater(Exception):
    """The first offset of a share partition is not known yet."""

    def __init__(self, search: _Search) -> None:
        super().__init__()
        self._search = search

    def wake(self, target: ShareTarget) -> None:
        """Let a session's fetches visit the partition again when its first offset is known."""
        self._search.targets[target] = None


class _Search:
    """A look-up by time.

    is_done: whether the look-up is complete. offset: the result of a complete look-up; None if no
    record is found, or after an error, whose code is `code`.
    """

    __slots__ = ("code", "is_done", "log", "offset", "searched", "targets", "timestamp")

    def __init__(self, log: Log, timestamp: int) -> None:
        self.log, self.timestamp = log, timestamp
        self.searched: Searched = {}
        self.targets: dict[ShareTarget, None] = {}
        self.is_done = False
        self.offset: int | None = None
        self.code = Code.OFFSET_NOT_AVAILABLE

    def look_up(self, log: Log) -> None:
        """Look up the offset. Raises: SearchTakesLong, BuildDeferred; KafkaError if the log cannot
        be read.
        """
        found = offset_for_timestamp(
            log, self.timestamp, upper_bound_offset=log.high_watermark, searched=self.searched
        )
        self.is_done, self.offset = True, None if found is None else found.offset

    def end(self, now_ms: int) -> None:
        """Let the waiting sessions visit the partition again."""
        targets, self.targets = self.targets, {}
        waiting = [one for one in targets if one.session.targets.get(one.place) is one]
        for target in waiting:
            target.make_ready()
        for target in waiting:
            target.try_fetches(now_ms)


class FirstOffsets:
    """The look-ups that are in progress. is_ready: whether `on_tick` has look-ups to make."""

    def __init__(self, group_configs: GroupConfigs, logs: LogManager, requests: Requests) -> None:
        self._group_configs, self._logs, self._requests = group_configs, logs, requests
        self._searches: dict[SharePartitionKey, _Search] = {}
        self._due: dict[_Search, None] = {}
        self._now_ms, self._left = 0, LOOK_UPS_AT_ONCE

    @property
    def is_ready(self) -> bool:
        return bool(self._due)

    def of(self, key: SharePartitionKey, log: Log, now_ms: int) -> int:
        """The offset at which the group begins.

        Raises: KafkaError OFFSET_NOT_AVAILABLE if the group begins at a time for which there is no
                record; KAFKA_STORAGE_ERROR if the log is damaged; SearchedLater if the look-up is
                not complete yet.
        """
        reset = self._group_configs.value(key.group_id, "share.auto.offset.reset")
        if reset.age_ms is None:
            self._searches.pop(key, None)
            return log.log_start_offset if reset.text == "earliest" else log.high_watermark
        search = self._searches.get(key)
        if search is None or search.log is not log:
            search = _Search(log, reset.timestamp(now_ms + log.wall.ahead_ms))
            self._searches[key] = search
            self._due[search] = None
            if now_ms != self._now_ms:
                self._now_ms, self._left = now_ms, LOOK_UPS_AT_ONCE
            if self._left:
                self._left -= 1
                self._look_up(search)
        if not search.is_done:
            raise SearchedLater(search)
        del self._searches[key]
        if search.offset is None:
            raise KafkaError(search.code)
        return search.offset

    def forget(self, group_id: str) -> None:
        """Drop the look-ups of a group that has no sessions."""
        for key in [key for key in self._searches if key.group_id == group_id]:
            self._due.pop(self._searches.pop(key), None)

    def on_tick(self, now_ms: int) -> None:
        """Make some of the waiting look-ups."""
        for search in list(self._due)[:LOOK_UPS_AT_ONCE]:
            self._look_up(search)
            if search.is_done:
                search.end(now_ms)

    def _look_up(self, search: _Search) -> None:
        """Look a search's timestamp up in the log. A long search, or one that needs an index to be
        built, is continued later.
        """
        del self._due[search]
        try:
            with self._logs.cache.deferring_builds():
                search.look_up(search.log)
        except SearchTakesLong as long:
            self._search_elsewhere(search, long)
        except BuildDeferred as build:
            self._logs.log_dir.build_later(build, lambda _: self._due.setdefault(search))
        except KafkaError:  # no descriptor is free; the member will try again
            search.is_done = True
        except Exception as error:
            contain(error, f"a share group begins by time at {search.log!r}")
            search.is_done, search.code = True, Code.KAFKA_STORAGE_ERROR

    def _search_elsewhere(self, search: _Search, long: SearchTakesLong) -> None:
        """Search a batch in the worker, then continue the look-up with the result."""

        def done(result: SearchResult, now_ms: int) -> None:
            search.searched[long.name] = result
            self._look_up_again(search, now_ms)

        self._requests.run_in_background(long.run, done)

    def _look_up_again(self, search: _Search, now_ms: int) -> None:
        """Continue a look-up; if it is done, the waiting fetches are notified."""
        self._due[search] = None
        self._look_up(search)
        if search.is_done:
            search.end(now_ms)
