"""Reads the last five batches of a producer from the log.

A snapshot has the last batch of each producer. The four previous batches, by which a duplicate is
recognised, are read from the log when they are needed, once for each producer.
"""

from __future__ import annotations

import logging

from barnabas.storage.files.segment_files import CorruptLog
from barnabas.storage.log.segment_list import SegmentList
from barnabas.storage.producers.producer_state import REMEMBERED_BATCHES, BatchMeta, ProducerEntry

logger = logging.getLogger(__name__)


def restore_window(entry: ProducerEntry, segments: SegmentList) -> None:
    """Add the earlier batches of the entry's epoch to the entry, if the log has them.

    Raises: OSError. The next call then tries again.
    """
    oldest = entry.batches[0].first_offset if entry.batches else segments.end_offset
    missing = REMEMBERED_BATCHES - len(entry.batches)
    earlier: list[BatchMeta] = []
    try:
        for header in segments.headers_before(oldest):
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
    entry.has_whole_window = True
