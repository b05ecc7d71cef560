"""What holds the last stable offset of a partition, gathered from the cluster and told in a
sentence.

`gather` asks; `sentence` is pure. What Kafka's protocol tells:

    DescribeProducers      producers with an open transaction on the partition, and where it began
    ListTransactions       the transactional id of a producer
    DescribeTransactions   its state, when it began, its timeout, its partitions
    OffsetFetch            which groups stand at the last stable offset

The client's address is in none of them. Source: KIP-664.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from barnabas.cli.cluster import Connection
from barnabas.cli.groups import assigned_partitions, committed_offsets
from barnabas.cli.offsets import client_partitions, list_offsets, topic_or_partition
from barnabas.cli.output import count_text, duration_text, time_text
from barnabas.protocol.topic_partition import TopicPartition

ONGOING, PREPARE_COMMIT, PREPARE_ABORT = "Ongoing", "PrepareCommit", "PrepareAbort"
PATIENCE_MS = 2000


class OpenTransaction(NamedTuple):
    """A transaction on the partition, as the partition and its coordinator tell of it.

    transactional_id, state: None where no coordinator knows the producer any more; then, or where
    `is_hanging`, nothing will end it. started_ms, timeout_ms: -1 where nobody tells.
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

    @property
    def ends_ms(self) -> int:
        """When the coordinator aborts it, if its producer does nothing; -1 where it does not."""
        if self.state != ONGOING or self.is_hanging or self.started_ms < 0 or self.timeout_ms < 0:
            return -1
        return self.started_ms + self.timeout_ms


class WaitingGroup(NamedTuple):
    """A group that a read_committed consumer of it would have to wait in.

    waits: whether there is nothing to read for it before the last stable offset.
    """

    group: str
    state: str
    committed_offset: int
    waits: bool
    members: tuple[str, ...]


class Answer(NamedTuple):
    """All that is told of a partition. Transactions stand in the order of their first offsets."""

    partition: TopicPartition
    last_stable_offset: int
    high_watermark: int
    transactions: tuple[OpenTransaction, ...]
    groups: tuple[WaitingGroup, ...]
    now_ms: int

    @property
    def is_stuck(self) -> bool:
        """Whether a read_committed reader cannot get to the partition's end."""
        return self.last_stable_offset < self.high_watermark


def find_open_transactions(admin: Any, partition: TopicPartition) -> list[OpenTransaction]:
    """The open transactions of a partition, from the one with the lowest first offset on."""
    (key,) = client_partitions([partition])
    producers = admin.describe_producers([key])[key].active_producers
    holding = sorted(
        (row for row in producers if row.current_transaction_start_offset >= 0),
        key=lambda row: int(row.current_transaction_start_offset),
    )
    if not holding:
        return []
    names = {
        row.producer_id: row.transactional_id
        for listed in admin.list_transactions(
            producer_id_filters=[row.producer_id for row in holding]
        ).values()
        for row in listed
    }
    described = admin.describe_transactions(sorted(names.values())) if names else {}
    return [
        _join(row, names.get(row.producer_id), described.get(names.get(row.producer_id)), key)
        for row in holding
    ]


def _join(producer: Any, name: str | None, told: Any, key: Any) -> OpenTransaction:
    """What partition and coordinator say of one transaction.

    It hangs where the coordinator has no open transaction of that producer on the partition: no
    marker will ever be written.
    """
    transaction = OpenTransaction(
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.current_transaction_start_offset,
        producer.last_timestamp,
    )
    if told is None:
        return transaction
    state = str(getattr(told.state, "value", told.state))
    is_open = state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT)
    # A timeout raises the epoch in the state PrepareAbort, before the markers are there.
    is_same = told.producer_epoch >= producer.producer_epoch
    return transaction._replace(
        transactional_id=name,
        state=state,
        coordinator_producer_epoch=told.producer_epoch,
        started_ms=told.transaction_start_time_ms,
        timeout_ms=told.transaction_timeout_ms,
        is_hanging=not (is_open and is_same and key in told.topic_partitions),
    )


def gather(admin: Any, connection: Connection, name: str, now_ms: int) -> Answer:
    """Ask the cluster about the partition of that name. Raises CommandError where it is none."""
    (partition, *others) = topic_or_partition(admin, name)
    if others:
        from barnabas.cli.errors import CommandError

        raise CommandError(f"{name!r} has {len(others) + 1} partitions: name one, as in {name}-0")
    bounds = list_offsets(admin, [partition])[partition]
    stable, end = bounds["last_stable_offset"], bounds["high_watermark"]
    transactions = find_open_transactions(admin, partition) if stable < end else []
    groups = _waiting_groups(admin, connection, partition, stable) if stable < end else []
    return Answer(partition, stable, end, tuple(transactions), tuple(groups), now_ms)


