"""The share coordinator without a broker: which requests it refuses, and its state after a
replay.
"""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from barnabas.coordinator.result import Result, partition_for
from barnabas.coordinator.share_states import share_coordinator
from barnabas.coordinator.share_states.share_coordinator import (
    COLD_SNAPSHOT_INTERVAL_MS,
    ShareCoordinator,
)
from barnabas.coordinator.share_states.share_records import SharePartitionKey, Snapshot
from barnabas.coordinator.share_states.share_state import (
    MOST_BATCHES,
    NO_SUMMARY,
    Change,
    LeaderWrite,
    Summary,
)
from barnabas.coordinator.share_states.state_batches import StateBatch, combine
from barnabas.protocol.errors import Code
from barnabas.protocol.messages import initialize_share_group_state as initializing
from barnabas.protocol.messages import read_share_group_state as reading
from barnabas.protocol.messages import write_share_group_state as writing
from barnabas.protocol.request_context import RequestContext
from barnabas.protocol.wall_clock import WallClock

TOPIC = uuid.UUID(int=5)
PARTITIONS = 4
REQUEST = RequestContext(1, 1, "", "/127.0.0.1", connection_id=1)


def hard_state(coordinator: ShareCoordinator) -> Any:
    """The states of the share partitions as plain values, and the redundant offset of each internal
    partition.
    """
    states = {}
    for at in list(coordinator.keys()):
        state = coordinator.state(at)
        assert state is not None
        states[at] = {name: getattr(state, name) for name in state.__slots__}
    return states, [coordinator.redundant_offset(index) for index in range(PARTITIONS)]


class Host:
    """A host that appends and replays records. It compares the coordinator with a new one that
    replays the whole log.
    """

    def __init__(self, partitions: int = 10, updates: int = 3) -> None:
        """A share coordinator with a log. `partitions` is the number of partitions of the internal
        topic, and `updates` the number of updates between two snapshots.
        """
        self.partitions, self.updates = partitions, updates
        self.log: list[tuple[int, bytes, bytes | None]] = []
        self.now_ms = 1_000_000
        self.made = self.new()
        self.made.on_loaded(self.now_ms)

    def new(self) -> ShareCoordinator:
        return ShareCoordinator(
            partition_count=PARTITIONS,
            partition_exists=lambda topic_id, index: (
                topic_id == TOPIC.bytes and index < self.partitions
            ),
            wall=WallClock(),
            updates_per_snapshot=self.updates,
        )

    def _append(self, partition: int, record: Any) -> None:
        self.made.replay(partition, len(self.log), *record)
        self.log.append((partition, *record))

    def take(self, change: Change) -> int:
        """Append and replay the record of a change. Gives the error code."""
        if change.record is not None:
            self._append(change.log_partition, change.record)
        self.check()
        return change.error_code

    def run(self, result: Result) -> int:
        """Append and replay the records of a result. Gives their number."""
        rows = [(each.partition, row) for each in (result, *result.more) for row in each.records]
        for partition, record in rows:
            self._append(partition, record)
        self.check()
        return len(rows)

    def check(self) -> None:
        """Check that a replay of the whole log gives the same state. Without the redundant records,
        the same snapshots must result.
        """
        fresh, pruned = self.new(), self.new()
        for offset, (partition, key, value) in enumerate(self.log):
            fresh.replay(partition, offset, key, value)
            if offset >= self.made.redundant_offset(partition):
                pruned.replay(partition, offset, key, value)
        assert hard_state(fresh) == hard_state(self.made)
        for at in list(self.made.keys()):
            state, of_rest = self.made.state(at), pruned.state(at)
            assert state is not None and of_rest is not None, "its snapshot is redundant"
            assert of_rest.snapshot(1) == state.snapshot(1)

    def begin(self, key: SharePartitionKey, state_epoch: int = 0, start: int = -1) -> int:
        return self.take(self.made.decide_initialize(key, state_epoch, start, self.now_ms))

    def write(self, key: SharePartitionKey, *runs: tuple[int, int, int, int], **more: int) -> int:
        fields = {"state_epoch": 0, "leader_epoch": 0, "start_offset": -1, "count": -1} | more
        written = LeaderWrite(*fields.values(), [StateBatch(*run) for run in runs])  # type: ignore[arg-type]
        return self.take(self.made.decide_write(key, written, self.now_ms))


def key(partition: int = 0, group: str = "g") -> SharePartitionKey:
    return SharePartitionKey(group, TOPIC.bytes, partition)


