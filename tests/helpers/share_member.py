"""Members of a share group of a `DiskBroker`. They have share sessions, and fetch and acknowledge
records.

    b = DiskBroker(**SHARED)
    b.topic("t")
    begin_group(b, "g", "t")
    m = ShareMember(b, "g", "m")
    assert m.take("t") == [(0, 4, 1)]
    assert m.acknowledge("t", (0, 4, ACCEPT)) == 0
"""

from __future__ import annotations

import uuid
from typing import Any

from barnabas.broker.share_partitions.share_partition import ACCEPT, GAP, REJECT, RELEASE, RENEW
from barnabas.coordinator.result import StateChange, StateRow
from barnabas.coordinator.share_states.share_records import SharePartitionKey
from barnabas.protocol.messages import initialize_share_group_state as initialize
from barnabas.protocol.messages import share_acknowledge, share_fetch
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.records import batches_in, records_of
from helpers.disk_broker import DiskBroker

__all__ = ["ACCEPT", "GAP", "REJECT", "RELEASE", "RENEW"]
GROUP_RESOURCE = 32
SHARED = {
    "share_coordinator_state_topic_num_partitions": "2",
    "group_share_min_record_lock_duration_ms": "1000",
}

Batch = tuple[int, int, int | list[int]]


def topic_id(b: DiskBroker, name: str) -> uuid.UUID:
    topic = b.broker.metadata.topic(name)
    assert topic is not None
    return topic.topic_id


def initialize_state(
    b: DiskBroker, key: SharePartitionKey, state_epoch: int, start_offset: int
) -> None:
    """Initialise one state, as the coordinator of the group does."""
    row = StateRow(uuid.UUID(bytes=key.topic_id), key.partition, start_offset)
    change = StateChange(key.group_id, False, (row,), state_epoch)
    _carry_out(b, change)


def delete_state(b: DiskBroker, key: SharePartitionKey) -> None:
    """Delete one state, as the coordinator of the group does."""
    row = StateRow(uuid.UUID(bytes=key.topic_id), key.partition)
    _carry_out(b, StateChange(key.group_id, True, (row,)))


def _carry_out(b: DiskBroker, change: StateChange) -> None:
    b.broker.shares.get().changes.begin(change, lambda *_: None, b.now_ms)
    b.flush()
    b.tick()


def begin_group(b: DiskBroker, group: str, *topics: str, start: int = 0) -> None:
    """Initialise the share state of a group for all partitions of the topics."""
    rows = []
    for name in topics:
        count = len(b.broker.topics.partitions_of(name))
        partitions = [initialize.PartitionData(index, 0, start) for index in range(count)]
        rows.append(initialize.InitializeStateData(topic_id(b, name), partitions))
    answer = b.call(initialize.InitializeShareGroupStateRequest(group, rows), 0)
    assert {row.error_code for topic in answer.results for row in topic.partitions} == {0}


def configure(b: DiskBroker, group: str, **settings: str) -> None:
    """Change settings of a group. In the names of settings, underscores replace the dots."""
    configs = [
        AlterableConfig(name.replace("_", "."), 0, value) for name, value in settings.items()
    ]
    resource = AlterConfigsResource(GROUP_RESOURCE, group, configs)
    answer = b.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0, answer.responses[0].error_message


