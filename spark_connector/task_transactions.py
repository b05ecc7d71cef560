"""The transactions that tasks of a batch write by themselves, and how all of them end as one.

A task with much to write begins a transaction of its own and leaves it open. The driver then makes
one decision, a transaction that commits the batch's number, with the list of these transactions in
its note, and ends them after that. The list names each by transactional id, producer id and epoch:
what another attempt or a later session of the same id wrote is never ended by it.

    step of a batch's commit            after a crash there, the next driver
    tasks have written                  aborts them: no note names them
    the driver holds each transaction   the same
    the number is committed             finds the note, and commits each that is still open
    some of them have ended             the same, with those that are left
    all have ended                      finds nothing open

**To hold** a transaction is to learn that it is open, whose it is, and as whom to end it:

    two-phase commit (KIP-939)   InitProducerId keeps it: its writer and drivers that held it before
                                 can neither write nor end it, and no timeout ends it from then on
    elsewhere                    DescribeTransactions; it ends as its writer. Its timeout goes on,
                                 so a batch is decided on only while enough of that is left

**Why no driver harms another.** Each takes the query's transactional id before it reads the notes
and holds anything. It ends a transaction that is in a note at any time, since a decision is for
ever. It aborts others only after it held them and then still had the query's id. A driver that
takes the id later holds whatever it decides on after that, so that an abort of the former comes
too late to be taken. Where holding does not fence, a driver aborts transactions of its own run
alone, which no other driver ever decides on; others end by their timeout.

**Transactional ids** are `<id of the driver>/<run>.<name>`: '/' is in no topic's name and in no
writeId, so that one driver's are no prefix of another's. (`transactional_ids.py` has the names.)

**A note's list** is text: the count of texts and the run, then `<name>:<producer id>:<epoch>` each,
the producer id as the difference to the one before. What does not fit into one offset's metadata
goes on in the metadata of the topic's next partitions, at the same offset.

Nothing here talks to a broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from barnabas.spark_connector.connection import ClientError
from barnabas.spark_connector.produce_request import Producer
from barnabas.spark_connector.transactional_producer import FencedError

AUTO, BY_DRIVER, BY_TASKS = "auto", "driver", "tasks"  # values of sinkMode
NOTE_BYTES = 3_000  # of a list in one offset's metadata, of which brokers take 4096 bytes
LEFT_OF_TIMEOUT = 0.25  # at least, when a batch is decided on without two-phase commit
OPEN, ABORTED = "Ongoing", frozenset({"PrepareAbort", "CompleteAbort"})
ENDED = frozenset({"Empty", "CompleteCommit", "CompleteAbort"})


class LostPartError(ClientError):
    """A transaction of a task that is not open, or will not be for long; nothing was decided."""


class AbortedPartError(ClientError):
    """A transaction that was decided to be committed, and that the broker has aborted."""


class TaskTransaction(NamedTuple):
    """A transaction that one task wrote. began_ms: by the wall clock, where that is known."""

    transactional_id: str
    producer: Producer
    began_ms: int = 0


class Held(NamedTuple):
    """An open transaction: who wrote it, and as whom it can be ended."""

    writer: Producer
    ends_as: Producer


class Described(NamedTuple):
    """A transactional id's state, and its producer."""

    state: str
    producer: Producer


class Coordinators(Protocol):
    """The requests about transactional ids of others. All may raise ClientError."""

    @property
    def keeps(self) -> bool:
        """Whether `hold` fences the writer, and takes the timeout away."""

    def open_ids(self, prefix: str) -> list[str]:
        """Transactional ids that have an open transaction, as far as brokers list them."""

    def describe(self, ids: Sequence[str]) -> Mapping[str, Described]:
        """The states of those ids that there are."""

    def hold(self, ids: Sequence[str], *, lasting: bool) -> Mapping[str, Held]:
        """Hold the open transactions of the ids; those without one are left out.

        Takes:  lasting, whether a timeout is to end them no longer, where brokers can have it so.
        """

    def end(self, ends: Mapping[str, Producer], *, commit: bool) -> Sequence[str]:
        """End transactions, each as the producer that is given.

        Gives: the ids whose transaction that producer cannot end (any more).
        """


