"""The order of steps where it matters. Each call that a coordinating function makes is an event
with a name, and the tests compare the whole list of events. Comments give the reasons.

If a step is missing, repeated or moved, the list changes. Otherwise only a crash between two steps
would show the difference.
"""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest

from barnabas.broker.core import Broker
from barnabas.broker.groups.group_runtime import GroupRuntime
from barnabas.broker.opening.start import Start
from barnabas.broker.slices import run_through
from barnabas.broker.topic_changes.topic_deletion import TopicDeletion
from barnabas.broker.transactions.transaction_recovery import TransactionRecovery
from barnabas.coordinator.groups.group_records import offset_tombstone
from barnabas.coordinator.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas.coordinator.result import Reply, Result
from barnabas.protocol.messages.heartbeat import HeartbeatResponse
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.opening.last_run import LastRun

NOW_MS = 5000


def bare(kind: type, **attributes: Any) -> Any:
    """An object of the class with only these attributes, made without its constructor."""
    made = object.__new__(kind)
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def steps(parts: Mock, *ignored: str) -> list[str]:
    """The names of all calls in their order, without the ignored ones."""
    names = [call[0] for call in parts.mock_calls]
    return [name for name in names if not name.endswith(("__", *ignored))]


def log(name: str, *, end: int = 1, durable: int = 0) -> Any:
    return SimpleNamespace(
        name=name, log_end_offset=end, durability=SimpleNamespace(durable_offset=durable)
    )


# --- a deletion of topics ------------------------------------------------------------------------


class Deletion:
    """A deletion whose parts are mocks."""

    def __init__(self) -> None:
        self.parts = parts = Mock()
        parts.cluster.readable_version = 0
        parts.shares.made = None  # no share group was ever used
        parts.metadata.deletions = {}
        parts.metadata.topic.return_value = None
        parts.topics.metadata = parts.metadata
        self.topic_id = uuid.UUID(int=1)
        parts.metadata.delete_topics.return_value = [self.topic_id]
        parts.topics.forget.return_value = [("t", 0, log("t-0")), ("t", 1, None)]
        parts.groups.removal.on_topics_deleted.return_value = [Result(), Result()]
        parts.topics.logs_of.return_value = [log("offsets")]
        parts.ends.undurable.return_value = []
        parts.flushes.wait.side_effect = lambda logs, then, now_ms: None
        parts.topics.logs.has_removed = True
        parts.topics.logs.removal_steps.return_value = ["the sync of the removals"]
        self.deletion = TopicDeletion(
            parts.topics, parts.groups, parts.runtime, parts.shares, parts.ends, parts.progress,
            parts.flushes, parts.compaction, parts.cluster, parts.syncs, parts.work,
            parts.unwritten, parts.cuts,
        )  # fmt: skip
        parts.reset_mock()


def test_the_steps_of_a_deletion_of_topics() -> None:
    one = Deletion()
    work = one.deletion.delete_topics(["t"], NOW_MS)
    wait = next(work)
    assert wait is not None
    wait.begin(lambda now_ms: None)
    assert steps(one.parts)[-1] == "syncs.run"
    removal, begun_ms = one.parts.syncs.run.call_args[0][:2]
    assert begun_ms == NOW_MS
    assert list(removal) == ["the sync of the removals"]
    run_through(work, NOW_MS, is_begun=True)
    assert steps(one.parts) == [
        "metadata.delete_topics",  # from here on the deletion cannot be undone
        "topics.forget",  # no request finds the topic any more
        # otherwise these markers would go to a new topic of the same name
        "ends.flush_completions",
        "topics.logs.remove",
        "progress.on_deleted",
        "cuts.on_deleted",
        "topics.logs.remove",
        "compaction.forget",
        "syncs.run",  # the removals are durable before the response
        "topics.logs.removal_steps",
        "metadata.topic",
        "groups.removal.on_topics_deleted",
        "runtime.run",
        "runtime.run",
        "topics.logs_of",
        "flushes.wait",  # the deletion is forgotten only after the tombstones are durable
    ]
    assert one.parts.cluster.readable_version == 1
    ((logs, end, now_ms), _) = one.parts.flushes.wait.call_args
    assert [each.name for each in logs] == ["offsets"]
    assert now_ms == NOW_MS
    one.parts.reset_mock()
    end(NOW_MS)
    assert steps(one.parts) == ["metadata.end_deletion"]
    one.parts.metadata.end_deletion.assert_called_once_with(one.topic_id)


