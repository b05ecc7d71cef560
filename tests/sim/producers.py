"""Idempotent producers, which write continuously and in order, and transactional producers, with
all faults that may affect them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from checkers import Ending, Partition, Source, Transaction, Write

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from barnabas.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.records import NewRecord, encode_batch
from sim import wire
from sim.clients import FENCED, RETRIABLE, Asking, Client, Fenced, Refused, error_code, name_of
from sim.network import LOST, Forgiving

if TYPE_CHECKING:
    from sim.world import World

ZSTD = 4
# decompressing such a record takes longer than the broker may take in one step
PADDING = b"\0" * 1_100_000
SURELY_FITS_BYTES = 330
SEQUENCE_ERRORS = frozenset(
    {Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.UNKNOWN_PRODUCER_ID, Code.INVALID_TXN_STATE}
)


class Inits:
    """Counts the InitProducerId requests that all producers have sent for one transactional id, and
    the responses that they received. `lingers` is True if a lost request may still arrive.
    """

    __slots__ = ("answered", "asked", "lingers")

    def __init__(self) -> None:
        self.asked = self.answered = 0
        self.lingers = False


class Batch:
    """Records for one partition, which are sent repeatedly until there is a response.

    encode: the request with the records' time and codec. is_merged: whether records that were sent
    before are in one batch with later ones.
    """

    __slots__ = (
        "attempts", "call", "codec", "encode", "is_merged", "partition", "sent_ms", "sequence",
        "writes",
    )  # fmt: skip

    def __init__(
        self,
        partition: Partition,
        writes: list[Write],
        sequence: int,
        encode: Callable[[int, int], wire.Call],
        now_ms: int,
        codec: int,
    ) -> None:
        self.partition, self.writes, self.sequence = partition, writes, sequence
        self.encode, self.codec, self.call = encode, codec, encode(now_ms, codec)
        self.attempts = self.sent_ms = 0
        self.is_merged = False


class Producer(Client):
    """What both kinds of producer have in common: an id, an epoch, a sequence for each partition,
    and up to five requests in flight.
    """

    def __init__(self, world: World, name: str, transactional_id: str | None = None) -> None:
        super().__init__(world, name)
        self.transactional_id = transactional_id
        self.producer_id, self.epoch = -1, -1
        self.sequences: dict[Partition, int] = {}
        self.written_ms: dict[Partition, int] = {}
        self.timeout_ms = 60_000
        self.sessions = 0
        self.session = name
        self._made = 0
        self.init_number, self.init_after = -1, 0
        self.is_version_2 = False
        self.began_ms, self.began_after = -1, 0
        self.merged_refused = False
        self.waiting: deque[Batch] = deque()
        self.in_flight: deque[tuple[Batch, object]] = deque()

    def init(self, *, bump: bool = False, timeout_ms: int = 60_000) -> Asking:
        """Send InitProducerId, for a first session or for the next epoch of this one (KIP-360)."""
        call = wire.request(
            InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=timeout_ms,
                producer_id=self.producer_id if bump else -1,
                producer_epoch=self.epoch if bump else -1,
            ),
            4,
        )
        lost_before = self.lost
        inits = self.world.inits.setdefault(self.transactional_id or "", Inits())
        inits.asked += 1
        number = inits.asked, inits.answered
        answer = yield from self.insist(call, error_code)
        is_alone = (inits.asked, inits.answered) == number
        inits.answered += 1
        inits.lingers = inits.lingers or self.lost > lost_before
        self.init_number = inits.answered if is_alone else -1
        self.init_after = self.asked_after
        if answer.error_code in FENCED:
            raise Fenced
        if answer.error_code:
            raise Refused("InitProducerId", answer.error_code)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()
        if self.transactional_id is not None:
            self.world.producers[self.transactional_id] = (self.producer_id, self.epoch)
        self.sessions += 1
        self.session = f"{self.name}/{self.sessions}"

    def new_value(self, partition: Partition) -> bytes:
        """Return a unique value. The text before its last '-' becomes the record's key: in a
        compacted topic it is one of a few keys, otherwise the producer's name.
        """
        self._made += 1
        key = (
            f"{self.name}.k{self._made % 3}"
            if partition[0] in self.world.history.compacted
            else self.name
        )
        return f"{key}-{self._made}".encode()

    def put(
        self,
        partition: Partition,
        count: int,
        transaction: Transaction | None = None,
        sources: list[Source] | None = None,
    ) -> Batch:
        """Make a batch of new records, and queue it."""
        history = self.world.history
        durable = transaction is None and partition[0] in self.world.flushed_topics
        writes = [
            history.write(
                self.new_value(partition),
                partition,
                session=self.session,
                transaction=transaction,
                source=sources[i] if sources else None,
                durable=durable,
            )
            for i in range(count)
        ]
        now_ms = self.world.loop.now_ms
        for write in writes:
            write.made_ms = now_ms
        scenario = self.world.scenario
        is_padded = scenario.padding > 0 and self.rng.random() < scenario.padding
        codec = self.rng.choice(scenario.codecs) if scenario.codecs else 0
        sequence = self.sequences.get(partition, 0)
        self.sequences[partition] = sequence + count
        batch = self._batch_of(partition, writes, sequence, ZSTD if is_padded else codec, is_padded)
        self.waiting.append(batch)
        return batch

    def _batch_of(
        self,
        partition: Partition,
        writes: list[Write],
        sequence: int,
        codec: int,
        is_padded: bool = False,
    ) -> Batch:
        is_transactional = writes[0].transaction is not None
        headers = (("padding", PADDING),) if is_padded else ()
        produce = wire.produce_and_add if self.is_version_2 else wire.produce
        producer_id, epoch, name = self.producer_id, self.epoch, self.transactional_id

        def encode(now_ms: int, codec: int) -> wire.Call:
            records = [
                NewRecord(
                    write.value.rpartition(b"-")[0], write.value, now_ms, () if at else headers
                )
                for at, write in enumerate(writes)
            ]
            encoded = encode_batch(
                records,
                codec=codec,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=is_transactional,
            )
            return produce(name, partition[0], partition[1], encoded)

        return Batch(partition, writes, sequence, encode, self.world.loop.now_ms, codec)

    def _prepare_again(self) -> None:
        """Make the batches that wait for their next attempt, as the schedule's clients do.

        "same bytes" is what the Java client, kafka-python and aiokafka do; "encoded again", with
        the time of the attempt and perhaps in another codec, what kafkajs and librdkafka do;
        "merged", in one batch with later records, what sarama to 1.47 does.
        """
        retries = self.world.scenario.retries
        if retries == "encoded again":
            for batch in self.waiting:
                if batch.attempts:
                    is_small = batch.codec != ZSTD
                    codec = (batch.codec + batch.attempts) % 3 if is_small else ZSTD
                    call = batch.encode(self.world.loop.now_ms, codec)
                    if _fits(call, batch.call):
                        batch.call = call
        elif retries == "merged" and self.transactional_id is None:
            self._merge()

    def _merge(self) -> None:
        by_partition: dict[Partition, list[Batch]] = {}
        for batch in self.waiting:
            by_partition.setdefault(batch.partition, []).append(batch)
        self.waiting.clear()
        for partition, batches in by_partition.items():
            if len(batches) == 1 or not batches[0].attempts:
                self.waiting.extend(batches)
                continue
            writes = [write for batch in batches for write in batch.writes]
            merged = self._batch_of(partition, writes, batches[0].sequence, batches[0].codec)
            if not _fits(merged.call, batches[0].call):
                self.waiting.extend(batches)
                continue
            merged.attempts, merged.is_merged = batches[0].attempts, True
            self.waiting.append(merged)

    def send_all(self, *, patience: float = 1.0) -> Asking:
        """Send the queued batches repeatedly, until each has a response. `patience` is the
        probability of continuing after a lost response. Gives: False if the producer gave up.

        Raises: Fenced; Refused. The outcome of batches without a response is then unknown, and they
        are no longer queued.
        """
        try:
            while self.waiting or self.in_flight:
                link = yield from self.connected()
                if not self.in_flight:
                    sending_over = link
                # Use another link only when all requests in flight on the last link are known to be
                # lost.
                while (
                    link is sending_over
                    and self.waiting
                    and len(self.in_flight) < self.world.scenario.most_in_flight
                ):
                    batch = self.waiting.popleft()
                    batch.attempts += 1
                    batch.sent_ms = self.world.loop.now_ms
                    self.world.operations += 1
                    self.in_flight.append((batch, link.call(batch.call)))
                batch, future = self.in_flight[0]
                answer = yield future
                if answer is LOST:
                    self.lost += 1
                    self.link = None
                    self._line_up_again()
                    if self.rng.random() >= patience:
                        self._give_up_sequences()
                        return False
                    yield self.rng.randint(5, 80)
                    continue
                if answer.error_code in RETRIABLE:
                    # The broker has also refused the later batches in flight, or will refuse them,
                    # so all are sent again in order.
                    for _, later in list(self.in_flight)[1:]:
                        yield later
                    self._line_up_again()
                    yield self.rng.randint(5, 50)
                    continue
                self.in_flight.popleft()
                self._answered(batch, answer)
        finally:
            self.waiting.clear()
            self.in_flight.clear()
        return True

    def rest(self) -> Asking:
        """If ids expire in this schedule, pause sometimes for so long that this producer's id
        expires.
        """
        if (
            self.world.scenario.ids_expire
            and not self.world.is_draining
            and self.rng.random() < 0.4
        ):
            yield self.rng.randint(1500, 6000)

    def _give_up_sequences(self) -> None:
        """Reuse the sequence numbers of abandoned batches for later batches, as librdkafka does."""
        if self.world.scenario.reuses_sequences and self.transactional_id is not None:
            for batch in reversed(self.waiting):
                self.sequences[batch.partition] = batch.sequence

    def _line_up_again(self) -> None:
        self.waiting.extendleft(batch for batch, _ in reversed(self.in_flight))
        self.in_flight.clear()
        self._prepare_again()

    def _answered(self, batch: Batch, answer: wire.Produced) -> None:
        code = answer.error_code
        if code in (0, Code.DUPLICATE_SEQUENCE_NUMBER):
            self.written_ms[batch.partition] = batch.sent_ms
            for position, write in enumerate(batch.writes):
                offset = answer.base_offset + position if answer.base_offset >= 0 else -1
                write.ok(
                    offset,
                    self.world.loop.now_ms,
                    sent_ms=batch.sent_ms,
                    is_resent=batch.attempts > 1,
                )
            return
        if batch.attempts == 1:
            for write in batch.writes:
                write.failed()
        if code in FENCED and self.transactional_id is not None:
            self.was_fenced(code)
            raise Fenced
        what = f"{self.name}: Produce to {batch.partition} (attempt {batch.attempts})"
        self.merged_refused = batch.is_merged
        raise Refused(what, code, [batch.partition], batch.sent_ms)

    def was_fenced(self, code: int, *, is_end: bool = False) -> None:
        """Report a finding if no other producer used this transactional id, and the transaction
        cannot have timed out.

        A starting broker measures a transaction's age by the wall clock, so nothing is certain
        after a start if that clock was set. The same holds if an InitProducerId request for this id
        was lost: it may arrive late, and fence a later producer.
        """
        world = self.world
        inits = world.inits[self.transactional_id or ""]
        is_alone = inits.asked == inits.answered == self.init_number and not inits.lingers
        if not is_alone or self.began_ms < 0 or code == Code.INVALID_PRODUCER_ID_MAPPING:
            return
        if self.init_after != world.fences or (
            world.scenario.clock_steps_ms and self.began_after != world.restarts
        ):
            return
        now_ms = world.loop.now_ms
        arrived_ms = self.link.last_arrival_ms if self.link is not None else now_ms
        open_ms = now_ms - self.began_ms
        # otherwise the time for which the process was stopped counts towards the timeout
        if is_end:
            open_ms -= world.node.stood_still_ms(self.began_ms, now_ms, arrived_ms=arrived_ms)
        if open_ms < self.timeout_ms:
            world.history.incident(
                "early",
                f"{self.name}: fenced after {open_ms} of {self.timeout_ms} ms, by no other",
            )


def _fits(call: wire.Call, former: wire.Call) -> bool:
    """Whether a request that is encoded again fits into the smallest segments of any schedule, or
    is no larger than before.
    """
    return len(call.body) <= max(len(former.body), SURELY_FITS_BYTES)


class IdempotentProducer(Producer):
    """Writes batches to some partitions, in order, until the faults are over; it starts a new
    session when the broker refuses a batch.
    """

    def __init__(self, world: World, name: str, partitions: list[Partition], rounds: int) -> None:
        super().__init__(world, name)
        self.partitions, self.rounds = partitions, rounds

    def run(self) -> Asking:
        yield from self.init()
        for _ in range(self.rounds):
            if self.world.is_draining:
                break
            for _ in range(self.rng.randint(1, 7)):
                self.put(self.rng.choice(self.partitions), self.rng.randint(1, 3))
            try:
                yield from self.send_all()
            except Refused as refusal:
                is_explained = self.world.is_between_lives(refusal) or (
                    refusal.code in SEQUENCE_ERRORS and self.may_be_out_of_sequence(refusal)
                )
                if not is_explained:
                    self.world.history.incident("refused", str(refusal))
                    return
                self.hang_up()
                if self.world.scenario.bumps_epochs:
                    self._bump_epoch()
                else:
                    yield from self.init()
            yield self.rng.randint(1, 400)
            yield from self.rest()

    def _bump_epoch(self) -> None:
        """Continue with the next epoch, without a request, as Apache Kafka's own client does: no
        other producer has the id (KIP-360).
        """
        self.epoch += 1
        self.sequences.clear()
        self.sessions += 1
        self.session = f"{self.name}/{self.sessions}"

    def may_be_out_of_sequence(self, refusal: Refused) -> bool:
        """Whether the broker may have forgotten a batch of this producer, or the batch was merged
        with a written one.

        The first is possible after a power loss, or if the topic was created again since the
        previous batch. It is also possible after a restart, if retention or compaction had removed
        the batch: a start rebuilds the producer's entries from the log, except the entry of the
        last batch.
        """
        world = self.world
        if self.merged_refused or world.was_deleted(refusal):
            return True
        if world.history.power_losses or (
            world.restarts and world.cleanings and world.history.compacted
        ):
            return True
        return may_have_lost_batches(world, self.partitions)


def may_have_lost_batches(world: World, partitions: list[Partition]) -> bool:
    """Whether a start may have failed to rebuild entries that identify a repeated batch, since
    DeleteRecords or retention had removed that batch from the log. Without a restart, a batch that
    is gone from the log is recognised by its bytes, which differ if it was encoded again.
    """
    is_encoded_again = world.scenario.retries == "encoded again"
    if world.node.broker is None or not (world.restarts or is_encoded_again):
        return False
    if is_encoded_again and world.cleanings and world.history.compacted:
        return True
    logs = [world.node.broker.topics.partition(*partition) for partition in partitions]
    return any(log is not None and log.log_start_offset > 0 for log in logs)


class PlainProducer(Producer):
    """A producer without an id. It does not send lost batches again, and late batches arrive out of
    order. `acks` is 0, 1 or -1.
    """

    def __init__(
        self, world: World, name: str, partitions: list[Partition], rounds: int, acks: int
    ) -> None:
        super().__init__(world, name)
        self.partitions, self.rounds, self.acks = partitions, rounds, acks
        if acks == 0:
            self.forgives = Forgiving.REFUSED_BATCHES

    def run(self) -> Asking:
        for _ in range(3 * self.rounds):
            if self.world.is_draining:
                break
            if self.link is None or not self.link.is_open:
                self.sessions += 1
                self.session = f"{self.name}/{self.sessions}"
            batch = self.put(self.rng.choice(self.partitions), self.rng.randint(1, 3))
            self.waiting.clear()
            if self.acks != -1:
                for write in batch.writes:
                    write.durable = False
            batch.sent_ms, batch.attempts = self.world.loop.now_ms, 1
            answer = yield from self.ask(wire.with_acks(batch.call, self.acks))
            if self.acks == 0:
                pass
            elif answer is LOST:
                self.hang_up()
            elif (
                answer.error_code in RETRIABLE
                or answer.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
            ):
                for write in batch.writes:
                    write.failed()
            else:
                try:
                    self._answered(batch, answer)
                except Refused as refusal:
                    self.world.refused(refusal, is_explained=False)
                    return
            yield self.rng.randint(1, 150)
        yield 50
        self.hang_up()


class TransactionalProducer(Producer):
    """An instance of an application: a sequence of transactions, until it is fenced, dies, or the
    faults are over.
    """

    def __init__(
        self,
        world: World,
        name: str,
        transactional_id: str,
        partitions: list[Partition],
        *,
        rounds: int,
        timeout_ms: int = 60_000,
    ) -> None:
        super().__init__(world, name, transactional_id)
        self.partitions, self.rounds, self.timeout_ms = partitions, rounds, timeout_ms
        self.pauses_at = -1
        self.pause_ms = 0
        self.added: list[Partition] = []
        if world.scenario.sessions_end_with_power:
            self.ends_after = len(world.history.power_losses)

    def run(self) -> Asking:
        """Run the transactions. Gives: True if the instance ended by itself, False if it was
        fenced.
        """
        try:
            yield from self.init(timeout_ms=self.timeout_ms)
            for number in range(self.rounds):
                if self.world.is_draining:
                    break
                yield from self.transact(number)
                yield self.rng.randint(1, 250)
                yield from self.rest()
        except Fenced:
            self.world.trace("fenced", 0, self.name, 0, b"")
            self.hang_up()
            return False
        except Refused as refusal:
            self.world.refused(refusal, is_explained=self.world.may_forget)
            self.hang_up()
            return False
        self.hang_up()
        return True

    def transact(self, number: int) -> Asking:
        """Run one transaction: write, perhaps pause, end it. Raises: Fenced, after recording the
        transaction's end.
        """
        world, rng = self.world, self.rng
        transaction = world.history.begin(
            f"{self.name}#{number}", session=self.session, now_ms=world.loop.now_ms
        )
        wants_abort = rng.random() < 0.3
        self.begin_version()
        try:
            unresolved = keeps_epoch = False
            for _ in range(rng.randint(1, 3)):
                chosen = rng.sample(self.partitions, rng.randint(1, min(2, len(self.partitions))))
                try:
                    yield from self.add_partitions(chosen)
                except Refused as refusal:
                    if not world.is_between_lives(refusal):
                        raise
                    unresolved = True
                    break
                for _ in range(rng.randint(1, 4)):
                    self.put(rng.choice(chosen), rng.randint(1, 3), transaction)
                if self.writes_to_all_added():
                    unwritten = {*chosen} - {batch.partition for batch in self.waiting}
                    for partition in sorted(unwritten):
                        self.put(partition, 1, transaction)
                if rng.random() < world.scenario.dying:
                    self.waiting.clear()
                    transaction.end(Ending.ABORTED, world.loop.now_ms)
                    # the application dies during the transaction, which is aborted later
                    raise Fenced
                try:
                    unresolved = not (yield from self.send_all(patience=0.8))
                    keeps_epoch = unresolved and world.scenario.reuses_sequences
                except Refused as refusal:
                    is_forgotten = refusal.code in SEQUENCE_ERRORS and (
                        world.may_forget
                        or world.scenario.reuses_sequences
                        or world.was_deleted(refusal)
                        or may_have_lost_batches(world, self.partitions)
                        or self.may_have_expired(refusal)
                    )
                    world.refused(
                        refusal, is_explained=is_forgotten or world.is_between_lives(refusal)
                    )
                    unresolved = True
                if number == self.pauses_at:
                    yield self.pause_ms
                if unresolved:
                    break
                if rng.random() < 0.3:
                    yield rng.randint(1, 200)
            yield from self.end(transaction, commit=not (wants_abort or unresolved))
            if unresolved and not keeps_epoch and not self.is_version_2:
                yield from self.init(bump=True, timeout_ms=self.timeout_ms)
        except Fenced:
            self.note_end_of(transaction)
            raise

    def may_have_expired(self, refusal: Refused) -> bool:
        """Whether a partition may have forgotten a producer that changes to transactions of version
        2 within its epoch. The partition then requires the unknown producer to start with sequence
        0.
        """
        expires_ms = self.world.history.producer_expiration_ms
        return (
            expires_ms is not None
            and self.is_version_2
            and all(
                refusal.asked_ms - self.written_ms.get(partition, refusal.asked_ms) >= expires_ms
                for partition in refusal.partitions
            )
        )

    def begin_version(self) -> None:
        """Choose the version of the new transaction, which may differ from the last one's."""
        self.added = []
        share = self.world.scenario.version_2
        self.is_version_2 = share > 0 and self.rng.random() < share

    def note_end_of(self, transaction: Transaction) -> None:
        """When the instance has ended, record the outcome of a transaction whose end the instance
        did not observe.
        """
        if transaction.ending is Ending.OPEN:
            ending = Ending.ABORTED if transaction.commit_asked_ms is None else Ending.UNKNOWN
            transaction.end(ending, self.world.loop.now_ms)

    def writes_to_all_added(self) -> bool:
        """Whether the producer writes to every partition that it adds, as real clients do. This is
        necessary if sequences are reused: the broker could not recognise a late batch for a
        partition that was added but not written.
        """
        scenario = self.world.scenario
        return scenario.reuses_sequences and not self.is_version_2 and not scenario.adds_unwritten

    def add_partitions(self, partitions: list[Partition]) -> Asking:
        """Add the partitions that the transaction does not have yet."""
        new = [partition for partition in partitions if partition not in self.added]
        if not new:
            return
        if self.is_version_2:  # with version 2, the Produce requests add partitions
            if not self.added:
                self.began_ms, self.began_after = self.world.loop.now_ms, self.world.restarts
            self.added.extend(new)
            return
        topics: dict[str, list[int]] = {}
        for topic, index in new:
            topics.setdefault(topic, []).append(index)
        call = wire.request(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                    for topic, indexes in topics.items()
                ],
            ),
            3,
        )
        asked_ms = self.world.loop.now_ms
        if not self.added:
            self.began_ms, self.began_after = asked_ms, self.world.restarts
        answer = yield from self.insist(call, _code_of_added)
        self.check(_code_of_added(answer), "AddPartitionsToTxn", new, asked_ms)
        self.added.extend(new)

    def check(
        self, code: int, what: str, partitions: Iterable[Partition] = (), asked_ms: int = 0
    ) -> None:
        """Handle an error code. Raises: Fenced; Refused."""
        if code in FENCED:
            self.was_fenced(code)
            raise Fenced
        if code:
            raise Refused(f"{self.name}: {what}", code, partitions, asked_ms)

    def end(self, transaction: Transaction, *, commit: bool) -> Asking:
        """Send EndTxn until there is a response. Raises: Fenced."""
        world = self.world
        call = wire.request(
            EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=commit,
            ),
            5 if self.is_version_2 else 3,
        )
        if commit:
            transaction.commit_asked_ms = world.loop.now_ms
        unsure_before, codes = self.unsure, []

        def code_of(answer: EndTxnResponse) -> int:
            codes.append(answer.error_code)
            return answer.error_code

        answer = yield from self.insist(call, code_of, 4000)
        code = answer.error_code
        # without disk space for its record, a commit whose data are durable is carried out later
        may_be_done = commit and (
            self.unsure > unsure_before or Code.COORDINATOR_NOT_AVAILABLE in codes
        )
        if code == 0:
            transaction.end(Ending.COMMITTED if commit else Ending.ABORTED, world.loop.now_ms)
            if commit:
                world.seen.add("version 2" if self.is_version_2 else "version 1")
            if self.is_version_2:
                self.take_next_epoch(answer)
            return
        transaction.end(Ending.UNKNOWN if may_be_done else Ending.ABORTED, world.loop.now_ms)
        world.trace("end refused", 0, f"{self.name} {name_of(code)}", 0, b"")
        if code in FENCED:
            self.was_fenced(code, is_end=True)
            raise Fenced
        if code == Code.INVALID_TXN_STATE and self.is_version_2 and commit:
            # the transaction timed out, or an abort took the place of the commit
            self.was_fenced(code, is_end=True)
            raise Fenced
        if code == Code.INVALID_TXN_STATE and (world.may_forget or not commit):
            return  # the transaction was lost, or there was nothing to abort
        raise Refused(f"{self.name}: EndTxn(commit={commit})", code)

    def take_next_epoch(self, answer: EndTxnResponse) -> None:
        """Continue with the producer id and epoch from the EndTxn response of version 2."""
        went_on = answer.producer_id != self.producer_id or answer.producer_epoch > self.epoch
        if not went_on or self.transactional_id is None:
            text = f"{self.name}: EndTxn left it at {answer.producer_id}/{answer.producer_epoch}"
            self.world.history.incident("epoch", text)
            return
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()
        self.world.producers[self.transactional_id] = (self.producer_id, self.epoch)


def _code_of_added(answer: AddPartitionsToTxnResponse) -> int:
    """The first error code in a response, apart from OPERATION_NOT_ATTEMPTED."""
    codes = [
        partition.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    ]
    for code in codes:
        if code not in (0, Code.OPERATION_NOT_ATTEMPTED):
            return int(code)
    return int(codes[0])
