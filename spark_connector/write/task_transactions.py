"""The transactions that tasks of a batch write, and how all of them are ended together.

A task with many rows begins a separate transaction and leaves it open. The driver then makes one
decision: its own transaction commits the batch's number, with the list of the tasks' transactions
in the commit note (the metadata of an offset). After that it ends the tasks' transactions. The list
has the transactional id, producer id and epoch of each. The driver therefore never ends a
transaction of another attempt, or of a later session of the same id.

    step of a batch's commit            after a crash there, the next driver
    tasks have written                  aborts the transactions: no note lists them
    the driver holds each transaction   does the same
    the number is committed             finds the note, and commits each that is still open
    some of them have ended             does the same with those that are left
    all have ended                      finds no open transaction

**To hold** a transaction means to find out whether it is open, which producer wrote it, and as
which producer it can be ended:

    two-phase commit (KIP-939)   InitProducerId keeps it: its writer and drivers that held it before
                                 can neither write nor end it, and no timeout ends it from then on
    otherwise                    DescribeTransactions; the driver ends it as its writer. Its timeout
                                 goes on, so the driver decides only while enough of it is left

**Why no driver harms another.** Each driver takes the query's transactional id before it reads the
notes and holds any transaction. It may end a transaction that is in a note at any time, since a
decision is permanent. It aborts other transactions only after it has held them and has then
verified that it still has the query's id. A driver that takes the id later holds all transactions
on which it decides. An abort by the former driver is rejected from then on. If holding does not
fence, a driver only aborts transactions of its own run, on which no other driver ever decides, and
those without a timeout. The latter were held by an earlier driver while the brokers still had
two-phase commit turned on, and that driver no longer has the query's id. Other transactions end by
their timeout.

**Each start looks for open transactions** of its query's tasks, whatever its sinkMode is: the mode,
or the brokers' setting, may have been changed since a driver died.

**Transactional ids** are `<id of the driver>/<run>.<name>`. No topic name and no writeId contains a
'/', so `<id of the driver>/` begins no other driver's ids. (`transactional_ids.py` has the names.)

**A note's list** is text: the number of texts and the run, then `<name>:<producer id>:<epoch>` for
each transaction. The producer id is written as the difference from the previous one. If the list is
too long for one offset's metadata, it continues in the metadata of the topic's next partitions, at
the same offset.

This module sends no requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from barnabas.client.errors import ClientError
from barnabas.spark_connector.write.produce_request import Producer
from barnabas.spark_connector.write.transactional_producer import FencedError

AUTO, BY_DRIVER, BY_TASKS = "auto", "driver", "tasks"  # values of sinkMode
# The maximum size of a list in the metadata of one offset, for which brokers accept 4096 bytes.
NOTE_BYTES = 3_000
# The number of transactions that fit into one text, whatever their producer ids are: an entry has
# at most 35 characters.
TASKS_IN_A_NOTE = 80
# The share of the timeout that must be left for a decision without two-phase commit.
LEFT_OF_TIMEOUT = 0.25
NO_TIMEOUT_MS = (
    2**31 - 1
)  # the timeout of a transaction that is kept for two-phase commit (KIP-939)
OPEN, ABORTED = "Ongoing", frozenset({"PrepareAbort", "CompleteAbort"})
ENDED = frozenset({"Empty", "CompleteCommit", "CompleteAbort"})


class LostPartError(ClientError):
    """A task's transaction is not open, or will soon time out. No decision was made."""


class AbortedPartError(ClientError):
    """The broker has aborted a transaction although the decision was to commit it."""


class KeptPartError(ClientError):
    """A transaction has to be committed, and the brokers do not allow two-phase commit any more."""


class TaskTransaction(NamedTuple):
    """A transaction that one task wrote. began_ms: when it began by the wall clock, if known."""

    transactional_id: str
    producer: Producer
    began_ms: int = 0


class Held(NamedTuple):
    """An open transaction: its writer, and the producer as which it can be ended."""

    writer: Producer
    ends_as: Producer


class Described(NamedTuple):
    """The state of a transactional id, its producer, and the timeout of its transactions."""

    state: str
    producer: Producer
    timeout_ms: int = 0

    @property
    def is_kept(self) -> bool:
        """Whether its open transaction is kept for two-phase commit, so that no timeout ends it."""
        return self.state == OPEN and self.timeout_ms == NO_TIMEOUT_MS


