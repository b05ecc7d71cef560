"""Loads a log from its directory, in any state after the last run of a broker.

The steps are in this order:

    1  `partition_files`            the directory's files: an interrupted swap is completed, remains
                                    of other changes are removed
    2  here                         the log's start and the end of its durable part, by the
                                    checkpoints and the manifest
    3  `log_loader`, `torn_tail`    the untrusted part is read and indexed, written again from the
                                    flush journals, or cut; a log that now ends before its start
                                    continues at its start
    4  `epoch_recovery`             leader epochs

How the last run ended decides what is trusted, redone and cut: see the tables in `last_run`. Damage
is never cut: CorruptLog names the file, the position, and what to do.
"""

from __future__ import annotations

from barnabas.storage.files.checkpoints import NO_TOPIC_ID
from barnabas.storage.log.log import Log, LogContents
from barnabas.storage.log.log_directory import LogDirectory
from barnabas.storage.log_config import LogConfig
from barnabas.storage.opening.epoch_recovery import load_epochs
from barnabas.storage.opening.last_run import TRUST
from barnabas.storage.opening.log_loader import LogLoader, Opening
from barnabas.storage.opening.partition_files import PartitionFiles
from barnabas.storage.segments.segment_list import SegmentList


def load_log(
    log_dir: LogDirectory,
    topic: str,
    partition: int,
    config: LogConfig,
    opening: Opening,
    *,
    recovery_point: int | None,
    log_start_offset: int | None,
) -> Log:
    """Open the log of one partition. One long function, which shows the order of the steps.

    Takes:  recovery_point and log_start_offset, from the data directory's checkpoints, or None. If
            the manifest is up to date, the higher log start is used: a start that clients have seen
            is never lowered, and Apache Kafka raises it only in the checkpoint.
    Raises: CorruptLog, which names the file and what to do; OSError.
    """
    trust = TRUST[opening.last_run]
    gaps_are_lost = trust.gaps_are_lost and recovery_point is not None
    point, start = recovery_point or 0, log_start_offset or 0
    files = PartitionFiles(log_dir, topic, partition)
    if not trust.all_written:
        files.drop_manifest_of_lost_segments(point)
    files.open_segments(config, start, opening.now_ms)
    manifest = files.manifest
    # If the manifest does not match after a clean stop, it is older than Apache Kafka's last run in
    # this directory.
    if manifest is not None and (not trust.all_flushed or files.is_as_noted()):
        start = max(start, manifest.log_start_offset)
        if trust.all_flushed:
            point = manifest.log_end_offset
    start = max(start, files.segments[0].base_offset)
    sizes = files.sizes()
    loader = LogLoader(
        files, opening, point, is_compacted=config.is_compacted, gaps_are_lost=gaps_are_lost
    )
    state = loader.load()
    end_offset = state.end_offset
    if trust.all_flushed:
        files.report_shrunk(sizes)
    if manifest is not None and end_offset < manifest.log_end_offset:
        files.remove_manifest()
    files.snapshots.drop_above(end_offset)
    epochs = load_epochs(files, end_offset, all_flushed=trust.all_flushed)
    if end_offset < start:
        loader.continue_at(start, state, config)
        end_offset = start
    contents = LogContents(
        segments=SegmentList(files.segments, end_offset),
        log_start_offset=start,
        recovery_point=min(point, end_offset),
        producer_state=state,
        epochs=epochs,
        snapshots=files.snapshots,
        names_are_durable=trust.all_flushed,
        has_files=files.has_files,
    )
    log = Log(log_dir, files.partition, config, contents)
    if not trust.all_flushed and log.topic_id != NO_TOPIC_ID:
        # Entries of a flush journal are assigned to this log by the topic id, so the file of the id
        # has to become durable.
        log.durability.add_names(files.topic_id_path)
    if manifest is not None and log.log_start_offset > manifest.log_start_offset:
        # A later manifest was lost in a power loss. The log start is stored again, since after a
        # kill the next start would trust this older manifest.
        log_dir.changed_starts.add((topic, partition))
    is_at_end = manifest is not None and manifest.log_end_offset == end_offset
    if loader.has_kept_gap:
        # The log's recovery point is raised above the gaps. Otherwise a start after a power loss
        # would treat them as lost data, since Barnabas's compaction leaves gaps only below the
        # recovery point.
        log.flush()
    log.set_opened(
        loader.read_bytes,
        opening.now_ms,
        as_closed=loader.was_closed and is_at_end and files.is_as_noted(),
    )
    return log
