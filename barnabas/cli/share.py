"""`barnabas share consume`: records of a share group as lines on standard output (KIP-932).

The command is a member of the group. It sends heartbeats, fetches from the leaders of its assigned
partitions, and acknowledges the records that it has printed.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click

from barnabas.cli.client.cluster_client import ClusterClient
from barnabas.cli.client.topics import name_of
from barnabas.cli.cluster import Connection
from barnabas.cli.completing import complete_group, complete_topic
from barnabas.cli.errors import CommandError, RefusedError
from barnabas.cli.offsets import describe_topics
from barnabas.cli.options import connection_options, ending, json_option
from barnabas.cli.output import Output, note
from barnabas.cli.records import json_record
from barnabas.client.request_kind import RequestKind
from barnabas.json_text import json_line
from barnabas.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from barnabas.protocol.messages.share_fetch import (
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from barnabas.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from barnabas.protocol.records import batches_in, records_of
from barnabas.texts import count_text

HEARTBEAT = RequestKind(ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse, 1, 1)
SHARE_FETCH = RequestKind(ShareFetchRequest, ShareFetchResponse, 1, 2)
ACKNOWLEDGE = RequestKind(ShareAcknowledgeRequest, ShareAcknowledgeResponse, 1, 2)
ACCEPT, RELEASE, REJECT = 1, 2, 3
KINDS = {"accept": ACCEPT, "release": RELEASE, "reject": REJECT}
LEAVE, CLOSE = -1, -1
WAIT_MS, MOST_BYTES, MOST_RECORDS = 500, 1 << 20, 500
RECORD_LIMIT = 1
OTHER_SESSION = (122, 123)  # SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH


@click.group()
def share() -> None:
    """Share groups, in which many members read the same partition."""


@share.command(
    epilog=ending(
        "barnabas share consume orders --group workers",
        "barnabas share consume orders --group workers --count 10 --json",
        "barnabas share consume orders --group workers --as release",
    )
)
@click.argument(
    "topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topic
)
@click.option(
    "-g", "--group", required=True, shell_complete=complete_group, help="The share group."
)
@click.option("-n", "--count", metavar="N", type=click.IntRange(1), help="Stop after N records.")
@click.option("-f", "--follow", is_flag=True, help="Wait for more records until Ctrl-C.")
@click.option(
    "--idle",
    metavar="SECONDS",
    type=click.FloatRange(0),
    default=5.0,
    show_default=True,
    help="Without --follow: stop when no record has arrived for so long.",
)
@click.option(
    "--as",
    "kind",
    type=click.Choice(tuple(KINDS)),
    default="accept",
    show_default=True,
    help=(
        "How printed records are acknowledged: accepted, released for another delivery, or "
        "rejected."
    ),
)
@connection_options
@json_option
def consume(
    connection: Connection,
    output: Output,
    topics: Sequence[str],
    group: str,
    count: int | None,
    follow: bool,
    idle: float,
    kind: str,
) -> None:
    """Print records of topics as a member of a share group, and acknowledge them.

    Each record is locked for this member until it is printed, and then acknowledged.
    --json prints one object per line, with the delivery count. A new group starts at the end of the
    topics, unless its share.auto.offset.reset says otherwise.
    """
    with connection.admin() as admin:
        member = _Member(admin, group, list(topics), KINDS[kind])
        printed = 0
        try:
            last = time.monotonic()
            while count is None or printed < count:
                found = list(member.fetch(MOST_RECORDS if count is None else count - printed))
                for record in found:
                    sys.stdout.buffer.write(_line(record, as_json=output.as_json))
                sys.stdout.buffer.flush()
                member.acknowledge()
                printed += len(found)
                if found or not member.is_assigned:
                    last = time.monotonic()
                elif not follow and time.monotonic() - last >= idle:
                    break
        finally:
            member.leave()
    if sys.stderr.isatty():
        note(count_text(printed, "record"))


class Shared(NamedTuple):
    """A record that the member has acquired."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    delivery_count: int


def _line(record: Shared, *, as_json: bool) -> bytes:
    """A record as a line: its value, or the record as JSON."""
    if not as_json:
        return (record.value or b"") + b"\n"
    fields = json_record(record) | {"delivery_count": record.delivery_count}
    return json_line(fields).encode() + b"\n"