def test_what_a_creation_waits_for() -> None:
    """A creation waits for transactions that are ending. If a topic of the same name was deleted,
    it also waits for a flush of the offsets.
    """
    one = Deletion()
    ends, undurable = one.parts.ends, []  # type: ignore[var-annotated]
    ends.undurable.side_effect = lambda: list(undurable)
    ends.is_ending_on.return_value = False
    ends.after_ends_on.side_effect = lambda names, call, now_ms: call(now_ms)
    assert one.deletion.before_creation(["t"], NOW_MS) is None
    completion, offsets = log("completions"), log("offsets")
    undurable += [completion, log("durable", durable=1)]
    one.parts.topics.logs_of.return_value = [offsets]
    one.parts.metadata.deletions = {one.topic_id: "other"}
    wait = one.deletion.before_creation(["t"], NOW_MS)
    assert wait is not None
    wait.begin(lambda now_ms: None)
    assert one.parts.flushes.wait.call_args[0][0] == [completion]
    one.parts.metadata.deletions = {one.topic_id: "t"}
    wait = one.deletion.before_creation(["t"], NOW_MS)
    assert wait is not None
    wait.begin(lambda now_ms: None)
    assert one.parts.flushes.wait.call_args[0][0] == [completion, offsets]
    undurable.clear()
    one.parts.metadata.deletions = {}
    ends.is_ending_on.return_value = True  # a large transaction whose markers are written in parts
    wait = one.deletion.before_creation(["t"], NOW_MS)
    assert wait is not None
    ends.after_ends_on.side_effect = None
    one.parts.flushes.wait.reset_mock()
    wait.begin(lambda now_ms: None)
    one.parts.flushes.wait.assert_not_called()
    undurable.append(completion)
    ends.after_ends_on.call_args[0][1](NOW_MS)
    assert one.parts.flushes.wait.call_args[0][0] == [completion], "as it is when they have ended"


# --- a start -------------------------------------------------------------------------------------


class Starting:
    """A start whose parts are mocks."""

    def __init__(self, *, has_lost: bool, deletions: bool = False) -> None:
        self.parts = parts = MagicMock()
        parts.logs.logs = {}
        parts.logs.lost_power = parts.logs.may_lack_acknowledged = has_lost
        parts.logs.config.may_lack_acknowledged = False
        parts.topics.logs = parts.logs
        parts.topics.metadata.deletions = {uuid.UUID(int=1): "t"} if deletions else {}
        parts.topics.logs_of.return_value = []
        parts.transactions.snapshot.return_value = {}
        parts.groups.offsets_beyond_log_end.return_value = []
        parts.deletion.end_deletions.side_effect = lambda names, now_ms: iter(())
        self.start = Start(
            parts.topics, parts.groups, parts.transactions, parts.ids, parts.runtime, parts.shares,
            parts.ends, parts.recovery, parts.deletion,
        )  # fmt: skip

    def resume(self) -> list[str]:
        self.parts.reset_mock()
        run = self.start.resume
        self.parts.deletion.end_deletions.side_effect = lambda names, now_ms: (_ for _ in ())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "barnabas.broker.opening.start.run_through", lambda work, now_ms: list(work)
            )
            run(NOW_MS, self.parts.sync)
        return steps(self.parts, ".snapshot", "logs_of")


def test_the_steps_of_a_start() -> None:
    one = Starting(has_lost=False, deletions=True)
    assert one.resume() == [
        "recovery.redo_decisions",  # runs before the state of the logs is used
        "ids.skip_used",
        "groups.on_loaded",
        "runtime.run_or_keep",
        "recovery.complete_transactions",
        # completed transactions may commit offsets, so this comes afterwards
        "groups.offsets_beyond_log_end",
        "deletion.end_deletions",  # the replay, which loads the groups' offsets, comes first
        "sync",  # readers may have seen records that were not flushed before the kill
    ]
    assert one.parts.transactions.is_loaded is True
    assert one.parts.logs.decisions == [], "the redone decisions are dropped from memory"


