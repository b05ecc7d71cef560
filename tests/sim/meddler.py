"""A client that sends invalid requests inside valid frames while other clients work.

The broker must not silently accept any of these. Records that must be refused are marked as refused
before they are sent, so if a client reads one later, it is reported as `unwritten`; an
acknowledgement of one is a finding at once. Batches that the broker must correct (a header's
highest timestamp, attributes that clients may not set) are ordinary records afterwards, and must
not be lost.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from checkers import Partition, Write
from crc32c import crc32c

from barnabas.coordinator.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.protocol.errors import Code
from barnabas.protocol.records import CRC_START, HEADER_SIZE, NewRecord, encode_batch
from sim import nonsense, wire
from sim.clients import RETRIABLE, Asking, name_of
from sim.network import LOST, Forgiving
from sim.nonsense import NO_MEMBER, NOT_A_GROUP, NOT_AN_EPOCH
from sim.producers import Producer

if TYPE_CHECKING:
    from sim.world import World

Lie = Callable[["Meddler", bytearray], "bytearray | bytes"]

TOO_LARGE = (
    Code.MESSAGE_TOO_LARGE,
    Code.RECORD_LIST_TOO_LARGE,
)  # for a large body sent to a topic with another codec, or with small segments
SMALLEST_LIMIT_BYTES = 1 << 20

_LENGTH, _CRC, _ATTRIBUTES, _LAST_DELTA = (8, ">i"), (17, ">I"), (21, ">h"), (23, ">i")
_BASE_TIME, _MAX_TIME, _PRODUCER_ID, _EPOCH = (27, ">q"), (35, ">q"), (43, ">q"), (51, ">h")
_SEQUENCE, _COUNT = (53, ">i"), (57, ">i")


def _set(batch: bytearray, field: tuple[int, str], value: int) -> None:
    struct.pack_into(field[1], batch, field[0], value)


def _get(batch: bytearray, field: tuple[int, str]) -> int:
    return int(struct.unpack_from(field[1], batch, field[0])[0])


def _seal(batch: bytearray) -> None:
    _set(batch, _CRC, crc32c(memoryview(batch)[CRC_START:]))


def _add(field: tuple[int, str], amount: int) -> Lie:
    """A lie is a function that falsifies a batch. This one adds to a field of its header."""

    def lie(meddler: Meddler, batch: bytearray) -> bytearray:
        _set(batch, field, _get(batch, field) + amount)
        return batch

    return lie


def _put(field: tuple[int, str], value: int) -> Lie:
    """A lie (see `_add`) that replaces a field of the batch's header."""

    def lie(meddler: Meddler, batch: bytearray) -> bytearray:
        _set(batch, field, value)
        return batch

    return lie


def _flag(bits: int) -> Lie:
    """A lie that sets bits of the batch's attributes."""

    def lie(meddler: Meddler, batch: bytearray) -> bytearray:
        _set(batch, _ATTRIBUTES, _get(batch, _ATTRIBUTES) | bits)
        return batch

    return lie


def _count_and_delta(meddler: Meddler, batch: bytearray) -> bytearray:
    _add(_COUNT, 1)(meddler, batch)
    return _add(_LAST_DELTA, 1)(meddler, batch)  # type: ignore[return-value]


def _noise(meddler: Meddler, batch: bytearray) -> bytearray:
    """Random bytes instead of records."""
    batch[HEADER_SIZE:] = bytes(meddler.rng.randrange(256) for _ in range(len(batch) - HEADER_SIZE))
    batch[HEADER_SIZE] = 0x7F  # the length of the first record: -64 bytes
    return batch


def _cut_short(meddler: Meddler, batch: bytearray) -> bytearray:
    del batch[-3:]
    _set(batch, _LENGTH, len(batch) - 12)
    return batch


def _longer(meddler: Meddler, batch: bytearray) -> bytearray:
    batch += b"\0\0\0"
    _set(batch, _LENGTH, len(batch) - 12)
    return batch


def _base_offset(meddler: Meddler, batch: bytearray) -> bytearray:
    batch[7] = 9
    return batch


def _magic(meddler: Meddler, batch: bytearray) -> bytearray:
    batch[16] = meddler.rng.choice((0, 1, 3, 127))
    return batch


def _producer_without_sequence(meddler: Meddler, batch: bytearray) -> bytearray:
    _set(batch, _PRODUCER_ID, meddler.producer_id)
    _set(batch, _EPOCH, meddler.epoch)
    return batch


