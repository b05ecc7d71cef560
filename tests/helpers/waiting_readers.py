"""A check for fetches that wait for records although the records are already readable.

Such a fetch was not notified when the records became readable. It would wait for the next append,
or until its maximum wait time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from barnabas.broker.handlers.fetch import _Fetch
from barnabas.broker.logs.purgatory import WaitingFetch
from barnabas.broker.share_partitions.loaded_partition import LoadedPartition
from barnabas.storage.log.log import Log
from barnabas.storage.segments.segment_indexes import BuildDeferred


def waiting_for_what_is_there(
    broker: Any, logs: Collection[Log] | None = None
) -> list[tuple[str, str]]:
    """The fetches that wait although they could complete, each as its kind and its log.

    Takes: broker, an idle broker; logs, the logs that have changed, or None for all.
    """
    purgatory = broker.purgatory
    if not (purgatory.waiting_count or purgatory.watchers):
        return []
    if logs is None:
        logs = dict.fromkeys((*purgatory._by_log, *purgatory.watchers))
    found = []
    for log in logs:
        if log in broker.topics.more_readable:
            continue  # the next tick notifies the fetches that wait for this log
        found += [
            ("fetch", repr(log))
            for waiting in purgatory._by_log.get(log, ())
            if not waiting.done and _has_enough(broker, waiting)
        ]
        found += [("share fetch", repr(log)) for _ in _shared(broker, log)]
    return found


def _has_enough(broker: Any, waiting: WaitingFetch) -> bool:
    """Whether a waiting fetch would get enough bytes if it were read now."""
    fetch = getattr(waiting.try_complete, "__self__", None)
    if not isinstance(fetch, _Fetch) or fetch._readable_version != broker.cluster.readable_version:
        # The waiting request is not a fetch, or it is a fetch that was sent before leaders moved.
        # Such a fetch completes as soon as any log makes progress.
        return False
    try:
        with broker.logs.cache.deferring_builds():
            return fetch.is_enough(*fetch.read()[1:])
    except BuildDeferred:
        return False


def _shared(broker: Any, log: Log) -> Iterator[Any]:
    """The share fetches that wait for records of a log although they could acquire some. A fetch
    that wants more than one byte, or whose partition is checked later, may rightly wait.
    """
    shares = broker.shares.made
    for loaded in broker.purgatory.watchers.get(log, ()):
        if not isinstance(loaded, LoadedPartition) or not loaded.is_stored:
            continue
        if loaded in shares.partitions._woken_later:
            continue
        limits = shares.partitions.limits(loaded.key.group_id)
        for target in loaded.idle:
            for fetch in target.session.waiting:
                end_offset = log.last_stable_offset if fetch._is_committed else log.high_watermark
                if (
                    fetch._min_bytes == 1
                    and fetch._max_records > 0
                    and loaded.is_of(log)
                    and loaded.value.next_offset < end_offset
                    and loaded.value.may_acquire(limits.record_locks)
                    and fetch._is_current(target.session)
                ):
                    yield fetch