def test_a_key_goes_to_kafkas_partition() -> None:
    expected = partition_for("g:AAAAAAAAAAAAAAAAAAAABQ:7", PARTITIONS)
    assert Host().made.partition_of(key(7)) == expected


def test_a_share_state_must_be_initialised_before_it_is_read_or_written() -> None:
    h = Host()
    assert h.write(key(), (0, 1, 2, 1)) == Code.INVALID_REQUEST
    assert h.take(h.made.decide_read(key(), 0, 0)) == Code.INVALID_REQUEST
    assert h.made.summary(key()) == NO_SUMMARY
    assert h.begin(key(99)) == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert h.begin(key()) == Code.NONE
    assert h.made.summary(key()) == Summary(-1, -1, 0, 0)
    assert h.write(key(), (0, 1, 2, 1), start_offset=0, count=2) == Code.NONE
    assert h.made.summary(key()) == Summary(0, 2, 0, 0)


def written(*runs: tuple[int, int, int, int], start: int = 0, count: int = -1) -> Any:
    rows = [writing.StateBatch(*run) for run in runs]
    data = [writing.PartitionData(0, 0, 0, start, count, rows)]
    return writing.WriteShareGroupStateRequest("g", [writing.WriteStateData(TOPIC, data)])


@pytest.mark.parametrize(
    ("runs", "how"),
    [
        ([(3, 2, 2, 1)], {}),  # the first offset is above the last
        ([(-1, 2, 2, 1)], {}),
        ([(0, 2, 1, 1)], {}),  # no broker stores the acquired state
        ([(0, 2, 3, 1)], {}),
        ([(0, 2, -1, 1)], {}),
        ([(0, 2, 99, 1)], {}),
        ([(0, 2, 0, -1)], {}),
        # the highest delivery count, after which no further delivery is possible
        ([(0, 2, 0, 32767)], {}),
        ([], {"start": -2}),
        ([], {"count": -2}),
        ([(0, 1, 2, 1), (3, 2, 2, 1)], {}),
    ],
)
def test_a_state_that_no_share_partition_can_have_is_refused(
    runs: list[tuple[int, int, int, int]], how: dict[str, int]
) -> None:
    h = Host()
    h.begin(key(), start=0)
    before = hard_state(h.made)
    result = h.made.on_write(written(*runs, **how), REQUEST, h.now_ms)
    assert h.run(result) == 0
    assert result.replies[0].response.results[0].partitions[0].error_code == Code.INVALID_REQUEST
    assert hard_state(h.made) == before
    assert h.run(h.made.on_write(written((0, 2, 0, 32766), (3, 9, 4, 5)), REQUEST, h.now_ms)) == 1


def test_a_start_offset_below_minus_one_is_refused() -> None:
    h = Host()
    rows = [initializing.PartitionData(0, 0, -2)]
    request = initializing.InitializeShareGroupStateRequest(
        "g", [initializing.InitializeStateData(TOPIC, rows)]
    )
    result = h.made.on_initialize(request, REQUEST, h.now_ms)
    assert h.run(result) == 0
    assert result.replies[0].response.results[0].partitions[0].error_code == Code.INVALID_REQUEST


def test_a_state_with_a_given_start_offset_has_no_completed_records() -> None:
    h = Host()
    h.begin(key(), start=7)
    assert h.made.summary(key()) == Summary(7, 0, 0, 0)


def test_updates_accumulate_and_a_snapshot_follows_every_two() -> None:
    h = Host(updates=2)
    h.begin(key())
    for at in range(5):
        assert h.write(key(), (10 * at, 10 * at + 4, 2, 1), start_offset=0) == Code.NONE
    state = h.made.state(key())
    assert state is not None
    assert [run[:2] for run in state.batches] == [(10 * at, 10 * at + 4) for at in range(5)]
    versions = [row[1][1] for row in h.log]
    # The key version is 0 for a snapshot, and 1 for an update.
    assert versions == [0, 1, 1, 0, 1, 1]
    assert state.snapshot_epoch == 1


