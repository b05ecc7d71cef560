"""Checks of what clients saw: pure functions over histories, for the simulator and for tests with
real clients.

The code that drives the clients fills in the history. Every record's value is unique. An outcome is
what the client knows: OK if the broker acknowledged the request, FAILED if the broker finally
refused it, UNKNOWN if either may be true. Times are milliseconds of one clock, the client's.

    history = History()
    write = history.write(b"p1-0", ("topic", 0), session="p1")      # before it is sent
    write.ok(offset)                                                # once answered
    history.read("reader", ("topic", 0), offset, value, committed_only=True, now_ms=...)
    history.final[("topic", 0)] = FinalLog(...)                     # what a new reader finds last
    assert not check(history)

`check` gives findings; `kind` is one of KINDS. It accounts for what a power loss may lose: see
`History.power_losses`, `Write.durable` and `History.commits_are_durable`. If a topic is deleted and
created again under the same name, each incarnation of the topic is a `Life`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

Partition = tuple[str, int]
NEVER_MS = 1 << 62

KINDS = {
    "lost": "a promised record, or a committed one, is not there",
    "duplicate": "a record is there twice",
    "unwritten": "a record was read that no client wrote, or that was refused",
    "aborted-read": "a reader of committed records saw one of an aborted transaction",
    "precommitted-read": "a reader of committed records saw one before its commit was asked for",
    "torn": "a transaction is there in part",
    "caches": "without its caches the broker sent other bytes",
    "half": "topics with whole transactions showed a part of one, or one without its cause",
    "cut": "a recorded cut is lost, went back, or is not what it was",
    "order": "a session's records stand, or were read, in another order than they were sent",
    "moved": "an offset holds another record than before, or than was promised",
    "skipped": "a reader passed by a record without seeing it",
    "clock": "a marker has another time than the clock, or a look-up by time finds another record",
    "watermark": "the last stable offset or high watermark went back, or a log's are out of order",
    "offsets": "consumed offsets and produced records do not agree",
    "misled": "a broker answered what only another could, which led by then",
    "epoch": "a leader epoch has two leaders, or two transactions of a producer have one epoch",
    "stuck": "something did not come to its end although nothing was in its way",
    "deleted": "what was deleted, a topic's records or a log's first ones, is shown again",
    "member": "a member that its group has replaced, left behind or let go was let on",
    "owners": "a partition is two members' own, or an offset was taken of one whose it was not",
    "contradicted": "what one client was answered does not hold for another that asked later",
    "early": "a member was put out, or a transaction aborted, before its time was up",
    "taken": "the broker took what no client may give or ask for",
    "quota": "a client above its quota gets no throttle time or does not wait, or another does",
    "refused": "a client was refused what it had a right to",
    "crashed": "the broker failed by itself",
    "diverged": "what a leader sends does not fit its standby's copy",
    "shares": "a share group got what was done with, was removed, or is held by another member",
    "loop": "a call of the event loop took too long, or waited for the disk",
    "left": "a file stays on the disk that nothing needs any more",
}


class Outcome(Enum):
    """The outcome of a request as the client knows it."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Ending(Enum):
    """The end of a transaction as its client knows it."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Finding(NamedTuple):
    """One violation."""

    kind: str
    text: str


class Source(NamedTuple):
    """The input record from which an output record was made, and the group whose offset covers
    it.
    """

    group: str
    partition: Partition
    offset: int


@dataclass(slots=True)
class Transaction:
    """A transaction as its producer sees it.

    commit_asked_ms: when the first EndTxn(commit) was sent. ended_ms: when the producer learned the
    outcome.
    """

    name: str
    session: str
    began_ms: int = 0
    ending: Ending = Ending.OPEN
    commit_asked_ms: int | None = None
    ended_ms: int | None = None
    offsets: dict[tuple[str, Partition], int] = field(default_factory=dict)

    def end(self, ending: Ending, now_ms: int) -> None:
        self.ending, self.ended_ms = ending, now_ms


@dataclass(slots=True)
class Life:
    """The time from a topic's creation to its deletion. The topic may be created again, and then
    has several lives.

    made_ms: the time since which the topic is known to exist. asked_ms: when its deletion was
    requested.
    """

    made_ms: int = -1
    asked_ms: int = NEVER_MS


@dataclass(slots=True)
class Write:
    """A record that a client wrote.

    rank: its position among the records that its session sent. durable: whether the record survives
    a power loss once it is acknowledged. sent_ms: when the acknowledged attempt was sent.
    is_resent: whether there was an earlier attempt, which may arrive at any time. made_ms: its
    timestamp.
    """

    value: bytes
    partition: Partition
    session: str
    rank: int
    transaction: Transaction | None = None
    source: Source | None = None
    durable: bool = False
    outcome: Outcome = Outcome.UNKNOWN
    offset: int = -1
    answered_ms: int | None = None
    sent_ms: int = 0
    is_resent: bool = False
    made_ms: int = 0

    def ok(
        self, offset: int, now_ms: int = 0, *, sent_ms: int = 0, is_resent: bool = False
    ) -> None:
        """Record that the record was acknowledged at this offset."""
        self.outcome, self.offset, self.answered_ms = Outcome.OK, offset, now_ms
        self.sent_ms, self.is_resent = sent_ms, is_resent

    def failed(self) -> None:
        self.outcome = Outcome.FAILED


class Read(NamedTuple):
    """A record that a reader got. asked_ms: when the reader sent the fetch."""

    reader: str
    partition: Partition
    offset: int
    value: bytes
    committed_only: bool
    read_ms: int
    asked_ms: int = -1


class Watermarks(NamedTuple):
    """The watermarks of a log in a fetch response.

    reader: a source whose responses are in order (a connection, or the broker itself).
    """

    reader: str
    partition: Partition
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    read_ms: int
    asked_ms: int = -1


class ReportedProducer(NamedTuple):
    """One producer's entry for a partition in a DescribeProducers response."""

    partition: Partition
    producer_id: int
    producer_epoch: int
    last_sequence: int
    txn_start_offset: int
    asked_ms: int
    answered_ms: int


