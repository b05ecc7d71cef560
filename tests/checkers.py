"""What clients saw, and whether a broker may show it: pure functions over histories, for the simulator and for tests with real clients alike.

A history is filled in by those who drive the clients. Every record's value is unique. Outcomes are what the client knows: OK was promised by
the broker, FAILED was refused for good, UNKNOWN may be either. Times are milliseconds of one clock, the client's.

    history = History()
    write = history.write(b"p1-0", ("topic", 0), session="p1")      # before it is sent
    write.ok(offset)                                                # when it is answered
    history.read("reader", ("topic", 0), offset, value, committed_only=True, now_ms=...)
    history.final[("topic", 0)] = FinalLog(...)                     # what a fresh reader finds at the very end
    assert not check(history)

`check` gives findings; `kind` is one of KINDS. What a power loss may take is known to it: see `History.power_losses` and `Write.durable`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

Partition = tuple[str, int]

KINDS = {
    "lost": "a promised record, or a committed one, is not there",
    "duplicate": "a record is there twice",
    "unwritten": "a record was read that nobody wrote, or that was refused",
    "aborted-read": "a reader of committed records saw one of an aborted transaction",
    "precommitted-read": "a reader of committed records saw one whose commit had not been asked for",
    "torn": "a transaction is there in part",
    "order": "a session's records stand, or were read, in another order than they were sent",
    "moved": "an offset holds one record now and held another before, or a record was promised at another offset",
    "skipped": "a reader passed by a record without seeing it",
    "watermark": "the last stable offset or the high watermark went back, or the order of the offsets of a log is broken",
    "offsets": "consumed offsets and produced records do not agree",
    "stuck": "something did not come to its end although nothing was in its way",
    "refused": "a client was refused what it had a right to",
    "crashed": "the broker failed by itself",
}


class Outcome(Enum):
    """What a client knows of what it asked for."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Ending(Enum):
    """What a client knows of its transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Finding(NamedTuple):
    """One thing that must not be."""

    kind: str
    text: str


class Source(NamedTuple):
    """The record that a written one was made from, and the group whose offset covers it."""

    group: str
    partition: Partition
    offset: int


@dataclass(slots=True)
class Transaction:
    """One transaction as its producer sees it. commit_asked_ms: when the first EndTxn(commit) was sent; ended_ms: when it knew the end."""

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
class Write:
    """One record. rank: its place among all that its session sent. durable: an OK survives a power loss too."""

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

    def ok(self, offset: int, now_ms: int = 0) -> None:
        self.outcome, self.offset, self.answered_ms = Outcome.OK, offset, now_ms

    def failed(self) -> None:
        self.outcome = Outcome.FAILED


class Read(NamedTuple):
    """One record that a reader was given."""

    reader: str
    partition: Partition
    offset: int
    value: bytes
    committed_only: bool
    read_ms: int


class Watermarks(NamedTuple):
    """What a fetch said of a log. reader: whose answers come in their order (a connection's, or the broker itself)."""

    reader: str
    partition: Partition
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    read_ms: int


class Span(NamedTuple):
    """A reader claims to have been given everything in [start_offset, end_offset)."""

    reader: str
    partition: Partition
    committed_only: bool
    start_offset: int
    end_offset: int
    began_ms: int


@dataclass(slots=True)
class FinalLog:
    """A log at the very end: what fresh readers of both kinds find."""

    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    committed: list[tuple[int, bytes]]
    everything: list[tuple[int, bytes]]


@dataclass(slots=True)
class History:
    """All that happened. A power loss is the time at which it came; kills are not told, since nothing may come of them.

    compacted: topics of which only each key's last record has to be there; the key is what `key_of` makes of a value.
    """

    writes: list[Write] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    watermarks: list[Watermarks] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    final: dict[Partition, FinalLog] = field(default_factory=dict)
    final_offsets: dict[tuple[str, Partition], int] = field(default_factory=dict)
    power_losses: list[int] = field(default_factory=list)
    compacted: frozenset[str] = frozenset()
    incidents: list[Finding] = field(default_factory=list)

    # --- filling in ----------------------------------------------------------------------------------------------------------------------

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
        """A record is about to be sent."""
        write = Write(value, partition, session, len(self.writes), transaction, source, durable)
        self.writes.append(write)
        return write

    def begin(self, name: str, *, session: str, now_ms: int = 0) -> Transaction:
        transaction = Transaction(name, session, now_ms)
        self.transactions.append(transaction)
        return transaction

    def read(self, reader: str, partition: Partition, offset: int, value: bytes, *, committed_only: bool, now_ms: int = 0) -> None:
        self.reads.append(Read(reader, partition, offset, value, committed_only, now_ms))

    def incident(self, kind: str, text: str) -> None:
        """Something that the driver itself saw go wrong."""
        assert kind in KINDS
        self.incidents.append(Finding(kind, text))

    # --- asking --------------------------------------------------------------------------------------------------------------------------

    def power_epoch(self, at_ms: int) -> int:
        """How many power losses came before; what has the same time as one was before it."""
        return sum(1 for loss_ms in self.power_losses if loss_ms < at_ms)


def check(history: History) -> list[Finding]:
    """Everything that is wrong with a history, worst first."""
    index = _Index(history)
    findings = list(history.incidents)
    for checker in CHECKERS:
        findings.extend(checker(history, index))
    return findings


class _Index:
    """What most checkers look up."""

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

    def of(self, transaction: Transaction) -> list[Write]:
        return self.by_transaction.get(id(transaction), [])


def check_lost(history: History, index: _Index) -> Iterator[Finding]:
    """Promised records are there: the transaction's when it was committed, others when they were acknowledged.

    A power loss may take acknowledged ones that are not durable, but only from the end: see `check_tail`.
    """
    last_loss_ms = history.power_losses[-1] if history.power_losses else None
    for write in history.writes:
        final = history.final.get(write.partition)
        if write.outcome is not Outcome.OK or final is None or write.partition[0] in history.compacted:
            continue
        if 0 <= write.offset < final.log_start_offset:
            continue
        if write.transaction is None:
            safe = write.durable or last_loss_ms is None or (write.answered_ms or 0) > last_loss_ms
            if safe and write.value not in index.everything[write.partition]:
                yield Finding("lost", f"{_name(write)} was acknowledged at {write.offset} and is not there")
            elif safe and write.value not in index.committed[write.partition]:
                yield Finding("lost", f"{_name(write)} was acknowledged at {write.offset} and readers of committed records do not see it")
        elif write.transaction.ending is Ending.COMMITTED and write.value not in index.committed[write.partition]:
            yield Finding("lost", f"{_name(write)} of the committed transaction {write.transaction.name} is not there")


def check_tail(history: History, index: _Index) -> Iterator[Finding]:
    """A power loss takes records from the end of a log alone: if one is missing, so are all that were acknowledged behind it before the loss."""
    for number in range(len(history.power_losses)):
        rows: dict[Partition, list[Write]] = {}
        for write in history.writes:
            promised = write.outcome is Outcome.OK and write.offset >= 0 and write.partition in history.final
            if promised and write.answered_ms is not None and history.power_epoch(write.answered_ms) == number:
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
                    yield Finding("lost", f"{_name(missing)} at {missing.offset} is gone and {_name(write)} behind it is there")
                    break


def check_duplicates(history: History, index: _Index) -> Iterator[Finding]:
    """No record is in the log twice."""
    for partition, final in history.final.items():
        for label, rows in (("", final.everything), (" for readers of committed records", final.committed)):
            seen: dict[bytes, int] = {}
            for offset, value in rows:
                if value in seen:
                    yield Finding("duplicate", f"{value!r} is in {_log(partition)} at {seen[value]} and at {offset}{label}")
                seen[value] = offset


def check_unwritten(history: History, index: _Index) -> Iterator[Finding]:
    """What is read was written, there, and not refused."""
    for where, partition, offset, value in _all_seen(history):
        write = index.by_value.get(value)
        if write is None or write.partition != partition:
            yield Finding("unwritten", f"{where} found {value!r} in {_log(partition)} at {offset}, which nobody wrote there")
        elif write.outcome is Outcome.FAILED:
            yield Finding("unwritten", f"{where} found {_name(write)} at {offset}, which was refused")


def check_aborted_reads(history: History, index: _Index) -> Iterator[Finding]:
    """Readers of committed records never see one of an aborted transaction, or one before its commit was asked for."""
    for read in history.reads:
        if read.committed_only:
            yield from _check_committed(index, read.value, read.reader, read.read_ms)
    for final in history.final.values():
        for _, value in final.committed:
            yield from _check_committed(index, value, "the last reader", None)


def _check_committed(index: _Index, value: bytes, reader: str, read_ms: int | None) -> Iterator[Finding]:
    write = index.by_value.get(value)
    if write is None or write.transaction is None:
        return
    transaction = write.transaction
    if transaction.ending is Ending.ABORTED:
        yield Finding("aborted-read", f"{reader} saw {_name(write)} of the aborted transaction {transaction.name}")
    elif transaction.commit_asked_ms is None or (read_ms is not None and read_ms < transaction.commit_asked_ms):
        yield Finding("precommitted-read", f"{reader} saw {_name(write)} before the commit of {transaction.name} was asked for")


def check_torn(history: History, index: _Index) -> Iterator[Finding]:
    """A transaction whose end is not known is there whole or not at all, as far as its records were acknowledged."""
    for transaction in history.transactions:
        if transaction.ending is not Ending.UNKNOWN:
            continue
        there, missing = [], []
        for write in index.of(transaction):
            final = history.final.get(write.partition)
            if final is None or write.partition[0] in history.compacted or 0 <= write.offset < final.log_start_offset:
                continue
            if write.value in index.committed[write.partition]:
                there.append(write)
            elif write.outcome is Outcome.OK:
                missing.append(write)
        if there and missing:
            yield Finding("torn", f"of {transaction.name}, {_name(there[0])} is there and {_name(missing[0])} is not")


def check_order(history: History, index: _Index) -> Iterator[Finding]:
    """In each partition, a session's records stand in the order in which they were sent; readers get rising offsets."""
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
                yield Finding("order", f"{_name(write)} at {offset} stands behind {_name(before)}, which was sent after it")
            last[write.session] = write


def check_moved(history: History, index: _Index) -> Iterator[Finding]:
    """What was promised or read at an offset stays there (between power losses; committed records through them)."""
    held: dict[tuple[Partition, int, int], bytes] = {}
    epoch_of = history.power_epoch
    for read in history.reads:
        key = (read.partition, read.offset, epoch_of(read.read_ms))
        before = held.setdefault(key, read.value)
        if before != read.value:
            yield Finding("moved", f"{_log(read.partition)} at {read.offset} gave {before!r} and, to {read.reader}, {read.value!r}")
    last_epoch = len(history.power_losses)
    for partition, final in history.final.items():
        for offset, value in final.everything:
            before = held.get((partition, offset, last_epoch), value)
            if before != value:
                yield Finding("moved", f"{_log(partition)} at {offset} gave {before!r} and now {value!r}")
    for write in history.writes:
        if write.outcome is Outcome.OK and write.offset >= 0 and write.partition in history.final:
            found = index.everything[write.partition].get(write.value, write.offset)
            if found != write.offset:
                yield Finding("moved", f"{_name(write)} was acknowledged at {write.offset} and is at {found}")


def check_seen_is_kept(history: History, index: _Index) -> Iterator[Finding]:
    """What a reader of committed records saw is there at the end: always that of transactions, the rest where no power loss came after."""
    last_loss_ms = history.power_losses[-1] if history.power_losses else -1
    for read in history.reads:
        final = history.final.get(read.partition)
        if not read.committed_only or final is None or read.offset < final.log_start_offset or read.partition[0] in history.compacted:
            continue
        write = index.by_value.get(read.value)
        if write is None or (write.transaction is None and read.read_ms <= last_loss_ms):
            continue
        if read.value not in index.committed[read.partition]:
            yield Finding("lost", f"{read.reader} saw {_name(write)} at {read.offset}, and it is not there any more")


def check_skipped(history: History, index: _Index) -> Iterator[Finding]:
    """A reader has seen all that is in the range that it passed."""
    seen: dict[tuple[str, Partition], set[int]] = {}
    for read in history.reads:
        seen.setdefault((read.reader, read.partition), set()).add(read.offset)
    last_loss_ms = history.power_losses[-1] if history.power_losses else -1
    for span in history.spans:
        final = history.final.get(span.partition)
        if final is None or span.began_ms <= last_loss_ms or span.partition[0] in history.compacted:
            continue
        offsets = seen.get((span.reader, span.partition), set())
        for offset, value in final.committed if span.committed_only else final.everything:
            if span.start_offset <= offset < span.end_offset and offset not in offsets:
                yield Finding(
                    "skipped", f"{span.reader} read {_log(span.partition)} up to {span.end_offset} and did not get {value!r} at {offset}"
                )


def check_watermarks(history: History, index: _Index) -> Iterator[Finding]:
    """log_start <= last_stable <= high_watermark in every answer; none of them goes back between power losses."""
    last: dict[tuple[str, Partition, int], Watermarks] = {}
    for seen in history.watermarks:
        if not 0 <= seen.log_start_offset <= seen.last_stable_offset <= seen.high_watermark:
            yield Finding("watermark", f"{_log(seen.partition)}: {seen}")
        key = (seen.reader, seen.partition, history.power_epoch(seen.read_ms))
        before = last.get(key)
        if before is not None:
            for name in ("log_start_offset", "last_stable_offset", "high_watermark"):
                if getattr(seen, name) < getattr(before, name):
                    yield Finding("watermark", f"{_log(seen.partition)}: {name} was {getattr(before, name)} and is {getattr(seen, name)}")
        last[key] = seen


def check_offsets(history: History, index: _Index) -> Iterator[Finding]:
    """Exactly what lies below a group's committed offset was made into output, each record once; of what lies behind it, nothing."""
    made: dict[tuple[str, Partition], dict[int, list[bytes]]] = {}
    for partition in history.final:
        for value in index.committed[partition]:
            write = index.by_value.get(value)
            if write is not None and write.source is not None:
                source = write.source
                made.setdefault((source.group, source.partition), {}).setdefault(source.offset, []).append(value)
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
                    "offsets", f"{group} committed {committed_offset} of {_log(partition)}, and {value!r} at {offset} has no output"
                )
            elif offset < committed_offset and count > 1:
                yield Finding("offsets", f"{value!r} at {offset} of {_log(partition)} has the outputs {outputs[offset]}")
            elif offset >= committed_offset and count:
                yield Finding(
                    "offsets", f"{group} committed {committed_offset} of {_log(partition)}, and {value!r} at {offset} has an output"
                )
        there = {offset for offset, _ in final.committed}
        for offset in sorted(outputs):
            if offset not in there:
                yield Finding("offsets", f"{outputs[offset][0]!r} was made from {_log(partition)} at {offset}, where nothing is")