def test_the_steps_of_a_start_after_a_power_loss() -> None:
    one = Starting(has_lost=True)
    one.parts.topics.logs_of.side_effect = lambda name: (
        [one.parts.transaction_log] if name == TRANSACTIONS_TOPIC else []
    )
    one.parts.transaction_log.read_batches.return_value = []
    one.parts.groups.offsets_beyond_log_end.return_value = [MagicMock()]
    found = [name for name in one.resume() if not name.endswith("read_batches")]
    assert found == [
        "recovery.redo_decisions",
        "ids.skip_used",
        "groups.on_loaded",
        "runtime.run_or_keep",
        "recovery.complete_transactions",
        "transactions.sessions.on_power_loss",
        "ends.run",
        "recovery.end_all",
        "transaction_log.flush",  # the fences must be durable before requests are served
        "groups.on_power_loss",
        "runtime.run",
        "groups.offsets_beyond_log_end",
        "groups.reset_offsets",
        "runtime.run",
        "logs.note_boot",  # until this step, a crash repeats the recovery
        "sync",
    ]


def test_a_copy_that_may_lack_what_was_answered_skips_ids_of_producers() -> None:
    one = Starting(has_lost=True)
    one.parts.logs.config.may_lack_acknowledged = True
    found = one.resume()
    assert found.index("ids.skip") < found.index("transactions.sessions.on_power_loss")
    assert one.parts.transactions.sessions.on_power_loss.call_args[1] == {"spares_two_phase": False}


def test_the_steps_that_complete_transactions() -> None:
    parts = MagicMock()
    parts.logs.logs = {}
    parts.topics.logs = parts.logs
    parts.topics.logs_of.return_value = [parts.transaction_log]
    parts.transactions.snapshot.return_value = {}
    parts.transactions.prepared.return_value = ["first", "second"]
    parts.ends.flushes_commits = True
    seen = []
    parts.ends.resume.side_effect = lambda decision, now_ms: seen.append(parts.markers.commits_on)
    recovery = TransactionRecovery(
        parts.ends, parts.markers, parts.transactions, parts.topics, parts.flushes, parts.outbox
    )
    parts.reset_mock()
    recovery.complete_transactions(NOW_MS)
    assert steps(parts, ".snapshot") == [
        "markers.unwritten.remove",
        "transactions.prepared",
        "topics.logs_of",
        "transaction_log.flush",  # the decisions must be durable before readers see the markers
        "ends.resume",
        "ends.resume",
        "markers.whole.recover",  # of transactions whose markers are all written
    ]
    assert seen == [recovery._commits_on] * 2, (
        "`_commits_on` decides that a later open transaction is aborted"
    )
    assert parts.markers.commits_on is None, "`commits_on` is set only during a start"


# --- a group's records ---------------------------------------------------------------------------