def _waiting_groups(
    admin: Any, connection: Connection, partition: TopicPartition, last_stable_offset: int
) -> list[WaitingGroup]:
    """The groups that have not passed the last stable offset, by name."""
    found = []
    readable: dict[int, bool] = {}
    for listed in sorted(admin.list_groups(), key=lambda row: str(row["group_id"])):
        group = listed["group_id"]
        described = admin.describe_groups([group])[group]
        owners = [
            member for member in described["members"] if partition in assigned_partitions(member)
        ]
        committed = committed_offsets(admin, group).get(partition, -1)
        if (committed < 0 and not owners) or committed > last_stable_offset:
            continue
        if committed >= 0 and committed not in readable:
            readable[committed] = committed < last_stable_offset and _has_committed_records(
                connection, partition, committed, last_stable_offset
            )
        members = tuple(
            f"{member['client_id']} at {str(member['client_host']).removeprefix('/')}"
            for member in owners
        )
        waits = committed >= 0 and not readable[committed]
        found.append(WaitingGroup(group, described["group_state"], committed, waits, members))
    return found


def _has_committed_records(
    connection: Connection, partition: TopicPartition, start: int, end: int
) -> bool:
    """Whether read_committed gives a record between two offsets: markers and aborted data are
    none, so a group may stand before them and have nothing to read.
    """
    import time

    (key,) = client_partitions([partition])
    with connection.consumer(isolation_level="read_committed") as consumer:
        consumer.assign([key])
        consumer.seek(key, start)
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while time.monotonic() < deadline and consumer.position(key) < end:
            records = consumer.poll(timeout_ms=200, max_records=1)
            if any(record.offset < end for rows in records.values() for record in rows):
                return True
    return False


# --- in words -----------------------------------------------------------------------------------


def sentence(answer: Answer) -> str:
    """Why a read_committed reader stops in the partition, and what will end that."""
    if not answer.is_stuck:
        return (
            f"{answer.partition} is not stuck: its last stable offset is its end, "
            f"{answer.high_watermark}."
        )
    if not answer.transactions:
        return (
            f"{answer.partition} was stuck at offset {answer.last_stable_offset}, and no "
            "transaction is open on it any more: ask again."
        )
    return " ".join(_sentences(answer))


def _sentences(answer: Answer) -> Iterator[str]:
    holder, *others = answer.transactions
    held = answer.high_watermark - answer.last_stable_offset
    since = holder.started_ms if holder.started_ms >= 0 else holder.last_timestamp_ms
    age = f" since {time_text(since)} ({duration_text(max(answer.now_ms - since, 0))})"
    owner = (
        f"of transactional id {holder.transactional_id!r}, "
        if holder.transactional_id is not None
        else "of a transactional id that no coordinator knows, "
    )
    yield (
        f"{answer.partition} is stuck at offset {answer.last_stable_offset}, "
        f"{count_text(held, 'offset')} before its end: the transaction {owner}"
        f"producer {holder.producer_id} epoch {holder.producer_epoch} (Kafka's protocol does not "
        f"tell its client's address), is open there{age if since >= 0 else ''}"
        f"{f', in state {holder.state}' if holder.state and not holder.is_hanging else ''}."
    )
    yield _end_of(holder, answer)
    if others:
        count = count_text(len(others), "other transaction is", "other transactions are")
        yield f"Behind it {count} open, so the partition may stay stuck after that."
    yield _groups_of(answer)


def _end_of(holder: OpenTransaction, answer: Answer) -> str:
    """What will end the transaction, and when."""
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
    """The answer for programs."""
    return {
        "topic": answer.partition.topic,
        "partition": answer.partition.partition,
        "stuck": answer.is_stuck,
        "last_stable_offset": answer.last_stable_offset,
        "high_watermark": answer.high_watermark,
        "explanation": sentence(answer),
        "transactions": [
            {
                "transactional_id": row.transactional_id,
                "producer_id": row.producer_id,
                "producer_epoch": row.producer_epoch,
                "client_address": None,
                "start_offset": row.start_offset,
                "state": row.state,
                "start_time_ms": row.started_ms,
                "last_timestamp_ms": row.last_timestamp_ms,
                "timeout_ms": row.timeout_ms,
                "timeout_at_ms": row.ends_ms,
                "hanging": row.is_hanging,
            }
            for row in answer.transactions
        ],
        "groups": [{**group._asdict(), "members": list(group.members)} for group in answer.groups],
    }
