"""Reads the records of many partitions, for `consume`: a Fetch to each leader, again and again."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.cli.client.cluster_client import PASSING, ClusterClient
from barnabas.cli.client.records import FETCH, records_in
from barnabas.cli.client.topics import CLIENT, by_topic, leaders
from barnabas.cli.errors import RefusedError
from barnabas.cli.records import ConsumedRecord
from barnabas.protocol.errors import Code
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from barnabas.protocol.topic_partition import TopicPartition

# A batch that is larger is still returned, if its partition is the first of the request.
PARTITION_BYTES = 1 << 20
FETCH_BYTES = 16 << 20
SESSIONLESS = -1
# Errors of a moment: the leaders are requested again.
RETRIED = PASSING | {
    Code.UNKNOWN_TOPIC_OR_PARTITION,
    Code.FENCED_LEADER_EPOCH,
    Code.UNKNOWN_LEADER_EPOCH,
    Code.OFFSET_NOT_AVAILABLE,
    Code.KAFKA_STORAGE_ERROR,
    Code.REPLICA_NOT_AVAILABLE,
}


class RecordReader:
    """Reads records from the assigned partitions. It commits nothing, and creates no topic.

    positions: the next offset of each partition that is read.
    """

    def __init__(self, client: ClusterClient, *, read_committed: bool) -> None:
        self.waiting = client.waiting
        self.positions: dict[TopicPartition, int] = {}
        self._client = client
        self._isolation_level = int(read_committed)

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets, and no others."""
        self.positions = dict(positions)

    def poll(self, wait_ms: int) -> dict[TopicPartition, list[ConsumedRecord]]:
        """The next records of each partition that has some.

        Takes:  wait_ms, how long the brokers may wait for a record.
        After:  the positions are past the returned records, and past markers and aborted records.
        Raises: TimeoutOver, RefusedError; CommandError for damaged records.
        """
        fetched = self._client.persist(lambda: self._fetch(wait_ms), "records", RETRIED)
        found = {}
        for partition, row in fetched.items():
            begun = self.positions[partition]
            records, position = records_in(row, partition, begun)
            found[partition] = [
                ConsumedRecord(partition.topic, partition.partition, *record)
                for record in records
                if record.offset >= begun
            ]
            if position > begun:
                # Brokers fill a response in the order of the request. The partitions that had
                # records move to the end, so that each one has its turn.
                del self.positions[partition]
                self.positions[partition] = position
        return found

    def _fetch(self, wait_ms: int) -> dict[TopicPartition, PartitionData]:
        """The responses of all leaders, by partition. Raises: RefusedError."""
        found: dict[TopicPartition, PartitionData] = {}
        by_leader = leaders(self._client, self.positions)
        for node_id, partitions in by_leader.items():
            wanted = [row for row in self.positions if row in set(partitions)]
            request = self._request(wanted, 0 if found else wait_ms // len(by_leader))
            answer = self._client.once(node_id, FETCH, request, "records")
            if answer.error_code:
                raise RefusedError(answer.error_code)
            for topic in answer.responses:
                for row in topic.partitions:
                    partition = TopicPartition(topic.topic, row.partition_index)
                    if self._is_truncated(partition, row):
                        self.positions[partition] = row.log_start_offset
                    elif row.error_code:
                        raise RefusedError(row.error_code, "", partition.topic)
                    elif row.records:
                        found[partition] = row
        return found

    def _is_truncated(self, partition: TopicPartition, row: PartitionData) -> bool:
        """Whether retention has deleted the records up to an offset beyond the position."""
        return (
            row.error_code == Code.OFFSET_OUT_OF_RANGE
            and row.log_start_offset > self.positions[partition]
        )

    def _request(self, partitions: list[TopicPartition], wait_ms: int) -> FetchRequest:
        rows = by_topic(
            partitions,
            lambda row: FetchPartition(
                partition=row.partition,
                fetch_offset=self.positions[row],
                partition_max_bytes=PARTITION_BYTES,
            ),
        )
        return FetchRequest(
            replica_id=CLIENT,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=self._isolation_level,
            session_id=0,
            session_epoch=SESSIONLESS,
            topics=[FetchTopic(topic=topic, partitions=part) for topic, part in rows.items()],
        )