class Coordinators(Protocol):
    """Sends the requests about transactional ids that other producers use. All methods may raise
    ClientError.
    """

    @property
    def keeps(self) -> bool:
        """Whether `hold` fences the writer and removes the timeout."""

    def open_ids(self, prefix: str) -> list[str]:
        """The transactional ids with this prefix for which brokers list an open transaction."""

    def describe(self, ids: Sequence[str]) -> Mapping[str, Described]:
        """The state of each id, except those that do not exist."""

    def hold(self, ids: Sequence[str], *, lasting: bool) -> Mapping[str, Held]:
        """Hold the open transactions of the ids; ids without an open transaction are left out.

        Takes:  lasting, whether to remove the timeouts, if brokers support that.
        """

    def end(self, ends: Mapping[str, Producer], *, commit: bool) -> Sequence[str]:
        """End transactions, each as the given producer.

        Gives:  the ids whose transaction that producer can no longer end.
        """

    def abort_kept(self, ids: Sequence[str]) -> None:
        """Abort the open transactions of the ids, whoever holds them. This needs no two-phase
        commit.
        """


def first_of(driver_id: str, run: str = "") -> str:
    """The prefix of the transactional ids of a driver's tasks, for one run or for all."""
    return f"{driver_id}/{run}." if run else f"{driver_id}/"


# --- the list in a note


def fits_into_notes(task: int, partition_count: int) -> bool:
    """Whether the transactions of all tasks up to this one surely fit into a note.

    Takes:  task, its number from 0; partition_count, that of a topic of the batch.
    """
    return task < TASKS_IN_A_NOTE * partition_count


