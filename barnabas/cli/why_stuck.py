"""Finds the transactions that hold back the last stable offset of a partition, by Kafka's protocol.

The result types, and the sentence made from them, are in `barnabas.why_stuck`. The requests:

    DescribeProducers      producers with an open transaction on the partition, and where it began
    ListTransactions       the transactional id of a producer
    DescribeTransactions   its state, when it began, its timeout, its partitions
    OffsetFetch            the groups whose offsets are at the last stable offset
    DescribeConfigs        the topics that show whole transactions, across their partitions

No response of Apache Kafka has the client's address. Barnabas adds it to DescribeTransactions
(`barnabas.protocol.client_hosts`). Source: KIP-664.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.cli.client.cluster_client import ClusterClient
from barnabas.cli.client.cuts import whole_topics
from barnabas.cli.client.groups import SHARE, committed, describe_group, list_groups
from barnabas.cli.client.topics import name_of
from barnabas.cli.client.transactions import (
    ActiveProducer,
    Transaction,
    active_producers,
    client_hosts,
    describe_transactions,
    list_transactions,
)
from barnabas.cli.errors import CommandError
from barnabas.cli.offsets import describe_topics, list_offsets, partitions_of, topic_or_partition
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.why_stuck import (
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Answer,
    OpenTransaction,
    WaitingGroup,
)


def find_open_transactions(
    admin: ClusterClient, partition: TopicPartition
) -> list[OpenTransaction]:
    """The open transactions of a partition, in order of their first offsets."""
    return open_transactions(admin, [partition])[partition]


def open_transactions(
    admin: ClusterClient, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, list[OpenTransaction]]:
    """The open transactions of each partition, in order of their first offsets."""
    holding = {
        partition: sorted(
            (row for row in producers if row.start_offset >= 0), key=lambda row: row.start_offset
        )
        for partition, producers in active_producers(admin, partitions).items()
    }
    producer_ids = sorted({row.producer_id for rows in holding.values() for row in rows})
    if not producer_ids:
        return {partition: [] for partition in partitions}
    names = {
        row.producer_id: row.transactional_id for row in list_transactions(admin, producer_ids)
    }
    ids = sorted(names.values())
    described = describe_transactions(admin, ids, missing_ok=True)
    hosts = client_hosts(admin, ids)
    return {
        partition: [
            join(row, described.get(name), partition)._replace(client_address=hosts.get(name))
            for row in holding[partition]
            for name in (names.get(row.producer_id, ""),)
        ]
        for partition in partitions
    }


class StuckPartition(NamedTuple):
    """A partition that open transactions block.

    holder: the first of these transactions, or, with barnabas.transactions.whole, the oldest in
    another partition; None if it has ended since.
    """

    partition: TopicPartition
    last_stable_offset: int
    high_watermark: int
    holder: OpenTransaction | None

    @property
    def held(self) -> int:
        """The number of offsets that a read_committed reader cannot read yet."""
        return self.high_watermark - self.last_stable_offset

    def age_ms(self, now_ms: int) -> int:
        """How long the partition has been stuck; 0 if unknown."""
        if self.holder is None:
            return 0
        return max(now_ms - self.holder.since_ms, 0) if self.holder.since_ms >= 0 else 0


def stuck_partitions(admin: ClusterClient) -> list[StuckPartition]:
    """All partitions that are stuck, by name."""
    bounds = list_offsets(admin, partitions_of(describe_topics(admin), with_leader=True))
    stuck = {
        partition: bound
        for partition, bound in sorted(bounds.items())
        if bound["last_stable_offset"] < bound["high_watermark"]
    }
    transactions = open_transactions(admin, list(stuck))
    rows = []
    whole: frozenset[str] | None = None
    for partition, bound in stuck.items():
        stable, end = bound["last_stable_offset"], bound["high_watermark"]
        holder = next(iter(transactions[partition]), None)
        if holder is None or holder.start_offset > stable:
            if whole is None:
                whole = whole_topics(admin, {one.topic for one in stuck})
            others = _elsewhere(partition, transactions, whole)
            holder = others[0][1] if others else holder
        rows.append(StuckPartition(partition, stable, end, holder))
    return rows


def holders(
    admin: ClusterClient, stable: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[TopicPartition, OpenTransaction]]:
    """The transaction that holds back each partition, with the partition in which it is open: the
    same one, or, with barnabas.transactions.whole, the one with the oldest transaction.

    Takes: stable, the last stable offsets. Raises: RefusedError.
    """
    own = open_transactions(admin, sorted(stable))
    found = {
        partition: (partition, rows[0])
        for partition, rows in own.items()
        if rows and rows[0].start_offset <= stable[partition]
    }
    if len(found) == len(stable):
        return found
    topics = describe_topics(admin)
    whole = whole_topics(admin, [name_of(topic) for topic in topics])
    left = [one for one in stable if one not in found and one.topic in whole]
    if left:
        of_whole = [topic for topic in topics if name_of(topic) in whole]
        transactions = open_transactions(admin, partitions_of(of_whole, with_leader=True))
        for partition in left:
            others = _elsewhere(partition, transactions, whole)
            if others:
                found[partition] = others[0]
    return found


def _elsewhere(
    partition: TopicPartition,
    transactions: Mapping[TopicPartition, Sequence[OpenTransaction]],
    whole: frozenset[str],
) -> list[tuple[TopicPartition, OpenTransaction]]:
    """The transactions that may hold back a partition from others, the oldest first."""
    if partition.topic not in whole:
        return []
    found = [
        (other, row)
        for other, rows in transactions.items()
        if other != partition and other.topic in whole
        for row in rows
    ]
    return sorted(found, key=lambda pair: pair[1].since_ms)


def owner_text(transaction: OpenTransaction | None) -> str:
    """The owner of a transaction: the transactional id, and the client's address if it is known."""
    if transaction is None:
        return ""
    name = transaction.transactional_id or f"producer {transaction.producer_id}"
    address = transaction.client_address
    return f"{name} at {address}" if address else name


