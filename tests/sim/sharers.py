"""Members of share groups (KIP-932), and invariants of their deliveries.

A member fetches, accepts, rejects, releases and renews records, or does nothing until its locks
expire. It may close its session, close its connection, or die. The invariants are: no record is
acquired by two members at once; a record whose acknowledgement got a response is not delivered
again, even after kills and power losses; each delivery is counted; a read_committed group gets
only committed records; no member acquires an offset that compaction has removed with its batch; and
at the end the group has received every record that is left.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

from checkers import Ending, Partition

from barnabas.broker.share_partitions.share_partition import ACCEPT, REJECT, RELEASE, RENEW
from barnabas.coordinator.share_states.share_records import SharePartitionKey
from barnabas.protocol.errors import Code
from barnabas.protocol.messages import initialize_share_group_state as initialize
from barnabas.protocol.messages import share_acknowledge, share_fetch
from barnabas.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from sim import wire
from sim.clients import Asking, Client, Refused
from sim.network import LOST

if TYPE_CHECKING:
    from sim.network import Link
    from sim.world import World

GROUP_RESOURCE = 32
LOCK_MS, DELIVERIES = 1000, 4
SESSION_OVER = frozenset({Code.SHARE_SESSION_NOT_FOUND, Code.INVALID_SHARE_SESSION_EPOCH})
# The error codes of a failed acknowledgement: the lock has expired, the share partition was
# reloaded, or there is no disk space.
NOT_ACKNOWLEDGED = frozenset(
    {
        Code.INVALID_RECORD_STATE,
        Code.INVALID_REQUEST,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.COORDINATOR_NOT_AVAILABLE,
    }
)
AGAIN = frozenset(
    {
        Code.NONE,
        Code.KAFKA_STORAGE_ERROR,
        Code.UNKNOWN_SERVER_ERROR,
        Code.COORDINATOR_NOT_AVAILABLE,
    }
)

Place = tuple[Partition, int]  # (partition, offset)


class Batch(NamedTuple):
    """Acknowledgements of a range of records. `types` has one acknowledgement type for each
    record.
    """

    partition: Partition
    first: int
    last: int
    types: list[int]

    @property
    def places(self) -> list[Place]:
        return [(self.partition, offset) for offset in range(self.first, self.last + 1)]


class Hold(NamedTuple):
    """A record, and the time during which a member certainly holds it, unless the broker is
    restarted, or the connection breaks on which the member's session began. The session itself
    continues on another connection until the broker notices the break.
    """

    member: str
    link: Link | None
    since_ms: int
    until_ms: int
    starts: int


class Delivered(NamedTuple):
    """The last delivery of a record."""

    count: int
    got_ms: int
    starts: int


class Group:
    """What was observed about a group: holders, deliveries, and finished records."""

    def __init__(
        self, world: World, name: str, partitions: list[Partition], *, committed_only: bool
    ) -> None:
        self.world, self.name, self.partitions = world, name, partitions
        self.committed_only = committed_only
        self.holds: dict[Place, Hold] = {}
        self.delivered: dict[tuple[Partition, bytes], Delivered] = {}
        self.first_seen_ms: dict[bytes, int] = {}
        self.settled: dict[tuple[Partition, bytes], int] = {}
        self.values: dict[Place, bytes] = {}

    def on_delivery(
        self, sharer: Sharer, place: Place, value: bytes, count: int, asked_ms: int
    ) -> None:
        """Check and record that a member received a record."""
        world, member = self.world, sharer.name
        now_ms, starts = world.loop.now_ms, world.restarts
        partition, offset = place
        where = f"{self.name}: {offset} of {partition}, {value!r}"
        hold = self.holds.get(place)
        if (
            hold is not None
            and hold.starts == starts
            and hold.link is not None
            and hold.link.is_open
            and hold.since_ms <= asked_ms
            and now_ms < hold.until_ms
        ):
            world.history.incident("owners", f"{where} is {hold.member}'s, and {member} gets it")
        settled_ms = self.settled.get((partition, value))
        if (
            settled_ms is not None
            and settled_ms <= asked_ms
            and self._is_kept(partition[0], value, settled_ms)
        ):
            world.history.incident("shares", f"{where} was done with, and {member} gets it")
        last = self.delivered.get((partition, value))
        if (
            last is not None
            and last.starts == starts
            and last.got_ms <= asked_ms
            and count <= last.count
        ):
            world.history.incident(
                "shares", f"{where} is delivered the {count}th time after the {last.count}th"
            )
        if not 1 <= count <= DELIVERIES:
            world.history.incident("shares", f"{where} is delivered the {count}th time")
        self.delivered[partition, value] = Delivered(count, now_ms, starts)
        self.first_seen_ms.setdefault(value, now_ms)
        self.values[place] = value
        self.holds[place] = Hold(member, sharer.session_link, now_ms, asked_ms + LOCK_MS, starts)

    def _is_kept(self, topic: str, value: bytes, settled_ms: int) -> bool:
        """Whether the acknowledgement, and the record itself, survived all power losses since
        `settled_ms`. If the record were lost, its producer would write it again.
        """
        history = self.world.history
        losses = [loss_ms for loss_ms in history.power_losses if loss_ms >= settled_ms]
        if not losses or topic in history.flushed:
            return not losses or history.commits_are_durable
        write = next(write for write in history.writes if write.value == value)
        transaction = write.transaction
        return (
            history.commits_are_durable
            and transaction is not None
            and transaction.ending is Ending.COMMITTED
            and (transaction.ended_ms or losses[0]) < losses[0]
        )

    def let_go(self, member: str, places: list[Place] | None = None) -> None:
        """Record that the member may no longer hold the records at `places`, or any record if that
        is None.
        """
        if places is None:
            places = [place for place, hold in self.holds.items() if hold.member == member]
        for place in places:
            self.holds.pop(place, None)

    def settle(self, batch: Batch) -> None:
        """Record that acknowledgements got a response."""
        for place, kind in zip(batch.places, batch.types, strict=True):
            value = self.values.get(place)
            if kind in (ACCEPT, REJECT) and value is not None:
                self.settled.setdefault((place[0], value), self.world.loop.now_ms)

    def is_drained(self) -> bool:
        """Whether all records are finished."""
        broker = self.world.node.broker
        if broker is None or broker.shares.made is None:
            return False
        for topic, index in self.partitions:
            log = broker.topics.partition(topic, index)
            key = SharePartitionKey(self.name, self.world.topic_ids[topic].bytes, index)
            loaded = broker.shares.made.partitions.get(key)
            if log is None or loaded is None or loaded.value.in_flight_count:
                return False
            if loaded.value.start_offset < log.high_watermark:
                return False
        return True

    def look_at_the_end(self) -> None:
        """Check that every existing record was delivered, and that a read_committed group received
        no other records.
        """
        history = self.world.history
        for partition in self.partitions:
            final = history.final.get(partition)
            if final is None:
                continue
            for offset, value in final.committed if self.committed_only else final.everything:
                if (partition, value) not in self.delivered:
                    history.incident(
                        "skipped", f"{self.name} was never given {offset} of {partition}"
                    )
        if not self.committed_only:
            return
        for write in history.writes:
            seen_ms, transaction = self.first_seen_ms.get(write.value), write.transaction
            if seen_ms is None or transaction is None:
                continue
            if transaction.ending is Ending.ABORTED:
                history.incident("aborted-read", f"{self.name} was given {write.value!r}")
            elif transaction.commit_asked_ms is None or seen_ms < transaction.commit_asked_ms:
                history.incident("precommitted-read", f"{self.name} was given {write.value!r}")


def begin(world: World, group: Group, members: int) -> Asking:
    """Create a group, and start its members."""
    client = Client(world, f"{group.name}.admin")
    settings = {
        "share.record.lock.duration.ms": str(LOCK_MS),
        "share.delivery.count.limit": str(DELIVERIES),
        "share.isolation.level": "read_committed" if group.committed_only else "read_uncommitted",
    }
    configs = [AlterableConfig(name, 0, value) for name, value in settings.items()]
    resource = AlterConfigsResource(GROUP_RESOURCE, group.name, configs)
    topics = [
        initialize.InitializeStateData(
            world.topic_ids[topic], [initialize.PartitionData(index, 0, 0) for _, index in rows]
        )
        for topic, rows in itertools.groupby(group.partitions, lambda one: one[0])
    ]
    requests = (
        (IncrementalAlterConfigsRequest(resources=[resource]), 1),
        (initialize.InitializeShareGroupStateRequest(group.name, topics), 0),
    )
    for request, version in requests:
        while (code := _code_of((yield from client.ask(wire.request(request, version))))) != 0:
            if code not in (None, Code.COORDINATOR_NOT_AVAILABLE):
                world.history.incident("refused", f"{group.name}: {request!r}: {code}")
            yield world.rng.randint(5, 60)
    client.hang_up()
    for number in range(members):
        world.loop.spawn(Sharer(world, f"{group.name}.{number}", group).run())


def _code_of(answer: Any) -> int | None:
    """The error code in a response of `begin`; None if the response is lost."""
    if answer is LOST:
        return None
    if hasattr(answer, "responses"):
        return int(answer.responses[0].error_code)
    return max(row.error_code for topic in answer.results for row in topic.partitions)


class Sharer(Client):
    """A member of a share group. `epoch` is the session epoch of its next request, `session_link`
    is the connection on which the session began, and `held` has the records that it has not
    acknowledged yet.
    """

    def __init__(self, world: World, name: str, group: Group) -> None:
        super().__init__(world, name)
        self.group = group
        self.epoch, self.session_link = 0, self.link
        self.held: list[Batch] = []

    def run(self) -> Asking:
        """Run one session after the other. The member holds no records in the pauses between
        them.
        """
        while not self.world.is_over:
            self.epoch, self.held = 0, []
            try:
                yield from self._fetch_and_acknowledge()
            except Refused as refusal:
                self.world.history.incident("refused", str(refusal))
            self.group.let_go(self.name)
            self.hang_up()
            yield self.rng.randint(5, 400)

    def _fetch_and_acknowledge(self) -> Asking:
        """Run one session until it ends."""
        rng = self.rng
        while not self.world.is_over:
            is_last = self.epoch > 0 and not self.world.is_draining and rng.random() < 0.03
            batches = self._chosen()
            renews = any(RENEW in batch.types for batch in batches)
            if self.epoch and (is_last or renews or (batches and rng.random() < 0.5)):
                go_on = yield from self._acknowledge(batches, renews, is_last)
                batches = []
            else:
                go_on = yield from self._fetch(batches)
            if not go_on or is_last or (not self.world.is_draining and rng.random() < 0.02):
                return
            yield rng.randint(1, 30 if self.world.is_draining else 300)

    def _chosen(self) -> list[Batch]:
        """Choose the acknowledgements that the next request sends, in order."""
        rng, kept, chosen = self.rng, [], []
        if self.epoch == 0:
            return []
        for batch in self.held:
            count = batch.last - batch.first + 1
            what = 0.0 if self.world.is_draining else rng.random()
            if what < 0.5:
                chosen.append(batch._replace(types=[ACCEPT] * count))
            elif what < 0.7:
                kinds = [rng.choice((ACCEPT, ACCEPT, REJECT, RELEASE)) for _ in range(count)]
                chosen.append(batch._replace(types=kinds))
            elif what < 0.78:
                chosen.append(batch._replace(types=[RENEW] * count))
                kept.append(batch)
            elif what < 0.9:
                kept.append(batch)
        self.held = kept
        renewals = [batch for batch in chosen if RENEW in batch.types]
        return sorted(renewals or chosen)

    def _fetch(self, batches: list[Batch]) -> Asking:
        """Send one ShareFetch. Gives: False if the session has ended."""
        rng, group = self.rng, self.group
        named = group.partitions if self.epoch == 0 else []
        topics = [
            share_fetch.FetchTopic(
                self.world.topic_ids[topic],
                [
                    share_fetch.FetchPartition(
                        index,
                        [
                            share_fetch.AcknowledgementBatch(one.first, one.last, one.types)
                            for one in batches
                            if one.partition == (topic, index)
                        ],
                    )
                ],
            )
            for topic, index in dict.fromkeys([*named, *(one.partition for one in batches)])
        ]
        request = share_fetch.ShareFetchRequest(
            group.name, self.name, self.epoch, rng.choice((0, 50, 400)), 1,
            rng.choice((1, 300, 1 << 20)), rng.choice((1, 3, 500)), rng.choice((1, 4, 500)),
            rng.choice((0, 0, 1)), False, topics, [],
        )  # fmt: skip
        for batch in batches:
            group.let_go(self.name, batch.places)
        asked_ms = self.world.loop.now_ms
        answer = yield from self.ask(wire.request(request, 2))
        if not self._goes_on(answer):
            return False
        for topic in answer.responses:
            name = next(name for name, one in self.world.topic_ids.items() if one == topic.topic_id)
            for row in topic.partitions:
                partition = (name, row.partition_index)
                if row.error_code not in AGAIN:
                    raise Refused(f"{self.name}: ShareFetch of {partition}", row.error_code)
                self._note(
                    [one for one in batches if one.partition == partition],
                    row.acknowledge_error_code,
                )
                self._take(partition, row, asked_ms)
        return True

    def _take(self, partition: Partition, row: Any, asked_ms: int) -> None:
        """Remember the records that the member has acquired, according to a response."""
        data, at, rows = bytes(row.records or b""), 0, {}
        offsets = set[int]()
        while at + 12 <= len(data):
            size = 12 + int.from_bytes(data[at + 8 : at + 12], "big")
            opened = self.world.opener.open(data[at : at + size])
            rows.update(opened.rows)
            first = int.from_bytes(data[at : at + 8], "big")
            offsets.update(range(first, opened.last_offset + 1))
            at += size
        for one in row.acquired_records:
            first, last = one.first_offset, one.last_offset
            if not offsets.issuperset(range(first, last + 1)):
                self.world.history.incident(
                    "shares", f"{self.name} gets {first} to {last} of {partition} without batches"
                )
            self.held.append(Batch(partition, first, last, []))
            for offset in range(first, last + 1):
                if offset in rows:
                    self.group.on_delivery(
                        self, (partition, offset), rows[offset], one.delivery_count, asked_ms
                    )

    def _acknowledge(self, batches: list[Batch], renews: bool, is_last: bool) -> Asking:
        """Send one ShareAcknowledge. Gives: False if the session has ended."""
        made, group = share_acknowledge, self.group
        topics = [
            made.AcknowledgeTopic(
                self.world.topic_ids[topic],
                [
                    made.AcknowledgePartition(
                        index,
                        [
                            made.AcknowledgementBatch(one.first, one.last, one.types)
                            for one in batches
                            if one.partition == (topic, index)
                        ],
                    )
                ],
            )
            for topic, index in dict.fromkeys(one.partition for one in batches)
        ]
        epoch = -1 if is_last else self.epoch
        request = made.ShareAcknowledgeRequest(group.name, self.name, epoch, renews, topics)
        if is_last:
            group.let_go(self.name)
        elif not renews:
            for batch in batches:
                group.let_go(self.name, batch.places)
        answer = yield from self.ask(wire.request(request, 2))
        if not self._goes_on(answer):
            return False
        for topic in answer.responses:
            for row in topic.partitions:
                self._note(
                    [
                        one
                        for one in batches
                        if self.world.topic_ids[one.partition[0]] == topic.topic_id
                        and one.partition[1] == row.partition_index
                    ],
                    row.error_code,
                )
        return True

    def _goes_on(self, answer: Any) -> bool:
        """Whether the session continues after a response."""
        if answer is LOST or answer.error_code in SESSION_OVER:
            return False
        if answer.error_code:
            raise Refused(f"{self.name}: a request of a session", answer.error_code)
        if self.epoch == 0:
            self.session_link = self.link
        self.epoch += 1
        return True

    def _note(self, batches: list[Batch], code: int) -> None:
        """Record the result of acknowledgements. Raises: Refused."""
        if code == Code.NONE:
            for batch in batches:
                self.group.settle(batch)
        elif code not in (*NOT_ACKNOWLEDGED, Code.UNKNOWN_SERVER_ERROR):
            raise Refused(f"{self.name}: an acknowledgement", code)
