"""A start and a stop of the broker without clients, before a hand-over.

The start recovers the logs if the broker was killed; open transactions are aborted on request.
"""

from __future__ import annotations

from barnabas.broker.core import Broker
from barnabas.broker.outbox import Ids
from barnabas.broker.settings.config import BrokerConfig
from barnabas.daemon.opening import open_broker
from barnabas.graduation.survey import GraduationError
from barnabas.storage.disk import Disk

_SHOWN = 5


def start_and_stop(
    disk: Disk,
    config: BrokerConfig,
    ids: Ids,
    *,
    now_ms: int,
    wall_ms: int,
    aborts_transactions: bool,
) -> int:
    """Open the directory that the configuration names, and stop cleanly.

    Gives:  the number of aborted transactions.
    Raises: GraduationError if a log is damaged; LogDirectoryError, OSError.
    """
    broker = open_broker(
        config, ids, disk=disk, now_ms=now_ms, wall_ms=wall_ms, notes_settings=False
    )
    aborted = broker.abort_transactions(now_ms) if aborts_transactions else 0
    damaged = _finish_and_close(broker, now_ms)
    if damaged:
        raise GraduationError(
            f"{len(damaged)} logs are damaged: {'; '.join(map(str, damaged[:_SHOWN]))}"
        )
    return aborted


def _finish_and_close(broker: Broker, now_ms: int) -> list[Exception]:
    """Finish what a start without clients has begun, in this thread, and stop cleanly.

    Gives: why partitions are off line, if any are.
    """
    outbox, ends = broker.outbox, broker.coordinators.get().transaction_ends
    while outbox.flushes or outbox.deferred or outbox.work or ends.in_parts:
        broker.on_sent(now_ms)  # the end of a transaction is appended after its flush
        ends.on_tick(now_ms)
        works, outbox.work = outbox.work, []
        for work in works:
            broker.on_worked(work, work.run(), None, now_ms)
        jobs, outbox.flushes = outbox.flushes, []
        for job in jobs:
            for file in job.files:
                file.fsync()
            broker.on_flushed(job, now_ms)
    damaged: list[Exception] = list(broker.logs.offline.values())
    broker.close_logs(now_ms)
    return damaged
