"""Which code is mutated, and which of it holds what clients have entrusted to the broker."""

from __future__ import annotations

from fnmatch import fnmatchcase

# A module or package, and the functions in it that count; None: all.
TARGETS: dict[str, tuple[str, ...] | None] = {
    "coordinator/*.py": None,
    "storage/*.py": None,
    "broker/coordinator_runtime.py": None,
    "broker/flush_queue.py": None,
    "broker/handlers/transactions.py": None,
    "broker/handlers/produce.py": None,
    "broker/handlers/fetch.py": None,
    "broker/core.py": (
        "Broker.on_flushed",
        "Broker.on_tick",
        "Broker.next_deadline_ms",
        "Broker.close_logs",
    ),
    "broker/log_progress.py": None,
    "broker/start.py": None,
    "broker/topic_deletion.py": None,
    "broker/transaction_end.py": None,
    "broker/transaction_recovery.py": None,
    "broker/unwritten_markers.py": None,
    "broker/topics.py": (
        "TopicRegistry.internal_log",
        "TopicRegistry._end_deletions*",
    ),
}

# Paths on which a mistake loses, doubles, hides or reveals data, or forgets what was decided or
# read: append, flush, recovery, markers, decisions, fencing, group offsets, isolation, deletion.
# Answers to admin requests, metrics, orderly refusals and the layout of indexes, which are rebuilt,
# are not among them.
DATA_PATHS: dict[str, tuple[str, ...]] = {
    "coordinator/transaction_coordinator.py": (
        "TransactionCoordinator.replay", "TransactionCoordinator.apply",
        "TransactionCoordinator.prepared", "TransactionCoordinator.on_power_loss",
        "TransactionCoordinator.on_journaled_decision", "TransactionCoordinator.decision_of",
        "TransactionCoordinator.begin_session", "TransactionCoordinator._next_session",
        "TransactionCoordinator._add", "TransactionCoordinator._with_partitions",
        "TransactionCoordinator._verif*", "TransactionCoordinator.verify*",
        "TransactionCoordinator.check_connection", "TransactionCoordinator.on_commit_requested",
        "TransactionCoordinator.on_end_txn", "TransactionCoordinator._decision",
        "TransactionCoordinator.complete", "TransactionCoordinator.on_tick", "_current",
    ),
    "coordinator/transaction_state.py": ("TransactionMetadata.*", "is_epoch_exhausted"),
    "coordinator/group_coordinator.py": (
        "GroupCoordinator.replay*", "GroupCoordinator._replay*", "GroupCoordinator._check_commit",
        "GroupCoordinator._offset_records", "GroupCoordinator._fetch_offsets",
        "GroupCoordinator.on_topics_deleted", "GroupCoordinator.on_txn_offset_commit",
        "GroupCoordinator.on_offset_commit", "GroupCoordinator.on_loaded",
    ),
    "coordinator/offsets.py": ("GroupOffsets.*",),
    "coordinator/producer_ids.py": ("*",),
    "storage/producer_state.py": ("*",),
    "storage/flush_journal.py": ("*",),
    "storage/recovery.py": ("*",),
    "storage/last_run.py": ("*",),
    "storage/partition_files.py": ("*",),
    "storage/epoch_recovery.py": ("*",),
    "storage/log_loader.py": ("*",),
    "storage/torn_tail.py": ("*",),
    "storage/offset_checkpoints.py": ("*",),
    "storage/log_manager.py": (
        "LogManager.load", "LogManager._load_log", "LogManager.note_boot", "LogManager.delete",
        "LogManager._recovery_points", "LogManager.write_*", "LogManager.close",
        "LogManager.create",
    ),
    "storage/log.py": (
        "Log.append*", "Log._write", "Log._advance", "Log._update_stable",
        "Log.*transaction*", "Log.*refused", "Log.check_overtaking", "Log._roll",
        "Log.read", "Log.delete_records_before", "Log._raise_log_start", "Log.*flush",
        "Log.replace_segments",
    ),
    "storage/durability.py": ("Durability.*",),
    "storage/log_reader.py": ("LogReader.*",),
    "storage/producer_snapshots.py": (
        "ProducerSnapshots.write", "ProducerSnapshots.read", "ProducerSnapshots.latest",
        "ProducerSnapshots.state_at*", "aborted_entry", "replay_*",
    ),
    "storage/producer_window.py": ("*",),
    "storage/segment_list.py": (
        "SegmentList.find", "SegmentList.headers_before",
    ),
    "storage/checkpoints.py": ("encode_offsets", "decode_offsets"),
    "storage/cleaner.py": ("_Transactions.*", "_Cleaner.*"),
    "storage/clean_plan.py": ("*",),
    "storage/segment_swap.py": ("*",),
    "broker/coordinator_runtime.py": ("*",),
    "broker/flush_queue.py": ("*",),
    "broker/handlers/produce.py": ("*",),
    "broker/handlers/fetch.py": ("*",),
    "broker/handlers/transactions.py": ("on_txn_offset_commit",),
    "broker/transaction_end.py": ("*",),
    "broker/transaction_recovery.py": ("*",),
    "broker/unwritten_markers.py": ("*",),
}  # fmt: skip


def is_target(module: str, function: str) -> bool:
    """Whether mutants of the function count."""
    for pattern, functions in TARGETS.items():
        if fnmatchcase(module, pattern):
            return functions is None or any(fnmatchcase(function, each) for each in functions)
    return False


def is_on_data_path(module: str, function: str) -> bool:
    """Whether a mistake in the function may lose, double, hide or reveal data."""
    return any(fnmatchcase(function, pattern) for pattern in DATA_PATHS.get(module, ()))