class Runtime:
    """A runtime whose parts are mocks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parts = parts = Mock()
        parts.topics.internal_log.side_effect = lambda name, index, now_ms: log(
            f"{name}-{index}", end=7
        )
        monkeypatch.setattr("barnabas.broker.groups.group_runtime.append_records", parts.append)
        self.runtime = GroupRuntime(
            parts.groups, parts.topics, parts.flushes, parts.progress, parts.requests, parts.shares,
            parts.unwritten, parts.counters,
        )  # fmt: skip
        parts.reset_mock()


def result(partition: int, ticket: int, *more: Result) -> Result:
    return Result(
        partition=partition,
        records=[offset_tombstone("g", "t", partition)],
        replies=[Reply(ticket, HeartbeatResponse())],
        more=list(more),
    )


ONE = ["topics.internal_log", "append", "groups.replay", "progress.on_appended", "requests.reply"]


def test_a_groups_records_are_appended_replayed_and_then_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Runtime(monkeypatch)
    one.runtime.run(result(0, 1, result(1, 2), result(2, 3)), NOW_MS)
    assert steps(one.parts) == ONE * 3
    assert [call[0][1] for call in one.parts.topics.internal_log.call_args_list] == [0, 1, 2]
    assert [call[0][0] for call in one.parts.requests.reply.call_args_list] == [1, 2, 3]
    assert {call[0][1] for call in one.parts.groups.replay.call_args_list} == {6}


def test_answers_that_wait_for_the_disk_wait_for_each_log_that_was_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Runtime(monkeypatch)
    other = log("transactions")
    first = result(0, 1, Result(partition=5), result(1, 2))
    first.replies.clear()
    one.runtime.run_durably(first, [other], NOW_MS)
    logs, then, now_ms = one.parts.flushes.wait.call_args[0]
    assert [each.name for each in logs] == [
        f"{OFFSETS_TOPIC}-0", f"{OFFSETS_TOPIC}-1", "transactions",
    ]  # fmt: skip
    assert now_ms == NOW_MS
    assert one.parts.requests.reply.call_args_list == []
    then(NOW_MS)
    assert one.parts.requests.reply.call_args[0][0] == 2


# --- the logs ------------------------------------------------------------------------------------


def test_the_steps_of_a_clean_stop_of_the_logs() -> None:
    parts = MagicMock()
    parts.first.begin_close.return_value = ["a", "b"]
    parts.second.begin_close.return_value = ["b", "c"]
    manager = bare(
        LogManager, logs={("t", 0): parts.first, ("t", 1): parts.second}, journal=parts.journal,
        offline={}, disk=parts.disk, log_dir=parts.log_dir, _lock=parts.lock,
        write_checkpoints=parts.write_checkpoints,
    )  # fmt: skip
    manager.close(NOW_MS, parts.sync)
    assert steps(parts, "log_dir.path") == [
        "first.begin_close",
        "second.begin_close",
        "sync",  # one call for all logs
        "first.end_close",
        "second.end_close",
        "log_dir.store_epoch",
        "write_checkpoints",  # after the sync, since the checkpoints state what is durable
        "journal.begin_next",
        "journal.forget_older",
        "disk.write_atomic",  # the last write is the mark of the clean stop
        "lock.release",
    ]
    assert parts.sync.call_args[0][0] == ["a", "b", "c"]
    assert parts.write_checkpoints.call_args[1] == {"force": True}
    assert parts.journal.forget_older.call_args[1] == {"keep_earlier": False}
    assert manager._lock is None


LOAD = [
    "_take_directory",
    "_read_journals",
    "_checkpoints.read",
    "_checkpoints.read",
    "directories.find",
    "_upkeep.deleted_directories.add",
    "_upkeep.make_space",  # the writes that follow need space
    "_load_log",
    "_upkeep.hasten_checkpoints",
    "_report_lost",
    "_begin_leader_epoch",
    "write_checkpoints",
]


@pytest.mark.parametrize(
    ("last_run", "further"),
    [
        (
            LastRun.CLEAN,
            [
                "journal.forget_older",
                "disk.fsync_dir",
                "note_boot",
                "disk.unlink",  # the mark of the clean stop is removed last
                "disk.fsync_dir",  # a power loss must not restore the mark
            ],
        ),
        (LastRun.KILLED, ["note_boot"]),  # the journals are kept
        (LastRun.POWER_LOST, []),  # no note is written yet, so that a crash repeats the recovery
    ],
)
def test_the_steps_of_opening_the_logs(
    monkeypatch: pytest.MonkeyPatch, last_run: LastRun, further: list[str]
) -> None:
    parts = MagicMock()
    parts.directories.find.return_value = [SimpleNamespace(topic="t")]
    parts.directories.deleted = ["/x"]
    parts._read_journals.return_value.decisions = []
    parts._read_journals.return_value.lacking.return_value = ""
    module = "barnabas.storage.directory.log_manager"
    monkeypatch.setattr(f"{module}.PartitionDirectories", lambda log_dir: parts.directories)
    monkeypatch.setattr(f"{module}.FlushJournal", lambda disk, data_dir: parts.journal)
    names = (
        "_take_directory", "_read_journals", "_checkpoints", "_upkeep", "_load_log",
        "_report_lost", "_begin_leader_epoch", "write_checkpoints", "note_boot", "disk", "log_dir",
    )  # fmt: skip
    manager = bare(
        LogManager, data_dir="/data", last_run=last_run, offline={},
        **{name: getattr(parts, name) for name in names},
    )  # fmt: skip
    parts.reset_mock()
    manager.load(lambda topic: None, NOW_MS)
    found = [name for name in steps(parts, "log_dir.path") if "()" not in name]
    assert found == LOAD + further
    assert parts._upkeep.deleted_directories.add.call_args[0] == (NOW_MS, "/x")


def test_the_steps_of_a_tick_of_the_logs() -> None:
    parts = MagicMock()
    parts.log_dir.changed_starts.__bool__.return_value = True
    names = ("_upkeep", "_write_changed_starts", "run_steps", "_periodic_checkpoint", "log_dir")
    manager = bare(
        LogManager, _next_checkpoint_ms=NOW_MS, data_dir="/data",
        config=SimpleNamespace(recovery_checkpoint_interval_ms=60),
        **{name: getattr(parts, name) for name in names},
    )  # fmt: skip
    manager.on_tick(NOW_MS)
    assert steps(parts) == [
        "log_dir.builds.on_tick",
        "_upkeep.retain",
        "_write_changed_starts",  # comes first, since a log start must never move back
        "_periodic_checkpoint",
        "run_steps",
        "_upkeep.expire",
        "_upkeep.checkpoint_logs",
        "_upkeep.empty_trash",
    ]
    assert manager._next_checkpoint_ms == NOW_MS + 60
    parts.reset_mock()
    manager.on_tick(NOW_MS + 59)
    assert "run_steps" not in steps(parts)


# --- the core ------------------------------------------------------------------------------------

TICK = [
    "on_sent",  # deferred calls come before any other input
    "unwritten.on_tick",  # these markers belong to decisions made before this tick
    "disk_space.on_tick",
    "progress.on_tick",
    "groups.next_deadline_ms",
    "runtime.on_tick",
    "transactions.next_deadline_ms",
    "transactions.on_tick",
    "ends.run",
    "ends.on_tick",  # one part of a large transaction's markers
    "cuts.on_tick",  # a cut of what is readable now
    "logs.next_deadline_ms",
    "logs.on_tick",
    "compaction.on_tick",
    "flushes.on_tick",
    "topics.on_tick",
    "metadata.on_tick",
    "requests.work.on_tick",
    "requests.reading.on_tick",
    "wide.on_tick",
    "sasl.on_tick",
    "progress.try_fetches",  # changed settings may have made more records of these logs readable
    "progress.try_fetches",  # the starts of these logs are above what some fetches wait for
    "progress.try_risen",  # the last stable offsets of these logs rose with that of another log
    # This step is last: its responses contain slices of files, which must not be deleted before
    # they are sent.
    "purgatory.on_tick",
]


def test_the_steps_of_a_tick_of_the_core() -> None:
    parts = MagicMock()
    parts.shares.made = None
    for part in (parts.groups, parts.transactions, parts.logs):
        part.next_deadline_ms.return_value = NOW_MS
    parts.coordinators.made.groups, parts.coordinators.made.transactions = (
        parts.groups, parts.transactions,
    )  # fmt: skip
    parts.coordinators.made.group_runtime = parts.runtime
    parts.coordinators.made.transaction_ends = parts.ends
    parts.coordinators.made.cuts, parts.cuts.due_ms = parts.cuts, NOW_MS
    names = (
        "on_sent", "purgatory", "progress", "coordinators", "logs", "compaction",
        "flushes", "topics", "metadata", "requests", "wide", "sasl", "shares", "unwritten",
        "disk_space",
    )  # fmt: skip
    broker = bare(Broker, **{name: getattr(parts, name) for name in names})
    parts.topics.more_readable, parts.logs.raised = ["a log"], ["another"]
    broker.on_tick(NOW_MS)
    assert steps(parts) == TICK
    parts.reset_mock()
    parts.topics.more_readable, parts.logs.raised = ["a log"], ["another"]
    broker.on_tick(NOW_MS - 1)  # one millisecond before the deadlines
    assert steps(parts) == [
        name
        for name in TICK
        if name
        not in (
            "runtime.on_tick",
            "transactions.on_tick",
            "ends.run",
            "cuts.on_tick",
            "logs.on_tick",
        )
    ]


def test_the_steps_of_a_clean_stop_of_the_core() -> None:
    parts = MagicMock()
    parts.coordinators.made.cuts = parts.cuts
    names = ("on_sent", "requests", "coordinators", "topics", "logs", "metadata")
    broker = bare(Broker, **{name: getattr(parts, name) for name in names})
    broker.close_logs(NOW_MS, parts.sync)
    stop = [
        "on_sent",
        "requests.work.finish",
        "cuts.close",  # which records what was committed since the last cut
        "topics.make_internal_files",
        "logs.close",
    ]
    assert steps(parts) == [*stop, "metadata.close"]
    parts.reset_mock()
    parts.logs.close.side_effect = OSError(5, "Input/output error")
    with pytest.raises(OSError, match="Input/output"):
        broker.close_logs(NOW_MS, parts.sync)
    assert steps(parts) == [*stop, "logs.note_failure"]


def test_a_flush_that_ends_finds_the_deferred_calls_done() -> None:
    parts = MagicMock()
    names = ("on_sent", "outbox", "flushes", "progress")
    broker = bare(Broker, **{name: getattr(parts, name) for name in names})
    parts.progress.risen = []
    broker.on_flushed(SimpleNamespace(then=None), NOW_MS)
    assert steps(parts) == ["on_sent", "flushes.on_flushed"]
    parts.reset_mock()
    broker.on_flushed(SimpleNamespace(then=parts.then), NOW_MS)
    assert steps(parts) == ["on_sent", "then"], "of a sync that is none of the queue's"