REFUSED_LIES: dict[str, Lie] = {
    "a record too many": _add(_COUNT, 1),
    "no records": _put(_COUNT, 0),
    "an offset delta of a million": _put(_LAST_DELTA, 1_000_000),
    "a negative offset delta": _put(_LAST_DELTA, -2),
    "a record too many in both places": _count_and_delta,
    "a control batch": _flag(0x20),
    "a codec that the body has not": _flag(0x01),
    "a codec that there is not": _flag(0x06),
    "transactional and of no producer": _flag(0x10),
    "no records in the body": _noise,
    "a body cut short": _cut_short,
    "bytes behind the records": _longer,
    "a base offset": _base_offset,
    "another magic": _magic,
    "a producer without a sequence": _producer_without_sequence,
    "a time of more than 64 bits": _put(_BASE_TIME, (1 << 63) - 1),
}
MENDED_LIES: dict[str, Lie] = {
    "the highest time is 0": _put(_MAX_TIME, 0),
    "the highest time is none": _put(_MAX_TIME, -1),
    "the highest time is in a thousand years": _put(_MAX_TIME, 33_000_000_000_000),
    "a delete horizon": _flag(0x40),
    "the broker's clock": _flag(0x08),
    "bits that no producer has defined": _flag(0x4A00),
    "an epoch of the leader's": _put((12, ">i"), 1 << 30),
}


