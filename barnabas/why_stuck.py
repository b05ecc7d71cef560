"""Explains why a partition is stuck: the facts as values, and sentences made from them.

The values come from the command line, which requests them from a cluster by Kafka's protocol
(`barnabas.cli.why_stuck`), or from the console, which reads its own broker
(`barnabas.console`). The functions here do no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from barnabas.protocol.topic_partition import TopicPartition
from barnabas.texts import NO_TIMEOUT_MS, count_text, duration_text, time_text

_SHOWN = 5
ONGOING, PREPARE_COMMIT, PREPARE_ABORT = "Ongoing", "PrepareCommit", "PrepareAbort"


class OpenTransaction(NamedTuple):
    """A transaction on the partition, as the partition and the coordinator report it.

    transactional_id, state: None if no coordinator has a state for the producer. In that case, and
    if `is_hanging`, neither the producer nor a timeout will end the transaction. started_ms,
    timeout_ms: -1 if unknown. client_address: None if unknown, as always with brokers other than
    Barnabas.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int
    transactional_id: str | None = None
    state: str | None = None
    coordinator_producer_epoch: int = -1
    started_ms: int = -1
    timeout_ms: int = -1
    is_hanging: bool = True
    client_address: str | None = None

    @property
    def since_ms(self) -> int:
        """When the transaction began, or else when its producer last wrote; -1 if neither is
        known.
        """
        return self.started_ms if self.started_ms >= 0 else self.last_timestamp_ms

    @property
    def ends_ms(self) -> int:
        """When the coordinator will abort the transaction if its producer does nothing; -1 if it
        will not abort it.
        """
        if self.state != ONGOING or self.is_hanging or self.started_ms < 0 or self.timeout_ms < 0:
            return -1
        if self.timeout_ms == NO_TIMEOUT_MS:
            return -1
        return self.started_ms + self.timeout_ms


class WaitingGroup(NamedTuple):
    """A group that reads the partition, or has committed an offset for it.

    waits: whether its read_committed consumers have read everything before the last stable offset.
    """

    group: str
    state: str
    committed_offset: int
    waits: bool
    members: tuple[str, ...]


class Answer(NamedTuple):
    """The facts about a partition, which explain whether and why it is stuck. `transactions` are in
    the order of their first offsets. elsewhere: if the partition's topic shows whole transactions
    (barnabas.transactions.whole), the open transactions in other partitions of such topics, the
    oldest first.
    """

    partition: TopicPartition
    last_stable_offset: int
    high_watermark: int
    transactions: tuple[OpenTransaction, ...]
    groups: tuple[WaitingGroup, ...]
    now_ms: int
    elsewhere: tuple[tuple[TopicPartition, OpenTransaction], ...] = ()

    @property
    def is_held_elsewhere(self) -> bool:
        """Whether transactions in other partitions hold back readers here, rather than one here."""
        own = self.transactions[0].start_offset if self.transactions else self.high_watermark
        return self.is_stuck and bool(self.elsewhere) and own > self.last_stable_offset

    @property
    def is_stuck(self) -> bool:
        """Whether a read_committed reader cannot reach the partition's end."""
        return self.last_stable_offset < self.high_watermark


# --- in words -----------------------------------------------------------------------------------


def sentence(answer: Answer) -> str:
    """A sentence that says why a read_committed reader is blocked in the partition, and what will
    unblock it.
    """
    if not answer.is_stuck:
        return (
            f"{answer.partition} is not stuck: its last stable offset is its end, "
            f"{answer.high_watermark}."
        )
    if answer.is_held_elsewhere:
        return " ".join(_sentences_of_whole(answer))
    if not answer.transactions:
        return (
            f"{answer.partition} was stuck at offset {answer.last_stable_offset}, and no "
            "transaction is open on it any more: ask again."
        )
    return " ".join(_sentences(answer))


def _sentences(answer: Answer) -> Iterator[str]:
    """The sentences about a stuck partition: the oldest open transaction, its end, other
    transactions, and the groups.
    """
    holder, *others = answer.transactions
    yield f"{_where(answer)}: {_holder_text(holder, 'there', answer.now_ms)}"
    yield _end_of(holder, answer)
    if others:
        count = count_text(len(others), "other transaction is", "other transactions are")
        yield f"Behind it {count} open, so the partition may stay stuck after that."
    yield _groups_of(answer)


def _sentences_of_whole(answer: Answer) -> Iterator[str]:
    """The sentences about a partition that is stuck because of transactions in other partitions."""
    (partition, holder), *others = answer.elsewhere
    yield (
        f"{_where(answer)}: its topic has barnabas.transactions.whole, and what is committed there "
        "belongs to transactions that are not readable yet in other partitions, or came after such "
        f"ones. The oldest that is open: {_holder_text(holder, f'on {partition}', answer.now_ms)}"
    )
    yield _end_of(holder, answer._replace(partition=partition))
    if others:
        names = ", ".join(
            f"{row.transactional_id or f'producer {row.producer_id}'} on {at}"
            for at, row in others[:_SHOWN]
        )
        more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
        yield f"Also open in such topics: {names}{more}."
    yield _groups_of(answer)


