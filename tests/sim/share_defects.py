"""Mistakes planted into share groups; they extend the list of `defects.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from barnabas.broker.share_partitions import acquisition, waiting_share_fetch
from barnabas.broker.share_partitions.share_partition import SharePartition, Transition, _Staged
from barnabas.broker.share_partitions.share_partition_cache import SharePartitionCache
from barnabas.broker.share_partitions.share_runtime import ShareRuntime
from barnabas.broker.share_partitions.shares import Shares
from barnabas.coordinator.internal_topics import SHARE_STATE_TOPIC
from barnabas.coordinator.share_states.share_coordinator import ShareCoordinator
from barnabas.coordinator.share_states.share_state import LeaderWrite, ShareState
from sim import focuses
from sim.defects import changed, defect
from sim.scenario import Scenario


def shared(scenario: Scenario) -> None:
    """Share groups, with few other clients."""
    scenario.brokers, scenario.moves, scenario.kafka_epochs, scenario.outages = 1, 0, 0, 0
    scenario.properties.pop("barnabas.brokers", None)
    scenario.journal_damage, scenario.workers, scenario.consumers, scenario.meddlers = 0.0, 0, 0, 0
    scenario.groups, scenario.quotas = (), {}
    scenario.applications, scenario.idempotent_producers = 2, 1
    scenario.use_sharers(3)


def with_kills(scenario: Scenario) -> None:
    focuses.with_kills(scenario)
    shared(scenario)


def with_power(scenario: Scenario) -> None:
    focuses.with_power(scenario)
    shared(scenario)
    scenario.properties.pop("barnabas.transaction.durability", None)


@defect("acknowledgements are answered before they are on the disk", "shares", tweak=with_power)
def acknowledgements_do_not_wait() -> Iterator[None]:
    on_written = ShareRuntime._on_written

    def go_on(self: ShareRuntime, written: Any, then: Any, now_ms: int, **_: bool) -> None:
        on_written(self, written, then, now_ms, waits=False)

    with changed(ShareRuntime, "_on_written", go_on):
        yield


@defect("acknowledgements are not stored", "shares", tweak=with_kills)
def acknowledgements_are_not_stored() -> Iterator[None]:
    decide_write = ShareCoordinator.decide_write

    def write_nothing(self: ShareCoordinator, key: Any, written: LeaderWrite, now_ms: int) -> Any:
        return decide_write(self, key, written._replace(state_batches=()), now_ms)

    with changed(ShareCoordinator, "decide_write", write_nothing):
        yield


@defect("an update of the state replaces all earlier ones", "shares", tweak=with_kills)
def updates_replace() -> Iterator[None]:
    add = ShareState.add

    def replace(self: ShareState, one: Any) -> None:
        self.batches.clear()
        add(self, one)

    with changed(ShareState, "add", replace):
        yield


@defect("members get offsets whose batches compaction has removed", "shares", "stuck",
        tweak=focuses.with_compacted_shares)  # fmt: skip
def removed_offsets_are_acquired() -> Iterator[None]:
    with changed(acquisition, "_removed", lambda fetched, fetch_offset: ()):
        yield


@defect("states are deleted before the snapshots that replace them are on the disk",
        "stuck", "skipped", tweak=with_power)  # fmt: skip
def states_are_pruned_early() -> Iterator[None]:
    def prune(self: ShareRuntime, now_ms: int) -> None:
        redundant = {
            log: offset
            for log in self._topics.logs_of(SHARE_STATE_TOPIC)
            if (offset := self._coordinator.redundant_offset(log.partition)) > log.log_start_offset
        }
        self._raise_starts(redundant, now_ms)

    with changed(ShareRuntime, "prune", prune):
        yield


@defect("a group of committed records gets aborted ones", "aborted-read", tweak=with_kills)
def aborted_records_are_acquired() -> Iterator[None]:
    with changed(waiting_share_fetch, "without", lambda partition, acquired, aborted: acquired):
        yield


@defect("a group of committed records reads beyond the last stable offset",
        "precommitted-read", "aborted-read", tweak=with_kills)  # fmt: skip
def open_transactions_are_acquired() -> Iterator[None]:
    read = waiting_share_fetch.WaitingShareFetch._read
    candidates = waiting_share_fetch.WaitingShareFetch._candidates

    def as_uncommitted(method: Any) -> Any:
        def call(self: Any, *args: Any) -> Any:
            was, self._is_committed = self._is_committed, False
            try:
                return method(self, *args)
            finally:
                self._is_committed = was

        return call

    with (
        changed(waiting_share_fetch.WaitingShareFetch, "_read", as_uncommitted(read)),
        changed(waiting_share_fetch.WaitingShareFetch, "_candidates", as_uncommitted(candidates)),
    ):
        yield


@defect("acquisition locks end 300 ms too early", "owners", tweak=shared)
def locks_end_early() -> Iterator[None]:
    ended = SharePartition.on_locks_ended

    def on_locks_ended(self: SharePartition, limits: Any, now_ms: int, **how: bool) -> Transition:
        return ended(self, limits, now_ms + 300, **how)

    tick = SharePartitionCache.on_tick

    with (
        changed(SharePartition, "on_locks_ended", on_locks_ended),
        changed(SharePartitionCache, "on_tick", lambda self, now_ms: tick(self, now_ms + 300)),
    ):
        yield


@defect("locks never end", "stuck", tweak=shared)
def locks_never_end() -> Iterator[None]:
    with changed(SharePartitionCache, "on_tick", lambda self, now_ms: None):
        yield


@defect(
    "the end of a session also releases the records that other members have acquired",
    "owners",
    tweak=shared,
)
def sessions_release_all() -> Iterator[None]:
    released = SharePartition.on_released

    def on_released(self: SharePartition, member_id: str, limits: Any) -> Transition:
        staged = _Staged(self, limits, 0)
        for batch in self.batches():
            for run in batch.runs:
                if run.state == 1:
                    staged.release(batch, run)
        return staged.transition() if self else released(self, member_id, limits)

    with changed(SharePartition, "on_released", on_released):
        yield


@defect("deliveries are not counted after a release", "shares", tweak=shared)
def deliveries_are_not_counted() -> Iterator[None]:
    released = _Staged._released

    with changed(
        _Staged, "_released", lambda self, run: released(self, run)._replace(delivery_count=0)
    ):
        yield


@defect("records beyond the end of a log stay acknowledged", "skipped", "stuck",
        tweak=with_power)  # fmt: skip
def states_are_not_set_back() -> Iterator[None]:
    with changed(Shares, "set_back", lambda self, now_ms: None):
        yield


@defect("the start offset passes unfinished records", "skipped", tweak=with_kills)
def starts_pass_records() -> Iterator[None]:
    move = SharePartition.move_start

    def move_one_more(self: SharePartition) -> bool:
        moved = move(self)
        if moved and self.in_flight_count > 1:
            self._forget(self.start_offset + 1)
        return moved

    with changed(SharePartition, "move_start", move_one_more):
        yield