@pytest.mark.parametrize("seed", range(20))
def test_a_snapshot_is_the_sum_of_the_updates_before_it(seed: int) -> None:
    """Whether a change is stored as an update or as a snapshot makes no difference to the state."""
    rng = random.Random(seed)
    often, never = Host(updates=1), Host(updates=500)
    for host in (often, never):
        host.begin(key(), start=3)
    start_offset, leader_epoch = 3, 0
    for _ in range(8):
        start_offset += rng.choice((0, 0, 2))
        leader_epoch += rng.choice((0, 0, 1))
        first = start_offset + rng.randrange(6)
        run = (first, first + rng.randrange(4), rng.choice((0, 2, 4)), rng.randrange(1, 3))
        fields = {
            "leader_epoch": rng.choice((leader_epoch, -1)),
            "start_offset": rng.choice((start_offset, -1)),
            "count": rng.randrange(5),
        }
        for host in (often, never):
            before = whole(host)._replace(leader_epoch=leader_epoch)
            assert host.take(host.made.decide_read(key(), leader_epoch, host.now_ms)) == Code.NONE
            assert whole(host) == before, "a new leader changes nothing but the epoch"
            assert host.write(key(), run, **fields) == Code.NONE
        assert whole(often) == whole(never)
        one, other = often.made.state(key()), never.made.state(key())
        assert one is not None and other is not None
        assert one.highest_leader_epoch == other.highest_leader_epoch == leader_epoch


def whole(host: Host) -> Snapshot:
    """The state of a share partition, without timestamps and without the number of its
    snapshots.
    """
    state = host.made.state(key())
    assert state is not None
    return state.snapshot(0)._replace(create_timestamp=0, write_timestamp=0)


def test_a_new_start_offset_drops_the_batches_before_it() -> None:
    h = Host()
    h.begin(key())
    h.write(key(), (0, 9, 2, 1), (10, 19, 0, 2), start_offset=0)
    h.write(key(), start_offset=15)
    state = h.made.state(key())
    assert state is not None
    assert state.batches == [(15, 19, 0, 2)]


def test_an_earlier_leader_epoch_is_fenced() -> None:
    h = Host()
    h.begin(key())
    assert h.take(h.made.decide_read(key(), 5, 0)) == Code.NONE
    assert h.made.summary(key()).leader_epoch == 5
    assert h.take(h.made.decide_read(key(), 4, 0)) == Code.FENCED_LEADER_EPOCH
    assert h.write(key(), leader_epoch=4) == Code.FENCED_LEADER_EPOCH
    assert h.write(key(), leader_epoch=-1) == Code.NONE
    size = len(h.log)
    assert h.take(h.made.decide_read(key(), 5, 0)) == Code.NONE
    assert len(h.log) == size, "a leader that reads again changes nothing"


def test_a_new_initialisation_fences_writers_of_the_earlier_state_epoch() -> None:
    h = Host()
    h.begin(key())
    h.write(key(), (0, 3, 2, 1), start_offset=0)
    assert h.begin(key(), state_epoch=2, start=30) == Code.NONE
    state = h.made.state(key())
    assert state is not None
    assert (state.start_offset, state.batches, state.snapshot_epoch) == (30, [], 1)
    assert h.write(key(), state_epoch=1) == Code.FENCED_STATE_EPOCH
    assert h.begin(key(), state_epoch=1) == Code.FENCED_STATE_EPOCH
    assert h.write(key(), state_epoch=2) == Code.NONE


def test_a_deleted_state_is_gone_and_deleting_it_again_changes_nothing() -> None:
    h = Host()
    h.begin(key())
    assert h.take(h.made.decide_delete(key())) == Code.NONE
    size = len(h.log)
    assert h.take(h.made.decide_delete(key())) == Code.NONE
    assert len(h.log) == size
    assert h.write(key()) == Code.INVALID_REQUEST


def test_states_of_deleted_topics_are_deleted() -> None:
    h = Host()
    for at in range(6):
        h.begin(key(at))
    assert h.run(h.made.on_topics_deleted({uuid.UUID(int=6).bytes})) == 0
    assert h.run(h.made.on_topics_deleted({TOPIC.bytes})) == 6
    assert not len(h.made)


def test_the_redundant_records_are_before_the_oldest_of_the_last_snapshots() -> None:
    h = Host(updates=1)
    one = key(0)
    log_partition = h.made.partition_of(one)
    other = next(key(at) for at in range(1, 10) if h.made.partition_of(key(at)) == log_partition)
    h.begin(one)  # offset 0
    h.begin(other)  # 1
    h.write(one)  # 2, an update
    h.write(one)  # 3, a snapshot
    assert h.made.redundant_offset(log_partition) == 1
    h.write(other)
    h.write(other)  # 5, a snapshot
    assert h.made.redundant_offset(log_partition) == 3
    h.take(h.made.decide_delete(one))
    assert h.made.redundant_offset(log_partition) == 5
    h.take(h.made.decide_delete(other))
    assert h.made.redundant_offset(log_partition) == 7


