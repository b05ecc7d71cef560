"""Mistakes planted into replication, the lease and take-over, like those of a single broker in
`defects.py`. seed: the seed of a schedule that finds the mistake, at which the search starts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from barnabas.replication import catch_up as catch_up_module
from barnabas.replication.catch_up import CatchUp
from barnabas.replication.following import Following, StandbyNote
from barnabas.replication.leadership import Leadership
from barnabas.replication.leading import Leading, StandbyLink
from barnabas.replication.lease_exchange import EtcdExchange
from barnabas.replication.lease_record import LeaseRecord
from barnabas.replication.leased_lead import Keeper
from barnabas.replication.member_steps import MemberSteps
from barnabas.replication.operations import Kind, Operation, Replica, is_unfinished
from barnabas.replication.replicated_disk import ReplicatedDisk
from barnabas.replication.rim.early_sync import EarlySync
from barnabas.replication.steps_of_end import Ending, Until
from barnabas.storage.directory.log_manager import LogManager
from barnabas.storage.files.leader_epochs import HighestEpoch
from barnabas.storage.opening.last_run import RunNote
from sim import pair as pair_module
from sim.defects import changed
from sim.disk import SimDisk
from sim.pair_world import RESTORES, Pair


class PairDefect(NamedTuple):
    """A planted mistake. says: a sentence that describes it."""

    name: str
    says: str
    kinds: frozenset[str]
    plant: Callable[[], contextlib.AbstractContextManager[None]]
    tweak: Callable[[Pair], None]
    seed: int


PAIR_DEFECTS: list[PairDefect] = []


def with_sync(pair: Pair) -> None:
    """The mode `sync`, in which no acknowledged record may be lost."""
    pair.is_sync, pair.may_be_alone, pair.fault_count = True, True, 6


def with_kills(pair: Pair) -> None:
    """Leaders that are killed one after the other."""
    with_sync(pair)
    pair.faults, pair.gap_ms = ("kill leader", "power leader"), (300, 2500)


def with_partitions(pair: Pair) -> None:
    """The nodes cannot reach each other, or the engine, while both are up."""
    with_sync(pair)
    pair.faults = ("cut pair", "isolate leader", "cut engine leader", "kill leader")


def with_slow_clocks(pair: Pair) -> None:
    """A leader whose clock is slow, a standby whose clock is fast, and no connection from the
    leader to the engine.
    """
    with_sync(pair)
    pair.ttl_ms, pair.margin_ms, pair.rates = 800, 80, (0.955, 1.045)
    pair.faults, pair.lost, pair.late = ("cut engine leader", "stop leader"), 0.0, 0.0


def with_stops(pair: Pair) -> None:
    """Leaders that are stopped for longer than their lease."""
    with_sync(pair)
    pair.ttl_ms, pair.margin_ms, pair.faults = 400, 40, ("stop leader",)


def with_losses(pair: Pair) -> None:
    """Leaders that end while their standby is away, or is just returning."""
    with_sync(pair)
    pair.delay_ms, pair.gap_ms = 40, (200, 1500)
    pair.faults = ("lose leader", "heal and lose leader", "heal and lose leader")


def with_power(pair: Pair) -> None:
    """Power losses, some of which affect both machines."""
    with_sync(pair)
    pair.faults = ("power leader", "power standby", "kill leader", "power both")


def with_restores(pair: Pair) -> None:
    """Directories are restored to a state from an earlier leader's time, and nodes return after
    their lease has expired.
    """
    with_sync(pair)
    pair.gap_ms, pair.ttl_ms, pair.margin_ms, pair.down_ms = (100, 800), 400, 40, (5, 1500)
    pair.faults, pair.fault_count = (*RESTORES, *RESTORES, "kill leader"), 10


def with_async(pair: Pair) -> None:
    """Responses do not wait for the standby, and leaders end with the last acknowledged records not
    yet sent.
    """
    pair.is_sync, pair.fault_count, pair.delay_ms, pair.gap_ms = False, 6, 40, (200, 1500)
    pair.faults = ("kill leader", "power leader", "lose leader", "isolate leader")


def with_ends(pair: Pair) -> None:
    """Nodes that are requested to stop, while responses do not wait for the standby."""
    pair.is_sync, pair.fault_count, pair.delay_ms, pair.gap_ms = False, 6, 40, (300, 1500)
    pair.faults, pair.lost, pair.late = ("end leader", "end leader", "end standby"), 0.0, 0.0


def with_absences(pair: Pair) -> None:
    """Standbys that are away for longer than it takes to remove them from the in-sync set."""
    with_sync(pair)
    pair.ttl_ms, pair.margin_ms, pair.lost, pair.late = 400, 40, 0.0, 0.0
    pair.faults, pair.down_ms, pair.gap_ms = ("kill standby",), (2000, 3000), (200, 1500)


def with_etcd(pair: Pair) -> None:
    """Members of etcd that are down, silent, slow or partitioned, and leaders that end."""
    with_sync(pair)
    pair.etcd_members, pair.etcd_has_users = 3, True
    pair.faults = (
        "restart etcd",
        "silence etcd",
        "slow etcd",
        "part etcd",
        "kill leader",
        "end leader",
    )


def with_patient_losses(pair: Pair) -> None:
    """`with_losses`, but responses wait for an absent standby, which stays in the in-sync set."""
    with_losses(pair)
    pair.may_be_alone = False


def defect(
    says: str, *kinds: str, tweak: Callable[[Pair], None], seed: int = 0
) -> Callable[[Callable[[], Iterator[None]]], Callable[[], Any]]:
    """A decorator that adds a generator function to the list of mistakes, as a context manager."""

    def enter(plant: Callable[[], Iterator[None]]) -> Callable[[], Any]:
        manager = contextlib.contextmanager(plant)
        name = plant.__name__
        PAIR_DEFECTS.append(PairDefect(name, says, frozenset(kinds), manager, tweak, seed))
        return manager

    return enter


# --- answers -------------------------------------------------------------------------------------


@defect(
    "an answer does not wait for the standby",
    "lost",
    "contradicted",
    "moved",
    tweak=with_losses,
    seed=42,
)
def answer_before_the_standby_has_it() -> Iterator[None]:
    def is_applied(self: Leading, position: int) -> bool:
        return True

    with changed(Leading, "is_applied", is_applied):
        yield


@defect(
    "a leader goes on alone before the set says so",
    "lost",
    "contradicted",
    "moved",
    tweak=with_partitions,
    seed=6,
)
def alone_without_writing_the_set() -> Iterator[None]:
    is_applied = Leading.is_applied

    def is_applied_or_alone(self: Leading, position: int) -> bool:
        return self.link is None or is_applied(self, position)

    with changed(Leading, "is_applied", is_applied_or_alone):
        yield


# --- the lease -----------------------------------------------------------------------------------


@defect("a node that is not in the in-sync set claims the lease",
        "lost", "contradicted", "moved", "deleted", "epoch",
        tweak=with_partitions, seed=11)  # fmt: skip
def claim_from_outside_the_set() -> Iterator[None]:
    claim = Leadership._claim

    def claim_always(self: Leadership, now_ms: int) -> Any:
        record = self.record
        if record is not None:
            self.record = record._replace(in_sync=record.in_sync | {self.node_id})
        try:
            return claim(self, now_ms)
        finally:
            self.record = record

    with changed(Leadership, "_claim", claim_always):
        yield


@defect("a standby claims before the lease has ended", "misled", tweak=with_partitions, seed=8)
def claim_too_early() -> Iterator[None]:
    claim = Leadership._claim

    def claim_early(self: Leadership, now_ms: int) -> Any:
        return claim(self, now_ms + self._settings.ttl_ms * 3 // 4)

    with changed(Leadership, "_claim", claim_early):
        yield


@defect("the right to answer begins with the answer of the engine", "misled",
        tweak=with_slow_clocks, seed=33)  # fmt: skip
def right_from_the_answers_time() -> Iterator[None]:
    see = Leadership._process_record

    def see_late(self: Leadership, version: str, value: bytes, now_ms: int) -> None:
        self._pending = [pending._replace(sent_ms=now_ms) for pending in self._pending]
        see(self, version, value, now_ms)

    with changed(Leadership, "_process_record", see_late):
        yield


@defect("a leader answers to the very end of its lease", "misled", tweak=with_slow_clocks, seed=70)
def no_margin() -> Iterator[None]:
    may_answer = Leadership.may_answer

    def may_answer_longer(self: Leadership, now_ms: int) -> bool:
        return may_answer(self, now_ms - self._settings.margin_ms)

    with changed(Leadership, "may_answer", may_answer_longer):
        yield


@defect("a leader's right does not end by itself, but when the engine says so", "misled",
        tweak=with_stops, seed=5)  # fmt: skip
def no_look_after_standing_still() -> Iterator[None]:
    def may_answer(self: Leadership, now_ms: int) -> bool:
        return self._answers_until_ms is not None

    with changed(Leadership, "may_answer", may_answer):
        yield


@defect("a take-over begins no new leader epoch", "epoch", "crashed", tweak=with_kills, seed=10)
def no_new_epoch_at_a_take_over() -> Iterator[None]:
    begin = LogManager.begin_leader_epoch

    def begin_same(self: LogManager, logs: Any) -> None:
        self.leader_epoch = max(0, HighestEpoch(self.disk, self.data_dir).read() - 1)
        begin(self, logs)

    with changed(LogManager, "begin_leader_epoch", begin_same):
        yield


# --- the in-sync set -----------------------------------------------------------------------------


@defect(
    "a standby is in the in-sync set before it has caught up",
    "lost",
    "contradicted",
    "moved",
    "crashed",
    "stuck",
    "epoch",
    tweak=with_losses,
    seed=14,
)
def in_sync_before_it_has_caught_up() -> Iterator[None]:
    on_bytes = Leading.on_bytes

    def on_bytes_and_want(self: Leading, data: bytes, now_ms: int) -> None:
        on_bytes(self, data, now_ms)
        link = self.link
        if link is not None and link._catch_up is not None and self._leadership is not None:
            self._leadership.want_in_sync((link.node_id,))

    def keep_holding(self: Following) -> None:
        self._disk.unlink(f"{self._data_dir}/.kafka_cleanshutdown")
        self._is_noted = True

    with (
        changed(Leading, "on_bytes", on_bytes_and_want),
        changed(Following, "_begin_to_change", keep_holding),
    ):
        yield


@defect(
    "a catch-up changes a copy while its node may take over, and the note says that it is whole",
    "lost",
    "contradicted",
    "moved",
    "crashed",
    "stuck",
    "epoch",
    tweak=with_patient_losses,
    seed=178,
)
def change_a_copy_that_is_in_sync() -> Iterator[None]:
    def on_proven(self: Leading, link: StandbyLink) -> None:
        link.welcome(self.cluster_id)

    def keep_holding(self: Following) -> None:
        self._is_noted = True

    with (
        changed(Leading, "_on_proven", on_proven),
        changed(Following, "_begin_to_change", keep_holding),
    ):
        yield


@defect("a copy that the power has cut is taken for whole", "lost", "contradicted", "moved",
        "crashed", tweak=with_power, seed=1)  # fmt: skip
def cut_copies_are_whole() -> Iterator[None]:
    def is_same_run(self: RunNote) -> bool:
        return True

    with changed(RunNote, "is_same_run", is_same_run):
        yield


@defect("a copy that lacks acknowledged records goes on as after a kill", "refused",
        tweak=with_async)  # fmt: skip
def lacking_copies_go_on() -> Iterator[None]:
    def may_lack_acknowledged(self: StandbyNote, *, is_claimed: bool) -> bool:
        return False

    with changed(StandbyNote, "may_lack_acknowledged", may_lack_acknowledged):
        yield


@defect("what a standby had is not brought to its disk when it takes over", "lost", "crashed",
        "moved", "stuck", tweak=with_power, seed=2)  # fmt: skip
def a_take_over_is_not_durable() -> Iterator[None]:
    def sync_all(self: SimDisk) -> None:
        pass

    with changed(SimDisk, "sync_all", sync_all):
        yield


# --- the copy ------------------------------------------------------------------------------------


@defect("what the new leader does not have is not cut", "lost", "stuck", tweak=with_kills, seed=1)
def old_leader_is_not_cut() -> Iterator[None]:
    apply = Replica.apply

    def apply_no_cut(self: Replica, operation: Operation) -> None:
        if operation.kind is Kind.TRUNCATE and operation.path.endswith(".log"):
            return
        apply(self, operation)

    with changed(Replica, "apply", apply_no_cut):
        yield


@defect("a piece of the same length is taken for the same", "lost", "moved", "stuck",
        "crashed", tweak=with_partitions)  # fmt: skip
def compare_by_length_alone() -> Iterator[None]:
    def same(data: Any) -> int:
        return 0

    with changed(catch_up_module, "crc32c", same):
        yield


@defect("catching up skips a file", "lost", tweak=with_kills)
def catch_up_skips_a_file() -> Iterator[None]:
    visit = CatchUp._visit

    def visit_but_one(self: CatchUp, entry: str) -> Sequence[Operation]:
        operations = visit(self, entry)
        for path in [path for path in self._pending if path.endswith("leader-epoch-checkpoint")]:
            del self._pending[path]
        return operations

    with changed(CatchUp, "_visit", visit_but_one):
        yield


@defect("a rename is not sent", "lost", "stuck", tweak=with_sync, seed=4)
def renames_are_not_told() -> Iterator[None]:
    def rename(self: ReplicatedDisk, old: str, new: str) -> None:
        self._disk.rename(old, new)

    with changed(ReplicatedDisk, "rename", rename):
        yield


@defect(
    "writes to __transaction_state are sent after the write that follows them",
    "lost",
    "torn",
    "contradicted",
    "stuck",
    "crashed",
    tweak=with_kills,
    seed=5,
)
def order_is_lost_in_the_stream() -> Iterator[None]:
    add = StandbyLink._add
    late: dict[StandbyLink, list[Operation]] = {}

    def add_late(self: StandbyLink, operation: Operation) -> None:
        if operation.path.startswith("__transaction_state"):
            late.setdefault(self, []).append(operation)
            return
        add(self, operation)
        for one in late.pop(self, ()):
            add(self, one)

    with changed(StandbyLink, "_add", add_late):
        yield


@defect(
    "a stream continues after an earlier one without a comparison of the files",
    "lost",
    "contradicted",
    "moved",
    "stuck",
    "crashed",
    tweak=with_partitions,
)
def stream_goes_on_at_a_wrong_place() -> Iterator[None]:
    init = CatchUp.__init__

    def nothing_is_lacking(self: CatchUp, disk: Any, data_dir: str, inventory: Any) -> None:
        init(self, disk, data_dir, inventory)
        # not if the copy is empty, since the standby then connects for the first time
        if len(inventory) > 8:
            self._unvisited.clear()
            self._held.clear()

    with changed(CatchUp, "__init__", nothing_is_lacking):
        yield


@defect("a position from a standby that has not caught up counts", "lost", "contradicted",
        "moved", tweak=with_losses, seed=1055)  # fmt: skip
def positions_before_it_has_caught_up() -> Iterator[None]:
    on_applied = Leading._on_applied
    take_output = StandbyLink.take_output

    def caught_up_nowhere(self: StandbyLink, position: int) -> bytes:
        output = take_output(self, position)
        self.caught_up_at = -1
        return output

    def on_applied_early(self: Leading, link: StandbyLink, now_ms: int) -> None:
        if link.state.name == "FOLLOWING":
            link.applied = max(link.applied, self.position)
        on_applied(self, link, now_ms)

    with (
        changed(StandbyLink, "take_output", caught_up_nowhere),
        changed(Leading, "_on_applied", on_applied_early),
    ):
        yield


@defect(
    "a node leads with a directory from an earlier leader's time",
    "lost",
    "contradicted",
    "moved",
    "epoch",
    tweak=with_restores,
    seed=72,
)
def an_older_copy_leads() -> Iterator[None]:
    def is_older(self: Leadership, record: LeaseRecord) -> bool:
        return False

    with changed(Leadership, "_is_older", is_older):
        yield


# --- the rims ------------------------------------------------------------------------------------


@defect("a leader that ends gives the lease up before its standby has the rest", "lost",
        tweak=with_ends, seed=12)  # fmt: skip
def lease_is_given_up_before_the_rest_is_sent() -> Iterator[None]:
    def release_first(server: Ending, keeper: Keeper) -> Iterator[Until]:
        if server.is_deposed:
            return
        keeper.begin_release()
        yield Until.RELEASED
        server.close()
        yield Until.REST_IS_SENT

    with changed(pair_module, "steps_of_end", release_first):
        yield


@defect(
    "a leader that ends does not wait until its standby has the rest",
    "lost",
    tweak=with_ends,
    seed=29,
)
def rest_is_not_waited_for() -> Iterator[None]:
    def all_at_once(server: Ending, keeper: Keeper) -> Iterator[Until]:
        server.close()
        keeper.begin_release()
        yield Until.RELEASED

    with changed(pair_module, "steps_of_end", all_at_once):
        yield


@defect("a standby that is gone stays in sync, and the leader does not answer", "stuck",
        tweak=with_absences)  # fmt: skip
def who_is_gone_stays_in_the_set() -> Iterator[None]:
    def on_closed(self: Leading) -> None:
        self.link = None
        self._release()

    with changed(Leading, "on_closed", on_closed):
        yield


@defect("the cleaner's bytes are sent after their name", "diverged", tweak=with_sync, seed=1)
def cleaned_bytes_come_late() -> Iterator[None]:
    def rename(self: ReplicatedDisk, old: str, new: str) -> None:
        self._disk.rename(old, new)
        name, new_name = self._name(old), self._name(new)
        if name is not None and new_name is not None:
            self.tell(Operation(Kind.RENAME, name, new_path=new_name))
            if is_unfinished(old) and self.publish is not None:
                self._tell_content(new, new_name)

    with changed(ReplicatedDisk, "rename", rename):
        yield


@defect("a file that takes another one's name is compared as that one", "diverged",
        tweak=with_kills, seed=1126)  # fmt: skip
def names_are_compared_and_not_files() -> Iterator[None]:
    def move(self: CatchUp, path: str, new_path: str | None) -> None:
        if path in self._pending:
            pending = self._pending.pop(path)
            if new_path is not None:
                self._pending[new_path] = pending

    with changed(CatchUp, "_move", move):
        yield


@defect("writes after an early sync are not synced at a take-over", "lost", "crashed", "moved",
        "stuck", "contradicted", tweak=with_power, seed=30)  # fmt: skip
def early_syncs_are_the_last() -> Iterator[None]:
    def on_written(self: EarlySync) -> None:
        pass

    with changed(EarlySync, "on_written", on_written):
        yield


@defect("a copy keeps its leader's node.id when its own node leads", "crashed", tweak=with_kills)
def copies_stay_the_leaders() -> Iterator[None]:
    def take_directory(self: MemberSteps) -> None:
        pass

    with changed(MemberSteps, "_take_directory", take_directory):
        yield


@defect("a login that etcd has forgotten is never renewed", "stuck", tweak=with_etcd, seed=5)
def logins_last_for_ever() -> Iterator[None]:
    call = EtcdExchange._call

    def call_with_the_first(self: EtcdExchange, path: str, body: Any) -> Any:
        token = self._token
        try:
            return (yield from call(self, path, body))
        finally:
            self._token = token or self._token

    with changed(EtcdExchange, "_call", call_with_the_first):
        yield
