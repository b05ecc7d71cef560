"""The names of a segment's files, and the error for a damaged file.

    <20 digits of the base offset>.log         batches, one after the other
                                  .index       see offset_index
                                  .timeindex   see time_index
                                  .txnindex    see txn_index
                                  .snapshot    see producer_snapshots

A further suffix may follow: `.deleted` (removed later), `.cleaned` or `.swap` (see segment_swap).

What belongs to a segment goes with it: its files of SEGMENT_SUFFIXES are deleted, set aside and
replaced by compaction together. Of those, INDEX_SUFFIXES are the files whose sizes and checksums
the manifest has, and which a cleaning writes for its new segments. `data_files` has the other files
of a data directory.
"""

from __future__ import annotations

LOG_SUFFIX, INDEX_SUFFIX, TIME_SUFFIX, TXN_SUFFIX, SNAPSHOT_SUFFIX = (
    ".log",
    ".index",
    ".timeindex",
    ".txnindex",
    ".snapshot",
)
STRAY_SUFFIX = "-stray"  # of what is set aside: it is never used or deleted
DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX = ".deleted", ".cleaned", ".swap"
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_SUFFIX, TXN_SUFFIX)
SEGMENT_SUFFIXES = (LOG_SUFFIX, *INDEX_SUFFIXES)
# the maximum difference between an offset and the base offset of its segment
HIGHEST_RELATIVE_OFFSET = 2**31 - 1


class CorruptLog(Exception):
    """A file of a partition is damaged. Its remaining bytes may be removed only on request.

    The message names the file and the position, and says what can be done.
    """

    def __init__(self, path: str, position: int, why: str, advice: str) -> None:
        super().__init__(f"{path}, byte {position}: {why}. {advice}")
        self.path = path


class ForeignLog(CorruptLog):
    """A partition's directory has the id of another topic.

    Its records are not served, and it is not deleted with the topic.
    """


def offset_name(offset: int) -> str:
    """An offset as file names contain it."""
    return f"{offset:020d}"