def to_note(transactions: Sequence[TaskTransaction], run: str) -> list[str]:
    """Write a batch's transactions, all of one run, as texts. Each text fits into a note."""
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
    """Parse the list that `to_note` made.

    Takes:  texts, the text of the note and those of the next partitions, of which the last may not
            belong to the note.
    Raises: ClientError if the texts are invalid or incomplete.
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
            f"the first task began to write {spent_ms / 1000:.0f} s ago, and its transaction "
            f"times out after {timeout_ms / 1000:.0f} s: a batch has to be written within three "
            "quarters of kafka.transaction.timeout.ms, so that all its transactions can be "
            "ended. Raise that, or make batches smaller"
        )


def is_aborted(described: Described, producer: Producer) -> bool:
    """Whether the producer's transaction was aborted.

    An abort raises the epoch at most once. If the epoch is higher, the transaction was committed
    and another session of the id has begun since.
    """
    now = described.producer
    return (
        described.state in ABORTED
        and now.producer_id == producer.producer_id
        and now.epoch - producer.epoch in (0, 1)
    )


class Ends:
    """Ends the transactions of tasks in one attempt to commit a batch.

    Call `finish` first. If the batch is to be written, call `prepare`, commit the batch's number in
    the driver's transaction, and call `commit`. If it is to be skipped, call `set_aside`, check the
    query's id, and call `abort_held`.
    """

    def __init__(self, coordinators: Coordinators, driver_id: str, run: str) -> None:
        self._coordinators, self._driver_id, self._run = coordinators, driver_id, run
        self._held: dict[str, Held] = {}
        self._kept: list[str] = []
        self._mine: dict[str, Held] = {}

    def finish(self, noted: NotedTransactions) -> None:
        """Commit the open transactions of a note.

        Raises: AbortedPartError if brokers have aborted some of them; KeptPartError; FencedError;
                ClientError.
        """
        wanted = {each.transactional_id: each.producer for each in noted.transactions}
        described = self._coordinators.describe(list(wanted))
        still_open = [
            name
            for name, each in described.items()
            if each.state == OPEN and each.producer == wanted[name]
        ]
        kept = [name for name in still_open if described[name].is_kept]
        if kept and not self._coordinators.keeps:
            raise _kept_without_two_phase(kept)
        held = self._coordinators.hold(still_open, lasting=True)
        ends = {name: each.ends_as for name, each in held.items() if each.writer == wanted[name]}
        refused = self._coordinators.end(ends, commit=True)
        if refused:  # another driver holds the transaction, or it has ended meanwhile
            raise _held_by_another(refused)
        lost = [name for name, each in described.items() if is_aborted(each, wanted[name])]
        if lost:
            raise aborted(lost)

    def prepare(
        self, mine: Sequence[TaskTransaction], *, now_ms: int, timeout_ms: int, all_runs: bool
    ) -> None:
        """Hold the batch's transactions, each of which must be open, and the transactions that will
        be aborted.

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
                f"of {len(names)} tasks' transactions {_named(lost)} are no longer open: they "
                "timed out (kafka.transaction.timeout.ms), or another driver runs this query. "
                "Nothing of the batch was committed: run it again"
            )
        self.set_aside(names, all_runs=all_runs)

    def set_aside(self, kept: Iterable[str], *, all_runs: bool) -> None:
        """Hold the other open transactions of this driver's tasks. Call `finish` first.

        Takes:  kept, transactional ids whose transactions stay open; all_runs, whether to include
                other runs. They are included only if holding fences their drivers, or if no timeout
                ends them.
        """
        first = first_of(self._driver_id, "" if all_runs else self._run)
        names = {
            name
            for name in self._coordinators.open_ids(first)
            # A transactionalIdPrefix may contain a slash. An id with a further slash belongs to
            # another driver.
            if "/" not in name[len(first) :]
        } - set(kept)
        if names and not self._coordinators.keeps:
            described = self._coordinators.describe(sorted(names))
            self._kept = [name for name, each in described.items() if each.is_kept]
            own = first_of(self._driver_id, self._run)
            names = {name for name in names if name.startswith(own)} - set(self._kept)
        self._held = dict(self._coordinators.hold(sorted(names), lasting=False)) if names else {}

    @property
    def has_open(self) -> bool:
        """Whether brokers list open transactions of this run's tasks."""
        return bool(self._coordinators.open_ids(first_of(self._driver_id, self._run)))

    def abort(self, mine: Sequence[TaskTransaction]) -> None:
        """Abort the open ones of these transactions. No driver can decide on them any more."""
        writers = {each.transactional_id: each.producer for each in mine}
        held = self._coordinators.hold(list(writers), lasting=False)
        ends = {name: each.ends_as for name, each in held.items() if each.writer == writers[name]}
        self._coordinators.end(ends, commit=False)

    def commit(self) -> None:
        """Commit the batch's transactions, once its number is committed.

        Raises: ClientError. Another attempt then has to call `finish`.
        """
        refused = self._coordinators.end(
            {name: held.ends_as for name, held in self._mine.items()}, commit=True
        )
        if refused:
            raise aborted(refused) if not self._coordinators.keeps else _held_by_another(refused)

    def abort_held(self) -> None:
        """Abort the transactions that were set aside, except those that another driver holds by
        now.
        """
        self._coordinators.end(
            {name: held.ends_as for name, held in self._held.items()}, commit=False
        )
        if self._kept:
            self._coordinators.abort_kept(self._kept)


def _held_by_another(ids: Sequence[str]) -> FencedError:
    return FencedError(f"the transactions of {_named(ids)}: another driver uses them")


def _kept_without_two_phase(ids: Sequence[str]) -> KeptPartError:
    return KeptPartError(
        f"the batch before is committed, and the transactions of {_named(ids)} have rows of it. "
        "They are kept for two-phase commit, which the brokers do not allow any more, and readers "
        "wait for them. Set transaction.two.phase.commit.enable=true again (with ACLs, allow the "
        "user TWO_PHASE_COMMIT), run one batch of this query, and turn it off after that"
    )


def aborted(ids: Sequence[str]) -> AbortedPartError:
    """The error for transactions that brokers have aborted although the decision was to commit
    them.
    """
    return AbortedPartError(
        f"the brokers have aborted the transactions of {_named(ids)} after the batch was "
        "decided and before they were ended: their timeout (kafka.transaction.timeout.ms) was "
        "over, or an operator aborted them. The batch counts as written and lacks their rows: "
        "write these again, then set onUncertainBatch=skip for one start"
    )


def _named(ids: Sequence[str]) -> str:
    return f"{len(ids)} ({', '.join(ids[:3])}{' …' if len(ids) > 3 else ''})"