class ShareMember:
    """A member with a share session and its own connection. `session` is the epoch of its next
    request, and `last` is the last response.
    """

    def __init__(self, b: DiskBroker, group: str, member_id: str) -> None:
        self.b, self.group, self.member_id = b, group, member_id
        self.connection, self.session = b.connect(), 0
        self.last: Any = None

    # --- fetching --------------------------------------------------------------------------------

    def fetch_request(
        self,
        *places: tuple[str, int],
        acknowledged: dict[tuple[str, int], list[Batch]] | None = None,
        forgotten: tuple[tuple[str, int], ...] = (),
        session: int | None = None,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        max_records: int = 500,
        batch_size: int = 500,
        mode: int = 0,
        is_renewal: bool = False,
    ) -> Any:
        """A ShareFetch request for these partitions in the member's session, with
        acknowledgements.
        """
        batches = acknowledged or {}
        topics = [
            share_fetch.FetchTopic(
                topic_id(self.b, name),
                [
                    share_fetch.FetchPartition(
                        index,
                        [
                            share_fetch.AcknowledgementBatch(first, last, _types(kinds))
                            for first, last, kinds in batches.get((name, index), ())
                        ],
                    )
                ],
            )
            for name, index in dict.fromkeys((*places, *batches))
        ]
        left = [share_fetch.ForgottenTopic(topic_id(self.b, name), [at]) for name, at in forgotten]
        epoch = self.session if session is None else session
        return share_fetch.ShareFetchRequest(
            self.group, self.member_id, epoch, max_wait_ms, min_bytes, max_bytes, max_records,
            batch_size, mode, is_renewal, topics, left,
        )  # fmt: skip

    def send_fetch(self, *places: tuple[str, int], **how: Any) -> None:
        """Send a fetch. `answer` returns the response once there is one."""
        self.b.send(self.connection, self.fetch_request(*places, **how), 2)

    def answer(self) -> Any:
        """The response to the last request, or None while the request waits."""
        answer = self.b.answer(self.connection)
        if answer is not None and answer is not self.last:
            self.last = answer
            if answer.error_code == 0:
                self.session += 1
        return answer

    def fetch(self, *places: tuple[str, int], **how: Any) -> Any:
        """Fetch, and return the response, which must come immediately."""
        self.send_fetch(*places, **how)
        answer = self.answer()
        assert answer is not None, "the fetch waits"
        return answer

    def take(self, topic: str, index: int = 0, **how: Any) -> list[tuple[int, int, int]]:
        """Fetch one partition, and return the acquired ranges (see `acquired`)."""
        answer = self.fetch((topic, index), **how)
        assert answer.error_code == 0, answer
        return acquired(answer)

    # --- acknowledging ---------------------------------------------------------------------------

    def send_acknowledge(
        self,
        topic: str,
        *batches: Batch,
        index: int = 0,
        session: int | None = None,
        is_renewal: bool = False,
    ) -> None:
        """Send a ShareAcknowledge. `acknowledged` returns its error code once there is a
        response.
        """
        made = share_acknowledge
        rows = [
            made.AcknowledgementBatch(first, last, _types(kinds)) for first, last, kinds in batches
        ]
        topics = [
            made.AcknowledgeTopic(topic_id(self.b, topic), [made.AcknowledgePartition(index, rows)])
        ]
        epoch = self.session if session is None else session
        request = made.ShareAcknowledgeRequest(
            self.group, self.member_id, epoch, is_renewal, topics
        )
        self.b.send(self.connection, request, 2)

    def acknowledged(self) -> int | None:
        """The error code of the last acknowledgement, or None if it has no response yet."""
        answer = self.answer()
        if answer is None:
            return None
        if answer.error_code:
            return int(answer.error_code)
        return int(answer.responses[0].partitions[0].error_code)

    def acknowledge(self, topic: str, *batches: Batch, **how: Any) -> int:
        """Acknowledge batches, and return the error code."""
        self.send_acknowledge(topic, *batches, **how)
        code = self.acknowledged()
        assert code is not None, "the acknowledgement waits"
        return code

    def hang_up(self) -> None:
        """Close the connection."""
        self.b.broker.on_closed(self.connection)
        self.b.tick()


def acquired(answer: Any) -> list[tuple[int, int, int]]:
    """The first offset, last offset and delivery count of each acquired range in a response."""
    return [
        (one.first_offset, one.last_offset, one.delivery_count)
        for topic in answer.responses
        for row in topic.partitions
        for one in row.acquired_records
    ]


def values(answer: Any) -> list[bytes]:
    """The values of the acquired records in a response."""
    found = []
    for topic in answer.responses:
        for row in topic.partitions:
            offsets = {
                offset
                for one in row.acquired_records
                for offset in range(one.first_offset, one.last_offset + 1)
            }
            data = bytes(row.records or b"")
            for position, header in batches_in(data):
                if not header.is_control:
                    batch = data[position : position + header.size_bytes]
                    found += [
                        record.value or b""
                        for record in records_of(batch)
                        if record.offset in offsets
                    ]
    return found


def _types(kinds: int | list[int]) -> list[int]:
    return kinds if isinstance(kinds, list) else [kinds]
