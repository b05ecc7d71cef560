"""The directory and the first files of one log, which are made with its first batch.

    partition.metadata          the topic id
    leader-epoch-checkpoint     the leader epochs
    <offset>.log and indexes    the active segment

A new partition has none of these: thousands of partitions without a batch take no disk space.
"""

from __future__ import annotations

from contextlib import suppress

from barnabas.protocol.topic_partition import TopicIdPartition
from barnabas.storage.disk import Disk
from barnabas.storage.files.checkpoints import PARTITION_METADATA_NAME, encode_partition_metadata
from barnabas.storage.files.leader_epochs import LeaderEpochs
from barnabas.storage.log.durability import Durability
from barnabas.storage.log.new_files import NewFiles
from barnabas.storage.segments.segment_list import SegmentList


class LogFiles:
    """The files of a log: whether they exist, and how they are made.

    are_made: whether the partition has its directory. A new partition gets it with its first batch,
    or earlier if another thread has made `new_files`. lacks_epoch: whether the file of leader
    epochs has to be written before the next batch. lacks_checkpoint: whether the log needs a
    checkpoint after that write.
    """

    __slots__ = (
        "_directory",
        "_disk",
        "_durability",
        "_epochs",
        "_segments",
        "are_made",
        "lacks_checkpoint",
        "lacks_epoch",
        "new_files",
        "partition",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        partition: TopicIdPartition,
        segments: SegmentList,
        epochs: LeaderEpochs,
        durability: Durability,
        *,
        are_made: bool,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self.partition = partition
        self._segments = segments
        self._epochs = epochs
        self._durability = durability
        self.are_made = are_made
        self.lacks_epoch = not are_made
        self.lacks_checkpoint = False
        self.new_files: NewFiles | None = None

    def make(self) -> None:
        """Make the missing directory and files of an empty log, or use those that another thread
        has made.

        Nothing is durable before the first flush. If a start finds no directory, or an incomplete
        one, the log also begins empty.

        Raises: OSError if a file cannot be made, in which case the log is unchanged.
        """
        if self.are_made:
            return
        if self.new_files is not None and self.new_files.is_made:
            self.take(self.new_files)
            return
        path = f"{self._directory}/{PARTITION_METADATA_NAME}"
        try:
            self._disk.mkdir(self._directory)
            self._disk.write_atomic(
                path, encode_partition_metadata(self.partition.topic_id), sync=False
            )
            self._epochs.write()
            self._segments.active.make_files()
        except OSError:
            self._epochs.written = []
            with suppress(OSError):
                self._disk.rmtree(self._directory)
            raise
        self._note()

    def take(self, files: NewFiles) -> None:
        """Use the files that another thread has made, unless the log already has its own.

        Raises: OSError if they cannot be renamed, in which case the log is unchanged.

        As in `make`, nothing is durable before the first flush.
        """
        if self.are_made:
            return
        if self._disk.is_dir(self._directory):  # an earlier attempt may have left the directory
            self._disk.rmtree(self._directory)
        self._disk.rename(files.directory, self._directory)
        files.is_taken, self.new_files = True, None
        self._epochs.written = files.epochs
        self._note()

    def _note(self) -> None:
        self._durability.add_names(f"{self._directory}/{PARTITION_METADATA_NAME}")
        self.are_made = True
        self.lacks_epoch = self._epochs.written != self._epochs.entries

    def write_epochs(self) -> None:
        """Write the leader epochs.

        After:  lacks_checkpoint is set if the file was changed other than by an append. Without
                another checkpoint, the next start would treat the file as damaged.
        """
        epochs = self._epochs
        if epochs.entries[: len(epochs.written)] != epochs.written:
            self.lacks_checkpoint = True
        epochs.write()

    def adopt(self, partition: TopicIdPartition) -> None:
        """Store the topic id of a partition durably. If the log has no files, `make` stores it
        later.

        Raises: OSError, in which case nothing has changed.
        """
        if self.are_made:
            path = f"{self._directory}/{PARTITION_METADATA_NAME}"
            self._disk.write_atomic(path, encode_partition_metadata(partition.topic_id))
        self.partition = partition
