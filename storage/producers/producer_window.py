"""Reads the last five batches of a producer from the log.

A snapshot has the last batch of each producer. The four previous batches, by which a duplicate is
recognised, are read from the log when they are needed, once for each producer. On the event loop
they are searched in slices: after each the batch of the client waits for its next turn.
"""

from __future__ import annotations

import logging

from barnabas.storage.batch.validate import CheckBudget, TakesLongError
from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.producers.producer_state import REMEMBERED_BATCHES, BatchMeta, ProducerEntry
from barnabas.storage.segments.segment_list import SegmentList

_MOST_HEADERS = 1 << 18  # of one search
_HEADERS_AT_ONCE = 1 << 14  # reading them takes 16 ms

logger = logging.getLogger(__name__)


def restore_window(
    entry: ProducerEntry, segments: SegmentList, at_once: CheckBudget | None = None
) -> None:
    """Add the earlier batches of the entry's epoch to the entry, if the log has them.

    Takes:  at_once, the limits of a search on the loop, in which a header counts as a record; None
            if the caller is not on the loop.
    Raises: OSError: the next call then tries again. TakesLongError, only with at_once: the next
            call continues the search.
    """
    below, count = entry.window_search or (
        entry.batches[0].first_offset if entry.batches else segments.end_offset,
        0,
    )
    most = _MOST_HEADERS
    if at_once is not None:
        most = min(count + _HEADERS_AT_ONCE, count + at_once.records_left, most)
    missing = REMEMBERED_BATCHES - len(entry.batches)
    earlier: list[BatchMeta] = []
    try:
        for header in segments.headers_before(below):
            if count >= most:
                if most < _MOST_HEADERS:
                    _put_off(entry, earlier, header.next_offset, count)
                break
            count += 1
            if at_once is not None:
                at_once.records_left -= 1
            if header.producer_id != entry.producer_id or header.is_control:
                continue
            if header.producer_epoch != entry.producer_epoch or len(earlier) == missing:
                break
            earlier.append(
                BatchMeta(
                    header.base_sequence,
                    header.last_sequence,
                    header.base_offset,
                    header.last_offset,
                    header.max_timestamp,
                )
            )
            if header.base_sequence == 0:
                break
    except CorruptLog as error:
        logger.error(
            "the batches of producer %d cannot be read from %s: %s",
            entry.producer_id,
            segments.active.batches.directory,
            error,
        )
    entry.batches = [*reversed(earlier), *entry.batches]
    entry.has_whole_window, entry.window_search = True, None


def _put_off(entry: ProducerEntry, earlier: list[BatchMeta], below: int, count: int) -> None:
    """Keep what was found, and where the search continues. Raises: TakesLongError."""
    entry.batches = [*reversed(earlier), *entry.batches]
    entry.window_search = below, count
    raise TakesLongError
