"""Two-phase producers (KIP-939), and the database that stores the decisions on their transactions.

The database is a model that never fails. If there are two decisions on one transaction, the first
counts. An application's instance dies between any two steps, or is believed dead and continues; the
next instance finds the open transaction, and ends it as the database decided. Two invariants are
checked in addition to those of all transactions: a prepared transaction stays open until the
decision, across kills and power losses and for any length of time; and a transaction that was
reported as ended stays ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from checkers import Ending, Partition, Transaction

from barnabas.protocol.errors import Code
from barnabas.protocol.messages.end_txn import EndTxnRequest
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from sim import wire
from sim.clients import FENCED, Asking, Fenced, Refused, error_code
from sim.producers import (
    SEQUENCE_ERRORS,
    Inits,
    TransactionalProducer,
    may_have_lost_batches,
)

if TYPE_CHECKING:
    from sim.world import World

NOTHING_OPEN = (-1, -1)


class State(NamedTuple):
    """The identity of a transaction, as the database stores it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Database:
    """The transactions that are prepared, and the decisions on them. `_ended` has the transactions
    that the broker has reported as ended to some instance.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._prepared: dict[State, Transaction] = {}
        self._decisions: dict[State, bool] = {}
        self._ended: set[State] = set()

    def prepare(self, state: State, transaction: Transaction) -> bool:
        """Record that a transaction is prepared. Gives: False if it was already decided, by an
        instance that considered it abandoned.
        """
        if state in self._decisions:
            return False
        assert state not in self._prepared, f"{state} names two transactions"
        self._prepared[state] = transaction
        return True

    def decide(self, state: State, *, commit: bool) -> bool:
        """Decide on a transaction. Gives: the decision that counts, which is the first one."""
        if state not in self._decisions:
            self._decisions[state] = commit and state in self._prepared
        transaction = self._prepared.get(state)
        if self._decisions[state] and transaction is not None:
            transaction.commit_asked_ms = transaction.commit_asked_ms or self._world.loop.now_ms
        return self._decisions[state]

    def note_end(self, state: State, *, is_reported: bool = True) -> None:
        """Record that the broker has ended the transaction as decided. is_reported: whether the
        broker has reported the end, which is otherwise inferred.
        """
        self._ended.add(state)
        transaction = self._prepared.pop(state, None)
        if transaction is not None:
            ending = Ending.COMMITTED if self._decisions[state] else Ending.ABORTED
            if not is_reported and self._may_be_forgotten:
                ending = Ending.UNKNOWN
            transaction.end(ending, self._world.loop.now_ms)
            if ending is Ending.COMMITTED:
                self._world.seen.add("two-phase commit")

    def note_open(self, transactional_id: str, opened: State | None) -> None:
        """Record which transaction of the id is still open, according to the InitProducerId
        response that a new producer received. This producer has fenced all others.
        """
        if opened in self._ended and not self._may_be_forgotten:
            self._world.history.incident("contradicted", f"{opened} had ended, and is open again")
        for state in [each for each in self._prepared if each.transactional_id == transactional_id]:
            if state == opened:
                continue
            if state not in self._decisions:
                if not self._may_be_forgotten:
                    self._world.history.incident("lost", f"{state} was prepared, and is gone")
                self.decide(state, commit=False)
            self.note_end(state, is_reported=False)

    @property
    def _may_be_forgotten(self) -> bool:
        """Whether a power loss may have lost decisions, which is possible only if no response waits
        for the disk.
        """
        return not self._world.history.commits_are_durable and bool(self._world.fences)


class TwoPhaseProducer(TransactionalProducer):
    """An instance of an application whose transactions end as the database decides."""

    def __init__(
        self,
        world: World,
        name: str,
        transactional_id: str,
        partitions: list[Partition],
        database: Database,
    ) -> None:
        rounds = world.scenario.rounds
        super().__init__(world, name, transactional_id, partitions, rounds=rounds)
        self.ends_after = None
        self.database = database
        share = world.scenario.version_2
        self.is_version_2 = share > 0 and self.rng.random() < share

    @property
    def state(self) -> State:
        assert self.transactional_id is not None
        return State(self.transactional_id, self.producer_id, self.epoch)

    def run(self) -> Asking:
        """Run the transactions. Gives: True if the instance ended by itself, False if it died or
        was fenced.
        """
        world = self.world
        try:
            yield from self.recover()
            for number in range(self.rounds):
                if world.is_draining:
                    break
                if number and not self.is_version_2:
                    # Recovery begins a new epoch, which each transaction needs with version 1.
                    yield from self.recover()
                yield from self.transact(number)
                yield self.rng.randint(1, 250)
        except Fenced:
            self.hang_up()
            return False
        except Refused as refusal:
            was_forgotten = refusal.code in SEQUENCE_ERRORS and may_have_lost_batches(
                world, self.partitions
            )
            world.refused(refusal, is_explained=was_forgotten)
            self.hang_up()
            return False
        self.hang_up()
        return True

    def recover(self) -> Asking:
        """Take over the transactional id, and end its open transaction as decided. Raises:
        Fenced.
        """
        world, name = self.world, self.transactional_id
        assert name is not None
        call = wire.request(
            InitProducerIdRequest(name, 60_000, enable2_pc=True, keep_prepared_txn=True), 6
        )
        inits = world.inits.setdefault(name, Inits())
        inits.asked += 1
        number = inits.asked
        answer = yield from self.insist(call, error_code)
        inits.answered += 1
        if inits.asked != number:
            # another producer has been initialised since, so this response is outdated
            raise Fenced
        if answer.error_code:
            raise Refused(f"{self.name}: InitProducerId 6", answer.error_code)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        world.producers[name] = (self.producer_id, self.epoch)
        self.sequences.clear()
        self.sessions += 1
        self.session = f"{self.name}/{self.sessions}"
        ongoing = answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch
        opened = None if ongoing == NOTHING_OPEN else State(name, *ongoing)
        self.database.note_open(name, opened)
        if opened is not None:
            yield from self.complete(opened, commit=self.rng.random() < 0.5)

    def transact(self, number: int) -> Asking:
        """Run one transaction, in which the instance may die at each step. Raises: Fenced;
        Refused.
        """
        world, rng, state = self.world, self.rng, self.state
        transaction = world.history.begin(
            f"{self.name}#{number}", session=self.session, now_ms=world.loop.now_ms
        )
        self.added = []
        try:
            for _ in range(rng.randint(1, 2)):
                chosen = rng.sample(self.partitions, rng.randint(1, len(self.partitions)))
                yield from self.add_partitions(chosen)
                for _ in range(rng.randint(1, 3)):
                    self.put(rng.choice(chosen), rng.randint(1, 2), transaction)
                yield from self.send_all()
            self.may_die()
            if not self.database.prepare(state, transaction):
                raise Fenced
        except (Fenced, Refused):
            transaction.end(Ending.ABORTED, world.loop.now_ms)
            raise
        self.may_die()
        if rng.random() < 0.3:
            yield rng.randint(100, 6000)
        yield from self.complete(state, commit=rng.random() < 0.7)

    def complete(self, state: State, *, commit: bool) -> Asking:
        """Let the database decide, and the broker end the transaction accordingly. Raises: Fenced,
        if another producer has taken over.
        """
        decided = self.database.decide(state, commit=commit)
        self.may_die()
        call = wire.request(
            EndTxnRequest(self.transactional_id, self.producer_id, self.epoch, decided),
            5 if self.is_version_2 else 3,
        )
        answer = yield from self.insist(call, error_code, 4000)
        if answer.error_code in (*FENCED, Code.INVALID_TXN_STATE):
            raise Fenced
        if answer.error_code:
            raise Refused(f"{self.name}: EndTxn(commit={decided})", answer.error_code)
        self.database.note_end(state)
        if self.is_version_2:
            self.take_next_epoch(answer)

    def may_die(self) -> None:
        if not self.world.is_draining and self.rng.random() < 0.12:
            raise Fenced

    def was_fenced(self, code: int, *, is_end: bool = False) -> None:
        """Report nothing: in nearly every schedule a producer takes over from another that it
        believes dead.
        """


def application(world: World, name: str, partitions: list[Partition]) -> Asking:
    """Run the instances of one transactional id, one after the other. Some start while their
    predecessor is still running. The last one starts after the faults, and leaves no transaction
    open.
    """
    rng, database = world.rng, Database(world)
    instance = 0
    while not world.is_draining:
        producer = TwoPhaseProducer(world, f"{name}.{instance}", name, partitions, database)
        ended = world.loop.spawn(producer.run())
        if rng.random() < world.scenario.zombies:
            yield rng.randint(50, 1500)
        else:
            yield ended
        instance += 1
        yield rng.randint(10, 600)
    while True:
        last = TwoPhaseProducer(world, f"{name}.last{instance}", name, partitions, database)
        instance += 1
        try:
            yield from last.recover()
            break
        except Fenced:
            # this instance was fenced, since an earlier instance is still running
            yield rng.randint(10, 100)
    last.hang_up()
