"""The transactional ids of one coordinator, and functions that make Results for their partitions.

The coordinator and its parts (sessions, additions, verification) share one table. The parts read
it; only `TransactionCoordinator.replay` and `apply` write it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from barnabas.coordinator.result import Reply, Result, partition_for
from barnabas.coordinator.transactions.transaction_records import record_of
from barnabas.coordinator.transactions.transaction_state import (
    PREPARED,
    Decision,
    SessionAtEnd,
    TransactionMetadata,
    WaitingInit,
)


@dataclass(frozen=True)
class TxnSettings:
    """The broker's settings of transactions.

    The first four fields are transaction.max.timeout.ms, transactional.id.expiration.ms, the level
    of transaction.version, and transaction.two.phase.commit.enable. The level determines how the
    coordinator's own aborts raise the epoch.

    is_durable: whether a decision must be durable before its response is sent.
    """

    transaction_max_timeout_ms: int = 15 * 60 * 1000
    transactional_id_expiration_ms: int = 7 * 24 * 3600 * 1000
    transaction_version: int = 0
    two_phase_commit_enable: bool = False
    is_durable: bool = True


class TransactionTable:
    """The hard state of all transactional ids.

    by_id: the last record of each transactional id. two_phase: the ids in a session of two-phase
    commit. kept_from: the producers whose transactions were kept for another producer and are not
    complete. two_phase and kept_from are empty if two-phase commit is not used. settings: the
    current settings, which the host replaces when a feature changes.
    """

    def __init__(
        self,
        partition_count: int,
        settings: TxnSettings,
        coordinator_epoch: Callable[[int], int],
        is_decided: Callable[[str], bool],
    ) -> None:
        assert partition_count > 0
        self.settings = settings
        self.by_id: dict[str, TransactionMetadata] = {}
        self.two_phase: set[str] = set()
        self.kept_from: set[tuple[int, int]] = set()
        self._partition_count = partition_count
        self._coordinator_epoch = coordinator_epoch
        self._is_decided = is_decided

    def partition_of(self, transactional_id: str) -> int:
        """The partition of __transaction_state that stores the id."""
        return partition_for(transactional_id, self._partition_count)

    def is_ending(self, transaction: TransactionMetadata) -> bool:
        """Whether the transaction of the id is decided and not complete.

        This can be so before its Prepare record has been appended.
        """
        return transaction.state in PREPARED or self._is_decided(transaction.transactional_id)

    def decision(
        self, prepare: TransactionMetadata, waiting: WaitingInit | None = None
    ) -> Decision:
        """Return the decision in a Prepare record, as an effect that the host carries out."""
        partition = self.partition_of(prepare.transactional_id)
        return prepare.decision(self._coordinator_epoch(partition), waiting)

    def result(
        self, transactional_id: str, moved: list[TransactionMetadata], replies: list[Reply]
    ) -> Result:
        """Make the result for the partition of one transactional id.

        The result has the partition even without records, since the reply may depend on a record
        that is not flushed yet.

        Takes:  transactional_id, empty in some rejected requests; moved, the content of the records
                to write.
        """
        return Result(
            partition=self.partition_of(transactional_id) if transactional_id else -1,
            records=[record_of(metadata) for metadata in moved],
            transactions=moved,
            replies=replies,
            durable=transactional_id in self.two_phase,
        )

    def results(
        self,
        moved: Iterable[TransactionMetadata],
        effects: list[Decision | SessionAtEnd],
        replies: list[Reply],
    ) -> Result:
        """Make one result for each internal partition, ordered by the first record of each
        partition.

        The last result has the replies and effects.
        """
        by_partition: dict[int, Result] = {}
        for metadata in moved:
            partition = self.partition_of(metadata.transactional_id)
            result = by_partition.setdefault(partition, Result(partition=partition))
            result.records.append(record_of(metadata))
            result.transactions.append(metadata)
        chain = list(by_partition.values()) or [Result()]
        chain[-1].replies.extend(replies)
        chain[-1].durable = bool(replies) and any(metadata.is_two_phase for metadata in moved)
        chain[-1].effects.extend(effects)
        chain[0].more.extend(chain[1:])
        return chain[0]
