"""Readers with assigned partitions, at both isolation levels, that filter aborted records as
clients do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from checkers import NEVER_MS, Partition, Span, Watermarks

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.records import (
    DELETE_HORIZON,
    BatchHeader,
    Record,
    computed_crc,
    decode_marker,
    read_header,
    records_of,
)
from sim import wire
from sim.clients import Asking, Client, Refused
from sim.network import LOST

if TYPE_CHECKING:
    from sim.world import World

EARLIEST, LATEST = -2, -1
MOST_ATTEMPTS = 20
NOT_A_CLIENTS = 0xFF80  # attributes that producers must not set
HIGHEST_EPOCH = 1000  # each start begins a new epoch
OTHER_EPOCH = frozenset({Code.FENCED_LEADER_EPOCH, Code.UNKNOWN_LEADER_EPOCH})
SESSION_ERRORS = frozenset({Code.FETCH_SESSION_ID_NOT_FOUND, Code.INVALID_FETCH_SESSION_EPOCH})
Rows = list[tuple[int, bytes]]


class Opened(NamedTuple):
    """A batch as a client sees it. `commit` tells whether a control batch commits or aborts; it is
    None for a data batch.
    """

    last_offset: int
    producer_id: int
    is_transactional: bool
    commit: bool | None
    rows: Rows


class Opener:
    """Decodes batches. It decodes each batch only once, however many readers receive it."""

    def __init__(self) -> None:
        self._known: dict[bytes, Opened] = {}

    def open(self, batch: bytes) -> Opened:
        opened = self._known.get(batch)
        if opened is None:
            header = read_header(batch)
            assert computed_crc(batch) == header.crc, f"the batch at {header.base_offset} is broken"
            commit = decode_marker(batch).commit if header.is_control else None
            records = list(records_of(batch)) if commit is None else []
            _check_header(header, records)
            rows = [(record.offset, record.value or b"") for record in records]
            opened = self._known[batch] = Opened(
                header.last_offset, header.producer_id, header.is_transactional, commit, rows
            )
        return opened

    def records(
        self, found: wire.Fetched, position: int, *, committed_only: bool
    ) -> tuple[Rows, int]:
        """Decode the bytes of one partition as a client does: gives the records from `position` on,
        and the position after them.
        """
        rows: Rows = []
        aborted = sorted(found.aborted, key=lambda pair: pair[1])
        skipping: dict[int, None] = {}
        data, at, end = found.records, 0, len(found.records)
        while at + 12 <= end:
            size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
            if at + size > end:
                break
            last_offset, producer_id, is_transactional, commit, batch_rows = self.open(
                data[at : at + size]
            )
            at += size
            while aborted and aborted[0][1] <= last_offset:
                skipping[aborted.pop(0)[0]] = None
            if commit is not None:
                if not commit:
                    skipping.pop(producer_id, None)
            elif not (committed_only and is_transactional and producer_id in skipping):
                rows.extend(row for row in batch_rows if row[0] >= position)
            position = max(position, last_offset + 1)
        return rows, position


def _check_header(header: BatchHeader, records: list[Record]) -> None:
    """Check the header fields that clients rely on, for batches written by any client."""
    where = f"the batch at {header.base_offset}"
    assert not header.attributes & NOT_A_CLIENTS or header.is_control, (
        f"{where} has the attributes {header.attributes:#x}"
    )
    assert header.leader_epoch < HIGHEST_EPOCH, f"{where} is of the epoch {header.leader_epoch}"
    if records and not header.attributes & DELETE_HORIZON:
        youngest = max(record.timestamp for record in records)
        assert header.max_timestamp == youngest, (
            f"{where} says that {header.max_timestamp} is its highest time, and {youngest} is"
        )
        assert header.last_offset >= records[-1].offset, f"{where} ends before its last record"


def last_epoch(records: bytes) -> int:
    """The leader epoch of the last whole batch; -1 if there is none."""
    at, epoch, end = 0, -1, len(records)
    while at + 16 <= end:
        size = 12 + int.from_bytes(records[at + 8 : at + 12], "big")
        if at + size > end:
            break
        epoch = int.from_bytes(records[at + 12 : at + 16], "big", signed=True)
        at += size
    return epoch


class Reader(Client):
    """Reads some partitions from their start, with long polling. `positions` has the next offset of
    each partition.

    With `follows_epochs` the reader sends the leader epoch that it knows, as librdkafka does
    (KIP-320). When there is a new epoch, it requests the end offset of the epoch of its last
    record, and goes back to that offset. Such a reader finally gets the whole log, even after power
    losses. Other readers continue from their position.
    """

    def __init__(
        self,
        world: World,
        name: str,
        partitions: list[Partition],
        *,
        committed_only: bool,
        uses_session: bool = False,
        max_bytes: int = 1 << 20,
        follows_epochs: bool = False,
        follows_by_fetch: bool = False,
    ) -> None:
        super().__init__(world, name)
        self.follows_epochs = follows_epochs
        self.follows_by_fetch = follows_epochs and follows_by_fetch
        self.compared: dict[Partition, int] = {}
        self.leader_epochs: dict[Partition, int] = {}
        self.read_epochs: dict[Partition, int] = {}
        self.partitions, self.committed_only, self.uses_session, self.max_bytes = (
            partitions,
            committed_only,
            uses_session,
            max_bytes,
        )
        self.positions = dict.fromkeys(partitions, 0)
        self.started = dict.fromkeys(partitions, (0, world.loop.now_ms))
        self.stable: dict[Partition, int] = {}
        self.ends: dict[Partition, int] = {}
        self.power_losses = 0
        self.session_id, self.session_epoch = 0, -1
        self._sent: dict[Partition, tuple[int, ...]] = {}
        # What the fetch session stores for each partition: a request does not mention unchanged
        # partitions.
        self._left_out: set[Partition] = set()
        self.label = name
        self.links = 0
        self.has_stopped = False
        self.lives = {topic: len(lives) for topic, lives in world.history.lives.items()}

    def run(self) -> Asking:
        while not self.world.is_over:
            answer = yield from self.poll(self.rng.choice((0, 100, 500, 1000)))
            if answer is LOST:
                yield self.rng.randint(5, 60)
            elif not self.world.is_draining:
                yield self.rng.randint(20, 700)
            else:
                pause_ms = self.rng.randint(5, 40)
                # Empty responses count, too: they could use up the quota of those that lag.
                yield 1000 if self.world.has_quotas and self.is_at_end() else pause_ms
        self.has_stopped = True

    def is_at_end(self) -> bool:
        """Whether the reader has read everything. For a read_committed reader, no open transaction
        may hold it back; a reader that follows epochs must also know the last leader epoch of the
        log. In topics that show whole transactions the last stable offset may rise without a new
        record, which is no news for a reader of all records.
        """
        broker = self.world.node.broker
        if broker is None:
            return False
        for partition, position in self.positions.items():
            log = broker.topics.partition(*partition)
            if (
                log is None
                or position < log.high_watermark
                or (
                    self.stable.get(partition, -1) < log.high_watermark
                    and (self.committed_only or not log.is_whole)
                )
                or (self.follows_epochs and not self._knows_last(partition, log.leader_epoch))
            ):
                return False
        return True

    def _knows_last(self, partition: Partition, leader_epoch: int) -> bool:
        """Whether the reader knows where the last leader's log diverges from the records it has
        read. A fetch session does not mention an empty log from which nothing was read.
        """
        if self.follows_by_fetch:
            has_read = self.read_epochs.get(partition, -1) >= 0
            return not has_read or self.compared.get(partition) == self.world.node.generation
        return self.leader_epochs.get(partition) == leader_epoch

    def poll(self, max_wait_ms: int) -> Asking:
        """Send one Fetch, and process its response. Gives: LOST, or another value."""
        if self.link is None or not self.link.is_open:
            self.session_id, self.session_epoch = 0, 0 if self.uses_session else -1
            self.links += 1
            self.label = f"{self.name}@{self.links}"
        if self.follows_epochs and not self.follows_by_fetch:
            lost = self.lost
            yield from self.follow_epochs()
            if self.lost != lost:
                return LOST
        elif not self.follows_epochs:
            self._notice_power_loss()
        if self.lives:
            self._notice_new_lives()
            self._ask_again_for_left_out()
        asked_ms = self.world.loop.now_ms
        call = self._fetch_call(max_wait_ms)
        answer = yield from self.ask(call, max_wait_ms + 1500)
        if answer is LOST:
            return LOST
        if answer.error_code:
            if answer.error_code not in SESSION_ERRORS:
                self.world.history.incident(
                    "refused", f"{self.name}: {Refused('Fetch', answer.error_code)}"
                )
            self.session_id, self.session_epoch = 0, 0
            return None
        if self.uses_session:
            self.session_id, self.session_epoch = (
                answer.session_id,
                (self.session_epoch + 1 if answer.session_id else 0),
            )
        for partition in self._take_all(answer, asked_ms):
            yield from self.reposition(partition)
        return answer

    def _fetch_call(self, max_wait_ms: int) -> wire.Call:
        """Return a Fetch request for all partitions or, in a session, for the partitions whose
        position differs from the one that the session knows.
        """
        standing = {
            p: (at, self.leader_epochs.get(p, -1), self.read_epochs.get(p, -1))
            for p, at in self.positions.items()
        }
        reported = 3 if self.follows_by_fetch else 2
        changed = [
            p
            for p, at in standing.items()
            if self.session_epoch <= 0 or self._sent.get(p, ())[:reported] != at[:reported]
        ]
        call = wire.fetch(
            [(*p, *standing[p][:2]) for p in changed],
            committed=self.committed_only,
            max_wait_ms=max_wait_ms,
            partition_max_bytes=self.max_bytes,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
        )
        self._sent = standing
        if not self.follows_by_fetch:
            return call
        return wire.with_last_epochs(call, [standing[p][2] for p in changed])

    def _take_all(self, answer: wire.FetchAnswer, asked_ms: int) -> list[Partition]:
        """Record the data of all partitions. Gives: the partitions whose position is out of range.
        The caller handles them later, since it has to request their start offset, and the data must
        be recorded first.
        """
        out_of_range: list[Partition] = []
        for found in answer.partitions:
            if self.lives and not self._is_of_this_life(found.topic, found.partition, asked_ms):
                self._left_out.add((found.topic, found.partition))
                continue
            if found.error_code in OTHER_EPOCH and self.follows_epochs:
                self.leader_epochs.pop((found.topic, found.partition), None)
            elif found.error_code == Code.OFFSET_OUT_OF_RANGE:
                out_of_range.append((found.topic, found.partition))
            elif found.error_code == Code.KAFKA_STORAGE_ERROR:
                continue  # the partition is offline, and is fetched again later
            elif found.error_code:
                self.world.history.incident(
                    "refused",
                    f"{self.name}: {Refused(f'Fetch of {found.topic}', found.error_code)}",
                )
            else:
                self.take(found, asked_ms)
                self.compared[found.topic, found.partition] = self.world.node.generation
        return out_of_range

    def take(self, found: wire.Fetched, asked_ms: int) -> None:
        """Record the data of one partition."""
        world, partition = self.world, (found.topic, found.partition)
        now_ms = world.loop.now_ms
        if found.diverging is not None:
            self._go_back(partition, *found.diverging)
            # A session does not repeat a log's unchanged offsets, so they are stored.
            self.stable[partition] = max(found.last_stable_offset, 0)
            self.ends[partition] = max(found.high_watermark, 0)
            return
        rows, position = world.opener.records(
            found, self.positions[partition], committed_only=self.committed_only
        )
        for offset, value in rows:
            world.history.read(
                self.name,
                partition,
                offset,
                value,
                committed_only=self.committed_only,
                now_ms=now_ms,
                asked_ms=asked_ms,
            )
        assert position > self.positions[partition] or not found.records, (
            f"{self.name}: {len(found.records)} bytes of {partition} lead nowhere from {position}"
        )
        self.positions[partition] = position
        if found.records:
            self.read_epochs[partition] = last_epoch(found.records)
        self.stable[partition], self.ends[partition] = (
            found.last_stable_offset,
            found.high_watermark,
        )
        world.history.watermarks.append(
            Watermarks(
                self.label,
                partition,
                found.high_watermark,
                found.last_stable_offset,
                found.log_start_offset,
                now_ms,
                asked_ms,
            )
        )

    def _go_back(self, partition: Partition, leader_epoch: int, end_offset: int) -> None:
        """Go back to the offset at which the log diverges from the records that were read."""
        self.world.trace("truncated", 0, f"{self.name} {partition}", end_offset, b"")
        self.positions[partition] = min(end_offset, self.positions[partition])
        self.read_epochs[partition] = leader_epoch

    def reposition(self, partition: Partition) -> Asking:
        """Handle a position that is out of range. It is below the log start offset, which was
        raised, or beyond the end of the log, which is allowed only after a power loss.
        """
        asked_ms = self.world.loop.now_ms
        start = yield from self.offset_at(partition, EARLIEST)
        end = yield from self.offset_at(partition, LATEST)
        if (
            start is None
            or end is None
            or (self.lives and not self._is_of_this_life(*partition, asked_ms))
        ):
            return
        position = self.positions[partition]
        if self.follows_by_fetch:  # the reader has no records from which the log could diverge
            self.read_epochs.pop(partition, None)
        has_read = self.read_epochs.get(partition, -1) >= 0
        if position > end and self.follows_epochs and has_read:
            self.leader_epochs.pop(
                partition,
                None,
                # after a power loss, the reader first requests the offset at which the log was
                # truncated
            )
            return
        if position > end and not self.world.history.power_losses:
            self.world.history.incident(
                "lost", f"{self.name} has read {partition} up to {position}, and it ends at {end}"
            )
        if position > end or position < start:
            self.close_span(partition)
            # A reader that follows epochs but has read nothing from this log starts at the
            # beginning of the log, which is before its position.
            self.begin_at(partition, start if position < start or self.follows_epochs else end)

    def follow_epochs(self) -> Asking:
        """Fetch the unknown leader epochs, and go back if the log ends before the last record of an
        earlier epoch.
        """
        if all(partition in self.leader_epochs for partition in self.partitions):
            return
        topics = [
            MetadataRequestTopic(name=name)
            for name in dict.fromkeys(topic for topic, _ in self.partitions)
        ]
        asked_ms = self.world.loop.now_ms
        answer = yield from self.ask(
            wire.request(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 8)
        )
        if answer is LOST:
            return
        for topic in answer.topics:
            for row in topic.partitions:
                partition = (topic.name, row.partition_index)
                if (
                    partition in self.leader_epochs
                    or partition not in self.positions
                    or row.leader_id < 0
                ):
                    continue
                if not self.lives or self._is_of_this_life(*partition, asked_ms):
                    yield from self._validate(partition, row.leader_epoch)

    def _validate(self, partition: Partition, leader_epoch: int) -> Asking:
        """Send OffsetForLeaderEpoch, to find where the epoch of the last record ends on the current
        leader.
        """
        read_epoch = self.read_epochs.get(partition, -1)
        if read_epoch < 0:
            self.leader_epochs[partition] = leader_epoch
            return
        row = OffsetForLeaderPartition(
            partition=partition[1], current_leader_epoch=leader_epoch, leader_epoch=read_epoch
        )
        asked_ms = self.world.loop.now_ms
        call = wire.request(
            OffsetForLeaderEpochRequest(
                replica_id=-1,
                topics=[OffsetForLeaderTopic(topic=partition[0], partitions=[row])],
            ),
            3,
        )
        answer = yield from self.ask(call)
        if answer is LOST or (self.lives and not self._is_of_this_life(*partition, asked_ms)):
            return
        found = answer.topics[0].partitions[0]
        if found.error_code in OTHER_EPOCH or found.error_code == Code.KAFKA_STORAGE_ERROR:
            return
        is_of_earlier_life = partition[0] in self.world.history.lives and read_epoch > leader_epoch
        if found.error_code == 0 and found.end_offset < 0 and is_of_earlier_life:
            # The reader got the epoch with an offset that a group had committed before the topic
            # was deleted.
            del self.read_epochs[partition]
        elif found.error_code or found.end_offset < 0:
            what = Refused(
                f"OffsetForLeaderEpoch {read_epoch} of {partition}: {found.end_offset}",
                found.error_code,
            )
            self.world.history.incident("refused", f"{self.name}: {what}")
        elif found.end_offset < self.positions[partition]:
            self._go_back(partition, found.leader_epoch, found.end_offset)
        self.leader_epochs[partition] = leader_epoch

    def begin_at(self, partition: Partition, position: int) -> None:
        self.positions[partition] = position
        self.started[partition] = (position, self.world.loop.now_ms)

    def offset_at(self, partition: Partition, timestamp: int) -> Asking:
        """Request the offset with ListOffsets. Gives: the offset; None if the response was lost."""
        call = wire.request(
            ListOffsetsRequest(
                replica_id=-1,
                isolation_level=0,
                topics=[
                    ListOffsetsTopic(
                        name=partition[0],
                        partitions=[
                            ListOffsetsPartition(
                                partition_index=partition[1],
                                current_leader_epoch=-1,
                                timestamp=timestamp,
                            )
                        ],
                    )
                ],
            ),
            7,
        )
        asked_ms = self.world.loop.now_ms
        answer = yield from self.ask(call)
        if answer is LOST:
            return None
        found = answer.topics[0].partitions[0]
        if self.lives and not self._is_of_this_life(*partition, asked_ms):
            return None
        if found.error_code == Code.KAFKA_STORAGE_ERROR:
            return None
        if found.error_code:
            self.world.history.incident(
                "refused", f"{self.name}: {Refused('ListOffsets', found.error_code)}"
            )
            return None
        return found.offset

    def close_span(self, partition: Partition) -> None:
        start, began_ms = self.started[partition]
        self.world.history.spans.append(
            Span(
                self.name,
                partition,
                self.committed_only,
                start,
                self.positions[partition],
                began_ms,
                self.follows_epochs,
            )
        )

    def follow(self, partition: Partition) -> None:
        """Begin to read a new partition, from its start."""
        if partition not in self.positions:
            self.partitions.append(partition)
            self.begin_at(partition, 0)

    def unfollow(self, partition: Partition) -> None:
        """Stop reading a partition that was deleted."""
        if partition in self.positions:
            self.partitions.remove(partition)
            for table in (
                self.positions,
                self.started,
                self.stable,
                self.ends,
                self.leader_epochs,
                self.read_epochs,
            ):
                table.pop(partition, None)
            self.session_id, self.session_epoch = 0, 0 if self.uses_session else -1

    def _notice_new_lives(self) -> None:
        """Start again at the beginning of topics that were deleted and created again."""
        for topic, lives in self.world.history.lives.items():
            if self.lives[topic] != len(lives):
                self.lives[topic] = len(lives)
                for partition in self.partitions:
                    if partition[0] == topic:
                        self.begin_at(partition, 0)
                        self._left_out.discard(partition)
                        self.stable[partition] = 0
                        self.leader_epochs.pop(partition, None)
                        self.read_epochs.pop(partition, None)

    def _ask_again_for_left_out(self) -> None:
        """Start another session if the deletion of a topic was requested, but did not take
        place.
        """
        lives = self.world.history.lives
        if any(lives[topic][-1].asked_ms == NEVER_MS for topic, _ in self._left_out):
            self._left_out.clear()
            if self.uses_session:
                self.session_id, self.session_epoch = 0, 0

    def _is_of_this_life(self, topic: str, index: int, asked_ms: int) -> bool:
        """Whether a response is certainly about the topic that the reader is reading, not about an
        earlier or later topic with the same name.
        """
        if topic not in self.lives:
            return True
        life = self.world.history.life_at(topic, asked_ms, self.world.loop.now_ms)
        return life == self.lives[topic] - 1 and (topic, index) in self.positions

    def _notice_power_loss(self) -> None:
        count = len(self.world.history.power_losses)
        if count != self.power_losses:
            self.power_losses = count
            for partition in self.partitions:
                self.begin_at(partition, self.positions[partition])


def read_all(world: World, partition: Partition, *, committed_only: bool) -> Asking:
    """Read a partition with a new reader, from the start to the end. Gives: (rows, data of the last
    response).
    """
    reader = Client(world, "the last reader")
    rows: Rows = []
    last: wire.Fetched | None = None
    position = 0
    probe = Reader(world, "the last reader", [partition], committed_only=committed_only)
    for _ in range(MOST_ATTEMPTS):
        start = yield from probe.offset_at(partition, EARLIEST)
        if start is not None:
            position = start
            break
    for _ in range(1000):
        answer = yield from reader.ask(
            wire.fetch([(*partition, position)], committed=committed_only, max_wait_ms=0)
        )
        if answer is LOST:
            continue
        if not answer.partitions:  # the client exceeded a quota, so it has to wait
            continue
        last = answer.partitions[0]
        # retention has removed segments between two fetches
        if last.error_code == Code.OFFSET_OUT_OF_RANGE:
            start = yield from probe.offset_at(partition, EARLIEST)
            if start is not None and start > position:
                position = start
                rows = [row for row in rows if row[0] >= start]
                continue
        if last.error_code:
            raise Refused(f"the last reader at {position} of {partition}", last.error_code)
        found, position = world.opener.records(last, position, committed_only=committed_only)
        rows.extend(found)
        if position >= (last.last_stable_offset if committed_only else last.high_watermark):
            reader.hang_up()
            probe.hang_up()
            return rows, last
    raise Refused(f"the last reader does not come beyond {position} of {partition}", 0)