def state_text(transaction: OpenTransaction | None) -> str:
    """The transaction's state as text; "hangs" for a hanging transaction."""
    if transaction is None:
        return ""
    return "hangs" if transaction.is_hanging else str(transaction.state)


def join(
    producer: ActiveProducer, described: Transaction | None, partition: TopicPartition
) -> OpenTransaction:
    """Combine what the partition and the coordinator report about a transaction.

    The transaction hangs if the coordinator has no open transaction of this producer on the
    partition. No marker will then be written for it.
    """
    transaction = OpenTransaction(
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.start_offset,
        producer.last_timestamp_ms,
    )
    if described is None:
        return transaction
    is_open = described.state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT)
    # After a timeout the coordinator raises the epoch in the state PrepareAbort, before it writes
    # the markers. So its epoch may be higher than the partition's.
    is_same = described.producer_epoch >= producer.producer_epoch
    return transaction._replace(
        transactional_id=described.transactional_id,
        state=described.state,
        coordinator_producer_epoch=described.producer_epoch,
        started_ms=described.started_ms,
        timeout_ms=described.timeout_ms,
        is_hanging=not (is_open and is_same and partition in described.partitions),
    )


def gather(admin: ClusterClient, name: str, now_ms: int) -> Answer:
    """Gather the facts about the partition of that name. Raises: CommandError for an unknown
    partition.
    """
    (partition, *others) = topic_or_partition(admin, name)
    if others:
        raise CommandError(f"{name!r} has {len(others) + 1} partitions: name one, as in {name}-0")
    bounds = list_offsets(admin, [partition])[partition]
    stable, end = bounds["last_stable_offset"], bounds["high_watermark"]
    transactions = find_open_transactions(admin, partition) if stable < end else []
    groups = _waiting_groups(admin, partition, stable) if stable < end else []
    elsewhere: list[tuple[TopicPartition, OpenTransaction]] = []
    if stable < end and (not transactions or transactions[0].start_offset > stable):
        topics = describe_topics(admin)
        whole = whole_topics(admin, [name_of(topic) for topic in topics])
        if partition.topic in whole:
            partitions = partitions_of(
                (topic for topic in topics if name_of(topic) in whole), with_leader=True
            )
            elsewhere = _elsewhere(partition, open_transactions(admin, partitions), whole)
    return Answer(
        partition, stable, end, tuple(transactions), tuple(groups), now_ms, tuple(elsewhere)
    )


def _waiting_groups(
    admin: ClusterClient, partition: TopicPartition, last_stable_offset: int
) -> list[WaitingGroup]:
    """The groups that have not read past the last stable offset, by name."""
    waiting_groups = []
    readable: dict[int, bool] = {}
    for listed in list_groups(admin):
        described = describe_group(admin, listed.group)
        if described.protocol == SHARE:
            continue  # a share group commits no offsets
        owners = [member for member in described.members if partition in member.partitions]
        entry = committed(admin, listed.group).get(partition)
        offset = -1 if entry is None else entry.offset
        if (offset < 0 and not owners) or offset > last_stable_offset:
            continue
        if offset >= 0 and offset not in readable:
            readable[offset] = offset < last_stable_offset and _has_committed_records(
                admin, partition, offset, last_stable_offset
            )
        members = tuple(
            f"{member.client_id} at {member.client_host.removeprefix('/')}" for member in owners
        )
        waits = offset >= 0 and not readable[offset]
        waiting_groups.append(WaitingGroup(listed.group, described.state, offset, waits, members))
    return waiting_groups


def _has_committed_records(
    admin: ClusterClient, partition: TopicPartition, start: int, end: int
) -> bool:
    """Whether a read_committed reader gets a record between two offsets.

    Such a reader skips markers and aborted records. If the range has no other records, a group with
    the lower offset has nothing left to read.
    """
    from barnabas.cli.client.records import read_records  # most answers need no records

    found = read_records(admin, partition, start, end, read_committed=True)
    return next(found, None) is not None