class ReportedTransaction(NamedTuple):
    """One transactional id's entry in a DescribeTransactions response."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    asked_ms: int
    answered_ms: int


class ReportedOffset(NamedTuple):
    """A group's offset in a response to an OffsetFetch with require_stable. is_durable: whether it
    was committed in a transaction.
    """

    group: str
    partition: Partition
    offset: int
    is_durable: bool
    asked_ms: int
    answered_ms: int


class Span(NamedTuple):
    """A reader's claim that it got every record in [start_offset, end_offset).

    follows_epochs: whether the reader went back after a power loss had truncated the log. The claim
    then includes the records that replaced the lost ones.
    """

    reader: str
    partition: Partition
    committed_only: bool
    start_offset: int
    end_offset: int
    began_ms: int
    follows_epochs: bool = False


class Deletion(NamedTuple):
    """A DeleteRecords that got a response. No record below `low_watermark` exists any more."""

    partition: Partition
    low_watermark: int
    answered_ms: int


class Commit(NamedTuple):
    """An OffsetCommit that got a response. The group continues from `offset`.

    life: the number of the topic's life. sent_ms: when the request was sent.
    """

    group: str
    partition: Partition
    offset: int
    life: int
    sent_ms: int = 0


class Access(NamedTuple):
    """A request of a member that the group coordinator accepted: a request for its assignment, a
    heartbeat, a commit of offsets, or a leave request (`is_leave`).
    """

    group: str
    member_id: str
    instance_id: str | None
    generation: int
    sent_ms: int
    answered_ms: int
    is_leave: bool = False


@dataclass(slots=True)
class Holding:
    """A member's exclusive ownership of a partition. It lasts from the assignment until the member
    began to give the partition up, or until the member's session may have expired.

    after: the number of earlier power losses. A stop that the next start may have treated as a
    power loss is counted as well.
    """

    group: str
    member: str
    partition: Partition
    from_ms: int
    until_ms: int
    after: int = 0


class TakenCommit(NamedTuple):
    """An offset commit for a partition that a group accepted from a member. after: the number of
    earlier power losses, as in `Holding`.
    """

    group: str
    member: str
    partition: Partition
    sent_ms: int
    answered_ms: int
    after: int = 0


@dataclass(slots=True)
class FinalLog:
    """A log at the end of the run, as new readers of each isolation level find it.

    asked_ms: when these readers began, if other readers may read the log after them.
    """

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    committed: list[tuple[int, bytes]]
    everything: list[tuple[int, bytes]]
    asked_ms: int = NEVER_MS


@dataclass(slots=True)
class History:
    """Everything that happened in a run. A power loss is recorded by its time. Kills are not
    recorded, since they must have no effect.

    compacted: topics of which only each key's last record must remain. `key_of` gives a value's
    key. commits_are_durable: whether committed transactions survive a power loss. Otherwise those
    that began before it may be lost in whole or part. lives: the lives of each deleted topic. The
    driver records reads and watermarks of such a topic only if the whole request fell into one
    life: see `life_at`. consumed: records delivered to groups that use OffsetCommit, as (group,
    partition, life, value). commits_asked: the partitions for which these groups sent any commit.
    final_positions: the groups' positions at the end. unsure_groups: groups of which a commit may
    have reached a later life than the intended one, since OffsetCommit identifies topics by name.
    reported_*: other responses, see `check_reports`. flushed: topics with flush.messages=1 since
    their creation. toggled: topics that get and lose barnabas.transactions.whole. kept_topics:
    topics in which retention deletes nothing, as far as the clients
    know. deletions_asked: the highest offset of any DeleteRecords request, with or without a
    response. retention_ms: for topics with retention, the age that a record must have at the end of
    the run (`end_ms`) if it was deleted. offsets_retention_ms: how long the offsets of a group
    without members are kept, None for ever. producer_expiration_ms: how long a log remembers an
    idle producer. cuts: the log start and last stable offsets of the partitions of all topics with
    barnabas.transactions.whole, with the time, after each change of any of them. past_cuts: the
    same of recorded cuts, as they are found at the end. whole_since: the times at which a topic got
    that setting while clients worked; transactions that were committed before count without it.
    answers_cross_losses: whether a response from before a power loss may arrive after it. An old
    leader may send such a response if it still runs although another node has taken over without
    all its data.
    """

    writes: list[Write] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    watermarks: list[Watermarks] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    final: dict[Partition, FinalLog] = field(default_factory=dict)
    final_offsets: dict[tuple[str, Partition], int] = field(default_factory=dict)
    power_losses: list[int] = field(default_factory=list)
    answers_cross_losses: bool = False
    compacted: frozenset[str] = frozenset()
    incidents: list[Finding] = field(default_factory=list)
    commits_are_durable: bool = True
    lives: dict[str, list[Life]] = field(default_factory=dict)
    deletions: list[Deletion] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    groups_of_consumer_protocol: set[str] = field(default_factory=set)
    holdings: list[Holding] = field(default_factory=list)
    taken_commits: list[TakenCommit] = field(default_factory=list)
    consumed: set[tuple[str, Partition, int, bytes]] = field(default_factory=set)
    commits: list[Commit] = field(default_factory=list)
    commits_asked: set[tuple[str, Partition, int]] = field(default_factory=set)
    final_positions: dict[tuple[str, Partition], int] = field(default_factory=dict)
    unsure_groups: set[str] = field(default_factory=set)
    reported_producers: list[ReportedProducer] = field(default_factory=list)
    reported_transactions: list[ReportedTransaction] = field(default_factory=list)
    reported_offsets: list[ReportedOffset] = field(default_factory=list)
    flushed: frozenset[str] = frozenset()
    toggled: frozenset[str] = frozenset()
    kept_topics: frozenset[str] = frozenset()
    deletions_asked: dict[Partition, int] = field(default_factory=dict)
    cuts: list[tuple[int, dict[Partition, tuple[int, int]]]] = field(default_factory=list)
    past_cuts: list[tuple[int, dict[Partition, tuple[int, int]]]] = field(default_factory=list)
    whole_since: dict[str, list[int]] = field(default_factory=dict)
    retention_ms: dict[str, int] = field(default_factory=dict)
    offsets_retention_ms: int | None = None
    producer_expiration_ms: int | None = None
    end_ms: int = 0

    # --- filling in ------------------------------------------------------------------------------

    def write(
        self,
        value: bytes,
        partition: Partition,
        *,
        session: str,
        transaction: Transaction | None = None,
        source: Source | None = None,
        durable: bool = False,
    ) -> Write:
        """Record that a write is about to be sent."""
        write = Write(value, partition, session, len(self.writes), transaction, source, durable)
        self.writes.append(write)
        return write

    def begin(self, name: str, *, session: str, now_ms: int = 0) -> Transaction:
        """Record that a session begins a transaction."""
        transaction = Transaction(name, session, now_ms)
        self.transactions.append(transaction)
        return transaction

    def read(
        self,
        reader: str,
        partition: Partition,
        offset: int,
        value: bytes,
        *,
        committed_only: bool,
        now_ms: int = 0,
        asked_ms: int = -1,
    ) -> None:
        """Record that a reader got this value at this offset. asked_ms: when the fetch was sent, or
        -1 if that is unknown.
        """
        self.reads.append(Read(reader, partition, offset, value, committed_only, now_ms, asked_ms))

    def incident(self, kind: str, text: str) -> None:
        """Record a fault that the driver itself saw."""
        assert kind in KINDS
        self.incidents.append(Finding(kind, text))

    # --- asking ----------------------------------------------------------------------------------

    def power_epoch(self, at_ms: int) -> int:
        """The number of power losses before a time. A loss at exactly that time is not counted."""
        return sum(1 for loss_ms in self.power_losses if loss_ms < at_ms)

    def answer_epoch(self, write: Write) -> int | None:
        """The number of power losses before a write was acknowledged.

        It is None if a power loss occurred between the request and the response, since the old
        leader may have sent the response.
        """
        epoch = self.power_epoch(write.answered_ms or 0)
        if self.answers_cross_losses and self.power_epoch(write.sent_ms) != epoch:
            return None
        return epoch

    def seen_epoch(self, seen: Read | Watermarks) -> int | None:
        """The number of power losses before a reader's response. It is None in the same case as in
        `answer_epoch`.
        """
        epoch = self.power_epoch(seen.read_ms)
        if self.answers_cross_losses and seen.asked_ms >= 0:
            return epoch if self.power_epoch(seen.asked_ms) == epoch else None
        return epoch

    def life_at(self, topic: str, from_ms: int, to_ms: int) -> int | None:
        """The number of the topic's life that contains the whole time from `from_ms` to `to_ms`,
        that is from a request to its response. It is None if it is not certain that one life does.
        """
        lives = self.lives.get(topic)
        if lives is None:
            return 0
        for number, life in enumerate(lives):
            if life.made_ms < from_ms and to_ms < life.asked_ms:
                return number
        return None

    def last_life(self, topic: str) -> int:
        return len(self.lives.get(topic, (None,))) - 1


def check(history: History) -> list[Finding]:
    """All findings in a history, in the order of CHECKERS, which begins with the worst kinds."""
    index = _Index(history)
    findings = list(history.incidents)
    for checker in CHECKERS:
        findings.extend(checker(history, index))
    return findings


class _Index:
    """Lookup tables shared by the checkers."""

    def __init__(self, history: History) -> None:
        self.by_value = {write.value: write for write in history.writes}
        assert len(self.by_value) == len(history.writes), "two records were written with one value"
        self.by_transaction: dict[int, list[Write]] = {}
        for write in history.writes:
            if write.transaction is not None:
                self.by_transaction.setdefault(id(write.transaction), []).append(write)
        self.everything: dict[Partition, dict[bytes, int]] = {}
        self.committed: dict[Partition, dict[bytes, int]] = {}
        for partition, final in history.final.items():
            self.everything[partition] = {value: offset for offset, value in final.everything}
            self.committed[partition] = {value: offset for offset, value in final.committed}
        self._last_loss_ms = history.power_losses[-1] if history.power_losses else -1
        self._history = history

    def is_of_now(self, write: Write) -> bool:
        """Whether an acknowledged record certainly belongs to the current life of its topic."""
        history, topic = self._history, write.partition[0]
        if topic not in history.lives:
            return True
        return history.life_at(topic, write.sent_ms, write.answered_ms or 0) == history.last_life(
            topic
        )

    def may_be_lost(self, transaction: Transaction) -> bool:
        """Whether a power loss may have lost the transaction or a part of it."""
        return not self._history.commits_are_durable and transaction.began_ms <= self._last_loss_ms

    def of(self, transaction: Transaction) -> list[Write]:
        return self.by_transaction.get(id(transaction), [])


def check_lost(history: History, index: _Index) -> Iterator[Finding]:
    """No promised record is missing. The records of a transaction are promised by its commit, other
    records by their acknowledgement.

    A power loss may lose acknowledged records that are not durable, but only from the end: see
    `check_tail`.
    """
    for write in history.writes:
        final = history.final.get(write.partition)
        if (
            write.outcome is not Outcome.OK
            or final is None
            or write.partition[0] in history.compacted
        ):
            continue
        if 0 <= write.offset < final.log_start_offset or not index.is_of_now(write):
            continue
        if write.transaction is None:
            safe = write.durable or history.answer_epoch(write) == len(history.power_losses)
            if safe and write.value not in index.everything[write.partition]:
                yield Finding(
                    "lost", f"{_name(write)} was acknowledged at {write.offset} and is not there"
                )
            elif safe and write.value not in index.committed[write.partition]:
                yield Finding(
                    "lost",
                    f"{_name(write)} was acknowledged at {write.offset} and readers of committed "
                    "records do not see it",
                )
        elif index.may_be_lost(write.transaction):
            continue
        elif (
            write.transaction.ending is Ending.COMMITTED
            and write.value not in index.committed[write.partition]
        ):
            yield Finding(
                "lost",
                f"{_name(write)} of the committed transaction {write.transaction.name} "
                "is not there",
            )


def check_tail(history: History, index: _Index) -> Iterator[Finding]:
    """A power loss removes records only from the end of a log. If a record is missing, all later
    records that were acknowledged before the loss must be missing as well.
    """
    for number in range(len(history.power_losses)):
        rows: dict[Partition, list[Write]] = {}
        for write in history.writes:
            promised = (
                write.outcome is Outcome.OK
                and write.offset >= 0
                and write.partition in history.final
            )
            if not promised or write.answered_ms is None or history.answer_epoch(write) != number:
                continue
            if index.is_of_now(write):
                rows.setdefault(write.partition, []).append(write)
        for partition, writes in rows.items():
            if partition[0] in history.compacted:
                continue
            missing: Write | None = None
            there = index.everything[partition]
            for write in sorted(writes, key=lambda write: write.offset):
                if write.offset < history.final[partition].log_start_offset:
                    continue
                if write.value not in there:
                    missing = missing or write
                elif missing is not None:
                    yield Finding(
                        "lost",
                        f"{_name(missing)} at {missing.offset} is gone and {_name(write)} behind "
                        "it is there",
                    )
                    break


def check_duplicates(history: History, index: _Index) -> Iterator[Finding]:
    """No record is in a log twice."""
    for partition, final in history.final.items():
        for label, rows in (
            ("", final.everything),
            (" for readers of committed records", final.committed),
        ):
            seen: dict[bytes, int] = {}
            for offset, value in rows:
                if value in seen:
                    yield Finding(
                        "duplicate",
                        f"{value!r} is in {_log(partition)} at {seen[value]} "
                        f"and at {offset}{label}",
                    )
                seen[value] = offset


def check_unwritten(history: History, index: _Index) -> Iterator[Finding]:
    """Every record that is read was written to the same partition, and was not refused."""
    for where, partition, offset, value in _all_seen(history):
        write = index.by_value.get(value)
        if write is None or write.partition != partition:
            yield Finding(
                "unwritten",
                f"{where} found {value!r} in {_log(partition)} at {offset}, which no client wrote "
                "there",
            )
        elif write.outcome is Outcome.FAILED:
            yield Finding(
                "unwritten", f"{where} found {_name(write)} at {offset}, which was refused"
            )


def check_aborted_reads(history: History, index: _Index) -> Iterator[Finding]:
    """A read_committed reader never gets a record of an aborted transaction, or of a transaction
    whose commit had not yet been requested.
    """
    for read in history.reads:
        if read.committed_only:
            yield from _check_committed(index, read.value, read.reader, read.read_ms)
    for final in history.final.values():
        for _, value in final.committed:
            yield from _check_committed(index, value, "the last reader", None)


def _check_committed(
    index: _Index, value: bytes, reader: str, read_ms: int | None
) -> Iterator[Finding]:
    """Yield a finding if the record belongs to an aborted transaction, or was read before its
    commit was requested.

    Takes: read_ms, the time of the read, None for the reader at the end of the run.
    """
    write = index.by_value.get(value)
    if write is None or write.transaction is None:
        return
    transaction = write.transaction
    if transaction.ending is Ending.ABORTED:
        yield Finding(
            "aborted-read",
            f"{reader} saw {_name(write)} of the aborted transaction {transaction.name}",
        )
    elif transaction.commit_asked_ms is None or (
        read_ms is not None and read_ms < transaction.commit_asked_ms
    ):
        yield Finding(
            "precommitted-read",
            f"{reader} saw {_name(write)} before the commit of {transaction.name} was asked for",
        )


def check_torn(history: History, index: _Index) -> Iterator[Finding]:
    """If the outcome of a transaction is unknown, either all of its acknowledged records are in the
    logs, or none.
    """
    for transaction in history.transactions:
        if transaction.ending is not Ending.UNKNOWN or index.may_be_lost(transaction):
            continue
        there, missing = [], []
        for write in index.of(transaction):
            final = history.final.get(write.partition)
            if (
                final is None
                or write.partition[0] in history.compacted
                or 0 <= write.offset < final.log_start_offset
            ):
                continue
            if write.value in index.committed[write.partition]:
                there.append(write)
            elif write.outcome is Outcome.OK and index.is_of_now(write):
                missing.append(write)
        if there and missing:
            yield Finding(
                "torn",
                f"of {transaction.name}, {_name(there[0])} is there and {_name(missing[0])} is not",
            )


def check_whole(history: History, index: _Index) -> Iterator[Finding]:
    """At each moment each committed transaction is wholly below the last stable offsets of the
    topics that show whole transactions, or wholly at or above them. One that began after another
    had committed is not below them without it. So it is with each recorded cut, and nothing in it
    was committed later.

    After a power loss the broker does not know when records arrived whose markers it writes again.
    """
    rows = []
    for transaction in history.transactions if history.cuts or history.past_cuts else ():
        if transaction.ending is not Ending.COMMITTED or index.may_be_lost(transaction):
            continue
        places = []
        for write in index.of(transaction):
            offset = write.offset
            if offset < 0:
                offset = index.everything.get(write.partition, {}).get(write.value, -1)
            if offset >= 0:
                places.append((write.partition, offset, write))
        if places:
            rows.append((transaction, places))
    for at_ms, cut in history.cuts:
        for text in _halves(history, rows, at_ms, cut, is_past=False):
            yield Finding("half", text)
            return
    for at_ms, cut in history.past_cuts:
        for text in _halves(history, rows, at_ms, cut, is_past=True):
            yield Finding("half", f"in a recorded cut {text}")
            return


def _halves(
    history: History,
    rows: list[tuple[Transaction, list[tuple[Partition, int, Write]]]],
    at_ms: int,
    cut: dict[Partition, tuple[int, int]],
    *,
    is_past: bool,
) -> Iterator[str]:
    """What is wrong with one cut; see `check_whole`.

    Takes: rows, the committed transactions with the places of their records; is_past, whether the
           cut was recorded, and found at the end.
    """
    shown, hidden = [], []
    for transaction, places in rows:
        asked_ms = transaction.commit_asked_ms or 0
        if asked_ms > at_ms and not is_past:
            continue  # a power loss may have lost other records at its offsets
        sides = {
            offset < cut[partition][1]: write
            for partition, offset, write in places
            if partition in cut
            and offset >= cut[partition][0]
            and not any(
                asked_ms <= since_ms <= at_ms
                for since_ms in history.whole_since.get(partition[0], ())
            )
        }
        if len(sides) == 2:
            yield (
                f"{_name(sides[True])} of {transaction.name} was shown at {cut}, and "
                f"{_name(sides[False])} was not"
            )
        if asked_ms > at_ms:
            if True in sides:
                yield f"{transaction.name} was shown at {cut}, and was committed later"
            continue
        for is_shown in sides:
            (shown if is_shown else hidden).append(transaction)
    if history.power_losses or not hidden or not shown:
        return
    cause = min(hidden, key=lambda one: one.ended_ms or NEVER_MS)
    result = max(shown, key=lambda one: one.began_ms)
    if (cause.ended_ms or NEVER_MS) < result.began_ms:
        yield f"{result.name} was shown at {cut}, and {cause.name} before it was not"


def check_order(history: History, index: _Index) -> Iterator[Finding]:
    """In each partition, a session's records are in the order of sending, and the offsets that a
    reader gets increase.
    """
    for partition, final in history.final.items():
        last: dict[str, Write] = {}
        last_offset = -1
        for offset, value in final.everything:
            if offset <= last_offset:
                yield Finding("order", f"{_log(partition)} holds {offset} behind {last_offset}")
            last_offset = offset
            write = index.by_value.get(value)
            if write is None:
                continue
            before = last.get(write.session)
            if before is not None and before.rank > write.rank:
                yield Finding(
                    "order",
                    f"{_name(write)} at {offset} stands behind {_name(before)}, which was sent "
                    "after it",
                )
            last[write.session] = write


def check_moved(history: History, index: _Index) -> Iterator[Finding]:
    """A record that was acknowledged or read at an offset stays at that offset until a power loss,
    and committed records stay even after one.
    """
    held: dict[tuple[Partition, int, int, int | None], bytes] = {}
    lives = history.lives
    for read in history.reads:
        epoch = history.seen_epoch(read)
        if epoch is None:
            continue
        life = history.life_at(read.partition[0], read.read_ms, read.read_ms) if lives else 0
        key = (read.partition, read.offset, epoch, life)
        before = held.setdefault(key, read.value)
        if before != read.value:
            yield Finding(
                "moved",
                f"{_log(read.partition)} at {read.offset} gave {before!r} and, to {read.reader}, "
                f"{read.value!r}",
            )
    last_epoch = len(history.power_losses)
    for partition, final in history.final.items():
        for offset, value in final.everything:
            before = held.get(
                (partition, offset, last_epoch, history.last_life(partition[0])), value
            )
            if before != value:
                yield Finding(
                    "moved", f"{_log(partition)} at {offset} gave {before!r} and now {value!r}"
                )
    for write in history.writes:
        if (
            write.outcome is Outcome.OK
            and write.offset >= 0
            and write.partition in history.final
            and index.is_of_now(write)
        ):
            found = index.everything[write.partition].get(write.value, write.offset)
            if found != write.offset:
                yield Finding(
                    "moved", f"{_name(write)} was acknowledged at {write.offset} and is at {found}"
                )


def check_seen_is_kept(history: History, index: _Index) -> Iterator[Finding]:
    """A record that a read_committed reader got is still in the log at the end. If it does not
    belong to a transaction, it may be lost in a later power loss.
    """
    for read in history.reads:
        final = history.final.get(read.partition)
        if (
            not read.committed_only
            or final is None
            or read.offset < final.log_start_offset
            or read.partition[0] in history.compacted
        ):
            continue
        write = index.by_value.get(read.value)
        if write is None:
            continue
        if history.lives and history.life_at(
            read.partition[0], read.read_ms, read.read_ms
        ) != history.last_life(read.partition[0]):
            continue
        is_of_now = history.seen_epoch(read) == len(history.power_losses)
        if not is_of_now and (write.transaction is None or index.may_be_lost(write.transaction)):
            continue
        if read.value not in index.committed[read.partition]:
            yield Finding(
                "lost",
                f"{read.reader} saw {_name(write)} at {read.offset}, and it is not there any more",
            )


def check_skipped(history: History, index: _Index) -> Iterator[Finding]:
    """A reader has received every record in the range that it claims to have passed."""
    seen: dict[tuple[str, Partition], set[tuple[int, bytes]]] = {}
    for read in history.reads:
        seen.setdefault((read.reader, read.partition), set()).add((read.offset, read.value))
    last_loss_ms = history.power_losses[-1] if history.power_losses else -1
    for span in history.spans:
        final = history.final.get(span.partition)
        if (
            final is None
            or (span.began_ms <= last_loss_ms and not span.follows_epochs)
            or span.partition[0] in history.compacted
        ):
            continue
        if history.life_at(
            # A reader may begin in the millisecond in which the topic was created. `life_at` does
            # not count that millisecond as part of a life.
            span.partition[0],
            span.began_ms + 1,
            span.began_ms + 1,
        ) != history.last_life(span.partition[0]):
            continue
        given = seen.get((span.reader, span.partition), set())
        for offset, value in final.committed if span.committed_only else final.everything:
            if span.start_offset <= offset < span.end_offset and (offset, value) not in given:
                yield Finding(
                    "skipped",
                    f"{span.reader} read {_log(span.partition)} up to {span.end_offset} and did "
                    f"not get {value!r} at {offset}",
                )


def check_watermarks(history: History, index: _Index) -> Iterator[Finding]:
    """log_start <= last_stable <= high_watermark in every response. None of them decreases between
    power losses.
    """
    last: dict[tuple[str, Partition, int, int | None], Watermarks] = {}
    for seen in history.watermarks:
        if not 0 <= seen.log_start_offset <= seen.last_stable_offset <= seen.high_watermark:
            yield Finding("watermark", f"{_log(seen.partition)}: {seen}")
        life = (
            history.life_at(seen.partition[0], seen.read_ms, seen.read_ms) if history.lives else 0
        )
        epoch = history.seen_epoch(seen)
        if epoch is None:
            continue
        key = (seen.reader, seen.partition, epoch, life)
        before = last.get(key)
        if before is not None:
            for name in ("log_start_offset", "last_stable_offset", "high_watermark"):
                if getattr(seen, name) < getattr(before, name):
                    yield Finding(
                        "watermark",
                        f"{_log(seen.partition)}: {name} was {getattr(before, name)} and is "
                        f"{getattr(seen, name)}",
                    )
        last[key] = seen


def check_reports(history: History, index: _Index) -> Iterator[Finding]:
    """A value that a response has reported to one client remains true in every later request of any
    client, and at the end, across all restarts.

    These values never decrease: the three offsets of a log (a power loss may lower the high
    watermark, unless the topic is flushed with each record); a producer's epoch in a partition, and
    its last sequence in that epoch; the producer epoch of a transactional id; a group's stable
    offset. After a power loss, that is only checked for offsets that transactions committed, since
    other offsets may be lost.
    """
    yield from _check_reported_logs(history)
    yield from _check_reported_producers(history)
    yield from _check_reported_offsets(history)


def _check_reported_logs(history: History) -> Iterator[Finding]:
    """None of a log's three offsets decreases within one life of the topic and between two power
    losses.

    The start of a log, and the high watermark of a flushed topic, do not decrease at a power loss
    either, so the number of power losses in their keys is always 0.
    """
    for name in ("log_start_offset", "last_stable_offset", "high_watermark"):
        rows = []
        for seen in history.watermarks:
            topic = seen.partition[0]
            life = history.life_at(topic, seen.asked_ms, seen.read_ms) if history.lives else 0
            if name == "last_stable_offset" and topic in history.toggled:
                continue  # one that gets the setting again may show less after a restart
            if seen.asked_ms >= 0 and life is not None:
                epoch = (
                    0
                    if name == "log_start_offset"
                    or (name == "high_watermark" and topic in history.flushed)
                    else history.power_epoch(seen.read_ms)
                )
                if epoch == 0 or history.power_epoch(seen.asked_ms) == history.power_epoch(
                    seen.read_ms
                ):
                    rows.append(
                        _Report(
                            (seen.partition, epoch, life),
                            getattr(seen, name),
                            seen.asked_ms,
                            seen.read_ms,
                        )
                    )
        for partition, final in history.final.items():
            epoch = (
                0
                if name == "log_start_offset"
                or (name == "high_watermark" and partition[0] in history.flushed)
                else len(history.power_losses)
            )
            rows.append(
                _Report(
                    # The final state is only compared with earlier reports, since no request is
                    # sent after NEVER_MS.
                    (partition, epoch, history.last_life(partition[0])),
                    getattr(final, name),
                    final.asked_ms,
                    NEVER_MS,
                )
            )
        for before, after in _gone_back(rows):
            yield Finding(
                "contradicted",
                f"{_log(after.key[0])}: {name} was {before.value} at {before.answered_ms}, and "
                f"is {after.value}",
            )


def _check_reported_producers(history: History) -> Iterator[Finding]:
    """In a partition a producer's epoch and last sequence do not decrease, and neither does the
    producer epoch of a transactional id.
    """
    producers = [
        _Report(
            (
                reported.partition,
                reported.producer_id,
                history.power_epoch(reported.answered_ms),
                history.life_at(reported.partition[0], reported.asked_ms, reported.answered_ms),
            ),
            (reported.producer_epoch, reported.last_sequence),
            reported.asked_ms,
            reported.answered_ms,
        )
        for reported in history.reported_producers
        if history.power_epoch(reported.asked_ms) == history.power_epoch(reported.answered_ms)
    ]
    for before, after in _gone_back(producers):
        idle_ms = history.producer_expiration_ms
        if idle_ms is not None and after.answered_ms - before.asked_ms >= idle_ms:
            continue  # the producer had expired, and a marker added it again
        if after.key[3] is not None:
            yield Finding(
                "contradicted",
                f"{_log(after.key[0])}: producer {after.key[1]} was at {before.value}, and is "
                f"at {after.value}",
            )
    ids = [
        _Report(
            (
                reported.transactional_id,
                reported.producer_id,
                history.power_epoch(reported.answered_ms),
            ),
            reported.producer_epoch,
            reported.asked_ms,
            reported.answered_ms,
        )
        for reported in history.reported_transactions
    ]
    for before, after in _gone_back(ids):
        yield Finding(
            "contradicted",
            f"{after.key[0]} was answered to have the epoch {before.value}, and has {after.value}",
        )


def _check_reported_offsets(history: History) -> Iterator[Finding]:
    """A group's committed offset does not decrease unless it may have expired, or a power loss may
    have lost it.
    """
    offsets = [
        _Report(
            (reported.group, reported.partition),
            reported.offset,
            reported.asked_ms,
            reported.answered_ms,
        )
        for reported in history.reported_offsets
        if reported.group not in history.unsure_groups
        and reported.partition[0] not in history.lives
        if not history.power_losses or (reported.is_durable and history.commits_are_durable)
    ]
    for before, after in _gone_back(offsets):
        if may_have_expired(history, after.key[0], before.asked_ms, after.answered_ms):
            continue
        yield Finding(
            "contradicted",
            f"{after.key[0]} was answered to be at {before.value} of {_log(after.key[1])}, and "
            f"stands at {after.value}",
        )


class _Report(NamedTuple):
    """A reported value that must not decrease for its key. A report that was requested after the
    `answered_ms` of this one must not be lower.
    """

    key: Any
    value: Any
    asked_ms: int
    answered_ms: int


def _gone_back(rows: list[_Report]) -> Iterator[tuple[_Report, _Report]]:
    """Find values that decreased: of two reports, the first was answered before the second was
    requested, and the second has a lower value. Gives: at most one pair of reports for each key.
    """
    by_key: dict[Any, list[_Report]] = {}
    for row in rows:
        by_key.setdefault(row.key, []).append(row)
    for of_key in by_key.values():
        by_answer = sorted(of_key, key=lambda row: row.answered_ms)
        highest: _Report | None = None
        at = 0
        for row in sorted(of_key, key=lambda row: row.asked_ms):
            while by_answer[at].answered_ms < row.asked_ms:
                if highest is None or by_answer[at].value > highest.value:
                    highest = by_answer[at]
                at += 1
            if highest is not None and row.value < highest.value:
                yield highest, row
                break


def check_kept(history: History, index: _Index) -> Iterator[Finding]:
    """A log without retention begins where DeleteRecords has set its start. In a log with
    retention, no record is missing that must still be kept.
    """
    for write in history.writes:
        partition, final = write.partition, history.final.get(write.partition)
        retention_ms = history.retention_ms.get(partition[0])
        if (
            retention_ms is None
            or final is None
            or write.outcome is not Outcome.OK
            or not index.is_of_now(write)
        ):
            continue
        asked = history.deletions_asked.get(partition, 0)
        if (
            asked <= write.offset < final.log_start_offset
            and write.made_ms > history.end_ms - retention_ms
            and not history.power_losses
        ):
            yield Finding(
                "lost",
                f"{_name(write)} at {write.offset} is deleted before it was {retention_ms} ms old",
            )
    for partition, final in history.final.items():
        asked = history.deletions_asked.get(partition, 0)
        if partition[0] in history.kept_topics and final.log_start_offset > asked:
            yield Finding(
                "lost",
                f"{_log(partition)} begins at {final.log_start_offset}, and was to be deleted "
                f"below {asked} at most",
            )


def check_offsets(history: History, index: _Index) -> Iterator[Finding]:
    """The output contains exactly one record for each input record below the group's committed
    offset, and none for later input records.
    """
    if history.power_losses and not history.commits_are_durable:
        return  # after a power loss, offsets and outputs may be lost independently
    made: dict[tuple[str, Partition], dict[int, list[bytes]]] = {}
    for partition in history.final:
        for value in index.committed[partition]:
            write = index.by_value.get(value)
            if write is not None and write.source is not None:
                source = write.source
                made.setdefault((source.group, source.partition), {}).setdefault(
                    source.offset, []
                ).append(value)
    for key, committed_offset in history.final_offsets.items():
        group, partition = key
        final = history.final.get(partition)
        if final is None:
            continue
        outputs = made.get(key, {})
        for offset, value in final.committed:
            count = len(outputs.get(offset, ()))
            if offset < committed_offset and count == 0:
                yield Finding(
                    "offsets",
                    f"{group} committed {committed_offset} of {_log(partition)}, and {value!r} at "
                    f"{offset} has no output",
                )
            elif offset < committed_offset and count > 1:
                yield Finding(
                    "offsets",
                    f"{value!r} at {offset} of {_log(partition)} has the outputs {outputs[offset]}",
                )
            elif offset >= committed_offset and count:
                yield Finding(
                    "offsets",
                    f"{group} committed {committed_offset} of {_log(partition)}, and {value!r} at "
                    f"{offset} has an output",
                )
        there = {offset for offset, _ in final.committed}
        for offset in sorted(outputs):
            if offset not in there:
                yield Finding(
                    "offsets",
                    f"{outputs[offset][0]!r} was made from {_log(partition)} at {offset}, where "
                    "nothing is",
                )


def may_have_expired(history: History, group: str, from_ms: int, to_ms: int) -> bool:
    """Whether a group may have been without members for so long that its offsets expired.

    With the consumer protocol, an offset's retention begins at its commit, as in Apache Kafka. Only
    the presence of members prevents the expiry. After the retention time, the offset may therefore
    expire as soon as the group has no members.
    """
    retention_ms = history.offsets_retention_ms
    if retention_ms is None:
        return False
    if group in history.groups_of_consumer_protocol:
        retention_ms = 1
    return _was_alone(history, group, from_ms, to_ms, retention_ms)


def _was_alone(history: History, group: str, from_ms: int, to_ms: int, for_ms: int) -> bool:
    """Whether a group may have had no member for `for_ms`.

    A member counts as present from its first response to its last request, whatever happened in
    between.
    """
    stays: dict[tuple[str, int], tuple[int, int]] = {}
    for access in history.accesses:
        if access.group == group and not access.is_leave:
            key = access.member_id, access.generation
            first_ms, _ = stays.get(key, (access.answered_ms, 0))
            stays[key] = first_ms, access.sent_ms
    alone_since_ms = from_ms
    for first_ms, last_ms in sorted(stays.values()):
        if min(first_ms, to_ms) - alone_since_ms >= for_ms:
            return True
        alone_since_ms = max(alone_since_ms, last_ms)
    return to_ms - alone_since_ms >= for_ms


def check_consumed(history: History, index: _Index) -> Iterator[Finding]:
    """A group got all records below its offset, including the records that replaced those lost in a
    power loss.

    Except after a power loss, a group never continues from an offset below the last one that was
    acknowledged. No power loss restores an offset from an earlier life of the topic.
    """
    for (group, partition), position in history.final_positions.items():
        final, life = history.final.get(partition), history.last_life(partition[0])
        if final is None or group in history.unsure_groups:
            continue
        if position > 0 and (group, partition, life) not in history.commits_asked:
            yield Finding(
                "offsets",
                f"{group} stands at {position} of {_log(partition)}, of which it has committed "
                "nothing in this life",
            )
        for offset, value in final.committed:
            if offset < position and (group, partition, life, value) not in history.consumed:
                yield Finding(
                    "offsets",
                    f"{group} stands at {position} of {_log(partition)} and was never given "
                    f"{value!r} at {offset}",
                )
        if history.power_losses:
            continue
        kept = [
            row.offset
            for row in history.commits
            if (row.group, row.partition, row.life) == (group, partition, life)
            and not may_have_expired(history, group, row.sent_ms, history.end_ms)
        ]
        if kept and position < max(kept):
            yield Finding(
                "offsets",
                f"{group} committed {max(kept)} of {_log(partition)}, and stands at {position}",
            )


def check_compacted(history: History, index: _Index) -> Iterator[Finding]:
    """In a compacted topic, each key has the last value that was visible to read_committed readers.

    A key is the value up to its last '-'. Keys that have a record with the outcome UNKNOWN are left
    out.
    """
    for partition, final in history.final.items():
        if partition[0] not in history.compacted:
            continue
        expected: dict[bytes, Write] = {}
        unclear: set[bytes] = set()
        for write in history.writes:
            if write.partition != partition:
                continue
            key = key_of(write.value)
            ending = Ending.COMMITTED if write.transaction is None else write.transaction.ending
            if (
                write.outcome is Outcome.UNKNOWN
                or ending in (Ending.UNKNOWN, Ending.OPEN)
                or history.power_losses
            ):
                unclear.add(key)
            elif write.outcome is Outcome.OK and ending is Ending.COMMITTED:
                before = expected.get(key)
                if before is None or before.offset < write.offset:
                    expected[key] = write
        last = {key_of(value): value for _, value in final.committed}
        for key, write in expected.items():
            if (
                key not in unclear
                and write.offset >= final.log_start_offset
                and last.get(key) != write.value
            ):
                yield Finding(
                    "lost",
                    f"{_name(write)} is its key's last record, and {last.get(key)!r} is there "
                    "instead",
                )


def check_deleted_topics(history: History, index: _Index) -> Iterator[Finding]:
    """A topic that was deleted and created again shows no record of its earlier lives.

    Records that were sent twice are left out: an earlier attempt may arrive late and reach the new
    topic, which has the same name.
    """
    if not history.lives:
        return
    lives: dict[bytes, int] = {}
    for write in history.writes:
        if (
            write.partition[0] in history.lives
            and write.outcome is Outcome.OK
            and not write.is_resent
        ):
            life = history.life_at(write.partition[0], write.sent_ms, write.answered_ms or 0)
            if life is not None:
                lives[write.value] = life
    for where, partition, offset, value in _all_seen(history):
        if (
            value in lives
            and where == "the last reader"
            and lives[value] != history.last_life(partition[0])
        ):
            yield Finding(
                "deleted",
                f"{value!r} of the deleted topic {partition[0]} is in {_log(partition)} "
                f"at {offset}",
            )
    for read in history.reads:
        life = history.life_at(read.partition[0], read.read_ms, read.read_ms)
        if read.value in lives and life is not None and life > lives[read.value]:
            yield Finding(
                "deleted",
                f"{read.reader} found {read.value!r} of the deleted {_log(read.partition)} at "
                f"{read.offset}",
            )


def check_deleted_records(history: History, index: _Index) -> Iterator[Finding]:
    """No fetch that was sent after the response to a DeleteRecords returns a deleted record.

    A power loss may truncate the log below the deleted offsets, and other records may then get
    these offsets.
    """
    last_loss_ms = history.power_losses[-1] if history.power_losses else -1
    for partition, low_watermark, answered_ms in history.deletions:
        final = history.final.get(partition)
        rows = (
            [("the last reader", offset, value) for offset, value in final.everything]
            if final is not None
            else []
        )
        rows += [
            (read.reader, read.offset, read.value)
            for read in history.reads
            if read.partition == partition and read.asked_ms > answered_ms
        ]
        for reader, offset, value in rows:
            write = index.by_value.get(value)
            may_be_new = (
                write is None or write.outcome is not Outcome.OK or write.sent_ms > answered_ms
            )
            if offset < low_watermark and not (may_be_new and last_loss_ms > answered_ms):
                yield Finding(
                    "deleted",
                    f"{reader} got {value!r} at {offset} of {_log(partition)}, deleted below "
                    f"{low_watermark}",
                )
                break


def check_members(history: History, index: _Index) -> Iterator[Finding]:
    """The coordinator accepts no requests of members of former generations, of replaced static
    members, and of members that left, except that a power loss may restore groups.
    """
    groups: dict[tuple[str, int], list[Access]] = {}
    for access in history.accesses:
        epoch = history.power_epoch(access.sent_ms)
        if history.power_epoch(access.answered_ms) == epoch:
            groups.setdefault((access.group, epoch), []).append(access)
    for accesses in groups.values():
        by_sent = sorted(accesses, key=lambda access: access.sent_ms)
        yield from _check_generations(history, by_sent)
        instances: dict[str, list[Access]] = {}
        for access in by_sent:
            if access.instance_id is not None:
                instances.setdefault(access.instance_id, []).append(access)
        for of_instance in instances.values():
            yield from _check_instance(of_instance)


def _check_generations(history: History, by_sent: list[Access]) -> Iterator[Finding]:
    """Check a group's requests in the order of sending.

    None is accepted in an earlier generation than a request that was accepted before it, and none
    after its member has left. A group without members and offsets is deleted, and starts again with
    its first generation. With the consumer protocol each member has its own epoch.
    """
    by_answered = sorted(by_sent, key=lambda access: access.answered_ms)
    latest: Access | None = None
    at = 0
    left: dict[str, int] = {}
    for access in by_sent:
        while at < len(by_answered) and by_answered[at].answered_ms < access.sent_ms:
            if by_answered[at].is_leave:
                left.setdefault(by_answered[at].member_id, by_answered[at].answered_ms)
            elif latest is None or by_answered[at].generation > latest.generation:
                latest = by_answered[at]
            at += 1
        if access.is_leave:
            continue
        has_generations = access.group not in history.groups_of_consumer_protocol
        if has_generations and latest is not None and access.generation < latest.generation:
            expires = history.offsets_retention_ms is not None
            if expires and _was_alone(history, access.group, latest.sent_ms, access.answered_ms, 1):
                latest = access
            else:
                yield Finding("member", f"{_who(access)} was let on, and before {_who(latest)}")
        if access.member_id in left:
            yield Finding("member", f"{_who(access)} was let on, and it had left")


def _check_instance(by_sent: list[Access]) -> Iterator[Finding]:
    """Once a replacement of a static member has been accepted, no request of the former member is
    accepted.
    """
    since: dict[str, int] = {}
    for access in sorted(by_sent, key=lambda access: access.answered_ms):
        since.setdefault(access.member_id, access.answered_ms)
    reported: set[str] = set()
    for late in by_sent:
        for between in by_sent:
            is_other = (
                between.member_id != late.member_id
                and late.member_id not in reported
                and not between.is_leave
                and not late.is_leave
            )
            if (
                is_other
                and since[late.member_id] < between.sent_ms
                and between.answered_ms < late.sent_ms
            ):
                reported.add(late.member_id)
                yield Finding(
                    "member",
                    f"{_who(late)} was let on, and before {_who(between)}, which came in its place",
                )


def _who(access: Access) -> str:
    name = (
        access.member_id
        if access.instance_id is None
        else f"{access.instance_id} as {access.member_id}"
    )
    return f"{name} of {access.group} in generation {access.generation} at {access.answered_ms}"


def key_of(value: bytes) -> bytes:
    return value.rpartition(b"-")[0]


def _all_seen(history: History) -> Iterator[tuple[str, Partition, int, bytes]]:
    """The reader, partition, offset and value of every record that a reader got or that is in the
    logs at the end.
    """
    for read in history.reads:
        yield read.reader, read.partition, read.offset, read.value
    for partition, final in history.final.items():
        for offset, value in final.everything:
            yield "the last reader", partition, offset, value


def _name(write: Write) -> str:
    return f"{write.value.decode(errors='replace')} ({write.session}, {_log(write.partition)})"


def _log(partition: Partition) -> str:
    return f"{partition[0]}-{partition[1]}"


def check_owners(history: History, index: _Index) -> Iterator[Finding]:
    """No partition is owned by two members at the same time."""
    for holdings in _by_partition(history).values():
        latest: Holding | None = None
        for holding in holdings:
            if (
                latest is not None
                and latest.member != holding.member
                and latest.after == holding.after
                and holding.from_ms < min(latest.until_ms, holding.until_ms)
            ):
                yield Finding(
                    "owners",
                    f"{holding.group}: {_log(holding.partition)} is {holding.member}'s at "
                    f"{holding.from_ms}, and {latest.member}'s until {latest.until_ms}",
                )
            if latest is None or latest.until_ms < holding.until_ms:
                latest = holding


def check_taken_commits(history: History, index: _Index) -> Iterator[Finding]:
    """No offset is accepted from a member that sent it after another member got the partition."""
    by_partition = _by_partition(history)
    for commit in history.taken_commits:
        for holding in by_partition.get((commit.group, commit.partition), ()):
            if (
                holding.member != commit.member
                and holding.after == commit.after
                and holding.from_ms < commit.sent_ms
                and commit.answered_ms < holding.until_ms
            ):
                yield Finding(
                    "owners",
                    f"{commit.group} took {commit.member}'s offset of {_log(commit.partition)}, "
                    f"sent at {commit.sent_ms}, and it was {holding.member}'s since "
                    f"{holding.from_ms}",
                )
                break


def _by_partition(history: History) -> dict[tuple[str, Partition], list[Holding]]:
    """The ownerships of each group's partitions, in the order of their start times."""
    rows: dict[tuple[str, Partition], list[Holding]] = {}
    for holding in sorted(history.holdings, key=lambda holding: holding.from_ms):
        rows.setdefault((holding.group, holding.partition), []).append(holding)
    return rows


def kinds_of(findings: Iterable[Finding]) -> list[str]:
    """The kinds of the findings, each once, in order."""
    return list(dict.fromkeys(finding.kind for finding in findings))


CHECKERS = (
    check_lost,
    check_tail,
    check_duplicates,
    check_unwritten,
    check_aborted_reads,
    check_torn,
    check_whole,
    check_order,
    check_moved,
    check_seen_is_kept,
    check_skipped,
    check_watermarks,
    check_reports,
    check_kept,
    check_offsets,
    check_consumed,
    check_compacted,
    check_deleted_topics,
    check_deleted_records,
    check_members,
    check_owners,
    check_taken_commits,
)
