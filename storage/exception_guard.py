"""What an exception ends: one piece of work, or the process.

Work that is put off runs inside another event: a tick, the end of a flush, the request of another
client. Each place that runs such work passes an exception of one piece to `contain`, and goes on
with the next piece.

    one piece of work                        run by                       an exception ends
    ---------------------------------------  ---------------------------  ------------------------
    a slice or a part of a request           SlicedWork, WideRequests     its request
    the result of the worker                 Broker.on_worked             its request
    an attempt at a waiting fetch            Purgatory, WaitingShareFetch its request
    a callback that waited for the disk,     FlushQueue, Syncs,           the callback
    for disk space, or for sent answers      UnwrittenWork, Broker
    the notification of a share partition    Purgatory                    the notification
    the build of an index                    SegmentIndexes, IndexBuilds  the build; its readers
                                                                          get CorruptLog
    retention, expiration, a checkpoint or   LogUpkeep, LogManager,       this time's work on
    new settings of one log                  TopicRegistry                the log
    the cleaning of one log                  Compaction                   the cleaning, which is
                                                                          tried again later
    the locks of a share partition, or the   SharePartitionCache,            this time's work on
    look-up of its first offset              FirstOffsets                 the share partition

A request that ends so is answered with an error, or its connection is closed.

Two kinds of exceptions end the process: an OSError that was not expected, after which the disk
cannot be trusted, and an AssertionError, after which the broker's state cannot be trusted. All
other exceptions of the timers of coordinators end the process, too, since a timer that failed once
would fail with each tick.
"""

from __future__ import annotations

import logging

from barnabas.storage.files.segment_files import CorruptLog

logger = logging.getLogger("barnabas.broker")


def ends_process(error: Exception) -> bool:
    """Whether the disk, or the state of the whole broker, cannot be trusted after this error."""
    return isinstance(error, OSError | AssertionError)


def contain(error: Exception, what: object) -> None:
    """Log the exception of one piece of work, so that the caller can go on with the next piece.

    Takes:  what, the piece of work: the partition or the request.
    Raises: the error again if it ends the process.
    """
    if ends_process(error):
        raise error
    report(error, what)


def report(error: Exception, what: object) -> None:
    """Log an exception. The message of CorruptLog names the file, and says what can be done; any
    other exception is a fault of the broker, and is logged with its traceback.
    """
    if isinstance(error, CorruptLog):
        logger.error("%s: %s", what, error)
    else:
        logger.error("%s: an error in the broker; please report it", what, exc_info=error)