def check_compacted(history: History, index: _Index) -> Iterator[Finding]:
    """In a compacted topic each key has its last value: the last that a reader of committed records could see.

    A key is the value up to its last '-'. Only records of known outcome count, so keys with an UNKNOWN one are left out.
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
            if write.outcome is Outcome.UNKNOWN or ending in (Ending.UNKNOWN, Ending.OPEN) or history.power_losses:
                unclear.add(key)
            elif write.outcome is Outcome.OK and ending is Ending.COMMITTED:
                before = expected.get(key)
                if before is None or before.offset < write.offset:
                    expected[key] = write
        last = {key_of(value): value for _, value in final.committed}
        for key, write in expected.items():
            if key not in unclear and write.offset >= final.log_start_offset and last.get(key) != write.value:
                yield Finding("lost", f"{_name(write)} is its key's last record, and {last.get(key)!r} is there instead")


def key_of(value: bytes) -> bytes:
    return value.rpartition(b"-")[0]


def _all_seen(history: History) -> Iterator[tuple[str, Partition, int, bytes]]:
    for read in history.reads:
        yield read.reader, read.partition, read.offset, read.value
    for partition, final in history.final.items():
        for offset, value in final.everything:
            yield "the last reader", partition, offset, value


def _name(write: Write) -> str:
    return f"{write.value.decode(errors='replace')} ({write.session}, {_log(write.partition)})"


def _log(partition: Partition) -> str:
    return f"{partition[0]}-{partition[1]}"


def kinds_of(findings: Iterable[Finding]) -> list[str]:
    """The kinds, each once, in the order in which they were found."""
    return list(dict.fromkeys(finding.kind for finding in findings))


CHECKERS = (
    check_lost,
    check_tail,
    check_duplicates,
    check_unwritten,
    check_aborted_reads,
    check_torn,
    check_order,
    check_moved,
    check_seen_is_kept,
    check_skipped,
    check_watermarks,
    check_offsets,
    check_compacted,
)