def _where(answer: Answer) -> str:
    held = answer.high_watermark - answer.last_stable_offset
    return (
        f"{answer.partition} is stuck at offset {answer.last_stable_offset}, "
        f"{count_text(held, 'offset')} before its end"
    )


def _holder_text(holder: OpenTransaction, where: str, now_ms: int) -> str:
    """A text that names an open transaction, its client, and since when it is open."""
    since = holder.since_ms
    age = f" since {time_text(since)} ({duration_text(max(now_ms - since, 0))})"
    owner = (
        f"of transactional id {holder.transactional_id!r}, "
        if holder.transactional_id is not None
        else "of a transactional id that no coordinator knows, "
    )
    address = (
        f"at {holder.client_address}"
        if holder.client_address is not None
        else "its client's address is not known"
    )
    return (
        f"the transaction {owner}"
        f"producer {holder.producer_id} epoch {holder.producer_epoch} ({address}), "
        f"is open {where}{age if since >= 0 else ''}"
        f"{f', in state {holder.state}' if holder.state and not holder.is_hanging else ''}."
    )


def _end_of(holder: OpenTransaction, answer: Answer) -> str:
    """A text that says which event will end the transaction, and when."""
    if holder.is_hanging:
        why = (
            f"its coordinator says {holder.state}"
            + (
                f" at epoch {holder.coordinator_producer_epoch}"
                if holder.coordinator_producer_epoch != holder.producer_epoch
                else ""
            )
            if holder.state
            else "no coordinator knows it"
        )
        return (
            f"It hangs: {why}, so neither its producer nor a timeout will end it; "
            f"`barnabas txn abort {answer.partition} --start-offset {holder.start_offset}` does."
        )
    if holder.state == PREPARE_COMMIT:
        return "Its commit is decided, and it ends when its marker is written here, any moment now."
    if holder.state == PREPARE_ABORT:
        return "Its abort is decided, and it ends when its marker is written here, any moment now."
    if holder.timeout_ms == NO_TIMEOUT_MS:
        return (
            "It is one of two-phase commit, which no timeout ends: its producer, or that "
            "producer's successor, ends it as another system has decided. Otherwise "
            "`barnabas txn commit "
            f"{holder.transactional_id} --state {holder.producer_id}:{holder.producer_epoch}` "
            f"commits it, and `barnabas txn abort --transactional-id {holder.transactional_id}` "
            "aborts it."
        )
    left = holder.ends_ms - answer.now_ms
    when = time_text(holder.ends_ms)
    timeout = duration_text(holder.timeout_ms)
    if left < 0:
        return (
            f"Its timeout of {timeout} was over at {when}, and its coordinator will abort it at "
            "its next look, unless the producer ends it before."
        )
    return (
        f"It ends when its producer commits or aborts, or else by its timeout of {timeout}, when "
        f"its coordinator aborts it, at {when} (in {duration_text(left)})."
    )


def _groups_of(answer: Answer) -> str:
    """A text that names the groups that wait for the transaction, and those that have not reached
    it.
    """
    waiting = [group for group in answer.groups if group.waits]
    behind = [group for group in answer.groups if not group.waits]
    texts = []
    if waiting:
        noun = "Group" if len(waiting) == 1 else "Groups"
        verb = "waits" if len(waiting) == 1 else "wait"
        reader = "it reads" if len(waiting) == 1 else "they read"
        names = ", ".join(_group_text(group) for group in waiting)
        texts.append(f"{noun} {names} {verb} for it, where {reader} committed data.")
    if behind:
        names = ", ".join(_group_text(group) for group in behind)
        texts.append(f"Not there yet, or without a committed offset: {names}.")
    return " ".join(texts) if texts else "No group waits for it."


def _group_text(group: WaitingGroup) -> str:
    members = f" with {', '.join(group.members)}" if group.members else ", without members now"
    return f"{group.group!r} ({group.state}{members})"


def as_data(answer: Answer) -> dict[str, Any]:
    """The facts about the partition as plain values for JSON."""
    return {
        "topic": answer.partition.topic,
        "partition": answer.partition.partition,
        "stuck": answer.is_stuck,
        "last_stable_offset": answer.last_stable_offset,
        "high_watermark": answer.high_watermark,
        "explanation": sentence(answer),
        "transactions": [transaction_data(row) for row in answer.transactions],
        "elsewhere": [
            {"topic": at.topic, "partition": at.partition, **transaction_data(row)}
            for at, row in (answer.elsewhere if answer.is_held_elsewhere else ())
        ],
        "groups": [{**group._asdict(), "members": list(group.members)} for group in answer.groups],
    }


def transaction_data(row: OpenTransaction) -> dict[str, Any]:
    """A transaction as plain values for JSON."""
    return {
        "transactional_id": row.transactional_id,
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "client_address": row.client_address,
        "start_offset": row.start_offset,
        "state": row.state,
        "start_time_ms": row.started_ms,
        "last_timestamp_ms": row.last_timestamp_ms,
        "timeout_ms": row.timeout_ms,
        "timeout_at_ms": row.ends_ms,
        "hanging": row.is_hanging,
    }
