"""What holds the last stable offset of a partition, found by Kafka's protocol.

The values, and the sentence made from them, are in `barnabas.why_stuck`. The requests:

    DescribeProducers      producers with an open transaction on the partition, and where it began
    ListTransactions       the transactional id of a producer
    DescribeTransactions   its state, when it began, its timeout, its partitions
    OffsetFetch            the groups whose offsets are at the last stable offset

The client's address is in none of Apache Kafka's answers; Barnabas adds it to DescribeTransactions
(`barnabas.protocol.client_hosts`). Source: KIP-664.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from barnabas.cli.cluster import Connection
from barnabas.cli.groups import assigned_partitions, committed_offsets
from barnabas.cli.offsets import (
    client_partitions,
    list_offsets,
    partitions_of,
    topic_or_partition,
)
from barnabas.protocol.topic_partition import TopicPartition
from barnabas.why_stuck import (
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Answer,
    OpenTransaction,
    WaitingGroup,
)

PATIENCE_MS = 2000


def find_open_transactions(admin: Any, partition: TopicPartition) -> list[OpenTransaction]:
    """The open transactions of a partition, from the one with the lowest first offset on."""
    return open_transactions(admin, [partition])[partition]


def open_transactions(
    admin: Any, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, list[OpenTransaction]]:
    """The open transactions of partitions, each from the one with the lowest first offset on."""
    keys = dict(zip(client_partitions(partitions), partitions, strict=True))
    if not keys:
        return {}
    described_producers = admin.describe_producers(list(keys))
    holding = {
        key: sorted(
            (
                row
                for row in described_producers[key].active_producers
                if row.current_transaction_start_offset >= 0
            ),
            key=lambda row: int(row.current_transaction_start_offset),
        )
        for key in keys
    }
    producer_ids = sorted({row.producer_id for rows in holding.values() for row in rows})
    if not producer_ids:
        return {partition: [] for partition in partitions}
    names = {
        row.producer_id: row.transactional_id
        for listed in admin.list_transactions(producer_id_filters=producer_ids).values()
        for row in listed
    }
    described = admin.describe_transactions(sorted(names.values())) if names else {}
    hosts = admin.client_hosts(sorted(names.values())) if names else {}
    return {
        partition: [
            _join(row, name, described.get(name), key)._replace(client_address=hosts.get(name))
            for row in holding[key]
            for name in (names.get(row.producer_id),)
        ]
        for key, partition in keys.items()
    }


class StuckPartition(NamedTuple):
    """A partition that open transactions hold. holder: the first of them; None if it has ended."""

    partition: TopicPartition
    last_stable_offset: int
    high_watermark: int
    holder: OpenTransaction | None

    @property
    def held(self) -> int:
        """How many offsets a read_committed reader does not get."""
        return self.high_watermark - self.last_stable_offset

    def age_ms(self, now_ms: int) -> int:
        """How long it has been stuck, as far as is known."""
        if self.holder is None:
            return 0
        return max(now_ms - self.holder.since_ms, 0) if self.holder.since_ms >= 0 else 0


def stuck_partitions(admin: Any) -> list[StuckPartition]:
    """All partitions that are stuck, by name."""
    bounds = list_offsets(admin, partitions_of(admin.describe_topics(), with_leader=True))
    stuck = {
        partition: bound
        for partition, bound in sorted(bounds.items())
        if bound["last_stable_offset"] < bound["high_watermark"]
    }
    transactions = open_transactions(admin, list(stuck))
    return [
        StuckPartition(
            partition,
            bound["last_stable_offset"],
            bound["high_watermark"],
            next(iter(transactions[partition]), None),
        )
        for partition, bound in stuck.items()
    ]


def owner_text(transaction: OpenTransaction | None) -> str:
    """Whose transaction it is: the transactional id, and the client's address if it is known."""
    if transaction is None:
        return ""
    name = transaction.transactional_id or f"producer {transaction.producer_id}"
    address = transaction.client_address
    return f"{name} at {address}" if address else name


def state_text(transaction: OpenTransaction | None) -> str:
    """The state for people: also whether it hangs."""
    if transaction is None:
        return ""
    return "hangs" if transaction.is_hanging else str(transaction.state)


def _join(producer: Any, name: str | None, description: Any, key: Any) -> OpenTransaction:
    """Join what partition and coordinator know of one transaction.

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
    if description is None:
        return transaction
    state = str(getattr(description.state, "value", description.state))
    is_open = state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT)
    # A timeout raises the epoch in the state PrepareAbort, before the markers are written.
    is_same = description.producer_epoch >= producer.producer_epoch
    return transaction._replace(
        transactional_id=name,
        state=state,
        coordinator_producer_epoch=description.producer_epoch,
        started_ms=description.transaction_start_time_ms,
        timeout_ms=description.transaction_timeout_ms,
        is_hanging=not (is_open and is_same and key in description.topic_partitions),
    )


def gather(admin: Any, connection: Connection, name: str, now_ms: int) -> Answer:
    """Gather the answer for the partition of that name. Raises CommandError for an unknown one."""
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
    waiting_groups = []
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
        waiting_groups.append(
            WaitingGroup(group, described["group_state"], committed, waits, members)
        )
    return waiting_groups


def _has_committed_records(
    connection: Connection, partition: TopicPartition, start: int, end: int
) -> bool:
    """Whether a read_committed reader gets a record between two offsets.

    Markers and aborted data are skipped: a group may be before them and have nothing to read.
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