def test_a_partition_without_writes_gets_a_snapshot_after_the_interval() -> None:
    h = Host(updates=500)
    for at in range(4):
        h.begin(key(at))
    h.write(key(1), (0, 0, 2, 1), start_offset=0)
    h.now_ms += COLD_SNAPSHOT_INTERVAL_MS
    deadline_ms = h.made.next_deadline_ms()
    assert deadline_ms == h.now_ms
    assert h.run(h.made.on_tick(h.now_ms)) == 4
    state = h.made.state(key(1))
    assert state is not None
    assert state.batches == [(0, 0, 2, 1)]
    assert h.made.next_deadline_ms() is None, "nothing has changed since"
    h.now_ms += COLD_SNAPSHOT_INTERVAL_MS
    assert h.run(h.made.on_tick(h.now_ms)) == 0
    h.write(key(1), start_offset=1)
    h.now_ms += COLD_SNAPSHOT_INTERVAL_MS
    others = [at for at in range(4) if h.made.partition_of(key(at)) == state.log_partition]
    assert h.run(h.made.on_tick(h.now_ms)) == len(others)


def test_many_cold_partitions_get_their_snapshots_in_several_ticks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(share_coordinator, "COLD_AT_ONCE", 2)
    h = Host(partitions=30)
    for at in range(30):
        h.begin(key(at))
    h.now_ms += COLD_SNAPSHOT_INTERVAL_MS
    made = 0
    while h.made.next_deadline_ms() == h.now_ms:
        count = h.run(h.made.on_tick(h.now_ms))
        assert count <= 2
        made += count
    assert made == 30
    assert min(map(h.made.redundant_offset, range(PARTITIONS))) >= 30


def test_a_refused_answer_has_nothing_of_the_state() -> None:
    h = Host()
    h.begin(key(), state_epoch=4, start=7)
    h.take(h.made.decide_read(key(), 5, 0))
    h.write(key(), (8, 9, 2, 1), state_epoch=4, leader_epoch=5)
    for index, leader_epoch in ((0, 4), (99, 5)):
        data = [reading.ReadStateData(TOPIC, [reading.PartitionData(index, leader_epoch)])]
        request = reading.ReadShareGroupStateRequest("g", data)
        (reply,) = h.made.on_read(request, REQUEST, h.now_ms).replies
        (row,) = reply.response.results[0].partitions
        assert row.error_code != Code.NONE
        assert (row.state_epoch, row.start_offset, list(row.state_batches)) == (0, 0, [])


def test_states_beyond_the_end_of_a_log_are_set_back() -> None:
    """A power loss removed records (`ends` has the end of each log). States must not refer to
    offsets beyond these ends, since new records will get them.
    """
    h = Host()
    h.begin(key(0))
    h.write(key(0), (10, 19, 2, 1), (25, 29, 2, 1), start_offset=5)
    h.begin(key(1), start=30)
    h.begin(key(2), start=3)
    ends = {0: 15, 1: 20, 2: 20}
    result = h.made.on_records_lost(lambda _, index: ends[index], h.now_ms)
    assert h.run(result) == 2
    states = [h.made.state(key(at)) for at in range(3)]
    assert [state and state.start_offset for state in states] == [5, 20, 3]
    assert states[0] is not None
    assert states[0].batches == [(10, 14, 2, 1)]
    assert states[0].delivery_complete_count == 5
    assert h.run(h.made.on_records_lost(lambda _, index: ends[index], h.now_ms)) == 0


@pytest.mark.parametrize(
    ("runs", "end", "expected"),
    [
        ([(10, 14, 2, 1)], 14, [(10, 13, 2, 1)]),
        ([(10, 14, 2, 1), (15, 19, 4, 2)], 15, [(10, 14, 2, 1)]),
        ([(10, 14, 2, 1)], 10, []),
        ([(10, 14, 2, 1)], 15, [(10, 14, 2, 1)]),
    ],
    ids=["its last offset", "the first of a run", "all of them", "nothing"],
)
def test_exactly_the_lost_offsets_leave_a_state(
    runs: list[tuple[int, int, int, int]], end: int, expected: list[tuple[int, int, int, int]]
) -> None:
    """An acknowledgement of the first lost offset must not remain: a new record gets the offset,
    and would never be delivered.
    """
    h = Host()
    h.begin(key())
    h.write(key(), *runs, start_offset=5)
    count = h.run(h.made.on_records_lost(lambda *_: end, h.now_ms))
    state = h.made.state(key())
    assert state is not None
    assert (state.batches, state.start_offset) == (expected, 5)
    assert count == (expected != runs)