def first_of(driver_id: str, run: str = "") -> str:
    """What the transactional ids of a driver's tasks begin with: of one run, or of all."""
    return f"{driver_id}/{run}." if run else f"{driver_id}/"


# --- the list in a note


def to_note(transactions: Sequence[TaskTransaction], run: str) -> list[str]:
    """The list of a batch's transactions, all of one run, in texts that fit into a note each."""
    texts, last = [run], 0
    if not transactions:
        return []
    for each in sorted(transactions, key=lambda each: each.producer):
        name = each.transactional_id.rpartition(".")[2]
        entry = f" {name}:{each.producer.producer_id - last}:{each.producer.epoch}"
        last = each.producer.producer_id
        if len(texts[-1]) + len(entry) > NOTE_BYTES:
            texts.append("")
        texts[-1] += entry
    return [f"{len(texts)},{texts[0]}", *texts[1:]]


class NotedTransactions(NamedTuple):
    """The transactions that a note lists, and the run that decided on them."""

    run: str = ""
    transactions: tuple[TaskTransaction, ...] = ()


def of_note(driver_id: str, texts: Sequence[str]) -> NotedTransactions:
    """The list that `to_note` made.

    Takes:  texts, beginning with that of the note; there may be later ones that are not of it.
    Raises: ClientError where they are none, or not whole.
    """
    if not texts or not texts[0]:
        return NotedTransactions()
    transactions, last = [], 0
    try:
        count, _, first = texts[0].partition(",")
        if len(texts) < int(count):
            raise ValueError(f"{count} texts")
        run, *entries = "".join((first, *texts[1 : int(count)])).split(" ")
        for entry in entries:
            name, step, epoch = entry.split(":")
            last += int(step)
            producer = Producer(last, int(epoch))
            transactions.append(TaskTransaction(f"{first_of(driver_id, run)}{name}", producer))
    except ValueError as error:
        raise ClientError(
            f"the list of tasks' transactions in the note of {driver_id!r} is damaged, or of a "
            "later release"
        ) from error
    return NotedTransactions(run, tuple(transactions))


# --- decisions


def check_time(transactions: Iterable[TaskTransaction], now_ms: int, timeout_ms: int) -> None:
    """Check that no transaction times out before it can be ended.

    Raises: LostPartError.
    """
    began_ms = min((each.began_ms for each in transactions if each.began_ms), default=now_ms)
    spent_ms = now_ms - began_ms
    if spent_ms > timeout_ms * (1 - LEFT_OF_TIMEOUT):
        raise LostPartError(
            f"the first task began to write {spent_ms / 1000:.0f} s ago, and its transaction times "
            f"out after {timeout_ms / 1000:.0f} s: a batch has to be written within three quarters "
            "of kafka.transaction.timeout.ms, so that it can be ended as a whole. Raise that, or "
            "make batches smaller"
        )


def is_aborted(described: Described, producer: Producer) -> bool:
    """Whether the producer's transaction was aborted. An abort raises the epoch at most once;
    where the transaction was committed and its id began another session, the epoch is further on.
    """
    now = described.producer
    return (
        described.state in ABORTED
        and now.producer_id == producer.producer_id
        and now.epoch - producer.epoch in (0, 1)
    )


