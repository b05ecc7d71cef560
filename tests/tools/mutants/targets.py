"""Which functions are mutated, and which of these handle clients' data."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

# The functions to mutate, by module or pattern of modules. None means all functions.
TARGETS: dict[str, tuple[str, ...] | None] = {
    "coordinator/*.py": None,
    "storage/*.py": None,
    "broker/groups/group_runtime.py": None,
    "broker/handlers/transactions.py": None,
    "broker/handlers/produce.py": None,
    "broker/handlers/fetch.py": None,
    "broker/core.py": (
        "Broker.on_flushed",
        "Broker.on_tick",
        "Broker.next_deadline_ms",
        "Broker.close_logs",
    ),
    "broker/logs/*.py": None,
    "broker/quotas/*.py": None,
    "barnabas/replication/*.py": None,
    "broker/security/*.py": None,
    "broker/share_partitions/*.py": None,
    "broker/transactions/*.py": None,
}

# Functions in which a mistake may lose, duplicate, hide or reveal data, or lose a decision or a
# consumer's progress. They deal with append, flush, recovery, markers, decisions, fencing, group
# offsets, isolation and deletion. Left out are responses to admin requests, metrics, refusals, and
# the format of indexes, which can be rebuilt.
DATA_PATHS: dict[str, tuple[str, ...]] = {
    "coordinator/transactions/transaction_coordinator.py": (
        "TransactionCoordinator.replay", "TransactionCoordinator.apply",
        "TransactionCoordinator.prepared", "TransactionCoordinator.on_power_loss",
        "TransactionCoordinator.on_journaled_decision", "TransactionCoordinator.decision_of",
        "TransactionCoordinator.check_connection", "TransactionCoordinator.on_commit_requested",
        "TransactionCoordinator.on_end_txn", "TransactionCoordinator._end",
        "TransactionCoordinator.complete", "TransactionCoordinator.on_tick",
    ),
    "coordinator/transactions/fencing.py": ("*",),
    "coordinator/transactions/partition_additions.py": (
        "PartitionAdditions._add", "PartitionAdditions.with_partitions",
        "PartitionAdditions._verif*", "PartitionAdditions.verify*",
        "PartitionAdditions.open_partitions", "PartitionAdditions.code_of_batch",
    ),
    "coordinator/transactions/producer_sessions.py": (
        "ProducerSessions.begin_session", "ProducerSessions._next_session",
        "ProducerSessions.on_power_loss",
    ),
    "coordinator/transactions/transaction_table.py": ("TransactionTable.decision",),
    "coordinator/transactions/transaction_state.py": (
        "TransactionMetadata.*", "is_epoch_exhausted",
    ),
    "coordinator/groups/group_coordinator.py": (
        "GroupCoordinator.replay*", "GroupCoordinator._replay*", "GroupCoordinator.on_loaded",
    ),
    "coordinator/groups/offsets/offset_commits.py": ("OffsetCommits.*",),
    "coordinator/groups/offsets/offset_fetches.py": ("OffsetFetches._offsets_of",),
    "coordinator/groups/offsets/offset_removal.py": ("OffsetRemoval.on_topics_deleted",),
    "coordinator/groups/group_offsets.py": ("GroupOffsets.*",),
    "coordinator/transactions/producer_ids.py": ("*",),
    "storage/producers/producer_state.py": ("*",),
    "storage/files/flush_journal.py": ("*",),
    "storage/opening/recovery.py": ("*",),
    "storage/opening/last_run.py": ("*",),
    "storage/opening/partition_files.py": ("*",),
    "storage/opening/epoch_recovery.py": ("*",),
    "storage/opening/log_loader.py": ("*",),
    "storage/opening/new_log.py": ("*",),
    "storage/opening/torn_tail.py": ("*",),
    "storage/directory/offset_checkpoints.py": ("*",),
    "storage/directory/log_manager.py": (
        "LogManager.load", "LogManager._load_log", "LogManager.note_boot", "LogManager.remove",
        "LogManager._recovery_points", "LogManager.write_*", "LogManager.close",
        "LogManager.create",
    ),
    "storage/log/log.py": (
        "Log.append*", "Log.write", "Log._update_stable",
        "Log.*transaction*", "Log._roll",
        "Log.read", "Log.delete_records_before", "Log._raise_log_start", "Log.*flush",
    ),
    "storage/log/broker_appends.py": ("*",),
    "storage/log/segment_turnover.py": ("*",),
    "storage/producers/refused_batches.py": ("*",),
    "storage/log/durability.py": ("Durability.*",),
    "storage/log/log_reader.py": ("LogReader.*",),
    "storage/producers/producer_snapshots.py": (
        "ProducerSnapshots.write", "ProducerSnapshots.read", "ProducerSnapshots.latest",
        "ProducerSnapshots.state_at*", "aborted_entry", "replay*",
    ),
    "storage/producers/producer_window.py": ("*",),
    "storage/segments/segment_list.py": (
        "SegmentList.find", "SegmentList.headers_before",
    ),
    "storage/files/checkpoints.py": ("encode_offsets", "decode_offsets"),
    "storage/cleaning/cleaner.py": ("_Transactions.*", "_Cleaner.*"),
    "storage/cleaning/clean_plan.py": ("*",),
    "storage/cleaning/segment_swap.py": ("*",),
    "broker/groups/group_runtime.py": ("*",),
    "broker/logs/flush_queue.py": ("*",),
    "broker/handlers/produce.py": ("*",),
    "broker/handlers/fetch.py": ("*",),
    "broker/handlers/transactions.py": ("*.on_txn_offset_commit", "*._commit_offsets"),
    "broker/transactions/transaction_end.py": ("*",),
    "broker/transactions/transaction_recovery.py": ("*",),
    "broker/transactions/unwritten_markers.py": ("*",),
}  # fmt: skip


def modules(root: Path) -> Iterator[str]:
    """The modules with at least one target function."""
    for folder in sorted({pattern.partition("/")[0] for pattern in TARGETS}):
        for path in sorted((root / folder).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if any(fnmatchcase(name, pattern) for pattern in TARGETS):
                yield name


def is_target(module: str, function: str) -> bool:
    """Whether the function is mutated."""
    for pattern, functions in TARGETS.items():
        if fnmatchcase(module, pattern):
            return functions is None or any(fnmatchcase(function, each) for each in functions)
    return False


def is_on_data_path(module: str, function: str) -> bool:
    """Whether a mistake in the function may lose, duplicate, hide or reveal data."""
    return any(fnmatchcase(function, pattern) for pattern in DATA_PATHS.get(module, ()))