class Meddler(Producer):
    """A client that sends invalid requests. Its corrupt batches go to `partitions`, where other
    clients write and read.
    """

    def __init__(self, world: World, name: str, partitions: list[Partition], rounds: int) -> None:
        super().__init__(world, name)
        self.partitions, self.rounds = partitions, rounds
        self.forgives = Forgiving.ALWAYS

    def run(self) -> Asking:
        yield from self.init()
        for _ in range(self.rounds):
            if self.world.is_draining:
                break
            trick = self.rng.choice(TRICKS)
            yield from trick(self)
            yield self.rng.randint(5, 150)
        self.hang_up()

    # --- batches ---------------------------------------------------------------------------------

    def tell_a_lie(self) -> Asking:
        """Send a batch whose header or body is wrong."""
        partition = self.rng.choice(self.partitions)
        is_mended = self.rng.random() < 0.4
        lies = MENDED_LIES if is_mended else REFUSED_LIES
        what = self.rng.choice(sorted(lies))
        writes, batch = self._batch(partition, 2)
        batch = bytearray(lies[what](self, batch))
        if self.rng.random() < 0.1:
            what, is_mended = what + ", and a wrong checksum", False
            _seal(batch)
            batch[_CRC[0]] ^= 0x55
        else:
            _seal(batch)
        yield from self._send(what, partition, writes, batch, is_mended=is_mended)

    def take_a_name(self) -> Asking:
        """Send a batch that claims to belong to another producer's transaction, or to none."""
        victims = sorted(self.world.producers.items())
        if not victims:
            return
        transactional_id, (producer_id, epoch) = self.rng.choice(victims)
        what, partition = "for a partition that is not in the transaction", ("plain", 0)
        transactions = self.world.transactional_partitions
        match self.rng.randrange(4):
            case 0 if transactions:
                what, partition, epoch = (
                    "with an epoch of the future",
                    self.rng.choice(transactions),
                    min(epoch + 1000, NOT_AN_EPOCH),
                )
            case 1 if transactions:
                what, partition, epoch = (
                    "with an epoch that no producer has",
                    self.rng.choice(transactions),
                    NOT_AN_EPOCH,
                )
            case 2:
                what, partition, transactional_id = (
                    "of a transaction that is not there",
                    self.rng.choice(self.partitions),
                    NO_MEMBER,
                )
                producer_id, epoch = self.producer_id, self.epoch
        writes, batch = self._batch(partition, 1)
        _set(batch, _PRODUCER_ID, producer_id)
        _set(batch, _EPOCH, epoch)
        _set(batch, _SEQUENCE, self.rng.choice((0, 0, 7)))
        _flag(0x10)(self, batch)
        _seal(batch)
        yield from self._send(
            what, partition, writes, batch, is_mended=False, transactional_id=transactional_id
        )

    def bring_a_bomb(self) -> Asking:
        """Send a few bytes that decompress to 1 MB, or to more than the limit."""
        partition = self.rng.choice(self.partitions)
        limit = int(self.world.scenario.properties.get("barnabas.decompressed.max.bytes", 1 << 27))
        is_too_much = limit <= 2 * SMALLEST_LIMIT_BYTES and self.rng.random() < 0.5
        padding = b"\0" * (limit if is_too_much else SMALLEST_LIMIT_BYTES)
        writes, batch = self._batch(partition, 1, codec=self.rng.choice((3, 4)), padding=padding)
        yield from self._send("a bomb", partition, writes, batch, is_mended=not is_too_much)

    def _batch(
        self, partition: Partition, count: int, *, codec: int = 0, padding: bytes = b""
    ) -> tuple[list[Write], bytearray]:
        """A batch of new records, and their writes in the history."""
        self.sessions += 1
        # a new session for each batch, so that no order is expected
        session = f"{self.name}/{self.sessions}"
        history, now_ms = self.world.history, self.world.loop.now_ms
        durable = partition[0] in self.world.flushed_topics
        writes = [
            history.write(self.new_value(partition), partition, session=session, durable=durable)
            for _ in range(count)
        ]
        headers = (("padding", padding),) if padding else ()
        for at, write in enumerate(writes):
            write.made_ms = now_ms + at
        records = [
            NewRecord(write.value.rpartition(b"-")[0], write.value, now_ms + at, headers)
            for at, write in enumerate(writes)
        ]
        return writes, encode_batch(records, codec=codec)

    def _send(
        self,
        what: str,
        partition: Partition,
        writes: list[Write],
        batch: bytearray,
        *,
        is_mended: bool,
        transactional_id: str | None = None,
    ) -> Asking:
        """Send a batch once. is_mended: whether the broker corrects it to an ordinary batch; if
        not, any read of its records is a finding.
        """
        if not is_mended:
            for write in writes:
                write.failed()
        sent_ms = self.world.loop.now_ms
        answer = yield from self.ask(wire.produce(transactional_id, *partition, batch))
        if answer is LOST:
            return
        if answer.error_code == 0 and not is_mended:
            self.world.history.incident("taken", f"{self.name}: {what}, to {partition}")
        elif answer.error_code == 0:
            for position, write in enumerate(writes):
                write.ok(answer.base_offset + position, self.world.loop.now_ms, sent_ms=sent_ms)
        elif is_mended:
            for write in writes:
                write.failed()
            if answer.error_code not in (*RETRIABLE, *TOO_LARGE):
                self.world.history.incident(
                    "refused", f"{self.name}: {what}, to {partition}: {name_of(answer.error_code)}"
                )

    # --- other requests --------------------------------------------------------------------------

    def ask_at_the_edge(self) -> Asking:
        """Send a request with values that are invalid or at their limits. The broker must refuse
        it, however often it is sent.
        """
        what, call = self.rng.choice(list(self._nonsense()))
        answer = yield from self.ask(call)
        if answer is not LOST and not nonsense.is_refused(answer):
            self.world.history.incident("taken", f"{self.name}: {what}")

    def _nonsense(self) -> Iterator[nonsense.Nonsense]:
        victim, partition = self._victim(), self.rng.choice(self.partitions)
        group = self.rng.choice(("group", "readers", NOT_A_GROUP, *self.world.group_names))
        yield from nonsense.of_transactions(victim, self.rng)
        yield from nonsense.of_markers(victim, partition)
        yield from nonsense.of_groups(group)
        yield from nonsense.of_topics(partition)
        yield from nonsense.of_logs(partition, self.rng)

    def _victim(self) -> nonsense.Victim:
        """Another producer, whose requests the broker knows for certain only if `is_known`."""
        world = self.world
        victims = sorted(world.producers.items()) or [(NO_MEMBER, (77, 0))]
        name, (producer_id, epoch) = self.rng.choice(victims)
        is_known = name in world.producers
        forgets = world.may_forget or world.scenario.ids_expire
        return nonsense.Victim(name, producer_id, epoch, is_known and not forgets)

    def write_markers(self) -> Asking:
        """Send WriteTxnMarkers that end no transaction: for an unknown producer, or with an old
        epoch of a producer; with any coordinator epoch, and also in the internal topics.

        Apache Kafka writes some of these, if the partition does not know the producer.
        """
        world, rng = self.world, self.rng
        victim = self._victim()
        partition = rng.choice([*self.partitions, *INTERNAL_PARTITIONS])
        coordinator_epoch = rng.choice((-1, 0, 1, 500, nonsense.HIGHEST_INT))
        if victim.epoch > 0 and rng.random() < 0.5:
            producer_id, epoch = victim.producer_id, victim.epoch - 1
        else:
            producer_id, epoch = rng.choice(STRANGERS), rng.choice((0, 3, NOT_AN_EPOCH))
        call = nonsense.markers(
            producer_id, epoch, coordinator_epoch, partition, commit=rng.random() < 0.5
        )
        answer = yield from self.ask(call)
        world.trace("markers", 0, "" if answer is LOST else repr(answer), epoch, b"")

    def end_from_behind(self) -> Asking:
        """Send WriteTxnMarkers with an old epoch of a producer whose transaction is open, and must
        stay open.
        """
        world, rng = self.world, self.rng
        broker = world.node.broker
        victims = [
            (partition, producer_id, epoch)
            for partition in self.partitions
            if broker is not None and (log := broker.topics.partition(*partition)) is not None
            for producer_id in sorted(log.producer_state.open_transactions())
            if (epoch := log.producer_state.producer_epoch_of(producer_id)) > 0
        ]
        if not victims:
            return
        partition, producer_id, epoch = rng.choice(victims)
        call = nonsense.markers(
            producer_id, epoch - 1, nonsense.HIGHEST_INT, partition, commit=rng.random() < 0.5
        )
        answer = yield from self.ask(call)
        if answer is not LOST and not nonsense.is_refused(answer) and not world.scenario.ids_expire:
            world.history.incident(
                "taken", f"{self.name}: a marker of {producer_id}/{epoch - 1} in {partition}"
            )


STRANGERS = (5_000_000, 1 << 40, (1 << 63) - 1)
INTERNAL_PARTITIONS = ((OFFSETS_TOPIC, 0), (TRANSACTIONS_TOPIC, 0))
TRICKS = (
    *[Meddler.tell_a_lie] * 4,
    *[Meddler.take_a_name] * 2,
    *[Meddler.ask_at_the_edge] * 3,
    Meddler.write_markers,
    *[Meddler.end_from_behind] * 2,
    Meddler.bring_a_bomb,
)