def test_a_start_at_the_end_of_the_log_is_kept_and_one_behind_it_is_not() -> None:
    h = Host()
    for partition, start in enumerate((7, 8)):
        h.begin(key(partition), start=start)
    h.run(h.made.on_records_lost(lambda *_: 7, h.now_ms))
    assert [h.made.summary(key(at)).start_offset for at in (0, 1)] == [7, 7]


def test_a_new_beginning_does_not_admit_an_earlier_leader_or_state_epoch() -> None:
    """Initialising a state again sets its own epochs back, but a leader that was fenced stays
    fenced.
    """
    h = Host()
    h.begin(key(), state_epoch=5)
    assert h.take(h.made.decide_read(key(), 5, h.now_ms)) == 0
    h.begin(key(), state_epoch=-1)
    assert h.take(h.made.decide_read(key(), 4, h.now_ms)) == Code.FENCED_LEADER_EPOCH
    assert h.write(key(), leader_epoch=4, state_epoch=5) == Code.FENCED_LEADER_EPOCH
    assert h.write(key(), leader_epoch=5, state_epoch=4) == Code.FENCED_STATE_EPOCH
    assert h.begin(key(), state_epoch=4) == Code.FENCED_STATE_EPOCH
    assert h.write(key(), leader_epoch=5, state_epoch=5) == 0


def test_a_snapshot_that_continues_a_state_is_no_new_beginning() -> None:
    """A leader drops what it has loaded at a new beginning, and with it the locks of its
    members.
    """
    h = Host(updates=2)
    h.begin(key(), start=3)
    state = h.made.state(key())
    assert state is not None
    incarnation = state.incarnation
    for offset in range(3, 9):
        h.write(key(), (offset, offset, 2, 1), start_offset=3)
    h.now_ms += COLD_SNAPSHOT_INTERVAL_MS
    h.begin(key(1))
    h.run(h.made.on_tick(h.now_ms))
    assert state.snapshot_epoch > 1 and state.incarnation == incarnation
    h.begin(key(), start=3)  # the acknowledged records are to be delivered again
    assert state.incarnation == incarnation + 1


def test_a_beginning_that_drops_the_only_acknowledged_record_is_noticed() -> None:
    h = Host()
    h.begin(key(), start=3)
    h.write(key(), (3, 3, 2, 1), start_offset=3)
    state = h.made.state(key())
    assert state is not None
    incarnation = state.incarnation
    h.begin(key(), start=3)
    assert state.incarnation == incarnation + 1


def test_adjacent_runs_of_one_state_are_joined_on_both_sides() -> None:
    """Otherwise the list grows with each acknowledgement that is not in order."""
    batches: list[StateBatch] = []
    for first in (0, 10, 20, 5, 15):
        combine(batches, [StateBatch(first, first + 4, 2, 1)], 0)
    assert batches == [(0, 24, 2, 1)]


def test_a_state_has_a_bounded_number_of_batches() -> None:
    """No share partition has as many: it has at most 10,000 locked records. Without a bound, a
    client could write a state of any size, and each further change would have to go through it.
    """
    h = Host(updates=2)
    assert h.begin(key()) == Code.NONE
    half = MOST_BATCHES // 2
    runs = [(2 * at, 2 * at, 0, 1) for at in range(MOST_BATCHES)]
    assert h.write(key(), *runs[:half], start_offset=0) == Code.NONE
    assert h.write(key(), *runs[half:]) == Code.NONE
    one_more = (2 * MOST_BATCHES, 2 * MOST_BATCHES, 0, 1)
    assert h.write(key(), one_more) == Code.INVALID_REQUEST
    assert h.write(key(), *runs[:9]) == Code.NONE, "they are there already"
    assert h.write(key(), one_more, start_offset=2) == Code.NONE, "the first one has ended"
    whole = [StateBatch(*run) for run in (*runs, one_more)]
    assert "20001 batches are more than" in (LeaderWrite(0, 0, 0, 0, whole).fault() or "")