class _Member:
    """A member of a share group, with a share session on each broker that leads some of its
    partitions.
    """

    def __init__(self, admin: ClusterClient, group: str, topics: list[str], kind: int) -> None:
        self._admin, self._group, self._topics, self._kind = admin, group, topics, kind
        self._member_id = str(uuid.uuid4())
        self._epoch, self._next_beat = 0, 0.0
        self._by_id = {
            topic.topic_id: (
                name_of(topic),
                {row.partition_index: row.leader_id for row in topic.partitions},
            )
            for topic in describe_topics(admin, topics)
        }
        self._assigned: dict[int, list[tuple[Any, int]]] = {}  # by leader
        self._sessions: dict[int, int] = {}
        self._acquired: dict[int, list[tuple[Any, int, int, int]]] = {}

    # --- the group -------------------------------------------------------------------------------

    @property
    def is_assigned(self) -> bool:
        """Whether the member has partitions to read."""
        return bool(self._assigned)

    def _beat(self) -> None:
        """Send a heartbeat if it is due, and apply the assignment in the response."""
        if time.monotonic() < self._next_beat:
            return
        answer = self._heartbeat(self._epoch)
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self._follow(answer.assignment)
        wait_ms = answer.heartbeat_interval_ms if self.is_assigned else WAIT_MS
        self._next_beat = time.monotonic() + wait_ms / 2000

    def _heartbeat(self, epoch: int) -> ShareGroupHeartbeatResponse:
        """Send a heartbeat with a member epoch: 0 joins the group, LEAVE leaves it."""
        if not self._admin.speaks(HEARTBEAT):
            raise CommandError("the cluster has no share groups: it is older than Apache Kafka 4.2")
        request = ShareGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=epoch,
            rack_id=None,
            subscribed_topic_names=self._topics if epoch == 0 else None,
        )
        answer = self._admin.coordinator(
            self._group, HEARTBEAT, request, lambda answer: answer.error_code
        )
        _check(answer, self._group)
        return answer

    def _follow(self, assignment: Any) -> None:
        """Take an assignment, and close the sessions at leaders whose partitions have changed."""
        before = self._assigned
        self._assigned = {}
        for row in assignment.topic_partitions:
            _, leaders = self._by_id.get(row.topic_id, ("", {}))
            for index in row.partitions:
                if index in leaders:
                    self._assigned.setdefault(leaders[index], []).append((row.topic_id, index))
        for node_id, places in before.items():
            if self._assigned.get(node_id) != places:
                self._close(node_id)

    def leave(self) -> None:
        """Close the share sessions, which releases records that are not acknowledged, and leave the
        group.
        """
        for node_id in list(self._sessions):
            self._close(node_id)
        if self._epoch:
            self._heartbeat(LEAVE)

    # --- records ---------------------------------------------------------------------------------

    def fetch(self, most: int) -> Iterator[Shared]:
        """Acquire at most `most` records."""
        self._beat()
        if not self._assigned:
            time.sleep(WAIT_MS / 5000)
        for node_id, places in self._assigned.items():
            answer = self._fetch_from(node_id, places, most)
            for row in () if answer is None else answer.responses:
                name = self._by_id[row.topic_id][0]
                for partition in row.partitions:
                    for record in self._records(node_id, row.topic_id, name, partition):
                        most -= 1
                        yield record
            if most <= 0:
                return

    def _fetch_from(self, node_id: int, places: list[tuple[Any, int]], most: int) -> Any:
        """Fetch from one leader. Gives: its answer; None if the leader has lost the session, so
        that the next fetch begins another.
        """
        epoch = self._sessions.get(node_id, 0)
        topics = [
            FetchTopic(topic_id, [FetchPartition(index, [])])
            # only the first fetch of a session names partitions
            for topic_id, index in (places if epoch == 0 else ())
        ]
        request = ShareFetchRequest(
            group_id=self._group, member_id=self._member_id, share_session_epoch=epoch,
            max_wait_ms=WAIT_MS, min_bytes=1, max_bytes=MOST_BYTES, max_records=most,
            batch_size=most, share_acquire_mode=RECORD_LIMIT, is_renew_ack=False, topics=topics,
            forgotten_topics_data=[],
        )  # fmt: skip
        answer = self._admin.node(node_id, SHARE_FETCH, request)
        if answer.error_code in OTHER_SESSION:
            self._sessions.pop(node_id, None)
            return None
        _check(answer, self._group)
        self._sessions[node_id] = epoch + 1
        return answer

    def _records(self, node_id: int, topic_id: Any, name: str, row: Any) -> Iterator[Shared]:
        """The acquired records in a row of a response. They are stored for `acknowledge`."""
        data = bytes(row.records or b"")
        counts = {
            offset: one.delivery_count
            for one in row.acquired_records
            for offset in range(one.first_offset, one.last_offset + 1)
        }
        self._acquired.setdefault(node_id, []).extend(
            (topic_id, row.partition_index, one.first_offset, one.last_offset)
            for one in row.acquired_records
        )
        for position, header in batches_in(data):
            if header.is_control:
                continue
            for record in records_of(data[position : position + header.size_bytes]):
                if record.offset in counts:
                    yield Shared(
                        name, row.partition_index, record.offset, record.timestamp, record.key,
                        record.value, record.headers, counts[record.offset],
                    )  # fmt: skip

    def acknowledge(self) -> None:
        """Acknowledge all acquired records."""
        for node_id in [node_id for node_id, rows in self._acquired.items() if rows]:
            self._acknowledge(node_id, self._sessions[node_id])
            self._sessions[node_id] += 1

    def _close(self, node_id: int) -> None:
        """Close the session at a leader, which releases its records."""
        if self._sessions.pop(node_id, None) is not None:
            self._acquired.pop(node_id, None)
            self._acknowledge(node_id, CLOSE)

    def _acknowledge(self, node_id: int, epoch: int) -> None:
        """Acknowledge all records of a leader. Takes: epoch, the session's epoch, or CLOSE."""
        rows = self._acquired.pop(node_id, [])
        topics = [
            AcknowledgeTopic(
                topic_id,
                [
                    AcknowledgePartition(
                        index,
                        [
                            AcknowledgementBatch(first, last, [self._kind])
                            for where, at, first, last in rows
                            if (where, at) == (topic_id, index)
                        ],
                    )
                ],
            )
            for topic_id, index in dict.fromkeys((row[0], row[1]) for row in rows)
        ]
        request = ShareAcknowledgeRequest(
            group_id=self._group, member_id=self._member_id, share_session_epoch=epoch,
            is_renew_ack=False, topics=topics,
        )  # fmt: skip
        answer = self._admin.node(node_id, ACKNOWLEDGE, request)
        _check(answer, self._group)
        refused = [row for topic in answer.responses for row in topic.partitions if row.error_code]
        if refused:
            note(
                f"{count_text(len(refused), 'partition')}: records were not acknowledged, since "
                "their locks had expired, and are delivered again",
                "warning",
            )


def _check(answer: Any, group: str) -> None:
    """Raise RefusedError if a response has an error code."""
    if answer.error_code:
        raise RefusedError(answer.error_code, answer.error_message, group)