class Ends:
    """The ends of one attempt to commit a batch: which transactions it finishes, commits, aborts.

    Order of use: finish, then after the decision of what to do with the batch prepare, the
    transaction that commits its number, commit; or set_aside, a check of the query's id, and
    `abort_held`.
    """

    def __init__(self, coordinators: Coordinators, driver_id: str, run: str) -> None:
        self._coordinators, self._driver_id, self._run = coordinators, driver_id, run
        self._held: dict[str, Held] = {}
        self._mine: dict[str, Held] = {}

    def finish(self, noted: NotedTransactions) -> None:
        """Commit what a note lists and is still open.

        Raises: AbortedPartError where some of it is aborted; FencedError; ClientError.
        """
        wanted = {each.transactional_id: each.producer for each in noted.transactions}
        described = self._coordinators.describe(list(wanted))
        still_open = [
            name
            for name, each in described.items()
            if each.state == OPEN and each.producer == wanted[name]
        ]
        held = self._coordinators.hold(still_open, lasting=True)
        ends = {name: each.ends_as for name, each in held.items() if each.writer == wanted[name]}
        refused = self._coordinators.end(ends, commit=True)
        if refused:  # another driver holds it, or it has ended meanwhile
            raise _held_by_another(refused)
        lost = [name for name, each in described.items() if is_aborted(each, wanted[name])]
        if lost:
            raise aborted(lost)

    def prepare(
        self, mine: Sequence[TaskTransaction], *, now_ms: int, timeout_ms: int, all_runs: bool
    ) -> None:
        """Hold the batch's transactions, each of which has to be open, and what is to be aborted.

        After:  the batch's number may be committed, with the list of `mine`.
        Raises: LostPartError; ClientError.
        """
        names = [each.transactional_id for each in mine]
        if not self._coordinators.keeps:
            check_time(mine, now_ms, timeout_ms)
        self._mine = dict(self._coordinators.hold(names, lasting=True))
        lost = [
            each.transactional_id
            for each in mine
            if (held := self._mine.get(each.transactional_id)) is None
            or held.writer != each.producer
        ]
        if lost:
            raise LostPartError(
                f"of {len(names)} tasks' transactions {_named(lost)} are open no longer: they "
                "timed out (kafka.transaction.timeout.ms), or another driver runs this query. "
                "Nothing of the batch was committed: run it again"
            )
        self.set_aside(names, all_runs=all_runs)

    def set_aside(self, kept: Iterable[str], *, all_runs: bool) -> None:
        """Hold the other open transactions of this driver's tasks, of which none is decided.

        Takes:  kept, transactional ids to leave alone; all_runs, whether those of other runs are
                meant too, where holding them fences others.
        """
        first = first_of(
            self._driver_id, "" if all_runs and self._coordinators.keeps else self._run
        )
        names = {
            name
            for name in self._coordinators.open_ids(first)
            if "/" not in name[len(first) :]  # a transactionalIdPrefix may have one
        } - set(kept)
        self._held = dict(self._coordinators.hold(sorted(names), lasting=False))

    @property
    def has_open(self) -> bool:
        """Whether tasks of this run have open transactions, as far as brokers list them."""
        return bool(self._coordinators.open_ids(first_of(self._driver_id, self._run)))

    def abort(self, mine: Sequence[TaskTransaction]) -> None:
        """Abort transactions that no driver decides on any more, as far as they are open."""
        writers = {each.transactional_id: each.producer for each in mine}
        held = self._coordinators.hold(list(writers), lasting=False)
        ends = {name: each.ends_as for name, each in held.items() if each.writer == writers[name]}
        self._coordinators.end(ends, commit=False)

    def commit(self) -> None:
        """Commit the batch's transactions, once its number is committed.

        Raises: ClientError: then `finish` is next, in another attempt.
        """
        refused = self._coordinators.end(
            {name: held.ends_as for name, held in self._mine.items()}, commit=True
        )
        if refused:
            raise aborted(refused) if not self._coordinators.keeps else _held_by_another(refused)

    def abort_held(self) -> None:
        """Abort what was set aside. One that another driver holds meanwhile is that driver's."""
        self._coordinators.end(
            {name: held.ends_as for name, held in self._held.items()}, commit=False
        )


def _held_by_another(ids: Sequence[str]) -> FencedError:
    return FencedError(f"the transactions of {_named(ids)}: another driver has taken them")


def aborted(ids: Sequence[str]) -> AbortedPartError:
    """The error of transactions that were decided to be committed and are aborted."""
    return AbortedPartError(
        f"the brokers have aborted the transactions of {_named(ids)} after the batch was decided "
        "on and before they were ended: their timeout (kafka.transaction.timeout.ms) was over, or "
        "an operator aborted them. The batch counts as written and lacks their rows: write these "
        "again, then set onUncertainBatch=skip for one start"
    )


def _named(ids: Sequence[str]) -> str:
    return f"{len(ids)} ({', '.join(ids[:3])}{' …' if len(ids) > 3 else ''})"
